"""Write the catalogue's table of errors by class of run, from the errors of rows that a fit had not seen."""

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from calibration_rows import Case, hash_of

from planner.physics.step_errors import ENOUGH_ROWS, MIN_ROWS, bounds_of, classes_of, degrees_of, width

SOURCE = (
    "scripts/calibration/calibrate.py --errors: published measured steps, each predicted with constants that were "
    "fitted without its source (docs/accuracy.md)"
)
MOST_OF_A_SOURCE = 20  # rows of a source that an interval counts: how sources differ matters, not how long they are
Classes = dict[str, Any]
POINT_COLUMNS = ("id", "class", "gpus", "measured_seconds", "predicted_seconds")


def error_classes(cases: Sequence[Case], errors: Mapping[str, float], seen: Mapping[str, float]) -> Classes:
    """Return the table of errors: every class with rows enough, and what the rows of each machine computed in.

    `errors` are of constants that had not seen a row's source, `seen` of the catalogue's: an interval holds both.
    """
    members: dict[str, list[Case]] = {}
    wider: dict[str, str] = {}
    for case in cases:
        names = list(classes_of(case.machine, case.strategy))
        wider.update(pairwise(names))
        for name in names:
            members.setdefault(name, []).append(case)
    classes = {name: _of(rows, errors, seen) for name, rows in sorted(members.items()) if len(rows) >= MIN_ROWS}
    for name in sorted(classes, key=lambda n: -len(members[n])):
        if len(members[name]) < ENOUGH_ROWS:
            classes[name]["measured_over_predicted"] = _hull(classes[name], classes[wider[name]])
    return {
        "source": SOURCE,
        "classes": classes,
        "accelerators": _types(cases, [c.machine.gpu.name for c in cases]),
        "software": _types(cases, [c.machine.software.name for c in cases]),
    }


def _of(rows: Sequence[Case], errors: Mapping[str, float], seen: Mapping[str, float]) -> dict[str, Any]:
    """Return the errors and the ranges of the degrees of a class."""
    each = [errors[c.id] for c in rows]
    few = few_of_each_source(rows)
    ends = [bounds_of([1 / (1 + of[c.id]) for c in few]) for of in (errors, seen)]
    low, high = min(x for x, _ in ends), max(x for _, x in ends)
    degrees = [degrees_of(c.machine, c.strategy) for c in rows]
    return {
        "rows": len(rows),
        "bias": round(float(np.mean(each)), 4),
        "measured_over_predicted": [round(low, 4), round(high, 4)],
        "ranges": {k: [min(d[k] for d in degrees), max(d[k] for d in degrees)] for k in degrees[0]},
    }


def few_of_each_source(rows: Sequence[Case]) -> list[Case]:
    """Return the rows of the least hashes of every source, so that none has more than its say."""
    count: Counter[str] = Counter()
    kept = []
    for c in sorted(rows, key=lambda c: hash_of(c.id)):
        count[c.source] += 1
        if count[c.source] <= MOST_OF_A_SOURCE:
            kept.append(c)
    return kept


def _hull(a: dict[str, Any], b: dict[str, Any]) -> list[float]:
    """Return the interval that holds those of two classes."""
    (low, high), (first, last) = a["measured_over_predicted"], b["measured_over_predicted"]
    return [min(low, first), max(high, last)]


def _types(cases: Sequence[Case], names: Sequence[str]) -> dict[str, list[str]]:
    """Return the precisions of the rows of each name."""
    return {
        name: sorted({width(c.machine) for c, n in zip(cases, names, strict=True) if n == name})
        for name in sorted(set(names))
    }


def write_points(path: Path, cases: Sequence[Case], errors: Mapping[str, float]) -> None:
    """Write each row's measured step and what was predicted of it by constants that had not seen it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(POINT_COLUMNS)
        for c in cases:
            seconds = c.seconds or 0.0
            kind = next(iter(classes_of(c.machine, c.strategy)))
            writer.writerow([c.id, kind, c.strategy.gpus, seconds, seconds * (1 + errors[c.id])])


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
