"""What every grid must keep: it feeds itself without a site, and what nothing uses changes no optimum."""

import grid_properties
import pytest
from best_splits import split
from each_case import each
from site_grids import case, line, node

from planner.checks import power_flow
from planner.checks import sites as site_rules
from planner.instance.instance import Instance
from planner.physics.plan_physics import PlanPhysics
from planner.plan.certificate import Certificate
from planner.plan.plan import Plan
from planner.plan.plan_sections import Flow, SitesPlan

IMPORTS = {"enabled": True, "share": 0.5, "reading": "import_share"}


def racks(instance: Instance) -> dict[str, int]:
    """Return the racks by site of the best split, none where there is none."""
    plan = split(instance).solution
    return {s.id: s.racks for s in plan.sites} if plan else {}


@pytest.mark.parametrize("seed", range(40))
def test_properties_of_random_grids(seed: int) -> None:
    assert grid_properties.faults(grid_properties.random_grid(seed).grid, seed) == []


@pytest.mark.parametrize("seed", range(40))
def test_a_dispatch_without_sites_keeps_the_rules_as_checked(seed: int) -> None:
    made = grid_properties.random_grid(seed)
    instance = grid_properties.instance_of(made.grid)
    plan = SitesPlan.model_construct(
        sites=(), links=(), new_lines=(), upgrades=(), excess=(), scenarios={}, generation_mw=made.fed,
        flows=tuple(Flow(line=k, mw=x) for k, x in made.flow.items()), certificate=Certificate.model_construct(),
    )  # fmt: skip
    c = PlanPhysics(plan=Plan.model_construct(instance=instance, sites=plan, layout=None, fabric=None, placement=None))
    rules = (*power_flow.YEAR_RULES, site_rules.each_site)
    assert [v for rule in rules for v in rule(c)] == []


@each("model", ["none", "transport", "dc"])
def test_the_load_of_a_node_without_a_site_is_no_draw_of_one(model: str) -> None:
    """A candidate that draws 0.3 MW of its own over its only line forbids no site elsewhere while it is closed."""
    nodes = node("E0", generation_mw=50.0), node("E1", generation_mw=0.0, load_mw=0.3)
    lines = [line("E0", "E1", rating_mw=6.0, reactance_pu=0.01)]
    rules = {"grid_model": model, "interconnect": IMPORTS}
    assert racks(case(*nodes, lines=lines, rules=rules)) == {"E0": 10}


def test_plants_feed_other_areas() -> None:
    """An area without headroom feeds the load and the sites of another: headroom limits what its own sites draw."""
    nodes = node("E0", generation_mw=9.0), node("W0", generation_mw=0.0, load_mw=4.0)
    instance = case(*nodes, lines=[line("E0", "W0")], headroom={"E": 0.0, "W": 7.0})
    assert racks(instance) == {"W0": 5}


@each(("generation", "expected"), [(3.0, {"W0": 9}), (9.0, {"E0": 6, "W0": 9})])
def test_an_area_short_of_plants_forbids_no_site_elsewhere(generation: float, expected: dict[str, int]) -> None:
    nodes = node("E0", generation_mw=generation, load_mw=3.0 + 0.5 * (generation < 9)), node("W0", generation_mw=9.0)
    assert racks(case(*nodes, rules={"grid_model": "none"})) == expected


@each("model", ["transport", "dc"])
@each(("rating", "expected"), [(3.0, {"W0": 2}), (2.0, {})])
def test_what_is_fed_in_whatever_is_planned_must_go_somewhere(model, rating, expected) -> None:
    nodes = node("E0", generation_mw=0.0, load_mw=-3.0, site=False), node("W0", generation_mw=0.0, load_mw=1.0)
    instance = case(*nodes, lines=[line("E0", "W0", rating_mw=rating, reactance_pu=0.01)], rules={"grid_model": model})
    assert racks(instance) == expected


@each("first", ["E0", "E9"])
@each("n1", ["node", "full"])
def test_load_that_a_lost_line_leaves_dark_forbids_no_site_whatever_its_name(first: str, n1: str) -> None:
    """A node without plants behind one line loses its load with it, be it the first of its island or the last."""
    dark = node(first, generation_mw=0.0, load_mw=0.5, site=False)
    plants = {"generation_mw": 8.0, "largest_unit_mw": 1.0}
    nodes = dark, node("E1", **plants), node("E2", **plants, site=False)
    lines = [line(first, "E1", reactance_pu=0.01), line("E1", "E2", circuits=3, reactance_pu=0.01)]
    rules = {"grid_model": "dc", "n1": n1}
    assert racks(case(*nodes, lines=lines, rules=rules, headroom={"E": 5.0})) == {"E1": 5}
