"""The placement of a job in counts: one flow for the whole groups, one for the split ones, pod by pod or all in one.

Split groups and the holes that they share form chains: a group opens a chain, holes fill it one after another, and what is
left of the last hole either takes the next group or closes the chain. A node of the flow is the units that a chain still
needs, or has left over; chains of equal needs are not told apart, so that no two numberings of clusters are the same answer,
and the relaxation is as tight as one over all patterns of chains (arc flows: Valerio de Carvalho 1999, for bin packing).
Holes taken less chains closed are the extra pieces. A group across pods is a share in each, an item of a chain there;
`cluster_shares` joins the shares.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from planner.models.cluster_decode import settled, spread, walk
from planner.models.cluster_exact import Formulation, follow_leaves, leave_idle_leaves_alone, place_each_group_once, use_each_hole_once
from planner.models.cluster_gather import Exchange
from planner.models.cluster_pieces import Part, Split, cut_cluster
from planner.models.cluster_question import Packing, Question
from planner.models.cluster_shares import Pool, Share, joined_groups, pool_shares, sizes_of
from planner.solvers.cpsat import Values


@dataclass(kw_only=True)
class Chains:
    """The flow of chains of one pod; a need above 0 is still to be held, one below is left over of the last hole.

    Items are the groups within the pod, by kind, and behind the kinds the shares of groups across pods, by size.
    """

    opened: dict[int, cp_model.IntVar] = field(default_factory=dict)  # by item
    filled: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (need before, hole)
    joined: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (need before, item)
    closed: dict[int, cp_model.IntVar] = field(default_factory=dict)  # by need
    used: dict[int, cp_model.IntVar] = field(default_factory=dict)  # holes by size, all together
    held: dict[int, cp_model.IntVar] = field(default_factory=dict)  # items, all together


def size_of(q: Question, *, by_pod: bool) -> int:
    """Estimate the variables of the model."""
    largest, holes = max(k.size for k in q.kinds), max(leaf.free for leaf in q.leaves)
    used = min(largest - 1, holes)
    shares = largest if by_pod else 0
    return (len(q.pods) if by_pod else 1) * (largest * used + (used + holes) * (len(q.kinds) + 1) + shares * used)


def formulate_chains(q: Question, *, by_pod: bool, most_split: int) -> tuple[Formulation, dict[int, Chains], list[Pool]]:
    """Declare both flows with their rules, all leaves in one, or pod by pod with what crosses pods; no more groups split than `most_split`."""
    f = Formulation(q=q, by_pod=by_pod, pods=q.pods if by_pod else {0: list(range(len(q.leaves)))}, slots=0)
    chains = {}
    for pod in f.pods:
        follow_leaves(f, pod)
        chains[pod] = follow_chains(f, pod, most_split)
        count_chains(f, pod, chains[pod], most_split)
    place_each_group_once(f)
    _as_clusters(f, chains)
    pools = pool_shares(f, {pod: x.held for pod, x in chains.items()}, most_split) if by_pod and q.tiers and len(q.pods) > 1 else []
    place_split_groups(f)
    use_each_hole_once(f)
    leave_idle_leaves_alone(f)
    return f, chains, pools


def follow_chains(f: Formulation, pod: int, most_split: int) -> Chains:
    """Lead each chain of a pod from its first item to its last hole.

    A hole as large as the largest group would hold whole any group that is split, so none is used where every split costs.
    Limits are narrow, as wide ones around the circles of a flow are tightened one by one, which takes long.
    """
    x, kinds = Chains(), f.q.kinds
    largest, items = max(k.size for k in kinds), sizes_of(f.q) if f.by_pod and len(f.pods) > 1 else [k.size for k in kinds]
    costly = all(k.weight for k in kinds)
    sizes = [c for p, c in f.rest if p == pod and (c < largest or not costly)]
    hole = max(sizes, default=0)
    most, leaves = [min(k.count, most_split) for k in kinds] + [most_split] * (len(items) - len(kinds)), len(f.pods[pod])
    coming: dict[int, list[cp_model.IntVar]] = {}

    def declare(name: str, to: int | None, limit: int) -> cp_model.IntVar:
        v = f.model.new_int_var(0, limit, f"{name}[{pod}]")
        if to is not None:
            coming.setdefault(to, []).append(v)
        return v

    for k, size in enumerate(items):
        x.opened[k] = declare(f"opened[{k}]", size, min(most[k], leaves))
        # What is left of a hole would hold a smaller group whole; a share may be one of several in a hole.
        for left in range(1, min(hole, size) if k < len(kinds) else hole):
            x.joined[-left, k] = declare(f"joined[{-left},{k}]", size - left, most[k])
    for need in range(largest, 0, -1):
        for c in sizes:
            x.filled[need, c] = declare(f"filled[{need},{c}]", need - c, leaves)
    for need in range(0, -hole, -1):
        x.closed[need] = declare(f"closed[{need}]", None, leaves)
    _conserve(f, pod, x, coming)
    return x


def _conserve(f: Formulation, pod: int, x: Chains, coming: dict[int, list[cp_model.IntVar]]) -> None:
    """Let as many chains leave a need as come to it."""
    going: dict[int, list[cp_model.IntVar]] = {need: [v] for need, v in x.closed.items()}
    for (need, _), v in [*x.filled.items(), *x.joined.items()]:
        going.setdefault(need, []).append(v)
    for need in sorted(coming.keys() | going.keys()):
        f.model.add(sum(coming.get(need, [])) == sum(going.get(need, []))).with_name(f"follow_chains[{pod},{need}]")


def count_chains(f: Formulation, pod: int, x: Chains, most_split: int) -> None:
    """Count the holes and items of a pod's chains."""
    for c in sorted({c for _, c in x.filled}):
        x.used[c] = f.model.new_int_var(0, len(f.pods[pod]), f"used[{pod},{c}]")
        f.model.add(x.used[c] == sum(v for (_, size), v in x.filled.items() if size == c)).with_name(f"count_holes[{pod},{c}]")
    joined: dict[int, list[cp_model.IntVar]] = {}
    for (_, k), v in x.joined.items():
        joined.setdefault(k, []).append(v)
    for k, v in x.opened.items():
        x.held[k] = f.model.new_int_var(0, min(f.q.kinds[k].count, most_split) if k < len(f.q.kinds) else most_split, f"held[{pod},{k}]")
        f.model.add(x.held[k] == v + sum(joined.get(k, []))).with_name(f"count_items[{pod},{k}]")


