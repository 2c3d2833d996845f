"""`planner report`: plans as one page."""

from pathlib import Path
from typing import Annotated

import typer

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
    write_atomically(output, report_page([(p.stem, read_plan(p)) for p in plans]))
