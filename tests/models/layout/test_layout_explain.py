"""Runners-up and reliefs of the layout, against a brute force and against the limits' other side."""

import math

import pytest
from layout_cases import FLASH, every_layout, instance, random_case, request

from planner.instance.instance import Instance
from planner.models.layout import data as layout_data
from planner.models.layout import explain as layout_explain
from planner.models.layout import solve as layout
from planner.models.requests import LayoutRequest, Options
from planner.physics.training import stage_memory, step
from planner.physics.training.blocks import prediction
from planner.physics.training.step import Conditions

FIELDS = {"microbatch_sequences": "micro_batch", "tensor_parallel_inner": "tensor_inner"}


def min_otherwise(i: Instance, asked: LayoutRequest, choice: str, value: object) -> float:
    """Time every layout with another value of a choice that fits memory."""
    m, limit, smallest = step.machine_of(i), step.memory_limit_bytes(i), math.inf
    c = Conditions(
        pipeline_send_slowdown=1.5, allreduce_slowdown=1.2, wan_gbps=asked.wan_gbps, wan_rtt_ms=asked.wan_rtt_ms or 0.0
    )
    for x in every_layout(i, asked):
        if getattr(x, FIELDS.get(choice, choice)) == value or sum(stage_memory.worst_memory(m, x).values()) > limit:
            continue
        smallest = min(
            smallest,
            sum(prediction.step_breakdown(m, c, x).values()) / (x.data_parallel * x.micro_batches * x.micro_batch),
        )
    return smallest


@pytest.mark.parametrize("seed", [2, 5, 11])
def test_runners_up_are_the_best_with_the_choice_made_otherwise(seed: int) -> None:
    """No layout with another value of the choice is faster than its runner-up, and no runner-up than the layout."""
    i, asked = random_case(seed)
    small = i.model_copy(update={"pins": {**i.pins, "layout.tensor_parallel": 1, "layout.sequence_parallel": False}})
    found = layout_explain.runners_up(small, asked, Options())
    assert [x.loss for x in found] == sorted(x.loss for x in found)
    for x in found:
        assert x.proved
        assert x.loss >= -1e-12
        if x.choice != "recompute":
            assert x.seconds_per_sequence == pytest.approx(
                min_otherwise(small, asked, x.choice, x.best_value), rel=1e-9
            )


def test_runners_up_name_what_grew_and_leave_pins_alone() -> None:
    """Another number of stages costs time; a pinned choice has no runner-up."""
    i = instance(layers=4, sequences=8, hbm=1e9, software=FLASH, pins={"layout.zero_stage": 1})
    found = {x.choice: x for x in layout_explain.runners_up(i, request(a=2), Options())}
    assert "zero_stage" not in found
    assert "schedule" not in found  # the framework has one
    one = found["pipeline_parallel"]
    assert one.loss > 0 and one.value != one.best_value


def needed_limits(i: Instance, asked: LayoutRequest) -> dict[str, float]:
    """Return what each limit must be."""
    return {x.limit: x.needed for x in layout_explain.relief(i, asked)}


def test_memory_relief_is_the_least() -> None:
    """A layout fits the memory reported, and none fits one hundredth less."""
    i = instance(layers=4, hbm=0.2e9, pins={"layout.tensor_parallel": 2})
    problem = layout_data.problem_of(i, request(a=1))
    needed = needed_limits(i, request(a=1))["memory"] * 1e9
    for share, fits in ((1.0, True), (0.99, False)):
        gpu = i.hardware.accelerator.model_copy(update={"hbm_bytes": share * needed})
        roomy = i.model_copy(update={"hardware": i.hardware.model_copy(update={"accelerator": gpu})})
        assert (layout.bound_days(roomy, request(a=1)) is not None) == fits
    assert problem.memory_limit < needed


def test_rack_relief_is_the_least() -> None:
    """With the racks reported there is a layout, with one fewer there is none."""
    i = instance(
        layers=4,
        hbm=0.9e9,
        pins={"layout.zero_stage": 0, "layout.tensor_parallel": 2, "layout.microbatch_sequences": 1},
    )
    assert layout.bound_days(i, request(a=1)) is None
    needed = int(needed_limits(i, request(a=1))["racks"])
    assert layout.bound_days(i, request(a=needed)) is not None
    assert layout.bound_days(i, request(a=needed - 1)) is None


def test_batch_relief_is_the_least() -> None:
    """More pinned replicas than the batch has sequences ask for as many sequences as there are replicas."""
    i = instance(
        sequences=2, pins={"layout.data_parallel": 5, "layout.tensor_parallel": 1, "layout.microbatch_sequences": 1}
    )
    assert needed_limits(i, request(a=8))["limits.max_batch_tokens"] == 5


def test_a_feasible_problem_needs_no_relief() -> None:
    """Where a layout exists, nothing is reported."""
    assert layout_explain.relief(instance(), request(a=2)) == []
