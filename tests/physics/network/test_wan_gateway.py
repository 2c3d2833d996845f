"""The WAN gateway: ports by hand on both sides of their edges, and the ports of the top tier that it needs."""

from dataclasses import replace
from typing import Any

from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx
from test_dragonfly import dragonflies

from planner.instance.network import Wan
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_cables import lay
from planner.physics.network.uplink_slowdowns import FreeUplinks, free_uplinks, slowdowns, uplink_loads
from planner.physics.site.wan import wan_gbps, wan_ports
from planner.physics.site.wan_exchange import exchange_gbps
from planner.plan.plan_sections import Link, WanDemand, WanPlan, WanRoute

ONE = Design(ports=8, rails=1, racks=5, leaf_down=5)
TWO = Design(
    ports=8, rails=1, racks=6, leaf_down=2, leaf_up=2, leaf_bundle=1, rails_per_pod=1, domains_per_pod=3
)  # 2 spines, 3 of 8 ports down
THREE = Design(
    ports=8, rails=2, racks=4, leaf_down=2, leaf_up=2, leaf_bundle=1, rails_per_pod=1, domains_per_pod=1, spine_up=2,
    spine_bundle=1,
)  # fmt: skip


@each(("gbps", "networks", "port_gbps", "ports"), [
    (0, 1, 800, 0), (1, 1, 800, 1), (800, 1, 800, 1), (800.01, 1, 800, 2), (6400, 1, 800, 8), (6401, 1, 800, 9),
    (1600, 2, 800, 1), (1601, 2, 800, 2), (0.3, 3, 800, 1), (0.3, 1, 0.1, 3),
])  # fmt: skip
def test_ports_take_the_rate(gbps: float, networks: int, port_gbps: float, ports: int) -> None:
    """An equal part in every network, and one more port takes the rest; rounding of thirds makes no port of its own."""
    assert wan_ports(gbps, networks, port_gbps) == ports


def link(a: str, b: str, gbps: float = 1) -> Link:
    own = {"route_km": 1, "rtt_ms": 1, "required_gbps": 1, "wavelengths": 1, "fibre_pairs": 1, "usd_per_year": 0}
    return Link(a=a, b=b, capacity_gbps=gbps, **own)


def designed(*demands: dict[str, Any], routes: tuple[WanRoute, ...] = ()) -> WanPlan:
    """Return a design of the wide area of which only the demands and their routes are there."""
    more = {"admitted_gbps": 1, "missing_gbps": 0, "routes": routes}
    return WanPlan.model_construct(demands=tuple(WanDemand(**demand | more) for demand in demands))


def test_links_add_up_at_their_ends() -> None:
    links = (link("a", "b", 400), link("b", "c", 1200), link("a", "c", 800))
    assert [wan_gbps(Wan(), links, None, s) for s in ("a", "b", "c", "d")] == [1200, 1600, 2000, 0]


@each(("backup", "gbps"), [(None, 800), (500, 800), (501, 1200)])
def test_a_design_brings_the_larger_of_route_and_backup(backup: float | None, gbps: float) -> None:
    """Routes of 300 and 200 Gbps, the second backed by more."""
    # Whole wavelengths of 400 Gbps, and nothing of what passes by.
    given = {"share": 0.5, "edges": ("x",), "route_km": 1, "rtt_ms": 1}
    routes = WanRoute(gbps=300, **given), WanRoute(gbps=200, backup_gbps=backup, **given)
    own = {"name": "x", "priority": 0, "requested_gbps": 1}
    design = designed({"a": "a", "b": "b"} | own, {"a": "b", "b": "c"} | own, routes=routes)
    assert wan_gbps(Wan(wavelength_gbps=400), (link("a", "b", 9999),), design, "a") == gbps


@each(("ports", "switches", "side"), [(0, 0, 0), (1, 1, 1), (4, 1, 4), (5, 2, 3), (8, 2, 4), (9, 3, 3)])
def test_half_of_a_box_faces_the_wide_area(ports: int, switches: int, side: int) -> None:
    """A switch of 8 ports takes 4 and sends 4 up; the fifth needs a second switch, and the two share them."""
    d = replace(TWO, wan_ports=ports, lanes=2)
    first_up = {int(cables.low_port.min()) for cables in lay(d) if cables.low_tier == "wan-gateway"}
    assert (d.wan_gateways, d.wan_gateway_links, first_up) == (2 * switches, 2 * ports, {side} - {0})


@each(("design", "most", "said"), [
    (TWO, 10, "spine ports: 3 taken + 6 of the WAN gateway > 8 ports"),
    (THREE, 16, "core ports: 4 taken + 5 of the WAN gateway > 8 ports"),
    (ONE, 3, "leaf ports: 5 taken + 4 of the WAN gateway > 8 ports"),
    (replace(ONE, leaf_spare=1), 2, "leaf ports: 6 taken + 3 of the WAN gateway > 8 ports"),
    (replace(ONE, ports=4, split=2), 1, "leaf ports: 3 taken + 2 of the WAN gateway > 4 ports"),
])  # fmt: skip
def test_the_top_tier_has_ports_for_the_wan_gateway(design: Design, most: int, said: str) -> None:
    assert replace(design, wan_ports=most).faults() == []
    assert replace(design, wan_ports=most + 1).faults() == [said]


