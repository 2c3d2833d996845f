"""Power, cooling and money."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.instance.grid import Grid, SitePrices
from planner.instance.hardware import Hardware, Rack
from planner.instance.network import Cables, Network, Optics, Switch
from planner.instance.wan import Wan
from planner.physics.site import cost, power

RACK = Rack(name="rack", gpus=72, it_kw=125.0, price_usd=3e6)
HARDWARE = Hardware(accelerator="B200", rack=RACK, facility_overhead_factor=1.25, cooling_kw_per_m2=2.0)
SWITCH = Switch(name="box", ports=64, port_gbps=800.0, price_usd=50_000.0, power_watts=2_000.0)
OPTICS = Optics(name="dr8", price_usd=1_000.0, power_watts=15.0)
CABLES = Cables(endpoint_usd=100.0, endpoint_transceivers=1, switch_usd=200.0, switch_transceivers=2)
NETWORK = Network(switches=(SWITCH,), optics=OPTICS, cables=CABLES)
PRICES = SitePrices(
    building_usd_per_it_mw=10e6,
    interconnection_usd_per_mw=1e5,
    site_usd=5e6,
    discount_rate=0.07,
    site_life_years=20.0,
    it_life_years=5.0,
)
GRID = Grid(balancing_authorities=(), nodes=(), prices=PRICES)
WAN = Wan(fibre_usd_per_route_km=1_000.0, wavelength_usd=40_000.0, fibre_life_years=20.0, max_wavelengths_per_pair=96)


def test_power_of_the_hundred_billion_dollar_datacentre() -> None:
    """23,200 racks of 125 kW draw 2.9 GW, with a quarter more for the facility 3.625 GW."""
    assert power.it_mw(HARDWARE, 23_200) == pytest.approx(2900.0)
    assert power.facility_mw(HARDWARE, 23_200) == pytest.approx(3625.0)


def test_cooling_area() -> None:
    """The facility's 3.625 GW at 2 kW/m² take 1,812,500 m²; without a density there is no area."""
    assert power.cooling_m2(HARDWARE, 23_200) == pytest.approx(1_812_500.0)
    assert power.cooling_m2(HARDWARE.model_copy(update={"cooling_kw_per_m2": None}), 1) is None


def test_a_rack_by_name_is_refused() -> None:
    """A name left unresolved is an error that says so."""
    with pytest.raises(TypeError, match="is a name"):
        power.it_mw(Hardware(accelerator="x", rack="NVL72"), 1)


@pytest.mark.parametrize(
    ("rate", "years", "payment"), [(0.07, 20, 0.0943929), (0.07, 1, 1.07), (0.07, 5, 0.2438907), (0.0, 20, 0.05)]
)
def test_annuity(rate: float, years: float, payment: float) -> None:
    """7 % over 20 years is 9.43929 cents per dollar, over one year 1.07; without interest 1/n."""
    assert cost.annuity(rate, years) == pytest.approx(payment, rel=1e-6)


@given(st.floats(1e-6, 0.5), st.integers(1, 40))
def test_annuity_pays_the_dollar_back(rate: float, years: int) -> None:
    """Its payments, discounted, are worth the dollar."""
    assert cost.annuity(rate, years) * sum((1 + rate) ** -y for y in range(1, years + 1)) == pytest.approx(
        1.0, rel=1e-6
    )


def test_energy() -> None:
    """A megawatt for a year at $50/MWh is $438,000."""
    assert cost.energy_usd_per_year(1.0, 50.0) == pytest.approx(438_000.0)


def test_links() -> None:
    """An endpoint link has one transceiver here and a switch link two."""
    assert cost.endpoint_link_usd(NETWORK) == pytest.approx(1_100.0)
    assert cost.switch_link_usd(NETWORK) == pytest.approx(2_200.0)


def test_fabric() -> None:
    """Two switches, 3 links between them and 5 endpoints: $112,100 and 4,165 W."""
    assert cost.fabric_usd(NETWORK, SWITCH, switches=2, switch_links=3, endpoint_links=5) == pytest.approx(
        100_000 + 6_600 + 5_500
    )
    assert cost.fabric_mw(NETWORK, SWITCH, switches=2, switch_links=3, endpoint_links=5) == pytest.approx(
        (4_000 + 15 * 11) / 1e6
    )


def test_site() -> None:
    """A site of 100 MW IT and 125 MW facility costs 5 + 1,000 + 12.5 M$."""
    assert cost.site_capex_usd(GRID, it_mw=100.0, facility_mw=125.0) == pytest.approx(1_017.5e6)


def test_wan_link() -> None:
    """97 wavelengths over 1,000 km take two pairs, $2M of fibre over 20 years and $3.88M of equipment over 5."""
    assert cost.wan_fibre_usd(WAN, 1_000.0, 97) == pytest.approx(2e6)
    assert cost.wan_fibre_usd(WAN, 1_000.0, 96) == pytest.approx(1e6)
    assert cost.wan_wavelength_usd(WAN, 97) == pytest.approx(3.88e6)
    assert cost.link_usd_per_year(
        GRID, WAN, (1_000.0 * WAN.fibre_usd_per_route_km, WAN.wavelength_usd), 97
    ) == pytest.approx(2e6 * 0.0943929 + 3.88e6 * 0.2438907, rel=1e-6)
