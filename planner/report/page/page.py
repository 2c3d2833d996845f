"""The HTML page of one plan or several: blocks of a plan's sections, and every figure of the plan in tables."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date
from itertools import groupby, islice
from typing import Any

from planner.errors import InputError
from planner.exports.fabric_parts import built_fabric
from planner.physics.plan_physics import layout_faults
from planner.physics.recovery import exposure_of, interval_curves, spare_points
from planner.physics.site import site_power
from planner.physics.site.grid import usable_interconnect_mw
from planner.physics.training.memory import memory_by_stage
from planner.physics.training.parallel_strategy import strategy_of
from planner.physics.training.step_prediction import machine_of
from planner.plan.plan import Curve, Plan, proven_knee
from planner.report import decisions
from planner.report.curve_text import CURVE_FIGURES, curve_claims, curve_figures
from planner.report.decisions import STEP_PARTS, days, name_of_part, status_of
from planner.report.page import charts
from planner.report.page.drawings import fabric_tiers, plan_map
from planner.report.page.page_parts import Headline, PageCell, PageFigure, PageRow, PageTable, Picture, template
from planner.report.plots import curve_lines, name_and_unit, plain
from planner.report.summary import by_section, statements
from planner.report.verdict import USED
from planner.units import amount, counted, duration, few, memory, money, percent, power, short, short_percent

MOST = "what each place could hold at most with all lines built"
PLACE_ROWS, LISTED_PLACES = 8, 6  # rows of the table of places, and names of a row
SCENARIOS = (
    "Power that runs in each scenario; the dashed line is what the sites have. "
    "Energy includes curtailed load at its price."
)
# Why no further place is opened, by what ends the plan.
ENDS = {
    "budget": "not needed: the budget is spent at the open sites",
    "tolerance": "not needed: more racks would hardly train faster",
    "layout": "not needed: more racks would not train faster",
    "fabric": "not needed: the fabric joins no more racks",
    "owned_racks": "not needed: the racks given stand at the open sites",
    "grid": "left out by the best split that was found",
}
SCHEDULE = "One step to scale; light blue in a bar is exchange that compute does not hide, as large as its share."
COMPUTE, EXCHANGE, IDLE, LOST, SUM = "c0", "c5", "c4", "c1", "rest"
SHADES = {"compute": COMPUTE, decisions.OTHER: COMPUTE, "pipeline bubble": IDLE, "host": IDLE}
DAYS = "Where the days go: blue computes, light blue exchanges, yellow waits, grey are sums"
IDEAL = (
    "Where the compute of the ideal goes: every GPU at its peak until the deadline; "
    "the first part is what trains the model."
)
BOUND = "6·N·D of the model; the dashed line is the compute proven to be too much for the deadline."
# Marks of an axis of time, in seconds: 0.1 s to 1,000 days.
TIMES = (0.1, 1, 10, 60, 600, 3600, 36_000, 172_800, 864_000, 8_640_000, 86_400_000)
INTERVAL = (
    "Time that trains by the time between checkpoints, for each way to go on behind a stop that is allowed; the dot is "
    "the plan."
)
CURVE = "Days to train against capital; between two plans money buys the days of the cheaper one; the dot is this plan."
SPARES = (
    "Time that trains by spare racks of all sites, each site's in proportion, by the way to go on that is best with "
    "so many; the dot is the plan. All else is as planned; money, power and room of spares are not in it."
)
Shown = Iterator[Picture | PageTable]


def where(plan: Plan) -> Shown:
    """Show on the page's map the open sites and other places, the maximum MW of each and why others are not open."""
    grid = plan.instance.grid
    if grid is None or not grid.nodes:
        return
    svg, in_us = plan_map(plan, grid)
    lines = ", spans of fibre, dashed where lit for cuts alone" if plan.wan else ", power lines" if grid.lines else ""
    links = ", links between sites (dashed)" if plan.sites and plan.sites.links and not plan.wan else ""
    drawn_on = "Albers equal-area; outline: Natural Earth"
    drawn_on = drawn_on if in_us else "Places only: they lie beyond the outline that this page has"
    caption = f"Sites (area by power), other places where one may stand (rings){lines}{links}. {drawn_on}."
    yield Picture(svg, caption)
    # The MW at most, the name and cells (MW, limit, reason) of each place without a site.
    sites, rules, hardware = plan.sites.sites if plan.sites else (), grid.rules, plan.instance.hardware
    within, taken = rules.ready_within_months, {site.id for site in sites}
    least = site_power.facility_mw(hardware, rules.min_site_modules * hardware.racks_per_module)
    rule, areas = rules.interconnect, {area.id: area for area in grid.balancing_authorities}
    built = {line.id: line.max_circuits for line in grid.new_lines}
    unopened: list[tuple[float, str, tuple[str, ...]]] = []
    for node in (node for node in grid.nodes if node.site and node.id not in taken):
        limits: dict[str, float] = {}  # MW that each hard rule lets the place hold with the open sites and all lines
        if (area := areas.get(node.balancing_authority)) and rules.headroom and "headroom" not in rules.soft:
            used = sum(site.facility_mw for site in sites if site.balancing_authority == area.id)
            limits[f"headroom of {area.id}"] = max(0.0, area.headroom_mw - used)
        if rule.enabled and rule.share and rule.reading != "import_share" and "interconnect" not in rules.soft:
            usable = usable_interconnect_mw(grid, node, built, node.upgrade.max_steps if node.upgrade else 0)
            if usable is not None:
                limits["interconnect"] = usable / rule.share
        if node.area_m2 is not None and hardware.cooling_kw_per_m2 is not None and "area" not in rules.soft:
            limits["land for cooling"] = node.area_m2 * hardware.cooling_kw_per_m2 / 1e3
        limit = min(limits, key=lambda name: limits[name], default="")
        most = limits.get(limit, float("inf"))
        why = ENDS.get(plan.objective.limited_by or "", ENDS["grid"])
        if within is not None and node.ready_months > within:
            why = f"ready in {node.ready_months:g} months, asked for within {within:g}"
        elif most < least * (1 - 1e-9):
            why = f"too little: a site takes {power(least)} or more"
        elif rules.max_sites is not None and plan.sites and len(sites) >= rules.max_sites:
            why = f"{counted(rules.max_sites, 'site')} at most"
        unopened.append((most, node.id, (amount(most) if limits else "not limited", limit or "-", why)))
    # Places that have the same cells share a row, those of most MW first.
    alike: dict[tuple[str, ...], list[str]] = {}
    for _, name, cells in sorted(unopened, key=lambda row: -row[0]):
        alike.setdefault(cells, []).append(name)
    head = ("places", "MW at most", "limit", "why it is not open")
    width = 4 if plan.sites else 3
    rows = [(few(names, LISTED_PLACES), *rest)[:width] for rest, names in alike.items()]
    what = f"Places that are not open, and {MOST} with the sites as planned" if plan.sites else MOST.capitalize()
    what += f"; {len(rows) - PLACE_ROWS} more rows are left out" if len(rows) > PLACE_ROWS else ""
    if rows:
        yield PageTable(what, head[:width], rows[:PLACE_ROWS], head[2:width])


