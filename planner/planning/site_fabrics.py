"""The fabrics of a plan's sites: their sections of the plan, and the Pareto frontier of fabrics for its layout."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from planner.errors import InputError, InternalError, hint
from planner.instance.instance import Instance
from planner.instance.network import Network
from planner.models import FABRIC_AXES, FabricRequest, Options
from planner.models.fabric.fabric_templates import Template, alternatives
from planner.physics.network import transport
from planner.physics.network.fabric_designs import bill, models_of, wan_gateway_bill
from planner.physics.network.locality import Locality
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.parallel_strategy import strategy_of
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutPlan, SharedLink, SiteFabric, Tier, WanGateway
from planner.simulation.flow_times import transport_slowdown_of
from planner.units import aligned, money, power, ratio, to_one

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
    free = transport.free_uplinks(design, exchange_gbps, *locality.stage_in)
    loads = transport.uplink_loads(design, locality.share_leaving, locality.allreduces_leaving, free)
    send, ring = transport.slowdowns(transport_slowdown, loads)
    shared = transport.shared_links(transport_slowdown, loads) if sends_meet_rings else {}
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


def request_of(physics: PlanPhysics, layout: LayoutPlan, site: str) -> FabricRequest:
    """Return what a site's fabric must join and carry: the racks cabled, the layout's traffic and the WAN gateway's."""
    # Exchanges may be slowed until the time that hides them is full, whatever the order of racks.
    metrics = layout.metrics
    fabric = physics.plan.fabric.sites.get(site) if physics.plan.fabric else None
    gateway = fabric.wan_gateway if fabric else None
    return FabricRequest(
        racks=physics.cabled_racks(site),
        rack_gpus=physics.wired_gpus_per_rack(site),
        group_racks=max(1, layout.racks_per_stage_by_site[site]),
        groups=layout.rack_stages,
        pipeline_send_seconds=metrics.pipeline_send_nic_seconds,
        pipeline_send_window_seconds=metrics.pipeline_send_window_seconds,
        allreduce_seconds=metrics.allreduce_layer_seconds,
        allreduce_window_seconds=metrics.allreduce_window_seconds,
        exchange_racks=strategy_of(layout).unit_racks(physics.gpus_per_rack),
        wan_gbps=gateway.wan_gbps if gateway else 0.0,
        exchange_gbps=gateway.exchange_gbps if gateway else 0.0,
    )


def frontier(
    plan: Plan,
    *,
    leaf_sizes: Sequence[int] = (),
    time_limit: float | None = None,
    axes: Iterable[str] = ("cost", "time", "splits"),
    every: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[dict[str, Any]]:
    """Return the figures of each frontier point of a plan's sites; with leaf sizes, those of every size in turn.

    No design is matched or beaten by another in the `axes`, of FABRIC_AXES. `every` asks for every slowdown, and not
    only for the best below each step of a ladder; `report` is called with a line for each site whose time has ended.
    ValueError: the plan has no layout or no fabric.
    """
    from planner.checks.fabric import frontier as rules

    if plan.layout is None or plan.fabric is None:
        raise ValueError("the plan has no fabric")
    physics, options = PlanPhysics(plan=plan), Options(time_limit=time_limit, seed=plan.seed)
    axes = {"cost", *axes}
    merits = [figure for axis, figure in FABRIC_AXES.items() if axis in axes]
    for site in sorted(physics.racks_by_site.keys() & plan.fabric.sites.keys()):
        request = request_of(physics, plan.layout, site)
        for size in leaf_sizes or (None,):
            pins = {**plan.instance.pins} | ({} if size is None else {f"fabric.{site}.leaf_domain_racks": size})
            instance, messages = plan.instance.replaced(pins=pins), list[str]()
            how: dict[str, Any] = {"site": site, "axes": axes, "every": every, "report": messages.append}
            figures = alternatives(instance, request, options, **how)
            broken = list(rules(physics, site, figures, merits, leaf_size=size))
            if broken:
                wrong = "; ".join(f"{violation.rule}: {violation.message}" for violation in broken[:5])
                raise InternalError(f"the frontier breaks its own rules: {wrong}")
            for text in messages:
                report(f"{site if size is None else f'{site}, leaf domains of {size} racks'}: {text}")
            yield from ({"site": site, **figure} for figure in figures)


def axes_of(text: str) -> list[str]:
    """Read the axes of a site's fabric frontier, parted by commas; InputError if one is unknown, or cost is alone."""
    names = [axis.strip() for axis in text.split(",")]
    for name in names:
        if name not in FABRIC_AXES:
            raise InputError(f"--axes: {name!r} is no axis; {hint(name, FABRIC_AXES)}")
    if not set(names) - {"cost"}:
        others = ", ".join(axis for axis in FABRIC_AXES if axis != "cost")
        raise InputError(f"--axes {text}: cost alone has no trade; name one of {others} with it")
    return names


def rules_given(instance: Instance, leaf_sizes: Sequence[int]) -> str:
    """Name the rules that every fabric on the frontier of a plan's sites must keep."""
    network = instance.network
    rules = ["exchanges end in the time that the layout hides them"]
    if network is not None:
        families = ", ".join(network.families)
        rules = [f"switches of one port rate in one family ({families})", f"at most {network.max_tiers} tiers", *rules]
        if network.asked_core_share:
            rules.append(f"{network.asked_core_share:g} of the rate of GPUs' ports out of every tier, at least")
        if network.survives is not None:
            rules.append(f"network.survives is {network.survives}")
    rules += [f"pins.{path} is {value}" for path, value in sorted(instance.pins.items()) if path.startswith("fabric.")]
    return "; ".join([*rules, *([f"leaf domains of {', '.join(map(str, leaf_sizes))} racks"] if leaf_sizes else [])])


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write the frontier of a plan's site fabrics as a table, a design a line."""
    head = ["site", "cost", "power", "p2p", "split", "leaf racks", "switches", "tiers", "family", "switch"]
    keys = "leaf_domain_racks", "switches", "tiers", "family", "switch"
    every = []
    for own in rows:
        send, splits = f"{own['pipeline_send_slowdown']:.2f}x", f"{own['unavoidable_splits']:.0f}"
        every.append([own["site"], money(own["cost_usd"]), power(own["power_mw"]), send, splits, *_cells(own, keys)])
    return aligned([head, *every])


def table_by_ratio(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write the cheapest fabrics by the oversubscription that they are allowed as a table, a line each."""
    head = ["at most", "carried", "cost", "power", "switches", "links", "tiers", "leaf hosts", "family", "switch"]
    keys = "switches", "switch_links", "tiers", "leaf_domain_racks", "family", "switch"
    every = []
    for own in rows:
        asked = "any" if own["oversubscription"] is None else to_one(own["oversubscription"])
        carried = f"{ratio(100 * own['carried_share'])} %"
        every.append([asked, carried, money(own["cost_usd"]), power(own["power_mw"]), *_cells(own, keys)])
    return aligned([head, *every]) if every else "no oversubscription leaves a fabric that keeps the rules"


def _cells(own: Mapping[str, Any], keys: Iterable[str]) -> list[str]:
    return [f"{own[key]:,}" if isinstance(own[key], int) else str(own[key]) for key in keys]
