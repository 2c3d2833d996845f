"""Write the catalogue's table of errors by class of run, from the errors of rows that a fit had not seen."""

import csv
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from calibration_rows import Case
from fitted_constants import TUNED
from recent_classes import CLASSES
from rule_of_thumb import errors_of_rule, key_of

from planner.physics.training.step_errors import (
    ANY,
    COVERAGE,
    MIN_ROWS,
    ErrorTable,
    classes_of,
    degrees_of,
    interval,
    width,
)

SOURCE = (
    "scripts/calibration/calibrate.py --errors: published measured steps, each predicted with constants that were "
    "fitted without its source (docs/accuracy.md)"
)
ROWS_POWER = 0.5  # of a source's rows: its weight in a spread, between a like say for each source and for each row
WIDER_ROWS = 4  # as many rows as a class's own does the spread of the next wider class count in its own
TINY = 1e-9  # in place of a spread of none
Classes = dict[str, Any]
POINT_COLUMNS = (
    *("id", "class", "source", "gpus", "measured_seconds", "predicted_seconds", "seen_seconds", "rule_seconds"),
    *("kind", "recent", "interval_low", "interval_high"),
)


@dataclass(frozen=True, slots=True)
class Spreads:
    """Standard deviations of log errors: of sources round none, of rows round their source by class."""

    measured: float
    unmeasured: float
    rows: Mapping[str, float]

    def of(self, name: str, *, unmeasured: bool) -> float:
        """Return the standard deviation of a row of a class, of a source that no fit has seen."""
        return math.hypot(self.unmeasured if unmeasured else self.measured, self.rows[name])


def error_classes(cases: Sequence[Case], errors: Mapping[str, float]) -> Classes:
    """Return the table of errors: every class with rows enough, and what the rows of each machine computed in.

    `errors` are of constants that had not seen a row's source.
    """
    members: dict[str, list[Case]] = {}
    for case in cases:
        for name in classes_of(case.machine, case.strategy):
            members.setdefault(name, []).append(case)
    spreads = spreads_of(cases, errors)
    multiple = multiple_of(cases, errors, spreads)
    classes = {
        name: _of(rows, errors) | _ends(name, spreads, multiple)
        for name, rows in sorted(members.items())
        if len(rows) >= MIN_ROWS
    }
    return {
        "source": SOURCE,
        "spreads": {
            "measured": round(spreads.measured, 4),
            "unmeasured": round(spreads.unmeasured, 4),
            "multiple": round(multiple, 4),
        },
        "classes": classes,
        "accelerators": _types(cases, [c.machine.gpu.name for c in cases]),
        "software": _types(
            *zip(*((c, name) for c in cases for name in presets_of(c.machine.software.name)), strict=True)
        ),
    }


def presets_of(name: str) -> tuple[str, ...]:
    """Return the presets that have a stack's constants: those that differ from it in switches alone."""
    return TUNED if name in TUNED else (name,)


def _of(rows: Sequence[Case], errors: Mapping[str, float]) -> dict[str, Any]:
    """Return the errors and the ranges of the degrees of a class."""
    degrees = [degrees_of(c.machine, c.strategy) for c in rows]
    return {
        "rows": len(rows),
        "sources": len({c.source for c in rows}),
        "between_sources": round(between_sources(rows, errors), 4),
        "bias": round(float(np.mean([errors[c.id] for c in rows])), 4),
        "ranges": {k: [min(d[k] for d in degrees), max(d[k] for d in degrees)] for k in degrees[0]},
    }


def _ends(name: str, spreads: Spreads, multiple: float) -> dict[str, Any]:
    """Return the spread of the rows of a class, and its intervals of measured over predicted seconds."""
    reach = {unmeasured: multiple * spreads.of(name, unmeasured=unmeasured) for unmeasured in (False, True)}
    return {
        "within_sources": round(spreads.rows[name], 4),
        "measured_over_predicted": [round(math.exp(x), 4) for x in (-reach[False], reach[False])],
        "unmeasured_over_predicted": [round(math.exp(x), 4) for x in (-reach[True], reach[True])],
    }


def alone(cases: Sequence[Case]) -> set[str]:
    """Return the ids of rows whose accelerator or stack their own source alone measured in their precision."""
    sources: dict[tuple[str, str], set[str]] = {}
    for c in cases:
        for name in (c.machine.gpu.name, *presets_of(c.machine.software.name)):
            sources.setdefault((width(c.machine), name), set()).add(c.source)
    return {
        c.id
        for c in cases
        if any(len(sources[width(c.machine), name]) == 1 for name in (c.machine.gpu.name, c.machine.software.name))
    }


