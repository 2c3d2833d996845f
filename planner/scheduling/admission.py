"""Admission to a cluster: jobs placed together, jobs to stop for another, and moves that free whole leaves."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace as changed
from typing import TYPE_CHECKING

from planner.cluster.job import Job, levels
from planner.cluster.placement import Defragmentation, Move, Preemption, Queued, Running
from planner.errors import InputError
from planner.models.placement.bounds import bounds, min_split_groups
from planner.models.placement.data import Kind, Packing, Problem, measure, used
from planner.models.placement.solve import FORMULATION, Solution, solve
from planner.number_ranges import bounded
from planner.scheduling.placing import Counted, does_not_fit, is_plain, placement, rules_of, unplaced
from planner.scheduling.session import Cluster, options_of
from planner.solvers.outcome import Outcome, Stop

if TYPE_CHECKING:
    from planner.models.cluster_changes.preemption import LeafBlock


@bounded
def place_queue(cluster: Cluster, jobs: Sequence[Job], *, time_limit: float | None = None, seed: int = 0) -> Queued:
    """Place the first jobs of a queue that fit, together as if they were one: all of them split the fewest groups.

    A job that does not fit beside those admitted before it waits; smaller ones behind it may still run.
    """
    options = options_of(time_limit, seed)
    _require_one_tree(cluster, "queue")
    if len({j.segment_nodes for j in jobs}) > 1:
        sizes = sorted({j.segment_nodes for j in jobs})
        raise InputError(f"queue: segment_nodes must be the same for all jobs (are {sizes}); place them in turn")
    if not jobs:
        raise InputError("queue: has no job; give one or more")
    for job in jobs:
        _require_plain(job, "queue")
    q, units = cluster.problem(jobs[0])
    own = [cluster.problem(j)[0] for j in jobs]
    admitted, reasons, left, size = list[int](), list[str](), q.free, jobs[0].segment_nodes
    for i, o in enumerate(own):
        if o.need <= left:
            admitted.append(i)
            left -= o.need
        else:
            what = f"{o.need * size:,} nodes" + (f" in whole segments of {size}" if size > 1 else "")
            reasons.append(f"needs {what} > {left * size:,} free after the jobs before it")
    waiting = tuple(j.name for i, j in enumerate(jobs) if i not in admitted)
    waits = {"waiting": waiting, "reasons": tuple(reasons)}
    given = f"jobs are admitted in the order of the queue by their nodes alone; {rules_of(jobs[0])}"
    if not admitted:
        certificate = does_not_fit(jobs[0], own[0], seed).certificate.model_copy(update={"given": given})
        return Queued(placements=(), **waits, groups_split=0, certificate=certificate)
    weights = _weights([jobs[i] for i in admitted])
    kinds = tuple(
        Kind(k.size, k.count, w)
        for i, of in zip(admitted, weights, strict=True)
        for k, w in zip(own[i].kinds, of, strict=True)
    )
    together = Problem(leaves=q.leaves, kinds=kinds, line=sum(k.count for k in kinds), follows=False)
    outcome = solve(together, options, fragmentation=False)
    solution = outcome.solution
    if solution is None:
        raise InputError(f"queue: {outcome.detail}; free some nodes")
    placements, first = [], 0
    for i in admitted:
        packing = _part(solution.packing, first, len(own[i].kinds))
        level = None if jobs[i].mesh is None else len(levels(jobs[i])) - 1
        counted = Counted(own[i], units, level)
        placements.append(placement(cluster, jobs[i], counted, _stated(own[i], packing, outcome), seed))
        units = [u[n:] for u, n in zip(units, used(own[i], packing), strict=True)]
        first += len(own[i].kinds)
    what = "split groups of all jobs"
    if {k.weight for k in kinds} != {1}:
        what = f"weight of {what}, in millionths of the most bytes"
    certificate = outcome.certificate(formulation=FORMULATION, minimizes=what, seed=seed, given=given)
    split = len(solution.packing.split)
    return Queued(placements=tuple(placements), **waits, groups_split=split, certificate=certificate)


def _weights(jobs: Sequence[Job]) -> list[tuple[int, ...]]:
    """Weigh the kinds of several jobs on one scale: bytes in millionths of the most of any job, 1 where none has any.

    InputError if some jobs state bytes and others none: nothing says what a split group of these is worth beside the
    others.
    """
    given = [[job.traffic_bytes_per_step.get(k.name, 0.0) for k in job.kinds] for job in jobs]
    without = [job.name for job, of in zip(jobs, given, strict=True) if not any(of)]
    most = max(max(of) for of in given)
    if not most:
        return [(1,) * len(of) for of in given]
    if without:
        stated = next(job.name for job, of in zip(jobs, given, strict=True) if any(of))
        both = f"job {stated!r} states traffic_bytes_per_step of its groups and job {without[0]!r} does not"
        raise InputError(f"queue: {both}; give them for all jobs or for none")
    return [tuple(round(1e6 * b / most) for b in of) for of in given]


def _require_one_tree(cluster: Cluster, what: str) -> None:
    """Refuse a cluster of several trees: which job is in which of them is not decided here."""
    if cluster.trees > 1:
        raise InputError(f"{what}: the cluster has {cluster.trees:,} trees, which no job leaves; give one of them")


def _require_plain(job: Job, what: str) -> None:
    """Refuse a mesh that keeps more together than its segments: only placing by itself searches its inner groups."""
    if not is_plain(job):
        inner = ", ".join(x.what for x in levels(job) if x.axis != "data" and x.size > job.segment_nodes)
        remedy = "place it by itself, or set segment_nodes to the nodes of a member"
        raise InputError(f"{what}: job {job.name!r} has {inner} beside its data groups; {remedy}")


def _part(packing: Packing, first: int, kinds: int) -> Packing:
    own = range(first, first + kinds)
    whole = Counter({(i, k - first): n for (i, k), n in packing.whole.items() if k in own})
    return Packing(whole=whole, split=[(k - first, pieces) for k, pieces in packing.split if k in own])


def _stated(q: Problem, packing: Packing, outcome: Outcome[Solution]) -> Outcome[Solution]:
    """State one job's figures beside what it would have alone: the proof is of all jobs together."""
    values, analytic = measure(q, packing).values, bounds(q).values
    searched = len(values) - 1 - (not q.follows)
    solution = Solution(
        packing=packing,
        values=values,
        bounds=analytic,
        analytic=analytic,
        min_split=min_split_groups([leaf.free for leaf in q.leaves], q.kinds),
        searched=searched,
    )
    proved = values[:searched] == analytic[:searched]
    return changed(outcome, solution=solution, stop=Stop.PROVED if proved else Stop.LIMIT)


