"""Power and cost, layout and step of a plan, as blocks."""

from collections.abc import Callable, Iterator, Mapping

from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan
from planner.report.page.cards import WAYS
from planner.report.page.drawings.bars import Limit, colours, stacked
from planner.report.page.drawings.pipeline import pipeline, rack
from planner.report.page.parts import Block, Cell, Picture, Swatch, Table, figure
from planner.report.plots.labels import amount, gigabytes, plain, share, usd

CHOICES = {
    "Parallel ways": tuple(f"{way}_parallel" for way in WAYS),
    "Schedule and memory": (
        *("schedule", "virtual_stages", "microbatch_sequences", "microbatches_per_step"),
        *("recompute", "sequence_parallel", "zero_stage"),
    ),
    "Racks and GPUs": ("replicas_per_rack", "racks_per_replica", "stages_per_rack", "gpus_used", "gpus_idle"),
}
OTHER = "other parts"
SMALL = 5e-4  # share of the whole below which a part goes with the others


def power_and_cost(plan: Plan) -> Iterator[Block]:
    """Show power by site and capital by part, each against its limit."""
    pictures, tables, limits = [], [], plan.instance.limits
    if plan.sites is not None and plan.sites.sites:
        parts = {x.id: {"IT": x.it_mw, "overhead": x.facility_mw - x.it_mw} for x in plan.sites.sites}
        whole = {k: sum(p[k] for p in parts.values()) for k in ("IT", "overhead")}
        limit = Limit(limits.facility_power_mw, "limit") if limits.facility_power_mw else None
        rows = [*((name, p, None) for name, p in parts.items()), ("all sites", whole, limit)]
        svg = stacked("Facility power by site", rows, colours(("IT", "overhead")), lambda v: f"{amount(v)} MW")
        pictures.append(
            Picture(
                svg, "Facility power by site; the dashed line is the limit." if limit else "Facility power by site."
            )
        )
        told: list[tuple[Cell, ...]] = [(Swatch(k, f"c{n}"), amount(v)) for n, (k, v) in enumerate(whole.items())]
        tables.append(Table("Power of all sites", ("part", "MW"), tuple(told)))
    if plan.cost is not None:
        c = plan.cost
        capital = {k: v for k, v in sorted(c.capex_usd.items(), key=lambda item: -item[1]) if v}
        shades = colours(list(capital))
        running = {"years of operation": c.total_usd - sum(capital.values())} if c.operation_years else {}
        limit = Limit(limits.budget_usd, "budget") if limits.budget_usd else None
        rows_usd = [("capital and counted operation" if running else "capital", {**capital, **running}, limit)]
        pictures.append(
            Picture(
                stacked("Cost by part", rows_usd, {**shades, **dict.fromkeys(running, "rest")}, usd), "Cost by part."
            )
        )
        lines: list[tuple[Cell, ...]] = [
            (Swatch(plain(k), shades[k]), figure(f"cost.capex_usd.{k}", v, usd(v)), share(v, c.total_usd))
            for k, v in capital.items()
        ]
        lines += [
            (Swatch(f"{k} ({c.operation_years:g})", "rest"), usd(v), share(v, c.total_usd)) for k, v in running.items()
        ]
        lines.append(("total", figure("cost.total_usd", c.total_usd, usd(c.total_usd)), ""))
        if limits.budget_usd:
            lines.append(
                (
                    "left of the budget",
                    usd(limits.budget_usd - c.total_usd),
                    share(limits.budget_usd - c.total_usd, limits.budget_usd),
                )
            )
        tables.append(Table("Cost", ("part", "USD", "share"), tuple(lines)))
        yearly: list[tuple[Cell, ...]] = [
            (plain(k), figure(f"cost.opex_usd_per_year.{k}", v, usd(v))) for k, v in c.opex_usd_per_year.items()
        ]
        if yearly:
            tables.append(Table("Running cost", ("part", "USD a year"), tuple(yearly)))
    if pictures:
        yield Block("Power and cost", tuple(pictures), tuple(tables))


