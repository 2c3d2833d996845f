"""The least split of a column equals the best of all splits by plain loops, and bounds what the physics predicts."""

import itertools
import random

import numpy as np
import pytest
from joint_brute_force import layer_splits
from joint_toys import deeper

from planner.checks.joint_columns import Cut, CutPipelines, Space
from planner.checks.layer_split import PipelineSplits, witness
from planner.physics.training import memory, schedule, step_prediction
from planner.physics.training.layer_time import ReplicaGroup
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.physics.training.step import Conditions
from planner.physics.training.step_prediction import LargestStage

PHI = 1.1


def every_split(split: PipelineSplits, m: int) -> list[tuple[float, float]]:
    """Time every split that memory holds, as the physics predicts and with the least wait of unequal chunks."""
    cut, x = split.cut, split.x
    p, v, machine = split.p, split.v, split.cut.machine
    repeats = {"no": lambda _: (0,), "any": lambda n: range(n + 1)}[cut.repeats]
    group = ReplicaGroup(replicas_per_rack=int(x.replicas_per_rack[0]), racks=split.racks, shards=split.d)
    conditions = Conditions(pipeline_send_slowdown=PHI, allreduce_slowdown=PHI, transport_slowdown=PHI)
    found = []
    for layers in layer_splits(cut.space.layers, p, v):
        for repeated in itertools.product(*(repeats(n) for n in layers)):
            full = any(repeated)
            strategy = ParallelStrategy.of_shape(
                cut.shape,
                pipeline_parallel=p,
                data_parallel_by_site=(split.d,),
                virtual_stages=v,
                micro_batches=m,
                recompute="full" if full else cut.shape.recompute,
                zero_stage=split.zero_stage,
                layers_per_stage=layers,
                recomputed_layers_per_stage=repeated if full else (),
                replicas_per_rack=int(x.replicas_per_rack[0]),
                schedule=cut.schedule,
                stages_per_rack=int(x.stages_per_rack[0]),
            )
            used = sum(memory.memory_by_stage(machine, strategy).values())
            if np.any(used > cut.space.memory_limit * (1 + 1e-12)):
                continue
            parts = step_prediction.breakdown(cut.space.machine, conditions, strategy, group)
            found.append((sum(parts.values()) / m, _with_least_waits(split, m, layers, repeated)))
    return found


def _with_least_waits(split: PipelineSplits, m: int, layers: tuple[int, ...], repeated: tuple[int, ...]) -> float:
    x, sharded, p, v = split.pipeline, split.sharded, split.p, split.v
    n = float(schedule.effective_micro_batches(m, p, v))
    stages = []
    for k, (a, r) in enumerate(zip(layers, repeated, strict=True)):
        own = float(step_prediction.stage_seconds(x, sharded, v, a, r, split.send)) + x.machine.software.host_seconds
        wait = schedule.min_excess_seconds(p, v, m, a, r, float(sharded.layer_seconds), x.times.recompute_seconds)
        stages.append(n * (own + (x.head if k == p - 1 else 0.0)) + float(wait))
    chunk = max(
        float(step_prediction.chunk_seconds(x, sharded, v, a, r)) for a, r in zip(layers, repeated, strict=True)
    )
    group = ReplicaGroup(int(split.x.replicas_per_rack[0]), racks=split.racks, shards=split.d, slowdown=PHI)
    largest, counts = LargestStage(layers=max(layers), chunk_seconds=chunk), schedule.PipelineCounts(p, v, m)
    once = step_prediction.once_parts(x, sharded, None, counts, group, largest=largest, send=split.send)
    return (max(stages) + float(sum(once.values()))) / m


def some_columns(seed: int, number: int) -> list[tuple[Cut, int, CutPipelines, int, int]]:
    """Draw columns: a cut, a ZeRO stage, a pipeline, replicas and micro-batches."""
    r = random.Random(seed)
    space = Space(instance=deeper(seed), transport_slowdown=PHI)
    cuts = list(space.cuts())
    found: list[tuple[Cut, int, CutPipelines, int, int]] = []
    while len(found) < number:
        cut = r.choice(cuts)
        x = cut.pipelines()
        few = [k for k in range(len(x)) if x.p[k] <= 3 and x.v[k] <= 3]
        if not few:
            continue
        x = x.part([r.choice(few)])
        low, d = int(x.p[0] if x.v[0] > 1 else 1), r.randint(1, 2)
        found.append((cut, r.randint(0, 3), x, d, r.randint(low, low + 5)))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_the_least_split_is_the_best_of_all(seed: int) -> None:
    """Over random columns with interleaving, ZB-H1, recompute and experts; none fits where no split does."""
    fitted = 0
    for cut, zero, x, d, m in some_columns(seed, 12):
        split = PipelineSplits(cut=cut, zero_stage=zero, x=x, d=d, micro_batches=np.array([m]), limit=1e9)
        every, least = every_split(split, m), split.least()
        if not every:
            assert least == float("inf")
            continue
        fitted += 1
        assert least == pytest.approx(min(own for _, own in every), rel=1e-9)
        assert least <= min(seconds for seconds, _ in every) * (1 + 1e-9)
    assert fitted


@pytest.mark.parametrize("seed", range(4))
def test_many_micro_batches_at_once(seed: int) -> None:
    """A witness is found among several micro-batches if and only if one of them alone is below the limit."""
    for cut, zero, x, d, low in some_columns(200 + seed, 8):
        batches = np.arange(low, low + 9)
        each = [
            PipelineSplits(cut=cut, zero_stage=zero, x=x, d=d, micro_batches=np.array([m]), limit=1e9).least()
            for m in batches
        ]
        finite = sorted(s for s in each if s < float("inf"))
        for limit in [s * f for s in finite[:: max(1, len(finite) - 1)] for f in (1 - 1e-6, 1 + 1e-6)]:
            found = witness(cut, zero, x, d, batches, limit)
            assert (found is not None) == (min(each) < limit)
            if found is not None:
                assert found[1] == pytest.approx(each[found[0] - low], rel=1e-12) and found[1] < limit


@pytest.mark.parametrize(
    ("micro_batches", "rounds"),
    [([1], 0.0), ([2], 0.0), ([3], 1 / 3), ([8], 6 / 8), ([8, 3, 40], 1 / 3), ([8, 2], 0.0), ([20, 8, 40], 6 / 8)],
)
def test_rounds_that_wait_are_all_but_two(micro_batches: list[int], rounds: float) -> None:
    """A round has as many micro-batches as there are stages; of several numbers the smallest share of rounds counts."""
    for cut, zero, x, d, _ in some_columns(300, 12):
        p = int(x.p[0])
        counts = np.array([n * p for n in micro_batches])
        split = PipelineSplits(cut=cut, zero_stage=zero, x=x, d=d, micro_batches=counts, limit=1e9)
        assert split.waits == pytest.approx(rounds / p)
