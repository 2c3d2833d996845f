"""The curve of money against days of an instance."""

from collections.abc import Callable
from dataclasses import dataclass

from planner.instance.instance import Instance
from planner.models.requests import Options
from planner.plan.curve import Curve
from planner.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Frontier:
    """The curve of an instance, and the plan of each of its points in the same order."""

    instance: Instance
    curve: Curve
    plans: tuple[Plan, ...]


def frontier_of(
    instance: Instance,
    options: Options,
    progress: Callable[[str], None],
    *,
    epsilon: float = 0.1,
    points: int | None = None,
) -> Frontier:
    """Return the curve of a loaded instance; raise InputError where it has none.

    Parameters
    ----------
    options
        At its time limit, and at Ctrl-C, the curve is returned as far as it is proven.
    epsilon
        The search ends where every plan of the box is matched by a point within this share in days and capital.
    points
        Most points that are returned, spread evenly over the curve, with both ends and the knee; None: all.
    """
    raise NotImplementedError