@bounded
def preempt(
    cluster: Cluster,
    job: Job,
    running: Sequence[Running],
    *,
    max_split: int | None = None,
    time_limit: float | None = None,
    seed: int = 0,
) -> Preemption:
    """Choose the running jobs to stop, with the minimum sum of priority times nodes, so that a job fits.

    `max_split`: split groups that the job may have then; the fewest that stopping all would allow, unless given.
    """
    from planner.models.cluster_changes.preemption import PreemptionProblem, minimize_stop_cost

    options = options_of(time_limit, seed)
    _require_one_tree(cluster, "preempt")
    _require_plain(job, "preempt")
    everything = [n for r in running for n in r.placement.nodes]
    q, _ = cluster.problem(job, free=everything)
    costs = tuple(r.priority * len(r.placement.nodes) for r in running)
    if max_split is None:
        best = solve(q, options, fragmentation=False).solution
        max_split = 0 if best is None else len(best.packing.split)
    blocks = tuple(_blocks(cluster, job, running))
    outcome = minimize_stop_cost(
        PreemptionProblem(blocks=blocks, kinds=q.kinds, segment=job.segment_nodes, costs=costs, max_split=max_split),
        options,
    )
    chosen = outcome.solution
    certificate = outcome.certificate(
        formulation="One decision by running job, whole groups by leaf and kind, whole segments by block.",
        minimizes="priority times nodes of the jobs that are stopped",
        seed=seed,
        given=f"at most {max_split} groups split; running jobs are stopped whole, and none is moved; {rules_of(job)}",
    )
    if chosen is None:
        if q.need > q.free:
            reason = f"{does_not_fit(job, q, seed).reason} with every running job stopped"
        else:
            none = "no choice of jobs to stop leaves room for"
            none = none if outcome.infeasible else "no choice was found before the limit for"
            needs = f"job {job.name!r} needs {job.nodes:,} nodes and at most {max_split} split groups"
            reason = f"{needs}, which {none}"
        placed = unplaced(job, reason, certificate)
        return Preemption(stop=(), cost=None, placement=placed, certificate=certificate)
    gone = [n for r in chosen for n in running[r].placement.nodes]
    placed = cluster.place(job, free=gone, busy=set(everything).difference(gone), time_limit=time_limit, seed=seed)
    return Preemption(
        stop=tuple(running[r].placement.job for r in chosen),
        cost=sum(costs[r] for r in chosen),
        placement=placed,
        certificate=certificate,
    )


def _blocks(cluster: Cluster, job: Job, running: Sequence[Running]) -> Iterable["LeafBlock"]:
    """Return the free nodes of each block of each leaf, and of each running job; without segments a leaf is one."""
    from planner.models.cluster_changes.preemption import LeafBlock

    owner = {n: r for r, job_on in enumerate(running) for n in job_on.placement.nodes}
    busy = cluster.busy
    for i, leaf in enumerate(cluster.leaves):
        for block in leaf.blocks if job.segment_nodes > 1 else (leaf.nodes,):
            owned = Counter(owner[n] for n in block if n in owner)
            yield LeafBlock(i, sum(n not in busy and n not in owner for n in block), dict(owned))


