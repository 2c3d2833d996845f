"""Cabling: every cable laid once, ports conserved over random designs, boxes shared, and lengths on the floor."""

import dataclasses
import math
import random
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from each_case import each
from fabric_graph import counted, graph_of, laid, survives
from hypothesis import given, settings
from hypothesis import strategies as st
from worked_plan import instance_with

from planner.checks.fabric import network_limits
from planner.instance.network import Floor, Spares
from planner.physics.network.clos_fabric import Design, Places
from planner.physics.network.fabric_designs import lay, lengths, spare_ports

PORTS = ("ports", "spine_ports", "core_ports", "super_spine_ports")  # of the tiers from the leaf up
GOOD = Design(
    ports=8, rails=2, racks=12, leaf_down=4, leaf_up=4, leaf_bundle=2, rails_per_pod=1, domains_per_pod=2, spine_up=4,
    spine_bundle=2,
)  # fmt: skip


@st.composite
def wirable(draw: st.DrawFn) -> Design:
    """Draw a design that can be wired, of up to four tiers, some with a WAN gateway, some of a model for each tier."""
    # With ports sized to what it needs: the most of any tier, or those of each.
    d = dataclasses.replace(draw(trees()), wan_ports=draw(st.integers(0, 5)))
    needed = dict(zip(PORTS, ports_in_use(d), strict=False))
    one_model = dict.fromkeys(needed, 0) | {"ports": max(needed.values())}
    return dataclasses.replace(d, **(needed if draw(st.booleans()) else one_model))


def ports_in_use(d: Design) -> list[int]:
    """Return the ports that a switch of each tier needs, the WAN gateway's among those of the leaf and the top."""
    leaf = d.endpoint_links // d.networks if d.single else d.leaf_down
    needed = [math.ceil((leaf + d.leaf_spare) / d.split) + d.leaf_up, d.spine_down + d.spine_up]
    needed = [*needed, d.core_down + d.core_up, d.super_spine_down][: d.tiers]
    if d.wan_ports:
        needed[-1] = sum(d.top_ports)
        needed[0] = max(needed[0], 2)
    return needed


