"""The WAN gateway under check: silent on a solved plan, and each planted slip found by name."""

from typing import Any

import networkx as nx
import pytest
from stored_plans import stored
from worked_plan import edited, edited_at, instance_with, named, small

from planner.api.plans import check
from planner.checks.frontiers import frontier as frontier_rules
from planner.exports.fabric_graph import edges, graph
from planner.exports.fabric_parts import built_fabric, cable_list
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan
from planner.planning.load import load_instance
from planner.planning.pareto import frontier
from planner.report.page.drawings import fabric_tiers

# One wavelength of 5 Gbps between two sites, on ports of 1 Gbps: a WAN gateway of five ports.
# A layout fixed in part, so that the plan is found in a moment; its stages send between racks.
LAYOUT = {
    "layout.tensor_parallel": 2,
    "layout.context_parallel": 1,
    "layout.pipeline_parallel": 2,
    "layout.stages_per_rack": 1,
    "layout.zero_stage": 1,
}
LAYOUT |= {"wan.wavelengths": 1}
PLAN = stored(instance_with(network__wan_gateway=True, wan__wavelength_gbps=5, pins=LAYOUT))
SITE = min(PLAN.fabric.sites)
AT = f"fabric.sites.{SITE}"


def test_a_wan_gateway_of_five_ports() -> None:
    """Each end of the link has a switch with five ports out and five up, paid with the fabric; nothing is broken."""
    assert check(PLAN) == []
    assert [k.wavelengths for k in PLAN.sites.links] == [1]
    for f in PLAN.fabric.sites.values():
        assert (f.wan_gateway.wan_gbps, f.wan_gateway.wan_ports, f.wan_gateway.switches, f.wan_gateway.uplinks) == (
            5,
            5,
            1,
            5,
        )
        assert f.wan_gateway.cost_usd == pytest.approx(1e4 + 5 * 2 * 100)
        assert f.wan_gateway.power_mw == pytest.approx((100 + 5 * 2 * 5) / 1e6)
    assert PLAN.cost.capex_usd["fabric"] == pytest.approx(sum(f.cost_usd for f in PLAN.fabric.sites.values()))


@pytest.mark.parametrize(
    ("path", "change", "rules"),
    [
        ("wan_gateway", None, {"wan_gateway", "price_and_power"}),
        ("wan_gateway.wan_ports", 4, {"wan_gateway_counts", "cables", "price_and_power"}),
        ("wan_gateway.wan_ports", 6, {"wan_gateway_counts", "cables", "price_and_power"}),
        ("wan_gateway.wan_ports", 0, {"wirable"}),
        ("wan_gateway.wan_ports", 10**12, {"wirable"}),
        ("wan_gateway.uplinks", 4, {"wan_gateway_counts", "cables"}),
        ("wan_gateway.switches", 2, {"wan_gateway_counts", "cables"}),
        ("wan_gateway.switches", 0, {"wan_gateway_counts", "cables"}),
        ("wan_gateway.switches", 10**12, {"wan_gateway_counts"}),
        ("split", 10**12, {"switch"}),
        ("wan_gateway.wan_gbps", 4.0, {"wan_gateway_counts"}),
        ("wan_gateway.cost_usd", 1e4, {"wan_gateway_counts"}),
        ("wan_gateway.power_mw", 1e-4, {"wan_gateway_counts"}),
        ("wan_gateway.exchange_gbps", 2.0, {"wan_gateway_counts"}),
        ("wan_gateway.leaf_uplink_share", 0.0, {"wan_gateway_uplinks"}),
        ("wan_gateway.pod_uplink_share", 0.1, {"wan_gateway_uplinks"}),
    ],
)
def test_an_edit_names_its_rules(path: str, change: Any, rules: set[str]) -> None:
    """Each slip breaks the rules about it; a port missing does so in the count, in the cables and in the price."""
    assert {f"{r}[{SITE}]" for r in rules} <= named(edited_at(PLAN, f"{AT}.{path}", change))


