"""The seconds of collectives, in the alpha-beta form; the levels that groups span; the exchange of keys and values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.instance.workload import Model
from planner.physics import Num
from planner.physics.training import transformer
from planner.physics.training.operations import LayerShape, Machine


@dataclass(frozen=True, slots=True)
class Level:
    """A network level of a collective: how many parts of the level below a group joins, and a GPU's share of links."""

    ranks: Num  # a group of 32 GPUs on four racks of 8 has 8 at the scale-up level, and 4 above it
    bytes_per_second: Num  # in one direction
    latency_seconds: float
    reduces_in_network: bool = False


def reduce_scatter_terms(levels: Sequence[Level]) -> tuple[Num, Num]:
    """Compute a reduce-scatter's seconds of steps, and seconds by byte of the tensor (Thakur 2005; Klenk 2020)."""
    # Level by level, each on the share that the one below left. At each level a ring takes (n-1)·alpha +
    # (n-1)/n·S/beta. A switch that reduces saves steps, not bytes: every rank still sends all parts but its own.
    steps_seconds, seconds_per_byte, share = 0.0, 0.0, 1.0
    for level in levels:
        n = level.ranks
        steps = np.minimum(n - 1, 1) if level.reduces_in_network else n - 1
        steps_seconds = steps_seconds + steps * level.latency_seconds
        seconds_per_byte = seconds_per_byte + share * (n - 1) / (n * level.bytes_per_second)
        share = share / n
    return steps_seconds, seconds_per_byte


