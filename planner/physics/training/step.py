"""Prediction for one layout given in full: step time by part, memory by part, and what the network must hide."""

import math
from dataclasses import dataclass, replace

import numpy as np

from planner.instance.hardware import Accelerator, Rack
from planner.instance.instance import Instance
from planner.instance.network import ALLREDUCE_STEP_SHARE, PIPELINE_SEND_STEP_SHARE
from planner.instance.workload import Model, Software
from planner.physics.num import Num
from planner.physics.site import wan
from planner.physics.training import layer_time, memory, schedule
from planner.physics.training.layer_time import LayerTimes
from planner.physics.training.memory import Recompute
from planner.physics.training.operations import Machine, Shape, head_seconds
from planner.physics.training.process_groups import Weights, layer_kinds, weights_of
from planner.physics.training.schedule import Schedule
from planner.physics.training.transformer import model_flop_per_token

HALVINGS = 24  # of the range of slowdowns


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStrategy:
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
    context_parallel: int = 1
    expert_parallel: int = 1
    tensor_inner: int = 1
    schedule: Schedule = "1f1b"
    stages_per_rack: int = 1
    recomputed_layers_per_stage: tuple[int, ...] = ()

    @property
    def shape(self) -> Shape:
        """The part that sets a layer's cost; where layers are recomputed whole, the rest keep all but unfused scores."""
        return Shape(
            tensor_parallel=self.tensor_parallel,
            micro_batch=self.micro_batch,
            recompute="selective" if self.recompute == "full" else self.recompute,
            sequence_parallel=self.sequence_parallel,
            context_parallel=self.context_parallel,
            expert_parallel=self.expert_parallel,
            tensor_inner=self.tensor_inner,
        )

    @property
    def recomputed(self) -> tuple[int, ...]:
        """Layers of each stage that are recomputed whole: all of them under full recompute where no numbers are given."""
        if self.recompute != "full":
            return (0,) * len(self.layers_per_stage)
        return self.recomputed_layers_per_stage or self.layers_per_stage

    @property
    def data_parallel(self) -> int:
        """Replicas over all sites."""
        return sum(self.data_parallel_by_site)

    @property
    def least_replicas(self) -> int:
        """Replicas over which ZeRO divides state: those of one site, the smallest that works (sharded traffic never crosses the WAN)."""
        return min(d for d in self.data_parallel_by_site if d)

    @property
    def group_racks(self) -> int:
        """Racks of the largest replica group of a stage."""
        return layer_time.group_racks(max(self.data_parallel_by_site), self.replicas_per_rack)

    @property
    def gpus(self) -> int:
        """GPUs that work."""
        return self.data_parallel * self.pipeline_parallel * self.tensor_parallel * self.context_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the step takes from the network."""

    pipeline_send_slowdown: float
    allreduce_slowdown: float
    wan_gbps: float | None = None
    wan_rtt_ms: float = 0.0
    wan_round_trips: float = 1.0


def machine_of(instance: Instance) -> Machine:
    """Return the machine of a loaded instance, its catalogue names resolved."""
    gpu, rack, model = instance.hardware.accelerator, instance.hardware.rack, instance.workload.model
    software = instance.workload.software
    named = [x for x in (gpu, rack, model, software) if isinstance(x, str)]
    if (
        named
        or not isinstance(gpu, Accelerator)
        or not isinstance(rack, Rack)
        or not isinstance(model, Model)
        or not isinstance(software, Software)
    ):
        raise TypeError(f"the instance still holds catalogue names ({named}); load it through planner.load")
    if instance.hardware.nic_bytes_per_second is not None:
        gpu = gpu.model_copy(update={"nic_bytes_per_second": instance.hardware.nic_bytes_per_second})
    return Machine(
        gpu=gpu,
        rack=rack,
        software=software,
        model=model,
        precision=instance.workload.precision,
        sequence=instance.workload.sequence_length,
    )


def memory_limit_bytes(instance: Instance) -> float:
    """HBM of one GPU that a plan may fill."""
    gpu = machine_of(instance).gpu
    return memory.usable_bytes(gpu.hbm_bytes, instance.limits.memory_reserve_fraction, gpu.memory_reserve_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """Bytes of one mean layer and micro-batch on one GPU: kept between the passes, kept where it is recomputed, and needed in work."""

    kept: float
    checkpoint: float
    in_work: float


def layer_bytes(m: Machine, s: Shape) -> LayerBytes:
    """Count what a layer stores: the mean over the model's kinds; flash kernels keep neither scores nor dropout's masks."""
    flash = m.software.flash_attention
    mode: Recompute = "selective" if flash else s.recompute

    def stored(recompute: Recompute) -> float:
        each = (
            k.layers
            * memory.activation_bytes_per_layer(
                m.model,
                m.sequence,
                s.micro_batch,
                tensor_parallel=s.tensor_parallel,
                recompute=recompute,
                sequence_parallel=s.sequence_parallel,
                element_bytes=m.precision.activation_bytes,
                mask_bytes=0.0 if flash else 1.0,
                context_parallel=s.context_parallel,
                routed=k.routed,
            )
            for k in layer_kinds(m.model)
        )
        return float(math.fsum(each)) / m.model.layers

    dropped = m.software.selective_gemm_share if s.recompute == "selective" else 0.0
    return LayerBytes(kept=stored(mode) * (1 - dropped), checkpoint=stored("full"), in_work=stored("selective"))


def held_state_bytes(
    m: Machine, s: Shape, w: Weights, *, layers: Num, ends: Num, zero_stage: int, replicas: Num
) -> Num:
    """Bytes of weights, gradients and optimiser of so many layers and embeddings on one GPU, sharded over `replicas` where ZeRO does.

    CP ranks hold the same weights and shard them too; routed experts are held by fewer GPUs and sharded over those.
    The framework's flat copies and buckets are counted with them.
    """

    def held(parameters: Num, shards: Num) -> Num:
        divided = m.software.sharded_buffer_bytes_per_parameter / (shards if zero_stage >= 1 else 1)
        state = memory.state_bytes(parameters, m.precision, zero_stage=zero_stage, shards=shards)
        return state + parameters * (m.software.buffer_bytes_per_parameter + divided)

    shared = held(layers * w.shared + ends * w.end, replicas * s.context_parallel)
    if not w.experts:
        return shared
    return shared + held(layers * w.experts, np.maximum(1, replicas * s.gpus / s.expert_parallel))


def stage_memory(
    m: Machine,
    s: Shape,
    *,
    pipeline: Num,
    virtual_stages: Num,
    micro_batches: Num,
    zero_stage: int,
    replicas: Num,
    stage: Num,
    layers: Num,
    recomputed: Num = 0,
    order: Schedule = "1f1b",
) -> dict[str, Num]:
    """Bytes on a GPU of a stage with `layers` layers, `recomputed` of them whole, by part; broadcasts over all but the shape.

    An interleaved stage keeps its chunks in flight, the largest with ceil(l/v) layers; those recomputed are spread over all of them.
    """
    w, each = weights_of(m, s), layer_bytes(m, s)
    stage, layers, recomputed = np.asarray(stage), np.asarray(layers), np.asarray(recomputed)
    in_flight = schedule.chunks_in_flight(order, stage, pipeline, virtual_stages, micro_batches)
    again = recomputed / np.maximum(layers, 1)
    chunk = layer_time.layers_per_chunk(layers, virtual_stages) * (each.kept + again * (each.checkpoint - each.kept))
    working = np.where(recomputed > 0, each.in_work, 0.0)
    if zero_stage >= 3:
        working = (
            working + 2 * w.layer * m.precision.working_parameter_bytes
        )  # one layer's weights in use, one's in flight
    ends = memory.end_copies(m.model, stage, pipeline)
    logits = memory.logits_bytes(
        m.model,
        m.sequence,
        s.micro_batch,
        s.tensor_parallel,
        context_parallel=s.context_parallel,
        logit_bytes=m.software.logit_memory_bytes,
    )
    return {
        "state": held_state_bytes(m, s, w, layers=layers, ends=ends, zero_stage=zero_stage, replicas=replicas),
        "activations": in_flight * chunk,
        "working": working,
        "logits": (stage == np.asarray(pipeline) - 1) * logits,
    }


def memory_by_stage(m: Machine, cut: ParallelStrategy) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Bytes by part on a GPU of every stage."""
    stages = np.arange(cut.pipeline_parallel)
    parts = stage_memory(
        m,
        cut.shape,
        pipeline=cut.pipeline_parallel,
        virtual_stages=cut.virtual_stages,
        micro_batches=cut.micro_batches,
        zero_stage=cut.zero_stage,
        replicas=cut.least_replicas,
        stage=stages,
        layers=np.array(cut.layers_per_stage),
        recomputed=np.array(cut.recomputed),
        order=cut.schedule,
    )
    return {k: np.broadcast_to(np.asarray(v, dtype=np.float64), stages.shape) for k, v in parts.items()}


