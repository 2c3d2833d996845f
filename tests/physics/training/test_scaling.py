"""Compute-optimal size and data."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.physics.training import transformer

# Hoffmann 2022 (arXiv 2203.15556), table A3, approach 2, as published.
PARAMETERS = [400e6, 1e9, 10e9, 67e9, 175e9, 280e9, 520e9, 1e12, 10e12]
FLOP = [1.84e19, 1.20e20, 1.32e22, 6.88e23, 4.54e24, 1.18e25, 4.19e25, 1.59e26, 1.75e28]
TOKENS = [7.7e9, 20.0e9, 219.5e9, 1.7e12, 4.3e12, 7.1e12, 13.4e12, 26.5e12, 292.0e12]
SIX_MONTHS = 33.408e21 * 180 * 86_400


def test_power_law_through_two_points() -> None:
    """Through (1, 10) and (100, 1000) the slope is 1 and the intercept 1."""
    law = transformer.fit_power_law([1.0, 100.0], [10.0, 1000.0])
    assert (law.slope, law.intercept) == pytest.approx((1.0, 1.0))
    assert law.at(10.0) == pytest.approx(100.0)


def test_least_squares_splits_the_error() -> None:
    """Points of equal x on both sides of a line leave it in their (geometric) middle."""
    law = transformer.fit_power_law([1.0, 1.0, 10.0, 10.0], [1.0, 100.0, 10.0, 1000.0])
    assert (law.slope, law.intercept) == pytest.approx((1.0, 1.0))


@given(st.floats(-2, 2), st.floats(-5, 5), st.lists(st.integers(-10, 30), min_size=2, max_size=12, unique=True))
def test_fit_returns_an_exact_law(slope: float, intercept: float, exponents: list[int]) -> None:
    """Points on a power law give it back."""
    law = transformer.fit_power_law([10.0**e for e in exponents], [10.0 ** (slope * e + intercept) for e in exponents])
    assert law.slope == pytest.approx(slope, abs=1e-9)
    assert law.intercept == pytest.approx(intercept, abs=1e-7)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([1.0], [1.0]),
        ([2.0, 2.0], [1.0, 3.0]),
        ([1.0, 2.0], [1.0]),
        ([0.0, 1.0], [1.0, 1.0]),
        ([1.0, 2.0], [1.0, -1.0]),
    ],
)
def test_refuses_what_has_no_line(x: list[float], y: list[float]) -> None:
    """One x, unequal lengths and values without a logarithm are refused."""
    with pytest.raises(ValueError, match="power law"):
        transformer.fit_power_law(x, y)


def test_approach_2_has_the_published_exponents() -> None:
    """Approach 2 gives N ~ C^0.49 and D ~ C^0.51 (Hoffmann 2022, table 2)."""
    assert transformer.fit_power_law(FLOP, PARAMETERS).slope == pytest.approx(0.49, abs=0.001)
    assert transformer.fit_power_law(FLOP, TOKENS).slope == pytest.approx(0.51, abs=0.001)


def test_optimum_of_half_a_year_and_of_two() -> None:
    """5.196e29 FLOP give 52.5T parameters on 1650T tokens, four times that 103.5T."""
    assert transformer.optimal_parameters(SIX_MONTHS, FLOP, PARAMETERS) == pytest.approx(52.5e12, rel=0.01)
    assert transformer.optimal_tokens(SIX_MONTHS, FLOP, TOKENS) == pytest.approx(1650e12, rel=0.01)
    assert transformer.optimal_parameters(4 * SIX_MONTHS, FLOP, PARAMETERS) == pytest.approx(103.5e12, rel=0.01)


@given(st.floats(20, 31))
def test_optimum_spends_the_budget(exponent: float) -> None:
    """6·N·D of the optimum is the budget, to what the rounding of the published points allows."""
    c = 10.0**exponent
    n, d = transformer.optimal_parameters(c, FLOP, PARAMETERS), transformer.optimal_tokens(c, FLOP, TOKENS)
    assert transformer.training_flop(n, d) == pytest.approx(c, rel=0.02)


def test_parametric_optimum_is_stationary() -> None:
    """The closed form has less loss than 1 % more or fewer parameters at the same 6·N·D."""

    def loss(n: float) -> float:
        return 1.69 + 406.4 / n**0.34 + 410.7 / (SIX_MONTHS / (6 * n)) ** 0.28

    best = transformer.parametric_optimal_parameters(SIX_MONTHS)
    assert best == pytest.approx(15.75e12, rel=0.001)
    assert loss(best) < min(loss(0.99 * best), loss(1.01 * best))


def test_budget() -> None:
    """1 PFLOP/s for a day at 40 % is 3.456e19 FLOP, at full use 8.64e19."""
    assert transformer.budget_flop(1e15, 86_400) == pytest.approx(8.64e19)
    assert transformer.budget_flop(1e15, 86_400, utilisation=0.4) == pytest.approx(3.456e19)


def test_training_flop() -> None:
    """GPT-3 on 300G tokens takes 6·175e9·300e9 = 3.15e23 FLOP."""
    assert transformer.training_flop(175e9, 300e9) == pytest.approx(3.15e23)
    assert math.isclose(transformer.training_flop(1.0, 1.0), 6.0)