@bounded
def defragment(
    cluster: Cluster, running: Sequence[Running], *, leaves: int = 1, time_limit: float | None = None, seed: int = 0
) -> Defragmentation:
    """Minimize the moves of running nodes that free so many whole leaves more, without dividing any group's piece.

    Pieces move whole, in the order of the moves, each into nodes that are free by then: now, or since a move before.
    Nodes that are busy without a running job, and pieces of jobs that need segments, stay where they are.
    """
    from planner.models.cluster_changes.defragmentation import LeafLoad, in_order, minimize_moves

    _require_one_tree(cluster, "defragment")
    pieces = [p for p in _pieces(cluster, running) if running[p[0]].placement.segment_nodes == 1]
    movable = {running[r].placement.nodes[x] for r, _, ranks in pieces for x in ranks}
    busy = cluster.busy.union(*(r.placement.nodes for r in running))
    loads = tuple(
        LeafLoad(
            len(leaf.nodes),
            sum(n in busy and n not in movable for n in leaf.nodes),
            tuple(len(ranks) for _, at, ranks in pieces if at == i),
        )
        for i, leaf in enumerate(cluster.leaves)
    )
    outcome = minimize_moves(loads, leaves, options_of(time_limit, seed))
    steps = None
    if outcome.solution is not None:
        targets = _targets(cluster, pieces, outcome.solution.at_end)
        steps = in_order(loads, [(i, len(ranks)) for _, i, ranks in pieces], targets)
    moved = None if steps is None else sum(len(pieces[p][2]) for p, _ in steps)
    if outcome.solution is not None:
        proved = outcome.stop is Stop.PROVED and moved is not None and moved <= (outcome.bound or 0.0)
        outcome = changed(
            outcome,
            stop=Stop.PROVED if proved else Stop.LIMIT if outcome.stop is Stop.PROVED else outcome.stop,
            solution=None if steps is None else outcome.solution,
            objective=None if moved is None else float(moved),
        )
    certificate = outcome.certificate(
        formulation="Pieces by size on each leaf at the end; then an order of moves, each into nodes that are free.",
        minimizes=f"nodes moved so that {leaves} leaves become free",
        seed=seed,
        given="pieces, the nodes of a group on one leaf, move whole and are not divided; nodes that no running job has "
        "and jobs in segments stay where they are",
    )
    if outcome.solution is None or steps is None:
        return Defragmentation(leaves=(), moves=(), certificate=certificate)
    return Defragmentation(
        leaves=tuple(cluster.leaves[i].name for i in outcome.solution.leaves),
        moves=tuple(_named_moves(cluster, running, pieces, steps, busy)),
        certificate=certificate,
    )


def _targets(
    cluster: Cluster, pieces: Sequence[tuple[int, int, tuple[int, ...]]], at_end: Mapping[tuple[int, int], int]
) -> dict[int, int]:
    """Return the leaf of each piece that moves: those that may stay do, the others go to their pod first."""
    room = Counter(dict(at_end))
    leaving = []
    for p, (_, i, ranks) in enumerate(pieces):
        if room[i, len(ranks)]:
            room[i, len(ranks)] -= 1
        else:
            leaving.append(p)
    targets = {}
    for p in leaving:
        _, i, ranks = pieces[p]
        path = cluster.leaves[i].path[:1]
        open_to = [m for (m, size), n in sorted(room.items()) if n and size == len(ranks)]
        targets[p] = min(open_to, key=lambda m: (cluster.leaves[m].path[:1] != path, m))
        room[targets[p], len(ranks)] -= 1
    return targets


def _named_moves(
    cluster: Cluster,
    running: Sequence[Running],
    pieces: Sequence[tuple[int, int, tuple[int, ...]]],
    steps: Iterable[tuple[int, int]],
    busy: Collection[str],
) -> Iterable[Move]:
    """Name the nodes of each move, in order: a piece takes the first free nodes of its leaf, and returns its own."""
    taken = set(busy)
    on = {p: [running[r].placement.nodes[x] for x in ranks] for p, (r, _, ranks) in enumerate(pieces)}
    for p, to in steps:
        r, _, ranks = pieces[p]
        fresh = [n for n in cluster.leaves[to].nodes if n not in taken][: len(ranks)]
        for x, old, new in zip(ranks, on[p], fresh, strict=True):
            yield Move(job=running[r].placement.job, rank=x, old=old, new=new)
        taken.difference_update(on[p])
        taken.update(fresh)
        on[p] = fresh


def _pieces(cluster: Cluster, running: Sequence[Running]) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return the pieces of all groups of running jobs as (job, leaf, ranks)."""
    pieces = []
    for r, job in enumerate(running):
        at = {n: x for x, n in enumerate(job.placement.nodes)}
        for group in job.placement.groups:
            on: dict[int, list[int]] = {}
            for n in cluster.known(group.nodes):
                on.setdefault(cluster.leaf_of[n], []).append(at[n])
            pieces += [(r, i, tuple(ranks)) for i, ranks in on.items()]
    return pieces
