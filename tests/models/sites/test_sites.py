"""The site split: agreement with a brute force and CP-SAT, every rule on both sides of its edge and in its sentence."""

import inspect
import random
import re
from typing import Any

import numpy as np
import pytest
from each_case import each
from site_grids import ANY, OPTIONS, best, case, line, node, racks, random_case, solved
from tiers import more

from planner.checks.check_plan import SECTIONS
from planner.errors import InputError
from planner.instance.grid import SOFT_UNITS
from planner.instance.instance import Instance
from planner.models import SitesRequest
from planner.models.sites import split_model as sites
from planner.models.sites.dc_network import Contingencies
from planner.models.sites.split_data import gather
from planner.models.sites.split_model import RULES, conflict
from planner.models.sites.split_model import split as split_under
from planner.plan.certificate import CONFIRMED
from planner.planning.load import load_instance

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


@pytest.mark.parametrize("seed", [*range(64), *more(*range(64, 160))])
def test_every_conflict_is_a_smallest_one(seed: int) -> None:
    instance, request = random_case(seed)
    found = conflict(instance, request, OPTIONS)
    assert (found is None) == (best(instance, request) is not None)
    if found:
        data, rules = gather(instance, request), frozenset(found.rules)
        assert found.reason
        assert found.checked == CONFIRMED and split_under(data, rules, OPTIONS).infeasible
        assert not any(split_under(data, rules - {name}, OPTIONS).infeasible for name in rules)


# Rules at their edges: a rack takes 1 MW and costs 1 M$


def edge(name: object, most: int, *nodes: dict[str, Any], request: SitesRequest = ANY, **parts: Any) -> Any:
    return pytest.param(case(*nodes, **parts), request, most, id=f"{name}")


def one(**figures: Any) -> dict[str, Any]:
    return node("E0", **figures)


def rule(name: str, **changes: Any) -> dict[str, Any]:
    return {name: {"enabled": True} | changes}


def imports(share: float) -> dict[str, Any]:
    return rule("interconnect", reading="import_share", share=share)


