"""What the plan states of the fabric of a site."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.instance.network import Network, Switch
from planner.models.fabric.chooser import Template
from planner.physics.network.price import bill, models_of, wan_gateway_bill
from planner.physics.network.topology import Design
from planner.physics.network.transport import (
    FreeUplinks,
    Locality,
    allreduce_slowdown,
    free_uplinks,
    pipeline_send_slowdown,
    ring_loads,
    send_loads,
    shared_links,
)
from planner.plan.plan_sections import SharedLink, SiteFabric, Tier, WanGateway
from planner.simulation.flow_times import transport_slowdown_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRates:
    """What a site's WAN gateway carries: the wavelengths that end there, and the gradients, in Gbps each way."""

    wan_gbps: float = 0.0
    exchange_gbps: float = 0.0


NO_GATEWAY = GatewayRates()


def site_fabric(
    network: Network,
    boxes: Sequence[Switch],
    template: Template,
    locality: Locality,
    *,
    nic_seconds: float,
    wired_gpus_per_rack: int,
    rates: GatewayRates = NO_GATEWAY,
    sends_meet_rings: bool = False,
) -> SiteFabric:
    """Return the plan's section for a site's template, with the slowdowns that the order of its racks causes.

    `boxes` are the models of the leaves and of the tiers above them, `nic_seconds` those of one pipeline send at the
    NIC's ideal rate.
    """
    (switch, *above), design, transport_slowdown = boxes, template.design, transport_slowdown_of(network)
    free = free_uplinks(design, rates.exchange_gbps, switch.port_gbps, *locality.stage_in)
    send, price = (
        pipeline_send_slowdown(transport_slowdown, design, *locality.share_leaving, free=free),
        bill(network, switch, design, above),
    )
    return SiteFabric(
        switch=switch.name,
        family=template.family,
        lanes=design.lanes,
        leaf_spare_ports=design.leaf_spare,
        split=design.split,
        group_links=design.group_links,
        planes=switch.planes * design.lanes,
        ports_per_switch=switch.ports,
        tiers=tuple(_tiers(design, models_of(switch, above))),
        switches=design.switches,
        chips=design.switches * switch.planes,
        switch_links=design.switch_links,
        endpoint_links=design.endpoint_links,
        cost_usd=price.usd,
        power_mw=price.mw,
        wan_gateway=_wan_gateway(network, switch, design, rates, free),
        cabled_racks=design.racks,
        wired_gpus_per_rack=wired_gpus_per_rack,
        leaf_domain_racks=design.domain_racks,
        leaf_domains=design.domains,
        rails_per_pod=design.rails_per_pod,
        leaf_domains_per_pod=design.domains_per_pod,
        pods=design.pods,
        rails_per_zone=design.rails_per_zone,
        leaf_domains_per_zone=design.domains_per_zone,
        zones=design.zones,
        core_boxes=design.core_boxes,
        super_spine_boxes=design.super_spine_boxes,
        share_leaving_leaf=locality.share_leaving[0],
        share_leaving_pod=locality.share_leaving[1],
        share_leaving_zone=locality.share_leaving[2],
        p2p_seconds=nic_seconds * send,
        pipeline_send_slowdown=send,
        allreduce_slowdown=allreduce_slowdown(transport_slowdown, design, *locality.allreduces_leaving, free=free),
        shared_links=tuple(
            SharedLink.model_validate(dict(zip(SharedLink.model_fields, (name, *slowdowns), strict=True)))
            for name, slowdowns in shared_links(
                transport_slowdown,
                send_loads(design, locality.share_leaving, free),
                ring_loads(design, locality.allreduces_leaving, free),
            ).items()
        )
        if sends_meet_rings
        else (),
    )


def _wan_gateway(
    network: Network, switch: Switch, design: Design, rates: GatewayRates, free: FreeUplinks
) -> WanGateway | None:
    """Return the plan's section for the WAN gateway, of a site that has one."""
    if not design.wan_ports:
        return None
    price = wan_gateway_bill(network, switch, design)
    links = design.wan_gateway_links
    counts = {"wan_ports": links, "switches": design.wan_gateways, "uplinks": links}
    taken = {"leaf_uplink_share": 1 - free.leaf, "pod_uplink_share": 1 - free.pod, "zone_uplink_share": 1 - free.zone}
    return WanGateway(
        wan_gbps=rates.wan_gbps,
        exchange_gbps=rates.exchange_gbps,
        **counts,
        **taken,
        cost_usd=price.usd,
        power_mw=price.mw,
    )


def _tiers(design: Design, models: Mapping[str, Switch]) -> Iterator[Tier]:
    """Yield the tiers from the leaf up; the bundle of a tier is that of its links upwards."""
    figures = [
        (design.leaf_down, design.up_ports, design.leaf_oversubscription, design.leaf_bundle),
        (design.spine_down, design.spine_up, design.spine_oversubscription, design.spine_bundle),
        (design.core_down, design.core_up, design.core_oversubscription, design.core_bundle),
        (design.super_spine_down, 0, 1.0, 0),
    ]
    tiers = zip(design.tier_switches.items(), figures, strict=True)
    for (name, switches), (down, up, over, bundle) in list(tiers)[: design.tiers]:
        yield Tier.model_validate(
            {
                "name": name,
                "switch": models[name].name,
                "switches": switches,
                "down_ports": down,
                "up_ports": up,
                "oversubscription": over,
                "bundle": bundle,
            }
        )
