"""A job in counts of a cluster's leaves: which blocks of its mesh stand whole, and which are to be placed as units."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from planner.cluster.job import Job
from planner.cluster.nesting import Level, levels, line, numbering
from planner.models.placement.data import Kind, Leaf, LeafNodes, Problem

Unit = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """A job's problem, and the nodes of each leaf's free units; of a mesh also the level whose blocks are placed."""

    q: Problem
    units: list[list[Unit]]
    level: int | None


def in_segments(job: Job, leaves: Sequence[LeafNodes], taken: Collection[str]) -> Counted:
    """Count a job's own groups, of a mesh its data groups, in its segments."""
    size = job.segment_nodes
    units = [list(segments(leaf, taken, size)) for leaf in leaves]
    kinds = tuple(Kind(k.size // size, k.count, w) for k, w in zip(job.kinds, job.weights, strict=True))
    if job.mesh is None:
        groups = sum(k.count for k in kinds)
        return Counted(_problem(leaves, units, (size, size), kinds, groups, follows=False), units, None)
    last = len(levels(job)) - 1
    q = _problem(leaves, units, (size, size), kinds, line(job, last), follows=bool(numbering(job, last)))
    return Counted(q, units, last)


def in_blocks(job: Job, leaves: Sequence[LeafNodes], taken: Collection[str], at: int) -> Counted:
    """Count the blocks of a level of a mesh, in units of the blocks inside them."""
    found = levels(job)
    unit = found[at - 1].size if at else job.segment_nodes
    units = [list(_whole_units(leaf, taken, job.segment_nodes, unit)) for leaf in leaves]
    kinds = (Kind(found[at].size // unit, found[at].count),)
    follows = bool(numbering(job, at))
    return Counted(_problem(leaves, units, (job.segment_nodes, unit), kinds, line(job, at), follows=follows), units, at)


def level_to_place(job: Job, free: Sequence[int]) -> int:
    """Return the first level of which not all blocks stand whole on leaves with so many free segments, or the last.

    Where all blocks of a level fit, so do those inside them: the levels before are whole without a choice.
    """
    found = levels(job)
    return next((i for i, x in enumerate(found) if not _fits(x, free, job.segment_nodes)), len(found) - 1)


def _fits(level: Level, free: Sequence[int], segment: int) -> bool:
    """Return whether all blocks of a level stand whole on leaves."""
    return sum(f // (level.size // segment) for f in free) >= level.count


def is_plain(job: Job) -> bool:
    """Return whether its segments are all that its data groups, or its groups, are made of."""
    return all(x.axis == "data" or x.size <= job.segment_nodes for x in levels(job)) and _data_is_last(job)


def _data_is_last(job: Job) -> bool:
    """Return whether no level stands above the data groups."""
    return "data" not in [x.axis for x in levels(job)[:-1]]


def only(q: Problem, leaves: Collection[int]) -> Problem:
    """Return the problem on some of the leaves: the others have nothing free."""
    return Problem(
        leaves=tuple(leaf if i in leaves else Leaf(leaf.path, 0, leaf.size) for i, leaf in enumerate(q.leaves)),
        kinds=q.kinds,
        line=q.line,
        follows=q.follows,
    )


def segments(leaf: LeafNodes, taken: Collection[str], size: int) -> Iterator[Unit]:
    """Cut a leaf's free nodes into segments that stay within a block."""
    if size == 1:
        yield from ((node,) for node in leaf.nodes if node not in taken)
        return
    for block in leaf.blocks:
        free = [node for node in block if node not in taken]
        yield from (tuple(free[i : i + size]) for i in range(0, len(free) - size + 1, size))


def _whole_units(leaf: LeafNodes, taken: Collection[str], segment: int, size: int) -> Iterator[Unit]:
    """Join a leaf's free segments to units, within a scale-up block as far as they go."""
    if size == segment:
        yield from segments(leaf, taken, segment)
        return
    each, left = size // segment, list[Unit]()
    for block in leaf.blocks:
        own = LeafNodes(leaf.name, block, (block,), leaf.path)
        free = list(segments(own, taken, segment))
        whole = len(free) // each * each
        yield from _joined(free[:whole], each)
        left += free[whole:]
    yield from _joined(left[: len(left) // each * each], each)


def _joined(parts: Sequence[Unit], each: int) -> Iterator[Unit]:
    """Join so many units at a time."""
    for i in range(0, len(parts), each):
        yield tuple(node for part in parts[i : i + each] for node in part)


def _problem(
    leaves: Sequence[LeafNodes],
    units: Sequence[Sequence[Unit]],
    sizes: tuple[int, int],
    kinds: tuple[Kind, ...],
    along: int,
    *,
    follows: bool,
) -> Problem:
    """Return the problem of kinds in units; `sizes` are the nodes of a segment and of a unit."""
    segment, unit = sizes
    counted = tuple(
        Leaf(leaf.path, len(free), _segments_of(leaf, segment) // (unit // segment))
        for leaf, free in zip(leaves, units, strict=True)
    )
    return Problem(leaves=counted, kinds=kinds, line=along, follows=follows)


def _segments_of(leaf: LeafNodes, size: int) -> int:
    """Return the segments of a leaf when all its nodes are free."""
    return len(leaf.nodes) if size == 1 else sum(len(block) // size for block in leaf.blocks)
