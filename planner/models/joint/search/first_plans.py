"""First plans of the curve: at racks in geometric steps the columns of least floor, priced exactly."""

import heapq
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.models.joint.columns import Pipes, StrategyTable, column_at, columns_of, under_zero
from planner.models.joint.search.curve import WholeCurve
from planner.models.joint.search.ranges import NEVER
from planner.models.joint.split import Column

OF_STRATEGY = 6  # pipelines of a strategy that are looked at for a budget
LISTED = 40  # pipelines of all strategies that are sharpened
TRIED = 12  # columns that are priced
PRICED = 2  # plans for a budget
LIKELY_ZEROS = (1, 3)
LEAST_SHARE = 0.8  # of the blocks that the money may pay, down to which fewer are tried


def first_plans(search: WholeCurve, count: int) -> None:
    """Seek plans at `count` + 1 budgets, from the most capital of the box down to the least that holds the model."""
    floor, most = search.floor, search.front.most_usd
    if not search.tables or not math.isfinite(most):
        return
    least = min(float(floor.usd(x.racks, x.rails).min()) for x in search.tables.values())
    for k in range(count + 1):
        usd = most * (min(least, most) / most) ** (k / count)
        seek(search, usd)


def seek(search: WholeCurve, usd: float) -> None:
    """Seek plans within a capital among the pipelines of least floor."""
    late = search.front.cutoff(usd, 0.0)
    priced = 0
    for tried, column in enumerate(_likely(search, usd, late), 1):
        search.world.deadline.check()
        priced += search.try_column(column, usd)
        if priced >= PRICED or tried >= TRIED:
            return


def _likely(search: WholeCurve, usd: float, late: float) -> Iterator[Column]:
    """Yield columns that the money may pay, those of least floors first; of each with fewer and fewer blocks."""
    gpus = search.world.problem.gpus
    racks = search.floor.most_racks(usd, np.arange(1, gpus + 1))
    found: list[tuple[float, int, StrategyTable, int, int]] = []
    for x in search.tables.values():
        search.world.deadline.check()
        replicas = np.minimum(racks[x.rails - 1] // x.racks * x.rows.block_replicas, x.rows.d)
        some = np.flatnonzero(replicas >= 1)
        if not len(some):
            continue
        seconds = x.seconds(replace(x.rows.part(some), d=replicas[some]), x.each[some], x.once[some])
        for i in np.argsort(seconds, kind="stable")[:OF_STRATEGY].tolist():
            found.append((float(seconds[i]), len(found), x, int(some[i]), int(replicas[some[i]])))
    sharpened: list[tuple[float, int, StrategyTable, int, Pipes]] = []
    for bound, _, x, i, d in heapq.nsmallest(10 * LISTED, found):
        if bound >= late or len(sharpened) >= LISTED:
            break
        at = np.array([i])
        rows = replace(x.rows.part(at), d=np.array([d]))
        zeros = search.world.problem.zero_stages
        for zero in [z for z in zeros if z in LIKELY_ZEROS] or zeros:
            pipes = under_zero(x.strategy, zero, rows, np.array([bound]), late)
            if pipes is not None:
                sharpened.append((float(pipes.keys[0]), len(sharpened), x, zero, pipes))
    for _, _, x, zero, pipes in sorted(sharpened):
        yield from _fewer(search, x, zero, pipes, late)


def _fewer(search: WholeCurve, x: StrategyTable, zero: int, pipes: Pipes, late: float) -> Iterator[Column]:
    """Yield the column of least floor of a pipeline with all blocks that the money may pay, and with fewer."""
    most, step = int(pipes.rows.d[0]), int(pipes.rows.block_replicas[0])
    off = 0
    while off < (1 - LEAST_SHARE) * most + 1 and off < most:
        replicas = (most - off) // step * step or most - off
        fewer = replace(pipes, rows=replace(pipes.rows, d=np.array([replicas])))
        found = columns_of(search.world, x.strategy, zero, fewer, min(late, NEVER), max_blocks_off=0)
        off = off * 2 if off else max(step, most // 100 // step * step)
        if found is not None:
            times, table = found
            yield column_at(x.strategy, zero, table, int(np.argmin(times)))
