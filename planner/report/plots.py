"""Plots with matplotlib: of a sweep's rows, with their names and units, of plans and of curves; the page of a sweep."""

import difflib
import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from itertools import accumulate, chain, groupby, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from planner.errors import InputError, needed
from planner.plan.plan import Curve, Plan, proven_knee
from planner.plan.plan_figures import LANES, changed_decisions, decisions_of
from planner.report.decisions import name_of_part
from planner.report.page.charts import ChartLine, Point
from planner.report.page.page_parts import PageTable, template
from planner.sweeps.row_store import FlatRow, number, planned, why_none
from planner.units import amount, counted, money, power, short

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

UNITS = {unit: unit for unit in ("bytes", "days", "km", "ms", "tokens")} | {
    "usd_per_year": "USD a year",
    "usd": "USD",
    "mw": "MW",
    "bytes_per_gpu": "bytes a GPU",
    "seconds": "s",
    "flop": "FLOP",
    "m2": "m²",
    "gbps": "Gb/s",
    "watts": "W",
    "kw": "kW",
}
SPELLED = {"gpu": "GPU", "gpus": "GPUs", "mw": "MW", "usd": "USD", "wan": "WAN", "zero": "ZeRO"}
NAMES = {
    "days_to_train": ("time to train", "days"),
    "mfu": ("model FLOP utilisation", ""),
    "tokens_per_step": ("tokens a step", "tokens"),
    "racks": ("racks", ""),
    "gpus_used": ("GPUs used", ""),
}


def name_and_unit(path: str) -> tuple[str, str]:
    """Return the last key of a sweep row's path in plain words and its unit or ""; a part has its total's unit."""
    parent, _, last = path.rpartition(".")
    for key in (last, parent.rpartition(".")[2]):
        for end in sorted(UNITS, key=len, reverse=True):
            if key.endswith("_" + end):
                return plain(last.removesuffix("_" + end)), UNITS[end]
    return NAMES.get(last) or (plain(last), "")


def label(path: str) -> str:
    """Name a sweep row's figure with its unit, for a plot's axis: `budget (USD)` for limits.budget_usd."""
    name, unit = name_and_unit(path)
    return f"{name} ({unit})" if unit else name


def quantity(path: str, value: Any) -> str:
    """Write a sweep row's figure with the unit of its path: $64B, 2,500 MW."""
    _, unit = name_and_unit(path)
    if not unit or not isinstance(value, (int, float)):
        return short(value)
    if unit.startswith("USD"):
        return ("-$" if value < 0 else "$") + short(abs(value)) + unit.removeprefix("USD")
    return f"{short(value)} {unit}"


def plain(name: str) -> str:
    """Write a key of a sweep's row in plain words for a plot."""
    return " ".join(SPELLED.get(word, word) for word in name.split("_"))


Sense = Literal["min", "max"]
# By what the option --frontier says, x first; none: no frontier.
SENSES: dict[str, tuple[Sense, Sense] | None] = {
    **{"min-min": ("min", "min"), "max-min": ("max", "min"), "min-max": ("min", "max"), "max-max": ("max", "max")},
    "none": None,
}


def check_path(rows: Sequence[FlatRow], option: str, path: str) -> None:
    """Require that some sweep row has a plot's path; the error names the option and the nearest path there is."""
    known = sorted({key for row in rows for key in row})
    if path in known:
        return
    folded = path.lower()
    last, names = folded.rpartition(".")[2], {key: key.lower() for key in known}
    near = [key for key, name in names.items() if name.rpartition(".")[2] == last]
    near = near or [key for key, name in names.items() if folded in name]
    near = near or difflib.get_close_matches(path, known, 3, 0.5)
    examples = ("cost.total_usd", "layout.metrics.days_to_train", "layout.metrics.mfu")
    usual = [key for key in examples if key in known] or known[:3]
    hint = f"did you mean {' or '.join(near[:3])}?" if near else f"such as {', '.join(usual) or 'none'} do;"
    raise InputError(f"{option} {path}: no row has this figure; {hint} `planner compare ROWS` lists figures")


def frontier(points: Sequence[tuple[float, float]], senses: tuple[Sense, Sense]) -> list[int]:
    """Return the indices of plotted points that no other dominates, by ascending x; the first of equal ones."""
    sx, sy = (1.0 if sense == "min" else -1.0 for sense in senses)
    order = sorted(range(len(points)), key=lambda i: (sx * points[i][0], sy * points[i][1], i))
    best_before = accumulate((sy * points[i][1] for i in order), min, initial=math.inf)
    kept = [i for i, best in zip(order, best_before, strict=False) if sy * points[i][1] < best]
    return sorted(kept, key=lambda i: points[i][0])


