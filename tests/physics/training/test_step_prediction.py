"""Strategies read and written, blocks of racks, unequal chunks by their events, queues, and sends beside rings."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from each_case import each
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pipeline_orders import Pass, ends_of, interleaved
from test_step_parts import CONDITIONS, ranks_in_rack, strategies, toy
from training_toys import layout, shape
from worked_plan import STRATEGY, small

from planner.instance.workload import Experts, Model
from planner.physics import ticking
from planner.physics.network.uplink_slowdowns import wait_for_others
from planner.physics.training import parallel_strategy, schedule, step_prediction
from planner.physics.training.collectives import exposed_tail_seconds
from planner.physics.training.data_parallel import ReplicaGroup
from planner.physics.training.memory import weights_of
from planner.physics.training.operations import LayerShape
from planner.physics.training.parallel_strategy import ParallelStrategy, block_of, even_layers, packing, unsupported
from planner.physics.training.step_prediction import Conditions, least_first_stage, least_layers, queue_seconds
from planner.plan.plan_sections import LayoutPlan


def run(p: int, v: int, m: int, seconds: Callable[[int, str, int], float]) -> dict[Pass, float]:
    """Return when each pass of 1F1B ends, by kind, place in the pipeline and micro-batch."""
    return ends_of([interleaved(p, v, m, i, padded=v > 1) for i in range(p)], v, seconds)


def finish(p: int, v: int, m: int, layers: Sequence[int], f: float, b: float) -> float:
    """Return when the last pass ends; `layers` by device, the larger chunks first."""
    sizes = [schedule.chunk_sizes(n, v) for n in layers]
    return max(run(p, v, m, lambda i, kind, c: sizes[i][c] * (f if kind == "F" else b)).values())


def by_formula(p: int, v: int, m: int, most: int, f: float, b: float) -> float:
    """Seconds by the formulas: the slowest stage for each effective micro-batch."""
    whole = float(schedule.effective_micro_batches(m, p, v)) * most * (f + b) + (p - 1) * -(-most // v) * (f + b)
    return whole + schedule.excess_seconds(schedule.PipelineCounts(p, v, m), most, 0, (f, b, f))


@given(st.integers(1, 7), st.integers(1, 4), st.integers(0, 5), st.integers(1, 5), st.integers(1, 9), st.integers(1, 9))
def test_whole_layers_to_a_chunk(p: int, v: int, more: int, rounds: int, f: int, b: int) -> None:
    layers, m = v + more, rounds * p
    assert finish(p, v, m, [layers] * p, f, b) == pytest.approx(by_formula(p, v, m, layers, f, b))


@given(
    st.integers(2, 12), st.integers(2, 5), st.integers(0, 6), st.integers(3, 7), st.data(), st.floats(0.3, 3),
    st.floats(0.3, 5),
)  # fmt: skip
def test_the_excess_is_bounded_from_below(p, v, more, rounds, data, f, b) -> None:
    """Unequal chunks, of layers or of recomputed ones, wait at least for what the bound says in the order of events."""
    recompute, m = data.draw(st.integers(0, v + more)), rounds * p + data.draw(st.integers(0, p - 1))
    first = data.draw(st.booleans())
    counts = schedule.PipelineCounts(p, v, m)
    found = schedule.excess_seconds(counts, v + more, recompute, (f, b, f), smaller_first=first)
    assert float(schedule.min_excess_seconds(counts, v + more, recompute, f + b, f)) <= found + 1e-9


@given(st.integers(2, 6), st.integers(1, 3), st.integers(1, 17), st.data(), st.integers(1, 9), st.integers(1, 9))
def test_unequal_stages_take_no_longer_than_the_largest_everywhere(p, v, m, data, f, b) -> None:
    """Unequal stages, or a short last round, take no longer than the formulas say of the largest stage."""
    layers = [data.draw(st.integers(v, v + 4)) for _ in range(p)]
    m = m if v == 1 else max(m, p)
    assert finish(p, v, m, layers, f, b) <= by_formula(p, v, m, max(layers), f, b) * (1 + 1e-12)


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


@each(("tokens", "t", "k", "sp", "padded"), [
    (32_000, 60, 6, True, 32_040), (32_000, 60, 6, False, 32_004), (8192, 8, 1, True, 8192), (8192, 5, 1, True, 8200),
    (8192, 5, 1, False, 8192),
])  # fmt: skip
def test_padding(tokens: int, t: int, k: int, sp: bool, padded: int) -> None:
    assert parallel_strategy.padded(replace(toy(), sequence=tokens), shape(t=t, c=k, sp=sp)).sequence == padded


@each(("degrees", "p", "q", "found"), [
    ((60, 6, 1), 45, 1, (6, 6, 270, 1, 60)), ((10, 1, 1), 7, 3, (1, 1, 3, 2, 60)),
    ((1, 1, 144), 2, 1, (1, 2, 4, 144, 72)), ((1, 1, 64), 2, 1, (1, 1, 2, 64, 64)), ((10, 8, 1), 1, 1, None),
    ((100, 1, 1), 1, 1, None),
])  # fmt: skip
def test_blocks(degrees: tuple[int, int, int], p: int, q: int, found: tuple[int, ...] | None) -> None:
    b = block_of(72, degrees, pipeline_parallel=p, stages_per_rack=q)
    assert (b and (b.context_racks, b.stage_racks, b.racks, b.replicas, b.rails)) == found


@each("pipeline", [2, 32])
def test_a_long_walk_can_be_ended(pipeline: int) -> None:
    """A tick is called at first, and again after each 8,192 passes; what it raises ends the walk."""
    calls: list[int] = []
    many = pipeline, 500, (1.0,), (2.0,)
    schedule.run_passes(*many)  # sorts the passes, which ticks too, and keeps their order
    with ticking(lambda: calls.append(1)):
        schedule.run_passes(*many)
    assert len(calls) == -(-2 * pipeline * 500 // 8192)
    with pytest.raises(TimeoutError), ticking(Mock(side_effect=TimeoutError)):
        schedule.run_passes(*many)


@each(("p", "v", "m"), [(1, 1, 3), (3, 1, 2), (5, 1, 9), (3, 3, 8), (4, 2, 16), (5, 4, 3), (2, 3, 7)])
def test_every_pass_ends_when_the_order_of_events_says(p: int, v: int, m: int) -> None:
    """Each pass waits for its device and both its inputs, in short last rounds too, to the last digit."""
    forward, backward = tuple(1.0 + 0.1 * c for c in range(v)), tuple(2.0 + 0.3 * c for c in range(v))
    done = run(p, v, m, lambda _, kind, c: forward[c] if kind == "F" else backward[c])
    finish, ends = schedule.run_passes(p, m, forward, backward)
    assert finish == max(done.values())
    assert all(ends[place + p * v * (kind == "B"), k] == end for (kind, place, k), end in done.items())


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


def test_what_a_framework_cannot_run() -> None:
    """A framework without ZeRO-3, or with it only where there is no pipeline, says so; one without a word has all."""
    s, alone = layout((3,), zero_stage=3), {"pipelined_zero_stages": [0, 1]}
    for own, faults in (({}, []), ({"zero_stages": [1, 0]}, ["zero_stage 3: toy has ZeRO stages 0, 1"]), (alone, [])):
        assert list(unsupported(toy(**own).software, s)) == faults
    with pytest.raises(ValueError, match=r"pipelined_zero_stages must be among zero_stages \(3 is not\)"):
        toy(zero_stages=[0, 1], pipelined_zero_stages=[0, 3])
    with pytest.raises(ValueError, match='parallelism has "interleaved" and not "pipeline"'):
        toy(parallelism=["tensor", "interleaved"])


def shared_step(
    p: int, v: int, m: int, passes: dict[str, float], layers: int, send: float, ring: float, *, shared: bool
) -> tuple[float, float]:
    """Return when the last pass of 1F1B ends, and the last ring; `shared`: rings and sends halve a NIC's rate."""
    # A ring of each layer follows its part of the last backward pass of its chunk.
    orders, at, ends = [interleaved(p, v, m, i) for i in range(p)], [0] * p, [math.inf] * p
    nics: list[tuple[deque[Any], deque[Any]]] = [(deque(), deque()) for _ in range(p)]  # yet to send: sends, rings
    done, later, now, last = set[Pass](), list[tuple[float, int]](), 0.0, 0.0
    while True:
        for i in range(p):
            if ends[i] < math.inf or at[i] == len(orders[i]):
                continue
            kind, chunk, k = orders[i][at[i]]
            place = chunk * p + i
            inputs = [("F", place, k)] * (kind == "B")
            inputs += [(f"to {kind}", place, k)] * (place != (0 if kind == "F" else p * v - 1))
            if done.issuperset(inputs):
                ends[i] = now + passes[kind]
                parts = range(1, layers + 1) if (kind, k) == ("B", m - 1) else ()
                later += [(now + passes["B"] * n / layers, i) for n in parts]
        queues = [(q, 0.5 if shared and all(nic) else 1.0) for nic in nics for q in nic if q]
        following = min([*ends, *(t for t, _ in later), *(now + q[0][0] / rate for q, rate in queues)])
        if following == math.inf:
            return last, now
        for q, rate in queues:
            q[0][0] -= (following - now) * rate
        now = following
        for i, (sends, rings) in enumerate(nics):
            if sends and sends[0][0] < 1e-9:
                done.add(sends.popleft()[1])
            if rings and rings[0][0] < 1e-9:
                rings.popleft()
            if ends[i] < now + 1e-9:
                kind, chunk, k = orders[i][at[i]]
                place = chunk * p + i
                done.add((kind, place, k))
                at[i], ends[i], last = at[i] + 1, math.inf, now
                target = place + 1 if kind == "F" else place - 1
                sends.extend([[send, (f"to {kind}", target, k)]] * (0 <= target < p * v))
            rings.extend([ring] for t, own in later if own == i and t < now + 1e-9)
        later = [x for x in later if x[0] >= now + 1e-9]


