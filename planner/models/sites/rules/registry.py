"""The rules of the site split by name, over which bounds, soft rules, conflicts and explanations iterate."""

from collections.abc import Collection

from planner.models.sites.rules import campus, grid, site, wan
from planner.models.sites.rules.rule import Rule

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in sorted((*campus.RULES, *grid.RULES, *site.RULES, *wan.RULES), key=lambda rule: rule.order)
}


def without(names: Collection[str] = ()) -> list[Rule]:
    """Return the rules but those named."""
    return [rule for name, rule in RULES.items() if name not in names]


def rule_of(row: str) -> Rule:
    """Return the rule of a row by its name: `headroom[SRP]`."""
    return RULES[row.partition("[")[0]]
