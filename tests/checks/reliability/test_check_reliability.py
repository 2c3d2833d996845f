"""Every figure of the reliability section is recomputed, links and lanes too: any that is changed breaks a rule."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from each_case import each
from failing_plan import RATES, failing
from joint_brute_failures import failing_links
from stored_plans import stored
from worked_plan import edited, edited_at, leaves

from planner.checks.check_plan import check
from planner.checks.reliability import Failures, failures_of
from planner.instance.network import Switch
from planner.instance.reliability import Reliability
from planner.physics.recovery import CheckpointedJob, GpuLinks
from planner.plan.plan import Plan
from planner.planning.load import load_instance

RECOVERIES = ("restart", "warm-spares", "elastic")
DUE = {"stops", "checkpoints", "spares"}


@pytest.mark.parametrize("recovery", RECOVERIES)
def test_each_changed_figure_is_noticed(recovery: str) -> None:
    def changed(x: Any) -> Any:
        return not x if isinstance(x, bool) else x + 1 if isinstance(x, int) else x * 1.001 + 1e-6

    plan = failing(recovery)
    assert check(plan) == []
    every = leaves(plan.reliability.model_dump(mode="json"), "reliability")
    paths = [path for path, x in every if isinstance(x, (int, float))]
    assert len(paths) > 15
    assert [path for path in paths if not check(edited_at(plan, path, changed))] == []


def test_a_section_without_failures_and_failures_without_one() -> None:
    """A plan whose instance counts failures needs the section; no other has it, and there nothing else is judged."""
    plan = failing("elastic")
    assert any(v.rule == "counted" for v in check(plan.replaced(reliability=None)))
    given = plan.instance.workload.replaced(availability=0.5)
    for calm in ({"reliability": None}, {"workload": given}):
        found = check(plan.replaced(instance=plan.instance.replaced(**calm)))
        assert "counted" in {v.rule for v in found} and {v.rule for v in found}.isdisjoint(DUE)


def test_a_worse_way_to_go_on_is_noticed() -> None:
    every = {"recoveries": list(RECOVERIES), "elastic_stall_seconds": 1.0, "rejoin_seconds": 1.0}
    found = check(edited(failing("restart"), **{f"instance__reliability__{k}": x for k, x in every.items()}))
    assert any("by the best way" in v.message for v in found)
    # Without ZeRO no step ends with a copy to a neighbour: another interval, and more of the time trains.
    found = check(edited(failing("elastic"), layout__zero_stage=0))
    messages = {(v.rule, v.message.partition(":")[0]) for v in found}
    assert {("checkpoints", "checkpoint_interval_seconds"), ("useful_share", "useful_share")} <= messages


def test_a_spare_rack_without_a_target_is_noticed_at_each_site() -> None:
    """Where no share of time is asked for, or it is met with a rack less, one too many breaks its site's rule."""
    plan, spared = failing("restart", target=0.0), failing("restart", target=0.98)
    sites, count = sorted(plan.reliability.spare_racks_by_site), spared.reliability.spare_racks_by_site
    assert len(sites) > 1
    for site in sites:
        found = check(edited(plan, reliability__spare_racks_by_site={s: int(s == site) for s in sites}))
        assert [v.rule for v in found if v.rule.startswith("spares[")] == [f"spares[{site}]"]
        found = check(edited(spared, reliability__spare_racks_by_site=count | {site: count[site] + 1}))
        assert [v.rule for v in found if "with a rack less" in v.message] == [f"spares[{site}]"]


@each(("count", "said"), [(1, "5 GPUs work and stand by > 4 GPUs"), (-1, ""), (-9, "")])
def test_a_rack_has_no_more_gpus_that_stand_by_and_no_fewer_than_none(count: int, said: str) -> None:
    found = check(edited(failing("restart"), reliability__spare_gpus_per_rack=count))
    assert any(v.rule == "spares" or v.message == said for v in found)
    assert not said or said in [v.message for v in found]


def failures(recovery: str) -> Failures:
    r = Reliability.model_validate(RATES | {"recoveries": [recovery]})
    return Failures(CheckpointedJob(r=r, gpus=1.0, replica_gpus=0.0, state_bytes=6e6))


@each("recovery", ["restart", "warm-spares"])
@each("gpus", [1, 8, 600])
def test_the_least_stretch_of_larger_jobs(recovery: str, gpus: int) -> None:
    """It bounds every larger job, and is within 1 % of the least of them over finely spaced sizes."""
    f = failures(recovery)
    for first in (1, 3, 40):
        larger = sorted({math.floor(first * 1.003**k) for k in range(2500)})
        least = float(f.min_stretch(larger, gpus).min())
        assert 0.99 * least <= float(f.stretch_from(first, gpus)) <= least


