"""Rules of the fabric, on both sides of their edges, what an instance asks of one, and the rows of a frontier."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from each_case import each
from fabric_cases import instance, switch
from fabric_graph import survives
from fabric_zone_cases import every_design
from stored_plans import stored
from tiers import more, slow
from worked_plan import ASSIGNMENT, INSTANCE, edited, edited_at, instance_with, named, rules, small, worked

from planner.api.plan_calls import check
from planner.checks import fabric
from planner.checks.fabric import frontier as frontier_rules
from planner.checks.fabric import network_limits, wirable
from planner.checks.fabric import pins as fabric_pins
from planner.errors import InputError
from planner.models.fabric.fabric_templates import FABRIC_AXES
from planner.models.fabric.site_traffic import FabricRequest
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_designs import design_for
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import decision_of
from planner.plan.plan import Plan
from planner.planning.conflict import _reason, _rules
from planner.planning.load import load_instance
from planner.planning.site_fabrics import frontier

INSTANCES = Path(__file__).parents[3] / "instances"
PLAN = small()


# Six racks of the eight at e1, of four GPUs each, carry replicas.
@each(("rule", "edits"), [
    ("switch[e1]", [("e1.switch", "other"), ("e1.planes", 1), ("e1.ports_per_switch", 32), ("e1.lanes", 2),
        ("e1.split", 2)]),
    ("tiers[e1, core]", [("e1.tiers.2.switches", 3)]), ("tiers[e1, leaf]", [("e1.tiers.0.oversubscription", 1.0)]),
    ("tiers[e1, spine]", [("e1.tiers.1.down_ports", 8)]),
    ("wirable[e1]", [("e1.tiers.0.up_ports", 13), ("e1.tiers.0.bundle", 3), ("e1.tiers.0.down_ports", 0),
        ("e1.tiers", []), ("e1.tiers.1.name", "core"), ("e1.rails_per_pod", 0), ("e1.rails_per_pod", 5),
        ("e1.family", "rack"), ("e1.lanes", 0), ("e1.split", 0)]),
    ("counts[e1]", [("e1.switches", 15), ("e1.chips", 31), ("e1.switch_links", 31), ("e1.endpoint_links", 31),
        ("e1.leaf_domain_racks", 5), ("e1.pods", 1), ("e1.leaf_spare_ports", 1)]),
    ("cables[e1]", [("e1.tiers.2.switches", 3), ("e1.tiers.0.switches", 9), ("e1.switch_links", 25),
        ("e1.endpoint_links", 31)]),
    ("price_and_power[e1]", [("e1.cost_usd", lambda x: x * 0.99), ("e1.power_mw", lambda x: x * 0.99)]),
    ("slowdowns[e1]", [("e1.share_leaving_leaf", 0.5), ("e1.pipeline_send_slowdown", 1.05),
        ("e1.p2p_seconds", lambda x: x * 0.99)]),
    ("slowdowns[w1]", [("w1.allreduce_slowdown", 1.0)]),
    ("shared_links[e1]", [("e1.shared_links", []), ("e1.shared_links.0.together_slowdown", 1.05),
        ("e1.shared_links.1.together_slowdown", lambda x: x * 0.99),
        ("e1.shared_links.1.allreduce_slowdown", lambda x: x * 1.01)]),
    ("cabled[e1]", [("e1.cabled_racks", 5), ("e1.cabled_racks", 9), ("e1.wired_gpus_per_rack", 3),
        ("e1.wired_gpus_per_rack", 5)]),
])  # fmt: skip
def test_an_edit_names_its_rule(rule: str, edits: list[tuple[str, Any]]) -> None:
    for path, change in edits:
        assert rule in named(edited_at(PLAN, "fabric.sites." + path, change)), path


def test_fabrics_are_of_the_sites_and_sends_of_the_passes() -> None:
    assert "sends_beside_rings" in named(edited_at(PLAN, "layout.metrics.sends_beside_rings", 0))
    held = PLAN.model_dump(mode="json")["fabric"]["sites"]
    assert "every_site[w1]" in named(edited(PLAN, fabric__sites={"e1": held["e1"]}))
    assert "every_site[e2]" in named(edited(PLAN, fabric__sites={**held, "e2": held["e1"]}))


def test_a_fault_at_one_site_hides_none_at_another() -> None:
    """Two sites with a switch that is not there are named both, and so are both whose cables no medium reaches."""
    unknown = edited(PLAN, fabric__sites__e1__switch="other", fabric__sites__w1__switch="other")
    assert {"switch[e1]", "switch[w1]"} <= named(unknown)
    short = [{"name": "short", "reach_m": 0.1, "price_usd": 1}]
    instance = instance_with(network__floor={"rise_m": 1.0}, network__media=short)
    assert {"price_and_power[e1]", "price_and_power[w1]"} <= named(PLAN.replaced(instance=instance))


BOX = INSTANCE["network"]["switches"][0]


@each(("model", "rules_of_e1"), [
    ({"price_usd": BOX["price_usd"] + 1000}, {"price_and_power"}),
    ({"power_watts": BOX["power_watts"] + 10}, {"price_and_power"}), ({"ports": BOX["ports"] + 1}, set()),
    ({"ports": 6}, set()), ({"ports": 5}, {"wirable"}), ({"port_gbps": BOX["port_gbps"] * 2}, {"switch"}),
    ({"planes": BOX["planes"] * 2}, {"switch"}), ({"link_factor": 2.0}, {"switch"}),
    ({"name": "elsewhere"}, {"switch"}),
])  # fmt: skip
def test_spines_of_another_model(model: dict[str, Any], rules_of_e1: set[str]) -> None:
    """Spines may be of any model with a leaf's rate, planes and links, as many ports as they use, and its own price."""
    other = {**BOX, "name": "other", **model}
    two = small(network__switches=[BOX, other])
    assert "switch[e1]" in named(edited_at(two, "fabric.sites.e1.tiers.0.switch", "other"))
    mixed = edited_at(two, "fabric.sites.e1.tiers.1.switch", "other")
    found = {r.removesuffix("[e1]") for r in named(mixed) if r.endswith("[e1]")}
    assert rules_of_e1 <= found & {"switch", "wirable", "price_and_power", "tiers", "counts", "cables"} <= rules_of_e1
    f, spines = mixed.fabric.sites["e1"], mixed.fabric.sites["e1"].tiers[1].switches
    usd, watts = (spines * (other[name] - BOX[name]) for name in ("price_usd", "power_watts"))
    billed = edited_at(mixed, "fabric.sites.e1.cost_usd", f.cost_usd + usd)
    assert "price_and_power[e1]" not in named(edited_at(billed, "fabric.sites.e1.power_mw", f.power_mw + watts / 1e6))


