"""Spare racks and GPUs, a job's recovery with them, and a plan's useful share at other choices."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.instance.hardware import CheckpointTarget, Recovery, Reliability
from planner.instance.instance import Instance
from planner.instance.workload import Model
from planner.physics.plan_physics import PlanPhysics
from planner.physics.recovery import (
    CheckpointedJob,
    Way,
    fewest_stops,
    gpu_links,
    losses,
    part_stops_per_gpu_second,
    scale_factor,
    stops_per_gpu_second,
    way_at,
    ways,
)
from planner.physics.training.layer_time import SECONDS_PER_DAY
from planner.physics.training.parallel_strategy import ParallelStrategy, block_of, strategy_of
from planner.physics.training.step_prediction import machine_of
from planner.physics.training.transformer import total_parameters
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutPlan, ReliabilityPlan


def rack_availability(rates: Reliability, gpus: int, spare_gpus: int) -> float:
    """Compute the share of time in which `gpus` or more of a rack with `spare_gpus` spare GPUs are fit to work."""
    # GPUs fail independently, each fit for MTBF/(MTBF + MTTR) of the time: the k-of-n formula. The rack's other parts
    # have no spares; each counts for each of the rack's GPUs.
    share = {"gpu": 0.0, "rack": 0.0}  # in repair per GPU at work, by what a failure takes out: the sum of MTTR/MTBF
    for part in rates.parts.values():
        if part.gpu_hours_per_event is not None:
            share[part.out] += part.repair_hours / part.gpu_hours_per_event
    fit = 1 / (1 + share["gpu"])
    return enough_share(gpus, spare_gpus, fit) / (1 + share["rack"] * gpus)


@lru_cache(maxsize=256)
def _chances(racks: int, availability: float) -> tuple[int, npt.NDArray[np.float64]]:
    """Return the chances of numbers of fit racks, spares among them, and the least number, within 40 deviations."""
    # SciPy has their sums, but behind Pyomo it loads all of itself, which takes longer than thousands of them.
    mean = racks * availability
    reach = 40 * (1 + math.sqrt(mean * (1 - availability)))
    first, last = max(0, math.floor(mean - reach)), min(racks, math.ceil(mean + reach))
    k = np.arange(first, last)
    with np.errstate(divide="ignore"):  # each is its neighbour's times (n - k)/(k + 1) · p/(1 - p)
        ratios = np.log((racks - k) / (k + 1) * (availability / (1 - availability)))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    chances = np.exp(logs - logs.max())
    return first, chances / chances.sum()


@lru_cache(maxsize=65536)
def enough_share(needed: int, spares: int, availability: float) -> float:
    """Return P(at least `needed` of `needed + spares` racks are fit for work), racks failing independently."""
    if availability >= 1:
        return 1.0
    first, chances = _chances(needed + spares, availability)
    return min(1.0, float(chances[max(0, needed - first) :].sum()))


@lru_cache(maxsize=65536)
def min_spares(needed: int, availability: float, target: float) -> int:
    """Return the fewest spare racks, one at least, that leave enough racks for a share of time; 0 for a share of 0."""
    if target <= 0 or needed <= 0:
        return 0
    if availability <= 0:
        raise ValueError("racks that are never fit for work")
    high = 1
    while enough_share(needed, high, availability) < target:
        high *= 2
    enough = range(high // 2 + 1, high + 1)
    return enough[bisect_left(enough, target, key=lambda spares: enough_share(needed, spares, availability))]


@lru_cache(maxsize=65536)
def mean_short(needed: int, spares: int, availability: float) -> float:
    """Compute the mean shortage of racks with spares: the mean of max(0, needed - racks fit for work)."""
    if availability >= 1:
        return 0.0
    first, chances = _chances(needed + spares, availability)
    short = np.maximum(0, needed - first - np.arange(len(chances)))
    return float(short @ chances)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareEffect:
    """The effect of the spare racks at the sites of a plan."""

    enough_share: float  # share of time in which all sites have enough racks fit for work
    replicas_down: float  # mean number of replicas that racks out of service take down
    spares: bool  # whether every site has a spare rack


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """A plan's recovery with its spares: way to resume, stretch of its steps, and the spare racks at its sites."""

    way: Way
    stretch: float
    standing: SpareEffect
    spare_target: float
    spare_racks: dict[str, int]
    rack_availability: float
    work_gpus: int
    rails: int


def counted(instance: Instance) -> Reliability | None:
    """Return the failure rates that count; None without any, or where the workload states the share that trains."""
    rates = instance.reliability
    if rates is None or isinstance(rates, str) or instance.workload.availability < 1 or not stops_per_gpu_second(rates):
        return None
    return rates