def how_a_step_runs(plan: Plan) -> Shown:
    """Show on a plan's page how a step runs: the pipeline schedule of each layout, and its stages' memory against HBM.

    A layout that contradicts itself has no memory by stage.
    """
    pools = {f"{name}: ": layout for name, layout in plan.pools.layouts.items()} if plan.pools else {}
    for name, layout in ({"": plan.layout} if plan.layout else pools).items():
        parts = layout.metrics.breakdown_seconds
        bubble = sum(parts.get(part, 0.0) for part in charts.BUBBLES) / layout.metrics.step_seconds
        stages = counted(layout.pipeline_parallel, "stage")
        of = f"{stages}, {counted(layout.microbatches_per_step, 'micro-batch')} a replica"
        caption = f"{name}{of}: {short_percent(bubble)} of the step is bubble. {SCHEDULE}"
        yield Picture(charts.schedule(name, layout), caption)
    if plan.layout is None or plan.instance.hardware.pools or list(layout_faults(plan.layout)):
        return
    layout = plan.layout
    sizes = {k: x.tolist() for k, x in memory_by_stage(machine_of(plan.instance), strategy_of(layout)).items()}
    recomputed = layout.recomputed_layers_per_stage or (layout.layers_per_stage if layout.recompute == "full" else ())
    in_memory: list[charts.StageMemory] = []
    for stage, layers in enumerate(layout.layers_per_stage):
        own = {name: size[stage] for name, size in sizes.items() if size[stage] > 0}
        in_memory.append((layers, recomputed[stage] if recomputed else 0, own))
    limit = layout.metrics.memory_limit_bytes
    caption = f"Memory of a GPU of each stage; dashed: {memory(limit)}, HBM less its reserves."
    yield Picture(charts.stages(in_memory, limit), f"{caption} The plan {decisions.recomputes(plan, layout)}.")


