"""Rules of the reliability section: stops, checkpoints and spares; and bounds on the stretch of jobs by failures."""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from planner.checks.rule import Violations, at_most, broken, figures, must_be, must_equal, parts
from planner.instance.instance import Instance
from planner.physics import Floats, recovery
from planner.physics.plan_physics import PlanPhysics
from planner.physics.recovery import CheckpointedJob
from planner.physics.training.step_prediction import SECONDS_PER_DAY
from planner.plan.plan_sections import LayoutPlan, ReliabilityPlan

GRID = 1e-3  # of the logarithm of GPUs, between which bounds are tabulated
MOST_GPUS = 1e10  # of the table
ROUNDING = 1e-12  # relative, of sums in another order


@dataclass(frozen=True, eq=False)
class Failures:
    """The checker's bounds on how failures stretch jobs, in clock seconds per second of steps: one job's, or arrays."""

    job: CheckpointedJob  # of any number of GPUs and replicas

    def min_stretch(self, replicas: Any, replica_gpus: Any) -> Any:
        """Return the checker's floor under how failures stretch jobs: any way to resume, free spares, short steps."""
        gpus = np.asarray(replicas, dtype=np.float64) * replica_gpus
        return recovery.min_stretch(replace(self.job, gpus=gpus, replica_gpus=replica_gpus, replicas=replicas))

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - of one check, with which it ends
    def column_stretch(self, replicas: int, replica_gpus: int) -> float:
        """Return the checker's floor under how failures stretch the one job of a column, in clock seconds a second."""
        return float(self.min_stretch(replicas, replica_gpus))

    @cached_property
    def _table(self) -> tuple[Floats, Floats, Floats]:
        """Tabulate by job size the least stretch by failures of larger jobs, and the least per GPU, negative to ascend.

        Stops are those of a size, checkpoints are written by the next; elastic jobs lose replicas of no GPUs, as the
        replicas that are away may be negligible against the stalls.
        """
        gpus = np.exp(GRID * np.arange(math.ceil(math.log(MOST_GPUS) / GRID)))
        written = self.job.state_bytes * math.exp(-GRID)
        found = recovery.min_stretch(replace(self.job, gpus=gpus, state_bytes=written)) * (1 - ROUNDING)
        above = np.minimum.accumulate(found[::-1])[::-1]
        return gpus, above, -np.minimum.accumulate(found / gpus) * math.exp(-GRID)

    def stretch_from(self, replicas: Any, replica_gpus: Any) -> Any:
        """Return the checker's floor under the stretch by failures of every job with `replicas` replicas or more."""
        gpus, (_, above, _) = np.maximum(np.asarray(replicas) * replica_gpus, 1.0), self._table
        return above[np.clip(np.floor(np.log(gpus) / GRID - ROUNDING).astype(np.int64), 0, len(above) - 1)]

    def fewest_gpus(self, rate: Any) -> Any:
        """Return the checker's floor under the GPUs of any job whose stretch by failures is at most `rate` per GPU."""
        sizes, _, each = self._table
        return sizes[np.minimum(np.searchsorted(each, -rate), len(each) - 1)] * (1 - ROUNDING)


class NoFailures:
    """The checker's stretch by failures of jobs that never fail: 1 in every case, as `Failures` bounds others."""

    min_stretch = column_stretch = stretch_from = staticmethod(lambda *_: 1.0)
    fewest_gpus = staticmethod(lambda rate: 1 / rate)


def failures_of(instance: Instance) -> Failures | None:
    """Return the checker's bounds on an instance's failures, by the fabric whose links fail least; None without any."""
    job = recovery.job_of(instance)
    return None if job is None else Failures(job)


def sections(physics: PlanPhysics) -> Violations:
    """Check that a plan has a reliability section just where its instance has failures, and each rule of it."""
    failures, plan, layout = failures_of(physics.instance), physics.plan.reliability, physics.plan.layout
    lanes = sorted({own.lanes for own in physics.plan.fabric.sites.values()} if physics.plan.fabric else ())
    wanted = failures is not None and layout is not None
    if wanted != (plan is not None):
        yield broken("counted", f"{int(not wanted)} reliability sections, {int(wanted)} expected")
    exposure = recovery.exposure_of(physics.plan)
    if failures is None or plan is None or layout is None or exposure is None:
        return
    job = replace(exposure.job, state_bytes=failures.job.state_bytes)
    if job.r.counts_links and len(lanes) > 1:
        yield broken("lanes", f"NICs of {lanes} lanes at the sites; as many at all of them expected")
    rates, stops = recovery.part_stops_per_gpu_second(job.r, job.links), float(job.stops_per_second)
    by_part = {name: stops * SECONDS_PER_DAY * rate / sum(rates.values()) for name, rate in rates.items()}
    found = {"stop_seconds": 1 / stops, "extrapolated": layout.gpus_used > job.r.measured_gpus}
    yield from figures("stops", plan, found)
    yield from parts("stops", plan.stops_per_day_by_part, by_part, " stops a day")
    yield from spare_racks(physics, plan, layout, job)
    yield from useful_share(plan, layout, replace(exposure, job=job))


