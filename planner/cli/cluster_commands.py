"""Commands on a real cluster: `planner place`, `topology`, `defragment`, `preempt`, `resize`, `queue`."""

import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit

import planner
from planner.cli import console
from planner.cli.console import ExitCode
from planner.cluster.hostlists import fold_names, read_hosts
from planner.errors import InputError, hint
from planner.files import read_json, read_text
from planner.solvers.signals import uninterrupted
from planner.units import counted

if TYPE_CHECKING:
    from pydantic import BaseModel

    from planner.cluster.job import Job
    from planner.cluster.placement import Placement
    from planner.plan.certificate import Certificate
    from planner.scheduling.cluster_changes import Move, Running
    from planner.scheduling.warm_cluster import Cluster


# Names of the formats of `planner.formats.placed_job`, here too so that a command's help loads no writer.
PLACED_FORMATS = ("hostlist", "sbatch", "hostfile", "mpi-hostfile", "rankfile", "torchrun", "json", "kueue", "volcano")
TOPOLOGY_FORMATS = ("conf", "yaml", "kueue", "volcano")
SINGULAR = {"groups": "group", "pieces": "piece", "members": "member", "boundaries": "boundary", "leaves": "leaf"}
TopologyFile = Annotated[Path, "Topology file."]
NodeStates = Annotated[Path | None, "File of node states; only idle nodes are used."]
JobFile = Annotated[Path | None, "Job file, or a plan (JSON)."]
Nodes = Annotated[int | None, "Nodes of the job, in place of a file."]
Mesh = Annotated[str | None, "Its mesh in rank order, such as pipeline=4,data=12."]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """Options of `planner place` for the nodes that a job may have, and for the job: its file, or its mesh."""

    topology: TopologyFile
    topology_name: console.TopologyName = None
    label: console.NodeLabels = None
    busy: Annotated[str, "Hostlist of nodes in use or down; the job avoids them."] = ""
    state: NodeStates = None
    only: Annotated[str | None, "Hostlist of nodes that the job may use: an allocation."] = None
    job: JobFile = None
    nodes: Nodes = None
    mesh: Mesh = None
    name: Annotated[str, "Its name."] = "job"
    gpus_per_node: Annotated[int | None, "Its ranks on one node, of a plan too."] = None
    running: Annotated[
        Path | None, "The job's placement as it runs (from --format json), where nodes of it failed."
    ] = None
    replace: Annotated[str, "Hostlist of failed nodes of the running job: their ranks alone move."] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementSearch:
    """Options of `planner place` for its search: the objective of the placement, and the limits of the search."""

    objective: Annotated[str, "locality, or step-time: a plan's job by its predicted step on the plan's fabric."] = (
        "locality"
    )
    fragmentation: Annotated[bool, "Among equal placements, leave the fewest leaves partly free."] = False
    order: Annotated[str, "Order of ranks: any, or name where the launcher numbers them by node name."] = "any"
    time_limit: Annotated[float | None, "Seconds for the proofs, 10 unless given."] = None
    seed: console.Seed = 0
    threads: console.Threads = None


def _require_one_job(job: Path | None, nodes: int | None, mesh: str | None) -> None:
    if job is not None and (nodes, mesh) != (None, None):
        raise InputError(f"--job {job}: a job's file has its nodes and mesh; leave out --nodes and --mesh")


