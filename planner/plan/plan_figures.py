"""A plan on one flat page: figures by dotted name, its decisions in short, and where two plans decide otherwise."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner.plan.certificate import Certificate
from planner.plan.plan import Plan, RunPlan
from planner.plan.plan_sections import FabricPlan, LayoutPlan, SitesPlan
from planner.units import counted

if TYPE_CHECKING:
    from pydantic import BaseModel


Row = Mapping[str, Any]  # figures by dotted name, of `planner.plan.plan_figures.digest` or of a sweep
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


def _memory(row: Row) -> str | None:
    choices = {"ZeRO-": row.get("layout.zero_stage"), "recompute ": row.get("layout.recompute")}
    return ", ".join(f"{name}{value}" for name, value in choices.items() if value is not None) or None


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


LANES: dict[str, Callable[[Row], str | None]] = {
    "sites": lambda row: " + ".join(sites_of(row)) or None,
    "new lines": _lines,
    "GPU": lambda row: row.get("layout.accelerator") or None,
    "model": _model,
    "layout": _strategy,
    "memory": _memory,
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
        yield from _scalars("reliability", plan.reliability)
        for name in ("spare_racks_by_site", "lost_days"):
            yield from (
                (f"reliability.{name}.{key}", value) for key, value in sorted(getattr(plan.reliability, name).items())
            )
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
    parts: list[tuple[int, int]] = []
    for count in counts:
        if parts and parts[-1][1] == count:
            parts[-1] = (parts[-1][0] + 1, count)
        else:
            parts.append((1, count))
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
