"""The shapes of a column: its blocks by site, from which all-reduces, shards and crossings follow."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from planner.instance.pins import pinned_blocks
from planner.models.joint.stage_split import Column


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a joint plan: blocks by site, most first (its last may lack replicas), a site's fewest replicas."""

    blocks: tuple[int, ...]
    min_replicas: int


def largest_parts(column: Column, sites: int) -> range:
    """Return how many of a column's blocks the largest site of a shape may have: a fabric joins them."""
    block, total = column.block, column.block.blocks(column.d)
    joined = column.strategy.problem.joined_racks(block.rails) / block.racks
    return range(-(-total // sites), int(min(total - sites + 1, joined)) + 1)


def shapes(column: Column, sites: int, largest: range | None = None) -> Iterator[Shape]:
    """Yield every shape of a column, its blocks by site: divided over `sites` sites, up to an exchange of sites.

    Shapes are in ascending order of their largest part, and contain the pinned numbers of blocks. `largest`: only those
    whose largest part is within it.
    """
    s, block, total = column.strategy, column.block, column.block.blocks(column.d)
    missing = total * block.replicas - column.d
    pinned = Counter(n for n in pinned_blocks(s.problem.instance).values() if n)
    for blocks in _partitions(total, sites, largest_parts(column, sites) if largest is None else largest):
        if not pinned <= Counter(blocks):
            continue
        replicas = [n * block.replicas for n in blocks]
        replicas[0] -= missing
        if min(replicas) * s.shape.gpus >= s.shape.expert_parallel:
            yield Shape(blocks, min(replicas))


def _partitions(total: int, parts: int, largest: range) -> Iterator[tuple[int, ...]]:
    """Yield joint plans' blocks by site: positive parts of a total, none above the one before, the first in a range."""
    for most in largest:
        left = total - most
        if parts == 1 and not left:
            yield (most,)
        elif parts > 1 and left >= parts - 1:
            for rest in _partitions(left, parts - 1, range(-(-left // (parts - 1)), min(most, left - parts + 2) + 1)):
                yield (most, *rest)
