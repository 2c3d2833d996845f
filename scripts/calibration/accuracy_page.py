"""Write the tables of docs/accuracy.md, and draw predicted against measured steps.

    python scripts/calibration/accuracy_page.py POINTS.csv

POINTS.csv is what `calibrate.py --errors` writes: each measured row, predicted by constants that had not seen it.
Needs matplotlib (the plot extra) for the picture.
"""

import argparse
import csv
import importlib.util
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from recent_classes import CLASSES

from planner.physics.training.step_errors import ANY, COVERAGE
from planner.physics.training.step_errors import table as errors_by_class

ROOT = Path(__file__).resolve().parents[2]
PAGE, PICTURE = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "figures" / "accuracy.png"
TABLE, RECENT, RULE = "table of errors", "recent rows", "rule of thumb"
MARKS = {name: (f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n") for name in (TABLE, RECENT, RULE)}
COLUMNS = ("rows of", "number", "mean error", "bias", "4 of 5 measured over predicted", "inside", "worst")
HEAD = f"| {' | '.join(COLUMNS)} |\n|---{'|---:' * (len(COLUMNS) - 1)}|\n"
COLOURS = {"16-bit dense": "C0", "16-bit MoE": "C1", "fp8 dense": "C2", "fp8 MoE": "C3", "fp4 dense": "C4"}
ALL, SEVERAL, SOURCES, OTHER = "**all**", "**several nodes**", "**mean of {} sources**", "C5"
BAND = 0.1  # of the lines beside the diagonal


@dataclass(frozen=True, slots=True)
class Point:
    """One measured step and what was predicted of it."""

    kind: str
    measured: float
    predicted: float
    seen: float
    rule: float | None
    width: str
    recent: tuple[str, ...]
    low: float
    high: float
    source: str

    @property
    def inside(self) -> bool:
        """Whether the measured step lies in the interval of its prediction."""
        return self.low <= self.measured <= self.high

    @property
    def interval_score(self) -> float:
        """Width of the interval and ten times what lies outside, in logarithms (Gneiting and Raftery 2007, 6.2)."""
        outside = max(0.0, math.log(self.low / self.measured), math.log(self.measured / self.high))
        return math.log(self.high / self.low) + 2 / (1 - COVERAGE) * outside

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1


def read(path: Path) -> list[Point]:
    """Read the points."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Point(
                row["class"],
                float(row["measured_seconds"]),
                float(row["predicted_seconds"]),
                float(row["seen_seconds"]),
                float(row["rule_seconds"]) if row["rule_seconds"] else None,
                row["kind"],
                tuple(filter(None, row["recent"].split(";"))),
                float(row["interval_low"]),
                float(row["interval_high"]),
                row["source"],
            )
            for row in csv.DictReader(file)
        ]


def table(points: Sequence[Point]) -> str:
    """Return the table of the page, a class a line and all of them last."""
    kinds = sorted({p.kind for p in points})
    lines = [_line(kind, [p for p in points if p.kind == kind]) for kind in kinds]
    several = [p for p in points if "one node" not in p.kind]
    lines += [_line(SEVERAL, several)] if several else []
    mean, bias = (of_sources(points, [size(p.error) for p in points]) for size in (abs, float))
    last = f"| {SOURCES.format(len({p.source for p in points}))} | {len(points)} | {mean:.1%} | {bias:+.1%} | | | |\n"
    return HEAD + "".join([*lines, _line(ALL, points), last])


def of_sources(points: Sequence[Point], values: Sequence[float]) -> float:
    """Return the mean of the sources' means."""
    each: dict[str, list[float]] = {}
    for p, value in zip(points, values, strict=True):
        each.setdefault(p.source, []).append(value)
    return float(np.mean([np.mean(x) for x in each.values()]))


def _line(name: str, points: Sequence[Point]) -> str:
    """Return the line of a class."""
    errors = np.array([p.error for p in points])
    known = errors_by_class().classes.get(ANY if name == ALL else name)
    interval = "{:.2f} to {:.2f}".format(*known.measured_over_predicted) if known else "too few" * (name != SEVERAL)
    inside = f"{np.mean([p.inside for p in points]):.0%}"
    worst = errors[np.argmax(np.abs(errors))]
    figures = f"{np.mean(np.abs(errors)):.1%} | {np.mean(errors):+.1%} | {interval} | {inside} | {worst:+.0%}"
    return f"| {name} | {len(points)} | {figures} |\n"


def recent_table(points: Sequence[Point]) -> str:
    """Return the table of recent rows by the classes that a user meets."""
    lines = [
        "| rows of | number | source left out: mean, bias | inside 4 of 5 | catalogue now |\n",
        "|---|---:|---:|---:|---:|\n",
    ]
    for name in (name for name in CLASSES if any(name in p.recent for p in points)):
        some = [p for p in points if name in p.recent]
        errors, seen = np.array([p.error for p in some]), np.array([p.seen / p.measured - 1 for p in some])
        figures = f"{np.mean(np.abs(errors)):.1%}, {np.mean(errors):+.1%} | {np.mean([p.inside for p in some]):.0%}"
        lines.append(f"| {name} | {len(some)} | {figures} | {np.mean(np.abs(seen)):.1%} |\n")
    return "".join(lines)


def rule_table(points: Sequence[Point]) -> str:
    """Return the table of physics beside the rule of thumb, and in which classes it is behind."""
    lines, behind = ["| source left out | rows | physics | rule of thumb |\n|---|---:|---:|---:|\n"], []
    ruled = [(p, p.rule / p.measured - 1) for p in points if p.rule is not None]
    for kind in (*sorted({p.width for p, _ in ruled}), "all") if ruled else ():
        some = [(p.error, e) for p, e in ruled if kind in (p.width, "all")]
        ours, theirs = (float(np.mean(np.abs([x[i] for x in some]))) for i in (0, 1))
        lines.append(f"| {kind} | {len(some)} | {ours:.1%} | {theirs:.1%} |\n")
        behind += [kind] if ours > theirs else []
    alone = sorted({p.width for p in points} - {p.width for p, _ in ruled})
    lines.append(f"\nPhysics is behind it in {' and '.join(behind) or 'no class'}.")
    lines.append(f" {', '.join(alone)}: of one source, which has no rule.\n" if alone else "\n")
    return "".join(lines)


def with_table(page: str, name: str, text: str) -> str:
    """Return the page with another table between its marks."""
    begin, end = MARKS[name]
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{text}{end}{after}"


def draw(axes: Any, points: Sequence[Point]) -> None:
    """Draw predicted against measured seconds on logarithmic axes, with the diagonal and ten per cent beside it."""
    for name, some in _coloured(points):
        xy = np.array([(p.measured, p.predicted) for p in some])
        axes.loglog(xy[:, 0], xy[:, 1], ".", color=COLOURS.get(name, OTHER), markersize=4, alpha=0.6, label=name)
    ends = np.array([min(p.measured for p in points), max(p.measured for p in points)])
    axes.loglog(ends, ends, color="black", linewidth=0.8)
    for factor in (1 - BAND, 1 + BAND):
        axes.loglog(ends, factor * ends, color="grey", linewidth=0.6, linestyle=":")
    axes.set(xlabel="measured step, s", ylabel="predicted step, s, fitted without the row", aspect="equal")
    axes.legend(fontsize=8)


def _coloured(points: Sequence[Point]) -> Iterator[tuple[str, list[Point]]]:
    """Yield the points of each precision and kind of model."""
    names = [p.kind.partition(",")[0] for p in points]
    for name in sorted(set(names)):
        yield name, [p for p, n in zip(points, names, strict=True) if n == name]


def write_picture(path: Path, points: Sequence[Point]) -> None:
    """Draw the picture and write it, or say why there is none."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"{path}: not written, since matplotlib is not installed (pip install -e '.[plot]')")
        return
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 6), layout="constrained")
    draw(axes, points)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    print(f"wrote {path}")


def main() -> None:
    """Write the table into the page, and the picture."""
    parser = argparse.ArgumentParser(description="Write the table and the picture of docs/accuracy.md.")
    parser.add_argument("points", type=Path, help="what `calibrate.py --errors` wrote")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    given = parser.parse_args()
    points = read(given.points)
    page = given.page.read_text(encoding="utf-8")
    for name, make in ((TABLE, table), (RECENT, recent_table), (RULE, rule_table)):
        page = with_table(page, name, make(points))
    given.page.write_text(page, encoding="utf-8")
    print(f"wrote {given.page}; score of intervals {of_sources(points, [p.interval_score for p in points]):.3f}")
    write_picture(given.picture, points)


if __name__ == "__main__":
    main()
