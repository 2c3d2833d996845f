"""Time of one training step: each part by hand on a toy, what mixtures of experts cost, and what always holds."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import training_toys
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from training_toys import accelerator, machine_of, precision_of

from planner.instance.hardware import Accelerator
from planner.instance.workload import Experts, LatentAttention, Model, Precision
from planner.physics.training import collectives, data_parallel, layer_time, memory, operations, schedule
from planner.physics.training.collectives import Level
from planner.physics.training.data_parallel import ReplicaGroup
from planner.physics.training.memory import Weights, stored_tensors, weights_of
from planner.physics.training.operations import LayerShape, Machine, layer_operations, narrow_heads
from planner.physics.training.transformer import LayerKind, layer_kinds

# s = 4 tokens of h = 8: layer weights 12·64 = 768, their FLOP 2·768·4 = 6,144,
# causal attention 2·16·8 = 256, logits 2·4·8·16 = 1,024, s·h·2 B = 64 B.
TOY = Model(name="toy", layers=4, hidden=8, heads=2, vocabulary=16)
PRECISION = precision_of()
GEMM, ATTENTION = 6.144, 0.256
DENSE = LayerKind(layers=4, routed=False, window=None)


def gpu(*, most: float = 1.0, traffic: float = 0.0, hbm: float = 1e15, kernel: float = 0.0) -> Accelerator:
    """Return a GPU of 1 kFLOP/s with 100 B/s of scale-up at 0.5 s and 10 B/s of NIC at 2 s."""
    more = {"hbm_bytes_per_second": hbm, "attention_efficiency": 1.0, "kernel_seconds": kernel}
    return accelerator({"fp16": 1e3, "fp8": 2e3}, share=most, operand_traffic=traffic, **more)


def machine(
    card: Accelerator | None = None, model: Model = TOY, precision: Precision = PRECISION, **software: Any
) -> Machine:
    """Return a machine of toy GPUs, 8 a rack."""
    return machine_of(card or gpu(), model, 4, precision, **{"loss_bytes_per_logit": 0, **software})


shape = partial(training_toys.shape, recompute="selective")
SHAPES = st.builds(
    shape, st.sampled_from([1, 2, 4, 8]), st.integers(1, 4), recompute=st.sampled_from(("none", "selective")),
    sp=st.booleans(), c=st.sampled_from([1, 2]),
)  # fmt: skip


def seconds(m: Machine, s: LayerShape, kind: str) -> list[float]:
    """Sum the seconds of a layer's operations of a kind, forward and backward."""
    ops = operations.layer_operations(m, s, routed=False)
    return [math.fsum(o.seconds for o in x if o.kind == kind) for x in (ops.forward, ops.backward)]


def test_weight_gradients_that_are_added_apart() -> None:
    """At half their gradients' bytes hidden, 768 of 4 B are read and written; else 2 B written, and all 10 B moved."""
    card = gpu(traffic=0.5, hbm=1.0)
    fused, apart = (seconds(machine(card, fused_gradient_sums=x), shape(), "gemm") for x in (True, False))
    assert fused[0] == apart[0]
    assert apart[1] - fused[1] == pytest.approx(768 * (0.5 * 2 + 2 + 2 * 4 - 0.5 * 2 * 4))


def test_product_adds_its_unhidden_traffic() -> None:
    """2·4·8·16 FLOP at 800 FLOP/s take 1.28 s."""
    # Half of 2·(4·8 + 8·16 + 4·16) bytes at 100 B/s take 2.24 s more, and the kernel's start 0.1 s.
    assert operations.gemm_seconds(machine(gpu(most=0.8)), 4, 8, 16) == pytest.approx(1.28)
    m = machine(gpu(most=0.8, traffic=0.5, hbm=100.0, kernel=0.1))
    assert operations.gemm_seconds(m, 4, 8, 16) == pytest.approx(1.28 + 2.24 + 0.1)


@each("t", [1, 2])
@each("c", [1, 2])
def test_layer_products(t: int, c: int) -> None:
    """The layer's 6,144 FLOP forward, and twice that backward, run over t ranks, over c CP ranks on half the tokens."""
    # Causal attention has 256 FLOP forward, and backward five products for two. A gated FFN reads two matrices in:
    # 8·32·2·4 = 2,048 FLOP more.
    n = t * c
    assert seconds(machine(), shape(t, c=c), "gemm") == pytest.approx((GEMM / n, 2 * GEMM / n))
    assert seconds(machine(), shape(t, c=c), "attention") == pytest.approx((ATTENTION / n, 2.5 * ATTENTION / n))
    gated = machine(model=TOY.replaced(gated_ffn=True))
    assert seconds(gated, shape(t, c=c), "gemm")[0] == pytest.approx((GEMM + 2.048) / n)


