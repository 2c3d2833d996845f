"""Work and size of a dense Transformer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.instance import Model
from planner.physics import transformer as tf

GPT3 = Model(name="GPT-3 175B", layers=96, hidden=12288, heads=96, vocabulary=51200)
LLAMA = Model(name="Llama 3 70B", layers=80, hidden=8192, heads=64, kv_heads=8, ffn=28672, gated_ffn=True, vocabulary=128256, tied_embeddings=False)


def test_gpt3_parameters() -> None:
    """12·L·h² + V·h of GPT-3: 173,946,175,488 in the layers and 629,145,600 in the embedding."""
    assert tf.layer_parameters(GPT3) == 12 * 150_994_944
    assert tf.embedding_parameters(GPT3) == 629_145_600
    assert tf.total_parameters(GPT3) == 174_575_321_088


def test_llama_parameters_with_grouped_queries_and_a_gate() -> None:
    """Llama 3 70B has 70,553,706,496 weights, of which the 161 norms of 8,192 are left out here."""
    assert tf.attention_parameters(LLAMA) == 150_994_944
    assert tf.ffn_parameters(LLAMA) == 704_643_072
    assert tf.total_parameters(LLAMA) == 70_553_706_496 - 161 * 8192


def test_untied_head_adds_one_embedding() -> None:
    """A head with its own weights adds V·h."""
    untied = GPT3.model_copy(update={"tied_embeddings": False})
    assert tf.total_parameters(untied) - tf.total_parameters(GPT3) == 629_145_600


def test_layer_flop() -> None:
    """24·b·s·h² + 4·b·s²·h at s = 2048: 7,421,703,487,488 and 206,158,430,208."""
    assert tf.layer_forward_flop(GPT3, 2048, 1, causal=False) == 7_421_703_487_488 + 206_158_430_208
    assert tf.layer_forward_flop(GPT3, 2048, 3, causal=False) == 3 * 7_627_861_917_696


def test_causal_mask_halves_attention_only() -> None:
    """The causal kernel halves 4·b·s²·h and leaves the matrices."""
    assert tf.attention_flop(GPT3, 2048, 1) == 103_079_215_104
    assert tf.layer_forward_flop(GPT3, 2048, 1) == 7_421_703_487_488 + 103_079_215_104


def test_head_size_sets_attention_and_not_hidden() -> None:
    """With heads narrower than h/a the scores take 4·b·s²·a·head."""
    narrow = GPT3.model_copy(update={"head_size": 64})
    assert tf.attention_flop(narrow, 2048, 1, causal=False) == 4 * 2048**2 * 96 * 64


def test_grouped_queries_leave_the_scores() -> None:
    """Fewer KV heads shrink K and V, not the FLOP of the scores."""
    grouped = GPT3.model_copy(update={"kv_heads": 8})
    assert tf.attention_flop(grouped, 2048, 1) == tf.attention_flop(GPT3, 2048, 1)
    assert tf.attention_parameters(grouped) == 2 * 12288**2 + 2 * 12288 * 128 * 8


def test_head_flop() -> None:
    """The logits take 2·b·s·h·V."""
    assert tf.head_forward_flop(GPT3, 2048, 2) == 2 * 2 * 2048 * 629_145_600


def test_model_flop_per_token_is_narayanans() -> None:
    """Without recompute the step takes 72·B·s·L·h²·(1 + s/6h + V/12Lh) (Narayanan 2021, its 96 and V/16 less the recompute)."""
    s, h, layers, v = 2048, 12288, 96, 51200
    assert tf.model_flop_per_token(GPT3, s, causal=False) == pytest.approx(72 * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h)))


def test_chinchilla_flop_adds_softmax_and_embedding() -> None:
    """Hoffmann 2022 counts 3·a·s² a layer for the softmax, and the embedding like the logits."""
    extra = tf.chinchilla_layer_forward_flop(GPT3, 2048) - tf.layer_forward_flop(GPT3, 2048, 1, causal=False)
    assert extra == 3 * 96 * 2048**2
    assert tf.chinchilla_forward_flop(GPT3, 2048) - 96 * tf.chinchilla_layer_forward_flop(GPT3, 2048) == 4 * 2048 * 629_145_600


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 4096), st.integers(1, 8))
def test_plain_gpt_formulas_hold_for_every_size(heads: int, head: int, s: int, b: int) -> None:
    """A plain GPT of any size has 12·h² weights a layer and takes 24·b·s·h² + 4·b·s²·h."""
    h = heads * head
    m = Model(name="any", layers=1, hidden=h, heads=heads, vocabulary=7)
    assert tf.layer_parameters(m) == 12 * h**2
    assert tf.layer_forward_flop(m, s, b, causal=False) == 24 * b * s * h**2 + 4 * b * s**2 * h
