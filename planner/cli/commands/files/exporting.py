"""`planner export`: a plan as what other tools start from."""

from typing import Annotated

import typer

from planner.cli.console import require_choice, requiring_sound
from planner.cli.options import InsteadOfStdout, PlanFile
from planner.files import require_writable, write_atomically
from planner.plan.files import read_plan

app = typer.Typer(help="Write plans for other tools.", rich_markup_mode=None, no_args_is_help=True)
FRAMEWORKS = ("megatron", "torchtitan", "nemo", "deepspeed")


@app.callback()
def _export() -> None:
    """Write plans for other tools."""


@app.command()
def launch(
    plan: PlanFile,
    framework: Annotated[str, typer.Option("--for", help=f"One of {', '.join(FRAMEWORKS)}.")] = "megatron",
    output: InsteadOfStdout = None,
    recompute_as: Annotated[
        str, typer.Option(help="exact, or most: every stage recomputes as many layers as the one with most.")
    ] = "exact",
) -> None:
    """Write a training framework's flags for a plan's layout: degrees, pipeline, batch, environment."""
    require_choice("--for", framework, FRAMEWORKS)
    require_choice("--recompute-as", recompute_as, ("exact", "most"))
    require_writable(output)
    from planner.exports.launch.others import WRITERS
    from planner.exports.launch.run import run_of, with_most_recomputed

    given = read_plan(plan)
    with requiring_sound(given, plan):
        run = run_of(given, str(plan))
        text = WRITERS[framework](with_most_recomputed(run) if recompute_as == "most" else run)
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)
