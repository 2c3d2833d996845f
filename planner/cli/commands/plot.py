"""`planner plot`: the rows of a sweep as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from planner.errors import InputError
from planner.files import require_writable, write_atomically

FORMS = ("svg", "png", "html")
LOGS = ("", "x", "y", "xy")


def plot(
    rows: Annotated[Path, typer.Argument(help="Rows of a sweep (JSONL, CSV or Parquet).")],
    x: Annotated[str, typer.Option("-x", help="Path across, such as limits.budget_usd.")],
    y: Annotated[str, typer.Option("-y", help="Path up, such as layout.metrics.days_to_train.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Write the picture here: .svg, .png or .html.")],
    facet: Annotated[str | None, typer.Option(help="One picture for each value of this path.")] = None,
    color: Annotated[str | None, typer.Option(help="Colour by this path.")] = None,
    log: Annotated[str, typer.Option(help="Logarithmic axes: x, y or xy.")] = "",
    frontier: Annotated[
        str, typer.Option(help="Which way is better in x and y: min-min, max-min, min-max, max-max; none: no frontier.")
    ] = "min-min",
) -> None:
    """Draw a sweep: plans and their frontier, points without a plan, and where decisions change."""
    from planner.report.plots.sweep_plot import PlotRequest, drawn, plot_page
    from planner.report.plots.sweep_rows import check_path, number, planned, read_rows, senses_of

    form = output.suffix.removeprefix(".").lower()
    if form not in FORMS:
        raise InputError(f"{output}: must end in .svg, .png or .html")
    if log not in LOGS:
        raise InputError(f"--log {log}: must be x, y or xy")
    require_writable(output)
    request = PlotRequest(x=x, y=y, facet=facet, color=color, log=log, senses=senses_of(frontier))
    points = read_rows(rows)
    for option, path in (("-x", x), ("-y", y), ("--facet", facet), ("--color", color)):
        if path is not None:
            check_path(points, option, path)
    for axis, path in (("x", x), ("y", y)):
        values = [number(r, path) for r in points if planned(r)]
        if not any(v is not None for v in values):
            raise InputError(f"-{axis} {path}: no row with a plan holds a number there; draw a figure that is a number")
        if axis in log and any(v is not None and v <= 0 for v in values):
            problem = f"{path} has values of 0 or less, which no logarithmic axis holds"
            raise InputError(f"--log {log}: {problem}; leave {axis} linear")
    picture = drawn(points, request, "png" if form == "png" else "svg")
    write_atomically(output, plot_page(points, request, picture.decode()) if form == "html" else picture)
