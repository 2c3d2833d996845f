"""The whole run: energy, replacements, upkeep and staff by site and year, worked by hand and by its properties."""

import math
import random

import pytest
from worked_plan import instance_with, small

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.physics.site import cost
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
    i = instance_with(**(ALL | changes))
    return cost.Run(i, days, BILL, {"e1": mw}, {"e1": "EAST"}).section()


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
    """Of 2.5 years the third is half a year, and the years add up to the whole."""
    x = of(2.5 * YEAR_DAYS)
    assert [y.years for y in x.by_year] == [1, 1, 0.5]
    for part, usd in x.usd.items():
        if part != "capital":
            assert sum(y.usd[part] for y in x.by_year) == pytest.approx(usd)
    assert sum(y.energy_mwh for y in x.by_year) == pytest.approx(x.energy_mwh)


@pytest.mark.parametrize(
    ("years", "times"), [(0.0, 0), (1.9, 0), (2.0, 0), (2.1, 1), (4.0, 1), (4.1, 2), (0.3 / 0.1, 1)]
)
def test_whole_lives_replace_nothing_at_their_end(years: float, times: int) -> None:
    """A run of just n lives replaces n - 1 times."""
    assert cost.replacements(years, 2.0) == times
    assert cost.replacements(years, None) == 0


def test_years_by_one_add_up_for_any_life() -> None:
    """The replacements of every year add up to those of the run, whatever life and length."""
    dice = random.Random(5)
    for _ in range(300):
        years, life = (
            dice.choice([dice.uniform(0, 30), float(dice.randint(0, 30))]),
            dice.choice([0.1, 0.25, 1, 2, 3.3]),
        )
        count = math.ceil(years - 1e-9)
        by_year = [cost.replacements_by(n, years, life) for n in range(count)]
        assert by_year == sorted(by_year)
        assert (by_year[-1] if by_year else 0) == cost.replacements(years, life)


def test_monotone() -> None:
    """A longer run, dearer energy or more upkeep never cost less, a longer life never more."""
    dice = random.Random(11)
    price = "grid__balancing_authorities__0__energy_usd_per_mwh"
    for _ in range(40):
        days, life, usd = dice.uniform(1, 6000), dice.uniform(0.2, 9), dice.uniform(0, 90)
        base = of(days, hardware__rack__life_years=life, **{price: usd}).total_cost_of_ownership_usd
        longer = of(days + dice.uniform(0, 900), hardware__rack__life_years=life, **{price: usd})
        assert longer.total_cost_of_ownership_usd >= base
        dearer = of(days, hardware__rack__life_years=life, **{price: usd + dice.uniform(0, 9)})
        assert dearer.total_cost_of_ownership_usd >= base
        lasting = of(days, hardware__rack__life_years=life + dice.uniform(0, 5), **{price: usd})
        assert lasting.total_cost_of_ownership_usd <= base
        forever = of(days, hardware__rack__life_years=None, **{price: usd})
        assert forever.total_cost_of_ownership_usd <= lasting.total_cost_of_ownership_usd


@pytest.mark.parametrize("years", [0.0, 2.0])
def test_without_figures_it_is_the_bill(years: float) -> None:
    """Where no life, upkeep and staff are given, the given years of operation cost what the bill counts."""
    plan = small(limits__operation_years=years)
    found = cost.section(plan.instance, 900.0, plan.cost, 0, plan.sites)
    assert found.years == years
    assert found.total_cost_of_ownership_usd == pytest.approx(plan.cost.total_usd, rel=1e-15)


def test_years_left_out_do_not_count_against_the_budget() -> None:
    """The bill is as it was: no year of operation, though the run has some."""
    plan = small()
    assert plan.instance.limits.operation_years is None and plan.instance.limits.budgeted_years == 0
    assert plan.cost.operation_years == 0 and plan.cost.total_usd == sum(plan.cost.capex_usd.values())
    found = cost.section(plan.instance, 365.0, plan.cost, 0, plan.sites)
    assert found.years == 1 and found.usd["energy"] == pytest.approx(plan.cost.opex_usd_per_year["energy"])


def test_without_sites_what_is_not_known_is_said() -> None:
    """Of sites that are not chosen the racks draw, no price is known, and the section names what is left out."""
    i: Instance = instance_with()
    bare = Cost(capex_usd={"racks": 900.0}, opex_usd_per_year={}, operation_years=0.0, total_usd=900.0)
    x = cost.section(i, 365.0, bare, 3)
    mw = 3 * i.hardware.rack.it_kw * i.hardware.facility_overhead_factor / 1e3
    assert x.energy_mwh == pytest.approx(8760 * mw) and "energy" not in x.usd and x.carbon_tonnes is None
    assert {"grid", "network", "hardware.rack.life_years", "operation.staff_usd_per_year"} <= set(x.not_counted)


def test_a_cluster_without_a_grid_has_its_own_price() -> None:
    """The price of energy of the operation counts where no grid has one, and only there."""
    own = {"operation": {"energy_usd_per_mwh": 100.0, "carbon_kg_per_mwh": 10.0}}
    i = instance_with(**own).model_copy(update={"grid": None, "wan": None, "network": None})
    bare = Cost(capex_usd={"racks": 900.0}, opex_usd_per_year={}, operation_years=0.0, total_usd=900.0)
    x = cost.section(i, 365.0, bare, 4)
    assert x.usd["energy"] == pytest.approx(100 * x.energy_mwh) and x.carbon_tonnes == pytest.approx(x.energy_mwh / 100)
    with pytest.raises(InputError, match=r"operation\.energy_usd_per_mwh: .* remove"):
        load_instance(instance_with(**own))


def test_a_long_run_lists_its_first_years() -> None:
    """Ten thousand years are summed in full and listed for a hundred."""
    x = of(1e4 * YEAR_DAYS)
    assert len(x.by_year) == cost.MAX_YEARS and x.replacements == {"racks": 4999, "fabric": 2499}
