"""The problem of placing a job on a cluster, in counts; the progress of its search; bounds of every level.

A unit is one segment of a job: `segment_nodes` nodes of one block, or of one leaf where there are no blocks. Leaves,
pods and kinds are numbers here.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Generic, Self, TypeVar

from planner.cluster.job import Job
from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.physics.network.locality import lower_bound_split
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.search_deadline import Deadline

Piece = tuple[int, int]  # (leaf, units)
WholeGroups = Counter[tuple[int, int]]  # by (leaf, kind)
ANALYTIC = "best fit with analytic bounds"
Incumbent = TypeVar("Incumbent")
Group = TypeVar("Group")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the placement problem: free and total units, and the switches above it, its pod first."""

    path: tuple[int, ...]
    free: int
    size: int

    @property
    def pod(self) -> int:
        """Return the pod of a placement problem's leaf: the number of the switch next above it, or the root's."""
        return self.path[0] if self.path else 0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of all-reduce groups of the placement problem: size in units, count, and weight of a split one."""

    size: int
    count: int
    weight: int = 1


@dataclass(frozen=True, kw_only=True)
class PlacementProblem:
    """A placement problem: groups to place on leaves; `line` of them follow each other on an axis to keep in a pod."""

    leaves: tuple[Leaf, ...]
    kinds: tuple[Kind, ...]
    line: int
    follows: bool = True

    @cached_property
    def groups(self) -> int:
        """Count the groups of all kinds of the placement problem."""
        return sum(kind.count for kind in self.kinds)

    @cached_property
    def need(self) -> int:
        """Count the units that all groups of the placement problem need."""
        return sum(kind.size * kind.count for kind in self.kinds)

    @cached_property
    def free(self) -> int:
        """Count the free units of all leaves of the placement problem."""
        return sum(leaf.free for leaf in self.leaves)

    @cached_property
    def pods(self) -> dict[int, list[int]]:
        """Return the leaves of a placement problem by pod; one pod where no switch is between leaves and root."""
        pods: dict[int, list[int]] = {}
        for i, leaf in enumerate(self.leaves):
            pods.setdefault(leaf.pod, []).append(i)
        return pods

    @property
    def tiers(self) -> int:
        """Count the tiers of switches between the leaves and the root of the placement problem."""
        return len(self.leaves[0].path) if self.leaves else 0

    @cached_property
    def min_split(self) -> int:
        """Bound from below the number of groups of the placement problem that fit no leaf whole."""
        return min_split_weight([leaf.free for leaf in self.leaves], [replace(kind, weight=1) for kind in self.kinds])


@dataclass(slots=True)
class Packing:
    """A packing of a placement problem: whole groups by (leaf, kind), and split groups with pieces in ring order."""

    whole: WholeGroups = field(default_factory=Counter)
    split: list[tuple[int, tuple[Piece, ...]]] = field(default_factory=list)


def group_levels(what: str, tiers: int) -> list[str]:
    """Name the placement problem's counts of split groups, extra pieces, and groups across pods and switches above."""
    extra = "extra pieces" if what == "groups" else f"extra pieces of {what}"
    above = ["pods", *(f"switches of tier {tier}" for tier in range(3, tiers + 2))]
    return [f"split {what}", extra, *(f"{what} across {switches}" for switches in above[:tiers])]


def names(problem: PlacementProblem, what: str = "groups", along: str = "in the best order") -> tuple[str, ...]:
    """Name the objective levels of the placement problem in their order, each minimal given those before it."""
    first, *others = group_levels(what, problem.tiers)
    if {kind.weight for kind in problem.kinds} != {1}:
        first = "weight of split groups, in millionths of the heaviest kind's bytes"
    return (first, *others, f"boundaries across pods {along}", "leaves left part-free")


def measure(problem: PlacementProblem, packing: Packing) -> tuple[int, ...]:
    """Compute the value of each objective level of the placement problem for a packing, in the order of `names`."""
    weight = sum(problem.kinds[k].weight for k, _ in packing.split)
    on = [{i for i, _ in pieces} for _, pieces in packing.split]
    _, extra, *crossing = count_splits(on, [leaf.path for leaf in problem.leaves])
    within: Counter[int] = Counter()  # groups by the pod that they are within
    for (i, _), count in packing.whole.items():
        within[problem.leaves[i].pod] += count
    pods = [{problem.leaves[i].pod for i in leaves} for leaves in on]
    within.update(min(own) for own in pods if len(own) == 1)
    across = sum(len(own) > 1 for own in pods)
    return (weight, extra, *crossing, boundaries(problem, +within, across), part_free(problem, used(problem, packing)))


