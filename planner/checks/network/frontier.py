"""Rules of a frontier of fabrics: each row again from its choices, and no row that another matches or beats."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from planner.checks.network.asked import cut_by, tiers_over
from planner.checks.network.fabric import share_out
from planner.checks.rule import at_most, broken, exceeds, must_equal
from planner.instance.network import Network
from planner.physics.network.dragonfly import Dragonfly, dragonfly
from planner.physics.network.families import FAMILIES
from planner.physics.network.links import same_ports, spare_ports
from planner.physics.network.price import bill
from planner.physics.network.topology import Design, unwirable
from planner.physics.network.transport import pipeline_send_slowdown
from planner.physics.network.wan_gateway import free_uplinks, wan_ports
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Violation
from planner.plan.layout import LayoutPlan

Row = Mapping[str, Any]  # figures and choices of a design
MERITS = ("cost_usd", "pipeline_send_slowdown", "power_mw", "racks_outside_leaf", "unavoidable_splits")  # least is best
COUNTS = (
    "lanes", "split", "leaf_down", "leaf_up", "leaf_bundle", "rails_per_pod", "domains_per_pod", "group_links",
    "spine_up", "spine_bundle", "rails_per_zone", "domains_per_zone", "core_up", "core_bundle", "core_boxes",
    "super_spine_boxes",
)  # fmt: skip
BUNDLES = ("leaf_up", "leaf_bundle"), ("spine_up", "spine_bundle"), ("core_up", "core_bundle")


def frontier(
    c: PlanPhysics, site: str, rows: Sequence[Row], merits: Sequence[str], *, leaf_size: int | None = None
) -> Iterator[Violation]:
    """Check the rows of a site, by cost: what each costs and does, and that none is matched or beaten in its merits."""
    network, layout = c.instance.network, c.plan.layout
    if network is None or layout is None:
        yield broken(f"frontier[{site}]", f"{len(rows)} rows, and no network or layout to compare them by")
        return
    for i, row in enumerate(rows):
        rule = f"frontier[{site}, {i}]"
        faults = list(_faults(c, network, row))
        yield from (broken(rule, fault) for fault in faults)
        if not faults:
            yield from _row(rule, c, network, layout, site, row)
        if leaf_size is not None:
            yield from must_equal(rule, "leaf_domain_racks asked for", row["leaf_domain_racks"], leaf_size)
    yield from _order(site, rows, merits)


def _faults(c: PlanPhysics, network: Network, row: Row) -> Iterator[str]:
    """Yield the choices of a row that nothing can be computed from, or that the network does not offer."""
    for name in COUNTS:
        n = row.get(name, 0)
        if not isinstance(n, int) or n < 0 or (n < 1 and name in ("lanes", "split", "leaf_down")):
            yield f"{name} is {n}; a count expected"
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
    models = _models(row)
    unknown = [name for name in dict.fromkeys(models) if name not in c.switches]
    yield from (f"switch {name!r} is none of {', '.join(sorted(c.switches))}" for name in unknown)
    if unknown:
        return
    if not all(same_ports(c.switches[name], c.switches[models[0]]) for name in models):
        yield f"switches {' and '.join(models)}, whose ports differ in rate, planes or price of links"
    if row["split"] > c.switches[row["switch"]].breakout:
        yield f"ports in {row['split']} parts, {c.switches[row['switch']].breakout} allowed"


def _models(row: Row) -> list[str]:
    """Return the models of a row's leaves, spines, cores and super-spines, which are of the cores', by name."""
    spine, core = (row.get(f"{tier}_switch", row["switch"]) for tier in ("spine", "core"))
    return [row["switch"], spine, core, core]


def _design(c: PlanPhysics, network: Network, site: str, row: Row) -> Design:
    """Return the design that a row's choices stand for."""
    switch, family, spares = c.switches[row["switch"]], FAMILIES[row["family"]], network.spares
    rack, wiring = family.rack_ports(c.wired_gpus_per_rack(site)), family.wiring
    own: dict[str, Any] = {name: row.get(name, 0) for name in COUNTS} | rack._asdict()
    own |= {"ports": switch.ports, "racks": c.cabled_racks(site)}
    models = zip(("spine_ports", "core_ports", "super_spine_ports"), _models(row)[1:], strict=True)
    own |= {ports: c.switches[name].ports for ports, name in models if name != switch.name}
    own["leaf_spare"] = spare_ports(own["leaf_down"], spares.share, spares.failure_chance, spares.shortage_chance)
    own["wan_ports"] = wan_ports(_gateway(c, site)[0], rack.apart * own["lanes"], switch.port_gbps)
    if not issubclass(wiring.design, Dragonfly):
        return wiring.design(**own)
    of_trees = COUNTS[COUNTS.index("spine_up") :]
    own = {name: value for name, value in own.items() if name not in of_trees}
    return dragonfly(wiring.design, **own, valiant=network.group_routing == "valiant")


