"""From counts to racks: the leaf domains of a cluster's groups, the stage of a group, the racks of its ranks.

No choice is made here: clusters and their parts come from the formulation, and racks of a leaf are interchangeable.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.cluster.hostlist import fold, width
from planner.plan.placement import Assignment

Group = list[tuple[int, int]]  # (leaf domain, racks) in rank order


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A site's leaf domains seen by groups of one size: F full ones of D racks, and perhaps a part-full one at the end.

    A hole is what unsplit groups leave of a domain; it is always smaller than a group.
    """

    racks: int
    domain: int
    per_pod: int
    groups: int
    group: int

    @property
    def full(self) -> int:
        """Full leaf domains."""
        return self.racks // self.domain

    @property
    def rest(self) -> int:
        """Racks of the part-full domain at the end; 0 where there is none."""
        return self.racks % self.domain

    @property
    def hole(self) -> int:
        """Racks that unsplit groups leave of a full domain."""
        return self.domain % self.group

    @property
    def rest_hole(self) -> int:
        """Racks that unsplit groups leave of the part-full domain."""
        return self.rest % self.group

    @property
    def free(self) -> list[int]:
        """Racks by leaf domain."""
        return [self.domain] * self.full + [self.rest] * (self.rest > 0)

    @property
    def full_pods(self) -> int:
        """Pods of `per_pod` full domains."""
        return self.full // self.per_pod

    @property
    def tail(self) -> int:
        """Full domains of the pod that is not full."""
        return self.full % self.per_pod

    @property
    def pods(self) -> int:
        """All pods."""
        return -(-len(self.free) // self.per_pod)

    def capacity(self, leaves: int, *, last: bool = False) -> int:
        """Racks in the holes of full domains, and of the part-full one with `last`."""
        return leaves * self.hole + self.rest_hole * last


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Leaf domains of one pod that a cluster uses: so many full ones, and perhaps the part-full one."""

    pod: int
    leaves: int
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Split groups and the holes that they share with each other and with no one else, pod by pod."""

    groups: int
    parts: tuple[Part, ...]

    def crossing(self, shape: Shape) -> int:
        """Count the groups that must cross pods: those that fit no part by itself."""
        return max(0, self.groups - sum(shape.capacity(p.leaves, last=p.last) // shape.group for p in self.parts))


def place(shape: Shape, clusters: Sequence[Cluster]) -> list[Group]:
    """Return groups in stage order: by pod, then by leaf, a split group after the unsplit ones of its first leaf."""
    left = shape.groups - sum(c.groups for c in clusters)
    leaves = _leaves_of_parts(shape, clusters)
    split = sorted(
        (g for i, c in enumerate(clusters) for g in _split_groups(shape, c, leaves[i])),
        key=lambda g: (g[0][0], g[-1][0]),
    )
    groups: list[Group] = []
    for leaf, free in enumerate(shape.free):
        unsplit = min(left, free // shape.group)
        left -= unsplit
        groups.extend([[(leaf, shape.group)]] * unsplit)
        groups.extend(g for g in split if g[0][0] == leaf)
    return groups


def assign(shape: Shape, groups: Sequence[Group]) -> tuple[Assignment, ...]:
    """Give each piece the next free racks of its leaf domain."""
    digits = width(shape.racks)
    following = [leaf * shape.domain for leaf in range(len(shape.free))]
    pieces = []
    for stage, group in enumerate(groups):
        for leaf, racks in group:
            first = following[leaf]
            following[leaf] += racks
            pieces.append(Assignment(stage=stage, leaf_domain=leaf, racks=fold(range(first, first + racks), digits)))
    return tuple(pieces)


def _leaves_of_parts(shape: Shape, clusters: Sequence[Cluster]) -> list[list[list[int]]]:
    """Return numbers for the leaf domains of each cluster's parts: in a pod those from earlier pods come first."""

    def rank(place: tuple[int, int]) -> tuple[int, bool, bool, bool]:
        cluster, part = place
        parts = clusters[cluster].parts
        return parts[part].pod, parts[part].last, part == 0, part < len(parts) - 1

    numbers: list[list[list[int]]] = [[[] for _ in c.parts] for c in clusters]
    following = [pod * shape.per_pod for pod in range(shape.pods)]
    for i, j in sorted(((i, j) for i, c in enumerate(clusters) for j in range(len(c.parts))), key=rank):
        part = clusters[i].parts[j]
        first = following[part.pod]
        following[part.pod] += part.leaves
        numbers[i][j] = [*range(first, first + part.leaves), *([shape.full] * part.last)]
    return numbers


def _split_groups(shape: Shape, cluster: Cluster, leaves: list[list[int]]) -> Iterator[Group]:
    """Split a cluster's groups over its holes: each part takes all it can, the other groups take what is left."""
    local, over = [], cluster.groups
    for p in cluster.parts:
        local.append(min(over, shape.capacity(p.leaves, last=p.last) // shape.group))
        over -= local[-1]
    room = [shape.capacity(p.leaves, last=p.last) - n * shape.group for p, n in zip(cluster.parts, local, strict=True)]
    fragments = next_fit([shape.group] * over, room)
    across: list[Group] = [[] for _ in range(over)]
    for j, numbers in enumerate(leaves):
        here = [(k, n) for k, cut in enumerate(fragments) for part, n in cut if part == j]
        going = [(k, n) for k, n in here if fragments[k][-1][0] > j]
        coming = [(k, n) for k, n in here if fragments[k][-1][0] <= j]
        sizes = [n for _, n in coming] + [shape.group] * local[j] + [n for _, n in going]
        cuts = [
            [(numbers[x], n) for x, n in cut]
            for cut in next_fit(sizes, [shape.rest_hole if x == shape.full else shape.hole for x in numbers])
        ]
        yield from cuts[len(coming) : len(coming) + local[j]]
        for (k, _), cut in zip([*coming, *going], cuts[: len(coming)] + cuts[len(coming) + local[j] :], strict=True):
            across[k].extend(cut)
    yield from across


def next_fit(sizes: Sequence[int], rooms: Sequence[int]) -> list[Group]:
    """Cut items along rooms in order: each item goes on where the last one stopped."""
    cuts: list[Group] = []
    room, free = 0, rooms[0] if rooms else 0
    for size in sizes:
        cut: Group = []
        left = size
        while left > 0:
            if free == 0:
                room, free = room + 1, rooms[room + 1]
            taken = min(left, free)
            cut.append((room, taken))
            left, free = left - taken, free - taken
        cuts.append(cut)
    return cuts
