"""Jobs given in words, and changes to jobs that run on placements that the planner did not make."""

import json
from pathlib import Path

import pytest
from commands import invoke, refusal
from each_case import each
from typer.testing import Result

from planner.cluster.job import mesh_job
from planner.formats.cluster_files import read_running

LEAVES = """\
SwitchName=leaf0 Nodes=m[00-03]
SwitchName=leaf1 Nodes=m[04-07]
SwitchName=leaf2 Nodes=m[08-11]
SwitchName=leaf3 Nodes=m[12-15]
SwitchName=top Switches=leaf[0-3]
"""
SQUEUE = {
    "jobs": [
        {"job_id": 11, "name": "a", "job_state": ["RUNNING"], "nodes": "m[00-01,04-05]", "priority": {"number": 3}},
        {"job_id": 12, "name": "b", "job_state": "RUNNING", "nodes": "m[08-09]", "priority": 1},
        {"job_id": 13, "name": "c", "job_state": ["PENDING"], "nodes": "", "priority": {"number": 9}},
    ]
}
SCONTROL = """\
JobId=11 JobName=a
   UserId=u(1000) GroupId=u(1000) Priority=3 QOS=normal
   JobState=RUNNING Reason=None
   NodeList=m[00-01,04-05] BatchHost=m00
   NumNodes=4

JobId=12 JobName=b
   Priority=1 JobState=RUNNING
   NodeList=m[08-09]

JobId=13 JobName=c
   Priority=9 JobState=PENDING NodeList=(null)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a topology and the running jobs in both of Slurm's forms."""
    (tmp_path / "leaves.conf").write_text(LEAVES)
    (tmp_path / "squeue.json").write_text(json.dumps(SQUEUE))
    (tmp_path / "scontrol.txt").write_text(SCONTROL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    """Run a command on the cluster."""
    return invoke(words[0], "--topology", "leaves.conf", *words[1:])


def test_a_job_in_words(folder: Path) -> None:
    """Nodes and a mesh place as the job's file does; short names are the long ones."""
    (folder / "job.json").write_text('{"name": "job", "mesh": {"pipeline": 3, "data": 4}}')
    by_file = run("place", "--job", "job.json").output
    assert run("place", "--nodes", "12", "--mesh", "pipeline=3,data=4").output == by_file == "m[00-11]\n"
    assert run("place", "--mesh", "pp=3,dp=4").output == by_file
    assert run("place", "--nodes", "5").exit_code == 0
    assert run("place", "--nodes", "12", "--mesh", "pp=3,dp=4", "--format", "json", "-o", "a.json").exit_code == 0
    mended = ["place", "--nodes", "12", "--mesh", "pp=3,dp=4", "--running", "a.json", "--replace"]
    assert run(*mended, "m05").output == "m[00-04,12,06-11]\n"
    assert "no rank of the running job is on m15; give nodes of m[00-11]" in refusal(run(*mended, "m15"))
    assert mesh_job("x", "pp=2,dp=2", 8).nodes_per_member == 2
    (folder / "short.json").write_text('{"$schema": "x", "name": "job", "mesh": {"pp": 3, "dp": 4}}')
    assert run("place", "--job", "short.json").output == by_file


@each(("words", "complaint"), [
    ((), "--job, --nodes, --mesh: give a job file, or nodes and a mesh such as pipeline=4,data=12"),
    (("--nodes", "7", "--mesh", "pp=2,dp=2"), "--nodes: must be a multiple of the 4 members of --mesh (is 7)"),
    (("--mesh", "pipeline"), "--mesh: must be AXIS=SIZE,... such as pipeline=4,data=12 (is 'pipeline')"),
    (("--mesh", "dp=2,dp=2"), "--mesh: axis 'dp' is given twice; keep one"),
    (("--mesh", "dp=2,data=2"), "mesh: has an axis under two names (dp, data); keep one"),
    (("--job", "squeue.json", "--gpus-per-node", "4"), "squeue.json: a job's file has its gpus_per_node"),
    (("--nodes", "4", "--objective", "step-time"), "--objective step-time needs the job's file; give it"),
])  # fmt: skip
@pytest.mark.usefixtures("folder")
def test_bad_words(words: tuple[str, ...], complaint: str) -> None:
    assert complaint in refusal(run("place", *words))


@each("words", [("--nodes", "4"), ("--mesh", "data=4")])
@pytest.mark.usefixtures("folder")
def test_a_job_file_or_words(words: tuple[str, str]) -> None:
    """A command takes a job file, or nodes and a mesh; given both, neither is dropped in silence."""
    for command in (["place"], ["preempt", "--running", "squeue.json"]):
        both = refusal(run(*command, "--job", "job.json", *words))
        assert both == "--job job.json: a job's file has its nodes and mesh; leave out --nodes and --mesh"


@each("file", ["squeue.json", "scontrol.txt", "indented.txt"])
def test_running_jobs(folder: Path, file: str) -> None:
    """Jobs that run, with their nodes and priorities; those that wait are left out."""
    (folder / "indented.txt").write_text("".join(f"  {line}\n" for line in SCONTROL.splitlines()))
    jobs = read_running(folder / file)
    assert [(j.name, len(j.nodes), j.priority) for j in jobs] == [("a-11", 4, 3), ("b-12", 2, 1)]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("states", "holds"), [
    *(((s,), True) for s in ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING")),
    *(((s,), True) for s in ("STAGE_OUT", "RESIZING", "POWER_UP_NODE", "running", "REQUEUED")),
    *(((s,), False) for s in ("PENDING", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL")),
    *(((s,), False) for s in ("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT")),
    (("RUNNING", "COMPLETING"), True),
    (("COMPLETED", "COMPLETING"), True),
    (("CANCELLED", "STAGE_OUT"), True),
    (("PREEMPTED", "REQUEUED"), False),
    (("PENDING", "REQUEUE_HOLD"), False),
    (("FAILED", "SPECIAL_EXIT"), False),
])  # fmt: skip
def test_jobs_that_hold_their_nodes(folder, states, holds, many, capfd):
    """A job holds its nodes in every state but the ended ones and while it waits, whatever flags it has beside."""
    if many:
        job = {"job_id": 1, "name": "x", "job_state": list(states), "nodes": "m[00-15]"}
        text = json.dumps({"jobs": [job]})
    else:
        text = f"JobId=1 JobName=x\n   JobState={' '.join(states)} Reason=None\n   NodeList=m[00-15]\n"
    (folder / "jobs.txt").write_text(text)
    assert [len(j.nodes) for j in read_running(folder / "jobs.txt")] == [16] * holds
    stopped = run("preempt", "--running", "jobs.txt", "--nodes", "1").output.splitlines()[0]
    assert stopped == ("Preempt x-1 (16 nodes, priority 1); optimal" if holds else "Preempt nothing; optimal")
    assert "state" not in capfd.readouterr().err


UNKNOWN = "JobId=1 JobName=x\n JobState=HIBERNATING Reason=None\n NodeList={}\n"


@each(("text", "stopped"), [
    (UNKNOWN.format("m[00-15]"), "Preempt x-1 (16 nodes, priority 1); optimal"),
    ('{"jobs": [{"job_id": 1, "name": "x", "job_state": ["COMPLETED", "HIBERNATING"], "nodes": "m[00-15]"}]}',
     "Preempt x-1 (16 nodes, priority 1); optimal"),
    (UNKNOWN.format("(null)"), "Preempt nothing; optimal"),
])  # fmt: skip
def test_an_unknown_state_holds_its_nodes(
    folder: Path, text: str, stopped: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    (folder / "jobs.txt").write_text(text)
    assert run("preempt", "--running", "jobs.txt", "--nodes", "1").output.startswith(stopped)
    assert "jobs.txt: " in caplog.text
    assert "state 'HIBERNATING' is none of Slurm's; it is taken to hold its nodes" in caplog.text


@each("file", ["squeue.json", "scontrol.txt"])
def test_changes(folder: Path, file: str) -> None:
    """Room by moves, by stopping, growth in place, and a queue, on jobs that Slurm placed."""
    (folder / "none.txt").write_text("No jobs in the system\n")
    assert run("preempt", "--running", "none.txt", "--nodes", "16").output.startswith("Preempt nothing; optimal")
    room = run("defragment", "--running", file)
    assert room.exit_code == 0 and room.output.startswith("2 moves free ") and room.output.endswith("\n")
    assert len(room.output.splitlines()) == 3
    assert run("defragment", "--running", file, "--leaves", "2").exit_code == 3
    stopped = run("preempt", "--running", file, "--nodes", "12").output
    assert stopped.startswith("Preempt b-12 (2 nodes, priority 1); optimal\njob: m")
    assert run("preempt", "--running", file, "--nodes", "4").output.startswith("Preempt nothing; optimal\n")
    assert run("preempt", "--running", file, "--nodes", "17").exit_code == 3
    grown = run("resize", "--running", file, "--name", "a-11", "--mesh", "data=4", "--to", "data=6")
    assert grown.output.splitlines()[-1] == "m[00-01,04-05,02-03]"
    shrunk = run("resize", "--running", file, "--name", "a-11", "--mesh", "dp=4", "--to", "dp=2", "--json").output
    nodes = json.loads(shrunk)["placement"]["nodes"]
    assert set(nodes) <= {"m00", "m01", "m04", "m05"} and len(nodes) == 2


def test_a_queue(folder: Path) -> None:
    """The jobs that fit beside those that run are placed together; the others wait by name."""
    (folder / "q1.json").write_text('{"name": "q1", "mesh": {"data": 4}}')
    (folder / "q2.json").write_text('{"name": "q2", "mesh": {"data": 12}}')
    result = run("queue", "--running", "squeue.json", "--job", "q1.json", "--job", "q2.json")
    lines = result.output.splitlines()
    assert lines[:2] == ["1 job runs, 0 split groups; optimal", "q1: m[12-15]"]
    assert lines[2] == "q2: waits: needs 12 nodes > 6 free after the jobs before it"
    assert lines[3].startswith("given: ") and "order of the queue" in lines[3] and len(lines) == 4


# Words of a command that has no answer: what it says first, and the rules that it names.
NO = [
    ("defragment", "no moves free 1 leaf more; infeasible", ("pieces", "not divided", "no running job has")),
    ("preempt --nodes 17", "job 'job' needs 17 nodes > 16 free with every running job stopped", ("stopped whole",)),
    ("preempt --nodes 8 --max-split 0",
     "job 'job' needs 8 nodes and at most 0 split groups, which no choice of jobs to stop leaves room for",
     ("at most 0 groups split", "none is moved", "stopped whole")),
    ("resize --name full-1 --mesh dp=4 --to dp=14", "job 'full-1': 10 nodes are missing > 6 free", ("stays on its",)),
    ("queue --job large.json", "0 jobs run, 0 split groups; infeasible", ("order of the queue", "busy ones stay busy")),
    ("place --nodes 17", "job 'job' needs 17 nodes > 16 free", ("taken whole", "busy ones stay busy")),
    ("place --job segments.json --busy m[01-02,05-06,09-10,13-14]",
     "job 'large' needs 9 nodes in whole segments of 3 > 0 free",
     ("each 3 consecutive nodes stay in one block", "taken whole")),
]  # fmt: skip


@each(("words", "says", "rules"), NO)
def test_a_no_names_the_rules_that_it_was_given(folder: Path, words: str, says: str, rules: tuple[str, ...]) -> None:
    """Four moves would free a leaf if a piece could be divided: whoever says no says under which rules."""
    jobs = [("full", "m[00-03]"), ("left", "m[04-06]"), ("right", "m[08-10]")]
    listed = [{"job_id": i, "name": n, "nodes": on} for i, (n, on) in enumerate(jobs, 1)]
    (folder / "jobs.json").write_text(json.dumps({"jobs": listed}))
    (folder / "large.json").write_text('{"name": "large", "mesh": {"data": 12}}')
    segments = {"name": "large", "mesh": {"data": 3}, "nodes_per_member": 3, "segment_nodes": 3}
    (folder / "segments.json").write_text(json.dumps(segments))
    busy = () if "place" in words else ("--running", "jobs.json")
    result = run(*words.split(), *busy, *(("--busy", "m[12-13]") if words.startswith("defragment") else ()))
    first, *more = result.output.splitlines()
    assert (result.exit_code, first) == (3, says)
    assert more[-1].startswith("given: ") and all(rule in more[-1] for rule in rules)


@each(("wrong", "complaint"), [
    ({"nodes": ["m02", "m02"]}, "placed.json: nodes: 'm02' is listed twice; give the placement as it runs"),
    ({"segmnt_nodes": 2}, "placed.json: segmnt_nodes: unknown key; did you mean 'segment_nodes'?"),
])  # fmt: skip
def test_a_running_placement_is_read_as_strictly_as_one_to_repair(folder, wrong, complaint) -> None:
    placed = folder / "placed.json"
    assert run("place", "--nodes", "2", "--busy", "m[00-01]", "--format", "json", "-o", "placed.json").exit_code == 0
    both = ["--running", "squeue.json", "--running", "placed.json"]
    assert run("preempt", *both, "--nodes", "4").exit_code == 0
    placed.write_text(json.dumps(json.loads(placed.read_text()) | wrong))
    assert complaint in refusal(run("defragment", "--running", "placed.json"))


@each(("text", "complaint"), [
    ("nothing", "bad.txt: has no JobId=; give what `squeue --json` or `scontrol show job` prints"),
    ("{}", "bad.txt: holds no running jobs; give what `squeue --json`"),
    ('{"jobs": [{"job_id": 1, "nodes": "z1"}]}', "node 'z1' is not in the topology"),
    ('{"jobs": [{"job_id": 1, "nodes": "m[1-"}]}', "bad.txt: jobs[0]:"),
    ('{"jobs": [{"job_id": 1}]}', "bad.txt: jobs[0]: a running job has no nodes (is None)"),
    ('{"jobs": [7]}', "bad.txt: jobs[0]: must be an object (is 7)"),
    ('{"jobs": [{"job_id": 1, "nodes": "m00"}, {"job_id": 1, "nodes": "m01"}]}', "job '1' is listed twice"),
    ('{"jobs": [{"job_id": 1, "nodes": "m00"}, {"job_id": 2, "nodes": "m00"}]}', "jobs '1' and '2' both have it"),
])  # fmt: skip
def test_bad_running_jobs(folder: Path, text: str, complaint: str) -> None:
    (folder / "bad.txt").write_text(text)
    assert complaint in refusal(run("defragment", "--running", "bad.txt"))
