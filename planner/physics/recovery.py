"""How often a job stops, the time that stops cost, spare racks against them, and a plan's useful share of time.

Stops come at random with a mean time M between them, of time in which the job trains or writes checkpoints. The
stretch is the mean time that passes for a second of steps; its inverse is the useful share.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.network import Network
from planner.instance.reliability import CheckpointTarget, Recovery, Reliability
from planner.physics import Floats, Num
from planner.physics.network.fabric_designs import lanes_of
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.parallel_strategy import ParallelStrategy, block_of, strategy_of
from planner.physics.training.step_prediction import SECONDS_PER_DAY
from planner.physics.training.transformer import total_parameters
from planner.plan.plan import Plan
from planner.plan.plan_sections import ReliabilityPlan

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """The links of a GPU at work, whose failures stop a job: one for each lane of its NIC, and their transceivers."""

    links: int = 0
    transceivers: int = 0


NO_LINKS = GpuLinks()


def gpu_links(network: Network | None, lanes: int) -> GpuLinks:
    """Return the links by which a GPU can stop a job, its NIC on `lanes` lanes; `NO_LINKS` without a network."""
    return NO_LINKS if network is None else GpuLinks(lanes, lanes * network.cables.endpoint_transceivers)


def lanes_to_choose(instance: Instance) -> list[int]:
    """List for a job's recovery how many links of a GPU may fail and stop it: its NIC's lanes; none: no network."""
    network, nic = instance.network, instance.hardware.gpu_nic_bytes_per_second
    found = {lanes_of(switch, nic) for switch in (() if network is None else network.switches)}
    return sorted(lanes for lanes in found if network is not None and lanes <= network.max_lanes)


def part_stops_per_gpu_second(rates: Reliability, links: GpuLinks = NO_LINKS) -> dict[str, float]:
    """Compute how often failures of each kind of part stop a job, a second of one GPU at work, at the measured size."""
    stopping = NO_LINKS if rates.lane_failover and links.links > 1 else links
    by_part: dict[str, float] = {}
    for name, part in rates.parts.items():
        # How many of it a GPU at work has, and the hours of each to its next event.
        counts = (1, part.gpu_hours_per_event), (stopping.links, part.link_hours_per_event)
        each = (*counts, (stopping.transceivers, part.transceiver_hours_per_event))
        by_part[name] = sum(count / (hours * SECONDS_PER_HOUR) for count, hours in each if hours is not None)
    return by_part


def stops_per_gpu_second(rates: Reliability, links: GpuLinks = NO_LINKS) -> float:
    """Compute how often failures of all parts stop a job, a second of one GPU at work, at the measured size."""
    return sum(part_stops_per_gpu_second(rates, links).values())


def scale_factor(rates: Reliability, gpus: Num) -> Any:
    """Compute (gpus / measured)^exponent, by which a job's stops exceed proportionality; 1 up to `measured_gpus`."""
    if not rates.scale_exponent:
        return 1.0
    return np.maximum(1.0, np.asarray(gpus, dtype=np.float64) / rates.measured_gpus) ** rates.scale_exponent


NEWTON_STEPS = 60  # towards the best interval, from one side; the last of them square the error
MOST_STALLED = 1e12  # seconds of stalls per second of work: replicas that are away are negligible against it
LARGE = 100.0  # the time of writing a checkpoint over the mean time between stops
SMALL = 0.01  # the time between checkpoints and their writing over the mean time between stops
ENOUGH = 1e-10  # relative change below which a step is of rounding: in a table each job stops where it does alone


