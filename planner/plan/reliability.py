"""The reliability section of a plan: how the run meets failures, and what they cost it."""

from pydantic import Field

from planner.instance.base import Frozen
from planner.instance.reliability import CheckpointTarget, Recovery


class ReliabilityPlan(Frozen):
    """The way to go on behind a stop, checkpoints, what stands by, and the share of time that trains."""

    recovery: Recovery = Field(description="How the job goes on behind a stop.")
    checkpoint_target: CheckpointTarget = Field(description="Where checkpoints go that every stop goes back to.")
    checkpoint_interval_seconds: float | None = Field(None, description="Between checkpoints; absent: none is written.")
    checkpoint_write_seconds: float = Field(description="To write one, every GPU at work an even part.")
    checkpoint_bytes: float = Field(description="Of a checkpoint of the whole job: master weights and optimiser.")
    stop_seconds: float = Field(description="Mean time between stops of the job.")
    stops_per_day_by_part: dict[str, float] = Field(description="Stops in a day of work, by what fails.")
    restart_seconds: float = Field(description="That a stop costs beside work that is lost.")
    spare_target: float = Field(description="Share of time in which a site is to have enough racks; 0: no spares.")
    spare_racks_by_site: dict[str, int] = Field(description="Racks that stand by, cabled, behind those at work.")
    spare_gpus_per_rack: int = Field(description="GPUs of a rack at work that stand by, cabled.")
    rack_availability: float = Field(description="Share of time in which a rack is fit for work.")
    enough_racks_share: float = Field(description="Share of time in which every site has enough racks.")
    replicas_short: float = Field(description="Mean replicas that racks out of service take down, beyond spares.")
    useful_share: float = Field(description="Share of the time on a clock that steps take.")
    lost_days: dict[str, float] = Field(description="Days that pass beside those of steps, by cause.")
    extrapolated: bool = Field(description="More GPUs are at work than those whose rates were measured.")
