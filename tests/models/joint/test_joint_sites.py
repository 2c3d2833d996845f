"""The sites of a joint plan: equal to every choice of sites, whatever the grid; racks, fabrics, soft rules and pins."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import angle_formulation
import pyomo.environ as pyo
import pytest
from power_grids import power_case, with_years, years_case
from site_grids import case, node
from tiers import more

from planner.checks import power_flow
from planner.instance.instance import Instance
from planner.models.joint.places.confirm import confirmed
from planner.models.joint.places.section import sites_section
from planner.models.joint.places.site_bounds import SiteBounds
from planner.models.joint.places.site_question import Circuit, PlacedParts, SitePart, SitesExtent
from planner.models.joint.sites import Sites
from planner.models.requests import SitesRequest
from planner.models.sites.model import penalty_musd
from planner.models.sites.split_data import capital_musd
from planner.physics.plan_physics import PlanPhysics
from planner.plan.plan import Plan
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, UnansweredError

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


def with_pins(i: Instance, **racks: int) -> Instance:
    """Return the instance with racks of single sites pinned."""
    return i.model_copy(update={"pins": {**i.pins, **{f"sites.racks.{s}": n for s, n in racks.items()}}})


def bare(*racks: int) -> tuple[SitePart, ...]:
    """Return parts of so many racks without fabrics."""
    return tuple(SitePart(1, n, ((0.0, 0.0),)) for n in racks)


def least_usd(i: Instance, racks: tuple[int, ...]) -> float:
    """Try every site for every part by the formulation with angles: the least capital, with fibre between each two."""
    assert i.grid is not None
    names, best, sites = [n.id for n in i.grid.nodes if n.site], math.inf, Sites(instance=i)
    for chosen in itertools.permutations(names, len(racks)):
        where = dict.fromkeys(names, 0) | dict(zip(chosen, racks, strict=True))
        m, data = angle_formulation.by_angles(with_pins(i, **where), SitesRequest())
        m.goal = pyo.Objective(expr=capital_musd(m, data) + penalty_musd(m, data))
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


def test_contingencies_bind() -> None:
    """The cases above would prove little if none were dearer for what the grid must survive."""

    def usd(i: Instance) -> float:
        found = placed(i, bare(2, 1))
        return math.inf if found is None else found.capital_usd

    secure = [(usd(dc_grid(s, h)), usd(power_case(s)[0])) for s, h in GRIDS[:8] if s % 3]
    assert any(a > b * (1 + 1e-9) for a, b in secure)
    assert all(a >= b * (1 - 1e-9) for a, b in secure)


def test_a_robust_scenario_binds() -> None:
    """Three racks do not stand where a year may come with 2 MW; where only the mean counts, they run less in it."""
    dry = {"name": "dry", "weight": 0.5, "headroom_mw": {"E": 2.0}}
    alone = case(node("E0"))
    assert placed(alone, bare(3)) is not None
    assert placed(with_years(alone, "robust", dry), bare(3)) is None
    two = placed(with_years(case(node("E0"), node("W0")), "robust", dry), bare(3))
    assert two is not None
    assert set(two.parts) == {"W0"}
    i = with_network(with_years(alone, "expected", dry, curtailment_usd_per_mwh=100.0))
    less = placed(i, (SitePart(1, 2, ((0.0, 1.0),)),))
    assert less is not None
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
    assert found is not None
    assert two is not None
    assert found.capital_usd - two.capital_usd == pytest.approx(RACK_USD + 4e5)
    assert placed(i, bare(4)) is None
    split = sites_section(Sites(instance=i), found, {})
    assert [(x.rule, x.amount, x.usd_per_year) for x in split.excess] == [("headroom[E]", 1.0, 4e5)]


def test_racks_beside_the_blocks_are_bought_only_where_pinned() -> None:
    """Three pinned racks are bought, whichever blocks use them; without the pin only the blocks' own."""
    i = case(node("E0"), node("E1"), rules={"min_site_modules": 2})
    assert placed(i, bare(1)) is None
    for pins in ({"sites.racks": 3}, {"sites.racks.E1": 3, "sites.racks.E0": 0}):
        found = placed(i.model_copy(update={"pins": pins}), bare(1))
        assert found is not None
        assert sum(found.racks.values()) == 3
        assert found.capital_usd == pytest.approx(3 * RACK_USD)
    assert placed(i.model_copy(update={"pins": {"sites.racks": 3}}), bare(2, 2)) is None
    assert placed(i.model_copy(update={"pins": {"sites.max_sites": 1}}), bare(2, 2)) is None


