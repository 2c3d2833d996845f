"""The goal finish_date: the soonest end is that of trying every start; what is ready at once changes nothing."""

import random
from functools import cache
from typing import Any

import pytest
from joint_brute_force import toy
from tiers import more, slow

from planner.checks.check_plan import check
from planner.instance.hardware import DAYS_A_MONTH
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.solve import solve_joint
from planner.plan.plan import Plan
from planner.planning import explain
from planner.planning.explain import Explanation
from planner.planning.finish_date import start_days
from planner.planning.instance_parts import pinned
from planner.planning.solve import options_of, solve_instance
from planner.report.summary import summary

OPTIONS = options_of(time_limit=None, gap=None, seed=0, threads=None)
FIXED = {  # of layouts, so that explanations take a moment
    "layout.tensor_parallel": 3,
    "layout.context_parallel": 1,
    "layout.expert_parallel": 1,
    "layout.virtual_stages": 1,
    "layout.microbatch_sequences": 1,
    "layout.zero_stage": 3,
    "layout.sequence_parallel": True,
    "layout.schedule": "1f1b",
}


@cache
def asked(seed: int, *, forced: bool = False, hardware: float = 0.0) -> Instance:
    """Return a toy that trains for about a year and whose sites are ready after some months, drawn."""
    i, drawn = toy(seed, sites=3, forced=forced), random.Random(seed)
    days = solve_joint(i, Options(), lambda _: None).days
    assert days is not None and i.grid is not None
    work = i.workload.model_copy(update={"tokens": i.workload.tokens * 365 / days})
    nodes = tuple(
        node.model_copy(update={"ready_months": float(drawn.choice([0, 1, 2, 4, 8]))}) for node in i.grid.nodes
    )
    racks = i.hardware.model_copy(update={"ready_months": hardware})
    grid = i.grid.model_copy(update={"nodes": nodes})
    return goal(i.model_copy(update={"grid": grid, "workload": work, "hardware": racks}), "finish_date")


def goal(i: Instance, minimize: str) -> Instance:
    """Return a question with another goal, for the very best of it."""
    return i.model_copy(update={"objective": i.objective.model_copy(update={"minimize": minimize, "tolerance": 0.0})})


def within(i: Instance, months: float) -> Instance:
    """Return a question in which nothing comes later than some months."""
    rules = i.grid.rules.model_copy(update={"ready_within_months": months})
    return i.model_copy(update={"grid": i.grid.model_copy(update={"rules": rules})})


def solved(i: Instance) -> Plan:
    return solve_instance(i, OPTIONS, lambda _: None)


@cache
def best(seed: int, *, forced: bool = False) -> Plan:
    return solved(asked(seed, forced=forced))


@pytest.mark.parametrize(
    ("seed", "forced"),
    [
        (4, False),
        *slow((7, True)),
        *more((9, True), (14, True), (3, True), (6, False), (12, False), (18, False), (26, False)),
    ],
)
def test_the_soonest_finish_is_that_of_every_start(seed: int, *, forced: bool) -> None:
    i = asked(seed, forced=forced)
    plan, ends = best(seed, forced=forced), []
    for months in {node.ready_months for node in i.grid.nodes if node.site}:
        alone = solve_joint(goal(within(i, months), "days_to_train"), Options(), lambda _: None)
        if alone.days is not None:
            ends.append(months * DAYS_A_MONTH + alone.days)
    assert plan.status == "optimal" and not check(plan) and plan.objective.name == "finish_date"
    assert plan.objective.value == pytest.approx(min(ends), rel=1e-9)
    assert plan.objective.bound == pytest.approx(min(ends), rel=1e-9)
    assert plan.instance == i
    assert "after the decision" in summary(plan, 120)


@pytest.mark.parametrize("seed", [*slow(3), *more(12)])
def test_hardware_that_comes_last_decides_the_start(seed: int) -> None:
    plan = solved(asked(seed, hardware=9.0))
    days = solved(goal(asked(seed, hardware=9.0), "days_to_train")).objective.value
    assert days is not None and plan.objective.value == pytest.approx(9 * DAYS_A_MONTH + days, rel=1e-9)


def test_a_cluster_waits_for_its_hardware() -> None:
    """Without a grid the finish is the wait for the racks and the fewest days; a stated date that is not fails."""
    i = toy(2)
    i = i.model_copy(update={"hardware": i.hardware.model_copy(update={"ready_months": 2.0})})
    plan, days = solved(goal(i, "finish_date")), solved(goal(i, "days_to_train")).objective.value
    assert days is not None and plan.objective.value == pytest.approx(2 * DAYS_A_MONTH + days, rel=1e-9)
    sooner: dict[str, Any] = {"value": days, "bound": days, "joint_bound": days}
    wrong = plan.model_copy(update={"objective": plan.objective.model_copy(update=sooner)})
    assert any(x.rule == "objective" for x in check(wrong))


