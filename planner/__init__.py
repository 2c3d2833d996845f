"""planner: plans the datacenters that train the largest AI models, from megawatts to ranks, with proofs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner.api import (
    calibrate,
    changed,
    check,
    design_fabric,
    evaluate,
    explain,
    frontier,
    limits,
    place,
    show_versions,
    simulate,
    solve,
    sweep,
    to_frame,
)
from planner.api.views import VIEWS
from planner.errors import InputError, PlannerError
from planner.version import __version__
from planner.views import provide

if TYPE_CHECKING:
    from planner.cluster.job import Job
    from planner.cluster.placement import Placement, Topology
    from planner.instance.instance import Instance
    from planner.plan.certificate import Violation
    from planner.plan.plan import Plan
    from planner.planning.frontier import Frontier
    from planner.planning.sessions.session import Session
    from planner.scheduling.session import Cluster
    from planner.solvers.running.progress import BoundRaised, Event, Finished, IncumbentFound, Note, PhaseStarted
    from planner.solvers.signals import Interrupter
    from planner.sweeps.row_store import Row

__all__ = [
    "BoundRaised",
    "Cluster",
    "Event",
    "Finished",
    "Frontier",
    "IncumbentFound",
    "InputError",
    "Instance",
    "Interrupter",
    "Job",
    "Note",
    "PhaseStarted",
    "Placement",
    "Plan",
    "PlannerError",
    "Row",
    "Session",
    "Topology",
    "Violation",
    "__version__",
    "calibrate",
    "changed",
    "check",
    "design_fabric",
    "evaluate",
    "explain",
    "frontier",
    "limits",
    "place",
    "show_versions",
    "simulate",
    "solve",
    "sweep",
    "to_frame",
]

provide(VIEWS)

_HOMES = {
    "BoundRaised": "planner.solvers.running.progress",
    "Cluster": "planner.scheduling.session",
    "Event": "planner.solvers.running.progress",
    "Finished": "planner.solvers.running.progress",
    "Frontier": "planner.planning.frontier",
    "IncumbentFound": "planner.solvers.running.progress",
    "Instance": "planner.instance.instance",
    "Interrupter": "planner.solvers.signals",
    "Job": "planner.cluster.job",
    "Note": "planner.solvers.running.progress",
    "PhaseStarted": "planner.solvers.running.progress",
    "Placement": "planner.cluster.placement",
    "Plan": "planner.plan.plan",
    "Row": "planner.sweeps.row_store",
    "Session": "planner.planning.sessions.session",
    "Topology": "planner.cluster.placement",
    "Violation": "planner.plan.certificate",
}


def __getattr__(name: str) -> Any:
    """Load a public type when it is first asked for, so that importing planner stays light."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'planner' has no attribute {name!r}")