def days_money_and_power(plan: Plan) -> Shown:
    """Show on a plan's page days by part as a waterfall, capital by part with its budget, and power by site."""
    if rows := decisions.days_by_part(plan):
        shades = dict.fromkeys(STEP_PARTS, EXCHANGE) | SHADES
        bars = [(row, SUM if row.is_sum else shades.get(row.name, LOST)) for row in rows]
        alt = "Days of steps and days on a calendar"
        svg = charts.waterfall(alt, bars, lambda days: decisions.shown_days(rows[-1].days, days))
        lost = ", orange is lost to stops and to what guards against them" if plan.reliability else ""
        yield Picture(svg, f"{DAYS}{lost}.")
    cost, budget = plan.cost, plan.instance.limits.budget_usd
    if cost is not None:
        parts = {plain(part): usd for part, usd in sorted(cost.capex_usd.items(), key=lambda item: -item[1]) if usd}
        shades = charts.colours(list(parts))
        if cost.operation_years:
            running = f"{cost.operation_years:g} years of operation"
            parts[running], shades[running] = cost.total_usd - sum(parts.values()), "rest"
        name = "capital and operation" if cost.operation_years else "capital"
        svg = charts.stacked("Cost by part", [(name, parts, (budget, "budget") if budget else None)], shades, money)
        yield Picture(svg, f"Money by part{'; the dashed line is the budget' if budget else ''}.")
    sites, most = plan.sites, plan.instance.limits.facility_power_mw
    if sites is None or not sites.sites:
        return
    limit = (most, "limit") if most else None
    loads = {site.id: {"IT": site.it_mw, "overhead": site.facility_mw - site.it_mw} for site in sites.sites}
    totals = {name: sum(site[name] for site in loads.values()) for name in ("IT", "overhead")}
    by_site = [*((name, load, None) for name, load in loads.items()), ("all sites", totals, limit)]
    by_site = by_site if len(sites.sites) > 1 or limit else by_site[:1]
    svg = charts.stacked("Facility power by site", by_site, charts.colours(("IT", "overhead")), power)
    yield Picture(svg, f"Facility power by site{'; the dashed line is the limit' if limit else ''}.")


def money_against_days(plan: Plan) -> Shown:
    """Show on a plan's page its curve, if any: the days that its plans reach for their capital, and a table of them."""
    curve = plan.curve
    if curve is None or not curve.points:
        return
    own = next((point for point in curve.points if point.asked), curve.points[-1])
    lines = curve_lines(curve)
    dollars, times = zip(*(corner for line in lines for corner in line.points), strict=True)
    if len(curve.points) > 1 and min(*dollars, *times) > 0:
        x_axis = charts.ChartAxis("capital", lambda usd: f"${short(usd)}", log=True)
        y_axis = charts.ChartAxis("days to train", short, log=True)
        alt = f"Days to train against capital: {counted(len(curve.points), 'plan')}"
        svg = charts.curve(alt, lines, (own.capital_usd, own.days_to_train), x_axis, y_axis)
        yield Picture(svg, f"{CURVE} {' '.join(curve_claims(curve))}")
    yield curve_table(curve)


