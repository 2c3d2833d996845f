"""Work and size of a Transformer with any attention and experts; compute-optimal size, data and batch."""

import math

import numpy as np
import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from paper_inputs import chinchilla_forward_flop, chinchilla_layer_forward_flop
from pydantic import ValidationError

from planner.instance.catalogue_entries import catalogue
from planner.instance.scaling_law import DepthLaw, LossLaw, PointsLaw, PowerOf
from planner.instance.workload import Experts, LatentAttention, Model
from planner.physics.training import scaling_laws
from planner.physics.training import transformer as tf

GPT3 = Model(name="GPT-3 175B", layers=96, hidden=12288, heads=96, vocabulary=51200)
FEW = Experts(count=4, per_token=2, ffn=3, shared_ffn=5, dense_layers=2)
MIXED = Model(name="2 dense, 3 routed", layers=5, hidden=6, heads=2, ffn=10, vocabulary=11, experts=FEW)
RANKS = LatentAttention(q_rank=5, kv_rank=4, head_nope=3, head_rope=2, head_value=6)
LATENT = Model(name="latent", layers=1, hidden=10, heads=3, vocabulary=7, latent_attention=RANKS)
WINDOWED = Model(name="windowed", layers=3, hidden=8, heads=2, window=3, window_layers=2, vocabulary=7)


def known(name: str) -> Model:
    return Model.model_validate(catalogue("models")[name])


def test_chinchilla_flop_adds_softmax_and_embedding() -> None:
    """Hoffmann 2022 counts 3·a·s² a layer for the softmax, the masked half, and the embedding like the logits."""
    extra = 96 * chinchilla_layer_forward_flop(GPT3, 2048) - tf.layers_forward_flop(GPT3, 2048, 1)
    assert extra == 96 * (3 * 96 * 2048**2 + 2 * 2048**2 * 12288)
    whole, layers = chinchilla_forward_flop(GPT3, 2048), 96 * chinchilla_layer_forward_flop(GPT3, 2048)
    assert whole - layers == 4 * 2048 * 629_145_600


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 4096), st.integers(1, 8))
def test_plain_gpt_formulas_hold_for_every_size(heads: int, head: int, s: int, b: int) -> None:
    """A layer has 12·h² weights, and takes 24·b·s·h² FLOP and half of 4·b·s²·h with a causal mask, thrice in training.

    The head's size sets that of attention, and not the hidden width.
    """
    h = heads * head
    m = Model(name="any", layers=1, hidden=h, heads=heads, vocabulary=7)
    assert tf.layer_parameters(m) == 12 * h**2
    assert tf.layers_forward_flop(m, s, b) == 24 * b * s * h**2 + 2 * b * s**2 * h
    assert tf.model_flop_per_token(m, s) == pytest.approx(3 * (24 * h**2 + 2 * s * h + 2 * h * 7))
    assert tf.attention_score_flop(m.replaced(head_size=64), s, b) == 2 * b * s**2 * heads * 64


def test_experts_and_latent_attention_by_hand() -> None:
    """Hidden 6, 4 experts of 3 and shared ones of 5: 2·6·3 each, 2·6·5, a router of 6·4, beside attention of 4·6²."""
    assert tf.attention_parameters(MIXED) == 144
    assert tf.ffn_parameters(MIXED, MIXED.experts.ffn) == 36
    assert tf.layer_parameters(MIXED) == 144 + 24 + 60 + 4 * 36
    assert tf.layer_parameters(MIXED, active=True) == 144 + 24 + 60 + 2 * 36
    assert tf.dense_layer_parameters(MIXED) == 144 + 2 * 6 * 10
    assert tf.total_parameters(MIXED) == 2 * 264 + 3 * 372 + 66
    assert tf.active_parameters(MIXED) == 2 * 264 + 3 * 300 + 66
    # Products take two FLOP a weight that the token meets; scores 2·s²·a·head a causal layer: 2·7²·2·3 here.
    assert tf.layers_forward_flop(MIXED, 7, 1) == 3 * (2 * 7 * 300 + 588) + 2 * (2 * 7 * 264 + 588)
    # Latent attention: down 10·(5 + 4 + 2), queries up 5·3·(3 + 2), keys and values up 4·3·(3 + 6), out 3·6·10.
    assert tf.attention_parameters(LATENT) == 110 + 75 + 108 + 180
    assert tf.attention_score_flop(LATENT, 8, 2) == 2 * 8**2 * 3 * ((3 + 2) + 6)
    assert tf.model_flop_per_token(MIXED, 7) == 3 * (3 * 4788 + 2 * 4284 + 2 * 7 * 66) / 7