def worst_memory(m: Machine, cut: ParallelStrategy) -> dict[str, float]:
    """Bytes by part on the GPU that holds most."""
    whole = memory_by_stage(m, cut)
    worst = int(np.argmax(sum(whole.values())))
    return {k: float(v[worst]) for k, v in whole.items()}


def stage_gradient_bytes(m: Machine, s: Shape, layers: Num, *, stage: Num, pipeline: int) -> Num:
    """Gradient bytes of a whole stage, all its TP ranks and experts: what the sites exchange for it."""
    w = weights_of(m, s)
    whole = layers * (w.shared * s.tensor_parallel + w.experts * s.expert_parallel)
    return (whole + memory.stage_extra_parameters(m.model, stage, pipeline)) * m.precision.gradient_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """Seconds per layer and micro-batch on one layout: its own work, what ZeRO's traffic exposes, and what that leaves free on the NIC."""

    times: LayerTimes
    sharding: Num
    free_forward: Num
    free_backward: Num

    @property
    def layer(self) -> Num:
        """Forward and backward of one layer, nothing recomputed whole."""
        return self.times.forward + self.times.backward + self.sharding


def paces(
    m: Machine, s: Shape, times: LayerTimes, *, zero_stage: int, replicas_per_rack: int, racks: Num, slowdown: float
) -> Paces:
    """Return the pace of a layer; broadcasts over the racks of a group."""
    traffic = layer_time.sharding_traffic_seconds(
        m, s, weights_of(m, s), zero_stage, replicas_per_rack, racks, slowdown
    )
    forward, backward = traffic
    leak = m.software.sharding_exposed * (forward + backward)
    return Paces(
        times=times,
        sharding=np.maximum(0.0, forward - times.forward) + np.maximum(0.0, backward - times.backward) + leak,
        free_forward=np.maximum(0.0, times.forward - forward),
        free_backward=np.maximum(0.0, times.backward - backward),
    )


