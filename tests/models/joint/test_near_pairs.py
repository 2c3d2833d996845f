"""Pairs of sites left out of a question change no answer: capital and bounds with them and without are equal."""

import math
import random
from typing import Any

import numpy as np
import pyomo.environ as pyo
import pytest
from site_grids import case, node
from tiers import more

from planner.instance.instance import Instance
from planner.models.joint import bounds
from planner.models.joint.places import near_pairs, site_bounds
from planner.models.joint.places.milp import stated
from planner.models.joint.places.near_pairs import without_dear_pairs
from planner.models.joint.places.site_bounds import SiteBounds, rounded_up
from planner.models.joint.places.site_question import Circuit, SitePart, SitesExtent
from planner.models.joint.sites import Sites

BARE = ((0.0, 0.0),)
PARTS = [(2, 1), (2, 2), (1, 1, 1), (3, 2, 1), (4, 4)]


def scattered(seed: int) -> Instance:
    """Return nine sites strewn over two interconnections, with room, energy and upgrades that differ."""
    r = random.Random(seed)
    nodes = []
    for i in range(9):
        upgrade = {"step_mw": 1, "max_steps": 3, "capex_usd": r.choice([1e5, 4e5, 8e5])}
        more: dict[str, Any] = {"latitude": r.uniform(30, 45), "longitude": r.uniform(-110, -75)}
        nodes.append(node(f"{'EW'[i % 2]}{i}", interconnect_mw=r.randint(1, 2), upgrade=upgrade, **more))
    wan = {"fibre_usd_per_route_km": r.choice([20, 300, 2000]), "wavelength_usd": 2e3}
    rules = {"grid_model": "none", "interconnect": {"enabled": True, "reading": "explicit", "share": 1.0}}
    return case(*nodes, rules=rules, wan=wan, limits={"operation_years": 2}, prices={"site_usd": 1e5})


def answers(i: Instance, most_rtt: float) -> list[float]:
    sites, found = Sites(instance=i), []
    for racks in PARTS:
        placed = sites.cheapest(tuple(SitePart(1, n, BARE) for n in racks), Circuit(2, most_rtt))
        found.append(math.inf if placed is None else placed.capital_usd)
    return found


def least_usd(sites: Sites, at: SitesExtent) -> float:
    """Return the least capital of a point by one MILP with a goal; infinite where no sites hold it."""
    parts = (SitePart(1, at.largest, BARE), *[SitePart(0, 1, BARE)] * (at.sites - 1))
    m = site_bounds.stated(sites.question(parts, Circuit(1, at.rtt_ms), {}), at.racks, math.inf)
    m.goal = pyo.Objective(expr=m.total)
    outcome = sites.run(m)
    return math.inf if outcome.objective is None else outcome.objective * 1e6


@pytest.mark.parametrize("seed", [1, 2, 8, *more(0, 3, 4, 5, 6, 7, 9)])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_answers_with_all_pairs_are_equal(seed: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    i = scattered(seed)
    sites = Sites(instance=i)
    rtts = sites.rtts_ms()
    rtt = rtts[round(share * (len(rtts) - 1))]
    whole = answers(i, rtt)
    points = {at: least_usd(sites, at) for at in (SitesExtent(len(x), sum(x) + 1, x[0], rtt) for x in PARTS[:3])}
    for many in (near_pairs.MANY_PAIRS, 0):
        monkeypatch.setattr(near_pairs, "MANY_PAIRS", many)
        for at, usd in points.items():
            assert SiteBounds(sites=sites).exceeds(at, min(usd, 1e12) * (1 - 1e-6))
            assert SiteBounds(sites=sites).exceeds(at, min(usd, 1e12) * (1 + 1e-6)) == math.isinf(usd)
    assert answers(i, rtt) == pytest.approx(whole, rel=1e-9)
    assert any(math.isfinite(x) for x in whole)


def test_dear_pairs_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where fibre is dear most pairs go; without any sites there is no question left."""
    monkeypatch.setattr(near_pairs, "MANY_PAIRS", 0)
    sites = Sites(instance=scattered(1))
    rtt = sites.rtts_ms()[-1]
    q = sites.question((SitePart(1, 2, BARE), SitePart(1, 1, BARE)), Circuit(2, rtt), {})
    kept = without_dear_pairs(q, stated, sites.run)
    assert kept is not None
    assert 0 < sum(math.isfinite(x) for x in kept.pair_usd.values()) < len(q.data.pairs) / 2
    q = sites.question((SitePart(1, 9, BARE), SitePart(1, 1, BARE)), Circuit(2, rtt), {})
    assert without_dear_pairs(q, stated, sites.run) is None


@pytest.mark.parametrize("seed", range(6))
def test_an_answer_holds_at_its_own_point(seed: int) -> None:
    """Sites that pay a point pay the tighter one that they are said to hold; what does not pay a point is below it."""
    sites = Sites(instance=scattered(seed))
    known, at = SiteBounds(sites=sites), SitesExtent(2, 3, 2, sites.rtts_ms()[-1])
    usd = least_usd(sites, at)
    assert not known.exceeds(at, usd * 1.2)
    assert known.exceeds(at, usd * 0.9)
    for point, price in known.paid.items():
        assert usd * (1 - 1e-8) <= least_usd(sites, point) <= price * (1 + 1e-8) <= usd * 1.2 * (1 + 1e-8)
    for point, price in known.known.items():
        assert price < least_usd(sites, point)
    assert known.paid and known.known


@pytest.mark.parametrize("head", [0.0, 0.3, 1.0, 2.5, 40.0])
@pytest.mark.parametrize("stages", [1, 2, 3, 5, 7])
def test_the_slowest_stage_of_the_most_even_layers(stages: int, head: float) -> None:
    """Of every way to cut layers into stages of at least one, the last with the head, the slowest takes the least."""
    for layers in range(stages, 20):
        ways = range(1, layers - stages + 2) if stages > 1 else [layers]
        slowest = [max(-(-(layers - last) // max(1, stages - 1)) * 1.25, last * 1.25 + head) for last in ways]
        found = float(bounds.min_slowest_seconds(layers, np.array(stages), np.array(1.25), head))
        assert found == pytest.approx(min(slowest))


def test_more_money_is_asked_for_first() -> None:
    """An amount is rounded up to one of few, never down, by 1 in 32 at most; no limit stays none."""
    amounts = [*(1.7**k for k in range(1, 80)), 1e9, 93.858e9, 2.0**36]
    for usd in amounts:
        assert usd <= rounded_up(usd) <= usd * (1 + 1 / 32) * (1 + 1e-12)
    assert len({rounded_up(90e9 + k * 1e7) for k in range(100)}) <= 2
    assert rounded_up(1e30) == 1e30 and rounded_up(0.0) == 0.0
