"""Bytes that training keeps on a GPU: activations, state and logits, formula by formula."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from planner.instance.workload import Model, Precision, RecomputeModule
from planner.physics.num import Num
from planner.physics.training.operations import LayerShape, Recompute
from planner.physics.training.transformer import attention_inputs, embedding_parameters

RECOMPUTE_MODES: tuple[Recompute, ...] = ("none", "selective", "full")


def activation_elements(model: Model, *, routed: bool = False, imbalance: float = 1.0) -> tuple[float, float]:
    """Return the stored elements of one layer per token: (kept by every TP rank, divided over TP ranks).

    Kept by all: the inputs of both norms, of QKV and of the FFN, 4·h (and the ranks of latent attention). Divided: Q,
    K, V, the attention's output, and the FFN's inner tensors (before and after the activation, the gate). For the plain
    GPT 4·h and 12·h, which at two bytes and with two masks of h bytes give Korthikanti 2022, eq. 2: s·b·h·(10 + 24/t).
    Routed experts keep, for each of a token's k experts, its input, its output and the expert's inner tensors.
    """
    inner = 3 if model.gated_ffn else 2
    latent, experts = model.latent_attention, model.experts
    if latent is None:
        common, divided = 4 * model.hidden, 2 * model.head * (model.heads + model.kv)
    else:
        common = 4 * model.hidden + (latent.q_rank or 0) + latent.kv_rank + latent.head_rope
        divided = 2 * model.heads * (latent.head_nope + latent.head_rope + latent.head_value)
    if not routed or experts is None:
        return common, divided + inner * model.ffn_width
    own = imbalance * experts.per_token  # experts of a token on the busiest rank
    return common, divided + inner * experts.shared_ffn + own * (2 * model.hidden + inner * experts.ffn)


def product_inputs(model: Model, *, routed: bool = False, imbalance: float = 1.0) -> tuple[float, float]:
    """Count a layer's stored elements per token that products alone read, split as those of `activation_elements`.

    They are kept in the products' type: the inputs of QKV and of the FFN (and the ranks of latent attention), and the
    FFN after its activation; for routed experts the input of each of a token's k experts, and its tensor after the
    activation. Tensors that norms, attention and activations read again stay as wide as activations are.
    """
    latent, experts = model.latent_attention, model.experts
    common = 2 * model.hidden + (0 if latent is None else (latent.q_rank or 0) + latent.kv_rank)
    if not routed or experts is None:
        return common, model.ffn_width
    return common, experts.shared_ffn + imbalance * experts.per_token * (model.hidden + experts.ffn)


@dataclass(frozen=True, slots=True)
class Discarded:
    """Stored elements of a layer per token that are not kept, as they run again: by where and in which type they are.

    Inputs of products that every TP rank keeps; divided over TP ranks, Q, K and V, other inputs of products, and the
    rest.
    """

    common_inputs: float = 0.0
    attention: float = 0.0
    inputs: float = 0.0
    others: float = 0.0

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return self.common_inputs + self.attention + self.inputs + self.others > 0


def discarded_elements(
    model: Model, modules: Collection[RecomputeModule], *, routed: bool, imbalance: float = 1.0
) -> Discarded:
    """Count the elements of `activation_elements` that the modules of selective recompute discard, without scores.

    Unfused attention scores are counted elsewhere.
    Modules are those of Megatron-Core (transformer_config.py, recompute_modules): those that discard their output
    (layernorm, moe_act, mla_up_proj) and those that keep their input alone (mlp, moe, shared_experts). Only a norm that
    is a module of its own is run again, in front of latent attention and of experts; Transformer Engine fuses the
    others with the product behind them (gpt_layer_specs.py). A dense FFN, whose input is not normed yet, has its norm
    run again with it.
    """
    h, experts, latent = model.hidden, model.experts, model.latent_attention
    before = 2 if model.gated_ffn else 1  # tensors of an FFN before its output product, without the input of that
    common = h * ("layernorm" in modules and latent is not None)
    attention = attention_inputs(model) * ("mla_up_proj" in modules and latent is not None)
    if not routed or experts is None:
        width = model.ffn_width * ("mlp" in modules)
        return Discarded(common + h * ("mlp" in modules), attention, width, before * width)
    whole, own = "moe" in modules, imbalance * experts.per_token
    shared = experts.shared_ffn * (whole or "shared_experts" in modules)
    inputs = shared + own * (experts.ffn * (whole or "moe_act" in modules) + h * whole)
    others = before * shared + own * (before * experts.ffn + h) * whole
    return Discarded(common + h * ("layernorm" in modules), attention, inputs, others)


def gradient_elements(model: Model, *, routed: bool = False) -> tuple[int, int]:
    """Count the elements per token of the gradients in work as a layer's backward pass begins, in the same two parts.

    They are those of the layer's output, and of the FFN before its activation; for routed experts, for each of a
    token's k, those of its output, of the input of the combination, and of the expert's inner tensors.
    """
    wide = 2 if model.gated_ffn else 1
    experts = model.experts
    if not routed or experts is None:
        return model.hidden, wide * model.ffn_width
    return model.hidden, experts.per_token * (2 * model.hidden + wide * experts.ffn)


@dataclass(frozen=True, slots=True)
class ElementBytes:
    """The bytes of an element that a layer stores: of most tensors, of the masks of dropout, and of narrower tensors.

    The inputs of products may be narrower, and Q, K and V (`attention`); None: as wide as others.
    """

    element: float
    mask: float = 1.0
    product: float | None = None
    attention: float | None = None


def activation_bytes_per_layer(
    model: Model,
    sequence: Num,
    s: LayerShape,
    sizes: ElementBytes,
    *,
    routed: bool = False,
    imbalance: float = 1.0,
) -> Num:
    """Compute the bytes that one layer stores per GPU for one micro-batch until its backward pass.

    Korthikanti 2022, eqs. 1-4, with the element size free: at 2 bytes and one-byte masks none is
    s·b·h·(10 + 24/t + 5·a·s/(h·t)); sequence parallelism divides the 10 too; selective drops the a·s² term (as a flash
    kernel does); full keeps the layer's input only, divided over the TP ranks under sequence parallelism. Context
    parallelism divides the tokens. Kernels without dropout keep no masks (of 0 bytes). Where inputs of products are
    narrower, the attention's output is kept in both types, for its own backward and for the projection's (Transformer
    Engine saves the cast input of a product).
    """
    t, tokens, element = s.tensor_parallel, sequence * s.micro_batch / s.context_parallel, sizes.element
    if s.recompute == "full":
        return element * tokens * model.hidden / s.split
    common, divided = activation_elements(model, routed=routed, imbalance=imbalance)
    whole, inner = element * common + 2 * sizes.mask * model.hidden, element * divided
    if sizes.product is not None and sizes.product < element:
        inputs, wide = product_inputs(model, routed=routed, imbalance=imbalance), element - sizes.product
        latent = model.latent_attention
        attention = model.heads * (model.head if latent is None else latent.head_value)
        whole, inner = whole - wide * inputs[0], inner - wide * inputs[1] + sizes.product * attention
    if sizes.attention is not None:
        inner -= (element - sizes.attention) * attention_inputs(model)
    linear = tokens * (whole / s.split + inner / t)
    if s.recompute == "selective":
        return linear
    scores = (2 * element + sizes.mask) * s.micro_batch * model.heads * sequence**2 / (t * s.context_parallel)
    return linear + scores


def state_bytes(parameters: Num, precision: Precision, *, zero_stage: int, shards: Num, cast_bytes: float = 0.0) -> Num:
    """Compute the bytes of `parameters` weights, their gradients and optimiser state on one GPU (Rajbhandari 2020).

    Stage 1 divides the optimiser state over the `shards` replicas, stage 2 the gradients too, stage 3 the weights too.
    Master weights are the optimiser's: of two bytes in work, six of all weights, four of gradients and eight of moments
    stage 1 keeps 6 and divides 12 (section 5.1). Casts of the weights, `cast_bytes` each, are kept by every replica
    but under stage 3, which makes them anew of each layer as it gathers it.
    """
    working = precision.working_parameter_bytes
    master = precision.parameter_bytes - working
    weights = working / shards if zero_stage >= 3 else working + cast_bytes
    gradients = precision.gradient_bytes / (shards if zero_stage >= 2 else 1)
    optimizer = (master + precision.optimizer_bytes) / (shards if zero_stage >= 1 else 1)
    return parameters * (weights + gradients + optimizer)


def end_copies(model: Model, stage: Num, pipeline: Num) -> Num:
    """Return the embeddings of a stage: the token embedding on the first, the head on the last; tied ones are one."""
    ends = 1 * (np.asarray(stage) == 0) + 1 * (np.asarray(stage) == np.asarray(pipeline) - 1)
    return np.minimum(ends, 1) if model.tied_embeddings else ends


def stage_extra_parameters(model: Model, stage: Num, pipeline: Num) -> Num:
    """Return the weights of a stage outside its layers: its embeddings."""
    return end_copies(model, stage, pipeline) * embedding_parameters(model)


def logits_bytes(
    model: Model,
    sequence: Num,
    micro_batch: Num,
    tensor_parallel: Num,
    *,
    context_parallel: Num = 1,
    logit_bytes: float = 4.0,
) -> Num:
    """Compute the bytes of the last stage's logits, in FP32 by default (Korthikanti 2022, section 4.3)."""
    return logit_bytes * micro_batch * sequence * model.vocabulary / (tensor_parallel * context_parallel)


def usable_bytes(hbm_bytes: float, reserve_fraction: float, reserve_bytes: float) -> float:
    """Compute the bytes of HBM that a plan may fill: all less the fraction and the constant kept for the framework."""
    return hbm_bytes * (1 - reserve_fraction) - reserve_bytes
