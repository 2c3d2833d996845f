"""Statements on the result of a plan and its certainty: verdict, purchase, binding limits, money, cautions."""

import math
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from planner.imports.unmodelled_items import not_modelled_notes
from planner.instance.base_types import Sourced
from planner.instance.instance import Instance
from planner.instance.plausible_ranges import implausible
from planner.instance.scaling_law import ModelChoice
from planner.physics.network.fabric_designs import max_joined_racks
from planner.physics.training import step_prediction
from planner.plan.certificate import Violation
from planner.plan.plan import Cost, Plan, RunPlan
from planner.planning.finish_date import start_days
from planner.report.decisions import Statement, days, name_of_part
from planner.solvers.search_deadline import FIRST_PLAN_SECONDS
from planner.units import amount, counted, few, memory, money, percent, ratio, short, short_percent, words

PROVEN = 1e-9  # relative: a gap of rounding alone
LISTED_VIOLATIONS = 5  # violations in a summary
WORTH = 1e-3  # relative: less time is not worth a figure
ENDED = {
    "gap": "the search ends with this gap",
    "limit": "the time limit ended the search",
    "interrupted": "interrupted",
}


def disagreement(violations: Sequence[Violation]) -> Iterator[str]:
    """Write, before a plan's verdict, that the checker disagrees with it, and on which rules; nothing if it agrees."""
    if violations:
        yield "NOT VERIFIED: the checker disagrees with this plan; please report it with the instance"
    yield from (f"  {violation.rule}: {violation.message}" for violation in violations[:LISTED_VIOLATIONS])
    if len(violations) > LISTED_VIOLATIONS:
        yield f"  and {len(violations) - LISTED_VIOLATIONS} more, in the plan's violations"


def verdict(plan: Plan) -> Iterator[Statement]:
    """State the plan's objective with its proof, or why there is no plan; then cheaper, simpler and other plans."""
    why, objective = plan.conflict, plan.objective
    if why is not None and not why.rules and plan.status == "unknown":
        remedy = " Give more time." if plan.stopped == "limit" and plan.time_limit_seconds is not None else ""
        yield Statement("verdict", "verdict", f"No plan yet: {why.reason}.{remedy}", True)
    elif why is not None:
        yield Statement("verdict", "verdict", f"No plan: {why.reason}.", True)
        if why.rules:
            twice = f" ({why.checked})" if why.checked else ""
            yield Statement("limit", "verdict", f"{why.in_words}{twice}.", True)
        if plan.status == "infeasible" and why.decision != "sites" and objective.outside:
            text = "Proven over the declared space (docs/joint.md; --verbose names what is outside)."
            yield Statement("proof", "verdict", text, True, short=True)
            yield Statement("proof", "verdict", f"Proven over the declared space; not in it: {objective.outside}")
    elif objective.value is not None:
        yield Statement("verdict", "verdict", f"{_comes_to(plan, objective.value)} {_sureness(plan)}", True)
        yield from _ends(plan)
        yield from _other_choices(plan, objective.value)


def _comes_to(plan: Plan, value: float) -> str:
    section, trains = plan.layout.metrics if plan.layout else plan.pools, ""
    if section is not None:
        low, high = section.days_to_train_interval
        trains = f"{days(section.days_to_train)} days (likely {days(low)} to {days(high)})"
    weighed = ", a year of broken soft rules included" if plan.sites and plan.sites.excess_usd else ""
    match plan.objective.name:
        case "cost_usd":
            return f"Costs {money(value)} to buy{weighed}; trains in {trains}."
        case "total_cost_of_ownership_usd":
            years = plan.instance.limits.operation_years
            if years is None:
                return f"Costs {money(value)} to buy and to run until the model is trained{weighed}, in {trains}."
            span = f"{years:g} year{'s' * (years != 1)}"
            return f"Costs {money(value)} to buy and to run for {span}{weighed}; trains in {trains}."
        case "finish_date":
            wait = start_days(plan.instance, plan.sites)
            start = f"from day {days(wait)} on, when all that it uses is ready" if wait else "from the first day on"
            return f"Ends {days(value)} days after the decision: trains in {trains} {start}."
        case "loss":
            return f"Reaches a loss of {value:.4f} nats a token in {trains}."
    fits = plan.layout is None or plan.layout.metrics.fits_memory  # else it is a user's own
    return f"{'Trains' if fits else 'Does not fit in memory; it would train'} in {trains or f'{days(value)} days'}."


