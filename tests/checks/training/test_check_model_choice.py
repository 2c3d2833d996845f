"""Rules of a chosen model on choices made by hand: its loss, and what its shape must divide by."""

from types import SimpleNamespace
from typing import Any

import pytest

from planner.checks.model_choice import CheckedModelChoice, _bound_figures, buildable, stated_loss
from planner.instance.workload import LossLaw, Model, PowerOf

LAW = LossLaw.model_construct(e=1.5, a=400.0, b=410.0, alpha=0.5, beta=0.25)
FAMILY = SimpleNamespace(heads_multiple_of=4, layers_multiple_of=2, head_size=8, min_aspect=8.0, max_aspect=16.0)
GOOD = {"layers": 4, "hidden": 32, "heads": 4, "vocabulary": 100}


def choice(law: Any = LAW, loss: Any = None, *, stated: bool = True, **shape: int) -> Any:
    """Return what the rules read of a plan: what was asked, whether a choice is stated, and the model."""
    asked = SimpleNamespace(law=law, loss=loss, family=FAMILY)
    model = Model.model_validate({"name": "chosen", **GOOD, **shape})
    workload = SimpleNamespace(choose=asked, model=model, tokens=1e8)
    return SimpleNamespace(
        instance=SimpleNamespace(workload=workload), plan=SimpleNamespace(model_choice=object() if stated else None)
    )


def test_the_loss_is_of_the_law_that_states_one() -> None:
    """1.5 + 400 / sqrt(N) + 410 / 100, N of 4 layers of 12·32² and an embedding of 100·32; no other law states one."""
    expected = 1.5 + 400 / (4 * 12 * 32**2 + 100 * 32) ** 0.5 + 410 / 100
    other = PowerOf.model_construct(coefficient=1.0, exponent=1.0, of="flop")
    assert stated_loss(choice()) == pytest.approx(expected)
    assert stated_loss(choice(law=other, loss=LAW)) == pytest.approx(expected)
    assert stated_loss(choice(law=other)) is None
    assert stated_loss(choice(stated=False)) is None


@pytest.mark.parametrize(
    ("shape", "rules"),
    [
        ({}, []),
        ({"heads": 2, "hidden": 32}, ["heads", "head_size"]),
        ({"layers": 3}, ["layers"]),
        ({"layers": 2}, []),
        ({"layers": 6}, ["aspect"]),
        ({"heads": 8, "hidden": 64, "layers": 2}, ["aspect"]),
    ],
)
def test_each_measure_of_a_shape_has_its_rule(shape: dict[str, int], rules: list[str]) -> None:
    """Heads by 4, layers by 2, heads of 8, and a width of 8 to 16 a layer, both ends allowed."""
    assert [v.rule for v in buildable(choice(**shape))] == [f"buildable[{name}]" for name in rules]


@pytest.mark.parametrize(
    ("days", "said"),
    [
        ({}, []),
        ({"1e+24": 3.0, "2.5e+24": 7.5, "100": 0.1}, []),
        ({"1e+24": 0.0}, ["0 days for '1e+24' FLOP"]),
        ({"1e+24": -2.0, "2e+24": 1.0}, ["-2 days for '1e+24' FLOP"]),
        ({"much": 3.0, "-5": 1.0}, ["3 days for 'much' FLOP", "1 days for '-5' FLOP"]),
    ],
)
def test_days_are_stated_for_amounts_of_compute(days: dict[str, float], said: list[str]) -> None:
    """Each compute that was tried is a number above 0, and so are its days."""
    law = PowerOf.model_construct(coefficient=1.0, exponent=1.0, of="flop")
    stated = SimpleNamespace(batch_tokens=0.0, flop=1e24, flop_bound=2e24, days_by_flop=days, loss_bound=1.0, loss=1.0)
    asked: Any = SimpleNamespace(law=law, loss=None)
    plan = SimpleNamespace(objective=SimpleNamespace(bound=None))
    c: Any = SimpleNamespace(instance=SimpleNamespace(limits=SimpleNamespace(max_batch_tokens=None)), plan=plan)
    found = list(
        _bound_figures(c, CheckedModelChoice(asked, stated, Model.model_validate({"name": "x", **GOOD})), 3e24)
    )
    assert [v.message for v in found] == said
    assert {v.rule for v in found} <= {"choice_figures[days_by_flop]"}
