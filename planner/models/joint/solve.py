"""The joint optimum by best-first branch and bound.

Columns in the order of their lower bounds, each priced with sites, fabrics and fibre. A node is a strategy, a
pipeline of it, a column (counts of replicas and micro-batches), the column with its best split on a free network, or
a shape of it. Its key is a lower bound, in seconds a sequence, on every plan in it; nodes are expanded in the order
of their keys until none is below the incumbent. Nothing is left out that a bound does not exclude.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from planner.instance.instance import Instance
from planner.models.joint.bounds import Rows
from planner.models.joint.columns import column_at, columns_of, free_seconds, pipelines_of, strategy_bound, under_zero
from planner.models.joint.search import Candidate, Search, fastest
from planner.models.joint.sites import Sites
from planner.models.joint.solution import OUTSIDE, SPACE, JointSolution, JointStatus
from planner.models.joint.space import Floats, Problem, Strategy, problem_of, strategies
from planner.models.joint.split import Column
from planner.models.joint.templates import Templates
from planner.models.joint.world import EPS, Plan, Shape, ShapeProblem, World, open_sites, shapes
from planner.models.requests import Options
from planner.solvers.deadline import Deadline

DAY = 86_400
DIVES = 40  # columns that are tried for a first incumbent
SAMPLED = 400  # strategies that are looked at for it
LIKELY_ZEROS = (1, 3)
DESCENTS = 6  # columns of least bound that are tried with fewer blocks
FEWER_BLOCKS = 8  # with which a first incumbent is sought


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the space; `kind` says how it is expanded."""

    kind: str
    what: Any


@dataclass(kw_only=True)
class Tree:
    """The open nodes, the incumbent.

    And the least lower bound of all that was left out on a network that slows nothing.
    """

    world: World
    progress: Callable[[str], None]
    deadline: Deadline
    heap: list[tuple[float, int, Node]] = field(default_factory=list)
    order: Iterator[int] = field(default_factory=itertools.count)
    incumbent: Plan | None = None
    free: float = math.inf
    descended: set[tuple[int, int, int]] = field(default_factory=set)  # strategies and pipelines: fewer blocks tried

    @property
    def cutoff(self) -> float:
        """Seconds a sequence that a plan must be below to matter."""
        return math.inf if self.incumbent is None else self.incumbent.seconds * (1 - EPS)

    def push(self, key: float, kind: str, what: Any) -> None:
        """Open a node if its bound is below the incumbent."""
        if key < self.cutoff:
            heapq.heappush(self.heap, (key, next(self.order), Node(kind, what)))

    def out_of_time(self) -> bool:
        """Return whether the limit has passed."""
        return self.deadline.passed


def solve_joint(
    instance: Instance,
    options: Options,
    progress: Callable[[str], None],
    *,
    overhead_includes_fabric: bool = False,
) -> JointSolution:
    """Return the plan of fewest days over the declared space, proven, or the best one in time with its lower bound."""
    deadline, problem = Deadline(options.time_limit), problem_of(instance)
    sites = (
        Sites(instance=instance, overhead_includes_fabric=overhead_includes_fabric, seed=options.seed)
        if instance.grid is not None
        else None
    )
    counts_power = sites is not None and sites.counts_power
    phi = problem.transport_slowdown
    templates = (
        Templates(instance=instance, transport_slowdown=phi, power_counts=counts_power)
        if instance.network is not None
        else None
    )
    world = World(problem=problem, sites=sites, templates=templates)
    tree = Tree(world=world, progress=progress, deadline=deadline)
    for s in strategies(problem):
        world.count("strategies")
        tree.push(strategy_bound(world, s), "strategy", s)
    stopped = _run(tree)
    return _solution(tree, stopped=stopped)


def _run(tree: Tree) -> bool:
    """Expand nodes by their keys until none is below the incumbent; return whether the limit came first."""
    _dive(tree)
    while tree.heap and tree.heap[0][0] < tree.cutoff:
        if tree.out_of_time():
            return True
        key, _, node = heapq.heappop(tree.heap)
        tree.world.count(f"{node.kind} nodes")
        EXPAND[node.kind](tree, key, node.what)
    return False