@each(("t", "b", "fused"), [(1, 1, False), (1, 2, True), (2, 2, False), (2, 4, True), (1, 3, False)])
def test_a_softmax_that_its_kernel_does_not_take(t: int, b: int, fused: bool) -> None:
    """Heads of a GPU times sequences that 4 does not divide: four operations more."""
    # Of 16 scores a head the fused one moves 9 bytes each; others 6 to 32 bits, 8 scaled, 8 masked, 13 by softmax and
    # dropout, and 6 back: 41. The backward pass moves as much, and the softmax half as much again.
    for multiple, whole in ((None, True), (4, fused)):
        m = machine(gpu(hbm=1.0), flash_attention=False, selective_gemm_share=0.0, fused_softmax_multiple=multiple)
        ops = operations.layer_operations(m, shape(t, b=b), routed=False)
        softmax = [[o.seconds for o in x if o.name.startswith("softmax")] for x in (ops.forward, ops.backward)]
        assert len(softmax[0]) == (2 if whole else 6)
        moved = [16 * 2 * b / t * n for n in ((9, 11) if whole else (41, 45))]
        assert [sum(x) for x in softmax] == pytest.approx(moved)


@each(("t", "sp", "moved"), [(1, False, 80 + 64), (2, False, 80 + 32), (2, True, 40 + 32)])
def test_elementwise_bytes(t: int, sp: bool, moved: float) -> None:
    """10·h elements a token, divided under sequence parallelism, and the FFN's 2·f, at 2 bytes for 4 tokens."""
    # Backward they are 12·h and 3·f; a gated FFN has 3·f and 5·f.
    back, plain, gated = moved + (8 if sp else 16) + 32 / t, machine(gpu(hbm=1.0)), TOY.replaced(gated_ffn=True)
    assert seconds(plain, shape(t, sp=sp), "elementwise") == pytest.approx([8 * moved, 8 * back])
    wide = seconds(machine(gpu(hbm=1.0), model=gated), shape(t, sp=sp), "elementwise")
    assert wide == pytest.approx([8 * (moved + 32 / t), 8 * (back + 64 / t)])


def test_casts_cost_only_narrow_types() -> None:
    """In FP8 each product's input is read in 2 bytes and written twice in one, thrice as slowly; FP16 casts nothing."""
    # So is the gradient of its output. The products take half the time in FP8.
    narrow = PRECISION.replaced(compute="fp8")
    m, moved = machine(gpu(hbm=1.0), precision=narrow, quantise_traffic=3.0), 3 * 4 * 4
    casts = [moved * (8 + 8 + 8 + 32), moved * (24 + 8 + 32 + 8)]
    assert seconds(m, shape(), "quantise") == pytest.approx(casts)
    assert seconds(machine(gpu(hbm=1.0)), shape(), "quantise") == [0, 0]
    assert seconds(machine(precision=narrow), shape(), "gemm")[0] == pytest.approx(GEMM / 2)


def test_tensor_exchange_moves_the_entire_tensor() -> None:
    """Two all-reduces of 64 B at 100 B/s and 0.5 s take 2·1.64 s over 2 ranks, 2·3.96 s over 4, and nothing on one."""
    assert collectives.tensor_exchange_seconds(machine(), shape(1), DENSE) == 0
    assert collectives.tensor_exchange_seconds(machine(), shape(2), DENSE) == pytest.approx(2 * 1.64)
    assert collectives.tensor_exchange_seconds(machine(), shape(4), DENSE) == pytest.approx(2 * (6 * 0.5 + 1.5 * 0.64))
    assert collectives.tensor_exchange_seconds(machine(), shape(2, sp=True), DENSE) == pytest.approx(2 * 1.64)
    # A framework that hides three quarters of the exchange does so only where tokens are split.
    m = machine(tensor_overlap=0.75)
    assert collectives.tensor_exchange_seconds(m, shape(2, sp=True), DENSE) == pytest.approx(2 * 1.64 / 4)
    assert collectives.tensor_exchange_seconds(m, shape(2), DENSE) == pytest.approx(2 * 1.64)
    # Inputs of products that are cast before they are gathered: 32 B of 64 in FP8, 18 B in FP4, which overlaps nothing.
    for dtype, gathered, exposed in (("fp8", 32, 1 / 4), ("fp4", 18, 1.0)):
        narrow = PRECISION.replaced(compute=dtype)
        m = machine(precision=narrow, tensor_overlap=0.75, keeps_cast_inputs=True)
        wanted = 2 * (0.82 + 0.5 + gathered / 2 / 100) * exposed
        assert collectives.tensor_exchange_seconds(m, shape(2, sp=True), DENSE) == pytest.approx(wanted)
    # 16 ranks on racks of 8: the ring inside, then 8 B of each over 2 racks at 10 B/s and 2 s.
    inside, between = 2 * (7 * 0.5 + 7 / 8 * 0.64), 2 * (2 + 0.5 * 0.8)
    assert collectives.tensor_exchange_seconds(machine(), shape(16), DENSE) == pytest.approx(2 * (inside + between))


