"""Layout: agreement with a brute force over every layout of small cases, and of CP-SAT with the tables."""

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest

from planner.handoff import LayoutRequest, Options
from planner.instance import Instance
from planner.models import layout, layout_best, layout_space
from planner.physics import memory, step
from planner.physics.step import Conditions, Cut


def instance(*, layers: int = 3, sequences: int = 6, hbm: float = 4e9, pins: dict[str, Any] | None = None, kv_heads: int = 4) -> Instance:
    """Return a tiny layout question: 4 GPUs a rack, 4 heads."""
    gpu = {
        "name": "tiny",
        "hbm_bytes": hbm,
        "hbm_bytes_per_second": 1e12,
        "peak_flop_per_second": {"bf16": 1e14},
        "matrix_efficiency": {"most": 0.8, "half_flop": 1e9},
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
    return Instance.model_validate(
        {
            "name": "tiny",
            "limits": {"max_batch_tokens": sequences * 1024, "memory_reserve_fraction": 0.0},
            "workload": {
                "model": {"name": "m", "layers": layers, "hidden": 2048, "heads": 4, "kv_heads": kv_heads, "vocabulary": 8000},
                "tokens": 1e9,
                "sequence_length": 1024,
                "precision": precision,
            },
            "hardware": {"accelerator": gpu, "rack": {"name": "r", "gpus": 4, "it_kw": 4, "price_usd": 1}},
            "pins": pins or {},
        }
    )


def request(**racks: int) -> LayoutRequest:
    """Ask for a layout on these racks, over a network that is not ideal."""
    several = len(racks) > 1
    return LayoutRequest(
        racks_by_site=racks, hop_slowdown=1.5, allreduce_slowdown=1.2, wan_gbps=400.0 if several else None, wan_rtt_ms=1.0 if several else None
    )


def stages_of(layers: int, stages: int, least: int) -> list[tuple[int, ...]]:
    """List every way to give `layers` layers to stages of at least so many."""
    free = layers - stages * least
    cuts = itertools.combinations(range(free + stages - 1), stages - 1)
    parts = ([b - a - 1 for a, b in itertools.pairwise((-1, *c, free + stages - 1))] for c in cuts)
    return [tuple(p + least for p in part) for part in parts]


def every_layout(i: Instance, asked: LayoutRequest) -> list[Cut]:
    """List every layout of the declared space, by plain loops and the instance alone."""
    m = step.machine_of(i)
    most = math.floor((i.limits.max_batch_tokens or 0) / m.sequence)
    racks = [asked.racks_by_site[s] for s in sorted(asked.racks_by_site)]
    shared = math.gcd(m.model.heads, m.model.kv)
    found = []
    for t, b, p in itertools.product(range(1, 5), (1, 2, 4, 8, 16), range(1, m.model.layers + 1)):
        if shared % t or b > most:
            continue
        r = 4 // t
        spans = [range(1, r * (n // p) + 1) if n // p else range(1) for n in racks]
        for d, v in itertools.product(itertools.product(*spans), range(1, m.model.layers // p + 1)):
            if sum(d) == 0 or (v > 1 and p == 1):
                continue
            for n in range(1, most // (sum(d) * b) + 1):
                if v > 1 and n % p:
                    continue
                for rc, sp, z, stages in itertools.product(memory.RECOMPUTE_MODES, (False, True), range(4), stages_of(m.model.layers, p, v)):
                    if sp and t == 1:
                        continue
                    found.append(
                        Cut(
                            tensor_parallel=t,
                            pipeline_parallel=p,
                            data_parallel_by_site=d,
                            virtual_stages=v,
                            micro_batch=b,
                            micro_batches=n,
                            recompute=rc,
                            sequence_parallel=sp,
                            zero_stage=z,
                            layers_per_stage=stages,
                            replicas_per_rack=r,
                        )
                    )
    return found


def keeps_pins(i: Instance, cut: Cut) -> bool:
    """Tell whether a layout is what the instance pins."""
    held = {
        "layout.tensor_parallel": cut.tensor_parallel,
        "layout.pipeline_parallel": cut.pipeline_parallel,
        "layout.recompute": cut.recompute,
        "layout.zero_stage": cut.zero_stage,
        "layout.sequence_parallel": cut.sequence_parallel,
        "layout.data_parallel": cut.data_parallel,
        "layout.microbatches_per_step": cut.micro_batches,
        "layout.virtual_stages": cut.virtual_stages,
        "layout.layers_per_stage": list(cut.layers_per_stage),
    }
    return all(held[k] == v for k, v in i.pins.items())


def least_seconds_per_sequence(i: Instance, asked: LayoutRequest) -> float | None:
    """Time every layout that fits memory; None where none does."""
    m, limit = step.machine_of(i), step.memory_limit_bytes(i)
    c = Conditions(hop_slowdown=1.5, allreduce_slowdown=1.2, wan_gbps=asked.wan_gbps, wan_rtt_ms=asked.wan_rtt_ms or 0.0)
    fits = (x for x in every_layout(i, asked) if keeps_pins(i, x) and sum(step.worst_memory(m, x).values()) <= limit)
    times = (sum(step.step_breakdown(m, c, x).values()) / (x.data_parallel * x.micro_batches * x.micro_batch) for x in fits)
    return min(times, default=None)


def random_case(seed: int) -> tuple[Instance, LayoutRequest]:
    """Return a small random question; some choices are pinned so that the brute force stays short."""
    r = random.Random(seed)
    layers = r.choice([2, 3, 4])
    pins: dict[str, Any] = {"layout.recompute": r.choice(["none", "selective", "full"]), "layout.zero_stage": r.randint(0, 3)}
    if r.random() < 0.5:
        pins["layout.tensor_parallel"] = r.choice([1, 2, 4])
    if r.random() < 0.2:
        pins["layout.sequence_parallel"] = False
    if r.random() < 0.15:
        pins["layout.microbatches_per_step"] = r.randint(1, 4)
    if r.random() < 0.15:
        pins["layout.data_parallel"] = r.randint(1, 3)
    if r.random() < 0.15:
        stages = r.randint(1, layers)
        pins["layout.layers_per_stage"] = list(r.choice(stages_of(layers, stages, 1)))
    racks = {"a": r.randint(1, 4)} | ({"b": r.randint(1, 3)} if r.random() < 0.4 else {})
    hbm = r.choice([0.5e9, 1e9, 1.6e9, 2.5e9, 5e9])
    return instance(layers=layers, sequences=r.randint(2, 7), hbm=hbm, pins=pins, kv_heads=r.choice([2, 4])), request(**racks)


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_brute_force(seed: int) -> None:
    """The tables find the fastest of all layouts, or find none where there is none, and CP-SAT agrees."""
    i, asked = random_case(seed)
    right = least_seconds_per_sequence(i, asked)
    problem = layout_space.problem_of(i, asked)
    found = layout.search(problem)
    assert (found.best is None) == (right is None)
    if found.best is not None and right is not None:
        assert found.best.seconds == pytest.approx(right, rel=1e-9)
        assert found.bound == found.best.seconds
        told = layout.confirm(problem, found, Options())
        assert told.pairs >= 1
        assert told.left == 0


@pytest.mark.parametrize("seed", range(60, 90))
def test_row_bounds_are_bounds(seed: int) -> None:
    """No layout of a row is faster than the row's bound."""
    i, asked = random_case(seed)
    problem = layout_space.problem_of(i, asked)
    table = layout_space.row_table(problem)
    for k in range(min(len(table), 60)):
        held = layout_best.best_of_row(problem, table.row(k), math.inf)
        assert held is None or held.seconds >= table.row(k).bound * (1 - 1e-12)


def days(i: Instance, asked: LayoutRequest) -> float:
    """Return the least days to train."""
    return layout.least_days(i, asked) or math.inf


@pytest.mark.parametrize("seed", range(10))
def test_more_never_hurts(seed: int) -> None:
    """More memory, a larger batch or more racks never slow training down."""
    i, asked = random_case(seed)
    free = i.model_copy(update={"pins": {}})
    before = days(free, asked)
    gpu = free.hardware.accelerator
    assert not isinstance(gpu, str)
    roomy = free.model_copy(update={"hardware": free.hardware.model_copy(update={"accelerator": gpu.model_copy(update={"hbm_bytes": 8e9})})})
    batch = free.model_copy(update={"limits": free.limits.model_copy(update={"max_batch_tokens": 9 * 1024.0})})
    more = request(**{s: n + 1 for s, n in asked.racks_by_site.items()})
    assert days(roomy, asked) <= before * (1 + 1e-12)
    assert days(batch, asked) <= before * (1 + 1e-12)
    if len(asked.racks_by_site) == 1:
        assert days(free, more) <= before * (1 + 1e-12)


@pytest.mark.parametrize("hbm", [0.4e9 + 0.02e9 * k for k in range(40)])
def test_interleaved_stages_hold_more_past_the_first_round(hbm: float) -> None:
    """At every memory limit CP-SAT and the tables agree on interleaved stages, whose chunks in flight grow from one round to the next."""
    i = instance(layers=4, sequences=8, hbm=hbm, pins={"layout.pipeline_parallel": 2, "layout.virtual_stages": 2, "layout.data_parallel": 1})
    problem = layout_space.problem_of(i, request(a=2))
    found = layout.search(problem)
    layout.confirm(problem, found, Options())
    in_flight = [int(memory.chunks_in_flight(0, 2, 2, m)) for m in (2, 4, 6)]
    assert in_flight == [4, 5, 5]


def test_even_split_over_sites() -> None:
    """Replicas split as evenly as the sites' racks permit."""
    shares = layout_best.split_replicas(np.array([2, 9]), np.array([2, 3, 8, 11]))
    assert shares.T.tolist() == [[1, 1], [1, 2], [2, 6], [2, 9]]


def test_conflict_names_memory() -> None:
    """A model that no layout fits into memory is infeasible by memory, with the bytes that the smallest layout needs."""
    found = layout.conflict(instance(hbm=2e8), request(a=1))
    assert "memory" in found.rules
    assert "GB a GPU" in found.reason


def test_conflict_names_a_pin() -> None:
    """A pin that no layout meets is what the conflict names."""
    found = layout.conflict(instance(pins={"layout.tensor_parallel": 3}), request(a=2))
    assert found.rules == ("pins.layout.tensor_parallel",)


def test_alternatives_do_not_dominate_each_other() -> None:
    """Of two alternatives the faster takes more racks."""
    held = layout.alternatives(instance(sequences=32), request(a=8), Options())
    pairs = sorted((a.merits["racks_used"], a.merits["days_to_train"]) for a in held)
    assert len(pairs) > 1
    assert all(x[0] < y[0] and x[1] > y[1] for x, y in itertools.pairwise(pairs))