def _sureness(plan: Plan) -> str:
    objective = plan.objective
    if objective.name == "frontier":
        knee = plan.curve is not None and any(point.knee and point.asked for point in plan.curve.points)
        so_far = "" if plan.curve is None or plan.curve.stopped == "proved" else " so far"
        what, without = ("The knee", "") if knee else ("The fastest plan", ", which has no knee")
        where = f"{what} of the curve{so_far}{without}"
        if objective.bound is None:
            return f"{where}; no bound is proven."
        return f"{where}; no plan of its capital trains in less than {days(objective.bound)} days."
    if not objective.bound:
        return "No bound is proven."
    gap = objective.gap or 0.0
    exact, size = gap <= PROVEN, percent(gap) if gap >= 1e-3 else "under 0.1 %"
    if exact or (objective.name == "days_to_train" and plan.status == "optimal"):
        less = f"Proven: no plan is faster than {days(objective.bound)} days ({size} less)"
        sure, free = "Proven optimal" if exact else less, objective.fabric_free_bound
        # The bound over all fabrics, where they could gain more than they cost, or where that is none.
        if free is not None and objective.name == "days_to_train" and objective.value:
            most = _most_joined(plan) if plan.instance.grid is None else math.inf
            few = most < (plan.instance.hardware.racks or 0)
            sure += f"; no fabric of at most {most:,} racks" if few else "; no fabric"
            away = percent((objective.value - free) / objective.value)
            if (objective.bound - free) / objective.value >= WORTH:
                sure += f", at any price, could bring it below {days(free)} ({away} less)"
            else:
                sure = f"{sure} is {percent(WORTH)} faster" if exact else less
        return f"{sure}."
    section, limit, late = plan.layout or plan.pools, plan.time_limit_seconds, ""
    if section is not None and plan.stopped == "limit" and limit is not None and limit < FIRST_PLAN_SECONDS:
        spent = section.certificate.seconds
        why = f"as a first plan may take up to {FIRST_PLAN_SECONDS:g}"
        late = f" after {ratio(spent)} s instead of {ratio(limit)}, {why}" if spent > 1.1 * limit else ""
    ended = f"; {ENDED[plan.stopped]}{late}" if plan.stopped in ENDED else ""
    bound = money(objective.bound) if objective.name.endswith("_usd") else f"{days(objective.bound)} days"
    bound = f"{objective.bound:.4f} nats a token" if objective.name == "loss" else bound
    if objective.name == "loss":
        known = "Proven" if plan.status == "optimal" else "Not proven optimal"
        return f"{known}: no plan comes below {bound} (gap {size}{ended}), as long as larger models take longer."
    return f"Not proven optimal: no plan is better than {bound} (gap {size}{ended})."


def _most_joined(plan: Plan) -> float:
    """Bound, for the verdict, the racks that network rules and pins let a fabric join, cabled as the plan's."""
    site = next(iter(plan.fabric.sites.values()), None) if plan.fabric else None
    return max_joined_racks(plan.instance, (site and site.wired_gpus_per_rack) or plan.instance.hardware.rack.gpus)


def _ends(plan: Plan) -> Iterator[Statement]:
    """State what the fastest plan costs where the verdict is of another, and further choices within the tolerance."""
    ends = {end.name: end for end in plan.objective.ends}
    if len(ends) < 2:
        return
    goal, last = plan.objective.ends[0], plan.objective.ends[-1]
    saved = goal.capital_usd - last.capital_usd
    given, share = f"{days(goal.days_to_train)} days", f"{100 * plan.instance.objective.tolerance:g} %"
    if "capital" in ends and not ends["capital"].proven:
        yield Statement("proof", "verdict", f"Not all plans within {share} were looked at for less money.", True)
    if last.days_to_train > goal.days_to_train * (1 + PROVEN):
        gains = [f"costs {money(saved)} less"] if saved > 1e-4 * goal.capital_usd else []  # less is no gain
        if "leaf_local" in ends and ends["leaf_local"].days_to_train != ends["capital"].days_to_train:
            gains.append(f"keeps {percent(ends['leaf_local'].value)} of all-reduce groups in one leaf domain each")
        if "simplest" in ends and last.days_to_train != plan.objective.ends[-2].days_to_train:
            gains.append("is simpler")
        found = "" if plan.status == "optimal" else " found"
        what = " and ".join(gains or ["ties"])
        text = f"The fastest plan{found} takes {given}; this one, within {share} of that, {what}."
        yield Statement("choice", "verdict", text, True, instead=True)
    for name, what, none, others in (
        ("leaf_local", "{} of all-reduce groups whole in one leaf domain", "has more", "have more"),
        ("simplest", "the simplest layout", "is simpler", "be simpler"),
    ):
        if name in ends:
            sure = f"of plans that tie none {none}" if ends[name].proven else f"others may {others}"
            yield Statement("proof", "verdict", f"Within {share}: {what.format(percent(ends[name].value))}; {sure}.")


