"""What a simulation found."""

from typing import Literal

from pydantic import Field

from planner.instance import Frozen

TransportName = Literal["ecmp", "spray", "adaptive"]


class Percentiles(Frozen):
    """A distribution by its percentiles."""

    p50: float
    p90: float
    p99: float
    max: float


class Run(Frozen):
    """One seed: other hashes, another permutation, other failed links."""

    seed: int
    ideal_seconds: float = Field(description="Time of the exchange if every link of the network as built were loaded evenly: no transport is faster.")
    tail_seconds: float = Field(description="When the last flow ended.")
    slowdown: float = Field(description="Tail over ideal.")
    line_rates: float = Field(description="Tail over the time of the largest flow at the rate of an idle host.")
    fct_seconds: Percentiles = Field(description="Completion times of the flows.")


class Simulation(Frozen):
    """An exchange on a network, over some seeds."""

    name: str
    simulated: str = Field(description="What of the network is simulated.")
    pattern: str
    transport: TransportName
    hosts: int
    flows: int
    steps: int = Field(1, description="Times that the exchange is repeated: the steps of a ring; times are of one.")
    flow_bytes: float = Field(description="Of the largest flow.")
    failed_links: int
    resolution: float = Field(0.0, description="Share of the time within which completions are one event; of equal flows the tail is exact anyway.")
    runs: tuple[Run, ...]
    fct_seconds: Percentiles = Field(description="Completion times of the flows of all seeds.")
    fct_over_ideal: Percentiles = Field(description="The same over each seed's ideal.")
    slowdown: Percentiles = Field(description="Tail over ideal, over the seeds.")
    mean_slowdown: float = Field(description="Tail over ideal, mean of the seeds.")
    mean_line_rates: float = Field(description="Tail over the time of the largest flow at the rate of an idle host, mean of the seeds.")
    assumed_line_rates: float | None = Field(None, description="The same as the plan counts on, transport included.")
