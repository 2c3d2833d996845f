"""The site split: agreement with a brute force and CP-SAT, every rule on both sides of its edge and in its sentence."""

import inspect
import random
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from best_splits import split
from each_case import each
from site_grids import ANY, OPTIONS, best, case, line, node, racks, random_case, solved
from tiers import more
from worked_plan import instance_with

from planner.checks.check_plan import SECTIONS
from planner.errors import InputError
from planner.instance.grid import SOFT_UNITS
from planner.instance.instance import Instance
from planner.models import GradientExchange, Options, SitesRequest
from planner.models.sites import solve as sites
from planner.models.sites.dc_network import GridCut
from planner.models.sites.model import RULES, _reserve_cut
from planner.models.sites.solve import conflict, infeasible
from planner.models.sites.split_data import gather
from planner.plan.certificate import CONFIRMED
from planner.solvers.outcome import Stop

SPLIT = 19  # A random case with two sites and flows.


# Agreement


@pytest.mark.parametrize("seed", range(160))
def test_agrees_with_brute_force(seed: int) -> None:
    agrees(*random_case(seed))


def agrees(instance: Instance, request: SitesRequest) -> None:
    expected, plan = best(instance, request), solved(instance, request)
    assert (plan is None) == (expected is None)
    if plan and expected:
        assert sum(s.racks for s in plan.sites) == expected[0]
        assert plan.certificate.objective == pytest.approx(expected[1], rel=1e-9, abs=1.0)
        assert plan.certificate.status == "optimal"


def test_wavelengths_count_against_the_budget() -> None:
    """Where sites must be two and a wavelength costs as much as a rack, racks are those of the best split still."""
    wan = {"fibre_usd_per_route_km": 5, "wavelength_usd": 8e5, "max_wavelengths_per_pair": 4, "headroom_factor": 1.5}
    rules = {"grid_model": "none", "fault_split": {"enabled": True, "min_interconnections": 2, "max_share": 0.6}}
    exchange = SitesRequest(exchange=GradientExchange(stage_bytes=2e10, window_seconds=1.0))
    found = set()
    for budget in range(20, 80, 3):
        instance = case(node("E0"), node("W0"), rules=rules, wan=wan, limits={"budget_usd": budget * 1e5})
        agrees(instance, exchange)
        plan = solved(instance, exchange)
        found.add(0 if plan is None else sum(s.racks for s in plan.sites))
    assert len(found) > 3


@pytest.mark.parametrize("seed", [*range(64), *more(*range(64, 160))])
def test_every_conflict_is_a_smallest_one(seed: int) -> None:
    instance, request = random_case(seed)
    found = conflict(instance, request, OPTIONS)
    assert (found is None) == (best(instance, request) is not None)
    if found:
        data, rules = gather(instance, request), frozenset(found.rules)
        assert found.reason
        assert found.checked == CONFIRMED and infeasible(data, rules, OPTIONS)
        assert not any(infeasible(data, rules - {name}, OPTIONS) for name in rules)


# Rules at their edges: a rack takes 1 MW and costs 1 M$


def edge(name: object, most: int, *nodes: dict[str, Any], request: SitesRequest = ANY, **parts: Any) -> Any:
    return pytest.param(case(*nodes, **parts), request, most, id=f"{name}")


def one(**figures: Any) -> dict[str, Any]:
    return node("E0", **figures)


def rule(name: str, **changes: Any) -> dict[str, Any]:
    return {name: {"enabled": True} | changes}


