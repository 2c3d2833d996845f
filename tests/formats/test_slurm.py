"""The real scheduler and its node states: what the planner writes, slurmctld reads, accepts and allocates."""

import json
import os
import random
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cluster_cases import placed_on
from each_case import each
from slurm_controller import Controller, controller, why_not

import planner
from planner.cluster.hostlists import expand, fold_names, natural
from planner.cluster.placement import Placement
from planner.cluster.topology import Topology, TopologySwitch
from planner.errors import InputError
from planner.formats import cluster_files
from planner.formats.cluster_files import BUSY, DOWN, FREE, NodeStates, read_states
from planner.formats.placed_job import WRITERS, hostfile, sbatch_line
from planner.formats.topologies import read_conf, write_conf
from planner.scheduling.warm_cluster import opened

# 256 nodes named by rack and place, 16 a leaf, four leaves a pod.
RACKS = [tuple(f"rack{r:02d}node{n:02d}" for n in range(16)) for r in range(16)]
LEAVES = [TopologySwitch(name=f"leaf{r}", parent=f"pod{r % 4}", nodes=nodes) for r, nodes in enumerate(RACKS)]
PODS = [TopologySwitch(name=f"pod{p}", parent="core") for p in range(4)]
CLUSTER = Topology(switches=(*LEAVES, *PODS, TopologySwitch(name="core")))
NODES = [node for rack in RACKS for node in rack]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """Start a controller that reads the topology.conf that the planner wrote."""
    if reason := why_not():
        pytest.skip(reason)
    with controller(tmp_path_factory.mktemp("slurm") / "run", fold_names(NODES), write_conf(CLUSTER)) as running:
        yield running


def _placed(seed: int, size: int) -> Placement:
    return placed_on(f"job{seed}", tuple(random.Random(seed).sample(NODES, size)))


def test_the_controller_reads_the_tree_as_written(slurm: Controller) -> None:
    """What scontrol shows of the topology has every switch with the planner's nodes and children, and all levels."""
    shown = dict[str, dict[str, str]]()
    for line in slurm.run("scontrol", "show", "topology").splitlines():
        words = dict(word.split("=", 1) for word in line.split())
        shown[words["SwitchName"]] = words
    assert shown.keys() == {s.name for s in CLUSTER.switches}
    for s in CLUSTER.switches:
        if s.nodes:
            assert expand(shown[s.name]["Nodes"]) == list(s.nodes)
        else:
            assert set(expand(shown[s.name]["Switches"])) == {c.name for c in CLUSTER.switches if c.parent == s.name}
    levels = {s.name: "0" if s.nodes else "2" if s.name == "core" else "1" for s in CLUSTER.switches}
    assert {s: words["Level"] for s, words in shown.items()} == levels
    assert not [line for line in slurm.log().splitlines() if "error" in line and ("opology" in line or "witch" in line)]


@pytest.mark.parametrize(("seed", "size"), [(1, 1), (2, 13), (3, 64), (4, 128)])
def test_the_controller_allocates_exactly_the_list(slurm: Controller, seed: int, size: int, tmp_path: Path) -> None:
    """A job of the planner's list, and one of arbitrary distribution by its SLURM_HOSTFILE, a task for each line."""
    placed, tasks = _placed(seed, size), 8 * size
    (tmp_path / "ranks").write_text(hostfile(placed, CLUSTER))
    for words, environment in (
        (shlex.split(sbatch_line(placed, CLUSTER))[1:], {}),
        (["-m", "arbitrary", f"-n{tasks}", "--exclusive"], {"SLURM_HOSTFILE": str(tmp_path / "ranks")}),
    ):
        job = slurm.submit(*words, environment=environment)
        try:
            assert sorted(expand(slurm.allocated(job))) == sorted(placed.nodes)
            assert not environment or f"NumTasks={tasks} " in slurm.run("scontrol", "show", "job", job, "-o")
        finally:
            slurm.run("scancel", job)


