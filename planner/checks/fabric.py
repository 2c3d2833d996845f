"""Rules of the fabric: it can be wired, its counts are right, it meets the instance's limits, and it hides traffic."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product, zip_longest
from typing import Any

from planner.checks.cables import CABLE_RULES, fabrics, wired
from planner.checks.fabric_traffic import free_by_exchange
from planner.checks.rule import Violations, at_most, broken, exceeds, figures, must_be, must_equal, needs, once, show
from planner.instance.instance import Instance, instance_sha256
from planner.instance.network import Network
from planner.physics.network import fabric_designs
from planner.physics.network.clos_fabric import BLOCKS, Design
from planner.physics.network.fabric_cost import Bill, bill
from planner.physics.network.fabric_designs import FAMILIES, design_fault, design_for, same_ports
from planner.physics.network.locality import exchange_leaving
from planner.physics.network.uplink_slowdowns import free_uplinks, uplink_loads
from planner.physics.network.uplink_slowdowns import slowdowns as by_loads
from planner.physics.plan_physics import CLUSTER, PlanPhysics
from planner.physics.site import wan
from planner.physics.training.parallel_strategy import strategy_of
from planner.plan.plan_sections import FabricPlan, LayoutPlan, SiteFabric
from planner.simulation.simulated_slowdown import factor
from planner.units import to_one

Row = Mapping[str, Any]  # figures and choices of a design
COUNTS = (
    "lanes", "split", "leaf_down", "leaf_up", "leaf_bundle", "rails_per_pod", "domains_per_pod", "group_links",
    "spine_up", "spine_bundle", "rails_per_zone", "domains_per_zone", "core_up", "core_bundle", "core_boxes",
    "super_spine_boxes",
)  # fmt: skip
BUNDLES = ("leaf_up", "leaf_bundle"), ("spine_up", "spine_bundle"), ("core_up", "core_bundle")


@needs("fabric")
def every_site(physics: PlanPhysics, plan: FabricPlan) -> Violations:
    """Check that every site with replicas has a fabric, and nothing else has one."""
    yield from once("every_site", "fabrics", plan.sites, physics.racks_by_site.keys() & physics.replicas.keys())


def switch(physics: PlanPhysics) -> Violations:
    """Check that the fabric is built from a switch of the instance whose ports carry a NIC."""
    nic_gbps = physics.instance.hardware.gpu_nic_bytes_per_second * 8 / 1e9
    for site, fabric, network in fabrics(physics):
        rule = f"switch[{site}]"
        if fabric.family not in network.families:
            yield broken(rule, f"family {fabric.family} is none of {', '.join(network.families)}")
        yield from at_most(rule, fabric.lanes, network.max_lanes, "lanes", "lanes allowed")
        unknown = sorted({fabric.switch, *fabric.models} - physics.switches.keys())
        known = f"the instance's {len(physics.switches)}: {', '.join(sorted(physics.switches))}"
        yield from (broken(rule, f"{name!r} is none of {known}") for name in unknown)
        if unknown:
            continue
        leaf = physics.switches[fabric.switch]
        for tier in fabric.tiers:
            model = physics.switches[tier.switch or fabric.switch]
            if tier.name == "leaf":
                yield from must_be(rule, "switch of the leaf tier", model.name, fabric.switch)
            for name in ("port_gbps", "planes", "link_factor"):
                what = f"{name} of a {tier.name} under those of a leaf"
                yield from must_equal(rule, what, getattr(model, name), getattr(leaf, name))
        yield from figures(rule, fabric, {"planes": leaf.planes * fabric.lanes, "ports_per_switch": leaf.ports})
        yield from at_most(rule, fabric.split, leaf.breakout, "parts of a port", "parts that it can be split into")
        need, rate = nic_gbps * max(1, fabric.split), leaf.port_gbps * fabric.lanes
        yield from at_most(rule, need, rate, "Gbps of the NICs at a port", "Gbps of the ports")


def wirable(physics: PlanPhysics) -> Violations:
    """Check that every tier of a fabric fits its ports, with equal bundles, and each endpoint reaches every other."""
    for site, fabric, network in fabrics(physics):
        rule, fault = f"wirable[{site}]", design_fault(fabric, physics.cabled_racks(site))
        if fault:
            yield broken(rule, fault)
        elif site in physics.designs:
            yield from (broken(rule, reason) for reason in physics.designs[site].faults())
        yield from at_most(rule, len(fabric.tiers), network.max_tiers, "tiers", "tiers allowed")
        most = network.max_rails_per_leaf or fabric.rails_per_leaf
        yield from at_most(rule, fabric.rails_per_leaf, most, "rails share a leaf", "rails may")
        if len(fabric.tiers) == 1 and fabric.family == "rail":
            above = (f"{what}{of}" for of in ("pod", "zone") for what in ("rails_per_", "leaf_domains_per_"))
            yield from figures(f"pods_of_one_switch[{site}]", fabric, dict.fromkeys([*above, "pods", "zones"], 0))


def wiring(physics: PlanPhysics) -> Violations:
    """Check a fabric's tiers, counts, price and power as wired, the network's limits, and the loss that it survives."""
    for site, fabric, network, design in wired(physics):
        for fault in network_limits(network, fabric.family, design):
            yield fault.replaced(rule=f"{fault.rule}[{site}]")
        # A leaf's ratio by the rates of links; one switch for all has every endpoint's link down, and none up.
        down, leaf_ratio, ratio = design.endpoint_links // design.networks, 1.0, design.oversubscription
        if not design.single:
            down = design.leaf_down
            leaf_ratio = down * design.nic_gbps / (design.exits["leaf"] * design.link_gbps)
        rows = {
            "leaf": (design.leaves, down, max(design.up_port_range), leaf_ratio, design.leaf_bundle),
            "spine": (design.spines, design.spine_down, design.spine_up, ratio["spine"], design.spine_bundle),
            "core": (design.cores, design.core_down, design.core_up, ratio["core"], design.core_bundle),
            "super-spine": (design.super_spines, design.super_spine_down, 0, 1.0, 0),
        }
        for tier in fabric.tiers:
            names = ("switches", "down_ports", "up_ports", "oversubscription", "bundle")
            yield from figures(f"tiers[{site}, {tier.name}]", tier, dict(zip(names, rows[tier.name], strict=True)))
        of_design = ("switches", "switch_links", "endpoint_links", "pods", "zones", "group_links")
        found = {name: getattr(design, name) for name in of_design} | {"leaf_spare_ports": design.leaf_spare}
        found |= {"leaf_domain_racks": design.domain_racks, "leaf_domains": design.domains}
        found["chips"] = design.switches * physics.switches[fabric.switch].planes
        yield from figures(f"counts[{site}]", fabric, found)
        rule, price = f"price_and_power[{site}]", priced(physics, network, fabric, design)
        if price.usd == math.inf:
            reach = show(max(medium.reach_m for medium in network.media))
            yield broken(rule, f"cables longer than {reach} m, the longest reach of {len(network.media)} media")
        else:
            yield from figures(rule, fabric, {"cost_usd": price.usd, "power_mw": price.mw})


def priced(physics: PlanPhysics, network: Network, fabric: SiteFabric, design: Design) -> Bill:
    """Recompute the price in USD and the power of a fabric from its design and the switch model of each tier."""
    leaf, *above = (physics.switches[name] for name in (fabric.switch, *fabric.models[1:]))
    return bill(network, leaf, design, above)


def network_limits(network: Network, family: str, design: Design) -> Violations:
    """Check a fabric design against the oversubscription that its network allows, and the loss it is to survive.

    Oversubscription: the rate of a full block's GPUs over that of its links out; for a list of ratios by tier, that of
    a switch's ports down over up, of spines and cores where there are several pods or zones.
    """
    most, survives, (leaf, spine, core) = network.max_oversubscription, network.survives, network.tier_ratios
    pod, zone = design.rails_per_pod * design.domains_per_pod, design.rails_per_zone * design.domains_per_zone
    of_leaf = design.leaf_down * design.nic_gbps, design.leaf_up * design.link_gbps
    # A block, whether there are several, its leaves and links out; the tier above whose links leave it, and its ratio.
    for block, several, leaves, links, tier, ratio, (down, up) in (
        ("leaf", not design.single, 1, min(design.up_port_range), "leaf", leaf, of_leaf),
        ("pod", design.pods > 1, pod, design.pod_uplinks, "spine", spine, (design.spine_down, design.spine_up)),
        ("zone", design.zones > 1, zone, design.zone_uplinks, "core", core, (design.core_down, design.core_up)),
    ):
        if not several:
            continue
        ends, out = design.leaf_down * leaves * design.nic_gbps, links * design.link_gbps
        sides = f"of {ends:,.0f} Gbps of GPUs may leave a {block}", f"Gbps of a {block}'s uplinks"
        yield from at_most("core_share", network.min_core_share * ends, out, *sides)
        if most is not None and not isinstance(most, tuple) and most < math.inf:
            sides = f"Gbps of GPUs out of a {block}", f"at {to_one(most)} over {out:,.0f} Gbps of uplinks"
            yield from at_most("oversubscription", ends, most * out, *sides)
        if ratio < math.inf:
            sides = f"Gbps down to one up of a {tier}", "allowed"
            yield from at_most("oversubscription", down / max(up, 1e-9), ratio, *sides)
    if survives is not None and design.grouped:
        yield broken("survival", f"{survives} is of trees, and the fabric is a {family}")
    elif survives is not None and not design.single:
        yield from at_most("survival", 2, design.leaf_up, "links of a leaf upwards needed", "there")
    # A tree of equal bundles stays joined as long as each leaf reaches one spine: every spine position of a pod has
    # cores of its own, and every core position super-spines, that join all pods and zones. Of cores that positions
    # share two must be there to join several pods, and of super-spines two to join several zones; each joins all.
    if survives == "one_spine" and not design.single and not design.grouped:
        shared = (design.core_boxes, design.pods), (design.super_spine_boxes, design.zones)
        ways = [design.leaf_up // design.leaf_bundle, *(boxes for boxes, several in shared if boxes and several > 1)]
        yield from at_most("survival", 2, min(ways), "ways up from a leaf that share no switch needed", "there")


def joined_racks(instance: Instance, wired_gpus: int) -> float:
    """Bound the racks of the largest fabric that can be wired where its leaf is pinned or it has one or two tiers.

    Infinity where a leaf keeps a port towards a third tier or another group. The largest leaf domains are tried first.
    """
    network, pins, nic = instance.network, instance.pins, instance.hardware.gpu_nic_bytes_per_second
    every = (path for path in sorted(pins, key=len) if path.startswith("fabric."))
    own = {path.rpartition(".")[2]: pins[path] for path in every if instance.grid is None or path.count(".") == 1}
    tiers = math.inf if network is None else min(network.max_tiers, own.get("tiers", math.inf))
    leaf_pins = {"leaf_domain_racks", "leaf_down_ports", "leaf_up_ports"}
    if network is None or not wired_gpus or (tiers > 2 and not leaf_pins & own.keys()):
        return math.inf
    most, boxes = 0, network.switches
    for name, leaf, spine in product(network.families, boxes, boxes):
        chosen = {"family": name, "switch": leaf.name, "spine_switch": spine.name}
        if not same_ports(leaf, spine) or any(own.get(key, value) != value for key, value in chosen.items()):
            continue
        together = range(1, 1 + min(network.max_rails_per_leaf or wired_gpus, wired_gpus) if name == "rail" else 2)
        kind, lanes = FAMILIES[name].design, fabric_designs.lanes_of(leaf, nic)
        for split, rails in product(fabric_designs.port_splits(leaf, fabric_designs.lane_gbps(nic, lanes)), together):
            rack = FAMILIES[name].rack_ports(wired_gpus).shared(rails)
            for above in (False, True) if wired_gpus % rails == 0 else ():
                each = rack.rail_gpus * (1 if above else rack.rails)
                for racks in range(leaf.ports * split // each, 0, -1):
                    ends = racks * each
                    free = leaf.ports - -(-(ends + fabric_designs.spare_ports(ends, network.spares)) // split)
                    up = own.get("leaf_up_ports", free) if above else 0
                    stated = {"leaf_domain_racks": racks, "leaf_down_ports": ends, "leaf_up_ports": up}
                    if not above <= up <= free or any(own.get(key, value) != value for key, value in stated.items()):
                        continue
                    if above and (tiers > 2 or (kind.grouped and tiers >= len(kind.tier_names))):
                        return math.inf
                    domains = spine.ports // rack.rails if above and not 1 < rails == wired_gpus else 1
                    if kind.grouped or tiers <= above or not domains:
                        break
                    choices = {"leaf_down": ends, "leaf_up": up, "leaf_bundle": above, "split": split}
                    choices |= {"rails_per_pod": rack.rails, "domains_per_pod": domains, "lanes": lanes}
                    design = design_for(name, network, (leaf, spine), racks * domains, rack, nic, **choices)
                    if not [*design.faults(), *network_limits(network, name, design)]:
                        most = max(most, design.racks)
                        break
    return most


@needs("layout")
def slowdowns(physics: PlanPhysics, layout: LayoutPlan) -> Violations:
    """Check a fabric's stated shares of traffic out of leaves, pods and zones, and its slowdowns by uplinks."""
    phi, group = physics.transport_slowdown, strategy_of(layout).unit_racks(physics.gpus_per_rack)
    for site, fabric, _, design in wired(physics):
        if site not in physics.crossings:
            continue
        traffic, free = physics.crossings[site], free_by_exchange(physics, site, design)
        send, allreduce = by_loads(phi, uplink_loads(design, traffic.share_leaving, traffic.allreduces_leaving, free))
        found = {f"share_leaving_{level}": share for level, share in zip(BLOCKS, traffic.share_leaving, strict=True)}
        found |= {"pipeline_send_slowdown": send, "allreduce_slowdown": allreduce}
        if physics.metrics is not None:
            found["p2p_seconds"] = physics.metrics.pipeline_send_nic_seconds * fabric.pipeline_send_slowdown
        yield from figures(f"slowdowns[{site}]", fabric, found)
        # CP groups and experts on several racks are timed at the transport's own slowdown and must meet no other: racks
        # of one unit exchange all with all, and what leaves a leaf, a pod or a zone shares uplinks.
        shares = [exchange_leaving(physics.stages[site], racks, group) for racks in design.block_racks]
        took, _ = by_loads(phi, uplink_loads(design, shares, free=free))
        what = f"times the ideal exchange of {group} racks"
        yield from at_most(f"unit_exchange[{site}]", took, phi, what, "that the transport takes")