@pytest.mark.parametrize(("ports", "broken"), [(5, False), (4, True)])
def test_gradients_fit_the_ports(ports: int, broken: bool) -> None:
    """Ports that carry exactly what the gradients need do, one port fewer does not."""
    need = PLAN.fabric.sites[SITE].wan_gateway.exchange_gbps
    switches = [{**PLAN.instance.network.switches[0].model_dump(), "port_gbps": need / 5}]
    p = edited(PLAN, instance__network__switches=switches, **{f"fabric__sites__{SITE}__wan_gateway__wan_ports": ports})
    assert (f"wan_gateway_rate[{SITE}]" in named(p)) == broken


def test_gradients_fit_the_uplinks() -> None:
    """Uplinks that carry exactly what gradients send up break no rule of theirs; a hundredth less does."""
    f = PLAN.fabric.sites[SITE]
    full = f.wan_gateway.leaf_uplink_share * PLAN.instance.network.switches[0].port_gbps
    for gbps, broken in ((full, False), (0.99 * full, True)):
        switches = [{**PLAN.instance.network.switches[0].model_dump(), "port_gbps": gbps}]
        p = edited_at(edited(PLAN, instance__network__switches=switches), f"{AT}.wan_gateway.leaf_uplink_share", 1.0)
        said = [
            v.message
            for v in check(p)
            if v.rule == f"wan_gateway_uplinks[{SITE}]" and "Gbps of gradients at a leaf" in v.message
        ]
        assert bool(said) == broken


def test_the_exchange_slows_what_stays() -> None:
    """On slow ports gradients take three quarters of a leaf's uplinks.

    All-reduces over the rest are four times as slow as without a WAN gateway.
    """
    plan = stored(
        instance_with(network__wan_gateway=True, wan__wavelength_gbps=5, pins={**LAYOUT, "fabric.leaf_domain_racks": 2})
    )
    site = min(plan.fabric.sites)
    switches = [
        {
            **plan.instance.network.switches[0].model_dump(),
            "port_gbps": plan.fabric.sites[site].wan_gateway.leaf_uplink_share / 0.75,
        }
    ]
    loaded = edited(plan, instance__network__switches=switches)
    freed = edited(
        loaded,
        instance__network__wan_gateway=False,
        **{f"fabric__sites__{s}__wan_gateway": None for s in plan.fabric.sites},
    )
    rule, stated = f"slowdowns[{site}]", plan.fabric.sites[site].allreduce_slowdown
    # Two rings share three uplinks of a leaf, or the quarter of them that is left.
    recomputed = 4 * 2 / 3 * 1.05
    said = [v.message for v in check(loaded) if v.rule == rule]
    assert said[0] == f"allreduce_slowdown: {stated:.10g} stated, {recomputed:.10g} recomputed"
    assert rule not in named(freed)


def test_a_wan_gateway_only_where_it_is_asked_for() -> None:
    """A plan without wan_gateways breaks the rule of each site once the instance asks for them.

    The other way round.
    """
    assert {"wan_gateway[e1]", "wan_gateway[w1]"} <= named(small(network__wan_gateway=True))
    assert f"wan_gateway[{SITE}]" in named(edited(PLAN, instance__network__wan_gateway=False))
    assert named(small()) == set()


def test_a_wan_gateway_finds_no_ports() -> None:
    """A design whose top tier is full cannot have a WAN gateway."""
    top = PLAN.fabric.sites[SITE].tiers[-1]
    room = (16 - top.down_ports) * top.switches
    assert f"wirable[{SITE}]" not in named(edited_at(PLAN, f"{AT}.wan_gateway.wan_ports", room))
    assert f"wirable[{SITE}]" in named(edited_at(PLAN, f"{AT}.wan_gateway.wan_ports", room + 1))