@dataclass(frozen=True, kw_only=True)
class CheckpointedJob:
    """A job with checkpoints: the properties that determine its stops; numbers or arrays of one shape."""

    r: Reliability
    gpus: Num  # GPUs at work
    replica_gpus: Num  # those of one replica
    state_bytes: float  # a checkpoint of the whole job
    replicas: Num = 2  # a job of one alone cannot lose it
    step_seconds: Num = 0.0  # the shortest interval between checkpoints; 0 where the step is not known
    shares_state: bool = False  # of the optimiser, so that neighbours have copies for a lost replica
    links: GpuLinks = NO_LINKS  # what joins a GPU at work to its leaves

    @cached_property
    def stops_per_second(self) -> Any:
        """Return a job's stops per second, summed over the parts of each GPU at work."""
        return self.gpus * stops_per_gpu_second(self.r, self.links) * scale_factor(self.r, self.gpus)

    def write_seconds(self, target: CheckpointTarget) -> Any:
        """Return the seconds to write a job's checkpoint to a target: every GPU an even part of the state."""
        rates = self.r
        rate = rates.storage_bytes_per_second_per_gpu if target == "storage" else rates.memory_bytes_per_second_per_gpu
        return 0.0 if rate is None else self.state_bytes / (self.gpus * rate)

    def restart_seconds(self, recovery: Recovery = "restart") -> Any:
        """Return the seconds from a failure until a job trains on at full power: whole, on warm spares or elastic."""
        rates = self.r
        if recovery == "elastic":
            return rates.elastic_stall_seconds
        fixed, each = rates.restart_seconds, rates.restart_seconds_per_gpu
        if recovery == "warm-spares":
            fixed, each = rates.warm_restart_seconds, rates.warm_restart_seconds_per_gpu
        return rates.detection_seconds + fixed + each * self.gpus + rates.power_ramp_seconds


def job_of(instance: Instance) -> CheckpointedJob | None:
    """Return the job whose recovery is predicted: of one GPU on the links that stop it least often; None: no failures.

    None without failure rates, and where the workload states the share of time that trains. A checkpoint of the job
    has the weights, master weights and optimiser of each parameter.
    """
    rates, precision = instance.reliability, instance.workload.precision
    if rates is None or instance.workload.availability < 1 or not stops_per_gpu_second(rates):
        return None
    state = float(total_parameters(instance.workload.model)) * (precision.parameter_bytes + precision.optimizer_bytes)
    each = (gpu_links(instance.network, lanes) for lanes in lanes_to_choose(instance))
    links = min(each, key=lambda links: stops_per_gpu_second(rates, links), default=NO_LINKS)
    return CheckpointedJob(r=rates, gpus=1.0, replica_gpus=0.0, state_bytes=state, links=links)


def best_interval_seconds(mean: Num, write: Num) -> Any:
    """Return the checkpoint interval in seconds that loses least to checkpoints and repeated work (Daly 2006)."""
    # With y = τ/M and c = w/M the optimum of (exp(y + c) - 1)/y solves -ln(1 - y) - y = c (without his
    # expansion, whose first terms are sqrt(2·M·w) - w). Of u = y + c that is u + exp(-u) - 1 = c; Newton's steps come
    # down from c + min(1, sqrt(2c)). From LARGE on y is 1 to a double.
    c = np.minimum(np.asarray(write / mean, dtype=np.float64), LARGE)
    u = c + np.minimum(1.0, np.sqrt(2 * c))
    for _ in range(NEWTON_STEPS):
        # Below SMALL the two terms cancel; there is their series, whose next term is 1e-13 of it.
        series = u * u * (1 / 2 - u * (1 / 6 - u * (1 / 24 - u * (1 / 120 - u / 720))))
        excess = np.where(u < SMALL, series, u + np.expm1(-u)) - c
        step = -excess / np.where(u > 0, -np.expm1(-u), 1.0)
        step = np.where(np.abs(step) > ENOUGH * u, step, 0.0)
        if not np.any(step):
            break
        u = u + step
    return -np.expm1(-u) * mean


def restart_stretch(mean: Num, interval: Num, write: Num, restart: Num) -> Any:
    """Return a job's stretch where stops cost a restart and the work since the last checkpoint (Daly 2006, eq. 13)."""
    # τ seconds of work and a write take (M + R)·(exp((τ + w)/M) - 1) with failures in them, none in the restart of R.
    tau = np.asarray(interval, dtype=np.float64)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        grown = np.expm1((tau + write) / mean)
        per_second = np.where(tau > 0, grown * mean / np.where(tau > 0, tau, 1.0), np.where(grown > 0, np.inf, 1.0))
        return (1 + restart / mean) * per_second


@dataclass(frozen=True, slots=True)
class Way:
    """A way for a job to resume after a failure: recovery, checkpoint target, and the stretch of run time."""

    recovery: Recovery
    target: CheckpointTarget
    stretch: Any  # seconds of run time per second of steps
    interval_seconds: Any  # between checkpoints


