"""The solution of a joint question: its plan, the target that other plans must beat, and what is left unproven."""

import math
from dataclasses import dataclass, field
from typing import Literal

from planner.models.fabric.fabric_templates import Template
from planner.models.joint.shapes.blocks_by_site import Shape
from planner.models.joint.shapes.site_question import PlacedParts
from planner.models.joint.stage_split import Column, LayerSplit
from planner.models.joint.time_bounds import RowConditions
from planner.physics.recovery import Upkeep
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.plan.certificate import Status

EPS = 1e-9  # relative: times that differ by less are the same
CENTS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPlan:
    """The plan of a joint solution: a column with time, capital, split, conditions, and fabrics and blocks by site."""

    seconds: float  # a sequence, on a clock
    capital_usd: float
    column: Column
    split: LayerSplit
    conditions: RowConditions
    shape: Shape
    templates: dict[str, Template]
    blocks_by_site: dict[str, int]
    replicas_by_site: dict[str, int]
    placed: PlacedParts | None
    wavelengths: int
    upkeep: Upkeep | None = None  # where failures count


def racks_of(plan: JointPlan) -> int:
    """Return the racks that the blocks of a joint solution's plan fill, without spares."""
    return sum(plan.shape.blocks) * plan.column.block.racks


def strategy_of(plan: JointPlan) -> ParallelStrategy:
    """Return the layout of a joint solution's plan as a parallel strategy in full."""
    c, s, block, split = plan.column, plan.column.strategy, plan.column.block, plan.split
    recomputed = any(split.recomputed)
    return ParallelStrategy.of_shape(
        s.shape,
        pipeline_parallel=c.p,
        data_parallel_by_site=tuple(n for _, n in sorted(plan.replicas_by_site.items())),
        virtual_stages=c.v,
        micro_batches=c.m,
        recompute="full" if recomputed else s.shape.recompute,
        zero_stage=c.zero,
        layers_per_stage=split.layers,
        recomputed_layers_per_stage=split.recomputed if recomputed else (),
        replicas_per_rack=block.replicas_per_rack,
        stages_per_rack=block.stages_per_rack,
        schedule=s.order,
    )


@dataclass(frozen=True, slots=True)
class Target:
    """The target of joint solutions: seconds a sequence and capital of the best so far, and the most any may cost."""

    seconds: float = math.inf
    usd: float = math.inf
    budget: float = math.inf

    @property
    def cutoff(self) -> float:
        """Seconds a sequence above which no joint solution beats the target: plans as fast may be cheaper."""
        return self.seconds * (1 + EPS)

    def ties(self, seconds: float) -> bool:
        """Return whether a joint solution of such seconds a sequence is no faster than its target."""
        return seconds >= self.seconds * (1 - EPS)

    def max_usd(self, seconds: float) -> float:
        """Return the most USD that a joint solution may cost: the budget, or less than the target's if no faster."""
        return min(self.budget, self.usd - CENTS) if self.ties(seconds) else self.budget

    def improved_by(self, seconds: float, usd: float) -> bool:
        """Return whether a joint solution beats its target: its plan is faster, or as fast and cheaper."""
        return seconds <= self.cutoff and usd <= self.max_usd(seconds) + CENTS / 2


@dataclass(slots=True)
class Unproven:
    """Lower bounds on seconds a sequence and on capital of joint solutions that a search left without a proof."""

    seconds: float = math.inf
    usd: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class JointSolution:
    """The joint solution of an instance: the goal's value with lower bounds over the declared space, and the plan."""

    status: Status
    days: float | None = None
    usd: float | None = None  # of a goal in dollars: the capital, or what it costs to buy and to run
    lower_bound: float | None = None  # in days, or in dollars where those are the goal
    # In days, over every fabric: at the cheapest, on a network slowed by transport alone.
    fabric_free_bound: float | None = None
    plan: JointPlan | None = None
    counts: dict[str, int] = field(default_factory=dict)
    stopped: Literal["proved", "limit", "interrupted"] = "proved"
    excluded: tuple[tuple[float, Column], ...] = ()  # with days below the bound there: sites and budget refuse them
    max_racks: dict[int, int] = field(default_factory=dict)  # of any plan, by the GPUs of each that are cabled
    joined_racks: dict[int, int] = field(default_factory=dict)  # at most by a fabric, where ports bound them
    failure: str = ""
