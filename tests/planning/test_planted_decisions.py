"""Wrong answers planted in the back ends of each decision: it says no more than it can prove, and raises nothing."""

import random
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
from best_splits import split
from cluster_cases import crowded_problem
from joint_toys import toy
from planted import ANSWERS, BACK_ENDS, Planted
from power_grids import power_case
from tiers import more, slow
from wan_graphs import random_case

import planner
from planner.models import Options, wan_design
from planner.models.placement import place_job as placement
from planner.models.placement.placement_changes import (
    IncompleteGroup,
    LeafBlock,
    LeafLoad,
    cost,
    minimize_moves,
    minimize_stop_cost,
    repair,
)
from planner.models.placement.placement_problem import Kind, Leaf
from planner.plan.plan import Plan
from planner.solvers.outcome import Outcome

Answer = tuple[str, float | None]
DAYS = 0.18875163  # of the fastest plan of the toy whose least cost is asked for


def _of_outcome(outcome: Outcome) -> Answer:
    return outcome.status, None if outcome.objective is None else round(outcome.objective, 6)


def _of_plan(plan: Plan) -> Answer:
    """Return status and value of a plan, which keeps every rule of the checker."""
    assert planner.check(plan) == []
    return plan.status, None if plan.objective.value is None else round(plan.objective.value, 9)


def joint(seed: int = 14, *, budget: float = 1.0, **changes: Any) -> Answer:
    """Return the answer for the sites of a toy, with a share of its budget."""
    i = toy(seed, sites=2, forced=True)
    return _of_plan(planner.solve(i.replaced(limits__budget_usd=budget * (i.limits.budget_usd or 0.0), **changes)))


