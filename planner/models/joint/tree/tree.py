"""The open nodes of the search and its incumbent."""

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from planner.models.joint.space import Problem
from planner.models.joint.split import Column
from planner.models.joint.world import EPS, Plan, Target, World
from planner.physics.training.layer_time import SECONDS_PER_DAY
from planner.solvers.deadline import Deadline
from planner.solvers.running.progress import report

Stopped = Literal["proved", "limit", "interrupted"]
LINE_SECONDS = 2.0  # between lines on the progress
NEAR = 1.02  # above the least time on a free network: most optima lie below
STEP = 1.1  # from one bound to the next up to which a strategy's columns are worked out
SMALL_STEPS, STEPS = 8, 16  # how often; the later ones square the factor each time


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the space; `kind` says how it is expanded."""

    kind: str
    what: Any


@dataclass(kw_only=True)
class Tree:
    """The open nodes, each with a lower bound in seconds a sequence, and the incumbent.

    `free`: the least bound of a column on a network that slows nothing, of all that were opened. `guess`: the least
    time of a column on such a network that is known.
    """

    world: World
    progress: Callable[[str], None]
    deadline: Deadline
    gap: float = 0.0
    heap: list[tuple[float, int, Node]] = field(default_factory=list)
    order: Iterator[int] = field(default_factory=itertools.count)
    current: float = 0.0  # key of the node that is being expanded; none is known before the first
    incumbent: Plan | None = None
    free: float = math.inf
    opened: list[tuple[float, Column]] = field(default_factory=list)  # columns, with their bounds
    guess: float = math.inf
    failure: str = ""  # what a back end said that ended the search
    first: Callable[[World], Column | None] | None = None  # names a column to price before any other
    descended: set[tuple[int, int, int]] = field(default_factory=set)  # strategies and pipelines: fewer blocks tried
    spoke: float = field(default_factory=time.perf_counter)

    @property
    def target(self) -> Target:
        """What a plan must beat."""
        best, budget = self.incumbent, self.world.budget
        return Target(budget=budget) if best is None else Target(best.seconds, best.capital_usd, budget)

    @property
    def cutoff(self) -> float:
        """Seconds a sequence above which no plan matters: those of the incumbent, which may be had for less money."""
        return self.target.cutoff

    @property
    def bound(self) -> float:
        """Seconds a sequence that no plan is below."""
        least = min(self.heap[0][0] if self.heap else math.inf, self.current, self.world.given_up)
        return least if self.incumbent is None else min(least, self.incumbent.seconds)

    @property
    def distance(self) -> float:
        """The gap: incumbent less bound, relative to the incumbent."""
        return math.inf if self.incumbent is None else 1 - self.bound / self.incumbent.seconds

    def push(self, key: float, kind: str, what: Any) -> None:
        """Open a node if its bound is not above the incumbent."""
        if key <= self.cutoff and math.isfinite(key):
            heapq.heappush(self.heap, (key, next(self.order), Node(kind, what)))

    def pop(self) -> tuple[float, Node] | None:
        """Take the node of least bound; None where the incumbent is within the gap of all of them."""
        self.current = math.inf
        if not self.heap or self.heap[0][0] > self.cutoff or (self.gap > 0 and self.distance <= self.gap):
            return None
        self.current, _, node = heapq.heappop(self.heap)
        return self.current, node

    def horizon(self, key: float, times: int) -> float:
        """Return the bound up to which a strategy's columns are worked out at once.

        A little above what is known to be reached, else a step above its key; larger steps at last, then all.
        """
        if math.isfinite(self.guess) and key < NEAR * self.guess:
            step = min(STEP * key, NEAR * self.guess)
        elif times < SMALL_STEPS:
            step = STEP * key
        else:
            step = key * STEP ** (2 ** (times - SMALL_STEPS)) if times < STEPS else math.inf
        return min(self.cutoff * (1 + EPS), step)

    def keep(self, found: Plan) -> None:
        """Make a plan the incumbent if it is faster, or as fast and cheaper."""
        if self.incumbent is None or self.target.improved_by(found.seconds, found.capital_usd):
            self.incumbent = found
            self.world.count("incumbents")
            self.speak(f", ${found.capital_usd / 1e9:,.3f}B: ", describe(found))

    def tick(self) -> None:
        """Stop at the limit; say where the search stands every two seconds."""
        self.deadline.check()
        if time.perf_counter() - self.spoke >= LINE_SECONDS:
            self.speak("")

    def speak(self, more: str, choices: str = "") -> None:
        """Report value, bound and gap."""
        self.spoke = time.perf_counter()
        problem, best, bound = self.world.problem, self.incumbent, self.bound
        known = days(problem, bound) if math.isfinite(bound) and bound > 0 else None
        limit = "no bound yet" if known is None else f"bound {known:,.1f}"
        if best is None:
            report(self.progress, f"no plan yet, {limit}", None, known)
            return
        value = days(problem, best.seconds)
        line = f"{value:,.1f} days, {limit}, gap {100 * self.distance:.1f} %{more}{choices}"
        report(self.progress, line, value, known, choices)


def days(problem: Problem, seconds: float) -> float:
    """Return the days to train at so many seconds a sequence."""
    w = problem.instance.workload
    return w.tokens / w.sequence_length * seconds / w.availability / SECONDS_PER_DAY


def describe(found: Plan) -> str:
    """Return a plan's choices in a line."""
    c = found.column
    s = c.strategy.shape
    return (
        f"TP {s.tensor_parallel} x CP {s.context_parallel} x PP {c.p}, v {c.v}, {c.d} replicas, "
        f"{c.m} micro-batches, blocks {'+'.join(map(str, found.shape.blocks))}"
    )
