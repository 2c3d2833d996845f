"""What a solve reports and writes while it runs: events in order, callbacks that may fail, and models as files."""

import dataclasses
import json
import logging
import pickle
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import highspy
import pytest
from commands import invoke
from each_case import each
from joint_brute_force import toy
from ortools.sat.python import cp_model

import planner
from planner.models.joint.search import goal as nodes
from planner.solvers.model_files import INDEX, begin_highs, recording
from planner.solvers.progress import Reporter, report, start

KINDS = {"phase_started", "incumbent_found", "bound_raised", "note", "finished"}


QUESTION = toy(5, sites=2, forced=True)


def test_a_solve_reports_phases_incumbents_bounds_and_its_end() -> None:
    """`progress` still takes lines: value, bound, gap and the choices of each new plan."""
    events, lines = list[planner.Event](), list[str]()
    plan = planner.solve(QUESTION, on_progress=events.append, progress=lines.append)
    assert any("days, bound" in x and "gap" in x and "TP " in x for x in lines)
    assert {e.kind for e in events} <= KINDS and {"phase_started", "incumbent_found"} <= {e.kind for e in events}
    assert next(e.phase for e in events if isinstance(e, planner.PhaseStarted)) == "search"
    searched = [e for e in events if e.phase == "search" and e.incumbent is not None]
    values, bounds = [e.incumbent or 0.0 for e in searched], [e.bound for e in searched if e.bound is not None]
    assert values == sorted(values, reverse=True) and bounds == sorted(bounds)
    assert [e.elapsed_seconds for e in events] == sorted(e.elapsed_seconds for e in events)
    last = events[-1]
    assert isinstance(last, planner.Finished) and (last.status, last.stopped) == ("optimal", "proved")
    assert (last.incumbent, last.bound) == (plan.objective.value, plan.objective.bound)
    assert last.gap == pytest.approx(0.0, abs=1e-15)  # a rounding of incumbent and bound
    assert last.unit == "days" and searched[-1].incumbent == pytest.approx(plan.objective.value)