def lanes_of(rows: Sequence[FlatRow], x: str) -> dict[str, list[tuple[float, float, str]]]:
    """Return the plot's strip of decisions that change along x, as bands: first and last x, and value; rows by x."""
    lanes, decided = {}, [(number(row, x) or 0.0, decisions_of(row)) for row in rows]
    for name in LANES:
        known = [(at, decisions[name]) for at, decisions in decided if decisions.get(name) is not None]
        runs = [(value, [at for at, _ in run]) for value, run in groupby(known, key=lambda point: point[1])]
        if len(runs) > 1:
            lanes[name] = [(xs[0], xs[-1], value) for value, xs in runs]
    return lanes


def changes_of(rows: Sequence[FlatRow], x: str) -> list[str]:
    """Describe each decision change of a plotted sweep, in the order of x: `at $64B a third site opens: palo-verde`."""
    changes = ((after.get(x), changed_decisions(before, after).values()) for before, after in pairwise(rows))
    return [f"at {quantity(x, at)} {what}" for at, decisions in changes for what in decisions]


def draw_strip(axes: "Axes", rows: Sequence[FlatRow], x: str) -> list[tuple["Artist", "Text"]]:
    """Draw a plot's strip of decision changes; rows by x, one an x, its scale set. Return each bar with its text."""
    lanes, texts = lanes_of(rows, x), list[tuple["Artist", "Text"]]()
    axes.set_yticks(range(len(lanes)), list(lanes), fontsize=7.5)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if not lanes:
        style = {"transform": axes.transAxes, "fontsize": 7.5, "color": "#606060"}
        axes.text(0.5, 0.5, "the same decisions all along", ha="center", va="center", **style)
        return []
    # Bands end half-way between neighbouring points, of which a lane has two at least, and as far outside the last.
    xs, logarithmic = [number(row, x) or 0.0 for row in rows], axes.get_xscale() == "log"
    at = [math.log(place) for place in xs] if logarithmic else xs
    middle = [(left + right) / 2 for left, right in pairwise(at)]
    ends = [at[0] - (middle[0] - at[0]), *middle, at[-1] + (at[-1] - middle[-1])]
    edges = [math.exp(end) for end in ends] if logarithmic else ends
    for lane, bands in enumerate(lanes.values()):
        left = [edges[xs.index(first)] for first, _, _ in bands]
        wide = [edges[xs.index(last) + 1] - start for (_, last, _), start in zip(bands, left, strict=True)]
        shades = [("#CFE3F2", "#F6DDC4")[place % 2] for place in range(len(bands))]  # neighbours in turn
        bars = axes.barh([lane] * len(bands), wide, left=left, color=shades, edgecolor="white", linewidth=0.8)
        for bar in bars:
            bar.sticky_edges.x.clear()  # a margin is left of the first bar too
        names = axes.bar_label(bars, [value for _, _, value in bands], label_type="center", fontsize=6.5)
        texts += zip(bars, names, strict=True)
    return texts


# Okabe and Ito (2008), Color Universal Design: colour-blind readers see them apart too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A800")
GREY, FAILED = "#B0B0B0", "#A00000"
# Inches: a line of text; left of the axes, above and below them; the plot; between it and its strip. Matplotlib's own
# layouts differ from run to run in the last digit, which the same picture twice must not.
LINE, LEFT, TOP, BOTTOM, MAIN, GAP = 0.17, 0.85, 0.35, 0.55, 3.6, 0.12
# Facets in a picture; reasons, each a mark of its own, in a legend; lines of changes below the picture.
MAX_FACETS, MAX_REASONS, MAX_CHANGES = 12, 3, 6
# Text as paths and a fixed salt: the same rows give the same bytes, and no reader's fonts matter.
STYLE: dict[str, Any] = {"font.size": 9.0, "svg.fonttype": "path", "svg.hashsalt": "planner"}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False}


class PlotRequest(NamedTuple):
    """The columns of a sweep's rows to plot, and how."""

    x: str
    y: str
    facet: str | None = None
    color: str | None = None
    log: str = ""
    senses: tuple[Sense, Sense] | None = ("min", "min")


