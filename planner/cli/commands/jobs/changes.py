"""`planner defragment`, `preempt`, `resize` and `queue`: changes to the jobs of a cluster that runs."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import DONE, INFEASIBLE, LIMIT
from planner.cli.options import TopologyName
from planner.errors import InputError
from planner.units import counted

if TYPE_CHECKING:
    from pydantic import BaseModel

    from planner.cluster.placement import Placement
    from planner.cluster.results import Move, Running
    from planner.plan.certificate import Certificate
    from planner.scheduling.session import Cluster

TopologyFile = Annotated[Path, typer.Option("--topology", help="Topology file.")]
RunningFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--running", help="Running jobs: output of `squeue --json` or `scontrol show job`, or a placement (JSON)."
    ),
]
Busy = Annotated[str, typer.Option(help="Hostlist of nodes that are taken or broken beside the running jobs'.")]
State = Annotated[Path | None, typer.Option(help="File of node states; only idle nodes are used.")]
TimeLimit = Annotated[float | None, typer.Option(help="Seconds for the proof, 10 unless given.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON and nothing else.")]
JobFile = Annotated[Path | None, typer.Option("--job", help="Job file, or a plan (JSON).")]
Nodes = Annotated[int | None, typer.Option(help="Nodes of the job, in place of a file.")]
Mesh = Annotated[str | None, typer.Option(help="Its mesh in rank order, such as pipeline=4,data=12.")]


def _opened(
    topology: Path, name: str | None, running: Iterable[Path] | None, busy: str, state: Path | None
) -> "tuple[Cluster, list[Running]]":
    """Return the cluster with its running jobs, whose nodes are busy."""
    from planner.formats.read import read_topology
    from planner.scheduling.running import running_jobs
    from planner.scheduling.session import opened

    cluster, taken = opened(read_topology(topology, name=name), busy, state)
    jobs = running_jobs(cluster, list(running or ()))
    cluster.set_busy(taken)
    cluster.set_busy(n for job in jobs for n in job.placement.nodes)
    return cluster, jobs


def _ended(
    answer: "BaseModel", lines: Iterable[str], certificate: "Certificate", *, as_json: bool, refused: bool = False
) -> None:
    """Print an answer, where it is no or waits with the rules that it was given, and leave with its status."""
    rules = [f"given: {certificate.given}"] if refused or certificate.status in ("infeasible", "unknown") else []
    print(answer.model_dump_json(indent=1) if as_json else "\n".join([*lines, *rules]))
    if certificate.status == "infeasible":
        raise typer.Exit(INFEASIBLE)
    raise typer.Exit(DONE if certificate.status == "optimal" else LIMIT)


def _nodes(placement: "Placement") -> str:
    return counted(len(placement.nodes), "node")


def _moves(moves: "Iterable[Move]") -> Iterable[str]:
    return (f"move {m.job} rank {m.rank}: {m.old or '(new)'} to {m.new or '(gone)'}" for m in moves)


def defragment(
    topology: TopologyFile,
    running: RunningFiles = None,
    leaves: Annotated[int, typer.Option(help="Whole leaves to free.")] = 1,
    busy: Busy = "",
    state: State = None,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
    topology_name: TopologyName = None,
) -> None:
    """Free whole leaves by moving the fewest nodes of running jobs; print the moves in an order that works."""
    from planner.scheduling.admission import defragment as solve

    cluster, jobs = _opened(topology, topology_name, running, busy, state)
    found = solve(cluster, jobs, leaves=leaves, time_limit=time_limit)
    status = found.certificate.status
    none = "no moves were found that free" if status == "unknown" else "no moves free"
    wanted = f"{none} {leaves:,} {'leaf' if leaves == 1 else 'leaves'} more"
    moves = len(found.moves)
    frees = f"{counted(moves, 'move')} {'frees' if moves == 1 else 'free'} {', '.join(found.leaves)}"
    head = frees if found.leaves else wanted
    _ended(found, [f"{head}; {status}", *_moves(found.moves)], found.certificate, as_json=as_json)


def preempt(
    topology: TopologyFile,
    running: RunningFiles = None,
    job: JobFile = None,
    nodes: Nodes = None,
    mesh: Mesh = None,
    max_split: Annotated[
        int | None, typer.Option(help="Most all-reduce groups of the new job that may span leaves.")
    ] = None,
    busy: Busy = "",
    state: State = None,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
    topology_name: TopologyName = None,
) -> None:
    """Choose which running jobs to preempt so that a job fits, at the least sum of priority times nodes."""
    from planner.cluster.hostlist import fold_names
    from planner.cluster.job import read_job
    from planner.cluster.mesh import mesh_job
    from planner.scheduling.admission import preempt as solve

    wanted = read_job(job) if job is not None else mesh_job("job", mesh, nodes)
    cluster, jobs = _opened(topology, topology_name, running, busy, state)
    found = solve(cluster, wanted, jobs, max_split=max_split, time_limit=time_limit)
    of = {j.placement.job: f"{j.placement.job} ({_nodes(j.placement)}, priority {j.priority:,})" for j in jobs}
    stop = f"Preempt {', '.join(of[name] for name in found.stop)}" if found.stop else "Preempt nothing"
    head = f"{stop}; {found.certificate.status}" if found.cost is not None else found.placement.reason
    where = [f"{wanted.name}: {fold_names(found.placement.nodes)}"] if found.placement.nodes else []
    _ended(found, [head, *where], found.certificate, as_json=as_json)


def resize(
    topology: TopologyFile,
    mesh: Annotated[str, typer.Option(help="The running job's mesh in rank order, such as pipeline=4,data=12.")],
    to: Annotated[str, typer.Option(help="Its mesh afterwards: another size of data.")],
    running: RunningFiles = None,
    name: Annotated[str | None, typer.Option(help="Which of the running jobs, where there are several.")] = None,
    busy: Busy = "",
    state: State = None,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
    topology_name: TopologyName = None,
) -> None:
    """Grow or shrink the data parallelism of a running job; the ranks that stay do not move."""
    from planner.cluster.hostlist import fold_names
    from planner.cluster.mesh import mesh_job
    from planner.errors import hint
    from planner.scheduling.repair import resize as solve
    from planner.scheduling.running import own_placement

    cluster, jobs = _opened(topology, topology_name, running, busy, state)
    names = [j.placement.job for j in jobs]
    if name is None and len(names) != 1:
        raise InputError(f"--name: must say which of {len(names)} running jobs ({', '.join(names[:5]) or 'none'})")
    if name is not None and name not in names:
        raise InputError(f"--name: {name!r} does not run; {hint(name, names)}")
    own = jobs[names.index(name or names[0])].placement
    before = mesh_job(own.job, mesh, len(own.nodes))
    after = mesh_job(own.job, to, None, option="--to").model_copy(update={"nodes_per_member": before.nodes_per_member})
    found = solve(cluster, before, own_placement(cluster, own.job, own.nodes, before), after, time_limit=time_limit)
    x = found.placement
    head = f"{x.job}: {_nodes(x)}, {counted(x.groups_split, 'split group')}; {x.certificate.status}"
    lines = [head, *_moves(found.moves), fold_names(x.nodes)] if x.nodes else [x.reason]
    _ended(found, lines, x.certificate, as_json=as_json)


def queue(
    topology: TopologyFile,
    job: Annotated[list[Path], typer.Option("--job", help="Job file, first in the queue first; may be repeated.")],
    running: RunningFiles = None,
    busy: Busy = "",
    state: State = None,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
    topology_name: TopologyName = None,
) -> None:
    """Place queued jobs together, in queue order, with the fewest split groups; list the jobs that must wait."""
    from planner.cluster.hostlist import fold_names
    from planner.cluster.job import read_job
    from planner.scheduling.admission import place_queue

    cluster, _ = _opened(topology, topology_name, running, busy, state)
    found = place_queue(cluster, [read_job(j) for j in job], time_limit=time_limit)
    count = len(found.placements)
    runs = f"{counted(count, 'job')} {'runs' if count == 1 else 'run'}, {counted(found.groups_split, 'split group')}"
    head = f"{runs}; {found.certificate.status}"
    lines = [f"{p.job}: {fold_names(p.nodes)}" for p in found.placements]
    waits = [f"{name}: waits: {why}" for name, why in zip(found.waiting, found.reasons, strict=True)]
    _ended(found, [head, *lines, *waits], found.certificate, as_json=as_json, refused=bool(waits))
