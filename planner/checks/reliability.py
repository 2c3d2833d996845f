"""Rules of the reliability section: stops, checkpoints and spares by the checker's own arithmetic.

A job stops N·λ times a second. A share of each second of work is lost to writing checkpoints, to stops and to work
that is done twice; racks in repair make the job wait, or take replicas down. Written from the description of the
formulas.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.checks.rule import Violations, at_most, broken, figures, must_be, must_equal, parts
from planner.instance.hardware import CheckpointTarget, Recovery, Reliability
from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.parallel_strategy import strategy_of
from planner.physics.training.step_prediction import machine_of
from planner.physics.training.transformer import total_parameters
from planner.plan.plan_sections import LayoutPlan, ReliabilityPlan

Floats = NDArray[np.float64]
HOUR, DAY = 3600.0, 86_400.0
GRID = 1e-3  # of the logarithm of GPUs, between which bounds are tabulated
MOST_GPUS = 1e10  # of the table
MOST_TURNS = 60  # of a search that halves its interval, or of one that squares its error
CLOSE = 1e-11  # relative, between the ends of a bisection
ROUNDING = 1e-12  # relative, of sums in another order
SERIES = 1e-5  # write over mean time below which four terms of the interval are within 2e-11, Lambert's W no longer
Way = tuple[Recovery, CheckpointTarget]


@dataclass(frozen=True, kw_only=True, eq=False)
class Failures:
    """Failures of an instance's jobs: of one job, or of arrays of them."""

    r: Reliability
    state_bytes: float  # of a checkpoint
    links: int = 0  # of a GPU at work to its leaves
    transceivers_per_link: int = 0

    @cached_property
    def part_rates(self) -> dict[str, float]:
        """Stops a second of one GPU by part, at the measured size; a NIC with links to spare goes on over them."""
        links = self.links if self.links < 2 or not self.r.lane_failover else 0
        units = {"gpu": 1, "link": links, "transceiver": links * self.transceivers_per_link}
        found = {}
        for name, part in self.r.parts.items():  # each is counted by one of its keys
            hours = {what: getattr(part, f"{what}_hours_per_event") for what in units}
            (found[name],) = (units[what] / each / HOUR for what, each in hours.items() if each is not None)
        return found

    @cached_property
    def gpu_rate(self) -> float:
        """Stops a second of one GPU, at the measured size."""
        return math.fsum(self.part_rates.values())

    def rate(self, gpus: Any) -> Any:
        """Return the stops in a second of a job."""
        return self.gpu_rate * gpus * np.maximum(gpus / self.r.measured_gpus, 1.0) ** self.r.scale_exponent

    def write_seconds(self, gpus: Any, target: CheckpointTarget) -> Any:
        """Return the seconds to write a checkpoint."""
        own = getattr(self.r, f"{target}_bytes_per_second_per_gpu")
        return 0.0 * gpus if own is None else self.state_bytes / own / gpus

    def restart_seconds(self, gpus: Any, recovery: Recovery) -> Any:
        """Compute the seconds that a stop takes without the work that is lost."""
        if recovery == "elastic":
            return self.r.elastic_stall_seconds + 0.0 * gpus
        way = "warm_restart_seconds" if recovery == "warm-spares" else "restart_seconds"
        fixed, each = getattr(self.r, way), getattr(self.r, f"{way}_per_gpu")
        return self.r.detection_seconds + self.r.power_ramp_seconds + fixed + each * gpus

    def interval_seconds(
        self, gpus: Any, way: Way, step_seconds: Any, *, shared: bool = False, replica_gpus: Any = 0.0
    ) -> Floats:
        """Return the best interval between checkpoints, no shorter than a step; of 0 GPUs no replica is ever away."""
        rate, write = self.rate(gpus), self.write_seconds(gpus, way[1])
        if way[0] == "elastic":
            best = self._elastic_interval(gpus, replica_gpus, 1 + self._copied(gpus, step_seconds, shared=shared))
        else:
            c = write * rate
            # 1 + W(-exp(-1 - c)), the u between 0 and 1 with u + ln(1 - u) = -c, by Newton's steps down from above it:
            # the left side is concave and falls, so that no step passes the root. Beyond 30 u is 1 but for 3e-14.
            most = np.minimum(c, 30.0)
            root = _descend(-np.expm1(-1 - most), lambda u: -(u + np.log1p(-u) + most) * (1 - u) / u)
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
            x = rate * tau
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                work = np.where(x > 0, np.expm1(x + rate * write) / x, np.where(write > 0, np.inf, 1.0))
                found = work * (1 + rate * self.restart_seconds(gpus, way[0]))
            older = np.sqrt(2 * storage * rate * reliability.correlated_share) if way[1] == "memory" else 0.0
            return np.asarray(found * (1 + older), dtype=np.float64)
        whole = rate * reliability.correlated_share
        with np.errstate(invalid="ignore", divide="ignore"):
            writing = np.where(np.isfinite(tau) & (tau > 0), storage / tau, 0.0)
            lost = np.where(whole > 0, whole * tau / 2, 0.0)
        writing, stalls = writing + self._copied(gpus, step_seconds, shared=shared), self._stalled(gpus)
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
        """List the ways to go on that the figures allow: elastic ones write to storage, warm spares must be there."""
        in_memory = self.r.memory_bytes_per_second_per_gpu is not None
        near = [target for target in self.r.checkpoint_targets if target == "storage" or in_memory]
        own: dict[Recovery, list[CheckpointTarget]] = {"elastic": ["storage"], "warm-spares": near if spares else []}
        return [(way, target) for way in self.r.recoveries for target in own.get(way, near)]

    def min_stretch(self, replicas: Any, replica_gpus: Any) -> Any:
        """Bound the stretch of jobs from below: every way to resume, free spares and arbitrarily short steps."""
        gpus = np.asarray(replicas, dtype=np.float64) * replica_gpus
        return np.minimum.reduce([self.stretch(gpus, replica_gpus, replicas, way) for way in self.ways(spares=True)])

    @lru_cache(maxsize=1 << 16)  # noqa: B019 - of one check, with which it ends
    def column_stretch(self, replicas: int, replica_gpus: int) -> float:
        """Bound the stretch of one job from below."""
        return float(self.min_stretch(replicas, replica_gpus))

    @cached_property
    def _table(self) -> tuple[Floats, Floats, Floats]:
        """Tabulate sizes of jobs, the least stretch of larger jobs, and the least a GPU of those up to the next size.

        Stops are those of the smaller size, and checkpoints are written by the larger; elastic jobs lose replicas of no
        GPUs, as the replicas that are away may be negligible against the stalls. What is a GPU's is negative, so that
        it rises.
        """
        gpus = np.exp(GRID * np.arange(math.ceil(math.log(MOST_GPUS) / GRID)))
        writes = replace(self, state_bytes=self.state_bytes * math.exp(-GRID))
        found = np.minimum.reduce([writes.stretch(gpus, 0.0, 2, way) for way in self.ways(spares=True)])
        found = found * (1 - ROUNDING)
        above = np.minimum.accumulate(found[::-1])[::-1]
        return gpus, above, -np.minimum.accumulate(found / gpus) * math.exp(-GRID)

    def stretch_from(self, replicas: Any, replica_gpus: Any) -> Any:
        """Bound from below the stretch of every job with `replicas` replicas or more."""
        _, above, _ = self._table
        gpus = np.maximum(np.asarray(replicas) * replica_gpus, 1.0)
        at = np.floor(np.log(gpus) / GRID - ROUNDING).astype(np.int64)
        return above[np.clip(at, 0, len(above) - 1)]

    def fewest_gpus(self, rate: Any) -> Any:
        """Bound from below the GPUs of any job whose stretch per GPU is at most `rate`."""
        sizes, _, each = self._table
        return sizes[np.minimum(np.searchsorted(each, -rate), len(each) - 1)] * (1 - ROUNDING)

    def rack_availability(self, gpus: int, spare: int) -> float:
        """Compute the share of time in which a rack has at least `gpus` of its `gpus + spare` GPUs fit for work."""
        repairs = dict.fromkeys(("gpu", "rack"), 0.0)  # mean number per GPU at work, of the units taken out
        for part in self.r.parts.values():
            if part.gpu_hours_per_event and part.out in repairs:
                repairs[part.out] += part.repair_hours / part.gpu_hours_per_event
        return at_least(gpus, gpus + spare, 1 / (1 + repairs["gpu"])) / (1 + gpus * repairs["rack"])


