"""A plan that is edited breaks the rule that the edit touches, by name."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.plan.plan import Plan

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def free() -> dict[str, Any]:
    """Return the plan of the main instance, as JSON."""
    plan = planner.solve(ROOT / "instances" / "5gw.json")
    return json.loads(plan.model_dump_json())


@pytest.fixture(scope="module")
def pinned() -> dict[str, Any]:
    """Return the plan of the published design, whose stages are many and whose groups stay under leaves."""
    plan = planner.solve(ROOT / "instances" / "agache2024-100t.json")
    return json.loads(plan.model_dump_json())


def broken(data: dict[str, Any], edit: Callable[[dict[str, Any]], None]) -> list[str]:
    """Return the rules that an edited copy of a plan breaks."""
    copied = copy.deepcopy(data)
    edit(copied)
    return [f"{v.rule}: {v.message}" for v in planner.check(Plan.model_validate(copied))]


def test_solved_plans_break_nothing(free: dict[str, Any], pinned: dict[str, Any]) -> None:
    """The plans as solved break nothing and are proven."""
    for plan in (free, pinned):
        assert broken(plan, lambda _: None) == []
        assert plan["status"] == "optimal"
        assert all(plan[k]["certificate"]["status"] == "optimal" for k in ("sites", "layout", "fabric", "placement"))


def test_one_more_module_breaks_the_budget(free: dict[str, Any]) -> None:
    """What is left of the budget does not buy the rack, the building and the links of one more module."""
    left = free["instance"]["limits"]["budget_usd"] - free["cost"]["total_usd"]
    rack = free["instance"]["hardware"]["rack"]["price_usd"]
    assert 0 <= left < rack + free["instance"]["grid"]["prices"]["building_usd_per_it_mw"] * 0.125


def fill_srp(plan: dict[str, Any]) -> None:
    """Give the SRP site the first number of racks that is over its headroom, with every figure that follows."""
    site = next(s for s in plan["sites"]["sites"] if s["balancing_authority"] == "SRP")
    racks = int(2634 / 0.175) + 1
    site |= {"racks": racks, "modules": racks, "gpus": racks * 72, "it_mw": racks * 0.125, "facility_mw": racks * 0.175}
    site["cooling_m2"] = racks * 175 / 2.076


def shave(path: str, factor: float) -> Callable[[dict[str, Any]], None]:
    """Return an edit that multiplies a figure."""

    def edit(plan: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        at = plan
        for p in parents:
            at = at[p]
        at[last] *= factor

    return edit


def drop_core(plan: dict[str, Any]) -> None:
    """Remove one core switch at the first site that has one."""
    for f in plan["fabric"]["sites"].values():
        for tier in f["tiers"]:
            if tier["name"] == "core":
                tier["switches"] -= 1
                f["switches"] -= 1
                return


def assign_twice(plan: dict[str, Any]) -> None:
    """Give the racks of one piece to another piece too."""
    pieces = next(iter(plan["placement"]["sites"].values()))["assignment"]
    pieces[1]["racks"] = pieces[0]["racks"]
    pieces[1]["leaf_domain"] = pieces[0]["leaf_domain"]


def drop_layer(plan: dict[str, Any]) -> None:
    """Drop a layer from the last stage."""
    plan["layout"]["layers_per_stage"][-1] -= 1


EDITS = {
    "headroom": (fill_srp, "headroom"),
    "tensor_parallel": (lambda p: p["layout"].update(tensor_parallel=p["layout"]["tensor_parallel"] // 2), ""),
    "layer": (drop_layer, "layer"),
    "core": (drop_core, ""),
    "twice": (assign_twice, ""),
    "step": (shave("layout.metrics.step_seconds", 0.99), "step_seconds"),
    "days": (shave("layout.metrics.days_to_train", 0.99), "days_to_train"),
    "memory": (shave("layout.metrics.memory_bytes_per_gpu", 0.99), "memory"),
    "objective": (shave("objective.value", 0.99), "objective"),
    "total": (shave("cost.total_usd", 0.99), "total"),
    "bound": (shave("layout.certificate.bound", 1.01), ""),
    "batch": (lambda p: p["layout"].update(microbatches_per_step=p["layout"]["microbatches_per_step"] * 2), ""),
    "certificate": (shave("fabric.certificate.objective", 0.99), ""),
}


@pytest.mark.parametrize("name", EDITS)
def test_edit_is_named(free: dict[str, Any], pinned: dict[str, Any], name: str) -> None:
    """An edit is found in the free plan and in the pinned one, and the rule says what it is about."""
    edit, word = EDITS[name]
    for plan in (free, pinned):
        if name == "headroom" and not any(s["balancing_authority"] == "SRP" for s in plan["sites"]["sites"]):
            continue
        rules = broken(plan, edit)
        assert rules, name
        assert any(word in r for r in rules), rules
