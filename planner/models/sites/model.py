"""The site split as a Pyomo MILP: its variables, the power balance, the rules in force and the yearly cost.

Units of the rows are MW, M$, racks and 1000 m², so that coefficients stay within a few decades of one. Every rule can
be left out by name, which is how a conflict is found; the power balance is a law and always stays. Rows of soft rules
may be exceeded at a price, and those of any rule where an explanation asks by how much it must move.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyomo.core as pyo

from planner.models.sites import campus_rules, grid_cuts, grid_rules, site_rules
from planner.models.sites.campus_rules import Rule, load_mw
from planner.models.sites.grid_rules import flows_of
from planner.models.sites.split_data import (
    SplitData,
    add_block,
    block_of,
    construction_musd,
    energy_musd,
    expected_musd,
    scenarios,
)
from planner.physics.site import cost
from planner.solvers import highs

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in sorted(
        (*campus_rules.CAMPUS_RULES, *grid_rules.GRID_RULES, *site_rules.SITE_RULES, *site_rules.LINK_RULES),
        key=lambda rule: rule.order,
    )
}


def rules_without(names: Collection[str] = ()) -> list[Rule]:
    """Return the rules but those named."""
    return [rule for name, rule in RULES.items() if name not in names]


def rule_of(row: str) -> Rule:
    """Return the rule of a row by its name: `headroom[SRP]`."""
    return RULES[row.partition("[")[0]]


def loosen(block: Any, rule: Rule, limit: float, name: str = "excess") -> Any:
    """Let the rows of a rule be exceeded, each by `limit`; return the excess by the row's name, None without rows.

    The variable is `<rule>_<name>` of the block.
    """
    rows = block.component(rule.name)
    if rows is None or not len(rows):
        return None
    excess = pyo.Var(sorted({rule.label(i) for i in rows}), domain=pyo.NonNegativeReals, bounds=(0, limit))
    block.add_component(f"{rule.name}_{name}", excess)
    for index, row in rows.items():
        by = excess[rule.label(index)]
        if row.upper is not None:
            row.set_value((None, row.body - by, row.upper))
        else:
            row.set_value((row.lower, row.body + by, None))
    return excess


def soften(block: Any, data: SplitData) -> None:
    """Let the rows of the soft rules be exceeded."""
    for name, soft in sorted(data.grid.rules.soft.items()):
        loosen(block, RULES[name], soft.max_excess / RULES[name].scale)


def penalty_musd(block: Any, data: SplitData) -> Any:
    """Return the price of the excess of soft rules for a year, in M$."""
    total: Any = 0.0
    for name, soft in sorted(data.grid.rules.soft.items()):
        excess = block.component(f"{name}_excess")
        if excess is not None:
            total += soft.usd_per_year * RULES[name].scale / 1e6 * sum(excess.values())
    return total


def excess_of(block: Any) -> dict[str, float]:
    """Return the excess of every row that has any, in the rule's unit."""
    excess: dict[str, float] = {}
    for rule in RULES.values():
        for name, var in (block.component(f"{rule.name}_excess") or {}).items():
            if (var.value or 0.0) > 1e-6:
                excess[name] = var.value * rule.scale
    return dict(sorted(excess.items()))


