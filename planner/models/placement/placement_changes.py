"""Changes of a cluster with jobs on it, at minimum cost: groups repaired or grown, jobs stopped, leaves freed."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from planner.models import Options
from planner.models.placement.place_job import solver_affordable
from planner.models.placement.placement_problem import Kind, Leaf, Piece, Solution, count_splits, count_to_reach
from planner.solvers.outcome import Outcome, Values
from planner.solvers.search_deadline import Deadline

if TYPE_CHECKING:
    from planner.models.placement.placement_levels import LevelModel

Taken = dict[tuple[int, int], int]  # (group, leaf) -> units, above 0
Step = tuple[int, int]  # (piece, leaf that it moves to)
LEVELS = 3  # of a repair: split groups, extra pieces, groups across pods
MAX_VARIABLES = 40_000  # Writing a larger model down takes seconds by itself.


@dataclass(frozen=True, slots=True)
class IncompleteGroup:
    """An all-reduce group with missing units to be repaired, and the leaves that its others stay on."""

    stays: frozenset[int]
    missing: int


def repair(leaves: Sequence[Leaf], groups: Sequence[IncompleteGroup], options: Options) -> Solution[Taken] | None:
    """Change a placement to repair it: fewest split groups, extra pieces, groups across pods; None: no room."""
    deadline, need = Deadline(options.time_limit), sum(group.missing for group in groups)
    if need > sum(leaf.free for leaf in leaves):
        return None
    # Each group is bounded by itself: on its own leaves, or on the fewest others, if all that is free were its own.
    largest = sorted((leaf.free for leaf in leaves), reverse=True)
    split = extra = across = 0
    for group in groups:
        pieces = len(group.stays) + count_to_reach(largest, group.missing - sum(leaves[i].free for i in group.stays))
        split, extra = split + (pieces > 1), extra + pieces - 1
        across += len({leaves[i].pod for i in group.stays}) > 1
    taken = _nearest(leaves, groups)
    solution = Solution(taken, cost(leaves, groups, taken), (split, extra, across), LEVELS, deadline=deadline)
    if not solution.proven(LEVELS - 1):
        # A best repair uses leaves of the groups' own, and of the others of a class as many as units are missing.
        own, kept = {i for group in groups for i in group.stays if leaves[i].free}, list[int]()
        classes: Counter[tuple[int, int]] = Counter()
        for i, leaf in enumerate(leaves):
            at = (leaf.pod, min(leaf.free, need))
            if i in own or (leaf.free and classes[at] < need):
                classes[at] += i not in own
                kept.append(i)
        if len(kept) * len(groups) <= MAX_VARIABLES and solver_affordable(options):
            from planner.models.placement.placement_levels import improve

            improve(solution, options, lambda _: _formulate(leaves, kept, groups))
    return solution


def cost(leaves: Sequence[Leaf], groups: Sequence[IncompleteGroup], taken: Taken) -> tuple[int, ...]:
    """Count a changed placement's split groups, extra pieces and groups across pods after a repair takes its units."""
    on = [set(group.stays) for group in groups]
    for g, i in taken:
        on[g].add(i)
    return (*count_splits(on, [leaf.path for leaf in leaves]), 0)[:LEVELS]


def _nearest(leaves: Sequence[Leaf], groups: Sequence[IncompleteGroup]) -> Taken:
    """Repair each group, the most units missing first, from its own leaves, then its pods, then the freest leaves."""
    free, taken = [leaf.free for leaf in leaves], Counter[tuple[int, int]]()
    left = [group.missing for group in groups]
    order = sorted(range(len(groups)), key=lambda g: (-left[g], g))

    def serve(g: int, i: int) -> None:
        count = min(left[g], free[i])
        if count:
            taken[g, i] += count
            free[i] -= count
            left[g] -= count

    for g in order:
        for i in sorted(groups[g].stays, key=lambda stay: (-free[stay], stay)):
            serve(g, i)
    for g in order:
        pods = {leaves[i].pod for i in groups[g].stays}
        while left[g]:
            anywhere = [i for i, room in enumerate(free) if room]
            near = [i for i in anywhere if not pods or leaves[i].pod in pods] or anywhere
            enough = [i for i in near if free[i] >= left[g]]
            i = min(enough, key=lambda i: (free[i], i)) if enough else max(near, key=lambda i: (free[i], -i))
            serve(g, i)
            pods.add(leaves[i].pod)
    return dict(taken)


