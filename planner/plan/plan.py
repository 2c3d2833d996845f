"""The plan: decisions, metrics, certificates, the run and the curve; also flat, as figures by dotted name."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator

from planner.instance.base_types import Frozen, SchemaVersion
from planner.instance.catalogue_entries import IN_FULL
from planner.instance.instance import FabricInstance, Instance, instance_sha256
from planner.instance.scaling_law import ModelChoice
from planner.plan import VIEWS, plan_sections
from planner.plan.certificate import Conflict, JointProof, ObjectiveValue, Status, Violation
from planner.plan.plan_sections import FabricPlan, LayoutPlan, PlacementPlan, PoolsPlan, ReliabilityPlan, SitesPlan
from planner.units import counted


class SiteRun(Frozen):
    """Energy, money and carbon of one site of a plan over the counted years."""

    facility_mw: float = Field(description="Drawn all the time, overhead included.")
    energy_mwh: float = Field(description="Over the counted years.")
    usd_per_mwh: float | None = Field(None, description="Price of energy; absent: not known.")
    energy_usd: float | None = Field(None, description="Energy at that price; absent: not known.")
    carbon_tonnes: float | None = Field(None, description="CO2 of the energy; absent: not known.")


class YearRun(Frozen):
    """Energy and money of one year of a plan's operation; the last may be a part of one."""

    years: float = Field(description="1, or the part of the last year that is counted.")
    energy_mwh: float = Field(description="Drawn by all sites.")
    usd: dict[str, float] = Field(description="Spent in it, by part, without the capital.")


class RunPlan(Frozen):
    """The whole run of a plan in energy, money and carbon; dollars of today, not discounted."""

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
    """A plan on the curve of money against days, in short."""

    days_to_train: float = Field(description="Days to train, failures included where they count.")
    capital_usd: float = Field(description="Its capital as the budget counts it.")
    bound_days: float | None = Field(description="No plan of at most this capital has fewer days; null: not proven.")
    layout: str = Field(description="The layout in short.")
    racks: int = Field(description="Racks bought.")
    racks_by_site: dict[str, int] = Field(description="Racks bought at each site.")
    mfu: float = Field(description="Model FLOP utilisation of all GPUs at work.")
    idle_gpus: int = Field(description="GPUs that are bought and do not work.")
    changes: tuple[str, ...] = Field(
        (), description="What else is decided otherwise than at the point before: sites, lines, memory, fabric."
    )
    asked: bool = Field(False, description="Whether this is the plan that the curve is drawn around.")
    knee: bool = Field(False, description="Whether the curve bends here: up to it money saves more days than after.")


def proven_knee(points: Sequence[CurvePoint]) -> CurvePoint | None:
    """Return the knee of a curve whose ends and knee have proven bounds; None where a bound is missing: it may move."""
    knee = next((point for point in points if point.knee), None)
    known = knee is not None and all(x.bound_days is not None for x in (points[0], knee, points[-1]))
    return knee if known else None


class Curve(Frozen):
    """The curve of money against days of an instance, in a box of both."""

    points: tuple[CurvePoint, ...] = Field(description="Capital ascending, days descending; none beats another.")
    epsilon: float | None = Field(
        description="For every plan of the box some point is at most this share worse in days and in capital, proven; "
        "null where nothing is."
    )
    most_usd: float | None = Field(description="Most capital of the box; null: no limit.")
    least_usd: float | None = Field(None, description="Plans of less capital are outside the box; null: in it.")
    none_below_usd: float | None = Field(
        None, description="No plan of at most this capital keeps all rules; null where that is not proven of any."
    )
    slowest_days: float | None = Field(description="Plans as slow or slower are outside the box; null: not fixed yet.")
    stopped: str = Field(description="Why the search ended: proved (at the epsilon asked for), limit or interrupted.")


