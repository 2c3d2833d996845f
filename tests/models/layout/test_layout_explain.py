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
from planner.physics.training.step import Conditions

OF_CUT = {"microbatch_sequences": "micro_batch", "tensor_parallel_inner": "tensor_inner"}


def least_otherwise(i: Instance, asked: LayoutRequest, choice: str, held: object) -> float:
    """Time every layout with another value of a choice that fits memory."""
    m, limit, least = step.machine_of(i), step.memory_limit_bytes(i), math.inf
    c = Conditions(
        pipeline_send_slowdown=1.5, allreduce_slowdown=1.2, wan_gbps=asked.wan_gbps, wan_rtt_ms=asked.wan_rtt_ms or 0.0
    )
    for x in every_layout(i, asked):
        if getattr(x, OF_CUT.get(choice, choice)) == held or sum(stage_memory.worst_memory(m, x).values()) > limit:
            continue
        least = min(
            least, sum(step.step_breakdown(m, c, x).values()) / (x.data_parallel * x.micro_batches * x.micro_batch)
        )
    return least


@pytest.mark.parametrize("seed", [2, 5, 11])
def test_runners_up_are_the_best_with_the_choice_made_otherwise(seed: int) -> None:
    """No layout with another value of the choice is faster than its runner-up, and none of them is faster than the layout held."""
    i, asked = random_case(seed)
    small = i.model_copy(update={"pins": {**i.pins, "layout.tensor_parallel": 1, "layout.sequence_parallel": False}})
    found = layout_explain.runners_up(small, asked, Options())
    assert [x.loss for x in found] == sorted(x.loss for x in found)
    for x in found:
        assert x.proved
        assert x.loss >= -1e-12
        if x.choice != "recompute":
            assert x.seconds_per_sequence == pytest.approx(least_otherwise(small, asked, x.choice, x.held), rel=1e-9)


def test_runners_up_name_what_grew_and_leave_pins_alone() -> None:
    """Fewer stages than are best cost what the line says; a pinned choice has no runner-up."""
    i = instance(layers=4, sequences=8, hbm=1e9, software=FLASH, pins={"layout.zero_stage": 1})
    found = {x.choice: x for x in layout_explain.runners_up(i, request(a=2), Options())}
    assert "zero_stage" not in found
    assert "schedule" not in found  # the framework has one
    one = found["pipeline_parallel"]
    assert str(one).startswith(f"pipeline_parallel {one.value} instead of {one.held}: +")
    assert one.grown_loss > 0


def relieved(i: Instance, asked: LayoutRequest) -> dict[str, float]:
    """Return what each limit must be."""
    return {x.limit: x.needed for x in layout_explain.relief(i, asked)}


def test_memory_relief_is_the_least() -> None:
    """The memory told holds a layout, and one hundredth less holds none."""
    i = instance(layers=4, hbm=0.2e9, pins={"layout.tensor_parallel": 2})
    problem = layout_data.problem_of(i, request(a=1))
    needed = relieved(i, request(a=1))["memory"] * 1e9
    for share, fits in ((1.0, True), (0.99, False)):
        gpu = i.hardware.accelerator.model_copy(update={"hbm_bytes": share * needed})
        roomy = i.model_copy(update={"hardware": i.hardware.model_copy(update={"accelerator": gpu})})
        assert (layout.least_days(roomy, request(a=1)) is not None) == fits
    assert problem.memory_limit < needed


def test_rack_relief_is_the_least() -> None:
    """With the racks told there is a layout, with one fewer there is none."""
    i = instance(
        layers=4,
        hbm=0.9e9,
        pins={"layout.zero_stage": 0, "layout.tensor_parallel": 2, "layout.microbatch_sequences": 1},
    )
    assert layout.least_days(i, request(a=1)) is None
    needed = int(relieved(i, request(a=1))["racks"])
    assert layout.least_days(i, request(a=needed)) is not None
    assert layout.least_days(i, request(a=needed - 1)) is None


def test_batch_relief_is_the_least() -> None:
    """Replicas pinned beyond the batch ask for as many sequences as there are replicas."""
    i = instance(
        sequences=2, pins={"layout.data_parallel": 5, "layout.tensor_parallel": 1, "layout.microbatch_sequences": 1}
    )
    assert relieved(i, request(a=8))["limits.max_batch_tokens"] == 5


def test_a_feasible_question_needs_no_relief() -> None:
    """Where a layout exists, nothing is told."""
    assert layout_explain.relief(instance(), request(a=2)) == []