def test_gradients_leave_by_each_link_that_trains() -> None:
    """A site with two links sends on both in the time, on one where its other end does not train."""
    # 1 GB in 100 ms over a link of a round trip of 1 ms: 39 of them leave 61 ms, and 100 of them no time at all. Of a
    # design the rate that it was asked for, which has the headroom in.
    links = link("a", "b"), link("a", "c")
    for site, training, gbps in (("a", "abc", 2 * 16), ("a", "ab", 16), ("b", "ac", 0)):
        assert exchange_gbps(Wan(round_trips=0), links, None, site, training, (1e9, 0.5)) == gbps
    found = [exchange_gbps(Wan(round_trips=n), links[:1], None, "a", "ab", (1e9, 0.1)) for n in (39, 100)]
    assert found == [approx(8 / 0.061), float("inf")]
    own = {"name": "x", "a": "a", "b": "b"}
    design = designed(own | {"priority": 0, "requested_gbps": 30}, own | {"priority": 1, "requested_gbps": 7})
    assert exchange_gbps(Wan(headroom_factor=2.0), (), design, "a", "ab", (1e9, 1.0)) == 15


TALL = Design(
    ports=8, rails=4, racks=8, leaf_down=2, leaf_up=2, leaf_bundle=1, rails_per_pod=1, domains_per_pod=1,
    spine_up=2, spine_bundle=1, rails_per_zone=1, domains_per_zone=2, core_up=2, core_bundle=1,
)  # fmt: skip
# Whole pods of two rails make a zone of four, where there are three, which alone send.
WIDE = replace(TALL, rails=3, leaf_up=1, rails_per_pod=2, spine_up=1, rails_per_zone=4, core_up=4)


@each(("design", "shares", "leaf", "pod", "zone"), [
    (ONE, (0.5, 1.0), 1.0, 1.0, 1.0),  # one switch: nothing below the WAN gateway
    (TWO, (0.5, 1.0), 1 - 0.5 / 2, 1.0, 1.0),  # one leaf sends half of a link's rate up two
    (replace(TWO, lanes=2), (0.5, 1.0), 1 - 0.25 / 2, 1.0, 1.0),  # and half of that in each of two networks
    (THREE, (0.5, 1.0), 1 - 0.25 / 2, 1 - 0.5 / 4, 1.0),  # two rails share, and a pod of one has 2 spines of 2 uplinks
    (replace(THREE, rails_per_pod=2), (0.5, 1.0), 1 - 0.25 / 2, 1 - 1.0 / 4, 1.0),
    # Two positions of spines have two cores each of two uplinks; four rails share the rate.
    (TALL, (0.0, 0.0, 0.5), 1.0, 1.0, 1 - 0.25 * 0.5 / 8),
    (replace(TALL, rails_per_zone=2), (0.0, 0.0, 0.5), 1.0, 1.0, 1 - 0.5 * 0.5 / 8),
    (replace(TALL, rails_per_zone=4), (0.0, 0.0, 0.5), 1.0, 1.0, 1 - 1.0 * 0.5 / 8),
    (WIDE, (0.0, 0.0, 1.0), 1.0, 1.0, 1 - 1.0 / 4),
])  # fmt: skip
def test_what_the_exchange_leaves(design: Design, shares: tuple[float, ...], leaf, pod, zone) -> None:
    """By hand: such shares of a stage's racks in one domain, pod and zone."""
    assert free_uplinks(design, 1.0, *shares) == FreeUplinks(leaf, pod, zone)


@given(st.one_of(st.sampled_from([TWO, THREE]), dragonflies()), st.sampled_from([400.0, 800.0]))
def test_the_exchange_takes_links_by_their_rate(design: Design, rate: float) -> None:
    """As many times the rate of a link take as many links, however fast these are: of trees and of dragonflies."""
    fast, slow = (
        {block: load for block, (load, _) in d.exchange_loads(3 * d.link_gbps, 0.5, 1.0, 1.0).items()}
        for d in (replace(design, link_gbps=rate), design)
    )
    assert fast == approx(slow)


@each(("free", "send", "allreduce"), [
    (FreeUplinks(), 2.0, 1.0), (FreeUplinks(0.5), 4.0, 1.5), (FreeUplinks(0.0), float("inf"), float("inf")),
])  # fmt: skip
def test_sends_and_allreduces_have_the_free_uplinks(free: FreeUplinks, send: float, allreduce: float) -> None:
    """Four flows on two uplinks take twice as long, and twice that on half of them."""
    # Three all-reduces on two half as long again as on four.
    d = replace(TWO, leaf_down=4)
    assert slowdowns(1.0, uplink_loads(d, (1.0, 0.0), free=free)) == (send, 1.0)
    four = replace(d, leaf_up=4)
    assert slowdowns(1.0, uplink_loads(four, (0.0, 0.0), (3, 0), free)) == (1.0, allreduce)
    assert slowdowns(1.0, uplink_loads(d, (0.0, 0.0), free=free)) == (1.0, 1.0)