def joint_without_duals() -> Answer:
    """Return the same where the duals of a relaxation prove nothing, so that CP-SAT is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.solvers.highs.lower_bound", lambda *_, **__: None)
        return joint()


def sites(**grid: str) -> Answer:
    return _of_outcome(split(*power_case(3, **grid)))


def fibre(seed: int) -> Answer:
    return _of_outcome(wan_design.solve(*random_case(seed), Options()))


def placed_by(solver: str) -> Answer:
    """Return all levels, which must be at their bounds for a proof."""
    solution = placement.solve(crowded_problem(7, tiers=2), Options(solver=solver))
    return solution.outcome().status, float(sum(n * 100**-k for k, n in enumerate(solution.values)))


def fewest_moves() -> Answer:
    r = random.Random(4)
    leaves = tuple(LeafLoad(size=6, fixed=r.randint(0, 1), pieces=(2, 1)) for _ in range(4))
    return _of_outcome(minimize_moves(leaves, 1, Options()))


def stopped_jobs() -> Answer:
    """Return the cost of the jobs to stop on four leaves of two blocks each."""
    r = random.Random(1)
    blocks = tuple(LeafBlock(b // 2, r.randint(0, 3), {j: r.randint(0, 3) for j in range(5)}) for b in range(8))
    return _of_outcome(minimize_stop_cost(blocks, (Kind(5, 2), Kind(3, 2)), 2, (7, 5, 9, 4, 6), 1, Options()))


def too_few_jobs_to_stop() -> Answer:
    blocks = tuple(LeafBlock(b, 1, {b: 1}) for b in range(3))
    return _of_outcome(minimize_stop_cost(blocks, (Kind(4, 2),), 1, (1, 1, 1), 2, Options()))


def repaired() -> Answer:
    """Return all levels of the units that three groups miss, which the nearest free ones serve across pods."""
    r = random.Random(1)
    leaves = tuple(Leaf((r.randint(0, 1),), r.randint(0, 4), 6) for _ in range(5))
    groups = tuple(IncompleteGroup(frozenset(r.sample(range(5), r.randint(0, 1))), r.randint(2, 4)) for _ in range(3))
    solution = repair(leaves, groups, Options())
    assert solution.variables
    assert cost(leaves, groups, solution.packing) == solution.values
    return solution.outcome().status, float(sum(n * 100**-k for k, n in enumerate(solution.values)))


# Each decision with the back ends that it asks: what another would answer changes nothing.
LEAST_COST = {"limits__deadline_days": 1.5 * DAYS, "objective__minimize": "cost_usd"}  # half as many days again
DECISIONS: dict[str, tuple[Callable[[], Answer], tuple[str, ...]]] = {
    "joint, of sites": (joint, ("highs",)), "joint, without duals": (joint_without_duals, ("cpsat", "highs")),
    "joint, without a plan": (partial(joint, budget=0.01), ("cpsat", "highs")),
    "joint, least cost": (partial(joint, 5, **LEAST_COST), ("highs",)),
    "sites of a transport grid": (partial(sites, model="transport"), ("highs",)),
    "sites of a DC grid": (partial(sites, n1="full"), ("highs",)),
    "fibre": (partial(fibre, 0), ("highs",)), "fibre that carries too little": (partial(fibre, 1), ("highs",)),
    "placed by CP-SAT": (partial(placed_by, "cpsat"), ("cpsat",)),
    "placed by HiGHS": (partial(placed_by, "highs"), ("highs",)),
    "fewest moves": (fewest_moves, ("cpsat",)), "stopped jobs": (stopped_jobs, ("cpsat",)),
    "too few jobs to stop": (too_few_jobs_to_stop, ("cpsat",)), "repaired": (repaired, ("cpsat",)),
}  # fmt: skip
WITHOUT = ("joint, without a plan", "fibre that carries too little", "too few jobs to stop")


def tier(decision: str, *case: str) -> list[Any]:
    """Return a case: whole solves are slow, and answers that are refused there as others are left out."""
    if not decision.startswith("joint"):
        return [(decision, *case)]
    refused = {"invalid", "raises", *(("unknown", "zeros") if decision == "joint, least cost" else ())}
    return (more if refused & {*case} else slow)((decision, *case))


@cache
def sound(decision: str) -> tuple[Answer, dict[str, int]]:
    """Return the answer of a decision with nothing planted, and how often it runs each back end."""
    counted = {name: Planted("none") for name in BACK_ENDS}
    with pytest.MonkeyPatch.context() as patch:
        for name, plant in BACK_ENDS.items():
            plant(patch, counted[name])
        return DECISIONS[decision][0](), {name: x.runs for name, x in counted.items()}


@pytest.mark.parametrize(("decision",), [case for name in DECISIONS for case in tier(name)])
def test_sound_answers_are_proven(decision: str) -> None:
    (status, _), runs = sound(decision)
    assert status == ("infeasible" if decision in WITHOUT else "optimal")
    assert tuple(name for name in BACK_ENDS if runs[name]) == DECISIONS[decision][1]


FALSE = [x for d, (_, asked) in DECISIONS.items() for s in asked for answer in ANSWERS for x in tier(d, s, answer)]


@pytest.mark.parametrize(("decision", "solver", "answer"), FALSE)
def test_no_decision_says_more_than_it_can_prove(decision, solver, answer, monkeypatch):
    """`optimal` with the right value, `infeasible` where it is, else `feasible` or `unknown`; nothing is raised."""
    # All runs of the back end are falsified, then the later half of them, of small models, then the last one alone.
    (status, value), runs = sound(decision)
    halves = set() if decision.startswith("joint") else {runs[solver] // 2}
    for first in sorted({0, runs[solver] - 1} | halves):
        planted = Planted(answer, first)
        with monkeypatch.context() as patch:
            BACK_ENDS[solver](patch, planted)
            told, figure = DECISIONS[decision][0]()
        assert planted.runs > first
        if told in ("optimal", "infeasible"):
            assert (told, figure) == (status, value), first
        elif figure is not None and value is not None:
            assert told == "feasible" and figure >= value, first
