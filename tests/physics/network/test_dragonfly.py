"""Dragonflies."""
# Published sizes, every cable laid once, each pair joined alike, and what links assured to flows against fluid loads.

import dataclasses
import itertools
import math
import random
from collections import Counter

import numpy as np
from each_case import each
from fabric_graph import laid
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cabling import wirable

from planner.physics.network.clos_fabric import Design
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus, two_of
from planner.physics.network.fabric_cables import lay


def made(kind: type[Dragonfly], **choices: int) -> Dragonfly:
    """Return a dragonfly that does not yet say how many ports its switches have."""
    return kind.of(**{"ports": 1, **choices})


@st.composite
def dragonflies(draw: st.DrawFn) -> Dragonfly:
    """Draw a dragonfly or dragonfly+ that can be wired, with no more ports than its fullest switch uses."""
    rails, racks, width = draw(st.integers(1, 4)), draw(st.integers(1, 24)), draw(st.integers(1, 2))
    domain, spare = draw(st.integers(1, 5)), draw(st.integers(0, 2))
    domains = math.ceil(racks / domain)
    side = {"rail_gpus": width, "apart": draw(st.integers(1, 2)), "lanes": draw(st.integers(1, 2))}
    side |= {"leaf_spare": spare, "split": draw(st.integers(1, 3))}
    side |= {"rails": rails, "racks": racks, "leaf_down": domain * width, "leaf_bundle": draw(st.integers(1, 3))}
    side |= {"rails_per_pod": draw(st.integers(1, rails)), "domains_per_pod": draw(st.integers(1, domains))}
    side |= {"valiant": draw(st.booleans()), "wan_ports": draw(st.sampled_from([0, 0, 1, 3, 10, 40]))}
    one = Dragonfly(ports=1, group_links=0, **side)
    plus = one.pods > 1 and draw(st.booleans())
    if one.pods == 1 and one.leaves == one.networks:
        side |= {"rails": 2, "rails_per_pod": 1, "apart": 1}
    several = Dragonfly(ports=1, group_links=0, **side).pods > 1
    spines = draw(st.integers(1, 4)) if plus else 0
    links = draw(st.integers(1, 4)) * several
    if plus:
        side |= {"leaf_up": spines * side["leaf_bundle"]}
    d = made(DragonflyPlus if plus else Dragonfly, group_links=links, **side)
    switches = spines or max(d.group_sizes)
    if d.valiant and several:
        d = made(type(d), **side, group_links=max(links, math.ceil(switches / (d.pods - 1))))
    leaf = math.ceil((d.leaf_down + spare) / d.split) + max(d.up_port_range)
    return dataclasses.replace(d, ports=max(leaf, sum(d.top_ports), 1 + (d.wan_ports > 0)))


# Kim et al. 2008: figure 5 (p = h = 2, a = 4, 72 endpoints), and section 3.1's 64-port routers (balanced a = 2p = 2h: p
# + a + h - 1 = 63).
@each(("p", "a", "h", "groups", "endpoints"), [(2, 4, 2, 9, 72), (16, 32, 16, 513, 262_656)])
def test_published_dragonflies(p: int, a: int, h: int, groups: int, endpoints: int) -> None:
    """The largest dragonfly has g = a·h + 1 groups and N = a·p·g endpoints; one more group finds no port."""
    assert (groups, endpoints) == (a * h + 1, a * p * (a * h + 1))
    side = {"rails": 1, "leaf_down": p, "leaf_bundle": 1, "rails_per_pod": 1, "domains_per_pod": a, "group_links": 1}
    d = made(Dragonfly, racks=endpoints, **side)
    d = dataclasses.replace(d, ports=p + a - 1 + h)
    assert d.faults() == []
    assert (d.pods, d.leaves, d.global_ports) == (groups, a * groups, h)
    assert d.switch_links == groups * a * (a - 1) // 2 + groups * (groups - 1) // 2
    more = dataclasses.replace(made(Dragonfly, racks=endpoints + a * p, **side), ports=d.ports)
    assert "leaf ports" in more.faults()[0]


