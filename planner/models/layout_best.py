"""The exact best of one row: every count of replicas and micro-batches that could win, timed with its largest and last stage."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.models.layout_memory import layer_caps
from planner.models.layout_space import Floats, Ints, Problem, Row, replica_caps
from planner.physics import step, steptime
from planner.physics.step import Cut, Paces

CELLS = 1_000_000  # candidates times stages that are looked at together


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best layout of a row and its seconds per sequence."""

    seconds: float
    cut: Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Replica and micro-batch counts of a row that could beat a cutoff, with what follows from them; one entry each."""

    replicas: Ints
    batches: Ints
    by_site: Ints
    shards: Ints
    racks: Ints
    bound: Floats

    def part(self, which: Any) -> "Candidates":
        """Return some of the candidates."""
        return Candidates(
            replicas=self.replicas[which],
            batches=self.batches[which],
            by_site=self.by_site[:, which],
            shards=self.shards[which],
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


def candidates(problem: Problem, row: Row, cutoff: float) -> Candidates | None:
    """List the replica and micro-batch counts of a row whose time without tails is under the cutoff, the fastest first."""
    b, p = row.base.shape.micro_batch, row.pipeline
    caps = replica_caps(problem, row.base.replicas_per_rack, p)
    used = caps > 0
    most = problem.most_sequences // b
    top = min(int(caps.sum()), most // p if row.filled else most)
    wanted = problem.pins.get("layout.data_parallel")
    low = max(1, int(used.sum()))
    d = np.arange(low, top + 1) if wanted is None else np.array([wanted] if low <= wanted <= top else [], dtype=np.int64)
    shares_pin = problem.pins.get("layout.data_parallel_by_site")
    if shares_pin is not None:
        asked = np.array([shares_pin.get(s, 0) for s in problem.sites])
        d = d[d == asked.sum()] if np.all(asked <= caps) else d[:0]
    if row.filled:
        m = most // d
        m = m if row.virtual_stages == 1 else m // p * p
    else:
        counts = np.minimum(p - 1, most // d)
        d, m = np.repeat(d, counts), np.concatenate([np.arange(1, c + 1) for c in counts]) if len(counts) else d
    m_pin = problem.pins.get("layout.microbatches_per_step")
    if m_pin is not None:
        allowed = (m_pin <= m) if row.filled else (m == m_pin)
        allowed &= (m_pin >= p) if row.filled else True
        allowed &= row.virtual_stages == 1 or m_pin % p == 0
        d, m = d[allowed], np.full(int(allowed.sum()), m_pin)
    bound = np.asarray(bound_without_tails(problem, row, d, m), dtype=np.float64)
    order = np.argsort(bound, kind="stable")
    order = order[(m[order] >= 1) & (bound[order] < cutoff)]
    d, m, bound = d[order], m[order], bound[order]
    if not len(d):
        return None
    shares = split_replicas(caps, d) if shares_pin is None else np.repeat(asked[:, None], len(d), axis=1)
    positive = np.where(shares > 0, shares, np.iinfo(np.int64).max)
    return Candidates(
        replicas=d,
        batches=m,
        by_site=shares,
        shards=positive.min(axis=0),
        racks=np.ceil(shares.max(axis=0) / row.base.replicas_per_rack).astype(np.int64),
        bound=bound,
    )


def bound_without_tails(problem: Problem, row: Row, replicas: Ints, batches: Ints) -> Any:
    """Bound a row's layouts with these counts from below: the most even stages, no tails; seconds per sequence."""
    layers, base = problem.machine.model.layers, row.base
    even = math.ceil(layers / row.pipeline)
    slowest = max(even * base.layer, (layers * base.layer + base.head) / row.pipeline)
    fill = steptime.fill_seconds(row.pipeline, steptime.layers_per_chunk(even, row.virtual_stages) * base.layer, base.hop)
    return (slowest + fill / np.maximum(batches, 1)) / (replicas * base.shape.micro_batch)


