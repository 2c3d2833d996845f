"""The placement of a job in counts, proven by CP-SAT, and from counts to pieces: a flow for whole groups, clusters.

Leaves are paths from their free units down: an arc takes a whole group, the path ends at the hole that it leaves. All
leaves of a pod (of all pods, for the first two levels) share one graph, so neither leaves nor groups are distinguished.
Split groups and the holes that they share fall into clusters: a groups over b holes need a + b - 1 pieces, hence extra
pieces are holes less clusters. A group of a cluster crosses pods unless it fits what the cluster takes of one pod.
"""

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from planner.models.placement.placement_problem import Packing, Piece, PlacementProblem
from planner.models.placement.shared_holes import next_fit
from planner.solvers.cpsat import CpsatValues

Expr = cp_model.LinearExprT


@dataclass(kw_only=True)
class JobPlacementModel:
    """The model and its variables; pods are one where the levels asked for do not distinguish them."""

    q: PlacementProblem
    by_pod: bool
    pods: dict[int, list[int]]
    slots: int
    model: cp_model.CpModel = field(default_factory=cp_model.CpModel)
    arcs: dict[tuple[int, int, int], cp_model.IntVar] = field(default_factory=dict)  # (pod, free units, kind)
    rest: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (pod, hole)
    idle: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (pod, free units)
    take: list[dict[tuple[int, int], cp_model.IntVar]] = field(default_factory=list)  # of each cluster: (pod, hole)
    members: list[list[cp_model.IntVar]] = field(default_factory=list)  # of each cluster, by kind
    local: list[dict[tuple[int, int, int], cp_model.IntVar]] = field(
        default_factory=list
    )  # of each cluster: (tier, switch, kind)
    opened: list[cp_model.IntVar] = field(default_factory=list)
    joints: list[cp_model.IntVar] = field(
        default_factory=list
    )  # where shares of a group across pods meet: a piece more each
    wasteful: list[cp_model.IntVar] = field(default_factory=list)

    def split(self, kind: int) -> Expr:
        """Return the groups of a kind that no leaf takes whole."""
        return self.q.kinds[kind].count - sum(v for (_, _, k), v in self.arcs.items() if k == kind)

    def units(self, cluster: int, pods: Container[int] | None = None) -> Expr:
        """Return the units in the holes of a cluster, of some pods alone where they are given."""
        return sum(c * v for (p, c), v in self.take[cluster].items() if pods is None or p in pods)

    def capacity(self, cluster: int) -> Expr:
        """Return the units of the groups of a cluster."""
        return sum(kind.size * v for kind, v in zip(self.q.kinds, self.members[cluster], strict=True))


def formulate(q: PlacementProblem, *, by_pod: bool, slots: int | None) -> JobPlacementModel:
    """Declare flows and clusters with their rules; without `slots` the split groups are counted and not placed."""
    f = JobPlacementModel(
        q=q, by_pod=by_pod, pods=q.pods if by_pod else {0: list(range(len(q.leaves)))}, slots=slots or 0
    )
    for pod in f.pods:
        follow_leaves(f, pod)
    place_each_group_once(f)
    if slots is not None:
        _clusters(f)
        for rule in (
            place_split_groups,
            use_each_hole_once,
            fit_the_holes,
            order_clusters,
            keep_local_groups_within,
            leave_idle_leaves_alone,
        ):
            rule(f)
    return f


