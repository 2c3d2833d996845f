"""The fibre between sites: its edges, routes and prices, and the demands that it must carry."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any

from planner.instance.network import FibreEdge, Wan
from planner.physics import tick
from planner.physics.site import wan as wide
from planner.physics.site.wan import Form, Rtt, need_gbps

MANY = 256  # places, between all of which it takes long to measure
Place = tuple[float, float]
Route = tuple[str, ...]  # ids of edges, in the order of travel


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A stretch of fibre whose wavelengths run end to end; `cut`: one cut can take it out, unlike a site's access."""

    id: str
    a: str
    b: str
    route_km: float
    max_pairs: int
    pair_usd: float
    wavelength_usd: float
    cut: bool

    @property
    def prices(self) -> tuple[float, float]:
        """Return the prices of a fibre pair and of a wavelength on this stretch, in USD."""
        return self.pair_usd, self.wavelength_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFibre:
    """The fibre that some sites can use; `node` is the fibre node of each, reached by the edge `access`, if any."""

    wan: Wan
    edges: dict[str, Edge]
    node: dict[str, str]
    access: dict[str, str]

    def km(self, route: Route) -> float:
        """Compute the length of a fibre route, in km."""
        return math.fsum(self.edges[name].route_km for name in route)

    def rtt_ms(self, route: Route) -> float:
        """Compute the round trip over a fibre route, in ms."""
        return wide.rtt_ms(self.wan, self.km(route))

    def cuts(self, route: Route) -> frozenset[str]:
        """Return the edges of a fibre route that one cut can take out."""
        return frozenset(name for name in route if self.edges[name].cut)

    def access_route(self, site: str) -> Route:
        """Return the fibre route of a site to its fibre node: one access edge, or none."""
        return (self.access[site],) if site in self.access else ()


def fibre_of(wan: Wan, places: Mapping[str, Place]) -> SiteFibre:
    """Return the fibre that joins sites, each at its own fibre node or the nearest; without a graph, a full mesh."""
    # The access of a site to a node elsewhere is a great circle times the route factor, and taken to enter by two
    # diverse paths, so that no one cut takes it out.
    nodes = {node.id: (node.latitude, node.longitude) for node in sorted(wan.fibre_nodes, key=lambda node: node.id)}
    given: Sequence[FibreEdge] = wan.fibre_edges
    if not wan.fibre_edges:
        nodes = {name: places[name] for name in sorted(places)}
        given = [FibreEdge(a=one, b=other) for one, other in combinations(nodes, 2)]
    edges = {one.name: _edge(wan, one, nodes[one.a], nodes[one.b]) for one in sorted(given, key=lambda one: one.name)}
    node, access = {}, {}
    for name in sorted(places) if nodes else ():
        node[name] = name
        if name not in nodes:
            node[name] = min(nodes, key=lambda node: (wide.great_circle_km(*places[name], *nodes[node]), node))
            edge = FibreEdge(id=f"{name} access", a=name, b=node[name])
            access[name] = _edge(wan, edge, places[name], nodes[node[name]], cut=False)
    edges |= {edge.id: edge for edge in access.values()}
    return SiteFibre(wan=wan, edges=edges, node=node, access={name: edge.id for name, edge in access.items()})


def _edge(wan: Wan, edge: FibreEdge, start: Place, end: Place, *, cut: bool = True) -> Edge:
    km = edge.route_km or wide.great_circle_km(*start, *end) * wan.route_factor
    return Edge(
        id=edge.name,
        a=edge.a,
        b=edge.b,
        route_km=km,
        max_pairs=edge.max_fibre_pairs or wan.max_fibre_pairs,
        pair_usd=km * wan.fibre_usd_per_route_km if edge.usd_per_pair is None else edge.usd_per_pair,
        wavelength_usd=wan.wavelength_usd if edge.wavelength_usd is None else edge.wavelength_usd,
        cut=cut,
    )


def graph(fibre: SiteFibre) -> Any:
    """Return the fibre edges that may be cut as a graph, each through its own vertex, so parallel ones stay apart."""
    import networkx as nx

    network = nx.Graph()
    network.add_nodes_from(("node", node) for node in sorted(set(fibre.node.values())))
    for edge in fibre.edges.values():
        if edge.cut:
            network.add_edge(("node", edge.a), ("edge", edge.id), km=edge.route_km / 2)
            network.add_edge(("edge", edge.id), ("node", edge.b), km=edge.route_km / 2)
    return network


