"""What comes back: decisions, their metrics and certificates, the whole run, the curve of money against days.

A plan is also one flat page: figures by dotted name, its decisions in short, and where two plans decide otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    Field,
    SerializeAsAny,
    ValidationError,
    WrapValidator,
    model_validator,
)

from planner.instance.base import Frozen, SchemaVersion
from planner.instance.instance import FabricInstance, Instance, instance_sha256
from planner.instance.workload import ModelChoice
from planner.plan import view
from planner.plan.certificate import Certificate, Conflict, JointProof, ObjectiveValue, Status, Violation
from planner.plan.plan_sections import (
    FabricPlan,
    LayoutPlan,
    PlacementPlan,
    PoolsPlan,
    ReliabilityPlan,
    SitesPlan,
    TransportFactor,
    WanPlan,
)
from planner.units import counted

if TYPE_CHECKING:
    from pydantic import BaseModel


class SiteRun(Frozen):
    """What one site draws over the counted years."""

    facility_mw: float = Field(description="Drawn all the time, overhead included.")
    energy_mwh: float = Field(description="Over the counted years.")
    usd_per_mwh: float | None = Field(None, description="Price of energy; absent: not known.")
    energy_usd: float | None = Field(None, description="Energy at that price; absent: not known.")
    carbon_tonnes: float | None = Field(None, description="CO2 of the energy; absent: not known.")


class YearRun(Frozen):
    """One year of operation; the last may be a part of one."""

    years: float = Field(description="1, or the part of the last year that is counted.")
    energy_mwh: float = Field(description="Drawn by all sites.")
    usd: dict[str, float] = Field(description="Spent in it, by part, without the capital.")


class RunPlan(Frozen):
    """The whole run in energy, money and carbon; dollars of today, not discounted."""

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
    """A plan on the curve, in short."""

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
    """Return the knee of a curve whose ends and knee have proven bounds; None where a bound is missing: it may move."""
    knee = next((point for point in points if point.knee), None)
    known = knee is not None and all(x.bound_days is not None for x in (points[0], knee, points[-1]))
    return knee if known else None


class Curve(Frozen):
    """The curve of an instance in a box of money and days."""

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


__all__ = ["Curve", "CurvePoint", "proven_knee"]


class Cost(Frozen):
    """What the plan costs."""

    capex_usd: dict[str, float] = Field(description="Capital by part, in dollars.")
    opex_usd_per_year: dict[str, float] = Field(description="A year's operation by part, in dollars.")
    operation_years: float = Field(description="Years of operation counted into the total.")
    total_usd: float = Field(description="Capital and the counted years of operation, in dollars.")


def _of_its_kind(data: Any, validate: Callable[[Any], Instance]) -> Instance:
    """Read an instance without a workload as the question about a fabric that it is."""
    alone = isinstance(data, Mapping) and data.get("workload") is None and data.get("network") is not None
    return FabricInstance.model_validate(data) if alone else validate(data)


class Plan(Frozen):
    """A self-contained answer: the instance as solved, the decisions and the proofs."""

    schema_version: SchemaVersion = Field(3, description="Of this format; 3. A file of version 2 is read as one of 3.")
    planner_version: str = Field(description="That made the plan.")
    instance: Annotated[SerializeAsAny[Instance], WrapValidator(_of_its_kind)] = Field(
        description="As it was solved, names of the catalogue resolved; no workload where a fabric alone was asked."
    )
    instance_sha256: str = Field(description="Of the instance's JSON with sorted keys and no spaces.")
    status: Status = Field(
        description="optimal, infeasible: by proof; feasible: a plan without one; unknown: none yet."
    )
    objective: ObjectiveValue = Field(description="The figure of merit and what is proven of it.")
    sites: SitesPlan | None = Field(None, description="Where sites stand; null where the instance has no grid.")
    wan: WanPlan | None = Field(
        None,
        description="Where instance.wan asks for its design and two sites are open; else sites.links is an estimate.",
    )
    layout: LayoutPlan | None = Field(None, description="How a step is divided over GPUs.")
    pools: PoolsPlan | None = Field(None, description="In place of layout, for pools of different GPUs.")
    fabric: FabricPlan | None = Field(None, description="Switches and links of every site; null without a network.")
    transport: TransportFactor | None = Field(None, description="Where the slowdown is simulated.")
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
        """Hash the instance anew under the keys of today, where the plan states the hash of those in the file."""
        if not isinstance(data, Mapping) or not isinstance(data.get("instance"), dict):
            return data
        if data.get("instance_sha256") != instance_sha256(data["instance"]):
            return data
        try:
            instance = _of_its_kind(data["instance"], Instance.model_validate)
            return {**data, "instance_sha256": instance_sha256(instance)}
        except ValidationError:
            return data  # refused below, under its own path

    def summary(self, *, verbose: bool = False) -> str:
        """Write the plan on one screen, as `planner show` prints it; `verbose`: all that it says."""
        return str(view("summary")(self, verbose=verbose))

    def to_frame(self) -> Any:
        """Return the plan's figures as a pandas DataFrame of one row, named as the columns of a sweep's rows."""
        return view("to_frame")(self)

    def plot_step(self, *, ax: Any = None) -> Any:
        """Draw the parts of a training step on matplotlib axes, those given or new ones; return the axes."""
        return view("plot_step")(self, ax=ax)

    def plot_memory(self, *, ax: Any = None) -> Any:
        """Draw what the worst GPU holds on matplotlib axes, those given or new ones; return the axes."""
        return view("plot_memory")(self, ax=ax)

    def plot_cost(self, *, ax: Any = None) -> Any:
        """Draw the capital by part on matplotlib axes, those given or new ones; return the axes."""
        return view("plot_cost")(self, ax=ax)

    def plot_sites(self, *, ax: Any = None) -> Any:
        """Draw the sites on a map on matplotlib axes, those given or new ones; return the axes."""
        return view("plot_sites")(self, ax=ax)

    @property
    def counted_usd(self) -> float:
        """The total of the bill as the budget counts it: with a year of the soft rules that are broken; 0 without."""
        return 0.0 if self.cost is None else self.cost.total_usd + (self.sites.excess_usd if self.sites else 0.0)

    def _repr_html_(self) -> str:
        return str(view("_repr_html_")(self))


Row = Mapping[str, Any]  # figures by dotted name, of `planner.plan.plan.digest` or of a sweep
FABRIC_SITES, TIERS = "fabric.sites.", ".tiers."
ORDINALS = ("a first", "a second", "a third", "a fourth", "a fifth", "a sixth")


def sites_of(row: Row) -> tuple[str, ...]:
    """Return the open sites of a row."""
    return tuple(sorted(name for name, racks in _named(row, "sites.sites.", ".racks") if racks))


def _named(row: Row, front: str, end: str) -> Iterator[tuple[str, Any]]:
    for path, value in row.items():
        if path.startswith(front) and path.endswith(end):
            yield path[len(front) : -len(end)], value


def _strategy(row: Row) -> str | None:
    kinds = [("TP", "tensor"), ("CP", "context"), ("EP", "expert"), ("PP", "pipeline")]
    degrees = [(mark, row.get(f"layout.{kind}_parallel")) for mark, kind in kinds]
    parts = [f"{mark} {size}" for mark, size in degrees if size is not None and (size != 1 or mark in ("TP", "PP"))]
    virtual = row.get("layout.virtual_stages")
    if parts and virtual not in (None, 1):
        parts.append(f"v{virtual}")
    return " ".join(parts) or None


def _fabric_in_short(row: Row) -> str | None:
    """Return tiers and planes; of several sites each form once, the one with most tiers first."""
    planes = dict(_named(row, FABRIC_SITES, ".planes"))
    tiers: dict[str, set[str]] = {}
    for path in row:
        if path.startswith(FABRIC_SITES) and TIERS in path:
            site, _, rest = path.removeprefix(FABRIC_SITES).partition(TIERS)
            tiers.setdefault(site, set()).add(rest.partition(".")[0])
    forms = {(-len(tiers.get(site, ())), str(planes.get(site, ""))) for site in {*tiers, *planes}}
    texts = []
    for minus_tiers, count in sorted(forms):
        parts = [counted(-minus_tiers, "tier")] if minus_tiers else []
        parts += [f"{count} plane{'' if count == '1' else 's'}"] if count not in ("", "0") else []
        texts.append(", ".join(parts))
    return " / ".join(texts) or None


def _lines(row: Row) -> str | None:
    built = [f"{name} x{count}" for name, count in sorted(_named(row, "sites.new_lines.", ".circuits")) if count]
    return " + ".join(built) or ("none" if sites_of(row) else None)


def _model(row: Row) -> str | None:
    layers = row.get("model_choice.layers") or row.get("workload.model.layers")
    return None if layers is None else f"{layers} layers"


MEMORY = {"layout.zero_stage": "ZeRO-", "layout.recompute": "recompute "}
LANES: dict[str, Callable[[Row], str | None]] = {
    "sites": lambda row: " + ".join(sites_of(row)) or None,
    "new lines": _lines,
    "GPU": lambda row: row.get("layout.accelerator") or None,
    "model": _model,
    "layout": _strategy,
    "memory": lambda row: ", ".join(f"{x}{row[k]}" for k, x in MEMORY.items() if row.get(k) is not None) or None,
    "fabric": _fabric_in_short,
}


def changed_decisions(before: Row, after: Row) -> dict[str, str]:
    """Describe by lane what one plan decides otherwise than the one before it: `a third site opens: palo-verde`."""
    changed = {}
    for name, decision in LANES.items():
        old, new = decision(before), decision(after)
        if old is None or new is None or old == new:
            continue
        sites = name == "sites"
        changed[name] = _sites_change(sites_of(before), sites_of(after)) if sites else f"{name} {old} becomes {new}"
    return changed


def _sites_change(old: Sequence[str], new: Sequence[str]) -> str:
    opened, closed = [site for site in new if site not in old], [site for site in old if site not in new]
    if len(opened) == 1 and not closed:
        rank = ORDINALS[len(new) - 1] if len(new) <= len(ORDINALS) else f"one more (of {len(new)})"
        return f"{rank} site opens: {opened[0]}"
    verbs = ((opened, "open"), (closed, "close"))
    parts = [(sites, verb if len(sites) > 1 else f"{verb}s") for sites, verb in verbs if sites]
    return " and ".join(f"{', '.join(sites)} {verb}" for sites, verb in parts)


Figure = str | float | int | bool | None
PROOF = ("status", "objective", "bound", "gap", "binding")  # of a certificate
SITE = ("racks", "gpus", "facility_mw")  # of a site
LINK = ("required_gbps", "wavelengths", "rtt_ms")
FABRIC = (
    "planes",
    "ports_per_switch",
    "switches",
    "switch_links",
    "cost_usd",
    "power_mw",
    "leaf_domain_racks",
    "p2p_seconds",
    "pipeline_send_slowdown",
)


def digest(plan: Plan) -> dict[str, Figure]:
    """Return a plan's figures by dotted name, entries of lists by id, with totals and what each limit leaves unused."""
    return {name: value for name, value in _figures(plan) if value is not None}


