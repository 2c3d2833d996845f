"""The section of a plan on the fabric of a site, written from its template: tiers, counts, price, power, slowdowns."""

from planner.instance.network import Network
from planner.models.fabric.fabric_templates import Template
from planner.physics.network import uplink_slowdowns
from planner.physics.network.fabric_cost import bill, models_of, wan_gateway_bill
from planner.physics.network.locality import Locality
from planner.plan.plan_sections import SharedLink, SiteFabric, Tier, WanGateway
from planner.simulation.simulated_slowdown import transport_slowdown_of

STATED = (  # of a design, by the names that the section has too
    *("lanes", "split", "group_links", "switches", "switch_links", "endpoint_links", "pods", "zones"),
    *("rails_per_pod", "rails_per_zone", "core_boxes", "super_spine_boxes"),
)


def site_fabric(
    network: Network,
    template: Template,
    locality: Locality,
    *,
    nic_seconds: float,
    wired_gpus_per_rack: int,
    wan_gbps: float = 0.0,
    exchange_gbps: float = 0.0,
    sends_meet_rings: bool = False,
) -> SiteFabric:
    """Return a site's fabric section of a plan, of its template, with slowdowns by the order of its racks.

    `nic_seconds` are those of one pipeline send at the NIC's ideal rate. The site's WAN gateway carries the wavelengths
    that end there, `wan_gbps`, and the gradients, `exchange_gbps`, in Gbps each way.
    """
    switches = {switch.name: switch for switch in network.switches}  # at these prices; a run is searched at others
    switch, *above = (switches[model.name] for model in template.models)
    design, transport_slowdown = template.design, transport_slowdown_of(network)
    free = uplink_slowdowns.free_uplinks(design, exchange_gbps, *locality.stage_in)
    loads = uplink_slowdowns.uplink_loads(design, locality.share_leaving, locality.allreduces_leaving, free)
    send, ring = uplink_slowdowns.slowdowns(transport_slowdown, loads)
    shared = uplink_slowdowns.shared_links(transport_slowdown, loads) if sends_meet_rings else {}
    price = bill(network, switch, design, above)
    gateway, models = None, models_of(switch, above)
    if design.wan_ports:
        paid, links = wan_gateway_bill(network, switch, design), design.wan_gateway_links
        gateway = WanGateway(
            wan_gbps=wan_gbps,
            exchange_gbps=exchange_gbps,
            wan_ports=links,
            switches=design.wan_gateways,
            uplinks=links,
            leaf_uplink_share=1 - free.leaf,
            pod_uplink_share=1 - free.pod,
            zone_uplink_share=1 - free.zone,
            cost_usd=paid.usd,
            power_mw=paid.mw,
        )
    leaf, spine, core = design.oversubscription.values()
    figures = [  # from the leaf up; the bundle of a tier is that of its links upwards
        (design.leaf_down, max(design.up_port_range), leaf, design.leaf_bundle),
        (design.spine_down, design.spine_up, spine, design.spine_bundle),
        (design.core_down, design.core_up, core, design.core_bundle),
        (design.super_spine_down, 0, 1.0, 0),
    ]
    tiers = []
    for (name, count), own in list(zip(design.tier_switches.items(), figures, strict=True))[: design.tiers]:
        known = dict(zip(("down_ports", "up_ports", "oversubscription", "bundle"), own, strict=True))
        tiers.append(Tier.model_validate({"name": name, "switch": models[name].name, "switches": count} | known))
    return SiteFabric(
        **{name: getattr(design, name) for name in STATED},
        switch=switch.name,
        family=template.family,
        rails_per_leaf=design.rail_gpus if template.family == "rail" else 1,
        leaf_spare_ports=design.leaf_spare,
        planes=switch.planes * design.lanes,
        ports_per_switch=switch.ports,
        tiers=tuple(tiers),
        chips=design.switches * switch.planes,
        cost_usd=price.usd,
        power_mw=price.mw,
        wan_gateway=gateway,
        cabled_racks=design.racks,
        wired_gpus_per_rack=wired_gpus_per_rack,
        leaf_domain_racks=design.domain_racks,
        leaf_domains=design.domains,
        leaf_domains_per_pod=design.domains_per_pod,
        leaf_domains_per_zone=design.domains_per_zone,
        share_leaving_leaf=locality.share_leaving[0],
        share_leaving_pod=locality.share_leaving[1],
        share_leaving_zone=locality.share_leaving[2],
        p2p_seconds=nic_seconds * send,
        pipeline_send_slowdown=send,
        allreduce_slowdown=ring,
        shared_links=tuple(
            SharedLink.model_validate(dict(zip(SharedLink.model_fields, (name, *slowdowns), strict=True)))
            for name, slowdowns in shared.items()
        ),
    )
