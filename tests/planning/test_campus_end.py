"""Which limit one more block of racks would meet, of a campus whose prices are round."""

from types import SimpleNamespace
from typing import Any

import pytest
from worked_plan import instance_with

from planner.models.requests import Options
from planner.planning import solve
from planner.solvers.signals import Deadline

RACK, SITE, CABLED = 10.0, 1000.0, 1.0  # dollars of a rack, of a site, and of the fabric of a rack for each rail
BLOCK = SimpleNamespace(racks=2, rails=4)
CAPITAL = 50.0


def ended(left: float, *, spare_racks: int = 0, most_racks: float = 100.0, stopped: str = "proved") -> str | None:
    """Return the limit of a plan of three blocks and some racks beside them, with so many dollars left."""

    def sites(*_: Any) -> Any:
        return SimpleNamespace(
            floor_usd=lambda racks, sites: RACK * racks + SITE * sites,
            min_fabric_usd=lambda rails: CABLED * rails,
            max_racks=lambda _: most_racks,
        )

    column = SimpleNamespace(strategy=SimpleNamespace(block=lambda _: BLOCK), p=1)
    placed = SimpleNamespace(racks={"e1": 3 * BLOCK.racks + spare_racks})
    plan = SimpleNamespace(column=column, blocks_by_site={"e1": 2, "w1": 1}, capital_usd=CAPITAL, placed=placed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(solve, "_sites_of", sites)
        asked = instance_with(limits__budget_usd=CAPITAL + left)
        return solve.limited_by(asked, SimpleNamespace(plan=plan, stopped=stopped), Options(), Deadline())


def test_the_budget_ends_a_plan_where_the_rest_does_not_buy_a_block() -> None:
    """Two racks and their fabric cost 28 dollars, at a site that is there; what is idle already is not bought again."""
    assert [ended(left) for left in (27.0, 28.0)] == ["budget", "layout"]
    assert [ended(left, spare_racks=1) for left in (17.0, 18.0)] == ["budget", "layout"]
    assert [ended(left, spare_racks=9) for left in (7.0, 8.0)] == ["budget", "layout"]


def test_the_grid_ends_a_plan_where_no_money_makes_room() -> None:
    """Eight racks are wanted: where the sites have seven at any price it is the grid; of an end by time nothing."""
    assert [ended(1e9, most_racks=most) for most in (7.0, 8.0)] == ["grid", "layout"]
    assert ended(0.0, stopped="limit") is None
