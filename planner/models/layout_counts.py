"""The counts of replicas and micro-batches of a row that could be best, with what follows from them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.models.layout_question import Base, Problem
from planner.models.layout_space import Flags, Floats, Ints, Row, effective, least_terms, replica_caps
from planner.physics import schedule

COUNTS = ("data_parallel", "data_parallel_by_site", "microbatches_per_step")  # choices that, pinned, leave few counts
AT_ONCE = 500_000  # counts of rows bounded together


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Replica and micro-batch counts of a row that could beat a cutoff, with what follows from them; one entry each."""

    replicas: Ints
    batches: Ints
    by_site: Ints
    least: Ints  # replicas of the smallest site that works
    racks: Ints
    bound: Floats

    def part(self, which: Any) -> "Candidates":
        """Return some of the candidates."""
        return Candidates(
            replicas=self.replicas[which],
            batches=self.batches[which],
            by_site=self.by_site[:, which],
            least=self.least[which],
            racks=self.racks[which],
            bound=self.bound[which],
        )


def split_replicas(caps: Ints, replicas: Ints) -> Ints:
    """Split replica counts over sites as evenly as the caps permit; shape (sites, n).

    The even split makes the largest group least and the smallest most: no other is faster or takes less memory.
    """
    order = np.argsort(caps, kind="stable")
    left, shares = replicas.copy(), np.zeros((len(caps), len(replicas)), dtype=np.int64)
    for rank, site in enumerate(order):
        shares[site] = np.minimum(caps[site], left // (len(caps) - rank))
        left = left - shares[site]
    return shares


def counts(problem: Problem, row: Row, d: Ints) -> tuple[Ints, Ints]:
    """Pair numbers of replicas with the numbers of micro-batches that could be best with them.

    A filled pipeline takes as many micro-batches as the batch holds. Interleaved, whole rounds may be better, and fewer
    micro-batches than p + (p-1)/v hold less in flight. A pipeline that is not filled may take any number below p.
    """
    b, p, v = row.base.shape.micro_batch, row.pipeline, row.virtual_stages
    most, wanted = problem.most_sequences // b, problem.pin("microbatches_per_step")
    if wanted is not None:
        return d, np.full(len(d), wanted)
    if not row.filled:
        each = np.minimum(p - 1, most // d)
        return np.repeat(d, each), np.concatenate([np.arange(1, c + 1) for c in each]) if len(each) else d
    if v == 1:
        return d, most // d
    m = most // d
    early = [np.minimum(m, p + k) for k in range((p - 1) // v + 1)]
    pairs = np.unique(np.concatenate([d * (most + 1) + x for x in (m, m // p * p, *early)]))
    return pairs // (most + 1), pairs % (most + 1)


def most_batches(problem: Problem, row: Row, d: Ints) -> Ints:
    """Return the most micro-batches with each number of replicas, none where the row does not allow them."""
    most, wanted = problem.most_sequences // row.base.shape.micro_batch, problem.pin("microbatches_per_step")
    m = np.minimum(most // d, row.pipeline - 1) if not row.filled else most // d
    if wanted is None:
        return m
    return np.where((m >= wanted) & (row.filled == (wanted >= row.pipeline)), wanted, 0)


def replica_numbers(problem: Problem, row: Row, cutoff: float) -> Ints:
    """List the numbers of replicas that a row may have; those too few for the cutoff even without fill and tails are left out."""
    b, p = row.base.shape.micro_batch, row.pipeline
    caps, most = replica_caps(problem, row.base, p), problem.most_sequences // b
    slowest = math.ceil(problem.machine.model.layers / p) * row.base.least_layer
    low, top = max(1, int((caps > 0).sum()), math.floor(slowest / (cutoff * b))), min(int(caps.sum()), most // p if row.filled else most)
    wanted, shares = problem.pin("data_parallel"), problem.pin("data_parallel_by_site")
    if shares is None:
        return np.arange(low, top + 1) if wanted is None else np.array([wanted] if low <= wanted <= top else [], dtype=np.int64)
    asked = np.array([shares.get(s, 0) for s in problem.sites])
    total = int(asked.sum())
    held = np.all(asked <= caps) and 1 <= total <= top and wanted in (None, total)
    return np.array([total] if held else [], dtype=np.int64)


def _untailed(problem: Problem, row: Row, d: Ints, m: Ints) -> Floats:
    """Bound the time per sequence of counts of replicas and micro-batches from below: even stages, least tails."""
    pace, once, each = least_terms(problem, row.base, row.zero, np.array(row.pipeline), np.array(row.virtual_stages), m, fewest=d, most=d)
    m = np.maximum(m, 1)
    return np.asarray((effective(row, m) * (pace + each) + once) / (m * d * row.base.shape.micro_batch), dtype=np.float64)


def candidates(problem: Problem, row: Row, cutoff: float) -> Candidates | None:
    """List the replica and micro-batch counts of a row whose time on even stages is under the cutoff, the fastest first.

    Fewer micro-batches never make a sequence faster but by whole rounds, so the most that replicas leave bound all others.
    """
    shape, p = row.base.shape, row.pipeline
    d = replica_numbers(problem, row, cutoff)
    m = most_batches(problem, row, d)
    d, m = d[m >= 1], m[m >= 1]
    if not len(d):
        return None
    lost = effective(row, m) / m
    d = d[_untailed(problem, row, d, m) / lost < cutoff]
    if not len(d):
        return None
    d, m = counts(problem, row, d)
    d, m = d[m >= 1], m[m >= 1]
    bound = _untailed(problem, row, d, m)
    order = np.argsort(bound, kind="stable")
    order = order[bound[order] < cutoff]
    d, m, bound = d[order], m[order], bound[order]
    caps, asked = replica_caps(problem, row.base, p), problem.pin("data_parallel_by_site")
    shares = split_replicas(caps, d)
    if asked is not None:
        shares = np.repeat(np.array([asked.get(s, 0) for s in problem.sites])[:, None], len(d), axis=1)
    least = np.where(shares > 0, shares, np.iinfo(np.int64).max).min(axis=0)
    found = Candidates(
        replicas=d, batches=m, by_site=shares, least=least, racks=np.ceil(shares.max(axis=0) / row.replicas_per_rack).astype(np.int64), bound=bound
    )
    found = found.part(least * shape.gpus >= shape.expert_parallel) if len(d) else found
    return found if len(found.replicas) else None


def least_over_counts(problem: Problem, base: Base, zero: int, p: Ints, v: Ints, filled: Flags, cutoff: float, floor: Floats, above: Ints) -> Floats:
    """Bound rows of one way to cut a layer by the best of their counts, each on even stages with its own whole micro-batches.

    Counts that even stages alone make as slow as the cutoff are left out: a row with no other is bounded by infinity.
    `floor`: the least time of the largest stage with more replicas than `above`.
    """
    if any(problem.pin(name) is not None for name in COUNTS):
        return np.zeros(len(p))
    caps, most = replica_caps(problem, base, p), problem.most_sequences // base.shape.micro_batch
    slowest = np.ceil(problem.machine.model.layers / p) * base.least_layer
    low = np.maximum(np.maximum(1, np.sum(caps > 0, axis=0)), np.floor(slowest / (cutoff * base.shape.micro_batch))).astype(np.int64)
    number = np.maximum(0, np.minimum(caps.sum(axis=0), np.where(filled, most // p, most)) - low + 1)
    found = np.full(len(p), math.inf)
    for part in np.split(np.arange(len(p)), np.flatnonzero(np.diff(np.cumsum(number) // AT_ONCE)) + 1):
        rows = np.repeat(part, number[part])
        if len(rows):
            first = np.cumsum(number[part]) - number[part]
            d = low[rows] + np.arange(len(rows)) - np.repeat(first, number[part])
            held = np.where(d > above[rows], floor[rows], 0.0)
            each = _least_each(problem, base, zero, p[rows], v[rows], filled[rows], d, held)
            some = number[part] > 0
            found[part[some]] = np.minimum.reduceat(each, first[some])
    return found


def _least_each(problem: Problem, base: Base, zero: int, p: Ints, v: Ints, filled: Flags, d: Ints, floor: Floats) -> Floats:
    """Bound counts of replicas with any number of micro-batches: the most that they leave, without what uneven rounds of it lose."""
    b = base.shape.micro_batch
    m = np.where(filled, problem.most_sequences // b // d, np.minimum(problem.most_sequences // b // d, p - 1))
    held = np.maximum(m, 1)
    stage = np.where(np.isposinf(floor), 0.0, floor)
    pace, once, each = least_terms(problem, base, zero, p, v, held, fewest=d, most=d, floor=stage)
    lost = schedule.effective_micro_batches(held, p, v) / held
    whole = (schedule.effective_micro_batches(held, p, v) * (pace + each) + once) / (held * d * b) / lost
    return np.where((m >= 1) & ~np.isposinf(floor), whole, math.inf)
