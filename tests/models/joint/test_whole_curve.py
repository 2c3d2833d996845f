"""The curve of money against days, and the least cost of ownership: equal to full enumeration, floors below plans."""

import itertools
import math
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from joint_brute_failures import every_plan as plans_where_parts_fail
from joint_brute_failures import failing
from joint_brute_force import RunToy, cost_toy, run_toy, toy
from joint_solved import solved
from tiers import more, slow

from planner.instance.instance import Instance
from planner.models.joint.joint_world import JointCache, JointPlan, JointSolution
from planner.models.joint.search.capital_floor import CapitalFloor
from planner.models.joint.search.whole_curve import Front, WholeCurve
from planner.models.joint.solve_joint import Solving, least_run_cost, solve_joint
from planner.models.joint.strategy_tables import terms_under_zero
from planner.physics.training.layer_time import days_of

CASES: list[tuple[int, dict[str, Any]]] = [
    *((seed, {}) for seed in (0, 6)),
    *((seed, {"forced": True}) for seed in (2, 12, 19)),
    *((seed, {"sites": 2, "forced": True}) for seed in (3, 7, 14, 18, 25, 36)),
    *((seed, {"sites": 3, "forced": True}) for seed in (7, 18, 36)),
    (2, {"sites": 2}),
]
NAMES = [f"{seed}{''.join('-' + k for k in how)}" for seed, how in CASES]
PLAN = cast(JointPlan, None)


@pytest.mark.parametrize("seed", range(20))
def test_a_front_holds_what_none_beats(seed: int) -> None:
    """Its gap is that of the nearest plan; above some floors each pair of a larger gap, and no other, is in a box."""
    r, front = random.Random(seed), Front(slowest=1e3, most_usd=1e3)
    every = [(r.choice([1, 2, 3, 5, 8]) * r.uniform(1, 9), r.choice([1, 2, 4]) * r.uniform(1, 9)) for _ in range(40)]
    for t, c in every:
        front.add(t, c, PLAN)
    kept = {(t, c) for t, c in every if not any(a <= t and b <= c and (a, b) != (t, c) for a, b in every)}
    assert set(zip(front.seconds, front.usd, strict=True)) == kept
    assert front.usd == sorted(front.usd) and front.seconds == sorted(front.seconds, reverse=True)
    for _ in range(60):
        t, c = r.uniform(0.5, 60), r.uniform(0.5, 50)
        gap = min(max(a / t, b / c) for a, b in kept) - 1
        assert front.gap(t, c) == pytest.approx(gap, rel=1e-12)
        share = r.uniform(0, 0.5)
        assert (front.gap(t, c) > share) == (t < front.cutoff(c, share) or gap == pytest.approx(share))
    assert front.gap(1e3, 1.0) == front.gap(1.0, 1001.0) == -1
    assert Front().gap(1.0, 1.0) == math.inf
    boxes = list(front.boxes(2.0, 2.0, 0.1))
    for _ in range(200):
        t, c = r.uniform(2.0002, 60), r.uniform(2, 50)
        assert any(t < late and c <= most for late, most in boxes) == (front.gap(t, c) > 0.1)


def every_plan(i: Instance) -> list[tuple[float, float]]:
    """Return seconds and capital of the plans that none beats; a cluster may be one of fewer racks."""
    if i.grid is not None:
        return [(x.seconds, x.usd) for x in cost_toy(i).front]
    clusters = [i.replaced(hardware__racks=n + 1) for n in range(i.hardware.racks or 0)]
    return [(x.seconds, x.usd) for cluster in clusters for x in cost_toy(cluster).front]


def require_covered(i: Instance, every: list[tuple[float, float]], epsilon: float) -> None:
    """Require that every plan is within epsilon of one that is held, and that none held beats them."""
    cache = JointCache()  # with what a question for the fewest days leaves in it, as the curve is asked for
    solve_joint(i, Solving(cache=cache))
    search = WholeCurve(world=Solving(cache=cache).world(i), epsilon=epsilon)
    proven: list[float] = []
    search.progress = lambda s: proven.append(s.proven)
    search.front.slowest = 2 * max((t for t, _ in every), default=1.0)
    search.front.most_usd = search.world.budget
    search.run()
    found = list(zip(search.front.seconds, search.front.usd, strict=True))
    assert search.proven == epsilon
    assert all(b <= a for a, b in itertools.pairwise(proven))
    worse = (1 + epsilon) * (1 + 1e-8)
    for seconds, usd in every:
        assert any(t <= worse * seconds and c <= worse * usd + 0.01 for t, c in found)
    for t, c in found:
        assert any(seconds <= t * (1 + 1e-8) and usd <= c + 0.01 for seconds, usd in every)
    assert bool(found) == bool(every)
    for s, of in cache.tables.items():
        for zero, kept in of.under_zero.items():
            some = np.flatnonzero(kept.high)
            rows = of.rows.part(some)
            d = np.minimum(kept.high[some] * rows.block_replicas, rows.d)
            assert kept.each[some] == pytest.approx(terms_under_zero(s, zero, replace(rows, d=d)).each, rel=1e-12)


