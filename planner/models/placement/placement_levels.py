"""Prove the levels of a placement one after another: whole groups and chains of split ones as flows, by solvers.

Leaves are paths from their free units down: an arc takes a whole group, the path ends at the hole that it leaves. All
leaves of a pod (of all pods, for the first two levels) share one graph, so neither leaves nor groups are distinguished.
Split groups and the holes that they share form chains: a group opens a chain, holes fill it one after another, and the
rest of the last hole either takes the next group or closes the chain. A node of this flow is the units that a chain
still needs, or has left over. Chains of equal needs are not distinguished, so that no solution has two numberings, and
the relaxation is as tight as one over all patterns of chains (arc flows: Valerio de Carvalho 1999, for bin packing).
A groups over b holes need a + b - 1 pieces (more would close a cycle, along which units can be moved until a piece is
gone), hence extra pieces are holes taken less chains closed. A group across pods is a share in each, an item of a chain
there; the shares are the holes of a chain under the switch where they meet (`join_shares`).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from ortools.sat.python import cp_model

from planner.models import Options
from planner.models.placement.placement_problem import Packing, Piece, PlacementProblem, Solution, measure
from planner.solvers.outcome import Stop, Values
from planner.solvers.registry import linear_runner

Expr = cp_model.LinearExprT
Variables = list[cp_model.IntVar]
Split = tuple[int, tuple[Piece, ...]]  # (item, pieces)
MAX_TRIES = 300  # Ways to give a chain its holes in one pod; a chain of many holes has too many to try all.
MAX_VARIABLES = 60_000  # Writing a larger model down takes seconds by itself.
SECONDS_PER_VARIABLE = 2e-5  # To write one with its rows, so that little time is not spent on that alone.
SECONDS_PER_FLOW_VARIABLE = 2e-4  # The same and the relaxation of flows by pod, which no time limit stops half-way.
ROUNDING = 1e-6  # A bound that is less than this above a whole number proves that number.


@dataclass(kw_only=True)
class Chains:
    """The flow of chains of split groups in one pod, in the model of levels; a need above 0 is yet to be filled.

    Items are the groups within the pod, by kind, and behind the kinds the shares of groups across pods, by size. Under
    a switch above, the holes are the shares that come from below, and each chain is one item that they just fill.
    """

    path: tuple[int, ...]  # the switches above one of the leaves
    tier: int = 0  # 0: a pod; else of the switch, that of all tiers for the root
    below: tuple[tuple[int, int], ...] = ()  # chains whose shares are the holes
    opened: dict[int, cp_model.IntVar] = field(default_factory=dict)  # by item
    filled: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (need before, hole)
    joined: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (need before, item)
    closed: dict[int, cp_model.IntVar] = field(default_factory=dict)  # by need
    used: dict[int, cp_model.IntVar] = field(default_factory=dict)  # holes by size, all together
    items: dict[int, cp_model.IntVar] = field(default_factory=dict)  # all together, by item


@dataclass(kw_only=True)
class JobPlacementModel:
    """The CP-SAT model of a placement's levels; all pods count as one where the levels do not distinguish them."""

    q: PlacementProblem
    by_pod: bool
    pods: dict[int, list[int]]
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    arcs: dict[tuple[int, int, int], cp_model.IntVar] = field(default_factory=dict)  # (pod, free units, kind)
    rest: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (pod, hole)
    idle: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (pod, free units)
    chains: dict[tuple[int, int], Chains] = field(default_factory=dict)  # (tier, pod or switch), tier by tier

    def require(self, name: str, rule: Any) -> None:
        """Add a named rule to the CP-SAT model of the placement levels."""
        self.model.add(rule).with_name(name)

    def split(self, kind: int) -> Expr:
        """Count the groups of a kind that no leaf takes whole, as an expression of the CP-SAT model."""
        return self.q.kinds[kind].count - sum(arc for (_, _, k), arc in self.arcs.items() if k == kind)

    def within(self, tier: int) -> dict[int, Variables]:
        """Return the split groups within each switch of a tier in the CP-SAT model: of its chains and those below."""
        found: dict[int, Variables] = {}
        for chain in self.chains.values():
            if chain.tier <= tier < len(chain.path):
                found.setdefault(chain.path[tier], []).extend(chain.items[k] for k in range(len(self.q.kinds)))
        return found


