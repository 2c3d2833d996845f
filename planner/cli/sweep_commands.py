"""`planner sweep`, `plot`, `limits`: many points, their picture, and utilisation against compute."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

import planner
from planner.cli import console
from planner.cli.console import ExitCode
from planner.errors import InputError
from planner.files import write_atomically
from planner.units import counted, duration, few

if TYPE_CHECKING:
    from planner.sweeps.row_store import Store
    from planner.sweeps.sweep_run import Task
    from planner.sweeps.utilisation import LimitPoint

VARY_HELP = (
    "PATH=START:STOP:STEP | START:STOP:xFACTOR | log:START:STOP:COUNT | lin:START:STOP:COUNT | A,B,C; "
    "each one is an axis."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedSweep:
    """Options of `planner sweep`: the points of the sweep, which of them are solved, and how and where each is."""

    vary: Annotated[list[str] | None, VARY_HELP] = None
    pairs: Annotated[Path | None, "Points taken together: a CSV with a column a path, or JSONL."] = None
    part_of: Annotated[str | None, "Solve the I-th of N parts alone: I/N, I from 1."] = None
    resume: Annotated[bool, "Go on with the file: points with a row are left out but for failed ones."] = False
    workers: Annotated[int | None, "Worker processes; as many as cores unless given."] = None
    dask: Annotated[str | None, "Solve on a Dask cluster: the scheduler's address, or local."] = None
    time_limit: Annotated[float | None, "Seconds for each point."] = None
    gap: console.Gap = None
    seed: console.Seed = 0


def sweep(
    asked: console.AskedInstance,
    output: Annotated[Path, "Rows: .jsonl, .csv or .parquet."],
    swept: AskedSweep,
    progress: console.ProgressOptions,
    plans: Annotated[Path | None, "Write complete plans into this folder."] = None,
) -> None:
    """Solve an instance at every point that --vary and --pairs give; write a row to -o as each point finishes."""
    from planner.sweeps.axes import canonical, in_shard, points_of, read_changes, read_pairs, shard_of, values_by_path
    from planner.sweeps.row_store import FAILED, Store, journal_of
    from planner.sweeps.sweep_run import READ_FIRST, SweepOptions, dask_executor, rows_of, tasks_for

    journal_of(output)
    pairs = [] if swept.pairs is None else read_pairs(swept.pairs)
    points = points_of(values_by_path("--vary", swept.vary or []), pairs)
    varied = {path for point in points for path in point}
    for path in read_changes(asked.change or []):
        if canonical(path) in varied:
            raise InputError(f"{path}: is both set and varied; leave one out")
    part = None if swept.part_of is None else shard_of(swept.part_of)
    solved: dict[str, Any] = {"time_limit": swept.time_limit, "gap": swept.gap, "seed": swept.seed}
    options = SweepOptions(shard=part, plans=plans, constants=asked.constants, pairs=pairs, **solved)
    with console.folder_for(plans):
        tasks = tasks_for(asked.changed(searched=False), points, options)
    first, keys, workers = list(islice(tasks, READ_FIRST)), set[str](), swept.workers
    total = len(first)
    if total >= READ_FIRST:  # equal points count once
        total = len({hash(str(sorted(points[i].items()))) for i in in_shard(len(points), part or (1, 1))})
    with Store(output, resume=swept.resume, base=first[0].base if first else None) as store:
        before = {row.key: row.status for row in store.rows if row.status != FAILED}  # these are tried again
        counts, started, status = Counter[str](), time.monotonic(), ExitCode.DONE

        def read(tasks: "Iterable[Task]") -> "Iterator[Task]":
            """Yield the tasks of a sweep, and count those that an earlier run finished."""
            for task in tasks:
                if task.key in before:
                    counts[before[task.key]] += 1
                keys.add(task.key)
                yield task

        def line(new: int) -> str:
            """Write the points done, per minute and by status, and the remaining time; `new` are of this run."""
            rate = new / (time.monotonic() - started)
            left = f", {60 * rate:.3g} points/min, {duration((total - counts.total()) / rate)} left" if new else ""
            others = "".join(f", {count} {state}" for state, count in sorted(counts.items()) if state != "optimal")
            return f"{counts.total()}/{total} points{left}{others}"

        each = chain(list(read(first)), read(tasks))
        try:
            cluster = nullcontext() if swept.dask is None else dask_executor(swept.dask, workers)
            with cluster as executor, progress.line() as report:
                report(line(0))
                found = rows_of(each, options, finished=before, executor=executor, workers=workers)
                for new, row in enumerate(found, 1):
                    store.append(row)
                    counts[row.status] += 1
                    report(line(new))
        except KeyboardInterrupt:
            status = ExitCode.INTERRUPTED
        _end(store, total, keys, status, plans)


def _end(store: "Store", total: int, keys: set[str], status: int, plans: Path | None) -> None:
    """Write a sweep's table, print what became of its points and plans, and leave with the exit status."""
    from planner.sweeps.row_store import FAILED

    store.tabulate()
    own = [row for row in store.rows if row.key in keys]
    counts: Counter[str] = Counter(row.status for row in own)
    by_status = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none"
    summary = f"{len(own)} of {total} points ({by_status})"
    if status == ExitCode.INTERRUPTED:
        print(f"interrupted with {summary} in {store.path}; go on with --resume", file=sys.stderr)
    else:
        others = len(store.rows) - len(own)
        more = f" and {counted(others, 'row')} of other points" if others else ""
        print(f"{summary} in {store.output}{more}")
    if plans is not None:
        on_disk = {file.stem.rpartition("-")[2] for file in plans.glob("*.json")}
        lacking = sorted(row.index for row in own if row.status != FAILED and row.key[:12] not in on_disk)
        if lacking:
            lacks = f"lacks the plans of points {few([*map(str, lacking)])}, which an earlier run solved"
            print(f"{plans}: {lacks}; sweep into another file to have all plans", file=sys.stderr)
    if status == ExitCode.DONE and counts[FAILED]:
        reason = next(row.reason for row in own if row.status == FAILED)
        print(f"{counts[FAILED]} failed, such as: {reason}; --resume tries them again", file=sys.stderr)
        status = ExitCode.BROKEN
    if doubted := [row for row in own if row.verified is False]:
        where = f"such as the point of index {doubted[0].index}; solve it alone to see on which rules"
        print(f"NOT VERIFIED: the checker disagrees with {counted(len(doubted), 'plan')}, {where}", file=sys.stderr)
    if status == ExitCode.DONE:
        status = ExitCode.UNVERIFIED if doubted else ExitCode.LIMIT if set(counts) == {"unknown"} else status
    raise Exit(status)


