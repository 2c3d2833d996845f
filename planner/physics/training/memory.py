"""Bytes of memory that training needs on a GPU, formula by formula, and on the GPUs of each pipeline stage."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from planner.instance.instance import Instance
from planner.instance.software import RecomputeModule
from planner.instance.workload import Model, Precision
from planner.physics import Floats, Num
from planner.physics.training import operations, schedule, transformer
from planner.physics.training.operations import COMPUTE_BYTES, LayerShape, Machine, Recompute
from planner.physics.training.parallel_strategy import ParallelStrategy, padded
from planner.physics.training.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Numbers of weights in one GPU's memory: of a layer those of every token, and its routed experts; an embedding."""

    shared: float
    experts: float
    end: float  # an embedding
    front: float  # a front layer, which has no experts: any layer where the model has none

    @property
    def layer(self) -> float:
        """Count all weights of a layer in one GPU's memory."""
        return self.shared + self.experts


def weights_of(m: Machine, s: LayerShape) -> Weights:
    """Return the weights of a layer in one GPU's memory: TP divides all but routed experts, which the EP group does."""
    model, experts = m.model, m.model.experts
    end = transformer.embedding_parameters(model) / s.tensor_parallel
    dense = transformer.dense_layer_parameters(model) / s.tensor_parallel
    if experts is None:
        return Weights(shared=dense, experts=0.0, end=end, front=dense)
    routed = experts.count * transformer.ffn_parameters(model, experts.ffn)
    rest = (transformer.layer_parameters(model) - routed) / s.tensor_parallel
    return Weights(shared=rest, experts=routed / s.expert_parallel, end=end, front=dense)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor that a layer keeps in memory for its backward pass, in elements per token of all TP ranks together."""

    elements: float
    kind: Literal["input", "attention", "other"] = "other"  # products alone read it; Q, K and V; other passes read it
    whole: bool = False  # every TP rank keeps it; else it is divided over them
    rerun: tuple[RecomputeModule, ...] = ()  # modules of selective recompute that discard it


@lru_cache(maxsize=64)
def stored_tensors(model: Model, *, routed: bool = False, imbalance: float = 1.0) -> tuple[StoredTensor, ...]:
    """List the tensors that a layer keeps in memory for its backward pass, but for scores and masks of dropout.

    For the plain GPT they are 4·h elements whole and 12·h divided, which at two bytes and with two masks of h bytes
    give Korthikanti 2022, eq. 2: s·b·h·(10 + 24/t). Inputs of products are kept in the products' type; tensors that
    norms, attention and activations read again stay as wide as activations are. Modules are those of Megatron-Core
    (transformer_config.py, recompute_modules): those that discard their output (layernorm, moe_act, mla_up_proj) and
    those that keep their input alone (mlp, moe, shared_experts).
    """
    # Only a norm that is a module of its own is run again, in front of latent attention and of experts; Transformer
    # Engine fuses the others with the product behind them (gpt_layer_specs.py). A dense FFN has the norm of its input
    # run again with it.
    h, latent, experts = model.hidden, model.latent_attention, model.experts if routed else None
    before = 2 if model.gated_ffn else 1  # tensors of an FFN before its output product, without the input of that
    of_norm: tuple[RecomputeModule, ...] = () if latent is None else ("layernorm",)
    up: tuple[RecomputeModule, ...] = () if latent is None else ("mla_up_proj",)
    rotary, outputs = 0 if latent is None else latent.head_rope, model.heads * transformer.head_widths(model)[1]
    ranks = 0 if latent is None else (latent.q_rank or 0) + latent.kv_rank
    tensors = (
        StoredTensor(2 * h, whole=True),  # inputs of both norms
        StoredTensor(h, "input", whole=True, rerun=of_norm),  # of QKV
        StoredTensor(h, "input", whole=True, rerun=("mlp",) if experts is None else ("layernorm",)),  # of the FFN
        StoredTensor(transformer.attention_inputs(model), "attention", rerun=up),
        StoredTensor(outputs),  # of attention
        StoredTensor(ranks, "input", whole=True),  # of latent attention
        StoredTensor(rotary, whole=True),
    )
    if experts is None:
        width = model.ffn_width
        return *tensors, StoredTensor(width, "input", rerun=("mlp",)), StoredTensor(before * width, rerun=("mlp",))
    own = imbalance * experts.per_token  # experts of a token on the busiest rank
    return (
        *tensors,
        StoredTensor(experts.shared_ffn, "input", rerun=("moe", "shared_experts")),
        StoredTensor(before * experts.shared_ffn, rerun=("moe", "shared_experts")),
        StoredTensor(own * h, "input", rerun=("moe",)),
        StoredTensor(own * experts.ffn, "input", rerun=("moe", "moe_act")),
        StoredTensor(own * (before * experts.ffn + h), rerun=("moe",)),  # with what the experts return
    )


class ElementBytes(NamedTuple):
    """Bytes of memory of an element stored for the backward pass, by kind of tensor, and of a mask of dropout."""

    other: float
    input: float  # of products, which may be narrower
    attention: float  # Q, K and V
    mask: float = 1.0

    def per_token(self, tensors: Iterable[StoredTensor], s: LayerShape) -> float:
        """Compute the bytes of memory per token of some stored tensors on a TP rank."""
        ranks = {True: s.split, False: s.tensor_parallel}
        return float(sum(x.elements * getattr(self, x.kind) / ranks[x.whole] for x in tensors))


def activation_bytes_per_layer(
    model: Model, sequence: Num, s: LayerShape, sizes: ElementBytes, *, routed: bool = False, imbalance: float = 1.0
) -> Num:
    """Compute the bytes that one layer stores per GPU for one micro-batch until its backward pass.

    Korthikanti 2022, eqs. 1-4, with the element size free: at 2 bytes and one-byte masks none is
    s·b·h·(10 + 24/t + 5·a·s/(h·t)); sequence parallelism divides the 10 too; selective drops the a·s² term (as a flash
    kernel does); full keeps the layer's input only, divided over the TP ranks under sequence parallelism. Context
    parallelism divides the tokens. Kernels without dropout keep no masks (of 0 bytes). Where inputs of products are
    narrower, the attention's output is kept in both types, for its own backward and for the projection's (Transformer
    Engine saves the cast input of a product).
    """
    tokens, element = s.tokens(sequence), sizes.other
    if s.recompute == "full":
        return element * tokens * model.hidden / s.split
    each = sizes.per_token(stored_tensors(model, routed=routed, imbalance=imbalance), s)
    if sizes.input < element:
        each += sizes.input * model.heads * transformer.head_widths(model)[1] / s.tensor_parallel
    linear = tokens * (each + 2 * sizes.mask * model.hidden / s.split)
    if s.recompute == "selective":
        return linear
    return linear + (2 * element + sizes.mask) * s.micro_batch * model.heads * sequence**2 / s.gpus


def state_bytes(parameters: Num, precision: Precision, *, zero_stage: int, shards: Num, cast_bytes: float = 0.0) -> Num:
    """Compute the bytes of `parameters` weights, their gradients and optimiser state on one GPU (Rajbhandari 2020)."""
    # Stage 1 divides the optimiser state over the `shards` replicas, stage 2 the gradients too, stage 3 the weights
    # too. Master weights are the optimiser's: of two bytes in work, six of all weights, four of gradients and eight of
    # moments stage 1 keeps 6 and divides 12 (section 5.1). Casts of the weights, `cast_bytes` each, are kept by every
    # replica but under stage 3, which makes them anew of each layer as it gathers it.
    working = precision.working_parameter_bytes
    master = precision.parameter_bytes - working
    weights = working / shards if zero_stage >= 3 else working + cast_bytes
    gradients = precision.gradient_bytes / (shards if zero_stage >= 2 else 1)
    optimizer = (master + precision.optimizer_bytes) / (shards if zero_stage >= 1 else 1)
    return parameters * (weights + gradients + optimizer)


def end_copies(model: Model, stage: Num, pipeline: Num) -> Num:
    """Count the embeddings in a stage's memory: the tokens' on the first, the head on the last; tied are one."""
    ends = 1 * (np.asarray(stage) == 0) + 1 * (np.asarray(stage) == np.asarray(pipeline) - 1)
    return np.minimum(ends, 1) if model.tied_embeddings else ends


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """Bytes of activations that one layer keeps in one GPU's memory for one micro-batch."""

    kept: float  # between the passes
    checkpoint: float  # kept instead where the layer is recomputed
    in_work: float  # while such a layer runs again
    selective: float  # made once more for the backward pass under selective recompute, without unfused scores
    gradients: float  # of the widest tensors as the backward pass begins
    offloaded: float  # in the host's memory