@given(st.integers(1, 300), st.integers(1, 400))
def test_window_counts_what_each_position_sees(s: int, w: int) -> None:
    """Each pair takes 4·a·head FLOP; of three layers, 12·8² weights each, the last has no window."""
    flop = tf.attention_score_flop(WINDOWED, s, 1, window=w)
    assert flop == 32 * min(sum(min(i + 1, w) for i in range(s)), s * s / 2)
    assert w < s or flop == tf.attention_score_flop(WINDOWED, s, 1) == 32 * s * s / 2
    assert tf.attention_score_flop(WINDOWED, np.array([s, 10.0]), 1, window=w)[0] == flop
    windowed, whole = WINDOWED.replaced(window=w), tf.attention_score_flop(WINDOWED, s, 1)
    assert tf.layers_forward_flop(windowed, s, 1) == 3 * 2 * s * 768 + 2 * flop + whole


LLAMAS = [
    ("llama-2-7b", 6_738_415_616), ("llama-2-13b", 13_015_864_320), ("llama-2-70b", 68_976_648_192),
    ("llama-3.1-8b", 8_030_261_248), ("llama-3.1-70b", 70_553_706_496), ("llama-3.1-405b", 405_853_388_800),
]  # fmt: skip
ACTIVE = [  # with the head and not the embedding, or with both
    ("gpt-oss-120b", 5.13e9, False),  # arXiv 2508.10925, table 1
    ("deepseek-v3", 36.6e9, False),  # README_WEIGHTS.md of the checkpoint: 0.9 B for the head (37 B in the abstract)
    ("kimi-k2", 32e9, False),  # README of MoonshotAI/Kimi-K2
    ("mixtral-8x7b", 12.9e9, True),  # Mistral's announcement; the paper says 13 B
    ("qwen3-235b-a22b", 22e9, True),  # model card
    ("qwen3-30b-a3b", 3.35e9, True),  # the model card says 3.3 B, which is cut and not rounded
    ("kimi-k2", 32.6e9, True),  # arXiv 2507.20534, table 2
]


def test_weights_are_the_publishers_within_a_hundredth() -> None:
    """Llama's checkpoints hold just the weights counted here and the norms, two a layer and one at the end."""
    for name, total in LLAMAS:
        model = known(name)
        assert tf.total_parameters(model) == total - (2 * model.layers + 1) * model.hidden
    for name, active, embedding in ACTIVE:
        assert tf.active_parameters(known(name), embedding=embedding) == pytest.approx(active, rel=0.01), name


ANY = {"name": "any", "layers": 5, "hidden": 6, "heads": 2, "vocabulary": 11}


@each(("change", "complaint"), [
    ({"experts": {"count": 4, "per_token": 5, "ffn": 3}}, "per_token must be at most count"),
    ({"experts": {"count": 4, "per_token": 2, "ffn": 3, "dense_layers": 5}}, "dense_layers must be less than layers"),
    ({"window": 3, "window_layers": 6}, "window_layers must be at most layers"),
    ({"window": 3}, "give window and window_layers, or neither"),
    ({"window_layers": 3}, "give window and window_layers, or neither"),
    ({"latent_attention": LATENT.latent_attention, "kv_heads": 1}, "remove head_size and kv_heads"),
    ({"latent_attention": LATENT.latent_attention, "head_size": 3}, "remove head_size and kv_heads"),
])  # fmt: skip
def test_impossible_models_are_refused(change, complaint) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Model.model_validate(ANY | change)
    edges = [{"window": 3, "window_layers": 5}, {"window": None, "window_layers": 0}]
    edges += [{"experts": {"count": 4, "per_token": 4, "ffn": 3, "dense_layers": 4}}]
    edges += [{"latent_attention": LATENT.latent_attention, "heads": 4}]
    assert all(tf.total_parameters(Model.model_validate(ANY | taken)) > 0 for taken in edges)


