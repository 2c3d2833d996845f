"""What interleaved 1F1B loses where the chunks of a stage are not alike: the order of its events, run pass by pass."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.physics.num import Num

Floats = NDArray[np.float64]


def chunk_sizes(layers: int, virtual_stages: int) -> tuple[int, ...]:
    """Divide the layers of a stage into chunks as equal as can be, the larger first."""
    return tuple(layers // virtual_stages + (c < layers % virtual_stages) for c in range(virtual_stages))


FEW_ROUNDS = 8  # run at first; a round that repeats is looked for among them
SAME = 1e-12  # relative, by which shifts of a repeated round may differ


@lru_cache(maxsize=4096)
def finish_seconds(pipeline: int, micro_batches: int, forward: tuple[float, ...], backward: tuple[float, ...]) -> float:
    """Compute when the last pass of p equal stages in the order of interleaved 1F1B ends.

    Passes are run one by one until a round of p micro-batches repeats: where all passes of several rounds in a row
    end as much later as those of the round before, so do all of the rounds between them and the last ones, since every
    device goes on in the same order and what it waits for lies in these rounds. Then rounds left out add that shift.
    """
    rounds, few = micro_batches // pipeline, FEW_ROUNDS
    while few < rounds:
        fewer = micro_batches - (rounds - few) * pipeline
        finish, ends = run_passes(pipeline, fewer, forward, backward)
        shift = _repeated_shift(ends, pipeline, few)
        if shift is not None:
            return finish + (rounds - few) * shift
        few *= 2
    return run_passes(pipeline, micro_batches, forward, backward)[0]


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
    pipeline: int, micro_batches: int, forward: tuple[float, ...], backward: tuple[float, ...]
) -> tuple[float, Floats]:
    """Run the passes of p equal stages in the order of interleaved 1F1B, each as soon as its inputs are there.

    Return when the last ends, and when each does: by place, forward then backward, and micro-batch. Rounds of p
    micro-batches go through all chunks, a short last one in a whole one's slots; a device warms up with
    2·(p-i-1) + (v-1)·p passes (Narayanan 2021, section 2.2). Exchanges take no time: what they expose is counted
    apart.
    """
    p, m, v = pipeline, micro_batches, len(forward)
    places = p * v
    ends = [-1.0] * (2 * places * m)
    queues = [_queue(i, p, m, v, forward, backward) for i in range(p)]
    clock, at, left = [0.0] * p, [0] * p, p
    while left:
        left = 0
        for i in range(p):
            queue, j, now = queues[i], at[i], clock[i]
            last = len(queue)
            while j < last:
                own, need, other, seconds = queue[j]
                ready = ends[need] if need >= 0 else 0.0
                if ready < 0.0:
                    break
                if other >= 0:
                    second = ends[other]
                    if second < 0.0:
                        break
                    ready = max(ready, second)
                now = max(now, ready)
                now += seconds
                ends[own] = now
                j += 1
            at[i], clock[i] = j, now
            left += j < last
    return max(clock), np.array(ends).reshape(2 * places, m)


def _queue(
    i: int, p: int, m: int, v: int, forward: tuple[float, ...], backward: tuple[float, ...]
) -> list[tuple[int, int, int, float]]:
    """List the passes of device i in order: its number, the numbers of what it needs (-1: nothing), and its seconds."""
    places, rounds = p * v, -(-m // p) if v > 1 else 1
    width = p if v > 1 else m
    chunk = np.tile(np.repeat(np.arange(v), width), rounds)
    batch = (
        np.arange(rounds)[:, None, None] * width + np.arange(width)[None, None, :] + np.zeros((1, v, 1), int)
    ).ravel()
    place = chunk * p + i
    ahead = (place * m + batch, np.where(place > 0, (place - 1) * m + batch, -1), np.full(len(batch), -1))
    place = (v - 1 - chunk) * p + i
    after = np.where(place < places - 1, (places + place + 1) * m + batch, -1)
    back = ((places + place) * m + batch, place * m + batch, after)
    count = len(batch)
    warm = min(count, p - i - 1 if v == 1 else 2 * (p - i - 1) + (v - 1) * p)
    # A forward pass stands at twice its number behind the warm-up, a backward pass one place after its partner.
    when = np.concatenate([2 * np.arange(count), 2 * (np.arange(count) + warm) + 1])
    order = np.argsort(when, kind="stable")
    order = order[np.concatenate([batch, batch])[order] < m]
    columns = [np.concatenate(pair)[order].tolist() for pair in zip(ahead, back, strict=True)]
    seconds = np.concatenate([np.array(forward)[chunk], np.array(backward)[v - 1 - chunk]])[order].tolist()
    return list(zip(*columns, seconds, strict=True))


def excess_seconds(
    pipeline: int,
    virtual_stages: int,
    micro_batches: int,
    layers: int,
    recomputed: int,
    passes: tuple[float, float, float],
) -> float:
    """Return the seconds that chunks of unequal work add to what equal ones would take.

    m stages and the largest chunk on the others. `passes`: seconds of a layer forward, backward, and recomputed.
    Where every chunk has as much, nothing; with a short last round the closed form counts its waits already, and the
    larger of the two holds.
    """
    v, (ahead, back, recompute) = virtual_stages, passes
    if v == 1 or pipeline == 1 or (layers % v == 0 and recomputed % v == 0):
        return 0.0
    sizes, repeats = chunk_sizes(layers, v), chunk_sizes(recomputed, v)
    forward = tuple(n * ahead for n in sizes)
    backward = tuple(n * back + r * recompute for n, r in zip(sizes, repeats, strict=True))
    stage, largest = math.fsum(forward) + math.fsum(backward), forward[0] + backward[0]
    rounds = micro_batches + (v - 1) / v * (-micro_batches % pipeline)
    return max(
        0.0, finish_seconds(pipeline, micro_batches, forward, backward) - rounds * stage - (pipeline - 1) * largest
    )


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
    first two waits for (p-1)·(T - t) - T, T and t the seconds of the largest and the smallest chunk. A test compares
    it with the order of events.
    """
    p, v, m, n, r = (np.asarray(x) for x in (pipeline, virtual_stages, micro_batches, layers, recomputed))
    largest = np.ceil(n / v) * layer_seconds + np.ceil(r / v) * recompute_seconds
    apart = (n % v > 0) * layer_seconds + (r % v > 0) * recompute_seconds
    return np.where(v > 1, np.maximum(0, m // p - 2) * np.maximum(0.0, (p - 1) * apart - largest), 0.0)
