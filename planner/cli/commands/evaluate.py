"""`planner evaluate`: predict a layout that is given in full."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.console import DONE, INFEASIBLE, read_pins
from planner.cli.options import Constants, InstanceFile
from planner.files import require_writable, write_atomically


def evaluate(
    instance: InstanceFile,
    pin: Annotated[
        list[str] | None, typer.Option(help="A choice of the layout: layout.tensor_parallel=8 and so on.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the prediction here (JSON).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the prediction as JSON and nothing else.")] = False,
    constants: Constants = None,
) -> None:
    """Predict step time and memory of a layout given in full by pins, and say which constants each part rests on."""
    import planner
    from planner.planning.evaluate import summary
    from planner.planning.load import load_instance

    require_writable(output)
    request = load_instance(instance, pins=read_pins(pin or []), searched=False, constants=constants)
    evaluation = planner.evaluate(request)
    text = evaluation.model_dump_json(indent=1)
    if output is not None:
        write_atomically(output, text + "\n")
    print(text if as_json else summary(evaluation))
    raise typer.Exit(DONE if evaluation.fits else INFEASIBLE)
