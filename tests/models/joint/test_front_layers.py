"""The joint optimum of models whose first layers are dense and the others have experts equals full enumeration."""

from functools import cache

import pytest
from joint_brute_force import Toy
from joint_proof import solved_with_proof
from joint_toys import case
from tiers import more

from planner.checks.joint_proof import missing_columns
from planner.instance.instance import Instance
from planner.instance.workload import Model
from planner.models.joint.solution import JointStatus

CASES = [
    (seed, dense, ffn)
    for seed in (13, 118)
    for dense, ffn in ((1, 256), (1, 16384), (2, 512))  # faster and slower than a layer with experts
]

MORE = [(seed, dense, ffn) for seed in (53, 98) for dense, ffn in ((1, 256), (1, 16384), (2, 512))]


def made(seed: int, dense: int, ffn: int) -> Instance:
    """Return a toy of three layers, so many of them dense at the front with an FFN of this width."""
    i = case(seed)
    model = i.workload.model
    assert isinstance(model, Model) and model.experts is not None
    experts = model.experts.model_copy(update={"dense_layers": dense})
    model = model.model_copy(update={"experts": experts, "layers": 3, "ffn": ffn})
    return i.model_copy(update={"workload": i.workload.model_copy(update={"model": model})})


@cache
def best(seed: int, dense: int, ffn: int) -> tuple[float, float] | None:
    """Enumerate a case once: seconds a sequence and capital of the best plan."""
    found = Toy(made(seed, dense, ffn)).best()
    return None if found is None else (found.seconds, found.usd)


@pytest.mark.parametrize(("seed", "dense", "ffn"), [*CASES, *more(*MORE)])
def test_equals_full_enumeration(seed: int, dense: int, ffn: int) -> None:
    """Search and loops over every split agree, and the checker finds no column below the bound."""
    i, wanted = made(seed, dense, ffn), best(seed, dense, ffn)
    found, proof = solved_with_proof(i)
    if wanted is None:
        assert found.status is JointStatus.INFEASIBLE
        return
    assert found.plan is not None and found.days is not None and found.status is JointStatus.OPTIMAL
    assert (found.plan.seconds, found.plan.capital_usd) == pytest.approx(wanted, rel=1e-9)
    phi = i.network.transport.slowdown if i.network is not None else 1.0
    assert list(missing_columns(i, found.days, proof, transport_slowdown=phi)) == []


@pytest.mark.slow
def test_front_layers_matter() -> None:
    """Some toys run, and the width of the front layers changes their optimum."""
    found = {key: best(*key) for key in CASES[:3]} | {key: best(*key) for key in CASES[3:6]}
    assert len({x for x in found.values() if x is not None}) > 2
