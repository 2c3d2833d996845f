"""Rules of the fabric over dragonflies: a plan passes as solved, and each edit names its rule."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from each_case import each
from stored_plans import stored
from worked_plan import edited_at, named

from planner.api.plans import check
from planner.errors import InputError
from planner.exports import fabric_graph
from planner.exports.fabric_parts import built_fabric
from planner.plan.plan import Plan
from planner.planning.site_fabrics import frontier
from planner.report.page.drawings import fabric_tiers
from planner.simulation.traffic import part_of_plan

INSTANCES = Path(__file__).parents[3] / "instances"
FLOOR = {
    "floor": {},
    "media": [{"name": "dac", "reach_m": 3, "price_usd": 150}, {"name": "fr4", "reach_m": 500, "price_usd": 1400}],
}


LAYOUT = {"layout.tensor_parallel": 4, "layout.pipeline_parallel": 7, "layout.virtual_stages": 4}


@cache
def solved(family: str) -> Plan:
    """Plan a cluster of 1,024 GPUs on dragonflies of a family, priced by reach."""
    data = json.loads((INSTANCES / "cluster-1k.json").read_text())
    data["network"] |= FLOOR | {"families": [family], "group_routing": "valiant", "min_core_share": 0.1}
    return stored(data, pins=LAYOUT)


@each(("family", "tiers"), [("dragonfly", ["leaf"]), ("dragonfly+", ["leaf", "spine"])])
def test_a_solved_dragonfly_passes(family: str, tiers: list[str]) -> None:
    f = solved(family).fabric.sites["cluster"]
    assert (f.family, [t.name for t in f.tiers], check(solved(family))) == (family, tiers, []) and f.group_links >= 1


def test_a_frontier_with_groups_of_one_router_holds() -> None:
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
def test_an_edit_names_its_rule(path: str, change: Any, rule: str) -> None:
    assert rule in named(edited_at(solved("dragonfly"), f"fabric.sites.cluster.{path}", change))


def test_the_floor_between_groups() -> None:
    assert "core_share[cluster]" in named(edited_at(solved("dragonfly"), "instance.network.min_core_share", 0.5))


def test_a_simulation_is_of_trees() -> None:
    with pytest.raises(InputError, match="dragonfly"):
        part_of_plan(solved("dragonfly"), None, 64)


def test_picture_and_tree_of_a_dragonfly_come_whole() -> None:
    x = built_fabric(solved("dragonfly+"), None)
    assert f"one group of {x.fabric.pods}" in fabric_tiers(x)
    assert "SwitchName" in "".join(fabric_graph.slurm_topology(x, as_yaml=False))
