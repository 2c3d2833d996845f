"""Fit constants to measured runs, and the errors on runs that a fit has not seen."""

from collections.abc import Callable, Sequence

import numpy as np
from calibration_rows import SET_ASIDE, Case, groups, hash_of
from fitted_constants import Known

from planner.calibration.fit import fit, log_errors

PRIOR = 0.012  # weight of one spread between a constant and its centre, beside that of a row's log error
SCALE = 0.03  # a log error above it counts less than its square
GROUP_POWER = -0.35  # of the rows of a group: between a like say for each row and a like say for each group
EVALUATIONS, AFRESH = 14, 6  # of a fit, and of one that starts from a fit of nearly the same rows


def fitted(
    cases: Sequence[Case], known: Sequence[Known], start: Sequence[float], evaluations: int = EVALUATIONS
) -> list[float]:
    """Return the constants that fit the cases best, searched from a start.

    The weights give groups of rows a like say, however many rows they have.
    """
    sizes = {name: len(members) for name, members in groups(list(cases))}
    found = fit(
        cases,
        [k.constant for k in known],
        weights=np.array([sizes[c.group] ** GROUP_POWER for c in cases]),
        prior=np.array([PRIOR / k.spread for k in known]),
        scale=SCALE,
        evaluations=evaluations,
        centre=[k.centre for k in known],
        start=start,
    )
    return found.values


def errors_by_source(cases: Sequence[Case], known: Sequence[Known], values: Sequence[float]) -> dict[str, float]:
    """Return each case's error of constants fitted without its source; a constant of that source alone is not known."""
    return _errors(cases, known, values, lambda c: c.source)


def errors_by_fold(cases: Sequence[Case], known: Sequence[Known], values: Sequence[float]) -> dict[str, float]:
    """Return each case's error of constants fitted without its fifth of all rows, by the hash of their ids."""
    return _errors(cases, known, values, lambda c: str(hash_of(c.id) % SET_ASIDE))


def _errors(
    cases: Sequence[Case], known: Sequence[Known], values: Sequence[float], part: Callable[[Case], str]
) -> dict[str, float]:
    """Return each case's relative error of constants fitted without its part."""
    errors: dict[str, float] = {}
    for name in sorted({part(c) for c in cases}):
        kept, out = [c for c in cases if part(c) != name], [c for c in cases if part(c) == name]
        print(f"fit without {name}: {len(kept)} rows", flush=True)
        start = without_own(known, values, kept)
        without = fitted(kept, known, start, AFRESH) if kept else start
        each = np.expm1(log_errors(out, [k.constant for k in known], without))
        errors.update(zip((c.id for c in out), each.tolist(), strict=True))
    return errors


def without_own(known: Sequence[Known], values: Sequence[float], kept: Sequence[Case]) -> list[float]:
    """Return a start of a fit that knows nothing of constants which none of the cases kept can show: their centres."""
    shown = [any(k.constant.touches(case.machine) for case in kept) for k in known]
    return [value if seen else k.centre for k, value, seen in zip(known, values, shown, strict=True)]
