"""The goals finish_date and total_cost: the soonest end is that of trying every start; what refutes each plan."""

import json
import random
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from joint_brute_force import run_toy, toy
from tiers import more, slow
from worked_plan import edited_at

from planner.checks.check_plan import check
from planner.instance.hardware import DAYS_A_MONTH
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.joint_question import Solving
from planner.models.joint.joint_solution import JointSolution
from planner.models.joint.search.least_cost_of_ownership import RunSearch, Span
from planner.models.joint.solve_joint import solve_joint
from planner.plan.plan import Plan
from planner.planning import explanation as explanations
from planner.planning.explanation import Explanation
from planner.planning.finish_date import start_days
from planner.planning.solve import solve_instance
from planner.report.explained_plan import explanation_text
from planner.report.summary import summary

OPTIONS = Options()
FIXED: dict[str, Any] = {  # of layouts, so that explanations take a moment
    "layout.tensor_parallel": 3, "layout.context_parallel": 1, "layout.expert_parallel": 1, "layout.virtual_stages": 1,
    "layout.microbatch_sequences": 1, "layout.zero_stage": 3, "layout.sequence_parallel": True,
    "layout.schedule": "1f1b",
}  # fmt: skip


@cache
def asked(seed: int, *, forced: bool = False, hardware: float = 0.0) -> Instance:
    """Return a toy that trains for about a year and whose sites are ready after some months, drawn."""
    i, drawn = toy(seed, sites=3, forced=forced), random.Random(seed)
    days = solve_joint(i, Solving()).days
    assert days is not None and i.grid is not None
    nodes = tuple(node.replaced(ready_months=float(drawn.choice([0, 1, 2, 4, 8]))) for node in i.grid.nodes)
    return goal(
        i.replaced(grid__nodes=nodes, workload__tokens=i.workload.tokens * 365 / days, hardware__ready_months=hardware),
        "finish_date",
    )


def goal(i: Instance, minimize: str) -> Instance:
    """Return a question with another goal, for the very best of it."""
    return i.replaced(objective__minimize=minimize, objective__tolerance=0.0)


def within(i: Instance, months: float) -> Instance:
    """Return a question in which nothing comes later than some months."""
    return i.replaced(grid__rules__ready_within_months=months)


def solved(i: Instance) -> Plan:
    return solve_instance(i, OPTIONS, lambda _: None)


@cache
def best(seed: int, *, forced: bool = False) -> Plan:
    return solved(asked(seed, forced=forced))


@pytest.mark.parametrize(("seed", "forced"), [
    (4, False),
    *slow((7, True)),
    *more((9, True), (14, True), (3, True), (6, False), (12, False), (18, False), (26, False)),
])  # fmt: skip
def test_the_soonest_finish_is_that_of_every_start(seed: int, *, forced: bool) -> None:
    i = asked(seed, forced=forced)
    plan, ends = best(seed, forced=forced), []
    for months in {node.ready_months for node in i.grid.nodes if node.site}:
        alone = solve_joint(goal(within(i, months), "days_to_train"), Solving())
        if alone.days is not None:
            ends.append(months * DAYS_A_MONTH + alone.days)
    assert plan.status == "optimal" and not check(plan) and plan.objective.name == "finish_date"
    assert plan.objective.value == pytest.approx(min(ends), rel=1e-9)
    assert plan.objective.bound == pytest.approx(min(ends), rel=1e-9)
    assert plan.instance == i
    assert "after the decision" in summary(plan, 120)


def test_a_cluster_waits_for_its_hardware() -> None:
    """Without a grid the finish is the wait for the racks and the fewest days; a stated date that is not fails."""
    i = toy(2)
    i = i.replaced(hardware__ready_months=2.0)
    plan, days = solved(goal(i, "finish_date")), solved(goal(i, "days_to_train")).objective.value
    assert days is not None and plan.objective.value == pytest.approx(2 * DAYS_A_MONTH + days, rel=1e-9)
    sooner: dict[str, Any] = {"value": days, "bound": days, "joint_bound": days}
    wrong = plan.replaced(objective=plan.objective.replaced(**sooner))
    assert any(x.rule == "objective" for x in check(wrong))


@pytest.mark.parametrize(("seed", "forced"), [(4, False), *slow((7, True)), *more((18, False))])
def test_each_start_has_a_proof_that_is_followed(seed: int, *, forced: bool) -> None:
    plan = best(seed, forced=forced)
    assert plan.proof.alternatives and plan.layout is not None

    def found(**parts: Any) -> set[str]:
        proof = plan.proof.replaced(**parts) if plan.proof is not None else None
        return {x.rule.partition("[")[0] for x in check(plan.replaced(proof=proof))}

    assert found() == set()
    assert "starts" in found(alternatives=plan.proof.alternatives[1:])
    assert "starts" in found(alternatives=(*plan.proof.alternatives, plan.proof.alternatives[0]))
    months = [own.replaced(ready_within_months=99.0) for own in plan.proof.alternatives]
    assert "starts" in found(alternatives=tuple(months))
    sooner = [own.replaced(bound_days=own.bound_days * 0.9 - 1) for own in plan.proof.alternatives]
    assert "starts" in found(alternatives=tuple(sooner))


