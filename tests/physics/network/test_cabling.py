"""Cabling: every cable laid once, ports conserved over random designs, boxes shared, and lengths on the floor."""

import dataclasses
import math

import networkx as nx
import numpy as np
from each_case import each
from fabric_graph import counted, laid, survives
from hypothesis import given, settings
from hypothesis import strategies as st
from worked_plan import instance_with

from planner.checks.fabric import network_limits
from planner.instance.network import Floor, Spares
from planner.physics.network.cable_lengths import Places
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_cables import lay, lengths
from planner.physics.network.fabric_designs import spare_ports

PORTS = ("ports", "spine_ports", "core_ports", "super_spine_ports")  # of the tiers from the leaf up


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
    """Draw a design without a WAN gateway, its ports not yet sized, in some of which positions share boxes."""
    tiers = draw(st.integers(1, 4))
    rails, racks = draw(st.integers(1, 4)), draw(st.integers(1, 30 if tiers < 4 else 15))
    width, spare = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    side = {"ports": 1, "rails": rails, "racks": racks, "rail_gpus": width, "leaf_spare": spare}
    side |= {"apart": draw(st.integers(1, 3)), "lanes": draw(st.integers(1, 2)), "split": draw(st.integers(1, 3))}
    if tiers == 1:
        return Design(leaf_down=rails * width * racks, **side)
    domain, bundle, groups = draw(st.integers(1, 9)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    domains = math.ceil(racks / domain)
    x, y = (rails, domains) if tiers == 2 else (draw(st.integers(1, rails)), draw(st.integers(1, domains)))
    leaf = {"leaf_down": domain * width, "leaf_up": bundle * groups, "leaf_bundle": bundle}
    d = Design(rails_per_pod=x, domains_per_pod=y, **leaf, **side)
    if tiers == 2:
        return d
    bundle, cores = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    d = dataclasses.replace(d, spine_up=bundle * cores, spine_bundle=bundle)
    if tiers == 3:
        return dataclasses.replace(d, core_boxes=draw(st.integers(0, d.core_positions)))
    across, along = (draw(st.integers(1, -(-a // b))) for a, b in ((rails, x), (domains, y)))
    bundle, above = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    boxes = draw(st.sampled_from([n for n in range(d.core_positions) if n == 0 or d.core_positions % n == 0]))
    zone = {"rails_per_zone": across * x, "domains_per_zone": along * y, "core_boxes": boxes}
    d = dataclasses.replace(d, **zone, core_up=bundle * above, core_bundle=bundle)
    return dataclasses.replace(d, super_spine_boxes=draw(st.integers(0, d.super_spine_positions)))


@settings(deadline=None)
@given(wirable())
def test_every_port_is_used_once_and_none_is_to_spare(d: Design) -> None:
    """Counts are those of the cables laid; with a port fewer at any tier the design is refused."""
    assert d.faults() == []
    laid(d)
    for name in PORTS[: d.tiers] if d.spine_ports else PORTS[:1]:
        fewer = dataclasses.replace(d, **{name: getattr(d, name) - 1})
        if name == "ports" or getattr(fewer, name):  # no ports of a higher tier are those of the leaf
            assert fewer.faults()


@settings(deadline=None)
@given(wirable())
def test_bundles_are_equal_and_all_gpus_of_a_network_meet(d: Design) -> None:
    """Up from a GPU and down again is every GPU that its networks join; zones meet alike in every super-spine."""
    bundle = {"leaf": d.leaf_bundle, "spine": d.spine_bundle, "core": d.core_bundle}
    shared = {"spine": d.core_boxes, "core": d.super_spine_boxes}
    graph = nx.Graph()
    links = np.zeros((max(1, d.zones), d.super_spines), dtype=np.int64)
    for c in lay(d, block=10**6):
        graph.add_edges_from(((c.low_tier, a), (c.high_tier, b)) for a, b in zip(c.low, c.high, strict=True))
        if c.low_tier in bundle:
            _, times = np.unique(c.low * 10**6 + c.high, return_counts=True)
            assert (times % bundle[c.low_tier] == 0).all()
            assert shared.get(c.low_tier) or (times == bundle[c.low_tier]).all()
        if c.low_tier == "core":
            np.add.at(links, (c.low // d.zone_cores % d.zones, c.high), 1)
    assert (links == links[0]).all()
    joined = nx.node_connected_component(graph, ("gpu", 0))
    assert sum(tier == "gpu" for tier, _ in joined) == d.racks * d.rails * d.rail_gpus


@settings(deadline=None)
@given(wirable())
def test_every_loss_is_told(d: Design) -> None:
    """The rule on lost spines finds what the graph of cables shows; a leaf alone has no other to be cut from."""
    found = network_limits(instance_with(network__survives="one_spine").network, "rail", d)
    told = any(v.rule == "survival" for v in found)
    assert told if not survives(d, "one_spine") else not told or d.leaves == d.networks


@each(("used", "share", "failure", "shortage", "spare"), [
    (100, 0.0, 0.0, 0.01, 0), (100, 0.02, 0.0, 0.01, 2), (101, 0.02, 0.0, 0.01, 3), (2, 0.0, 0.5, 0.25, 1),
    (2, 0.0, 0.5, 0.24, 2), (9, 0, 1, 1, 9),
])  # fmt: skip
def test_spare_ports(used: int, share: float, failure: float, shortage: float, spare: int) -> None:
    """Two ports that fail by even chance both fail once in four."""
    assert spare_ports(used, Spares(share=share, failure_chance=failure, shortage_chance=shortage)) == spare


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
    d = Design(ports=8, rails=1, racks=4, leaf_down=2, leaf_up=2, leaf_bundle=1, rails_per_pod=1, domains_per_pod=2)
    c = next(lay(d))
    for change in ({"high_port": c.high_port + 7}, {"high": c.high + 1}, {"low_port": c.low_port - 1}):
        assert counted(d, [dataclasses.replace(c, **change)]).absent


def test_lengths_by_hand() -> None:
    """Four racks in rows of two, 1 m along and 10 m across: a leaf between racks 0 and 1, its spine amid all four."""
    floor = Floor(rack_pitch_m=1, row_pitch_m=10, racks_per_row=2, rise_m=2, spread_m=5)
    d = Design(ports=8, rails=1, racks=4, leaf_down=2, leaf_up=1, leaf_bundle=1, rails_per_pod=1, domains_per_pod=2)
    ends, up = (lengths(d, floor)(cables).tolist() for cables in lay(d))
    assert (ends, up) == ([4.5] * 4, [4 + 5 + 5.0] * 2)
    # Eight racks in one row, two to a leaf, two leaves to a zone of two pods: cores amid four, super-spines amid eight.
    zone = {"rails_per_zone": 1, "domains_per_zone": 2, "core_up": 1, "core_bundle": 1}
    d = dataclasses.replace(d, racks=8, domains_per_pod=1, spine_up=1, spine_bundle=1, **zone)
    *_, spines, cores = ((c.high_tier, lengths(d, floor.replaced(racks_per_row=8))(c).tolist()) for c in lay(d))
    assert (spines, cores) == (("core", [1 + 9.0] * 4), ("super-spine", [2 + 9.0] * 2))


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
