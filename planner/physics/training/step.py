"""Prediction for one layout given in full: step time by part, and what the network must hide."""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from planner.instance.hardware import Accelerator, Rack
from planner.instance.instance import Instance
from planner.instance.network import ALLREDUCE_STEP_SHARE, PIPELINE_SEND_STEP_SHARE
from planner.instance.workload import Model, Software
from planner.physics.num import Num
from planner.physics.site import wan
from planner.physics.training import layer_time, memory, schedule
from planner.physics.training.layer_time import LayerTimes
from planner.physics.training.operations import Machine, Shape, head_seconds
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.process_groups import weights_of
from planner.physics.training.schedule import Schedule
from planner.physics.training.stage_memory import gpu_state_bytes, stage_gradient_bytes, worst_memory
from planner.physics.training.transformer import model_flop_per_token

Part = TypeVar("Part", Accelerator, Rack, Software, Model)
BISECTIONS = 24  # of the range of slowdowns: 2^-24 of it is far below the checker's tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the step takes from the network."""

    pipeline_send_slowdown: float
    allreduce_slowdown: float
    wan_gbps: float | None = None
    wan_rtt_ms: float = 0.0
    wan_round_trips: float = 1.0


def machine_of(instance: Instance) -> Machine:
    """Return the machine of a loaded instance, its catalogue names resolved.

    Raises
    ------
    TypeError
        A catalogue name is left in the instance.
    """
    hardware, workload = instance.hardware, instance.workload
    gpu = _resolved(hardware.accelerator, Accelerator)
    if hardware.nic_bytes_per_second is not None:
        gpu = gpu.model_copy(update={"nic_bytes_per_second": hardware.nic_bytes_per_second})
    return Machine(
        gpu=gpu,
        rack=_resolved(hardware.rack, Rack),
        software=_resolved(workload.software, Software),
        model=_resolved(workload.model, Model),
        precision=workload.precision,
        sequence=workload.sequence_length,
    )


def _resolved(part: object, kind: type[Part]) -> Part:
    if not isinstance(part, kind):
        raise TypeError(f"the instance still has a catalogue name ({part!r}); load it through planner.load")
    return part


