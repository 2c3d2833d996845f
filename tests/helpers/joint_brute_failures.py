"""Full enumeration of toys whose parts fail: every choice of spares, every way to go on, by plain loops and sums."""

import itertools
import math
from functools import cache

import numpy as np
from joint_brute_force import Column, Plan, Times, Toy
from joint_toys import case
from scipy.optimize import brentq, minimize_scalar

from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.instance.reliability import FailingPart, Reliability
from planner.physics.recovery import CheckpointedJob
from planner.physics.training.parallel_strategy import RackBlock
from planner.physics.training.transformer import total_parameters


@cache
def at_least(needed: int, n: int, p: float) -> float:
    """Return the chance that at least so many of n are fit."""
    return math.fsum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(needed, n + 1))


@cache
def mean_short(needed: int, n: int, p: float) -> float:
    """Return the mean number by which those fit are fewer than those needed."""
    return math.fsum((needed - k) * math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(needed))


def restarted(mean: float, write: float, restart: float, step: float) -> float:
    """Return the least seconds for one of steps over every interval of a step or more, by search."""

    def stretch(interval: float) -> float:
        return (mean + restart) * math.expm1((interval + write) / mean) / interval

    high = max(step, 10 * math.sqrt(2 * mean * write) + write, 1e-6 * mean)
    found = minimize_scalar(
        stretch, bounds=(max(step, 1e-9 * mean), 2 * high), method="bounded", options={"xatol": 1e-12}
    )
    return min(float(found.fun), stretch(step)) if step > 0 else float(found.fun)


def stretches_by_search(job: CheckpointedJob, mean: float, *, warm: bool) -> dict[tuple[str, str], float]:
    """Return seconds for one of steps by way to go on, by search of the interval; `mean` seconds between stops."""
    r, gpus, step, found = job.r, float(job.gpus), float(job.step_seconds), dict[tuple[str, str], float]()
    rates = {"storage": r.storage_bytes_per_second_per_gpu, "memory": r.memory_bytes_per_second_per_gpu}
    writes = {target: job.state_bytes / gpus / rate for target, rate in rates.items() if rate is not None}
    cold = r.detection_seconds + r.restart_seconds + r.restart_seconds_per_gpu * gpus + r.power_ramp_seconds
    own = r.detection_seconds + r.warm_restart_seconds + r.warm_restart_seconds_per_gpu * gpus + r.power_ramp_seconds
    older = {"storage": 1.0, "memory": 1 + math.sqrt(2 * r.correlated_share * writes["storage"] / mean)}
    for way, restart in (("restart", cold), *([("warm-spares", own)] if warm else [])):
        for target in r.checkpoint_targets if way in r.recoveries else ():
            if target in writes:
                found[way, target] = restarted(mean, writes[target], restart, step) * older[target]
    copies = writes.get("memory", 0.0) / step if job.shares_state and step else 0.0
    away = float(job.replica_gpus) / gpus / mean * r.rejoin_seconds

    def stretch(interval: float) -> float:
        stalls = (r.elastic_stall_seconds + r.correlated_share * (cold + interval / 2)) / mean
        there = float(brentq(lambda x: x - 1 - away * x / (x + stalls), 1.0, 1 + away + 1e-9, xtol=1e-14))
        return (1 + writes["storage"] / interval + copies) * (there + stalls)

    if "elastic" in r.recoveries and float(job.replicas) > 1:
        ends = (math.log(step or 1e-9 * mean), math.log(1e3 * (step + mean + cold)))
        best = minimize_scalar(lambda x: stretch(math.exp(x)), bounds=ends, method="bounded", options={"xatol": 1e-10})
        found["elastic", "storage"] = min([float(best.fun), *([stretch(step)] if step else [])])
    return found


