"""What ZeRO's traffic costs a whole step, by hand: gathers and sums that no pass is long enough to hide."""

from typing import Any

import pytest
from training_toys import accelerator, layout, machine_of

from planner.instance.workload import Model
from planner.physics.training import step_prediction
from planner.physics.training.operations import Machine
from planner.physics.training.parallel_strategy import ParallelStrategy, unsupported
from planner.physics.training.step import Conditions

LAYERS, WEIGHTS, EMBEDDING = 3, 12 * 64**2, 16 * 64  # weights of a layer, and of the one embedding
MICRO_BATCHES, NODES, GPUS = 5, 4, 8


def machine(**software: Any) -> Machine:
    """Return nodes of 8 GPUs that compute in no time, with 1 kB/s of scale-up at 0.5 s and 100 B/s of NIC at 2 s."""
    gpu = accelerator({"fp16": 1e18}, hbm_bytes_per_second=1e18, scale_up=(1000.0, 0.5), nic=(100.0, 2.0))
    model = Model(name="toy", layers=LAYERS, hidden=64, heads=4, vocabulary=16)
    return machine_of(gpu, model, 4, **{"loss_bytes_per_logit": 0, **software})


def strategy(zero: int) -> ParallelStrategy:
    """Return 32 replicas without pipeline and tensor parallelism."""
    own = {"data_parallel_by_site": (NODES * GPUS,), "micro_batches": MICRO_BATCHES, "replicas_per_rack": GPUS}
    return layout((LAYERS,), zero_stage=zero, **own)


def ring(element_bytes: int, weights: int = WEIGHTS) -> float:
    """Return the seconds to gather or to reduce a layer: 8 GPUs of a node, then each its eighth over 4 nodes."""
    size = weights * element_bytes
    return 7 * 0.5 + 7 / 8 * size / 1000 + 3 * 2 + 3 / 4 * (size / 8) / 100


@pytest.mark.parametrize(
    ("zero", "each", "end"),
    [
        (0, 0.0, 0.0),
        (1, 0.0, 0.0),
        (2, ring(4), ring(4, EMBEDDING)),
        (3, 2 * ring(2) + ring(4), ring(2, EMBEDDING) + ring(4, EMBEDDING)),
    ],
    ids=["0", "1", "2", "3"],
)
def test_each_micro_batch_pays_for_its_gathers(zero: int, each: float, end: float) -> None:
    """With passes of no length every layer and micro-batch shows ZeRO-2's sums, and ZeRO-3's two gathers beside.

    The embedding, which belongs to no layer, is gathered once a micro-batch and its gradient reduced once.
    """
    conditions = Conditions(pipeline_send_slowdown=1.0, allreduce_slowdown=1.0)
    found = step_prediction.step_breakdown(machine(), conditions, strategy(zero))
    assert found["sharding"] == pytest.approx(MICRO_BATCHES * (LAYERS * each + end), rel=1e-6)


def test_what_a_framework_cannot_run() -> None:
    """A framework without ZeRO-3, or with it only where there is no pipeline, says so; one that states nothing has all.

    The message has what it has.
    """
    assert list(unsupported(machine().software, strategy(3))) == []
    old = machine(zero_stages=[1, 0]).software
    assert list(unsupported(old, strategy(3))) == ["zero_stage 3: toy has ZeRO stages 0, 1"]
    assert list(unsupported(machine(pipelined_zero_stages=[0, 1]).software, strategy(3))) == []


def test_stages_under_pipelines_must_be_stages() -> None:
    """ZeRO stages under pipelines that there are not without, or interleaving without pipelines, are refused."""
    with pytest.raises(ValueError, match=r"pipelined_zero_stages must be among zero_stages \(3 is not\)"):
        machine(zero_stages=[0, 1], pipelined_zero_stages=[0, 3])
    with pytest.raises(ValueError, match='parallelism has "interleaved" and not "pipeline"'):
        machine(parallelism=["tensor", "interleaved"])
