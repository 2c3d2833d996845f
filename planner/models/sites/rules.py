"""The rules of the site split as rows of a Pyomo MILP: one function per rule, named as the rule.

Units of the rows are MW, M$, racks and 1000 m², so that coefficients stay within a few decades of one. Every rule can be
left out by name, which is how a conflict is found; the power balance is a law and always stays.
"""

from collections.abc import Callable, Collection
from typing import Any

import pyomo.environ as pyo

from planner.models.sites import wan_links
from planner.models.sites.bounds import least_at, most_at, most_modules, site_musd
from planner.models.sites.data import Question
from planner.models.sites.grid import lazy_rows, power_flow
from planner.models.sites.scenarios import expected_musd, scenarios, state
from planner.models.sites.soft_rules import label, penalty_musd, soften
from planner.physics.site import cost, power
from planner.physics.site.grid import largest_circuit_mw, normal_share

__all__ = ["RULES", "build", "label", "yearly_musd"]


def build(
    q: Question, *, without: Collection[str] = (), loose: Collection[str] = (), sites: int | None = None
) -> pyo.ConcreteModel:
    """State the question without the named rules; `sites` fixes the number of open sites. It has no objective yet.

    Rules in `loose` act through their own rows alone: no bound knows of them, so that their limits can be moved or priced.
    """
    m = pyo.ConcreteModel()
    bounds = frozenset(without) | frozenset(loose)
    total = most_modules(q, bounds)
    _variables(m, q, bounds, sites)
    _balance(m, q)
    for name, rule in RULES.items():
        if name not in without:
            rule(m, q)
    soften(m, q)
    for name, year in scenarios(q).items():
        block = state(m, year, name, total)
        _power(block, year, bounds, total * q.module_mw)
        _balance(block, year)
        for rule_name in ("headroom", "generation", "rating", "security"):
            if rule_name not in without:
                RULES[rule_name](block, year)
    lazy_rows.state_lazily(m, q, without, load_mw=total * q.module_mw)
    if sites is not None:
        m.exact_sites = pyo.Constraint(expr=sum(m.open.values()) == sites)
    return m


def _variables(m: Any, q: Question, without: frozenset[str], exact: int | None) -> None:
    """Create the decisions, and tie modules to open sites: an open site holds one module at least."""
    total, least = most_modules(q, without), least_at(q, without, exact)
    load = total * q.module_mw
    sites = list(q.candidates)
    m.open = pyo.Var(sites, domain=pyo.Binary)
    m.modules = pyo.Var(sites, domain=pyo.NonNegativeIntegers, bounds=(0, total))
    m.held = pyo.Constraint(sites, rule=lambda m, s: m.modules[s] <= most_at(q, s, total, without) * m.open[s])
    m.used = pyo.Constraint(sites, rule=lambda m, s: m.modules[s] >= least * m.open[s])
    new = [c.id for c in q.corridors.values() if c.new]
    m.circuits = pyo.Var(new, domain=pyo.NonNegativeIntegers, bounds=lambda _, k: (0, q.corridors[k].circuits))
    upgrades = {s: n.upgrade.max_steps for s, n in q.candidates.items() if n.upgrade}
    m.steps = pyo.Var(list(upgrades), domain=pyo.NonNegativeIntegers, bounds=lambda _, s: (0, upgrades[s]))
    if q.system is not None:
        power_flow.stand(m, q.system)
    _power(m, q, without, load)
    wan_links.variables(m, q, without, exact)


def _power(m: Any, q: Question, without: frozenset[str], load: float) -> None:
    """Create what plants feed in and corridors carry."""
    transport = q.grid.rules.grid_model == "transport"
    plants = list(q.graph) if transport else power_flow.plants(q, without)
    m.generated = pyo.Var(plants, domain=pyo.NonNegativeReals, bounds=(0, load))
    m.flow = pyo.Var(list(q.corridors) if transport else [], domain=pyo.Reals, bounds=(-load, load))


def _load(m: Any, q: Question, sites: Collection[str]) -> Any:
    return q.module_mw * sum(m.modules[s] for s in sites)


def _sites_of(q: Question, authority: str) -> list[str]:
    return [s for s, n in q.candidates.items() if n.balancing_authority == authority]


