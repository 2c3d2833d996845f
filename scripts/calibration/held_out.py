"""Fit constants to measured runs, and the errors on runs that a fit has not seen."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from calibration_rows import FOLDS, Case, hash_of
from fitted_constants import Known, whitened
from scipy.optimize import least_squares

from planner.calibration.constants import CODE, GPU, FittedConstant, Kind, MeasuredConstants
from planner.calibration.fit import TINY, MeasuredRun, Numbers, calibrated, log_errors, slopes_at

PRIOR = 0.024  # weight of one spread between a constant and its centre, beside that of a row's log error
SCALE = 0.05  # a log error above it counts less than its square, and hardly more the larger it is (Cauchy)
SOURCE_POWER = -0.4  # of a source's rows of a kind: between a like say for each row and a like say for each source
MOST_ROWS = 60  # of a source and kind that a fit takes in, by the hash of their ids: more say nothing new
EVALUATIONS, TOLERANCE = 4, 1e-8  # of a fit
START_INSIDE = 0.02  # of the range of a logarithm: the solver needs a start strictly within the bounds
FEWEST_OF_A_CLUSTER, MOST_OF_A_CLUSTER = 8, 24  # rows that are halved
HALVINGS, SEED = 6, 5
CHORDS = 4  # steps of a fit that starts from one of all rows, with the slopes of that one


def weights_of(cases: Sequence[Case]) -> Numbers:
    """Return the weights of rows: they give sources a like say on each kind of run, however many rows they have."""
    sizes = Counter((c.source, c.group) for c in cases)
    return np.array([sizes[c.source, c.group] ** SOURCE_POWER for c in cases])


def fit_rows(cases: Sequence[Case]) -> list[Case]:
    """Return the rows that fits take in: those of the least hashes of a source and kind, where routing is even."""
    members: dict[tuple[str, str], list[Case]] = {}
    for c in sorted(cases, key=lambda c: hash_of(c.id)):
        if not c.natural:
            members.setdefault((c.source, c.group), []).append(c)
    kept = {c.id for rows in members.values() for c in rows[:MOST_ROWS]}
    return [c for c in cases if c.id in kept]


def fitted(
    cases: Sequence[Case], known: Sequence[Known], start: Sequence[float], evaluations: int = EVALUATIONS
) -> list[float]:
    """Return the constants that fit the cases best by robust least squares, searched from a start."""
    constants = [k.constant for k in known]
    low, high = np.log([c.low for c in constants]), np.log([c.high for c in constants])
    inside = START_INSIDE * (high - low)

    def interior(values: Sequence[float]) -> Numbers:
        return np.clip(np.log(np.maximum(values, TINY)), low + inside, high - inside)

    weights, prior = weights_of(cases), PRIOR * whitened(known)
    centre = interior([k.centre for k in known])

    def residuals(x: Numbers) -> Numbers:
        return np.concatenate([log_errors(cases, constants, list(np.exp(x))) * weights, prior @ (x - centre)])

    result = least_squares(
        residuals,
        interior(start),
        jac=lambda x: np.concatenate([slopes_at(x, cases, constants, high) * weights[:, None], prior]),
        bounds=(low, high),
        method="trf",
        loss=cauchy_of(len(cases)),
        f_scale=SCALE,
        max_nfev=evaluations,
        ftol=TOLERANCE,
        xtol=TOLERANCE,
    )
    return [float(f"{v:.4g}") for v in np.exp(result.x)]


def errors_by_source(cases: Sequence[Case], known: Sequence[Known], values: Sequence[float]) -> dict[str, float]:
    """Return each case's error of constants fitted without its source; a constant of that source alone is not known."""
    return _errors_left_out(cases, known, values, lambda c: c.source)


def errors_by_fold(cases: Sequence[Case], known: Sequence[Known], values: Sequence[float]) -> dict[str, float]:
    """Return each case's error of constants fitted without its fifth of all rows, by the hash of their ids."""
    return _errors_left_out(cases, known, values, lambda c: f"fifth {hash_of(c.id) % FOLDS}")


def _errors_left_out(
    cases: Sequence[Case], known: Sequence[Known], values: Sequence[float], part_of: Callable[[Case], str]
) -> dict[str, float]:
    """Return each case's error, as predicted over measured seconds less 1, of constants fitted without its part."""
    errors: dict[str, float] = {}
    for part, own in constants_without(cases, known, values, part_of):
        out = [c for c in cases if part_of(c) == part]
        each = np.expm1(log_errors(out, [k.constant for k in known], own))
        errors.update(zip((c.id for c in out), each.tolist(), strict=True))
    return errors


