"""Rules of the chosen model: buildable, of the scaling law's size, trained by the deadline, with figures recomputed."""

from collections.abc import Iterator
from typing import NamedTuple

from planner.checks.rule import Rule, at_most, broken, must_be, must_equal
from planner.instance.workload import Choose, Ideal, LossLaw, Model, ModelChoice, PointsLaw, PowerOf
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import step, transformer
from planner.physics.training.layer_time import SECONDS_PER_DAY
from planner.plan.certificate import Violation


class CheckedModelChoice(NamedTuple):
    """The question of a model choice, the figures that the plan states of the model, and the model itself."""

    asked: Choose
    stated: ModelChoice
    model: Model


def _choices(physics: PlanPhysics) -> Iterator[CheckedModelChoice]:
    """Yield the choice where a model was asked for and the plan states one."""
    asked, stated, model = physics.instance.workload.choose, physics.plan.model_choice, physics.instance.workload.model
    if asked is not None and stated is not None and isinstance(model, Model):
        yield CheckedModelChoice(asked, stated, model)


def stated_loss(physics: PlanPhysics) -> float | None:
    """Return the loss of the plan's model and tokens by the law that states it; None where no model was chosen."""
    for choice in _choices(physics):
        law = choice.asked.law if isinstance(choice.asked.law, LossLaw) else choice.asked.loss
        size = float(transformer.active_parameters(choice.model, embedding=True))
        return transformer.loss(law, size, physics.instance.workload.tokens) if isinstance(law, LossLaw) else None
    return None


