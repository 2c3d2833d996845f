"""What the user gives: one frozen, self-describing instance of the planning question."""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from planner.instance.base import Frozen, NonNegative, Positive, Sourced, with_schema_key
from planner.instance.grid import Grid
from planner.instance.hardware import Hardware
from planner.instance.network import Network
from planner.instance.reliability import Reliability
from planner.instance.wan import Wan
from planner.instance.workload import Workload


class Objective(Frozen):
    """What the plan is best at."""

    minimize: Literal["days_to_train", "cost_usd", "loss"] = Field("days_to_train", description="Figure to minimize.")
    tolerance: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="Share of the fewest days that may be given up for the cheapest plan within it; 0: none."
    )


class Limits(Sourced):
    """What the whole plan must stay within; a limit that is absent does not bind."""

    budget_usd: Positive | None = Field(None, description="Limit on capital and the counted years of operation.")
    operation_years: NonNegative = Field(0.0, description="Years of operation counted into the total.")
    facility_power_mw: Positive | None = Field(None, description="Most power all sites may draw, overhead included.")
    deadline_days: Positive | None = Field(None, description="Longest time to train.")
    max_batch_tokens: Positive | None = Field(None, description="Critical batch: most tokens of an optimiser step.")
    memory_reserve_fraction: Annotated[float, Field(ge=0, lt=1)] = Field(0.05, description="Share of HBM kept free.")


class Instance(Sourced):
    """One planning question; a part that is missing is a decision not asked for."""

    model_config = ConfigDict(json_schema_extra=with_schema_key)

    schema_version: Literal[2] = Field(2, description="Of this format; 2.")
    name: str = Field(description="Of the plan, files and reports.")
    objective: Objective = Field(Objective(), description="What is minimized, and within what.")
    limits: Limits = Field(Limits(), description="What the plan must stay within.")
    workload: Workload = Field(description="The model, its tokens and precision.")
    hardware: Hardware = Field(description="Accelerators and racks, or pools of them.")
    grid: Grid | None = Field(None, description="Places, power and lines; absent: one cluster of hardware.racks.")
    wan: Wan | None = Field(None, description="Fibre between the sites; absent: the usual prices.")
    network: Network | None = Field(
        None, description="What the fabric is built from; absent: no fabric and no placement."
    )
    reliability: Reliability | str | None = Field(
        None, description="Failures and what they cost, inline or by catalogue name; absent: none is counted."
    )
    pins: dict[str, Any] = Field(default_factory=dict, description="Decisions fixed by hand, by dotted path.")


def instance_sha256(instance: Instance) -> str:
    """Return the SHA-256 of an instance's JSON with sorted keys and no spaces."""
    text = json.dumps(instance.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
