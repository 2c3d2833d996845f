"""Compute-optimal model size and data for a FLOP budget (Hoffmann 2022): power laws through published points."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.instance.workload import DepthLaw, LossLaw, PointsLaw, PowerOf
from planner.physics.num import Num


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """A line in logarithms: log10 y = slope·log10 x + intercept."""

    slope: float
    intercept: float

    def at(self, x: Num) -> Num:
        """Compute the law's value at x."""
        return 10.0 ** (self.slope * np.log10(x) + self.intercept)


def fit_power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw:
    """Return the least-squares line through the logarithms of positive points, of at least two different x.

    Raises
    ------
    ValueError
        Fewer than two different x, unequal lengths, or a value that has no logarithm.
    """
    if len(x) != len(y) or len(set(x)) < 2 or min(*x, *y) <= 0:
        raise ValueError("a power law needs equally many positive x and y, at two different x or more")
    u, w = np.log10(np.asarray(x, dtype=float)), np.log10(np.asarray(y, dtype=float))
    du = u - u.mean()
    slope = float(du @ (w - w.mean()) / (du @ du))
    return PowerLaw(slope, float(w.mean() - slope * u.mean()))


def optimal_parameters(budget: Num, flop: Sequence[float], parameters: Sequence[float]) -> Num:
    """Compute the optimal parameters N of a FLOP budget on the line through (FLOP, N) of Hoffmann 2022, table A3."""
    return fit_power_law(flop, parameters).at(budget)


def optimal_tokens(budget: Num, flop: Sequence[float], tokens: Sequence[float]) -> Num:
    """Compute the optimal tokens D of a FLOP budget on the line through (FLOP, D) of Hoffmann 2022, table A3."""
    return fit_power_law(flop, tokens).at(budget)


def parametric_optimal_parameters(
    budget: Num, *, a: float = 406.4, b: float = 410.7, alpha: float = 0.34, beta: float = 0.28
) -> Num:
    """Compute the parameters N that minimise the loss E + A/N^alpha + B/D^beta under 6·N·D = C.

    N = (alpha·A/(beta·B))^(1/(alpha+beta))·(C/6)^(beta/(alpha+beta)). The defaults are the published fit (Hoffmann
    2022, eqs. 4 and 10).
    """
    return (alpha * a / (beta * b)) ** (1 / (alpha + beta)) * (budget / 6) ** (beta / (alpha + beta))


def budget_flop(flop_per_second: Num, seconds: Num, *, utilisation: float = 1.0) -> Num:
    """Compute the FLOP that a rate yields in a time, at the share of it that the model uses."""
    return flop_per_second * seconds * utilisation


def training_flop(parameters: Num, tokens: Num) -> Num:
    """Compute the FLOP of training without attention as 6·N·D (Kaplan 2020): 2 forward, 4 backward."""
    return 6 * parameters * tokens


def best_parameters(law: PointsLaw | LossLaw, flop: float) -> float:
    """Return the parameters of the best model for a budget of FLOP."""
    if isinstance(law, PointsLaw):
        return float(optimal_parameters(flop, law.flop, law.parameters))
    return float(parametric_optimal_parameters(flop, a=law.a, b=law.b, alpha=law.alpha, beta=law.beta))


def tokens_for(parameters: float, flop: float) -> float:
    """Compute the tokens that a FLOP budget leaves for a model: C = 6·N·D."""
    return float(flop / training_flop(parameters, 1.0))


def loss(law: LossLaw, parameters: float, tokens: float) -> float:
    """Compute the loss in nats a token after D tokens: E + A / N^alpha + B / D^beta (Hoffmann 2022, eq. 2)."""
    return float(law.e + law.a / parameters**law.alpha + law.b / tokens**law.beta)


def power(law: PowerOf, *, tokens: float, flop: float, parameters: float) -> float:
    """Compute a power law at a model, its data or its compute."""
    x = {"tokens": tokens, "flop": flop, "parameters": parameters, "fixed": 1.0}[law.of]
    return float(law.coefficient * x**law.exponent)


def layers_of(law: DepthLaw, hidden: float) -> float:
    """Compute the layers of a width: hidden / aspect, or (ln hidden - intercept) / slope (Levine 2020, eq. 10)."""
    if law.kind == "aspect":
        return hidden / (law.aspect or 1.0)
    return max(1.0, (math.log(hidden) - (law.intercept or 0.0)) / (law.slope or 1.0))
