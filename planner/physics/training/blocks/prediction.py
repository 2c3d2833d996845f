"""Predict one layout given in full: its step by part, its memory, and its demands on the network."""

from dataclasses import replace

import numpy as np

from planner.instance.instance import Instance
from planner.physics import step_errors
from planner.physics.training import layer_time, step
from planner.physics.training.blocks import block_step
from planner.physics.training.blocks.block_step import Pipeline
from planner.physics.training.blocks.rack_blocks import padded
from planner.physics.training.layer_time import ReplicaGroup
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import ParallelStrategy, strategy_of
from planner.physics.training.process_groups import weights_of
from planner.physics.training.stage_memory import memory_by_stage, stage_gradient_bytes, worst_memory
from planner.physics.training.step import Conditions
from planner.physics.training.transformer import model_flop_per_token
from planner.plan.plan_sections import LayoutPlan


def step_breakdown(m: Machine, c: Conditions, strategy: ParallelStrategy) -> dict[str, float]:
    """Compute the seconds of one step by part; the parts sum to the step."""
    return block_step.breakdown(m, c, strategy, _group(m, strategy))


def stage_bytes(m: Machine, strategy: ParallelStrategy) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Compute the bytes by part on a GPU of every stage, sequences padded."""
    return memory_by_stage(padded(m, strategy.shape), strategy)


Figure = float | dict[str, float] | tuple[float, float]


def metrics(
    instance: Instance, c: Conditions, strategy: ParallelStrategy, *, useful_share: float | None = None
) -> dict[str, Figure]:
    """Predict everything that a plan reports of a layout: the fields of plan.LayoutMetrics.

    Work, bytes and time are those of padded sequences; tokens are counted without what pads them. `useful_share` of
    the time on a clock goes into steps where failures count; else the workload says it.
    """
    m, workload = step.machine_of(instance), instance.workload
    wide = padded(m, strategy.shape)
    parts, by_part = step_breakdown(m, c, strategy), worst_memory(wide, strategy)
    seconds = sum(parts.values())
    tokens = float(strategy.data_parallel * strategy.micro_batches * strategy.micro_batch * m.sequence)
    useful = workload.availability if useful_share is None else useful_share
    days = layer_time.days_to_train(workload.tokens, tokens, seconds, useful)
    flop, peak = tokens * model_flop_per_token(m.model, m.sequence), m.gpu.peak_flop_per_second[m.precision.compute]
    layers, p = np.array(strategy.layers_per_stage), strategy.pipeline_parallel
    gradient_bytes = stage_gradient_bytes(m, strategy.shape, layers, stage=np.arange(p), pipeline=p)
    return {
        "step_seconds": seconds,
        "breakdown_seconds": parts,
        "tokens_per_step": tokens,
        "memory_bytes_per_gpu": sum(by_part.values()),
        "memory_breakdown_bytes": by_part,
        "memory_limit_bytes": step.memory_limit_bytes(instance),
        "mfu": layer_time.model_flop_utilisation(flop, strategy.gpus, peak, seconds),
        "days_to_train": days,
        "step_days_to_train": layer_time.days_to_train(workload.tokens, tokens, seconds, 1.0),
        "useful_share": useful,
        "days_to_train_interval": step_errors.interval(m, strategy, days),
        **_network_metrics(wide, c, strategy),
        "gradient_bytes_per_stage": float(np.max(gradient_bytes)),
    }


def has_machine(instance: Instance) -> bool:
    """Return whether an instance holds one machine in full, and names none of its parts."""
    h, w = instance.hardware, instance.workload
    return not (h.pools or any(isinstance(x, str) for x in (h.accelerator, h.rack, w.model, w.software)))


def extrapolations(instance: Instance, layout: LayoutPlan) -> dict[str, str]:
    """Return the properties of a layout outside the measured runs, each with a sentence."""
    if not has_machine(instance):
        return {}
    m = step.machine_of(instance)
    return step_errors.unmeasured(m) | step_errors.outside(m, strategy_of(layout))


def _group(m: Machine, strategy: ParallelStrategy) -> ReplicaGroup:
    return ReplicaGroup(
        replicas_per_rack=strategy.replicas_per_rack,
        racks=strategy.group_racks(m.rack.gpus),
        shards=strategy.min_replicas,
    )


def _network_metrics(m: Machine, c: Conditions, strategy: ParallelStrategy) -> dict[str, float]:
    """Compute the seconds of sends and all-reduces between racks, and of the passes that overlap them.

    A send overlaps the smallest chunk of a stage, less the time that ZeRO and CP over racks take of the NIC; a layer's
    all-reduce and the exchange between sites overlap backward passes.
    """
    shape, group = strategy.shape, _group(m, strategy)
    x = pipeline_of(m, c, strategy)
    sharded = block_step.sharded_times(x, replace(group, slowdown=c.allreduce_slowdown))
    between_racks = strategy.pipeline_parallel > strategy.stages_per_rack
    chunk = max(1, min(strategy.layers_per_stage) // strategy.virtual_stages)
    allreduce = layer_time.allreduce_layer_seconds(m, shape, weights_of(m, shape), group.replicas_per_rack, group.racks)
    backward = x.times.backward_seconds
    return {
        "pipeline_send_seconds": float(x.send(c.pipeline_send_slowdown, 2)) if between_racks else 0.0,
        "pipeline_send_nic_seconds": layer_time.pipeline_send_nic_seconds(m, shape) if between_racks else 0.0,
        "pipeline_send_window_seconds": float(
            chunk * np.minimum(sharded.free_forward_seconds, sharded.free_backward_seconds)
        ),
        "sends_beside_rings": float(
            block_step.sends_beside_rings(
                x, strategy.pipeline_parallel, strategy.virtual_stages, strategy.micro_batches, group.racks
            )
        ),
        "allreduce_layer_seconds": float(allreduce),
        "allreduce_window_seconds": backward,
        "wan_window_seconds": max(strategy.layers_per_stage) * backward,
    }


def pipeline_of(m: Machine, c: Conditions, strategy: ParallelStrategy) -> Pipeline:
    """Time the pipeline of a strategy given in full."""
    return block_step.pipeline_of(
        m,
        strategy.shape,
        zero_stage=strategy.zero_stage,
        order=strategy.schedule,
        inside=strategy.stages_per_rack >= strategy.pipeline_parallel,
        transport_slowdown=c.transport_slowdown,
    )
