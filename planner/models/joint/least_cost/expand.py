"""Best-first branch and bound over columns by lower bounds on capital: how each node is expanded."""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from planner.models.joint.columns import (
    column_at,
    columns_of,
    free_seconds,
    pipelines_of,
    strategy_bound,
    under_zero,
)
from planner.models.joint.least_cost.shapes import CheapestSearch
from planner.models.joint.least_cost.tree import BlockSizes, ColumnsNode, CostTree, PipesNode, ShapeNode
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.search import fastest
from planner.models.joint.space import Ints, Strategy
from planner.models.joint.split import Column
from planner.models.joint.tree.tree import Stopped
from planner.models.joint.world import CENTS, EPS, Plan, Shape, World, open_sites, shapes, spared
from planner.solvers.deadline import OutOfTimeError
from planner.solvers.outcome import UnansweredError

SLICE = 1.02  # of capital: columns are listed for so much of it at a time
SAMPLED = 400  # strategies in which a first plan is sought
LIKELY_ZEROS = (1, 3)
LIKELY_PIPELINES = 4  # of a strategy under a ZeRO stage
DIVES = 20  # columns that are priced for it
KNOWN = 1.5  # times the least capital of a strategy: up to a cheapest plan no dearer its columns are listed at once


def run(tree: CostTree) -> Stopped:
    """Expand nodes by their keys until none could hold the best plan; return whether that or a limit came first."""
    try:
        for s in tree.world.strategies():
            tree.deadline.check()
            tree.world.count("strategies")
            tree.push(*_strategy_key(tree, s), "strategy", s)
        if tree.incumbent is None:
            _dive(tree)
        while tree.heap:
            tree.deadline.check()
            _, seconds, _, node = heapq.heappop(tree.heap)
            usd, what = node.what
            if tree.opens(usd, seconds):
                tree.raise_bound(usd)
                tree.world.count(f"{node.kind} nodes")
                EXPAND[node.kind](tree, usd, seconds, what)
    except OutOfTimeError:
        return tree.deadline.cause
    except UnansweredError as error:
        tree.failure = str(error)
        return "limit"
    except KeyboardInterrupt:
        return "interrupted"
    return "proved"


