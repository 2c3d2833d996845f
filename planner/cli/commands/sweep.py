"""`planner sweep`: solve an instance at every point of a grid and keep a row a point."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import BROKEN, DONE, INTERRUPTED, LIMIT, UNVERIFIED, folder_for, what_if
from planner.cli.options import Changes, Constants, Gap, InstanceFile, Log, Quiet, Seed
from planner.cli.watch import progress_line
from planner.files import require_writable
from planner.units import counted

FAILED = "failed"  # of a row's status; here, as the rows' module is heavy
VARY_HELP = (
    "PATH=START:STOP:STEP | START:STOP:xFACTOR | log:START:STOP:COUNT | lin:START:STOP:COUNT | A,B,C; "
    "each one is an axis."
)

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from planner.sweeps.store import Store


def sweep(
    instance: InstanceFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="Rows: .jsonl, .csv or .parquet.")],
    vary: Annotated[list[str] | None, typer.Option(help=VARY_HELP)] = None,
    change: Changes = None,
    pairs: Annotated[
        Path | None, typer.Option(help="Points taken together: a CSV with a column a path, or JSONL.")
    ] = None,
    plans: Annotated[Path | None, typer.Option(help="Write complete plans into this folder.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes; as many as cores unless given.")] = None,
    dask: Annotated[
        str | None, typer.Option(help="Solve on a Dask cluster: the scheduler's address, or local.")
    ] = None,
    part_of: Annotated[
        str | None, typer.Option("--shard", help="Solve the I-th of N parts alone: I/N, I from 1.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the file: points with a row are left out but for failed ones."),
    ] = False,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for each point.")] = None,
    gap: Gap = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    log: Log = None,
    constants: Constants = None,
) -> None:
    """Solve an instance at every point of a grid; write one row per point as it finishes."""
    from planner.sweeps.axes import points_of, read_pairs, read_vary, shard_of
    from planner.sweeps.run import SweepOptions, rows_of, tasks_for
    from planner.sweeps.store import Store, journal_of
    from planner.sweeps.what_if import require_apart

    journal_of(output)
    points = points_of(read_vary(vary or []), None if pairs is None else read_pairs(pairs))
    require_apart(change or [], points)
    require_writable(output)
    part = None if part_of is None else shard_of(part_of)
    options = SweepOptions(shard=part, time_limit=time_limit, gap=gap, seed=seed, plans=plans, constants=constants)
    with folder_for(plans):
        tasks = tasks_for(what_if(instance, change), points, options)
    keys = {t.key for t in tasks}
    with Store(output, resume=resume, base=tasks[0].base if tasks else None) as store:
        progress = Progress(total=len(keys), resumed=len(keys & store.finished), counts=_statuses(store, keys))
        del progress.counts[FAILED]  # these are tried again
        try:
            with _executor(dask, workers) as executor, progress_line(quiet, log) as report:
                report(progress.line())
                for row in rows_of(tasks, options, finished=store.finished, executor=executor, workers=workers):
                    store.append(row)
                    progress.counts[row.status] += 1
                    report(progress.line())
        except KeyboardInterrupt:
            _end(store, progress, keys, INTERRUPTED)
        _end(store, progress, keys, DONE)


def _statuses(store: "Store", keys: set[str]) -> Counter[str]:
    """Count these points by the status of their latest row."""
    from planner.sweeps.rows import latest

    return Counter(r.status for r in latest(store.rows) if r.key in keys)


def _end(store: "Store", progress: "Progress", keys: set[str], status: int) -> None:
    """Write the table of the rows there are, report them, and leave."""
    from planner.sweeps.rows import latest

    store.tabulate()
    progress.counts = _statuses(store, keys)
    if status == INTERRUPTED:
        print(f"interrupted with {progress.summary()} in {store.path}; go on with --resume", file=sys.stderr)
    else:
        print(f"{progress.summary()} in {store.output}")
    if status == DONE and progress.counts[FAILED]:
        reason = next(r.reason for r in store.rows if r.key in keys and r.status == FAILED)
        print(f"{progress.counts[FAILED]} failed, such as: {reason}; --resume tries them again", file=sys.stderr)
        status = BROKEN
    doubted = [r for r in latest(store.rows) if r.key in keys and r.verified is False]
    if doubted:
        where = f"such as the point of index {doubted[0].index}; solve it alone to see on which rules"
        print(f"NOT VERIFIED: the checker disagrees with {counted(len(doubted), 'plan')}, {where}", file=sys.stderr)
    if status == DONE and doubted:
        status = UNVERIFIED
    elif status == DONE and progress.counts and set(progress.counts) == {"unknown"}:
        status = LIMIT
    raise typer.Exit(status)


@contextmanager
def _executor(dask: str | None, workers: int | None) -> Iterator["Executor | None"]:
    """Open the executor that the options name; None: processes of this machine."""
    if dask is None:
        yield None
        return
    from planner.sweeps.dask import dask_executor

    with dask_executor(dask, workers) as executor:
        yield executor


@dataclass(slots=True, kw_only=True)
class Progress:
    """How far a sweep is."""

    total: int
    resumed: int  # rows of an earlier run
    counts: Counter[str]
    started: float = field(default_factory=time.monotonic)

    def line(self) -> str:
        """Write rate, remaining time and failures."""
        rows = self.counts.total()
        new, rate_text = rows - self.resumed, ""
        if new:
            rate = new / (time.monotonic() - self.started)
            rate_text = f", {60 * rate:.3g} points/min, {duration((self.total - rows) / rate)} left"
        others = "".join(f", {n} {status}" for status, n in sorted(self.counts.items()) if status != "optimal")
        return f"{rows}/{self.total} points{rate_text}{others}"

    def summary(self) -> str:
        """Write the number of points by status."""
        by_status = ", ".join(f"{n} {status}" for status, n in sorted(self.counts.items())) or "none"
        return f"{self.counts.total()} of {self.total} points ({by_status})"


def duration(seconds: float) -> str:
    """Write a time in the unit that suits."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
