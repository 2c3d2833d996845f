"""Curves of money against days, made up over a stored plan, in place of a search for one."""

from collections.abc import Callable
from typing import Any

import pytest
from worked_plan import small

from planner.plan.plan import Curve, CurvePoint
from planner.planning import frontier
from planner.planning.frontier import Frontier

# Capital, days, bound on days, racks: at each money one plan, the second at the knee.
CHANGED = ("memory ZeRO-1, recompute selective becomes ZeRO-3, recompute selective",)
POINTS = ((1e9, 40.0, 38.0, 100), (2e9, 16.0, 15.4321, 260), (5e9, 11.5, None, 400), (9e9, 10.9, 10.9, 500))


def curve(points: tuple[tuple[float, float, float | None, int], ...] = POINTS, **changes: Any) -> Curve:
    """Return a curve over these points, with some of its own figures changed."""
    layouts = ("TP 8 x PP 4 x DP 3", "TP 8 x PP 4 x DP 8", "TP 8 x PP 2 x DP 25", "TP 8 x PP 2 x DP 31")
    made = [
        CurvePoint(
            days_to_train=days, capital_usd=usd, bound_days=bound, layout=layouts[min(n, len(layouts) - 1)],
            racks=racks, racks_by_site={"e1": racks}, mfu=0.4, idle_gpus=8,
            changes=CHANGED if n == len(points) - 1 and n else (), knee=(usd, days) == POINTS[1][:2],
        )
        for n, (usd, days, bound, racks) in enumerate(points)
    ]  # fmt: skip
    figures = {"epsilon": 0.0987, "most_usd": 1e10, "slowest_days": 800.0, "stopped": "proved"} | changes
    return Curve(points=tuple(made), **figures)


def made(drawn: Curve) -> Frontier:
    """Return a curve with a plan for each point; the last one's ZeRO stage is another."""
    plan = small()
    assert plan.layout is not None and isinstance(plan.instance, frontier.Instance)
    other = plan.replaced(layout__zero_stage=3)
    plans = [plan] * len(drawn.points)
    return Frontier(plan.instance, drawn, (*plans[:-1], other) if len(plans) > 1 else tuple(plans))


def answer_with(monkeypatch: pytest.MonkeyPatch, answer: Frontier | Callable[..., Frontier]) -> list[dict[str, Any]]:
    """Let the search return a curve, or what a call makes of its arguments; return a list that takes its arguments."""
    asked: list[dict[str, Any]] = []

    def search(instance: Any, options: Any, progress: Any, **given: Any) -> Frontier:
        asked.append({"instance": instance, "options": options, "progress": progress, **given})
        return answer if isinstance(answer, Frontier) else answer(progress)

    monkeypatch.setattr(frontier, "frontier_of", search)
    return asked