# Four uplinks leave a pod of sixteen ports, a leaf and a spine have four ports down and two up, a NIC 1 MB/s.
@each(("path", "holds", "breaks", "rule"), [
    ("network__max_tiers", 3, 2, "wirable"), ("network__min_core_share", 0.25, 0.26, "core_share"),
    *(("network__max_oversubscription", holds, breaks, "oversubscription") for holds, breaks in (
        (4.0, 3.99), ([2, 2], [1.99, 9]), ([2], [2, 1.99]),
    )),
    ("network__switches", [{**BOX, "port_gbps": 0.008}], [{**BOX, "port_gbps": 0.0079}], "switch"),
])  # fmt: skip
def test_edges(path: str, holds: Any, breaks: Any, rule: str) -> None:
    assert (rules(small(**{path: holds})), rules(small(**{path: breaks}))) == (set(), {rule})


TIERS = {"fabric.planes": 2, "fabric.ports_per_switch": 16, "fabric.tiers": 3}
LEAVES = {"fabric.leaf_domain_racks": 4, "fabric.leaf_down_ports": 4, "fabric.leaf_up_ports": 2}


@each(("pins", "broken"), [
    (TIERS | LEAVES | {"fabric.spine_down_ports": 4, "fabric.spine_up_ports": 2}, set()),
    ({"fabric.switch": BOX["name"], "fabric.spine_switch": BOX["name"], "fabric.core_switch": BOX["name"]}, set()),
    ({"fabric.core_switch": "other"}, {"pins[fabric.core_switch]"}), ({"fabric.tiers": 2}, {"pins[fabric.tiers]"}),
    ({"fabric.leaf_domain_racks": 5}, {"pins[fabric.leaf_domain_racks]"}),
    ({"fabric.spine_up_ports": 1}, {"pins[fabric.spine_up_ports]"}),
    ({"fabric.core_down_ports": 5}, {"pins[fabric.core_down_ports]"}),
    ({"fabric.tiers": 2, "fabric.e1.tiers": 3, "fabric.w1.tiers": 3}, {"known_references"}),  # as a grid has the sites
])  # fmt: skip
def test_pins(pins: dict[str, Any], broken: set[str]) -> None:
    assert named(worked(instance_with(pins=pins))) == broken