def formulate_chains(problem: PlacementProblem, *, by_pod: bool, max_split: int) -> JobPlacementModel:
    """Build the flows of leaves and chains with their rules: all leaves as one pod, or by pod with shares of groups."""
    own = problem.pods if by_pod else {0: list(range(len(problem.leaves)))}
    flows = JobPlacementModel(q=problem, by_pod=by_pod, pods=own)
    for pod, leaves in own.items():
        follow_leaves(flows, pod)
        flows.chains[0, pod] = Chains(path=problem.leaves[leaves[0]].path if by_pod else ())
        follow_chains(flows, pod, max_split)
    for k, kind in enumerate(problem.kinds):
        placed = sum(arc for (_, _, i), arc in flows.arcs.items() if i == k)
        flows.require(f"place_each_group_once[{k}]", placed <= kind.count)
    # Shares of split groups meet tier by tier up to the root.
    for tier in range(1, problem.tiers + 1) if by_pod and len(problem.pods) > 1 else ():
        below: dict[int, list[tuple[int, int]]] = {}  # by the switch of the tier, or all under the root
        for at, chain in flows.chains.items():
            if at[0] == tier - 1:
                below.setdefault(chain.path[tier] if tier < problem.tiers else -1, []).append(at)
        for switch, ends in below.items():
            flows.chains[tier, switch] = Chains(path=flows.chains[ends[0]].path, tier=tier, below=tuple(ends))
            join_shares(flows, flows.chains[tier, switch], f"{tier},{switch}", max_split)
    # Every group that is not whole is in a chain, or shares of it in several; each hole is in one.
    for k in range(len(problem.kinds)):
        members = sum(chain.items[k] for chain in flows.chains.values())
        flows.require(f"place_split_groups[{k}]", members == flows.split(k))
    for (pod, hole), rest in flows.rest.items():
        flows.require(f"use_each_hole_once[{pod},{hole}]", flows.chains[0, pod].used.get(hole, 0) <= rest)
    # A leaf is idle only where it is wholly free and neither groups nor chains take of it.
    for pod, leaves in own.items():
        wholly = Counter(problem.leaves[i].free for i in leaves if problem.leaves[i].free == problem.leaves[i].size)
        for units, count in sorted(wholly.items()):
            if units:
                idle = flows.idle[pod, units] = flows.model.new_int_var(0, count, f"idle[{pod},{units}]")
                untouched = flows.rest[pod, units] - flows.chains[0, pod].used.get(units, 0)
                flows.require(f"leave_idle_leaves_alone[{pod},{units}]", idle <= untouched)
    return flows


def follow_leaves(flows: JobPlacementModel, pod: int) -> None:
    """Require in the model of levels, as a flow, that each leaf of a pod leads from its free units to the hole left."""
    sources = Counter(flows.q.leaves[i].free for i in flows.pods[pod] if flows.q.leaves[i].free)
    leaves = sum(sources.values())
    coming = defaultdict[int, Variables](list)
    for units in range(max(sources, default=0), 0, -1):
        if units not in sources and units not in coming:
            continue
        going: Variables = []
        for k, kind in enumerate(flows.q.kinds):
            if kind.size <= units:
                arc = flows.model.new_int_var(0, min(leaves, kind.count), f"arc[{pod},{units},{k}]")
                flows.arcs[pod, units, k] = arc
                coming[units - kind.size].append(arc)
                going.append(arc)
        flows.rest[pod, units] = flows.model.new_int_var(0, leaves, f"rest[{pod},{units}]")
        led = sum(going) + flows.rest[pod, units]
        flows.require(f"follow_leaves[{pod},{units}]", sources[units] + sum(coming[units]) == led)


