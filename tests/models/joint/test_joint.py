"""The joint optimum of toys: equal to full enumeration, never improved by a pin, never worsened by money."""

import math
from itertools import pairwise
from typing import Any

import pytest
from joint_brute_force import Toy, toy, with_budget, with_pins
from joint_changes import put
from joint_solved import solved
from tiers import more

from planner.errors import InputError
from planner.models.joint.solution import JointSolution, JointStatus
from planner.physics.network.fabric_designs import bill
from planner.physics.site import cost
from planner.physics.training import step, step_prediction
from planner.physics.training.layer_time import ReplicaGroup
from planner.physics.training.parallel_strategy import ParallelStrategy

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
    best, found = Toy(i).best(), solved(i)
    if best is None:
        assert (found.status, found.plan, found.days) == (JointStatus.INFEASIBLE, None, None)
        return
    assert found.plan is not None and found.status is JointStatus.OPTIMAL
    assert found.plan.seconds == pytest.approx(best.seconds, rel=1e-9)
    assert found.plan.capital_usd == pytest.approx(best.usd, rel=1e-9)
    assert found.days == found.lower_bound
    assert (found.fabric_free_bound or math.inf) <= (found.lower_bound or 0.0) * (1 + 1e-9)


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
    best, found = Toy(i).best(), solved(i)
    assert best is not None and found.plan is not None and any(found.plan.split.recomputed)
    assert found.plan.seconds == pytest.approx(best.seconds, rel=1e-9)
    assert found.plan.capital_usd == pytest.approx(best.usd, rel=1e-9)


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


@pytest.mark.parametrize(
    ("seed", "how"), [c for c in CASES if c[1]], ids=[n for n, c in zip(NAMES, CASES, strict=True) if c[1]]
)
def test_the_plan_is_timed_as_built(seed: int, how: dict[str, Any]) -> None:
    """The step that the physics predicts of the plan in full is the one that was proven.

    And every bill is that of its design.
    """
    i = toy(seed, **how)
    found = solved(i).plan
    if found is None:
        return
    c, x = found.column, found.conditions
    s, block = c.strategy.shape, c.strategy.block(c.p)
    assert block is not None and i.network is not None
    strategy = ParallelStrategy(
        tensor_parallel=s.tensor_parallel,
        pipeline_parallel=c.p,
        data_parallel_by_site=tuple(found.replicas_by_site.values()),
        virtual_stages=c.v,
        micro_batch=s.micro_batch,
        micro_batches=c.m,
        recompute="full" if any(found.split.recomputed) else s.recompute,
        sequence_parallel=s.sequence_parallel,
        zero_stage=c.zero,
        layers_per_stage=found.split.layers,
        recomputed_layers_per_stage=found.split.recomputed if any(found.split.recomputed) else (),
        replicas_per_rack=block.replicas_per_rack,
        context_parallel=s.context_parallel,
        stages_per_rack=block.stages_per_rack,
    )
    group = ReplicaGroup(replicas_per_rack=block.replicas_per_rack, racks=int(x.racks), shards=int(x.shards))
    fibre = {"wan_gbps": x.fibre.gbps, "wan_rtt_ms": x.fibre.rtt_ms} if x.fibre is not None else {}
    phi = c.strategy.problem.transport_slowdown
    conditions = step.Conditions(
        pipeline_send_slowdown=x.send, allreduce_slowdown=x.allreduce, transport_slowdown=phi, **fibre
    )
    seconds = sum(step_prediction.breakdown(step.machine_of(i), conditions, strategy, group).values())
    assert seconds / c.sequences == pytest.approx(found.seconds, rel=1e-9)
    assert sum(found.replicas_by_site.values()) == c.d
    switches = {x.name: x for x in i.network.switches if not isinstance(x, str)}
    for t in found.templates.values():
        assert not t.design.faults()
        above = [switches[name] for name in t.above]
        assert t.usd == pytest.approx(bill(i.network, switches[t.switch], t.design, above).usd)


PINS = (
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "microbatch_sequences",
    "data_parallel",
    "microbatches_per_step",
    "virtual_stages",
)


def choices(found: JointSolution) -> dict[str, int]:
    """Return the choices of a plan by the names of their pins."""
    assert found.plan is not None
    c = found.plan.column
    s = c.strategy.shape
    return dict(zip(PINS, (s.tensor_parallel, c.p, s.context_parallel, s.micro_batch, c.d, c.m, c.v), strict=True))


@pytest.mark.parametrize("seed", [2, 6, *more(8, 14)])
def test_pins(seed: int) -> None:
    """A plan's own choices as pins give the same value, and no other value of a choice a better one."""
    i = toy(seed)
    free = solved(i)
    assert free.days is not None
    own = choices(free)
    assert solved(with_pins(i, **{f"layout.{k}": v for k, v in own.items()})).days == pytest.approx(free.days, rel=1e-9)
    for name, value in own.items():
        for other in {1, value + 1, max(1, value - 1)}:
            try:
                pinned = solved(with_pins(i, **{f"layout.{name}": other})).days
            except InputError as refused:
                assert "outside the declared space" in str(refused)
                continue
            assert pinned is None or pinned >= free.days * (1 - 1e-9)


@pytest.mark.parametrize(
    ("seed", "how"),
    [
        (6, {}),
        (17, {"forced": True}),
        (36, {"sites": 2, "forced": True}),
        pytest.param(6, {"sites": 2}, marks=pytest.mark.slow),
    ],
)
def test_more_money_never_worsens(seed: int, how: dict[str, Any]) -> None:
    """Days fall, or stay, as the budget grows."""
    i = toy(seed, **how)
    budget = i.limits.budget_usd or 0.0
    days = [solved(with_budget(i, budget * f)).days or math.inf for f in (0.9, 1.0, 1.1, 1.3, 2.0)]
    assert all(b <= a * (1 + 1e-9) for a, b in pairwise(days))