def picture_of(draw: Callable[["Figure"], None], name: str, form: str) -> bytes:
    """Return a plot, drawn by a call, as svg or png in the style of all plots. InputError: matplotlib is missing."""
    with needed("plot", "matplotlib", "plot"):
        import matplotlib
        from matplotlib.figure import Figure
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        picture = io.BytesIO()
        metadata = {"Date": None, "Creator": "planner", "Title": name} if form == "svg" else {"Software": "planner"}
        draw(figure := Figure())
        figure.savefig(picture, format=form, dpi=150, metadata=metadata)
    return picture.getvalue()


def title(request: PlotRequest) -> str:
    """Return the title of a sweep's plot."""
    by = f", by {label(request.facet)}" if request.facet else ""
    return f"{label(request.y)} over {label(request.x)}{by}"


def facets_of(rows: Sequence[FlatRow], facet: str | None) -> list[tuple[str, list[FlatRow]]]:
    """Divide a sweep's rows into the facets of a plot, by the value of a path in order; one facet without it."""
    if facet is None:
        return [("", list(rows))]
    values = sorted({by_value(row.get(facet)) for row in rows})
    if len(values) > MAX_FACETS:
        problem = f"has {len(values)} values; at most {MAX_FACETS} pictures fit"
        raise InputError(f"--facet {facet}: {problem}, use it as --color or -x")
    parts = [[row for row in rows if by_value(row.get(facet)) == value] for value in values]
    return [(f"{plain(facet.rpartition('.')[2])}: {quantity(facet, part[0].get(facet))}", part) for part in parts]


def by_value(value: Any) -> tuple[int, float, str]:
    """Return the sort key of a plotted value: numbers before words, and both before nothing."""
    if isinstance(value, (int, float)):
        return 0, float(value), ""
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))