@pytest.mark.usefixtures("slurm")
def test_a_forest_is_read_and_no_job_leaves_its_tree(tmp_path: Path) -> None:
    """Pods that nothing joins start a controller, which gives no job nodes of two; a placement fills one of them."""
    text = write_conf(CLUSTER).replace("SwitchName=core Switches=pod[0-3]\n", "")
    with controller(tmp_path / "run", fold_names(NODES), text) as running:
        printed = running.run("scontrol", "show", "topology")
        forest = read_conf(printed, "printed")
        leaves = [{s.name: set(s.nodes) for s in x.switches if s.nodes} for x in (forest, CLUSTER)]
        assert leaves[0] == leaves[1]
        assert "start at" in running.submit_on_trial("-N64", "--exclusive")
        with pytest.raises(RuntimeError, match="not available"):
            running.submit_on_trial("-N65", "--exclusive")
    assert len(planner.place(forest, {"name": "j", "mesh": {"pipeline": 4, "data": 16}}).nodes) == 64


def test_states_from_text_and_json_are_one(slurm: Controller, tmp_path: Path) -> None:
    """Text and JSON of sinfo say the same: nodes of a job busy, drained ones down, the rest free."""
    placed = _placed(7, 10)
    drained = next(n for n in NODES if n not in placed.nodes)
    slurm.run("scontrol", "update", f"nodename={drained}", "state=drain", "reason=test")
    job = slurm.submit(*shlex.split(sbatch_line(placed, CLUSTER))[1:])
    try:
        slurm.allocated(job)
        (tmp_path / "text").write_text(slurm.run("sinfo", "-h", "-N", "-o", "%N %t"))
        (tmp_path / "json").write_text(slurm.run("sinfo", "--json"))
    finally:
        slurm.run("scancel", job)
        slurm.run("scontrol", "update", f"nodename={drained}", "state=resume")
    text = read_states(tmp_path / "text")
    told = read_states(tmp_path / "json")
    assert (text.free, text.busy, text.down) == (told.free, told.busy, told.down)
    assert (text.busy, text.down, len(text.free)) == (set(placed.nodes), {drained}, len(NODES) - 11)


def _random_names(random_: random.Random) -> list[str]:
    """Names of several looks, in runs and out of order, repeated and padded or not."""
    names: list[str] = []
    for _ in range(random_.randint(1, 12)):
        prefix = random_.choice(["n", "node-", "rack1node", "r2d", "a1b2c", "x-0y", "login", ""])
        digits, first = random_.choice([0, 1, 2, 4]), random_.choice([0, 1, 7, 8, 98, 995, 9998])
        names += [f"{prefix}{first + i:0{digits}d}" for i in range(random_.randint(1, 8))]
        if random_.random() < 0.3:
            names.append(random_.choice(["gateway", "n5-ib", names[-1], "z09x"]))
        if random_.random() < 0.2:
            random_.shuffle(names)
    return names


def test_jobs_that_hold_nodes_are_the_controllers(slurm: Controller, tmp_path: Path) -> None:
    holding, cancelled = (slurm.submit("-N4", "--exclusive") for _ in range(2))
    nodes = [slurm.allocated(job) for job in (holding, cancelled)]
    slurm.run("scancel", cancelled)
    held = slurm.submit("-N4", "--exclusive", "--hold")
    try:
        for name, command in (("jobs.txt", ("scontrol", "show", "job")), ("jobs.json", ("squeue", "--json"))):
            (tmp_path / name).write_text(slurm.run(*command))
            found = {j.name: j.nodes for j in cluster_files.read_running(tmp_path / name)}
            assert found[f"wrap-{holding}"] == tuple(expand(nodes[0]))
            assert not {f"wrap-{cancelled}", f"wrap-{held}"} & found.keys()
    finally:
        slurm.run("scancel", holding, held)


def test_hostlists_fold_and_expand_as_scontrol_does(slurm: Controller) -> None:
    random_ = random.Random(22)
    for _ in range(150):
        names = _random_names(random_)
        folded = slurm.run("scontrol", "show", "hostlist", ",".join(names)).strip()
        assert fold_names(names) == folded
        assert expand(folded) == names
        assert slurm.run("scontrol", "show", "hostnames", folded).split() == names
    brackets = "r[1-2]n[01-02] n[1-2]s[01-02]p[3-4] n[1-2]s[1-2]p[3-4]q[5-6] n[8-11],m[099-101,7] a[1-3][1-2] [007-012]"
    for text in brackets.split():
        assert slurm.run("scontrol", "show", "hostnames", text).split() == expand(text)


