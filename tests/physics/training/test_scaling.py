"""Compute-optimal size and data."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner
from planner.instance.workload import DepthLaw, LossLaw, PointsLaw, PowerOf
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
    law = transformer.fit_power_law([1.0, 1.0, 10.0, 10.0], [1.0, 100.0, 10.0, 1000.0])
    assert (law.slope, law.intercept) == pytest.approx((1.0, 1.0))


@given(st.floats(-2, 2), st.floats(-5, 5), st.lists(st.integers(-10, 30), min_size=2, max_size=12, unique=True))
def test_fit_returns_an_exact_law(slope: float, intercept: float, exponents: list[int]) -> None:
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


def test_budget() -> None:
    """1 PFLOP/s for a day at 40 % is 3.456e19 FLOP, at full use 8.64e19."""
    assert transformer.budget_flop(1e15, 86_400) == pytest.approx(8.64e19)
    assert transformer.budget_flop(1e15, 86_400, utilisation=0.4) == pytest.approx(3.456e19)


def test_training_flop() -> None:
    """GPT-3 on 300G tokens takes 6·175e9·300e9 = 3.15e23 FLOP."""
    assert transformer.training_flop(175e9, 300e9) == pytest.approx(3.15e23)
    assert math.isclose(transformer.training_flop(1.0, 1.0), 6.0)


CATALOGUE = Path(planner.__file__).parent / "catalogue"


def entry(kind: str, name: str) -> dict[str, object]:
    entry: dict[str, object] = json.loads((CATALOGUE / f"{kind}.json").read_text(encoding="utf-8"))[name]
    return entry


@pytest.mark.parametrize(
    ("name", "flop"), [("chinchilla-1", 3.85e24), ("chinchilla-2", 4.54e24), ("chinchilla-3", 12.6e24)]
)
def test_laws_pass_near_their_published_points(name: str, flop: float) -> None:
    """Each approach gives 175B at its own compute of table A3, to what a line through nine rounded points allows."""
    law = PointsLaw.model_validate(entry("scaling_laws", name))
    assert transformer.best_parameters(law, flop) == pytest.approx(175e9, rel=0.04)


@pytest.mark.parametrize("name", ["parametric-2022", "parametric-2024"])
def test_the_optimum_of_a_loss_law_is_stationary(name: str) -> None:
    law = LossLaw.model_validate(entry("scaling_laws", name))
    best = transformer.best_parameters(law, 1e25)

    def at(n: float) -> float:
        return transformer.loss(law, n, transformer.tokens_for(n, 1e25))

    assert at(best) < min(at(0.99 * best), at(1.01 * best))


def test_the_published_loss_of_chinchilla() -> None:
    """70B on 1.4T tokens: 1.69 + 406.4 / 70e9^0.34 + 410.7 / 1.4e12^0.28 = 1.937 by hand."""
    law = LossLaw.model_validate(entry("scaling_laws", "parametric-2022"))
    assert transformer.loss(law, 70e9, 1.4e12) == pytest.approx(1.9366, abs=1e-4)


def test_batch_laws() -> None:
    """A fixed batch is its coefficient; powers follow tokens or compute."""
    asked = {"tokens": 1e12, "flop": 1e24, "parameters": 1e11}
    assert transformer.power(PowerOf(of="fixed", coefficient=4e6), **asked) == 4e6
    assert transformer.power(PowerOf.model_validate(entry("batch_laws", "zhang-2024")), **asked) == pytest.approx(
        22.91 * 1e12**0.47
    )
    assert transformer.power(PowerOf.model_validate(entry("batch_laws", "deepseek-2024")), **asked) == pytest.approx(
        0.292 * 1e24**0.3271
    )


def test_depth_laws() -> None:
    """An aspect of 128 gives GPT-3's 96 layers of 12,288; the logarithmic law 79."""
    assert transformer.layers_of(DepthLaw(aspect=128.0), 12_288) == 96
    log = DepthLaw.model_validate(entry("depth_laws", "levine-2020"))
    assert transformer.layers_of(log, 12_288) == pytest.approx((math.log(12_288) - 5.039) / 0.0555)