def follow_leaves(f: JobPlacementModel, pod: int) -> None:
    """Require each leaf of a pod to lead from its free units, group by group, to the hole that is left."""
    sources = Counter(f.q.leaves[i].free for i in f.pods[pod] if f.q.leaves[i].free)
    leaves = sum(sources.values())
    coming: dict[int, list[cp_model.IntVar]] = {}
    for c in range(max(sources, default=0), 0, -1):
        if c not in sources and c not in coming:
            continue
        going = []
        for k, kind in enumerate(f.q.kinds):
            if kind.size <= c:
                v = f.model.new_int_var(0, min(leaves, kind.count), f"arc[{pod},{c},{k}]")
                f.arcs[pod, c, k] = v
                coming.setdefault(c - kind.size, []).append(v)
                going.append(v)
        f.rest[pod, c] = f.model.new_int_var(0, leaves, f"rest[{pod},{c}]")
        f.model.add(sources[c] + sum(coming.get(c, [])) == sum(going) + f.rest[pod, c]).with_name(
            f"follow_leaves[{pod},{c}]"
        )


def place_each_group_once(f: JobPlacementModel) -> None:
    """Limit the whole groups to those that there are."""
    for k, kind in enumerate(f.q.kinds):
        f.model.add(sum(v for (_, _, i), v in f.arcs.items() if i == k) <= kind.count).with_name(
            f"place_each_group_once[{k}]"
        )


def place_split_groups(f: JobPlacementModel) -> None:
    """Require every group that is not whole to be in a cluster, or in a chain, or shares of it in several."""
    for k in range(len(f.q.kinds)):
        f.model.add(sum(members[k] for members in f.members) == f.split(k)).with_name(f"place_split_groups[{k}]")


def use_each_hole_once(f: JobPlacementModel) -> None:
    """Limit each hole to one cluster."""
    for (pod, c), rest in f.rest.items():
        f.model.add(sum(take[pod, c] for take in f.take if (pod, c) in take) <= rest).with_name(
            f"use_each_hole_once[{pod},{c}]"
        )


def fit_the_holes(f: JobPlacementModel) -> None:
    """Require the groups of a cluster to fit its holes; a cluster without groups saves no piece."""
    for j in range(f.slots):
        f.model.add(f.capacity(j) <= f.units(j)).with_name(f"fit_the_holes[{j}]")
        f.model.add(f.opened[j] <= sum(f.members[j])).with_name(f"count_clusters_with_groups[{j}]")


def order_clusters(f: JobPlacementModel) -> None:
    """Require clusters in the order of their units, so that equal ones are numbered in one way."""
    for j in range(f.slots - 1):
        f.model.add(f.units(j) >= f.units(j + 1)).with_name(f"order_clusters[{j}]")


def keep_local_groups_within(f: JobPlacementModel) -> None:
    """Count a group as local to a switch only where it fits the cluster's holes under it."""
    sizes = [kind.size for kind in f.q.kinds]
    for j in range(f.slots):
        for t in range(f.q.tiers if f.by_pod else 0):
            for s, pods in switches(f.q, t).items():
                inside = sum(g * f.local[j][t, s, k] for k, g in enumerate(sizes))
                f.model.add(inside <= f.units(j, pods)).with_name(f"keep_local_groups_within[{j},{t},{s}]")
            for k in range(len(sizes)):
                inside = sum(f.local[j][t, s, k] for s in switches(f.q, t))
                f.model.add(inside <= f.members[j][k]).with_name(f"count_local_groups_once[{j},{t},{k}]")


def leave_idle_leaves_alone(f: JobPlacementModel) -> None:
    """Count a leaf as idle only where it is wholly free and neither groups nor clusters take of it."""
    for pod, leaves in f.pods.items():
        wholly = Counter(f.q.leaves[i].free for i in leaves if f.q.leaves[i].free == f.q.leaves[i].size)
        for c, n in sorted(wholly.items()):
            if c:
                v = f.model.new_int_var(0, n, f"idle[{pod},{c}]")
                f.idle[pod, c] = v
                taken = sum(take[pod, c] for take in f.take if (pod, c) in take)
                f.model.add(v <= f.rest[pod, c] - taken).with_name(f"leave_idle_leaves_alone[{pod},{c}]")


