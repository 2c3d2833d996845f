"""The proof of a joint optimum as a plan states it, the plan without decisions, and what a session keeps of both.

What one solve of a session proved is not searched, and not enumerated again, for the next; an answer in seconds a
sequence is one for any number of tokens.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from planner.checks.joint_columns import max_racks
from planner.checks.joint_proof import highest_bound
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint.cache import JointCache
from planner.models.joint.world import JointSolution
from planner.physics.network.fabric_designs import min_fabric_usd
from planner.physics.site.cost import rack_of
from planner.physics.training.parallel_strategy import shape_values
from planner.plan.certificate import OUTSIDE, Conflict, ExcludedColumn, JointProof, ObjectiveValue, declared_space
from planner.plan.plan import Plan
from planner.planning.instance_parts import solved_with
from planner.simulation.flow_times import factor
from planner.solvers.outcome import relative_gap
from planner.solvers.progress import models_wanted
from planner.solvers.signals import ENDED


def proof_of(instance: Instance, solution: JointSolution) -> JointProof:
    """Return the facts other than physics on which the bound of a solution rests, for the checker to follow."""
    in_days = instance.objective.minimize == "days_to_train"
    return refused_of(solution).replaced(
        fabric_free_bound_days=solution.fabric_free_bound if in_days else None,
        counts=solution.counts,
        min_fabric_usd_per_wired_gpu=min_fabric_usd(instance.network) if instance.network else None,
    )


def refused_of(solution: JointSolution) -> JointProof:
    """Return what a proof says that sites and budget refused: racks beyond the most, and columns."""
    return JointProof(
        max_racks_by_wired_gpus=dict(sorted(solution.max_racks.items())),
        joined_racks_by_wired_gpus=dict(sorted(solution.joined_racks.items())),
        columns=columns_of(solution),
    )


def columns_of(solution: JointSolution) -> tuple[ExcludedColumn, ...]:
    """Return the columns that only sites and budget refused, those that differ in replicas and micro-batches as one."""
    groups: dict[Any, dict[int, float]] = defaultdict(dict)
    for days, column in solution.excluded:
        per_rack = column.block.stages_per_rack
        key = (column.strategy.shape, column.p, column.v, column.zero, column.strategy.order, per_rack)
        groups[key][column.d] = min(days, groups[key].get(column.d, days))
    columns = list[ExcludedColumn]()
    for (shape, stages, virtual, zero, order, per_rack), by_replicas in groups.items():
        # Of each run of replicas without a gap; numbers less their places are the same along one.
        for _, run in groupby(enumerate(sorted(by_replicas)), key=lambda pair: pair[1] - pair[0]):
            replicas = [number for _, number in run]
            same = ExcludedColumn(
                **shape_values(shape),
                pipeline_parallel=stages,
                virtual_stages=virtual,
                zero_stage=zero,
                schedule=order,
                stages_per_rack=per_rack,
                min_data_parallel=replicas[0],
                max_data_parallel=replicas[-1],
                lower_bound_days=min(by_replicas[number] for number in replicas),
            )
            columns.append(same)
    return tuple(columns)


def objective_of(
    instance: Instance, solution: JointSolution, value: float | None, bound: float | None
) -> ObjectiveValue:
    """Return the objective of a plan with its bounds, and the space that they are over."""
    gap, free = relative_gap(value, bound), None
    if instance.objective.minimize == "days_to_train" and value is not None and solution.fabric_free_bound is not None:
        free = min(solution.fabric_free_bound, value) if math.isfinite(solution.fabric_free_bound) else None
    return ObjectiveValue(
        name=instance.objective.minimize,
        value=value,
        bound=bound,
        gap=gap,
        joint_bound=bound,
        joint_gap=gap,
        fabric_free_bound=free,
        space=declared_space(instance.workload.rules),
        outside=OUTSIDE,
    )


def unanswered(instance: Instance, options: Options, reason: str) -> Plan:
    """Return a plan that says only that a back end gave no answer, and what it said."""
    nothing = JointSolution(status="unknown", stopped="limit", failure=reason)
    return without_plan(instance, nothing, options)


def without_plan(instance: Instance, solution: JointSolution, options: Options) -> Plan:
    """Return a plan without decisions: there is proven to be none, or none was found before the search ended."""
    reason = solution.failure or f"{ENDED[solution.stopped]} before a plan was found"
    proven = solution.status == "infeasible" and instance.objective.minimize == "days_to_train"
    return Plan(
        **solved_with(instance, options),
        status="infeasible" if solution.status == "infeasible" else "unknown",
        objective=objective_of(instance, solution, None, None),
        transport=factor(instance.network) if proven else None,  # the times of the proof have it
        proof=refused_of(solution) if proven else None,
        conflict=Conflict(decision="layout", rules=(), reason=reason),
        stopped=solution.stopped,
    )


def inspection(plan: Plan, cache: JointCache | None) -> Any:
    """Return all that the enumeration of a proof reads in addition to the instance without its budget, as one key.

    The budget enters through the maximum racks. None without such a proof, or where the cache is of another instance.
    """
    in_days = plan.instance.objective.minimize == "days_to_train"
    if cache is None or plan.proof is None or plan.layout is None or not in_days or not cache.serves(plan.instance):
        return None
    racks = tuple(max_racks(plan.instance, gpus) for gpus in range(rack_of(plan.instance.hardware).gpus + 1))
    stated = plan.proof.max_racks_by_wired_gpus, plan.proof.joined_racks_by_wired_gpus
    return highest_bound(plan), racks, plan.proof.columns, *(tuple(sorted(by_gpus.items())) for by_gpus in stated)


@dataclass(frozen=True)
class Answered:
    """The answer to a question for the fewest days, kept for the same question of as many or other tokens.

    `seek_others`: the objective's statements on other plans (cheaper, simpler, the end of the campus) are asked too.
    """

    instance: Instance
    options: Options
    cache: JointCache
    seek_others: bool

    @property
    def _question(self) -> Any:
        """Return all that the answer in seconds a sequence depends on; None where days themselves matter."""
        instance, options, hardware = self.instance, self.options, self.instance.hardware
        in_days = instance.objective.minimize == "days_to_train" and instance.limits.deadline_days is None
        written = models_wanted()  # by the search
        if written or not in_days or options.gap is not None or hardware.alternatives or hardware.pools:
            return None
        asked = instance.replaced(workload__tokens=1.0, name="")
        return asked, options.seed, options.threads, self.seek_others

    def known(self) -> tuple[JointSolution, dict[str, Any]] | None:
        """Return the answer of an earlier solve of the session, its days for these tokens; None where there is none."""
        asked = self._question
        known = next((answer for answer in self.cache.answers if asked is not None and answer[0] == asked), None)
        if known is None:
            return None
        _, tokens, solution, more = known
        share = self.instance.workload.tokens / tokens
        figures = {name: getattr(solution, name) for name in ("days", "lower_bound", "fabric_free_bound")}
        changed: dict[str, Any] = {name: None if days is None else days * share for name, days in figures.items()}
        changed["excluded"] = tuple((days * share, column) for days, column in solution.excluded)
        return replace(solution, **changed), {name: _all_for_tokens(value, share) for name, value in more.items()}

    def keep(self, solution: JointSolution, more: dict[str, Any]) -> None:
        """Keep an answer that is proven to its last end."""
        asked = self._question
        if asked is not None and solution.plan is not None and solution.stopped == "proved":
            self.cache.answers.append((asked, self.instance.workload.tokens, solution, more))


def _all_for_tokens(value: Any, share: float) -> Any:
    """Return what an objective says of other plans with its days for other tokens."""
    if isinstance(value, tuple):
        return tuple(_all_for_tokens(end, share) for end in value)
    if value is None:
        return None
    changed = {"days_to_train": value.days_to_train * share}
    if getattr(value, "name", "") == "goal":
        changed["value"] = value.value * share
    return value.replaced(**changed)
