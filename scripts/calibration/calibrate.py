"""Fit the step-time constants of the catalogue to measured runs, and print the errors on rows that were not fitted.

    python scripts/calibration/calibrate.py ROWS.csv [ROWS.csv ...]            errors of the catalogue as it is
    python scripts/calibration/calibrate.py --fit ROWS.csv [...] [--write]     fit; --write changes the catalogue
    python scripts/calibration/calibrate.py --sources ROWS.csv [...]           errors on each source, fitted without it
    python scripts/calibration/calibrate.py --folds ROWS.csv [...]             errors on each fifth, fitted without it
    python scripts/calibration/calibrate.py --halves ROWS.csv [...]            `planner calibrate` on half a cluster
    python scripts/calibration/calibrate.py --errors POINTS.csv ROWS.csv [...] each row's prediction without its source;
                                                                               --write: and the catalogue's two tables

A constant belongs to an accelerator or to a software stack, never
to a row, a model or a publication. It ends with 1 where a constant lies on a bound of its fit: that constant stands in
for a term that is missing.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from calibration_rows import Case, groups, read
from catalogue_files import catalogue_with, name_of, on_a_bound, write
from constant_support import write_support
from error_table import error_classes, write_errors, write_points
from fitted_constants import CONSTANTS, KNOWN
from held_out import (
    HalfErrors,
    clusters,
    constants_without,
    errors_by_fold,
    errors_by_half,
    errors_by_source,
    fit_rows,
    fitted,
)
from presets import preset_lines
from recent_classes import lines, recent
from rule_of_thumb import comparison

from planner.calibration.fit import Numbers, log_errors
from planner.instance.catalogue_entries import catalogue

CATALOGUE = Path(__file__).resolve().parents[2] / "planner" / "catalogue"
TOGETHER: dict[str, Callable[[str], bool]] = {
    "dense on several nodes of A100 or H100": lambda g: (
        (g[0] in "AH" and g.endswith("dense multi-node")) or g == "vTrain multi-node"
    ),
    "vTrain on one node": lambda g: g == "vTrain single-node",
    "FP8 and FP4 on B200, GB200, B300, GB300": lambda g: "B200 FP" in g or "B300 FP" in g,
    "FP8 and FP4 on B200 and GB200": lambda g: "B200 FP" in g,
}


SAME = 1e-6  # of a step: no difference


def predict(cases: list[Case], values: Sequence[float]) -> Numbers:
    """Return the logarithm of predicted over measured seconds."""
    return log_errors(cases, CONSTANTS, values)


def report(cases: list[Case], values: Sequence[float] | None = None) -> None:
    """Print mean absolute errors by group of these constants, feasibility, and the loss by ranking layouts."""
    timed = [c for c in cases if c.seconds]
    errors = dict(
        zip((c.id for c in timed), np.expm1(predict(timed, values or [c.read() for c in CONSTANTS])), strict=True)
    )
    _print_groups("step time: group of rows", timed, errors)
    feasibility(cases)
    stage_memory_errors(cases)
    ranking(timed, errors)
    report_recent(timed, errors)
    print("\n".join(preset_lines(timed)))


def report_recent(cases: list[Case], errors: dict[str, float]) -> None:
    """Print the errors on recent rows, of the catalogue's constants or of those fitted without each source."""
    if recent(cases):
        print("\n".join(lines(recent(cases), errors)))


def _print_groups(title: str, cases: list[Case], errors: dict[str, float]) -> None:
    """Print the mean absolute error and the bias of each group of rows."""
    print(f"{title:64}{'rows':>8}{'mean |error|':>14}{'bias':>8}")
    for name, members in groups(cases):
        print(f"{name:64}{_mean_errors(np.array([errors[c.id] for c in members]))}")


def _mean_errors(errors: Numbers) -> str:
    """Write the number of rows, their mean absolute error and their bias as columns."""
    if not len(errors):
        return f"{0:>8}{'':>24}"
    return f"{len(errors):>8}{np.mean(np.abs(errors)):>13.1%}{np.mean(errors):>9.1%}  "