def repeats_modules(m: Machine) -> bool:
    """Return whether selective recompute drops other tensors than unfused scores from memory in some layer."""
    modules, kinds = set(m.software.recompute_modules), {k.routed for k in transformer.layer_kinds(m.model)}
    tensors = (tensor for routed in kinds for tensor in stored_tensors(m.model, routed=routed) if tensor.elements)
    return any(not modules.isdisjoint(tensor.rerun) for tensor in tensors)


def repeated_modules(m: Machine, s: LayerShape) -> tuple[RecomputeModule, ...]:
    """Return the modules of selective recompute that run again in layers that are not recomputed whole."""
    # Frameworks that name modules recompute them or whole layers, never both (Megatron-Core, recompute_granularity);
    # where selective recompute discards scores only, the layers that are not recomputed whole do not keep these either.
    selective = s.recompute == "selective" or (s.recompute == "full" and not repeats_modules(m))
    return m.software.recompute_modules if selective else ()


def layer_bytes(m: Machine, s: LayerShape, *, front: bool = False) -> LayerBytes:
    """Compute a layer's activation bytes by when they are held, dense at `front` (Korthikanti 2022, eqs. 1 to 4)."""
    # Flash kernels keep neither scores nor the masks of dropout (Dao 2022).
    flash, routed = m.software.flash_attention, m.model.experts is not None and not front
    element, modules = m.precision.activation_bytes, repeated_modules(m, s)
    product = min(element, COMPUTE_BYTES[m.precision.compute]) if m.software.keeps_cast_inputs else element
    attention = min(element, COMPUTE_BYTES["fp8"]) if operations.attends_in_fp8(m) else element
    sizes = ElementBytes(element, product, attention, mask=0.0 if flash else 1.0)

    def stored(recompute: Recompute) -> float:
        own, imbalance = replace(s, recompute=recompute), m.expert_imbalance
        return float(activation_bytes_per_layer(m.model, m.sequence, own, sizes, routed=routed, imbalance=imbalance))

    stays, tokens = 1 - m.software.activation_offload, s.tokens(m.sequence)
    dropped = m.software.selective_gemm_share if modules else 0.0
    tensors = stored_tensors(m.model, routed=routed, imbalance=m.expert_imbalance) if modules else []
    selective = tokens * sizes.per_token((x for x in tensors if not set(modules).isdisjoint(x.rerun)), s)
    # As a layer's backward pass begins: the gradients of its output and of the FFN before its activation; of routed
    # experts, for each of a token's k, of its output, of the input of the combination, and of the inner tensors.
    wide, experts = 2 if m.model.gated_ffn else 1, m.model.experts if routed else None
    widest = wide * m.model.ffn_width
    if experts is not None:
        widest = experts.per_token * (2 * m.model.hidden + wide * experts.ffn)
    gradients = element * tokens * (m.model.hidden / s.split + widest / s.tensor_parallel)
    in_work = stored("selective")
    kept = ((in_work if flash or "core_attn" in modules else stored("none")) - selective) * (1 - dropped)
    return LayerBytes(
        kept=kept * stays,
        checkpoint=stored("full") * stays,
        in_work=in_work,
        selective=selective,
        gradients=gradients,
        offloaded=kept * m.software.activation_offload,
    )


