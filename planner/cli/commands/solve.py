"""`planner solve`: take every decision of an instance."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.console import INTERRUPTED, exit_code, read_pins, tell_not_modelled, what_if
from planner.cli.options import Changes, Constants, Gap, InstanceFile, Log, Quiet, Seed, Verbose
from planner.cli.watch import progress_line
from planner.files import require_writable, write_atomically
from planner.solvers.signals import ending_searches


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
) -> None:
    """Take all decisions and print the summary of the plan."""
    import planner

    require_writable(output)
    pins, asked = read_pins(pin or []), what_if(instance, change)
    try:
        with ending_searches(), progress_line(quiet, log) as watch:
            plan = planner.solve(
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
    except KeyboardInterrupt:
        print("interrupted before there was a plan", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    tell_not_modelled(plan.instance)
    text = plan.model_dump_json(indent=1)
    if output is not None:
        write_atomically(output, text + "\n")
    if as_json:
        print(text)
    else:
        from planner.report.summary import summary, terminal_width

        print(summary(plan, terminal_width(), verbose=verbose))
    raise typer.Exit(exit_code(plan, gap))
