"""The figures of a plan by dotted name, flat as a sweep's rows have them, and what plans decide otherwise by them."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from pydantic import BaseModel

from planner.plan.plan import Plan
from planner.units import counted

Row = Mapping[str, Any]  # figures by dotted name, of `digest` or of a sweep
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
    """Return by lane, in short, what a plan's flat figures say it decides; a lane without figures is left out."""
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
    """Describe by lane what a plan's figures decide otherwise than those before: `a third site opens: palo-verde`."""
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
    """Return a plan's figures flat by dotted name, lists by id, with totals and what each limit leaves unused."""
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
    """Write a plan's figure that is a list of counts, such as layers by stage, shortly: `3x2 1` is 2 2 2 1."""
    parts = ((len(list(alike)), count) for count, alike in groupby(counts))
    return " ".join(f"{times}x{count}" if times > 1 else str(count) for times, count in parts)
