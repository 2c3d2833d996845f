"""Rules of the reliability section: stops, checkpoints and spares by the checker's own arithmetic.

A job stops N·λ times a second. A share of each second of work is lost to writing checkpoints, to stops and to work
that is done twice; racks in repair make the job wait, or take replicas down. Written from the description of the
formulas.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.checks.rule import Rule, at_most, broken, must_be, must_equal
from planner.instance.hardware import CheckpointTarget, Recovery, Reliability
from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import step
from planner.physics.training.parallel_strategy import strategy_of
from planner.physics.training.transformer import total_parameters
from planner.plan.certificate import Violation
from planner.plan.plan_sections import LayoutPlan, ReliabilityPlan

Floats = NDArray[np.float64]
HOUR = 3600.0
GRID = 1e-3  # of the logarithm of GPUs, between which bounds are tabulated
MOST_GPUS = 1e10  # of the table
MOST_TURNS = 60  # of a search that halves its interval, or of one that squares its error
CLOSE = 1e-11  # relative, between the ends of a bisection
ROUNDING = 1e-12  # relative, of sums in another order
SERIES = 1e-5  # write over mean time below which four terms of the interval are within 2e-11, Lambert's W no longer
Way = tuple[Recovery, CheckpointTarget]


@dataclass(frozen=True, kw_only=True, eq=False)
class Failures:
    """Failures of an instance's jobs; `state_bytes`: of a checkpoint."""

    r: Reliability
    state_bytes: float
    links: int = 0  # of a GPU at work to its leaves
    transceivers_per_link: int = 0

    @cached_property
    def part_rates(self) -> dict[str, float]:
        """Stops a second of one GPU by part, at the measured size; a NIC with links to spare goes on over them."""
        alone = self.links < 2 or not self.r.lane_failover
        found = {}
        for name, part in self.r.parts.items():
            if part.gpu_hours_per_event is not None:
                found[name] = 1 / part.gpu_hours_per_event / HOUR
            elif part.link_hours_per_event is not None:
                found[name] = alone * self.links / part.link_hours_per_event / HOUR
            else:
                each = self.links * self.transceivers_per_link
                found[name] = alone * each / (part.transceiver_hours_per_event or math.inf) / HOUR
        return found

    @cached_property
    def gpu_rate(self) -> float:
        """Stops a second of one GPU, at the measured size."""
        return math.fsum(self.part_rates.values())

    def rate(self, gpus: Any) -> Floats:
        """Return the stops in a second of a job."""
        larger = np.maximum(np.asarray(gpus, dtype=np.float64) / self.r.measured_gpus, 1.0)
        return np.asarray(self.gpu_rate * gpus * larger**self.r.scale_exponent, dtype=np.float64)

    def write_seconds(self, gpus: Any, target: CheckpointTarget) -> Floats:
        """Return the seconds to write a checkpoint."""
        own = {"storage": self.r.storage_bytes_per_second_per_gpu, "memory": self.r.memory_bytes_per_second_per_gpu}[
            target
        ]
        return np.zeros_like(np.asarray(gpus, dtype=np.float64)) if own is None else self.state_bytes / own / gpus

    def restart_seconds(self, gpus: Any, recovery: Recovery) -> Any:
        """Compute the seconds that a stop takes without the work that is lost."""
        reliability = self.r
        if recovery == "elastic":
            return reliability.elastic_stall_seconds + 0.0 * gpus
        warm = recovery == "warm-spares"
        fixed = reliability.warm_restart_seconds if warm else reliability.restart_seconds
        each = reliability.warm_restart_seconds_per_gpu if warm else reliability.restart_seconds_per_gpu
        return reliability.detection_seconds + reliability.power_ramp_seconds + fixed + each * gpus

    def interval_seconds(
        self, gpus: Any, way: Way, step_seconds: Any, *, shared: bool = False, replica_gpus: Any = 0.0
    ) -> Floats:
        """Return the best interval between checkpoints, no shorter than a step; of 0 GPUs no replica is ever away."""
        rate, write = self.rate(gpus), self.write_seconds(gpus, way[1])
        if way[0] == "elastic":
            best = self._elastic_interval(gpus, replica_gpus, 1 + self._copied(gpus, step_seconds, shared=shared))
        else:
            c = write * rate
            root = _lambert_root(c)
            p = np.sqrt(-2 * np.expm1(-c))  # by which W is expanded at its branch point
            terms = p * (1 - p * (1 / 3 - p * (11 / 72 - p * 43 / 540)))
            best = np.where(c < SERIES, terms, root) / rate
        return np.asarray(np.maximum(best, step_seconds), dtype=np.float64)

    def _elastic_interval(self, gpus: Any, replica_gpus: Any, stepped: Any) -> Any:
        """Return the interval from which on lost work grows faster than writing falls, in shares of the time passed.

        `stepped`: seconds of steps and copies for one of steps. By halves of the logarithm, from that of a job whose
        replicas are all there to that of one that lacks as many as it would without stalls.
        """
        rate, write, stalls = self.rate(gpus), self.write_seconds(gpus, "storage"), self._stalled(gpus)
        away, half = rate / gpus * replica_gpus * self.r.rejoin_seconds, rate * self.r.correlated_share / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = (np.sqrt(write / half / stepped * (n * n + stalls)) for n in (1.0, 1 + away))
            for _ in range(MOST_TURNS):
                if np.all((high <= low * (1 + CLOSE)) | ~np.isfinite(high)):
                    break
                tau = np.sqrt(low) * np.sqrt(high)
                lost = stalls + half * tau
                training = _in_training(away, lost)
                grows = half * tau / (training + lost) * (1 - away * training / ((training + lost) ** 2 - away * lost))
                early = grows < write / (stepped * tau + write)
                low, high = np.where(early, tau, low), np.where(early, high, tau)
        return high

    def stretch(
        self, gpus: Any, replica_gpus: Any, replicas: Any, way: Way, step_seconds: Any = 0.0, *, shared: bool = False
    ) -> Floats:
        """Return the seconds that pass for one of steps, racks at hand; no job of one replica goes on without it."""
        reliability, rate = self.r, self.rate(gpus)
        tau = self.interval_seconds(gpus, way, step_seconds, shared=shared, replica_gpus=replica_gpus)
        write, storage = self.write_seconds(gpus, way[1]), self.write_seconds(gpus, "storage")
        if way[0] != "elastic":
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                x = rate * tau
                work = np.where(x > 0, np.expm1(x + rate * write) / np.where(x > 0, x, 1.0), 1.0)
                work = np.where((x <= 0) & (write > 0), np.inf, work)
                found = work * (1 + rate * self.restart_seconds(gpus, way[0]))
            older = np.sqrt(2 * storage * rate * reliability.correlated_share) if way[1] == "memory" else 0.0
            return np.asarray(found * (1 + older), dtype=np.float64)
        whole = rate * reliability.correlated_share
        with np.errstate(invalid="ignore", divide="ignore"):
            writing = np.where(np.isfinite(tau) & (tau > 0), storage / tau, 0.0)
            lost = np.where(whole > 0, whole * tau / 2, 0.0)
        writing = writing + self._copied(gpus, step_seconds, shared=shared)
        stalls = self._stalled(gpus)
        away = rate / gpus * replica_gpus * reliability.rejoin_seconds
        passed = stalls + lost + _in_training(away, stalls + lost)
        return np.asarray(np.where(np.asarray(replicas) >= 2, (1 + writing) * passed, np.inf), dtype=np.float64)

    def _stalled(self, gpus: Any) -> Any:
        """Return the seconds of stalls for one of work; correlated stops restart the whole job."""
        whole = self.r.correlated_share * self.restart_seconds(gpus, "restart")
        return self.rate(gpus) * (self.r.elastic_stall_seconds + whole)

    def _copied(self, gpus: Any, step_seconds: Any, *, shared: bool) -> Any:
        """Return the seconds of copies to neighbours for one of steps, where replicas share their state."""
        known = np.asarray(step_seconds, dtype=np.float64)
        return np.where(known > 0, self.write_seconds(gpus, "memory") / np.maximum(known, 1e-300), 0.0) * shared

    def ways(self, *, spares: bool) -> list[Way]:
        """List the ways to go on that the figures allow."""
        reliability = self.r
        near = [
            target
            for target in reliability.checkpoint_targets
            if target == "storage" or reliability.memory_bytes_per_second_per_gpu is not None
        ]
        found: list[Way] = []
        for recovery in reliability.recoveries:
            if recovery == "elastic":
                found.append(("elastic", "storage"))
            elif recovery == "restart" or spares:
                found += [(recovery, target) for target in near]
        return found

    def min_stretch(self, replicas: Any, replica_gpus: Any) -> Floats:
        """Bound the stretch of jobs with `replicas` replicas from below.

        Every way to resume is allowed, spares cost nothing, and steps may be arbitrarily short.
        """
        gpus = np.asarray(replicas, dtype=np.float64) * replica_gpus
        found = [self.stretch(gpus, replica_gpus, replicas, way) for way in self.ways(spares=True)]
        return np.asarray(np.minimum.reduce(found), dtype=np.float64)

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - of one check, with which it ends
    def column_stretch(self, replicas: int, replica_gpus: int) -> float:
        """Bound the stretch of one job from below."""
        return float(self.min_stretch(replicas, replica_gpus))

    @cached_property
    def _sizes(self) -> tuple[Floats, Floats]:
        """Tabulate sizes of jobs, and the least stretch of those from each to the next.

        Stops are those of the smaller size, and checkpoints are written by the larger; elastic jobs lose replicas of no
        GPUs, as the replicas that are away may be negligible against the stalls.
        """
        gpus = np.exp(GRID * np.arange(math.ceil(math.log(MOST_GPUS) / GRID)))
        writes = replace(self, state_bytes=self.state_bytes * math.exp(-GRID))
        found = np.minimum.reduce([writes.stretch(gpus, 0.0, 2, way) for way in self.ways(spares=True)])
        return gpus, np.asarray(found * (1 - ROUNDING), dtype=np.float64)

    @cached_property
    def _least_above(self) -> Floats:
        """Tabulate the least stretch of larger jobs."""
        return np.asarray(np.minimum.accumulate(self._sizes[1][::-1])[::-1])

    @cached_property
    def _least_per_gpu(self) -> Floats:
        """Tabulate the least stretch a GPU of jobs up to the next size, negative so that it rises."""
        gpus, found = self._sizes
        return np.asarray(-np.minimum.accumulate(found / gpus) * math.exp(-GRID))

    def stretch_from(self, replicas: Any, replica_gpus: Any) -> Floats:
        """Bound from below the stretch of every job with `replicas` replicas or more."""
        at = np.floor(np.log(np.maximum(np.asarray(replicas) * replica_gpus, 1.0)) / GRID - ROUNDING).astype(np.int64)
        return np.asarray(self._least_above[np.clip(at, 0, len(self._least_above) - 1)], dtype=np.float64)

    def fewest_gpus(self, rate: Any) -> Floats:
        """Bound from below the GPUs of any job whose stretch per GPU is at most `rate`."""
        at = np.searchsorted(self._least_per_gpu, -np.asarray(rate, dtype=np.float64))
        return np.asarray(self._sizes[0][np.minimum(at, len(self._least_per_gpu) - 1)] * (1 - ROUNDING))

    def repairs(self, out: str) -> float:
        """Compute the mean number in repair per GPU at work, of the units `out` that failures take: `gpu` or `rack`."""
        parts = (part for part in self.r.parts.values() if part.out == out)
        return math.fsum(part.repair_hours / part.gpu_hours_per_event for part in parts if part.gpu_hours_per_event)

    def rack_availability(self, gpus: int, spare: int) -> float:
        """Compute the share of time in which a rack has at least `gpus` of its `gpus + spare` GPUs fit for work."""
        enough = at_least(gpus, gpus + spare, 1 / (1 + self.repairs("gpu")))
        return enough / (1 + gpus * self.repairs("rack"))


