"""The goal of a search: the order in which nodes are opened, those that stay closed, and the pricing of shapes."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import numpy as np

from planner.models.joint.columns import StrategyTable, most_blocks
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.search.ranges import Ranges, all_ranges
from planner.models.joint.space import Flags, Floats, Ints
from planner.models.joint.split import Column
from planner.models.joint.world import JointPlan, World

Key = tuple[float, float]
Node = tuple[Key, int, float, float, Any]  # its key, its place among equals, its seconds, its capital, and what it is
Stopped = Literal["proved", "limit", "interrupted"]
LINE_SECONDS = 2.0  # between lines on the progress


class OpenNodes(Protocol):
    """The open nodes of a search, as far as its goal looks at them."""

    @property
    def heap(self) -> list[Node]:
        """The nodes, that of the least key first."""

    @property
    def least_key(self) -> float:
        """The least key of all nodes that are open."""


class Goal(ABC):
    """A goal of the search. A node is a set of plans, none faster than t seconds a sequence or cheaper than c dollars.

    Floors are of a sequence on a clock, and of capital as the goal counts it; one that it does not count is 0.
    """

    world: World
    incumbent: JointPlan | None = None

    @property
    def goes_on(self) -> bool:
        """Whether another goal continues the search, so that nodes and answers that it may need are kept."""
        return False

    @property
    def counts_capital(self) -> bool:
        """Whether floors of capital put nodes in order."""
        return True

    @property
    def has_plan(self) -> bool:
        """Whether there is a plan yet."""
        return self.incumbent is not None

    @property
    def has_rival(self) -> bool:
        """Whether a plan of this search or of another is known, which plans of use must beat."""
        return self.has_plan

    @property
    def has_plan_in_time(self) -> bool:
        """Whether there is a plan that meets the deadline of the instance."""
        return self.has_plan

    @abstractmethod
    def keys(self, t: Floats, c: Floats) -> Floats:
        """Return the order in which nodes of such floors are opened; infinite: they hold no plan of use."""

    @abstractmethod
    def key(self, t: float, c: float) -> Key | None:
        """Return the key of one node, and the tie-breaker between equal keys; None: it holds no plan of use."""

    def opens(self, t: float, c: float) -> bool:
        """Return whether a node of such floors may hold a plan of use."""
        return self.key(t, c) is not None

    @abstractmethod
    def cutoffs(self, c: Floats) -> Floats:
        """Return the seconds from which plans of at least such capital are of no use."""

    def cutoff(self, c: float) -> float:
        """Return the seconds from which plans of at least a capital are of no use."""
        return float(self.cutoffs(np.array([c]))[0])

    def begin(self, loop: OpenNodes) -> None:
        """Seek first plans, once a sample of strategies is open."""

    def all_open(self) -> None:
        """Seek better plans, once all strategies are open."""

    def tick(self) -> None:
        """Stop at the limit; say now and then where the search is."""
        self.world.deadline.check()

    def reached(self, t: float, c: float, what: Any) -> bool:
        """Take note of the node that is opened next; return whether the search ends before it."""
        return False

    def first_ranges(self, of: StrategyTable) -> Iterator[Ranges]:
        """Yield the ranges of blocks from which the pipelines of a strategy are searched."""
        most = np.minimum(np.maximum(of.rows.blocks(), 1), most_blocks(self.world, of))
        yield all_ranges(of, np.zeros_like(most), most, np.arange(len(most)))

    def worthwhile(self, x: Ranges) -> Ranges:
        """Return the ranges whose pipelines may hold a plan of use, whatever its seconds and capital."""
        return x

    def usd(self, racks: Any, rails: Any) -> Floats:
        """Bound the capital of a number of racks with a number of GPUs of each cabled."""
        return np.zeros(np.broadcast(racks, rails).shape)

    def most_blocks(self, x: Ranges) -> Ints:
        """Return the most blocks of ranges that the capital of a plan of use may pay."""
        return np.minimum(x.high, most_blocks(self.world, x.of)[x.at])

    def hot(self, x: Ranges, keys: Floats) -> Flags:
        """Return which ranges of a batch are opened now."""
        return keys < np.inf

    def wide(self, x: Ranges, key: float) -> Flags:
        """Return which ranges are halved before their columns are listed."""
        return np.zeros(len(x.at), dtype=bool)

    @abstractmethod
    def slice(self, x: Ranges, key: float) -> tuple[Ints, Floats]:
        """Return up to how many blocks of each range, and under how many seconds, columns are listed now."""

    def groups(self, entries: Ints, t: Floats, c: Floats) -> list[Ints]:
        """Put columns in order, by groups in which those behind a column have no lower keys."""
        # `entries` names the pipeline and the blocks of each.
        return [np.lexsort((t, c))]

    def column_floor(self, column: Column, c: float) -> float:
        """Sharpen the floor of capital of columns with as many blocks."""
        return c

    def timed(self, column: Column, seconds: float) -> None:
        """Take note of the time of a column on a free network."""

    def opened(self, loop: OpenNodes, t: float, c: float, column: Column) -> None:
        """Take note of a column that is opened at its time on a free network."""

    def sites_floor(self, column: Column, sites: int, c: float) -> float:
        """Bound the capital of a column at a number of sites."""
        return c

    def shape_floor(self, q: ShapeProblem, c: float) -> float:
        """Bound the capital of a shape."""
        return c

    def known_unhoused(self, q: ShapeProblem) -> bool:
        """Return whether it is known, without a question to the sites, that the money pays none for a shape."""
        return q.known_unhoused

    def refuses(self, column: Column, seconds: float) -> bool:
        """Return whether it is known before a column is timed, which its bound says, that the money pays none of it."""
        return False

    def houses(self, q: ShapeProblem) -> bool:
        """Return whether the money may pay sites for a shape; where it does not, it pays none for less even ones."""
        return q.may_be_housed

    def pays(self, q: ShapeProblem) -> bool:
        """Return whether the money may pay the racks of a shape."""
        return True

    @property
    def shapes_world(self) -> World:
        """The world whose budget shapes may spend."""
        return self.world

    @abstractmethod
    def begin_shape(self, q: ShapeProblem) -> Any:
        """Return the search state of a shape that is opened, which `price` receives."""

    @abstractmethod
    def price(self, t: float, c: float, shape: Any) -> tuple[float, float] | None:
        """Advance the search of a shape by a step, which may keep plans; return the floors of the rest, if any."""

    def least_usd(self, shape: Any) -> float:
        """Return the least capital that pricing a shape found for any plan of it that goals that go on may keep."""
        return 0.0

    @abstractmethod
    def keep(self, plan: JointPlan) -> Any:
        """Hold a plan if it is of use."""
