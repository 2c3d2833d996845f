"""What any sites for so many racks cost at least, without fabrics: known at some points, and monotone between them.

A point is a number of sites that hold blocks, their racks in all, the racks of the largest, and the longest round
trip between two. The least capital grows with both counts of racks and falls with the round trip, so an answer at one
point is a bound at many others, of other shapes, columns and budgets.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyomo.environ as pyo

from planner.models.joint.places.milp import (
    LEFT_OUT,
    Circuit,
    Part,
    Question,
    add_parts,
    choose_fabrics,
    design_fibre,
    join_sites,
    place_parts,
    total_musd,
)
from planner.models.joint.places.near_pairs import without_dear_pairs
from planner.models.joint.sites import Sites
from planner.models.joint.space import Floats
from planner.models.sites.model import build
from planner.solvers import highs
from planner.solvers.outcome import UnansweredError

EPS = 1e-9
COARSE_BITS = 5  # behind the first, that a coarse number of racks keeps: 1.6 to 3.1 % of it


@dataclass(frozen=True, slots=True)
class Point:
    """Sites that hold blocks, racks in all and of the largest site, and the longest round trip between two."""

    sites: int
    racks: int
    largest: int
    rtt_ms: float

    @property
    def coarse(self) -> "Point":
        """A point that covers this one and many others: a few hundredths fewer racks."""
        return replace(self, racks=_down(self.racks), largest=_down(self.largest))

    def covers(self, other: "Point") -> bool:
        """Return whether what this point costs at least the other does too: no more racks, no shorter round trip."""
        return (
            self.sites == other.sites
            and self.racks <= other.racks
            and self.largest <= other.largest
            and self.rtt_ms >= other.rtt_ms
        )


def _down(racks: int) -> int:
    """Return a number of racks rounded down in its first bits."""
    step = 1 << max(0, racks.bit_length() - 1 - COARSE_BITS)
    return racks // step * step


@dataclass(kw_only=True)
class SiteBounds:
    """The least capital of sites by their racks, as far as it was asked for."""

    sites: Sites
    known: dict[Point, float] = field(default_factory=dict)
    tables: dict[tuple[int, int, int], tuple[int, Floats]] = field(default_factory=dict)

    def bound(self, at: Point) -> float:
        """Bound the capital from below by what is known."""
        return max((usd for p, usd in self.known.items() if p.covers(at)), default=0.0)

    def by_rtt(self, at: Point, rtts_ms: list[float]) -> Floats:
        """Bound the capital at each of all longest round trips that there are, ascending."""
        key = at.sites, at.racks, at.largest
        count, table = self.tables.get(key, (-1, np.empty(0)))
        if count != len(self.known) or len(table) != len(rtts_ms):
            table, rtts = np.zeros(len(rtts_ms)), np.array(rtts_ms)
            for p, usd in self.known.items():
                if p.sites == at.sites and p.racks <= at.racks and p.largest <= at.largest:
                    table[rtts <= p.rtt_ms] = np.maximum(table[rtts <= p.rtt_ms], usd)
            self.tables[key] = len(self.known), table
        return table

    def ask(self, at: Point) -> float:
        """Return the capital of the cheapest sites, without fabrics; infinite where there are none."""
        if at not in self.known:
            usd, answer = self._least(at)
            self.known[at] = max(self.bound(at), usd)
            if answer is not None:
                # The answer keeps a tighter point too, where the least can be no more than it and no less than here.
                self.known.setdefault(answer, self.known[at])
        return self.known[at]

    def exceeds(self, at: Point, usd: float) -> bool:
        """Return whether the least capital exceeds an amount; ask only where what is known does not decide it."""
        if self.bound(at) > usd:
            return True
        if self._fits(at, usd):
            return False
        coarse = at.coarse
        if not self._fits(coarse, usd) and self.ask(coarse) > usd:  # an answer for many points
            return True
        return self.ask(at) > usd

    def _fits(self, at: Point, usd: float) -> bool:
        """Return whether an amount is known to pay a point."""
        return any(at.covers(p) and least <= usd for p, least in self.known.items())

    def _least(self, at: Point) -> tuple[float, Point | None]:
        """Ask the sites: one part as large as the largest, others of a rack at least, and all racks somewhere.

        Return the least capital, and the tightest point that the answer keeps.
        """
        s, circuit = self.sites, Circuit(1, at.rtt_ms) if at.sites > 1 else None
        s.deadline.check()
        parts = (Part(1, at.largest, ((0.0, 0.0),)), *[Part(0, 1, ((0.0, 0.0),))] * (at.sites - 1))
        q = without_dear_pairs(s.question(parts, circuit, {}), lambda q: stated(q, at.racks), s.run)
        if q is None:
            return math.inf, None
        m = stated(q, at.racks)
        outcome = s.run(m)
        if outcome.infeasible:
            return math.inf, None
        if outcome.bound is None:
            raise UnansweredError(f"joint sites: the MILP ended without a bound ({outcome.detail})")
        kept = None if outcome.solution is None or not outcome.proved else tightest(m, q, at, outcome.solution)
        return outcome.bound * 1e6 * (1 - EPS), kept


def stated(q: Question, racks: int) -> Any:
    """State the MILP of the least sites for so many racks in all."""
    m = build(q.data, without=LEFT_OUT, extend=lambda m: add_parts(m, q, loose=False))
    for rule in (place_parts, host_parts, choose_fabrics, join_sites, design_fibre):
        rule(m, q)
    hold_all_racks(m, q, racks)
    m.goal = pyo.Objective(expr=total_musd(m, q))
    return m


def tightest(m: Any, q: Question, at: Point, values: highs.Values) -> Point:
    """Return the tightest point that an answer keeps: its racks, and the longest round trip between its sites."""
    holders = [x for x in q.data.candidates if sum(round(values.of(m.part[x, k])) for k in range(len(q.kinds)))]
    racks = {x: round(values.of(m.modules[x])) * q.data.module_racks for x in q.data.candidates}
    trips = [q.data.rtt_ms(p) for p in q.data.pairs if set(p) <= set(holders)]
    return Point(
        sites=at.sites,
        racks=max(at.racks, sum(racks.values())),
        largest=max(at.largest, max((racks[x] for x in holders), default=0)),
        rtt_ms=max(trips, default=at.rtt_ms),
    )


def host_parts(m: Any, q: Question) -> None:
    """Buy at least the racks of a site's part."""

    def row(m: Any, x: str) -> Any:
        return m.modules[x] >= sum(q.modules(p) * m.part[x, k] for k, (p, _) in enumerate(q.kinds))

    m.host_parts = pyo.Constraint(list(q.data.candidates), rule=row)


def hold_all_racks(m: Any, q: Question, racks: int) -> None:
    """Buy so many racks in all, in whole modules."""
    m.hold_all_racks = pyo.Constraint(expr=sum(m.modules.values()) >= -(-racks // q.data.module_racks))


def first(count: int, fits: Callable[[int], bool]) -> int | None:
    """Return the first of some ascending places that fits, all behind it fitting too; None where the last does not."""
    if count == 0 or not fits(count - 1):
        return None
    low, high = -1, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
