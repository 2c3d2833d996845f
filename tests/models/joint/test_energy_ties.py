"""The last tie-break of a plan: of sites that cost alike, those of the cheapest energy."""

import pytest
from site_grids import case, node

import planner

RULES = {"grid_model": "none", "max_sites": 1}
LIMITS = {"budget_usd": 4.5e6, "max_batch_tokens": 2048}


@pytest.mark.parametrize("cheap", ["E", "W"])
@pytest.mark.parametrize("parts", [{}, {"objective": {"minimize": "cost_usd"}}])
def test_the_cheaper_of_two_equal_nodes_is_taken(cheap: str, parts: dict[str, dict[str, str]]) -> None:
    """Of two equal nodes at $190 and $20 a MWh the plan takes $20, as proven as before, and the checker agrees."""
    usd = {"E": 190.0, "W": 190.0} | {cheap: 20.0}
    instance = case(node("E0"), node("W0"), usd_per_mwh=usd, rules=RULES, limits=LIMITS)
    instance = type(instance).model_validate(
        instance.model_dump() | parts | ({"limits": LIMITS | {"deadline_days": 1e3}})
    )
    plan = planner.solve(instance)
    assert plan.sites is not None
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
    assert plan.sites is not None
    assert {s.id[0] for s in plan.sites.sites} == {"W"}
    assert planner.check(plan) == []
