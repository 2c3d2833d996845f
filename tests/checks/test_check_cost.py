"""Rules of the bill: recomputed, within the budget, and spent."""

from typing import Any

import pytest
from worked_plan import GRID, edited, edited_at, named, rules, small

PLAN = small()
TOTAL = PLAN.cost.total_usd
# One more module at w1: two racks, building and connection, and eight links of two transceivers.
MODULE = 2 * 2e6 + 0.2 * 1e6 + 0.3 * 5e5 + 8 * 200


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
    """Each edited entry breaks the rule about it."""
    assert rule in named(edited_at(PLAN, path, change))


def test_the_bill_is_not_read_off_the_plan() -> None:
    """A fabric priced lower breaks the budget still: the bill counts switches and cables, not the plan's own prices."""
    over = small(limits__budget_usd=TOTAL - 1000)
    cheap = edited(
        over, fabric__sites__e1__cost_usd=over.fabric.sites["e1"].cost_usd - 1000, cost__total_usd=TOTAL - 1000
    )
    assert "budget" in rules(cheap)


@pytest.mark.parametrize(
    ("budget", "broken"),
    [(TOTAL, set()), (TOTAL - 1, {"budget"}), (TOTAL + MODULE - 1, set()), (TOTAL + MODULE + 1, {"spend_budget"})],
)
def test_budget_edges(budget: float, broken: set[str]) -> None:
    """A plan at the budget keeps it, a dollar more does not; and no more may be left than buys a module."""
    assert rules(small(limits__budget_usd=budget)) == broken


def test_years_of_operation_count() -> None:
    """With two years counted, energy is part of the total."""
    energy = PLAN.cost.opex_usd_per_year["energy"]
    assert rules(small(limits__operation_years=2, limits__budget_usd=TOTAL + 2 * energy)) == set()
    assert rules(small(limits__operation_years=2, limits__budget_usd=TOTAL + 2 * energy - 1)) == {"budget"}


RICH = {"limits__budget_usd": 1e9}


@pytest.mark.parametrize(
    "reason",
    [
        {"limits__facility_power_mw": 2.1},
        {"grid__balancing_authorities__1__headroom_mw": 0.9},
        {"grid__nodes__2__generation_mw": 0.9},
        {"pins": {"sites.racks": 14}},
        {"pins": {"sites.racks.w1": 6}},
        {"objective__minimize": "cost_usd", "limits__deadline_days": 1},
    ],
)
def test_another_rule_may_stop_the_next_module(reason: dict[str, Any]) -> None:
    """Money may be left where power, plants or a pin allow no module at w1, or cost is minimized; e1 has its share."""
    assert GRID["rules"]["fault_split"]["max_share"] == 0.6
    assert "spend_budget" in rules(small(**RICH))
    assert rules(small(**RICH, **reason)) == set()


def test_a_plan_that_claims_no_optimum_may_leave_money() -> None:
    """A limit may have ended the search."""
    assert rules(edited(small(**RICH), status="feasible", stopped="limit")) == set()