def test_events_of_a_cheapest_plan_are_in_dollars(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the cheapest plan is sought its bound in dollars rises up to the plan's own, and incumbents fall to it."""
    monkeypatch.setattr(nodes, "LINE_SECONDS", 0.0)
    events: list[planner.Event] = []
    question = toy(5, sites=2, forced=True, objective={"minimize": "cost_usd"}).replaced(limits__deadline_days=1e6)
    plan = planner.solve(question, on_progress=events.append)
    value = plan.objective.value
    assert plan.objective.name == "cost_usd" and {e.unit for e in events} == {"usd"}
    found = [e for e in events if isinstance(e, planner.IncumbentFound)]
    assert found[-1].incumbent == pytest.approx(value, rel=1e-6)
    bounds = [e.bound or 0.0 for e in events if isinstance(e, planner.BoundRaised)]
    assert bounds and bounds == sorted(bounds) and bounds[-1] <= value + 0.01


@each(("minimize", "sites"), [
    ("days_to_train", 0), ("finish_date", 2), ("cost_usd", 0), ("total_cost_of_ownership_usd", 2),
])  # fmt: skip
def test_a_plan_that_is_found_can_be_had_at_once(minimize: str, sites: int) -> None:
    """Each better plan is written and checked on request, at the value that its event states; the last is the best."""
    question = toy(2, sites=sites, objective={"minimize": minimize}).replaced(limits__deadline_days=1e6)
    plans: list[tuple[float, planner.Plan]] = []

    def look(event: planner.Event) -> None:
        if isinstance(event, planner.IncumbentFound) and event.phase == "search":
            plans.append((event.incumbent or 0.0, event.plan()))
            sent = pickle.loads(pickle.dumps(event))
            assert sent == event and sent.plan() is None and json.dumps(dataclasses.asdict(event))

    best = planner.solve(question, on_progress=look)
    assert plans and plans[-1][1].objective.value == pytest.approx(best.objective.value)
    for value, plan in plans:
        assert (plan.status, plan.verified, planner.check(plan)) == ("feasible", True, [])
        assert plan.objective.value == pytest.approx(value)
        assert plan.objective.bound is None


def test_pools_report_days_and_their_bound() -> None:
    events: list[planner.Event] = []
    plan = planner.solve("two-pools", on_progress=events.append, gap=0.2)
    found = [e for e in events if isinstance(e, planner.IncumbentFound)]
    assert found and all(e.phase == "shares of the pools" for e in found)
    assert all(e.bound is not None and e.incumbent is not None and e.bound <= e.incumbent for e in found)
    assert found[-1].incumbent == pytest.approx(plan.pools.days_to_train, rel=0.02)
    assert events[-1].incumbent == plan.objective.value
    assert found[-1].plan() is None


def test_an_explanation_reports_and_ends() -> None:
    stop, phases = planner.Interrupter(), list[str]()

    def first(event: planner.Event) -> None:
        phases.append(event.phase)
        if " instead of " in event.phase:
            stop.interrupt()

    found = planner.explain(QUESTION, on_progress=first, interrupt=stop)
    assert found.status == "optimal" and found.layout is not None
    assert found.interrupted and found.worth and not found.others
    assert "search" in phases and any(" instead of " in p for p in phases)


def test_an_infeasible_instance_ends_without_an_incumbent() -> None:
    """Of an instance without a plan the last event says so, and a phase said that the reason was sought."""
    events: list[planner.Event] = []
    broke = QUESTION.replaced(limits__budget_usd=1.0)
    assert planner.solve(broke, on_progress=events.append).status == "infeasible"
    assert (events[-1].kind, events[-1].incumbent, events[-1].gap) == ("finished", None, None)
    assert "why there is no plan" in {e.phase for e in events}


@pytest.mark.parametrize("name", ["on_progress", "progress"])
def test_a_callback_that_raises_costs_no_plan_unless_it_is_ctrl_c(name: str, caplog: pytest.LogCaptureFixture) -> None:
    broken: Any = Mock(side_effect=ZeroDivisionError("of the callback"))
    with caplog.at_level(logging.WARNING, logger="planner"):
        plan = planner.solve(QUESTION, **{name: broken})
    assert broken.call_count == 1 and plan.objective == planner.solve(QUESTION).objective
    assert f"the callback {name} raised" in caplog.text and "of the callback" in caplog.text
    pressed: Any = Mock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        planner.solve(QUESTION, on_progress=pressed)


def test_events_are_frozen_and_write_their_line() -> None:
    events: list[planner.Event] = []
    r = Reporter(on_event=events.append, started=time.perf_counter() - 3)
    start(r, "search")
    report(r, "as before", 12.5, 10.0, "TP 8")
    report(r, "as before", 12.5, 11.0)
    assert [e.kind for e in events] == ["phase_started", "incumbent_found", "bound_raised"]
    assert events[1].line() == "search, 12.50 days, bound 10.00 days, gap 20.00 %: TP 8"
    assert events[2].elapsed_seconds >= 3 and events[2].gap == pytest.approx(1.5 / 12.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        events[0].phase = "other"  # type: ignore[misc]


def index(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (folder / INDEX).read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the models of a solve of two sites, which CP-SAT confirms as the duals do not."""
    path = tmp_path_factory.mktemp("models") / "of" / "a-solve"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.solvers.highs.lower_bound", lambda *_, **__: None)
        plan = planner.solve(QUESTION, models=path)
    assert plan.objective == planner.solve(QUESTION).objective
    return path


@pytest.mark.parametrize("suffix", ["mps", "lp"])
def test_a_file_solved_again_has_the_answer_of_the_index(suffix: str, folder: Path) -> None:
    lines = [x for x in index(folder) if f"{x['model']}.{suffix}" in x["files"]]
    assert len(lines) >= 3 and any(x["status"] == "optimal" for x in lines)
    for line in lines:
        h = highspy.Highs()
        h.setOptionValue("output_flag", False)
        assert h.readModel(str(folder / f"{line['model']}.{suffix}")) == highspy.HighsStatus.kOk
        h.run()
        infeasible = h.getModelStatus() == highspy.HighsModelStatus.kInfeasible
        assert infeasible == (line["status"] == "infeasible")
        if not infeasible:
            value = line["objective"] or 0.0  # a question without a goal has none, and a file has 0
            assert h.getInfo().objective_function_value == pytest.approx(value, abs=1e-6)


def test_each_has_a_log_and_cpsat_models_their_text(folder: Path) -> None:
    """Every model has the log of its solver; those of CP-SAT stand as text that reads back and solves alike."""
    lines, text = index(folder), (folder / "0002.lp").read_text()
    assert "headroom(" in text and "modules(E1)" in text  # rows and columns have the names of the model
    assert [x["model"] for x in lines] == [f"{i:04d}" for i in range(1, len(lines) + 1)]
    assert all((folder / f"{x['model']}.log").stat().st_size > 0 for x in lines)
    theirs = [x for x in lines if x["solver"].startswith("CP-SAT")]
    assert theirs and all(f"{x['model']}.pbtxt" in x["files"] for x in theirs)
    for line in theirs:
        model = cp_model.CpModel()
        text = (folder / f"{line['model']}.pbtxt").read_text()
        assert model.proto.parse_text_format(text)
        status = cp_model.CpSolver().solve(model)
        assert (status == cp_model.INFEASIBLE) == (line["status"] == "infeasible")


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    """Models are not mixed with other files: the folder must be empty or new, and one that can be made."""
    (tmp_path / "x").write_text(QUESTION.model_dump_json(exclude_none=True))
    with pytest.raises(planner.PlannerError, match="must be an empty folder"):
        planner.solve(QUESTION, models=tmp_path)
    with pytest.raises(planner.PlannerError, match="cannot be written"):
        planner.solve(QUESTION, models=tmp_path / "x" / "y")
    (tmp_path / "x").rename(tmp_path / "i.json")
    done = invoke("solve", tmp_path / "i.json", "--models", tmp_path / "m")
    assert done.exit_code == 0 and len(index(tmp_path / "m")) >= 3


def test_names_are_fit_for_files(tmp_path: Path) -> None:
    """Brackets, spaces and repetition are made into names that MPS and LP can hold, each once."""
    given = ["modules[palo verde]", "modules[palo verde]", "e1", "9x", "power flow[a,b]"]
    highs, names = Mock(), ["modules(palo_verde)", "modules(palo_verde)#2", "x_e1", "x_9x", "power_flow(a,b)"]
    with recording(tmp_path):
        begin_highs(highs, given)
    assert [of.args for of in highs.passColName.call_args_list] == list(enumerate(names))
