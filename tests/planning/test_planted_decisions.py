"""Wrong answers planted in the back ends of each decision: it says no more than it can prove, and raises nothing."""

import random
from collections.abc import Callable

import pytest
from cluster_cases import crowded_problem
from planted import ANSWERS, BACK_ENDS, Planted
from power_grids import power_case
from tiers import slow
from wan_graphs import random_case
from worked_plan import LAYOUT, instance_with

import planner
from planner.instance.model_family import DepthLaw, Family
from planner.models import transformer_shape
from planner.models.cluster_changes.defragmentation import LeafLoad, minimize_moves
from planner.models.cluster_changes.preemption import LeafBlock, PreemptionProblem, minimize_stop_cost
from planner.models.cluster_changes.repair import IncompleteGroup, cost, repair
from planner.models.placement import solve as placement
from planner.models.placement.data import Kind, Leaf
from planner.models.requests import Options
from planner.models.sites import solve as sites
from planner.models.wan import solve as wan
from planner.plan.plan import Plan
from planner.solvers.outcome import Outcome, UnansweredError

Answer = tuple[str, float | None]


def _of_outcome(outcome: Outcome) -> Answer:
    return outcome.status, None if outcome.objective is None else round(outcome.objective, 6)


def _of_plan(plan: Plan) -> Answer:
    """Return status and value of a plan, which keeps every rule of the checker."""
    assert planner.check(plan) == []
    return plan.status, None if plan.objective.value is None else round(plan.objective.value, 9)


def joint_of_sites() -> Answer:
    return _of_plan(planner.solve(instance_with(pins=LAYOUT)))


def joint_without_plan() -> Answer:
    return _of_plan(planner.solve(instance_with(pins=LAYOUT, limits__budget_usd=3e6)))


def joint_least_cost() -> Answer:
    return _of_plan(planner.solve(instance_with(pins=LAYOUT, objective__minimize="cost_usd", limits__deadline_days=2)))


def sites_of_a_transport_grid() -> Answer:
    return _of_outcome(sites.solve(*power_case(3, model="transport"), Options()))


def sites_of_a_dc_grid() -> Answer:
    return _of_outcome(sites.solve(*power_case(3, n1="full"), Options()))


def fibre() -> Answer:
    return _of_outcome(wan.solve(*random_case(0), Options()))


def fibre_that_carries_too_little() -> Answer:
    return _of_outcome(wan.solve(*random_case(1), Options()))


def placed() -> Answer:
    """Return the first level; all levels must be at their bounds for a proof."""
    outcome = placement.solve(crowded_problem(7, tiers=2), Options())
    assert outcome.solution is not None
    return outcome.status, float(sum(n * 100**-k for k, n in enumerate(outcome.solution.values)))


def placed_by_highs() -> Answer:
    outcome = placement.solve(crowded_problem(7, tiers=2), Options(solver="highs"))
    assert outcome.solution is not None
    return outcome.status, float(sum(n * 100**-k for k, n in enumerate(outcome.solution.values)))


def fewest_moves() -> Answer:
    r = random.Random(4)
    leaves = tuple(LeafLoad(size=6, fixed=r.randint(0, 1), pieces=(2, 1)) for _ in range(4))
    return _of_outcome(minimize_moves(leaves, 1, Options()))


def stopped_jobs() -> Answer:
    """Return the cost of the jobs to stop on four leaves of two blocks each."""
    r = random.Random(1)
    blocks = tuple(LeafBlock(b // 2, r.randint(0, 3), {j: r.randint(0, 3) for j in range(5)}) for b in range(8))
    q = PreemptionProblem(blocks=blocks, kinds=(Kind(5, 2), Kind(3, 2)), segment=2, costs=(7, 5, 9, 4, 6), max_split=1)
    return _of_outcome(minimize_stop_cost(q, Options()))


def too_few_jobs_to_stop() -> Answer:
    blocks = tuple(LeafBlock(b, 1, {b: 1}) for b in range(3))
    q = PreemptionProblem(blocks=blocks, kinds=(Kind(4, 2),), segment=1, costs=(1, 1, 1), max_split=2)
    return _of_outcome(minimize_stop_cost(q, Options()))


def repaired() -> Answer:
    """Return all levels of the units that three groups miss, which the nearest free ones serve across pods."""
    r = random.Random(1)
    leaves = tuple(Leaf((r.randint(0, 1),), r.randint(0, 4), 6) for _ in range(5))
    groups = tuple(IncompleteGroup(frozenset(r.sample(range(5), r.randint(0, 1))), r.randint(2, 4)) for _ in range(3))
    outcome = repair(leaves, groups, Options())
    assert outcome.solution is not None and outcome.variables
    assert cost(leaves, groups, outcome.solution.taken) == outcome.solution.values
    return outcome.status, float(sum(n * 100**-k for k, n in enumerate(outcome.solution.values)))


def shape_of_a_model() -> Answer:
    """Return the parameters of the shape; a shape that is not proven raises, and none is an answer too."""
    try:
        found = transformer_shape.choose(Family(tolerance=0.05), DepthLaw(aspect=64.0), 1e9)
    except UnansweredError:
        return "unknown", None
    return ("infeasible", None) if found is None else ("optimal", float(transformer_shape.size(found)))


DECISIONS: dict[str, Callable[[], Answer]] = {
    f.__name__: f
    for f in (
        joint_of_sites,
        joint_without_plan,
        joint_least_cost,
        sites_of_a_transport_grid,
        sites_of_a_dc_grid,
        fibre,
        fibre_that_carries_too_little,
        placed,
        placed_by_highs,
        fewest_moves,
        stopped_jobs,
        too_few_jobs_to_stop,
        repaired,
        shape_of_a_model,
    )
}
# Whole solves, each of seconds, are left to the slow tier.
QUICK = [
    *(name for name in DECISIONS if not name.startswith("joint")),
    *slow(*[x for x in DECISIONS if x[:5] == "joint"]),
]
WITHOUT = ("joint_without_plan", "fibre_that_carries_too_little", "too_few_jobs_to_stop")
TRUE: dict[str, Answer] = {}


def true_answer(name: str) -> Answer:
    """Return the answer of a decision with nothing planted."""
    if name not in TRUE:
        TRUE[name] = DECISIONS[name]()
    return TRUE[name]


@pytest.mark.parametrize("name", QUICK)
def test_sound_answers_are_proven(name: str) -> None:
    """Nothing planted: every decision is proven, or proven to be none."""
    assert true_answer(name)[0] == ("infeasible" if name in WITHOUT else "optimal")


@pytest.mark.parametrize("first", [0, *slow(4)])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("solver", BACK_ENDS)
@pytest.mark.parametrize("name", QUICK)
def test_no_decision_says_more_than_it_can_prove(
    name: str, solver: str, answer: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`optimal` with the right value, `infeasible` where it is, else `feasible` or `unknown`; nothing is raised."""
    status, value = true_answer(name)
    BACK_ENDS[solver](monkeypatch, Planted(answer, first))
    told, figure = DECISIONS[name]()
    if told in ("optimal", "infeasible"):
        assert (told, figure) == (status, value)
    elif figure is not None and value is not None:
        assert told == "feasible" and figure >= value
