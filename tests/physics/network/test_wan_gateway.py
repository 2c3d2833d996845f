"""The WAN gateway: ports by hand on both sides of their edges, and the ports of the top tier that it needs."""

import dataclasses

from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from test_dragonfly import dragonflies

from planner.instance.network import Network, Wan
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_designs import lay
from planner.physics.network.transport import (
    FreeUplinks,
    exchange_gbps,
    free_uplinks,
    slowdowns,
    uplink_loads,
    wan_gbps,
    wan_ports,
)
from planner.plan.plan_sections import Link, WanDemand, WanPlan, WanRoute

TWO = Design(
    ports=8, rails=1, racks=6, leaf_down=2, leaf_up=2, leaf_bundle=1, rails_per_pod=1, domains_per_pod=3
)  # 2 spines, 3 of 8 ports down
THREE = Design(
    ports=8, rails=2, racks=4, leaf_down=2, leaf_up=2, leaf_bundle=1, rails_per_pod=1, domains_per_pod=1, spine_up=2,
    spine_bundle=1,
)  # fmt: skip


@each(("gbps", "networks", "ports"), [
    (0, 1, 0), (1, 1, 1), (800, 1, 1), (800.01, 1, 2), (6400, 1, 8), (6401, 1, 9), (1600, 2, 1), (1601, 2, 2),
    (0.3, 3, 1),
])  # fmt: skip
def test_a_port_for_each_800_gbps(gbps: float, networks: int, ports: int) -> None:
    """Ports of 800 Gbps take the rate, an equal part of it in every network, and one more takes the rest."""
    assert wan_ports(gbps, networks, 800) == ports


def test_thirds_of_a_rate_take_no_more_ports() -> None:
    """Rounding makes no port of its own: 0.3 Gbps is three ports of 0.1."""
    assert wan_ports(0.3, 1, 0.1) == 3


def link(a: str, b: str, gbps: float) -> Link:
    own = {"route_km": 1, "rtt_ms": 1, "required_gbps": 1, "wavelengths": 1, "fibre_pairs": 1, "usd_per_year": 0}
    return Link(a=a, b=b, capacity_gbps=gbps, **own)


def test_links_add_up_at_their_ends() -> None:
    links = (link("a", "b", 400), link("b", "c", 1200), link("a", "c", 800))
    assert [wan_gbps(Wan(), links, None, s) for s in ("a", "b", "c", "d")] == [1200, 1600, 2000, 0]


@each(("backup", "gbps"), [(None, 800), (500, 800), (501, 1200)])
def test_a_design_brings_the_larger_of_route_and_backup(backup: float | None, gbps: float) -> None:
    """Routes of 300 and 200 Gbps, the second backed by more."""
    # Whole wavelengths of 400 Gbps, and nothing of what passes by.
    routes = [
        WanRoute(share=0.5, edges=("x",), route_km=1, rtt_ms=1, gbps=g, backup_gbps=b)
        for g, b in ((300, None), (200, backup))
    ]
    more = {"priority": 0, "requested_gbps": 1, "admitted_gbps": 1, "missing_gbps": 0}
    demands = (
        WanDemand(name="sync", a="a", b="b", routes=tuple(routes), **more),
        WanDemand(name="x", a="b", b="c", routes=tuple(routes), **more),
    )
    design = WanPlan.model_construct(demands=demands)
    assert wan_gbps(Wan(wavelength_gbps=400), (link("a", "b", 9999),), design, "a") == gbps


@each(("ports", "switches", "side"), [(0, 0, 0), (1, 1, 1), (4, 1, 4), (5, 2, 3), (8, 2, 4), (9, 3, 3)])
def test_half_of_a_box_faces_the_wide_area(ports: int, switches: int, side: int) -> None:
    """A switch of 8 ports takes 4 and sends 4 up; the fifth needs a second switch, and the two share them."""
    d = dataclasses.replace(TWO, wan_ports=ports, lanes=2)
    first_up = {int(cables.low_port.min()) for cables in lay(d) if cables.low_tier == "wan-gateway"}
    assert (d.wan_gateways, d.wan_gateway_links, first_up) == (2 * switches, 2 * ports, {side} - {0})


