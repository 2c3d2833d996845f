"""What a reader of a plan should look at: implausible inputs, money and GPUs that idle, inputs that name no source."""

from collections.abc import Iterator

from pydantic import BaseModel

from planner.instance.base import Sourced
from planner.instance.plausible import implausible
from planner.plan.plan import Plan
from planner.units import counted, money, percent

IDLE = 0.01  # share of the budget, or of the GPUs bought, from which it is worth a word
ASKED = ("", "limits", "workload", "workload.choose", "hardware")  # parts of the question, with sources further down
NAMED = 4  # inputs without a source that are named


def warnings(plan: Plan) -> Iterator[str]:
    """Say which inputs are implausible or name no source, what of the budget is not spent, which GPUs do no work."""
    if plan.conflict is not None:
        return
    yield from implausible(plan.instance)
    yield from _idle_money(plan)
    yield from _idle_gpus(plan)
    if bare := list(without_source(plan.instance, "")):
        more = f" and {len(bare) - NAMED} more" if len(bare) > NAMED else ""
        yield f"no source is given for the figures of {', '.join(bare[:NAMED])}{more}"


def _idle_money(plan: Plan) -> Iterator[str]:
    budget = plan.instance.limits.budget_usd
    if plan.cost is None or budget is None or plan.instance.objective.in_dollars:
        return
    left = budget - plan.cost.total_usd
    if left >= IDLE * budget:
        yield f"{money(left)} of {money(budget)} ({percent(left / budget)}) buys nothing"


def _idle_gpus(plan: Plan) -> Iterator[str]:
    if plan.layout is None:
        return
    idle, bought = plan.layout.gpus_idle, plan.layout.gpus_used + plan.layout.gpus_idle
    spare = 0
    if plan.reliability is not None:
        racks = sum(s.racks for s in plan.sites.sites) if plan.sites else plan.instance.hardware.racks or 0
        stand_by = sum(plan.reliability.spare_racks_by_site.values())
        each = bought // max(racks, 1)
        spare = plan.reliability.spare_gpus_per_rack * (racks - stand_by) + each * stand_by
    if idle - spare >= IDLE * bought:
        beside = f", beside {counted(spare, 'spare')}" if spare else ""
        yield f"{idle - spare:,} of {bought:,} GPUs ({percent((idle - spare) / bought)}) do no work{beside}"


def without_source(value: object, where: str) -> Iterator[str]:
    """Yield the paths of the objects of an instance that hold figures of the world and name no source for them.

    A source stands for all that is inside its object; entries of a list are named once.
    """
    if isinstance(value, Sourced) and value.source is not None:
        return
    if isinstance(value, Sourced) and where not in ASKED and set(value.model_fields_set) - {"source", "note"}:
        yield where
        return
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from without_source(getattr(value, name), f"{where}.{name}" if where else name)
    elif isinstance(value, (tuple, dict)):
        entries = value.values() if isinstance(value, dict) else value
        yield from dict.fromkeys(path for x in entries for path in without_source(x, f"{where}[]"))