def place_split_groups(f: Formulation) -> None:
    """Put every group that is not whole into a chain, or shares of it into several."""
    for k in range(len(f.q.kinds)):
        f.model.add(sum(held[k] for held in f.held) == f.split(k)).with_name(f"place_split_groups[{k}]")


def _as_clusters(f: Formulation, chains: dict[int, Chains]) -> None:
    """State the chains of each pod in the terms in which levels are counted: as a cluster, none of whose groups crosses pods."""
    kinds = range(len(f.q.kinds))
    for pod, x in chains.items():
        f.take.append({(p, c): x.used[c] for p, c in f.rest if p == pod and c in x.used})
        f.held.append([x.held[k] for k in kinds])
        f.opened.extend(x.closed.values())
        f.wasteful.extend(v for need, v in x.closed.items() if need < 0)
        above = f.q.leaves[f.q.pods[pod][0]].path if f.by_pod else ()
        f.local.append({(t, s, k): x.held[k] for t, s in enumerate(above) for k in kinds})


def decode_chains(f: Formulation, chains: dict[int, Chains], pools: Sequence[Pool], values: Values) -> Packing:
    """Return the whole groups, and the split ones cut along their chains."""
    packing, sizes = Packing(), sizes_of(f.q)
    if not f.by_pod:
        packing.split.extend(_gathered(f, chains[0], values, packing))
    shares: dict[int, list[Share]] = {}
    for pod, x in chains.items() if f.by_pod else ():
        free, cut = walk(f, values, pod, packing), list[Split]()
        for held, used in _followed(sizes, x, values):
            holes = tuple((free[c].pop(), c) for c in sorted(used.elements(), reverse=True))
            cut.extend(cut_cluster(sizes, [Part(holes=holes, local=tuple(sorted(held.elements())))], []))
        packing.split.extend(part for part in cut if part[0] < len(f.q.kinds))
        shares[pod] = [(sizes[k], pieces) for k, pieces in cut if k >= len(f.q.kinds)]
    packing.split.extend(joined_groups(f.q, pools, shares, values))
    packing.whole = +packing.whole
    return settled(packing)


def _gathered(f: Formulation, x: Chains, values: Values, packing: Packing) -> Iterator[Split]:
    """Cut chains that know no pods, each within a pod where leaves can be exchanged so."""
    sizes = [k.size for k in f.q.kinds]
    exchange, spanning = Exchange(f.q, packing, walk(f, values, 0, packing)), []
    for held, used in sorted(_followed(sizes, x, values), key=lambda chain: -chain[1].total()):
        holes = exchange.gather(used)
        if holes is None:
            spanning.append(([held[k] for k in range(len(sizes))], used))
        else:
            yield from cut_cluster(sizes, [Part(holes=tuple(holes), local=tuple(sorted(held.elements())))], [])
    rest = exchange.rest()
    for groups, used in spanning:
        yield from cut_cluster(sizes, *spread(f.q, groups, used, rest))


def _followed(sizes: Sequence[int], x: Chains, values: Values) -> Iterator[tuple[Counter[int], Counter[int]]]:
    """Follow the flow chain by chain: the groups by kind and the holes by size of each."""
    opened, closed = (Counter({at: values.of(v) for at, v in held.items()}) for held in (x.opened, x.closed))
    filled, joined = (Counter({at: values.of(v) for at, v in held.items()}) for held in (x.filled, x.joined))

    def follow(need: int, k: int, end: int | None) -> tuple[Counter[int], Counter[int]]:
        held, used = Counter({k: 1}), Counter[int]()
        need += sizes[k]
        while need != end:
            if need > 0:
                c = next(c for (n, c), times in filled.items() if n == need and times)
                filled[need, c] -= 1
                used[c] += 1
                need -= c
            elif end is None and closed[need]:
                closed[need] -= 1
                break
            else:
                k = next(k for (n, k), times in joined.items() if n == need and times)
                joined[need, k] -= 1
                held[k] += 1
                need += sizes[k]
        return held, used

    for k in sorted(opened):
        for _ in range(opened[k]):
            yield follow(0, k, None)
    # What no chain leads to runs in circles, its holes just holding its groups: a chain of its own each.
    while start := next((at for at, times in sorted(joined.items()) if times), None):
        joined[start] -= 1
        yield follow(*start, start[0])
