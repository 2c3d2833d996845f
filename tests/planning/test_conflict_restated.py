"""Rules of sites in conflict, judged by two formulations that share no row: they agree wherever both know."""

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from site_grids import random_case

import planner
from planner.checks.registry import check
from planner.errors import InternalError
from planner.models.requests import Options, SitesRequest
from planner.models.sites.conflict import conflict, feasible, infeasible
from planner.models.sites.data import gather
from planner.models.sites.rules.registry import RULES
from planner.plan.certificate import Conflict
from planner.plan.declared import RESTATED
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


def test_a_shipped_conflict_is_confirmed() -> None:
    """The campus at one site says why not, twice; a mark that no such conflict has is refused."""
    plan = planner.solve(ROOT / "instances" / "5gw-one-site.json")
    assert plan.status == "infeasible" and plan.conflict is not None
    assert plan.conflict.checked == RESTATED and check(plan) == []
    data = json.loads(plan.model_dump_json())
    data["conflict"]["checked"] = "recomputed"
    assert {v.rule for v in check(Plan.model_validate(data))} == {"known_rules"}


def test_rules_that_can_be_kept_are_no_conflict() -> None:
    """A made-up conflict is refused where it is to be written."""
    instance, _ = random_case(0)
    why = Conflict(decision="sites", rules=("demand", "site_count"), reason="made up")
    assert holds(instance, why.rules) and feasible(gather(instance, SitesRequest()), why.rules, Options())
    with pytest.raises(InternalError, match="demand, site_count"):
        conflicts._restated(instance, why, 0.0)