def excess_usd(data: SplitData, excess: Mapping[str, float]) -> float:
    """Return the price of the excess of soft rules for a year, in USD; `excess` is in the rules' units."""
    return sum(data.grid.rules.soft[rule_of(name).name].usd_per_year * amount for name, amount in excess.items())


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
    priced. `extend` adds decisions before the rules; where it creates `extra_mw` by site, these are loads in MW in
    addition to those of the modules, at most `max_extra_mw` over all sites. `max_modules` bounds the modules of all
    sites where the caller knows a tighter bound than the rules give.
    """
    model = pyo.ConcreteModel()
    rules = rules_without(without)
    bounding = [rule for rule in rules if rule.name not in loose]
    total = site_rules.max_campus_modules(data, bounding, max_modules)
    max_load_mw = total * data.module_mw + max_extra_mw + data.node_load_mw
    _variables(model, data, bounding, sites, max_load_mw, total)
    if extend is not None:
        extend(model)
    _balance(model, data)
    for rule in rules:
        rule.rows(model, data)
    soften(model, data)
    for name, year in scenarios(data).items():
        block = add_block(model, year, name, total)
        _power(block, year, bounding, max_load_mw)
        _balance(block, year)
        for rule in reversed(rules):
            if rule.yearly:
                rule.rows(block, year)
    grid_cuts.attach(model, data, without, load_mw=max_load_mw)
    if sites is not None:
        model.exact_sites = pyo.Constraint(expr=sum(model.open.values()) == sites)
    return model


def _variables(
    model: Any, data: SplitData, rules: list[Rule], sites: int | None, max_load_mw: float, total: int
) -> None:
    """Create the decisions, and tie modules to open sites: minimum · open[s] <= modules[s] <= maximum · open[s]."""
    minimum = site_rules.min_site_modules(data, rules, site_rules.max_sites(data, rules) if sites is None else sites)
    maximum = {s: site_rules.max_site_modules(data, s, total, rules) for s in data.candidates}
    candidates = list(data.candidates)
    model.open = pyo.Var(candidates, domain=pyo.Binary)
    model.modules = pyo.Var(candidates, domain=pyo.NonNegativeIntegers, bounds=(0, total))
    model.open_if_used = pyo.Constraint(
        candidates, rule=lambda model, s: model.modules[s] <= maximum[s] * model.open[s]
    )
    model.used_if_open = pyo.Constraint(candidates, rule=lambda model, s: model.modules[s] >= minimum * model.open[s])
    new = {corridor.id: corridor.circuits for corridor in data.corridors.values() if corridor.new}
    model.circuits = pyo.Var(list(new), domain=pyo.NonNegativeIntegers, bounds=lambda _, k: (0, new[k]))
    upgrades = {site: node.upgrade.max_steps for site, node in data.candidates.items() if node.upgrade}
    model.steps = pyo.Var(list(upgrades), domain=pyo.NonNegativeIntegers, bounds=lambda _, site: (0, upgrades[site]))
    if data.network is not None:
        grid_rules.count_circuits(model, data.network)
    _power(model, data, rules, max_load_mw)
    site_rules.link_variables(model, data, rules, sites)


def _power(model: Any, data: SplitData, rules: list[Rule], load: float) -> None:
    transport = data.grid.rules.grid_model == "transport"
    bounded = any(rule.name == "generation" for rule in rules)
    plants = list(data.graph) if transport else grid_rules.plants(data, bounded=bounded)
    model.generated = pyo.Var(plants, domain=pyo.NonNegativeReals, bounds=(0, load))
    model.flow = pyo.Var(list(data.corridors) if transport else [], domain=pyo.Reals, bounds=(-load, load))


def _balance(model: Any, data: SplitData) -> None:
    """Require at each node that dispatch plus inflow equal its own load and its site's; transport is lossless."""
    drawn = {node.id: node.load_mw for node in data.grid.nodes}

    def row(model: Any, node: str) -> Any:
        inflow = 0
        for _, _, key in data.graph.edges(node, keys=True):
            corridor = data.corridors[key]
            # A corridor's flow is positive from a to b; a loop brings nothing.
            inflow += 0 if corridor.a == corridor.b else model.flow[key] if corridor.b == node else -model.flow[key]
        return model.generated[node] + inflow == drawn[node] + (
            load_mw(model, data, [node]) if node in data.candidates else 0
        )

    model.balance = pyo.Constraint(list(data.graph) if data.grid.rules.grid_model == "transport" else [], rule=row)
    if data.network is not None:
        grid_rules.balance(model, data, data.network)


def yearly_musd(model: Any, data: SplitData) -> Any:
    """Return energy, sites, lines and WAN spread over their lives, and the excess of soft rules, in M$ per year.

    Racks and fabric cost the same in every split of a given total, so they are left out.
    """
    rate, prices = data.grid.prices.discount_rate, data.grid.prices
    lease = cost.annuity(rate, data.wan.fibre_life_years) / 1e6
    equipment = cost.annuity(rate, prices.it_life_years) / 1e6
    price = {pair: data.link_prices(pair) for pair in model.pair}
    links = sum(
        model.fibres[pair] * (price[pair][0] * lease) + model.wavelengths[pair] * (price[pair][1] * equipment)
        for pair in model.pair
    )
    energy = expected_musd(model, data, energy_musd(model, data))
    construction = cost.annuity(rate, prices.site_life_years) * construction_musd(model, data)
    return energy + construction + links + penalty_musd(model, data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The power of one year in MW: load by site, generation by node, flow by corridor."""

    load: dict[str, float]
    generated: dict[str, float]
    flow: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSolution:
    """The decisions of a split, with the dispatch of the grid's own year and of every scenario."""

    modules: dict[str, int]
    circuits: dict[str, int]
    generated: dict[str, float]
    flow: dict[str, float]
    steps: dict[str, int] = field(default_factory=dict)
    excess: dict[str, float] = field(default_factory=dict)
    scenarios: dict[str, Dispatch] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Modules of all sites."""
        return sum(self.modules.values())


def read(model: Any, data: SplitData, values: highs.HighsValues) -> SplitSolution:
    """Read a solution, integers rounded, and set the model to it."""
    for var in model.component_data_objects(pyo.Var):
        value = values.of(var)
        var.set_value(round(value) if var.is_integer() or var.is_binary() else value, skip_validation=True)
    years = {name: dispatch(block_of(model, name), year) for name, year in scenarios(data).items()}
    own = dispatch(model, data)
    return SplitSolution(
        modules=_counts(model.modules),
        circuits=_counts(model.circuits),
        generated=own.generated,
        flow=own.flow,
        steps=_counts(model.steps),
        excess=excess_of(model),
        scenarios=years,
    )


def _counts(variables: Any) -> dict[str, int]:
    return {name: count for name, variable in variables.items() if (count := round(variable.value))}


def dispatch(block: Any, data: SplitData) -> Dispatch:
    """Read the power of one year."""
    load = {site: pyo.value(load_mw(block, data, [site])) for site, size in block.modules.items() if size.value > 1e-9}
    network = data.network
    flow = {name: term.value for name, term in block.flow.items()} if network is None else flows_of(block, network)
    return Dispatch(load=load, generated={node: term.value for node, term in block.generated.items()}, flow=flow)