def plot(
    rows: Annotated[Path, Argument(help="Rows of a sweep, of limits or of fabrics (JSONL, CSV or Parquet).")],
    x: Annotated[str, Option("-x", help="Path across, such as limits.budget_usd.")],
    y: Annotated[str, Option("-y", help="Path up, such as layout.metrics.days_to_train.")],
    output: Annotated[Path, "Write the picture here: .svg, .png or .html."],
    facet: Annotated[str | None, "One picture for each value of this path."] = None,
    color: Annotated[str | None, "Colour by this path."] = None,
    log: Annotated[str, "Logarithmic axes: x, y or xy."] = "",
    frontier: Annotated[
        str, "Which way is better in x and y: min-min, max-min, min-max, max-max; none: no frontier."
    ] = "min-min",
) -> None:
    """Read a sweep's rows and draw them to -o: plans, their frontier, points without a plan, where decisions change."""
    from planner.report import plots
    from planner.sweeps.row_store import number, planned, read_flat_rows

    form = output.suffix.removeprefix(".").lower()
    if form not in ("svg", "png", "html"):
        raise InputError(f"{output}: must end in .svg, .png or .html")
    if log not in ("", "x", "y", "xy"):
        raise InputError(f"--log {log}: must be x, y or xy")
    if frontier not in plots.SENSES:
        raise InputError(f"--frontier {frontier}: must be one of {', '.join(plots.SENSES)}")
    request = plots.PlotRequest(x=x, y=y, facet=facet, color=color, log=log, senses=plots.SENSES[frontier])
    points = read_flat_rows(rows)
    for option, path in (("-x", x), ("-y", y), ("--facet", facet), ("--color", color)):
        if path is not None:
            plots.check_path(points, option, path)
    for axis, path in (("x", x), ("y", y)):
        values = [number(row, path) for row in points if planned(row)]
        if not any(value is not None for value in values):
            raise InputError(f"-{axis} {path}: no row with a plan holds a number there; draw a figure that is a number")
        if axis in log and any(value is not None and value <= 0 for value in values):
            problem = f"{path} has values of 0 or less, which no logarithmic axis holds"
            raise InputError(f"--log {log}: {problem}; leave {axis} linear")
    draw, name = partial(plots.draw_sweep, points, request), plots.title(request)
    picture = plots.picture_of(draw, name, "png" if form == "png" else "svg")
    write_atomically(output, plots.plot_page(points, request, picture.decode()) if form == "html" else picture)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsRuns:
    """Options of `planner limits`: how long the runs whose utilisation it shows take, and of how much compute."""

    days: Annotated[float, "Duration of every run."] = 90.0
    start: Annotated[float, "Smallest compute, FLOP."] = 1e24
    stop: Annotated[float, "Largest compute, FLOP."] = 1e32
    points: Annotated[int, "Points, evenly spread in logarithms."] = 33
    tolerance: Annotated[float, "Relative width of the bracket around the fewest GPUs."] = 0.01


