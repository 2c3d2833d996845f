"""Fabrics of dragonflies and of four tiers, checked and on their way out: silent where they hold, each slip named."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from stored_plans import stored
from worked_plan import edited_at, instance_with, named, rules, worked

from planner.api.plan_calls import check
from planner.errors import InputError
from planner.exports import fabric_graph
from planner.exports.fabric_parts import built_fabric
from planner.formats.topologies import plan_topology
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan
from planner.planning.site_fabrics import frontier
from planner.report.page.drawings import fabric_tiers
from planner.report.page.page import fabric
from planner.report.summary import summary
from planner.simulation.simulate import part_of_plan

# Two racks a leaf domain; pods of two rails of one domain; zones of all four rails of two domains.
ZONES = {"leaf_down": 2, "domains_per_pod": 1, "rails_per_zone": 4, "domains_per_zone": 2}
ZONES |= {"core_up": 4, "core_bundle": 2}
PIECES = {"e1": [(0, 0, "r[0-1]"), (0, 1, "r2"), (1, 2, "r[4-5]"), (1, 3, "r6")]}
PIECES |= {"w1": [(0, 0, "r[0-1]"), (1, 1, "r[2-3]")]}


def zoned(wiring: dict[str, int] | None = None, **changes: Any) -> Plan:
    """Return the worked plan with four tiers."""
    asked = instance_with(**{"network__max_tiers": 4, **changes})
    plan = worked(asked, assignment=PIECES, **{**ZONES, **(wiring or {})})
    # Both groups of e1 take 3 racks, no leaf domain of 2 holds one.
    return edited_at(plan, "placement.lower_bound_split", 2)


PLAN = zoned()
E1 = built_fabric(PLAN, "e1")


def test_four_tiers_hold() -> None:
    """The plan breaks nothing; e1 has two zones of four pods, and the pipeline between them leaves its zone."""
    assert check(PLAN) == []
    assert "wirable[e1]" in named(edited_at(PLAN, "instance.network.max_tiers", 3))
    pinned = {"fabric.tiers": 4, "fabric.core_down_ports": 4}
    for up, broken in ((4, set()), (2, {"pins[fabric.core_up_ports]"})):
        assert named(zoned(pins=pinned | {"fabric.core_up_ports": up})) == broken
    f, d = PLAN.fabric.sites["e1"], E1.design
    assert [t.name for t in f.tiers] == ["leaf", "spine", "core", "super-spine"]
    assert (f.zones, d.core_pods, d.cores, d.super_spines) == (2, 4, 2 * 4, 4 * 2)
    assert f.share_leaving_zone == 3 / 4
    assert PlanPhysics(plan=PLAN).crossings["e1"].allreduces_leaving[2] == 0


@each(("path", "change", "rule"), [
    ("tiers.3.switches", 7, "tiers[e1, super-spine]"), ("tiers.3.switches", 9, "cables[e1]"),
    ("tiers.3.down_ports", 5, "tiers[e1, super-spine]"), ("tiers.3.down_ports", 3, "cables[e1]"),
    ("tiers.3.up_ports", 1, "wirable[e1]"), ("tiers.3.name", "core", "wirable[e1]"),
    ("tiers.2.switches", 7, "tiers[e1, core]"), ("tiers.2.down_ports", 8, "tiers[e1, core]"),
    ("tiers.2.up_ports", 13, "wirable[e1]"), ("tiers.2.up_ports", 0, "wirable[e1]"),
    ("tiers.2.bundle", 3, "wirable[e1]"), ("tiers.2.oversubscription", 2.0, "tiers[e1, core]"),
    ("rails_per_zone", 3, "wirable[e1]"), ("rails_per_zone", 0, "wirable[e1]"), ("rails_per_zone", 2, "counts[e1]"),
    ("leaf_domains_per_zone", 4, "counts[e1]"), ("leaf_domains_per_zone", -2, "wirable[e1]"),
    ("zones", 1, "counts[e1]"), ("switch_links", 111, "counts[e1]"), ("share_leaving_zone", 0.5, "slowdowns[e1]"),
    ("cost_usd", lambda x: x * 0.99, "price_and_power[e1]"), ("tiers", lambda x: x[:3], "wirable[e1]"),
])  # fmt: skip
def test_an_edit_of_four_tiers_names_its_rule(path: str, change: Any, rule: str) -> None:
    assert rule in named(edited_at(PLAN, f"fabric.sites.e1.{path}", change))


@each(("core_up", "share", "broken"), [(2, 0.5, set()), (2, 0.51, {"core_share"}), (4, 1.0, set())])
def test_floor_between_zones(core_up: int, share: float, broken: set[str]) -> None:
    """Eight uplinks of a zone of sixteen ports carry half of them, though a pod's four carry all of its own."""
    plan = zoned({"core_up": core_up, "core_bundle": 1}, network__min_core_share=share)
    d = built_fabric(plan, "e1").design
    assert (d.zone_uplinks, d.pod_uplinks) == (4 * core_up, 4)
    assert rules(plan) == broken


