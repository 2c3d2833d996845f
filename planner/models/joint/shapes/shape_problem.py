"""The problem of one column in one shape: what it asks of sites, fabrics and fibre, and its time, as built too."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from planner.instance.instance import ONE_SITE
from planner.models.fabric.fabric_templates import Template
from planner.models.fabric.site_traffic import SiteTraffic
from planner.models.fabric.template_table import DesignTable
from planner.models.joint.joint_question import World
from planner.models.joint.joint_solution import EPS, JointPlan
from planner.models.joint.shapes.blocks_by_site import Shape
from planner.models.joint.shapes.site_question import PlacedParts, SitesExtent
from planner.models.joint.stage_split import Column, LayerSplit, Stages
from planner.models.joint.stops_and_spares import Calendar
from planner.models.joint.strategy_space import Floats, Ints, StrategyRows
from planner.models.joint.time_bounds import RowConditions, terms
from planner.physics.recovery import SpareEffect, Upkeep, Way, rack_availability, standing_of, stretches
from planner.physics.training.memory import stage_gradient_bytes
from planner.physics.training.schedule import PipelineCounts
from planner.physics.training.step_prediction import LayoutFibre, between_sites_seconds

SLOWDOWNS = 1.05 ** np.arange(300)  # above the transport's own, of which the first that is late limits the others


@dataclass(kw_only=True)
class ShapeProblem:
    """The problem of the fastest plan of a column in one shape: its time, network and sites within the budget."""

    world: World
    column: Column
    shape: Shape
    # By slowdowns of sends and of all-reduces the stages that were split: most are split over other fibre too.
    _stages: dict[tuple[float, float], Stages] = field(init=False, repr=False, default_factory=dict)

    @cached_property
    def traffic(self) -> SiteTraffic:
        """Traffic of a shape problem's column at a site, on which its fabrics depend."""
        c, block, calendar = self.column, self.column.block, self.world.problem.calendar
        own = SiteTraffic(stages=block.rack_stages, unit_racks=block.stage_racks, wrap=c.v > 1, rails=block.rails)
        if calendar is None:
            return own
        rails = self.world.problem.gpus if c.spares_wired else block.rails
        fit = rack_availability(calendar.r, block.work_gpus, rails - block.work_gpus)
        return replace(own, rails=rails, lanes=c.lanes, spare_target=c.spare_target, rack_availability=fit)

    @property
    def several(self) -> bool:
        """Whether more than one site of a shape problem holds blocks."""
        return len(self.shape.blocks) > 1

    @property
    def designed(self) -> bool:
        """Whether the fibre between the sites of a shape problem is designed, not priced pair by pair of sites."""
        return self.several and self.world.sites is not None and self.world.sites.designed

    @property
    def has_gateways(self) -> bool:
        """Whether the fabrics of a shape problem have WAN gateways at sites where fibre may end."""
        network = self.world.problem.instance.network
        return network is not None and network.wan_gateway

    def conditions(self, send: Any, allreduce: Any, fibre: LayoutFibre | None) -> RowConditions:
        """Return the step conditions of a shape problem at some slowdowns and fibre."""
        racks = self.shape.blocks[0] * self.column.block.stage_racks
        return RowConditions(racks=racks, shards=self.shape.min_replicas, send=send, allreduce=allreduce, fibre=fibre)

    def fibre(self, wavelengths: Any, rtt_ms: float) -> LayoutFibre | None:
        """Return the fibre between a shape problem's sites, less the share free for other traffic; None at one site."""
        if not self.several:
            return None
        wan = self.world.problem.wan
        gbps = wavelengths * wan.wavelength_gbps / wan.headroom_factor
        return LayoutFibre(sites=len(self.shape.blocks), gbps=gbps, rtt_ms=rtt_ms, round_trips=wan.round_trips)

    def split(self, c: RowConditions, cutoff: float) -> LayerSplit | None:
        """Return a shape problem's fastest split of layers under a cutoff, its seconds a sequence; None without any."""
        found = self._stages_over(c, cutoff * self.column.sequences).fastest()
        return None if found is None else replace(found, seconds=found.seconds / self.column.sequences)

    def _stages_over(self, c: RowConditions, step: float) -> Stages:
        key = c.send, c.allreduce
        if key not in self._stages or step > self._stages[key].cutoff:
            tick = self.world.deadline.check  # the stages are known for other fibre up to 1.05 times the cutoff
            self._stages[key] = Stages(column=self.column, conditions=c, cutoff=step * 1.05, tick=tick)
        return self._stages[key].over(c, step)

    def exchange_seconds(self, layers: Any, fibre: LayoutFibre | None) -> Any:
        """Compute a shape problem's exchange between sites in seconds a sequence, at a stage's most layers."""
        c = self.column
        x = c.strategy.pipeline(c.zero, inside=self.column.block.rack_stages == 1)
        return between_sites_seconds(x, fibre, PipelineCounts(c.p, c.v, c.m), layers) / c.sequences

    def min_over_fibre(self, alone: Floats, layers: Ints, fibre: LayoutFibre | None) -> Floats:
        """Bound a shape problem's clock seconds a sequence over some fibre, given bounds without by most layers."""
        # More layers have more gradients, but hide more of those of the embedding: the exchange may take less.
        exchange = np.atleast_2d(self.exchange_seconds(layers[:, None], fibre)) * self.min_stretch
        return np.asarray(np.min(alone[:, None] + exchange, axis=0, initial=np.inf))

    def min_by_waves(self, send: float, allreduce: float, cutoff: float, waves: Ints) -> Floats:
        """Bound a shape problem's clock seconds a sequence by wavelengths, given the best split without fibre."""
        c, conditions = self.column, self.conditions(send, allreduce, None)
        x = self._stages_over(conditions, cutoff / self.min_stretch * c.sequences).bounding
        best = x.least()
        if best is None:
            return np.full(len(waves), np.inf)
        some = x.sizes >= -(-c.strategy.problem.layers // c.p)
        alone = np.maximum(best.seconds, x.min_seconds_by_most[some]) / c.sequences * self.min_stretch
        found = self.min_over_fibre(alone, x.sizes[some], self.fibre(waves, self.rtts_ms[0]))
        return np.broadcast_to(found, waves.shape)

    @property
    def free_stretch(self) -> float:
        """The least that failures stretch the steps of a shape problem by, in any shape of its column."""
        calendar = self.world.problem.calendar
        return 1.0 if calendar is None else calendar.least_stretch(self.column.d, self.column.replica_gpus)

    @cached_property
    def standing(self) -> SpareEffect:
        """The effect on failures of a shape problem's spare racks at its sites."""
        t = self.traffic
        sites = ((t.work_racks(g), t.spare_racks(g)) for g in self.shape.blocks)
        return standing_of(sites, t.rack_availability, self.column.block.replicas)

    def _stretches(self, calendar: Calendar, seconds: Any) -> Iterator[tuple[Any, Way]]:
        """Yield ways to resume a shape's job after failures, each with its stretch of seconds a sequence."""
        c = self.column
        job = calendar.job(c.d, c.replica_gpus, seconds * c.sequences, shares_state=c.zero > 0, lanes=c.lanes)
        return stretches(job, self.standing)

    def on_clock(self, seconds: Any) -> Any:
        """Compute a shape problem's clock seconds a sequence from those of steps, by the best way to resume."""
        calendar = self.world.problem.calendar
        if calendar is None:
            return seconds
        with np.errstate(over="ignore"):  # seconds beyond a float exceed every limit
            # None goes on with spares alone where there are no spares.
            ways = [np.asarray(x) for x, _ in self._stretches(calendar, np.asarray(seconds))]
            return seconds * np.minimum.reduce(ways, initial=np.inf)

    def upkeep(self, seconds: float, blocks: Mapping[str, int]) -> Upkeep | None:
        """Return how a shape problem's plan meets failures at `seconds` seconds of steps a sequence, blocks by site."""
        calendar, t = self.world.problem.calendar, self.traffic
        if calendar is None:
            return None
        stretch, way = min(self._stretches(calendar, seconds), key=lambda x: float(x[0]))
        return Upkeep(
            way=way,
            stretch=float(stretch),
            standing=self.standing,
            spare_target=t.spare_target,
            spare_racks={s: t.spare_racks(g) for s, g in blocks.items()},
            rack_availability=t.rack_availability,
            work_gpus=self.column.block.work_gpus,
            rails=t.rails,
        )

    @cached_property
    def min_stretch(self) -> float:
        """Bound a shape problem's stretch of steps by failures; infinite with too few racks or no way to resume."""
        calendar, c = self.world.problem.calendar, self.column
        if self.world.sites is None and self.racks > (self.world.problem.instance.hardware.racks or 0):
            return math.inf
        if calendar is None:
            return 1.0
        job, known = calendar.ways(c.d, c.replica_gpus, self.standing.spares, shares_state=c.zero > 0, lanes=c.lanes)
        least = min((float(stretch) for stretch, _ in stretches(job, self.standing, known)), default=math.inf)
        return max(self.free_stretch, least)

    def bound(self, cutoff: float, fibre: LayoutFibre | None, *, stretch: float | None = None) -> float:
        """Bound a shape problem's clock seconds a sequence, slowed by transport alone; unequal chunks at least."""
        stretch, phi = self.min_stretch if stretch is None else stretch, self.world.problem.transport_slowdown
        step = cutoff / stretch * self.column.sequences if math.isfinite(cutoff) else math.inf
        conditions = self.conditions(phi, phi, fibre)
        found = Stages(column=self.column, conditions=conditions, cutoff=step, exact=False).least()
        return math.inf if found is None else found.seconds / self.column.sequences * stretch

    @cached_property
    def racks(self) -> int:
        """Racks of all blocks of a shape problem."""
        return sum(self.traffic.racks(g) for g in self.shape.blocks)

    @cached_property
    def floor_usd(self) -> float:
        """Least capital in USD of a shape problem's racks at its sites, without fabrics and fibre."""
        sites = self.world.sites
        if sites is None:
            return self.world.owned_usd
        return sum(sites.floor_usd(self.traffic.racks(g), 1) for g in self.shape.blocks)

    @property
    def min_fabrics_usd(self) -> float:
        """Price in USD of the least fabrics of all racks of a shape problem."""
        return 0.0 if self.world.sites is None else self.racks * self.world.sites.min_fabric_usd(self.traffic.rails)

    @property
    def min_power_usd(self) -> float:
        """Price in USD at the sites of the least power that fabrics of all racks of a shape problem draw."""
        sites = self.world.sites
        return 0.0 if sites is None else sites.fabric_usd_per_mw * self.racks * sites.min_fabric_mw(self.traffic.rails)

    @property
    def sites_usd(self) -> float:
        """USD that the budget leaves for the sites of a shape problem above its least fabrics."""
        return self.world.budget - self.min_fabrics_usd

    def point(self, rtt_ms: float) -> SitesExtent:
        """Return the point of the site bounds that a shape problem needs, at a longest round trip in ms."""
        return SitesExtent(len(self.shape.blocks), self.racks, self.traffic.racks(self.shape.blocks[0]), rtt_ms)

    @cached_property
    def rtts_ms(self) -> list[float]:
        """List a shape problem's longest round trips in ms between two sites; one value where none counts."""
        if not self.several or self.world.sites is None:
            return [0.0]
        found = self.world.sites.rtts_ms
        return found if self.world.problem.wan.round_trips > 0 else found[-1:]

    @cached_property
    def may_be_housed(self) -> bool:
        """Whether the budget may pay a shape problem any sites for its racks, one part as large as its largest."""
        site_bounds, rtts = self.world.site_bounds, self.rtts_ms
        return site_bounds is None or (bool(rtts) and not site_bounds.exceeds(self.point(rtts[-1]), self.sites_usd))

    @property
    def near_rtts_ms(self) -> list[float]:
        """List a shape problem's round trips in ms, from the shortest at which the budget may pay sites as known."""
        if self.world.site_bounds is None or not self.several:
            return self.rtts_ms
        usd = self.sites_usd
        return [r for r, least in zip(self.rtts_ms, self.site_bounds_by_rtt.tolist(), strict=True) if least <= usd]

    @property
    def site_bounds_by_rtt(self) -> Floats:
        """Bound a shape problem's site capital in USD without fabrics by longest round trip, as far as known."""
        site_bounds = self.world.site_bounds
        return np.zeros(len(self.rtts_ms)) if site_bounds is None else site_bounds.by_rtt(self.point(0.0), self.rtts_ms)

    @property
    def best_fibre(self) -> LayoutFibre | None:
        """A shape problem's widest fibre and shortest round trip that the budget may pay, as far as is known."""
        # None at one site. The same holds for other shapes over this number of sites whose largest part is no smaller.
        if not self.several:
            return None
        wan, site_bounds = self.world.problem.wan, self.world.site_bounds
        most = wan.max_wavelengths_per_pair * wan.max_fibre_pairs
        if site_bounds is not None and "wan.wavelengths" not in self.world.problem.instance.pins:
            # As many wavelengths, but one at least, as the money may pay with sites and least fabrics.
            t, sites, sparing = self.traffic, site_bounds.sites, self.column.spare_target > 0
            racks = sum(t.work_racks(g) for g in self.shape.blocks)  # less even shapes may need fewer spares
            floor = sites.floor_usd(racks, len(self.shape.blocks))
            known = site_bounds.bound(self.point(self.rtts_ms[-1])) if self.rtts_ms and not sparing else 0.0
            fibre = self.min_fibre_usd
            more = fibre - fibre[1] if math.isfinite(fibre[1]) else np.zeros(len(fibre))  # than one wavelength
            least = np.maximum(floor + fibre, known + more)
            left = self.world.budget * (1 + EPS) - racks * sites.min_fabric_usd(t.rails)
            most = max(1, int(np.searchsorted(least[1:], left, side="right")))
        near = self.near_rtts_ms or self.rtts_ms[-1:]
        return self.fibre(most, near[0] if near else 0.0)

    @cached_property
    def min_fibre_usd(self) -> Floats:
        """Bound a shape problem's price in USD of fibre between all its sites from below, by a pair's wavelengths."""
        sites, count, wan = self.world.sites, len(self.shape.blocks), self.world.problem.wan
        if sites is not None and not sites.designed:
            return sites.all_fibre_usd(count, sites.min_routes_km(count))
        most = wan.max_wavelengths_per_pair * wan.max_fibre_pairs + 1
        return np.zeros(most) if sites is None or count != 2 else sites.fibre.least_usd()[:most]

    @cached_property
    def payable_rtts_ms(self) -> list[float]:
        """List a shape problem's round trips in ms from the shortest that the budget may pay, asking the sites."""
        site_bounds, usd, near = self.world.site_bounds, self.sites_usd, self.near_rtts_ms
        if site_bounds is None or not self.several or not near or not site_bounds.exceeds(self.point(near[0]), usd):
            return near
        at = first(len(near), lambda i: not site_bounds.exceeds(self.point(near[i]), usd))
        return [] if at is None else near[at:]

    def even_seconds(self, send: Floats, allreduce: Floats, fibre: LayoutFibre | None) -> Floats:
        """Bound a shape problem's seconds of steps a sequence at several slowdowns and fibres by even stages."""
        c, block = self.column, self.column.block
        sizes = block.replicas_per_rack, block.stage_racks, block.replicas, block.racks, block.rails
        rows = StrategyRows(*(np.full(len(send), x) for x in (c.p, c.v, c.d, c.m, *sizes)))
        return terms(c.strategy, c.zero, rows, self.conditions(send, allreduce, fibre)).seconds(rows) / c.sequences

    def max_slowdowns(self, cutoff: float) -> tuple[float, float]:
        """Bound a shape problem's slowdowns of sends and of all-reduces within a cutoff, the other at its least."""
        # Time never falls as a network slows, so that all slowdowns above one that misses the cutoff miss it too.
        tried = np.asarray(self.world.problem.transport_slowdown * SLOWDOWNS, dtype=np.float64)
        least = np.full(len(tried), tried[0])
        sends, allreduces = np.concatenate([tried, least]), np.concatenate([least, tried])
        seconds = self.on_clock(self.even_seconds(sends, allreduces, self.best_fibre))
        late = np.reshape(seconds, (2, -1)) > cutoff * (1 + EPS)
        send, allreduce = np.where(late.any(axis=1), tried[np.argmax(late, axis=1)], np.inf).tolist()
        return send, allreduce

    def least_sum(self, of: Mapping[int, Floats]) -> Floats:
        """Return the sum over a shape problem's sites of values by a site's blocks."""
        return np.asarray(np.sum([of[g] for g in self.shape.blocks], axis=0))

    def options(self, cutoff: float, *, shallow: bool = False) -> dict[int, DesignTable]:
        """Return a shape problem's fabric templates by blocks of a site, less those too slow for the cutoff."""
        # `shallow`: four tiers are left out too where fewer do.
        templates = self.world.templates
        if templates is None:
            return {}
        site, slowest = ONE_SITE if self.world.sites is None else None, self.max_slowdowns(cutoff)
        sites, site_bounds, floor, found = self.world.sites, self.world.site_bounds, self.floor_usd, {}
        if site_bounds is not None:
            floor = max(floor, site_bounds.bound(self.point(self.rtts_ms[-1] if self.rtts_ms else 0.0)))
        each = 0.0 if sites is None else sites.min_fabric_usd(self.traffic.rails)
        for g in reversed(self.sizes):  # the money that is left for its fabric, the others with the least fabrics
            usd = self.world.budget - floor - (self.racks - self.traffic.racks(g)) * each
            found[g] = templates.options(self.traffic, g, usd, site, max_slowdowns=slowest, shallow=shallow)
            # All sizes of a largest part were looked at by now.
            has_none = g == self.shape.blocks[0] and not any(map(len, found.values()))
            if has_none or (self.has_all_sizes and not len(found[g])):
                return dict.fromkeys(self.sizes, found[g])
        return found

    has_all_sizes: ClassVar[bool] = True  # each size is that of a site

    @property
    def sizes(self) -> list[int]:
        """The distinct numbers of blocks of a shape problem's sites."""
        return sorted(set(self.shape.blocks))


def first(count: int, fits: Callable[[int], bool]) -> int | None:
    """Return a shape problem's first index that fits, all after it fitting too, by bisection; None if none does."""
    return bisect_left(range(count - 1), True, key=fits) if count and fits(count - 1) else None


def where(placed: PlacedParts | None) -> dict[str, tuple[int, int]]:
    """Return the part and the fabric of each site at which a shape problem's plan is placed."""
    return {ONE_SITE: (0, 0)} if placed is None else placed.parts


def built(
    q: ShapeProblem, wavelengths: int, placed: PlacedParts | None, templates: dict[str, Template], cutoff: float
) -> JointPlan:
    """Time a shape problem's plan as built, with its own templates and sites, no slower than a cutoff on a clock."""
    sizes = sorted(set(q.shape.blocks), reverse=True)
    blocks = {s: sizes[k] for s, (k, _) in sorted(where(placed).items())}
    # Every block holds whole replicas but the last of one site of most blocks.
    missing = sum(blocks.values()) * q.column.block.replicas - q.column.d
    short = min(s for s, g in blocks.items() if g == sizes[0])
    phi = q.world.problem.transport_slowdown
    send, allreduce = (max([phi, *(getattr(t, name) for t in templates.values())]) for name in ("send", "allreduce"))
    conditions = q.conditions(send, allreduce, q.fibre(wavelengths, 0.0 if placed is None else placed.rtt_ms))
    split = q.split(conditions, cutoff / q.min_stretch)
    if split is None:
        raise RuntimeError("joint: a column that was timed cannot be split")
    capital = q.world.owned_usd + sum(t.usd for t in templates.values())
    if placed is not None and placed.circuit is not None and not q.designed:
        # The cheapest sites within a round trip are the cheapest within their own, which is what the plan claims.
        placed = replace(placed, circuit=replace(placed.circuit, max_rtt_ms=placed.rtt_ms))
    return JointPlan(
        seconds=float(q.on_clock(split.seconds)),
        capital_usd=capital if placed is None else placed.capital_usd,
        column=q.column,
        split=split,
        conditions=conditions,
        shape=q.shape,
        templates=templates,
        blocks_by_site=blocks,
        replicas_by_site={s: g * q.column.block.replicas - (missing if s == short else 0) for s, g in blocks.items()},
        placed=placed,
        wavelengths=wavelengths,
        upkeep=q.upkeep(split.seconds, blocks),
    )


def exchanged_bytes(column: Column, layers: Iterable[tuple[int, int]]) -> float:
    """Return the most gradient bytes of a stage that a shape problem's sites exchange, given stages with layers."""
    m, shape = column.strategy.machine, column.strategy.shape
    return max(float(stage_gradient_bytes(m, shape, n, stage=stage, pipeline=column.p)) for stage, n in layers)
