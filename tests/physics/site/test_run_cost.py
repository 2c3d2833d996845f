"""Power, cooling and the bill; the whole run by hand and by its properties, and capital at the prices of a run."""

import math
import random
from typing import Any

import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from site_grids import case, line, node
from worked_plan import instance_with, small, worked

from planner.errors import InputError
from planner.instance.hardware import Hardware, Rack
from planner.instance.instance import Instance
from planner.physics.site import cost
from planner.physics.site.cost import alike_usd, at_run_prices
from planner.plan.plan import Cost, RunPlan
from planner.plan.plan_sections import Link, NewCircuits, Site, SiteFabric, SitesPlan, Upgrade, WanPlan
from planner.planning.load import load_instance

CAPEX = {"racks": 1000.0, "fabric": 200.0, "sites": 300.0}
BILL = Cost(capex_usd=CAPEX, opex_usd_per_year={"energy": 0.0}, operation_years=0.0, total_usd=1500.0)
BARE = Cost(capex_usd={"racks": 900.0}, opex_usd_per_year={}, operation_years=0.0, total_usd=900.0)
UPKEEP = {"maintenance_share_per_year": 0.1, "staff_usd_per_year": 50.0, "fabric_life_years": 4.0}
ALL = {"hardware__rack__life_years": 2.0, "operation": UPKEEP, "workload__tokens": 1e6}
YEAR_DAYS = 365.0


def of(days: float, mw: float = 1.0, **changes: object) -> RunPlan:
    """Return the run of a site of EAST that draws so much, bought for $1,500."""
    i = instance_with(**(ALL | changes))
    return cost.run_section(i, days, BILL, {"e1": mw}, {"e1": "EAST"})


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
    """Of 2.5 years the third is half a year, and the years add up to the whole; a long run lists its first years."""
    long = of(1e4 * YEAR_DAYS)
    assert len(long.by_year) == cost.MAX_YEARS and long.replacements == {"racks": 4999, "fabric": 2499}
    x = of(2.5 * YEAR_DAYS)
    assert [y.years for y in x.by_year] == [1, 1, 0.5]
    for part, usd in x.usd.items():
        if part != "capital":
            assert sum(y.usd[part] for y in x.by_year) == pytest.approx(usd)
    assert sum(y.energy_mwh for y in x.by_year) == pytest.approx(x.energy_mwh)


def test_replacements_of_years_by_one_add_up_for_any_life() -> None:
    """A whole life replaces nothing at its end; without a life nothing is replaced."""
    years = 0.0, 1.9, 2.0, 2.1, 4.0, 4.1, 0.3 / 0.1
    assert [cost.replacements(x, 2.0) for x in years] == [0, 0, 0, 1, 1, 2, 1]
    assert cost.replacements(9.0, None) == 0
    dice = random.Random(5)
    for _ in range(300):
        years = dice.choice([dice.uniform(0, 30), float(dice.randint(0, 30))])
        life = dice.choice([0.1, 0.25, 1, 2, 3.3])
        count = math.ceil(years - 1e-9)
        by_year = [cost.replacements(years, life, n) for n in range(count)]
        assert by_year == sorted(by_year)
        assert (by_year[-1] if by_year else 0) == cost.replacements(years, life)


@each("years", [0.0, 2.0])
def test_without_figures_it_is_the_bill(years: float) -> None:
    """Where no life, upkeep and staff are given, the given years of operation cost what the bill counts."""
    plan = small(limits__operation_years=years)
    found = cost.section(plan.instance, 900.0, plan.cost, 0, plan.sites)
    assert found.years == years
    assert found.total_cost_of_ownership_usd == pytest.approx(plan.cost.total_usd, rel=1e-15)
    plan = small()  # years left out do not count against the budget: the bill has none, though the run has some
    assert plan.instance.limits.operation_years is None and plan.instance.limits.budgeted_years == 0
    assert plan.cost.operation_years == 0 and plan.cost.total_usd == sum(plan.cost.capex_usd.values())
    found = cost.section(plan.instance, 365.0, plan.cost, 0, plan.sites)
    assert found.years == 1 and found.usd["energy"] == pytest.approx(plan.cost.opex_usd_per_year["energy"])


