"""How pools of different GPUs share a step's batch: the shares that train fastest, each pool's layout its own.

A pool's layout search gives the least seconds per sequence of all shares up to some size, so a box of shares is bounded
from below: no pool is faster a sequence than at the box's largest share. Boxes are halved in order of their bounds. In a
small batch, where a share is narrowed to a single number, the layouts of exactly that many sequences are searched, by pins
on the replicas, micro-batches and their size that make it up; in a large one the bound of its size is kept.
"""

import heapq
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from planner.models.layout.best_first import search
from planner.models.layout.data import MICRO_BATCHES, Problem
from planner.physics.training import stage_memory, step
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.solvers.outcome import Stop

SEARCHES = 40  # of shares up to a size, after which the best shares are returned with the gap that is left
SMALL = 12  # sequences of a batch up to which each share is searched exactly
CLOSE = 1e-9  # relative: bounds and values are sums of the same floats
GAP = 1e-3  # at which the shares count as settled unless another is asked for: one sequence in a thousand

Box = tuple[tuple[int, int], ...]  # fewest and most sequences of each pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A layout of a pool, the sequences that it takes and its seconds a step."""

    sequences: int
    seconds: float
    cut: ParallelStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a search of all shares up to `most` said: the least seconds per sequence, and the layout that has them."""

    most: int
    sequences: int
    rate: float
    cut: ParallelStrategy | None


@dataclass(slots=True, kw_only=True)
class Pool:
    """A pool with what searches have told of its step time by share."""

    problem: Problem
    time_limit: Callable[[], float | None] = lambda: None
    known: list[Known] = field(default_factory=list)
    exactly: dict[int, float] = field(default_factory=dict)
    points: dict[int, Point] = field(default_factory=dict)
    searches: int = 0
    kept: int = 0  # times that a point was found or bettered

    def rate(self, most: int) -> float:
        """Return a lower bound on the seconds per sequence of every share up to `most`; infinite where no layout fits."""
        if most < 1:
            return math.inf
        held = next((k for k in self.known if k.sequences <= most <= k.most), None)
        return held.rate if held is not None else self._ask(most)

    def _ask(self, most: int) -> float:
        last = min((k for k in self.known if k.cut is not None), key=lambda k: abs(k.most - most), default=None)
        self.searches += 1
        found = search(
            replace(self.problem, most_sequences=most),
            near=[last.cut] if last is not None and last.cut is not None else [],
            time_limit=self.time_limit(),
        )
        if found.best is None:
            self.known.append(Known(most=most, sequences=0, rate=found.bound, cut=None))
            return found.bound
        cut = found.best.cut
        proved = found.stop is Stop.PROVED
        own = sequences_of(cut)
        # The layout stays the best of all smaller shares that still hold it, where it is proven to be the best.
        self.known.append(
            Known(most=most, sequences=own if proved else most, rate=min(found.bound, found.best.seconds), cut=cut)
        )
        self._keep(cut, found.best.seconds * own)
        for other in varied(self.problem, cut):
            self._keep(other, step_seconds(self.problem, other))
        return self.known[-1].rate

    def _keep(self, cut: ParallelStrategy, seconds: float) -> None:
        n = sequences_of(cut)
        if n not in self.points or seconds < self.points[n].seconds:
            self.points[n] = Point(sequences=n, seconds=seconds, cut=cut)
            self.kept += 1

    def least_seconds(self, few: int, many: int) -> float:
        """Return a lower bound on the seconds a step of every share of a range."""
        if 0 < few == many and self.problem.most_sequences <= SMALL:
            return self._exactly(few)
        return few * self.rate(many) if few else 0.0

    def _exactly(self, n: int) -> float:
        """Return the least seconds of a step of exactly so many sequences; infinite where no layout makes them up."""
        if n not in self.exactly:
            least = math.inf
            for pins in made_up(self.problem, n):
                asked = replace(self.problem, most_sequences=n, pins={**self.problem.pins, **pins})
                found = search(asked, time_limit=self.time_limit())
                least = min(least, found.bound * n, found.best.seconds * n if found.best else math.inf)
                if found.best is not None:
                    self._keep(found.best.cut, found.best.seconds * n)
            self.exactly[n] = least
        return self.exactly[n]


def sequences_of(cut: ParallelStrategy) -> int:
    """Count the sequences of a step."""
    return cut.data_parallel * cut.micro_batches * cut.micro_batch


def step_seconds(problem: Problem, cut: ParallelStrategy) -> float:
    """Time a step by physics."""
    return float(sum(step.step_breakdown(problem.machine, problem.conditions, cut).values()))


def made_up(problem: Problem, n: int) -> Iterator[dict[str, int]]:
    """Yield every way to make up n sequences: replicas, micro-batches and sequences of one."""
    most = sum(problem.racks) * problem.machine.rack.gpus
    for b in MICRO_BATCHES:
        for d in range(1, min(most, n // b) + 1):
            if n % (b * d) == 0:
                yield {
                    "layout.data_parallel": d,
                    "layout.microbatches_per_step": n // (b * d),
                    "layout.microbatch_sequences": b,
                }


def varied(problem: Problem, cut: ParallelStrategy) -> Iterator[ParallelStrategy]:
    """Yield a layout with every other number of micro-batches that fits memory and the batch."""
    least = cut.pipeline_parallel if cut.virtual_stages > 1 else 1
    for m in range(least, problem.most_sequences // (cut.data_parallel * cut.micro_batch) + 1):
        other = replace(cut, micro_batches=m)
        if (
            m != cut.micro_batches
            and sum(stage_memory.worst_memory(problem.machine, other).values()) <= problem.memory_limit
        ):
            yield other


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The shares held, by pool (None: it does not train), with seconds per sequence, what is proven of them, and why the search ended."""

    points: tuple[Point | None, ...]
    rate: float
    bound: float
    stop: Stop
    boxes: int
    searches: int


