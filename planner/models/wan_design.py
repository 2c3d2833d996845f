"""The MILP of the wide area (WAN) between the sites: routes and wavelengths by fibre edge, and the plan's section.

Every demand is spread over options, each a route and under protection the diverse one that backs it up while an edge of
the first is cut. Wavelengths of an edge carry the largest load of any state, so spare ones are shared between cuts that
do not fall together (shared backup paths). Rates are in Gbps, money in M$.

First the gradient exchange, whole; then as much of the traffic as the fibre can carry, priority by priority; then the
least capital for that. Where all of it can be carried, one solve shows it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyomo.core as pyo

from planner.instance.grid import Grid
from planner.instance.instance import Instance
from planner.instance.network import Wan
from planner.models import Options
from planner.physics.site import wan, wan_exchange
from planner.physics.site.cost import link_capex_usd, link_usd_per_year
from planner.physics.site.wan import Demand, Edge, Route, SiteFibre
from planner.physics.site.wan_exchange import Form
from planner.plan.certificate import ON_TRUST, UNPRICED, WAN_FORMULATION
from planner.plan.plan_sections import LEAST_CAPITAL, ExchangeForm, WanDemand, WanEdge, WanPlan, WanRoute
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, Values, relative_gap
from planner.solvers.registry import second_proof
from planner.solvers.search_deadline import Deadline

Term = tuple[str, int, float]  # demand, option, rate on the edge
Shares = dict[tuple[str, int], float]
PROVEN_GAP = 1e-9  # relative; above what rounding leaves between the recomputed objective and the solver's bound
MIN_SHARE = 1e-7  # of a demand; less on a route is rounding
WHOLE_SHARE = 1 - 1e-6  # of a demand; more is all of it
PRIORITY_GAP = 1e-6  # of a priority's traffic: below it a step counts as proven
ROUNDING = 1e-7  # of a priority's traffic, given back so that rounding leaves room for the next solve


@dataclass(frozen=True, slots=True, kw_only=True)
class WanRequest:
    """A request for a WAN design: open sites to join, and those that train, with their exchange of gradients per step.

    One stage is exchanged at a time, each within the window that a step assumes: the backward pass of the next stage.
    """

    sites: tuple[str, ...]
    exchanging: tuple[str, ...]
    stage_bytes: float
    window_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOption:
    """An option of the WAN design's MILP: a route for a demand, with its backup, and the rates over both in Gbps."""

    primary: Route
    backup: Route | None
    gbps: float
    backup_gbps: float

    @property
    def edges(self) -> tuple[str, ...]:
        """Return the fibre edges of a route option in the WAN design's MILP, and of its backup."""
        return *self.primary, *(self.backup or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class WanData:
    """The data of a WAN design: everything that its MILP of routes and wavelengths reads."""

    grid: Grid
    wan: Wan
    request: WanRequest
    fibre: SiteFibre
    forms: tuple[Form, ...]
    form: Form | None
    demands: dict[str, Demand]
    options: dict[str, tuple[RouteOption, ...]]
    priced: bool  # whether the fibre costs anything
    unit: float  # dollars, or wavelengths times km where nothing is priced, of one unit of the model's cost

    def requested_gbps(self, key: str) -> float:
        """Return the Gbps that the WAN design requests for a demand on its shortest route; no wait if none is fast."""
        demand = self.demands[key]
        rate = demand.gbps(self.fibre.shortest_rtt_ms(demand.a, demand.b))
        return rate if math.isfinite(rate) else demand.gbps(0.0)

    def max_wavelengths(self, edge: Edge) -> int:
        """Return the upper bound of a fibre edge's wavelengths in the WAN design's MILP."""
        return edge.max_pairs * self.wan.max_wavelengths_per_pair


def gather(instance: Instance, request: WanRequest) -> WanData:
    """Gather the data of a WAN design for an instance with a grid."""
    links, grid = instance.wan or Wan(), instance.grid or Grid(balancing_authorities=(), nodes=())
    nodes = {node.id: node for node in grid.nodes}
    areas = {area.id: area.interconnection for area in grid.balancing_authorities}
    groups: dict[str, list[str]] = {}
    for site in request.exchanging:
        groups.setdefault(areas[nodes[site].balancing_authority], []).append(site)
    places = {site: (nodes[site].latitude, nodes[site].longitude) for site in request.sites}
    net = wan.fibre_of(links, wan.places_of(links, places))
    window, rtt_ms = request.window_seconds, net.shortest_rtt_ms
    forms = wan_exchange.forms(groups, request.stage_bytes, rtt_ms)
    form = wan_exchange.choose_form(links, forms, window, rtt_ms)
    demands = [*wan.sync_demands(links, form, window, rtt_ms)]
    demands += wan.traffic_demands(links, request.sites, net.node)
    priced = any(any(edge.prices) for edge in net.edges.values())
    options = dict[str, tuple[RouteOption, ...]]()
    for demand in demands:
        # Pairs of diverse routes under protection, else single routes. The exchange keeps to the longest round trip
        # that sites may have. A route on which waiting fills the window is none.
        pairs = net.diverse(demand.a, demand.b, links.routes)
        limit = grid.rules.max_rtt_ms if demand.priority == 0 and grid.rules.max_rtt_ms is not None else math.inf
        candidates: list[tuple[Route, Route | None]] = [*pairs]
        if links.protection != "one_cut":
            near = net.routes(demand.a, demand.b, links.routes)
            every = dict.fromkeys([*near, *(route for pair in pairs for route in pair)])
            candidates = [(route, None) for route in every]
        found = list[RouteOption]()
        for primary, backup in candidates:
            trips = [net.rtt_ms(route) for route in (primary, backup) if route is not None]
            rates = [demand.gbps(trip) for trip in trips]
            if max(trips) <= limit * (1 + 1e-9) and math.isfinite(max(rates)):
                found.append(RouteOption(primary=primary, backup=backup, gbps=rates[0], backup_gbps=rates[-1]))
        options[demand.key] = tuple(found)
    return WanData(
        grid=grid,
        wan=links,
        request=request,
        fibre=net,
        forms=forms,
        form=form,
        demands={demand.key: demand for demand in demands},
        options=options,
        priced=priced,
        unit=1e6 if priced else 1e3,
    )


def stated(data: WanData, *, elastic: bool = False) -> pyo.ConcreteModel:
    """Build the WAN's MILP in which the exchange and all traffic with a route are carried, at the least cost.

    The cost is capital in M$, or where nothing is priced wavelengths times 1000 km. `elastic` leaves the traffic out
    and lets edges exceed their wavelengths, by `missing` Gbps in all, which is then what it minimises.
    """
    model = pyo.ConcreteModel()
    choices = [(demand, i) for demand in data.demands for i in range(len(data.options[demand]))]
    used = {edge for d, i in choices for edge in data.options[d][i].edges}
    edges = {edge: data.fibre.edges[edge] for edge in sorted(used)}
    whole = pyo.NonNegativeIntegers
    binary = {demand: pyo.Reals if own.priority else pyo.Binary for demand, own in data.demands.items()}
    model.share = pyo.Var(choices, bounds=(0, 1), domain=lambda _, demand, *__: binary[demand])
    model.waves = pyo.Var(list(edges), domain=whole, bounds=lambda _, e: (0, data.max_wavelengths(edges[e])))
    model.pairs = pyo.Var(list(edges), domain=whole, bounds=lambda _, e: (0, edges[e].max_pairs))
    model.missing = pyo.Var(list(edges) if elastic else [], domain=pyo.NonNegativeReals)
    model.shares = pyo.Expression(
        list(data.demands), rule=lambda m, demand: sum(m.share[demand, i] for i in range(len(data.options[demand])))
    )
    # The gradient exchange is carried whole, each link of it on one route; of each other demand at most all.
    exchange, traffic = (
        [key for key, own in data.demands.items() if bool(own.priority) == later and data.options[key]]
        for later in (False, True)
    )
    model.carried = pyo.Constraint(exchange, rule=lambda m, demand: m.shares[demand] == 1)
    model.admitted = pyo.Constraint(traffic, rule=lambda m, demand: m.shares[demand] <= 1)
    # The load of each edge is within its wavelengths, in the normal state and while any other edge is cut.
    terms = loads(data)

    def capacity(model: Any, edge: str, state: str) -> Any:
        missing = [model.missing[edge]] if edge in model.missing else []
        load = sum(rate * model.share[demand, i] for demand, i, rate in terms[edge, state])
        return load <= sum(missing) + data.wan.wavelength_gbps * model.waves[edge]

    model.capacity = pyo.Constraint(list(terms), rule=capacity)
    # And these are within its leased fibre pairs.
    most = data.wan.max_wavelengths_per_pair
    model.fibre_pairs = pyo.Constraint(list(edges), rule=lambda m, edge: m.waves[edge] <= most * m.pairs[edge])
    prices = {name: edge.prices if data.priced else (0.0, edge.route_km) for name, edge in edges.items()}
    model.cost = pyo.Expression(
        expr=sum(
            pair / data.unit * model.pairs[edge] + wave / data.unit * model.waves[edge]
            for edge, (pair, wave) in prices.items()
        )
    )
    if not elastic:
        model.all = pyo.Constraint(traffic, rule=lambda m, demand: m.shares[demand] >= 1)
    for demand, i in model.share if elastic else ():
        if data.demands[demand].priority:
            model.share[demand, i].fix(0.0)
    model.goal = pyo.Objective(expr=sum(model.missing.values()) if elastic else model.cost)
    return model


def loads(data: WanData) -> dict[tuple[str, str], list[Term]]:
    """Return each fibre edge's load as terms of the WAN design's MILP, by (edge, edge that is cut, or none)."""
    # Under protection a cut of any edge of the primary route, and no other, sends the traffic over the backup.
    found, states, options = dict[tuple[str, str], list[Term]](), set[tuple[str, str]](), []
    for demand, own in data.options.items():
        for i, option in enumerate(own):
            cuts = data.fibre.cuts(option.primary) if data.wan.protection == "one_cut" else frozenset[str]()
            states |= {(edge, "") for edge in option.primary}
            states |= {(edge, cut) for cut in cuts for edge in option.backup or ()}
            options.append((demand, i, option, cuts))
    # The order of rows decides between designs of equal cost; the normal state is in it by that name, before an edge's.
    for edge, state in sorted(states, key=lambda row: (row[0], row[1] or "normal", row[1])):
        terms = found[edge, state] = list[Term]()
        for demand, i, option, cuts in options:
            route, rate = (option.backup, option.backup_gbps) if state in cuts else (option.primary, option.gbps)
            if rate and edge in (route or ()):
                terms.append((demand, i, rate))
    return found


def confirmed(instance: Instance, request: WanRequest, plan: WanPlan, seconds: float | None, *, seed: int = 0) -> str:
    """Return the mark of a WAN plan's bound: BOUNDED by the relaxation's duals, CONFIRMED by CP-SAT, in `seconds`."""
    # Else ON_TRUST, as for a design that leaves traffic out: its bound would need a proof that no more of it fits.
    if any(demand.missing_gbps for demand in plan.demands):
        return ON_TRUST
    data = gather(instance, request)
    model = stated(data)
    return second_proof(
        plan.certificate.bound, lambda: model, lambda: model, unit=data.unit, seconds=seconds, seed=seed
    )


def with_plan(
    data: WanData, model: Any, outcome: Outcome[Values], seed: int, deadline: Deadline, *, proven: bool
) -> Outcome[WanPlan]:
    """Return the outcome with the plan's WAN section, its objective recomputed from the physics."""
    of = outcome.solution.of if outcome.solution else float
    every = {key: of(variable) for key, variable in model.share.items()}
    shares: Shares = {key: min(share, 1.0) for key, share in every.items() if share > MIN_SHARE}
    edges = tuple(_edges(data, shares))
    full = [edge.id for edge in edges if edge.wavelengths == data.max_wavelengths(data.fibre.edges[edge.id])]
    capital = math.fsum(link_capex_usd(data.wan, data.fibre.edges[edge.id].prices, edge.wavelengths) for edge in edges)
    value = capital if data.priced else sum(edge.route_km * edge.wavelengths for edge in edges)
    bound = None if outcome.bound is None else min(outcome.bound * data.unit, value)
    gap = relative_gap(value, bound)
    result = replace(
        outcome.with_solution(shares),
        stop=Stop.PROVED if proven and gap is not None and gap <= PROVEN_GAP else Stop.LIMIT,
        objective=value,
        bound=bound,
        seconds=deadline.elapsed,
    )
    request, rtt_ms = data.request, data.fibre.shortest_rtt_ms
    size, window = request.stage_bytes, request.window_seconds
    needs = {form: wan_exchange.form_need_gbps(form, data.wan, window, rtt_ms) for form in data.forms}
    rate, forms = needs[data.form] if data.form else math.inf, list[ExchangeForm]()
    for form, need in needs.items():
        seconds = wan_exchange.seconds(form, data.wan, rate, rtt_ms) if math.isfinite(rate) else None
        link_gbps = need if math.isfinite(need) else None
        fields = {"name": form.name, "order": form.order, "link_gbps": link_gbps, "seconds": seconds}
        forms.append(ExchangeForm.model_validate(fields))
    certificate = result.certificate(
        formulation=WAN_FORMULATION,
        minimizes=LEAST_CAPITAL if data.priced else UNPRICED,
        seed=seed,
        given=f"sites {', '.join(request.sites)}; {size:.6g} bytes a stage within {window:.6g} s",
        space={
            "demands": len(data.demands),
            "edges": len(data.fibre.edges),
            "routes": data.wan.routes,
            "options": sum(len(options) for options in data.options.values()),
        },
        binding=tuple(f"fibre_pairs[{edge}]" for edge in full),
        checked=ON_TRUST,
    )
    plan = WanPlan(
        exchange=data.form.name if data.form else None,
        window_seconds=window,
        forms=tuple(forms),
        protection="one_cut" if data.wan.protection == "one_cut" else "none",
        demands=tuple(_demand(data, demand, shares, full) for demand in data.demands),
        edges=edges,
        capex_usd=capital,
        certificate=certificate,
    )
    return replace(result.with_solution(plan), stop=outcome.stop if proven else Stop.LIMIT, detail="")


def _edges(data: WanData, shares: Shares) -> Iterator[WanEdge]:
    peak: dict[str, float] = {}
    for (name, _), terms in loads(data).items():
        load = math.fsum(rate * shares.get((demand, i), 0.0) for demand, i, rate in terms)
        peak[name] = max(peak.get(name, 0.0), load)
    for name, gbps in sorted(peak.items()):
        edge = data.fibre.edges[name]
        waves = min(wan.wavelengths(data.wan, gbps * (1 - 1e-9)), data.max_wavelengths(edge))
        if waves:
            yield WanEdge(
                id=name,
                a=edge.a,
                b=edge.b,
                route_km=edge.route_km,
                peak_gbps=gbps,
                wavelengths=waves,
                fibre_pairs=wan.fibre_pairs(data.wan, waves),
                capacity_gbps=waves * data.wan.wavelength_gbps,
                usd_per_year=link_usd_per_year(data.grid, data.wan, edge.prices, waves),
            )


def _demand(data: WanData, key: str, shares: Shares, full: list[str]) -> WanDemand:
    """Return a plan's WAN demand with its routes; where some is left, the `full` edges that could have carried it."""
    demand, requested, net, options = data.demands[key], data.requested_gbps(key), data.fibre, data.options[key]
    routes = tuple(
        WanRoute(
            share=share,
            edges=option.primary,
            route_km=net.km(option.primary),
            rtt_ms=net.rtt_ms(option.primary),
            gbps=share * option.gbps,
            backup_edges=option.backup,
            backup_rtt_ms=None if option.backup is None else net.rtt_ms(option.backup),
            backup_gbps=None if option.backup is None else share * option.backup_gbps,
        )
        for i, option in enumerate(options)
        if (share := shares.get((key, i), 0.0))
    )
    share = math.fsum(route.share for route in routes)
    share = 1.0 if share > WHOLE_SHARE else share
    used = {edge for option in options for edge in option.edges}
    return WanDemand(
        name=demand.name,
        a=demand.a,
        b=demand.b,
        priority=demand.priority,
        requested_gbps=requested,
        admitted_gbps=requested * share,
        missing_gbps=requested * (1 - share),
        saturated_edges=tuple(sorted(used.intersection(full))) if share < 1 else (),
        routes=routes,
    )


def solve(instance: Instance, request: WanRequest, options: Options) -> Outcome[WanPlan]:
    """Return the WAN plan of least capital; where the fibre cannot carry the exchange, `detail` names the shortfall."""
    deadline = Deadline(options.time_limit)
    data = gather(instance, request)
    without_route = [key for key, demand in data.demands.items() if not demand.priority and not data.options[key]]
    if without_route:
        detail = "; ".join(_no_route(data, demand) for demand in without_route)
        return Outcome(stop=Stop.PROVED, infeasible=True, detail=detail, seconds=deadline.elapsed)
    model, proven = stated(data), True
    outcome = _run(model, options, deadline)
    if outcome.infeasible and len(model.admitted):
        model.all.deactivate()
        outcome, proven = _by_priority(model, data, options, deadline)
    if outcome.infeasible:
        # The Gbps missing over fibre edges for the exchange alone, at the least: `detail` names the edges and rates.
        model = stated(data, elastic=True)
        outcome, parts = _run(model, options, deadline), []
        if outcome.solution is not None:
            of = outcome.solution.of
            used = [(key, data.options[key][i]) for key, i in model.share if of(model.share[key, i]) > 0.5]
            for edge in sorted(model.missing):
                if (missing := of(model.missing[edge])) > 1e-6:
                    users = ", ".join(demand for demand, option in used if edge in option.edges)
                    pairs = data.fibre.edges[edge].max_pairs
                    parts.append(f"{edge}: {missing:,.6g} Gbps missing beyond its {pairs} fibre pair(s), for {users}")
            outcome = Outcome(stop=Stop.PROVED, infeasible=True, detail="; ".join(parts), solver=outcome.solver)
    if outcome.solution is None:
        return replace(outcome.with_solution(None), seconds=deadline.elapsed)
    return with_plan(data, model, outcome, options.seed, deadline, proven=proven)


def _run(model: Any, options: Options, deadline: Deadline) -> Outcome[Values]:
    limit, seed, threads = deadline.limit, options.seed, options.threads
    return highs.run(model, time_limit=limit, gap=options.gap, absolute_gap=0.0, seed=seed, threads=threads)


def _by_priority(model: Any, data: WanData, options: Options, deadline: Deadline) -> tuple[Outcome[Values], bool]:
    """Maximise the WAN's Gbps of each priority in turn, then minimise cost; also return whether each step is proven."""
    traffic, proven = list(model.admitted), True
    model.admitted_before = pyo.ConstraintList()
    for level in sorted({data.demands[demand].priority for demand in traffic}):
        rates = {demand: data.requested_gbps(demand) for demand in traffic if data.demands[demand].priority == level}
        total = max(sum(rates.values()), 1e-12)
        admitted = sum(rate / total * model.shares[demand] for demand, rate in rates.items())
        model.goal.set_value(-admitted)
        outcome = _run(model, options, deadline)
        if outcome.objective is None:
            return outcome, False
        proven &= (relative_gap(outcome.objective, outcome.bound) or 0.0) <= PRIORITY_GAP
        model.admitted_before.add(admitted >= -outcome.objective - ROUNDING)
    model.goal.set_value(model.cost)
    return _run(model, options, deadline), proven


def _no_route(data: WanData, demand: str) -> str:
    wanted = data.demands[demand]
    rtt = data.fibre.shortest_rtt_ms(wanted.a, wanted.b)
    limit = data.grid.rules.max_rtt_ms
    if math.isinf(rtt):
        return f"{demand}: no fibre route"
    if wanted.trips * rtt / 1e3 >= wanted.window_seconds:
        window = f"the window of {wanted.window_seconds * 1e3:,.1f} ms"
        return f"{demand}: {wanted.trips:g} round trips of {rtt:,.1f} ms fill {window}"
    if limit is not None and rtt > limit:
        return f"{demand}: {rtt:,.1f} ms round trip on the shortest route > {limit:,.1f} ms"
    pair = "no two routes that share no edge, both within the window and the longest round trip"
    return f"{demand}: {pair}, {data.requested_gbps(demand):,.6g} Gbps at stake"