class NoFailures:
    """Stretch of jobs that never stop, as `Failures` bounds those of others."""

    min_stretch = column_stretch = stretch_from = staticmethod(lambda *_: 1.0)
    fewest_gpus = staticmethod(lambda rate: 1 / rate)


def failures_of(instance: Instance) -> Failures | None:
    """Return the failures that count, for the fabric whose links fail least; None where none count."""
    reliability, workload = instance.reliability, instance.workload
    if reliability is None or isinstance(reliability, str) or workload.availability < 1 or not reliability.parts:
        return None
    each = workload.precision.parameter_bytes + workload.precision.optimizer_bytes
    failures = Failures(r=reliability, state_bytes=each * total_parameters(machine_of(instance).model))
    if instance.network is None:
        return failures
    ends = instance.network.cables.endpoint_transceivers
    nic, known = instance.hardware.gpu_nic_bytes_per_second * 8e-9, instance.network.switches
    ports = {math.ceil(nic / switch.port_gbps * (1 - 1e-9)) for switch in known if isinstance(switch, Switch)}
    lanes = (max(1, port) for port in ports if port <= instance.network.max_lanes)
    own = (replace(failures, links=links, transceivers_per_link=ends) for links in lanes)
    return min(own, key=lambda wired: wired.gpu_rate, default=failures)


