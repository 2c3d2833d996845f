"""The library's `sweep`: solves a grid of instances and yields a row a point, as it finishes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.instance import Instance
    from planner.sweeps.rows import Row


def sweep(
    instance: "Instance | Mapping[str, Any] | str | Path",
    vary: Mapping[str, str | Sequence[Any]],
    *,
    pairs: Sequence[Mapping[str, Any]] = (),
    executor: Executor | None = None,
    workers: int | None = None,
    shard: tuple[int, int] | None = None,
    finished: Collection[str] = (),
    time_limit: float | None = None,
    gap: float | None = None,
    seed: int = 0,
    plans: str | Path | None = None,
) -> "Iterator[Row]":
    """Solve an instance at every point of a grid; yield a row a point, as it finishes.

    Bad paths and values are named before anything runs; an infeasible or failed point is a row with its reason.

    Parameters
    ----------
    instance
        A path to a JSON file, its content as a dict, or an Instance.
    vary
        Values by dotted path of the instance or of a pin: a sequence, or a text such as "20e9:200e9:10e9".
    pairs
        Points taken together, as one more axis: values by path.
    executor
        Where points are solved; it is left open. None: processes of this machine, ended when the iterator is.
    workers
        Processes where there is no executor; None: the cores.
    shard
        (i, n): only the i-th of n parts, counted from 1.
    finished
        Keys of rows at hand: their points are left out.
    time_limit, gap, seed
        Of every solve, as in `solve`.
    plans
        A folder for the whole plans, named by place and key.

    Raises
    ------
    PlannerError
        The instance or a point of the grid cannot be used.
    """
    from planner.sweeps.axes import points_of
    from planner.sweeps.run import Ask, rows_of, tasks_for

    points = points_of(vary, [dict(p) for p in pairs])
    ask = Ask(shard=shard, time_limit=time_limit, gap=gap, seed=seed, plans=None if plans is None else Path(plans))
    return rows_of(tasks_for(instance, points, ask), ask, finished=finished, executor=executor, workers=workers)
