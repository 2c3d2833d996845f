"""The sites of a joint plan equal every choice of sites; pairs left out and ties in energy change no answer."""

import itertools
import math
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import angle_formulation
import numpy as np
import pyomo.environ as pyo
import pytest
from each_case import each
from joint_brute_force import toy
from joint_solved import solved
from power_grids import power_case, with_years, years_case
from site_grids import case, node, random_case
from tiers import more

import planner
from planner.checks import power_flow
from planner.checks.strategy_space_check import Space
from planner.instance.instance import Instance
from planner.models import SitesRequest
from planner.models.joint import time_bounds
from planner.models.joint.shapes import site_milp
from planner.models.joint.shapes.chosen_sites import confirmed, sites_section
from planner.models.joint.shapes.site_choice import Sites
from planner.models.joint.shapes.site_milp import stated, without_dear_pairs
from planner.models.joint.shapes.site_prices import SiteBounds, rounded_up
from planner.models.joint.shapes.site_question import Circuit, PlacedParts, SitePart, SitesExtent
from planner.models.sites.split_data import capital_musd
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, UnansweredError, Values

SWITCH = {"name": "s", "ports": 8, "port_gbps": 800, "price_usd": 100, "power_watts": 100}
NETWORK = {
    "switches": [SWITCH],
    "optics": {"name": "o", "price_usd": 5, "power_watts": 10},
    "cables": {"endpoint_usd": 3, "switch_usd": 4},
}
RACK_USD, WIDE = 1e6, Circuit(1, 1e9)


def with_network(i: Instance) -> Instance:
    """Return the instance with a network, whose power is load beside that of the racks."""
    return Instance.model_validate(i.model_dump() | {"network": NETWORK})


def bare(*racks: int) -> tuple[SitePart, ...]:
    return tuple(SitePart(1, n, ((0.0, 0.0),)) for n in racks)


def least_usd(i: Instance, racks: tuple[int, ...]) -> float:
    """Try every site for every part by the formulation with angles: the least capital, with fibre between each two."""
    names, best, sites = [n.id for n in i.grid.nodes if n.site], math.inf, Sites(instance=i)
    for chosen in itertools.permutations(names, len(racks)):
        where = dict.fromkeys(names, 0) | dict(zip(chosen, racks, strict=True))
        pins = i.pins | {f"sites.racks.{site}": n for site, n in where.items()}
        m, data = angle_formulation.by_angles(i.replaced(pins=pins), SitesRequest())
        m.goal = pyo.Objective(expr=capital_musd(m, data) + m.penalty_musd)
        outcome = highs.run(m)
        if outcome.objective is not None:
            pairs = itertools.combinations(sorted(chosen), 2)
            fibre = sum(sites.fibre_usd(data.pairs[p], WIDE.wavelengths) for p in pairs)
            best = min(best, outcome.objective * 1e6 + fibre)
    return best


def placed(i: Instance, parts: tuple[SitePart, ...], circuit: Circuit | None = WIDE) -> PlacedParts | None:
    return Sites(instance=i).cheapest(parts, circuit if len(parts) > 1 else None)


def power_faults(i: Instance, p: PlacedParts, mw: float) -> list[str]:
    """Judge the power of the section that a plan would state by the checker."""
    drawn = dict.fromkeys(p.parts, mw)
    split = sites_section(Sites(instance=i), p, drawn)
    fabric = SimpleNamespace(sites={s: SimpleNamespace(power_mw=x) for s, x in drawn.items()})
    c = PlanPhysics(plan=Plan.model_construct(planner_version="0", instance=i, sites=split, layout=None, fabric=fabric))
    return [f"{v.rule}: {v.message}" for rule in (*power_flow.YEAR_RULES, *power_flow.RULES) for v in rule(c)]


GRIDS: list[tuple[int, dict[str, Any]]] = [
    *((seed, {"n1": "full"}) for seed in range(8)),
    *((seed, {"n1": "node"}) for seed in range(12, 15)),
    *((seed, {"new": 2}) for seed in range(18, 22)),
]
MORE = [*((seed, {"n1": "full"}) for seed in range(8, 12)), *((seed, {"n1": "node"}) for seed in (15, 16, 17))]


def dc_grid(seed: int, how: dict[str, Any]) -> Instance:
    """Return a random dc grid; some seeds with a robust scenario."""
    return (years_case(seed, "robust", **how) if seed % 3 == 0 else power_case(seed, **how))[0]


