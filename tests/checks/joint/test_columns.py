"""The checker's own enumeration is the declared space: as many columns as the search has, each with the same racks."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joint_strategies import strategies
from joint_toys import toy, with_pins
from tiers import more, slow

from planner.checks.joint_columns import Space, inner_degrees
from planner.checks.layer_split import PipelineSplits
from planner.instance.instance import Instance
from planner.models.joint.space import problem_of
from planner.physics.training import step_prediction
from planner.planning.load import load_instance

INSTANCES = Path(__file__).parents[3] / "instances"
Table = dict[Any, bytes]


def own(i: Instance) -> Table:
    """Return the pipelines of every cut of the checker."""
    found = {}
    for cut in Space(instance=i, transport_slowdown=1.1).cuts():
        every = cut.pipelines()
        for packed in (False, True):
            x = every.part((every.stages_per_rack > 1) == packed)
            columns = (x.p, x.v, x.block_racks, x.block_replicas, x.replicas_per_rack, x.stage_racks, x.wired)
            if len(x):
                kind = (cut.shape, cut.schedule, packed, cut.repeats != "no")
                found[kind] = np.stack(columns).astype(np.int64).tobytes()
    return found


def searched(i: Instance) -> Table:
    found = {}
    for s in strategies(problem_of(i)):
        x = s.pipelines
        if len(x.p):
            columns = (x.p, x.v, x.racks, x.replicas, x.replicas_per_rack, x.stage_racks, x.rails)
            found[s.shape, s.order, s.packed, s.recomputes != "none"] = np.stack(columns).astype(np.int64).tobytes()
    return found


@pytest.mark.parametrize("name", ["cluster-1k", *slow("5gw")])
def test_shipped_instances(name: str) -> None:
    i = load_instance(INSTANCES / f"{name}.json")
    assert own(i) == searched(i)


def varied(seed: int) -> Instance:
    """Return a toy with experts, KV heads, spare ports, several schedules, selective recompute or pins."""
    r = random.Random(seed)
    given = toy(seed).model_dump(mode="json", exclude_none=True)
    given["hardware"]["rack"]["gpus"] = r.choice([4, 6, 8, 18])
    given["workload"]["model"] |= {"layers": r.randint(3, 9), "heads": 12, "kv_heads": r.choice([4, 12])}
    given["workload"]["software"] |= r.choice(
        [{"schedules": ["1f1b", "zb-h1"]}, {"selective_gemm_share": 0.3}, {"flash_attention": False}, {}]
    )
    lacks = {"tensor-2d": 0.2, "sequence": 0.2, "context": 0.2, "expert": 0.2, "interleaved": 0.2}
    given["workload"]["software"]["parallelism"] = [
        "tensor", "pipeline", *(way for way, chance in lacks.items() if r.random() > chance)
    ]  # fmt: skip
    if r.random() < 0.5:
        given["workload"]["model"]["experts"] = {"count": r.choice([4, 6, 8]), "per_token": 2, "ffn": 512}
    if r.random() < 0.3:
        given["network"]["spares"] = {"share": 0.1}
    pins = {"context_parallel": 2, "pipeline_parallel": 2, "virtual_stages": 1, "recompute": "full", "schedule": "1f1b"}
    given["pins"] = {f"layout.{k}": v for k, v in pins.items() if r.random() < 0.2}
    if "layout.context_parallel" in given["pins"]:
        given["workload"]["software"]["parallelism"].append("context")
    return Instance.model_validate(given)


@pytest.mark.parametrize("seed", [*range(14), *more(*range(14, 30))])
def test_random_instances(seed: int) -> None:
    i = varied(seed)
    assert own(i) == searched(i)


@pytest.mark.parametrize("parallelism", [[], ["tensor"], ["pipeline"], ["pipeline", "interleaved"], ["context"]])
def test_frameworks_that_have_little(parallelism: list[str]) -> None:
    i = varied(3).model_copy(update={"pins": {}})
    software = i.workload.software.model_copy(update={"parallelism": tuple(parallelism)})  # type: ignore[union-attr]
    i = i.model_copy(update={"workload": i.workload.model_copy(update={"software": software})})
    table = own(i)
    assert table == searched(i)
    shapes = [shape for shape, *_ in table]
    assert ({s.tensor_parallel for s in shapes} == {1}) == ("tensor" not in parallelism)
    assert ({s.context_parallel for s in shapes} == {1}) == ("context" not in parallelism)
    assert {s.sequence_parallel for s in shapes} == {False}
    p, v, *_ = np.concatenate([np.frombuffer(x, dtype=np.int64).reshape(7, -1) for x in table.values()], axis=1)
    assert (p.max() == 1) == ("pipeline" not in parallelism)
    assert (v.max() == 1) == ("interleaved" not in parallelism)


def test_inner_degrees() -> None:
    """The grid of 2-D tensor parallelism is the most nearly square one, of two alike that with fewer inner ranks."""
    inner = {1: [1], 8: [1], 16: [1, 4], 17: [1], 24: [1, 4], 60: [1, 6], 72: [1, 8]}
    assert {t: inner_degrees(t) for t in inner} == inner


def test_a_pinned_split_is_the_only_one() -> None:
    """Layers and recomputed layers pinned by stage leave one split, timed as the physics does."""
    given = toy(2).model_dump(mode="json", exclude_none=True)
    given["workload"]["model"]["layers"] = 3
    given["hardware"]["accelerator"]["hbm_bytes"] = 1e12
    pins = {"layout.layers_per_stage": [1, 2], "layout.recomputed_layers_per_stage": [1, 0]}
    i = with_pins(Instance.model_validate(given), **pins)
    cut = next(c for c in Space(instance=i, transport_slowdown=1.1).cuts() if c.shape.micro_batch == 1)
    x = cut.pipelines()
    for p, fits in ((2, True), (3, False)):
        part = x.part(np.flatnonzero((x.p == p) & (x.v == 1)))
        split = PipelineSplits(cut=cut, zero_stage=3, x=part, d=2, micro_batches=np.array([4]), limit=1e9)
        assert np.isfinite(split.least()) == fits
        if fits:
            a, b, host = split.pipeline, split.sharded, cut.machine.software.microbatch_seconds
            one, two = (
                float(step_prediction.stage_seconds(a, b, 1, n, r, split.send)) + host for n, r in ((1, 1), (2, 0))
            )
            chunk = max(float(step_prediction.chunk_seconds(a, b, 1, n, r)) for n, r in ((1, 1), (2, 0)))
            assert split.least() == pytest.approx(max(one, two + a.head) + split.once(chunk, 2), rel=1e-12)