def test_a_slow_zone_slows_the_exchange() -> None:
    """One uplink of each core, for four spine ports down, slows what leaves a zone by as much."""
    plan, d = zoned({"core_up": 1, "core_bundle": 1}), E1.design
    assert built_fabric(plan, "e1").design.oversubscription["core"] == 4 * d.oversubscription["core"] == 4
    slow, fast = (p.fabric.sites["e1"].pipeline_send_slowdown for p in (plan, PLAN))
    phi = PLAN.instance.network.transport.slowdown
    assert slow == pytest.approx(phi * 3 / 4 * d.oversubscription["leaf"] * d.oversubscription["spine"] * 4)
    assert slow > fast


def test_a_part_full_zone_closes_the_tree() -> None:
    """Four pods in zones of three: the last zone holds one, in Slurm's trees of four levels and in the plan's own."""
    plan = zoned({"leaf_down": 1, "domains_per_pod": 2, "domains_per_zone": 6})
    flat, text = ("".join(fabric_graph.slurm_topology(built_fabric(plan, "e1"), as_yaml=x)) for x in (False, True))
    assert "zone0\n        children: pod[0-2]" in text and "zone1\n        children: pod3" in text
    for line in ("leaf7 Nodes=r7", "pod0 Switches=leaf[0-1]", "zone1 Switches=pod3", "super-spine Switches=zone[0-1]"):
        assert f"SwitchName={line}\n" in flat
    parents = {s.name: s.parent for s in plan_topology(plan, "plan").switches}
    pods = {n: p for n, p in parents.items() if n.startswith("e1-pod")}
    assert pods == {f"e1-pod{i}": f"e1-zone{i // 3}" for i in range(4)}
    assert (parents["e1-zone1"], parents["e1"]) == ("e1", "wan")


def test_picture_page_and_summary_name_the_tier() -> None:
    text = fabric_tiers(E1)
    assert "8 super-spines" in text and text.count(" cables</text>") == 5 and "8 super-spine" in next(fabric(PLAN)).svg
    assert "8 super-spines; $" in summary(PLAN) and "75 % zones" in summary(PLAN)


INSTANCES = Path(__file__).parents[3] / "instances"
MEDIA = [{"name": "dac", "reach_m": 3, "price_usd": 150}, {"name": "fr4", "reach_m": 500, "price_usd": 1400}]
LAYOUT = {"layout.tensor_parallel": 4, "layout.pipeline_parallel": 7, "layout.virtual_stages": 4}


@cache
def solved(family: str) -> Plan:
    """Plan a cluster of 1,024 GPUs on dragonflies of a family, priced by reach."""
    data = json.loads((INSTANCES / "cluster-1k.json").read_text())
    data["network"] |= {"families": [family], "group_routing": "valiant", "min_core_share": 0.1}
    data["network"] |= {"floor": {}, "media": MEDIA}
    return stored(data, pins=LAYOUT)


def test_solved_dragonflies_hold_and_their_frontier_has_groups_of_one_router() -> None:
    for family, tiers in (("dragonfly", ["leaf"]), ("dragonfly+", ["leaf", "spine"])):
        f = solved(family).fabric.sites["cluster"]
        assert (f.family, [t.name for t in f.tiers], check(solved(family))) == (family, tiers, []) and f.group_links
    rows = list(frontier(solved("dragonfly"), axes=["cost", "time"]))
    assert {row["domains_per_pod"] for row in rows} >= {1, 2, 4}
    assert [row["leaf_up"] for row in rows if row["group_links"] and row["domains_per_pod"] == 1] == [0]


@each(("path", "change", "rule"), [
    ("group_links", lambda n: n + 1, "tiers[cluster, leaf]"), ("group_links", -1, "wirable[cluster]"),
    ("tiers.0.up_ports", lambda n: n + 1, "tiers[cluster, leaf]"),
    ("tiers.0.bundle", lambda n: n + 30, "wirable[cluster]"), ("tiers.0.bundle", 0, "wirable[cluster]"),
    ("tiers.0.name", "spine", "wirable[cluster]"), ("tiers.0.oversubscription", 1.0, "tiers[cluster, leaf]"),
    ("family", "dragonfly+", "wirable[cluster]"), ("family", "rail", "wirable[cluster]"),
    ("rails_per_pod", 8, "wirable[cluster]"), ("switch_links", lambda n: n - 1, "cables[cluster]"),
    ("pods", 3, "counts[cluster]"), ("cost_usd", lambda x: x * 0.99, "price_and_power[cluster]"),
    ("pipeline_send_slowdown", 1.01, "slowdowns[cluster]"),
])  # fmt: skip
def test_an_edit_of_a_dragonfly_names_its_rule(path: str, change: Any, rule: str) -> None:
    assert rule in named(edited_at(solved("dragonfly"), f"fabric.sites.cluster.{path}", change))


def test_what_else_is_asked_of_a_dragonfly() -> None:
    """Its core share is of its groups, no flow of it is simulated, and its picture and tree come whole."""
    assert "core_share[cluster]" in named(edited_at(solved("dragonfly"), "instance.network.min_core_share", 0.5))
    with pytest.raises(InputError, match="dragonfly"):
        part_of_plan(solved("dragonfly"), None, 64)
    x = built_fabric(solved("dragonfly+"), None)
    assert f"one group of {x.fabric.pods}" in fabric_tiers(x)
    assert "SwitchName" in "".join(fabric_graph.slurm_topology(x, as_yaml=False))
