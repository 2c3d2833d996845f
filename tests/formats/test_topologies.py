"""Topologies: read as they stand, written as they were, known node by node, refused by line or path."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from each_case import each
from hypothesis import given
from hypothesis import strategies as st

from planner.cluster.topology import Topology, TopologyBlock, TopologySwitch
from planner.errors import InputError
from planner.formats.cluster_files import TOPOLOGY_WRITERS, read_topology
from planner.formats.topologies import leaf_of, plan_topology, read_conf, read_yaml, write_conf, write_yaml
from planner.instance.hardware import Hardware
from planner.instance.instance import Instance
from planner.plan.plan import Plan
from planner.plan.plan_sections import FabricPlan, Site, SiteFabric, SitesPlan

TREE = """\
# two leaves under one core
switchname=leaf1 NODES=n[01-04]   # the first
SwitchName=leaf2 Nodes="n[05-06],m7" LinkSpeed=100
SwitchName=core \\
  Switches=leaf[1-2]
"""
YAML = """\
---
# a tree, blocks, and one that says nothing
- topology: fabric
  cluster_default: true
  tree:
    switches:
    - switch: core
      children: leaf[1-2]
    - switch: leaf1   # the first
      nodes: n[01-04]
    - switch: leaf2
      nodes: "n[05-06],m7"
- topology: nvl
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: n[01-02]
      - block: b2
        nodes: n[03-04]
- topology: plain
  flat: true