def ways(job: CheckpointedJob, *, spares: bool) -> Iterator[Way]:
    """Yield the ways of recovery in which a job resumes after a failure, on spare racks only with `spares`."""
    rates = job.r
    intervals = dict[tuple[bool, CheckpointTarget], Any]()  # whole jobs all start again from the same checkpoints
    for recovery in rates.recoveries:
        if recovery == "warm-spares" and not spares:
            continue
        for target in ("storage",) if recovery == "elastic" else rates.checkpoint_targets:
            if target == "memory" and rates.memory_bytes_per_second_per_gpu is None:
                continue
            key = recovery == "elastic", target
            if key not in intervals:
                intervals[key] = best_interval(job, recovery, target)
            yield way_at(job, recovery, target, intervals[key])


def best_interval(job: CheckpointedJob, recovery: Recovery, target: CheckpointTarget) -> Any:
    """Return the seconds between a job's checkpoints that stretch time least in a way to resume, a step at least."""
    # The stretch is convex in the logarithm of the interval, so that it grows from the best one to a longer step.
    write = job.write_seconds(target)
    if recovery != "elastic":
        return np.maximum(best_interval_seconds(1 / job.stops_per_second, write), job.step_seconds)
    # Where (1 + k + w/τ)·(y + S), an elastic job's stretch, is least (to 1e-10): only correlated stops lose work, so
    # S = s + r·τ of stalls and lost work for a second of work, with r = c/(2M); k of copies; y = y(S), 1 over the share
    # of replicas there. The logarithms of both factors are convex in ln τ, so there is one minimum, where τ² = w·(s +
    # y²)/(r·(1 + k)). In t = (r·τ)² that is the root of t - κ·(s + y²), which rises and is concave, as y falls and is
    # convex in t: Newton's steps from y = 1 come up to it and do not pass it.
    rare, stalls, away, copies = _elastic_rates(job)
    rare = rare / 2
    kappa = rare * write / (1 + copies)
    t = np.asarray(kappa * (1 + stalls), dtype=np.float64)
    for _ in range(NEWTON_STEPS):
        lost = np.sqrt(t)
        y = inverse_share_there(away, stalls + lost)
        slope = y * y * (y - 1) / (y * y + stalls + lost)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(t > 0, (kappa * (stalls + y * y) - t) / (1 + kappa * slope / lost), 0.0)
        step = np.where(np.abs(step) > ENOUGH * t, step, 0.0)
        if not np.any(step):
            break
        t = t + step
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(np.where(rare > 0, np.sqrt(t) / rare, np.inf), job.step_seconds)


def way_at(job: CheckpointedJob, recovery: Recovery, target: CheckpointTarget, interval: Any) -> Way:
    """Return a job's way to resume after a failure with checkpoints at any interval, in seconds."""
    # A whole job restarts from its last checkpoint. An elastic one stalls, and goes on without the lost replica until
    # it is back; correlated stops restart it whole from storage. To first order in all of these its useful share is 1 -
    # w/τ - G·λ·T - stall/M - c·(R + τ/2)/M.
    if recovery == "elastic":
        there, stalls, lost, written = _elastic_shares(job, target, interval)
        stretch = np.where(np.asarray(job.replicas) > 1, (1 + written) * (there + stalls + lost), np.inf)
    else:
        write, restart = job.write_seconds(target), job.restart_seconds(recovery)
        stretch = restart_stretch(1 / job.stops_per_second, interval, write, restart) * (1 + _older_copies(job, target))
    return Way(recovery, target, stretch, interval)


def _older_copies(job: CheckpointedJob, target: CheckpointTarget) -> Any:
    # Copies in memory are lost in correlated stops, so that storage keeps older ones: of these the stretch is that of a
    # rare stop, 1 + w/τ + c·τ/(2M) at its best τ.
    if target == "storage":
        return 0.0
    return np.sqrt(2 * job.r.correlated_share * job.write_seconds("storage") * job.stops_per_second)


def losses(job: CheckpointedJob, way: Way) -> dict[str, Any]:
    """Return the seconds that a job loses to failures per second of steps, by cause; they and 1 sum to the stretch."""
    if way.recovery == "elastic":
        there, stalls, lost, written = _elastic_shares(job, way.target, way.interval_seconds)
        first = {"checkpoints": written, "restarts": stalls, "lost work": lost, "replicas away": there - 1}
        scale = (way.stretch - 1) / np.maximum(sum(first.values()), 1e-300)
        return {name: share * scale for name, share in first.items()}
    older, interval = _older_copies(job, way.target), way.interval_seconds
    restarts = job.restart_seconds(way.recovery) * job.stops_per_second
    with np.errstate(divide="ignore", invalid="ignore"):
        written = np.where(interval > 0, job.write_seconds(way.target) / interval, 0.0)
    checkpoints = written + older
    return {"checkpoints": checkpoints, "restarts": restarts, "lost work": way.stretch - 1 - checkpoints - restarts}