@each(("tiers", "key"), [(1, "spine_bundle"), (2, "core_down_ports"), (2, "core_up_ports")])
def test_pins_of_a_tier_that_is_not_there(tiers: int, key: str) -> None:
    plan = edited(PLAN, **{f"fabric__sites__{s}__tiers": lambda every: every[:tiers] for s in ("e1", "w1")})
    for ports, broken in ((0, False), (1, True)):
        pinned = plan.instance.replaced(pins={f"fabric.{key}": ports})
        found = {v.rule for v in fabric_pins(PlanPhysics(plan=plan.replaced(instance=pinned)))}
        assert found == ({f"pins[fabric.{key}]"} if broken else set())


@each(("share", "up", "broken"), [(0.0, 1, False), (1.0, 20, True), (1.0, 21, False)])
def test_the_core_share_holds_where_one_leaf_domain_has_the_site(share: float, up: int, broken: bool) -> None:
    """Without a share one uplink is enough there; a share of 1 takes as many of 800 Gb/s as carry 42 NICs of 400."""
    side = {"rails": 8, "racks": 42, "leaf_down": 42, "rails_per_pod": 8, "domains_per_pod": 1}
    d = Design(ports=64, leaf_up=up, leaf_bundle=1, nic_gbps=400.0, link_gbps=800.0, **side)
    found = [v.rule for v in network_limits(instance_with(network__min_core_share=share).network, "rail", d)]
    assert found == ["core_share"] * broken


def reaching(metres: float) -> dict[str, Any]:
    """Return a floor whose cables one medium reaches so far."""
    return {"network__floor": {}, "network__media": [{"name": "own", "reach_m": metres, "price_usd": 1}]}


@each(("change", "rule"), [
    ({"network__families": ["rack", "rail-only"]}, "switch[e1]"), ({"network__spares": {"share": 0.3}}, "counts[e1]"),
    ({"network__spares": {"share": 1, "failure_chance": 1}}, "counts[e1]"),
    ({"network__power_usd_per_watt": 1.0}, "price_and_power[e1]"), (reaching(1), "price_and_power[e1]"),
    (reaching(500), "price_and_power[e1]"),
])  # fmt: skip
def test_rules_of_the_instance_reach_the_fabric(change: dict[str, Any], rule: str) -> None:
    found = check(small(**change))
    assert rule in {v.rule for v in found}
    assert any("longer than 1 m" in v.message for v in found) == (change == reaching(1))


