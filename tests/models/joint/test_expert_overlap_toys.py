"""The experts' exchange overlaps in some layouts only: the optimum equals full enumeration, the checker agrees."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from joint_brute_force import LayerShape, Times, Toy
from joint_proof import solved_with_proof
from joint_toys import toy

import planner
from planner.checks.joint_proof import missing_columns
from planner.instance.instance import Instance
from planner.models.joint.solution import JointStatus

ROOMY, TIGHT = 0.5e9, 0.43e9  # bytes of memory: with room for all activations, and without


def made(hbm: float, layouts: str = "interleaved", layers: int = 2, **pins: Any) -> Instance:
    """Return a toy of two experts on slow links, whose exchange overlaps whole where it does at all."""
    given = toy(3).model_dump(mode="json", exclude_none=True)
    switches = {"overlaps": ["experts"], "expert_overlap": 1.0, "expert_overlap_layouts": layouts}
    given["workload"]["software"] |= switches
    experts = {"count": 2, "per_token": 2, "ffn": 4096, "dense_layers": 0}
    given["workload"]["model"] |= {"layers": layers, "experts": experts}
    given["hardware"]["accelerator"] |= {"hbm_bytes": hbm, "nic_bytes_per_second": 2e10}
    given["limits"]["max_batch_tokens"] = 4 * 1024
    given["pins"] = {"layout.zero_stage": 1, "layout.expert_parallel": 2, **pins}
    return Instance.model_validate(given)


class OverlapTimes(Times):
    """Times of the splits of a layer whose experts' exchange overlaps, or of those in which it does not."""

    def _splits(self, shape: LayerShape, p: int, v: int, *rest: Any) -> Any:
        layers, recompute = super()._splits(shape, p, v, *rest)
        overlaps = np.all(recompute == 0, axis=1) & (p == 1 or v > 1)
        fine = overlaps == shape.experts_overlap
        return layers[fine], recompute[fine]


class OverlapToy(Toy):
    """Every plan of a toy, with the exchange overlapped or not."""

    def __init__(self, i: Instance) -> None:
        super().__init__(i, times=OverlapTimes(i))

    def shapes(self) -> Iterator[LayerShape]:
        """Yield every way to cut a layer, with its exchange overlapped or not."""
        for shape in super().shapes():
            yield shape
            yield replace(shape, experts_overlap=False)


@cache
def best(hbm: float, layers: int = 2, **pins: Any) -> tuple[float, float, bool] | None:
    """Enumerate a toy: seconds a sequence, capital, and whether the exchange of the best plan overlaps."""
    found = OverlapToy(made(hbm, layers=layers, **pins)).best()
    return None if found is None else (found.seconds, found.usd, found.column.shape.experts_overlap)


CASES: list[tuple[float, dict[str, Any], bool]] = [
    (ROOMY, {}, False),
    (ROOMY, {"layout.pipeline_parallel": 1}, True),
    (TIGHT, {}, False),
    (ROOMY, {"layout.recompute": "full"}, False),
    (ROOMY, {"layout.pipeline_parallel": 2, "layout.virtual_stages": 1}, False),
    (0.9 * ROOMY, {"layout.pipeline_parallel": 2, "layout.virtual_stages": 1}, False),
]


@pytest.mark.parametrize(("hbm", "pins", "overlaps"), CASES)
def test_equals_full_enumeration(hbm: float, pins: dict[str, Any], overlaps: bool) -> None:
    """Whole replicas with room overlap, under recompute or a plain pipeline none; the checker finds nothing better."""
    i, enumerated = made(hbm, **pins), best(hbm, **pins)
    found, proof = solved_with_proof(i)
    assert enumerated is not None and found.plan is not None and found.days is not None
    assert found.status is JointStatus.OPTIMAL
    assert (found.plan.seconds, found.plan.capital_usd) == pytest.approx(enumerated[:2], rel=1e-9)
    assert found.plan.column.strategy.shape.experts_overlap == enumerated[2] == overlaps
    phi = i.network.transport.slowdown if i.network is not None else 1.0
    assert list(missing_columns(i, found.days, proof, transport_slowdown=phi)) == []


def test_interleaved_stages_overlap() -> None:
    """Four layers on two stages of two chunks each: enumerated under these pins, and overlapped."""
    pins = {"layout.pipeline_parallel": 2, "layout.virtual_stages": 2}
    i, enumerated = made(2 * ROOMY, layers=4, **pins), best(2 * ROOMY, 4, **pins)
    found, _ = solved_with_proof(i)
    assert enumerated is not None and found.plan is not None
    assert found.plan.seconds == pytest.approx(enumerated[0], rel=1e-9)
    assert found.plan.column.strategy.shape.experts_overlap == enumerated[2]
    assert enumerated[2]


def test_a_limit_never_helps() -> None:
    """No plan is faster than where the exchange overlaps in any layout; the plan's own time is checked."""
    for hbm in (ROOMY, TIGHT):
        limited, free = planner.solve(made(hbm)), planner.solve(made(hbm, "any"))
        assert limited.objective.value is not None and free.objective.value is not None
        assert limited.objective.value >= free.objective.value * (1 - 1e-9)
        assert planner.check(limited) == []