@pytest.mark.parametrize("seed", [*slow(6), *more(18)])
def test_a_later_end_is_no_optimum(seed: int) -> None:
    """The best plan without the best site, claimed to be the best with it, is contradicted by the columns in time."""
    i, soonest = asked(seed), best(seed)
    used = {site.id for site in soonest.sites.sites}
    nodes = tuple(node.replaced(site=node.site and node.id not in used) for node in i.grid.nodes)
    other = solved(i.replaced(grid__nodes=nodes))
    bound, value = other.objective.bound, soonest.objective.value
    assert bound is not None and value is not None and bound > value * 1.0001
    proofs = [
        own.replaced(bound_days=max(0.0, bound - (own.ready_within_months or 0.0) * DAYS_A_MONTH))
        for own in soonest.proof.alternatives
    ]
    proof = other.proof.replaced(alternatives=tuple(proofs))
    same = {"instance": soonest.instance, "instance_sha256": soonest.instance_sha256, "proof": proof}
    assert "joint_columns" in {x.rule.partition("[")[0] for x in check(other.replaced(**same))}


@pytest.fixture(scope="module", params=[4, *more(6, 8, 10)])
def explanation(request: pytest.FixtureRequest) -> tuple[Instance, Plan, Explanation]:
    """Return a question whose layout is fixed in part, its plan, and its explanation with time for all of it."""
    i = asked(request.param)
    quick = {"layout.pipeline_parallel": 2} if request.param == 4 else {}
    i = i.replaced(pins={**i.pins, **FIXED, **quick})
    plan = solved(i)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(explanations, "AT_LEAST", 900.0)
        return i, plan, list(explanations.explained(plan, OPTIONS, str))[-1]


def test_no_other_choice_ends_sooner(explanation: tuple[Instance, Plan, Explanation]) -> None:
    """Other choices and limits are compared by the days from the decision, and a closed site may mean another start."""
    i, plan, found = explanation
    least = plan.objective.value
    assert least is not None and found.others
    assert all(x.loss is None or x.loss >= -1e-9 for x in found.others)
    assert all(x.days is None or x.loss == pytest.approx(x.days / least - 1, abs=1e-9) for x in found.others)
    for x in [x for x in found.sites if x.value == "closed"][:1]:
        other = solved(i.replaced(pins={**i.pins, f"sites.racks.{x.plan_value}": 0})).objective.value
        assert (x.days is None and other is None) or x.days == pytest.approx(other, rel=1e-9)
    assert "days count from the decision" in explanation_text(found)


def test_every_other_start_has_its_end(explanation: tuple[Instance, Plan, Explanation]) -> None:
    """Each month at which something becomes ready is the plan's or has a line with the soonest end from then on.

    A site that is ready after the plan starts is said to be late.
    """
    i, plan, found = explanation
    ready = {node.id: node.ready_months for node in i.grid.nodes if node.site}
    own, text = start_days(i, plan.sites) / DAYS_A_MONTH, explanation_text(found)
    assert {x.months for x in found.starts} | {own} == {*ready.values()}
    assert found.start_days == pytest.approx(own * DAYS_A_MONTH)
    for x in found.starts:
        alone = solve_joint(goal(within(i, x.months), "days_to_train"), Solving()).days
        assert x.proved and set(x.ready) == {node.id for node in i.grid.nodes if node.ready_months == x.months}
        if x.bound_days is not None:
            assert x.start_days >= plan.objective.value
        else:
            assert x.days == (None if alone is None else pytest.approx(x.start_days + alone, rel=1e-9))
        assert f"month {x.months:g} ({', '.join(x.ready)})" in text
    for x in (x for x in found.nodes if not x.opened):
        late = ready[x.node] if ready[x.node] > own * (1 + 1e-9) else None
        assert x.ready_months == late
        assert late is None or f"ready in month {late:g}, after the plan starts" in text


WHOLE = "total_cost_of_ownership_usd"


@cache
def asked_owned(seed: int, budget: float | None = None, *, minimize: str = WHOLE, **how: Any) -> Instance:
    """Return a toy with dear operation that asks for the least cost within four times the fewest days."""
    i = toy(seed, **how)
    days = solve_joint(i, Solving()).days
    assert days is not None
    operation = {"maintenance_share_per_year": 200.0, "staff_usd_per_year": 1e6, "fabric_life_years": 4e-4}
    i = run_toy(i, deadline_days=4 * days, rack_life_years=3e-4, usd_per_mwh=30.0, **operation)
    return i.replaced(limits__budget_usd=budget, objective__minimize=minimize)


@cache
def least(seed: int, **how: Any) -> Plan:
    """Return the plan of the least cost of a toy, which several tests read."""
    return solved(asked_owned(seed, **how))


@pytest.mark.parametrize(("seed", "how"), [(6, {}), (14, {"sites": 2, "forced": True}), *more((7, {"sites": 3}))])
def test_a_plan_of_the_least_cost(seed: int, how: dict[str, Any]) -> None:
    plan = least(seed, **how)
    assert plan.status == "optimal" and check(plan) == []
    assert plan.objective.value == plan.run.total_cost_of_ownership_usd
    assert plan.objective.bound == pytest.approx(plan.objective.value)
    to_buy = solved(asked_owned(seed, minimize="cost_usd", **how))
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
    plan = solved(asked_owned(14, sites=2, forced=True))
    value, bound = plan.objective.value, plan.objective.bound
    assert plan.status == "feasible" and check(plan) == []
    assert value is not None and bound is not None and whole is not None
    assert bound <= whole <= value + 0.01 and bound < value
    inside.clear()
    none = solved(asked_owned(14, (bound + value) / 2, sites=2, forced=True))
    assert none.status == "unknown" and check(none) == []
    assert "a cheaper one may exist" in none.conflict.reason
