"""The library's `limits`: how well the best layout uses its GPUs as models grow, and where no layout meets the deadline."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.instance import Instance
    from planner.limit_points import LimitPoint


def limits(
    instance: "Instance | Mapping[str, Any] | str | Path",
    flop: Sequence[float],
    *,
    days: float = 90.0,
    tolerance: float = 0.01,
    time_limit: float | None = None,
    executor: Executor | None = None,
) -> "Iterator[LimitPoint]":
    """Yield, for each compute in turn, the best utilisation with which the law's model is trained in the days given.

    Parameters
    ----------
    instance
        The accelerator, the rack, the precision and `workload.choose`: the laws and the family of models. Racks are free.
    flop
        Training compute of each point, 6·N·D.
    days
        Duration of every run.
    tolerance
        Relative width to which the fewest GPUs are bracketed.
    time_limit
        Seconds of one layout search; a point whose search is cut short is no longer proven.
    executor
        Where points are computed at once; None: here, one after another.

    Raises
    ------
    PlannerError
        The input cannot be used; the message says where and what to do.
    """
    from planner.errors import InputError
    from planner.limit_points import point
    from planner.load import load_instance
    from planner.pool_references import refuse_pools

    asked = refuse_pools(load_instance(instance, searched=False))
    if days <= 0:
        raise InputError(f"days: must be greater than 0 (is {days:g})")
    if executor is None:
        for c in flop:
            yield point(asked, c, days=days, tolerance=tolerance, time_limit=time_limit)
        return
    waiting = [executor.submit(point, asked, c, days=days, tolerance=tolerance, time_limit=time_limit) for c in flop]
    for answer in waiting:
        yield answer.result()
