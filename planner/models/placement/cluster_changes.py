"""Changes of a cluster with jobs on it, at minimum cost: groups repaired or grown, jobs stopped, leaves freed."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from planner.models.placement.placement_problem import Kind, Leaf
from planner.models.placement.solve import solver_affordable
from planner.models.requests import Options
from planner.solvers.outcome import Outcome, Stop
from planner.solvers.signals import Deadline

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


Taken = dict[tuple[int, int], int]  # (group, leaf) -> units
ROUNDING = 1e-6  # A bound that is less than this above a whole number proves that number.
MAX_VARIABLES = 40_000  # Writing a larger model down takes seconds by itself.


@dataclass(frozen=True, slots=True)
class IncompleteGroup:
    """A group with missing units, and the leaves of the others."""

    stays: frozenset[int]
    missing: int


@dataclass(frozen=True, slots=True)
class Repair:
    """Units by group and leaf; split groups, extra pieces and groups across pods, and the bounds of each."""

    taken: Taken
    values: tuple[int, int, int]
    bounds: tuple[int, int, int]


def repair(leaves: Sequence[Leaf], groups: Sequence[IncompleteGroup], options: Options) -> Outcome[Repair]:
    """Minimize split groups, extra pieces and groups across pods; infeasible where more units are missing than free."""
    deadline = Deadline(options.time_limit)
    need, free = sum(g.missing for g in groups), sum(leaf.free for leaf in leaves)
    if need > free:
        return Outcome(stop=Stop.PROVED, infeasible=True, detail=f"{need} units are missing > {free} free")
    taken = _nearest(leaves, groups)
    values, bounds = cost(leaves, groups, taken), _analytic(leaves, groups)
    variables = 0
    if values != bounds:
        kept = _kept(leaves, groups, need)
        if len(kept) * len(groups) <= MAX_VARIABLES and solver_affordable(options):
            taken, bounds, variables = _search(leaves, kept, groups, (taken, bounds), options, deadline)
            values = cost(leaves, groups, taken)
    return Outcome(
        stop=Stop.PROVED if values == bounds else Stop.LIMIT,
        solution=Repair(taken, values, bounds),
        objective=float(values[0]),
        bound=float(bounds[0]),
        variables=variables,
        seconds=deadline.elapsed,
    )


def cost(leaves: Sequence[Leaf], groups: Sequence[IncompleteGroup], taken: Taken) -> tuple[int, int, int]:
    """Count split groups, extra pieces and groups across pods once the units are taken."""
    on = [set(g.stays) for g in groups]
    for (g, i), n in taken.items():
        if n:
            on[g].add(i)
    across = sum(len({_pod(leaves[i]) for i in own}) > 1 for own in on)
    return sum(len(own) > 1 for own in on), sum(len(own) - 1 for own in on), across


def _analytic(leaves: Sequence[Leaf], groups: Sequence[IncompleteGroup]) -> tuple[int, int, int]:
    """Bound each group by itself: on its own leaves, or on the fewest others, if all that is free were its own."""
    largest = sorted((leaf.free for leaf in leaves), reverse=True)
    split = extra = across = 0
    for g in groups:
        left, more = g.missing - sum(leaves[i].free for i in g.stays), 0
        for n in largest:
            if left <= 0:
                break
            left, more = left - n, more + 1
        pieces = len(g.stays) + more
        split, extra = split + (pieces > 1), extra + pieces - 1
        across += len({_pod(leaves[i]) for i in g.stays}) > 1
    return split, extra, across


def _pod(leaf: Leaf) -> int:
    return leaf.path[0] if leaf.path else 0


def _nearest(leaves: Sequence[Leaf], groups: Sequence[IncompleteGroup]) -> Taken:
    """Serve each group, the most units missing first, from its own leaves, then its pods, then the freest leaves."""
    free, taken = [leaf.free for leaf in leaves], Counter[tuple[int, int]]()
    left = [g.missing for g in groups]
    order = sorted(range(len(groups)), key=lambda g: (-left[g], g))

    def serve(g: int, i: int) -> None:
        n = min(left[g], free[i])
        if n:
            taken[g, i] += n
            free[i] -= n
            left[g] -= n

    for g in order:
        for i in sorted(groups[g].stays, key=lambda i: (-free[i], i)):
            serve(g, i)
    for g in order:
        pods = {_pod(leaves[i]) for i in groups[g].stays}
        while left[g]:
            anywhere = [i for i, n in enumerate(free) if n]
            near = [i for i in anywhere if not pods or _pod(leaves[i]) in pods] or anywhere
            enough = [i for i in near if free[i] >= left[g]]
            i = min(enough, key=lambda i: (free[i], i)) if enough else max(near, key=lambda i: (free[i], -i))
            serve(g, i)
            pods.add(_pod(leaves[i]))
    return dict(taken)


def _kept(leaves: Sequence[Leaf], groups: Sequence[IncompleteGroup], need: int) -> list[int]:
    """Return the leaves that a best solution can use: own ones, and of others as many of a class as missing units."""
    own = {i for g in groups for i in g.stays if leaves[i].free}
    classes: Counter[tuple[int, int]] = Counter()
    kept = []
    for i, leaf in enumerate(leaves):
        at = (_pod(leaf), min(leaf.free, need))
        if i in own or (leaf.free and classes[at] < need):
            classes[at] += i not in own
            kept.append(i)
    return kept


@dataclass
class _Formulation:
    """Units by group and leaf, new pieces, and whether a group is split or across pods."""

    model: "cp_model.CpModel"
    take: "dict[tuple[int, int], cp_model.IntVar]" = field(default_factory=dict)
    new: "dict[tuple[int, int], cp_model.IntVar]" = field(default_factory=dict)
    split: "list[cp_model.IntVar]" = field(default_factory=list)
    across: "list[cp_model.IntVar]" = field(default_factory=list)


def _search(
    leaves: Sequence[Leaf],
    kept: Sequence[int],
    groups: Sequence[IncompleteGroup],
    start: tuple[Taken, tuple[int, int, int]],
    options: Options,
    deadline: Deadline,
) -> tuple[Taken, tuple[int, int, int], int]:
    """Prove level after level; return the incumbent, its bounds and the number of variables."""
    from planner.solvers.cpsat import run

    f = _formulate(leaves, kept, groups)
    standing = sum(len(g.stays) - 1 for g in groups)
    levels = [sum(f.split), sum(f.new.values()) + standing, sum(f.across)]
    best, bounds = start[0], list(start[1])
    for level, goal in enumerate(levels):
        if cost(leaves, groups, best)[level] > bounds[level]:
            f.model.minimize(goal)
            limit = deadline.limit
            outcome = run(f.model, time_limit=limit, seed=options.seed, threads=options.threads, interruptible=True)
            if outcome.solution is None or outcome.bound is None:
                break
            of = outcome.solution.of
            candidate = {at: of(v) for at, v in f.take.items() if of(v)}
            best = min(best, candidate, key=lambda t: cost(leaves, groups, t))
            bounds[level] = max(bounds[level], math.ceil(outcome.bound - ROUNDING))
        value = cost(leaves, groups, best)[level]
        if value > bounds[level]:
            break
        f.model.add(goal <= value).with_name(f"keep_level[{level}]")
    return best, (bounds[0], bounds[1], bounds[2]), len(f.model.proto.variables)


def _formulate(leaves: Sequence[Leaf], kept: Sequence[int], groups: Sequence[IncompleteGroup]) -> _Formulation:
    from ortools.sat.python import cp_model

    f = _Formulation(cp_model.CpModel())
    for g, group in enumerate(groups):
        pods = {_pod(leaves[i]) for i in group.stays}
        split, across = f.model.new_bool_var(f"split[{g}]"), f.model.new_bool_var(f"across[{g}]")
        reached: dict[int, cp_model.IntVar] = {}
        mine, pieces = [], []
        for i in kept:
            limit = min(group.missing, leaves[i].free)
            v = f.take[g, i] = f.model.new_int_var(0, limit, f"take[{g},{i}]")
            mine.append(v)
            if i in group.stays:
                continue
            new = f.new[g, i] = f.model.new_bool_var(f"new[{g},{i}]")
            pieces.append(new)
            f.model.add(v <= limit * new).with_name(f"count_new_pieces[{g},{i}]")
            pod = _pod(leaves[i])
            if pod not in pods:
                reached.setdefault(pod, f.model.new_bool_var(f"reached[{g},{pod}]"))
                f.model.add_implication(new, reached[pod])
        f.model.add(sum(mine) == group.missing).with_name(f"serve_the_group[{g}]")
        f.model.add(len(group.stays) + sum(pieces) <= 1 + len(leaves) * split).with_name(f"count_split_groups[{g}]")
        in_pods = len(pods) + sum(reached.values())
        f.model.add(in_pods <= 1 + len(leaves) * across).with_name(f"count_groups_across_pods[{g}]")
        f.split.append(split)
        f.across.append(across)
    for i in kept:
        f.model.add(sum(f.take[g, i] for g in range(len(groups))) <= leaves[i].free).with_name(f"take_free_units[{i}]")
    return f


@dataclass(frozen=True, slots=True)
class LeafBlock:
    """A block of a leaf: nodes that are free now, and those that each running job would return."""

    leaf: int
    free: int
    owned: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionProblem:
    """Blocks in nodes, kinds in units of `segment` nodes, the cost of stopping each job, and the split groups."""

    blocks: tuple[LeafBlock, ...]
    kinds: tuple[Kind, ...]
    segment: int
    costs: tuple[int, ...]
    max_split: int


def minimize_stop_cost(q: PreemptionProblem, options: Options) -> Outcome[tuple[int, ...]]:
    """Minimize the cost of the jobs to stop; infeasible where not even all of them are enough."""
    from ortools.sat.python import cp_model

    from planner.solvers.cpsat import run

    model = cp_model.CpModel()
    stop = [model.new_bool_var(f"stop[{r}]") for r in range(len(q.costs))]
    units = _units(q, model, stop)
    whole: list[list[cp_model.IntVar]] = [[] for _ in q.kinds]
    for leaf, segments in units.items():
        here = []
        for k, kind in enumerate(q.kinds):
            v = model.new_int_var(0, kind.count, f"whole[{leaf},{k}]")
            whole[k].append(v)
            here.append(kind.size * v)
        model.add(sum(here) <= sum(segments)).with_name(f"fit_whole_groups[{leaf}]")
    for k, kind in enumerate(q.kinds):
        model.add(sum(whole[k]) <= kind.count).with_name(f"place_each_group_once[{k}]")
    split = sum(kind.count - sum(v) for kind, v in zip(q.kinds, whole, strict=True))
    model.add(split <= q.max_split).with_name("split_few_groups")
    need = sum(kind.size * kind.count for kind in q.kinds)
    model.add(sum(v for segments in units.values() for v in segments) >= need).with_name("fit_all_groups")
    model.minimize(sum(c * v for c, v in zip(q.costs, stop, strict=True)))
    outcome = run(model, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    chosen = None if outcome.solution is None else tuple(r for r, v in enumerate(stop) if outcome.solution.of(v))
    return outcome.with_solution(chosen)


def _units(
    q: PreemptionProblem, model: "cp_model.CpModel", stop: "Sequence[cp_model.IntVar]"
) -> "dict[int, list[cp_model.IntVar]]":
    """Count the whole segments of each block once the chosen jobs have stopped."""
    units: dict[int, list[cp_model.IntVar]] = {}
    for b, block in enumerate(q.blocks):
        v = model.new_int_var(0, (block.free + sum(block.owned.values())) // q.segment, f"units[{b}]")
        returned = sum(n * stop[r] for r, n in sorted(block.owned.items()))
        model.add(q.segment * v <= block.free + returned).with_name(f"return_nodes[{b}]")
        units.setdefault(block.leaf, []).append(v)
    return units


Step = tuple[int, int]  # (piece, leaf that it moves to)


@dataclass(frozen=True, slots=True)
class LeafLoad:
    """A leaf: its size, the nodes that stay taken whatever is moved, and the sizes of the pieces that may move."""

    size: int
    fixed: int
    pieces: tuple[int, ...]

    @property
    def free(self) -> int:
        """Nodes that are free now."""
        return self.size - self.fixed - sum(self.pieces)


@dataclass(frozen=True, slots=True)
class Freed:
    """Leaves that become free, and the pieces of each size on each leaf at the end."""

    leaves: tuple[int, ...]
    at_end: dict[tuple[int, int], int]  # (leaf, nodes of the piece) -> pieces


def minimize_moves(leaves: tuple[LeafLoad, ...], wanted: int, options: Options) -> Outcome[Freed]:
    """Minimize the nodes moved so that `wanted` more leaves are wholly free; infeasible if no final state has them."""
    from ortools.sat.python import cp_model

    from planner.solvers.cpsat import run

    model = cp_model.CpModel()
    now = {(i, s): n for i, leaf in enumerate(leaves) for s, n in Counter(leaf.pieces).items()}
    sizes = sorted({s for _, s in now})
    end = {
        (i, s): model.new_int_var(0, (leaf.size - leaf.fixed) // s, f"end[{i},{s}]")
        for i, leaf in enumerate(leaves)
        for s in sizes
        if leaf.size - leaf.fixed >= s
    }
    empty = {i: model.new_bool_var(f"empty[{i}]") for i, leaf in enumerate(leaves) if not leaf.fixed and leaf.size}
    for i, leaf in enumerate(leaves):
        room = leaf.size - leaf.fixed
        taken = sum(s * v for (at, s), v in end.items() if at == i)
        model.add(taken <= (room - room * empty[i] if i in empty else room)).with_name(f"fit_the_leaf[{i}]")
    for s in sizes:
        model.add(sum(v for (_, t), v in end.items() if t == s) == sum(n for (_, t), n in now.items() if t == s))
    empty_now = sum(leaf.free == leaf.size > 0 for leaf in leaves)
    model.add(sum(empty.values()) >= empty_now + wanted).with_name("free_the_leaves")
    moved = []
    for (i, s), n in now.items():
        leaving = model.new_int_var(0, n, f"leaving[{i},{s}]")
        model.add(leaving >= n - end[i, s]).with_name(f"count_moves[{i},{s}]")
        moved.append(s * leaving)
    model.minimize(sum(moved))
    outcome = run(model, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    solution = None
    if outcome.solution is not None:
        of = outcome.solution.of
        at_end = {at: of(v) for at, v in end.items() if of(v)}
        used = {i for i, _ in at_end}
        freed = tuple(i for i, leaf in enumerate(leaves) if leaf.pieces and not leaf.fixed and i not in used)
        solution = Freed(freed, at_end)
    return outcome.with_solution(solution)


def in_order(
    leaves: Sequence[LeafLoad], pieces: Sequence[tuple[int, int]], targets: dict[int, int]
) -> list[Step] | None:
    """Return moves in an order in which each finds its nodes free; None where no such order was found.

    Pieces are (leaf, nodes), `targets` the leaf of each that moves. Where all that is left to do waits for other moves,
    the smallest piece that fits elsewhere makes a detour.
    """
    free = [leaf.free for leaf in leaves]
    at = [leaf for leaf, _ in pieces]
    waiting, steps, detours = dict(targets), list[Step](), set[int]()

    def move(piece: int, to: int) -> None:
        free[at[piece]] += pieces[piece][1]
        free[to] -= pieces[piece][1]
        at[piece] = to
        steps.append((piece, to))

    while waiting:
        ready = next((p for p, to in waiting.items() if free[to] >= pieces[p][1]), None)
        if ready is not None:
            move(ready, waiting.pop(ready))
            continue
        aside = [
            (pieces[p][1], p, to)
            for p in waiting
            if p not in detours
            for to, room in enumerate(free)
            if to not in (at[p], waiting[p]) and room >= pieces[p][1]
        ]
        if not aside:
            return None
        _, piece, to = min(aside)
        detours.add(piece)
        move(piece, to)
    return steps