def follow_chains(flows: JobPlacementModel, pod: int, max_split: int) -> None:
    """Require in the model of levels that each chain of a pod leads from first item to last hole; count both."""
    # A hole as large as the largest group would take any split group whole, so none is used where every split costs.
    # Limits are narrow, as wide ones around the circles of a flow are tightened one by one, which takes long.
    chain, kinds = flows.chains[0, pod], flows.q.kinds
    largest = max(kind.size for kind in kinds)
    items = sizes_of(flows.q) if flows.by_pod and len(flows.pods) > 1 else [kind.size for kind in kinds]
    costly = all(kind.weight for kind in kinds)
    sizes = [hole for other, hole in flows.rest if other == pod and (hole < largest or not costly)]
    hole = max(sizes, default=0)
    limits = [min(kind.count, max_split) for kind in kinds] + [max_split] * (len(items) - len(kinds))
    leaves = len(flows.pods[pod])
    coming, going = defaultdict[int, Variables](list), defaultdict[int, Variables](list)  # by need
    holes, joined = defaultdict[int, Variables](list), defaultdict[int, Variables](list)  # by hole, and by item

    def declare(name: str, limit: int, *of: Variables) -> cp_model.IntVar:
        variable = flows.model.new_int_var(0, limit, f"{name}[{pod}]")
        for variables in of:
            variables.append(variable)
        return variable

    for k, size in enumerate(items):
        chain.opened[k] = declare(f"opened[{k}]", min(limits[k], leaves), coming[size])
        # What is left of a hole would take a smaller group whole; a share may be one of several in a hole.
        for left in range(1, min(hole, size) if k < len(kinds) else hole):
            of = coming[size - left], going[-left], joined[k]
            chain.joined[-left, k] = declare(f"joined[{-left},{k}]", limits[k], *of)
    for need in range(largest, 0, -1):
        for c in sizes:
            chain.filled[need, c] = declare(f"filled[{need},{c}]", leaves, coming[need - c], going[need], holes[c])
    for need in range(0, -hole, -1):
        chain.closed[need] = declare(f"closed[{need}]", leaves, going[need])
    # As many chains leave a need as come to it.
    for need in sorted(coming.keys() | going.keys()):
        flows.require(f"follow_chains[{pod},{need}]", sum(coming[need]) == sum(going[need]))
    for c, filled in sorted(holes.items()):
        chain.used[c] = flows.model.new_int_var(0, leaves, f"used[{pod},{c}]")
        flows.require(f"count_holes[{pod},{c}]", chain.used[c] == sum(filled))
    for k, variable in chain.opened.items():
        chain.items[k] = flows.model.new_int_var(0, limits[k], f"items[{pod},{k}]")
        flows.require(f"count_items[{pod},{k}]", chain.items[k] == variable + sum(joined[k]))


def join_shares(flows: JobPlacementModel, chain: Chains, name: str, limit: int) -> None:
    """Require in the model of levels that shares of split groups meet under a switch until whole, or are sent up."""
    # The largest comes last in a chain, so that no set of shares has two orders.
    kinds, largest = flows.q.kinds, max(kind.size for kind in flows.q.kinds)
    coming, going = defaultdict[int, Variables](list), defaultdict[int, Variables](list)  # by need
    for step in range(1, largest):
        chain.filled[step, step] = flows.model.new_int_var(0, limit, f"first[{name},{step}]")
        going[step].append(chain.filled[step, step])
        for before in range(step, largest - step + 1):
            more = flows.model.new_int_var(0, limit, f"more[{name},{before},{step}]")
            chain.filled[before + step, step] = more
            coming[before].append(more)
            going[before + step].append(more)
        item = len(kinds) + step - 1
        if chain.tier < flows.q.tiers:
            chain.opened[item] = flows.model.new_int_var(0, limit, f"sent[{name},{step}]")
            coming[step].append(chain.opened[item])
        used = sum(variable for (_, hole), variable in chain.filled.items() if hole == step)
        given = sum(flows.chains[at].items[item] for at in chain.below)
        flows.require(f"use_each_share_once[{name},{step}]", used == given)
    for k, kind in enumerate(kinds):
        chain.opened[k] = flows.model.new_int_var(0, min(kind.count, limit), f"joined_whole[{name},{k}]")
        coming[kind.size].append(chain.opened[k])
    for units in sorted(coming.keys() | going.keys()):
        flows.require(f"join_shares[{name},{units}]", sum(going[units]) == sum(coming[units]))
    chain.items = chain.opened


