"""The placement of a job in counts: one flow for the whole groups, one for the split ones, pod by pod or all in one.

Split groups and the holes that they share form chains: a group opens a chain, holes fill it one after another, and what
is left of the last hole either takes the next group or closes the chain. A node of the flow is the units that a chain
still needs, or has left over. Chains of equal needs are not distinguished, so that no solution has two numberings, and
the relaxation is as tight as one over all patterns of chains (arc flows: Valerio de Carvalho 1999, for bin packing).
Holes taken less chains closed are the extra pieces. A group across pods is a share in each, an item of a chain there;
`join_shares` joins the shares.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from planner.models.placement.cpsat import (
    Formulation,
    follow_leaves,
    leave_idle_leaves_alone,
    place_each_group_once,
    switches,
    use_each_hole_once,
)
from planner.models.placement.data import Packing, Piece, Problem
from planner.models.placement.decode import Part, Split, settled, split_cluster, spread, walk
from planner.models.placement.greedy import Exchange
from planner.solvers.cpsat import Values

Share = tuple[int, tuple[Piece, ...]]  # (units, pieces)


@dataclass(kw_only=True)
class Pool:
    """What meets under one switch, from shares of its pods or of the switches below it."""

    tier: int
    below: tuple[int, ...]  # pods in the lowest pools, else pools by their place in the list
    first: dict[int, cp_model.IntVar] = field(default_factory=dict)  # by units
    # By units together before, and units of the share.
    more: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)
    whole: dict[int, cp_model.IntVar] = field(default_factory=dict)  # groups by kind
    sent: dict[int, cp_model.IntVar] = field(default_factory=dict)  # shares that go up, by units


def sizes_of(q: Problem) -> list[int]:
    """Return the sizes of the items of a pod: groups by kind, then shares by their units."""
    return [*(k.size for k in q.kinds), *range(1, max(k.size for k in q.kinds))]


def pool_shares(f: Formulation, items: Mapping[int, Mapping[int, cp_model.IntVar]], max_split: int) -> list[Pool]:
    """Declare the pools tier by tier up to the root from the items of each pod; their groups are split ones."""
    q, kinds = f.q, len(f.q.kinds)
    given: dict[int, Mapping[int, cp_model.IntVar]] = {
        pod: {k - kinds + 1: v for k, v in own.items() if k >= kinds} for pod, own in items.items()
    }
    pools: list[Pool] = []
    # A pod's place in what is given: itself, then the pool that it is under.
    place: dict[int, int] = {pod: pod for pod in q.pods}
    for tier in range(1, q.tiers + 1):
        above = switches(q, tier) if tier < q.tiers else {-1: list(q.pods)}
        for pods in above.values():
            pools.append(Pool(tier=tier, below=tuple(dict.fromkeys(place[pod] for pod in pods))))
            join_shares(f, pools[-1], [given[x] for x in pools[-1].below], max_split)
        given = {x: pool.sent for x, pool in enumerate(pools) if pool.tier == tier}
        place = {
            pod: x for x, pool in enumerate(pools) if pool.tier == tier for pod in q.pods if place[pod] in pool.below
        }
        for x, path in {place[pod]: q.leaves[leaves[0]].path for pod, leaves in q.pods.items()}.items():
            f.members.append(list(pools[x].whole.values()))
            f.local.append({(t, path[t], k): v for t in range(tier, q.tiers) for k, v in pools[x].whole.items()})
    return pools


def join_shares(f: Formulation, pool: Pool, given: Sequence[Mapping[int, cp_model.IntVar]], limit: int) -> None:
    """Require shares to meet, the largest of a group first, until they are a group or go up."""
    kinds, name = f.q.kinds, f"{pool.tier},{pool.below[0]}"
    largest = max(k.size for k in kinds)
    coming: dict[int, list[cp_model.IntVar]] = {}
    going: dict[int, list[cp_model.IntVar]] = {}
    for u in range(1, largest):
        pool.first[u] = f.model.new_int_var(0, limit, f"first[{name},{u}]")
        coming.setdefault(u, []).append(pool.first[u])
        for before in range(u, largest - u + 1):
            v = pool.more[before, u] = f.model.new_int_var(0, limit, f"more[{name},{before},{u}]")
            going.setdefault(before, []).append(v)
            coming.setdefault(before + u, []).append(v)
        if pool.tier < f.q.tiers:
            pool.sent[u] = f.model.new_int_var(0, limit, f"sent[{name},{u}]")
            going.setdefault(u, []).append(pool.sent[u])
        used = pool.first[u] + sum(v for (_, n), v in pool.more.items() if n == u)
        f.model.add(used == sum(x[u] for x in given)).with_name(f"use_each_share_once[{name},{u}]")
    for k, kind in enumerate(kinds):
        pool.whole[k] = f.model.new_int_var(0, min(kind.count, limit), f"joined_whole[{name},{k}]")
        going.setdefault(kind.size, []).append(pool.whole[k])
    for units in sorted(coming.keys() | going.keys()):
        f.model.add(sum(coming.get(units, [])) == sum(going.get(units, []))).with_name(f"join_shares[{name},{units}]")
    f.joints.extend(pool.more.values())


def joined_groups(
    q: Problem, pools: Sequence[Pool], shares: Mapping[int, Sequence[Share]], values: Values
) -> Iterator[Split]:
    """Return the groups across pods with their pieces, as the pools join the shares of the pods."""
    at_hand = {pod: list(own) for pod, own in shares.items()}
    for tier in sorted({pool.tier for pool in pools}):
        sent: dict[int, list[Share]] = {}
        for x, pool in enumerate(pools):
            if pool.tier == tier:
                sent[x] = []
                for kind, share in _joined(q, pool, [s for at in pool.below for s in at_hand[at]], values):
                    if kind is None:
                        sent[x].append(share)
                    else:
                        yield kind, share[1]
        at_hand = sent


def _joined(q: Problem, pool: Pool, shares: Sequence[Share], values: Values) -> Iterator[tuple[int | None, Share]]:
    """Follow the flow of a pool: its groups by kind, and its shares that go up without a kind."""
    by_units: dict[int, list[Share]] = {}
    for share in reversed(shares):
        by_units.setdefault(share[0], []).append(share)
    more = {at: values.of(v) for at, v in pool.more.items()}
    whole = {k: values.of(v) for k, v in pool.whole.items()}
    sent = {u: values.of(v) for u, v in pool.sent.items()}
    for u, v in pool.first.items():
        for _ in range(values.of(v)):
            units, pieces = by_units[u].pop()
            while True:
                kind = next((k for k, n in whole.items() if n and q.kinds[k].size == units), None)
                step = next((n for (before, n), times in more.items() if before == units and times), None)
                if kind is not None:
                    whole[kind] -= 1
                    yield kind, (units, _together(pieces))
                    break
                if step is None:
                    sent[units] -= 1
                    yield None, (units, pieces)
                    break
                more[units, step] -= 1
                units, pieces = units + step, pieces + by_units[step].pop()[1]


def _together(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Count each leaf's units once."""
    units: dict[int, int] = {}
    for i, n in pieces:
        units[i] = units.get(i, 0) + n
    return tuple(units.items())