@pytest.mark.parametrize(("seed", "how"), [*GRIDS, *more(*MORE)])
def test_dc_sites_equal_every_choice_by_angles(seed: int, how: dict[str, Any]) -> None:
    """Lazily separated flows and contingencies, and every year, hold in the joint MILP as in the one by angles."""
    i = dc_grid(seed, how)
    found, best = placed(i, bare(2, 1)), least_usd(i, (2, 1))
    assert (math.inf if found is None else found.capital_usd) == pytest.approx(best, rel=1e-9)
    if found is not None:
        assert power_faults(i, found, 0.0) == []


@pytest.mark.parametrize(("seed", "how"), GRIDS)
def test_a_fabric_draws_as_racks_do(seed: int, how: dict[str, Any]) -> None:
    """A part with a fabric of 1 MW stands where one with a rack of 1 MW more would: only the rack's price differs."""
    i = dc_grid(seed, how)
    found = placed(with_network(i), tuple(SitePart(1, n, ((3e4, 1.0),)) for n in (1, 1)))
    other = placed(i, bare(2, 2))
    assert (found is None) == (other is None)
    if found is not None and other is not None:
        assert found.capital_usd == pytest.approx(other.capital_usd - 2 * RACK_USD + 6e4, rel=1e-9)
        assert power_faults(with_network(i), found, 1.0) == []


def test_a_robust_scenario_binds() -> None:
    """Three racks do not stand where a year may come with 2 MW; where only the mean counts, they run less in it."""
    dry = {"name": "dry", "weight": 0.5, "headroom_mw": {"E": 2.0}}
    alone = case(node("E0"))
    assert placed(alone, bare(3)) is not None
    assert placed(with_years(alone, "robust", dry), bare(3)) is None
    two = placed(with_years(case(node("E0"), node("W0")), "robust", dry), bare(3))
    assert set(two.parts) == {"W0"}
    i = with_network(with_years(alone, "expected", dry, curtailment_usd_per_mwh=100.0))
    less = placed(i, (SitePart(1, 2, ((0.0, 1.0),)),))
    split = sites_section(Sites(instance=i), less, {"E0": 1.0})
    assert split.sites[0].facility_mw == pytest.approx(3.0)
    assert split.scenarios["dry"].running_mw == {"E0": 2.0}
    assert power_faults(i, less, 1.0) == []


def test_a_soft_rule_is_paid_in_the_capital() -> None:
    """Three racks stand on 2 MW of headroom: the third MW costs its penalty, up to the most excess."""
    soft = {"headroom": {"usd_per_year": 4e5, "max_excess": 1}}
    i, hard = (case(node("E0"), headroom={"E": 2.0}, rules=r) for r in ({"soft": soft}, {}))
    assert placed(hard, bare(3)) is None
    found, two = placed(i, bare(3)), placed(i, bare(2))
    assert found.capital_usd - two.capital_usd == pytest.approx(RACK_USD + 4e5)
    assert placed(i, bare(4)) is None
    split = sites_section(Sites(instance=i), found, {})
    assert [(x.rule, x.amount, x.usd_per_year) for x in split.excess] == [("headroom[E]", 1.0, 4e5)]


def test_money_for_a_module_of_which_one_rack_is_in_use() -> None:
    """The least capital of a plan that leaves a rack of its module idle is money enough for that plan."""
    i = toy(7, sites=1).replaced(hardware__racks_per_module=2, limits__budget_usd=1e5, objective__tolerance=0)
    least = planner.solve(i.replaced(objective__minimize="cost_usd", limits__deadline_days=1e3))
    assert least.sites.sites[0].racks == 2 and least.fabric.sites["E1"].cabled_racks == 1
    found = planner.solve(i.replaced(limits__budget_usd=least.objective.value))
    assert found.objective.value == least.layout.metrics.days_to_train and found.verified


def test_racks_beside_the_blocks_are_bought_only_where_pinned() -> None:
    i = case(node("E0"), node("E1"), rules={"min_site_modules": 2})
    assert placed(i, bare(1)) is None
    for pins in ({"sites.racks": 3}, {"sites.racks.E1": 3, "sites.racks.E0": 0}):
        found = placed(i.replaced(pins=pins), bare(1))
        assert sum(found.racks.values()) == 3
        assert found.capital_usd == pytest.approx(3 * RACK_USD)
    assert placed(i.replaced(pins={"sites.racks": 3}), bare(2, 2)) is None
    assert placed(i.replaced(pins={"sites.max_sites": 1}), bare(2, 2)) is None