def layout(plan: Plan) -> Iterator[Block]:
    """Show how a step is cut over stages, racks and GPUs."""
    x = plan.layout
    if x is None:
        return
    pictures = [
        Picture(
            pipeline(x),
            "Stages from first to last, as high as their layers; dark: layers that run again in the backward pass.",
        )
    ]
    gpus = plan.instance.hardware.rack
    if not isinstance(gpus, str) and (svg := rack(x, gpus.gpus)) is not None:
        told = f"GPUs of a rack by the group that they work in: {x.replicas_per_rack} x {x.stages_per_rack} (replicas x stages); grey: idle."
        pictures.append(Picture(svg, told))
    held: list[tuple[Cell, ...]] = [
        (
            site,
            figure(f"layout.data_parallel_by_site.{site}", n, f"{n:,}"),
            f"{x.racks_per_stage_by_site.get(site, 0):,}",
        )
        for site, n in x.data_parallel_by_site.items()
    ]
    tables = [Table(told, ("choice", "value"), tuple(_choice(x, n) for n in names)) for told, names in CHOICES.items()]
    tables.append(Table("By site", ("site", "replicas", "racks a stage"), tuple(held)))
    yield Block("Layout", tuple(pictures), tuple(tables))


def _choice(x: LayoutPlan, name: str) -> tuple[Cell, ...]:
    value = getattr(x, name)
    told = (
        f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else {True: "yes", False: "no"}.get(value, str(value))
    )
    return plain(name), figure(f"layout.{name}", value, told)


def step(plan: Plan) -> Iterator[Block]:
    """Show what the time of a step and the memory of the worst GPU are made of."""
    if plan.layout is None:
        return
    m = plan.layout.metrics
    at = "layout.metrics"
    time, time_table = _parts(f"{at}.breakdown_seconds", m.breakdown_seconds, _seconds)
    memory, memory_table = _parts(f"{at}.memory_breakdown_bytes", m.memory_breakdown_bytes, gigabytes)
    limit = Limit(m.memory_limit_bytes, "limit")
    times = stacked("Time of a step by part", [("one step", time, None)], colours(list(time)), _seconds)
    bytes_held = stacked(
        "Memory of the worst GPU by part", [("worst GPU", memory, limit)], colours(list(memory)), gigabytes
    )
    time_table.append(("one step", figure(f"{at}.step_seconds", m.step_seconds, _seconds(m.step_seconds)), ""))
    memory_table.append(
        ("in use", figure(f"{at}.memory_bytes_per_gpu", m.memory_bytes_per_gpu, gigabytes(m.memory_bytes_per_gpu)), "")
    )
    memory_table.append(
        ("limit", figure(f"{at}.memory_limit_bytes", m.memory_limit_bytes, gigabytes(m.memory_limit_bytes)), "")
    )
    yield Block(
        "Step time and memory",
        (
            Picture(times, "Time of a step."),
            Picture(bytes_held, "Memory of the worst GPU; the dashed line is the limit."),
        ),
        (
            Table("Memory", ("part", "memory", "share"), tuple(memory_table)),
            Table("Time", ("part", "time", "share"), tuple(time_table)),
        ),
    )


def _parts(
    at: str, parts: Mapping[str, float], show: Callable[[float], str]
) -> tuple[dict[str, float], list[tuple[Cell, ...]]]:
    """Return parts by plain name, the largest first and the tiny ones together, and their lines of a table."""
    whole = sum(parts.values())
    seen = {k: v for k, v in sorted(parts.items(), key=lambda item: (-item[1], item[0])) if v > SMALL * whole}
    shades = colours([*seen, OTHER])
    lines: list[tuple[Cell, ...]] = [
        (Swatch(plain(k), shades[k]), figure(f"{at}.{k}", v, show(v)), share(v, whole)) for k, v in seen.items()
    ]
    drawn = {plain(k): v for k, v in seen.items()}
    if len(seen) < sum(v > 0 for v in parts.values()):
        drawn[OTHER] = whole - sum(seen.values())
        lines.append((Swatch(OTHER, shades[OTHER]), show(drawn[OTHER]), share(drawn[OTHER], whole)))
    return drawn, lines


def _seconds(value: float) -> str:
    return f"{value:,.3f} s" if value >= 0.01 else f"{value * 1e3:,.3g} ms"