def levels(flows: JobPlacementModel) -> list[Expr]:
    """Return the levels of a placement as expressions of its CP-SAT model: two, or all where it has pods."""
    problem = flows.q
    taken = sum(variable for chain in flows.chains.values() for variable in chain.used.values())
    goals: list[Expr] = [sum(kind.weight * flows.split(k) for k, kind in enumerate(problem.kinds))]
    closed = [at for chain in flows.chains.values() for at in chain.closed.items()]
    above = [chain for chain in flows.chains.values() if chain.tier]
    # Of shares, each but the first of a group is a piece more.
    joints = [fill for chain in above for (need, hole), fill in chain.filled.items() if need > hole]
    goals.append(taken - sum(variable for _, variable in closed) + sum(joints))
    if not flows.by_pod:
        return goals
    split = sum(chain.items[k] for chain in flows.chains.values() for k in range(len(problem.kinds)))
    crossing = [split - sum(sum(own) for own in flows.within(tier).values()) for tier in range(problem.tiers)]
    # Neighbouring groups not in one pod are counted exactly along one line, else from below: every pod in use and every
    # group across pods is a run of some line; a line not within a pod has a boundary.
    lines = problem.groups // problem.line
    # Of each pod the groups within it: whole ones, and split ones that are local to it.
    inside = {pod: [arc for (own, _, _), arc in flows.arcs.items() if own == pod] for pod in flows.pods}
    for pod, members in flows.within(0).items():
        inside[pod] += members
    used = {pod: flows.model.new_bool_var(f"used[{pod}]") for pod in flows.pods}
    for pod, groups in inside.items():
        flows.require(f"count_pods_with_groups[{pod}]", sum(groups) <= problem.groups * used[pod])
    boundaries: Expr = cp_model.LinearExpr.sum([*used.values(), *crossing[:1]]) - lines
    if problem.line < problem.groups:
        runs, boundaries = boundaries, flows.model.new_int_var(0, problem.groups, "boundaries")
        flows.require("count_runs_of_pods", boundaries >= runs)
        if problem.line > 1:
            within = {pod: flows.model.new_int_var(0, lines, f"lines[{pod}]") for pod in inside}
            for pod, groups in inside.items():
                flows.require(f"count_lines_within_a_pod[{pod}]", problem.line * within[pod] <= sum(groups))
            flows.require("count_lines_across_pods", boundaries >= lines - sum(within.values()))
    wasteful = sum(variable for need, variable in closed if need < 0)
    part_free = sum(flows.rest.values()) - taken - sum(flows.idle.values()) + wasteful
    return [*goals, *crossing, boundaries, part_free]


def sizes_of(problem: PlacementProblem) -> list[int]:
    """Return the sizes in units of a pod's items in the levels' flow of chains: groups by kind, then shares."""
    return [*(kind.size for kind in problem.kinds), *range(1, max(kind.size for kind in problem.kinds))]