def _figures(plan: Plan) -> Iterator[tuple[str, Figure]]:
    if plan.sites is not None:
        yield from _sites(plan.sites)
    if plan.layout is not None:
        yield from _layout(plan.layout)
    if plan.fabric is not None:
        yield from _fabric(plan.fabric)
    if plan.placement is not None:
        yield from _scalars("placement", plan.placement)
        yield from _proof("placement", plan.placement.certificate)
    if plan.reliability is not None:
        yield from _scalars("reliability", plan.reliability)
        for name in ("spare_racks_by_site", "lost_days"):
            stated = sorted(getattr(plan.reliability, name).items())
            yield from ((f"reliability.{name}.{key}", value) for key, value in stated)
    if plan.cost is not None:
        yield "cost.total_usd", plan.cost.total_usd
        for part, usd in sorted(plan.cost.capex_usd.items()):
            yield f"cost.capex_usd.{part}", usd
        for part, usd in sorted(plan.cost.opex_usd_per_year.items()):
            yield f"cost.opex_usd_per_year.{part}", usd
    if plan.run is not None:
        yield from _run(plan.run)
    yield from _slack(plan)


def _scalars(where: str, part: "BaseModel") -> Iterator[tuple[str, Figure]]:
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, (str, float, int)):
            yield f"{where}.{name}", value