@given(st.floats(-2, 2), st.floats(-5, 5), st.lists(st.integers(-10, 30), min_size=2, max_size=12, unique=True))
def test_fit_returns_an_exact_law(slope: float, intercept: float, exponents: list[int]) -> None:
    """Least squares split an error."""
    found = [
        scaling_laws.fitted_power_law([1.0, 1.0, 10.0, 10.0], [1.0, 100.0, 10.0, 1000.0], at) for at in (1.0, 10.0)
    ]
    assert found == pytest.approx([10.0, 100.0])
    points = [10.0**e for e in exponents], [10.0 ** (slope * e + intercept) for e in exponents]
    first, second = (math.log10(scaling_laws.fitted_power_law(*points, at)) for at in (1.0, 10.0))
    assert (first, second - first) == pytest.approx((intercept, slope), abs=1e-7)


@each(("flop", "parameters", "problem"), [
    ([1.0], [1.0], "at least 2 items"), ([2.0, 2.0], [1.0, 3.0], r"two different values or more \(all are 2\)"),
    ([1.0, 2.0], [1.0, 2.0, 3.0], "of one length"), ([0.0, 1.0], [1.0, 1.0], "greater than 0"),
    ([1.0, 2.0], [1.0, -1.0], "greater than 0"),
])  # fmt: skip
def test_refuses_points_that_have_no_line(flop: list[float], parameters: list[float], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        PointsLaw.model_validate({"flop": flop, "parameters": parameters, "tokens": parameters})


@each(("name", "flop"), [("chinchilla-1", 3.85e24), ("chinchilla-2", 4.54e24), ("chinchilla-3", 12.6e24)])
def test_laws_pass_near_their_published_points(name: str, flop: float) -> None:
    """Each approach gives 175B at its own compute of table A3, to what a line through nine rounded points allows.

    Each row has C = 6·N·D within the rounding of the printed table.
    """
    law = PointsLaw.model_validate(catalogue("scaling_laws")[name])
    assert len(law.flop) == 9 and law.source.strip()
    assert law.flop == pytest.approx([6 * n * d for n, d in zip(law.parameters, law.tokens, strict=True)], rel=0.05)
    assert scaling_laws.best_parameters(law, flop) == pytest.approx(175e9, rel=0.04)


def test_the_optimum_of_a_loss_law_is_stationary() -> None:
    """Of 70B on 1.4T tokens the loss is 1.69 + 406.4 / 70e9^0.34 + 410.7 / 1.4e12^0.28 = 1.937 by hand."""
    first, second = (LossLaw.model_validate(catalogue("scaling_laws")[f"parametric-{x}"]) for x in (2022, 2024))
    assert scaling_laws.loss(first, 70e9, 1.4e12) == pytest.approx(1.9366, abs=1e-4)
    for law in (first, second):
        near = [share * scaling_laws.best_parameters(law, 1e25) for share in (0.99, 1.0, 1.01)]
        losses = [scaling_laws.loss(law, n, scaling_laws.tokens_for(n, 1e25)) for n in near]
        assert min(losses) == losses[1]


def test_batch_and_depth_laws() -> None:
    """An aspect of 128 gives GPT-3's 96 layers of 12,288; the logarithmic law 79."""
    given = {"tokens": 1e12, "flop": 1e24, "parameters": 1e11}
    assert scaling_laws.power(PowerOf(of="fixed", coefficient=4e6), **given) == 4e6
    for name, batch in (("zhang-2024", 22.91 * 1e12**0.47), ("deepseek-2024", 0.292 * 1e24**0.3271)):
        law = PowerOf.model_validate(catalogue("batch_laws")[name])
        assert scaling_laws.power(law, **given) == pytest.approx(batch)
    assert scaling_laws.layers_of(DepthLaw(aspect=128.0), 12_288) == 96
    log = DepthLaw.model_validate(catalogue("depth_laws")["levine-2020"])
    assert scaling_laws.layers_of(log, 12_288) == pytest.approx((math.log(12_288) - 5.039) / 0.0555)