def test_idle_pinned_racks_take_no_fabric() -> None:
    """Five pinned racks of 1 M$ fit 5.2 M$ with the fabric of two of them, not of all."""
    i = case(node("E0"), limits={"budget_usd": 5.2e6}, pins={"sites.racks": 5})
    dear = SWITCH | {"price_usd": 8e5}
    network = NETWORK | {"switches": [dear]}
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
        found = placed(i, bare(1, 1), Circuit(10, 1e9))
        assert found is not None
        usd[name] = found.capital_usd
        km = Sites(instance=i).data.pairs["E0", "W0"]
    assert usd["free"] == pytest.approx(2 * RACK_USD)
    assert usd["default"] == usd["silent"] == pytest.approx(2 * RACK_USD + km * 9_700 + 10 * 60_000)


def test_the_least_power_of_a_fabric_bounds_the_racks() -> None:
    """1 MW racks with a GPU cabled draw a little more than 1 MW, so that 3 MW hold two of them."""
    i = with_network(case(node("E0"), headroom={"E": 3.0}, limits={"budget_usd": 1e8}))
    assert Sites(instance=i).max_racks(8) == 2
    included = i.hardware.model_copy(update={"overhead_includes_fabric": True})
    assert Sites(instance=i.model_copy(update={"hardware": included})).max_racks(8) == 3


@pytest.mark.parametrize("seed", [0, 4, 19, 20])
def test_cpsat_proves_again_what_is_cheapest(seed: int) -> None:
    """The least capital is proven twice; of a capital that is not the least, nothing is."""
    i = power_case(seed, model="transport", new=1)[0]
    sites, parts = Sites(instance=with_network(i)), tuple(SitePart(1, n, ((3e4, 0.3), (2e4, 0.7))) for n in (2, 1))
    found = sites.cheapest(parts, WIDE)
    assert found is not None
    assert confirmed(sites, found, 20) == "confirmed by CP-SAT"
    claimed = replace(found.proof, bound_usd=found.proof.bound_usd + 1e3)
    assert confirmed(sites, replace(found, proof=claimed), 20) == "on trust"


def test_a_dc_question_is_asked_of_the_transport_model() -> None:
    """Where the grid binds no more under dc than by transport, the sites are proven again."""
    said = set()
    for seed, how in GRIDS[:8]:
        sites = Sites(instance=dc_grid(seed, how))
        found = sites.cheapest(bare(2, 1), WIDE)
        if found is not None:
            said.add(confirmed(sites, found, 20))
            more = replace(found.proof, bound_usd=found.proof.bound_usd * 1.01)
            assert confirmed(sites, replace(found, proof=more), 20) == "on trust"
    assert said & {"confirmed by CP-SAT", "confirmed by a dual bound"}


def cut_short(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """End every solve of the sites at a limit, with the solution that it has."""
    run = sites.run

    def limited(m: Any, **options: Any) -> Outcome[highs.HighsValues]:
        return replace(run(m, **options), stop=Stop.LIMIT)

    monkeypatch.setattr(sites, "run", limited)


def test_sites_that_are_not_proven_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solution without a proof that it is the cheapest is refused; with one it is placed."""
    sites = Sites(instance=case(node("E0"), node("E1")))
    assert sites.cheapest(bare(1), None) is not None
    cut_short(sites, monkeypatch)
    with pytest.raises(UnansweredError, match="without a proven answer"):
        sites.cheapest(bare(2), None)


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


def test_an_answer_cut_short_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the sites were not answered, no amount is said to be too little."""
    sites = Sites(instance=case(node("E0")))
    run = sites.run

    def nothing(m: Any, **options: Any) -> Outcome[highs.HighsValues]:
        return replace(run(m, **options), stop=Stop.LIMIT, solution=None, infeasible=False)

    monkeypatch.setattr(sites, "run", nothing)
    with pytest.raises(UnansweredError, match="without an answer"):
        SiteBounds(sites=sites).exceeds(SitesExtent(1, 1, 1, 0.0), RACK_USD)


def test_fabrics_whose_power_is_no_load_add_their_price_to_capital_and_bound() -> None:
    """Each part takes the cheaper of its fabrics: $20,000 and $50,000 over what the racks alone cost, proven so."""
    i = case(node("E0"), node("E1"))
    parts = (SitePart(1, 2, ((3e4, 0.3), (2e4, 0.7))), SitePart(1, 1, ((5e4, 0.1),)))
    found, alone = placed(i, parts), placed(i, bare(2, 1))
    assert found is not None and alone is not None
    assert found.capital_usd == pytest.approx(alone.capital_usd + 7e4)
    assert found.proof.bound_usd == pytest.approx(found.capital_usd) != pytest.approx(alone.capital_usd)
    assert {found.racks[site]: fabric for site, (_, fabric) in found.parts.items()} == {2: 1, 1: 0}
