"""`planner sweep`: solves an instance at every point of a grid and keeps a row a point."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import DONE, INTERRUPTED, progress_line
from planner.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from planner.sweeps.store import Store


def sweep(
    instance: Annotated[Path, typer.Argument(help="Instance file (JSON).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Rows: .jsonl, .csv or .parquet.")],
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="PATH=START:STOP:STEP | START:STOP:xFACTOR | log:START:STOP:COUNT | lin:START:STOP:COUNT | A,B,C; each one is an axis."
        ),
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="Points taken together: a CSV with a column a path, or JSONL.")
    ] = None,
    plans: Annotated[Path | None, typer.Option(help="Write whole plans into this folder.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes; as many as cores unless given.")] = None,
    dask: Annotated[
        str | None, typer.Option(help="Solve on a Dask cluster: the scheduler's address, or local.")
    ] = None,
    shard: Annotated[str | None, typer.Option(help="Solve the I-th of N parts alone: I/N, I from 1.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the file: points that have a row are left out.")
    ] = False,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for each point.")] = None,
    gap: Annotated[float | None, typer.Option(help="Relative gap within which a decision is done.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the solvers.")] = 0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")] = False,
) -> None:
    """Solve an instance at every point of a grid; append a row a point as it finishes."""
    from planner.sweeps.axes import points_of, read_pairs, read_vary, shard_of
    from planner.sweeps.run import Ask, rows_of, tasks_for
    from planner.sweeps.store import Store, journal_of

    if workers is not None and workers < 1:
        raise InputError(f"--workers: must be at least 1 (is {workers})")
    journal_of(output)
    points = points_of(read_vary(vary or []), None if pairs is None else read_pairs(pairs))
    if plans is not None and plans.parent.is_dir():
        plans.mkdir(exist_ok=True)
    ask = Ask(shard=None if shard is None else shard_of(shard), time_limit=time_limit, gap=gap, seed=seed, plans=plans)
    tasks = tasks_for(instance, points, ask)
    with Store(output, resume=resume) as store:
        own = {t.key for t in tasks}
        tally = Tally(
            total=len(own), had=len(own & store.finished), counts=Counter(r.status for r in store.rows if r.key in own)
        )
        try:
            with _executor(dask, workers) as executor, progress_line(quiet) as report:
                report(tally.line())
                for row in rows_of(tasks, ask, finished=store.finished, executor=executor, workers=workers):
                    store.append(row)
                    tally.counts[row.status] += 1
                    report(tally.line())
        except KeyboardInterrupt:
            _end(store, tally, own, INTERRUPTED)
        _end(store, tally, own, DONE)


def _end(store: "Store", tally: "Tally", own: set[str], status: int) -> None:
    """Write the table of what there is, say so, and leave."""
    store.tabulate()
    tally.counts = Counter(r.status for r in store.rows if r.key in own)
    if status == INTERRUPTED:
        print(f"interrupted with {tally.summary()} in {store.path}; go on with --resume", file=sys.stderr)
    else:
        print(f"{tally.summary()} in {store.output}")
    raise typer.Exit(status)


@contextmanager
def _executor(dask: str | None, workers: int | None) -> Iterator["Executor | None"]:
    """Lend the executor that was asked for; None: processes of this machine."""
    if dask is None:
        yield None
        return
    from planner.sweeps.dask import dask_executor

    with dask_executor(dask, workers) as executor:
        yield executor


@dataclass(slots=True, kw_only=True)
class Tally:
    """How far a sweep is."""

    total: int
    had: int  # rows of an earlier run
    counts: Counter[str]
    started: float = field(default_factory=time.monotonic)

    @property
    def rows(self) -> int:
        """Points that have a row."""
        return self.counts.total()

    def line(self) -> str:
        """Say rate, remaining time and failures."""
        spent, fresh = time.monotonic() - self.started, self.rows - self.had
        pace = ""
        if fresh:
            rate = fresh / spent
            pace = f", {60 * rate:.3g} points/min, {duration((self.total - self.rows) / rate)} left"
        odd = "".join(f", {n} {status}" for status, n in sorted(self.counts.items()) if status != "optimal")
        return f"{self.rows}/{self.total} points{pace}{odd}"

    def summary(self) -> str:
        """Say what came out."""
        kinds = ", ".join(f"{n} {status}" for status, n in sorted(self.counts.items())) or "none"
        return f"{self.rows} of {self.total} points ({kinds})"


def duration(seconds: float) -> str:
    """Write a time as a person says it."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
