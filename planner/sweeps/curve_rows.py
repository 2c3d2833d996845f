"""The points of a curve of money against days as rows of a sweep, so that what reads rows reads them."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from planner.plan.flatten import digest
from planner.planning.frontier import Frontier
from planner.sweeps.rows import Row, RowObjective, row_of_plan
from planner.sweeps.store import LINES, TABLES

CURVE = ".json"  # the curve itself, with its proven epsilon
ENDINGS = (CURVE, *LINES, *TABLES)


def curve_rows(frontier: Frontier, seconds: float) -> Iterator[Row]:
    """Yield a row for each point, its capital the value that it is named by.

    The row's bound is of the days of every plan of at most that capital. `seconds`, of the search, are on every row.
    """
    instance = frontier.instance.model_dump_json()
    for index, (p, plan) in enumerate(zip(frontier.curve.points, frontier.plans, strict=True)):
        point = {"frontier.capital_usd": p.capital_usd}
        key = sha256(f"{instance} {p.capital_usd!r} {p.days_to_train!r}".encode()).hexdigest()
        gap = None if p.bound_days is None else max(0.0, p.days_to_train - p.bound_days) / p.days_to_train
        objective = RowObjective(name="days_to_train", value=p.days_to_train, bound=p.bound_days, gap=gap)
        own = {"frontier.layout": p.layout, "frontier.idle_gpus": p.idle_gpus, "frontier.knee": p.knee}
        row = row_of_plan(index, key, point, plan, seconds)
        yield row.model_copy(update={"objective": objective, "plan": {**digest(plan), **own}})


def curve_plan_file(folder: Path, index: int) -> Path:
    """Return the file of the plan of a point, named by the index of its row."""
    return folder / f"{index:03d}.json"
