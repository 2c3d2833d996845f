"""Bound from below the capital of any sites for given racks, without fabrics: by known points, monotone between them.

A point is a number of sites that hold blocks, their racks in all, the racks of the largest, the longest round trip
between two, and the wavelengths between them. The least capital grows with racks and wavelengths and falls with the
round trip, so an answer at one point is one at many others, of other shapes, columns and budgets.
"""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyomo.core as pyo

from planner.models.joint.shapes.site_milp import stated
from planner.models.joint.shapes.site_question import (
    COARSE_BITS,
    Circuit,
    PlacedParts,
    SiteQuestion,
    SitesExtent,
    nearer_pairs_first,
    without_dear_pairs,
)
from planner.models.joint.site_choice import Sites, read_placed
from planner.models.joint.strategy_space import Floats
from planner.physics.training.step_prediction import LayoutFibre
from planner.solvers.outcome import UnansweredError

EPS = 1e-9
CENTS = 0.005
CAMPUS_GAP = 0.003  # of a MILP whose bound alone counts
MUCH_USD = 1e29  # above any budget: no limit is meant


@dataclass(kw_only=True)
class SiteBounds:
    """Site bounds: the capital in USD that does not pay any sites for a point's racks, and that of some sites that do.

    The site MILP decides whether an amount pays a point, not the least that does: a MILP with a limit on capital and
    no goal is answered in a tenth of the time, and the search only compares amounts.
    """

    sites: Sites
    known: dict[SitesExtent, float] = field(default_factory=dict)  # capital that does not pay; infinite: none does
    paid: dict[SitesExtent, float] = field(default_factory=dict)  # capital of sites that hold a point
    tables: dict[tuple[int, int, int], tuple[int, Floats]] = field(default_factory=dict)
    prices: dict[SitesExtent, Any] = field(default_factory=dict)  # of points at any round trip
    # Whether the money pays any sites, and the widest fibre between them, by money, point and GPUs cabled.
    fibres: dict[Any, tuple[bool, LayoutFibre | None]] = field(default_factory=dict)

    def bound(self, at: SitesExtent) -> float:
        """Bound from below the capital in USD of sites for a point by the points known."""
        return max((usd for p, usd in self.known.items() if p.covers(at)), default=0.0)

    def by_rtt(self, at: SitesExtent, rtts_ms: list[float]) -> Floats:
        """Bound from below the capital in USD of sites at each of all longest round trips, ascending."""
        key = at.sites, at.racks, at.largest
        count, table = self.tables.get(key, (-1, np.empty(0)))
        if count != len(self.known) or len(table) != len(rtts_ms):
            table, rtts = np.zeros(len(rtts_ms)), np.array(rtts_ms)
            for p, usd in self.known.items():
                if p.covers(replace(at, rtt_ms=p.rtt_ms)):
                    table[rtts <= p.rtt_ms] = np.maximum(table[rtts <= p.rtt_ms], usd)
            self.tables[key] = len(self.known), table
        return table

    def exceeds(self, at: SitesExtent, usd: float) -> bool:
        """Return whether a point needs more site capital than an amount; ask only where known points leave it open."""
        # A coarse point is asked first, and with more money: an amount that does not pay it does not pay many others
        # either, and a point that no money pays is asked once.
        if self.bound(at) > usd:
            return True
        for point, most in ((at.coarse, rounded_up(usd)), (at, usd)):
            known = any(price <= most and point.covers(p) for p, price in self.paid.items())
            if not known and not self._pays(point, most):
                return True
        return False

    def _pays(self, at: SitesExtent, usd: float) -> bool:
        s, circuit = self.sites, Circuit(at.wavelengths, at.rtt_ms) if at.sites > 1 else None
        s.deadline.check()
        most = usd * (1 + EPS) + CENTS if usd < MUCH_USD else math.inf
        ways = nearer_pairs_first(s.question(at.parts, circuit, {}), most - s.floor_usd(at.racks, at.sites))
        for q in ways:
            m = stated(q, racks=at.racks)
            m.goal.deactivate()
            if math.isfinite(most):
                m.spent = pyo.Constraint(expr=m.total <= most / 1e6)
            outcome = s.run(m)
            if not outcome.infeasible and outcome.solution is None:
                raise UnansweredError(f"joint sites: the MILP ended without an answer ({outcome.detail})")
            if outcome.solution is not None and (q is ways[-1] or q.circuit is not None):
                # Its sites pay the tightest point that they hold.
                placed = read_placed(m, q, outcome)
                point = replace(
                    at,
                    racks=max(at.racks, sum(placed.racks.values())),
                    largest=max(at.largest, *(placed.racks[x] for x in placed.parts)),
                    rtt_ms=placed.rtt_ms,
                )
                self.paid[point] = min(placed.capital_usd, self.paid.get(point, math.inf))
                return True
            if outcome.infeasible and (q is ways[-1] or q.circuit is None):
                break
        self.known[at] = max(self.known.get(at, 0.0), most)
        return False

    def cheapest(self, at: SitesExtent, circuit: Circuit | None) -> PlacedParts | None:
        """Return the cheapest sites of a point over a circuit, without fabrics; None where there are none."""
        return self.sites.answer(self.sites.question(at.parts, circuit, {}), partial(stated, racks=at.racks))


def rounded_up(usd: float) -> float:
    """Return an amount in USD for the site bounds to test, rounded up to its first bits: by 1 in 32 at most."""
    if not 0 < usd < MUCH_USD:
        return usd
    step = 2.0 ** (math.floor(math.log2(usd)) - COARSE_BITS)
    return math.ceil(usd / step) * step


def least_campus_usd(s: Sites, sites: int, racks: int, module_musd: float) -> float:
    """Return the site bound on the capital in USD of at least `racks` racks at `sites` sites, without fabrics."""
    # `module_musd` is taken off for each module; the bound is infinite where no sites hold the racks.
    rtts = s.rtts_ms
    if sites > 1 and not rtts:
        return math.inf
    circuit = Circuit(1, rtts[-1]) if sites > 1 else None
    parts = SitesExtent(sites, racks, -(-racks // sites), 0.0).parts

    def priced(q: SiteQuestion) -> Any:
        m = stated(q, racks=racks)
        m.goal.set_value(m.total - module_musd * sum(m.modules.values()))
        return m

    q = without_dear_pairs(s.question(parts, circuit, {}), priced, s.run)
    outcome = None if q is None else s.run(priced(q), gap=CAMPUS_GAP)
    if outcome is None or outcome.infeasible:
        return math.inf
    if outcome.bound is None:
        raise UnansweredError(f"joint sites: the MILP ended without a bound ({outcome.detail})")
    return outcome.bound * 1e6 - abs(outcome.bound) * 1e6 * EPS