E0, W0, FAR = node("E0"), node("W0"), node("E1", site=False)
THREE = [node(n, generation_mw=3.0) for n in ("E0", "E1", "E2")]
UNLIKE = node("E0", generation_mw=3.0), node("E1", generation_mw=2.0)
TWO_CIRCUITS = [line("E0", "E1", rating_mw=2.0, circuits=2)]
APART = gather(case(E0, W0), ANY).rtt_ms(("E0", "W0"))
FAR_PLANTS = [node("W0", generation_mw=9.0, site=False)]
LATE = SitesRequest(exchange=GradientExchange(stage_bytes=1.0, window_seconds=0.01))
FABRIC = {"request": SitesRequest(fabric_usd_per_rack=1e5), "prices": {"site_usd": 1e5}}
BY_FOUR = {"hardware": {"racks_per_module": 4}}
EDGES = [
    *(edge(f"headroom {mw}", n, E0, headroom={"E": mw}) for mw, n in ((4.0, 4), (3.999, 3))),
    edge("headroom switched off", 10, E0, headroom={"E": 2.0}, rules={"headroom": False}),
    *(
        edge(f"plants {mw}, {model}", n, one(generation_mw=mw), rules={"grid_model": model})
        for mw, n in ((4.0, 4), (3.999, 3))
        for model in ("none", "transport")
    ),
    # An authority feeds in all that its plants can, whatever its headroom, even into another's site.
    edge("far", 9, one(generation_mw=0.0), *FAR_PLANTS, lines=[line("E0", "W0")], headroom={"W": 3.0}),
    *(
        edge(f"rating {mw}", n, one(generation_mw=2.0), FAR, lines=[line("E1", "E0", rating_mw=mw, circuits=2)])
        for mw, n in ((2.0, 6), (1.999, 5))
    ),
    # Without flows lines do not matter.
    edge("no flows", 5, one(generation_mw=2.0), FAR | {"generation_mw": 3.0}, rules={"grid_model": "none"}),
    *(
        edge(f"interconnect {mw}", n, one(interconnect_mw=mw), rules=rule("interconnect"))
        for mw, n in ((2.0, 4), (1.999, 3))
    ),
    *(
        edge(f"interconnect {way}", n, E0, FAR, lines=TWO_CIRCUITS, rules=rule("interconnect", reading=way))
        for way, n in (("capacity", 8), ("capacity_n1", 4))
    ),
    *(
        edge(f"area {m2}", n, one(area_m2=m2), hardware={"cooling_kw_per_m2": 2.0})
        for m2, n in ((2000.0, 4), (1999.0, 3))
    ),
    *(edge(f"{most} sites", n, *THREE, rules={"max_sites": most}) for most, n in ((1, 3), (2, 6), (None, 9))),
    *(edge(f"least {x}", n, *UNLIKE, rules={"min_site_modules": x}) for x, n in ((2, 5), (3, 3), (4, 0))),
    *(
        edge(f"share {x}", n, E0, node("W0", generation_mw=2.0), rules=rule("fault_split", max_share=x))
        for x, n in ((0.6, 5), (0.59, 4), (0.5, 4))
    ),
    edge("two interconnections", 20, E0, W0, rules=rule("fault_split")),
    edge("one interconnection", 0, E0, node("E1"), rules=rule("fault_split")),
    *(edge(f"rtt {n}", n, E0, W0, rules={"max_rtt_ms": ms}) for ms, n in ((APART, 20), (APART - 1e-6, 10))),
    edge("round trips fill the window", 10, E0, W0, request=LATE),
    *(edge(f"budget {usd}", n, E0, limits={"budget_usd": usd}, **FABRIC) for usd, n in ((4.5e6, 4), (4.5e6 - 1, 3))),
    # A year of 1 MW at 40 $/MWh adds 0.35 M$ to a rack.
    *(
        edge(f"{years} years of energy", n, E0, limits={"budget_usd": 4.0e6, "operation_years": years})
        for years, n in ((0.0, 4), (1.0, 2))
    ),
    *(
        edge(f"facility {mw}", n, one(generation_mw=2.0), W0, limits={"facility_power_mw": mw})
        for mw, n in ((4.0, 4), (3.999, 3))
    ),
    *(edge(f"{n} asked", most, E0, request=SitesRequest(racks=n)) for n, most in ((10, 10), (11, 0), (6, 6))),
    edge("modules of four", 8, E0, **BY_FOUR),
    edge("no whole modules", 0, E0, request=SitesRequest(racks=6), **BY_FOUR),
]


