"""The counts of replicas and micro-batches of a row that could be best, with what follows from them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.models.layout.columns import Floats, Ints, Row, effective, least_terms, most_replicas, replica_caps
from planner.models.layout.data import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Ranges of a row's counts, both ends in them: of replicas and, in a pipeline that is not filled, of micro-batches."""

    replicas: tuple[int, int]
    batches: tuple[int, int]


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


def counts(problem: Problem, row: Row, d: Ints, span: Span | None = None) -> tuple[Ints, Ints]:
    """Pair numbers of replicas with the numbers of micro-batches that could be best with them.

    A filled pipeline takes as many micro-batches as the batch holds. Interleaved, whole rounds may be better, and fewer
    micro-batches than p + (p-1)/v hold less in flight. A pipeline that is not filled may take any number below p.
    """
    b, p, v = row.base.shape.micro_batch, row.pipeline, row.virtual_stages
    most, wanted = problem.most_sequences // b, problem.pin("microbatches_per_step")
    low, high = (1, p - 1) if span is None else span.batches
    if wanted is not None:
        d = d if row.filled or low <= wanted <= high else d[:0]
        return d, np.full(len(d), wanted)
    if not row.filled:
        each = np.maximum(np.minimum(high, most // d) - low + 1, 0)
        first = np.cumsum(each) - each
        return np.repeat(d, each), low + np.arange(int(each.sum())) - np.repeat(first, each)
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


def replica_numbers(problem: Problem, row: Row, cutoff: float, span: Span | None) -> Ints:
    """List the numbers of replicas that a row may have; those too few for the cutoff even without fill and tails are left out."""
    b, p = row.base.shape.micro_batch, row.pipeline
    caps, all_sites = replica_caps(problem, row.base, p), int(most_replicas(problem, row.base, p))
    most = problem.most_sequences // b
    slowest = math.ceil(problem.machine.model.layers / p) * row.base.least_layer
    low, top = (
        max(1, 1 if problem.shared else int((caps > 0).sum()), math.floor(slowest / (cutoff * b))),
        min(all_sites, most // p if row.filled else most),
    )
    if span is not None:
        low, top = max(low, span.replicas[0]), min(top, span.replicas[1])
    wanted, shares = problem.pin("data_parallel"), problem.pin("data_parallel_by_site")
    if shares is None:
        return (
            np.arange(low, top + 1)
            if wanted is None
            else np.array([wanted] if low <= wanted <= top else [], dtype=np.int64)
        )
    asked = np.array([shares.get(s, 0) for s in problem.sites])
    total = int(asked.sum())
    held = (
        np.all(asked <= caps) and (1 if span is None else span.replicas[0]) <= total <= top and wanted in (None, total)
    )
    return np.array([total] if held else [], dtype=np.int64)


def _untailed(problem: Problem, row: Row, d: Ints, m: Ints) -> Floats:
    """Bound the time per sequence of counts of replicas and micro-batches from below: even stages, least tails."""
    pace, once, each = least_terms(
        problem, row.base, row.zero, np.array(row.pipeline), np.array(row.virtual_stages), m, fewest=d, most=d
    )
    m = np.maximum(m, 1)
    return np.asarray(
        (effective(row, m) * (pace + each) + once) / (m * d * row.base.shape.micro_batch), dtype=np.float64
    )


def candidates(problem: Problem, row: Row, cutoff: float, span: Span | None = None) -> Candidates | None:
    """List the replica and micro-batch counts of a row (in a span of them) whose time on even stages is under the cutoff, the fastest first.

    Fewer micro-batches never make a sequence faster but by whole rounds, so the most that replicas leave bound all others.
    """
    shape, p = row.base.shape, row.pipeline
    d = replica_numbers(problem, row, cutoff, span)
    m = most_batches(problem, row, d)
    d, m = d[m >= 1], m[m >= 1]
    if not len(d):
        return None
    lost = effective(row, m) / m
    d = d[_untailed(problem, row, d, m) / lost < cutoff]
    if not len(d):
        return None
    d, m = counts(problem, row, d, span)
    d, m = d[m >= 1], m[m >= 1]
    bound = _untailed(problem, row, d, m)
    order = np.argsort(bound, kind="stable")
    order = order[bound[order] < cutoff]
    d, m, bound = d[order], m[order], bound[order]
    caps, asked = replica_caps(problem, row.base, p), problem.pin("data_parallel_by_site")
    shares = split_replicas(caps, d)
    if asked is not None:
        shares = np.repeat(np.array([asked.get(s, 0) for s in problem.sites])[:, None], len(d), axis=1)
    least = d if problem.shared else np.where(shares > 0, shares, np.iinfo(np.int64).max).min(axis=0)
    found = Candidates(
        replicas=d,
        batches=m,
        by_site=shares,
        least=least,
        racks=np.ceil(shares.max(axis=0) / row.replicas_per_rack).astype(np.int64),
        bound=bound,
    )
    found = found.part(least * shape.gpus >= shape.expert_parallel) if len(d) else found
    return found if len(found.replicas) else None
