"""The WAN gateway under check: silent on a solved plan, and each planted slip found by name."""

from functools import cache
from typing import Any

import pytest
from each_case import each
from stored_plans import stored
from worked_plan import INSTANCE, edited, edited_at, instance_with, named, small

from planner.api.plan_calls import check
from planner.checks.fabric import frontier as frontier_rules
from planner.exports.fabric_graph import edges
from planner.exports.fabric_parts import built_fabric, cable_list
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan
from planner.planning.load import load_instance
from planner.planning.site_fabrics import frontier
from planner.report.page.drawings import fabric_tiers

# One wavelength of 5 Gbps between two sites, on ports and NICs of 1 Gbps: a WAN gateway of five ports.
FAST = {"hardware__nic_bytes_per_second": 125e6}
FAST |= {"network__switches": [{**INSTANCE["network"]["switches"][0], "port_gbps": 1}]}
# A layout fixed in part, so that the plan is found in a moment; its stages send between racks.
LAYOUT = {f"layout.{k}": n for k, n in {"tensor_parallel": 2, "context_parallel": 1, "pipeline_parallel": 2}.items()}
LAYOUT |= {"layout.stages_per_rack": 1, "layout.zero_stage": 1, "wan.wavelengths": 1}
APART = {"fabric.leaf_domain_racks": 2}
GROUPED = {"network__group_routing": "valiant", "pins": LAYOUT | APART}
KINDS: dict[str, dict[str, Any]] = {
    "two tiers": {"pins": LAYOUT},
    "apart": {"pins": LAYOUT | APART},  # leaves of two racks
    "four tiers": {"pins": LAYOUT | APART | {"fabric.tiers": 4}},
    "dragonfly": GROUPED | {"network__families": ["dragonfly"]},
    "dragonfly+": GROUPED | {"network__families": ["dragonfly+"]},
}


@cache
def plan_of(kind: str) -> Plan:
    return stored(instance_with(network__wan_gateway=True, wan__wavelength_gbps=5, **FAST, **KINDS[kind]))


PLAN = plan_of("two tiers")
SITE = min(PLAN.fabric.sites)
AT = f"fabric.sites.{SITE}"


def test_a_wan_gateway_of_five_ports() -> None:
    """Each end of the link has a switch with five ports out and five up, paid with the fabric; nothing is broken."""
    assert check(PLAN) == []
    assert [k.wavelengths for k in PLAN.sites.links] == [1]
    for f in PLAN.fabric.sites.values():
        x = f.wan_gateway
        assert (x.wan_gbps, x.wan_ports, x.switches, x.uplinks) == (5, 5, 1, 5)
        assert (x.cost_usd, x.power_mw) == pytest.approx((1e4 + 5 * 2 * 100, (100 + 5 * 2 * 5) / 1e6))
    assert PLAN.cost.capex_usd["fabric"] == pytest.approx(sum(f.cost_usd for f in PLAN.fabric.sites.values()))


BOXES = {"wan_gateway_counts", "cables"}
PORTS = BOXES | {"price_and_power"}
COUNTS, UPLINKS, WIRABLE = {"wan_gateway_counts"}, {"wan_gateway_uplinks"}, {"wirable"}
OF_TWO_TIERS: list[tuple[str, Any, set[str]]] = [
    ("wan_ports", 4, PORTS), ("wan_ports", 6, PORTS), ("wan_ports", 0, WIRABLE), ("wan_ports", 10**12, WIRABLE),
    ("uplinks", 4, BOXES), ("switches", 2, BOXES), ("switches", 0, BOXES), ("switches", 10**12, COUNTS),
    ("wan_gbps", 4.0, COUNTS), ("cost_usd", 1e4, COUNTS), ("power_mw", 1e-4, COUNTS), ("exchange_gbps", 2.0, COUNTS),
    ("leaf_uplink_share", 0.0, UPLINKS), ("pod_uplink_share", 0.1, UPLINKS),
]  # fmt: skip
EDITS = [("two tiers", f"wan_gateway.{name}", value, rules) for name, value, rules in OF_TWO_TIERS]
EDITS += [(kind, "wan_gateway", None, {"wan_gateway", "price_and_power"}) for kind in KINDS if kind != "apart"]
EDITS += [("two tiers", "split", 10**12, {"switch"}), ("four tiers", "wan_gateway.zone_uplink_share", 0.0, UPLINKS)]
EDITS += [(kind, "wan_gateway.wan_ports", 10**4, WIRABLE) for kind in ("four tiers", "dragonfly", "dragonfly+")]
for one in ("dragonfly", "dragonfly+"):
    EDITS += [(one, "wan_gateway.wan_ports", 6, PORTS), (one, "wan_gateway.uplinks", 4, BOXES)]
    EDITS += [(one, "wan_gateway.leaf_uplink_share", 0.0, UPLINKS)]


@each(("kind", "path", "change", "rules"), EDITS)
def test_an_edit_names_its_rules(kind: str, path: str, change: Any, rules: set[str]) -> None:
    """Each slip breaks the rules about it; a port missing does so in the count, in the cables and in the price."""
    plan = plan_of(kind)
    site = min(plan.fabric.sites)
    assert {f"{r}[{site}]" for r in rules} <= named(edited_at(plan, f"fabric.sites.{site}.{path}", change))


def at_rate(plan: Plan, gbps: float) -> Plan:
    box = plan.instance.network.switches[0].model_dump()
    return edited(plan, instance__network__switches=[{**box, "port_gbps": gbps}])


@each(("ports", "broken"), [(5, False), (4, True)])
def test_gradients_fit_the_ports(ports: int, broken: bool) -> None:
    slow = at_rate(PLAN, PLAN.fabric.sites[SITE].wan_gateway.exchange_gbps / 5)
    assert (f"wan_gateway_rate[{SITE}]" in named(edited_at(slow, f"{AT}.wan_gateway.wan_ports", ports))) == broken


