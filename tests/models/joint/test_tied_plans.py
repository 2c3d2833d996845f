"""The ends of a choice: each leaves the best of the plans that tie after those before, as full enumeration does."""

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from joint_brute_fabrics import fabrics
from joint_brute_force import Plan, Toy, cost_toy, toy
from stored_plans import stored
from tiers import more, slow
from worked_plan import named

import planner
from planner.instance.instance import Instance
from planner.models.joint import tied_plans
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_question import Solving, World
from planner.models.joint.joint_solution import JointPlan
from planner.models.joint.search.branch_and_bound import Loop
from planner.models.joint.search.least_capital import LeastCapital, least_capital_plan
from planner.models.joint.solve_joint import solve_joint
from planner.models.joint.stage_split import Column
from planner.models.joint.strategy_tables import table_of
from planner.models.joint.tied_plans import (
    LeastRank,
    ends_within,
    least_simplicity,
    local_share,
    simplest_within,
    simplicity,
)
from planner.physics.training.parallel_strategy import RackBlock
from planner.plan.certificate import SIMPLER_WITHIN

CASES: list[tuple[int, dict[str, Any], float]] = [
    *((seed, {}, 0.2) for seed in (17, 2, 6, 18, 14, 25, 33)),  # of most of these an end changes the plan
    *((seed, {}, 0.6) for seed in (6, 17, 18, 25, 33)),
    *((seed, {"forced": True}, 0.02) for seed in (2, 7, 8)),
    *((seed, {"forced": True}, 0.6) for seed in (12, 19, 20)),
    *((seed, {"sites": 2, "forced": True}, share) for seed, share in ((3, 0.02), (7, 0.2), (14, 0.6), (25, 0.2))),
]


class LocalToy(Toy):
    """Full enumeration on fabrics that keep a share of the all-reduce groups of each site under one leaf."""

    local = 0.0

    def _fabrics(self, block: RackBlock, blocks: int, wrap: bool) -> list[Any]:
        rails = self.rails(block)
        return list(fabrics(self.i, block, blocks, wrap=wrap, rails=rails, local=self.local))

    def tying(self, seconds: float, usd: float) -> list[Plan]:
        """List the plans within so many seconds a sequence and so much capital."""
        every = (self.plans(c, sizes, shards, seconds * (1 + 1e-9)) for _, c, sizes, shards in self.work())
        return [x for x in itertools.chain.from_iterable(every) if x.usd <= usd + 0.005]


def layout_of(x: Any) -> tuple[int, ...]:
    """Return the degrees of a column of the planner or of the enumeration, with its pipeline and replicas."""
    shape = x.shape if hasattr(x, "shape") else x.strategy.shape
    return (*shape.degrees, x.p, x.v, x.d)


def kinds(x: Plan) -> int:
    s = x.column.shape
    return sum(n > 1 for n in (s.tensor_parallel, s.context_parallel, s.expert_parallel, x.column.p, x.column.d))


def searched(i: Instance, share: float) -> tuple[JointPlan, World, Loop]:
    """Return the fastest plan with its world and its search, which kept the nodes within a share of its days."""
    cache = JointCache()
    best = solve_joint(i, Solving(cache=cache), within=share).plan
    if best is None:
        pytest.skip("the toy has no plan")
    assert cache.search is not None
    return best, Solving(cache=cache).world(i), cache.search


@pytest.mark.parametrize(("seed", "how", "share"), [
    *((seed, {"forced": True}, share) for seed, share in ((25, 0.2), (27, 0.6), (37, 0.6))),
    *slow(*CASES[:3], *CASES[-4:-2], *CASES[3:-4:2], CASES[-1]), *more(*CASES[4:-4:2], CASES[-2]),
])  # fmt: skip
def test_equals_full_enumeration(seed: int, how: dict[str, Any], share: float, monkeypatch: Any) -> None:
    """Least capital, then the largest share of groups under one leaf, then the least rank: here the dearest layout."""
    i = toy(seed, **how)
    best, world, search = searched(i, share)
    limit, cheapest = best.seconds * (1 + share), cost_toy(i).cheapest(best.seconds * (1 + share))
    usd, every = min(cheapest.usd * (1 + share), i.limits.budget_usd or math.inf), LocalToy(i)
    # Of each layout its cheapest plan; layouts that do not tie have the least rank of all: none may be found.
    ranks = {layout_of(x.column): -x.usd for x in sorted(every.tying(limit, usd), key=lambda x: -x.usd)}
    monkeypatch.setattr(tied_plans, "least_simplicity", lambda column: (ranks.get(layout_of(column), -math.inf),))
    monkeypatch.setattr(LeastRank, "most_blocks", LeastCapital.most_blocks)  # which asks for arrays of columns
    monkeypatch.setattr(tied_plans, "simplicity", lambda plan: tied_plans.least_simplicity(plan.column))
    found = tied_plans.ends_within(world, best, share, search=search)
    own, last = found.by_name["capital"].plan, found.plan
    assert (own.capital_usd, own.seconds) == pytest.approx((cheapest.usd, cheapest.seconds), rel=1e-9)
    if i.network is None:
        assert "leaf_local" not in found.by_name
    else:
        local = found.by_name["leaf_local"]
        assert local.proven
        every.local = local_share(local.plan)
        assert every.tying(limit, usd)
        more = LocalToy(i)
        more.local = every.local + 1e-6
        assert every.local >= 1 or not more.tying(limit, usd)
    assert last.seconds <= limit * (1 + 1e-9) and last.capital_usd <= usd + 0.01
    assert found.by_name["simplest"].proven and local_share(last) >= every.local
    assert ranks[layout_of(last.column)] == min(ranks[layout_of(x.column)] for x in every.tying(limit, usd))


