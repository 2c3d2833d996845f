"""When failures count at all, and the section of a plan that says how they are met."""

import pytest
from failing_plan import RATES, failing

from planner.instance.hardware import Reliability
from planner.physics.reliability.recovery import stops_per_second
from planner.physics.reliability.spares import Upkeep, checkpoint_bytes, counted, exposure_of, section, stretches
from planner.physics.training.transformer import total_parameters


@pytest.mark.parametrize(("availability", "counts"), [(1.0, True), (0.9, False)])
def test_failures_do_not_count_beside_a_given_share_of_time(availability: float, counts: bool) -> None:
    """A workload that says the share of time that trains has the failures in it; one of all time has them not."""
    i = failing("restart").instance
    given = i.model_copy(update={"workload": i.workload.model_copy(update={"availability": availability})})
    assert (counted(given) is not None) == counts


@pytest.mark.parametrize("recovery", ["restart", "warm-spares", "elastic"])
def test_the_section_is_that_of_the_worked_plan(recovery: str) -> None:
    """Each figure of a section meets the one that the worked plan has by its own arithmetic."""
    plan = failing(recovery)
    stated, u = plan.reliability, exposure_of(plan)
    standing = u.standing(u.spare_racks)
    stretch, way = min(stretches(u.job, standing), key=lambda found: float(found[0]))
    upkeep = Upkeep(
        way=way,
        stretch=float(stretch),
        standing=standing,
        spare_target=0.9,
        spare_racks=u.spare_racks,
        rack_availability=u.rack_availability,
        work_gpus=4,
        rails=4,
    )
    found = section(u.job, upkeep, plan.layout.metrics.step_days_to_train).model_dump()
    wanted = stated.model_dump()
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == (value if isinstance(value, str) else pytest.approx(value, rel=1e-9)), name


def test_large_jobs_stop_more_often_than_in_proportion() -> None:
    """Of four times the GPUs measured, and an exponent of 1/2, each stops twice as often; of fewer none more."""
    plain, grown = (Reliability.model_validate(RATES | {"scale_exponent": x}) for x in (0.0, 0.5))
    assert stops_per_second(grown, 32) == pytest.approx(2 * stops_per_second(plain, 32))
    assert stops_per_second(grown, 4) == pytest.approx(stops_per_second(plain, 4))


def test_a_checkpoint_holds_weights_and_optimizer() -> None:
    """Both sizes of a parameter for each of all parameters."""
    i = failing("restart").instance
    p, model = i.workload.precision, i.workload.model
    assert checkpoint_bytes(i, model) == sum(
        total_parameters(model) * x for x in (p.parameter_bytes, p.optimizer_bytes)
    )
