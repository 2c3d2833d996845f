"""The cheapest plan of one column in one shape whose time is within a limit.

Slowdowns and fibre in the order of their least capital. Time never falls as a network slows or fibre narrows, so each
choice of slowdowns needs a least number of wavelengths; more of them allow longer round trips, and so other sites.
"""

import heapq
import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import le
from typing import Any

from planner.models.fabric.fabric_templates import Template
from planner.models.joint.joint_solution import EPS, JointPlan
from planner.models.joint.search.capital_floor import MinPrices
from planner.models.joint.shapes.fastest_plan import FastestSearch, NetworkCandidate, SlowdownLevel
from planner.models.joint.shapes.shape_problem import first
from planner.models.joint.shapes.site_question import PlacedParts


@dataclass(frozen=True, slots=True)
class SlowdownChoice:
    """Slowdowns with a number of wavelengths, a node in the search for a shape's cheapest plan."""

    level: SlowdownLevel
    waves: int
    sharp: bool = False  # fewer do not meet the cutoff even with layers split at best
    timed: bool = False  # they meet the cutoff at the shortest round trip, not only by a bound
    priced: bool = False  # the sites were asked for them


@dataclass(kw_only=True)
class CheapestSearch(FastestSearch):
    """The search for a shape's cheapest plan; `cutoff` is the limit on seconds a sequence."""

    floor_usd: MinPrices
    # Points in time (True) or late: slowdowns of sends and of all-reduces, wavelengths negated, and the round trip.
    # No step takes longer where none of the four is larger.
    timed_points: dict[bool, list[Any]] = field(default_factory=lambda: {True: [], False: []})

    def steps(self) -> Iterator[float | JointPlan]:
        """Yield rising lower bounds on the capital in USD of a shape's remaining plans, and the cheapest plans."""
        if not self._rtts or not len(self._wavelengths):
            return
        q, fewest, last, order = self.shape_problem, int(self._wavelengths[0]), self._rtts[-1], itertools.count()
        if q.racks > 4096:  # up to these, tables of fabrics take less time than a MILP over sites, and come before it
            templates = q.world.templates
            # Few fabrics have all-reduce groups under one leaf, and mostly none: where they must, tables come first.
            if templates is None or templates.min_local_share == 0:
                self._ask_sites(fewest, last)
                # The least fabrics: for each GPU cabled its link and a port of the cheapest leaf.
                yield self._base(fewest, last, built=False) + q.racks * q.traffic.rails * self.floor_usd.rail_usd
        choices = [SlowdownChoice(*x) for x in self.fewest_waves()]
        if not choices:
            return
        yield min(self._base(c.waves, last) + c.level.usd for c in choices)
        for waves in {fewest, choices[0].waves, choices[-1].waves}:
            self._ask_sites(waves, last)
        heap = [(self._base(c.waves, last) + c.level.usd, next(order), c) for c in choices]
        heapq.heapify(heap)
        while heap:
            usd, _, choice = heapq.heappop(heap)
            yield usd
            for usd_of, answer in self._expand(choice):
                if isinstance(answer, JointPlan):
                    yield answer
                else:
                    heapq.heappush(heap, (max(usd, usd_of), next(order), answer))

    def _ask_sites(self, waves: int, rtt: float) -> bool:
        """Ask for a price of a shape's sites; of three or more first for that of all shapes of such racks: True."""
        prices = self._extent_prices
        if prices is None or len(prices.parts) < 3:  # of two, the largest part says what both hold
            self._ask(waves, rtt)
        elif not prices.is_known(waves, rtt):
            prices.ask(waves, rtt)
            return True
        return False

    def _fewest(self, level: SlowdownLevel, rtt: float, above: int) -> int | None:
        waves = self._wavelengths[self._wavelengths > above]
        at = first(len(waves), lambda i: self._in_time(level, int(waves[i]), rtt))
        return None if at is None else int(waves[at])

    def _in_time(self, level: SlowdownLevel, waves: int, rtt: float) -> bool:
        point = level.send, level.allreduce, -waves, rtt
        if any(all(map(le, point, x)) for x in self.timed_points[True]):
            return True
        if any(all(map(le, x, point)) for x in self.timed_points[False]):
            return False
        found = self._seconds(level, waves, rtt, self.cutoff) < self.cutoff
        self.timed_points[found].append(point)
        return found

    def _expand(self, c: SlowdownChoice) -> list[tuple[float, SlowdownChoice | JointPlan]]:
        if not c.sharp:
            fewest = self.waves_by_best_split(c.level, c.waves)
            return [] if fewest is None else self._reached(replace(c, waves=fewest, sharp=True))
        if not c.timed:
            fits = self._in_time(c.level, c.waves, self._rtts[0])
            waves = c.waves if fits else self._fewest(c.level, self._rtts[0], c.waves)
            return [] if waves is None else self._reached(replace(c, waves=waves, timed=True))
        at = self._longest(c)
        if not c.priced:
            if self._ask_sites(c.waves, self._rtts[at]):
                return self._reached(c)
            self._ask(c.waves, self._rtts[at])
            bound = self._base(c.waves, self._rtts[at]) + c.level.usd
            return [(bound, replace(c, priced=True)), *self._reached(self._later(c))]
        if self._beaten(c, self._rtts[at]):
            return []
        plan = self._as_built(NetworkCandidate(self.cutoff, 0.0, c.level, c.waves, self._rtts[at]), math.inf)
        if plan is not None and self.shape_problem.world.sites is None:
            plan = replace(plan, capital_usd=self._base(0, 0.0) + sum(t.usd for t in plan.templates.values()))
        elif plan is not None and plan.seconds > self.cutoff * (1 + EPS):
            raise RuntimeError("joint: a plan that was timed is late as built")
        return [] if plan is None else [(plan.capital_usd, plan)]

    def _reached(self, c: SlowdownChoice | None) -> list[tuple[float, SlowdownChoice | JointPlan]]:
        """Return a cheapest plan's slowdown choice with its bound, or the first after it that sites may have."""
        while c is not None:
            if self._base(c.waves, self._rtts[self._longest(c)]) < math.inf:
                # The choices behind it are opened with it, and allow longer round trips, at which sites may cost less.
                # So its key is the bound at the longest of all.
                return [(self._base(c.waves, self._rtts[-1]) + c.level.usd, c)]
            c = self._later(c)
        return []

    def _later(self, c: SlowdownChoice) -> SlowdownChoice | None:
        # Where the fibre is designed, the next of all: more wavelengths may carry less of other traffic.
        prices = self._prices
        if prices is not None and not prices.exact:
            more = self._wavelengths[self._wavelengths > c.waves]
            return replace(c, waves=int(more[0]), priced=False) if len(more) else None
        longer = self._rtts[self._longest(c) + 1 :]
        rtt = next((t for t in longer if prices is None or prices.lower(c.waves, t) < math.inf), None)
        waves = None if rtt is None else self._fewest(c.level, rtt, c.waves)
        return None if waves is None else replace(c, waves=waves, priced=False)

    def _longest(self, c: SlowdownChoice) -> int:
        return bisect_left(self._rtts, True, lo=1, key=lambda rtt: not self._in_time(c.level, c.waves, rtt)) - 1

    def _beaten(self, c: SlowdownChoice, rtt: float) -> bool:
        """Return whether slower fabrics meet a cheapest plan's cutoff too: they include these templates."""
        sites = self.shape_problem.world.sites
        if sites is None or not sites.data.counts_power:
            return False
        sends = [x.send for x in self.levels if x.send > c.level.send]
        allreduces = [x.allreduce for x in self.levels if x.allreduce > c.level.allreduce]
        slower = [replace(c.level, send=min(sends))] if sends else []
        slower += [replace(c.level, allreduce=min(allreduces))] if allreduces else []
        return any(self._in_time(x, c.waves, rtt) for x in slower)

    def _gateways(
        self, c: NetworkCandidate, placed: PlacedParts, without_gateways: dict[str, Template], most: float
    ) -> tuple[PlacedParts, dict[str, Template]] | None:
        """Give each site of the cheapest plan a fabric with its WAN gateway; None where one site has none."""
        found = super()._gateways(c, placed, without_gateways, most)
        if placed.wan is not None or found is None:  # what they carry depends on the sites: others may do
            unproven = self.shape_problem.world.unproven
            unproven.usd = min(unproven.usd, placed.capital_usd)
        return found

    @property
    def _most_bytes(self) -> float:
        """0, for any number of bytes: all columns with a shape's racks share the price of sites."""
        return 0.0

    def _refuse(self, c: NetworkCandidate, usd: float, most: float) -> None:
        """Record nothing: for the cheapest plan any amount pays, so a refusal means no sites hold the parts."""

    def _base(self, waves: int, rtt: float, *, built: bool = True) -> float:
        """Bound a cheapest plan's capital without fabrics, but with the sites' price of the least power they draw."""
        # It is that at `waves` wavelengths and round trips up to `rtt` ms; `built`: of fabrics that may be built, which
        # draw no less than their links and leaf ports.
        q = self.shape_problem
        alone = self.floor_usd.usd_over([q.traffic.racks(g) for g in q.shape.blocks])
        if self._prices is None:
            return alone
        least = q.min_power_usd  # the prices of the shape's own racks count it
        power = self._power_usd if built else least
        fibre = float(q.min_fibre_usd[waves] - q.min_fibre_usd[1]) if q.several else 0.0
        extent = self._extent_prices
        known = 0.0 if extent is None else extent.lower(waves, rtt)
        return max(max(alone + fibre, known) + power, self._prices.lower(waves, rtt) + power - least)