def reduce_scatter(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Compute the seconds to reduce `size_bytes` (the entire tensor) and leave each rank its part."""
    steps_seconds, seconds_per_byte = reduce_scatter_terms(levels)
    return steps_seconds + seconds_per_byte * size_bytes


all_gather = reduce_scatter  # the same steps, backwards, until every rank has the entire tensor


def all_reduce(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Compute the seconds to reduce `size_bytes` on every rank (Thakur 2005; in switches Klenk 2020, Graham 2016)."""
    # A ring takes 2·(n-1)·alpha + 2·(n-1)/n·S/beta at each level. S is the entire tensor: a TP all-reduce moves b·s·h
    # elements, not 1/t of them. Where the switches reduce and multicast, each rank sends and receives S once: 2·alpha +
    # S/beta.
    total: Num = 0.0
    for level in levels:
        n = np.asarray(level.ranks)
        ring = 2 * (n - 1) * level.latency_seconds + 2 * (n - 1) / n * size_bytes / level.bytes_per_second
        switch = np.where(n > 1, 2 * level.latency_seconds + size_bytes / level.bytes_per_second, 0.0)
        total = total + (np.minimum(ring, switch) if level.reduces_in_network else ring)
        size_bytes = size_bytes / n
    return total


def all_to_all(size_bytes: Num, levels: Sequence[Level]) -> Num:
    """Compute the seconds for every rank to send `size_bytes` in equal parts to all ranks, itself among them."""
    # In a group of N, the traffic that crosses level k goes to the ranks in the same part of the level above and
    # another part of this one: (n_k - 1)·(ranks below) / N of a rank's bytes. Levels are different links and work at
    # the same time, so the slowest sets the time; their latencies add.
    group = math.prod(np.asarray(level.ranks) for level in levels)
    below: Num = 1.0
    busiest: Num = 0.0
    latency: Num = 0.0
    for level in levels:
        n = np.asarray(level.ranks)
        busiest = np.maximum(busiest, size_bytes * (n - 1) * below / group / level.bytes_per_second)
        latency = latency + np.minimum(n - 1, 1) * level.latency_seconds
        below = below * n
    return busiest + latency


def exposed_behind_chunks(each: Num, work: Num, layers: Num, chunks: Num, batches: Num) -> Num:
    """Compute the seconds of a collective for each layer that passes of a pipeline do not hide."""
    # A stage has l layers in v chunks, and runs a chunk for n micro-batches before it goes on to the next, w = `work`
    # seconds a layer; each layer's collective takes e = `each` seconds, one after another. Backward: a layer's
    # gradients are ready as the last of the n passes leaves it. From a chunk on, the collectives take e for each layer
    # of it and of the chunks after it, and overlap the rest of its last pass and n passes of each chunk after it. The
    # longest exposed time starts with the first chunk or the last one: max(e, e·l/v - (l/v - 1)·w, e·l - (((v - 1)·n +
    # 1)·l/v - 1)·w). Forward is its mirror: a layer's weights are needed as the first pass comes to it. With v = 1 the
    # formula is that of `exposed_tail_seconds`; it never falls with l.
    size = layers / chunks
    last, first = each * size - (size - 1) * work, each * layers - (((chunks - 1) * batches + 1) * size - 1) * work
    return np.maximum(each, np.maximum(last, first))


def exposed_tail_seconds(total_seconds: Num, backward_seconds: Num, layers: Num) -> Num:
    """Compute the exposed seconds of a per-layer collective, those that the concurrent backward pass does not hide."""
    # Layer k's exchange starts when its gradients are ready, so at the end at least the last layer's exchange remains,
    # or the part of all exchanges that exceeds the other layers' backward passes.
    return np.maximum(total_seconds / layers, total_seconds - (layers - 1) * backward_seconds)


def group_levels(m: Machine, *, stride: int, ranks: Num, slowdown: Num = 1.0) -> tuple[Level, ...]:
    """Return the levels of a collective of `ranks` GPUs, `stride` GPUs apart: the scale-up domain, then the NICs."""
    # A group larger than its part of the domain fills whole domains; each GPU carries its share over its own NIC.
    inside = max(1, min(ranks, m.rack.gpus // stride)) if stride <= m.rack.gpus else 1
    return (scale_up(m, inside), nic(m, ranks / inside, slowdown))


def scale_up(m: Machine, ranks: Num) -> Level:
    """Return the scale-up domain as the level of a collective with `ranks` ranks in it."""
    g = m.gpu
    rate = g.scale_up_bytes_per_second * g.scale_up_efficiency
    return Level(ranks, rate, g.scale_up_latency_seconds, reduces_in_network=g.scale_up_reduces)


def nic(m: Machine, ranks: Num, slowdown: Num = 1.0) -> Level:
    """Return the NICs as the level of a collective between scale-up domains; a slowdown stretches its rate."""
    g = m.gpu
    return Level(ranks, g.nic_bytes_per_second * g.nic_efficiency / slowdown, g.nic_latency_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """Layers of one kind of a model: how many, whether their FFN is a mixture of experts, and the attention window."""

    layers: int
    routed: bool
    window: int | None


def layer_kinds(model: Model) -> tuple[LayerKind, ...]:
    """Return the kinds of layers of a model, by FFN and attention; windows go to the routed layers first."""
    routed = 0 if model.experts is None else model.layers - model.experts.dense_layers
    narrow = model.window_layers if model.window is not None else 0
    counts = {
        (True, True): min(routed, narrow),
        (True, False): routed - min(routed, narrow),
        (False, True): narrow - min(routed, narrow),
        (False, False): model.layers - routed - (narrow - min(routed, narrow)),
    }
    return tuple(LayerKind(layers=n, routed=r, window=model.window if w else None) for (r, w), n in counts.items() if n)


def front_layers(model: Model) -> int:
    """Count the dense layers at the front of a model with experts, before the kind that all others have."""
    return 0 if model.experts is None else model.experts.dense_layers


def smaller_chunks_first(model: Model, stage: Num) -> Num:
    """Return whether a pipeline stage has its smaller chunks first: the first stage, which has the embedding."""
    # So Megatron counts the embedding as a layer (account_for_embedding_in_pipeline_split). Dense layers at the front
    # take the place of others of the first chunk, which is then a larger one.
    return (np.asarray(stage) == 0) & (front_layers(model) == 0)


def front_by_stage(model: Model, layers_per_stage: Sequence[int], virtual_stages: int) -> tuple[int, ...]:
    """Count the dense front layers of each pipeline stage, whose chunks follow each other stage by stage, in rounds."""
    left, found = front_layers(model), [0] * len(layers_per_stage)
    for chunk in range(virtual_stages):
        for stage, layers in enumerate(layers_per_stage):
            size = layers // virtual_stages + (chunk < layers % virtual_stages)
            found[stage] += min(left, size)
            left -= min(left, size)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Counts of weights on one GPU: of a layer those that every token uses, and its routed experts; an embedding's."""

    shared: float
    experts: float
    end: float  # an embedding
    front: float  # a front layer, which has no experts: any layer where the model has none

    @property
    def layer(self) -> float:
        """Count all weights of a layer on one GPU."""
        return self.shared + self.experts


def weights_of(m: Machine, s: LayerShape) -> Weights:
    """Return the weights of a layer on one GPU: TP divides all but the routed experts, which the EP group does."""
    model, experts = m.model, m.model.experts
    end = transformer.embedding_parameters(model) / s.tensor_parallel
    dense = transformer.dense_layer_parameters(model) / s.tensor_parallel
    if experts is None:
        return Weights(shared=dense, experts=0.0, end=end, front=dense)
    routed = experts.count * transformer.expert_parameters(model)
    rest = (transformer.layer_parameters(model) - routed) / s.tensor_parallel
    return Weights(shared=rest, experts=routed / s.expert_parallel, end=end, front=dense)


def keys_and_values_bytes(m: Machine, s: LayerShape) -> float:
    """Count the bytes of keys and values that one TP rank gathers of a layer and micro-batch, all ranks' together."""
    model, latent = m.model, m.model.latent_attention
    elements = 2 * model.kv * model.head if latent is None else latent.kv_rank + latent.head_rope  # of a token
    return s.micro_batch * m.sequence * elements / s.tensor_parallel * m.precision.collective_bytes


def context_exchange_seconds(m: Machine, s: LayerShape, attention: float, slowdown: float) -> float:
    """Compute the exposed seconds of passing keys and values round CP ranks in a pass (Thakur 2005); twice backward."""
    # Exposed is the time beyond attention where the framework overlaps the two, else all of it. The exchange is a
    # hierarchical all-gather: inside the rack, then over c racks, where each GPU carries its share over
    # its own NIC: (c-1)/c · K·c/κ bytes of K, at the NIC's rate over the slowdown.
    if s.context_parallel == 1:
        return 0.0
    levels = group_levels(m, stride=s.tensor_parallel, ranks=s.context_parallel, slowdown=slowdown)
    time = float(all_gather(keys_and_values_bytes(m, s), levels)) + m.software.collective_seconds
    return max(0.0, time - attention) if "context" in m.software.overlaps else time


def context_nic_seconds(m: Machine, s: LayerShape, slowdown: float = 1.0) -> float:
    """Compute the seconds that a layer's exchange of keys and values over CP ranks takes of the NIC in a pass."""
    if s.context_parallel == 1:
        return 0.0
    near, far = group_levels(m, stride=s.tensor_parallel, ranks=s.context_parallel, slowdown=slowdown)
    return float(all_gather(keys_and_values_bytes(m, s) / near.ranks, (far,)))  # none inside a rack
