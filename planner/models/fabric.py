"""Choose the fabric of one site: planes, tiers, ports and bundles that can be wired, at least cost, by CP-SAT.

A fabric is leaves, then equal groups of spines, cores and super-cores: position i of every pod's spines and all boxes above them form
group i, and there are s = leaf_up / leaf_bundle of them. So the cost is leaves + s·(one group), and two tables carry the
choice: a row per way to wire leaves to the spines of a pod, and a row per spine group; rules of the model join them.
"""

from planner.handoff import FabricRequest, Options
from planner.instance import Instance
from planner.models.fabric_design import FabricDesign
from planner.models.fabric_frontier import alternatives
from planner.models.fabric_question import problem_of
from planner.models.fabric_report import certificate, site_fabric
from planner.models.fabric_search import search
from planner.solvers.outcome import Outcome

__all__ = ["FabricDesign", "alternatives", "certificate", "site_fabric", "solve"]


def solve(instance: Instance, request: FabricRequest, options: Options, *, site: str) -> Outcome[FabricDesign]:
    """Return the cheapest fabric that hides the layout's traffic, among equals the one that splits fewest groups."""
    return search(problem_of(instance, request), options, site)
