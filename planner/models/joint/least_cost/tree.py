"""Best-first branch and bound over columns by lower bounds on capital.

A node is a strategy, its pipelines under a ZeRO stage, columns of these, a column, its shapes over so many sites, or
a shape. Its key is a lower bound on the capital of every plan in it that is in time: that of the fewest racks that
are in time on a network which slows nothing, with the least fabric. A node whose time on such a network is over the
limit is closed. Among plans of the least capital, to half a cent, the fastest is sought.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from planner.models.joint.columns import (
    Pipes,
    column_at,
    columns_of,
    free_seconds,
    pipelines_of,
    strategy_bound,
    under_zero,
)
from planner.models.joint.least_cost.floors import Floor
from planner.models.joint.least_cost.prices import Prices
from planner.models.joint.least_cost.shapes import CheapestSearch
from planner.models.joint.search import fastest
from planner.models.joint.sites import Part
from planner.models.joint.solve import Node
from planner.models.joint.space import Floats, Ints, Strategy, strategies
from planner.models.joint.split import Column
from planner.models.joint.bounds import Rows
from planner.models.joint.world import CENTS, EPS, Plan, Shape, ShapeProblem, World, open_sites, shapes
from planner.solvers.deadline import Deadline

SLICE = 1.02  # of capital: columns are listed for so much of it at a time
SAMPLED = 400  # strategies in which a first plan is sought
LIKELY_ZEROS = (1, 3)
LIKELY_PIPELINES = 4  # of a strategy under a ZeRO stage
DIVES = 20  # columns that are priced for it
KNOWN = 1.5  # times the least capital of a strategy: up to a cheapest plan no dearer its columns are listed at once


@dataclass(kw_only=True)
class CostTree:
    """The open nodes by capital, and the cheapest plan in time.

    `limit`: the most seconds a sequence; `budget`: the most capital.
    """

    world: World
    floor: Floor
    limit: float
    budget: float
    deadline: Deadline
    progress: Callable[[Plan], None]
    incumbent: Plan | None = None
    heap: list[tuple[float, float, int, Node]] = field(default_factory=list)
    order: Iterator[int] = field(default_factory=itertools.count)
    prices: dict[tuple[Part, ...], Prices] = field(default_factory=dict)
    bound: float = 0.0  # on the capital of every plan

    @property
    def capital(self) -> float:
        """Most capital that a plan may have to matter."""
        return self.budget + CENTS if self.incumbent is None else self.incumbent.capital_usd + CENTS

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

    def run(self) -> bool:
        """Expand nodes by their keys until none could hold the best plan; return whether a limit came first."""
        try:
            for s in strategies(self.world.problem):
                self.world.count("strategies")
                self.push(*_strategy_key(self, s), "strategy", s)
            if self.incumbent is None:
                _dive(self)
            while self.heap:
                if self.deadline.passed:
                    return True
                _, seconds, _, node = heapq.heappop(self.heap)
                usd, what = node.what
                if self.opens(usd, seconds):
                    self.bound = max(self.bound, usd)
                    self.world.count(f"{node.kind} nodes")
                    EXPAND[node.kind](self, usd, seconds, what)
        except KeyboardInterrupt:
            return True
        return False

    def keep(self, found: Plan) -> None:
        """Make a plan the incumbent if it is cheaper, or as cheap and faster."""
        before = self.incumbent
        if found.capital_usd > self.capital or found.seconds > self.limit * (1 + EPS):
            return
        if before is None or found.capital_usd < before.capital_usd - CENTS or found.seconds < before.seconds * (1 - EPS):
            self.incumbent = found
            self.world.count("incumbents")
            self.progress(found)


def _cents(usd: float) -> float:
    """Return capital to the cent, so that rounding does not set the order of equals."""
    return round(usd, 2)


def _strategy_key(tree: CostTree, s: Strategy) -> tuple[float, float]:
    """Bound the capital of a strategy by the racks on which its layers alone are in time; and its time."""
    seconds, shape, gpus = strategy_bound(tree.world, s), s.shape, s.problem.gpus
    if seconds >= tree.limit * (1 + EPS):
        return math.inf, seconds
    c = max(1, -(-shape.context_parallel // (gpus // shape.tensor_parallel)))
    stages = s.problem.layers * s.min_layer / (tree.limit * (1 + EPS) * shape.micro_batch)  # at work on layers
    racks = max(1, math.ceil(stages / (gpus // shape.gpus if c == 1 else 1 / c) * (1 - 1e-9)))
    return float(tree.floor.usd(racks, shape.gpus // c)), seconds


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """Racks of a block and GPUs of each cabled, by the stages of a strategy's pipeline."""

    racks: Ints
    rails: Ints


