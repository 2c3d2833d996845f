"""What the checker reckons by itself: a fault in the planner's own formula for the same changes none of its answers."""

from dataclasses import replace
from typing import Any

import pytest
from joint_toys import PHI, case, toy
from stored_plans import stored
from worked_plan import named

import planner
from planner import cluster
from planner.checks import joint_proof, placement, strategy_space_check, strategy_times_check
from planner.checks.placement import check_placement
from planner.checks.strategy_space_check import Space
from planner.cluster import Job, Topology, TopologySwitch
from planner.instance.grid import Grid
from planner.physics import plan_physics
from planner.physics.training import layer_time, memory, step_prediction

NEVER = 1e9  # seconds, a limit that excludes nothing


def test_the_space_and_the_layers_that_bound_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted one too many, as the search then does, a floor of a step would be above what plans take."""
    i = toy(2)
    software, w = i.workload.software.replaced(recompute_modules=("mlp",), flash_attention=True), i.workload
    for module in (memory, layer_time, strategy_space_check):
        monkeypatch.setattr(module, "repeats_modules", lambda _: False, raising=False)
        monkeypatch.setattr(module, "days_of", lambda *_: 1.0, raising=False)
    space = Space(instance=i.replaced(workload__software=software), transport_slowdown=PHI)
    assert w.model.experts is None and space._recomputations() == [("none", "any"), ("selective", "no")]
    assert space.days_a_second == pytest.approx(w.tokens / w.sequence_length / w.availability / 86_400)
    cut = next(Space(instance=toy(2), transport_slowdown=PHI).cuts())
    x = strategy_times_check.fastest_ranges(cut, cut.pipelines, lambda _: 6, NEVER)
    before = strategy_times_check.StepTimeBound(cut=cut, ranges=x, zero_stage=0).layers
    monkeypatch.setattr(step_prediction, "least_layers", lambda _: toy(2).workload.model.layers + 1)
    after = strategy_times_check.StepTimeBound(cut=cut, ranges=x, zero_stage=0).layers
    assert len(x) and (before == after).all()


def test_months_at_which_something_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Months that the grid's own list lacks would be asked about by neither the search nor the check."""
    i = next(x for x in map(case, range(1, 60)) if x.grid is not None)
    first, *rest = i.grid.nodes
    i = i.replaced(grid__nodes=(first.replaced(ready_months=7.0), *rest), grid__rules__ready_within_months=None)
    monkeypatch.setattr(Grid, "lead_months", ())
    assert 7.0 in [months for (_, _, months), _ in joint_proof.questions_by_start(i)]


def test_the_order_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names sorted as texts have n10 before n2; Slurm does not."""
    for module in (cluster, placement):
        monkeypatch.setattr(module, "natural", lambda name: [(0, name)], raising=False)
    topology = Topology(switches=(TopologySwitch(name="leaf", nodes=("n2", "n10")),))
    job = Job(name="j", mesh={"data": 2})
    placed = planner.place(topology, job)
    turned: dict[str, Any] = {"nodes": ("n10", "n2")}
    bent = placed.replaced(**turned, order="name", groups=(placed.groups[0].replaced(**turned),))
    assert "order_of_names" in {v.rule for v in check_placement(topology, job, bent)}


def test_the_share_of_groups_under_one_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, locality = stored(toy(5, sites=2, forced=True)), plan_physics.locality
    assert "leaf_local" in {end.name for end in plan.objective.ends}
    split = lambda *of, **how: replace(locality(*of, **how), groups_split=1)  # noqa: E731
    monkeypatch.setattr(plan_physics, "locality", split)
    assert "objective[ends]" not in named(plan)
