"""The version of the planner."""

__version__ = "0.1.0"