def levels(f: JobPlacementModel) -> list[Expr]:
    """Return the levels of the objective: two of them, or all where pods are distinguished."""
    q, taken = f.q, [v for take in f.take for v in take.values()]
    goals: list[Expr] = [sum(kind.weight * f.split(k) for k, kind in enumerate(q.kinds))]
    goals.append(sum(taken) - sum(f.opened) + sum(f.joints))
    if not f.by_pod:
        return goals
    split = sum(v for members in f.members for v in members)
    crossing = [
        split - sum(v for local in f.local for (tier, _, _), v in local.items() if tier == t) for t in range(q.tiers)
    ]
    boundaries = count_boundaries(f, crossing[0] if crossing else 0)
    part_free = sum(f.rest.values()) - sum(taken) - sum(f.idle.values()) + sum(f.wasteful)
    return [*goals, *crossing, boundaries, part_free]


def count_boundaries(f: JobPlacementModel, across: Expr) -> Expr:
    """Count the neighbours that are not in one pod: exactly along one line, from below along several.

    Every pod in use and every group across pods is a run of some line; a line that is not within a pod has a boundary.
    """
    q, lines = f.q, f.q.groups // f.q.line
    inside = groups_by_pod(f)
    runs = cp_model.LinearExpr.sum([*count_pods_with_groups(f, inside), across]) - lines
    if q.line >= q.groups:
        return runs
    boundaries = f.model.new_int_var(0, q.groups, "boundaries")
    f.model.add(boundaries >= runs).with_name("count_runs_of_pods")
    if q.line > 1:
        within = {pod: f.model.new_int_var(0, lines, f"lines[{pod}]") for pod in inside}
        for pod, groups in inside.items():
            f.model.add(q.line * within[pod] <= sum(groups)).with_name(f"count_lines_within_a_pod[{pod}]")
        f.model.add(boundaries >= lines - sum(within.values())).with_name("count_lines_across_pods")
    return boundaries


def groups_by_pod(f: JobPlacementModel) -> dict[int, list[cp_model.IntVar]]:
    """Return the counts of groups within each pod: whole ones, and split ones that are local to it."""
    inside: dict[int, list[cp_model.IntVar]] = {pod: [] for pod in f.pods}
    for (pod, _, _), v in f.arcs.items():
        inside[pod].append(v)
    for local in f.local:
        for (tier, pod, _), v in local.items():
            if tier == 0:
                inside[pod].append(v)
    return inside


def count_pods_with_groups(f: JobPlacementModel, inside: dict[int, list[cp_model.IntVar]]) -> list[cp_model.IntVar]:
    """Count the pods that have a group of their own."""
    used = {pod: f.model.new_bool_var(f"used[{pod}]") for pod in f.pods}
    for pod, groups in inside.items():
        f.model.add(sum(groups) <= f.q.groups * used[pod]).with_name(f"count_pods_with_groups[{pod}]")
    return list(used.values())


def switches(q: PlacementProblem, tier: int) -> dict[int, list[int]]:
    """Return the pods under each switch of a tier."""
    pods_under: dict[int, list[int]] = {}
    for pod, leaves in q.pods.items():
        pods_under.setdefault(q.leaves[leaves[0]].path[tier], []).append(pod)
    return pods_under


