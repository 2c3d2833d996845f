"""Errors of planner, whose messages say what to do."""

import difflib
import json
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

MOST_COMPARED, MOST_SHOWN = 5_000, 200  # known names that are compared with a wrong one, and that are listed
CUTOFF = 0.4  # of difflib's ratio: low enough for a forgotten word, such as "tensor" for "tensor_parallel"


class PlannerError(Exception):
    """Any error that planner raises on purpose."""


class InputError(PlannerError):
    """The input cannot be used; the message names file, path, value, what was expected and the remedy."""


class InternalError(PlannerError):
    """A plan broke a rule of the checker: a defect of planner, not of the input."""


def hint(name: str, known: Collection[str], cutoff: float = CUTOFF, most: int = MOST_SHOWN) -> str:
    """Return for an error's message the nearest known name as a question; `most` names where none is near."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(name.lower(), list(folded), 1, cutoff) if len(known) <= MOST_COMPARED else []
    begun = [x for x in folded if name and x.startswith(name.lower())]
    near = begun if len(begun) == 1 else near  # of a name that was cut short: GB200 of GB200-NVL72, not DGX-B200
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    more = f", ... ({len(known):,} in all)" if len(known) > most else ""
    return f"known: {', '.join(islice(known, most)) or 'none'}{more}"


def shown(value: Any) -> str:
    """Write the first 80 characters of a value's JSON for an error's message."""
    with suppress(ValueError):  # of a value that holds itself
        return json.dumps(value, default=str)[:80]
    return repr(value)[:80]


@contextmanager
def needed(feature: str, package: str, extra: str) -> Iterator[None]:
    """Import a package of an extra in the `with` body; InputError: missing (with how to install it) or not loadable."""
    try:
        yield
    except ImportError:
        remedy = f"install the extra `{extra}` of this distribution"
        raise InputError(f"{feature} needs the package {package}; {remedy}") from None
    except ValueError as error:  # such as a value of MPLBACKEND that is none
        problem = str(error).partition(";")[0]
        for name in [x for x in sys.modules if x.partition(".")[0] == package]:
            del sys.modules[name]  # half loaded: once the environment is right it is to load anew
        raise InputError(f"{feature}: {package} does not load ({problem}); correct the environment") from None
