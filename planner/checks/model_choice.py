"""Rules of the chosen model: buildable, of the scaling law's size, trained by the deadline, with figures recomputed."""

from collections.abc import Iterator
from typing import NamedTuple

from planner.checks.rule import Violations, at_most, broken, figures, must_be, must_equal, needs
from planner.instance.workload import Choose, LossLaw, Model, ModelChoice, PointsLaw, PowerOf
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import step, transformer
from planner.physics.training.layer_time import SECONDS_PER_DAY
from planner.plan.plan_sections import LayoutMetrics, LayoutPlan


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


def chosen(physics: PlanPhysics) -> Violations:
    """Check that a model is chosen where one was asked for, and only there."""
    asked, stated = physics.instance.objective.minimize == "loss", physics.plan.model_choice is not None
    if stated != asked:
        yield broken("chosen", f"{int(stated)} choices of a model in the plan, {int(asked)} asked for")


def buildable(physics: PlanPhysics) -> Violations:
    """Check that heads, layers and width divide as the family asks, and the width's ratio to the depth."""
    for choice in _choices(physics):
        model, family = choice.model, choice.asked.family
        for what, value, part in (
            ("heads", model.heads, family.heads_multiple_of),
            ("layers", model.layers, family.layers_multiple_of),
            ("hidden", model.hidden, model.heads),
        ):
            if value % part:
                yield broken(f"buildable[{what}]", f"{value} is no multiple of {part}")
        yield from must_equal("buildable[head_size]", "head_size", model.head, family.head_size)
        rule, aspect, what = "buildable[aspect]", model.hidden / model.layers, "hidden over layers"
        yield from at_most(rule, family.min_aspect, aspect, f"{what} at least", what)
        yield from at_most(rule, aspect, family.max_aspect, what, f"{what} at most")


def _peak(physics: PlanPhysics) -> float:
    """Return the FLOP a second of one GPU at its peak."""
    machine = step.machine_of(physics.instance)
    return machine.gpu.peak_flop_per_second[machine.precision.compute]


def choice_figures(physics: PlanPhysics) -> Violations:
    """Check that size, compute and losses follow from the model, its tokens and the laws, and that shares add up."""
    for choice in _choices(physics):
        loss, (asked, stated, _), tokens = stated_loss(physics), choice, physics.instance.workload.tokens
        if loss is None:
            return
        size = float(transformer.active_parameters(choice.model, embedding=True))
        flop = float(transformer.training_flop(size, tokens))  # 6·N·D
        for name, value in {"parameters": size, "tokens": tokens, "flop": flop, "loss": loss}.items():
            yield from figures(f"choice_figures[{name}]", stated, {name: value})
        shares, rule = sum(stated.compute_shares.values()), "choice_figures[compute_shares]"
        yield from must_equal(rule, "sum of the shares of the ideal", shares, 1.0)
        rate, seconds = asked.assumed_flop_per_second, (physics.instance.limits.deadline_days or 0.0) * SECONDS_PER_DAY
        gpus = sum(physics.racks_by_site.values()) * physics.gpus_per_rack
        full = float(transformer.budget_flop(gpus * _peak(physics), seconds))
        given, assumed = stated.assumed is not None, rate is not None
        yield from must_be("choice_figures[assumed]", "whether a rate is assumed", given, assumed)
        ideals = [("ideal", stated.ideal, full)]
        if rate is not None and stated.assumed is not None:
            ideals.append(("assumed", stated.assumed, float(transformer.budget_flop(gpus * rate, seconds))))
        for name, ideal, budget in ideals:
            yield from figures(f"choice_figures[{name}]", ideal, _model_at(choice, budget))
        yield from _bound_figures(physics, choice, full)
        rule, bound = "choice_figures[flop_bound]", "FLOP proven to be too many"
        yield from at_most(rule, stated.flop, stated.flop_bound, "FLOP of the model", bound)
        if isinstance(asked.law, (PointsLaw, LossLaw)):
            off = abs(size / transformer.best_parameters(asked.law, stated.flop) - 1)
            slack = asked.family.tolerance + asked.tolerance
            yield from at_most("choice_figures[law]", off, slack, "away from the law's parameters", "allowed")


