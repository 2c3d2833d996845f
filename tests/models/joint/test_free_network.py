"""Layouts on a network that slows nothing: the fastest on so many racks, and the fewest racks in time."""

import pytest
from each_case import each
from joint_brute_force import toy
from joint_cost_brute_force import without
from joint_solved import solved
from tiers import more

from planner.instance.instance import Instance
from planner.models.joint.free_network import _below, conditions_of, fastest_on, fewest_racks, problem_on, racks_of
from planner.physics.training import step, step_prediction
from planner.physics.training.layer_time import days_of


def asked(seed: int) -> Instance:
    return without(toy(seed), budget_usd=None)


@pytest.mark.parametrize("seed", [0, 2, 6, 8, 14])
def test_the_fastest_is_that_of_the_joint_optimum_without_a_fabric(seed: int) -> None:
    """A cluster without a fabric is the same question; its layout in full takes the seconds that were proven."""
    i = asked(seed)
    found = fastest_on(i, i.hardware.racks or 0)
    alone = solved(i.model_copy(update={"network": None}))
    slowed = found.seconds / (alone.plan.seconds if alone.plan else 1.0)
    assert 1.0 <= slowed <= 1.1 + 1e-9  # by the transport, which a missing network leaves out
    assert found.bound == found.seconds and found.plan is not None and found.strategy is not None
    conditions = conditions_of(problem_on(i, 1))
    assert racks_of(found.plan) <= (i.hardware.racks or 0)
    seconds = sum(step_prediction.step_breakdown(step.machine_of(i), conditions, found.strategy).values())
    assert seconds / found.plan.column.sequences == pytest.approx(found.seconds, rel=1e-9)


@pytest.mark.parametrize("seed", [0, *more(2, 6, 8, 14)])
def test_the_fewest_racks_are_those_of_trying_every_number(seed: int) -> None:
    i = asked(seed)
    days = {n: days_of(i, fastest_on(i, n).seconds) for n in range(1, 7)}
    for most in sorted({d for d in days.values() if d < 1e9}):
        for limit in (most, most * 0.995):
            wanted = next((n for n, d in days.items() if d <= limit * (1 + 1e-9)), None)
            found = fewest_racks(i, limit)
            if wanted is None:
                assert found.racks is None or found.racks > 6
                continue
            assert (found.status, found.racks, found.too_few) == ("optimal", wanted, wanted - 1)
            assert found.days == pytest.approx(days[wanted])


def test_no_racks_are_enough() -> None:
    found = fewest_racks(asked(6), 1e-9)
    assert (found.status, found.racks, found.plan) == ("infeasible", None, None)


def test_a_wide_bracket_is_honest() -> None:
    i = asked(6)
    days = days_of(i, fastest_on(i, 5).seconds)
    exact, wide = fewest_racks(i, days), fewest_racks(i, days, tolerance=0.5)
    assert exact.racks is not None and wide.racks is not None
    assert wide.too_few < exact.racks <= wide.racks <= (wide.too_few + 1) * 1.5


@each(
    ("bound", "too_few"), [(0.0, 0), (0.4, 0), (1.0, 0), (1.2, 1), (4.0, 3), (4.0 + 1e-9, 3), (4.0 - 1e-9, 3), (4.3, 4)]
)
def test_racks_below_a_bound_are_too_few(bound: float, too_few: int) -> None:
    assert _below(bound) == too_few
