"""Find the limit on further racks of a proven plan: money, power and sites, the racks owned, or none."""

import math
from typing import TYPE_CHECKING

from planner.instance.instance import Instance
from planner.models.joint.solution import JointSolution
from planner.models.requests import Options
from planner.plan.certificate import LimitedBy
from planner.solvers.outcome import UnansweredError
from planner.solvers.signals import Deadline, OutOfTimeError

if TYPE_CHECKING:
    from planner.models.joint.sites import Sites


def limited_by(instance: Instance, solution: JointSolution, options: Options, deadline: Deadline) -> LimitedBy | None:
    """Return the limit that one more block of racks would reach; None where the time ends first or nothing is proven.

    It is `grid` where power and sites have no room for the block at any price, `budget` where the rest of the budget
    does not buy it on the cheapest fabric, and else `layout`: no strategy is faster with the block. Without a grid it
    is `owned_racks` in place of the first two.
    """
    choice = solution.plan
    block = None if choice is None else choice.column.strategy.block(choice.column.p)
    if choice is None or block is None or solution.stopped != "proved":
        return None
    used = block.racks * sum(choice.blocks_by_site.values())
    more = used + block.racks
    if instance.grid is None:
        return "owned_racks" if more > (instance.hardware.racks or 0) else "layout"
    here, left = _sites(instance, options, deadline), (instance.limits.budget_usd or math.inf) - choice.capital_usd
    idle = sum(choice.placed.racks.values()) - used if choice.placed else 0
    least_usd = here.floor_usd(max(0, block.racks - idle), 0) + block.racks * here.min_fabric_usd(block.rails)
    try:
        free = instance.limits.model_copy(update={"budget_usd": None})
        rich = _sites(instance.model_copy(update={"limits": free}), options, deadline)
        if more > rich.max_racks(block.rails):
            return "grid"
        return "budget" if left < least_usd or more > here.max_racks(block.rails) else "layout"
    except (OutOfTimeError, UnansweredError):
        return None


def _sites(instance: Instance, options: Options, deadline: Deadline) -> "Sites":
    from planner.models.joint.sites import Sites

    sites = Sites(instance=instance, seed=options.seed, threads=options.threads)
    sites.deadline = deadline
    return sites