def inverse_share_there(away: Any, stalled: Any) -> Any:
    """Return y, 1 over the mean share of an elastic job's replicas that failures leave while it trains."""
    # For one second of full work y pass in training, and s in stalls, in which nothing fails and the lost come back: of
    # the T seconds that one is away T·y/(y + s) are of training. A replica there fails at G·λ, so y is 1 + A·y/(y + s)
    # with A = G·λ·T, whose root is that of y² + (s - 1 - A)·y - s; written so that nothing cancels.
    s = np.minimum(stalled, MOST_STALLED)
    b = 1 + away - s
    root = np.sqrt(b * b + 4 * s)
    return np.where(b > 0, (b + root) / 2, 2 * s / np.maximum(root - b, 1e-300))


def _elastic_rates(job: CheckpointedJob) -> tuple[Any, Any, Any, Any]:
    """Return an elastic job's correlated stops a second; seconds for one of work: stalled, replica away, copies."""
    # Correlated stops stall the job by a whole restart. Where replicas share the optimiser's state each step ends with
    # a copy of it to a neighbour's memory.
    rates, stops, step = job.r, job.stops_per_second, np.asarray(job.step_seconds, dtype=np.float64)
    stalls = (rates.elastic_stall_seconds + rates.correlated_share * job.restart_seconds()) * stops
    away, copies = job.replica_gpus * stops / job.gpus * rates.rejoin_seconds, np.zeros_like(step)
    if job.shares_state:
        copies = np.where(step > 0, job.write_seconds("memory") / np.where(step > 0, step, 1.0), 0.0)
    return rates.correlated_share * stops, stalls, away, copies


def _elastic_shares(job: CheckpointedJob, target: CheckpointTarget, interval: Any) -> tuple[Any, Any, Any, Any]:
    """Return an elastic job's seconds for one of work: training, stalled, of work lost, and of checkpoints."""
    rare, stalls, away, copies = _elastic_rates(job)
    with np.errstate(divide="ignore", invalid="ignore"):
        written = np.where(np.isfinite(interval) & (interval > 0), job.write_seconds(target) / interval, 0.0)
        lost = np.where(rare > 0, rare * interval / 2, 0.0)
    return inverse_share_there(away, stalls + lost), stalls, lost, written + copies


def min_stretch(job: CheckpointedJob) -> Any:
    """Return the least stretch of a job over all its ways to resume after a failure."""
    return np.minimum.reduce([np.asarray(way.stretch, dtype=np.float64) for way in ways(job, spares=True)])


def rack_availability(rates: Reliability, gpus: int, spare_gpus: int) -> float:
    """Compute the share of time in which `gpus` or more of a rack with `spare_gpus` spare GPUs are fit to work."""
    # GPUs fail independently, each fit for MTBF/(MTBF + MTTR) of the time: the k-of-n formula. The rack's other parts
    # have no spares; each counts for each of the rack's GPUs.
    share = {"gpu": 0.0, "rack": 0.0}  # in repair per GPU at work, by what a failure takes out: the sum of MTTR/MTBF
    for part in rates.parts.values():
        if part.gpu_hours_per_event is not None:
            share[part.out] += part.repair_hours / part.gpu_hours_per_event
    return enough_share(gpus, spare_gpus, 1 / (1 + share["gpu"])) / (1 + share["rack"] * gpus)


@lru_cache(maxsize=256)
def _chances(racks: int, availability: float) -> tuple[int, Floats]:
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
    return float(np.maximum(0, needed - first - np.arange(len(chances))) @ chances)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareEffect:
    """The effect of spare racks on a job that fails: for how long racks are enough, and how many replicas are down."""

    enough_share: float  # share of time in which all sites have enough racks fit for work
    replicas_down: float  # mean number of replicas that racks out of service take down
    spares: bool  # whether every site has a spare rack


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """A job's recovery from failures with its spares: way to resume, stretch of its steps, and spare racks by site."""

    way: Way
    stretch: float
    standing: SpareEffect
    spare_target: float
    spare_racks: dict[str, int]
    rack_availability: float
    work_gpus: int
    rails: int