def _formulate(leaves: Sequence[Leaf], kept: Sequence[int], groups: Sequence[IncompleteGroup]) -> "LevelModel":
    from ortools.sat.python import cp_model

    from planner.models.placement.placement_levels import LevelModel

    model, take = cp_model.CpModel(), dict[tuple[int, int], cp_model.IntVar]()
    splits, news, crossings = (list[cp_model.IntVar]() for _ in range(LEVELS))
    for g, group in enumerate(groups):
        pods = {leaves[i].pod for i in group.stays}
        split, across = model.new_bool_var(f"split[{g}]"), model.new_bool_var(f"across[{g}]")
        reached: dict[int, cp_model.IntVar] = {}
        pieces = []
        for i in kept:
            limit = min(group.missing, leaves[i].free)
            take[g, i] = model.new_int_var(0, limit, f"take[{g},{i}]")
            if i in group.stays:
                continue
            new = model.new_bool_var(f"new[{g},{i}]")
            pieces.append(new)
            model.add(take[g, i] <= limit * new).with_name(f"count_new_pieces[{g},{i}]")
            pod = leaves[i].pod
            if pod not in pods:
                reached.setdefault(pod, model.new_bool_var(f"reached[{g},{pod}]"))
                model.add(new <= reached[pod]).with_name(f"count_pods[{g},{i}]")
        model.add(sum(take[g, i] for i in kept) == group.missing).with_name(f"serve_the_group[{g}]")
        model.add(len(group.stays) + sum(pieces) <= 1 + len(leaves) * split).with_name(f"count_split_groups[{g}]")
        in_pods = len(pods) + sum(reached.values())
        model.add(in_pods <= 1 + len(leaves) * across).with_name(f"count_groups_across_pods[{g}]")
        splits.append(split)
        news += pieces
        crossings.append(across)
    for i in kept:
        taken = sum(take[g, i] for g in range(len(groups)))
        model.add(taken <= leaves[i].free).with_name(f"take_free_units[{i}]")

    def read(values: Values) -> tuple[Taken, tuple[int, ...]]:
        taken = {at: values.of(variable) for at, variable in take.items() if values.of(variable)}
        return taken, cost(leaves, groups, taken)

    goals = [sum(splits), sum(news) + sum(len(group.stays) - 1 for group in groups), sum(crossings)]
    return LevelModel(model=model, goals=goals, read=read, usual="cpsat")


@dataclass(frozen=True, slots=True)
class LeafBlock:
    """A block of a leaf for a change by preemption: nodes free now, and those that each running job would return."""

    leaf: int
    free: int
    owned: dict[int, int]