def draw_sweep(rows: Sequence[FlatRow], request: PlotRequest, figure: "Figure") -> None:
    """Draw a plot of a sweep's rows. InputError: no points, too many facets, or colours of too many words."""
    parts = facets_of(rows, request.facet)
    strips = [best_rows(part, request) for _, part in parts]
    lanes = max(1, *(len(lanes_of(best, request.x)) for best in strips))
    changes = changes_of(strips[0], request.x) if len(parts) == 1 else []
    foot = LINE * min(len(changes), MAX_CHANGES + 1)
    # A colour for each value of a path; None where there are none or the values form a scale.
    values = sorted({row.get(request.color) for row in rows if planned(row)}, key=by_value) if request.color else []
    scaled = request.color is None or len(values) > len(COLOURS)
    shades = None if scaled else dict(zip(values, COLOURS, strict=False))
    across, down = min(3, len(parts)), -(-len(parts) // 3)
    wide, right = 7.2 if across == 1 else 4.6, 0.15 if request.color is None or shades else 1.05
    rows_of_cell = [TOP, MAIN, GAP, 0.25 + 0.2 * lanes, BOTTOM]
    height = sum(rows_of_cell) * down + foot
    figure.set_size_inches(wide * across, height)
    edge = {"left": 0.0, "right": 1.0, "bottom": foot / height, "top": 1.0, "wspace": 0.0, "hspace": 0.0}
    widths, heights = [LEFT, wide - LEFT - right, right] * across, rows_of_cell * down
    grid = figure.add_gridspec(5 * down, 3 * across, **edge, width_ratios=widths, height_ratios=heights)
    first, texts = None, []
    for index, ((name, part), best) in enumerate(zip(parts, strips, strict=True)):
        row, column = divmod(index, across)
        main = figure.add_subplot(grid[5 * row + 1, 3 * column + 1], sharex=first, sharey=first)
        _panel(main, part, request, shades)
        main.set_title(name or title(request), fontsize=10)
        below = figure.add_subplot(grid[5 * row + 3, 3 * column + 1], sharex=main)
        name_axes(main, below, request)
        first = first or main
        texts += draw_strip(below, best, request.x)
    for bar, text in texts:
        text.set_visible(text.get_window_extent().width <= bar.get_window_extent().width)
    lines = changes[:MAX_CHANGES]
    lines += [f"and {len(changes) - MAX_CHANGES} more changes"] if len(changes) > MAX_CHANGES else []
    for level, text in enumerate(lines):  # below the picture, the first at the top
        figure.text(0.02, foot / height * (1 - (level + 0.4) / len(lines)), text, fontsize=7.5, va="center")


def best_rows(rows: Sequence[FlatRow], request: PlotRequest) -> list[FlatRow]:
    """Return a plot's best row for each x, of smallest y (or largest, by its senses), for the strip of decisions."""
    sign = -1.0 if request.senses is not None and request.senses[1] == "max" else 1.0
    best: dict[float, tuple[float, FlatRow]] = {}
    for row in rows:
        at, value = number(row, request.x), number(row, request.y)
        if planned(row) and at is not None and value is not None and (at not in best or sign * value < best[at][0]):
            best[at] = (sign * value, row)
    return [best[at][1] for at in sorted(best)]


def name_axes(main: "Axes", below: "Axes", request: PlotRequest) -> None:
    """Name and scale the axes of a sweep's plot, with the x axis below its strip, or below itself."""
    from matplotlib.ticker import LogFormatter

    class LogTicks(LogFormatter):  # type: ignore[misc]
        """Tick labels of a logarithmic plot: where there is space, in the figure's unit, else empty."""

        def __init__(self, name: Callable[[float], str]) -> None:
            super().__init__(minor_thresholds=(1.5, 0.6))
            self.name = name

        def __call__(self, x: float, pos: int | None = None) -> str:
            return self.name(x) if super().__call__(x, pos) else ""

    main.set(**{f"{axis}scale": "log" for axis in request.log})
    for axis, path, log in ((below.xaxis, request.x, "x" in request.log), (main.yaxis, request.y, "y" in request.log)):
        name = partial(tick, path)
        axis.set_major_formatter(LogTicks(name) if log else name)
        if log:
            axis.set_minor_formatter(LogTicks(name))
    for axes in (main, below):
        axes.tick_params(which="both", length=3.0, pad=3.5)
    if below is not main:
        main.tick_params(labelbottom=False, which="both")
        below.tick_params(axis="y", length=0)
    main.set_ylabel(label(request.y))
    below.set_xlabel(label(request.x))
    main.grid(color="#E4E4E4", linewidth=0.6)
    main.set_axisbelow(True)


def tick(path: str, value: float, _: object = None) -> str:
    """Return the label of a plot's tick, wherever it is; only money carries its unit there."""
    return quantity(path, value) if "usd" in path else short(value)


def _panel(axes: "Axes", rows: Sequence[FlatRow], request: PlotRequest, shades: dict[Any, str] | None) -> None:
    plans = [(number(row, request.x), number(row, request.y), row) for row in rows if planned(row)]
    points = [((x, y), row) for x, y, row in plans if x is not None and y is not None]
    color, groups = request.color, list[tuple[list[Point], str, str]]()
    if color is None:
        name = "on the frontier" if request.senses else "plans"
        groups.append(([point for point, _ in points], COLOURS[0], name))
    elif shades is not None:
        for value, shade in shades.items():
            own = [point for point, row in points if row.get(color) == value]
            groups.append((own, shade, quantity(color, value)))
    elif coloured := [(point, value) for point, row in points if (value := number(row, color)) is not None]:
        places, scale = zip(*coloured, strict=True)
        if request.senses is not None:
            front = (places[i] for i in frontier(places, request.senses))
            axes.plot(*zip(*front, strict=True), color="black", linewidth=1.0, label="frontier", zorder=2)
        dots = axes.scatter(*zip(*places, strict=True), c=scale, s=18, cmap="viridis", zorder=3)
        bar = axes.inset_axes((1.02, 0, 0.03, 1))
        axes.figure.colorbar(dots, cax=bar, label=label(color), format=partial(tick, color))
    else:
        problem = f"has more than {len(COLOURS)} values and they are no numbers"
        raise InputError(f"--color {color}: {problem}; choose another path")
    for group, shade, name in (group for group in groups if group[0]):
        if request.senses is None:
            axes.scatter(*zip(*group, strict=True), s=18, color=shade, label=name, zorder=3)
            continue
        best = frontier(group, request.senses)
        if rest := [group[i] for i in sorted({*range(len(group))} - {*best})]:
            known = "dominated" in axes.get_legend_handles_labels()[1]
            axes.scatter(*zip(*rest, strict=True), s=14, color=GREY, label=None if known else "dominated", zorder=2)
        on_it = zip(*(group[i] for i in best), strict=True)
        axes.plot(*on_it, color=shade, marker="o", markersize=4, linewidth=1.2, label=name, zorder=3)
    without = [(number(row, request.x), why_none(row)) for row in rows if not planned(row)]
    reasons = Counter(why for _, why in without)
    style = {"color": FAILED, "markersize": 5, "transform": axes.get_xaxis_transform(), "clip_on": False}
    for level, (why, count) in enumerate(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))):
        if level == MAX_REASONS:
            axes.plot([], [], " ", label=f"and {len(reasons) - level} more reasons")
            break
        xs = [x for x, reason in without if reason == why and x is not None]
        text = why if len(why) <= 60 else why[:59] + "…"
        axes.plot(xs, [0.02 + 0.03 * level] * len(xs), "x", label=f"{count} {text}", **style)
    if incomplete := len(plans) - len(points):
        axes.plot([], [], " ", label=f"{incomplete} plans without these figures")
    handles, names = axes.get_legend_handles_labels()
    if handles:
        sizes = {"fontsize": 7.5, "title_fontsize": 7.5, "framealpha": 0.85}
        heading = None if color is None or shades is None else label(color)
        axes.legend(handles, names, title=heading, edgecolor="none", loc="best", **sizes)