def ranks(slurm: Controller, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Run a step and return the node of each rank."""
    command = ("srun", "--exclusive", *arguments, "sh", "-c", "echo $SLURM_PROCID $SLURMD_NODENAME")
    rows = [line.split() for line in slurm.run(*command, environment=environment).splitlines()]
    return tuple(node for _, node in sorted(rows, key=lambda row: int(row[0])))


@pytest.mark.slow
def test_real_ranks_are_where_the_files_put_them(tmp_path: Path) -> None:
    """On running nodes a node list is sorted by name, as an order of names is; hostfile and torchrun keep any order."""
    if reason := why_not(daemons=True):
        pytest.skip(reason)
    sizes = (("n2", "n10", "n1"), ("n3", "n11", "n20"))
    leaves = (TopologySwitch(name=f"l{i}", parent="top", nodes=n) for i, n in enumerate(sizes))
    tree = Topology(switches=(TopologySwitch(name="top"), *leaves))
    names = [n for own in sizes for n in own]
    nodes = ("n11", "n2", "n20", "n1")
    placed = placed_on("j", nodes, gpus_per_node=1)
    (tmp_path / "ranks").write_text(hostfile(placed, tree))
    (tmp_path / "torch.sh").write_text(WRITERS["torchrun"](placed, tree))
    (tmp_path / "torchrun").write_text('#!/bin/sh\necho "$SLURMD_NODENAME $*"\n')
    (tmp_path / "torchrun").chmod(0o755)
    with controller(tmp_path / "run", "", write_conf(tree), daemons=names) as slurm:
        assert ranks(slurm, "-N4", "-n4", "-w", fold_names(nodes)) == tuple(sorted(nodes, key=natural))
        by_name = planner.place(tree, {"name": "j", "mesh": {"pipeline": 2, "data": 2}}, only=nodes, order="name")
        assert ranks(slurm, "-N4", "-n4", "-w", fold_names(by_name.nodes)) == by_name.nodes
        file = {"SLURM_HOSTFILE": str(tmp_path / "ranks")}
        assert ranks(slurm, "-n4", "-m", "arbitrary", environment=file) == nodes
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        command = ("srun", "-N4", "--ntasks-per-node=1", "-w", fold_names(nodes), "sh", str(tmp_path / "torch.sh"), "x")
        started = slurm.run(*command, environment=path).splitlines()
    by_rank = {line.split("--node-rank=")[1].split()[0]: line.split()[0] for line in started}
    assert tuple(by_rank[str(rank)] for rank in range(4)) == nodes


TREE = Topology(switches=(TopologySwitch(name="leaf", nodes=("n1", "n2", "n3", "n4")),))
STATES = {
    FREE: "idle IDLE idle~ idle#",
    BUSY: "alloc allocated mix comp resv plnd mix- alloc~ idle- alloc+",
    DOWN: "down down* drain drng maint idle* idle$ idle% idle! idle@ mix* fail unk futr inval boot^",
}


def test_each_state_means_one_thing(tmp_path: Path) -> None:
    """Idle nodes are free though powered off, nodes with work or a promise busy, all others down.

    A node of two partitions is as its worst.
    """
    for state, meaning in ((state, meaning) for meaning, states in STATES.items() for state in states.split()):
        found = _read(tmp_path, f"n[1-2] {state}\n")
        assert [len(found.free), len(found.busy), len(found.down)] == [2 * (meaning == m) for m in (FREE, BUSY, DOWN)]
    found = _read(tmp_path, "n1 idle\nn1 mix\n\nn2 drain\nn2 idle\nn3 idle\nn3 idle\n")
    assert (found.free, found.busy, found.down) == ({"n3"}, {"n1"}, {"n2"})


def _listed(key: str, *parts: dict[str, Any]) -> dict[str, Any]:
    """Return JSON of scontrol's nodes or Kubernetes' items n1, n2, ..."""
    named = ({"name": f"n{i}"} for i, _ in enumerate(parts, 1))
    return {key: [({"metadata": x} if key == "items" else x) | part for x, part in zip(named, parts, strict=True)]}


@each("data", [
    _listed("nodes", {"state": "idle", "state_flags": ["CLOUD"]}, {"state": "idle", "state_flags": ["DRAIN"]}),
    _listed("nodes", {"state": ["IDLE", "CLOUD", "POWERED_DOWN"]}, {"state": ["IDLE", "DRAIN"]}),
    {"sinfo": [{"node": {"state": ["IDLE", *x]}, "nodes": {"nodes": [n]}}
               for n, x in (("n1", []), ("n2", ["NOT_RESPONDING"]))]},
    _listed("items", {}, {"spec": {"unschedulable": True}}),
    _listed("items", *({"status": {"conditions": [{"type": "Ready", "status": x}]}} for x in ("True", "Unknown"))),
])  # fmt: skip
def test_json_of_every_age(tmp_path: Path, data: object) -> None:
    found = _read(tmp_path, json.dumps(data))
    assert (found.free, found.busy, found.down) == ({"n1"}, frozenset(), {"n2"})


def _read(directory: Path, text: str) -> NodeStates:
    (directory / "states").write_text(text)
    return read_states(directory / "states")


@each(("text", "message"), [
    ("n1 idle\nn2 idel", "line 2: unknown state 'idel'; did you mean 'idle'"), ("n[1-2 idle", r"line 1: 'n\[1-2': a "),
    ("n1", "line 1: 'n1' must be a hostlist and a state"), ("NODELIST STATE\n", "line 1: unknown state 'STATE'"),
    ("{}", "must have a list of nodes or sinfo"), ('{"nodes": [{"name": "n1"}]}', r"nodes\[0\]: names no node or no"),
    ('{"sinfo": [3]}', r"sinfo\[0\]: names no node"), ('{"sinfo": []}', "names no node; print it"),
    ('{"nodes": []}', "names no node; print it"),
    ('{"sinfo": [{"node": {"state": ["IDLE"]}, "nodes": {"nodes": []}}]}', "names no node; print it"),
    ('{"nodes": [{"name": "n1", "state": []}]}', r"nodes\[0\].state: n1 has no state \(is \[\]\)"),
    ('{"nodes": [{"name": "n1", "state": ""}]}', r"nodes\[0\].state: unknown state ''"),
    ('{"nodes": [{"name": "", "state": "idle"}]}', r"nodes\[0\]: names no node or no state"),
    ('{"items": [{"metadata": {"name": "n1"}, "status": 3}]}', r"items\[0\]\.status: must be an object \(is 3\)"),
    ('{"items": [{"metadata": {"name": "n1"}, "spec": "a"}]}', r"items\[0\]\.spec: must be an object"),
    ('{"items": [{"metadata": {"name": "n1"}, "status": {"conditions": 7}}]}',
     r"items\[0\]\.status\.conditions: must be a list \(is 7\)"),
    ('{"nodes": [{"name": "n1", "state": ["IDLY"]}]}', r"nodes\[0\].state: unknown state 'IDLY'"),
])  # fmt: skip
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    """Line or path, value and remedy; a list that states nothing is not read as a cluster that is full."""
    with pytest.raises(InputError, match=message):
        _read(tmp_path, text)


def test_on_a_topology(tmp_path: Path) -> None:
    """Nodes that the list leaves out cannot be had; nodes that the cluster does not have are refused."""
    file = tmp_path / "sinfo.txt"
    file.write_text("n1 idle\nn2 alloc\n")
    assert opened(TREE, (), file)[1] == ["n2", "n3", "n4"]
    for nodes, told in (
        ("m2", "'m2' is no node of the topology; did you mean 'n2'"),
        ("n1,x6,x5", "'x5', 'x6' are no"),
    ):
        file.write_text(f"{nodes} alloc\n")
        with pytest.raises(InputError, match=rf"sinfo\.txt: {told}"):
            opened(TREE, (), file)
