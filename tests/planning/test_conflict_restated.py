"""Rules of sites in conflict, judged by two formulations that share no row: they agree wherever both know."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from power_grids import power_case
from site_grids import case, line, node, random_case
from stored_plans import stored

from planner.checks.check_plan import check
from planner.errors import InternalError
from planner.models.requests import Options, SitesRequest
from planner.models.sites.model import RULES
from planner.models.sites.solve import conflict, feasible, infeasible
from planner.models.sites.split_data import gather
from planner.plan.certificate import RESTATED, Conflict
from planner.plan.plan import Plan
from planner.planning import conflict as conflicts
from planner.planning.conflict_restated import EASED, STATED, holds

ROOT = Path(__file__).parents[2]
SUBSETS = 6


@pytest.mark.parametrize("seed", range(60))
def test_both_formulations_agree_on_any_rules(seed: int) -> None:
    """Of random grids and random sets of rules, what one calls infeasible the other does, and what is known holds."""
    instance, request = random_case(seed)
    data, draw = gather(instance, replace(request, racks=None, exchange=None)), random.Random(seed)
    for _ in range(SUBSETS):
        names = frozenset(n for n in RULES if draw.random() < 0.6)
        answer = holds(instance, names, request.fabric_usd_per_rack)
        assert answer is not False or infeasible(data, names, Options()), sorted(names)
        assert answer is not True or feasible(data, names, Options()), sorted(names)
        if names <= STATED - EASED and instance.grid is not None and instance.grid.rules.grid_model != "dc":
            known = not instance.grid.rules.soft and instance.grid.rules.scenarios == "off"
            assert not known or answer is not None


@pytest.mark.slow
def test_the_cases_are_of_every_kind() -> None:
    """Conflicts of the random grids are confirmed, and sets of rules that can be kept are found."""
    found: Counter[bool | None] = Counter()
    for seed in range(160):
        instance, request = random_case(seed)
        why = conflict(instance, replace(request, racks=None, exchange=None), Options())
        if why is not None:
            found[holds(instance, why.rules, request.fabric_usd_per_rack)] += 1
            loose = set(why.rules[1:])
            assert holds(instance, loose, request.fabric_usd_per_rack) is not False
    assert found[False] > 20 and found[True] == 0


@pytest.mark.parametrize("seed", range(30))
def test_flows_by_the_dc_equations_agree(seed: int) -> None:
    """What neither formulation can feed over lines with reactances is the same; circuits to build leave it open."""
    built = seed % 3 == 0
    instance, request = power_case(seed, n1=("off", "margin")[seed % 2], new=built)
    draw = random.Random(seed)
    for racks in (2, 4, 7, 11):
        pinned = instance.model_copy(update={"pins": {"sites.racks": racks}})
        data = gather(pinned, replace(request, racks=None, exchange=None))
        names = frozenset(n for n in RULES if n in ("pins", "rating", "generation") or draw.random() < 0.4)
        answer = holds(pinned, names & STATED - EASED, request.fabric_usd_per_rack)
        if answer is None:
            assert built
        else:
            assert answer is not infeasible(data, names & STATED - EASED, Options())


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_angles_decide_where_flows_alone_would_not(share: float) -> None:
    """Two lines that could carry 10 MW carry 5.6 MW: nine tenths are on the stiff one."""
    lines = [
        line("E0", "E1", id="stiff", rating_mw=5.0, reactance_pu=0.01 * share),
        line("E0", "E1", id="soft", rating_mw=5.0, reactance_pu=0.01 * (1 - share)),
    ]
    nodes = node("E0", generation_mw=99.0, site=False), node("E1", generation_mw=0.0, site=True)
    for model, most in (("transport", 10), ("dc", 5)):
        for racks in (most, most + 1):
            pins = {"sites.racks": racks}
            grid = case(*nodes, lines=lines, pins=pins, rules={"grid_model": model}, headroom={"E": 100.0})
            assert holds(grid, {"pins", "rating", "generation"}) is (racks <= most), (model, racks)


def test_sites_too_far_apart_or_without_fibre_are_no_split() -> None:
    nodes = [node(f"E{i}", site=True, latitude=40.0 + 5 * i) for i in range(2)]
    pins = {"sites.racks.E0": 1, "sites.racks.E1": 1}
    near, far = (case(*nodes, pins=pins, rules={"grid_model": "none", "max_rtt_ms": ms}) for ms in (100.0, 1.0))
    assert holds(near, {"pins", "rtt"}) is True and holds(far, {"pins", "rtt"}) is False
    places = [{"id": n["id"], "latitude": n["latitude"], "longitude": n["longitude"]} for n in nodes]
    joined = {"fibre_nodes": places, "fibre_edges": [{"a": "E0", "b": "E1", "id": "one"}]}
    for protection, answer in (("none", None), ("one_cut", False)):
        grid = case(*nodes, pins=pins, rules={"grid_model": "none"}, wan=joined | {"protection": protection})
        assert holds(grid, {"pins", "wan_capacity"}) is answer, protection


def test_a_shipped_conflict_is_confirmed() -> None:
    """The campus at one site says why not, twice; a mark that no such conflict has is refused."""
    plan = stored(ROOT / "instances" / "5gw-one-site.json")
    assert plan.status == "infeasible"
    assert plan.conflict.checked == RESTATED and check(plan) == []
    data = json.loads(plan.model_dump_json())
    data["conflict"]["checked"] = "recomputed"
    assert {v.rule for v in check(Plan.model_validate(data))} == {"known_rules"}


def test_rules_that_can_be_kept_are_no_conflict() -> None:
    instance, _ = random_case(0)
    why = Conflict(decision="sites", rules=("demand", "site_count"), reason="made up")
    assert holds(instance, why.rules) and feasible(gather(instance, SitesRequest()), why.rules, Options())
    with pytest.raises(InternalError, match="demand, site_count"):
        conflicts._restated(instance, why, 0.0)
