"""Placements and topologies written: what each scheduler takes, publishes and refuses; scripts divided into words."""

import json
import os
import random
import re
import shlex
import subprocess
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_cases import placed_on
from each_case import each

import planner
from planner.cli.cluster_commands import PLACED_FORMATS, TOPOLOGY_FORMATS
from planner.cluster.hostlists import expand
from planner.cluster.placement import Placement
from planner.cluster.topology import Topology, TopologyBlock, TopologySwitch
from planner.errors import InputError
from planner.formats.cluster_files import TOPOLOGY_WRITERS, placement_of
from planner.formats.placed_job import WRITERS, as_document, sbatch_line, srun_line
from planner.formats.shell_script import read_script
from planner.formats.yaml_text import dump, read_yaml_data

NODES = tuple(f"n{i:02d}" for i in range(1, 17))
QUARTERS = [NODES[i : i + 4] for i in range(0, 16, 4)]
LEAVES = [TopologySwitch(name=f"leaf{i}", parent=f"pod{i // 2}", nodes=nodes) for i, nodes in enumerate(QUARTERS)]
PODS = [TopologySwitch(name=f"pod{i}", parent="core") for i in range(2)]
TREE = Topology(switches=(*LEAVES, *PODS, TopologySwitch(name="core")))
BASE = tuple(TopologyBlock(name=f"b{i}", nodes=nodes) for i, nodes in enumerate(QUARTERS))
BLOCKS = Topology(kind="block", blocks=BASE, block_sizes=(4, 8))
PLACED = placed_on("train", ("n07", "n05", "n01", "n02"), 2, gpus_per_node=2)


def _on(*nodes: int, groups: int = 0) -> Placement:
    """Place a job on nodes by number, in groups of so many."""
    return placed_on("j", nodes, groups)


def _of_kind(text: str, kind: str) -> list[dict[str, Any]]:
    """Read the objects of a kind from a manifest, figures as text."""
    return [o for o in yaml.load_all(text, yaml.BaseLoader) if o["kind"] == kind]


def test_rank_order_is_kept_where_it_counts() -> None:
    """The arguments of sbatch have the whole list and its length; files and srun the ranks in their order."""
    assert (tuple(WRITERS), tuple(TOPOLOGY_WRITERS)) == (PLACED_FORMATS, TOPOLOGY_FORMATS)
    words = shlex.split(WRITERS["sbatch"](PLACED, TREE))[1:]
    assert words == ["--job-name=train", "-N4", "--ntasks-per-node=2", "--exclusive", "-w", "n[01-02,05,07]"]
    assert srun_line(PLACED, TREE) == "SLURM_HOSTFILE=train.hostfile srun -n8 -m arbitrary"
    assert WRITERS["hostlist"](PLACED, TREE) == "n[07,05,01-02]\n"
    assert WRITERS["hostfile"](PLACED, TREE).split() == ["n07", "n07", "n05", "n05", "n01", "n01", "n02", "n02"]
    ranks = re.findall(r"rank (\d+)=(\S+) slot=(\d+)\n", WRITERS["rankfile"](PLACED, TREE))
    assert [node for _, node, _ in ranks] == WRITERS["hostfile"](PLACED, TREE).split()
    assert [(int(r), int(s)) for r, _, s in ranks] == [(r, r % 2) for r in range(8)]
    found = json.loads(WRITERS["json"](PLACED, TREE))
    assert found["mpirun"]["rankfile"] == "mpirun -np 8 --map-by rankfile:file=train.rankfile"
    assert found["nodes"] == list(PLACED.nodes) == expand(found["hostlist"])
    assert (found["certificate"]["status"], found["certificate"]["bound"]) == ("optimal", 0)
    assert shlex.split(found["sbatch"])[1:] == words


@each(("placed", "topology", "hints"), [
    (PLACED, TREE, {"switches": "--switches=2"}),
    (_on(1, 2, 5, 6, groups=2), BLOCKS, {"segment": "--segment=2"}),
    (_on(1, 2, 3, 4, 5, 6, 7, 8, groups=8), BLOCKS, {}), (_on(1, 2, 3, groups=2), BLOCKS, {}),
])  # fmt: skip
def test_hints_for_a_submission_without_the_list(placed: Placement, topology: Topology, hints: dict[str, str]) -> None:
    """Leaves used on a tree; the size of groups on blocks, unless it is no segment."""
    assert as_document(placed, topology)["hints"] == hints