def gpu_state_bytes(
    m: Machine, s: LayerShape, w: Weights, *, layers: Num, ends: Num, zero_stage: int, replicas: Num, front: Num = 0
) -> Num:
    """Compute the memory in bytes of a GPU's weights, gradients and optimiser, for `layers` layers, `ends` embeddings.

    `front` of the layers are dense ones. ZeRO shards the bytes over `replicas` and over the CP ranks, which have the
    same weights; routed experts are on fewer GPUs and are sharded over those (Rajbhandari 2020). The framework's flat
    copies and buckets are counted too.
    """
    _, context, _ = s.degrees
    compute, working, cast = m.precision.compute, m.precision.working_parameter_bytes, 0.0
    if compute in operations.NARROW and working >= COMPUTE_BYTES["fp8"]:
        # Transformer Engine casts each weight in the first micro-batch of a step, and keeps the casts too
        # (module/linear.py, is_first_microbatch). Weights kept in FP8 are casts themselves, and replace the working
        # weights; for weights in FP4, which no framework has, the instance's figure is taken.
        in_fp8 = working <= COMPUTE_BYTES["fp8"] if m.software.fp8_parameters is None else m.software.fp8_parameters
        cast = operations.casts(m) * COMPUTE_BYTES[compute] - (working if compute == "fp8" and in_fp8 else 0.0)
    usual, over = layers - front, replicas * context

    def state(parameters: Num, shards: Num, cast_bytes: float = cast) -> Num:
        divided = m.software.sharded_buffer_bytes_per_parameter / (shards if zero_stage >= 1 else 1)
        own = state_bytes(parameters, m.precision, zero_stage=zero_stage, shards=shards, cast_bytes=cast_bytes)
        return own + parameters * (m.software.buffer_bytes_per_parameter + divided)

    own, embeddings = usual * w.shared + front * w.front, ends * w.end
    # Embeddings and the head are not cast: where all weights are said to be in the products' type these are kept in 16
    # bits, which is two casts of eight.
    if cast and working > COMPUTE_BYTES["fp8"]:
        total = state(own, over) + state(embeddings, over, 0.0)
    else:
        total = state(own + embeddings, over)
    if w.experts:
        total = total + state(usual * w.experts, np.maximum(1, replicas * s.gpus / s.expert_parallel))
    return total


