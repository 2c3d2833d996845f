"""Blocks of racks, chunks of unequal layers in the order of their events, queues between sites, ZeRO's traffic."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schedule import Pass, interleaved
from training_toys import accelerator, layout, machine_of, shape

from planner.instance.workload import Experts, Model
from planner.physics import ticking
from planner.physics.training import parallel_strategy, schedule, step_prediction
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import (
    ParallelStrategy,
    block_of,
    context_racks,
    racks_per_replica,
    unsupported,
)
from planner.physics.training.step_prediction import Conditions, least_first_stage, least_layers, queue_seconds


def run(p: int, v: int, m: int, seconds: Callable[[int, str, int], float]) -> dict[Pass, float]:
    """Run the passes in order, each as soon as what it needs is there."""
    # Return when each ends, by kind, place in the pipeline and micro-batch.
    done: dict[Pass, float] = {}
    queues, clock, at = [interleaved(p, v, m, i, padded=v > 1) for i in range(p)], [0.0] * p, [0] * p
    while any(a < len(q) for a, q in zip(at, queues, strict=True)):
        for i in range(p):
            while at[i] < len(queues[i]):
                kind, c, k = queues[i][at[i]]
                place = c * p + i
                needs = [("F", place - 1, k)] if kind == "F" and place else []
                needs += [("F", place, k)] if kind == "B" else []
                needs += [("B", place + 1, k)] if kind == "B" and place < p * v - 1 else []
                if any(n not in done for n in needs):
                    break
                clock[i] = done[kind, place, k] = max([clock[i], *(done[n] for n in needs)]) + seconds(i, kind, c)
                at[i] += 1
    return done


def finish(p: int, v: int, m: int, layers: list[list[int]], f: float, b: float) -> float:
    """Return when the last pass ends; `layers` by device and chunk."""
    return max(run(p, v, m, lambda i, kind, c: layers[i][c] * (f if kind == "F" else b)).values())


def chunks(layers: int, v: int) -> list[int]:
    """ParallelStrategy a stage's layers into v chunks, the larger first."""
    return [layers // v + (c < layers % v) for c in range(v)]


def by_formula(p: int, v: int, m: int, most: int, f: float, b: float) -> float:
    """Seconds by the formulas: the slowest stage for each effective micro-batch."""
    whole = float(schedule.effective_micro_batches(m, p, v)) * most * (f + b) + (p - 1) * -(-most // v) * (f + b)
    return whole + schedule.excess_seconds(schedule.PipelineCounts(p, v, m), most, 0, (f, b, f))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 7), st.integers(1, 4), st.integers(0, 5), st.integers(1, 5), st.integers(1, 9), st.integers(1, 9))
def test_whole_layers_to_a_chunk(p: int, v: int, more: int, rounds: int, f: int, b: int) -> None:
    layers, m = v + more, rounds * p
    assert finish(p, v, m, [chunks(layers, v)] * p, f, b) == pytest.approx(by_formula(p, v, m, layers, f, b))


@settings(max_examples=50, deadline=None)
@given(
    st.integers(2, 12),
    st.integers(2, 5),
    st.integers(0, 6),
    st.integers(3, 7),
    st.data(),
    st.floats(0.3, 3),
    st.floats(0.3, 5),
)
def test_the_excess_is_bounded_from_below(p, v, more, rounds, data, f, b) -> None:
    """Unequal chunks, of layers or of recomputed ones, wait at least for what the bound says in the order of events."""
    recompute, m = data.draw(st.integers(0, v + more)), rounds * p + data.draw(st.integers(0, p - 1))
    first = data.draw(st.booleans())
    counts = schedule.PipelineCounts(p, v, m)
    found = schedule.excess_seconds(counts, v + more, recompute, (f, b, f), smaller_first=first)
    assert float(schedule.min_excess_seconds(counts, v + more, recompute, f + b, f)) <= found + 1e-9


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 6), st.integers(1, 3), st.integers(1, 17), st.data(), st.integers(1, 9), st.integers(1, 9))
def test_unequal_stages_take_no_longer_than_the_largest_everywhere(p, v, m, data, f, b) -> None:
    """Unequal stages, or a short last round, take no longer than the formulas say of the largest stage."""
    layers = [data.draw(st.integers(v, v + 4)) for _ in range(p)]
    m = m if v == 1 else max(m, p)
    assert finish(p, v, m, [chunks(n, v) for n in layers], f, b) <= by_formula(p, v, m, max(layers), f, b) * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.floats(0.1, 5), st.floats(0.1, 5))
