"""`planner place`: what goes where, exit codes, and what is refused by name."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_worlds import tree

from planner.checks.cluster import check_placement
from planner.formats.write import write_topology
from planner.job import Job
from planner.physics.hostlist import expand
from planner.placement import Placement

TOPOLOGY = tree([8, 8, 8, 8], 2)
JOB = Job(name="run", mesh={"pipeline": 3, "data": 6}, gpus_per_node=8)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "topology.conf").write_text(write_topology(TOPOLOGY, "conf"))
    (tmp_path / "job.json").write_text(JOB.model_dump_json())
    return tmp_path


def place(files: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "planner", "place", "--topology", "topology.conf", "--job", "job.json", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=files)


def test_a_hostlist_is_all_of_stdout(files: Path) -> None:
    """The list expands to the ranks' nodes, in their order."""
    out = place(files)
    assert (out.returncode, out.stderr) == (0, "")
    assert len(expand(out.stdout.strip())) == 18


def test_json_is_a_placement_with_arguments(files: Path) -> None:
    """-o writes the whole file and the figures go to stdout; the file replays and names what to submit."""
    out = place(files, "--busy", "n[00000-00002]", "--format", "json", "-o", "out.json")
    assert (out.returncode, out.stderr) == (0, "")
    assert "run: 18 nodes, 3 groups; 0 split groups (bound 0)" in out.stdout
    data = json.loads((files / "out.json").read_text())
    assert expand(data["hostlist"]) == data["nodes"]
    assert "-N18" in data["sbatch"]
    held = Placement.model_validate({k: data[k] for k in Placement.model_fields})
    assert check_placement(TOPOLOGY, JOB, held, busy=[f"n0000{i}" for i in range(3)]) == []


def test_failed_nodes_are_replaced(files: Path) -> None:
    """With the placement that runs and a failed node, all ranks but one stay."""
    assert place(files, "--format", "json", "-o", "run.json").returncode == 0
    before = json.loads((files / "run.json").read_text())["nodes"]
    out = place(files, "--running", "run.json", "--replace", before[4])
    assert (out.returncode, out.stderr) == (0, "")
    after = expand(out.stdout.strip())
    assert [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [4]


@pytest.mark.parametrize(("form", "first"), [("hostfile", "n0"), ("rankfile", "rank 0="), ("kueue", "apiVersion"), ("volcano", "apiVersion")])
def test_every_scheduler_is_written_for(files: Path, form: str, first: str) -> None:
    """Each format comes out whole on stdout."""
    out = place(files, "--format", form)
    assert (out.returncode, out.stderr) == (0, "")
    assert first in out.stdout[:200]


def test_states_leave_nodes_out(files: Path) -> None:
    """A node that sinfo calls down carries no rank."""
    (files / "states").write_text("n[00001-00031] idle\nn00000 down\n")
    out = place(files, "--state", "states")
    assert (out.returncode, "n00000" in expand(out.stdout.strip())) == (0, False)


def test_a_job_that_does_not_fit_says_the_numbers(files: Path) -> None:
    """Exit 3 with both sides."""
    out = place(files, "--busy", "n[00000-00020]")
    assert (out.returncode, out.stdout) == (3, "job 'run' needs 18 nodes > 11 free\n")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--busy", "n00032"], "node 'n00032' is not in the topology; did you mean 'n0003"),
        (["--busy", "n[00001-"], "busy: "),
        (["--format", "hostlst"], "--format: must be one of hostlist"),
        (["--replace", "n00001"], "--replace, --running: give both"),
        (["--replace", "n00001", "--running", "job.json"], "job.json: mesh: unknown key"),
        (["--time-limit", "-1"], "--time-limit: must be 0 or more"),
        (["-o", "no/where.json"], "its folder does not exist"),
        (["--job", "topology.conf"], "fix the JSON there"),
        (["--topology", "none.conf"], "none.conf: "),
    ],
)
def test_bad_input_is_named(files: Path, args: list[str], says: str) -> None:
    """Exit 2 with one message and nothing on stdout."""
    out = place(files, *args)
    assert (out.returncode, out.stdout) == (2, "")
    assert says in out.stderr
    assert "Traceback" not in out.stderr
