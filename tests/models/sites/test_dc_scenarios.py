"""The split under dc and N-1 in scenarios: agreement with a brute force by dense matrices and with rows by angles."""

from typing import Any

import pytest
from each_case import each
from power_grids import angles, same, violations, wire, with_years, years_case
from site_grids import ANY, OPTIONS, case, node, solved
from splits_by_matrices import best_split
from tiers import more

from planner import check, solve
from planner.instance.instance import Instance, Limits
from planner.models.sites.solve import largest_loads
from planner.planning.load import load_instance

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["robust", "expected"])
@pytest.mark.parametrize(("n1", "new"), [("off", 0), ("off", 2), ("margin", 0), ("node", 0), ("full", 0)])
@pytest.mark.parametrize("seed", [*range(3), *more(3, 4, 5)])
def test_agrees_with_angles_of_every_year(seed: int, n1: str, new: int, mode: str) -> None:
    instance, request = years_case(seed, mode, n1=n1, new=new)
    plan = solved(instance, request)
    found = (sum(s.racks for s in plan.sites), plan.certificate.objective or 0.0) if plan else None
    assert same(found, angles(instance, request))
    assert plan is None or violations(instance, plan) == []


@pytest.mark.parametrize("mode", ["robust", "expected"])
@pytest.mark.parametrize(("n1", "new"), [("off", 1), ("margin", 0), ("node", 1), ("full", 0), ("full", 1)])
@pytest.mark.parametrize("seed", [200, 201, *more(203)])
def test_agrees_with_every_split_tried(seed: int, n1: str, new: int, mode: str) -> None:
    instance, request = years_case(seed, mode, n1=n1, new=new)
    plan = solved(instance, request)
    found = (sum(s.racks for s in plan.sites), plan.certificate.objective or 0.0) if plan else None
    tried = best_split(instance, request)
    assert (
        found == tried
        if found is None or tried is None
        else found == (tried[0], pytest.approx(tried[1], rel=1e-6, abs=20.0))
    )


# One thing at a time: a site with 4 MW of its own, and two circuits of 3 MW to the plants beyond


def dry(mode: str, **rules: Any) -> Instance:
    nodes = (
        node("E0", generation_mw=4.0, largest_unit_mw=0.0),
        node("E1", generation_mw=20.0, site=False, largest_unit_mw=0.0),
    )
    instance = case(
        *nodes,
        lines=[wire("E0", "E1", rating_mw=3.0, circuits=2)],
        headroom={"E": 99.0},
        rules={"grid_model": "dc"} | rules,
    )
    year = {"name": "dry", "weight": 0.25, "generation_mw": {"E0": 0.0}}
    return with_years(instance, mode, year, curtailment_usd_per_mwh=500)


@each(("rules", "most", "least"), [
    ({}, 10, 6), ({"n1": "margin", "n1_margin": 0.5}, 7, 3), ({"n1": "node"}, 7, 3), ({"n1": "full"}, 7, 3),
])  # fmt: skip
def test_a_plant_out_leaves_what_the_circuits_carry(rules: dict[str, Any], most: int, least: int) -> None:
    """Without its own plant the site has its circuits, or those that an outage leaves: always, or in the dry year."""
    robust, expected = solved(dry("robust", **rules)), solved(dry("expected", **rules))
    assert robust is not None and sum(s.racks for s in robust.sites) == least
    assert expected is not None and sum(s.racks for s in expected.sites) == most
    assert expected.scenarios["dry"].running_mw == {"E0": pytest.approx(least)}
    assert expected.certificate.objective == pytest.approx(
        (0.75 * most * 40 + 0.25 * (least * 40 + (most - least) * 500)) * 8760
    )
    assert violations(dry("robust", **rules), robust) == violations(dry("expected", **rules), expected) == []


@each(("rules", "name"), [({}, "rating[E0-E1] in dry"), ({"n1": "full"}, "security[E0-E1,E0-E1] in dry")])
def test_the_year_is_named_that_stops_the_next_module(rules: dict[str, Any], name: str) -> None:
    """In the grid's own year there is room; the corridor of the dry one has none, and the site's plants are out."""
    (found,) = largest_loads(dry("robust", **rules), ANY, OPTIONS)
    assert found.stopped_by == ("generation[E0] in dry", name)


def test_an_outage_in_one_year_is_found() -> None:
    plan = solved(dry("robust"))
    flow = tuple(f.model_copy(update={"mw": -2.0}) for f in plan.flows)
    own = plan.model_copy(update={"generation_mw": {"E0": 4.0, "E1": 2.0}, "flows": flow})
    found = {v.rule for v in violations(dry("robust", n1="full"), own)}
    assert found == {"security[E0-E1, E0-E1] in dry"}


def test_a_flow_against_the_reactances_of_one_year_is_found() -> None:
    plan = solved(dry("robust"))
    run = plan.scenarios["dry"]
    turned = tuple(f.model_copy(update={"mw": f.mw / 2}) for f in run.flows)
    broken = plan.model_copy(update={"scenarios": {"dry": run.model_copy(update={"flows": turned})}})
    assert "power_flow[E0-E1] in dry" in {v.rule for v in violations(dry("robust"), broken)}


def test_every_decision_and_the_whole_checker() -> None:
    instance = dry("expected", n1="full").model_copy(update={"limits": Limits(max_batch_tokens=12800)})
    plan = solve(load_instance(instance.model_dump(mode="json", exclude_none=True)))
    assert check(plan) == []
    assert plan.sites is not None and plan.sites.certificate.space["outage_cuts"]
