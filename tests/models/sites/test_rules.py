"""The registry of the site split's rules: in step with the checker, with the units of soft rules and with reports."""

from dataclasses import replace

import pytest
from site_grids import ANY, OPTIONS, case, line, node

from planner.checks.check_plan import SECTIONS
from planner.instance.grid import SOFT_UNITS
from planner.models.sites import solve as sites
from planner.models.sites.model import RULES
from planner.models.sites.solve import conflict


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
