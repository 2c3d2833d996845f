"""The wide area between sites: distance, wavelengths, the gradient exchange, and the fibre that carries demands."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, islice
from typing import Any

from planner.instance.consistency import SYNC
from planner.instance.network import FibreEdge, Wan
from planner.physics import tick
from planner.physics.site.wan_exchange import Form, Pair, Rtt, form_need_gbps, need_gbps, waits
from planner.plan.plan_sections import Link, WanPlan

EARTH_RADIUS_KM = 6371.0088  # IUGG mean radius R1


def great_circle_km(latitude_a: float, longitude_a: float, latitude_b: float, longitude_b: float) -> float:
    """Compute the great-circle distance in km of a WAN link between sites (haversine formula); angles in degrees."""
    a, b = math.radians(latitude_a), math.radians(latitude_b)
    half = (
        math.sin((b - a) / 2) ** 2
        + math.cos(a) * math.cos(b) * math.sin(math.radians(longitude_b - longitude_a) / 2) ** 2
    )
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(half))


def rtt_ms(wan: Wan, route_km: float) -> float:
    """Compute the WAN's round trip in ms over a fibre route: 0.98 ms per 100 km at a group index of 1.47."""
    return route_km * wan.rtt_ms_per_100_route_km / 100


def wavelengths(wan: Wan, need_gbps: float) -> int:
    """Count the WAN wavelengths that carry a rate in Gbps."""
    return math.ceil(need_gbps / wan.wavelength_gbps - 1e-9)