def curve_table(curve: Curve) -> PageTable:
    """Return the page's table of a curve: a row a plan with its figures, its layout and what else changes."""
    head = (*(heading for heading, _ in CURVE_FIGURES.values()), "layout", "what else changes")
    rows: list[PageRow] = []
    bend = proven_knee(curve.points)
    for at, (point, own) in enumerate(zip(curve.points, curve_figures(curve.points), strict=True)):
        figures = (
            text if text == "-" else PageFigure(f"curve.points.{at}.{key}", getattr(point, key), text)
            for key, text in own.items()
        )
        marked = ", ".join(["this plan"] * point.asked + ["knee"] * (point is bend))
        layout = f"{point.layout} ({marked})" if marked else point.layout
        rows.append((*figures, layout, "; ".join(point.changes) or "-"))
    return PageTable("Plans that none beats in both capital and days", head, rows, head[-2:])


def fabric(plan: Plan) -> Shown:
    """Show on a plan's page each site's fabric tiers; of one that cannot be wired there is no picture."""
    for site in sorted(plan.fabric.sites if plan.fabric else ())[:4]:  # the others are in the tables
        with suppress(InputError, ValueError):
            caption = f"{site}, from the top tier down to the racks of one leaf domain."
            yield Picture(fabric_tiers(built_fabric(plan, site)), caption)


def stops(plan: Plan) -> Shown:
    """Show on a plan's page the useful share of time by checkpoint interval and by spares, where failures count."""
    reliability, exposure = plan.reliability, exposure_of(plan) if plan.reliability and plan.layout else None
    if reliability is None or exposure is None:
        return
    seconds, useful = reliability.checkpoint_interval_seconds, reliability.useful_share
    y_axis = charts.ChartAxis("time that trains", lambda share: f"{100 * share:.4g} %")
    if seconds is not None and (curves := interval_curves(exposure)):
        lines = []
        for index, ((recovery, target), curve) in enumerate(curves.items()):
            way = "elastic" if recovery == "elastic" else f"{recovery.replace('-', ' ')}, {target}"
            lines.append(charts.ChartLine(way, curve, index))
        x_axis = charts.ChartAxis("between checkpoints", lambda x: duration(x).replace(".0 ", " "), TIMES, log=True)
        alt = f"Time that trains by checkpoint interval: the plan has {percent(useful)} at {duration(seconds)}"
        yield Picture(charts.curve(alt, lines, (seconds, useful), x_axis, y_axis), INTERVAL)
    if len(points := spare_points(exposure)) > 1:
        racks = sum(reliability.spare_racks_by_site.values())
        marks = [mark for mark in charts.marks_over(0, max(dict(points))) if mark == round(mark)]
        line = charts.ChartLine("", [(float(spares), share) for spares, share in points], 0)
        x_axis = charts.ChartAxis("spare racks", "{:,.0f}".format, marks)
        alt = f"Time that trains by spare racks: the plan has {percent(useful)} with {counted(racks, 'rack')}"
        yield Picture(charts.curve(alt, [line], (float(racks), useful), x_axis, y_axis), SPARES)


def scenarios(plan: Plan) -> Shown:
    """Show on a plan's page the power in MW that each site runs in each grid scenario."""
    sites = plan.sites
    if sites is None or not sites.scenarios:
        return
    ids, capacity = [site.id for site in sites.sites], sum(site.facility_mw for site in sites.sites)
    bars = [
        (name, {site: run.running_mw.get(site, 0.0) for site in ids}, (capacity, "capacity"))
        for name, run in sorted(sites.scenarios.items())
    ]
    alt = "Power that runs in each scenario, by site"
    yield Picture(charts.stacked(alt, bars, charts.colours(ids), power), SCENARIOS)


