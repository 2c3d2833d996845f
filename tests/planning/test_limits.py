"""Wherever the time ends, a solver fails or the checker disagrees: the plan or the reason is there, and says so."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import invoke
from joint_brute_force import toy
from stored_plans import stored
from sweeping import small, written
from tiers import more, slow
from worked_plan import instance_with

import planner
from planner.checks import check_plan
from planner.checks.check_plan import check
from planner.checks.rule import Rule, must_equal
from planner.errors import InternalError
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.search.fewest_days import FewestDays
from planner.models.joint.shapes.site_choice import Sites
from planner.models.joint.strategy_space import strategies_of
from planner.models.joint.tied_plans import ends_within
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Violation
from planner.plan.plan import Plan
from planner.plan.plan_files import read_plan
from planner.planning.load import load_instance
from planner.planning.solve import solve_instance
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, UnansweredError
from planner.solvers.search_deadline import Deadline
from planner.sweeps import sweep_run

INSTANCES = Path(__file__).parents[2] / "instances"
PLANS, LONG = ("optimal", "feasible"), 1e6  # seconds: no limit by the clock


@dataclass
class Clock:
    """A clock without time: the limit passes when it is looked at for the n-th time; what began after it is counted."""

    passes_at: int
    looks: int = 0
    strategies: int = 0
    milps: int = 0

    @property
    def passed(self) -> bool:
        """Whether the limit has passed."""
        return self.looks >= self.passes_at

    def left(self, _: Deadline) -> float:
        """Return the seconds left."""
        self.looks += 1
        return 0.0 if self.passed else LONG


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Inject the clock, and count strategies listed and MILPs begun once its limit has passed."""
    found = Clock(passes_at=1 << 60)
    run = highs.run

    def strategies(one: Any) -> list[Any]:
        listed = strategies_of(one)
        found.strategies += len(listed) * found.passed
        return listed

    def milp(*args: Any, **how: Any) -> Any:
        found.milps += found.passed and how["time_limit"] > 0
        return run(*args, **how)

    monkeypatch.setattr(Deadline, "left", property(found.left))
    monkeypatch.setattr("planner.models.joint.joint_question.strategies_of", strategies)
    monkeypatch.setattr(highs, "run", lambda *args, **how: (milp if "time_limit" in how else run)(*args, **how))
    yield found


CASES: dict[str, Callable[[], Instance]] = {
    "cluster": lambda: toy(6),
    "sites": lambda: toy(5, sites=2, forced=True),
    "cost": lambda: toy(5, sites=2, forced=True).replaced(objective__minimize="cost_usd", limits__deadline_days=1e9),
    "refused": lambda: toy(5, sites=2, forced=True).replaced(limits__budget_usd=1.0),
    "pools": lambda: load_instance(INSTANCES / "two-pools.json"),
}


def require_honest(plan: Plan, clock: Clock) -> None:
    """Require a plan that keeps every rule, or a reason why there is none; and no proof without one."""
    assert check(plan) == []
    assert (plan.status in ("optimal", "infeasible")) == (plan.stopped == "proved")
    if plan.status == "unknown":
        assert "time limit" in plan.conflict.reason
    if plan.status in ("unknown", "feasible"):
        assert clock.passed and plan.stopped == "limit"
        assert plan.objective.gap is None or plan.objective.gap > 1e-9
    if plan.status in PLANS:
        assert plan.objective.value is not None
        assert plan.objective.bound is None or plan.objective.bound <= plan.objective.value * (1 + 1e-9)
    assert (clock.strategies, clock.milps) == (0, 0)


@pytest.mark.parametrize("name", [*(name for name in CASES if name != "pools"), *slow("pools")])
@pytest.mark.parametrize("looks", [1, 30, 300, *slow(100, 3000), *more(2, 3, 10, 1000)])
def test_wherever_the_time_ends_the_answer_is_honest(name: str, looks: int, clock: Clock) -> None:
    """The limit passes at one look at the clock after another; nothing that may take long begins behind it."""
    instance, clock.passes_at = CASES[name](), looks
    require_honest(solve_instance(instance, Options(time_limit=LONG), lambda _: None), clock)


def test_a_limit_behind_the_first_plan_leaves_it(clock: Clock) -> None:
    instance = CASES["sites"]()
    best = solve_instance(instance, Options(), lambda _: None)

    def progress(line: str) -> None:
        if "TP" in line:
            clock.passes_at = 0

    plan = solve_instance(instance, Options(time_limit=LONG), progress)
    require_honest(plan, clock)
    assert plan.status == "feasible" and plan.objective.value is not None and best.objective.value is not None
    assert plan.objective.bound is not None and plan.objective.gap is not None
    assert plan.objective.bound <= best.objective.value * (1 + 1e-9) <= plan.objective.value * (1 + 2e-9)