@settings(max_examples=30)
@given(
    st.integers(2, 5), st.integers(1, 3), st.integers(1, 2), st.integers(2, 20), st.integers(2, 20),
    st.integers(1, 3), st.floats(0.05, 0.5), st.floats(0.05, 40),
)  # fmt: skip
def test_the_last_micro_batch_waits_for_a_ring_at_every_send(p, v, rounds, f, b, layers, share, ring) -> None:
    """A step on shared NICs is later by the wait of each send that the schedule counts, and its rings by no more."""
    # So the exchange that ends last takes its own time, and no other pass or micro-batch waits.
    m, send = rounds * p, share * min(f, b)
    each = (shared_step(p, v, m, {"F": f, "B": b}, layers, send, ring, shared=x) for x in (False, True))
    (alone, rings_alone), (shared, rings_shared) = each
    strategy = layout((layers * v,) * p, virtual_stages=v, micro_batches=m)
    free = Conditions(pipeline_send_slowdown=1.0, allreduce_slowdown=1.0)
    x = step_prediction.times_of_strategy(toy(overlaps=("gradients", "sends")), free, strategy).pipeline
    met = step_prediction.sends_beside_rings(x, schedule.PipelineCounts(p, v, m), racks=2)
    in_flight = exposed_tail_seconds(ring * layers, b / layers, layers)
    assert shared - alone == pytest.approx(float(met * wait_for_others(send, 1.0, in_flight)), abs=1e-6)
    assert rings_shared - shared <= rings_alone - alone + 1e-6