@dataclass(kw_only=True)
class Chains:
    """The flow of chains of one pod; a need above 0 is still to be filled, one below is left over of the last hole.

    Items are the groups within the pod, by kind, and behind the kinds the shares of groups across pods, by size.
    """

    opened: dict[int, cp_model.IntVar] = field(default_factory=dict)  # by item
    filled: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (need before, hole)
    joined: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (need before, item)
    closed: dict[int, cp_model.IntVar] = field(default_factory=dict)  # by need
    used: dict[int, cp_model.IntVar] = field(default_factory=dict)  # holes by size, all together
    items: dict[int, cp_model.IntVar] = field(default_factory=dict)  # all together, by item


def size_of(q: Problem, *, by_pod: bool) -> int:
    """Estimate the variables of the model."""
    largest, holes = max(k.size for k in q.kinds), max(leaf.free for leaf in q.leaves)
    used = min(largest - 1, holes)
    shares = largest if by_pod else 0
    return (len(q.pods) if by_pod else 1) * (largest * used + (used + holes) * (len(q.kinds) + 1) + shares * used)


def formulate_chains(q: Problem, *, by_pod: bool, max_split: int) -> tuple[Formulation, dict[int, Chains], list[Pool]]:
    """Declare both flows with their rules, all leaves in one, or pod by pod with what crosses pods."""
    f = Formulation(q=q, by_pod=by_pod, pods=q.pods if by_pod else {0: list(range(len(q.leaves)))}, slots=0)
    chains = {}
    for pod in f.pods:
        follow_leaves(f, pod)
        chains[pod] = follow_chains(f, pod, max_split)
        count_chains(f, pod, chains[pod], max_split)
    place_each_group_once(f)
    _as_clusters(f, chains)
    crossing = by_pod and q.tiers and len(q.pods) > 1
    pools = pool_shares(f, {pod: x.items for pod, x in chains.items()}, max_split) if crossing else []
    place_split_groups(f)
    use_each_hole_once(f)
    leave_idle_leaves_alone(f)
    return f, chains, pools


