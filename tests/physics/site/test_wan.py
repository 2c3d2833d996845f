"""The wide area between sites: distances, wavelengths, demands, and its fibre against every path of random graphs."""

import math
import random
from itertools import combinations

import pytest
from each_case import each
from hypothesis import assume, given
from hypothesis import strategies as st
from wan_graphs import paths

from planner.instance.network import FibreEdge, FibreNode, Traffic, Wan
from planner.physics.site import wan, wan_exchange
from planner.physics.site.wan_exchange import forms

WAN = Wan(wavelength_gbps=400.0, max_wavelengths_per_pair=96)
LATITUDE, LONGITUDE = st.floats(-90, 90), st.floats(-180, 180)
PEACH_BOTTOM, PALO_VERDE = (39.7589, -76.2687), (33.3881, -112.8617)


def test_distances_by_hand() -> None:
    """A quarter turn is 10,007.56 km, pole to pole and the antipodes 20,015.11 km."""
    for ends, km in (((0, 0, 0, 90), 10_007.557), ((0, 12, 90, -77), 10_007.557), ((90, 0, -90, 0), 20_015.115),
                     ((45, 10, -45, -170), 20_015.115)):  # fmt: skip
        assert wan.great_circle_km(*ends) == pytest.approx(km, abs=0.001)
    # 1.2 great circles of fibre between the two coasts take 39.0 ms both ways.
    route = WAN.route_factor * wan.great_circle_km(*PEACH_BOTTOM, *PALO_VERDE)
    assert wan.rtt_ms(WAN, route) == pytest.approx(39.0, abs=0.05)
    assert wan.rtt_ms(WAN, 100.0) == pytest.approx(0.98)


@given(LATITUDE, LONGITUDE, LATITUDE, LONGITUDE)
def test_distance_is_symmetric_and_bounded(a: float, b: float, c: float, d: float) -> None:
    there = wan.great_circle_km(a, b, c, d)
    assert 0 <= there <= 20_015.2
    assert there == pytest.approx(wan.great_circle_km(c, d, a, b), abs=1e-6)
    assert wan.great_circle_km(a, b, a, b) == 0


@each(("window", "wait", "gbps"), [
    (0.1, 0.0, 80.0), (0.1, 0.039, 8 / 0.061), (0.1, 0.078, 8 / 0.022), (0.0625, 0.0624, 8 / 0.0001),
    (0.0625, 0.0625, math.inf), (0.0625, 0.063, math.inf),
])  # fmt: skip
def test_need_folds_the_round_trip_in(window: float, wait: float, gbps: float) -> None:
    """1 GB in 100 ms is 80 Gbps, with 39 ms of them waiting 131.1 Gbps; a wait as long as the window leaves no rate."""
    assert wan_exchange.need_gbps(1e9, window, wait) == pytest.approx(gbps)


@given(st.floats(1e6, 1e14), st.floats(0.01, 10), st.floats(0, 100))
def test_wavelengths_carry_the_need_and_no_fewer_would(size: float, window: float, rtt: float) -> None:
    need = wan_exchange.need_gbps(size, window, rtt / 1e3)
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
    (found,) = wan.sync_demands(w, ring, 0.1, rtt)
    assert (found.key, found.priority) == ("sync[a,b]", 0)
    assert found.gbps(20.0) == pytest.approx(2 * 8 / 0.08)
    assert found.gbps(40.0) == pytest.approx(2 * 8 / 0.06)
    assert found.gbps(99.0) == pytest.approx(2 * 8 / 0.001) and math.isinf(found.gbps(100.0))
    assert wan.sync_demands(w, None, 0.1, rtt) == ()


def test_traffic_between_every_two_sites_or_two_places() -> None:
    """What names no ends runs between all open sites; what names a closed one does not arise, nor to itself."""
    every = Traffic(name="copies", bytes=9e9, period_seconds=3.0, priority=2)
    named = Traffic(name="data", bytes=5e9, deadline_seconds=2.0, a="b", b="n")
    away = Traffic(name="gone", bytes=1.0, period_seconds=1.0, a="b", b="closed")
    self_ = Traffic(name="self", bytes=1.0, period_seconds=1.0, a="b", b="b")
    found = wan.traffic_demands(Wan(traffic=(every, named, away, self_)), "cba", {**SITES, "n": None})
    assert [d.key for d in found] == ["copies[a,b]", "copies[a,c]", "copies[b,c]", "data[b,n]"]
    # 9 GB spread over 3 s whatever the route; 5 GB within 2 s, half a second of them one round trip.
    assert (found[0].priority, found[0].gbps(500.0)) == (2, pytest.approx(24.0))
    assert (found[3].priority, found[3].gbps(500.0)) == (1, pytest.approx(40 / 1.5))


def test_places_are_open_sites_and_nodes_that_traffic_names() -> None:
    nodes = tuple(FibreNode(id=n, latitude=1.0, longitude=2.0) for n in ("n", "o", "a"))
    traffic = (Traffic(name="t", bytes=1.0, period_seconds=1.0, a="a", b="n"),)
    graph = Wan(fibre_nodes=nodes, fibre_edges=(FibreEdge(a="n", b="o"),), traffic=traffic)
    assert wan.places_of(graph, SITES) == SITES | {"n": (1.0, 2.0)}
    assert wan.places_of(graph.replaced(fibre_edges=()), SITES) == SITES


