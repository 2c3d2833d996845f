"""What Kueue, Volcano and Open MPI publish of their formats, and the files that are written for them.

Sources, each restated here in few words: kubernetes-sigs/kueue, kueue.x-k8s.io_topologies.yaml and
kueue.x-k8s.io_resourceflavors.yaml in config/components/crd/bases; volcano-sh/volcano,
config/crd/volcano/bases/topology.volcano.sh_hypernodes.yaml; the annotations of kueue's
apis/kueue/v1alpha1/tas_types.go; Open MPI 4.1, mpirun(1), section "Rankfiles".
"""

import re

import pytest
from test_writers import NODES, PLACED, TREE, _objects, _of_kind, _on

from planner.cluster import Topology, TopologySwitch
from planner.errors import InputError
from planner.formats.topology_files import write_placed, write_topology

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"
)
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
RANK_LINE = re.compile(r"rank (\d+)=(\S+) slot=(\d+)")


@pytest.mark.parametrize("text", [write_topology(TREE, "kueue"), write_placed(PLACED, TREE, "kueue")])
def test_kueue_topology_levels(text: str) -> None:
    """One to eight levels, each a label's key of 316 letters at most, none twice, the host's name last if at all."""
    (topology,) = _of_kind(text, "Topology")
    assert topology["apiVersion"] == "kueue.x-k8s.io/v1beta1" and topology["spec"].keys() == {"levels"}
    levels = [x["nodeLabel"] for x in topology["spec"]["levels"]]
    assert 1 <= len(levels) <= 8 and len(set(levels)) == len(levels)
    assert all(LABEL_KEY.fullmatch(x) and len(x) <= 316 for x in levels)
    assert "kubernetes.io/hostname" not in levels[:-1]
    for node in _of_kind(text, "Node"):
        labels = node["metadata"]["labels"]
        assert SUBDOMAIN.fullmatch(node["metadata"]["name"])
        assert all(LABEL_KEY.fullmatch(k) and LABEL_VALUE.fullmatch(v) and len(v) <= 63 for k, v in labels.items())
        assert all(x in labels for x in levels if x != "kubernetes.io/hostname")


def test_kueue_annotations() -> None:
    """A podset asks for slices with topology and size, or for no topology; its level is one of the Topology's."""
    text = write_placed(_on(*range(1, 9), groups=4), TREE, "kueue")
    asked = _of_kind(text, "Job")[0]["spec"]["template"]["metadata"]["annotations"]
    assert asked.keys() == {"kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size"}
    levels = [x["nodeLabel"] for x in _of_kind(text, "Topology")[0]["spec"]["levels"]]
    assert asked["kueue.x-k8s.io/podset-slice-required-topology"] in levels
    assert int(_of_kind(text, "Job")[0]["spec"]["completions"]) % int(asked["kueue.x-k8s.io/podset-slice-size"]) == 0


def test_volcano_hypernode_schema() -> None:
    """A tier is a whole number; each member is a Node or HyperNode, selected by one matcher of an exact object name."""
    for hypernode in _objects(write_topology(TREE, "volcano")):
        assert (hypernode["apiVersion"], hypernode["kind"]) == ("topology.volcano.sh/v1alpha1", "HyperNode")
        spec = hypernode["spec"]
        assert spec.keys() == {"tier", "members"} and int(spec["tier"]) >= 0 and spec["members"]
        for member in spec["members"]:
            assert member.keys() == {"type", "selector"} and member["type"] in ("Node", "HyperNode")
            assert member["selector"].keys() == {"exactMatch"} and member["selector"]["exactMatch"].keys() == {"name"}
            name = member["selector"]["exactMatch"]["name"]
            assert SUBDOMAIN.fullmatch(name) and len(name) <= 253


def test_rankfile_grammar() -> None:
    """Lines `rank N=HOST slot=S`: each rank once and in order, each slot of a host once."""
    lines = [RANK_LINE.fullmatch(x) for x in write_placed(PLACED, TREE, "rankfile").splitlines()]
    assert None not in lines
    found = [(int(x[1]), x[2], int(x[3])) for x in lines if x]
    assert [r for r, _, _ in found] == list(range(8))
    assert len({(host, slot) for _, host, slot in found}) == 8
    assert [host for _, host, slot in found if slot == 0] == list(PLACED.nodes)


@pytest.mark.parametrize("name", ["N01", "n_1", "n..1", "n-.a", "-n"])
@pytest.mark.parametrize("form", ["kueue", "volcano"])
def test_nodes_that_kubernetes_cannot_have_are_named(name: str, form: str) -> None:
    tree = Topology(switches=(TopologySwitch(name="leaf", nodes=(*NODES[:2], name)),))
    with pytest.raises(InputError, match=f"node '{re.escape(name)}' cannot be a Kubernetes node"):
        write_topology(tree, form)
    with pytest.raises(InputError, match=f"node '{re.escape(name)}' cannot be a Kubernetes node"):
        write_placed(PLACED.model_copy(update={"nodes": (name,), "groups": ()}), tree, form)
