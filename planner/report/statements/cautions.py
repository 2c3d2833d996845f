"""Statements on limits and cautions: the binding limit, idle money and GPUs, extrapolations, missing sources."""

import math
from collections.abc import Iterator
from dataclasses import replace

from pydantic import BaseModel

from planner.instance.base import Sourced
from planner.instance.read_items import not_modelled_notes
from planner.plan.layout import LayoutPlan
from planner.plan.plan import Plan
from planner.planning.plausible import implausible
from planner.report.statements.sites import racks_of
from planner.report.statements.statement import Statement, short_percent
from planner.report.statements.training import extrapolations
from planner.units import counted, memory, money, short

IDLE = 0.01  # share of the budget, or of the GPUs bought, from which it is worth a word
FULL = 0.99  # share of a limit from which it is named
ASKED = ("", "limits", "workload", "workload.choose", "hardware")  # parts of the question, with sources further down
NAMED_SOURCES = 4  # inputs without one that are named


def limits(plan: Plan) -> Iterator[Statement]:
    """State which of batch, memory and deadline is full, and which of money, power and racks binds."""
    if plan.conflict is not None:
        return
    full = list(_full(plan, plan.layout)) if plan.layout is not None else []
    end = _end(plan)
    if end and full and plan.objective.limited_by == "layout":  # the full one is the limit, and racks are none
        first, *full = full
        yield replace(first, text=f"{first.text.removesuffix('.')}; {end[0].lower()}{end[1:]}")
    elif end:
        yield Statement("limit", "money", end, True, path="objective.limited_by")
    yield from full


def _full(plan: Plan, x: LayoutPlan) -> Iterator[Statement]:
    m, most = x.metrics, plan.instance.limits.max_batch_tokens
    if most is not None and m.tokens_per_step >= FULL * most:
        text = f"Batch: {short(m.tokens_per_step)} of {short(most)} tokens a step."
        yield Statement("limit", "layout", text, True, path="layout.metrics.tokens_per_step")
    if m.memory_bytes_per_gpu >= FULL * m.memory_limit_bytes:
        text = f"Memory: {memory(m.memory_bytes_per_gpu)} of {memory(m.memory_limit_bytes)} on the fullest GPU."
        yield Statement("limit", "layout", text, True, path="layout.metrics.memory_bytes_per_gpu")
    deadline = plan.instance.limits.deadline_days
    if deadline is not None and m.days_to_train >= FULL * deadline:
        text = f"Deadline: {m.days_to_train:,.1f} of {deadline:,.1f} days."
        yield Statement("limit", "days", text, True, path="layout.metrics.days_to_train")


def _end(plan: Plan) -> str:
    """Say which limit one more block of racks would meet."""
    x = plan.placement
    block = f"one more block of {counted(x.block_racks, 'rack')}" if x and x.block_racks else "one more replica"
    budget, racks = plan.instance.limits.budget_usd, racks_of(plan)
    match plan.objective.limited_by:
        case "budget" if plan.cost is not None and budget is not None:
            return f"Budget: {money(budget - plan.cost.total_usd)} is left, less than {block} costs."
        case "grid":
            return f"Power and sites: they cannot feed {block}."
        case "owned_racks":
            free = (racks or 0) - x.block_racks * sum(x.blocks_by_site.values()) if x else 0
            left = f"{free:,} of {racks:,} are left over, too few" if free else f"{racks or 0:,} given, no room"
            return f"Racks: {left} for {block}."
        case "layout":
            return f"{block[0].upper()}{block[1:]} would not train faster."
    return ""


def implausible_inputs(plan: Plan) -> Iterator[Statement]:
    """State the figures of the instance that are far from any known, with the plausible range and why."""
    found = list(implausible(plan.instance))
    if len(found) > 1:
        others = f"and {counted(len(found) - 1, 'more figure')} are implausible (--verbose)"
        yield Statement("warning", "verdict", f"{found[0].partition(':')[0]}; {others}.", True, short=True)
    for text in found:
        yield Statement("warning", "verdict", f"{text}.", len(found) == 1)


def cautions(plan: Plan) -> Iterator[Statement]:
    """State money and GPUs that idle, what no measured run has shown, and inputs without a source."""
    if plan.conflict is not None:
        return
    budget = plan.instance.limits.budget_usd
    if plan.cost is not None and budget is not None and not plan.instance.objective.in_dollars:
        left = budget - plan.cost.total_usd
        if left >= IDLE * budget:
            text = f"{money(left)} of the budget of {money(budget)} ({short_percent(left / budget)}) is not spent."
            yield Statement("warning", "money", text, True)
    for note in not_modelled_notes(plan.instance):
        yield Statement("warning", "verdict", f"{note[0].upper()}{note[1:]}.", True)
    if plan.layout is not None:
        yield from _idle_gpus(plan, plan.layout)
        reasons = list(extrapolations(plan, plan.layout).values())
        if len(reasons) > 1:
            text = f"Step time is extrapolated: {reasons[0]}, and {len(reasons) - 1} more (--verbose)."
            yield Statement("warning", "layout", text, True, short=True)
        for reason in reasons:
            yield Statement("warning", "layout", f"Step time is extrapolated: {reason}.", len(reasons) == 1)
    if unsourced := list(without_source(plan.instance, "")):
        more = f" and {len(unsourced) - NAMED_SOURCES} more" if len(unsourced) > NAMED_SOURCES else ""
        text = f"No source is given for the figures of {', '.join(unsourced[:NAMED_SOURCES])}{more}."
        yield Statement("warning", "money", text, True)


def _idle_gpus(plan: Plan, x: LayoutPlan) -> Iterator[Statement]:
    idle, bought = x.gpus_idle, x.gpus_used + x.gpus_idle
    racks, r = racks_of(plan) or 0, plan.reliability
    each, spare = bought // max(racks, 1), 0
    if r is not None:
        stand_by = sum(r.spare_racks_by_site.values())
        spare = r.spare_gpus_per_rack * (racks - stand_by) + each * stand_by
    if idle - spare < IDLE * bought:
        return
    usd = plan.cost.capex_usd.get("racks") if plan.cost else None
    worth = f": {money(usd * (idle - spare) / bought)} of racks" if usd else ""
    unit = x.tensor_parallel * x.context_parallel
    work = math.ceil(unit / x.racks_per_replica) * x.replicas_per_rack * x.stages_per_rack  # GPUs of a rack
    spares = f", {spare:,} more are spares" if spare else ""
    share = short_percent((idle - spare) / bought)
    text = f"{idle - spare:,} of {bought:,} GPUs ({share}) are idle{spares}{worth}."
    if not spare and work and each > work and (each - work) * racks >= 0.9 * idle:
        # What idles in every rack is the layout's; the few that are left over stand in racks that no block fills.
        why = f"TP {x.tensor_parallel} x CP {x.context_parallel} uses {work}"
        text = f"{each - work} of {each} GPUs in each rack are idle ({why}){worth}."
    yield Statement("warning", "layout", text, True, path="layout.gpus_idle")


def without_source(value: object, where: str) -> Iterator[str]:
    """Yield the paths of the objects of an instance that hold figures of the world and name no source for them.

    A source covers all that is inside its object; entries of a list are named once.
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