def _proof(where: str, certificate: Certificate) -> Iterator[tuple[str, Figure]]:
    for name in PROOF:
        value: Any = getattr(certificate, name)
        yield f"{where}.certificate.{name}", "; ".join(value) if isinstance(value, tuple) else value


def _sites(sites: SitesPlan) -> Iterator[tuple[str, Figure]]:
    yield "sites.count", len(sites.sites)
    yield "sites.racks", sum(site.racks for site in sites.sites)
    yield "sites.facility_mw", sum(site.facility_mw for site in sites.sites)
    for site in sites.sites:
        yield from ((f"sites.sites.{site.id}.{name}", getattr(site, name)) for name in SITE)
    for link in sites.links:
        yield from ((f"sites.links.{link.a}-{link.b}.{name}", getattr(link, name)) for name in LINK)
    for line in sites.new_lines:
        yield f"sites.new_lines.{line.line}.circuits", line.circuits
    yield from _proof("sites", sites.certificate)


def _layout(layout: LayoutPlan) -> Iterator[tuple[str, Figure]]:
    yield from _scalars("layout", layout)
    for site, replicas in sorted(layout.data_parallel_by_site.items()):
        yield f"layout.data_parallel_by_site.{site}", replicas
    yield "layout.layers_per_stage", runs(layout.layers_per_stage)
    yield "layout.recomputed_layers_per_stage", runs(layout.recomputed_layers_per_stage) or None
    yield from _scalars("layout.assumptions", layout.assumptions)
    yield from _scalars("layout.metrics", layout.metrics)
    for end, days in zip(("low", "high"), layout.metrics.days_to_train_interval, strict=True):
        yield f"layout.metrics.days_to_train_interval.{end}", days
    for part, seconds in sorted(layout.metrics.breakdown_seconds.items()):
        yield f"layout.metrics.breakdown_seconds.{part}", seconds
    yield from _proof("layout", layout.certificate)