@needs("layout")
def cabled(physics: PlanPhysics, layout: LayoutPlan) -> Violations:
    """Check that a fabric cables the racks that carry replicas, with the GPUs of each that work."""
    work = -(-layout.racks_gpus // layout.racks_per_replica)
    for site, _, _ in fabrics(physics):
        racks, gpus = physics.cabled_racks(site), physics.wired_gpus_per_rack(site)
        for limit in (
            (physics.racks_in_use.get(site, 0), racks, "racks carry replicas", "racks are cabled"),
            (racks, physics.racks_by_site[site], "racks are cabled", "racks at the site"),
            (work, gpus, "GPUs of a rack work", "GPUs of a rack are cabled"),
            (gpus, physics.gpus_per_rack, "GPUs of a rack are cabled", "GPUs in a rack"),
        ):
            yield from at_most(f"cabled[{site}]", *limit)


def transport_factor(physics: PlanPhysics) -> Violations:
    """Check that a fabric's transport slowdown is that of a repeated simulation, and stated only where asked for."""
    stated, simulated = physics.plan.transport, factor(physics.instance.network)
    if stated is not None and simulated is not None:
        yield from figures("transport_factor", stated, simulated.model_dump())
    elif stated is not simulated:
        counts = f"{int(stated is not None)} factors stated, {int(simulated is not None)} asked for by the instance"
        yield broken("transport_factor", counts)


def pins(physics: PlanPhysics) -> Violations:
    """Check that the fabrics of a plan have the pinned values, a site's own pin over that of all sites."""
    names = "planes", "ports_per_switch", "leaf_domain_racks", "rails_per_pod", "leaf_domains_per_pod", "group_links"
    pinned = {path: value for path, value in sorted(physics.instance.pins.items()) if path.startswith("fabric.")}
    for place, fabric, _ in fabrics(physics):
        stated: dict[str, int | str] = {name: getattr(fabric, name) for name in (*names, "switch", "family")}
        stated["tiers"] = len(fabric.tiers)
        for name, tier in zip_longest(("leaf", "spine", "core"), fabric.tiers[:3]):
            stated |= {f"{name}_{what}": getattr(tier, what, 0) for what in ("down_ports", "up_ports", "bundle")}
        stated |= dict(zip(("spine_switch", "core_switch"), fabric.models[1:], strict=False))
        for path, value in pinned.items():
            site, _, name = path.removeprefix("fabric.").rpartition(".")
            if site == place or (not site and f"fabric.{place}.{name}" not in pinned):
                yield from must_be(f"pins[{path}]", f"{path} at {place}", stated.get(name), value)


def question(physics: PlanPhysics) -> Violations:
    """Check that the question for a fabric alone is stated in full, and that its hash is that of the question."""
    if physics.instance.network is None or physics.instance.hardware.racks is None:
        yield broken("question", "no network or no number of hosts, both expected")
    yield from must_be("question", "instance_sha256", physics.plan.instance_sha256, instance_sha256(physics.instance))


def one_fabric(physics: PlanPhysics) -> Violations:
    """Check that a plan of a fabric alone has one fabric with every host cabled, or a reason why it has none."""
    plan, racks = physics.plan, physics.instance.hardware.racks or 0
    if (plan.fabric is None) != (plan.conflict is not None) or plan.layout is not None or plan.sites is not None:
        stated = f"{int(plan.fabric is not None)} fabrics, {int(plan.conflict is not None)} conflicts"
        yield broken("one_fabric", f"{stated}, and no other section expected to be one of both")
    elif plan.fabric is not None and plan.fabric.sites.keys() != {CLUSTER}:
        yield broken("one_fabric", f"fabrics of {', '.join(sorted(plan.fabric.sites))}; one of {CLUSTER} expected")
    elif plan.fabric is not None:
        every = {"cabled_racks": racks, "wired_gpus_per_rack": physics.gpus_per_rack}
        yield from figures("one_fabric", plan.fabric.sites[CLUSTER], every)


@needs("fabric", "network")
def cheapest(physics: PlanPhysics, plan: FabricPlan, network: Network) -> Violations:
    """Check that objective, bill and fabric state one price within the budget, no listed kind of fabric costs less."""
    objective, cost = physics.plan.objective, physics.plan.cost
    if CLUSTER not in plan.sites:
        return
    usd, stated = plan.sites[CLUSTER].cost_usd, {"objective": objective.value, "bill": cost.total_usd if cost else None}
    if physics.plan.status == "optimal":
        stated["bound"] = objective.bound
        yield from at_most("cheapest", usd, physics.instance.limits.budget_usd, "dollars", "of budget")
    for name, price in stated.items():
        yield from must_equal("cheapest", f"{name} in dollars", price or 0.0, usd)
    # Kinds passed over for another reason may be cheaper: families not asked for, one switch that is to survive a loss.
    for fabric, name in ((other.fabric, other.name) for other in plan.alternatives):
        if fabric is not None and fabric.family in network.families and (len(fabric.tiers) > 1 or not network.survives):
            yield from at_most("cheapest", usd, fabric.cost_usd * (1 + 1e-9), "dollars", f"of {name}")


@needs("fabric", "network")
def listed(physics: PlanPhysics, plan: FabricPlan, network: Network) -> Violations:
    """Check kinds of fabric side by side, the chosen first, by the rules of their families; tails are on trust."""
    whole, ratios = (
        fabric_designs.half_rate_tbps(physics.instance.hardware, physics.gpus_per_rack),
        network.max_oversubscription,
    )
    first = sum(kind.fabric == plan.sites.get(CLUSTER) for kind in plan.alternatives[:1])
    yield from must_equal("listed", "kinds listed first that are the fabric built", first, 1)
    for fabric, kind in ((kind.fabric, kind) for kind in plan.alternatives if kind.fabric is not None):
        # Groups have one ratio, and what a loss cuts is not counted.
        free = {"survives": None, "max_oversubscription": max(ratios) if isinstance(ratios, tuple) else ratios}
        own = network.replaced(families=(fabric.family,), **(free if FAMILIES[fabric.family].design.grouped else {}))
        sites = plan.replaced(sites={CLUSTER: fabric}, alternatives=())
        each = PlanPhysics(plan=physics.plan.replaced(instance__network=own, fabric=sites))
        for fault in (fault for rule in (one_fabric, switch, wirable, wiring) for fault in rule(each)):
            yield fault.replaced(rule=f"listed[{kind.name}].{fault.rule}")
        for design in each.wired.values():
            yield from figures(f"listed[{kind.name}]", kind, {"bisection_tbps": whole * design.bisection_share})


def frontier(
    physics: PlanPhysics, site: str, rows: Sequence[Row], merits: Sequence[str], *, leaf_size: int | None = None
) -> Violations:
    """Check the rows of a site's fabric frontier: the figures of each, and that no other matches or beats it."""
    network, layout = physics.instance.network, physics.plan.layout
    if network is None or layout is None:
        yield broken(f"frontier[{site}]", f"{len(rows)} rows, and no network or layout to compare them by")
        return
    for i, row in enumerate(rows):
        rule, faults = f"frontier[{site}, {i}]", list(_faults(physics, network, row))
        yield from (broken(rule, fault) for fault in faults)
        if not faults:
            yield from _row(rule, physics, network, layout, site, row)
        if leaf_size is not None:
            yield from must_equal(rule, "leaf_domain_racks asked for", row["leaf_domain_racks"], leaf_size)
        if i and exceeds(rows[i - 1]["cost_usd"], row["cost_usd"]):
            yield broken(rule, "costs less than the row before it; rows go by cost")
        better = [k for k, other in enumerate(rows) if k != i and all(other[merit] <= row[merit] for merit in merits)]
        if better:
            yield broken(rule, f"row {better[0]} is as good or better in {', '.join(merits)}")


def _faults(physics: PlanPhysics, network: Network, row: Row) -> Iterator[str]:
    """Yield the choices of a row of a fabric frontier that are impossible, or that the network does not offer."""
    for name in COUNTS:
        value = row.get(name, 0)
        if not isinstance(value, int) or value < 0 or (value < 1 and name in ("lanes", "split", "leaf_down")):
            yield f"{name} is {value}; a count expected"
    for up, bundle in BUNDLES:
        # The bundles between routers of a group lead nowhere where a router is a group of its own.
        if row.get(bundle, 0) > row.get(up, 0) and (row["family"], up) != ("dragonfly", "leaf_up"):
            yield f"bundles of {row[bundle]} links, of {row.get(up, 0)} upwards ({bundle}, {up})"
    if row["group_links"] and not row["family"].startswith("dragonfly"):
        yield f"{row['group_links']} group_links of a {row['family']}, which has no groups"
    if row["family"] not in network.families:
        yield f"family {row['family']} is none of {', '.join(network.families)}"
    if row["lanes"] > network.max_lanes:
        yield f"{row['lanes']} lanes, {network.max_lanes} allowed"
    models, known = _models(row), physics.switches
    unknown = [name for name in dict.fromkeys(models) if name not in known]
    yield from (f"switch {name!r} is none of {', '.join(sorted(known))}" for name in unknown)
    if unknown:
        return
    if not all(same_ports(known[name], known[models[0]]) for name in models):
        yield f"switches {' and '.join(models)}, whose ports differ in rate, planes or price of links"
    if row["split"] > known[models[0]].breakout:
        yield f"ports in {row['split']} parts, {known[models[0]].breakout} allowed"


def _models(row: Row) -> list[str]:
    """Return the switch models of a frontier row's leaves, spines, cores and super-spines (the cores') by name."""
    spine, core = (row.get(f"{tier}_switch", row["switch"]) for tier in ("spine", "core"))
    return [row["switch"], spine, core, core]


def _row(rule: str, physics: PlanPhysics, network: Network, layout: LayoutPlan, site: str, row: Row) -> Violations:
    """Check that a row of a fabric frontier can be wired, keeps the network's rules, and states its own figures."""
    (switch, *above), family = (physics.switches[name] for name in _models(row)), FAMILIES[row["family"]]
    fabric = physics.plan.fabric.sites.get(site) if physics.plan.fabric else None
    gateway, nic = fabric.wan_gateway if fabric else None, physics.instance.hardware.gpu_nic_bytes_per_second
    wan_gbps, exchange_gbps = (gateway.wan_gbps, gateway.exchange_gbps) if gateway else (0.0, 0.0)
    rack = family.rack_ports(physics.wired_gpus_per_rack(site)).shared(row.get("rails_per_leaf", 1))
    counts = COUNTS[: COUNTS.index("spine_up")] if family.design.grouped else COUNTS  # the others are of trees
    own = {name: row.get(name, 0) for name in counts}
    own["wan_ports"] = wan.wan_ports(wan_gbps, rack.apart * own["lanes"], switch.port_gbps)
    design = design_for(row["family"], network, (switch, *above), physics.cabled_racks(site), rack, nic, **own)
    reasons = list(design.faults())
    yield from (broken(rule, reason) for reason in reasons)
    if reasons:
        return
    yield from at_most(rule, design.tiers, network.max_tiers, "tiers", "tiers allowed")
    yield from (one.replaced(rule=rule) for one in network_limits(network, row["family"], design))
    # All pipeline sends leave their leaf, pod and zone, where there are several. The exchange of gradients of one
    # stage loads the uplinks most where the stage's racks are close together.
    price, size = bill(network, switch, design, above), max(1, layout.racks_per_stage_by_site[site])
    free = free_uplinks(design, exchange_gbps, *(min(1.0, racks / size) for racks in design.block_racks))
    inside = (design.domains_per_pod, design.domains_per_zone)
    leaving = [float(design.domains > 1), *(float(0 < count < design.domains) for count in inside)]
    slow, _ = by_loads(physics.transport_slowdown, uplink_loads(design, leaving, free=free))
    # Each group is a run of racks, and the last leaf domain part-full.
    full, last = divmod(design.racks, design.domain_racks)
    local = full * (design.domain_racks // size) + last // size
    found = {"cost_usd": price.usd, "power_mw": price.mw, "pipeline_send_slowdown": slow, "tiers": design.tiers}
    found |= {"switches": design.switches, "planes": switch.planes * design.lanes}
    found |= {"leaf_domain_racks": design.domain_racks, "unavoidable_splits": max(0, layout.rack_stages - local)}
    found["racks_outside_leaf"] = max(0, design.racks - design.domain_racks)
    for name, figure in found.items():
        yield from must_equal(rule, name, row[name], figure)
    ideal, window = layout.metrics.pipeline_send_nic_seconds, layout.metrics.pipeline_send_window_seconds
    hidden = max(window, ideal * physics.transport_slowdown)
    yield from at_most(rule, ideal * slow, hidden, "s of a pipeline send", "s that hide it")


RULES = (every_site, switch, wirable, wiring, transport_factor, slowdowns, cabled, pins)
ALONE = (question, one_fabric, switch, wirable, wiring, *CABLE_RULES, cheapest, listed)
