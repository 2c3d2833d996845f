"""The fibre graph: routes, diverse pairs, reach and prices against every path of small random graphs, walked."""

import math
import random
from itertools import combinations

import pytest
from wan_graphs import paths

from planner.instance.grid import Grid, SitePrices
from planner.instance.network import FibreEdge, FibreNode, Wan
from planner.physics.site import cost, fibre, wan

NODES = {"a": (40.0, -76.0), "b": (41.0, -88.0), "c": (35.0, -90.0), "d": (39.0, -105.0), "e": (33.0, -112.0)}
# Near the nodes a and e, and not at them: a site reaches its node by a great circle, 1.5 times as long.
SITES = {"A": (40.5, -75.0), "E": (32.0, -113.0)}


def wide(edges: list[tuple[str, str, float]], **more: object) -> Wan:
    """Return a wide area of some edges; two between the same nodes are told apart by their number."""
    given = [
        FibreEdge(id=f"{k}", a=a, b=b, route_km=km, usd_per_pair=(7 + k) * km, wavelength_usd=100.0 + 13 * k)
        for k, (a, b, km) in enumerate(edges)
    ]
    nodes = [FibreNode(id=n, latitude=p[0], longitude=p[1]) for n, p in NODES.items()]
    own = {"route_factor": 1.5, "fibre_usd_per_route_km": 11.0, "wavelength_usd": 500.0, "max_wavelengths_per_pair": 8}
    return Wan(fibre_nodes=tuple(nodes), fibre_edges=tuple(given), **own | more)


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
    return 1.5 * wan.great_circle_km(*SITES[site], *NODES[node])


@pytest.mark.parametrize("seed", range(24))
def test_routes_are_the_shortest_of_all_paths(seed: int) -> None:
    w = drawn(seed)
    net = fibre.fibre_of(w, SITES)
    expected = [("A access", *p, "E access") for p in walked(w, "a", "e")]
    for count in (1, 3, 99):
        assert fibre.routes(net, fibre.graph(net), "A", "E", count) == expected[:count]
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
    net = fibre.fibre_of(w, SITES)
    found = fibre.diverse(net, fibre.graph(net), "A", "E", count)
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
    net = fibre.fibre_of(w, NODES)
    assert fibre.routes(net, fibre.graph(net), "a", "e", 1) == [("0", "1", "2")]
    assert set(fibre.diverse(net, fibre.graph(net), "a", "e", 1)) == {
        (("0", "3"), ("4", "2")),
        (("4", "2"), ("0", "3")),
    }


def test_no_two_routes_over_a_bridge() -> None:
    """Every route from a to e goes over the only edge to e; nor has a place without a route any pair."""
    net = fibre.fibre_of(wide([("a", "b", 1), ("a", "b", 2), ("b", "e", 3)]), NODES)
    assert fibre.diverse(net, fibre.graph(net), "a", "e", 9) == []
    assert fibre.diverse(net, fibre.graph(net), "a", "b", 1) != []
    assert fibre.diverse(net, fibre.graph(net), "a", "c", 9) == fibre.routes(net, fibre.graph(net), "a", "c", 9) == []


def test_two_sites_at_one_node() -> None:
    places = {"A": SITES["A"], "B": (40.0, -76.5)}
    net = fibre.fibre_of(wide([("a", "b", 1)]), places)
    assert net.node == {"A": "a", "B": "a"}
    alone = ("A access", "B access")
    assert fibre.routes(net, fibre.graph(net), "A", "B", 3) == [alone]
    assert fibre.diverse(net, fibre.graph(net), "A", "B", 3) == [(alone, alone)]
    assert net.cuts(alone) == frozenset()


@pytest.mark.parametrize("protection", ["none", "one_cut"])
@pytest.mark.parametrize("seed", range(24))
def test_reach_is_the_shortest_path_that_survives(seed: int, protection: str) -> None:
    """Places are as far as the shortest path with their accesses; apart where there is none, or one cut leaves none."""
    # Where no path is, the length is that of the great circle, 1.5 times.
    w = drawn(seed, protection=protection)
    at = SITES | {"B": NODES["b"], "C": NODES["c"]}
    node = {"A": "a", "E": "e", "B": "b", "C": "c"}
    found = fibre.reach(w, at)
    assert set(found.km) == set(combinations(sorted(at), 2))
    km = {e.name: e.route_km for e in w.fibre_edges}
    for a, b in found.km:
        every = walked(w, node[a], node[b])
        ends = math.fsum(1.5 * wan.great_circle_km(*at[s], *NODES[node[s]]) for s in (a, b))
        length = math.fsum(km[e] for e in every[0]) + ends if every else 1.5 * wan.great_circle_km(*at[a], *at[b])
        assert found.km[a, b] == pytest.approx(length)
        severed = not every or (protection == "one_cut" and any(all(e in p for p in every) for e in km))
        assert ((a, b) in found.disconnected) == severed


