"""Jobs that run on a cluster, and its changes: placed together, preempted, moved, repaired and resized, with proof."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

from pydantic import Field

from planner.argument_ranges import bounded
from planner.cluster.hostlists import fold_names, read_hosts
from planner.cluster.job import Job, Slot, read_job
from planner.cluster.placement import Placement
from planner.errors import InputError
from planner.files import read_json
from planner.formats.cluster_files import placement_of
from planner.instance.base_types import Frozen
from planner.models import Options
from planner.models.placement import placement_changes as changes
from planner.models.placement import placement_problem as problems
from planner.models.placement.place_job import FORMULATION, bounded_packing, solve
from planner.models.placement.placement_problem import Kind, Packing, PlacementProblem, Unit, count_to_reach
from planner.plan.certificate import Certificate
from planner.scheduling import warm_cluster as session
from planner.scheduling.warm_cluster import Cluster, options_of
from planner.solvers.outcome import Outcome, Stop

Piece = tuple[int, int, tuple[int, ...]]  # (job, leaf, ranks): the nodes of a group on one leaf
Kept = tuple[Slot, list[Unit | None]]  # a group of the new job, and the segments that it keeps, None for a missing one


class Move(Frozen):
    """One move of a cluster's change: a job's rank with its node before and after; null where there is none."""

    job: str
    rank: int = Field(description="Node rank in the placement after the move, or before it where the rank is gone.")
    old: str | None
    new: str | None


class Mended(Frozen):
    """A running job after the cluster's change, a repair or a resize, and the moves that lead there."""

    placement: Placement
    moves: tuple[Move, ...] = Field(description="Ranks whose node changed, renumbered ones left out.")


class Running(Frozen):
    """A running job that a change of the cluster may stop or move, and what stopping it costs."""

    placement: Placement
    priority: int = Field(1, ge=0, description="Cost of stopping one node of it.")


class Preemption(Frozen):
    """A change of the cluster by preemption: running jobs to stop so that another fits, and where it then runs."""

    stop: tuple[str, ...]
    cost: int | None = Field(description="Sum of priority times nodes; null where not even stopping all is enough.")
    placement: Placement
    certificate: Certificate


class Defragmentation(Frozen):
    """A change of the cluster by defragmentation: moves that free whole leaves, in an order that works."""

    leaves: tuple[str, ...]
    moves: tuple[Move, ...]
    certificate: Certificate


class Queued(Frozen):
    """The change of a cluster by its queue: queued jobs placed together, and those that must wait."""

    placements: tuple[Placement, ...]
    waiting: tuple[str, ...]
    reasons: tuple[str, ...] = Field((), description="Why each of them waits, in numbers.")
    groups_split: int
    certificate: Certificate = Field(description="Of all jobs together, as if they were one.")