def failures_of(instance: Instance) -> Failures | None:
    """Return the failures that count, for the fabric whose links fail least.

    Return None where no part fails, or the instance states the share of time that trains.
    """
    reliability, workload = instance.reliability, instance.workload
    if reliability is None or isinstance(reliability, str) or workload.availability < 1 or not reliability.parts:
        return None
    each = workload.precision.parameter_bytes + workload.precision.optimizer_bytes
    failures = Failures(r=reliability, state_bytes=each * total_parameters(step.machine_of(instance).model))
    if instance.network is None:
        return failures
    ends = instance.network.cables.endpoint_transceivers
    nic, known = instance.hardware.gpu_nic_bytes_per_second * 8e-9, instance.network.switches
    ports = {math.ceil(nic / switch.port_gbps * (1 - 1e-9)) for switch in known if isinstance(switch, Switch)}
    own = [
        replace(failures, links=max(1, port), transceivers_per_link=ends)
        for port in ports
        if port <= instance.network.max_lanes
    ]
    return min(own, key=lambda wired: wired.gpu_rate, default=failures)


def _in_training(away: Any, stalled: Any) -> Any:
    """Solve for the seconds of training per second of full work while some replicas are away, without the stalls.

    The equation is x - 1 - A·x/(x + s) = 0 with A = `away` and s = `stalled`; its left side is convex, so that Newton's
    steps from 1 + A descend to the root.
    """
    x = 1 + away + 0.0 * stalled
    for _ in range(MOST_TURNS):
        error = x - 1 - away * x / (x + stalled)
        x = x - error / (1 - away * stalled / (x + stalled) ** 2)
        if np.all(error <= CLOSE * x):
            break
    return x