def checkpoint_bytes(instance: Instance, model: Model) -> float:
    """Return the bytes of the checkpoint that a job recovers from: master weights and optimiser of each parameter."""
    precision = instance.workload.precision
    return float(total_parameters(model)) * (precision.parameter_bytes + precision.optimizer_bytes)


def standing_of(sites: Iterable[tuple[int, int]], rack_availability: float, block_replicas: int) -> SpareEffect:
    """Compute the effect of spare racks from each site's (at work, spare); a missing rack takes its block down."""
    racks = list(sites)
    return SpareEffect(
        enough_share=math.prod(enough_share(work, spare, rack_availability) for work, spare in racks),
        replicas_down=block_replicas * sum(mean_short(work, spare, rack_availability) for work, spare in racks),
        spares=all(spare for _, spare in racks),
    )


def stretches(
    job: CheckpointedJob, standing: SpareEffect, known: Iterable[Way] | None = None
) -> Iterator[tuple[Any, Way]]:
    """Yield (stretch, way) for each way to resume after a failure, by the spare racks at the sites; perhaps `known`."""
    # A whole job waits until every site has enough racks; an elastic one goes on without the replicas of those short.
    for way in ways(job, spares=standing.spares) if known is None else known:
        there = at_work_share(job, standing, way.recovery)
        with np.errstate(over="ignore"):
            stretch = way.stretch / there if there > 0 else np.full_like(way.stretch, np.inf)
        yield stretch, way


def at_work_share(job: CheckpointedJob, standing: SpareEffect, recovery: Recovery) -> float:
    """Return the share of time, or of replicas, for which racks out of service beyond spares leave a job at work."""
    if recovery == "elastic":
        return 1 - standing.replicas_down / float(np.max(job.replicas))
    return standing.enough_share


def section(job: CheckpointedJob, upkeep: Upkeep, step_days: float) -> ReliabilityPlan:
    """Return the reliability section (recovery and spares) of a plan whose steps take `step_days` without stops."""
    way, gpus = upkeep.way, float(job.gpus)
    scale = gpus * float(scale_factor(job.r, gpus))
    interval = float(way.interval_seconds)
    lost = {name: float(share) * step_days for name, share in losses(job, way).items()}
    short = "replicas short of racks" if way.recovery == "elastic" else "waiting for racks"
    lost[short] = (upkeep.stretch - float(way.stretch)) * step_days
    rates = part_stops_per_gpu_second(job.r, job.links)
    return ReliabilityPlan(
        recovery=way.recovery,
        checkpoint_target=way.target,
        checkpoint_interval_seconds=interval if math.isfinite(interval) else None,
        checkpoint_write_seconds=float(way.write_seconds),
        checkpoint_bytes=job.state_bytes,
        stop_seconds=1 / float(job.stops_per_second),
        stops_per_day_by_part={name: rate * scale * SECONDS_PER_DAY for name, rate in rates.items()},
        restart_seconds=float(way.restart_seconds),
        spare_target=upkeep.spare_target,
        spare_racks_by_site=upkeep.spare_racks,
        spare_gpus_per_rack=upkeep.rails - upkeep.work_gpus,
        rack_availability=upkeep.rack_availability,
        enough_racks_share=upkeep.standing.enough_share,
        replicas_short=upkeep.standing.replicas_down,
        useful_share=1 / upkeep.stretch,
        lost_days=lost,
        extrapolated=gpus > job.r.measured_gpus,
    )


def best_stretch(instance: Instance, strategy: ParallelStrategy, step_seconds: float) -> float | None:
    """Return the least stretch of a layout's steps over ways to resume and spares; None where failures do not count.

    The spare racks are those of the target that leaves most time to steps, within the racks of the cluster where their
    number is given. InputError: no way to go on ever trains, as too few racks are fit for work at any time.
    """
    rates, machine, racks = counted(instance), machine_of(instance), instance.hardware.racks
    block = block_of(
        machine.rack.gpus,
        strategy.shape.degrees,
        pipeline_parallel=strategy.pipeline_parallel,
        stages_per_rack=strategy.stages_per_rack,
        replicas_per_rack=strategy.replicas_per_rack,
    )
    if rates is None or block is None:
        return None
    job = CheckpointedJob(
        r=rates,
        gpus=float(strategy.gpus),
        replica_gpus=strategy.gpus // strategy.data_parallel,
        state_bytes=checkpoint_bytes(instance, machine.model),
        replicas=strategy.data_parallel,
        step_seconds=step_seconds,
        shares_state=strategy.zero_stage > 0,
        links=fewest_stops(instance, rates),  # no fabric is chosen
    )
    needed, fit = block.blocks(strategy.data_parallel) * block.racks, rack_availability(rates, block.work_gpus, 0)
    best = math.inf
    for spare in {min_spares(needed, fit, target) for target in rates.spare_targets}:
        if racks is None or needed + spare <= max(needed, racks):
            standing = standing_of([(needed, spare)], fit, block.replicas)
            best = min([best, *(float(stretch) for stretch, _ in stretches(job, standing))])
    if math.isinf(best):
        problem = f"{needed:,} racks are never all fit for work, and no replica can be spared"
        raise InputError(f"reliability: {problem}; give spare racks, shorter repairs, or another way to go on")
    return best


