"""What a mesh keeps together: blocks of ranks inside blocks, from the nodes of one member to whole data groups.

The members that differ in one axis alone exchange with each other: a group of that axis. Axes are kept within leaves in
the order of their bytes; without bytes tensor comes first, then context, expert and data. The ranks of the first axes
together are a block: where blocks of one level stand whole on leaves, a group of the next axis is whole if and only if
its block is.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from planner.cluster.job import EXCHANGES, Job, Slot

MEMBER = ""


@dataclass(frozen=True, slots=True)
class Level:
    """Blocks of one size: `axis` is the last that they hold whole, MEMBER where they are the nodes of one member."""

    axis: str
    size: int  # nodes of a block
    groups: int  # groups of the axis in a block
    count: int  # blocks

    @property
    def what(self) -> str:
        """What is split where a block is."""
        return "members" if self.axis == MEMBER else "groups" if self.axis == "data" else f"{self.axis} groups"


def levels(job: Job) -> tuple[Level, ...]:
    """Return the levels of a mesh from the inside; the data groups alone where nothing else exchanges."""
    if job.mesh is None:
        return ()
    bytes_of = job.traffic_bytes_per_step
    axes = sorted((a for a in EXCHANGES if job.mesh.get(a, 1) > 1), key=lambda a: -bytes_of.get(a, 0.0))
    k, nodes = job.nodes_per_member, math.prod(job.mesh.values()) * job.nodes_per_member
    found = [Level(MEMBER, k, 1, nodes // k)] if k > 1 else []
    size = k
    for axis in axes:
        found.append(Level(axis, size * job.mesh[axis], size // k, nodes // (size * job.mesh[axis])))
        size *= job.mesh[axis]
    return tuple(found) or (Level("data", k, 1, nodes // k),)


def numbering(job: Job, level: int) -> tuple[str, ...]:
    """Return the axes outside the blocks of a level in the order of their numbers; neighbours of the last stay close.

    Axes without groups come first, the pipeline last of them, else the slowest; then those of the levels above.
    """
    within, above = ([x.axis for x in part] for part in (levels(job)[: level + 1], levels(job)[level + 1 :]))
    axes = [a for a in job.mesh or {} if a not in within and a not in above]
    rest = sorted(axes, key=lambda a: (a == "pipeline", -axes.index(a)))
    return (*rest, *reversed(above))


def line(job: Job, level: int) -> int:
    """Return the blocks that follow each other along the last axis of the numbering; all without one."""
    axes = numbering(job, level)
    return (job.mesh or {})[axes[-1]] if axes else levels(job)[level].count


def blocks(job: Job, level: int) -> Iterator[Slot]:
    """Return the blocks of a level in the order of their numbers; blocks of the levels inside follow each other."""
    mesh, k = job.mesh or {}, job.nodes_per_member
    axes = list(mesh)
    stride = {a: k * math.prod(mesh[b] for b in axes[i + 1 :]) for i, a in enumerate(axes)}
    # Ranks of a block from its first: the outermost axis turns slowest, the nodes of a member follow each other.
    inside = [0]
    for x in reversed(levels(job)[: level + 1]):
        if x.axis in mesh:
            inside = [first + stride[x.axis] * i for first in inside for i in range(mesh[x.axis])]
    outside = numbering(job, level)
    for at in _places(mesh, outside):
        first = sum(stride[a] * i for a, i in zip(outside, at, strict=True))
        label = ",".join(f"{a}={i}" for a, i in zip(outside, at, strict=True))
        yield Slot(0, label, tuple(first + r + n for r in inside for n in range(k)))


def groups_of(job: Job, axis: str) -> list[tuple[int, ...]]:
    """Return the ranks of each group of an axis, or of each member."""
    mesh, k = job.mesh or {}, job.nodes_per_member
    axes = list(mesh)
    stride = {a: k * math.prod(mesh[b] for b in axes[i + 1 :]) for i, a in enumerate(axes)}
    others = [a for a in axes if a != axis]
    along = [stride[axis] * i for i in range(mesh[axis])] if axis in mesh else [0]
    firsts = (sum(stride[a] * i for a, i in zip(others, at, strict=True)) for at in _places(mesh, others))
    return [tuple(first + r + n for r in along for n in range(k)) for first in firsts]


def _places(mesh: Mapping[str, int], axes: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Return every place along some axes."""
    yield from product(*(range(mesh[a]) for a in axes))
