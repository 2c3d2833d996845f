"""The plans that quick tests read are those that the planner makes today."""

import json
from typing import Any

import pytest
from stored_plans import PLANS
from tiers import more

import planner
from planner.plan.plan_files import read_plan

OF_A_RUN = {"seconds", "planner_version"}  # what differs between two runs of the same question
LONG = 3.0  # seconds of a search, above which it is repeated in scripts/verify/all_seeds.py alone


def names() -> list[Any]:
    took = {f.name: json.loads(f.read_text(encoding="utf-8"))["layout"] for f in sorted(PLANS.glob("*.json"))}
    took = {name: x["certificate"]["seconds"] if x else 0.0 for name, x in took.items()}
    return [*(name for name in took if took[name] <= LONG), *more(*(name for name in took if took[name] > LONG))]


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """List where two plans as JSON differ, by path; figures may differ by rounding."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [k for k in {**old, **new} if k not in OF_A_RUN]
        return [x for k in keys for x in differences(old.get(k), new.get(k), f"{path}.{k}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [x for k, (a, b) in enumerate(zip(old, new, strict=True)) for x in differences(a, b, f"{path}.{k}")]
    same = old == pytest.approx(new, rel=1e-9) if isinstance(old, float) and isinstance(new, float) else old == new
    return [] if same else [f"{path}: {old} stored, {new} now"]


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_a_stored_plan_is_the_one_of_today(name: str) -> None:
    """Solved again, every figure is the stored one; else `tests/helpers/stored_plans.py` makes the plans anew."""
    plan = read_plan(PLANS / name)
    again = planner.solve(plan.instance)
    assert differences(plan.model_dump(mode="json"), again.model_dump(mode="json")) == []
