"""Columns alone: the fastest on so many racks, and the fewest racks in time, on a network that slows nothing.

No grid, no fabric and no prices: the network slows sends and allreduces by its transport alone.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from planner.instance.instance import Instance
from planner.models.joint.solve import EXPAND, Tree, _likely, _run, SAMPLED
from planner.models.joint.columns import strategy_bound
from planner.models.joint.space import Problem, problem_of, strategies
from planner.models.joint.world import EPS, Plan, World
from planner.solvers.deadline import Deadline


@dataclass(kw_only=True)
class FreeTree(Tree):
    """Open nodes below a ceiling that a column on a free network reaches."""

    ceiling: float = math.inf

    @property
    def cutoff(self) -> float:
        """Seconds a sequence above which nothing matters."""
        return self.ceiling * (1 + EPS)


def least_seconds(world: World, deadline: Deadline) -> float | None:
    """Bound the seconds a sequence of every plan: the fastest column on the most racks that the money may buy.

    Infinite where no column fits; None where the limit came first.
    """
    tree = FreeTree(world=world, progress=lambda _: None, deadline=deadline)
    for s in strategies(world.problem):
        tree.push(strategy_bound(world, s), "strategy", s)
    nodes = sorted(tree.heap)
    for bound, _, node in nodes[:: max(1, len(nodes) // SAMPLED)]:
        if bound >= tree.ceiling or deadline.passed:
            break
        for exact, _ in _likely(world, node.what, tree.ceiling):
            tree.ceiling = min(tree.ceiling, exact)
    while tree.heap:
        if deadline.passed:
            return None
        key, _, node = heapq.heappop(tree.heap)
        if node.kind == "column":
            return key
        EXPAND[node.kind](tree, key, node.what)
    return math.inf