@each(("gbps", "broken"), [(0.016, set()), (0.0159, {"switch"})])
def test_a_split_port_carries_its_nics(gbps: float, broken: set[str]) -> None:
    """Two NICs of 1 MB/s on one port need 16 Mbps, and a switch that splits its ports."""
    boxes = [{**BOX, "port_gbps": gbps, "breakout": 2}]
    plan = worked(instance_with(network__switches=boxes), split=2, leaf_up=2, leaf_bundle=1)
    assert {n.partition("[")[0] for n in named(plan)} == broken
    assert plan.fabric.sites["e1"].tiers[0].oversubscription == pytest.approx(4 * 0.008 / (2 * gbps))


@each(("most", "up", "broken"), [(1.0, 21, False), (1.0, 20, True), (3.0, 7, False), (3.0, 6, True)])
@each("by_tier", [False, True])
def test_oversubscription_is_of_rates(most: float, up: int, broken: bool, by_tier: bool) -> None:
    """42 NICs of 400 Gb/s need 21 uplinks of 800 at 1:1 and 7 at 3:1, all of one pod."""
    n = instance_with(network__max_oversubscription=[most] if by_tier else most).network
    side = {"rails": 8, "racks": 84, "leaf_down": 42, "rails_per_pod": 8, "domains_per_pod": 2}
    d = Design(ports=64, leaf_up=up, leaf_bundle=1, nic_gbps=400.0, link_gbps=800.0, **side)
    assert [v.rule for v in network_limits(n, "rail", d)] == ["oversubscription"] * broken


@each(("experts", "leaf_up", "broken"), [(4, 1, False), (8, 1, True), (8, 2, False)])
def test_unit_exchange(experts: int, leaf_up: int, broken: bool) -> None:
    """Experts on two racks under two leaves send whole racks' rates up."""
    # Two of 4 racks fit two uplinks of a leaf, not one; in a rack none goes up.
    split = ASSIGNMENT | {"e1": [(0, 0, "r3"), (0, 1, "r[4-5]"), (1, 0, "r2"), (1, 1, "r[6-7]")]}
    plan = worked(instance_with(), assignment=split, leaf_up=leaf_up, leaf_bundle=1)
    assert ("unit_exchange[e1]" in named(edited_at(plan, "layout.expert_parallel", experts))) == broken


NO_PODS = {"rails_per_pod": 0, "leaf_domains_per_pod": 0, "pods": 0}
NO_PODS |= {"rails_per_zone": 0, "leaf_domains_per_zone": 0, "zones": 0}


@each("name", [None, *NO_PODS])
def test_leaves_without_a_tier_above_have_no_pods(name: str | None) -> None:
    one = {f"fabric__sites__e1__{k}": n for k, n in (NO_PODS | ({name: 1} if name else {})).items()}
    leaves = PLAN.model_dump(mode="json")["fabric"]["sites"]["e1"]["tiers"][:1]
    plan = edited(PLAN, fabric__sites__e1__tiers=leaves, **one)
    found = [v.message for v in wirable(PlanPhysics(plan=plan)) if v.rule == "pods_of_one_switch[e1]"]
    assert len(found) == bool(name)
    assert name is None or found[0].startswith(f"{name}: 1 stated")
    assert not list(wirable(PlanPhysics(plan=PLAN)))


@pytest.mark.parametrize(("ports", "racks"), [*slow((4, 6), (6, 7)), *more((5, 5), (6, 9))])
def test_closed_forms_agree_with_every_loss(ports: int, racks: int) -> None:
    """Of every design of up to four tiers, cable by cable: two links, two spines, and nothing less or more."""
    i = instance(2, switch(ports, 5e4), max_tiers=4)
    times = dict.fromkeys(("pipeline_send_seconds", "allreduce_seconds"), 0.0)
    windows = dict.fromkeys(("pipeline_send_window_seconds", "allreduce_window_seconds"), 1.0)
    r = FabricRequest(racks=racks, group_racks=racks, groups=1, **times, **windows)
    seen = {True: 0, False: 0}
    for d in every_design(i, r, i.network.switches[0]):
        if d.single or d.faults() or d.leaves // d.networks < 2 or sum(seen.values()) > 120:
            continue
        for loss in ("one_leaf_uplink", "one_spine"):
            own = network_limits(i.network.replaced(survives=loss), "rail", d)
            kept = not any(v.rule == "survival" for v in own)
            assert kept == survives(d, loss), d
        seen[kept] += 1
    assert seen[False]


