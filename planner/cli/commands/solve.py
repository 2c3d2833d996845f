"""`planner solve`: take every decision of an instance."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import INTERRUPTED, exit_code, read_pins, tell_not_modelled, what_if
from planner.cli.options import Changes, Constants, Gap, InstanceFile, Log, Quiet, Seed, Verbose
from planner.cli.watch import Watch, progress_line
from planner.files import require_writable, write_atomically
from planner.solvers.signals import ending_searches, interrupted

if TYPE_CHECKING:
    from planner.plan.curve import Curve
    from planner.plan.plan import Plan
    from planner.planning.sessions.session import Session
    from planner.solvers.deadline import Deadline


def solve(
    instance: InstanceFile,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the plan here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan and nothing else.")] = False,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; then the best plan so far, with its gap.")] = None,
    gap: Gap = None,
    seed: Seed = 0,
    threads: Annotated[int | None, typer.Option(help="Threads of the solvers; 1 unless given.")] = None,
    solver: Annotated[
        str | None,
        typer.Option(
            help="Solver that explains why no sites exist: highs or cpsat; highs also skips the second proof."
        ),
    ] = None,
    pin: Annotated[
        list[str] | None, typer.Option(help="Fix a decision: PATH=VALUE, such as layout.tensor_parallel=10.")
    ] = None,
    change: Changes = None,
    quiet: Quiet = False,
    log: Log = None,
    models: Annotated[
        Path | None,
        typer.Option(help="Write each model that a solver is asked (MPS, LP) and its log into this folder."),
    ] = None,
    constants: Constants = None,
    verbose: Verbose = False,
    point: Annotated[
        bool,
        typer.Option(
            "--point", envvar="PLANNER_POINT", help="The plan alone, without the curve of what less money buys."
        ),
    ] = False,
) -> None:
    """Take all decisions and print the summary of the plan; then what less money buys."""
    from planner.planning.sessions.session import Session

    require_writable(output)
    from planner.plan.curve import Curve
    from planner.report.summary import curve_section, fitted, summary, terminal_width
    from planner.solvers.deadline import Deadline

    pins, asked = read_pins(pin or []), what_if(instance, change)
    plan: Plan | None = None
    ended = False
    try:
        with ending_searches(), progress_line(quiet, log) as watch:
            session, shown, deadline = Session(), watch.shown, Deadline(time_limit)
            plan = session.solve(
                asked,
                time_limit=time_limit,
                gap=gap,
                seed=seed,
                threads=threads,
                solver=solver,
                pins=pins,
                on_progress=watch.event,
                models=models,
                constants=constants,
            )
            _write(plan, output)
            tell_not_modelled(plan.instance)
            if not as_json:
                print(summary(plan, terminal_width(), verbose=verbose), flush=True)
            if not point:
                watch.shown = shown  # printing took the line away
                curve = _curve_of(plan, session, deadline, watch, seed=seed, threads=threads)
                if isinstance(curve, Curve):
                    plan = plan.model_copy(update={"curve": curve})
                    _write(plan, output)
                ended = interrupted()
                if not as_json and curve is not None:
                    text = curve_section(curve) if isinstance(curve, Curve) else f"No curve of less money: {curve}."
                    print(fitted(text, terminal_width()))
    except KeyboardInterrupt:
        if plan is None:
            print("interrupted before there was a plan", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        ended = True
    if as_json:
        print(plan.model_dump_json(indent=1))
    raise typer.Exit(INTERRUPTED if ended else exit_code(plan, gap))


def _write(plan: "Plan", output: Path | None) -> None:
    if output is not None:
        write_atomically(output, plan.model_dump_json(indent=1) + "\n")


def _curve_of(
    plan: "Plan", session: "Session", deadline: "Deadline", watch: Watch, *, seed: int, threads: int | None
) -> "Curve | str | None":
    """Return what less money buys, in the time that is left; why there is no such curve; None where it is plain."""
    from planner.planning.alternatives.curve_around import why_no_curve

    if plan.status in ("infeasible", "unknown"):
        return None
    why = why_no_curve(plan)
    if why is None and deadline.passed:
        why = "a signal ended the search before it" if interrupted() else "the time limit came first"
    if why is not None:
        return why
    left = deadline.limit
    return session.curve(plan, time_limit=left, seed=seed, threads=threads, on_progress=watch.event).curve
