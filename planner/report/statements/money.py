"""Statements on money: the capital by part, the whole run with what it outlasts, and what the total leaves out."""

from collections.abc import Iterator

from planner.instance.instance import Instance
from planner.plan.plan import Plan
from planner.plan.run import RunPlan
from planner.report.statements.statement import Statement
from planner.units import amount, counted, money, words

TIMES = {1: "once", 2: "twice"}
TOKENS = 1e6  # the unit of cost and energy by token
KEYS = {
    "energy_usd_per_mwh": "energy",
    "fabric_life_years": "replacement of the fabric",
    "life_years": "replacement of racks",
    "maintenance_share_per_year": "maintenance",
    "staff_usd_per_year": "staff",
    "grid": "sites (not chosen)",
    "network": "fabric (not designed)",
}


def capital(plan: Plan) -> Iterator[Statement]:
    """State the bill by part, what a year takes, and what of the budget is left."""
    if plan.cost is None:
        return
    parts = ", ".join(f"{words(k)} {money(v)}" for k, v in plan.cost.capex_usd.items() if v)
    yield Statement("figure", "money", f"{money(plan.cost.total_usd)} = {parts}", True, path="cost.total_usd")
    if running := ", ".join(f"{k} {money(v)}" for k, v in plan.cost.opex_usd_per_year.items()):
        yield Statement("figure", "money", f"A year of operation: {running}", path="cost.opex_usd_per_year")


def run(plan: Plan) -> Iterator[Statement]:
    """State the whole run of a plan, if it has one."""
    if plan.run is not None:
        yield from run_statements(plan.instance, plan.run)


def run_statements(instance: Instance, x: RunPlan) -> Iterator[Statement]:
    """State the whole run: its total cost by part, energy and carbon, replacements, and parts left out."""
    each = f"${x.usd_per_million_tokens:,.4g} a million tokens"
    whole = f"{money(x.total_cost_of_ownership_usd)} over {_length(x.years)}"
    yield Statement("figure", "money", f"To own and run: {whole}, {each}", True, path="run.total_cost_of_ownership_usd")
    parts = ", ".join(f"{words(k)} {money(v)}" for k, v in x.usd.items() if v)
    yield Statement("figure", "money", f"That is {parts}", path="run.usd")
    tonnes = "" if x.carbon_tonnes is None else f"; {amount(x.carbon_tonnes)} t of CO2"
    joules = x.energy_joules_per_token
    by_token = f"{amount(joules)} J a token ({amount(joules * TOKENS / 3.6e9)} MWh a million)"
    yield Statement("figure", "money", f"{amount(x.energy_mwh)} MWh, {by_token}{tonnes}", path="run.energy_mwh")
    if replaced := ", ".join(_outlasted(instance, x)):
        yield Statement(
            "warning", "money", f"Outlasts its hardware; replaced: {replaced}.", True, path="run.replacements"
        )
    if x.not_counted:
        yield Statement("warning", "money", _excluded(x.not_counted), True, path="run.not_counted")


def _excluded(keys: tuple[str, ...]) -> str:
    """Write what the total leaves out, and where each is set."""
    names = dict.fromkeys(KEYS.get(k.rpartition(".")[2], k) for k in keys)
    where = dict.fromkeys(k.rpartition(".")[0] for k in keys if "." in k)
    return f"Excluded: {', '.join(names)}" + (f" (set under {', '.join(where)})." if where else ".")


def _length(years: float) -> str:
    """Write a time in years, or in days where it is short."""
    return f"{years:,.1f} years" if years >= 1 else f"{years * 365:,.3g} days"


def _lives(instance: Instance) -> Iterator[tuple[str, str, float | None, str]]:
    """Yield each replaced part: its key, its name, its life in years and its key of the money."""
    h, o = instance.hardware, instance.operation
    for p in h.pools:
        yield p.name, f"racks of {p.name}", None if isinstance(p.rack, str) else p.rack.life_years, ""
    if not h.pools and not isinstance(h.rack, str):
        yield "racks", "racks", h.rack.life_years, "rack_replacement"
    yield "fabric", "fabric", o.fabric_life_years if o else None, "fabric_replacement"


def _outlasted(instance: Instance, x: RunPlan) -> Iterator[str]:
    """Say of what the run outlasts how often it is replaced."""
    for name, what, life, part in _lives(instance):
        times = x.replacements.get(name, 0)
        if times and life is not None:
            often = TIMES.get(times) or counted(times, "time")
            usd = f" ({money(x.usd[part])})" if part in x.usd else ""
            yield f"{what} {often}{usd}"