def plot_page(rows: Sequence[FlatRow], request: PlotRequest, svg: str) -> str:
    """Write a sweep's plot as one HTML page, with best point, changes, points. InputError: jinja2 is not installed."""
    name = title(request)
    described = f'<svg role="img" aria-label="{escape(name)}: each point is in the table below"'
    paths = list(dict.fromkeys(path for path in (request.x, request.facet, request.color, request.y) if path))
    in_order = sorted(rows, key=lambda row: [by_value(row.get(path)) for path in paths])
    figures = [["-" if row.get(path) is None else quantity(path, row[path]) for path in paths] for row in in_order]
    # A row without a plan has its reason in place of the status.
    ends = [str(row["status"]) if planned(row) else why_none(row) for row in in_order]
    cells = [(*own, end) for own, end in zip(figures, ends, strict=True)]
    found = [(y, row) for row in rows if planned(row) and (y := number(row, request.y)) is not None]
    verdict = f"{len(found):,} of {counted(len(rows), 'point')} have a plan"
    if found:
        most = request.senses is not None and request.senses[1] == "max"
        _, best = (max if most else min)(found, key=lambda item: item[0])
        value, at = quantity(request.y, best[request.y]), quantity(request.x, best.get(request.x))
        of, along = (name_and_unit(path)[0] for path in (request.y, request.x))
        verdict += f"; {'most' if most else 'least'} {of}: {value}, at {along} {at}"
    facets = facets_of(rows, request.facet)
    return template("plot", "report/page/plot.html.jinja").render(
        name=name,
        verdict=f"{verdict}.",
        changes=[(facet, changes_of(best_rows(part, request), request.x)) for facet, part in facets],
        svg=svg[svg.index("<svg") :].replace("<svg", described, 1),
        points=PageTable("Every point of the sweep", (*map(label, paths), "status"), cells, ("status",)),
    )


PARTS = {"plot_step": "layout", "plot_memory": "layout", "plot_cost": "cost", "plot_sites": "sites"}


def plotted(plan: Plan, name: str, axes: "Axes | None") -> "Axes":
    """Plot a part of a plan by the name of its method, on axes that are given or new ones.

    A step by part in seconds, the longest first; the memory of the fullest GPU by part in GB, with its limit; the
    capital by part in USD, the dearest first; a map of the sites, each as large as its power, with their links.
    InputError: the plan lacks the part, or there is no matplotlib.
    """
    section = getattr(plan, PARTS[name])
    if section is None:
        raise InputError(f"{PARTS[name]}: is not in the plan ({plan.status}); draw a plan that has it")
    if axes is None:
        with needed("plot", "matplotlib", "plot"):
            from matplotlib import pyplot
        axes = pyplot.subplots(layout="constrained")[1]
    heading = f"{plan.instance.name}: "
    if name == "plot_step":
        metrics = section.metrics
        axes.set_title(f"{heading}step of {metrics.step_seconds:.4g} s, MFU {metrics.mfu:.1%}")
        parts = {name_of_part(part): seconds for part, seconds in metrics.breakdown_seconds.items()}
        _bars(axes, parts, "seconds of a step", "{:.3g} s".format)
    elif name == "plot_memory":
        metrics, left = section.metrics, 0.0
        sizes = [(part, size / 1e9) for part, size in metrics.memory_breakdown_bytes.items() if size > 0]
        for i, (part, size) in enumerate(sorted(sizes, key=lambda part: -part[1])):
            named = f"{name_of_part(part)} {size:.1f}"
            axes.barh([0], [size], left=left, color=COLOURS[i % len(COLOURS)], label=named)
            left += size
        used, limit = metrics.memory_bytes_per_gpu / 1e9, metrics.memory_limit_bytes / 1e9
        axes.axvline(limit, color="black", linestyle="--", label="limit")
        axes.set(yticks=[], xlabel="GB on the fullest GPU", title=f"{heading}{used:.1f} of {limit:.1f} GB")
        axes.legend(fontsize="small")
    elif name == "plot_cost":
        axes.set_title(f"{heading}{money(sum(section.capex_usd.values()))} of capital")
        _bars(axes, section.capex_usd, "USD", money)
    else:
        from planner.report.page.drawings import projected

        points, _ = projected([(site.latitude, site.longitude) for site in section.sites])
        at = {site.id: point for site, point in zip(section.sites, points, strict=True)}
        for link in section.links:
            axes.plot(*zip(at[link.a], at[link.b], strict=True), color=COLOURS[5], zorder=1)
        largest = max(site.facility_mw for site in section.sites)
        areas = [400.0 * site.facility_mw / largest for site in section.sites]  # square points
        axes.scatter(*zip(*points, strict=True), s=areas, color=COLOURS[0], zorder=2)
        for site in section.sites:
            text = f"{site.id}\n{power(site.facility_mw)}"
            axes.annotate(text, at[site.id], xytext=(6, 6), textcoords="offset points")
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_axis_off()
        axes.margins(0.2)
        axes.set_title(f"{heading}{counted(len(section.sites), 'site')}")
    return axes


