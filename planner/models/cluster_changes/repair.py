"""Give groups their missing units while all others stay: failed nodes replaced, or every group grown.

The moves are as many as units are missing, whatever is chosen; the choice is which leaves serve which groups: fewest
split groups, then fewest pieces, then fewest across pods. Leaves without a group in need are alike where pod and free
units are; as many of each class are kept as could be used.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from planner.models.placement.data import Leaf
from planner.models.placement.solve import solver_affordable
from planner.models.requests import Options
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome, Stop

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
    """Declare what each group takes of each kept leaf, and count split groups, pieces and groups across pods."""
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
