"""Fit constants to measured steps by robust least squares; a user's few steps with the catalogue as prior."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from planner.calibration.constants import (
    CODE,
    GPU,
    MAX_SHARE,
    SIXTEEN_BITS,
    FittedConstant,
    KeptConstant,
    Kind,
    MeasuredConstant,
    MeasuredConstants,
    MeasuredLine,
    entries_with,
)
from planner.calibration.measured_steps import MeasuredRun
from planner.errors import InputError
from planner.physics.training import step_prediction
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step import Conditions

Numbers = np.ndarray[Any, np.dtype[np.float64]]
UNLOADED = Conditions(pipeline_send_slowdown=1.0, allreduce_slowdown=1.0)
TINY = 1e-12  # in place of a constant of zero, whose logarithm would not be finite
STEP = 1e-4  # of a constant's logarithm, for its slope
START_INSIDE = 0.02  # of the range of a logarithm: the solver needs a start strictly within the bounds


class Measured(Protocol):
    """A measured step: its machine, its layout, and its seconds."""

    @property
    def machine(self) -> Machine:
        """Machine on which the step ran."""

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
    return math.fsum(step_prediction.step_breakdown(m, UNLOADED, strategy).values())


def log_errors(runs: Sequence[Measured], constants: Sequence[FittedConstant], values: Sequence[float]) -> Numbers:
    """Return the logarithm of predicted over measured seconds of each run, with the constants at these values."""
    names = {r.machine.gpu.name for r in runs}, {r.machine.software.name for r in runs}
    entries = entries_with(constants, values, *names)
    return np.array([math.log(step_seconds(entries.machine(r.machine), r.strategy) / (r.seconds or 1.0)) for r in runs])


@dataclass(frozen=True, slots=True, kw_only=True)
class Robust:
    """How a fit counts errors, and where it ends: errors over `scale` count less than their square, by the `loss`."""

    scale: float
    loss: str = "soft_l1"
    evaluations: int = 60
    tolerance: float = 1e-8


def fit(
    runs: Sequence[Measured],
    constants: Sequence[FittedConstant],
    robust: Robust,
    *,
    weights: Numbers,
    prior: float | Numbers,
    centre: Sequence[float] | None = None,
    start: Sequence[float] | None = None,
) -> Fitted:
    """Return the constants that fit measured runs best, searched from `start`: the centre of the prior unless given.

    `weights` multiply the log errors; `prior` multiplies a constant's distance from the centre (the catalogue's value
    unless given), in logarithms, and keeps what the runs do not determine.
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
        loss=robust.loss,
        f_scale=robust.scale,
        max_nfev=robust.evaluations,
        ftol=robust.tolerance,
        xtol=robust.tolerance,
    )
    return Fitted(
        values=[float(f"{v:.4g}") for v in np.exp(result.x)], residuals=residuals(result.x), slopes=slopes(result.x)
    )


