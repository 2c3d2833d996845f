"""What a plan's layout asks of the fabric of a site, and how slow its traffic may be there."""

from dataclasses import dataclass

from planner.cluster import hostlist
from planner.errors import InternalError
from planner.instance.instance import Instance
from planner.models.fabric import data as fabric_data
from planner.models.fabric import report
from planner.models.fabric.design import FabricDesign
from planner.models.requests import FabricRequest
from planner.physics.network import transport, wan_gateway
from planner.physics.network.locality import Locality, expert_racks, locality
from planner.physics.site import wan
from planner.physics.site.gradient_exchange import assumed_window_seconds
from planner.plan.fabric import SiteFabric
from planner.plan.layout import LayoutPlan
from planner.plan.placement import SitePlacement
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanPlan
from planner.simulation.reference_tree import transport_slowdown_of
from planner.solvers.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Designs:
    """The fabrics of all sites, and the slowdowns that any placement on them may cause."""

    requests: dict[str, FabricRequest]
    outcomes: dict[str, Outcome[FabricDesign]]
    worst: tuple[float, float]

    def design(self, site: str) -> FabricDesign:
        """Return the design of a site."""
        design = self.outcomes[site].solution
        if design is None:
            raise InternalError(f"fabric[{site}]: no design was chosen")
        return design


def request_of(
    layout: LayoutPlan,
    site: str,
    racks: int,
    gpus_per_rack: int,
    *,
    limits: tuple[float | None, float | None] | None = None,
    gateway_gbps: tuple[float, float] = (0.0, 0.0),
) -> FabricRequest:
    """Return what a site's fabric must carry: the layout's traffic and the WAN gateway's.

    `limits` cap the slowdowns of pipeline sends and all-reduces; None: those that the layout assumes.
    """
    m, a = layout.metrics, layout.assumptions
    send_limit, allreduce_limit = limits or (a.pipeline_send_slowdown, a.allreduce_slowdown)
    return FabricRequest(
        racks=racks,
        group_racks=max(1, layout.racks_per_stage_by_site[site]),
        groups=layout.rack_stages,
        pipeline_send_seconds=m.pipeline_send_nic_seconds,
        pipeline_send_window_seconds=m.pipeline_send_window_seconds,
        allreduce_seconds=m.allreduce_layer_seconds,
        allreduce_window_seconds=m.allreduce_window_seconds,
        pipeline_send_limit=send_limit,
        allreduce_limit=allreduce_limit,
        exchange_racks=expert_racks(layout.expert_parallel, gpus_per_rack),
        wan_gbps=gateway_gbps[0],
        exchange_gbps=gateway_gbps[1],
    )


def gateway_gbps(
    instance: Instance, site: str, layout: LayoutPlan, split: SitesPlan | None, joined: WanPlan | None
) -> tuple[float, float]:
    """Return the Gbps of the wavelengths at a site's WAN gateway and of the gradients through it; 0 without one."""
    network, wide = instance.network, instance.wan
    if network is None or wide is None or not network.wan_gateway or split is None:
        return 0.0, 0.0
    m, a, training = layout.metrics, layout.assumptions, {x for x, d in layout.data_parallel_by_site.items() if d}
    size = m.gradient_bytes_per_stage
    window = assumed_window_seconds(wide, size, len(training), m.wan_window_seconds, a.wan_gbps, a.wan_rtt_ms)
    exchange = wan.exchange_bytes(size, len(training)), window
    gradients = wan_gateway.exchange_gbps(wide, split.links, joined, site, training, exchange)
    return wan_gateway.wan_gbps(wide, split.links, joined, site), gradients


def worst_slowdowns(instance: Instance, request: FabricRequest, found: FabricDesign) -> tuple[float, float]:
    """Return the slowdowns of pipeline sends and all-reduces under the worst placement."""
    network, d, phi = instance.network, found.design, transport_slowdown_of(instance.network)
    if network is None:
        return phi, phi
    free = fabric_data.free_at_worst(request, d, found.switch.port_gbps)
    several, podded, zoned = d.domains > 1, 0 < d.domains_per_pod < d.domains, 0 < d.domains_per_zone < d.domains
    hop = (
        transport.pipeline_send_slowdown(phi, d, float(several), float(podded), float(zoned), free=free)
        if request.groups > 1
        else phi
    )
    leaf = fabric_data.crossing_groups(request, fabric_data.leaf_domain_racks(d)) if several else 0
    pod = fabric_data.crossing_groups(request, d.domain_racks * d.domains_per_pod) if podded else 0
    zone = fabric_data.crossing_groups(request, d.domain_racks * d.domains_per_zone) if zoned else 0
    return hop, transport.allreduce_slowdown(phi, d, leaf, pod, zone, free=free)


def crossings(stages: int, placement: SitePlacement | None, design: FabricDesign, *, wrap: bool) -> Locality:
    """Measure what a site's placement sends across leaves, pods and zones."""
    ranks: list[list[int]] = [[] for _ in range(stages)]
    for a in placement.assignment if placement else ():
        ranks[a.stage] += hostlist.parse(a.racks)
    d = design.design
    blocks = {"leaf_domain_racks": fabric_data.leaf_domain_racks(d), "domains_per_pod": d.domains_per_pod or 1}
    return locality(ranks, **blocks, domains_per_zone=d.domains_per_zone, wrap=wrap)


def site_fabric(
    instance: Instance,
    request: FabricRequest,
    layout: LayoutPlan,
    design: FabricDesign,
    placement: SitePlacement | None,
    *,
    wrap: bool,
) -> SiteFabric:
    """Return the fabric section of a site with what its placement sends across leaves, pods and zones."""
    where = crossings(layout.rack_stages, placement, design, wrap=wrap)
    together = where.stage_in_leaf, where.stage_in_pod, where.stage_in_zone
    free = wan_gateway.free_uplinks(design.design, request.exchange_gbps, design.switch.port_gbps, *together)
    return report.site_fabric(instance, request, design, where, free)