@each(("kind", "block"), [("two tiers", "leaf"), ("four tiers", "zone")])
@each(("share", "broken"), [(1.0, False), (0.99, True)])
def test_gradients_fit_the_uplinks(kind: str, block: str, share: float, broken: bool) -> None:
    plan = plan_of(kind)
    gateway, port = plan.fabric.sites[SITE].wan_gateway, plan.instance.network.switches[0].port_gbps
    slow = at_rate(plan, share * getattr(gateway, f"{block}_uplink_share") * port)
    if block == "leaf":
        slow = edited_at(slow, f"{AT}.wan_gateway.leaf_uplink_share", 1.0)
    said = [v.message for v in check(slow) if v.rule == f"wan_gateway_uplinks[{SITE}]"]
    assert any(f"Gbps of gradients at a {block}" in text for text in said) == broken


def test_the_exchange_slows_what_stays() -> None:
    """On slow ports gradients take three quarters of a leaf's uplinks: all-reduces over the rest take four times."""
    plan = plan_of("apart")
    site = min(plan.fabric.sites)
    port_nics = plan.fabric.sites[site].wan_gateway.leaf_uplink_share / 0.75  # of 1 Gbps each
    loaded = at_rate(plan, port_nics)
    none = {f"fabric__sites__{s}__wan_gateway": None for s in plan.fabric.sites}
    rule, stated = f"slowdowns[{site}]", plan.fabric.sites[site].allreduce_slowdown
    # Two rings share three uplinks of a leaf, or the quarter of them that is left.
    unloaded = edited(loaded, instance__network__wan_gateway=False, **none)
    for slow, times in (loaded, 4), (unloaded, 1):
        said = [v.message for v in check(slow) if v.rule == rule]
        factor = times * 2 / (3 * port_nics) * 1.05
        assert said[0] == f"allreduce_slowdown: {stated:.10g} stated, {factor:.10g} recomputed"


def test_a_wan_gateway_only_where_it_is_asked_for_and_ports_are_free() -> None:
    top = PLAN.fabric.sites[SITE].tiers[-1]
    room = (16 - top.down_ports) * top.switches
    assert f"wirable[{SITE}]" not in named(edited_at(PLAN, f"{AT}.wan_gateway.wan_ports", room))
    assert f"wirable[{SITE}]" in named(edited_at(PLAN, f"{AT}.wan_gateway.wan_ports", room + 1))
    assert {"wan_gateway[e1]", "wan_gateway[w1]"} <= named(small(network__wan_gateway=True))
    assert f"wan_gateway[{SITE}]" in named(edited(PLAN, instance__network__wan_gateway=False))
    assert named(small()) == set()


AXES = {"cost": "cost_usd", "time": "pipeline_send_slowdown", "power": "power_mw"}


@each(("path", "change", "said"), [
    ("exchange_gbps", lambda x: x, set()), ("exchange_gbps", lambda x: 0.8 * x, {"pipeline_send_slowdown"}),
    ("exchange_gbps", lambda x: 1000 * x, {"pipeline_send_slowdown", "inf s of a pipeline send > 1"}),
    ("wan_gbps", lambda x: x + 2, {"cost_usd", "power_mw"}), ("wan_gbps", lambda x: x - 0.5, set()),
])  # fmt: skip
def test_alternatives_are_judged_with_the_wan_gateway(path: str, change: Any, said: set[str]) -> None:
    """Rows found with a WAN gateway hold with it: its ports are paid, and gradients slow the sends beside them."""
    # A rate that takes as many ports changes nothing; gradients that no uplink carries leave no time to sends.
    plan = plan_of("apart")
    rows = [x for x in frontier(plan, axes=list(AXES)) if x["site"] == SITE]
    assert len(rows) > 1
    changed = edited_at(plan, f"{AT}.wan_gateway.{path}", change)
    found = list(frontier_rules(PlanPhysics(plan=changed), SITE, rows, list(AXES.values())))
    assert {v.message.partition(":")[0].partition(".")[0] for v in found} == said


def test_one_site_has_no_wan_gateway() -> None:
    data = instance_with(network__wan_gateway=True).model_dump(mode="json") | {"grid": None, "wan": None}
    data |= {"hardware": {**data["hardware"], "racks": 8}, "limits": {"max_batch_tokens": 6000}}
    plan = stored(load_instance(data))
    assert plan.fabric.sites["cluster"].wan_gateway is None
    assert PlanPhysics(plan=plan).wired["cluster"].wan_ports == 0


@each(("kind", "block"), [
    ("two tiers", "leaf"), ("four tiers", "zone"), ("dragonfly", "leaf"), ("dragonfly+", "leaf"),
])  # fmt: skip
def test_a_wan_gateway_of_every_kind_holds(kind: str, block: str) -> None:
    """Its links end at the top switches, gradients take a part of what leaves a block, and exports name it."""
    plan = plan_of(kind)
    site = min(plan.fabric.sites)
    gateway, x = plan.fabric.sites[site].wan_gateway, built_fabric(plan, site)
    listed = [line for line in "".join(cable_list(x)).splitlines() if line.startswith("wan-gateway-0-0,")]
    assert check(plan) == [] and 0 < getattr(gateway, f"{block}_uplink_share") < 1
    assert (gateway.wan_ports, gateway.switches, len(listed)) == (5, 1, gateway.uplinks)
    assert kind != "four tiers" or all("super-spine" in line for line in listed)
    assert "5 ports to the wide area" in fabric_tiers(x)
    if kind.startswith("dragonfly"):
        assert edges(x) == x.design.leaves + x.design.switch_pairs + gateway.uplinks
