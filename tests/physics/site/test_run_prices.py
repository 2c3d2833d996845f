"""Prices of a whole run: the capital of a plan at them, and what all plans cost alike, are what its run costs."""

from typing import Any

import pytest
from worked_plan import instance_with, small, worked

from planner.physics.site import cost
from planner.physics.site.cost import alike_usd, at_run_prices

HOURS = 8760.0
UPKEEP = {"maintenance_share_per_year": 0.1, "staff_usd_per_year": 7e4, "fabric_life_years": 4.0}
CABLES = {"network__cables": {"endpoint_usd": 30.0, "switch_usd": 20.0}}


@pytest.mark.parametrize("years", [0.5, 2.0, 5.0, 8.5])
@pytest.mark.parametrize("life", [None, 3.0])
@pytest.mark.parametrize("operation", [UPKEEP, {}, {"staff_usd_per_year": 1.0}])
@pytest.mark.parametrize("cables", [CABLES, {}])
def test_capital_at_run_prices_is_what_the_run_costs(
    years: float, life: float | None, operation: dict[str, Any], cables: dict[str, Any]
) -> None:
    """Racks and fabric with upkeep and replacements, sites as they are, and the energy of so many years."""
    figures = {"hardware__rack__life_years": life, "operation": operation, "network__power_usd_per_watt": 3.0} | cables
    plan = small(**figures)
    run = cost.section(plan.instance, years * 365, plan.cost, 0, plan.sites)
    priced = worked(at_run_prices(plan.instance, years))
    found = priced.cost.total_usd + alike_usd(plan.instance, years)
    assert found == pytest.approx(run.total_cost_of_ownership_usd, rel=1e-12)
    assert alike_usd(plan.instance, years) == years * operation.get("staff_usd_per_year", 0.0)


def bare(**changes: Any) -> Any:
    """Return the worked instance with twelve racks of a cluster, without a grid."""
    i = instance_with(**changes)
    hardware = i.hardware.model_copy(update={"racks": 12})
    return i.model_copy(update={"grid": None, "wan": None, "hardware": hardware})


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("usd", [None, 80.0])
def test_energy_without_a_grid(inside: bool, usd: float | None) -> None:
    """Of 12 racks at 0.15 MW each all plans pay alike; of the fabric by the watt, unless the racks' draw has it in."""
    own = {"operation__energy_usd_per_mwh": usd, "operation__staff_usd_per_year": 100.0}
    i = bare(hardware__overhead_includes_fabric=inside, network__power_usd_per_watt=3.0, **own)
    priced = at_run_prices(i, 5.0)
    assert priced.limits.operation_years is None and i.limits.operation_years is None
    assert alike_usd(i, 5.0) == pytest.approx(500 + 5 * HOURS * 12 * 0.15 * (usd or 0.0))
    watt = 0.0 if inside or usd is None else 5 * HOURS * usd * 1.5 / 1e6
    assert priced.network.power_usd_per_watt == pytest.approx(3.0 + watt)
    none = i.hardware.model_copy(update={"racks": None})
    assert alike_usd(i.model_copy(update={"hardware": none}), 5.0) == 500.0


def test_every_part_of_the_fabric_has_its_price() -> None:
    """Boxes, optics, cables, media by piece and by metre and watts are paid at first, for upkeep and once more."""
    media = [{"name": "dac", "reach_m": 3, "price_usd": 10.0, "usd_per_m": 2.0}]
    i = instance_with(network__media=media, network__power_usd_per_watt=3.0, operation=UPKEEP, **CABLES)
    n, times = at_run_prices(i, 6.0).network, 1 + 0.1 * 6 + 1
    assert n is not None and i.network is not None
    assert n.switches[0].price_usd == pytest.approx(1e4 * times)
    assert n.optics.price_usd == pytest.approx(100 * times)
    assert (n.cables.endpoint_usd, n.cables.switch_usd) == pytest.approx((30 * times, 20 * times))
    assert (n.media[0].price_usd, n.media[0].usd_per_m) == pytest.approx((10 * times, 2 * times))
    assert n.power_usd_per_watt == pytest.approx(3 * times)
    assert at_run_prices(i, 6.0).hardware.rack.price_usd == pytest.approx(2e6 * 1.6)
    alone = i.model_copy(update={"network": None})
    assert at_run_prices(alone, 6.0).network is None
