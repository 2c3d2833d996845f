"""Changes of a running job: failed nodes replaced, groups grown and shrunk. Each result carries its proof."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path

from pydantic import ValidationError

from planner.cluster.hostlist import read_hosts
from planner.cluster.job import Job, Slot, blocks, levels, read_job, slots
from planner.cluster.placement import Figure, Mended, Move, Placement, Topology
from planner.errors import InputError
from planner.files import read_json
from planner.instance.read import complaints
from planner.models.cluster_changes.repair import IncompleteGroup, Repair, repair
from planner.models.placement.data import Leaf
from planner.models.placement.ranks import Ranked, in_rank_order
from planner.models.requests import Options
from planner.number_ranges import bounded
from planner.scheduling.placing import across_pods, is_plain, levels_above, only, own_groups, placed_groups, rules_of
from planner.scheduling.session import Cluster, opened, options_of
from planner.solvers.outcome import Outcome

Unit = tuple[str, ...]
# What a placement in JSON states for schedulers beside its own fields.
SCHEDULER_KEYS = frozenset(("hostlist", "sbatch", "srun", "mpirun", "torchrun", "hints"))
LEVELS = ("split groups", "extra pieces", "groups across pods")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A group of the new job, and the segments of the running one that it keeps, None where one is missing."""

    slot: Slot
    units: tuple[Unit | None, ...]


@bounded
def replace(
    cluster: Cluster,
    job: Job,
    running: Placement,
    failed: Iterable[str],
    *,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
) -> Mended:
    """Move the ranks of failed nodes alone to free nodes: fewest split groups, then pieces, then groups across pods.

    A segment with a failed node moves whole, as it must stay in one block. Nodes of the running job are its own,
    whether the cluster counts them busy or not.
    """
    gone = set(cluster.known(failed))
    served = list(_served(_same_size(job, running)))
    units = {slot.name: _units(job, [running.nodes[r] for r in slot.ranks]) for slot in served}
    kept = [_Kept(slot, tuple(None if gone.intersection(u) else u for u in units[slot.name])) for slot in served]
    return _mended(cluster, job, running, kept, gone, options_of(time_limit, seed, threads))


def replace_in_files(
    topology: Topology,
    job: Path,
    running: Path,
    failed: str,
    *,
    busy: str,
    state: Path | None,
    time_limit: float | None,
    seed: int,
    threads: int | None,
) -> Placement:
    """Replace failed nodes of a placement in a file; its nodes are its own, though the state file calls them busy."""
    data = read_json(running)
    if not isinstance(data, dict):
        kind = type(data).__name__
        raise InputError(f"{running}: must be a placement (is {kind}); make one with `planner place --format json`")
    try:
        placed = Placement.model_validate({k: v for k, v in data.items() if k not in SCHEDULER_KEYS})
    except ValidationError as error:
        raise InputError("\n".join(complaints(error, str(running), Placement, data))) from None
    twice = next((n for n, times in Counter(placed.nodes).items() if times > 1), None)
    if twice is not None:
        raise InputError(f"{running}: nodes: {twice!r} stands twice; give the placement as it runs")
    if placed.gpus_per_node is not None and placed.gpus_per_node < 1:
        raise InputError(f"{running}: gpus_per_node: must be at least 1 (is {placed.gpus_per_node}); correct it")
    cluster, taken = opened(topology, busy, state)
    cluster.set_busy(taken)
    return replace(
        cluster, read_job(job), placed, read_hosts(failed, "replace"), time_limit=time_limit, seed=seed, threads=threads
    ).placement


