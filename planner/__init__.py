"""planner: plans the datacenters that train the largest AI models, from megawatts to ranks, with proofs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# The two calls import what they need when called; their modules share their names, so both are bound here, once.
from planner.check import check
from planner.errors import PlannerError
from planner.evaluate import evaluate
from planner.explain import explain
from planner.place import place
from planner.simulate import simulate
from planner.solve import solve

if TYPE_CHECKING:
    from planner.cluster import Cluster
    from planner.instance import Instance
    from planner.job import Job
    from planner.placement import Placement
    from planner.plan import Plan, Violation

__version__ = "0.1.0"
__all__ = [
    "Cluster",
    "Instance",
    "Job",
    "Placement",
    "Plan",
    "PlannerError",
    "Violation",
    "check",
    "evaluate",
    "explain",
    "place",
    "simulate",
    "solve",
]

_HOMES = {
    "Cluster": "planner.cluster",
    "Instance": "planner.instance",
    "Job": "planner.job",
    "Placement": "planner.placement",
    "Plan": "planner.plan",
    "Violation": "planner.plan",
}


def __getattr__(name: str) -> Any:
    """Load a public type when it is first asked for, so that importing planner stays light."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'planner' has no attribute {name!r}")
