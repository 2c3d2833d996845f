"""Compute power and gradient exchange of pools of different GPUs that share each step's batch."""

from planner.instance.hardware import Hardware, Pool, PoolLink
from planner.instance.instance import Instance
from planner.physics.site import wan
from planner.physics.training import layer_time
from planner.plan.plan_sections import LayoutMetrics

ROUND_TRIPS = 1.0  # that an exchange of gradients waits for


def pool_instance(instance: Instance, pool: Pool, sequences: int) -> Instance:
    """Return the layout question of one pool alone, with its share of the batch as the most that a step may hold."""
    hardware = Hardware(
        accelerator=pool.accelerator,
        rack=pool.rack,
        racks=pool.racks,
        nic_bytes_per_second=pool.nic_bytes_per_second,
        facility_overhead_factor=instance.hardware.facility_overhead_factor,
    )
    batch = float(sequences * instance.workload.sequence_length)
    limits = instance.limits.model_copy(
        update={"max_batch_tokens": batch, "deadline_days": None, "budget_usd": None, "facility_power_mw": None}
    )
    return instance.model_copy(update={"hardware": hardware, "limits": limits})


def exchange_seconds(link: PoolLink | None, metrics: LayoutMetrics, layers: int, training: int) -> float:
    """Compute the exposed seconds of a pool's exchange of gradients with the other pools, as between sites of a layout.

    `layers`: layers of the pool's largest stage; the gradients of one cross at the link's rate during the backward pass
    of the next. `training`: pools that take part in the ring. Without a link the exchange takes no time.
    """
    if link is None or training < 2:
        return 0.0
    size = wan.exchange_bytes(metrics.gradient_bytes_per_stage, training)
    backward = metrics.wan_window_seconds / layers
    return float(layer_time.wan_tail_seconds(size, link.gbps, link.rtt_ms, ROUND_TRIPS, layers, backward))


def racks_usd(instance: Instance) -> float:
    """Price the racks of all pools."""
    return sum(p.racks * p.rack.price_usd for p in instance.hardware.pools if not isinstance(p.rack, str))


def facility_mw(instance: Instance) -> float:
    """Power of all pools, overhead included, in MW."""
    it_kw = sum(p.racks * p.rack.it_kw for p in instance.hardware.pools if not isinstance(p.rack, str))
    return it_kw / 1e3 * instance.hardware.facility_overhead_factor