class Cost(Frozen):
    """The cost of a plan by its parts."""

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
    status: Status = Field(description="optimal, infeasible: by proof; feasible: without one; unknown: no plan yet.")
    objective: ObjectiveValue = Field(description="The figure of merit and what is proven of it.")
    sites: SitesPlan | None = Field(None, description="Where sites stand; null where the instance has no grid.")
    wan: plan_sections.WanPlan | None = Field(
        None, description="Where instance.wan asks for a design and two sites are open; else sites.links estimates it."
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
    proof: JointProof | None = Field(None, description="What the bound on days to train rests on besides physics.")
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
        None, description="Whether the checker agreed when the plan was made; null: not checked, as a layout by hand."
    )
    violations: tuple[Violation, ...] = Field((), description="Rules that the checker says the plan breaks.")

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
        """Write the plan on one screen, as `planner show` prints it; `verbose`: all that it says."""
        return str(VIEWS["summary"](self, verbose=verbose))

    def to_frame(self) -> Any:
        """Return the plan's figures as a pandas DataFrame of one row, named as the columns of a sweep's rows."""
        return VIEWS["to_frame"]([self])

    def plot_step(self, *, ax: Any = None) -> Any:
        """Draw the parts of the plan's training step on matplotlib axes, those given or new ones; return the axes."""
        return VIEWS["plot"](self, "plot_step", ax)

    def plot_memory(self, *, ax: Any = None) -> Any:
        """Draw what the plan's worst GPU holds on matplotlib axes, those given or new ones; return the axes."""
        return VIEWS["plot"](self, "plot_memory", ax)

    def plot_cost(self, *, ax: Any = None) -> Any:
        """Draw the plan's capital by part on matplotlib axes, those given or new ones; return the axes."""
        return VIEWS["plot"](self, "plot_cost", ax)

    def plot_sites(self, *, ax: Any = None) -> Any:
        """Draw the plan's sites on a map on matplotlib axes, those given or new ones; return the axes."""
        return VIEWS["plot"](self, "plot_sites", ax)

    @property
    def counted_usd(self) -> float:
        """Dollars of the plan as the budget counts them: the bill and a year of broken soft rules; 0 without a bill."""
        return 0.0 if self.cost is None else self.cost.total_usd + (self.sites.excess_usd if self.sites else 0.0)

    def _repr_html_(self) -> str:
        return str(VIEWS["html"](self))


Row = Mapping[str, Any]  # figures by dotted name, of `planner.plan.plan.digest` or of a sweep
FABRIC_SITES, TIERS = "fabric.sites.", ".tiers."
ORDINALS = ("a first", "a second", "a third", "a fourth", "a fifth", "a sixth")
LANES = ("sites", "new lines", "GPU", "model", "layout", "memory", "fabric")
Figure = str | float | int | bool | None
PROOF = ("status", "objective", "bound", "gap", "binding")  # of a certificate


def _named(row: Row, front: str, end: str) -> list[tuple[str, Any]]:
    ends = (path for path in row if path.startswith(front) and path.endswith(end))
    return sorted((path[len(front) : -len(end)], row[path]) for path in ends)


def _open_sites(row: Row) -> list[str]:
    return [name for name, racks in _named(row, "sites.sites.", ".racks") if racks]