@each(
    ("design", "most", "said"),
    [
        (TWO, 10, "spine ports: 3 taken + 6 of the WAN gateway > 8 ports"),
        (THREE, 16, "core ports: 4 taken + 5 of the WAN gateway > 8 ports"),
        (Design(ports=8, rails=1, racks=5, leaf_down=5), 3, "leaf ports: 5 taken + 4 of the WAN gateway > 8 ports"),
        (Design(ports=8, rails=1, racks=5, leaf_down=5, leaf_spare=1), 2,
         "leaf ports: 6 taken + 3 of the WAN gateway > 8 ports"),
        (Design(ports=4, rails=1, racks=5, leaf_down=5, split=2), 1,
         "leaf ports: 3 taken + 2 of the WAN gateway > 4 ports"),
    ],
)  # fmt: skip
def test_the_top_tier_has_ports_for_the_wan_gateway(design: Design, most: int, said: str) -> None:
    assert dataclasses.replace(design, wan_ports=most).faults() == []
    assert dataclasses.replace(design, wan_ports=most + 1).faults() == [said]


def test_links_go_to_the_top_tier_in_turn() -> None:
    """Five ports in each of two lanes."""
    # Two switches a network, every spine gets two or three links, and only of its own network.
    d = dataclasses.replace(TWO, wan_ports=5, lanes=2)
    held = [c for c in lay(d) if c.low_tier == "wan-gateway"]
    ends = [(a, b) for c in held for a, b in zip(c.low.tolist(), c.high.tolist(), strict=True)]
    assert [sum(b == spine for _, b in ends) for spine in range(4)] == [3, 2, 3, 2]
    assert all((a < 2) == (b < 2) for a, b in ends)
    assert {c.high_tier for c in held} == {"spine"}


def test_gradients_leave_by_each_link_that_trains() -> None:
    """A site with two links sends on both in the time, on one where its other end does not train."""
    links = (link("a", "b", 400), link("a", "c", 400))
    wan = Wan(round_trips=0)
    assert exchange_gbps(wan, links, None, "a", {"a", "b", "c"}, (1e9, 0.5)) == 2 * 16
    assert exchange_gbps(wan, links, None, "a", {"a", "b"}, (1e9, 0.5)) == 16
    assert exchange_gbps(wan, links, None, "b", {"a", "c"}, (1e9, 0.5)) == 0


def test_gradients_wait_for_the_round_trips() -> None:
    """1 GB in 100 ms over a link of a round trip of 1 ms: 39 of them leave 61 ms, and 100 of them no time at all."""
    found = [exchange_gbps(Wan(round_trips=n), [link("a", "b", 1)], None, "a", "ab", (1e9, 0.1)) for n in (39, 100)]
    assert found == [approx(8 / 0.061), float("inf")]


def test_a_design_was_asked_for_the_headroom_too() -> None:
    more = {"admitted_gbps": 1, "missing_gbps": 0, "routes": ()}
    demands = (
        WanDemand(name="sync", a="a", b="b", priority=0, requested_gbps=30, **more),
        WanDemand(name="x", a="a", b="b", priority=1, requested_gbps=7, **more),
    )
    design = WanPlan.model_construct(demands=demands)
    assert exchange_gbps(Wan(headroom_factor=2.0), (), design, "a", {"a", "b"}, (1e9, 1.0)) == 15


@each(
    ("design", "leaf", "pod"),
    [
        (Design(ports=8, rails=1, racks=5, leaf_down=5), 1.0, 1.0),  # one switch: nothing below the WAN gateway
        (TWO, 1 - 0.5 / 2, 1.0),  # one leaf sends half of a link's rate up two
        (dataclasses.replace(TWO, lanes=2), 1 - 0.25 / 2, 1.0),  # and half of that in each of two networks
        (THREE, 1 - 0.25 / 2, 1 - 0.5 / 4),  # two rails share, and a pod of one has 2 spines of 2 uplinks
        (dataclasses.replace(THREE, rails_per_pod=2), 1 - 0.25 / 2, 1 - 1.0 / 4),
    ],
)
def test_what_the_exchange_leaves(design: Design, leaf: float, pod: float) -> None:
    """By hand: half of a stage's racks in one domain, all of them in one pod."""
    assert free_uplinks(design, 1.0, 0.5, 1.0) == FreeUplinks(leaf, pod)


