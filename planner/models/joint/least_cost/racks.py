"""The fewest racks of one cluster that train in time on a network that slows nothing: racks in the place of capital."""

from dataclasses import dataclass

from planner.instance.instance import Instance
from planner.models.joint.free_network import days_of, problem_on, racks_of, strategy_of
from planner.models.joint.least_cost.floors import RACKS_ALONE
from planner.models.joint.least_cost.tree import CostTree
from planner.models.joint.world import Plan, World
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.plan.certificate import Status
from planner.solvers.deadline import Deadline

NO_LIMIT = 10**9  # racks; no column has as many


@dataclass(frozen=True, slots=True, kw_only=True)
class FewestRacks:
    """The fewest racks that have a layout in time, and the most that are proven too few."""

    status: Status
    racks: int | None
    too_few: int  # racks with which no layout is in time, proven
    days: float | None
    plan: Plan | None

    @property
    def strategy(self) -> ParallelStrategy | None:
        """The fastest layout on so many racks."""
        return None if self.plan is None else strategy_of(self.plan)


def fewest_racks(instance: Instance, days: float, *, time_limit: float | None = None) -> FewestRacks:
    """Return the fewest racks that train in so many days, and the fastest layout on them; no budget, any racks."""
    world = World(problem=problem_on(instance, NO_LIMIT), sites=None, templates=None)
    tree = CostTree(
        world=world,
        floor=RACKS_ALONE,
        limit=days / days_of(instance, 1.0),
        budget=float(NO_LIMIT),
        deadline=Deadline(time_limit),
        progress=lambda _: None,
    )
    stopped, plan = tree.run(), tree.incumbent
    if plan is None:
        status: Status = "unknown" if stopped else "infeasible"
        return FewestRacks(status=status, racks=None, too_few=_below(tree.bound), days=None, plan=None)
    racks = racks_of(plan)
    return FewestRacks(
        status="feasible" if stopped and tree.bound < racks - 0.5 else "optimal",
        racks=racks,
        too_few=_below(tree.bound) if stopped else racks - 1,
        days=days_of(instance, plan.seconds),
        plan=plan,
    )


def _below(bound: float) -> int:
    """Return the most racks below a lower bound."""
    return max(0, round(bound) - 1)