def _balance(m: Any, q: Question) -> None:
    """Feed each node's site from its own plants and the corridors around it; transport is lossless."""

    def row(m: Any, n: str) -> Any:
        inflow = 0
        for _, _, key in q.graph.edges(n, keys=True):
            c = q.corridors[key]
            # A corridor's flow is positive from a to b; a loop brings nothing.
            inflow += 0 if c.a == c.b else m.flow[key] if c.b == n else -m.flow[key]
        return m.generated[n] + inflow == (_load(m, q, [n]) if n in q.candidates else 0)

    m.balance = pyo.Constraint(list(q.graph) if q.grid.rules.grid_model == "transport" else [], rule=row)
    if q.system is not None:
        power_flow.balance(m, q, q.system)


def demand(m: Any, q: Question) -> None:
    """Hold the racks asked for, or one module at least."""
    modules = sum(m.modules.values())
    m.demand = pyo.Constraint(
        expr=modules >= 1 if q.request.racks is None else q.module_racks * modules == q.request.racks
    )


def pins(m: Any, q: Question) -> None:
    """Keep what was fixed by hand."""
    m.pins = pyo.Constraint(pyo.Any)
    if q.pins.racks is not None:
        m.pins["sites.racks"] = q.module_racks * sum(m.modules.values()) == q.pins.racks
    if q.pins.max_sites is not None:
        m.pins["sites.max_sites"] = sum(m.open.values()) <= q.pins.max_sites
    for s, racks in q.pins.racks_by_site.items():
        m.pins[f"sites.racks.{s}"] = q.module_racks * m.modules[s] == racks


def facility_power(m: Any, q: Question) -> None:
    """Keep the draw of all sites within the limit."""
    limit = q.instance.limits.facility_power_mw
    if limit is not None:
        m.facility_power = pyo.Constraint(expr=_load(m, q, q.candidates) <= limit)


def headroom(m: Any, q: Question) -> None:
    """Keep the draw of an authority's sites within its headroom."""
    areas = [b for b in q.authorities if q.grid.rules.headroom and _sites_of(q, b)]
    m.headroom = pyo.Constraint(areas, rule=lambda m, b: _load(m, q, _sites_of(q, b)) <= q.authorities[b].headroom_mw)


def generation(m: Any, q: Question) -> None:
    """Keep what plants feed in within what each node, and its authority's headroom, can spare.

    Without flows, an authority's sites are fed by its own plants.
    """
    if not q.grid.rules.generation:
        return
    spare = {n.id: n.generation_mw for n in q.grid.nodes}
    by_area = {b: sorted(n.id for n in q.grid.nodes if n.balancing_authority == b) for b in q.authorities}
    if q.grid.rules.grid_model == "none":
        areas = [(b, "authority") for b in q.authorities if _sites_of(q, b)]
        m.generation = pyo.Constraint(
            areas, rule=lambda m, b, _: _load(m, q, _sites_of(q, b)) <= sum(spare[n] for n in by_area[b])
        )
        return
    areas = [(b, "authority") for b in q.authorities if q.grid.rules.headroom and by_area[b]]

    def row(m: Any, x: str, kind: str) -> Any:
        if kind == "node":
            return m.generated[x] <= spare[x]
        fed = [m.generated[n] for n in by_area[x] if n in m.generated]
        return sum(fed) <= q.authorities[x].headroom_mw if fed else pyo.Constraint.Skip

    m.generation = pyo.Constraint([(n, "node") for n in m.generated] + areas, rule=row)


def rating(m: Any, q: Question) -> None:
    """Keep each corridor's flow, either way, within its circuits, built ones included."""

    def row(m: Any, key: str, way: int) -> Any:
        c = q.corridors[key]
        return way * m.flow[key] <= normal_share(q.grid) * c.rating_mw * (m.circuits[key] if c.new else c.circuits)

    keys = list(q.corridors) if q.grid.rules.grid_model == "transport" else []
    m.rating = pyo.Constraint([(k, way) for k in keys for way in (1, -1)], rule=row)
    if q.system is not None:
        power_flow.new_circuits(m, q, q.system)


def security(m: Any, q: Question) -> None:
    """Keep the grid within its ratings, and its plants within what they can spare, after each outage that N-1 asks for."""
    if q.system is not None and q.grid.rules.n1 == "full":
        power_flow.reserves(m, q.system)


