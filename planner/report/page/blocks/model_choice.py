"""The model that was chosen and where the ideal's compute goes, and the simulated transport, as blocks."""

from collections.abc import Callable, Iterator
from typing import Any

from planner.instance.model_family import ModelChoice
from planner.plan.plan import Plan
from planner.report.page.drawings.bars import Limit, colours, stacked
from planner.report.page.parts import Block, Cell, Picture, Row, Swatch, Table, figures_of
from planner.report.plots.labels import plain
from planner.units import short

IDEAL = (
    "Where the compute of the ideal goes: every GPU at its peak until the deadline; "
    "the first part is what trains the model."
)
BOUND = "6·N·D of the model; the dashed line is the compute proven to be too much for the deadline."


def model_choice(plan: Plan) -> Iterator[Block]:
    """Show the best model for the deadline, its bound, the model at full use, and what each part of a step takes."""
    x = plan.model_choice
    if x is None:
        return
    parts = dict(sorted(x.compute_shares.items(), key=lambda item: (item[0] != "used", -item[1], item[0])))
    shades, cell = colours(list(parts)), figures_of("model_choice.compute_shares", parts)
    shares = [(Swatch(plain(k), shades[k]), cell(k, _percent)) for k in parts]
    goes = stacked("Where the compute of the ideal goes", [("6·N·D at full use", parts, None)], shades, _percent)
    bars = [
        ("had by the deadline", {"had": x.flop}, Limit(x.flop_bound, "proven too much")),
        ("at full use", {"ideal": x.ideal.flop}, None),
    ]
    compute = stacked("Compute that is had, its bound and the ideal's", bars, {"had": "c0", "ideal": "c5"}, _flop)
    share_table = Table("Shares of the ideal's compute", ("part", "share"), shares)
    pictures = (Picture(goes, IDEAL), Picture(compute, BOUND))
    yield Block("The best model for the deadline", pictures, (_models(plan, x), share_table, _tried(x)))


def _models(plan: Plan, x: ModelChoice) -> Table:
    chosen, ideal = figures_of("model_choice", x), figures_of("model_choice.ideal", x.ideal)

    def cells(name: str, show: Callable[[Any], str], *, bound: bool = False) -> tuple[Cell, ...]:
        return chosen(name, show), chosen(f"{name}_bound", show) if bound else "", ideal(name, show)

    rows: list[Row] = [
        ("6·N·D, FLOP", *cells("flop", _flop, bound=True)),
        ("parameters", *cells("parameters", short)),
        ("tokens", *cells("tokens", short)),
        ("loss, nats a token", *cells("loss", "{:.4f}".format, bound=True)),
        ("most tokens of a step", chosen("batch_tokens", short), "", ""),
    ]
    model = plan.instance.workload.model
    if not isinstance(model, str):
        shape = figures_of("instance.workload.model", model)
        rows += [(k, shape(k), "", "") for k in ("layers", "hidden", "heads")]
    return Table("Models", ("figure", "chosen", "bound", "at full use"), rows)


def _tried(x: ModelChoice) -> Table:
    rows = [(_flop(float(flop)), f"{days:,.1f}") for flop, days in x.days_by_flop.items()]
    return Table("Compute that was tried", ("6·N·D, FLOP", "days to train"), rows)


def transport(plan: Plan) -> Iterator[Block]:
    """Show the slowdown that runs of the transport gave, beside the constant that it replaces."""
    x = plan.transport
    if x is None:
        return
    bars = [
        ("simulated", {"time": x.slowdown}, Limit(1.0, "ideal")),
        ("given, not used", {"time": x.configured_slowdown}, None),
    ]
    svg = stacked("Slowdown of the transport over the fluid ideal", bars, {"time": "c0"}, "{:.3f} x".format)
    cell = figures_of("transport", x)
    rows: list[Row] = [
        ("transport", cell("transport", str)),
        ("slowdown, simulated", cell("slowdown", "{:.3f}".format)),
        ("slowdown, given and not used", cell("configured_slowdown", "{:.3g}".format)),
        ("of the runs", f"percentile {x.percentile:g} of {x.seeds:,} seeds"),
        ("traffic", f"{x.pattern} of {x.hosts:,} hosts"),
        ("reference tree", f"{x.tiers} tiers of {x.switch}, {x.oversubscription:.3g} : 1 at the leaves"),
    ]
    picture = Picture(svg, "Time of the slowest flow over the fluid ideal, which is the dashed line.")
    table = Table("Runs on a reference tree", ("figure", "value"), rows, ("value",))
    yield Block("Transport, simulated", (picture,), (table,))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if abs(value) >= 1e-3 else f"{100 * value:.2g} %"


def _flop(value: float) -> str:
    return f"{value:.4g}"
