"""The summary of a plan says which degrees it takes, and of which network its power flow is proven."""

from typing import Any

import pytest
from worked_plan import small

from planner.instance.workload import Experts
from planner.plan.plan import Plan
from planner.report.summary import summary

PLAN = small()


def with_experts(plan: Plan) -> Plan:
    """Return a plan as if of a model with experts."""
    workload = plan.instance.workload
    model = workload.model.model_copy(update={"experts": Experts(count=8, per_token=2, ffn=64)})
    changed = plan.instance.model_copy(update={"workload": workload.model_copy(update={"model": model})})
    return plan.model_copy(update={"instance": changed})


def with_degrees(plan: Plan, **degrees: int) -> Plan:
    """Return a plan as if its layout had other degrees."""
    return plan.model_copy(update={"layout": plan.layout.model_copy(update=degrees)})


@pytest.mark.parametrize(("context", "expert"), [(1, 1), (1, 4), (2, 1), (2, 8)])
def test_a_model_with_experts_prints_its_context_and_expert_parallelism(context: int, expert: int) -> None:
    """Both degrees are printed, also where they are 1: with experts that is a choice."""
    plan = with_degrees(with_experts(PLAN), context_parallel=context, expert_parallel=expert)
    assert f"CP {context} x" in summary(plan)
    assert f", EP {expert};" in summary(plan)


def test_a_dense_model_prints_what_it_uses() -> None:
    """Of a dense model there is no expert parallelism, and CP only where there are several ranks."""
    assert "EP" not in summary(PLAN) and " CP " not in summary(PLAN)
    assert "CP 2 x" in summary(with_degrees(PLAN, context_parallel=2))


@pytest.mark.parametrize(
    ("load", "n1", "said"),
    [
        (0.0, "off", "of the sites alone: no node states a load_mw; nothing out"),
        (2.5, "full", "beside 5 MW of other load; any one circuit or unit out"),
        (2.5, "node", "a site's largest circuit out"),
    ],
)
def test_a_power_flow_says_of_what_network_it_is(load: float, n1: str, said: str) -> None:
    """Under dc the summary tells whether load beside the sites is counted, and what may be out."""
    grid = PLAN.instance.grid
    nodes = [n.model_copy(update={"load_mw": load if i < 2 else 0.0}) for i, n in enumerate(grid.nodes)]
    rules: dict[str, Any] = {"grid_model": "dc", "n1": n1}
    changed = grid.model_copy(update={"nodes": tuple(nodes), "rules": grid.rules.model_copy(update=rules)})
    plan = PLAN.model_copy(update={"instance": PLAN.instance.model_copy(update={"grid": changed})})
    assert said in summary(plan)
    assert "power flow by reactances" not in summary(PLAN)
