"""Rules of the model that was chosen: buildable, of the law's size, trained in time, and its figures as they follow from it."""

from collections.abc import Iterator

from planner.checks.rule import Rule, at_most, broken, must_equal
from planner.instance.model_family import Choose, LossLaw, ModelChoice, PointsLaw, PowerOf
from planner.instance.workload import Model
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training import scaling_laws, transformer
from planner.plan.certificate import Violation


def _held(c: PlanPhysics) -> tuple[Choose, ModelChoice, Model] | None:
    choose, choice, model = c.instance.workload.choose, c.plan.model_choice, c.instance.workload.model
    if choose is None or choice is None or not isinstance(model, Model):
        return None
    return choose, choice, model


def stated_loss(c: PlanPhysics) -> float | None:
    """Return the loss of the plan's model and tokens by the law that tells it; None where no model was chosen."""
    held = _held(c)
    if held is None:
        return None
    choose, _, model = held
    law = choose.law if isinstance(choose.law, LossLaw) else choose.loss
    size = float(transformer.active_parameters(model, embedding=True))
    return scaling_laws.loss(law, size, c.instance.workload.tokens) if isinstance(law, LossLaw) else None


def chosen(c: PlanPhysics) -> Iterator[Violation]:
    """Say which model was chosen where one was asked for, and only there."""
    asked = c.instance.objective.minimize == "loss"
    if (c.plan.model_choice is not None) != asked:
        yield broken("chosen", f"{int(c.plan.model_choice is not None)} choices of a model held, {int(asked)} asked for")


def buildable(c: PlanPhysics) -> Iterator[Violation]:
    """Keep what must divide what, and the width within its bounds for the depth."""
    held = _held(c)
    if held is None:
        return
    choose, _, m = held
    f = choose.family
    for what, whole, part in (
        ("heads", m.heads, f.heads_multiple_of),
        ("layers", m.layers, f.layers_multiple_of),
        ("hidden", m.hidden, m.heads),
    ):
        if whole % part:
            yield broken(f"buildable[{what}]", f"{whole} is no multiple of {part}")
    yield from must_equal("buildable[head_size]", "head_size", m.head, f.head_size)
    yield from at_most(
        "buildable[aspect]", f.min_aspect, m.hidden / m.layers, "hidden over layers at least", "hidden over layers"
    )
    yield from at_most(
        "buildable[aspect]", m.hidden / m.layers, f.max_aspect, "hidden over layers", "hidden over layers at most"
    )


def choice_figures(c: PlanPhysics) -> Iterator[Violation]:
    """State size, compute and losses as they follow from the model, its tokens and the laws; the shares of the ideal sum to 1."""
    held, loss = _held(c), stated_loss(c)
    if held is None or loss is None:
        return
    choose, x, m = held
    size = float(transformer.active_parameters(m, embedding=True))
    tokens = c.instance.workload.tokens
    yield from must_equal("choice_figures[parameters]", "parameters", x.parameters, size)
    yield from must_equal("choice_figures[tokens]", "tokens", x.tokens, tokens)
    yield from must_equal("choice_figures[flop]", "6·N·D", x.flop, float(scaling_laws.training_flop(size, tokens)))
    yield from must_equal("choice_figures[loss]", "loss", x.loss, loss)
    yield from must_equal("choice_figures[compute_shares]", "sum of the shares of the ideal", sum(x.compute_shares.values()), 1.0)
    if choose.assumed_flop_per_second is not None and isinstance(choose.law, (PointsLaw, LossLaw)):
        gpus, days = sum(c.racks_by_site.values()) * c.gpus_per_rack, c.instance.limits.deadline_days or 0.0
        flop = float(scaling_laws.budget_flop(gpus * choose.assumed_flop_per_second, days * 86_400))
        stated = x.assumed.parameters if x.assumed else None
        yield from must_equal(
            "choice_figures[assumed]", "parameters as assumed", stated, scaling_laws.best_parameters(choose.law, flop)
        )
    yield from at_most("choice_figures[flop_bound]", x.flop, x.flop_bound, "FLOP held", "FLOP proven to be too many")
    if isinstance(choose.law, (PointsLaw, LossLaw)):
        law, slack = scaling_laws.best_parameters(choose.law, x.flop), choose.family.tolerance + choose.tolerance
        yield from at_most(
            "choice_figures[law]", abs(size / law - 1), slack, "away from the law's parameters", "allowed"
        )


def critical_batch(c: PlanPhysics) -> Iterator[Violation]:
    """Keep a step within the critical batch of the law."""
    held = _held(c)
    if held is None or not isinstance(held[0].critical_batch, PowerOf) or c.metrics is None:
        return
    _, x, _ = held
    most = scaling_laws.power(held[0].critical_batch, tokens=x.tokens, flop=x.flop, parameters=x.parameters)
    least = float(c.instance.workload.sequence_length)
    yield from at_most(
        "critical_batch", c.metrics.tokens_per_step, max(most, least), "tokens a step", "tokens at most, by the law"
    )


RULES: tuple[Rule, ...] = (chosen, buildable, choice_figures, critical_batch)
