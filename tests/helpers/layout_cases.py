"""Small random layout problems, and every layout of them by plain loops, timed by physics alone."""

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.instance.instance import Instance
from planner.physics.training import layer_time, memory, step, step_prediction
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step import Conditions

FLASH = {
    "name": "flash", "launch_seconds": 1e-6, "microbatch_seconds": 1e-4, "step_seconds": 1e-3, "tensor_overlap": 0.5,
    "sharding_exposed": 0.1, "schedules": ["1f1b"],
}  # fmt: skip
ZERO_BUBBLE = {**FLASH, "name": "zero-bubble", "schedules": ["1f1b", "zb-h1"]}
UNFUSED = {
    "name": "unfused",
    "flash_attention": False,
    "score_efficiency": 0.5,
    "overlaps": ["context"],
    "collective_seconds": 1e-5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRequest:
    """What the layout may use: racks by site, and how the network slows what crosses it."""

    racks_by_site: dict[str, int]
    pipeline_send_slowdown: float
    allreduce_slowdown: float
    wan_gbps: float | None = None
    wan_rtt_ms: float | None = None


def instance(
    *,
    layers: int = 3,
    sequences: int = 6,
    hbm: float = 4e9,
    pins: dict[str, Any] | None = None,
    kv_heads: int = 4,
    software: dict[str, Any] | None = None,
    experts: dict[str, Any] | None = None,
) -> Instance:
    """Return a tiny layout problem: 4 GPUs a rack, 4 heads."""
    gpu = {
        "name": "tiny",
        "hbm_bytes": hbm,
        "hbm_bytes_per_second": 1e12,
        "peak_flop_per_second": {"bf16": 1e14},
        "gemm_efficiency": {"max_share": {"bf16": 0.8}, "operand_traffic": 0.1},
        "kernel_seconds": 1e-6,
        "scale_up_bytes_per_second": 2e11,
        "scale_up_latency_seconds": 4e-6,
        "nic_bytes_per_second": 2e10,
        "nic_latency_seconds": 8e-6,
    }
    precision = {
        "compute": "bf16",
        "parameter_bytes": 6,
        "working_parameter_bytes": 2,
        "gradient_bytes": 4,
        "optimizer_bytes": 8,
        "activation_bytes": 2,
        "collective_bytes": 2,
    }
    model = {
        "name": "m",
        "layers": layers,
        "hidden": 2048,
        "heads": 4,
        "kv_heads": kv_heads,
        "vocabulary": 8000,
        "experts": experts,
    }
    return Instance.model_validate(
        {
            "name": "tiny",
            "limits": {"max_batch_tokens": sequences * 1024, "memory_reserve_fraction": 0.0},
            "workload": {
                "model": {k: v for k, v in model.items() if v is not None},
                "tokens": 1e9,
                "sequence_length": 1024,
                "precision": precision,
                "software": software or UNFUSED,
            },
            "hardware": {"accelerator": gpu, "rack": {"name": "r", "gpus": 4, "it_kw": 4, "price_usd": 1}},
            "pins": pins or {},
        }
    )


def request(**racks: int) -> LayoutRequest:
    """Ask for a layout on these racks, over a network that is not ideal."""
    several = len(racks) > 1
    return LayoutRequest(
        racks_by_site=racks,
        pipeline_send_slowdown=1.5,
        allreduce_slowdown=1.2,
        wan_gbps=400.0 if several else None,
        wan_rtt_ms=1.0 if several else None,
    )


def stages_of(layers: int, stages: int, smallest: int) -> list[tuple[int, ...]]:
    """List every way to give `layers` layers to stages of at least so many."""
    return [x for x in itertools.product(range(smallest, layers + 1), repeat=stages) if sum(x) == layers]


def every_layout(i: Instance, asked: LayoutRequest) -> Iterator[ParallelStrategy]:
    """Yield every layout of the declared space that keeps the pins, by plain loops and the instance alone."""
    m, pin = step.machine_of(i), {k.removeprefix("layout."): v for k, v in i.pins.items()}
    max_sequences = math.floor((i.limits.max_batch_tokens or 0) / m.sequence)
    racks = [asked.racks_by_site[s] for s in sorted(asked.racks_by_site)]
    shared = math.gcd(m.model.heads, m.model.kv)
    degrees = [t for t in range(1, 5) if shared % t == 0 and pin.get("tensor_parallel", t) == t]
    contexts = [pin.get("context_parallel", 1)]
    experts = (
        [1]
        if m.model.experts is None
        else [e for e in range(1, m.model.experts.count + 1) if m.model.experts.count % e == 0]
    )
    for t, c, e, b, p in itertools.product(degrees, contexts, experts, (1, 2, 4, 8, 16), range(1, m.model.layers + 1)):
        asked_for = {"pipeline_parallel": p, "expert_parallel": e, "microbatch_sequences": b}
        if b > max_sequences or any(pin.get(k, x) != x for k, x in asked_for.items()):
            continue
        for q in sorted({1, min(p, max(1, 4 // (t * c)))}):
            r, racks_per_replica = max(1, 4 // (q * t * c)), -(-p // q) * -(-t * c // 4)
            replicas = [
                range(1, min(r * (n // racks_per_replica), max_sequences // b) + 1)
                if n // racks_per_replica
                else range(1)
                for n in racks
            ]
            for d in itertools.product(*replicas):
                if sum(d) and pin.get("data_parallel", sum(d)) == sum(d) and e <= t * c * min(x for x in d if x):
                    yield from _strategies(i, t, c, e, b, p, q, r, d)


def _strategies(
    i: Instance, t: int, c: int, e: int, b: int, p: int, q: int, r: int, d: tuple[int, ...]
) -> Iterator[ParallelStrategy]:
    m, pin = step.machine_of(i), {k.removeprefix("layout."): v for k, v in i.pins.items()}
    max_sequences, layers = math.floor((i.limits.max_batch_tokens or 0) / m.sequence), m.model.layers
    counts, schedules = range(1, max_sequences // (sum(d) * b) + 1), m.software.schedules
    for n, v, schedule, z, sp in itertools.product(
        counts, range(1, layers // p + 1), schedules, range(4), (False, True)
    ):
        wrong = (v > 1 and (p == 1 or n < p or schedule == "zb-h1")) or (sp and t == 1)
        asked = {"virtual_stages": v, "zero_stage": z, "sequence_parallel": sp, "microbatches_per_step": n}
        if wrong or any(pin.get(k, x) != x for k, x in asked.items()):
            continue
        for split in stages_of(layers, p, v):
            if pin.get("layers_per_stage", list(split)) != list(split):
                continue
            for mode, recomputed in _recomputes(m.software.flash_attention, split, pin):
                yield ParallelStrategy(
                    tensor_parallel=t,
                    pipeline_parallel=p,
                    data_parallel_by_site=d,
                    virtual_stages=v,
                    micro_batch=b,
                    micro_batches=n,
                    recompute=mode,
                    sequence_parallel=sp,
                    zero_stage=z,
                    layers_per_stage=split,
                    replicas_per_rack=r,
                    context_parallel=c,
                    expert_parallel=e,
                    schedule=schedule,
                    stages_per_rack=q,
                    recomputed_layers_per_stage=recomputed,
                )


def _recomputes(flash: bool, split: tuple[int, ...], pin: dict[str, Any]) -> list[tuple[Any, tuple[int, ...]]]:
    some = [("full", x) for x in itertools.product(*(range(n + 1) for n in split)) if any(x)]
    mode = pin.get("recompute")
    if mode == "full":
        return some
    if mode is not None:
        return [(mode, ())]
    return [("none", ()), *some] if flash else [("none", ()), ("selective", ()), *some]


def every_time(i: Instance, asked: LayoutRequest) -> Iterator[tuple[float, ParallelStrategy]]:
    """Yield every layout that fits memory with its seconds per sequence; the times of a shape are computed once."""
    m, limit = step.machine_of(i), step.memory_limit_bytes(i)
    c = Conditions(
        pipeline_send_slowdown=1.5, allreduce_slowdown=1.2, wan_gbps=asked.wan_gbps, wan_rtt_ms=asked.wan_rtt_ms or 0.0
    )
    known: dict[Any, Any] = {}
    timed = layer_time.layer_times
    try:
        layer_time.layer_times = lambda machine, s: known[s] if s in known else known.setdefault(s, timed(machine, s))
        for x in every_layout(i, asked):
            if sum(memory.worst_memory(m, x).values()) <= limit:
                yield (
                    sum(step_prediction.step_breakdown(m, c, x).values())
                    / (x.data_parallel * x.micro_batches * x.micro_batch),
                    x,
                )
    finally:
        layer_time.layer_times = timed


def min_seconds_per_sequence(i: Instance, asked: LayoutRequest) -> float | None:
    """Time every layout that fits memory; None where none does."""
    return min((seconds for seconds, _ in every_time(i, asked)), default=None)


def random_case(seed: int) -> tuple[Instance, LayoutRequest]:
    """Return a small random problem; some choices are pinned so that the brute force stays short."""
    r = random.Random(seed)
    layers = r.choice([2, 3, 3, 4])
    pins: dict[str, Any] = {"layout.zero_stage": r.randint(0, 3)}
    if r.random() < 0.3:
        pins["layout.recompute"] = r.choice(["none", "selective", "full"])
    if r.random() < 0.7:
        pins["layout.tensor_parallel"] = r.choice([1, 2])
    if r.random() < 0.7:
        pins["layout.sequence_parallel"] = pins.get("layout.tensor_parallel", 1) > 1 and r.random() < 0.5
    if r.random() < 0.15:
        pins["layout.microbatches_per_step"] = r.randint(1, 4)
    if r.random() < 0.15:
        pins["layout.data_parallel"] = r.randint(1, 3)
    if r.random() < 0.15:
        stages = r.randint(1, layers)
        pins["layout.layers_per_stage"] = list(r.choice(stages_of(layers, stages, 1)))
    if r.random() < 0.15:
        pins["layout.context_parallel"] = 2
        pins["layout.microbatch_sequences"] = 1
    racks = {"a": r.randint(1, 3)} | ({"b": r.randint(1, 2)} if r.random() < 0.3 else {})
    hbm = r.choice([0.4e9, 0.6e9, 0.8e9, 1e9, 1.3e9, 1.6e9, 2.5e9, 5e9])
    experts = {"count": 4, "per_token": 2, "ffn": 2048, "dense_layers": r.choice([0, 1])} if r.random() < 0.2 else None
    software = r.choice([UNFUSED, FLASH, FLASH, ZERO_BUBBLE])
    asked = request(**racks)
    return instance(
        layers=layers,
        sequences=r.randint(2, 7),
        hbm=hbm,
        pins=pins,
        kv_heads=r.choice([2, 4]),
        software=software,
        experts=experts,
    ), asked


def batch_limited_case(seed: int) -> tuple[Instance, LayoutRequest]:
    """Return a small random problem in which the batch leaves most racks idle; pins keep the brute force short."""
    r = random.Random(seed)
    pins: dict[str, Any] = {"layout.zero_stage": r.randint(0, 3), "layout.tensor_parallel": r.choice([1, 2, 4])}
    pins["layout.sequence_parallel"] = pins["layout.tensor_parallel"] > 1
    pins["layout.microbatch_sequences"] = r.choice([1, 1, 2])
    software = r.choice([UNFUSED, FLASH, FLASH, ZERO_BUBBLE])
    hbm = r.choice([0.25e9, 0.3e9, 0.35e9, 0.4e9, 0.5e9, 0.7e9, 1e9, 5e9])
    i = instance(layers=r.choice([3, 4, 5]), sequences=r.randint(2, 9), hbm=hbm, pins=pins, software=software)
    return i, request(a=r.choice([20, 40, 10**9]))
