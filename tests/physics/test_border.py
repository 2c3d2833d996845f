"""The border: ports by hand on both sides of their edges, and the ports of the top tier that it needs."""

import dataclasses

import pytest

from planner.instance import Wan
from planner.physics.border import wan_gbps, wan_ports
from planner.physics.cabling import lay
from planner.physics.wiring import Design
from planner.plan import Link, WanDemand, WanPlan, WanRoute

TWO = Design(ports=8, rails=1, racks=6, leaf_down=2, leaf_up=2, leaf_bundle=1, rails_per_pod=1, domains_per_pod=3)  # 2 spines, 3 of 8 ports down
THREE = Design(ports=8, rails=2, racks=4, leaf_down=2, leaf_up=2, leaf_bundle=1, rails_per_pod=1, domains_per_pod=1, spine_up=2, spine_bundle=1)


@pytest.mark.parametrize(
    ("gbps", "networks", "ports"),
    [(0, 1, 0), (1, 1, 1), (800, 1, 1), (800.01, 1, 2), (6400, 1, 8), (6401, 1, 9), (1600, 2, 1), (1601, 2, 2), (0.3, 3, 1)],
)
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
    """What is lit on all links of a site ends there, and no other link's does."""
    links = (link("a", "b", 400), link("b", "c", 1200), link("a", "c", 800))
    assert [wan_gbps(Wan(), links, None, s) for s in ("a", "b", "c", "d")] == [1200, 1600, 2000, 0]


@pytest.mark.parametrize(("backup", "gbps"), [(None, 800), (500, 800), (501, 1200)])
def test_a_design_brings_the_larger_of_route_and_backup(backup: float | None, gbps: float) -> None:
    """Routes of 300 and 200 Gbps, the second backed by more: whole wavelengths of 400 Gbps, and nothing of what passes by."""
    routes = [WanRoute(share=0.5, edges=("x",), route_km=1, rtt_ms=1, gbps=g, backup_gbps=b) for g, b in ((300, None), (200, backup))]
    more = {"priority": 0, "asked_gbps": 1, "admitted_gbps": 1, "missing_gbps": 0}
    demands = (WanDemand(name="sync", a="a", b="b", routes=tuple(routes), **more), WanDemand(name="x", a="b", b="c", routes=tuple(routes), **more))
    design = WanPlan.model_construct(demands=demands)
    assert wan_gbps(Wan(wavelength_gbps=400), (link("a", "b", 9999),), design, "a") == gbps


@pytest.mark.parametrize(("ports", "boxes", "side"), [(0, 0, 0), (1, 1, 1), (4, 1, 4), (5, 2, 3), (8, 2, 4), (9, 3, 3)])
def test_half_of_a_box_faces_the_wide_area(ports: int, boxes: int, side: int) -> None:
    """A box of 8 ports takes 4 and sends 4 up; the fifth needs a second box, and the two share them."""
    d = dataclasses.replace(TWO, wan_ports=ports, lanes=2)
    assert (d.borders, d.border_side, d.border_links) == (2 * boxes, side, 2 * ports)


@pytest.mark.parametrize(
    ("design", "most", "said"),
    [
        (TWO, 10, "spine ports: 3 taken + 6 of the border > 8 ports"),
        (THREE, 16, "core ports: 4 taken + 5 of the border > 8 ports"),
        (Design(ports=8, rails=1, racks=5, leaf_down=5), 3, "leaf ports: 5 taken + 4 of the border > 8 ports"),
        (Design(ports=8, rails=1, racks=5, leaf_down=5, leaf_spare=1), 2, "leaf ports: 6 taken + 3 of the border > 8 ports"),
        (Design(ports=4, rails=1, racks=5, leaf_down=5, split=2), 1, "leaf ports: 3 taken + 2 of the border > 4 ports"),
    ],
)
def test_the_top_tier_has_ports_for_the_border(design: Design, most: int, said: str) -> None:
    """As many links as the free ports of the top tier hold can be wired, one more cannot."""
    assert dataclasses.replace(design, wan_ports=most).faults() == []
    assert dataclasses.replace(design, wan_ports=most + 1).faults() == [said]


def test_links_go_to_the_top_tier_in_turn() -> None:
    """Five ports in each of two lanes: two boxes a network, every spine gets two or three links, and only of its own network."""
    d = dataclasses.replace(TWO, wan_ports=5, lanes=2)
    held = [c for c in lay(d) if c.low_tier == "border"]
    ends = [(a, b) for c in held for a, b in zip(c.low.tolist(), c.high.tolist(), strict=True)]
    assert [sum(b == spine for _, b in ends) for spine in range(4)] == [3, 2, 3, 2]
    assert all((a < 2) == (b < 2) for a, b in ends)
    assert {c.high_tier for c in held} == {"spine"}
