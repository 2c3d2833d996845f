"""Numbers of micro-batches that replicas may take in a step, those pruned that cannot be best."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.models.joint.space import Ints, JointProblem
from planner.solvers.outcome import UnansweredError
from planner.solvers.signals import Deadline

BLOCK = 1 << 18  # rows of a table that are worked out at once
MOST_ROUNDS = 1 << 22  # of the micro-batches of a replica


@dataclass(frozen=True, slots=True)
class Pruning:
    """Least seconds of a micro-batch and of a layer that fills a pipeline, and the cutoff in seconds a micro-batch."""

    each: float
    layer: float
    cutoff: float
    likely: bool  # shallow tables alone, for a first plan


def micro_batches(problem: JointProblem, d: Any, total: int, p: int, v: int, pruning: Pruning) -> tuple[Any, Any]:
    """Pair numbers of replicas with the numbers of micro-batches that could be best with them.

    Pairs whose fill of the pipeline alone exceeds the cutoff are left out. A filled pipeline takes as many as the batch
    holds. Interleaved, whole rounds may be better, and fewer than p + (p-1)/v hold less in flight; where a rule asks
    for whole rounds, the most and one are candidates. Of unequal chunks more may be best (`most_rounds`). A pipeline
    that is not interleaved holds less where it is not filled, so it may take any number below p.
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
    pairs = np.unique(found * (total + 1) + m)
    return pairs // (total + 1), pairs % (total + 1)


def most_rounds(problem: JointProblem, d: Any, total: int, p: int, v: int, pruning: Pruning) -> tuple[Any, Any]:
    """Pair numbers of replicas with the most micro-batches of those that chunks which are not alike may ask for.

    Each speaks for all of `rounds_up_to`. How long chunks wait for larger ones is not known before their split is: one
    more whole round may wait more. Chunks may be unequal whatever the layers, as a stage may recompute some of them or
    have fewer. Whatever else a step takes grows in proportion to its micro-batches, or comes once. So where nothing
    waits none of them is faster, by sequence, than the most; memory holds as much in flight for all.
    """
    if v == 1 or problem.pin("microbatches_per_step") is not None:
        return d[:0], d[:0]
    less, even = _short_of_rounds(problem), math.ceil(problem.layers / p)
    m = (total // np.maximum(d, 1) + less) // p * p - less
    fill = (p - 1) * math.ceil(even / v) * pruning.layer
    fine = (m >= 2 * p - less) & (m * pruning.each + fill < pruning.cutoff * m * d)
    return d[fine], m[fine]


def rounds_up_to(problem: JointProblem, m: int, p: int, deadline: Deadline) -> Ints:
    """Return the numbers of micro-batches that the most of them speaks for: of two whole rounds and more.

    One fewer where no rule asks for whole rounds: `interleaving.min_excess_seconds` counts those that are whole.
    UnansweredError: the batch is so large that not all of them can be kept.
    """
    deadline.check()
    if m // p > MOST_ROUNDS:
        raise UnansweredError(f"a step may have more than {MOST_ROUNDS:,} numbers of micro-batches; lower the batch")
    less = _short_of_rounds(problem)
    return np.arange(2 * p - less, m + 1, p)


def _short_of_rounds(problem: JointProblem) -> int:
    """Return by how many micro-batches the last round falls short of a whole one."""
    return 0 if problem.rules.whole_rounds else 1
