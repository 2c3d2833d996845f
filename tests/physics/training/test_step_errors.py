"""Intervals of predictions by the errors of like measured runs, and what no run has shown."""

import math
from dataclasses import replace
from typing import Any

import pytest
from each_case import each
from training_toys import layout, machine_of, precision_of

import planner
from planner.instance.catalogue_entries import catalogue
from planner.instance.hardware import Accelerator
from planner.instance.software import Software
from planner.instance.workload import Model
from planner.physics.training import step_errors
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step_errors import MIN_ROWS, classes_of, degrees_of, widest

TABLE = step_errors.table()


def machine(software: str = "megatron-core-2025", model: str = "llama3-70b", dtype: str = "bf16") -> Machine:
    gpu = Accelerator.model_validate(catalogue("accelerators")["H100"])
    m = machine_of(gpu, Model.model_validate(catalogue("models")[model]), 4096, precision_of(dtype))
    return replace(m, software=Software.model_validate(catalogue("software")[software]))


def strategy(replicas: int = 1, **changes: Any) -> ParallelStrategy:
    """Return a layout of eight-way tensor parallelism."""
    plain = layout((80,), tensor_parallel=8, data_parallel_by_site=(replicas,), sequence_parallel=True)
    return replace(plain, **changes)


@each(("gpus", "scale"), [(8, "one node"), (16, "several nodes"), (1000, "several nodes"), (1008, "over 1,000 GPUs")])
def test_classes_widen(gpus: int, scale: str) -> None:
    """Classes go from precision, kind, scale and stack to all rows; a stack's releases are one stack."""
    names = list(classes_of(machine(), strategy(gpus // 8)))
    assert names == [f"16-bit dense, {scale}, megatron-core", f"16-bit dense, {scale}", "16-bit dense", "16-bit", "any"]
    mixture = machine(model="deepseek-v3", dtype="fp8")
    assert next(iter(classes_of(mixture, strategy(gpus // 8)))) == f"fp8 MoE, {scale}, megatron-core"


def test_widest_takes_the_largest_error_each_way() -> None:
    assert widest(20.0, [(10.0, (9.0, 12.0)), (30.0, (24.0, 33.0))]) == pytest.approx((16.0, 24.0))


@each("name", TABLE.classes)
def test_table_is_sound(name: str) -> None:
    """Each class has rows enough, intervals of the spreads of sources and rows, and a range of every degree."""
    x, spreads = TABLE.classes[name], TABLE.spreads
    ends = (x.measured_over_predicted, spreads.measured), (x.unmeasured_over_predicted, spreads.unmeasured)
    assert x.rows >= MIN_ROWS
    for (low, high), of_sources in ends:
        assert low * high == pytest.approx(1, abs=1e-3)
        assert math.log(high) == pytest.approx(spreads.multiple * math.hypot(of_sources, x.within_sources), abs=1e-3)
    assert set(x.ranges) == set(degrees_of(machine(), strategy()))
    assert all(0 < a <= b for a, b in x.ranges.values())
    wider = [y for other, y in TABLE.classes.items() if name.startswith(f"{other},") or other == "any"]
    assert all(y.rows >= x.rows for y in wider)


def test_interval_is_that_of_the_narrowest_class() -> None:
    """Of an unmeasured stack it is that of such sources, which is wider."""
    for stack, measured in (("llm-foundry-fsdp", True), ("megatron-zero-bubble", False)):
        m, s = machine(stack), strategy(4)
        like = step_errors.like_rows(m, s)
        ends = like.measured_over_predicted if measured else like.unmeasured_over_predicted
        assert step_errors.interval(m, s, 10.0) == pytest.approx([10 * x for x in ends])
        assert like.name == f"16-bit dense, several nodes{', llm-foundry-fsdp' * measured}"
        assert like.unmeasured_over_predicted[1] > like.measured_over_predicted[1]


def test_what_was_not_measured_is_named() -> None:
    wide = strategy(4096, tensor_parallel=64)
    sentences = step_errors.outside(machine(), wide)
    high = step_errors.like_rows(machine(), wide).ranges["TP"][1]
    assert f"above TP {high:,.0f} (is 64)" in sentences["TP"]
    assert "above GPUs" in sentences["GPUs"]
    assert "TP" not in step_errors.outside(machine(), strategy(8))
    assert step_errors.unmeasured(machine()) == {}
    named = step_errors.unmeasured(machine(software="megatron-zero-bubble"))
    assert named == {"software": "no measured row of megatron-zero-bubble in 16-bit"}


LAYOUT = {"tensor_parallel": 8, "pipeline_parallel": 8, "virtual_stages": 1, "microbatches_per_step": 64}
WORKLOAD = {"model": "gpt3-175b", "tokens": 3e11, "sequence_length": 2048, "software": "megatron-lm-2022"}
HARDWARE = {"accelerator": "A100-80GB", "rack": "DGX-A100"}


def test_evaluations_carry_intervals_and_stages() -> None:
    """An evaluation has the interval of step and days, its like rows, each stage's memory, and what is extrapolated."""
    from planner.report.evaluated_layout import evaluation_text

    question = {"name": "gpt3", "workload": WORKLOAD | {"precision": precision_of().model_dump()}, "hardware": HARDWARE}
    few, many = (planner.evaluate(question, LAYOUT | {"data_parallel": d}) for d in (1, 4096))
    for e in (few, many):
        ratio = [x / e.step_seconds for x in e.step_seconds_interval]
        low, high = e.like_rows.measured_over_predicted
        assert ratio == pytest.approx([low, high])
        assert 0 < e.constants_deviation < 1
        assert [x / e.days_to_train for x in e.days_to_train_interval] == pytest.approx(ratio)
    assert not any("GPUs" in x.reason for x in few.extrapolated)
    far = next(x for x in many.extrapolated if " above DP " in x.reason)
    assert "hardware.accelerator.nic_efficiency" in far.constants
    text = evaluation_text(many)
    assert "measured in 4 of 5 like runs: " in text and far.reason in text
    assert sum(line.startswith("  stage") for line in text.splitlines()) == 8
