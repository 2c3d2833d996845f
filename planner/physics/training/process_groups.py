"""Process groups: the network levels that a group of GPUs spans, and the weights on one GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.instance.workload import Model
from planner.physics.num import Num
from planner.physics.training.collectives import Level
from planner.physics.training.operations import LayerShape, Machine
from planner.physics.training.transformer import (
    dense_layer_parameters,
    embedding_parameters,
    expert_parameters,
    layer_parameters,
)


def group_levels(m: Machine, *, stride: int, ranks: Num, slowdown: Num = 1.0) -> tuple[Level, ...]:
    """Return the levels of a group of `ranks` GPUs that are `stride` GPUs apart.

    First the scale-up domain, then the NICs. A group larger than its part of the domain fills whole domains; each GPU
    carries its share over its own NIC.
    """
    inside = max(1, min(ranks, m.rack.gpus // stride)) if stride <= m.rack.gpus else 1
    return (scale_up(m, inside), nic(m, ranks / inside, slowdown))


def scale_up(m: Machine, ranks: Num) -> Level:
    """Return the level of the scale-up domain for a group with `ranks` ranks in it."""
    g = m.gpu
    return Level(
        name="scale-up",
        ranks=ranks,
        bytes_per_second=g.scale_up_bytes_per_second * g.scale_up_efficiency,
        latency_seconds=g.scale_up_latency_seconds,
        reduces_in_network=g.scale_up_reduces,
    )


def nic(m: Machine, ranks: Num, slowdown: Num = 1.0) -> Level:
    """Return the level between scale-up domains; a slowdown stretches its rate."""
    g = m.gpu
    return Level(
        name="NIC",
        ranks=ranks,
        bytes_per_second=g.nic_bytes_per_second * g.nic_efficiency / slowdown,
        latency_seconds=g.nic_latency_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """Layers of one kind: how many, whether their FFN is a mixture of experts, and the window of their attention."""

    layers: int
    routed: bool
    window: int | None


def layer_kinds(model: Model) -> tuple[LayerKind, ...]:
    """Return the kinds of layers of a model; windows go to the routed layers first."""
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
    """Return the dense layers at the front of a model with experts, before the kind that all others have."""
    return 0 if model.experts is None else model.experts.dense_layers


def front_by_stage(model: Model, layers_per_stage: Sequence[int], virtual_stages: int) -> tuple[int, ...]:
    """Count the front layers of each stage, whose chunks follow each other from stage to stage, round by round."""
    left, found = front_layers(model), [0] * len(layers_per_stage)
    for chunk in range(virtual_stages):
        for stage, layers in enumerate(layers_per_stage):
            size = layers // virtual_stages + (chunk < layers % virtual_stages)
            found[stage] += min(left, size)
            left -= min(left, size)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights on one GPU: of a layer those that every token uses, and its routed experts; a front layer; an embedding.

    `front` has no experts; it is a layer's own where the model has none.
    """

    shared: float
    experts: float
    end: float
    front: float

    @property
    def layer(self) -> float:
        """All weights of a layer on one GPU."""
        return self.shared + self.experts


def weights_of(m: Machine, s: LayerShape) -> Weights:
    """Return the weights of a layer on one GPU: TP divides all but the routed experts, which the EP group does.

    A layer of a model with experts is one that has them; the dense ones at the front are counted apart.
    """
    model, experts = m.model, m.model.experts
    end, dense = embedding_parameters(model) / s.tensor_parallel, dense_layer_parameters(model) / s.tensor_parallel
    if experts is None:
        return Weights(shared=dense, experts=0.0, end=end, front=dense)
    routed = experts.count * expert_parameters(model)
    rest = (layer_parameters(model) - routed) / s.tensor_parallel
    return Weights(shared=rest, experts=routed / s.expert_parallel, end=end, front=dense)


def kv_elements(model: Model) -> int:
    """Return the elements of keys and values of one layer and token, which context parallelism passes on."""
    latent = model.latent_attention
    if latent is None:
        return 2 * model.kv * model.head
    return latent.kv_rank + latent.head_rope
