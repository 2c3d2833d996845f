"""Topologies known node by node: topograph's graph, Kubernetes' labels, and other JSON refused."""

import json
from pathlib import Path

import pytest

from planner.cluster import Topology, TopologyBlock, TopologySwitch
from planner.errors import InputError
from planner.formats.topology_files import read_topology, write_topology
from planner.formats.yaml_text import Node, parse

INSTANCES = {
    "instances": [
        {
            "id": "n1",
            "network_layers": ["leaf1", "spine1"],
            "labels": {"network.topology.nvidia.com/accelerator": "nvl1"},
        },
        {"id": "n2", "network_layers": ["leaf1", "spine1"], "attributes": {"nvlink": "nvl1"}},
        {"id": "n3", "network_layers": ["leaf2", "spine2"], "labels": {}},
    ]
}


def _nodes(*labels: dict[str, str]) -> dict[str, object]:
    return {
        "kind": "List",
        "items": [{"kind": "Node", "metadata": {"name": f"n{i}", "labels": x}} for i, x in enumerate(labels, 1)],
    }


def _parents(topology: Topology) -> dict[str, str | None]:
    return {s.name: s.parent for s in topology.switches}


def _read(directory: Path, data: object, **options: object) -> Topology:
    file = directory / "cluster.json"
    file.write_text(json.dumps(data))
    return read_topology(file, **options)  # type: ignore[arg-type]


def test_topograph(tmp_path: Path) -> None:
    """Layers are the tree, labels or attributes the scale-up domains; spines without a core get a root."""
    found = _read(tmp_path, INSTANCES)
    assert _parents(found) == {"leaf1": "spine1", "spine1": "root", "leaf2": "spine2", "spine2": "root", "root": None}
    assert found.blocks == (TopologyBlock(name="nvl1", nodes=("n1", "n2")),)


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        ([], "instances: must be a list with at least one"),
        ([7], r"instances\[0\]: must be an object"),
        ([{"id": "", "network_layers": ["a"]}], r"instances\[0\].id: must be a node's name"),
        ([{"id": "n1", "network_layers": []}], r"instances\[0\].network_layers: must name the switches above 'n1'"),
        ([{"id": "n1", "network_layers": ["a"]}] * 2, r"instances\[1\]: node 'n1' is already at instances\[0\]"),
        (
            [{"id": f"n{i}", "network_layers": ["a", f"s{i}"]} for i in range(2)],
            r"instances\[1\]: switch 'a' is below 's0' at instances\[0\] and below 's1'",
        ),
        ([{"id": "n1", "network_layers": ["a", "b", "a"]}], r"instances\[0\]: switch 'a' is below 'b'"),
        (
            [{"id": "n1", "network_layers": ["a"]}, {"id": "n2", "network_layers": ["b", "a"]}],
            "switch 'a' has both nodes and switches",
        ),
    ],
)
def test_topograph_refuses_by_path(tmp_path: Path, instances: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _read(tmp_path, {"instances": instances})


@pytest.mark.parametrize(
    "keys",
    [
        ("fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"),
        ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"),
        ("network.topology.nvidia.com/block", "network.topology.nvidia.com/spine"),
        ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
        ("topology.k8s.aws/network-node-layer-3", "topology.k8s.aws/network-node-layer-2"),
        ("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
    ],
)
def test_kubernetes_families(tmp_path: Path, keys: tuple[str, str]) -> None:
    """Each writer's labels are known by themselves; a node without any, such as a control plane, is left out."""
    leaf, spine = keys
    found = _read(
        tmp_path,
        _nodes({leaf: "a", spine: "s"}, {leaf: "b", spine: "s", "nvidia.com/gpu.clique": "c.1"}, {"other": "x"}),
    )
    assert _parents(found) == {"a": "s", "s": None, "b": "s"}
    assert [s.nodes for s in found.switches] == [("n1",), (), ("n2",)]
    assert found.blocks == (TopologyBlock(name="c.1", nodes=("n2",)),)


def test_kubernetes_keys_of_ones_own(tmp_path: Path) -> None:
    data = _nodes({"rack": "r1", "hall": "h"}, {"rack": "r2", "hall": "h"})
    assert _parents(_read(tmp_path, data, keys=("rack", "hall"))) == {"r1": "h", "h": None, "r2": "h"}
    with pytest.raises(InputError, match="no node has a topology label"):
        _read(tmp_path, data)
    with pytest.raises(InputError, match=r"items\[1\]: node 'n2' has no label hall"):
        _read(tmp_path, _nodes({"rack": "r1", "hall": "h"}, {"rack": "r2"}), keys=("rack", "hall"))


OTHER = """{ [] {} {"items":3} {"items":[{"kind":"Pod"}]} {"items":[{"metadata":{}}]} {"planner_version":1}"""


@pytest.mark.parametrize("text", OTHER.split())
def test_other_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=r"x\.json: "):
        read_topology(tmp_path / "x.json")


def test_kueue_labels_read_back(tmp_path: Path) -> None:
    tree = Topology(
        switches=(
            TopologySwitch(name="core"),
            *(TopologySwitch(name=f"leaf{i}", parent="core", nodes=(f"n{i}", f"m{i}")) for i in range(2)),
        ),
        blocks=(TopologyBlock(name="b1", nodes=("n0", "m0")),),
    )

    def plain(node: Node) -> object:
        if isinstance(node.value, dict):
            return {k: plain(x) for k, x in node.value.items()}
        return [plain(x) for x in node.value] if isinstance(node.value, list) else node.value

    objects = [plain(parse(text, "k")) for text in write_topology(tree, "kueue").split("---\n")]
    found = _read(tmp_path, {"items": [o for o in objects if isinstance(o, dict) and o["kind"] == "Node"]})
    assert _parents(found) == _parents(tree)
    assert found.blocks == tree.blocks
