"""Designed fibre between the sites of a joint plan: the cheapest sites with their design, of all choices."""

import math
from dataclasses import replace

import pytest
from each_case import each
from wan_graphs import random_case

from planner.instance.instance import Instance
from planner.models import GradientExchange, Options, WanRequest
from planner.models import wan as wan_design
from planner.models.joint.places.section import sites_section, wan_section
from planner.models.joint.places.site_question import Circuit, Joined, SitePart
from planner.models.joint.sites import Sites
from planner.physics.site import wan

PARTS = (SitePart(1, 2, ((0.0, 0.0),)), SitePart(1, 1, ((0.0, 0.0),)))
RACKS_USD = 3e6


def three_sites(seed: int) -> Instance:
    """Return a random graph of fibre between three candidate sites."""
    return next(
        i for i in (random_case(k)[0] for k in range(10 * seed, 10 * seed + 200)) if i.grid and len(i.grid.nodes) == 3
    )


def request_of(i: Instance, sites: tuple[str, ...], circuit: Circuit, km: float) -> WanRequest:
    """Return what two sites exchange: a ring's bytes at the rate of the wavelengths, and one round trip."""
    w = i.wan
    rate = circuit.wavelengths * w.wavelength_gbps * 1e9 / w.headroom_factor
    seconds = 8 * wan.exchange_bytes(circuit.stage_bytes, 2) / rate + w.round_trips * wan.rtt_ms(w, km) / 1e3
    asked = GradientExchange(stage_bytes=circuit.stage_bytes, window_seconds=seconds)
    return WanRequest(sites=sites, exchanging=sites, exchange=asked, capital=True)


@pytest.mark.parametrize("seed", range(16))
def test_the_cheapest_of_all_pairs_with_its_design(seed: int) -> None:
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
    assert found.capital_usd == pytest.approx(RACKS_USD + best, rel=1e-12)
    assert found.wan.capex_usd == pytest.approx(best)
    known, any_size = sites.least(PARTS, circuit), sites.least(PARTS, replace(circuit, stage_bytes=0.0))
    assert any_size <= known * (1 + 1e-12)
    assert known == pytest.approx(found.capital_usd, rel=1e-9)
    assert sites.fibre.least_usd(circuit.stage_bytes)[circuit.wavelengths] <= found.wan.capex_usd * (1 + 1e-9)
    links = sites_section(sites, found, {}).links
    assert [(k.a, k.b, k.wavelengths) for k in links] == [(*sorted(found.parts), circuit.wavelengths)]
    assert wan_section(sites, found) == found.wan


def test_three_sites_take_a_form_between_them() -> None:
    """Three parts stand at three sites, whose exchange goes round or over one of them, as designed for all three."""
    plans = [Sites(instance=three_sites(seed)).cheapest((*PARTS, PARTS[1]), Circuit(1, 1e9, 2e9)) for seed in range(16)]
    forms = {p.wan.exchange for p in plans if p is not None and p.wan is not None}
    assert {"ring", "tree"} & forms
    assert all(p.wan.capex_usd + RACKS_USD + 1e6 == pytest.approx(p.capital_usd) for p in plans if p and p.wan)


@each("count", [1, 2, 3])
def test_what_some_sites_ask_of_their_fibre(count: int) -> None:
    """One site exchanges nothing in the time given; several what their ring moves at the rate, behind a round trip."""
    # The trip is that of the two farthest apart; sites that hold no part are joined, and exchange nothing.
    sites, circuit = Sites(instance=three_sites(0)), Circuit(2, 1e9, 2e9)
    names, data, w = sorted(sites.data.candidates), sites.data, sites.data.wan
    holding = frozenset(names[:count])
    asked = sites.fibre.request(Joined(open=frozenset(names), holding=holding), circuit, 7.0)
    assert (asked.sites, asked.exchanging, asked.capital) == (tuple(names), tuple(sorted(holding)), True)
    if count == 1:
        assert asked.exchange == GradientExchange(stage_bytes=0.0, window_seconds=7.0)
        return
    rate = 2 * w.wavelength_gbps * 1e9 / w.headroom_factor
    far = max(wan.rtt_ms(w, km) for pair, km in data.pairs.items() if set(pair) <= holding)
    moved = 8 * 2 * (count - 1) / count * circuit.stage_bytes / rate
    assert asked.exchange.stage_bytes == circuit.stage_bytes
    assert asked.exchange.window_seconds == pytest.approx(moved + w.round_trips * far / 1e3)
    alone = sites.fibre.request(Joined(open=frozenset(names), holding=holding), None, 7.0)
    assert alone.exchange == GradientExchange(stage_bytes=0.0, window_seconds=7.0)


@each("form", ["ring", "tree"])
def test_wavelengths_of_a_longer_route(form: str) -> None:
    """On a longer route the same bytes have less time: n wavelengths become n over the share that is left."""
    # A GB at n waves of 100 Gbps takes 8/(100·n) s; 10 ms late leaves 1 - 0.01·100·n/8 of it. A tree sends twice as
    # much.
    i = three_sites(0)
    i = i.model_copy(update={"wan": i.wan.model_copy(update={"exchange": form, "headroom_factor": 1.0})})
    fibre, times = Sites(instance=i).fibre, 2 if form == "tree" else 1
    found = fibre._waves(0.01, 1e9)
    assert found[0] == 0
    for n in range(1, len(found)):
        share = 1 - 0.01 * 100 * n / 8
        assert found[n] == (math.ceil(times * n / share - 1e-9) if share > 0 else math.inf)
    assert fibre._waves(0.0, 1e9).tolist() == fibre._waves(0.01, 0.0).tolist() == [times * n for n in range(len(found))]
