"""Every figure of the reliability section is recomputed: any that is changed breaks a rule."""

import json
import math
from typing import Any

import numpy as np
import pytest
from failing_plan import RATES, failing
from worked_plan import edited

from planner.checks.check_plan import check
from planner.checks.reliability import Failures, at_least, mean_short
from planner.instance.hardware import Reliability
from planner.physics.reliability import spares
from planner.plan.plan import Plan

RECOVERIES = ("restart", "warm-spares", "elastic")


def changed(value: Any) -> Any:
    """Return another value of the same kind, a little away."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return value * 1.001 + 1e-6


def leaves(data: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """List the paths of the numbers in a section."""
    if isinstance(data, dict):
        return [x for key, value in data.items() for x in leaves(value, (*at, key))]
    return [at] if isinstance(data, (int, float)) else []


@pytest.mark.parametrize("recovery", RECOVERIES)
def test_an_honest_plan_breaks_nothing(recovery: str) -> None:
    """The worked plan of each way to go on holds by every rule."""
    assert check(failing(recovery)) == []


@pytest.mark.parametrize("recovery", RECOVERIES)
def test_each_changed_figure_is_noticed(recovery: str) -> None:
    """Each number of the section, changed alone, breaks a rule."""
    plan = json.loads(failing(recovery).model_dump_json())
    paths = leaves(plan["reliability"])
    assert len(paths) > 15
    missed = []
    for path in paths:
        data = json.loads(json.dumps(plan))
        holder = data["reliability"]
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = changed(holder[path[-1]])
        if not check(Plan.model_validate(data)):
            missed.append(".".join(path))
    assert missed == []


def test_a_section_without_failures_and_failures_without_one() -> None:
    """A plan whose instance counts failures needs the section, and no other plan has it."""
    plan = failing("elastic")
    none = plan.model_copy(update={"reliability": None})
    assert any(v.rule == "counted" for v in check(none))
    calm = plan.instance.model_copy(update={"reliability": None})
    assert any(v.rule == "counted" for v in check(plan.model_copy(update={"instance": calm})))


def test_a_worse_way_to_go_on_is_noticed() -> None:
    """A plan that takes one way where another that the instance allows trains more breaks a rule."""
    worse = failing("restart")
    r = worse.instance.reliability
    assert r is not None and not isinstance(r, str)
    every = r.model_copy(update={"recoveries": RECOVERIES, "elastic_stall_seconds": 1.0, "rejoin_seconds": 1.0})
    found = check(worse.model_copy(update={"instance": worse.instance.model_copy(update={"reliability": every})}))
    assert any("by the best way" in v.message for v in found)


@pytest.mark.parametrize(("needed", "spare", "p"), [(1, 0, 0.9), (40, 3, 0.97), (900, 30, 0.98), (10_000, 220, 0.981)])
def test_two_sums_of_binomials_agree(needed: int, spare: int, p: float) -> None:
    """The checker's chances are those of the physics."""
    assert at_least(needed, needed + spare, p) == pytest.approx(spares.enough_share(needed, spare, p), rel=1e-9)
    assert mean_short(needed, needed + spare, p) == pytest.approx(spares.mean_short(needed, spare, p), rel=1e-6)


def test_a_spare_rack_without_a_target_is_noticed_at_each_site() -> None:
    """Where no share of time is asked for, a spare rack breaks the rule of its own site, the last one's too."""
    plan = failing("restart", target=0.0)
    sites = sorted(plan.reliability.spare_racks_by_site)
    assert len(sites) > 1
    for site in sites:
        found = check(edited(plan, reliability__spare_racks_by_site={s: int(s == site) for s in sites}))
        assert [v.rule for v in found if v.rule.startswith("spares[")] == [f"spares[{site}]"]


def test_more_gpus_than_a_rack_holds_are_noticed() -> None:
    """All four GPUs of a rack work, so that none can stand by in it."""
    found = check(edited(failing("restart"), reliability__spare_gpus_per_rack=1))
    assert "5 GPUs work and stand by > 4 GPUs" in [v.message for v in found]


@pytest.mark.parametrize("recovery", ["restart", "warm-spares"])
@pytest.mark.parametrize("gpus", [1, 8, 600])
def test_the_least_stretch_of_larger_jobs(recovery: str, gpus: int) -> None:
    """It bounds every larger job, and is within 1 % of the least of them over finely spaced sizes."""
    f = Failures(r=Reliability.model_validate(RATES | {"recoveries": [recovery]}), state_bytes=6e6)
    for first in (1, 3, 40):
        larger = sorted({math.floor(first * 1.003**k) for k in range(2500)})
        least = float(f.min_stretch(larger, gpus).min())
        assert 0.99 * least <= float(f.stretch_from(first, gpus)) <= least


