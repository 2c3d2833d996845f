"""Which limit one more block of racks would meet, of a campus whose prices are round."""

from types import SimpleNamespace
from typing import Any

import pytest
from stored_plans import stored
from worked_plan import LAYOUT, instance_with

from planner.models.requests import Options
from planner.physics.network.fabric_designs import min_fabric_usd
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


@pytest.mark.slow
def test_one_more_block_breaks_the_budget() -> None:
    """What is left buys no further block of replicas: its racks, their buildings and grid connection and least fabric.

    With the money of two more, and the dearest fabric that stands, the plan has more blocks and does train faster.
    """
    asked = instance_with(pins=LAYOUT)
    plan, prices, rack = stored(asked), asked.grid.prices, asked.hardware.rack
    left, racks = asked.limits.budget_usd - plan.cost.total_usd, plan.placement.block_racks
    it_mw = racks * rack.it_kw / 1e3
    site_usd = racks * rack.price_usd + it_mw * prices.building_usd_per_it_mw
    site_usd += it_mw * asked.hardware.facility_overhead_factor * prices.interconnection_usd_per_mw
    cabled = racks * plan.fabric.sites["e1"].wired_gpus_per_rack
    assert plan.objective.limited_by == "budget"
    assert 0 <= left < site_usd + cabled * min_fabric_usd(asked.network)
    # A 15th block of replicas fills the batch no better than 14, so two are bought.
    usd = asked.limits.budget_usd + 2 * site_usd + max(x.cost_usd for x in plan.fabric.sites.values())
    richer = stored(instance_with(pins=LAYOUT, limits__budget_usd=usd))
    assert sum(richer.placement.blocks_by_site.values()) > sum(plan.placement.blocks_by_site.values())
    assert richer.objective.value < plan.objective.value