def tail_parts(
    m: Machine,
    s: Shape,
    c: Conditions,
    *,
    pipeline: int,
    zero_stage: int,
    replicas_per_rack: int,
    racks: Num,
    replicas: Num,
    most_layers: Num,
    layer_backward: float,
    sites: int,
) -> dict[str, Num]:
    """Once-a-step parts behind the pipeline: gradients inside a site, between sites, the optimiser and the host.

    The stage that ends last is taken to be as large as the largest; broadcasts over racks, replicas and layers.
    """
    w, end = weights_of(m, s), memory.end_copies(m.model, 0, pipeline)
    held = held_state_bytes(m, s, w, layers=most_layers, ends=end, zero_stage=zero_stage, replicas=replicas)
    between: Num = 0.0
    if sites > 1 and c.wan_gbps is not None:
        size = wan.exchange_bytes(stage_gradient_bytes(m, s, most_layers, stage=0, pipeline=pipeline), sites)
        between = layer_time.wan_tail_seconds(
            size, c.wan_gbps, c.wan_rtt_ms, c.wan_round_trips, most_layers, layer_backward
        )
    where = (replicas_per_rack, racks, c.allreduce_slowdown)
    rest = {"zero_stage": zero_stage, "layers": most_layers, "layer_backward": layer_backward, "end": end}
    return {
        "data_parallel": layer_time.data_parallel_tail_seconds(m, s, w, *where, **rest),
        "between_sites": between,
        "optimizer": layer_time.optimizer_seconds(m.gpu, held),
        "host": m.software.step_seconds,
    }