def test_idle_pinned_racks_take_no_fabric() -> None:
    """Five pinned racks of 1 M$ fit 5.2 M$ with the fabric of two of them, not of all."""
    i = case(node("E0"), limits={"budget_usd": 5.2e6}, pins={"sites.racks": 5})
    network = NETWORK | {"switches": [SWITCH | {"price_usd": 8e5}]}
    sites = Sites(instance=Instance.model_validate(i.model_dump() | {"network": network}))
    each = sites.min_fabric_usd(1)
    assert each == pytest.approx(1e5, rel=1e-3)
    assert sites.max_racks(1) == math.floor(0.2e6 / each)


def test_sites_without_a_price_of_fibre_pay_the_default() -> None:
    """Without a word on fibre, two sites are joined at sourced prices; a stated 0 stays 0."""
    far = [node("E0"), node("W0")]
    usd = {}
    for name, wan in (("default", None), ("silent", {}), ("free", {"fibre_usd_per_route_km": 0, "wavelength_usd": 0})):
        i = case(*far, **({} if wan is None else {"wan": wan}))
        usd[name] = placed(i, bare(1, 1), Circuit(10, 1e9)).capital_usd
        km = Sites(instance=i).data.pairs["E0", "W0"]
    assert usd["free"] == pytest.approx(2 * RACK_USD)
    assert usd["default"] == usd["silent"] == pytest.approx(2 * RACK_USD + km * 9_700 + 10 * 60_000)


def test_the_least_power_of_a_fabric_bounds_the_racks() -> None:
    """1 MW racks with a GPU cabled draw a little more than 1 MW, so that 3 MW hold two of them."""
    i = with_network(case(node("E0"), headroom={"E": 3.0}, limits={"budget_usd": 1e8}))
    assert Sites(instance=i).max_racks(8) == 2
    assert Sites(instance=i.replaced(hardware__overhead_includes_fabric=True)).max_racks(8) == 3


@pytest.mark.parametrize("seed", [0, 4, 19, 20])
def test_what_is_cheapest_is_proven_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    i = power_case(seed, model="transport", new=1)[0]
    sites, parts = Sites(instance=with_network(i)), tuple(SitePart(1, n, ((3e4, 0.3), (2e4, 0.7))) for n in (2, 1))
    found = sites.cheapest(parts, WIDE)
    assert confirmed(sites, found, 20) in ("confirmed by a dual bound", "confirmed by CP-SAT")
    claimed = replace(found.proof, bound=found.proof.bound + 1e3)
    assert confirmed(sites, replace(found, proof=claimed), 20) == "on trust"
    monkeypatch.setattr(highs, "lower_bound", lambda *_, **__: None)
    assert confirmed(sites, found, 20) == "confirmed by CP-SAT"


def test_a_dc_question_is_asked_of_the_transport_model() -> None:
    """Where the grid binds no more under dc than by transport, the sites are proven again."""
    said = set()
    for seed, how in GRIDS[:8]:
        sites = Sites(instance=dc_grid(seed, how))
        found = sites.cheapest(bare(2, 1), WIDE)
        if found is not None:
            said.add(confirmed(sites, found, 20))
            more = replace(found.proof, bound=found.proof.bound * 1.01)
            assert confirmed(sites, replace(found, proof=more), 20) == "on trust"
    assert said & {"confirmed by CP-SAT", "confirmed by a dual bound"}