def decisions_of(row: Row) -> dict[str, str]:
    """Return in short what a plan's row of figures decides, by lane; a lane of which it says nothing is left out."""
    sites = _open_sites(row)
    lines = [f"{name} x{count}" for name, count in _named(row, "sites.new_lines.", ".circuits") if count]
    layers = row.get("model_choice.layers") or row.get("workload.model.layers")
    kinds = [("TP", "tensor"), ("CP", "context"), ("EP", "expert"), ("PP", "pipeline")]
    degrees = [(mark, row.get(f"layout.{kind}_parallel")) for mark, kind in kinds]
    layout = [f"{mark} {size}" for mark, size in degrees if size is not None and (size != 1 or mark in ("TP", "PP"))]
    if layout and (virtual := row.get("layout.virtual_stages")) not in (None, 1):
        layout.append(f"v{virtual}")
    memory = {"layout.zero_stage": "ZeRO-", "layout.recompute": "recompute "}
    # Tiers and planes of the fabric; of several sites each form once, the one with most tiers first.
    planes, tiers = dict(_named(row, FABRIC_SITES, ".planes")), dict[str, set[str]]()
    for path in row:
        if path.startswith(FABRIC_SITES) and TIERS in path:
            site, _, rest = path.removeprefix(FABRIC_SITES).partition(TIERS)
            tiers.setdefault(site, set()).add(rest.partition(".")[0])
    fabrics = []
    for minus_tiers, count in sorted({(-len(tiers.get(x, ())), str(planes.get(x, ""))) for x in {*tiers, *planes}}):
        parts = [counted(-minus_tiers, "tier")] if minus_tiers else []
        parts += [f"{count} plane{'' if count == '1' else 's'}"] if count not in ("", "0") else []
        fabrics.append(", ".join(parts))
    texts = (
        " + ".join(sites),
        " + ".join(lines) or ("none" if sites else ""),
        row.get("layout.accelerator"),
        "" if layers is None else f"{layers} layers",
        " ".join(layout),
        ", ".join(f"{words}{row[path]}" for path, words in memory.items() if row.get(path) is not None),
        " / ".join(fabrics),
    )
    return {lane: text for lane, text in zip(LANES, texts, strict=True) if text}


def changed_decisions(before: Row, after: Row) -> dict[str, str]:
    """Describe by lane what one plan decides otherwise than the one before it: `a third site opens: palo-verde`."""
    old, new = decisions_of(before), decisions_of(after)
    both = (lane for lane in LANES if lane in old and lane in new and old[lane] != new[lane])
    changed = {lane: f"{lane} {old[lane]} becomes {new[lane]}" for lane in both}
    if "sites" in changed:
        first, then = _open_sites(before), _open_sites(after)
        opened, closed = [site for site in then if site not in first], [site for site in first if site not in then]
        if len(opened) == 1 and not closed:
            rank = ORDINALS[len(then) - 1] if len(then) <= len(ORDINALS) else f"one more (of {len(then)})"
            changed["sites"] = f"{rank} site opens: {opened[0]}"
        else:
            verbs = ((opened, "open"), (closed, "close"))
            parts = [f"{', '.join(names)} {verb}{'' if len(names) > 1 else 's'}" for names, verb in verbs if names]
            changed["sites"] = " and ".join(parts)
    return changed


