"""Scaling laws of training: the best size of a model and its tokens for a budget of FLOP, its loss, and its depth."""

import math
from collections.abc import Sequence

import numpy as np

from planner.instance.scaling_law import Choose, DepthLaw, Ideal, LossLaw, PointsLaw, PowerOf
from planner.physics.training.transformer import training_flop


def fitted_power_law(x: Sequence[float], y: Sequence[float], at: float) -> float:
    """Fit a scaling law's power law to points by least squares of logarithms, of two or more x; return y at an x."""
    u, w = np.log10(np.asarray(x, dtype=float)), np.log10(np.asarray(y, dtype=float))
    du = u - u.mean()
    slope = float(du @ (w - w.mean()) / (du @ du))
    return float(10.0 ** (slope * np.log10(at) + float(w.mean() - slope * u.mean())))


def best_parameters(law: PointsLaw | LossLaw, flop: float) -> float:
    """Compute a scaling law's best parameters for a FLOP budget, by points or a loss (Hoffmann 2022, eqs. 4, 10)."""
    if isinstance(law, PointsLaw):
        return fitted_power_law(law.flop, law.parameters, flop)
    # The N that minimise E + A/N^alpha + B/D^beta under 6·N·D = C.
    alpha, beta, together = law.alpha, law.beta, law.alpha + law.beta
    return float((alpha * law.a / (beta * law.b)) ** (1 / together) * (flop / 6) ** (beta / together))


def tokens_for(parameters: float, flop: float) -> float:
    """Compute the training tokens that a scaling law's FLOP budget leaves for a Transformer: C = 6·N·D."""
    return float(flop / training_flop(parameters, 1.0))


def loss(law: LossLaw, parameters: float, tokens: float) -> float:
    """Compute a scaling law's loss in nats a token at D tokens: E + A / N^alpha + B / D^beta (Hoffmann 2022, eq. 2)."""
    return float(law.e + law.a / parameters**law.alpha + law.b / tokens**law.beta)


def ideal(choose: Choose, flop: float, largest: float = math.inf) -> Ideal:
    """Compute scaling laws' best model for a FLOP budget, of at most `largest` parameters, its shape left open."""
    size = min(best_parameters(choose.law, flop), largest)
    tokens = tokens_for(size, flop)
    return Ideal(flop=flop, parameters=size, tokens=tokens, loss=loss(choose.loss_law, size, tokens))


def power(law: PowerOf, *, tokens: float, flop: float, parameters: float) -> float:
    """Compute a scaling law's power term of a model's parameters, tokens or FLOP."""
    x = {"tokens": tokens, "flop": flop, "parameters": parameters, "fixed": 1.0}[law.of]
    return float(law.coefficient * x**law.exponent)


def layers_of(law: DepthLaw, hidden: float) -> float:
    """Compute a depth scaling law's layers: h / aspect, or (ln h - intercept) / slope (Levine 2020, eq. 10)."""
    if law.kind == "aspect":
        return hidden / (law.aspect or 1.0)
    return max(1.0, (math.log(hidden) - (law.intercept or 0.0)) / (law.slope or 1.0))
