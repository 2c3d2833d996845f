"""The best model for a deadline: a fixed point that holds, monotone in what is given, and refusals that say why."""

from typing import Any

import pytest
from worked_plan import edited_at

from planner import check, solve
from planner.errors import InputError
from planner.instance.workload import catalogue
from planner.plan.plan import Plan

pytestmark = pytest.mark.slow

FAMILY = {"heads_multiple_of": 2, "head_size": 64, "vocabulary": 32_000, "tolerance": 0.05, "min_aspect": 16}


def question(*, racks: int = 2, days: float = 30.0, hbm: float = 1.0, **choose: Any) -> dict[str, Any]:
    """Ask for the best model of a few DGX nodes."""
    gpu = catalogue("accelerators")["A100-80GB"]
    asked = {"law": "chinchilla-2", "family": FAMILY, "tolerance": 0.05} | choose
    return {
        "name": "small",
        "objective": {"minimize": "loss"},
        "limits": {"deadline_days": days, "max_batch_tokens": 2e6},
        "workload": {"sequence_length": 2048, "choose": asked},
        "hardware": {
            "accelerator": {**gpu, "hbm_bytes": gpu["hbm_bytes"] * hbm},
            "rack": "DGX-A100",
            "racks": racks,
        },
    }


@pytest.fixture(scope="module")
def best() -> Plan:
    return solve(question())


def test_the_fixed_point_is_one(best: Plan) -> None:
    """The plan keeps the checker's rules, ends on the deadline, and solving its own model again takes as many days."""
    assert check(best) == [] and best.status == "optimal"
    data = best.instance.model_dump(mode="json", exclude_none=True) | {"objective": {"minimize": "days_to_train"}}
    del data["workload"]["choose"], data["limits"]["deadline_days"]
    for plan in (best, solve(data)):
        assert plan.layout.metrics.days_to_train == pytest.approx(30.0)


def test_choosing_again_gives_the_same(best: Plan) -> None:
    assert solve(best.instance).model_choice == best.model_choice


def test_the_bracket_holds(best: Plan) -> None:
    """The model for the compute proven to be too much is late, and the bound is within the tolerance."""
    assert best.model_choice.flop <= best.model_choice.flop_bound <= best.model_choice.flop * 1.06
    tried = {float(c): d for c, d in best.model_choice.days_by_flop.items()}  # to some digits
    too_much = min(tried, key=lambda c: (abs(c / best.model_choice.flop_bound - 1), -c))
    assert too_much >= best.model_choice.flop_bound * 0.999 and tried[too_much] > 30.0
    assert best.model_choice.loss_bound <= best.model_choice.loss


def test_use_is_below_the_ideal_and_its_parts_sum(best: Plan) -> None:
    choice = best.model_choice
    used = choice.compute_shares["used"]
    assert 0 < used < 1 and used == pytest.approx(choice.flop / choice.ideal.flop)
    assert sum(choice.compute_shares.values()) == pytest.approx(1.0)
    assert choice.loss > choice.ideal.loss


@pytest.mark.parametrize("more", [{"racks": 4}, {"days": 60.0}, {"hbm": 2.0}])
def test_more_never_makes_a_worse_model(best: Plan, more: dict[str, Any]) -> None:
    """More racks, days or memory give no more loss, but for the width of the bracket."""
    before, after = best.model_choice, solve(question(**more)).model_choice
    assert after.loss <= before.loss + (before.loss - before.loss_bound) + 1e-9


@pytest.mark.parametrize("figure", ["parameters", "flop", "loss"])
def test_an_edited_choice_is_found(best: Plan, figure: str) -> None:
    bent = edited_at(best, f"model_choice.{figure}", lambda x: x * 1.01)
    assert f"choice_figures[{figure}]" in {v.rule for v in check(bent)}


def test_the_batch_follows_its_law() -> None:
    """Under a fixed critical batch of half a million tokens no step holds more."""
    found = solve(question(critical_batch={"of": "fixed", "coefficient": 5e5}))
    assert check(found) == []
    assert found.layout.metrics.tokens_per_step <= 5e5


def test_what_is_missing_is_named() -> None:
    """No deadline, no law of that name, and no shape that can be built are refused with what to do."""
    data = question()
    del data["limits"]["deadline_days"]
    with pytest.raises(InputError, match=r"limits.deadline_days: is missing"):
        solve(data)
    with pytest.raises(
        InputError, match=r"choose.law: 'chinchila-2' is not in the catalogue; did you mean 'chinchilla"
    ):
        solve(question(law="chinchila-2"))
    with pytest.raises(InputError, match=r"workload.choose.family: no shape has"):
        solve(question(family=FAMILY | {"heads_multiple_of": 100_000}))
