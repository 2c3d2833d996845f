"""Tables of strategies' columns by lower bounds: pipelines, and their counts of replicas and micro-batches."""

import math
from dataclasses import dataclass, field, replace
from operator import ge
from typing import Any

import numpy as np

from planner.models.fabric.template_table import ArrayTable, members
from planner.models.joint import time_bounds
from planner.models.joint.joint_cache import most_paid
from planner.models.joint.joint_question import World
from planner.models.joint.joint_solution import EPS
from planner.models.joint.stage_split import Column, Stages
from planner.models.joint.strategy_space import Flags, Floats, Ints, JointProblem, Strategy, StrategyRows
from planner.models.joint.time_bounds import RowConditions
from planner.physics.training.parallel_strategy import context_racks
from planner.solvers.outcome import UnansweredError
from planner.solvers.search_deadline import Deadline

GATHERING = 3  # the ZeRO stage that needs room for gathered weights, as those that divide less do not

BLOCK = 1 << 18  # rows of a table that are worked out at once
MOST_ROUNDS = 1 << 22  # of the micro-batches of a replica


def micro_batches(
    s: Strategy, d: Any, p: int, v: int, each: float, cutoff: float, *, likely: bool = False
) -> tuple[Any, Any]:
    """Pair numbers of replicas with the numbers of micro-batches that could be best with them in a strategy's table.

    `each`: least seconds of a micro-batch; `likely`: filled pipelines alone, for a first plan. Pairs that the fill of
    the pipeline alone takes over the cutoff, of seconds a micro-batch, are left out. A filled pipeline takes as many as
    the batch holds. Interleaved, whole rounds may be better, and fewer than p + (p-1)/v hold less in flight; where a
    rule asks for whole rounds, the most and one are candidates. Of unequal chunks more may be best (`most_rounds`). A
    pipeline that is not interleaved holds less where it is not filled, so it may take any number below p.
    """
    problem, total = s.problem, most_sequences(s)
    most, wanted, fill = total // np.maximum(d, 1), problem.pin("microbatches_per_step"), min_fill_seconds(s, p, v)
    rounds = v > 1 and problem.rules.whole_rounds
    if wanted is not None:
        fine = (most >= wanted) & ((wanted >= p) if v > 1 else True) & (not rounds or wanted % p == 0)
        return d[fine], np.full(int(np.sum(fine)), wanted)
    if v == 1:
        spare = d * cutoff - each
        min_count = np.where(spare > 0, np.ceil(np.minimum(fill / np.maximum(spare, 1e-300), p) * (1 - 1e-9)), p)
        min_count = np.full(len(d), p) if likely else np.clip(min_count, 1, p).astype(np.int64)
        row, more = members(np.maximum(np.minimum(most, p - 1) - min_count + 1, 0))
        filled = most >= p
        found, m = np.append(d[filled], d[row]), np.append(most[filled], min_count[row] + more)
    elif rounds:
        found, m = np.tile(d, 2), np.concatenate([most // p * p, np.minimum(most // p, 1) * p])
    else:
        tried = [most, most // p * p, *(np.minimum(most, p + k) for k in range((p - 1) // v + 1))]
        found, m = np.tile(d, len(tried)), np.concatenate(tried)
    fine = (m >= (p if v > 1 else 1)) & (m * each + fill < cutoff * m * found)
    found, m = found[fine], m[fine]
    if v == 1:
        return found, m
    pairs = np.unique(found * (total + 1) + m)
    return pairs // (total + 1), pairs % (total + 1)


def most_rounds(s: Strategy, d: Any, p: int, v: int, each: float, cutoff: float) -> tuple[Any, Any]:
    """Pair numbers of replicas in a strategy's table with the most micro-batches that unequal chunks may ask for.

    Each represents all of `rounds_up_to`. How long chunks wait for larger ones is not known before their split is: one
    more whole round may wait more. Chunks may be unequal whatever the layers, as a stage may recompute some of them or
    have fewer. Whatever else a step takes grows in proportion to its micro-batches, or comes once. So where nothing
    waits none of them is faster, by sequence, than the most; memory holds as much in flight for all.
    """
    if v == 1 or s.problem.pin("microbatches_per_step") is not None:
        return d[:0], d[:0]
    # Where no rule asks for whole rounds the last falls short by one: `schedule.min_excess_seconds` has the whole.
    less = 0 if s.problem.rules.whole_rounds else 1
    m = (most_sequences(s) // np.maximum(d, 1) + less) // p * p - less
    fine = (m >= 2 * p - less) & (m * each + min_fill_seconds(s, p, v) < cutoff * m * d)
    return d[fine], m[fine]


def rounds_up_to(problem: JointProblem, m: int, p: int, deadline: Deadline) -> Ints:
    """Return the micro-batch counts, of two rounds and more, that the row of the most of them in a table represents.

    UnansweredError: the batch is so large that not all of them can be kept.
    """
    deadline.check()
    if m // p > MOST_ROUNDS:
        raise UnansweredError(f"a step may have more than {MOST_ROUNDS:,} numbers of micro-batches; lower the batch")
    return np.arange(2 * p - (0 if problem.rules.whole_rounds else 1), m + 1, p)


TimedRows = tuple[Floats, StrategyRows]  # rows with the lower bounds of their seconds a sequence
Counts = tuple[Ints, Ints, Ints]  # places of pipelines in a table, their replicas and their micro-batches


def strategy_bound(world: World, s: Strategy) -> float:
    """Bound a strategy's seconds a sequence by its table of pipelines where it has one, else by its layers alone."""
    if s in world.cache.tables:
        bound = float(pipelines_of(world, s)[0].min(initial=math.inf))
    else:  # on as many racks as its fewest GPUs of each cabled allow
        (rails, groups, each), problem = _stage_groups(s), s.problem
        most = min(world.max_racks(rails) * groups, problem.max_sequences * problem.layers)
        if most <= 0:
            bound = math.inf
        elif problem.calendar is None:
            bound = each / most
        else:
            bound = float(problem.calendar.min_seconds(each, 0.0, most, s.shape.gpus))
    world.cache.bounds[s] = most_paid(world.problem.instance), bound
    return bound


def strategy_racks(s: Strategy, seconds: float) -> tuple[int, int]:
    """Bound the racks of a strategy that takes no more than some seconds a sequence, and the GPUs cabled of each."""
    rails, groups, each = _stage_groups(s)
    return math.ceil(each / (groups * seconds) * (1 - EPS)), rails


def _stage_groups(s: Strategy) -> tuple[int, float, float]:
    """Return a strategy's fewest cabled GPUs of a rack, a rack's groups that share a layer, and a sequence's work."""
    # A rack has a fraction of a group that spans several. The work is the least time in seconds of all layers of a
    # sequence in one group: many groups divide it at best.
    shape, gpus = s.shape, s.problem.gpus
    racks = context_racks(gpus, *shape.degrees[:2])  # of a group
    groups = gpus // shape.gpus if racks == 1 else 1 / racks
    return shape.gpus // racks, groups, s.least_layers * s.layer / shape.micro_batch


def known_bound(world: World, s: Strategy) -> tuple[float, bool] | None:
    """Return a strategy's bound, cached as its table is, for no less money and racks, and whether for exactly these."""
    paid, bound = world.cache.bounds.get(s, ((-1.0, -1.0), 0.0))
    own = most_paid(world.problem.instance)
    return (bound, paid == own) if all(map(ge, paid, own)) else None


@dataclass(slots=True)
class StrategyTable:
    """The table of a strategy's pipelines with their least seconds, whatever their ZeRO stage."""

    strategy: Strategy
    paid: tuple[float, float]  # the money and racks at which it was made
    rows: StrategyRows  # of each the most replicas and the least micro-batches that it may have
    each: Floats  # least seconds of a micro-batch
    once: Floats  # those that come once in a step of all sequences
    under_zero: dict[int, Any] = field(default_factory=dict)  # by ZeRO stage the least terms known so far
    in_memory: Flags | None = None  # those that may hold the model under any ZeRO stage, once that was asked

    def __len__(self) -> int:
        return len(self.rows)

    def each_within(self, at: Ints, blocks: Ints) -> Floats:
        """Bound the micro-batch seconds of pipelines at some rows of a strategy's table, with most blocks."""
        # Whatever their ZeRO stage. What memory costs with more blocks it costs with fewer: questions for less money
        # need not ask for it anew.
        each, stages, least = self.each[at], self.rows.p[at], np.full(len(at), np.inf)
        if not self.under_zero:
            return each
        piped, without_room = self.strategy.machine.software.zero_stages_under(2), np.zeros(len(at), dtype=bool)
        for zero in sorted(self.strategy.problem.zero_stages, reverse=True):
            found, known = each, self.under_zero.get(zero)
            if known is not None:
                found = np.where(known.high[at] >= blocks, np.fmax(known.each[at], known.in_memory[at]), each)
            least = np.where(without_room | ((zero not in piped) & (stages > 1)), least, np.minimum(least, found))
            if zero < GATHERING:
                without_room |= np.isinf(found)
        return np.asarray(np.maximum(each, least), dtype=np.float64)


def most_sequences(s: Strategy) -> int:
    """Return the most micro-batches of a step in a strategy's table, over all its replicas."""
    return s.problem.max_sequences // s.shape.micro_batch


def table_of(world: World, s: Strategy) -> StrategyTable:
    """Return the cached table of a strategy's pipelines that may have a replica and a micro-batch."""
    # A table serves the money and racks at which it was made, and less, for which a search may ask meanwhile.
    paid = most_paid(world.problem.instance)
    known: StrategyTable | None = world.cache.tables.get(s)
    if known is not None and all(map(ge, known.paid, paid)):
        return known
    rows, problem, total = s.pipelines, s.problem, most_sequences(s)
    fewest = rows.m
    if s not in world.cache.terms:  # which hold whatever the budget
        t = terms_under_zero(s, None, rows)
        world.cache.terms[s] = t.each, t.once
    # 0 where a pipeline cannot take as few as are pinned, nor a block such stripes: as many as rack stages at most.
    wanted, stripes = problem.pin("microbatches_per_step"), problem.instance.pins.get("placement.stripes")
    if wanted is not None:
        fewest = np.where(fewest <= wanted, wanted, 0)
    if stripes is not None and problem.instance.network is not None:
        fewest = np.where(rows.racks >= stripes * rows.stage_racks, fewest, 0)
    d = np.minimum(most_blocks(world, rows.rails, rows.racks) * rows.block_replicas, total // np.maximum(fewest, 1))
    wanted = problem.pin("data_parallel")
    d = d if wanted is None else np.where(d >= wanted, wanted, 0)  # 0: fewer than are pinned
    i = np.flatnonzero((d >= 1) & (fewest >= 1) & (d * s.shape.gpus >= s.shape.expert_parallel))
    each, once = (x[i] for x in world.cache.terms[s])
    found = world.cache.tables[s] = StrategyTable(s, paid, replace(rows, d=d, m=fewest).part(i), each, once)
    return found


def most_blocks(world: World, rails: Ints, racks: Ints) -> Ints:
    """Return the most blocks that the racks at the budget hold, by a pipeline's cabled GPUs of a rack and its racks."""
    most = world.most_racks
    for unknown in set(rails[most[rails] < 0].tolist()):
        most[unknown] = world.max_racks(unknown)
    return np.asarray(most[rails] // racks)


def allowed(world: World, rows: StrategyRows) -> Flags:
    """Return which pipelines of a strategy's table the joint question allows."""
    return np.asarray(world.allows("pipeline_parallel", rows.p) & world.allows("virtual_stages", rows.v))


def pipelines_of(world: World, s: Strategy) -> tuple[Floats, StrategyRows]:
    """Return a strategy table's pipelines with a replica (`d` the most, `m` the least), with lower bounds."""
    t = table_of(world, s)
    most = most_blocks(world, t.rows.rails, t.rows.racks)
    at = np.flatnonzero(most > 0)
    rows, most = t.rows.part(at), most[at]
    rows = replace(rows, d=np.minimum(rows.d, most * rows.block_replicas))
    return min_seconds(s, rows, t.each_within(at, most), t.once[at]), rows


def min_seconds(s: Strategy, rows: StrategyRows, each: Floats, once: Floats) -> Floats:
    """Bound a strategy's seconds a sequence, on a clock, up to each row's replicas.

    `each`: seconds of a micro-batch at one replica; `once`: seconds once in a step of the most micro-batches.
    """
    once, calendar, gpus = once / most_sequences(s), s.problem.calendar, rows.p * s.shape.gpus
    found = each / rows.d + once if calendar is None else calendar.min_seconds(each, once, rows.d, gpus)
    return np.asarray(found / s.shape.micro_batch, dtype=np.float64)


def pipelines_in_memory(world: World, s: Strategy) -> Flags:
    """Return which pipelines of a strategy's table may hold the model under any ZeRO stage; raise at the deadline."""
    # The state falls with the ZeRO stage, and with the replicas of a site, which alone share it; at stage 3 a GPU also
    # holds the gathered weights of a layer.
    world.deadline.check()
    zeros, of = s.problem.zero_stages, table_of(world, s)
    if of.in_memory is None:
        rows = of.rows
        most = rows.d if world.sites is None else world.sites.max_site_racks // rows.racks * rows.block_replicas
        rows = replace(rows, d=np.clip(rows.d, 1, np.maximum(most, 1)))
        found = np.zeros(len(rows), dtype=bool)
        for zero in {max(z for z in zeros if (z == 3) == gathers) for gathers in {z == 3 for z in zeros}}:
            found |= np.isfinite(time_bounds.min_stage_seconds_in_memory(s, zero, rows, 0.0))
        of.in_memory = found & (most > 0)  # kept once it is whole: an interrupt may come before
    return of.in_memory


def terms_under_zero(s: Strategy, zero: int | None, rows: StrategyRows) -> time_bounds.Terms:
    """Bound step-time terms of a strategy's pipelines under a ZeRO stage (None: any), all replicas, network free.

    Their `once` is that of a step of any number of micro-batches.
    """
    phi, total = s.problem.transport_slowdown, most_sequences(s)
    free = RowConditions(racks=rows.stage_racks, shards=rows.d, send=phi, allreduce=phi)
    t = time_bounds.terms(s, zero, rows, free)
    if s.order == "1f1b":
        return t
    filled = replace(rows, m=np.maximum(rows.p, total))
    return replace(t, once=np.minimum(t.once, time_bounds.terms(s, zero, filled, free).once))


def each_in_memory(s: Strategy, zero: int, rows: StrategyRows, each: Floats, layer: Floats) -> Floats:
    """Raise micro-batch seconds of a strategy's pipelines to stages that fit in memory; infinite if none does."""
    seconds = time_bounds.min_stage_seconds_in_memory(s, zero, rows, layer)
    return np.asarray(np.maximum(each, seconds + s.machine.software.host_seconds), dtype=np.float64)


def under_zero(s: Strategy, zero: int, rows: StrategyRows, keys: Floats, cutoff: float) -> "Pipes | None":
    """Return a strategy's pipelines that may hold the model under a ZeRO stage, with bounds under the cutoff."""
    if zero not in s.machine.software.zero_stages_under(2):
        alone = np.flatnonzero(rows.p == 1)
        rows, keys = rows.part(alone), keys[alone]
    if not len(rows):
        return None
    t = terms_under_zero(s, zero, rows)
    keys = np.maximum(keys, min_seconds(s, rows, t.each, t.once))
    few = np.flatnonzero(keys < cutoff)
    if not len(few):
        return None
    rows, t = rows.part(few), t.part(few)
    each = each_in_memory(s, zero, rows, t.each, t.layer)
    found = Pipes(np.maximum(keys[few], min_seconds(s, rows, each, t.once)), rows, each, t.once)
    fine = np.flatnonzero(found.keys < cutoff)
    return found.part(fine) if len(fine) else None


@dataclass(frozen=True, slots=True)
class Pipes(ArrayTable):
    """Pipelines of a strategy and ZeRO stage with lower bounds, and least seconds of a micro-batch and of the rest."""

    keys: Floats
    rows: StrategyRows
    each: Floats
    once: Floats


def columns_of(
    world: World,
    s: Strategy,
    zero: int,
    pipes: Pipes,
    cutoff: float,
    *,
    max_blocks_off: int | None = None,
    more_than: Ints | None = None,
    in_rounds: bool = False,
) -> TimedRows | None:
    """Return a strategy's columns, every count of replicas and micro-batches that may be best, under the cutoff.

    `more_than`: replicas that each must exceed; `max_blocks_off`: most blocks that are left out; `in_rounds`: each
    represents all numbers of rounds up to its own, in place of those listed one by one.
    """
    problem, b, rows = s.problem, s.shape.micro_batch, pipes.rows
    total, wanted = problem.max_sequences // b, problem.pin("data_parallel")
    group = problem.expert_group(s.shape)
    even = group // math.gcd(group, s.shape.gpus)  # replicas come in multiples of it: they divide the experts evenly
    found, waiting, count = list[TimedRows](), list[Counts](), 0
    for i in range(len(rows)):
        world.deadline.check()
        most, each = int(rows.d[i]), float(pipes.each[i])
        # The most seconds of steps a micro-batch within the cutoff on a clock, and the fewest replicas within it.
        limit, once = cutoff * b, float(pipes.once[i]) / total
        if problem.calendar is not None:
            limit, low = problem.calendar.step_limit(limit, each, once, most, int(rows.p[i]) * s.shape.gpus)
        else:
            late = limit - once
            low = max(1, math.floor(each / late * (1 - 1e-9))) if late > 0 else most + 1
        if more_than is not None:
            low = max(low, int(more_than[i]) + 1)
        if max_blocks_off is not None:
            low = max(low, most // even * even - max_blocks_off * int(rows.block_replicas[i]))
        every = np.arange(low, most + 1)
        d = every if wanted is None else every[every == wanted]
        d = d[d % even == 0]
        of = s, d, int(rows.p[i]), int(rows.v[i]), each, limit
        d, m = most_rounds(*of) if in_rounds else micro_batches(*of, likely=max_blocks_off is not None)
        waiting.append((np.full(len(d), i), d, m))
        count += len(d)
        if count >= BLOCK or i == len(rows) - 1:
            found += _timed(world, s, zero, rows, waiting, cutoff, waits=not in_rounds)
            waiting, count = [], 0
    if not found:
        return None
    times, tables = zip(*found, strict=True)
    return np.concatenate(times), StrategyRows.joined(tables)


def rounds_of(world: World, s: Strategy, zero: int, row: StrategyRows, cutoff: float) -> list[TimedRows]:
    """Return the micro-batch counts that one row of a strategy's table represents, with bounds under the cutoff."""
    m = rounds_up_to(s.problem, int(row.m[0]), int(row.p[0]), world.deadline)
    at = np.zeros(len(m), dtype=np.int64)
    return _timed(world, s, zero, row, [(at, row.d[at], m)], cutoff)


def _timed(
    world: World, s: Strategy, zero: int, rows: StrategyRows, counts: list[Counts], cutoff: float, *, waits: bool = True
) -> list[TimedRows]:
    """Return a strategy's pipelines at some counts whose lower bounds on time are under the cutoff, with the bounds."""
    problem, b, phi, found = s.problem, s.shape.micro_batch, s.problem.transport_slowdown, list[TimedRows]()
    at, d, m = (np.concatenate(each) for each in zip(*counts, strict=True))
    for some in (slice(first, first + BLOCK) for first in range(0, len(at), BLOCK)):
        world.deadline.check()
        table = replace(rows.part(at[some]), d=d[some], m=m[some])
        racks = -(-table.blocks() // world.max_open) * table.stage_racks
        terms = time_bounds.terms(s, zero, table, RowConditions(racks=racks, shards=table.d, send=phi, allreduce=phi))
        if not waits:
            terms = replace(terms, wait=np.zeros(len(table)))
        stretch = np.ones(len(table))  # by failures, from below
        if problem.calendar is not None:
            stretch = np.asarray(problem.calendar.column_floor(table.d, table.p * s.shape.gpus), dtype=np.float64)
        few = np.flatnonzero(terms.seconds(table) / (table.d * table.m * b) * stretch < cutoff)
        if not len(few):
            continue
        table, terms, stretch = table.part(few), terms.part(few), stretch[few]
        terms = replace(terms, each=each_in_memory(s, zero, table, terms.each, terms.layer))
        times = terms.seconds(table) / (table.d * table.m * b) * stretch
        few = np.flatnonzero(times < cutoff)
        found += [(times[few], table.part(few))] if len(few) else []
    return found


def min_fill_seconds(s: Strategy, p: Any, v: Any) -> Any:
    """Bound from below a strategy's seconds to fill and drain pipelines of p stages of v chunks."""
    # 1F1B fills with whole layers. ZB-H1 spares at most W for each and delays W: F + B - min(F, B, W) >= F + B - W of
    # the F + B + W (`schedule.bubble_seconds`).
    own = s.layer if s.order == "1f1b" else max(0.0, s.layer - 2 * s.between.times.weight_gradient_seconds)
    return (p - 1) * np.ceil(np.ceil(s.problem.layers / p) / v) * own


def column_at(s: Strategy, zero: int, table: StrategyRows, i: int) -> Column:
    """Return one row of a strategy's table as a column."""
    return Column(strategy=s, zero=zero, p=int(table.p[i]), v=int(table.v[i]), d=int(table.d[i]), m=int(table.m[i]))


def free_seconds(world: World, column: Column, cutoff: float, *, waits: bool = True) -> float:
    """Bound from below the seconds a sequence of a strategy's column, by its best split on a free network.

    All replicas share ZeRO's state; the bound is infinite over the cutoff. Without `waits` of unequal chunks it holds
    for all numbers of rounds up to the column's own.
    """
    calendar, cache, phi = world.problem.calendar, world.cache, world.problem.transport_slowdown
    stretch = 1.0 if calendar is None else calendar.least_stretch(column.d, column.replica_gpus)
    cutoff /= stretch
    seconds = cache.free.get(column, math.inf) if waits else math.inf
    if not waits or (column not in cache.free and not cutoff <= cache.slower.get(column, -math.inf)):
        racks = -(-column.block.blocks(column.d) // world.max_open) * column.block.stage_racks
        free = RowConditions(racks=racks, shards=column.d, send=phi, allreduce=phi)
        tick, step = world.deadline.check, cutoff * column.sequences
        found = Stages(column=column, conditions=free, cutoff=step, exact=False, waits=waits, tick=tick).least()
        seconds = math.inf if found is None else found.seconds / column.sequences
        if waits and found is not None:
            cache.free[column] = seconds
        elif waits:
            cache.slower[column] = cutoff
    return stretch * seconds if seconds < cutoff or not waits else math.inf