def test_stages_queue_on_shared_links(items: int, service: float, spacing: float) -> None:
    """The last of the exchanges waits as long as a queue that is run one by one makes it wait."""
    free = 0.0
    for i in range(items):
        start = max(free, i * spacing)
        free = start + service
    assert start - (items - 1) * spacing == pytest.approx(float(queue_seconds(items, service, spacing)), abs=1e-9)


@each(("p", "v", "m", "service"), [(4, 1, 8, 3.0), (4, 3, 12, 9.0), (6, 2, 12, 1.0), (3, 2, 6, 20.0)])
def test_the_queue_covers_interleaved_chunks(p: int, v: int, m: int, service: float) -> None:
    """Chunks exchanged as their last backward passes end are done no later than the formula says."""
    f, b = 1.0, 2.0
    done = run(p, v, m, lambda _, kind, __: f if kind == "F" else b)
    ends = [t for (kind, _, k), t in done.items() if kind == "B" and k == m - 1]
    free = 0.0
    for ready in sorted(ends):
        free = max(free, ready) + service / v
    exposed = free - max(ends)
    assert exposed <= service / v + float(queue_seconds(p * v, service / v, b)) + 1e-9


@pytest.mark.parametrize(("tokens", "t", "k", "sp", "padded"), [
    (32_000, 60, 6, True, 32_040), (32_000, 60, 6, False, 32_004), (8192, 8, 1, True, 8192), (8192, 5, 1, True, 8200),
    (8192, 5, 1, False, 8192),
])  # fmt: skip
def test_padding(tokens: int, t: int, k: int, sp: bool, padded: int) -> None:
    m = replace(machine(), sequence=tokens)
    assert parallel_strategy.padded(m, shape(t=t, c=k, sp=sp)).sequence == padded


def test_tp_groups_stay_in_a_rack() -> None:
    """TP 25 times CP 9 on 72 GPUs takes 5 racks: two groups a rack, and not the 4 racks of 225 GPUs."""
    assert (context_racks(72, 25, 9), racks_per_replica(72, 25, 9)) == (5, 5)
    assert (context_racks(72, 144, 3), racks_per_replica(72, 144, 3)) == (3, 6)


def test_blocks() -> None:

    def block(t: int, k: int, e: int, p: int, q: int) -> tuple[int, ...] | None:
        b = block_of(72, (t, k, e), pipeline_parallel=p, stages_per_rack=q)
        return b and (b.context_racks, b.stage_racks, b.racks, b.replicas, b.rails)

    assert block(60, 6, 1, 45, 1) == (6, 6, 270, 1, 60)
    assert block(10, 1, 1, 7, 3) == (1, 1, 3, 2, 60)
    assert block(1, 1, 144, 2, 1) == (1, 2, 4, 144, 72)
    assert block(1, 1, 64, 2, 1) == (1, 1, 2, 64, 64)
    assert block(10, 8, 1, 1, 1) is None
    assert block(100, 1, 1, 1, 1) is None


class StopError(Exception):
    """What a tick raises to end a computation."""


