"""Seconds in which data-parallel replicas exchange gradients and weights inside a site: the all-reduce, and ZeRO's."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.physics import Num
from planner.physics.training.collectives import exposed_behind_chunks, nic, reduce_scatter_terms, scale_up
from planner.physics.training.layer_time import LayerTimes
from planner.physics.training.memory import Weights, gathered_bytes
from planner.physics.training.operations import LayerShape, Machine, ranks_in_rack
from planner.physics.training.schedule import PipelineCounts


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """Data-parallel replicas that exchange weights, by rack and site; ZeRO's `shards`; `slowdown` between racks."""

    replicas_per_rack: Num
    racks: Num
    shards: Num = 1
    slowdown: Num = 1.0


def replica_exchange(m: Machine, s: LayerShape, weights: Weights, group: ReplicaGroup) -> Callable[..., Num]:
    """Return the seconds in which data-parallel replicas reduce-scatter or gather weights, by bytes of an element.

    They are exchanged inside the rack, then between racks by NICs: those of `layers` layers (1), `end` embeddings (0).
    """
    # Routed experts are shared by one in `expert_parallel` of the GPUs. The racks of CP ranks are among the group's.
    inside, racks, slowdown = ranks_in_rack(m, s, group.replicas_per_rack), group.racks, group.slowdown
    steps, by_byte = reduce_scatter_terms((scale_up(m, inside), nic(m, racks, slowdown)))
    more_steps, by_expert_byte = 0.0, 0.0
    if weights.experts:
        gpus = inside * s.tensor_parallel
        near = np.maximum(1, gpus // s.expert_parallel)
        far = np.maximum(1.0, racks * gpus / (s.expert_parallel * near))
        more_steps, by_expert_byte = reduce_scatter_terms((scale_up(m, near), nic(m, far, slowdown)))

    def seconds(element_bytes: float, *, layers: Num = 1.0, end: Num = 0.0) -> Num:
        shared = (layers * weights.shared + end * weights.end) * element_bytes
        return steps + more_steps + shared * by_byte + layers * weights.experts * element_bytes * by_expert_byte

    return seconds


def allreduce_layer_seconds(m: Machine, s: LayerShape, weights: Weights, replicas_per_rack: Num, racks: Num) -> Num:
    """Compute the seconds of a layer's data-parallel all-reduce between racks at the NIC's ideal rate (Thakur 2005)."""
    # Each GPU sends its share of the rack's sum round a ring: 2·(n-1)·alpha + 2·(n-1)/n·S/beta.
    g = m.gpu
    size = weights.layer * m.precision.gradient_bytes / ranks_in_rack(m, s, replicas_per_rack)
    return 2 * (racks - 1) * g.nic_latency_seconds + 2 * (racks - 1) / racks * size / g.nic_bytes_per_second


def data_parallel_tail_seconds(
    m: Machine,
    s: LayerShape,
    w: Weights,
    group: ReplicaGroup,
    times: LayerTimes,
    counts: PipelineCounts,
    *,
    zero_stage: int,
    layers: Num,
    end: Num,
) -> Num:
    """Compute the exposed seconds of the data-parallel exchange of a stage's `layers` (Rajbhandari 2020, section 7).

    Layer by layer, gradients are reduced behind the backward passes of the last micro-batches and spread again
    (ZeRO-0), or updated working weights are gathered behind the forward passes of the first ones (ZeRO-1), where the
    framework overlaps them; that of the embeddings (`end` of them) comes after all. ZeRO-2 and 3 have reduced theirs in
    every micro-batch, so only the last layer's is left; ZeRO-3 gathers weights when it next needs them.
    """
    spread_bytes = m.precision.gradient_bytes if zero_stage == 0 else gathered_bytes(m)
    exchange, rate = replica_exchange(m, s, w, group), m.software.data_efficiency

    def reduced_and_spread(layers: Num, end: Num) -> tuple[Num, Num]:
        reduced = exchange(m.precision.gradient_bytes, layers=layers, end=end)
        return reduced / rate, exchange(spread_bytes, layers=layers, end=end) / rate if zero_stage < 3 else 0.0

    reduce, spread = reduced_and_spread(1.0, 0.0)
    last = sum(reduced_and_spread(0.0, end)) if np.any(np.asarray(end) > 0) else 0.0
    if zero_stage == 0:
        reduce, spread = reduce + spread, 0.0
    before, after = spread * layers, reduce * layers
    chunks, p, micro_batches = counts.virtual_stages, counts.pipeline, counts.micro_batches
    first, final = counts.rounds or (np.minimum(micro_batches, p), (micro_batches - 1) % p + 1)  # p, or the fewer left
    if "parameters" in m.software.overlaps:
        before = exposed_behind_chunks(spread, times.forward_seconds, layers, chunks, first)
    if zero_stage >= 2:
        return reduce + before + last
    if "gradients" in m.software.overlaps:
        after = exposed_behind_chunks(reduce, times.backward_seconds, layers, chunks, final)
    return before + after + last


def sharding_traffic_seconds(
    m: Machine, s: LayerShape, w: Weights, zero_stage: int, group: ReplicaGroup, *, layers: Num = 1.0, end: Num = 0.0
) -> tuple[Num, Num]:
    """Compute the seconds of ZeRO's data-parallel traffic a micro-batch, both passes (Rajbhandari 2020, section 7)."""
    # Stage 2 reduces gradients every micro-batch, since no GPU may keep them all; stage 3 gathers weights in both
    # passes.
    if zero_stage < 2:
        return 0.0, 0.0
    exchange = replica_exchange(m, s, w, group)
    reduce = exchange(m.precision.gradient_bytes, layers=layers, end=end)
    if zero_stage == 2:
        return 0.0, reduce
    gather = exchange(gathered_bytes(m), layers=layers, end=end)
    return gather, gather + reduce
