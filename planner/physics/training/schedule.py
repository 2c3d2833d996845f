"""Pipeline schedules of a training step: the time they leave idle, chunks in flight, and the loss of unequal chunks."""

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Literal

import numpy as np

from planner.instance.workload import Model
from planner.physics import Floats, Num, tick
from planner.physics.training.transformer import front_layers

Schedule = Literal["1f1b", "zb-h1"]


@dataclass(frozen=True, slots=True)
class PipelineCounts:
    """The counts of a pipeline schedule: stages, chunks of a stage, micro-batches of a step, and of rounds if given."""

    pipeline: Num
    virtual_stages: Num
    micro_batches: Num
    rounds: tuple[Num, Num] | None = None  # micro-batches through one chunk before the next, in the first and the last


def bubble_seconds(order: Schedule, counts: PipelineCounts, passes: tuple[Num, Num, Num], send: Num) -> Num:
    """Compute the idle seconds of one of p equal stages in a step, the bubble, from the passes F, B, W of a chunk.

    1F1B, interleaved where v > 1: (p-1)·(F+B+W), the bubble (p-1)/(v·m) of the ideal step (Narayanan 2021, section
    2.2), and the 2·(p·v-1) sends S on the first micro-batch's way through the chunks and back. Beside the work of the
    effective micro-batches exact without sends; with them and v > 1, exact while none takes longer than F or B+W. With
    them and v = 1, filling and draining alone: p micro-batches wait for one round trip, so another 2·⌊(m-1)·(p-1)/p⌋
    sends show in the step however well they overlap.

    ZB-H1 (v = 1) delays W: (p-1)·(F+B+2·S), less min(W - 2·S, F, B - S) for each of the min(m, p) - 1 delayed W. From p
    micro-batches on and without sends that is (p-1)·(F+B-min(F,B,W)): the (p-1)·(F+B-W) of Qi 2023 (Zero Bubble, arXiv
    2401.10241, table 2) where W is the shortest pass, else what filling (F) or the way back (B) costs. Exact without
    sends; with them exact for m > p and 2·S ≤ W, an upper bound for m ≤ p, a lower one for m > p and 2·S > W.
    """
    (forward, back, weights), p = passes, counts.pipeline
    if order == "zb-h1":
        saving = np.minimum(np.minimum(weights - 2 * send, back - send), forward)
        return (p - 1) * (forward + back + 2 * send) - (np.minimum(counts.micro_batches, p) - 1) * saving
    return (p - 1) * (forward + back + weights) + 2 * (p * counts.virtual_stages - 1) * np.minimum(p - 1, 1) * send


def effective_micro_batches(micro_batches: Num, pipeline: Num, virtual_stages: Num) -> Num:
    """Compute the micro-batches plus the loss, in micro-batches, of interleaving them in incomplete rounds of p.

    m + (v-1)/v·(p-r), with r = m mod p > 0: each of the v-1 chunk switches of a round of r waits p-r slots (the
    round-robin of Narayanan 2021, section 2.2). Exact for complete rounds and for m < p. For m > p the last round may
    overlap the one before: the truth lies between m + (v-1)/v·(p-r)·B/(F+B), B the whole backward pass, and this.
    """
    return micro_batches + (virtual_stages - 1) / virtual_stages * (-micro_batches % pipeline)


def chunks_in_flight(schedule: Schedule, stage: Num, pipeline: Num, virtual_stages: Num, micro_batches: Num) -> Num:
    """Count the chunk-micro-batches whose activations stage i (from 0) keeps at its peak (Narayanan 2021; Qi 2023)."""
    # 1F1B: min(m, p - i). Interleaved: the warm-up of rank i is 2·(p-i-1) + (v-1)·p chunks, plus the one in work, at
    # most v·m (Narayanan 2021, section 2.2; Korthikanti 2022, eq. 5 with the first stage's v·p + p - 1). ZB-H1: min(m,
    # p) on every stage, as a micro-batch stays until its W; from p micro-batches on, p - i wait for their B and i for
    # their W only, which needs less of each (Qi 2023, section 2.3).
    if schedule == "zb-h1":
        return np.minimum(micro_batches, pipeline + 0 * stage)
    plain = pipeline - stage
    interleaved = 2 * (pipeline - stage - 1) + (virtual_stages - 1) * pipeline + 1
    return np.minimum(np.where(np.asarray(virtual_stages) == 1, plain, interleaved), virtual_stages * micro_batches)


def larger_in_flight(pipeline: Num, micro_batches: Num, *, smaller_first: Num) -> Num:
    """Count the micro-batches in flight of a stage's larger chunks at its peak; a test runs the order of events."""
    # A chunk keeps up to 2·p. A stage whose larger chunks come first has as many in each of them that there is room for
    # at its peak; where they come last, p in each, as the first chunks have the others then.
    return np.minimum(np.where(smaller_first, pipeline, 2 * np.asarray(pipeline)), micro_batches)


