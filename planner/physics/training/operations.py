"""Seconds of the operations of one layer on one GPU, forward and backward: GEMMs, attention, and work bound by HBM."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

from planner.instance.base_types import Dtype
from planner.instance.hardware import Accelerator, Rack
from planner.instance.software import Fp8Recipe, Software
from planner.instance.workload import Model, Precision
from planner.physics import Num
from planner.physics.training.transformer import attention_inputs, attention_score_flop, head_widths

COMPUTE_BYTES: dict[Dtype, float] = {"fp4": 0.5, "fp8": 1.0, "bf16": 2.0, "fp16": 2.0, "fp32": 4.0}
# Bytes of scales an element: E8M0 for 32 (OCP Microscaling Formats v1.0), FP32 for 128 (DeepSeek-V3, arXiv 2412.19437,
# section 3.3.2), E4M3 for 16 under FP4 (NVIDIA, Pretraining with NVFP4, arXiv 2509.25149, section 2).
SCALE_BYTES: dict[Fp8Recipe, float] = {"delayed": 0.0, "per_tensor": 0.0, "mxfp8": 1 / 32, "blockwise": 4 / 128}
FP4_SCALE_BYTES = 1 / 16
UNFUSED_LOSS_BYTES = 48.0  # a logit more, without fusion: 12 more FP32 passes (vocab_parallel_cross_entropy)
TENSOR_CORE_ELEMENTS = 8  # of 16 bits, which a row must be a multiple of (NVIDIA, same guide, Tensor Core Requirements)
# Elements that an activation reads and writes for one of its result, forward and backward: plain, and gated.
ACTIVATION_PASSES = {False: (2, 3), True: (3, 5)}
# Biases added, two clamps, a scale, a sigmoid, a sum and two products as operations of their own, and their backward
# (openai/gpt-oss, gpt_oss/torch/model.py, swiglu).
CLAMPED_PASSES = (24, 48)
FUSED_WIDTH = 256  # of which widths of fused experts are multiples (Transformer Engine, validate_grouped_mlp_dims)
USUAL_HEAD = 128  # the width at which attention_efficiency counts
NARROW: tuple[Dtype, ...] = ("fp4", "fp8")  # types that inputs of a product are cast to


Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine that runs a layer's operations: GPU, rack (scale-up domain), framework, model and number formats."""

    gpu: Accelerator
    rack: Rack
    software: Software
    model: Model
    precision: Precision
    sequence: int
    expert_imbalance: float = 1.0  # tokens of the busiest expert-parallel rank over the mean
    replicas_per_rack: int | None = None  # of which a rack holds a stage, where that is given

    @property
    def peak_flop_per_second(self) -> float:
        """Return the peak FLOP per second of one GPU in a layer's operations, in the number format of the products."""
        return self.gpu.peak_flop_per_second[self.precision.compute]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """The shape of a layer on one GPU: the choices that determine the time of its operations and its memory."""

    tensor_parallel: int
    micro_batch: int
    recompute: Recompute
    sequence_parallel: bool
    context_parallel: int = 1
    expert_parallel: int = 1
    tensor_inner: int = 1
    experts_overlap: bool = True  # whether pipeline and recompute let the experts' exchange overlap a micro-batch

    @property
    def gpus(self) -> int:
        """Count the GPUs that share the operations of a layer on one micro-batch: TP times CP."""
        return self.tensor_parallel * self.context_parallel

    @property
    def degrees(self) -> tuple[int, int, int]:
        """Return the degrees of tensor, context and expert parallelism that divide a layer's operations."""
        return self.tensor_parallel, self.context_parallel, self.expert_parallel

    def tokens(self, sequence: int) -> float:
        """Count the tokens of a micro-batch that a layer's operations have on one CP rank, by sequence length."""
        return self.micro_batch * sequence / self.context_parallel

    @property
    def split(self) -> int:
        """Count the ranks over which sequence parallelism divides tokens between products; 1 without it."""
        return self.tensor_parallel if self.sequence_parallel else 1