def _strategy_key(tree: CostTree, s: Strategy) -> tuple[float, float]:
    """Bound the capital of a strategy by the racks on which its layers alone are in time; and its time."""
    seconds, shape, gpus = strategy_bound(tree.world, s), s.shape, s.problem.gpus
    if seconds >= tree.limit * (1 + EPS):
        return math.inf, seconds
    c = max(1, -(-shape.context_parallel // (gpus // shape.tensor_parallel)))
    stages = s.least_layers * s.layer / (tree.limit * (1 + EPS) * shape.micro_batch)  # at work on layers
    racks = max(1, math.ceil(stages / (gpus // shape.gpus if c == 1 else 1 / c) * (1 - 1e-9)))
    return float(tree.floor.usd(racks, shape.gpus // c)), seconds


def _sizes(s: Strategy) -> BlockSizes:
    """Tabulate the blocks of a strategy by stages."""
    t, most = s.pipelines, s.problem.layers + 1
    racks, rails = np.zeros(most, dtype=np.int64), np.zeros(most, dtype=np.int64)
    racks[t.p], rails[t.p] = t.racks, t.rails
    return BlockSizes(racks, rails)


def _expand_strategy(tree: CostTree, usd: float, _: float, s: Strategy) -> None:
    """Open the pipelines of a strategy under each ZeRO stage."""
    for zero in s.problem.zero_stages:
        node = _pipes(tree, usd, s, zero)
        if node is not None:
            _push_pipes(tree, node)


def _pipes(tree: CostTree, usd: float, s: Strategy, zero: int) -> "PipesNode | None":
    """List the pipelines of a strategy under a ZeRO stage that may be in time and memory, with bounds on capital."""
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
    least_usd = tree.floor.usd(np.ceil(fewest / x.block_replicas) * sizes.racks[p], sizes.rails[p])
    return PipesNode(
        strategy=s, zero=zero, pipes=pipes, sizes=sizes, least_usd=np.asarray(least_usd, dtype=np.float64), above=-1.0
    )


def _push_pipes(tree: CostTree, node: PipesNode) -> None:
    """Open pipelines at the least of their bounds on capital."""
    if len(node.least_usd):
        cheap = node.least_usd <= node.least_usd.min() + CENTS
        tree.push(float(node.least_usd.min()), float(node.pipes.keys[cheap].min()), "pipes", node)


def _expand_pipes(tree: CostTree, usd: float, _: float, node: PipesNode) -> None:
    """Open the columns of the next slice of capital, and what is left behind it."""
    top = tree.capital if tree.capital <= usd * KNOWN else max(usd * SLICE, usd + CENTS)
    found = _columns(tree, usd, node, top)
    _push_columns(tree, found, 0)
    rest, rows = node.least_usd.copy(), node.pipes.rows
    whole = _most(tree, node, top) >= rows.d
    rest[node.least_usd <= top] = np.nextafter(top, math.inf)
    left = np.flatnonzero((rest <= tree.capital) & ~whole)
    _push_pipes(tree, node.part(left, rest[left], top))


def _most(tree: CostTree, node: PipesNode, top: float) -> Ints:
    """Return the most replicas of each pipeline that a capital can pay."""
    x = node.pipes.rows
    found: Ints = tree.floor.max_blocks(top, node.sizes.racks[x.p], node.sizes.rails[x.p]) * x.block_replicas
    return found


def _columns(tree: CostTree, usd: float, node: PipesNode, top: float) -> "ColumnsNode":
    """List the columns of pipelines up to a capital that were not opened before, in its order, then that of time."""
    some = np.flatnonzero(node.least_usd <= top)
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


def _push_columns(tree: CostTree, node: ColumnsNode, i: int) -> None:
    """Open the columns from a place on."""
    while i < len(node.times):
        usd, seconds = float(node.least_usd[i]), float(node.times[i])
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
    block = column.strategy.block(column.p)
    if block is None:
        return
    racks = block.blocks(column.d) * block.racks
    for choice in spared(tree.world, column):
        for sites in open_sites(tree.world, choice):
            floor = tree.floor.usd_at(sites, racks, block.rails)
            tree.push(max(usd, floor), seconds, "shapes", (choice, shapes(choice, sites)))


def _expand_shapes(tree: CostTree, usd: float, seconds: float, what: tuple[Column, Iterator[Shape]]) -> None:
    """Open the next shape of a column, and those behind it where they may still be in time."""
    column, rest = what
    shape = next(rest, None)
    if shape is None:
        return
    world, phi, cutoff = _capped(tree), tree.world.problem.transport_slowdown, tree.cutoff(usd)
    problem = ShapeProblem(world=world, column=column, shape=shape)
    most = replace(shape, min_replicas=max(shape.min_replicas, (column.d - 1) // len(shape.blocks) + 1))
    fibre = problem.best_fibre
    nearest = None if fibre is None else replace(fibre, rtt_ms=min(problem.rtts_ms, default=0.0))
    least = replace(problem, shape=most).bound(phi, phi, cutoff, nearest, stretch=problem.free_stretch)
    if least >= cutoff:
        return
    racks = [problem.traffic.racks(g) for g in shape.blocks]
    floor = max(usd, tree.floor.usd_over(racks, problem.traffic.rails))
    own = problem.bound(phi, phi, cutoff, fibre)
    world.count("shapes")
    tree.push(floor, max(seconds, own), "shape", ShapeNode(problem))
    tree.push(usd, max(seconds, least), "shapes", (column, rest))


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
    best = math.inf
    found: list[tuple[float, int, ColumnsNode]] = []
    nodes = sorted(tree.heap)
    for key, _, _, node in nodes[:: max(1, len(nodes) // SAMPLED)]:
        tree.deadline.check()
        if key > best:
            break
        usd, s = node.what
        zeros = s.problem.zero_stages
        for zero in [z for z in zeros if z in LIKELY_ZEROS] or zeros:
            pipes = _pipes(tree, usd, s, zero)
            if pipes is None or pipes.least_usd.min() > best:
                continue
            few = np.lexsort((pipes.pipes.keys, pipes.least_usd))[:LIKELY_PIPELINES]
            likely = pipes.part(few, pipes.least_usd[few], -1.0)
            columns = _columns(tree, usd, likely, float(likely.least_usd.min()) * SLICE + CENTS)
            if len(columns.times):
                best = min(best, float(columns.least_usd[0]))
                found.append((float(columns.least_usd[0]), len(found), columns))
    for usd, _, columns in sorted(found, key=lambda x: x[:2])[:DIVES]:
        tree.deadline.check()
        if tree.incumbent is not None:
            return
        _price(tree, usd, column_at(columns.strategy, columns.zero, columns.table, 0))


def _price(tree: CostTree, usd: float, column: Column) -> None:
    """Keep the first plan of the most even shape of a column with the likeliest spares."""
    choices = spared(tree.world, column)
    for sites, choice in itertools.product(open_sites(tree.world, column), choices):
        shape = next(shapes(choice, sites), None)
        if shape is None:
            continue
        problem = ShapeProblem(world=_capped(tree), column=choice, shape=shape)
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
