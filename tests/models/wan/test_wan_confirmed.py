"""The second proof of a wide area: CP-SAT finds no cheaper design, and a claim that is too high stays on trust."""

import pytest
from wan_graphs import asked, edge, fibre, random_case

from planner.models import wan
from planner.models.requests import Options
from planner.models.wan import confirmed
from planner.plan.certificate import BOUNDED, CONFIRMED, ON_TRUST
from planner.plan.plan_sections import WanPlan
from planner.solvers.outcome import second_proof

OPTIONS = Options()


def claiming(plan: WanPlan, factor: float) -> WanPlan:
    """Return a design that claims another bound."""
    made = plan.certificate.model_copy(update={"bound": plan.certificate.bound * factor})
    return plan.model_copy(update={"certificate": made})


@pytest.mark.parametrize("seed", range(0, 60, 6))
def test_a_second_solver_agrees(seed: int) -> None:
    """Each proven design is confirmed, one that claims a per mille more is not, and without time none is."""
    instance, request = random_case(seed)
    plan = wan.solve(instance, request, OPTIONS).solution
    if plan is None:
        return
    assert plan.certificate.checked == ON_TRUST
    assert confirmed(instance, request, plan, 20.0) == CONFIRMED
    assert confirmed(instance, request, claiming(plan, 1.001), 20.0) == ON_TRUST
    assert confirmed(instance, request, plan, 0.0) == ON_TRUST
    unproven = plan.certificate.model_copy(update={"bound": None})
    assert confirmed(instance, request, plan.model_copy(update={"certificate": unproven}), 20.0) == ON_TRUST


def test_a_design_that_leaves_traffic_out_stays_on_trust() -> None:
    """That the fibre carries no more is not asked again."""
    pair = [edge("n0", "n1", 1000, max_fibre_pairs=1)]
    traffic = [{"name": "copies", "bytes": 1e16, "period_seconds": 60}]
    instance = fibre(pair, sites=("E0", "E1"), traffic=traffic, max_wavelengths_per_pair=1)
    request = asked(sites=("E0", "E1"))
    plan = wan.solve(instance, request, OPTIONS).solution
    assert plan is not None and any(d.missing_gbps for d in plan.demands)
    assert confirmed(instance, request, plan, 20.0) == ON_TRUST


def test_the_first_way_that_reaches_the_claim() -> None:
    """Ways are asked in their order, one that finds too little or nothing is passed over, up to rounding."""
    asked: list[str] = []

    def way(name: str, bound: float | None) -> tuple[str, object]:
        def least(_: float | None) -> float | None:
            asked.append(name)
            return bound

        return name, least

    low, none, high = way("low", 9.0), way("none", None), way(BOUNDED, 10.0 * (1 - 5e-7))
    assert second_proof(10.0, [low, none, high, way("late", 11.0)], None) == BOUNDED  # type: ignore[list-item]
    assert asked == ["low", "none", BOUNDED]
    assert second_proof(10.0, [low, none], None) == ON_TRUST  # type: ignore[list-item]
    assert second_proof(None, [high], None) == second_proof(10.0, [high], 0.0) == ON_TRUST  # type: ignore[list-item]
