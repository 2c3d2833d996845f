"""Place a job in counts of a cluster's leaves, with its proof; also with ranks in the order of node names."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from planner.cluster import (
    MEMBER,
    Figure,
    Job,
    PlacedGroup,
    Placement,
    Slot,
    Topology,
    blocks,
    levels,
    line,
    mesh_groups,
    natural,
    numbering,
    slots,
)
from planner.errors import InputError
from planner.models import Options
from planner.models.placement import placement_problem as problems
from planner.models.placement.place_job import FORMULATION, Chosen, Order, fewest_cuts, rank
from planner.models.placement.placement_problem import Kind, Leaf, LeafNodes, Packing, PlacementProblem, Solution
from planner.physics.network.transport import lower_bound_split
from planner.plan.certificate import Certificate
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.signals import Deadline


class LeafMap:
    """The leaves of a cluster's topology in their order, and the leaf of each node."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.leaves: tuple[LeafNodes, ...] = tuple(problems.leaves_of(topology))
        self.leaf_of = {node: i for i, leaf in enumerate(self.leaves) for node in leaf.nodes}
        self.trees = len({leaf.tree for leaf in self.leaves})


Unit = tuple[str, ...]
Placed = Solution[Packing]


@dataclass(frozen=True, slots=True)
class Counted:
    """A job's placement problem in counts, the nodes of each leaf's free units, and of a mesh the level to place."""

    q: PlacementProblem
    units: list[list[Unit]]
    level: int | None


