"""The least cost by a deadline, and plans on a network that slows nothing: full enumeration, limits, and equals."""

import math
from typing import Any

import pytest
from each_case import each
from joint_brute_force import cost_toy, toy
from joint_solved import cheapest, solved
from joint_toys import name_of
from tiers import more

from planner.instance.instance import Instance
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_question import Solving, World
from planner.models.joint.joint_solution import JointSolution, racks_of
from planner.models.joint.search import branch_and_bound, least_capital
from planner.models.joint.search.free_network import _below, fastest_of, fewest_racks, problem_on
from planner.models.joint.search.least_capital import LeastCapital
from planner.models.joint.search.least_cost_of_ownership import least_run_cost
from planner.models.joint.solve_joint import solve_joint_cost
from planner.physics.training import step_prediction
from planner.physics.training.step_prediction import days_of, machine_of
from planner.solvers.outcome import UnansweredError

CASES: list[tuple[int, dict[str, Any]]] = [
    *((seed, {}) for seed in (0, 2, 6, 8, 14)),
    *((seed, {"forced": True}) for seed in (2, 7, 8, 12, 19, 20, 26)),
    *((seed, {"forced": True, "network": None}) for seed in (8, 19)),
    *((seed, {"sites": 2, "forced": True}) for seed in (3, 7, 14, 18, 25, 36)),
    *((seed, {"sites": 3, "forced": True}) for seed in (3, 18)),
    *((seed, {"sites": 2}) for seed in (2, 5)),
]
MORE = [*((seed, {"sites": 2, "forced": True}) for seed in (21, 41, 48, 59)), (7, {"sites": 3, "forced": True})]
# Of either tier each other case is; without a budget, which ends no search then, each fifth but the last.
BOTH = [
    *(pytest.param(*case, True, id=f"budget-{name_of(*case)}") for case in CASES[::2]),
    *(pytest.param(*case, False, id=f"no budget-{name_of(*case)}") for case in CASES[:-1:5]),
    *more(*((*case, False) for k, case in enumerate(CASES) if k % 5 or case is CASES[-1])),
    *more(*((*case, True) for case in (*CASES[1::2], *MORE))),
]
FACTORS = (1.0, 1.05, 1.3, 2.0, 4.0)  # of the fewest seconds


def world(i: Instance) -> World:
    """Gather a world without the limit of a first search."""
    return Solving().world(i)


