"""Times of the checker's columns on a free network: floors of ranges, and the least over all splits of layers.

In ranges of replicas and micro-batches stages are as even as can be, nothing is slower than the transport itself, and
fibre is free. Traffic is that of the fewest replicas, state that ZeRO shares of the most, the clock that of the best.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.checks.strategy_space_check import Cut, CutPipelines, max_sites
from planner.physics import Floats, Ints
from planner.physics.training import memory, schedule, step_prediction
from planner.physics.training.data_parallel import ReplicaGroup
from planner.physics.training.step_prediction import Pipeline, ShardedTimes
from planner.physics.training.transformer import front_layers

ROUNDING = 1e-9  # relative, and of a number of layers that is whole but for rounding
MOST_CELLS = 1 << 21  # stages worked out at a time
MOST_RANGES = 1 << 16  # worked out at a time
NOTHING = 1e-9  # seconds or bytes, for none by which something is divided
SPLIT_ROUNDING = 1e-12  # relative, of bytes and of seconds of one split
NEVER = 1 << 40  # layers to recompute where not even that makes room


def fastest_ranges(cut: Cut, pipelines: CutPipelines, racks: Callable[[int], int], limit: float) -> CutPipelines:
    """Return the checker's pipelines of a cut, with all replicas and micro-batches that a limit in seconds leaves.

    The replicas fill whole blocks of racks and share the experts; interleaved pipelines have a whole round at least.
    """
    shape, total, pins, times = cut.shape, cut.total_micro_batches, cut.space.instance.pins, cut.times.times
    most = np.zeros_like(pipelines.p)
    for wired in set(pipelines.wired.tolist()):
        most[pipelines.wired == wired] = racks(wired)
    each = cut.least_layers * (times.forward_seconds + times.backward_seconds) / shape.micro_batch
    gpus = float(cut.space.failures.fewest_gpus(limit / (each * shape.gpus))) * (1 - ROUNDING)
    few = np.ceil(np.maximum(gpus / pipelines.p, shape.expert_parallel) / shape.gpus)
    few = np.minimum(few, total + 1.0).astype(np.int64)  # a limit of no time asks for GPUs without end
    many, low = most // pipelines.block_racks * pipelines.block_replicas, np.where(pipelines.v > 1, pipelines.p, 1)
    high = np.full_like(pipelines.p, total)
    by_site, batches = pins.get("layout.data_parallel_by_site"), pins.get("layout.microbatches_per_step")
    replicas = pins.get("layout.data_parallel") if by_site is None else sum(by_site.values())
    if replicas is not None:
        few, many = np.maximum(few, replicas), np.minimum(many, replicas)
    if batches is not None:
        low, high = np.maximum(low, batches), np.minimum(high, batches)
    return pipelines.over(few, many, low, high).within(total)


@dataclass(frozen=True, kw_only=True)
class ColumnTimes:
    """The checker's times of a cut's pipelines over ranges of replicas, under one ZeRO stage, or any if None."""

    cut: Cut
    zero_stage: int | None
    ranges: CutPipelines

    @cached_property
    def pipeline(self) -> Pipeline:
        """The times of the checker's pipeline, its stages in racks of their own."""
        return replace(self.cut.times, zero_stage=self.zero_stage or 0)

    @cached_property
    def sharded(self) -> ShardedTimes:
        """The checker's seconds of a layer and micro-batch of a column, with the ZeRO traffic that is not hidden."""
        own, space = self.ranges, self.cut.space
        blocks = -(-own.min_replicas // own.block_replicas)
        racks = -(-blocks // max_sites(space.instance)) * own.stage_racks  # at least, of the site with most blocks
        sizes = {"replicas_per_rack": own.replicas_per_rack, "racks": racks, "shards": own.max_replicas}
        return step_prediction.sharded_times(self.pipeline, ReplicaGroup(**sizes, slowdown=space.transport_slowdown))

    @cached_property
    def site_replicas(self) -> Ints:
        """The checker's bound on a column's replicas at one site, which alone share their ZeRO state."""
        return np.asarray(self.cut.space.site_racks // self.ranges.block_racks * self.ranges.block_replicas)

    @cached_property
    def send(self) -> Floats:
        """The checker's seconds of one pipeline send between stages of a column, of different racks or of one."""
        both, p = (step_prediction.inside_rack(self.cut.times), self.cut.times), self.ranges.p
        near, far = (float(times.send(self.cut.space.transport_slowdown, 2)) for times in both)
        return np.asarray(np.where(p <= self.ranges.stages_per_rack, near, far) * (p > 1), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class StepTimeBound(ColumnTimes):
    """The checker's floors over ranges, of a micro-batch or once a step; `seconds`: of a sequence, on a clock."""

    @cached_property
    def layers(self) -> Floats:
        """The checker's fewest layers of the largest pipeline stage of a range."""
        return np.ceil(self.cut.least_layers / self.ranges.p - ROUNDING)

    @cached_property
    def chunk(self) -> Any:
        """The checker's floor under the seconds of the largest pipeline chunk of a range."""
        return step_prediction.chunk_seconds(self.sharded, self.ranges.v, self.layers, 0)

    @cached_property
    def each(self) -> Floats:
        """The checker's floor under a micro-batch's seconds in a range: its largest stage has equal chunks, or waits.

        A short last round counts in full, unless the range has a number of whole rounds. Unequal chunks wait in the
        fewest rounds, over micro-batches, of the range: those at the end of its first round.
        """
        own, p, v = self.ranges, self.ranges.p, self.ranges.v
        low, high = own.min_micro_batches, own.max_micro_batches
        rounds = np.where(high // p > (low - 1) // p, 1.0, schedule.effective_micro_batches(high, p, v) / high)
        last = np.minimum(low // p * p + p - 1, high)
        waits, more = np.maximum(0, last // p - 2) / last, self.cut.times.times.recompute_seconds
        counts = schedule.PipelineCounts(p, v, 3 * p)
        wait = schedule.min_excess_seconds(counts, self.layers, 0, self.sharded.layer_seconds, more)
        other = np.where(p == 1, self.pipeline.ends, 0.0) + self.cut.times.machine.software.host_seconds
        stage, larger = (
            step_prediction.stage_seconds(self.sharded, v, layers, 0, self.send) + other
            for layers in (self.layers, np.ceil(self.layers / v) * v)
        )
        unequal = np.maximum(rounds * stage, stage + waits * wait)
        return np.asarray(np.minimum(unequal, rounds * larger) + self.tails[1], dtype=np.float64)

    @cached_property
    def once(self) -> Floats:
        """The checker's floor under a range's seconds once a step: pipeline bubble, and what follows the passes."""
        own = self.ranges
        # That of ZB-H1 changes steadily with micro-batches, up to a full pipeline, so that either end may be less.
        ends = [own.min_micro_batches, *([own.max_micro_batches] if self.cut.schedule == "zb-h1" else [])]
        counts, stage = (schedule.PipelineCounts(own.p, own.v, m) for m in ends), self.chunk * own.v
        each = [step_prediction.pipeline_bubble_seconds(self.sharded, of, stage, self.send) for of in counts]
        return np.asarray(np.minimum.reduce(each) + self.tails[0], dtype=np.float64)

    @cached_property
    def tails(self) -> tuple[Any, Any]:
        """The checker's seconds after a step's passes, and those a micro-batch that ZeRO exposes for embeddings."""
        if self.zero_stage is None:  # the CPU's overhead alone
            return self.cut.times.machine.software.step_seconds, 0.0
        most = np.minimum(self.ranges.max_micro_batches, self.ranges.p)
        counts = schedule.PipelineCounts(self.ranges.p, self.ranges.v, 1, (most, most))
        parts = step_prediction.once_parts(self.sharded, None, counts, self.layers, self.chunk, self.send, alone=True)
        ends = parts.pop("end_sharding")
        del parts["pipeline_bubble"]
        return sum(parts.values()), ends

    @cached_property
    def once_a_micro_batch(self) -> Floats:
        """The checker's floor under a range's seconds once a step, by the most micro-batches of all replicas."""
        every = self.ranges.max_replicas * self.ranges.max_micro_batches
        return np.asarray(self.once / np.minimum(every, self.cut.total_micro_batches), dtype=np.float64)

    @cached_property
    def stretch(self) -> Floats:
        """The checker's floor under the stretch by failures of each range; exact where it has one replica count."""
        low, gpus, failures = self.ranges.min_replicas, self.ranges.p * self.cut.shape.gpus, self.cut.space.failures
        found = np.asarray(failures.stretch_from(low, gpus) + 0.0 * gpus, dtype=np.float64)
        one = np.flatnonzero(low == self.ranges.max_replicas)
        if len(one):
            found[one] = failures.min_stretch(low[one], gpus[one])
        return found

    @cached_property
    def seconds(self) -> Floats:
        """The checker's floor under the clock seconds of a sequence in a range, failures included."""
        steps = self.each / self.ranges.max_replicas + self.once_a_micro_batch
        return steps * self.stretch / self.cut.shape.micro_batch

    def in_time(self, limit: float, which: Any = slice(None)) -> CutPipelines:
        """Return the checker's ranges whose floor is below a limit in seconds a sequence, narrowed to it."""
        ranges, micro_batch, gpus = self.ranges, self.cut.shape.micro_batch, self.ranges.p * self.cut.shape.gpus
        left = np.maximum(limit * micro_batch - self.once_a_micro_batch * self.stretch, 0.0)
        spare = np.maximum(limit * micro_batch * ranges.max_replicas / self.stretch - self.each, NOTHING)
        with np.errstate(divide="ignore"):
            ends = self.cut.space.failures.fewest_gpus(left / (self.each * gpus)) / gpus, self.once / spare
        low, least = (np.ceil(np.minimum(end * (1 - ROUNDING), 2.0**62)).astype(np.int64) for end in ends)
        low, least = np.maximum(ranges.min_replicas, low), np.maximum(ranges.min_micro_batches, least)
        found = ranges.over(low, ranges.max_replicas, least, ranges.max_micro_batches).part(which)
        return found.part(np.flatnonzero(self.seconds[which] < limit)).within(self.cut.total_micro_batches)

    def holding(self, seconds: Floats, *, every: bool) -> Ints:
        """Return which of the checker's ranges have stages that hold all layers in memory and in `seconds` seconds.

        `every`: each stage as it is; else all as the last one, which has the fewest chunks in flight. A stage has the
        state of its layers, and for each chunk in flight the activations of a v-th; recomputed layers keep fewer.
        """
        few, front = np.flatnonzero(self.site_replicas > 0), front_layers(self.cut.times.machine.model)
        found, size = [few[:0]], max(1, MOST_CELLS // (int(self.ranges.p[few].max(initial=1)) if every else 1))
        for some in (few[at : at + size] for at in range(0, len(few), size)):
            p = self.ranges.p[some, None]
            stage = np.arange(int(p.max()))[None, :] if every else p - 1
            layers = self._most_layers(some, stage, seconds[some, None], every=every)
            most = np.where(stage < p, layers, 0.0).sum(axis=1) if every else (layers * p)[:, 0]
            found.append(some[most + front >= self.cut.space.layers])
        return np.concatenate(found)

    def _most_layers(self, some: Ints, stage: Ints, seconds: Floats, *, every: bool) -> Floats:
        """Bound the layers but front ones that checked stages hold; `every`: with embeddings and head."""
        cut, machine, shape, order = self.cut, self.cut.times.machine, self.cut.shape, self.cut.schedule
        own, zero = self.ranges, self.zero_stage or 0
        replicas = np.minimum(own.max_replicas, self.site_replicas)
        arrays = own.p, own.v, own.min_micro_batches, replicas, self.send, self.sharded.layer_seconds
        p, v, m, d, send, layer = (array[some, None] for array in np.broadcast_arrays(*arrays))
        overlap = np.where(v > 1, float("sends" in machine.software.overlaps), 0.0)
        seconds = seconds - machine.software.host_seconds - 2 * v * (1 - overlap) * send
        room = np.full_like(seconds, cut.space.memory_limit)
        if every:
            ends, counts = np.concatenate([0 * p, 0 * p + 1, p - 1], axis=1), schedule.PipelineCounts(p, v, m)
            how: dict[str, Any] = {"zero_stage": zero, "replicas": d, "order": order}
            parts = memory.memory_by_part(machine, shape, counts, stage=ends, layers=0, **how)
            first, others, last = np.moveaxis(room - sum(parts.values()), 1, 0)[..., None]
            room = np.where(stage == 0, first, np.where(stage == p - 1, last, others))
            seconds = np.where(stage == p - 1, seconds - self.pipeline.head, seconds)
        weights = memory.weights_of(machine, shape)
        state = memory.gpu_state_bytes(machine, shape, weights, layers=1, ends=0, zero_stage=zero, replicas=d)
        flying, kept = np.maximum(schedule.chunks_in_flight(order, stage, p, v, m), 0) / v, cut.layer_bytes.kept
        # A first stage with smaller chunks first keeps fewer layers in flight than its chunks' mean, at most by these.
        larger = schedule.larger_in_flight(p, m, smaller_first=front_layers(machine.model) == 0)
        first = (stage == 0) | (not every)  # or what stands for it
        room = room + np.where(first, (v - 1) * np.maximum(0.0, flying - larger), 0.0) * kept
        least = kept if cut.repeats == "no" else min(kept, cut.layer_bytes.checkpoint)
        price = cut.times.times.recompute_seconds / np.maximum((kept - least) * flying, NOTHING)  # of a byte saved
        # Recomputed front layers may save more than they keep: no first stage is held to `least`.
        repeated = np.where((front_layers(machine.model) > 0) & first, 0.0, least)
        most = np.minimum(seconds / layer, room / (state + repeated * flying))
        most = np.minimum(most, (seconds + price * room) / (layer + price * (state + kept * flying)))
        return np.asarray(np.floor(most * (1 + ROUNDING)), dtype=np.float64)


def columns_in_time(
    cut: Cut, zero_stage: int, ranges: CutPipelines, limit: float, stop: Callable[[], bool]
) -> Iterator[CutPipelines]:
    """Yield the checker's (replicas, micro-batches) below a limit, as arrays; ranges that fit are split, last first."""
    stack = [ranges]
    while stack and not stop():
        some = stack.pop()
        if len(some) > MOST_RANGES:
            stack += [some.part(slice(MOST_RANGES, None)), some.part(slice(MOST_RANGES))]
            continue
        floor = StepTimeBound(cut=cut, zero_stage=zero_stage, ranges=some)
        most = limit * cut.shape.micro_batch * some.max_replicas
        few = floor.holding(most / floor.stretch, every=False)
        if not len(few):
            continue
        floor, some = replace(floor, ranges=floor.ranges.part(few)), some.part(few)
        room = most[few] / floor.stretch - floor.once / some.max_micro_batches - floor.tails[1]
        some = floor.in_time(limit, floor.holding(room, every=True))
        single = (some.min_replicas == some.max_replicas) & (some.min_micro_batches == some.max_micro_batches)
        if np.any(single):
            yield some.part(single)
        if not np.all(single):
            stack.append(some.part(~single).split())


@dataclass(frozen=True, kw_only=True)
class PipelineSplits(ColumnTimes):
    """The checker's splits of a pipeline's layers; `micro_batches` ascend; seconds, and `limit`, are of one of them."""

    zero_stage: int
    p: int  # stages
    v: int  # virtual stages
    micro_batches: Ints
    limit: float
    each: int = -1  # layers that each chunk recomputes, by a rule of the framework; -1: any number
    waiting: bool = True  # whether unequal chunks wait; without waits the seconds are a lower bound

    @staticmethod
    def of(
        cut: Cut, zero_stage: int, x: CutPipelines, replicas: int, micro_batches: Ints, limit: float
    ) -> "PipelineSplits":
        """Return the checker's layer splits of the one pipeline in `x`, with a number of replicas."""
        ends = (np.asarray(end) for end in (replicas, replicas, micro_batches[0], micro_batches[-1]))
        own: dict[str, Any] = {"ranges": x.over(*ends), "micro_batches": micro_batches, "limit": limit}
        return PipelineSplits(cut=cut, zero_stage=zero_stage, p=int(x.p), v=int(x.v), **own)

    @cached_property
    def pipeline(self) -> Pipeline:
        """The times of the checker's pipeline whose layer splits are tried."""
        times = replace(self.cut.times, zero_stage=self.zero_stage)
        return step_prediction.inside_rack(times) if self.p <= self.ranges.stages_per_rack else times

    @cached_property
    def rounds(self) -> float:
        """The checker's floor under a pipeline's micro-batches with what short rounds lose, by its micro-batches."""
        micro_batches = self.micro_batches
        return float(np.min(schedule.effective_micro_batches(micro_batches, self.p, self.v) / micro_batches))

    @cached_property
    def waits(self) -> float:
        """The checker's fewest rounds in which a pipeline's unequal chunks wait, over its micro-batches."""
        rounds = np.maximum(0, self.micro_batches // self.p - 2) / self.micro_batches
        return float(np.min(rounds)) if self.waiting else 0.0

    @cached_property
    def sizes(self) -> Ints:
        """The checker's layers that a pipeline's stage may hold, ascending, from what others leave up to the limit."""
        layers, others, spared = self.cut.space.layers, self.p - 1, max(0.0, -self.pipeline.first_excess_seconds)
        in_time = (self.limit / self.rounds + spared) / float(self.sharded.layer_seconds) * (1 + SPLIT_ROUNDING)
        most = math.floor(min(layers - others * self.v, in_time))
        return np.arange(max(self.v, layers - others * most), most + 1)

    @cached_property
    def _front(self) -> Ints:
        return np.where(np.arange(self.p) == 0, front_layers(self.cut.times.machine.model), 0)[:, None]

    def _memory_share(self, recomputed: Any) -> Any:
        """Compute the share of usable memory that each number of layers takes on every stage of a checked pipeline."""
        space, fewest = self.cut.space, int(self.micro_batches[0])
        counts, stages = schedule.PipelineCounts(self.p, self.v, fewest), np.arange(self.p)[:, None]
        layers = {"stage": stages, "layers": self.sizes[None, :], "recomputed": recomputed, "front": self._front}
        d, zero, cut = int(np.minimum(self.ranges.min_replicas, self.site_replicas)), self.zero_stage, self.cut
        how: dict[str, Any] = {"zero_stage": zero, "replicas": d, "order": cut.schedule}
        parts = memory.memory_by_part(cut.times.machine, cut.shape, counts, **layers, **how)
        return sum(parts.values()) / (space.memory_limit * (1 + SPLIT_ROUNDING))

    @cached_property
    def recomputed(self) -> Ints:
        """The checker's layers that each stage recomputes by its size, `NEVER` where it cannot hold it or by a pin."""
        pins, every = self.cut.space.instance.pins, np.broadcast_to(self.sizes[None, :], (self.p, len(self.sizes)))
        if self.cut.repeats == "no":
            fewest = np.where(self._memory_share(0) <= 1, 0 * every, NEVER)
        else:  # each recomputed layer after the first saves the same memory
            each = np.stack([0 * self.sizes, np.minimum(1, self.sizes), self.sizes])
            none, one, full = self._memory_share(each[:, None, :])
            saved = np.where(every > 1, (one - full) / np.maximum(every - 1, 1), 0.0)
            more = np.ceil(np.where(saved > 0, (one - 1) / np.where(saved > 0, saved, 1.0), 0.0) - 1e-9)
            some = np.where(np.minimum(one, full) <= 1, np.clip(1 + np.maximum(more, 0), 1, every), NEVER)
            fewest = np.where((none <= 1) & (self.each <= 0), 0, some).astype(np.int64)
        layers, repeats = (pins.get(f"layout.{name}") for name in ("layers_per_stage", "recomputed_layers_per_stage"))
        if any(pinned is not None and len(pinned) != self.p for pinned in (layers, repeats)):
            return np.full_like(fewest, NEVER)
        if layers is None and self.cut.space.rules.even_stages:
            layers = [self.cut.space.layers // self.p] * self.p
        if layers is not None:
            fewest = np.where(self.sizes[None, :] == np.array(layers)[:, None], fewest, NEVER)
        if repeats is not None or self.each >= 0:
            alike = schedule.recomputed_alike(self.sizes, self.v, self.each)[None, :]
            wanted = alike if repeats is None else np.array(repeats)[:, None]
            fewest = np.where((fewest <= wanted) & (wanted <= self.sizes[None, :]), wanted, NEVER)
        return fewest

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Whether, by the checker, each stage holds each number of layers, front ones in its first chunk."""
        return (self.recomputed < NEVER) & (np.ceil(self.sizes[None, :] / self.v) >= self._front)

    @cached_property
    def seconds(self) -> Floats:
        """The checker's seconds of every stage by its layers, head, unequal chunks included; infinite if none fit."""
        pipeline, sizes, sharded = self.pipeline, self.sizes[None, :], self.sharded
        repeats = np.where(self.fits, self.recomputed, 0)
        stage = step_prediction.stage_seconds(sharded, self.v, sizes, repeats, self.send)
        head = step_prediction.end_seconds(pipeline, np.arange(self.p)[:, None], self.p)
        counts, repeat = schedule.PipelineCounts(self.p, self.v, 3 * self.p), pipeline.times.recompute_seconds
        wait = schedule.min_excess_seconds(counts, sizes, repeats, sharded.layer_seconds, repeat)
        waits, each = self.waits * wait, stage + head + pipeline.machine.software.host_seconds
        waits[-1] = np.maximum(0.0, waits[-1] - self.rounds * pipeline.head)  # the head may fill the smallest chunk
        # What a short last round loses of layers and what unequal chunks wait may be the same seconds.
        layers = sizes * sharded.layer_seconds + repeats * pipeline.times.recompute_seconds
        found = np.maximum(self.rounds * each, each + (self.rounds - 1) * np.maximum(0.0, each - layers) + waits)
        return np.asarray(np.where(self.fits, found, np.inf), dtype=np.float64)

    @cached_property
    def chunk(self) -> Any:
        """The checker's seconds of the largest chunk of every pipeline stage by its layers."""
        repeats, sizes = np.where(self.fits, self.recomputed, 0), self.sizes[None, :]
        return step_prediction.chunk_seconds(self.sharded, self.v, sizes, repeats)

    def once(self, chunk: Any, layers: Any) -> Any:
        """Recompute for the check a pipeline's seconds once a step, over its most micro-batches, by chunk and stage."""
        ends = {1, self.p, int(self.micro_batches[0]), int(self.micro_batches[-1])}
        counts = [end for end in ends if self.micro_batches[0] <= end <= self.micro_batches[-1]]
        most = min(self.p, int(self.micro_batches[-1]))  # of a round: it hides the most
        rounds, found = None if self.micro_batches[0] == self.micro_batches[-1] else (most, most), []
        for count in counts if self.cut.schedule == "zb-h1" else counts[:1]:
            own = schedule.PipelineCounts(self.p, self.v, count, rounds)
            found.append(sum(step_prediction.once_parts(self.sharded, None, own, layers, chunk, self.send).values()))
        return np.minimum.reduce(found) / int(self.micro_batches[-1])

    def least(self) -> float:
        """Return the checker's least seconds of a micro-batch over a pipeline's layer splits; infinite if above."""
        instance = self.cut.space.instance
        rule, pinned = instance.workload.rules.recompute, "layout.recomputed_layers_per_stage" in instance.pins
        if rule != "free" and self.each < 0 and self.waiting and not pinned:
            # Stages that recompute any number of layers, and never wait, take no longer.
            if math.isinf(replace(self, waiting=False).least()):
                return math.inf
            most = -(-int(self.sizes[-1]) // self.v) if len(self.sizes) else 0
            every = range(most + 1) if rule == "chunks alike" else sorted({0, most})
            numbers = (each for each in every if each or self.cut.repeats != "some")
            return min((replace(self, each=each).least() for each in numbers), default=math.inf)
        layers, best = self.cut.space.layers, self.limit
        if not len(self.sizes) or not bool(self.fits.any(axis=1).all()):
            return math.inf
        # Fewer sizes leave no faster slowest stage, so that with all of them it bounds every largest one.
        stage = self._slowest(self.seconds, best)
        smallest = np.minimum.accumulate(np.where(np.isfinite(self.seconds), self.chunk, np.inf).min(axis=0))
        once = np.broadcast_to(self.once(smallest, self.sizes), len(self.sizes))
        for place, most in enumerate(self.sizes.tolist()) if stage is not None else ():
            if most < -(-layers // self.p) or stage + once[place] >= best:
                continue
            allowed, chunks = self.seconds[:, : place + 1], self.chunk[:, : place + 1]
            for chunk in np.unique(chunks[np.isfinite(allowed)]).tolist()[::-1]:  # the largest chunk
                own = self._slowest(np.where(chunks <= chunk * (1 + SPLIT_ROUNDING), allowed, np.inf), best)
                if own is None or own + once[place] >= best:  # smaller ones leave slower stages
                    break
                best = min(best, own + self.once(chunk, most))
        return best if best < self.limit else math.inf

    def _slowest(self, seconds: Floats, limit: float) -> float | None:
        """Return the least seconds of the slowest stage over the layer splits whose stages hold all layers."""

        def hold(longest: float) -> bool:
            fine = seconds <= longest
            if not bool(fine.any(axis=1).all()):
                return False
            largest = fine.shape[1] - 1 - np.argmax(fine[:, ::-1], axis=1)
            least, most = int(self.sizes[np.argmax(fine, axis=1)].sum()), int(self.sizes[largest].sum())
            return least <= self.cut.space.layers <= most

        values = np.unique(seconds[seconds < limit]).tolist()
        first = bisect_left(values, True, key=hold)
        return values[first] if first < len(values) else None


def witness(
    cut: Cut, zero_stage: int, pipelines: CutPipelines, replicas: int, micro_batches: Ints, limit: float
) -> tuple[int, float] | None:
    """Return (micro-batches, least seconds of one) of a checked column's layer splits below the limit, or None."""
    # Of the ascending micro-batches a set is halved while its lower bound is below the limit.
    found = PipelineSplits.of(cut, zero_stage, pipelines, replicas, micro_batches, limit).least()
    if math.isinf(found):
        return None
    if len(micro_batches) == 1:
        return int(micro_batches[0]), found
    halves = np.array_split(micro_batches, [len(micro_batches) // 2])
    each = (witness(cut, zero_stage, pipelines, replicas, half, limit) for half in reversed(halves))
    return next((one for one in each if one is not None), None)