def test_a_list_too_long_for_an_argument_is_refused() -> None:
    """Linux takes 128 KiB an argument: names that do not fold fill it, names that fold do not."""
    long = placed_on("j", tuple(f"n{i:05d}-{i}x" for i in range(12_000)))
    with pytest.raises(InputError, match="more than the 131,071 of one argument"):
        sbatch_line(long)
    assert len(sbatch_line(placed_on("j", tuple(f"n{i}" for i in range(1, 100_000, 1)))).split()[-1]) < 100


@each(("nodes", "segment"), [
    ((1, 2, 3, 4), None),  # one base block
    ((1, 2, 5, 6), 2),  # two base blocks where one would hold them
    ((1, 2, 3, 5, 6), None),  # no base block holds five, one of 8 does
    ((3, 4, 9, 10), 2),
    ((1, 2, 3, 4, 9, 10, 11, 12), 4),  # 8 nodes in two blocks of 8
    ((1, 2, 3, 9), 1),
    (tuple(range(1, 13)), None),  # more than the largest block: two of them
    (tuple(range(1, 17)), None),
])  # fmt: skip
def test_blocks_take_a_list_by_segments(nodes: tuple[int, ...], segment: int | None) -> None:
    """A list in more aggregated blocks than its length needs is cut in equal segments, each within a base block.

    Blocks take no hostfile.
    """
    # It is then named by all other nodes: 24.11 refused 32 of 45 random lists with --segment beside -w, and none so.
    placed = _on(*nodes)
    with pytest.raises(InputError, match="topology/block refuses SLURM_HOSTFILE; take the format hostlist"):
        WRITERS["hostfile"](placed, BLOCKS)
    assert srun_line(placed, BLOCKS) == f"srun -N{len(nodes)} -n{8 * len(nodes)}"
    asked = shlex.split(sbatch_line(placed, BLOCKS))
    assert [w for w in asked if "segment" in w] == ([f"--segment={segment}"] if segment else [])
    named = set(expand(asked[-1]))
    assert (asked[-2], named) == (("-x", set(NODES) - set(placed.nodes)) if segment else ("-w", set(placed.nodes)))


def pods_as_kueue_orders_them(text: str) -> list[str]:
    """Return the node of each pod by its index, as Kueue hands them out: by the levels' values, as text."""
    levels = [x["nodeLabel"] for x in _of_kind(text, "Topology")[0]["spec"]["levels"]]
    labelled = {o["metadata"]["name"]: o["metadata"]["labels"] for o in _of_kind(text, "Node")}
    return sorted(labelled, key=lambda n: [labelled[n][k] for k in levels])


def test_kueue_orders_pods_as_the_ranks() -> None:
    """Kueue sorts by the levels' values as text: labelled nodes are then in rank order, each group in one domain."""
    groups = ({"data": 12}, {"pipeline": 3, "data": 4}, {"data": 6, "tensor": 2})
    # Ranks of groups alternate; groups are numbered along the pipeline first.
    mixed = ({"data": 4, "pipeline": 3}, {"pipeline": 3, "context": 2, "data": 2})
    meshes = (*groups, *mixed, {"pipeline": 2, "data": 3, "context": 2})
    placed = _on(*range(16, 4, -1), groups=4)
    turned = placed.replaced(groups=placed.groups[::-1])  # listed in any order
    for one in (placed, turned, *(planner.place(TREE, {"name": "j", "mesh": x, "gpus_per_node": 8}) for x in meshes)):
        assert pods_as_kueue_orders_them(WRITERS["kueue"](one, TREE)) == list(one.nodes)
    text = WRITERS["kueue"](turned, TREE)
    (topology,), (flavor,), (job,) = (_of_kind(text, kind) for kind in ("Topology", "ResourceFlavor", "Job"))
    level = topology["spec"]["levels"][0]["nodeLabel"]
    labels = {o["metadata"]["name"]: o["metadata"]["labels"] for o in _of_kind(text, "Node")}
    key = "kueue.x-k8s.io/podset-slice"
    slices = {f"{key}-required-topology": level, f"{key}-size": "4"}
    assert job["spec"]["template"]["metadata"]["annotations"] == slices
    assert {len({labels[n][level] for n in g.nodes}) for g in placed.groups} == {1}
    assert (job["spec"]["completions"], job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]) == ("12", "default")
    assert flavor["spec"] == {"nodeLabels": {"planner/job": "j"}, "topologyName": topology["metadata"]["name"]}
    unequal = _of_kind(WRITERS["kueue"](_on(1, 2, 3, groups=2), TREE), "Job")[0]["spec"]["template"]["metadata"]
    assert unequal["annotations"] == {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}


