"""Fit constants to measured runs, and the errors on runs that a fit has not seen."""

from collections.abc import Callable, Sequence

import numpy as np
from calibration_rows import SET_ASIDE, Case, groups, hash_of

from planner.calibration.constants import Constant
from planner.calibration.fit import fit, log_errors

# Weight of a constant's distance from its start, in logarithms: holds what the rows do not determine.
PRIOR = 0.01
SCALE = 0.03  # a log error above it counts less than its square
GROUP_POWER = -0.35  # of the rows of a group: between a like say for each row and a like say for each group
AFRESH = 6  # evaluations of a fit that starts from one of nearly the same rows


def fitted(
    cases: Sequence[Case], constants: Sequence[Constant], centre: Sequence[float] | None = None, evaluations: int = 60
) -> list[float]:
    """Return the constants that fit the cases best.

    The weights give groups of rows a like say, however many rows they have.
    """
    sizes = {name: len(members) for name, members in groups(list(cases))}
    weights = np.array([sizes[c.group] ** GROUP_POWER for c in cases])
    found = fit(cases, constants, weights=weights, prior=PRIOR, scale=SCALE, evaluations=evaluations, centre=centre)
    return found.values


def errors_by_source(cases: Sequence[Case], constants: Sequence[Constant], values: Sequence[float]) -> dict[str, float]:
    """Return each case's error of constants fitted without its source; a constant of that source alone is not known."""
    return _errors(cases, constants, values, lambda c: c.source)


def errors_by_fold(cases: Sequence[Case], constants: Sequence[Constant], values: Sequence[float]) -> dict[str, float]:
    """Return each case's error of constants fitted without its fifth of all rows, by the hash of their ids."""
    return _errors(cases, constants, values, lambda c: str(hash_of(c.id) % SET_ASIDE))


def _errors(
    cases: Sequence[Case], constants: Sequence[Constant], values: Sequence[float], part: Callable[[Case], str]
) -> dict[str, float]:
    """Return each case's relative error of constants fitted without its part."""
    errors: dict[str, float] = {}
    for name in sorted({part(c) for c in cases}):
        kept, out = [c for c in cases if part(c) != name], [c for c in cases if part(c) == name]
        print(f"fit without {name}: {len(kept)} rows", flush=True)
        start = without_own(constants, values, kept)
        without = fitted(kept, constants, start, AFRESH) if kept else start
        each = np.expm1(log_errors(out, constants, without))
        errors.update(zip((c.id for c in out), each.tolist(), strict=True))
    return errors


def without_own(constants: Sequence[Constant], values: Sequence[float], kept: Sequence[Case]) -> list[float]:
    """Return a start of a fit that knows nothing of constants which none of the cases kept can show.

    They take the geometric mean of their like in other entries, or of their bounds where there is none.
    """
    shown = [any(c.touches(case.machine) for case in kept) for c in constants]
    start = []
    for constant, value, seen in zip(constants, values, shown, strict=True):
        like = [
            v
            for other, v, s in zip(constants, values, shown, strict=True)
            if s and (other.kind, other.path) == (constant.kind, constant.path)
        ]
        start.append(value if seen else float(np.exp(np.mean(np.log(like or [constant.low, constant.high])))))
    return start