def _bars(axes: "Axes", parts: Mapping[str, float], label: str, show: Callable[[float], str]) -> None:
    total = sum(parts.values())
    rows = sorted(((size, plain(name)) for name, size in parts.items() if size > 0.002 * total), reverse=True)
    rest = total - sum(size for size, _ in rows)
    rows += [(rest, "other")] if rest > 0 else []
    drawn = axes.barh([name for _, name in rows], [size for size, _ in rows], color=COLOURS[0])
    axes.bar_label(drawn, labels=[show(size) for size, _ in rows], padding=3, fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(label)


BELOW = "no plan is below, proven"
MARGIN = 1.15  # of the axis beyond the first and the last plan, where the curve has no end of its own


def curve_lines(curve: Curve) -> list[ChartLine]:
    """Return a curve's plotted lines: the days that plans reach for some money, and the days that are proven.

    A plan's days last until the next one's money; a bound for some capital holds for less too.
    """
    money_of = [point.capital_usd for point in curve.points]
    ends = money_of[1:] + [max(curve.most_usd or MARGIN * last, last) for last in money_of[-1:]]
    reached = [(x, p.days_to_train) for p, end in zip(curve.points, ends, strict=True) for x in (p.capital_usd, end)]
    falling = accumulate((point.bound_days or 0.0 for point in reversed(curve.points)), max)
    proven = [(usd, days) for usd, days in zip(money_of, [*falling][::-1], strict=True) if days > 0]
    starts = [usd / MARGIN for usd in money_of[:1]] + [usd for usd, _ in proven]
    bounds = [(x, days) for start, (usd, days) in zip(starts, proven, strict=False) for x in (start, usd)]
    return [line for line in (ChartLine("plans", reached, 0), ChartLine(BELOW, bounds, 1)) if line.points]


def draw_staircase(curve: Curve, name: str, figure: "Figure") -> None:
    """Draw a curve of money against days, logarithmic if possible."""
    figure.set_size_inches(7.2, 4.4)
    axes, lines = figure.add_axes((0.12, 0.12, 0.85, 0.8)), curve_lines(curve)
    for line in lines:
        axes.plot(*zip(*line.points, strict=True), color=COLOURS[line.shade], ls="-:"[line.shade], label=line.name)
    plans = [(point.capital_usd, point.days_to_train) for point in curve.points]
    axes.plot([usd for usd, _ in plans], [days for _, days in plans], "o", color=COLOURS[0], markersize=4)
    if (bend := proven_knee(curve.points)) is not None:
        text = f"knee: {money(bend.capital_usd)}, {amount(bend.days_to_train)} days"
        axes.plot([bend.capital_usd], [bend.days_to_train], "*", color=COLOURS[4], markersize=11, label=text)
    if lines:
        axes.legend(fontsize=7.5, framealpha=0.85, edgecolor="none", loc="upper right")
    log = "xy" if lines and all(0 < value < math.inf for line in lines for value in chain(*line.points)) else ""
    name_axes(axes, axes, PlotRequest(x="capital_usd", y="days_to_train", log=log))
    axes.set_title(name, fontsize=10)
