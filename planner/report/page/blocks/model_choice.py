"""The model that was chosen and where the ideal's compute goes, and the transport as its runs showed it, as blocks."""

from collections.abc import Iterator
from typing import Any

from planner.instance.model_family import ModelChoice
from planner.plan.plan import Plan
from planner.report.page.drawings.bars import Limit, colours, stacked
from planner.report.page.parts import Block, Cell, Picture, Swatch, Table, figure
from planner.report.plots.labels import plain, short


def choice(plan: Plan) -> Iterator[Block]:
    """Show the best model for the deadline, its bound, the model at full use, and what each part of the step takes of that."""
    x = plan.model_choice
    if x is None:
        return
    lost = dict(sorted(x.compute_shares.items(), key=lambda item: (item[0] != "used", -item[1], item[0])))
    shades = colours(list(lost))
    shares: list[tuple[Cell, ...]] = [
        (Swatch(plain(k), shades[k]), figure(f"model_choice.compute_shares.{k}", v, _percent(v))) for k, v in lost.items()
    ]
    goes = stacked("Where the compute of the ideal goes", [("6·N·D at full use", lost, None)], shades, _percent)
    told = "Where the compute of the ideal goes: every GPU at its peak until the deadline; the first part is what trains the model."
    had = [
        ("had by the deadline", {"had": x.flop}, Limit(x.flop_bound, "proven too much")),
        ("at full use", {"ideal": x.ideal.flop}, None),
    ]
    against = stacked("Compute that is had, its bound and the ideal's", had, {"had": "c0", "ideal": "c5"}, _flop)
    pictures = (
        Picture(goes, told),
        Picture(against, "6·N·D of the model; the dashed line is the compute proven to be too much for the deadline."),
    )
    lines = Table("Shares of the ideal's compute", ("part", "share"), tuple(shares))
    yield Block("The best model for the deadline", pictures, (_models(plan, x), lines, _tried(x)))


def _models(plan: Plan, x: ModelChoice) -> Table:
    def cells(name: str, told: Any, *, bound: bool) -> tuple[Cell, ...]:
        ways = [(f"model_choice.{name}", getattr(x, name)), (f"model_choice.ideal.{name}", getattr(x.ideal, name))]
        held = [figure(path, v, told(v)) for path, v in ways]
        return (
            held[0],
            figure(f"model_choice.{name}_bound", getattr(x, f"{name}_bound"), told(getattr(x, f"{name}_bound")))
            if bound
            else "",
            held[1],
        )

    rows: list[tuple[Cell, ...]] = [
        ("6·N·D, FLOP", *cells("flop", _flop, bound=True)),
        ("parameters", *cells("parameters", short, bound=False)),
        ("tokens", *cells("tokens", short, bound=False)),
        ("loss, nats a token", *cells("loss", lambda v: f"{v:.4f}", bound=True)),
        ("most tokens of a step", figure("model_choice.batch_tokens", x.batch_tokens, short(x.batch_tokens)), "", ""),
    ]
    model = plan.instance.workload.model
    if not isinstance(model, str):
        shape = ((k, getattr(model, k)) for k in ("layers", "hidden", "heads"))
        rows += [(k, figure(f"instance.workload.model.{k}", v, f"{v:,}"), "", "") for k, v in shape]
    return Table("Models", ("figure", "chosen", "bound", "at full use"), tuple(rows))


def _tried(x: ModelChoice) -> Table:
    rows = tuple((_flop(float(flop)), f"{days:,.1f}") for flop, days in x.days_by_flop.items())
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
    svg = stacked("Slowdown of the transport over the fluid ideal", bars, {"time": "c0"}, lambda v: f"{v:.3f} x")
    at = "transport"
    rows: list[tuple[Cell, ...]] = [
        ("transport", figure(f"{at}.transport", x.transport, x.transport)),
        ("slowdown, simulated", figure(f"{at}.slowdown", x.slowdown, f"{x.slowdown:.3f}")),
        ("slowdown, given and not used", figure(f"{at}.configured_slowdown", x.configured_slowdown, f"{x.configured_slowdown:.3g}")),
        ("of the runs", f"percentile {x.percentile:g} of {x.seeds:,} seeds"),
        ("traffic", f"{x.pattern} of {x.hosts:,} hosts"),
        ("reference tree", f"{x.tiers} tiers of {x.switch}, {x.oversubscription:.3g} : 1 at the leaves"),
    ]
    picture = Picture(svg, "Time of the slowest flow over the fluid ideal, which is the dashed line.")
    yield Block(
        "Transport, simulated",
        (picture,),
        (Table("Runs on a reference tree", ("figure", "value"), tuple(rows), ("value",)),),
    )


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if abs(value) >= 1e-3 else f"{100 * value:.2g} %"


def _flop(value: float) -> str:
    return f"{value:.4g}"