@each(("instance", "request_", "most"), EDGES)
def test_racks_at_the_edge_of_a_rule(instance: Instance, request_: SitesRequest, most: int) -> None:
    assert racks(instance, request_) == most


@each(("rating", "most"), [(1.0, 6), (2.0, 8), (5.0, 8)])
def test_interconnect_loses_the_largest_circuit_built_or_not(rating: float, most: int) -> None:
    """A new circuit larger than the existing one (2 MW) is the one to lose: it adds no more than the existing one."""
    rules = rule("interconnect", reading="capacity_n1")
    new = [{"id": "k", "a": "E0", "b": "E1", "rating_mw": rating, "capex_usd": 1e3}]
    plan = solved(case(E0, FAR, lines=TWO_CIRCUITS, new_lines=new, rules=rules))
    assert (plan.sites[0].racks, plan.sites[0].interconnect_mw) == (most, min(2.0 + rating, 4.0))


def test_explicit_interconnect_must_be_given() -> None:
    with pytest.raises(InputError, match=r"grid\.nodes\[1\]\.interconnect_mw"):
        solved(case(one(interconnect_mw=1.0), node("E1"), rules=rule("interconnect")))


def exchange_of(waves: float, rtt_ms: float) -> SitesRequest:
    """Return an exchange that takes `waves` wavelengths of 400 Gbps between two sites `rtt_ms` apart."""
    window = 0.5
    return SitesRequest(
        exchange=GradientExchange(stage_bytes=waves * 400e9 / 8 * (window - rtt_ms / 1e3), window_seconds=window)
    )


@each(("waves", "most"), [(6.0, 20), (6.01, 10)])
def test_wan_capacity(waves: float, most: int) -> None:
    """Six wavelengths are lit on two pairs of three; a seventh cannot be leased, so one site remains."""
    instance = case(E0, W0, wan={"headroom_factor": 1.0, "max_wavelengths_per_pair": 3, "max_fibre_pairs": 2})
    plan = solved(instance, exchange_of(waves, APART))
    assert plan is not None and sum(s.racks for s in plan.sites) == most
    if most == 20:
        (link,) = plan.links
        assert (link.wavelengths, link.fibre_pairs, link.capacity_gbps) == (6, 2, 2400.0)
        assert link.required_gbps == pytest.approx(2400.0)


def test_wan_need_grows_with_the_number_of_sites() -> None:
    """Three sites send 4/3 of the gradient: what just fits two does not fit three."""
    nodes = [node(n, generation_mw=2.0) for n in ("E0", "E1", "E2")]
    for most, expected in ((3, 4), (4, 6)):
        wan = {"headroom_factor": 1.0, "max_wavelengths_per_pair": most, "max_fibre_pairs": 1}
        instance = case(*nodes, wan=wan)
        assert racks(instance, exchange_of(3.0, gather(instance, ANY).rtt_ms(("E0", "E2")))) == expected


@each(("pins", "planned"), [
    ({"sites.racks": 7}, {7}), ({"sites.max_sites": 1}, {10}), ({"sites.racks.E0": 3}, {3, 10}),
    ({"sites.racks.E0": 0}, {10}), ({"sites.racks.E0": 11}, set()),
])  # fmt: skip
def test_a_pin_is_kept(pins: dict[str, int], planned: set[int]) -> None:
    plan = solved(case(E0, W0, pins=pins))
    got = {s.racks for s in plan.sites} if plan else set()
    assert sum(got) == 7 if pins == {"sites.racks": 7} else got == planned