def _sizes(s: Strategy) -> BlockSizes:
    """Tabulate the blocks of a strategy by stages."""
    t, most = s.pipelines, s.problem.layers + 1
    racks, rails = np.zeros(most, dtype=np.int64), np.zeros(most, dtype=np.int64)
    racks[t.p], rails[t.p] = t.racks, t.rails
    return BlockSizes(racks, rails)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipesNode:
    """Pipelines of a strategy under a ZeRO stage, each with a floor; columns of less capital were opened before."""

    strategy: Strategy
    zero: int
    pipes: Pipes
    sizes: BlockSizes
    floors: Floats
    above: float

    def part(self, which: Any, floors: Floats, above: float) -> "PipesNode":
        """Return some of the pipelines, with other floors."""
        return replace(self, pipes=self.pipes.part(which), floors=floors, above=above)


def _expand_strategy(tree: CostTree, usd: float, _: float, s: Strategy) -> None:
    """Open the pipelines of a strategy under each ZeRO stage."""
    for zero in s.problem.options("zero_stage", range(4)):
        node = _pipes(tree, usd, s, zero)
        if node is not None:
            _push_pipes(tree, node)


def _pipes(tree: CostTree, usd: float, s: Strategy, zero: int) -> "PipesNode | None":
    """List the pipelines of a strategy under a ZeRO stage that may be in time and in memory, with their floors."""
    cutoff, sizes = tree.cutoff(usd), _sizes(s)
    keys, rows = pipelines_of(tree.world, s)
    most = tree.floor.max_blocks(tree.capital, sizes.racks[rows.p], sizes.rails[rows.p]) * rows.block_replicas
    rows = replace(rows, d=np.minimum(rows.d, most))
    kept = np.flatnonzero((keys < cutoff) & (rows.d >= 1) & (rows.d * s.shape.gpus >= s.shape.expert_parallel))
    pipes = under_zero(s, zero, rows.part(kept), keys[kept], cutoff)
    if pipes is None:
        return None
    total, b = s.problem.max_sequences // s.shape.micro_batch, s.shape.micro_batch
    late = np.maximum(tree.limit * (1 + EPS) * b - pipes.once / total, 1e-300)
    fewest = np.maximum(1, np.ceil(pipes.each / late * (1 - 1e-9))) if math.isfinite(tree.limit) else 1
    x, p = pipes.rows, pipes.rows.p
    floors = tree.floor.usd(np.ceil(fewest / x.block_replicas) * sizes.racks[p], sizes.rails[p])
    return PipesNode(
        strategy=s, zero=zero, pipes=pipes, sizes=sizes, floors=np.asarray(floors, dtype=np.float64), above=-1.0
    )


def _push_pipes(tree: CostTree, node: PipesNode) -> None:
    """Open pipelines at the least of their floors."""
    if len(node.floors):
        cheap = node.floors <= node.floors.min() + CENTS
        tree.push(float(node.floors.min()), float(node.pipes.keys[cheap].min()), "pipes", node)


def _expand_pipes(tree: CostTree, usd: float, _: float, node: PipesNode) -> None:
    """Open the columns of the next slice of capital, and what is left behind it."""
    top = tree.capital if tree.capital <= usd * KNOWN else max(usd * SLICE, usd + CENTS)
    found = _columns(tree, usd, node, top)
    _push_columns(tree, found, 0)
    rest, rows = node.floors.copy(), node.pipes.rows
    whole = _most(tree, node, top) >= rows.d
    rest[node.floors <= top] = np.nextafter(top, math.inf)
    left = np.flatnonzero((rest <= tree.capital) & ~whole)
    _push_pipes(tree, node.part(left, rest[left], top))