def minimize_stop_cost(
    blocks: Sequence[LeafBlock], kinds: Sequence[Kind], segment: int, costs: Sequence[int], split: int, options: Options
) -> Outcome[tuple[int, ...]]:
    """Change a cluster at the least cost, then number, of jobs stopped for another; infeasible if stopping all fails.

    Blocks are in nodes, kinds in units of `segment` nodes; `costs` are of stopping each job, `split` groups may split.
    """
    from ortools.sat.python import cp_model

    from planner.solvers.cpsat import run

    model = cp_model.CpModel()
    stop = [model.new_bool_var(f"stop[{job}]") for job in range(len(costs))]
    units: dict[int, list[cp_model.IntVar]] = {}  # of each leaf's blocks: whole segments once jobs have stopped
    for index, block in enumerate(blocks):
        most = (block.free + sum(block.owned.values())) // segment
        units.setdefault(block.leaf, []).append(model.new_int_var(0, most, f"units[{index}]"))
        returned = sum(count * stop[job] for job, count in sorted(block.owned.items()))
        model.add(segment * units[block.leaf][-1] <= block.free + returned).with_name(f"return_nodes[{index}]")
    whole = {(i, k): model.new_int_var(0, kind.count, f"whole[{i},{k}]") for i in units for k, kind in enumerate(kinds)}
    for leaf, segments in units.items():
        taken = sum(kind.size * whole[leaf, k] for k, kind in enumerate(kinds))
        model.add(taken <= sum(segments)).with_name(f"fit_whole_groups[{leaf}]")
    for k, kind in enumerate(kinds):
        model.add(sum(whole[i, k] for i in units) <= kind.count).with_name(f"place_each_group_once[{k}]")
    model.add(sum(kind.count for kind in kinds) - sum(whole.values()) <= split).with_name("split_few_groups")
    need = sum(kind.size * kind.count for kind in kinds)
    model.add(sum(variable for segments in units.values() for variable in segments) >= need).with_name("fit_all_groups")
    unit = len(stop) + 1  # more than all jobs: those that cost nothing are not stopped for nothing
    model.minimize(sum((unit * cost + 1) * variable for cost, variable in zip(costs, stop, strict=True)))
    outcome = run(model, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    if outcome.objective is not None and outcome.bound is not None:
        cost = outcome.objective // unit
        bound = min(cost, math.ceil((outcome.bound - len(stop)) / unit))
        outcome = replace(outcome, objective=float(cost), bound=float(bound))
    if outcome.solution is None:
        return outcome.with_solution(None)
    return outcome.with_solution(tuple(job for job, variable in enumerate(stop) if outcome.solution.of(variable)))


@dataclass(frozen=True, slots=True)
class LeafLoad:
    """A leaf to be freed by a change's moves: its size, the nodes that stay taken, and the pieces that may move."""

    size: int
    fixed: int
    pieces: tuple[int, ...]


def minimize_moves(leaves: tuple[LeafLoad, ...], wanted: int, options: Options) -> Outcome[dict[tuple[int, int], int]]:
    """Change a cluster by the fewest nodes moved to free `wanted` more leaves; infeasible if no final state has them.

    The solution is the number of pieces at the end by (leaf, nodes of the piece).
    """
    from ortools.sat.python import cp_model

    from planner.solvers.cpsat import run

    model = cp_model.CpModel()
    now = {(i, size): count for i, leaf in enumerate(leaves) for size, count in Counter(leaf.pieces).items()}
    sizes = sorted({size for _, size in now})
    end = {
        (i, size): model.new_int_var(0, (leaf.size - leaf.fixed) // size, f"end[{i},{size}]")
        for i, leaf in enumerate(leaves)
        for size in sizes
        if leaf.size - leaf.fixed >= size
    }
    empty = {i: model.new_bool_var(f"empty[{i}]") for i, leaf in enumerate(leaves) if not leaf.fixed and leaf.size}
    for i, leaf in enumerate(leaves):
        room = leaf.size - leaf.fixed
        taken = sum(size * variable for (at, size), variable in end.items() if at == i)
        model.add(taken <= (room - room * empty[i] if i in empty else room)).with_name(f"fit_the_leaf[{i}]")
    for s in sizes:
        after = sum(variable for (_, other), variable in end.items() if other == s)
        model.add(after == sum(count for (_, other), count in now.items() if other == s))
    empty_now = sum(leaf.size > 0 and not leaf.fixed and not leaf.pieces for leaf in leaves)
    model.add(sum(empty.values()) >= empty_now + wanted).with_name("free_the_leaves")
    moved = []
    for (i, s), count in now.items():
        leaving = model.new_int_var(0, count, f"leaving[{i},{s}]")
        model.add(leaving >= count - end[i, s]).with_name(f"count_moves[{i},{s}]")
        moved.append(s * leaving)
    model.minimize(sum(moved))
    outcome = run(model, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    if outcome.solution is None:
        return outcome.with_solution(None)
    of = outcome.solution.of
    return outcome.with_solution({at: of(variable) for at, variable in end.items() if of(variable)})


def in_order(leaves: Sequence[LeafLoad], pieces: Sequence[Piece], targets: dict[int, int]) -> list[Step] | None:
    """Order the moves of a changed placement so that each piece comes to free nodes; None where no such order is known.

    Pieces are (leaf, nodes), `targets` the leaf of each that moves. Where all wait, the smallest makes a detour.
    """
    free = [leaf.size - leaf.fixed - sum(leaf.pieces) for leaf in leaves]
    at = [leaf for leaf, _ in pieces]
    waiting, steps, detours = dict(targets), list[Step](), set[int]()

    def move(piece: int, to: int) -> None:
        free[at[piece]] += pieces[piece][1]
        free[to] -= pieces[piece][1]
        at[piece] = to
        steps.append((piece, to))

    while waiting:
        ready = next((piece for piece, to in waiting.items() if free[to] >= pieces[piece][1]), None)
        if ready is not None:
            move(ready, waiting.pop(ready))
            continue
        aside = [
            (pieces[piece][1], piece, to)
            for piece in waiting
            if piece not in detours
            for to, room in enumerate(free)
            if to not in (at[piece], waiting[piece]) and room >= pieces[piece][1]
        ]
        if not aside:
            return None
        _, piece, to = min(aside)
        detours.add(piece)
        move(piece, to)
    return steps
