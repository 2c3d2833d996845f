"""`planner explain`: what a choice is worth, and what an infeasible question lacks."""

import json
from typing import Any

import pytest
from layout_cases import FLASH, instance
from typer.testing import CliRunner

import planner
from planner.cli import main


def small(**change: Any) -> dict[str, Any]:
    """Return a tiny question on one cluster of two racks."""
    data = instance(layers=4, software=FLASH, **change).model_dump(mode="json", exclude_none=True)
    data["hardware"]["racks"] = 2
    return data


def test_no_other_choice_is_better() -> None:
    """Every layout with one choice made otherwise is slower or as fast, and is proven the best of its kind."""
    found = planner.explain(small())
    assert found.status == "optimal"
    assert found.others
    assert all(x.proved and (x.loss is None or x.loss >= -1e-9) for x in found.others)
    assert all(x.days_saved >= -1e-9 for x in found.worth)
    assert all(x.value != x.plan_value for x in found.others)


@pytest.mark.slow
def test_a_command_without_a_plan_says_what_is_enough(tmp_path: Any) -> None:
    """The command exits with 3 where there is no plan; with the memory that it lacks, the question has one."""
    path, asked = tmp_path / "q.json", small(hbm=1.5e8)
    path.write_text(json.dumps(asked))
    bad = CliRunner().invoke(main.app, ["explain", str(path), "--json", "--pin", "layout.microbatch_sequences=1"])
    assert bad.exit_code == 3
    found = json.loads(bad.stdout)
    assert found["status"] == "infeasible"
    memory = next(x for x in found["lacks"] if x["limit"] == "memory")
    asked["hardware"]["accelerator"]["hbm_bytes"] = memory["needed"] * 1e9
    assert planner.solve(asked).status == "optimal"


@pytest.mark.slow
def test_command(tmp_path: Any) -> None:
    """The command tells the breakdown and the runners-up."""
    path = tmp_path / "q.json"
    path.write_text(json.dumps(small()))
    good = CliRunner().invoke(main.app, ["explain", str(path)])
    assert good.exit_code == 0
    assert "INSTEAD" in good.stdout