@each(("rails", "domains", "zone"), [(1, 2, 1 - 0.25 * 0.5 / 8), (2, 2, 1 - 0.5 * 0.5 / 8), (4, 2, 1 - 1.0 * 0.5 / 8)])
def test_what_the_exchange_leaves_of_a_zone(rails: int, domains: int, zone: float) -> None:
    """By hand: half a stage's racks in one zone, whose two positions of spines have two cores each of two uplinks."""
    # Four rails share the rate.
    tall = {"rails_per_zone": rails, "domains_per_zone": domains, "core_up": 2, "core_bundle": 1}
    d = Design(
        ports=8, rails=4, racks=8, leaf_down=2, leaf_up=2, leaf_bundle=1, rails_per_pod=1, domains_per_pod=1,
        spine_up=2, spine_bundle=1, **tall,
    )  # fmt: skip
    assert free_uplinks(d, 1.0, 0.0, 0.0, 0.5) == FreeUplinks(1.0, 1.0, zone)


@given(st.one_of(st.sampled_from([TWO, THREE]), dragonflies()), st.sampled_from([400.0, 800.0]))
def test_the_exchange_takes_links_by_their_rate(design: Design, rate: float) -> None:
    """As many times the rate of a link take as many links, however fast these are: of trees and of dragonflies."""
    near = 0.5, 1.0, 1.0
    fast = dataclasses.replace(design, link_gbps=rate)
    found, of_links = fast.exchange_loads(3 * rate, *near), design.exchange_loads(3 * design.link_gbps, *near)
    assert {block: load for block, (load, _) in found.items()} == {
        block: approx(load) for block, (load, _) in of_links.items()
    }


def test_rails_beyond_those_there_are_send_nothing() -> None:
    tall = {"rails_per_zone": 4, "domains_per_zone": 1, "core_up": 4, "core_bundle": 1}
    d = Design(
        ports=8, rails=3, racks=4, leaf_down=2, leaf_up=1, leaf_bundle=1, rails_per_pod=2, domains_per_pod=1,
        spine_up=1, spine_bundle=1, **tall,
    )  # fmt: skip
    assert free_uplinks(d, 1.0, 0.0, 0.0, 1.0).zone == 1 - 1.0 / 4


@each(("free", "send", "allreduce"), [
    (FreeUplinks(), 2.0, 1.0), (FreeUplinks(0.5), 4.0, 1.5), (FreeUplinks(0.0), float("inf"), float("inf")),
])  # fmt: skip
def test_sends_and_allreduces_have_the_free_uplinks(free: FreeUplinks, send: float, allreduce: float) -> None:
    """Four flows on two uplinks take twice as long, and twice that on half of them."""
    # Three all-reduces on two half as long again as on four.
    box = {"name": "b", "ports": 8, "port_gbps": 800, "price_usd": 0, "power_watts": 0}
    own = {"switches": [box], "optics": {"name": "o", "price_usd": 0, "power_watts": 0}, "transport": {"slowdown": 1}}
    phi, d = Network.model_validate(own).transport.slowdown, dataclasses.replace(TWO, leaf_down=4, leaf_up=2)
    assert slowdowns(phi, uplink_loads(d, (1.0, 0.0), free=free)) == (send, 1.0)
    four = dataclasses.replace(d, leaf_up=4)
    assert slowdowns(phi, uplink_loads(four, (0.0, 0.0), (3, 0), free)) == (1.0, allreduce)
    assert slowdowns(phi, uplink_loads(d, (0.0, 0.0), free=free)) == (1.0, 1.0)