@each("pins", [{"sites.racks.E9": 1}, {"sites.sites": 1}, {"sites.racks": 0}, {"sites.max_sites": "2"}])
def test_pins_that_mean_nothing_are_named(pins: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(pins)).replace(".", r"\.")):
        solved(case(E0, pins=pins))


def test_two_lines_of_one_id_are_refused() -> None:
    new = [{"id": "E0-E1", "a": "E0", "b": "E1", "rating_mw": 1.0, "capex_usd": 1.0}]
    with pytest.raises(InputError, match=r"grid\.new_lines\[0\]\.id"):
        solved(case(E0, node("E1"), lines=[line("E0", "E1")], new_lines=new))


# What comes back


def test_the_cheaper_authority_is_chosen() -> None:
    plan = solved(case(node("E0"), node("W0"), usd_per_mwh={"E": 40.0, "W": 39.0}), SitesRequest(racks=5))
    assert [(s.id, s.racks) for s in plan.sites] == [("W0", 5)]
    assert plan.certificate.objective == pytest.approx(5 * 8760 * 39)


def test_same_question_same_answer() -> None:
    instance, request = random_case(SPLIT)
    first, second = (split(instance, request).solution for _ in range(2))
    assert first.model_dump(exclude={"certificate": {"seconds"}}) == second.model_dump(
        exclude={"certificate": {"seconds"}}
    )


def test_a_tenth_of_a_second_is_enough_for_an_answer() -> None:
    outcome = split(case(node("E0"), node("W0")), ANY, Options(time_limit=0.1))
    assert outcome.stop in (Stop.PROVED, Stop.LIMIT)


# Conflicts


def clash(rules: str, number: str, /, *nodes: dict[str, Any], request: SitesRequest = ANY, **parts: Any) -> Any:
    return pytest.param(case(*nodes, **parts), request, rules, number, id=f"{rules}, {number}")


SMALL = {"rack": {"name": "r", "gpus": 8, "it_kw": 125, "price_usd": 1e6}, "facility_overhead_factor": 1.4}
SPLIT_RULE, FED_OVER_2_MW = rule("fault_split"), [line("E0", "E1", rating_mw=2.0)]
LACKS_LINES = "at a site itself at most 1 MW (E0); lines into a site carry 2 MW"
TIGHT = SitesRequest(exchange=GradientExchange(stage_bytes=1.0, window_seconds=0.001))
FOUR, SIX, ELEVEN = (SitesRequest(racks=n) for n in (4, 6, 11))
CONFLICTS = [
    clash("demand headroom", "0.175 MW", E0, headroom={"E": 0.1}, hardware=SMALL),
    clash("demand generation", "0.5 MW", one(generation_mw=0.5)),
    clash("demand headroom", "11 MW", E0, request=ELEVEN),
    clash("demand budget", "$900.00K", E0, limits={"budget_usd": 9e5}),
    clash("demand facility_power", "0.5", E0, limits={"facility_power_mw": 0.5}),
    clash("demand", "modules of 4", E0, request=SIX, **BY_FOUR),
    clash("fault_split site_count", "max_sites is 1", E0, W0, rules=SPLIT_RULE | {"max_sites": 1}),
    clash("fault_split rtt", "is 5", E0, W0, rules=SPLIT_RULE | {"max_rtt_ms": 5.0}),
    clash("fault_split", "eastern", E0, rules=SPLIT_RULE),
    clash("demand generation min_site", "4 modules", THREE[0], rules={"min_site_modules": 4}),
    clash("demand interconnect", "0.2 MW", one(interconnect_mw=0.2), rules=rule("interconnect")),
    clash("demand area", "500 m²", one(area_m2=100.0), hardware={"cooling_kw_per_m2": 2.0}),
    clash("demand rating generation", LACKS_LINES, one(generation_mw=1.0), FAR, request=FOUR, lines=FED_OVER_2_MW),
    clash("pins headroom", "sites.racks.E0=11", E0, pins={"sites.racks.E0": 11}),
    clash("demand pins", "sites.racks=3", E0, request=FOUR, pins={"sites.racks": 3}),
    clash("fault_split wan_capacity", "Gbps", E0, W0, request=TIGHT, rules=SPLIT_RULE),
]


