"""Choose among GPUs: alternatives with racks and start dates, or pools of several that train one model together."""

import math
from dataclasses import dataclass, replace
from typing import Any

from planner.errors import InputError
from planner.instance.hardware import HardwareAlternative, hardware_kind
from planner.instance.instance import ONE_SITE, Instance
from planner.models import Options, batch_shares
from planner.models.joint.joint_question import Solving
from planner.models.joint.joint_solution import CENTS, EPS, JointSolution
from planner.models.joint.search.free_network import problem_on
from planner.models.joint.search.least_cost_of_ownership import least_run_cost
from planner.models.joint.solve_joint import solve_joint, solve_joint_cost
from planner.models.joint.strategy_space import JointProblem
from planner.physics.site import cost, site_power
from planner.physics.training import step_errors, step_prediction
from planner.physics.training.parallel_strategy import write_layout
from planner.physics.training.step_prediction import days_of, machine_of, pool_exchange_seconds, pool_instance
from planner.physics.training.transformer import active_parameters, training_flop
from planner.plan import certificate
from planner.plan.certificate import AlternativeProof, ObjectiveValue
from planner.plan.plan import Plan, as_asked
from planner.plan.plan_sections import Assumptions, LayoutMetrics, LayoutPlan, PoolsPlan
from planner.planning.finish_date import each_start, latest_start_days, latest_start_months
from planner.planning.joint_plan import refused_of, solved_with
from planner.solvers.outcome import Outcome, Stop, relative_gap
from planner.solvers.progress import report, start
from planner.solvers.signals import ENDED
from planner.units import money


@dataclass(frozen=True, slots=True)
class HardwareAnswer:
    """The answer on one choice of hardware, GPU and rack, and the instance without the others or a late part."""

    instance: Instance
    solution: JointSolution

    @property
    def ready_days(self) -> float:
        """The days from the decision until training may start on one choice of hardware."""
        return latest_start_days(self.instance)


def best_choice(
    instance: Instance, solving: Solving, within: float = 0.0, without: dict[str, Any] | None = None
) -> list[HardwareAnswer]:
    """Search on each choice of hardware, likely best first, later ones only for plans that beat the best so far.

    Return the best answer, bounded by all of them, and behind it the others in the order of the alternatives.
    `within`: share of the fewest days by which slower plans are kept for the ends of the choice.
    `without`: values of choices, by the paths of their pins, that no plan may have.
    """

    def merit(alone: Instance) -> float:
        """Estimate a GPU's training end in days, at its peak rate; under a goal in dollars, its USD per FLOP/s."""
        machine, budget = machine_of(alone), alone.limits.budget_usd or 1.0
        usd, flop = machine.rack.price_usd, machine.rack.gpus * machine.peak_flop_per_second
        if not alone.objective.in_days:
            return usd / flop
        racks = alone.hardware.racks or (budget / usd if usd else math.inf)
        seconds = float(training_flop(active_parameters(machine.model), alone.workload.tokens)) / (flop * racks)
        return latest_start_days(alone) + seconds / step_prediction.SECONDS_PER_DAY

    asked = [instance.replaced(hardware=alone) for alone in instance.hardware.each_alone()]  # its own first
    in_date = instance.objective.minimize == "finish_date"
    questions = sorted((start for one in asked for start in each_start(one)), key=merit)
    answers = list[HardwareAnswer]()
    for alone in asked if len(asked) > 1 else ():
        try:
            replace(solving, cache=solving.cache.of(alone)).world(alone, without)
        except InputError as error:
            accelerator, rack = kind = hardware_kind(alone.hardware)
            if kind == hardware_kind(instance.hardware):
                raise
            raise InputError(f"hardware.alternatives, {accelerator} in {rack}: {error}") from error
    for alone in questions:
        goal, ready, best = alone.objective.minimize, latest_start_days(alone), _best(answers)
        waits = ready if in_date else 0.0  # that count in the goal
        gpu = f" on {hardware_kind(alone.hardware)[0]}" if len(asked) > 1 else ""
        when = f", start in month {latest_start_months(alone):g}" if len(questions) > len(asked) else ""
        start(solving.progress, f"search{gpu}{when}", anew=True, waits=waits)
        own, found = replace(solving, cache=solving.cache.of(alone)), JointSolution(status="infeasible")
        if goal == "total_cost_of_ownership_usd":
            found = least_run_cost(alone, solving, without=without)
        elif goal == "cost_usd":
            dearest = alone.limits.budget_usd or math.inf
            if best is not None and best.solution.plan is not None:
                dearest = min(dearest, best.solution.plan.capital_usd - 2 * CENTS)
            cheaper = alone if best is None else alone.replaced(limits__budget_usd=dearest)
            found = solve_joint_cost(cheaper, own, without=without)
        else:
            rival = math.inf if best is None else (best.solution.days or 0.0) + best.ready_days - ready
            own = replace(own, floor=max(0.0, solving.floor - waits))
            if rival > 0:
                found = solve_joint(alone, own, without=without, rival=rival, within=within)
        answers.append(HardwareAnswer(alone, found))
    late = (answer for answer in answers if answer.solution.plan is not None)
    # Where there is no plan, the reasons are those of the question that leaves nothing out.
    whole = next(answer for answer in answers if answer.instance.grid == instance.grid)
    best = _best(answers) or min(late, key=lambda answer: answer.solution.days or 0.0, default=whole)
    others = tuple(answer for answer in answers if answer is not best)
    kinds = [hardware_kind(alone.hardware) for alone in asked]
    in_order = sorted(others, key=lambda other: kinds.index(hardware_kind(other.instance.hardware)))
    return [HardwareAnswer(best.instance, bounded_by_all(best, others)), *in_order]


