"""A plan that the checker disagrees with is written all the same, and says so first."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeping import small, written
from typer.testing import CliRunner

import planner
from planner.checks import check_plan
from planner.checks.rule import Rule, must_equal
from planner.cli.main import app
from planner.errors import InternalError
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Violation
from planner.plan.plan_files import read_plan
from planner.sweeps import sweep_run


def other_bill(c: PlanPhysics) -> Iterator[Violation]:
    yield from must_equal("cost", "total", c.plan.cost.total_usd, 7.5, " USD")


def defect(_: PlanPhysics) -> Iterator[Violation]:
    raise KeyError("rack 7")
    yield


@pytest.fixture
def doubted(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Rule:
    """Plant a rule that disagrees, and let plans come back as users get them."""
    monkeypatch.setitem(check_plan.SECTIONS, "cost", (request.param,))
    monkeypatch.delenv("PLANNER_UNVERIFIED")
    rule: Rule = request.param
    return rule


@pytest.mark.parametrize("doubted", [other_bill], indirect=True)
@pytest.mark.usefixtures("doubted")
def test_a_disagreement_never_costs_the_plan(tmp_path: Path) -> None:
    """The plan is written with the rule and both figures, the summary begins with them, and the exit status is 5."""
    given, out = written(tmp_path), tmp_path / "p.json"
    done = CliRunner().invoke(app, ["solve", str(given), "-q", "-o", str(out)])
    assert done.exit_code == 5
    assert done.stdout.startswith("NOT VERIFIED") and "cost: total" in done.stdout.splitlines()[1]
    plan = read_plan(out)
    [broken] = plan.violations
    assert plan.status == "optimal" and plan.verified is False
    assert (broken.rule, broken.stated, broken.recomputed) == ("cost", plan.cost.total_usd, 7.5)
    shown = CliRunner().invoke(app, ["show", str(out)])
    assert shown.stdout == done.stdout and shown.exit_code == 0
    checked = CliRunner().invoke(app, ["check", str(out)])
    assert (checked.exit_code, checked.stdout) == (1, f"cost: {broken.message}\n")


@pytest.mark.parametrize("doubted", [defect], indirect=True)
@pytest.mark.usefixtures("doubted")
def test_a_defect_of_the_checker_never_costs_the_plan() -> None:
    """A rule that fails is told as the rule `checker` with its error, beside what the others find."""
    plan = planner.solve(small())
    assert plan.verified is False and plan.status == "optimal"
    assert [(v.rule, v.message) for v in plan.violations] == [("checker", "cost.defect failed: KeyError: 'rack 7'")]
    assert planner.check(plan) == list(plan.violations)


@pytest.mark.parametrize("doubted", [other_bill], indirect=True)
@pytest.mark.usefixtures("doubted")
def test_rows_and_explanations_say_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of a sweep holds verified false, and sweep and explain end with 5."""
    monkeypatch.setattr(sweep_run, "at_home", lambda tasks, call, _: ((t, call(t)) for t in tasks))
    given, out = written(tmp_path), tmp_path / "rows.jsonl"
    done = CliRunner().invoke(app, ["sweep", str(given), "--vary", "hardware.racks=1", "-q", "-o", str(out)])
    assert done.exit_code == 5 and "NOT VERIFIED" in done.output
    assert json.loads(out.read_text())["verified"] is False
    told = CliRunner().invoke(app, ["explain", str(given), "-q", "--time-limit", "1"])
    assert told.exit_code == 5 and told.stdout.startswith("NOT VERIFIED")


def test_a_plan_that_passes_says_so() -> None:
    plan = planner.solve(small())
    assert plan.verified is True and plan.violations == () and plan.summary().startswith("one-rack: optimal")


def test_no_test_passes_with_an_unverified_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(check_plan.SECTIONS, "cost", (other_bill,))
    with pytest.raises(InternalError, match="breaks its own rules: cost"):
        planner.solve(small())
