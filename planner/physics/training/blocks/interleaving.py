"""Compute the loss of interleaved 1F1B where a stage's chunks are unequal, by running its passes in order."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.physics.num import Num

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Tick = Callable[[], None]


def chunk_sizes(layers: int, virtual_stages: int) -> tuple[int, ...]:
    """Divide the layers of a stage into chunks as equal as can be, the larger first."""
    return tuple(layers // virtual_stages + (c < layers % virtual_stages) for c in range(virtual_stages))


FEW_ROUNDS = 10  # run at first; a round that repeats is looked for among them, behind those that fill the pipeline
SAME = 1e-12  # relative, by which shifts of a repeated round may differ
MOST_FINISHED, MOST_ORDERS = 4096, 8  # kept
TICK_WAVES = 512
MANY_AT_ONCE = 16  # passes of a wave, from which arrays are faster than a loop


def no_tick() -> None:
    """Do nothing between the steps of a long computation."""


def finish_seconds(
    pipeline: int,
    micro_batches: int,
    forward: tuple[float, ...],
    backward: tuple[float, ...],
    *,
    tick: Tick = no_tick,
) -> float:
    """Compute when the last pass of p equal stages in the order of interleaved 1F1B ends.

    Passes are run one by one until a round of p micro-batches repeats: where all passes of several rounds in a row
    end as much later as those of the round before, so do all of the rounds between them and the last ones, since every
    device goes on in the same order and what it waits for lies in these rounds. Then rounds left out add that shift.
    `tick` is called now and then; what it raises ends the computation.
    """
    key = pipeline, micro_batches, forward, backward
    if key not in _finished:
        if len(_finished) >= MOST_FINISHED:
            _finished.clear()
        _finished[key] = _finish_seconds(*key, tick)
    return _finished[key]


def _finish_seconds(
    pipeline: int, micro_batches: int, forward: tuple[float, ...], backward: tuple[float, ...], tick: Tick
) -> float:
    rounds, few = micro_batches // pipeline, FEW_ROUNDS
    while few < rounds:
        fewer = micro_batches - (rounds - few) * pipeline
        finish, ends = run_passes(pipeline, fewer, forward, backward, tick=tick)
        shift = _repeated_shift(ends, pipeline, few)
        if shift is not None:
            return finish + (rounds - few) * shift
        few *= 2
    return run_passes(pipeline, micro_batches, forward, backward, tick=tick)[0]


def _repeated_shift(ends: Floats, pipeline: int, rounds: int) -> float | None:
    """Return by how much a round ends later than the one before, where four in a row do by the same; else None.

    A device warms up with at most (v + 1)/v rounds, so that it is in three rounds at a time; as many at the end are
    left aside, in which it drains.
    """
    first = rounds - 7
    some = ends[:, first * pipeline : (first + 4) * pipeline].reshape(len(ends), 4, pipeline)
    shifts = np.diff(some, axis=1)
    shift = float(shifts[0, 0, 0])
    return shift if np.all(np.abs(shifts - shift) <= SAME * float(some.max())) else None


def run_passes(
    pipeline: int,
    micro_batches: int,
    forward: tuple[float, ...],
    backward: tuple[float, ...],
    *,
    tick: Tick = no_tick,
) -> tuple[float, Floats]:
    """Run the passes of p equal stages in the order of interleaved 1F1B, each as soon as its inputs are there.

    Return when the last ends, and when each does: by place, forward then backward, and micro-batch. Rounds of p
    micro-batches go through all chunks, a short last one in a whole one's slots; a device warms up with
    2·(p-i-1) + (v-1)·p passes (Narayanan 2021, section 2.2). Exchanges take no time: what they expose is counted
    apart.
    """
    v = len(forward)
    order = _order(pipeline, micro_batches, v, tick)
    if len(order.own) < MANY_AT_ONCE * len(order.starts):
        ends = _run_one_by_one(order, (*forward, *backward), tick)
        return float(ends.max()), ends.reshape(2 * pipeline * v, micro_batches)
    seconds = np.array([*forward, *backward])[order.kind]
    ends = np.zeros(len(order.own) + 1)  # the last entry, 0, is that of a pass that waits for nothing
    for k, (a, b) in enumerate(pairwise(order.starts)):
        if k % TICK_WAVES == 0:
            tick()
        ends[order.own[a:b]] = ends[order.waits[:, a:b]].max(axis=0) + seconds[a:b]
    return float(ends.max()), ends[:-1].reshape(2 * pipeline * v, micro_batches)


def _run_one_by_one(order: "PassOrder", seconds: tuple[float, ...], tick: Tick) -> Floats:
    """Return when each pass ends, for waves of so few passes that arrays take longer than a loop."""
    ends = [0.0] * (len(order.own) + 1)
    tick()
    for own, before, need, other, kind in order.one_by_one:
        start, second, third = ends[before], ends[need], ends[other]
        if second > start:  # noqa: PLR1730 - a call takes twice as long
            start = second
        if third > start:  # noqa: PLR1730
            start = third
        ends[own] = start + seconds[kind]
    return np.array(ends[:-1])


@dataclass(frozen=True)
class PassOrder:
    """The passes of a pipeline by waves: none waits for another of its wave, and all for earlier ones only.

    `own`: their numbers; `waits`: of the pass before it on its device, and of the two that make its inputs; `kind`:
    their chunk, forward or backward; `starts`: where each wave begins.
    """

    own: Ints
    waits: Ints
    kind: Ints
    starts: list[int]

    @cached_property
    def one_by_one(self) -> list[tuple[int, ...]]:
        """The passes in order: number, the three that it waits for, and kind."""
        return list(zip(self.own.tolist(), *self.waits.tolist(), self.kind.tolist(), strict=True))


_finished: dict[tuple[int, int, tuple[float, ...], tuple[float, ...]], float] = {}
_orders: dict[tuple[int, int, int], PassOrder] = {}


def _order(p: int, m: int, v: int, tick: Tick) -> PassOrder:
    """Sort passes into waves, once for all of their seconds."""
    if (p, m, v) not in _orders:
        if len(_orders) >= MOST_ORDERS:
            _orders.pop(next(iter(_orders)))
        _orders[p, m, v] = _in_waves(p, m, v, tick)
    return _orders[p, m, v]


def _in_waves(p: int, m: int, v: int, tick: Tick) -> PassOrder:
    """Give each pass the wave behind the last of those that it waits for, device by device as far as is known."""
    none = 2 * p * v * m
    queues = []
    for i in range(p):
        tick()
        queues.append(_queue(i, p, m, v))
    wave = [0] * none + [-1]
    todo = [(own.tolist(), *waits[1:].tolist()) for own, waits, _ in queues]
    clock, at, left = [-1] * p, [0] * p, p
    while left:
        left = 0
        tick()
        for i, (own, need, other) in enumerate(todo):
            j, now, last = at[i], clock[i], len(own)
            while j < last:
                a, b = wave[need[j]], wave[other[j]]
                if a == 0 or b == 0:  # not run yet
                    break
                now = max(now, a, b, 0) + 1
                wave[own[j]] = now
                j += 1
            at[i], clock[i] = j, now
            left += j < last
    own, waits, kind = (np.concatenate([q[k] for q in queues], axis=-1) for k in range(3))
    waves = np.array(wave)[own]
    by_wave = np.argsort(waves, kind="stable")
    starts = np.searchsorted(waves[by_wave], np.arange(1, int(waves.max()) + 2)).tolist()
    return PassOrder(own[by_wave], waits[:, by_wave], kind[by_wave], starts)


def _queue(i: int, p: int, m: int, v: int) -> tuple[Ints, Ints, Ints]:
    """List the passes of device i in order: their numbers, those that each waits for, and their kinds.

    A pass waits for the one before it on the device and for two that make its inputs; the number after that of the last
    pass means no pass.
    """
    places, rounds = p * v, -(-m // p) if v > 1 else 1
    none, width = 2 * places * m, p if v > 1 else m
    chunk = np.tile(np.repeat(np.arange(v), width), rounds)
    batch = (
        np.arange(rounds)[:, None, None] * width + np.arange(width)[None, None, :] + np.zeros((1, v, 1), int)
    ).ravel()
    place = chunk * p + i
    ahead = (place * m + batch, np.where(place > 0, (place - 1) * m + batch, none), np.full(len(batch), none))
    place = (v - 1 - chunk) * p + i
    after = np.where(place < places - 1, (places + place + 1) * m + batch, none)
    back = ((places + place) * m + batch, place * m + batch, after)
    count = len(batch)
    warm = min(count, p - i - 1 if v == 1 else 2 * (p - i - 1) + (v - 1) * p)
    # A forward pass is placed at twice its number after the warm-up, a backward pass one place after its partner.
    when = np.concatenate([2 * np.arange(count), 2 * (np.arange(count) + warm) + 1])
    order = np.argsort(when, kind="stable")
    order = order[np.concatenate([batch, batch])[order] < m]
    own, need, other = (np.concatenate(pair)[order] for pair in zip(ahead, back, strict=True))
    kind = np.concatenate([chunk, v + (v - 1 - chunk)])[order]
    return own, np.stack([np.concatenate([[none], own[:-1]]), need, other]), kind


def excess_seconds(
    pipeline: int,
    virtual_stages: int,
    micro_batches: int,
    layers: int,
    recomputed: int,
    passes: tuple[float, float, float],
    *,
    head: tuple[float, float] = (0.0, 0.0),
    tick: Tick = no_tick,
) -> float:
    """Return the seconds that chunks of unequal work add to what equal ones would take.

    m stages and the largest chunk on the others. `passes`: seconds of a layer forward, backward, and recomputed.
    Where every chunk has as much, nothing; with a short last round the closed form counts its waits already, and the
    larger of the two holds. The `head`, forward and backward, belongs to the last chunk of a stage, the smallest, and
    fills it up to the largest.
    """
    v, (ahead, back, recompute) = virtual_stages, passes
    if v == 1 or pipeline == 1 or (layers % v == 0 and recomputed % v == 0):
        return 0.0
    sizes, repeats = chunk_sizes(layers, v), chunk_sizes(recomputed, v)
    forward = tuple(n * ahead for n in sizes)
    backward = tuple(n * back + r * recompute for n, r in zip(sizes, repeats, strict=True))
    forward = (*forward[:-1], min(forward[0], forward[-1] + head[0]))
    backward = (*backward[:-1], max(backward[-1], min(backward[0], backward[-1] + head[1])))
    stage, largest = math.fsum(forward) + math.fsum(backward), forward[0] + backward[0]
    rounds = micro_batches + (v - 1) / v * (-micro_batches % pipeline)
    finish = finish_seconds(pipeline, micro_batches, forward, backward, tick=tick)
    return max(0.0, finish - rounds * stage - (pipeline - 1) * largest)


def min_excess_seconds(
    pipeline: Num,
    virtual_stages: Num,
    micro_batches: Num,
    layers: Num,
    recomputed: Num,
    layer_seconds: Num,
    recompute_seconds: Num,
) -> Num:
    """Bound the excess of unequal chunks from below.

    Once the pipeline runs, devices are in chunks of different size at a time: each round of p micro-batches but the
    first two waits for (p-1)·(T - t) - T, T and t the seconds of the largest and the smallest chunk. What a short last
    round loses is counted as micro-batches already (`schedule.effective_micro_batches`). A test compares it with the
    order of events.
    """
    p, v, m, n, r = (np.asarray(x) for x in (pipeline, virtual_stages, micro_batches, layers, recomputed))
    largest = np.ceil(n / v) * layer_seconds + np.ceil(r / v) * recompute_seconds
    apart = (n % v > 0) * layer_seconds + (r % v > 0) * recompute_seconds
    waits = np.maximum(0, m // p - 2) * np.maximum(0.0, (p - 1) * apart - largest)
    counted = (v - 1) / v * (-m % p) * (n * layer_seconds + r * recompute_seconds)
    return np.where(v > 1, np.maximum(0.0, waits - counted), 0.0)
