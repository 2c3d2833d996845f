"""How a layout given in full meets failures: its job, and the best of its ways and spares by a loop of its own."""

import math
from dataclasses import replace
from typing import Any

import pytest
from failing_plan import RATES, failing
from worked_plan import STRATEGY, small

from planner.checks.reliability import Failures, at_least, mean_short
from planner.errors import InputError
from planner.instance.hardware import Reliability
from planner.instance.instance import Instance
from planner.physics.spares import SITE, upkeep_of
from planner.physics.training.transformer import total_parameters

RACKS, STEP = 10, 7.0  # two stages of ten replicas, two to a rack: ten racks of four GPUs, none idle


def question(racks: int | None = None, **rates: Any) -> Instance:
    """Return the worked instance with other rates, and a cluster of so many racks."""
    i = small(reliability=RATES | rates).instance
    return i.model_copy(update={"hardware": i.hardware.model_copy(update={"racks": racks})})


def best_share(i: Instance, targets: list[float]) -> tuple[float, float, int]:
    """Return the least stretch over ways and targets, by the checker's formulas, with its target and spare racks."""
    r, p = Reliability.model_validate(i.reliability), i.workload.precision
    f = Failures(
        r=r,
        state_bytes=(p.parameter_bytes + p.optimizer_bytes) * total_parameters(i.workload.model),  # type: ignore[arg-type]
    )
    fit, found = f.rack_availability(4, 0), []
    for target in targets:
        spare = next(n for n in range(1000) if (target <= 0 or n > 0) and at_least(RACKS, RACKS + n, fit) >= target)
        for way in f.ways(spares=spare > 0):
            own = float(f.stretch(40.0, 4.0, 10, way, STEP, shared=True))
            short = 1 - mean_short(RACKS, RACKS + spare, fit) * 2 / 10  # of a rack two replicas
            left = short if way[0] == "elastic" else at_least(RACKS, RACKS + spare, fit)
            found.append((own / left, target, spare))
    return min(found)


@pytest.mark.parametrize("recoveries", [["restart"], ["warm-spares"], ["elastic"], ["restart", "elastic"]])
@pytest.mark.parametrize("targets", [[0.9], [0.0, 0.9], [0.5, 0.99, 0.9]])
def test_the_best_way_and_spares(recoveries: list[str], targets: list[float]) -> None:
    i = question(recoveries=recoveries, spare_targets=targets)
    found = upkeep_of(i, STRATEGY, STEP)
    assert found is not None
    stretch, target, spare = best_share(i, targets)
    assert found[1].stretch == pytest.approx(stretch, rel=1e-9)
    assert (found[1].spare_target, found[1].spare_racks) == (target, {SITE: spare})
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
        assert few is not None and few[1].spare_racks == {SITE: 0}


def test_where_failures_do_not_count() -> None:
    """Without rates, or where the share of time that trains is given, a layout meets none."""
    i = question()
    assert upkeep_of(i.model_copy(update={"reliability": None}), STRATEGY, STEP) is None
    given = i.workload.model_copy(update={"availability": 0.9})
    assert upkeep_of(i.model_copy(update={"workload": given}), STRATEGY, STEP) is None


def test_racks_that_are_never_fit() -> None:
    """A layout whose racks are nearly always in repair never trains: bad input, with the ways out."""
    parts = {"gpu": {"gpu_hours_per_event": 1, "repair_hours": 1e40}}
    i = question(parts=parts, recoveries=["restart"], spare_targets=[0.0])
    with pytest.raises(InputError, match="10 racks are never all fit for work") as error:
        upkeep_of(i, STRATEGY, STEP)
    assert "give spare racks, shorter repairs" in str(error.value)
    assert math.isfinite(best_share(question(), [0.9])[0])
