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
    x: Locality,
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
    (switch, *above), d, transport_slowdown = boxes, template.design, transport_slowdown_of(network)
    free = free_uplinks(d, rates.exchange_gbps, switch.port_gbps, *x.stage_in)
    send, price = (
        pipeline_send_slowdown(transport_slowdown, d, *x.share_leaving, free=free),
        bill(network, switch, d, above),
    )
    return SiteFabric(
        switch=switch.name,
        family=template.family,
        lanes=d.lanes,
        leaf_spare_ports=d.leaf_spare,
        split=d.split,
        group_links=d.group_links,
        planes=switch.planes * d.lanes,
        ports_per_switch=switch.ports,
        tiers=tuple(_tiers(d, models_of(switch, above))),
        switches=d.switches,
        chips=d.switches * switch.planes,
        switch_links=d.switch_links,
        endpoint_links=d.endpoint_links,
        cost_usd=price.usd,
        power_mw=price.mw,
        wan_gateway=_wan_gateway(network, switch, d, rates, free),
        cabled_racks=d.racks,
        wired_gpus_per_rack=wired_gpus_per_rack,
        leaf_domain_racks=d.domain_racks,
        leaf_domains=d.domains,
        rails_per_pod=d.rails_per_pod,
        leaf_domains_per_pod=d.domains_per_pod,
        pods=d.pods,
        rails_per_zone=d.rails_per_zone,
        leaf_domains_per_zone=d.domains_per_zone,
        zones=d.zones,
        core_boxes=d.core_boxes,
        super_spine_boxes=d.super_spine_boxes,
        share_leaving_leaf=x.share_leaving[0],
        share_leaving_pod=x.share_leaving[1],
        share_leaving_zone=x.share_leaving[2],
        p2p_seconds=nic_seconds * send,
        pipeline_send_slowdown=send,
        allreduce_slowdown=allreduce_slowdown(transport_slowdown, d, *x.allreduces_leaving, free=free),
        shared_links=tuple(
            SharedLink.model_validate(dict(zip(SharedLink.model_fields, (name, *slowdowns), strict=True)))
            for name, slowdowns in shared_links(
                transport_slowdown, send_loads(d, x.share_leaving, free), ring_loads(d, x.allreduces_leaving, free)
            ).items()
        )
        if sends_meet_rings
        else (),
    )


def _wan_gateway(
    network: Network, switch: Switch, d: Design, rates: GatewayRates, free: FreeUplinks
) -> WanGateway | None:
    """Return the plan's section for the WAN gateway, of a site that has one."""
    if not d.wan_ports:
        return None
    price = wan_gateway_bill(network, switch, d)
    counts = {"wan_ports": d.wan_gateway_links, "switches": d.wan_gateways, "uplinks": d.wan_gateway_links}
    taken = {"leaf_uplink_share": 1 - free.leaf, "pod_uplink_share": 1 - free.pod, "zone_uplink_share": 1 - free.zone}
    return WanGateway(
        wan_gbps=rates.wan_gbps,
        exchange_gbps=rates.exchange_gbps,
        **counts,
        **taken,
        cost_usd=price.usd,
        power_mw=price.mw,
    )


def _tiers(d: Design, models: Mapping[str, Switch]) -> Iterator[Tier]:
    """Yield the tiers from the leaf up; the bundle of a tier is that of its links upwards."""
    figures = [
        (d.leaf_down, d.up_ports, d.leaf_oversubscription, d.leaf_bundle),
        (d.spine_down, d.spine_up, d.spine_oversubscription, d.spine_bundle),
        (d.core_down, d.core_up, d.core_oversubscription, d.core_bundle),
        (d.super_spine_down, 0, 1.0, 0),
    ]
    tiers = zip(d.tier_switches.items(), figures, strict=True)
    for (name, switches), (down, up, over, bundle) in list(tiers)[: d.tiers]:
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
