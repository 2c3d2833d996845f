"""A plan for pools of different GPUs that train one model: a layout for each, and the shares of the batch that balance them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from planner.instance.identity import instance_sha256
from planner.instance.instance import Instance
from planner.models import batch_shares as shares
from planner.models.batch_shares import Point, Shares
from planner.models.layout.data import Problem, problem_of
from planner.models.layout.report import given_by, plan_of
from planner.models.requests import LayoutRequest, Options
from planner.physics.site.cost import bill
from planner.physics.training import heterogeneous, layer_time, step
from planner.plan.certificate import Certificate, Conflict, ObjectiveValue
from planner.plan.layout import LayoutMetrics, LayoutPlan, PoolsPlan
from planner.plan.plan import Plan
from planner.simulation.reference_tree import transport_slowdown_of
from planner.solvers.outcome import Stop, relative_gap
from planner.version import __version__

CLUSTER = "cluster"  # the id of a pool's one site
SOLVER = "branch and bound over shares; numpy branch and bound over tables"
FORMULATION = (
    "Sequences of a step by pool, each pool's layout its own. The least seconds per sequence of all shares up to a size bound every box of shares "
    "from below; boxes are halved in order of their bounds, shares of a batch of {small} sequences at most down to exact counts. {searches} searches "
    "of layouts over {boxes:,} boxes; the layouts found, and these with other numbers of micro-batches, are joined to the best shares."
)


@dataclass(frozen=True)
class Question:
    """The pools of an instance as layout questions, and what joins them."""

    instance: Instance

    @cached_property
    def problems(self) -> list[Problem]:
        """The layout question of each pool, the whole batch in it."""
        most = int((self.instance.limits.max_batch_tokens or 0) // self.instance.workload.sequence_length)
        slow = transport_slowdown_of(self.instance.network)
        found = []
        for p in self.instance.hardware.pools:
            request = LayoutRequest(
                racks_by_site={CLUSTER: p.racks}, pipeline_send_slowdown=slow, allreduce_slowdown=slow
            )
            found.append(problem_of(heterogeneous.pool_instance(self.instance, p, most), request))
        return found

    def metrics(self, k: int, point: Point) -> LayoutMetrics:
        """Predict what a pool's layout does."""
        alone = heterogeneous.pool_instance(self.instance, self.instance.hardware.pools[k], point.sequences)
        return LayoutMetrics.model_validate(step.metrics(alone, self.problems[k].conditions, point.cut))

    def exchanges(self, points: tuple[Point | None, ...]) -> list[float]:
        """Return the exposed exchange of each pool that trains, 0 of the others."""
        link, training = self.instance.hardware.pool_link, sum(x is not None for x in points)
        if link is None or training < 2:
            return [0.0] * len(points)
        held = [None if x is None else (self.metrics(k, x), max(x.cut.layers_per_stage)) for k, x in enumerate(points)]
        return [0.0 if h is None else heterogeneous.exchange_seconds(link, h[0], h[1], training) for h in held]

    def days(self, seconds_per_sequence: float) -> float:
        """Return the days to train at so many seconds per sequence."""
        w = self.instance.workload
        return layer_time.days_to_train(w.tokens, w.sequence_length, seconds_per_sequence, w.availability)


def solve(instance: Instance, options: Options, progress: Callable[[str], None]) -> Plan:
    """Share the batch over the pools so that they train fastest, and return the plan, or why there is none."""
    started, question = time.perf_counter(), Question(instance)
    power, drawn = instance.limits.facility_power_mw, heterogeneous.facility_mw(instance)
    if power is not None and drawn > power * (1 + 1e-9):
        rules = ("hardware.pools", "limits.facility_power_mw")
        return _plan(
            instance,
            options,
            conflict=Conflict(
                decision="sites", rules=rules, reason=f"the pools draw {drawn:,.6g} MW > {power:,.6g} MW"
            ),
        )
    budget, usd = instance.limits.budget_usd, bill(instance, 0, None, None).total_usd
    if budget is not None and usd > budget:
        reason = f"the racks of all pools cost ${usd:,.0f} > ${budget:,.0f}"
        return _plan(
            instance,
            options,
            conflict=Conflict(decision="budget", rules=("hardware.pools", "limits.budget_usd"), reason=reason),
        )
    found = shares.balance(
        question.problems,
        question.problems[0].most_sequences,
        tail=lambda points: max(question.exchanges(points)),
        least_tail=instance.hardware.pool_link.rtt_ms / 1e3 if instance.hardware.pool_link else 0.0,
        gap=options.gap,
        time_limit=options.time_limit,
        progress=progress,
    )
    if found is None:
        reason = "the layouts of no pool fit its memory and racks, whatever its share of the batch"
        return _plan(
            instance, options, conflict=Conflict(decision="layout", rules=("hardware.pools", "memory"), reason=reason)
        )
    return _judged(instance, options, _section(question, found, options, time.perf_counter() - started))


