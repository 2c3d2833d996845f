"""The site split as a Pyomo MILP: its variables, the power balance, the rules in force, and the price of their excess.

Units of the rows are MW, M$, racks and 1000 m², so that coefficients stay within a few decades of one. Every rule can
be left out by name, which is how a conflict is found; the power balance is a law and always stays. Rows of soft rules
may be exceeded at a price, and those of any rule where an explanation asks by how much it must move.
"""

from collections.abc import Callable, Collection
from typing import Any

import pyomo.core as pyo

from planner.models.sites import grid_rules, site_rules
from planner.models.sites.lazy_rows import LazyRows
from planner.models.sites.site_rules import Rule
from planner.models.sites.split_data import SplitData, add_block, scenarios

# In the order of the tries to leave a rule out of a conflict: those that say least to the user go first.
RULES: dict[str, Rule] = {rule.name: rule for rule in reversed((*site_rules.SITE_RULES, *grid_rules.GRID_RULES))}


def rules_without(names: Collection[str] = ()) -> list[Rule]:
    """Return all rules of the site split but those named."""
    return [rule for name, rule in RULES.items() if name not in names]


def loosen(block: Any, rule: Rule, limit: float, name: str = "excess") -> Any:
    """Let a site rule's rows in a split model be exceeded by `limit` each: `<rule>_<name>` of the block, or None."""
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


def penalty_musd(block: Any, data: SplitData) -> Any:
    """Return the price in M$ a year of the excess of the soft rules in a site split's model."""
    total: Any = 0.0
    for name, soft in sorted(data.grid.rules.soft.items()):
        excess = block.component(f"{name}_excess")
        if excess is not None:
            total += soft.usd_per_year * RULES[name].scale / 1e6 * sum(excess.values())
    return total


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
    """Build the MILP of the site split without the named rules and an objective; `sites`: the number of open ones.

    Rules in `loose` act through their own rows alone: no bound knows of them, so that their limits can be moved or
    priced. `extend` adds decisions before the rules; where it creates `extra_mw` by site, these are loads in MW in
    addition to those of the modules, at most `max_extra_mw` over all sites. `max_modules` bounds the modules of all
    sites where the caller knows a tighter bound than the rules give.
    """
    model = pyo.ConcreteModel()
    rules = rules_without(without)
    bounding = [rule for rule in rules if rule.name not in loose]
    total = site_rules.max_campus_modules(data, bounding, max_modules)
    other_mw = sum(max(0.0, node.load_mw) for node in data.grid.nodes)  # must-run feed left out
    max_load_mw = total * data.module_mw + max_extra_mw + other_mw
    bounded = "generation" in {rule.name for rule in bounding}
    _decisions(model, data, bounding, sites, total)
    if extend is not None:
        extend(model)
    grid_rules.power_balance(model, data, max_load_mw, bounded=bounded)
    for rule in rules:
        rule.rows(model, data)
    for name, soft in sorted(data.grid.rules.soft.items()):
        loosen(model, RULES[name], soft.max_excess / RULES[name].scale)
    for name, year in scenarios(data).items():
        block = add_block(model, year, name, total)
        grid_rules.power_balance(block, year, max_load_mw, bounded=bounded)
        for rule in reversed(rules):
            if rule.yearly:
                rule.rows(block, year)
    if data.network is not None:
        model.lazy = LazyRows(model, data, without, max_load_mw)
    if sites is not None:
        model.exact_sites = pyo.Constraint(expr=sum(model.open.values()) == sites)
    return model


def _decisions(model: Any, data: SplitData, rules: list[Rule], sites: int | None, total: int) -> None:
    """Create a split's decisions, and tie modules to open sites: min · open[s] <= modules[s] <= max · open[s]."""
    minimum, racks = 1, data.pins.racks if any(rule.rows is site_rules.pins for rule in rules) else None
    if racks is not None:  # the racks in all are known
        most = site_rules.max_sites(data, rules) if sites is None else sites
        minimum = max(rule.min_site_modules(data, racks, most) for rule in rules)
    maximum = {s: site_rules.max_site_modules(data, s, total, rules) for s in data.candidates}
    candidates = list(data.candidates)
    model.open = pyo.Var(candidates, domain=pyo.Binary)
    model.modules = pyo.Var(candidates, domain=pyo.NonNegativeIntegers, bounds=(0, total))
    model.open_if_used = pyo.Constraint(candidates, rule=lambda m, s: m.modules[s] <= maximum[s] * m.open[s])
    model.used_if_open = pyo.Constraint(candidates, rule=lambda model, s: model.modules[s] >= minimum * model.open[s])
    new = data.new_circuits
    model.circuits = pyo.Var(list(new), domain=pyo.NonNegativeIntegers, bounds=lambda _, k: (0, new[k]))
    upgrades = {site: node.upgrade.max_steps for site, node in data.candidates.items() if node.upgrade}
    model.steps = pyo.Var(list(upgrades), domain=pyo.NonNegativeIntegers, bounds=lambda _, site: (0, upgrades[site]))
    if data.network is not None:
        # The circuits installed in each corridor, built in order; one split has the same in every year.
        joining = [corridor.id for corridor in data.network.buildable]
        later = [(k, j) for k, j in data.network.circuits_to_build if j]
        model.installed = pyo.Var(data.network.circuits_to_build, domain=pyo.Binary)
        model.counting = pyo.Constraint(
            joining, rule=lambda m, k: sum(m.installed[k, j] for j in range(new[k])) == m.circuits[k]
        )
        model.in_order = pyo.Constraint(later, rule=lambda m, k, j: m.installed[k, j] <= m.installed[k, j - 1])