@dataclass(slots=True, kw_only=True)
class Balance:
    """The search for the shares; `tail` gives the exchange's exposed time of the layouts that train, `least_tail` the least of any two."""

    pools: list[Pool]
    batch: int
    tail: Callable[[tuple[Point | None, ...]], float]
    least_tail: float = 0.0
    rate: float = math.inf
    best: tuple[Point | None, ...] = ()
    tried: int = 0

    def take(self, box: Box) -> float:
        """Bound a box from below in seconds per sequence.

        In a time T a pool takes T / rate sequences at most, and its largest share; T over their sum grows with T, so that of
        the least T that the smallest shares need bounds the box.
        """
        rates = [p.rate(b) for p, (_, b) in zip(self.pools, box, strict=True)]
        least = max(p.least_seconds(a, b) for p, (a, b) in zip(self.pools, box, strict=True))
        if not math.isfinite(least):
            return math.inf
        most = [
            0.0 if math.isinf(r) else b if least / r >= b else least / r for r, (_, b) in zip(rates, box, strict=True)
        ]
        if least == 0.0:
            return 1 / pace if (pace := sum(1 / r for r in rates)) else math.inf
        waits = self.least_tail if sum(a > 0 for a, _ in box) > 1 else 0.0
        return least / min(self.batch, sum(most)) + waits / min(self.batch, sum(b for _, b in box))

    def improve(self) -> None:
        """Join the layouts known so far: for each pool's step time, the most sequences that all finish within it and the batch holds."""
        if (kept := sum(p.kept for p in self.pools)) == self.tried:
            return
        self.tried = kept
        for limit in sorted({x.seconds for p in self.pools for x in p.points.values()}):
            most = [
                max((n for n, x in p.points.items() if x.seconds <= limit * (1 + CLOSE)), default=0) for p in self.pools
            ]
            if limit / max(1, min(self.batch, sum(most))) >= self.rate:
                continue
            self._hold(self._fill(limit))
        for k, p in enumerate(self.pools):  # alone it waits for no exchange
            for x in p.points.values():
                self._hold(tuple(x if i == k else None for i in range(len(self.pools))))

    def _hold(self, chosen: tuple[Point | None, ...]) -> None:
        """Keep shares that are better than the best."""
        held = [x for x in chosen if x is not None]
        if (
            held
            and (rate := (max(x.seconds for x in held) + self.tail(chosen)) / sum(x.sequences for x in held))
            < self.rate
        ):
            self.rate, self.best = rate, chosen

    def _fill(self, limit: float) -> tuple[Point | None, ...]:
        """Choose a layout of each pool, or none, that together take the most sequences of the batch: sums reached, pool after pool, as bits."""
        reached, choices, mask = [1], [], (1 << (self.batch + 1)) - 1
        for p in self.pools:
            own = {0: None, **{n: x for n, x in sorted(p.points.items()) if x.seconds <= limit * (1 + CLOSE)}}
            sums = 0
            for n in own:
                sums |= reached[-1] << n & mask
            reached.append(sums)
            choices.append(own)
        left, chosen = reached[-1].bit_length() - 1, []
        for own, before in zip(reversed(choices), reversed(reached[:-1]), strict=True):
            n = next(n for n in own if n <= left and before >> (left - n) & 1)
            chosen.append(own[n])
            left -= n
        return tuple(reversed(chosen))

    def tightened(self, box: Box) -> Box | None:
        """Narrow a box to the shares that could beat the best: all must end before its pace is lost; None where none could."""
        if not math.isfinite(self.rate):
            return box
        most = min(self.batch, sum(b for _, b in box))
        ends = []
        for p, (a, b) in zip(self.pools, box, strict=True):
            rate = p.rate(b)
            end = 0 if math.isinf(rate) else min(b, math.ceil(self.rate * most / rate * (1 + CLOSE)))
            if a > end:
                return None
            ends.append((a, end))
        slowest = max(a * p.rate(b) if a else 0.0 for p, (a, b) in zip(self.pools, ends, strict=True))
        total = sum(b for _, b in ends)
        narrowed = tuple((max(a, math.floor(slowest / self.rate * (1 - CLOSE)) - (total - b)), b) for a, b in ends)
        return narrowed if all(a <= b for a, b in narrowed) and sum(a for a, _ in narrowed) <= self.batch else None

    def run(self, *, gap: float, over: Callable[[], bool], progress: Callable[[str], None]) -> Shares:
        """Halve boxes in order of their bounds until the least is within the gap of the best shares."""
        root: Box = tuple((0, self.batch) for _ in self.pools)
        waiting, boxes, floor = [(self.take(root), 0, root)], 1, math.inf
        self.improve()
        self._ideal(waiting[0][0])
        while waiting:
            low, _, box = waiting[0]
            if low >= self.rate * (1 - gap) or (self.best and over()):
                break
            heapq.heappop(waiting)
            for part in _halves(box, self.pools):
                narrow = self.tightened(part)
                if narrow is None:
                    continue
                bound = max(low, self.take(narrow))
                if all(a == b for a, b in narrow):
                    floor = min(
                        floor, bound
                    )  # its value may be more than its bound by the exchange: nothing is left to halve
                elif bound < self.rate:
                    heapq.heappush(waiting, (bound, boxes, narrow))
                boxes += 1
            before = self.rate
            self.improve()
            if self.rate < before:
                held = min(waiting[0][0] if waiting else self.rate, floor, self.rate)
                progress(f"pools: {self.rate:.6g} s per sequence, bound {held:.6g}, gap {1 - held / self.rate:.2%}")
        bound = min(waiting[0][0] if waiting else math.inf, floor, self.rate)
        stop = Stop.PROVED if bound >= self.rate * (1 - max(gap, CLOSE)) else Stop.LIMIT
        return Shares(
            points=self.best,
            rate=self.rate,
            bound=bound,
            stop=stop,
            boxes=boxes,
            searches=sum(p.searches for p in self.pools),
        )

    def _ideal(self, rate: float) -> None:
        """Ask each pool for the share that it would take at its own pace, so that there are good shares early."""
        if math.isfinite(rate):
            for p in self.pools:
                own = p.rate(self.batch)
                if math.isfinite(own):
                    p.rate(math.ceil(self.batch * rate / own))
            self.improve()