def chosen(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that a model is chosen where one was asked for, and only there."""
    asked, stated = physics.instance.objective.minimize == "loss", physics.plan.model_choice is not None
    if stated != asked:
        yield broken("chosen", f"{int(stated)} choices of a model in the plan, {int(asked)} asked for")


def buildable(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that heads, layers and width divide as the family asks, and the width's ratio to the depth."""
    for choice in _choices(physics):
        model, family = choice.model, choice.asked.family
        multiples = {
            "heads": (model.heads, family.heads_multiple_of),
            "layers": (model.layers, family.layers_multiple_of),
            "hidden": (model.hidden, model.heads),
        }
        for what, (value, part) in multiples.items():
            if value % part:
                yield broken(f"buildable[{what}]", f"{value} is no multiple of {part}")
        yield from must_equal("buildable[head_size]", "head_size", model.head, family.head_size)
        rule, aspect, what = "buildable[aspect]", model.hidden / model.layers, "hidden over layers"
        yield from at_most(rule, family.min_aspect, aspect, f"{what} at least", what)
        yield from at_most(rule, aspect, family.max_aspect, what, f"{what} at most")


def choice_figures(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that size, compute and losses follow from the model, its tokens and the laws, and that shares add up."""
    for choice in _choices(physics):
        loss, tokens = stated_loss(physics), physics.instance.workload.tokens
        if loss is None:
            return
        size = float(transformer.active_parameters(choice.model, embedding=True))
        flop, stated = float(transformer.training_flop(size, tokens)), choice.stated
        yield from must_equal("choice_figures[parameters]", "parameters", stated.parameters, size)
        yield from must_equal("choice_figures[tokens]", "tokens", stated.tokens, tokens)
        yield from must_equal("choice_figures[flop]", "6·N·D", stated.flop, flop)
        yield from must_equal("choice_figures[loss]", "loss", stated.loss, loss)
        shares, rule = sum(stated.compute_shares.values()), "choice_figures[compute_shares]"
        yield from must_equal(rule, "sum of the shares of the ideal", shares, 1.0)
        yield from _law_figures(physics, choice, size)


def _law_figures(physics: PlanPhysics, choice: CheckedModelChoice, size: float) -> Iterator[Violation]:
    law, stated = choice.asked.law, choice.stated
    rate = choice.asked.assumed_flop_per_second
    gpus, seconds = (
        sum(physics.racks_by_site.values()) * physics.gpus_per_rack,
        (physics.instance.limits.deadline_days or 0.0) * SECONDS_PER_DAY,
    )
    machine = step.machine_of(physics.instance)
    peak = machine.gpu.peak_flop_per_second[machine.precision.compute]
    full = float(transformer.budget_flop(gpus * peak, seconds))
    yield from _ideal_figures(choice, "ideal", stated.ideal, full)
    yield from must_be(
        "choice_figures[assumed]", "whether a rate is assumed", stated.assumed is not None, rate is not None
    )
    if rate is not None and stated.assumed is not None:
        yield from _ideal_figures(
            choice, "assumed", stated.assumed, float(transformer.budget_flop(gpus * rate, seconds))
        )
    yield from _bound_figures(physics, choice, full)
    rule = "choice_figures[flop_bound]"
    yield from at_most(rule, stated.flop, stated.flop_bound, "FLOP of the model", "FLOP proven to be too many")
    if isinstance(law, (PointsLaw, LossLaw)):
        off = abs(size / transformer.best_parameters(law, stated.flop) - 1)
        slack = choice.asked.family.tolerance + choice.asked.tolerance
        yield from at_most("choice_figures[law]", off, slack, "away from the law's parameters", "allowed")


def _loss_at(choice: CheckedModelChoice, flop: float) -> tuple[float, float, float] | None:
    """Return parameters, tokens and loss of the model that the laws give for a compute, its shape left open."""
    law, loss = choice.asked.law, choice.asked.law if isinstance(choice.asked.law, LossLaw) else choice.asked.loss
    if not isinstance(law, (PointsLaw, LossLaw)) or not isinstance(loss, LossLaw):
        return None
    size = transformer.best_parameters(law, flop)
    tokens = transformer.tokens_for(size, flop)
    return size, tokens, transformer.loss(loss, size, tokens)


def _ideal_figures(choice: CheckedModelChoice, name: str, stated: Ideal, flop: float) -> Iterator[Violation]:
    figures = _loss_at(choice, flop)
    if figures is None:
        return
    rule = f"choice_figures[{name}]"
    for what, value in zip(("flop", "parameters", "tokens", "loss"), (flop, *figures), strict=True):
        yield from must_equal(rule, what, getattr(stated, what), value)


def _bound_figures(physics: PlanPhysics, choice: CheckedModelChoice, full: float) -> Iterator[Violation]:
    """Check the bound on loss and compute: no more compute than all GPUs have at their peak, and its own loss."""
    stated, at_bound = choice.stated, _loss_at(choice, choice.stated.flop_bound)
    batch = physics.instance.limits.max_batch_tokens or 0.0
    yield from must_equal("choice_figures[batch_tokens]", "tokens of a step at most", stated.batch_tokens, batch)
    most = max(full, stated.flop)
    yield from at_most("choice_figures[flop_bound]", stated.flop_bound, most, "FLOP, the bound", "FLOP at the peak")
    if at_bound is not None:
        loss = min(at_bound[2], stated.loss)
        yield from must_equal("choice_figures[loss_bound]", "loss at the bound", stated.loss_bound, loss)
    if physics.plan.objective.bound is not None:
        what = "bound on the loss against the choice's"
        yield from must_equal("choice_figures[loss_bound]", what, physics.plan.objective.bound, stated.loss_bound)
    for flop, days in stated.days_by_flop.items():
        if not (flop.replace(".", "").replace("e+", "").isdigit() and days > 0):
            yield broken("choice_figures[days_by_flop]", f"{days:g} days for {flop!r} FLOP")


def compute_shares(physics: PlanPhysics) -> Iterator[Violation]:
    """Check the shares of peak compute: 6·N·D at the peak, the loss to each part of the step, idle GPUs, and stops."""
    metrics, layout = physics.metrics, physics.plan.layout
    if metrics is None or layout is None:
        return
    for choice in _choices(physics):
        machine = step.machine_of(physics.instance)
        peak = machine.gpu.peak_flop_per_second[machine.precision.compute]
        used = layout.gpus_used
        share = (
            used / (used + layout.gpus_idle) * metrics.useful_share / metrics.step_seconds
        )  # of a second of the step
        size = float(transformer.active_parameters(choice.model, embedding=True))
        useful = float(transformer.training_flop(size, metrics.tokens_per_step)) / (peak * used) * share
        parts = {name: seconds * share for name, seconds in metrics.breakdown_seconds.items() if seconds > 0}
        parts["gemm"] = parts.get("gemm", 0.0) - useful
        parts |= {
            "used": useful,
            "idle GPUs": (1 - used / (used + layout.gpus_idle)) * metrics.useful_share,
            "stopped": 1 - metrics.useful_share,
        }
        for name in sorted(parts.keys() | choice.stated.compute_shares.keys()):
            stated, part = choice.stated.compute_shares.get(name, 0.0), parts.get(name, 0.0)
            if abs(stated - part) > 1e-9:
                yield from must_equal(f"compute_shares[{name}]", "share of the ideal's compute", stated, part)


def critical_batch(physics: PlanPhysics) -> Iterator[Violation]:
    """Check that a step is within the critical batch of the law, or is one sequence."""
    for choice in _choices(physics):
        law, stated = choice.asked.critical_batch, choice.stated
        if isinstance(law, PowerOf) and physics.metrics is not None:
            by_law = transformer.power(law, tokens=stated.tokens, flop=stated.flop, parameters=stated.parameters)
            limit = max(by_law, float(physics.instance.workload.sequence_length))
            tokens = physics.metrics.tokens_per_step
            yield from at_most("critical_batch", tokens, limit, "tokens a step", "tokens at most, by the law")


RULES: tuple[Rule, ...] = (chosen, buildable, choice_figures, compute_shares, critical_batch)