def decode_chains(flows: JobPlacementModel, values: Values) -> Packing:
    """Decode a CP-SAT solution of the placement levels: whole groups, and pieces of split ones along chains."""
    packing, sizes = Packing(), sizes_of(flows.q)
    split, spanning = list[Split](), list[tuple[Counter[int], Counter[int]]]()
    if not flows.by_pod:  # pieces are within a pod where leaves can be exchanged so, else pod by pod along the chain
        exchange = Exchange(flows.q, packing, walk(flows, values, 0, packing))
        for items, used in sorted(_followed(sizes, flows.chains[0, 0], values), key=lambda chain: -chain[1].total()):
            holes = exchange.gather(used)
            if holes is None:
                spanning.append((items, used))
            else:
                split.extend(split_chain(sizes, items, holes))
        # The leaves that no chain has taken, by hole, those of each pod together.
        rest, order = dict[int, list[int]](), {pod: at for at, pod in enumerate(exchange.rooms)}
        for i in sorted(exchange.hole, key=lambda i: (order[flows.q.leaves[i].pod], i)):
            rest.setdefault(exchange.hole[i], []).append(i)
        for items, used in spanning:
            split.extend(split_chain(sizes, items, sorted((rest[hole].pop(0), hole) for hole in used.elements())))
    shares: dict[tuple[int, int], list[Split]] = {}  # that chains send up
    for at, chain in flows.chains.items() if flows.by_pod else ():
        free: dict[int, list[list[Piece]]] = {}  # of the holes or shares to take, by units
        if chain.tier:
            for item, pieces in reversed([share for below in chain.below for share in shares[below]]):
                free.setdefault(sizes[item], []).append(list(pieces))
        else:
            walked = walk(flows, values, at[1], packing)
            free = {hole: [[(i, hole)] for i in leaves] for hole, leaves in walked.items()}
        own = list[Split]()
        for items, holes_of in _followed(sizes, chain, values):
            taken = [free[hole].pop() for hole in sorted(holes_of.elements(), reverse=True)]
            own.extend(split_chain(sizes, items, [piece for pieces in taken for piece in pieces]))
        split.extend(part for part in own if part[0] < len(flows.q.kinds))
        shares[at] = [part for part in own if part[0] >= len(flows.q.kinds)]
    # A split group of one piece is a whole one.
    whole = +packing.whole + Counter((pieces[0][0], k) for k, pieces in split if len(pieces) == 1)
    return Packing(whole=whole, split=[(k, pieces) for k, pieces in split if len(pieces) > 1])


class Exchange:
    """Leaves in a solution of the placement levels that may still exchange equally large groups, by the hole left."""

    def __init__(self, problem: PlacementProblem, packing: Packing, holes: dict[int, list[int]]) -> None:
        self.q, self.packing = problem, packing
        self.hole = {i: hole for hole, leaves in holes.items() for i in leaves}
        self.rooms: dict[int, Counter[int]] = {}  # leaves of each pod by free units
        self.having: Counter[Piece] = Counter()  # leaves of all pods by free units and hole
        for i, hole in self.hole.items():
            leaf = problem.leaves[i]
            self.rooms.setdefault(leaf.pod, Counter())[leaf.free] += 1
            self.having[leaf.free, hole] += 1

    def gather(self, wanted: Counter[int]) -> list[Piece] | None:
        """Give a chain in a solution of the levels holes in one pod, that with the fewest leaves; None: no pod."""
        holes, leaves = sorted(wanted.elements(), reverse=True), self.q.leaves
        for pod in sorted(self.rooms, key=lambda pod: (self.rooms[pod].total(), pod)):
            chosen = _free_of(holes, self.rooms[pod], self.having)
            if chosen is None:
                continue
            pieces, whole = list[Piece](), self.packing.whole
            for room, hole in zip(chosen, holes, strict=True):
                # A leaf of the pod with the hole, after swapping groups with one that has it; it swaps no more.
                alike = {i for i in self.hole if leaves[i].free == room}
                here = {i for i in alike if leaves[i].pod == pod}
                there = {i for i in alike if self.hole[i] == hole}
                i = min(here & there, default=min(here))
                j = i if i in there else min(there)  # one that has the hole is swapped with itself: nothing changes
                for k in range(len(self.q.kinds)):
                    whole[i, k], whole[j, k] = whole[j, k], whole[i, k]
                self.hole[j] = self.hole[i]
                del self.hole[i]
                pieces.append((i, hole))
            return pieces
        return None


def _free_of(holes: Sequence[int], left: Counter[int], having: Counter[Piece]) -> list[int] | None:
    """Choose free units for each hole of a chain: leaves `left` in a pod, and `having` the hole; take them off both."""
    chosen: list[int] = []
    tries = 0

    def search(at: int) -> bool:
        nonlocal tries
        tries += 1
        if at == len(holes) or tries > MAX_TRIES:
            return at == len(holes)
        for room in sorted(left):
            if left[room] and having[room, holes[at]]:
                left[room] -= 1
                having[room, holes[at]] -= 1
                chosen.append(room)
                if search(at + 1):
                    return True
                chosen.pop()
                left[room] += 1
                having[room, holes[at]] += 1
        return False

    return chosen if search(0) else None


