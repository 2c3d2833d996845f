"""When failures count at all, and when not."""

import pytest
from failing_plan import failing

from planner.physics.reliability.standing import counted


@pytest.mark.parametrize(("availability", "counts"), [(1.0, True), (0.9, False)])
def test_failures_do_not_count_beside_a_given_share_of_time(availability: float, counts: bool) -> None:
    """A workload that says the share of time that trains has the failures in it; one of all time has them not."""
    i = failing("restart").instance
    given = i.model_copy(update={"workload": i.workload.model_copy(update={"availability": availability})})
    assert (counted(given) is not None) == counts
