"""A plan whose links fail is judged by its own lanes: changed lanes, rates and stops break a rule."""

import json
from functools import cache

import pytest
from joint_brute_failures import failing_links
from stored_plans import stored

from planner.checks.check_plan import check
from planner.checks.reliability import Failures, failures_of
from planner.instance.hardware import Reliability
from planner.instance.network import Switch
from planner.physics.reliability.recovery import fewest_stops, stops_per_gpu_second
from planner.plan.plan import Plan
from planner.planning.load import load_instance

TWO_LANES, ONE_LANE = 26, 27


@cache
def plan_of(seed: int) -> Plan:
    """Plan a toy once."""
    return stored(failing_links(seed))


@pytest.mark.parametrize("seed", [TWO_LANES, ONE_LANE])
def test_an_honest_plan_breaks_nothing(seed: int) -> None:
    """Plans of one and of two lanes hold by every rule, and name the stops of links and transceivers."""
    plan = plan_of(seed)
    assert check(plan) == []
    assert plan.reliability is not None and plan.reliability.stops_per_day_by_part["link"] > 0


@pytest.mark.parametrize("seed", [TWO_LANES, ONE_LANE])
def test_changed_stops_of_links_are_noticed(seed: int) -> None:
    """Stops of links that are those of another number of lanes are refused."""
    data = json.loads(plan_of(seed).model_dump_json())
    data["reliability"]["stops_per_day_by_part"]["link"] *= 2 if seed == ONE_LANE else 0.5
    assert {v.rule for v in check(Plan.model_validate(data))} == {"stops[link]"}


def test_lanes_differ_between_sites() -> None:
    """A plan whose sites split NICs over different numbers of lanes breaks a rule."""
    data = json.loads(plan_of(12).model_dump_json())
    sites = data["fabric"]["sites"]
    assert len(sites) == 2
    next(iter(sites.values()))["lanes"] = 1
    assert "lanes" in {v.rule for v in check(Plan.model_validate(data))}


@pytest.mark.parametrize("seed", range(0, 30, 3))
def test_bounds_count_the_same_links(seed: int) -> None:
    """The fewest stops of any fabric are the same by the checker and by the search."""
    i = load_instance(failing_links(seed))
    found = failures_of(i)
    assert found is not None and isinstance(i.reliability, Reliability)
    assert found.gpu_rate == pytest.approx(stops_per_gpu_second(i.reliability, fewest_stops(i, i.reliability)))


@pytest.mark.parametrize(("gbps", "lanes"), [(400, 1), (200, 2), (399, 2), (100, 4), (800, 1)])
def test_lanes_of_one_kind_of_switch(gbps: float, lanes: int) -> None:
    """A NIC of 400 Gbps has as many lanes as ports of the only switch make it up, and their transceivers."""
    i = load_instance(failing_links(12))
    assert i.network is not None
    (switch, *_) = (s for s in i.network.switches if isinstance(s, Switch))
    nic = i.hardware.model_copy(update={"nic_bytes_per_second": 50e9})
    network = i.network.model_copy(
        update={"switches": (switch.model_copy(update={"port_gbps": gbps}),), "max_lanes": 4}
    )
    found = failures_of(i.model_copy(update={"network": network, "hardware": nic}))
    assert found is not None
    assert (found.links, found.transceivers_per_link) == (lanes, network.cables.endpoint_transceivers)
    none = network.model_copy(update={"max_lanes": lanes - 1})
    fewer = failures_of(i.model_copy(update={"network": none, "hardware": nic}))
    assert fewer is not None and fewer.links == 0


@pytest.mark.parametrize("failover", [False, True])
@pytest.mark.parametrize("links", [0, 1, 2, 3])
@pytest.mark.parametrize("each", [0, 1, 2])
def test_rates_of_parts_by_hand(failover: bool, links: int, each: int) -> None:
    """A GPU stops once in 100 hours, a link in 50 and a transceiver in 400, these not where another link is left."""
    parts = {"gpu": {"gpu_hours_per_event": 100}, "link": {"link_hours_per_event": 50}}
    parts |= {"optic": {"transceiver_hours_per_event": 400}}
    r = Reliability.model_validate(
        {"parts": parts, "lane_failover": failover, "measured_gpus": 10, "scale_exponent": 2}
    )
    f, stopping = Failures(r=r, state_bytes=1.0, links=links, transceivers_per_link=each), links
    if failover and links > 1:
        stopping = 0
    wanted = {"gpu": 0.01, "link": stopping / 50, "optic": stopping * each / 400}
    assert {k: x * 3600 for k, x in f.part_rates.items()} == pytest.approx(wanted)
    assert f.gpu_rate * 3600 == pytest.approx(sum(wanted.values()))
    for gpus, more in ((1, 1), (10, 1), (30, 9)):
        assert float(f.rate(gpus)) * 3600 == pytest.approx(gpus * more * sum(wanted.values()))


def test_lanes_matter_only_where_links_are_counted() -> None:
    """Sites may split NICs as they like where stops are counted by GPU."""
    data = json.loads(plan_of(12).model_dump_json())
    next(iter(data["fabric"]["sites"].values()))["lanes"] = 1
    data["instance"]["reliability"]["parts"] = {"gpu": {"gpu_hours_per_event": 100.0}}
    assert "lanes" not in {v.rule for v in check(Plan.model_validate(data))}
