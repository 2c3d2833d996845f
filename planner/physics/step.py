"""Prediction for one layout given in full: step time by part, memory by part, and what the network must hide."""

from dataclasses import dataclass

import numpy as np

from planner.instance import Accelerator, Instance, Model, Rack
from planner.physics import memory, steptime, wan
from planner.physics.memory import Recompute
from planner.physics.num import Num
from planner.physics.steptime import LayerTimes, Machine, Shape
from planner.physics.transformer import layer_parameters, model_flop_per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A layout in full: how one step is cut over GPUs."""

    tensor_parallel: int
    pipeline_parallel: int
    data_parallel_by_site: tuple[int, ...]
    virtual_stages: int
    micro_batch: int
    micro_batches: int
    recompute: Recompute
    sequence_parallel: bool
    zero_stage: int
    layers_per_stage: tuple[int, ...]
    replicas_per_rack: int

    @property
    def shape(self) -> Shape:
        """The part that sets a layer's cost."""
        return Shape(
            tensor_parallel=self.tensor_parallel, micro_batch=self.micro_batch, recompute=self.recompute, sequence_parallel=self.sequence_parallel
        )

    @property
    def data_parallel(self) -> int:
        """Replicas over all sites."""
        return sum(self.data_parallel_by_site)

    @property
    def shards(self) -> int:
        """Replicas over which ZeRO divides state: those of one site, the smallest that works (sharded traffic never crosses the WAN)."""
        return min(d for d in self.data_parallel_by_site if d)

    @property
    def group_racks(self) -> int:
        """Racks of the largest replica group of a stage."""
        return steptime.group_racks(max(self.data_parallel_by_site), self.replicas_per_rack)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the step takes from the network."""

    hop_slowdown: float
    allreduce_slowdown: float
    wan_gbps: float | None = None
    wan_rtt_ms: float = 0.0
    wan_round_trips: float = 1.0


def machine_of(instance: Instance) -> Machine:
    """Return the machine of a loaded instance, its catalogue names resolved."""
    gpu, rack, model = instance.hardware.accelerator, instance.hardware.rack, instance.workload.model
    if not isinstance(gpu, Accelerator) or not isinstance(rack, Rack) or not isinstance(model, Model):
        raise TypeError("the instance still holds catalogue names; load it through planner.load")
    return Machine(gpu=gpu, rack=rack, model=model, precision=instance.workload.precision, sequence=instance.workload.sequence_length)


def memory_limit_bytes(instance: Instance) -> float:
    """HBM of one GPU that a plan may fill."""
    gpu = machine_of(instance).gpu
    return memory.usable_bytes(gpu.hbm_bytes, instance.limits.memory_reserve_fraction, gpu.memory_reserve_bytes)


def stage_memory(
    m: Machine, s: Shape, *, pipeline: int, virtual_stages: int, micro_batches: Num, zero_stage: int, shards: Num, stage: Num, layers: Num
) -> dict[str, Num]:
    """Bytes on a GPU of a stage with `layers` layers, by part; broadcasts over stages, layers, micro-batches and shards."""
    t, model, sequence = s.tensor_parallel, m.model, m.sequence
    parameters = (layers * layer_parameters(model) + memory.stage_extra_parameters(model, stage, pipeline)) / t
    activation = memory.activation_bytes_per_layer(
        model,
        sequence,
        s.micro_batch,
        tensor_parallel=t,
        recompute=s.recompute,
        sequence_parallel=s.sequence_parallel,
        element_bytes=m.precision.activation_bytes,
    )
    in_flight = memory.chunks_in_flight(np.asarray(stage), pipeline, virtual_stages, micro_batches)
    working = memory.working_bytes(
        model,
        sequence,
        s.micro_batch,
        m.precision,
        tensor_parallel=t,
        recompute=s.recompute,
        sequence_parallel=s.sequence_parallel,
        zero_stage=zero_stage,
    )
    return {
        "state": memory.state_bytes(parameters, m.precision, zero_stage=zero_stage, shards=shards),
        "activations": in_flight * steptime.layers_per_chunk(layers, virtual_stages) * activation,
        "working": working,
        "logits": (np.asarray(stage) == pipeline - 1) * memory.logits_bytes(model, sequence, s.micro_batch, t),
    }


def worst_memory(m: Machine, cut: Cut) -> dict[str, float]:
    """Bytes by part on the GPU that holds most."""
    stages = np.arange(cut.pipeline_parallel)
    parts = stage_memory(
        m,
        cut.shape,
        pipeline=cut.pipeline_parallel,
        virtual_stages=cut.virtual_stages,
        micro_batches=cut.micro_batches,
        zero_stage=cut.zero_stage,
        shards=cut.shards,
        stage=stages,
        layers=np.array(cut.layers_per_stage),
    )
    whole = {k: np.broadcast_to(v, stages.shape) for k, v in parts.items()}
    worst = int(np.argmax(sum(whole.values())))
    return {k: float(v[worst]) for k, v in whole.items()}


def stage_gradient_bytes(m: Machine, layers: Num, *, stage: Num, pipeline: int) -> Num:
    """Gradient bytes of a whole stage, all its TP ranks: what the sites exchange for it."""
    return (layers * layer_parameters(m.model) + memory.stage_extra_parameters(m.model, stage, pipeline)) * m.precision.gradient_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """Seconds per layer and micro-batch on one layout: its own work, what ZeRO's traffic exposes, and what that leaves free on the NIC."""

    times: LayerTimes
    sharding: Num
    free_forward: Num
    free_backward: Num

    @property
    def layer(self) -> Num:
        """Forward and backward of one layer."""
        return self.times.forward + self.times.backward + self.sharding


