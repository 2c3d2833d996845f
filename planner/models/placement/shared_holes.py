"""Split groups over the holes that unsplit groups leave, fewest extra pieces; from counts to racks.

Groups and holes joined by pieces fall into clusters. a groups over b holes need a + b - 1 pieces (more would close a
cycle, along which racks can be moved until a piece is gone), so extra pieces are sum(b - 1) with b = ceil(a·G/h). A
cluster that two smaller ones can replace with as many holes is never best; those that remain are the record minima of
the racks left over, b·h - a·G. One cluster may also hold the hole of the part-full domain.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.cluster import fold, width
from planner.models.placement.placement_problem import Piece
from planner.plan.plan_sections import Assignment
from planner.solvers.outcome import Outcome, Values

Group = list[tuple[int, int]]  # (leaf domain, racks) in rank order


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafDomains:
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
class PodPart:
    """Leaf domains of one pod that a cluster uses: `leaves` full ones, and with `last` the part-full one too."""

    pod: int
    leaves: int
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HoleCluster:
    """Split groups and the holes that they share with each other and with no one else, pod by pod."""

    groups: int
    parts: tuple[PodPart, ...]

    def crossing(self, shape: LeafDomains) -> int:
        """Count the groups that must cross pods: those that fit no part by itself."""
        fits = sum(shape.capacity(part.leaves, last=part.last) // shape.group for part in self.parts)
        return max(0, self.groups - fits)


def place(shape: LeafDomains, clusters: Sequence[HoleCluster]) -> list[Group]:
    """Return groups in stage order: by pod, then by leaf, a split group after the unsplit ones of its first leaf."""
    left = shape.groups - sum(cluster.groups for cluster in clusters)
    leaves = _leaves_of_parts(shape, clusters)
    split = sorted(
        (group for i, cluster in enumerate(clusters) for group in _split_groups(shape, cluster, leaves[i])),
        key=lambda group: (group[0][0], group[-1][0]),
    )
    groups: list[Group] = []
    for leaf, free in enumerate(shape.free):
        unsplit = min(left, free // shape.group)
        left -= unsplit
        groups.extend([[(leaf, shape.group)]] * unsplit)
        groups.extend(group for group in split if group[0][0] == leaf)
    return groups


def assign(shape: LeafDomains, groups: Sequence[Group]) -> tuple[Assignment, ...]:
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


def _leaves_of_parts(shape: LeafDomains, clusters: Sequence[HoleCluster]) -> list[list[list[int]]]:
    """Return numbers for the leaf domains of each cluster's parts: in a pod those from earlier pods come first."""

    def rank(place: tuple[int, int]) -> tuple[int, bool, bool, bool]:
        cluster, part = place
        parts = clusters[cluster].parts
        return parts[part].pod, parts[part].last, part == 0, part < len(parts) - 1

    numbers: list[list[list[int]]] = [[[] for _ in cluster.parts] for cluster in clusters]
    following = [pod * shape.per_pod for pod in range(shape.pods)]
    for i, j in sorted(((i, j) for i, cluster in enumerate(clusters) for j in range(len(cluster.parts))), key=rank):
        part = clusters[i].parts[j]
        first = following[part.pod]
        following[part.pod] += part.leaves
        numbers[i][j] = [*range(first, first + part.leaves), *([shape.full] * part.last)]
    return numbers


