"""What keeps further racks out of a proven plan: money, power and sites, the racks that are owned, or nothing."""

from planner.instance.instance import Instance
from planner.models.joint.sites import Sites
from planner.models.joint.solution import JointSolution
from planner.models.requests import Options
from planner.plan.certificate import LimitedBy
from planner.solvers.deadline import Deadline, OutOfTimeError
from planner.solvers.outcome import UnansweredError


def limited_by(instance: Instance, solution: JointSolution, options: Options, deadline: Deadline) -> LimitedBy | None:
    """Say what one more block of racks would meet; None where it cannot be said in time or nothing is proven.

    `layout` where power, sites and money each allow one more: no way to cut the model is faster with it.
    """
    choice = solution.plan
    block = None if choice is None else choice.column.strategy.block(choice.column.p)
    if choice is None or block is None or solution.stopped != "proved":
        return None
    more = block.racks * (1 + sum(choice.blocks_by_site.values()))
    if instance.grid is None:
        return "owned_racks" if more > (instance.hardware.racks or 0) else "layout"
    try:
        free = instance.limits.model_copy(update={"budget_usd": None})
        if more > _most_racks(instance.model_copy(update={"limits": free}), block.rails, options, deadline):
            return "grid"
        return "budget" if more > _most_racks(instance, block.rails, options, deadline) else "layout"
    except (OutOfTimeError, UnansweredError):
        return None


def _most_racks(instance: Instance, rails: int, options: Options, deadline: Deadline) -> int:
    """Bound the racks that power, sites and the budget of an instance allow, on the least of any fabric."""
    sites = Sites(instance=instance, seed=options.seed, threads=options.threads)
    sites.deadline = deadline
    return sites.max_racks(rails)