def spreads_of(cases: Sequence[Case], errors: Mapping[str, float]) -> Spreads:
    """Return the variance components of log errors: of sources round none, and of rows round their source.

    A random-effects model by moments (DerSimonian and Laird 1986). Sources have one variance in all classes, and
    another where they alone measured the accelerator or the stack of most of their rows. The variance of a class's
    rows takes in that of the next wider class as of four more rows (the scaled inverse chi-square prior of Smyth 2004).
    """
    strangers, by_source = alone(cases), dict[str, list[Case]]()
    for c in cases:
        by_source.setdefault(c.source, []).append(c)
    squares, counts = Counter[str](), Counter[str]()
    for rows in by_source.values():
        logs, n = np.log1p([errors[c.id] for c in rows]), len(rows)
        for c, left in zip(rows, logs - logs.mean(), strict=True):
            for name in classes_of(c.machine, c.strategy) if n > 1 else ():
                squares[name] += n**ROWS_POWER / (n - 1) * float(left) ** 2
                counts[name] += n ** (ROWS_POWER - 1)
    variances = {ANY: squares[ANY] / counts[ANY] if counts[ANY] else 0.0}
    for c in cases:
        for wider, name in pairwise(reversed(list(classes_of(c.machine, c.strategy)))):
            own = squares[name] + WIDER_ROWS * variances[wider]
            variances[name] = own / (counts[name] + WIDER_ROWS)

    means: dict[bool, list[float]] = {False: [], True: []}
    for rows in by_source.values():
        mean = float(np.mean(np.log1p([errors[c.id] for c in rows])))
        is_stranger = sum(c.id in strangers for c in rows) > len(rows) / 2
        own = math.fsum(variances[next(iter(classes_of(c.machine, c.strategy)))] for c in rows)
        means[is_stranger].append(mean**2 - own / len(rows) ** 2)
    measured, unmeasured = (math.sqrt(max(0.0, float(np.mean(means[one] or means[not one])))) for one in (False, True))
    return Spreads(measured, unmeasured, {name: math.sqrt(x) for name, x in variances.items()})


def multiple_of(cases: Sequence[Case], errors: Mapping[str, float], spreads: Spreads) -> float:
    """Return how many of their standard deviations 4 of 5 errors lie within, a source of n rows counting n^0.5.

    The scores of a normalised conformal interval (Lei et al. 2018, section 5.2): of errors with longer tails than a
    normal variable's it is less than 1.28.
    """
    strangers, sizes = alone(cases), Counter(c.source for c in cases)
    scores = np.array(
        [
            abs(math.log1p(errors[c.id]))
            / max(TINY, spreads.of(next(iter(classes_of(c.machine, c.strategy))), unmeasured=c.id in strangers))
            for c in cases
        ]
    )
    order, weights = np.argsort(scores), np.array([sizes[c.source] ** (ROWS_POWER - 1) for c in cases])
    reached = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(COVERAGE, reached / weights.sum(), scores[order]))


def between_sources(rows: Sequence[Case], errors: Mapping[str, float]) -> float:
    """Return the standard deviation of the sources' mean log errors; of one source the size of its own."""
    logs: dict[str, list[float]] = {}
    for c in rows:
        logs.setdefault(c.source, []).append(float(np.log1p(errors[c.id])))
    means = [np.mean(x) for x in logs.values()]
    return float(np.std(means, ddof=1)) if len(means) > 1 else abs(float(means[0]))


def _types(cases: Sequence[Case], names: Sequence[str]) -> dict[str, list[str]]:
    """Return the precisions of the rows of each name."""
    return {
        name: sorted({width(c.machine) for c, n in zip(cases, names, strict=True) if n == name})
        for name in sorted(set(names))
    }


def write_points(path: Path, cases: Sequence[Case], errors: Mapping[str, float], seen: Mapping[str, float]) -> None:
    """Write each row's measured step and what was predicted of it, with the classes of recent rows that it is in.

    Predicted by constants that had not seen its source, by the catalogue's, and by the rule of thumb; the interval is
    that of a table without its source.
    """
    rule = errors_of_rule(cases)
    known = {
        source: ErrorTable.model_validate(error_classes([c for c in cases if c.source != source] or cases, errors))
        for source in {c.source for c in cases}
    }
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(POINT_COLUMNS)
        for c in cases:
            seconds = c.seconds
            ruled = seconds * (1 + rule[c.id]) if c.id in rule else ""
            predicted = seconds * (1 + errors[c.id])
            low, high = interval(c.machine, c.strategy, predicted, known[c.source])
            own = [next(iter(classes_of(c.machine, c.strategy))), c.source, c.strategy.gpus, seconds, predicted]
            names = [name for name, belongs in CLASSES.items() if c.recent and belongs(c)]
            kind = " ".join(key_of(c)[1:])
            rest = [seconds * (1 + seen[c.id]), ruled, kind, ";".join(names), low, high]
            writer.writerow([c.id, *own, *rest])


def write_errors(folder: Path, classes: Classes) -> None:
    """Write the table into a catalogue's folder, a class a line."""
    blocks = []
    for key, value in classes.items():
        if isinstance(value, dict):
            lines = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            blocks.append(f"  {json.dumps(key)}: {{\n{lines}\n  }}")
        else:
            blocks.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    (folder / "step_errors.json").write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")