def fibre_pairs(wan: Wan, count: Any) -> Any:
    """Count the fibre pairs of a WAN link of `count` wavelengths, a whole number or an array of them."""
    return -(-count // wan.max_wavelengths_per_pair)


def wan_gbps(wan: Wan, links: Iterable[Link], design: WanPlan | None, site: str) -> float:
    """Compute the Gb/s, each way, of the wavelengths at a site's WAN gateway: as designed, else by its links."""
    # By the design the sum over routes that end there, each at the larger of its rate and its backup's, in whole
    # wavelengths; traffic that only passes by is not counted.
    if design is None:
        return math.fsum(link.capacity_gbps for link in links if site in (link.a, link.b))
    ending = (demand for demand in design.demands if site in (demand.a, demand.b))
    rates = (max(route.gbps, route.backup_gbps or 0.0) for demand in ending for route in demand.routes)
    return wavelengths(wan, math.fsum(rates)) * wan.wavelength_gbps


def wan_ports(gbps: float, networks: int, port_gbps: float) -> int:
    """Count the WAN gateway's ports in each of `networks` networks for a site's rate: ceil(its rate / a port's)."""
    return math.ceil(gbps / networks / port_gbps * (1 - 1e-12))


MANY = 256  # places, between all of which it takes long to measure
Place = tuple[float, float]
Route = tuple[str, ...]  # ids of edges, in the order of travel


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A stretch of WAN fibre whose wavelengths run end to end; `cut`: one cut can take it out, unlike an access."""

    id: str
    a: str
    b: str
    route_km: float
    max_pairs: int
    prices: tuple[float, float]  # of a fibre pair and of a wavelength, in USD
    cut: bool


@dataclass(frozen=True, kw_only=True)
class SiteFibre:
    """The WAN's fibre for some sites; `node` is the fibre node of each, reached by `access`: one edge, or none."""

    wan: Wan
    edges: dict[str, Edge]
    node: dict[str, str]
    access: dict[str, Route]
    # Of the shortest routes between places, once worked out.
    trips_ms: dict[Pair, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def km(self, route: Route) -> float:
        """Compute the length of a WAN fibre route, in km."""
        return math.fsum(self.edges[name].route_km for name in route)

    def rtt_ms(self, route: Route) -> float:
        """Compute the round trip over a WAN fibre route, in ms."""
        return rtt_ms(self.wan, self.km(route))

    def cuts(self, route: Route) -> frozenset[str]:
        """Return the edges of a WAN fibre route that one cut can take out."""
        return frozenset(name for name in route if self.edges[name].cut)

    @cached_property
    def graph(self) -> Any:
        """Return the WAN's fibre edges that may be cut as a graph; each has its own vertex, so parallels differ."""
        import networkx as nx

        network = nx.Graph()
        network.add_nodes_from(("node", node) for node in sorted(set(self.node.values())))
        for edge in self.edges.values():
            if edge.cut:
                network.add_edge(("node", edge.a), ("edge", edge.id), km=edge.route_km / 2)
                network.add_edge(("edge", edge.id), ("node", edge.b), km=edge.route_km / 2)
        return network

    def routes(self, one: str, other: str, count: int, cut: Collection[str] = ()) -> list[Route]:
        """Compute the `count` shortest WAN fibre routes of two sites without `cut` edges, with access (Yen 1971)."""
        import networkx as nx

        network, start, end = self.graph, ("node", self.node[one]), ("node", self.node[other])
        if cut:
            network = network.copy()
            network.remove_nodes_from([("edge", name) for name in cut])
        paths: Iterable[Sequence[tuple[str, str]]] = ()
        if start == end:
            paths = ([start],)
        elif nx.has_path(network, start, end):
            paths = nx.shortest_simple_paths(network, start, end, weight="km")
        return [self._along(one, other, path) for path in islice(paths, count)]

    def _along(self, start: str, end: str, path: Sequence[tuple[str, str]]) -> Route:
        return (*self.access[start], *(name for kind, name in path if kind == "edge"), *self.access[end])

    def diverse(self, start: str, end: str, count: int) -> list[tuple[Route, Route]]:
        """Compute pairs of the `count` shortest WAN fibre routes that share no edge that may be cut; else any pair."""
        import networkx as nx

        near = self.routes(start, end, count)
        pairs = [(first, second) for first in near for second in near if not self.cuts(first) & self.cuts(second)]
        pairs += [(first, second) for first in near for second in self.routes(start, end, 1, self.cuts(first))]
        ends = ("node", self.node[start]), ("node", self.node[end])
        if not pairs and near and nx.edge_connectivity(self.graph, *ends) > 1:
            two = [self._along(start, end, path) for path in nx.edge_disjoint_paths(self.graph, *ends, cutoff=2)]
            pairs = [(first, second) for first in two for second in two if first != second]
        return list(dict.fromkeys(pairs))

    def shortest_rtt_ms(self, one: str, other: str) -> float:
        """Compute the round trip over the shortest WAN fibre route of two places; infinite without a route."""
        ends = min(one, other), max(one, other)
        if ends not in self.trips_ms:
            self.trips_ms[ends] = min(map(self.rtt_ms, self.routes(*ends, 1)), default=math.inf)
        return self.trips_ms[ends]


def fibre_of(wan: Wan, places: Mapping[str, Place]) -> SiteFibre:
    """Return the WAN's fibre that joins sites, each at its own node or the nearest; without a graph, a full mesh."""
    # The access of a site to a node elsewhere is a great circle times the route factor, and taken to enter by two
    # diverse paths, so that no one cut takes it out.
    nodes = {node.id: (node.latitude, node.longitude) for node in sorted(wan.fibre_nodes, key=lambda node: node.id)}
    given: Sequence[FibreEdge] = wan.fibre_edges
    if not wan.fibre_edges:
        nodes = {name: places[name] for name in sorted(places)}
        given = [FibreEdge(a=one, b=other) for one, other in combinations(nodes, 2)]
    edges = {one.name: _edge(wan, one, nodes[one.a], nodes[one.b]) for one in sorted(given, key=lambda one: one.name)}
    node, access = {}, dict[str, Route]()
    for name in sorted(places) if nodes else ():
        node[name], access[name] = name, ()
        if name not in nodes:
            node[name] = min(nodes, key=lambda node: (great_circle_km(*places[name], *nodes[node]), node))
            edge = FibreEdge(id=f"{name} access", a=name, b=node[name])
            edges[edge.name], access[name] = _edge(wan, edge, places[name], nodes[node[name]], cut=False), (edge.name,)
    return SiteFibre(wan=wan, edges=edges, node=node, access=access)


def _edge(wan: Wan, edge: FibreEdge, start: Place, end: Place, *, cut: bool = True) -> Edge:
    km = edge.route_km or great_circle_km(*start, *end) * wan.route_factor
    pair_usd = km * wan.fibre_usd_per_route_km if edge.usd_per_pair is None else edge.usd_per_pair
    wavelength_usd = wan.wavelength_usd if edge.wavelength_usd is None else edge.wavelength_usd
    return Edge(
        id=edge.name,
        a=edge.a,
        b=edge.b,
        route_km=km,
        max_pairs=edge.max_fibre_pairs or wan.max_fibre_pairs,
        prices=(pair_usd, wavelength_usd),
        cut=cut,
    )


def reach(wan: Wan, places: Mapping[str, Place]) -> tuple[dict[Pair, float], frozenset[Pair]]:
    """Compute the WAN's fibre route in km between every two places, and the pairs that no exchange can span.

    Where no route is, the length is the great circle times the factor. Disconnected are two places without a route, and
    under protection two that one cut separates: no form of the exchange survives that.
    """
    km: dict[Pair, float] = {}
    ordered = sorted(places.items())
    for i, (one, at) in enumerate(ordered):
        if len(places) > MANY:
            tick()
        km |= {(one, other): great_circle_km(*at, *to) * wan.route_factor for other, to in ordered[i + 1 :]}
    pairs = list(km)
    if not wan.fibre_edges:
        return km, frozenset()
    import networkx as nx

    net = fibre_of(wan, places)
    network = net.graph.copy()
    distance = dict(nx.all_pairs_dijkstra_path_length(network, weight="km"))
    node = {name: ("node", node) for name, node in net.node.items()}
    access = {name: net.km(net.access[name]) for name in places}
    for one, other in pairs:
        if node[other] in distance[node[one]]:
            km[one, other] = distance[node[one]][node[other]] + access[one] + access[other]
    if wan.protection == "one_cut":
        # Without its bridges, the graph falls into the components that no one cut separates.
        network.remove_edges_from(list(nx.bridges(network)))
    component = {vertex: i for i, vertices in enumerate(nx.connected_components(network)) for vertex in vertices}
    return km, frozenset((one, other) for one, other in pairs if component[node[one]] != component[node[other]])


def link_prices(wan: Wan, ends: Mapping[str, Place]) -> tuple[float, float]:
    """Compute the USD of a WAN fibre pair and wavelength between two places, on the cheapest route with protection."""
    (start, at), (other, to) = sorted(ends.items())
    flat = great_circle_km(*at, *to) * wan.route_factor * wan.fibre_usd_per_route_km, wan.wavelength_usd
    if not wan.fibre_edges:
        return flat
    net = fibre_of(wan, ends)
    if wan.protection == "one_cut":
        lit = [{*first, *second} for first, second in net.diverse(start, other, wan.routes)]
    else:
        lit = [{*route} for route in net.routes(start, other, wan.routes)]
    prices = []
    for own in ([net.edges[name].prices for name in sorted(one)] for one in lit):
        prices.append((math.fsum(pair_usd for pair_usd, _ in own), math.fsum(wavelength for _, wavelength in own)))
    return min(prices, key=lambda price: price[0] + wan.max_wavelengths_per_pair * price[1], default=flat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A demand on the WAN: bytes between two places, each way, in a window less round trips; priority 0: one route."""

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
        """Return the name of a WAN demand that tells it from others: `sync[a,b]`."""
        return f"{self.name}[{self.a},{self.b}]"

    def gbps(self, rtt_ms: float) -> float:
        """Compute the Gbps of a WAN demand on a route of a round trip; infinite where waiting fills the window."""
        wait = self.trips * rtt_ms / 1e3 if self.trips else 0.0
        return need_gbps(self.size_bytes, self.window_seconds, wait) * self.factor


def sync_demands(wan: Wan, form: Form | None, window_seconds: float, rtt_ms: Rtt) -> tuple[Demand, ...]:
    """Compute the WAN demand of each link of the gradient exchange, headroom included, in its phase's window."""
    if form is None:
        return ()
    # Phases share the window at equal rates, or, where none fills it, in proportion to their waits.
    rate, waiting = form_need_gbps(form, wan, window_seconds, rtt_ms), list(waits(form, wan, rtt_ms))
    parts = [window_seconds * (wait / sum(waiting) if 0 < sum(waiting) < math.inf else 1.0) for wait in waiting]
    if math.isfinite(rate):
        parts = [8 * phase.link_bytes / rate / 1e9 + wait for phase, wait in zip(form.phases, waiting, strict=True)]
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
    """Compute the WAN demands of traffic between known places; traffic of closed sites does not arise."""
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
    """Return the places where WAN demands can end: the open sites, and fibre nodes that traffic names."""
    ends = {end for traffic in wan.traffic for end in (traffic.a, traffic.b)}
    named = wan.fibre_nodes if wan.fibre_edges else ()
    nodes = {node.id: (node.latitude, node.longitude) for node in named if node.id in ends}
    return {**nodes, **sites}
