"""Rules of the whole run: a sound section breaks none, and no figure of it can be changed unnoticed."""

import json
from typing import Any

import changed_figures
import pytest
from each_case import each
from stored_plans import stored
from tiers import more, slow
from worked_plan import edited_at, named, rules, small

from planner.checks.cost import RUN_RULES
from planner.instance.instance import Instance
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import cost
from planner.plan.plan import Plan

OPERATION = {"maintenance_share_per_year": 0.03, "staff_usd_per_year": 1e5, "fabric_life_years": 3.0}
AREAS = {f"grid__balancing_authorities__{i}__carbon_kg_per_mwh": 300.0 + i for i in range(2)}
LIMITS = {"limits__operation_years": 5.5, "limits__budget_usd": 1e9}
ALL = {"operation": OPERATION, "hardware__rack__life_years": 2.0, **LIMITS, **AREAS}


def with_run(**changes: Any) -> Plan:
    """Return the worked plan of an instance with changed figures, with its run."""
    plan = small(**changes)
    return plan.model_copy(
        update={"run": cost.section(plan.instance, plan.layout.metrics.days_to_train, plan.cost, 0, plan.sites)}
    )


def broken(plan: Plan) -> set[str]:
    """Return the rules of the run that a plan breaks."""
    return {v.rule for rule in RUN_RULES for v in rule(PlanPhysics(plan=plan))}


@each("changes", [{}, ALL, {"operation": OPERATION}, {"limits__operation_years": 0}])
def test_a_sound_run_breaks_no_rule(changes: dict[str, Any]) -> None:
    assert rules(with_run(**changes)) == set()


@pytest.mark.parametrize("changes", [*slow(ALL), *more({})])
def test_no_figure_of_the_run_changes_unnoticed(changes: dict[str, Any]) -> None:
    data = json.loads(with_run(**changes).model_dump_json())
    found = [x for x in changed_figures.changes(data, each=9) if x.kind.startswith("run.")]
    assert len(found) > 60
    missed = [x for x in found if not _noticed(changed_figures.changed(data, x))]
    assert [(x.kind, x.what) for x in missed] == []


def _noticed(data: dict[str, Any]) -> bool:
    try:
        plan = Plan.model_validate(data)
    except ValueError:
        return True
    return bool(broken(plan))


@each(("path", "change", "rule"), [
    ("run.days", lambda x: x * 2, "run_length"), ("run.years", 5.4, "run_length"),
    ("run.replacements.racks", 1, "run_replaced[racks]"), ("run.usd.capital", lambda x: x - 1e6, "run_money[capital]"),
    ("run.usd.staff", 0.0, "run_money[staff]"), ("run.sites.e1.energy_usd", 0.0, "run_energy[e1]"),
    ("run.not_counted", ["operation.staff_usd_per_year"], "run_money"),
    ("run.by_year", lambda x: x[:-1], "run_by_year"),
])  # fmt: skip
def test_an_edit_of_the_run_names_its_rule(path: str, change: Any, rule: str) -> None:
    assert rule in named(edited_at(with_run(**ALL), path, change))


def test_a_run_is_not_of_a_plan_without_days() -> None:
    sound = with_run()
    refused = stored(sound.instance.model_copy(update={"limits": _poor(sound.instance)}))
    assert refused.status == "infeasible" and "reason" not in rules(refused)
    assert "reason" in rules(refused.model_copy(update={"run": sound.run}))


def _poor(i: Instance) -> Any:
    return i.limits.model_copy(update={"budget_usd": 1.0})


def test_a_cluster_has_its_run() -> None:
    plan = stored("instances/one-rack.json")
    assert broken(plan) == set()
    assert "operation.energy_usd_per_mwh" in plan.run.not_counted and plan.run.energy_joules_per_token > 0


@each(("over", "found"), [(-1.0, set()), (-0.02, set()), (0.02, {"budget[run]"}), (1e6, {"budget[run]"})])
def test_the_budget_of_a_run(over: float, found: set[str]) -> None:
    """Where the whole run is to cost least it is within the budget to the cent; elsewhere capital alone is."""
    plan = with_run(**(ALL | {"objective__minimize": "total_cost_of_ownership_usd", "limits__deadline_days": 1e6}))
    limit = plan.run.total_cost_of_ownership_usd - over
    assert plan.run.usd["energy"] > 0 and plan.run.total_cost_of_ownership_usd > plan.cost.total_usd
    for name, expected in (("total_cost_of_ownership_usd", found), ("days_to_train", set())):
        changed = edited_at(edited_at(plan, "instance.limits.budget_usd", limit), "instance.objective.minimize", name)
        assert {r for r in broken(changed) if r.startswith("budget")} == expected
    free = edited_at(plan, "instance.limits.budget_usd", None)
    assert not any(r.startswith("budget") for r in broken(free))


def test_a_run_of_no_layout() -> None:
    plan = with_run()
    found = {v.message for rule in RUN_RULES for v in rule(PlanPhysics(plan=plan.model_copy(update={"layout": None})))}
    assert found == {f"{plan.run.days:g} days stated of a plan that has 0 layouts"}