def layers_in_flight(flying: Num, virtual_stages: Num, layers: Num, larger: Num) -> Num:
    """Count the layers of micro-batches in flight of a stage at its peak: `flying` chunks, `larger` of larger ones."""
    each, more = np.asarray(layers) // virtual_stages, np.asarray(layers) % virtual_stages
    return each * flying + np.minimum(more * larger, flying)


def recomputed_alike(layers: Num, virtual_stages: int, each: int) -> Num:
    """Count the layers that a pipeline stage recomputes where each of its chunks recomputes `each`, or all it has."""
    least, more = np.asarray(layers) // virtual_stages, np.asarray(layers) % virtual_stages
    return more * np.minimum(each, least + 1) + (virtual_stages - more) * np.minimum(each, least)


def may_overlap_experts(pipeline: Num, virtual_stages: Num) -> Num:
    """Return whether a pipeline schedule lets the experts' exchange overlap: of one stage, or interleaved.

    Megatron-Core takes the passes of two micro-batches together, which 1F1B has next to each other only there
    (transformer_config.py, overlap_moe_expert_parallel_comm).
    """
    return (np.asarray(pipeline) == 1) | (np.asarray(virtual_stages) > 1)


def chunk_sizes(layers: int, virtual_stages: int, *, smaller_first: bool = False) -> tuple[int, ...]:
    """Divide the layers of a pipeline stage into chunks as equally as possible, the larger first or the smaller."""
    sizes = tuple(layers // virtual_stages + (c < layers % virtual_stages) for c in range(virtual_stages))
    return sizes[::-1] if smaller_first else sizes


def smaller_chunks_first(model: Model, stage: Num) -> Num:
    """Return whether a pipeline schedule has a stage's smaller chunks first: the first's, which has the embedding."""
    # So Megatron counts the embedding as a layer (account_for_embedding_in_pipeline_split). Dense layers at the front
    # take the place of others of the first chunk, which is then a larger one.
    return (np.asarray(stage) == 0) & (front_layers(model) == 0)


def front_by_stage(model: Model, layers_per_stage: Sequence[int], virtual_stages: int) -> tuple[int, ...]:
    """Count the dense front layers of each pipeline stage, whose chunks the schedule puts stage by stage, in rounds."""
    left, found = front_layers(model), [0] * len(layers_per_stage)
    for sizes in zip(*(chunk_sizes(layers, virtual_stages) for layers in layers_per_stage), strict=True):
        for stage, size in enumerate(sizes):
            found[stage] += min(left, size)
            left -= min(left, size)
    return tuple(found)


FEW_ROUNDS = 10  # run at first; a round that repeats is looked for among them, behind those that fill the pipeline
SAME = 1e-12  # relative, by which shifts of a repeated round may differ
TICK_PASSES = 8192  # between two ticks


@lru_cache(maxsize=4096)
def finish_seconds(pipeline: int, micro_batches: int, forward: tuple[float, ...], backward: tuple[float, ...]) -> float:
    """Compute the seconds until the last pass of p equal stages ends under the interleaved 1F1B schedule."""
    # Passes are run one by one until a round of p micro-batches repeats: where all passes of several rounds in a row
    # end as much later as those of the round before, so do all of the rounds between them and the last ones, since
    # every device goes on in the same order and what it waits for lies in these rounds. Then rounds left out add that
    # shift.
    rounds, few = micro_batches // pipeline, FEW_ROUNDS
    while few < rounds:
        finish, ends = run_passes(pipeline, micro_batches - (rounds - few) * pipeline, forward, backward)
        # A device warms up with at most (v + 1)/v rounds, so that it is in three at a time; as many at the end, in
        # which it drains, are left aside, and the four before them must each end later by the same.
        some = ends[:, (few - 7) * pipeline : (few - 3) * pipeline].reshape(len(ends), 4, pipeline)
        shifts = np.diff(some, axis=1)
        shift = float(shifts[0, 0, 0])
        if np.all(np.abs(shifts - shift) <= SAME * float(some.max())):
            return finish + (rounds - few) * shift
        few *= 2
    return run_passes(pipeline, micro_batches, forward, backward)[0]


def run_passes(
    pipeline: int, micro_batches: int, forward: tuple[float, ...], backward: tuple[float, ...]
) -> tuple[float, Floats]:
    """Run the passes of p equal stages under the interleaved 1F1B schedule, each as soon as its inputs are there.

    Return when the last ends, and when each does: by place, forward then backward, and micro-batch. Rounds of p
    micro-batches go through all chunks, a short last one in a whole one's slots; a device warms up with 2·(p-i-1) +
    (v-1)·p passes (Narayanan 2021, section 2.2). Exchanges take no time.
    """
    columns, seconds = _order(pipeline, micro_batches, len(forward)), (*forward, *backward)
    ends = [0.0] * (len(columns[0]) + 1)  # the last is that of no pass, for which one that waits for nothing waits
    for first in range(0, len(columns[0]), TICK_PASSES):
        tick()
        passes = zip(*(column[first : first + TICK_PASSES] for column in columns), strict=True)
        for own, before, need, kind in passes:
            free, made = ends[before], ends[need]  # of the device, and of the input
            ends[own] = (free if free > made else made) + seconds[kind]
    return max(ends), np.array(ends[:-1]).reshape(-1, micro_batches)


@lru_cache(maxsize=8)
def _order(p: int, m: int, v: int) -> "list[array[int]]":
    """List the passes of a pipeline schedule behind those that they wait for: number, two waited for, and kind."""
    # Numbers go by place (p of each chunk forward, then p of each backward) and micro-batch; the one behind the last is
    # that of no pass. A pass waits for the one before it on its device and for the one that makes its input, at the
    # place before it forward and behind it backward; its device has run the forward pass of a backward one long before.
    forward, none, passes = p * v * m, 2 * p * v * m, array("i")
    rounds, width = (-(-m // p), p) if v > 1 else (1, m)  # of micro-batches, in order of which the chunks pass them
    turns = [(chunk, turn * width + k) for turn in range(rounds) for chunk in range(v) for k in range(width)]
    queues = []
    for i in range(p):
        tick()
        ahead = [(chunk * p + i, batch) for chunk, batch in turns]
        back = [((2 * v - 1 - chunk) * p + i, batch) for chunk, batch in turns]
        warm = min(len(turns), p - i - 1 if v == 1 else 2 * (p - i - 1) + (v - 1) * p)
        # Once warm, a device takes a forward and a backward pass in turn; a short last round leaves some turns empty.
        slots = (*ahead[:warm], *chain.from_iterable(zip_longest(ahead[warm:], back, fillvalue=(0, m))))
        queues.append(deque((place, batch) for place, batch in slots if batch < m))
    last, ended = [none] * p, [False] * none + [True]
    while len(passes) < 4 * none:
        tick()
        for i, queue in enumerate(queues):
            while queue:
                place, batch = queue[0]
                own = place * m + batch
                need = (own - m if place else none) if own < forward else min(own + m, none)
                if not ended[need]:
                    break
                queue.popleft()
                passes.extend((own, last[i], need, place // p))
                last[i], ended[own] = own, True
    return [passes[column::4] for column in range(4)]


def excess_seconds(
    counts: PipelineCounts,
    layers: int,
    recomputed: int,
    passes: tuple[float, float, float],
    *,
    head: tuple[float, float] = (0.0, 0.0),
    smaller_first: bool = False,
) -> float:
    """Return the seconds that unequal chunks add to a pipeline: m stages, and the largest chunk on the other stages.

    `passes`: seconds of a layer forward, backward, and recomputed. With a short last round the closed form counts its
    waits already, and the larger of the two holds. The `head`, forward and backward, belongs to the last chunk of a
    stage, the smallest, and fills it up to the largest.
    """
    pipeline, v, micro_batches = int(counts.pipeline), int(counts.virtual_stages), int(counts.micro_batches)
    ahead, back, recompute = passes
    if v == 1 or pipeline == 1 or (layers % v == 0 and recomputed % v == 0):
        return 0.0
    sizes, repeats = (chunk_sizes(n, v, smaller_first=smaller_first) for n in (layers, recomputed))
    forward = tuple(n * ahead for n in sizes)
    backward = tuple(n * back + r * recompute for n, r in zip(sizes, repeats, strict=True))
    forward = (*forward[:-1], min(max(forward), forward[-1] + head[0]))
    backward = (*backward[:-1], max(backward[-1], min(backward[0], backward[-1] + head[1])))
    stage, largest = math.fsum(forward) + math.fsum(backward), max(forward) + max(backward)
    rounds = float(effective_micro_batches(micro_batches, pipeline, v))
    finish = finish_seconds(pipeline, micro_batches, forward, backward)
    return max(0.0, finish - rounds * stage - (pipeline - 1) * largest)


def min_excess_seconds(
    counts: PipelineCounts, layers: Num, recomputed: Num, layer_seconds: Num, recompute_seconds: Num
) -> Num:
    """Bound from below the seconds that unequal chunks add to a pipeline; a test runs the order of events."""
    # Once the pipeline runs, devices are in chunks of different size at a time: each round of p micro-batches but the
    # first two waits for (p-1)·(T - t) - T, T and t the seconds of the largest and the smallest chunk. What a short
    # last round loses is counted as micro-batches already (`effective_micro_batches`).
    p, v, m, n, r = map(np.asarray, (counts.pipeline, counts.virtual_stages, counts.micro_batches, layers, recomputed))
    if v.max(initial=1) == 1:
        return np.zeros(np.broadcast(p, v, m, n, r, layer_seconds, recompute_seconds).shape)
    largest = np.ceil(n / v) * layer_seconds + np.ceil(r / v) * recompute_seconds
    apart = (n % v > 0) * layer_seconds + (r % v > 0) * recompute_seconds
    waits = np.maximum(0, m // p - 2) * np.maximum(0.0, (p - 1) * apart - largest)
    counted = (v - 1) / v * (-m % p) * (n * layer_seconds + r * recompute_seconds)
    return np.where(v > 1, np.maximum(0.0, waits - counted), 0.0)
