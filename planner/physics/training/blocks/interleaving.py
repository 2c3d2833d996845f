"""What interleaved 1F1B loses where the chunks of a stage are not alike: the order of its events, run pass by pass."""

import math
from functools import lru_cache

import numpy as np

from planner.physics.num import Num


def chunk_sizes(layers: int, virtual_stages: int) -> tuple[int, ...]:
    """ParallelStrategy the layers of a stage into chunks as equal as can be, the larger first."""
    return tuple(layers // virtual_stages + (c < layers % virtual_stages) for c in range(virtual_stages))


@lru_cache(maxsize=4096)
def finish_seconds(pipeline: int, micro_batches: int, forward: tuple[float, ...], backward: tuple[float, ...]) -> float:
    """Run the passes of p equal stages in the order of interleaved 1F1B, each as soon as its inputs are there.

    Return when the last ends. Rounds of p micro-batches go through all chunks, a short last one in a whole one's
    slots; a device warms up with 2·(p-i-1) + (v-1)·p passes (Narayanan 2021, section 2.2). Exchanges take no time:
    what they expose is counted apart.
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
                now = (max(ready, now)) + seconds
                ends[own] = now
                j += 1
            at[i], clock[i] = j, now
            left += j < last
    return max(clock)


def _queue(
    i: int, p: int, m: int, v: int, forward: tuple[float, ...], backward: tuple[float, ...]
) -> list[tuple[int, int, int, float]]:
    """List the passes of device i in order: its number, the numbers of what it needs (-1: nothing), and its seconds."""
    places, total = p * v, -(-m // p) * p if v > 1 else m
    slots = [(c, k) for first in range(0, total, p) for c in range(v) for k in range(first, min(first + p, total))]

    def ahead(c: int, k: int) -> tuple[int, int, int, float]:
        place = c * p + i
        return place * m + k, (place - 1) * m + k if place else -1, -1, forward[c]

    def back(c: int, k: int) -> tuple[int, int, int, float]:
        place = (v - 1 - c) * p + i
        after = (places + place + 1) * m + k if place < places - 1 else -1
        return (places + place) * m + k, place * m + k, after, backward[v - 1 - c]

    warm = min(len(slots), p - i - 1 if v == 1 else 2 * (p - i - 1) + (v - 1) * p)
    found = [ahead(*x) for x in slots[:warm] if x[1] < m]
    for x, y in zip(slots[warm:], slots, strict=False):
        found += [ahead(*x)] if x[1] < m else []
        found += [back(*y)] if y[1] < m else []
    return found + [back(*y) for y in slots[len(slots) - warm :] if y[1] < m]


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
