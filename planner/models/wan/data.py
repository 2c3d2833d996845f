"""The wide area's data, gathered once: the fibre, the form of the exchange, the demands, and the routes that each may take."""

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
class Option:
    """A route that a demand may take with the one that stands in for it, and the rates over both."""

    primary: Route
    backup: Route | None
    gbps: float
    backup_gbps: float

    def rate(self, edge: str, cut: str | None, cuts: frozenset[str]) -> float:
        """Rate on an edge while another is cut (None: none is); `cuts` are the edges of the primary that can be."""
        if cut not in cuts:
            return self.gbps if edge in self.primary else 0.0
        return self.backup_gbps if edge in (self.backup or ()) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One design of the wide area: everything the rules read."""

    grid: Grid
    wan: Wan
    request: WanRequest
    fibre: Fibre
    forms: tuple[Form, ...]
    form: Form | None
    demands: dict[str, Demand]
    options: dict[str, tuple[Option, ...]]
    nearest: dict[str, Route | None]

    @property
    def protected(self) -> bool:
        """Every demand survives one cut."""
        return self.wan.protection == "one_cut"

    def rtt_ms(self, a: str, b: str) -> float:
        """Round trip on the shortest route; infinite where there is none."""
        return rtt_of(self.fibre, self.nearest.get(f"{a},{b}") or self.nearest.get(f"{b},{a}"))

    def requested_gbps(self, key: str) -> float:
        """Rate of a demand on its shortest route; without any wait where no route does."""
        d = self.demands[key]
        rate = d.gbps(self.rtt_ms(d.a, d.b))
        return rate if math.isfinite(rate) else d.gbps(0.0)

    def most_waves(self, edge: Edge) -> int:
        """Wavelengths that an edge can be lit with."""
        return edge.most_pairs * self.wan.max_wavelengths_per_pair

    def cuts(self, key: str, option: int) -> frozenset[str]:
        """Edges of an option's primary route that one cut can take out, under protection."""
        return self.fibre.cuts(self.options[key][option].primary) if self.protected else frozenset()


def rtt_of(held: Fibre, route: Route | None) -> float:
    """Round trip over a route that may not be there."""
    return math.inf if route is None else held.rtt_ms(route)


def ask(instance: Instance, request: WanRequest) -> Question:
    """Gather the question for an instance with a grid."""
    links, grid = instance.wan or Wan(), instance.grid or Grid(balancing_authorities=(), nodes=())
    nodes = {n.id: n for n in grid.nodes}
    places = {s: (nodes[s].latitude, nodes[s].longitude) for s in request.sites}
    areas = {b.id: b.interconnection for b in grid.balancing_authorities}
    groups: dict[str, list[str]] = {}
    for s in request.exchanging:
        groups.setdefault(areas[nodes[s].balancing_authority], []).append(s)
    return _question(links, grid, request, places, groups)


def _question(
    links: Wan, grid: Grid, request: WanRequest, places: dict[str, fibre.Place], groups: dict[str, list[str]]
) -> Question:
    held = fibre.fibre_of(links, wan_demands.places_of(links, places))
    g = fibre.graph(held)
    nearest: dict[str, Route | None] = {}

    def rtt(a: str, b: str) -> float:
        a, b = min(a, b), max(a, b)
        if f"{a},{b}" not in nearest:
            nearest[f"{a},{b}"] = next(iter(fibre.routes(held, g, a, b, 1)), None)
        return rtt_of(held, nearest[f"{a},{b}"])

    offered = gradient_exchange.forms(groups, request.exchange.stage_bytes, rtt)
    form = wan_demands.chosen(links, offered, request.exchange.window_seconds, rtt)
    demands = [*wan_demands.sync_demands(links, form, request.exchange.window_seconds, rtt)]
    demands += wan_demands.traffic_demands(links, request.sites, held.node)
    for d in demands:
        rtt(d.a, d.b)
    return Question(
        grid=grid,
        wan=links,
        request=request,
        fibre=held,
        forms=offered,
        form=form,
        demands={d.key: d for d in demands},
        options={d.key: tuple(_options(links, grid, held, g, d)) for d in demands},
        nearest=nearest,
    )


def _options(links: Wan, grid: Grid, held: Fibre, g: object, d: Demand) -> Iterator[Option]:
    """Yield what a demand may take: pairs of diverse routes under protection, else each route that could be one of a pair too.

    The exchange keeps to the longest round trip that sites may have; a route on which waiting fills the window is none.
    """
    pairs = fibre.diverse(held, g, d.a, d.b, links.routes)
    limit = grid.rules.max_rtt_ms if d.priority == 0 and grid.rules.max_rtt_ms is not None else math.inf
    found: list[tuple[Route, Route | None]] = [*pairs]
    if links.protection != "one_cut":
        near = fibre.routes(held, g, d.a, d.b, links.routes)
        found = [(r, None) for r in dict.fromkeys([*near, *(r for pair in pairs for r in pair)])]
    for primary, backup in found:
        trips = [held.rtt_ms(r) for r in (primary, backup) if r is not None]
        rates = [d.gbps(t) for t in trips]
        if max(trips) <= limit * (1 + 1e-9) and math.isfinite(max(rates)):
            yield Option(primary=primary, backup=backup, gbps=rates[0], backup_gbps=rates[-1])
