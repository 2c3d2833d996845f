"""Plan pools of different GPUs that train one model: a layout for each, and the shares of the batch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
from planner.plan import certificate
from planner.plan.certificate import ObjectiveValue
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
        found = step_prediction.metrics(alone, conditions_of(self.problems[k]), point.strategy)
        return LayoutMetrics.model_validate(found)

    def exchanges(self, points: tuple[PoolLayout | None, ...]) -> list[float]:
        """Return the exposed gradient exchange in seconds of each pool that trains, 0 of the others."""
        link, training = self.instance.hardware.pool_link, sum(point is not None for point in points)
        exposed = [0.0] * len(points)
        for k, point in enumerate(points if training > 1 else ()):
            if link is not None and point is not None:
                layers = max(point.strategy.layers_per_stage)
                exposed[k] = pool_exchange_seconds(link, self.metrics(k, point), layers, training)
        return exposed

    def section(self, shares: Shares, options: Options, seconds: float) -> PoolsPlan:
        """Write the plan's section of the pools, found in `seconds`: each one's layout and share, with one proof."""
        instance, pools, layouts = self.instance, self.instance.hardware.pools, dict[str, LayoutPlan]()
        training = [(k, point) for k, point in enumerate(shares.points) if point is not None]
        exposed, total = self.exchanges(shares.points), sum(point.sequences for _, point in training)
        measured = {k: self.metrics(k, point) for k, point in training}
        slowest = max(metrics.step_seconds for metrics in measured.values()) + max(exposed)
        days = days_of(instance, slowest / total)
        bound = min(days, days_of(instance, shares.bound))
        given = [certificate.given_to_pool(x.instance.hardware.racks, x.transport_slowdown) for x in self.problems]
        how: dict[str, Any] = {"solver": certificate.POOLS_BRANCHING}
        for k, point in training:  # the shares' certificate has the proof, so that a layout's own claims no bound
            phi, strategy, found = self.problems[k].transport_slowdown, point.strategy, measured[k].days_to_train
            layouts[pools[k].name] = write_layout(
                strategy,
                data_parallel_by_site={cost.CLUSTER: strategy.data_parallel},
                racks=pools[k].racks,
                gpus_per_rack=self.problems[k].gpus,
                assumptions=Assumptions(pipeline_send_slowdown=phi, allreduce_slowdown=phi),
                metrics=measured[k],
                certificate=Outcome(stop=Stop.LIMIT, solution=point, objective=found, **how).certificate(
                    formulation=certificate.POOL_FORMULATION,
                    minimizes=certificate.POOL_MINIMIZES,
                    seed=options.seed,
                    given=given[k],
                ),
            )
        stop = Stop.PROVED if (relative_gap(days, bound) or 0.0) <= OPTIMAL_GAP else Stop.LIMIT
        how |= {"variables": len(pools), "constraints": len(pools) + 1, "seconds": seconds}
        counts = {"pools": len(pools), "boxes": shares.boxes, "searches": shares.searches}
        intervals = [(metrics.days_to_train, metrics.days_to_train_interval) for metrics in measured.values()]
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


def solve(instance: Instance, options: Options, progress: Callable[[str], None], deadline: Deadline) -> Plan:
    """Share the batch over pools of different GPUs to train fastest, and return the plan, or why there is none."""
    pools, link, limits = PoolProblems(instance), instance.hardware.pool_link, instance.limits
    bill = cost.bill(instance, 0, None, None)

    def no_plan(decision: certificate.Decision, rules: tuple[str, ...], reason: str) -> Plan:
        return Plan(
            **solved_with(instance, options),
            status="infeasible" if rules else "unknown",
            objective=ObjectiveValue(name=instance.objective.minimize, value=None, bound=None, gap=None),
            conflict=certificate.Conflict(decision=decision, rules=rules, reason=reason),
            stopped="proved" if rules else deadline.cause,
        )

    # The racks of all pools may break a limit whatever their layouts.
    power, drawn, usd = limits.facility_power_mw, cost.pools_mw(instance), bill.total_usd
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
    if not shares.points and shares.stop is Stop.PROVED:
        reason = "no pool has a layout in its memory and racks, whatever its share"
        return no_plan("layout", ("hardware.pools", "memory"), reason)
    if not shares.points:
        return no_plan("layout", (), f"{ENDED[deadline.cause]} before a layout of any pool")
    section = pools.section(shares, options, deadline.elapsed)
    most, days, made = limits.deadline_days, section.days_to_train, section.certificate
    if most is not None and days > most * (1 + 1e-9):
        bound = made.bound or 0.0
        reason = f"all pools train in {days:,.6g} days > {most:,.6g}, the deadline, and in no less than {bound:,.6g}"
        return no_plan("layout", ("limits.deadline_days",) if bound > most else (), reason)  # proven, or not
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
