"""Share a step's batch over pools of different GPUs: the shares that train fastest, each pool's layout its own.

A pool's layout search gives the fewest seconds per sequence of all shares up to some size, which bounds a box of
shares: no pool is faster a sequence than at the box's largest share. Boxes are halved in order of their bounds. In a
small batch, where a share is narrowed to a single number, the layouts of exactly that many sequences are searched, by
pins on the replicas, micro-batches and their size that make it up; in a large one the bound of its size is taken.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product

from planner.models.joint.search.free_network import fastest_of
from planner.models.joint.strategy_space import MICRO_BATCHES, JointProblem
from planner.physics.training import memory, step_prediction
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.solvers.outcome import Stop
from planner.solvers.search_deadline import Deadline, first_plan_found

SMALL_BATCH = 12  # sequences up to which each share is searched exactly: more has too many ways to make it up
EPS = 1e-9  # relative: bounds and values are sums of the same floats

Box = tuple[tuple[int, int], ...]  # smallest and largest share of each pool, in sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLayout:
    """A layout of a GPU pool in the search for batch shares: the sequences that it takes and its seconds a step."""

    sequences: int
    seconds: float
    strategy: ParallelStrategy


@dataclass(slots=True, kw_only=True)
class PoolSearch:
    """A GPU pool in the search for batch shares, with what it returned: bounds by share, exact seconds, and layouts."""

    problem: JointProblem
    deadline: Deadline = field(default_factory=Deadline)
    # Bounds on seconds a sequence, each of shares from one to another. A layout that is proven the best up to a share
    # is the best of smaller shares too, down to its own.
    bounds: list[tuple[int, int, float]] = field(default_factory=list)
    exact: dict[int, float] = field(default_factory=dict)
    points: dict[int, PoolLayout] = field(default_factory=dict)
    searches: int = 0
    improvements: int = 0  # times that a point was added or bettered

    def rate(self, max_share: int) -> float:
        """Bound a pool's seconds a sequence over all batch shares up to `max_share`; infinite where no layout fits."""
        if max_share < 1:
            return math.inf
        known = next((rate for low, high, rate in self.bounds if low <= max_share <= high), None)
        if known is not None:
            return known
        self.searches += 1
        result = fastest_of(replace(self.problem, max_sequences=max_share), time_limit=self.deadline.limit)
        strategy, seconds = result.strategy, result.seconds
        if strategy is None:
            self.bounds.append((0, max_share, result.bound))
            return result.bound
        own = sequences_of(strategy)
        rate = min(result.bound, seconds)
        self.bounds.append((own if result.stop is Stop.PROVED else max_share, max_share, rate))
        self._add_point(strategy, seconds * own)
        free = step_prediction.free_conditions(self.problem.transport_slowdown)
        # The layout with every other number of micro-batches that fits memory and the batch is a point too.
        first = strategy.pipeline_parallel if strategy.virtual_stages > 1 else 1
        most = self.problem.max_sequences // (strategy.data_parallel * strategy.micro_batch)
        for number in range(first, most + 1, first if self.problem.rules.whole_rounds else 1):
            if self.deadline.passed:
                break
            other = replace(strategy, micro_batches=number)
            used = sum(memory.worst_memory(self.problem.machine, other).values())
            if number != strategy.micro_batches and used <= self.problem.memory_limit:
                parts = step_prediction.step_breakdown(self.problem.machine, free, other)
                self._add_point(other, float(sum(parts.values())))
        return rate

    def _add_point(self, strategy: ParallelStrategy, seconds: float) -> None:
        count = sequences_of(strategy)
        if count not in self.points or seconds < self.points[count].seconds:
            self.points[count] = PoolLayout(sequences=count, seconds=seconds, strategy=strategy)
            self.improvements += 1

    def min_seconds(self, low: int, high: int) -> float:
        """Bound a pool's seconds a step over every share of the batch from `low` to `high` sequences."""
        if not 0 < low == high or self.problem.max_sequences > SMALL_BATCH:
            return low * self.rate(high) if low else 0.0
        if low not in self.exact:  # the fewest seconds of exactly as many; infinite where no layout makes them up
            # Over every way to make the share up of replicas, micro-batches and sequences of one.
            fewest, gpus = math.inf, (self.problem.instance.hardware.racks or 0) * self.problem.gpus
            for size, replicas in product(MICRO_BATCHES, range(1, min(gpus, low) + 1)):
                if low % (size * replicas):
                    continue
                pins = self.problem.pins | {
                    "layout.data_parallel": replicas,
                    "layout.microbatches_per_step": low // (size * replicas),
                    "layout.microbatch_sequences": size,
                }
                problem = replace(self.problem, max_sequences=low, pins=pins)
                result = fastest_of(problem, time_limit=self.deadline.limit)
                fewest = min(fewest, result.bound * low)
                if result.strategy is not None:
                    self._add_point(result.strategy, result.seconds * low)
            self.exact[low] = fewest
        return self.exact[low]