def _best(answers: list[HardwareAnswer]) -> HardwareAnswer | None:
    """Return the hardware answer of soonest end, or least cost, of those with a plan that meets the deadline."""

    def merit(answer: HardwareAnswer) -> float:
        goal, solution = answer.instance.objective, answer.solution
        if goal.in_days:
            return (solution.days or 0.0) + answer.ready_days
        if goal.minimize == "cost_usd" and solution.plan is not None:
            return solution.plan.capital_usd
        return solution.lower_bound or 0.0  # of the whole run: its cost, where that is proven

    return min((answer for answer in answers if in_time(answer)), key=merit, default=None)


def in_time(answer: HardwareAnswer) -> bool:
    """Return whether the search on one choice of hardware has a plan that trains within the deadline."""
    late = answer.instance.limits.deadline_days or math.inf
    return answer.solution.plan is not None and (answer.solution.days or 0.0) <= late * (1 + EPS)


def bounded_by_all(best: HardwareAnswer, others: tuple[HardwareAnswer, ...]) -> JointSolution:
    """Return the best hardware's solution with the bound of all: optimal or infeasible only if all are proven."""
    solution, in_days = best.solution, best.instance.objective.in_days
    if not others:
        return solution

    def bound_of(answer: HardwareAnswer) -> float | None:
        """Return the bound of a hardware's answer, from the best one's decision date: infinite without a plan."""
        own, bound = answer.solution, answer.solution.lower_bound
        if bound is None:
            return math.inf if own.stopped == "proved" and own.status == "infeasible" else None
        if in_days and bound > (answer.instance.limits.deadline_days or math.inf):
            return math.inf  # no plan on it meets the deadline
        return bound + (answer.ready_days - best.ready_days if in_days else 0.0)

    stopped = next((other.solution.stopped for other in others if other.solution.stopped != "proved"), solution.stopped)
    if all(answer.solution.status == "infeasible" for answer in (best, *others)):
        return replace(solution, stopped=stopped)
    bounds = [bound_of(best) if solution.plan is None else solution.lower_bound, *map(bound_of, others)]
    known = [bound for bound in bounds if bound is not None and math.isfinite(bound)]
    least = None if None in bounds or min(known, default=0.0) <= 0 else min(known)
    if solution.plan is None:
        return replace(solution, status="unknown", lower_bound=least, stopped=stopped)
    free = solution.fabric_free_bound
    free = free if free is None or least is None else min(free, least)
    return replace(solution, lower_bound=least, stopped=stopped, fabric_free_bound=free)


def named(plan: Plan, instance: Instance) -> Plan:
    """Return a plan whose layout names its hardware, where the instance has alternatives to choose from."""
    if plan.layout is None or not instance.hardware.alternatives:
        return plan
    return plan.replaced(layout__accelerator=hardware_kind(plan.instance.hardware)[0])


