"""The fibre between sites: its edges, the shortest and the diverse routes over them, and what lighting them costs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any

from planner.instance.grid import Grid
from planner.instance.wan import FibreEdge, Wan
from planner.physics.site import wan as wide
from planner.physics.site.cost import annuity

Place = tuple[float, float]
Route = tuple[str, ...]  # ids of edges, in the order of travel


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A stretch of fibre that is lit as a whole; `cut`: one cut can take it out, which does not hold for a site's way to its node."""

    id: str
    a: str
    b: str
    route_km: float
    max_pairs: int
    pair_usd: float
    wavelength_usd: float
    cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fibre:
    """The fibre that some sites can use; `node` is where each site stands, reached by the edge `access` where that is elsewhere."""

    wan: Wan
    edges: dict[str, Edge]
    node: dict[str, str]
    access: dict[str, str]

    def km(self, route: Route) -> float:
        """Length of a route."""
        return math.fsum(self.edges[e].route_km for e in route)

    def rtt_ms(self, route: Route) -> float:
        """Round trip over a route."""
        return wide.rtt_ms(self.wan, self.km(route))

    def cuts(self, route: Route) -> frozenset[str]:
        """Edges of a route that one cut can take out."""
        return frozenset(e for e in route if self.edges[e].cut)

    def ways(self, site: str) -> Route:
        """Return the way of a site to its node: an edge or none."""
        return (self.access[site],) if site in self.access else ()


def fibre_of(wan: Wan, places: Mapping[str, Place]) -> Fibre:
    """Lay out the fibre for sites at some places: each stands at its own fibre node or the nearest; without a graph, every two are joined.

    The way from a site to a node elsewhere is a great circle times the route factor, and taken to enter by two diverse
    paths, so that no one cut takes it out.
    """
    nodes = {n.id: (n.latitude, n.longitude) for n in sorted(wan.fibre_nodes, key=lambda n: n.id)}
    given: Sequence[FibreEdge] = wan.fibre_edges
    if not wan.fibre_edges:
        nodes = {s: places[s] for s in sorted(places)}
        given = [FibreEdge(a=a, b=b) for a, b in combinations(nodes, 2)]
    edges = {x.name: _edge(wan, x, nodes[x.a], nodes[x.b]) for x in sorted(given, key=lambda x: x.name)}
    stands = {
        s: s if s in nodes else min(nodes, key=lambda n: (wide.great_circle_km(*places[s], *nodes[n]), n))
        for s in sorted(places)
        if nodes
    }
    ways = {
        s: _edge(wan, FibreEdge(id=f"{s} access", a=s, b=n), places[s], nodes[n], cut=False)
        for s, n in stands.items()
        if n != s
    }
    return Fibre(
        wan=wan, edges=edges | {w.id: w for w in ways.values()}, node=stands, access={s: w.id for s, w in ways.items()}
    )


def _edge(wan: Wan, x: FibreEdge, a: Place, b: Place, *, cut: bool = True) -> Edge:
    km = x.route_km or wide.great_circle_km(*a, *b) * wan.route_factor
    return Edge(
        id=x.name,
        a=x.a,
        b=x.b,
        route_km=km,
        max_pairs=x.max_fibre_pairs or wan.max_fibre_pairs,
        pair_usd=km * wan.fibre_usd_per_route_km if x.usd_per_pair is None else x.usd_per_pair,
        wavelength_usd=wan.wavelength_usd if x.wavelength_usd is None else x.wavelength_usd,
        cut=cut,
    )


def graph(fibre: Fibre) -> Any:
    """Return the cuttable edges as a networkx graph, each through a vertex of its own, so that parallel edges stay apart."""
    import networkx as nx

    g = nx.Graph()
    g.add_nodes_from(("node", n) for n in sorted(set(fibre.node.values())))
    for e in fibre.edges.values():
        if e.cut:
            g.add_edge(("node", e.a), ("edge", e.id), km=e.route_km / 2)
            g.add_edge(("edge", e.id), ("node", e.b), km=e.route_km / 2)
    return g


def routes(fibre: Fibre, g: Any, a: str, b: str, count: int) -> list[Route]:
    """List the `count` shortest routes between two sites, shortest first (Yen 1971), from each site's way to its node on."""
    return [_whole(fibre, a, b, path) for path in islice(_paths(g, fibre.node[a], fibre.node[b]), count)]