def paces_of(m: Machine, c: Conditions, cut: ParallelStrategy) -> Paces:
    """Return the pace of a layout given in full."""
    return paces(
        m,
        cut.shape,
        layer_time.layer_times(m, cut.shape),
        zero_stage=cut.zero_stage,
        replicas_per_rack=cut.replicas_per_rack,
        racks=cut.group_racks,
        slowdown=c.allreduce_slowdown,
    )


def bubble_of(
    pace: Paces, order: Schedule, pipeline: Num, virtual_stages: Num, slowest: Num, *, hop: Num, micro_batches: Num
) -> Num:
    """Time to fill and drain the pipeline at the pace of its slowest stage (seconds a micro-batch), in which the passes share as in a layer."""
    forward, weights = pace.times.forward / pace.layer, pace.times.weight_gradient / pace.layer
    chunk = slowest / virtual_stages
    passes = (chunk * forward, chunk * (1 - forward - weights), chunk * weights)
    return schedule.bubble_seconds(order, pipeline, virtual_stages, *passes, hop, micro_batches=micro_batches)


def exposed_each(m: Machine, pace: Paces, virtual_stages: Num, layers_a_stage: Num, hop: Num) -> Num:
    """Seconds of pipeline exchange that each micro-batch exposes, the window that of a stage of the mean size."""
    chunk = layers_a_stage / virtual_stages
    windows = (chunk * pace.free_forward, chunk * pace.free_backward)
    return layer_time.exposed_pipeline_send_seconds(
        1, virtual_stages, hop, *windows, overlap=m.software.pipeline_overlap
    )


def step_breakdown(m: Machine, c: Conditions, cut: ParallelStrategy) -> dict[str, float]:
    """Seconds of one step by part; the parts sum to the step.

    The slowest stage, with what it recomputes and the head where it is the last, sets the pace of the steady state;
    filling and draining pass every other stage once, each at the pace of the slowest without the head.
    """
    pace = paces_of(m, c, cut)
    times, p, v = pace.times, cut.pipeline_parallel, cut.virtual_stages
    heads = [0.0] * (p - 1) + [head_seconds(m, cut.shape)]
    stage = [float(n * pace.layer + r * times.again) for n, r in zip(cut.layers_per_stage, cut.recomputed, strict=True)]
    slowest = max(range(p), key=lambda i: stage[i] + heads[i])
    layers, again, head = cut.layers_per_stage[slowest], cut.recomputed[slowest], heads[slowest]
    hop = (
        layer_time.pipeline_send_seconds(m, cut.shape, c.pipeline_send_slowdown, inside=cut.stages_per_rack >= p)
        if p > 1
        else 0.0
    )
    n = float(schedule.effective_micro_batches(cut.micro_batches, p, v))
    parts = {
        **{part: n * layers * seconds for part, seconds in times.parts.items()},
        "sharding": n * layers * pace.sharding,
        "head": n * head,
        "pipeline_fill": bubble_of(pace, cut.schedule, p, v, max(stage), hop=hop, micro_batches=cut.micro_batches),
        "pipeline_exchange": n * exposed_each(m, pace, v, m.model.layers / p, hop),
        **tail_parts(
            m,
            cut.shape,
            c,
            pipeline=p,
            zero_stage=cut.zero_stage,
            replicas_per_rack=cut.replicas_per_rack,
            racks=cut.group_racks,
            replicas=cut.least_replicas,
            most_layers=max(cut.layers_per_stage),
            layer_backward=times.backward,
            sites=sum(d > 0 for d in cut.data_parallel_by_site),
        ),
    }
    parts["recompute"] += n * again * times.again
    parts["launch"] += n * m.software.microbatch_seconds
    return {k: float(v) for k, v in parts.items()}


