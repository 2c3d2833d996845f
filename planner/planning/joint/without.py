"""Write a plan without decisions: the proof that there is none, or the reason why none was found."""

from planner.instance.instance import Instance, instance_sha256
from planner.models.joint.solution import JointSolution, JointStatus
from planner.models.requests import Options
from planner.plan.certificate import Conflict
from planner.plan.plan import Plan
from planner.planning.joint.proof import objective_of, refused_of
from planner.simulation.flow_times import factor
from planner.solvers.signals import ENDED
from planner.version import __version__


def unanswered(instance: Instance, options: Options, reason: str) -> Plan:
    """Return a plan that says only that a back end gave no answer, and what it said."""
    nothing = JointSolution(
        status=JointStatus.UNKNOWN,
        stopped="limit",
        failure=reason,
    )
    return without_plan(instance, nothing, options)


def without_plan(instance: Instance, solution: JointSolution, options: Options) -> Plan:
    """Return a plan without decisions: there is proven to be none, or none was found before the search ended."""
    reason = solution.failure or f"{ENDED[solution.stopped]} before a plan was found"
    proven = solution.status is JointStatus.INFEASIBLE and instance.objective.minimize == "days_to_train"
    return Plan(
        planner_version=__version__,
        instance=instance,
        instance_sha256=instance_sha256(instance),
        status="infeasible" if solution.status is JointStatus.INFEASIBLE else "unknown",
        objective=objective_of(instance, solution, None, None),
        transport=factor(instance.network) if proven else None,  # the times of the proof have it
        proof=refused_of(solution) if proven else None,
        conflict=Conflict(decision="layout", rules=(), reason=reason),
        stopped=solution.stopped,
        threads=options.threads or 1,
        seed=options.seed,
        time_limit_seconds=options.time_limit,
    )
