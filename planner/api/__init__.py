"""The library: its calls, each of which loads what it needs."""

from planner.api.clusters import place, simulate
from planner.api.plans import (
    calibrate,
    changed,
    check,
    design_fabric,
    evaluate,
    explain,
    frontier,
    limits,
    solve,
    sweep,
)
from planner.api.views import show_versions, to_frame

__all__ = [
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
