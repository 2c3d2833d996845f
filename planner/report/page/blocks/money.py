"""Where the days go, money against the budget, power against its limit, and the compute of a model that was chosen."""

from collections.abc import Iterator

from planner.plan.plan import Plan
from planner.report.page.drawings.bars import Limit, stacked
from planner.report.page.drawings.waterfall import Bar, waterfall
from planner.report.page.parts import Block, Picture, colours
from planner.report.plots.labels import plain
from planner.report.statements.calendar import OTHER, STEP_PARTS, days_by_part, shown_days
from planner.report.statements.statement import short_percent
from planner.units import amount, money

COMPUTE, EXCHANGE, IDLE, LOST, SUM = "c0", "c5", "c4", "c1", "rest"
SHADES = {"compute": COMPUTE, OTHER: COMPUTE, "pipeline bubble": IDLE, "host": IDLE}
DAYS = "Where the days go: blue computes, light blue exchanges, yellow waits, grey are sums"
IDEAL = (
    "Where the compute of the ideal goes: every GPU at its peak until the deadline; "
    "the first part is what trains the model."
)
BOUND = "6·N·D of the model; the dashed line is the compute proven to be too much for the deadline."


def days_and_money(plan: Plan) -> Iterator[Block]:
    """Show the parts that the days add up from, capital by part and power by site, each against its limit."""
    pictures = [*_days(plan), *_cost(plan), *_power(plan)]
    if pictures:
        yield Block("Days, money and power", pictures)


def _days(plan: Plan) -> Iterator[Picture]:
    rows, bars = days_by_part(plan), []
    for r in rows:
        shade = SUM if r.is_sum else SHADES.get(r.name, EXCHANGE if r.name in STEP_PARTS else LOST)
        bars.append(Bar(r.name, r.days, shade, r.is_sum))
    if rows:
        svg = waterfall("Days of steps and days on a calendar", bars, lambda v: shown_days(rows[-1].days, v))
        lost = ", orange is lost to stops and to what guards against them" if plan.reliability else ""
        yield Picture(svg, f"{DAYS}{lost}.")


def _cost(plan: Plan) -> Iterator[Picture]:
    c, budget = plan.cost, plan.instance.limits.budget_usd
    if c is None:
        return
    parts = {plain(k): v for k, v in sorted(c.capex_usd.items(), key=lambda item: -item[1]) if v}
    shades = colours(list(parts))
    if c.operation_years:
        running = f"{c.operation_years:g} years of operation"
        parts[running], shades[running] = c.total_usd - sum(parts.values()), "rest"
    bars = [("capital" if not c.operation_years else "capital and operation", parts, Limit.given(budget, "budget"))]
    yield Picture(stacked("Cost by part", bars, shades, money), "Money by part" + _dashed(budget, "the budget"))


def _power(plan: Plan) -> Iterator[Picture]:
    s, most = plan.sites, plan.instance.limits.facility_power_mw
    if s is None or not s.sites:
        return
    parts = {x.id: {"IT": x.it_mw, "overhead": x.facility_mw - x.it_mw} for x in s.sites}
    totals = {k: sum(p[k] for p in parts.values()) for k in ("IT", "overhead")}
    rows = [*((name, p, None) for name, p in parts.items()), ("all sites", totals, Limit.given(most, "limit"))]
    rows = rows if len(s.sites) > 1 or most else rows[:1]
    svg = stacked("Facility power by site", rows, colours(("IT", "overhead")), lambda v: f"{amount(v)} MW")
    yield Picture(svg, "Facility power by site" + _dashed(most, "the limit"))


def _dashed(limit: float | None, name: str) -> str:
    return f"; the dashed line is {name}." if limit else "."


def model(plan: Plan) -> Iterator[Block]:
    """Show where the compute of the ideal goes, and what the best model for the deadline has of it."""
    x = plan.model_choice
    if x is None:
        return
    parts = dict(sorted(x.compute_shares.items(), key=lambda item: (item[0] != "used", -item[1], item[0])))
    named = {plain(k): v for k, v in parts.items()}
    alt = "Where the compute of the ideal goes"
    goes = stacked(alt, [("6·N·D at full use", named, None)], colours(list(named)), short_percent)
    bars = [
        ("had by the deadline", {"had": x.flop}, Limit(x.flop_bound, "proven too much")),
        ("at full use", {"at full use": x.ideal.flop}, None),
    ]
    shades = {"had": "c0", "at full use": "c5"}
    compute = stacked("Compute that is had, its bound and the ideal's", bars, shades, "{:.4g}".format)
    yield Block("The best model for the deadline", (Picture(goes, IDEAL), Picture(compute, BOUND)))