@each(("instance", "request_", "rules", "number"), CONFLICTS)
def test_conflicts_in_the_users_terms(instance: Instance, request_: SitesRequest, rules: str, number: str) -> None:
    found = conflict(instance, request_, OPTIONS)
    assert found is not None and set(found.rules) == set(rules.split()), found
    assert number in found.reason


# A known number of sites: pairs by their sums, bounds of what each must hold


def in_two(seed: int) -> tuple[Instance, SitesRequest]:
    """Return a random question of two sites, one in each interconnection."""
    instance, request = random_case(seed)
    data = instance.model_dump()
    for n in data["grid"]["nodes"]:
        n["site"] = True
    split = {"enabled": True, "min_interconnections": 2, "max_share": 0.6 + 0.1 * (seed % 3)}
    data["grid"]["rules"] |= {"max_sites": 2, "max_rtt_ms": None, "fault_split": split}
    if seed % 2:
        data["grid"]["rules"]["interconnect"]["enabled"] = False
        data["limits"] |= {"budget_usd": None}
        request = replace(request, exchange=GradientExchange(stage_bytes=4e9, window_seconds=0.2))
    if seed % 3 == 0:
        request = replace(request, racks=2 * data["hardware"]["racks_per_module"])
    return Instance.model_validate(data), request


AREAS = {seed: {n.balancing_authority for n in random_case(seed)[0].grid.nodes} for seed in range(300, 350)}
IN_TWO = [seed for seed, areas in AREAS.items() if areas == {"E", "W"}]


@pytest.mark.parametrize("seed", IN_TWO)
def test_two_sites_in_two_interconnections_agree_with_brute_force(seed: int) -> None:
    """What a known number of sites lets the rows leave out, and what it adds to them, changes no answer."""
    agrees(*in_two(seed))


def test_more_sites_would_do_where_their_number_was_known() -> None:
    """Two sites, one in each interconnection, hold 4 of 6 racks; a third beside one of them would do."""
    nodes = [node("E0", generation_mw=2), node("E1", generation_mw=2), node("W0", generation_mw=2)]
    split = {"enabled": True, "min_interconnections": 2, "max_share": 0.7}
    instance = case(*nodes, rules={"fault_split": split, "max_sites": 2}, wan={})
    request = SitesRequest(racks=6, exchange=GradientExchange(stage_bytes=1e9, window_seconds=1.0))
    found = {x.rule: x.amount for x in sites.relaxations(instance, request, ("site_count",), OPTIONS)}
    assert found == {"site_count": pytest.approx(1.0)}


def test_every_rule_is_checked() -> None:
    rules = [rule for section in ("sites", "cost") for rule in SECTIONS[section]]
    named = {name for rule in rules for name in re.findall(r'"(\w+)[\["]', inspect.getsource(rule))}
    assert set(RULES) <= named | {rule.__name__ for rule in rules}


def test_every_rule_says_its_mathematics() -> None:
    assert all(rule.rows.__doc__ for rule in RULES.values())
    assert len({rule.order for rule in RULES.values()}) == len(RULES)


def test_soft_rules_have_the_units_of_the_instance() -> None:
    assert {name: RULES[name].unit for name in SOFT_UNITS} == SOFT_UNITS


def test_labels_are_those_of_reports() -> None:
    assert RULES["headroom"].label("SRP") == "headroom[SRP]"
    assert RULES["rtt"].label(("a", "b")) == "rtt[a,b]"
    assert RULES["rating"].label(("k", -1)) == "rating[k]"
    assert RULES["budget"].label(None) == "budget"


