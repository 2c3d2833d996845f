"""How far lines move constants: no further than they must, all together before one alone."""

import numpy as np
import pytest
from each_case import each

from planner.calibration.fit import Numbers, Prior, Shifts, shifts

BETWEEN, OPEN = 0.04, 0.1
RATES = np.array([-1.0, -1.0, 1.0, 1.0])
"""Two rates and two times: a common factor lowers the one and raises the other."""


def prior() -> Prior:
    return Prior(common=RATES, between=BETWEEN, open_root=OPEN * np.eye(len(RATES)), plausible=np.full(len(RATES), 0.3))


def shares(lines: int, seed: int = 0) -> Numbers:
    """Return slopes of lines whose steps are sums of the four constants' parts, each of another mixture."""
    parts = np.random.default_rng(seed).dirichlet(np.ones(len(RATES)), lines)
    return np.asarray(parts * RATES)


def of_factor(factor: float, lines: int, noise: float = 0.0, seed: int = 0) -> Shifts:
    """Return the shifts by lines that take a factor as long as predicted, and each a little more or less."""
    random = np.random.default_rng([seed, lines])
    return shifts(-np.log(factor) + noise * random.standard_normal(lines), shares(lines, seed), prior())


@each("lines", [2, 3, 6, 12, 40])
def test_lines_that_agree_move_nothing(lines: int) -> None:
    found = of_factor(1.0, lines)
    assert found.mean == pytest.approx(0.0, abs=1e-12)
    assert found.left_out == pytest.approx(0.0, abs=1e-12)


@each("noise", [0.02, 0.05])
def test_noise_moves_little(noise: float) -> None:
    """Errors in no order, round none, move no constant by as much as one line is off."""
    moves = [np.abs(of_factor(1.0, 10, noise, seed).mean) for seed in range(40)]
    assert np.mean(moves) < 0.6 * noise
    assert np.max(moves) < 3 * noise


@each("factor", [0.7, 0.9, 1.05, 1.3, 1.8])
@each("lines", [4, 12])
def test_one_factor_moves_all_alike(factor: float, lines: int) -> None:
    found = of_factor(factor, lines)
    assert found.mean == pytest.approx(np.log(factor) * RATES, abs=0.05 * abs(np.log(factor)))
    assert found.left_out == pytest.approx(0.0, abs=0.6 / lines * abs(np.log(factor)))
    assert found.noise < 0.02


@pytest.mark.parametrize(("lines", "noise"), [(4, 0.02), (8, 0.05), (12, 0.01), (12, 0.05)])
def test_the_interval_covers_the_factor(lines: int, noise: float) -> None:
    """The 90 % interval of the mean of the lines' logarithms covers the factor about so often, of any size."""
    inside = []
    for seed in range(60):
        factor = np.exp(np.random.default_rng(seed).normal(0.0, 0.2))
        found, along = of_factor(factor, lines, noise, seed), np.mean(shares(lines, seed), axis=0)
        reach = 1.645 * np.sqrt(along @ found.covariance @ along)
        inside.append(abs(along @ found.mean - np.log(factor)) <= reach)
    assert np.mean(inside) >= 0.85


@each("constant", range(len(RATES)))
def test_one_constant_moves_alone(constant: int) -> None:
    """Where lines are off as far as they depend on one constant, that one moves and the others hardly do."""
    slopes = np.vstack([np.diag(RATES), shares(8)])
    found = shifts(-0.25 * slopes[:, constant], slopes, prior())
    others = np.delete(found.mean, constant)
    assert found.mean[constant] == pytest.approx(0.25, abs=0.03)
    assert np.max(np.abs(others)) < 0.03


def test_one_stray_line_moves_little() -> None:
    errors = np.zeros(12)
    errors[3] = 0.5
    found = shifts(errors, shares(12), prior())
    assert np.max(np.abs(found.mean)) < 0.02


@pytest.mark.parametrize("seed", range(4))
def test_a_line_left_out_is_as_refitted(seed: int) -> None:
    """The error of a line without itself is that of shifts by the other lines, but for what is not linear."""
    slopes = shares(12, seed)
    random = np.random.default_rng(seed)
    errors = slopes @ (0.15 * random.standard_normal(4)) + 0.02 * random.standard_normal(12)
    found, again = shifts(errors, slopes, prior()), []
    for i in range(12):
        others = np.arange(12) != i
        again.append(errors[i] + slopes[i] @ shifts(errors[others], slopes[others], prior()).mean)
    assert np.mean(np.abs(found.left_out - again)) < 0.2 * np.mean(np.abs(again)) + 0.002
    assert np.corrcoef(found.left_out, again)[0, 1] > 0.9


def test_what_no_line_shows_stays_as_open_as_it_was() -> None:
    slopes = shares(12)
    slopes[:, 0] = 0.0
    found = shifts(0.02 * np.random.default_rng(0).standard_normal(12), slopes, prior())
    assert abs(found.mean[0]) < 0.02
    assert found.covariance[0, 0] > 0.4 * OPEN**2
