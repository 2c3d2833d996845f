"""Power and cost, layout and step of a plan, as blocks."""

from collections.abc import Callable, Iterator, Mapping

from planner.instance.instance import Instance
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Cost, Plan
from planner.plan.run import RunPlan
from planner.plan.sites import SitesPlan
from planner.report.page.cards import DEGREES
from planner.report.page.drawings.bars import Limit, colours, stacked
from planner.report.page.drawings.pipeline import pipeline, rack
from planner.report.page.parts import Block, Picture, Row, Swatch, Table, figure, figures_of
from planner.report.plots.labels import plain
from planner.units import amount, memory, money, share

SCHEDULE = ("schedule", "virtual_stages", "microbatch_sequences", "microbatches_per_step")
MEMORY = ("recompute", "sequence_parallel", "zero_stage")
RACKS = ("replicas_per_rack", "racks_per_replica", "stages_per_rack", "gpus_used", "gpus_idle")
CHOICES = {"Degrees of parallelism": DEGREES, "Schedule and memory": (*SCHEDULE, *MEMORY), "Racks and GPUs": RACKS}
LISTED_YEARS = 30  # in a table
OTHER = "other parts"
SMALL = 5e-4  # share of the total below which a part joins the others: it has no width in a bar


def power_and_cost(plan: Plan) -> Iterator[Block]:
    """Show power by site and capital by part, each against its limit."""
    pictures: list[Picture] = []
    tables: list[Table] = []
    for picture, *added in (*_power(plan.instance, plan.sites), *_cost(plan.instance, plan.cost)):
        pictures.append(picture)
        tables += added
    tables += [] if plan.run is None else _run(plan.run)
    if pictures:
        yield Block("Power and cost", pictures, tables)


def _power(instance: Instance, s: SitesPlan | None) -> Iterator[tuple[Picture, Table]]:
    if s is None or not s.sites:
        return
    parts = {x.id: {"IT": x.it_mw, "overhead": x.facility_mw - x.it_mw} for x in s.sites}
    totals = {k: sum(p[k] for p in parts.values()) for k in ("IT", "overhead")}
    power = instance.limits.facility_power_mw
    limit = Limit(power, "limit") if power else None
    rows = [*((name, p, None) for name, p in parts.items()), ("all sites", totals, limit)]
    svg = stacked("Facility power by site", rows, colours(("IT", "overhead")), lambda v: f"{amount(v)} MW")
    caption = "Facility power by site; the dashed line is the limit." if limit else "Facility power by site."
    by_part = [(Swatch(k, f"c{n}"), amount(v)) for n, (k, v) in enumerate(totals.items())]
    yield Picture(svg, caption), Table("Power of all sites", ("part", "MW"), by_part)


def _cost(instance: Instance, c: Cost | None) -> Iterator[tuple[Picture, *tuple[Table, ...]]]:
    if c is None:
        return
    capital = {k: v for k, v in sorted(c.capex_usd.items(), key=lambda item: -item[1]) if v}
    shades = colours(list(capital))
    running = {"years of operation": c.total_usd - sum(capital.values())} if c.operation_years else {}
    budget = instance.limits.budget_usd
    limit = Limit(budget, "budget") if budget else None
    bars = [("capital and counted operation" if running else "capital", {**capital, **running}, limit)]
    svg = stacked("Cost by part", bars, {**shades, **dict.fromkeys(running, "rest")}, money)
    capex = figures_of("cost.capex_usd", c.capex_usd)
    rows: list[Row] = [
        (Swatch(plain(k), shades[k]), capex(k, money), share(v, c.total_usd)) for k, v in capital.items()
    ]
    for k, v in running.items():
        rows.append((Swatch(f"{k} ({c.operation_years:g})", "rest"), money(v), share(v, c.total_usd)))
    rows.append(("total", figures_of("cost", c)("total_usd", money), ""))
    if budget:
        rows.append(("left of the budget", money(budget - c.total_usd), share(budget - c.total_usd, budget)))
    tables = [Table("Cost", ("part", "USD", "share"), rows)]
    if c.opex_usd_per_year:
        opex = figures_of("cost.opex_usd_per_year", c.opex_usd_per_year)
        yearly = [(plain(k), opex(k, money)) for k in c.opex_usd_per_year]
        tables.append(Table("Running cost", ("part", "USD a year"), yearly))
    yield Picture(svg, "Cost by part."), *tables