class FailingToy(Toy):
    """Full enumeration under one choice of spares: a target of racks, and idle GPUs cabled or not."""

    def __init__(self, i: Instance, target: float, *, wired: bool, lanes: int = 0, times: Times | None = None) -> None:
        super().__init__(i, times=times)
        assert isinstance(i.reliability, Reliability)
        self.r, self.target, self.wired, self.lanes = i.reliability, target, wired, lanes
        each = i.workload.precision.parameter_bytes + i.workload.precision.optimizer_bytes
        self.bytes = total_parameters(self.m.model) * each

    def rails(self, block: RackBlock) -> int:
        """Return the GPUs of a rack that are cabled."""
        return self.m.rack.gpus if self.wired else block.rails

    def fit(self, block: RackBlock) -> float:
        """Return the share of time in which a rack is fit for work."""
        repairs = {"gpu": 0.0, "rack": 0.0}
        for p in self.r.parts.values():
            if p.gpu_hours_per_event:
                repairs[p.out] += p.repair_hours / p.gpu_hours_per_event
        enough = at_least(block.work_gpus, self.rails(block), 1 / (1 + repairs["gpu"]))
        return enough / (1 + repairs["rack"] * block.work_gpus)

    def spare_racks(self, block: RackBlock, blocks: int) -> int:
        """Return the fewest spare racks of a site that reach the target, one at least."""
        needed = block.racks * blocks
        if not self.target or not needed:
            return 0
        return next(s for s in itertools.count(1) if at_least(needed, needed + s, self.fit(block)) >= self.target)

    def on_clock(self, c: Column, sizes: tuple[int, ...], seconds: float) -> float:
        """Return the seconds that pass for so many of steps, by the best way to go on."""
        if math.isinf(seconds):
            return seconds
        there, short, spares = 1.0, 0.0, []
        for n in sizes:
            needed, spare = n * c.block.racks, self.spare_racks(c.block, n)
            there *= at_least(needed, needed + spare, self.fit(c.block))
            short += mean_short(needed, needed + spare, self.fit(c.block))
            spares.append(spare)
        gpus = c.d * c.p * c.shape.gpus
        job = CheckpointedJob(
            r=self.r, gpus=gpus, replica_gpus=c.p * c.shape.gpus, replicas=c.d, state_bytes=self.bytes,
            step_seconds=seconds * c.sequences, shares_state=bool(c.zero),
        )  # fmt: skip
        left, found = 1 - short * c.block.replicas / c.d, [math.inf]
        for (way, _), stretch in stretches_by_search(job, self._mean(c), warm=all(spares)).items():
            if way != "elastic":
                found.append(stretch / there)
            elif left > 0:
                found.append(stretch / left)
        return seconds * min(found)

    def _mean(self, c: Column) -> float:
        gpus = c.d * c.p * c.shape.gpus
        rate = sum(self._events(p) for p in self.r.parts.values()) / 3600 * gpus
        return 1 / (rate * max(1.0, gpus / self.r.measured_gpus) ** self.r.scale_exponent)

    def _events(self, p: FailingPart) -> float:
        """Return the events of a part in an hour of one GPU: its links count where no other stands in."""
        if p.gpu_hours_per_event:
            return 1 / p.gpu_hours_per_event
        assert self.i.network is not None
        if self.r.lane_failover and self.lanes > 1:
            return 0.0
        if p.link_hours_per_event:
            return self.lanes / p.link_hours_per_event
        assert p.transceiver_hours_per_event
        return self.lanes * self.i.network.cables.endpoint_transceivers / p.transceiver_hours_per_event


def toys_of(i: Instance) -> list[FailingToy]:
    """Return the toy of every choice of spares, and of lanes where links fail."""
    assert isinstance(i.reliability, Reliability)
    wires = (False, True) if i.reliability.spare_gpus and i.network is not None else (False,)
    lanes = (1, 2) if any(p.gpu_hours_per_event is None for p in i.reliability.parts.values()) else (0,)
    choices, times = itertools.product(i.reliability.spare_targets, wires, lanes), Times(i)
    return [FailingToy(i, target, wired=wired, lanes=n, times=times) for target, wired, n in choices]


def best_of(i: Instance) -> Plan | None:
    """Return the fastest plan over every choice, of equal ones the cheapest."""
    found = [plan for toy in toys_of(i) if (plan := toy.best()) is not None]
    return min(found, key=lambda x: (round(x.seconds, 12), x.usd), default=None)


def every_plan(i: Instance) -> list[Plan]:
    """Return the cheapest plan of every column, shape, choice, fibre and slowdowns, whatever its time."""
    return [plan for toy in toys_of(i) for plan in toy.every]


@cache
def failing(seed: int) -> Instance:
    """Return a toy whose parts fail so often that spares, ways to go on and replicas matter."""
    draw = np.random.default_rng(seed)
    hours = float(draw.uniform(20.0, 200.0))
    r = Reliability(
        parts={
            "gpu": FailingPart(gpu_hours_per_event=hours, repair_hours=float(draw.uniform(0.2, 4.0))),
            "host": FailingPart(gpu_hours_per_event=10 * hours, repair_hours=1.0, out="rack"),
            "software": FailingPart(gpu_hours_per_event=2 * hours),
        },
        measured_gpus=4, scale_exponent=float(draw.choice([0.0, 0.3])), correlated_share=0.05, detection_seconds=20,
        restart_seconds=float(draw.uniform(50, 500)), restart_seconds_per_gpu=1.0, warm_restart_seconds=30,
        warm_restart_seconds_per_gpu=0.5, elastic_stall_seconds=float(draw.uniform(30, 300)), rejoin_seconds=600,
        storage_bytes_per_second_per_gpu=2e7, memory_bytes_per_second_per_gpu=1e9, spare_targets=(0.0, 0.9, 0.99),
    )  # fmt: skip
    return case(seed).replaced(reliability=r)


@cache
def one_way(seed: int) -> Instance:
    """Return a toy whose job may go on in one way alone."""
    return failing(seed).replaced(reliability__recoveries=(("warm-spares",), ("elastic",), ("restart",))[seed % 3])


@cache
def failing_links(seed: int) -> Instance:
    """Return a toy whose links fail too: beside a switch for whole NICs a cheaper one that takes half of one a port."""
    draw, i = np.random.default_rng(seed), failing(seed)
    n, r = i.network, i.reliability
    assert n is not None and isinstance(r, Reliability)
    parts = r.parts | {
        "link": FailingPart(link_hours_per_event=float(draw.uniform(5.0, 200.0))),
        "optic": FailingPart(transceiver_hours_per_event=float(draw.uniform(50.0, 500.0))),
    }
    whole, other = n.switches
    assert isinstance(other, Switch)
    half = other.replaced(
        ports=12,
        port_gbps=0.6 * 8e-9 * i.hardware.gpu_nic_bytes_per_second,
        price_usd=float(draw.uniform(0.05, 0.6)) * other.price_usd,
    )
    network = n.replaced(switches=(whole, half), max_lanes=2, cables__endpoint_transceivers=int(draw.integers(0, 3)))
    own = r.replaced(parts=parts, lane_failover=bool(draw.random() < 0.5))
    return i.replaced(network=network, reliability=own)