def limits(
    asked: console.AskedInstance,
    runs: LimitsRuns,
    time_limit: Annotated[float | None, "Seconds of one layout search."] = None,
    workers: Annotated[int | None, "Processes; one a core unless given."] = None,
    output: Annotated[Path | None, "Write the points here: .jsonl, .csv or .parquet."] = None,
    plot: Annotated[Path | None, "Draw utilisation against compute here (svg, png)."] = None,
    as_json: Annotated[bool, "Print the points as JSON lines and nothing else."] = False,
    *,
    progress: console.ProgressOptions,
) -> None:
    """Print the best GPU utilisation as models grow, where it falls, and where no layout meets the deadline.

    The instance has hardware, whose racks are free, and workload.choose.
    """
    if not runs.start < runs.stop:
        raise InputError(f"--from and --to: must be rising (are {runs.start:g} and {runs.stop:g})")
    flop = [runs.start * (runs.stop / runs.start) ** (k / (runs.points - 1)) for k in range(runs.points)]
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from planner.report.plots import picture_of
    from planner.sweeps.row_store import journal_of, write_rows
    from planner.sweeps.sweep_run import cores
    from planner.sweeps.utilisation import draw_utilisation, utilisation_table

    if output is not None:
        journal_of(output)
    series: list[LimitPoint] = []
    pool = ProcessPoolExecutor(workers or cores(), mp_context=get_context("forkserver"))
    with pool, replace(progress, quiet=progress.quiet or as_json).line() as report:
        # The points that take longest come last: started first, they do not leave a core idle at the end.
        options: dict[str, Any] = {"days": runs.days, "tolerance": runs.tolerance, "time_limit": time_limit}
        options |= {"executor": pool, "constants": asked.constants}
        for point in planner.limits(asked.changed(searched=False), flop[::-1], **options):
            series.insert(0, point)
            report(f"{len(series)} of {runs.points} points, {point.flop:.3g} FLOP: {point.status}")
    lines = "".join(point.model_dump_json() + "\n" for point in series)
    if output is not None:
        write_rows(output, [point.model_dump(mode="json") for point in series])
    if plot is not None:
        name, form = f"utilisation over compute, {runs.days:g} days", plot.suffix.removeprefix(".")
        write_atomically(plot, picture_of(partial(draw_utilisation, series, runs.days), name, form))
    print(lines if as_json else "\n".join(utilisation_table(series, runs.days)), end="" if as_json else "\n")
    raise Exit(ExitCode.DONE if all(point.status in ("optimal", "infeasible") for point in series) else ExitCode.LIMIT)