def _split_groups(shape: LeafDomains, cluster: HoleCluster, leaves: list[list[int]]) -> Iterator[Group]:
    """Yield a cluster's groups as pieces in its holes: each part takes all that fit, the others share the rest."""
    parts, over = list[PodHoles](), cluster.groups
    for own, numbers in zip(cluster.parts, leaves, strict=True):
        local = min(over, shape.capacity(own.leaves, last=own.last) // shape.group)
        over -= local
        holes = tuple((number, shape.rest_hole if number == shape.full else shape.hole) for number in numbers)
        parts.append(PodHoles(holes=holes, local=(0,) * local))
    yield from (list(pieces) for _, pieces in split_cluster([shape.group], parts, [0] * over))


Split = tuple[int, tuple[Piece, ...]]


@dataclass(frozen=True, slots=True)
class PodHoles:
    """The holes of one pod that a cluster uses, and the kinds of the groups that stay within them."""

    holes: tuple[Piece, ...]
    local: tuple[int, ...]


def split_cluster(sizes: Sequence[int], parts: Sequence[PodHoles], over: Sequence[int]) -> Iterator[Split]:
    """Yield the pieces of a cluster's groups: each part places its own, and the groups of kinds `over` fill the rest.

    Pieces follow each other along the holes, so that a groups over b holes make a + b - 1 pieces at most.
    """
    room = [sum(units for _, units in part.holes) - sum(sizes[k] for k in part.local) for part in parts]
    fragments = next_fit([sizes[k] for k in over], room)
    across: list[list[Piece]] = [[] for _ in over]
    for j, part in enumerate(parts):
        here = [(x, units) for x, pieces in enumerate(fragments) for at, units in pieces if at == j]
        going = [(x, units) for x, units in here if fragments[x][-1][0] > j]
        coming = [(x, units) for x, units in here if fragments[x][-1][0] <= j]
        lengths = [*(units for _, units in coming), *(sizes[k] for k in part.local), *(units for _, units in going)]
        by_item = [
            [(part.holes[hole][0], units) for hole, units in pieces]
            for pieces in next_fit(lengths, [units for _, units in part.holes])
        ]
        within = len(coming) + len(part.local)
        yield from ((k, tuple(pieces)) for k, pieces in zip(part.local, by_item[len(coming) : within], strict=True))
        for (x, _), pieces in zip([*coming, *going], by_item[: len(coming)] + by_item[within:], strict=True):
            across[x].extend(pieces)
    yield from ((k, tuple(pieces)) for k, pieces in zip(over, across, strict=True))


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


Run = Callable[[cp_model.CpModel], Outcome[Values]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Clusters worth having: groups -> holes of full domains; `mixed` ones also have the part-full domain's hole."""

    plain: dict[int, int]
    mixed: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenClusters:
    """Clusters as (groups, holes of full domains), the largest first; `mixed` is the one with the part-full domain."""

    plain: tuple[tuple[int, int], ...] = ()
    mixed: tuple[int, int] | None = None

    @property
    def groups(self) -> int:
        """Split groups of all clusters."""
        return sum(a for a, _ in self.plain) + (self.mixed[0] if self.mixed else 0)

    @property
    def extra_pieces(self) -> int:
        """Holes less one, of every cluster."""
        return sum(b - 1 for _, b in self.plain) + (self.mixed[1] if self.mixed else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Clusters by groups, as variables of a model."""

    plain: dict[int, cp_model.IntVar]
    mixed: dict[int, cp_model.IntVar]


def cluster_sizes(shape: LeafDomains, split: int) -> Sizes:
    """List the clusters that no two smaller ones, nor one without the part-full domain, can replace."""
    plain = _records(shape, split, besides=0)
    mixed = _records(shape, split, besides=shape.rest_hole) if shape.rest_hole else {}
    return Sizes(plain=plain, mixed={a: m for a, m in mixed.items() if m < _holes(shape, a)})


def min_pieces(shape: LeafDomains, sizes: Sizes, split: int, run: Run) -> tuple[ChosenClusters, int]:
    """Return clusters that cover the split groups with the fewest pieces, and a lower bound on the extra ones."""
    if split == 0:
        return ChosenClusters(), 0
    model = cp_model.CpModel()
    counts = count_clusters(model, shape, sizes, split)
    model.minimize(extra_pieces(sizes, counts))
    outcome = run(model)
    analytic = analytic_extra_pieces(shape, split)
    if outcome.solution is None:  # one chain fills one hole after another: a cover that needs no search
        holes = _holes(shape, split)
        if holes <= shape.full:
            return ChosenClusters(plain=((split, holes),)), analytic
        return ChosenClusters(mixed=(split, _holes(shape, split, besides=shape.rest_hole))), analytic
    of = outcome.solution.of
    every = ((a, of(variable)) for a, variable in sorted(counts.plain.items(), reverse=True))
    plain = tuple((a, sizes.plain[a]) for a, count in every for _ in range(count))
    mixed = next(((a, sizes.mixed[a]) for a, variable in counts.mixed.items() if of(variable)), None)
    return ChosenClusters(plain=plain, mixed=mixed), max(analytic, math.ceil((outcome.bound or 0.0) - 1e-6))


def count_clusters(model: cp_model.CpModel, shape: LeafDomains, sizes: Sizes, split: int) -> Counts:
    """Declare clusters by size, covering every split group within the holes there are."""
    most = {a: min(split // a, shape.full // b) for a, b in sizes.plain.items()}
    plain = {a: model.new_int_var(0, limit, f"clusters[{a}]") for a, limit in most.items()}
    mixed = {a: model.new_bool_var(f"mixed[{a}]") for a in sizes.mixed}
    model.add(sum(a * term for a, term in [*plain.items(), *mixed.items()]) == split).with_name("cover_split_groups")
    holes = [(sizes.plain[a], variable) for a, variable in plain.items()]
    holes += [(sizes.mixed[a], variable) for a, variable in mixed.items()]
    model.add(sum(b * variable for b, variable in holes) <= shape.full).with_name("use_each_hole_once")
    model.add_at_most_one(mixed.values()).with_name("use_the_part_full_domain_once")
    return Counts(plain=plain, mixed=mixed)


def extra_pieces(sizes: Sizes, counts: Counts) -> cp_model.LinearExprT:
    """Return the sum of holes less one, the part-full domain's hole counted among them."""
    plain = sum((sizes.plain[a] - 1) * variable for a, variable in counts.plain.items())
    return plain + sum(sizes.mixed[a] * variable for a, variable in counts.mixed.items())


def analytic_extra_pieces(shape: LeafDomains, split: int) -> int:
    """Bound the extra pieces without a solver: one group needs as many of the largest holes, and all groups as many."""
    if split == 0:
        return 0
    holes = sorted((racks % shape.group for racks in shape.free), reverse=True)
    need, used = split * shape.group, 0
    while need > 0:
        need, used = need - holes[used], used + 1
    return max(split * math.ceil(shape.group / holes[0]), used) - split


def _records(shape: LeafDomains, split: int, *, besides: int) -> dict[int, int]:
    """Return groups -> fewest holes, where fewer racks are left over than with any smaller number of groups."""
    holes: dict[int, int] = {}
    smallest = shape.group
    for a in range(1, split + 1 if shape.hole else 1):
        b = _holes(shape, a, besides=besides)
        over = b * shape.hole + besides - a * shape.group
        if b <= shape.full and over < smallest:
            holes[a], smallest = b, over
    return holes


def _holes(shape: LeafDomains, groups: int, *, besides: int = 0) -> int:
    """Count the fewest holes of full domains that hold `groups` groups together with `besides` other racks."""
    return math.ceil((groups * shape.group - besides) / shape.hole)
