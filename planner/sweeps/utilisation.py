"""Utilisation of GPUs against training compute, as `planner limits` shows it: points, fall, wall, table and plot."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from planner.errors import InputError
from planner.instance.base_types import Frozen
from planner.instance.instance import Instance
from planner.models.joint.joint_solution import strategy_of
from planner.models.joint.search.free_network import fewest_racks
from planner.models.model_choice import instance_with, model_for
from planner.physics.training import scaling_laws, step_prediction, transformer
from planner.physics.training.parallel_strategy import layout_values
from planner.physics.training.step_prediction import SECONDS_PER_DAY, free_conditions, machine_of
from planner.plan.certificate import LayoutChoices
from planner.plan.plan_sections import in_short
from planner.simulation.simulated_slowdown import transport_slowdown_of
from planner.units import counted, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FALL = 0.8  # of the best utilisation: below it the run wastes a fifth of what GPUs can do at their best
TREND = 3  # points trained in time, from which on a fall is one and no accident


class LimitLayout(LayoutChoices):
    """The layout by which a point of GPU utilisation against compute is trained."""

    data_parallel: int
    microbatches_per_step: int


class LimitPoint(Frozen):
    """A point of GPU utilisation against training compute: the best one at a compute in FLOP, with its bound."""

    flop: float = Field(description="6·N·D of the model.")
    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    reason: str = ""
    parameters: float
    tokens: float
    layers: int
    hidden: int
    batch_tokens: float
    gpus: int | None = Field(None, description="Fewest GPUs that train it by the deadline.")
    gpus_too_few: int = Field(0, description="Most GPUs with which it is proven that no layout meets the deadline.")
    days: float | None = None
    utilisation: float | None = Field(None, description="6·N·D over the peak of these GPUs for the whole duration.")
    utilisation_bound: float | None = Field(None, description="No layout that meets the deadline uses its GPUs better.")
    loss: float
    layout: LimitLayout | None = None
    step_seconds: float | None = None
    shares: dict[str, float] = Field(default_factory=dict, description="Parts of the step.")


def limit_point(
    instance: Instance, flop: float, *, days: float, tolerance: float, time_limit: float | None
) -> LimitPoint:
    """Return the best GPU utilisation by which the law's model of a compute trains in `days`. InputError: no law."""
    choose = instance.workload.choose
    if choose is None:
        raise InputError("workload.choose: is missing; say by which law and of which family models are chosen")
    candidate = model_for(choose, flop)
    asked = instance_with(instance, candidate)
    machine = machine_of(asked)
    peak = machine.peak_flop_per_second * machine.rack.gpus
    full = flop / (peak * days * SECONDS_PER_DAY * asked.workload.availability)  # racks at full use
    found = fewest_racks(asked, days, tolerance=tolerance, time_limit=time_limit)
    known: dict[str, Any] = {
        "flop": float(transformer.training_flop(candidate.parameters, candidate.tokens)),
        "status": found.status,
        "parameters": candidate.parameters,
        "tokens": candidate.tokens,
        "layers": candidate.model.layers,
        "hidden": candidate.model.hidden,
        "batch_tokens": asked.limits.max_batch_tokens or 0.0,
        "loss": scaling_laws.loss(choose.loss_law, candidate.parameters, candidate.tokens),
        "gpus_too_few": found.too_few * machine.rack.gpus,
    }
    if found.racks is None or found.plan is None:
        none = f"no layout trains it in {days:g} days, whatever the GPUs"
        return LimitPoint(**known, reason=none if found.status == "infeasible" else "the time limit came first")
    strategy, conditions = strategy_of(found.plan), free_conditions(transport_slowdown_of(asked.network))
    breakdown = step_prediction.step_breakdown(machine, conditions, strategy)
    seconds = sum(breakdown.values())
    layout = {key: own for key, own in layout_values(strategy).items() if key in LimitLayout.model_fields}
    return LimitPoint(
        **known,
        gpus=found.racks * machine.rack.gpus,
        days=found.days,
        utilisation=full / found.racks,
        utilisation_bound=min(1.0, full / found.too_few) if found.too_few else 1.0,
        layout=LimitLayout.model_validate(layout),
        step_seconds=seconds,
        shares={part: time / seconds for part, time in breakdown.items() if time > 0},
    )


