"""Fabrics of which none is better in every figure: for the layout of a plan, site by site, at any leaf size asked for."""

from collections.abc import Iterator, Sequence

from planner.handoff import Alternative, FabricRequest, Options
from planner.physics.locality import expert_racks
from planner.plan import Border, LayoutPlan, Plan


def request_of(held: LayoutPlan, site: str, racks: int, gpus_per_rack: int, border: Border | None = None) -> FabricRequest:
    """Return what a site's fabric must carry for a plan's layout, with no more slowdown than the layout counts on, and the plan's border."""
    m, a = held.metrics, held.assumptions
    return FabricRequest(
        racks=racks,
        group_racks=max(1, held.racks_per_stage_by_site[site]),
        groups=held.rack_stages,
        hop_seconds=m.hop_nic_seconds,
        hop_window_seconds=m.hop_window_seconds,
        allreduce_seconds=m.allreduce_layer_seconds,
        allreduce_window_seconds=m.allreduce_window_seconds,
        hop_limit=a.hop_slowdown,
        allreduce_limit=a.allreduce_slowdown,
        exchange_racks=expert_racks(held.expert_parallel, gpus_per_rack),
        wan_gbps=border.wan_gbps if border else 0.0,
    )


def frontier(plan: Plan, *, leaf_sizes: Sequence[int] = (), time_limit: float | None = None) -> Iterator[tuple[str, Alternative]]:
    """Yield the site and design of each; with leaf sizes, those of every size in turn, so that sizes can be compared.

    Raises
    ------
    ValueError
        If the plan holds no layout or no fabric.
    """
    from planner.checks.context import Context
    from planner.models.fabric import alternatives

    if plan.layout is None or plan.fabric is None:
        raise ValueError("the plan holds no fabric")
    held = Context(plan=plan)
    for site, racks in sorted(held.racks_by_site.items()):
        for size in leaf_sizes or (None,):
            pins = {**plan.instance.pins} | ({} if size is None else {"fabric.leaf_domain_racks": size})
            instance = plan.instance.model_copy(update={"pins": pins})
            built = plan.fabric.sites.get(site)
            request = request_of(plan.layout, site, racks, held.gpus_per_rack, built.border if built else None)
            found = alternatives(instance, request, Options(time_limit=time_limit, seed=plan.seed))
            yield from ((site, x) for x in found)


def table(rows: Sequence[tuple[str, Alternative]]) -> str:
    """Write the designs as a table, a line each."""
    head = ["site", "cost", "power MW", "hop", "split", "leaf racks", "boxes", "tiers", "family", "switch"]
    lines = [head, *(_line(site, x) for site, x in rows)]
    widths = [max(len(line[c]) for line in lines) for c in range(len(head))]
    return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in lines)


def _line(site: str, x: Alternative) -> list[str]:
    from planner.show import money

    c, m = x.choices, x.merits
    figures = [money(m["cost_usd"]), f"{c['power_mw']:.2f}", f"{m['hop_slowdown']:.2f}x", f"{m['unavoidable_splits']:.0f}"]
    return [site, *figures, *(str(c[name]) for name in ("leaf_domain_racks", "switches", "tiers", "family", "switch"))]