def test_an_answer_cut_short_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites that are not proven the cheapest are no answer, and a limit before any solution refuses no money."""
    sites = Sites(instance=case(node("E0"), node("E1")))
    assert sites.cheapest(bare(1), None) is not None
    run, lost = sites.run, dict[str, Any]()

    def limited(m: Any, **options: Any) -> Outcome[Values]:
        return replace(run(m, **options), stop=Stop.LIMIT, **lost)

    monkeypatch.setattr(sites, "run", limited)
    with pytest.raises(UnansweredError, match="without a proven answer"):
        sites.cheapest(bare(2), None)
    lost |= {"solution": None, "infeasible": False}
    with pytest.raises(UnansweredError, match="without an answer"):
        SiteBounds(sites=sites).exceeds(SitesExtent(1, 1, 1, 0.0), RACK_USD)


def test_sites_that_pay_a_point_pay_all_that_they_hold() -> None:
    """A site holds two racks at least, so that what pays one rack pays two, and less than two racks pays neither."""
    bounds = SiteBounds(sites=Sites(instance=case(node("E0"), rules={"min_site_modules": 2})))
    one, two = SitesExtent(1, 1, 1, 0.0), SitesExtent(1, 2, 2, 0.0)
    assert not bounds.exceeds(one, 2 * RACK_USD)
    assert not bounds.exceeds(two, 2 * RACK_USD)
    assert bounds.sites.solved == 1
    assert bounds.exceeds(one, 1.9 * RACK_USD)
    assert bounds.exceeds(two, 1.9 * RACK_USD)
    assert bounds.sites.solved == 2


def test_fabrics_whose_power_is_no_load_add_their_price_to_capital_and_bound() -> None:
    """Each part takes the cheaper of its fabrics: $20,000 and $50,000 over what the racks alone cost, proven so."""
    i = case(node("E0"), node("E1"))
    parts = (SitePart(1, 2, ((3e4, 0.3), (2e4, 0.7))), SitePart(1, 1, ((5e4, 0.1),)))
    found, alone = placed(i, parts), placed(i, bare(2, 1))
    assert found.capital_usd == pytest.approx(alone.capital_usd + 7e4)
    assert found.proof.bound == pytest.approx(found.capital_usd) != pytest.approx(alone.capital_usd)
    assert {found.racks[site]: fabric for site, (_, fabric) in found.parts.items()} == {2: 1, 1: 0}


BARE = ((0.0, 0.0),)
PARTS = [(2, 1), (2, 2), (1, 1, 1), (4, 4)]


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


def least_by_a_goal(sites: Sites, at: SitesExtent) -> float:
    """Return the least capital of a point by one MILP with a goal; infinite where no sites hold it."""
    parts = (SitePart(1, at.largest, BARE), *[SitePart(0, 1, BARE)] * (at.sites - 1))
    outcome = sites.run(stated(sites.question(parts, Circuit(1, at.rtt_ms), {}), racks=at.racks))
    return math.inf if outcome.objective is None else outcome.objective * 1e6


@pytest.mark.parametrize("seed", [1, 8, *more(0, 2, 3, 4, 5, 6, 7, 9)])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_answers_with_all_pairs_are_equal(seed: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    i = scattered(seed)
    sites = Sites(instance=i)
    rtts = sites.rtts_ms
    rtt = rtts[round(share * (len(rtts) - 1))]
    whole = answers(i, rtt)
    points = {at: least_by_a_goal(sites, at) for at in (SitesExtent(len(x), sum(x) + 1, x[0], rtt) for x in PARTS[:3])}
    for many in (site_milp.MANY_PAIRS, 0):
        monkeypatch.setattr(site_milp, "MANY_PAIRS", many)
        for at, usd in points.items():
            assert SiteBounds(sites=sites).exceeds(at, min(usd, 1e12) * (1 - 1e-6))
            assert SiteBounds(sites=sites).exceeds(at, min(usd, 1e12) * (1 + 1e-6)) == math.isinf(usd)
    assert answers(i, rtt) == pytest.approx(whole, rel=1e-9)
    assert any(math.isfinite(x) for x in whole)


def test_dear_pairs_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where fibre is dear most pairs go; without any sites there is no question left."""
    monkeypatch.setattr(site_milp, "MANY_PAIRS", 0)
    sites = Sites(instance=scattered(1))
    rtt = sites.rtts_ms[-1]
    q = sites.question((SitePart(1, 2, BARE), SitePart(1, 1, BARE)), Circuit(2, rtt), {})
    kept = without_dear_pairs(q, stated, sites.run)
    assert 0 < sum(math.isfinite(x) for x in kept.pair_usd.values()) < len(q.data.pairs) / 2
    q = sites.question((SitePart(1, 9, BARE), SitePart(1, 1, BARE)), Circuit(2, rtt), {})
    assert without_dear_pairs(q, stated, sites.run) is None


@pytest.mark.parametrize("seed", range(6))
def test_an_answer_holds_at_its_own_point(seed: int) -> None:
    """Sites that pay a point pay the tighter one that they are said to hold; what does not pay a point is below it."""
    sites = Sites(instance=scattered(seed))
    known, at = SiteBounds(sites=sites), SitesExtent(2, 3, 2, sites.rtts_ms[-1])
    usd = least_by_a_goal(sites, at)
    assert not known.exceeds(at, usd * 1.2)
    assert known.exceeds(at, usd * 0.9)
    for point, price in known.paid.items():
        assert usd * (1 - 1e-8) <= least_by_a_goal(sites, point) <= price * (1 + 1e-8) <= usd * 1.2 * (1 + 1e-8)
    for point, price in known.known.items():
        assert price < least_by_a_goal(sites, point)
    assert known.paid and known.known


