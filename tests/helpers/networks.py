"""Small networks, and max-min fairness by the book, for the simulation's tests."""

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from planner.simulation.routing import Routes


def routes_of(links: list[list[tuple[int, float]]], capacity: list[float], size: list[float] | None = None) -> Routes:
    """Return routes of one part a flow from lists of (link, weight)."""
    start = np.concatenate([[0], np.cumsum([len(x) for x in links])]).astype(np.int64)
    return Routes(
        start=start,
        link=np.asarray([k for x in links for k, _ in x], np.int64),
        weight=np.asarray([w for x in links for _, w in x], float),
        flow=np.arange(len(links)),
        size=np.asarray(size or [1.0] * len(links)),
        capacity=np.asarray(capacity, float),
    )


def fill(links: list[list[tuple[int, Fraction]]], capacity: list[Fraction]) -> list[Fraction]:
    """Raise all rates together in exact fractions; stop each where a link of its own is full (progressive filling)."""
    rate: dict[int, Fraction] = {}
    while len(rate) < len(links):
        shares = {}
        for k, c in enumerate(capacity):
            rising = sum((w for f, x in enumerate(links) if f not in rate for j, w in x if j == k), Fraction(0))
            fixed = sum((w * rate[f] for f, x in enumerate(links) if f in rate for j, w in x if j == k), Fraction(0))
            if rising:
                shares[k] = (c - fixed) / rising
        level = min(shares.values())
        full = {k for k, s in shares.items() if s == level}
        rate |= {f: level for f, x in enumerate(links) if f not in rate and any(j in full for j, _ in x)}
    return [rate[f] for f in range(len(links))]


@st.composite
def networks(
    draw: st.DrawFn, most_links: int = 8, most_flows: int = 12
) -> tuple[list[list[tuple[int, Fraction]]], list[Fraction]]:
    """Draw flows on random links with random weights and capacities."""
    count = draw(st.integers(1, most_links))
    quarter = st.integers(1, 8).map(lambda n: Fraction(n, 4))
    flow = st.lists(st.tuples(st.integers(0, count - 1), quarter), min_size=1, max_size=4, unique_by=lambda x: x[0])
    return draw(st.lists(flow, min_size=1, max_size=most_flows)), draw(
        st.lists(quarter, min_size=count, max_size=count)
    )
