"""What a plan asks of the fabric of a site, for the frontier of fabrics."""

from planner.models.requests import FabricRequest
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.parallel_strategy import strategy_of
from planner.plan.layout import LayoutPlan


def request_of(c: PlanPhysics, layout: LayoutPlan, site: str) -> FabricRequest:
    """Return what a site's fabric must join and carry: the racks cabled, the layout's traffic and the WAN gateway's.

    Exchanges may be slowed until the time that hides them is full, whatever the order of racks.
    """
    m = layout.metrics
    fabric = c.plan.fabric.sites.get(site) if c.plan.fabric else None
    gateway = fabric.wan_gateway if fabric else None
    return FabricRequest(
        racks=c.cabled_racks(site),
        rack_gpus=c.wired_gpus_per_rack(site),
        group_racks=max(1, layout.racks_per_stage_by_site[site]),
        groups=layout.rack_stages,
        pipeline_send_seconds=m.pipeline_send_nic_seconds,
        pipeline_send_window_seconds=m.pipeline_send_window_seconds,
        allreduce_seconds=m.allreduce_layer_seconds,
        allreduce_window_seconds=m.allreduce_window_seconds,
        exchange_racks=strategy_of(layout).unit_racks(c.gpus_per_rack),
        wan_gbps=gateway.wan_gbps if gateway else 0.0,
        exchange_gbps=gateway.exchange_gbps if gateway else 0.0,
    )