def interconnect(m: Any, q: Question) -> None:
    """Keep a share of a site's load on its circuits: all of them, or those left when the largest is lost.

    Which circuit is the largest depends on what is built, so there is a row for each that could be.
    """
    rule = q.grid.rules.interconnect
    if not rule.on:
        return
    m.built = pyo.Var([k for k, c in q.corridors.items() if c.new], domain=pyo.Binary)
    m.building = pyo.Constraint(list(m.built), rule=lambda m, k: m.circuits[k] <= q.corridors[k].circuits * m.built[k])
    at = {s: [q.corridors[k] for _, _, k in q.graph.edges(s, keys=True)] for s in q.candidates}
    largest = {s: largest_circuit_mw(q.grid, s) for s in q.candidates}

    def circuits(m: Any, s: str) -> Any:
        standing = sum(c.rating_mw * c.circuits for c in at[s] if not c.new)
        if rule.reading == "explicit":
            # The node's figure stands for its existing circuits with the largest of them out.
            standing = (q.candidates[s].interconnect_mw or 0.0) + largest[s]
        upgrade = q.candidates[s].upgrade
        bought = upgrade.step_mw * m.steps[s] if upgrade else 0.0
        return standing + sum(c.rating_mw * m.circuits[c.id] for c in at[s] if c.new) + bought

    def drawn(m: Any, s: str) -> Any:
        if rule.reading != "import_share":
            return _load(m, q, [s])
        # Without flows the node's own plants feed its site first.
        return _load(m, q, [s]) - (m.generated[s] if len(m.generated) else q.candidates[s].generation_mw)

    def row(m: Any, s: str, lost: str) -> Any:
        out: Any = 0.0
        if rule.reading != "capacity" and lost == "standing":
            out = largest[s]
        elif rule.reading != "capacity":
            # A larger circuit, once built, is the one to lose; unbuilt, this says no more than the row of the standing one.
            out = largest[s] + (q.corridors[lost].rating_mw - largest[s]) * m.built[lost]
        return rule.share * drawn(m, s) <= circuits(m, s) - out

    larger = [
        (s, c.id)
        for s in q.candidates
        for c in at[s]
        if c.new and c.rating_mw > largest[s] and rule.reading != "capacity"
    ]
    m.interconnect = pyo.Constraint(sorted([(s, "standing") for s in q.candidates] + larger), rule=row)


def area(m: Any, q: Question) -> None:
    """Keep the cooling of a site on its land, in 1000 m²."""
    module = power.cooling_m2(q.hardware, q.module_racks)
    limited = {s: n.area_m2 for s, n in q.candidates.items() if n.area_m2 is not None and module is not None}
    m.area = pyo.Constraint(list(limited), rule=lambda m, s: (module or 0.0) / 1e3 * m.modules[s] <= limited[s] / 1e3)


def site_count(m: Any, q: Question) -> None:
    """Open no more sites than the rules allow."""
    if q.grid.rules.max_sites is not None:
        m.site_count = pyo.Constraint(expr=sum(m.open.values()) <= q.grid.rules.max_sites)


def min_site(m: Any, q: Question) -> None:
    """Open no site smaller than the least size."""
    least = q.grid.rules.min_site_modules
    m.min_site = pyo.Constraint(
        list(q.candidates) if least > 1 else [], rule=lambda m, s: m.modules[s] >= least * m.open[s]
    )


def fault_split(m: Any, q: Question) -> None:
    """Hold sites in enough interconnections, and no more than a share of all racks in any one."""
    rule = q.grid.rules.fault_split
    if not rule.on:
        return
    by_area: dict[str, list[str]] = {}
    for s in q.candidates:
        by_area.setdefault(q.interconnection(s), []).append(s)
    m.reached = pyo.Var(sorted(by_area), domain=pyo.NonNegativeReals, bounds=(0, 1))
    m.reaching = pyo.Constraint(sorted(by_area), rule=lambda m, i: m.reached[i] <= sum(m.open[s] for s in by_area[i]))
    total = sum(m.modules.values())
    m.fault_split = pyo.Constraint(pyo.Any)
    m.fault_split["min_interconnections"] = sum(m.reached.values()) >= rule.min_interconnections
    for i in sorted(by_area):
        m.fault_split[i, "share"] = sum(m.modules[s] for s in by_area[i]) <= rule.max_share * total


def share_balance(m: Any, q: Question) -> None:
    """Hold no site larger than a multiple of the smallest open one."""
    rule = q.grid.rules.share_balance
    if not rule.on:
        return
    most = {s: m.modules[s].ub for s in q.candidates}
    m.least_modules = pyo.Var(domain=pyo.NonNegativeReals, bounds=(0, max(most.values())))
    m.smallest = pyo.Constraint(
        list(q.candidates), rule=lambda m, s: m.least_modules <= m.modules[s] + max(most.values()) * (1 - m.open[s])
    )
    m.share_balance = pyo.Constraint(
        list(q.candidates), rule=lambda m, s: m.modules[s] <= rule.max_ratio * m.least_modules
    )


