"""The least time of a column on a free network over every split of its layers that memory holds.

Several numbers of micro-batches may be asked for at once: then the time is a lower bound for each of them, and the
least one where there is only one.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.checks.joint_columns import Cut, CutPipelines, Floats, Ints
from planner.checks.step_bound import ColumnTimes
from planner.physics.training import memory, schedule, step_prediction
from planner.physics.training.collectives import front_layers
from planner.physics.training.step_prediction import LargestStage, Pipeline

ROUNDING = 1e-12  # relative, of bytes and of seconds
NEVER = 1 << 40  # layers to recompute where not even that makes room


@dataclass(frozen=True, kw_only=True)
class PipelineSplits(ColumnTimes):
    """The splits of one pipeline for some micro-batches, ascending, below `limit` seconds; all are of a micro-batch."""

    zero_stage: int
    micro_batches: Ints
    limit: float
    each: int = -1  # layers that each chunk recomputes, by a rule of the framework; -1: any number
    waiting: bool = True  # whether unequal chunks wait; without waits the seconds are a lower bound

    @staticmethod
    def of(
        cut: Cut, zero_stage: int, x: CutPipelines, replicas: int, micro_batches: Ints, limit: float
    ) -> "PipelineSplits":
        """Return the splits of a pipeline, which stands alone in `x`, with a number of replicas."""
        ends = (np.asarray(end) for end in (replicas, replicas, micro_batches[0], micro_batches[-1]))
        ranges = x.over(*ends)
        return PipelineSplits(cut=cut, zero_stage=zero_stage, ranges=ranges, micro_batches=micro_batches, limit=limit)

    @property
    def p(self) -> int:
        """Stages."""
        return int(self.ranges.p)

    @property
    def v(self) -> int:
        """Virtual stages."""
        return int(self.ranges.v)

    @cached_property
    def pipeline(self) -> Pipeline:
        """Times of the pipeline."""
        return self.cut.timed(self.zero_stage, inside=bool(self.inside))

    @cached_property
    def rounds(self) -> float:
        """Lower bound on the micro-batches with the loss of short rounds, over the micro-batches."""
        micro_batches = self.micro_batches
        return float(np.min(schedule.effective_micro_batches(micro_batches, self.p, self.v) / micro_batches))

    @cached_property
    def waits(self) -> float:
        """Rounds in which unequal chunks wait, over micro-batches, at least."""
        if not self.waiting:
            return 0.0
        return float(np.min(np.maximum(0, self.micro_batches // self.p - 2) / self.micro_batches))

    @cached_property
    def sizes(self) -> Ints:
        """Candidate numbers of layers of a stage, ascending.

        They range from one layer a chunk, or all layers that the other stages cannot hold, to the layers that take no
        longer than the limit.
        """
        layers, others = self.cut.space.layers, self.p - 1
        spared = max(0.0, -self.pipeline.first_excess_seconds)
        in_time = (self.limit / self.rounds + spared) / float(self.sharded.layer_seconds) * (1 + ROUNDING)
        most = math.floor(min(layers - others * self.v, in_time))
        return np.arange(max(self.v, layers - others * most), most + 1)

    @cached_property
    def _front(self) -> Ints:
        """Dense layers at the front, which the first stage has; one entry a stage."""
        return np.where(np.arange(self.p) == 0, front_layers(self.cut.machine.model), 0)[:, None]

    def _bytes(self, recomputed: Any) -> Any:
        """Bytes on a GPU of every stage with each size."""
        space, fewest = self.cut.space, int(self.micro_batches[0])
        counts, stages = schedule.PipelineCounts(self.p, self.v, fewest), np.arange(self.p)[:, None]
        layers = memory.StageLayers(stage=stages, layers=self.sizes[None, :], recomputed=recomputed, front=self._front)
        d, zero, cut = int(np.minimum(self.ranges.min_replicas, self.site_replicas)), self.zero_stage, self.cut
        how: dict[str, Any] = {"zero_stage": zero, "replicas": d, "order": cut.schedule}
        parts = memory.memory_by_part(cut.machine, cut.shape, counts, layers, **how)
        return sum(parts.values()) / (space.memory_limit * (1 + ROUNDING))

    @cached_property
    def recomputed(self) -> Ints:
        """Layers that each stage recomputes with each size, `NEVER` where it cannot hold it, or a pin excludes it."""
        fewest, pins = self._fewest_recomputed, self.cut.space.instance.pins
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
    def _fewest_recomputed(self) -> Ints:
        """Fewest layers to recompute to hold each size, or `NEVER`; each after the first saves the same memory."""
        every = np.broadcast_to(self.sizes[None, :], (self.p, len(self.sizes)))
        if self.cut.repeats == "no":
            return np.where(self._bytes(0) <= 1, 0 * every, NEVER)
        none, one, full = self._bytes(np.stack([0 * self.sizes, np.minimum(1, self.sizes), self.sizes])[:, None, :])
        saved = np.where(every > 1, (one - full) / np.maximum(every - 1, 1), 0.0)
        more = np.ceil(np.where(saved > 0, (one - 1) / np.where(saved > 0, saved, 1.0), 0.0) - 1e-9)
        fewest = np.clip(1 + np.maximum(more, 0), 1, every)
        some = np.where(np.minimum(one, full) <= 1, fewest, NEVER)
        return np.where((none <= 1) & (self.each <= 0), 0, some).astype(np.int64)

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Which stages may hold which sizes in memory, the first one all front layers in its first chunk."""
        return (self.recomputed < NEVER) & (np.ceil(self.sizes[None, :] / self.v) >= self._front)

    @cached_property
    def seconds(self) -> Floats:
        """Seconds of every stage with each size, head and unequal chunks included; infinite where it does not fit."""
        pipeline, sizes, sharded = self.pipeline, self.sizes[None, :], self.sharded
        repeats = np.where(self.fits, self.recomputed, 0)
        stage = step_prediction.stage_seconds(pipeline, sharded, self.v, sizes, repeats, self.send)
        stages = np.arange(self.p)[:, None]
        head = step_prediction.end_seconds(pipeline, stages, self.p)
        wait = schedule.min_excess_seconds(
            self.p, self.v, 3 * self.p, sizes, repeats, sharded.layer_seconds, pipeline.times.recompute_seconds
        )
        waits, each = self.waits * wait, stage + head + pipeline.machine.software.host_seconds
        waits[-1] = np.maximum(0.0, waits[-1] - self.rounds * pipeline.head)  # the head may fill the smallest chunk
        # What a short last round loses of layers and what unequal chunks wait may be the same seconds.
        layers = sizes * sharded.layer_seconds + repeats * pipeline.times.recompute_seconds
        other_seconds = (self.rounds - 1) * np.maximum(0.0, each - layers)
        found = np.maximum(self.rounds * each, each + other_seconds + waits)
        return np.asarray(np.where(self.fits, found, np.inf), dtype=np.float64)

    @cached_property
    def chunk(self) -> Any:
        """Seconds of the largest chunk of every stage with each size."""
        repeats, sizes = np.where(self.fits, self.recomputed, 0), self.sizes[None, :]
        return step_prediction.chunk_seconds(self.pipeline, self.sharded, self.v, sizes, repeats)

    def once(self, chunk: Any, layers: Any) -> Any:
        """Seconds that a step takes once, over the most micro-batches, by its largest chunk and stage (or arrays)."""
        ends = {1, self.p, int(self.micro_batches[0]), int(self.micro_batches[-1])}
        counts = [end for end in ends if self.micro_batches[0] <= end <= self.micro_batches[-1]]
        most = min(self.p, int(self.micro_batches[-1]))  # of a round: it hides the most
        rounds = None if self.micro_batches[0] == self.micro_batches[-1] else schedule.Rounds(most, most)
        largest, found = LargestStage(layers=layers, chunk_seconds=chunk), []
        for count in counts if self.cut.schedule == "zb-h1" else counts[:1]:
            own = schedule.PipelineCounts(self.p, self.v, count, rounds)
            each = self.pipeline, self.sharded, None, own, self.group
            found.append(sum(step_prediction.once_parts(*each, largest=largest, send=self.send).values()))
        return np.minimum.reduce(found) / int(self.micro_batches[-1])

    def least(self) -> float:
        """Return the least seconds of a micro-batch; infinite where none are below the limit."""
        instance = self.cut.space.instance
        rule, pinned = instance.workload.rules.recompute, "layout.recomputed_layers_per_stage" in instance.pins
        if rule != "free" and self.each < 0 and self.waiting and not pinned:
            # Stages that recompute any number of layers, and never wait, take no longer.
            if math.isinf(replace(self, waiting=False).least()):
                return math.inf
            most = -(-int(self.sizes[-1]) // self.v) if len(self.sizes) else 0
            every, least = {*range(most + 1)} if rule == "chunks alike" else {0, most}, int(self.cut.repeats == "some")
            numbers = sorted(each for each in every if each >= least)
            return min((replace(self, each=each).least() for each in numbers), default=math.inf)
        layers, best = self.cut.space.layers, self.limit
        if not len(self.sizes) or not bool(self.fits.any(axis=1).all()):
            return math.inf
        # Fewer sizes leave no faster slowest stage, so that with all of them it bounds every largest one.
        stage, least = self._slowest(self.seconds, best), int(self.sizes[0])
        smallest = np.minimum.accumulate(np.where(np.isfinite(self.seconds), self.chunk, np.inf).min(axis=0))
        once = np.broadcast_to(self.once(smallest, self.sizes), len(self.sizes))
        for place, most in enumerate(self.sizes.tolist()) if stage is not None else ():
            if most < -(-layers // self.p) or stage + once[place] >= best:
                continue
            allowed, chunks = self.seconds[:, : place + 1], self.chunk[:, : place + 1]
            own = self._slowest(allowed, best)
            if own is None or own + once[place] >= best:
                continue
            for chunk in np.unique(chunks[np.isfinite(allowed)]).tolist()[::-1]:  # the largest chunk
                own = self._slowest(np.where(chunks <= chunk * (1 + ROUNDING), allowed, np.inf), best)
                if own is None:
                    break
                best = min(best, own + self.once(chunk, most))
        return best if best < self.limit else math.inf

    def _slowest(self, seconds: Floats, limit: float) -> float | None:
        """Return the least seconds of the slowest stage so that stages (any size between fine ones) hold all layers."""

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
    """Return (micro-batches, seconds) of a column that takes less than `limit` seconds a micro-batch, or None.

    The seconds are its minimum a micro-batch over splits of the layers. `micro_batches` are ascending; a set of them is
    halved while its lower bound is below the limit.
    """
    found = PipelineSplits.of(cut, zero_stage, pipelines, replicas, micro_batches, limit).least()
    if math.isinf(found):
        return None
    if len(micro_batches) == 1:
        return int(micro_batches[0]), found
    halves = np.array_split(micro_batches, [len(micro_batches) // 2])
    each = (witness(cut, zero_stage, pipelines, replicas, half, limit) for half in reversed(halves))
    return next((one for one in each if one is not None), None)
