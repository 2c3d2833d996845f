"""Errors whose message says what to do."""

import difflib
from collections.abc import Collection

CUTOFF = 0.4  # of difflib's ratio: low enough for a forgotten word, such as "tensor" for "tensor_parallel"


class PlannerError(Exception):
    """Any error that planner raises on purpose."""


class InputError(PlannerError):
    """The input cannot be used; the message names file, path, value, what was expected and the remedy."""


class InternalError(PlannerError):
    """A plan broke a rule of the checker: a defect of planner, not of the input."""


def hint(name: str, known: Collection[str], cutoff: float = CUTOFF) -> str:
    """Return the nearest known name as a question, letter case aside; all of them where none is near."""
    folded = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), list(folded), 1, cutoff)
    return f"did you mean {folded[near[0]]!r}?" if near else f"known: {', '.join(known) or 'none'}"