def _whole(fibre: Fibre, a: str, b: str, path: Sequence[tuple[str, str]]) -> Route:
    return (*fibre.ways(a), *(name for kind, name in path if kind == "edge"), *fibre.ways(b))


def _paths(g: Any, a: str, b: str) -> Iterator[Sequence[tuple[str, str]]]:
    import networkx as nx

    if a == b:
        yield [("node", a)]
    elif nx.has_path(g, ("node", a), ("node", b)):
        yield from nx.shortest_simple_paths(g, ("node", a), ("node", b), weight="km")


def diverse(fibre: Fibre, g: Any, a: str, b: str, count: int) -> list[tuple[Route, Route]]:
    """List pairs of routes that share no edge which can be cut: of the `count` shortest, and each with the shortest that avoids it.

    Where none of these is diverse, any two routes that are (a flow of two finds them if there are two).
    """
    import networkx as nx

    near = routes(fibre, g, a, b, count)
    found = [(p, q) for p in near for q in near if not fibre.cuts(p) & fibre.cuts(q)]
    for p in near:
        rest = g.copy()
        rest.remove_nodes_from([("edge", e) for e in fibre.cuts(p)])
        found += [(p, q) for q in routes(fibre, rest, a, b, 1)]
    ends = ("node", fibre.node[a]), ("node", fibre.node[b])
    if not found and near:
        two = (
            [_whole(fibre, a, b, path) for path in nx.edge_disjoint_paths(g, *ends, cutoff=2)]
            if nx.edge_connectivity(g, *ends) > 1
            else []
        )
        found = [(p, q) for p in two for q in two if p != q]
    return list(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far every two places are over the fibre, and which pairs no exchange can span."""

    km: dict[tuple[str, str], float]
    disconnected: frozenset[tuple[str, str]]


def reach(wan: Wan, places: Mapping[str, Place]) -> Reach:
    """Measure the shortest route between every two places; where no graph is given or none joins them, the great circle times the factor.

    Parted are two places without a route, and under protection two that one cut parts: then no form of exchange
    survives it.
    """
    pairs = list(combinations(sorted(places), 2))
    km = {(a, b): wide.great_circle_km(*places[a], *places[b]) * wan.route_factor for a, b in pairs}
    if not wan.fibre_edges:
        return Reach(km=km, disconnected=frozenset())
    import networkx as nx

    held = fibre_of(wan, places)
    g = graph(held)
    near = dict(nx.all_pairs_dijkstra_path_length(g, weight="km"))
    stands = {s: ("node", n) for s, n in held.node.items()}
    ways = {s: held.km(held.ways(s)) for s in places}
    km |= {(a, b): near[stands[a]][stands[b]] + ways[a] + ways[b] for a, b in pairs if stands[b] in near[stands[a]]}
    part = {
        v: i
        for i, whole in enumerate(_safe(g) if wan.protection == "one_cut" else nx.connected_components(g))
        for v in whole
    }
    return Reach(km=km, disconnected=frozenset((a, b) for a, b in pairs if part[stands[a]] != part[stands[b]]))


def _safe(g: Any) -> Iterator[set[Any]]:
    """Yield the parts of the graph that no one cut parts."""
    import networkx as nx

    rest = g.copy()
    rest.remove_edges_from(list(nx.bridges(g)))
    return iter(nx.connected_components(rest))


def capex_usd(edge: Edge, wan: Wan, waves: int) -> float:
    """Price of an edge's fibre pairs and of the equipment that lights its wavelengths."""
    return wide.fibre_pairs(wan, waves) * edge.pair_usd + waves * edge.wavelength_usd


def yearly_rates(edge: Edge, wan: Wan, grid: Grid) -> tuple[float, float]:
    """Yearly price of one fibre pair, over its life, and of one wavelength, over that of equipment."""
    rate = grid.prices.discount_rate
    return edge.pair_usd * annuity(rate, wan.fibre_life_years), edge.wavelength_usd * annuity(
        rate, grid.prices.it_life_years
    )


def usd_per_year(edge: Edge, wan: Wan, grid: Grid, waves: int) -> float:
    """Yearly price of an edge by its wavelengths."""
    pair, wave = yearly_rates(edge, wan, grid)
    return wide.fibre_pairs(wan, waves) * pair + waves * wave
