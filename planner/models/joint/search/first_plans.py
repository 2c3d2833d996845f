"""First plans of a search, its incumbents: columns fastest on a free network, priced with fewer and fewer blocks."""

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from operator import ne
from typing import Any

import numpy as np

from planner.models.joint.joint_question import World, open_sites, spared
from planner.models.joint.joint_solution import EPS, JointPlan
from planner.models.joint.search.block_ranges import NEVER, bounded, in_memory, under_stage
from planner.models.joint.search.capital_floor import CapitalGoal
from planner.models.joint.search.goal import Goal, Ranges
from planner.models.joint.shapes.blocks_by_site import Shape, shapes
from planner.models.joint.shapes.fastest_plan import fastest
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_space import Strategy
from planner.models.joint.strategy_tables import (
    allowed,
    column_at,
    columns_of,
    free_seconds,
    pipelines_of,
    strategy_bound,
    table_of,
    under_zero,
)

SAMPLED = 40  # strategies that are looked at, of all in the order of their bounds
NEIGHBOURS = 4  # strategies a choice away from that of a plan, in which a faster one is sought
CLIMBED = 300  # strategies from the best of which faster ones are sought
ALMOST = 1.15  # times the least time on a free network, up to which the fastest of a strategy is priced too
NEAREST = 40  # strategies a choice away from that of a plan that a question leaves out
STARTS = 4  # the fastest strategies, from which others are a choice away
LOOKED = 300_000  # pipelines, after which no more are sought
LIKELY_STAGES = 6  # numbers of stages of a strategy under a ZeRO stage that are looked at
TIMED, MANY_TIMED = 3, 20  # columns of those that are timed exactly, and of the one strategy of a plan
DIVES = 40  # columns that are tried for a first incumbent
LIKELY_ZEROS = (1, 3)
MUCH_STOPPED = 2.0  # times what failures stretch a column by at least: above it fewer blocks leave money for spares
FEWER_BLOCKS = 8  # with which a first incumbent is sought
DESIGNED_BLOCKS = 1  # with which one is sought at once where the fibre between sites is designed
BISECTIONS = 6  # between blocks that the money pays and those that it does not
MANY_SAMPLED = 400  # strategies in which a first cheap plan is sought
LIKELY_PIPELINES = 4  # of a strategy under a ZeRO stage
CHEAP = 20  # columns that are priced for it
GROWN = 150  # columns that get blocks until they meet the cutoff
STEPS, MORE_BLOCKS = 6, 1.5  # in which they do, and by how much at most in one


def dive(goal: Goal) -> None:
    """Find a search's first plan from the plans of other sizes, else among the columns of a sample of strategies."""
    # The plans are those of the nearest sizes below and above. The sample is searched by the columns that are fastest
    # on a free network.
    own, plans = goal.world.size, goal.world.cache.plans
    for size in (max((x for x in plans if x <= own), default=None), min((x for x in plans if x > own), default=None)):
        if size is not None:
            descend(goal, rescaled(plans[size].column, own / size))
    if goal.has_plan:
        return
    best = goal.cutoff(0.0)
    found: list[tuple[float, int, Column]] = []
    for bound, s in sampled(goal, SAMPLED):
        goal.tick()
        if bound < best:
            for exact, column in likely(goal.world, s, best):
                best = exact
                found.append((exact, len(found), column))
            if found and not goal.has_plan:  # a time limit that comes soon leaves this one
                descend(goal, found[-1][2], first=True)
    for _, _, column in sorted(found)[:DIVES]:
        if descend(goal, column, first=goal.world.problem.calendar is not None):
            return


def improve(goal: Goal, plan: JointPlan, near: Callable[[], bool]) -> None:
    """Improve a first plan among its strategy's pipelines, then strategies one choice from it, until one is near."""
    # Fewer racks may fill other numbers of stages better than those of the plan from which it was rescaled.
    own, world = plan.column.strategy, goal.world

    def seek(s: Strategy, timed: int) -> None:
        for _, column in reversed(list(likely(world, s, goal.cutoff(0.0), timed=timed))):
            if column == plan.column or descend(goal, column, first=True):
                return

    seek(own, MANY_TIMED)
    if near():
        return
    for s in heapq.nsmallest(NEIGHBOURS, _a_choice_away(world, own), key=partial(strategy_bound, world)):
        seek(s, TIMED)
        if near():
            return


