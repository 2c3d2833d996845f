"""Which pieces of running jobs to move so that whole leaves become free, with the fewest nodes moved.

Pieces move whole, so that no group gets more of them, and into nodes that are free now, so that the moves run in any
order; never into a wholly free leaf, which would only change places with the one that is freed.
"""

from collections import Counter
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.models.requests import Options
from planner.solvers.cpsat import run
from planner.solvers.outcome import Outcome


@dataclass(frozen=True, slots=True)
class LeafLoad:
    """A leaf: its free nodes, its size, the sizes of the pieces on it, and whether all of them may move."""

    free: int
    size: int
    pieces: tuple[int, ...]
    movable: bool


@dataclass(frozen=True, slots=True)
class Freed:
    """Leaves that become free, and how many pieces of each size move into each leaf."""

    leaves: tuple[int, ...]
    moved: dict[tuple[int, int], int]  # (nodes of the piece, leaf) -> pieces


def minimize_moves(leaves: tuple[LeafLoad, ...], wanted: int, options: Options) -> Outcome[Freed]:
    """Minimize the nodes moved so that so many leaves more become free; infeasible where no moves free them."""
    model = cp_model.CpModel()
    freed = {i: model.new_bool_var(f"freed[{i}]") for i, leaf in enumerate(leaves) if leaf.movable and leaf.pieces}
    target_free = {i: leaf.free for i, leaf in enumerate(leaves) if 0 < leaf.free < leaf.size}
    sizes = {i: Counter(leaves[i].pieces) for i in freed}
    moved: dict[tuple[int, int], cp_model.IntVar] = {}
    for s in sorted({s for on_leaf in sizes.values() for s in on_leaf}):
        for m, free in sorted(target_free.items()):
            if free >= s:
                moved[s, m] = model.new_int_var(0, free // s, f"moved[{s},{m}]")
        leaving = sum(on_leaf[s] * freed[i] for i, on_leaf in sizes.items())
        model.add(sum(v for (t, _), v in moved.items() if t == s) == leaving).with_name(f"move_pieces_whole[{s}]")
    for m, free in target_free.items():
        coming = sum(s * v for (s, at), v in moved.items() if at == m)
        model.add(coming <= (free - free * freed[m] if m in freed else free)).with_name(f"move_into_free_nodes[{m}]")
    model.add(sum(freed.values()) == wanted).with_name("free_the_leaves")
    model.minimize(sum(sum(leaves[i].pieces) * v for i, v in freed.items()))
    outcome = run(model, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    solution = None
    if outcome.solution is not None:
        of = outcome.solution.of
        solution = Freed(tuple(i for i, v in freed.items() if of(v)), {at: of(v) for at, v in moved.items() if of(v)})
    return outcome.with_solution(solution)
