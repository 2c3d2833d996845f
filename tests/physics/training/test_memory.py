"""Bytes that training keeps on a GPU, of a layer and of a stage, tensor by tensor."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from each_case import each
from training_toys import accelerator, layout, machine_of, precision_of, shape

from planner.instance.workload import Experts, LatentAttention, Model
from planner.physics.training import memory, operations, schedule, step_prediction
from planner.physics.training.memory import weights_of
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.schedule import front_by_stage
from planner.physics.training.step_prediction import free_conditions

S = 2048
GPT22 = Model(name="gpt", layers=48, hidden=6144, heads=64, vocabulary=51200)


def per_layer(model: Model, t: int, recompute: memory.Recompute, sp: bool, **more: int) -> float:
    """Bytes of a layer at two bytes an element and one a mask."""
    sizes = memory.ElementBytes(2.0, 2.0, 2.0)
    return memory.activation_bytes_per_layer(model, S, shape(t, recompute=recompute, sp=sp, **more), sizes)


SBH = S * 6144  # of GPT 22B at b = 1
AS_H = 64 * S / 6144


@each(("t", "recompute", "sp", "factor"), [
    (1, "none", False, 34 + 5 * AS_H), (8, "none", False, 10 + 24 / 8 + 5 * AS_H / 8),
    (8, "none", True, (34 + 5 * AS_H) / 8), (1, "none", True, 34 + 5 * AS_H), (8, "selective", False, 10 + 24 / 8),
    (8, "selective", True, 34 / 8), (8, "full", False, 2), (8, "full", True, 2 / 8),
])  # fmt: skip
def test_table_2_of_korthikanti(t: int, recompute: memory.Recompute, sp: bool, factor: float) -> None:
    """Each row of Korthikanti 2022's table 2, in s·b·h bytes; a sharded checkpoint is its fraction."""
    # Activations of a CP rank are those of its own tokens; of the scores only the keys are of the whole sequence.
    for b, c in ((1, 1), (4, 1), (3, 16)):
        assert per_layer(GPT22, t, recompute, sp, b=b, c=c) == pytest.approx(b * SBH * factor / c)


@each(("tied", "stage", "p", "copies"), [
    (True, 0, 1, 1), (False, 0, 1, 2), (True, 0, 4, 1), (True, 3, 4, 1), (False, 3, 4, 1), (True, 1, 4, 0),
])  # fmt: skip
def test_embedding_and_head_by_stage(tied: bool, stage: int, p: int, copies: int) -> None:
    """The first stage holds the embedding and the last the head; alone, tied weights are stored once."""
    assert memory.end_copies(GPT22.replaced(tied_embeddings=tied), stage, p) == copies


