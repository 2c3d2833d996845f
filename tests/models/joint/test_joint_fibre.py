"""Designed fibre between the sites of a joint plan: the cheapest sites with their design, of all choices."""

import itertools
import math
from dataclasses import replace

import pytest
from wan_graphs import random_case

from planner.instance.instance import Instance
from planner.models.joint.places.section import sites_section, wan_section
from planner.models.joint.sites import Circuit, Part, Sites
from planner.models.requests import GradientExchange, Options, WanRequest
from planner.models.wan import solve as wan_design
from planner.physics.site import wan

PARTS = (Part(1, 2, ((0.0, 0.0),)), Part(1, 1, ((0.0, 0.0),)))
RACKS_USD = 3e6


def three_sites(seed: int) -> Instance:
    """Return a random graph of fibre between three candidate sites."""
    return next(
        i for i in (random_case(k)[0] for k in range(10 * seed, 10 * seed + 200)) if i.grid and len(i.grid.nodes) == 3
    )


def request_of(i: Instance, sites: tuple[str, ...], circuit: Circuit, km: float) -> WanRequest:
    """Return what two sites exchange: a ring's bytes at the rate of the wavelengths, and one round trip."""
    w = i.wan
    assert w is not None
    rate = circuit.wavelengths * w.wavelength_gbps * 1e9 / w.headroom_factor
    seconds = 8 * wan.exchange_bytes(circuit.stage_bytes, 2) / rate + w.round_trips * wan.rtt_ms(w, km) / 1e3
    asked = GradientExchange(stage_bytes=circuit.stage_bytes, window_seconds=seconds)
    return WanRequest(sites=sites, exchanging=sites, exchange=asked, capital=True)


@pytest.mark.parametrize("seed", range(16))
def test_the_cheapest_of_all_pairs_with_its_design(seed: int) -> None:
    """Capital and design are those of the pair of sites that costs least, each pair designed on its own."""
    i, circuit = three_sites(seed), Circuit(1 + seed % 3, 1e9, 2e9)
    sites, best, found_any = Sites(instance=i), math.inf, False
    for pair, km in sites.data.pairs.items():
        limit = sites.data.grid.rules.max_rtt_ms
        if pair in sites.data.disconnected or (limit is not None and sites.data.rtt_ms(pair) > limit):
            continue
        plan = wan_design.solve(i, request_of(i, pair, circuit, km), Options()).solution
        best = min(best, math.inf if plan is None else plan.capex_usd)
        found_any |= plan is not None
    found = sites.cheapest(PARTS, circuit)
    assert (found is not None) == found_any
    if found is None:
        return
    assert found.wan is not None
    assert found.capital_usd == pytest.approx(RACKS_USD + best, rel=1e-12)
    assert found.wan.capex_usd == pytest.approx(best)
    known, any_size = sites.least(PARTS, circuit), sites.least(PARTS, replace(circuit, stage_bytes=0.0))
    assert any_size <= known * (1 + 1e-12)
    assert known == pytest.approx(found.capital_usd, rel=1e-9)
    assert sites.fibre.least_usd(circuit.stage_bytes)[circuit.wavelengths] <= found.wan.capex_usd * (1 + 1e-9)
    links = sites_section(sites, found, {}).links
    assert [(k.a, k.b, k.wavelengths) for k in links] == [(*sorted(found.parts), circuit.wavelengths)]
    assert wan_section(sites, found) == found.wan


@pytest.mark.parametrize("seed", range(8))
def test_more_wavelengths_never_cost_less(seed: int) -> None:
    """Without other traffic, each wavelength more needs no less fibre, in the bound as in the design."""
    sites = Sites(instance=three_sites(seed))
    usd = []
    for n in range(1, 5):
        found = sites.cheapest(PARTS, Circuit(n, 1e9, 2e9))
        usd.append((sites.least(PARTS, Circuit(n, 1e9)), math.inf if found is None else found.capital_usd))
    for (a, x), (b, y) in itertools.pairwise(usd):
        assert a <= b * (1 + 1e-12)
        assert x <= y * (1 + 1e-9)


def test_three_sites_take_a_form_between_them() -> None:
    """Three parts stand at three sites, whose exchange goes round or over one of them, as designed for all three."""
    plans = [Sites(instance=three_sites(seed)).cheapest((*PARTS, PARTS[1]), Circuit(1, 1e9, 2e9)) for seed in range(16)]
    forms = {p.wan.exchange for p in plans if p is not None and p.wan is not None}
    assert {"ring", "tree"} & forms
    assert all(p.wan.capex_usd + RACKS_USD + 1e6 == pytest.approx(p.capital_usd) for p in plans if p and p.wan)
