"""The curve of money against days, and the least cost of ownership: equal to full enumeration, floors below plans."""

import itertools
import math
import random
from dataclasses import replace
from functools import cache
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
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_question import Solving
from planner.models.joint.joint_solution import JointPlan, JointSolution
from planner.models.joint.search.capital_floor import CapitalFloor
from planner.models.joint.search.least_cost_of_ownership import least_run_cost
from planner.models.joint.search.whole_curve import Front, WholeCurve
from planner.models.joint.solve_joint import solve_joint
from planner.models.joint.strategy_tables import terms_under_zero
from planner.physics.training.step_prediction import days_of
from planner.solvers.search_deadline import Deadline

CASES: list[tuple[int, dict[str, Any]]] = [
    *((seed, {}) for seed in (0, 6)),
    *((seed, {"forced": True}) for seed in (2, 12, 19)),
    *((seed, {"sites": 2, "forced": True}) for seed in (3, 7, 14, 18, 25, 36)),
    *((seed, {"sites": 3, "forced": True}) for seed in (7, 18, 36)),
    (2, {"sites": 2}),
]
NAMES = [f"{seed}{''.join('-' + k for k in how)}" for seed, how in CASES]
PLAN = cast(JointPlan, None)


def drawn(seed: int, count: int) -> tuple[Front, list[tuple[float, float]]]:
    """Return a front of random plans, and all of them."""
    r, front = random.Random(seed), Front(slowest=1e3, most_usd=1e3)
    every = [(r.choice([1, 2, 3, 5, 8]) * r.uniform(1, 9), r.choice([1, 2, 4]) * r.uniform(1, 9)) for _ in range(count)]
    for t, c in every:
        front.add(t, c, PLAN)
    return front, every


@pytest.mark.parametrize("seed", range(20))
def test_a_front_holds_what_none_beats(seed: int) -> None:
    front, every = drawn(seed, 40)
    kept = {(t, c) for t, c in every if not any(a <= t and b <= c and (a, b) != (t, c) for a, b in every)}
    assert set(zip(front.seconds, front.usd, strict=True)) == kept
    assert front.usd == sorted(front.usd) and front.seconds == sorted(front.seconds, reverse=True)
    r = random.Random(seed + 1000)
    for _ in range(60):
        t, c = r.uniform(0.5, 60), r.uniform(0.5, 50)
        gap = min(max(a / t, b / c) for a, b in kept) - 1
        assert front.gap(t, c) == pytest.approx(gap, rel=1e-12)
        share = r.uniform(0, 0.5)
        assert (front.gap(t, c) > share) == (t < front.cutoff(c, share) or gap == pytest.approx(share))
    assert front.gap(1e3, 1.0) == front.gap(1.0, 1001.0) == -1
    assert Front().gap(1.0, 1.0) == math.inf


@pytest.mark.parametrize("seed", range(12))
def test_boxes_hold_every_larger_gap(seed: int) -> None:
    """Above some floors, each pair of a larger gap lies in a box, and no other pair does."""
    front, _ = drawn(seed, 12)
    r = random.Random(seed)
    low, least, share = 2.0, 2.0, 0.1
    boxes = list(front.boxes(low, least, share))
    for _ in range(200):
        t, c = r.uniform(low * 1.0001, 60), r.uniform(least, 50)
        inside = any(t < late and c <= most for late, most in boxes)
        assert inside == (front.gap(t, c) > share)


def every_plan(i: Instance) -> list[tuple[float, float]]:
    """Return seconds and capital of the plans that none beats; a cluster may be one of fewer racks."""
    if i.grid is not None:
        return [(x.seconds, x.usd) for x in cost_toy(i).front]
    own = range(1, (i.hardware.racks or 0) + 1)
    clusters = [i.replaced(hardware__racks=n) for n in own]
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


@cache
def enumerated_where_parts_fail(seed: int) -> list[tuple[float, float]]:
    return [(x.seconds, x.usd) for x in plans_where_parts_fail(failing(seed))]


WIDE = [pytest.param(*case, 0.2, id=name) for case, name in zip(CASES, NAMES, strict=True)]
EXACT = [(*case, 1e-6) for case in CASES]


@pytest.mark.parametrize(
    ("seed", "how", "epsilon"), [*WIDE, *slow(*EXACT[::5]), *more(*(x for x in EXACT if x not in EXACT[::5]))]
)
def test_covers_full_enumeration(seed: int, how: dict[str, Any], epsilon: float) -> None:
    i = toy(seed, **how).replaced(limits__deadline_days=None)
    require_covered(i, every_plan(i), epsilon)


