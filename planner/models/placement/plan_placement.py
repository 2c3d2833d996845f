"""Place the stages' replica groups on leaf domains: fewest split, then extra pieces, then across pods.

Counts only, never a rack or a group by name. With S groups of G racks and D racks in a leaf domain:

1. Unsplit groups (here): domains[c, k] leaf domains of class c (full, part-full) take k unsplit groups, as many as can
   be. Where groups must split, every domain takes as many unsplit ones as it can, so the holes are known: h = D mod G
   in every full domain and one other in the part-full one, all smaller than G.
2. Pieces (shared_holes): which clusters of split groups share which number of holes.
3. Pods (pods): into which parts by pod the clusters are divided.

The order is lexicographic and exact: the search of each step covers every optimum of the steps before it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from planner.cluster import parse
from planner.errors import InternalError
from planner.models import Options, PlacementRequest
from planner.models.placement.placement_problem import Packing, PlacementProblem
from planner.models.placement.shared_holes import (
    ChosenClusters,
    Counts,
    HoleCluster,
    LeafDomains,
    PodPart,
    Run,
    Sizes,
    assign,
    cluster_sizes,
    count_clusters,
    extra_pieces,
    min_pieces,
    place,
)
from planner.physics.network.transport import domain_racks, lower_bound_split
from planner.plan.plan_sections import Assignment
from planner.solvers.cpsat import run
from planner.solvers.outcome import Outcome, Stop, Values
from planner.solvers.signals import Deadline

Arc = tuple[int, int]  # (holes left before, holes of the part)
Arcs = dict[Arc, cp_model.IntVar]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPlacementModel:
    """The model and its variables."""

    shape: LeafDomains
    sizes: Sizes
    model: cp_model.CpModel
    counts: Counts
    # [a, u]: the part of the mixed cluster of a groups that includes the part-full domain has u other holes.
    last: dict[tuple[int, int], cp_model.IntVar]
    cuts: Arcs
    packs: Arcs


def min_crossing_pods(
    shape: LeafDomains, sizes: Sizes, choice: ChosenClusters, run: Run, *, search: bool
) -> tuple[list[HoleCluster], int]:
    """Return clusters divided by pod so that the fewest groups cross pods, with a lower bound on their number.

    The first packing is returned where `search` is not asked for, as it is where the analytic bound proves it.
    """
    clusters = pack_first_fit(shape, choice)
    # Without a solver: each pod takes no more split groups than its holes together do.
    holes, per_pod = [racks % shape.group for racks in shape.free], shape.per_pod
    kept = sum(sum(holes[i : i + per_pod]) // shape.group for i in range(0, len(holes), per_pod))
    bound = max(0, choice.groups - kept)
    if not search or _crossing(shape, clusters) <= bound:
        return clusters, bound
    proven = bound
    for coarse in (True, False):
        division = _formulation(shape, sizes, choice, bound, coarse=coarse)
        if not coarse:
            _hint(division, clusters)
        outcome = run(division.model)
        if outcome.solution is not None:
            clusters = min(clusters, _clusters(division, outcome.solution), key=lambda found: _crossing(shape, found))
        if not coarse:
            proven = max(bound, math.ceil((outcome.bound or 0.0) - 1e-6))
        if _crossing(shape, clusters) <= bound:
            break
    return clusters, proven


def pack_first_fit(shape: LeafDomains, choice: ChosenClusters) -> list[HoleCluster]:
    """Place clusters in the fullest pod with room, the largest first, and divide those that fit none along the pods."""
    room = [shape.per_pod] * shape.full_pods + [shape.tail] * (shape.pods - shape.full_pods)
    clusters = [_take(room, *choice.mixed, last=True)] if choice.mixed else []
    over = []
    for groups, holes in choice.plain:
        fits = [pod for pod, free in enumerate(room) if free >= holes]
        if not fits:
            over.append((groups, holes))
            continue
        best = min(fits, key=lambda pod: (room[pod], pod))
        room[best] -= holes
        clusters.append(HoleCluster(groups=groups, parts=(PodPart(pod=best, leaves=holes),)))
    return clusters + [_take(room, groups, holes, last=False) for groups, holes in over]


def place_the_part_full_domain(division: PlanPlacementModel) -> None:
    """Require one division of the mixed cluster, if there is one."""
    for a, variable in division.counts.mixed.items():
        placed = sum(chosen for (c, _), chosen in division.last.items() if c == a)
        division.model.add(placed == variable).with_name(f"place_the_part_full_domain[{a}]")


def divide_clusters(division: PlanPlacementModel) -> None:
    """Require that every cluster is divided into parts until none of its holes is left to place."""
    coming, going = _by_node(division.cuts)
    for t in sorted(going):
        begins = [division.counts.plain[a] for a, b in division.sizes.plain.items() if b == t]
        begins += [variable for (a, u), variable in division.last.items() if division.sizes.mixed[a] - u == t]
        division.model.add(sum(begins) + sum(coming[t]) == sum(going[t])).with_name(f"divide_clusters[{t}]")


def pack_pods(division: PlanPlacementModel) -> None:
    """Limit the parts in a pod to its holes; the pod that is not full may give some to the mixed cluster first."""
    coming, going = _by_node(division.packs)
    tail = division.shape.tail
    for t in sorted(going):
        full = division.shape.full_pods * (t == division.shape.per_pod)
        untouched = [1 - sum(division.last.values())] if t == tail else []
        mixed = [variable for (_, u), variable in division.last.items() if tail - u == t]
        room = full + sum(untouched) + sum(mixed) + sum(coming[t])
        division.model.add(sum(going[t]) <= room).with_name(f"pack_pods[{t}]")


def pack_every_part(division: PlanPlacementModel) -> None:
    """Require a place in a pod for each part."""
    for u in sorted({u for _, u in [*division.cuts, *division.packs]}):
        cut, packed = ([term for (_, w), term in arcs.items() if w == u] for arcs in (division.cuts, division.packs))
        division.model.add(sum(cut) == sum(packed)).with_name(f"pack_every_part[{u}]")


def _formulation(
    shape: LeafDomains, sizes: Sizes, choice: ChosenClusters, bound: int, *, coarse: bool
) -> PlanPlacementModel:
    model = cp_model.CpModel()
    counts = count_clusters(model, shape, sizes, choice.groups)
    largest = max([*sizes.plain.values(), *sizes.mixed.values()])
    longest = min(shape.per_pod, largest)

    def arcs(name: str, nodes: int, filt: bool) -> Arcs:
        shares = ((t, u) for t in range(1, nodes + 1) for u in range(1, min(t, longest) + 1))
        pairs = (arc for arc in shares if not filt or arc[1] in (arc[0], shape.per_pod, shape.tail))
        return {(t, u): model.new_int_var(0, shape.full // u, f"{name}[{t},{u}]") for t, u in pairs}

    mixed_parts = ((a, u) for a, m in sizes.mixed.items() for u in range(min(m, shape.tail) + 1))
    last = {(a, u): model.new_bool_var(f"last[{a},{u}]") for a, u in mixed_parts}
    cuts, packs = arcs("cut", largest, coarse), arcs("pack", shape.per_pod, False)
    division = PlanPlacementModel(
        shape=shape, sizes=sizes, model=model, counts=counts, last=last, cuts=cuts, packs=packs
    )
    division.model.add(extra_pieces(sizes, division.counts) == choice.extra_pieces).with_name("keep_extra_pieces")
    for rule in (place_the_part_full_domain, divide_clusters, pack_pods, pack_every_part):
        rule(division)
    group = shape.group
    plain = sum(shape.capacity(u) // group * term for (_, u), term in division.cuts.items())
    mixed = sum(shape.capacity(u, last=True) // group * variable for (_, u), variable in division.last.items())
    crossing = choice.groups - plain - mixed
    if coarse:
        division.model.add(crossing == bound).with_name("reach_the_analytic_bound")
    else:
        division.model.add(crossing >= bound).with_name("respect_the_analytic_bound")
        division.model.minimize(crossing)
    return division


def _by_node(arcs: Arcs) -> tuple[dict[int, list[cp_model.IntVar]], dict[int, list[cp_model.IntVar]]]:
    nodes = {t for t, _ in arcs}
    coming: dict[int, list[cp_model.IntVar]] = {t: [] for t in [0, *nodes]}
    going: dict[int, list[cp_model.IntVar]] = {node: [] for node in nodes}
    for (t, u), variable in arcs.items():
        going[t].append(variable)
        coming[t - u].append(variable)
    return coming, going


def _crossing(shape: LeafDomains, clusters: Sequence[HoleCluster]) -> int:
    return sum(cluster.crossing(shape) for cluster in clusters)


def _take(room: list[int], groups: int, holes: int, *, last: bool) -> HoleCluster:
    """Take holes pod by pod, from the last pod backwards for the cluster with the part-full domain."""
    parts = []
    left = holes
    for pod in range(len(room) - 1, -1, -1) if last else range(len(room)):
        taken = min(left, room[pod])
        room[pod] -= taken
        left -= taken
        part_full = last and pod == len(room) - 1
        if taken or part_full:
            parts.append(PodPart(pod=pod, leaves=taken, last=part_full))
    return HoleCluster(groups=groups, parts=tuple(sorted(parts, key=lambda part: part.pod)))


def _hint(division: PlanPlacementModel, clusters: Sequence[HoleCluster]) -> None:
    counts: Counter[int] = Counter()
    shape = division.shape
    start = [shape.per_pod] * shape.full_pods + [shape.tail] * (shape.pods - shape.full_pods)
    for cluster in clusters:
        plain = [part.leaves for part in cluster.parts if not part.last]
        counts.update(division.cuts[arc].index for arc in _path(plain, sum(plain)))
        for part in cluster.parts:
            if part.last:
                mixed = division.last[cluster.groups, part.leaves], division.counts.mixed[cluster.groups]
                counts.update(variable.index for variable in mixed)
                start[part.pod] -= part.leaves
        if not any(part.last for part in cluster.parts):
            counts.update([division.counts.plain[cluster.groups].index])
    for pod, free in enumerate(start):
        packed = [part.leaves for cluster in clusters for part in cluster.parts if part.pod == pod and not part.last]
        counts.update(division.packs[arc].index for arc in _path(packed, free))
    for i in range(len(division.model.proto.variables)):
        division.model.add_hint(division.model.get_int_var_from_proto_index(i), counts[i])


def _path(parts: Sequence[int], start: int) -> Iterator[Arc]:
    """Return the arcs that place parts one after another, the largest first."""
    left = start
    for u in sorted(parts, reverse=True):
        yield left, u
        left -= u


def _clusters(division: PlanPlacementModel, values: Values) -> list[HoleCluster]:
    chosen = next((key for key, variable in division.last.items() if values.of(variable)), None)
    packs = {arc: values.of(variable) for arc, variable in division.packs.items()}
    tail = division.shape.tail - (chosen[1] if chosen else 0)
    pods: dict[int, list[int]] = {}
    for pod in range(division.shape.pods - 1, -1, -1):
        for u in _walk(packs, division.shape.per_pod if pod < division.shape.full_pods else tail):
            pods.setdefault(u, []).append(pod)
    cuts = {arc: values.of(variable) for arc, variable in division.cuts.items()}
    clusters = []
    if chosen:
        a, holes = chosen
        last = PodPart(pod=division.shape.pods - 1, leaves=holes, last=True)
        clusters.append(_joined(a, _walk(cuts, division.sizes.mixed[a] - holes), pods, last))
    for a, variable in sorted(division.counts.plain.items(), reverse=True):
        every = range(values.of(variable))
        clusters.extend(_joined(a, _walk(cuts, division.sizes.plain[a]), pods, None) for _ in every)
    return clusters


def _walk(flow: dict[Arc, int], start: int) -> list[int]:
    """Take one path out of a flow and return its parts."""
    parts, left = [], start
    while (u := next((u for t, u in flow if t == left and flow[t, u] > 0), None)) is not None:
        flow[left, u] -= 1
        parts.append(u)
        left -= u
    return parts


def _joined(groups: int, parts: Sequence[int], pods: dict[int, list[int]], last: PodPart | None) -> HoleCluster:
    """Give each part the first pod that takes one of its size; parts that meet in a pod are one."""
    leaves: Counter[int] = Counter()
    if last:
        leaves[last.pod] = last.leaves
    for u in sorted(parts, reverse=True):
        leaves[pods[u].pop()] += u
    whole = None if last is None else last.pod
    joined = (PodPart(pod=pod, leaves=count, last=pod == whole) for pod, count in sorted(leaves.items()))
    return HoleCluster(groups=groups, parts=tuple(joined))


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedPlacement:
    """One site's placement with its three figures, each with a lower bound."""

    assignment: tuple[Assignment, ...]
    split: int
    extra_pieces: int
    cross_pod: int
    lower_bound: int
    extra_pieces_bound: int
    cross_pod_bound: int

    @property
    def proved(self) -> bool:
        """Whether each figure equals its bound."""
        proven = self.lower_bound, self.extra_pieces_bound, self.cross_pod_bound
        return (self.split, self.extra_pieces, self.cross_pod) == proven