def _model_at(choice: CheckedModelChoice, flop: float) -> dict[str, float]:
    """Return compute, parameters, tokens and loss of the laws' model for it, its shape left open; none without laws."""
    law, loss = choice.asked.law, choice.asked.law if isinstance(choice.asked.law, LossLaw) else choice.asked.loss
    if not isinstance(law, (PointsLaw, LossLaw)) or not isinstance(loss, LossLaw):
        return {}
    size = transformer.best_parameters(law, flop)
    tokens = transformer.tokens_for(size, flop)
    return {"flop": flop, "parameters": size, "tokens": tokens, "loss": transformer.loss(loss, size, tokens)}


def _bound_figures(physics: PlanPhysics, choice: CheckedModelChoice, full: float) -> Violations:
    """Check the bound on loss and compute: no more compute than all GPUs have at their peak, and its own loss."""
    stated, at_bound, rule = choice.stated, _model_at(choice, choice.stated.flop_bound), "choice_figures[loss_bound]"
    batch, bound = physics.instance.limits.max_batch_tokens or 0.0, physics.plan.objective.bound
    yield from must_equal("choice_figures[batch_tokens]", "tokens of a step at most", stated.batch_tokens, batch)
    sides = "FLOP, the bound", "FLOP at the peak"
    yield from at_most("choice_figures[flop_bound]", stated.flop_bound, max(full, stated.flop), *sides)
    if at_bound:
        yield from figures(rule, stated, {"loss_bound": min(at_bound["loss"], stated.loss)})
    if bound is not None:
        yield from must_equal(rule, "bound on the loss against the choice's", bound, stated.loss_bound)
    for flop, days in stated.days_by_flop.items():
        if not (flop.replace(".", "").replace("e+", "").isdigit() and days > 0):
            yield broken("choice_figures[days_by_flop]", f"{days:g} days for {flop!r} FLOP")


@needs("metrics", "layout")
def compute_shares(physics: PlanPhysics, metrics: LayoutMetrics, layout: LayoutPlan) -> Violations:
    """Check the shares of peak compute: 6·N·D at the peak, the loss to each part of the step, idle GPUs, and stops."""
    for choice in _choices(physics):
        used, stated = layout.gpus_used, choice.stated.compute_shares
        at_work = used / (used + layout.gpus_idle)
        share = at_work * metrics.useful_share / metrics.step_seconds  # of a second of the step
        size = float(transformer.active_parameters(choice.model, embedding=True))
        useful = float(transformer.training_flop(size, metrics.tokens_per_step)) / (_peak(physics) * used) * share
        found = {name: seconds * share for name, seconds in metrics.breakdown_seconds.items() if seconds > 0}
        found["gemm"] = found.get("gemm", 0.0) - useful
        trained = metrics.useful_share
        found |= {"used": useful, "idle GPUs": (1 - at_work) * trained, "stopped": 1 - trained}
        for name in sorted(found.keys() | stated.keys()):
            given, own = stated.get(name, 0.0), found.get(name, 0.0)
            if abs(given - own) > 1e-9:
                yield from must_equal(f"compute_shares[{name}]", "share of the ideal's compute", given, own)


def critical_batch(physics: PlanPhysics) -> Violations:
    """Check that a step is within the critical batch of the law, or is one sequence."""
    for choice in _choices(physics):
        law, stated = choice.asked.critical_batch, choice.stated
        if isinstance(law, PowerOf) and physics.metrics is not None:
            by_law = transformer.power(law, tokens=stated.tokens, flop=stated.flop, parameters=stated.parameters)
            limit = max(by_law, float(physics.instance.workload.sequence_length))
            tokens = physics.metrics.tokens_per_step
            yield from at_most("critical_batch", tokens, limit, "tokens a step", "tokens at most, by the law")


RULES = (chosen, buildable, choice_figures, compute_shares, critical_batch)