"""


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Trees of two or three tiers with leaves of any size, blocks inside them or alone, names of several looks."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    look = draw(st.sampled_from(["n{}", "rack1-n{:04d}", "r{0}n{0:02d}", "node{}x"]))
    names = [look.format(i) for i in range(sum(sizes))]
    leaves = [tuple(names[sum(sizes[:i]) : sum(sizes[: i + 1])]) for i in range(len(sizes))]
    blocks = tuple(TopologyBlock(name=f"b{i}", nodes=nodes) for i, nodes in enumerate(leaves))
    base = draw(st.integers(1, 4))
    block_sizes = draw(st.sampled_from([(), (base,), (base, 2 * base), (base, 4 * base, 8 * base)]))
    if draw(st.booleans()):
        return Topology(kind="block", blocks=blocks, block_sizes=block_sizes)
    pods = draw(st.integers(1, len(sizes)))
    top = [TopologySwitch(name="core")] + [TopologySwitch(name=f"pod-{p}", parent="core") for p in range(pods)]
    tree = [TopologySwitch(name=f"leaf{i}", parent=f"pod-{i % pods}", nodes=nodes) for i, nodes in enumerate(leaves)]
    beside = draw(st.booleans())
    return Topology(switches=(*tree, *top), blocks=blocks if beside else (), block_sizes=block_sizes if beside else ())


@given(topologies())
def test_round_trip(topology: Topology) -> None:
    """A topology.yaml says all, a topology.conf all but the blocks beside a tree."""
    assert read_yaml(write_yaml(topology), "topology.yaml") == topology
    kept = topology if topology.kind == "block" else topology.replaced(blocks=(), block_sizes=())
    assert read_conf(write_conf(topology), "topology.conf") == kept


@each("text", [TREE, YAML, "\n" + YAML.replace("---\n", "")])
def test_files_as_people_write_them(text: str, tmp_path: Path) -> None:
    """Comments, continued lines, quotes, any case, hostlists for nodes and switches; the format shows by what is said.

    Of a topology.yaml the cluster's default is the tree, and the one block topology tells its scale-up domains.
    """
    (tmp_path / "topology").write_text(text)
    tree = read_topology(tmp_path / "topology")
    leaves = (("leaf1", "core", ("n01", "n02", "n03", "n04")), ("leaf2", "core", ("n05", "n06", "m7")))
    assert {(s.name, s.parent, s.nodes) for s in tree.switches} == {*leaves, ("core", None, ())}
    blocks = tuple(TopologyBlock(name=f"b{i}", nodes=(f"n0{2 * i - 1}", f"n0{2 * i}")) for i in (1, 2))
    assert (tree.kind, tree.blocks, tree.block_sizes) == ("tree", *(((), ()) if text == TREE else (blocks, (2, 4))))


def test_a_name_chooses_a_topology_of_a_file(tmp_path: Path) -> None:
    assert read_yaml(YAML, "y", "nvl").kind == "block"
    with pytest.raises(InputError, match=r"line 21: 'plain' is flat"):
        read_yaml(YAML, "y", "plain")
    with pytest.raises(InputError, match="no topology 'nv'; did you mean 'nvl'"):
        read_yaml(YAML, "y", "nv")
    with pytest.raises(InputError, match="no such file"):
        read_topology(tmp_path / "absent")


BAD = {
    "SwitchName=a Nodes=n[1-3]\nSwitchName=b Nodes=n[2-4]\nSwitchName=c Switches=a,b":
     r"line 2: node n\[2-3\] is under leaf 'a' \(line 1\)",
    "SwitchName=a Nodes=n1,n1": "line 1: leaf 'a' names n1 twice",
    "SwitchName=a Switches=b\nSwitchName=b Switches=a": "line 1: the tree has no root above 'a': .*a under b under a",
    "SwitchName=r Nodes=n1\nSwitchName=a Switches=b\nSwitchName=b Switches=a": "line 2: the tree has no root above 'a'",
    "SwitchName=a Switches=a": "line 1: the tree has no root above 'a'",
    "SwitchName=leaf1 Nodes=n1\nSwitchName=b Switches=leaf2":
     "line 2: switch 'b' has the unknown child 'leaf2'; did you mean 'leaf1'",
    "SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=a,b":
     r"line 3: switch 'a' is a child of 'b' \(line 2\) and of 'c'",
    "SwitchName=a Nodes=n1\nSwitchName=b Switches=a,a": "line 2: switch 'a' is twice a child of 'b'",
    "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2": "line 2: switch 'a' is already at line 1",
    "SwitchName=a Nodes=n1 Switches=b": "line 1: switch 'a' has both nodes and switches",
    "SwitchName=a": "line 1: switch 'a' has neither nodes nor switches",
    "SwitchName=a[1-2] Nodes=n1": r"line 1: SwitchName=a\[1-2\] must be one name",
    "SwitchName=a \\\n  # all\nNodes=n1\n": "line 3: Nodes= has no owner",
    "SwitchName=a Nodes=n1 \\\\\n": r"line 1: '\\\\' is not KEY=VALUE",
    "# c\nSwitchName=a Nodes=n[1-4": r"line 2: Nodes: 'n\[1-4': a bracket is not closed",
    "SwitchName=a Nodes=": "line 1: Nodes: the hostlist is empty",
    "SwichName=a Nodes=n1": "line 1: unknown keyword 'SwichName'; did you mean 'SwitchName'",
    "SwitchName=a Nodes=n\x001": r"line 1: node 'n\\x001' contains '\\x00'; name it with letters",
    "SwitchName=a Nodes=n=1": "line 1: node 'n=1' contains '='",
    "SwitchName=a Nodes=n1 Nodes=n2": "line 1: Nodes= is given twice",
    "SwitchName=a Nodes=n1 BlockSizes=4": "line 1: BlockSizes= does not belong to SwitchName=",
    "SwitchName=a Nodes=n1, n2": "line 1: 'n2' is not KEY=VALUE",
    "Nodes=n1": "line 1: Nodes= has no owner",
    "\n# nothing\n": "line 1: there is no switch",
    "BlockName=a Nodes=n[1-4]\nBlockName=b Nodes=n[4-7]\nBlockSizes=4":
     r"line 2: node n4 is under block 'a' \(line 1\) and under block 'b'",
    "BlockName=a Nodes=n[1-4]\nBlockSizes=4,12": "line 2: 12 is not 4 times a power of two",
    "BlockName=a Nodes=n[1-4]\nBlockSizes=4,4": "line 2: 4 is not 4 times a power of two",
    "BlockName=a Nodes=n[1-4]\nBlockSizes=0": "line 2: must be at least 1",
    "BlockName=a Nodes=n[1-4]\nBlockSizes=4-8": "line 2: BlockSizes=4-8 must be whole numbers",
    "BlockName=a Nodes=n[1-4]\nBlockSizes=4\nBlockSizes=8": "line 3: BlockSizes is already at line 2",
    "BlockName=a": "line 1: block 'a' has no nodes",
    "BlockName=a Nodes=n1\nBlockName=a Nodes=n2": "line 2: block 'a' is already at line 1",
    "SwitchName=a Nodes=n1\nBlockName=b Nodes=n1": "line 2: blocks and switches in one file",
}  # fmt: skip


FLOW = """# one line a switch, as generators write it
[{topology: fabric, cluster_default: yes, tree: {switches: [
  {switch: core, children: "leaf[1-2]"}, {switch: leaf1, nodes: "n[1-2]"},
  {switch: leaf2,
   nodes: "n3,n4"}]}}]
