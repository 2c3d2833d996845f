"""What comes back: the decisions, their metrics and their certificates."""

from typing import Literal

from pydantic import Field

from planner.instance.base import Frozen
from planner.instance.instance import Instance
from planner.instance.model_family import ModelChoice
from planner.plan.certificate import Conflict, ObjectiveValue, Status
from planner.plan.fabric import FabricPlan, TransportFactor
from planner.plan.layout import LayoutPlan, PoolsPlan
from planner.plan.placement import PlacementPlan
from planner.plan.proof import JointProof
from planner.plan.reliability import ReliabilityPlan
from planner.plan.run import RunPlan
from planner.plan.sites import SitesPlan
from planner.plan.wan import WanPlan


class Cost(Frozen):
    """What the plan costs."""

    capex_usd: dict[str, float]
    opex_usd_per_year: dict[str, float]
    operation_years: float = Field(description="Years of operation counted into the total.")
    total_usd: float


class Plan(Frozen):
    """A self-contained answer: the instance as solved, the decisions and the proofs."""

    schema_version: Literal[2] = 2
    planner_version: str
    instance: Instance
    instance_sha256: str
    status: Status
    objective: ObjectiveValue
    sites: SitesPlan | None = None
    wan: WanPlan | None = Field(
        None,
        description="Where instance.wan asks for its design and two sites are open; else sites.links is an estimate.",
    )
    layout: LayoutPlan | None = None
    pools: PoolsPlan | None = Field(None, description="In place of layout, for pools of different GPUs.")
    fabric: FabricPlan | None = None
    transport: TransportFactor | None = Field(None, description="Where the slowdown is simulated.")
    placement: PlacementPlan | None = None
    reliability: ReliabilityPlan | None = Field(None, description="Where the instance counts failures.")
    cost: Cost | None = None
    run: RunPlan | None = Field(None, description="The whole run: energy, money and carbon until it ends.")
    model_choice: ModelChoice | None = Field(None, description="Where the model was chosen.")
    proof: JointProof | None = Field(None, description="What the bound rests on beside physics, for days to train.")
    conflict: Conflict | None = None
    stopped: Literal["proved", "gap", "limit", "interrupted"] = Field(
        "proved", description="Why the run ended: the proof, a gap that was near enough, the time limit, or a signal."
    )
    threads: int = 1
    seed: int = 0
    time_limit_seconds: float | None = None