def place(
    given: PlacedJob,
    search: PlacementSearch,
    form: Annotated[str, f"What to write: {', '.join(PLACED_FORMATS)}."] = "hostlist",
    output: console.InsteadOfStdout = None,
    log: console.Log = None,
) -> None:
    """Print the free nodes that one job takes, by the fewest split groups, then fragments, then groups across pods."""
    with uninterrupted():
        from planner.formats.cluster_files import topology_note, topology_of
        from planner.formats.placed_job import WRITERS
        from planner.scheduling.cluster_changes import replace_in_files
        from planner.scheduling.warm_cluster import opened

    console.require_choice("--format", form, PLACED_FORMATS)
    job, running, by_step = given.job, given.running, search.objective == "step-time"
    if bool(given.replace) != (running is not None):
        raise InputError("--replace, --running: give both: the failed nodes, and the placement that they failed in")
    if job is None and by_step:
        raise InputError("--job: --objective step-time needs the job's file; give it")
    _require_one_job(job, given.nodes, given.mesh)
    if by_step and given.gpus_per_node is not None:
        raise InputError("--gpus-per-node: --objective step-time places whole racks; leave it out")
    from planner.cluster.job import mesh_job, read_job

    if job is None:
        wanted: Job | Path = mesh_job(given.name, given.mesh, given.nodes, gpus_per_node=given.gpus_per_node)
    else:  # by step time it is a plan, read whole
        wanted = job if by_step else read_job(job, given.gpus_per_node)
    text = read_text(given.topology)
    cluster, busy, note = opened(
        topology_of(text, given.topology, keys=given.label or (), name=given.topology_name),
        read_hosts(given.busy, "--busy"),
        given.state,
    )
    of_topology = topology_note(text, with_states=given.state is not None)
    for path, left_out in (given.topology, of_topology), (given.state, note):
        print(f"{path}: {left_out}\n" if left_out else "", end="", file=sys.stderr)
    if running is not None:
        if search.order != "any" or given.only is not None:
            raise InputError("--replace: --order and --only do not go with it; leave them out")
        options: dict[str, Any] = {"time_limit": search.time_limit, "seed": search.seed, "threads": search.threads}
        placement = replace_in_files(cluster, wanted, running, given.replace, busy=busy, **options)
    else:
        with console.ProgressOptions(log=log).line() as report:
            report("placing")
            only = None if given.only is None else read_hosts(given.only, "--only")
            placement = planner.place(cluster, wanted, only=only, busy=busy, **asdict(search))
            report(f"placed: {placement.certificate.status}")
    if not placement.nodes:
        print(f"{placement.reason}\ngiven: {placement.certificate.given}")
        raise Exit(ExitCode.INFEASIBLE)
    if job is not None and job.is_file() and running is None and not by_step:
        # A plan counts on pipelines under one leaf, and may split groups for them that need no split.
        data = read_json(job)
        placed = data.get("placement") if isinstance(data, dict) and "planner_version" in data else None
        if placed and placed["groups_split"] > placed["lower_bound_split"]:
            split = f"splits {placed['groups_split']} all-reduce groups ({placed['lower_bound_split']} unavoidable)"
            what = f"the plan {split} to keep pipelines under one leaf"
            print(f"{job}: {what}; --objective step-time places it by its step", file=sys.stderr)
    console.print_or_write(WRITERS[form](placement, cluster.topology), output)
    if output is not None:
        print(placement_summary(placement))
    ended = ExitCode.DONE if placement.certificate.status == "optimal" else ExitCode.LIMIT
    raise Exit(ExitCode.INTERRUPTED if placement.stopped == "interrupted" else ended)


def placement_summary(placement: "Placement") -> str:
    """Write the figures of a command's placement, with their bounds, on one line."""
    levels = ", ".join(
        f"{one.value} {' '.join(SINGULAR.get(x, x) if one.value == 1 else x for x in one.name.split())} "
        f"({'bound' if one.name in placement.certificate.minimizes else 'not searched, at least'} {one.bound})"
        for one in placement.figures
    )
    if placement.step_seconds is not None:
        levels = f"step {placement.step_seconds:.6g} s (at least {placement.step_seconds_bound:.6g} s); {levels}"
    size = f"{counted(len(placement.nodes), 'node')}, {counted(len(placement.groups), 'group')}"
    return f"{placement.job}: {size}; {levels}; {placement.certificate.status}"


