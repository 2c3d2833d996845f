"""`planner export`: a plan as what other tools start from."""

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.console import require_choice, requiring_sound
from planner.cli.options import InsteadOfStdout, PlanFile
from planner.errors import InputError
from planner.files import require_writable, write_atomically
from planner.plan.files import read_plan

if TYPE_CHECKING:
    from planner.exports.launch.run import Run
    from planner.plan.plan import Plan

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
    from planner.exports.launch.run import nearest_choices, run_of
    from planner.instance.read_items import told_of

    given = read_plan(plan)
    with requiring_sound(given, plan):
        run = run_of(given, str(plan))
        changes = {} if exact else nearest_choices(run, framework)
        text = WRITERS[framework](_changed(given, run, framework, changes) if changes else run)
    for told in told_of(given.instance):
        print(told, file=sys.stderr)
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)


def _changed(plan: "Plan", run: "Run", framework: str, changes: dict[str, Any]) -> "Run":
    """Return the run with other choices, and print them with what the step becomes; refuse one without the memory."""
    import planner
    from planner.exports.own_layout import layout_question
    from planner.physics.training.parallel_strategy import layout_values, strategy_of

    values = layout_values(strategy_of(run.layout)) | {"data_parallel": run.data_parallel}
    own = {key: value for key, value in values.items() if value != ()}
    question = layout_question(plan.instance.model_copy(update={"pins": {}}), run.gpus)
    before, after = planner.evaluate(question, own), planner.evaluate(question, own | changes)
    for key, value in changes.items():
        print(f"layout.{key}: {framework} runs {value} in place of {values[key]}", file=sys.stderr)
    longer = after.step_seconds / before.step_seconds - 1
    print(f"predicted step: {after.step_seconds:.4g} s, {longer:+.2%} on the plan's layout", file=sys.stderr)
    if any(problem.startswith("memory") for problem in after.problems):
        raise InputError(
            f"layout: the nearest that {framework} runs does not fit: {after.problems[0]}; plan with a pin"
        )
    return replace(run, layout=run.layout.model_copy(update=changes))
