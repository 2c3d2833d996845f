"""What a dragonfly states of its rates and places by hand, and the links that flows load."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dragonfly import dragonflies, groups_of, made

from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus, assured_links, part_sizes
from planner.physics.network.fabric_cables import lay
from planner.physics.network.uplink_slowdowns import uplink_loads

# Four rails in two pods across, six leaf domains of two racks in two pods along: four groups of 2·3 leaves.
SIDE = {
    "ports": 32, "rails": 4, "racks": 12, "leaf_down": 6, "rail_gpus": 3, "split": 2, "nic_gbps": 400.0,
    "link_gbps": 800.0, "leaf_bundle": 4, "rails_per_pod": 2, "domains_per_pod": 3, "group_links": 5,
}  # fmt: skip


@each(("choices", "leaf_exit", "pod_exit"), [
    # A bundle of 4 is half for what a router sends and half for what it gets; two groups share 5 links.
    ({}, 2.0, 5.0),
    # 15 links leave a group of six routers, 7.5 of them for its own; a router has at most (1 + 5/15)/6 of them. A
    # bundle takes that share of what the one sends and of what the other gets, and as much again of what passes.
    ({"valiant": True}, 4 / (2 * (1 + 5 / 15) / 6 * (1 + 6 / 6)), 7.5),
])  # fmt: skip
def test_oversubscription_and_flows_by_hand(choices: dict[str, bool], leaf_exit: float, pod_exit: float) -> None:
    """Six GPUs of a leaf, 2·3 leaves of a group, over the links that they are assured of, each for two GPUs."""
    # An all-reduce between racks has a flow for each of the 3 GPUs that a rack has at a leaf, and of 2·3 in a group.
    d = Dragonfly.of(**SIDE, **choices)
    assert d.faults() == []
    assert (d.pods, d.leaves, d.group_sizes, d.pod_uplinks) == (4, 24, {6: 4}, 15)
    assert (d.exits["leaf"], d.exits["pod"]) == (pytest.approx(leaf_exit), pod_exit)
    assert d.oversubscription["leaf"] == pytest.approx(6 / (leaf_exit * 2))
    assert d.oversubscription["leaf"] * d.oversubscription["spine"] == pytest.approx(6 * 6 / (pod_exit * 2))
    rings = {"leaf": 3 / (leaf_exit * 2), "pod": 2 * 3 / (pod_exit * 2)}
    assert {level: ring for level, (_, ring) in uplink_loads(d, (), (1, 1)).items() if ring} == pytest.approx(rings)
    assert not d.single


def test_a_group_has_nothing_to_leave_where_it_is_alone() -> None:
    """All routers may be one group, as two of one rail are."""
    d = Dragonfly.of(**SIDE | {"rails_per_pod": 4, "domains_per_pod": 6, "group_links": 0, "leaf_bundle": 1})
    assert d.faults() == []
    assert (d.pods, d.group_sizes, d.exits["leaf"], d.oversubscription["spine"]) == (1, {24: 1}, 1.0, 1.0)
    assert (d.switch_links, d.switch_pairs) == (24 * 23 // 2, 24 * 23 // 2)
    assert Dragonfly.of(**SIDE | {"rails": 1, "racks": 4, "rails_per_pod": 1, "group_links": 0}).faults() == []


def test_ports_of_unlike_groups() -> None:
    """Five domains in groups of three, two rails: full groups of three routers, smaller ones of two."""
    # A router has a bundle of 4 to each other of its group and its part of the 15 links that leave: 2·4 + 5 in a full
    # group; in a small one 4 + 7 or 4 + 8. A bundle joins two routers, a link two groups.
    d = Dragonfly.of(**SIDE | {"rails": 2, "racks": 10, "rails_per_pod": 1})
    assert (d.pods, d.group_sizes) == (4, {3: 2, 2: 2})
    assert (d.router_ports(3), d.router_ports(2)) == (13, 12)
    assert (d.up_port_range, d.local_ports, d.global_ports) == ((11, 13), 8, 5)
    assert (d.local_links, d.global_links, d.switch_pairs) == (2 * 4 * (3 + 1), 6 * 5, 2 * (3 + 1) + 30)
    assert (part_sizes(5, 3), part_sizes(6, 3), part_sizes(2, 3)) == ({3: 1, 2: 1}, {3: 2}, {2: 1})


def test_places_of_switches() -> None:
    """Routers stand amid their group's 2·3 racks, leaves of a dragonfly+ amid their domain's 2, spines amid 6."""
    d, plus = Dragonfly.of(**SIDE), DragonflyPlus.of(**SIDE, leaf_up=8)
    assert [d.racks_around(t) for t in ("gpu", "leaf", "spine", "wan-gateway")] == [1, 6, 6, 12]
    assert [plus.racks_around(t) for t in ("gpu", "leaf", "spine", "wan-gateway")] == [1, 2, 6, 12]


@each(("up", "links", "valiant", "leaf_exit", "pod_exit"), [
    # Two bundles of 4 to two spines: five links between two groups, of which four are whole shares of two spines.
    (8, 5, False, 8, 4),
    (8, 1, False, 4, 1),
    # Three spines and five links: three of them, one to each.
    (12, 5, False, 12, 3),
    # By way of other groups: what a leaf sends and gets, and at most (1 + 1/15) of an even share at a spine.
    (8, 5, True, 8 / 2 / (1 + 1 / 15), 7.5),
])  # fmt: skip
def test_exits_of_a_dragonfly_plus(up: int, links: int, valiant: bool, leaf_exit: float, pod_exit: float) -> None:
    """A leaf has its bundles to the spines that links between groups use, a group whole shares of all its spines."""
    d = DragonflyPlus.of(**SIDE | {"group_links": links, "leaf_up": up, "valiant": valiant})
    assert (d.spines_per_pod, d.spines) == (up // 4, up // 4 * 4)
    assert (d.exits["leaf"], d.exits["pod"]) == (pytest.approx(leaf_exit), pod_exit)
    assert d.up_port_range == (up, up)
    assert (d.local_links, d.global_ports) == (24 * up, -(-3 * links // (up // 4)))
    assert d.switch_pairs == 24 * up // 4 + 6 * links


def test_shares_of_a_bundle() -> None:
    """Half where others send too, all of it where none do; by way of a random router as the module's formula says."""
    # Of three routers and six links each has two, a third: b/(2·(1/3)·(1 + 3/3)) = 3/4 times 1/(1 + 2/6).
    for sizes, links, valiant, share in (
        ([3], 0, False, 1.0), ([3], 2, False, 0.5), ([3], 0, True, 1.5),
        ([3], 6, True, 3 / 2 / (2 * (1 + 2 / 6))), ([2, 3], 6, True, 2 / 2 / (2.5 * (1 + 1 / 6))),
    ):  # fmt: skip
        found, _ = assured_links(sizes, 1, None, links=links, groups=2, valiant=valiant)
        assert found == pytest.approx(share)


