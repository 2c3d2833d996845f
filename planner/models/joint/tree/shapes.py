"""The shapes of a column: how its blocks are shared out over sites, in the order of their times."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.split import Column
from planner.models.joint.tree.tree import Tree
from planner.models.joint.world import Shape, World, open_sites, shapes


@dataclass(frozen=True, slots=True)
class Cursor:
    """Shapes of a column over so many sites that were not opened yet.

    The most blocks of a site ascending, so that times only grow.
    """

    column: Column
    rest: Iterator[Shape]


def next_shape(tree: Tree, cursor: Cursor) -> tuple[float, float, ShapeProblem] | None:
    """Return the next shape that the money may pay: its bound, that of all behind it, and its problem.

    None where there is none in time, or where the money pays no sites with a part as large. What sites cost grows
    with their largest part, so no shape behind such a one can be paid either, unless it needs fewer spare racks.
    """
    world, column = tree.world, cursor.column
    phi = world.problem.transport_slowdown
    for shape in cursor.rest:
        tree.tick()
        shape_problem = ShapeProblem(world=world, column=column, shape=shape)
        most = replace(shape, min_replicas=max(shape.min_replicas, (column.d - 1) // len(shape.blocks) + 1))
        if math.isinf(shape_problem.min_stretch):  # never enough racks at all sites; less even shapes may differ
            continue
        stretch = shape_problem.free_stretch
        free = replace(shape_problem, shape=most)
        least = free.bound(phi, phi, tree.cutoff, shape_problem.best_fibre, stretch=stretch)
        if least > tree.cutoff or math.isinf(least):
            return None
        if not shape_problem.may_be_housed:
            if column.sparing.target:  # less even shapes may need fewer spares in all
                continue
            return None
        if payable(world, shape_problem):
            world.count("shapes")
            return shape_problem.bound(phi, phi, tree.cutoff, shape_problem.best_fibre), least, shape_problem
    return None


def first_shape(tree: Tree, column: Column) -> ShapeProblem | None:
    """Return the most even shape of a column with its spares that the money may pay, over the fewest sites."""
    for sites in open_sites(tree.world, column):
        found = next_shape(tree, Cursor(column, shapes(column, sites)))
        if found is not None and math.isfinite(found[0]):
            return found[2]
    return None


def payable(world: World, shape_problem: ShapeProblem) -> bool:
    """Return whether the money may pay the racks of a shape at all, the cheapest fabrics beside them."""
    racks = [shape_problem.traffic.racks(g) for g in shape_problem.shape.blocks]
    if world.sites is None:
        return sum(racks) <= (world.problem.instance.hardware.racks or 0)
    return sum(world.sites.floor_usd(n, 1) for n in racks) + shape_problem.min_fabrics_usd <= world.budget
