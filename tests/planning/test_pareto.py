"""Fabrics of a plan side by side: never dearer than the plan's own, at the leaf sizes asked for."""

import json
from pathlib import Path
from typing import Any

import pytest
from stored_plans import stored
from typer.testing import CliRunner
from worked_plan import small

from planner.cli.main import app
from planner.errors import InputError
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan
from planner.planning.site_fabrics import frontier, request_of

PLAN = small()
INSTANCES = Path(__file__).parents[2] / "instances"


@pytest.mark.parametrize("sizes", [(), (2, 4)])
def test_designs_are_of_the_plan_and_of_the_sizes(sizes: tuple[int, ...]) -> None:
    rows = list(frontier(PLAN, leaf_sizes=sizes))
    assert {site for site, _ in rows} == {"e1", "w1"}
    for site, x in rows:
        request = request_of(PlanPhysics(plan=PLAN), PLAN.layout, site)
        slowed = request.pipeline_send_seconds * x.merits["pipeline_send_slowdown"]
        assert slowed <= request.pipeline_send_window_seconds * (1 + 1e-9)
        assert not sizes or x.choices["leaf_domain_racks"] in sizes


def cheapest(plan: Plan, **built: int) -> float:
    """Return the least cost of a fabric for the plan of one site, other GPUs of which are cabled."""
    site = plan.fabric.sites["cluster"].model_copy(update=built)
    fabric = plan.fabric.model_copy(update={"sites": {"cluster": site}})
    return min(x.merits["cost_usd"] for _, x in frontier(plan.model_copy(update={"fabric": fabric})))


def test_only_what_is_cabled_is_joined() -> None:
    """A plan with one tier of switches over seven racks of ten has no cheaper fabric; half the GPUs cost half."""
    data = json.loads((INSTANCES / "cluster-1k.json").read_text())
    data["hardware"]["racks"] = 10
    data["pins"] = {"layout.tensor_parallel": 4, "layout.pipeline_parallel": 7, "layout.virtual_stages": 4}
    data["network"] |= {"families": ["rail-only"], "max_tiers": 1}
    plan = stored(data)
    own = plan.fabric.sites["cluster"]
    assert own.cabled_racks == 7
    assert cheapest(plan) == own.cost_usd < cheapest(plan, cabled_racks=0)
    assert cheapest(plan, wired_gpus_per_rack=4) == own.cost_usd / 2


def pareto(folder: Path, *options: str) -> Any:
    """Run the command on the worked plan."""
    (folder / "p.json").write_text(PLAN.model_dump_json())
    return CliRunner().invoke(app, ["fabric", "pareto", str(folder / "p.json"), *options])


def test_command_prints_them(tmp_path: Path) -> None:
    """The table has a line a design and a head; JSON has the same designs."""
    shown, data = pareto(tmp_path), json.loads(pareto(tmp_path, "--json").stdout)
    assert shown.exit_code == 0 and len(shown.stdout.splitlines()) == 1 + len(data) > 1
    figures = {"site", "cost_usd", "pipeline_send_slowdown", "unavoidable_splits", "power_mw", "leaf_domain_racks"}
    assert figures <= set(data[0])


def test_none_is_an_answer(tmp_path: Path) -> None:
    done = pareto(tmp_path, "--leaf-sizes", "999")
    says, rules = done.stderr.splitlines()
    assert (done.exit_code, done.stdout, says) == (3, "", "no fabric carries the plan's traffic")
    assert rules.startswith("given: switches of one port rate in one family (rail); at most ")
    assert "leaf domains of 999 racks" in rules


def test_nothing_proven_in_time_is_no_proof(tmp_path: Path) -> None:
    """Where the time ended before any design was proven, none is said to be impossible."""
    done = pareto(tmp_path, "--time-limit", "1e-9")
    assert done.exit_code == 4 and done.stdout == ""
    assert done.stderr.splitlines()[-1] == "no fabric was proven in the time given; give more"


@pytest.mark.parametrize("axes", ["cost,time,power,leaf", "time", "leaf,splits"])
def test_rows_can_be_drawn(tmp_path: Path, axes: str) -> None:
    """The rows that are written hold every figure, whatever the axes, and the plot takes them."""
    rows, picture = tmp_path / "rows.jsonl", tmp_path / "frontier.svg"
    shown = pareto(tmp_path, "--axes", axes, "-o", str(rows))
    of = "-x", "cost_usd", "-y", "pipeline_send_slowdown", "--color", "leaf_domain_racks"
    drawn = CliRunner().invoke(app, ["plot", str(rows), *of, "-o", str(picture)])
    assert (shown.exit_code, drawn.exit_code) == (0, 0)
    assert len(rows.read_text().splitlines()) == len(shown.stdout.splitlines()) - 1
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--axes", "cost"], "cost alone"),
        (["--axes", "cost,tme"], "did you mean 'time'"),
        (["--axes", ""], "is no axis"),
        (["-o", "rows.csv"], ".jsonl"),
        (["--leaf-sizes", "4,x"], "--leaf-sizes"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: list[str], words: str) -> None:
    """An axis that is not known, cost alone and a file of another kind are refused with what to write."""
    bad = pareto(tmp_path, *options)
    assert isinstance(bad.exception, InputError) and words in str(bad.exception)
