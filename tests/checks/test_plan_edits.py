"""A plan that is edited breaks the rule that the edit touches, by name."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_plans import stored
from worked_plan import LAYOUT, instance_with

import planner
from planner.physics.network.price import min_fabric_usd
from planner.plan.plan import Plan

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def solved(**more: Any) -> dict[str, Any]:
    """Return the plan of the worked instance as the planner finds it, as JSON."""
    plan = stored(instance_with(pins=LAYOUT, **more))
    return json.loads(plan.model_dump_json())


@pytest.fixture(scope="module")
def sites() -> dict[str, Any]:
    """Return a plan over two sites, with fabrics of two tiers."""
    return solved()


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    """Return a plan of one site, with many stages and a fabric of several tiers."""
    asked = planner.changed(ROOT / "instances" / "cluster-1k.json", {"objective.tolerance": 0.0})
    plan = stored(asked, pins={"fabric.leaf_domain_racks": 32})
    return json.loads(plan.model_dump_json())


def broken(data: dict[str, Any], edit: Callable[[dict[str, Any]], None]) -> list[str]:
    """Return the rules that an edited copy of a plan breaks."""
    copied = copy.deepcopy(data)
    edit(copied)
    return [f"{v.rule}: {v.message}" for v in planner.check(Plan.model_validate(copied))]


def test_solved_plans_break_nothing(sites: dict[str, Any], cluster: dict[str, Any]) -> None:
    """The plans as solved break nothing and are proven."""
    for plan in (sites, cluster):
        assert broken(plan, lambda _: None) == []
        assert plan["status"] == "optimal"
        parts = [plan[k] for k in ("sites", "layout", "fabric", "placement") if plan[k] is not None]
        assert len(parts) >= 3 and all(p["certificate"]["status"] == "optimal" for p in parts)


def test_the_published_design_breaks_nothing() -> None:
    """The plan of the published design, of tens of thousands of racks, is proven and checks.

    Its replicas are pinned too: a search over them at this size is that of 5gw.
    """
    plan = planner.solve(ROOT / "instances" / "agache2024-100t.json", pins={"layout.data_parallel": 710})
    assert plan.status == "optimal"
    assert planner.check(plan) == []


def test_one_more_block_breaks_the_budget(sites: dict[str, Any]) -> None:
    """What is left buys no further block of replicas: its racks, their buildings and grid connection and least fabric.

    With the money of two more, and the dearest fabric that stands, the plan has more blocks and does train faster.
    """
    instance = instance_with(pins=LAYOUT)
    left, prices = instance.limits.budget_usd - sites["cost"]["total_usd"], instance.grid.prices
    racks, rack = sites["placement"]["block_racks"], instance.hardware.rack
    it_mw = racks * rack.it_kw / 1e3
    site_usd = racks * rack.price_usd + it_mw * prices.building_usd_per_it_mw
    site_usd += it_mw * instance.hardware.facility_overhead_factor * prices.interconnection_usd_per_mw
    cabled = racks * sites["fabric"]["sites"]["e1"]["wired_gpus_per_rack"]
    assert sites["objective"]["limited_by"] == "budget"
    assert 0 <= left < site_usd + cabled * min_fabric_usd(instance.network)
    fabric_usd = max(f["cost_usd"] for f in sites["fabric"]["sites"].values())
    # A 15th block of replicas fills the batch no better than 14, so two are bought.
    richer = solved(limits__budget_usd=instance.limits.budget_usd + 2 * site_usd + fabric_usd)
    assert sum(richer["placement"]["blocks_by_site"].values()) > sum(sites["placement"]["blocks_by_site"].values())
    assert richer["objective"]["value"] < sites["objective"]["value"]


def fill_east(plan: dict[str, Any]) -> None:
    """Give the eastern site the first number of racks that is over its area's headroom, with every figure after it."""
    site = next(s for s in plan["sites"]["sites"] if s["balancing_authority"] == "EAST")
    racks = int(1.5 / 0.15) + 2
    site |= {"racks": racks, "modules": racks // 2, "gpus": racks * 4, "it_mw": racks * 0.1}
    site |= {"facility_mw": racks * 0.15, "cooling_m2": racks * 150 / 2}


def shave(path: str, factor: float) -> Callable[[dict[str, Any]], None]:
    """Return an edit that multiplies a figure."""

    def edit(plan: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        at = plan
        for p in parents:
            at = at[p]
        at[last] *= factor

    return edit


def narrow_interval(plan: dict[str, Any]) -> None:
    """State fewer days for the slowest of 4 of 5 like runs."""
    plan["layout"]["metrics"]["days_to_train_interval"][1] *= 0.99


def drop_switch(plan: dict[str, Any]) -> None:
    """Remove one switch of the highest tier at the first site."""
    fabric = next(iter(plan["fabric"]["sites"].values()))
    assert len(fabric["tiers"]) > 1
    fabric["tiers"][-1]["switches"] -= 1
    fabric["switches"] -= 1


def assign_twice(plan: dict[str, Any]) -> None:
    """Give the racks of one piece to another piece too."""
    site = next(iter(plan["placement"]["sites"].values()))
    first = site["assignment"][0]
    site["assignment"] = [first, *site["assignment"]]


def drop_layer(plan: dict[str, Any]) -> None:
    """Drop a layer from the last stage."""
    plan["layout"]["layers_per_stage"][-1] -= 1


EDITS = {
    "headroom": (fill_east, "headroom"),
    "tensor_parallel": (lambda p: p["layout"].update(tensor_parallel=p["layout"]["tensor_parallel"] // 2), ""),
    "layer": (drop_layer, "layer"),
    "switch": (drop_switch, ""),
    "twice": (assign_twice, ""),
    "step": (shave("layout.metrics.step_seconds", 0.99), "step_seconds"),
    "days": (shave("layout.metrics.days_to_train", 0.99), "days_to_train"),
    "interval": (narrow_interval, "days_to_train_interval"),
    "memory": (shave("layout.metrics.memory_bytes_per_gpu", 0.99), "memory"),
    "objective": (shave("objective.value", 0.99), "objective"),
    "total": (shave("cost.total_usd", 0.99), "total"),
    "bound": (shave("layout.certificate.bound", 1.01), ""),
    "batch": (lambda p: p["layout"].update(microbatches_per_step=p["layout"]["microbatches_per_step"] * 2), ""),
    "certificate": (shave("fabric.certificate.objective", 0.99), ""),
}


@pytest.mark.parametrize("name", EDITS)
def test_edit_is_named(sites: dict[str, Any], cluster: dict[str, Any], name: str) -> None:
    """An edit is found in every plan that has what it touches, and the rule says what it is about."""
    edit, word = EDITS[name]
    for plan in (sites,) if name == "headroom" else (sites, cluster):
        rules = broken(plan, edit)
        assert rules, name
        assert any(word in r for r in rules), rules
