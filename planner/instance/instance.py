"""An instance: one frozen, self-describing statement of the planning question."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from planner.instance.base_types import Frozen, NonNegative, Positive, SchemaVersion, Sourced, with_schema
from planner.instance.catalogue_entries import Named
from planner.instance.grid import Grid
from planner.instance.hardware import Accelerator, Hardware
from planner.instance.network import Network, Wan
from planner.instance.reliability import Reliability
from planner.instance.workload import Workload

ANY_ACCELERATOR = "any"  # in a question about a fabric alone that gives the rate of the NIC and names no GPU
Goal = Literal["days_to_train", "cost_usd", "total_cost_of_ownership_usd", "loss", "finish_date", "frontier"]
TOLERANCE = 0.0025  # of the fewest days, unless another is given


class Objective(Frozen):
    """The objective of an instance: which figure of the plan is minimized."""

    minimize: Goal = Field(
        "days_to_train",
        description="Figure to minimize. cost_usd is the bill; total_cost_of_ownership_usd that of the section "
        "`run`, until the model is trained, or for limits.operation_years. Either asks for a deadline, and the "
        "budget bounds it. finish_date counts days from the decision to the end of training, which starts when the "
        "hardware and every site, new line and upgrade in use are ready. frontier asks for the whole curve of money "
        "against days; the plan is that of its knee, or its fastest where it has none.",
    )
    tolerance: Annotated[float, Field(ge=0, lt=1)] = Field(
        TOLERANCE,
        description="Of `days_to_train`, and of a model's under `loss`: share of the fewest days that may be given up "
        "for the cheapest plan within it, and of that capital for all-reduces in one leaf domain and a simple layout; "
        "0: none. With WAN gateways, which take minutes, the default gives up none.",
    )
    indifference: Annotated[float, Field(ge=0, le=0.1)] = Field(
        0.0,
        description="Of `days_to_train`: share of the fewest days that may be given up for a simpler layout at no more "
        "money, where it is larger than the tolerance; where it is not, one within 2 % is named in "
        "`objective.simplest` alone, and not at a tolerance of 0.",
    )

    @property
    def days_given_up(self) -> float:
        """Share of the fewest days that an instance's objective lets a plan, or its chosen model, give up; 0: none."""
        return self.tolerance if self.minimize in ("days_to_train", "loss") else 0.0

    @property
    def in_days(self) -> bool:
        """Whether the objective of an instance is the fewest days, from the first of training or from the decision."""
        return self.minimize in ("days_to_train", "finish_date")

    @property
    def in_dollars(self) -> bool:
        """Whether the objective of an instance is in dollars."""
        return self.minimize in ("cost_usd", "total_cost_of_ownership_usd")


class Limits(Sourced):
    """The limits of an instance, which the whole plan must keep; a limit that is absent does not bind."""

    budget_usd: Positive | None = Field(None, description="Limit on capital and the counted years of operation.")
    operation_years: NonNegative | None = Field(
        None,
        description="Years of operation counted into the total and the budget (absent: none), and into the section "
        "`run` (absent: the run itself).",
    )
    facility_power_mw: Positive | None = Field(None, description="Most power all sites may draw, overhead included.")
    deadline_days: Positive | None = Field(None, description="Longest time to train.")
    max_batch_tokens: Positive | None = Field(None, description="Critical batch: most tokens of an optimiser step.")
    memory_reserve_fraction: Annotated[float, Field(ge=0, lt=1)] = Field(0.05, description="Share of HBM kept free.")

    @property
    def budgeted_years(self) -> float:
        """Years of operation that an instance's limits count against the budget, as a user gives them: 0 if absent."""
        return self.operation_years or 0.0


class Operation(Sourced):
    """Costs of operation that a user gives in an instance, without energy priced by a grid; absent: not counted."""

    maintenance_share_per_year: NonNegative | None = Field(
        None, description="Upkeep of racks and fabric in a year, as a share of their price; absent: not counted."
    )
    staff_usd_per_year: NonNegative | None = Field(None, description="Staff of all sites; absent: not counted.")
    fabric_life_years: Positive | None = Field(
        None, description="After which the fabric is replaced at its price; absent: never within the run."
    )
    energy_usd_per_mwh: NonNegative | None = Field(
        None, description="Price of energy where no grid gives one; absent: not known."
    )
    carbon_kg_per_mwh: NonNegative | None = Field(
        None, description="CO2 of a MWh where no grid gives one; absent: not known."
    )


class Instance(Sourced, json_schema_extra=with_schema):
    """An instance: one planning question; a part that is missing is a decision that is not to be taken."""

    schema_version: SchemaVersion = Field(3, description="Of this format; 3. A file of version 2 is read as one of 3.")
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
    reliability: Annotated[Reliability, Named("reliability")] | None = Field(
        None, description="Failures and what they cost, inline or by catalogue name; absent: none is counted."
    )
    operation: Operation | None = Field(
        None, description="What running it costs; absent: the energy of the grid alone."
    )
    pins: dict[str, Any] = Field(default_factory=dict, description="Decisions fixed by hand, by dotted path.")


AnyAccelerator = Annotated[Accelerator | Literal["any"], Named("accelerators", other=ANY_ACCELERATOR)]


class FabricHardware(Hardware):
    """The hardware of an instance about a fabric alone: hosts, and a GPU or the rate of any GPU's NIC."""

    accelerator: AnyAccelerator = Field(  # type: ignore[assignment]
        description="The GPU, inline or by catalogue name, or any."
    )

    def _faults(self) -> Iterator[str]:
        if self.accelerator == ANY_ACCELERATOR and self.nic_bytes_per_second is None:
            yield 'accelerator "any" says no rate of a NIC; add nic_bytes_per_second'


class FabricInstance(Instance):
    """An instance about the fabric of one cluster alone: hosts, switches and rules, and no model to train.

    A rack of `hardware` is a host here, or whatever unit is cabled as one.
    """

    # What reads a workload or an accelerator is never given a fabric alone.
    workload: None = Field(default=None, description="None: nothing is trained.")  # type: ignore[assignment]
    hardware: FabricHardware = Field(description="Hosts and the rate of their NICs.")


def instance_sha256(instance: Instance | Mapping[str, Any]) -> str:
    """Return the SHA-256 of an instance's JSON with sorted keys and no spaces; of data as they are."""
    data = instance.model_dump(mode="json") if isinstance(instance, Instance) else instance
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


ONE_SITE = "cluster"  # the site of an instance without a grid