@bounded
def place_queue(cluster: Cluster, jobs: Sequence[Job], *, time_limit: float | None = None, seed: int = 0) -> Queued:
    """Place the first jobs of a cluster's queue that fit, together as if they were one: all split the fewest groups."""
    # A job that does not fit together with those admitted before it waits; smaller ones behind it may still run.
    options = options_of(time_limit, seed)
    _require_changeable(cluster, "queue", jobs)
    if len(sizes := sorted({job.segment_nodes for job in jobs})) > 1:
        raise InputError(f"queue: segment_nodes must be the same for all jobs (are {sizes}); place them in turn")
    if not jobs:
        raise InputError("queue: has no job; give one or more")
    counted = [problems.in_units(job, cluster.leaves, cluster.taken()) for job in jobs]
    own, units, leaves = [each.q for each in counted], counted[0].units, counted[0].q.leaves
    admitted, reasons, left, size = list[int](), list[str](), own[0].free, jobs[0].segment_nodes
    for i, part in enumerate(own):
        if part.need <= left:
            admitted.append(i)
            left -= part.need
        else:
            what = f"{part.need * size:,} nodes" + (f" in whole segments of {size}" if size > 1 else "")
            reasons.append(f"needs {what} > {left * size:,} free after the jobs before it")
    waits = {"waiting": tuple(job.name for i, job in enumerate(jobs) if i not in admitted), "reasons": tuple(reasons)}
    given = f"jobs are admitted in the order of the queue by their nodes alone; {session.rules_of(jobs[0])}"
    # By bytes in millionths of any job's most, 1 without.
    given_bytes = {i: [jobs[i].traffic_bytes_per_step.get(kind.name, 0.0) for kind in jobs[i].kinds] for i in admitted}
    most = max((size for of in given_bytes.values() for size in of), default=0.0)
    without = [i for i, of in given_bytes.items() if not any(of)]
    if most and without:
        stated = next(jobs[i].name for i in admitted if i not in without)
        both = f"job {stated!r} states traffic_bytes_per_step of its groups and job {jobs[without[0]].name!r} does not"
        raise InputError(f"queue: {both}; give them for all jobs or for none")
    kinds = tuple(
        Kind(kind.size, kind.count, round(1e6 * size / most) if most else 1)
        for i, of in given_bytes.items()
        for kind, size in zip(own[i].kinds, of, strict=True)
    )
    together = PlacementProblem(leaves=leaves, kinds=kinds, line=sum(kind.count for kind in kinds), follows=False)
    solution = solve(together, options, fragmentation=False) if admitted else None
    if solution is None:
        certificate = session.does_not_fit(cluster, jobs[0], own[0], seed).certificate.replaced(given=given)
        return Queued(placements=(), **waits, groups_split=0, certificate=certificate)
    effort = {name: getattr(solution, name) for name in ("deadline", "variables", "constraints", "solver")}
    placements, first = [], 0
    for i in admitted:
        mine = range(first, first + len(own[i].kinds))
        whole = Counter({(leaf, k - first): count for (leaf, k), count in solution.packing.whole.items() if k in mine})
        split = [(k - first, pieces) for k, pieces in solution.packing.split if k in mine]
        # The proof is of all jobs together, so the job's own is PROVED only where its figures reach these bounds.
        alone = changed(bounded_packing(own[i], Packing(whole=whole, split=split)), **effort)
        own_units = problems.Counted(own[i], units, counted[i].level)
        placements.append(session.placement(cluster, jobs[i], own_units, alone, seed))
        units = [free[count:] for free, count in zip(units, problems.used(own[i], alone.packing), strict=True)]
        first = mine.stop
    what = "split groups of all jobs"
    if {kind.weight for kind in kinds} != {1}:
        what = f"weight of {what}, in millionths of the most bytes"
    certificate = solution.outcome().certificate(formulation=FORMULATION, minimizes=what, seed=seed, given=given)
    in_all = len(solution.packing.split)
    return Queued(placements=tuple(placements), **waits, groups_split=in_all, certificate=certificate)


