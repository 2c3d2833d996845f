"""Explain a plan: what binds each decision, layouts that differ in one choice, what an infeasible layout lacks."""

from pydantic import Field

from planner.instance.base import Frozen
from planner.instance.instance import Instance
from planner.models.layout import explain as layout_explain
from planner.models.requests import LayoutRequest, Options
from planner.plan.certificate import Conflict, Status
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan
from planner.planning import explain_sites
from planner.planning.evaluate import memory_lines, time_lines
from planner.planning.explain_sites import SitesExplanation
from planner.planning.solve import solve_instance
from planner.simulation.reference_tree import transport_slowdown_of


class Other(Frozen):
    """The best layout with one choice made otherwise."""

    choice: str
    plan_value: str | int | bool
    value: str | int | bool = Field(description="In the place of the plan's.")
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
    """What binds a plan, or why there is none."""

    name: str
    status: Status
    conflict: Conflict | None = Field(None, description="A smallest set of rules that leaves no plan.")
    lacks: tuple[Lack, ...] = Field(
        (), description="Of an infeasible layout: memory, batch or racks that would allow one."
    )
    sites: SitesExplanation | None = Field(None, description="Of the split, where there is a grid.")
    binding: dict[str, tuple[str, ...]] = Field(default_factory=dict, description="What binds each decision.")
    layout: LayoutPlan | None = Field(None, description="The layout of the plan, with its breakdown.")
    others: tuple[Other, ...] = Field((), description="Layouts that differ in one choice, the least loss first.")


def explained(instance: Instance, options: Options, *, near: int = 0, within: float = 0.05) -> Explanation:
    """Solve and explain; `near` splits over other sets of sites are listed, of those `within` a share of the best."""
    plan = solve_instance(instance, options, lambda _: None)
    if plan.layout is None:
        return _infeasible(plan, instance, options)
    sections = {"sites": plan.sites, "layout": plan.layout, "fabric": plan.fabric, "placement": plan.placement}
    return Explanation(
        name=instance.name,
        status=plan.status,
        binding={name: x.certificate.binding for name, x in sections.items() if x is not None},
        layout=plan.layout,
        sites=explain_sites.explained_plan(plan, options, near=near, within=within),
        others=tuple(
            Other(
                choice=x.choice,
                plan_value=x.best_value,
                value=x.value,
                loss=x.loss,
                grown=x.grown,
                also=x.also,
                proved=x.proved,
            )
            for x in layout_explain.runners_up(instance, _request(plan, plan.layout), options)
        ),
    )


def _infeasible(plan: Plan, instance: Instance, options: Options) -> Explanation:
    """Explain why there is no plan."""
    why, split = plan.conflict, None
    lacks: tuple[Lack, ...] = ()
    if why is not None and why.rules and why.decision == "layout":
        lacks = _lacks(instance)
    if why is not None and why.rules and why.decision == "sites" and instance.grid is not None:
        split = explain_sites.explained_infeasible(instance, why, options)
    return Explanation(name=instance.name, status=plan.status, conflict=why, lacks=lacks, sites=split)


def _lacks(instance: Instance) -> tuple[Lack, ...]:
    """Return what a single cluster lacks; where a grid decides the racks, their number is no given."""
    if instance.hardware.racks is None:
        return ()
    slowdown = transport_slowdown_of(instance.network)
    asked = LayoutRequest(
        racks_by_site={"cluster": instance.hardware.racks}, pipeline_send_slowdown=slowdown, allreduce_slowdown=slowdown
    )
    return tuple(Lack.model_validate(x, from_attributes=True) for x in layout_explain.relief(instance, asked))


def _request(plan: Plan, layout: LayoutPlan) -> LayoutRequest:
    """Return the request that the plan's layout answers."""
    a = layout.assumptions
    racks = {s.id: s.racks for s in plan.sites.sites} if plan.sites else {"cluster": plan.instance.hardware.racks or 0}
    return LayoutRequest(
        racks_by_site=racks,
        pipeline_send_slowdown=a.pipeline_send_slowdown,
        allreduce_slowdown=a.allreduce_slowdown,
        wan_gbps=a.wan_gbps,
        wan_rtt_ms=a.wan_rtt_ms,
    )


def summary(e: Explanation) -> str:
    """Return the explanation as one screen of text."""
    lines = [f"{e.name}: {e.status}"]
    if e.conflict is not None:
        lines += [f"  no plan: {e.conflict.reason}"]
        lines += (
            [f"  rules in conflict ({e.conflict.decision}): {', '.join(e.conflict.rules)}"] if e.conflict.rules else []
        )
    lines += [f"  would do: {x.limit} {x.needed:,.6g} {x.unit} (is {x.now:,.6g})" for x in e.lacks]
    lines += [f"BINDS      {decision}: {', '.join(names) or 'nothing'}" for decision, names in e.binding.items()]
    if e.sites is not None:
        lines += explain_sites.summary(e.sites)
    if e.layout is not None:
        m = e.layout.metrics
        lines += [f"TIME       {m.step_seconds:.4g} s a step", *time_lines(m), *memory_lines(m)]
        lines += ["INSTEAD    the best layout with one choice made otherwise"]
    return "\n".join([*lines, *(_other_line(x) for x in e.others)])


def _other_line(x: Other) -> str:
    """Return a line on the best layout with one choice made otherwise."""
    changed = ", ".join(f"{k} {b}" for k, (_, b) in x.also.items())
    line = f"  {x.choice.replace('_', ' ')} {x.value} instead of {x.plan_value}: {100 * x.loss:+.1f} %, "
    return (
        f"{line}{x.grown.replace('_', ' ')}{f' (with {changed})' if changed else ''}"
        f"{'' if x.proved else '; not proven'}"
    )
