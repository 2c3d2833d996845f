"""First incumbents: the columns that are fastest on a free network, priced with fewer and fewer blocks."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.models.joint.columns import column_at, columns_of, free_seconds, pipelines_of, table_of, under_zero
from planner.models.joint.places.fastest import fastest
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.search.goal import Goal, OpenNodes
from planner.models.joint.search.ranges import Columns, bounded, in_memory, listed, under_stage
from planner.models.joint.space import Strategy
from planner.models.joint.split import Column
from planner.models.joint.world import EPS, Plan, World, open_sites, shapes, spared

SAMPLED = 40  # strategies that are looked at, of all in the order of their bounds
DIVES = 40  # columns that are tried for a first incumbent
LIKELY_ZEROS = (1, 3)
MUCH_STOPPED = 2.0  # times what failures stretch a column by at least: above it fewer blocks leave money for spares
FEWER_BLOCKS = 8  # with which a first incumbent is sought
MANY_SAMPLED = 400  # strategies in which a first cheap plan is sought
LIKELY_PIPELINES = 4  # of a strategy under a ZeRO stage
CHEAP = 20  # columns that are priced for it


def dive(goal: Goal, loop: OpenNodes, known: list[tuple[float, Plan]]) -> None:
    """Find a first incumbent from the plans of other budgets, else among a sample of strategies.

    The sample is searched by the columns that are fastest on a free network.
    """
    for budget, plan in known:
        descend(goal, _rescaled(plan.column, goal.world.budget / budget))
    if goal.has_plan:
        return
    best = math.inf
    found: list[tuple[float, int, Column]] = []
    for bound, s in sampled(loop, SAMPLED):
        goal.tick()
        if bound < best:
            for exact, column in likely(goal.world, s, best):
                best = exact
                found.append((exact, len(found), column))
    for _, _, column in sorted(found)[:DIVES]:
        if descend(goal, column, first=goal.world.problem.calendar is not None):
            return


def sampled(loop: OpenNodes, count: int) -> list[tuple[float, Strategy]]:
    """Return some of the strategies that are open with their bounds in seconds, evenly drawn in the order of these."""
    nodes = sorted(((t, order, what) for _, order, t, _, what in loop.heap), key=lambda x: x[:2])
    return [(t, what) for t, _, what in nodes[:: max(1, len(nodes) // count)]]


def _rescaled(column: Column, share: float) -> Column:
    """Return a column with as many replicas more as there is money more, and a block."""
    block, s = column.strategy.block(column.p), column.strategy
    if _pinned(column):
        return column
    more = 1 if block is None else block.replicas
    most = s.problem.max_sequences // s.shape.micro_batch // (column.p if column.v > 1 else 1)
    d = max(1, min(most, math.ceil(column.d * share) + more if math.isfinite(share) else column.d))
    return replace(column, d=d, m=min(column.m, most * (column.p if column.v > 1 else 1) // d))


def likely(world: World, s: Strategy, cutoff: float) -> Iterator[tuple[float, Column]]:
    """Yield columns of a strategy with almost as many blocks as there can be, with their times on a free network."""
    keys, table = pipelines_of(world, s)
    few = np.flatnonzero(keys < cutoff)
    few = few[np.argsort(keys[few], kind="stable")]
    zeros = s.problem.zero_stages
    for zero in [z for z in zeros if z in LIKELY_ZEROS] or zeros:
        found = under_zero(s, zero, table.part(few), keys[few], cutoff)
        if found is None:
            continue
        some = found.part(np.argsort(found.keys)[:4])
        cells = columns_of(world, s, zero, some, cutoff, max_blocks_off=2)
        if cells is None:
            continue
        times, columns = cells
        for j in np.argsort(times, kind="stable")[:3]:
            column = column_at(s, zero, columns, int(j))
            exact = free_seconds(world, column, cutoff)
            if exact < cutoff:
                cutoff = exact
                yield exact, column


def _pinned(column: Column) -> bool:
    """Return whether replicas or micro-batches are pinned."""
    return any(column.strategy.problem.pin(name) is not None for name in ("data_parallel", "microbatches_per_step"))


def descend(goal: Goal, column: Column, *, first: bool = False) -> bool:
    """Price a column with fewer and fewer blocks, which leave more money to fabrics, as long as that is faster.

    Return whether any could be. `first`: only until one is; where failures count, the best of a sample is far from
    the best of all.
    """
    block = column.strategy.block(column.p)
    priced = False
    pinned = _pinned(column)
    for k in range(0 if block is None else 1 if pinned else FEWER_BLOCKS):
        replicas = column.d - k * (block.replicas if block is not None else 1)
        if replicas < 1:
            break
        goal.tick()
        fewer = _with_replicas(goal, column, replicas, pinned=pinned)
        if fewer is None:
            if priced:
                break
            continue
        plan = _likely_plan(goal, fewer)
        if plan is not None:
            goal.keep(plan)
            priced = True
            if first:
                break
    return priced


def _likely_plan(goal: Goal, column: Column) -> Plan | None:
    """Return a fast plan of a column's most even shape with the most spare racks that the money may pay."""
    for choice in sorted(spared(goal.world, column), key=lambda c: (c.sparing.wired, -c.sparing.target)):
        shape_problem = _first_shape(goal, choice)
        if shape_problem is not None and shape_problem.min_stretch <= MUCH_STOPPED * shape_problem.free_stretch:
            return fastest(shape_problem, goal.cutoff(0.0) * (1 - 2 * EPS), likely=True)
    return None