def _most(tree: CostTree, node: PipesNode, top: float) -> Ints:
    """Return the most replicas of each pipeline that a capital can pay."""
    x = node.pipes.rows
    found: Ints = tree.floor.max_blocks(top, node.sizes.racks[x.p], node.sizes.rails[x.p]) * x.block_replicas
    return found


def _columns(tree: CostTree, usd: float, node: PipesNode, top: float) -> "ColumnsNode":
    """List the columns of pipelines up to a capital that were not opened before, in its order, then that of time."""
    some = np.flatnonzero(node.floors <= top)
    x = node.pipes.part(some)
    most = np.minimum(x.rows.d, _most(tree, node, top)[some])
    pipes, s = replace(x, rows=replace(x.rows, d=most)), node.strategy
    tree.world.count("pipelines under the limits", len(some))
    found = columns_of(tree.world, s, node.zero, pipes, tree.cutoff(usd)) if len(some) else None
    if found is None:
        return ColumnsNode(s, node.zero, pipes.rows.part(slice(0, 0)), np.empty(0), np.empty(0))
    times, table = found
    prices = tree.floor.usd(table.blocks() * node.sizes.racks[table.p], node.sizes.rails[table.p])
    kept = np.flatnonzero((prices > node.above) & (prices <= min(top, tree.capital)))
    kept = kept[np.lexsort((times[kept], prices[kept]))]
    tree.world.count("columns under the limits", len(kept))
    return ColumnsNode(s, node.zero, table.part(kept), prices[kept], times[kept])


@dataclass(frozen=True, slots=True)
class ColumnsNode:
    """Columns of a strategy in the order of their capital, of equal ones of their time."""

    strategy: Strategy
    zero: int
    table: Rows
    floors: Floats
    times: Floats


def _push_columns(tree: CostTree, node: ColumnsNode, i: int) -> None:
    """Open the columns from a place on."""
    while i < len(node.times):
        usd, seconds = float(node.floors[i]), float(node.times[i])
        if tree.opens(usd, seconds):
            tree.push(usd, seconds, "columns", (node, i))
            return
        if usd > tree.capital:
            return
        i += 1


def _expand_columns(tree: CostTree, usd: float, seconds: float, what: tuple[ColumnsNode, int]) -> None:
    """Take the next column: open it with its time on a free network, and the rest behind it."""
    node, i = what
    column = column_at(node.strategy, node.zero, node.table, i)
    cutoff = tree.cutoff(usd)
    exact = free_seconds(tree.world, column, cutoff)
    tree.push(usd, max(exact, seconds), "column", column)
    _push_columns(tree, node, i + 1)


def _expand_column(tree: CostTree, usd: float, seconds: float, column: Column) -> None:
    """Open the shapes of a column over each number of sites."""
    for sites in open_sites(tree.world, column):
        tree.push(usd, seconds, "shapes", (column, shapes(column, sites)))