def parts_of(c: Conditions, s: ParallelStrategy, **software: Any) -> dict[str, float]:
    return step_prediction.step_breakdown(toy(layers=sum(s.layers_per_stage), **software), c, s)


@settings(max_examples=30)
@given(strategies(), CONDITIONS, st.sampled_from([1.0, 1.5, 4.0]), st.sampled_from([16, 1024]))
def test_what_meets_only_adds_to_what_is_alone(s: ParallelStrategy, c: Conditions, slower: float, tokens: int) -> None:
    """Lower bounds without the wait stay bounds: every other part is as before, and it never falls as rings slow."""
    m = replace(toy(layers=sum(s.layers_per_stage)), sequence=tokens)
    sharded = step_prediction.times_of_strategy(m, c, s)
    x, group = sharded.pipeline, sharded.group
    own = ReplicaGroup(replicas_per_rack=s.replicas_per_rack, racks=s.group_racks(8), shards=s.min_replicas)
    assert group == replace(own, slowdown=c.allreduce_slowdown)
    counts = schedule.PipelineCounts(s.pipeline_parallel, s.virtual_stages, s.micro_batches)

    def once(slowdown: float, *, alone: bool = False) -> dict[str, Any]:
        own = replace(sharded, group=replace(group, slowdown=slowdown))
        return step_prediction.once_parts(own, None, counts, max(s.layers_per_stage), 1.0, 0.5, alone=alone)

    bound, found = once(c.allreduce_slowdown, alone=True), once(c.allreduce_slowdown)
    wait = float(found.pop("ring_wait"))
    assert found == bound and 0 <= wait <= float(once(slower * c.allreduce_slowdown)["ring_wait"]) + 1e-12
    # In flight is what no pass hides of rings of each GPU's part of the rack's sum; ZeRO-0 spreads it again.
    met = step_prediction.sends_beside_rings(x, counts, group.racks)
    own = weights_of(x.machine, s.shape).layer / ranks_in_rack(s)
    ring = c.allreduce_slowdown * (group.racks - 1) / group.racks * own * 4 / 10 * (2 if s.zero_stage == 0 else 1)
    most = max(1.0, max(s.layers_per_stage) / s.virtual_stages)
    in_flight = exposed_tail_seconds(ring * most, x.times.backward_seconds, most)
    wanted = met * wait_for_others(x.send_per_slowdown, c.allreduce_slowdown, in_flight)
    assert wait == pytest.approx(float(wanted))
    assert step_prediction.step_breakdown(m, c, s).get("ring_wait", 0.0) == pytest.approx(wait)