def _in_training(away: Any, stalled: Any) -> Any:
    """Solve for the seconds of training per second of full work while some replicas are away, without the stalls.

    The equation is x - 1 - A·x/(x + s) = 0 with A = `away` and s = `stalled`; its left side is convex, so that Newton's
    steps from 1 + A descend to the root.
    """
    down = lambda x: (x - 1 - away * x / (x + stalled)) / (1 - away * stalled / (x + stalled) ** 2)  # noqa: E731
    return _descend(1 + away + 0.0 * stalled, down)


def _descend(x: Any, down: Callable[[Any], Any]) -> Any:
    """Return the root that Newton's steps down from above it reach; `down` returns the length of a step."""
    for _ in range(MOST_TURNS):
        step_down = down(x)
        x = x - step_down
        if np.all(step_down <= CLOSE * x):
            break
    return x


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


def sections(physics: PlanPhysics) -> Violations:
    """Check that a plan says how it meets failures where the instance has any, and only there, and what it says."""
    failures, fabrics = failures_of(physics.instance), physics.plan.fabric.sites if physics.plan.fabric else {}
    plan, layout, lanes = physics.plan.reliability, physics.plan.layout, sorted({own.lanes for own in fabrics.values()})
    wanted = failures is not None and layout is not None
    if wanted != (plan is not None):
        yield broken("counted", f"{int(not wanted)} reliability sections, {int(wanted)} expected")
    if failures is None or plan is None or layout is None or physics.faults:
        return
    if failures.r.counts_links and len(lanes) > 1:
        yield broken("lanes", f"NICs of {lanes} lanes at the sites; as many at all of them expected")
    failures = replace(failures, links=lanes[-1]) if lanes else failures
    gpus, way = float(layout.gpus_used), (plan.recovery, plan.checkpoint_target)
    each, shared, step_seconds = gpus / layout.data_parallel, layout.zero_stage > 0, layout.metrics.step_seconds
    rate = float(failures.rate(gpus))
    interval = float(failures.interval_seconds(gpus, way, step_seconds, shared=shared, replica_gpus=each))
    stops = {"stop_seconds": 1 / rate, "extrapolated": layout.gpus_used > failures.r.measured_gpus}
    by_part = {name: rate * DAY * own / failures.gpu_rate for name, own in failures.part_rates.items()}
    checkpoints = {
        "checkpoint_bytes": failures.state_bytes,
        "checkpoint_write_seconds": float(failures.write_seconds(gpus, way[1])),
        "checkpoint_interval_seconds": interval if interval < math.inf else None,
        "restart_seconds": float(failures.restart_seconds(gpus, way[0])),
    }
    yield from figures("stops", plan, stops)
    yield from parts("stops", plan.stops_per_day_by_part, by_part, " stops a day")
    yield from figures("checkpoints", plan, checkpoints)
    for rule in (spares, useful_share):
        yield from rule(physics, plan, layout, failures)