@each(("asked", "name"), [("ring", "ring"), ("tree", "tree"), ("auto", "tree"), ("hierarchical", "tree")])
def test_the_form_named_or_the_fastest(asked: str, name: str) -> None:
    found = wan_exchange.choose_form(Wan(exchange=asked), forms({"x": ["a", "b", "c"]}, 1e9, rtt), 0.079, rtt)
    assert found is not None and found.name == name
    assert wan_exchange.choose_form(Wan(exchange=asked), (), 0.079, rtt) is None


NODES = {"a": (40.0, -76.0), "b": (41.0, -88.0), "c": (35.0, -90.0), "d": (39.0, -105.0), "e": (33.0, -112.0)}
# Near the nodes a and e, and not at them: a site reaches its node by a great circle, 1.5 times as long.
NEAR = {"A": (40.5, -75.0), "E": (32.0, -113.0)}


FIBRE_NODES = tuple(FibreNode(id=n, latitude=p[0], longitude=p[1]) for n, p in NODES.items())
COMMON = {"route_factor": 1.5, "fibre_usd_per_route_km": 11.0, "wavelength_usd": 500.0}


def wide(edges: list[tuple[str, str, float]], **more: object) -> Wan:
    """Return a wide area of some edges; two between the same nodes are told apart by their number."""
    given = [
        FibreEdge(id=f"{k}", a=a, b=b, route_km=km, usd_per_pair=(7 + k) * km, wavelength_usd=100.0 + 13 * k)
        for k, (a, b, km) in enumerate(edges)
    ]
    return Wan(fibre_nodes=FIBRE_NODES, fibre_edges=tuple(given), **COMMON | {"max_wavelengths_per_pair": 8} | more)


def drawn(seed: int, **more: object) -> Wan:
    """Draw a graph of five nodes, with parallel edges, of lengths of which no two routes have the same sum."""
    r = random.Random(seed)
    pairs = [p for p in combinations(NODES, 2) if r.random() < 0.55] + [r.choice([("a", "b"), ("d", "e"), ("c", "e")])]
    return wide([(a, b, 100.0 + 2.0 ** (k % 9) + 17 * k) for k, (a, b) in enumerate(pairs)], **more)


def walked(w: Wan, a: str, b: str) -> list[tuple[str, ...]]:
    """Return every simple path between two nodes, the shortest first."""
    km = {e.name: e.route_km or 0.0 for e in w.fibre_edges}
    every = paths({e.name: (e.a, e.b) for e in w.fibre_edges}, a, b)
    return sorted(every, key=lambda p: math.fsum(km[e] for e in p))


def access_km(site: str, node: str) -> float:
    return 1.5 * wan.great_circle_km(*NEAR[site], *NODES[node])


@pytest.mark.parametrize("seed", range(24))
def test_routes_are_the_shortest_of_all_paths(seed: int) -> None:
    w = drawn(seed)
    net = wan.fibre_of(w, NEAR)
    expected = [("A access", *p, "E access") for p in walked(w, "a", "e")]
    for count in (1, 3, 99):
        assert net.routes("A", "E", count) == expected[:count]
    for route in expected:
        lit = math.fsum(e.route_km for e in w.fibre_edges if e.name in route)
        assert net.km(route) == pytest.approx(lit + access_km("A", "a") + access_km("E", "e"))
        assert net.rtt_ms(route) == pytest.approx(wan.rtt_ms(w, net.km(route)))
        assert net.cuts(route) == set(route[1:-1])


@pytest.mark.parametrize("count", [1, 2, 99])
@pytest.mark.parametrize("seed", range(24))
def test_diverse_pairs_share_no_edge(seed: int, count: int) -> None:
    """Every pair holds against a cut; one is wherever two paths share no edge, and of all paths every such pair."""
    # With each of the shortest paths that has any partner there is the shortest one.
    w = drawn(seed)
    found = wan.fibre_of(w, NEAR).diverse("A", "E", count)
    every = [("A access", *p, "E access") for p in walked(w, "a", "e")]
    apart = {(p, q) for p in every for q in every if not set(p[1:-1]) & set(q[1:-1])}
    assert set(found) <= apart and bool(found) == bool(apart)
    assert len(found) == len(set(found))
    for p in every[:count]:
        partners = [q for q in every if (p, q) in apart]
        assert not partners or (p, partners[0]) in found
    if count > len(every):
        assert set(found) == apart


def test_two_routes_are_found_that_the_shortest_hides() -> None:
    """The shortest path a-b-d-e uses both ways: without its edges nothing is left, yet a-b-e and a-d-e hold."""
    w = wide([("a", "b", 1), ("b", "d", 1), ("d", "e", 1), ("b", "e", 50), ("a", "d", 50)])
    net = wan.fibre_of(w, NODES)
    assert net.routes("a", "e", 1) == [("0", "1", "2")]
    assert set(net.diverse("a", "e", 1)) == {(("0", "3"), ("4", "2")), (("4", "2"), ("0", "3"))}