def _expand_shapes(tree: CostTree, usd: float, seconds: float, what: tuple[Column, Iterator[Shape]]) -> None:
    """Open the next shape of a column, and those behind it where they may still be in time."""
    column, rest = what
    shape = next(rest, None)
    if shape is None:
        return
    world, phi, cutoff = tree.world, tree.world.problem.transport_slowdown, tree.cutoff(usd)
    problem = ShapeProblem(world=world, column=column, shape=shape)
    most = replace(shape, min_replicas=max(shape.min_replicas, (column.d - 1) // len(shape.blocks) + 1))
    least = replace(problem, shape=most).bound(phi, phi, cutoff)
    if least >= cutoff:
        return
    racks = [problem.traffic.racks(g) for g in shape.blocks]
    floor = max(usd, tree.floor.usd_over(racks, problem.traffic.rails))
    own = least if most == shape else problem.bound(phi, phi, cutoff)
    world.count("shapes")
    tree.push(floor, max(seconds, own), "shape", ShapeNode(problem))
    tree.push(usd, max(seconds, least), "shapes", (column, rest))


@dataclass(slots=True)
class ShapeNode:
    """A shape under search by capital; `steps`: its lower bounds and plans, once it was begun."""

    problem: ShapeProblem
    steps: Iterator[float | Plan] | None = None


def _expand_shape(tree: CostTree, usd: float, seconds: float, node: ShapeNode) -> None:
    """Take a shape one step on: to a sharper bound, or to a plan."""
    best = tree.incumbent
    if best is not None and usd >= best.capital_usd - CENTS:
        _expand_ties(tree, usd, seconds, node.problem)
        return
    if node.steps is None:
        problem = replace(node.problem, world=_capped(tree))
        node.steps = CheapestSearch(
            shape_problem=problem, cutoff=tree.cutoff(usd), floor_usd=tree.floor, all_prices=tree.prices
        ).steps()
    step = next(node.steps, None)
    if isinstance(step, Plan):
        tree.keep(step)
        tree.push(step.capital_usd, seconds, "ties", node.problem)
    if step is not None:
        tree.push(max(usd, 0.0 if isinstance(step, Plan) else step), seconds, "shape", node)


def _expand_ties(tree: CostTree, usd: float, _: float, problem: ShapeProblem) -> None:
    """Seek the fastest plan of a shape that costs no more than the cheapest known."""
    found = fastest(replace(problem, world=_capped(tree)), tree.cutoff(usd))
    if found is not None:
        tree.keep(_priced(tree, found))


def _capped(tree: CostTree) -> World:
    """Return the world with the capital of the cheapest plan known as its budget, where plans differ in capital."""
    world, usd = tree.world, tree.budget if tree.incumbent is None else tree.incumbent.capital_usd
    if not math.isfinite(usd) or (world.sites is None and world.templates is None):
        return world
    instance = world.problem.instance
    limits = instance.limits.model_copy(update={"budget_usd": usd})
    return replace(world, problem=replace(world.problem, instance=instance.model_copy(update={"limits": limits})))


def _priced(tree: CostTree, plan: Plan) -> Plan:
    """Return a plan with its racks at the prices of the search, where no sites price them."""
    if tree.world.sites is not None:
        return plan
    block = plan.column.strategy.block(plan.column.p)
    racks = [g * block.racks for g in plan.shape.blocks] if block is not None else []
    fabrics = sum(t.usd for t in plan.templates.values())
    return replace(plan, capital_usd=replace(tree.floor, rail_usd=0.0).usd_over(racks, 0) + fabrics)


def _dive(tree: CostTree) -> None:
    """Find a first plan: price the columns of least floor among those of a sample of strategies."""
    best, found = math.inf, []
    nodes = sorted(tree.heap)
    for key, _, _, node in nodes[:: max(1, len(nodes) // SAMPLED)]:
        if key > best or tree.deadline.passed:
            break
        usd, s = node.what
        for zero in (z for z in s.problem.options("zero_stage", range(4)) if z in LIKELY_ZEROS):
            pipes = _pipes(tree, usd, s, zero)
            if pipes is None or pipes.floors.min() > best:
                continue
            few = np.lexsort((pipes.pipes.keys, pipes.floors))[:LIKELY_PIPELINES]
            likely = pipes.part(few, pipes.floors[few], -1.0)
            columns = _columns(tree, usd, likely, float(likely.floors.min()) * SLICE + CENTS)
            if len(columns.times):
                best = min(best, float(columns.floors[0]))
                found.append((float(columns.floors[0]), len(found), columns))
    for usd, _, columns in sorted(found, key=lambda x: x[:2])[:DIVES]:
        if tree.incumbent is not None or tree.deadline.passed:
            return
        _price(tree, usd, column_at(columns.strategy, columns.zero, columns.table, 0))


def _price(tree: CostTree, usd: float, column: Column) -> None:
    """Keep the first plan of the most even shape of a column."""
    for sites in open_sites(tree.world, column):
        shape = next(shapes(column, sites), None)
        if shape is None:
            continue
        problem = ShapeProblem(world=_capped(tree), column=column, shape=shape)
        search = CheapestSearch(
            shape_problem=problem, cutoff=tree.cutoff(usd), floor_usd=tree.floor, all_prices=tree.prices
        )
        for step in search.steps():
            if isinstance(step, Plan):
                tree.keep(step)
                return
            if step > tree.capital:
                break


EXPAND: dict[str, Callable[[CostTree, float, float, Any], None]] = {
    "strategy": _expand_strategy,
    "pipes": _expand_pipes,
    "columns": _expand_columns,
    "column": _expand_column,
    "shapes": _expand_shapes,
    "shape": _expand_shape,
    "ties": _expand_ties,
}
