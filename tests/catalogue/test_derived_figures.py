"""Figures that an instance or a plan does not state and that follow from what it does."""

import random
from itertools import pairwise

import pytest
from worked_plan import instance_with

from planner.instance.network import Network
from planner.instance.workload import Software
from planner.plan.plan import runs

NETWORK = instance_with().network


def network(**choices: object) -> Network:
    return Network.model_validate(NETWORK.model_dump() | choices)


@pytest.mark.parametrize(
    ("choices", "ratios"),
    [
        ({}, [None, None, None]),
        ({"max_oversubscription": 4}, [4.0, 4.0, 4.0]),
        ({"max_oversubscription": [2, 8]}, [2.0, 8.0, None]),
        ({"min_core_share": 0.25}, [4.0, 4.0, 4.0]),
        ({"min_core_share": 0.25, "max_oversubscription": [2, 8]}, [2.0, 4.0, 4.0]),
        ({"min_core_share": 0.25, "max_oversubscription": 2}, [2.0, 2.0, 2.0]),
    ],
)
def test_the_narrowest_of_the_asked_ratios_holds(choices: dict[str, object], ratios: list[float | None]) -> None:
    """A quarter of the rate up is four ports down to one up; of two rules for a tier the stricter one holds."""
    assert [network(**choices).ratio_of(tier) for tier in range(3)] == ratios


def test_a_year_of_months_is_a_year_of_days() -> None:
    """Twelve months until racks are ready are a year, leap days in the mean."""
    hardware = instance_with(hardware__ready_months=12).hardware
    assert hardware.ready_days == pytest.approx(365.25)


def stack(**switches: object) -> Software:
    """Return a stack whose host takes seconds of a micro-batch and of a launch."""
    given = {"name": "own", "microbatch_seconds": 0.01, "launch_seconds": 1e-5, "overlap_launch_seconds": 3e-5}
    return Software.model_validate(given | switches)


def test_graphs_of_whole_iterations_leave_the_host_nothing() -> None:
    """Without them the host keeps GPUs waiting for some seconds of each micro-batch."""
    assert [stack(cuda_graphs=x).host_seconds for x in ("none", "whole")] == [0.01, 0.0]


def test_a_launch_takes_longer_where_experts_overlap() -> None:
    """The host takes two micro-batches by turns there; it is never faster for that."""
    assert [stack().host_launch_seconds(experts_overlap=x) for x in (False, True)] == [1e-5, 3e-5]
    assert stack(overlap_launch_seconds=0.0).host_launch_seconds(experts_overlap=True) == 1e-5


def test_counts_are_written_as_runs() -> None:
    assert [runs(x) for x in ((), (5,), (2, 2, 2, 1), (1, 2, 2, 1, 1))] == ["", "5", "3x2 1", "1 2x2 2x1"]
    rng = random.Random(1)
    for _ in range(100):
        counts = tuple(rng.choices((1, 2, 30), k=rng.randint(1, 12)))
        parts = [part.rpartition("x") for part in runs(counts).split()]
        assert tuple(int(n) for times, _, n in parts for _ in range(int(times or 1))) == counts
        assert all(a[2] != b[2] for a, b in pairwise(parts)) and all(int(times or 2) > 1 for times, *_ in parts)