E0, W0, FAR = node("E0"), node("W0"), node("E1", site=False)
THREE = [node(n, generation_mw=3.0) for n in ("E0", "E1", "E2")]
UNLIKE = node("E0", generation_mw=3.0), node("E1", generation_mw=2.0)
TWO_CIRCUITS = [line("E0", "E1", rating_mw=2.0, circuits=2)]
APART = gather(case(E0, W0), ANY).rtt_ms(("E0", "W0"))
FAR_PLANTS = [node("W0", generation_mw=9.0, site=False)]
FABRIC = {"request": SitesRequest(fabric_usd_per_rack=1e5), "prices": {"site_usd": 1e5}}
BY_FOUR = {"hardware": {"racks_per_module": 4}}
FAULTS = {"enabled": True, "min_interconnections": 2, "max_share": 0.6}
TWOS = [node(n, generation_mw=2.0) for n in ("E0", "E1", "W0")]
SOFT_HEADROOM = {"headroom": {"usd_per_year": 1.0, "max_excess": 2.0}}
NARROW = {"nodes": [one(area_m2=1500.0)], "rules": {"min_site_modules": 5}, "hardware": {"cooling_kw_per_m2": 2.0}}
EDGES = [
    *(edge(f"headroom {mw}", n, E0, headroom={"E": mw}) for mw, n in ((4.0, 4), (3.999, 3))),
    edge("headroom switched off", 10, E0, headroom={"E": 2.0}, rules={"headroom": False}),
    # Without flows a soft headroom does not loosen what plants can feed.
    edge("soft headroom", 4, one(generation_mw=4.0), headroom={"E": 3.0},
         rules={"grid_model": "none", "soft": SOFT_HEADROOM}),
    *(edge(f"plants {mw}, {model}", n, one(generation_mw=mw), rules={"grid_model": model})
      for mw, n in ((4.0, 4), (3.999, 3)) for model in ("none", "transport")),
    # An authority feeds in all that its plants can, whatever its headroom, even into another's site.
    edge("far", 9, one(generation_mw=0.0), *FAR_PLANTS, lines=[line("E0", "W0")], headroom={"W": 3.0}),
    *(edge(f"rating {mw}", n, one(generation_mw=2.0), FAR, lines=[line("E1", "E0", rating_mw=mw, circuits=2)])
      for mw, n in ((2.0, 6), (1.999, 5))),
    # Without flows lines do not matter.
    edge("no flows", 5, one(generation_mw=2.0), FAR | {"generation_mw": 3.0}, rules={"grid_model": "none"}),
    *(edge(f"interconnect {mw}", n, one(interconnect_mw=mw), rules=rule("interconnect"))
      for mw, n in ((2.0, 4), (1.999, 3))),
    *(edge(f"interconnect {way}", n, E0, FAR, lines=TWO_CIRCUITS, rules=rule("interconnect", reading=way))
      for way, n in (("capacity", 8), ("capacity_n1", 4))),
    # A site without plants imports all that it draws: the circuit that is left must carry it, under dc too.
    *(edge(f"import {mw}, {model}", n, one(generation_mw=0.0), FAR, rules=imports(1.0) | {"grid_model": model},
           lines=[line("E0", "E1", rating_mw=mw, circuits=2, reactance_pu=0.01)])
      for mw, n in ((4.0, 4), (3.999, 3)) for model in ("dc", "transport")),
    # Beside 3 MW of own plants three lines of 2 MW carry 6; for half of the import two of them are left, or two of 1.
    *(edge(f"own plants, {share}", n, one(generation_mw=3.0), FAR, node("E2", site=False), rules=imports(share),
           lines=[line("E0", "E1", rating_mw=2.0, circuits=own), line("E0", "E2", rating_mw=mw), *more])
      for share, n, own, mw, more in ((0.5, 9, 2, 2.0, ()), (1.0, 5, 1, 1.0, [line("E0", "E2", id="c", rating_mw=1)]))),
    *(edge(f"area {m2}", n, one(area_m2=m2), hardware={"cooling_kw_per_m2": 2.0})
      for m2, n in ((2000.0, 4), (1999.0, 3))),
    *(edge(f"{most} sites", n, *THREE, rules={"max_sites": most}) for most, n in ((1, 3), (2, 6), (None, 9))),
    *(edge(f"least {x}", n, *UNLIKE, rules={"min_site_modules": x}) for x, n in ((2, 5), (3, 3), (4, 0))),
    # With at most twice the smallest, a site of 2 MW allows 4 beside it and not 8.
    *(edge(f"ratio {x}", n, one(generation_mw=8.0), node("W0", generation_mw=2.0),
           rules=rule("fault_split", max_share=1.0) | rule("share_balance", max_ratio=x) | {"grid_model": "none"})
      for x, n in ((2.0, 6), (4.0, 10))),
    *(edge(f"share {x}", n, E0, node("W0", generation_mw=2.0), rules=rule("fault_split", max_share=x))
      for x, n in ((0.6, 5), (0.59, 4), (0.5, 4))),
    edge("two interconnections", 20, E0, W0, rules=rule("fault_split")),
    edge("one interconnection", 0, E0, node("E1"), rules=rule("fault_split")),
    *(edge(f"rtt {n}", n, E0, W0, rules={"max_rtt_ms": ms}) for ms, n in ((APART, 20), (APART - 1e-6, 10))),
    *(edge(f"budget {usd}", n, E0, limits={"budget_usd": usd}, **FABRIC) for usd, n in ((4.5e6, 4), (4.5e6 - 1, 3))),
    # A year of 1 MW at 40 $/MWh adds 0.35 M$ to a rack.
    *(edge(f"{years} years of energy", n, E0, limits={"budget_usd": 4.0e6, "operation_years": years})
      for years, n in ((0.0, 4), (1.0, 2))),
    *(edge(f"facility {mw}", n, one(generation_mw=2.0), W0, limits={"facility_power_mw": mw})
      for mw, n in ((4.0, 4), (3.999, 3))),
    # What is ready late: a site, and a new line.
    *(edge(f"site in {x}", n, FAR, one(ready_months=24), rules={"ready_within_months": x, "grid_model": "none"})
      for x, n in ((24, 10), (23, 0))),
    *(edge(f"line in {x}", n, one(generation_mw=4.0), FAR | {"generation_mw": 4.0}, rules={"ready_within_months": x},
           new_lines=[line("E0", "E1", capex_usd=1.0, lead_months=60)]) for x, n in ((60, 8), (59, 4))),
    *(edge(f"{n} asked", most, E0, pins={"sites.racks": n}) for n, most in ((10, 10), (11, 0), (6, 6))),
    edge("modules of four", 8, E0, **BY_FOUR), edge("no whole modules", 0, E0, pins={"sites.racks": 6}, **BY_FOUR),
]  # fmt: skip