def topology(
    file: Annotated[Path, Argument(help="Topology file, or a plan.")],
    form: Annotated[str | None, f"What to write: {', '.join(TOPOLOGY_FORMATS)}; only a summary unless given."] = None,
    output: console.InsteadOfStdout = None,
    name: console.TopologyName = None,
    label: console.NodeLabels = None,
) -> None:
    """Check a cluster's topology, say how large it is, and write it for another scheduler: Slurm, Kueue or Volcano."""
    with uninterrupted():
        from planner.formats.cluster_files import TOPOLOGY_WRITERS, read_topology
        from planner.models.placement.placement_problem import leaves_of

    if form is not None:
        console.require_choice("--format", form, TOPOLOGY_FORMATS)
    if output is not None and form is None:
        raise InputError(f"-o: say in which --format ({', '.join(TOPOLOGY_FORMATS)})")
    cluster = read_topology(file, keys=label or (), name=name)
    if form is not None:
        console.print_or_write(TOPOLOGY_WRITERS[form](cluster), output)
    if form is not None and output is None:
        return
    leaves = leaves_of(cluster)
    sizes = sorted({len(leaf.nodes) for leaf in leaves})
    depth = range(len(leaves[0].path))
    tiers = [f"{counted(len({leaf.path[tier] for leaf in leaves}), 'switch')} of tier {tier + 2}" for tier in depth]
    size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    each = counted(len(leaves), "block" if cluster.kind == "block" else "leaf")
    parts = [counted(sum(len(leaf.nodes) for leaf in leaves), "node"), f"{each} of {size}", *tiers]
    if cluster.kind == "tree" and cluster.blocks:
        parts.append(f"{counted(len(cluster.blocks), 'block')} inside the leaves")
    print(", ".join(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInUse:
    """Options for the cluster that a command changes (topology, running jobs, taken nodes), and for its answer."""

    topology: TopologyFile
    topology_name: console.TopologyName = None
    running: Annotated[
        list[Path] | None, "Running jobs: output of `squeue --json` or `scontrol show job`, or a placement (JSON)."
    ] = None
    busy: Annotated[str, "Hostlist of nodes that are taken or broken, in addition to those of running jobs."] = ""
    state: NodeStates = None
    time_limit: Annotated[float | None, "Seconds for the proof, 10 unless given."] = None
    as_json: Annotated[bool, "Print the answer as JSON and nothing else."] = False

    def opened(self) -> "tuple[Cluster, list[Running]]":
        """Read the cluster of a command from its topology file, and the jobs that run on it."""
        from planner.cluster.placement import Placement
        from planner.formats.cluster_files import read_running, read_topology
        from planner.scheduling.cluster_changes import Running, own_placement
        from planner.scheduling.warm_cluster import opened

        busy = read_hosts(self.busy, "--busy")
        cluster, taken, _ = opened(read_topology(self.topology, name=self.topology_name), busy, self.state)
        jobs = list[Running]()
        for file in self.running or ():
            read = read_running(file)
            if isinstance(read, Placement):
                jobs.append(Running(placement=read))
            else:
                jobs += [Running(placement=own_placement(cluster, x.name, x.nodes), priority=x.priority) for x in read]
        owner: dict[str, str] = {}  # of a node: the one job that may have it
        for placed in (job.placement for job in jobs):
            for node in cluster.known(placed.nodes):
                other = owner.setdefault(node, placed.job)
                if other != placed.job:
                    raise InputError(f"node {node!r}: jobs {other!r} and {placed.job!r} both have it; correct one file")
        cluster.set_busy([*taken, *(node for job in jobs for node in job.placement.nodes)])
        return cluster, jobs


def _ended(
    answer: "BaseModel", lines: Iterable[str], certificate: "Certificate", *, as_json: bool, refused: bool = False
) -> None:
    """Print the answer of a cluster command, with its rules where it is no or a limit's, and exit with its status."""
    rules = [f"given: {certificate.given}"] if refused or certificate.status in ("infeasible", "unknown") else []
    print(answer.model_dump_json(indent=1) if as_json else "\n".join([*lines, *rules]))
    if certificate.status == "infeasible":
        raise Exit(ExitCode.INFEASIBLE)
    raise Exit(ExitCode.DONE if certificate.status == "optimal" else ExitCode.LIMIT)


def _moves(moves: "Iterable[Move]") -> Iterable[str]:
    return (f"move {move.job} rank {move.rank}: {move.old or '(new)'} to {move.new or '(gone)'}" for move in moves)


def defragment(files: ClusterInUse, leaves: Annotated[int, "Whole leaves to free."] = 1) -> None:
    """Free whole leaves by moving the fewest nodes of running jobs; print the moves in an order that works."""
    from planner.scheduling.cluster_changes import defragment as solve

    cluster, jobs = files.opened()
    found = solve(cluster, jobs, leaves=leaves, time_limit=files.time_limit)
    status, moves = found.certificate.status, len(found.moves)
    head = f"no moves {'were found that ' * (status == 'unknown')}free {counted(leaves, 'leaf')} more"
    if found.leaves:
        head = f"{counted(moves, 'move')} {'frees' if moves == 1 else 'free'} {', '.join(found.leaves)}"
    _ended(found, [f"{head}; {status}", *_moves(found.moves)], found.certificate, as_json=files.as_json)


def preempt(
    files: ClusterInUse,
    job: JobFile = None,
    nodes: Nodes = None,
    mesh: Mesh = None,
    max_split: Annotated[int | None, "Most all-reduce groups of the new job that may span leaves."] = None,
) -> None:
    """Print which running jobs to preempt so that a job fits, at the least sum of priority times nodes."""
    from planner.cluster.job import mesh_job, read_job
    from planner.scheduling.cluster_changes import preempt as solve

    _require_one_job(job, nodes, mesh)
    wanted = read_job(job) if job is not None else mesh_job("job", mesh, nodes)
    cluster, jobs = files.opened()
    found = solve(cluster, wanted, jobs, max_split=max_split, time_limit=files.time_limit)
    placed = ((job.placement, job.priority) for job in jobs)
    rank = {own.job: f"{counted(len(own.nodes), 'node')}, priority {priority:,}" for own, priority in placed}
    stop = f"Preempt {', '.join(f'{name} ({rank[name]})' for name in found.stop)}" if found.stop else "Preempt nothing"
    head = f"{stop}; {found.certificate.status}" if found.cost is not None else found.placement.reason
    where = [f"{wanted.name}: {fold_names(found.placement.nodes)}"] if found.placement.nodes else []
    _ended(found, [head, *where], found.certificate, as_json=files.as_json)


def resize(
    files: ClusterInUse,
    mesh: Annotated[str, "The running job's mesh in rank order, such as pipeline=4,data=12."],
    to: Annotated[str, "Its mesh afterwards: another size of data."],
    name: Annotated[str | None, "Which of the running jobs, where there are several."] = None,
) -> None:
    """Print the nodes by which a running job grows or shrinks its data parallelism; the ranks that stay do not move."""
    from planner.cluster.job import mesh_job
    from planner.scheduling.cluster_changes import own_placement
    from planner.scheduling.cluster_changes import resize as solve

    cluster, jobs = files.opened()
    names = [job.placement.job for job in jobs]
    if name is None and len(names) != 1:
        raise InputError(f"--name: must say which of {len(names)} running jobs ({', '.join(names[:5]) or 'none'})")
    if name is not None and name not in names:
        raise InputError(f"--name: {name!r} does not run; {hint(name, names)}")
    own = jobs[names.index(name or names[0])].placement
    before = mesh_job(own.job, mesh, len(own.nodes))
    after = mesh_job(own.job, to, None, option="--to").replaced(nodes_per_member=before.nodes_per_member)
    found = solve(
        cluster, before, own_placement(cluster, own.job, own.nodes, before), after, time_limit=files.time_limit
    )
    placement = found.placement
    nodes, split = counted(len(placement.nodes), "node"), counted(placement.groups_split, "split group")
    head = f"{placement.job}: {nodes}, {split}; {placement.certificate.status}"
    lines = [head, *_moves(found.moves), fold_names(placement.nodes)] if placement.nodes else [placement.reason]
    _ended(found, lines, placement.certificate, as_json=files.as_json)


def queue(
    files: ClusterInUse, job: Annotated[list[Path], "Job file, first in the queue first; may be repeated."]
) -> None:
    """Print nodes for queued jobs, placed together in order with the fewest split groups, and the jobs that wait."""
    from planner.cluster.job import read_job
    from planner.scheduling.cluster_changes import place_queue

    cluster, _ = files.opened()
    found = place_queue(cluster, [read_job(path) for path in job], time_limit=files.time_limit)
    count = len(found.placements)
    runs = f"{counted(count, 'job')} {'runs' if count == 1 else 'run'}, {counted(found.groups_split, 'split group')}"
    head = f"{runs}; {found.certificate.status}"
    lines = [f"{placement.job}: {fold_names(placement.nodes)}" for placement in found.placements]
    waits = [f"{name}: waits: {why}" for name, why in zip(found.waiting, found.reasons, strict=True)]
    _ended(found, [head, *lines, *waits], found.certificate, as_json=files.as_json, refused=bool(waits))