def spare_racks(physics: PlanPhysics, plan: ReliabilityPlan, layout: LayoutPlan, job: CheckpointedJob) -> Violations:
    """Check that the reliability section has the spare racks of every site, the fewest that meet their target."""
    work, spare = -(-layout.racks_gpus // layout.racks_per_replica), plan.spare_gpus_per_rack
    fit = recovery.rack_availability(job.r, work, spare) if spare >= 0 else 0.0
    yield from must_be("spares", "sites", sorted(plan.spare_racks_by_site), sorted(physics.replicas))
    yield from at_most("spares", work + spare, physics.gpus_per_rack, "GPUs work and stand by", "GPUs")
    yield from figures("spares", plan, {"rack_availability": fit})
    if plan.spare_target not in job.r.spare_targets:
        yield broken("spares", f"a target of {plan.spare_target:g}, none of {sorted(set(job.r.spare_targets))}")
    both = "racks work and stand by"
    for site, racks in sorted(plan.spare_racks_by_site.items()):
        rule, needed, there = f"spares[{site}]", physics.racks_in_use.get(site, 0), physics.racks_by_site.get(site, 0)
        yield from at_most(rule, needed + racks, there, both, "racks at the site")
        if plan.spare_target <= 0 or racks < 0:
            yield from must_equal(rule, "spare racks", racks, 0)
            continue
        yield from at_most(rule, 1, racks, "spare rack under a target", "spare racks")
        reached = recovery.enough_share(needed, racks, fit)
        yield from at_most(rule, plan.spare_target, reached, "of the time asked for", "with enough racks")
        fewer = recovery.enough_share(needed, racks - 1, fit) if racks > 1 else None
        yield from at_most(rule, fewer, plan.spare_target, "of the time with a rack less", "asked for")
    for site in sorted(physics.plan.fabric.sites) if physics.plan.fabric else ():
        rule, need = f"spares[{site}]", physics.racks_in_use.get(site, 0) + plan.spare_racks_by_site.get(site, 0)
        cabled, wired = physics.cabled_racks(site), physics.wired_gpus_per_rack(site)
        yield from at_most(rule, need, cabled, both, "racks are cabled")
        yield from at_most(rule, spare, wired, "GPUs stand by", "GPUs of a rack are cabled")


def useful_share(plan: ReliabilityPlan, layout: LayoutPlan, exposure: recovery.Exposure) -> Violations:
    """Check a plan's checkpoints, useful share of time and days lost, and that no other way to resume trains more."""
    standing = exposure.standing({site: max(0, racks) for site, racks in plan.spare_racks_by_site.items()})
    metrics, ways = layout.metrics, recovery.stretches(exposure.job, standing)
    known = {(way.recovery, way.target): (float(stretch), way) for stretch, way in ways}
    shares = {"enough_racks_share": standing.enough_share, "replicas_short": standing.replicas_down}
    yield from figures("useful_share", plan, shares)
    own = known.get((plan.recovery, plan.checkpoint_target))
    if own is None:
        way_on = f"{plan.recovery} with checkpoints in {plan.checkpoint_target}"
        yield broken("useful_share", f"{way_on}: 0 such ways to go on")
        return
    stretch, way = own
    interval, job = float(way.interval_seconds), exposure.job
    found = {"checkpoint_bytes": job.state_bytes, "restart_seconds": float(job.restart_seconds(way.recovery))}
    found["checkpoint_write_seconds"] = float(job.write_seconds(way.target))
    yield from figures("checkpoints", plan, found)
    yield from figures("checkpoints", plan, {"checkpoint_interval_seconds": interval if interval < math.inf else None})
    yield from figures("useful_share", plan, {"useful_share": 1 / stretch})
    yield from must_equal("useful_share", "of the metrics", metrics.useful_share, plan.useful_share)
    best = min(least for least, _ in known.values())
    yield from at_most("useful_share", stretch, best, "seconds a second of steps", "by the best way")
    lost, days = sum(plan.lost_days.values()), metrics.days_to_train - metrics.step_days_to_train
    if abs(lost - days) > 1e-12 * metrics.days_to_train:  # the rounding of a difference of the two
        yield from must_equal("useful_share", "days lost by cause against the days without steps", lost, days)
    for name, value in plan.lost_days.items():
        yield from at_most(f"useful_share[{name}]", 0.0, value + 1e-9 * metrics.days_to_train, "days", "days lost")


RULES = (sections,)
