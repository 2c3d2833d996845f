"""The search for a shape's fastest plan: slowdowns and fibre by their time, asked of the sites until one is paid.

It asks the sites for fabrics without WAN gateways, which cost no more and slow nothing more. What a gateway adds, with
its ports, is found for the sites that were chosen; where the money does not pay it the candidate is given up without a
proof that other sites would not pay, and its time stays a lower bound.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.models.fabric.fabric_templates import Template
from planner.models.fabric.template_table import DesignTable, DominanceTest
from planner.models.joint.joint_solution import CENTS, EPS, JointPlan, Target
from planner.models.joint.shapes.shape_problem import ShapeProblem, built, exchanged_bytes, first, where
from planner.models.joint.shapes.site_prices import Prices
from planner.models.joint.shapes.site_question import Circuit, PlacedParts, SitePart
from planner.models.joint.stage_split import LayerSplit
from planner.models.joint.strategy_space import Flags, Floats, Ints
from planner.physics.site import wan as wide_area

TIMED = 40  # candidates of a shape that are timed where only a likely plan is sought
AGREEMENT_ROUNDS = 8  # rounds in which the split of layers and the fibre that it exchanges over agree
MUCH_DEARER = 1.1  # fabrics with a gateway than without, which are not tried


@dataclass(frozen=True, slots=True)
class SlowdownLevel:
    """Slowdowns for a shape's fastest plan, which the fabrics of all its parts keep, and the least USD of these."""

    send: float
    allreduce: float
    usd: float


def with_gateways(
    q: ShapeProblem, waves: int, level: SlowdownLevel, placed: PlacedParts, without_gateways: dict[str, Template]
) -> tuple[PlacedParts, dict[str, Template]] | None:
    """Return fabrics with WAN gateways that keep the slowdowns of a shape's fastest plan, the cheapest, if any."""
    # `without_gateways`: the cheapest templates without gateways; templates that are much dearer are not tried.
    templates, wan, found = q.world.templates, q.world.problem.wan, dict[str, Template]()
    if templates is None:
        return None
    sizes, limits = sorted(set(q.shape.blocks), reverse=True), (level.send, level.allreduce)
    for site, (k, _) in placed.parts.items():
        # Gradients have at least the rate that the step counts on.
        sync = wan_gbps = (len(placed.parts) - 1) * waves * wan.wavelength_gbps
        if placed.wan is not None:
            wan_gbps = wide_area.wan_gbps(wan, (), placed.wan, site)
            demands = (d for d in placed.wan.demands if d.priority == 0 and site in (d.a, d.b))
            sync = math.fsum(d.requested_gbps for d in demands)
        traffic = replace(q.traffic, wan_gbps=wan_gbps, exchange_gbps=sync / wan.headroom_factor)
        x = templates.options(traffic, sizes[k], without_gateways[site].usd * MUCH_DEARER, max_slowdowns=limits)
        fits = np.flatnonzero((x.send <= level.send) & (x.allreduce <= level.allreduce))
        if not len(fits):
            return None
        found[site] = templates.template(traffic, sizes[k], x, int(fits[np.argmin(x.usd[fits])]))
    more = sum(t.usd for t in found.values()) - sum(t.usd for t in without_gateways.values())
    return replace(placed, capital_usd=placed.capital_usd + more), found


@dataclass(frozen=True, slots=True)
class NetworkCandidate:
    """Slowdowns and fibre that a shape's fastest plan may have, with seconds a sequence and least capital in USD."""

    seconds: float
    usd: float
    level: SlowdownLevel
    wavelengths: int
    rtt_ms: float