def slopes_of(
    runs: Sequence[Measured], constants: Sequence[FittedConstant], weights: Numbers, prior: Numbers, high: Numbers
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


SHARES, WORK, SECONDS = 0.25, 0.5, 1.5  # standard deviations of a prior, of a logarithm
DETERMINED = 0.5  # of the prior's standard deviation, at most, is left of a constant that lines determine
NARROW = 0.4  # standard deviation of a logarithm, at most, of a constant that lines determine: a factor of 2 at 90 %
NOISE, MIN_NOISE = 0.02, 0.003  # standard deviation of a line's log error: at first, and the least that is believed
ROUNDS = 3  # of fitting and estimating the noise
ROBUST = 2.0  # standard deviations from which a line counts less than its square
CONFIDENCE = 0.9
NEAR_ENOUGH = 1e-4  # relative change of the sum of squares, and of the logarithms, that ends a fit
EFFECT = 1e-4  # of a step's logarithm a unit of a constant's logarithm: less is no effect
MOVE = 0.01  # of a constant, to see its effect
NO_EFFECT = "no line depends on it"
NONE = "the catalogue's entry has none of it"
MIN_SPARE = 0.02  # of a line, at least, that does not follow from itself
TOGETHER = 0.7  # correlation from which two constants are not told apart


@dataclass(frozen=True, slots=True)
class Tunable:
    """A figure that measured steps may determine, with its bounds and its expected spread around the catalogue's."""

    kind: Kind
    path: str
    low: float
    high: float
    spread: float


# Launches: twice what the catalogue's rows leave of them (0.12), or few lines could tell them from a step's constants.
TUNABLES: tuple[Tunable, ...] = (
    Tunable("accelerators", "attention_efficiency", 0.1, 1.0, SHARES),
    Tunable("accelerators", "softmax_width", 1.0, 1000.0, WORK),
    Tunable("accelerators", "gemm_efficiency.operand_traffic", 0.01, 1.0, WORK),
    Tunable("accelerators", "hbm_efficiency", 0.3, 1.0, SHARES),
    Tunable("accelerators", "kernel_seconds", 1e-7, 1e-4, WORK),
    Tunable("accelerators", "gemm_efficiency.tail_elements", 1.0, 1e7, WORK),
    Tunable("accelerators", "gemm_efficiency.unaligned_share", 0.1, 1.0, SHARES),
    Tunable("accelerators", "scale_up_efficiency", 0.2, 1.0, SHARES),
    Tunable("accelerators", "scale_up_latency_seconds", 1e-7, 2e-4, WORK),
    Tunable("accelerators", "nic_efficiency", 0.1, 1.0, SHARES),
    Tunable("accelerators", "nic_latency_seconds", 1e-7, 2e-4, WORK),
    Tunable("software", "score_efficiency", 0.03, 1.0, WORK),
    Tunable("software", "elementwise_traffic", 0.2, 8.0, WORK),
    Tunable("software", "quantise_traffic", 0.1, 8.0, WORK),
    Tunable("software", "loss_bytes_per_logit", 2.0, 160.0, WORK),
    Tunable("software", "launch_seconds", 1e-7, 1e-2, SHARES),
    Tunable("software", "collective_seconds", 1e-7, 1e-2, SECONDS),
    Tunable("software", "microbatch_seconds", 1e-6, 0.2, SECONDS),
    Tunable("software", "pipeline_start_seconds", 1e-7, 5e-2, SECONDS),
    Tunable("software", "step_seconds", 1e-5, 10.0, SECONDS),
    Tunable("software", "tensor_overlap", 0.02, 1.0, WORK),
    Tunable("software", "expert_overlap", 0.02, 1.0, WORK),
    Tunable("software", "all_to_all_seconds", 1e-7, 1e-2, SECONDS),
    Tunable("software", "deep_ep_seconds", 1e-7, 1e-2, SECONDS),
    Tunable("software", "hybrid_ep_seconds", 1e-7, 1e-2, SECONDS),
    Tunable("software", "expert_seconds", 1e-8, 1e-3, SECONDS),
    Tunable("software", "expert_cast_seconds", 1e-8, 1e-3, SECONDS),
    Tunable("software", "overlap_launch_seconds", 1e-7, 1e-2, SHARES),
    Tunable("software", "expert_efficiency", 0.1, 1.0, SHARES),
    Tunable("software", "data_efficiency", 0.1, 1.0, SHARES),
    Tunable("software", "sharding_exposed", 0.01, 1.0, WORK),
)


TUNABLE_PATHS = frozenset((GPU if t.kind == "accelerators" else CODE) + t.path for t in TUNABLES)


def is_tunable(path: str) -> bool:
    """Return whether measured steps fit the figure at a path of an instance; rates of datasheets they do not."""
    return path in TUNABLE_PATHS or path.startswith(GPU + MAX_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """The constants fitted to lines: their values, standard deviations of their logarithms, and correlations.

    `leverages`: how much a line's own error draws its prediction, the diagonal of the hat matrix.
    """

    values: Numbers
    deviations: Numbers
    correlations: Numbers
    noise: float
    leverages: Numbers

    @property
    def spare_lines(self) -> float:
        """Lines that the fit leaves over: their number less the trace of the hat matrix."""
        return len(self.leverages) - float(np.sum(self.leverages))


def calibrated(runs: Sequence[MeasuredRun], path: Path) -> MeasuredConstants:
    """Return the constants that a user's measured steps determine, the rest at the catalogue's values.

    Raise InputError where there are too few lines to say anything.
    """
    if len(runs) < 2:
        raise InputError(f"{path}: has {len(runs)} measured line; give at least 2, better 10 with varied micro-batches")
    gpu, software = runs[0].machine.gpu.name, runs[0].machine.software.name
    entries = {"accelerators": (gpu,), "software": (software,)}
    types: set[str] = {
        "bf16" if r.machine.precision.compute in SIXTEEN_BITS else r.machine.precision.compute for r in runs
    }
    types |= {"bf16"} & set(runs[0].machine.gpu.peak_flop_per_second)
    peaks = [Tunable("accelerators", MAX_SHARE + dtype, 0.1, 1.0, SHARES) for dtype in sorted(types)]
    named = [(FittedConstant(t.kind, entries[t.kind], t.path, t.low, t.high), t.spread) for t in (*peaks, *TUNABLES)]
    every = [(c, spread) for c, spread in named if c.read() > 0]
    base, tunables = log_errors(runs, [], []), list[tuple[FittedConstant, float]]()
    for c, spread in every:
        # By how much the logarithm of any run's step changes with the constant's logarithm, from the catalogue's.
        moved = np.abs(log_errors(runs, [c], [_moved(c)]) - base)
        if float(np.max(moved)) / math.log(1 + MOVE) >= EFFECT:
            tunables.append((c, spread))
    constants, spreads = [c for c, _ in tunables], np.array([s for _, s in tunables])
    first = _posterior(runs, constants, spreads)
    alone = first.deviations <= np.minimum(NARROW, DETERMINED * spreads)
    return MeasuredConstants(
        accelerator=gpu,
        software=software,
        measured=path.name,
        number_of_lines=len(runs),
        noise=first.noise,
        values={
            _path(c): _measured(c, first, i, "" if alone[i] else _reason(constants, first, i))
            for i, c in enumerate(constants)
        },
        kept={_path(c): KeptConstant(value=c.read(), reason=NO_EFFECT) for c, _ in every if c not in constants}
        | {_path(c): KeptConstant(value=0.0, reason=NONE) for c, _ in named if c.read() == 0},
        lines=_lines(runs, log_errors(runs, constants, list(first.values)), first.leverages),
    )


def _moved(c: FittedConstant) -> float:
    """Return a constant's value a little from the catalogue's, inside its bounds."""
    value = max(c.read(), c.low)
    return value * (1 + MOVE) if value * (1 + MOVE) <= c.high else value / (1 + MOVE)


def _path(c: FittedConstant) -> str:
    return (GPU if c.kind == "accelerators" else CODE) + c.path


def _posterior(runs: Sequence[MeasuredRun], constants: Sequence[FittedConstant], spreads: Numbers) -> Posterior:
    noise, start, robust = NOISE, None, Robust(scale=ROBUST, tolerance=NEAR_ENOUGH)
    for _ in range(ROUNDS):
        weights = np.full(len(runs), 1 / noise)
        fitted = fit(runs, constants, robust, weights=weights, prior=1 / spreads, start=start)
        start = fitted.values
        posterior = _laplace(fitted, len(runs), noise)
        left = float(np.sum((fitted.residuals[: len(runs)] * noise) ** 2))
        noise = max(MIN_NOISE, math.sqrt(left / max(1.0, posterior.spare_lines)))
    return replace(posterior, noise=noise)


def _laplace(fitted: Fitted, lines: int, noise: float) -> Posterior:
    """Return the normal posterior round a fit: the inverse of the squared slopes of lines and prior."""
    slopes = fitted.slopes
    covariance = np.linalg.inv(slopes.T @ slopes)
    deviations = np.sqrt(np.diag(covariance))
    data = slopes[:lines]
    return Posterior(
        values=np.array(fitted.values),
        deviations=deviations,
        correlations=covariance / np.outer(deviations, deviations),
        noise=noise,
        leverages=np.diag(data @ covariance @ data.T),
    )


def _measured(c: FittedConstant, p: Posterior, i: int, shared_with: str) -> MeasuredConstant:
    from scipy.stats import t

    reach = float(t.ppf((1 + CONFIDENCE) / 2, max(2.0, p.spare_lines))) * float(p.deviations[i])
    value = float(p.values[i])
    low, high = max(c.low, value * math.exp(-reach)), min(c.high, value * math.exp(reach))
    interval = float(f"{low:.4g}"), float(f"{high:.4g}")
    return MeasuredConstant(value=value, interval=interval, catalogue=c.read(), shared_with=shared_with)


def _reason(constants: Sequence[FittedConstant], p: Posterior, i: int) -> str:
    others = np.abs(p.correlations[i]).copy()
    others[i] = 0.0
    j = int(np.argmax(others))
    if others[j] >= TOGETHER:
        return f"the lines do not tell it from {constants[j].path}"
    return "the lines depend on it too little"


def _lines(runs: Sequence[MeasuredRun], errors: Numbers, leverages: Numbers) -> tuple[MeasuredLine, ...]:
    """Return each line with its predictions; `errors` are logarithms of predicted over measured seconds.

    Without a line its error is larger by 1 / (1 - leverage), as far as the fit is linear (Allen 1974, PRESS).
    """
    catalogue, without = np.exp(log_errors(runs, [], [])), errors / np.maximum(1 - leverages, MIN_SPARE)
    return tuple(
        MeasuredLine(
            line=r.line,
            measured_seconds=r.seconds,
            predicted_seconds=r.seconds * math.exp(x),
            catalogue_seconds=r.seconds * float(y),
            error=math.expm1(x),
            left_out_error=math.expm1(z),
        )
        for r, x, y, z in zip(runs, errors.tolist(), catalogue, without.tolist(), strict=True)
    )