def test_two_dimensional_tensor_parallelism_by_hand() -> None:
    """2 x 2 ranks: each product reduces its output's half over 2 ranks forward, and its input's half backward."""
    s = replace(shape(4), tensor_inner=2)
    widths = [(8, 24), (8, 8), (8, 32), (32, 8)]
    each = [2 * 0.5 + 4 * 2 * w / 2 / 100 for pair in widths for w in pair]
    assert collectives.tensor_exchange_seconds(machine(), s, DENSE) == pytest.approx(sum(each) / 2)


@each(("overlaps", "exposed"), [((), 1.14), (("context",), 1.14 - 0.128)])
def test_context_exchange(overlaps: tuple[str, ...], exposed: float) -> None:
    """Keys and values of 4 tokens, 16 elements of 2 B, take 0.5 + 0.64 s between 2 ranks, once and twice backward."""
    # They run beside the attention's 0.128 s, or before it; each starts in 0.25 s.
    for start in (0.0, 0.25):
        m = machine(overlaps=overlaps, collective_seconds=start)
        found = layer_time.kind_times(m, shape(c=2), DENSE).parts["context_parallel"]
        assert found == pytest.approx(3 * (exposed + start))
    assert collectives.context_exchange(machine(), shape(), 1.0) == (0, 0)


ROUTED = TOY.replaced(experts=Experts(count=16, per_token=2, ffn=8))


@each(("dispatcher", "copies", "waits"), [("all_to_all", 2.0, 2.5), ("deep_ep", 1.5, 2.0)])
def test_expert_exchange(dispatcher: str, copies: float, waits: float) -> None:
    """Of 4·2·8·2 B half leave the rack of 8; sent once for each rack, 2·(1 - 1/4) copies go instead of 2."""
    # The flexible dispatchers pass tokens on in the rack as they come.
    m = machine(model=ROUTED, dispatcher=dispatcher)
    each = 128 * 0.5 * copies / 2 / 10 + waits
    assert collectives.expert_exchange_seconds(m, shape(e=16)) == pytest.approx(2 * each)
    assert collectives.expert_exchange_seconds(m, shape(e=1)) == 0

    # The same 16 in groups of 8, 4 and 2 a rack, of which alone a rack holds a stage, cross more often; 8 in whole ones
    # do not.
    spread = [replace(m, replicas_per_rack=n) for n in (8, 4, 2)]
    assert collectives.expert_exchange_seconds(spread[0], shape(e=16)) == pytest.approx(2 * each)
    near, *far = (collectives.expert_exchange_seconds(own, shape(e=8)) for own in spread)
    assert near == collectives.expert_exchange_seconds(m, shape(e=8)) < far[0] < far[1]

    # Two of 16 experts of width 8 take 2·2·2·8·8·4 FLOP in place of the FFN's 4,096, and the router 2·8·16·4.
    ops = operations.layer_operations(machine(model=ROUTED), shape(), routed=True)
    assert math.fsum(o.seconds for o in ops.forward if o.kind == "gemm") == pytest.approx((2048 + 2048 + 1024) / 1e3)


@each(("recompute", "selective"), [("none", 0.0), ("selective", 2 * 0.512 / 2)])
def test_layer_times(recompute: memory.Recompute, selective: float) -> None:
    """Forward is the work and two exchanges; backward is twice the work and two exchanges."""
    # The unfused scores run again in it under selective recompute.
    times = layer_time.layer_times(machine(flash_attention=False), shape(2, recompute=recompute))
    assert times.forward_seconds == pytest.approx(GEMM / 2 + 0.512 + 2 * 1.64)
    assert times.backward_seconds == pytest.approx(GEMM + 2 * 0.512 + 2 * 1.64 + selective)
    assert times.recompute_seconds == pytest.approx(times.forward_seconds - selective)
    whole = times.backward_seconds + times.recompute_seconds  # of a layer that runs again whole, which it does once
    assert whole == pytest.approx(GEMM + 2 * 0.512 + 2 * 1.64 + times.forward_seconds)
    assert times.weight_gradient_seconds == pytest.approx(GEMM / 2)


@each(("split", "exchange"), [(False, 1.64), (True, 1.64 / 2)])
def test_recompute_that_stops_early_leaves_out_what_no_pass_reads(split: bool, exchange: float) -> None:
    """The FFN's last product is a third of the forward ones, and all, or its scatter, of the exchange behind it."""
    s = shape(2, recompute="none", sp=split)
    whole, early = (layer_time.layer_times(machine(recompute_stops_early=stops), s) for stops in (False, True))
    assert whole.recompute_seconds - early.recompute_seconds == pytest.approx(GEMM / 2 / 3 + exchange)
    assert replace(early, recompute_seconds=whole.recompute_seconds) == whole