def paces(m: Machine, times: LayerTimes, *, tensor_parallel: int, zero_stage: int, replicas_per_rack: int, racks: Num, slowdown: float) -> Paces:
    """Return the pace of a layer; broadcasts over the racks of a group."""
    beside_forward, beside_backward = steptime.sharding_traffic_seconds(m, tensor_parallel, zero_stage, replicas_per_rack, racks, slowdown)
    return Paces(
        times=times,
        sharding=np.maximum(0.0, beside_forward - times.forward) + np.maximum(0.0, beside_backward - times.backward),
        free_forward=np.maximum(0.0, times.forward - beside_forward),
        free_backward=np.maximum(0.0, times.backward - beside_backward),
    )


def tail_parts(
    m: Machine,
    c: Conditions,
    *,
    tensor_parallel: int,
    pipeline: int,
    zero_stage: int,
    replicas_per_rack: int,
    racks: Num,
    shards: Num,
    most_layers: Num,
    layer_backward: float,
    sites: int,
) -> dict[str, Num]:
    """Once-a-step parts behind the pipeline: gradients inside a site, between sites, and the optimiser.

    The stage that ends last is taken to be as large as the largest; broadcasts over racks, shards and layers.
    """
    end = memory.stage_extra_parameters(m.model, 0, pipeline)
    held = memory.state_bytes(
        (most_layers * layer_parameters(m.model) + end) / tensor_parallel, m.precision, zero_stage=zero_stage, shards=shards if zero_stage else 1
    )
    between: Num = 0.0
    if sites > 1 and c.wan_gbps is not None:
        size = wan.exchange_bytes(stage_gradient_bytes(m, most_layers, stage=0, pipeline=pipeline), sites)
        between = steptime.wan_tail_seconds(size, c.wan_gbps, c.wan_rtt_ms, c.wan_round_trips, most_layers, layer_backward)
    return {
        "data_parallel": steptime.data_parallel_tail_seconds(
            m,
            tensor_parallel,
            replicas_per_rack,
            racks,
            c.allreduce_slowdown,
            zero_stage=zero_stage,
            layers=most_layers,
            layer_backward=layer_backward,
            end_parameters=end,
        ),
        "between_sites": between,
        "optimizer": steptime.optimizer_seconds(m.gpu, held),
    }


def paces_of(m: Machine, c: Conditions, cut: Cut) -> Paces:
    """Return the pace of a layout given in full."""
    return paces(
        m,
        steptime.layer_times(m, cut.shape),
        tensor_parallel=cut.tensor_parallel,
        zero_stage=cut.zero_stage,
        replicas_per_rack=cut.replicas_per_rack,
        racks=cut.group_racks,
        slowdown=c.allreduce_slowdown,
    )


