"""Stops by links and transceivers of GPUs: rates by hand, lanes that stand in for each other, what is refused."""

import pytest
from each_case import each
from joint_brute_failures import failing_links
from pydantic import ValidationError

from planner.errors import InputError
from planner.instance.hardware import FailingPart, Reliability
from planner.instance.instance import Instance
from planner.physics import recovery
from planner.planning.load import load_instance

PARTS = {
    "gpu": FailingPart(gpu_hours_per_event=100.0),
    "link": FailingPart(link_hours_per_event=50.0),
    "optic": FailingPart(transceiver_hours_per_event=400.0),
}


def stops_per_hour(r: Reliability, gpus: int, links: recovery.GpuLinks) -> float:
    job = recovery.CheckpointedJob(r=r, gpus=gpus, replica_gpus=1, state_bytes=0.0, links=links)
    return float(job.stops_per_second) * 3600


def test_rates_by_hand() -> None:
    """A GPU of two links with two transceivers each: an event in 100, 25 and 100 hours, 6 in 100 hours in all."""
    r = Reliability(parts=PARTS)
    found = recovery.part_stops_per_gpu_second(r, recovery.GpuLinks(2, 4))
    assert {k: x * 3600 for k, x in found.items()} == pytest.approx({"gpu": 0.01, "link": 0.04, "optic": 0.01})
    assert stops_per_hour(r, 10, recovery.GpuLinks(2, 4)) == pytest.approx(0.6)
    assert stops_per_hour(r, 10, recovery.NO_LINKS) == pytest.approx(0.1)


def test_lanes_stand_in_for_each_other_where_asked() -> None:
    """With failover two links stop nothing, and one still does."""
    r = Reliability(parts=PARTS, lane_failover=True)
    assert stops_per_hour(r, 1, recovery.GpuLinks(2, 4)) == pytest.approx(0.01)
    assert stops_per_hour(r, 1, recovery.GpuLinks(1, 2)) == pytest.approx(0.01 + 0.02 + 0.005)


def test_lanes_of_an_instance() -> None:
    """The lanes to choose from are those of its switches; the fewest stops are of one link, or of two with failover."""
    i = failing_links(0)
    assert recovery.lanes_to_choose(i) == [1, 2]
    assert recovery.gpu_links(i.network, 2) == recovery.GpuLinks(2, 2 * i.network.cables.endpoint_transceivers)
    for failover, fewest in ((False, 1), (True, 2)):
        r = i.reliability.replaced(lane_failover=failover)
        assert recovery.fewest_stops(i, r).links == fewest
    assert recovery.lanes_to_choose(i.replaced(network__max_lanes=1)) == [1]
    assert recovery.lanes_to_choose(i.replaced(network=None)) == []


@each(("part", "word"), [
    ({}, "no hours_per_event"),
    ({"gpu_hours_per_event": 1.0, "link_hours_per_event": 1.0}, "gpu_hours_per_event and link_hours_per_event"),
    ({"link_hours_per_event": 1.0, "repair_hours": 1.0}, "repair_hours with link_hours_per_event"),
])  # fmt: skip
def test_a_part_is_counted_once(part: dict[str, float], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        FailingPart.model_validate(part)


def test_links_alone_are_refused() -> None:
    with pytest.raises(ValidationError, match="add those with gpu_hours_per_event"):
        Reliability(parts={"link": PARTS["link"]})


def refused(i: Instance) -> str:
    with pytest.raises(InputError) as found:
        load_instance(i)
    return str(found.value)


def test_what_links_cannot_be_counted_beside() -> None:
    """Without a network, with media priced by length, and with switches pinned site by site."""
    i = failing_links(0)
    assert i.network is not None
    assert "parts.link: counts links, and there is no network" in refused(i.replaced(network=None))
    floor = {"media": [{"name": "m", "reach_m": 99, "price_usd": 1, "power_watts": 1}], "floor": {}}
    data = i.model_dump(mode="json", exclude_none=True)
    laid = Instance.model_validate(data | {"network": data["network"] | floor})
    assert "network.media: have no number of transceivers" in refused(laid)
    pinned = Instance.model_validate(data | {"pins": {"fabric.E1.switch": "b8"}})
    assert "pins.fabric.E1.switch: links to GPUs fail" in refused(pinned)