"""
# What `scontrol show topoconf` of 26.05 printed for a tree and a block topology.
PRINTED_YAML = """%YAML 1.1
---
- topology: fabric
  cluster_default: true
  block: {}
  flat: {}
  ring: {}
  torus3d: {}
  tree:
    switches:
    - switch: core
      children: leaf[1-2]
      nodes:
    - switch: leaf1
      children:
      nodes: n[1-2]
    - switch: leaf2
      children:
      nodes: n[3-4]
- topology: nvl
  cluster_default: false
  block:
    block_sizes:
    - 2
    - 4
    blocks:
    - block: b0
      nodes: n[1-2]
    - block: b1
      nodes: n[3-4]
  flat: {}
  ring: {}
  torus3d: {}
  tree: {}
...
"""
# What `scontrol show topology` of 22.05, 24.11 and 26.05 printed for a tree, and of 24.11 for blocks.
PRINTED_TREE = """SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=core Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]
"""
PRINTED_BLOCKS = """BlockName=b0 BlockIndex=0 Nodes=n[1-2] BlockSize=2
BlockName=b1 BlockIndex=1 Nodes=n[3-4] BlockSize=2
AggregatedBlock=b[0-1] BlockIndex=2 Nodes=n[1-4] BlockSize=4
"""


@each("text", [FLOW, PRINTED_YAML, PRINTED_TREE])
def test_what_controllers_and_generators_print_is_read(text: str, tmp_path: Path) -> None:
    """Flow style, YAML 1.1 with its directive and empty keys, and scontrol's lines are the same tree of four nodes."""
    (tmp_path / "topology").write_text(text)
    tree = read_topology(tmp_path / "topology")
    leaves = ("leaf1", "core", ("n1", "n2")), ("leaf2", "core", ("n3", "n4"))
    assert {(s.name, s.parent, s.nodes) for s in tree.switches} == {("core", None, ()), *leaves}
    # Base blocks are the blocks, the sizes of aggregated ones the block sizes, as in the file of the same cluster.
    blocks = read_conf(PRINTED_BLOCKS, "t")
    assert blocks == read_yaml(PRINTED_YAML, "y", "nvl")
    assert blocks == read_conf("BlockName=b0 Nodes=n[1-2]\nBlockName=b1 Nodes=n[3-4]\nBlockSizes=2,4", "t")


BAD |= {
    PRINTED_TREE.replace("n[1-4]", "n[1-3]"): "line 3: switch 'core' states nodes that are not those",
    PRINTED_BLOCKS + "BlockSizes=2": "line 4: BlockSizes= in addition to BlockSize=",
    PRINTED_TREE.replace("Level=1 ", ""): "line 3: switch 'core' has both nodes and switches",
}


