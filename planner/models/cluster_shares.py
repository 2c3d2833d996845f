"""Groups across pods in counts: each is a share in every pod that it reaches, and under the switches above shares meet until the group is whole.

A pool stands for a switch above the pods, or for the root. Its flow leads groups from their first share, the largest, to what
is together under the switch: a group, or a share of one that goes further up. Neither pods nor groups are told apart in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from planner.models.cluster_exact import Formulation, switches
from planner.models.cluster_pieces import Split
from planner.models.cluster_question import Piece, Question
from planner.solvers.cpsat import Values

Share = tuple[int, tuple[Piece, ...]]  # (units, pieces)


@dataclass(kw_only=True)
class Pool:
    """What meets under one switch, from shares of its pods or of the switches below it."""

    tier: int
    below: tuple[int, ...]  # pods in the lowest pools, else pools by their place in the list
    first: dict[int, cp_model.IntVar] = field(default_factory=dict)  # by units
    more: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (units together before, units of the share)
    whole: dict[int, cp_model.IntVar] = field(default_factory=dict)  # groups by kind
    sent: dict[int, cp_model.IntVar] = field(default_factory=dict)  # shares that go up, by units


def sizes_of(q: Question) -> list[int]:
    """Return the sizes of the items of a pod: groups by kind, then shares by their units."""
    return [*(k.size for k in q.kinds), *range(1, max(k.size for k in q.kinds))]


def pool_shares(f: Formulation, held: Mapping[int, Mapping[int, cp_model.IntVar]], most_split: int) -> list[Pool]:
    """Declare the pools tier by tier up to the root, `held` being the items of each pod, and count their groups among the split ones."""
    q, kinds = f.q, len(f.q.kinds)
    given: dict[int, Mapping[int, cp_model.IntVar]] = {pod: {k - kinds + 1: v for k, v in items.items() if k >= kinds} for pod, items in held.items()}
    pools: list[Pool] = []
    place: dict[int, int] = {pod: pod for pod in q.pods}  # a pod's place in what is given: itself, then the pool that it is under
    for tier in range(1, q.tiers + 1):
        above = switches(q, tier) if tier < q.tiers else {-1: list(q.pods)}
        for pods in above.values():
            pools.append(Pool(tier=tier, below=tuple(dict.fromkeys(place[pod] for pod in pods))))
            join_shares(f, pools[-1], [given[x] for x in pools[-1].below], most_split)
        given = {x: pool.sent for x, pool in enumerate(pools) if pool.tier == tier}
        place = {pod: x for x, pool in enumerate(pools) if pool.tier == tier for pod in q.pods if place[pod] in pool.below}
        for x, path in {place[pod]: q.leaves[leaves[0]].path for pod, leaves in q.pods.items()}.items():
            f.held.append(list(pools[x].whole.values()))
            f.local.append({(t, path[t], k): v for t in range(tier, q.tiers) for k, v in pools[x].whole.items()})
    return pools


def join_shares(f: Formulation, pool: Pool, given: Sequence[Mapping[int, cp_model.IntVar]], most: int) -> None:
    """Let shares meet, the largest of a group first, until they are a group or go up."""
    kinds, name = f.q.kinds, f"{pool.tier},{pool.below[0]}"
    largest = max(k.size for k in kinds)
    coming: dict[int, list[cp_model.IntVar]] = {}
    going: dict[int, list[cp_model.IntVar]] = {}
    for u in range(1, largest):
        pool.first[u] = f.model.new_int_var(0, most, f"first[{name},{u}]")
        coming.setdefault(u, []).append(pool.first[u])
        for before in range(u, largest - u + 1):
            v = pool.more[before, u] = f.model.new_int_var(0, most, f"more[{name},{before},{u}]")
            going.setdefault(before, []).append(v)
            coming.setdefault(before + u, []).append(v)
        if pool.tier < f.q.tiers:
            pool.sent[u] = f.model.new_int_var(0, most, f"sent[{name},{u}]")
            going.setdefault(u, []).append(pool.sent[u])
        used = pool.first[u] + sum(v for (_, n), v in pool.more.items() if n == u)
        f.model.add(used == sum(x[u] for x in given)).with_name(f"use_each_share_once[{name},{u}]")
    for k, kind in enumerate(kinds):
        pool.whole[k] = f.model.new_int_var(0, min(kind.count, most), f"joined_whole[{name},{k}]")
        going.setdefault(kind.size, []).append(pool.whole[k])
    for units in sorted(coming.keys() | going.keys()):
        f.model.add(sum(coming.get(units, [])) == sum(going.get(units, []))).with_name(f"join_shares[{name},{units}]")
    f.joints.extend(pool.more.values())


def joined_groups(q: Question, pools: Sequence[Pool], shares: Mapping[int, Sequence[Share]], values: Values) -> Iterator[Split]:
    """Return the groups across pods with their pieces, as the pools join the shares of the pods."""
    held = {pod: list(found) for pod, found in shares.items()}
    for tier in sorted({pool.tier for pool in pools}):
        sent: dict[int, list[Share]] = {}
        for x, pool in enumerate(pools):
            if pool.tier == tier:
                sent[x] = []
                for kind, share in _joined(q, pool, [s for at in pool.below for s in held[at]], values):
                    if kind is None:
                        sent[x].append(share)
                    else:
                        yield kind, share[1]
        held = sent


def _joined(q: Question, pool: Pool, shares: Sequence[Share], values: Values) -> Iterator[tuple[int | None, Share]]:
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
    found: dict[int, int] = {}
    for i, n in pieces:
        found[i] = found.get(i, 0) + n
    return tuple(found.items())