@settings(max_examples=30)
@given(strategies(), CONDITIONS)
def test_nothing_meets_where_rings_follow_the_last_send(s: ParallelStrategy, c: Conditions) -> None:
    """Gradients all after the last backward pass, one stage, or one rack in a ring: the step has no such part."""
    assume(s.zero_stage < 2)
    assert "ring_wait" not in parts_of(c, s, overlaps=("parameters", "sends"))
    if s.pipeline_parallel == 1 or s.group_racks(8) == 1 or s.schedule == "zb-h1":
        assert "ring_wait" not in parts_of(c, s)


LAYOUT = small().layout


def written(strategy: ParallelStrategy) -> LayoutPlan:
    """Write a strategy at two sites of 8 racks in all, 4 GPUs a rack."""
    return parallel_strategy.write_layout(
        strategy, data_parallel_by_site=dict(zip("ab", strategy.data_parallel_by_site, strict=True)), racks=20,
        gpus_per_rack=4, assumptions=LAYOUT.assumptions, metrics=LAYOUT.metrics, certificate=LAYOUT.certificate,
    )  # fmt: skip


@each("change", [
    {}, {"micro_batch": 4, "micro_batches": 7, "tensor_inner": 2, "zero_stage": 3},
    {"recompute": "full", "recomputed_layers_per_stage": (1, 0)},
    {"context_parallel": 2, "expert_parallel": 2, "stages_per_rack": 2, "schedule": "zb-h1"},
])  # fmt: skip
def test_a_written_layout_reads_back_as_the_same_strategy(change: dict[str, object]) -> None:
    """So do the lists of a plan's file; of full recompute the layers are written as numbers where all are meant."""
    strategy = replace(STRATEGY, **change)
    assert parallel_strategy.strategy_of(written(strategy)) == strategy
    assert parallel_strategy.strategy_of(written(strategy).model_dump(mode="json")) == strategy
    assert written(replace(STRATEGY, recompute="full")).recomputed_layers_per_stage == STRATEGY.layers_per_stage


def test_racks_and_gpus_of_a_written_layout() -> None:
    """TP 8 spreads a stage over 2 racks of 4; 3 and 2 replicas on 2 stages use 80 GPUs, those of all 20 racks."""
    layout = written(replace(STRATEGY, tensor_parallel=8, replicas_per_rack=1, data_parallel_by_site=(3, 2)))
    assert (layout.racks_per_replica, layout.racks_per_stage_by_site) == (2, {"a": 6, "b": 4})
    assert (layout.gpus_used, layout.gpus_idle) == (80, 0)


def test_a_strategy_of_a_shape_has_that_shape() -> None:
    shape = LayerShape(tensor_parallel=4, micro_batch=2, recompute="none", sequence_parallel=True, context_parallel=2)
    shared = {f.name for f in fields(LayerShape)}
    rest = {f.name: getattr(STRATEGY, f.name) for f in fields(STRATEGY) if f.name not in shared}
    assert ParallelStrategy.of_shape(shape, **rest).shape == shape