def constants_without(
    cases: Sequence[Case], known: Sequence[Known], values: Sequence[float], part_of: Callable[[Case], str]
) -> Iterator[tuple[str, list[float]]]:
    """Yield the constants that are fitted without each part of the cases.

    The fits start from the constants given, and differ from theirs by so little that the slopes are taken but once.
    """
    constants, prior = [k.constant for k in known], PRIOR * whitened(known)
    low, high = np.log([c.low for c in constants]), np.log([c.high for c in constants])
    rows = fit_rows(cases)
    middle, weights = np.log([k.centre for k in known]), weights_of(rows)
    first = np.clip(np.log(np.maximum(values, TINY)), low, high)
    slopes = np.concatenate([slopes_at(first, rows, constants, high) * weights[:, None], prior])
    for part in sorted({part_of(c) for c in cases}):
        kept = [i for i, c in enumerate(rows) if part_of(c) != part]
        print(f"fit without {part}: {len(kept)} rows", flush=True)
        runs, own = [rows[i] for i in kept], np.concatenate([slopes[kept], slopes[len(rows) :]])
        x: Numbers = first
        for _ in range(CHORDS):
            left = np.concatenate([log_errors(runs, constants, list(np.exp(x))) * weights[kept], prior @ (x - middle)])
            x = np.asarray(np.clip(x - robust_step(own, left, len(runs)), low, high), dtype=np.float64)
        yield part, np.exp(x).tolist()


@dataclass(frozen=True, slots=True)
class HalfErrors:
    """Mean errors on rows of one cluster, of the constants before, of one factor, and of calibrated constants."""

    rows: int
    before: float
    factor: float
    calibrated: float


def clusters(cases: Sequence[Case]) -> dict[tuple[str, str, str], list[Case]]:
    """Return the rows of each source on one accelerator and stack that has enough, those of the least hashes."""
    members: dict[tuple[str, str, str], list[Case]] = {}
    for c in sorted(cases, key=lambda c: hash_of(c.id)):
        if not c.natural:
            members.setdefault((c.source, c.machine.gpu.name, c.machine.software.name), []).append(c)
    found = {names: rows[:MOST_OF_A_CLUSTER] for names, rows in sorted(members.items())}
    return {names: rows for names, rows in found.items() if len(rows) >= FEWEST_OF_A_CLUSTER}


def errors_by_half(rows: Sequence[Case], halvings: int = HALVINGS) -> HalfErrors:
    """Return the errors on each half of a cluster's rows of what its other half says, a mean of random halvings.

    Constants are those that a user's `calibrate` finds, the factor is the median of measured over predicted.
    """
    errors, random = [], np.random.default_rng(SEED)
    for _ in range(halvings):
        mixed = [rows[i] for i in random.permutation(len(rows))]
        middle = len(mixed) // 2
        for seen, unseen in ((mixed[:middle], mixed[middle:]), (mixed[middle:], mixed[:middle])):
            lines = [
                MeasuredRun(line=i, machine=c.machine, strategy=c.strategy, seconds=c.seconds or 1.0)
                for i, c in enumerate(seen, 2)
            ]
            own = calibrated(lines, Path("half.csv"))
            constants = [FittedConstant(*_part_of(path, own), 0.0, 1.0) for path in own.values]
            before, plain = log_errors(seen, [], []), log_errors(unseen, [], [])
            after = log_errors(unseen, constants, [x.value for x in own.values.values()])
            errors.append(np.mean(np.abs(np.expm1([plain, plain - np.median(before), after])), axis=1))
    return HalfErrors(len(rows), *np.mean(errors, axis=0).tolist())


def _part_of(path: str, own: MeasuredConstants) -> tuple[Kind, tuple[str, ...], str]:
    """Return where a constant at a path of an instance stands in the catalogue."""
    if path.startswith(GPU):
        return "accelerators", (own.accelerator,), path.removeprefix(GPU)
    return "software", (own.software,), path.removeprefix(CODE)


def cauchy_of(rows: int) -> Callable[[Numbers], Numbers]:
    """Return the loss of squared residuals, with its derivatives: Cauchy's of the rows, squares of the prior behind."""

    def loss(z: Numbers) -> Numbers:
        found = np.array([z, np.ones(len(z)), np.zeros(len(z))])
        found[:, :rows] = np.log1p(z[:rows]), 1 / (1 + z[:rows]), -1 / (1 + z[:rows]) ** 2
        return found

    return loss


def robust_step(slopes: Numbers, residuals: Numbers, rows: int) -> Numbers:
    """Return the Gauss-Newton step of least squares in which rows over the scale count less, by `cauchy_of`."""
    weighed = slopes.T * cauchy_of(rows)((residuals / SCALE) ** 2)[1]
    return np.asarray(np.linalg.solve(weighed @ slopes, weighed @ residuals), dtype=np.float64)
