"""Power, cooling and money."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from site_grids import case, line, node

from planner.instance.grid import Grid, SitePrices
from planner.instance.hardware import Hardware, Rack
from planner.instance.network import Wan
from planner.physics.site import cost, site_power
from planner.plan.plan_sections import Link, NewCircuits, Site, SiteFabric, SitesPlan, Upgrade, WanPlan

RACK = Rack(name="rack", gpus=72, it_kw=125.0, price_usd=3e6)
HARDWARE = Hardware(accelerator="B200", rack=RACK, facility_overhead_factor=1.25, cooling_kw_per_m2=2.0)
PRICES = SitePrices(
    building_usd_per_it_mw=10e6, interconnection_usd_per_mw=1e5, site_usd=5e6, discount_rate=0.07, site_life_years=20.0,
    it_life_years=5.0,
)  # fmt: skip
GRID = Grid(balancing_authorities=(), nodes=(), prices=PRICES)
WAN = Wan(fibre_usd_per_route_km=1_000.0, wavelength_usd=40_000.0, fibre_life_years=20.0, max_wavelengths_per_pair=96)


@given(st.floats(1e-6, 0.5), st.integers(1, 40))
def test_annuity_pays_the_dollar_back(rate: float, years: int) -> None:
    """What is paid year by year is worth the dollar; without interest it is an equal part of it."""
    assert cost.annuity(0.0, years) == 1 / years
    worth = sum((1 + rate) ** -y for y in range(1, years + 1))
    assert cost.annuity(rate, years) * worth == pytest.approx(1.0, rel=1e-6)


def test_wan_link() -> None:
    """97 wavelengths over 1,000 km take two pairs, $2M of fibre over 20 years and $3.88M of equipment over 5."""
    prices = 1_000.0 * WAN.fibre_usd_per_route_km, WAN.wavelength_usd
    for waves, pairs in ((0, 0), (1, 1), (96, 1), (97, 2)):
        assert cost.link_capex_usd(WAN, prices, waves) == pytest.approx(pairs * 1e6 + waves * 40_000)
    yearly = 2e6 * 0.0943929 + 3.88e6 * 0.2438907
    assert cost.link_usd_per_year(GRID, WAN, prices, 97) == pytest.approx(yearly, rel=1e-6)


def test_the_fabric_has_no_part_of_the_racks_power_twice() -> None:
    """The overhead factor holds the fabric where it says so; else its megawatts are added before the factor."""
    assert site_power.it_mw(HARDWARE, 80, 5.0) == pytest.approx(80 * 0.125 + 5.0)
    assert site_power.facility_mw(HARDWARE, 80, 5.0) == pytest.approx(15.0 * 1.25)
    assert site_power.cooling_m2(HARDWARE, 80, 5.0) == pytest.approx(15.0 * 1.25 * 1e3 / 2)
    assert site_power.it_mw(HARDWARE.replaced(overhead_includes_fabric=True), 80, 5.0) == pytest.approx(10.0)
    assert site_power.cooling_m2(HARDWARE.replaced(cooling_kw_per_m2=None), 1) is None


def test_the_bill_of_a_plan() -> None:
    """Every part by hand: racks, two sites, circuits, upgrade steps, fabrics, two links, energy over three years."""
    # Sites of 3 and 5 MW of IT at the grid factor 1: 2·fixed + 8·(building + connection); 2 circuits of 7 M$ and 1 of
    # 11 M$; 3 steps of 13 M$ and 2 of 17 M$. A link of 100 km and 9 waves takes two pairs of 8.
    upgrade = {"step_mw": 5.0, "max_steps": 4}
    i = case(
        node("E0", upgrade=upgrade | {"capex_usd": 13e6}),
        node("W0", upgrade=upgrade | {"capex_usd": 17e6}),
        usd_per_mwh={"E": 40.0, "W": 70.0},
        lines=[line("E0", "W0")],
        new_lines=[
            {"id": name, "a": "E0", "b": "W0", "max_circuits": 3, "rating_mw": 10, "capex_usd": usd}
            for name, usd in (("x", 7e6), ("y", 11e6))
        ],
        wan={"fibre_usd_per_route_km": 1000, "wavelength_usd": 300, "max_wavelengths_per_pair": 8},
    )
    i = i.replaced(limits__operation_years=3.0)
    sites = SitesPlan.model_construct(
        sites=tuple(
            Site.model_construct(id=s, balancing_authority=s[0], it_mw=mw, facility_mw=2 * mw)
            for s, mw in (("E0", 3.0), ("W0", 5.0))
        ),
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
