"""Write the catalogue's table of what measured rows say of each constant: rows, sources, posterior."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from calibration_rows import Case
from fitted_constants import Known, whitened
from held_out import PRIOR, SCALE, cauchy_of, fit_rows, weights_of

from planner.calibration.fit import log_errors, slopes_at

SOURCE = (
    "scripts/calibration/calibrate.py --errors: the normal posterior round the fit to published measured steps "
    "(docs/accuracy.md)"
)
MIN_SLOPE = 0.01  # of a step's logarithm a unit of a constant's: a row that says something of it
MIN_CORRELATION = 5  # per cent


def write_support(folder: Path, cases: Sequence[Case], known: Sequence[Known], values: Sequence[float]) -> None:
    """Write the table into a catalogue's folder, a constant a line."""
    rows, constants = fit_rows(cases), [k.constant for k in known]
    weights, prior = weights_of(rows), PRIOR * whitened(known)
    x, high = np.log(values), np.log([c.high for c in constants])
    slopes = np.concatenate([slopes_at(x, rows, constants, high) * weights[:, None], prior])
    left = np.concatenate(
        [log_errors(rows, constants, values) * weights, prior @ (x - np.log([k.centre for k in known]))]
    )
    trust = cauchy_of(len(rows))((left / SCALE) ** 2)[1]
    covariance = np.linalg.inv((slopes.T * trust) @ slopes) * PRIOR**2
    deviations = np.sqrt(np.diag(covariance))
    per_cent = np.rint(100 * covariance / np.outer(deviations, deviations)).astype(int)
    lines = []
    for j, constant in enumerate(constants):
        behind = [r for r, s, w in zip(rows, slopes[:, j], weights, strict=False) if abs(s / w) >= MIN_SLOPE]
        entry: dict[str, object] = {
            "kind": constant.kind,
            "entries": constant.entries,
            "path": constant.path,
            "rows": len(behind),
        }
        entry |= {"sources": len({r.source for r in behind}), "deviation": float(f"{deviations[j]:.3g}")}
        lines.append(json.dumps(entry))
    pairs = [
        json.dumps([i, j, int(per_cent[i, j])])
        for i in range(len(constants))
        for j in range(i)
        if abs(per_cent[i, j]) >= MIN_CORRELATION
    ]
    text = f'{{\n  "source": {json.dumps(SOURCE)},\n  "constants": [\n    ' + ",\n    ".join(lines)
    text += '\n  ],\n  "correlations": [' + ", ".join(pairs) + "]\n}\n"
    (folder / "constant_support.json").write_text(text, encoding="utf-8")
