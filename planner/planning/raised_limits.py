"""A little more of each limit of a plan: by these instances a dollar, a MW, a GB or a token has its worth."""

from collections.abc import Iterator
from dataclasses import dataclass

from planner.instance.hardware import Accelerator
from planner.instance.instance import Instance
from planner.plan.plan import Plan
from planner.planning.instance_parts import pinned, with_hbm, with_part

MILLION = 1e6
SMALL_CHANGE = 0.01  # of a limit, for which its worth is computed by solving again


@dataclass(frozen=True)
class More:
    """A limit with a little more of it, and the instance that has it."""

    limit: str
    more: float
    unit: str
    instance: Instance
    each: float = 1.0


def limits_of(plan: Plan) -> Iterator[More]:
    """Yield the limits that may be raised a little: by a hundredth, or by one more step or block."""
    instance, limits, hardware = plan.instance, plan.instance.limits, plan.instance.hardware
    if limits.budget_usd:
        more = limits.budget_usd * SMALL_CHANGE
        yield More("budget", more, "USD", with_part(instance, "limits", budget_usd=limits.budget_usd + more), MILLION)
    if limits.max_batch_tokens:
        layout = plan.layout
        step = layout.data_parallel * layout.microbatch_sequences * instance.workload.sequence_length if layout else 0
        more = max(limits.max_batch_tokens * SMALL_CHANGE, float(step))
        bigger = with_part(instance, "limits", max_batch_tokens=limits.max_batch_tokens + more)
        yield More("batch", more, "tokens of batch", bigger, MILLION)
    if isinstance(hardware.accelerator, Accelerator):
        yield More("memory", 1.0, "GB of HBM", with_hbm(instance, hardware.accelerator.hbm_bytes + 1e9))
    if hardware.racks is not None and instance.grid is None:
        yield More("racks", 1.0, "rack", with_part(instance, "hardware", racks=hardware.racks + 1))
    if limits.facility_power_mw:
        more = limits.facility_power_mw * SMALL_CHANGE
        raised = with_part(instance, "limits", facility_power_mw=limits.facility_power_mw + more)
        yield More("facility power", more, "MW of the facility", raised)
    yield from _grid_limits(plan)


def _grid_limits(plan: Plan) -> Iterator[More]:
    instance, wan = plan.instance, plan.sites.links if plan.sites else ()
    if instance.grid is not None:
        own = instance.grid.balancing_authorities
        areas = tuple(x.model_copy(update={"headroom_mw": x.headroom_mw * (1 + SMALL_CHANGE)}) for x in own)
        more = sum(area.headroom_mw for area in own) * SMALL_CHANGE
        yield More("headroom", more, "MW of headroom", with_part(instance, "grid", balancing_authorities=areas))
    if wan and instance.wan is not None and "wan.wavelengths" not in instance.pins:
        pair = instance.wan.max_wavelengths_per_pair
        waves = wan[0].wavelengths + pair
        leased = max(instance.wan.max_fibre_pairs, -(-waves // pair))  # one more than all of them has its worth too
        lit = with_part(instance, "wan", max_fibre_pairs=leased)
        yield More("fibre", 1.0, "fibre pair", pinned(lit, "wan.wavelengths", waves))