def test_what_a_layout_leaves_out_divides_nothing() -> None:
    """A layout without degrees of its own is of one GPU a TP rank, in plain 1F1B, a stage to a rack."""
    names = {"context_parallel", "expert_parallel", "tensor_parallel_inner", "schedule", "stages_per_rack"}
    read = parallel_strategy.strategy_of(
        LAYOUT.model_dump(mode="json", exclude=names | {"recomputed_layers_per_stage"})
    )
    assert (read.context_parallel, read.expert_parallel, read.tensor_inner, read.stages_per_rack) == (1, 1, 1, 1)
    assert (read.schedule, read.recomputed_layers_per_stage) == ("1f1b", ())


def test_replicas_of_a_site_fill_racks() -> None:
    """TP 2 with CP 6 in racks of 4 GPUs: three racks a replica, of which a rack has two CP ranks."""
    # Three replicas at the largest site are nine racks, all of the same weights; TP 8 over two racks halves the
    # group. Experts over 8 GPUs: two replicas of one rack each stand side by side, so that three replicas take four
    # racks.
    wide = replace(STRATEGY, tensor_parallel=2, context_parallel=6, replicas_per_rack=1, data_parallel_by_site=(3, 2))
    assert (wide.racks_per_replica(4), wide.unit_racks(4), wide.group_racks(4)) == (3, 3, 9)
    assert (wide.gpus, wide.min_replicas, wide.data_parallel) == (5 * wide.pipeline_parallel * 12, 2, 5)
    over = replace(wide, tensor_parallel=8, context_parallel=1)
    assert (over.site_group_racks(3, 4), over.group_racks(4)) == (6, 3)
    experts = replace(wide, tensor_parallel=4, context_parallel=1, expert_parallel=8)
    assert (experts.unit_racks(4), experts.site_group_racks(3, 4)) == (2, 4)
    assert replace(wide, data_parallel_by_site=(0, 3)).min_replicas == 3
    # TP 25 times CP 9 on 72 GPUs takes 5 racks: two groups a rack, and not the 4 racks of 225 GPUs.
    for t, c, context, replica in ((25, 9, 5, 5), (144, 3, 3, 6)):
        large = replace(wide, tensor_parallel=t, context_parallel=c)
        assert (parallel_strategy.context_racks(72, t, c), large.racks_per_replica(72)) == (context, replica)
    # 721 replicas at 7 a rack are 103 racks, one more takes another.
    for replicas, per_rack, racks in ((7, 7, 1), (8, 7, 2), (721, 7, 103), (1, 9, 1)):
        single = replace(wide, tensor_parallel=1, context_parallel=1, replicas_per_rack=per_rack)
        assert single.site_group_racks(replicas, 72) == racks


@each(("layers", "stages", "each"), [
    (8, 4, (2, 2, 2, 2)), (9, 4, (3, 2, 2, 2)), (10, 4, (2, 3, 3, 2)), (11, 4, (3, 3, 3, 2)),
    (126, 16, (7, *(8,) * 14, 7)), (4, 2, (2, 2)), (7, 1, (7,)),
])  # fmt: skip
def test_layers_are_spread_evenly(layers: int, stages: int, each: tuple[int, ...]) -> None:
    """Layers over go to the first stages; where two are short, the first and the last stage have one less."""
    assert even_layers(layers, stages) == each


@each(("gpus", "expected"), [(32, (1, 8)), (25, (1, 8)), (24, (2, 4)), (9, (2, 4)), (8, (4, 2))])
def test_stages_share_a_rack_where_the_gpus_ask_for_it(gpus: int, expected: tuple[int, int]) -> None:
    """Four stages of one GPU and two replicas, on racks of 8: four, if not all full, three or two, and one."""
    assert packing(8, 1, 1, 4, 2, gpus) == expected


@each(("unit", "stages", "replicas", "racks", "q"), [
    (16, 2, 3, 12, 1), (16, 2, 3, 11, 1), (4, 4, 2, None, 1), (4, 4, 2, 4, 1), (4, 4, 2, 3, 1), (2, 4, 2, 2, 2),
    (2, 4, 2, 1, 1), (2, 4, 1, 1, 4),
])  # fmt: skip
def test_fewest_stages_that_fit_the_racks(unit: int, stages: int, replicas: int, racks: int | None, q: int) -> None:
    """Replicas of stages of so many GPUs on racks of 8; one stage a rack where no number fits."""
    # A stage over two racks shares none of them; two stages a rack of four GPUs each leave room for one replica, so
    # that four racks are needed again; all four of two GPUs fill a rack with one replica.
    assert parallel_strategy.min_stages_per_rack(8, unit, stages, replicas, racks) == q
