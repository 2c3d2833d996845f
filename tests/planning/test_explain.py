"""`planner explain`: what a choice is worth, and what an infeasible question lacks."""

import json
from itertools import pairwise
from typing import Any

import pytest
from layout_cases import FLASH, instance
from typer.testing import CliRunner

import planner
from planner.cli import main
from planner.planning import explain

PINS = {  # which leave few other choices
    "layout.context_parallel": 1,
    "layout.virtual_stages": 1,
    "layout.expert_parallel": 1,
    "layout.pipeline_parallel": 1,
    "layout.schedule": "1f1b",
}


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
    path = tmp_path / "q.json"
    path.write_text(json.dumps(small()))
    good = CliRunner().invoke(main.app, ["explain", str(path)])
    assert good.exit_code == 0
    assert "INSTEAD" in good.stdout


def priced(**objective: Any) -> dict[str, Any]:
    """Return a question of two racks that have a price, with another objective."""
    asked = small()
    asked["hardware"]["rack"] = asked["hardware"]["rack"] | {"price_usd": 1e6}
    return asked | {"objective": {"minimize": "cost_usd", **objective}}


def test_a_proven_plan_is_not_solved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proven plan is explained from itself, part by part: each part has the lines of those before it, and more."""
    plan = planner.solve(small() | {"pins": PINS})
    solved = planner.explain(small() | {"pins": PINS})
    monkeypatch.setattr(explain, "solve_instance", None)
    parts: list[Any] = []
    found = planner.explain(plan, on_part=parts.append)
    texts = [explain.summary(x) for x in parts]
    assert parts[0].layout == plan.layout and not parts[0].others and parts[-1] == found
    assert all(b.startswith(a) for a, b in pairwise(texts))
    losses = {(x.choice, x.loss) for x in solved.others}
    assert {(x.choice, x.loss) for x in found.others} == losses
    tied = [abs(x.loss) < explain.SHOWN for x in found.others if x.loss is not None]
    assert tied == sorted(tied)


def test_a_plan_of_least_cost_is_explained_in_dollars() -> None:
    question = priced() | {"pins": PINS, "limits": small()["limits"] | {"deadline_days": 1e6}}
    found = planner.explain(question)
    assert found.others and all(x.usd is None or x.usd > 0 for x in found.others)
    assert all(x.loss is None or x.loss >= -1e-9 for x in found.others)
    saved = {x.limit: x.usd_saved for x in found.worth}
    assert saved.pop("racks") == pytest.approx(-1e6)  # the cluster pays for one more
    assert all(usd is not None and usd >= 0 for usd in saved.values())
    assert all(x.days_saved is None for x in found.worth)
    assert "$" in explain.summary(found).partition("MORE")[2]


def test_a_plan_of_least_ownership_is_explained_in_dollars() -> None:
    asked = priced(minimize="total_cost_of_ownership_usd") | {"pins": PINS}
    found = planner.explain(asked | {"limits": small()["limits"] | {"deadline_days": 1e6}})
    assert found.others and all(x.loss is None or x.loss >= -1e-9 for x in found.others)
    assert all(x.usd is not None for x in found.others if x.days is not None)


def test_a_plan_within_a_gap_is_solved_again() -> None:
    """What is optimal only within the gap that was asked for, or breaks a rule, is not taken for the best."""
    plan = planner.solve(small() | {"pins": PINS})
    bound = plan.objective.bound
    assert bound is not None and explain.proven_plan(plan)
    loose = plan.objective.model_copy(update={"bound": bound * 0.9, "gap": 0.1})
    assert not explain.proven_plan(plan.model_copy(update={"objective": loose}))
    broken = plan.layout.model_copy(update={"data_parallel": plan.layout.data_parallel + 1}) if plan.layout else None
    assert not explain.proven_plan(plan.model_copy(update={"layout": broken}))


def test_an_interrupt_keeps_what_was_explained() -> None:
    stop, parts = planner.Interrupter(), list[Any]()

    def note(part: Any) -> None:
        parts.append(part)
        if part.worth:
            stop.interrupt()

    found = planner.explain(small(), on_part=note, interrupt=stop)
    assert found.interrupted and found.worth == parts[-2].worth and not found.others
