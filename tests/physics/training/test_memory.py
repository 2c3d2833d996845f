"""Bytes that training keeps on a GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_toys import precision_of, shape

from planner.instance.workload import LatentAttention, Model
from planner.physics.training import memory, schedule
from planner.physics.training.transformer import layer_parameters

GIB = 2**30
S = 2048
MIXED = precision_of()


def gpt(layers: int, hidden: int, heads: int) -> Model:
    return Model(name="gpt", layers=layers, hidden=hidden, heads=heads, vocabulary=51200)


GPT22 = gpt(48, 6144, 64)
# Figure 1 of Korthikanti 2022 (arXiv 2205.05198), first stage at t = 8, as transcribed in calculon, in GiB:
# model, micro-batch, p, v, m, state, activations without recompute, and under selective recompute with SP.
FIGURE_1 = [
    pytest.param(GPT22, 4, 1, 1, 1, 45.5625, 59.25, 9.5625, id="22B"),
    pytest.param(gpt(96, 12288, 96), 1, 8, 3, 64, 45.5625, 66.84375, 12.3515625, id="175B"),
    pytest.param(gpt(105, 20480, 128), 1, 35, 3, 280, 31.640625, 114.0234375, 23.076171875, id="530B"),
    pytest.param(gpt(128, 25600, 160), 1, 64, 1, 512, 32.958984375, 131.25, 26.5625, id="1T"),
]


def per_layer(model: Model, t: int, recompute: memory.Recompute, sp: bool, b: int = 1, **sizes: float) -> float:
    """Bytes of a layer at two bytes an element and one a mask, unless said otherwise."""
    return memory.activation_bytes_per_layer(
        model,
        S,
        shape(t, b=b, recompute=recompute, sp=sp),
        memory.ElementBytes(**{"element": 2.0, **sizes}),
    )


SBH = S * 6144  # of GPT 22B at b = 1
AS_H = 64 * S / 6144


@pytest.mark.parametrize(
    ("t", "recompute", "sp", "factor"),
    [
        (1, "none", False, 34 + 5 * AS_H),
        (8, "none", False, 10 + 24 / 8 + 5 * AS_H / 8),
        (8, "none", True, (34 + 5 * AS_H) / 8),
        (1, "none", True, 34 + 5 * AS_H),
        (8, "selective", False, 10 + 24 / 8),
        (8, "selective", True, 34 / 8),
        (8, "full", False, 2),
        (8, "full", True, 2 / 8),
    ],
)
def test_table_2_of_korthikanti(t: int, recompute: memory.Recompute, sp: bool, factor: float) -> None:
    """Each row of Korthikanti 2022's table 2, in s·b·h bytes; a sharded checkpoint is its fraction."""
    assert per_layer(GPT22, t, recompute, sp) == pytest.approx(SBH * factor)
    assert per_layer(GPT22, t, recompute, sp, b=4) == pytest.approx(4 * SBH * factor)


def test_bytes_of_elements_and_masks() -> None:
    """A layer stores s·b·h·(16·e + 2·m + (2·e + m)·a·s/h), at one byte an element with a mask of a half or a whole."""
    assert per_layer(GPT22, 1, "none", False, element=1.0, mask=0.5) == pytest.approx(SBH * (17 + 2.5 * AS_H))
    assert per_layer(GPT22, 1, "none", False, element=1.0) == pytest.approx(SBH * (18 + 3 * AS_H))


def test_elements_of_grouped_queries_and_a_gate() -> None:
    """Llama 3 70B keeps 4·8192 elements whole, and divides 2·128·(64 + 8) of attention and 3·28672 of the FFN."""
    m = Model(name="l", layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, gated_ffn=True, vocabulary=128256)
    assert memory.activation_elements(m) == (32_768, 18_432 + 86_016)


@pytest.mark.parametrize(("model", "b", "p", "v", "m", "state", "none", "selective"), FIGURE_1)
def test_figure_1_of_korthikanti(
    model: Model, b: int, p: int, v: int, m: int, state: float, none: float, selective: float
) -> None:
    layers = model.layers // p
    flying = schedule.chunks_in_flight("1f1b", 0, p, v, m) * layers / v
    assert flying * per_layer(model, 8, "none", False, b) / GIB == pytest.approx(none, rel=1e-9)
    assert flying * per_layer(model, 8, "selective", True, b) / GIB == pytest.approx(selective, rel=1e-9)
    size = memory.state_bytes(layers * layer_parameters(model) / 8, MIXED, zero_stage=0, shards=1)
    assert size / GIB == pytest.approx(state, rel=1e-9)


@pytest.mark.parametrize(("zero", "bytes_per_parameter"), [(0, 18), (1, 2 + 4 + 3), (2, 2 + 1 + 3), (3, 0.5 + 1 + 3)])
def test_state_by_zero_stage(zero: int, bytes_per_parameter: float) -> None:
    """Over four replicas ZeRO divides optimiser, then gradients, then weights."""
    assert memory.state_bytes(1e9, MIXED, zero_stage=zero, shards=4) == pytest.approx(1e9 * bytes_per_parameter)


