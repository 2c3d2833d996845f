"""The best model that a datacenter trains by a deadline: a fixed point of compute had and model chosen, bracketed.

The law gives the best model for a compute C; the decisions give the days to train it, which grow with C. The largest C whose
model is trained in time is bracketed: at the lower end there is a plan, at the upper the layout's bound proves that there is
none. Between the two the tokens are stretched until the deadline is met to the day.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from planner.errors import InternalError
from planner.instance.identity import instance_sha256
from planner.instance.instance import Instance
from planner.instance.model_family import Choose, Ideal, ModelChoice
from planner.models.model_size import Candidate, instance_with, law_of, loss_law_of, model_for
from planner.physics.training import scaling_laws, step
from planner.plan.certificate import Conflict, ObjectiveValue
from planner.plan.plan import Plan

DAY = 86_400.0
TRIALS = 24
SolveDays = Callable[[Instance, bool], Plan]
START = 0.4  # of the ideal compute: the share from which the bracket is sought


@dataclass(slots=True, kw_only=True)
class Bracket:
    """Compute that is trained in time, with its plan, and compute that is proven not to be."""

    low: float = 0.0
    high: float = math.inf
    plan: Plan | None = None
    days: dict[float, float] = field(default_factory=dict)  # by compute, of those that have a plan
    refused: Plan | None = None

    def closed(self, tolerance: float) -> bool:
        """Tell whether the ends are as near to each other as they must be."""
        return self.plan is not None and self.high <= self.low * (1 + tolerance)

    def next(self, last: float, deadline: float, tolerance: float) -> float:
        """Return the compute to try next: where the deadline is met if the days stay proportional to compute, then what closes the bracket."""
        if last not in self.days:
            return last / 4 if not self.low else math.sqrt(self.low * last)
        guess = last * deadline / self.days[last]
        if self.low:
            guess = max(guess, self.low * (1 + 0.9 * tolerance))
        if guess >= self.high:
            guess = math.sqrt(max(self.low, self.high / 4) * self.high)
        return guess


def solve(instance: Instance, solve_days: SolveDays, progress: Callable[[str], None]) -> Plan:
    """Return the plan of the best model; `solve_days` plans an instance for the least days, and with True decides its layout twice."""
    choose, deadline = instance.workload.choose, instance.limits.deadline_days
    if choose is None or deadline is None:
        raise InternalError("a model is to be chosen without a law or a deadline")
    held, ideal = Bracket(), math.inf
    guess, plan = _first(instance, deadline), None
    for _ in range(TRIALS):
        plan = _tried(instance, choose, held, guess, solve_days, progress)
        if plan is not None:
            ideal = _ideal_flop(plan, deadline)
        if held.closed(choose.tolerance):
            return _finished(instance, choose, held, solve_days)
        guess = min(held.next(guess, deadline, choose.tolerance), ideal)
    if held.plan is None:
        return _as_asked(instance, held.refused)
    return _finished(instance, choose, held, solve_days)


def _tried(
    instance: Instance,
    choose: Choose,
    held: Bracket,
    flop: float,
    solve_days: SolveDays,
    progress: Callable[[str], None],
) -> Plan | None:
    """Plan the model that the law gives for a compute and move the bracket; return the plan, None where there is none."""
    deadline, candidate = instance.limits.deadline_days or 0.0, model_for(choose, flop)
    plan = solve_days(_timed(instance_with(instance, candidate)), False)
    if plan.layout is None:
        held.high, held.refused = min(held.high, flop), plan
        progress(f"{flop:.4g} FLOP, {candidate.parameters:.4g} parameters: no plan")
        return None
    days = held.days[flop] = plan.layout.metrics.days_to_train
    progress(f"{flop:.4g} FLOP, {candidate.parameters:.4g} parameters: {days:,.1f} of {deadline:,.1f} days")
    if days <= deadline and flop > held.low:
        held.low, held.plan = flop, plan
    elif days > deadline and (plan.layout.certificate.bound or 0.0) > deadline:
        held.high = min(held.high, flop)
    return plan


def _first(instance: Instance, deadline: float) -> float:
    """Guess the compute to start from: that of the racks that are given, else of what the power and the budget might buy."""
    m = step.machine_of(instance)
    racks = instance.pins.get("sites.racks") or instance.hardware.racks
    if racks is None:
        power = instance.limits.facility_power_mw or sum(
            b.headroom_mw for b in (instance.grid.balancing_authorities if instance.grid else ())
        )
        racks = max(1, int(power * 1e3 / (m.rack.it_kw * instance.hardware.facility_overhead_factor)))
    peak = racks * m.rack.gpus * m.gpu.peak_flop_per_second[m.precision.compute]
    return START * float(scaling_laws.budget_flop(peak, deadline * DAY, utilisation=instance.workload.availability))


def _timed(instance: Instance) -> Instance:
    """Ask for the least days, whatever the deadline: how far a model misses it guides the bracket."""
    return instance.model_copy(
        update={
            "objective": instance.objective.model_copy(update={"minimize": "days_to_train"}),
            "limits": instance.limits.model_copy(update={"deadline_days": None}),
        }
    )


def _ideal_flop(plan: Plan, deadline: float) -> float:
    """Compute of all GPUs of the plan at their peak until the deadline."""
    m = step.machine_of(plan.instance)
    gpus = gpus_of(plan)
    return float(scaling_laws.budget_flop(gpus * m.gpu.peak_flop_per_second[m.precision.compute], deadline * DAY))


def gpus_of(plan: Plan) -> int:
    """Count the GPUs that a plan holds, idle ones included."""
    return plan.layout.gpus_used + plan.layout.gpus_idle if plan.layout else 0


def _finished(instance: Instance, choose: Choose, held: Bracket, solve_days: SolveDays) -> Plan:
    """Stretch the tokens of the best model to the deadline and write the plan."""
    deadline, plan = instance.limits.deadline_days, held.plan
    if plan is None or plan.layout is None or deadline is None:
        raise InternalError("no model is held")
    tokens = plan.instance.workload.tokens * deadline / plan.layout.metrics.days_to_train
    work = plan.instance.workload.model_copy(update={"tokens": tokens})
    plan = solve_days(plan.instance.model_copy(update={"workload": work}), True)
    choice = choice_of(plan, choose, deadline, held)
    solved = plan.instance.model_copy(
        update={
            "objective": instance.objective,
            "limits": plan.instance.limits.model_copy(update={"deadline_days": deadline}),
        }
    )
    gap = (choice.loss - choice.loss_bound) / choice.loss
    bounded = held.closed(choose.tolerance)
    return plan.model_copy(
        update={
            "instance": solved,
            "instance_sha256": instance_sha256(solved),
            "objective": ObjectiveValue(
                name="loss",
                value=choice.loss,
                bound=choice.loss_bound if bounded else None,
                gap=gap if bounded else None,
            ),
            "model_choice": choice,
            "status": plan.status if bounded else "feasible",
        }
    )


def choice_of(plan: Plan, choose: Choose, deadline: float, held: Bracket) -> ModelChoice:
    """Describe the model of a plan, the ideal one, and what lies between."""
    told = loss_law_of(choose)
    w = plan.instance.workload
    candidate = model_for(choose, held.low)
    flop = float(scaling_laws.training_flop(candidate.parameters, w.tokens))
    full = _ideal_flop(plan, deadline)
    above = max(min(held.high, full), flop)
    counted = choose.assumed_flop_per_second
    return ModelChoice(
        flop=flop,
        flop_bound=above,
        parameters=candidate.parameters,
        tokens=w.tokens,
        batch_tokens=plan.instance.limits.max_batch_tokens or 0.0,
        loss=scaling_laws.loss(told, candidate.parameters, w.tokens),
        loss_bound=min(
            scaling_laws.loss(told, *model_at(choose, above)), scaling_laws.loss(told, candidate.parameters, w.tokens)
        ),
        ideal=ideal_at(choose, full),
        assumed=None
        if counted is None
        else ideal_at(choose, float(scaling_laws.budget_flop(gpus_of(plan) * counted, deadline * DAY))),
        compute_shares=compute_shares(plan, candidate),
        days_by_flop={f"{c:.6g}": d for c, d in sorted(held.days.items())},
    )


def ideal_at(choose: Choose, flop: float) -> Ideal:
    """Describe the model that the law gives for a compute, its shape left open."""
    size, tokens = model_at(choose, flop)
    return Ideal(flop=flop, parameters=size, tokens=tokens, loss=scaling_laws.loss(loss_law_of(choose), size, tokens))


def model_at(choose: Choose, flop: float) -> tuple[float, float]:
    """Return parameters and tokens that the law gives for a compute."""
    size = scaling_laws.best_parameters(law_of(choose), flop)
    return size, scaling_laws.tokens_for(size, flop)


def compute_shares(plan: Plan, candidate: Candidate) -> dict[str, float]:
    """Share the ideal's compute between what is used and what each part of the step, idle GPUs and stopped time take."""
    if plan.layout is None:
        return {}
    m, w = plan.layout.metrics, plan.instance.workload
    machine, used = step.machine_of(plan.instance), plan.layout.gpus_used
    peak = machine.gpu.peak_flop_per_second[machine.precision.compute]
    # Seconds in which the GPUs at work would do the step's 6·N·D at their peak.
    useful = float(scaling_laws.training_flop(candidate.parameters, m.tokens_per_step)) / (peak * used)
    working = used / gpus_of(plan) * w.availability
    parts = {k: v / m.step_seconds * working for k, v in m.breakdown_seconds.items() if v > 0}
    shares = {
        "used": useful / m.step_seconds * working,
        "idle GPUs": (1 - used / gpus_of(plan)) * w.availability,
        "stopped": 1 - w.availability,
    }
    shares |= parts
    # Products take longer than at the peak, and attention's scores are no part of 6·N·D.
    shares["gemm"] = parts.get("gemm", 0.0) - shares["used"]
    return {k: v for k, v in shares.items() if abs(v) > 1e-12}


def _as_asked(instance: Instance, plan: Plan | None) -> Plan:
    """Return the refusal of even the smallest model under the instance as it was asked."""
    if plan is None:
        raise InternalError("no model is trained in time, and none is refused")
    why = plan.conflict or Conflict(
        decision="layout", rules=("limits.deadline_days",), reason="no model of the family is trained in time"
    )
    return plan.model_copy(
        update={
            "instance": instance,
            "instance_sha256": instance_sha256(instance),
            "objective": ObjectiveValue(name="loss", value=None, bound=None, gap=None),
            "status": "infeasible",
            "conflict": why,
            "sites": None, "layout": None, "fabric": None, "placement": None, "wan": None, "cost": None,
        }
    )  # fmt: skip