def _require_changeable(cluster: Cluster, what: str, jobs: Sequence[Job] = ()) -> None:
    """Refuse to change a cluster of several trees, or jobs whose mesh keeps more together than segments."""
    # Which job is in which tree is not decided here, and only placing a job by itself searches its inner groups.
    if cluster.trees > 1:
        raise InputError(f"{what}: the cluster has {cluster.trees:,} trees, which no job leaves; give one of them")
    for job in (job for job in jobs if not _is_plain(job)):
        inner = ", ".join(own.what for own in job.levels if own.axis != "data" and own.size > job.segment_nodes)
        remedy = "place it by itself, or set segment_nodes to the nodes of a member"
        raise InputError(f"{what}: job {job.name!r} has {inner} in addition to its data groups; {remedy}")


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
    """Choose the running jobs to preempt, the fewest with the minimum sum of priority times nodes, so that a job fits.

    `max_split`: split groups that the job may have then; the fewest that stopping all would allow, unless given.
    """
    options = options_of(time_limit, seed)
    _require_changeable(cluster, "preempt", [job])
    everything = [node for run in running for node in run.placement.nodes]
    problem, _ = cluster.problem(job, free=everything)
    costs = tuple(run.priority * len(run.placement.nodes) for run in running)
    if max_split is None:
        best = solve(problem, options, fragmentation=False)
        max_split = 0 if best is None else len(best.packing.split)
    busy, segment, blocks_of = cluster.busy, job.segment_nodes, list[changes.LeafBlock]()
    owner = {node: index for index, run in enumerate(running) for node in run.placement.nodes}
    for i, leaf in enumerate(cluster.leaves):
        for block in leaf.blocks if segment > 1 else (leaf.nodes,):  # without segments a leaf is one
            free = sum(node not in busy and node not in owner for node in block)
            blocks_of.append(changes.LeafBlock(i, free, dict(Counter(owner[node] for node in block if node in owner))))
    outcome = changes.minimize_stop_cost(blocks_of, problem.kinds, segment, costs, max_split, options)
    chosen, rules = outcome.solution, session.rules_of(job)
    certificate = outcome.certificate(
        formulation="One decision by running job, whole groups by leaf and kind, whole segments by block.",
        minimizes="priority times nodes of the jobs that are stopped",
        seed=seed,
        given=f"at most {max_split} groups split; running jobs are stopped whole, and none is moved; {rules}",
    )
    if chosen is None:
        placed = session.does_not_fit(cluster, job, problem, seed)
        reason = f"{placed.reason} with every running job stopped"
        if problem.need <= problem.free:
            none = "no choice of jobs to stop leaves room for"
            none = none if outcome.infeasible else "no choice was found before the limit for"
            needs = f"job {job.name!r} needs {job.nodes:,} nodes and at most {max_split} split groups"
            reason = f"{needs}, which {none}"
        placed = placed.replaced(reason=reason, certificate=certificate)
        return Preemption(stop=(), cost=None, placement=placed, certificate=certificate)
    gone = [node for index in chosen for node in running[index].placement.nodes]
    placed = cluster.place(job, free=gone, busy=set(everything).difference(gone), time_limit=time_limit, seed=seed)
    stop, cost = tuple(running[index].placement.job for index in chosen), sum(costs[index] for index in chosen)
    return Preemption(stop=stop, cost=cost, placement=placed, certificate=certificate)


@bounded
def defragment(
    cluster: Cluster, running: Sequence[Running], *, leaves: int = 1, time_limit: float | None = None, seed: int = 0
) -> Defragmentation:
    """Move the fewest running nodes that free `leaves` more whole leaves of a cluster, dividing no group's piece."""
    # Pieces move whole, in the order of the moves, each into nodes that are free by then: now, or since a move before.
    # Nodes that are busy without a running job, and pieces of jobs that need segments, stay where they are.
    _require_changeable(cluster, "defragment")
    pieces = list[Piece]()
    for index, job in enumerate(running):
        rank_of = {node: rank for rank, node in enumerate(job.placement.nodes)}
        for group in job.placement.groups:
            on_leaf: dict[int, list[int]] = {}
            for node in cluster.known(group.nodes):
                on_leaf.setdefault(cluster.leaf_of[node], []).append(rank_of[node])
            if job.placement.segment_nodes == 1:
                pieces += [(index, i, tuple(ranks)) for i, ranks in on_leaf.items()]
    movable = {running[index].placement.nodes[rank] for index, _, ranks in pieces for rank in ranks}
    busy = cluster.busy.union(*(run.placement.nodes for run in running))
    own = [tuple(len(ranks) for _, at, ranks in pieces if at == i) for i in range(len(cluster.leaves))]
    fixed = [sum(node in busy and node not in movable for node in leaf.nodes) for leaf in cluster.leaves]
    each = zip(cluster.leaves, fixed, own, strict=True)
    loads = tuple(changes.LeafLoad(len(leaf.nodes), taken, sizes) for leaf, taken, sizes in each)
    outcome = changes.minimize_moves(loads, leaves, options_of(time_limit, seed))
    steps = None
    if outcome.solution is not None:
        targets = _targets(cluster, pieces, outcome.solution)
        steps = changes.in_order(loads, [(i, len(ranks)) for _, i, ranks in pieces], targets)
        moved = None if steps is None else sum(len(pieces[piece][2]) for piece, _ in steps)
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
    still_used = {i for i, _ in outcome.solution}
    emptied = (i for i, load in enumerate(loads) if load.pieces and not load.fixed and i not in still_used)
    freed = tuple(cluster.leaves[i].name for i in emptied)
    moves, taken_by = list[Move](), set(busy)
    on = [[running[index].placement.nodes[rank] for rank in ranks] for index, _, ranks in pieces]
    for piece, to in steps:  # a piece takes the first free nodes of its leaf
        index, _, ranks = pieces[piece]
        fresh = [node for node in cluster.leaves[to].nodes if node not in taken_by][: len(ranks)]
        for rank, old, new in zip(ranks, on[piece], fresh, strict=True):
            moves.append(Move(job=running[index].placement.job, rank=rank, old=old, new=new))
        taken_by.difference_update(on[piece])
        taken_by.update(fresh)
        on[piece] = fresh
    return Defragmentation(leaves=freed, moves=tuple(moves), certificate=certificate)