def standing_of(sites: Iterable[tuple[int, int]], rack_availability: float, block_replicas: int) -> SpareEffect:
    """Compute what spare racks do for a failing job from sites' (at work, spare); one missing takes a block down."""
    racks = list(sites)
    return SpareEffect(
        enough_share=math.prod(enough_share(work, spare, rack_availability) for work, spare in racks),
        replicas_down=block_replicas * sum(mean_short(work, spare, rack_availability) for work, spare in racks),
        spares=all(spare for _, spare in racks),
    )


def stretches(
    job: CheckpointedJob, standing: SpareEffect, known: Iterable[Way] | None = None
) -> Iterator[tuple[Any, Way]]:
    """Yield (stretch, way): how far failures stretch a job in each way of recovery, or `known`, by its spares."""
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
    """Compute the figures of a job's recovery from failures with spares; its steps take `step_days` undisturbed."""
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
        checkpoint_write_seconds=float(job.write_seconds(way.target)),
        checkpoint_bytes=job.state_bytes,
        stop_seconds=1 / float(job.stops_per_second),
        stops_per_day_by_part={name: rate * scale * SECONDS_PER_DAY for name, rate in rates.items()},
        restart_seconds=float(job.restart_seconds(way.recovery)),
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
    """Compute how far failures stretch a job's steps in the best recovery, spares among it; None if they do not count.

    The spare racks are those of the target that leaves most time to steps, within the racks of the cluster where their
    number is given. InputError: no way to go on ever trains, as too few racks are fit for work at any time.
    """
    alone, racks = job_of(instance), instance.hardware.racks
    block = block_of(
        instance.hardware.rack.gpus,
        strategy.shape.degrees,
        pipeline_parallel=strategy.pipeline_parallel,
        stages_per_rack=strategy.stages_per_rack,
        replicas_per_rack=strategy.replicas_per_rack,
    )
    if alone is None or block is None:
        return None
    job = replace(
        alone,
        gpus=float(strategy.gpus),
        replica_gpus=strategy.gpus // strategy.data_parallel,
        replicas=strategy.data_parallel,
        step_seconds=step_seconds,
        shares_state=strategy.zero_stage > 0,
    )
    needed, fit = block.blocks(strategy.data_parallel) * block.racks, rack_availability(job.r, block.work_gpus, 0)
    best = math.inf
    for spare in {min_spares(needed, fit, target) for target in job.r.spare_targets}:
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
    """The inputs of a failing job's useful share: racks at work and spare by site, availability, block replicas."""

    job: CheckpointedJob
    needed: dict[str, int]
    spare_racks: dict[str, int]
    rack_availability: float
    block_replicas: int

    def standing(self, spare_racks: Mapping[str, int]) -> SpareEffect:
        """Compute what spare racks do for a job that fails, given their number by site."""
        sites = [(count, spare_racks.get(site, 0)) for site, count in self.needed.items()]
        return standing_of(sites, self.rack_availability, self.block_replicas)


def exposure_of(plan: Plan) -> Exposure | None:
    """Return the inputs of the useful share of a plan's job that fails; None where the plan does not count failures."""
    reliability, layout, alone, physics = plan.reliability, plan.layout, job_of(plan.instance), PlanPhysics(plan=plan)
    if reliability is None or layout is None or alone is None or physics.faults:
        return None
    unit = strategy_of(layout).unit_racks(physics.gpus_per_rack)
    lanes = [fabric.lanes for fabric in plan.fabric.sites.values()] if plan.fabric else []
    job = replace(
        alone,
        gpus=float(layout.gpus_used),
        replica_gpus=layout.gpus_used / layout.data_parallel,
        state_bytes=reliability.checkpoint_bytes,
        replicas=layout.data_parallel,
        step_seconds=layout.metrics.step_seconds,
        shares_state=layout.zero_stage > 0,
        links=gpu_links(plan.instance.network, max(lanes)) if lanes else alone.links,
    )
    return Exposure(
        job=job,
        needed=physics.racks_in_use,
        spare_racks=dict(reliability.spare_racks_by_site),
        rack_availability=reliability.rack_availability,
        block_replicas=layout.replicas_per_rack * (unit // layout.racks_per_replica),
    )


def interval_curves(exposure: Exposure) -> dict[tuple[Recovery, CheckpointTarget], list[tuple[float, float]]]:
    """Compute the useful share of a job that fails over the seconds between checkpoints, as (x, y) by way to resume."""
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
    """Compute the useful share of a failing job over spare racks, to twice the plan's, else those for 99 % of time."""
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