def test_exports_name_the_wan_gateway() -> None:
    """Cable list, graph and picture hold the WAN gateway's switch and its five links."""
    x = built_fabric(PLAN, SITE)
    assert len([line for line in "".join(cable_list(x)).splitlines() if line.startswith("wan-gateway-0-0,")]) == 5
    for by_pod in (False, True):
        g = graph(x, by_pod=by_pod)
        wan_gateway = [n for n, tier in nx.get_node_attributes(g, "tier").items() if tier == "wan-gateway"]
        assert len(wan_gateway) == 1
        assert sum(g.edges[wan_gateway[0], n]["cables"] for n in g[wan_gateway[0]]) == 5
    assert "5 ports to the wide area" in fabric_tiers(x)


def test_alternatives_hold_the_wan_gateway() -> None:
    """The cheapest alternative of a site costs what its fabric does, WAN gateway and all."""
    least = min(x.merits["cost_usd"] for site, x in frontier(PLAN) if site == SITE)
    assert least == pytest.approx(PLAN.fabric.sites[SITE].cost_usd)


AXES = {"cost": "cost_usd", "time": "pipeline_send_slowdown", "power": "power_mw"}


@pytest.fixture(scope="module")
def apart() -> tuple[Plan, list[dict[str, Any]]]:
    """Plan leaves of two racks under a WAN gateway, with the rows of its frontier at a site."""
    plan = stored(
        instance_with(network__wan_gateway=True, wan__wavelength_gbps=5, pins={**LAYOUT, "fabric.leaf_domain_racks": 2})
    )
    return plan, [{**x.merits, **x.choices} for site, x in frontier(plan, axes=list(AXES)) if site == SITE]


@pytest.mark.parametrize(
    ("path", "change", "said"),
    [
        ("exchange_gbps", lambda x: x, set()),
        ("exchange_gbps", lambda x: 0.8 * x, {"pipeline_send_slowdown"}),
        ("exchange_gbps", lambda x: 1000 * x, {"pipeline_send_slowdown", "inf s of a pipeline send > 1"}),
        ("wan_gbps", lambda x: x + 2, {"cost_usd", "power_mw"}),
        ("wan_gbps", lambda x: x - 0.5, set()),
    ],
)
def test_alternatives_are_judged_with_the_wan_gateway(
    apart: tuple[Plan, list[dict[str, Any]]], path: str, change: Any, said: set[str]
) -> None:
    """Rows found with a WAN gateway hold with it: its ports are paid, and gradients slow the sends beside them.

    A rate that takes as many ports changes nothing; gradients that no uplink carries leave no time to sends.
    """
    plan, rows = apart
    assert len(rows) > 1
    changed = edited_at(plan, f"{AT}.wan_gateway.{path}", change)
    found = list(frontier_rules(PlanPhysics(plan=changed), SITE, rows, list(AXES.values())))
    assert {v.message.partition(":")[0].partition(".")[0] for v in found} == said


def test_one_site_has_no_wan_gateway() -> None:
    """Where no wavelengths end there is no WAN gateway, asked for or not."""
    data = instance_with(network__wan_gateway=True).model_dump(mode="json")
    cluster = {
        **data,
        "grid": None,
        "wan": None,
        "hardware": {**data["hardware"], "racks": 8},
        "limits": {"max_batch_tokens": 6000},
    }
    plan = stored(load_instance(cluster))
    assert plan.fabric.sites["cluster"].wan_gateway is None
    assert PlanPhysics(plan=plan).wired["cluster"].wan_ports == 0


@pytest.fixture(scope="module")
def zoned() -> Plan:
    """Plan four tiers with wan_gateways at their super-spines."""
    pins = {"fabric.tiers": 4, "fabric.leaf_domain_racks": 2}
    return stored(instance_with(network__wan_gateway=True, wan__wavelength_gbps=5, pins={**LAYOUT, **pins}))


def test_super_spines_join_a_wan_gateway(zoned: Plan) -> None:
    """Every rule holds, the WAN gateway's links end at super-spines.

    Gradients take a part of what leaves a zone.
    """
    assert check(zoned) == []
    f = zoned.fabric.sites[SITE]
    assert 0 < f.wan_gateway.zone_uplink_share < 1
    lines = [
        line
        for line in "".join(cable_list(built_fabric(zoned, SITE))).splitlines()
        if line.startswith("wan-gateway-0-0,")
    ]
    assert len(lines) == f.wan_gateway.uplinks and all("super-spine" in line for line in lines)