@each("recovery", RECOVERIES)
def test_the_fewest_gpus_of_a_rate(recovery: str) -> None:
    """No smaller job takes as few seconds for each GPU as any of many jobs does, and one of 1 % more seconds does."""
    f = failures(recovery)
    gpus = np.unique(np.exp(np.linspace(1, 8, 3000)).astype(np.int64))
    least = np.minimum.accumulate(f.min_stretch(gpus, 1) / gpus)
    fewest = f.fewest_gpus(least)
    first = gpus[np.searchsorted(-least, -least)]
    assert np.all(fewest <= first) and np.all(f.min_stretch(fewest + 1, 1) / (fewest + 1) <= least * 1.01)


@each("away", [5.0, 1e-3])
def test_days_gained_by_a_cause_are_noticed(away: float) -> None:
    plan = failing("warm-spares")
    lost = dict(plan.reliability.lost_days)
    first, second, *_ = lost
    lost[second] += lost[first] + away
    lost[first] = -away
    assert [v.rule for v in check(edited(plan, reliability__lost_days=lost))] == [f"useful_share[{first}]"]


@each(("spare", "rest"), [(0, "1 spare rack under a target"), (-1, "spare racks: -1 stated, 0")])
def test_a_site_without_spares_has_no_warm_ones(spare: int, rest: str) -> None:
    plan = failing("warm-spares")
    count = plan.reliability.spare_racks_by_site
    for site in count:
        found = check(edited(plan, reliability__spare_racks_by_site=count | {site: spare}))
        assert any(v.rule == f"spares[{site}]" and v.message.startswith(rest) for v in found)
        assert any("0 such ways to go on" in v.message for v in found)


@each(("wired", "spare", "limit"), [(2, 3, 2), (2, 2, None), (0, 5, 4), (0, 4, None)])
def test_what_stands_by_is_cabled(wired: int, spare: int, limit: int | None) -> None:
    plan = edited(failing("restart"), fabric__sites__w1__wired_gpus_per_rack=wired)
    found = {v.message for v in check(edited(plan, reliability__spare_gpus_per_rack=spare)) if v.rule == "spares[w1]"}
    wanted = f"{spare} GPUs stand by > {limit} GPUs of a rack are cabled"
    assert (wanted in found) == (limit is not None)
    assert any("GPUs of a rack are cabled" in m for m in found) == (limit is not None)


TWO_LANES, ONE_LANE = 26, 27


@cache
def plan_of(seed: int) -> Plan:
    return stored(failing_links(seed))


@pytest.mark.parametrize(("seed", "factor"), [(TWO_LANES, 0.5), (ONE_LANE, 2)])
def test_stops_of_links_are_those_of_the_lanes_stated(seed: int, factor: float) -> None:
    """A fabric whose NICs have no lanes has no link that stops the job, whatever another fabric might have."""
    plan = plan_of(seed)
    assert check(plan) == [] and plan.reliability.stops_per_day_by_part["link"] > 0
    bent = edited_at(plan, "reliability.stops_per_day_by_part.link", lambda x: x * factor)
    assert {v.rule for v in check(bent)} == {"stops[link]"}
    found = check(edited_at(plan, f"fabric.sites.{min(plan.fabric.sites)}.lanes", 0))
    links = [v.message for v in found if v.rule in ("stops[link]", "stops[optic]")]
    assert links and all(" 0 stops a day recomputed" in message for message in links)


def test_lanes_differ_between_sites() -> None:
    plan = plan_of(12)
    assert len(plan.fabric.sites) == 2
    apart = edited_at(plan, f"fabric.sites.{min(plan.fabric.sites)}.lanes", 1)
    assert "lanes" in {v.rule for v in check(apart)}
    by_gpu = edited_at(apart, "instance.reliability.parts", {"gpu": {"gpu_hours_per_event": 100.0}})
    assert "lanes" not in {v.rule for v in check(by_gpu)}


@each(("gbps", "lanes"), [(400, 1), (200, 2), (399, 2), (100, 4), (800, 1)])
def test_lanes_of_one_kind_of_switch(gbps: float, lanes: int) -> None:
    """A NIC of 400 Gbps has as many lanes as ports of the only switch make it up, and their transceivers."""
    i = load_instance(failing_links(12))
    (switch, *_) = (s for s in i.network.switches if isinstance(s, Switch))
    nic = i.hardware.replaced(nic_bytes_per_second=50e9)

    def found(most: int) -> Failures:
        boxes = {"switches": (switch.replaced(port_gbps=gbps),), "max_lanes": most}
        return failures_of(i.replaced(network=i.network.model_copy(update=boxes), hardware=nic))

    each = i.network.cables.endpoint_transceivers
    assert (found(4).job.links, found(lanes - 1).job.links) == (GpuLinks(lanes, lanes * each), GpuLinks(0, 0))
