"""The whole run by hand and by its properties; capital at the prices of a run is what the run costs."""

import math
import random

import pytest
from each_case import each
from worked_plan import instance_with, small, worked

from planner.errors import InputError
from planner.physics.site import cost
from planner.physics.site.cost import alike_usd, at_run_prices
from planner.plan.plan import Cost, RunPlan
from planner.planning.load import load_instance

BILL = Cost(
    capex_usd={"racks": 1000.0, "fabric": 200.0, "sites": 300.0},
    opex_usd_per_year={"energy": 0.0},
    operation_years=0.0,
    total_usd=1500.0,
)
ALL = {
    "hardware__rack__life_years": 2.0,
    "operation": {"maintenance_share_per_year": 0.1, "staff_usd_per_year": 50.0, "fabric_life_years": 4.0},
    "workload__tokens": 1e6,
}
YEAR_DAYS = 365.0


def of(days: float, mw: float = 1.0, **changes: object) -> RunPlan:
    """Return the run of a site of EAST that draws so much, bought for $1,500."""
    return cost.run_section(instance_with(**(ALL | changes)), days, BILL, {"e1": mw}, {"e1": "EAST"})


def test_a_run_by_hand() -> None:
    """Of 5 years: racks of a life of 2 replaced twice, the fabric of 4 once, 43,800 MWh at $40, a tenth of upkeep."""
    x = of(5 * YEAR_DAYS, grid__balancing_authorities__0__carbon_kg_per_mwh=500)
    assert x.years == 5 and x.replacements == {"racks": 2, "fabric": 1}
    expected = {"capital": 1500, "energy": 43800 * 40, "maintenance": 600, "staff": 250}
    expected |= {"rack_replacement": 2000, "fabric_replacement": 200}
    assert x.usd == pytest.approx(expected)
    total = sum(expected.values())
    assert x.total_cost_of_ownership_usd == pytest.approx(total) and x.usd_per_million_tokens == pytest.approx(total)
    assert x.energy_mwh == pytest.approx(43800) and x.carbon_tonnes == pytest.approx(21900)
    assert x.energy_joules_per_token == pytest.approx(1e6 * 5 * 8760 * 3600 / 1e6)  # 1 MW for 5 years, a million tokens
    assert [y.usd["rack_replacement"] for y in x.by_year] == [0, 0, 1000, 0, 1000]
    assert [y.usd["fabric_replacement"] for y in x.by_year] == [0, 0, 0, 0, 200]
    assert {y.energy_mwh for y in x.by_year} == {8760.0} and x.not_counted == ()


def test_the_last_year_is_a_part() -> None:
    """Of 2.5 years the third is half a year, and the years add up to the whole; a long run lists its first ones."""
    x = of(2.5 * YEAR_DAYS)
    assert [y.years for y in x.by_year] == [1, 1, 0.5]
    for part in x.usd.keys() - {"capital"}:
        assert sum(y.usd[part] for y in x.by_year) == pytest.approx(x.usd[part])
    assert sum(y.energy_mwh for y in x.by_year) == pytest.approx(x.energy_mwh)
    x = of(1e4 * YEAR_DAYS)
    assert len(x.by_year) == cost.MAX_YEARS and x.replacements == {"racks": 4999, "fabric": 2499}


@each(("years", "times"), [(0.0, 0), (1.9, 0), (2.0, 0), (2.1, 1), (4.0, 1), (4.1, 2), (0.3 / 0.1, 1)])
def test_whole_lives_replace_nothing_at_their_end(years: float, times: int) -> None:
    assert cost.replacements(years, 2.0) == times
    assert cost.replacements(years, None) == 0


def test_years_by_one_add_up_for_any_life() -> None:
    dice = random.Random(5)
    for _ in range(300):
        years, life = dice.choice([dice.uniform(0, 30), dice.randint(0, 30)]), dice.choice([0.1, 0.25, 1, 2, 3.3])
        by_year = [cost.replacements(years, life, n) for n in range(math.ceil(years - 1e-9))]
        assert by_year == sorted(by_year)
        assert (by_year[-1] if by_year else 0) == cost.replacements(years, life)


@each("years", [0.0, 2.0, None])
def test_without_figures_it_is_the_bill(years: float | None) -> None:
    """Where no life, upkeep and staff are given, the given years of operation cost what the bill counts."""
    # Years left out are those of the run, of which the bill counts none.
    plan = small(limits__operation_years=years)
    found = cost.section(plan.instance, 365.0, plan.cost, 0, plan.sites)
    assert found.years == (1 if years is None else years)
    own = plan.cost.opex_usd_per_year["energy"] if years is None else 0.0
    assert plan.instance.limits.budgeted_years == plan.cost.operation_years == (years or 0)
    assert found.total_cost_of_ownership_usd == pytest.approx(plan.cost.total_usd + own, rel=1e-15)


