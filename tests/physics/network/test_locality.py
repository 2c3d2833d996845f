"""Locality: what crosses, counted by hand, by plain loops, and at full size; links that sends and rings share."""

import itertools
import random
from collections import Counter
from fractions import Fraction

import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cabling import wirable

from planner.physics.network import uplink_slowdowns
from planner.physics.network.clos_fabric import Design
from planner.physics.network.locality import (
    Locality,
    domain_racks,
    exchange_bound,
    exchange_leaving,
    locality,
    min_crossings,
)
from planner.simulation import simulate
from planner.simulation.flow_times import flow_seconds
from planner.simulation.simulate import part_of_design
from planner.simulation.simulated_routes import joined


def by_loops(stages: list[list[int]], block: int, wrap: bool) -> tuple[float, int, float, int, int]:
    """Count the same as the arrays do, one flow and one rack at a time."""
    pairs = list(itertools.pairwise(stages)) + ([(stages[-1], stages[0])] if wrap and len(stages) > 1 else [])
    out, into = Counter[int](), Counter[int]()
    for a, b in pairs:
        for x, y in zip(a, b, strict=False):
            if x // block != y // block:
                out[x // block] += 1
                into[y // block] += 1
    held = [Counter(rack // block for rack in s) for s in stages]
    split = [own for own in held if len(own) > 1]
    rings = max((sum(k in own for own in split) for k in set().union(*held)), default=0)
    share = max((n / own.total() for own in held for n in own.values()), default=0.0)
    flows = max([*out.values(), *into.values()], default=0) / block
    return flows, rings, share, len(split), sum(len(own) - 1 for own in held if own)


def across(stages: list[list[int]], block: int, *, wrap: bool = False) -> Locality:
    """Return the traffic across leaf domains of `block` racks."""
    return locality(stages, (block, block), wrap=wrap)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("wrap", [False, True])
def test_agrees_with_loops(seed: int, wrap: bool) -> None:
    """Of leaf domains, pods and every second time zones, in this order; the groups split over domains and pods."""
    r = random.Random(seed)
    racks = r.sample(range(60), 60)
    size, stages, block = r.randint(1, 8), r.randint(1, 7), r.randint(1, 20)
    drawn = [racks[i * size : (i + 1) * size] for i in range(stages)]
    blocks = (block, block * r.randint(1, 3), block * 3)[: 3 - seed % 2]
    found, counts = locality(drawn, blocks, wrap=wrap), [by_loops(drawn, size, wrap) for size in blocks]
    sends, rings, shares, *_ = zip(*counts, *[(0, 0, 0, 0, 0)] * (seed % 2), strict=True)
    assert (found.share_leaving, found.allreduces_leaving, found.stage_in) == (sends, rings, shares)
    assert (found.groups_split, found.extra_pieces, found.groups_cross_pod) == (*counts[0][3:], counts[1][3])


def test_by_hand() -> None:
    """Domains of four racks in pods of two: two stages are split, the last one over pods."""
    # Three flows leave domain 0.
    stages = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert locality(stages, (4, 8), wrap=False) == Locality(
        share_leaving=(3 / 4, 1 / 8, 0.0), allreduces_leaving=(2, 1, 0), stage_in=(1.0, 1.0, 0.0), groups_split=2,
        extra_pieces=2, groups_cross_pod=1,
    )  # fmt: skip


@each("stages", [[], [[]], [[], []], [[1, 2]]])
def test_nothing_crosses_where_nothing_can(stages: list[list[int]]) -> None:
    found = across(stages, 5, wrap=True)
    assert (found.share_leaving, found.allreduces_leaving) == ((0, 0, 0), (0, 0, 0))
    assert (found.groups_split, found.extra_pieces, found.groups_cross_pod) == (0, 0, 0)
    assert found.stage_in == (float(any(stages)), float(any(stages)), 0.0)


@each(("racks", "free"), [(0, []), (9, [9]), (10, [10]), (11, [10, 1]), (30, [10, 10, 10])])
def test_domains_fill_in_order(racks: int, free: list[int]) -> None:
    assert domain_racks(racks, 10) == free


def test_absurd_rack_numbers_are_counted_too() -> None:
    assert across([[0, 10**15]], 4).groups_split == 1
    assert across([[0], [10**15]], 4).share_leaving[0] == 0.25


@each(("stages", "group", "share"), [
    ([[0, 1, 2, 3]], 1, 0.0),  # experts within a rack
    ([[0, 1, 2, 3]], 2, 0.0),  # groups 0-1 and 2-3, each in its block of 4
    ([[3, 4, 5, 6]], 2, 1 / 4),  # 3-4 is cut: rack 3 sends all to 4
    ([[2, 3, 4, 5]], 4, 4 / 3 / 4),  # two of four racks send two thirds each to the other two
    ([[3, 4], [2, 5]], 2, 2 / 4), ([[0, 1, 4]], 2, 0.0),  # the last group is of one rack, and sends nothing
    ([[], []], 2, 0.0),
])  # fmt: skip
def test_exchange_leaving(stages: list[list[int]], group: int, share: float) -> None:
    assert exchange_leaving(stages, 4, group) == pytest.approx(share)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(2, 6), st.integers(1, 8))
def test_exchange_bound_holds(sizes: list[int], group: int, block: int) -> None:
    """Stages laid out one after another never send more out of a block than the bound of its fragments."""
    ends = list(itertools.accumulate(sizes))
    stages = [list(range(b - n, b)) for n, b in zip(sizes, ends, strict=True)]
    pieces = max(sum(any(r // block == k for r in s) for s in stages) for k in range(-(-ends[-1] // block)))
    bound = exchange_bound(pieces, block, group)
    assert exchange_leaving(stages, block, group) * block <= bound + 1e-9


@each(("mesh", "free", "blocks", "wrap", "pairs"), [
    # Two racks a block: both of one pipeline and their two rings leave, or both of one ring, whose flows leave; without
    # the way back the two flows of a ring may be one that leaves and one that enters.
    ((2, 3), 2, 3, True, [(0, 2), (2, 1)]), ((2, 3), 2, 3, False, [(0, 2), (1, 1)]),
    # Three racks a block: a whole ring, of which all flows leave; less leaves only where both rings do.
    ((2, 3), 3, 2, True, [(0, 2), (3, 0)]),
    # All racks in one block: nothing leaves. Four: also a whole ring and one rack of the other, which leaves with two
    # flows. Of one rack a block every ring leaves, its own flow too.
    ((2, 3), 6, 2, True, [(0, 0)]), ((2, 3), 4, 2, True, [(0, 2), (2, 1), (3, 0)]), ((2, 2), 1, 4, True, [(1, 1)]),
])  # fmt: skip
def test_what_leaves_the_worst_block_at_the_least(mesh, free, blocks, wrap, pairs):
    """Stages times replicas on blocks with so many free racks at most, by hand: pairs of flows and all-reduces."""
    assert min_crossings(*mesh, max_free=free, blocks=blocks, wrap=wrap) == pairs


@each("wrap", [False, True])
@each(("mesh", "rooms"), [
    ((2, 3), (2, 2, 2)), ((3, 2), (3, 3)), ((2, 2), (2, 1, 1)), ((3, 2), (4, 2)), ((1, 4), (2, 2)), ((4, 1), (3, 3)),
])  # fmt: skip
def test_no_order_of_racks_leaves_less(mesh: tuple[int, int], rooms: tuple[int, ...], wrap: bool) -> None:
    stages, replicas = mesh
    pairs = min_crossings(stages, replicas, max_free=max(rooms), blocks=len(rooms), wrap=wrap)
    block = 100
    for on in itertools.product(range(len(rooms)), repeat=stages * replicas):
        if any(on.count(b) > room for b, room in enumerate(rooms)):
            continue
        racks = [b * block + k for k, b in enumerate(on)]
        drawn = [racks[s * replicas : (s + 1) * replicas] for s in range(stages)]
        flows, rings, *_ = by_loops(drawn, block, wrap)
        assert any(round(flows * block) >= b and rings >= a for b, a in pairs), (on, pairs)


def test_thirty_six_sends_and_thirty_rings_on_as_many_uplinks_as_sends() -> None:
    """Alone neither is slowed; together an uplink carries 66 flows on 36, and a NIC two."""
    found = uplink_slowdowns.shared_links(1.0, {"leaf": (36 / 36, 30 / 36)})
    assert found["leaf"] == pytest.approx((1.0, 1.0, Fraction(66, 36)))
    assert found["nic"] == (1.0, 1.0, 2.0)


@settings(deadline=None)
@given(wirable(), st.tuples(*[st.floats(0, 1)] * 3), st.tuples(*[st.integers(0, 20)] * 3))
def test_factors_alone_are_the_worst_of_their_links(d: Design, shares: tuple, groups: tuple) -> None:
    """What the search times sends and rings by alone is the largest of what the plan states of their links."""
    loads = uplink_slowdowns.uplink_loads(d, shares, groups, uplink_slowdowns.FreeUplinks(leaf=0.5, pod=0.75))
    found = uplink_slowdowns.shared_links(1.05, loads).values()
    assert tuple(max(x[kind] for x in found) for kind in (0, 1)) == uplink_slowdowns.slowdowns(1.05, loads)


STRIPED, IN_BLOCKS = [list(range(i, 24, 6)) for i in range(6)], [list(range(4 * i, 4 * i + 4)) for i in range(6)]
LEAVES = {"ports": 64, "rails": 2, "racks": 24, "leaf_bundle": 1, "rails_per_pod": 2}
THREE_TIERS = {"domains_per_pod": 2, "spine_up": 1, "spine_bundle": 1}


@each("stages", [STRIPED, IN_BLOCKS])
@each("wiring", [
    {"leaf_down": 6, "leaf_up": 6, "domains_per_pod": 4}, {"leaf_down": 6, "leaf_up": 3, "domains_per_pod": 4},
    {"leaf_down": 8, "leaf_up": 4, "domains_per_pod": 3}, {"leaf_down": 6, "leaf_up": 6, **THREE_TIERS},
])  # fmt: skip
def test_simulated_sends_beside_their_own_rings(stages: list[list[int]], wiring: dict[str, int]) -> None:
    """A stage that sends back beside its ring, sprayed cable by cable, takes the NIC's factor together within 5 %."""
    # So it is no slower than the step says: its own time and as much of the ring's.
    d = Design(**LEAVES, **wiring, nic_gbps=800.0, link_gbps=800.0)
    x = locality(stages, d.block_racks, wrap=False)
    links = uplink_slowdowns.shared_links(1.0, uplink_slowdowns.uplink_loads(d, x.share_leaving, x.allreduces_leaving))
    send, ring = (max(factors[k] for factors in links.values()) for k in (0, 1))
    part, size = part_of_design(d, planes=1), 300e6
    for i in (1, 4):
        own, before = ([part.slots[stages[k], rail] for rail in range(2)] for k in (i, i - 1))
        back = joined([simulate.p2p([a, b], size) for a, b in zip(own, before, strict=True)])
        ends = flow_seconds(part.tree, joined([back, simulate.allreduce(own, 8 * size)]), "spray", 0)[: len(back)]
        took = float(ends.max()) / (size / 100e9)
        assert took == pytest.approx(links["nic"][2], rel=0.05)
        assert took <= 1.05 * (send + float(uplink_slowdowns.wait_for_others(1.0, ring, 8.0)))


@each(("up", "times"), [(4, 1.0), (2, 2.0), (1, 4.0)])
def test_links_between_switches_run_at_the_rate_of_ports(up: int, times: float) -> None:
    """Eight NICs of 400 Gb/s send all up over links of 800, sprayed cable by cable: four carry them at line rate."""
    # The fluid times of the simulation are the slowdown that the physics states.
    leaf = {"leaf_down": 8, "leaf_up": up, "leaf_bundle": 1, "rails_per_pod": 1, "domains_per_pod": 2}
    d = Design(ports=64, rails=1, racks=16, **leaf, nic_gbps=400.0, link_gbps=800.0)
    part, size = part_of_design(d, planes=1), 300e6
    flows = simulate.p2p([part.slots[:8, 0], part.slots[8:, 0]], size)
    took = float(flow_seconds(part.tree, flows, "spray", 0).max()) / (size / 50e9)
    assert took == pytest.approx(times, rel=0.05)
    assert uplink_slowdowns.slowdowns(1.0, uplink_slowdowns.uplink_loads(d, (1.0,), (8,))) == (times, times)
