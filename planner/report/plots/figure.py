"""The picture of a sweep: points and frontiers, what has no plan, and a strip of decision changes below."""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.optional_packages import needed
from planner.report.plots.changes import best_by_x, changes_of, lanes_of
from planner.report.plots.labels import label, plain, quantity, short
from planner.report.plots.pareto import Sense, frontier
from planner.report.plots.rows import Row, number, planned, why_none
from planner.report.plots.strip import draw_strip

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008), Color Universal Design: told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A800")
GREY, FAILED = "#B0B0B0", "#A00000"
# Inches: a line of text; left of the axes, above and below them; the plot; between it and its strip. Matplotlib's own
# layouts differ from run to run in the last digit, which the same picture twice must not.
LINE, LEFT, TOP, BOTTOM, MAIN, GAP = 0.17, 0.85, 0.35, 0.55, 3.6, 0.12
LETTER = 0.062  # of a legend
MOST_FACETS, MOST_REASONS, MOST_TOLD, MOST_COLOURS = 12, 3, 6, len(COLOURS)
# Text as paths and a fixed salt: the same rows give the same bytes, and no reader's fonts matter.
STYLE = {
    "font.size": 9.0,
    "svg.fonttype": "path",
    "svg.hashsalt": "planner",
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True, slots=True)
class Ask:
    """What to draw of the rows."""

    x: str
    y: str
    facet: str | None = None
    color: str | None = None
    log: str = ""
    senses: tuple[Sense, Sense] | None = ("min", "min")


@dataclass(frozen=True, slots=True)
class Cell:
    """The room of one plot with its strip, in inches."""

    width: float
    strip: float
    right: float

    @property
    def inner(self) -> float:
        """Width of the axes."""
        return self.width - LEFT - self.right

    @property
    def height(self) -> float:
        """Height of the whole."""
        return TOP + MAIN + GAP + self.strip + BOTTOM

    def box(
        self, left: float, base: float, tall: float, width: float, height: float
    ) -> tuple[float, float, float, float]:
        """Return axes at a place as shares of the figure."""
        return left / width, base / height, self.inner / width, tall / height


def drawn(rows: Sequence[Row], ask: Ask, form: str) -> bytes:
    """Draw rows as svg or png.

    Raises
    ------
    InputError
        There is nothing to draw, matplotlib is not installed, or the facets are too many.
    """
    with needed("plot", "matplotlib", "plot"):
        import matplotlib
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        held = io.BytesIO()
        metadata = (
            {"Date": None, "Creator": "planner", "Title": title(ask)} if form == "svg" else {"Software": "planner"}
        )
        _figure(rows, ask).savefig(held, format=form, dpi=150, metadata=metadata)
    return held.getvalue()


def title(ask: Ask) -> str:
    """Name the picture."""
    by = f", by {label(ask.facet)}" if ask.facet else ""
    return f"{label(ask.y)} over {label(ask.x)}{by}"


def facets_of(rows: Sequence[Row], facet: str | None) -> list[tuple[str, list[Row]]]:
    """Part the rows by the value of a path, in the order of the values; one part without it."""
    if facet is None:
        return [("", list(rows))]
    values = sorted({by_value(r.get(facet)) for r in rows})
    if len(values) > MOST_FACETS:
        raise InputError(
            f"--facet {facet}: has {len(values)} values; at most {MOST_FACETS} pictures fit, use it as --color or -x"
        )
    parts = [[r for r in rows if by_value(r.get(facet)) == v] for v in values]
    return [(f"{plain(facet.rpartition('.')[2])}: {quantity(facet, p[0].get(facet))}", p) for p in parts]


def by_value(value: Any) -> tuple[int, float, str]:
    """Sort numbers before words, and both before nothing."""
    if isinstance(value, (int, float)):
        return 0, float(value), ""
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))


