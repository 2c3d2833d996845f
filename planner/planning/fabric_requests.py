"""What a plan's layout asks of the fabric of a site, for the frontier of fabrics."""

from planner.models.requests import FabricRequest
from planner.physics.network.locality import expert_racks
from planner.plan.layout import LayoutPlan


def request_of(
    layout: LayoutPlan,
    site: str,
    racks: int,
    gpus_per_rack: int,
    *,
    gateway_gbps: tuple[float, float] = (0.0, 0.0),
) -> FabricRequest:
    """Return what a site's fabric must carry: the layout's traffic and the WAN gateway's.

    Exchanges may be slowed until the time that hides them is full, whatever the order of racks.
    """
    m = layout.metrics
    return FabricRequest(
        racks=racks,
        group_racks=max(1, layout.racks_per_stage_by_site[site]),
        groups=layout.rack_stages,
        pipeline_send_seconds=m.pipeline_send_nic_seconds,
        pipeline_send_window_seconds=m.pipeline_send_window_seconds,
        allreduce_seconds=m.allreduce_layer_seconds,
        allreduce_window_seconds=m.allreduce_window_seconds,
        exchange_racks=expert_racks(layout.expert_parallel, gpus_per_rack),
        wan_gbps=gateway_gbps[0],
        exchange_gbps=gateway_gbps[1],
    )
