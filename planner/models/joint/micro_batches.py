"""Numbers of micro-batches that replicas may take in a step, those pruned that cannot be best."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.models.joint.space import Ints, Problem
from planner.solvers.outcome import UnansweredError
from planner.solvers.signals import Deadline

BLOCK = 1 << 18  # rows of a table that are worked out at once
MOST_PAIRS = 1 << 22  # of numbers of replicas and micro-batches of one pipeline


@dataclass(frozen=True, slots=True)
class Pruning:
    """Least seconds of a micro-batch and of a layer that fills a pipeline, and the cutoff in seconds a micro-batch."""

    each: float
    layer: float
    cutoff: float
    likely: bool  # shallow tables alone, for a first plan


def micro_batches(
    problem: Problem, d: Any, total: int, p: int, v: int, pruning: Pruning, deadline: Deadline
) -> tuple[Any, Any]:
    """Pair numbers of replicas with the numbers of micro-batches that could be best with them.

    And in time by their fill alone. A filled pipeline takes as many as the batch holds. Interleaved, whole rounds may
    be better, fewer than p + (p-1)/v hold less in flight, and of chunks that are not alike one fewer than whole rounds
    are bounded lower (`interleaving.min_excess_seconds` counts the rounds that are whole). Where a rule asks for whole
    rounds: the most, one, and of chunks that are not alike every number. A pipeline that is not interleaved holds less
    where it is not filled, so it may take any number below p.
    """
    most, wanted = total // np.maximum(d, 1), problem.pin("microbatches_per_step")
    rounds = v > 1 and problem.rules.whole_rounds
    if wanted is not None:
        fine = (most >= wanted) & ((wanted >= p) if v > 1 else True) & (not rounds or wanted % p == 0)
        return d[fine], np.full(int(np.sum(fine)), wanted)
    even = math.ceil(problem.layers / p)
    fill = (p - 1) * math.ceil(even / v) * pruning.layer
    if v == 1:
        spare = d * pruning.cutoff - pruning.each
        min_count = np.where(spare > 0, np.ceil(np.minimum(fill / np.maximum(spare, 1e-300), p) * (1 - 1e-9)), p)
        min_count = np.full(len(d), p) if pruning.likely else np.clip(min_count, 1, p).astype(np.int64)
        each = np.maximum(np.minimum(most, p - 1) - min_count + 1, 0)
        first = np.cumsum(each) - each
        early = np.repeat(min_count, each) + np.arange(int(each.sum())) - np.repeat(first, each)
        filled = most >= p
        found, m = np.concatenate([d[filled], np.repeat(d, each)]), np.concatenate([most[filled], early])
    elif rounds:
        found, m = np.tile(d, 2), np.concatenate([most // p * p, np.minimum(most // p, 1) * p])
    else:
        tried = [most, most // p * p, *(np.minimum(most, p + k) for k in range((p - 1) // v + 1))]
        found, m = np.tile(d, len(tried)), np.concatenate(tried)
    fine = (m >= (p if v > 1 else 1)) & (m * pruning.each + fill < pruning.cutoff * m * found)
    found, m = found[fine], m[fine]
    if v == 1:
        return found, m
    if problem.layers % (p * v):
        more = list(_rounds(d, most, p, 0 if rounds else 1, pruning, fill, deadline))
        found, m = (np.concatenate([x, *(y[k] for y in more)]) for k, x in enumerate((found, m)))
    pairs = np.unique(found * (total + 1) + m)
    return pairs // (total + 1), pairs % (total + 1)


def _rounds(
    d: Ints, most: Ints, p: int, less: int, pruning: Pruning, fill: float, deadline: Deadline
) -> Iterator[tuple[Ints, Ints]]:
    """Pair numbers of replicas with whole rounds of p micro-batches, two at least, less as many as `less`.

    Raises
    ------
    UnansweredError
        The batch is so large that not all of them can be kept.
    """
    kept, step = 0, max(1, BLOCK // max(len(d), 1))
    last = int(most.max(initial=0)) // p
    for first in range(2, last + 1, step):
        deadline.check()
        m = np.arange(first, min(first + step, last + 1))[:, None] * p - less
        fine = (m <= most) & (m * pruning.each + fill < pruning.cutoff * m * d)
        kept += int(fine.sum())
        if kept > MOST_PAIRS:
            raise UnansweredError(f"a step may have more than {MOST_PAIRS:,} numbers of micro-batches; lower the batch")
        row, column = np.nonzero(fine)
        yield d[column], m[row, 0]