def test_a_limit_behind_the_proof_leaves_it(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the time ends while a cheaper plan is sought the days are proven all the same."""

    def late(*args: Any, **how: Any) -> Any:
        clock.passes_at = 0
        return ends_within(*args, **how)

    monkeypatch.setattr("planner.models.joint.tied_plans.ends_within", late)
    plan = solve_instance(CASES["sites"](), Options(time_limit=LONG), lambda _: None)
    require_honest(plan, clock)
    assert plan.status == "optimal" and not all(end.proven for end in plan.objective.ends)


def test_a_highs_error_is_no_proof_that_no_sites_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends with status 4, as where a plan is neither proven nor excluded, and tells the error."""
    (tmp_path / "asked.json").write_text(instance_with().model_dump_json(exclude_none=True))
    monkeypatch.setattr(highs, "run", lambda *_, **__: Outcome(stop=Stop.FAILED, detail="SolveError"))
    ran = invoke("solve", tmp_path / "asked.json", "--json", "-q")
    plan = json.loads(ran.stdout)
    assert (ran.exit_code, plan["status"], plan["conflict"]["rules"]) == (4, "unknown", [])
    assert all(word in plan["conflict"]["reason"] for word in ("sites", "SolveError"))


def test_a_failure_on_the_way_leaves_the_plan_unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a later question to the sites fails, the plan known by then is feasible, not optimal."""
    exact = instance_with(objective__tolerance=0.0)
    best, asked, keep = stored(exact), Sites.cheapest, FewestDays.keep
    assert best.status == "optimal"
    plans = []

    def failing(self, *question):
        if plans:
            raise UnansweredError("joint sites: MODEL_INVALID")
        return asked(self, *question)

    def kept(self, plan):
        keep(self, plan)
        plans.append(plan)

    monkeypatch.setattr(FewestDays, "keep", kept)
    monkeypatch.setattr(Sites, "cheapest", failing)
    plan = planner.solve(exact)
    assert (plan.status, plan.stopped) == ("feasible", "limit")
    assert plan.objective.bound <= best.objective.value <= plan.objective.value


def other_bill(c: PlanPhysics) -> Iterator[Violation]:
    yield from must_equal("cost", "total", c.plan.cost.total_usd, 7.5, " USD")


def defect(_: PlanPhysics) -> Iterator[Violation]:
    raise KeyError("rack 7")
    yield


def doubt(monkeypatch: pytest.MonkeyPatch, rule: Rule) -> None:
    """Plant a rule that disagrees, and let plans come back as users get them."""
    monkeypatch.setitem(check_plan.SECTIONS, "cost", (rule,))
    monkeypatch.delenv("PLANNER_UNVERIFIED")


def test_a_disagreement_never_costs_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan is written with the rule and both figures, the summary begins with them, and the exit status is 5."""
    doubt(monkeypatch, other_bill)
    given, out = written(tmp_path), tmp_path / "p.json"
    done = invoke("solve", given, "-q", "-o", out)
    assert done.exit_code == 5
    assert done.stdout.startswith("NOT VERIFIED") and "cost: total" in done.stdout.splitlines()[1]
    plan = read_plan(out)
    [broken] = plan.violations
    assert plan.status == "optimal" and plan.verified is False
    assert (broken.rule, broken.stated, broken.recomputed) == ("cost", plan.cost.total_usd, 7.5)
    shown = invoke("show", out)
    assert shown.stdout == done.stdout and shown.exit_code == 0
    checked = invoke("check", out)
    assert (checked.exit_code, checked.stdout) == (1, f"cost: {broken.message}\n")


def test_a_defect_of_the_checker_never_costs_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that fails is told as the rule `checker` with its error, beside what the others find."""
    doubt(monkeypatch, defect)
    plan = planner.solve(small())
    assert plan.verified is False and plan.status == "optimal"
    assert [(v.rule, v.message) for v in plan.violations] == [("checker", "cost.defect failed: KeyError: 'rack 7'")]
    assert planner.check(plan) == list(plan.violations)


def test_rows_and_explanations_say_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of a sweep holds verified false, and sweep and explain end with 5."""
    doubt(monkeypatch, other_bill)
    monkeypatch.setattr(sweep_run, "at_home", lambda tasks, call, _: ((t, call(t)) for t in tasks))
    given, out = written(tmp_path), tmp_path / "rows.jsonl"
    done = invoke("sweep", given, "--vary", "hardware.racks=1", "-q", "-o", out)
    assert done.exit_code == 5 and "NOT VERIFIED" in done.output
    assert json.loads(out.read_text())["verified"] is False
    told = invoke("explain", given, "-q", "--time-limit", "1")
    assert told.exit_code == 5 and told.stdout.startswith("NOT VERIFIED")


def test_no_test_passes_with_an_unverified_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(check_plan.SECTIONS, "cost", (other_bill,))
    with pytest.raises(InternalError, match="breaks its own rules: cost"):
        planner.solve(small())
