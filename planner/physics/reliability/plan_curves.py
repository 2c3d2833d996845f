"""The useful share of a plan at other checkpoint intervals and with other spare racks, all else as the plan has it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from planner.instance.reliability import CheckpointTarget, Recovery, Reliability
from planner.physics.plan_physics import PlanPhysics
from planner.physics.reliability.recovery import Job, best_interval, choices, way_at, ways
from planner.physics.reliability.spares import enough_share, mean_short, min_spares
from planner.physics.training.parallel_strategy import strategy_of
from planner.plan.plan import Plan

POINTS = 61  # of a curve
FACTOR = 20.0  # from the best intervals to the ends of a curve
STEPS = 12  # from no spare racks to those of the plan, and as many on
TARGET = 0.99  # share of time whose spares end half the curve of a plan that has none


@dataclass(frozen=True, slots=True)
class IntervalCurve:
    """The useful share of a way to go on by the seconds between checkpoints; infinite seconds: none is written."""

    recovery: Recovery
    target: CheckpointTarget
    seconds: tuple[float, ...]
    share: tuple[float, ...]
    best_seconds: float
    best_share: float


@dataclass(frozen=True, slots=True)
class SparePoint:
    """The useful share by the best way to go on with so many spare racks."""

    racks: int
    recovery: Recovery
    target: CheckpointTarget
    share: float


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a plan's useful share depends on: figures, job, racks at work by site, their fitness, replicas of one."""

    r: Reliability
    job: Job
    needed: dict[str, int]
    rack_availability: float
    replicas_per_rack: float
    spare_racks: dict[str, int]

    def there(self, recovery: Recovery, spare_racks: Mapping[str, int]) -> float:
        """Return the share of time, or of replicas, that racks out of service leave a job at work."""
        fit = self.rack_availability
        if recovery != "elastic":
            return math.prod(enough_share(n, spare_racks.get(s, 0), fit) for s, n in self.needed.items())
        short = sum(mean_short(n, spare_racks.get(s, 0), fit) for s, n in self.needed.items())
        return max(0.0, 1 - short * self.replicas_per_rack / float(self.job.replicas))


def upkeep_of(plan: Plan) -> Upkeep | None:
    """Return what a plan's useful share depends on; None where it does not count failures."""
    x, layout, r, physics = plan.reliability, plan.layout, plan.instance.reliability, PlanPhysics(plan=plan)
    if x is None or layout is None or r is None or isinstance(r, str) or physics.faults:
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
    )
    return Upkeep(
        r=r,
        job=job,
        needed=physics.racks_in_use,
        rack_availability=x.rack_availability,
        replicas_per_rack=layout.replicas_per_rack * (unit // layout.racks_per_replica),
        spare_racks=dict(x.spare_racks_by_site),
    )


def interval_curves(u: Upkeep) -> list[IntervalCurve]:
    """Trace the useful share of each way to go on over the time between checkpoints, no shorter than a step."""
    allowed = choices(u.r, spares=all(u.spare_racks.get(s, 0) for s in u.needed))
    best = [way_at(u.job, *way, best_interval(u.job, *way)) for way in allowed]
    known = [float(w.interval_seconds) for w in best if 0 < w.interval_seconds < math.inf]
    if not known:
        return []
    low = max(min(known) / FACTOR, float(u.job.step_seconds))
    seconds = np.geomspace(low, max(known) * FACTOR, POINTS)
    found = []
    for w in best:
        there = u.there(w.recovery, u.spare_racks)
        share = there / np.asarray(way_at(u.job, w.recovery, w.target, seconds).stretch)
        own = (float(w.interval_seconds), there / float(w.stretch))
        found.append(IntervalCurve(w.recovery, w.target, tuple(map(float, seconds)), tuple(map(float, share)), *own))
    return found


def spare_points(u: Upkeep) -> list[SparePoint]:
    """Trace the useful share over spare racks, from none to twice the plan's, each site's in proportion to its own.

    Of a plan that has none each site's are in proportion to the fewest that leave it enough for 99 % of the time.
    """
    own = {s: u.spare_racks.get(s, 0) for s in u.needed}
    whole = own if any(own.values()) else {s: min_spares(n, u.rack_availability, TARGET) for s, n in u.needed.items()}
    points = {p.racks: p for p in _points(u, whole)}
    return [points[n] for n in sorted(points)]


def _points(u: Upkeep, whole: Mapping[str, int]) -> Iterator[SparePoint]:
    for n in range(2 * STEPS + 1):
        racks = {s: round(count * n / STEPS) for s, count in whole.items()}
        found = []
        for way in ways(u.job, spares=all(racks.values())):
            found.append((u.there(way.recovery, racks) / float(way.stretch), way.recovery, way.target))
        if found:
            share, recovery, target = max(found, key=lambda x: x[0])
            yield SparePoint(sum(racks.values()), recovery, target, share)
