"""The useful share at other intervals and spares, the section of failures, and a layout that is given in full."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from each_case import each
from failing_plan import RATES, failing
from joint_brute_failures import at_least, mean_short, stretches_by_search
from worked_plan import STRATEGY, edited, small

from planner.errors import InputError
from planner.instance.hardware import Reliability
from planner.instance.instance import Instance
from planner.physics.plan_physics import CLUSTER
from planner.physics.recovery import CheckpointedJob, losses, way_at, ways
from planner.physics.spares import (
    Upkeep,
    exposure_of,
    interval_curves,
    min_spares,
    rack_availability,
    section,
    spare_points,
    stretches,
    upkeep_of,
)
from planner.physics.training.transformer import total_parameters

WAYS = [("restart",), ("warm-spares",), ("elastic",), ("restart", "warm-spares", "elastic")]


def test_parts_sum_to_the_stretch_at_any_interval() -> None:
    """What is lost by cause and the steps themselves sum to what passes, also where the interval is not the best."""
    r = Reliability.model_validate(RATES)
    job = CheckpointedJob(
        r=r, gpus=40.0, replica_gpus=4.0, state_bytes=6e6, replicas=10, step_seconds=1.0, shares_state=True
    )
    seconds = np.geomspace(1.0, 1e5, 40)
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
    if names == ("warm-spares",) and not target:
        return
    plan = failing(*names, target=target)
    x, u = plan.reliability, exposure_of(plan)
    lines = {(c.recovery, c.target): c for c in interval_curves(u)}
    best = {
        (way.recovery, way.target): (float(way.interval_seconds), 1 / float(stretch))
        for stretch, way in stretches(u.job, u.standing(u.spare_racks))
    }
    own_seconds, own_share = best[x.recovery, x.checkpoint_target]
    assert own_seconds == pytest.approx(x.checkpoint_interval_seconds, rel=1e-12)
    assert own_share == pytest.approx(x.useful_share, rel=1e-9)
    assert own_share == max(share for _, share in best.values())
    assert lines.keys() == best.keys()
    for way, c in lines.items():
        seconds, share = best[way]
        assert max(c.share) <= share * (1 + 1e-3)
        assert c.seconds[0] >= plan.layout.metrics.step_seconds
        assert c.seconds[0] <= seconds <= c.seconds[-1]
        assert np.interp(seconds, c.seconds, c.share) == pytest.approx(share, rel=1e-2)
    points = spare_points(u)
    (at,) = (p for p in points if p.racks == sum(x.spare_racks_by_site.values()))
    assert (at.recovery, at.target) == (x.recovery, x.checkpoint_target)
    assert at.share == pytest.approx(x.useful_share, rel=1e-9)
    assert [p.racks for p in points] == sorted({p.racks for p in points})
    fewest = {
        s: max(1, n) if target else min_spares(u.needed[s], u.rack_availability, 0.99) for s, n in u.spare_racks.items()
    }
    sites = [[round(n * k / 12) for n in fewest.values()] for k in range(25)]
    assert [p.racks for p in points] == sorted(
        {sum(counts) for counts in sites if names != ("warm-spares",) or all(counts)}
    )
    assert all(b.share >= a.share for a, b in pairwise(points))


def test_a_plan_without_failures_has_no_curves() -> None:
    assert exposure_of(small()) is None


@each("stage", [0, 1])
def test_copies_to_neighbours_only_where_they_share_state(stage: int) -> None:
    job = exposure_of(edited(failing("elastic"), layout__zero_stage=stage)).job
    (way,) = ways(job, spares=True)
    assert job.shares_state == bool(stage)
    written = float(way.write_seconds / way.interval_seconds)
    assert (float(losses(job, way)["checkpoints"]) > 1.01 * written) == bool(stage)


@each("names", WAYS)
def test_curves_span_the_intervals(names: tuple[str, ...]) -> None:
    """Each has 61 points at even ratios from a twentieth of the shortest interval, or a step, to 20 of the longest."""
    plan = failing(*names)
    u = exposure_of(plan)
    lines = interval_curves(u)
    own = [float(way.interval_seconds) for _, way in stretches(u.job, u.standing(u.spare_racks))]
    low, high = max(min(own) / 20, plan.layout.metrics.step_seconds), 20 * max(own)
    for c in lines:
        assert len(c.seconds) == len(c.share) == 61
        assert (c.seconds[0], c.seconds[-1]) == pytest.approx((low, high))
        assert [b / a for a, b in pairwise(c.seconds)] == pytest.approx([(high / low) ** (1 / 60)] * 60)


@each("name", ["restart", "elastic"])
def test_what_a_plan_depends_on(name: str) -> None:
    plan = failing(name)
    u = exposure_of(plan)
    assert u.needed == {"e1": 6, "w1": 4} and u.spare_racks == plan.reliability.spare_racks_by_site
    assert (u.block_replicas, u.job.replicas, u.job.gpus, u.job.replica_gpus) == (2, 10, 40.0, 4.0)
    assert u.job.step_seconds == plan.layout.metrics.step_seconds
    bare = u.standing({})
    assert not bare.spares and bare == u.standing(dict.fromkeys(u.needed, 0))


def test_what_cannot_be_computed_has_no_curves() -> None:
    plan = failing("restart")
    for name in ("reliability", "layout"):
        assert exposure_of(plan.replaced(**{name: None})) is None
    assert exposure_of(edited(plan, layout__replicas_per_rack=0)) is None


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


def test_large_jobs_stop_more_often_than_in_proportion() -> None:
    """Of four times the GPUs measured, and an exponent of 1/2, each stops twice as often; of fewer none more."""
    plain, grown = (Reliability.model_validate(RATES | {"scale_exponent": x}) for x in (0.0, 0.5))
    both = (CheckpointedJob(r=r, gpus=np.array([4, 32]), replica_gpus=1, state_bytes=0.0) for r in (plain, grown))
    few, many = (job.stops_per_second for job in both)
    assert (many / few).tolist() == pytest.approx([1, 2])


RACKS, STEP = 10, 7.0  # two stages of ten replicas, two to a rack: ten racks of four GPUs, none idle


def question(racks: int | None = None, **rates: Any) -> Instance:
    """Return the worked instance with other rates, and a cluster of so many racks."""
    i = small(reliability=RATES | rates).instance
    return i.replaced(hardware__racks=racks)


def best_share(i: Instance, targets: list[float]) -> tuple[float, float, int]:
    """Return the least stretch over ways and targets, by a search of intervals, with its target and spare racks."""
    r, p = Reliability.model_validate(i.reliability), i.workload.precision
    state_bytes = (p.parameter_bytes + p.optimizer_bytes) * total_parameters(i.workload.model)  # type: ignore[arg-type]
    job = CheckpointedJob(
        r=r, gpus=40.0, replica_gpus=4.0, state_bytes=state_bytes, replicas=10, step_seconds=STEP, shares_state=True
    )
    fit, found = rack_availability(r, 4, 0), []
    for target in targets:
        spare = next(n for n in range(1000) if (target <= 0 or n > 0) and at_least(RACKS, RACKS + n, fit) >= target)
        for way, own in stretches_by_search(job, 1 / float(job.stops_per_second), warm=spare > 0).items():
            short = 1 - mean_short(RACKS, RACKS + spare, fit) * 2 / 10  # of a rack two replicas
            left = short if way[0] == "elastic" else at_least(RACKS, RACKS + spare, fit)
            found.append((own / left, target, spare))
    return min(found)


@each("recoveries", [["restart"], ["warm-spares"], ["elastic"], ["restart", "elastic"]])
@each("targets", [[0.9], [0.0, 0.9], [0.5, 0.99, 0.9]])
def test_the_best_way_and_spares(recoveries: list[str], targets: list[float]) -> None:
    i = question(recoveries=recoveries, spare_targets=targets)
    found = upkeep_of(i, STRATEGY, STEP)
    stretch, target, spare = best_share(i, targets)
    assert found[1].stretch == pytest.approx(stretch, rel=1e-9)
    assert (found[1].spare_target, found[1].spare_racks) == (target, {CLUSTER: spare})
    assert (found[1].work_gpus, found[1].rails) == (4, 4)
    assert found[1].rack_availability == pytest.approx(failing("restart").reliability.rack_availability)


def test_the_job_is_that_of_the_layout() -> None:
    """GPUs, those of a replica, replicas, step and checkpoint are the layout's own; with ZeRO state is shared."""
    (job, _), plan = upkeep_of(question(), STRATEGY, STEP), failing("restart")  # type: ignore[misc]
    assert (job.gpus, job.replica_gpus, job.replicas, job.step_seconds) == (40.0, 4, 10, STEP)
    assert job.state_bytes == plan.reliability.checkpoint_bytes
    for zero in (0, 1, 2):
        (found, _) = upkeep_of(question(), replace(STRATEGY, zero_stage=zero), STEP)  # type: ignore[misc]
        assert found.shares_state == (zero > 0)