def _halves(box: Box, pools: list[Pool]) -> Iterator[Box]:
    """Cut a box at the middle of the share whose range takes its pool longest."""

    def length(k: int) -> float:
        a, b = box[k]
        rate = pools[k].rate(b)
        return (b - a) * (rate if math.isfinite(rate) else 1e9)

    k = max((k for k in range(len(box)) if box[k][0] < box[k][1]), key=length)
    a, b = box[k]
    middle = (a + b) // 2
    yield (*box[:k], (a, middle), *box[k + 1 :])
    yield (*box[:k], (middle + 1, b), *box[k + 1 :])


def balance(
    pools: list[Problem],
    batch: int,
    *,
    tail: Callable[[tuple[Point | None, ...]], float],
    least_tail: float = 0.0,
    gap: float | None = None,
    time_limit: float | None = None,
    progress: Callable[[str], None],
) -> Shares | None:
    """Return the shares of the batch by which all pools together train fastest; None where no pool holds a layout."""
    started = time.perf_counter()

    def left() -> float | None:
        return None if time_limit is None else max(0.0, time_limit - (time.perf_counter() - started))

    held = [Pool(problem=p, time_limit=left) for p in pools]

    def over() -> bool:
        return left() == 0.0 or sum(p.searches for p in held) >= SEARCHES

    found = Balance(pools=held, batch=batch, tail=tail, least_tail=least_tail).run(
        gap=GAP if gap is None else gap, over=over, progress=progress
    )
    return found if found.points else None
