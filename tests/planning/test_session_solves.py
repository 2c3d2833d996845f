"""A session's solves: the answers of cold solves, for less work; and a plan at hand as their start, never assumed."""

from collections.abc import Iterable
from typing import Any

import pytest
from joint_brute_force import toy
from stored_plans import stored
from tiers import more

import planner
from planner.checks import joint_proof
from planner.checks.joint_proof import missing_columns
from planner.checks.strategy_space_check import max_racks
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.shapes.site_choice import Sites
from planner.plan.plan_sections import layout_in_short
from planner.planning import solve as starts
from planner.planning.joint_plan import inspection
from planner.planning.load import load_instance
from planner.planning.solve import solve_instance

SEEDS = (5, *more(3, 7))
DECIDED = ("status", "objective", "cost", "stopped", "conflict")


def decided(plan: planner.Plan) -> dict[str, Any]:
    """Return what a solve decided and proved, but for how long it took."""
    return {name: getattr(plan, name) for name in DECIDED}


def require_cold(changes: Iterable[Instance]) -> None:
    """Require that one session answers each question as a solve of its own does, and that the checker agrees."""
    session = planner.Session()
    for changed in changes:
        plan = session.solve(changed)
        assert decided(plan) == decided(stored(changed))
        assert planner.check(plan) == []


