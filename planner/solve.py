"""The library's `solve`: reads the instance, takes the decisions in order, returns the checked plan."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.instance import Instance
    from planner.plan import Plan


def solve(
    instance: "Instance | Mapping[str, Any] | str | Path",
    *,
    time_limit: float | None = None,
    gap: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    pins: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
) -> "Plan":
    """Take every decision that the instance asks for and return the plan, proofs and bill included.

    Parameters
    ----------
    instance
        A path to a JSON file, its content as a dict, or an Instance.
    time_limit
        Seconds after which the best plan so far is returned, with its gap.
    gap
        Relative gap within which a decision counts as done.
    seed, threads
        Of the solvers; the same instance, seed and threads give the same plan.
    pins
        Decisions fixed by hand, by dotted path, over those of the instance.
    progress
        Called with a line of text as the search moves on.

    Raises
    ------
    PlannerError
        The input cannot be used; the message says where and what to do. An infeasible instance is a plan, not an error.
    """
    from planner.load import load_instance
    from planner.order import options_of, solve_instance

    options = options_of(time_limit=time_limit, gap=gap, seed=seed, threads=threads)
    return solve_instance(load_instance(instance, pins=pins), options, progress or _silent)


def _silent(_: str) -> None:
    """Report nothing."""