def _targets(cluster: Cluster, pieces: Sequence[Piece], at_end: Mapping[tuple[int, int], int]) -> dict[int, int]:
    """Return the leaf of each piece that defragmenting moves: those that may stay do, others go to their pod first."""
    room = Counter(dict(at_end))
    leaving, targets = list[int](), dict[int, int]()
    for piece, (_, i, ranks) in enumerate(pieces):
        if room[i, len(ranks)]:
            room[i, len(ranks)] -= 1
        else:
            leaving.append(piece)
    for piece in leaving:
        _, i, ranks = pieces[piece]
        path = cluster.leaves[i].path[:1]
        open_to = [target for (target, size), count in sorted(room.items()) if count and size == len(ranks)]
        targets[piece] = min(open_to, key=lambda target: (cluster.leaves[target].path[:1] != path, target))
        room[targets[piece], len(ranks)] -= 1
    return targets


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
    """Move a job's ranks off a cluster's failed nodes: fewest split groups, then pieces, then groups across pods."""
    # A segment with a failed node moves whole, as it must stay in one block. Nodes of the running job are its own,
    # whether the cluster counts them busy or not.
    gone = set(cluster.known(failed))
    units_of = _running_units(job, running)
    kept = [(slot, [None if gone.intersection(unit) else unit for unit in units]) for slot, units in units_of]
    return _mended(cluster, job, running, kept, gone, options_of(time_limit, seed, threads))


def replace_in_files(
    cluster: Cluster, job: Job | Path, running: Path, failed: str, *, busy: Sequence[str], **options: Any
) -> Placement:
    """Replace a cluster's failed nodes under the job of a placement's file, whose nodes are its own though busy."""
    placed, hosts = placement_of(read_json(running), running), read_hosts(failed, "--replace")
    cluster.set_busy(busy)
    if not set(hosts) & set(placed.nodes):
        where = f"no rank of the running job is on {failed}"
        raise InputError(f"--replace: {where}; give nodes of {fold_names(placed.nodes)}")
    return replace(cluster, read_job(job), placed, hosts, **options).placement


