"""Write the catalogue's table of errors by class of run, from the errors of rows that a fit had not seen."""

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from calibration_rows import Case
from fitted_constants import TUNED
from recent_classes import CLASSES
from rule_of_thumb import errors_of_rule, key_of

from planner.physics.step_errors import MIN_ROWS, TAIL, ErrorTable, classes_of, degrees_of, interval, width

SOURCE = (
    "scripts/calibration/calibrate.py --errors: published measured steps, each predicted with constants that were "
    "fitted without its source (docs/accuracy.md)"
)
ROWS_POWER = 0.5  # of a source's rows: its weight in an interval, between a like say for each source and for each row
WIDER_SOURCES = 2  # as many sources as a class's own does the next wider class count in its interval
Classes = dict[str, Any]
POINT_COLUMNS = (
    *("id", "class", "source", "gpus", "measured_seconds", "predicted_seconds", "seen_seconds", "rule_seconds"),
    *("kind", "recent", "inside"),
)


def error_classes(cases: Sequence[Case], errors: Mapping[str, float]) -> Classes:
    """Return the table of errors: every class with rows enough, and what the rows of each machine computed in.

    `errors` are of constants that had not seen a row's source.
    """
    members: dict[str, list[Case]] = {}
    wider: dict[str, str] = {}
    for case in cases:
        names = list(classes_of(case.machine, case.strategy))
        wider.update(pairwise(names))
        for name in names:
            members.setdefault(name, []).append(case)
    classes = {}
    for name, rows in sorted(members.items()):
        chain = [name]
        while chain[-1] in wider:
            chain.append(wider[chain[-1]])
        if len(rows) >= MIN_ROWS:
            classes[name] = _of(rows, errors, like_interval([members[n] for n in chain], errors))
    return {
        "source": SOURCE,
        "classes": classes,
        "accelerators": _types(cases, [c.machine.gpu.name for c in cases]),
        "software": _types(
            *zip(*((c, name) for c in cases for name in presets_of(c.machine.software.name)), strict=True)
        ),
    }


def presets_of(name: str) -> tuple[str, ...]:
    """Return the presets that have a stack's constants: those that differ from it in switches alone."""
    return TUNED if name in TUNED else (name,)


def _of(rows: Sequence[Case], errors: Mapping[str, float], ends: tuple[float, float]) -> dict[str, Any]:
    """Return the errors, the interval and the ranges of the degrees of a class."""
    degrees = [degrees_of(c.machine, c.strategy) for c in rows]
    return {
        "rows": len(rows),
        "sources": len({c.source for c in rows}),
        "between_sources": round(between_sources(rows, errors), 4),
        "bias": round(float(np.mean([errors[c.id] for c in rows])), 4),
        "measured_over_predicted": [round(x, 4) for x in ends],
        "ranges": {k: [min(d[k] for d in degrees), max(d[k] for d in degrees)] for k in degrees[0]},
    }


def like_interval(chain: Sequence[Sequence[Case]], errors: Mapping[str, float]) -> tuple[float, float]:
    """Return the interval of measured over predicted seconds of a class, given with the wider ones behind it.

    Quantiles of its rows, a source of n counting n^0.5, and of the next wider class, which counts as much as two
    sources: of few sources an interval is mostly that of wider classes, and of many its own.
    """
    weights: Counter[str] = Counter()
    left = 1.0
    for rows in chain:
        sizes = Counter(c.source for c in rows)
        share = left * (1.0 if rows is chain[-1] else len(sizes) / (len(sizes) + WIDER_SOURCES))
        total = sum(n**ROWS_POWER for n in sizes.values())
        for c in rows:
            weights[c.id] += share * sizes[c.source] ** (ROWS_POWER - 1) / total
        left -= share
    ratios = np.array([1 / (1 + errors[name]) for name in weights])
    order, each = np.argsort(ratios), np.array(list(weights.values()))
    reached = np.cumsum(each[order]) - each[order] / 2
    low, high = np.interp([TAIL, 1 - TAIL], reached, ratios[order])
    return float(low), float(high)


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

    Predicted by constants that had not seen its source, by the catalogue's, and by the rule of thumb; whether it lies
    inside the interval is asked of a table without its source.
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
            seconds = c.seconds or 0.0
            ruled = seconds * (1 + rule[c.id]) if c.id in rule else ""
            predicted = seconds * (1 + errors[c.id])
            low, high = interval(c.machine, c.strategy, predicted, known[c.source])
            own = [next(iter(classes_of(c.machine, c.strategy))), c.source, c.strategy.gpus, seconds, predicted]
            names = [name for name, belongs in CLASSES.items() if c.recent and belongs(c)]
            kind = " ".join(key_of(c)[1:])
            rest = [seconds * (1 + seen[c.id]), ruled, kind, ";".join(names), int(low <= seconds <= high)]
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