@each(("instance", "request_", "most"), EDGES)
def test_racks_at_the_edge_of_a_rule(instance: Instance, request_: SitesRequest, most: int) -> None:
    assert racks(instance, request_) == most


@each(("parts", "name", "unit", "rows"), [
    # Two sites, one in each interconnection, hold 4 of 6 racks; a third beside one of them would do.
    ({"rules": {"fault_split": FAULTS | {"max_share": 0.7}, "max_sites": 2}, "wan": {}, "pins": {"sites.racks": 6}},
     "site_count", "sites", {"site_count": 1.0}),
    # Beyond the excess that a soft rule allows anyway.
    ({"nodes": [E0], "headroom": {"E": 3.0}, "pins": {"sites.racks": 8}, "rules": {"soft": SOFT_HEADROOM}},
     "headroom", "MW", {"headroom[E]": 3.0}),
    # An area of three racks holds no site of five: the smallest site may be two modules smaller, or the area grow.
    (NARROW, "min_site", "modules", {"min_site[E0]": 2.0}), (NARROW, "area", "m2", {"area[E0]": 1000.0}),
])  # fmt: skip
def test_how_far_a_rule_must_move(parts: dict[str, Any], name: str, unit: str, rows: dict[str, float]) -> None:
    instance = case(*parts.get("nodes", TWOS), **{key: x for key, x in parts.items() if key != "nodes"})
    (found,) = sites.relaxations(instance, (name,), OPTIONS)
    assert found.rows == pytest.approx(rows) and found.amount == pytest.approx(sum(rows.values()))
    assert (found.rule, found.unit, found.proved) == (name, unit, True)
    kept = conflict(instance, ANY, OPTIONS)
    assert kept is not None and name in kept.rules


@each(("name", "rating", "most"), [("k", 1.0, 6), ("k", 2.0, 8), ("new", 5.0, 8), ("standing", 5.0, 8)])
def test_interconnect_loses_the_largest_circuit_built_or_not(name: str, rating: float, most: int) -> None:
    """A new circuit larger than the existing one (2 MW) is the one to lose: it adds no more than the existing one."""
    # So it is whatever its name, and beside another that is too dear.
    rules, limits = rule("interconnect", reading="capacity_n1"), {"budget_usd": 5e7}
    new = [line("E0", "E1", id=name, rating_mw=rating, capex_usd=1e3)]
    new += [line("E0", "E1", id="dear", rating_mw=3.0, capex_usd=1e9)]
    plan = solved(case(E0, FAR, lines=TWO_CIRCUITS, new_lines=new, rules=rules, limits=limits))
    assert (plan.sites[0].racks, plan.sites[0].interconnect_mw) == (most, min(2.0 + rating, 4.0))


@each(("pins", "planned"), [
    ({"sites.racks": 7}, {7}), ({"sites.max_sites": 1}, {10}), ({"sites.racks.E0": 3}, {3, 10}),
    ({"sites.racks.E0": 0}, {10}), ({"sites.racks.E0": 11}, set()),
])  # fmt: skip
def test_a_pin_is_kept(pins: dict[str, int], planned: set[int]) -> None:
    plan = solved(case(E0, W0, pins=pins))
    got = {s.racks for s in plan.sites} if plan else set()
    assert sum(got) == 7 if pins == {"sites.racks": 7} else got == planned


WIRED, BATCH = [line("E0", "E1")], {"max_batch_tokens": 12800}
PINS = {"sites.racks.E9": 1, "sites.sites": 1, "sites.racks": 0, "sites.max_sites": "2", "sites.racks.E0": 0.0}