@pytest.mark.parametrize(("seed", "forced"), [(4, False), *slow((7, True)), *more((18, False))])
def test_each_start_has_a_proof_that_is_followed(seed: int, *, forced: bool) -> None:
    plan = best(seed, forced=forced)
    assert plan.proof.alternatives and plan.layout is not None

    def found(**parts: Any) -> set[str]:
        proof = plan.proof.model_copy(update=parts) if plan.proof is not None else None
        return {x.rule.partition("[")[0] for x in check(plan.model_copy(update={"proof": proof}))}

    assert found() == set()
    assert "starts" in found(alternatives=plan.proof.alternatives[1:])
    assert "starts" in found(alternatives=(*plan.proof.alternatives, plan.proof.alternatives[0]))
    months = [own.model_copy(update={"ready_within_months": 99.0}) for own in plan.proof.alternatives]
    assert "starts" in found(alternatives=tuple(months))
    sooner = [own.model_copy(update={"bound_days": own.bound_days * 0.9 - 1}) for own in plan.proof.alternatives]
    assert "starts" in found(alternatives=tuple(sooner))


@pytest.mark.parametrize("seed", [*slow(6), *more(18)])
def test_a_later_end_is_no_optimum(seed: int) -> None:
    """The best plan without the best site, claimed to be the best with it, is contradicted by the columns in time."""
    i, soonest = asked(seed), best(seed)
    used = {site.id for site in soonest.sites.sites}
    nodes = tuple(node.model_copy(update={"site": node.site and node.id not in used}) for node in i.grid.nodes)
    other = solved(i.model_copy(update={"grid": i.grid.model_copy(update={"nodes": nodes})}))
    bound, value = other.objective.bound, soonest.objective.value
    assert bound is not None and value is not None and bound > value * 1.0001
    proofs = [
        own.model_copy(update={"bound_days": max(0.0, bound - (own.ready_within_months or 0.0) * DAYS_A_MONTH)})
        for own in soonest.proof.alternatives
    ]
    proof = other.proof.model_copy(update={"alternatives": tuple(proofs)})
    same = {"instance": soonest.instance, "instance_sha256": soonest.instance_sha256, "proof": proof}
    assert "joint_columns" in {x.rule.partition("[")[0] for x in check(other.model_copy(update=same))}


@pytest.fixture(scope="module", params=[4, *more(6, 8, 10)])
def explanation(request: pytest.FixtureRequest) -> tuple[Instance, Plan, Explanation]:
    """Return a question whose layout is fixed in part, its plan, and its explanation with time for all of it."""
    i = asked(request.param)
    quick = {"layout.pipeline_parallel": 2} if request.param == 4 else {}
    i = i.model_copy(update={"pins": {**i.pins, **FIXED, **quick}})
    plan = solved(i)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(explain, "AT_LEAST", 900.0)
        return i, plan, list(explain.explained(plan, OPTIONS))[-1]


def test_no_other_choice_ends_sooner(explanation: tuple[Instance, Plan, Explanation]) -> None:
    """Other choices and limits are compared by the days from the decision, and a closed site may mean another start."""
    i, plan, found = explanation
    least = plan.objective.value
    assert least is not None and found.others
    assert all(x.loss is None or x.loss >= -1e-9 for x in found.others)
    assert all(x.days is None or x.loss == pytest.approx(x.days / least - 1, abs=1e-9) for x in found.others)
    for x in [x for x in found.others if x.choice == "site"][:1]:
        other = solved(pinned(i, f"sites.racks.{x.plan_value}", 0)).objective.value
        assert (x.days is None and other is None) or x.days == pytest.approx(other, rel=1e-9)
    text = explain.summary(found)
    assert "days count from the decision" in text


def test_every_other_start_has_its_end(explanation: tuple[Instance, Plan, Explanation]) -> None:
    """Each month at which something becomes ready is the plan's or has a line with the soonest end from then on."""
    i, plan, found = explanation
    assert i.grid is not None and plan.objective.value is not None
    months = {node.ready_months for node in i.grid.nodes if node.site}
    own = start_days(i, plan.sites) / DAYS_A_MONTH
    assert {x.months for x in found.starts} | {own} == months
    assert found.start_days == pytest.approx(own * DAYS_A_MONTH)
    for x in found.starts:
        alone = solve_joint(goal(within(i, x.months), "days_to_train"), Options(), lambda _: None).days
        assert x.proved and set(x.ready) == {node.id for node in i.grid.nodes if node.ready_months == x.months}
        if x.bound_days is not None:
            assert x.start_days >= plan.objective.value
        else:
            assert x.days == (None if alone is None else pytest.approx(x.start_days + alone, rel=1e-9))
        assert f"month {x.months:g} ({', '.join(x.ready)})" in explain.summary(found)


def test_a_later_site_is_said_to_be_late(explanation: tuple[Instance, Plan, Explanation]) -> None:
    i, plan, found = explanation
    assert i.grid is not None and found.sites is not None and plan.sites is not None
    late = {node.id: node.ready_months for node in i.grid.nodes if node.site}
    start = start_days(i, plan.sites) / DAYS_A_MONTH
    for x in found.sites.rejected:
        expected = late[x.node] if late[x.node] > start * (1 + 1e-9) else None
        assert x.ready_months == expected
        assert expected is None or f"ready in month {expected:g}, after the plan starts" in explain.summary(found)