def _likely_zeros(world: World, s: Strategy) -> list[int]:
    zeros = world.zero_stages(s)
    return [z for z in zeros if z in LIKELY_ZEROS] or zeros


def sampled(goal: Goal, count: int) -> list[tuple[float, Strategy]]:
    """Return evenly drawn open strategies, in the order of their bounds in seconds, among which to seek first plans."""
    nodes = sorted(((t, order, what) for _, order, t, _, what in goal.loop.heap), key=lambda x: x[:2])
    return [(t, what) for t, _, what in nodes[:: max(1, len(nodes) // count)]]


def climb(goal: Goal, column: Column) -> None:
    """Seek faster first plans: columns of a larger sample of strategies, then of those one choice from the best."""
    # A sample seldom has the fastest strategy, but one that is a few choices from it.
    world, best, looked = goal.world, free_seconds(goal.world, column, NEVER), 0
    every, tried, left, found = goal.world.strategies(), set[int](), set[int](), [(best, column)]

    def improve(strategies: Iterable[Strategy]) -> None:
        nonlocal best, looked
        for s in strategies:
            goal.tick()
            if looked < LOOKED and id(s) not in tried and strategy_bound(world, s) < best * ALMOST:
                tried.add(id(s))
                looked += len(table_of(world, s))
                fastest = list(likely(world, s, best * ALMOST))[-1:]
                found.extend(fastest)
                best = min(best, *(seconds for seconds, _ in fastest), math.inf)
        found.sort(key=lambda x: x[0])

    improve(every[:: max(1, len(every) // CLIMBED)])
    while at := [x.strategy for _, x in found[:STARTS] if id(x.strategy) not in left]:
        left.add(id(at[0]))
        improve(_a_choice_away(world, at[0]))
    for seconds, other in found[:DIVES]:
        if other is not column and seconds < goal.cutoff(0.0):
            descend(goal, other, first=world.problem.calendar is not None)


def _a_choice_away(world: World, own: Strategy) -> Iterator[Strategy]:
    here = _choices(own)
    yield from (s for s in world.strategies() if sum(map(ne, _choices(s), here)) == 1)


def nearest(goal: Goal, column: Column) -> list[Strategy]:
    """Return the strategy of a column, where a question has it, and the likeliest ones a choice away from it."""
    here = _choices(column.strategy)
    own = [s for s in goal.world.strategies() if _choices(s) == here]
    return own + heapq.nsmallest(NEAREST, _a_choice_away(goal.world, column.strategy), key=goal.strategy_usd)


def _choices(s: Strategy) -> tuple[Any, ...]:
    """List a strategy's choices, of which a climb to first plans changes one a step; TP, CP and batch are one."""
    x = s.shape
    tensor, context, expert = x.degrees
    degrees = tensor, x.tensor_inner, context, x.micro_batch
    return degrees, expert, (x.recompute, s.recomputes), x.sequence_parallel, s.order, s.packed


def rescaled(column: Column, share: float) -> Column:
    """Return a known plan's column for another budget: its replicas scaled by the share of money, and a block more."""
    if _pinned(column):
        return column
    s, rounds = column.strategy, column.p if column.v > 1 else 1
    most = s.problem.max_sequences // s.shape.micro_batch // rounds
    d = max(1, min(most, math.ceil(column.d * share) + column.block.replicas if math.isfinite(share) else column.d))
    return replace(column, d=d, m=min(column.m, most * rounds // d))


def likely(world: World, s: Strategy, cutoff: float, *, timed: int = TIMED) -> Iterator[tuple[float, Column]]:
    """Yield ever faster columns of a strategy, of almost the most blocks there can be, as first plans, with times."""
    # Times are on the free network. For each number of stages the column of the least floor is tried.
    keys, table = pipelines_of(world, s)
    few = np.flatnonzero((keys < cutoff) & allowed(world, table))
    few = few[np.argsort(keys[few], kind="stable")]
    for zero in _likely_zeros(world, s):
        found = under_zero(s, zero, table.part(few), keys[few], cutoff)
        if found is None:
            continue
        order = np.argsort(found.keys, kind="stable")
        firsts = np.sort(np.unique(found.rows.p[order], return_index=True)[1])  # of each number of stages
        some = found.part(order[np.isin(found.rows.p[order], found.rows.p[order[firsts[:LIKELY_STAGES]]])])
        cells = columns_of(world, s, zero, some, cutoff, max_blocks_off=2)
        if cells is None:
            continue
        times, columns = cells
        for j in np.argsort(times, kind="stable")[:timed]:
            column = column_at(s, zero, columns, int(j))
            exact = free_seconds(world, column, cutoff)
            if exact < cutoff:
                cutoff = exact
                yield exact, column


def _pinned(column: Column) -> bool:
    return any(column.strategy.problem.pin(name) is not None for name in ("data_parallel", "microbatches_per_step"))


def descend(goal: Goal, column: Column, *, first: bool = False) -> bool:
    """Price a column with fewer and fewer blocks for a first plan, if `first` until one is; return if any could be."""
    # Fewer blocks leave more money to fabrics: they are tried as long as that is faster. Where the money pays none of
    # them, the most that it pays is sought, between far fewer blocks and those. Where failures count, the best of a
    # sample is far from the best of all.
    pinned, priced, each = _pinned(column), False, column.block.replicas
    whole = (column.d - 1) // each
    refused, sites = whole + 1, goal.world.sites
    few = first and sites is not None and sites.designed  # a refusal takes seconds there
    most = 1 if pinned else DESIGNED_BLOCKS if few else FEWER_BLOCKS

    def priced_with(replicas: int) -> bool | None:
        cutoff = goal.cutoff(0.0) * (1 - 2 * EPS)
        fewer, seconds = _filled(goal.world, column, replicas, cutoff)
        return price_column(goal, fewer) if seconds < cutoff else None

    for blocks in range(whole + 1, max(whole - FEWER_BLOCKS, 0), -1)[:most]:
        found = priced_with(min(column.d, blocks * each))
        if found is None and priced:
            return True
        if found is not None:
            priced, refused = priced or found, refused if found else blocks
            if found and first:
                return True
    if priced or pinned:
        return priced
    paid = refused
    while not priced and paid > 1:
        paid = paid * 7 // 8 if goal.has_plan else paid // 2
        found = priced_with(paid * each)
        if found is None and goal.has_plan:
            return False
        priced = bool(found)
        refused = refused if priced else paid
    for _ in range(BISECTIONS if priced and not first else 0):
        middle = (paid + refused) // 2
        paid, refused = (middle, refused) if priced_with(middle * each) else (paid, middle)
    return priced


def price_column(goal: Goal, column: Column, shape: Shape | None = None) -> bool:
    """Keep a first plan of a column with the most spares paid, of a given shape or the most even; return if any."""
    goal.tick()
    for choice in sorted(spared(goal.world, column), key=lambda c: (c.spares_wired, -c.spare_target)):
        q = ShapeProblem(world=goal.world, column=choice, shape=shape) if shape else None
        for sites in open_sites(goal.world, choice) if shape is None else ():
            # The most even one at this number of sites that the budget pays with spares, and that may be early enough.
            found, _ = next(goal.useful_shapes(choice, shapes(choice, sites), 0.0), (None, 0.0))
            if found is not None and goal.opens(found.bound(goal.cutoff(0.0), found.best_fibre), 0.0):
                q = found
                break
        if q is not None and q.min_stretch <= MUCH_STOPPED * q.free_stretch:
            plan = fastest(q, goal.cutoff(0.0) * (1 - 2 * EPS), likely=True)
            if plan is not None:
                goal.keep(plan)
            return plan is not None
    return False


def _filled(world: World, column: Column, replicas: int, cutoff: float) -> tuple[Column, float]:
    """Return a first plan's column with other replicas and its best micro-batches, and its time on a free network."""
    # The time is infinite where the batch holds too few micro-batches; pinned ones are as they are.
    most = column.strategy.problem.max_sequences // column.strategy.shape.micro_batch // replicas
    counts = [m for m in (most, most // column.p * column.p) if m >= column.p]
    counts = [column.m] if _pinned(column) else counts or [min(column.m, most) if column.v == 1 else 0]
    found = [replace(column, d=replicas, m=m) for m in counts]
    seconds, i = min((free_seconds(world, c, cutoff) if c.m else math.inf, i) for i, c in enumerate(found))
    return found[i], seconds


def least_usd(goal: CapitalGoal, column: Column) -> float:
    """Bound the capital in USD of a first plan's column at any number of sites, before its fabric is known."""
    racks = column.block.blocks(column.d) * column.block.racks
    bounds = (float(goal.floor.usd(racks, column.block.rails, k)) for k in open_sites(goal.world, column))
    return min(bounds, default=math.inf)


def cheap_columns(goal: CapitalGoal, strategies: Iterable[Strategy]) -> Iterator[tuple[float, Column]]:
    """Yield (floor of capital, column) for cheap first plans, of some strategies, that meet the cutoff."""
    # The first of them comes at once, so that there is a plan before all of them are timed; then those of least floor.
    found: list[tuple[float, int, Ranges]] = []
    for s in strategies:
        goal.tick()
        for any_stage, zero in itertools.product(
            goal.first_ranges(table_of(goal.world, s)), _likely_zeros(goal.world, s)
        ):
            x = in_memory(goal, bounded(goal, under_stage(any_stage, zero)))
            for i in np.lexsort((x.seconds, x.usd))[:LIKELY_PIPELINES].tolist():
                found.append((float(x.usd[i]), len(found), x.part(np.array([i]))))
    best, timely = math.inf, list[tuple[float, int, Column]]()
    for usd, order, x in sorted(found, key=lambda x: x[:2])[:GROWN]:
        goal.tick()
        if usd >= best:
            break
        # The column of the range with its fewest blocks, grown until it meets the cutoff.
        rows = x.of.rows.part(x.at)
        if x.of.strategy.problem.pin("data_parallel") is None:
            rows = replace(rows, d=np.minimum((x.low + 1) * rows.block_replicas, rows.d))
        column = grown(goal, column_at(x.of.strategy, x.zero or 0, rows, 0), int(x.of.rows.d[x.at][0]))
        least = math.inf if column is None else least_usd(goal, column)
        if column is None or math.isinf(least):
            continue
        if math.isinf(best):
            yield least, column
        else:
            timely.append((least, order, column))
        best = min(best, least)
    for usd, _, column in sorted(timely)[:CHEAP]:
        yield usd, column


def grown(goal: CapitalGoal, column: Column, most: int) -> Column | None:
    """Return a late column for a first plan with the fewest more blocks that bring its time under the search limit."""
    # Where memory is short its floor is far below its time, and more blocks leave more memory. None where it takes more
    # steps than a few, or costs more than a plan that is known.
    block, limit = column.block, goal.cutoff(0.0) * (1 - 2 * EPS)
    if _pinned(column):
        return column if free_seconds(goal.world, column, limit) < limit else None
    replicas, most = column.d, min(most, goal.world.max_racks(block.rails) // block.racks * block.replicas)
    for _ in range(STEPS):
        found, seconds = _filled(goal.world, column, replicas, limit * MORE_BLOCKS)
        if seconds < limit:
            return found
        if replicas >= most:
            return None
        more = min(seconds / limit, MORE_BLOCKS) if math.isfinite(seconds) else MORE_BLOCKS
        replicas = min(most, math.ceil(block.blocks(replicas) * more + EPS) * block.replicas)
        if not goal.opens(0.0, least_usd(goal, replace(column, d=replicas))):
            return None
    return None