def runs(counts: tuple[int, ...]) -> str:
    """Write a list of counts shortly: `3x2 1` is 2 2 2 1."""
    parts = ((len(list(alike)), count) for count, alike in groupby(counts))
    return " ".join(f"{times}x{count}" if times > 1 else str(count) for times, count in parts)


def _fabric(fabric: FabricPlan) -> Iterator[tuple[str, Figure]]:
    yield "fabric.switches", sum(site.switches for site in fabric.sites.values())
    yield "fabric.switch_links", sum(site.switch_links for site in fabric.sites.values())
    yield "fabric.cost_usd", sum(site.cost_usd for site in fabric.sites.values())
    yield "fabric.power_mw", sum(site.power_mw for site in fabric.sites.values())
    for site, built in sorted(fabric.sites.items()):
        yield from ((f"fabric.sites.{site}.{name}", getattr(built, name)) for name in FABRIC)
        for tier, name in zip(built.tiers, built.models, strict=True):
            model = f" {name}" if name != built.switch else ""
            yield (
                f"fabric.sites.{site}.tiers.{tier.name}",
                f"{tier.switches} of {tier.down_ports}/{tier.up_ports}{model}",
            )
        if built.wan_gateway is not None:
            ports = f"{built.wan_gateway.switches} with {built.wan_gateway.wan_ports} ports"
            yield f"fabric.sites.{site}.wan_gateway", ports
    yield from _proof("fabric", fabric.certificate)


def _run(plan: RunPlan) -> Iterator[tuple[str, Figure]]:
    yield from _scalars("run", plan)
    for part, usd in sorted(plan.usd.items()):
        yield f"run.usd.{part}", usd
    for name, times in sorted(plan.replacements.items()):
        yield f"run.replacements.{name}", times
    yield "run.not_counted", "; ".join(plan.not_counted) or None


def _slack(plan: Plan) -> Iterator[tuple[str, Figure]]:
    limits = plan.instance.limits
    if plan.cost is not None and limits.budget_usd is not None:
        yield "slack.budget_usd", limits.budget_usd - plan.cost.total_usd
    if plan.sites is not None and limits.facility_power_mw is not None:
        yield "slack.facility_power_mw", limits.facility_power_mw - sum(site.facility_mw for site in plan.sites.sites)
    if plan.layout is not None:
        metrics = plan.layout.metrics
        yield "slack.memory_bytes_per_gpu", metrics.memory_limit_bytes - metrics.memory_bytes_per_gpu
        if limits.deadline_days is not None:
            yield "slack.deadline_days", limits.deadline_days - metrics.days_to_train
        if limits.max_batch_tokens is not None:
            yield "slack.batch_tokens", limits.max_batch_tokens - metrics.tokens_per_step