def test_a_context_rank_has_the_logits_of_its_own_tokens() -> None:
    """A rank of CP 8 has the logits of an eighth of the tokens over its part of the vocabulary; unfused, in FP32."""
    m, s = replace(machine(GPT22, logit_memory_bytes=None), sequence=4096), shape(4, b=2, c=8)
    m, fused = (replace(m, software=m.software.replaced(fused_loss=fused)) for fused in (False, True))
    bits_16 = memory.head_bytes(m, s, weights_of(m, s)) - memory.head_bytes(fused, s, weights_of(m, s))
    assert bits_16 == 2 * (2 * 4096 // 8) * (51200 // 4)


def test_tensors_kept_of_latent_attention() -> None:
    """Both ranks and the keys' positions are kept by all beside 4·h; of 3 heads Q and K of 3 + 2, V and output of 6."""
    latent = LatentAttention(q_rank=5, kv_rank=4, head_nope=3, head_rope=2, head_value=6)
    model = Model(name="latent", layers=1, hidden=10, heads=3, vocabulary=7, latent_attention=latent)
    inner, tensors = 2 * 4 * 10, memory.stored_tensors(model)
    kept = [sum(x.elements for x in tensors if x.whole == every) for every in (True, False)]
    assert kept == [4 * 10 + 5 + 4 + 2, 3 * (5 + 5 + 6 + 6) + inner]


def test_inputs_of_products_are_kept_in_their_type() -> None:
    """A Llama layer in FP8, tensor by tensor: of 8 elements a token, heads of 4, one of them of keys, FFN of 16."""
    m = Model(name="l", layers=1, hidden=8, heads=2, kv_heads=1, head_size=4, ffn=16, gated_ffn=True, vocabulary=4)
    wide = {"input of the first norm": 8, "input of the second norm": 8, "Q": 8, "K": 4, "V": 4, "attention": 8}
    wide |= {"gate": 16, "up": 16}
    narrow = {"input of QKV": 8, "input of the projection": 8, "input of the FFN": 8, "input of its second product": 16}
    one = shape(recompute="selective")
    found = memory.activation_bytes_per_layer(m, 1, one, memory.ElementBytes(2, 1, 2, mask=0))
    assert found == 2 * sum(wide.values()) + sum(narrow.values())


H, F, V, SEQUENCE = 64, 160, 1000, 32
DENSE = Model(name="d", layers=6, hidden=H, heads=4, ffn=F, gated_ffn=True, vocabulary=V, tied_embeddings=False)
MIXED = DENSE.replaced(experts=Experts(count=8, per_token=2, ffn=48, shared_ffn=32, dense_layers=2), layers=7)
PRECISION = precision_of("bf16")


def machine(model: Model = DENSE, **software: Any) -> Machine:
    """Return a machine of plain figures; gradients have stand-ins of two bytes, logits take two bytes."""
    gpu = accelerator({"bf16": 1e12}, hbm_bytes_per_second=1e12, scale_up=(1e12, 0.0), nic=(1e12, 0.0))
    stack = {"weight_gradient_copy_bytes": 2, "logit_memory_bytes": 2, "loss_bytes_per_logit": 0} | software
    return machine_of(gpu, model, SEQUENCE, PRECISION, **stack)


def strategy(layers: tuple[int, ...], v: int = 1, m: int = 8, e: int = 1, d: int = 1) -> ParallelStrategy:
    """Return a pipeline of stages with so many layers, its optimizer sharded over the replicas."""
    own = {"data_parallel_by_site": (d,), "virtual_stages": v, "micro_batches": m, "expert_parallel": e}
    return layout(layers, stages_per_rack=len(layers), **own)


def test_dense_layers_stand_at_the_front() -> None:
    """Two dense layers and five of experts on stages of 3, 2 and 2: only the first stage has dense ones."""
    # Experts are divided over four ranks, their optimizer over the two replicas of each that four replicas leave; a
    # token keeps, for each of its two experts, input, output and three inner tensors of 48.
    parts = memory.memory_by_stage(machine(MIXED), strategy((3, 2, 2), e=4, d=4))
    attention, expert = 4 * H * H, 3 * H * 48
    dense, shared = attention + 3 * H * F, attention + 3 * H * 32 + 8 * H
    usual = shared * (6 + 12 / 4) + 8 * expert / 4 * (6 + 12 / 1)
    ends = V * H * (6 + 12 / 4)
    assert parts["state"].tolist() == [2 * dense * 9 + usual + ends, 2 * usual, 2 * usual + ends]
    routed = 2 * SEQUENCE * (8 * H + 3 * 32 + 2 * (2 * H + 3 * 48))
    front = 2 * SEQUENCE * (8 * H + 3 * F)
    assert parts["activations"].tolist() == [3 * (routed + 2 * front), 2 * 2 * routed, 2 * routed]
    gradients = 2 * SEQUENCE * (H + 2 * (2 * H + 2 * 48))
    copies = 2 * (shared + expert)
    assert parts["working"][0] == copies + 2 * 3 * H * F + gradients
    assert parts["working"][1] == copies + gradients


@each(("layers", "v", "found"), [
    ((4, 3), 1, (2, 0)), ((1, 1, 5), 1, (1, 1, 0)), ((4, 3), 2, (2, 0)), ((2, 5), 2, (1, 1)), ((7,), 1, (2,)),
])  # fmt: skip
def test_front_layers_follow_the_chunks(layers: tuple[int, ...], v: int, found: tuple[int, ...]) -> None:
    assert front_by_stage(MIXED, layers, v) == found


def test_a_step_counts_each_stage_by_its_own_layers() -> None:
    m, s = machine(MIXED), strategy((3, 4), e=1)
    parts = step_prediction.step_breakdown(m, free_conditions(), s)
    shared = 4 * H * H + 3 * H * 32
    tokens = 3 * 2 * SEQUENCE  # forward, and twice that backward, a multiply and an add
    routed = tokens * (shared + 2 * 3 * H * 48)
    router = operations.gemm_seconds(m, SEQUENCE, H, 8) * 3
    assert parts["gemm"] == pytest.approx(8 * 4 * (routed / 1e12 + router), rel=1e-9)
    # On one stage alone its two dense layers come beside the five with experts.
    parts = step_prediction.step_breakdown(m, free_conditions(), strategy((7,)))
    dense = tokens * (4 * H * H + 3 * H * F)
    assert parts["gemm"] == pytest.approx(8 * (5 * (routed / 1e12 + router) + 2 * dense / 1e12), rel=1e-9)


def test_the_head_fills_the_last_chunk() -> None:
    """Three layers in two chunks wait for each other; not with a head as long as a layer behind the smaller one."""
    # Half of such a head fills half of what is missing.
    passes, p, m = (1.0, 2.0, 1.0), 8, 64

    def wait(share: float) -> float:
        return schedule.excess_seconds(schedule.PipelineCounts(p, 2, m), 3, 0, passes, head=(share, 2 * share))

    assert wait(0.0) > wait(0.5) > wait(1.0) == wait(9.0) == 0.0
    # With the head, the last stage is never done before it would be without.
    assert wait(0.5) + m * 0.5 * 3 >= wait(0.0)


def test_the_last_wave_of_tiles_is_paid_in_full() -> None:
    """A product of m x k x n takes as long as one whose result has so many more elements, whatever their number."""
    m = machine()
    slow = replace(m, gpu=m.gpu.replaced(gemm_efficiency__tail_elements=1000.0))
    for count in (1, 5):
        plain, more = (operations.gemm_seconds(x, 30, 70, 50, count=count) for x in (m, slow))
        assert more - plain == pytest.approx(2 * 70 * 1000 / 1e12)


def test_heads_that_tensor_cores_cannot_load() -> None:
    """Scores of heads of 12 run at the share of unaligned ones, of 16 at the whole rate; fused kernels have neither."""

    def scores(heads: int, flash: bool) -> float:
        m = machine(DENSE.replaced(heads=heads, head_size=H // 4 if heads == 4 else 12))
        m = replace(m, software=m.software.replaced(flash_attention=flash, score_efficiency=1.0))
        slow = replace(m, gpu=m.gpu.replaced(gemm_efficiency__unaligned_share=0.25))
        passes = (operations.layer_operations(x, shape(), routed=False).forward for x in (m, slow))
        plain, unaligned = (sum(x.seconds for x in forward if x.kind == "attention") for forward in passes)
        return unaligned / plain

    assert scores(4, flash=False) == pytest.approx(1.0)
    assert scores(5, flash=False) == pytest.approx(4.0)
    assert scores(5, flash=True) == pytest.approx(1.0)


def test_the_exchange_of_gradients_at_a_share_of_the_rate() -> None:
    m, s = machine(overlaps=()), strategy((6,), m=1, d=8)
    half = replace(m, software=m.software.replaced(data_efficiency=0.5))
    one, two = (step_prediction.step_breakdown(x, free_conditions(), s)["data_parallel"] for x in (m, half))
    assert one > 0 and two == pytest.approx(2 * one)


@each(("gpu", "software", "roles", "layer", "end"), [
    ({}, {}, {"compute": "bf16"}, 2, 2), ({}, {}, {}, 2 + 1 + 1, 2), ({"any_fp8_layout": True}, {}, {}, 2 + 1, 2),
    ({"any_fp8_layout": True}, {"fp8_recipe": "mxfp8"}, {}, 2 + 1 + 1, 2), ({}, {"fp8_parameters": True}, {}, 1 + 1, 2),
    ({"any_fp8_layout": True}, {"fp8_parameters": True}, {}, 1, 2), ({}, {"fp8_parameters": False}, {}, 2 + 1 + 1, 2),
    ({}, {}, {"working_parameter_bytes": 1, "parameter_bytes": 5}, 1 + 1, 1 + 1),
    ({}, {}, {"compute": "fp4"}, 2 + 0.5 + 0.5, 2),
    ({}, {}, {"compute": "fp4", "working_parameter_bytes": 0.5, "parameter_bytes": 4.5}, 0.5, 0.5),
])  # fmt: skip
def test_casts_of_weights_stay(gpu, software, roles, layer, end) -> None:
    """Of each weight of a layer: that in work and its casts, a second where products take one layout; no embedding."""
    # Under ZeRO-1 they stay, beside 2 bytes of gradients, and 12 are divided; under ZeRO-3 no cast stays.
    widths, m = {"compute": "fp8", "parameter_bytes": 6, "gradient_bytes": 2, "optimizer_bytes": 8}, machine(**software)
    m = replace(m, gpu=m.gpu.replaced(**gpu), precision=PRECISION.replaced(**(widths | roles)))
    w = weights_of(m, shape())
    working = m.precision.working_parameter_bytes

    def state(zero: int, layers: int, ends: int) -> float:
        return float(memory.gpu_state_bytes(m, shape(), w, layers=layers, ends=ends, zero_stage=zero, replicas=3))

    assert state(1, 5, 0) == pytest.approx(5 * w.shared * (layer + 2 + 12 / 3))
    assert state(1, 0, 1) == pytest.approx(w.end * (end + 2 + 12 / 3))
    assert state(0, 5, 0) == pytest.approx(5 * w.shared * (layer + 2 + 12))
    assert state(3, 5, 0) == pytest.approx(5 * w.shared * (working + 14) / 3)


@each("replicas", [1, 2, 5])
@each("compute", ["bf16", "fp8"])
def test_stages_of_zero_below_3_need_no_more_bytes_the_higher_they_are(replicas: int, compute: str) -> None:
    """The search leaves out stages that divide less once one has no room: no stage needs more than a lower one."""
    # Stage 3 does not count: it has gathered weights in work.
    roles = {"compute": compute, "parameter_bytes": 6, "optimizer_bytes": 8}
    for model in (DENSE, MIXED):
        m = replace(machine(model), precision=PRECISION.replaced(**roles))
        s = strategy((4, 3) if model is MIXED else (3, 3), e=2 if model is MIXED else 1, d=replicas)
        used = [sum(memory.memory_by_stage(m, replace(s, zero_stage=zero)).values()) for zero in (0, 1, 2)]
        assert np.all(np.diff(used, axis=0) <= 0)
