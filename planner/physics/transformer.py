"""Work and size of a dense Transformer."""

from planner.instance import Model
from planner.physics.num import Num


def attention_parameters(model: Model) -> int:
    """Count the weights of one layer's Q, K, V and output projections (biases and norms left out, as 12·L·h² does)."""
    return 2 * model.hidden * model.head * (model.heads + model.kv)


def ffn_parameters(model: Model) -> int:
    """Count the weights of one layer's FFN: two matrices, or three where it is gated."""
    return (3 if model.gated_ffn else 2) * model.hidden * model.ffn_width


def layer_parameters(model: Model) -> int:
    """Count the weights of one layer: 12·h² for the plain GPT (Narayanan 2021, eq. 2, without biases)."""
    return attention_parameters(model) + ffn_parameters(model)


def embedding_parameters(model: Model) -> int:
    """Count the weights of the token embedding: V·h."""
    return model.vocabulary * model.hidden


def total_parameters(model: Model) -> int:
    """Count all weights: 12·L·h² + V·h for the plain GPT with tied embeddings."""
    return model.layers * layer_parameters(model) + embedding_parameters(model) * (1 if model.tied_embeddings else 2)


def matrix_flop(parameters: Num, tokens: Num) -> Num:
    """FLOP of multiplying `tokens` rows by matrices of `parameters` weights: a multiply and an add each."""
    return 2 * parameters * tokens


def attention_flop(model: Model, sequence: Num, micro_batch: Num, *, causal: bool = True) -> Num:
    """FLOP of one layer's scores and their product with V, forward: 4·b·s²·a·head (Narayanan 2021).

    A causal kernel skips the masked half.
    """
    return (2 if causal else 4) * micro_batch * sequence**2 * model.heads * model.head


def layer_forward_flop(model: Model, sequence: Num, micro_batch: Num, *, causal: bool = True) -> Num:
    """FLOP of one layer, forward: 24·b·s·h² + 4·b·s²·h for the plain GPT (Narayanan 2021, appendix)."""
    return matrix_flop(layer_parameters(model), micro_batch * sequence) + attention_flop(model, sequence, micro_batch, causal=causal)


def head_forward_flop(model: Model, sequence: Num, micro_batch: Num) -> Num:
    """FLOP of the logits, forward: 2·b·s·h·V."""
    return matrix_flop(embedding_parameters(model), micro_batch * sequence)


def model_flop_per_token(model: Model, sequence: Num, *, causal: bool = True) -> Num:
    """FLOP of forward and backward per token, the backward twice the forward, no recompute (what MFU counts)."""
    forward = model.layers * layer_forward_flop(model, sequence, 1, causal=causal) + head_forward_flop(model, sequence, 1)
    return 3 * forward / sequence


def chinchilla_layer_forward_flop(model: Model, sequence: Num) -> Num:
    """FLOP of one layer and sequence, forward, with the softmax counted: 24·s·h² + 4·s²·h + 3·a·s² (Hoffmann 2022, app. F)."""
    return layer_forward_flop(model, sequence, 1, causal=False) + 3 * model.heads * sequence**2


def chinchilla_forward_flop(model: Model, sequence: Num) -> Num:
    """FLOP of the model and one sequence, forward: layers, embedding and logits at 2·s·V·h each (Hoffmann 2022, app. F)."""
    return model.layers * chinchilla_layer_forward_flop(model, sequence) + 2 * head_forward_flop(model, sequence, 1)