def asked(**network: Any) -> dict[str, Any]:
    """Return the cluster of a thousand GPUs with a network that asks for more, on twelve nodes."""
    data = load_instance("instances/cluster-1k.json").model_dump(mode="json", exclude_none=True)
    data["network"] |= network
    data["hardware"]["racks"] = 12
    layout = {"tensor_parallel": 8, "pipeline_parallel": 4, "virtual_stages": 1, "zero_stage": 1, "recompute": "full"}
    data["pins"] = {"fabric.tiers": 2} | {f"layout.{name}": value for name, value in layout.items()}
    return data


def test_a_plan_survives_what_is_asked() -> None:
    """The free answer has one spine; asked for, there are two, the checker finds the difference, and it costs more."""
    free, safe = stored(asked()), stored(asked(survives="one_spine"))
    spines = [x.fabric.sites["cluster"].tiers[0] for x in (free, safe)]
    assert [leaf.up_ports // leaf.bundle >= 2 for leaf in spines] == [False, True]
    assert rules(safe) == set() and safe.cost.total_usd > free.cost.total_usd
    assert "survival" in rules(edited_at(free, "instance.network.survives", "one_spine"))
    tiers = stored(asked(max_oversubscription=1)).fabric.sites["cluster"].tiers
    assert tiers[0].up_ports >= tiers[0].down_ports and spines[0].oversubscription > 1


@each(("network", "said"), [
    ({"families": ["rail", "dragonfly"], "survives": "one_spine"},
     "survives is of trees, and families has dragonfly; leave one of them out"),
    ({"families": ["dragonfly"], "max_oversubscription": [1, 7]}, "a list of max_oversubscription is of trees"),
    *(({"max_oversubscription": wrong}, "max_oversubscription") for wrong in ([], [1, 2, 3, 4], [0])),
])  # fmt: skip
def test_losses_and_ratios_by_tier_are_of_trees(network: dict[str, Any], said: str) -> None:
    """Which links of groups remain is not counted; a list of ratios names leaf, spine and core, none of them 0."""
    with pytest.raises(InputError, match=said):
        load_instance(asked(**network))


def test_they_are_reasons_why_there_is_no_plan() -> None:
    """A loss to survive and a ratio are rules of the fabric that may be left out, each named in words."""
    lost = load_instance(asked(survives="one_leaf_uplink", max_oversubscription=8))
    every = _rules(lost)
    free = every["network.survives"][0](lost)
    assert free.network.survives is None and free.network.max_oversubscription == 8
    reason = _reason(lost, {key: every[key][1] for key in ("network.survives", "network.max_oversubscription")})
    assert "the loss of one link of a leaf upwards cuts no two leaves; no fabric is oversubscribed beyond 8:1" in reason
    assert decision_of(["network.survives", "memory"]) == "fabric"


SITE = "e1"
SAME_FABRIC = {"domains_per_pod"}  # a pod with room for more domains than there are
OF_TREES = {"spine_up", "spine_bundle", "core_boxes"}  # a dragonfly's follow from its other choices
MERITS = [FABRIC_AXES[k] for k in ("cost", "time", "power")]


@cache
def plan_of(families: tuple[str, ...]) -> Plan:
    """Return the worked plan with the families that a frontier may choose from."""
    return edited_at(PLAN, "instance.network.families", list(families))


@cache
def rows_of(*families: str) -> tuple[dict[str, Any], ...]:
    found = frontier(plan_of(families), axes=["cost", "time", "power"])
    return tuple(x for x in found if x["site"] == SITE)


def faults(rows: Sequence[dict[str, Any]], plan: Plan, leaf_size: int | None = None) -> dict[str, str]:
    """Return what the rules of a frontier say of its rows, by rule."""
    return {v.rule: v.message for v in frontier_rules(PlanPhysics(plan=plan), SITE, rows, MERITS, leaf_size=leaf_size)}


@pytest.mark.parametrize("families", [("rail",), ("rack",), ("dragonfly",), ("rail", "dragonfly+")])
def test_true_frontiers_hold_and_no_changed_figure(families: tuple[str, ...]) -> None:
    rows, plan = rows_of(*families), plan_of(families)
    assert rows and not faults(rows, plan)
    for i, row in enumerate(rows if len(families) == 1 else ()):
        same = SAME_FABRIC | (OF_TREES if row["family"] == "dragonfly" else set())
        for name, value in row.items():
            if name in same or isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            other = value + 1 if isinstance(value, int) else value * 1.01 + 1e-6
            assert faults([*rows[:i], {**row, name: other}, *rows[i + 1 :]], plan), (
                f"row {i}: {name} {value} -> {other}"
            )


def test_choices_that_there_are_not() -> None:
    """Of a leaf, and of the spines' model: another of the leaf's rate may be, at its own price."""
    row, rule, plan = rows_of("rail")[0], {f"frontier[{SITE}, 0]"}, plan_of(("rail",))
    for name, value in (("switch", "none"), ("family", "dragonfly"), ("lanes", 0), ("leaf_down", -1), ("split", 99)):
        assert faults([{**row, name: value}], plan).keys() == rule
    large = {"name": "large", "ports": 2 * BOX["ports"], "price_usd": BOX["price_usd"] + 1000}
    boxes = [{**BOX, **x} for x in ({}, large, {"name": "fast", "port_gbps": 2 * BOX["port_gbps"]})]
    several = edited_at(plan, "instance.network.switches", boxes)
    dearer = row["cost_usd"] + 1000  # one spine above four leaves
    for name, usd, expected in (
        ("large", dearer, set()), ("large", row["cost_usd"], rule), ("fast", dearer, rule), ("none", dearer, rule),
    ):  # fmt: skip
        assert faults([{**row, "spine_switch": name, "cost_usd": usd}], several).keys() == expected, name


def test_rows_that_others_beat() -> None:
    """No row is dearer and no better than one before it; one that draws less is as good as another."""
    rows, plan = rows_of("rack"), plan_of(("rack",))
    size, row = rows[0]["leaf_domain_racks"], rows[0]
    assert not faults(rows[:1], plan, leaf_size=size) and faults(rows[:1], plan, leaf_size=size + 1)
    assert len(rows) > 1 and faults(rows[::-1], plan) and f"frontier[{SITE}, 1]" in faults([row, row], plan)
    dearer = {**row, "cost_usd": row["cost_usd"] + 1}
    frugal = {**dearer, "power_mw": row["power_mw"] / 2}
    worse = {**frugal, "cost_usd": row["cost_usd"] + 2}
    for several, by in (([row, dearer], {1: 0}), ([row, frugal], {}), ([row, frugal, worse], {2: 1})):
        said = {rule: x.partition(" is ")[0] for rule, x in faults(several, plan).items() if "as good or better" in x}
        assert said == {f"frontier[{SITE}, {beaten}]": f"row {n}" for beaten, n in by.items()}


def test_a_site_without_a_wan_gateway_leaves_no_ports_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, noted = rows_of("rail")[:1], Mock(wraps=design_for)
    monkeypatch.setattr(fabric, "design_for", noted)
    faults(rows, small(network__switches=[{**BOX, "port_gbps": 0.01}]))
    assert [call.kwargs["wan_ports"] for call in noted.call_args_list] == [0]
