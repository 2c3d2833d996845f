"""Work, size and kinds of layers of a Transformer, dense or with experts.

Weights are those of the matrices: biases, norms and the like are left out, as 12·L·h² does.
"""

from dataclasses import dataclass

import numpy as np

from planner.instance.workload import Model
from planner.physics import Num


def head_widths(model: Model) -> tuple[int, int]:
    """Return the widths of a Transformer head's query and key, nope and rope under latent attention, and its value."""
    latent = model.latent_attention
    return (model.head, model.head) if latent is None else (latent.head_nope + latent.head_rope, latent.head_value)


def attention_parameters(model: Model) -> int:
    """Count the weights of a Transformer layer's attention, Q, K, V, output or latent (arXiv 2412.19437, eqs. 1-11)."""
    # Latent attention: hidden to the ranks of the queries and of the keys and values and
    # to the shared rotary key, the ranks to the heads, and the values of the heads to hidden.
    latent = model.latent_attention
    if latent is None:
        return 2 * model.hidden * model.head * (model.heads + model.kv)
    down = model.hidden * ((latent.q_rank or 0) + latent.kv_rank + latent.head_rope)
    queries = (latent.q_rank or model.hidden) * model.heads * (latent.head_nope + latent.head_rope)
    keys_values = latent.kv_rank * model.heads * (latent.head_nope + latent.head_value)
    return down + queries + keys_values + model.heads * latent.head_value * model.hidden


def ffn_parameters(model: Model, width: int) -> int:
    """Count the weights of a Transformer's FFN of some width: a dense layer's, or an expert's."""
    return (3 if model.gated_ffn else 2) * model.hidden * width


def dense_layer_parameters(model: Model) -> int:
    """Count the weights of a Transformer layer with a dense FFN: 12·h² for GPT (Narayanan 2021, eq. 2, no biases)."""
    return attention_parameters(model) + ffn_parameters(model, model.ffn_width)


def layer_parameters(model: Model, *, active: bool = False) -> int:
    """Count the weights of a Transformer layer of the prevailing kind, or the `active` ones that one token meets."""
    # A dense layer, or attention, router, shared and routed experts (arXiv 2412.19437, eqs. 12-15).
    if model.experts is None:
        return dense_layer_parameters(model)
    shared = attention_parameters(model) + ffn_parameters(model, model.experts.shared_ffn)
    routed = model.experts.per_token if active else model.experts.count
    return shared + model.hidden * model.experts.count + routed * ffn_parameters(model, model.experts.ffn)


def embedding_parameters(model: Model) -> int:
    """Count the weights of a Transformer's token embedding: V·h."""
    return model.vocabulary * model.hidden


def _over_layers(model: Model, *, active: bool) -> int:
    dense = model.layers - model.moe_layers
    return dense * dense_layer_parameters(model) + model.moe_layers * layer_parameters(model, active=active)


def total_parameters(model: Model) -> int:
    """Count all weights of a Transformer, over its kinds of layers: 12·L·h² + V·h for GPT with tied embeddings."""
    return _over_layers(model, active=False) + (1 if model.tied_embeddings else 2) * embedding_parameters(model)


def active_parameters(model: Model, *, embedding: bool = False) -> int:
    """Count the weights of a Transformer that one token meets: experts of each layer, head, and perhaps `embedding`.

    The look-up of the embedding is no product. So count OpenAI (arXiv 2508.10925, table 1: 5.13B for gpt-oss-120b)
    and DeepSeek (README_WEIGHTS.md: 36.6B with 0.9B for the head). The figures of Mixtral (12.9B), Qwen3 (3.3B, 22B)
    and Kimi K2 (32.6B) come out with the embedding counted too; where it is tied to the head, it counts once.
    """
    ends = 2 if embedding and not model.tied_embeddings else 1
    return _over_layers(model, active=True) + ends * embedding_parameters(model)


def attention_score_flop(model: Model, sequence: Num, micro_batch: Num, *, window: int | None = None) -> Num:
    """Compute the forward FLOP of a Transformer layer's scores and their product with V, over a `window` (None: all).

    Half of 4·b·s²·a·head (Narayanan 2021), as a causal kernel skips the masked half; under latent attention scores are
    as wide as a head's query, nope and rope, and the product as its value (arXiv 2412.19437, eqs. 9-10). Of s²/2 pairs
    of query and key a window of w tokens leaves the sum of min(i + 1, w) over the positions i, never more than s²/2.
    """
    per_pair = micro_batch * model.heads * sum(head_widths(model))
    if window is None:
        return per_pair * sequence**2
    reach = np.minimum(float(window), sequence)
    return 2 * per_pair * np.minimum(reach * sequence - reach * (reach - 1) / 2, sequence**2 / 2)


def layers_forward_flop(model: Model, sequence: Num, micro_batch: Num) -> Num:
    """Compute the forward FLOP of all layers of a Transformer by kinds of FFN and attention (Narayanan 2021, app.)."""
    # L·(24·b·s·h² + 2·b·s²·h) for the plain GPT; tokens use their top-k experts only.
    products = 2 * _over_layers(model, active=True) * (micro_batch * sequence)
    full = attention_score_flop(model, sequence, micro_batch)
    windowed = attention_score_flop(model, sequence, micro_batch, window=model.window)
    return products + (model.layers - model.window_layers) * full + model.window_layers * windowed


def model_flop_per_token(model: Model, sequence: Num) -> Num:
    """Compute a Transformer's FLOP per token that MFU counts: forward, with 2·s·h·V of logits, and twice backward."""
    return 3 * (layers_forward_flop(model, sequence, 1) + 2 * embedding_parameters(model) * sequence) / sequence


def attention_inputs(model: Model) -> int:
    """Count the elements per token of a Transformer layer's queries, keys and values, over all TP ranks."""
    key, value = head_widths(model)
    return model.heads * key + model.kv * (key + value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """A Transformer's layers of one kind: how many, whether their FFN is of experts, and the attention window."""

    layers: int
    routed: bool
    window: int | None


def layer_kinds(model: Model) -> tuple[LayerKind, ...]:
    """Return the kinds of layers of a Transformer, by FFN and attention; windows go to the routed layers first."""
    both = min(model.moe_layers, model.window_layers)
    counts = {
        (True, True): both,
        (True, False): model.moe_layers - both,
        (False, True): model.window_layers - both,
        (False, False): model.layers - model.moe_layers - model.window_layers + both,
    }
    return tuple(LayerKind(layers=n, routed=r, window=model.window if w else None) for (r, w), n in counts.items() if n)


def front_layers(model: Model) -> int:
    """Count the dense layers at the front of a model with experts, before the kind that all others have."""
    return 0 if model.experts is None else model.experts.dense_layers


def training_flop(parameters: Num, tokens: Num) -> Num:
    """Compute the FLOP of training a Transformer without attention as 6·N·D (Kaplan 2020): 2 forward, 4 backward."""
    return 6 * parameters * tokens
