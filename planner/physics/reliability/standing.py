"""What stands by at the sites of a plan, and how the job goes on with it: the section of a plan, from its choices."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.instance.instance import Instance
from planner.instance.reliability import Recovery, Reliability
from planner.instance.workload import Model
from planner.physics.reliability import stops
from planner.physics.reliability.recovery import Job, Way, ways
from planner.physics.reliability.spares import enough_share, mean_short
from planner.physics.training.transformer import total_parameters
from planner.plan.reliability import ReliabilityPlan

SECONDS_PER_DAY = 86_400.0
SHORT = {"elastic": "replicas short of racks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What stands by at the sites of a plan.

    The share of time in which all have enough racks, the mean replicas that racks out of service take down, and
    whether every site has a spare rack.
    """

    enough_share: float
    replicas_down: float
    spares: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """How a plan meets failures: the way to go on, what it stretches steps by, and what stands by at the sites."""

    way: Way
    stretch: float
    standing: Standing
    spare_target: float
    spare_racks: dict[str, int]
    rack_availability: float
    work_gpus: int
    rails: int


def counted(instance: Instance) -> Reliability | None:
    """Return the failures that count; None where there are none, or the workload says the share that trains."""
    r = instance.reliability
    if r is None or isinstance(r, str) or instance.workload.availability < 1 or not stops.stops_per_gpu_second(r):
        return None
    return r


def checkpoint_bytes(instance: Instance, model: Model) -> float:
    """Return the bytes of a checkpoint: master weights and optimiser of every parameter."""
    p = instance.workload.precision
    return float(total_parameters(model)) * (p.parameter_bytes + p.optimizer_bytes)


def standing_of(sites: Iterable[tuple[int, int]], rack_availability: float, block_replicas: int) -> Standing:
    """Return what stands by at sites of so many racks at work and spare; a rack that lacks takes its block down."""
    racks = list(sites)
    return Standing(
        enough_share=math.prod(enough_share(n, s, rack_availability) for n, s in racks),
        replicas_down=block_replicas * sum(mean_short(n, s, rack_availability) for n, s in racks),
        spares=all(s for _, s in racks),
    )


def stretches(job: Job, standing: Standing) -> Iterator[tuple[Any, Way]]:
    """Yield the stretch of each way to go on with what stands by at the sites, and the way.

    A whole job waits until every site has enough racks; an elastic one goes on without the replicas of those short.
    """
    for way in ways(job, spares=standing.spares):
        there = at_work_share(job, standing, way.recovery)
        yield (way.stretch / there if there > 0 else np.full_like(way.stretch, np.inf)), way


def at_work_share(job: Job, standing: Standing, recovery: Recovery) -> float:
    """Return the share of time, or of replicas, that racks out of service leave a job at work."""
    if recovery == "elastic":
        return 1 - standing.replicas_down / float(np.max(job.replicas))
    return standing.enough_share


def section(job: Job, u: Upkeep, step_days: float) -> ReliabilityPlan:
    """Return the section of a plan whose steps alone take so many days."""
    way, gpus = u.way, float(job.gpus)
    scale = gpus * float(stops.scale_factor(job.r, gpus))
    interval = float(way.interval_seconds)
    lost = {name: float(x) * step_days for name, x in way.parts.items()}
    lost[SHORT.get(way.recovery, "waiting for racks")] = (u.stretch - float(way.stretch)) * step_days
    return ReliabilityPlan(
        recovery=way.recovery,
        checkpoint_target=way.target,
        checkpoint_interval_seconds=interval if math.isfinite(interval) else None,
        checkpoint_write_seconds=float(way.write_seconds),
        checkpoint_bytes=job.state_bytes,
        stop_seconds=1 / float(job.stops_per_second),
        stops_per_day_by_part=stops_per_day(job.r, scale, job.links),
        restart_seconds=float(way.restart_seconds),
        spare_target=u.spare_target,
        spare_racks_by_site=u.spare_racks,
        spare_gpus_per_rack=u.rails - u.work_gpus,
        rack_availability=u.rack_availability,
        enough_racks_share=u.standing.enough_share,
        replicas_short=u.standing.replicas_down,
        useful_share=1 / u.stretch,
        lost_days=lost,
        extrapolated=gpus > job.r.measured_gpus,
    )


def stops_per_day(r: Reliability, gpus: float, links: stops.GpuLinks) -> Mapping[str, float]:
    """Return the stops in a day of so many GPUs at the measured rates, by what fails."""
    return {name: rate * gpus * SECONDS_PER_DAY for name, rate in stops.part_stops_per_gpu_second(r, links).items()}