def _dive(tree: Tree) -> None:
    """Find a first incumbent: price the columns that are fastest on a free network.

    Of the strategies of least bound.
    """
    best = math.inf
    found: list[tuple[float, int, Column]] = []
    nodes = sorted(tree.heap)
    for bound, _, node in nodes[:: max(1, len(nodes) // SAMPLED)]:
        if bound >= best or tree.out_of_time():
            break
        for exact, column in _likely(tree.world, node.what, best):
            found.append((exact, len(found), column))
            best = min(best, exact)
    for _, _, column in sorted(found)[:DIVES]:
        if tree.out_of_time() or _descend(tree, column):
            return


def _descend(tree: Tree, column: Column) -> bool:
    """Price a column with fewer and fewer blocks, which leave more money to fabrics, as long as that is faster.

    Return whether any could be.
    """
    block = column.strategy.block(column.p)
    priced = False
    pinned = any(column.strategy.problem.pin(name) is not None for name in ("data_parallel", "microbatches_per_step"))
    for k in range(0 if block is None else 1 if pinned else FEWER_BLOCKS):
        replicas = column.d - k * (block.replicas if block is not None else 1)
        if replicas < 1:
            break
        total = column.strategy.problem.max_sequences // column.strategy.shape.micro_batch
        tried = [
            m for m in (total // replicas, total // replicas // column.p * column.p) if m >= column.p and not pinned
        ] or [column.m]
        found = [replace(column, d=replicas, m=m) for m in tried]
        timed = min(((free_seconds(tree.world, c, tree.cutoff), i) for i, c in enumerate(found)), default=(math.inf, 0))
        if timed[0] >= tree.cutoff:
            if priced:
                break
            continue
        shape_problem = _first_shape(tree, found[timed[1]])
        plan = None if shape_problem is None else fastest(shape_problem, tree.cutoff)
        if plan is not None:
            _keep(tree, plan)
            priced = True
    return priced


def _likely(world: World, s: Strategy, cutoff: float) -> Iterator[tuple[float, Column]]:
    """Yield columns of a strategy with almost as many blocks as there can be, with their times on a free network."""
    keys, table = pipelines_of(world, s)
    few = np.flatnonzero(keys < cutoff)
    few = few[np.argsort(keys[few], kind="stable")]
    zeros = s.problem.options("zero_stage", range(4))
    for zero in [z for z in zeros if z in LIKELY_ZEROS] or zeros:
        found = under_zero(s, zero, table.part(few), keys[few], cutoff)
        cells = (
            None
            if found is None
            else columns_of(world, s, zero, found.part(np.argsort(found.keys)[:4]), cutoff, max_blocks_off=2)
        )
        if cells is None:
            continue
        times, columns = cells
        for j in np.argsort(times, kind="stable")[:3]:
            column = column_at(s, zero, columns, int(j))
            exact = free_seconds(world, column, cutoff)
            if exact < cutoff:
                cutoff = exact
                yield exact, column


def _keep(tree: Tree, found: Plan) -> None:
    """Make a plan the incumbent if it is faster, or as fast and cheaper."""
    incumbent = tree.incumbent
    faster = incumbent is None or found.seconds < incumbent.seconds * (1 - EPS)
    if faster or (
        incumbent is not None
        and found.seconds <= incumbent.seconds * (1 + EPS)
        and found.capital_usd < incumbent.capital_usd
    ):
        tree.incumbent = found
        tree.world.count("incumbents")
        c = found.column
        s = c.strategy.shape
        tree.progress(
            f"{_days(tree.world.problem, found.seconds):,.2f} days, ${found.capital_usd / 1e9:,.3f}B: "
            f"TP {s.tensor_parallel} x CP {s.context_parallel} x PP {c.p}, v {c.v}, {c.d} replicas, "
            f"{c.m} micro-batches, blocks {'+'.join(map(str, found.shape.blocks))}"
        )


def _expand_strategy(tree: Tree, _: float, s: Strategy) -> None:
    """Open the pipelines of a strategy under each ZeRO stage."""
    keys, rows = pipelines_of(tree.world, s)
    kept = np.flatnonzero(keys < tree.cutoff)
    tree.world.count("pipelines", len(keys))
    if not len(kept):
        return
    for zero in s.problem.options("zero_stage", range(4)):
        found = under_zero(s, zero, rows.part(kept), keys[kept], tree.cutoff)
        if found is None:
            continue
        tree.world.count("pipelines under the cutoff", len(found.keys))
        cells = columns_of(tree.world, s, zero, found, tree.cutoff)
        if cells is not None:
            times, table = cells
            order = np.argsort(times, kind="stable")
            tree.world.count("columns under the cutoff", len(order))
            tree.push(float(times[order[0]]), "columns", (s, zero, table.part(order), times[order], 0))


def _expand_columns(tree: Tree, _: float, what: tuple[Strategy, int, Rows, Floats, int]) -> None:
    """Take the next column of a strategy: open it with its time on a free network, and the rest behind it."""
    s, zero, table, times, i = what
    column = column_at(s, zero, table, i)
    exact = free_seconds(tree.world, column, tree.cutoff)
    tree.push(max(exact, float(times[i])), "column", column)
    if i + 1 < len(times):
        tree.push(float(times[i + 1]), "columns", (s, zero, table, times, i + 1))


def _expand_column(tree: Tree, key: float, column: Column) -> None:
    """Open the shapes of a column, for each number of sites the most even first."""
    tree.free = min(tree.free, key)
    kind = id(column.strategy), column.p, column.v
    if kind not in tree.descended and len(tree.descended) < DESCENTS:
        tree.descended.add(kind)
        _descend(tree, column)
    for sites in open_sites(tree.world, column):
        tree.push(key, "shapes", Cursor(column, shapes(column, sites)))


@dataclass(frozen=True, slots=True)
class Cursor:
    """Shapes of a column over so many sites that were not opened yet.

    The most blocks of a site ascending, so that times only grow.
    """

    column: Column
    rest: Iterator[Shape]


def _expand_shapes(tree: Tree, key: float, cursor: Cursor) -> None:
    """Open the next shape of a column with its time on the calmest network.

    And those behind it where they may still be in time.
    """
    found = _next_shape(tree, cursor)
    if found is None:
        return
    bound, least, shape_problem = found
    tree.push(max(key, bound), "shape", ShapeNode(Search(shape_problem=shape_problem, cutoff=tree.cutoff)))
    tree.push(max(key, least), "shapes", cursor)


def _next_shape(tree: Tree, cursor: Cursor) -> tuple[float, float, ShapeProblem] | None:
    """Return the next shape that the money may pay: its bound, that of all behind it, and its problem.

    None where there is none in time.
    """
    world, column = tree.world, cursor.column
    phi = world.problem.transport_slowdown
    for shape in cursor.rest:
        shape_problem = ShapeProblem(world=world, column=column, shape=shape)
        most = replace(shape, min_replicas=max(shape.min_replicas, (column.d - 1) // len(shape.blocks) + 1))
        least = (
            shape_problem.bound(phi, phi, tree.cutoff)
            if most == shape
            else replace(shape_problem, shape=most).bound(phi, phi, tree.cutoff)
        )
        if least >= tree.cutoff:
            return None
        if _payable(world, shape_problem):
            world.count("shapes")
            bound = least if most == shape else shape_problem.bound(phi, phi, tree.cutoff)
            return bound, least, shape_problem
    return None


def _first_shape(tree: Tree, column: Column) -> ShapeProblem | None:
    """Return the most even shape of a column that the money may pay, over the fewest sites."""
    for sites in open_sites(tree.world, column):
        found = _next_shape(tree, Cursor(column, shapes(column, sites)))
        if found is not None:
            return found[2]
    return None


def _payable(world: World, shape_problem: ShapeProblem) -> bool:
    """Return whether the money may pay the racks of a shape at all, the cheapest fabrics beside them."""
    racks = [shape_problem.traffic.racks(g) for g in shape_problem.shape.blocks]
    if world.sites is None:
        return sum(racks) <= (world.problem.instance.hardware.racks or 0)
    least = sum(world.sites.floor_usd(n, 1) for n in racks) + sum(racks) * world.sites.min_fabric_usd(
        shape_problem.traffic.rails
    )
    return least <= world.budget


@dataclass(slots=True)
class ShapeNode:
    """A shape under search, with the candidate that the sites are to be asked for next."""

    search: Search
    pending: Candidate | None = None


def _expand_shape(tree: Tree, key: float, node: ShapeNode) -> None:
    """Take a shape one step on: find the fastest fabrics and fibre that the money may pay.

    Or ask the sites for those found before.
    """
    if node.pending is None:
        node.pending = node.search.next(tree.cutoff)
        if node.pending is None:
            return
        if node.pending.seconds > key * (1 + EPS):
            tree.push(node.pending.seconds, "shape", node)
            return
    candidate, node.pending = node.pending, None
    found = node.search.try_sites(candidate)
    if found is not None:
        _keep(tree, found)
    else:
        tree.push(candidate.seconds, "shape", node)


EXPAND: dict[str, Callable[[Tree, float, Any], None]] = {
    "strategy": _expand_strategy,
    "columns": _expand_columns,
    "column": _expand_column,
    "shapes": _expand_shapes,
    "shape": _expand_shape,
}


def _days(problem: Problem, seconds: float) -> float:
    """Return the days to train at so many seconds a sequence."""
    w = problem.instance.workload
    return w.tokens / w.sequence_length * seconds / w.availability / DAY


def _solution(tree: Tree, *, stopped: bool) -> JointSolution:
    """Write the outcome: the incumbent is proven where no open node is below it."""
    problem, best = tree.world.problem, tree.incumbent
    if tree.world.sites is not None:
        tree.world.counts["sites MILPs"] = tree.world.sites.solved
    least = min((key for key, _, _ in tree.heap), default=math.inf)
    if best is None:
        status = JointStatus.UNKNOWN if stopped else JointStatus.INFEASIBLE
        bound = _days(problem, least) if stopped and math.isfinite(least) else None
        return JointSolution(
            status=status,
            days=None,
            lower_bound=bound,
            fabric_free_bound=bound,
            plan=None,
            counts=tree.world.counts,
            space=SPACE,
            outside=OUTSIDE,
        )
    bound = min(best.seconds, least) if stopped else best.seconds
    free = min(tree.free, least, best.seconds)
    return JointSolution(
        status=JointStatus.FEASIBLE if stopped else JointStatus.OPTIMAL,
        stopped="limit" if stopped else "proved",
        days=_days(problem, best.seconds),
        lower_bound=_days(problem, bound),
        fabric_free_bound=_days(problem, free),
        plan=best,
        counts=dict(sorted(tree.world.counts.items())),
        space=SPACE,
        outside=OUTSIDE,
    )


__all__ = ["Shape", "solve_joint"]