@each("pipeline", [2, 32])
def test_a_long_walk_can_be_ended(pipeline: int) -> None:
    """A tick is called at first, with many passes at once again after each 512 waves; what it raises ends the walk."""
    calls: list[int] = []
    many = pipeline, 500, (1.0,), (2.0,)
    schedule.run_passes(*many)  # sorts the passes, which ticks too, and keeps their order
    with ticking(lambda: calls.append(1)):
        schedule.run_passes(*many)
    waves = len(schedule._order(pipeline, 500, 1).starts) - 1
    assert waves >= 1000 and len(calls) == (-(-waves // 512) if pipeline == 32 else 1)

    def stop() -> None:
        raise StopError

    with pytest.raises(StopError), ticking(stop):
        schedule.run_passes(*many)


@each(("pipeline", "micro_batches", "v"), [(3, 8, 3), (5, 5, 1), (4, 16, 2)])
def test_passes_one_by_one_end_when_passes_in_waves_do(pipeline, micro_batches, v, monkeypatch) -> None:
    """A loop over passes, and arrays of those that run at once, end at the same seconds to the last digit."""
    seconds = tuple(1.0 + 0.1 * k for k in range(v)), tuple(2.0 + 0.3 * k for k in range(v))
    finish, ends = schedule.run_passes(pipeline, micro_batches, *seconds)
    monkeypatch.setattr(schedule, "MANY_AT_ONCE", 0)
    again, others = schedule.run_passes(pipeline, micro_batches, *seconds)
    assert finish == again and np.array_equal(ends, others)


def with_front(dense: int, seconds: float = 0.0) -> Any:
    """Return a pipeline of 20 layers, so many of them dense at the front, each so much slower than 3 s."""
    experts = Experts(count=4, per_token=1, ffn=8, dense_layers=dense)
    model = Model(name="m", layers=20, hidden=8, heads=2, vocabulary=16, experts=experts)
    times = SimpleNamespace(forward_seconds=1.0, backward_seconds=2.0)
    return SimpleNamespace(machine=SimpleNamespace(model=model), times=times, front_excess_seconds=seconds)


@each("dense", [0, 1, 2, 3, 5])
@each("v", [1, 2, 3])
def test_the_first_chunk_holds_the_front_layers(dense: int, v: int) -> None:
    """Tried from a layer a chunk upwards: the first number whose largest chunk has room for them all."""
    expected = next(n for n in range(v, 100) if schedule.chunk_sizes(n, v)[0] >= dense)
    assert least_first_stage(with_front(dense), v) == expected


@each(("dense", "seconds", "layers"), [
    (0, -1.0, 20), (2, 0.5, 20), (3, -1.0, 19), (4, -1.0, 18), (3, -2.0, 18), (19, -3.0, 1),
])  # fmt: skip
def test_faster_front_layers_make_up_for_whole_layers(dense: int, seconds: float, layers: int) -> None:
    """Three layers a second faster each spare one layer of three seconds, four of them up to two; slower ones none."""
    assert least_layers(with_front(dense, seconds)) == layers


LAYERS, WEIGHTS, EMBEDDING = 3, 12 * 64**2, 16 * 64  # weights of a layer, and of the one embedding
MICRO_BATCHES, NODES, GPUS = 5, 4, 8


def machine(**software: Any) -> Machine:
    """Return nodes of 8 GPUs that compute in no time, with 1 kB/s of scale-up at 0.5 s and 100 B/s of NIC at 2 s."""
    gpu = accelerator({"fp16": 1e18}, hbm_bytes_per_second=1e18, scale_up=(1000.0, 0.5), nic=(100.0, 2.0))
    model = Model(name="toy", layers=LAYERS, hidden=64, heads=4, vocabulary=16)
    return machine_of(gpu, model, 4, **{"loss_bytes_per_logit": 0, **software})


def strategy(zero: int) -> ParallelStrategy:
    """Return 32 replicas without pipeline and tensor parallelism."""
    own = {"data_parallel_by_site": (NODES * GPUS,), "micro_batches": MICRO_BATCHES, "replicas_per_rack": GPUS}
    return layout((LAYERS,), zero_stage=zero, **own)


def ring(element_bytes: int, weights: int = WEIGHTS) -> float:
    """Return the seconds to gather or to reduce a layer: 8 GPUs of a node, then each its eighth over 4 nodes."""
    size = weights * element_bytes
    return 7 * 0.5 + 7 / 8 * size / 1000 + 3 * 2 + 3 / 4 * (size / 8) / 100


@each(("zero", "each", "end"), [
    (0, 0.0, 0.0), (1, 0.0, 0.0), (2, ring(4), ring(4, EMBEDDING)),
    (3, 2 * ring(2) + ring(4), ring(2, EMBEDDING) + ring(4, EMBEDDING)),
])  # fmt: skip
def test_each_micro_batch_pays_for_its_gathers(zero: int, each: float, end: float) -> None:
    """With passes of no length every layer and micro-batch shows ZeRO-2's sums, and ZeRO-3's two gathers beside."""
    # The embedding, which belongs to no layer, is gathered once a micro-batch and its gradient reduced once.
    conditions = Conditions(pipeline_send_slowdown=1.0, allreduce_slowdown=1.0)
    found = step_prediction.step_breakdown(machine(), conditions, strategy(zero))
    assert found["sharding"] == pytest.approx(MICRO_BATCHES * (LAYERS * each + end), rel=1e-6)


def test_what_a_framework_cannot_run() -> None:
    """A framework without ZeRO-3, or with it only where there is no pipeline, says so; one without a word has all."""
    assert list(unsupported(machine().software, strategy(3))) == []
    old = machine(zero_stages=[1, 0]).software
    assert list(unsupported(old, strategy(3))) == ["zero_stage 3: toy has ZeRO stages 0, 1"]
    assert list(unsupported(machine(pipelined_zero_stages=[0, 1]).software, strategy(3))) == []


def test_stages_under_pipelines_must_be_stages() -> None:
    with pytest.raises(ValueError, match=r"pipelined_zero_stages must be among zero_stages \(3 is not\)"):
        machine(zero_stages=[0, 1], pipelined_zero_stages=[0, 3])
    with pytest.raises(ValueError, match='parallelism has "interleaved" and not "pipeline"'):
        machine(parallelism=["tensor", "interleaved"])
