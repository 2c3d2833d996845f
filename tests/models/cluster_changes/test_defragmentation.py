"""Leaves made free by moving pieces: the fewest nodes moved of all ends, and moves that find their nodes free."""

import itertools
import random
from collections import Counter

import pytest

from planner.models.placement.cluster_changes import LeafLoad, in_order, minimize_moves
from planner.models.requests import Options
from planner.solvers.outcome import Stop


def drawn(seed: int) -> tuple[LeafLoad, ...]:
    """Draw a few leaves of up to six nodes, with nodes that stay, and pieces of one to three."""
    r = random.Random(seed)
    leaves = []
    for _ in range(r.randint(2, 4)):
        size, pieces = r.randint(3, 6), []
        fixed = r.choice([0, 0, 0, 1, 2])
        while (piece := r.randint(1, 3)) <= size - fixed - sum(pieces) and r.random() < 0.6:
            pieces.append(piece)
        leaves.append(LeafLoad(size, fixed, tuple(pieces)))
    return tuple(leaves)


def fewest(leaves: tuple[LeafLoad, ...], wanted: int) -> int | None:
    """Return the fewest nodes whose pieces end on another leaf, over every end with so many free leaves more."""
    pieces = [(i, n) for i, leaf in enumerate(leaves) for n in leaf.pieces]
    free_now = sum(not leaf.fixed and not leaf.pieces for leaf in leaves)
    best = None
    for end in itertools.product(range(len(leaves)), repeat=len(pieces)):
        taken = Counter({i: leaf.fixed for i, leaf in enumerate(leaves)})
        for at, (_, n) in zip(end, pieces, strict=True):
            taken[at] += n
        if any(taken[i] > leaf.size for i, leaf in enumerate(leaves)):
            continue
        if sum(taken[i] == 0 for i in range(len(leaves))) >= free_now + wanted:
            moved = sum(n for at, (i, n) in zip(end, pieces, strict=True) if at != i)
            best = moved if best is None else min(best, moved)
    return best


@pytest.mark.parametrize("wanted", [1, 2])
@pytest.mark.parametrize("seed", range(30))
def test_the_fewest_nodes_move(seed: int, wanted: int) -> None:
    """The nodes moved are the fewest of all ends, every leaf holds its pieces, and as many are free as wanted."""
    leaves = drawn(seed)
    least, outcome = fewest(leaves, wanted), minimize_moves(leaves, wanted, Options())
    assert outcome.stop is Stop.PROVED and outcome.infeasible == (least is None)
    if outcome.solution is None:
        return
    end = outcome.solution.at_end
    assert Counter(n for (_, n), k in end.items() for _ in range(k)) == Counter(n for x in leaves for n in x.pieces)
    left = {i: sum(n * k for (at, n), k in end.items() if at == i) for i in range(len(leaves))}
    assert all(left[i] + leaf.fixed <= leaf.size for i, leaf in enumerate(leaves))
    gone = sum(n * max(0, k - end.get((i, n), 0)) for i, x in enumerate(leaves) for n, k in Counter(x.pieces).items())
    assert gone == least == outcome.objective
    freed = outcome.solution.leaves
    assert freed == tuple(i for i, x in enumerate(leaves) if x.pieces and not x.fixed and not left[i])
    assert len(freed) >= wanted


def played(leaves: tuple[LeafLoad, ...], pieces: list[tuple[int, int]], steps: list[tuple[int, int]]) -> list[int]:
    """Make the moves one after another, each into nodes that are free by then; return where the pieces are at last."""
    free, at = [x.free for x in leaves], [i for i, _ in pieces]
    for piece, to in steps:
        assert to != at[piece] and free[to] >= pieces[piece][1]
        free[at[piece]] += pieces[piece][1]
        free[to] -= pieces[piece][1]
        at[piece] = to
    return at


@pytest.mark.parametrize("seed", range(30))
def test_moves_find_their_nodes_free(seed: int) -> None:
    """Pieces sent to any leaves that hold them all at the end get there, each move into free nodes, or no order is."""
    r, leaves = random.Random(seed), drawn(seed)
    pieces = [(i, n) for i, leaf in enumerate(leaves) for n in leaf.pieces]
    for _ in range(20):
        ends = [r.randrange(len(leaves)) for _ in pieces]
        held = [
            leaf.fixed + sum(n for to, (_, n) in zip(ends, pieces, strict=True) if to == i)
            for i, leaf in enumerate(leaves)
        ]
        if any(n > leaf.size for n, leaf in zip(held, leaves, strict=True)):
            continue
        targets = {p: to for p, (to, (i, _)) in enumerate(zip(ends, pieces, strict=True)) if to != i}
        steps = in_order(leaves, pieces, targets)
        if steps is not None:
            assert played(leaves, pieces, steps) == ends


def test_two_pieces_change_places_by_a_detour() -> None:
    """On full leaves of two nodes two pieces trade places by way of a third leaf; the smaller makes the detour.

    Without room elsewhere there is no order; a move that waits for another goes after it.
    """
    a, b, spare = LeafLoad(2, 0, (2,)), LeafLoad(2, 0, (2,)), LeafLoad(2, 0, ())
    pieces = [(0, 2), (1, 2)]
    steps = in_order((a, b, spare), pieces, {0: 1, 1: 0})
    assert steps is not None and len(steps) == 3
    assert played((a, b, spare), pieces, steps) == [1, 0]
    assert in_order((a, b), pieces, {0: 1, 1: 0}) is None
    assert in_order((a, b, spare), pieces, {0: 1, 1: 2}) == [(1, 2), (0, 1)]
    small = LeafLoad(3, 0, (1, 2)), LeafLoad(3, 0, (3,)), LeafLoad(3, 2, ())
    assert in_order(small, [(0, 1), (0, 2), (1, 3)], {0: 2}) == [(0, 2)]
    assert in_order((a, b), pieces, {}) == []