def _gateway(c: PlanPhysics, site: str) -> tuple[float, float]:
    """Return the rates of the wide area and of the exchange of gradients at a site's WAN gateway, in Gbps."""
    fabric = c.plan.fabric.sites.get(site) if c.plan.fabric else None
    gateway = fabric.wan_gateway if fabric else None
    return (gateway.wan_gbps, gateway.exchange_gbps) if gateway else (0.0, 0.0)


def _row(rule: str, c: PlanPhysics, network: Network, layout: LayoutPlan, site: str, row: Row) -> Iterator[Violation]:
    """Check that a row can be wired, hides what it slows, and states what its choices come to."""
    d, (switch, *above) = _design(c, network, site, row), [c.switches[name] for name in _models(row)]
    reasons = list(unwirable(d, cross_rail=True))
    yield from (broken(rule, reason) for reason in reasons)
    if reasons:
        return
    yield from at_most(rule, d.tiers, network.max_tiers, "tiers", "tiers allowed")
    yield from share_out(rule, network.asked_core_share, d)
    yield from tiers_over(rule, network.tier_ratios, d)
    yield from _survival(rule, network, d)
    price, slow = bill(network, switch, d, above), _slowdown(c, layout, site, row, d)
    groups, size = layout.rack_stages, max(1, layout.racks_per_stage_by_site[site])
    figures = {
        "cost_usd": price.usd,
        "power_mw": price.mw,
        "pipeline_send_slowdown": slow,
        "racks_outside_leaf": max(0, d.racks - d.domain_racks),
        "unavoidable_splits": _splits(d, groups, size),
        "switches": d.switches,
        "tiers": d.tiers,
        "planes": switch.planes * d.lanes,
        "leaf_domain_racks": d.domain_racks,
    }
    for name, figure in figures.items():
        yield from must_equal(rule, name, row[name], figure)
    m = layout.metrics
    ideal, window = m.pipeline_send_nic_seconds, m.pipeline_send_window_seconds
    hidden = max(window, ideal * c.transport_slowdown)
    yield from at_most(rule, ideal * slow, hidden, "s of a pipeline send", "s that hide it")


def _survival(rule: str, network: Network, d: Design) -> Iterator[Violation]:
    """Check that the loss which the instance asks to survive cuts no two leaves."""
    up, spines = cut_by(d)
    if up and network.survives is not None:
        yield from at_most(rule, 2, up, "links of a leaf upwards needed", "there")
    if spines and network.survives == "one_spine":
        yield from at_most(rule, 2, spines, "ways up from a leaf that share no switch needed", "there")


def _slowdown(c: PlanPhysics, layout: LayoutPlan, site: str, row: Row, d: Design) -> float:
    """Recompute the slowdown of pipeline sends that all leave their leaf, pod and zone, where there are several.

    The exchange of gradients of one stage loads the uplinks most where the stage's racks stand close together.
    """
    group = max(1, layout.racks_per_stage_by_site[site])
    near = [min(1.0, d.domain_racks * n / group) for n in (1, max(1, d.domains_per_pod), d.domains_per_zone)]
    free = free_uplinks(d, _gateway(c, site)[1], c.switches[row["switch"]].port_gbps, *near)
    leaving = [float(d.domains > 1), *(float(0 < n < d.domains) for n in (d.domains_per_pod, d.domains_per_zone))]
    return pipeline_send_slowdown(c.transport_slowdown, d, *leaving, free=free)


def _splits(d: Design, groups: int, size: int) -> int:
    """Count the groups beyond those that fit whole in leaf domains, each a run of racks and the last one part-full."""
    full, last = divmod(d.racks, d.domain_racks)
    return max(0, groups - (full * (d.domain_racks // size) + last // size))


def _order(site: str, rows: Sequence[Row], merits: Sequence[str]) -> Iterator[Violation]:
    """Check that rows rise in cost and that none is matched or beaten in every merit by another."""
    for i, row in enumerate(rows[1:], start=1):
        if exceeds(rows[i - 1]["cost_usd"], row["cost_usd"]):
            yield broken(f"frontier[{site}, {i}]", "costs less than the row before it; rows go by cost")
    for i, row in enumerate(rows):
        better = [k for k, x in enumerate(rows) if k != i and all(x[m] <= row[m] for m in merits)]
        if better:
            yield broken(f"frontier[{site}, {i}]", f"row {better[0]} is as good or better in {', '.join(merits)}")
