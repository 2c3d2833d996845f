"""The plan: decisions, metrics, certificates, the run and the curve; also flat, as figures by dotted name."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator

from planner.instance.base_types import Frozen, SchemaVersion
from planner.instance.catalogue_entries import IN_FULL
from planner.instance.instance import FabricInstance, Instance, instance_sha256
from planner.instance.scaling_law import ModelChoice
from planner.plan import VIEWS, plan_sections
from planner.plan.certificate import Conflict, JointProof, ObjectiveValue, Status, Violation
from planner.plan.plan_sections import FabricPlan, LayoutPlan, PlacementPlan, PoolsPlan, ReliabilityPlan, SitesPlan


class SiteRun(Frozen):
    """Energy, money and carbon of one site in a plan's run section, over the counted years."""

    facility_mw: float = Field(description="Drawn all the time, overhead included.")
    energy_mwh: float = Field(description="Over the counted years.")
    usd_per_mwh: float | None = Field(None, description="Price of energy; absent: not known.")
    energy_usd: float | None = Field(None, description="Energy at that price; absent: not known.")
    carbon_tonnes: float | None = Field(None, description="CO2 of the energy; absent: not known.")


class YearRun(Frozen):
    """Energy and money of one year in a plan's run section; the last may be a part of one."""

    years: float = Field(description="1, or the part of the last year that is counted.")
    energy_mwh: float = Field(description="Drawn by all sites.")
    usd: dict[str, float] = Field(description="Spent in it, by part, without the capital.")


class RunPlan(Frozen):
    """The run section of a plan: the whole run in energy, money and carbon; dollars of today, not discounted."""

    days: float = Field(description="Days to train on a calendar.")
    years: float = Field(description="Of operation that are counted: limits.operation_years, else the run itself.")
    replacements: dict[str, int] = Field(description="Times that all racks (or a pool's) and the fabric are replaced.")
    usd: dict[str, float] = Field(description="Capital and each part of operation over the counted years.")
    total_cost_of_ownership_usd: float = Field(description="Sum of usd.")
    usd_per_million_tokens: float = Field(description="Total cost of ownership over the tokens of the training.")
    energy_mwh: float = Field(description="Drawn by all sites over the counted years.")
    energy_joules_per_token: float = Field(description="Drawn by all sites over the days to train, by token.")
    carbon_tonnes: float | None = Field(None, description="CO2 of the energy; absent: a site's is not known.")
    sites: dict[str, SiteRun] = Field(description="By site; `cluster` without a grid.")
    by_year: tuple[YearRun, ...] = Field(description="The counted years one by one, of a longer run the first 100.")
    not_counted: tuple[str, ...] = Field((), description="What would add to it and is not known, by key.")


class CurvePoint(Frozen):
    """A point of the curve that a plan holds: another plan for its money and days, in short."""

    days_to_train: float = Field(description="Days to train, failures included where they count.")
    capital_usd: float = Field(description="Its capital as the budget counts it.")
    bound_days: float | None = Field(
        description="No plan of at most this capital trains in fewer days; null where that is not proven."
    )
    layout: str = Field(description="The layout in short.")
    racks: int = Field(description="Racks bought.")
    racks_by_site: dict[str, int] = Field(description="Racks bought at each site.")
    mfu: float = Field(description="Model FLOP utilisation of all GPUs at work.")
    idle_gpus: int = Field(description="GPUs that are bought and do not work.")
    changes: tuple[str, ...] = Field(
        (), description="What else is decided otherwise than at the point before: sites, lines, memory, fabric."
    )
    asked: bool = Field(False, description="Whether this is the plan that the curve is drawn around.")
    knee: bool = Field(
        False, description="Whether the curve bends here: up to it money saves more days than behind it."
    )


def proven_knee(points: Sequence[CurvePoint]) -> CurvePoint | None:
    """Return the knee of a plan's curve whose ends and knee have proven bounds; None: a bound is missing."""
    knee = next((point for point in points if point.knee), None)
    return knee if knee is not None and all(x.bound_days is not None for x in (points[0], knee, points[-1])) else None


class Curve(Frozen):
    """The curve section of a plan: the best plans of its instance by money and days, in a box of both."""

    points: tuple[CurvePoint, ...] = Field(description="Capital ascending, days descending; none beats another.")
    epsilon: float | None = Field(
        description="For every plan of the box some point is at most this share worse in days and in capital, proven; "
        "null where nothing is."
    )
    most_usd: float | None = Field(description="Most capital of the box; null: no limit.")
    least_usd: float | None = Field(
        None, description="Plans of less capital are outside the box; null: they are in it."
    )
    none_below_usd: float | None = Field(
        None, description="No plan of at most this capital keeps all rules; null where that is not proven of any."
    )
    slowest_days: float | None = Field(description="Plans as slow or slower are outside the box; null: not fixed yet.")
    stopped: str = Field(description="Why the search ended: proved (at the epsilon asked for), limit or interrupted.")


class Cost(Frozen):
    """The cost section of a plan, by its parts."""

    capex_usd: dict[str, float] = Field(description="Capital by part, in dollars.")
    opex_usd_per_year: dict[str, float] = Field(description="A year's operation by part, in dollars.")
    operation_years: float = Field(description="Years of operation counted into the total.")
    total_usd: float = Field(description="Capital and the counted years of operation, in dollars.")