def best_of_row(problem: Problem, row: Row, cutoff: float, *, zero_stages: list[int] | None = None) -> Best | None:
    """Find the fastest layout of a row that is faster than the cutoff, exactly; None where there is none."""
    found = candidates(problem, row, cutoff)
    best: Best | None = None
    if found is None:
        return None
    for zero in problem.options("zero_stage", zero_stages or list(range(4))):
        start, size = 0, 64
        some = _within_memory(problem, row, zero, found)
        while start < len(some.replicas):
            limit = best.seconds if best else cutoff
            if some.bound[start] >= limit:
                break
            better = _best_at_zero(problem, row, zero, some.part(slice(start, start + size)), limit)
            best = better or best
            start, size = start + size, min(size * 4, max(64, CELLS // row.pipeline))
    return best


def _within_memory(problem: Problem, row: Row, zero: int, c: Candidates) -> Candidates:
    """Leave out the candidates with more micro-batches in flight than memory holds at the most shards: caps fall with every one."""
    counts = np.unique(c.batches)
    low, high = 0, len(counts)  # counts[:low] are known to fit, counts[high:] not to
    while low < high:
        middle = (low + high) // 2
        caps = layer_caps(problem, row, zero, c.shards.max(keepdims=True), counts[middle : middle + 1])
        fits = caps.min() >= row.virtual_stages and caps.sum() >= problem.machine.model.layers
        low, high = (middle + 1, high) if fits else (low, middle)
    return c.part(c.batches <= counts[low - 1]) if low else c.part(slice(0, 0))


def _best_at_zero(problem: Problem, row: Row, zero: int, c: Candidates, cutoff: float) -> Best | None:
    """Try every size of the largest stage, least first, until no larger one can win."""
    base, v = row.base, row.virtual_stages
    layers, b, p = problem.machine.model.layers, base.shape.micro_batch, row.pipeline
    caps = layer_caps(problem, row, zero, c.shards, c.batches)
    fixed = problem.pins.get("layout.layers_per_stage")
    fits = np.all(caps >= (v if fixed is None else np.array(fixed)), axis=1) & (caps.sum(axis=1) >= layers)
    if not fits.any():
        return None
    pace = pace_of(problem, row, zero, c.racks)
    layer = pace.layer + np.zeros(len(c.replicas))
    best: tuple[float, int, int, int] | None = None
    for most in range(math.ceil(layers / p), layers + 1) if fixed is None else [max(fixed)]:
        if np.all(most * layer / (c.replicas * b) >= cutoff):
            break
        held = np.minimum(caps, most)
        last = np.maximum(v, layers - held[:, :-1].sum(axis=1)) if fixed is None else np.full(len(layer), fixed[-1])
        possible = fits & (last <= held[:, -1])
        if not possible.any():
            continue
        seconds = np.where(possible, _seconds_per_sequence(problem, row, zero, c, pace, most, last), np.inf)
        i = int(np.argmin(seconds))
        if seconds[i] < cutoff:
            cutoff, best = float(seconds[i]), (float(seconds[i]), i, most, int(last[i]))
        if p == 1:
            break
    if best is None:
        return None
    seconds_, i, most, last_layers = best
    stages = tuple(fixed) if fixed is not None else spread_layers(caps[i], most, last_layers, layers, v)
    return Best(
        seconds=seconds_,
        cut=Cut(
            tensor_parallel=base.shape.tensor_parallel,
            pipeline_parallel=p,
            data_parallel_by_site=tuple(int(x) for x in c.by_site[:, i]),
            virtual_stages=v,
            micro_batch=b,
            micro_batches=int(c.batches[i]),
            recompute=base.shape.recompute,
            sequence_parallel=base.shape.sequence_parallel,
            zero_stage=zero,
            layers_per_stage=stages,
            replicas_per_rack=base.replicas_per_rack,
        ),
    )


def _seconds_per_sequence(problem: Problem, row: Row, zero: int, c: Candidates, pace: Paces, most: int, last: Ints) -> Floats:
    """Time each candidate with its largest and its last stage given; the sum that physics.step makes of a layout in full."""
    once, each = step_terms(problem, row, zero, pace=pace, racks=c.racks, shards=c.shards, most=most)
    slowest = np.maximum(most * pace.layer, last * pace.layer + row.base.head)
    total: Floats = (c.batches * (slowest + each) + once) / (c.replicas * c.batches * row.base.shape.micro_batch)
    return total


def pace_of(problem: Problem, row: Row, zero: int, racks: Any) -> Paces:
    """Return the pace of a layer in a row at one ZeRO stage; broadcasts over the racks of a group."""
    return step.paces(
        problem.machine,
        row.base.times,
        tensor_parallel=row.base.shape.tensor_parallel,
        zero_stage=zero,
        replicas_per_rack=row.base.replicas_per_rack,
        racks=racks,
        slowdown=problem.conditions.allreduce_slowdown,
    )


def step_terms(problem: Problem, row: Row, zero: int, *, pace: Paces, racks: Any, shards: Any, most: Any) -> tuple[Any, Any]:
    """Return the seconds that a step takes once (fill and tails) and besides the slowest stage for each micro-batch (exposed hops)."""
    base, p, v = row.base, row.pipeline, row.virtual_stages
    chunk = steptime.layers_per_chunk(most, v)
    hop = base.hop if p > 1 else 0.0
    fill = steptime.fill_seconds(p, chunk * pace.layer, hop)
    each = steptime.exposed_hops_seconds(1, v, hop, chunk * pace.free_forward, chunk * pace.free_backward)
    caps = replica_caps(problem, base.replicas_per_rack, p)
    tails = step.tail_parts(
        problem.machine,
        problem.conditions,
        tensor_parallel=base.shape.tensor_parallel,
        pipeline=p,
        zero_stage=zero,
        replicas_per_rack=base.replicas_per_rack,
        racks=racks,
        shards=shards,
        most_layers=most,
        layer_backward=base.times.backward,
        sites=int((caps > 0).sum()),
    )
    return fill + sum(tails.values()), each


def spread_layers(caps: Ints, most: int, last: int, layers: int, least: int) -> tuple[int, ...]:
    """Spread the layers, no stage over its cap or `most`, the last with `last`; the excess leaves the first stages, which hold most in flight."""
    held = np.minimum(caps, most)
    held[-1] = last
    over = int(held.sum()) - layers
    while over > 0:
        for i in range(len(held) - 1):
            if over and held[i] > least and held[i] == held[:-1].max():
                held[i] -= 1
                over -= 1
    return tuple(int(x) for x in held)