def _run(x: RunPlan) -> list[Table]:
    """Show what the whole run costs by part, draws and emits, and its years."""
    usd, own = figures_of("run.usd", x.usd), figures_of("run", x)
    rows: list[Row] = [(plain(k), usd(k, money), share(v, x.total_cost_of_ownership_usd)) for k, v in x.usd.items()]
    rows.append(("total cost of ownership", own("total_cost_of_ownership_usd", money), ""))
    rows.append(("a million tokens", own("usd_per_million_tokens", "${:,.4g}".format), ""))
    rows.append(("energy in MWh", own("energy_mwh", amount), ""))
    rows.append(("energy of a token in J", own("energy_joules_per_token", amount), ""))
    if x.carbon_tonnes is not None:
        rows.append(("CO2 in tonnes", own("carbon_tonnes", amount), ""))
    rows += [(f"not counted: {key.rpartition('.')[2]}", "-", "") for key in x.not_counted]
    tables = [Table(f"The run of {x.years:,.4g} years", ("part", "value", "share"), rows)]
    years: list[Row] = [
        (f"{n + 1}", amount(y.energy_mwh), money(sum(y.usd.values()))) for n, y in enumerate(x.by_year[:LISTED_YEARS])
    ]
    if len(x.by_year) > 1:
        tables.append(Table("Operation by year", ("year", "MWh", "USD"), years))
    return tables


def layout(plan: Plan) -> Iterator[Block]:
    """Show how a step is divided over stages, racks and GPUs."""
    x = plan.layout
    if x is None:
        return
    caption = "Stages from first to last, as high as their layers; dark: layers that run again in the backward pass."
    pictures = [Picture(pipeline(x), caption)]
    gpus = plan.instance.hardware.rack
    if not isinstance(gpus, str) and (svg := rack(x, gpus.gpus)) is not None:
        groups = f"{x.replicas_per_rack} x {x.stages_per_rack} (replicas x stages)"
        pictures.append(Picture(svg, f"GPUs of a rack by the group that they work in: {groups}; grey: idle."))
    tables = [Table(title, ("choice", "value"), [_choice(x, n) for n in names]) for title, names in CHOICES.items()]
    replicas = figures_of("layout.data_parallel_by_site", x.data_parallel_by_site)
    by_site = [(s, replicas(s), f"{x.racks_per_stage_by_site.get(s, 0):,}") for s in x.data_parallel_by_site]
    tables.append(Table("By site", ("site", "replicas", "racks a stage"), by_site))
    yield Block("Layout", pictures, tables)


def _choice(x: LayoutPlan, name: str) -> Row:
    value = getattr(x, name)
    text = ("yes" if value else "no") if isinstance(value, bool) else f"{value:,}" if isinstance(value, int) else value
    return plain(name), figure(f"layout.{name}", value, str(text))


def step(plan: Plan) -> Iterator[Block]:
    """Show what the time of a step and the memory of the worst GPU are made of."""
    if plan.layout is None:
        return
    m, at = plan.layout.metrics, "layout.metrics"
    total = figures_of(at, m)
    times, time_rows = _parts(f"{at}.breakdown_seconds", m.breakdown_seconds, _seconds)
    sizes, memory_rows = _parts(f"{at}.memory_breakdown_bytes", m.memory_breakdown_bytes, memory)
    limit = Limit(m.memory_limit_bytes, "limit")
    time = stacked("Time of a step by part", [("one step", times, None)], colours(list(times)), _seconds)
    in_use = stacked("Memory of the worst GPU by part", [("worst GPU", sizes, limit)], colours(list(sizes)), memory)
    time_rows.append(("one step", total("step_seconds", _seconds), ""))
    memory_rows.append(("in use", total("memory_bytes_per_gpu", memory), ""))
    memory_rows.append(("limit", total("memory_limit_bytes", memory), ""))
    caption = "Memory of the worst GPU; the dashed line is the limit."
    tables = (
        Table("Memory", ("part", "memory", "share"), memory_rows),
        Table("Time", ("part", "time", "share"), time_rows),
    )
    yield Block("Step time and memory", (Picture(time, "Time of a step."), Picture(in_use, caption)), tables)


def _parts(at: str, parts: Mapping[str, float], show: Callable[[float], str]) -> tuple[dict[str, float], list[Row]]:
    """Return parts by plain name, the largest first and the tiny ones together, and their rows of a table."""
    total = sum(parts.values())
    large = {k: v for k, v in sorted(parts.items(), key=lambda item: (-item[1], item[0])) if v > SMALL * total}
    shades, cell = colours([*large, OTHER]), figures_of(at, parts)
    rows: list[Row] = [(Swatch(plain(k), shades[k]), cell(k, show), share(v, total)) for k, v in large.items()]
    drawn = {plain(k): v for k, v in large.items()}
    if len(large) < sum(v > 0 for v in parts.values()):
        drawn[OTHER] = total - sum(large.values())
        rows.append((Swatch(OTHER, shades[OTHER]), show(drawn[OTHER]), share(drawn[OTHER], total)))
    return drawn, rows


def _seconds(value: float) -> str:
    return f"{value:,.3f} s" if value >= 0.01 else f"{value * 1e3:,.3g} ms"