@pytest.mark.parametrize("epsilon", [0.1, *more(1e-6)])
@pytest.mark.parametrize("seed", [16, *slow(12), *more(26, 24, 57)])
def test_covers_full_enumeration_where_parts_fail(seed: int, epsilon: float) -> None:
    i = failing(seed)
    assert i.grid is not None
    require_covered(i, enumerated_where_parts_fail(seed), epsilon)


@pytest.mark.parametrize(("seed", "how"), CASES, ids=NAMES)
def test_no_plan_is_below_the_floor_of_capital(seed: int, how: dict[str, Any]) -> None:
    i = toy(seed, **how)
    world = Solving().world(i)
    floor, racks = CapitalFloor.of(world), np.arange(1, 12)
    for sites in range(floor.min_sites, world.max_open + 1):
        usd = floor.usd(racks, 0, sites)
        assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(usd.tolist()))
    for x in cost_toy(i).front:  # a block has one rack at least
        usd = floor.usd(np.array([sum(x.blocks)]), 0, sum(n > 0 for n in x.blocks))
        assert float(usd[0]) <= x.usd * (1 + 1e-9)


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


RUN_CASES: dict[str, Any] = {  # seed, kind of toy, and what operation costs as a share of the racks
    "cluster": (0, {}, 0.03),
    "forced 7": (7, {"forced": True}, 1.0),
    "two sites 25": (25, {"sites": 2, "forced": True}, 0.2),
}
MORE: list[Any] = [
    (20, {"forced": True}, 0.2), (7, {"sites": 3, "forced": True}, 0.03), (36, {"sites": 2, "forced": True}, 1.0),
    (3, {"sites": 2, "forced": True}, 0.03), (2, {"forced": True}, 0.03), (6, {}, 1.0),
    (14, {"sites": 2, "forced": True}, 1.0), (18, {"sites": 3, "forced": True}, 1.0), (5, {"sites": 2}, 1.0),
]  # fmt: skip
FACTORS = (1.0, 1.3, 40.0)  # of the fewest days


def fewest_days(i: Instance) -> float:
    found = solved(i).days
    assert found is not None
    return found


def costly(i: Instance, share: float, *, staff: bool = True) -> Instance:
    """Return a toy whose longest runs cost a good share of its racks: upkeep, lives, energy, and staff."""
    years = fewest_days(i) / 365
    return run_toy(
        i, maintenance_share_per_year=share / years / 4, staff_usd_per_year=1000 * share / years if staff else None,
        fabric_life_years=years * 2.6, rack_life_years=years * 1.7, usd_per_mwh=share * 1000 / years / 8760 / 3,
    )  # fmt: skip


def least(i: Instance, days: float) -> JointSolution:
    return least_run_cost(i.replaced(limits__deadline_days=days), Solving())


@pytest.mark.parametrize(
    ("seed", "how", "share"), [*(pytest.param(*case, id=name) for name, case in RUN_CASES.items()), *more(*MORE)]
)
def test_equals_full_enumeration(seed: int, how: dict[str, Any], share: float) -> None:
    """The least cost at deadlines from the fewest days to forty times as many, operation cheap and dear."""
    i = costly(toy(seed, **how), share)
    every, soonest = RunToy(i), fewest_days(i)
    for factor in FACTORS:
        found, best = least(i, soonest * factor), every.cheapest(soonest * factor / days_of(i, 1.0))
        assert found.plan is not None and found.status == "optimal"
        assert found.usd == pytest.approx(best.usd, rel=1e-9)
        assert found.lower_bound == found.usd
    assert least(i, soonest * 0.99).status == "infeasible"


@pytest.mark.parametrize("seed", [3, *more(14)])
def test_years_that_are_given_count_whatever_the_run(seed: int) -> None:
    i = costly(toy(seed, sites=2, forced=True), 0.3)
    days = fewest_days(i) * 3
    found = []
    for years in (0.0, 0.001, 0.004):
        asked = i.replaced(limits__operation_years=years)
        every = RunToy(i)
        every.years = lambda _, years=years: years  # type: ignore[method-assign, misc]
        best, x = every.cheapest(days / days_of(i, 1.0)), least(asked, days)
        assert best is not None and x.usd == pytest.approx(best.usd, rel=1e-9)
        found.append(best.usd)
    assert all(b > a for a, b in pairwise(found))


def test_a_search_cut_short_claims_no_proof() -> None:
    i = costly(toy(6), 0.3)
    days = fewest_days(i) * 2
    cut = least_run_cost(i.replaced(limits__deadline_days=days), Solving(deadline=Deadline(1e-9)))
    assert cut.stopped == "limit" and cut.status in ("unknown", "feasible")
    assert (cut.lower_bound or 0.0) <= (least(i, days).usd or 0.0)
