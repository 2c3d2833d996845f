"""How each kind of node is expanded into nodes with sharper bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.models.joint.bounds import Rows
from planner.models.joint.columns import (
    column_at,
    columns_of,
    free_seconds,
    in_memory,
    known_times,
    pipelines_of,
    under_zero,
)
from planner.models.joint.search import Candidate, Search
from planner.models.joint.space import Floats, Strategy
from planner.models.joint.split import Column
from planner.models.joint.tree import dive
from planner.models.joint.tree.shapes import Cursor, next_shape
from planner.models.joint.tree.tree import Tree
from planner.models.joint.world import EPS, open_sites, shapes, spared

DESCENTS = 6  # columns of least bound that are tried with fewer blocks
CLOSE = 2e-3  # of an incumbent to its bound, within which fewer blocks are left to the search


@dataclass(frozen=True, slots=True)
class Window:
    """A strategy of which the columns below a bound were opened."""

    strategy: Strategy
    done: float
    times: int = 0  # that it was worked out


def expand_strategy(tree: Tree, key: float, s: Strategy) -> None:
    """Count the pipelines of a strategy, and open those that are near."""
    keys, _ = pipelines_of(tree.world, s)
    tree.world.count("pipelines", len(keys))
    if len(keys):
        tree.push(max(key, float(keys.min())), "window", Window(s, 0.0))


def expand_window(tree: Tree, key: float, what: Window) -> None:
    """Open the columns of a strategy from where it was left to a little above its bound, and the rest behind them."""
    s, world, limit = what.strategy, tree.world, tree.horizon(key, what.times)
    keys, rows = pipelines_of(world, s)
    holding = in_memory(world, s) if what.times else np.ones(len(keys), dtype=bool)
    kept = np.flatnonzero((keys < limit) & holding)
    for zero in s.problem.zero_stages:
        pipes = under_zero(s, zero, rows.part(kept), keys[kept], limit, known_times(world, s, zero, kept))
        found = None if pipes is None else columns_of(world, s, zero, pipes, limit)
        if found is None:
            continue
        times, table = found
        order = np.argsort(times, kind="stable")
        order = order[times[order] >= what.done]
        world.count("columns", len(order))
        if len(order):
            tree.push(float(times[order[0]]), "columns", (s, zero, table.part(order), times[order], 0))
    if limit < tree.cutoff and holding.any():
        tree.push(limit, "window", Window(s, limit, what.times + 1))


def expand_columns(tree: Tree, _: float, what: tuple[Strategy, int, Rows, Floats, int]) -> None:
    """Take the next column of a strategy: open it with its time on a free network, and the rest behind it."""
    s, zero, table, times, i = what
    column = column_at(s, zero, table, i)
    exact = free_seconds(tree.world, column, tree.cutoff)
    tree.guess = min(tree.guess, exact)
    tree.push(max(exact, float(times[i])), "column", column)
    if i + 1 < len(times):
        tree.push(float(times[i + 1]), "columns", (s, zero, table, times, i + 1))


def expand_column(tree: Tree, key: float, column: Column) -> None:
    """Open the shapes of a column with each choice of spares, for each number of sites the most even first."""
    tree.free = min(tree.free, key)
    tree.opened.append((key, column))
    kind = id(column.strategy), column.p, column.v
    if kind not in tree.descended and len(tree.descended) < DESCENTS and tree.distance > CLOSE:
        tree.descended.add(kind)
        dive.descend(tree, column)
    for choice in spared(tree.world, column):
        for sites in open_sites(tree.world, choice):
            tree.push(key, "shapes", Cursor(choice, shapes(choice, sites)))


def expand_shapes(tree: Tree, key: float, cursor: Cursor) -> None:
    """Open the next shape of a column with its time on the calmest network.

    And those behind it where they may still be in time.
    """
    found = next_shape(tree, cursor)
    if found is None:
        return
    bound, least, shape_problem = found
    tree.push(max(key, bound), "shape", ShapeNode(Search(shape_problem=shape_problem, cutoff=tree.cutoff)))
    tree.push(max(key, least), "shapes", cursor)


@dataclass(slots=True)
class ShapeNode:
    """A shape under search, with the candidate that the sites are to be asked for next."""

    search: Search
    pending: Candidate | None = None


def expand_shape(tree: Tree, key: float, node: ShapeNode) -> None:
    """Take a shape one step on: find the fastest fabrics and fibre that the money may pay.

    Or ask the sites for those found before.
    """
    if node.pending is None:
        node.pending = node.search.next(tree.target)
        if node.pending is None:
            return
        if node.pending.seconds > key * (1 + EPS):
            tree.push(node.pending.seconds, "shape", node)
            return
    candidate, node.pending = node.pending, None
    found = node.search.try_sites(candidate, tree.target)
    if found is not None:
        tree.keep(found)
    tree.push(max(key, candidate.seconds), "shape", node)


EXPAND: dict[str, Callable[[Tree, float, Any], None]] = {
    "strategy": expand_strategy,
    "window": expand_window,
    "columns": expand_columns,
    "column": expand_column,
    "shapes": expand_shapes,
    "shape": expand_shape,
}
