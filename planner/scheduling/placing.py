"""A job in counts of a cluster's leaves, placed with its proof; also with ranks in the order of node names."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from planner.cluster import (
    MEMBER,
    Figure,
    Job,
    MeshLevel,
    PlacedGroup,
    Placement,
    Topology,
    blocks,
    groups_of,
    levels,
    line,
    natural,
    numbering,
    slots,
)
from planner.errors import InputError
from planner.models import Options
from planner.models.placement.placement_problem import Kind, Leaf, LeafNodes, PlacementProblem, leaves_of, names
from planner.models.placement.solve import (
    FORMULATION,
    Chosen,
    Order,
    Ranked,
    Solution,
    fewest_cuts,
    in_rank_order,
    rank,
)
from planner.physics.network.transport import lower_bound_split
from planner.plan.certificate import Certificate
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.signals import Deadline


class LeafMap:
    """A topology's leaves in their order, and the leaf of each node."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.leaves: tuple[LeafNodes, ...] = tuple(leaves_of(topology))
        self.leaf_of = {node: i for i, leaf in enumerate(self.leaves) for node in leaf.nodes}
        self.trees = len({leaf.tree for leaf in self.leaves})

    def blocks_of(self, units: Sequence[Sequence[tuple[str, ...]]], leaf: int) -> list[int]:
        """Return the number of the block of each free node of a leaf."""
        number = {node: number for number, block in enumerate(self.leaves[leaf].blocks) for node in block}
        return [number[unit[0]] for unit in units[leaf]]


Unit = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """A job's problem, and the nodes of each leaf's free units; of a mesh also the level whose blocks are placed."""

    q: PlacementProblem
    units: list[list[Unit]]
    level: int | None


