"""The plan that a solve returns: decisions, metrics, certificates, and its views, which the layers above provide."""

from collections.abc import Callable
from typing import Any

from planner.errors import InternalError

_VIEWS: dict[str, Callable[..., Any]] = {}


def provide(views: dict[str, Callable[..., Any]]) -> None:
    """Register the functions that show a plan, by the names of its methods; `import planner` gives them."""
    _VIEWS.update(views)


def view(name: str) -> Callable[..., Any]:
    """Return the registered function behind a method of a plan."""
    try:
        return _VIEWS[name]
    except KeyError:
        raise InternalError(f"{name}: no layer provides this view of a plan; import planner first") from None
