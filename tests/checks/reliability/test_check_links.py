"""A plan whose links fail is judged by its own lanes: changed lanes, rates and stops break a rule."""

from functools import cache

import pytest
from joint_brute_failures import failing_links
from stored_plans import stored
from worked_plan import edited_at

from planner.checks.check_plan import check
from planner.checks.reliability import Failures, failures_of
from planner.instance.hardware import Reliability
from planner.instance.network import Switch
from planner.physics.recovery import fewest_stops, stops_per_gpu_second
from planner.plan.plan import Plan
from planner.planning.load import load_instance

TWO_LANES, ONE_LANE = 26, 27


@cache
def plan_of(seed: int) -> Plan:
    return stored(failing_links(seed))


@pytest.mark.parametrize("seed", [TWO_LANES, ONE_LANE])
def test_an_honest_plan_breaks_nothing(seed: int) -> None:
    """Plans of one and of two lanes hold by every rule, and name the stops of links and transceivers."""
    plan = plan_of(seed)
    assert check(plan) == []
    assert plan.reliability.stops_per_day_by_part["link"] > 0


@pytest.mark.parametrize(("seed", "factor"), [(TWO_LANES, 0.5), (ONE_LANE, 2)])
def test_changed_stops_of_links_are_noticed(seed: int, factor: float) -> None:
    bent = edited_at(plan_of(seed), "reliability.stops_per_day_by_part.link", lambda x: x * factor)
    assert {v.rule for v in check(bent)} == {"stops[link]"}


def test_lanes_differ_between_sites() -> None:
    """Sites that split NICs over different numbers of lanes break a rule, but where stops are counted by GPU."""
    plan = plan_of(12)
    assert len(plan.fabric.sites) == 2
    apart = edited_at(plan, f"fabric.sites.{min(plan.fabric.sites)}.lanes", 1)
    assert "lanes" in {v.rule for v in check(apart)}
    by_gpu = edited_at(apart, "instance.reliability.parts", {"gpu": {"gpu_hours_per_event": 100.0}})
    assert "lanes" not in {v.rule for v in check(by_gpu)}


@pytest.mark.parametrize("seed", range(0, 30, 3))
def test_bounds_count_the_same_links(seed: int) -> None:
    i = load_instance(failing_links(seed))
    found = failures_of(i)
    assert isinstance(i.reliability, Reliability)
    assert found.gpu_rate == pytest.approx(stops_per_gpu_second(i.reliability, fewest_stops(i, i.reliability)))


@pytest.mark.parametrize(("gbps", "lanes"), [(400, 1), (200, 2), (399, 2), (100, 4), (800, 1)])
def test_lanes_of_one_kind_of_switch(gbps: float, lanes: int) -> None:
    """A NIC of 400 Gbps has as many lanes as ports of the only switch make it up, and their transceivers."""
    i = load_instance(failing_links(12))
    (switch, *_) = (s for s in i.network.switches if isinstance(s, Switch))
    nic = i.hardware.model_copy(update={"nic_bytes_per_second": 50e9})

    def found(most: int) -> Failures:
        boxes = {"switches": (switch.model_copy(update={"port_gbps": gbps}),), "max_lanes": most}
        return failures_of(i.model_copy(update={"network": i.network.model_copy(update=boxes), "hardware": nic}))

    each = i.network.cables.endpoint_transceivers
    assert (found(4).links, found(4).transceivers_per_link, found(lanes - 1).links) == (lanes, each, 0)


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
