"""The rules of the site split: in step with the checker, cuts that hold elsewhere, sentences with their numbers."""

import random
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from site_grids import ANY, OPTIONS, case, line, node
from worked_plan import instance_with

from planner.checks.check_plan import SECTIONS
from planner.instance.grid import SOFT_UNITS
from planner.instance.instance import Instance
from planner.models.requests import GradientExchange, SitesRequest
from planner.models.sites import solve as sites
from planner.models.sites.dc_network import GridCut
from planner.models.sites.model import RULES, _reserve_cut
from planner.models.sites.solve import conflict
from planner.models.sites.split_data import gather


def test_every_rule_is_checked() -> None:
    checks = {rule.__name__ for section in ("sites", "cost") for rule in SECTIONS[section]}
    assert set(RULES) <= checks


def test_every_rule_says_its_mathematics() -> None:
    assert all(rule.rows.__doc__ for rule in RULES.values())
    assert len({rule.order for rule in RULES.values()}) == len(RULES)


def test_soft_rules_have_the_units_of_the_instance() -> None:
    assert {name: RULES[name].unit for name in SOFT_UNITS} == SOFT_UNITS


def test_labels_are_those_of_reports() -> None:
    """A label has the entries that name the row to the user, and none for a rule of one row."""
    assert RULES["headroom"].label("SRP") == "headroom[SRP]"
    assert RULES["rtt"].label(("a", "b")) == "rtt[a,b]"
    assert RULES["rating"].label(("k", -1)) == "rating[k]"
    assert RULES["budget"].label(None) == "budget"


@pytest.mark.parametrize(("mw", "racks"), [(4.0, 4), (3.999, 3)])
@pytest.mark.parametrize("model", ["dc", "transport"])
def test_import_share_of_a_site_without_plants(model: str, mw: float, racks: int) -> None:
    """A site without plants imports all that it draws: the circuit that is left must carry it, under dc too."""
    nodes = node("E0", generation_mw=0.0), node("E1", site=False)
    circuits = line("E0", "E1", rating_mw=mw, circuits=2, reactance_pu=0.01)
    rule = {"enabled": True, "reading": "import_share", "share": 1.0}
    instance = case(*nodes, lines=[circuits], rules={"grid_model": model, "interconnect": rule})
    plan = sites.solve(instance, ANY, OPTIONS).solution
    assert plan is not None
    assert [s.racks for s in plan.sites] == [racks]


