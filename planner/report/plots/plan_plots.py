"""Pictures of one plan on matplotlib axes, and the staircase of money against days."""

import math
from collections.abc import Callable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from planner.errors import InputError, needed
from planner.plan.plan import Curve, Plan, proven_knee
from planner.plan.plan_sections import name_of_part
from planner.report.page.charts import ChartLine
from planner.report.page.drawings import projected
from planner.report.plots.sweep_plot import COLOURS, PlotRequest, Point, name_axes, picture_of
from planner.report.plots.sweep_rows import plain
from planner.units import amount, counted, money, power

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Section = TypeVar("Section")
SMALL = 0.002  # share of a total below which a part is drawn with the others
LARGEST = 400.0  # square points of the largest site


def plot_step(plan: Plan, ax: "Axes | None" = None) -> "Axes":
    """Draw the parts of a training step, in seconds, the longest first."""
    layout, axes = _begun(plan, "layout", plan.layout, ax)
    metrics = layout.metrics
    parts = {name_of_part(name): seconds for name, seconds in metrics.breakdown_seconds.items()}
    axes.set_title(f"{plan.instance.name}: step of {metrics.step_seconds:.4g} s, MFU {metrics.mfu:.1%}")
    return _bars(axes, parts, "seconds of a step", "{:.3g} s".format)


def plot_memory(plan: Plan, ax: "Axes | None" = None) -> "Axes":
    """Draw the memory of the fullest GPU by part, in GB, with the limit as a line."""
    layout, axes = _begun(plan, "layout", plan.layout, ax)
    metrics, left = layout.metrics, 0.0
    parts = [(name, size / 1e9) for name, size in metrics.memory_breakdown_bytes.items() if size > 0]
    for i, (name, size) in enumerate(sorted(parts, key=lambda part: -part[1])):
        axes.barh([0], [size], left=left, color=COLOURS[i % len(COLOURS)], label=f"{name_of_part(name)} {size:.1f}")
        left += size
    used, limit = metrics.memory_bytes_per_gpu / 1e9, metrics.memory_limit_bytes / 1e9
    axes.axvline(limit, color="black", linestyle="--", label="limit")
    axes.set(yticks=[], xlabel="GB on the fullest GPU", title=f"{plan.instance.name}: {used:.1f} of {limit:.1f} GB")
    axes.legend(fontsize="small")
    return axes


def plot_cost(plan: Plan, ax: "Axes | None" = None) -> "Axes":
    """Draw the capital by part, in dollars, the dearest first."""
    cost, axes = _begun(plan, "cost", plan.cost, ax)
    axes.set_title(f"{plan.instance.name}: {money(sum(cost.capex_usd.values()))} of capital")
    return _bars(axes, cost.capex_usd, "USD", money)


def plot_sites(plan: Plan, ax: "Axes | None" = None) -> "Axes":
    """Draw the sites on a map, each as large as its power, with the links between them."""
    section, axes = _begun(plan, "sites", plan.sites, ax)
    sites = section.sites
    points, _ = projected([(site.latitude, site.longitude) for site in sites])
    at = dict(zip((site.id for site in sites), points, strict=True))
    for link in section.links:
        (x0, y0), (x1, y1) = at[link.a], at[link.b]
        axes.plot([x0, x1], [y0, y1], color=COLOURS[5], zorder=1)
    largest = max(site.facility_mw for site in sites)
    sizes = [LARGEST * site.facility_mw / largest for site in sites]
    axes.scatter([point[0] for point in points], [point[1] for point in points], s=sizes, color=COLOURS[0], zorder=2)
    for site in sites:
        axes.annotate(f"{site.id}\n{power(site.facility_mw)}", at[site.id], xytext=(6, 6), textcoords="offset points")
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_axis_off()
    axes.margins(0.2)
    axes.set_title(f"{plan.instance.name}: {counted(len(sites), 'site')}")
    return axes


def _begun(plan: Plan, name: str, section: Section | None, ax: "Axes | None") -> tuple[Section, "Axes"]:
    """Return a section of a plan with the axes to draw it on. InputError: the plan has none, or no matplotlib."""
    if section is None:
        raise InputError(f"{name}: is not in the plan ({plan.status}); draw a plan that has it")
    if ax is not None:
        return section, ax
    with needed("plot", "matplotlib", "plot"):
        from matplotlib import pyplot
    axes: Any = pyplot.subplots(layout="constrained")[1]
    return section, axes


def _bars(axes: "Axes", parts: Mapping[str, float], label: str, show: Callable[[float], str]) -> "Axes":
    total = sum(parts.values())
    rows = sorted(((size, plain(name)) for name, size in parts.items() if size > SMALL * total), reverse=True)
    rest = total - sum(size for size, _ in rows)
    rows += [(rest, "other")] if rest > 0 else []
    drawn = axes.barh([name for _, name in rows], [size for size, _ in rows], color=COLOURS[0])
    axes.bar_label(drawn, labels=[show(size) for size, _ in rows], padding=3, fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel(label)
    return axes


MONEY, DAYS = "capital_usd", "days_to_train"
BELOW = "no plan is below, proven"
MARGIN = 1.15  # of the axis beyond the first and the last plan, where the curve has no end of its own


def curve_lines(curve: Curve) -> list[ChartLine]:
    """Return the lines that a curve is drawn as: the days that plans reach for some money, and those that are proven.

    A plan's days last until the next one's money; a bound for some capital holds for less too.
    """
    reached: list[Point] = []
    for point in curve.points:
        reached += [(point.capital_usd, reached[-1][1])] if reached else []
        reached.append((point.capital_usd, point.days_to_train))
    if reached:
        most = curve.most_usd or MARGIN * reached[-1][0]
        reached.append((max(most, reached[-1][0]), reached[-1][1]))
    proven: list[Point] = []  # money, and days of every plan of at most that money; the dearest first
    for point in reversed(curve.points):
        days = max(point.bound_days or 0.0, proven[-1][1] if proven else 0.0)
        proven += [(point.capital_usd, days)] if days > 0 else []
    bounds: list[Point] = []
    for usd, days in reversed(proven):
        bounds += [(bounds[-1][0] if bounds else curve.points[0].capital_usd / MARGIN, days), (usd, days)]
    return [line for line in (ChartLine("plans", reached, 0), ChartLine(BELOW, bounds, 1)) if line.points]


def staircase(curve: Curve, name: str, form: str) -> bytes:
    """Draw an instance's curve as svg or png, logarithmic where it can be. InputError: matplotlib is not installed."""
    return picture_of(lambda: _figure(curve, name), f"{name}: money against days", form)


def _figure(curve: Curve, name: str) -> "Figure":
    from matplotlib.figure import Figure

    figure, lines = Figure(figsize=(7.2, 4.4)), curve_lines(curve)
    axes = figure.add_axes((0.12, 0.12, 0.85, 0.8))
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
    name_axes(axes, axes, PlotRequest(x=MONEY, y=DAYS, log=log))
    axes.set_title(f"{name}: money against days", fontsize=10)
    return figure
