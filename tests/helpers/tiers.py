"""Cases that the quick tier leaves to the slow one."""

from typing import Any

import pytest


def slow(*cases: Any) -> list[Any]:
    """Return cases of a parameter as those of the slow tier; a tuple is one case of several parameters."""
    return [pytest.param(*(x if isinstance(x, tuple) else (x,)), marks=pytest.mark.slow) for x in cases]
