"""The useful share at other intervals and spares, the section of failures, layouts given in full, stops by links."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from each_case import each
from failing_plan import RATES, failing
from joint_brute_failures import at_least, failing_links, mean_short, stretches_by_search
from pydantic import ValidationError
from worked_plan import STRATEGY, edited, small

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.reliability import FailingPart, Reliability
from planner.physics import recovery
from planner.physics.recovery import (
    CheckpointedJob,
    Upkeep,
    best_stretch,
    exposure_of,
    interval_curves,
    losses,
    min_spares,
    rack_availability,
    section,
    spare_points,
    stretches,
    way_at,
    ways,
)
from planner.physics.training.transformer import total_parameters
from planner.planning.load import load_instance

WAYS = [("restart",), ("warm-spares",), ("elastic",), ("restart", "warm-spares", "elastic")]


def test_parts_sum_to_the_stretch_at_any_interval() -> None:
    """What is lost by cause and the steps themselves sum to what passes, also where the interval is not the best."""
    r, seconds = Reliability.model_validate(RATES), np.geomspace(1.0, 1e5, 40)
    sizes = {"gpus": 40.0, "replica_gpus": 4.0, "replicas": 10}
    job = CheckpointedJob(r=r, **sizes, state_bytes=6e6, step_seconds=1.0, shares_state=True)
    for way in [(w.recovery, w.target) for w in ways(job, spares=True)]:
        found = way_at(job, *way, seconds)
        assert 1 + sum(losses(job, found).values()) == pytest.approx(found.stretch, rel=1e-9)
    assert [(w.recovery, w.target) for w in ways(job, spares=False)] == [
        (recovery, target)
        for recovery in r.recoveries
        for target in (("storage",) if recovery == "elastic" else r.checkpoint_targets)
        if recovery != "warm-spares"
    ]


@each("names", WAYS)
@each("target", [0.0, 0.9])
def test_curves_meet_the_plan(names: tuple[str, ...], target: float) -> None:
    """Each has 61 points at even ratios from a twentieth of the shortest interval, or a step, to 20 of the longest."""
    if names == ("warm-spares",) and not target:
        return
    plan = failing(*names, target=target)
    x, u = plan.reliability, exposure_of(plan)
    lines = interval_curves(u)
    own = stretches(u.job, u.standing(u.spare_racks))
    best = {(way.recovery, way.target): (float(way.interval_seconds), 1 / float(stretch)) for stretch, way in own}
    own_seconds, own_share = best[x.recovery, x.checkpoint_target]
    assert own_seconds == pytest.approx(x.checkpoint_interval_seconds, rel=1e-12)
    assert own_share == pytest.approx(x.useful_share, rel=1e-9)
    assert own_share == max(share for _, share in best.values())
    assert lines.keys() == best.keys()
    own, step = [seconds for seconds, _ in best.values()], plan.layout.metrics.step_seconds
    xs = np.geomspace(max(min(own) / 20, step), 20 * max(own), 61)
    for way, curve in lines.items():
        (seconds, share), ys = best[way], [y for _, y in curve]
        assert [x for x, _ in curve] == pytest.approx(xs)
        assert max(ys) <= share * (1 + 1e-3)
        assert np.interp(seconds, xs, ys) == pytest.approx(share, rel=1e-2)
    points = dict(spare_points(u))
    assert points[sum(x.spare_racks_by_site.values())] == pytest.approx(x.useful_share, rel=1e-9)
    fewest = u.spare_racks if target else {s: min_spares(n, u.rack_availability, 0.99) for s, n in u.needed.items()}
    sites = [[round(n * k / 12) for n in fewest.values()] for k in range(25)]
    assert list(points) == sorted({sum(counts) for counts in sites if names != ("warm-spares",) or all(counts)})
    assert all(after >= before for before, after in pairwise(points.values()))


@each("name", ["restart", "elastic"])
@each("stage", [0, 1])
def test_what_a_plan_depends_on(name: str, stage: int) -> None:
    plan = edited(failing(name), layout__zero_stage=stage)
    u = exposure_of(plan)
    assert u.job.shares_state == bool(stage)
    assert u.needed == {"e1": 6, "w1": 4} and u.spare_racks == plan.reliability.spare_racks_by_site
    assert (u.block_replicas, u.job.replicas, u.job.gpus, u.job.replica_gpus) == (2, 10, 40.0, 4.0)
    assert u.job.step_seconds == plan.layout.metrics.step_seconds
    assert not u.standing({}).spares and u.standing({}) == u.standing(dict.fromkeys(u.needed, 0))
    without = (plan.replaced(**{part: None}) for part in ("reliability", "layout"))
    for wrong in (small(), *without, edited(plan, layout__replicas_per_rack=0)):
        assert exposure_of(wrong) is None


@each("recovery", ["restart", "warm-spares", "elastic"])
def test_the_section_is_that_of_the_worked_plan(recovery: str) -> None:
    plan = failing(recovery)
    stated, u = plan.reliability, exposure_of(plan)
    standing = u.standing(u.spare_racks)
    stretch, way = min(stretches(u.job, standing), key=lambda found: float(found[0]))
    upkeep = Upkeep(
        way=way, stretch=float(stretch), standing=standing, spare_target=0.9, spare_racks=u.spare_racks,
        rack_availability=u.rack_availability, work_gpus=4, rails=4,
    )  # fmt: skip
    found = section(u.job, upkeep, plan.layout.metrics.step_days_to_train).model_dump()
    wanted = stated.model_dump()
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == (value if isinstance(value, str) else pytest.approx(value, rel=1e-9)), name


RACKS, STEP = 10, 7.0  # two stages of ten replicas, two to a rack: ten racks of four GPUs, none idle


def question(racks: int | None = None, **rates: Any) -> Instance:
    """Return the worked instance with other rates, and a cluster of so many racks."""
    return small(reliability=RATES | rates).instance.replaced(hardware__racks=racks)


def best_by_search(i: Instance, targets: list[float], *, shares_state: bool = True) -> tuple[float, int]:
    """Return the least stretch over ways and targets, by a search of intervals, with its spare racks."""
    r, p = Reliability.model_validate(i.reliability), i.workload.precision
    state_bytes = (p.parameter_bytes + p.optimizer_bytes) * total_parameters(i.workload.model)  # type: ignore[arg-type]
    sizes = {"gpus": 40.0, "replica_gpus": 4.0, "replicas": 10}
    job = CheckpointedJob(r=r, **sizes, state_bytes=state_bytes, step_seconds=STEP, shares_state=shares_state)
    fit, found = rack_availability(r, 4, 0), []
    for target in targets:
        spare = next(n for n in range(1000) if (target <= 0 or n > 0) and at_least(RACKS, RACKS + n, fit) >= target)
        for way, own in stretches_by_search(job, 1 / float(job.stops_per_second), warm=spare > 0).items():
            short = 1 - mean_short(RACKS, RACKS + spare, fit) * 2 / 10  # of a rack two replicas
            left = short if way[0] == "elastic" else at_least(RACKS, RACKS + spare, fit)
            found.append((own / left, spare))
    return min(found)


@each("recoveries", [["restart"], ["warm-spares"], ["elastic"], ["restart", "elastic"]])
@each("targets", [[0.9], [0.0, 0.9], [0.5, 0.99, 0.9]])
@each("zero", [0, 1, 2])
def test_the_best_way_and_spares(recoveries: list[str], targets: list[float], zero: int) -> None:
    """With ZeRO replicas share state, so that neighbours have copies; nothing else of the job changes."""
    i = question(recoveries=recoveries, spare_targets=targets)
    wanted, _ = best_by_search(i, targets, shares_state=zero > 0)
    assert best_stretch(i, replace(STRATEGY, zero_stage=zero), STEP) == pytest.approx(wanted, rel=1e-9)
    assert best_stretch(i.replaced(reliability=None), STRATEGY, STEP) is None
    assert best_stretch(i.replaced(workload__availability=0.9), STRATEGY, STEP) is None


def test_spares_stay_within_the_cluster() -> None:
    """Of 12 racks two are left to stand by; a cluster of too few racks for the layout itself gets no spares."""
    # A layout whose racks are nearly always in repair never trains: bad input, with the ways out.
    parts = {"gpu": {"gpu_hours_per_event": 1, "repair_hours": 1e40}}
    with pytest.raises(InputError, match=r"10 racks are never all fit for work.*; give spare racks, shorter repairs"):
        best_stretch(question(parts=parts, recoveries=["restart"], spare_targets=[0.0]), STRATEGY, STEP)
    targets = [0.0, 0.5, 0.9, 0.999999]
    rates: dict[str, Any] = {"recoveries": ["restart"], "spare_targets": targets}
    i, free = question(12, **rates), question(**rates)
    few = [target for target in targets if best_by_search(i, [target])[1] <= 2]
    assert best_stretch(i, STRATEGY, STEP) == pytest.approx(best_by_search(i, few)[0], rel=1e-9)
    assert best_stretch(free, STRATEGY, STEP) == pytest.approx(best_by_search(i, targets)[0], rel=1e-9)
    assert best_by_search(i, targets)[1] > 2 >= best_by_search(i, few)[1]
    for racks in (3, 10):
        found = best_stretch(question(racks, **rates), STRATEGY, STEP)
        assert found == pytest.approx(best_by_search(i, [0.0])[0], rel=1e-9)


PARTS = {
    "gpu": FailingPart(gpu_hours_per_event=100.0),
    "link": FailingPart(link_hours_per_event=50.0),
    "optic": FailingPart(transceiver_hours_per_event=400.0),
}


@each(("failover", "links", "stops"), [
    (False, (2, 4), (0.01, 0.04, 0.01)), (False, (0, 0), (0.01, 0, 0)), (True, (2, 4), (0.01, 0, 0)),
    (True, (1, 2), (0.01, 0.02, 0.005)),
])  # fmt: skip
def test_rates_by_hand(failover: bool, links: tuple[int, int], stops: tuple[float, ...]) -> None:
    """A GPU of two links with two transceivers each: an event in 100, 25 and 100 hours; with failover in 100 alone."""
    # Of four times the GPUs measured, and an exponent of 1/2, each stops twice as often; of fewer none more.
    r = Reliability(parts=PARTS, lane_failover=failover, measured_gpus=8, scale_exponent=0.5)
    found = recovery.part_stops_per_gpu_second(r, recovery.GpuLinks(*links))
    assert [x * 3600 for x in found.values()] == pytest.approx(stops)
    sizes = {"gpus": np.array([4, 32]), "replica_gpus": 1, "state_bytes": 0.0}
    job = CheckpointedJob(r=r, **sizes, links=recovery.GpuLinks(*links))
    assert (job.stops_per_second * 3600).tolist() == pytest.approx([4 * sum(stops), 2 * 32 * sum(stops)])


def test_lanes_of_an_instance() -> None:
    """The lanes to choose from are those of its switches; the fewest stops are of one link, or of two with failover."""
    i = failing_links(0)
    assert recovery.lanes_to_choose(i) == [1, 2]
    assert recovery.gpu_links(i.network, 2) == recovery.GpuLinks(2, 2 * i.network.cables.endpoint_transceivers)
    for failover, fewest in ((False, 1), (True, 2)):
        assert recovery.job_of(i.replaced(reliability__lane_failover=failover)).links.links == fewest
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


def test_what_links_cannot_be_counted_beside() -> None:
    """Without other parts or a network, with media priced by length, and with switches pinned site by site."""
    with pytest.raises(ValidationError, match="add those with gpu_hours_per_event"):
        Reliability(parts={"link": PARTS["link"]})
    i = failing_links(0)
    data, floor = i.model_dump(mode="json", exclude_none=True), {"floor": {}}
    floor |= {"media": [{"name": "m", "reach_m": 99, "price_usd": 1, "power_watts": 1}]}
    for instance, fault in (
        (i.replaced(network=None), "parts.link: counts links, and there is no network"),
        (Instance.model_validate(data | {"network": data["network"] | floor}), "media: have no number of transceivers"),
        (Instance.model_validate(data | {"pins": {"fabric.E1.switch": "b8"}}), "fabric.E1.switch: links to GPUs fail"),
    ):
        with pytest.raises(InputError, match=fault):
            load_instance(instance)