@st.composite
def trees(draw: st.DrawFn) -> Design:
    """Draw a design without a WAN gateway, its ports not yet sized."""
    tiers = draw(st.integers(1, 4))
    rails, racks = draw(st.integers(1, 4)), draw(st.integers(1, 30 if tiers < 4 else 15))
    width, spare = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    side = {
        "rail_gpus": width, "apart": draw(st.integers(1, 3)), "lanes": draw(st.integers(1, 2)), "leaf_spare": spare,
        "split": draw(st.integers(1, 3)),
    }  # fmt: skip
    if tiers == 1:
        ends = rails * width * racks
        return Design(ports=1, rails=rails, racks=racks, leaf_down=ends, **side)
    domain, bundle, groups = draw(st.integers(1, 9)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    domains = math.ceil(racks / domain)
    x, y = (rails, domains) if tiers == 2 else (draw(st.integers(1, rails)), draw(st.integers(1, domains)))
    spine_bundle, cores = (draw(st.integers(1, 3)), draw(st.integers(1, 3))) if tiers > 2 else (0, 0)
    leaf = {
        "leaf_down": domain * width, "leaf_up": bundle * groups, "leaf_bundle": bundle, "rails_per_pod": x,
        "domains_per_pod": y,
    }  # fmt: skip
    d = Design(
        ports=1, rails=rails, racks=racks, **leaf, spine_up=spine_bundle * cores, spine_bundle=spine_bundle, **side
    )
    return zoned(draw, d) if tiers == 4 else d


def zoned(draw: st.DrawFn, d: Design) -> Design:
    """Draw zones of whole pods, and super-spines over them."""
    rails, domains = (
        draw(st.integers(1, -(-a // b))) for a, b in ((d.rails, d.rails_per_pod), (d.domains, d.domains_per_pod))
    )
    bundle, boxes_above = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    zone = {"rails_per_zone": rails * d.rails_per_pod, "domains_per_zone": domains * d.domains_per_pod}
    return dataclasses.replace(d, **zone, core_up=bundle * boxes_above, core_bundle=bundle)


@settings(deadline=None)
@given(wirable())
def test_every_port_is_used_once_and_counts_agree(d: Design) -> None:
    assert d.faults() == []
    laid(d)


@settings(deadline=None)
@given(wirable())
def test_bundles_are_equal(d: Design) -> None:
    bundle = {"leaf": d.leaf_bundle, "spine": d.spine_bundle, "core": d.core_bundle}
    for c in lay(d, block=10**6):
        if c.low_tier not in ("gpu", "wan-gateway"):
            _, times = np.unique(c.low * 10**6 + c.high, return_counts=True)
            assert set(times.tolist()) == {bundle[c.low_tier]}


@settings(deadline=None)
@given(wirable())
def test_all_gpus_of_a_network_meet(d: Design) -> None:
    """Walking up from a GPU and down again reaches every GPU that its networks join: all, or those of its own index."""
    seen = {("gpu", 0)}
    blocks = list(lay(d, block=10**6))
    pairs = {((c.low_tier, int(a)), (c.high_tier, int(b))) for c in blocks for a, b in zip(c.low, c.high, strict=True)}
    while True:
        more = {b for a, b in pairs if a in seen} | {a for a, b in pairs if b in seen}
        if more <= seen:
            break
        seen |= more
    assert sum(tier == "gpu" for tier, _ in seen) == d.racks * d.rails * d.rail_gpus


@settings(deadline=None)
@given(wirable())
def test_one_port_fewer_is_refused(d: Design) -> None:
    for name in PORTS[: d.tiers] if d.spine_ports else PORTS[:1]:
        fewer = dataclasses.replace(d, **{name: getattr(d, name) - 1})
        if name == "ports" or getattr(fewer, name):  # no ports of a higher tier are those of the leaf
            assert fewer.faults()


@each(("used", "share", "failure", "shortage", "spare"), [
    (100, 0.0, 0.0, 0.01, 0), (100, 0.02, 0.0, 0.01, 2), (101, 0.02, 0.0, 0.01, 3), (2, 0.0, 0.5, 0.25, 1),
    (2, 0.0, 0.5, 0.24, 2), (9, 0, 1, 1, 9),
])  # fmt: skip
def test_spare_ports(used: int, share: float, failure: float, shortage: float, spare: int) -> None:
    """Two ports that fail by even chance both fail once in four."""
    spares = Spares(share=share, failure_chance=failure, shortage_chance=shortage)
    assert spare_ports(used, spares) == spare


@given(st.integers(1, 200), st.floats(0.001, 0.9), st.floats(0.001, 0.5))
def test_spare_ports_are_the_fewest(used: int, failure: float, shortage: float) -> None:
    n = spare_ports(used, Spares(failure_chance=failure, shortage_chance=shortage))

    def beyond(k: int) -> float:
        return math.fsum(math.comb(used, i) * failure**i * (1 - failure) ** (used - i) for i in range(k + 1, used + 1))

    assert beyond(n) <= shortage + 1e-9
    assert n == 0 or beyond(n - 1) > shortage - 1e-9


@given(wirable(), st.integers(0, 10**6))
def test_a_port_named_twice_is_found(d: Design, pick: int) -> None:
    blocks = [c for c in lay(d, block=10**6) if len(c.low) > 1]
    if blocks:
        c = blocks[pick % len(blocks)]
        i, j = pick % len(c.low), (pick + 1) % len(c.low)
        for end in ("low", "high"):
            box, port = getattr(c, end).copy(), getattr(c, f"{end}_port").copy()
            box[i], port[i] = box[j], port[j]
            moved = dataclasses.replace(c, **{end: box, f"{end}_port": port})
            assert len(counted(d, [moved]).twice) == 1


def test_a_port_that_is_not_there_is_found() -> None:
    c = next(lay(GOOD))
    for change in ({"high_port": c.high_port + 5}, {"high": c.high + 6}, {"low_port": c.low_port - 1}):
        assert len(counted(GOOD, [dataclasses.replace(c, **change)]).absent) == 1


def test_block_size_changes_nothing() -> None:
    whole, parts = ([np.stack([c.low, c.low_port, c.high, c.high_port]) for c in lay(GOOD, block=n)] for n in (1000, 3))
    assert np.array_equal(np.concatenate(whole, axis=1), np.concatenate(parts, axis=1))


def test_lengths_by_hand() -> None:
    """Four racks in rows of two, 1 m along and 10 m across: a leaf between racks 0 and 1, its spine amid all four."""
    floor = Floor(rack_pitch_m=1, row_pitch_m=10, racks_per_row=2, rise_m=2, spread_m=5)
    d = Design(ports=8, rails=1, racks=4, leaf_down=2, leaf_up=1, leaf_bundle=1, rails_per_pod=1, domains_per_pod=2)
    measure = lengths(d, floor)
    ends, up = list(lay(d))
    assert measure(ends).tolist() == [4.5, 4.5, 4.5, 4.5]
    assert measure(up).tolist() == [4 + 5 + 5.0, 4 + 5 + 5.0]


def test_lengths_of_four_tiers_by_hand() -> None:
    """Eight racks in one row, two to a leaf, two leaves to a zone of two pods."""
    # Cores amid four racks, super-spines amid all eight.
    floor = Floor(rack_pitch_m=1, racks_per_row=8, rise_m=2, spread_m=5)
    pod = {"rails_per_pod": 1, "domains_per_pod": 1, "spine_up": 1, "spine_bundle": 1}
    zone = {"rails_per_zone": 1, "domains_per_zone": 2, "core_up": 1, "core_bundle": 1}
    d = Design(ports=8, rails=1, racks=8, leaf_down=2, leaf_up=1, leaf_bundle=1, **pod, **zone)
    measure = lengths(d, floor)
    *_, spines, cores = list(lay(d))
    assert (spines.high_tier, measure(spines).tolist()) == ("core", [1 + 9.0] * 4)
    assert (cores.high_tier, measure(cores).tolist()) == ("super-spine", [2 + 9.0] * 2)


def test_floor_is_nearly_square() -> None:
    places = Places(Floor(rack_pitch_m=1, row_pitch_m=4), 100)
    middles = [places.runs(size)[run].tolist() for size, run in ((40, 0), (5, 4), (1, 19))]
    assert middles == [[9.5, 2.0], [2.0, 4.0], [19.0, 0.0]]
    shared = Places(places.floor.replaced(hosts_per_rack=4), 400)
    middles = [shared.runs(size)[run].tolist() for size, run in ((4, 0), (1, 79), (4, 20))]
    assert middles == [[0.0, 0.0], [19.0, 0.0], [0.0, 4.0]]


@each(("size", "middles"), [(1, [0.0, 1.0, 2.0, 3.0]), (3, [1.0, 3.0]), (7, [1.5])])
def test_middle_is_cut_at_the_last_rack(size: int, middles: list[float]) -> None:
    """The last run of racks may be part full."""
    places = Places(Floor(rack_pitch_m=1, racks_per_row=10), 4)
    assert places.runs(size).tolist() == [[middle, 0.0] for middle in middles]


def drawn(seed: int) -> Design:
    """Draw a tree of three tiers, of odd seeds four, with shared boxes; ports are enough for its cables."""
    r = random.Random(seed)
    spines, bundle, each = r.randint(1, 4), r.randint(1, 2), r.randint(1, 3)
    rails, rails_per_pod = r.choice([(1, 1), (2, 1), (3, 2)])
    counts = {"leaf_down": 2, "leaf_up": spines * bundle, "leaf_bundle": bundle, "rails_per_pod": rails_per_pod}
    counts |= {"domains_per_pod": r.randint(1, 2), "spine_bundle": r.randint(1, 2), "racks": r.randint(5, 9)}
    counts |= {"spine_up": each * counts["spine_bundle"], "wan_ports": r.choice([0, 0, 3])}
    d = Design(ports=512, rails=rails, core_boxes=r.randint(1, spines * each), **counts)
    if seed % 2:
        cores = r.choice([n for n in range(1, spines * each + 1) if spines * each % n == 0])
        above, bundle = r.randint(1, 3), r.randint(1, 2)
        own = {"rails_per_zone": rails_per_pod, "domains_per_zone": r.randint(1, 2) * d.domains_per_pod}
        own |= {"core_boxes": cores, "core_up": above * bundle, "core_bundle": bundle}
        d = replace(d, **own, super_spine_boxes=r.randint(1, cores * above))
    assert not d.faults()
    return d


@pytest.mark.parametrize("seed", range(40))
def test_every_port_is_used_once_and_every_loss_is_told(seed: int) -> None:
    d = drawn(seed)
    ticked = laid(d)
    for tier, ports in (("core", d.core_down + d.core_up), (d.top[0], sum(d.top_ports))):
        used = ticked.used[tier].sum(axis=1)
        assert (used > 0).all() and used.max() <= ports + d.top_ports[1] * (tier == d.top[0])
    assert ticked.cables["spine", "core"] == d.spines * d.spine_up
    assert nx.is_connected(graph_of(d))
    found = network_limits(instance_with(network__survives="one_spine").network, "rail", d)
    assert survives(d, "one_spine") == (not any(v.rule == "survival" for v in found))


@pytest.mark.parametrize("seed", range(1, 40, 2))
def test_zones_have_alike_links_to_every_super_spine(seed: int) -> None:
    """Any two zones meet in each super-spine with equally many links, so that they can exchange all that they have."""
    d = drawn(seed)
    links = np.zeros((max(1, d.zones), d.super_spines), dtype=np.int64)
    for c in lay(d):
        if c.low_tier == "core":
            np.add.at(links, (c.low // d.zone_cores, c.high), 1)
    assert (links == links[0]).all() and links[0].sum() == d.zone_uplinks


def test_super_spines_are_shared_equally_or_refused() -> None:
    """Of six positions four cores would take one or two, and their uplinks be loaded unlike; three take two each."""
    own = {"rails": 1, "racks": 8, "leaf_down": 1, "leaf_up": 6, "leaf_bundle": 1, "rails_per_pod": 1}
    own |= {"domains_per_pod": 2, "spine_up": 1, "spine_bundle": 1, "rails_per_zone": 1, "domains_per_zone": 4}
    own |= {"core_up": 4, "core_bundle": 1, "ports": 12}
    d = Design(core_boxes=3, super_spine_boxes=2, **own)
    assert (d.zones, d.cores, d.core_down, d.super_spines, d.super_spine_down, d.faults()) == (2, 6, 4, 2, 12, [])
    assert "equally many" in Design(core_boxes=4, super_spine_boxes=2, **own).faults()[0]
    assert "12 positions of 2 zones" in Design(core_boxes=3, super_spine_boxes=1, **own).faults()[0]
    assert "13 for 12 positions" in Design(core_boxes=3, super_spine_boxes=13, **own).faults()[0]


def test_more_positions_than_ports_are_refused() -> None:
    """One box of 512 ports takes 29 positions of 3 pods, one of 86 ports does not; nor are 30 boxes of any use."""
    own = {"rails": 1, "racks": 36, "leaf_down": 4, "leaf_up": 29, "leaf_bundle": 1, "rails_per_pod": 1}
    own |= {"domains_per_pod": 3, "spine_up": 1, "spine_bundle": 1}
    d = Design(ports=512, core_boxes=1, **own)
    assert (d.cores, d.core_down, d.pods, d.faults()) == (1, 87, 3, [])
    assert "29 positions of 3 pods" in Design(ports=86, core_boxes=1, **own).faults()[0]
    assert "30 for 29 positions" in Design(ports=512, core_boxes=30, **own).faults()[0]