@dataclass(slots=True)
class Ledger:
    """How the solves of one placement ended, and the time that is left to them."""

    options: Options
    deadline: Deadline
    stop: Stop = Stop.LIMIT

    def run(self, model: cp_model.CpModel) -> Outcome[Values]:
        """Solve within the time left."""
        limit, options = self.deadline.limit, self.options
        outcome = run(model, time_limit=limit, seed=options.seed, threads=options.threads)
        self.stop = self.stop if outcome.stop is Stop.PROVED else outcome.stop
        return outcome


def place_stages(request: PlacementRequest, options: Options, *, site: str) -> Outcome[BoundedPlacement]:
    """Return a site's placement, proven least in (split groups, extra pieces, groups across pods) in this order."""
    ledger = Ledger(options, Deadline(options.time_limit))
    need = request.groups * request.group_racks
    if need > request.racks:
        groups = f"{request.groups} groups of {request.group_racks} racks"
        detail = f"placement[{site}]: {groups} need {need} racks > {request.racks}"
        return Outcome(stop=Stop.PROVED, infeasible=True, detail=detail)
    shape = _shape(request)
    split = shape.groups - _max_unsplit_groups(shape, ledger.run)
    sizes = cluster_sizes(shape, split)
    choice, pieces_bound = min_pieces(shape, sizes, split, ledger.run)
    proven = choice.extra_pieces == pieces_bound
    clusters, pods_bound = min_crossing_pods(shape, sizes, choice, ledger.run, search=proven)
    own = place(shape, clusters)
    placed = BoundedPlacement(
        assignment=assign(shape, own),
        split=sum(len(group) > 1 for group in own),
        extra_pieces=sum(len(group) - 1 for group in own),
        cross_pod=sum(len({leaf // shape.per_pod for leaf, _ in group}) > 1 for group in own),
        lower_bound=lower_bound_split(shape.free, shape.groups, shape.group),
        extra_pieces_bound=pieces_bound,
        cross_pod_bound=pods_bound,
    )
    return Outcome(stop=Stop.PROVED if placed.proved else ledger.stop, solution=placed)


def _shape(request: PlacementRequest) -> LeafDomains:
    domain = request.leaf_domain_racks or max(request.racks, 1)
    domains = max(len(domain_racks(request.racks, domain)), 1)
    per_pod = min(request.domains_per_pod or domains, domains)
    groups, group = request.groups, request.group_racks
    return LeafDomains(racks=request.racks, domain=domain, per_pod=per_pod, groups=groups, group=group)


def _max_unsplit_groups(shape: LeafDomains, run: Run) -> int:
    """Maximise the groups that each fit within one leaf domain."""
    # The closed form, which is always reached, is returned. InternalError where the model proves another number before
    # its time limit.
    classes = Counter(shape.free)
    model = cp_model.CpModel()
    domains = {
        (free, k): model.new_int_var(0, count, f"domains[{free},{k}]")
        for free, count in sorted(classes.items())
        for k in range(free // shape.group + 1)
    }
    for free, count in sorted(classes.items()):
        taken = sum(variable for (c, _), variable in domains.items() if c == free)
        model.add(taken == count).with_name(f"use_each_domain_once[{free}]")
    unsplit = sum(k * variable for (_, k), variable in domains.items())
    model.add(unsplit <= shape.groups).with_name("place_each_group_once")
    model.maximize(unsplit)
    outcome = run(model)
    analytic = shape.groups - lower_bound_split(shape.free, shape.groups, shape.group)
    if outcome.objective is not None and outcome.stop is Stop.PROVED and round(outcome.objective) != analytic:
        raise InternalError(f"placement: {outcome.objective:g} unsplit groups proven, {analytic} by the closed form")
    return analytic


def request_of(problem: PlacementProblem) -> tuple[PlacementRequest, list[int]] | None:
    """Return the plan's request and the leaves in its order; None where more differs than a last leaf or pod."""
    if len(problem.kinds) != 1 or problem.tiers > 1:
        return None
    pods = [[i for i in leaves if problem.leaves[i].free] for leaves in problem.pods.values()]
    pods = sorted((pod for pod in pods if pod), key=lambda pod: -sum(problem.leaves[i].free for i in pod))
    order = [i for pod in pods for i in sorted(pod, key=lambda i: (-problem.leaves[i].free, i))]
    free = [problem.leaves[i].free for i in order]
    lengths = [len(pod) for pod in pods]
    if len(set(free[:-1])) > 1 or free[-1] > free[0] or len(set(lengths[:-1])) > 1 or lengths[-1] > lengths[0]:
        return None
    kind = problem.kinds[0]
    racks, count, size = sum(free), kind.count, kind.size
    sizes = {"leaf_domain_racks": free[0], "domains_per_pod": lengths[0]}
    return PlacementRequest(racks=racks, groups=count, group_racks=size, **sizes), order


def place_equal(problem: PlacementProblem, options: Options) -> tuple[Packing, tuple[int, int, int]] | None:
    """Return the plan's placement and its bounds of split groups, extra pieces and groups across pods.

    None where the cluster is not as regular as a plan's.
    """
    asked = request_of(problem)
    placement = None if asked is None else place_stages(asked[0], options, site="cluster").solution
    if asked is None or placement is None:
        return None
    order = asked[1]
    pieces: dict[int, list[tuple[int, int]]] = {}
    for fragment in placement.assignment:
        pieces.setdefault(fragment.stage, []).append((order[fragment.leaf_domain], len(parse(fragment.racks))))
    whole = Counter((piece[0][0], 0) for piece in pieces.values() if len(piece) == 1)
    packing = Packing(whole=whole, split=[(0, tuple(piece)) for piece in pieces.values() if len(piece) > 1])
    return packing, (placement.lower_bound, placement.extra_pieces_bound, placement.cross_pod_bound)
