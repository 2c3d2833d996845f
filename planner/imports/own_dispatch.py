"""Whether a grid can feed its own load with no site at all, and which rules forbid it where it cannot.

A linear program of its own over plants and flows: it shares no row with the formulation of the site split. Of lossless
flows two maximum flows say first whether anything is short at all, in a second for 80,000 nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.instance.grid import Grid
from planner.physics.site.grid import normal_share

DEAR = 1e3  # a MW that plants lack, over a MW by which lines are too narrow: lines are blamed where they alone will do
LEAST_MW = 1e-3
NAMED = 3


@dataclass(frozen=True, slots=True)
class Shortage:
    """By how much a grid fails to feed itself: MW by line, by node that lacks feed, and by node that has too much."""

    rating: dict[str, float]
    generation: dict[str, float]
    balance: dict[str, float]

    def sentences(self) -> Iterator[str]:
        """Say for each rule what it lacks, the worst rows by name."""
        for rule, what in (
            ("rating", "lines are too narrow"),
            ("generation", "plants fall short"),
            ("balance", "must-run feed finds no load"),
        ):
            rows = sorted(getattr(self, rule).items(), key=lambda x: (-x[1], x[0]))
            if rows:
                named = ", ".join(f"{rule}[{name}] {mw:,.6g} MW" for name, mw in rows[:NAMED])
                more = f" and {len(rows) - NAMED:,} more" if len(rows) > NAMED else ""
                yield f"{what} by {sum(mw for _, mw in rows):,.6g} MW in all: {named}{more}"


def shortage(grid: Grid) -> Shortage:
    """Return the least by which lines and plants of a grid fall short of feeding its own load; nothing where they do.

    Lines that could be built stand for nothing, and outages are not asked of. Without flows nothing is asked.
    """
    import numpy as np
    from scipy import sparse
    from scipy.optimize import linprog

    rules, at = grid.rules, {n.id: i for i, n in enumerate(grid.nodes)}
    if rules.grid_model == "none" or (rules.grid_model == "transport" and _flows_suffice(grid)):
        return Shortage({}, {}, {})
    lines = [x for x in grid.lines if x.a != x.b]
    ends = np.array([(at[x.a], at[x.b]) for x in lines], dtype=int).reshape(-1, 2)
    n, k = len(at), len(lines)
    every, ones = np.arange(k), np.ones(k)
    into: Any = sparse.csr_matrix((np.r_[-ones, ones], (ends.T.ravel(), np.r_[every, every])), shape=(n, k))
    flow: Any = sparse.identity(k)
    if rules.grid_model == "dc":  # the free variables are angles, in units of 10 mrad
        flow = sparse.diags([x.circuits / (x.reactance_pu or np.inf) for x in lines]) @ -into.T
    width, node = flow.shape[1], sparse.identity(n)
    # Columns: generation, flows or angles, width that lines lack, feed that plants lack, feed that finds no load.
    balance = sparse.hstack([node, into @ flow, sparse.csr_matrix((n, k)), node, -node])
    none = sparse.csr_matrix((k, n))
    limits = sparse.vstack([sparse.hstack([none, sign * flow, -sparse.identity(k), none, none]) for sign in (1, -1)])
    capacity = np.array([normal_share(grid) * x.rating_mw * x.circuits for x in lines])
    plants = np.array([x.generation_mw if rules.generation else np.inf for x in grid.nodes])
    high = np.r_[plants, np.full(width + k + 2 * n, np.inf)]
    low = np.r_[np.zeros(n), np.full(width, -np.inf), np.zeros(k + 2 * n)]
    found = linprog(
        np.r_[np.zeros(n + width), ones, np.full(2 * n, DEAR)],
        A_ub=limits.tocsr(),
        b_ub=np.r_[capacity, capacity],
        A_eq=balance.tocsr(),
        b_eq=np.array([x.load_mw for x in grid.nodes]),
        bounds=np.c_[low, high],
        method="highs",
    )
    if found.x is None:
        return Shortage({}, {}, {})
    lacks, feed, spill = np.split(found.x[n + width :], [k, k + n])

    def named(names: list[str], mw: Any) -> dict[str, float]:
        return {names[i]: float(mw[i]) for i in np.flatnonzero(mw > LEAST_MW)}

    return Shortage(named([x.id for x in lines], lacks), named(list(at), feed), named(list(at), spill))


def _flows_suffice(grid: Grid) -> bool:
    """Return whether lossless flows can feed all load, and can bring all must-run feed to load.

    Then one flow does both: sources and loads that two flows use in full can be used in full at once.
    """
    load = [max(0.0, n.load_mw) for n in grid.nodes]
    must = [max(0.0, -n.load_mw) for n in grid.nodes]
    plants = [n.generation_mw if grid.rules.generation else sum(load) for n in grid.nodes]
    every = [a + b for a, b in zip(plants, must, strict=True)]
    return _brought(grid, every, load) == sum(map(_units, load)) and _brought(grid, must, load) == sum(
        map(_units, must)
    )


def _units(mw: float) -> int:
    """Return a power in units of 10 kW, rounded down, and no more than counts go."""
    return min(int(mw * 100 + 1e-6), 2**31 - 1)


def _brought(grid: Grid, fed: list[float], load: list[float]) -> int:
    """Return the most that lines bring from where it is fed in to load, in units of 10 kW."""
    import numpy as np
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_flow

    at = {n.id: i for i, n in enumerate(grid.nodes)}
    source, sink = len(at), len(at) + 1
    edges = [(source, i, _units(mw)) for i, mw in enumerate(fed)]
    edges += [(i, sink, _units(mw)) for i, mw in enumerate(load)]
    for x in grid.lines:
        mw = _units(normal_share(grid) * x.rating_mw * x.circuits)
        edges += [(at[x.a], at[x.b], mw), (at[x.b], at[x.a], mw)]
    a, b, units = (np.array(x) for x in zip(*edges, strict=True))
    joined = csr_matrix((units, (a, b)), shape=(len(at) + 2, len(at) + 2))
    joined.data = np.minimum(joined.data, 2**31 - 1)
    return int(maximum_flow(joined.astype(np.int32), source, sink).flow_value)
