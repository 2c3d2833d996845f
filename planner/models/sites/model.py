"""The site split as a Pyomo MILP: its variables, the power balance, the rules in force and the yearly cost.

Units of the rows are MW, M$, racks and 1000 m², so that coefficients stay within a few decades of one. Every rule can
be left out by name, which is how a conflict is found; the power balance is a law and always stays.
"""

from collections.abc import Callable, Collection
from typing import Any

import pyomo.core as pyo

from planner.models.sites import bounds, wan_links
from planner.models.sites.costs import construction_musd, energy_musd
from planner.models.sites.data import SplitData
from planner.models.sites.grid import lazy_rows, power_flow
from planner.models.sites.rules import registry
from planner.models.sites.rules.rule import Rule, load_mw
from planner.models.sites.scenarios import add_block, expected_musd, scenarios
from planner.models.sites.soft_rules import penalty_musd, soften
from planner.physics.site import cost


def build(
    data: SplitData,
    *,
    without: Collection[str] = (),
    loose: Collection[str] = (),
    sites: int | None = None,
    extend: Callable[[Any], None] | None = None,
    max_extra_mw: float = 0.0,
    max_modules: int | None = None,
) -> pyo.ConcreteModel:
    """Build the model without the named rules and without an objective; `sites` fixes the number of open sites.

    Rules in `loose` act through their own rows alone: no bound knows of them, so that their limits can be moved or
    priced. `extend` adds decisions before the rules; where it makes `extra_mw` by site, that is load beside the
    modules', and no more than `max_extra_mw` in all. `max_modules` bounds the modules of all sites where more is known
    of them than the rules say.
    """
    m = pyo.ConcreteModel()
    rules = registry.without(without)
    bounding = [rule for rule in rules if rule.name not in loose]
    total = bounds.max_modules(data, bounding, max_modules)
    max_load_mw = total * data.module_mw + max_extra_mw + data.node_load_mw
    _variables(m, data, bounding, sites, max_load_mw, total)
    if extend is not None:
        extend(m)
    _balance(m, data)
    for rule in rules:
        rule.rows(m, data)
    soften(m, data)
    for name, year in scenarios(data).items():
        block = add_block(m, year, name, total)
        _power(block, year, bounding, max_load_mw)
        _balance(block, year)
        for rule in reversed(rules):
            if rule.yearly:
                rule.rows(block, year)
    lazy_rows.attach(m, data, without, load_mw=max_load_mw)
    if sites is not None:
        m.exact_sites = pyo.Constraint(expr=sum(m.open.values()) == sites)
    return m


def _variables(m: Any, data: SplitData, rules: list[Rule], sites: int | None, max_load_mw: float, total: int) -> None:
    """Create the decisions, and tie modules to open sites: minimum · open[s] <= modules[s] <= maximum · open[s]."""
    minimum = bounds.min_site_modules(data, rules, bounds.max_sites(data, rules) if sites is None else sites)
    maximum = {s: bounds.max_site_modules(data, s, total, rules) for s in data.candidates}
    candidates = list(data.candidates)
    m.open = pyo.Var(candidates, domain=pyo.Binary)
    m.modules = pyo.Var(candidates, domain=pyo.NonNegativeIntegers, bounds=(0, total))
    m.open_if_used = pyo.Constraint(candidates, rule=lambda m, s: m.modules[s] <= maximum[s] * m.open[s])
    m.used_if_open = pyo.Constraint(candidates, rule=lambda m, s: m.modules[s] >= minimum * m.open[s])
    new = {c.id: c.circuits for c in data.corridors.values() if c.new}
    m.circuits = pyo.Var(list(new), domain=pyo.NonNegativeIntegers, bounds=lambda _, k: (0, new[k]))
    upgrades = {s: n.upgrade.max_steps for s, n in data.candidates.items() if n.upgrade}
    m.steps = pyo.Var(list(upgrades), domain=pyo.NonNegativeIntegers, bounds=lambda _, s: (0, upgrades[s]))
    if data.network is not None:
        power_flow.count_circuits(m, data.network)
    _power(m, data, rules, max_load_mw)
    wan_links.variables(m, data, rules, sites)


def _power(m: Any, data: SplitData, rules: list[Rule], load: float) -> None:
    """Create the dispatch of plants and the flows on corridors."""
    transport = data.grid.rules.grid_model == "transport"
    bounded = any(rule.name == "generation" for rule in rules)
    plants = list(data.graph) if transport else power_flow.plants(data, bounded=bounded)
    m.generated = pyo.Var(plants, domain=pyo.NonNegativeReals, bounds=(0, load))
    m.flow = pyo.Var(list(data.corridors) if transport else [], domain=pyo.Reals, bounds=(-load, load))


def _balance(m: Any, data: SplitData) -> None:
    """Require at each node that dispatch plus inflow equal its own load and its site's; transport is lossless."""
    drawn = {n.id: n.load_mw for n in data.grid.nodes}

    def row(m: Any, n: str) -> Any:
        inflow = 0
        for _, _, key in data.graph.edges(n, keys=True):
            c = data.corridors[key]
            # A corridor's flow is positive from a to b; a loop brings nothing.
            inflow += 0 if c.a == c.b else m.flow[key] if c.b == n else -m.flow[key]
        return m.generated[n] + inflow == drawn[n] + (load_mw(m, data, [n]) if n in data.candidates else 0)

    m.balance = pyo.Constraint(list(data.graph) if data.grid.rules.grid_model == "transport" else [], rule=row)
    if data.network is not None:
        power_flow.balance(m, data, data.network)


def yearly_musd(m: Any, data: SplitData) -> Any:
    """Return energy, sites, lines and WAN spread over their lives, and the excess of soft rules, in M$ per year.

    Racks and fabric cost the same in every split of a given total, so they are left out.
    """
    rate, prices = data.grid.prices.discount_rate, data.grid.prices
    lease = cost.annuity(rate, data.wan.fibre_life_years) / 1e6
    equipment = cost.annuity(rate, prices.it_life_years) / 1e6
    price = {p: data.link_prices(p) for p in m.pair}
    links = sum(m.fibres[p] * (price[p][0] * lease) + m.wavelengths[p] * (price[p][1] * equipment) for p in m.pair)
    energy = expected_musd(m, data, energy_musd(m, data))
    construction = cost.annuity(rate, prices.site_life_years) * construction_musd(m, data)
    return energy + construction + links + penalty_musd(m, data)
