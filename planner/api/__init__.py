"""The library: its calls, each of which loads what it needs."""

from planner.api.clusters import place, simulate
from planner.api.plans import calibrate, check, evaluate, explain, limits, solve, sweep

__all__ = ["calibrate", "check", "evaluate", "explain", "limits", "place", "simulate", "solve", "sweep"]