def walk(flows: JobPlacementModel, values: Values, pod: int, packing: Packing) -> dict[int, list[int]]:
    """Trace a pod's leaves along a level's solution, wholly free ones to rest first: leaves by the hole they keep."""
    leaves, at = flows.q.leaves, defaultdict[int, list[int]](list)
    for i in sorted(flows.pods[pod], key=lambda i: leaves[i].free != leaves[i].size):
        at[leaves[i].free].append(i)
    resting_at: dict[int, list[int]] = {}
    for units in range(max(at, default=0), 0, -1):
        if at[units]:
            resting = values.of(flows.rest[pod, units])
            resting_at[units], moving = at[units][:resting], at[units][resting:]
            for k, kind in enumerate(flows.q.kinds):
                count = values.of(flows.arcs[pod, units, k]) if (pod, units, k) in flows.arcs else 0
                packing.whole.update((i, k) for i in moving[:count])
                at[units - kind.size] += moving[:count]
                moving = moving[count:]
    return resting_at


def split_chain(sizes: Sequence[int], items: Counter[int], holes: Sequence[Piece]) -> Iterator[Split]:
    """Yield the split groups of a chain of the levels' flow by kind, with pieces in its holes one after another."""
    leaf, free, further = 0, 0, iter(holes)
    for k in sorted(items.elements()):
        pieces, left = Counter[int](), sizes[k]
        while left > 0:
            if free == 0:
                leaf, free = next(further)
            taken = min(left, free)
            pieces[leaf] += taken
            left, free = left - taken, free - taken
        yield k, tuple(pieces.items())