def model(plan: Plan) -> Shown:
    """Show on a plan's page the chosen model's shares of the ideal compute, and its compute against the ideal's."""
    choice = plan.model_choice
    if choice is None:
        return
    parts = dict(sorted(choice.compute_shares.items(), key=lambda item: (item[0] != "used", -item[1], item[0])))
    named = {USED.get(name) or name_of_part(name): size for name, size in parts.items()}
    alt = "Where the compute of the ideal goes"
    goes = charts.stacked(alt, [("6·N·D at full use", named, None)], charts.colours(list(named)), short_percent)
    yield Picture(goes, IDEAL)
    most = choice.flop_bound if choice.flop <= choice.flop_bound else choice.ideal.flop
    had = ("had by the deadline", {"had": choice.flop}, (most, "proven too much"))
    bars, shades = [had, ("at full use", {"at full use": choice.ideal.flop}, None)], {"had": "c0", "at full use": "c5"}
    svg = charts.stacked("Compute that is had, its bound and the ideal's", bars, shades, "{:.4g}".format)
    yield Picture(svg, BOUND)


PARTS = (
    *("objective", "sites", "wan", "layout", "pools", "fabric", "transport", "placement", "reliability", "cost"),
    *("run", "model_choice", "proof", "curve", "instance.limits", "instance.workload", "instance.hardware"),
    *("instance.grid.balancing_authorities", "instance.pins"),
)
# Where figures are from; racks one by one; those of each site at a point of a curve.
NOT_SHOWN = ("source", "note", "assignment", "stripes", "catalog", "racks_by_site")
SHARES = ("share", "mfu", "gap", "availability", "target")  # ends of keys whose values are parts of one
LISTED_ROWS, ACROSS, TEXT = 60, 4, 24  # rows of a table; entries side by side; letters of a text


def tables(plan: Plan) -> Iterator[tuple[str, list[PageTable]]]:
    """Yield the page's tables of every part of a plan by name, then of the run that made the plan."""
    data = plan.model_dump(mode="json")
    for path in PARTS:
        value: Any = data
        for key in path.split("."):
            value = value.get(key) if value else None
        if value:
            name = plain(path.rpartition(".")[2])
            yield ("question: " if "." in path else "") + name, list(_tables(path, value, name))
    own = {key: value for key, value in data.items() if not isinstance(value, dict)}
    yield "run of the planner", list(_tables("", own, "run"))


def _tables(path: str, value: Any, name: str) -> Iterator[PageTable]:
    pairs = [(str(key), entry) for key, entry in (enumerate(value) if isinstance(value, list) else value.items())]
    entries = {key: entry for key, entry in pairs if key not in NOT_SHOWN}
    kinds = {tuple(sorted(entry)) if isinstance(entry, dict) else None for _, entry in pairs}
    if kinds and None not in kinds and (isinstance(value, list) or len(kinds) == 1):  # all are objects of one kind
        # Few are columns side by side, many are rows.
        every = (item for entry in entries.values() for item in entry.items())
        keys = list(dict.fromkeys(key for key, value in every if _is_figure(value) and key not in NOT_SHOWN))
        names = [_called(key, entry) for key, entry in entries.items()]
        cells = [[_cell(f"{path}.{at}", key, entry.get(key)) for key in keys] for at, entry in entries.items()]
        heads = tuple(_name(f"{path}.0", key) for key in keys)
        if keys and len(entries) <= ACROSS:
            yield PageTable(name, ("", *names), list(zip(heads, *cells, strict=True)))
        elif keys:
            more = f"; {len(cells) - LISTED_ROWS:,} more are in the plan" if len(cells) > LISTED_ROWS else ""
            rows: list[PageRow] = [(name, *row) for name, row in zip(names[:LISTED_ROWS], cells, strict=False)]
            yield PageTable(name + more, ("", *heads), rows)
    elif rows := [(_name(path, key), _cell(path, key, entry)) for key, entry in entries.items() if _is_figure(entry)]:
        is_text = any(isinstance(entry, (str, list)) and len(str(entry)) > TEXT for entry in entries.values())
        yield PageTable(name, ("", "value"), rows[:LISTED_ROWS], ("value",) if is_text else ())
    objects = (item for item in entries.items() if item[1] and isinstance(item[1], (dict, list)))
    for key, entry in islice((item for item in objects if not _is_figure(item[1])), LISTED_ROWS):
        yield from _tables(f"{path}.{key}".removeprefix("."), entry, f"{name}: {_called(key, entry)}")