def test_soft_headroom_does_not_loosen_generation_without_flows() -> None:
    rules = {"grid_model": "none", "soft": {"headroom": {"usd_per_year": 1.0, "max_excess": 9.0}}}
    instance = case(node("E0", generation_mw=4.0), headroom={"E": 3.0}, rules=rules)
    plan = sites.solve(instance, ANY, OPTIONS).solution
    assert plan is not None
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
        nodes={f"n{i}": i for i in range(plants)},
        width=plants,
        available_mw=available,
        unit_share=np.array([r.choice((0.3, 1.0)) for _ in range(plants)]),
        cut=cut,
    )
    topology = SimpleNamespace(condition=((0, True),))
    return SimpleNamespace(network=network, topology=topology, others_mw=available.sum() - available)


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_of_another_topology_forbids_nothing(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(50):
        of = contingencies(r)
        plant, lost = r.sample(range(of.network.width), 2)
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


def fives(**more: Any) -> Instance:
    """Return the same with modules of five racks."""
    return questions(hardware={"cooling_kw_per_m2": 2.0, "racks_per_module": 5}, **more)


def numbers(rule: str, i: Instance, request: SitesRequest | None = None) -> list[float]:
    """Return the numbers of a rule's sentence in their order, those in names left out."""
    said = RULES[rule].sentence(gather(i, request or SitesRequest()))
    words = re.findall(r"(?<![\w.])[\d,]*\d(?:\.\d+)?(?:e[+-]?\d+)?(?=[%\s.;:,)]|$)", said)
    return [float(w.replace(",", "")) for w in words]


def test_demand() -> None:
    """Twelve racks of 1 MW; a module is one rack, or five, of which twelve are no whole number."""
    asked = replace(SitesRequest(), racks=12)
    assert numbers("demand", questions()) == [1, 1]
    assert numbers("demand", questions(), asked) == [12, 12, 1, 1]
    assert "(1 rack)" in RULES["demand"].sentence(gather(questions(), asked))
    said = RULES["demand"].sentence(gather(fives(), asked))
    assert said.startswith("12 racks, not a whole number of modules of 5 need 12 MW")
    assert "one module (5 racks) needs 5 MW" in said
    assert "whole number" not in RULES["demand"].sentence(gather(fives(), replace(asked, racks=15)))


def test_headroom_and_generation() -> None:
    """12 and 25 MW of headroom, 37 in all; plants of 26 MW less a load of 3 in the east, 11 in the west.

    The best site has 20 MW itself.
    """
    assert numbers("headroom", questions()) == [12, 25, 37]
    assert numbers("generation", questions(rules={"grid_model": "none"})) == [23, 11]
    assert numbers("generation", questions(rules={"grid_model": "transport"})) == [23, 11, 20]
    assert "E 23 MW, W 11 MW, at a site itself at most 20 MW (E0)" in RULES["generation"].sentence(
        gather(questions(rules={"grid_model": "transport"}), SitesRequest())
    )
    one = case(node("E0"), headroom={"E": 7.0})
    assert numbers("headroom", one) == [7]


def test_ratings() -> None:
    """E0 has three circuits of 8 MW and up to two new ones of 5; E1 those and one of 4; W0 two of 5 and one of 4."""
    assert numbers("rating", questions()) == [34]
    assert "(at E0," in RULES["rating"].sentence(gather(questions(), SitesRequest()))
    assert RULES["rating"].sentence(gather(case(node("E0")), SitesRequest())) == "no line joins the nodes"


def test_land() -> None:
    """A module of 1 MW at 2 kW/m² takes 500 m²; of the sites whose land is limited the larger has 900."""
    assert numbers("area", questions()) == [500, 900]
    assert "E1" in RULES["area"].sentence(gather(questions(), SitesRequest()))


@pytest.mark.parametrize(
    ("reading", "share", "best", "usable"),
    [
        # E1: 9 MW, two steps of 3 and a new circuit of 4; E0: 4 MW and two new circuits of 5.
        ("explicit", 0.5, "E1", 9 + 6 + 4),
        # All circuits: E0 24 + 10, E1 24 + 6 + 4, of which the last by name is taken.
        ("capacity", 0.25, "E1", 34),
        # Without one circuit of 8 MW.
        ("capacity_n1", 1.0, "E1", 26),
    ],
)
def test_interconnects(reading: str, share: float, best: str, usable: float) -> None:
    """The share wanted, what the best site has with all that can be built and bought, and the load of that share."""
    i = questions(rules={"interconnect": {"enabled": True, "share": share, "reading": reading}})
    assert numbers("interconnect", i) == [share * 100, usable, usable / share]
    assert f"the best site, {best}, " in RULES["interconnect"].sentence(gather(i, SitesRequest()))


def test_no_share_of_the_load_is_enough_for_any() -> None:
    i = questions(rules={"interconnect": {"enabled": True, "share": 0.0, "reading": "explicit"}})
    assert numbers("interconnect", i) == [0, 19]


def test_ready() -> None:
    """Of three sites one comes after 24 months, in 30, and one of two new lines; at 17 all do, the first in 18."""
    assert numbers("ready", questions()) == [24, 1, 3, 30, 1]
    assert numbers("ready", questions(rules={"ready_within_months": 17.0})) == [17, 3, 3, 18, 2]
    assert "E1 the first in 18" in RULES["ready"].sentence(
        gather(questions(rules={"ready_within_months": 17.0}), SitesRequest())
    )
    assert numbers("ready", questions(rules={"ready_within_months": 99.0})) == [99, 0, 3, 0]


def test_budget() -> None:
    """90 M$; a module costs its rack, 1 M$, 2 for the building and 0.5 to connect, and three years of its energy.

    In the west, where it is cheapest: 8760·40 dollars a year. An open site costs 4 M$.
    """
    energy = 8760 * 40 / 1e6
    rack = 1.0
    assert numbers("budget", questions()) == pytest.approx([90, rack + 2 + 0.5 + 3 * energy, 3, 4], rel=1e-5)
    bare = questions(limits={"budget_usd": 5e6}, prices={"site_usd": 0})
    assert numbers("budget", bare)[0] == 5 and len(numbers("budget", bare)) == 2


def test_counts_and_shares() -> None:
    """At most two sites of three modules at least; fault split and balance by their numbers."""
    split = {"enabled": True, "min_interconnections": 2, "max_share": 0.6}
    i = questions(rules={"fault_split": split, "share_balance": {"enabled": True, "max_ratio": 1.5}, "n1": "margin"})
    assert numbers("min_site", i) == [3, 3]
    assert numbers("site_count", i) == [2]
    assert numbers("fault_split", i) == [2, 60]
    assert "candidates are in eastern, western" in RULES["fault_split"].sentence(gather(i, SitesRequest()))
    assert numbers("share_balance", i) == [1.5]
    assert '"margin"' in RULES["security"].sentence(gather(i, SitesRequest()))


def test_pins() -> None:
    """Totals and sites by name with their values; racks that are no whole modules are said to come in modules."""
    i = questions(pins={"sites.racks": 12, "sites.max_sites": 2, "sites.racks.W0": 5})
    said = RULES["pins"].sentence(gather(i, SitesRequest()))
    assert said == "pins fix sites.max_sites=2, sites.racks=12, sites.racks.W0=5"
    odd = fives(pins={"sites.racks": 12, "sites.racks.W0": 5})
    assert RULES["pins"].sentence(gather(odd, SitesRequest())).endswith("W0=5; racks come in modules of 5")
    even = fives(pins={"sites.racks": 10, "sites.max_sites": 3})
    assert RULES["pins"].sentence(gather(even, SitesRequest())) == "pins fix sites.max_sites=3, sites.racks=10"


def test_wide_area() -> None:
    """One wavelength of 1 Mb/s; two sites exchange 10 MB each in 10 s less round trips, over twice the capacity."""
    instance = instance_with(wan__max_wavelengths_per_pair=1, wan__max_fibre_pairs=1)
    request = SitesRequest(exchange=GradientExchange(stage_bytes=1e7, window_seconds=10.0))
    text = RULES["wan_capacity"].sentence(gather(instance, request))
    limits = r"two sites can be joined by 0\.001 Gbps at most; 3 of 3 pairs need more, "
    found = re.fullmatch(limits + r"w1-w2 ([\d.]+) Gbps or more \(1\.703 ms apart\)", text)
    assert found is not None, text
    assert float(found[1]) == pytest.approx(2 * 8e7 / 10 / 1e9, rel=1e-3)