def _with_replicas(goal: Goal, column: Column, replicas: int, *, pinned: bool) -> Column | None:
    """Return a column with other replicas and the best filling of the batch; None where it is not in time."""
    total = column.strategy.problem.max_sequences // column.strategy.shape.micro_batch
    fillings = (total // replicas, total // replicas // column.p * column.p)
    tried = [m for m in fillings if m >= column.p and not pinned] or [column.m]
    found = [replace(column, d=replicas, m=m) for m in tried]
    cutoff = goal.cutoff(0.0) * (1 - 2 * EPS)
    seconds, i = min(((free_seconds(goal.world, c, cutoff), i) for i, c in enumerate(found)), default=(math.inf, 0))
    return found[i] if seconds < cutoff else None


def _first_shape(goal: Goal, column: Column) -> ShapeProblem | None:
    """Return the most even shape of a column with its spares that the money may pay, over the fewest sites."""
    for sites in open_sites(goal.world, column):
        for shape in shapes(column, sites):
            goal.tick()
            q = ShapeProblem(world=goal.world, column=column, shape=shape)
            if math.isinf(q.min_stretch):
                continue
            known, phi = goal.known_unhoused(q), goal.world.problem.transport_slowdown
            if not known and not goal.opens(q.bound(phi, phi, goal.cutoff(0.0), q.best_fibre), 0.0):
                break
            if known or not goal.houses(q):
                if column.sparing.target:
                    continue
                break
            if goal.pays(q):
                return q
    return None


def cheap_columns(goal: Goal, loop: OpenNodes) -> Iterator[tuple[float, Column]]:
    """Yield columns of least floors of capital among those of a sample of strategies, with these floors."""
    best = math.inf
    found: list[tuple[float, int, Columns]] = []
    for _, s in sampled(loop, MANY_SAMPLED):
        goal.tick()
        zeros, of = s.problem.zero_stages, table_of(goal.world, s)
        for any_stage, zero in itertools.product(
            goal.first_ranges(of), [z for z in zeros if z in LIKELY_ZEROS] or zeros
        ):
            every = in_memory(goal, bounded(goal, under_stage(any_stage, zero)))
            x = every.part(np.lexsort((every.seconds, every.usd))[:LIKELY_PIPELINES])
            if not len(x.at) or x.usd[0] > best:
                continue
            high, cuts = goal.slice(x, float(x.usd[0]))
            for columns in listed(goal.world, goal, replace(x, high=high), cuts)[0]:
                best = min(best, float(columns.usd[0]))
                found.append((float(columns.usd[0]), len(found), columns))
    for usd, _, columns in sorted(found, key=lambda x: x[:2])[:CHEAP]:
        yield usd, column_at(columns.strategy, columns.zero, columns.table, 0)
