"""Choose the fabric of one site: planes, tiers, ports and bundles that can be wired, at the lowest cost, by CP-SAT.

A fabric is leaves, then equal groups of spines, cores and super-spines: position i of every pod's spines and all
switches above them form group i, and there are s = leaf_up / leaf_bundle of them. So the cost is leaves + s·(one
group), and two tables carry the choice: a row per way to wire leaves to the spines of a pod, and a row per spine group;
rules of the model join them.
"""

from planner.instance.instance import Instance
from planner.models.fabric.data import problem_of
from planner.models.fabric.design import FabricDesign
from planner.models.fabric.pareto import alternatives
from planner.models.fabric.search import search
from planner.models.requests import FabricRequest, Options
from planner.solvers.outcome import Outcome

__all__ = ["FabricDesign", "alternatives", "solve"]


def solve(instance: Instance, request: FabricRequest, options: Options, *, site: str) -> Outcome[FabricDesign]:
    """Return the cheapest fabric that hides the layout's traffic, among equals the one that splits fewest groups."""
    return search(problem_of(instance, request), options, site)