def _judged(instance: Instance, options: Options, held: PoolsPlan) -> Plan:
    """Return the plan where it trains in time, else what is proven of the deadline."""
    deadline, least = instance.limits.deadline_days, held.certificate.bound or 0.0
    if deadline is not None and held.days_to_train > deadline * (1 + 1e-9):
        proven = least > deadline
        reason = (
            f"all pools train in {held.days_to_train:,.1f} days > {deadline:,.1f}, and in no less than {least:,.1f}"
        )
        return _plan(
            instance,
            options,
            conflict=Conflict(decision="layout", rules=("limits.deadline_days",) if proven else (), reason=reason),
        )
    return _plan(instance, options, held=held)


def _section(question: Question, found: Shares, options: Options, seconds: float) -> PoolsPlan:
    """Write the shares and each pool's layout, with what is proven of them together."""
    instance, names = question.instance, [p.name for p in question.instance.hardware.pools]
    held = [(k, n, x) for k, (n, x) in enumerate(zip(names, found.points, strict=True)) if x is not None]
    waits, total = question.exchanges(found.points), sum(x.sequences for _, _, x in held)
    measured = {n: question.metrics(k, x) for k, n, x in held}
    slowest = max(m.step_seconds for m in measured.values()) + max(waits)
    days = question.days(slowest / total)
    bound = min(days, question.days(found.bound))
    gap = relative_gap(days, bound) or 0.0
    certificate = Certificate(
        status="optimal" if gap <= 1e-9 else "feasible",
        objective=days,
        bound=bound,
        gap=gap,
        solver=SOLVER,
        formulation=FORMULATION.format(small=shares.SMALL, searches=found.searches, boxes=found.boxes),
        variables=len(names),
        constraints=len(names) + 1,
        seconds=seconds,
        seed=options.seed,
        minimizes="days to train, over the shares of the batch and every pool's layout",
        given="; ".join(f"{n}: {given_by(p)}" for n, p in zip(names, question.problems, strict=True)),
        space={"pools": len(names), "boxes": found.boxes, "searches": found.searches, "ended": found.stop.name.lower()},
    )
    layouts = {n: _layout(question, k, x, measured[n], options) for k, n, x in held}
    return PoolsPlan(
        sequences={n: x.sequences if x else 0 for n, x in zip(names, found.points, strict=True)},
        layouts=layouts,
        exchange_seconds={n: waits[k] for k, n, _ in held},
        step_seconds=slowest,
        tokens_per_step=float(total * instance.workload.sequence_length),
        days_to_train=days,
        certificate=certificate,
    )


def _layout(question: Question, k: int, point: Point, measured: LayoutMetrics, options: Options) -> LayoutPlan:
    """Write a pool's layout: what is proven is proven of the shares and layouts together, so its own certificate claims no bound."""
    certificate = Certificate(
        status="feasible",
        objective=measured.days_to_train,
        bound=None,
        gap=None,
        solver=SOLVER,
        formulation="The pool's part of the shares, whose certificate holds the proof.",
        variables=0,
        constraints=0,
        seconds=0.0,
        seed=options.seed,
        minimizes="days to train by this pool alone, at its share of the batch",
        given=given_by(question.problems[k]),
    )
    return plan_of(question.problems[k], point.cut, measured, certificate)


def _plan(
    instance: Instance, options: Options, *, held: PoolsPlan | None = None, conflict: Conflict | None = None
) -> Plan:
    """Write the plan that is held, or why there is none."""
    c = held.certificate if held else None
    proved = c is None or c.status == "optimal" or c.space["ended"] == Stop.PROVED.name.lower()
    return Plan(
        planner_version=__version__,
        instance=instance,
        instance_sha256=instance_sha256(instance),
        status="unknown"
        if conflict and not conflict.rules
        else "infeasible"
        if c is None
        else "optimal"
        if c.status == "optimal"
        else "feasible",
        objective=ObjectiveValue(
            name=instance.objective.minimize,
            value=c.objective if c else None,
            bound=c.bound if c else None,
            gap=c.gap if c else None,
        ),
        pools=held,
        cost=bill(instance, 0, None, None) if held else None,
        conflict=conflict,
        stopped="proved" if proved else "limit",
        threads=options.threads or 1,
        seed=options.seed,
        time_limit_seconds=options.time_limit,
    )