@each(("fused", "sums"), [(True, 2), (False, 3)])
def test_the_ends_of_a_model_exchange_too(fused: bool, sums: int) -> None:
    """All-reduces of 64 B take 1.64 s and their start of 1 s; the loss starts two or three more of a few numbers."""
    code = machine(collective_seconds=1.0, fused_loss=fused)
    assert collectives.end_exchange_seconds(code, shape(2)) == pytest.approx((2.64, 2.64 + sums))
    assert collectives.end_exchange_seconds(code, shape(1)) == (0.0, 0.0)


def test_sequences_divided_along_their_second_dimension_are_copied() -> None:
    """Of each of two exchanges a pass, 64 B are copied behind the gather and before the scatter, at 128 B/s."""
    for split, more in ((True, 2 * 2 * 2), (False, 0)):  # an all-reduce copies nothing
        each = (machine(gpu(hbm=128.0), copies_split_sequences=x) for x in (False, True))
        plain, copied = (layer_time.layer_times(m, shape(2, sp=split)).parts["tensor_parallel"] for m in each)
        assert copied - plain == pytest.approx(more)


def test_a_share_of_the_gemms_runs_again_under_selective_recompute() -> None:
    """A quarter of the forward GEMMs is a quarter of GEMM / 2 seconds and of what is kept; none without recompute."""
    code = machine(selective_gemm_share=0.25)
    kept = [memory.layer_bytes(code, shape(2, recompute=r)).kept for r in ("none", "selective")]
    assert kept[1] == 0.75 * kept[0]
    plain, again = (layer_time.layer_times(code, shape(2, recompute=r)) for r in ("none", "selective"))
    assert again.backward_seconds - plain.backward_seconds == pytest.approx(GEMM / 2 / 4)


@given(st.integers(1, 9), st.data())
def test_kinds_of_layers_are_those_of_each_layer(layers: int, data: st.DataObject) -> None:
    dense, narrow = data.draw(st.integers(0, layers)), data.draw(st.integers(0, layers))
    experts = Experts(count=16, per_token=2, ffn=8, dense_layers=dense)
    change: dict[str, Any] = {"layers": layers, "experts": experts}
    model = TOY.replaced(**change | ({"window": 3, "window_layers": narrow} if narrow else {}))
    routed_first = sorted((i >= dense for i in range(layers)), reverse=True)
    expected = Counter((routed, i < narrow) for i, routed in enumerate(routed_first))
    assert {(k.routed, k.window is not None): k.layers for k in layer_kinds(model)} == expected


def test_launches_show_where_the_gpu_is_faster() -> None:
    """At 10 s to launch each operation of a layer the GPU waits for the CPU, one and a half times as long backward."""
    ops = len(operations.layer_operations(machine(), shape(), routed=False).forward)
    times = layer_time.layer_times(machine(launch_seconds=10.0), shape())
    assert (times.forward_seconds, times.backward_seconds) == pytest.approx((10.0 * ops, 15.0 * ops))


BETTER = ["scale_up_bytes_per_second", "hbm_bytes_per_second", "hbm_efficiency", "attention_efficiency"]


@given(SHAPES, st.sampled_from(BETTER))
def test_layer_parts_sum_to_the_layer(s: LayerShape, what: str) -> None:
    """They are of no negative time, and on a better GPU none of them takes longer."""
    card = gpu(traffic=0.3, hbm=1e3, kernel=0.01).replaced(hbm_efficiency=0.5, attention_efficiency=0.5)
    better = card.replaced(**{what: 2 * getattr(card, what)})
    for flash in (False, True):
        each = (machine(x, flash_attention=flash, launch_seconds=0.0 if flash else 0.05) for x in (card, better))
        times, after = (layer_time.layer_times(m, s) for m in each)
        assert min(times.parts.values()) >= 0
        assert sum(times.parts.values()) == pytest.approx(times.forward_seconds + times.backward_seconds)
        assert times.backward_seconds >= times.forward_seconds
        assert sum(after.parts.values()) <= sum(times.parts.values()) * (1 + 1e-12)


@each("t", [1, 2])
@each("c", [1, 2, 4])
def test_head(t: int, c: int) -> None:
    """The logits' 1,024 FLOP, three times, over t ranks; their loss moves 8 bytes for each of 64 logits, 56 unfused.

    Two sequences have twice as many, of which a CP rank has those of its own tokens.
    """
    assert operations.head_seconds(machine(), shape(t, b=2, c=c)) == pytest.approx(2 * 3.072 / t / c)
    for fused, loss in ((True, 8), (False, 56)):
        m = machine(gpu(hbm=1.0), loss_bytes_per_logit=8, fused_loss=fused)
        assert operations.head_seconds(m, shape(t, c=c)) == pytest.approx((3.072 + 64 * loss) / t / c)
    # 16 x 8 weights of the embedding take 14 bytes each: 2 B cleared, written and read, 4 B read and written.
    assert operations.embedding_seconds(machine(gpu(hbm=1.0)), shape(t)) == pytest.approx(128 * 14 / t)


