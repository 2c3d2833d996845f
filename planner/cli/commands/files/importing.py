"""`planner import`: parts of an instance from other tools' files."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import InsteadOfStdout
from planner.files import require_writable, write_atomically

app = typer.Typer(help="Read models from other tools' files.", rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def _import() -> None:
    """Read models from other tools' files."""


@app.command()
def hf(
    config: Annotated[
        Path, typer.Argument(help="A model's config.json from the Hugging Face Hub, or the folder that has it.")
    ],
    output: InsteadOfStdout = None,
    name: Annotated[str | None, typer.Option(help="Name of the model; its folder's or file's unless given.")] = None,
) -> None:
    """Write the model of a Hugging Face config.json as `workload.model` of an instance has it."""
    from planner.imports.huggingface import read_model
    from planner.physics.training.transformer import active_parameters, total_parameters

    require_writable(output)
    model = read_model(config)
    if name is not None:
        model = model.model_copy(update={"name": name})
    text = json.dumps(model.model_dump(mode="json", exclude_defaults=True), indent=1) + "\n"
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)
    total, active = total_parameters(model), active_parameters(model)
    some = f", {active / 1e9:,.4g}B of them for a token" if model.experts else ""
    print(f"{model.name}: {total / 1e9:,.4g}B weights{some}", file=sys.stdout if output else sys.stderr)
