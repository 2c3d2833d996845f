"""planner: plans the datacenters that train the largest AI models, from megawatts to ranks, with proofs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner.api.cluster_calls import place, simulate
from planner.api.plan_calls import (
    calibrate,
    changed,
    check,
    design_fabric,
    evaluate,
    explain,
    frontier,
    layouts,
    limits,
    show_versions,
    solve,
    sweep,
    to_frame,
)
from planner.errors import InputError, PlannerError
from planner.version import __version__

if TYPE_CHECKING:
    from planner.cluster.job import Job
    from planner.cluster.placement import Placement
    from planner.cluster.topology import Topology, TopologyBlock, TopologySwitch
    from planner.instance.instance import Instance
    from planner.plan.certificate import Violation
    from planner.plan.plan import Plan
    from planner.planning.frontier import Frontier
    from planner.planning.solve import Session
    from planner.scheduling.warm_cluster import Cluster
    from planner.solvers.progress import BoundRaised, Event, Finished, IncumbentFound, Note, PhaseStarted
    from planner.solvers.signals import Interrupter
    from planner.sweeps.row_store import Row

__all__ = ["BoundRaised", "Cluster", "Event", "Finished", "Frontier", "IncumbentFound", "InputError", "Instance"]
__all__ += ["Interrupter", "Job", "Note", "PhaseStarted", "Placement", "Plan", "PlannerError", "Row", "Session"]
__all__ += ["Topology", "TopologyBlock", "TopologySwitch", "Violation", "__version__", "calibrate", "changed", "check"]
__all__ += ["design_fabric", "evaluate", "explain", "frontier", "layouts", "limits", "place", "show_versions"]
__all__ += ["simulate", "solve", "sweep", "to_frame"]

_HOMES = {
    "planner.solvers.progress": ("BoundRaised", "Event", "Finished", "IncumbentFound", "Note", "PhaseStarted"),
    "planner.scheduling.warm_cluster": ("Cluster",),
    "planner.planning.frontier": ("Frontier",),
    "planner.instance.instance": ("Instance",),
    "planner.solvers.signals": ("Interrupter",),
    "planner.cluster.job": ("Job",),
    "planner.cluster.placement": ("Placement",),
    "planner.cluster.topology": ("Topology", "TopologyBlock", "TopologySwitch"),
    "planner.plan.plan": ("Plan",),
    "planner.sweeps.row_store": ("Row",),
    "planner.planning.solve": ("Session",),
    "planner.plan.certificate": ("Violation",),
}


def __getattr__(name: str) -> Any:
    """Load a public type of `planner` when it is first used, so that importing planner stays light."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'planner' has no attribute {name!r}")