def _lambert_root(c: Any) -> Any:
    """Return 1 + W(-exp(-1 - c)), the u between 0 and 1 with u + ln(1 - u) = -c, by Newton's steps down from above it.

    The left side is concave and falls, so that no step passes the root.
    """
    c = np.minimum(c, 30.0)  # beyond it u is 1 but for 3e-14
    u = -np.expm1(-1 - c)
    for _ in range(MOST_TURNS):
        down = (u + np.log1p(-u) + c) * (1 - u) / u
        u = u + down
        if np.all(-down <= CLOSE * u):
            break
    return u


@lru_cache(maxsize=4096)
def _chances(n: int, p: float) -> Floats:
    """Return the chance of each number of n that are fit with chance p, by logarithms of factorials."""
    k, factorials = np.arange(n + 1), np.array([math.lgamma(i + 1) for i in range(max(n, 0) + 1)])
    log = factorials[-1] - factorials - factorials[::-1] + k * math.log(p) + (n - k) * math.log1p(-p)
    return np.asarray(np.exp(log), dtype=np.float64)


def at_least(needed: int, n: int, p: float) -> float:
    """Compute the probability that at least `needed` of n are fit, each with probability p."""
    return 1.0 if p >= 1 else float(math.fsum(_chances(n, p)[needed:]))


