"""Small clusters and jobs at random, and the best of all ways to place them, without the code under test."""

import itertools
import random
from collections.abc import Iterable, Iterator

from planner.cluster.placement import PlacedGroup, Placement
from planner.models.placement.placement_problem import Kind, Leaf, Packing, PlacementProblem, Solution
from planner.plan.certificate import Certificate

PROVEN = Certificate(
    status="optimal", objective=0, bound=0, gap=0, solver="", formulation="", variables=0, constraints=0, seconds=0,
    seed=0, minimizes="",
)  # fmt: skip
Way = tuple[int, ...]


def placed_on(job: str, nodes: Way | tuple[str, ...], size: int = 0, gpus_per_node: int | None = None) -> Placement:
    """Return a job placed on nodes (by number: n01), in groups of `size` of them; in none where that is 0."""
    names = tuple(node if isinstance(node, str) else f"n{node:02d}" for node in nodes)
    own = [names[i : i + size] for i in range(0, len(names), size)] if size else []
    return Placement(
        job=job,
        nodes=names,
        groups=tuple(PlacedGroup(name=f"dp{i}", nodes=group, leaves=()) for i, group in enumerate(own)),
        **dict.fromkeys(("groups_split", "lower_bound_split", "extra_pieces", "groups_cross_pod"), 0),
        figures=(),
        gpus_per_node=gpus_per_node,
        certificate=PROVEN,
    )


def on_one_line(leaves: tuple[Leaf, ...], kinds: Iterable[Kind]) -> PlacementProblem:
    """Return the placement of groups on leaves, all of them following each other on one axis."""
    own = tuple(kinds)
    return PlacementProblem(leaves=leaves, kinds=own, line=sum(kind.count for kind in own))


def random_problem(seed: int, *, tiers: int = 1) -> PlacementProblem:
    """Return unequal leaves under a few pods, part of them busy, and one or two kinds of groups that fit."""
    r = random.Random(seed)
    while True:
        leaves = []
        for _ in range(r.randint(1, 4)):
            size, pod = r.randint(1, 6), r.randint(0, 1 if tiers == 1 else 2)
            path = (pod, pod // 2)[:tiers]
            leaves.append(Leaf(path, size if r.random() < 0.4 else r.randint(0, size), size))
        kinds = (Kind(g, r.randint(1, 3), r.choice([1, 1, 2])) for g in r.sample(range(1, 6), r.randint(1, 2)))
        q = on_one_line(tuple(leaves), kinds)
        if q.need <= q.free and q.groups <= 4:
            return q


def crowded_problem(seed: int, *, tiers: int) -> PlacementProblem:
    """Return five leaves, most in a pod of its own, filled to the last units by groups as large: some must cross."""
    r = random.Random(seed)
    while True:
        pods = sorted(r.randrange(6) for _ in range(5))
        leaves = tuple(Leaf((pod, pod // 2, pod // 4)[:tiers], r.randint(1, 4), 4) for pod in pods)
        q = on_one_line(leaves, (Kind(g, r.randint(1, 3), 1) for g in r.sample([2, 3, 4, 5], 2)))
        if q.free - 1 <= q.need <= q.free and q.groups <= 5:
            return q


def ways(free: Way, size: int) -> Iterator[Way]:
    """Yield every way to take a group from the leaves."""
    for head in itertools.product(*(range(min(f, size) + 1) for f in free[:-1])):
        if 0 <= size - sum(head) <= free[-1]:
            yield (*head, size - sum(head))


def placements(q: PlacementProblem) -> Iterator[tuple[tuple[int, Way], ...]]:
    """Yield every placement as (kind, units by leaf) of each group; equal groups in one order only."""
    order = [k for k, kind in enumerate(q.kinds) for _ in range(kind.count)]

    def further(at: int, free: Way, last: Way) -> Iterator[tuple[tuple[int, Way], ...]]:
        if at == len(order):
            yield ()
            return
        same = at > 0 and order[at - 1] == order[at]
        for way in ways(free, q.kinds[order[at]].size):
            if not same or way >= last:
                for rest in further(at + 1, tuple(f - n for f, n in zip(free, way, strict=True)), way):
                    yield ((order[at], way), *rest)

    yield from further(0, tuple(leaf.free for leaf in q.leaves), ())


def cost(q: PlacementProblem, placed: tuple[tuple[int, Way], ...]) -> tuple[int, ...]:
    """Count the levels of the objective on one placement."""
    on = [[i for i, n in enumerate(way) if n] for _, way in placed]
    crossing = [
        sum(len({q.leaves[i].path[t] for i in group}) > 1 for group in on) for t in range(len(q.leaves[0].path))
    ]
    within = [{q.leaves[i].path[0] for i in group} for group in on]
    runs = len({next(iter(p)) for p in within if len(p) == 1}) + sum(len(p) > 1 for p in within)
    left = [leaf.free - sum(way[i] for _, way in placed) for i, leaf in enumerate(q.leaves)]
    return (
        sum(q.kinds[k].weight for (k, _), group in zip(placed, on, strict=True) if len(group) > 1),
        sum(len(group) - 1 for group in on),
        *crossing,
        runs - 1,
        sum(0 < n < leaf.size for n, leaf in zip(left, q.leaves, strict=True)),
    )


def best(q: PlacementProblem) -> tuple[int, ...]:
    return min(cost(q, p) for p in placements(q))


def replayed(q: PlacementProblem, f: Solution[Packing]) -> tuple[int, ...]:
    """Require that a packing is whole and fits, and count its levels."""
    placed = [
        (k, tuple(q.kinds[k].size * (i == leaf) for i in range(len(q.leaves))))
        for (leaf, k), n in f.packing.whole.items()
        for _ in range(n)
    ]
    placed += [(k, tuple(dict(pieces).get(i, 0) for i in range(len(q.leaves)))) for k, pieces in f.packing.split]
    sizes = sorted((k, sum(way)) for k, way in placed)
    assert sizes == sorted((k, kind.size) for k, kind in enumerate(q.kinds) for _ in range(kind.count))
    assert all(sum(way[i] for _, way in placed) <= leaf.free for i, leaf in enumerate(q.leaves))
    return cost(q, tuple(placed))