def _is_figure(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and not any(isinstance(item, (dict, list)) for item in value)
    return value not in (None, "") and not isinstance(value, dict)


def _called(key: str, value: Any) -> str:
    known = value if isinstance(value, dict) else {}
    own = next((known[key] for key in ("id", "name", "line", "node", "rule") if known.get(key)), None)
    return str(own) if own else f"{int(key) + 1}" if key.isdigit() else plain(key)


def _name(path: str, key: str) -> str:
    return key if "." in key else name_and_unit(f"{path}.{key}")[0]


def _cell(at: str, key: str, value: Any) -> PageCell:
    path = f"{at}.{key}".removeprefix(".")
    if value in (None, "", []):
        return "-"
    if isinstance(value, list):
        runs = [(f"{len(list(group))} x ", _text(path, item)) for item, group in groupby(value)]
        return ", ".join(count.removeprefix("1 x ") + text for count, text in runs[:LISTED_ROWS])
    # A key that is a number with a point in it is no path.
    return PageFigure(path, value, _text(path, value)) if "." not in key else _text(at, value)


def _text(path: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ("yes" if value else "no") if isinstance(value, bool) else str(value)
    (_, unit), keys = name_and_unit(path), path.split(".")[-2:]
    if unit.startswith("USD"):
        return money(value) + unit.removeprefix("USD")
    if unit.startswith("bytes"):
        return memory(value)
    if isinstance(value, float) and (keys[-1].endswith(SHARES) or "share" in keys[0]):
        return percent(value)
    return f"{value:,}" if isinstance(value, int) else f"{amount(value)} {unit}".rstrip()


# Pictures and tables by title, in the order of the page.
BLOCKS: dict[str, Callable[[Plan], Shown]] = {
    "Where": where,
    "How a step runs": how_a_step_runs,
    "Days, money and power": days_money_and_power,
    "Money against days": money_against_days,
    "Fabric": fabric,
    "Stops, checkpoints and spares": stops,
    "Years that may come": scenarios,
    "The best model for the deadline": model,
}


BUILT = ("sites", "wan", "model", "layout", "pools", "fabric")  # topics of what a plan buys


def report_page(plans: Sequence[tuple[str, Plan]], made: date) -> str:
    """Write plans, each with its name, as one HTML page made on a date. InputError: jinja2 is not installed."""
    given = [name for name, _ in plans]
    names = [name if given.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(given, 1)]
    sections, compared = list[dict[str, Any]](), list[dict[str, list[str]]]()
    for name, (_, plan) in zip(names, plans, strict=True):
        reported = statements(plan)
        first = [statement for statement in reported if statement.first]
        built = [fact for fact in first if fact.kind == "choice" and fact.topic in BUILT]
        compared.append(by_section(fact for fact in first if fact.kind in ("limit", "warning") or fact in built))
        # Purchase, sites, price, days and proof of the first screen, in one sentence.
        verdict = [fact for fact in first if fact.topic == "verdict" and not fact.instead]
        texts = [fact.text for kind in ("choice", "verdict") for fact in verdict if fact.kind == kind]
        sentences = [sentence.rstrip(".") for text in texts for sentence in text.split(". ")]
        rest = [sentence[0].lower() + sentence[1:] for sentence in sentences[1:]]
        section = {
            "name": name,
            "status": status_of(plan),
            "good": plan.status in ("optimal", "feasible") and not plan.violations,
            "unverified": "; ".join(statement.text for statement in reported if statement.kind == "fault"),
            "about": f"{plan.instance.name}, solved by planner {plan.planner_version}",
            "verdict": "; ".join([*sentences[:1], *rest]) + "." * bool(sentences),
            "instead": [statement.text for statement in first if statement.instead],
            "headlines": list(headlines(plan)),
            "lists": [
                ("What is built", [statement.text for statement in built]),
                ("Other kinds", [statement.text for statement in first if statement.kind == "rejected"]),
                ("Limits", [_on_page(statement.text) for statement in first if statement.kind == "limit"]),
                ("Risks", [_on_page(statement.text) for statement in first if statement.kind == "warning"]),
            ],
            "blocks": {title: list(part(plan)) for title, part in BLOCKS.items()},
            "reported": by_section(reported),
            "tables": list(tables(plan)),
        }
        sections.append(section)
    # The table of plans, a column each: figures of the first screen, purchases, limits and risks.
    rows: list[PageRow] = [("status", *(plan.status for _, plan in plans))]
    figures = [{line.label: f"{line.figure.text}; {line.range}" for line in own["headlines"]} for own in sections]
    for label in dict.fromkeys(label for own in figures for label in own):
        rows.append((label, *(own.get(label, "-") for own in figures)))
    for title in dict.fromkeys(title for own in compared for title in own):
        # Sentences are joined by spaces, and phrases by semicolons.
        cells = ("; ".join(own.get(title, ["-"])).replace(".; ", ". ") for own in compared)
        rows.append((title, *map(_on_page, cells)))
    comparison = PageTable("Plans side by side", ("", *names), rows, tuple(names))
    return template("report", "report/page/page.html.jinja").render(
        title=", ".join(names),
        made=f"{made.day} {made:%B %Y}",
        sections=sections,
        comparison=comparison if len(plans) > 1 else None,
    )


def _on_page(text: str) -> str:
    """Return a text of a page's first screen, with directions for a terminal turned into ones for the page."""
    return text.replace("(--verbose)", "(below, in full)")


def headlines(plan: Plan) -> Iterator[Headline]:
    """Yield a page's headline figures: days with range, capital against budget, GPU utilisation with range."""
    section, at = (plan.layout.metrics, "layout.metrics") if plan.layout else (plan.pools, "pools")
    if section is None:
        return
    value, (low, high) = section.days_to_train, section.days_to_train_interval
    top = max(high, value)
    shown = PageFigure(f"{at}.days_to_train", value, f"{days(value)} days")
    likely = f"likely {days(low)} to {days(high)} (4 of 5 like runs)"
    yield Headline("Trains in", shown, likely, low / top, high / top, value / top)
    if plan.cost is not None:
        usd, budget = plan.cost.total_usd, plan.instance.limits.budget_usd
        text = "no budget is set"
        if budget:
            left = f"{money(budget - usd)} left" if usd <= budget else f"{money(usd - budget)} over"
            text = f"of a budget of {money(budget)}, {left}"
        shares = (min(1.0, usd / budget), 1.0) if budget else (0.0, 0.0)
        yield Headline("Costs", PageFigure("cost.total_usd", usd, money(usd)), text, 0.0, *shares)
    slow, fast = (value / bound for bound in (high, low))  # the range of a rate is that of the days, turned over
    if plan.layout is not None:
        mfu = plan.layout.metrics.mfu
        shown = PageFigure("layout.metrics.mfu", mfu, short_percent(mfu))
        text = f"model FLOP utilisation; likely {short_percent(mfu * slow)} to {short_percent(mfu * fast)}"
        yield Headline("Uses of the GPUs' peak", shown, text, mfu * slow, min(1.0, mfu * fast), mfu)
    elif plan.pools is not None:
        seconds = plan.pools.step_seconds
        text = f"likely {seconds / fast:.3g} to {seconds / slow:.3g} s"
        shown = PageFigure("pools.step_seconds", seconds, f"{seconds:.3g} s")
        yield Headline("A step takes", shown, text, low / top, high / top, value / top)
