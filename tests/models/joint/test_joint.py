"""The joint optimum of toys: equal to full enumeration."""

import math
from typing import Any

import pytest
from joint_brute_force import Toy, toy
from joint_changes import put
from joint_solved import require_optimum, solved
from tiers import more

from planner.physics.site import cost

CASES: list[tuple[int, dict[str, Any]]] = [
    *((seed, {}) for seed in (0, 2, 3, 4, 6, 8, 13, 14, 15)),
    *((seed, {"forced": True}) for seed in (2, 5, 7, 8, 9, 11, 12, 17, 19, 20, 23, 26, 36)),
    *((seed, {"sites": 2, "forced": True}) for seed in (3, 5, 7, 12, 14, 16, 18, 21, 25, 36, 41, 48, 49, 59)),
    *((seed, {"sites": 2}) for seed in (2, 5, 6, 11)),
]
NAMES = [f"{seed}{''.join('-' + k for k in how)}" for seed, how in CASES]


TOYS = [
    pytest.param(seed, how, id=name, marks=[pytest.mark.slow] if (seed, how) == (11, {"sites": 2}) else [])
    for name, (seed, how) in zip(NAMES, CASES, strict=True)
]  # the slow one enumerates for seconds


@pytest.mark.parametrize(("seed", "how"), TOYS)
def test_equals_full_enumeration(seed: int, how: dict[str, Any]) -> None:
    """Time and capital of the optimum are those of the best of all plans, found by loops that share no formulation."""
    i = toy(seed, **how)
    found = require_optimum(i, Toy(i).best())
    assert (found.fabric_free_bound or math.inf) <= (found.lower_bound or math.inf) * (1 + 1e-9)


@pytest.mark.parametrize("seed", [0, 2, 6, 14])
def test_racks_that_are_not_filled_on_purpose(seed: int) -> None:
    """With fewer replicas to a rack than it takes, as pinned, the best that is left is found, and it is no faster."""
    alone = {"layout.tensor_parallel": 1, "layout.context_parallel": 1}
    full = solved(put(toy(seed), pins=alone))
    few = put(toy(seed), pins={**alone, "layout.replicas_per_rack": 1})
    best, found = Toy(few).best(), solved(few)
    assert (best is None) == (found.plan is None)
    if best is not None and found.plan is not None and full.plan is not None:
        assert found.plan.seconds == pytest.approx(best.seconds, rel=1e-9)
        assert found.plan.seconds >= full.plan.seconds * (1 - 1e-12)
        assert found.plan.column.strategy.block(found.plan.column.p).replicas_per_rack == 1


@pytest.mark.parametrize("seed", [0, 3, 9])
def test_full_recompute_as_pinned(seed: int) -> None:
    """A pin to full recompute asks for a recomputed layer or more: the best of such plans is found, memory or not."""
    i = put(toy(seed), pins={**toy(seed).pins, "layout.recompute": "full", "layout.context_parallel": 1})
    found = require_optimum(i, Toy(i).best()).plan
    assert found is not None and any(found.split.recomputed)


@pytest.mark.parametrize("seed", [6, *more(8, 14)])
def test_power_of_a_cluster_limits_its_fabric(seed: int) -> None:
    """Below the fastest fabric's draw the best of the others is found, and none where racks leave no power."""
    free = solved(toy(seed))
    assert free.plan is not None
    (fastest,), h = free.plan.templates.values(), toy(seed).hardware
    spared = []
    for fabric_mw in (fastest.mw, fastest.mw * 0.999, 0.0):
        i = put(toy(seed), limits__facility_power_mw=cost.facility_mw(h, h.racks or 0, fabric_mw))
        best, found = Toy(i).best(), solved(i)
        spared.append(None if found.plan is None else found.plan.templates["cluster"].mw <= fabric_mw * (1 + 1e-9))
        assert (best is None) == (found.plan is None)
        if best is not None and found.plan is not None:
            assert found.plan.seconds == pytest.approx(best.seconds, rel=1e-9)
    assert spared == [True, True, None]