def test_volcano_hypernodes_are_the_tree() -> None:
    """A tier is a whole number; each member is a Node or HyperNode, selected by one matcher of an exact object name."""
    text = TOPOLOGY_WRITERS["volcano"](TREE)
    found = {o["metadata"]["name"]: o["spec"] for o in _of_kind(text, "HyperNode")}
    assert len(found) == text.count("apiVersion: topology.volcano.sh/v1alpha1\n")
    tiers = dict.fromkeys((f"leaf{i}" for i in range(4)), "1") | {"pod0": "2", "pod1": "2", "core": "3"}
    assert {name: spec["tier"] for name, spec in found.items()} == tiers
    below = {"leaf0": ("Node", NODES[:4]), "pod1": ("HyperNode", ("leaf2", "leaf3"))}
    for name, (kind, names) in below.items():
        members = [{"type": kind, "selector": {"exactMatch": {"name": own}}} for own in names]
        assert found[name] == {"tier": tiers[name], "members": members}
    # A job allows no higher tier than it takes.
    for nodes, tier in (((1, 4), 1), ((1, 5), 2), ((1, 16), 3)):
        job = _of_kind(WRITERS["volcano"](_on(*nodes, groups=1), TREE), "Job")[0]["spec"]
        assert job["networkTopology"] == {"mode": "hard", "highestTierAllowed": str(tier)}
        assert [t["replicas"] for t in job["tasks"]] == ["1"] * len(nodes)


def test_names_that_kubernetes_refuses_are_named() -> None:
    for name, form in product(("N01", "n_1", "n..1", "n-.a", "-n"), ("kueue", "volcano")):
        tree = Topology(switches=(TopologySwitch(name="leaf", nodes=(*NODES[:2], name)),))
        placed = PLACED.replaced(nodes=(name,), groups=())
        for write in (partial(TOPOLOGY_WRITERS[form], tree), partial(WRITERS[form], placed, tree)):
            with pytest.raises(InputError, match=f"node '{re.escape(name)}' cannot be a Kubernetes node"):
                write()
    with pytest.raises(InputError, match="job: 'a b' cannot be an object's name"):
        WRITERS["kueue"](PLACED.replaced(job="a b"), TREE)
    alike = Topology(switches=(TopologySwitch(name="A_b", nodes=("n1",), parent="a-b"), TopologySwitch(name="a-b")))
    with pytest.raises(InputError, match="two switches are called 'a-b'"):
        TOPOLOGY_WRITERS["volcano"](alike)
    with pytest.raises(InputError, match="blocks alone"):
        TOPOLOGY_WRITERS["volcano"](BLOCKS)
    deep = Topology(
        switches=(TopologySwitch(name="a", nodes=("n1",), parent="r"), TopologySwitch(name="b", parent="r"),
         TopologySwitch(name="c", nodes=("n2",), parent="b"), TopologySwitch(name="r"))
    )  # fmt: skip
    with pytest.raises(InputError, match="different depths"):
        TOPOLOGY_WRITERS["kueue"](deep)


