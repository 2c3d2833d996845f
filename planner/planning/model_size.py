"""Find the best model that a datacenter trains by a deadline, and the fewest GPUs that train the model of a compute.

The law gives the best model for a compute C; the decisions give the days to train it, which mostly grow with C. The
largest C whose model is trained by the deadline is bracketed: at the lower end there is a plan, at the upper the
layout's bound proves that there is none. Between the two the tokens are stretched until the deadline is met to the day.
A larger model may take fewer days where its shape divides better: where known days fall so, the bound is full use.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from planner.errors import InputError, InternalError
from planner.instance.instance import Instance
from planner.instance.scaling_law import Choose, ModelChoice
from planner.models.model_choice import instance_with, model_for
from planner.physics.training import scaling_laws, transformer
from planner.physics.training.step_prediction import SECONDS_PER_DAY, machine_of
from planner.plan.certificate import Conflict, ObjectiveValue
from planner.plan.plan import Plan, as_asked
from planner.plan.plan_sections import LayoutPlan
from planner.planning.changed_instance import in_fewest_days
from planner.solvers.outcome import UnansweredError, relative_gap
from planner.solvers.progress import Progress
from planner.solvers.search_deadline import Deadline, first_plan_found
from planner.solvers.signals import ENDED

START = 0.4  # of the ideal compute: a usual utilisation, from which the bracket is sought
STEP_DOWN = 4  # by which compute falls where it has no plan at all, so that nothing tells how far it is too large
SolveDays = Callable[[Instance], Plan]


@dataclass(slots=True, kw_only=True)
class Bracket:
    """A bracket of the best model size, as compute in FLOP: the largest in time, with its plan, and one too large."""

    choose: Choose  # by which law, of which family, how near
    deadline: float  # days
    low: float = 0.0
    high: float = math.inf
    plan: Plan | None = None
    days: dict[float, float] = field(default_factory=dict)  # by compute, of those that have a plan
    refused: Plan | None = None

    @property
    def closed(self) -> bool:
        """Whether the bracket of the best model's size, in compute, is as narrow as the tolerance asks."""
        return self.plan is not None and self.high <= self.low * (1 + self.choose.tolerance)

    def next(self, last: float) -> float:
        """Return the compute in FLOP of the next model size: proportional days meet the deadline, or it closes."""
        if last not in self.days:
            return last / STEP_DOWN if not self.low else math.sqrt(self.low * last)
        guess = last * self.deadline / self.days[last]
        if self.low:
            guess = max(guess, self.low * (1 + 0.9 * self.choose.tolerance))
        return guess if guess < self.high else math.sqrt(max(self.low, self.high / STEP_DOWN) * self.high)

    def move(self, flop: float, solve_days: SolveDays, instance: Instance, progress: Progress) -> Plan:
        """Plan the model that the law gives for a compute and move the bracket; return its plan, or its refusal."""
        candidate = model_for(self.choose, flop)
        plan = solve_days(in_fewest_days(instance_with(instance, candidate)))
        model = f"{flop:.4g} FLOP, {candidate.parameters:.4g} parameters"
        if plan.layout is None:
            self.refused = plan
            self.high = min(self.high, flop) if plan.status == "infeasible" else self.high
            progress(f"{model}: no plan")
            return plan
        days = self.days[flop] = plan.layout.metrics.days_to_train
        progress(f"{model}: {days:,.1f} of {self.deadline:,.1f} days")
        if days <= self.deadline and flop > self.low:
            self.low, self.plan = flop, plan
            first_plan_found()
        elif days > self.deadline and (plan.layout.certificate.bound or 0.0) > self.deadline:
            self.high = min(self.high, flop)
        return plan


def solve(instance: Instance, solve_days: SolveDays, progress: Progress, clock: Deadline) -> Plan:
    """Return the plan of the best model by the deadline; `solve_days` plans an instance for the fewest days."""
    choose, deadline = instance.workload.choose, instance.limits.deadline_days
    if choose is None or deadline is None:
        raise InternalError("a model is to be chosen without a law or a deadline")
    bracket, ideal, last, machine = Bracket(choose=choose, deadline=deadline), math.inf, None, machine_of(instance)
    racks = instance.pins.get("sites.racks") or instance.hardware.racks
    if racks is None:  # those that the power feeds
        areas = instance.grid.balancing_authorities if instance.grid else ()
        power = instance.limits.facility_power_mw or sum(area.headroom_mw for area in areas)
        racks = max(1, int(power * 1e3 / (machine.rack.it_kw * instance.hardware.facility_overhead_factor)))
    peak, until = racks * machine.rack.gpus * machine.peak_flop_per_second, deadline * SECONDS_PER_DAY
    flop = START * (peak * until * instance.workload.availability)
    for _ in range(24):  # four to eight plans are usual
        try:
            last = bracket.move(flop, solve_days, instance, progress)
        except (InputError, UnansweredError) as error:  # no shape of the family is as small, or a back end failed
            if (bracket.refused if isinstance(error, InputError) else bracket.plan) is None:
                raise
            break
        if (layout := last.layout) is not None:  # all of its GPUs, idle ones too, at their peak
            ideal = (layout.gpus_used + layout.gpus_idle) * machine_of(last.instance).peak_flop_per_second * until
        if bracket.closed or clock.passed:
            break
        flop = min(bracket.next(flop), ideal)
    if bracket.plan is not None and bracket.plan.layout is not None:
        return _finished(instance, bracket, bracket.plan, bracket.plan.layout, solve_days)
    # The refusal of even the smallest model, or of the last, under the instance as it was asked.
    refusal = bracket.refused
    if clock.passed and (last := refusal or last) is not None:
        reason = f"{ENDED[clock.cause]} before a plan was found that trains any model by the deadline"
        why = Conflict(decision="layout", rules=(), reason=reason)
        refusal = last.replaced(status="unknown", stopped=clock.cause, conflict=why)
    if refusal is None:
        raise InternalError("no model is trained by the deadline, and none is refused")
    sections = ("sites", "layout", "fabric", "placement", "wan", "cost", "proof", "transport", "reliability", "run")
    unknown = ObjectiveValue(name="loss", value=None, bound=None, gap=None)
    return refusal.replaced(**as_asked(instance) | dict.fromkeys(sections), objective=unknown)