WIDE = [pytest.param(*case, 0.2, id=name) for case, name in zip(CASES, NAMES, strict=True)]
EXACT = [(*case, 1e-6) for case in CASES]


@pytest.mark.parametrize(("seed", "how", "epsilon"), [*WIDE, *slow(*EXACT[::5]), *more(*EXACT)])
def test_covers_full_enumeration(seed: int, how: dict[str, Any], epsilon: float) -> None:
    i = toy(seed, **how).replaced(limits__deadline_days=None)
    require_covered(i, every_plan(i), epsilon)


@pytest.mark.parametrize("epsilon", [0.1, *more(1e-6)])
@pytest.mark.parametrize("seed", [16, *slow(12), *more(26, 24, 57)])
def test_covers_full_enumeration_where_parts_fail(seed: int, epsilon: float) -> None:
    require_covered(failing(seed), [(x.seconds, x.usd) for x in plans_where_parts_fail(failing(seed))], epsilon)


@pytest.mark.parametrize(("seed", "sites"), [(7, 2), *slow((18, 3)), *more((3, 3), (14, 2), (36, 3))])
def test_covers_full_enumeration_of_modules_of_two_racks(seed: int, sites: int) -> None:
    """Each site buys whole modules, also where its share of the blocks fills none, and no floor counts more."""
    i = toy(seed, sites=sites, forced=True).replaced(hardware__racks_per_module=2, limits__deadline_days=None)
    floor, odd = CapitalFloor.of(Solving().world(i)), 0
    for x in cost_toy(i).front:
        racks = [n for n in x.blocks if n]  # a block has one rack at least
        assert floor.usd(sum(racks), 0, len(racks)) <= floor.usd_over(racks) <= x.usd * (1 + 1e-9)
        odd += any(n % 2 for n in racks)
    assert odd
    require_covered(i, every_plan(i), 1e-6)


# Seed, kind of toy, and what operation costs as a share of the racks.
RUN_CASES: list[Any] = [(0, {}, 0.03), (7, {"forced": True}, 1.0), (25, {"sites": 2, "forced": True}, 0.2)]
FACTORS = (1.0, 1.3, 40.0)  # of the fewest days


def costly(i: Instance, share: float) -> Instance:
    """Return a toy whose longest runs cost a good share of its racks: upkeep, lives, energy, and staff."""
    years = solved(i).days / 365
    return run_toy(
        i, maintenance_share_per_year=share / years / 4, staff_usd_per_year=1000 * share / years,
        fabric_life_years=years * 2.6, rack_life_years=years * 1.7, usd_per_mwh=share * 1000 / years / 8760 / 3,
    )  # fmt: skip


def least(i: Instance, days: float) -> JointSolution:
    return least_run_cost(i.replaced(limits__deadline_days=days), Solving())


@pytest.mark.parametrize(("seed", "how", "share"), RUN_CASES, ids=["cluster", "forced 7", "two sites 25"])
def test_equals_full_enumeration(seed: int, how: dict[str, Any], share: float) -> None:
    """The least cost at deadlines from the fewest days to forty times as many, operation cheap and dear."""
    i = costly(toy(seed, **how), share)
    every, soonest = RunToy(i), solved(i).days
    for factor in FACTORS:
        found, best = least(i, soonest * factor), every.cheapest(soonest * factor / days_of(i, 1.0))
        assert found.plan is not None and found.status == "optimal"
        assert found.usd == pytest.approx(best.usd, rel=1e-9)
        assert found.lower_bound == found.usd
    assert least(i, soonest * 0.99).status == "infeasible"


@pytest.mark.parametrize("seed", [3, *more(14)])
def test_years_that_are_given_count_whatever_the_run(seed: int) -> None:
    i = costly(toy(seed, sites=2, forced=True), 0.3)
    days = solved(i).days * 3
    found = []
    for years in (0.0, 0.001, 0.004):
        asked = i.replaced(limits__operation_years=years)
        every = RunToy(i)
        every.years = lambda _, years=years: years  # type: ignore[method-assign, misc]
        best, x = every.cheapest(days / days_of(i, 1.0)), least(asked, days)
        assert best is not None and x.usd == pytest.approx(best.usd, rel=1e-9)
        found.append(best.usd)
    assert all(b > a for a, b in pairwise(found))
