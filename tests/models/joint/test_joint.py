"""The joint optimum of toys equals full enumeration; no pin improves it, means never worsen it, order means nothing."""

import math
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from joint_brute_force import Plan, Toy, toy
from joint_changes import HARMS, HELPS, SAME, other_values, own_choices, put, with_pins
from joint_solved import require_optimum, solved
from joint_toys import KINDS, case, kind_of
from tiers import more

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models.joint.world import JointSolution
from planner.physics.site import cost

CASES: list[tuple[int, dict[str, Any]]] = [
    *((seed, {}) for seed in (0, 3, 6, 13, 15)),
    *((seed, {"forced": True}) for seed in (2, 7, 9, 12, 19, 23, 36)),
    *((seed, {"sites": 2, "forced": True}) for seed in (3, 7, 14, 18, 25, 41, 49)),
    *((seed, {"sites": 2}) for seed in (2, 6)),
]
OTHERS: list[tuple[int, dict[str, Any]]] = [
    *((seed, {}) for seed in (2, 4, 8, 14)),
    *((seed, {"forced": True}) for seed in (5, 8, 11, 17, 20, 26)),
    *((seed, {"sites": 2, "forced": True}) for seed in (5, 12, 16, 21, 36, 48, 59)),
    *((seed, {"sites": 2}) for seed in (5, 11)),
]
NAMES = [f"{seed}{''.join('-' + k for k in how)}" for seed, how in CASES]
TOYS = [*(pytest.param(*case, id=name) for case, name in zip(CASES, NAMES, strict=True)), *more(*OTHERS)]


@pytest.mark.parametrize(("seed", "how"), TOYS)
def test_equals_full_enumeration(seed: int, how: dict[str, Any]) -> None:
    i = toy(seed, **how)
    found = require_optimum(i, Toy(i).best())
    assert (found.fabric_free_bound or math.inf) <= (found.lower_bound or math.inf) * (1 + 1e-9)


@pytest.mark.parametrize("seed", [0, 2, 6, 14])
def test_racks_that_are_not_filled_on_purpose(seed: int) -> None:
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


SEEDS = (
    *(0, 10, 15, 75),  # clusters
    *(16, 26, 41, 101),  # one site of a grid
    *(12, 27, 57, 97),  # two to four nodes with lines
    *(13, 43, 53, 98),  # mixtures of experts
    *(4, 24, 39, 74),  # long sequences: CP over racks
)
MORE = (105, 25, 36, 96, 132, 102, 73, 118, 134, 14)
HELPERS = Path(__file__).parents[2] / "helpers"


@cache
def enumerated(seed: int) -> Plan | None:
    return Toy(case(seed)).best()


@pytest.mark.parametrize("seed", [*SEEDS, *more(*MORE)])
def test_toys_of_each_kind_equal_full_enumeration(seed: int) -> None:
    require_optimum(case(seed), enumerated(seed))


@pytest.mark.parametrize("seed", [27, *more(57)])
def test_blocks_pinned_to_a_site_equal_enumeration(seed: int) -> None:
    free = enumerated(seed)
    sites = Toy(case(seed)).sites
    name, worse = sites.nodes[free.blocks.index(max(free.blocks))].id, 0
    for number in {0, 1, max(free.blocks) - 1, max(free.blocks) + 1}:
        i = with_pins(case(seed), {f"placement.blocks.{name}": number})
        best = Toy(i).best()
        found = require_optimum(i, best)
        if best is None or found.plan is None:
            continue
        assert found.plan.blocks_by_site.get(name, 0) == number
        worse += (best.seconds, best.usd) > (free.seconds, free.usd)
    assert worse


@pytest.mark.slow
def test_the_toys_are_of_every_kind() -> None:
    """There are four of each kind; some plans spread CP or experts over racks, some hold blocks at two sites."""
    assert {k: [kind_of(s) for s in SEEDS].count(k) for k in KINDS} == dict.fromkeys(KINDS, 4)
    plans = [b for b in map(enumerated, SEEDS) if b is not None]
    assert any(p.column.block.context_racks > 1 for p in plans)
    assert any(p.column.shape.expert_parallel > 1 for p in plans)
    assert sum(sum(n > 0 for n in p.blocks) > 1 for p in plans) >= 5
    assert any(p.send > 1.2 for p in plans) and any(p.allreduce > 1.2 for p in plans)


def test_the_enumeration_shares_no_formulation() -> None:
    code = (
        "import sys, joint_brute_force\n"
        "left_out = 'planner.models', 'planner.solvers', 'ortools', 'pyomo'\n"
        "names = [m for m in sys.modules if m.startswith(left_out)]\n"
        "sys.exit(str(names) if names else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HELPERS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# One cluster, one site and a grid on which the network, the fibre or the split binds, experts, and CP over racks.
ONE_OF_EACH = (0, 26, 13, 74, *more(27, 39, 52))
TIE = 1e-9


@cache
def free(seed: int) -> JointSolution:
    return solved(case(seed))


def days(i: Instance) -> float:
    """Return the days of the optimum; infinite where there is no plan."""
    return solved(i).days or math.inf


@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_own_choices_as_pins_give_the_same_value(seed: int) -> None:
    found, pins = free(seed), own_choices(free(seed))
    assert found.plan is not None and found.days is not None
    for some in (pins, *({name: value} for name, value in pins.items())):
        again = solved(with_pins(case(seed), some))
        assert again.days == pytest.approx(found.days, rel=TIE), some
        assert again.plan.capital_usd == pytest.approx(found.plan.capital_usd, rel=TIE), some


@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_pins_never_improve(seed: int) -> None:
    """No other value of a choice gives fewer days, and the lower bounds hold below every value under a pin."""
    found = free(seed)
    assert found.days is not None and found.lower_bound is not None and found.fabric_free_bound is not None
    assert found.fabric_free_bound <= found.lower_bound * (1 + TIE) <= found.days * (1 + 2 * TIE)
    tried, pinned_before = 0, case(seed).pins
    for name, value in own_choices(found).items():
        if name in pinned_before:
            continue
        for other in other_values(name, value):
            try:
                pinned = days(with_pins(case(seed), {name: other}))
            except InputError as refused:
                assert str(refused).startswith(f"pins[{name!r}]: ")
                continue
            tried += 1
            assert pinned >= found.lower_bound * (1 - TIE), (name, other)
    assert tried > 0


@pytest.mark.parametrize("change", [x for x in HELPS if x != "racks"])
@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_means_never_worsen(seed: int, change: str) -> None:
    assert days(HELPS[change](case(seed))) <= (free(seed).days or math.inf) * (1 + TIE)


@pytest.mark.parametrize("change", HARMS)
@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_dearer_parts_never_improve(seed: int, change: str) -> None:
    assert days(HARMS[change](case(seed))) >= (free(seed).days or 0.0) * (1 - TIE)


@pytest.mark.parametrize("change", SAME)
@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_order_and_names_change_nothing(seed: int, change: str) -> None:
    _same(free(seed), solved(SAME[change](case(seed))))


@pytest.mark.parametrize("seed", ONE_OF_EACH)
def test_the_seed_of_the_solvers_changes_nothing(seed: int) -> None:
    _same(free(seed), solved(case(seed), seed=7))


def _same(a: JointSolution, b: JointSolution) -> None:
    assert b.days == pytest.approx(a.days, rel=TIE)
    assert b.plan.capital_usd == pytest.approx(a.plan.capital_usd, rel=TIE)
