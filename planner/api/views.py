"""The library's views of plans and rows: text, HTML, pandas, matplotlib; each call loads what it needs."""

import platform
import sys
from collections.abc import Callable, Iterable
from html import escape
from typing import TYPE_CHECKING, Any

from planner.errors import InputError, needed
from planner.units import bounded
from planner.version import __version__

if TYPE_CHECKING:
    from planner.plan.plan import Plan
    from planner.sweeps.row_store import Row

PACKAGES = (
    *("ortools", "highspy", "pyomo", "numpy", "scipy", "networkx", "pydantic", "pyyaml", "typer", "rich"),
    *("pandas", "matplotlib", "jinja2", "pyarrow", "distributed"),
)


def summary(plan: "Plan", *, verbose: bool = False) -> str:
    """Write a plan on one screen, or all that it says."""
    from planner.report.summary import summary as written

    return written(plan, verbose=verbose)


def html(plan: "Plan") -> str:
    """Write the first screen of a plan as a small table of HTML for a notebook, a row a section."""
    from planner.report.summary import by_section, statements

    texts = by_section(statement for statement in statements(plan) if statement.first)
    head, *verdict = map(escape, [f"{plan.instance.name}: {plan.status}", *texts.pop("verdict", [])])
    cells = "".join(
        f'<tr><th style="text-align:left;vertical-align:top">{escape(name.capitalize())}</th>'
        f'<td style="text-align:left">{"<br>".join(map(escape, lines))}</td></tr>'
        for name, lines in texts.items()
    )
    return f"<div><p><b>{head}</b><br>{'<br>'.join(verdict)}</p><table>{cells}</table></div>"


@bounded
def to_frame(rows: "Iterable[Row | Plan]") -> Any:
    """Return rows of a sweep, or plans, as a pandas DataFrame: a row each, a column a figure by its dotted name.

    Parameters
    ----------
    rows
        What `planner.sweep` yields, or plans: the columns of both have the same names.

    Returns
    -------
    pandas.DataFrame
        A figure that a plan has not is missing (NaN) in its row.

    Raises
    ------
    PlannerError
        pandas is not installed.
    """
    from planner.plan.plan import Plan
    from planner.report.tables import figures_of
    from planner.sweeps.row_store import Row

    with needed("to_frame", "pandas", "frames"):
        import pandas

    def flat(item: "Row | Plan") -> dict[str, Any]:
        if isinstance(item, Plan):
            return {"name": item.instance.name, "reason": None, **figures_of(item)}
        if not isinstance(item, Row):
            raise InputError(f"rows: must be rows of a sweep, or plans (one is {item!r:.40})")
        return item.flat()

    return pandas.DataFrame([flat(row) for row in rows])


def _plot(name: str) -> Callable[..., Any]:
    def draw(plan: "Plan", *, ax: Any = None) -> Any:
        from planner.report.plots import plots

        return plots.plotted(plan, name, ax)

    return draw


VIEWS: dict[str, Callable[..., Any]] = {
    "summary": summary,
    "_repr_html_": html,
    "to_frame": lambda plan: to_frame([plan]),
    **{name: _plot(name) for name in ("plot_step", "plot_memory", "plot_cost", "plot_sites")},
}


def show_versions() -> None:
    """Print the versions of planner, Python, the solvers and the optional packages, and the platform, for a report."""
    from importlib.metadata import PackageNotFoundError, version

    lines = {"planner": __version__, "python": sys.version.split()[0], "platform": platform.platform()}
    for package in PACKAGES:
        try:
            lines[package] = version(package)
        except PackageNotFoundError:
            lines[package] = "not installed"
    width = max(map(len, lines))
    print("\n".join(f"{name:{width}}  {value}" for name, value in lines.items()))