def sequences_of(strategy: ParallelStrategy) -> int:
    """Return the sequences of a step's batch that a pool's layout takes, its share."""
    return strategy.data_parallel * strategy.micro_batches * strategy.micro_batch


@dataclass(slots=True, kw_only=True)
class Shares:
    """The best batch shares by pool (None: it does not train; empty: none found), their rate, and their search.

    `tail` is the exposed exchange of pools that train, `min_tail` a bound on it.
    """

    pools: list[PoolSearch]
    batch: int
    tail: Callable[[tuple[PoolLayout | None, ...]], float]
    min_tail: float = 0.0
    points: tuple[PoolLayout | None, ...] = ()
    rate: float = math.inf
    bound: float = 0.0
    stop: Stop = Stop.PROVED
    boxes: int = 1
    improvements: int = 0

    def bound_of(self, box: Box) -> float:
        """Bound seconds a sequence in a box of batch shares: the T its smallest need, over its most sequences."""
        # Within T seconds a pool takes at most T / rate sequences, and its largest share; T over their sum grows with
        # T.
        rates = [pool.rate(high) for pool, (_, high) in zip(self.pools, box, strict=True)]
        seconds = max(pool.min_seconds(low, high) for pool, (low, high) in zip(self.pools, box, strict=True))
        if not math.isfinite(seconds):
            return math.inf
        if seconds == 0.0:
            if 0.0 in rates:  # of a search that was cut short before it had a bound
                return 0.0
            speed = sum(1 / rate for rate in rates)
            return 1 / speed if speed else math.inf
        sequences = 0.0
        for rate, (_, high) in zip(rates, box, strict=True):  # the rate is 0 of a pool with no bound yet
            if not math.isinf(rate):
                sequences += high if seconds >= rate * high else seconds / rate
        tail = self.min_tail if sum(low > 0 for low, _ in box) > 1 else 0.0
        return seconds / min(self.batch, sequences) + tail / min(self.batch, sum(high for _, high in box))

    def improve(self) -> None:
        """For each known step time, join the pools' layouts that take the most sequences within it; keep the best."""
        improvements = sum(pool.improvements for pool in self.pools)
        if improvements == self.improvements:
            return
        self.improvements = improvements
        for limit in sorted({point.seconds for pool in self.pools for point in pool.points.values()}):
            within = limit * (1 + EPS)
            most = (max((n for n, x in pool.points.items() if x.seconds <= within), default=0) for pool in self.pools)
            if limit / min(self.batch, sum(most)) < self.rate:  # else no layouts within it are better
                self._keep_better(self._fullest(limit))
        for k, pool in enumerate(self.pools):  # alone it waits for no exchange
            for point in pool.points.values():
                self._keep_better(tuple(point if i == k else None for i in range(len(self.pools))))

    def _keep_better(self, points: tuple[PoolLayout | None, ...]) -> None:
        training = [point for point in points if point is not None]
        slowest, sequences = max(point.seconds for point in training), sum(point.sequences for point in training)
        if slowest / sequences >= self.rate:  # whatever the exchange, which takes long to predict
            return
        rate = (slowest + self.tail(points)) / sequences
        if rate < self.rate:
            self.rate, self.points = rate, points
            first_plan_found()

    def _fullest(self, limit: float) -> tuple[PoolLayout | None, ...]:
        """Return a layout of each pool, or none, whose batch shares within a time are the most in sum."""
        # The sums that the first pools can reach are bits of an integer, pool after pool.
        reached, options, mask = [1], [], (1 << (self.batch + 1)) - 1
        for pool in self.pools:
            own: dict[int, PoolLayout | None] = {0: None}
            own |= {count: point for count, point in sorted(pool.points.items()) if point.seconds <= limit * (1 + EPS)}
            sums = 0
            for count in own:
                sums |= reached[-1] << count & mask
            reached.append(sums)
            options.append(own)
        left, points = reached[-1].bit_length() - 1, []
        for own, before in zip(reversed(options), reversed(reached[:-1]), strict=True):
            count = next(size for size in own if size <= left and before >> (left - size) & 1)
            points.append(own[count])
            left -= count
        return tuple(reversed(points))

    def tightened(self, box: Box) -> Box | None:
        """Return a box narrowed to the batch shares that could beat the best; None where none could."""
        if not math.isfinite(self.rate):
            return box
        total = min(self.batch, sum(high for _, high in box))
        ends = []
        for pool, (low, high) in zip(self.pools, box, strict=True):
            rate = pool.rate(high)
            most = math.inf if rate == 0.0 else self.rate * total / rate * (1 + EPS)
            end = high if most >= high else math.ceil(most)
            if low > end:
                return None
            ends.append((low, end))
        slowest = max(low * pool.rate(high) if low else 0.0 for pool, (low, high) in zip(self.pools, ends, strict=True))
        total = sum(high for _, high in ends)
        needed = math.floor(slowest / self.rate * (1 - EPS))
        narrowed = tuple((max(low, needed - (total - high)), high) for low, high in ends)
        fits = all(low <= high for low, high in narrowed) and sum(low for low, _ in narrowed) <= self.batch
        return narrowed if fits else None


