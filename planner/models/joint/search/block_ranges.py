"""Ranges of blocks of a strategy's pipelines as search nodes: their floors, and the columns listed from them."""

from dataclasses import dataclass, replace

import numpy as np

from planner.models.fabric.template_table import ArrayTable
from planner.models.joint import strategy_tables
from planner.models.joint.search.goal import Goal, Ranges
from planner.models.joint.strategy_space import Floats, Ints, Strategy, StrategyRows

CUTS = 1.1  # cutoffs of ranges that are within this factor share one
NEVER = 1e18  # seconds, in place of infinity
NAMES = 1 << 32  # numbers that a name made of two may have


def under_stage(x: Ranges, zero: int) -> Ranges:
    """Return ranges of blocks under a ZeRO stage, without floors of their own yet; some only have it unpipelined."""
    some = x if zero in x.of.strategy.machine.software.zero_stages_under(2) else x.where(x.of.rows.p[x.at] == 1)
    return replace(some, zero=zero, in_memory=np.zeros(len(some.at), dtype=bool))


def bounded(goal: Goal, x: Ranges) -> Ranges:
    """Return the ranges of blocks that may hold useful plans, with floors of their own, none below those they have."""
    # Time falls with replicas and capital grows with them. So seconds are bounded with `high` blocks; a plan of use is
    # under the cutoff of the range's capital, which takes a least number of blocks; and these have a least capital.
    most = goal.most_blocks(x)
    x = x if most is x.high else replace(x, high=np.minimum(x.high, most))
    x = x.where(x.low < x.high)
    if not len(x.at):
        return x
    rows = x.rows
    if x.zero is not None and not x.in_memory.all():
        t, known = _stage_terms(x.zero, x, rows), x.in_memory
        each, once = np.where(known, x.each, t.each), np.where(known, x.once, t.once)
        x = replace(x, each=each, once=once, layer=np.where(known, x.layer, t.layer))
    return _under_cutoff(goal, x, rows)


def in_memory(goal: Goal, x: Ranges) -> Ranges:
    """Return ranges of blocks under a ZeRO stage with floors that include the effect of memory on the slowest stage."""
    new = np.flatnonzero(~x.in_memory)
    if x.zero is None or not len(new):
        return x
    rows = x.rows
    each = x.each.copy()
    each[new] = _stage_terms(x.zero, x.part(new), rows.part(new), memory=True).in_memory
    x = replace(x, each=each, in_memory=np.ones(len(each), dtype=bool))
    return _under_cutoff(goal, x, rows)


@dataclass(slots=True)
class StageTerms(ArrayTable):
    """Least step-time terms of block ranges under a ZeRO stage, with at most `high` blocks, by row in the table."""

    # Several goals ask for them one after another. NaN: not known yet.

    high: Ints
    each: Floats
    once: Floats
    layer: Floats
    in_memory: Floats


def _stage_terms(zero: int, x: Ranges, rows: StrategyRows, *, memory: bool = False) -> StageTerms:
    """Return step-time terms of ranges of blocks; with `memory` also the micro-batch seconds that memory requires."""
    s, kept = x.of.strategy, x.of.under_zero.get(zero)
    if kept is None:
        nan = [np.full(len(x.of), np.nan) for _ in range(4)]
        kept = x.of.under_zero[zero] = StageTerms(np.zeros(len(x.of), dtype=np.int64), *nan)
    found = kept.part(x.at)
    new = np.flatnonzero(found.high != x.high)
    found.high = x.high
    if len(new):
        t = strategy_tables.terms_under_zero(s, zero, rows.part(new))
        found.each[new], found.once[new], found.layer[new], found.in_memory[new] = t.each, t.once, t.layer, np.nan
    unknown = np.flatnonzero(np.isnan(found.in_memory)) if memory else new[:0]
    if len(unknown):
        each, layer = found.each[unknown], found.layer[unknown]
        found.in_memory[unknown] = strategy_tables.each_in_memory(s, zero, rows.part(unknown), each, layer)
    if len(new) or len(unknown):
        for name in kept.__slots__:
            getattr(kept, name)[x.at] = getattr(found, name)
    return found