def ready(m: Any, q: Question) -> None:
    """Leave out what comes too late: sites, new lines and upgrades."""
    limit = q.grid.rules.ready_within_months
    if limit is None:
        return
    m.ready = pyo.Constraint(pyo.Any)
    for s, n in q.candidates.items():
        if n.ready_months > limit:
            m.ready[s] = m.open[s] <= 0
        if n.upgrade and n.upgrade.lead_months > limit:
            m.ready[s, "upgrade"] = m.steps[s] <= 0
    for line in sorted(q.grid.new_lines, key=lambda x: x.id):
        if line.lead_months > limit:
            m.ready[line.id] = m.circuits[line.id] <= 0


def rtt(m: Any, q: Question) -> None:
    """Open no two sites farther apart than the longest round trip."""
    limit = q.grid.rules.max_rtt_ms
    far = [p for p in q.pairs if limit is not None and q.rtt_ms(p) > limit]
    m.rtt = pyo.Constraint(far, rule=lambda m, a, b: m.open[a] + m.open[b] <= 1)


def budget(m: Any, q: Question) -> None:
    """Keep capital and the counted years of energy within the budget, in M$."""
    limit = q.instance.limits.budget_usd
    if limit is not None:
        m.budget = pyo.Constraint(
            expr=capital_musd(m, q) + q.instance.limits.operation_years * energy_musd(m, q) <= limit / 1e6
        )


# Rules by name, in the order in which a conflict tries to do without them: what says least to the user goes first.
RULES: dict[str, Callable[[Any, Question], None]] = {
    "security": security,
    "rating": rating,
    "generation": generation,
    "wan_capacity": wan_links.wan_capacity,
    "rtt": rtt,
    "share_balance": share_balance,
    "ready": ready,
    "min_site": min_site,
    "area": area,
    "interconnect": interconnect,
    "fault_split": fault_split,
    "headroom": headroom,
    "facility_power": facility_power,
    "site_count": site_count,
    "budget": budget,
    "pins": pins,
    "demand": demand,
}


def _built_musd(m: Any, q: Question) -> Any:
    fixed, module = site_musd(q)
    lines = sum(m.circuits[k] * ((q.corridors[k].capex_usd or 0.0) / 1e6) for k in m.circuits)
    steps = sum(m.steps[s] * (q.step_usd(s) / 1e6) for s in m.steps)
    return fixed * sum(m.open.values()) + module * sum(m.modules.values()) + lines + steps


def capital_musd(m: Any, q: Question) -> Any:
    """Racks, fabric, sites, new lines and WAN, in M$."""
    racks = q.module_racks * (power.rack_of(q.hardware).price_usd + q.request.fabric_usd_per_rack) / 1e6
    fibre = sum(m.fibres[p] * (q.pairs[p] * q.wan.fibre_usd_per_route_km / 1e6) for p in m.pair)
    waves = sum(m.wavelengths[p] * (q.wan.wavelength_usd / 1e6) for p in m.pair)
    return racks * sum(m.modules.values()) + _built_musd(m, q) + fibre + waves


def energy_musd(m: Any, q: Question) -> Any:
    """Energy of a year, at the price of each site's authority, in M$."""
    return sum(q.energy_musd(s) * m.modules[s] for s in q.candidates)


def yearly_musd(m: Any, q: Question) -> Any:
    """Energy, what sites, lines and WAN cost when spread over their lives, and broken soft rules, in M$ per year.

    Racks and fabric cost the same in every split of a given total, so they are left out.
    """
    rate, prices = q.grid.prices.discount_rate, q.grid.prices
    fibre_rate = cost.annuity(rate, q.wan.fibre_life_years) * q.wan.fibre_usd_per_route_km / 1e6
    wave_rate = cost.annuity(rate, prices.it_life_years) * q.wan.wavelength_usd / 1e6
    links = sum(m.fibres[p] * (q.pairs[p] * fibre_rate) + m.wavelengths[p] * wave_rate for p in m.pair)
    energy = expected_musd(m, q, energy_musd(m, q))
    return energy + cost.annuity(rate, prices.site_life_years) * _built_musd(m, q) + links + penalty_musd(m, q)
