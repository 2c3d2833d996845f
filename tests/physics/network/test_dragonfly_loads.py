"""What flows of a dragonfly can count on, tested against the load of every link."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dragonfly import dragonflies, groups_of, made

from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.fabric_designs import lay

Hop = tuple[str, int, int]  # kind of link, from, to; links between two groups apart by number
Path = list[tuple[Hop, float]]


class Wires:
    """The cables of a dragonfly by the switches that they join."""

    def __init__(self, d: Dragonfly) -> None:
        self.d, self.tier = d, "spine" if isinstance(d, DragonflyPlus) else "leaf"
        self.leaf_of: dict[int, int] = {}
        self.width: dict[Hop, float] = defaultdict(float)
        self.between: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        self.group = {
            tier: groups_of(d, tier, np.arange(n)).tolist() for tier, n in (("leaf", d.leaves), ("spine", d.spines))
        }
        self.members: dict[int, list[int]] = defaultdict(list)
        for leaf, g in enumerate(self.group["leaf"]):
            self.members[g].append(leaf)
        for c in lay(d, block=10**6):
            for a, b in zip(c.low.tolist(), c.high.tolist(), strict=True):
                self._wire(c.low_tier, c.high_tier, a, b)

    def _wire(self, low: str, high: str, a: int, b: int) -> None:
        if low == "gpu":
            self.leaf_of[a] = b
        elif low == high and self.group[low][a] != self.group[low][b]:
            for x, y in ((a, b), (b, a)):
                own = self.between[self.group[low][x], self.group[low][y]]
                own.append((x, y, len(own)))
        else:
            self.width[low, a, b] += 1.0
            self.width[f"to {low}", b, a] += 1.0

    def local(self, a: int, b: int) -> Iterator[Hop]:
        """Yield the hop from a router to another of its group, none to itself; of a dragonfly+ from leaf to spine."""
        if self.tier == "spine" or a != b:
            yield ("leaf", a, b) if ("leaf", a, b) in self.width else ("to leaf", a, b)

    def back(self, a: int, b: int) -> Iterator[Hop]:
        """Yield the hop from where links between groups end to a leaf."""
        if self.tier == "spine":
            yield "to leaf", a, b
        else:
            yield from self.local(a, b)

    def used(self, g: int, h: int) -> list[tuple[int, int, int]]:
        """Return the links between two groups that shortest paths use: whole shares of each spine, or all."""
        s, found = self.d.spines_per_pod, self.between[g, h]
        return found[: len(found) // s * s] if s and len(found) >= s else found


def shortest(w: Wires, a: int, b: int) -> Path:
    """Return the hops of a flow between two leaves, with its share on each."""
    g, h = w.group["leaf"][a], w.group["leaf"][b]
    if g == h:
        return inside(w, a, b, spread=False)
    links = w.used(g, h)
    path: Path = []
    for x, y, n in links:
        path += [(hop, 1 / len(links)) for hop in (*w.local(a, x), (f"link {n}", x, y), *w.back(y, b))]
    return path


def inside(w: Wires, a: int, b: int, *, spread: bool) -> Path:
    """Return the hops inside a group: over any spine, over any router with `spread`, else straight."""
    if w.tier == "spine":
        spines = [y for kind, x, y in w.width if kind == "leaf" and x == a]
        return [(hop, 1 / len(spines)) for y in spines for hop in (("leaf", a, y), ("to leaf", y, b))]
    ways = w.members[w.group["leaf"][a]] if spread else [b]
    return [(hop, 1 / len(ways)) for x in ways for hop in (*w.local(a, x), *w.local(x, b))]


def valiant(w: Wires, a: int, b: int) -> Path:
    """Return the hops of a flow by way of a random link out of its group."""
    g, h = w.group["leaf"][a], w.group["leaf"][b]
    if g == h:
        return inside(w, a, b, spread=True)
    out = [(v, link) for (x, v), links in w.between.items() if x == g for link in links]
    path: Path = []
    for v, (x, y, n) in out:
        path += [(hop, 1 / len(out)) for hop in (*w.local(a, x), (f"link {n}", x, y))]
        if v == h:
            path += [(hop, 1 / len(out)) for hop in w.back(y, b)]
            continue
        onward = w.between[v, h]
        share = 1 / len(out) / len(w.members[v])
        for middle in w.members[v]:
            path += [(hop, share) for hop in w.back(y, middle)]
            for p, q, k in onward:
                path += [
                    (hop, share / len(onward)) for hop in (*w.local(middle, p), (f"link {k}", p, q), *w.back(q, b))
                ]
    return path


def partners(d: Dragonfly, w: Wires, rng: np.random.Generator, *, shifted: bool) -> list[tuple[int, int]]:
    """Pair every endpoint with another at random, or the groups as they come: all of one group send to one other."""
    ends = sorted(w.leaf_of)
    if not shifted:
        return list(zip(ends, rng.permutation(ends).tolist(), strict=True))
    by_group = sorted(ends, key=lambda e: (w.group["leaf"][w.leaf_of[e]], w.leaf_of[e]))
    full = d.leaf_down * d.rails_per_pod * d.domains_per_pod * int(rng.integers(1, max(2, d.pods)))
    return list(zip(by_group, by_group[full % len(ends) :] + by_group[: full % len(ends)], strict=True))


def loads(d: Dragonfly, w: Wires, pairs: list[tuple[int, int]]) -> tuple[float, float]:
    """Return the largest load of a cable inside groups and of one between groups."""
    load: dict[Hop, float] = defaultdict(float)
    known: dict[tuple[int, int], Path] = {}
    for src, dst in pairs:
        a, b = w.leaf_of[src], w.leaf_of[dst]
        if a != b and (a, b) not in known:
            known[a, b] = (valiant if d.valiant else shortest)(w, a, b)
        for hop, share in known[a, b] if a != b else ():
            load[hop] += share
    local = max((n / w.width[hop] for hop, n in load.items() if not hop[0].startswith("link")), default=0.0)
    return local, max((n for hop, n in load.items() if hop[0].startswith("link")), default=0.0)


@settings(deadline=None, max_examples=50)
@given(dragonflies(), st.integers(0, 10**6), st.booleans())
def test_no_link_is_overrun(d: Dragonfly, seed: int, shifted: bool) -> None:
    """Where as much leaves a leaf and a group as their exits say, no link carries more than it can."""
    if d.networks > 1:
        return
    w = Wires(d)
    local, between = loads(d, w, partners(d, w, np.random.default_rng(seed), shifted=shifted))
    assert local <= d.leaf_down / d.exits["leaf"] + 1e-9
    assert between <= (d.leaf_down * max(d.group_sizes) / d.exits["pod"] if d.pods > 1 else 0.0) + 1e-9


@pytest.mark.parametrize("kind", [Dragonfly, DragonflyPlus])
@pytest.mark.parametrize(("size", "groups", "links"), [(4, 9, 1), (4, 9, 2), (3, 5, 1), (4, 7, 1), (2, 9, 2)])
def test_groups_that_all_send_to_one_other_come_near(kind: type[Dragonfly], size: int, groups: int, links: int) -> None:
    """Of every shift of groups the worst loads links between groups exactly as counted."""
    side = {
        "rails": 1, "leaf_down": 2, "leaf_bundle": 1, "rails_per_pod": 1, "domains_per_pod": size, "group_links": links,
        "valiant": True,
    }  # fmt: skip
    d = made(kind, racks=2 * size * groups, **side, **({"leaf_up": 4} if kind is DragonflyPlus else {}))
    w = Wires(d)
    ends = sorted(w.leaf_of, key=lambda e: (w.group["leaf"][w.leaf_of[e]], w.leaf_of[e]))
    found = [
        loads(d, w, list(zip(ends, ends[k:] + ends[:k], strict=True))) for k in range(2 * size, len(ends), 2 * size)
    ]
    assert 0.5 <= max(local for local, _ in found) * d.exits["leaf"] / d.leaf_down <= 1 + 1e-9
    assert max(between for _, between in found) * d.exits["pod"] / (d.leaf_down * size) == pytest.approx(1)