@pytest.mark.parametrize(
    ("weights", "working", "gradients", "stays", "divided"),
    [(6, 2, 4, 6, 12), (6, 2, 2, 4, 12), (4, 4, 4, 8, 8)],
    ids=["bf16 weights, fp32 gradients", "16 bits both", "fp32"],
)
def test_stage_1_divides_the_master_copy_too(
    weights: float, working: float, gradients: float, stays: float, divided: float
) -> None:
    """As Megatron-Core's table of its distributed optimiser has it: bytes that stay and bytes over d replicas."""
    p = MIXED.model_copy(
        update={
            "parameter_bytes": weights,
            "working_parameter_bytes": working,
            "gradient_bytes": gradients,
            "optimizer_bytes": 8,
        }
    )
    for shards in (1, 2, 8, 128):
        assert memory.state_bytes(1.0, p, zero_stage=1, shards=shards) == pytest.approx(stays + divided / shards)


@given(st.integers(0, 3), st.integers(1, 1000))
def test_state_never_grows_with_shards_or_stage(zero: int, shards: int) -> None:
    """More shards or a higher stage never take more memory; one shard takes what no ZeRO takes."""
    size = memory.state_bytes(1.0, MIXED, zero_stage=zero, shards=shards)
    assert (
        memory.state_bytes(1.0, MIXED, zero_stage=zero, shards=shards + 1)
        <= size
        <= memory.state_bytes(1.0, MIXED, zero_stage=0, shards=1)
    )
    assert memory.state_bytes(1.0, MIXED, zero_stage=zero, shards=1) == 18


@pytest.mark.parametrize(
    ("tied", "stage", "p", "copies"),
    [(True, 0, 1, 1), (False, 0, 1, 2), (True, 0, 4, 1), (True, 3, 4, 1), (False, 3, 4, 1), (True, 1, 4, 0)],
)
def test_embedding_and_head_by_stage(tied: bool, stage: int, p: int, copies: int) -> None:
    """The first stage holds the embedding and the last the head; alone, tied weights are stored once."""
    m = GPT22.model_copy(update={"tied_embeddings": tied})
    assert memory.stage_extra_parameters(m, stage, p) == copies * 51200 * 6144


def test_usable_memory() -> None:
    """The fraction is kept first, then the constant."""
    assert memory.usable_bytes(80e9, 0.05, 1e9) == pytest.approx(75e9)


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from(memory.RECOMPUTE_MODES), st.booleans())
def test_activations_fall_with_tp_sp_and_recompute(t: int, recompute: memory.Recompute, sp: bool) -> None:
    size = per_layer(GPT22, t, recompute, sp)
    assert per_layer(GPT22, 2 * t, recompute, sp) <= size
    assert per_layer(GPT22, t, recompute, True) <= size
    assert per_layer(GPT22, t, "full", sp) <= per_layer(GPT22, t, "selective", sp) < per_layer(GPT22, t, "none", sp)


def held_by_a_rank(model: Model, s: int, c: int, recompute: memory.Recompute) -> float:
    """Count one layer's tensors on a rank of CP `c`, tensor by tensor: it has s/c tokens, and each sees all s keys."""
    rows, h = s // c, model.hidden
    if recompute == "full":
        return float(2 * rows * h)
    sizes = {"norms": 2 * h, "qkv": h, "q, k, v": 3 * h, "output": h, "ffn in": h, "inner": 2 * 4 * h}
    masks = 2 * h
    scores = 0 if recompute == "selective" else sum(model.heads * s * (2 + 2 + 1) for _ in range(rows))
    return float(rows * (2 * sum(sizes.values()) + masks) + scores)


@pytest.mark.parametrize("c", [1, 2, 4, 16])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_a_context_rank_keeps_its_own_tokens(recompute: memory.Recompute, c: int) -> None:
    """Activations of a CP rank are those of its own tokens; only the scores know the whole sequence."""
    model = gpt(2, 64, 4)
    one = shape(b=3, recompute=recompute, c=c)
    found = memory.activation_bytes_per_layer(model, 128, one, memory.ElementBytes(2))
    assert found == 3 * held_by_a_rank(model, 128, c, recompute)


def test_a_context_rank_has_the_logits_of_its_own_tokens() -> None:
    """A rank of CP 8 has the logits of an eighth of the tokens, in FP32, over its part of the vocabulary."""
    assert memory.logits_bytes(GPT22, 4096, 2, 4, context_parallel=8) == 4 * (2 * 4096 // 8) * (51200 // 4)


def test_tensors_kept_of_latent_attention() -> None:
    """Both ranks and the keys' positions are kept by all beside 4·h; of 3 heads Q and K of 3 + 2, V and output of 6."""
    latent = LatentAttention(q_rank=5, kv_rank=4, head_nope=3, head_rope=2, head_value=6)
    model = Model(name="latent", layers=1, hidden=10, heads=3, vocabulary=7, latent_attention=latent)
    inner = 2 * 4 * 10
    assert memory.activation_elements(model) == (4 * 10 + 5 + 4 + 2, 3 * (5 + 5 + 6 + 6) + inner)


def test_inputs_of_products_are_kept_in_their_type() -> None:
    """A Llama layer in FP8, tensor by tensor: of 8 elements a token, heads of 4, one of them of keys, FFN of 16."""
    m = Model(name="l", layers=1, hidden=8, heads=2, kv_heads=1, head_size=4, ffn=16, gated_ffn=True, vocabulary=4)
    wide = {"input of the first norm": 8, "input of the second norm": 8, "Q": 8, "K": 4, "V": 4, "attention": 8}
    wide |= {"gate": 16, "up": 16}
    narrow = {"input of QKV": 8, "input of the projection": 8, "input of the FFN": 8, "input of its second product": 16}
    one = shape(recompute="selective")
    found = memory.activation_bytes_per_layer(m, 1, one, memory.ElementBytes(2, mask=0, product=1))
    assert found == 2 * sum(wide.values()) + sum(narrow.values())