def test_largest_dragonfly_plus() -> None:
    """Shpiner et al. 2017."""
    # Switches of k ports, half down and half up, make groups of (k/2)² endpoints and (k/2)² + 1 groups.
    half = 4
    side = {"rails": 1, "leaf_down": half, "leaf_up": half, "leaf_bundle": 1, "rails_per_pod": 1}
    side |= {"domains_per_pod": half, "group_links": 1}
    racks = half**2 * (half**2 + 1)
    d = dataclasses.replace(made(DragonflyPlus, racks=racks, **side), ports=2 * half)
    assert d.faults() == []
    assert (d.pods, d.leaves, d.spines, d.endpoint_links) == (17, 68, 68, 272)
    more = dataclasses.replace(made(DragonflyPlus, racks=racks + 1, **side), ports=2 * half)
    assert more.faults() == ["spine ports: 4 down + 5 global > 8 ports"]


@settings(deadline=None)
@given(dragonflies())
def test_every_port_is_used_once_and_counts_agree(d: Dragonfly) -> None:
    """The fullest switch has no port to spare: with one fewer the dragonfly is refused."""
    assert d.faults() == []
    found = laid(d)
    most = max(int(used.sum(axis=1).max()) for tier, used in found.used.items() if tier not in ("gpu", "wan-gateway"))
    assert most + d.leaf_spare * (d.tiers == 1) <= d.ports * d.split
    assert dataclasses.replace(d, ports=d.ports - 1).faults()


def groups_of(d: Design, tier: str, box: np.ndarray) -> np.ndarray:
    """Return the group of each switch of a tier; of a tree's top all that are of one network."""
    if not d.grouped:
        return box // d.top[1]
    if tier == "spine":
        return box // d.spines_per_pod
    across = math.ceil(d.rails / d.rails_per_pod)
    network, own = box // (d.domains * d.rails), box % (d.domains * d.rails)
    return network * d.pods + own // d.rails // d.domains_per_pod * across + own % d.rails // d.rails_per_pod