def test_pipeline_send() -> None:
    """A send takes 2 s, 64 B over the ranks at 10 B/s slowed by 1.5, and the gather of 64 B among the ranks."""
    # Under sequence parallelism the next stage starts from its shards; within a rack the scale-up links take 0.5 s
    # and 64 B at 100 B/s, whatever the slowdown. Without scatter every rank sends all, and nothing is gathered.
    assert collectives.pipeline_send_bytes(machine(), shape(1)) == pytest.approx(64)
    assert collectives.pipeline_send_bytes(machine(), shape(2, b=3)) == pytest.approx(96)
    send = partial(collectives.pipeline_send_seconds, machine())
    assert send(shape(1), 1.5) == pytest.approx(2 + 9.6)
    assert send(shape(2), 1.5) == pytest.approx(2 + 4.8 + 0.5 + 0.32)
    assert send(shape(2, sp=True), 1.5) == pytest.approx(2 + 4.8)
    assert send(shape(1), 1.5, inside=True) == pytest.approx(0.5 + 0.64)
    assert collectives.pipeline_send_seconds(machine(pipeline_scatter=False), shape(2), 1.5) == pytest.approx(2 + 9.6)


HALF = shape(2)
WEIGHTS = weights_of(machine(), HALF)
# 768 weights over 2 TP ranks at 4 B and at 2 B: 4 replicas a rack, then 3 racks at half the rate.
GROUP = ReplicaGroup(4, 3, slowdown=2.0)
REDUCE = 1.5 + 0.75 * 15.36 + 4 + 2.0 * 2 / 3 * 38.4
GATHER = 1.5 + 0.75 * 7.68 + 4 + 2.0 * 2 / 3 * 19.2


def tail_of(m: Machine, zero: int, seconds: float, end: int = 0) -> float:
    """Exposed exchange of five layers in one chunk, each as long forward as backward, in one micro-batch."""
    times: Any = SimpleNamespace(forward_seconds=seconds, backward_seconds=seconds)
    own = HALF, WEIGHTS, GROUP, times, schedule.PipelineCounts(1, 1, 1)
    return float(data_parallel.data_parallel_tail_seconds(m, *own, zero_stage=zero, layers=5, end=end))


@each(("zero", "forward", "backward", "exposed"), [
    (0, 0, 0, 5 * 2 * REDUCE), (1, 0, 0, 5 * (REDUCE + GATHER)), (2, 0, REDUCE, REDUCE + 5 * GATHER),
    (3, GATHER, GATHER + REDUCE, REDUCE),
])  # fmt: skip
def test_sharding_traffic_and_tail_by_zero_stage(zero: int, forward: float, backward: float, exposed: float) -> None:
    """Stages 0 and 1 send nothing with a micro-batch, 2 the reduction, 3 the gather in both passes too.

    With nothing to hide behind, gradients come back (ZeRO-0), weights do (1, 2), or nothing does (3).
    """
    # 1,536 B are reduced between 4 GPUs in the rack, then 384 B of each between 3 racks at half the rate. Stages 2 and
    # 3 have one layer's sums left.
    found = data_parallel.sharding_traffic_seconds(machine(), HALF, WEIGHTS, zero, GROUP)
    assert found == pytest.approx((forward, backward))
    for group, seconds in ((replace(GROUP, racks=1), 1.5 + 11.52), (ReplicaGroup(1, 1, slowdown=2.0), 0)):
        assert data_parallel.replica_exchange(machine(), HALF, WEIGHTS, group)(4) == pytest.approx(seconds)
    assert tail_of(machine(), zero, 0.0) == pytest.approx(exposed)


@each(("overlaps", "exposed"), [(("gradients",), 1.0), (("parameters",), 5.0)])
def test_gradients_that_do_not_overlap_are_exposed(overlaps: tuple[str, ...], exposed: float) -> None:
    """Of five layers' exchanges beside a long backward pass the last remains, or all where they do not overlap."""
    # The embeddings' exchange comes after it.
    m = machine(overlaps=overlaps)
    tail = tail_of(m, 0, 1e6)
    assert tail == pytest.approx(exposed * 2 * REDUCE)
    of_end = data_parallel.replica_exchange(m, HALF, replace(WEIGHTS, shared=WEIGHTS.end), GROUP)
    assert tail_of(m, 0, 1e6, end=1) - tail == pytest.approx(2 * float(of_end(4)))


def level(ranks: int, rate: float = 1e9, latency: float = 1e-3, *, switch: bool = False) -> Level:
    return Level(ranks=ranks, bytes_per_second=rate, latency_seconds=latency, reduces_in_network=switch)