def in_segments(job: Job, leaves: Sequence[LeafNodes], taken: Collection[str]) -> Counted:
    """Count a job's own groups, of a mesh its data groups, in its segments."""
    size = job.segment_nodes
    units = [list(segments(leaf, taken, size)) for leaf in leaves]
    weighed = zip(job.kinds, job.weights, strict=True)
    kinds = tuple(Kind(kind.size // size, kind.count, weight) for kind, weight in weighed)
    if job.mesh is None:
        groups = sum(kind.count for kind in kinds)
        return Counted(_problem(leaves, units, (size, size), kinds, groups, follows=False), units, None)
    last = len(levels(job)) - 1
    problem = _problem(leaves, units, (size, size), kinds, line(job, last), follows=bool(numbering(job, last)))
    return Counted(problem, units, last)


def in_blocks(job: Job, leaves: Sequence[LeafNodes], taken: Collection[str], at: int) -> Counted:
    """Count the blocks of a level of a mesh, in units of the blocks inside them."""
    found = levels(job)
    unit = found[at - 1].size if at else job.segment_nodes
    units = [list(_whole_units(leaf, taken, job.segment_nodes, unit)) for leaf in leaves]
    kinds = (Kind(found[at].size // unit, found[at].count),)
    follows = bool(numbering(job, at))
    return Counted(_problem(leaves, units, (job.segment_nodes, unit), kinds, line(job, at), follows=follows), units, at)


def level_to_place(job: Job, free: Sequence[int]) -> int:
    """Return the first mesh level whose blocks do not all fit whole on leaves by their `free` segments, or the last."""
    # Where all blocks of a level fit, so do those inside them: the levels before are whole without a choice.
    found = levels(job)

    def fits(level: MeshLevel) -> bool:
        return sum(count // (level.size // job.segment_nodes) for count in free) >= level.count

    return next((i for i, level in enumerate(found) if not fits(level)), len(found) - 1)


def is_plain(job: Job) -> bool:
    """Return whether its segments are all that its data groups, or its groups, are made of."""
    found = levels(job)
    inner = all(level.axis == "data" or level.size <= job.segment_nodes for level in found)
    return inner and "data" not in [level.axis for level in found[:-1]]


def only(problem: PlacementProblem, leaves: Collection[int]) -> PlacementProblem:
    """Return the problem on some of the leaves: the others have nothing free."""
    kept = tuple(leaf if i in leaves else Leaf(leaf.path, 0, leaf.size) for i, leaf in enumerate(problem.leaves))
    return replace(problem, leaves=kept)


def segments(leaf: LeafNodes, taken: Collection[str], size: int) -> Iterator[Unit]:
    """Cut a leaf's free nodes into segments that stay within a block."""
    if size == 1:
        yield from ((node,) for node in leaf.nodes if node not in taken)
        return
    for block in leaf.blocks:
        free = [node for node in block if node not in taken]
        yield from (tuple(free[i : i + size]) for i in range(0, len(free) - size + 1, size))


def _whole_units(leaf: LeafNodes, taken: Collection[str], segment: int, size: int) -> Iterator[Unit]:
    """Join a leaf's free segments to units, within a scale-up block as far as they go."""
    if size == segment:
        yield from segments(leaf, taken, segment)
        return
    each, left = size // segment, list[Unit]()
    for block in leaf.blocks:
        own = LeafNodes(leaf.name, block, (block,), leaf.path)
        free = list(segments(own, taken, segment))
        whole = len(free) // each * each
        yield from _joined(free[:whole], each)
        left += free[whole:]
    yield from _joined(left[: len(left) // each * each], each)


def _joined(parts: Sequence[Unit], each: int) -> Iterator[Unit]:
    for i in range(0, len(parts), each):
        yield tuple(node for part in parts[i : i + each] for node in part)


def _problem(
    leaves: Sequence[LeafNodes],
    units: Sequence[Sequence[Unit]],
    sizes: tuple[int, int],
    kinds: tuple[Kind, ...],
    along: int,
    *,
    follows: bool,
) -> PlacementProblem:
    """Return the problem of kinds in units; `sizes` are the nodes of a segment and of a unit."""
    segment, unit = sizes
    counted = []
    for leaf, free in zip(leaves, units, strict=True):
        whole = len(leaf.nodes) if segment == 1 else sum(len(block) // segment for block in leaf.blocks)
        counted.append(Leaf(leaf.path, len(free), whole // (unit // segment)))
    return PlacementProblem(leaves=tuple(counted), kinds=kinds, line=along, follows=follows)


def placement(
    cluster: LeafMap,
    job: Job,
    counted: Counted,
    outcome: Outcome[Solution],
    seed: int,
    free: Sequence[int] | None = None,
) -> Placement:
    """Return the placement of an outcome by its nodes' names, with figures and proof; `free`: free nodes by leaf."""
    problem, solution = counted.q, outcome.solution
    if solution is None:
        return does_not_fit(job, problem, seed, cluster.trees)
    single = cluster.topology.blocks and len(next((unit for units in counted.units for unit in units), ())) == 1
    in_blocks = partial(cluster.blocks_of, counted.units) if single else None
    order = slots(job) if counted.level is None else blocks(job, counted.level)
    ranked = rank(problem, solution.packing, order, counted.units, in_blocks)
    nodes = in_rank_order(ranked, job.nodes)
    groups = placed_groups(cluster, own_groups(cluster, job, ranked, nodes))
    searched = _figures(job, counted, solution)
    rest = [] if counted.level is None or free is None else levels_above(cluster, job, counted.level, nodes, free)
    # Given whole blocks, or weighted, the first level bounds no count of data groups; then the closed form does.
    own = {kind.weight for kind in problem.kinds} == {1} and [level.axis for level in levels(job)] in ([], ["data"])
    closed = split_at_least(job, free) if free is not None and counted.level is not None else solution.min_split
    chosen = searched[: len(searched) - len(solution.values) + solution.searched]
    return placed_on(
        cluster,
        job,
        nodes,
        groups,
        lower_bound_split=solution.bounds[0] if own else closed,
        figures=(*searched, *rest),
        stopped=outcome.stop.value,
        certificate=certificate_of(chosen, outcome, seed),
    )


def own_groups(cluster: LeafMap, job: Job, ranked: Sequence[Ranked], nodes: Sequence[str]) -> Iterable[Ranked]:
    """Return a job's groups as they are ranked, or the data groups of a mesh from its rank order."""
    return ranked if job.mesh is None else groups_in_ranks(cluster, job, nodes)


def groups_in_ranks(cluster: LeafMap, job: Job, nodes: Sequence[str]) -> list[Ranked]:
    """Return a job's groups, or the data groups of its mesh, from its nodes in rank order."""
    own = []
    for slot in slots(job):
        on = tuple(nodes[rank] for rank in slot.ranks)
        own.append(Ranked(slot.name, on, tuple(dict.fromkeys(cluster.leaf_of[node] for node in on)), slot.ranks))
    return own


def _figures(job: Job, counted: Counted, solution: Solution) -> list[Figure]:
    rows = list(zip(names(counted.q), solution.values, solution.bounds, solution.analytic, strict=True))
    if counted.level is None:
        return [Figure(name=name, value=value, bound=bound, analytic_bound=own) for name, value, bound, own in rows]
    found = levels(job)
    level, tiers = found[counted.level], counted.q.tiers
    names_inside = [f"split {inner.what}" for inner in found[: counted.level]]
    figures = [Figure(name=name, value=0, bound=0, analytic_bound=0) for name in names_inside]
    for i, (name, *proven) in enumerate(rows):
        each = level.groups if i < 2 + tiers else 1
        value, bound, analytic = (count * each for count in proven)
        own = _name(name, level, job, counted.level)
        figures.append(Figure(name=own, value=value, bound=bound, analytic_bound=analytic))
    return figures


def _name(name: str, level: MeshLevel, job: Job, at: int) -> str:
    if name.startswith("boundaries"):
        axis = next(reversed(numbering(job, at)), None)
        along = "in the best order" if axis is None else f"along the {axis}" + " axis" * (axis != "pipeline")
        return f"boundaries across pods {along}"
    if level.axis == "data" or name.startswith("leaves"):
        return name
    if name.startswith("groups across"):
        return level.what + name.removeprefix("groups")
    return f"split {level.what}" if name.startswith("split") else f"{name} of {level.what}"


def levels_above(cluster: LeafMap, job: Job, at: int, nodes: Sequence[str], free: Sequence[int]) -> list[Figure]:
    """Count the split groups of the axes above the level that was placed, each with its closed form by itself."""
    figures = []
    for level in levels(job)[at + 1 :]:
        own = groups_of(job, level.axis)
        value = sum(len({cluster.leaf_of[nodes[rank]] for rank in ranks}) > 1 for ranks in own)
        bound = lower_bound_split(free, len(own), len(own[0]))
        figures.append(Figure(name=f"split {level.what}", value=value, bound=bound, analytic_bound=bound))
    return figures


def split_at_least(job: Job, free: Sequence[int]) -> int:
    """Bound the split groups of a job of one kind by the free nodes of each leaf alone."""
    (kind,) = job.kinds
    return lower_bound_split(free, kind.count, kind.size)


def placed_groups(cluster: LeafMap, groups: Iterable[Ranked]) -> tuple[PlacedGroup, ...]:
    """Return groups with the names of the leaves of their nodes."""
    leaves = cluster.leaves
    return tuple(
        PlacedGroup(name=group.name, nodes=group.nodes, leaves=tuple(leaves[i].name for i in group.leaves))
        for group in groups
    )


def across_pods(cluster: LeafMap, groups: Iterable[PlacedGroup], tier: int = 0) -> int:
    """Count the groups under several pods, or under several switches of a higher tier."""
    paths = ({cluster.leaves[cluster.leaf_of[node]].path[tier] for node in group.nodes} for group in groups)
    return sum(len(on) > 1 for on in paths)


def certificate_of(
    figures: Sequence[Figure],
    outcome: Outcome[Any],
    seed: int,
    formulation: str = FORMULATION,
    goals: str = "{}",
    given: str = "",
) -> Certificate:
    """State the first of the searched figures that is not at its bound, or the first where all are."""
    stated = next((figure for figure in figures if figure.value != figure.bound), figures[0])
    if outcome.solution is not None:
        outcome = replace(outcome, objective=float(stated.value), bound=float(stated.bound))
    minimizes = goals.format(", then ".join(figure.name for figure in figures))
    minimizes += f"; objective and bound are those of {stated.name!r}"
    return outcome.certificate(formulation=formulation, minimizes=minimizes, seed=seed, given=given)


def counted_on(cluster: LeafMap, groups: tuple[PlacedGroup, ...]) -> dict[str, Any]:
    """Return groups on leaves and what they say, as fields of a placement."""
    return {
        "groups": groups,
        "groups_split": sum(len(group.leaves) > 1 for group in groups),
        "extra_pieces": sum(len(group.leaves) - 1 for group in groups),
        "groups_cross_pod": across_pods(cluster, groups) if cluster.leaves[0].path else 0,
    }


def placed_on(
    cluster: LeafMap, job: Job, nodes: tuple[str, ...], groups: tuple[PlacedGroup, ...], **own: Any
) -> Placement:
    """Return a job's placement with what its groups on leaves say."""
    asked = {"gpus_per_node": job.gpus_per_node, "segment_nodes": job.segment_nodes}
    return Placement(job=job.name, nodes=nodes, **asked, **counted_on(cluster, groups), **own)


def does_not_fit(job: Job, problem: PlacementProblem, seed: int, trees: int = 1, free: int | None = None) -> Placement:
    """Return no nodes and the reason in numbers; of several trees `q` is the freest, or `free` are its free units."""
    size, room = job.segment_nodes, problem.free if free is None else free
    where = "" if trees == 1 else f" in the freest of {trees:,} trees"
    what = "nodes" if size == 1 else f"nodes in whole segments of {size}"
    proof: Outcome[Solution] = Outcome(stop=Stop.PROVED, infeasible=True)
    reason = f"job {job.name!r} needs {problem.need * size:,} {what} > {room * size:,} free{where}"
    certificate = proof.certificate(
        formulation="Counts of free nodes.", minimizes="split groups", seed=seed, given=rules_of(job, trees)
    )
    return unplaced(job, reason, certificate)


def rules_of(job: Job, trees: int = 1) -> str:
    """Name the rules that any answer about a job and free nodes is given."""
    rules = ["nodes are taken whole, and busy ones stay busy"]
    if trees > 1:
        rules.append("a job stays in one tree")
    if job.segment_nodes > 1:
        rules.append(f"each {job.segment_nodes:,} consecutive nodes stay in one block of a leaf")
    return "; ".join(rules)


def unplaced(job: Job, reason: str, certificate: Certificate) -> Placement:
    """Return no nodes for a job, with the reason and the certificate."""
    return Placement(
        job=job.name,
        nodes=(),
        groups=(),
        groups_split=0,
        lower_bound_split=0,
        extra_pieces=0,
        groups_cross_pod=0,
        figures=(),
        gpus_per_node=job.gpus_per_node,
        segment_nodes=job.segment_nodes,
        reason=reason,
        certificate=certificate,
    )


SOLVER = "dynamic programming over leaves in the order of names"
BY_NAME_FORMULATION = (
    "Nodes to take of each leaf, leaves and ranks in the order of node names; exact by dynamic programming over "
    "leaves, with the ranks that have a node as state."
)
BY_NAME = "ranks in the order of node names"
REMEDY = "take any order, and start the ranks by a hostfile (srun -m arbitrary) or by the torchrun format"


def place_by_name(cluster: LeafMap, job: Job, taken: set[str], options: Options) -> Placement:
    """Choose the nodes whose order by name splits the fewest members, then groups, then makes the fewest pieces.

    InputError if ranks of a group do not follow each other, or leaves are mixed by name: no order by name is worth a
    choice.
    """
    order, deadline, seed = _order_of(job), Deadline(options.time_limit), options.seed
    runs = _runs(cluster, taken)
    chosen: dict[int, Chosen] = {}
    for tree in range(cluster.trees):
        found = fewest_cuts([len(own) * (cluster.leaves[i].tree == tree) for i, own in runs], order, deadline)
        if found is not None:
            chosen[tree] = found
    if not chosen:
        free = [0] * cluster.trees
        for i, own in runs:
            free[cluster.leaves[i].tree] += len(own)
        problem = in_segments(job, cluster.leaves, taken).q
        return does_not_fit(job, problem, seed, cluster.trees, max(free))
    proved = all(choice.proved for choice in chosen.values())
    best = replace(min(chosen.values(), key=lambda choice: choice.values), proved=proved)
    nodes = tuple(node for (_, own), count in zip(runs, best.taken, strict=True) for node in own[:count])
    groups, left = placed_groups(cluster, groups_in_ranks(cluster, job, nodes)), [len(own) for _, own in runs]
    what, sizes = _searched(job).what, set(order.groups)
    least = {"split members": lower_bound_split(left, job.nodes // order.member, order.member)}
    least[f"split {what}"] = lower_bound_split(left, len(order.groups), min(sizes)) * (len(sizes) == 1)
    figures, crossing = _figures_by_name(job, best, least), list[Figure]()
    for tier in range(len(cluster.leaves[0].path) if what == "groups" else 0):
        name = f"groups across switches of tier {tier + 2}" if tier else "groups across pods"
        value = across_pods(cluster, groups, tier)
        crossing.append(Figure(name=name, value=value, bound=0, analytic_bound=0))
    stop = Stop.PROVED if all(figure.value == figure.bound for figure in figures) else Stop.LIMIT
    outcome = Outcome(stop=stop, solution=best, solver=SOLVER, seconds=deadline.elapsed)
    return placed_on(
        cluster,
        job,
        nodes,
        groups,
        order="name",
        stopped=stop.value,
        lower_bound_split=least.get("split groups", 0) if _searched(job).axis == "data" else split_at_least(job, left),
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


def _runs(cluster: LeafMap, taken: set[str]) -> list[tuple[int, list[str]]]:
    runs: list[tuple[int, list[str]]] = []
    free = (node for leaf in cluster.leaves for node in leaf.nodes if node not in taken)
    for node in sorted(free, key=natural):
        i = cluster.leaf_of[node]
        if not runs or runs[-1][0] != i:
            runs.append((i, []))
        runs[-1][1].append(node)
    seen: set[int] = set()
    for i, nodes in runs:
        if i in seen:
            between = f"other leaves' nodes stand between its own by name, such as before {nodes[0]!r}"
            raise InputError(f"leaf {cluster.leaves[i].name!r}: {between}; {REMEDY}")
        seen.add(i)
    return runs


def _searched(job: Job) -> MeshLevel:
    found = levels(job)
    return found[-1] if found else MeshLevel("data", 1, 1, 1)


def _figures_by_name(job: Job, chosen: Chosen, least: Mapping[str, int]) -> list[Figure]:
    """State what the choice cuts: members of several nodes first; without a proof the closed forms bound them."""
    members, split, extra = chosen.values
    what = _searched(job).what
    suffix = "" if what == "groups" else f" of {what}"
    rows = [(f"split {what}", split), (f"extra pieces{suffix}", extra)]
    if job.mesh is not None and job.nodes_per_member > 1 and what != "members":
        rows.insert(0, ("split members", members))
    bounds = [value if chosen.proved else min(value, least.get(name, 0)) for name, value in rows]
    return [
        Figure(name=name, value=value, bound=bound, analytic_bound=min(bound, least.get(name, 0)))
        for (name, value), bound in zip(rows, bounds, strict=True)
    ]