def pipeline_send_window_seconds(
    m: Machine, cut: ParallelStrategy, pace: Paces, step_seconds: float, *, share: float | None
) -> float:
    """Time that a pipeline exchange may take: what compute hides, and, unless the fabric is fixed by hand (None), no more than a share of the step.

    Exchanges that nothing hides are the first micro-batch's on its way through all chunks and back, and without
    interleaving those of every micro-batch.
    """
    hidden = float(max(1, min(cut.layers_per_stage) // cut.virtual_stages) * min(pace.free_forward, pace.free_backward))
    if share is None:
        return hidden
    shown = 2 * (cut.pipeline_parallel * cut.virtual_stages - 1) + (
        2 * cut.micro_batches if cut.virtual_stages == 1 else 0
    )
    return min(hidden, layer_time.pipeline_send_nic_seconds(m, cut.shape) + share * step_seconds / max(1, shown))


def allreduce_window_seconds(
    m: Machine, c: Conditions, cut: ParallelStrategy, ring_seconds: float, *, share: float | None
) -> float:
    """Time that a layer's all-reduce may take: what its backward pass hides, and, unless the fabric is fixed, no more than a share of the step.

    What rings expose grows with their slowdown, so that the largest one within the share is found by bisection.
    """
    hidden = layer_time.layer_times(m, cut.shape).backward
    if share is None or not 0 < ring_seconds < hidden:
        return hidden

    def step_at(slowdown: float) -> float:
        return sum(step_breakdown(m, replace(c, allreduce_slowdown=slowdown), cut).values())

    low, high, allowed = 1.0, hidden / ring_seconds, step_at(1.0) * (1 + share)
    if step_at(high) <= allowed:
        return hidden
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if step_at(middle) <= allowed else (low, middle)
    return low * ring_seconds


def metrics(instance: Instance, c: Conditions, cut: ParallelStrategy) -> dict[str, float | dict[str, float]]:
    """Predict everything that a plan reports of a layout: the fields of plan.LayoutMetrics."""
    m = machine_of(instance)
    parts, held = step_breakdown(m, c, cut), worst_memory(m, cut)
    step = sum(parts.values())
    tokens = float(cut.data_parallel * cut.micro_batches * cut.micro_batch * m.sequence)
    pace = paces_of(m, c, cut)
    times, most = pace.times, max(cut.layers_per_stage)
    stages = np.arange(cut.pipeline_parallel)
    gradient = stage_gradient_bytes(
        m, cut.shape, np.array(cut.layers_per_stage), stage=stages, pipeline=cut.pipeline_parallel
    )
    ring = layer_time.ring_seconds(m, cut.shape, weights_of(m, cut.shape), cut.replicas_per_rack, cut.group_racks)
    piped = cut.pipeline_parallel > cut.stages_per_rack
    fixed = any(p.startswith("fabric.") for p in instance.pins)
    asked = instance.network
    hop_share, ring_share = (
        (asked.pipeline_send_step_share, asked.allreduce_step_share)
        if asked
        else (PIPELINE_SEND_STEP_SHARE, ALLREDUCE_STEP_SHARE)
    )
    return {
        "step_seconds": step,
        "breakdown_seconds": parts,
        "tokens_per_step": tokens,
        "memory_bytes_per_gpu": sum(held.values()),
        "memory_breakdown_bytes": held,
        "memory_limit_bytes": memory_limit_bytes(instance),
        "mfu": layer_time.model_flop_utilisation(
            tokens * model_flop_per_token(m.model, m.sequence),
            cut.gpus,
            m.gpu.peak_flop_per_second[m.precision.compute],
            step,
        ),
        "days_to_train": layer_time.days_to_train(
            instance.workload.tokens, tokens, step, instance.workload.availability
        ),
        "pipeline_send_seconds": layer_time.pipeline_send_seconds(m, cut.shape, c.pipeline_send_slowdown)
        if piped
        else 0.0,
        "pipeline_send_nic_seconds": layer_time.pipeline_send_nic_seconds(m, cut.shape) if piped else 0.0,
        "pipeline_send_window_seconds": pipeline_send_window_seconds(
            m, cut, pace, step, share=None if fixed else hop_share
        ),
        "allreduce_layer_seconds": float(ring),
        "allreduce_window_seconds": allreduce_window_seconds(
            m, c, cut, float(ring), share=None if fixed else ring_share
        ),
        "gradient_bytes_per_stage": float(np.max(gradient)),
        "wan_window_seconds": most * times.backward,
    }