def _other_choices(plan: Plan, value: float) -> Iterator[Statement]:
    """State what other GPUs, cheaper and simpler plans and a layout free of its framework's rules come to."""
    others, proof, proven = plan.instance.hardware.alternatives, plan.proof, plan.status == "optimal"
    head = f"Chosen among {len(others) + 1} GPUs"
    if others and plan.objective.name == "finish_date" and proven:
        yield Statement("choice", "verdict", f"{head} by the end; no other ends as soon.", True)
    elif others and (proof is None or len(proof.alternatives) != len(others) or not proven):
        why = "the plan holds no proof of the others" if proven else "not proven the best"
        yield Statement("choice", "verdict", f"{head}; {why}.", True)
    elif proof is not None and others:
        texts = []
        for other, own in zip(proof.alternatives, others, strict=True):
            known = "none ends as soon" if other.least_days is None else f"{days(other.least_days)} days at best"
            texts.append(f"{other.accelerator} {known}{_ready(own.ready_months)}")
        own_wait = _ready(plan.instance.hardware.ready_months)
        text = f"{head}{own_wait and f' (this one{own_wait})'}; others: {'; '.join(texts)}."
        yield Statement("choice", "verdict", text, True, instead=True)
    cheaper, simplest, freed = plan.objective.cheaper, plan.objective.simplest, plan.objective.freed
    if cheaper is not None and plan.cost is not None and value:
        saved = plan.counted_usd - cheaper.capital_usd
        slow = f"{days(cheaper.days_to_train)} days ({100 * (cheaper.days_to_train - value) / value:+.2g} %)"
        less = f"{money(saved)} less, {counted(cheaper.racks, 'rack')}"
        text = f"Cheaper: {money(cheaper.capital_usd)} ({less}) trains in {slow}."
        worth = saved >= 0.01 * plan.cost.total_usd  # less is no choice that a reader weighs
        yield Statement("choice", "verdict", text, worth, instead=True)
    if simplest is not None:
        stages, layers = simplest.layers_per_stage, simplest.recomputed_layers
        even = "" if len(stages) == 1 else ", even stages" if len(set(stages)) == 1 else ", uneven stages"
        recompute = f"{counted(layers, 'layer')} recomputed" if layers else "no recompute"
        loss = f"{100 * simplest.loss:+.2g} % ({days(simplest.days_to_train)} days), inside the error of the prediction"
        text = f"Simpler: {simplest.layout}{even}, {recompute}: {loss}, no dearer."
        yield Statement("choice", "verdict", text, True, instead=True)
    if freed is not None:
        faster = f"{percent(freed.faster)} faster"
        text = f"Free of {freed.framework}'s rules for the layers of stages, the same degrees are {faster}."
        yield Statement("choice", "verdict", text, freed.faster >= WORTH, instead=True)


def _ready(months: float) -> str:
    return f", ready in {months:g} month{'' if months == 1 else 's'}" if months else ""


def racks_of(plan: Plan) -> int | None:
    """Return the racks that a plan buys or owns, for its statements."""
    return sum(site.racks for site in plan.sites.sites) if plan.sites else plan.instance.hardware.racks


def bill(plan: Plan, cost: Cost) -> Iterator[Statement]:
    """State in the verdict what is bought (racks, GPUs, sites, price, budget), its bill by part, and yearly costs."""
    racks, hardware = racks_of(plan), plan.instance.hardware
    layout, gpu = plan.layout, hardware.accelerator.name
    gpus = f" ({layout.gpus_used + layout.gpus_idle:,} {gpu})" if layout else ""
    bought = "" if racks is None else f"{counted(racks, 'rack')}{gpus}"
    if hardware.pools:
        bought = " and ".join(f"{counted(pool.racks, 'rack')} of {pool.name}" for pool in hardware.pools)
    ids = [site.id for site in plan.sites.sites] if plan.sites else []
    at = f" at {ids[0] if len(ids) == 1 else counted(len(ids), 'site')}" if ids else ""
    budget = plan.instance.limits.budget_usd
    of = f" (budget {money(budget)})" if budget else ""
    if bought:
        yield Statement("choice", "verdict", f"Buys {bought}{at} for {money(cost.total_usd)}{of}.", True)
    parts = [f"{words(part)} {money(usd)}" for part, usd in cost.capex_usd.items() if usd]
    if counted_usd := cost.operation_years * sum(cost.opex_usd_per_year.values()):
        parts.append(f"{cost.operation_years:g} years of {' and '.join(cost.opex_usd_per_year)} {money(counted_usd)}")
    total = f"{money(cost.total_usd)} = {', '.join(parts)}" if parts else "Nothing that is bought has a price."
    yield Statement("figure", "money", total, True)
    if running := ", ".join(f"{part} {money(usd)}" for part, usd in cost.opex_usd_per_year.items()):
        yield Statement("figure", "money", f"A year of operation: {running}")


