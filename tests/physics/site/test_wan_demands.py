"""What the wide area must carry: demands by hand from exchange and traffic."""

import math

import pytest

from planner.instance.network import FibreEdge, FibreNode, Traffic, Wan
from planner.physics.site import fibre
from planner.physics.site.wan import forms, link_needs

SITES = {"a": (40.0, -76.0), "b": (41.0, -88.0), "c": (33.0, -112.0)}


def rtt(_a: str, _b: str) -> float:
    return 20.0


def test_the_exchange_is_asked_for_with_headroom() -> None:
    """One GB between two sites in 100 ms, of which 20 are one round trip: 100 Gbps, and twice that with headroom.

    Twice as long a route waits twice as long; where the waits fill the window no rate does.
    """
    w = Wan(headroom_factor=2.0)
    ring = forms({"x": ["a", "b"]}, 1e9, rtt)[0]
    (found,) = fibre.sync_demands(w, ring, 0.1, rtt)
    assert (found.key, found.priority) == ("sync[a,b]", 0)
    assert found.gbps(20.0) == pytest.approx(2 * 8 / 0.08)
    assert found.gbps(40.0) == pytest.approx(2 * 8 / 0.06)
    assert found.gbps(99.0) == pytest.approx(2 * 8 / 0.001) and math.isinf(found.gbps(100.0))
    assert fibre.sync_demands(w, None, 0.1, rtt) == ()


def test_every_link_of_a_form_is_a_demand() -> None:
    """A ring of three is three demands, of the bytes, trips and part of the window that each link has."""
    w, ring = Wan(round_trips=1.5), forms({"x": ["a", "b", "c"]}, 6e9, rtt)[0]
    found = fibre.sync_demands(w, ring, 1.0, rtt)
    needs = link_needs(ring, w, 1.0, rtt)
    assert [d.key for d in found] == ["sync[a,b]", "sync[a,c]", "sync[b,c]"]
    assert [(d.size_bytes, d.trips, d.window_seconds) for d in found] == [
        (pytest.approx(8e9), 3.0, pytest.approx(1.0)) for _ in needs
    ]


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
    """A fibre node is a place where traffic ends there, and only where there is a fibre graph; a site stays its own."""
    nodes = tuple(FibreNode(id=n, latitude=1.0, longitude=2.0) for n in ("n", "o", "a"))
    traffic = (Traffic(name="t", bytes=1.0, period_seconds=1.0, a="a", b="n"),)
    graph = Wan(fibre_nodes=nodes, fibre_edges=(FibreEdge(a="n", b="o"),), traffic=traffic)
    assert fibre.places_of(graph, SITES) == SITES | {"n": (1.0, 2.0)}
    assert fibre.places_of(graph.model_copy(update={"fibre_edges": ()}), SITES) == SITES


@pytest.mark.parametrize(
    ("asked", "name"), [("ring", "ring"), ("tree", "tree"), ("auto", "tree"), ("hierarchical", "tree")]
)
def test_the_form_named_or_the_fastest(asked: str, name: str) -> None:
    """Three sites 20 ms apart in 79 ms go fastest by tree, and cannot take two levels; a ring is named."""
    offered = forms({"x": ["a", "b", "c"]}, 1e9, rtt)
    found = fibre.choose_form(Wan(exchange=asked), offered, 0.079, rtt)
    assert found is not None and found.name == name
    assert fibre.choose_form(Wan(exchange=asked), (), 0.079, rtt) is None
