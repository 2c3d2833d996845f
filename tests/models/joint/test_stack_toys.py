"""The joint optimum with frameworks that lack ZeRO stages and ways to divide a step equals full enumeration."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from each_case import each
from joint_brute_force import Plan, Toy
from joint_proof import columns_below, require_proven_optimum
from joint_solved import solved
from joint_strategies import strategies
from joint_toys import SOFTWARE, toy, with_pins
from tiers import more

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.workload import Software
from planner.models.joint.bounds import RowConditions, StrategyRows, terms
from planner.models.joint.columns import min_fill_layer
from planner.models.joint.space import problem_of

STACKS: dict[str, dict[str, Any]] = {
    "all": {},
    "no ZeRO": {"zero_stages": [0], "parallelism": ["tensor", "pipeline", "interleaved"]},
    "ZeRO-1": {"zero_stages": [0, 1], "parallelism": ["tensor", "sequence", "pipeline"]},
    "FSDP alone": {"zero_stages": [0, 2, 3], "parallelism": []},
    "zero bubble": {"schedules": ["1f1b", "zb-h1"], "zero_stages": [0, 1], "parallelism": ["tensor", "pipeline"]},
    "softmax of four": {"flash_attention": False, "fused_softmax_multiple": 4, "launch_seconds": 5e-5},
    "FSDP without pipelines": {"zero_stages": [0, 1, 2, 3], "pipelined_zero_stages": [0, 1]},
}
CASES = [(seed, stack) for seed in (5, 9) for stack in STACKS]


def made(seed: int, stack: str) -> Instance:
    """Return a toy with a framework, its ZeRO stage free."""
    i = toy(seed, forced=seed in (9, 36))
    software = Software.model_validate(SOFTWARE | {"name": stack} | STACKS[stack])
    pins = {"layout.data_parallel": i.pins["layout.data_parallel"]} if seed == 9 else {}
    if seed == 9 and i.network is not None:
        # Pods of some leaf domains, which the loops leave out, pay here under cores of the other model: no cable joins
        # the two where their links have two prices.
        apart = tuple(s.model_copy(update={"link_factor": 1 + k / 1e3}) for k, s in enumerate(i.network.switches))
        i = i.model_copy(update={"network": i.network.model_copy(update={"switches": apart})})
    return i.model_copy(update={"pins": pins, "workload": i.workload.model_copy(update={"software": software})})


@cache
def best(seed: int, stack: str) -> Plan | None:
    return Toy(made(seed, stack)).best()


@pytest.mark.parametrize(("seed", "stack"), [*CASES, *more(*((seed, stack) for seed in (31, 36) for stack in STACKS))])
def test_equals_full_enumeration(seed: int, stack: str) -> None:
    i = made(seed, stack)
    found, software = require_proven_optimum(i, best(seed, stack)).plan, i.workload.software
    assert found is None or found.column.zero in software.zero_stages_under(found.column.p)


def test_the_checker_enumerates_what_the_framework_has() -> None:
    """Below the optimum of a framework that has less there is a column of one that has all."""

    def seconds(seed: int, stack: str) -> float:
        plan = best(seed, stack)
        return math.inf if plan is None else plan.seconds

    seed, stack = next((s, k) for s, k in CASES if math.inf > seconds(s, k) > seconds(s, "all"))
    found = solved(made(seed, stack))
    assert found.days is not None
    assert list(columns_below(made(seed, "all"), found.days))


@each(
    ("stack", "pins", "message"),
    [
        ("no ZeRO", {"zero_stage": 3},
         r"zero_stage'\]: 3 .* it has 0; no ZeRO has no other.*: choose .* to its zero_stages"),
        ("no ZeRO", {"sequence_parallel": True}, "True is outside .* it has False; no ZeRO has no .sequence."),
        ("ZeRO-1", {"virtual_stages": 2}, 'no "interleaved" among its parallelism: choose another workload.software'),
        ("ZeRO-1", {"context_parallel": 2}, 'no "context"'),
        ("ZeRO-1", {"schedule": "zb-h1"}, "it has 1f1b; ZeRO-1 has no other schedule: choose"),
        ("FSDP alone", {"tensor_parallel": 2}, 'it has 1; FSDP alone has no "tensor"'),
        ("FSDP alone", {"pipeline_parallel": 2}, 'no "pipeline"'),
        ("FSDP alone", {"layers_per_stage": [1, 1]}, 'has 2 stages; FSDP alone has no "pipeline"'),
        ("FSDP without pipelines", {"zero_stage": 2, "pipeline_parallel": 2},
         "it has 0, 1; .* without pipelines: pin layout.pipeline_parallel to 1, or"),
    ],
)  # fmt: skip
def test_pins_beyond_the_framework_are_refused(stack: str, pins: dict[str, Any], message: str) -> None:
    i = with_pins(made(5, stack), **{f"layout.{k}": v for k, v in pins.items()})
    with pytest.raises(InputError, match=message):
        problem_of(i)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("seed", [5, 9, 31])
def test_what_fills_a_pipeline_is_bounded(seed: int, schedule: str) -> None:
    i = made(seed, "all")
    software = Software.model_validate(SOFTWARE | {"name": "x", "schedules": [schedule]})
    model = i.workload.model.model_copy(update={"layers": 12})  # type: ignore[union-attr]
    i = i.model_copy(update={"workload": i.workload.model_copy(update={"software": software, "model": model})})
    problem, seen = problem_of(i), 0
    for s in list(strategies(problem))[::7]:
        x = s.pipelines
        for m in (1, 2, 5, 12, 40):
            rows = StrategyRows(
                p=x.p, v=x.v, d=1 + 0 * x.p, m=m + 0 * x.p, replicas_per_rack=x.replicas_per_rack,
                stage_racks=x.stage_racks, block_replicas=x.replicas, inside=x.inside,
            )  # fmt: skip
            for zero in (0, 3):
                free = RowConditions(racks=1, shards=1, send=1.0, allreduce=1.0)
                once = terms(s, zero, rows, free).once
                fill = (x.p - 1) * np.ceil(np.ceil(12 / x.p) / x.v) * min_fill_layer(s)
                assert np.all(once >= fill * (1 - 1e-9))
                seen += int(np.sum(fill > 0.25 * (x.p - 1) * np.ceil(12 / x.p) / x.v * s.layer))
    assert seen > 100