def count_splits(on: Sequence[Collection[int]], paths: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Count a placement problem's groups on several leaves, extra pieces, and groups across switches by tier."""
    tiers = range(len(paths[0]) if paths else 0)
    crossing = (sum(len({paths[i][tier] for i in own}) > 1 for own in on) for tier in tiers)
    return (sum(len(own) > 1 for own in on), sum(len(own) - 1 for own in on), *crossing)


def used(problem: PlacementProblem, packing: Packing) -> list[int]:
    """Count the units that a packing of the placement problem takes of each leaf."""
    units = [0] * len(problem.leaves)
    for (i, k), count in packing.whole.items():
        units[i] += count * problem.kinds[k].size
    for _, pieces in packing.split:
        for i, amount in pieces:
            units[i] += amount
    return units


def part_free(problem: PlacementProblem, taken: Sequence[int]) -> int:
    """Count the leaves of the placement problem that taken units leave neither full nor wholly free."""
    return sum(0 < leaf.free - units < leaf.size for leaf, units in zip(problem.leaves, taken, strict=True))


def boundaries(problem: PlacementProblem, within: Counter[int], across: int) -> int:
    """Count the boundaries in a placement problem's packing: neighbours along its lines that are not in one pod."""
    pods = in_lines({pod: [pod] * count for pod, count in within.items()}, problem.line)
    order = [*pods, *[None] * across]  # the pod of each group by number
    # A line starts at each multiple of its length; two groups across pods (None) are never in one pod.
    return sum(i % problem.line > 0 and (own is None or own != order[i - 1]) for i, own in enumerate(order))


def in_lines(by_pod: Mapping[int, list[Group]], line: int) -> list[Group]:
    """Order a placement problem's groups by pod: whole lines first, then the rest, so that few have groups of two."""
    whole = [(groups, len(groups) // line * line) for _, groups in sorted(by_pod.items())]
    first = [group for groups, count in whole for group in groups[:count]]
    return first + [group for groups, count in whole for group in groups[count:]]


@dataclass(frozen=True, slots=True)
class LeafNodes:
    """A leaf of a cluster as the placement problem has it: its nodes by scale-up domain, and the switches above it."""

    name: str
    nodes: tuple[str, ...]
    blocks: tuple[tuple[str, ...], ...]
    path: tuple[int, ...]
    tree: int = 0  # the root above it: no job leaves its tree


def leaves_of(topology: Topology) -> list[LeafNodes]:
    """Return the placement problem's leaves of a topology; without switches each block is one. InputError: no tree."""
    if topology.kind == "block" or not topology.switches:
        base, *larger = topology.block_sizes or (0,)
        tiers = [size // base for size in larger if size // base < len(topology.blocks)]
        # The numbers of each tier start where no other tier has any.
        paths = [tuple(t * 1_000_000 + i // size for t, size in enumerate(tiers)) for i in range(len(topology.blocks))]
        each = zip(topology.blocks, paths, strict=True)
        leaves = [LeafNodes(block.name, block.nodes, (block.nodes,), path) for block, path in each]
    else:
        leaves = []
        block = {node: block.name for block in topology.blocks for node in block.nodes}
        chains = topology.chains()
        roots = {leaf: chain[-1] for leaf, chain in chains.items()}
        above = {leaf: chain[1:] for leaf, chain in chains.items()}
        if len({chain[-1] if chain else None for chain in above.values()}) == 1:
            above = {leaf: chain[:-1] for leaf, chain in above.items()}  # without the root that all share
        depth, trees = max(map(len, above.values()), default=0), list(dict.fromkeys(roots.values()))
        numbers: dict[str, int] = {}  # of the switches in paths
        for i, switch in enumerate(switch for switch in topology.switches if switch.nodes):
            own = above[switch.name] or (f"leaf {i}",)
            full = (own + own[-1:] * depth)[:depth]  # shorter chains repeat their last switch
            path = tuple(numbers.setdefault(name, len(numbers)) for name in full)
            by_block: dict[str | None, list[str]] = {}
            for node in switch.nodes:
                by_block.setdefault(block.get(node), []).append(node)
            together = tuple(map(tuple, by_block.values()))
            leaves.append(LeafNodes(switch.name, switch.nodes, together, path, trees.index(roots[switch.name])))
    if not leaves:
        raise InputError("topology: has no leaf with nodes; give switches with nodes, or blocks")
    seen: dict[str, str] = {}
    for leaf in leaves:
        for node in leaf.nodes:
            if seen.setdefault(node, leaf.name) != leaf.name:
                both = f"node {node!r} is under {seen[node]!r} and {leaf.name!r}"
                raise InputError(f"topology: {both}; keep it under one")
    if len(seen) < sum(len(leaf.nodes) for leaf in leaves):
        raise InputError("topology: a leaf names a node twice; name it once")
    return leaves


@dataclass(slots=True)
class Solution(Generic[Incumbent]):
    """The solution of a placement problem as its search goes on: packing, values and bounds by level, deadline, effort.

    The first `searched` levels are searched; `analytic` are the bounds of a job without a solver.
    """

    packing: Incumbent
    values: tuple[int, ...]
    bounds: tuple[int, ...]
    searched: int
    analytic: tuple[int, ...] = ()
    min_split: int = 0  # no packing splits fewer groups
    deadline: Deadline = field(default_factory=Deadline)
    variables: int = 0
    constraints: int = 0
    solver: str = ANALYTIC
    interrupted: bool = False

    def proven(self, level: int) -> bool:
        """Return whether a solution of the placement problem is at its bounds in a level and all before it."""
        return all(value == bound for value, bound in zip(self.values[: level + 1], self.bounds, strict=False))

    def outcome(self) -> Outcome[Self]:
        """Return the outcome of the placement problem's search: proven if the searched levels are at their bounds."""
        proved = self.proven(self.searched - 1)
        return Outcome(
            stop=Stop.PROVED if proved else Stop.INTERRUPTED if self.interrupted else Stop.LIMIT,
            solution=self,
            objective=float(self.values[0]),
            bound=float(self.bounds[0]),
            solver=self.solver,
            variables=self.variables,
            constraints=self.constraints,
            seconds=self.deadline.elapsed,
        )


def bounds(problem: PlacementProblem, *, whole: bool = False) -> tuple[int, ...]:
    """Bound every level of the placement problem, those before it minimal; `whole`: as if no group splits."""
    free = [leaf.free for leaf in problem.leaves]
    weight, extra = min_split_weight(free, problem.kinds), min_extra_pieces(problem, problem.min_split)
    by_tier = [Counter[int]() for _ in range(problem.tiers)]  # free nodes under each switch of a tier
    for leaf in problem.leaves:
        for tier, by_switch in enumerate(by_tier):
            by_switch[leaf.path[tier]] += leaf.free
    alike = [replace(kind, weight=1) for kind in problem.kinds]
    crossing = [min_split_weight(list(by_switch.values()), alike) for by_switch in by_tier]
    across = crossing[0] if crossing else 0
    return (weight, extra, *crossing, min_boundaries(problem, across, whole=whole), min_part_free(problem, whole=whole))


def min_split_weight(free: Sequence[int], kinds: Sequence[Kind]) -> int:
    """Bound the weight of the groups that a placement problem must split; their number where each weighs 1."""
    # For every g, floor(f / g) groups of at least g units fit into f free ones; the lightest of the others split.
    bound = 0
    for g in sorted({kind.size for kind in kinds}):
        large = [kind for kind in kinds if kind.size >= g]
        left, weight = lower_bound_split(free, sum(kind.count for kind in large), g), 0
        for kind in sorted(large, key=lambda kind: kind.weight):
            weight += kind.weight * min(left, kind.count)
            left -= min(left, kind.count)
        bound = max(bound, weight)
    return bound


def min_extra_pieces(problem: PlacementProblem, split: int) -> int:
    """Bound a placement problem's extra pieces, those above one per group, given how many groups split at least."""
    # A group larger than every leaf needs as many pieces as the largest leaf goes into it. Where equal groups must
    # split, every leaf takes as many whole ones as fit, and the split ones go into the holes that are left.
    largest = max((leaf.free for leaf in problem.leaves), default=0)
    if not split or not largest:
        return 0
    oversize = sum((-(-kind.size // largest) - 1) * kind.count for kind in problem.kinds if kind.size > largest)
    bound = oversize + max(0, split - sum(kind.count for kind in problem.kinds if kind.size > largest))
    if len(problem.kinds) == 1:
        size = problem.kinds[0].size
        holes = sorted((leaf.free % size for leaf in problem.leaves if leaf.free % size), reverse=True)
        # Each split group has as many pieces as the largest holes for it, all of them as many as those for all.
        bound = max(bound, max(split * count_to_reach(holes, size), count_to_reach(holes, split * size), split) - split)
    return bound


def count_to_reach(descending: Sequence[int], need: int) -> int:
    """Count how many of a placement problem's largest leaves, by units, reach `need`; all where they do not."""
    return min(bisect_left([0, *accumulate(descending)], need), len(descending))


def min_boundaries(problem: PlacementProblem, across: int, *, whole: bool) -> int:
    """Bound a placement problem's boundaries, neighbours not in one pod: by pods in use, and lines that fit no pod.

    Every pod with groups of its own is a run of some line, and so is every group across pods. One more group across
    pods saves at most one pod, so the bound for the fewest across is valid for more of them too.
    """
    free = sorted((sum(problem.leaves[i].free for i in leaves) for leaves in problem.pods.values()), reverse=True)
    lines = problem.groups // problem.line
    if len(problem.kinds) == 1:
        size = problem.kinds[0].size
        room = [units // size for units in free]
        full = [sum(problem.leaves[i].free // size for i in leaves) for leaves in problem.pods.values()]
        if sum(full) < problem.groups:
            # Groups must split, fewest where every leaf takes as many whole ones as fit: all these pods are used.
            return max(sum(count > 0 for count in full) + across - lines, 0)
        if whole:
            room = sorted(full, reverse=True)
        in_one_pod = sum(groups // problem.line for groups in room) if problem.line > 1 else lines
        return max(count_to_reach(room, problem.groups - across) + across - lines, lines - in_one_pod, 0)
    pods = count_to_reach(free, problem.need)
    if pods and free[pods - 1] < max(kind.size for kind in problem.kinds):
        pods = 0  # a group across pods might save several of them
    return max(pods - 1, across - 1, 0)


def min_part_free(problem: PlacementProblem, *, whole: bool) -> int:
    """Bound a placement problem's part-free leaves: those now, less those it fills; `whole`: by whole groups."""
    now = [leaf.free for leaf in problem.leaves if 0 < leaf.free < leaf.size]
    sums = {0}  # of the sizes of groups, each used any number of times
    for total in range(1, max(now, default=0) + 1):
        if any(total - kind.size in sums for kind in problem.kinds):
            sums.add(total)
    left, filled = problem.need, 0
    for free in sorted(count for count in now if not whole or count in sums):
        if free > left:
            break
        left, filled = left - free, filled + 1
    return len(now) - filled


Unit = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """A job's placement problem in counts, the nodes of each leaf's free units, and of a mesh the level to place."""

    q: PlacementProblem
    units: list[list[Unit]]
    level: int | None


def in_units(job: Job, leaves: Sequence[LeafNodes], taken: Collection[str], at: int | None = None) -> Counted:
    """Return a job's placement problem in segments: its (data) groups, or at a level `at` blocks in inner ones."""
    segment, found = job.segment_nodes, job.levels
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
    axes = () if level is None else job.numbering(level)
    line = (job.mesh or {})[axes[-1]] if axes else sum(kind.count for kind in kinds)
    return Counted(PlacementProblem(leaves=tuple(counted), kinds=kinds, line=line, follows=bool(axes)), units, level)


def only(leaves: Sequence[LeafNodes], problem: PlacementProblem, trees: Collection[int]) -> PlacementProblem:
    """Return a placement problem on some of its trees: the leaves of the others have nothing free."""
    each = zip(leaves, problem.leaves, strict=True)
    kept = tuple(leaf if own.tree in trees else Leaf(leaf.path, 0, leaf.size) for own, leaf in each)
    return replace(problem, leaves=kept)