def test_without_a_share_nothing_is_claimed_of_plans_that_tie() -> None:
    """At a share of 0 the cheapest of the fastest is found, and no end behind it is said to be proven."""
    i = toy(17)
    found = ends_within(Solving().world(i), solve_joint(i, Solving()).plan, 0.0)
    assert list(found.by_name) == ["capital"]


@pytest.mark.parametrize(
    ("seed", "how", "share"), [CASES[0], CASES[4], CASES[-3], *slow(*CASES[3:-4:2], CASES[-1]), *more(*CASES[6:-4:2])]
)
def test_the_simplest_within_a_share_equals_full_enumeration(seed: int, how: dict[str, Any], share: float) -> None:
    i = toy(seed, **how)
    best, world, search = searched(i, share)
    limit = best.seconds * (1 + share)
    for by_designs in (False, True):
        found = simplest_within(world, best, limit, search.copy(), by_designs=by_designs)
        plan = found.plan
        assert found.proven
        if plan is not best:
            assert simplicity(plan)[not by_designs :] < simplicity(best)[not by_designs :]
            assert plan.seconds <= limit * (1 + 1e-9) and plan.capital_usd <= best.capital_usd + 0.01
        if i.grid is None or not by_designs:
            assert simplicity(plan)[1] == min(kinds(x) for x in LocalToy(i).tying(limit, best.capital_usd))


def test_a_share_that_no_fabric_has_closes_no_plan_of_less() -> None:
    """More groups under one leaf than there are: no plan has them, and the simplest that ties is found behind that."""
    i = toy(17)
    best, world, search = searched(i, 0.2)
    limit = best.seconds * 1.2
    plan = least_capital_plan(LeastCapital(world=world, limit=limit, incumbent=best, within=0.2), search).plan
    ties = tied_plans._Ties(world=world, loop=search, seconds=limit, usd=plan.capital_usd * 1.2)
    nodes = len(search.heap) + len(search.opened)
    ranked: dict[str, Any] = dict.fromkeys(("rank", "least_rank"), lambda _: (0.0,)) | {"best": (1.0,)}
    found = ties.least(plan, 2.0, **ranked)
    assert found.plan is plan and found.proven
    assert ties.loop is not None and len(ties.loop.heap) + len(ties.loop.opened) == nodes > 0
    ranked = {"rank": simplicity, "least_rank": tied_plans.least_simplicity, "best": simplicity(plan)}
    simplest = ties.least(plan, **ranked)
    assert simplest.proven and (simplest.plan is plan or simplicity(simplest.plan) < simplicity(plan))


def test_a_faster_plan_that_is_dearer_is_not_the_cheapest() -> None:
    """Plans within a share of the least capital are of use to the ends behind, but the least stays the cheapest's."""
    i = toy(17)
    best, world, _ = searched(i, 0.2)
    goal = LeastCapital(world=world, limit=best.seconds * 1.2, incumbent=best, within=0.2)
    faster = replace(best, seconds=best.seconds * 0.9)
    goal.keep(replace(faster, capital_usd=best.capital_usd * 1.001))
    assert goal.incumbent is best
    goal.keep(faster)
    assert goal.incumbent is faster