def _tree(*switches: str) -> str:
    return "- topology: t\n  tree:\n    switches:\n" + "".join(f"    - {s}\n" for s in switches)


BAD_YAML = {
    _tree("switch: a\n      node: n1"): "line 5: unknown keyword 'node' in a switch; did you mean 'nodes'",
    _tree("nodes: n1"): "line 4: a switch has no 'switch'",
    _tree("switch: a\n      nodes: n1\n      nodes: n2"): "line 6: 'nodes' is given twice",
    _tree("switch: a\n       nodes: n1"): "line 5: is no YAML: mapping values are not allowed",
    _tree("switch: a\n      nodes: [n1, n2]"): "line 5: nodes must be a text",
    _tree("switch: a\n      nodes: &x n1"): "line 5: .*is YAML that is not read here",
    _tree("switch: a\n      nodes: !x n1"): "line 5: tag !x is YAML that is not read here",
    "- topology: t\n  tree:\n\t  switches:": "line 3: is no YAML: .*cannot start any token",
    "- topology: t\n---\n- topology: u": "line 2: a second document begins",
    "- ? [a]\n  : b": "line 1: a key must be a text",
    "- topology: t\n  block: {}\n  flat: {}\n  tree: {}": "line 1: topology 't' must be exactly one of .*is none",
    "- topology: t\n": "line 1: topology 't' must be exactly one of",
    "- topology: t\n  flat: true\n- topology: t\n  flat: true": "line 3: topology 't' is already at line 1",
    "topology: t": "line 1: the file must be a list",
    "": "line 1: there is no topology; write such as",
    "- topology: t\n  block:\n    block_sizes: [4, x]\n    blocks:\n    - block: a\n      nodes: n1":
     "line 3: block_sizes must be whole numbers",
    "- topology: t\n  tree: {switches: [{switch: s, nodes: n1}]}\n"
    "- topology: b\n  block: {block_sizes: [4, 9], blocks: [{block: a, nodes: n1}]}": "line 4: block_sizes: 9 is not",
    "- topology: t\n  block:\n    blocks: 7": "line 3: blocks must be a list",
    "-\n" * 3: "line 1: a topology must be a mapping",
    "- " * 99 + "x": "line 1: .*nested deeper",
}  # fmt: skip


@each(("read", "name", "text", "complaint"), [
    *((read_conf, "topology.conf", *bad) for bad in BAD.items()),
    *((read_yaml, "topology.yaml", *bad) for bad in BAD_YAML.items()),
])  # fmt: skip
def test_files_are_refused_by_line(read: Any, name: str, text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=rf"\A{name}: {complaint}"):
        read(text, name)


@given(st.text(alphabet="- :[]{}#'\"\\\n\tabn1=,&*|%", max_size=60))
def test_no_text_ends_in_a_traceback(text: str) -> None:
    for read in (read_conf, read_yaml):
        try:
            read(text, "t")
        except InputError as error:
            assert str(error).startswith("t: ")


def _nodes(*labels: dict[str, str]) -> dict[str, Any]:
    items = [{"kind": "Node", "metadata": {"name": f"n{i}", "labels": x}} for i, x in enumerate(labels, 1)]
    return {"kind": "List", "items": items}


def _parents(topology: Topology) -> dict[str, str | None]:
    return {s.name: s.parent for s in topology.switches}


def _read(folder: Path, data: object, **options: Any) -> Topology:
    (folder / "cluster.json").write_text(json.dumps(data))
    return read_topology(folder / "cluster.json", **options)


def test_topograph(tmp_path: Path) -> None:
    """Layers are the tree, labels or attributes the scale-up domains; spines without a core get a root."""
    layers, label = ["leaf1", "spine1"], "network.topology.nvidia.com/accelerator"
    instances = [
        {"id": "n1", "network_layers": layers, "labels": {label: "nvl1"}},
        {"id": "n2", "network_layers": layers, "attributes": {"nvlink": "nvl1"}},
        {"id": "n3", "network_layers": ["leaf2", "spine2"], "labels": {}},
    ]
    found = _read(tmp_path, {"instances": instances})
    assert _parents(found) == {"leaf1": "spine1", "spine1": "root", "leaf2": "spine2", "spine2": "root", "root": None}
    assert found.blocks == (TopologyBlock(name="nvl1", nodes=("n1", "n2")),)