def _followed(sizes: Sequence[int], chain: Chains, values: Values) -> Iterator[tuple[Counter[int], Counter[int]]]:
    """Yield the chains of split groups in a solution's flow: of each the groups by kind and the holes by size."""
    opened, closed = (Counter({at: values.of(own) for at, own in x.items()}) for x in (chain.opened, chain.closed))
    filled, joined = (Counter({at: values.of(own) for at, own in x.items()}) for x in (chain.filled, chain.joined))

    def follow(need: int, k: int, end: int | None) -> tuple[Counter[int], Counter[int]]:
        items, used = Counter({k: 1}), Counter[int]()
        need += sizes[k]
        while need != end:
            if need > 0:
                hole = next(hole for (units, hole), times in filled.items() if units == need and times)
                filled[need, hole] -= 1
                used[hole] += 1
                need -= hole
            elif end is None and (need == 0 or closed[need]):
                closed[need] -= 1
                break
            else:
                k = next(k for (units, k), times in joined.items() if units == need and times)
                joined[need, k] -= 1
                items[k] += 1
                need += sizes[k]
        return items, used

    for k in sorted(opened):
        for _ in range(opened[k]):
            yield follow(0, k, None)
    # What no chain leads to runs in circles, its groups just filling its holes: a chain of its own each.
    while start := next((at for at, times in sorted(joined.items()) if times), None):
        joined[start] -= 1
        yield follow(*start, start[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelModel:
    """A solver model of one level of a placement, its reader of solutions, and the solver that usually proves it."""

    model: cp_model.CpModel
    goals: Sequence[Expr]  # of all levels
    read: Callable[[Values], tuple[Any, tuple[int, ...]]]  # a solution as an incumbent, and the values of its levels
    usual: Literal["cpsat", "highs"]


def improve(solution: Solution[Any], options: Options, model_of: Callable[[int], LevelModel | None]) -> None:
    """Search each level of a placement that is not at its bound, while those before it are and time is left.

    Better packings are kept, and a level's bound is raised to the smallest that its runs prove.
    """
    for level in range(solution.searched):
        search = model_of(level) if solution.values[level] > solution.bounds[level] else None
        if search is not None and not solution.deadline.passed:
            goals, model, proofs = search.goals, search.model, list[int]()
            for goal, value in zip(goals[:level], solution.values, strict=False):
                model.add(goal <= value).with_name("keep_the_levels_before")
            model.add(goals[level] >= solution.bounds[level]).with_name("respect_the_analytic_bound")
            model.minimize(goals[level])
            # CP-SAT's arithmetic is exact; of HiGHS two runs must agree on a proof.
            run = linear_runner(options.solver, usual=search.usual)
            exclude = (options.solver or search.usual) != "cpsat"
            # A proof that nothing is better is quicker than one of the optimum.
            for solve in (run, partial(run, presolve=False)) if exclude else (run,):
                value = solution.values[level]
                if value <= solution.bounds[level] or solution.interrupted:
                    break
                if exclude:
                    model.add(goals[level] < value).with_name("improve_on_the_incumbent")
                outcome = solve(model, time_limit=solution.deadline.limit, seed=options.seed, threads=options.threads)
                solution.interrupted = outcome.stop is Stop.INTERRUPTED
                solution.variables += len(model.proto.variables)
                solution.constraints += len(model.proto.constraints)
                solution.solver = outcome.solver
                if outcome.solution is not None:
                    packing, values = search.read(outcome.solution)
                    if values < solution.values:
                        solution.packing, solution.values = packing, values
                # A run that failed proves nothing. Nor does an infeasible one that excluded none, as its rows admit the
                # incumbent. Else a bound proves the whole number above it, up to what was excluded.
                if outcome.stop is Stop.FAILED or outcome.infeasible:
                    proofs.append(value if exclude and outcome.stop is not Stop.FAILED else 0)
                else:
                    proven = math.ceil((outcome.bound or 0.0) - ROUNDING)
                    proofs.append(min(proven, value) if exclude else proven)
            else:
                lower = solution.bounds
                solution.bounds = (*lower[:level], max(lower[level], min(proofs)), *lower[level + 1 :])
        if solution.interrupted or not solution.proven(level):
            return


def level_model(problem: PlacementProblem, solution: Solution[Packing], level: int) -> LevelModel | None:
    """Build the solver model of one level of a placement; None where it is too large for the time that is left."""
    # Flows by pod have a tight relaxation, on which HiGHS proves in seconds what CP-SAT does not in minutes; without
    # pods it is the other way round.
    by_pod, largest, kinds = level > 1, max(kind.size for kind in problem.kinds), len(problem.kinds)
    rests, left = set[int](), {leaf.free for leaf in problem.leaves if leaf.free}
    while left:  # what whole groups may leave of a leaf
        rests |= left
        left = {rest - kind.size for rest in left for kind in problem.kinds if rest > kind.size} - rests
    used = [rest for rest in rests if rest < largest]
    hole, seconds = max(used, default=0), SECONDS_PER_FLOW_VARIABLE if by_pod else SECONDS_PER_VARIABLE
    size = largest * len(used) + len(rests) * (kinds + 1) + hole * (kinds + 1)
    if by_pod:  # shares of groups across pods join chains as kinds do, and meet each other
        size = len(problem.pods) * (size + largest * hole) + largest * largest // 2
    if size > min(MAX_VARIABLES, solution.deadline.left / seconds):
        return None
    max_split, lightest = problem.groups, min(kind.weight for kind in problem.kinds)
    if by_pod and lightest:  # so many groups split, and so there are chains, of any packing minimal at first
        max_split = min(max_split, solution.values[0] // lightest)
    flows = formulate_chains(problem, by_pod=by_pod, max_split=max_split)

    def read(values: Values) -> tuple[Packing, tuple[int, ...]]:
        packing = decode_chains(flows, values)
        return packing, measure(problem, packing)

    # Of several lines the boundaries are only bounded from below, and the relaxation of that is loose.
    tight = by_pod and (level != 2 + problem.tiers or problem.line >= problem.groups)
    return LevelModel(model=flows.model, goals=levels(flows), read=read, usual="highs" if tight else "cpsat")