POINTS = 61  # of a curve
FACTOR = 20.0  # from the best intervals to the ends of a curve
STEPS = 12  # from no spare racks to those of the plan, and as many on
TARGET = 0.99  # share of time whose spares end half the curve of a plan that has none


@dataclass(frozen=True, slots=True)
class Exposure:
    """The inputs of a plan's useful share: job, racks at work and spare racks by site, availability, block replicas."""

    job: CheckpointedJob
    needed: dict[str, int]
    spare_racks: dict[str, int]
    rack_availability: float
    block_replicas: int

    def standing(self, spare_racks: Mapping[str, int]) -> SpareEffect:
        """Compute the effect of a plan's spare racks, given their number by site."""
        sites = [(count, spare_racks.get(site, 0)) for site, count in self.needed.items()]
        return standing_of(sites, self.rack_availability, self.block_replicas)


def job_of(plan: Plan, layout: LayoutPlan, rates: Reliability, state_bytes: float) -> CheckpointedJob:
    """Return the job of a plan's layout as failures count for it, by the lanes of its fabric where it has one."""
    lanes = [fabric.lanes for fabric in plan.fabric.sites.values()] if plan.fabric else []
    return CheckpointedJob(
        r=rates,
        gpus=float(layout.gpus_used),
        replica_gpus=layout.gpus_used / layout.data_parallel,
        state_bytes=state_bytes,
        replicas=layout.data_parallel,
        step_seconds=layout.metrics.step_seconds,
        shares_state=layout.zero_stage > 0,
        links=gpu_links(plan.instance.network, max(lanes)) if lanes else fewest_stops(plan.instance, rates),
    )


def exposure_of(plan: Plan) -> Exposure | None:
    """Return the inputs of a plan's useful share at other spares; None where the plan does not count failures."""
    reliability, layout, rates, physics = plan.reliability, plan.layout, counted(plan.instance), PlanPhysics(plan=plan)
    if reliability is None or layout is None or rates is None or physics.faults:
        return None
    unit = strategy_of(layout).unit_racks(physics.gpus_per_rack)
    return Exposure(
        job=job_of(plan, layout, rates, reliability.checkpoint_bytes),
        needed=physics.racks_in_use,
        spare_racks=dict(reliability.spare_racks_by_site),
        rack_availability=reliability.rack_availability,
        block_replicas=layout.replicas_per_rack * (unit // layout.racks_per_replica),
    )


def interval_curves(exposure: Exposure) -> dict[tuple[Recovery, CheckpointTarget], list[tuple[float, float]]]:
    """Trace a plan's useful share over the seconds between checkpoints, for each way to resume, as (x, y) pairs."""
    standing = exposure.standing(exposure.spare_racks)
    own = list(ways(exposure.job, spares=standing.spares))
    known = [float(way.interval_seconds) for way in own if 0 < way.interval_seconds < math.inf]
    if not known:
        return {}
    low = max(min(known) / FACTOR, float(exposure.job.step_seconds))
    seconds, curves = np.geomspace(low, max(known) * FACTOR, POINTS), {}
    for way in own:
        stretch = np.asarray(way_at(exposure.job, way.recovery, way.target, seconds).stretch)
        share = at_work_share(exposure.job, standing, way.recovery) / stretch
        curves[way.recovery, way.target] = list(zip(seconds.tolist(), share.tolist(), strict=True))
    return curves


def spare_points(exposure: Exposure) -> list[tuple[int, float]]:
    """Trace the useful share over spare racks, to twice the plan's, or to those for 99 % of the time if it has none."""
    whole = {site: exposure.spare_racks.get(site, 0) for site in exposure.needed}
    if not any(whole.values()):
        whole = {site: min_spares(count, exposure.rack_availability, TARGET) for site, count in exposure.needed.items()}
    points: dict[int, float] = {}
    for part in range(2 * STEPS + 1):
        racks = {site: round(count * part / STEPS) for site, count in whole.items()}
        found = [float(stretch) for stretch, _ in stretches(exposure.job, exposure.standing(racks))]
        if found:
            points[sum(racks.values())] = 1 / min(found)
    return sorted(points.items())
