"""Choose the fabric of one site: planes, tiers, ports and bundles that can be wired, at the lowest cost, by CP-SAT.

A fabric is leaves, then equal groups of spines, cores and super-spines: position i of every pod's spines and all
switches above them form group i, and there are s = leaf_up / leaf_bundle of them. So the cost is leaves + s·(one
group), and two tables carry the choice: a row per way to wire leaves to the spines of a pod, and a row per spine group;
rules of the model join them.
"""

from dataclasses import replace

from planner.instance.instance import Instance
from planner.instance.network import Network
from planner.models.fabric.data import problem_of, ratios_of
from planner.models.fabric.design import FabricDesign
from planner.models.fabric.pareto import alternatives
from planner.models.fabric.report import certificate, site_fabric
from planner.models.fabric.search import search
from planner.models.requests import FabricRequest, Options
from planner.simulation.reference_tree import transport_slowdown_of
from planner.solvers.outcome import Outcome

__all__ = ["FabricDesign", "alternatives", "certificate", "site_fabric", "solve", "still_cheapest"]


def solve(instance: Instance, request: FabricRequest, options: Options, *, site: str) -> Outcome[FabricDesign]:
    """Return the cheapest fabric that hides the layout's traffic, among equals the one that splits fewest groups."""
    return search(problem_of(instance, request), options, site)


def still_cheapest(network: Network, before: FabricRequest, now: FabricRequest, slowdowns: tuple[float, float]) -> bool:
    """Return whether the design chosen for one request is the cheapest of another too, from its worst slowdowns.

    Where the new request asks for the same but allows no more, its designs are some of those that were chosen from;
    then the one chosen is the cheapest of these as well, if it is among them.
    """
    own, old, new = transport_slowdown_of(network), ratios_of(network, before), ratios_of(network, now)
    alike = _without_times(before) == _without_times(now)
    narrower = new.send <= old.send and new.allreduce <= old.allreduce
    return alike and narrower and slowdowns[0] <= new.send * own and slowdowns[1] <= new.allreduce * own


def _without_times(r: FabricRequest) -> FabricRequest:
    """Return a request without what bounds its slowdowns."""
    r = replace(r, pipeline_send_seconds=0.0, pipeline_send_window_seconds=0.0, pipeline_send_limit=None)
    return replace(r, allreduce_seconds=0.0, allreduce_window_seconds=0.0, allreduce_limit=None)