@bounded
def resize(
    cluster: Cluster, job: Job, running: Placement, new: Job, *, time_limit: float | None = None, seed: int = 0
) -> Mended:
    """Grow or shrink a job that runs on a cluster to the job `new` without moving a rank that stays.

    A mesh may differ in its data axis, groups in size and count. A group that shrinks returns its smallest pieces and
    stays in one pod where as many pieces can, a kind that loses groups returns those that are most split. What grows is
    served as by `replace`.
    """
    fixed = [{axis: size for axis, size in (j.mesh or {}).items() if axis != "data"} for j in (job, new)]
    if (job.mesh is None) != (new.mesh is None) or fixed[0] != fixed[1] or job.segment_nodes != new.segment_nodes:
        may = "only the data axis of a mesh, or sizes and counts of groups, may change"
        raise InputError(f"job {new.name!r}: {may} (mesh {job.mesh} to {new.mesh})")
    groups: dict[str, list[list[Unit]]] = {}  # a group may replace itself in a mesh, else any of its kind
    for slot, units in _running_units(job, running):
        groups.setdefault(slot.name if job.mesh else job.groups[slot.kind].name, []).append(units)
    for members in groups.values():
        members.sort(key=lambda units: len(_on(cluster, units)))
    kept = list[Kept]()
    for slot in new.slots(_level(new)):
        members = groups.get(slot.name if new.mesh else new.groups[slot.kind].name, [])
        size = len(slot.ranks) // new.segment_nodes
        units = members.pop(0) if members else []
        on, leaves = _on(cluster, units), [cluster.leaf_of[unit[0]] for unit in units]
        # The fewest leaves that keep as many, those of one pod where as few do.
        every = sorted(on, key=lambda leaf: (-on[leaf], leaf))
        fewest, pod_of = count_to_reach([on[leaf] for leaf in every], size), {i: cluster.leaves[i].path[:1] for i in on}
        pods = [[i for i in every if pod_of[i] == pod][:fewest] for pod in dict.fromkeys(map(pod_of.get, every))]
        staying = next((own for own in pods if sum(on[i] for i in own) >= size), every[:fewest])
        order = sorted((staying.index(leaf), place) for place, leaf in enumerate(leaves) if leaf in staying)
        units = [units[place] for place in sorted(place for _, place in order[:size])]
        kept.append((slot, [*units, *[None] * (size - len(units))]))
    return _mended(cluster, new, running, kept, set(), options_of(time_limit, seed))


def _is_plain(job: Job) -> bool:
    """Return whether a job's data groups, or its groups, are made of segments alone."""
    found = job.levels
    inner = all(level.axis == "data" or level.size <= job.segment_nodes for level in found)
    return inner and "data" not in [level.axis for level in found[:-1]]


def _level(job: Job) -> int | None:
    """Return the innermost mesh level of a job larger than a segment, which repairs keep together; None: its groups."""
    found = job.levels
    if job.mesh is None or (_is_plain(job) and found[-1].axis == "data"):
        return None
    return next((i for i, level in enumerate(found) if level.size > job.segment_nodes), len(found) - 1)


def _running_units(job: Job, running: Placement) -> Iterable[tuple[Slot, list[Unit]]]:
    """Yield the units that a repair completes in a running job, with nodes by segment. InputError: of another size."""
    if len(running.nodes) != job.nodes:
        sizes = f"job {job.name!r} needs {job.nodes:,} nodes, the running placement has {len(running.nodes):,}"
        raise InputError(f"{sizes}; give the placement of this job")
    for slot in job.slots(_level(job)):
        nodes, size = [running.nodes[rank] for rank in slot.ranks], job.segment_nodes
        yield slot, [tuple(nodes[i : i + size]) for i in range(0, len(nodes), size)]


def _on(cluster: Cluster, units: Iterable[Unit | None]) -> Counter[int]:
    return Counter(cluster.leaf_of[unit[0]] for unit in units if unit is not None)


