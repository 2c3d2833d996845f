"""A plot as a page that needs nothing beside itself."""

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from planner.report.plots.changes import changes_of
from planner.report.plots.figure import PlotRequest, best_rows, by_value, facets_of, title
from planner.report.plots.labels import label, name_and_unit, quantity
from planner.report.plots.rows import Row, number, planned, why_none
from planner.units import counted

# No source of any kind is allowed: the browser itself keeps the page from asking for anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def style() -> str:
    """Return the style sheet of all pages."""
    return (files("planner.report") / "data" / "page.css").read_text(encoding="utf-8")


def plot_page(rows: Sequence[Row], request: PlotRequest, svg: str) -> str:
    """Return the best point, the changes along the axis, the picture and its points, folded, as one HTML page."""
    name = title(request)
    described = f'<svg role="img" aria-label="{escape(name)}: each point is in the table below"'
    inline = svg[svg.index("<svg") :].replace("<svg", described, 1)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">',
            f"<title>{escape(name)}</title>\n<style>\n{style()}</style>\n</head>\n<body>\n<main>\n<h1>{escape(name)}</h1>",
            f'<p class="verdict">{escape(_verdict(rows, request))}</p>',
            *_changes(rows, request),
            f'<figure class="wide plot" tabindex="0">{inline}</figure>',
            *_table(rows, request),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _verdict(rows: Sequence[Row], request: PlotRequest) -> str:
    """Write how many points have a plan, and the best of these."""
    found = [(y, r) for r in rows if planned(r) and (y := number(r, request.y)) is not None]
    count = f"{len(found):,} of {counted(len(rows), 'point')} have a plan"
    if not found:
        return f"{count}."
    most = request.senses is not None and request.senses[1] == "max"
    _, best = (max if most else min)(found, key=lambda item: item[0])
    value, at = quantity(request.y, best[request.y]), quantity(request.x, best.get(request.x))
    of, along = (name_and_unit(path)[0] for path in (request.y, request.x))
    return f"{count}; {'most' if most else 'least'} {of}: {value}, at {along} {at}."


def _changes(rows: Sequence[Row], request: PlotRequest) -> list[str]:
    """List what changes where, for each facet."""
    lines = []
    for name, part in facets_of(rows, request.facet):
        changes = changes_of(best_rows(part, request), request.x)
        items = [f"<li>{escape(text)}</li>" for text in changes] or ["<li>nothing</li>"]
        lines += [f"<h3>What changes{escape(f' ({name})' if name else '')}</h3>\n<ul>", *items, "</ul>"]
    return lines


def _table(rows: Sequence[Row], request: PlotRequest) -> list[str]:
    """Write a line a point, in the order of x."""
    paths = list(dict.fromkeys(p for p in (request.x, request.facet, request.color, request.y) if p))
    head = "".join(f'<th scope="col">{escape(label(p))}</th>' for p in paths)
    body = []
    for r in sorted(rows, key=lambda r: [by_value(r.get(p)) for p in paths]):
        cells = "".join(f"<td>{'-' if r.get(p) is None else escape(quantity(p, r.get(p)))}</td>" for p in paths)
        # A row without a plan has its reason here.
        status = escape(str(r["status"]) if planned(r) else why_none(r))
        body.append(f'<tr>{cells}<td class="text">{status}</td></tr>')
    return [
        '<details><summary>All points</summary>\n<div class="scroll"><table>',
        f'<thead><tr>{head}<th class="text" scope="col">status</th></tr></thead>\n<tbody>',
        *body,
        "</tbody></table></div></details>",
    ]
