"""A plot as a page that needs nothing beside itself."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from planner.report.plots.changes import best_by_x, changes_of
from planner.report.plots.figure import Ask, by_value, facets_of, title
from planner.report.plots.labels import label, quantity
from planner.report.plots.rows import Row, planned, why_none

# No source of any kind is allowed: the browser itself keeps the page from asking for anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def style() -> str:
    """Return the style sheet of all pages."""
    return (files("planner.report") / "data" / "page.css").read_text(encoding="utf-8")


def plot_page(rows: Sequence[Row], ask: Ask, svg: str) -> str:
    """Return the picture, the changes along its axis and its points as one HTML page."""
    name = title(ask)
    inline = svg[svg.index("<svg") :].replace(
        "<svg", f'<svg role="img" aria-label="{escape(name)}: each point is in the table below"', 1
    )
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">',
            f"<title>{escape(name)}</title>\n<style>\n{style()}</style>\n</head>\n<body>\n<main>\n<h1>{escape(name)}</h1>",
            f'<figure class="wide plot" tabindex="0">{inline}</figure>',
            *_changes(rows, ask),
            *_table(rows, ask),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _changes(rows: Sequence[Row], ask: Ask) -> list[str]:
    """List what changes where, for each facet."""
    found = []
    for name, part in facets_of(rows, ask.facet):
        best = best_by_x(
            [r for r in part if planned(r)], ask.x, ask.y, largest=ask.senses is not None and ask.senses[1] == "max"
        )
        told = [f"<li>{escape(c.told)}</li>" for c in changes_of(best, ask.x)] or ["<li>nothing</li>"]
        found += [f"<h3>What changes{escape(f' ({name})' if name else '')}</h3>\n<ul>", *told, "</ul>"]
    return found


def _table(rows: Sequence[Row], ask: Ask) -> list[str]:
    """Write a line a point, in the order of x."""
    paths = list(dict.fromkeys(p for p in (ask.x, ask.facet, ask.color, ask.y) if p))
    head = "".join(f'<th scope="col">{escape(label(p))}</th>' for p in paths)
    body = [
        "<tr>"
        + "".join(f"<td>{escape(quantity(p, r.get(p)) if r.get(p) is not None else '-')}</td>" for p in paths)
        # What a row that holds no plan says in the place of one.
        + f'<td class="text">{escape(str(r["status"]) if planned(r) else why_none(r))}</td></tr>'
        for r in sorted(rows, key=lambda r: [by_value(r.get(p)) for p in paths])
    ]
    return [
        '<h3>Points</h3>\n<div class="scroll"><table>',
        f'<thead><tr>{head}<th class="text" scope="col">status</th></tr></thead>\n<tbody>',
        *body,
        "</tbody></table></div>",
    ]