def _clusters(f: JobPlacementModel) -> None:
    largest = max(leaf.free for leaf in f.q.leaves)
    count = {pod: len(leaves) for pod, leaves in f.pods.items()}
    for j in range(f.slots):
        f.take.append({(pod, c): f.model.new_int_var(0, count[pod], f"take[{j},{pod},{c}]") for pod, c in f.rest})
        limits = [min(kind.count, f.slots) for kind in f.q.kinds]
        f.members.append([f.model.new_int_var(0, n, f"members[{j},{k}]") for k, n in enumerate(limits)])
        places = [
            (t, s, k) for t in range(f.q.tiers if f.by_pod else 0) for s in switches(f.q, t) for k in range(len(limits))
        ]
        f.local.append({at: f.model.new_int_var(0, limits[at[2]], f"local[{j},{at}]") for at in places})
        f.opened.append(f.model.new_bool_var(f"opened[{j}]"))
        f.wasteful.append(f.model.new_bool_var(f"wasteful[{j}]"))
        # More left over than the largest hole would leave a hole unused, and that would not be taken.
        f.model.add(f.units(j) <= cp_model.LinearExpr.sum([f.capacity(j), largest * f.wasteful[j]])).with_name(
            f"count_wasteful_clusters[{j}]"
        )


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
    room = [sum(n for _, n in p.holes) - sum(sizes[k] for k in p.local) for p in parts]
    fragments = next_fit([sizes[k] for k in over], room)
    across: list[list[Piece]] = [[] for _ in over]
    for j, part in enumerate(parts):
        here = [(x, n) for x, pieces in enumerate(fragments) for at, n in pieces if at == j]
        going = [(x, n) for x, n in here if fragments[x][-1][0] > j]
        coming = [(x, n) for x, n in here if fragments[x][-1][0] <= j]
        lengths = [*(n for _, n in coming), *(sizes[k] for k in part.local), *(n for _, n in going)]
        by_item = [
            [(part.holes[h][0], n) for h, n in pieces] for pieces in next_fit(lengths, [n for _, n in part.holes])
        ]
        within = len(coming) + len(part.local)
        yield from ((k, tuple(pieces)) for k, pieces in zip(part.local, by_item[len(coming) : within], strict=True))
        for (x, _), pieces in zip([*coming, *going], by_item[: len(coming)] + by_item[within:], strict=True):
            across[x].extend(pieces)
    yield from ((k, tuple(pieces)) for k, pieces in zip(over, across, strict=True))


Holes = dict[int, dict[int, list[int]]]  # pod -> hole -> leaves, those best left alone first


def decode(f: JobPlacementModel, values: CpsatValues) -> tuple[Packing, list[int]]:
    """Return the whole groups, the pieces of the clusters, and the groups of each kind that are still to be split."""
    packing = Packing()
    holes: Holes = {}
    for pod in f.pods:
        for c, leaves in walk(f, values, pod, packing).items():
            for i in leaves:
                holes.setdefault(f.q.pod_of[i], {}).setdefault(c, []).append(i)
    placed = Counter[int]()
    for (_, _, k), arc in f.arcs.items():
        placed[k] += int(values.of(arc))
    left = [kind.count - placed[k] for k, kind in enumerate(f.q.kinds)]
    for j in range(f.slots):
        members = [values.of(v) for v in f.members[j]]
        if any(members):
            wanted = Counter({c: int(values.of(v)) for (_, c), v in f.take[j].items()})
            parts = _parts(f, values, j, members, holes) if f.by_pod else spread(f.q, members, wanted, holes)
            packing.split.extend(split_cluster([k.size for k in f.q.kinds], *parts))
            left = [a - b for a, b in zip(left, members, strict=True)]
    return with_whole_groups(packing), left


def with_whole_groups(packing: Packing) -> Packing:
    """Return the packing with split groups of one piece among the whole ones."""
    whole = packing.whole + Counter((pieces[0][0], k) for k, pieces in packing.split if len(pieces) == 1)
    return Packing(whole=whole, split=[(k, pieces) for k, pieces in packing.split if len(pieces) > 1])