@each(("kind", "choices", "said"), [
    (Dragonfly, {"rails_per_pod": 0}, "group: 0 rails, 3 domains, bundles of 4; at least 1 of each"),
    (Dragonfly, {"domains_per_pod": 0}, "group: 2 rails, 0 domains, bundles of 4; at least 1 of each"),
    (Dragonfly, {"leaf_bundle": 0}, "group: 2 rails, 3 domains, bundles of 0; at least 1 of each"),
    (Dragonfly, {"group_links": 0}, "reach: 4 groups and 0 links between two of them"),
    (Dragonfly, {"leaf_up": 21}, "ports: 21 local and 3 global stated, bundles and groups make others"),
    (Dragonfly, {"spine_up": 4}, "ports: 20 local and 4 global stated, bundles and groups make others"),
    (Dragonfly, {"rails_per_pod": 4, "domains_per_pod": 6, "leaf_bundle": 1}, "groups: 1 with 5 links to others"),
    (Dragonfly, {"rails": 1, "racks": 2, "rails_per_pod": 1, "group_links": 0},
     "groups: 1 of 1 router; several groups, or routers, expected"),
    (Dragonfly, {"ports": 25}, "leaf ports: 6 down + 23 up > 25 ports, each for 2 GPUs or a link up"),
    (DragonflyPlus, {"leaf_up": 6}, "leaf bundle: 6 uplinks are not whole bundles of 4"),
    (DragonflyPlus, {"leaf_up": 0}, "leaf bundle: 0 uplinks are not whole bundles of 4"),
    (DragonflyPlus, {"rails_per_pod": 0}, "leaf bundle: 8 uplinks are not whole bundles of 4"),
    (DragonflyPlus, {"domains_per_pod": 0}, "leaf bundle: 8 uplinks are not whole bundles of 4"),
    (DragonflyPlus, {"rails_per_pod": 4, "domains_per_pod": 6, "group_links": 0}, "groups: 1; several expected"),
    (DragonflyPlus, {"ports": 31}, "spine ports: 24 down + 8 global > 31 ports"),
    (DragonflyPlus, {"spine_up": 4}, "ports: 8 local and 4 global stated, bundles and groups make others"),
])  # fmt: skip
def test_what_cannot_be_wired_is_said(kind: type[Dragonfly], choices: dict[str, int], said: str) -> None:
    """One choice of a good dragonfly changed is named in numbers, first of all that it breaks."""
    good = kind.of(**SIDE, **({"leaf_up": 8} if kind is DragonflyPlus else {}))
    assert good.faults() == []
    assert dataclasses.replace(good, **choices).faults()[0] == said


Hop = tuple[str, int, int]  # kind of link, from, to; links between two groups apart by number
Path = list[tuple[Hop, float]]


class Wires:
    """The cables of a dragonfly by the switches that they join."""

    def __init__(self, d: Dragonfly) -> None:
        self.d, self.tier = d, "spine" if isinstance(d, DragonflyPlus) else "leaf"
        self.leaf_of: dict[int, int] = {}
        self.width: dict[Hop, float] = defaultdict(float)
        self.between: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        boxes = {"leaf": d.leaves, "spine": d.spines}
        self.group = {tier: groups_of(d, tier, np.arange(n)).tolist() for tier, n in boxes.items()}
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
                hops = *w.local(middle, p), (f"link {k}", p, q), *w.back(q, b)
                path += [(hop, share / len(onward)) for hop in hops]
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
    side = {"rails": 1, "leaf_down": 2, "leaf_bundle": 1, "rails_per_pod": 1, "domains_per_pod": size}
    side |= {"group_links": links, "valiant": True}
    d = made(kind, racks=2 * size * groups, **side, **({"leaf_up": 4} if kind is DragonflyPlus else {}))
    w = Wires(d)
    ends, group = sorted(w.leaf_of, key=lambda e: (w.group["leaf"][w.leaf_of[e]], w.leaf_of[e])), 2 * size
    shifts = (ends[k:] + ends[:k] for k in range(group, len(ends), group))
    found = [loads(d, w, list(zip(ends, shifted, strict=True))) for shifted in shifts]
    assert 0.5 <= max(local for local, _ in found) * d.exits["leaf"] / d.leaf_down <= 1 + 1e-9
    assert max(between for _, between in found) * d.exits["pod"] / (d.leaf_down * size) == pytest.approx(1)