def test_spares_stay_within_the_cluster() -> None:
    """Of 12 racks two are left to stand by; a cluster of too few racks for the layout itself gets no spares."""
    targets = [0.0, 0.5, 0.9, 0.999999]
    i = question(12, recoveries=["restart"], spare_targets=targets)
    wanted = best_share(i, [t for t in targets if best_share(i, [t])[2] <= 2])
    found = upkeep_of(i, STRATEGY, STEP)
    assert found is not None and found[1].stretch == pytest.approx(wanted[0], rel=1e-9)
    free = upkeep_of(question(recoveries=["restart"], spare_targets=targets), STRATEGY, STEP)
    assert free is not None and sum(free[1].spare_racks.values()) > 2 >= sum(found[1].spare_racks.values())
    for racks in (3, 10):
        few = upkeep_of(question(racks, recoveries=["restart"], spare_targets=targets), STRATEGY, STEP)
        assert few is not None and few[1].spare_racks == {CLUSTER: 0}


def test_where_failures_do_not_count() -> None:
    i = question()
    assert upkeep_of(i.replaced(reliability=None), STRATEGY, STEP) is None
    assert upkeep_of(i.replaced(workload__availability=0.9), STRATEGY, STEP) is None


def test_racks_that_are_never_fit() -> None:
    """A layout whose racks are nearly always in repair never trains: bad input, with the ways out."""
    parts = {"gpu": {"gpu_hours_per_event": 1, "repair_hours": 1e40}}
    i = question(parts=parts, recoveries=["restart"], spare_targets=[0.0])
    with pytest.raises(InputError, match="10 racks are never all fit for work") as error:
        upkeep_of(i, STRATEGY, STEP)
    assert "give spare racks, shorter repairs" in str(error.value)
    assert math.isfinite(best_share(question(), [0.9])[0])