@dataclass(kw_only=True)
class FastestSearch:
    """The search for a shape's fastest plan: network candidates by time, each put to the sites until one is paid.

    Capital is bounded from below, first without and then with the answers of the sites.
    """

    shape_problem: ShapeProblem
    cutoff: float  # seconds a sequence that a plan must be below
    likely: bool = False  # only plans of stages as even as can be are sought
    # Of capital without fabric, by wavelengths and round trip, as a class of shapes has learned them.
    lower_bounds: dict[tuple[int, float], float] = field(default_factory=dict)
    floor_tables: dict[float, tuple[tuple[int, float, float], Floats]] = field(default_factory=dict)
    # Wavelengths, round trip and capital with fabrics.
    asked: dict[SlowdownLevel, list[tuple[int, float, float]]] = field(default_factory=dict)
    # The split of layers by slowdowns and wavelengths, at the shortest round trip.
    timed: dict[tuple[float, float, int], LayerSplit] = field(default_factory=dict)
    in_time: bool = False  # some candidate is, at the shortest round trip that may be paid as far as is known

    @property
    def _rtts(self) -> list[float]:
        """Round trips in ms that the budget may pay for a fastest plan; near ones until one meets the cutoff."""
        q = self.shape_problem
        if not self.in_time:
            return q.near_rtts_ms
        site_bounds = q.world.site_bounds if self.likely and q.several else None
        if site_bounds is not None:  # those that it is known to pay, if any are
            at, usd, paid = q.point(0.0), q.sites_usd, site_bounds.paid.items()
            trips = (p.rtt_ms for p, price in paid if price <= usd and replace(at, rtt_ms=p.rtt_ms).covers(p))
            if (shortest := min(trips, default=None)) is not None:
                return [r for r in q.rtts_ms if r >= shortest]
        return q.payable_rtts_ms

    @cached_property
    def options(self) -> dict[int, DesignTable]:
        """Return fabric templates for a shape's fastest plan, by blocks of a site; shallow in a first plan."""
        return self.shape_problem.options(self.cutoff, shallow=self.likely)

    @cached_property
    def levels(self) -> list[SlowdownLevel]:
        """List slowdowns for a shape's fastest plan that may be worth their price: smaller ones cost more."""
        # Where power counts all are listed, since a fabric of less power may beat one that is cheap and slows less; not
        # of a class of shapes, for which no fabric is chosen.
        q, sites, each = self.shape_problem, self.shape_problem.world.sites, self._usd_per_mw
        every = q.has_all_sizes and sites is not None and sites.data.counts_power
        if q.world.templates is None:
            phi = q.world.problem.transport_slowdown
            return [SlowdownLevel(phi, phi, 0.0)]
        parts = [x for x in self.options.values() if len(x)]
        if not parts:
            return []
        sends, allreduces = (np.unique(np.concatenate([getattr(x, n) for x in parts])) for n in ("send", "allreduce"))
        found: list[SlowdownLevel] = []
        lowest = np.full(len(sends), np.inf)
        priced = {
            g: DominanceTest(replace(x, usd=x.usd + each * x.mw) if each else x, power_counts=False)
            for g, x in self.options.items()
        }
        for allreduce in allreduces.tolist():
            q.world.deadline.check()
            tables = {g: next(front.keeping(sends, allreduce))[0] for g, front in priced.items()}
            usd = q.least_sum(tables) - self._power_usd
            worth = np.isfinite(usd)
            if not every:
                worth &= (usd < lowest * (1 - 1e-15)) & np.append(True, usd[1:] < usd[:-1])
            found += [SlowdownLevel(float(sends[i]), allreduce, float(usd[i])) for i in np.flatnonzero(worth)]
            lowest = np.minimum(lowest, usd)
        return found

    @property
    def _usd_per_mw(self) -> float:
        return 0.0 if self.shape_problem.world.sites is None else self.shape_problem.world.sites.fabric_usd_per_mw

    @cached_property
    def _power_usd(self) -> float:
        """Price in USD of the least power that a shape's fabrics draw, paid with the sites; 0 where none has any."""
        if not self._usd_per_mw:  # none without a network
            return 0.0
        mw = {g: np.array([x.mw.min() if len(x) else math.inf]) for g, x in self.options.items()}
        least = float(self.shape_problem.least_sum(mw)[0])
        return self._usd_per_mw * least if math.isfinite(least) else 0.0

    def next(self, target: Target) -> NetworkCandidate | None:
        """Return a shape's fastest network candidate, the cheapest of equals, that may be paid and beats the target."""
        self.cutoff = min(self.cutoff, target.cutoff)
        if not self._rtts or not len(self._wavelengths):
            return None
        best: NetworkCandidate | None = None
        late = set[tuple[SlowdownLevel, int]]()  # slowdowns and wavelengths that a longer round trip only slows more
        # The shortest round trip, and the next of each at which the sites were dearer than known before, or may be.
        rtts, asked = self._rtts, {t for known in self.asked.values() for _, t, _ in known}
        least = [self._lower_bounds(t) for t in rtts]
        dearer = (a in asked or bool(np.any(least[i + 1] < least[i])) for i, a in enumerate(rtts[:-1]))
        for rtt in (*rtts[:1], *itertools.compress(rtts[1:], dearer)):
            pairs = [x for x in self._affordable(rtt) if x not in late]
            bounds = self._bounds(pairs, rtt) if pairs else np.empty(0)
            order = np.argsort(bounds, kind="stable")[: TIMED if self.likely else len(pairs)].tolist()
            for place, i in enumerate(order):
                limit = self.cutoff if best is None else min(self.cutoff, best.seconds * (1 + EPS))
                if bounds[i] > limit:
                    late.update(pairs[j] for j in order[place:])
                    break
                self.shape_problem.world.deadline.check()
                level, waves = pairs[i]
                seconds = self._seconds(level, waves, rtt, limit)
                if seconds > limit or math.isinf(seconds):
                    late.add(pairs[i])
                    continue
                found = NetworkCandidate(seconds, float(self._totals(level, rtt)[waves]), level, waves, rtt)
                if target.ties(seconds):
                    found = self._fewest_wavelengths(found)
                    if found.usd > target.max_usd(seconds):
                        continue
                # It takes no longer than the best, but for rounding.
                if best is None or seconds < best.seconds * (1 - EPS) or found.usd < best.usd - CENTS:
                    best = found
        if best is None:
            return None
        if not self.in_time:  # over all round trips that the budget may pay, as some candidate meets the cutoff
            self.in_time = True
            return self.next(target)
        return self._fewest_wavelengths(best)

    def fewest_waves(self) -> list[tuple[SlowdownLevel, int]]:
        """Pair slowdowns for a shape's fastest plan within the cutoff with the fewest wavelengths by even stages."""
        if not self.levels or not self._rtts or not len(self._wavelengths):
            return []
        q, waves, count = self.shape_problem, self._wavelengths, len(self._wavelengths)
        send, allreduce = (np.array([getattr(level, name) for level in self.levels]) for name in ("send", "allreduce"))
        even = -(-q.column.strategy.problem.layers // q.column.p)  # layers of the largest stage, as the bound has them
        alone = q.even_seconds(send, allreduce, None)
        exchange = np.broadcast_to(q.exchange_seconds(even, q.fibre(waves, self._rtts[0])), waves.shape)

        def in_time(levels: Ints, places: Any) -> Flags:
            return np.asarray(q.on_clock(alone[levels] + exchange[places]) * (1 - EPS) < self.cutoff)

        near = np.flatnonzero(in_time(np.arange(len(alone)), count - 1))
        low, high = np.zeros(len(near), dtype=np.int64), np.full(len(near), count - 1)
        while (low < high).any():
            middle = (low + high) // 2
            fits = in_time(near, middle)
            low, high = np.where(fits, low, np.minimum(middle + 1, high)), np.where(fits, middle, high)
        return [(self.levels[i], int(n)) for i, n in zip(near.tolist(), waves[low], strict=True)]

    def waves_by_best_split(self, level: SlowdownLevel, waves: int) -> int | None:
        """Return the fewest wavelengths, `waves` or more, for a shape's fastest plan at its best split."""
        q, more = self.shape_problem, self._wavelengths[self._wavelengths >= waves]
        late = int(np.sum(q.min_by_waves(level.send, level.allreduce, self.cutoff, more) >= self.cutoff * (1 + EPS)))
        return int(more[late]) if late < len(more) else None

    def _fewest_wavelengths(self, c: NetworkCandidate) -> NetworkCandidate:
        limit, fewer = c.seconds * (1 + EPS / 2), self._wavelengths[self._wavelengths < c.wavelengths].tolist()
        at = first(len(fewer), lambda i: self._seconds(c.level, fewer[i], c.rtt_ms, limit) <= limit)
        if at is None:
            return c
        return replace(c, wavelengths=fewer[at], usd=float(self._totals(c.level, c.rtt_ms)[fewer[at]]))

    def _seconds(self, level: SlowdownLevel, waves: int, rtt: float, limit: float) -> float:
        key, q = (level.send, level.allreduce, waves), self.shape_problem
        # What a round trip adds to the shortest's comes on top of everything.
        trips = q.world.problem.wan.round_trips if q.several else 0.0
        later = trips * (rtt - q.rtts_ms[0]) / 1e3 / q.column.sequences
        if key not in self.timed:
            conditions = q.conditions(level.send, level.allreduce, q.fibre(waves, q.rtts_ms[0]))
            found = q.split(conditions, limit / q.min_stretch - later)
            if found is None:
                return math.inf
            self.timed[key] = found
        return float(q.on_clock(self.timed[key].seconds + later))

    def _affordable(self, rtt: float) -> list[tuple[SlowdownLevel, int]]:
        """List a shape's slowdowns that the budget may pay, with the most wavelengths paid in addition."""
        budget, usd = self.shape_problem.world.budget + CENTS, np.array([x.usd for x in self.levels])
        most = np.searchsorted(self._lower_bounds(rtt)[self._wavelengths], budget - usd, side="right")
        found: list[tuple[SlowdownLevel, int]] = []
        for level, count in zip(self.levels, most.tolist(), strict=True):
            if level in self.asked:
                fits = self._totals(level, rtt)[self._wavelengths] <= budget
                found += [(level, int(n)) for n in self._wavelengths[fits][-1:]]
            elif count:
                found.append((level, int(self._wavelengths[count - 1])))
        return found

    @property
    def is_unpaid(self) -> bool:
        """Whether the budget pays no fabrics for any plan of a shape, however slow they may be."""
        # Between sites it is not known where fibre is designed or ends at gateways: both depend on a column's bytes.
        q = self.shape_problem
        known = not q.several or not (q.designed or q.has_gateways)
        return known and math.isinf(self.cutoff) and not any(self._affordable(rtt) for rtt in self._rtts)

    def _bounds(self, found: list[tuple[SlowdownLevel, int]], rtt: float) -> Floats:
        q, waves = self.shape_problem, np.array([w for _, w in found])
        send, allreduce = (np.array([getattr(x, name) for x, _ in found]) for name in ("send", "allreduce"))
        return np.asarray(q.on_clock(q.even_seconds(send, allreduce, q.fibre(waves, rtt))))

    def try_sites(self, c: NetworkCandidate, target: Target) -> JointPlan | None:
        """Ask the sites for a network candidate's plan; if they cannot pay, record their cost without fabrics."""
        plan = self._as_built(c, target.max_usd(c.seconds))
        if plan is not None:
            self.asked.setdefault(c.level, []).append((c.wavelengths, c.rtt_ms, plan.capital_usd))
        return plan

    def _as_built(self, c: NetworkCandidate, most: float) -> JointPlan | None:
        """Return a candidate's cheapest plan as built, in its seconds a sequence or less, if `most` USD pay it."""
        q, sites, latest = self.shape_problem, self.shape_problem.world.sites, c.seconds * (1 + EPS)
        q.world.count("questions")
        if sites is None:
            return built(q, c.wavelengths, None, self._templates(c.level, None), latest)
        if q.several and not q.designed and math.isfinite(most):
            self._ask(c.wavelengths, c.rtt_ms)
            bound = float(self._lower_bounds(c.rtt_ms)[c.wavelengths]) + c.level.usd
            if bound > most + CENTS:
                self._refuse(c, bound, most)
                return None
        fabrics = {
            g: tuple((float(x.usd[i]), float(x.mw[i])) for i in self._chosen(g, c.level))
            for g, x in self.options.items()
        }
        parts = tuple(SitePart(g, q.traffic.racks(g), fabrics.get(g, ((0.0, 0.0),))) for g in q.shape.blocks)
        size = 0.0
        if q.designed:  # for the gradients that a stage exchanges between sites
            split = q.split(q.conditions(c.level.send, c.level.allreduce, q.fibre(c.wavelengths, c.rtt_ms)), math.inf)
            if split is None:
                raise RuntimeError("joint: a column that was timed cannot be split")
            size = exchanged_bytes(q.column, enumerate(split.layers))
        for _ in range(AGREEMENT_ROUNDS):
            placed = sites.cheapest(parts, Circuit(c.wavelengths, c.rtt_ms, size) if q.several else None)
            if placed is None or placed.capital_usd > most + CENTS:
                self._refuse(c, math.inf if placed is None else placed.capital_usd, most)
                return None
            templates = self._templates(c.level, placed)
            if q.has_gateways and (q.several or placed.wan is not None):  # some fibre may end at a site
                wanted = self._gateways(c, placed, templates, most)
                if wanted is None:
                    return None
                placed, templates = wanted
            plan, before = built(q, c.wavelengths, placed, templates, latest), size
            size = exchanged_bytes(q.column, enumerate(plan.split.layers))
            if size == before or not q.designed:
                return plan
        raise RuntimeError("joint: the split of layers and the design of the fibre do not settle")

    def _gateways(
        self, c: NetworkCandidate, placed: PlacedParts, without_gateways: dict[str, Template], most: float
    ) -> tuple[PlacedParts, dict[str, Template]] | None:
        """Give each site of a fastest plan its fabric with WAN gateway; None where unaffordable at these sites."""
        q = self.shape_problem
        found = with_gateways(q, c.wavelengths, c.level, placed, without_gateways)
        capital = math.inf if found is None else found[0].capital_usd
        if capital <= most + CENTS:
            return found
        bounds, asked = self._lower_bounds(c.rtt_ms), self.asked.setdefault(c.level, [])
        asked.append((c.wavelengths, c.rtt_ms, capital))
        if placed.wan is not None:  # what its gateways carry depends on the sites: others might pay
            q.world.unproven.seconds = min(q.world.unproven.seconds, c.seconds)
            return None

        def unpaid(waves: int) -> bool:
            found = with_gateways(q, waves, c.level, placed, without_gateways)
            usd = math.inf if found is None else float(bounds[waves]) + sum(t.usd for t in found[1].values())
            if usd > most + CENTS:
                asked.append((waves, c.rtt_ms, usd))
            return usd > most + CENTS

        # More wavelengths take more ports, whatever the sites: the costs met on the way to the fewest unpaid count.
        bisect_left(range(1, c.wavelengths), True, key=unpaid)
        return None

    def _refuse(self, c: NetworkCandidate, usd: float, most: float) -> None:
        q = self.shape_problem
        self.asked.setdefault(c.level, []).append((c.wavelengths, c.rtt_ms, usd))

        def paid(waves: int, rtt: float) -> bool:
            self._ask(waves, rtt)
            return bool(self._lower_bounds(rtt)[waves] + c.level.usd <= most + CENTS)

        if not q.designed:
            self._ask(int(self._wavelengths[0]), c.rtt_ms)  # prices at other wavelengths follow from both
        if not paid(c.wavelengths, c.rtt_ms) and q.several:
            # The fewest wavelengths, where prices follow from no others, and the shortest round trip at which the sites
            # can be paid: the costs met on the way are recorded.
            if q.designed:
                bisect_left(range(1, c.wavelengths), True, key=lambda n: not paid(n, c.rtt_ms))
            longer = self._rtts[self._rtts.index(c.rtt_ms) + 1 :]
            first(len(longer), lambda i: paid(c.wavelengths, longer[i]))

    def _ask(self, waves: int, rtt: float) -> None:
        prices = self._prices
        if prices is None:
            return
        if prices.exact:  # at the longest round trip first, where the sites are cheapest: they may be as near as asked
            prices.ask(waves, self._rtts[-1])
        prices.ask(waves, rtt, self._most_bytes)

    def _chosen(self, blocks: int, level: SlowdownLevel) -> list[int]:
        """List fabric templates of a shape's part that keep the slowdowns and may be worth their price."""
        # Where power counts each has less of it than the cheaper ones; else it is the cheapest alone.
        x = self.options[blocks]
        fits = np.flatnonzero((x.send <= level.send) & (x.allreduce <= level.allreduce))
        sites = self.shape_problem.world.sites
        if sites is None or not sites.data.counts_power:
            return [int(fits[0])]
        less = np.minimum.accumulate(np.append(np.inf, x.mw[fits]))[:-1]
        return [*map(int, fits[x.mw[fits] < less])]

    def _templates(self, level: SlowdownLevel, placed: PlacedParts | None) -> dict[str, Template]:
        q, templates, found = self.shape_problem, self.shape_problem.world.templates, dict[str, Template]()
        if templates is not None:
            for s, (k, f) in where(placed).items():
                n = q.sizes[-1 - k]
                found[s] = templates.template(q.traffic, n, self.options[n], self._chosen(n, level)[f])
        return found

    @cached_property
    def _wavelengths(self) -> Ints:
        """Numbers of wavelengths that a fastest plan may have between two sites; 0 at one site."""
        if not self.shape_problem.several:
            return np.zeros(1, dtype=np.int64)
        problem = self.shape_problem.world.problem
        wan, wanted = problem.wan, problem.instance.pins.get("wan.wavelengths")
        most = wan.max_wavelengths_per_pair * wan.max_fibre_pairs
        if wanted is not None and wanted > most:
            raise InputError(
                f"pins['wan.wavelengths']: {wanted} is outside the declared space; two sites share at most {most}"
            )
        return np.array([n for n in range(1, most + 1) if wanted in (None, n)], dtype=np.int64)

    @cached_property
    def _prices(self) -> Prices | None:
        """Site prices of a plan's racks without fabrics, shared by all shapes with the same racks by site."""
        q, sites = self.shape_problem, self.shape_problem.world.sites
        if sites is None:
            return None
        # Fabrics that cost nothing and draw the least of any that may be built: the same for every column with as many
        # racks by site and as many GPUs of each cabled.
        mw, racks = sites.min_fabric_mw(q.traffic.rails), [(g, q.traffic.racks(g)) for g in q.shape.blocks]
        parts = tuple(sites.part(g, n, n * mw) for g, n in racks)
        own = Prices(sites=sites, parts=parts)
        # Those for some bytes of a stage alone are of this column.
        found: Prices = own if self._most_bytes else sites.prices.setdefault(parts, own)
        return found

    @cached_property
    def _extent_prices(self) -> Prices | None:
        """Site prices without fabrics of all shapes with a plan's racks, sites and largest part."""
        q, bounds = self.shape_problem, self.shape_problem.world.site_bounds
        if bounds is None or bounds.sites.designed or not q.several:
            return None
        at = q.point(0.0)
        return bounds.prices.setdefault(at, Prices(sites=bounds.sites, parts=at.parts, racks=at.racks))

    @property
    def _most_bytes(self) -> float:
        """Bound a shape's gradient bytes of a stage: with more layers it is over the cutoff."""
        q = self.shape_problem
        if not q.designed:
            return 0.0
        column, layers = q.column, q.column.strategy.problem.layers
        even, most = -(-layers // column.p), layers - column.p + 1
        each = column.m * column.strategy.layer
        if self.likely:
            most = even
        elif math.isfinite(self.cutoff) and each > 0:
            most = min(most, max(even, math.floor(self.cutoff / q.min_stretch * column.sequences / each * (1 + EPS))))
        return exchanged_bytes(column, ((stage, most) for stage in (0, column.p // 2, column.p - 1)))

    def _totals(self, level: SlowdownLevel, rtt: float) -> Floats:
        """Bound a shape's capital in USD with fabrics that keep some slowdowns, by wavelengths."""
        # Of a number at which sites were refused designed fibre bounds no other, as more wavelengths may carry less of
        # other traffic; with WAN gateways it bounds none of fewer wavelengths, which take fewer ports.
        q, total = self.shape_problem, self._lower_bounds(rtt) + level.usd
        for n, t, usd in self.asked.get(level, ()):
            if t >= rtt and q.designed:
                total = np.maximum(total, np.where(np.arange(len(total)) == n, usd, 0.0))
            elif t >= rtt and q.several and q.has_gateways:
                total = np.maximum(total, np.where(np.arange(len(total)) >= n, usd, 0.0))
            elif t >= rtt:
                total = np.maximum(total, self._elsewhere(n, t, usd))
        return total

    def _lower_bounds(self, rtt: float) -> Floats:
        """Bound a shape's capital in USD without fabrics from below, by wavelengths."""
        # The shortest route's fibre, or what the sites returned. What sites cost at n wavelengths they cost at fewer
        # but for at most the longest route's fibre, and at more by the shortest's.
        q, sites, count = self.shape_problem, self.shape_problem.world.sites, len(self.shape_problem.shape.blocks)
        known = float(q.site_bounds_by_rtt[q.rtts_ms.index(rtt)])
        prices = self._prices
        if sites is None or not q.several:
            alone = 0.0 if prices is None else prices.lower(0, rtt)
            return np.array([max([q.floor_usd + self._power_usd, known, alone, *self.lower_bounds.values()])])
        key = 0 if prices is None else len(prices.answers), known, self._most_bytes
        if rtt not in self.floor_tables or self.floor_tables[rtt][0] != key:
            fibre = q.min_fibre_usd if sites.designed else sites.all_fibre_usd(count, sites.min_routes_km(count, rtt))
            if sites.designed and count == 2:
                fibre = sites.fibre.least_usd(self._most_bytes, rtt)[: len(fibre)]
            found = np.maximum(q.floor_usd + self._power_usd + fibre, self._elsewhere(1, rtt, known))
            for (n, t), usd in self.lower_bounds.items():
                if t >= rtt:
                    found = np.maximum(found, self._elsewhere(n, t, usd))
            if prices is not None:
                found = np.maximum(found, prices.lowers(rtt))
            self.floor_tables[rtt] = key, found
        return self.floor_tables[rtt][1]

    def _elsewhere(self, n: int, rtt: float, usd: float) -> Floats:
        """Bound a plan's capital by number of wavelengths, given its bound `usd` at n and a round trip."""
        # The bounds hold at that round trip or shorter ones.
        sites = self.shape_problem.world.sites
        if sites is None or not self.shape_problem.several:
            return np.array([usd])
        if sites.designed:  # more wavelengths need no less fibre; how much less fewer need is not known
            return np.where(np.arange(len(self.shape_problem.min_fibre_usd)) >= n, usd, 0.0)
        near, count = self.shape_problem.min_fibre_usd, len(self.shape_problem.shape.blocks)
        each_km = rtt / sites.data.wan.rtt_ms_per_100_route_km * 100
        far = sites.all_fibre_usd(count, count * (count - 1) // 2 * each_km)
        return np.asarray(np.where(np.arange(len(near)) >= n, usd + near - near[n], usd + far - far[n]))


def fastest(shape_problem: ShapeProblem, cutoff: float, *, likely: bool = False) -> JointPlan | None:
    """Return the fastest plan of a shape under a cutoff in seconds a sequence, of equal ones the cheapest, if any."""
    # `likely`: where fibre is designed, only plans of stages as even as can be are sought.
    search = FastestSearch(shape_problem=shape_problem, cutoff=cutoff, likely=likely)
    target = Target(cutoff, -math.inf, shape_problem.world.budget)
    sites = shape_problem.world.sites
    tries: Iterable[int] = itertools.count()
    if likely:  # few questions to the sites: where the fibre is designed each designs that of many groups of sites
        tries = range(10 if sites is None or not sites.designed else 2)
    for _ in tries:
        candidate = search.next(target)
        found = None if candidate is None else search.try_sites(candidate, target)
        if candidate is None or found is not None:
            return found
    return None