def _mended(
    cluster: Cluster, job: Job, running: Placement, kept: Sequence[Kept], gone: set[str], options: Options
) -> Mended:
    """Repair a running job: give each group its missing segments, in the tree of all that stay; name the moves."""
    stay = {node for _, units in kept for unit in units if unit is not None for node in unit}
    problem, free_of = cluster.problem(job, busy=stay | gone, free=set(running.nodes) - stay - gone)
    level, found = _level(job), job.levels
    if cluster.trees > 1:
        homes = {cluster.leaves[cluster.leaf_of[node]].tree for node in stay}
        trees = [problems.only(cluster.leaves, problem, {tree}) for tree in range(cluster.trees)]
        # Where nobody stays, any tree will do.
        problem = problems.only(cluster.leaves, problem, homes) if homes else max(trees, key=lambda tree: tree.free)
    groups = [changes.IncompleteGroup(frozenset(_on(cluster, units)), units.count(None)) for _, units in kept]
    solution, reason, by_rank = changes.repair(problem.leaves, groups, options), "", dict[int, str]()
    outcome: Outcome[Any] = Outcome(stop=Stop.PROVED, infeasible=True) if solution is None else solution.outcome()
    if solution is None:
        missing, free = (units * job.segment_nodes for units in (sum(own.missing for own in groups), problem.free))
        reason = f"job {job.name!r}: {missing:,} nodes are missing > {free:,} free"
    else:
        free_units = [iter(units) for units in free_of]
        for g, (slot, units) in enumerate(kept):
            on = _on(cluster, units)
            order = sorted((i for h, i in solution.packing if h == g), key=lambda i: (-on[i], i))
            coming = iter([next(free_units[i]) for i in order for _ in range(solution.packing[g, i])])
            whole = [unit if unit is not None else next(coming) for unit in units]
            by_rank.update(zip(slot.ranks, (node for unit in whole for node in unit), strict=True))
    nodes = tuple(by_rank[rank] for rank in range(len(by_rank)))
    steps: list[tuple[int, str | None, str | None]] = []
    if gone and nodes:
        pairs = enumerate(zip(running.nodes, nodes, strict=True))
        steps += [(rank, old, new) for rank, (old, new) in pairs if old != new]
    elif nodes:
        was, now = set(running.nodes), set(nodes)
        steps += [(rank, node, None) for rank, node in enumerate(running.nodes) if node not in now]
        steps += [(rank, None, node) for rank, node in enumerate(nodes) if node not in was]
    none = (0,) * changes.LEVELS
    values, bounds = (solution.values, solution.bounds) if solution is not None else (none, none)
    named = problems.group_levels("groups" if level is None else found[level].what, 1)
    rows = zip(named, values, bounds, map(min, bounds, values), strict=True)
    # A mesh that is completed group by group is so at its last level, with members of one segment inside.
    at = len(found) - 1 if found and level is None else level
    own = [sum(node in stay for node in leaf.nodes) for leaf in cluster.leaves]
    room = [leaf.free * job.segment_nodes + count for leaf, count in zip(problem.leaves, own, strict=True)]
    figures = session.figures_of(cluster, job, at, rows, changes.LEVELS, nodes, room)
    placed = session.placed_on(
        cluster,
        job,
        nodes,
        lower_bound_split=next((figure.bound for figure in figures if figure.name == "split groups"), 0),
        figures=tuple(figures) if solution is not None else (),
        stopped=outcome.stop.value,
        reason=reason,
        certificate=session.certificate_of(
            figures[at or 0 :][: changes.LEVELS],
            changed(outcome, solver="CP-SAT" if outcome.variables else "nearest free nodes with analytic bounds"),
            options.seed,
            "Units by group in need and leaf; leaves without such a group by class of pod and free units.",
            "moved ranks (as many as are missing), then {}",
            f"every other rank stays on its node; {session.rules_of(job, cluster.trees)}",
        ),
    )
    moves = tuple(Move(job=job.name, rank=rank, old=old, new=new) for rank, old, new in steps)
    return Mended(placement=placed, moves=moves)


def own_placement(cluster: Cluster, name: str, nodes: Sequence[str], job: Job | None = None) -> Placement:
    """Return a cluster's placement that the planner did not make, to change: nodes in rank order, by a job's mesh."""
    # Nothing is claimed of it: split groups and extra pieces are those of its nodes, and no bound is certified.
    order = tuple(cluster.known(nodes))
    counts = session.counted_on(cluster, job or Job(name="one group", mesh={"data": len(order)}), order)
    as_it_runs = Outcome(stop=Stop.LIMIT, solution=order, objective=float(counts["groups_split"]), solver="none")
    what = {"formulation": "a placement as it runs, not searched", "minimizes": "split groups", "seed": 0}
    own = {"lower_bound_split": 0, "figures": (), "stopped": "limit", "certificate": as_it_runs.certificate(**what)}
    return Placement(job=name, nodes=order, **counts, **own)
