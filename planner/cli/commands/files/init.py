"""`planner init`: a first instance to start from."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import InsteadOfStdout
from planner.errors import InputError
from planner.files import require_writable, write_atomically


def init(
    output: InsteadOfStdout = None,
    sites: Annotated[int, typer.Option(help="Number of candidate sites; 0: one cluster without a grid.")] = 0,
    budget: Annotated[float | None, typer.Option(help="Dollars for all that is bought, such as 3e9.")] = None,
    model: Annotated[str | None, typer.Option(help="Of the catalogue, or a Hugging Face config.json.")] = None,
    accelerator: Annotated[str, typer.Option(help="Of the catalogue.")] = "B200",
    racks: Annotated[int | None, typer.Option(help="Racks (or nodes) of the one cluster.")] = None,
    tokens: Annotated[
        float | None, typer.Option(help="Training tokens; 20 for each active weight unless given.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the instance.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a short instance with comments (YAML) that `planner solve` takes as it is."""
    from planner.imports.first_instance import Wish, first_instance

    require_writable(output)
    if output is not None and output.exists() and not force:
        raise InputError(f"{output}: is there already; name another file, or give --force")
    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise InputError(f"{output}: must end in .yaml, which has comments; rename it")
    wish = Wish(
        name=name or (output.stem if output else "first"),
        sites=sites,
        budget_usd=budget,
        model=model,
        accelerator=accelerator,
        racks=racks,
        tokens=tokens,
        folder=output.parent if output else Path(),
    )
    text = first_instance(wish)
    if output is None:
        print(text, end="")
    else:
        write_atomically(output, text)
        print(f"{output}: solve it by `planner solve {output} -o plan.json`")
