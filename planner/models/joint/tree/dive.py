"""First incumbents: the columns that are fastest on a free network, priced with fewer and fewer blocks."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.models.joint.columns import column_at, columns_of, free_seconds, pipelines_of, under_zero
from planner.models.joint.search import fastest
from planner.models.joint.space import Strategy
from planner.models.joint.split import Column
from planner.models.joint.tree.shapes import first_shape
from planner.models.joint.tree.tree import Tree
from planner.models.joint.world import EPS, Plan, World, spared

SAMPLED = 40  # strategies that are looked at, of all in the order of their bounds
DIVES = 40  # columns that are tried for a first incumbent
LIKELY_ZEROS = (1, 3)
MUCH_STOPPED = 2.0  # times what failures stretch a column by at least: above it fewer blocks leave money for spares
FEWER_BLOCKS = 8  # with which a first incumbent is sought


def dive(tree: Tree, known: list[tuple[float, Plan]]) -> None:
    """Find a first incumbent: from the plans of other budgets, else among a sample of strategies.

    Of these, the columns that are fastest on a free network.
    """
    for budget, plan in known:
        descend(tree, _rescaled(plan.column, tree.world.budget / budget))
    if tree.incumbent is not None:
        return
    nodes = [(bound, node.what) for bound, _, node in sorted(tree.heap)]
    best = math.inf
    found: list[tuple[float, int, Column]] = []
    for bound, s in nodes[:: max(1, len(nodes) // SAMPLED)]:
        tree.tick()
        if bound < best:
            for exact, column in likely(tree.world, s, best):
                best = exact
                found.append((exact, len(found), column))
    for _, _, column in sorted(found)[:DIVES]:
        if descend(tree, column, first=tree.world.problem.calendar is not None):
            return


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


def descend(tree: Tree, column: Column, *, first: bool = False) -> bool:
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
        tree.tick()
        fewer = _with_replicas(tree, column, replicas, pinned=pinned)
        if fewer is None:
            if priced:
                break
            continue
        plan = _likely_plan(tree, fewer)
        if plan is not None:
            tree.keep(plan)
            priced = True
            if first:
                break
    return priced


def _likely_plan(tree: Tree, column: Column) -> Plan | None:
    """Return a fast plan of a column's most even shape with the most spare racks that the money may pay."""
    for choice in sorted(spared(tree.world, column), key=lambda c: (c.sparing.wired, -c.sparing.target)):
        shape_problem = first_shape(tree, choice)
        if shape_problem is not None and shape_problem.min_stretch <= MUCH_STOPPED * shape_problem.free_stretch:
            return fastest(shape_problem, tree.cutoff * (1 - 2 * EPS), likely=True)
    return None


def _with_replicas(tree: Tree, column: Column, replicas: int, *, pinned: bool) -> Column | None:
    """Return a column with other replicas and the best filling of the batch; None where it is not in time."""
    total = column.strategy.problem.max_sequences // column.strategy.shape.micro_batch
    fillings = (total // replicas, total // replicas // column.p * column.p)
    tried = [m for m in fillings if m >= column.p and not pinned] or [column.m]
    found = [replace(column, d=replicas, m=m) for m in tried]
    cutoff = tree.cutoff * (1 - 2 * EPS)
    seconds, i = min(((free_seconds(tree.world, c, cutoff), i) for i, c in enumerate(found)), default=(math.inf, 0))
    return found[i] if seconds < cutoff else None