@settings(deadline=None)
@given(dragonflies())
def test_all_pairs_are_joined_alike(d: Dragonfly) -> None:
    """Two routers of a group by a bundle, two groups by as many links, which its switches have in turn."""
    local, between, at = Counter[tuple[int, int]](), Counter[tuple[int, int]](), Counter[int]()
    for c in (c for c in lay(d, block=10**6) if c.low_tier == c.high_tier):
        ga, gb = groups_of(d, c.low_tier, c.low), groups_of(d, c.high_tier, c.high)
        for a, b, x, y in zip(c.low.tolist(), c.high.tolist(), ga.tolist(), gb.tolist(), strict=True):
            if x == y:
                local[a, b] += 1
            else:
                between[x, y] += 1
                at.update((a, b))
    each = [g for n in range(d.networks) for g in itertools.combinations(range(n * d.pods, (n + 1) * d.pods), 2)]
    assert between == (dict.fromkeys(each, d.group_links) if d.group_links else {})
    assert set(local.values()) <= {d.leaf_bundle}
    if d.tiers == 1:
        assert len(local) == d.networks * sum(n * a * (a - 1) // 2 for a, n in d.group_sizes.items())
    boxes = np.arange(d.top[1] * d.networks)
    held, group = np.array([at[box] for box in boxes.tolist()]), groups_of(d, d.top[0], boxes)
    assert all(np.ptp(held[group == g]) <= 1 for g in range(d.networks * d.pods))


@settings(deadline=None)
@given(st.one_of(wirable(), dragonflies()))
def test_a_wan_gateway_is_spread(d: Design) -> None:
    """Its links go to every group of its network alike, and inside a group to every switch alike, give or take one."""
    held = [c for c in lay(d, block=10**6) if c.low_tier == "wan-gateway"]
    tier, n = d.top[0], d.top[1] * d.networks
    at = np.zeros(n, np.int64)
    for c in held:
        np.add.at(at, c.high, 1)
        assert (c.low // (d.wan_gateways // d.networks) == c.high // d.top[1]).all()
        assert np.bincount(c.low).max() <= d.ports // 2
    group = groups_of(d, tier, np.arange(n))
    sums = np.bincount(group, weights=at).reshape(d.networks, -1)
    assert (np.ptp(sums, axis=1) <= 1).all()
    assert all(np.ptp(at[group == g]) <= 1 for g in range(sums.size))


@each(("kind", "side", "most", "said"), [
    (Dragonfly, {"domains_per_pod": 2}, 12, "leaf ports: 6 taken + 3 of the WAN gateway > 8 ports"),
    (Dragonfly, {"domains_per_pod": 4}, 8, "leaf ports: 7 taken + 2 of the WAN gateway > 8 ports"),
    (DragonflyPlus, {"domains_per_pod": 2, "leaf_up": 2}, 24, "spine ports: 4 taken + 5 of the WAN gateway > 8 ports"),
])  # fmt: skip
def test_a_wan_gateway_finds_no_port(kind: type[Dragonfly], side: dict[str, int], most: int, said: str) -> None:
    same = {"rails": 1, "racks": 18, "leaf_down": 3, "leaf_bundle": 1, "rails_per_pod": 1, "group_links": 2, **side}
    d = dataclasses.replace(made(kind, **same), ports=8)
    assert dataclasses.replace(d, wan_ports=most).faults() == []
    assert dataclasses.replace(d, wan_ports=most + 1).faults() == [said]


def test_pairs_by_number_are_exact() -> None:
    """Pair j·(j - 1)/2 + i is of i and j: the first and the last of j, also where its root is rounded to another."""
    js = [2, 3, 1000, *(10**9 - k for k in range(50)), *(94_906_267 + k for k in range(50))]
    first = np.array([j * (j - 1) // 2 for j in js], dtype=np.int64)
    last = first + np.array(js) - 1
    for pair, expected in ((first, [0] * len(js)), (last, [j - 1 for j in js])):
        i, j = two_of(pair)
        assert (i.tolist(), j.tolist()) == (expected, js)


def bisection_share(d: Dragonfly) -> float:
    """Count the links over every cut of one network's switches, by plain enumeration; GPUs move at a NIC each."""
    leaves, spines = d.leaves // d.networks, d.spines // d.networks
    sides = np.arange(1 << (leaves + spines - 1))[:, None] >> np.arange(leaves + spines) & 1
    cut, gpus = np.zeros(len(sides)), np.zeros(leaves)
    for cables in lay(d):
        if cables.low_tier == "gpu":
            gpus += np.bincount(cables.high, minlength=d.leaves)[:leaves]
            continue
        own = cables.low < (leaves if cables.low_tier == "leaf" else spines)
        low = cables.low[own] + leaves * (cables.low_tier == "spine")
        for one, other in zip(low, cables.high[own] + leaves * (cables.high_tier == "spine"), strict=True):
            cut += d.link_nics * (sides[:, one] != sides[:, other])
    half = gpus.sum() / 2
    return float((cut + np.abs(sides[:, :leaves] @ gpus - half)).min()) / half


def drawn(r: random.Random, kind: type[Dragonfly]) -> Dragonfly:
    """Draw a fabric of several groups with at most 15 switches."""
    while True:
        rails, bundle = r.randint(1, 6), r.randint(1, 3)
        own = {"rails": rails, "racks": r.randint(3, 60), "leaf_down": r.randint(2, 12), "leaf_bundle": bundle}
        own |= {"rails_per_pod": r.randint(1, rails), "domains_per_pod": r.randint(1, 4)}
        own |= {"group_links": r.randint(1, 12), "link_gbps": r.choice([1.0, 2.0]), "lanes": r.choice([1, 2])}
        own |= {"leaf_up": bundle * r.randint(1, 4)} if kind is DragonflyPlus else {}
        d = kind.of(ports=64, **own)
        if d.pods > 1 and not d.faults() and (d.leaves + d.spines) // d.networks <= 15:
            return d


@each("kind", [Dragonfly, DragonflyPlus])
def test_bisection_is_of_balanced_halves(kind: type[Dragonfly]) -> None:
    """No cut into halves carries more than the share stated, and most often none carries less."""
    r = random.Random(3)
    found = sorted(d.bisection_share / bisection_share(d) for d in (drawn(r, kind) for _ in range(60)))
    assert found[0] >= 1 - 1e-9
    assert found[len(found) * 3 // 4] <= 1 + 1e-9 and found[len(found) * 9 // 10] < 1.5


def test_bisection_of_an_odd_number_of_groups() -> None:
    """Three groups of eight leaves, 24 down and up: halves are of a group and a half, and carry all that GPUs send."""
    own = {"rails": 8, "racks": 72, "leaf_down": 24, "rails_per_pod": 8, "domains_per_pod": 1}
    plus = made(DragonflyPlus, **own, leaf_up=24, leaf_bundle=4, group_links=96)
    assert plus.bisection_share == 1
    assert dataclasses.replace(plus, group_links=48).bisection_share == (2 * 48 + 96) / 288
