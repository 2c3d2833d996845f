"""Errors whose message says what to do."""


class PlannerError(Exception):
    """Any error that planner raises on purpose."""


class InputError(PlannerError):
    """The input cannot be used; the message names file, path, value, what was expected and the remedy."""


class InternalError(PlannerError):
    """A plan broke a rule of the checker: a defect of planner, not of the input."""
