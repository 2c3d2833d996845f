"""`planner place`: what goes where, exit codes, what is refused by name; `planner topology`: read, told, written."""

import json
import os
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest
from cluster_worlds import some_busy, tree
from commands import invoke, refusal, run_here
from each_case import each
from stored_plans import stored

from planner.checks.placement import check_placement
from planner.cluster.hostlists import expand
from planner.cluster.job import GroupKind, Job
from planner.cluster.placement import Placement
from planner.cluster.topology import Topology, TopologyBlock
from planner.formats.cluster_files import TOPOLOGY_WRITERS, read_topology
from planner.models.placement import placement_levels

TOPOLOGY = tree([8, 8, 8, 8], 2)
JOB = Job(name="run", mesh={"pipeline": 3, "data": 6}, gpus_per_node=8)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "topology.conf").write_text(TOPOLOGY_WRITERS["conf"](TOPOLOGY))
    (tmp_path / "job.json").write_text(JOB.model_dump_json())
    return tmp_path


def place(files: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Place the job of a folder, in which the command runs."""
    with chdir(files):
        return run_here("place", "--topology", "topology.conf", "--job", "job.json", *args)


def test_json_is_a_placement_with_arguments(files: Path) -> None:
    """-o writes the whole file and the figures go to stdout; the file replays and names what to submit."""
    out = place(files, "--busy", "n[00000-00002]", "--format", "json", "-o", "out.json")
    assert (out.returncode, out.stderr) == (0, "")
    assert "run: 18 nodes, 3 groups; 0 split groups (bound 0)" in out.stdout
    data = json.loads((files / "out.json").read_text())
    assert expand(data["hostlist"]) == data["nodes"]
    assert "-N18" in data["sbatch"]
    placement = Placement.model_validate({k: data[k] for k in Placement.model_fields})
    assert check_placement(TOPOLOGY, JOB, placement, busy=[f"n0000{i}" for i in range(3)]) == []


@each(("form", "first"), [
    ("sbatch", "sbatch --job-name=run -N18"), ("hostfile", "n0"), ("mpi-hostfile", "n0"), ("rankfile", "rank 0="),
    ("kueue", "apiVersion"), ("volcano", "apiVersion"), ("hostlist", "n[00000-0000"),
])  # fmt: skip
def test_every_scheduler_is_written_for(files: Path, form: str, first: str) -> None:
    out = place(files, "--format", form)
    assert (out.returncode, out.stderr) == (0, "") and first in out.stdout[:200]


@each(("args", "says"), [
    (["--busy", "n00032"], "node 'n00032' is not in the topology; did you mean 'n0003"),
    (["--busy", "n[00001-"], "busy: "),
    (["--format", "hostlst"], "--format: must be one of hostlist"),
    (["--replace", "n00001"], "--replace, --running: give both"),
    (["--replace", "n00001", "--running", "job.json"], "job.json: mesh: unknown key"),
    (["--time-limit", "-1"], "--time-limit: must be a number from 0 to 1,000,000,000"),
    (["--topology-name", "none", "--topology", "t.yaml"], "t.yaml: there is no topology 'none'; did you mean"),
    (["-o", "no/where.json"], "its folder does not exist"),
    (["--job", "topology.conf"], "fix the JSON there"),
    (["--topology", "none.conf"], "none.conf: "),
])  # fmt: skip
def test_bad_input_is_named(files: Path, args: list[str], says: str) -> None:
    (files / "t.yaml").write_text(TOPOLOGY_WRITERS["yaml"](TOPOLOGY).replace("fabric", "nine"))
    out = place(files, *args)
    assert (out.returncode, out.stdout) == (2, "")
    assert says in out.stderr
    assert "Traceback" not in out.stderr


@each(("change", "says"), [
    ({"name": "run\nkind: Secret"}, "job.json: name: "),
    ({"gpus_per_node": 1_000_000_000}, "job.json: gpus_per_node: "),
    ({"mesh": {"pipeline": 3, "dta": 6}}, "mesh.dta: did you mean 'data'?"),
    ({"mesh": {"pipline": 3, "data": 6}}, "mesh.pipline: did you mean 'pipeline'?"),
])  # fmt: skip
def test_a_job_that_would_do_harm_is_refused(files: Path, change: dict[str, object], says: str) -> None:
    """A name of two lines, more ranks than memory, an axis misspelt: named, exit 2."""
    (files / "job.json").write_text(json.dumps({**JOB.model_dump(exclude_none=True), **change}))
    out = place(files)
    assert (out.returncode, out.stdout) == (2, "")
    assert says in out.stderr


def test_ctrl_c_leaves_the_best_placement_so_far(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 130 with a whole file that replays, and nothing else; busy nodes are read of their states."""
    topology = tree([32] * 64, 16)  # a search is needed
    (files / "topology.conf").write_text(TOPOLOGY_WRITERS["conf"](topology))
    kinds = [GroupKind(name=f"g{n}", size=n, count=1600 // 4 // n) for n in (16, 13, 8, 4)]
    (files / "job.json").write_text(Job(name="run", groups=tuple(kinds)).model_dump_json())
    busy = some_busy(topology, 0.2, 1)
    every = (node for switch in topology.switches for node in switch.nodes)
    (files / "states").write_text("".join(f"{n} {'alloc' if n in busy else 'idle'}\n" for n in every))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(placement_levels, "improve", interrupted)
    out = place(files, "--state", "states", "-o", "out.json", "--format", "json")
    assert out.returncode == 130
    data = json.loads((files / "out.json").read_text())
    assert (data["stopped"], data["certificate"]["status"]) == ("interrupted", "feasible")
    assert len(data["nodes"]) == len(set(data["nodes"])) and not set(busy) & set(data["nodes"])
    assert [f.name for f in files.iterdir() if f.name.startswith(".")] == []


def test_a_link_stays_and_its_file_changes(files: Path) -> None:
    """-o to a link writes the file that it leads to, and -o to a pipe puts no file in its place."""
    (files / "real.txt").write_text("before")
    (files / "link.txt").symlink_to("real.txt")
    assert place(files, "-o", "link.txt").returncode == 0
    assert (files / "link.txt").is_symlink()
    assert len(expand((files / "real.txt").read_text().strip())) == 18
    os.mkfifo(files / "pipe")
    reader = os.open(files / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        assert place(files, "-o", "pipe").returncode == 0
        assert (files / "pipe").is_fifo()
        assert len(expand(os.read(reader, 10_000).decode().strip())) == 18
    finally:
        os.close(reader)


def test_a_plan_that_counts_on_whole_pipelines_is_told_of(tmp_path: Path) -> None:
    """A plan that splits groups which it need not names the objective that places it so; with that nothing is told."""
    plan = stored("instances/cluster-1k.json")
    assert plan.placement is not None and plan.placement.groups_split > plan.placement.lower_bound_split
    job, topology = tmp_path / "plan.json", tmp_path / "planned.conf"
    job.write_text(plan.model_dump_json())
    assert run_here("fabric", "export", job, "--format", "slurm-conf", "-o", topology).returncode == 0
    told = run_here("place", "--topology", topology, "--job", job)
    by_step = run_here("place", "--topology", topology, "--job", job, "--objective", "step-time")
    assert told.returncode == by_step.returncode == 0
    assert "to keep pipelines under one leaf; --objective step-time" in told.stderr and by_step.stderr == ""


BLOCKED = tree([8, 8, 4], 2, block=4)


@each(("topology", "says"), [
    (BLOCKED, "20 nodes, 3 leaves of 4 to 8, 2 switches of tier 2, 5 blocks inside the leaves\n"),
    (tree([1], 2, block=1), "1 node, 1 leaf of 1, 1 switch of tier 2, 1 block inside the leaves\n"),
])  # fmt: skip
def test_a_topology_is_summed_up_and_written_as_it_is(topology: Topology, says: str, tmp_path: Path) -> None:
    """From a file to another format and back: the same leaves under the same switches."""
    (tmp_path / "t.yaml").write_text(TOPOLOGY_WRITERS["yaml"](topology))
    done = invoke("topology", tmp_path / "t.yaml")
    assert (done.exit_code, done.stdout) == (0, says)
    for form in ("conf", "yaml"):
        assert invoke("topology", tmp_path / "t.yaml", "--format", form, "-o", tmp_path / f"t2.{form}").exit_code == 0
        again = read_topology(tmp_path / f"t2.{form}")
        assert again.switches == topology.switches
        assert again.blocks == (topology.blocks if form == "yaml" else ())


def test_blocks_alone_are_a_level_for_kueue() -> None:
    blocks = TopologyBlock(name="b0", nodes=("n0", "n1")), TopologyBlock(name="b1", nodes=("n2",))
    text = TOPOLOGY_WRITERS["kueue"](Topology(kind="block", blocks=blocks))
    domains = [text.count(f"accelerator.topograph.run/domain: {block.name}") for block in blocks]
    assert (text.count("nodeLabel: "), domains) == (2, [2, 1])


@each(("args", "says"), [
    (["--format", "xml"], "must be one of conf, yaml, kueue, volcano"), (["-o", "x"], "say in which --format"),
    (["--name", "no"], "no topology 'no'"),
])  # fmt: skip
def test_a_topology_that_cannot_be_written_is_refused(tmp_path: Path, args: list[str], says: str) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY_WRITERS["yaml"](BLOCKED))
    assert says in refusal(invoke("topology", tmp_path / "t.yaml", *args))
