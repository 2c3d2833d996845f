"""The whole run in a few lines: what outlasts its hardware, what it all costs, and what that is a token."""

from collections.abc import Iterator

from planner.instance.instance import Instance
from planner.plan.run import RunPlan
from planner.units import amount, counted, money, words

TIMES = {1: "once", 2: "twice"}
TOKENS = 1e6  # by which cost and energy are told


def run_lines(instance: Instance, x: RunPlan) -> Iterator[str]:
    """Write the run: replacements, the total cost of ownership by part, energy, carbon, and what is not counted."""
    yield from _outlasted(instance, x)
    parts = ", ".join(f"{words(k)} {money(v)}" for k, v in x.usd.items() if v)
    each = f"${x.usd_per_million_tokens:,.4g} a million tokens"
    yield f"{money(x.total_cost_of_ownership_usd)} over {_length(x.years)} = {parts}; {each}"
    tonnes = "" if x.carbon_tonnes is None else f"; {amount(x.carbon_tonnes)} t of CO2"
    joules = x.energy_joules_per_token
    by_token = f"{amount(joules)} J a token ({amount(joules * TOKENS / 3.6e9)} MWh a million)"
    yield f"{amount(x.energy_mwh)} MWh, {by_token}{tonnes}"
    if x.not_counted:
        yield f"not counted: {', '.join(x.not_counted)}"


def _length(years: float) -> str:
    """Write a time in years, or in days where it is short."""
    return f"{years:,.1f} years" if years >= 1 else f"{years * 365:,.3g} days"


def _lives(instance: Instance) -> Iterator[tuple[str, str, float | None, str]]:
    """Yield what is replaced by its name, in words, with its life and its part of the money."""
    h, o = instance.hardware, instance.operation
    for p in h.pools:
        yield p.name, f"racks of {p.name}", None if isinstance(p.rack, str) else p.rack.life_years, ""
    if not h.pools and not isinstance(h.rack, str):
        yield "racks", "racks", h.rack.life_years, "rack_replacement"
    yield "fabric", "a fabric", o.fabric_life_years if o else None, "fabric_replacement"


def _outlasted(instance: Instance, x: RunPlan) -> Iterator[str]:
    """Say of what the run outlasts how often it is replaced."""
    for name, what, life, part in _lives(instance):
        times = x.replacements.get(name, 0)
        if times and life is not None:
            often = TIMES.get(times) or counted(times, "time")
            usd = f", {money(x.usd[part])}" if part in x.usd else ""
            yield f"{_length(x.years)} on {what} with a life of {life:g}: replaced {often}{usd}"
