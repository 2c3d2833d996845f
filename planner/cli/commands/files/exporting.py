"""`planner export`: a plan as what other tools start from."""

import sys
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
    exact: Annotated[
        bool, typer.Option("--exact", help="Refuse what the framework does not run; else the nearest that it runs.")
    ] = False,
) -> None:
    """Write a training framework's flags for a plan's layout: degrees, pipeline, batch, environment."""
    require_choice("--for", framework, FRAMEWORKS)
    require_writable(output)
    from planner.exports.launch.others import WRITERS
    from planner.exports.launch.run import run_of
    from planner.instance.read_items import not_modelled_notes
    from planner.planning.joint.runnable_layout import runnable_layout

    given = read_plan(plan)
    with requiring_sound(given, plan):
        run = run_of(given, str(plan))
        near = None if exact else runnable_layout(given, run, framework)
        text = WRITERS[framework](run if near is None else near.run)
    for key, (planned, runs) in (near.changes if near is not None else {}).items():
        print(f"layout.{key}: {framework} runs {runs} in place of {planned}", file=sys.stderr)
    if near is not None:
        print(f"predicted step: {near.step_seconds:.4g} s, {near.longer:+.2%} on the plan's layout", file=sys.stderr)
    for note in not_modelled_notes(given.instance):
        print(note, file=sys.stderr)
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)
