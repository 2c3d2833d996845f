"""`planner report`: plans as one page."""

from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.console import requiring_sound
from planner.errors import InputError
from planner.files import require_writable, write_atomically
from planner.plan.files import read_plan


def report(
    plans: Annotated[list[Path], typer.Argument(help="Plan files (JSON), one or more.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the page here (HTML).")],
) -> None:
    """Write plans as one self-contained page: maps, bars, layout, fabric, placement and proofs."""
    from planner.report.page.page import report_page

    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{output}: must end in .html")
    require_writable(output)
    given = [(path, read_plan(path)) for path in plans]
    with ExitStack() as stack:
        for path, plan in given:
            stack.enter_context(requiring_sound(plan, path))
        page = report_page([(path.stem, plan) for path, plan in given], date.today())
    write_atomically(output, page)