def with_alternatives(plan: Plan, instance: Instance, best: HardwareAnswer, others: list[HardwareAnswer]) -> Plan:
    """Return a plan on the best hardware as the answer to the whole instance, with the others' proofs."""
    if not others:
        return plan
    # The same question, the chosen hardware as its own and the others as alternatives.
    mine = best.instance.hardware
    keys = ("accelerator", "rack", "racks", "nic_bytes_per_second", "ready_months")
    alternatives = tuple(
        HardwareAlternative(**{key: getattr(other, key) for key in keys})
        for other in instance.hardware.each_alone()
        if hardware_kind(other) != hardware_kind(mine)
    )
    asked = instance.replaced(hardware=mine.replaced(alternatives=alternatives))
    proof, in_date, proofs = plan.proof, plan.objective.name == "finish_date", list[AlternativeProof]()
    if proof is not None and plan.objective.bound is not None:
        end_days = plan.objective.bound + (0.0 if in_date else best.ready_days)  # before which no plan on them ends
        for other in others:
            bound = min(max(0.0, end_days - other.ready_days), other.instance.limits.deadline_days or math.inf)
            listed = tuple(entry for entry in other.solution.excluded if entry[0] < bound)
            accelerator, rack = hardware_kind(other.instance.hardware)
            own = AlternativeProof(
                accelerator=accelerator,
                rack=rack,
                ready_within_months=latest_start_months(other.instance) if in_date else None,
                least_days=other.solution.days,
                bound_days=bound,
                proof=refused_of(replace(other.solution, excluded=listed)),
            )
            proofs.append(own)
        proof = proof.replaced(alternatives=tuple(proofs))
    return plan.replaced(**as_asked(asked), layout=named(plan, instance).layout, proof=proof)


def _predicted(
    instance: Instance, problems: list[JointProblem], points: tuple[batch_shares.PoolLayout | None, ...]
) -> tuple[dict[int, LayoutMetrics], list[float]]:
    """Predict the metrics of each pool that trains, on its share, and the exposed exchange of every pool in seconds."""
    link, training = instance.hardware.pool_link, sum(point is not None for point in points)
    metrics, exposed = dict[int, LayoutMetrics](), [0.0] * len(points)
    for k, point in enumerate(points):
        if point is not None:
            alone = pool_instance(instance, instance.hardware.pools[k], point.sequences)
            conditions = step_prediction.free_conditions(problems[k].transport_slowdown)
            metrics[k] = step_prediction.metrics(alone, conditions, point.strategy)
            if link is not None and training > 1:
                exposed[k] = pool_exchange_seconds(link, metrics[k], max(point.strategy.layers_per_stage), training)
    return metrics, exposed


def _pools_section(
    instance: Instance, problems: list[JointProblem], shares: batch_shares.Shares, options: Options, seconds: float
) -> PoolsPlan:
    """Write the plan's section of the pools, found in `seconds`: each one's layout and share, with one proof."""
    pools, layouts = instance.hardware.pools, dict[str, LayoutPlan]()
    training = [(k, point) for k, point in enumerate(shares.points) if point is not None]
    (metrics, exposed), total = _predicted(instance, problems, shares.points), sum(x.sequences for _, x in training)
    slowest = max(own.step_seconds for own in metrics.values()) + max(exposed)
    days = days_of(instance, slowest / total)
    bound = min(days, days_of(instance, shares.bound))
    given = [certificate.given_to_pool(x.instance.hardware.racks, x.transport_slowdown) for x in problems]
    how: dict[str, Any] = {"solver": certificate.POOLS_BRANCHING}
    for k, point in training:  # the shares' certificate has the proof, so that a layout's own claims no bound
        phi, strategy, found = problems[k].transport_slowdown, point.strategy, metrics[k].days_to_train
        layouts[pools[k].name] = write_layout(
            strategy,
            data_parallel_by_site={ONE_SITE: strategy.data_parallel},
            racks=pools[k].racks,
            gpus_per_rack=problems[k].gpus,
            assumptions=Assumptions(pipeline_send_slowdown=phi, allreduce_slowdown=phi),
            metrics=metrics[k],
            certificate=Outcome(stop=Stop.LIMIT, solution=point, objective=found, **how).certificate(
                formulation=certificate.POOL_FORMULATION,
                minimizes=certificate.POOL_MINIMIZES,
                seed=options.seed,
                given=given[k],
            ),
        )
    # Days and bound come from the same floats in another order.
    stop = Stop.PROVED if (relative_gap(days, bound) or 0.0) <= 1e-9 else Stop.LIMIT
    how |= {"variables": len(pools), "constraints": len(pools) + 1, "seconds": seconds}
    counts = {"pools": len(pools), "boxes": shares.boxes, "searches": sum(pool.searches for pool in shares.pools)}
    intervals = [(own.days_to_train, own.days_to_train_interval) for own in metrics.values()]
    return PoolsPlan(
        sequences={x.name: point.sequences if point else 0 for x, point in zip(pools, shares.points, strict=True)},
        layouts=layouts,
        exchange_seconds={pools[k].name: exposed[k] for k, _ in training},
        step_seconds=slowest,
        tokens_per_step=float(total * instance.workload.sequence_length),
        days_to_train=days,
        days_to_train_interval=step_errors.widest(days, intervals),
        certificate=Outcome(stop=stop, solution=shares, objective=days, bound=bound, **how).certificate(
            formulation=certificate.POOLS_FORMULATION.format(small=batch_shares.SMALL_BATCH, **counts),
            minimizes=certificate.POOLS_MINIMIZES,
            seed=options.seed,
            given="; ".join(f"{pool.name}: {words}" for pool, words in zip(pools, given, strict=True)),
            space=counts | {"ended": shares.stop.name.lower()},
            checked=certificate.ON_TRUST,
        ),
    )