def fall(points: Sequence[LimitPoint]) -> float | None:
    """Return the training FLOP from which GPU utilisation stays under 80 % of its best, log-interpolated, or None."""
    trained = [(point.flop, point.utilisation) for point in points if point.utilisation is not None]
    line = FALL * max((use for _, use in trained), default=0.0)
    last = max((i for i, (_, use) in enumerate(trained) if use >= line), default=0)
    if len(trained) < TREND or last == len(trained) - 1:
        return None
    (before, more), (after, less) = trained[last : last + 2]
    return float(before * (after / before) ** ((more - line) / (more - less)))


def wall(points: Sequence[LimitPoint]) -> tuple[float, float] | None:
    """Return utilisation's wall: the last FLOP trained in time and the next; None unless the rest are infeasible."""
    done = [i for i, point in enumerate(points) if point.utilisation is not None]
    after = points[done[-1] + 1 :] if done else points
    if not done or not after or any(point.status != "infeasible" for point in after):
        return None
    return points[done[-1]].flop, after[0].flop


def utilisation_table(points: Sequence[LimitPoint], days: float) -> Iterator[str]:
    """Write rows of GPU utilisation against training FLOP, each with its layout, and where it falls and ends."""
    yield f"{'FLOP':>9} {'params':>8} {'tokens':>8} {'batch':>8} {'GPUs':>10} {'use':>7} {'bound':>7}  layout"
    for point in points:
        head = f"{point.flop:9.2e} {point.parameters:8.2g} {point.tokens:8.2g} {point.batch_tokens:8.2g}"
        if point.layout is None or point.utilisation is None:
            yield f"{head} {'-':>10} {'-':>7} {'-':>7}  {point.reason}"
            continue
        use, bound, layout = 100 * point.utilisation, 100 * (point.utilisation_bound or 1), point.layout
        degrees = in_short((*layout.degrees, layout.pipeline_parallel, layout.data_parallel), layout.virtual_stages)
        batch = f"ZeRO-{layout.zero_stage}, {layout.microbatches_per_step} x {layout.microbatch_sequences}"
        # All parts of a step but those that train the model.
        lost = [(share, part) for part, share in point.shares.items() if part not in ("gemm", "attention")]
        share, part = max(lost, default=(0.0, ""))
        proof = "" if point.status == "optimal" else "; not proven"
        text = f"{degrees}, {batch}; {words(part)} {100 * share:.0f} %{proof}"
        yield f"{head} {point.gpus or 0:10.3g} {use:6.1f}% {bound:6.1f}%  {text}"
    trained = [point.utilisation for point in points if point.utilisation is not None]
    drop, ends = fall(points), wall(points)
    where = f"under {100 * FALL:.0f} % of it " + (f"from about {drop:.1e} FLOP on" if drop else "at no point in time")
    where = where if len(trained) >= TREND else f"{counted(len(trained), 'point')} in time, too few to show a fall"
    yield f"best use {100 * max(trained):.1f} %; {where}" if trained else "no point has a layout in time"
    last = ends and f"a layout is in time at {ends[0]:.1e} FLOP; none is at {ends[1]:.1e} or a point above it, proven"
    none = all(point.status == "infeasible" for point in points)
    yield f"{days:g} days: {last or ('no point is in time, proven' if none else 'no end is proven in this range')}"


def draw_utilisation(points: Sequence[LimitPoint], days: float, figure: "Figure") -> None:
    """Draw GPU utilisation over training FLOP with its bound, its fall and its wall."""
    figure.set_size_inches(7, 4)
    axes = figure.add_subplot()
    trained = [point for point in points if point.utilisation is not None]
    flop = [point.flop for point in trained]
    use = [100 * (point.utilisation or 0) for point in trained]
    axes.semilogx(flop, use, marker="o", markersize=3, label="best layout")
    axes.semilogx(flop, [100 * (point.utilisation_bound or 1) for point in trained], linestyle=":", label="bound")
    end = (wall(points) or (math.nan, math.nan))[1]
    for where, text in ((fall(points), "80 % of the best"), (end, "no layout in time")):
        if where is not None and math.isfinite(where):
            axes.axvline(where, color="grey", linewidth=0.8)
            axes.text(where, 2, f" {text}: {where:.0e}", rotation=90, va="bottom", fontsize=7)
    axes.set(xlabel="training compute, FLOP", ylabel="utilisation, %", ylim=(0, None))
    axes.set(title=f"Best use of the GPUs, {days:g} days")
    axes.legend(fontsize=8)