def step_breakdown(m: Machine, c: Conditions, cut: Cut) -> dict[str, float]:
    """Seconds of one step by part; the parts sum to the step.

    The slowest stage sets the pace of the steady state; filling and draining pass every other stage once.
    """
    pace = paces_of(m, c, cut)
    times = pace.times
    head = steptime.head_seconds(m, cut.shape)
    most = max(cut.layers_per_stage)
    last = cut.layers_per_stage[-1]
    last_is_slowest = last * pace.layer + head >= most * pace.layer
    layers, extra = (last, head) if last_is_slowest else (most, 0.0)
    hop = steptime.hop_seconds(m, cut.shape, c.hop_slowdown) if cut.pipeline_parallel > 1 else 0.0
    chunk = float(steptime.layers_per_chunk(most, cut.virtual_stages))
    n = cut.micro_batches
    parts = {
        "matrix": n * layers * times.matrix,
        "vector": n * layers * times.vector,
        "recompute": n * layers * times.recompute,
        "tensor_parallel": n * layers * times.tensor_parallel,
        "sharding": n * layers * pace.sharding,
        "head": n * extra,
        "pipeline_fill": steptime.fill_seconds(cut.pipeline_parallel, chunk * pace.layer, hop),
        "pipeline_exchange": steptime.exposed_hops_seconds(n, cut.virtual_stages, hop, chunk * pace.free_forward, chunk * pace.free_backward),
        **tail_parts(
            m,
            c,
            tensor_parallel=cut.tensor_parallel,
            pipeline=cut.pipeline_parallel,
            zero_stage=cut.zero_stage,
            replicas_per_rack=cut.replicas_per_rack,
            racks=cut.group_racks,
            shards=cut.shards,
            most_layers=most,
            layer_backward=times.backward,
            sites=sum(d > 0 for d in cut.data_parallel_by_site),
        ),
    }
    return {k: float(v) for k, v in parts.items()}


def metrics(instance: Instance, c: Conditions, cut: Cut) -> dict[str, float | dict[str, float]]:
    """Predict everything that a plan reports of a layout: the fields of plan.LayoutMetrics."""
    m = machine_of(instance)
    parts, held = step_breakdown(m, c, cut), worst_memory(m, cut)
    step = sum(parts.values())
    tokens = float(cut.data_parallel * cut.micro_batches * cut.micro_batch * m.sequence)
    gpus = cut.data_parallel * cut.pipeline_parallel * cut.tensor_parallel
    pace = paces_of(m, c, cut)
    times, most = pace.times, max(cut.layers_per_stage)
    stages = np.arange(cut.pipeline_parallel)
    gradient = stage_gradient_bytes(m, np.array(cut.layers_per_stage), stage=stages, pipeline=cut.pipeline_parallel)
    ring = steptime.ring_seconds(m, layer_parameters(m.model), cut.tensor_parallel, cut.replicas_per_rack, cut.group_racks)
    piped = cut.pipeline_parallel > 1
    return {
        "step_seconds": step,
        "breakdown_seconds": parts,
        "tokens_per_step": tokens,
        "memory_bytes_per_gpu": sum(held.values()),
        "memory_breakdown_bytes": held,
        "memory_limit_bytes": memory_limit_bytes(instance),
        "mfu": steptime.model_flop_utilisation(
            tokens * model_flop_per_token(m.model, m.sequence), gpus, m.gpu.peak_flop_per_second[m.precision.compute], step
        ),
        "days_to_train": steptime.days_to_train(instance.workload.tokens, tokens, step, instance.workload.availability),
        "hop_seconds": steptime.hop_seconds(m, cut.shape, c.hop_slowdown) if piped else 0.0,
        "hop_nic_seconds": steptime.hop_nic_seconds(m, cut.shape) if piped else 0.0,
        "hop_window_seconds": float(max(1, min(cut.layers_per_stage) // cut.virtual_stages) * min(pace.free_forward, pace.free_backward)),
        "allreduce_layer_seconds": float(ring),
        "allreduce_window_seconds": times.backward,
        "gradient_bytes_per_stage": float(np.max(gradient)),
        "wan_window_seconds": most * times.backward,
    }