def feasibility(cases: list[Case]) -> None:
    """Print how many runs that ran are found feasible, and which that failed for memory are."""
    ran = [c for c in cases if c.fits]
    wrong = [c for c in ran if c.memory() > c.room]
    share = 1 - len(wrong) / max(1, len(ran))
    print(f"memory: {len(ran) - len(wrong)} of {len(ran)} runs that ran found feasible ({share:.1%})")
    for c in wrong:
        print(f"  ran, found infeasible: {c.id} ({c.memory() / 1e9:.1f} GB of {c.room / 1e9:.1f})")
    for c in (c for c in cases if c.fits is False):
        verdict = "infeasible" if c.memory() > c.room else "FEASIBLE"
        print(f"  failed for memory, found {verdict}: {c.id} ({c.memory() / 1e9:.1f} GB of {c.room / 1e9:.1f})")


def stage_memory_errors(cases: list[Case]) -> None:
    """Print the errors of the memory of each stage where it was measured."""
    errors = [
        (c.id, predicted / measured - 1)
        for c in cases
        if c.stage_bytes
        for predicted, measured in zip(c.stages_memory(), c.stage_bytes, strict=True)
    ]
    if errors:
        each = np.array([e for _, e in errors])
        worst = max(errors, key=lambda e: abs(e[1]))
        print(
            f"memory by stage: {len(each)} stages, mean |error| {np.mean(np.abs(each)):.2%}, "
            f"bias {np.mean(each):+.2%}, worst {worst[1]:+.2%} ({worst[0]})"
        )


def ranking(timed: list[Case], errors: dict[str, float]) -> None:
    """Print what picking the layout that is predicted fastest loses, among rows that differ in the layout alone."""
    alike: dict[Any, list[Case]] = {}
    for c in timed:
        alike.setdefault(c.like, []).append(c)
    for what in sorted({k[0] for k in alike}):
        losses = []
        for key, rows in alike.items():
            layouts = {(c.strategy.shape, c.strategy.pipeline_parallel, c.strategy.virtual_stages) for c in rows}
            if key[0] == what and len(layouts) > 1:
                chosen = min(rows, key=lambda c: c.seconds * (1 + errors[c.id]))
                losses.append(chosen.seconds / min(c.seconds for c in rows) - 1)
        if losses:
            mean, worst = np.mean(losses), max(losses)
            over = f"{mean:.2%} over the measured best on average, {worst:.1%} at worst"
            print(f"ranking, {what}: {len(losses)} choices of layout, {over}")


def report_folds(cases: list[Case], values: Sequence[float]) -> None:
    """Print the errors on each group of rows of constants that were fitted without the row's fifth of all rows."""
    _print_groups("fitted without the fifth", cases, errors_by_fold(cases, KNOWN, values))


def report_sources(cases: list[Case], values: Sequence[float]) -> None:
    """Print the errors on each source of constants that were fitted without it."""
    errors = errors_by_source(cases, KNOWN, values)
    print(f"{'fitted without the source':64}{'rows':>8}{'mean |error|':>14}{'bias':>8}")
    for source in sorted({c.source for c in cases}):
        each = np.array([errors[c.id] for c in cases if c.source == source])
        print(f"{source[:64]:64}{_mean_errors(each)}")
    for name, belongs in TOGETHER.items():
        each = np.array([errors[c.id] for c in cases if belongs(c.group)])
        if len(each):
            print(f"unseen source, {name}: {len(each)} rows, mean |error| {np.mean(np.abs(each)):.1%}")
    report_recent(cases, errors)
    print("\n".join(comparison([c for c in cases if not c.natural], errors)))


def report_halves(cases: list[Case], values: Sequence[float]) -> None:
    """Print the errors on each half of a cluster, of one factor and of constants by the other half.

    Once from the catalogue, which was fitted to these rows too, once from constants fitted without the source.
    """
    found = clusters(cases)
    print_halves("from the catalogue", {names: errors_by_half(rows) for names, rows in found.items()})
    without: dict[tuple[str, ...], HalfErrors] = {}
    for source, own in constants_without(cases, KNOWN, values, lambda c: c.source):
        with catalogue_with(CONSTANTS, own):
            without |= {names: errors_by_half(rows) for names, rows in found.items() if names[0] == source}
    print_halves("from constants fitted without the source", without)


