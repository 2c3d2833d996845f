"""`planner evaluate`: predict a layout that is given in full."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli.console import DONE, INFEASIBLE, read_pins, tell_not_modelled, what_if
from planner.cli.options import Changes, Constants, InstanceFile
from planner.files import require_writable, write_atomically


def evaluate(
    instance: InstanceFile,
    pin: Annotated[
        list[str] | None, typer.Option(help="A choice of the layout: layout.tensor_parallel=8, tp=8.")
    ] = None,
    change: Changes = None,
    from_flags: Annotated[
        Path | None,
        typer.Option(
            help="Your own run: Megatron's arguments or script, TOML (torchtitan), YAML (NeMo), JSON (DeepSpeed)."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the layout here as a plan: for compare, report, check.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the prediction as JSON and nothing else.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Name the constants behind each part of the step.")] = False,
    constants: Constants = None,
) -> None:
    """Predict step time and memory of a layout given in full, by pins or as the flags of a run of your own."""
    import planner
    from planner.instance.pins import long_names
    from planner.instance.read_items import with_note
    from planner.planning.evaluate import evaluated, summary
    from planner.planning.load import load_instance
    from planner.report.statements.verdict import run_statements
    from planner.report.summary import fitted, lines_of, terminal_width

    require_writable(output)
    asked = what_if(instance, change, searched=False)
    pins, note = dict[str, Any](), None
    if from_flags is not None:
        from planner.imports.flags.read import layout_of_run, read_run

        run = read_run(from_flags)
        pins = layout_of_run(run, load_instance(asked, searched=False), str(from_flags))
        note = run.items.note()
        print(f"{from_flags}: {run.framework}: {', '.join(f'{k}={v}' for k, v in pins.items())}", file=sys.stderr)
    request = load_instance(
        asked, pins={**pins, **long_names(read_pins(pin or []), "--pin")}, searched=False, constants=constants
    )
    if note is not None:
        work = request.workload
        work = work.model_copy(update={"note": with_note(work.note, f"{from_flags}: {note}")})
        request = request.model_copy(update={"workload": work})
    evaluation = planner.evaluate(request)
    tell_not_modelled(request)
    if output is not None:
        from planner.exports.own_layout import OTHER_DECISIONS, layout_question, plan_of_layout

        # What is written must be what its own instance gives, so the layout is predicted once more without the rest.
        alone = layout_question(request, evaluation.layout.gpus_used + evaluation.layout.gpus_idle)
        left_out = [part for part in OTHER_DECISIONS if getattr(request, part) is not None]
        if left_out:
            print(f"{output}: of the layout alone, without {', '.join(left_out)}", file=sys.stderr)
        plan = plan_of_layout(alone, evaluated(alone).layout)
        write_atomically(output, plan.model_dump_json(indent=1) + "\n")
    money = "\n".join(lines_of(run_statements(request, evaluation.run)))
    text = fitted(f"{summary(evaluation, why=why)}\n{money}", terminal_width())
    print(evaluation.model_dump_json(indent=1) if as_json else text)
    raise typer.Exit(DONE if evaluation.fits else INFEASIBLE)
