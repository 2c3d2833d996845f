"""The Pareto frontier of fabrics for the layout of a plan at each of its sites: its request, axes, rules and points."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from planner.errors import InputError, InternalError, hint
from planner.instance.instance import Instance
from planner.models import Options
from planner.models.fabric.fabric_templates import FABRIC_AXES, alternatives
from planner.models.fabric.site_traffic import FabricRequest
from planner.physics.plan_physics import PlanPhysics
from planner.physics.training.parallel_strategy import strategy_of
from planner.plan.plan import Plan
from planner.plan.plan_sections import LayoutPlan


def request_of(physics: PlanPhysics, layout: LayoutPlan, site: str) -> FabricRequest:
    """Return what a site's fabric on the frontier must carry: racks cabled, the layout's traffic, the WAN gateway's."""
    # Exchanges may be slowed until the time that hides them is full, whatever the order of racks.
    metrics = layout.metrics
    fabric = physics.plan.fabric.sites.get(site) if physics.plan.fabric else None
    gateway = fabric.wan_gateway if fabric else None
    return FabricRequest(
        racks=physics.cabled_racks(site),
        rack_gpus=physics.wired_gpus_per_rack(site),
        group_racks=max(1, layout.racks_per_stage_by_site[site]),
        groups=layout.rack_stages,
        pipeline_send_seconds=metrics.pipeline_send_nic_seconds,
        pipeline_send_window_seconds=metrics.pipeline_send_window_seconds,
        allreduce_seconds=metrics.allreduce_layer_seconds,
        allreduce_window_seconds=metrics.allreduce_window_seconds,
        exchange_racks=strategy_of(layout).unit_racks(physics.gpus_per_rack),
        wan_gbps=gateway.wan_gbps if gateway else 0.0,
        exchange_gbps=gateway.exchange_gbps if gateway else 0.0,
    )


def frontier(
    plan: Plan,
    *,
    leaf_sizes: Sequence[int] = (),
    time_limit: float | None = None,
    axes: Iterable[str] = ("cost", "time", "splits"),
    every: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[dict[str, Any]]:
    """Return the figures of each frontier point of a plan's sites; with leaf sizes, those of every size in turn.

    No design is matched or beaten by another in the `axes`, of FABRIC_AXES. `every` asks for every slowdown, and not
    only for the best below each step of a ladder; `report` is called with a line for each site whose time has ended.
    ValueError: the plan has no layout or no fabric.
    """
    from planner.checks.fabric import frontier as rules

    if plan.layout is None or plan.fabric is None:
        raise ValueError("the plan has no fabric")
    physics, options = PlanPhysics(plan=plan), Options(time_limit=time_limit, seed=plan.seed)
    axes = {"cost", *axes}
    merits = [figure for axis, figure in FABRIC_AXES.items() if axis in axes]
    for site in sorted(physics.racks_by_site.keys() & plan.fabric.sites.keys()):
        request = request_of(physics, plan.layout, site)
        for size in leaf_sizes or (None,):
            pins = {**plan.instance.pins} | ({} if size is None else {f"fabric.{site}.leaf_domain_racks": size})
            instance, messages = plan.instance.replaced(pins=pins), list[str]()
            how: dict[str, Any] = {"site": site, "axes": axes, "every": every, "report": messages.append}
            figures = alternatives(instance, request, options, **how)
            broken = list(rules(physics, site, figures, merits, leaf_size=size))
            if broken:
                wrong = "; ".join(f"{violation.rule}: {violation.message}" for violation in broken[:5])
                raise InternalError(f"the frontier breaks its own rules: {wrong}")
            for text in messages:
                report(f"{site if size is None else f'{site}, leaf domains of {size} racks'}: {text}")
            yield from ({"site": site, **figure} for figure in figures)


def axes_of(text: str) -> list[str]:
    """Read the axes of the frontier of a site's fabrics, from a text; InputError if unknown, or cost is alone."""
    names = [axis.strip() for axis in text.split(",")]
    for name in names:
        if name not in FABRIC_AXES:
            raise InputError(f"--axes: {name!r} is no axis; {hint(name, FABRIC_AXES)}")
    if not set(names) - {"cost"}:
        others = ", ".join(axis for axis in FABRIC_AXES if axis != "cost")
        raise InputError(f"--axes {text}: cost alone has no trade; name one of {others} with it")
    return names


def rules_given(instance: Instance, leaf_sizes: Sequence[int]) -> str:
    """Name the rules that every fabric on the frontier of a plan's sites must keep."""
    network = instance.network
    rules = ["exchanges end in the time that the layout hides them"]
    if network is not None:
        families = ", ".join(network.families)
        rules = [f"switches of one port rate in one family ({families})", f"at most {network.max_tiers} tiers", *rules]
        if network.asked_core_share:
            rules.append(f"{network.asked_core_share:g} of the rate of GPUs' ports out of every tier, at least")
        if network.survives is not None:
            rules.append(f"network.survives is {network.survives}")
    rules += [f"pins.{path} is {value}" for path, value in sorted(instance.pins.items()) if path.startswith("fabric.")]
    return "; ".join([*rules, *([f"leaf domains of {', '.join(map(str, leaf_sizes))} racks"] if leaf_sizes else [])])
