"""Rules of the bill: recomputed, and within the budget."""

from typing import Any

import pytest
from worked_plan import edited, edited_at, named, rules, small

PLAN = small()
TOTAL = PLAN.cost.total_usd


@pytest.mark.parametrize(
    ("path", "change", "rule"),
    [
        ("cost.total_usd", lambda x: x * 0.99, "total"),
        ("cost.capex_usd.racks", lambda x: x * 0.99, "parts[capex_usd.racks]"),
        ("cost.capex_usd.fabric", lambda x: x * 0.99, "parts[capex_usd.fabric]"),
        ("cost.capex_usd.wan", lambda x: x * 0.99, "parts[capex_usd.wan]"),
        ("cost.opex_usd_per_year.energy", lambda x: x * 0.99, "parts[opex_usd_per_year.energy]"),
        ("cost.capex_usd", lambda x: {**x, "gift": -1e6}, "parts[capex_usd.gift]"),
        ("cost.operation_years", 1, "parts[operation_years]"),
    ],
)
def test_an_edit_names_its_rule(path: str, change: Any, rule: str) -> None:
    assert rule in named(edited_at(PLAN, path, change))


def test_the_bill_is_not_read_off_the_plan() -> None:
    """A fabric priced lower breaks the budget still: the bill counts switches and cables, not the plan's own prices."""
    over = small(limits__budget_usd=TOTAL - 1000)
    cheap = edited(
        over, fabric__sites__e1__cost_usd=over.fabric.sites["e1"].cost_usd - 1000, cost__total_usd=TOTAL - 1000
    )
    assert "budget" in rules(cheap)


@pytest.mark.parametrize(("budget", "broken"), [(TOTAL, set()), (TOTAL - 1, {"budget"}), (1e9, set())])
def test_budget_edges(budget: float, broken: set[str]) -> None:
    """A plan at the budget keeps it, a dollar more does not; money may be left over."""
    assert rules(small(limits__budget_usd=budget)) == broken


def test_years_of_operation_count() -> None:
    """With two years counted, energy is part of the total."""
    energy = PLAN.cost.opex_usd_per_year["energy"]
    assert rules(small(limits__operation_years=2, limits__budget_usd=TOTAL + 2 * energy)) == set()
    assert rules(small(limits__operation_years=2, limits__budget_usd=TOTAL + 2 * energy - 1)) == {"budget"}
