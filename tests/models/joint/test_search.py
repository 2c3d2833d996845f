"""How the joint search ends, what it keeps, which pins it takes, and the floors and splits that it rests on."""

import itertools
import math
import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from each_case import each
from joint_brute_failures import failing
from joint_brute_force import toy, with_pins
from joint_solved import solved as known
from joint_solved import strategies, with_rule
from joint_toys import deeper
from tiers import more, slow

import planner
from planner.checks.check_plan import check
from planner.errors import InputError
from planner.formats.yaml_text import read_yaml_data
from planner.imports.command_options import Wish
from planner.imports.instance_file import first_instance
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.joint import time_bounds
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_question import Solving, World, spared
from planner.models.joint.joint_solution import JointSolution, Target, strategy_of
from planner.models.joint.search import fewest_days, first_plans
from planner.models.joint.search.block_ranges import bounded, in_memory, under_stage
from planner.models.joint.search.branch_and_bound import Loop, ShapesLeft
from planner.models.joint.search.fewest_days import FewestDays
from planner.models.joint.search.goal import OpenShape, Ranges, all_ranges
from planner.models.joint.solve_joint import solve_joint
from planner.models.joint.stage_split import Column, Stages, fastest_split, patterns_of
from planner.models.joint.strategy_space import Floats, JointProblem, Strategy, StrategyRows, problem_of
from planner.models.joint.strategy_tables import (
    column_at,
    columns_of,
    each_in_memory,
    free_seconds,
    most_rounds,
    pipelines_in_memory,
    pipelines_of,
    rounds_of,
    rounds_up_to,
    strategy_racks,
    table_of,
    terms_under_zero,
    under_zero,
)
from planner.models.joint.time_bounds import RowConditions
from planner.physics.network.fabric_cost import min_fabric
from planner.physics.training import schedule, step_prediction
from planner.physics.training.parallel_strategy import layout_values
from planner.planning.joint_plan import plan_of
from planner.planning.load import load_instance
from planner.solvers import search_deadline
from planner.solvers.search_deadline import Deadline, OutOfTimeError

FREE = RowConditions(racks=1, shards=1, send=1.0, allreduce=1.0)


def solved(i: Instance, **how: Any) -> JointSolution:
    return solve_joint(i, Solving(**how))


@pytest.mark.parametrize(("seed", "how"), [(6, {}), (17, {"forced": True}), (36, {"sites": 2, "forced": True})])
def test_a_cache_changes_nothing(seed: int, how: dict[str, Any]) -> None:
    """Questions that differ in money, and at last one of another toy, have the answers of a cache of their own."""
    i, cache = toy(seed, **how), JointCache()
    money = [i.replaced(limits__budget_usd=(i.limits.budget_usd or 0.0) * share) for share in (1.0, 1.3, 0.95, 1.0)]
    for asked in (*money, toy(8)):
        alone, shared = known(asked), solved(asked, cache=cache)
        assert shared.status is alone.status
        assert shared.days == pytest.approx(alone.days, rel=1e-9)
        assert (shared.plan is None) == (alone.plan is None)
        if shared.plan is not None and alone.plan is not None:
            assert shared.plan.capital_usd == pytest.approx(alone.plan.capital_usd, rel=1e-9)


def one_dear_rack(**limits: float) -> Instance:
    """Return a site that pays one rack of 72 GPUs, and one switch of 64 ports, but no leaf for each of the GPUs."""
    wish = Wish(accelerator="GB200", model="qwen3-8b", sites=1, budget=30e6, tokens=3e12)
    data = read_yaml_data(first_instance(wish), "one_dear_rack")
    data["limits"] |= limits
    return load_instance(data, pins={"layout.pipeline_parallel": 1, "layout.zero_stage": 1})


def dived(goal: FewestDays) -> Any:
    """Return the first plan that is found among all strategies."""
    goal.loop = loop = Loop(goal=goal)
    for s in goal.world.strategies():
        loop.push(0.0, 0.0, s)
    first_plans.dive(goal)
    return goal.incumbent


@pytest.mark.slow
def test_a_fabric_out_of_reach_leaves_a_first_plan_of_fewer_gpus() -> None:
    """The columns that are fastest on a free network cable all 72 GPUs of the rack; the first plan cables 64."""
    best = solved(one_dear_rack(), options=Options(gap=fewest_days.ANY_PLAN)).plan
    assert best is not None and best.capital_usd <= 30e6
    block = best.column.strategy.block(1)
    assert block is not None and block.rails == 64


def test_the_first_plan_comes_before_the_last_strategy_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    i = toy(6)
    goal, looked = FewestDays(world=Solving().world(i)), list[bool]()
    likely = first_plans.likely

    def seen(*given: Any) -> Any:
        looked.append(goal.has_plan)
        return likely(*given)

    monkeypatch.setattr(first_plans, "likely", seen)
    dived(goal)
    assert looked[-1] and not looked[0]


