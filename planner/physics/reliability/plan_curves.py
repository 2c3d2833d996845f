"""The useful share of a plan at other checkpoint intervals and with other spare racks, all else as the plan has it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from planner.instance.reliability import CheckpointTarget, Recovery, Reliability
from planner.physics.plan_physics import PlanPhysics
from planner.physics.reliability.recovery import Job, way_at, ways
from planner.physics.reliability.spares import min_spares
from planner.physics.reliability.standing import Standing, at_work_share, counted, standing_of, stretches
from planner.physics.reliability.stops import GpuLinks, fewest_stops, gpu_links
from planner.physics.training.parallel_strategy import strategy_of
from planner.plan.plan import Plan

POINTS = 61  # of a curve
FACTOR = 20.0  # from the best intervals to the ends of a curve
STEPS = 12  # from no spare racks to those of the plan, and as many on
TARGET = 0.99  # share of time whose spares end half the curve of a plan that has none


@dataclass(frozen=True, slots=True)
class IntervalCurve:
    """The useful share of a way to go on by the seconds between checkpoints; and at the interval that it takes."""

    recovery: Recovery
    target: CheckpointTarget
    seconds: tuple[float, ...]
    share: tuple[float, ...]
    own_seconds: float
    own_share: float


@dataclass(frozen=True, slots=True)
class SparePoint:
    """The useful share by the best way to go on with so many spare racks."""

    racks: int
    recovery: Recovery
    target: CheckpointTarget
    share: float


@dataclass(frozen=True, slots=True)
class Exposure:
    """What a plan's useful share depends on: job, racks at work and spare by site, their fitness, replicas of one."""

    job: Job
    needed: dict[str, int]
    spare_racks: dict[str, int]
    rack_availability: float
    block_replicas: int

    def standing(self, spare_racks: Mapping[str, int]) -> Standing:
        """Return what stands by with so many spare racks."""
        sites = [(n, spare_racks.get(s, 0)) for s, n in self.needed.items()]
        return standing_of(sites, self.rack_availability, self.block_replicas)


def exposure_of(plan: Plan) -> Exposure | None:
    """Return what a plan's useful share depends on; None where it does not count failures."""
    x, layout, r, physics = plan.reliability, plan.layout, counted(plan.instance), PlanPhysics(plan=plan)
    if x is None or layout is None or r is None or physics.faults:
        return None
    unit = strategy_of(layout).unit_racks(physics.gpus_per_rack)
    job = Job(
        r=r,
        gpus=float(layout.gpus_used),
        replica_gpus=layout.gpus_used / layout.data_parallel,
        state_bytes=x.checkpoint_bytes,
        replicas=layout.data_parallel,
        step_seconds=layout.metrics.step_seconds,
        shares_state=layout.zero_stage > 0,
        links=_links_of(plan, r),
    )
    return Exposure(
        job=job,
        needed=physics.racks_in_use,
        spare_racks=dict(x.spare_racks_by_site),
        rack_availability=x.rack_availability,
        block_replicas=layout.replicas_per_rack * (unit // layout.racks_per_replica),
    )


def _links_of(plan: Plan, r: Reliability) -> GpuLinks:
    """Return the links of a GPU in the fabrics of a plan; where it has none, of those whose links stop it least."""
    lanes = max((f.lanes for f in plan.fabric.sites.values()), default=0) if plan.fabric else 0
    return gpu_links(plan.instance.network, lanes) if lanes else fewest_stops(plan.instance, r)


def interval_curves(x: Exposure) -> list[IntervalCurve]:
    """Trace the useful share of each way to go on over the time between checkpoints, no shorter than a step."""
    standing = x.standing(x.spare_racks)
    own = list(ways(x.job, spares=standing.spares))
    known = [float(w.interval_seconds) for w in own if 0 < w.interval_seconds < math.inf]
    if not known:
        return []
    low = max(min(known) / FACTOR, float(x.job.step_seconds))
    seconds = np.geomspace(low, max(known) * FACTOR, POINTS)
    found = []
    for w in own:
        there = at_work_share(x.job, standing, w.recovery)
        share = there / np.asarray(way_at(x.job, w.recovery, w.target, seconds).stretch)
        at = (float(w.interval_seconds), there / float(w.stretch))
        found.append(IntervalCurve(w.recovery, w.target, tuple(map(float, seconds)), tuple(map(float, share)), *at))
    return found


def spare_points(x: Exposure) -> list[SparePoint]:
    """Trace the useful share over spare racks, from none to twice the plan's, each site's in proportion to its own.

    Of a plan that has none each site's are in proportion to the fewest that leave it enough for 99 % of the time.
    """
    own = {s: x.spare_racks.get(s, 0) for s in x.needed}
    whole = own if any(own.values()) else {s: min_spares(n, x.rack_availability, TARGET) for s, n in x.needed.items()}
    points = {p.racks: p for p in _points(x, whole)}
    return [points[n] for n in sorted(points)]


def _points(x: Exposure, whole: Mapping[str, int]) -> Iterator[SparePoint]:
    for n in range(2 * STEPS + 1):
        racks = {s: round(count * n / STEPS) for s, count in whole.items()}
        found = [(float(stretch), way) for stretch, way in stretches(x.job, x.standing(racks))]
        if found:
            stretch, way = min(found, key=lambda f: f[0])
            yield SparePoint(sum(racks.values()), way.recovery, way.target, 1 / stretch)