def test_two_sites_at_one_node() -> None:
    places = {"A": NEAR["A"], "B": (40.0, -76.5)}
    net = wan.fibre_of(wide([("a", "b", 1)]), places)
    assert net.node == {"A": "a", "B": "a"}
    alone = ("A access", "B access")
    assert net.routes("A", "B", 3) == [alone]
    assert net.diverse("A", "B", 3) == [(alone, alone)]
    assert net.cuts(alone) == frozenset()


@pytest.mark.parametrize("protection", ["none", "one_cut"])
@pytest.mark.parametrize("seed", range(24))
def test_reach_is_the_shortest_path_that_survives(seed: int, protection: str) -> None:
    """Places are as far as the shortest path with their accesses; apart where there is none, or one cut leaves none."""
    # Where no path is, the length is that of the great circle, 1.5 times.
    w = drawn(seed, protection=protection)
    at = NEAR | {"B": NODES["b"], "C": NODES["c"]}
    node = {"A": "a", "E": "e", "B": "b", "C": "c"}
    found, apart = wan.reach(w, at)
    assert set(found) == set(combinations(sorted(at), 2))
    km = {e.name: e.route_km for e in w.fibre_edges}
    for a, b in found:
        every = walked(w, node[a], node[b])
        ends = math.fsum(1.5 * wan.great_circle_km(*at[s], *NODES[node[s]]) for s in (a, b))
        length = math.fsum(km[e] for e in every[0]) + ends if every else 1.5 * wan.great_circle_km(*at[a], *at[b])
        assert found[a, b] == pytest.approx(length)
        severed = not every or (protection == "one_cut" and any(all(e in p for p in every) for e in km))
        assert ((a, b) in apart) == severed


def test_without_a_graph_all_places_are_joined() -> None:
    """Every two sites have an edge of their own, as long as the great circle times the factor, at the common prices."""
    w = Wan(**COMMON, max_fibre_pairs=3)
    at = NEAR | {"B": NODES["b"]}
    net, (found, apart) = wan.fibre_of(w, at), wan.reach(w, at)
    assert set(net.edges) == {"A-B", "A-E", "B-E"} and not any(net.access.values()) and not apart
    for e in net.edges.values():
        km = 1.5 * wan.great_circle_km(*at[e.a], *at[e.b])
        assert (e.route_km, e.prices[0]) == (pytest.approx(km), pytest.approx(11 * km))
        assert (e.prices[1], e.max_pairs, e.cut) == (500.0, 3, True)
        assert found[e.a, e.b] == pytest.approx(km)
    assert wan.link_prices(w, {s: at[s] for s in "BA"}) == (pytest.approx(11 * found["A", "B"]), 500.0)


def test_an_edge_has_its_own_terms_or_the_common_ones() -> None:
    """Length, pairs and prices given, free ones among them, or those of the wide area."""
    given = FibreEdge(a="a", b="b"), FibreEdge(a="b", b="c", route_km=9, max_fibre_pairs=2, usd_per_pair=0)
    w = Wan(fibre_nodes=FIBRE_NODES, fibre_edges=given, **COMMON, max_fibre_pairs=5)
    edges = wan.fibre_of(w, {"A": NEAR["A"]}).edges
    km = 1.5 * wan.great_circle_km(*NODES["a"], *NODES["b"])
    assert (edges["a-b"].route_km, edges["a-b"].prices[0], edges["a-b"].max_pairs) == (km, 11 * km, 5)
    assert (edges["b-c"].route_km, edges["b-c"].prices[0], edges["b-c"].max_pairs) == (9, 0, 2)
    assert edges["A access"].route_km == pytest.approx(access_km("A", "a")) and not edges["A access"].cut


@pytest.mark.parametrize("protection", ["none", "one_cut"])
@pytest.mark.parametrize("seed", range(24))
def test_a_link_is_priced_by_its_cheapest_way(seed: int, protection: str) -> None:
    """Of every path, or every two that share no edge, the cheapest with a pair of eight wavelengths full."""
    # Accesses are lit once each, at the common prices; without a way the great circle is priced.
    w = drawn(seed, protection=protection, routes=99)
    every = walked(w, "a", "e")
    lit = [{*p} for p in every]
    if protection == "one_cut":
        lit = [{*p, *q} for p in every for q in every if not {*p} & {*q}]
    edges = {e.name: e for e in w.fibre_edges}
    km = access_km("A", "a") + access_km("E", "e")
    prices = [
        (sum(edges[e].usd_per_pair or 0 for e in one) + 11 * km, sum(edges[e].wavelength_usd or 0 for e in one) + 1000)
        for one in lit
    ]
    flat = 11 * 1.5 * wan.great_circle_km(*NEAR["A"], *NEAR["E"]), 500.0
    expected = min(prices, key=lambda x: x[0] + 8 * x[1], default=flat)
    assert wan.link_prices(w, NEAR) == (pytest.approx(expected[0]), pytest.approx(expected[1]))