@each(("parts", "path"), [
    *(({"pins": {path: value}}, path.replace(".", r"\.")) for path, value in PINS.items()),
    ({"lines": WIRED, "new_lines": [WIRED[0] | {"capex_usd": 1.0}]}, r"grid\.new_lines\[0\]\.id"),
    ({"rules": rule("interconnect")}, r"grid\.nodes\[1\]\.interconnect_mw"),
])  # fmt: skip
def test_what_means_nothing_is_named(parts: dict[str, Any], path: str) -> None:
    """Pins, lines of one id, the same object in both places too, and interconnects that are not given."""
    with pytest.raises(InputError, match=path):
        gather(load_instance(case(one(interconnect_mw=1.0), node("E1"), limits=BATCH, **parts)), ANY)
    once = case(E0, FAR, lines=WIRED)
    twice = once.replaced(grid=once.grid.replaced(lines=(*once.grid.lines, *once.grid.lines)))
    with pytest.raises(InputError, match=r"grid\.lines\[1\]\.id: 'E0-E1' is already that of grid\.lines\[0\]"):
        load_instance(twice)


# Conflicts


def clash(rules: str, number: str, /, *nodes: dict[str, Any], request: SitesRequest = ANY, **parts: Any) -> Any:
    return pytest.param(case(*nodes, **parts), request, rules, number, id=f"{rules}, {number}")


