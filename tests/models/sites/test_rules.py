"""The rules of the site split: in step with the checker, cuts that hold elsewhere, sentences with their numbers."""

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
from site_grids import ANY, OPTIONS, case, line, node
from worked_plan import instance_with

from planner.checks.check_plan import SECTIONS
from planner.instance.grid import SOFT_UNITS
from planner.instance.instance import Instance
from planner.models import GradientExchange, SitesRequest
from planner.models.sites import solve as sites
from planner.models.sites.dc_network import GridCut
from planner.models.sites.model import RULES, _reserve_cut
from planner.models.sites.solve import conflict
from planner.models.sites.split_data import gather


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
     "a module costs at least 4.5512 M$ with 3 years of energy and an open site 4 M$, together 8.5512 M$|"),
    ("budget", {"limits": {"budget_usd": 5e6}, "prices": {"site_usd": 0}}, None,
     "is 5 M$, a module costs at least 1 M$|"),
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