def spares(physics: PlanPhysics, plan: ReliabilityPlan, layout: LayoutPlan, failures: Failures) -> Violations:
    """Check that the spare racks of every site are there and are the fewest for their target."""
    own = layout.stages_per_rack * layout.replicas_per_rack * strategy_of(layout).shape.gpus
    work, spare, targets = -(-own // layout.racks_per_replica), plan.spare_gpus_per_rack, set(failures.r.spare_targets)
    fit = failures.rack_availability(work, spare)
    yield from must_be("spares", "sites", sorted(plan.spare_racks_by_site), sorted(physics.replicas))
    yield from at_most("spares", work + spare, physics.gpus_per_rack, "GPUs work and stand by", "GPUs")
    yield from figures("spares", plan, {"rack_availability": fit})
    if plan.spare_target not in targets:
        yield broken("spares", f"a target of {plan.spare_target:g}, none of {sorted(targets)}")
    for site, racks in sorted(plan.spare_racks_by_site.items()):
        rule, needed = f"spares[{site}]", physics.racks_in_use.get(site, 0)
        there, both = physics.racks_by_site.get(site, 0), "racks work and stand by"
        yield from at_most(rule, needed + racks, there, both, "racks at the site")
        if plan.spare_target <= 0 or racks < 0:
            yield from must_equal(rule, "spare racks", racks, 0)
            continue
        yield from at_most(rule, 1, racks, "spare rack under a target", "spare racks")
        reached = at_least(needed, needed + racks, fit)
        yield from at_most(rule, plan.spare_target, reached, "of the time asked for", "with enough racks")
        fewer = at_least(needed, needed + racks - 1, fit) if racks > 1 else None
        yield from at_most(rule, fewer, plan.spare_target, "of the time with a rack less", "asked for")
    for site in sorted(physics.plan.fabric.sites) if physics.plan.fabric else ():
        rule, need = f"spares[{site}]", physics.racks_in_use.get(site, 0) + plan.spare_racks_by_site.get(site, 0)
        wired = physics.wired_gpus_per_rack(site)
        yield from at_most(rule, need, physics.cabled_racks(site), "racks work and stand by", "racks are cabled")
        yield from at_most(rule, spare, wired, "GPUs stand by", "GPUs of a rack are cabled")


def useful_share(physics: PlanPhysics, plan: ReliabilityPlan, layout: LayoutPlan, failures: Failures) -> Violations:
    """Check the share of time that trains, the days lost by cause, and that no other way to resume trains more."""
    # The share of time in which all sites have enough racks, and the mean replicas down for want of racks.
    metrics, needed = layout.metrics, physics.racks_in_use
    sizes = [(needed.get(site, 0), needed.get(site, 0) + own) for site, own in plan.spare_racks_by_site.items()]
    there = math.prod(at_least(*size, plan.rack_availability) for size in sizes)
    short = sum(mean_short(*size, plan.rack_availability) for size in sizes)
    unit = strategy_of(layout).unit_racks(physics.gpus_per_rack)
    down = short * layout.replicas_per_rack * (unit // layout.racks_per_replica)
    gpus, replicas, shared = float(layout.gpus_used), layout.data_parallel, layout.zero_stage > 0
    ways: dict[tuple[str, str], float] = {}
    for way in failures.ways(spares=all(racks > 0 for racks in plan.spare_racks_by_site.values())):
        took = failures.stretch(gpus, gpus / replicas, replicas, way, metrics.step_seconds, shared=shared)
        left = 1 - down / replicas if way[0] == "elastic" else there
        ways[way] = float(took) / left if left > 0 else math.inf
    own = ways.get((plan.recovery, plan.checkpoint_target))
    yield from figures("useful_share", plan, {"enough_racks_share": there, "replicas_short": down})
    if own is None:
        way_on = f"{plan.recovery} with checkpoints in {plan.checkpoint_target}"
        yield broken("useful_share", f"{way_on}: 0 such ways to go on")
        return
    yield from figures("useful_share", plan, {"useful_share": 1 / own})
    yield from must_equal("useful_share", "of the metrics", metrics.useful_share, plan.useful_share)
    yield from at_most("useful_share", own, min(ways.values()), "seconds a second of steps", "by the best way")
    lost, days = sum(plan.lost_days.values()), metrics.days_to_train - metrics.step_days_to_train
    yield from must_equal("useful_share", "days lost by cause against the days without steps", lost, days)
    for name, value in plan.lost_days.items():
        yield from at_most(f"useful_share[{name}]", 0.0, value + 1e-9 * metrics.days_to_train, "days", "days lost")


RULES = (sections,)