def _halves(box: Box, pools: list[PoolSearch]) -> Iterator[Box]:
    def length(k: int) -> float:
        low, high = box[k]
        rate = pools[k].rate(high)
        return (high - low) * (rate if math.isfinite(rate) else 1e9)

    k = max((k for k in range(len(box)) if box[k][0] < box[k][1]), key=length)
    low, high = box[k]
    middle = (low + high) // 2
    yield (*box[:k], (low, middle), *box[k + 1 :])
    yield (*box[:k], (middle + 1, high), *box[k + 1 :])


def balance(
    problems: list[JointProblem],
    batch: int,
    *,
    tail: Callable[[tuple[PoolLayout | None, ...]], float],
    min_tail: float = 0.0,
    gap: float | None = None,
    time_limit: float | None = None,
    progress: Callable[[float, float], None],
) -> Shares:
    """Search the batch shares by which all pools together train fastest; without points no layout was found.

    Boxes are halved in order of their bounds until the smallest is within the gap of the best shares. `progress` is
    called with the seconds a sequence of better shares, and the bound on those of any.
    """
    deadline = Deadline(time_limit)
    pools = [PoolSearch(problem=problem, deadline=deadline) for problem in problems]
    search = Shares(pools=pools, batch=batch, tail=tail, min_tail=min_tail)
    root: Box = tuple((0, batch) for _ in pools)
    rate = search.bound_of(root)
    # A box of single shares is not halved, though its value may be above its bound by the exchange.
    queue, single_bound = [(rate, 0, root)], math.inf

    def bound() -> float:
        return min(queue[0][0] if queue else math.inf, single_bound, search.rate)

    search.improve()
    if math.isfinite(rate):  # shares in proportion to speed, so that there are good ones early
        for pool in pools:
            own = pool.rate(batch)
            if 0.0 < own < math.inf:
                pool.rate(math.ceil(batch * rate / own))
        search.improve()
    if math.isfinite(search.rate):
        progress(search.rate, bound())
    while queue:
        lowest, _, box = queue[0]
        if lowest >= search.rate * (1 - (gap or 0.0)) or deadline.passed:
            break
        heapq.heappop(queue)
        for half in _halves(box, pools):
            narrow = search.tightened(half)
            if narrow is None:
                continue
            own = max(lowest, search.bound_of(narrow))
            if all(low == high for low, high in narrow):
                single_bound = min(single_bound, own)
            elif own < search.rate:
                heapq.heappush(queue, (own, search.boxes, narrow))
            search.boxes += 1
        before = search.rate
        search.improve()
        if search.rate < before:
            progress(search.rate, bound())
    search.bound, search.stop = bound(), Stop.LIMIT if deadline.passed else Stop.PROVED
    return search