@pytest.mark.parametrize(("seed", "how", "budget"), BOTH)
def test_equals_full_enumeration(seed: int, how: dict[str, Any], budget: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capital and time are those of the cheapest of all plans in time, the fastest of equal ones, at any deadline."""
    # Of odd seeds cheaper plans than the first are sought before the search, as where there are many strategies.
    monkeypatch.setattr(least_capital, "CLIMBED", 0 if seed % 2 else least_capital.CLIMBED)
    i = toy(seed, **how)
    i = i if budget else i.replaced(limits__budget_usd=None)
    every, w = cost_toy(i), world(i)
    fastest = min((x.seconds for x in every.front), default=1.0)
    for limit in (*(fastest * f for f in FACTORS), fastest * 0.99, math.inf):
        best, found = every.cheapest(limit), cheapest(w, limit)
        if best is None:
            assert (found.status, found.plan, found.usd) == ("infeasible", None, None)
            fewest = days_of(w.problem.instance, fastest)
            assert found.fabric_free_bound is None or found.fabric_free_bound <= fewest * (1 + 1e-9)
            continue
        assert found.plan is not None and found.status == "optimal"
        assert found.usd == pytest.approx(best.usd, rel=1e-9)
        assert found.lower_bound == found.usd
        assert found.plan.seconds == pytest.approx(best.seconds, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 7, *more(14, 25)])
def test_blocks_pinned_to_sites_equal_enumeration(seed: int) -> None:
    """The blocks of the cheapest plan, pinned, leave it; other numbers cost as much as the cheapest with them."""
    free = toy(seed, sites=2, forced=True)
    limit = 2 * min(x.seconds for x in cost_toy(free).front)
    best = cheapest(world(free), limit).plan
    for site, number in best.blocks_by_site.items():
        for wanted in (number, number + 1, max(0, number - 1)):
            i = free.replaced(pins={**free.pins, f"placement.blocks.{site}": wanted})
            least, found = cost_toy(i).cheapest(limit), cheapest(world(i), limit)
            assert (found.plan is None) == (least is None)
            if least is not None:
                assert found.usd == pytest.approx(least.usd, rel=1e-9)
            if wanted == number:
                assert found.usd == pytest.approx(best.capital_usd, rel=1e-9)


@pytest.mark.parametrize(("seed", "how"), [CASES[1], CASES[5]])
def test_cheaper_plans_than_the_first_are_sought(seed, how, monkeypatch):
    """From the fastest plan questions for less and less money lead to a cheaper one that meets the deadline too."""
    for name, value in {"CLIMBED": 0, "CLOSE": 1 - 1e-6, "CHEAPER": 30}.items():  # plans of a toy differ by little
        monkeypatch.setattr(least_capital, name, value)
    i = toy(seed, **how)
    every, w = cost_toy(i), world(i)
    limit = min(x.seconds for x in every.front) * 4
    fastest = solved(i).plan
    goal = LeastCapital(world=w, limit=limit, incumbent=fastest, seeks=True)
    goal.all_open()
    found, least = goal.incumbent, every.cheapest(limit)
    assert found is not None and least is not None and least.usd <= found.capital_usd + 0.01 < fastest.capital_usd
    assert found.seconds <= limit * (1 + 1e-9)
    assert w.sites is None or w.sites.instance.limits.budget_usd == i.limits.budget_usd


def test_cheaper_plans_are_sought_where_the_first_takes_all_the_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing of how much less money meets the deadline: half the way up from each refusal is asked next."""
    i, asked = toy(CASES[1][0]), list[float]()
    first = solved(i).plan
    monkeypatch.setattr(least_capital, "CLIMBED", 0)
    monkeypatch.setattr(least_capital, "climb", lambda g, _: asked.append(g.world.budget / first.capital_usd))
    LeastCapital(world=world(i), limit=first.seconds, incumbent=first, seeks=True).all_open()
    assert asked == pytest.approx([0.8, 0.8**0.5, 0.8**0.25])


@pytest.mark.parametrize(("seed", "how"), [CASES[0], CASES[5], CASES[9], (25, {"sites": 2, "forced": True}), CASES[-1]])
def test_the_floor_of_a_column_has_whole_switches_and_their_power(seed: int, how: dict[str, Any]) -> None:
    """At one site, where its racks fill no switches, it is what the cheapest plan costs: more than ports and links."""
    w = world(toy(seed, **how))
    plan, goal = cheapest(w, math.inf).plan, LeastCapital(world=w, limit=math.inf)
    assert plan is not None and len(plan.shape.blocks) == 1
    block = plan.column.strategy.block(plan.column.p)
    racks = block.blocks(plan.column.d) * block.racks
    floor = goal.column_floor(plan.column, 0.0)
    assert float(goal.floor.usd(racks, block.rails)) < floor == pytest.approx(plan.capital_usd, rel=1e-12)


@pytest.mark.parametrize(("seed", "how"), CASES[5:17:3])
def test_a_gap_ends_the_search_early_with_a_bound_that_holds(seed: int, how: dict[str, Any]) -> None:
    """The bound is below the cheapest plan of the enumeration by at most the gap, and takes fewer nodes."""
    i = toy(seed, **how)
    every, opened = cost_toy(i), dict[float, int]()
    limit = 2 * min(x.seconds for x in every.front)
    best = every.cheapest(limit)
    for gap in (0.0, 0.5):
        found = cheapest(world(i), limit, end_gap=gap)
        assert found.status == "optimal" and found.usd is not None
        assert found.lower_bound <= best.usd * (1 + 1e-9) <= found.usd * (1 + 2e-9)
        assert found.lower_bound >= (1 - gap) * found.usd * (1 - 1e-9)
        opened[gap] = sum(found.counts.values())
    assert opened[0.5] < opened[0.0]


def test_what_is_given_up_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the gateways of all sites are left undecided, a budget proves nothing: neither that no plan is in time."""
    monkeypatch.setattr("planner.models.joint.shapes.shape_problem.ShapeProblem.has_gateways", True)
    monkeypatch.setattr("planner.models.joint.shapes.fastest_plan.with_gateways", lambda *_: None)
    found = cheapest(world(toy(3, sites=2, forced=True)), math.inf)
    assert (found.status, found.plan) == ("unknown", None)


def test_layers_timed_for_another_machine_are_timed_anew_once() -> None:
    """A cache of a longer model changes no run's cost, and then keeps the layers of the run's own model."""
    i, cache = toy(6), JointCache()
    solve_joint_cost(i.replaced(workload__model=i.workload.model.replaced(hidden=3072)), Solving(cache=cache))
    alone, shared = least_run_cost(i, Solving()), least_run_cost(i, Solving(cache=cache))
    assert alone.usd is not None
    assert (shared.status, shared.usd, shared.days) == (alone.status, alone.usd, alone.days)
    assert cache.timed
    assert all(s.problem.machine == machine_of(i) for s in cache.timed.values())


@pytest.mark.parametrize("search", [solve_joint_cost, least_run_cost])
def test_what_a_back_end_said_is_told(search: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it ends a search for the least money before there is a plan, as one for the fewest days."""

    def unanswered(*_: Any) -> float:
        raise UnansweredError("no answer")

    monkeypatch.setattr(branch_and_bound, "strategy_bound", unanswered)
    found = search(toy(6), Solving())
    assert (found.status, found.plan, found.failure) == ("unknown", None, "no answer")


@pytest.mark.parametrize("seed", [3, 18, *more(7, 14)])
def test_fibre_follows_the_sites_that_there_are(seed: int) -> None:
    """Where the nearest sites have no power, a limit that only they would keep asks for more fibre, or other plans."""
    i = toy(seed, sites=3, forced=True).replaced(limits__budget_usd=None)
    headroom = {a.id: 0.01 if a.id == "W" else 3.7 for a in i.grid.balancing_authorities}
    areas = [a.replaced(headroom_mw=headroom[a.id]) for a in i.grid.balancing_authorities]
    i = i.replaced(grid__balancing_authorities=tuple(areas))
    every, w = cost_toy(i), world(i)
    limits = sorted(x.seconds * (1 - 1e-6) for x in every.front)[1:]
    assert len(limits) > 2
    for limit in limits:
        best, found = every.cheapest(limit), cheapest(w, limit)
        assert found.usd == pytest.approx(best.usd, rel=1e-9)


@pytest.mark.parametrize(("seed", "how"), [(6, {}), (36, {"sites": 2, "forced": True})])
def test_the_cheaper_plan_within_a_share(seed: int, how: dict[str, Any]) -> None:
    i = toy(seed, **how)
    w = world(i)
    best = cheapest(w, math.inf).plan
    fastest = solved(i).plan
    for share in (0.0, 0.2, 0.9):
        known = cheapest(w, fastest.seconds * (1 + share), incumbent=fastest)
        alone = cheapest(world(i), fastest.seconds * (1 + share))
        assert known.usd == pytest.approx(alone.usd or 0.0)
        assert known.plan.seconds == pytest.approx(alone.plan.seconds)
        assert best.capital_usd - 0.01 <= (known.usd or 0.0) <= fastest.capital_usd + 0.01


def in_days(i: Instance, days: float | None) -> JointSolution:
    return solve_joint_cost(i.replaced(limits__deadline_days=days), Solving())


def test_the_deadline_of_an_instance() -> None:
    i = toy(6)
    best = solved(i)
    soon, any_time, never = in_days(i, best.days), in_days(i, None), in_days(i, best.days * 0.3)
    assert soon.days == pytest.approx(best.days) and soon.stopped == "proved"
    assert (any_time.usd or 0.0) < (soon.usd or 0.0)
    assert (any_time.days or 0.0) > best.days
    assert (never.status, never.plan, never.usd) == ("infeasible", None, None)
    assert never.fabric_free_bound is not None and best.days * 0.3 < never.fabric_free_bound <= best.days * (1 + 1e-9)


def asked(seed: int) -> Instance:
    return toy(seed).replaced(limits__budget_usd=None)


@pytest.mark.parametrize("seed", [0, 2, 6, 8, 14])
def test_the_fastest_is_that_of_the_joint_optimum_without_a_fabric(seed: int) -> None:
    """A cluster without a fabric is the same question; its layout in full takes the seconds that were proven."""
    i = asked(seed)
    found = fastest_of(problem_on(i, i.hardware.racks or 0))
    alone = solved(i.replaced(network=None))
    slowed = found.seconds / (alone.plan.seconds if alone.plan else 1.0)
    assert 1.0 <= slowed <= 1.1 + 1e-9  # by the transport, which a missing network leaves out
    assert found.bound == found.seconds and found.plan is not None and found.strategy is not None
    conditions = step_prediction.free_conditions(problem_on(i, 1).transport_slowdown)
    assert racks_of(found.plan) <= (i.hardware.racks or 0)
    seconds = sum(step_prediction.step_breakdown(machine_of(i), conditions, found.strategy).values())
    assert seconds / found.plan.column.sequences == pytest.approx(found.seconds, rel=1e-9)


@pytest.mark.parametrize("seed", [0, *more(2, 6, 8, 14)])
def test_the_fewest_racks_are_those_of_trying_every_number(seed: int) -> None:
    i = asked(seed)
    days = {n: days_of(i, fastest_of(problem_on(i, n)).seconds) for n in range(1, 7)}
    for most in sorted({d for d in days.values() if d < 1e9}):
        for limit in (most, most * 0.995):
            wanted = next((n for n, d in days.items() if d <= limit * (1 + 1e-9)), None)
            found = fewest_racks(i, limit)
            if wanted is None:
                assert found.racks is None or found.racks > 6
                continue
            assert (found.status, found.racks, found.too_few) == ("optimal", wanted, wanted - 1)
            assert found.days == pytest.approx(days[wanted])


def test_a_wide_bracket_is_honest() -> None:
    """It holds the exact number of racks; of a moment no racks are enough."""
    i = asked(6)
    days = days_of(i, fastest_of(problem_on(i, 5)).seconds)
    exact, wide, never = fewest_racks(i, days), fewest_racks(i, days, tolerance=0.5), fewest_racks(i, 1e-9)
    assert wide.too_few < exact.racks <= wide.racks <= (wide.too_few + 1) * 1.5
    assert (never.status, never.racks, never.plan) == ("infeasible", None, None)


@each(
    ("bound", "too_few"), [(0.0, 0), (0.4, 0), (1.0, 0), (1.2, 1), (4.0, 3), (4.0 + 1e-9, 3), (4.0 - 1e-9, 3), (4.3, 4)]
)
def test_racks_below_a_bound_are_too_few(bound: float, too_few: int) -> None:
    assert _below(bound) == too_few
