"""Parts of a training step that several orders of its passes share, its network conditions, and the step of pools."""

from dataclasses import dataclass
from typing import TypeVar

from planner.instance.hardware import Accelerator, Hardware, Pool, PoolLink, Rack
from planner.instance.instance import Instance
from planner.instance.workload import Model, Software
from planner.physics import Num
from planner.physics.site import wan
from planner.physics.training import layer_time, memory, schedule
from planner.physics.training.layer_time import LayerTimes
from planner.physics.training.operations import Machine
from planner.physics.training.schedule import Schedule
from planner.plan.plan_sections import LayoutMetrics

Part = TypeVar("Part", Accelerator, Rack, Software, Model)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The network's slowdowns, rates and round trips that a step depends on."""

    pipeline_send_slowdown: float
    allreduce_slowdown: float
    wan_gbps: float | None = None
    wan_rtt_ms: float = 0.0
    wan_round_trips: float = 1.0
    transport_slowdown: float = 1.0


def machine_of(instance: Instance) -> Machine:
    """Return the machine of a loaded instance. TypeError: a catalogue name is left in it."""
    hardware, workload = instance.hardware, instance.workload
    gpu = _resolved(hardware.accelerator, Accelerator)
    return Machine(
        gpu=gpu.replaced(nic_bytes_per_second=hardware.gpu_nic_bytes_per_second),
        rack=_resolved(hardware.rack, Rack),
        software=_resolved(workload.software, Software),
        model=_resolved(workload.model, Model),
        precision=workload.precision,
        sequence=workload.sequence_length,
        expert_imbalance=workload.expert_imbalance,
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
    """Seconds of one layer and micro-batch under ZeRO: compute, exposed traffic, and the time that the NIC is free."""

    times: LayerTimes
    sharding_seconds: Num
    free_forward_seconds: Num
    free_backward_seconds: Num

    @property
    def layer_seconds(self) -> Num:
        """Forward and backward of one layer, without full recompute."""
        return self.times.forward_seconds + self.times.backward_seconds + self.sharding_seconds


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
    """Compute the seconds that fill and drain the pipeline, every stage as long a micro-batch as `stage_seconds`."""
    # The passes share a stage's time as they share a layer's.
    layer = sharded.layer_seconds
    forward, weights = sharded.times.forward_seconds / layer, sharded.times.weight_gradient_seconds / layer
    chunk = stage_seconds / virtual_stages
    passes = (chunk * forward, chunk * (1 - forward - weights), chunk * weights)
    return schedule.bubble_seconds(order, pipeline, virtual_stages, *passes, send_seconds, micro_batches=micro_batches)


def pool_instance(instance: Instance, pool: Pool, sequences: int) -> Instance:
    """Return the layout question of one pool alone, with its share of the batch as the most that a step may hold."""
    hardware = Hardware(
        accelerator=pool.accelerator,
        rack=pool.rack,
        racks=pool.racks,
        nic_bytes_per_second=pool.nic_bytes_per_second,
        facility_overhead_factor=instance.hardware.facility_overhead_factor,
    )
    free: dict[str, float | None] = dict.fromkeys(("deadline_days", "budget_usd", "facility_power_mw"))
    batch = float(sequences * instance.workload.sequence_length)
    limits = instance.limits.replaced(**free | {"max_batch_tokens": batch})
    return instance.replaced(hardware=hardware, limits=limits)


def pool_exchange_seconds(link: PoolLink | None, metrics: LayoutMetrics, layers: int, training: int) -> float:
    """Compute the exposed seconds of a pool's exchange of gradients in the ring of pools; 0 without a link."""
    if link is None or training < 2:
        return 0.0
    size = wan.exchange_bytes(metrics.gradient_bytes_per_stage, training)
    backward = metrics.wan_window_seconds / layers
    return float(layer_time.wan_tail_seconds(size, link.gbps, link.rtt_ms, 1.0, layers, backward))


def pools_mw(instance: Instance) -> float:
    """Power of all pools, overhead included, in MW."""
    it_kw = sum(p.racks * p.rack.it_kw for p in instance.hardware.pools if not isinstance(p.rack, str))
    return it_kw / 1e3 * instance.hardware.facility_overhead_factor