@each(("instances", "message"), [
    ([], "instances: must be a list with at least one"), ([7], r"instances\[0\]: must be an object"),
    ([{"id": "", "network_layers": ["a"]}], r"instances\[0\].id: must be a node's name"),
    ([{"id": "n1", "network_layers": []}], r"instances\[0\].network_layers: must name the switches above 'n1'"),
    ([{"id": "n1", "network_layers": ["a"]}] * 2, r"instances\[1\]: node 'n1' is already at instances\[0\]"),
    ([{"id": f"n{i}", "network_layers": ["a", f"s{i}"]} for i in range(2)],
     r"instances\[1\]: switch 'a' is below 's0' at instances\[0\] and below 's1'"),
    ([{"id": "n1", "network_layers": ["a", "b", "a"]}], r"instances\[0\]: switch 'a' is below 'b'"),
    # A name that would come back from a hostlist as two, or not at all.
    *(([{"id": name, "network_layers": ["a"]}], r"node '.*' contains .*; name it with letters")
      for name in ("a,b", "a b", "a[1", "a\n", "a=b", "a#")),
])  # fmt: skip
def test_topograph_refuses_by_path(tmp_path: Path, instances: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _read(tmp_path, {"instances": instances})


@each("keys", [
    ("fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1"),
    ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"),
    ("network.topology.nvidia.com/block", "network.topology.nvidia.com/spine"),
    ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
    ("topology.k8s.aws/network-node-layer-3", "topology.k8s.aws/network-node-layer-2"),
    ("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
])  # fmt: skip
def test_kubernetes_families(tmp_path: Path, keys: tuple[str, str]) -> None:
    """Each writer's labels are known by themselves; a node without any, such as a control plane, is left out."""
    leaf, spine = keys
    second = {leaf: "b", spine: "s", "nvidia.com/gpu.clique": "c.1"}
    found = _read(tmp_path, _nodes({leaf: "a", spine: "s"}, second, {"other": "x"}))
    assert _parents(found) == {"a": "s", "s": None, "b": "s"}
    assert [s.nodes for s in found.switches] == [("n1",), (), ("n2",)]
    assert found.blocks == (TopologyBlock(name="c.1", nodes=("n2",)),)
    own = _nodes({"rack": "r1", "hall": "h"}, {"rack": "r2", "hall": "h"})  # with keys of one's own
    assert _parents(_read(tmp_path, own, keys=("rack", "hall"))) == {"r1": "h", "h": None, "r2": "h"}
    with pytest.raises(InputError, match="no node has a topology label"):
        _read(tmp_path, own)
    with pytest.raises(InputError, match=r"items\[1\]: node 'n2' has no label hall"):
        _read(tmp_path, _nodes({"rack": "r1", "hall": "h"}, {"rack": "r2"}), keys=("rack", "hall"))


def test_kueue_labels_read_back(tmp_path: Path) -> None:
    leaves = (TopologySwitch(name=f"leaf{i}", parent="core", nodes=(f"n{i}", f"m{i}")) for i in range(2))
    block = TopologyBlock(name="b1", nodes=("n0", "m0"))
    tree = Topology(switches=(TopologySwitch(name="core"), *leaves), blocks=(block,))
    objects = list(yaml.safe_load_all(TOPOLOGY_WRITERS["kueue"](tree)))
    found = _read(tmp_path, {"items": [o for o in objects if o["kind"] == "Node"]})
    assert (_parents(found), found.blocks) == (_parents(tree), tree.blocks)
    for form in ("kueue", "volcano"):  # the file itself, too
        (file := tmp_path / "own.yaml").write_text(TOPOLOGY_WRITERS[form](tree))
        read = read_topology(file)
        assert _parents(read) == _parents(tree) and leaf_of(read) == leaf_of(tree)
    for text, problem in (
        (file.read_text().replace("exactMatch", "regexMatch", 1), "HyperNode .*members by exactMatch"),
        (file.read_text().replace("type: Node", "type: node", 1), "HyperNode .*of type Node or HyperNode"),
        ("kind: HyperNode\nmetadata: {name: 7}\nspec: {members: []}\n", "HyperNode .*a name that is a text"),
        ("kind: Topology\nspec: {levels: [{nodeLabel: planner/rank}]}\n---\nkind: Node\n", "is the placement"),
        ("kind: Node\n---\n- [1\n", "line 4: is no YAML"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=rf"own\.yaml: {problem}"):
            read_topology(file)


OTHER = """{ [] {} {"items":3} {"items":[{"kind":"Pod"}]} {"items":[{"metadata":{}}]}
    {"planner_version":"0","status":"optimal"}"""


@each("text", OTHER.split())
def test_other_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=r"x\.json: .*instance: is missing" if "planner" in text else r"x\.json: "):
        read_topology(tmp_path / "x.json")


def planned(fabrics: dict[str, tuple[int, int]], racks: dict[str, int] | int) -> Topology:
    """Return the topology of a plan that says where racks stand: (racks a leaf domain, leaf domains a pod) by site."""
    sizes = {s: {"leaf_domain_racks": n, "leaf_domains_per_pod": per} for s, (n, per) in fabrics.items()}
    one = isinstance(racks, int)
    held = () if one else tuple(Site.model_construct(id=s, racks=n) for s, n in racks.items())
    hardware = Hardware.model_construct(racks=racks if one else None)
    plan = Plan.model_construct(
        fabric=FabricPlan.model_construct(sites={s: SiteFabric.model_construct(**x) for s, x in sizes.items()}),
        sites=None if one else SitesPlan.model_construct(sites=held),
        instance=Instance.model_construct(hardware=hardware),
    )
    return plan_topology(plan, "plan.json")


def test_racks_of_a_plan_are_under_leaves_pods_and_sites() -> None:
    """The last leaf is part-full; pods are there where there are several; sites are joined by the WAN."""
    leaves = [s for s in planned({"cluster": (4, 8)}, 10).switches if s.nodes]
    assert [len(s.nodes) for s in leaves] == [4, 4, 2] and {s.parent for s in leaves} == {"cluster"}
    assert [n for s in leaves for n in s.nodes] == [f"r{i}" for i in range(10)]
    found = planned({"east": (2, 2), "west": (3, 9)}, {"east": 11, "west": 3})
    parents = _parents(found)
    assert {n: p for n, p in parents.items() if "pod" in n} == {f"east-pod{i}": "east" for i in range(3)}
    assert [parents[f"east-leaf{i}"] for i in range(6)] == [f"east-pod{i // 2}" for i in range(6)]
    assert (parents["west-leaf0"], parents["west"], parents["wan"]) == ("west", "wan", None)
    assert next(s.nodes for s in found.switches if s.name == "east-leaf5") == ("east-r10",)
    assert read_conf(write_conf(found), "t") == found
    # A fabric of leaves alone has no pods: its plan says that 0 leaf domains share one.
    alone = planned({"east": (2, 0), "west": (4, 0)}, {"east": 2, "west": 3})
    assert {s.name: s.parent for s in alone.switches if s.nodes} == {"east-leaf0": "east", "west-leaf0": "west"}
    with pytest.raises(InputError, match=r"plan\.json: fabric: the plan has none"):
        plan_topology(Plan.model_construct(fabric=None), "plan.json")
    with pytest.raises(InputError, match=r"fabric\.sites\.west: no racks"):
        planned({"west": (3, 1)}, {"east": 3})