def _in_full(data: Any) -> Instance:
    """Read the instance of a plan with every part in full; one without a workload is a question about a fabric."""
    alone = isinstance(data, Mapping) and data.get("workload") is None and data.get("network") is not None
    return (FabricInstance if alone else Instance).model_validate(data, context=IN_FULL)


class Plan(Frozen):
    """A plan: a self-contained answer with the instance as solved, the decisions and the proofs."""

    schema_version: SchemaVersion = Field(3, description="Of this format; 3. A file of version 2 is read as one of 3.")
    planner_version: str = Field(description="That made the plan.")
    instance: Annotated[SerializeAsAny[Instance], BeforeValidator(_in_full)] = Field(
        description="As it was solved, names of the catalogue resolved; no workload where a fabric alone was asked."
    )
    instance_sha256: str = Field(description="Of the instance's JSON with sorted keys and no spaces.")
    status: Status = Field(
        description="optimal, infeasible: by proof; feasible: a plan without one; unknown: none yet."
    )
    objective: ObjectiveValue = Field(description="The figure of merit and what is proven of it.")
    sites: SitesPlan | None = Field(None, description="Where sites stand; null where the instance has no grid.")
    wan: plan_sections.WanPlan | None = Field(
        None,
        description="Where instance.wan asks for its design and two sites are open; else sites.links is an estimate.",
    )
    layout: LayoutPlan | None = Field(None, description="How a step is divided over GPUs.")
    pools: PoolsPlan | None = Field(None, description="In place of layout, for pools of different GPUs.")
    fabric: FabricPlan | None = Field(None, description="Switches and links of every site; null without a network.")
    transport: plan_sections.TransportFactor | None = Field(None, description="Where the slowdown is simulated.")
    placement: PlacementPlan | None = Field(None, description="Which racks carry which stage; null without a network.")
    reliability: ReliabilityPlan | None = Field(None, description="Where the instance counts failures.")
    cost: Cost | None = Field(None, description="The bill.")
    run: RunPlan | None = Field(None, description="The whole run: energy, money and carbon until it ends.")
    model_choice: ModelChoice | None = Field(None, description="Where the model was chosen.")
    curve: Curve | None = Field(None, description="What less money buys, where that was asked for.")
    proof: JointProof | None = Field(
        None, description="What the bound rests on in addition to physics, for days to train."
    )
    conflict: Conflict | None = Field(None, description="Why there is no plan.")
    stopped: Literal["proved", "gap", "limit", "interrupted"] = Field(
        "proved",
        description="Why the run ended: the proof, a gap that was asked for or that the search cannot close, the limit "
        "of time, or a signal.",
    )
    threads: int = Field(1, description="Of the solvers.")
    seed: int = Field(0, description="Of the solvers.")
    time_limit_seconds: float | None = Field(None, description="That was asked for; null: none.")
    verified: bool | None = Field(
        None,
        description="Whether the checker agreed when the plan was made; null: not checked, such as a layout by hand.",
    )
    violations: tuple[Violation, ...] = Field(
        (), description="Where verified is false: the rules that the checker says the plan breaks."
    )

    @model_validator(mode="before")
    @classmethod
    def _of_older_keys(cls, data: Any) -> Any:
        """Hash the instance of a plan file anew under today's keys, if the file states the hash under its own keys."""
        if not isinstance(data, Mapping) or not isinstance(data.get("instance"), dict):
            return data
        if data.get("instance_sha256") != instance_sha256(data["instance"]):
            return data
        try:
            return {**data, "instance_sha256": instance_sha256(_in_full(data["instance"]))}
        except ValidationError:
            return data  # refused below, under its own path

    def summary(self, *, verbose: bool = False) -> str:
        """Have the reports write this plan on one screen, as `planner show` prints it; `verbose`: all that it says."""
        return str(VIEWS["summary"](self, verbose=verbose))

    def to_frame(self) -> Any:
        """Return this plan's figures as a pandas DataFrame of one row, named as the columns of a sweep's rows."""
        return VIEWS["to_frame"]([self])

    def plot_step(self, *, ax: Any = None) -> Any:
        """Have the reports draw the parts of this plan's step on matplotlib axes, given or new; return the axes."""
        return VIEWS["plot"](self, "plot_step", ax)

    def plot_memory(self, *, ax: Any = None) -> Any:
        """Have the reports draw this plan's fullest GPU's memory on matplotlib axes, given or new; return the axes."""
        return VIEWS["plot"](self, "plot_memory", ax)

    def plot_cost(self, *, ax: Any = None) -> Any:
        """Have the reports draw this plan's capital by part on matplotlib axes, given or new; return the axes."""
        return VIEWS["plot"](self, "plot_cost", ax)

    def plot_sites(self, *, ax: Any = None) -> Any:
        """Have the reports draw this plan's sites on a map on matplotlib axes, given or new; return the axes."""
        return VIEWS["plot"](self, "plot_sites", ax)

    @property
    def counted_usd(self) -> float:
        """Dollars of this plan as the budget counts them: its bill and a year of broken soft rules; 0 without bill."""
        return 0.0 if self.cost is None else self.cost.total_usd + (self.sites.excess_usd if self.sites else 0.0)

    def _repr_html_(self) -> str:
        return str(VIEWS["html"](self))


def as_asked(instance: Instance | FabricInstance) -> dict[str, Any]:
    """Return the fields of a plan that state its question: its instance and the hash of that."""
    return {"instance": instance, "instance_sha256": instance_sha256(instance)}