@pytest.mark.parametrize("sites", [0, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_session_answers_as_cold_solves_do(seed: int, sites: int) -> None:
    """Over a row of changes, budgets up and down and others, value, bound, status and bill are those of cold solves."""
    question = toy(seed, sites=sites, forced=True)
    budget, tokens = question.limits.budget_usd or 0.0, question.limits.max_batch_tokens or 0
    budgets = [question.replaced(limits__budget_usd=times * budget) for times in (1.01, 0.8, 0.01, 1.5)]
    require_cold([question, *budgets, question.replaced(limits__max_batch_tokens=tokens + 1024), budgets[0]])


@pytest.mark.parametrize("seed", [4, *more(0, 6)])
def test_the_least_cost_of_a_cluster_is_of_its_own_racks(seed: int) -> None:
    question, session = toy(seed), planner.Session()
    question = question.replaced(objective__minimize="cost_usd", limits__deadline_days=1e4)
    racks, known = question.hardware.racks or 1, dict[int, planner.Plan]()
    usd = session.solve(question).objective.value or 0.0
    assert session.solve(question.replaced(limits__budget_usd=usd - 1.0)).status == "infeasible"
    for count in (racks, racks + 1, racks):
        changed = question.replaced(hardware__racks=count)
        plan = session.solve(changed)
        cold = known.get(count) or known.setdefault(count, planner.solve(changed))
        assert (plan.status, plan.objective.value) == (cold.status, cold.objective.value)
        assert planner.check(plan) == []


@pytest.mark.parametrize("sites", [*more(0), 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_deadlines_and_objectives_share_what_is_kept(seed: int, sites: int) -> None:
    """Fewest days, least cost by several deadlines, a tolerance and budgets, in one session: all as cold solves are."""
    question = toy(seed, sites=sites, forced=True)
    days, budget = stored(question).objective.value or 1.0, question.limits.budget_usd or 0.0
    cost = question.replaced(objective__minimize="cost_usd")
    by = {times: cost.replaced(limits__deadline_days=times * days) for times in (3, 1.2, 0.5)}
    require_cold([
        by[3], question, by[1.2], question.replaced(objective__tolerance=0.1),
        by[1.2].replaced(limits__budget_usd=1.01 * budget), by[0.5],
        question.replaced(limits__deadline_days=0.5 * days), by[1.2].replaced(limits__budget_usd=0.7 * budget),
        question,
    ])  # fmt: skip


def test_what_a_session_keeps_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the budget the ways to cut the model are not listed anew, and fewer MILPs are solved."""
    question, session, solved = toy(5, sites=2, forced=True), planner.Session(), [0]
    run = Sites.run

    def counted(self: Sites, *args: Any, **options: Any) -> Any:
        solved[0] += 1
        return run(self, *args, **options)

    monkeypatch.setattr(Sites, "run", counted)
    session.solve(question)
    cold, listed = solved[0], session._cache.listed
    solved[0] = 0
    session.solve(question.replaced(limits__budget_usd=1.01 * (question.limits.budget_usd or 0.0)))
    assert session._cache.listed is listed and solved[0] < cold
    session.forget()
    assert session._cache.listed is None and isinstance(session._cache, JointCache)


def interrupted_at_once() -> planner.Interrupter:
    stop = planner.Interrupter()
    stop.interrupt()
    return stop


def test_a_start_that_still_holds_is_the_answer_of_a_solve_cut_short() -> None:
    """Interrupted before its first plan, a solve returns the start: feasible, without a bound, and sound."""
    question = toy(5, sites=2, forced=True)
    plan = stored(question)
    richer = question.replaced(limits__budget_usd=1.2 * (question.limits.budget_usd or 0.0))
    doubted = plan.replaced(verified=False)  # what another question's check said of it holds no more
    back = planner.Session().solve(richer, start=doubted, interrupt=interrupted_at_once())
    assert (back.status, back.stopped) == ("feasible", "interrupted")
    assert (back.objective.value, back.objective.bound, back.verified) == (plan.objective.value, None, True)
    assert back.instance.limits.budget_usd == richer.limits.budget_usd and planner.check(back) == []


SLOWER = {"hardware__accelerator__kernel_seconds": 1e-3}


@pytest.mark.parametrize("change", [{"hardware__rack__price_usd": 1001.0}, SLOWER], ids=["dearer", "slower"])
def test_a_start_that_holds_no_more_is_not_assumed(change: dict[str, float]) -> None:
    """Under other prices or with a slower GPU the start's figures are wrong: the solve has no plan yet."""
    question = toy(5, sites=2, forced=True)
    plan, changed = stored(question), question.replaced(**change)
    back = planner.Session().solve(changed, start=plan, interrupt=interrupted_at_once())
    assert (back.status, back.objective.value) == ("unknown", None)
    assert decided(planner.Session().solve(changed, start=plan)) == decided(stored(changed))


@pytest.mark.parametrize("sites", [0, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_column_of_a_plan_is_priced_first(seed: int, sites: int) -> None:
    question = toy(seed, sites=sites, forced=True)
    plan = stored(question)
    if plan.layout is None:
        pytest.skip("there is no plan to start from")
    found: list[planner.Event] = []
    again = planner.Session().solve(question, start=plan, on_progress=found.append)
    first = next(e for e in found if isinstance(e, planner.IncumbentFound))
    assert decided(again) == decided(plan)
    assert first.incumbent == pytest.approx(plan.objective.value, rel=0.05)


def test_a_start_that_is_kept_has_the_gap_of_its_own_days(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = stored(toy(5, sites=2, forced=True))
    days = plan.objective.value or 0.0
    worse = plan.objective.replaced(value=3 * days, bound=0.5 * days, gap=2.5 / 3)
    late = plan.replaced(objective=worse, status="feasible", stopped="limit")
    monkeypatch.setattr(starts, "solve_instance", lambda *_, **__: late)
    found = planner.Session().solve(plan.instance, start=plan)
    assert (found.objective.value, found.objective.bound, found.stopped) == (days, 0.5 * days, "limit")
    assert found.objective.gap == found.objective.joint_gap == pytest.approx(0.5)


def test_a_layout_outside_the_space_names_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of another model is no start: the solve goes on without it."""
    question = toy(5, sites=2, forced=True)
    other, seen = stored(toy(7, sites=2, forced=True)), list[Any]()
    named = starts.column_of

    def noted(*args: Any) -> Any:
        seen.append(named(*args))
        return seen[-1]

    monkeypatch.setattr("planner.planning.solve.column_of", noted)
    plan = planner.Session().solve(question, start=other.replaced(layout__tensor_parallel=64))
    assert seen == [None] and decided(plan) == decided(stored(question))


def test_a_proof_is_enumerated_once_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof is enumerated by the first solve of its question alone, also after another; another bound is anew."""
    enumerated: list[bool] = []
    missing = missing_columns

    def noted(*args: Any, **options: Any) -> Any:
        enumerated.append(not options["stop"]())
        return missing(*args, **options)

    monkeypatch.setattr(joint_proof, "missing_columns", noted)
    question, session = toy(5, forced=True), planner.Session()
    owned = question.replaced(limits__budget_usd=1e9)
    dearer, larger = question.replaced(limits__budget_usd=2e9), owned.replaced(limits__max_batch_tokens=9 * 1024)
    for changed in (owned, owned, dearer, larger, owned):
        assert session.solve(changed).status == "optimal"
    assert enumerated == [True, False, False, True, False]
    planner.Session().solve(owned)
    planner.solve(owned)
    assert enumerated[-2:] == [True, True]


def test_what_an_enumeration_reads_sets_it_apart() -> None:
    """A higher bound and other racks are another proof; a cache of another question knows none."""
    question, cache = toy(5, sites=2, forced=True), JointCache()
    plan = solve_instance(load_instance(question), Options(), lambda _: None, cache=cache)
    asked = inspection(plan, cache)
    assert asked is not None and asked in cache.inspected
    higher = plan.objective.replaced(bound=(plan.objective.bound or 0.0) * 1.01)
    fewer = plan.proof.replaced(max_racks_by_wired_gpus={})
    poor = plan.instance.replaced(limits__budget_usd=0.3 * (question.limits.budget_usd or 0.0))
    for change in ({"objective": higher}, {"proof": fewer}, {"instance": poor}):
        assert inspection(plan.replaced(**change), cache) not in (None, asked)
    usd = question.limits.budget_usd or 0.0
    budgets = [question.replaced(limits__budget_usd=share * usd) for share in (0.379, 0.385)]
    racks = [[max_racks(i, wired) for wired in range(i.hardware.rack.gpus + 1)] for i in budgets]
    assert racks[0][:-1] == racks[1][:-1] and racks[0][-1] < racks[1][-1]  # one more where all GPUs are cabled, alone
    few, many = (inspection(plan.replaced(instance=i), cache) for i in budgets)
    assert few is not None and many is not None and few != many
    assert inspection(plan, JointCache()) is None
    assert inspection(plan.replaced(instance__limits__max_batch_tokens=9 * 1024), cache) is None


@pytest.mark.parametrize("sites", [0, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_other_tokens_are_answered_without_a_search(seed: int, sites: int, monkeypatch: pytest.MonkeyPatch) -> None:
    question, session = toy(seed, sites=sites, forced=True), planner.Session()
    more_tokens = planner.changed(question, {"workload.tokens": "x1.1"})
    cold = planner.solve(more_tokens)
    first = session.solve(question)
    monkeypatch.setattr("planner.planning.solve.best_choice", None)
    assert decided(session.solve(question)) == decided(first)
    plan = session.solve(more_tokens)
    assert planner.check(plan) == [] and plan.status == cold.status and plan.layout and cold.layout
    assert layout_in_short(plan.layout) == layout_in_short(cold.layout)
    assert plan.layout.layers_per_stage == cold.layout.layers_per_stage
    for name in ("value", "bound", "fabric_free_bound"):
        assert getattr(plan.objective, name) == pytest.approx(getattr(cold.objective, name), rel=1e-9)
    assert [x.name for x in plan.objective.ends] == [x.name for x in cold.objective.ends]
    for a, b in zip(plan.objective.ends, cold.objective.ends, strict=True):
        assert (a.value, a.days_to_train) == pytest.approx((b.value, b.days_to_train), rel=1e-9)