def plan_of_pools(instance: Instance, solving: Solving) -> Plan:
    """Return a plan on hardware of several pools, which share the batch to train fastest, or why there is none."""
    link, pools, limits = instance.hardware.pool_link, instance.hardware.pools, instance.limits
    bill, options, deadline = cost.bill(instance, 0, None, None), solving.options, solving.deadline

    def no_plan(decision: certificate.Decision, rules: tuple[str, ...], reason: str) -> Plan:
        return Plan(
            **solved_with(instance, options),
            status="infeasible" if rules else "unknown",
            objective=ObjectiveValue(name=instance.objective.minimize, value=None, bound=None, gap=None),
            conflict=certificate.Conflict(decision=decision, rules=rules, reason=reason),
            stopped="proved" if rules else deadline.cause if deadline.passed else "gap",
        )

    # The racks of all pools may break a limit whatever their layouts.
    power, drawn, usd = limits.facility_power_mw, site_power.pools_mw(instance), bill.total_usd
    if power is not None and drawn > power * (1 + 1e-9):
        broken = ("hardware.pools", "limits.facility_power_mw")
        return no_plan("sites", broken, f"the pools draw {drawn:,.6g} MW > {power:,.6g} MW")
    if limits.budget_usd is not None and usd > limits.budget_usd:
        broken = ("hardware.pools", "limits.budget_usd")
        return no_plan("budget", broken, f"the racks of all pools cost {money(usd)} > {money(limits.budget_usd)}")

    def better(seconds: float, bound: float) -> None:
        days, low = days_of(instance, seconds), days_of(instance, bound)
        report(solving.progress, f"{days:,.1f} days, bound {low:,.1f}, gap {1 - low / days:.2%}", days, low)

    batch = int((limits.max_batch_tokens or 0) // instance.workload.sequence_length)
    problems = [problem_on(pool_instance(instance, pool, batch), pool.racks) for pool in pools]
    shares = batch_shares.balance(
        problems,
        problems[0].max_sequences,
        tail=lambda points: max(_predicted(instance, problems, points)[1]) if link else 0.0,
        min_tail=link.rtt_ms / 1e3 if link else 0.0,
        gap=options.gap,
        time_limit=deadline.limit,
        progress=better,
    )
    if not shares.points and shares.stop is Stop.PROVED:
        reason = "no pool has a layout in its memory and racks, whatever its share"
        return no_plan("layout", ("hardware.pools", "memory"), reason)
    if not shares.points:
        return no_plan("layout", (), f"{ENDED[deadline.cause]} before a layout of any pool")
    section = _pools_section(instance, problems, shares, options, deadline.elapsed)
    most, days, made = limits.deadline_days, section.days_to_train, section.certificate
    if most is not None and days > most * (1 + 1e-9):
        bound = made.bound or 0.0
        late, left = f"{most:,.6g}, the deadline", "" if deadline.passed else ", a gap with which the search ends"
        reason = (
            f"the fastest plan so far trains in {days:,.6g} days > {late}, and none in less than {bound:,.6g}{left}"
        )
        reason = f"all pools together train in no less than {bound:,.6g} days > {late}" if bound > most else reason
        return no_plan("layout", ("limits.deadline_days",) if bound > most else (), reason)
    proved = made.status == "optimal" or shares.stop is Stop.PROVED
    return Plan(
        **solved_with(instance, options),
        status=made.status,
        objective=ObjectiveValue(name=instance.objective.minimize, value=days, bound=made.bound, gap=made.gap),
        pools=section,
        cost=bill,
        run=cost.section(instance, days, bill, 0),
        stopped="proved" if proved else deadline.cause,
    )