def test_two_levels_by_hand() -> None:
    """8 GPUs share 8 GB at 8 GB/s (7/8 of it, 7 steps), 4 racks an eighth, 1 GB, at 1 GB/s (3/4 of it, 3 steps)."""
    # One rank exchanges nothing.
    for alone in (level(1), level(1, switch=True)):
        assert collectives.all_reduce(1e9, [alone]) == collectives.reduce_scatter(1e9, [alone]) == 0
        assert collectives.all_to_all(1e9, [alone, alone]) == 0
    levels = [level(8, 8e9), level(4)]
    assert collectives.reduce_scatter(8e9, levels) == pytest.approx(0.875 + 0.007 + 0.75 + 0.003)
    assert collectives.all_reduce(8e9, levels) == pytest.approx(2 * (0.875 + 0.007 + 0.75 + 0.003))

    # Where switches reduce, an all-reduce of 1 GB over 8 ranks takes 1 s and two latencies, its halves one each.
    assert collectives.all_reduce(1e9, [level(8, switch=True)]) == pytest.approx(1.002)
    assert collectives.reduce_scatter(1e9, [level(8, switch=True)]) == pytest.approx(0.876)


@each(("inside", "racks"), [(1, 1), (2, 1), (1, 3), (4, 2), (8, 4)])
def test_all_to_all_counts_every_message(inside: int, racks: int) -> None:
    """A rank sends 1 byte in equal parts to all ranks: inside its rack, and out of it, message by message."""
    others = list(itertools.product(range(racks), range(inside)))[1:]  # of the first rank of the first rack
    near, far = (sum(1 / (inside * racks) for rack, _ in others if (rack > 0) == out) for out in (False, True))
    found = collectives.all_to_all(1.0, [level(inside, 10.0, 0.0), level(racks, 1.0, 0.0)])
    assert found == pytest.approx(max(near / 10, far))


@given(st.floats(0, 1e12), st.integers(1, 64), st.integers(1, 64))
def test_levels_move_what_one_ring_moves(size: float, inside: int, racks: int) -> None:
    """At one rate and without latency, level by level moves just what a flat ring over all ranks does."""
    # An all-reduce is a reduce-scatter and an all-gather, and never moves more than two tensors.
    flat, two = [level(inside * racks, latency=0.0)], [level(inside, latency=0.0), level(racks, latency=0.0)]
    half, whole = float(collectives.reduce_scatter(size, flat)), float(collectives.all_reduce(size, flat))
    assert float(collectives.reduce_scatter(size, two)) == pytest.approx(half, abs=1e-12)
    assert whole == pytest.approx(half + float(collectives.all_gather(size, flat)))
    assert 0 <= whole <= 2 * size / 1e9


