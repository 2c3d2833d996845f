"""Plans looked at from Python: text, HTML, pandas, matplotlib, and the versions for a report."""

import builtins
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from each_case import each
from joint_brute_force import toy
from matplotlib import pyplot
from stored_plans import stored

import planner
from planner.errors import InternalError
from planner.plan import view
from planner.report.summary import summary
from planner.sweeps.row_store import row_of_plan

mpl.use("Agg")
PLOTS = ("plot_step", "plot_memory", "plot_cost", "plot_sites")


@pytest.fixture(scope="module")
def plan() -> planner.Plan:
    """Return a plan of two sites."""
    return stored(toy(5, sites=2, forced=True))


@pytest.fixture(scope="module")
def none() -> planner.Plan:
    """Return the plan of an infeasible instance."""
    i = toy(5, sites=2, forced=True)
    return stored(i.model_copy(update={"limits": i.limits.model_copy(update={"budget_usd": 1.0})}))


def test_the_summary_is_that_of_the_command(plan: planner.Plan, none: planner.Plan) -> None:
    assert plan.summary() == summary(plan) and none.summary() == summary(none)


def test_html_has_every_line_of_the_summary_escaped() -> None:
    i = toy(5, sites=2, forced=True)
    plan = stored(i.model_copy(update={"name": "<b>x</b> & y"}))
    text = plan._repr_html_()
    assert "<b>x</b>" not in text and "&lt;b&gt;x&lt;/b&gt; &amp; y: optimal" in text
    assert text.count("<tr>") == text.count("</tr>") > 3
    words = re.sub(r"<[^>]*>", " ", text)
    for line in summary(plan).splitlines()[1:]:
        last = line.split()[-1].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        assert last in words


def test_a_frame_of_a_plan_has_the_columns_of_a_sweep(plan: planner.Plan, none: planner.Plan) -> None:
    """One row, with the figures of the plan under the names in a sweep's row; none where there is no plan."""
    frame = plan.to_frame()
    assert isinstance(frame, pd.DataFrame) and len(frame) == 1
    row = row_of_plan(0, "k", {"limits.budget_usd": 1.0}, plan, 1.0)
    table = planner.to_frame([row, row])
    assert len(table) == 2 and set(row.plan) <= set(frame.columns) & set(table.columns)
    for column in ("objective.value", "layout.metrics.days_to_train", "cost.total_usd"):
        assert frame[column][0] == table[column][0]
    assert frame["objective.value"][0] == plan.objective.value
    both = planner.to_frame([plan, none])
    assert both["status"].tolist() == ["optimal", "infeasible"] and pd.isna(both["cost.total_usd"][1])
    assert both["reason"][1] == (none.conflict.reason if none.conflict else "")


@pytest.mark.parametrize("name", PLOTS)
def test_plots_draw_on_given_axes_or_new_ones(name: str, plan: planner.Plan) -> None:
    """The axes that come back are those given, with the plan's name and marks on them; without any, new ones."""
    left, right = pyplot.subplots(1, 2)[1]
    assert getattr(plan, name)(ax=left) is left and not right.has_data()
    assert left.has_data() and left.get_title().startswith(plan.instance.name)
    fresh = getattr(plan, name)()
    assert fresh not in (left, right) and fresh.has_data()
    pyplot.close("all")


def test_bars_are_the_figures_of_the_plan(plan: planner.Plan) -> None:
    """Bars of the step and the bill sum to their totals, and those of memory to the worst GPU's."""
    assert plan.layout is not None and plan.cost is not None
    m = plan.layout.metrics
    totals = {
        "plot_step": m.step_seconds,
        "plot_cost": sum(plan.cost.capex_usd.values()),
        "plot_memory": m.memory_bytes_per_gpu / 1e9,
    }
    for name, total in totals.items():
        axes = getattr(plan, name)()
        assert sum(b.get_width() for b in axes.patches) == pytest.approx(total, rel=1e-6), name
    pyplot.close("all")


@each("name", PLOTS)
def test_a_plan_without_the_section_is_refused(name: str, none: planner.Plan) -> None:
    """There is nothing to draw of an infeasible instance, which the error says."""
    with pytest.raises(planner.PlannerError, match="is not in the plan \\(infeasible\\)"):
        getattr(none, name)()


@each(("call", "package", "extra"), [("to_frame", "pandas", "frames"), ("plot_step", "matplotlib", "plot")])
def test_a_missing_package_is_named_with_its_remedy(call, package, extra, plan, monkeypatch):
    """Where pandas or matplotlib is not installed the error names it and the extra that brings it."""
    load = builtins.__import__

    def missing(name: str, *more: Any, **options: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return load(name, *more, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(planner.PlannerError, match=f"needs the package {package}; install the extra `{extra}`"):
        getattr(plan, call)()


def test_versions(capsys: pytest.CaptureFixture[str]) -> None:
    """The report has planner, Python, both solvers and the platform, a line each."""
    planner.show_versions()
    lines = dict(x.split(maxsplit=1) for x in capsys.readouterr().out.splitlines())
    assert lines["planner"] == planner.__version__ and lines["python"] == sys.version.split()[0]
    assert lines["highspy"].startswith("1.13") and lines["ortools"].startswith("9.15") and "platform" in lines


def test_a_view_that_no_layer_provides_is_a_defect() -> None:
    with pytest.raises(InternalError, match="no layer provides"):
        view("no_such_view")


def test_looking_loads_only_what_it_needs() -> None:
    """The summary of a plan loads neither pandas nor matplotlib nor a solver; nor does importing the package."""
    code = """
import sys, planner
planner.to_frame, planner.show_versions
from planner.plan.plan_files import read_plan
heavy = ("pandas", "matplotlib", "ortools", "highspy", "pyomo", "planner.report")
print(*[m for m in sys.modules if m.startswith(heavy)])
"""
    root = Path(planner.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == ""