@pytest.mark.parametrize(
    ("path", "change", "rules"),
    [("wan_gateway.zone_uplink_share", 0.0, {"wan_gateway_uplinks"}), ("wan_gateway.wan_ports", 10**4, {"wirable"})],
)
def test_an_edit_of_four_tiers_names_its_rules(zoned: Plan, path: str, change: Any, rules: set[str]) -> None:
    """Slips in what gradients take of a zone's uplinks are found."""
    assert {f"{r}[{SITE}]" for r in rules} <= named(edited_at(zoned, f"{AT}.{path}", change))


def test_gradients_fit_the_uplinks_of_a_zone(zoned: Plan) -> None:
    """Uplinks of a zone that carry exactly what its racks send break no rule of theirs; a hundredth less does."""
    full = zoned.fabric.sites[SITE].wan_gateway.zone_uplink_share * zoned.instance.network.switches[0].port_gbps
    for gbps, broken in ((full, False), (0.99 * full, True)):
        switches = [{**zoned.instance.network.switches[0].model_dump(), "port_gbps": gbps}]
        said = [
            v.message
            for v in check(edited(zoned, instance__network__switches=switches))
            if v.rule == f"wan_gateway_uplinks[{SITE}]"
        ]
        assert any("Gbps of gradients at a zone" in text for text in said) == broken


@pytest.fixture(scope="module", params=["dragonfly", "dragonfly+"])
def grouped(request: pytest.FixtureRequest) -> Plan:
    """Plan dragonflies of either kind with wan_gateways: leaves of two racks, so that there are several groups."""
    asked = {
        "network__families": [request.param],
        "network__group_routing": "valiant",
        "pins": {**LAYOUT, "fabric.leaf_domain_racks": 2},
    }
    return stored(instance_with(network__wan_gateway=True, wan__wavelength_gbps=5, **asked))


def test_a_dragonfly_has_a_wan_gateway(grouped: Plan) -> None:
    """Every rule holds, the WAN gateway's five links among the cables laid.

    The picture, graph and cable list name it.
    """
    assert check(grouped) == []
    site = min(grouped.fabric.sites)
    f, x = grouped.fabric.sites[site], built_fabric(grouped, site)
    assert (f.wan_gateway.wan_ports, f.wan_gateway.uplinks, f.wan_gateway.switches) == (5, 5, 1)
    assert 0 < f.wan_gateway.leaf_uplink_share < 1
    assert len([line for line in "".join(cable_list(x)).splitlines() if line.startswith("wan-gateway-0-0,")]) == 5
    assert "wan-gateway" in nx.get_node_attributes(graph(x, by_pod=False), "tier").values()
    counted = x.design.leaves + x.design.switch_pairs + f.wan_gateway.uplinks
    assert graph(x, by_pod=False).number_of_edges() <= edges(x) == counted
    assert "5 ports to the wide area" in fabric_tiers(x)


@pytest.mark.parametrize(
    ("path", "change", "rules"),
    [
        ("wan_gateway", None, {"wan_gateway", "price_and_power"}),
        ("wan_gateway.wan_ports", 6, {"wan_gateway_counts", "cables", "price_and_power"}),
        ("wan_gateway.uplinks", 4, {"wan_gateway_counts", "cables"}),
        ("wan_gateway.leaf_uplink_share", 0.0, {"wan_gateway_uplinks"}),
        ("wan_gateway.wan_ports", 10**4, {"wirable"}),
    ],
)
def test_an_edit_of_a_dragonfly_names_its_rules(grouped: Plan, path: str, change: Any, rules: set[str]) -> None:
    """Slips in the WAN gateway of a dragonfly are found by the same rules."""
    site = min(grouped.fabric.sites)
    assert {f"{r}[{site}]" for r in rules} <= named(edited_at(grouped, f"fabric.sites.{site}.{path}", change))