def test_without_sites_what_is_not_known_is_said() -> None:
    """Of sites that are not chosen the racks draw, no price is known, and the section names what is left out."""
    i: Instance = instance_with()
    x = cost.section(i, 365.0, BARE, 3)
    mw = 3 * i.hardware.rack.it_kw * i.hardware.facility_overhead_factor / 1e3
    assert x.energy_mwh == pytest.approx(8760 * mw) and "energy" not in x.usd and x.carbon_tonnes is None
    assert {"grid", "network", "hardware.rack.life_years", "operation.staff_usd_per_year"} <= set(x.not_counted)
    own = {"operation": {"energy_usd_per_mwh": 100.0, "carbon_kg_per_mwh": 10.0}}  # a cluster without a grid
    x = cost.section(instance_with(**own).replaced(grid=None, wan=None, network=None), 365.0, BARE, 4)
    assert x.usd["energy"] == pytest.approx(100 * x.energy_mwh) and x.carbon_tonnes == pytest.approx(x.energy_mwh / 100)
    with pytest.raises(InputError, match=r"operation\.energy_usd_per_mwh: .* remove"):
        load_instance(instance_with(**own))


HOURS = 8760.0
CABLES = {"network__cables": {"endpoint_usd": 30.0, "switch_usd": 20.0}}


@pytest.mark.parametrize("years", [0.5, 2.0, 5.0, 8.5])
@pytest.mark.parametrize("life", [None, 3.0])
@pytest.mark.parametrize("operation", [UPKEEP | {"staff_usd_per_year": 7e4}, {}, {"staff_usd_per_year": 1.0}])
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


def bare(**changes: Any) -> Any:
    """Return the worked instance with twelve racks of a cluster, without a grid."""
    i = instance_with(**changes)
    return i.replaced(grid=None, wan=None, hardware__racks=12)


@each("inside", [True, False])
@each("usd", [None, 80.0])
def test_energy_without_a_grid(inside: bool, usd: float | None) -> None:
    """Of 12 racks at 0.15 MW each all plans pay alike; of the fabric by the watt, unless the racks' draw has it in."""
    own = {"operation__energy_usd_per_mwh": usd, "operation__staff_usd_per_year": 100.0}
    i = bare(hardware__overhead_includes_fabric=inside, network__power_usd_per_watt=3.0, **own)
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
    assert n.switches[0].price_usd == pytest.approx(1e4 * times)
    assert n.optics.price_usd == pytest.approx(100 * times)
    assert (n.cables.endpoint_usd, n.cables.switch_usd) == pytest.approx((30 * times, 20 * times))
    assert (n.media[0].price_usd, n.media[0].usd_per_m) == pytest.approx((10 * times, 2 * times))
    assert n.power_usd_per_watt == pytest.approx(3 * times)
    assert at_run_prices(i, 6.0).hardware.rack.price_usd == pytest.approx(2e6 * 1.6)
    alone = i.replaced(network=None)
    assert at_run_prices(alone, 6.0).network is None


RACK = Rack(name="rack", gpus=72, it_kw=125.0, price_usd=3e6)
HARDWARE = Hardware(accelerator="B200", rack=RACK, facility_overhead_factor=1.25, cooling_kw_per_m2=2.0)


@given(st.just(0.0) | st.floats(1e-6, 0.5), st.integers(1, 40))
def test_annuity_pays_the_dollar_back(rate: float, years: int) -> None:
    paid_back = cost.annuity(rate, years) * sum((1 + rate) ** -y for y in range(1, years + 1))
    assert paid_back == pytest.approx(1.0, rel=1e-6)


