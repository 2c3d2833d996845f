"""The reliability of an instance's hardware: failure rates of its parts, and what the stops of a job cost."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from planner.instance.base_types import Fraction, NonNegative, Positive, Sourced

Recovery = Literal["restart", "warm-spares", "elastic"]
CheckpointTarget = Literal["storage", "memory"]
COUNTED_BY = ("gpu_hours_per_event", "link_hours_per_event", "transceiver_hours_per_event")


class FailingPart(Sourced):
    """Reliability of a kind of part, or of work, whose failure stops the job; by GPU, link or transceiver at work."""

    gpu_hours_per_event: Positive | None = Field(
        None, description="Hours of GPUs at work from one event to the next; absent: it is counted by another key."
    )
    link_hours_per_event: Positive | None = Field(
        None, description="Counted by link: hours of links of GPUs at work to their leaves from one event to the next."
    )
    transceiver_hours_per_event: Positive | None = Field(
        None, description="Counted by transceiver: the same of cables.endpoint_transceivers at each such link."
    )
    repair_hours: NonNegative = Field(
        0.0, description="Hours that it is out of service behind a stop; 0: the job takes it up again at once."
    )
    out: Literal["gpu", "rack"] = Field("gpu", description="What is out of service meanwhile: the GPU, or its rack.")

    def _faults(self) -> Iterator[str]:
        given = [name for name in COUNTED_BY if getattr(self, name) is not None]
        if len(given) != 1:
            yield f"has {' and '.join(given) or 'no hours_per_event'}; give one of {', '.join(COUNTED_BY)}"
        if self.repair_hours and self.gpu_hours_per_event is None:
            yield f"repair_hours with {given[0]}; only what is counted by gpu_hours_per_event is repaired"


class Reliability(Sourced):
    """Reliability of an instance's hardware: failure rates, and what stops of a job cost; absent: no failures."""

    name: str = Field("", description="Of the figures, in reports.")
    parts: dict[str, FailingPart] = Field(description="What fails, by name.")
    measured_gpus: Positive = Field(
        16_384.0, description="GPUs of the run at which the rates were seen; a plan of more is an extrapolation."
    )
    scale_exponent: NonNegative = Field(
        0.0, description="Above measured_gpus the rate of a GPU grows with this power of their number."
    )
    lane_failover: bool = Field(
        False, description="A GPU whose NIC has links in several networks goes on over the others: they stop nothing."
    )
    correlated_share: Fraction = Field(
        0.0, description="Share of stops that hit several replicas, or both copies of a checkpoint in memory."
    )
    detection_seconds: NonNegative = Field(0.0, description="From a failure to the start of a recovery.")
    restart_seconds: NonNegative = Field(0.0, description="Of a restart of the whole job, whatever its size.")
    restart_seconds_per_gpu: NonNegative = Field(0.0, description="Of a restart of the whole job, for each GPU.")
    warm_restart_seconds: NonNegative = Field(0.0, description="Of a restart on spares that stand by, likewise.")
    warm_restart_seconds_per_gpu: NonNegative = Field(0.0, description="Of a restart on spares, for each GPU.")
    elastic_stall_seconds: NonNegative = Field(
        0.0, description="That all replicas stall when one is lost, and the job goes on without it."
    )
    rejoin_seconds: NonNegative = Field(0.0, description="That a lost replica stays away where racks are at hand.")
    power_ramp_seconds: NonNegative = Field(0.0, description="From a restart to full power, as the grid asks.")
    storage_bytes_per_second_per_gpu: Positive | None = Field(
        None, description="Rate at which a GPU writes a checkpoint to storage; absent: writing takes no time."
    )
    memory_bytes_per_second_per_gpu: Positive | None = Field(
        None, description="Rate to the memory of a neighbour; absent: no checkpoint is kept there."
    )
    recoveries: tuple[Recovery, ...] = Field(
        ("restart", "warm-spares", "elastic"), min_length=1, description="Ways to go on after a stop to choose from."
    )
    checkpoint_targets: tuple[CheckpointTarget, ...] = Field(
        ("storage", "memory"), min_length=1, description="Where checkpoints may be written."
    )
    spare_targets: tuple[Annotated[float, Field(ge=0, lt=1)], ...] = Field(
        (0.0, 0.99),
        min_length=1,
        description="Spare racks of a site: the fewest that leave enough racks for such a share of time; 0: none.",
    )
    spare_gpus: bool = Field(True, description="GPUs of a rack that the layout leaves idle may be cabled as spares.")

    @property
    def counts_links(self) -> bool:
        """Whether an instance's reliability counts failures by links or transceivers, and not by GPUs alone."""
        return any(part.gpu_hours_per_event is None for part in self.parts.values())

    def _faults(self) -> Iterator[str]:
        # Of links alone, without transceivers, or with lanes to spare, nothing would ever stop the job.
        if self.counts_links and all(part.gpu_hours_per_event is None for part in self.parts.values()):
            yield "parts: all are counted by links or transceivers; add those with gpu_hours_per_event"
        if set(self.recoveries) == {"warm-spares"} and not any(self.spare_targets):
            problem = 'recoveries has "warm-spares" alone, and spare_targets no share above 0'
            yield f"{problem}; add one to either"
        if "storage" not in self.checkpoint_targets and self.memory_bytes_per_second_per_gpu is None:
            problem = 'checkpoint_targets has no "storage", and memory_bytes_per_second_per_gpu is absent'
            yield f"{problem}; add one"