def walk(f: JobPlacementModel, values: CpsatValues, pod: int, packing: Packing) -> dict[int, list[int]]:
    """Lead the leaves of a pod along the flow, wholly free ones to rest first; return them by the hole they keep."""
    at: dict[int, list[int]] = {}
    for i in f.pods[pod]:
        at.setdefault(f.q.leaves[i].free, []).append(i)
    resting_at: dict[int, list[int]] = {}
    for c in range(max(at, default=0), 0, -1):
        here = sorted(
            at.get(c, []), key=lambda i: (not f.q.leaves[i].free == f.q.leaves[i].size == c, f.q.leaves[i].free != c)
        )
        if not here:
            continue
        resting = values.of(f.rest[pod, c])
        resting_at[c], moving = here[:resting], here[resting:]
        for k, kind in enumerate(f.q.kinds):
            n = values.of(f.arcs[pod, c, k]) if (pod, c, k) in f.arcs else 0
            for i in moving[:n]:
                packing.whole[i, k] += 1
                at.setdefault(c - kind.size, []).append(i)
            moving = moving[n:]
    return resting_at


def spread(
    q: PlacementProblem, members: Sequence[int], wanted: Counter[int], holes: Holes
) -> tuple[list[PodHoles], list[int]]:
    """Return a cluster's holes pod by pod with the groups that fit there, and the kinds of its other groups."""
    left, parts = list(members), []
    for pod, here_wanted in sorted(_by_pod(wanted, holes).items(), key=lambda item: _height(q, item[0])):
        here = tuple((holes[pod][c].pop(), c) for c in sorted(here_wanted, reverse=True) for _ in range(here_wanted[c]))
        local = _most_local(q, left, here)
        left = [a - b for a, b in zip(left, local, strict=True)]
        if here:
            parts.append(PodHoles(holes=here, local=tuple(k for k, n in enumerate(local) for _ in range(n))))
    return parts, [k for k, n in enumerate(left) for _ in range(n)]


def _parts(
    f: JobPlacementModel, values: CpsatValues, j: int, members: Sequence[int], holes: Holes
) -> tuple[list[PodHoles], list[int]]:
    """Return a cluster's holes pod by pod with the groups local to each, and the kinds of its other groups."""
    q, left = f.q, list(members)
    parts = []
    for pod in sorted(f.pods, key=lambda pod: _height(q, pod)):
        wanted = Counter({c: int(values.of(v)) for (p, c), v in f.take[j].items() if p == pod})
        here = tuple((holes[pod][c].pop(), c) for c in sorted(wanted, reverse=True) for _ in range(wanted[c]))
        local = (
            [int(values.of(f.local[j][0, pod, k])) for k in range(len(left))] if q.tiers else _most_local(q, left, here)
        )
        left = [a - b for a, b in zip(left, local, strict=True)]
        if here:
            parts.append(PodHoles(holes=here, local=tuple(k for k, n in enumerate(local) for _ in range(n))))
    return parts, [k for k, n in enumerate(left) for _ in range(n)]


def _by_pod(wanted: Counter[int], holes: Holes) -> dict[int, Counter[int]]:
    """Find holes of the wanted sizes: in the pod with the fewest to spare that has them all, or pod by pod."""
    for pod in sorted(holes, key=lambda p: sum(map(len, holes[p].values()))):
        if all(len(holes[pod].get(c, [])) >= n for c, n in wanted.items()):
            return {pod: wanted}
    left, chosen = Counter(wanted), {}
    for pod in sorted(holes):
        chosen[pod] = Counter({c: min(n, len(holes[pod].get(c, []))) for c, n in left.items()})
        left -= chosen[pod]
    return chosen


def _most_local(q: PlacementProblem, left: Sequence[int], here: Sequence[tuple[int, int]]) -> list[int]:
    """Keep within the holes as many groups as fit, the smallest first."""
    room, local = sum(n for _, n in here), [0] * len(left)
    for k in sorted(range(len(left)), key=lambda k: q.kinds[k].size):
        local[k] = min(left[k], room // q.kinds[k].size)
        room -= local[k] * q.kinds[k].size
    return local


def _height(q: PlacementProblem, pod: int) -> tuple[int, ...]:
    """Order pods so that those under one switch follow each other, tier by tier."""
    return tuple(reversed(q.leaves[q.pods[pod][0]].path)) if pod in q.pods else ()
