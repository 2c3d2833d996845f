"""`planner limits`: utilisation against compute, where it falls and where it ends."""

import io
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.console import DONE, LIMIT, require_picture
from planner.cli.options import Constants, Log
from planner.cli.watch import progress_line
from planner.errors import InputError
from planner.files import json_or_text, require_writable, write_atomically
from planner.units import words

if TYPE_CHECKING:
    from planner.planning.utilisation import LimitLayout, LimitPoint

FALL = 0.8  # of the best utilisation: below it the run wastes a fifth of what GPUs can do at their best
USEFUL = ("gemm", "attention")  # parts of a step that train the model
EXAMPLE = "hardware.accelerator.nic_bytes_per_second"


def limits(
    instance: Annotated[
        Path, typer.Argument(help="Instance file (JSON): hardware and workload.choose; racks are free.")
    ],
    days: Annotated[float, typer.Option(help="Duration of every run.")] = 90.0,
    start: Annotated[float, typer.Option("--from", help="Smallest compute, FLOP.")] = 1e24,
    stop: Annotated[float, typer.Option("--to", help="Largest compute, FLOP.")] = 1e32,
    points: Annotated[int, typer.Option(help="Points, evenly spread in logarithms.")] = 33,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="Change a figure: PATH=VALUE; VALUE x2 is twice what it is.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Relative width of the bracket around the fewest GPUs.")] = 0.01,
    time_limit: Annotated[float | None, typer.Option(help="Seconds of one layout search.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes; one a core unless given.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the points here, one JSON object a line.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw utilisation against compute here (svg, png).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the points as JSON lines and nothing else.")] = False,
    constants: Constants = None,
    log: Log = None,
) -> None:
    """Print the best GPU utilisation as models grow, where it falls, and where no layout meets the deadline."""
    if not start < stop:
        raise InputError(f"--from and --to: must be rising (are {start:g} and {stop:g})")
    require_writable(output, plot)
    require_picture(plot)
    data = changed(instance, change or [], constants)
    flop = [start * (stop / start) ** (k / (points - 1)) for k in range(points)]
    series = _points(data, flop, days, tolerance, time_limit, workers, quiet=as_json, log=log)
    lines = "".join(p.model_dump_json() + "\n" for p in series)
    if output is not None:
        write_atomically(output, lines)
    if plot is not None:
        write_atomically(plot, _picture(series, days, plot.suffix.removeprefix(".")))
    print(lines if as_json else "\n".join(table(series, days)), end="" if as_json else "\n")
    raise typer.Exit(DONE if all(p.status in ("optimal", "infeasible") for p in series) else LIMIT)


def changed(path: Path, changes: Sequence[str], constants: Path | None = None) -> dict[str, Any]:
    """Read an instance and change figures of it; a catalogue entry that a path leads into replaces its name."""
    from planner.planning.load import load_instance

    data: dict[str, Any] = load_instance(path, searched=False, constants=constants).model_dump(
        mode="json", exclude_none=True
    )
    for text in changes:
        where, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set {text!r}: must be PATH=VALUE, such as {EXAMPLE}=x2")
        holder: Any = data
        # A pin's own name has dots.
        *parts, last = ["pins", where.removeprefix("pins.")] if where.startswith("pins.") else where.split(".")
        for part in parts:
            holder = holder.get(part) if isinstance(holder, dict) else None
        if not isinstance(holder, dict):
            raise InputError(f"--set {where}: leads nowhere; give a path such as {EXAMPLE}")
        holder[last] = _value(text, value, holder.get(last))
    return data


def _value(text: str, value: str, now: Any) -> Any:
    if value.startswith("x"):
        try:
            return float(value[1:]) * now
        except (TypeError, ValueError):
            raise InputError(f"--set {text}: {value!r} multiplies a number (is {now!r}); give x and a number") from None
    return json_or_text(value, f"--set {text.partition('=')[0]}")


