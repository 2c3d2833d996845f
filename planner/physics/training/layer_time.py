"""Seconds of a layer: its forward and backward pass on a GPU, with exchanges, recomputation, launches and offload."""

import math
from dataclasses import dataclass

from planner.instance.software import RecomputeModule
from planner.physics.training import operations
from planner.physics.training.collectives import (
    context_exchange,
    expert_exchange_seconds,
    overlaps_experts,
    tensor_exchange_seconds,
)
from planner.physics.training.memory import layer_bytes, repeated_modules
from planner.physics.training.operations import KINDS, Kind, LayerOperation, LayerShape, Machine
from planner.physics.training.transformer import LayerKind, layer_kinds

BACKWARD_LAUNCHES = 1.5  # operations launched in a layer's backward pass over those of its forward pass
# Operations of a layer that modules of selective recompute run again, by how their names begin; of norms see below.
# Without the output of an activation its cast, which the product behind it reads, is made again too.
REPEATED: dict[RecomputeModule, tuple[str, ...]] = {
    "mla_up_proj": ("Q up", "KV up", "cast for Q up", "cast for KV up"),
    "mlp": ("FFN", "cast for FFN"),
    "moe": ("router", "dispatch", "experts", "shared experts", "cast for experts", "cast for shared experts"),
    "moe_act": ("experts activation", "cast for experts out"),
    "shared_experts": ("shared experts", "cast for shared experts"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Times in seconds of one mean layer and micro-batch on one GPU, forward and backward in all and by part."""

    forward_seconds: float
    backward_seconds: float
    recompute_seconds: float  # that full recompute adds to the backward pass, beyond what selective recompute has there
    weight_gradient_seconds: float  # of the backward pass, for which nothing later in it waits: ZB-H1 moves them
    parts: dict[str, float]  # their sum: forward and backward without full recompute


def _sum(listed: list[LayerOperation], kind: Kind) -> float:
    return math.fsum(o.seconds for o in listed if o.kind == kind)


def _repeated(
    m: Machine, s: LayerShape, kind: LayerKind, forward: list[LayerOperation], expert: float
) -> tuple[list[LayerOperation], float]:
    """Return a layer's operations that selective recompute runs again, and the seconds of all that runs again."""
    # The norms among them are those whose outputs modules discard (memory.py, `stored_tensors`), with the casts of
    # these for products. Unfused scores, a share of other GEMMs, and exchanges (`expert` seconds) come on top.
    modules, latent = repeated_modules(m, s), m.model.latent_attention
    if not modules:
        return [], 0.0
    names = tuple(name for module in modules for name in REPEATED.get(module, ()))
    before_attention, before_ffn = False, "mlp" in modules and not kind.routed
    if "layernorm" in modules:
        before_attention, before_ffn = latent is not None, before_ffn or kind.routed
        names += ("cast for shared experts in",)
        if latent is not None:
            names += ("cast for KV down", "cast for Q up" if latent.q_rank is None else "cast for Q down")
    norms = [o for o in forward if o.name == "norm"]
    repeated = [o for o, twice in zip(norms, (before_attention, before_ffn), strict=True) if twice]
    repeated += [o for o in forward if o.name.startswith(names)]
    unfused = 0.0
    if not m.software.flash_attention and "core_attn" in modules:
        unfused = _sum(forward, "attention") + math.fsum(o.seconds for o in forward if o.name.startswith("softmax"))
    products = m.software.selective_gemm_share * (_sum(forward, "gemm") - _sum(repeated, "gemm"))
    seconds = unfused + math.fsum(o.seconds for o in repeated) + products
    if {"moe", "shared_experts"} & set(modules) if kind.routed else "mlp" in modules:
        seconds += tensor_exchange_seconds(m, s, kind, of_ffn=True)
    return repeated, seconds + (expert if "moe" in modules else 0.0)


def kind_times(m: Machine, s: LayerShape, kind: LayerKind, nic_slowdown: float = 1.0) -> LayerTimes:
    """Compute the seconds of a kind of layer: operations, exchanges (CP at the NIC's slowdown), waits for launches."""
    ops = operations.layer_operations(m, s, routed=kind.routed, window=kind.window)
    tensor = tensor_exchange_seconds(m, s, kind)
    context, _ = context_exchange(m, s, nic_slowdown)
    if "context" in m.software.overlaps:  # exposed is the time beyond attention
        context = max(0.0, context - _sum(ops.forward, "attention"))
    work = math.fsum(o.seconds for o in ops.forward)
    expert = expert_exchange_seconds(m, s, work / 2) if kind.routed else 0.0
    repeated, selective = _repeated(m, s, kind, ops.forward, expert)
    forward = work + tensor + context + expert
    # The backward pass sends keys and values again, and their gradients back: twice the forward's exchange.
    backward = math.fsum(o.seconds for o in ops.backward) + tensor + 2 * context + expert + selective
    host = layer_bytes(m, s, front=not kind.routed).offloaded / m.gpu.host_bytes_per_second
    forward_wait, backward_wait = max(0.0, host - forward), max(0.0, host - backward)
    launch = max(m.software.launch_seconds, m.software.overlap_launch_seconds if overlaps_experts(m, s) else 0.0)
    # How the names of operations begin that the host launches: of all, or with graphs of routed experts' or none.
    by_host = {"none": ("",), "whole": ()}.get(m.software.cuda_graphs, ("experts", "dispatch", "cast for experts"))
    launches, repeats = (launch * sum(o.name.startswith(by_host) for o in x) for x in (ops.forward, repeated))
    backward_launches = BACKWARD_LAUNCHES * launches + repeats
    waits = max(0.0, launches - forward) + max(0.0, backward_launches - backward)
    parts = {part: _sum(ops.forward, part) + _sum(ops.backward, part) for part in KINDS} | {
        "recompute": selective,
        "tensor_parallel": 2 * tensor,
        "context_parallel": 3 * context,
        "expert_parallel": 2 * expert,
        "launch": waits,
        "offload": forward_wait + backward_wait,
    }
    recomputed = forward
    if not kind.routed and m.software.recompute_stops_early:
        # No backward pass reads what the FFN returns: torch.utils.checkpoint stops before its last product, with the
        # sum and the reduce-scatter behind it (early_stop; the compiler leaves them out as well).
        last = math.fsum(o.seconds for o in ops.forward if o.name in ("FFN out", "cast for FFN out"))
        last += [o.seconds for o in ops.forward if o.name == "residual"][-1]
        recomputed -= last + tensor_exchange_seconds(m, s, kind, of_ffn=True) / (2 if s.sequence_parallel else 1)
    return LayerTimes(
        forward_seconds=max(forward, launches) + forward_wait,
        backward_seconds=max(backward, backward_launches) + backward_wait,
        recompute_seconds=max(recomputed, launches) - selective,
        weight_gradient_seconds=math.fsum(o.weight_gradient_seconds for o in ops.backward),
        parts=parts,
    )


def layer_times(m: Machine, s: LayerShape, nic_slowdown: float = 1.0, *, front: bool = False) -> LayerTimes:
    """Compute the times of a mean layer, with experts where the model has any, or of a dense one at the `front`."""
    # The mean over full and windowed attention, which alternate on stages.
    kinds = [k for k in layer_kinds(m.model) if k.routed != (front or m.model.experts is None)]
    layers = sum(k.layers for k in kinds)
    each = [(k.layers / layers, kind_times(m, s, k, nic_slowdown)) for k in kinds]
    passes = ("forward_seconds", "backward_seconds", "recompute_seconds", "weight_gradient_seconds")
    mean = {name: math.fsum(w * getattr(x, name) for w, x in each) for name in passes}
    parts = {part: math.fsum(w * x.parts[part] for w, x in each) for part in each[0][1].parts}
    return LayerTimes(**mean, parts=parts)