def test_without_a_graph_all_places_are_joined() -> None:
    """Every two sites have an edge of their own, as long as the great circle times the factor, at the common prices."""
    w = Wan(route_factor=1.5, fibre_usd_per_route_km=11.0, wavelength_usd=500.0, max_fibre_pairs=3)
    at = SITES | {"B": NODES["b"]}
    net, found = fibre.fibre_of(w, at), fibre.reach(w, at)
    assert set(net.edges) == {"A-B", "A-E", "B-E"} and net.access == {} and not found.disconnected
    for e in net.edges.values():
        km = 1.5 * wan.great_circle_km(*at[e.a], *at[e.b])
        assert (e.route_km, e.pair_usd) == (pytest.approx(km), pytest.approx(11 * km))
        assert (e.wavelength_usd, e.max_pairs, e.cut) == (500.0, 3, True)
        assert found.km[e.a, e.b] == pytest.approx(km)
    assert fibre.link_prices(w, {s: at[s] for s in "BA"}) == (pytest.approx(11 * found.km["A", "B"]), 500.0)


def test_an_edge_has_its_own_terms_or_the_common_ones() -> None:
    """Length, pairs and prices given, free ones among them, or those of the wide area."""
    w = Wan(
        fibre_nodes=tuple(FibreNode(id=n, latitude=p[0], longitude=p[1]) for n, p in NODES.items()),
        fibre_edges=(FibreEdge(a="a", b="b"), FibreEdge(a="b", b="c", route_km=9, max_fibre_pairs=2, usd_per_pair=0)),
        route_factor=1.5, fibre_usd_per_route_km=11.0, wavelength_usd=500.0, max_fibre_pairs=5,
    )  # fmt: skip
    edges = fibre.fibre_of(w, {"A": SITES["A"]}).edges
    km = 1.5 * wan.great_circle_km(*NODES["a"], *NODES["b"])
    assert (edges["a-b"].route_km, edges["a-b"].pair_usd, edges["a-b"].max_pairs) == (km, 11 * km, 5)
    assert (edges["b-c"].route_km, edges["b-c"].pair_usd, edges["b-c"].max_pairs) == (9, 0, 2)
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
    flat = 11 * 1.5 * wan.great_circle_km(*SITES["A"], *SITES["E"]), 500.0
    expected = min(prices, key=lambda x: x[0] + 8 * x[1], default=flat)
    assert fibre.link_prices(w, SITES) == (pytest.approx(expected[0]), pytest.approx(expected[1]))


def test_the_price_of_an_edge_by_the_year() -> None:
    """Nine wavelengths take two pairs of eight: 2·300 + 9·40 dollars, each over its life, repaid with interest."""
    # A yearly payment is worth what it costs: discounted year by year its sum is the price.
    w = wide([("a", "b", 1)], fibre_life_years=10)
    edge = fibre.Edge(id="x", a="a", b="b", route_km=1, max_pairs=9, pair_usd=300, wavelength_usd=40, cut=True)
    prices = SitePrices(
        building_usd_per_it_mw=0, interconnection_usd_per_mw=0, site_usd=0, discount_rate=0.1, site_life_years=20,
        it_life_years=4,
    )  # fmt: skip
    grid = Grid(balancing_authorities=(), nodes=(), prices=prices)
    worth = [sum(1.1**-y for y in range(1, life + 1)) for life in (10, 4)]
    pair, wave = (cost.link_usd_per_year(grid, w, prices, 8) for prices in ((300, 0), (0, 40)))
    assert (pair * worth[0], wave * worth[1]) == (pytest.approx(300), pytest.approx(8 * 40))
    assert cost.link_usd_per_year(grid, w, edge.prices, 9) == pytest.approx(2 * 300 / worth[0] + 9 * 40 / worth[1])
    assert [cost.link_capex_usd(w, edge.prices, n) for n in (0, 8, 9)] == [0, 300 + 8 * 40, 2 * 300 + 9 * 40]