USED = {"used": "useful FLOP", "gemm": "matrix products below peak"}  # of a chosen model's compute


def model_choice(plan: Plan, choice: ModelChoice) -> Iterator[Statement]:
    """State the model that a plan chooses for the deadline, its bound, and the model of full use."""
    model = plan.instance.workload.model
    shape = f": {model.layers} layers of {model.hidden:,}, {model.heads} heads"
    size = f"{_trillions(choice.parameters, 2)} parameters on {_trillions(choice.tokens, 1)} tokens{shape}"
    below = f"proven below {choice.flop_bound:.4g}" if choice.flop <= choice.flop_bound else "none larger has a plan"
    text = f"{size}; {choice.flop:.4g} FLOP by the deadline, {below}"
    if choice.assumed is not None:
        text += f"; assumed were {_trillions(choice.assumed.parameters, 1)} on {_trillions(choice.assumed.tokens, 0)}"
    yield Statement("choice", "model", text, True)
    ideal = choice.ideal
    parts = sorted(((share, part) for part, share in choice.compute_shares.items() if abs(share) >= 5e-4), reverse=True)
    goes = ", ".join(f"{short_percent(share)} {USED.get(part) or name_of_part(part)}" for share, part in parts)
    size = f"{_trillions(ideal.parameters, 1)} on {_trillions(ideal.tokens, 0)}"
    yield Statement("figure", "model", f"At full use {size}, loss {ideal.loss:.4f}; its compute goes to: {goes}")
    yield Statement("figure", "model", f"Batch of {choice.batch_tokens / 1e6:,.1f}M tokens")


def _trillions(value: float, decimals: int) -> str:
    return f"{value / 1e12:,.{decimals}f}T" if value >= 1e12 else short(value)


IDLE = 0.01  # share of the budget, or of the GPUs bought, from which it is worth a word
FULL = 0.99  # share of a limit from which it is named
ASKED = ("", "limits", "workload", "workload.choose", "hardware")  # parts of the question, with sources further down


def limits(plan: Plan) -> Iterator[Statement]:
    """State in the verdict which limits are full (batch, memory, deadline), and what binds: money, power or racks."""
    full, layout = list[Statement](), plan.layout
    most, deadline = plan.instance.limits.max_batch_tokens, plan.instance.limits.deadline_days
    if layout is not None:
        metrics, bytes_used = layout.metrics, layout.metrics.memory_bytes_per_gpu
        one_more = layout.microbatches_per_step * layout.microbatch_sequences * plan.instance.workload.sequence_length
        ends = plan.objective.limited_by == "layout" and metrics.tokens_per_step + one_more > (most or math.inf)
        if most is not None and (ends or metrics.tokens_per_step >= FULL * most):
            text = f"Batch: {short(metrics.tokens_per_step)} of {short(most)} tokens a step."
            full.append(Statement("limit", "layout", text, True))
        if bytes_used >= FULL * metrics.memory_limit_bytes:
            text = f"Memory: {memory(bytes_used)} of {memory(metrics.memory_limit_bytes)} on the fullest GPU."
            full.append(Statement("limit", "layout", text, True))
        if deadline is not None and metrics.days_to_train >= FULL * deadline:
            text = f"Deadline: {metrics.days_to_train:,.1f} of {deadline:,.1f} days."
            full.append(Statement("limit", "days", text, True))
    # The limit that one more block of racks would reach, where it is determined.
    placement = plan.placement
    size = placement.block_racks if placement else 0
    block = f"one more block of {counted(size, 'rack')}" if size else "one more replica"
    budget, racks, end = plan.instance.limits.budget_usd, racks_of(plan), ""
    match plan.objective.limited_by:
        case "budget" if plan.cost is not None and budget is not None:
            end = f"Budget: {money(budget - plan.cost.total_usd)} is left, less than {block} costs."
        case "grid":
            end = f"Power and sites: they cannot feed {block}."
        case "owned_racks":
            free = (racks or 0) - placement.block_racks * sum(placement.blocks_by_site.values()) if placement else 0
            left = f"{free:,} of {racks:,} are left over, too few" if free else f"{racks or 0:,} given, no room"
            end = f"Racks: {left} for {block}."
        case "fabric":
            each = "" if plan.instance.grid is None else " at each site"
            end = f"Fabric: {_joined(plan)}{each}, no room for {block}."
        case "tolerance":
            end = f"Tolerance: {block} would train at most {100 * plan.instance.objective.tolerance:g} % faster."
        case "layout":
            end = f"{block[0].upper()}{block[1:]} would not train faster."
    if end and full and plan.objective.limited_by == "layout":  # the full one is the limit, and racks are none
        full[0] = full[0]._replace(text=f"{full[0].text.removesuffix('.')}; {end[0].lower()}{end[1:]}")
    elif end:
        full.insert(0, Statement("limit", "money", end, True))
    yield from full


