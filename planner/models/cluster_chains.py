"""The placement of a job in counts where no group need cross pods: one flow for the whole groups, one for the split ones.

Split groups and the holes that they share form chains: a group opens a chain, holes fill it one after another, and what is
left of the last hole either takes the next group or closes the chain. A node of the flow is the units that a chain still
needs, or has left over; chains of equal needs are not told apart, so that no two numberings of clusters are the same answer,
and the relaxation is as tight as one over all patterns of chains (arc flows: Valerio de Carvalho 1999, for bin packing).
Holes taken less chains closed are the extra pieces.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ortools.sat.python import cp_model

from planner.models.cluster_decode import settled, spread, walk
from planner.models.cluster_exact import Formulation, follow_leaves, leave_idle_leaves_alone, place_each_group_once, use_each_hole_once
from planner.models.cluster_gather import Exchange
from planner.models.cluster_pieces import Part, cut_cluster
from planner.models.cluster_question import Packing, Question
from planner.solvers.cpsat import Values


@dataclass(kw_only=True)
class Chains:
    """The flow of chains of one pod; a need above 0 is still to be held, one below is left over of the last hole."""

    opened: dict[int, cp_model.IntVar] = field(default_factory=dict)  # by kind
    filled: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (need before, hole)
    joined: dict[tuple[int, int], cp_model.IntVar] = field(default_factory=dict)  # (need before, kind)
    closed: dict[int, cp_model.IntVar] = field(default_factory=dict)  # by need
    used: dict[int, cp_model.IntVar] = field(default_factory=dict)  # holes by size, all together
    held: dict[int, cp_model.IntVar] = field(default_factory=dict)  # groups by kind, all together


def size_of(q: Question, *, by_pod: bool) -> int:
    """Estimate the variables of the model."""
    largest, holes = max(k.size for k in q.kinds), max(leaf.free for leaf in q.leaves)
    used = min(largest - 1, holes)
    return (len(q.pods) if by_pod else 1) * (largest * used + (used + holes) * (len(q.kinds) + 1))


def formulate_chains(q: Question, *, by_pod: bool) -> tuple[Formulation, dict[int, Chains]]:
    """Declare both flows with their rules, all leaves in one or pod by pod."""
    f = Formulation(q=q, by_pod=by_pod, pods=q.pods if by_pod else {0: list(range(len(q.leaves)))}, slots=0)
    chains = {}
    for pod in f.pods:
        follow_leaves(f, pod)
        chains[pod] = follow_chains(f, pod)
        count_chains(f, pod, chains[pod])
    place_each_group_once(f)
    _as_clusters(f, chains)
    place_split_groups(f, chains)
    use_each_hole_once(f)
    leave_idle_leaves_alone(f)
    return f, chains


def follow_chains(f: Formulation, pod: int) -> Chains:
    """Lead each chain of a pod from its first group to its last hole.

    A hole as large as the largest group would hold whole any group that is split, so none is used.
    """
    x, kinds = Chains(), f.q.kinds
    sizes = [c for p, c in f.rest if p == pod and c < max(k.size for k in kinds)]
    most = sum(k.count for k in kinds)
    coming: dict[int, list[cp_model.IntVar]] = {}

    def declare(name: str, to: int | None, limit: int) -> cp_model.IntVar:
        v = f.model.new_int_var(0, limit, f"{name}[{pod}]")
        if to is not None:
            coming.setdefault(to, []).append(v)
        return v

    for k, kind in enumerate(kinds):
        x.opened[k] = declare(f"opened[{k}]", kind.size, kind.count)
        for left in range(1, min(max(sizes, default=0), kind.size)):
            x.joined[-left, k] = declare(f"joined[{-left},{k}]", kind.size - left, kind.count)
    for need in range(max(k.size for k in kinds), 0, -1):
        for c in sizes:
            x.filled[need, c] = declare(f"filled[{need},{c}]", need - c, len(f.pods[pod]))
    for need in range(0, -max(sizes, default=0), -1):
        x.closed[need] = declare(f"closed[{need}]", None, most)
    for need in sorted(coming):
        going = [v for (n, _), v in [*x.filled.items(), *x.joined.items()] if n == need]
        ends = [x.closed[need]] if need in x.closed else []
        f.model.add(sum(coming[need]) == sum(going) + sum(ends)).with_name(f"follow_chains[{pod},{need}]")
    for need in x.closed.keys() | {n for n, _ in x.joined}:
        if need not in coming:
            f.model.add(x.closed[need] + sum(v for (n, _), v in x.joined.items() if n == need) == 0).with_name(f"start_at_a_group[{pod},{need}]")
    return x


def count_chains(f: Formulation, pod: int, x: Chains) -> None:
    """Count the holes and groups of a pod's chains."""
    for c in sorted({c for _, c in x.filled}):
        x.used[c] = f.model.new_int_var(0, len(f.pods[pod]), f"used[{pod},{c}]")
        f.model.add(x.used[c] == sum(v for (_, size), v in x.filled.items() if size == c)).with_name(f"count_holes[{pod},{c}]")
    for k, kind in enumerate(f.q.kinds):
        x.held[k] = f.model.new_int_var(0, kind.count, f"held[{pod},{k}]")
        joined = sum(v for (_, i), v in x.joined.items() if i == k)
        f.model.add(x.held[k] == x.opened[k] + joined).with_name(f"count_groups[{pod},{k}]")


def place_split_groups(f: Formulation, chains: dict[int, Chains]) -> None:
    """Put every group that is not whole into a chain."""
    for k in range(len(f.q.kinds)):
        f.model.add(sum(x.held[k] for x in chains.values()) == f.split(k)).with_name(f"place_split_groups[{k}]")


def _as_clusters(f: Formulation, chains: dict[int, Chains]) -> None:
    """State the chains of each pod in the terms in which levels are counted: as a cluster, none of whose groups crosses pods."""
    for pod, x in chains.items():
        f.take.append({(p, c): x.used[c] for p, c in f.rest if p == pod and c in x.used})
        f.held.append(list(x.held.values()))
        f.opened.extend(x.closed.values())
        f.wasteful.extend(v for need, v in x.closed.items() if need < 0)
        above = f.q.leaves[f.q.pods[pod][0]].path if f.by_pod else ()
        f.local.append({(t, s, k): v for t, s in enumerate(above) for k, v in x.held.items()})


def decode_chains(f: Formulation, chains: dict[int, Chains], values: Values) -> Packing:
    """Return the whole groups, and the split ones cut along their chains."""
    packing, sizes = Packing(), [k.size for k in f.q.kinds]
    for pod, x in chains.items():
        exchange = Exchange(f.q, packing, walk(f, values, pod, packing))
        spanning = []
        for held, used in sorted(_followed(sizes, x, values), key=lambda chain: -chain[1].total()):
            groups, holes = [held[k] for k in range(len(sizes))], exchange.gather(used)
            if holes is None:
                spanning.append((groups, used))
            else:
                part = Part(holes=tuple(holes), local=tuple(k for k, n in enumerate(groups) for _ in range(n)))
                packing.split.extend(cut_cluster(sizes, [part], []))
        rest = exchange.rest()
        for groups, used in spanning:
            packing.split.extend(cut_cluster(sizes, *spread(f.q, groups, used, rest)))
    packing.whole = +packing.whole
    return settled(packing)


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