def memory_limit_bytes(instance: Instance) -> float:
    """Return the bytes of HBM of one GPU that a plan may fill."""
    gpu = machine_of(instance).gpu
    return memory.usable_bytes(gpu.hbm_bytes, instance.limits.memory_reserve_fraction, gpu.memory_reserve_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardedTimes:
    """Seconds of one layer and micro-batch beside ZeRO's traffic: what that exposes, and the time it leaves the NIC."""

    times: LayerTimes
    sharding_seconds: Num
    free_forward_seconds: Num
    free_backward_seconds: Num

    @property
    def layer_seconds(self) -> Num:
        """Forward and backward of one layer, without full recompute."""
        return self.times.forward_seconds + self.times.backward_seconds + self.sharding_seconds


def sharded_times(
    m: Machine, s: Shape, times: LayerTimes, *, zero_stage: int, replicas_per_rack: int, racks: Num, slowdown: float
) -> ShardedTimes:
    """Compute a layer's times beside ZeRO's traffic, in seconds; broadcasts over the racks of a group.

    Each pass hides its traffic up to its own length, but for the share that the framework exposes in any case.
    """
    forward, backward = layer_time.sharding_traffic_seconds(
        m, s, weights_of(m, s), zero_stage, replicas_per_rack, racks, slowdown
    )
    f, b = times.forward_seconds, times.backward_seconds
    exposed = m.software.sharding_exposed * (forward + backward)
    return ShardedTimes(
        times=times,
        sharding_seconds=np.maximum(0.0, forward - f) + np.maximum(0.0, backward - b) + exposed,
        free_forward_seconds=np.maximum(0.0, f - forward),
        free_backward_seconds=np.maximum(0.0, b - backward),
    )


def strategy_times(m: Machine, c: Conditions, strategy: ParallelStrategy) -> ShardedTimes:
    """Compute the times of a layer under a strategy given in full."""
    return sharded_times(
        m,
        strategy.shape,
        layer_time.layer_times(m, strategy.shape),
        zero_stage=strategy.zero_stage,
        replicas_per_rack=strategy.replicas_per_rack,
        racks=strategy.group_racks(m.rack.gpus),
        slowdown=c.allreduce_slowdown,
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
    max_layers: Num,
    backward_seconds: float,
    sites: int,
) -> dict[str, Num]:
    """Compute the seconds that come once a step: gradients within and between sites, optimiser, CPU overhead.

    The stage that ends last is taken to be as large as the largest; broadcasts over racks, replicas and layers.
    """
    w, end = weights_of(m, s), memory.end_copies(m.model, 0, pipeline)
    state = gpu_state_bytes(m, s, w, layers=max_layers, ends=end, zero_stage=zero_stage, replicas=replicas)
    between: Num = 0.0
    if sites > 1 and c.wan_gbps is not None:
        size = wan.exchange_bytes(stage_gradient_bytes(m, s, max_layers, stage=0, pipeline=pipeline), sites)
        line = (c.wan_gbps, c.wan_rtt_ms, c.wan_round_trips)
        between = layer_time.wan_tail_seconds(size, *line, max_layers, backward_seconds)
    group = (replicas_per_rack, racks, c.allreduce_slowdown)
    rest = {"zero_stage": zero_stage, "layers": max_layers, "backward_seconds": backward_seconds, "end": end}
    return {
        "data_parallel": layer_time.data_parallel_tail_seconds(m, s, w, *group, **rest),
        "between_sites": between,
        "optimizer": layer_time.optimizer_seconds(m.gpu, state),
        "cpu_overhead": m.software.step_seconds,
    }


def pipeline_bubble_seconds(
    sharded: ShardedTimes,
    order: Schedule,
    pipeline: Num,
    virtual_stages: Num,
    stage_seconds: Num,
    *,
    send_seconds: Num,
    micro_batches: Num,
) -> Num:
    """Compute the seconds that fill and drain the pipeline, every stage as long a micro-batch as `stage_seconds`.

    The passes share a stage's time as they share a layer's (`schedule.bubble_seconds`).
    """
    layer = sharded.layer_seconds
    forward, weights = sharded.times.forward_seconds / layer, sharded.times.weight_gradient_seconds / layer
    chunk = stage_seconds / virtual_stages
    passes = (chunk * forward, chunk * (1 - forward - weights), chunk * weights)
    return schedule.bubble_seconds(order, pipeline, virtual_stages, *passes, send_seconds, micro_batches=micro_batches)


def exposed_send_seconds(
    m: Machine, sharded: ShardedTimes, virtual_stages: Num, stage_layers: Num, send_seconds: Num
) -> Num:
    """Compute the seconds of pipeline sends that each micro-batch exposes, beside a stage of the mean size."""
    chunk = stage_layers / virtual_stages
    windows = (chunk * sharded.free_forward_seconds, chunk * sharded.free_backward_seconds)
    overlap = m.software.pipeline_overlap
    return layer_time.exposed_pipeline_send_seconds(1, virtual_stages, send_seconds, *windows, overlap=overlap)


def step_breakdown(m: Machine, c: Conditions, strategy: ParallelStrategy) -> dict[str, float]:
    """Compute the seconds of one step by part; the parts sum to the step.

    The slowest stage, with what it recomputes and the head where it is the last, sets the time of a micro-batch in
    the steady state; filling and draining pass every other stage once, each as long as the slowest without the head.
    """
    sharded, p, v = strategy_times(m, c, strategy), strategy.pipeline_parallel, strategy.virtual_stages
    layers, recomputed, times = strategy.layers_per_stage, strategy.recomputed, sharded.times
    heads = [0.0] * (p - 1) + [head_seconds(m, strategy.shape)]
    stages = [
        float(n * sharded.layer_seconds + r * times.recompute_seconds) for n, r in zip(layers, recomputed, strict=True)
    ]
    slowest = max(range(p), key=lambda i: stages[i] + heads[i])
    inside = strategy.stages_per_rack >= p
    slowdown = c.pipeline_send_slowdown
    send = layer_time.pipeline_send_seconds(m, strategy.shape, slowdown, inside=inside) if p > 1 else 0.0
    batches = strategy.micro_batches
    n = float(schedule.effective_micro_batches(batches, p, v))
    order, longest = strategy.schedule, max(stages)
    parts = {
        **{part: n * layers[slowest] * seconds for part, seconds in times.parts.items()},
        "sharding": n * layers[slowest] * sharded.sharding_seconds,
        "head": n * heads[slowest],
        "pipeline_bubble": pipeline_bubble_seconds(
            sharded, order, p, v, longest, send_seconds=send, micro_batches=batches
        ),
        "pipeline_send": n * exposed_send_seconds(m, sharded, v, m.model.layers / p, send),
        **tail_parts(
            m,
            strategy.shape,
            c,
            pipeline=p,
            zero_stage=strategy.zero_stage,
            replicas_per_rack=strategy.replicas_per_rack,
            racks=strategy.group_racks(m.rack.gpus),
            replicas=strategy.min_replicas,
            max_layers=max(layers),
            backward_seconds=times.backward_seconds,
            sites=sum(d > 0 for d in strategy.data_parallel_by_site),
        ),
    }
    parts["recompute"] += n * recomputed[slowest] * times.recompute_seconds
    parts["launch"] += n * m.software.microbatch_seconds
    return {k: float(seconds) for k, seconds in parts.items()}


def pipeline_send_window_seconds(
    m: Machine, strategy: ParallelStrategy, sharded: ShardedTimes, step_seconds: float, *, share: float | None
) -> float:
    """Compute the seconds that a pipeline send may take: what compute hides, and no more than a share of the step.

    A fabric fixed by hand (`share` None) has the first limit only. The sends that nothing hides are the first
    micro-batch's on its way through all chunks and back, and without interleaving those of every micro-batch.
    """
    chunk, v = max(1, min(strategy.layers_per_stage) // strategy.virtual_stages), strategy.virtual_stages
    hidden = float(chunk * min(sharded.free_forward_seconds, sharded.free_backward_seconds))
    if share is None:
        return hidden
    exposed = 2 * (strategy.pipeline_parallel * v - 1) + (2 * strategy.micro_batches if v == 1 else 0)
    allowed = share * step_seconds / max(1, exposed)
    return min(hidden, layer_time.pipeline_send_nic_seconds(m, strategy.shape) + allowed)


def allreduce_window_seconds(
    m: Machine, c: Conditions, strategy: ParallelStrategy, allreduce_seconds: float, *, share: float | None
) -> float:
    """Compute the seconds that a layer's all-reduce may take: what its backward pass hides, within a share of the step.

    A fabric fixed by hand (`share` None) has the first limit only. What all-reduces expose grows with their slowdown,
    so the largest slowdown within the share is found by bisection.
    """
    hidden = layer_time.layer_times(m, strategy.shape).backward_seconds
    if share is None or not 0 < allreduce_seconds < hidden:
        return hidden

    def step_at(slowdown: float) -> float:
        return sum(step_breakdown(m, replace(c, allreduce_slowdown=slowdown), strategy).values())

    low, high, allowed = 1.0, hidden / allreduce_seconds, step_at(1.0) * (1 + share)
    if step_at(high) <= allowed:
        return hidden
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if step_at(middle) <= allowed else (low, middle)
    return low * allreduce_seconds


def metrics(instance: Instance, c: Conditions, strategy: ParallelStrategy) -> dict[str, float | dict[str, float]]:
    """Predict everything that a plan reports of a layout: the fields of plan.LayoutMetrics."""
    m, workload = machine_of(instance), instance.workload
    sharded = strategy_times(m, c, strategy)
    parts, by_part = step_breakdown(m, c, strategy), worst_memory(m, strategy)
    seconds = sum(parts.values())
    tokens = float(strategy.data_parallel * strategy.micro_batches * strategy.micro_batch * m.sequence)
    flop, peak = tokens * model_flop_per_token(m.model, m.sequence), m.gpu.peak_flop_per_second[m.precision.compute]
    return {
        "step_seconds": seconds,
        "breakdown_seconds": parts,
        "tokens_per_step": tokens,
        "memory_bytes_per_gpu": sum(by_part.values()),
        "memory_breakdown_bytes": by_part,
        "memory_limit_bytes": memory_limit_bytes(instance),
        "mfu": layer_time.model_flop_utilisation(flop, strategy.gpus, peak, seconds),
        "days_to_train": layer_time.days_to_train(workload.tokens, tokens, seconds, workload.availability),
        **_network_metrics(instance, m, c, strategy, sharded, seconds),
        "gradient_bytes_per_stage": _max_gradient_bytes(m, strategy),
        "wan_window_seconds": max(strategy.layers_per_stage) * sharded.times.backward_seconds,
    }


def _network_metrics(
    instance: Instance,
    m: Machine,
    c: Conditions,
    strategy: ParallelStrategy,
    sharded: ShardedTimes,
    step_seconds: float,
) -> dict[str, float]:
    """Compute the seconds of sends and all-reduces between racks, and the windows that they have."""
    shape, network = strategy.shape, instance.network
    send_share: float | None = network.pipeline_send_step_share if network else PIPELINE_SEND_STEP_SHARE
    allreduce_share: float | None = network.allreduce_step_share if network else ALLREDUCE_STEP_SHARE
    if any(p.startswith("fabric.") for p in instance.pins):
        send_share = allreduce_share = None
    group = (strategy.replicas_per_rack, strategy.group_racks(m.rack.gpus))
    allreduce = float(layer_time.allreduce_layer_seconds(m, shape, weights_of(m, shape), *group))
    between_racks = strategy.pipeline_parallel > strategy.stages_per_rack
    send = layer_time.pipeline_send_seconds(m, shape, c.pipeline_send_slowdown) if between_racks else 0.0
    window = pipeline_send_window_seconds(m, strategy, sharded, step_seconds, share=send_share)
    return {
        "pipeline_send_seconds": send,
        "pipeline_send_nic_seconds": layer_time.pipeline_send_nic_seconds(m, shape) if between_racks else 0.0,
        "pipeline_send_window_seconds": window,
        "allreduce_layer_seconds": allreduce,
        "allreduce_window_seconds": allreduce_window_seconds(m, c, strategy, allreduce, share=allreduce_share),
    }


def _max_gradient_bytes(m: Machine, strategy: ParallelStrategy) -> float:
    layers, p = np.array(strategy.layers_per_stage), strategy.pipeline_parallel
    return float(np.max(stage_gradient_bytes(m, strategy.shape, layers, stage=np.arange(p), pipeline=p)))