@each("named", ["SLURMD_NODENAME", "hostname"])
def test_torchrun_gets_its_place_by_name(named: str, tmp_path: Path) -> None:
    """Each node finds its own rank in the script, whatever order it is started in; a strange node finds none."""
    (tmp_path / "job").write_text(WRITERS["torchrun"](PLACED, TREE))
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "hostname").write_text('#!/bin/sh\necho "$NODE"\n')
    for name in ("torchrun", "hostname"):
        (tmp_path / name).chmod(0o755)

    def started(node: str) -> subprocess.CompletedProcess[str]:
        known = {"SLURMD_NODENAME": node} if named == "SLURMD_NODENAME" else {"NODE": node}
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **known}
        command = ["sh", str(tmp_path / "job"), "train.py", "--lr", "0.1"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    for rank, node in reversed(list(enumerate(PLACED.nodes))):
        place = f"--nnodes=4 --nproc-per-node=2 --node-rank={rank} --master-addr=n07 --master-port=29500"
        assert started(node).stdout == f"{place} train.py --lr 0.1\n"
    strange = started("n70")
    assert (strange.returncode, strange.stderr) == (1, "n70 is no node of this job\n")


# What Kueue and Volcano publish of their formats: kubernetes-sigs/kueue, kueue.x-k8s.io_topologies.yaml and
# kueue.x-k8s.io_resourceflavors.yaml in config/components/crd/bases; volcano-sh/volcano,
# config/crd/volcano/bases/topology.volcano.sh_hypernodes.yaml.
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])"
)
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


@each("text", [TOPOLOGY_WRITERS["kueue"](TREE), WRITERS["kueue"](PLACED, TREE)])
def test_kueue_topology_levels(text: str) -> None:
    """One to eight levels, each a label's key of 316 letters at most, none twice, the host's name last if at all."""
    (topology,) = _of_kind(text, "Topology")
    assert topology["apiVersion"] == "kueue.x-k8s.io/v1beta2" and topology["spec"].keys() == {"levels"}
    levels = [x["nodeLabel"] for x in topology["spec"]["levels"]]
    assert 1 <= len(levels) <= 8 and len(set(levels)) == len(levels)
    assert all(LABEL_KEY.fullmatch(x) and len(x) <= 316 for x in levels)
    assert "kubernetes.io/hostname" not in levels[:-1]
    for node in _of_kind(text, "Node"):
        labels = node["metadata"]["labels"]
        assert SUBDOMAIN.fullmatch(node["metadata"]["name"])
        assert all(LABEL_KEY.fullmatch(k) and LABEL_VALUE.fullmatch(v) and len(v) <= 63 for k, v in labels.items())
        assert all(x in labels for x in levels if x != "kubernetes.io/hostname")


@each(("wrong", "message"), [
    ({"nodes": ("n1", "n1")}, "nodes: 'n1' is listed twice"), ({"job": ""}, "job: must not be"),
    ({"gpus_per_node": 0}, "gpus_per_node: must be at least 1"),
])  # fmt: skip
def test_a_job_has_a_name_and_each_node_once(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        placement_of(PLACED.model_dump(mode="json") | wrong, Path("placed.json"))


YAML = "true|No|0x1f|12|1e3|a: b|a #b|- x||null|~|n[01-02]|n[1-2],m7|[1-2]|key:|é|a/b.c_d-e"


@each("value", YAML.split("|"))
def test_texts_stay_texts_in_yaml(value: str) -> None:
    """What another reader would take for a number, a truth or a structure is quoted."""
    data = {"key": value, "list": [value, {"inner": value}]}
    text = dump(data)
    assert yaml.safe_load(text) == read_yaml_data(text, "y") == data
    assert ('"' in text) == (value not in {"n[01-02]", "a/b.c_d-e"})


PIECES = ("a", "7", "/", ".", "-", "\\ ", "\\a", "\\\\", "\\'", '\\"', "'b c'", '"d e"', '"f\\"g"', '"h\\i"', "'j\\k'")


@pytest.mark.parametrize("seed", range(8))
def test_quotes_and_backslashes_are_taken_off_as_the_shell_does(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        word = "".join(["v", *rng.choices(PIECES, k=rng.randint(1, 6)), "w"])
        (value,) = shlex.split(word)
        assert read_script(f"run --data-path {word} --bf16\n", "own.sh").flags == {"data-path": value, "bf16": None}
    text = "run --bf16 # 7\n  --lr 3 # of 5\n# --seed 1\n--data-path a#b #"  # a comment ends with its line
    assert read_script(text, "own.sh").flags == {"bf16": None, "lr": "3", "data-path": "a#b"}