def follow_chains(f: Formulation, pod: int, max_split: int) -> Chains:
    """Require each chain of a pod to lead from its first item to its last hole.

    A hole as large as the largest group would take any split group whole, so none is used where every split costs.
    Limits are narrow, as wide ones around the circles of a flow are tightened one by one, which takes long.
    """
    x, kinds = Chains(), f.q.kinds
    largest = max(k.size for k in kinds)
    items = sizes_of(f.q) if f.by_pod and len(f.pods) > 1 else [k.size for k in kinds]
    costly = all(k.weight for k in kinds)
    sizes = [c for p, c in f.rest if p == pod and (c < largest or not costly)]
    hole = max(sizes, default=0)
    limits = [min(k.count, max_split) for k in kinds] + [max_split] * (len(items) - len(kinds))
    leaves = len(f.pods[pod])
    coming: dict[int, list[cp_model.IntVar]] = {}

    def declare(name: str, to: int | None, limit: int) -> cp_model.IntVar:
        v = f.model.new_int_var(0, limit, f"{name}[{pod}]")
        if to is not None:
            coming.setdefault(to, []).append(v)
        return v

    for k, size in enumerate(items):
        x.opened[k] = declare(f"opened[{k}]", size, min(limits[k], leaves))
        # What is left of a hole would take a smaller group whole; a share may be one of several in a hole.
        for left in range(1, min(hole, size) if k < len(kinds) else hole):
            x.joined[-left, k] = declare(f"joined[{-left},{k}]", size - left, limits[k])
    for need in range(largest, 0, -1):
        for c in sizes:
            x.filled[need, c] = declare(f"filled[{need},{c}]", need - c, leaves)
    for need in range(0, -hole, -1):
        x.closed[need] = declare(f"closed[{need}]", None, leaves)
    _conserve(f, pod, x, coming)
    return x


def _conserve(f: Formulation, pod: int, x: Chains, coming: dict[int, list[cp_model.IntVar]]) -> None:
    """Require as many chains to leave a need as come to it."""
    going: dict[int, list[cp_model.IntVar]] = {need: [v] for need, v in x.closed.items()}
    for (need, _), v in [*x.filled.items(), *x.joined.items()]:
        going.setdefault(need, []).append(v)
    for need in sorted(coming.keys() | going.keys()):
        f.model.add(sum(coming.get(need, [])) == sum(going.get(need, []))).with_name(f"follow_chains[{pod},{need}]")


def count_chains(f: Formulation, pod: int, x: Chains, max_split: int) -> None:
    """Count the holes and items of a pod's chains."""
    for c in sorted({c for _, c in x.filled}):
        x.used[c] = f.model.new_int_var(0, len(f.pods[pod]), f"used[{pod},{c}]")
        f.model.add(x.used[c] == sum(v for (_, size), v in x.filled.items() if size == c)).with_name(
            f"count_holes[{pod},{c}]"
        )
    joined: dict[int, list[cp_model.IntVar]] = {}
    for (_, k), v in x.joined.items():
        joined.setdefault(k, []).append(v)
    for k, v in x.opened.items():
        limit = min(f.q.kinds[k].count, max_split) if k < len(f.q.kinds) else max_split
        x.items[k] = f.model.new_int_var(0, limit, f"items[{pod},{k}]")
        f.model.add(x.items[k] == v + sum(joined.get(k, []))).with_name(f"count_items[{pod},{k}]")


