"""Laws of scale read as functions: the best model for a budget of FLOP, its loss, the most useful batch, and the depth of a width."""

import math

from planner.choice import DepthLaw, LossLaw, PointsLaw, PowerOf
from planner.physics import scaling


def best_parameters(law: PointsLaw | LossLaw, flop: float) -> float:
    """Parameters of the best model for a budget of FLOP."""
    if isinstance(law, PointsLaw):
        return float(scaling.optimal_parameters(flop, law.flop, law.parameters))
    return float(scaling.parametric_optimal_parameters(flop, a=law.a, b=law.b, alpha=law.alpha, beta=law.beta))


def tokens_for(parameters: float, flop: float) -> float:
    """Tokens that a budget leaves for a model: C = 6·N·D."""
    return float(flop / scaling.training_flop(parameters, 1.0))


def loss(law: LossLaw, parameters: float, tokens: float) -> float:
    """Loss of a model of N parameters after D tokens: E + A / N^alpha + B / D^beta (Hoffmann et al. 2022, eq. 2), in nats a token."""
    return float(law.e + law.a / parameters**law.alpha + law.b / tokens**law.beta)


def power(law: PowerOf, *, tokens: float, flop: float, parameters: float) -> float:
    """Value of a power law at a model, its data or its compute."""
    x = {"tokens": tokens, "flop": flop, "parameters": parameters, "fixed": 1.0}[law.of]
    return float(law.coefficient * x**law.exponent)


def layers_of(law: DepthLaw, hidden: float) -> float:
    """Layers of a width: hidden / aspect, or (ln hidden - intercept) / slope (Levine et al. 2020, eq. 10)."""
    if law.kind == "aspect":
        return hidden / (law.aspect or 1.0)
    return max(1.0, (math.log(hidden) - (law.intercept or 0.0)) / (law.slope or 1.0))