@pytest.mark.slow
def test_columns_that_no_money_pays_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few columns are opened where the fabric of most is out of reach; the optimum is that of opening all."""
    i = one_dear_rack(max_batch_tokens=2e5)
    found = solved(i)
    monkeypatch.setattr(fewest_days, "FEW_SHAPES", 0)
    every = solved(i)
    assert found.status == every.status == "optimal"
    assert found.days == pytest.approx(every.days, rel=1e-12)
    assert 10 * found.counts["column nodes"] < every.counts["column nodes"]
    assert check(plan_of(i, found, Options(), 0.0)) == []  # the proof lists what was not timed too


@pytest.mark.parametrize("seed", [2, 6, 17])
def test_steps_of_one_choice_lead_to_a_faster_plan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the slowest way to cut a layer they end at a plan, no faster than the best, where no step is faster."""
    monkeypatch.setattr(first_plans, "CLIMBED", 1)
    i = toy(seed)
    goal = FewestDays(world=Solving().world(i))
    fastest = [
        min(first_plans.likely(goal.world, s, math.inf), default=None, key=lambda x: x[0])
        for s in goal.world.strategies()
    ]
    timed = [x for x in fastest if x is not None]
    slowest, column = max(timed, key=lambda x: x[0])
    first_plans.climb(goal, column)
    best, optimum = goal.incumbent, known(i)
    assert best is not None and optimum.plan is not None and best.seconds >= optimum.plan.seconds * (1 - 1e-9)
    reached = min(x for x, c in timed if c.strategy is best.column.strategy)
    assert reached < slowest
    here = first_plans._choices(best.column.strategy)
    near = (
        x for x, c in timed if sum(a != b for a, b in zip(first_plans._choices(c.strategy), here, strict=True)) == 1
    )
    assert reached <= min(near, default=math.inf)


def test_pinned_replicas_have_a_plan_at_once() -> None:
    """The most even columns with the replicas that are pinned give a plan before any search; a late one gives none."""
    optimum = known(toy(2)).plan
    i = with_pins(toy(2), **{"layout.data_parallel": optimum.column.d})
    goal = FewestDays(world=Solving().world(i))
    columns = [x for s in goal.world.strategies() for x in first_plans.likely(goal.world, s, math.inf)]
    _, column = min(columns, key=lambda x: x[0])
    assert column.d == optimum.column.d and first_plans.descend(goal, column)
    assert goal.incumbent is not None and goal.incumbent.seconds >= optimum.seconds * (1 - 1e-9)
    slowest, late = max(columns, key=lambda x: x[0])
    if slowest > goal.incumbent.seconds:
        assert not first_plans.descend(goal, late)


def test_less_even_shapes_are_opened_where_they_may_need_fewer_spares(monkeypatch: pytest.MonkeyPatch) -> None:
    """What money pays no sites for closes those behind it, but for a choice of spares."""
    i = failing(7).replaced(limits__budget_usd=1e6, limits__max_batch_tokens=1e5, pins={})
    world = Solving().world(i)
    monkeypatch.setattr(FewestDays, "unhoused", lambda _, q, ask: ask and q.shape.blocks != (3, 1))
    s, rows = next((s, rows) for s in world.strategies() if len(rows := pipelines_of(world, s)[1]))
    block = s.block(int(rows.p[0]))
    for x in spared(world, replace(column_at(s, 1, rows, 0), d=4 * block.replicas, m=1)):
        loop = Loop(goal=FewestDays(world=world, progress=lambda *_: None))
        loop._open_shapes(0.0, 0.0, ShapesLeft(x, 2, range(2, 4)))
        opened = [node.known.shape.blocks for *_, node in loop.heap if isinstance(node, OpenShape)]
        assert opened == ([(3, 1)] if x.spare_target else [])


@pytest.mark.parametrize("sites", [0, 2])
def test_tables_of_less_money_serve_no_more(sites: int) -> None:
    """What a question of much money left unopened, and one of little opened, is as in a cache of its own for more."""
    i, cache = toy(3, sites=sites, forced=True), JointCache()
    money, racks = i.limits.budget_usd or 0.0, i.hardware.racks or 0
    if not sites:  # what racks cost is not left for their fabric
        money = racks * i.hardware.rack.price_usd + min_fabric(i.network).usd

    def tables(share: float, known: JointCache, first: int = 0) -> list[tuple[int, int]]:
        size = {} if sites else {"hardware__racks": max(1, round(share * racks))}
        asked = i.replaced(limits__budget_usd=share * money if sites else money, **size)
        world = Solving(cache=known).world(asked)
        rows = ((table_of(world, s).rows, pipelines_of(world, s)[1]) for s in world.strategies()[first:])
        return [(int(own.d.sum()), int(fitting.d.sum())) for own, fitting in rows]

    tables(1.0, cache, first=-1 if sites else 0)
    few = tables(0.5, cache)
    assert tables(0.8, cache) == tables(0.8, JointCache()) != few