@each(("mw", "racks"), [(4.0, 4), (3.999, 3)])
@each("model", ["dc", "transport"])
def test_import_share_of_a_site_without_plants(model: str, mw: float, racks: int) -> None:
    """A site without plants imports all that it draws: the circuit that is left must carry it, under dc too."""
    nodes = node("E0", generation_mw=0.0), node("E1", site=False)
    circuits = line("E0", "E1", rating_mw=mw, circuits=2, reactance_pu=0.01)
    rule = {"enabled": True, "reading": "import_share", "share": 1.0}
    instance = case(*nodes, lines=[circuits], rules={"grid_model": model, "interconnect": rule})
    plan = split(instance).solution
    assert [s.racks for s in plan.sites] == [racks]


def test_soft_headroom_does_not_loosen_generation_without_flows() -> None:
    rules = {"grid_model": "none", "soft": {"headroom": {"usd_per_year": 1.0, "max_excess": 9.0}}}
    instance = case(node("E0", generation_mw=4.0), headroom={"E": 3.0}, rules=rules)
    plan = split(instance).solution
    assert [s.racks for s in plan.sites] == [4]
    assert {x.rule: x.amount for x in plan.excess} == {"headroom[E]": 1.0}


def test_a_soft_rule_of_a_conflict_moves_beyond_its_excess() -> None:
    rules = {"soft": {"headroom": {"usd_per_year": 1.0, "max_excess": 2.0}}}
    instance = case(node("E0"), headroom={"E": 3.0}, rules=rules)
    request = replace(ANY, racks=8)
    found = conflict(instance, request, OPTIONS)
    assert found is not None and "headroom" in found.rules
    moved = {x.rule: x for x in sites.relaxations(instance, request, found.rules, OPTIONS)}
    assert moved["headroom"].rows == pytest.approx({"headroom[E]": 3.0})


def test_a_smaller_smallest_site_would_do() -> None:
    """An area of three racks holds no site of five: the smallest site may be two modules smaller, or the area grow."""
    instance = case(node("E0", area_m2=1500.0), rules={"min_site_modules": 5}, hardware={"cooling_kw_per_m2": 2.0})
    found = {x.rule: x for x in sites.relaxations(instance, ANY, ("min_site", "area"), OPTIONS)}
    assert found["min_site"].rows == {"min_site[E0]": pytest.approx(2.0)}
    assert found["area"].rows == {"area[E0]": pytest.approx(1000.0)}
    assert found["area"].amount == pytest.approx(1000.0) and found["area"].unit == "m2"


