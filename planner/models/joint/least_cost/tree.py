"""The open nodes of a search by capital, and the cheapest plan in time.

A node is a strategy, its pipelines under a ZeRO stage, columns of these, a column, its shapes over so many sites, or
a shape. Its key is a lower bound on the capital of every plan in it that is in time: that of the fewest racks that
are in time on a network which slows nothing, with the least fabric. Among plans of the least capital, to half a cent,
the fastest is sought.
"""

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from planner.models.joint.bounds import Rows
from planner.models.joint.columns import Pipes
from planner.models.joint.least_cost.floor import Floor
from planner.models.joint.least_cost.prices import Prices
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.places.site_question import Part
from planner.models.joint.space import Floats, Ints, Strategy
from planner.models.joint.tree.tree import LINE_SECONDS, Node
from planner.models.joint.world import CENTS, EPS, Plan, World
from planner.solvers.deadline import Deadline


@dataclass(kw_only=True)
class CostTree:
    """The open nodes by capital, and the cheapest plan in time.

    `limit`: the most seconds a sequence; `budget`: the most capital; `ties`: whether the fastest of the cheapest is
    sought; without, a plan that is not cheaper by more than `gap` does not matter.
    """

    world: World
    floor: Floor
    limit: float
    budget: float
    deadline: Deadline
    progress: Callable[[Plan], None]
    bounded: Callable[[float], None] = lambda _: None  # called now and then with the bound
    ties: bool = True
    gap: float = 0.0
    incumbent: Plan | None = None
    heap: list[tuple[float, float, int, Node]] = field(default_factory=list)
    order: Iterator[int] = field(default_factory=itertools.count)
    prices: dict[tuple[Part, ...], Prices] = field(default_factory=dict)
    bound: float = 0.0  # on the capital of every plan
    failure: str = ""  # what a back end said that ended the search
    spoke: float = field(default_factory=time.perf_counter)

    @property
    def capital(self) -> float:
        """Most capital that a plan may have to matter."""
        if self.incumbent is None:
            return self.budget + CENTS
        usd = self.incumbent.capital_usd
        return usd + CENTS if self.ties else usd / (1 + self.gap) - 2 * CENTS

    def cutoff(self, usd: float) -> float:
        """Seconds a sequence below which a plan must be that costs at least so much."""
        if self.incumbent is None or usd < self.incumbent.capital_usd - CENTS:
            return self.limit * (1 + EPS)
        return self.incumbent.seconds * (1 - EPS)

    def opens(self, usd: float, seconds: float) -> bool:
        """Return whether a plan of at least such capital and time could be the best."""
        return usd <= self.capital and usd < math.inf and seconds < self.cutoff(usd)

    def push(self, usd: float, seconds: float, kind: str, what: Any) -> None:
        """Open a node if it could hold the best plan; equal capital goes by time."""
        if self.opens(usd, seconds):
            heapq.heappush(self.heap, (_cents(usd), seconds, next(self.order), Node(kind, (usd, what))))

    def raise_bound(self, usd: float) -> None:
        """Raise the bound to the least capital of the open nodes; report it every two seconds."""
        self.bound = max(self.bound, usd)
        if time.perf_counter() - self.spoke >= LINE_SECONDS:
            self.spoke = time.perf_counter()
            self.bounded(self.bound)

    def keep(self, found: Plan) -> None:
        """Make a plan the incumbent if it is cheaper, or as cheap and faster."""
        before = self.incumbent
        if found.capital_usd > self.capital or found.seconds > self.limit * (1 + EPS):
            return
        if (
            before is None
            or found.capital_usd < before.capital_usd - CENTS
            or found.seconds < before.seconds * (1 - EPS)
        ):
            self.incumbent = found
            self.world.count("incumbents")
            self.progress(found)


def _cents(usd: float) -> float:
    """Return capital to the cent, so that rounding does not set the order of equals."""
    return round(usd, 2)


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """Racks of a block and GPUs of each cabled, by the stages of a strategy's pipeline."""

    racks: Ints
    rails: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class PipesNode:
    """Pipelines of a strategy under a ZeRO stage, each with a floor; columns of less capital were opened before."""

    strategy: Strategy
    zero: int
    pipes: Pipes
    sizes: BlockSizes
    least_usd: Floats
    above: float

    def part(self, which: Any, least_usd: Floats, above: float) -> "PipesNode":
        """Return some of the pipelines, with other bounds on capital."""
        return replace(self, pipes=self.pipes.part(which), least_usd=least_usd, above=above)


@dataclass(frozen=True, slots=True)
class ColumnsNode:
    """Columns of a strategy in the order of their capital, of equal ones of their time."""

    strategy: Strategy
    zero: int
    table: Rows
    least_usd: Floats
    times: Floats


@dataclass(slots=True)
class ShapeNode:
    """A shape under search by capital; `steps`: its lower bounds and plans, once it was begun."""

    problem: ShapeProblem
    steps: Iterator[float | Plan] | None = None
