"""Plans of the least total cost of ownership: what they state, what refutes them, and why there is none."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from joint_brute_force import toy
from joint_run_brute_force import run_toy
from tiers import more
from worked_plan import edited_at

from planner.checks.check_plan import check
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.least_cost import RunSearch, Span
from planner.models.joint.solve import solve_joint
from planner.models.joint.world import JointSolution
from planner.physics.site.cost import alike_usd, at_run_prices
from planner.plan.plan import Plan
from planner.planning.load import load_instance
from planner.planning.solve import options_of, solve_instance

OPTIONS = options_of(time_limit=None, gap=None, seed=0, threads=None)
WHOLE = "total_cost_of_ownership_usd"


@cache
def asked(seed: int, budget: float | None = None, *, minimize: str = WHOLE, **how: Any) -> Instance:
    """Return a toy with dear operation that asks for the least cost within four times the fewest days."""
    i = toy(seed, **how)
    days = solve_joint(i, Options(), lambda _: None).days
    assert days is not None
    operation = {"maintenance_share_per_year": 200.0, "staff_usd_per_year": 1e6, "fabric_life_years": 4e-4}
    i = run_toy(i, deadline_days=4 * days, rack_life_years=3e-4, usd_per_mwh=30.0, **operation)
    limits = i.limits.model_copy(update={"budget_usd": budget})
    objective = i.objective.model_copy(update={"minimize": minimize})
    return i.model_copy(update={"limits": limits, "objective": objective})


def solved(i: Instance) -> Plan:
    return solve_instance(i, OPTIONS, lambda _: None)


@cache
def least(seed: int, **how: Any) -> Plan:
    """Return the plan of the least cost of a toy, which several tests read."""
    return solved(asked(seed, **how))


@pytest.mark.parametrize(("seed", "how"), [(6, {}), (14, {"sites": 2, "forced": True}), *more((7, {"sites": 3}))])
def test_a_plan_of_the_least_cost(seed: int, how: dict[str, Any]) -> None:
    plan = least(seed, **how)
    assert plan.status == "optimal" and check(plan) == []
    assert plan.objective.value == plan.run.total_cost_of_ownership_usd
    assert plan.objective.bound == pytest.approx(plan.objective.value)
    to_buy = solved(asked(seed, minimize="cost_usd", **how))
    assert plan.objective.value <= to_buy.run.total_cost_of_ownership_usd + 0.01
    assert plan.cost.total_usd >= to_buy.cost.total_usd - 0.01
    assert Plan.model_validate(json.loads(plan.model_dump_json())) == plan


def test_another_total_is_refused() -> None:
    """The check adds the run up again: neither value nor certificates may differ, and the budget bounds it."""
    plan = least(14, sites=2, forced=True)
    usd, bought = plan.objective.value, plan.cost.total_usd
    less = edited_at(edited_at(plan, "objective.value", usd * 0.999), "objective.bound", usd * 0.999)
    assert "objective" in {v.rule for v in check(less)}
    made = edited_at(plan, "sites.certificate.objective", bought)
    assert "certified[sites]" in {v.rule for v in check(made)}
    assert bought < usd * 0.99
    assert "budget[run]" in {v.rule for v in check(edited_at(plan, "instance.limits.budget_usd", usd * 0.99))}


def test_a_budget_below_the_least_cost() -> None:
    usd = least(6).objective.value
    assert usd is not None
    none = solved(asked(6, usd * 0.99))
    assert none.status == "infeasible" and check(none) == []
    assert none.conflict.rules == ("limits.deadline_days", "limits.budget_usd")
    assert solved(asked(6, usd + 0.01)).objective.value == pytest.approx(usd)


def test_a_deadline_is_needed() -> None:
    i = asked(6).model_dump(mode="json", exclude_none=True)
    del i["limits"]["deadline_days"]
    with pytest.raises(InputError, match=r"limits.deadline_days: is missing"):
        load_instance(i)


@pytest.mark.parametrize(("seed", "includes"), [(6, True), (6, False)])
def test_energy_of_a_cluster_is_priced_by_the_watt(seed: int, includes: bool) -> None:
    """Without a grid a plan's capital at run prices, with what all cost alike, is the run that the section adds up."""
    i = asked(seed)
    operation = i.operation and i.operation.model_copy(update={"energy_usd_per_mwh": 900.0})
    hardware = i.hardware.model_copy(update={"facility_overhead_factor": 1.3, "overhead_includes_fabric": includes})
    i = i.model_copy(update={"operation": operation, "hardware": hardware})
    plan = solved(i)
    assert plan.status == "optimal" and check(plan) == []
    limits = i.limits.model_copy(update={"deadline_days": plan.run.days})
    buying = i.objective.model_copy(update={"minimize": "cost_usd"})
    at_buying = i.model_copy(update={"limits": limits, "objective": buying})
    priced = solved(at_run_prices(at_buying, plan.run.years)).cost
    whole = priced.total_usd + alike_usd(i, plan.run.years)
    assert whole == pytest.approx(plan.run.total_cost_of_ownership_usd, rel=1e-9)
    assert plan.run.usd["energy"] > 0.01 * whole


def test_a_search_cut_short_leaves_a_plan_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped behind its first plan, the search has that plan and a lower bound, or over the budget the reason."""
    whole = least(14, sites=2, forced=True).objective.value
    before: Any = RunSearch._least
    inside: list[JointSolution] = []

    def once(self: RunSearch, span: Span) -> JointSolution:
        if inside:
            return replace(inside[0], stopped="limit", plan=None, lower_bound=None)
        inside.append(before(self, span))
        return inside[0]

    monkeypatch.setattr(RunSearch, "_least", once)
    plan = solved(asked(14, sites=2, forced=True))
    value, bound = plan.objective.value, plan.objective.bound
    assert plan.status == "feasible" and check(plan) == []
    assert value is not None and bound is not None and whole is not None
    assert bound <= whole <= value + 0.01 and bound < value
    inside.clear()
    none = solved(asked(14, (bound + value) / 2, sites=2, forced=True))
    assert none.status == "unknown" and check(none) == []
    assert "a cheaper one may exist" in none.conflict.reason