def mean_short(needed: int, n: int, p: float) -> float:
    """Return the mean number by which those fit are fewer than those needed."""
    return 0.0 if p >= 1 else float(math.fsum(_chances(n, p)[:needed] * (needed - np.arange(needed))))


DAY = 86_400.0


def counted(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that a plan says how it meets failures where the instance has any, and only there."""
    wanted = failures_of(physics.instance) is not None and physics.plan.layout is not None
    if wanted != (physics.plan.reliability is not None):
        yield broken("counted", f"{int(not wanted)} reliability sections, {int(wanted)} expected")


def _sections(physics: PlanPhysics) -> Iterator[tuple[ReliabilityPlan, LayoutPlan, Failures]]:
    reliability, layout, failures = physics.plan.reliability, physics.plan.layout, failures_of(physics.instance)
    if reliability is not None and layout is not None and failures is not None and not physics.faults:
        yield reliability, layout, _wired(physics, failures)


def _wired(physics: PlanPhysics, failures: Failures) -> Failures:
    """Return the failures of a plan's own fabrics; without one, of that whose links fail least."""
    lanes = [fabric.lanes for fabric in physics.plan.fabric.sites.values()] if physics.plan.fabric else []
    return replace(failures, links=max(lanes)) if lanes else failures


def lanes(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that NICs have as many lanes at every site where links are counted."""
    for _, __, failures in _sections(physics):
        if failures.r.counts_links and physics.plan.fabric:
            found = sorted({fabric.lanes for fabric in physics.plan.fabric.sites.values()})
            if len(found) > 1:
                yield broken("lanes", f"NICs of {found} lanes at the sites; as many at all of them expected")


def stops(physics: PlanPhysics) -> Iterator[Violation]:
    """Check how often the job stops, and for which parts."""
    for reliability, layout, failures in _sections(physics):
        rate = float(failures.rate(layout.gpus_used))
        yield from must_equal("stops", "mean time between stops", reliability.stop_seconds, 1 / rate, " s")
        yield from must_be("stops", "parts", sorted(reliability.stops_per_day_by_part), sorted(failures.r.parts))
        for name in failures.r.parts:
            found = rate * DAY * failures.part_rates[name] / failures.gpu_rate
            yield from must_equal(f"stops[{name}]", "stops a day", reliability.stops_per_day_by_part.get(name), found)
        yield from must_be(
            "stops", "extrapolated", reliability.extrapolated, layout.gpus_used > failures.r.measured_gpus
        )


def checkpoints(physics: PlanPhysics) -> Iterator[Violation]:
    """Check the bytes of a checkpoint, the seconds to write it and between two, and the seconds of a restart."""
    for reliability, layout, failures in _sections(physics):
        gpus, way = float(layout.gpus_used), (reliability.recovery, reliability.checkpoint_target)
        yield from must_equal(
            "checkpoints", "bytes of a checkpoint", reliability.checkpoint_bytes, failures.state_bytes
        )
        wrote = float(failures.write_seconds(gpus, way[1]))
        yield from must_equal("checkpoints", "to write one", reliability.checkpoint_write_seconds, wrote, " s")
        each, shared = gpus / layout.data_parallel, layout.zero_stage > 0
        found = float(
            failures.interval_seconds(gpus, way, layout.metrics.step_seconds, shared=shared, replica_gpus=each)
        )
        stated = reliability.checkpoint_interval_seconds
        yield from must_equal("checkpoints", "interval", stated, found if found < float("inf") else None, " s")
        yield from must_equal(
            "checkpoints",
            "cost of a stop",
            reliability.restart_seconds,
            float(failures.restart_seconds(gpus, way[0])),
            " s",
        )


def spares(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that the spare racks of every site are there and are the fewest for their target."""
    for reliability, layout, failures in _sections(physics):
        own = layout.stages_per_rack * layout.replicas_per_rack * strategy_of(layout).shape.gpus
        work = -(-own // layout.racks_per_replica)
        yield from must_be("spares", "sites", sorted(reliability.spare_racks_by_site), sorted(physics.replicas))
        yield from at_most(
            "spares", work + reliability.spare_gpus_per_rack, physics.gpus_per_rack, "GPUs work and stand by", "GPUs"
        )
        fit = failures.rack_availability(work, reliability.spare_gpus_per_rack)
        yield from must_equal("spares", "share of time in which a rack is fit", reliability.rack_availability, fit)
        targets = set(failures.r.spare_targets)
        if reliability.spare_target not in targets:
            yield broken("spares", f"a target of {reliability.spare_target:g}, none of {sorted(targets)}")
        for site, racks in sorted(reliability.spare_racks_by_site.items()):
            needed, rule = physics.racks_in_use.get(site, 0), f"spares[{site}]"
            yield from at_most(
                rule, needed + racks, physics.racks_by_site.get(site, 0), "racks work and stand by", "racks at the site"
            )
            if reliability.spare_target <= 0 or racks < 0:
                yield from must_equal(rule, "spare racks", racks, 0)
                continue
            yield from at_most(rule, 1, racks, "spare rack under a target", "spare racks")
            reached = at_least(needed, needed + racks, fit)
            yield from at_most(rule, reliability.spare_target, reached, "of the time asked for", "with enough racks")
            if racks > 1:
                fewer = at_least(needed, needed + racks - 1, fit)
                yield from at_most(rule, fewer, reliability.spare_target, "of the time with a rack less", "asked for")
        for site in sorted(physics.plan.fabric.sites) if physics.plan.fabric else ():
            need = physics.racks_in_use.get(site, 0) + reliability.spare_racks_by_site.get(site, 0)
            yield from at_most(
                f"spares[{site}]", need, physics.cabled_racks(site), "racks work and stand by", "racks are cabled"
            )
            wired = physics.wired_gpus_per_rack(site)
            yield from at_most(
                f"spares[{site}]", reliability.spare_gpus_per_rack, wired, "GPUs stand by", "GPUs of a rack are cabled"
            )


def _stretches(
    physics: PlanPhysics, reliability: ReliabilityPlan, layout: LayoutPlan, failures: Failures
) -> dict[tuple[str, str], float]:
    """Compute the stretch of every way to resume, given the spare racks at the sites."""
    there, down = _standing(physics, reliability, layout)
    all_spared = all(spares > 0 for spares in reliability.spare_racks_by_site.values())
    gpus, replicas = float(layout.gpus_used), layout.data_parallel
    found: dict[tuple[str, str], float] = {}
    for way in failures.ways(spares=all_spared):
        own = failures.stretch(
            gpus, gpus / replicas, replicas, way, layout.metrics.step_seconds, shared=layout.zero_stage > 0
        )
        left = 1 - down / replicas if way[0] == "elastic" else there
        found[way] = float(own) / left if left > 0 else float("inf")
    return found


def _standing(physics: PlanPhysics, reliability: ReliabilityPlan, layout: LayoutPlan) -> tuple[float, float]:
    """Return the share of time in which all sites have enough racks, and the mean replicas down for want of racks."""
    there, short = 1.0, 0.0
    for site, spares in reliability.spare_racks_by_site.items():
        needed = physics.racks_in_use.get(site, 0)
        there *= at_least(needed, needed + spares, reliability.rack_availability)
        short += mean_short(needed, needed + spares, reliability.rack_availability)
    unit = strategy_of(layout).unit_racks(physics.gpus_per_rack)
    return there, short * layout.replicas_per_rack * (unit // layout.racks_per_replica)


def useful_share(physics: PlanPhysics) -> Iterator[Violation]:
    """Check the share of time that trains, the days lost by cause, and that no other way to resume trains more."""
    for reliability, layout, failures in _sections(physics):
        there, down = _standing(physics, reliability, layout)
        yield from must_equal("useful_share", "share of time with enough racks", reliability.enough_racks_share, there)
        yield from must_equal("useful_share", "replicas short of racks", reliability.replicas_short, down)
        ways = _stretches(physics, reliability, layout, failures)
        own = ways.get((reliability.recovery, reliability.checkpoint_target))
        if own is None:
            yield broken(
                "useful_share",
                f"{reliability.recovery} with checkpoints in {reliability.checkpoint_target}: 0 such ways to go on",
            )
            return
        yield from must_equal("useful_share", "useful share", reliability.useful_share, 1 / own)
        yield from must_equal("useful_share", "of the metrics", layout.metrics.useful_share, reliability.useful_share)
        yield from at_most("useful_share", own, min(ways.values()), "seconds a second of steps", "by the best way")
        lost = sum(reliability.lost_days.values())
        days = layout.metrics.days_to_train - layout.metrics.step_days_to_train
        yield from must_equal("useful_share", "days lost by cause against the days without steps", lost, days)
        for name, value in reliability.lost_days.items():
            yield from at_most(
                f"useful_share[{name}]", 0.0, value + 1e-9 * layout.metrics.days_to_train, "days", "days lost"
            )


RULES: tuple[Rule, ...] = (counted, lanes, stops, checkpoints, spares, useful_share)