@bounded
def resize(
    cluster: Cluster, job: Job, running: Placement, new: Job, *, time_limit: float | None = None, seed: int = 0
) -> Mended:
    """Grow or shrink a running job to `new` without moving a rank that stays.

    A mesh may differ in its data axis, groups in size and count. A group that shrinks returns its smallest pieces, a
    kind that loses groups those that are most split. What grows is served as by `replace`.
    """
    fixed = [{a: n for a, n in (j.mesh or {}).items() if a != "data"} for j in (job, new)]
    if (job.mesh is None) != (new.mesh is None) or fixed[0] != fixed[1] or job.segment_nodes != new.segment_nodes:
        may = "only the data axis of a mesh, or sizes and counts of groups, may change"
        raise InputError(f"job {new.name!r}: {may} (mesh {job.mesh} to {new.mesh})")
    groups: dict[str, list[list[Unit]]] = {}
    for slot in _served(_same_size(job, running)):
        groups.setdefault(_family(job, slot), []).append(_units(job, [running.nodes[r] for r in slot.ranks]))
    for members in groups.values():
        members.sort(key=lambda units: len(_on(cluster, units)))
    kept = []
    for slot in _served(new):
        members = groups.get(_family(new, slot), [])
        size = len(slot.ranks) // new.segment_nodes
        units = members.pop(0) if members else []
        on = _on(cluster, units)
        # Those of the largest pieces stay.
        leaves = [cluster.leaf_of[u[0]] for u in units]
        order = sorted(range(len(units)), key=lambda x: (-on[leaves[x]], leaves[x], x))
        units = [units[x] for x in sorted(order[:size])]
        kept.append(_Kept(slot, (*units, *[None] * (size - len(units)))))
    return _mended(cluster, new, running, kept, set(), options_of(time_limit, seed))


def _level(job: Job) -> int:
    """Return the innermost level of a mesh that is more than a segment: what is kept together first."""
    found = levels(job)
    return next((i for i, x in enumerate(found) if x.size > job.segment_nodes), len(found) - 1)


def _by_data(job: Job) -> bool:
    return job.mesh is None or (is_plain(job) and levels(job)[-1].axis == "data")


def _served(job: Job) -> Iterable[Slot]:
    """Return what gets its missing segments: a job's groups, or of a mesh the blocks of its innermost level."""
    return slots(job) if _by_data(job) else blocks(job, _level(job))


def _same_size(job: Job, running: Placement) -> Job:
    if len(running.nodes) != job.nodes:
        sizes = f"job {job.name!r} needs {job.nodes:,} nodes, the running placement has {len(running.nodes):,}"
        raise InputError(f"{sizes}; give the placement of this job")
    return job


def _family(job: Job, slot: Slot) -> str:
    """Return what a group may replace: itself in a mesh, any of its kind otherwise."""
    return slot.name if job.mesh else job.groups[slot.kind].name


def _units(job: Job, nodes: Sequence[str]) -> list[Unit]:
    return [tuple(nodes[i : i + job.segment_nodes]) for i in range(0, len(nodes), job.segment_nodes)]


def _on(cluster: Cluster, units: Iterable[Unit | None]) -> Counter[int]:
    return Counter(cluster.leaf_of[u[0]] for u in units if u is not None)


def _mended(
    cluster: Cluster, job: Job, running: Placement, kept: Sequence[_Kept], gone: set[str], options: Options
) -> Mended:
    stay = {n for k in kept for u in k.units if u is not None for n in u}
    q, units = cluster.problem(job, busy=stay | gone, free=set(running.nodes) - stay - gone)
    homes = {cluster.leaves[cluster.leaf_of[n]].tree for n in stay}
    if not homes:  # nobody stays, so that any tree will do
        room = Counter[int]()
        for stood, left in zip(cluster.leaves, q.leaves, strict=True):
            room[stood.tree] += left.free
        homes = {max(room, key=lambda t: (room[t], -t))}
    if cluster.trees > 1:
        q = only(q, {i for i, leaf in enumerate(cluster.leaves) if leaf.tree in homes})
    groups = [IncompleteGroup(frozenset(_on(cluster, k.units)), sum(u is None for u in k.units)) for k in kept]
    outcome = repair(q.leaves, groups, options)
    if outcome.solution is None:
        size = job.segment_nodes
        missing, free = sum(g.missing for g in groups) * size, sum(leaf.free for leaf in q.leaves) * size
        reason = f"job {job.name!r}: {missing:,} nodes are missing > {free:,} free"
        return Mended(placement=_placement(cluster, job, q.leaves, [], outcome, options, reason=reason), moves=())
    ranked = _ranked(cluster, kept, outcome.solution, units)
    placed = _placement(cluster, job, q.leaves, ranked, outcome, options, running=stay)
    return Mended(placement=placed, moves=tuple(_moves(job.name, running.nodes, placed.nodes, same_ranks=bool(gone))))