def gradient_copy_bytes(m: Machine, s: LayerShape, w: Weights, *, front: Num = 0) -> Num:
    """Compute the bytes of dummy gradients in a GPU's memory: one tensor for each shape of weights in all layers.

    A framework that adds weight gradients into the main ones inside the product hands a tensor of each weight's size
    to the autograd engine (Transformer Engine, module/_common.py, get_dummy_wgrad). Experts of a layer share one.
    """
    model = m.model
    one = w.shared + (0.0 if model.experts is None else transformer.ffn_parameters(model, model.experts.ffn))
    dense = w.front - transformer.attention_parameters(model) / s.tensor_parallel
    return m.software.weight_gradient_copy_bytes * (one + np.minimum(front, 1) * dense)


def head_bytes(m: Machine, s: LayerShape, w: Weights) -> float:
    """Compute the bytes of memory that the head (logits) needs on a GPU at the peak of its backward pass."""
    # Logits and their gradients; the input and output of the last norm, and the gradients of both; with sequence
    # parallelism the gathered input too; and the dummy of the head's own gradient.
    one = m.software.logit_memory_bytes or (2.0 if m.software.fused_loss else 4.0)  # FP32: Korthikanti 2022, 4.3
    logits = one * s.micro_batch * m.sequence * m.model.vocabulary / s.gpus
    hidden = 2 / s.split + (3 if s.split > 1 else 2)
    states = hidden * s.tokens(m.sequence) * m.model.hidden * m.precision.activation_bytes
    return float(logits + states + m.software.weight_gradient_copy_bytes * w.end)


def gathered_bytes(m: Machine) -> float:
    """Return the bytes of a weight in the memory of replicas that gather it, before the operations of a layer."""
    # Under mxfp8 rows and columns are cast apart, so that weights travel in BF16 (Megatron-LM,
    # reuse_grad_buf_for_mxfp8_param_ag).
    software, narrow = m.software, m.precision.compute in operations.NARROW
    if software.fp8_parameters is None or not narrow:
        return m.precision.working_parameter_bytes
    in_16_bits = not software.fp8_parameters or software.fp8_recipe == "mxfp8"
    return COMPUTE_BYTES["bf16"] if in_16_bits else operations.stored_bytes(m)


def working_bytes(
    m: Machine, s: LayerShape, w: Weights, each: LayerBytes, *, zero_stage: int, recomputed: Num, front: Num = 0
) -> Num:
    """Compute the working bytes of a GPU's memory but the head's, in addition to state and stored activations."""
    # The gradient copy, under ZeRO-3 two layers' gathered weights (the next layer's arrive while one's are in use), the
    # layer that is run again or else its modules, and the gradients of one layer's widest tensors.
    gathered = 2 * w.layer * gathered_bytes(m) if zero_stage >= 3 else 0.0
    selective: Num = each.selective
    if transformer.front_layers(m.model) and repeats_modules(m):
        selective = np.where(np.asarray(front) > 0, max(selective, layer_bytes(m, s, front=True).selective), selective)
    repeated = np.where(np.asarray(recomputed) > 0, each.in_work, selective)
    return gradient_copy_bytes(m, s, w, front=front) + gathered + repeated + each.gradients