def place_split_groups(f: Formulation) -> None:
    """Require every group that is not whole to be in a chain, or shares of it in several."""
    for k in range(len(f.q.kinds)):
        f.model.add(sum(members[k] for members in f.members) == f.split(k)).with_name(f"place_split_groups[{k}]")


def _as_clusters(f: Formulation, chains: dict[int, Chains]) -> None:
    """State the chains of each pod as levels are counted: as a cluster, none of whose groups crosses pods."""
    kinds = range(len(f.q.kinds))
    for pod, x in chains.items():
        f.take.append({(p, c): x.used[c] for p, c in f.rest if p == pod and c in x.used})
        f.members.append([x.items[k] for k in kinds])
        f.opened.extend(x.closed.values())
        f.wasteful.extend(v for need, v in x.closed.items() if need < 0)
        above = f.q.leaves[f.q.pods[pod][0]].path if f.by_pod else ()
        f.local.append({(t, s, k): x.items[k] for t, s in enumerate(above) for k in kinds})


def decode_chains(f: Formulation, chains: dict[int, Chains], pools: Sequence[Pool], values: Values) -> Packing:
    """Return the whole groups, and the pieces of the split ones along their chains."""
    packing, sizes = Packing(), sizes_of(f.q)
    if not f.by_pod:
        packing.split.extend(_gathered(f, chains[0], values, packing))
    shares: dict[int, list[Share]] = {}
    for pod, x in chains.items() if f.by_pod else ():
        free, split = walk(f, values, pod, packing), list[Split]()
        for items, holes_of in _followed(sizes, x, values):
            holes = tuple((free[c].pop(), c) for c in sorted(holes_of.elements(), reverse=True))
            split.extend(split_cluster(sizes, [Part(holes=holes, local=tuple(sorted(items.elements())))], []))
        packing.split.extend(part for part in split if part[0] < len(f.q.kinds))
        shares[pod] = [(sizes[k], pieces) for k, pieces in split if k >= len(f.q.kinds)]
    packing.split.extend(joined_groups(f.q, pools, shares, values))
    packing.whole = +packing.whole
    return settled(packing)


def _gathered(f: Formulation, x: Chains, values: Values, packing: Packing) -> Iterator[Split]:
    """Return the pieces of chains that know no pods, each within a pod where leaves can be exchanged so."""
    sizes = [k.size for k in f.q.kinds]
    exchange, spanning = Exchange(f.q, packing, walk(f, values, 0, packing)), []
    for items, used in sorted(_followed(sizes, x, values), key=lambda chain: -chain[1].total()):
        holes = exchange.gather(used)
        if holes is None:
            spanning.append(([items[k] for k in range(len(sizes))], used))
        else:
            yield from split_cluster(sizes, [Part(holes=tuple(holes), local=tuple(sorted(items.elements())))], [])
    rest = exchange.rest()
    for groups, used in spanning:
        yield from split_cluster(sizes, *spread(f.q, groups, used, rest))


def _followed(sizes: Sequence[int], x: Chains, values: Values) -> Iterator[tuple[Counter[int], Counter[int]]]:
    """Follow the flow chain by chain: the groups by kind and the holes by size of each."""
    opened, closed = (Counter({at: values.of(v) for at, v in flow.items()}) for flow in (x.opened, x.closed))
    filled, joined = (Counter({at: values.of(v) for at, v in flow.items()}) for flow in (x.filled, x.joined))

    def follow(need: int, k: int, end: int | None) -> tuple[Counter[int], Counter[int]]:
        items, used = Counter({k: 1}), Counter[int]()
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
                items[k] += 1
                need += sizes[k]
        return items, used

    for k in sorted(opened):
        for _ in range(opened[k]):
            yield follow(0, k, None)
    # What no chain leads to runs in circles, its groups just filling its holes: a chain of its own each.
    while start := next((at for at, times in sorted(joined.items()) if times), None):
        joined[start] -= 1
        yield follow(*start, start[0])