@pytest.mark.parametrize("seed", [17, 33])
def test_only_pipelines_that_cannot_have_the_least_rank_are_left_out(seed: int) -> None:
    """Ranges of blocks ask for the ranks of many pipelines at once: each is that of a column of one replica."""
    _, world, _ = searched(toy(seed), 0.2)
    tables = [of for s in world.strategies() if len(of := table_of(world, s))]
    columns = [
        Column(strategy=of.strategy, zero=0, p=int(p), v=int(v), d=1, m=1)
        for of in tables
        for p, v in zip(of.rows.p, of.rows.v, strict=True)
    ]
    ranks, seen = sorted({least_simplicity(c)[1:] for c in columns}), set[bool]()
    for rank in (*ranks, (*ranks[-1][:-1], 1)):  # of the last the recomputed layers alone may be fewer
        for first, best in ((1, rank), (0, (1, *rank)), (0, (2, *rank))):
            least_rank = partial(lambda c, first: least_simplicity(c)[first:], first=first)
            limits: dict[str, Any] = {"limit": math.inf, "most_shapes": 1, "most_nodes": 1}
            goal = LeastRank(world=world, rank=lambda _: (), least_rank=least_rank, best=best, **limits)
            ranges = [x for of in tables for x in goal.first_ranges(of)]
            paid = np.concatenate([LeastCapital.most_blocks(goal, x) for x in ranges])
            wanted = np.where([goal.refuses(c, 0.0) for c in columns], 0, paid)
            assert np.concatenate([goal.most_blocks(x) for x in ranges]).tolist() == wanted.tolist()
            seen.update(x > 0 for x in wanted.tolist())
    assert seen == {True, False}


@pytest.mark.parametrize(("tolerance", "how"), [(0.01, {}), (0.0, {}), (None, {"network": None})])
def test_indifference_takes_the_simpler_plan(tolerance: float | None, how: dict[str, Any]) -> None:
    """The simplest plan within it is chosen, without a tolerance or where all cost the same too; else it is named."""
    i = toy(17, **how)
    goals = i.objective if tolerance is None else i.objective.replaced(tolerance=tolerance)
    plan, bare = (planner.solve(i.replaced(objective=x)) for x in (goals.replaced(indifference=0.1), goals))
    goal, last = plan.objective.ends[0], plan.objective.ends[-1]
    assert plan.verified and plan.layout is not None and plan.objective.simplest is None
    assert last.name == "simplest" and last.days_to_train <= goal.value * 1.1 * (1 + 1e-9)
    assert goal.value == pytest.approx(planner.solve(i.replaced(objective__tolerance=0.0)).objective.value, rel=1e-9)
    named = bare.objective.simplest
    assert bare.verified and (named is None or named.loss <= SIMPLER_WITHIN * (1 + 1e-9))
    assert not bare.objective.ends or last.value <= bare.objective.ends[-1].value


def test_a_simpler_plan_keeps_the_deadline() -> None:
    named = stored("cluster-1k").objective.simplest
    late = planner.changed("cluster-1k", {"limits.deadline_days": named.days_to_train * (1 - 1e-6)})
    plan = planner.solve(late)
    x = plan.objective.simplest
    assert plan.verified and (x is None or x.days_to_train <= named.days_to_train * (1 - 1e-6))


@pytest.mark.parametrize("bare", [False, True])
def test_a_false_simpler_plan_is_refused(bare: bool) -> None:
    plan = stored("cluster-1k")
    if bare:  # as a plan of a layout alone, which has no ends
        plan = plan.replaced(objective__ends=())
    x = plan.objective.simplest
    assert plan.verified and x is not None
    for change in (
        {"capital_usd": x.capital_usd * 2},
        {"days_to_train": x.days_to_train * 1.1, "loss": x.loss + 0.1},
        {"loss": x.loss / 2},
        {"layers_per_stage": x.layers_per_stage[1:]},
    ):
        edited = plan.objective.replaced(simplest=x.replaced(**change))
        assert any("simplest" in rule for rule in named(plan.replaced(objective=edited)))


@pytest.mark.parametrize("seed", [10, *slow(8, 26), *more(16, 21)])
def test_within_a_gap_no_end_is_faster_than_the_fastest(seed: int) -> None:
    """A plan of an end that is faster than the search's own, which ended at a gap, is the fastest so far."""
    plan = planner.solve(toy(seed, sites=2), gap=0.4)
    ends, simplest = plan.objective.ends, plan.objective.simplest
    assert plan.status == "feasible" and ends and planner.check(plan) == []
    assert all(end.days_to_train >= ends[0].value * (1 - 1e-9) for end in ends)
    assert simplest is None or simplest.loss >= -1e-9


def test_a_faster_simpler_plan_is_the_answer() -> None:
    """Behind a search that ended at a gap, a simpler layout of fewer days is the plan, and no alternative to it."""
    i = planner.changed("one-rack", {"hardware.racks": 3})
    fixed = {"layout.context_parallel": 1, "layout.sequence_parallel": True, "layout.recompute": "none"}
    plan = planner.solve(i, gap=0.1, pins=fixed)
    assert plan.layout is not None and plan.layout.pipeline_parallel == 1 and plan.objective.simplest is None
    assert plan.objective.value == pytest.approx(2.218030, rel=1e-6)
    assert planner.check(plan) == []