def _ranked(cluster: Cluster, kept: Sequence[_Kept], solution: Repair, units: Sequence[Sequence[Unit]]) -> list[Ranked]:
    free = [iter(u) for u in units]
    ranked = []
    for g, k in enumerate(kept):
        own = _on(cluster, k.units)
        order = sorted((i for h, i in solution.taken if h == g), key=lambda i: (-own[i], i))
        fresh = [next(free[i]) for i in order for _ in range(solution.taken[g, i])]
        coming = iter(fresh)
        all_units = [u if u is not None else next(coming) for u in k.units]
        nodes = tuple(n for u in all_units for n in u)
        ranked.append(Ranked(k.slot.name, nodes, tuple(dict.fromkeys(cluster.leaf_of[n] for n in nodes)), k.slot.ranks))
    return ranked


def _moves(job: str, before: Sequence[str], after: Sequence[str], *, same_ranks: bool) -> Iterable[Move]:
    if same_ranks:
        yield from (
            Move(job=job, rank=r, old=a, new=b) for r, (a, b) in enumerate(zip(before, after, strict=True)) if a != b
        )
        return
    was, now = set(before), set(after)
    yield from (Move(job=job, rank=r, old=n, new=None) for r, n in enumerate(before) if n not in now)
    yield from (Move(job=job, rank=r, old=None, new=n) for r, n in enumerate(after) if n not in was)


def _placement(
    cluster: Cluster,
    job: Job,
    leaves: Sequence[Leaf],
    ranked: Sequence[Ranked],
    outcome: Outcome[Repair],
    options: Options,
    *,
    running: Collection[str] = (),
    reason: str = "",
) -> Placement:
    solution = outcome.solution
    values, bounds = (solution.values, solution.bounds) if solution else ((0, 0, 0), (0, 0, 0))
    what = "groups" if _by_data(job) else levels(job)[_level(job)].what
    names = LEVELS if what == "groups" else (f"split {what}", f"extra pieces of {what}", f"{what} across pods")
    pairs = list(zip(values, bounds, strict=True))
    at = next((i for i, (v, b) in enumerate(pairs) if v != b), 0)
    nodes = in_rank_order(ranked, job.nodes) if ranked else ()
    inside = levels(job)[: _level(job)] if job.mesh else ()
    figures = [
        *(Figure(name=f"split {x.what}", value=0, bound=0, analytic_bound=0) for x in inside),
        *(Figure(name=n, value=v, bound=b, analytic_bound=min(b, v)) for n, (v, b) in zip(names, pairs, strict=True)),
    ]
    if nodes and not _by_data(job):
        free = [
            leaf.free * job.segment_nodes + sum(n in running for n in x.nodes)
            for leaf, x in zip(leaves, cluster.leaves, strict=True)
        ]
        figures += levels_above(cluster, job, _level(job), nodes, free)
    groups = placed_groups(cluster, own_groups(cluster, job, ranked, nodes)) if nodes else ()
    split = next((f.bound for f in figures if f.name == LEVELS[0]), 0)
    goals = f"moved ranks (as many as are missing), then {', then '.join(names)}"
    stated = changed(
        outcome,
        objective=float(values[at]) if solution else None,
        bound=float(bounds[at]) if solution else None,
        solver="CP-SAT" if outcome.variables else "nearest free nodes with analytic bounds",
    )
    return Placement(
        job=job.name,
        nodes=nodes,
        groups=groups,
        groups_split=sum(len(g.leaves) > 1 for g in groups),
        lower_bound_split=split,
        extra_pieces=sum(len(g.leaves) - 1 for g in groups),
        groups_cross_pod=across_pods(cluster, groups) if leaves and leaves[0].path else 0,
        figures=tuple(figures) if solution else (),
        gpus_per_node=job.gpus_per_node,
        segment_nodes=job.segment_nodes,
        stopped=outcome.stop.value,
        reason=reason,
        certificate=stated.certificate(
            formulation="Units by group in need and leaf; leaves without such a group by class of pod and free units.",
            minimizes=f"{goals}; objective and bound are those of {names[at]!r}",
            seed=options.seed,
            given=f"every other rank stays on its node; {rules_of(job, cluster.trees)}",
        ),
    )