def print_halves(title: str, errors: Mapping[tuple[str, ...], HalfErrors]) -> None:
    """Print the errors by the other half of each cluster, their mean, and how constants compare with a factor."""
    print(f"{f'by the other half of a cluster, {title}':84}{'rows':>6}{'before':>11}{'factor':>8}{'calibrated':>12}")
    for names, e in errors.items():
        print(f"{', '.join(names)[:84]:84}{e.rows:>6}{e.before:>11.1%}{e.factor:>8.1%}{e.calibrated:>12.1%}")
    before, factor, own = np.array([(e.before, e.factor, e.calibrated) for e in errors.values()]).T
    mean = f"{np.mean(before):>11.1%}{np.mean(factor):>8.1%}{np.mean(own):>12.1%}"
    print(f"{'mean of clusters':84}{len(errors):>6}{mean}")
    better = f"no worse than one factor on {np.sum(own <= factor + SAME)} of {len(errors)} clusters"
    print(f"{better}; where worse, by {100 * max(0.0, np.max(own - factor)):.2f} per cent of the step at most")


def read_all(tables: Sequence[Path]) -> list[Case]:
    """Read tables of measured runs, and print how many rows were left out and why."""
    cases, left = [], []
    for table in tables:
        some, out = read(table)
        cases += some
        left += [x.split(": ", 1)[1] for x in out]
    print(f"{len(cases)} rows read, {len(left)} left out:")
    for why in sorted(set(left)):
        print(f"  {left.count(why)} rows: {why}")
    return cases


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Fit and test the step-time constants on measured runs.")
    parser.add_argument("tables", nargs="+", type=Path, help="CSV tables of measured runs")
    parser.add_argument("--fit", action="store_true", help="fit the constants to the rows")
    parser.add_argument("--write", action="store_true", help="change the catalogue: constants, and tables of --errors")
    parser.add_argument("--rows", action="store_true", help="print every row's error too")
    parser.add_argument("--sources", action="store_true", help="fit without each source, and print its errors: slow")
    parser.add_argument("--folds", action="store_true", help="fit without each fifth, and print its errors: slow")
    parser.add_argument("--halves", action="store_true", help="calibrate on each half of a cluster's rows: slow")
    parser.add_argument("--errors", type=Path, help="fit without each source; write each row's prediction here: slow")
    return parser.parse_args()


def main() -> None:
    """Read the tables, fit where asked, and report; exit with 1 where a fitted constant lies on a bound of its fit."""
    given = arguments()
    cases = read_all(given.tables)
    timed = [c for c in cases if c.seconds]
    values = [c.read() for c in CONSTANTS]
    if given.fit:
        values = fitted(fit_rows(timed), KNOWN, values)
        for constant, value in zip(CONSTANTS, values, strict=True):
            print(f"  {name_of(constant):70} {constant.read():>10.4g} -> {value:.4g}")
    if given.write:
        write(CATALOGUE, CONSTANTS, values)
    report(cases, values)
    if given.rows:
        for case, error in zip(timed, np.expm1(predict(timed, values)), strict=True):
            print(f"{error:+8.1%} {case.seconds:10.3f} s {case.id}")
    if given.sources:
        report_sources(timed, values)
    if given.folds:
        report_folds(timed, values)
    if given.halves:
        report_halves(timed, values)
    if given.errors:
        even = [c for c in timed if not c.natural]
        errors = errors_by_source(even, KNOWN, values)
        seen = dict(zip((c.id for c in even), np.expm1(predict(even, values)).tolist(), strict=True))
        if given.write:
            write_errors(CATALOGUE, error_classes(even, errors))
            write_support(CATALOGUE, timed, KNOWN, values)
            catalogue.cache_clear()
        write_points(given.errors, even, errors, seen)
    on_bounds = on_a_bound(CONSTANTS, values)
    for line in on_bounds:
        print(line)
    sys.exit(1 if on_bounds else 0)


if __name__ == "__main__":
    main()
