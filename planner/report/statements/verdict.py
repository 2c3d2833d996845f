"""Verdict statements: what comes of the plan, how sure that is, and what a little more time would save."""

from collections.abc import Iterator

from planner.plan.certificate import Conflict, disagreement
from planner.plan.plan import Plan
from planner.report.statements.statement import LIKELY, Statement, days, short_percent
from planner.units import counted, money, percent, words

PROVEN = 1e-9  # relative: a gap of rounding alone
WORTH = 1e-3  # relative: less time is not worth a figure
ENDED = {
    "gap": "the search ends with this gap",
    "limit": "the time limit ended the search",
    "interrupted": "interrupted",
}


def faults(plan: Plan) -> Iterator[Statement]:
    """State before all else that the checker disagrees with the plan, and on which rules."""
    for line in disagreement(plan.violations):
        yield Statement("fault", "verdict", line.strip(), True, path="violations")


def verdict(plan: Plan) -> Iterator[Statement]:
    """State what the plan comes to with its proof, or why there is none, and the plan that is slower and cheaper."""
    if plan.conflict is not None:
        yield from _no_plan(plan, plan.conflict)
    elif plan.objective.value is not None:
        comes_to, interval = _comes_to(plan, plan.objective.value)
        source = "" if interval is None else LIKELY
        path = "layout.metrics.days_to_train" if plan.layout else "objective.value"
        text = f"{comes_to} {_sureness(plan)}"
        yield Statement("verdict", "verdict", text, True, interval, source, path=path)
        yield from _cheaper(plan, plan.objective.value)


def _no_plan(plan: Plan, why: Conflict) -> Iterator[Statement]:
    if not why.rules and plan.status == "unknown":
        remedy = " Give more time." if plan.stopped == "limit" and plan.time_limit_seconds is not None else ""
        yield Statement("verdict", "verdict", f"No plan yet: {why.reason}.{remedy}", True)
        return
    yield Statement("verdict", "verdict", f"No plan: {why.reason}.", True)
    if why.rules:
        twice = f" ({why.checked})" if why.checked else ""
        rules = ", ".join(why.rules)
        text = f"Rules in conflict ({why.decision}): {rules}; without any one of them the rest can be met{twice}."
        yield Statement("limit", "verdict", text, True)
    if plan.status == "infeasible" and why.decision != "sites" and plan.objective.outside:
        text = f"Infeasible over the declared space; not in it: {plan.objective.outside}"
        yield Statement("proof", "verdict", text, True, path="objective.outside")


def _comes_to(plan: Plan, value: float) -> tuple[str, tuple[float, float] | None]:
    """Return the sentence of what the plan comes to, and the interval of its days."""
    section = plan.layout.metrics if plan.layout else plan.pools
    interval = None if section is None else section.days_to_train_interval
    likely = "" if interval is None else f" (likely {days(interval[0])} to {days(interval[1])})"
    trains = "" if section is None else f"{days(section.days_to_train)} days{likely}"
    match plan.objective.name:
        case "cost_usd":
            return f"Costs {money(value)} to buy; trains in {trains}.", interval
        case "total_cost_of_ownership_usd":
            return f"Costs {money(value)} to buy and to run until the model is trained, in {trains}.", interval
        case "loss":
            return f"Reaches a loss of {value:.4f} nats a token in {trains}.", interval
    return f"Trains in {trains or f'{days(value)} days'}.", interval


def _sureness(plan: Plan) -> str:
    """Write the proof over the declared space, and the bound over all fabrics."""
    o = plan.objective
    if o.bound is None:
        return "No bound is proven."
    if o.gap is None or o.gap <= PROVEN:
        free = o.fabric_free_bound
        if free is None or o.name != "days_to_train" or not o.value:
            return "Proven optimal."
        away = (o.value - free) / o.value
        if away < WORTH:
            return f"Proven optimal; no fabric is {percent(WORTH)} faster."
        return f"Proven optimal; no fabric, at any price, could bring it below {days(free)} ({percent(away)} less)."
    ended = f"; {ENDED[plan.stopped]}" if plan.stopped in ENDED else ""
    bound = money(o.bound) if o.name.endswith("_usd") else f"{days(o.bound)} days"
    bound = f"{o.bound:.4f} nats a token" if o.name == "loss" else bound
    return f"Not proven optimal: no plan is better than {bound} (gap {percent(o.gap)}{ended})."


def _cheaper(plan: Plan, value: float) -> Iterator[Statement]:
    x = plan.objective.cheaper
    if x is None or plan.cost is None or not value:
        return
    saved = plan.cost.total_usd - x.capital_usd
    slow = f"{days(x.days_to_train)} days ({100 * (x.days_to_train - value) / value:+.2g} %)"
    text = f"Cheaper: {money(x.capital_usd)} ({money(saved)} less, {counted(x.racks, 'rack')}) trains in {slow}."
    runner_up = f"{money(x.capital_usd)}, {days(x.days_to_train)} days"
    worth = saved >= 0.01 * plan.cost.total_usd  # less is no choice that a reader weighs
    yield Statement("choice", "verdict", text, worth, runner_up=runner_up, path="objective.cheaper")


def model_choice(plan: Plan) -> Iterator[Statement]:
    """State the model that is chosen for the deadline, its bound, and the model of full use."""
    x = plan.model_choice
    if x is None:
        return
    model = plan.instance.workload.model
    shape = "" if isinstance(model, str) else f": {model.layers} layers of {model.hidden:,}, {model.heads} heads"
    size = f"{x.parameters / 1e12:,.2f}T parameters on {x.tokens / 1e12:,.1f}T tokens{shape}"
    text, runner_up = f"{size}; {x.flop:.4g} FLOP by the deadline, proven below {x.flop_bound:.4g}", ""
    if x.assumed is not None:
        runner_up = f"assumed were {x.assumed.parameters / 1e12:,.1f}T on {x.assumed.tokens / 1e12:,.0f}T"
        text += f"; {runner_up}"
    yield Statement("choice", "model", text, True, runner_up=runner_up, path="model_choice.flop")
    y = x.ideal
    parts = sorted(((v, k) for k, v in x.compute_shares.items() if abs(v) >= 5e-4), reverse=True)
    goes = ", ".join(f"{short_percent(v)} {words(k)}" for v, k in parts)
    full = f"At full use {y.parameters / 1e12:,.1f}T on {y.tokens / 1e12:,.0f}T, loss {y.loss:.4f}; its compute goes to"
    yield Statement("figure", "model", f"{full}: {goes}", path="model_choice.compute_shares")
    batch = f"Batch of {x.batch_tokens / 1e6:,.1f}M tokens"
    yield Statement("figure", "model", batch, path="model_choice.batch_tokens")