def digest(plan: Plan) -> dict[str, Figure]:
    """Return a plan's figures by dotted name, entries of lists by id, with totals and what each limit leaves unused."""
    figures, placed, run = dict[str, Figure](), plan.placement, plan.run
    if (split := plan.sites) is not None:
        figures |= {"sites.count": len(split.sites), "sites.racks": sum(site.racks for site in split.sites)}
        figures["sites.facility_mw"] = sum(site.facility_mw for site in split.sites)
        for site in split.sites:
            figures.update(_flat(f"sites.sites.{site.id}", site, "racks", "gpus", "facility_mw"))
        for link in split.links:
            figures.update(_flat(f"sites.links.{link.a}-{link.b}", link, "required_gbps", "wavelengths", "rtt_ms"))
        figures |= {f"sites.new_lines.{built.line}.circuits": built.circuits for built in split.new_lines}
        figures.update(_flat("sites.certificate", split.certificate, *PROOF))
    if (layout := plan.layout) is not None:
        figures.update(_flat("layout", layout))
        figures.update(_flat("layout", layout, "data_parallel_by_site"))
        figures["layout.layers_per_stage"] = runs(layout.layers_per_stage)
        figures["layout.recomputed_layers_per_stage"] = runs(layout.recomputed_layers_per_stage) or None
        figures.update(_flat("layout.assumptions", layout.assumptions))
        figures.update(_flat("layout.metrics", layout.metrics))
        for end, days in zip(("low", "high"), layout.metrics.days_to_train_interval, strict=True):
            figures[f"layout.metrics.days_to_train_interval.{end}"] = days
        figures.update(_flat("layout.metrics", layout.metrics, "breakdown_seconds"))
        figures.update(_flat("layout.certificate", layout.certificate, *PROOF))
    if (fabrics := plan.fabric) is not None:
        for name in ("switches", "switch_links", "cost_usd", "power_mw"):
            figures[f"fabric.{name}"] = sum(getattr(own, name) for own in fabrics.sites.values())
        size = "planes", "ports_per_switch", "switches", "switch_links", "cost_usd", "power_mw", "leaf_domain_racks"
        for name, own in sorted(fabrics.sites.items()):
            where = f"fabric.sites.{name}"
            figures.update(_flat(where, own, *size, "p2p_seconds", "pipeline_send_slowdown"))
            for tier, model in zip(own.tiers, own.models, strict=True):
                ports = f"{tier.down_ports}/{tier.up_ports}" + (f" {model}" if model != own.switch else "")
                figures[f"{where}.tiers.{tier.name}"] = f"{tier.switches} of {ports}"
            if (gateway := own.wan_gateway) is not None:
                figures[f"{where}.wan_gateway"] = f"{gateway.switches} with {gateway.wan_ports} ports"
        figures.update(_flat("fabric.certificate", fabrics.certificate, *PROOF))
    figures.update(_flat("placement", placed))
    figures.update(_flat("placement.certificate", placed and placed.certificate, *PROOF))
    figures.update(_flat("reliability", plan.reliability))
    figures.update(_flat("reliability", plan.reliability, "spare_racks_by_site", "lost_days"))
    figures.update(_flat("cost", plan.cost, "total_usd", "capex_usd", "opex_usd_per_year"))
    figures.update(_flat("run", run))
    figures.update(_flat("run", run, "usd", "replacements"))
    figures["run.not_counted"] = "; ".join(run.not_counted) if run and run.not_counted else None
    # What each limit leaves unused: the limit less what is used of it.
    limits, metrics = plan.instance.limits, plan.layout and plan.layout.metrics
    used: dict[str, Any] = {
        "budget_usd": (limits.budget_usd, plan.cost and plan.cost.total_usd),
        "facility_power_mw": (limits.facility_power_mw, plan.sites and sum(x.facility_mw for x in plan.sites.sites)),
        "memory_bytes_per_gpu": metrics and (metrics.memory_limit_bytes, metrics.memory_bytes_per_gpu),
        "deadline_days": (limits.deadline_days, metrics and metrics.days_to_train),
        "batch_tokens": (limits.max_batch_tokens, metrics and metrics.tokens_per_step),
    }
    figures |= {f"slack.{name}": pair[0] - pair[1] for name, pair in used.items() if pair and None not in pair}
    return {name: value for name, value in figures.items() if value is not None}


def _flat(where: str, part: BaseModel | None, *names: str) -> Iterator[tuple[str, Figure]]:
    """Yield figures of a plan's part: of `names`, tables by key and lists in one text; else all its plain fields."""
    for name in names or type(part).model_fields if part else ():
        value: Any = getattr(part, name)
        if isinstance(value, (str, float, int)):
            yield f"{where}.{name}", value
        elif names and isinstance(value, dict):
            yield from ((f"{where}.{name}.{key}", figure) for key, figure in sorted(value.items()))
        elif names and value is not None:
            yield f"{where}.{name}", "; ".join(value)


def runs(counts: tuple[int, ...]) -> str:
    """Write a list of counts in a plan, such as layers by stage, shortly: `3x2 1` is 2 2 2 1."""
    parts = ((len(list(alike)), count) for count, alike in groupby(counts))
    return " ".join(f"{times}x{count}" if times > 1 else str(count) for times, count in parts)


def as_asked(instance: Instance | FabricInstance) -> dict[str, Any]:
    """Return the fields of a plan that state its question: its instance and the hash of that."""
    return {"instance": instance, "instance_sha256": instance_sha256(instance)}