def test_a_gap_ends_the_search_early() -> None:
    i = toy(36, sites=2, forced=True)
    exact, loose = known(i), solved(i, options=Options(gap=0.5))
    assert loose.status == "optimal"
    assert loose.lower_bound <= exact.days * (1 + 1e-9) <= loose.days * (1 + 2e-9)
    assert loose.lower_bound >= loose.days * 0.5


def test_the_limit_ends_the_search() -> None:
    found = solved(toy(6), deadline=Deadline(1e-9))
    assert (found.status, found.stopped, found.plan) == ("unknown", "limit", None)


@pytest.mark.parametrize("at", [1, 2])
def test_an_interrupt_returns_the_incumbent(at: int) -> None:
    i = toy(36, sites=2, forced=True)
    exact, lines = known(i), []

    def progress(line: str) -> None:
        lines.append(line)
        if len([x for x in lines if "TP" in x]) >= at:
            raise KeyboardInterrupt

    found = solved(i, progress=progress)
    assert found.plan is not None and found.lower_bound is not None and exact.days is not None
    if found.stopped == "interrupted":
        assert found.lower_bound <= exact.days * (1 + 1e-9)
        assert (found.days or 0.0) >= exact.days * (1 - 1e-9)
    assert any("bound" in x and "gap" in x for x in lines)


def test_an_interrupt_without_a_plan_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:

    def stop(_: search_deadline.Deadline) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(search_deadline.Deadline, "check", stop)
    with pytest.raises(KeyboardInterrupt):
        solved(toy(6))


def test_a_tie_is_decided_by_capital() -> None:
    """A plan as fast must be cheaper, a faster one within the budget."""
    target = Target(10.0, 50.0, 100.0)
    assert target.improved_by(9.0, 100.0) and not target.improved_by(9.0, 101.0)
    assert target.improved_by(10.0, 49.0) and not target.improved_by(10.0, 50.0) and not target.improved_by(10.1, 1.0)


def test_an_open_node_of_equal_time_is_asked() -> None:
    """A node whose bound is the incumbent's time stays open, as it may hold a cheaper plan; a later one is closed."""
    found = known(toy(6)).plan
    goal = FewestDays(world=Solving().world(toy(6)), incumbent=found)
    assert goal.opens(found.seconds, 0.0) and not goal.opens(found.seconds * (1 + 1e-6), 0.0)