def memory_by_part(
    m: Machine,
    s: LayerShape,
    counts: schedule.PipelineCounts,
    *,
    stage: Num,
    layers: Num,
    recomputed: Num = 0,
    front: Num = 0,
    zero_stage: int,
    replicas: Num,
    order: Schedule = "1f1b",
) -> dict[str, Num]:
    """Compute the bytes of memory by part on a GPU of a stage, of its layers some recomputed and `front` ones dense.

    It broadcasts over everything but the shape.
    """
    # An interleaved stage keeps its chunks in flight; recomputed layers are spread over all chunks, front layers are in
    # the first. The bytes that the head needs at its peak beyond the rest are counted under `logits`.
    w, each = weights_of(m, s), layer_bytes(m, s)
    pipeline, virtual_stages = counts.pipeline, counts.virtual_stages
    stage, layers, recomputed = (np.asarray(x) for x in (stage, layers, recomputed))
    in_flight = schedule.chunks_in_flight(order, stage, pipeline, virtual_stages, counts.micro_batches)
    smaller_first = schedule.smaller_chunks_first(m.model, stage)
    larger = schedule.larger_in_flight(pipeline, counts.micro_batches, smaller_first=smaller_first)
    kept = schedule.layers_in_flight(in_flight, virtual_stages, layers, larger)
    of_layer = each.kept + recomputed / np.maximum(layers, 1) * (each.checkpoint - each.kept)
    # What a dense front layer keeps beyond another layer, negative if less.
    front_more = layer_bytes(m, s, front=True).kept - each.kept if transformer.front_layers(m.model) else 0.0
    of_front = in_flight * np.asarray(front) / virtual_stages * front_more
    working = working_bytes(m, s, w, each, zero_stage=zero_stage, recomputed=recomputed, front=front)
    ends = end_copies(m.model, stage, pipeline)
    size = {"layers": layers, "ends": ends, "zero_stage": zero_stage, "replicas": replicas, "front": front}
    head = head_bytes(m, s, w) + gradient_copy_bytes(m, s, w, front=front) - working
    return {
        "state": gpu_state_bytes(m, s, w, **size),
        "activations": kept * of_layer + of_front,
        "working": working,
        "logits": (stage == np.asarray(pipeline) - 1) * np.maximum(0.0, head),
    }


def memory_by_stage(m: Machine, strategy: ParallelStrategy) -> dict[str, Floats]:
    """Compute the bytes of memory by part on a GPU of every pipeline stage of a strategy, sequences padded."""
    m, p, v = padded(m, strategy.shape), strategy.pipeline_parallel, strategy.virtual_stages
    layers = strategy.layers_per_stage
    parts = memory_by_part(
        m,
        strategy.shape,
        schedule.PipelineCounts(p, v, strategy.micro_batches),
        stage=np.arange(p),
        layers=np.array(layers),
        recomputed=np.array(strategy.recomputed),
        front=np.array(schedule.front_by_stage(m.model, layers, v)),
        zero_stage=strategy.zero_stage,
        replicas=strategy.min_replicas,
        order=strategy.schedule,
    )
    return {k: np.broadcast_to(np.asarray(v, dtype=np.float64), (p,)) for k, v in parts.items()}


def worst_memory(m: Machine, strategy: ParallelStrategy) -> dict[str, float]:
    """Return the bytes of memory by part on the fullest GPU of a strategy."""
    parts = memory_by_stage(m, strategy)
    worst = int(np.argmax(sum(parts.values())))
    return {k: float(v[worst]) for k, v in parts.items()}


def stage_gradient_bytes(m: Machine, s: LayerShape, layers: Num, *, stage: Num, pipeline: int) -> Num:
    """Compute the bytes of gradients in memory of all TP ranks and experts of a stage, which sites exchange."""
    w = weights_of(m, s)
    weights = layers * (w.shared * s.tensor_parallel + w.experts * s.expert_parallel)
    ends = end_copies(m.model, stage, pipeline) * transformer.embedding_parameters(m.model)
    return (weights + ends) * m.precision.gradient_bytes


def memory_limit_bytes(instance: Instance) -> float:
    """Return the bytes of a GPU's memory that a layout may fill: HBM less a fraction, then the framework's constant."""
    gpu = instance.hardware.accelerator
    return gpu.hbm_bytes * (1 - instance.limits.memory_reserve_fraction) - gpu.memory_reserve_bytes
