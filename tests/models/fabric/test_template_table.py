"""Tables of templates against plain loops over their entries: what none beats, what some keep, and the least prices."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.models.fabric import template_table as tables
from planner.models.fabric.template_table import AT, KEY, DesignTable, DominanceTest

Entry = tuple[float, float, float, float, int]  # slowdowns of sends and all-reduces, dollars, MW, stripes


def drawn(seed: int, entries: int) -> list[Entry]:
    """Draw templates of few different values, so that many are equal in something."""
    r, slow = random.Random(seed), [1.0, 1.05, 1.5, 2.0, 3.0]
    figures = ((r.choice(slow), r.choice(slow), r.randint(1, 9), r.randint(1, 4)) for _ in range(entries))
    return [(*map(float, x), r.randint(1, 3)) for x in figures]


def table(entries: list[Entry]) -> DesignTable:
    key = np.zeros((len(entries), len(KEY)), dtype=np.int64)
    key[:, AT["stripes"]] = [x[4] for x in entries]
    return DesignTable(*[np.array([x[i] for x in entries], dtype=float) for i in range(4)], key)


def by_pairs(points: list[tuple[float, ...]]) -> list[int]:
    """Return the rows that no other matches or beats, of equal ones the first, pair by pair."""

    def ruled_out(i: int, j: int) -> bool:
        return all(p <= q for p, q in zip(points[i], points[j], strict=True)) and (points[i] != points[j] or i < j)

    every = range(len(points))
    return [j for j in every if not any(ruled_out(i, j) for i in every)]


@given(st.integers(1, 4).flatmap(lambda k: st.lists(st.tuples(*[st.sampled_from([0.0, 1, 2, 3, 4, 5, math.inf])] * k))))
@settings(max_examples=50, deadline=None)
def test_the_front_is_that_of_all_pairs(points: list[tuple[float, ...]]) -> None:
    columns = len(points[0]) if points else 2
    for at_a_time in (3, 256):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "AT_A_TIME", at_a_time)
            kept = tables.pareto_front(np.array(points, dtype=float).reshape(len(points), columns)).tolist()
        assert sorted(kept) == by_pairs(points)
        assert kept == sorted(kept, key=lambda i: points[i])


def entries_of(x: DesignTable) -> list[Entry]:
    stripes = x.key[:, AT["stripes"]].tolist()
    return list(zip(x.send.tolist(), x.allreduce.tolist(), x.usd.tolist(), x.mw.tolist(), stripes, strict=True))


def no_worse(a: Entry, b: Entry, *, power: bool) -> bool:
    """Say whether a is at least as calm and as cheap as b, and draws no more where that counts."""
    return all(p <= q for p, q in zip(a[: 3 + power], b[: 3 + power], strict=True))


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(28))
def test_what_is_kept_beats_all_that_is_not(seed: int, power: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # However many are compared at a time; of entries alike in all the fewest stripes stay.
    some = drawn(seed, 40)
    for at_a_time in (3, 256):
        monkeypatch.setattr(tables, "AT_A_TIME", at_a_time)
        kept = entries_of(tables.undominated([table(some[:25]), table(some[25:])], power_counts=power))
        assert set(kept) <= set(some)
        assert all(any(no_worse(a, b, power=power) for a in kept) for b in some)
        assert not any(no_worse(a, b, power=power) for a in kept for b in kept if a != b and (power or a[2] < b[2]))
        assert [x[2] for x in kept] == sorted(x[2] for x in kept)
        assert all(x[4] == min(y[4] for y in some if y[:4] == x[:4]) for x in kept)
    assert len(tables.undominated([], power_counts=power)) == 0


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(28))
def test_what_some_template_keeps(seed: int, power: bool) -> None:
    """An entry is beaten where one of the cheapest, or of the most frugal, that are as calm costs and draws no more."""
    # Where power does not count that is where any template is as calm at no more money.
    some, asked = drawn(seed, 12), drawn(1000 + seed, 60)
    found = DominanceTest(table(some), power_counts=power).beats(*(np.array([x[i] for x in asked]) for i in range(4)))
    for entry, beaten in zip(asked, found.tolist(), strict=True):
        calm = [x for x in some if x[0] <= entry[0] and x[1] <= entry[1]]
        any_does = any(no_worse(x, entry, power=power) for x in calm)
        assert beaten <= any_does
        if not power:
            assert beaten == any_does
            continue
        cheapest = [x for x in calm if x[2] == min(y[2] for y in calm)]
        frugal = [x for x in calm if x[3] == min(y[3] for y in calm)]
        if len({x[3] for x in cheapest}) == len({x[2] for x in frugal}) == 1:
            assert beaten == any(no_worse(x, entry, power=True) for x in (*cheapest, *frugal))
    nothing = DominanceTest(tables.NO_OPTIONS, power_counts=power).beats(*(np.ones(3) for _ in range(4)))
    assert nothing.tolist() == [False] * 3


@pytest.mark.parametrize("seed", range(28))
def test_the_least_price_at_a_slowdown(seed: int) -> None:
    some = drawn(seed, 10)
    sends = np.array([0.5, 1.0, 1.04, 1.05, 1.5, 2.0, 2.5, 3.0, 9.0])
    for allreduce in (0.5, 1.0, 1.2, 2.0, 3.0):
        found, _ = next(DominanceTest(table(some), power_counts=False).keeping(sends, allreduce))
        for send, usd in zip(sends.tolist(), found.tolist(), strict=True):
            fits = [x[2] for x in some if x[0] <= send and x[1] <= allreduce]
            assert usd == min(fits, default=math.inf)
