"""The wide area between sites: distances, wavelengths, and what demands ask of it."""

import math

import pytest
from each_case import each
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.instance.network import FibreEdge, FibreNode, Traffic, Wan
from planner.physics.site import fibre, wan
from planner.physics.site.wan import forms

WAN = Wan(wavelength_gbps=400.0, max_wavelengths_per_pair=96)
LATITUDE, LONGITUDE = st.floats(-90, 90), st.floats(-180, 180)
PEACH_BOTTOM, PALO_VERDE = (39.7589, -76.2687), (33.3881, -112.8617)


def test_quarter_and_half_of_the_globe() -> None:
    """A quarter turn is 10,007.56 km, pole to pole and the antipodes 20,015.11 km."""
    assert wan.great_circle_km(0, 0, 0, 90) == pytest.approx(10_007.557, abs=0.001)
    assert wan.great_circle_km(0, 12, 90, -77) == pytest.approx(10_007.557, abs=0.001)
    assert wan.great_circle_km(90, 0, -90, 0) == pytest.approx(20_015.115, abs=0.001)
    assert wan.great_circle_km(45, 10, -45, -170) == pytest.approx(20_015.115, abs=0.001)


def test_round_trip_coast_to_coast() -> None:
    """1.2 great circles of fibre between the two take 39.0 ms both ways."""
    route = WAN.route_factor * wan.great_circle_km(*PEACH_BOTTOM, *PALO_VERDE)
    assert wan.rtt_ms(WAN, route) == pytest.approx(39.0, abs=0.05)
    assert wan.rtt_ms(WAN, 100.0) == pytest.approx(0.98)


@given(LATITUDE, LONGITUDE, LATITUDE, LONGITUDE)
def test_distance_is_symmetric_and_bounded(a: float, b: float, c: float, d: float) -> None:
    there = wan.great_circle_km(a, b, c, d)
    assert 0 <= there <= 20_015.2
    assert there == pytest.approx(wan.great_circle_km(c, d, a, b), abs=1e-6)
    assert wan.great_circle_km(a, b, a, b) == 0


@each(("sites", "share"), [(1, 0.0), (2, 1.0), (3, 4 / 3), (4, 1.5)])
def test_exchange_bytes(sites: int, share: float) -> None:
    """Two sites send all of a gradient each way, four 1.5 of it."""
    assert wan.exchange_bytes(1e9, sites) == pytest.approx(share * 1e9)


def test_need_folds_the_round_trip_in() -> None:
    """1 GB in 100 ms is 80 Gbps, with 39 ms of them waiting 131.1 Gbps, with twice that 363.6 Gbps."""
    twice = WAN.replaced(round_trips=2.0)
    assert wan.exchange_need_gbps(WAN, 1e9, 0.1, 0.0) == pytest.approx(80.0)
    assert wan.exchange_need_gbps(WAN, 1e9, 0.1, 39.0) == pytest.approx(8 / 0.061)
    assert wan.exchange_need_gbps(twice, 1e9, 0.1, 39.0) == pytest.approx(8 / 0.022)


def test_need_is_infinite_where_the_wait_fills_the_window() -> None:
    """A round trip as long as the window leaves no rate that does; one just shorter leaves a finite one."""
    assert wan.exchange_need_gbps(WAN, 1e9, 0.0625, 62.5) == math.inf
    assert wan.exchange_need_gbps(WAN, 1e9, 0.0625, 63.0) == math.inf
    assert math.isfinite(wan.exchange_need_gbps(WAN, 1e9, 0.0625, 62.4))


@each(("waves", "pairs"), [(0, 0), (1, 1), (96, 1), (97, 2)])
def test_fibre_pairs(waves: int, pairs: int) -> None:
    assert wan.fibre_pairs(WAN, waves) == pairs


@given(st.floats(1e6, 1e14), st.floats(0.01, 10), st.floats(0, 100))
def test_wavelengths_carry_the_need_and_no_fewer_would(size: float, window: float, rtt: float) -> None:
    need = wan.exchange_need_gbps(WAN, size, window, rtt)
    assume(need < 400 * 2**52)  # of more a float does not tell one wavelength fewer
    count = wan.wavelengths(WAN, need)
    assert count * 400 >= need * (1 - 1e-9) - 1e-6
    assert (count - 1) * 400 < need


SITES = {"a": (40.0, -76.0), "b": (41.0, -88.0), "c": (33.0, -112.0)}


def rtt(_a: str, _b: str) -> float:
    return 20.0


def test_the_exchange_is_asked_for_with_headroom() -> None:
    """One GB between two sites in 100 ms, of which 20 are one round trip: 100 Gbps, and twice that with headroom."""
    # Twice as long a route waits twice as long; where the waits fill the window no rate does.
    w = Wan(headroom_factor=2.0)
    ring = forms({"x": ["a", "b"]}, 1e9, rtt)[0]
    (found,) = fibre.sync_demands(w, ring, 0.1, rtt)
    assert (found.key, found.priority) == ("sync[a,b]", 0)
    assert found.gbps(20.0) == pytest.approx(2 * 8 / 0.08)
    assert found.gbps(40.0) == pytest.approx(2 * 8 / 0.06)
    assert found.gbps(99.0) == pytest.approx(2 * 8 / 0.001) and math.isinf(found.gbps(100.0))
    assert fibre.sync_demands(w, None, 0.1, rtt) == ()


def test_traffic_between_every_two_sites_or_two_places() -> None:
    """What names no ends runs between all open sites; what names a closed one does not arise, nor to itself."""
    every = Traffic(name="copies", bytes=9e9, period_seconds=3.0, priority=2)
    named = Traffic(name="data", bytes=5e9, deadline_seconds=2.0, a="b", b="n")
    away = Traffic(name="gone", bytes=1.0, period_seconds=1.0, a="b", b="closed")
    self_ = Traffic(name="self", bytes=1.0, period_seconds=1.0, a="b", b="b")
    found = fibre.traffic_demands(Wan(traffic=(every, named, away, self_)), "cba", {**SITES, "n": None})
    assert [d.key for d in found] == ["copies[a,b]", "copies[a,c]", "copies[b,c]", "data[b,n]"]
    # 9 GB spread over 3 s whatever the route; 5 GB within 2 s, half a second of them one round trip.
    assert (found[0].priority, found[0].gbps(500.0)) == (2, pytest.approx(24.0))
    assert (found[3].priority, found[3].gbps(500.0)) == (1, pytest.approx(40 / 1.5))


def test_places_are_open_sites_and_nodes_that_traffic_names() -> None:
    nodes = tuple(FibreNode(id=n, latitude=1.0, longitude=2.0) for n in ("n", "o", "a"))
    traffic = (Traffic(name="t", bytes=1.0, period_seconds=1.0, a="a", b="n"),)
    graph = Wan(fibre_nodes=nodes, fibre_edges=(FibreEdge(a="n", b="o"),), traffic=traffic)
    assert fibre.places_of(graph, SITES) == SITES | {"n": (1.0, 2.0)}
    assert fibre.places_of(graph.replaced(fibre_edges=()), SITES) == SITES


@each(("asked", "name"), [("ring", "ring"), ("tree", "tree"), ("auto", "tree"), ("hierarchical", "tree")])
def test_the_form_named_or_the_fastest(asked: str, name: str) -> None:
    offered = forms({"x": ["a", "b", "c"]}, 1e9, rtt)
    found = fibre.choose_form(Wan(exchange=asked), offered, 0.079, rtt)
    assert found is not None and found.name == name
    assert fibre.choose_form(Wan(exchange=asked), (), 0.079, rtt) is None
