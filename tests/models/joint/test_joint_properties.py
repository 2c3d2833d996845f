"""What must hold of every joint optimum: pins never improve it, means never worsen it, order and names mean nothing."""

import math
from functools import cache

import pytest
from joint_changes import HARMS, HELPS, SAME, other_values, own_choices, put, with_pins
from joint_solved import solved
from joint_toys import case
from tiers import more

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models.joint.solution import JointSolution

# One cluster, one site and a grid on which the network, the fibre or the split binds, experts, and CP over racks.
SEEDS = (0, 26, 13, 74, *more(27, 39, 52))
TIE = 1e-9


@cache
def free(seed: int) -> JointSolution:
    return solved(case(seed))


def days(i: Instance) -> float:
    """Return the days of the optimum; infinite where there is no plan."""
    return solved(i).days or math.inf


@pytest.mark.parametrize("seed", SEEDS)
def test_own_choices_as_pins_give_the_same_value(seed: int) -> None:
    """A plan's own choices, pinned all at once and one by one, give its days and its capital."""
    found, pins = free(seed), own_choices(free(seed))
    assert found.plan is not None and found.days is not None
    for some in (pins, *({name: value} for name, value in pins.items())):
        again = solved(with_pins(case(seed), some))
        assert again.plan is not None, some
        assert again.days == pytest.approx(found.days, rel=TIE), some
        assert again.plan.capital_usd == pytest.approx(found.plan.capital_usd, rel=TIE), some


@pytest.mark.parametrize("seed", SEEDS)
def test_pins_never_improve(seed: int) -> None:
    """No other value of a choice gives fewer days, and the lower bounds hold below every value under a pin."""
    found = free(seed)
    assert found.days is not None and found.lower_bound is not None and found.fabric_free_bound is not None
    assert found.fabric_free_bound <= found.lower_bound * (1 + TIE) <= found.days * (1 + 2 * TIE)
    tried, pinned_before = 0, case(seed).pins
    for name, value in own_choices(found).items():
        if name in pinned_before:
            continue
        for other in other_values(name, value):
            try:
                pinned = days(with_pins(case(seed), {name: other}))
            except InputError as refused:
                assert str(refused).startswith(f"pins[{name!r}]: ")
                continue
            tried += 1
            assert pinned >= found.lower_bound * (1 - TIE), (name, other)
    assert tried > 0


@pytest.mark.parametrize("change", [x for x in HELPS if x != "racks"])
@pytest.mark.parametrize("seed", SEEDS)
def test_means_never_worsen(seed: int, change: str) -> None:
    """More money, power, sites, fibre, switches or batch never give more days."""
    assert days(HELPS[change](case(seed))) <= (free(seed).days or math.inf) * (1 + TIE)


@pytest.mark.parametrize("racks", [2, 4, 6])
def test_racks_never_worsen(racks: int) -> None:
    """More racks of a cluster without a budget never give more days."""
    i = case(5)
    few, more = (put(i, limits__budget_usd=None, hardware__racks=n) for n in (racks, racks + 1))
    assert days(more) <= days(few) * (1 + TIE)


@pytest.mark.parametrize("change", HARMS)
@pytest.mark.parametrize("seed", SEEDS)
def test_dearer_parts_never_improve(seed: int, change: str) -> None:
    """Dearer racks, fabrics, sites or fibre, and slower NICs, never give fewer days."""
    assert days(HARMS[change](case(seed))) >= (free(seed).days or 0.0) * (1 - TIE)


@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize("seed", SEEDS)
def test_order_and_names_change_nothing(seed: int, change: str) -> None:
    _same(free(seed), solved(SAME[change](case(seed))))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_seed_of_the_solvers_changes_nothing(seed: int) -> None:
    _same(free(seed), solved(case(seed), seed=7))


def _same(a: JointSolution, b: JointSolution) -> None:
    assert a.plan is not None and b.plan is not None
    assert b.days == pytest.approx(a.days, rel=TIE)
    assert b.plan.capital_usd == pytest.approx(a.plan.capital_usd, rel=TIE)