def _figure(rows: Sequence[Row], ask: Ask) -> "Figure":
    from matplotlib.figure import Figure

    parts = facets_of(rows, ask.facet)
    strips = [
        best_by_x([r for r in p if planned(r)], ask.x, ask.y, largest=ask.senses is not None and ask.senses[1] == "max")
        for _, p in parts
    ]
    lanes = max(1, *(len(lanes_of(best, ask.x)) for best in strips))
    told = [c.told for c in changes_of(strips[0], ask.x)] if len(parts) == 1 else []
    foot = LINE * min(len(told), MOST_TOLD + 1)
    shades = _shades(rows, ask.color)
    across, down = min(3, len(parts)), -(-len(parts) // 3)
    cell = Cell(
        7.2 if across == 1 else 4.6, strip=0.25 + 0.2 * lanes, right=0.15 if ask.color is None or shades else 1.0
    )
    width, height = cell.width * across, cell.height * down + foot
    figure = Figure(figsize=(width, height))
    panels: list[Axes] = []
    for n, ((name, part), best) in enumerate(zip(parts, strips, strict=True)):
        row, column = divmod(n, across)
        left, base = column * cell.width + LEFT, height - (row + 1) * cell.height + BOTTOM
        first = panels[0] if panels else None
        main = figure.add_axes(cell.box(left, base + cell.strip + GAP, MAIN, width, height), sharex=first, sharey=first)
        _panel(main, part, ask, shades)
        main.set_title(name or title(ask), fontsize=10)
        below = figure.add_axes(cell.box(left, base, cell.strip, width, height), sharex=main)
        _name_axes(main, below, ask)
        panels.append(main)
        draw_strip(below, best, ask.x, inches=cell.inner)
    _make_room(panels, cell.inner)
    _tell(figure, told, foot / height)
    return figure


def _make_room(panels: "Sequence[Axes]", inches: float) -> None:
    """Raise the top of all plots where the legend of one would lie on its points."""
    most = 0.0
    for axes in panels:
        legend = axes.get_legend()
        names = [t.get_text() for t in legend.get_texts()] + [legend.get_title().get_text()] if legend else []
        if not names:
            continue
        wide, tall = (0.55 + LETTER * max(map(len, names))) / inches, (0.15 + LINE * len(names)) / MAIN
        points = [p for line in axes.get_lines() if line.get_transform() == axes.transData for p in line.get_xydata()]
        points += [p for dots in axes.collections for p in dots.get_offsets()]
        places = [axes.transAxes.inverted().transform(axes.transData.transform(p)) for p in points]
        if any(x > 1 - wide and y > 1 - tall for x, y in places):
            most = max(most, tall)
    if most:
        turn = panels[0].transData + panels[0].transAxes.inverted()
        low = panels[0].get_xlim()[0]
        panels[0].set_ylim(
            top=turn.inverted().transform((turn.transform((low, panels[0].get_ylim()[0]))[0], 1 / (1 - most)))[1]
        )


def _tell(figure: "Figure", told: Sequence[str], top: float) -> None:
    """Write the changes below the picture, the first at the top."""
    lines = list(told[:MOST_TOLD])
    if len(told) > MOST_TOLD:
        lines.append(f"and {len(told) - MOST_TOLD} more changes")
    for n, text in enumerate(lines):
        figure.text(0.02, top * (1 - (n + 0.4) / len(lines)), text, fontsize=7.5, va="center")


def _name_axes(main: "Axes", below: "Axes", ask: Ask) -> None:
    """Set scales, ticks in the figures' units, and names."""
    from matplotlib.ticker import FuncFormatter, LogFormatter

    class LogTicks(LogFormatter):  # type: ignore[misc]
        """Names the ticks that have room for it, in the figure's unit."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return tick(self.path, x) if super().__call__(x, pos) else ""

    if "x" in ask.log:
        main.set_xscale("log")
    if "y" in ask.log:
        main.set_yscale("log")
    for axis, path, log in ((below.xaxis, ask.x, "x" in ask.log), (main.yaxis, ask.y, "y" in ask.log)):
        if log:
            for set_formatter in (axis.set_major_formatter, axis.set_minor_formatter):
                named = LogTicks(minor_thresholds=(1.5, 0.6))
                named.path = path
                set_formatter(named)
        else:
            axis.set_major_formatter(FuncFormatter(lambda v, _, p=path: tick(p, v)))
    for axes in (main, below):
        axes.tick_params(which="both", length=3.0, pad=3.5)
    main.tick_params(labelbottom=False, which="both")
    below.tick_params(axis="y", length=0)
    main.set_ylabel(label(ask.y))
    below.set_xlabel(label(ask.x))
    main.grid(color="#E4E4E4", linewidth=0.6)
    main.set_axisbelow(True)


def tick(path: str, value: float) -> str:
    """Name a tick; only money carries its unit there."""
    return quantity(path, value) if "usd" in path else short(value)


def _shades(rows: Sequence[Row], color: str | None) -> dict[Any, str] | None:
    """Give each value of a path a colour; None where there are none or the values form a scale."""
    if color is None:
        return None
    values = sorted({r.get(color) for r in rows if planned(r)}, key=by_value)
    return dict(zip(values, COLOURS, strict=False)) if len(values) <= MOST_COLOURS else None


def _panel(axes: "Axes", rows: Sequence[Row], ask: Ask, shades: dict[Any, str] | None) -> None:
    points = [(number(r, ask.x), number(r, ask.y), r) for r in rows if planned(r)]
    shown = [(x, y, r) for x, y, r in points if x is not None and y is not None]
    if ask.color is not None and shades is None:
        _scale(axes, shown, ask)
    elif ask.color is not None and shades is not None:
        for value, shade in shades.items():
            _group(
                axes, [(x, y) for x, y, r in shown if r.get(ask.color) == value], ask, shade, quantity(ask.color, value)
            )
    else:
        _group(axes, [(x, y) for x, y, _ in shown], ask, COLOURS[0], "on the frontier" if ask.senses else "plans")
    _without(axes, rows, ask, len(points) - len(shown))
    handles, names = axes.get_legend_handles_labels()
    if handles:
        heading = label(ask.color) if ask.color is not None and shades is not None else None
        axes.legend(
            handles,
            names,
            fontsize=7.5,
            title=heading,
            title_fontsize=7.5,
            framealpha=0.85,
            edgecolor="none",
            loc="upper right",
        )


def _group(axes: "Axes", points: Sequence[tuple[float, float]], ask: Ask, shade: str, name: str) -> None:
    """Draw points of one colour: the frontier joined, what it dominates in grey."""
    if not points:
        return
    if ask.senses is None:
        axes.scatter(*zip(*points, strict=True), s=18, color=shade, label=name, zorder=3)
        return
    front = frontier(points, ask.senses)
    rest = [p for i, p in enumerate(points) if i not in set(front)]
    if rest:
        known = "dominated" in axes.get_legend_handles_labels()[1]
        axes.scatter(*zip(*rest, strict=True), s=14, color=GREY, label=None if known else "dominated", zorder=2)
    xs, ys = zip(*(points[i] for i in front), strict=True)
    axes.plot(xs, ys, color=shade, marker="o", markersize=4, linewidth=1.2, label=name, zorder=3)


def _scale(axes: "Axes", shown: Sequence[tuple[float, float, Row]], ask: Ask) -> None:
    """Draw points coloured on a scale, with the frontier of all."""
    told = [(x, y, number(r, ask.color or "")) for x, y, r in shown]
    held = [(x, y, c) for x, y, c in told if c is not None]
    if not held:
        raise InputError(
            f"--color {ask.color}: has more than {MOST_COLOURS} values and they are no numbers; choose another path"
        )
    points = [(x, y) for x, y, _ in held]
    if ask.senses is not None:
        front = frontier(points, ask.senses)
        axes.plot(
            *zip(*(points[i] for i in front), strict=True), color="black", linewidth=1.0, label="frontier", zorder=2
        )
    dots = axes.scatter(*zip(*points, strict=True), c=[c for _, _, c in held], s=18, cmap="viridis", zorder=3)
    figure = axes.get_figure()
    if figure is not None:
        figure.colorbar(
            dots,
            cax=axes.inset_axes((1.02, 0, 0.03, 1)),
            label=label(ask.color or ""),
            format=lambda v, _: tick(ask.color or "", v),
        )


def _without(axes: "Axes", rows: Sequence[Row], ask: Ask, unplaced: int) -> None:
    """Mark along the foot where there is no plan, and count the reasons."""
    none = [(number(r, ask.x), why_none(r)) for r in rows if not planned(r)]
    reasons = Counter(why for _, why in none)
    for n, (why, count) in enumerate(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))):
        if n == MOST_REASONS:
            axes.plot([], [], " ", label=f"and {len(reasons) - n} more reasons")
            break
        xs = [x for x, w in none if w == why and x is not None]
        text = why if len(why) <= 60 else why[:59] + "…"
        foot = axes.get_xaxis_transform()
        axes.plot(
            xs,
            [0.02 + 0.03 * n] * len(xs),
            "x",
            color=FAILED,
            markersize=5,
            transform=foot,
            label=f"{count} {text}",
            clip_on=False,
        )
    if unplaced:
        axes.plot([], [], " ", label=f"{unplaced} plans without these figures")
