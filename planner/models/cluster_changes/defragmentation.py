"""Which pieces of running jobs to move so that whole leaves become free, with the fewest nodes moved.

Pieces move whole, so that no group gets more of them. The model is of the end alone: how many pieces of each size stand
on each leaf then. What leaves a leaf must be moved at least once, so that its minimum is a bound; `in_order` finds a
sequence in which every piece moves into nodes that are free by then, and where none needs a detour that is the minimum.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.models.requests import Options
from planner.solvers.cpsat import run
from planner.solvers.outcome import Outcome

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
    """Minimize the nodes moved so that so many leaves more are wholly free; infeasible where no end has them."""
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