@pytest.mark.parametrize("stack", ["megatron", "torchtitan"])
@pytest.mark.parametrize("seed", [2, 9, 14, 23])
def test_bounds_under_a_rule_of_recompute(seed: int, stack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ruled, looked, higher = with_rule(problem_of(toy(seed)), stack), 0, 0
    for share in (1.0, 0.8, 0.65, 0.5, 0.4, 0.3):
        problem = replace(ruled, memory_limit=ruled.memory_limit * share)
        world, zero = World(problem=problem, sites=None, templates=None), max(problem.zero_stages)
        for s in [x for x in strategies(problem) if x.recomputes != "none"][::4]:
            keys, rows = pipelines_of(world, s)
            pipes = under_zero(s, zero, rows, keys, math.inf) if len(rows) else None
            columns = None if pipes is None else columns_of(world, s, zero, pipes, math.inf)
            if pipes is None or columns is None:
                continue
            with monkeypatch.context() as patch:
                patch.setattr(type(problem), "recomputes_alike", False)
                free = under_zero(s, zero, rows, keys, math.inf)
            assert free is not None and np.all(pipes.each >= free.each)
            raised = pipes.rows.p[pipes.each > free.each * (1 + 1e-6)]
            times, table = columns
            for j in range(len(times)):
                if table.p[j] in raised or j % (len(times) // 4 + 1) == 0:
                    exact = free_seconds(world, column_at(s, zero, table, j), math.inf)
                    assert times[j] <= exact * (1 + 1e-9)
                    looked, higher = looked + math.isfinite(exact), higher + (table.p[j] in raised)
    assert looked and higher


def test_memory_slows_the_slowest_stage() -> None:
    """Where no stage holds its layers without recomputing some, the bound is above the time of even stages."""
    problem = problem_of(toy(3))
    s = next(x for x in strategies(problem) if x.recomputes == "any")
    problem = replace(problem, memory_limit=problem.memory_limit * 100)
    s, world = replace(s, problem=problem), World(problem=problem, sites=None, templates=None)
    _, rows = pipelines_of(world, s)
    layer = time_bounds.terms(s, 0, rows, FREE).layer
    loose = time_bounds.min_stage_seconds_in_memory(s, 0, replace(rows, d=0 * rows.d + 1), layer)
    assert loose == pytest.approx(problem.layers / rows.p * layer, rel=1e-6)
    last, slower = loose, False
    for share in np.geomspace(1, 1e-4, 600):
        tight = replace(s, problem=replace(problem, memory_limit=problem.memory_limit * share))
        found = time_bounds.min_stage_seconds_in_memory(tight, 0, replace(rows, d=0 * rows.d + 1), layer)
        assert np.all(found >= last * (1 - 1e-9))
        slower |= bool(np.any(np.isfinite(found) & (found > loose * (1 + 1e-3))))
        last = found
    assert slower and np.all(np.isinf(last))


@pytest.mark.parametrize("seed", [0, 3, 8, 14])
def test_pipelines_without_memory_hold_no_split(seed: int) -> None:
    free, excluded, missed = problem_of(toy(seed)), 0, 0
    for share in (1.0, 0.5, 0.2, 0.1, 0.05):
        problem = replace(free, memory_limit=free.memory_limit * share)
        world = World(problem=problem, sites=None, templates=None)
        for s in list(strategies(problem))[::3]:
            _, rows = pipelines_of(world, s)
            for zero in (0, 3) if len(rows) else ():
                bound = time_bounds.min_stage_seconds_in_memory(s, zero, rows, np.full(len(rows), s.layer))
                for j in range(0, len(rows), 2):
                    fits = math.isfinite(free_seconds(world, column_at(s, zero, rows, j), math.inf))
                    assert not fits or math.isfinite(bound[j])
                    excluded += int(np.isinf(bound[j]))
                    missed += int(np.isfinite(bound[j]) and not fits)
    assert excluded and missed <= excluded / 10


def test_pinned_replicas_beyond_the_batch_end_the_search_at_once() -> None:
    """More replicas than sequences, or more micro-batches than each may have, leave no pipeline to look at."""
    for path, value in (("layout.data_parallel", 10**6), ("layout.microbatches_per_step", 10**6)):
        solution = solved(toy(6).replaced(pins={path: value}))
        assert solution.status == "infeasible" and solution.counts.get("ranges nodes", 0) == 0


@each(("p", "m", "v"), [(3, 60, 2), (5, 83, 3), (7, 200, 2), (2, 97, 4)])
def test_repeated_rounds_may_be_left_out(p: int, m: int, v: int) -> None:
    forward = (2.3, *(1.1,) * (v - 1))
    backward = (5.0, *(2.4,) * (v - 1))
    whole, _ = schedule.run_passes(p, m, forward, backward)
    assert schedule.finish_seconds(p, m, forward, backward) == pytest.approx(whole, rel=1e-11)


@pytest.mark.parametrize("stack", ["", "megatron-core"])
@pytest.mark.parametrize("seed", [3, 10])
def test_the_most_rounds_speak_for_all(seed: int, stack: str) -> None:
    i = deeper(seed).model_dump(mode="json", exclude_none=True)
    i["workload"]["software"]["name"] = stack
    i["limits"]["max_batch_tokens"] *= 6
    problem = problem_of(Instance.model_validate(i))
    world, seen, waiting = World(problem=problem, sites=None, templates=None), 0, 0
    for s in strategies(problem):
        keys, rows = pipelines_of(world, s)
        pipes = under_zero(s, 1, rows, keys, math.inf) if len(rows) else None
        found = columns_of(world, s, 1, pipes, math.inf, in_rounds=True) if pipes is not None else None
        for j in range(0, len(found[1]), 25) if found is not None else ():
            row = found[1].part(np.array([j]))
            least = free_seconds(world, column_at(s, 1, row, 0), math.inf, waits=False)
            assert found[0][j] <= least * (1 + 1e-9)
            for floors, table in rounds_of(world, s, 1, row, math.inf):
                columns = [column_at(s, 1, table, k) for k in range(len(table))]
                times = np.array([free_seconds(world, x, math.inf) for x in columns])
                assert np.all(times >= least * (1 - 1e-9)) and np.all(floors <= times * (1 + 1e-9))
                assert set(table.m.tolist()) >= {int(row.m[0])} and table.m.min() >= 2 * row.p[0] - (not stack)
                seen, waiting = seen + len(times), waiting + int(np.sum(np.isfinite(times) & (times > least * 1.001)))
    assert seen > 20 and waiting


def test_a_column_that_is_too_slow_is_split_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a cutoff it is over each smaller one too; a larger one asks again."""
    world, split, least = World(problem=problem_of(toy(8)), sites=None, templates=None), [], Stages.least
    column = known(toy(8)).plan.column
    seconds = free_seconds(replace(world, cache=JointCache()), column, math.inf)
    monkeypatch.setattr(Stages, "least", lambda stages: split.append(stages) or least(stages))
    for share, times in ((0.9, 1), (0.9, 1), (0.5, 1), (0.95, 2), (1.1, 3), (0.9, 3)):
        found = free_seconds(world, column, seconds * share)
        assert found == (seconds if share > 1 else math.inf) and len(split) == times


def test_what_a_step_takes_once_is_worked_out_once_for_all_fibre(monkeypatch: pytest.MonkeyPatch) -> None:
    column, once = known(toy(8)).plan.column, step_prediction.once_parts
    made: list[Any] = []
    monkeypatch.setattr(step_prediction, "once_parts", lambda *how: made.append(how) or once(*how))
    stages = Stages(column=column, conditions=RowConditions(racks=2, shards=column.d, send=1.1, allreduce=1.1))
    limits = [stages.over(stages.conditions, cutoff).least() for cutoff in (math.inf, 1e9, 1e6)]
    assert limits == [stages.least()] * 3 and limits[0] is not None
    assert len(made) == 1


def test_rounds_of_even_layers_are_listed() -> None:
    """Where layers divide evenly, those that run again leave chunks unequal: the floor of rounds not whole is lower."""
    problem = problem_of(load_instance("instances/5gw-fibre.json"))
    p, v, replicas, layers = 28, 8, 244, problem.layers // 28
    most = problem.max_sequences // replicas // p * p
    assert problem.layers % (p * v) == 0 and most == 112

    def floor(micro_batches: int) -> float:
        """Bound the seconds by micro-batch of a stage that recomputes a layer, as the checker does."""
        effective = float(schedule.effective_micro_batches(micro_batches, p, v))
        waits = float(schedule.min_excess_seconds(schedule.PipelineCounts(p, v, micro_batches), layers, 1, 3.0, 1.0))
        return (effective * (layers * 3.0 + 1.0) + waits) / micro_batches

    assert floor(most - 1) < floor(most)
    s = next(x for x in strategies(problem) if x.shape.micro_batch == 1)
    _, rounds = most_rounds(s, np.array([replicas]), p, v, 0.0, math.inf)
    assert most - 1 in rounds_up_to(problem, int(rounds[0]), p, search_deadline.Deadline())


@each(("pins", "words"), [
    ({"layout.layers_per_stage": [1, 1, 9]}, "the model has"),
    ({"layout.recomputed_layers_per_stage": [1]}, "needs layout.layers_per_stage"),
    ({"layout.replicas_per_rack": 50}, "outside the declared space"),
    ({"layout.stages_per_rack": 50}, "outside the declared space"),
    ({"layout.tensor_parallel_inner": 3}, "outside the declared space"),
    ({"layout.microbatch_sequences": 27}, "outside the declared space"),
    ({"layout.data_parallel_by_site": {"E1": 1}}, "shares the replicas out itself"),
])  # fmt: skip
def test_pins_outside_the_space_are_refused(pins: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        solved(with_pins(toy(8), **pins))


OTHERWISE: dict[str, Iterable[Any]] = {
    **dict.fromkeys(("tensor_parallel", "context_parallel", "expert_parallel", "pipeline_parallel"), range(1, 17)),
    "virtual_stages": range(1, 9), "microbatch_sequences": (1, 2, 4, 8), "zero_stage": range(4),
    "sequence_parallel": (False, True), "schedule": get_args(schedule.Schedule),
}  # fmt: skip


@pytest.mark.parametrize("seed", [8, *more(0, 2, 3, 4, 5)])
def test_without_a_value_the_best_plan_is_that_of_all_other_pinned_values(seed: int) -> None:
    i, cache, dearer = toy(seed), JointCache(), 0
    free = solve_joint(i, Solving(cache=cache))
    own = layout_values(strategy_of(free.plan))
    for name, values in OTHERWISE.items():
        if f"layout.{name}" in i.pins:
            continue
        pinned = [math.inf]
        for value in set(values) - {own[name]}:
            with suppress(InputError):  # outside the declared space
                pinned.append(solved(with_pins(i, **{f"layout.{name}": value})).days or math.inf)
        found = solve_joint(i, Solving(cache=cache), without={f"layout.{name}": own[name]})
        assert (found.days or math.inf) == pytest.approx(min(pinned), rel=1e-9), name
        dearer += (found.days or math.inf) > free.days * (1 + 1e-9)
    assert dearer


def test_a_layout_alone() -> None:
    """Racks without a grid and a network, which must be given: all are billed; the network is the transport's own."""
    i = toy(8, network=None)
    found = solved(i)
    with pytest.raises(InputError, match=r"hardware\.racks"):
        solved(i.replaced(hardware__racks=None))
    assert found.plan.templates == {} and found.plan.capital_usd == (i.hardware.racks or 0) * 1000.0
    assert found.days <= (known(toy(8)).days or math.inf) * (1 + 1e-9)


def test_no_budget() -> None:
    """Without a budget the search ends: what no site holds is not taken for what can be paid."""
    i = toy(3, sites=2, forced=True)
    free = i.replaced(limits__budget_usd=None)
    found, paid = solved(free, deadline=Deadline(60)), known(i)
    assert found.stopped == "proved" and found.days is not None
    assert found.days <= (paid.days or math.inf) * (1 + 1e-9)


@dataclass(kw_only=True)
class Within(FewestDays):
    """The goal of plans under some seconds."""

    most: float = math.inf

    @property
    def most_seconds(self) -> float:
        """Those seconds."""
        return self.most


def of_stage(goal: Within, x: Ranges, zero: int) -> Ranges:
    """Return the ranges under a ZeRO stage with all that sharpens them."""
    return in_memory(goal, bounded(goal, under_stage(bounded(goal, x), zero)))


CASES = [
    *(pytest.param(toy(seed), id=f"toy {seed}") for seed in (0, 8)),
    pytest.param(toy(36, sites=2, forced=True), id="two sites"), pytest.param(failing(16), id="parts fail"),
]  # fmt: skip


def every_column(world: World, r: random.Random) -> list[tuple[Column, int, float]]:
    """Return columns of every pipeline and ZeRO stage, some of many, with their blocks and exact seconds.

    None takes less than the bound with which it is listed.
    """
    found: list[tuple[Column, int, float]] = []
    for s in world.strategies():
        keys, rows = pipelines_of(world, s)
        for zero in s.problem.zero_stages if len(rows) else ():
            pipes = under_zero(s, zero, rows, keys, math.inf)
            columns = None if pipes is None else columns_of(world, s, zero, pipes, 1e18)
            if columns is None:
                continue
            times, table = columns
            for j in r.sample(range(len(table)), min(60, len(table))):
                column = column_at(s, zero, table, j)
                exact = free_seconds(world, column, math.inf)
                assert times[j] <= exact * (1 + 1e-9)
                if math.isfinite(exact):
                    found.append((column, int(table.blocks()[j]), exact))
    return found


@pytest.mark.parametrize("draw", [0, 1, *slow(2), *more(3, 4, 5)])
@pytest.mark.parametrize("i", CASES)
def test_columns_in_time_are_inside_and_above_the_floors(i: Instance, draw: int) -> None:
    """Columns under the time of a drawn one are in a range that is left, and take no less than its floor."""
    world, r, looked = Solving().world(i), random.Random(draw), 0
    columns = every_column(world, r)
    goal = Within(world=world, most=r.choice([exact for _, _, exact in columns]) * (1 + 1e-6))
    for column, blocks, exact in columns:
        if exact > goal.most:
            continue
        of = table_of(world, column.strategy)
        at = np.flatnonzero((of.rows.p == column.p) & (of.rows.v == column.v))
        low, high = r.randrange(blocks), r.randint(blocks, int(of.rows.blocks()[at[0]]))
        x = of_stage(goal, all_ranges(of, np.array([low]), np.array([high]), at), column.zero)
        assert len(x.at) == 1 and x.low[0] < blocks <= x.high[0]
        assert x.seconds[0] <= exact * (1 + 1e-9)
        looked += 1
    assert looked


@pytest.mark.parametrize("i", CASES)
def test_a_strategy_takes_no_fewer_racks_than_its_layers_ask_for(i: Instance) -> None:
    """No column is as fast as it is on fewer racks, or with fewer GPUs cabled, than the bound of its strategy."""
    world = Solving().world(i)
    refused = 0
    for column, blocks, exact in every_column(world, random.Random(0)):
        racks, rails = strategy_racks(column.strategy, exact)
        assert 1 <= racks <= blocks * column.block.racks and 1 <= rails <= column.block.rails
        refused += strategy_racks(column.strategy, exact / 20)[0] > blocks * column.block.racks
    assert refused  # a twentieth of their time


@pytest.mark.parametrize("i", [toy(8), load_instance("one-rack")], ids=["toy 8", "all stages"])
def test_what_is_known_of_pipelines_holds_under_every_zero_stage(i: Instance) -> None:
    """After a question the least seconds of pipelines with fewer blocks are below those that each stage takes."""
    cache, raised = JointCache(), 0
    solved(i, cache=cache)
    for s, of in cache.tables.items():
        at, blocks = np.arange(len(of)), np.maximum(of.rows.blocks() // 2, 1)
        rows = replace(of.rows, d=np.minimum(blocks * of.rows.block_replicas, of.rows.d))
        known = of.each_within(at, blocks)
        raised += int((known > of.each).sum())
        for zero in s.problem.zero_stages:
            some = at if zero in s.machine.software.zero_stages_under(2) else np.flatnonzero(of.rows.p == 1)
            t = terms_under_zero(s, zero, rows.part(some))
            assert (known[some] <= each_in_memory(s, zero, rows.part(some), t.each, t.layer) * (1 + 1e-12)).all()
    assert raised


def test_a_half_has_no_lower_floor() -> None:
    world = Solving().world(toy(8))
    goal = Within(world=world)
    halves = 0
    for s in world.strategies():
        of = table_of(world, s)
        most = np.maximum(of.rows.blocks(), 1)
        x = of_stage(goal, all_ranges(of, np.zeros_like(most), most, np.arange(len(most))), s.problem.zero_stages[0])
        wide = x.part(np.flatnonzero(x.high > x.low + 1))
        middle = (wide.low + wide.high) // 2
        lower = bounded(goal, replace(wide, high=middle, in_memory=np.zeros(len(middle), dtype=bool)))
        whole = dict(zip(wide.at.tolist(), wide.seconds.tolist(), strict=True))
        assert all(b >= whole[a] for a, b in zip(lower.at.tolist(), lower.seconds.tolist(), strict=True))
        halves += len(lower.at)
    assert halves


def keeps_rule(stack: str, layers: list[int], repeats: list[int], v: int) -> bool:
    """Return whether stages recompute by a framework's rule, chunk by chunk."""
    chunks = [[n // v + (k < n % v) for k in range(v)] for n in layers]
    numbers = [0, 99] if stack == "torchtitan" else range(99) if stack == "megatron" else []
    alike = any([sum(min(each, n) for n in own) for own in chunks] == repeats for each in numbers)
    return alike or stack == "own"


def walked(column: Column, seconds: float, stack: str) -> float:
    """Return the seconds of the fastest split among all patterns of all stages."""
    x = patterns_of(Stages(column=column, conditions=FREE, cutoff=seconds))
    choices = [[k for k in range(len(x.table)) if x.fits[i, k] and x.seconds[i, k] <= seconds] for i in range(column.p)]
    best = math.inf
    for picked in itertools.product(*choices):
        rows = x.table[list(picked)]
        if rows[:, 0].sum() != column.strategy.problem.layers:
            continue
        if column.strategy.recomputes == "some" and not rows[:, 1].any():
            continue
        if not keeps_rule(stack, rows[:, 0].tolist(), rows[:, 1].tolist(), column.v):
            continue
        slowest = max(float(x.seconds[i, k]) for i, k in enumerate(picked))
        once = x.stages.once(float(x.chunks[list(picked)].max()), int(rows[:, 0].max()))
        best = min(best, slowest + once)
    return best


# Of the toys 3 and 0 these two frameworks run none of the pipelines that are looked at.
RULED = [("any", "megatron", 0), ("any", "megatron", 8), ("any", "megatron", 14)]
RULED += [("some", "torchtitan", 3), ("some", "torchtitan", 8), ("some", "torchtitan", 14)]


@pytest.mark.parametrize(
    ("recomputes", "stack", "seed"), [*itertools.product(("any", "some"), ("own",), (0, 3, 8, 14)), *RULED]
)
def test_the_list_has_the_fastest_split(recomputes: str, stack: str, seed: int) -> None:
    """Its time is the least of a walk over all patterns, and that of the search; a slower split is disproved."""
    free, seen = with_rule(problem_of(toy(seed)), stack), 0
    for share in (1.0, 0.4, 0.2, 0.1, 0.05):
        problem = replace(free, memory_limit=free.memory_limit * share)
        world = World(problem=problem, sites=None, templates=None)
        for s in [x for x in strategies(problem) if x.recomputes == "any"][::3]:
            own = replace(s, recomputes=recomputes)
            _, rows = pipelines_of(world, own)
            for j in range(len(rows)):
                column = column_at(own, 0, rows, j)
                split = Stages(column=column, conditions=FREE).fastest()
                if split is None or not 1 < column.p < 4 or seen > 15:
                    continue
                bound, patterns = fastest_split(column, FREE, split.seconds)
                loose, more = fastest_split(column, FREE, split.seconds * 1.05)
                assert bound == pytest.approx(1, abs=1e-9)
                assert loose * 1.05 == pytest.approx(
                    walked(column, split.seconds * 1.05, stack) / split.seconds, rel=1e-9
                )
                assert loose * 1.05 == pytest.approx(1, abs=1e-9) and more >= patterns
                assert keeps_rule(stack, list(split.layers), list(split.recomputed), column.v)
                seen += 1
    assert seen


def deep(**software: object) -> JointProblem:
    """Return 40 wide layers on 64 nodes of 8 H100, tight in memory: pipelines of 1 to 40 stages."""
    model = {"name": "m", "layers": 40, "hidden": 16384, "heads": 128, "vocabulary": 51200}
    work = {"model": model, "sequence_length": 2048, "software": {"name": "own", **software}}
    changes = {"limits.max_batch_tokens": 256 * 2048, "hardware.racks": 64}
    return problem_of(planner.changed("cluster-1k", changes | {f"workload.{key}": x for key, x in work.items()}))


def test_a_split_looks_at_the_clock() -> None:
    late = World(problem=problem_of(toy(8)), sites=None, templates=None, deadline=Deadline(0.0))
    with pytest.raises(OutOfTimeError):
        free_seconds(late, known(toy(8)).plan.column, math.inf)


def test_bounds_in_memory_are_those_of_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rows hold and how fast they are is the same in tables of seven rows as in a single one."""
    problem, held, split = deep(), 0, 0
    world = World(problem=problem, sites=None, templates=None)
    for s in [x for x in strategies(problem) if x.shape.tensor_parallel == 8 and x.shape.micro_batch <= 2][::5]:
        _, rows = pipelines_of(world, s)
        found: list[Floats] = []
        at_once: list[Floats] = []
        for values, most in ((found, 7), (at_once, 1 << 40)):
            monkeypatch.setattr(time_bounds, "MOST_ENTRIES", most * int(rows.p.max(initial=1)))
            split += len(rows) > most
            for zero in (1, 3):
                values.append(time_bounds.min_stage_seconds_in_memory(s, zero, rows, 0.0))
                layer = np.full(len(rows), s.layer)
                values.append(time_bounds.min_stage_seconds_in_memory(s, zero, rows, layer))
        held += int(np.isfinite(found[0]).sum())
        assert 0 < np.isfinite(found[1]).sum() < len(rows) or not len(rows)
        for one, other in zip(found, at_once, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)
    assert held and split


def test_bounds_in_memory_waste_few_entries_of_their_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand pipelines of up to 224 stages at most one entry in four stands for a stage that there is not."""
    world = Solving().world(load_instance(Path(__file__).parents[3] / "instances/5gw.json"))
    of = next(x for x in world.strategies() if table_of(world, x).rows.p.max(initial=1) > 100)
    rows, memory_of, tables = table_of(world, of).rows, time_bounds._memory_of, list[tuple[int, int]]()

    def counted(s: Strategy, zero: int, some: StrategyRows) -> Any:
        tables.append((int(some.p.sum()), len(some) * int(some.p.max())))
        return memory_of(s, zero, some)

    monkeypatch.setattr(time_bounds, "_memory_of", counted)
    monkeypatch.setattr(time_bounds, "_may_hold_layers", lambda *_: np.ones(len(rows), dtype=bool))
    time_bounds.min_stage_seconds_in_memory(of, 1, rows, of.layer)
    stages, entries = map(sum, zip(*tables, strict=True))
    assert len(rows) > 1000 and stages == rows.p.sum() and stages > 0.75 * entries


def test_states_of_stages_that_the_stack_lacks_make_no_room() -> None:
    few: list[int] = []
    many: list[int] = []
    for problem, found in ((deep(zero_stages=[0]), few), (deep(zero_stages=[0, 1, 2]), many)):
        world = World(problem=problem, sites=None, templates=None)
        for s in [x for x in strategies(problem) if x.shape.tensor_parallel == 8 and x.shape.micro_batch == 1][::4]:
            found.append(int(pipelines_in_memory(world, s).sum()))
    assert len(few) == len(many) and sum(few) < sum(many)
    assert all(a <= b for a, b in zip(few, many, strict=True))


@pytest.mark.parametrize("seed", [0, 6])
def test_what_memory_holds_is_kept_once_it_is_whole(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C may come while it is worked out: a later question of the same cache must not miss pipelines."""
    fresh, world = (Solving().world(toy(seed)) for _ in range(2))
    bound, held = time_bounds.min_stage_seconds_in_memory, 0

    def interrupted(*_: Any) -> Floats:
        raise KeyboardInterrupt

    for one, s in zip(fresh.strategies(), world.strategies(), strict=True):
        monkeypatch.setattr(time_bounds, "min_stage_seconds_in_memory", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipelines_in_memory(world, s)
        monkeypatch.setattr(time_bounds, "min_stage_seconds_in_memory", bound)
        found = pipelines_in_memory(world, s)
        assert found.tolist() == pipelines_in_memory(fresh, one).tolist()
        held += int(found.sum())
    assert held
