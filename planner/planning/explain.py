"""Why a plan is as it is: what binds each decision, the layouts that differ in one choice, and what an infeasible layout lacks."""

from pydantic import Field

from planner.instance.base import Frozen
from planner.instance.instance import Instance
from planner.models.layout import explain as layout_explain
from planner.models.requests import LayoutRequest, Options
from planner.plan.certificate import Conflict, Status
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan
from planner.planning import explain_sites
from planner.planning.explain_sites import SitesExplanation
from planner.planning.solve import solve_instance
from planner.simulation.reference_tree import transport_slowdown_of


class Other(Frozen):
    """The best layout with one choice made otherwise."""

    choice: str
    held: str | int | bool = Field(description="Value in the plan.")
    value: str | int | bool = Field(description="Value instead.")
    loss: float = Field(description="Seconds per sequence over the plan's, less one: 0.11 is 11 % slower.")
    grown: str = Field(description="Part of the step that grew most.")
    also: dict[str, tuple[str | int | bool, str | int | bool]] = Field(
        description="Other choices that answered it, from and to."
    )
    proved: bool = Field(description="No layout with the choice made otherwise is faster.")


class Lack(Frozen):
    """A limit that, changed alone, lets a layout exist; verified by searching with it."""

    limit: str
    now: float
    needed: float
    unit: str


class Explanation(Frozen):
    """What holds a plan where it is, or keeps it from being."""

    name: str
    status: Status
    conflict: Conflict | None = Field(None, description="A smallest set of rules that leaves no plan.")
    lacks: tuple[Lack, ...] = Field(
        (), description="For a layout that cannot be: the least memory, batch or racks that would allow one."
    )
    sites: SitesExplanation | None = Field(
        None, description="Where there is a grid and the split is what there is to explain."
    )
    binding: dict[str, tuple[str, ...]] = Field(default_factory=dict, description="What binds each decision.")
    layout: LayoutPlan | None = Field(None, description="The layout of the plan, with its breakdown.")
    others: tuple[Other, ...] = Field((), description="Layouts that differ in one choice, the least loss first.")


def explained(instance: Instance, options: Options, *, near: int = 0, within: float = 0.05) -> Explanation:
    """Solve and explain; `near` splits over other sets of sites are listed, of those `within` a share of the best."""
    plan = solve_instance(instance, options, lambda _: None)
    if plan.layout is None:
        lacks = _lacks(instance) if plan.conflict is not None and plan.conflict.decision == "layout" else ()
        grid = plan.conflict is not None and plan.conflict.decision == "sites" and instance.grid is not None
        split = explain_sites.explained_infeasible(instance, plan.conflict, options) if grid and plan.conflict else None
        return Explanation(name=instance.name, status=plan.status, conflict=plan.conflict, lacks=lacks, sites=split)
    held = {"sites": plan.sites, "layout": plan.layout, "fabric": plan.fabric, "placement": plan.placement}
    found = layout_explain.runners_up(instance, _request(plan, plan.layout), options)
    return Explanation(
        name=instance.name,
        status=plan.status,
        binding={k: x.certificate.binding for k, x in held.items() if x is not None},
        layout=plan.layout,
        sites=explain_sites.explained_plan(plan, options, near=near, within=within),
        others=tuple(
            Other(choice=x.choice, held=x.held, value=x.value, loss=x.loss, grown=x.grown, also=x.also, proved=x.proved)
            for x in found
        ),
    )


def _lacks(instance: Instance) -> tuple[Lack, ...]:
    """Say what a single cluster lacks; where a grid decides the racks, their number is no given."""
    if instance.hardware.racks is None:
        return ()
    slowdown = transport_slowdown_of(instance.network)
    asked = LayoutRequest(
        racks_by_site={"cluster": instance.hardware.racks}, pipeline_send_slowdown=slowdown, allreduce_slowdown=slowdown
    )
    return tuple(
        Lack(limit=x.limit, now=x.now, needed=x.needed, unit=x.unit) for x in layout_explain.relief(instance, asked)
    )


def _request(plan: Plan, held: LayoutPlan) -> LayoutRequest:
    """Ask the question that the plan's layout answers."""
    a = held.assumptions
    racks = {s.id: s.racks for s in plan.sites.sites} if plan.sites else {"cluster": plan.instance.hardware.racks or 0}
    return LayoutRequest(
        racks_by_site=racks,
        pipeline_send_slowdown=a.pipeline_send_slowdown,
        allreduce_slowdown=a.allreduce_slowdown,
        wan_gbps=a.wan_gbps,
        wan_rtt_ms=a.wan_rtt_ms,
    )


def summary(e: Explanation) -> str:
    """Tell the explanation in one screen."""
    lines = [f"{e.name}: {e.status}"]
    if e.conflict is not None:
        lines += [
            f"  no plan: {e.conflict.reason}",
            f"  rules in conflict ({e.conflict.decision}): {', '.join(e.conflict.rules)}",
        ]
    lines += [f"  would do: {x.limit} {x.needed:,.6g} {x.unit} (is {x.now:,.6g})" for x in e.lacks]
    lines += [f"BINDS      {decision}: {', '.join(names) or 'nothing'}" for decision, names in e.binding.items()]
    if e.sites is not None:
        lines += explain_sites.summary(e.sites)
    if e.layout is not None:
        m = e.layout.metrics
        lines.append(f"TIME       {m.step_seconds:.4g} s a step")
        parts = sorted(m.breakdown_seconds.items(), key=lambda item: -item[1])
        lines += [f"  {k.replace('_', ' '):18}{v:12.5g} s {100 * v / m.step_seconds:6.1f} %" for k, v in parts if v > 0]
        lines.append(
            f"MEMORY     {m.memory_bytes_per_gpu / 1e9:.1f} of {m.memory_limit_bytes / 1e9:.1f} GB on the worst GPU"
        )
        lines += [
            f"  {k:18}{v / 1e9:12.2f} GB"
            for k, v in sorted(m.memory_breakdown_bytes.items(), key=lambda item: -item[1])
        ]
        lines.append("INSTEAD    the best layout with one choice made otherwise")
    for x in e.others:
        also = ", ".join(f"{k} {b}" for k, (_, b) in x.also.items())
        told = f"{x.choice.replace('_', ' ')} {x.value} instead of {x.held}: {100 * x.loss:+.1f} %, {x.grown.replace('_', ' ')}"
        lines.append(f"  {told}{f' (with {also})' if also else ''}{'' if x.proved else '; not proven'}")
    return "\n".join(lines)
