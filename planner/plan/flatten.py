"""A plan on one flat page: its figures by their own dotted names, for rows of a sweep and for comparing."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from planner.plan.certificate import Certificate
from planner.plan.fabric import FabricPlan
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan
from planner.plan.reliability import ReliabilityPlan
from planner.plan.run import RunPlan
from planner.plan.sites import SitesPlan

if TYPE_CHECKING:
    from pydantic import BaseModel

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
    """Return the figures of a plan by dotted name; entries of lists have their id, as `sites.sites.palo-verde.racks`.

    `sites.racks`, `sites.count` and `fabric.switches` are totals, and `slack.*` is what each limit leaves unused.
    """
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
        yield from _reliability(plan.reliability)
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
    """Yield the single values of an object."""
    for name in type(part).model_fields:
        value = getattr(part, name)
        if isinstance(value, (str, float, int)):
            yield f"{where}.{name}", value


def _proof(where: str, c: Certificate) -> Iterator[tuple[str, Figure]]:
    for name in PROOF:
        value: Any = getattr(c, name)
        yield f"{where}.certificate.{name}", "; ".join(value) if isinstance(value, tuple) else value


def _sites(s: SitesPlan) -> Iterator[tuple[str, Figure]]:
    yield "sites.count", len(s.sites)
    yield "sites.racks", sum(x.racks for x in s.sites)
    yield "sites.facility_mw", sum(x.facility_mw for x in s.sites)
    for site in s.sites:
        yield from ((f"sites.sites.{site.id}.{name}", getattr(site, name)) for name in SITE)
    for link in s.links:
        yield from ((f"sites.links.{link.a}-{link.b}.{name}", getattr(link, name)) for name in LINK)
    for line in s.new_lines:
        yield f"sites.new_lines.{line.line}.circuits", line.circuits
    yield from _proof("sites", s.certificate)


def _layout(x: LayoutPlan) -> Iterator[tuple[str, Figure]]:
    yield from _scalars("layout", x)
    for site, replicas in sorted(x.data_parallel_by_site.items()):
        yield f"layout.data_parallel_by_site.{site}", replicas
    yield "layout.layers_per_stage", runs(x.layers_per_stage)
    yield "layout.recomputed_layers_per_stage", runs(x.recomputed_layers_per_stage) or None
    yield from _scalars("layout.assumptions", x.assumptions)
    yield from _scalars("layout.metrics", x.metrics)
    for end, days in zip(("low", "high"), x.metrics.days_to_train_interval, strict=True):
        yield f"layout.metrics.days_to_train_interval.{end}", days
    for part, seconds in sorted(x.metrics.breakdown_seconds.items()):
        yield f"layout.metrics.breakdown_seconds.{part}", seconds
    yield from _proof("layout", x.certificate)


def _reliability(x: ReliabilityPlan) -> Iterator[tuple[str, Figure]]:
    yield from _scalars("reliability", x)
    for name in ("spare_racks_by_site", "lost_days"):
        yield from ((f"reliability.{name}.{key}", value) for key, value in sorted(getattr(x, name).items()))


def runs(counts: tuple[int, ...]) -> str:
    """Write a list of counts shortly: `3x2 1` is 2 2 2 1."""
    parts: list[tuple[int, int]] = []
    for n in counts:
        if parts and parts[-1][1] == n:
            parts[-1] = (parts[-1][0] + 1, n)
        else:
            parts.append((1, n))
    return " ".join(f"{times}x{n}" if times > 1 else str(n) for times, n in parts)


def _fabric(x: FabricPlan) -> Iterator[tuple[str, Figure]]:
    yield "fabric.switches", sum(f.switches for f in x.sites.values())
    yield "fabric.switch_links", sum(f.switch_links for f in x.sites.values())
    yield "fabric.cost_usd", sum(f.cost_usd for f in x.sites.values())
    yield "fabric.power_mw", sum(f.power_mw for f in x.sites.values())
    for site, f in sorted(x.sites.items()):
        yield from ((f"fabric.sites.{site}.{name}", getattr(f, name)) for name in FABRIC)
        for tier, name in zip(f.tiers, f.models, strict=True):
            model = f" {name}" if name != f.switch else ""
            yield (
                f"fabric.sites.{site}.tiers.{tier.name}",
                f"{tier.switches} of {tier.down_ports}/{tier.up_ports}{model}",
            )
        if f.wan_gateway is not None:
            yield f"fabric.sites.{site}.wan_gateway", f"{f.wan_gateway.switches} with {f.wan_gateway.wan_ports} ports"
    yield from _proof("fabric", x.certificate)


def _run(x: RunPlan) -> Iterator[tuple[str, Figure]]:
    yield from _scalars("run", x)
    for part, usd in sorted(x.usd.items()):
        yield f"run.usd.{part}", usd
    for name, times in sorted(x.replacements.items()):
        yield f"run.replacements.{name}", times
    yield "run.not_counted", "; ".join(x.not_counted) or None


def _slack(plan: Plan) -> Iterator[tuple[str, Figure]]:
    limits = plan.instance.limits
    if plan.cost is not None and limits.budget_usd is not None:
        yield "slack.budget_usd", limits.budget_usd - plan.cost.total_usd
    if plan.sites is not None and limits.facility_power_mw is not None:
        yield "slack.facility_power_mw", limits.facility_power_mw - sum(s.facility_mw for s in plan.sites.sites)
    if plan.layout is not None:
        m = plan.layout.metrics
        yield "slack.memory_bytes_per_gpu", m.memory_limit_bytes - m.memory_bytes_per_gpu
        if limits.deadline_days is not None:
            yield "slack.deadline_days", limits.deadline_days - m.days_to_train
        if limits.max_batch_tokens is not None:
            yield "slack.batch_tokens", limits.max_batch_tokens - m.tokens_per_step