def _finished(instance: Instance, bracket: Bracket, plan: Plan, layout: LayoutPlan, solve_days: SolveDays) -> Plan:
    """Return the plan of the bracket with tokens stretched to the deadline, its model described as the answer."""
    choose, deadline = bracket.choose, bracket.deadline
    tokens = plan.instance.workload.tokens * deadline / layout.metrics.days_to_train
    stretched = solve_days(plan.instance.replaced(workload__tokens=tokens))
    if (other := stretched.layout) is not None and other.metrics.days_to_train <= deadline * (1 + 1e-6):
        plan, layout = stretched, other  # cut short, it may be slower than the one it stretches
    tokens, candidate = plan.instance.workload.tokens, model_for(choose, bracket.low)
    flop, seconds = float(transformer.training_flop(candidate.parameters, tokens)), deadline * SECONDS_PER_DAY
    peak, every = machine_of(plan.instance).peak_flop_per_second, layout.gpus_used + layout.gpus_idle
    full, rate = every * peak * seconds, choose.assumed_flop_per_second
    in_order = [days for _, days in sorted(bracket.days.items())]
    grows = in_order == sorted(in_order)  # of the models with a plan larger ones took no fewer days
    most = min(bracket.high, full) if grows else full
    # Where no larger model has a plan, as in too little memory, this one has more compute than the law gives its size.
    most, reach = (max(most, flop),) * 2 if flop <= most * (1 + choose.tolerance) else (most, full)
    largest = scaling_laws.best_parameters(choose.law, most) * (1 + choose.family.tolerance)
    # Of all GPUs' peak compute the shares that are used, and lost to each part of the step, to idle GPUs and to stops.
    metrics, at_work = layout.metrics, layout.gpus_used / every
    working = at_work * metrics.useful_share
    # Seconds in which the GPUs at work would do the step's 6·N·D at their peak.
    step_flop = float(transformer.training_flop(candidate.parameters, metrics.tokens_per_step))
    shares = {
        "used": step_flop / (peak * layout.gpus_used) / metrics.step_seconds * working,
        "idle GPUs": (1 - at_work) * metrics.useful_share,
        "stopped": 1 - metrics.useful_share,
    }
    shares |= {part: own / metrics.step_seconds * working for part, own in metrics.breakdown_seconds.items() if own > 0}
    # Products take longer than at the peak, and attention's scores are no part of 6·N·D.
    shares["gemm"] = shares.get("gemm", 0.0) - shares["used"]
    loss = scaling_laws.loss(choose.loss_law, candidate.parameters, tokens)
    tried = dict[str, float]()
    for compute, days in sorted(bracket.days.items()):  # two that only later digits tell apart: the one in time
        tried[f"{compute:.6g}"] = min(days, tried.get(f"{compute:.6g}", math.inf))
    choice = ModelChoice(
        flop=flop,
        flop_bound=most,
        parameters=candidate.parameters,
        tokens=tokens,
        batch_tokens=plan.instance.limits.max_batch_tokens or 0.0,
        loss=loss,
        loss_bound=min(scaling_laws.ideal(choose, reach, largest).loss, loss),
        ideal=scaling_laws.ideal(choose, full),
        assumed=None if rate is None else scaling_laws.ideal(choose, every * rate * seconds),
        compute_shares={part: share for part, share in shares.items() if abs(share) > 1e-12},
        days_by_flop=tried,
    )
    solved = plan.instance.replaced(objective=instance.objective, limits__deadline_days=deadline)
    gap = relative_gap(loss, choice.loss_bound) or 0.0
    objective = ObjectiveValue(name="loss", value=loss, bound=choice.loss_bound, gap=gap)
    status = plan.status if bracket.closed and gap <= choose.tolerance and grows else "feasible"
    return plan.replaced(**as_asked(solved), objective=objective, model_choice=choice, status=status)