def contingencies(r: random.Random) -> Any:
    """Draw plants, each with the share of its largest unit, on a network of nothing else."""
    plants = r.randint(2, 4)
    available = np.array([r.uniform(1, 9) for _ in range(plants)])

    def cut(rule: str, name: str, row: Any, upper: float, **more: Any) -> GridCut:
        return GridCut(rule=rule, name=name, columns=np.arange(plants), values=row, upper=upper, **more)

    network = SimpleNamespace(
        nodes={f"n{i}": i for i in range(plants)}, at={"extra": slice(plants, plants)}, available_mw=available,
        unit_share=np.array([r.choice((0.3, 1.0)) for _ in range(plants)]), cut=cut,
    )  # fmt: skip
    topology = SimpleNamespace(condition=((0, True),))
    return SimpleNamespace(network=network, topology=topology, others_mw=available.sum() - available)


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_of_another_topology_forbids_nothing(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(50):
        of = contingencies(r)
        plant, lost = r.sample(range(of.network.at["extra"].stop), 2)
        row = _reserve_cut(of, plant, r.choice((None, lost)))
        fed = of.network.available_mw * np.array([r.choice((0.0, r.random(), 1.0)) for _ in of.network.nodes])
        assert row.values @ fed - row.upper <= row.reach * fed.sum() + 1e-9


UPGRADE = {"step_mw": 3.0, "max_steps": 2, "capex_usd": 1e6, "lead_months": 1.0}


def questions(**more: Any) -> Instance:
    """Return three sites, two in the east, one in the west, with lines, prices and limits of unlike numbers."""
    nodes = (
        node("E0", generation_mw=20.0, load_mw=3.0, area_m2=700.0, ready_months=30.0, interconnect_mw=4.0),
        node("E1", generation_mw=6.0, area_m2=900.0, ready_months=18.0, upgrade=UPGRADE, interconnect_mw=9.0),
        node("W0", generation_mw=11.0, ready_months=24.0, interconnect_mw=2.0),
    )
    new = [
        {"id": "n", "a": "E0", "b": "W0", "max_circuits": 2, "rating_mw": 5.0, "capex_usd": 7e6, "lead_months": 36.0},
        {"id": "soon", "a": "E1", "b": "W0", "max_circuits": 1, "rating_mw": 4.0, "capex_usd": 1e6, "lead_months": 24},
    ]
    parts = {
        "headroom": {"E": 12.0, "W": 25.0},
        "usd_per_mwh": {"E": 50.0, "W": 40.0},
        "lines": [line("E0", "E1", rating_mw=8.0, circuits=3)],
        "new_lines": new,
        "hardware": {"cooling_kw_per_m2": 2.0},
        "prices": {"building_usd_per_it_mw": 2e6, "interconnection_usd_per_mw": 5e5, "site_usd": 4e6},
        "limits": {"budget_usd": 90e6, "operation_years": 3},
    }
    rules = {"ready_within_months": 24.0, "min_site_modules": 3, "max_sites": 2} | more.pop("rules", {})
    return case(*nodes, **parts | more, rules=rules)


def wants(reading: str, share: float) -> dict[str, Any]:
    return {"rules": {"interconnect": {"enabled": True, "share": share, "reading": reading}}}


FAULTS = {"enabled": True, "min_interconnections": 2, "max_share": 0.6}
SHARES = {"fault_split": FAULTS, "share_balance": {"enabled": True, "max_ratio": 1.5}, "n1": "margin"}
FIVES = {"hardware": {"cooling_kw_per_m2": 2.0, "racks_per_module": 5}}
SENTENCES: list[tuple[str, dict[str, Any], int | None, str]] = [
    ("demand", {}, None, "one module (1 rack) needs 1 MW at the grid"),
    ("demand", {}, 12, "12 racks need 12 MW at the grid (one module (1 rack) needs 1 MW at the grid)|"),
    ("demand", FIVES, 12, "12 racks, not a whole number of modules of 5 need 12 MW at the grid (one module (5 racks) "),
    ("demand", FIVES, 15, "15 racks need 15 MW at the grid (one module (5 racks) needs 5 MW at the grid)|"),
    ("headroom", {}, None, "headroom is E 12 MW, W 25 MW (37 MW in all)|"),
    # Plants of 26 MW less a load of 3 in the east, 11 in the west; the best site has 20 MW itself.
    ("generation", {"rules": {"grid_model": "none"}}, None, "plants can spare E 23 MW, W 11 MW|"),
    ("generation", {}, None, "plants can spare E 23 MW, W 11 MW, at a site itself at most 20 MW (E0)"),
    # E0 has three circuits of 8 MW and up to two new ones of 5.
    ("rating", {}, None, "lines into a site carry 34 MW at most (at E0, new circuits included)"),
    # A module of 1 MW at 2 kW/m²; of the sites whose land is limited the larger.
    ("area", {}, None, "a module's cooling takes 500 m²; the largest limited site, E1, has area_m2 900"),
    # E1: 9 MW, two steps of 3 and a new circuit of 4; by its circuits 24 + 6 + 4, of them the last by name; less one.
    ("interconnect", wants("explicit", 0.5), None, "explicit) wants 50% of a site's load on its circuits: "),
    ("interconnect", wants("explicit", 0.5), None, "the best site, E1, has 19 MW, enough for 38 MW of that"),
    ("interconnect", wants("capacity", 0.25), None, "the best site, E1, has 34 MW, enough for 136 MW of that"),
    ("interconnect", wants("capacity_n1", 1.0), None, "the best site, E1, has 26 MW, enough for 26 MW of that"),
    ("interconnect", wants("explicit", 0.0), None,
     "0% of a site's load on its circuits: the best site, E1, has 19 MW|"),
    ("ready", {}, None, "is 24: 1 of 3 sites, E0 the first in 30 and 1 new lines come later"),
    ("ready", {"rules": {"ready_within_months": 17.0}}, None, "3 of 3 sites, E1 the first in 18 and 2 new lines come"),
    ("ready", {"rules": {"ready_within_months": 99.0}}, None, "is 99: 0 of 3 sites and 0 new lines come later|"),
    # A rack for 1 M$, 2 for the building, 0.5 to connect, and 8760·40 dollars a year in the west.
    ("budget", {}, None,
     "a module costs at least $4.55M with 3 years of energy and an open site $4.00M, together $8.55M|"),
    ("budget", {"limits": {"budget_usd": 5e6}, "prices": {"site_usd": 0}}, None,
     "is $5.00M, a module costs at least $1.00M|"),
    ("min_site", {}, None, "a site holds 3 modules at least (3 MW)"),
    ("site_count", {}, None, "grid.rules.max_sites is 2"),
    ("fault_split", {"rules": SHARES}, None, "sites in 2 interconnections, none with more than 60% of the racks; "),
    ("fault_split", {"rules": SHARES}, None, "candidates are in eastern, western"),
    ("share_balance", {"rules": SHARES}, None, "wants no site more than 1.5 times the smallest"),
    ("security", {"rules": SHARES}, None, 'grid.rules.n1 "margin": flows after an outage must stay within ratings'),
    ("pins", {"pins": {"sites.racks": 12, "sites.max_sites": 2}}, None, "pins fix sites.max_sites=2, sites.racks=12|"),
    ("pins", FIVES | {"pins": {"sites.racks": 12, "sites.racks.W0": 5}}, None, "W0=5; racks come in modules of 5|"),
    ("pins", FIVES | {"pins": {"sites.racks": 10}}, None, "pins fix sites.racks=10|"),
]  # fmt: skip


@each(("rule", "changes", "racks", "words"), SENTENCES)
def test_the_sentence_of_a_rule(rule: str, changes: dict[str, Any], racks: int | None, words: str) -> None:
    """It has every number of its limit, by hand from the instance; a bar is its end."""
    said = RULES[rule].sentence(gather(questions(**changes), SitesRequest(racks=racks)))
    assert words in said + "|"


def test_sentences_of_a_lone_site() -> None:
    one = case(node("E0"), headroom={"E": 7.0})
    assert RULES["headroom"].sentence(gather(one, SitesRequest())) == "headroom is E 7 MW"
    assert RULES["rating"].sentence(gather(one, SitesRequest())) == "no line joins the nodes"


def test_wide_area() -> None:
    """One wavelength of 1 Mb/s; two sites exchange 10 MB each in 10 s less round trips, over twice the capacity."""
    instance = instance_with(wan__max_wavelengths_per_pair=1, wan__max_fibre_pairs=1)
    request = SitesRequest(exchange=GradientExchange(stage_bytes=1e7, window_seconds=10.0))
    text = RULES["wan_capacity"].sentence(gather(instance, request))
    limits = r"two sites can be joined by 0\.001 Gbps at most; 3 of 3 pairs need more, "
    found = re.fullmatch(limits + r"w1-w2 ([\d.]+) Gbps or more \(1\.703 ms apart\)", text)
    assert float(found[1]) == pytest.approx(2 * 8e7 / 10 / 1e9, rel=1e-3)
