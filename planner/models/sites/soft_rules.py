"""Rows that may be exceeded: soft rules at a price, and any rule where an explanation asks by how much it must move.

An excess has one variable for each row that a report names, in the unit of the rows (MW, 1000 m², sites, M$, modules).
"""

from collections.abc import Mapping
from typing import Any

import pyomo.core as pyo

from planner.models.sites.data import SplitData
from planner.models.sites.rules.registry import RULES, rule_of
from planner.models.sites.rules.rule import Rule


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
        _exceed(row, excess[rule.label(index)])
    return excess


def _exceed(row: Any, by: Any) -> None:
    if row.upper is not None:
        row.set_value((None, row.body - by, row.upper))
    else:
        row.set_value((row.lower, row.body + by, None))


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
    return sum(data.grid.rules.soft[rule_of(name).name].usd_per_year * x for name, x in excess.items())