def _joined(plan: Plan) -> str:
    """Write, for a plan's limits, how many racks a site's pinned leaf, or its one or two tiers of switches, joins."""
    network, pins = plan.instance.network, plan.instance.pins
    if network is None or plan.fabric is None or plan.placement is None:
        return ""
    site = next(iter(plan.fabric.sites.values()))
    most = _most_joined(plan)
    joins = f"at most {counted(int(most), 'rack')}" if math.isfinite(most) else "no more"
    tiers = min(network.max_tiers, pins.get("fabric.tiers", network.max_tiers))
    if tiers > 2:
        return f"a leaf as pinned joins {joins}"
    limit = f"{'network.max_tiers' if network.max_tiers == tiers else 'pins.fabric.tiers'} is {tiers}"
    tier, join = ("one tier", "joins") if tiers == 1 else ("two tiers", "join")
    leaf = ", the leaf as pinned" * any(path.rpartition(".")[2].startswith("leaf_") for path in pins)
    return f"{tier} of {site.boxes} ({limit}{leaf}) {join} {joins}"


def implausible_inputs(plan: Plan) -> Iterator[Statement]:
    """State the implausible figures of a plan's instance, with the plausible range and why."""
    found = list(implausible(plan.instance))
    if len(found) > 1:
        others = f"{counted(len(found) - 1, 'more figure')} implausible (--verbose)"
        yield Statement("warning", "verdict", f"{found[0].partition(':')[0]}; {others}.", True, short=True)
    yield from (Statement("warning", "verdict", f"{text}.", len(found) == 1) for text in found)


