"""Statements on money: the capital by part, the whole run with what it outlasts, and what the total leaves out."""

from collections.abc import Iterator

from planner.instance.instance import Instance
from planner.plan.plan import Plan
from planner.plan.run import RunPlan
from planner.report.statements.statement import Statement
from planner.units import amount, counted, money, words

TIMES = {1: "once", 2: "twice"}
REPLACED = {"racks": "rack_replacement", "fabric": "fabric_replacement"}  # keys of the money
TOKENS = 1e6  # the unit of cost and energy by token
NAMES = {
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
    length = f"{x.years:,.1f} years" if x.years >= 1 else f"{x.years * 365:,.3g} days"
    whole = f"{money(x.total_cost_of_ownership_usd)} over {length}"
    yield Statement("figure", "money", f"To own and run: {whole}, {each}", True, path="run.total_cost_of_ownership_usd")
    parts = ", ".join(f"{words(k)} {money(v)}" for k, v in x.usd.items() if v)
    yield Statement("figure", "money", f"That is {parts}", path="run.usd")
    tonnes = "" if x.carbon_tonnes is None else f"; {amount(x.carbon_tonnes)} t of CO2"
    joules = x.energy_joules_per_token
    by_token = f"{amount(joules)} J a token ({amount(joules * TOKENS / 3.6e9)} MWh a million)"
    yield Statement("figure", "money", f"{amount(x.energy_mwh)} MWh, {by_token}{tonnes}", path="run.energy_mwh")
    replaced = []
    for name, times in x.replacements.items():
        if times:
            what, part = (f"racks of {name}", "") if instance.hardware.pools else (name, REPLACED.get(name, ""))
            usd = f" ({money(x.usd[part])})" if part in x.usd else ""
            replaced.append(f"{what} {TIMES.get(times) or counted(times, 'time')}{usd}")
    if replaced:
        text = f"Outlasts its hardware; replaced: {', '.join(replaced)}."
        yield Statement("warning", "money", text, True, path="run.replacements")
    if x.not_counted:
        names = dict.fromkeys(NAMES.get(k.rpartition(".")[2], k) for k in x.not_counted)
        where = dict.fromkeys(k.rpartition(".")[0] for k in x.not_counted if "." in k)
        text = f"Excluded: {', '.join(names)}" + (f" (set under {', '.join(where)})." if where else ".")
        yield Statement("warning", "money", text, True, path="run.not_counted")
