"""The sets and parameters of the wide area: the fibre, the form of the exchange, the demands and their routes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from planner.instance.grid import Grid
from planner.instance.instance import Instance
from planner.instance.wan import Wan
from planner.models.requests import WanRequest
from planner.physics.site import fibre, gradient_exchange, wan_demands
from planner.physics.site.fibre import Edge, Fibre, Route
from planner.physics.site.gradient_exchange import Form
from planner.physics.site.wan_demands import Demand


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOption:
    """A route that a demand may take with its backup, and the rates over both."""

    primary: Route
    backup: Route | None
    gbps: float
    backup_gbps: float

    def rate(self, edge: str, cut: str | None, cuts: frozenset[str]) -> float:
        """Return the rate on an edge while another is cut (None: none); `cuts` are the primary's cuttable edges."""
        if cut not in cuts:
            return self.gbps if edge in self.primary else 0.0
        return self.backup_gbps if edge in (self.backup or ()) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WanData:
    """Everything that the rules of one design of the wide area read."""

    grid: Grid
    wan: Wan
    request: WanRequest
    fibre: Fibre
    forms: tuple[Form, ...]
    form: Form | None
    demands: dict[str, Demand]
    options: dict[str, tuple[RouteOption, ...]]
    shortest: dict[str, Route | None]

    @property
    def protected(self) -> bool:
        """Whether every demand must survive one cut."""
        return self.wan.protection == "one_cut"

    def rtt_ms(self, a: str, b: str) -> float:
        """Return the round trip on the shortest route; infinite where there is none."""
        return rtt_of(self.fibre, self.shortest.get(f"{a},{b}") or self.shortest.get(f"{b},{a}"))

    def requested_gbps(self, key: str) -> float:
        """Return the rate of a demand on its shortest route; without any wait where no route does."""
        d = self.demands[key]
        rate = d.gbps(self.rtt_ms(d.a, d.b))
        return rate if math.isfinite(rate) else d.gbps(0.0)

    def max_wavelengths(self, edge: Edge) -> int:
        """Return the most wavelengths that an edge can be lit with."""
        return edge.max_pairs * self.wan.max_wavelengths_per_pair

    def cuts(self, key: str, option: int) -> frozenset[str]:
        """Return the edges of an option's primary route that one cut can take out, under protection."""
        return self.fibre.cuts(self.options[key][option].primary) if self.protected else frozenset()


def rtt_of(net: Fibre, route: Route | None) -> float:
    """Return the round trip over a route; infinite without one."""
    return math.inf if route is None else net.rtt_ms(route)


def gather(instance: Instance, request: WanRequest) -> WanData:
    """Gather the data of a design for an instance with a grid."""
    links, grid = instance.wan or Wan(), instance.grid or Grid(balancing_authorities=(), nodes=())
    nodes = {n.id: n for n in grid.nodes}
    areas = {b.id: b.interconnection for b in grid.balancing_authorities}
    groups: dict[str, list[str]] = {}
    for s in request.exchanging:
        groups.setdefault(areas[nodes[s].balancing_authority], []).append(s)
    places = {s: (nodes[s].latitude, nodes[s].longitude) for s in request.sites}
    net = fibre.fibre_of(links, wan_demands.places_of(links, places))
    graph = fibre.graph(net)
    shortest: dict[str, Route | None] = {}

    def rtt(a: str, b: str) -> float:
        a, b = min(a, b), max(a, b)
        if f"{a},{b}" not in shortest:
            shortest[f"{a},{b}"] = next(iter(fibre.routes(net, graph, a, b, 1)), None)
        return rtt_of(net, shortest[f"{a},{b}"])

    window = request.exchange.window_seconds
    forms = gradient_exchange.forms(groups, request.exchange.stage_bytes, rtt)
    form = wan_demands.choose_form(links, forms, window, rtt)
    demands = [*wan_demands.sync_demands(links, form, window, rtt)]
    demands += wan_demands.traffic_demands(links, request.sites, net.node)
    for d in demands:
        rtt(d.a, d.b)
    return WanData(
        grid=grid,
        wan=links,
        request=request,
        fibre=net,
        forms=forms,
        form=form,
        demands={d.key: d for d in demands},
        options={d.key: tuple(_options(links, grid, net, graph, d)) for d in demands},
        shortest=shortest,
    )


def _options(links: Wan, grid: Grid, net: Fibre, graph: object, d: Demand) -> Iterator[RouteOption]:
    """Yield the options of a demand: pairs of diverse routes under protection, else single routes.

    The exchange keeps to the longest round trip that sites may have. A route on which waiting fills the window is none.
    """
    pairs = fibre.diverse(net, graph, d.a, d.b, links.routes)
    limit = grid.rules.max_rtt_ms if d.priority == 0 and grid.rules.max_rtt_ms is not None else math.inf
    candidates: list[tuple[Route, Route | None]] = [*pairs]
    if links.protection != "one_cut":
        near = fibre.routes(net, graph, d.a, d.b, links.routes)
        candidates = [(r, None) for r in dict.fromkeys([*near, *(r for pair in pairs for r in pair)])]
    for primary, backup in candidates:
        trips = [net.rtt_ms(r) for r in (primary, backup) if r is not None]
        rates = [d.gbps(t) for t in trips]
        if max(trips) <= limit * (1 + 1e-9) and math.isfinite(max(rates)):
            yield RouteOption(primary=primary, backup=backup, gbps=rates[0], backup_gbps=rates[-1])