def cautions(plan: Plan) -> Iterator[Statement]:
    """State a plan's cautions: racks without a price, unspent money, idle GPUs, extrapolations, unsourced inputs."""
    budget, hardware = plan.instance.limits.budget_usd, plan.instance.hardware
    counts_money = budget is not None or plan.instance.objective.in_dollars
    if plan.cost is not None and counts_money and not hardware.pools and not hardware.rack.price_usd:
        text = "Racks have no price (hardware.rack.price_usd is 0): the bill leaves them out and no budget limits them."
        yield Statement("warning", "money", text, True)
    if plan.cost is not None and budget is not None and not plan.instance.objective.in_dollars:
        left = budget - plan.cost.total_usd
        if left >= IDLE * budget:
            text = f"{money(left)} of the budget of {money(budget)} ({short_percent(left / budget)}) is not spent."
            ends = plan.objective.ends  # what the chosen plan costs less than the fastest, `_ends` says
            saved = ends[0].capital_usd - ends[-1].capital_usd if ends else 0.0
            yield Statement("warning", "money", text, left - saved >= IDLE * budget)
    for note in not_modelled_notes(plan.instance):
        yield Statement("warning", "verdict", f"{note[0].upper()}{note[1:]}.", True)
    if plan.layout is not None:
        # GPUs idle beyond the spares, where they are worth a word.
        layout, idle, bought = plan.layout, plan.layout.gpus_idle, plan.layout.gpus_used + plan.layout.gpus_idle
        racks, reliability = racks_of(plan) or 0, plan.reliability
        each, spare = bought // max(racks, 1), 0
        if reliability is not None:
            stand_by = sum(reliability.spare_racks_by_site.values())
            spare = reliability.spare_gpus_per_rack * (racks - stand_by) + each * stand_by
        if idle - spare >= IDLE * bought:
            usd = plan.cost.capex_usd.get("racks") if plan.cost else None
            worth = f": {money(usd * (idle - spare) / bought)} of racks" if usd else ""
            unit = math.ceil(layout.stage_gpus / layout.racks_per_replica)
            work = unit * layout.replicas_per_rack * layout.stages_per_rack  # GPUs of a rack
            spares = f", {spare:,} more are spares" if spare else ""
            share = short_percent((idle - spare) / bought)
            text = f"{idle - spare:,} of {bought:,} GPUs ({share}) are idle{spares}{worth}."
            if not spare and work and each > work and (each - work) * racks >= 0.9 * idle:
                # GPUs idle in every rack come from the layout; the few others are in racks that no block fills.
                why = f"TP {layout.degrees[0]} x CP {layout.degrees[1]} uses {work}"
                text = f"{each - work} of {each} GPUs in each rack are idle ({why}){worth}."
            yield Statement("warning", "layout", text, True)
        reasons = list(step_prediction.extrapolations(plan.instance, plan.layout).values())
        if len(reasons) > 1:
            text = f"Step time is extrapolated: {reasons[0]}, and {len(reasons) - 1} more (--verbose)."
            yield Statement("warning", "layout", text, True, short=True)
        for reason in reasons:
            yield Statement("warning", "layout", f"Step time is extrapolated: {reason}.", len(reasons) == 1)
    if unsourced := list(without_source(plan.instance, "")):
        yield Statement("warning", "money", f"No source is given for the figures of {few(unsourced, 4)}.", True)


def without_source(value: object, where: str) -> Iterator[str]:
    """Yield for a report's cautions paths of figures without a source at them or above; once a list."""
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
        yield from dict.fromkeys(path for entry in entries for path in without_source(entry, f"{where}[]"))


TIMES = {1: "once", 2: "twice"}
REPLACED = {"racks": "rack_replacement", "fabric": "fabric_replacement"}  # keys of the money
NAMES = {
    "energy_usd_per_mwh": "energy",
    "fabric_life_years": "replacement of the fabric",
    "life_years": "replacement of racks",
    "maintenance_share_per_year": "maintenance",
    "staff_usd_per_year": "staff",
    "grid": "sites (not chosen)",
    "network": "fabric (not designed)",
}


def run(instance: Instance, run: RunPlan) -> Iterator[Statement]:
    """State a plan's whole run: its total cost by part, energy and carbon, replacements, and parts left out."""
    price = run.usd_per_million_tokens
    each = f"{money(price) if price >= 1e4 else f'${price:,.4g}'} a million tokens"
    length = f"{run.years:,.1f} years" if run.years >= 1 else f"{run.years * 365:,.3g} days"
    whole = f"{money(run.total_cost_of_ownership_usd)} over {length}"
    yield Statement("figure", "money", f"To own and run: {whole}, {each}", True)
    parts = ", ".join(f"{words(part)} {money(usd)}" for part, usd in run.usd.items() if usd)
    yield Statement("figure", "money", f"That is {parts}")
    tonnes = "" if run.carbon_tonnes is None else f"; {amount(run.carbon_tonnes)} t of CO2"
    joules = run.energy_joules_per_token
    by_token = f"{amount(joules)} J a token ({amount(joules * 1e6 / 3.6e9)} MWh a million)"
    yield Statement("figure", "money", f"{amount(run.energy_mwh)} MWh, {by_token}{tonnes}")
    replaced = []
    for name, times in run.replacements.items():
        if times:
            what, part = (f"racks of {name}", "") if instance.hardware.pools else (name, REPLACED.get(name, ""))
            usd = f" ({money(run.usd[part])})" if part in run.usd else ""
            replaced.append(f"{what} {TIMES.get(times) or counted(times, 'time')}{usd}")
    if replaced:
        yield Statement("warning", "money", f"Outlasts its hardware; replaced: {', '.join(replaced)}.", True)
    if run.not_counted:
        names = dict.fromkeys(NAMES.get(key.rpartition(".")[2], key) for key in run.not_counted)
        where = dict.fromkeys(key.rpartition(".")[0] for key in run.not_counted if "." in key)
        text = f"Excluded: {', '.join(names)}" + (f" (set under {', '.join(where)})." if where else ".")
        yield Statement("warning", "money", text, True)