@given(st.floats(0.01, 9), st.floats(0, 3), st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
def test_what_passes_of_chunks_do_not_hide(each: float, work: float, size: int, chunks: int, batches: int) -> None:
    """A layer's gradients leave as the last pass leaves it, one exchange after another: run event by event."""
    ready, clock = [], 0.0
    for _ in range(chunks):
        clock += (batches - 1) * size * work
        for _ in range(size):
            clock += work
            ready.append(clock)
    free = 0.0
    for t in ready:
        free = max(free, t) + each
    exposed = collectives.exposed_behind_chunks(each, work, size * chunks, chunks, batches)
    assert exposed == pytest.approx(free - clock)
    if chunks == 1:
        assert exposed == pytest.approx(collectives.exposed_tail_seconds(each * size, work, size))


def test_the_floor_of_an_exchange_is_no_more_than_its_time() -> None:
    r = np.random.default_rng(5)
    n = 100_000
    each, work = np.exp(r.normal(0, 2, n)), np.exp(r.normal(0, 2, n))
    chunks, batches = r.integers(1, 9, n), r.integers(1, 65, n)
    layers = chunks + r.integers(0, 40, n)
    time = collectives.exposed_behind_chunks(each, work, layers, chunks, batches)
    fewer = np.maximum(chunks, layers - r.integers(0, 20, n))
    share, more, longer = r.uniform(0, 1, n), r.uniform(1, 2, n), batches + r.integers(0, 9, n)
    floor = collectives.exposed_behind_chunks(each * share, work * more, fewer, chunks, longer)
    assert np.all(floor <= time * (1 + 1e-12))


ROUTED_LAYER = LayerKind(layers=4, routed=True, window=None)
LOCAL = 4  # of 16 experts, over 4 GPUs
OVER_FOUR = training_toys.shape(e=4)
PASSES = "forward_seconds", "backward_seconds", "weight_gradient_seconds"


def routed_machine(
    dtype: str = "fp16", heads: int = 2, softmax_width: float = 0.0, per_token: int = 2, **software: Any
) -> Machine:
    """Return nodes of 8 GPUs and a model of 16 experts, two for a token."""
    experts = Experts(count=4 * LOCAL, per_token=per_token, ffn=8)
    model = Model(name="toy", layers=4, hidden=128, heads=heads, vocabulary=16, experts=experts)
    gpu = accelerator({"fp16": 1e6, "fp8": 2e6}, hbm_bytes_per_second=1e9, softmax_width=softmax_width)
    return machine_of(gpu, model, 4, precision_of(dtype), **software)


def slower(plain: Machine, slow: Machine) -> list[float]:
    """Return how much longer a machine takes forward, backward, of it for weights, in products, and in casts."""
    x, y = (layer_time.kind_times(m, OVER_FOUR, ROUTED_LAYER) for m in (plain, slow))
    passes = [getattr(y, name) - getattr(x, name) for name in PASSES]
    return [*passes, *(y.parts[part] - x.parts[part] for part in ("gemm", "quantise"))]


@each(("overlap", "shown"), [(0.0, 1.0), (0.75, 0.25)])
def test_a_start_is_never_hidden(overlap: float, shown: float) -> None:
    """Two exchanges a pass: of 2,048 B three quarters go over 100 B/s, some of them hidden, and each starts in 3 s."""
    # 4 tokens, two copies of 128 elements of 2 B.
    found = collectives.expert_exchange_seconds(
        routed_machine(all_to_all_seconds=3.0, expert_overlap=overlap), OVER_FOUR
    )
    assert found == pytest.approx(2 * ((0.75 * 2048 / 100 + 0.5) * shown + 3.0))


@each(("dtype", "casts"), [("fp16", 0), ("fp8", 2)])
def test_each_expert_starts_its_products_and_casts(dtype: str, casts: int) -> None:
    """A GPU's 4 experts each start two products forward and four backward, and a cast for each of two both ways."""
    # The gradients of two weights are among them, which a zero-bubble schedule moves.
    plain, slow = ({"expert_seconds": x, "expert_cast_seconds": x} for x in (0.0, 5.0))
    wanted = [LOCAL * 5 * n for n in (2 + casts, 4 + casts, 2, 6, 2 * casts)]
    assert slower(routed_machine(dtype, **plain), routed_machine(dtype, **slow)) == pytest.approx(wanted)


@each(("heads", "slower"), [(1, 1.0), (2, 1.5), (4, 2.5)])
def test_narrow_heads_wait_for_the_softmax(heads: int, slower: float) -> None:
    """Where a score's softmax takes as long as products 128 wide, heads of 64 take 192 / 64 over 256 / 128 a FLOP."""
    # Latent scores 192 wide and values 128 wide count as 160: (160 + 128) / 160 over 256 / 128.
    m = routed_machine(heads=heads, softmax_width=128.0)
    latent = LatentAttention(q_rank=8, kv_rank=8, head_nope=128, head_rope=64, head_value=128)
    assert narrow_heads(replace(m, model=m.model.replaced(latent_attention=latent))) == pytest.approx(0.9)
    assert narrow_heads(routed_machine(heads=heads, softmax_width=128.0)) == pytest.approx(slower)
    assert narrow_heads(routed_machine(heads=heads)) == 1.0
    each = (
        layer_time.kind_times(routed_machine(heads=heads, softmax_width=w), OVER_FOUR, ROUTED_LAYER)
        for w in (0.0, 128.0)
    )
    plain, slow = (times.parts["attention"] for times in each)
    assert slow == pytest.approx(slower * plain)


@each(("groups", "of_token", "domains", "copies"), [
    (1, 1, 4, 4 * (1 - 0.75**8)), (8, 8, 8, 8 * (1 - 0.875**8)), (8, 4, 8, 4 * (1 - 0.75**8)),
    (8, 4, 4, 4 * (1 - (15 + 40 * 0.75**8 + 15 * 0.5**8) / 70)), (8, 4, 16, 8 * (1 - 0.875**8)), (8, 1, 4, 1.0),
])  # fmt: skip
def test_tokens_reach_the_domains_of_their_groups(groups: int, of_token: int, domains: int, copies: float) -> None:
    """A token's 8 experts are in few groups, which divide the experts, so that it crosses to fewer domains."""
    # In every group as without; of half of the domains each has a quarter of the experts at hand; of a domain none, one
    # or both groups; half a group each.
    experts = Experts(count=256, per_token=8, ffn=8, groups=groups, groups_per_token=of_token)
    assert collectives.domains_of_token(experts, domains) == pytest.approx(copies)
    for wrong in ((8, 9), (7, 1)):
        with pytest.raises(ValueError, match="groups must divide count .* \\({} of 256 experts, {} for".format(*wrong)):
            Experts(count=256, per_token=8, ffn=8, groups=wrong[0], groups_per_token=wrong[1])


@each(("per_token", "tensor_parallel"), [(1, 1), (2, 1), (4, 2)])
def test_what_a_layer_moves_beside_its_products(per_token: int, tensor_parallel: int) -> None:
    """Elements of 128 and 2 B of 4 tokens, over 1 GB/s: both norms and residual additions, and copies to experts."""
    # Forward a norm reads and writes one each, an addition reads two and writes one; backward the norm reads two and
    # writes one, and its gradient is added to the other's, again two read and one written. A token, of the GPU's part
    # of them, is read and written once; each of its copies is written and read on the way to its expert and back.
    found = layer_operations(
        routed_machine(per_token=per_token), training_toys.shape(tensor_parallel, e=4), routed=True
    )
    one = 4 * 128 * 2 / 1e9
    for passes, whole in ((found.forward, 2 + 3), (found.backward, 3 + 3)):
        seconds = [(o.name, o.seconds) for o in passes]
        assert sum(x for name, x in seconds if name in ("norm", "residual")) == pytest.approx(2 * whole * one)
        copied = [x for name, x in seconds if name == "dispatch and combine"]
        assert copied == pytest.approx([one / tensor_parallel * (1 + 1 + 2 * 2 * per_token)])


@each(("hidden", "ffn", "fused"), [(256, 512, True), (256, 320, False), (320, 256, False)])
def test_fused_experts_cast_what_comes_in(hidden: int, ffn: int, fused: bool) -> None:
    m = routed_machine("fp8", fused_experts=True, quantise_traffic=1.0, expert_seconds=1.0, expert_cast_seconds=1.0)
    experts = Experts(count=4 * LOCAL, per_token=2, ffn=ffn, clamped=True)
    m = replace(m, model=m.model.replaced(hidden=hidden, experts=experts))
    passes = layer_operations(m, OVER_FOUR, routed=True)
    for listed in (passes.forward, passes.backward):
        casts = [o.seconds for o in listed if o.name.startswith("cast for experts")]
        elements = 4 * 2 * (hidden + (0 if fused else ffn))
        assert math.fsum(casts) == pytest.approx(elements * 4 / 1e9 + (0 if fused else 2 * LOCAL))
    one_kernel = [] if fused else [pytest.approx(4 * 2 * ffn * 2 * 2 / 1e9)]
    assert [o.seconds for o in passes.forward if o.name == "experts activation"] == one_kernel


@each("efficiency", [1.0, 0.5, 0.25])
def test_grouped_products_run_at_their_own_efficiency(efficiency: float) -> None:
    # At a half of the efficiency each takes twice its time, at a quarter four times.
    more = (1 / efficiency - 1) * 2 * 2 * 128 * 8 * LOCAL / 1e6
    found = slower(routed_machine(), routed_machine(expert_efficiency=efficiency))
    assert found == pytest.approx([2 * more, 4 * more, 2 * more, 6 * more, 0])


@each(("t", "e", "near", "far"), [(1, 2, 4, 3), (2, 2, 4, 3), (2, 4, 2, 3), (4, 8, 1, 3)])
def test_experts_are_reduced_over_all_gpus_that_hold_them(t: int, e: int, near: int, far: int) -> None:
    """On three full racks of 8 every e-th GPU holds the same experts, whatever the TP: 8 / e of a rack."""
    # Rings of them inside the rack at 0.5 s and 100 B/s, then each its share between racks at 2 s and 10 B/s.
    s = replace(OVER_FOUR, tensor_parallel=t, expert_parallel=e)
    experts = Weights(shared=0.0, experts=1000.0, end=0.0, front=0.0)
    size = 4 * 1000.0
    inside, between = 8 // t - 1, 2  # of the shared weights, none here: the waits alone
    expected = inside * 0.5 + between * 2
    expected += (near - 1) * 0.5 + (near - 1) / near * size / 100 + (far - 1) * 2 + (far - 1) / far * size / near / 10
    group = data_parallel.ReplicaGroup(8 // t, 3)
    assert data_parallel.replica_exchange(routed_machine(), s, experts, group)(4) == pytest.approx(expected)


def test_the_busiest_rank_sets_the_time_of_experts() -> None:
    """Twice the mean's tokens on one rank takes as long as twice the experts of a token."""
    even, uneven = routed_machine(), replace(routed_machine(), expert_imbalance=2.0)
    twice = replace(even, model=even.model.replaced(experts=Experts(count=16, per_token=4, ffn=8)))
    assert collectives.expert_exchange_seconds(uneven, OVER_FOUR) == collectives.expert_exchange_seconds(
        twice, OVER_FOUR
    )
    passes = (layer_operations(m, OVER_FOUR, routed=True).forward for m in (uneven, twice))
    found, wanted = ([o for o in forward if o.name.startswith("experts")] for forward in passes)
    assert found == wanted
    assert stored_tensors(uneven.model, routed=True, imbalance=2.0) == stored_tensors(twice.model, routed=True)


@each("c", [1, 2, 4])
def test_results_over_context_ranks_are_summed(c: int) -> None:
    """Each of c kernels has its output, or its gradients of Q, K and V, read, and a sum in FP32 read and written."""
    m = routed_machine(elementwise_traffic=1.0)
    s = replace(OVER_FOUR, expert_parallel=1, context_parallel=c)
    passes = layer_operations(m, s, routed=False)
    merges = [o.seconds for o in (*passes.forward, *passes.backward) if o.name == "merge of CP ranks"]
    tokens, width = 4 / c, 128
    wanted = [3 * c * tokens * width * 4 / 1e9, 3 * c * tokens * 3 * width * 4 / 1e9] if c > 1 else []
    assert merges == pytest.approx(wanted)