def routes(fibre: SiteFibre, network: Any, one: str, other: str, count: int) -> list[Route]:
    """Return the `count` shortest fibre routes between two sites with their access, shortest first (Yen 1971)."""
    import networkx as nx

    start, end = ("node", fibre.node[one]), ("node", fibre.node[other])
    paths: Iterable[Sequence[tuple[str, str]]] = ()
    if start == end:
        paths = ([start],)
    elif nx.has_path(network, start, end):
        paths = nx.shortest_simple_paths(network, start, end, weight="km")
    return [_route(fibre, one, other, path) for path in islice(paths, count)]


def _route(fibre: SiteFibre, start: str, end: str, path: Sequence[tuple[str, str]]) -> Route:
    return (*fibre.access_route(start), *(name for kind, name in path if kind == "edge"), *fibre.access_route(end))


def diverse(fibre: SiteFibre, network: Any, start: str, end: str, count: int) -> list[tuple[Route, Route]]:
    """Return pairs of the `count` shortest fibre routes without a shared edge that may be cut; else any such pair."""
    import networkx as nx

    near = routes(fibre, network, start, end, count)
    pairs = [(first, second) for first in near for second in near if not fibre.cuts(first) & fibre.cuts(second)]
    for first in near:
        rest = network.copy()
        rest.remove_nodes_from([("edge", edge) for edge in fibre.cuts(first)])
        pairs += [(first, second) for second in routes(fibre, rest, start, end, 1)]
    ends = ("node", fibre.node[start]), ("node", fibre.node[end])
    if not pairs and near and nx.edge_connectivity(network, *ends) > 1:
        two = [_route(fibre, start, end, path) for path in nx.edge_disjoint_paths(network, *ends, cutoff=2)]
        pairs = [(first, second) for first in two for second in two if first != second]
    return list(dict.fromkeys(pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far every two places are over the fibre in km, and which pairs no exchange can span."""

    km: dict[tuple[str, str], float]
    disconnected: frozenset[tuple[str, str]]


def reach(wan: Wan, places: Mapping[str, Place]) -> Reach:
    """Compute the fibre route in km between every two places; where none is, the great circle times the factor."""
    # Disconnected are two places without a route, and under protection two that one cut separates: no form of the
    # exchange survives that.
    km: dict[tuple[str, str], float] = {}
    ordered = sorted(places.items())
    for i, (one, at) in enumerate(ordered):
        if len(places) > MANY:
            tick()
        km |= {(one, other): wide.great_circle_km(*at, *to) * wan.route_factor for other, to in ordered[i + 1 :]}
    pairs = list(km)
    if not wan.fibre_edges:
        return Reach(km=km, disconnected=frozenset())
    import networkx as nx

    net = fibre_of(wan, places)
    network = graph(net)
    distance = dict(nx.all_pairs_dijkstra_path_length(network, weight="km"))
    node = {name: ("node", node) for name, node in net.node.items()}
    access = {name: net.km(net.access_route(name)) for name in places}
    for one, other in pairs:
        if node[other] in distance[node[one]]:
            km[one, other] = distance[node[one]][node[other]] + access[one] + access[other]
    if wan.protection == "one_cut":
        # Without its bridges, the graph falls into the components that no one cut separates.
        network.remove_edges_from(list(nx.bridges(network)))
    component = {vertex: i for i, vertices in enumerate(nx.connected_components(network)) for vertex in vertices}
    apart = frozenset((one, other) for one, other in pairs if component[node[one]] != component[node[other]])
    return Reach(km=km, disconnected=apart)


def link_prices(wan: Wan, ends: Mapping[str, Place]) -> tuple[float, float]:
    """Compute the USD of a fibre pair and of a wavelength between two places, on the cheapest route with protection."""
    (start, at), (other, to) = sorted(ends.items())
    flat = wide.great_circle_km(*at, *to) * wan.route_factor * wan.fibre_usd_per_route_km, wan.wavelength_usd
    if not wan.fibre_edges:
        return flat
    net = fibre_of(wan, ends)
    network = graph(net)
    if wan.protection == "one_cut":
        lit = [set(first) | set(second) for first, second in diverse(net, network, start, other, wan.routes)]
    else:
        lit = [set(route) for route in routes(net, network, start, other, wan.routes)]
    prices = []
    for edges in ([net.edges[name] for name in sorted(one)] for one in lit):
        prices.append((math.fsum(edge.pair_usd for edge in edges), math.fsum(edge.wavelength_usd for edge in edges)))
    return min(prices, key=lambda price: price[0] + wan.max_wavelengths_per_pair * price[1], default=flat)


SYNC = "sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A demand on fibre: bytes between two places, each way, in a window less round trips; priority 0 on one route."""

    name: str
    a: str
    b: str
    priority: int
    size_bytes: float
    window_seconds: float
    trips: float
    factor: float = 1.0

    @property
    def key(self) -> str:
        """Return the name of a fibre demand that tells it from others: `sync[a,b]`."""
        return f"{self.name}[{self.a},{self.b}]"

    def gbps(self, rtt_ms: float) -> float:
        """Compute the Gbps of a demand on a fibre route of a round trip; infinite where waiting fills the window."""
        wait = self.trips * rtt_ms / 1e3 if self.trips else 0.0
        return need_gbps(self.size_bytes, self.window_seconds, wait) * self.factor


def sync_demands(wan: Wan, form: Form | None, window_seconds: float, rtt_ms: Rtt) -> tuple[Demand, ...]:
    """Return a fibre demand for each link of the gradient exchange, headroom included, in its phase's window."""
    if form is None:
        return ()
    # Phases share the window at equal rates, or, where none fills it, in proportion to their waits.
    rate, waits = wide.form_need_gbps(form, wan, window_seconds, rtt_ms), list(wide.waits(form, wan, rtt_ms))
    parts = [window_seconds * (wait / sum(waits) if 0 < sum(waits) < math.inf else 1.0) for wait in waits]
    if math.isfinite(rate):
        parts = [8 * phase.link_bytes / rate / 1e9 + wait for phase, wait in zip(form.phases, waits, strict=True)]
    return tuple(
        Demand(
            name=SYNC,
            a=a,
            b=b,
            priority=0,
            size_bytes=phase.link_bytes,
            window_seconds=part,
            trips=wan.round_trips * phase.trips,
            factor=wan.headroom_factor,
        )
        for phase, part in zip(form.phases, parts, strict=True)
        for a, b in phase.links
    )


def traffic_demands(wan: Wan, sites: Sequence[str], known: Mapping[str, object]) -> tuple[Demand, ...]:
    """Return the fibre demands of traffic between known places; traffic of closed sites does not arise."""
    demands = []
    for traffic in wan.traffic:
        a, b = traffic.a, traffic.b
        pairs = combinations(sorted(sites), 2) if a is None or b is None else [(a, b)]
        demands += [
            Demand(
                name=traffic.name,
                a=one,
                b=other,
                priority=traffic.priority,
                size_bytes=traffic.bytes,
                # Spread over a period, or done by a deadline of which one round trip is waiting.
                window_seconds=traffic.period_seconds or traffic.deadline_seconds or math.nan,
                trips=0.0 if traffic.deadline_seconds is None else 1.0,
            )
            for one, other in pairs
            if one in known and other in known and one != other
        ]
    return tuple(demands)


def places_of(wan: Wan, sites: Mapping[str, Place]) -> dict[str, Place]:
    """Return the places that fibre demands can end at: the open sites, and fibre nodes that traffic names."""
    ends = {end for traffic in wan.traffic for end in (traffic.a, traffic.b)}
    named = wan.fibre_nodes if wan.fibre_edges else ()
    nodes = {node.id: (node.latitude, node.longitude) for node in named if node.id in ends}
    return {**nodes, **sites}


def choose_form(wan: Wan, offered: Sequence[Form], window_seconds: float, rtt_ms: Rtt) -> Form | None:
    """Return the form of exchange over fibre that the instance names or, if sites cannot take it, the lowest rate's."""
    named = [form for form in offered if form.name == wan.exchange] or offered
    return min(named, key=lambda form: wide.form_need_gbps(form, wan, window_seconds, rtt_ms), default=None)