def test_more_money_refused_raises_the_bound_of_every_round_trip() -> None:
    """A point that is refused again with more money has the larger bound, at its round trip and at shorter ones."""
    sites: Any = SimpleNamespace(paid_sites=lambda *_: None)
    known, at = SiteBounds(sites=sites), SitesExtent(2, 3, 2, 5.0)
    for usd in (100.0, 1e9):
        assert known.exceeds(at, usd)
        near, here, far = known.by_rtt(at, [2.0, 5.0, 9.0])
        assert near == here == known.bound(at) > usd and far == 0.0


@pytest.mark.parametrize("seed", [0, 1, 2, 3, *more(*range(4, 20))])
def test_no_site_holds_more_than_its_bound(seed: int) -> None:
    i, _ = random_case(seed)
    i = i.replaced(limits__budget_usd=None)
    most = Sites(instance=i).max_site_racks
    assert Space(instance=i, transport_slowdown=1.0).site_racks <= most
    assert placed(i, bare(most + 1)) is None


@each("head", [0.0, 0.3, 1.0, 2.5, 40.0])
@each("stages", [1, 2, 3, 5, 7])
def test_the_slowest_stage_of_the_most_even_layers(stages: int, head: float) -> None:
    """Of every way to cut layers into stages of at least one, the last with the head, the slowest takes the least."""
    for layers in range(stages, 20):
        ways = range(1, layers - stages + 2) if stages > 1 else [layers]
        slowest = [max(-(-(layers - last) // max(1, stages - 1)) * 1.25, last * 1.25 + head) for last in ways]
        found = float(time_bounds.min_slowest_seconds(layers, np.array(stages), np.array(1.25), head))
        assert found == pytest.approx(min(slowest))


def test_more_money_is_asked_for_first() -> None:
    """An amount is rounded up to one of few, never down, by 1 in 32 at most; no limit stays none."""
    amounts = [*(1.7**k for k in range(1, 80)), 1e9, 93.858e9, 2.0**36]
    for usd in amounts:
        assert usd <= rounded_up(usd) <= usd * (1 + 1 / 32) * (1 + 1e-12)
    assert len({rounded_up(90e9 + k * 1e7) for k in range(100)}) <= 2
    assert rounded_up(1e30) == 1e30 and rounded_up(0.0) == 0.0


RULES = {"grid_model": "none", "max_sites": 1}
LIMITS = {"budget_usd": 4.5e6, "max_batch_tokens": 2048}


@pytest.mark.parametrize(("cheap", "parts"), [("E", {}), ("W", {"objective": {"minimize": "cost_usd"}})])
def test_the_cheaper_of_two_equal_nodes_is_taken(cheap: str, parts: dict[str, dict[str, str]]) -> None:
    usd = {"E": 190.0, "W": 190.0} | {cheap: 20.0}
    instance = case(node("E0"), node("W0"), usd_per_mwh=usd, rules=RULES, limits=LIMITS)
    instance = type(instance).model_validate(
        instance.model_dump() | parts | ({"limits": LIMITS | {"deadline_days": 1e3}})
    )
    plan = planner.solve(instance)
    assert [s.id for s in plan.sites.sites] == [f"{cheap}0"]
    assert plan.status == plan.sites.certificate.status == "optimal"
    assert planner.check(plan) == []


def test_parts_of_two_sites_move_together() -> None:
    """Of three nodes two are open: those of the cheapest energy, whatever they are named, for no more capital."""
    usd = {"E": 50.0, "W": 20.0}
    rules = {"grid_model": "none", "min_site_modules": 1}
    nodes = [node("E0"), node("E1"), node("W0", generation_mw=2.0), node("W1", generation_mw=2.0)]
    free = {"fibre_usd_per_route_km": 0, "wavelength_usd": 0}
    instance = case(*nodes, usd_per_mwh=usd, rules=rules, limits=LIMITS, wan=free, headroom={"W": 10.0})
    plan = planner.solve(instance)
    assert {s.id[0] for s in plan.sites.sites} == {"W"}
    assert planner.check(plan) == []


@each("seed", [14, 21, 36])
def test_a_plan_claims_nothing_of_sites_farther_apart(seed: int) -> None:
    """The sites of a plan are the cheapest within their own round trip, though a longer one was allowed."""
    plan = solved(toy(seed, sites=3, forced=True)).plan
    assert plan.placed.circuit.max_rtt_ms == plan.placed.rtt_ms
