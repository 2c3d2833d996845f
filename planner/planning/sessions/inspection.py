"""What one solve of a session proved is not searched, and not enumerated again, for the next.

An answer in seconds a sequence is one for any number of tokens.
"""

from dataclasses import dataclass, replace
from typing import Any

from planner.checks.joint_columns import max_racks
from planner.checks.joint_proof import highest_bound
from planner.instance.instance import Instance
from planner.models.joint.cache import JointCache
from planner.models.joint.solution import JointSolution
from planner.models.requests import Options
from planner.physics.site.cost import rack_of
from planner.plan.plan import Plan
from planner.solvers.progress import models_wanted


def inspection(plan: Plan, cache: JointCache | None) -> Any:
    """Return all that the enumeration of a proof reads in addition to the instance without its budget, as one key.

    The budget enters the enumeration through the maximum racks alone. None where the plan has no such proof, or the
    cache is that of another instance.
    """
    if cache is None or plan.proof is None or plan.layout is None or not cache.serves(plan.instance):
        return None
    if plan.instance.objective.minimize != "days_to_train":
        return None
    racks = tuple(max_racks(plan.instance, gpus) for gpus in range(rack_of(plan.instance.hardware).gpus + 1))
    proof = plan.proof
    return highest_bound(plan), racks, proof.columns, tuple(sorted(proof.max_racks_by_wired_gpus.items()))


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
        instance, options = self.instance, self.options
        if models_wanted():  # they are written by the search
            return None
        whole = (
            instance.objective.minimize == "days_to_train"
            and instance.limits.deadline_days is None
            and options.gap is None
        )
        if not whole or instance.hardware.alternatives or instance.hardware.pools:
            return None
        work = instance.workload.model_copy(update={"tokens": 1.0})
        asked = instance.model_copy(update={"workload": work, "name": ""})
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
    days = {"days_to_train": value.days_to_train * share}
    return value.model_copy(
        update=days | ({"value": value.value * share} if getattr(value, "name", "") == "goal" else {})
    )