SMALL = {"rack": {"name": "r", "gpus": 8, "it_kw": 125, "price_usd": 1e6}, "facility_overhead_factor": 1.4}
SPLIT_RULE, FED_OVER_2_MW = rule("fault_split"), [line("E0", "E1", rating_mw=2.0)]
LACKS_LINES = "at a site itself at most 1 MW (E0); lines into a site carry 2 MW"
FOUR, SIX, ELEVEN = ({"sites.racks": n} for n in (4, 6, 11))
CONFLICTS = [
    clash("demand headroom", "0.175 MW", E0, headroom={"E": 0.1}, hardware=SMALL),
    clash("demand generation", "0.5 MW", one(generation_mw=0.5)),
    clash("pins headroom", "sites.racks=11", E0, pins=ELEVEN),
    clash("demand budget", "$900.00K", E0, limits={"budget_usd": 9e5}),
    clash("demand facility_power", "0.5", E0, limits={"facility_power_mw": 0.5}),
    clash("pins", "modules of 4", E0, pins=SIX, **BY_FOUR),
    clash("fault_split site_count", "max_sites is 1", E0, W0, rules=SPLIT_RULE | {"max_sites": 1}),
    clash("fault_split rtt", "is 5", E0, W0, rules=SPLIT_RULE | {"max_rtt_ms": 5.0}),
    clash("fault_split", "eastern", E0, rules=SPLIT_RULE),
    clash("demand generation min_site", "4 modules", THREE[0], rules={"min_site_modules": 4}),
    clash("demand interconnect", "0.2 MW", one(interconnect_mw=0.2), rules=rule("interconnect")),
    clash("demand area", "500 m²", one(area_m2=100.0), hardware={"cooling_kw_per_m2": 2.0}),
    clash("pins rating generation", LACKS_LINES, one(generation_mw=1.0), FAR, pins=FOUR, lines=FED_OVER_2_MW),
    clash("pins headroom", "sites.racks.E0=11", E0, pins={"sites.racks.E0": 11}),
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
    split = FAULTS | {"max_share": 0.6 + 0.1 * (seed % 3)}
    data["grid"]["rules"] |= {"max_sites": 2, "max_rtt_ms": None, "fault_split": split}
    if seed % 2:
        data["grid"]["rules"]["interconnect"]["enabled"] = False
        data["limits"] |= {"budget_usd": None}
    if seed % 3 == 0:
        data["pins"] = {"sites.racks": 2 * data["hardware"]["racks_per_module"]}
    return Instance.model_validate(data), request


IN_TWO = [x for x in range(300, 350) if len(random_case(x)[0].grid.balancing_authorities) == 2]


@pytest.mark.parametrize("seed", IN_TWO)
def test_two_sites_in_two_interconnections_agree_with_brute_force(seed: int) -> None:
    """What a known number of sites lets the rows leave out, and what it adds to them, changes no answer."""
    agrees(*in_two(seed))


def test_every_rule_is_checked() -> None:
    rules = [rule for section in ("sites", "cost") for rule in SECTIONS[section]]
    left, read = [*rules], dict[Any, str]()  # a rule may leave part of its work to functions beside it
    while left:
        part = left.pop()
        read[part] = inspect.getsource(part)
        beside = {getattr(inspect.getmodule(part), name, part) for name in re.findall(r"\b(_\w+)\(", read[part])}
        left += [x for x in beside if x not in read]
    named = {name for text in read.values() for name in re.findall(r'"(\w+)[\["]', text)}
    assert set(RULES) <= named | {rule.__name__ for rule in rules}


def test_rules_are_named_and_measured_as_in_reports_and_instances() -> None:
    assert {name: RULES[name].unit for name in SOFT_UNITS} == SOFT_UNITS
    labels = {"headroom": "SRP", "rtt": ("a", "b"), "rating": ("k", -1), "budget": None}
    shown = [RULES[name].label(index) for name, index in labels.items()]
    assert shown == ["headroom[SRP]", "rtt[a,b]", "rating[k]", "budget"]


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_of_another_topology_forbids_nothing(seed: int) -> None:
    """Of plants of one island, and of one that is alone in its own; also where the rule of generation is left out."""
    r, names = random.Random(seed), set[str]()
    for _ in range(50):
        mw = [r.uniform(1, 9) for _ in range(r.randint(2, 4))]
        nodes = [node(f"E{i}", generation_mw=x, largest_unit_mw=x * r.choice((0.3, 1.0))) for i, x in enumerate(mw)]
        wires = [line("E0", x["id"], reactance_pu=0.01) for x in nodes[1:] if r.random() < 0.8]
        network = gather(case(*nodes, lines=wires, rules={"grid_model": "dc", "n1": "full"}), ANY).network
        assert network is not None
        point = np.zeros(network.at["extra"].stop)
        point[network.at["generated"]] = network.available_mw * np.array([r.choice((0.5, 1.0, 2.0)) for _ in nodes])
        fed = network.available_mw * np.array([r.choice((0.0, r.random(), 1.0)) for _ in nodes])
        for cut in Contingencies(network, network.base).reserve_cuts(point):
            assert cut.values @ fed[cut.columns] - cut.upper <= cut.reach * fed.sum() + 1e-9
            assert cut.values @ point[cut.columns] > cut.upper
            names.add(cut.name)
    assert {"reserve of E0,unit E0", "reserve of E0,unit E1", "reserve of E1,unit E0"} <= names


UPGRADE = {"step_mw": 3.0, "max_steps": 2, "capex_usd": 1e6, "lead_months": 1.0}


def questions(**more: Any) -> Instance:
    """Return three sites, two in the east, one in the west, with lines, prices and limits of unlike numbers."""
    nodes = (
        node("E0", generation_mw=20.0, load_mw=3.0, area_m2=700.0, ready_months=30.0, interconnect_mw=4.0),
        node("E1", generation_mw=6.0, area_m2=900.0, ready_months=18.0, upgrade=UPGRADE, interconnect_mw=9.0),
        node("W0", generation_mw=11.0, ready_months=24.0, interconnect_mw=2.0),
    )
    new = [line("E0", "W0", id="n", max_circuits=2, rating_mw=5.0, capex_usd=7e6, lead_months=36.0)]
    new += [line("E1", "W0", id="soon", max_circuits=1, rating_mw=4.0, capex_usd=1e6, lead_months=24)]
    parts = {
        "headroom": {"E": 12.0, "W": 25.0}, "usd_per_mwh": {"E": 50.0, "W": 40.0}, "new_lines": new,
        "lines": [line("E0", "E1", rating_mw=8.0, circuits=3)], "hardware": {"cooling_kw_per_m2": 2.0},
        "prices": {"building_usd_per_it_mw": 2e6, "interconnection_usd_per_mw": 5e5, "site_usd": 4e6},
        "limits": {"budget_usd": 90e6, "operation_years": 3},
    }  # fmt: skip
    rules = {"ready_within_months": 24.0, "min_site_modules": 3, "max_sites": 2} | more.pop("rules", {})
    return case(*nodes, **parts | more, rules=rules)


def wants(reading: str, share: float) -> dict[str, Any]:
    return {"rules": {"interconnect": {"enabled": True, "share": share, "reading": reading}}}


SHARES = {"fault_split": FAULTS, "share_balance": {"enabled": True, "max_ratio": 1.5}, "n1": "margin"}
FIVES = {"hardware": {"cooling_kw_per_m2": 2.0, "racks_per_module": 5}}
SENTENCES: list[tuple[str, dict[str, Any], str]] = [
    ("headroom", {}, "headroom is E 12 MW, W 25 MW (37 MW in all)|"),
    # Plants of 26 MW less a load of 3 in the east, 11 in the west; the best site has 20 MW itself.
    ("generation", {"rules": {"grid_model": "none"}}, "plants can spare E 23 MW, W 11 MW|"),
    ("generation", {}, "plants can spare E 23 MW, W 11 MW, at a site itself at most 20 MW (E0)"),
    # E0 has three circuits of 8 MW and up to two new ones of 5.
    ("rating", {}, "lines into a site carry 34 MW at most (at E0, new circuits included)"),
    # A module of 1 MW at 2 kW/m²; of the sites whose land is limited the larger.
    ("area", {}, "a module's cooling takes 500 m²; the largest limited site, E1, has area_m2 900"),
    # E1: 9 MW, two steps of 3 and a new circuit of 4; by its circuits 24 + 6 + 4, of them the last by name; less one.
    ("interconnect", wants("explicit", 0.5),
     "explicit) wants 50% of a site's load on its circuits: the best site, E1, has 19 MW, enough for 38 MW of that|"),
    ("interconnect", wants("capacity", 0.25), "the best site, E1, has 34 MW, enough for 136 MW of that"),
    ("interconnect", wants("capacity_n1", 1.0), "the best site, E1, has 26 MW, enough for 26 MW of that"),
    ("interconnect", wants("explicit", 0.0),
     "0% of a site's load on its circuits: the best site, E1, has 19 MW|"),
    ("ready", {}, "is 24: 1 of 3 sites, E0 the first in 30 and 1 new lines come later"),
    ("ready", {"rules": {"ready_within_months": 17.0}}, "3 of 3 sites, E1 the first in 18 and 2 new lines come"),
    ("ready", {"rules": {"ready_within_months": 99.0}}, "is 99: 0 of 3 sites and 0 new lines come later|"),
    # A rack for 1 M$, 2 for the building, 0.5 to connect, and 8760·40 dollars a year in the west.
    ("budget", {},
     "a module costs at least $4.55M with 3 years of energy and an open site $4.00M, together $8.55M|"),
    ("budget", {"limits": {"budget_usd": 5e6}, "prices": {"site_usd": 0}},
     "is $5.00M, a module costs at least $1.00M|"),
    ("fault_split", {"rules": SHARES}, "none with more than 60% of the racks; candidates are in eastern, western|"),
    ("share_balance", {"rules": SHARES}, "wants no site more than 1.5 times the smallest"),
    ("security", {"rules": SHARES}, 'grid.rules.n1 "margin": flows after an outage must stay within ratings'),
    ("pins", {"pins": {"sites.racks": 12, "sites.max_sites": 2}}, "pins fix sites.max_sites=2, sites.racks=12|"),
    ("pins", FIVES | {"pins": {"sites.racks": 12, "sites.racks.W0": 5}}, "W0=5; racks come in modules of 5|"),
]  # fmt: skip


@each(("rule", "changes", "words"), SENTENCES)
def test_the_sentence_of_a_rule(rule: str, changes: dict[str, Any], words: str) -> None:
    """It has every number of its limit, by hand from the instance; a bar is its end."""
    assert words in RULES[rule].sentence(gather(questions(**changes), ANY)) + "|"


def test_sentences_of_a_lone_site() -> None:
    data = gather(case(node("E0"), headroom={"E": 7.0}), ANY)
    assert RULES["headroom"].sentence(data) == "headroom is E 7 MW"
    assert RULES["rating"].sentence(data) == "no line joins the nodes"