def test_the_fabric_has_no_part_of_the_racks_power_twice() -> None:
    """The overhead factor holds the fabric where it says so; else its megawatts are added before the factor.

    The facility's 3.625 GW at 2 kW/m² take 1,812,500 m²; without a density there is no area.
    """
    assert cost.cooling_m2(HARDWARE, 23_200) == pytest.approx(1_812_500.0)
    assert cost.cooling_m2(HARDWARE.replaced(cooling_kw_per_m2=None), 1) is None
    assert cost.it_mw(HARDWARE, 80, 5.0) == pytest.approx(80 * 0.125 + 5.0)
    assert cost.facility_mw(HARDWARE, 80, 5.0) == pytest.approx(15.0 * 1.25)
    assert cost.cooling_m2(HARDWARE, 80, 5.0) == pytest.approx(15.0 * 1.25 * 1e3 / 2)
    within = HARDWARE.replaced(overhead_includes_fabric=True)
    assert cost.it_mw(within, 80, 5.0) == pytest.approx(10.0)


def test_the_bill_of_a_plan() -> None:
    """Every part by hand: racks, two sites, circuits, upgrade steps, fabrics, two links, energy over three years."""
    # Sites of 3 and 5 MW of IT at the grid factor 1: 2·fixed + 8·(building + connection); 2 circuits of 7 M$ and 1 of
    # 11 M$; 3 steps of 13 M$ and 2 of 17 M$. A link of 100 km and 9 waves takes two pairs of 8.
    upgrade = {"step_mw": 5.0, "max_steps": 4}
    nodes = [node(s, upgrade=upgrade | {"capex_usd": usd}) for s, usd in (("E0", 13e6), ("W0", 17e6))]
    corridor = {"a": "E0", "b": "W0", "max_circuits": 3, "rating_mw": 10}
    new = [{"id": name, "capex_usd": usd, **corridor} for name, usd in (("x", 7e6), ("y", 11e6))]
    wan = {"fibre_usd_per_route_km": 1000, "wavelength_usd": 300, "max_wavelengths_per_pair": 8}
    i = case(*nodes, usd_per_mwh={"E": 40.0, "W": 70.0}, lines=[line("E0", "W0")], new_lines=new, wan=wan)
    i = i.replaced(limits__operation_years=3.0)
    own = {s: {"id": s, "it_mw": mw, "facility_mw": 2 * mw} for s, mw in (("E0", 3.0), ("W0", 5.0))}
    sites = SitesPlan.model_construct(
        sites=tuple(Site.model_construct(balancing_authority=s[0], **x) for s, x in own.items()),
        new_lines=(NewCircuits(line="x", circuits=2), NewCircuits(line="y", circuits=1)),
        upgrades=(Upgrade(node="E0", steps=3), Upgrade(node="W0", steps=2)),
        links=tuple(Link.model_construct(route_km=km, wavelengths=waves) for km, waves in ((100, 9), (50, 1))),
    )
    fabrics = {s: SiteFabric.model_construct(cost_usd=usd) for s, usd in (("E0", 1e6), ("W0", 2e6))}
    found, p = cost.bill(i, 8, sites, fabrics), i.grid.prices
    rack = i.hardware.rack.price_usd
    energy = 8760 * (6 * 40 + 10 * 70)
    expected = {
        "racks": 8 * rack, "fabric": 3e6,
        "sites": 2 * p.site_usd + 8 * p.building_usd_per_it_mw + 16 * p.interconnection_usd_per_mw,
        "new_lines": 2 * 7e6 + 11e6, "upgrades": 3 * 13e6 + 2 * 17e6, "wan": 2 * 100 * 1000 + 9 * 300 + 50 * 1000 + 300,
    }  # fmt: skip
    assert found.capex_usd == pytest.approx(expected)
    assert found.opex_usd_per_year == pytest.approx({"energy": energy})
    assert found.operation_years == 3
    assert found.total_usd == pytest.approx(sum(expected.values()) + 3 * energy)
    designed = cost.bill(i, 8, sites, None, WanPlan.model_construct(capex_usd=42.0)).capex_usd
    assert designed == pytest.approx({k: v for k, v in expected.items() if k != "fabric"} | {"wan": 42.0})
    bare = SitesPlan.model_construct(sites=(), new_lines=(), upgrades=(), links=())
    alone = cost.bill(i.replaced(wan=None), 8, bare, None)
    assert alone.capex_usd == pytest.approx({"racks": 8 * rack, "sites": 0, "new_lines": 0})
    assert cost.bill(i, 8, None, None).capex_usd == pytest.approx({"racks": 8 * rack})
