"""The placement of a job in counts, proven by CP-SAT, and from counts to pieces: a flow for whole groups, chains.

Leaves are paths from their free units down: an arc takes a whole group, the path ends at the hole that it leaves. All
leaves of a pod (of all pods, for the first two levels) share one graph, so neither leaves nor groups are distinguished.
Split groups and the holes that they share form chains: a groups over b holes need a + b - 1 pieces (more would close a
cycle, along which units can be moved until a piece is gone), hence extra pieces are holes less chains.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ortools.sat.python import cp_model

from planner.models.placement.placement_problem import Packing, Piece, PlacementProblem
from planner.solvers.outcome import Values

Expr = cp_model.LinearExprT


@dataclass(kw_only=True)
class JobPlacementModel:
    """The model and its variables; pods are one where the levels asked for do not distinguish them."""

    q: PlacementProblem
    by_pod: bool
    pods: dict[int, list[int]]
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    arcs: dict[tuple[int, int, int], cp_model.IntVar] = field(default_factory=dict)  # (pod, free units, kind)
    rest: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (pod, hole)
    idle: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (pod, free units)
    take: list[dict[tuple[int, int], cp_model.IntVar]] = field(default_factory=list)  # of each pod: (pod, hole)
    members: list[list[cp_model.IntVar]] = field(default_factory=list)  # of each pod, by kind
    local: list[dict[tuple[int, int, int], cp_model.IntVar]] = field(default_factory=list)  # by (tier, switch, kind)
    opened: list[cp_model.IntVar] = field(default_factory=list)
    joints: list[cp_model.IntVar] = field(default_factory=list)  # shares of a group across pods meet: a piece more each
    wasteful: list[cp_model.IntVar] = field(default_factory=list)

    def require(self, name: str, rule: Any) -> None:
        """Add a rule by name."""
        self.model.add(rule).with_name(name)

    def split(self, kind: int) -> Expr:
        """Return the groups of a kind that no leaf takes whole."""
        return self.q.kinds[kind].count - sum(arc for (_, _, k), arc in self.arcs.items() if k == kind)


def follow_leaves(flows: JobPlacementModel, pod: int) -> None:
    """Require each leaf of a pod to lead from its free units, group by group, to the hole that is left."""
    sources = Counter(flows.q.leaves[i].free for i in flows.pods[pod] if flows.q.leaves[i].free)
    leaves = sum(sources.values())
    coming: dict[int, list[cp_model.IntVar]] = {}
    for units in range(max(sources, default=0), 0, -1):
        if units not in sources and units not in coming:
            continue
        going = []
        for k, kind in enumerate(flows.q.kinds):
            if kind.size <= units:
                arc = flows.model.new_int_var(0, min(leaves, kind.count), f"arc[{pod},{units},{k}]")
                flows.arcs[pod, units, k] = arc
                coming.setdefault(units - kind.size, []).append(arc)
                going.append(arc)
        flows.rest[pod, units] = flows.model.new_int_var(0, leaves, f"rest[{pod},{units}]")
        led = sum(going) + flows.rest[pod, units]
        flows.require(f"follow_leaves[{pod},{units}]", sources[units] + sum(coming.get(units, [])) == led)


def place_each_group_once(flows: JobPlacementModel) -> None:
    """Limit the whole groups to those that there are."""
    for k, kind in enumerate(flows.q.kinds):
        placed = sum(arc for (_, _, i), arc in flows.arcs.items() if i == k)
        flows.require(f"place_each_group_once[{k}]", placed <= kind.count)


def place_split_groups(flows: JobPlacementModel) -> None:
    """Require every group that is not whole to be in a chain, or shares of it in several."""
    for k in range(len(flows.q.kinds)):
        inside = sum(members[k] for members in flows.members)
        flows.require(f"place_split_groups[{k}]", inside == flows.split(k))


def use_each_hole_once(flows: JobPlacementModel) -> None:
    """Limit each hole to one chain."""
    for (pod, hole), rest in flows.rest.items():
        taken = sum(take[pod, hole] for take in flows.take if (pod, hole) in take)
        flows.require(f"use_each_hole_once[{pod},{hole}]", taken <= rest)


def leave_idle_leaves_alone(flows: JobPlacementModel) -> None:
    """Count a leaf as idle only where it is wholly free and neither groups nor chains take of it."""
    for pod, leaves in flows.pods.items():
        wholly = Counter(flows.q.leaves[i].free for i in leaves if flows.q.leaves[i].free == flows.q.leaves[i].size)
        for units, count in sorted(wholly.items()):
            if units:
                idle = flows.idle[pod, units] = flows.model.new_int_var(0, count, f"idle[{pod},{units}]")
                taken = sum(take[pod, units] for take in flows.take if (pod, units) in take)
                flows.require(f"leave_idle_leaves_alone[{pod},{units}]", idle <= flows.rest[pod, units] - taken)


def levels(flows: JobPlacementModel) -> list[Expr]:
    """Return the levels of the objective: two of them, or all where pods are distinguished."""
    problem, taken = flows.q, [variable for take in flows.take for variable in take.values()]
    goals: list[Expr] = [sum(kind.weight * flows.split(k) for k, kind in enumerate(problem.kinds))]
    goals.append(sum(taken) - sum(flows.opened) + sum(flows.joints))
    if not flows.by_pod:
        return goals
    split = sum(variable for members in flows.members for variable in members)
    crossing = [
        split - sum(variable for local in flows.local for (tier, _, _), variable in local.items() if tier == other)
        for other in range(problem.tiers)
    ]
    boundaries = count_boundaries(flows, crossing[0] if crossing else 0)
    part_free = sum(flows.rest.values()) - sum(taken) - sum(flows.idle.values()) + sum(flows.wasteful)
    return [*goals, *crossing, boundaries, part_free]


def count_boundaries(flows: JobPlacementModel, across: Expr) -> Expr:
    """Count the neighbours that are not in one pod: exactly along one line, from below along several."""
    # Every pod in use and every group across pods is a run of some line; a line that is not within a pod has a
    # boundary.
    problem, lines = flows.q, flows.q.groups // flows.q.line
    # Of each pod the groups within it: whole ones, and split ones that are local to it.
    inside: dict[int, list[cp_model.IntVar]] = {pod: [] for pod in flows.pods}
    for (pod, _, _), variable in flows.arcs.items():
        inside[pod].append(variable)
    for (tier, pod, _), variable in (place for local in flows.local for place in local.items()):
        if tier == 0:
            inside[pod].append(variable)
    runs = cp_model.LinearExpr.sum([*count_pods_with_groups(flows, inside), across]) - lines
    if problem.line >= problem.groups:
        return runs
    boundaries = flows.model.new_int_var(0, problem.groups, "boundaries")
    flows.require("count_runs_of_pods", boundaries >= runs)
    if problem.line > 1:
        within = {pod: flows.model.new_int_var(0, lines, f"lines[{pod}]") for pod in inside}
        for pod, groups in inside.items():
            flows.require(f"count_lines_within_a_pod[{pod}]", problem.line * within[pod] <= sum(groups))
        flows.require("count_lines_across_pods", boundaries >= lines - sum(within.values()))
    return boundaries


def count_pods_with_groups(flows: JobPlacementModel, inside: dict[int, list[cp_model.IntVar]]) -> list[cp_model.IntVar]:
    """Count the pods that have a group of their own."""
    used = {pod: flows.model.new_bool_var(f"used[{pod}]") for pod in flows.pods}
    for pod, groups in inside.items():
        flows.require(f"count_pods_with_groups[{pod}]", sum(groups) <= flows.q.groups * used[pod])
    return list(used.values())


def switches(problem: PlacementProblem, tier: int) -> dict[int, list[int]]:
    """Return the pods under each switch of a tier."""
    pods_under: dict[int, list[int]] = {}
    for pod, leaves in problem.pods.items():
        pods_under.setdefault(problem.leaves[leaves[0]].path[tier], []).append(pod)
    return pods_under


Split = tuple[int, tuple[Piece, ...]]


def split_chain(sizes: Sequence[int], items: Counter[int], holes: Sequence[Piece]) -> Iterator[Split]:
    """Yield the pieces of a chain's groups in its holes, each of a leaf and its units.

    Pieces follow each other along the holes, so that a groups over b holes make a + b - 1 pieces at most.
    """
    kinds = sorted(items.elements())
    along = next_fit([sizes[k] for k in kinds], [units for _, units in holes])
    yield from ((k, tuple((holes[at][0], units) for at, units in own)) for k, own in zip(kinds, along, strict=True))


def next_fit(sizes: Sequence[int], rooms: Sequence[int]) -> list[list[Piece]]:
    """Cut items along rooms in order: each item goes on where the last one stopped."""
    cuts: list[list[Piece]] = []
    room, free = 0, rooms[0] if rooms else 0
    for size in sizes:
        cut: list[Piece] = []
        left = size
        while left > 0:
            if free == 0:
                room, free = room + 1, rooms[room + 1]
            taken = min(left, free)
            cut.append((room, taken))
            left, free = left - taken, free - taken
        cuts.append(cut)
    return cuts


def walk(flows: JobPlacementModel, values: Values, pod: int, packing: Packing) -> dict[int, list[int]]:
    """Lead the leaves of a pod along the flow, wholly free ones to rest first; return them by the hole they keep."""
    at: dict[int, list[int]] = {}
    for i in flows.pods[pod]:
        at.setdefault(flows.q.leaves[i].free, []).append(i)
    resting_at: dict[int, list[int]] = {}
    for units in range(max(at, default=0), 0, -1):

        def order(i: int, units: int = units) -> tuple[bool, bool]:
            leaf = flows.q.leaves[i]
            return not leaf.free == leaf.size == units, leaf.free != units

        here = sorted(at.get(units, []), key=order)
        if not here:
            continue
        resting = values.of(flows.rest[pod, units])
        resting_at[units], moving = here[:resting], here[resting:]
        for k, kind in enumerate(flows.q.kinds):
            count = values.of(flows.arcs[pod, units, k]) if (pod, units, k) in flows.arcs else 0
            for i in moving[:count]:
                packing.whole[i, k] += 1
                at.setdefault(units - kind.size, []).append(i)
            moving = moving[count:]
    return resting_at