@pytest.mark.parametrize("recovery", ["restart", "warm-spares", "elastic"])
def test_the_fewest_gpus_of_a_rate(recovery: str) -> None:
    """No smaller job takes as few seconds for each GPU as any of many jobs does, and one of 1 % more seconds does."""
    f = Failures(r=Reliability.model_validate(RATES | {"recoveries": [recovery]}), state_bytes=6e6)
    gpus = np.unique(np.exp(np.linspace(1, 8, 3000)).astype(np.int64))
    rates = f.min_stretch(gpus, 1) / gpus
    least = np.minimum.accumulate(rates)
    fewest = f.fewest_gpus(least)
    first = gpus[np.searchsorted(-least, -least)]
    assert np.all(fewest <= first) and np.all(f.min_stretch(fewest + 1, 1) / (fewest + 1) <= least * 1.01)


def test_a_spare_rack_more_than_the_target_wants_is_noticed() -> None:
    """One rack fewer would reach the target too, and two fewer would not."""
    plan = failing("restart", target=0.98)
    count = plan.reliability.spare_racks_by_site
    for site in count:
        found = check(edited(plan, reliability__spare_racks_by_site=count | {site: count[site] + 1}))
        assert [v.rule for v in found if "with a rack less" in v.message] == [f"spares[{site}]"]


def test_copies_of_a_plan_without_zero_are_noticed() -> None:
    """Without ZeRO no step ends with a copy to a neighbour: another interval, and more of the time trains."""
    found = check(edited(failing("elastic"), layout__zero_stage=0))
    messages = {(v.rule, v.message.partition(":")[0]) for v in found}
    assert {("checkpoints", "interval"), ("useful_share", "useful share")} <= messages


@pytest.mark.parametrize("count", [-1, -9])
def test_fewer_than_no_gpus_that_stand_by_are_noticed(count: int) -> None:
    """A rack of which fewer than none stand by is never fit for work."""
    found = check(edited(failing("restart"), reliability__spare_gpus_per_rack=count))
    assert any(v.rule == "spares" for v in found)


@pytest.mark.parametrize("away", [5.0, 1e-3])
def test_days_gained_by_a_cause_are_noticed(away: float) -> None:
    """Days lost that sum to the right whole break the rule of each cause that would have gained some."""
    plan = failing("warm-spares")
    lost = dict(plan.reliability.lost_days)
    first, second, *_ = lost
    lost[second] += lost[first] + away
    lost[first] = -away
    found = check(edited(plan, reliability__lost_days=lost))
    assert [v.rule for v in found] == [f"useful_share[{first}]"]


@pytest.mark.parametrize(("spare", "rest"), [(0, "1 spare rack under a target"), (-1, "spare racks: -1 stated, 0")])
def test_a_site_without_spares_has_no_warm_ones(spare: int, rest: str) -> None:
    """Warm spares stand by at every site: where one has none, or fewer, there is no such way to go on."""
    plan = failing("warm-spares")
    count = plan.reliability.spare_racks_by_site
    for site in count:
        found = check(edited(plan, reliability__spare_racks_by_site=count | {site: spare}))
        assert any(v.rule == f"spares[{site}]" and v.message.startswith(rest) for v in found)
        assert any("0 such ways to go on" in v.message for v in found)


@pytest.mark.parametrize(("rest", "present"), [("restart", True), ("elastic", True), ("restart", False)])
def test_the_rules_where_nothing_counts(rest: str, present: bool) -> None:
    """A section that is not due breaks one rule; one that is due breaks none."""
    plan = failing(rest)
    if not present:
        given = plan.instance.workload.model_copy(update={"availability": 0.5})
        plan = plan.model_copy(update={"instance": plan.instance.model_copy(update={"workload": given})})
    rules = {v.rule for v in check(plan)}
    assert ("counted" in rules) == (not present)
    assert rules.isdisjoint({"stops", "checkpoints", "spares"})


@pytest.mark.parametrize(("wired", "spare", "limit"), [(2, 3, 2), (2, 2, None), (0, 5, 4), (0, 4, None)])
def test_what_stands_by_is_cabled(wired: int, spare: int, limit: int | None) -> None:
    """No more GPUs stand by than a rack has cabled, which are all of its four where nothing is said."""
    plan = edited(failing("restart"), fabric__sites__w1__wired_gpus_per_rack=wired)
    found = {v.message for v in check(edited(plan, reliability__spare_gpus_per_rack=spare)) if v.rule == "spares[w1]"}
    wanted = f"{spare} GPUs stand by > {limit} GPUs of a rack are cabled"
    assert (wanted in found) == (limit is not None)
    assert any("GPUs of a rack are cabled" in m for m in found) == (limit is not None)
