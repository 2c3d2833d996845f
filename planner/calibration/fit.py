"""Fit constants to measured steps: robust least squares of the logarithm of predicted over measured seconds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from planner.calibration.constants import Constant, entries_with
from planner.physics.training.blocks import prediction
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step import Conditions

Numbers = np.ndarray[Any, np.dtype[np.float64]]
UNLOADED = Conditions(pipeline_send_slowdown=1.0, allreduce_slowdown=1.0)
TINY = 1e-12  # in place of a constant of zero, whose logarithm would not be finite
STEP = 1e-4  # of a constant's logarithm, for its slope
START_INSIDE = 0.02  # of the range of a logarithm: the solver needs a start strictly within the bounds


class Measured(Protocol):
    """A measured step: what it ran on, its layout, and how long it took."""

    @property
    def machine(self) -> Machine:
        """What it ran on."""

    @property
    def strategy(self) -> ParallelStrategy:
        """Its layout."""

    @property
    def seconds(self) -> float | None:
        """Seconds of a step; None where none was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The constants of a fit, and how the weighted residuals of rows and prior change with their logarithms."""

    values: list[float]
    residuals: Numbers
    slopes: Numbers


def step_seconds(m: Machine, strategy: ParallelStrategy) -> float:
    """Predict the seconds of a step on an unloaded network."""
    return math.fsum(prediction.step_breakdown(m, UNLOADED, strategy).values())


def log_errors(runs: Sequence[Measured], constants: Sequence[Constant], values: Sequence[float]) -> Numbers:
    """Return the logarithm of predicted over measured seconds of each run, with the constants at these values."""
    names = {r.machine.gpu.name for r in runs}, {r.machine.software.name for r in runs}
    entries = entries_with(constants, values, *names)
    return np.array([math.log(step_seconds(entries.machine(r.machine), r.strategy) / (r.seconds or 1.0)) for r in runs])


def fit(
    runs: Sequence[Measured],
    constants: Sequence[Constant],
    *,
    weights: Numbers,
    prior: float | Numbers,
    scale: float,
    loss: str = "soft_l1",
    evaluations: int = 60,
    tolerance: float = 1e-8,
    centre: Sequence[float] | None = None,
    start: Sequence[float] | None = None,
) -> Fitted:
    """Return the constants that fit measured runs best, searched from `start`: the centre of the prior unless given.

    `weights` multiply the log errors; `prior` multiplies a constant's distance from the centre (the catalogue's value
    unless given), in logarithms, and keeps what the runs do not determine; errors over `scale` count less than their
    square.
    """
    from scipy.optimize import least_squares

    low, high = np.log([c.low for c in constants]), np.log([c.high for c in constants])
    inside = START_INSIDE * (high - low)

    def interior(values: Sequence[float]) -> Numbers:
        return np.clip(np.log(np.maximum(values, TINY)), low + inside, high - inside)

    middle = interior([c.read() for c in constants] if centre is None else centre)

    def residuals(x: Numbers) -> Numbers:
        return np.concatenate([log_errors(runs, constants, list(np.exp(x))) * weights, (x - middle) * prior])

    slopes = slopes_of(runs, constants, weights, np.broadcast_to(prior, middle.shape), high)
    result = least_squares(
        residuals,
        middle if start is None else interior(start),
        jac=slopes,
        bounds=(low, high),
        method="trf",
        loss=loss,
        f_scale=scale,
        max_nfev=evaluations,
        ftol=tolerance,
        xtol=tolerance,
    )
    return Fitted(
        values=[float(f"{v:.4g}") for v in np.exp(result.x)], residuals=residuals(result.x), slopes=slopes(result.x)
    )


def slopes_of(
    runs: Sequence[Measured], constants: Sequence[Constant], weights: Numbers, prior: Numbers, high: Numbers
) -> Callable[[Numbers], Numbers]:
    """Return the Jacobian of the residuals; a constant is moved only for the runs that it touches."""
    touched = [np.array([i for i, r in enumerate(runs) if c.touches(r.machine)], dtype=int) for c in constants]

    def slopes(x: Numbers) -> Numbers:
        table = np.zeros((len(runs) + len(x), len(x)))
        base = log_errors(runs, constants, list(np.exp(x)))
        for j, rows in enumerate(touched):
            step = STEP if x[j] + STEP < high[j] else -STEP
            moved = x.copy()
            moved[j] += step
            if len(rows):
                each = log_errors([runs[i] for i in rows], constants, list(np.exp(moved)))
                table[rows, j] = (each - base[rows]) / step * weights[rows]
            table[len(runs) + j, j] = prior[j]
        return table

    return slopes
