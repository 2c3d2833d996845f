"""`planner frontier`: the curve of money against days, and how far it is proven."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import DONE, INFEASIBLE, INTERRUPTED, LIMIT, UNVERIFIED, folder_for, require_picture, what_if
from planner.cli.options import Changes, Constants, InstanceFile, Log, Quiet, Seed
from planner.cli.watch import progress_line
from planner.errors import InputError
from planner.files import require_writable, write_atomically
from planner.solvers.signals import ending_searches
from planner.units import counted

if TYPE_CHECKING:
    from planner.planning.frontier import Frontier

EPSILON_HELP = "End where a row is within this share of every plan, in capital and in days: 0.1 is ten percent."
OUTPUT_HELP = "Write a row a point here: .jsonl, .csv or .parquet as of a sweep; .json: the curve."


def frontier(
    instance: InstanceFile,
    output: Annotated[Path | None, typer.Option("-o", "--output", help=OUTPUT_HELP)] = None,
    epsilon: Annotated[float, typer.Option(help=EPSILON_HELP)] = 0.1,
    points: Annotated[
        int | None, typer.Option(help="Most points, both ends and the knee among them; all unless given.")
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; then the curve as far as it is proven.")] = None,
    change: Changes = None,
    seed: Seed = 0,
    threads: Annotated[int | None, typer.Option(help="Threads of the solvers; 1 unless given.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw days against capital here (.svg, .png).")] = None,
    plans: Annotated[Path | None, typer.Option(help="Write the plan of each point into this folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the curve as JSON and nothing else.")] = False,
    quiet: Quiet = False,
    log: Log = None,
    constants: Constants = None,
) -> None:
    """Print the plans that no other beats in both money and days, and how far that is proven."""
    import planner
    from planner.imports.instance_file import holds_plan

    _check_output(output)
    if holds_plan(instance):
        print(f"{instance}: is a plan; the curve is of its instance, and starts anew", file=sys.stderr)
    require_writable(output, plot)
    require_picture(plot)
    started = time.perf_counter()
    with folder_for(plans), ending_searches(), progress_line(quiet, log) as watch:
        front = planner.frontier(
            what_if(instance, change),
            epsilon=epsilon,
            points=points,
            time_limit=time_limit,
            seed=seed,
            threads=threads,
            on_progress=watch.event,
            constants=constants,
        )
    _write(front, output, plot, plans, time.perf_counter() - started)
    if as_json:
        print(front.curve.model_dump_json(indent=1))
    else:
        from planner.report.summary import curve_text, terminal_width

        print(curve_text(front, epsilon, terminal_width()))
    raise typer.Exit(_status(front, epsilon))


def _check_output(output: Path | None) -> None:
    """Check, before any work is done, that rows can be written in the form that the ending asks for."""
    if output is None:
        return
    from planner.sweeps.curve_rows import ENDINGS
    from planner.sweeps.parquet import need_pyarrow

    if output.suffix not in ENDINGS:
        raise InputError(f"{output}: must end in {', '.join(ENDINGS)} (is {output.suffix or 'without an ending'!r})")
    if output.suffix == ".parquet":
        need_pyarrow()


def _write(front: "Frontier", output: Path | None, plot: Path | None, plans: Path | None, seconds: float) -> None:
    """Write the rows or the curve, the picture and the plans, each where it was asked for."""
    from planner.report.plots.plan_plots import staircase
    from planner.sweeps.curve_rows import CURVE, curve_plan_file, curve_rows
    from planner.sweeps.store import write_rows

    if output is not None and output.suffix == CURVE:
        write_atomically(output, front.curve.model_dump_json(indent=1) + "\n")
    elif output is not None:
        write_rows(output, list(curve_rows(front, seconds)))
    for index, plan in enumerate(front.plans if plans is not None else ()):
        write_atomically(curve_plan_file(plans or Path(), index), plan.model_dump_json(indent=1) + "\n")
    if plot is not None:
        write_atomically(plot, staircase(front.curve, front.instance.name, plot.suffix.removeprefix(".")))


def _status(front: "Frontier", epsilon: float) -> int:
    """Return the exit status of a curve."""
    curve = front.curve
    doubted = [i for i, plan in enumerate(front.plans) if plan.verified is False]
    if doubted:
        such = f"such as that of index {doubted[0]}; `planner check` says on which rules, of a plan of --plans"
        print(f"NOT VERIFIED: the checker disagrees with {counted(len(doubted), 'plan')}, {such}", file=sys.stderr)
        return UNVERIFIED
    if not curve.points and curve.stopped == "proved":
        return INFEASIBLE
    if curve.stopped == "interrupted":
        return INTERRUPTED
    within = curve.epsilon is not None and curve.epsilon <= epsilon
    return DONE if curve.points and (curve.stopped == "proved" or within) else LIMIT