Kind = Literal["gemm", "attention", "elementwise", "quantise"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class LayerOperation(NamedTuple):  # a tuple, since no search makes anything else as often
    """One operation of a layer, with the seconds that it keeps one GPU busy."""

    name: str
    kind: Kind
    seconds: float
    weight_gradient_seconds: float = 0.0  # of them, for which nothing later in the backward pass waits


def stored_bytes(m: Machine, dtype: Dtype | None = None) -> float:
    """Return the bytes of an element as operations read it (GEMM operands), with its share of the scales."""
    dtype = dtype or m.precision.compute
    scale = SCALE_BYTES[m.software.fp8_recipe] if dtype == "fp8" else FP4_SCALE_BYTES if dtype == "fp4" else 0.0
    return COMPUTE_BYTES[dtype] + scale


def casts(m: Machine) -> int:
    """Count the casts of a tensor that products in 8 or 4 bits read: by rows and by columns, or one for both."""
    one_scale = m.precision.compute == "fp8" and m.software.fp8_recipe in ("delayed", "per_tensor")
    return 1 if m.gpu.any_fp8_layout and one_scale else 2


def attention_dtype(m: Machine) -> Dtype:
    """Return the type of attention and logits: 16 bits where products run in fewer, as in FP8 and FP4 recipes."""
    if m.precision.compute not in NARROW:
        return m.precision.compute
    return "bf16" if "bf16" in m.gpu.peak_flop_per_second else "fp16"


def attends_in_fp8(m: Machine) -> bool:
    """Return whether the operation of flash attention is in FP8: if the stack has it, and GEMMs have 8 or 4 bits."""
    return m.software.fp8_attention and m.software.flash_attention and m.precision.compute in NARROW


def gemm_seconds(
    m: Machine,
    rows: Num,
    inner: Num,
    columns: Num,
    *,
    count: Num = 1,
    dtype: Dtype | None = None,
    out_bytes: float | None = None,
) -> Num:
    """Compute the seconds of `count` products (rows x inner)·(inner x columns) on one GPU (roofline: Williams 2009)."""
    # 2·m·k·n FLOP at the type's share of peak, the part of the operands' HBM traffic that the kernel does not hide
    # (small and thin products are slow by it), and the shortest time of a kernel: its terms added. A kernel's tiles run
    # in waves over the processors and the last wave is part-filled (wave quantisation; NVIDIA, Matrix Multiplication
    # Background User's Guide): as long as if the result had some more elements.
    dtype = dtype or m.precision.compute
    e, width = m.gpu.gemm_efficiency, stored_bytes(m, dtype)
    out = m.precision.activation_bytes if out_bytes is None else out_bytes
    moved = width * (rows * inner + inner * columns) + out * rows * columns
    elements = count * rows * columns + e.tail_elements
    busy = 2 * inner * elements / (m.gpu.peak_flop_per_second[dtype] * e.max_share[dtype])
    return busy + count * e.operand_traffic * moved / m.gpu.hbm_bytes_per_second + m.gpu.kernel_seconds


def hbm_rate(m: Machine) -> float:
    """Return the bytes per second of HBM that a GPU's operations reach."""
    return m.gpu.hbm_bytes_per_second * m.gpu.hbm_efficiency


@dataclass(frozen=True, slots=True)
class Grouped:
    """Products of a GPU's experts: how many, the share of the rate of others, and whether their operands are cast."""

    count: Num = 1
    share: float = 1.0
    start_seconds: float = 0.0  # of each
    cast_seconds: float = 0.0  # of the start of the cast of its input
    casts_input: bool = True
    casts_gradient: bool = True


SINGLE = Grouped()


@dataclass(slots=True)
class Passes:
    """The operations of a layer in both passes as they are listed: forward, and backward that mirrors it."""

    m: Machine
    forward: list[LayerOperation]
    backward: list[LayerOperation]

    def gemm(
        self, name: str, rows: Num, inner: Num, columns: Num, *, dtype: Dtype | None = None, grouped: Grouped = SINGLE
    ) -> None:
        """Add a GEMM with weights to both passes; backward has two of its size: gradients of input and of weights."""
        # The latter adds to the gradients of other micro-batches: they are read and written, in the product or, in
        # addition to what it writes, by a kernel of their own. Products in 8 or 4 bits have their inputs cast first.
        m, gradient, added = self.m, 2 * self.m.precision.gradient_bytes, 0.0
        if not m.software.fused_gradient_sums:
            added = inner * columns * (m.precision.activation_bytes + gradient) / hbm_rate(m)
            gradient = m.precision.activation_bytes
        count, share, wait = grouped.count, grouped.share, grouped.cast_seconds
        forward = gemm_seconds(m, rows, inner, columns, count=count, dtype=dtype)
        back = gemm_seconds(m, rows, columns, inner, count=count, dtype=dtype)
        weights = gemm_seconds(m, inner, rows, columns, count=count, dtype=dtype, out_bytes=gradient)
        starts = float(count * grouped.start_seconds)
        self.forward.append(LayerOperation(name, "gemm", float(forward / share) + starts))
        delayed = float(weights / share + count * added) + starts
        self.backward.append(LayerOperation(name, "gemm", float(back / share) + starts + delayed, delayed))
        if (dtype or m.precision.compute) in NARROW:
            # An element is read, once more where the largest of the tensor is sought first (one scale a tensor from its
            # own, and FP4), and written by rows and by columns, or once where products take one cast either way.
            reads = 2 if m.precision.compute == "fp4" or m.software.fp8_recipe == "per_tensor" else 1
            each = reads * m.precision.activation_bytes + casts(m) * stored_bytes(m)
            rate = hbm_rate(m) / m.software.quantise_traffic if m.software.quantise_traffic else float("inf")
            for operations, width, casts_it in (
                (self.forward, inner, grouped.casts_input),
                (self.backward, columns, grouped.casts_gradient),
            ):
                if casts_it:
                    seconds = float(count * (rows * width * each / rate + wait))
                    operations.append(LayerOperation(f"cast for {name}", "quantise", seconds))

    def elementwise(self, name: str, forward_elements: Num, backward_elements: Num) -> None:
        """Add an element-wise operation to both passes of a layer, that moves such numbers of elements."""
        e = self.m.precision.activation_bytes
        for operations, elements in ((self.forward, forward_elements), (self.backward, backward_elements)):
            traffic = elements * e * self.m.software.elementwise_traffic  # a multiple of that of fully fused kernels
            seconds = traffic / hbm_rate(self.m) + self.m.gpu.kernel_seconds
            operations.append(LayerOperation(name, "elementwise", float(seconds)))


def layer_operations(m: Machine, s: LayerShape, *, routed: bool, window: int | None = None) -> Passes:
    """List the operations of one layer and micro-batch on a GPU. `routed`: of experts; `window`: tokens attended to."""
    passes = Passes(m, [], [])
    tokens = s.tokens(m.sequence)
    h = m.model.hidden
    _norm_and_residual(passes, tokens, s)
    _attention(passes, tokens, s, window)
    _norm_and_residual(passes, tokens, s)
    experts = m.model.experts
    if not routed or experts is None:
        _ffn(passes, "FFN", tokens, m.model.ffn_width, s.tensor_parallel)
        return passes
    if experts.shared_ffn:
        _ffn(passes, "shared experts", tokens, experts.shared_ffn, s.tensor_parallel)
    own = tokens / s.tensor_parallel
    passes.gemm("router", own, h, experts.count, dtype=attention_dtype(m))
    # Tokens are copied to k experts and summed back: k·h written and read, both ways.
    moved = own * h * (2 + 4 * experts.per_token)
    passes.elementwise("dispatch and combine", moved, moved)
    # The grouped products of the routed experts: a GPU's share of the tokens, k times, over its own experts. All wait
    # for the busiest GPU, which has more tokens than the mean where routing is not even. Fused experts are one kernel,
    # which activates and casts values in registers; the tokens that come in, and the gradients that come back, are cast
    # before it (Transformer Engine, ops/fused/grouped_mlp.py). Of other widths than its tiles', their activation alone
    # is one kernel (Megatron-LM, use_transformer_engine_op_fuser).
    gated, one_activation = m.model.gated_ffn, m.software.fused_experts
    count = max(1.0, experts.count / s.expert_parallel)
    rows = m.expert_imbalance * own * experts.per_token / count
    fused = one_activation and h % FUSED_WIDTH == experts.ffn % FUSED_WIDTH == 0
    each = Grouped(
        count=count,
        share=m.software.expert_efficiency,
        start_seconds=0.0 if fused else m.software.expert_seconds,
        cast_seconds=0.0 if fused else m.software.expert_cast_seconds,
    )
    width = experts.ffn * (2 if gated else 1)
    passes.gemm("experts in", rows, h, width, grouped=replace(each, casts_gradient=not fused))
    if not fused:
        inner = m.expert_imbalance * own * experts.per_token * experts.ffn
        forward, backward = CLAMPED_PASSES if experts.clamped and not one_activation else ACTIVATION_PASSES[gated]
        passes.elementwise("experts activation", forward * inner, backward * inner)
    passes.gemm("experts out", rows, experts.ffn, h, grouped=replace(each, casts_input=not fused))
    return passes


def _norm_and_residual(p: Passes, tokens: Num, s: LayerShape) -> None:
    # The norm reads and writes h elements a token, its backward reads input, gradient and that of the residual and
    # writes one; the addition reads two and writes one, its backward passes the gradient on.
    h = tokens * p.m.model.hidden / s.split
    p.elementwise("norm", 2 * h, 4 * h)
    p.elementwise("residual", 3 * h, 2 * h)


def _attention(p: Passes, tokens: Num, s: LayerShape, window: int | None) -> None:
    m, model, t = p.m, p.m.model, s.tensor_parallel
    latent, (key_width, value_width) = model.latent_attention, head_widths(model)
    inner = model.heads * value_width
    if latent is None:
        p.gemm("QKV", tokens, model.hidden, attention_inputs(model) / t)
    else:
        if latent.q_rank is not None:
            p.gemm("Q down", tokens, model.hidden, latent.q_rank)
        p.gemm("Q up", tokens, latent.q_rank or model.hidden, model.heads * key_width / t)
        p.gemm("KV down", tokens, model.hidden, latent.kv_rank + latent.head_rope)
        p.gemm("KV up", tokens, latent.kv_rank, model.heads * (latent.head_nope + latent.head_value) / t)
    if m.software.flash_attention:
        flop = attention_score_flop(model, m.sequence, s.micro_batch, window=window) / (t * s.context_parallel)
        peak = m.gpu.peak_flop_per_second[attention_dtype(m)]
        seconds = narrow_heads(m) * flop / (peak * m.gpu.attention_efficiency * m.software.attention_share)
        if attends_in_fp8(m):
            # Casts of Q, K and V, and of the gradient of the attention's output: a tensor read and written.
            moved = (m.precision.activation_bytes + COMPUTE_BYTES["fp8"]) / t
            for operations, elements in ((p.forward, attention_inputs(model)), (p.backward, inner)):
                cast = tokens * elements * moved * m.software.quantise_traffic / hbm_rate(m)
                operations.append(LayerOperation("cast for attention", "quantise", float(cast)))
        # The backward kernel computes the scores again: five products where the forward has two (Dao 2023).
        p.forward.append(LayerOperation("attention", "attention", float(seconds + m.gpu.kernel_seconds)))
        p.backward.append(LayerOperation("attention", "attention", float(2.5 * seconds + m.gpu.kernel_seconds)))
        if s.context_parallel > 1:
            # A kernel for each rank's keys, its result added to the others' in FP32. Forward the output is read, the
            # sum read and written; backward the gradients of Q, and of K and V, are (Transformer Engine,
            # attention/context_parallel.py: flash_attn_fwd_out_correction and the gradients' accumulation).
            wide = 3 * s.context_parallel * tokens * COMPUTE_BYTES["fp32"] / m.precision.activation_bytes / t
            p.elementwise("merge of CP ranks", wide * inner, wide * (inner + 2 * model.kv * model.head))
    else:
        _unfused_scores(p, s)
    p.gemm("projection", tokens, inner / t, model.hidden)


def narrow_heads(m: Machine) -> float:
    """Return how much longer flash attention takes for a FLOP than with heads of 128 in 16 bits (Shah 2024)."""
    # The exponential of a score takes as long whatever the head's width and in FP8, so that narrow heads reach less of
    # the peak (Shah 2024, FlashAttention-3, figure 5; Blackwell has twice the products for as many exponentials).
    width, least = sum(head_widths(m.model)) / 2, m.gpu.softmax_width
    products = 1.0
    if attends_in_fp8(m):  # they take less by what the accelerator's products reach in either type
        peak, share = m.gpu.peak_flop_per_second, m.gpu.gemm_efficiency.max_share
        wide, narrow = (peak[x] * share[x] for x in (attention_dtype(m), "fp8"))
        products = wide / narrow
    return (width * products + least) / width * USUAL_HEAD / (USUAL_HEAD + least)


def _unfused_scores(p: Passes, s: LayerShape) -> None:
    # No masked half is skipped.
    # The softmax reads and writes each of the a·s² scores, and back its result, a gradient and another; dropout reads
    # and writes it, and keeps a mask of a byte (Korthikanti 2022, figure 3). The fused kernel scales and masks too,
    # where heads times sequences are a multiple of its block (Megatron-LM, megatron/model/fused_softmax.py: of 4); else
    # scores are cast to 32 bits, scaled, masked and cast back by separate operations.
    m, model = p.m, p.m.model
    heads = s.micro_batch * model.heads / (s.tensor_parallel * s.context_parallel)
    one = gemm_seconds(m, m.sequence, model.head, m.sequence, count=heads, dtype=attention_dtype(m))
    aligned = 1.0 if model.head % TENSOR_CORE_ELEMENTS == 0 else m.gpu.gemm_efficiency.unaligned_share
    product = float(one / (m.software.score_efficiency * aligned))
    for name in ("scores", "values of scores"):
        p.forward.append(LayerOperation(name, "attention", product))
        p.backward.append(LayerOperation(name, "attention", 2 * product))
    scores, element, multiple = heads * m.sequence**2, m.precision.activation_bytes, m.software.fused_softmax_multiple
    fused = multiple is None or heads % multiple == 0
    wide = 1.0 if fused else COMPUTE_BYTES["fp32"] / element
    apart = {"cast": 1 + wide, "scale": 2 * wide, "mask": 2 * wide, "cast back": 1 + wide}
    for name, each in {} if fused else apart.items():
        p.elementwise(f"softmax {name}", each * scores, each * scores)
    p.elementwise("softmax", 2 * wide * scores, 3 * wide * scores)
    p.elementwise("softmax dropout", (2 + 1 / element) * scores, (2 + 1 / element) * scores)


def _ffn(p: Passes, name: str, tokens: Num, width: int, t: int) -> None:
    gated = p.m.model.gated_ffn
    h, f = p.m.model.hidden, width / t
    p.gemm(f"{name} in", tokens, h, f * (2 if gated else 1))
    forward, backward = ACTIVATION_PASSES[gated]
    p.elementwise(f"{name} activation", tokens * f * forward, tokens * f * backward)
    p.gemm(f"{name} out", tokens, f, h)


def head_seconds(m: Machine, s: LayerShape) -> float:
    """Compute the seconds of the head's operations, logits and loss, for a micro-batch on one TP rank, both passes."""
    tokens, columns = s.tokens(m.sequence), m.model.vocabulary / s.tensor_parallel
    dtype, h = attention_dtype(m), m.model.hidden
    sizes = ((tokens, h, columns), (tokens, columns, h), (h, tokens, columns))  # forward, input and weight gradient
    products = sum(gemm_seconds(m, *size, dtype=dtype) for size in sizes)
    loss = m.software.loss_bytes_per_logit + (0.0 if m.software.fused_loss else UNFUSED_LOSS_BYTES)
    return float(products + tokens * columns * loss / hbm_rate(m))


def embedding_seconds(m: Machine, s: LayerShape) -> float:
    """Compute the seconds of the embedding gradient's operations a micro-batch: cleared, summed by token, added."""
    elements = m.model.vocabulary / s.tensor_parallel * m.model.hidden
    return float(elements * (3 * m.precision.activation_bytes + 2 * m.precision.gradient_bytes) / hbm_rate(m))


def ranks_in_rack(m: Machine, s: LayerShape, replicas_per_rack: Num) -> Num:
    """Count a rack's data-parallel ranks, which share layer weights: its replicas, and their CP ranks there."""
    return replicas_per_rack * s.context_parallel if s.gpus <= m.rack.gpus else max(1, m.rack.gpus // s.tensor_parallel)
