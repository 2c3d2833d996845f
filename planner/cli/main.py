"""The command line: parse, call, print. Everything heavy is imported by the command that needs it."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.commands import compare as commands_compare
from planner.cli.commands import fabric as commands_fabric
from planner.cli.commands import grid, limits, place, plot, simulate, sweep, topology
from planner.cli.commands import report as commands_report
from planner.cli.console import BAD_INPUT, DONE, FOUND, INFEASIBLE, INTERRUPTED, exit_code, progress_line, read_pins
from planner.errors import InputError, PlannerError
from planner.files import write_atomically
from planner.plan.files import read_plan

app = typer.Typer(
    help="Plan the datacenters that train the largest AI models: sites, layout, fabric and placement, each with a proof.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def solve(
    instance: Annotated[Path, typer.Argument(help="Instance file (JSON).")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the plan here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan and nothing else.")] = False,
    time_limit: Annotated[float | None, typer.Option(help="Seconds; then the best plan so far, with its gap.")] = None,
    gap: Annotated[float | None, typer.Option(help="Relative gap within which a decision is done.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the solvers.")] = 0,
    threads: Annotated[int | None, typer.Option(help="Threads of the solvers; 1 unless given.")] = None,
    pin: Annotated[
        list[str] | None, typer.Option(help="Fix a decision: PATH=VALUE, such as layout.tensor_parallel=10.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")] = False,
) -> None:
    """Take all decisions and print the story of the plan."""
    import planner

    if output is not None and not output.resolve().parent.is_dir():
        raise InputError(f"{output}: its folder does not exist; make it, or write elsewhere")
    pins = read_pins(pin or [])
    try:
        with progress_line(quiet) as report:
            plan = planner.solve(
                instance, time_limit=time_limit, gap=gap, seed=seed, threads=threads, pins=pins, progress=report
            )
    except KeyboardInterrupt:
        print("interrupted before there was a plan", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if output is not None:
        write_atomically(output, plan.model_dump_json(indent=1) + "\n")
    if as_json:
        print(plan.model_dump_json(indent=1))
    else:
        from planner.report.summary import summary

        print(summary(plan))
    raise typer.Exit(exit_code(plan, gap))


@app.command()
def evaluate(
    instance: Annotated[Path, typer.Argument(help="Instance file (JSON).")],
    pin: Annotated[
        list[str] | None, typer.Option(help="A choice of the layout: layout.tensor_parallel=8 and so on.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the prediction here (JSON).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the prediction as JSON and nothing else.")] = False,
) -> None:
    """Predict step time and memory of a layout given in full by pins, and say which constants each part rests on."""
    import planner
    from planner.planning.evaluate import summary
    from planner.planning.load import load_instance

    found = planner.evaluate(load_instance(instance, pins=read_pins(pin or []), searched=False))
    if output is not None:
        write_atomically(output, found.model_dump_json(indent=1) + "\n")
    print(found.model_dump_json(indent=1) if as_json else summary(found))
    raise typer.Exit(DONE if found.fits else INFEASIBLE)


@app.command()
def explain(
    instance: Annotated[Path, typer.Argument(help="Instance file (JSON).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON and nothing else.")] = False,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for the plan, and for each alternative.")] = None,
    pin: Annotated[list[str] | None, typer.Option(help="Fix a decision: PATH=VALUE.")] = None,
    near: Annotated[int, typer.Option(min=0, help="List so many of the best splits over different sets of sites.")] = 0,
    within: Annotated[float, typer.Option(min=0, help="How far from the best these may be: 0.05 is 5 %.")] = 0.05,
) -> None:
    """Say why there is no plan and what would allow one, or what binds it and what each choice of the layout is worth."""
    import planner
    from planner.planning.explain import summary

    found = planner.explain(instance, time_limit=time_limit, pins=read_pins(pin or []), near=near, within=within)
    print(found.model_dump_json(indent=1) if as_json else summary(found))
    raise typer.Exit(INFEASIBLE if found.status == "infeasible" else DONE)


@app.command()
def check(plan: Annotated[Path, typer.Argument(help="Plan file (JSON).")]) -> None:
    """Verify a plan against the instance inside it; print each violated rule, nothing where all hold."""
    import planner

    found = planner.check(read_plan(plan))
    for v in found:
        print(f"{v.rule}: {v.message}")
    raise typer.Exit(FOUND if found else DONE)


@app.command()
def show(plan: Annotated[Path, typer.Argument(help="Plan file (JSON).")]) -> None:
    """Print a plan's story."""
    from planner.report.summary import summary

    print(summary(read_plan(plan)))


@app.command()
def schema(what: Annotated[str, typer.Argument(help="instance, plan, job or placement.")]) -> None:
    """Print the JSON Schema of an instance, a plan, a job or a placement."""
    from planner.cli.schemas import SCHEMAS, schema_text

    if what not in SCHEMAS:
        raise InputError(f"schema: must be one of {', '.join(sorted(SCHEMAS))} (is {what!r})")
    print(schema_text(what), end="")


app.add_typer(grid.app, name="grid")
app.add_typer(commands_fabric.app, name="fabric")
app.command()(place.place)
app.command()(simulate.simulate)
app.command()(limits.limits)
app.command()(plot.plot)
app.command()(commands_report.report)
app.command()(commands_compare.compare)
app.command()(sweep.sweep)
app.command()(topology.topology)


def main() -> None:
    """Run the command line; a user's mistake ends in a message, never in a traceback."""
    try:
        app()
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(BAD_INPUT)
    except PlannerError as error:
        print(f"internal error: {error}; please report it with the instance", file=sys.stderr)
        sys.exit(FOUND)
    except KeyboardInterrupt:
        print("interrupted before there was a plan", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(DONE)
