"""The operations of one layer on one GPU: what each computes and moves, forward and backward, and what that takes.

A layer is a list of operations, not a number: matrix products (FLOP at a share of peak, and operand traffic), flash
attention, and element-wise work bound by HBM. Backward work follows from forward work operation by operation.
"""

from dataclasses import dataclass
from typing import Literal

from planner.instance.hardware import Accelerator, Rack
from planner.instance.base import Dtype
from planner.instance.workload import Model, Precision, Software
from planner.physics.num import Num
from planner.physics.training.memory import Recompute
from planner.physics.training.transformer import attention_score_flop

COMPUTE_BYTES: dict[Dtype, float] = {"fp4": 0.5, "fp8": 1.0, "bf16": 2.0, "fp16": 2.0, "fp32": 4.0}
NARROW: tuple[Dtype, ...] = ("fp4", "fp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a layout runs on: a GPU, how many share a scale-up domain, the framework, the model and its number formats."""

    gpu: Accelerator
    rack: Rack
    software: Software
    model: Model
    precision: Precision
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The choices that set what one layer costs on one GPU."""

    tensor_parallel: int
    micro_batch: int
    recompute: Recompute
    sequence_parallel: bool
    context_parallel: int = 1
    expert_parallel: int = 1
    tensor_inner: int = 1

    @property
    def gpus(self) -> int:
        """GPUs that share one micro-batch of one stage."""
        return self.tensor_parallel * self.context_parallel

    @property
    def split(self) -> int:
        """Ranks over which the tokens between products are divided beside context parallelism."""
        return self.tensor_parallel if self.sequence_parallel else 1


Kind = Literal["matrix", "attention", "vector", "quantise"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a layer on one GPU with the seconds that it keeps the GPU busy."""

    name: str
    kind: Kind
    seconds: float
    weight_gradient: float = 0.0  # of these seconds, those that nothing later in the backward pass waits for


def attention_dtype(m: Machine) -> Dtype:
    """Return the type of attention and logits: 16 bits where the products run in fewer (the practice of FP8 and FP4 recipes)."""
    if m.precision.compute not in NARROW:
        return m.precision.compute
    return "bf16" if "bf16" in m.gpu.peak_flop_per_second else "fp16"


def product_seconds(
    m: Machine,
    rows: Num,
    inner: Num,
    columns: Num,
    *,
    count: Num = 1,
    dtype: Dtype | None = None,
    out_bytes: float | None = None,
) -> Num:
    """Time of `count` products (rows x inner)·(inner x columns) on one GPU.

    2·m·k·n FLOP at the type's share of peak, the part of the operands' HBM traffic that the kernel does not hide (small
    and thin products are slow by it), and the least time of a kernel (Williams 2009, with both terms added).
    """
    kind = dtype or m.precision.compute
    e, width = m.gpu.gemm_efficiency, COMPUTE_BYTES[kind]
    out = m.precision.activation_bytes if out_bytes is None else out_bytes
    moved = width * (rows * inner + inner * columns) + out * rows * columns
    busy = 2 * rows * inner * columns / (m.gpu.peak_flop_per_second[kind] * e.max_share[kind])
    return count * (busy + e.operand_traffic * moved / m.gpu.hbm_bytes_per_second) + m.gpu.kernel_seconds


def vector_seconds(m: Machine, moved_bytes: Num) -> Num:
    """Time of element-wise work that moves so many bytes in fully fused kernels, at the framework's multiple of them."""
    return (
        moved_bytes * m.software.elementwise_traffic / (m.gpu.hbm_bytes_per_second * m.gpu.hbm_efficiency)
        + m.gpu.kernel_seconds
    )


@dataclass(slots=True)
class Passes:
    """The operations of a layer under construction: forward, and backward that mirrors it."""

    m: Machine
    forward: list[Operation]
    backward: list[Operation]

    def product(
        self,
        name: str,
        rows: Num,
        inner: Num,
        columns: Num,
        *,
        count: Num = 1,
        dtype: Dtype | None = None,
        share: float = 1.0,
    ) -> None:
        """Add a product with weights; backward has two of its size, for the input's and for the weights' gradient.

        Each input of a product in 8 or 4 bits is cast first: read once, written row-wise and column-wise.
        """
        m, gradient = self.m, 2 * self.m.precision.gradient_bytes  # read and written: gradients accumulate
        self.forward.append(
            Operation(name, "matrix", float(product_seconds(m, rows, inner, columns, count=count, dtype=dtype) / share))
        )
        back = product_seconds(m, rows, columns, inner, count=count, dtype=dtype)
        weights = product_seconds(m, inner, rows, columns, count=count, dtype=dtype, out_bytes=gradient)
        self.backward.append(Operation(name, "matrix", float((back + weights) / share), float(weights / share)))
        if (dtype or m.precision.compute) in NARROW:
            each = m.precision.activation_bytes + 2 * COMPUTE_BYTES[m.precision.compute]
            rate = (
                m.gpu.hbm_bytes_per_second * m.gpu.hbm_efficiency / m.software.quantise_traffic
                if m.software.quantise_traffic
                else float("inf")
            )
            self.forward.append(Operation(f"cast for {name}", "quantise", float(count * rows * inner * each / rate)))
            self.backward.append(Operation(f"cast for {name}", "quantise", float(count * rows * columns * each / rate)))

    def vector(self, name: str, forward_elements: Num, backward_elements: Num) -> None:
        """Add element-wise work that moves so many elements forward and backward."""
        e = self.m.precision.activation_bytes
        self.forward.append(Operation(name, "vector", float(vector_seconds(self.m, forward_elements * e))))
        self.backward.append(Operation(name, "vector", float(vector_seconds(self.m, backward_elements * e))))


def layer_operations(m: Machine, s: Shape, *, routed: bool, window: int | None = None) -> Passes:
    """List the operations of one layer and micro-batch on one GPU; `routed`: its FFN is a mixture of experts; `window`: of its attention."""
    passes = Passes(m, [], [])
    tokens = s.micro_batch * m.sequence / s.context_parallel
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
    passes.product("router", own, h, experts.count, dtype=attention_dtype(m))
    # Tokens are copied to k experts and summed back: k·h written and read, both ways.
    passes.vector("dispatch and combine", own * h * (2 + 4 * experts.per_token), own * h * (2 + 4 * experts.per_token))
    _routed(passes, own, s)
    return passes


def _norm_and_residual(p: Passes, tokens: Num, s: Shape) -> None:
    """Add a norm and a residual addition.

    The norm reads and writes h elements a token, backward reads two and writes one; the addition reads two and writes one.
    """
    h = tokens * p.m.model.hidden / s.split
    p.vector("norm", 2 * h, 4 * h)
    p.vector("residual", 3 * h, 2 * h)


def _attention(p: Passes, tokens: Num, s: Shape, window: int | None) -> None:
    """Projections, and the scores: in one flash kernel, or as batched products with a softmax between them."""
    m, model, t = p.m, p.m.model, s.tensor_parallel
    latent = model.latent_attention
    if latent is None:
        p.product("QKV", tokens, model.hidden, (model.heads + 2 * model.kv) * model.head / t)
        inner = model.heads * model.head
    else:
        p.product("Q down", tokens, model.hidden, latent.q_rank)
        p.product("Q up", tokens, latent.q_rank, model.heads * (latent.head_nope + latent.head_rope) / t)
        p.product("KV down", tokens, model.hidden, latent.kv_rank + latent.head_rope)
        p.product("KV up", tokens, latent.kv_rank, model.heads * (latent.head_nope + latent.head_value) / t)
        inner = model.heads * latent.head_value
    if m.software.flash_attention:
        flop = attention_score_flop(model, m.sequence, s.micro_batch, window=window) / (t * s.context_parallel)
        seconds = flop / (
            m.gpu.peak_flop_per_second[attention_dtype(m)] * m.gpu.attention_efficiency * m.software.attention_share
        )
        # The backward kernel computes the scores again: five products where the forward has two (Dao 2023).
        p.forward.append(Operation("attention", "attention", float(seconds + m.gpu.kernel_seconds)))
        p.backward.append(Operation("attention", "attention", float(2.5 * seconds + m.gpu.kernel_seconds)))
    else:
        _unfused_scores(p, s)
    p.product("projection", tokens, inner / t, model.hidden)


def _unfused_scores(p: Passes, s: Shape) -> None:
    """Scores and their product with V as batched products, no masked half skipped; softmax and dropout over a·s² elements.

    The softmax reads and writes each score, dropout reads, writes and keeps a mask of a byte (Korthikanti 2022, figure 3).
    """
    m, model = p.m, p.m.model
    heads = s.micro_batch * model.heads / (s.tensor_parallel * s.context_parallel)
    two = (
        2
        * product_seconds(m, m.sequence, model.head, m.sequence, count=heads, dtype=attention_dtype(m))
        / m.software.score_efficiency
    )
    scores = heads * m.sequence**2
    moved = scores * (4 + 1 / m.precision.activation_bytes)
    p.forward.append(Operation("scores", "attention", float(two)))
    p.backward.append(Operation("scores", "attention", float(2 * two)))
    p.vector("softmax and dropout", moved, 1.1 * moved)


def _ffn(p: Passes, name: str, tokens: Num, width: int, t: int) -> None:
    gated = p.m.model.gated_ffn
    h, f = p.m.model.hidden, width / t
    p.product(f"{name} in", tokens, h, f * (2 if gated else 1))
    p.vector(f"{name} activation", tokens * f * (3 if gated else 2), tokens * f * (5 if gated else 3))
    p.product(f"{name} out", tokens, f, h)


def _routed(p: Passes, own: Num, s: Shape) -> None:
    """Add grouped products of the routed experts: this GPU's share of the tokens, k times, over the experts that it holds."""
    m, experts = p.m, p.m.model.experts
    if experts is None:
        raise ValueError("the model has no experts")
    gated = m.model.gated_ffn
    held = max(1.0, experts.count / s.expert_parallel)
    rows = own * experts.per_token / held
    share = m.software.expert_efficiency
    p.product("experts in", rows, m.model.hidden, experts.ffn * (2 if gated else 1), count=held, share=share)
    each = own * experts.per_token * experts.ffn
    p.vector("experts activation", each * (3 if gated else 2), each * (5 if gated else 3))
    p.product("experts out", rows, experts.ffn, m.model.hidden, count=held, share=share)


def head_seconds(m: Machine, s: Shape) -> float:
    """Forward and backward time of logits and loss of one micro-batch on one TP rank of the last stage, in 16 bits."""
    tokens, columns = s.micro_batch * m.sequence / s.context_parallel, m.model.vocabulary / s.tensor_parallel
    kind, h = attention_dtype(m), m.model.hidden
    products = (
        product_seconds(m, tokens, h, columns, dtype=kind)
        + product_seconds(m, tokens, columns, h, dtype=kind)
        + product_seconds(m, h, tokens, columns, dtype=kind)
    )
    loss = tokens * columns * m.software.loss_bytes_per_logit / (m.gpu.hbm_bytes_per_second * m.gpu.hbm_efficiency)
    return float(products + loss)
