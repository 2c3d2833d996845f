"""Plan pools of different GPUs that train one model: a layout for each, and the shares of the batch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from planner.instance.instance import Instance
from planner.models import Options, batch_shares
from planner.models.batch_shares import PoolLayout, Shares
from planner.models.joint.free_network import conditions_of, problem_on
from planner.models.joint.strategy_space import JointProblem
from planner.physics import step_errors
from planner.physics.site import cost
from planner.physics.training import step_prediction
from planner.physics.training.layer_time import days_of
from planner.physics.training.parallel_strategy import write_layout
from planner.physics.training.step_prediction import pool_exchange_seconds, pool_instance
from planner.plan.certificate import (
    ON_TRUST,
    POOL_FORMULATION,
    POOL_MINIMIZES,
    POOLS_BRANCHING,
    POOLS_FORMULATION,
    POOLS_MINIMIZES,
    Conflict,
    Decision,
    ObjectiveValue,
    Status,
    given_to_pool,
)
from planner.plan.plan import Plan
from planner.plan.plan_sections import Assumptions, LayoutMetrics, LayoutPlan, PoolsPlan
from planner.planning.changed_instance import solved_with
from planner.solvers.outcome import Outcome, Stop, relative_gap
from planner.solvers.progress import report
from planner.solvers.signals import ENDED, Deadline
from planner.units import money

OPTIMAL_GAP = 1e-9  # relative: days and bound come from the same floats in another order


@dataclass(frozen=True)
class PoolProblems:
    """The layout problems of an instance's pools of different GPUs, and the link between the pools."""

    instance: Instance

    @cached_property
    def problems(self) -> list[JointProblem]:
        """The layout problem of each pool of GPUs, with the whole batch."""
        batch = int((self.instance.limits.max_batch_tokens or 0) // self.instance.workload.sequence_length)
        pools = self.instance.hardware.pools
        return [problem_on(pool_instance(self.instance, pool, batch), pool.racks) for pool in pools]

    def metrics(self, k: int, point: PoolLayout) -> LayoutMetrics:
        """Predict the metrics of a pool's layout on its share of the batch."""
        alone = pool_instance(self.instance, self.instance.hardware.pools[k], point.sequences)
        return step_prediction.metrics(alone, conditions_of(self.problems[k]), point.strategy)

    def exchanges(self, points: tuple[PoolLayout | None, ...]) -> list[float]:
        """Return the exposed gradient exchange in seconds of each pool that trains, 0 of the others."""
        link, training = self.instance.hardware.pool_link, sum(point is not None for point in points)
        exposed = [0.0] * len(points)
        for k, point in enumerate(points if training > 1 else ()):
            if link is not None and point is not None:
                layers = max(point.strategy.layers_per_stage)
                exposed[k] = pool_exchange_seconds(link, self.metrics(k, point), layers, training)
        return exposed


def solve(instance: Instance, options: Options, progress: Callable[[str], None], deadline: Deadline) -> Plan:
    """Share the batch over pools of different GPUs to train fastest, and return the plan, or why there is none."""
    pools, link, limits = PoolProblems(instance), instance.hardware.pool_link, instance.limits

    def no_plan(decision: Decision, rules: tuple[str, ...], reason: str) -> Plan:
        return _plan(instance, options, conflict=Conflict(decision=decision, rules=rules, reason=reason))

    # The racks of all pools may break a limit whatever their layouts.
    power, drawn, usd = limits.facility_power_mw, cost.pools_mw(instance), cost.bill(instance, 0, None, None).total_usd
    if power is not None and drawn > power * (1 + 1e-9):
        broken = ("hardware.pools", "limits.facility_power_mw")
        return no_plan("sites", broken, f"the pools draw {drawn:,.6g} MW > {power:,.6g} MW")
    if limits.budget_usd is not None and usd > limits.budget_usd:
        broken = ("hardware.pools", "limits.budget_usd")
        return no_plan("budget", broken, f"the racks of all pools cost {money(usd)} > {money(limits.budget_usd)}")

    def better(seconds: float, bound: float) -> None:
        days, low = days_of(instance, seconds), days_of(instance, bound)
        report(progress, f"{days:,.1f} days, bound {low:,.1f}, gap {1 - low / days:.2%}", days, low)

    shares = batch_shares.balance(
        pools.problems,
        pools.problems[0].max_sequences,
        tail=lambda points: max(pools.exchanges(points)),
        min_tail=link.rtt_ms / 1e3 if link else 0.0,
        gap=options.gap,
        time_limit=deadline.limit,
        progress=better,
    )
    if shares.points:
        section = _section(pools, shares, options, deadline.elapsed)
        most, days, bound = limits.deadline_days, section.days_to_train, section.certificate.bound or 0.0
        if most is None or days <= most * (1 + 1e-9):
            return _plan(instance, options, section=section)
        reason = f"all pools train in {days:,.6g} days > {most:,.6g}, the deadline, and in no less than {bound:,.6g}"
        rules = ("limits.deadline_days",) if bound > most else ()  # a conflict is proven, or not
        return no_plan("layout", rules, reason)
    if shares.stop is Stop.PROVED:
        reason = "no pool has a layout in its memory and racks, whatever its share"
        return no_plan("layout", ("hardware.pools", "memory"), reason)
    return no_plan("layout", (), f"{ENDED[deadline.cause]} before a layout of any pool")


def _section(pools: PoolProblems, shares: Shares, options: Options, seconds: float) -> PoolsPlan:
    instance, names = pools.instance, [pool.name for pool in pools.instance.hardware.pools]
    every = enumerate(zip(names, shares.points, strict=True))
    training = [(k, name, point) for k, (name, point) in every if point is not None]
    exposed, total = pools.exchanges(shares.points), sum(point.sequences for _, _, point in training)
    measured = {name: pools.metrics(k, point) for k, name, point in training}
    slowest = max(metrics.step_seconds for metrics in measured.values()) + max(exposed)
    days = days_of(instance, slowest / total)
    bound = min(days, days_of(instance, shares.bound))
    each = (given_to_pool(x.instance.hardware.racks, x.transport_slowdown) for x in pools.problems)
    given = "; ".join(f"{name}: {words}" for name, words in zip(names, each, strict=True))
    outcome = Outcome(
        stop=Stop.PROVED if (relative_gap(days, bound) or 0.0) <= OPTIMAL_GAP else Stop.LIMIT,
        solution=shares,
        objective=days,
        bound=bound,
        solver=POOLS_BRANCHING,
        variables=len(names),
        constraints=len(names) + 1,
        seconds=seconds,
    )
    counts = {"pools": len(names), "boxes": shares.boxes, "searches": shares.searches}
    certificate = outcome.certificate(
        formulation=POOLS_FORMULATION.format(small=batch_shares.SMALL_BATCH, **counts),
        minimizes=POOLS_MINIMIZES,
        seed=options.seed,
        given=given,
        space=counts | {"ended": shares.stop.name.lower()},
    )
    return PoolsPlan(
        sequences={name: point.sequences if point else 0 for name, point in zip(names, shares.points, strict=True)},
        layouts={name: _layout(pools, k, point, measured[name], options) for k, name, point in training},
        exchange_seconds={name: exposed[k] for k, name, _ in training},
        step_seconds=slowest,
        tokens_per_step=float(total * instance.workload.sequence_length),
        days_to_train=days,
        days_to_train_interval=step_errors.widest(
            days, [(metrics.days_to_train, metrics.days_to_train_interval) for metrics in measured.values()]
        ),
        certificate=certificate.replaced(checked=ON_TRUST),
    )


def _layout(pools: PoolProblems, k: int, point: PoolLayout, measured: LayoutMetrics, options: Options) -> LayoutPlan:
    """Write the layout of a pool of GPUs; the shares' certificate has the proof, so its own claims no bound."""
    problem, phi = pools.problems[k], pools.problems[k].transport_slowdown
    outcome = Outcome(stop=Stop.LIMIT, solution=point, objective=measured.days_to_train, solver=POOLS_BRANCHING)
    return write_layout(
        point.strategy,
        data_parallel_by_site={cost.CLUSTER: point.strategy.data_parallel},
        racks=pools.instance.hardware.pools[k].racks,
        gpus_per_rack=problem.gpus,
        assumptions=Assumptions(pipeline_send_slowdown=phi, allreduce_slowdown=phi),
        metrics=measured,
        certificate=outcome.certificate(
            formulation=POOL_FORMULATION,
            minimizes=POOL_MINIMIZES,
            seed=options.seed,
            given=given_to_pool(problem.instance.hardware.racks, phi),
        ),
    )


def _plan(
    instance: Instance, options: Options, *, section: PoolsPlan | None = None, conflict: Conflict | None = None
) -> Plan:
    bill, run, proved = None, None, conflict is None or bool(conflict.rules)
    status: Status = "infeasible" if proved else "unknown"
    objective = ObjectiveValue(name=instance.objective.minimize, value=None, bound=None, gap=None)
    if section is not None:
        made, bill = section.certificate, cost.bill(instance, 0, None, None)
        run, status = cost.section(instance, section.days_to_train, bill, 0), made.status
        proved = status == "optimal" or made.space["ended"] == Stop.PROVED.name.lower()
        objective = objective.replaced(value=made.objective, bound=made.bound, gap=made.gap)
    return Plan(
        **solved_with(instance, options),
        status=status,
        objective=objective,
        pools=section,
        cost=bill,
        run=run,
        conflict=conflict,
        stopped="proved" if proved else Deadline().cause,
    )
