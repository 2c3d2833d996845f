"""The library's `explain`: why there is no plan and what would allow one, or what binds the plan and what its layout is worth against others."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.explanation import Explanation
    from planner.instance import Instance


def explain(
    instance: "Instance | Mapping[str, Any] | str | Path",
    *,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    pins: Mapping[str, Any] | None = None,
    near: int = 0,
    within: float = 0.05,
) -> "Explanation":
    """Solve an instance and explain the answer.

    Parameters
    ----------
    instance
        A path to a JSON file, its content as a dict, or an Instance.
    time_limit
        Seconds for the plan, and again for each alternative that it is compared with.
    seed, threads, pins
        As in `solve`.
    near, within
        How many of the best splits over different sets of sites to list, of those within this share of the best.

    Raises
    ------
    PlannerError
        The input cannot be used; the message says where and what to do.
    """
    from planner.explanation import explained
    from planner.load import load_instance
    from planner.order import options_of
    from planner.pool_references import refuse_pools

    asked = refuse_pools(load_instance(instance, pins=pins))
    return explained(asked, options_of(time_limit=time_limit, gap=None, seed=seed, threads=threads), near=near, within=within)