def _under_cutoff(goal: Goal, x: Ranges, rows: StrategyRows) -> Ranges:
    """Raise floors of ranges of blocks by their terms and the goal's cutoff at their capital; drop empty ranges."""
    s, fits = x.of.strategy, np.isfinite(x.each)
    total, b = strategy_tables.most_sequences(s), s.shape.micro_batch
    own = strategy_tables.min_seconds(s, rows, np.where(fits, x.each, NEVER), x.once)
    seconds = np.maximum(x.seconds, np.where(fits, own, np.inf))
    late = np.maximum(np.minimum(goal.cutoff(x.usd), NEVER) * b - x.once / total, 1 / NEVER)
    with np.errstate(over="ignore"):
        fewest = np.minimum(np.ceil(x.each / late * (1 - 1e-9)), float(NAMES))
    low = np.maximum(x.low, np.ceil(fewest / rows.block_replicas).astype(np.int64) - 1)
    usd = np.maximum(x.usd, goal.usd((low + 1) * rows.racks, rows.rails))
    left = np.flatnonzero((low < x.high) & (goal.keys(seconds, usd) < np.inf))
    if len(left) < len(low):
        x, low, seconds, usd = x.part(left), low[left], seconds[left], usd[left]
    return replace(x, low=low, seconds=seconds, usd=usd)


@dataclass(frozen=True, slots=True)
class Columns:
    """Listed columns of a strategy under a ZeRO stage in the order of the search goal, with floors, from `place` on."""

    strategy: Strategy
    zero: int
    table: StrategyRows
    seconds: Floats
    usd: Floats
    place: int = 0
    sharp: bool = False  # the goal has sharpened their capital
    in_rounds: bool = False  # each speaks for all numbers of rounds up to its own


def listed(goal: Goal, x: Ranges, cuts: Floats) -> tuple[list[Columns], Floats]:
    """List the columns of block ranges under a ZeRO stage and cutoffs, each column once; return the raised cutoffs."""
    # Ranges of like cutoffs are listed together up to the largest.
    s, zero, found = x.of.strategy, x.zero, list[Columns]()
    if zero is None:
        raise ValueError("columns have a ZeRO stage")
    order, cuts = np.argsort(cuts), cuts.copy()
    order = order[x.seconds[order] < cuts[order]]
    while len(order):
        some = order[cuts[order] <= cuts[order[0]] * CUTS]
        order = order[len(some) :]
        cuts[some] = cuts[some].max()
        part, cut = x.part(some), min(float(cuts[some[0]]), NEVER)
        pipes = strategy_tables.Pipes(part.seconds, part.rows, part.each, part.once)
        more_than = part.low * pipes.rows.block_replicas
        for in_rounds in (False, True):
            cells = strategy_tables.columns_of(
                goal.world, s, zero, pipes, cut, more_than=more_than, in_rounds=in_rounds
            )
            if cells is None:
                continue
            # The range that each column is from is that of its pipeline which has as many blocks.
            (times, table), count = cells, len(part.at)
            p, v = (np.concatenate([getattr(rows, name) for rows in (pipes.rows, table)]) for name in "pv")
            pipelines = np.unique(p * NAMES + v, return_inverse=True)[1]
            named = pipelines * NAMES + np.concatenate([part.high, table.blocks()])
            ascending = np.argsort(named[:count])
            of = ascending[np.searchsorted(named[ascending], named[count:])]
            new = np.flatnonzero(times >= part.done[of] * (1 - 1e-12))
            seconds, usd = np.maximum(times, part.seconds[of])[new], part.usd[of][new]
            found += in_order(goal, Columns(s, zero, table.part(new), seconds, usd, in_rounds=in_rounds))
    number = sum(len(x.seconds) for x in found)
    if number:
        goal.world.count("columns", number)
    return found, cuts


def in_order(goal: Goal, x: Columns) -> list[Columns]:
    """Return the columns listed from block ranges that are left, in the groups of the goal, with floors of capital."""
    table, seconds = x.table.part(slice(x.place, None)), x.seconds[x.place :]
    blocks = table.blocks()
    usd = np.maximum(x.usd[x.place :], goal.usd(blocks * table.racks, table.rails))
    some = np.flatnonzero(goal.keys(seconds, usd) < np.inf)
    if not len(some):
        return []
    entries = np.unique(table.p * NAMES + table.v, return_inverse=True)[1] * NAMES + blocks
    groups = (some[i] for i in goal.groups(entries[some], seconds[some], usd[some]))
    return [replace(x, table=table.part(i), seconds=seconds[i], usd=usd[i], place=0, sharp=False) for i in groups]
