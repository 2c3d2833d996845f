"""Pictures of one plan on matplotlib axes of the caller's: its step, memory, bill and sites."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from planner.errors import InputError
from planner.optional_packages import needed
from planner.plan.plan import Plan
from planner.report.plots.figure import COLOURS
from planner.report.plots.labels import plain
from planner.report.plots.projection import albers, flat, in_us
from planner.report.statements.statement import name_of_part
from planner.units import counted, money

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Section = TypeVar("Section")
SMALL = 0.002  # share of a total below which a part is drawn with the others
LARGEST = 400.0  # square points of the largest site


def plot_step(plan: Plan, ax: "Axes | None" = None) -> "Axes":
    """Draw the parts of a training step, in seconds, the longest first."""
    m, axes = _section(plan, "layout", plan.layout).metrics, _axes(ax)
    _bars(axes, {name_of_part(k): v for k, v in m.breakdown_seconds.items()}, "s")
    axes.set_xlabel("seconds of a step")
    axes.set_title(f"{plan.instance.name}: step of {m.step_seconds:.4g} s, MFU {m.mfu:.1%}")
    return axes


def plot_memory(plan: Plan, ax: "Axes | None" = None) -> "Axes":
    """Draw what the worst GPU holds, in GB, with the limit as a line."""
    m, axes, left = _section(plan, "layout", plan.layout).metrics, _axes(ax), 0.0
    parts = [(name, size / 1e9) for name, size in m.memory_breakdown_bytes.items() if size > 0]
    for i, (name, size) in enumerate(sorted(parts, key=lambda x: -x[1])):
        axes.barh([0], [size], left=left, color=COLOURS[i % len(COLOURS)], label=f"{plain(name)} {size:.1f}")
        left += size
    axes.axvline(m.memory_limit_bytes / 1e9, color="black", linestyle="--", label="limit")
    axes.set_yticks([])
    axes.set_xlabel("GB on the worst GPU")
    axes.set_title(f"{plan.instance.name}: {m.memory_bytes_per_gpu / 1e9:.1f} of {m.memory_limit_bytes / 1e9:.1f} GB")
    axes.legend(fontsize="small")
    return axes


def plot_cost(plan: Plan, ax: "Axes | None" = None) -> "Axes":
    """Draw the capital by part, in dollars, the dearest first."""
    parts, axes = _section(plan, "cost", plan.cost).capex_usd, _axes(ax)
    _bars(axes, parts, "usd")
    axes.set_xlabel("USD")
    axes.set_title(f"{plan.instance.name}: {money(sum(parts.values()))} of capital")
    return axes


def plot_sites(plan: Plan, ax: "Axes | None" = None) -> "Axes":
    """Draw the sites on a map, each as large as its power, with the links between them."""
    section, axes = _section(plan, "sites", plan.sites), _axes(ax)
    sites = section.sites
    places = [(s.latitude, s.longitude) for s in sites]
    points = [albers(*p) for p in places] if all(in_us(*p) for p in places) else flat(places)
    at = dict(zip((s.id for s in sites), points, strict=True))
    for link in section.links:
        (x0, y0), (x1, y1) = at[link.a], at[link.b]
        axes.plot([x0, x1], [y0, y1], color=COLOURS[5], zorder=1)
    largest = max(s.facility_mw for s in sites)
    sizes = [LARGEST * s.facility_mw / largest for s in sites]
    axes.scatter([p[0] for p in points], [p[1] for p in points], s=sizes, color=COLOURS[0], zorder=2)
    for s in sites:
        axes.annotate(f"{s.id}\n{s.facility_mw:,.0f} MW", at[s.id], xytext=(6, 6), textcoords="offset points")
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_axis_off()
    axes.margins(0.2)
    axes.set_title(f"{plan.instance.name}: {counted(len(sites), 'site')}")
    return axes


def _section(plan: Plan, name: str, section: Section | None) -> Section:
    if section is None:
        raise InputError(f"{name}: is not in the plan ({plan.status}); draw a plan that has it")
    return section


def _axes(ax: "Axes | None") -> "Axes":
    """Return the caller's axes, or those of a new figure."""
    if ax is not None:
        return ax
    with needed("plot", "matplotlib", "plot"):
        from matplotlib import pyplot
    axes: Any = pyplot.subplots(layout="constrained")[1]
    return axes


def _bars(axes: "Axes", parts: Mapping[str, float], unit: str) -> None:
    """Draw parts as bars with their figures, the largest on top; small ones together."""
    total = sum(parts.values())
    shown = {name: x for name, x in parts.items() if x > SMALL * total}
    rest = total - sum(shown.values())
    rows = sorted(shown.items(), key=lambda x: -x[1])
    if rest > 0:
        rows.append(("other", rest))
    names = [plain(name) for name, _ in rows]
    drawn = axes.barh(names, [x for _, x in rows], color=COLOURS[0])
    texts = [money(x) if unit == "usd" else f"{x:.3g} {unit}" for _, x in rows]
    axes.bar_label(drawn, labels=texts, padding=3, fontsize="small")
    axes.invert_yaxis()
    axes.margins(x=0.15)