def in_units(job: Job, leaves: Sequence[LeafNodes], taken: Collection[str], at: int | None = None) -> Counted:
    """Count a job to place in segments: its groups, of a mesh its data groups; `at`: a level's blocks in inner ones."""
    segment, found = job.segment_nodes, levels(job)
    if at is None:
        unit, level = segment, None if job.mesh is None else len(found) - 1
        weighed = zip(job.kinds, job.weights, strict=True)
        kinds = tuple(Kind(kind.size // unit, kind.count, weight) for kind, weight in weighed)
    else:
        unit, level = found[at - 1].size if at else segment, at
        kinds = (Kind(found[at].size // unit, found[at].count),)
    counted, units = list[Leaf](), list[list[Unit]]()
    for leaf in leaves:
        whole = len(leaf.nodes) if segment == 1 else sum(len(block) // segment for block in leaf.blocks)
        # A segment is in one block, and so is a unit of several where it can be.
        cut, left = list[Unit](), list[str]()
        for block in leaf.blocks if unit > 1 else (leaf.nodes,):
            free = [node for node in block if node not in taken]
            within = len(free) // unit * unit
            cut += [tuple(free[i : i + unit]) for i in range(0, within, unit)]
            left += free[within : len(free) // segment * segment]
        units.append(cut + [tuple(left[i : i + unit]) for i in range(0, len(left) // unit * unit, unit)])
        counted.append(Leaf(leaf.path, len(units[-1]), whole // (unit // segment)))
    along = sum(kind.count for kind in kinds) if level is None else line(job, level)
    follows = level is not None and bool(numbering(job, level))
    return Counted(PlacementProblem(leaves=tuple(counted), kinds=kinds, line=along, follows=follows), units, level)


def level_to_place(job: Job, free: Sequence[int]) -> int:
    """Return a job's first mesh level whose blocks do not all fit on leaves by their `free` segments, or the last."""
    # Where all blocks of a level fit, so do those inside them: the levels before are whole without a choice.
    for i, level in enumerate(levels(job)):
        if sum(count // (level.size // job.segment_nodes) for count in free) < level.count:
            return i
    return len(levels(job)) - 1


def only(problem: PlacementProblem, leaves: Collection[int]) -> PlacementProblem:
    """Return a placement problem on some of the leaves: the others have nothing free."""
    kept = tuple(leaf if i in leaves else Leaf(leaf.path, 0, leaf.size) for i, leaf in enumerate(problem.leaves))
    return replace(problem, leaves=kept)


def placement(
    cluster: LeafMap,
    job: Job,
    counted: Counted,
    outcome: Outcome[Placed],
    seed: int,
    free: Sequence[int] = (),
) -> Placement:
    """Return the placement of a solved job by node names, with figures and proof; `free`: free nodes by leaf."""
    problem, solution, level = counted.q, outcome.solution, counted.level
    if solution is None:
        return does_not_fit(cluster, job, problem, seed)

    def block_numbers(leaf: int) -> list[int]:
        number = {node: i for i, block in enumerate(cluster.leaves[leaf].blocks) for node in block}
        return [number[unit[0]] for unit in counted.units[leaf]]

    single = cluster.topology.blocks and len(next((unit for units in counted.units for unit in units), ())) == 1
    order = slots(job) if level is None else blocks(job, level)
    nodes = rank(problem, solution.packing, order, counted.units, block_numbers if single else None)
    what = "groups" if level is None else levels(job)[level].what
    named = problems.names(problem, what)
    if level is not None and (axes := numbering(job, level)):
        named = problems.names(problem, what, f"along the {axes[-1]}" + " axis" * (axes[-1] != "pipeline"))
    rows = zip(named, solution.values, solution.bounds, solution.analytic, strict=True)
    searched = figures_of(job, level, rows, 2 + problem.tiers)
    rest = levels_above(cluster, job, level, nodes, free) if free and level is not None else []
    # Given whole blocks, or weighted, the first level bounds no count of data groups; then the closed form does.
    own = {kind.weight for kind in problem.kinds} == {1} and [level.axis for level in levels(job)] in ([], ["data"])
    data = job.kinds[0]
    closed = lower_bound_split(free, data.count, data.size) if free and level is not None else solution.min_split
    chosen = searched[: len(searched) - len(solution.values) + solution.searched]
    return placed_on(
        cluster,
        job,
        nodes,
        lower_bound_split=solution.bounds[0] if own else closed,
        figures=(*searched, *rest),
        stopped=outcome.stop.value,
        certificate=certificate_of(chosen, outcome, seed),
    )


def figures_of(job: Job, at: int | None, rows: Iterable[tuple[str, int, int, int]], groups: int) -> list[Figure]:
    """Return a placement's figures from names, values and two bounds; of a mesh the levels inside `at` are whole.

    The first `groups` rows count blocks of the level placed, which hold some groups each.
    """
    found, figures = levels(job), list[Figure]()
    for inner in found[: at or 0]:
        figures.append(Figure(name=f"split {inner.what}", value=0, bound=0, analytic_bound=0))
    for i, (name, *proven) in enumerate(rows):
        each = found[at].groups if at is not None and i < groups else 1
        value, bound, analytic = (count * each for count in proven)
        figures.append(Figure(name=name, value=value, bound=bound, analytic_bound=analytic))
    return figures


def levels_above(cluster: LeafMap, job: Job, at: int, nodes: Sequence[str], free: Sequence[int]) -> list[Figure]:
    """Count a placement's split groups on axes above the level placed, each with its closed-form bound."""
    figures = []
    for level in levels(job)[at + 1 :]:
        others = [axis for axis in job.mesh or {} if axis != level.axis]
        own = [ranks for _, ranks in mesh_groups(job, [level.axis], others)]
        value = splits_on(cluster, own, nodes)[0]
        bound = lower_bound_split(free, len(own), len(own[0]))
        figures.append(Figure(name=f"split {level.what}", value=value, bound=bound, analytic_bound=bound))
    return figures


def splits_on(cluster: LeafMap, groups: Iterable[Iterable[int]], nodes: Sequence[str]) -> tuple[int, ...]:
    """Count a placement's groups of ranks on several leaves, their extra pieces, and those across each tier."""
    on = [{cluster.leaf_of[nodes[rank]] for rank in ranks} for ranks in groups]
    return problems.count_splits(on, [leaf.path for leaf in cluster.leaves])


def certificate_of(
    figures: Sequence[Figure],
    outcome: Outcome[Any],
    seed: int,
    formulation: str = FORMULATION,
    goals: str = "{}",
    given: str = "",
) -> Certificate:
    """Certify a placement by the first of its searched figures that is not at its bound, or the first of all."""
    stated = next((figure for figure in figures if figure.value != figure.bound), figures[0])
    if outcome.solution is not None:
        outcome = replace(outcome, objective=float(stated.value), bound=float(stated.bound))
    minimizes = goals.format(", then ".join(figure.name for figure in figures))
    minimizes += f"; objective and bound are those of {stated.name!r}"
    return outcome.certificate(formulation=formulation, minimizes=minimizes, seed=seed, given=given)


def counted_on(cluster: LeafMap, groups: Sequence[Slot], nodes: Sequence[str]) -> dict[str, Any]:
    """Return a placement's groups of nodes in rank order, and how leaves split them, as fields of a placement."""
    placed = []
    for group in groups:
        own = tuple(nodes[rank] for rank in group.ranks)
        leaves = tuple(cluster.leaves[i].name for i in dict.fromkeys(cluster.leaf_of[node] for node in own))
        placed.append(PlacedGroup(name=group.name, nodes=own, leaves=leaves))
    split, extra, across, *_ = (*splits_on(cluster, (group.ranks for group in groups), nodes), 0)
    return {"groups": tuple(placed), "groups_split": split, "extra_pieces": extra, "groups_cross_pod": across}


def placed_on(cluster: LeafMap, job: Job, nodes: tuple[str, ...], **own: Any) -> Placement:
    """Return a job's placement, or one without nodes, with how leaves split its groups."""
    asked = {"gpus_per_node": job.gpus_per_node, "segment_nodes": job.segment_nodes}
    groups = list(slots(job)) if nodes else []
    return Placement(job=job.name, nodes=nodes, **asked, **counted_on(cluster, groups, nodes), **own)


def does_not_fit(
    cluster: LeafMap, job: Job, problem: PlacementProblem, seed: int, free: int | None = None
) -> Placement:
    """Return a placement without nodes and why the job does not fit, by the freest of several trees or `free` units."""
    size, room, trees = job.segment_nodes, problem.free if free is None else free, cluster.trees
    where = "" if trees == 1 else f" in the freest of {trees:,} trees"
    what = "nodes" if size == 1 else f"nodes in whole segments of {size}"
    proof: Outcome[Placed] = Outcome(stop=Stop.PROVED, infeasible=True)
    reason = f"job {job.name!r} needs {problem.need * size:,} {what} > {room * size:,} free{where}"
    certificate = proof.certificate(
        formulation="Counts of free nodes.", minimizes="split groups", seed=seed, given=rules_of(job, trees)
    )
    return placed_on(cluster, job, (), lower_bound_split=0, figures=(), reason=reason, certificate=certificate)


def rules_of(job: Job, trees: int = 1) -> str:
    """Name the rules that any placement of a job on free nodes is given."""
    rules = ["nodes are taken whole, and busy ones stay busy"]
    if trees > 1:
        rules.append("a job stays in one tree")
    if job.segment_nodes > 1:
        rules.append(f"each {job.segment_nodes:,} consecutive nodes stay in one block of a leaf")
    return "; ".join(rules)


SOLVER = "dynamic programming over leaves in the order of names"
BY_NAME_FORMULATION = (
    "Nodes to take of each leaf, leaves and ranks in the order of node names; exact by dynamic programming over "
    "leaves, with the ranks that have a node as state."
)
BY_NAME = "ranks in the order of node names"
REMEDY = "take any order, and start the ranks by a hostfile (srun -m arbitrary) or by the torchrun format"


def place_by_name(cluster: LeafMap, job: Job, taken: set[str], options: Options) -> Placement:
    """Place a job by node name: choose the nodes that split the fewest members, then groups, then make fewest pieces.

    InputError: ranks of a group do not follow each other, or leaves are mixed by name, so that no order is worth it.
    """
    order, deadline, seed = _order_of(job), Deadline(options.time_limit), options.seed
    runs, chosen, room = dict[int, list[str]](), list[Chosen](), [0]  # of each leaf its free nodes by name
    by_name = sorted((node for leaf in cluster.leaves for node in leaf.nodes if node not in taken), key=natural)
    for i, run in groupby(by_name, key=cluster.leaf_of.__getitem__):
        nodes = list(run)
        if i in runs:
            between = f"other leaves' nodes stand between its own by name, such as before {nodes[0]!r}"
            raise InputError(f"leaf {cluster.leaves[i].name!r}: {between}; {REMEDY}")
        runs[i] = nodes
    for tree in range(cluster.trees):
        free = [len(own) * (cluster.leaves[i].tree == tree) for i, own in runs.items()]
        found = fewest_cuts(free, order, deadline)
        room.append(sum(free))
        chosen += [] if found is None else [found]
    if not chosen:
        return does_not_fit(cluster, job, in_units(job, cluster.leaves, taken).q, seed, max(room))
    proved, best = all(choice.proved for choice in chosen), min(chosen, key=lambda choice: choice.values)
    placed = tuple(node for own, count in zip(runs.values(), best.taken, strict=True) for node in own[:count])
    left, parts = [len(own) for own in runs.values()], levels(job)[-1].what if levels(job) else "groups"
    # Members of several nodes first; where nothing is proven, the closed forms bound what is cut.
    least = {"split members": lower_bound_split(left, job.nodes // order.member, order.member)}
    kinds = [Kind(size, count) for size, count in Counter(order.groups).items()]
    least[f"split {parts}"] = problems.min_split_weight(left, kinds)
    members, split, extra = best.values
    _, _, *across = splits_on(cluster, (slot.ranks for slot in slots(job)), placed)
    names = problems.group_levels(parts, len(across))
    rows = [(names[0], split), (names[1], extra)]
    if job.mesh is not None and job.nodes_per_member > 1 and parts != "members":
        rows.insert(0, ("split members", members))
    figures, crossing = list[Figure](), list[Figure]()
    for name, value in rows:
        bound = value if proved else min(value, least.get(name, 0))
        analytic = min(bound, least.get(name, 0))
        figures.append(Figure(name=name, value=value, bound=bound, analytic_bound=analytic))
    for name, value in zip(names[2:], across, strict=True) if parts == "groups" else ():
        crossing.append(Figure(name=name, value=value, bound=0, analytic_bound=0))
    one = job.kinds[0]  # of a mesh the data groups alone
    stop = Stop.PROVED if all(figure.value == figure.bound for figure in figures) else Stop.LIMIT
    outcome = Outcome(stop=stop, solution=best, solver=SOLVER, seconds=deadline.elapsed)
    return placed_on(
        cluster,
        job,
        placed,
        order="name",
        stopped=stop.value,
        lower_bound_split=least["split groups"] if parts == "groups" else lower_bound_split(left, one.count, one.size),
        figures=(*figures, *crossing),
        certificate=certificate_of(figures, outcome, seed, BY_NAME_FORMULATION, "{}, with " + BY_NAME, BY_NAME),
    )


def _order_of(job: Job) -> Order:
    if job.segment_nodes > 1:
        raise InputError(f"job {job.name!r}: segment_nodes and the order of names do not go together; {REMEDY}")
    if job.mesh is None:
        return Order(groups=tuple(kind.size for kind in job.groups for _ in range(kind.count)))
    found = levels(job)
    axes = [level.axis for level in found if level.axis != MEMBER]
    if len(axes) > 1:
        raise InputError(f"job {job.name!r}: {' and '.join(axes)} exchange, by name one axis can; {REMEDY}")
    last = len(found) - 1
    ranks = sorted(slot.ranks for slot in blocks(job, last))
    if [rank for own in ranks for rank in own] != list(range(job.nodes)):
        raise InputError(f"job {job.name!r}: ranks along {axes[0]} do not follow each other; {REMEDY}")
    return Order(groups=(found[last].size,) * found[last].count, member=job.nodes_per_member)