BARE = Cost(capex_usd={"racks": 900.0}, opex_usd_per_year={}, operation_years=0.0, total_usd=900.0)


def test_without_sites_what_is_not_known_is_said() -> None:
    """Of sites that are not chosen the racks draw, no price is known, and the section names what is left out."""
    i = instance_with()
    x = cost.section(i, 365.0, BARE, 3)
    mw = 3 * i.hardware.rack.it_kw * i.hardware.facility_overhead_factor / 1e3
    assert x.energy_mwh == pytest.approx(8760 * mw) and "energy" not in x.usd and x.carbon_tonnes is None
    assert {"grid", "network", "hardware.rack.life_years", "operation.staff_usd_per_year"} <= set(x.not_counted)


def test_a_cluster_without_a_grid_has_its_own_price() -> None:
    own = {"operation": {"energy_usd_per_mwh": 100.0, "carbon_kg_per_mwh": 10.0}}
    x = cost.section(instance_with(**own).replaced(grid=None, wan=None, network=None), 365.0, BARE, 4)
    assert x.usd["energy"] == pytest.approx(100 * x.energy_mwh) and x.carbon_tonnes == pytest.approx(x.energy_mwh / 100)
    with pytest.raises(InputError, match=r"operation\.energy_usd_per_mwh: .* remove"):
        load_instance(instance_with(**own))


HOURS = 8760.0
UPKEEP = {"maintenance_share_per_year": 0.1, "staff_usd_per_year": 7e4, "fabric_life_years": 4.0}
CABLES = {"network__cables": {"endpoint_usd": 30.0, "switch_usd": 20.0}}


@pytest.mark.parametrize("years", [0.5, 2.0, 5.0, 8.5])
@pytest.mark.parametrize("life", [None, 3.0])
@pytest.mark.parametrize("operation", [UPKEEP, {}, {"staff_usd_per_year": 1.0}])
@pytest.mark.parametrize("cables", [CABLES, {}])
def test_capital_at_run_prices_is_what_the_run_costs(years, life, operation, cables) -> None:
    """Racks and fabric with upkeep and replacements, sites as they are, and the energy of so many years."""
    figures = {"hardware__rack__life_years": life, "operation": operation, "network__power_usd_per_watt": 3.0} | cables
    plan = small(**figures)
    run = cost.section(plan.instance, years * 365, plan.cost, 0, plan.sites)
    priced = worked(at_run_prices(plan.instance, years))
    found = priced.cost.total_usd + alike_usd(plan.instance, years)
    assert found == pytest.approx(run.total_cost_of_ownership_usd, rel=1e-12)
    assert alike_usd(plan.instance, years) == years * operation.get("staff_usd_per_year", 0.0)


@each("inside", [True, False])
@each("usd", [None, 80.0])
def test_energy_without_a_grid(inside: bool, usd: float | None) -> None:
    """Of 12 racks at 0.15 MW each all plans pay alike; of the fabric by the watt, unless the racks' draw has it in."""
    own = {"operation__energy_usd_per_mwh": usd, "operation__staff_usd_per_year": 100.0}
    i = instance_with(hardware__overhead_includes_fabric=inside, network__power_usd_per_watt=3.0, **own)
    i = i.replaced(grid=None, wan=None, hardware__racks=12)
    priced = at_run_prices(i, 5.0)
    assert priced.limits.operation_years is None and i.limits.operation_years is None
    assert alike_usd(i, 5.0) == pytest.approx(500 + 5 * HOURS * 12 * 0.15 * (usd or 0.0))
    watt = 0.0 if inside or usd is None else 5 * HOURS * usd * 1.5 / 1e6
    assert priced.network.power_usd_per_watt == pytest.approx(3.0 + watt)
    assert alike_usd(i.replaced(hardware__racks=None), 5.0) == 500.0


def test_every_part_of_the_fabric_has_its_price() -> None:
    """Boxes, optics, cables, media by piece and by metre and watts are paid at first, for upkeep and once more."""
    media = [{"name": "dac", "reach_m": 3, "price_usd": 10.0, "usd_per_m": 2.0}]
    i = instance_with(network__media=media, network__power_usd_per_watt=3.0, operation=UPKEEP, **CABLES)
    n, times = at_run_prices(i, 6.0).network, 1 + 0.1 * 6 + 1
    assert n is not None and i.network is not None
    paid = n.switches[0].price_usd, n.optics.price_usd, n.cables.endpoint_usd, n.cables.switch_usd
    paid += n.media[0].price_usd, n.media[0].usd_per_m, n.power_usd_per_watt
    assert paid == pytest.approx([usd * times for usd in (1e4, 100, 30, 20, 10, 2, 3)])
    assert at_run_prices(i, 6.0).hardware.rack.price_usd == pytest.approx(2e6 * 1.6)
    assert at_run_prices(i.replaced(network=None), 6.0).network is None