def _points(
    data: dict[str, Any],
    flop: list[float],
    days: float,
    tolerance: float,
    time_limit: float | None,
    workers: int | None,
    *,
    quiet: bool,
    log: Path | None,
) -> list["LimitPoint"]:
    """Compute the points in worker processes and return them by rising compute."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from planner.api import limits as points_of

    # The points that take longest come last: started first, they do not leave a core idle at the end.
    context = get_context("forkserver")
    with (
        ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context) as pool,
        progress_line(quiet, log) as report,
    ):
        points = []
        backwards = points_of(data, flop[::-1], days=days, tolerance=tolerance, time_limit=time_limit, executor=pool)
        for n, p in enumerate(backwards, 1):
            points.append(p)
            report(f"{n} of {len(flop)} points, {p.flop:.3g} FLOP: {p.status}")
    return points[::-1]


def fall(points: Sequence["LimitPoint"]) -> float | None:
    """Return the compute from which utilisation stays under 80 % of its best, or None.

    It is interpolated in its logarithm between two points.
    """
    use = [p.utilisation or 0.0 for p in points]
    line = FALL * max(use, default=0.0)
    above = [i for i, u in enumerate(use) if u >= line]
    if not above or above[-1] == len(points) - 1:
        return None
    a, b = points[above[-1]], points[above[-1] + 1]
    share = (use[above[-1]] - line) / max(use[above[-1]] - use[above[-1] + 1], 1e-300)
    return float(a.flop * (b.flop / a.flop) ** share)


def wall(points: Sequence["LimitPoint"]) -> tuple[float, float] | None:
    """Return the last compute that is trained in time and the first from which none is, proven; None without one."""
    done = [i for i, p in enumerate(points) if p.utilisation is not None]
    after = points[done[-1] + 1 :] if done else points
    if not done or not after or any(p.status != "infeasible" for p in after):
        return None
    return points[done[-1]].flop, after[0].flop


def table(points: Sequence["LimitPoint"], days: float) -> Iterator[str]:
    """Write the points, the fall and the wall."""
    yield f"{'FLOP':>9} {'params':>8} {'tokens':>8} {'batch':>8} {'GPUs':>10} {'use':>7} {'bound':>7}  layout"
    for p in points:
        head = f"{p.flop:9.2e} {p.parameters:8.2g} {p.tokens:8.2g} {p.batch_tokens:8.2g}"
        if p.layout is None or p.utilisation is None:
            yield f"{head} {'-':>10} {'-':>7} {'-':>7}  {p.reason}"
            continue
        use, bound = 100 * p.utilisation, 100 * (p.utilisation_bound or 1)
        yield f"{head} {p.gpus or 0:10.3g} {use:6.1f}% {bound:6.1f}%  {_layout(p, p.layout)}"
    best = max((p.utilisation or 0.0 for p in points), default=0.0)
    drop, ends = fall(points), wall(points)
    where = f"from {drop:.1e} FLOP on" if drop else "nowhere in this range"
    yield f"best use {100 * best:.1f} %; under {100 * FALL:.0f} % of it {where}"
    last = "no end is proven in this range"
    if ends:
        last = f"no layout is in time from between {ends[0]:.1e} and {ends[1]:.1e} FLOP on, proven"
    yield f"{days:g} days: {last}"


def _layout(p: "LimitPoint", x: "LimitLayout") -> str:
    """Write a point's layout and what takes most of its step beside the useful work."""
    wide = "".join(f" {name} {n}" for name, n in (("CP", x.context_parallel), ("EP", x.expert_parallel)) if n > 1)
    degrees = f"TP {x.tensor_parallel}{wide} PP {x.pipeline_parallel} v {x.virtual_stages} DP {x.data_parallel:,}"
    batch = f"ZeRO-{x.zero_stage}, {x.microbatches_per_step} x {x.microbatch_sequences}"
    share, part = max(((v, k) for k, v in p.shares.items() if k not in USEFUL), default=(0.0, ""))
    proof = "" if p.status == "optimal" else "; not proven"
    return f"{degrees} {batch}; {words(part)} {100 * share:.0f} %{proof}"


def _picture(points: Sequence["LimitPoint"], days: float, form: str) -> bytes:
    """Draw utilisation and its bound against compute, with the fall and the wall."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    trained = [p for p in points if p.utilisation is not None]
    flop = [p.flop for p in trained]
    axes.semilogx(flop, [100 * (p.utilisation or 0) for p in trained], marker="o", markersize=3, label="best layout")
    axes.semilogx(flop, [100 * (p.utilisation_bound or 1) for p in trained], linestyle=":", label="bound")
    end = (wall(points) or (math.nan, math.nan))[1]
    for where, text in ((fall(points), "80 % of the best"), (end, "no layout in time")):
        if where is not None and math.isfinite(where):
            axes.axvline(where, color="grey", linewidth=0.8)
            axes.text(where, 2, f" {text}: {where:.0e}", rotation=90, va="bottom", fontsize=7)
    axes.set(xlabel="training compute, FLOP", ylabel="utilisation, %", ylim=(0, None))
    axes.set(title=f"Best use of the GPUs, {days:g} days")
    axes.legend(fontsize=8)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=form, metadata={"Date": None} if form == "svg" else None)
    plt.close(figure)
    return drawn.getvalue()
