"""Fabrics with a WAN gateway: agreement with a brute force over every design, and room in the top tier at its edges."""

import dataclasses

import pytest
from each_case import each
from fabric_cases import cheapest, instance, request, switch
from fabric_graph import laid

from planner.physics.network.fabric_designs import bill


@each(
    ("gbps", "tiers", "wan_gateways"), [(0, 1, 0), (800, 1, 1), (1600, 1, 1), (1601, 2, 1), (3200, 2, 1), (3201, 2, 2)]
)
def test_a_wan_gateway_that_finds_no_port_makes_another_tier(gbps: float, tiers: int, wan_gateways: int) -> None:
    """Six GPUs on a switch of eight ports leave two."""
    # The third port of the wide area needs a spine, the fifth a second WAN gateway switch.
    d = cheapest(instance(1, switch(8, 100_000)), dataclasses.replace(request(6), wan_gbps=gbps)).design
    assert (d.tiers, d.wan_gateways) == (tiers, wan_gateways)


@each(("gbps", "room"), [(800, True), (801, False)])
def test_a_wan_gateway_needs_room(gbps: float, room: bool) -> None:
    """Three GPUs on the one switch of four ports allowed leave one port; two are not there."""
    found = cheapest(instance(1, switch(4, 100_000), max_tiers=1), dataclasses.replace(request(3), wan_gbps=gbps))
    assert (found is not None) == room


def test_the_wan_gateway_is_paid() -> None:
    """One switch, two links of two modules each, and nothing for what faces the wide area."""
    i = instance(1, switch(8, 100_000), optics_usd=1_000)
    with_gateway, without = (cheapest(i, dataclasses.replace(request(6), wan_gbps=g)) for g in (1600.0, 0.0))
    assert with_gateway.usd - without.usd == pytest.approx(100_000 + 2 * 2 * 1_000)
    assert with_gateway.mw - without.mw == pytest.approx((1000 + 2 * 2 * 16) / 1e6)


@each(("gbps", "spine_up"), [(4800, 1), (4801, 2), (9600, 2), (9601, None)])
def test_a_wan_gateway_takes_uplinks_that_make_it_cores(gbps: float, spine_up: int | None) -> None:
    """Two spines with one uplink each join two cores, with three ports left on each; with two uplinks, four cores."""
    pins = {"tiers": 3, "leaf_down_ports": 2, "leaf_up_ports": 2, "leaf_bundle": 1, "leaf_domains_per_pod": 2}
    i = instance(1, switch(4, 75_000), pins={f"fabric.{name}": value for name, value in pins.items()})
    found = cheapest(i, dataclasses.replace(request(4), wan_gbps=gbps))
    assert (found and found.design.spine_up) == spine_up
    if found is not None:
        laid(found.design)


def test_lengths_price_the_wan_gateway_as_the_bill_does() -> None:
    """By reach the search and the bill agree to the cent a link."""
    media = [
        {"name": "dac", "reach_m": 3, "price_usd": 100, "usd_per_m": 10},
        {"name": "fibre", "reach_m": 500, "price_usd": 900, "usd_per_m": 1.5},
    ]
    i = instance(2, switch(8, 100_000), floor={"spread_m": 7.3}, media=media)
    out = cheapest(i, dataclasses.replace(request(9), wan_gbps=2400.0))
    assert out.usd == pytest.approx(bill(i.network, i.network.switches[0], out.design).usd)


@each("family", ["dragonfly", "dragonfly+"])
@each(("racks", "found"), [(6, True), (12, False)])
def test_no_medium_for_links_that_are_not_there(family: str, racks: int, found: bool) -> None:
    """One port of the wide area goes to one group; what would join it to groups out of reach is not asked for."""
    # Racks stand 1 m apart in one row, and the only cable reaches 6 m, 2 m of them up and down: groups of a third of
    # six racks are 4 m apart at most, but on the eight ports of a switch twelve racks make groups that no cable
    # joins.
    media, floor = [{"name": "near", "reach_m": 6, "price_usd": 100}], {"rack_pitch_m": 1, "racks_per_row": 12}
    i = instance(1, switch(8, 1000), families=[family], floor=floor | {"rise_m": 1, "spread_m": 0}, media=media)
    out = cheapest(i, dataclasses.replace(request(racks), wan_gbps=800.0))
    assert (out is not None) == found
    if found:
        assert out.usd == pytest.approx(bill(i.network, i.network.switches[0], out.design).usd)


@each(
    ("gbps", "group", "up"), [(0, 1, 1), (1, 1, 2), (800, 1, 2), (801, 1, 3), (800, 8, 2), (1600, 8, 2), (1601, 8, 3)]
)
def test_the_exchange_takes_uplinks(gbps: float, group: int, up: int) -> None:
    """A hop of four flows on one uplink is hidden."""
    # Gradients at a port's rate need one more, or twice the rate where half of a stage is there.
    i = instance(1, switch(16, 5000), pins={"fabric.leaf_down_ports": 4})
    r = dataclasses.replace(
        request(16, group=group, groups=16 // group, send=4.0), wan_gbps=max(gbps, 1), exchange_gbps=gbps
    )
    assert cheapest(i, r).design.leaf_up == up


def test_the_exchange_needs_a_way_out_of_the_only_domain() -> None:
    """Rails of one leaf domain meet at spines for nothing but the exchange."""
    i = instance(4, switch(16, 5000), pins={"fabric.leaf_down_ports": 8})
    r = dataclasses.replace(request(8), wan_gbps=12_800, exchange_gbps=12_800)
    d = cheapest(i, r).design
    assert (d.domains, d.tiers, d.leaf_up) == (1, 2, 4)
    assert cheapest(i, dataclasses.replace(r, exchange_gbps=0.0)).design.leaf_up < 4
