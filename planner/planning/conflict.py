"""Why no plan exists: a smallest set of conflicting limits and pins that no plan meets together."""

import math
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from planner.instance.instance import Instance
from planner.instance.network import NETWORK_LIMITS
from planner.models import Options, SitesRequest
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_question import Solving
from planner.models.joint.joint_solution import JointSolution
from planner.models.joint.search.fewest_days import ANY_PLAN
from planner.models.joint.solve_joint import solve_joint, solve_joint_cost
from planner.models.joint.strategy_tables import pipelines_in_memory
from planner.physics.network.fabric_cost import min_fabric
from planner.physics.site.site_power import facility_mw
from planner.physics.training.memory import memory_limit_bytes
from planner.physics.training.step_prediction import machine_of
from planner.plan.certificate import Conflict, decision_of
from planner.planning.changed_instance import Change, change_to, in_fewest_days
from planner.solvers.outcome import UnansweredError, remembered, smallest_conflict
from planner.solvers.progress import start
from planner.solvers.search_deadline import Deadline, OutOfTimeError
from planner.units import counted, memory, money, rounded, to_one

MEMORY = "memory"
ENOUGH_MEMORY = 1e15  # bytes of a GPU: more than any layout takes
MORE_BATCH, MORE_RACKS = 64, 1024  # times the batch and the racks, with which these limits count as relaxed
UNKNOWN = "; whether a larger budget meets it is not known"
ENOUGH_TIERS = 3  # join what racks there are; a search with a fourth takes minutes
CENT = 0.01
WHY = {"interrupted": "interrupted", "limit": "the time limit came first"}  # a search for rules ended, by its cause
JUDGED = 10.0  # seconds in which it may be shown that a budget is not why a deadline is missed


def conflict_of(instance: Instance, options: Options) -> Conflict:
    """Return the conflict of an instance proven to have no plan: a smallest set of rules that no plan meets."""
    # With a grid, a conflict of site rules alone is sought first, as no layout can resolve it. Else limits and pins are
    # left out half by half, and stay out where there is still no plan. Memory alone is tested first, which takes no
    # search. A single rule that remains is dropped too where no plan is found without it and the absence of a plan
    # without any of the rules is proven. Where a limit or a signal comes first the conflict names no rules.
    deadline, rules, kept = Deadline(options.time_limit), _rules(instance), list[str]()
    any_plan = partial(Solving, options=replace(options, gap=ANY_PLAN), deadline=deadline)
    unjudged = []  # sets of rules for which there was no time: a rule that is kept may not be needed

    def relaxed(own: Collection[str]) -> Instance:
        """Return the instance with each rule that may be in conflict relaxed, but for these."""
        question = instance
        for rule, (relax, _) in rules.items():
            question = question if rule in own else relax(question)
        return question

    def proven(own: frozenset[str]) -> bool:
        """Return whether it is proven that no plan meets these rules of a conflict, all others relaxed."""
        none = not deadline.passed and plan_in_time(relaxed(own), any_plan()).status == "infeasible"
        if not none and deadline.passed:
            unjudged.append(own)
        return none

    conflicting = remembered(proven, list(rules))
    try:
        if instance.grid is not None:
            from planner.models.sites import split_model

            unjoined = _unjoined(instance, options.seed, deadline)
            request = SitesRequest(fabric_usd_per_rack=min_fabric(instance.network).usd, refused=unjoined)
            found = split_model.conflict(instance, request, replace(options, time_limit=deadline.limit))
            if found is not None:
                return found
        unpaid = _least_usd(instance) > (instance.limits.budget_usd or math.inf) + CENT  # whatever the other rules are
        with suppress(OutOfTimeError, UnansweredError):  # no layout fits, whatever the racks, sequences and pins
            world = any_plan().world(relaxed({MEMORY}))
            kept = [] if any(pipelines_in_memory(world, s).any() for s in world.strategies()) else [MEMORY]
            if kept:
                more, usable = rules[MEMORY]
                rules[MEMORY] = more, usable + _memory_missing(relaxed({MEMORY}), deadline)
        if not kept:
            kept = ["limits.budget_usd"] if unpaid else smallest_conflict(conflicting, list(rules))
        if not unjudged:
            if len(kept) == 1 and not unpaid and not deadline.passed:
                freed = plan_in_time(rules[kept[0]][0](instance), any_plan())
                kept = [] if freed.plan is None and conflicting(frozenset()) else kept
            reason = _reason(instance, {rule: rules[rule][1] for rule in kept})
            if "limits.budget_usd" in kept:
                reason += _enough(instance, briefly(instance, any_plan(), cheapest=True))
            return Conflict(decision=decision_of(kept), rules=tuple(kept), reason=reason)
        why = WHY[deadline.cause]
    except (OutOfTimeError, UnansweredError) as error:
        why, kept = str(error) or WHY[deadline.cause], []
    known = f"; they are among {', '.join(kept)}" if kept else ""
    reason = f"it is proven that none keeps all limits and pins; rules in conflict: not determined ({why}){known}"
    return Conflict(decision="layout", rules=(), reason=reason)


def plan_in_time(question: Instance, solving: Solving) -> JointSolution:
    """Search a plan that meets the limits of an instance, its deadline among them, whatever its goal."""
    # Where money or power is short the search for the least capital comes to a plan, or to none, far sooner.
    if question.limits.budget_usd is not None or question.limits.facility_power_mw is not None:
        return solve_joint_cost(question, solving, days=False)
    return solve_joint(question, solving, rival=question.limits.deadline_days or math.inf)


def briefly(question: Instance, solving: Solving, *, cheapest: bool) -> JointSolution | None:
    """Search the plan of fewest days, or the cheapest whatever the budget, for the reason of a conflict.

    The cheapest is within 5 %, and the search ends in ten seconds; None where it has no answer.
    """
    options, clock = replace(solving.options, gap=0.05 if cheapest else None), solving.deadline.capped(JUDGED)
    solving = Solving(options=options, deadline=clock, cache=solving.cache)
    try:
        if cheapest:  # no reason names a bound on the days of every plan
            return solve_joint_cost(question.replaced(limits__budget_usd=None), solving, days=False)
        return solve_joint(in_fewest_days(question).replaced(objective__tolerance=0.0), solving)
    except (KeyboardInterrupt, OutOfTimeError, UnansweredError):
        return None


def _enough(instance: Instance, found: JointSolution | None) -> str:
    """Say what the cheapest plan without the budget in conflict costs; empty where none is known."""
    if found is None or found.plan is None or found.usd is None:
        return ""
    least = max(found.lower_bound or 0.0, _least_usd(instance))
    than = "" if least >= found.usd * (1 - 1e-6) else f" than {money(rounded(least, 3, up=False))}"
    none = f", and none less{than}" if (instance.limits.budget_usd or 0.0) < least else ""
    return f"; a plan that keeps the rest costs {money(rounded(found.usd, 3, up=True))}{none}"


def _least_usd(instance: Instance) -> float:
    """Bound the capital of every plan of a cluster by its racks, which it owns, and the least fabric; 0 with a grid."""
    if instance.grid is not None:
        return 0.0
    # One GPU's link and port: a plan has more.
    return (instance.hardware.racks or 0) * instance.hardware.rack.price_usd + min_fabric(instance.network).usd


def too_late(instance: Instance, solution: JointSolution, solving: Solving) -> Conflict | None:
    """Return the conflict of a deadline that the fastest plan misses; without rules where a faster one may exist."""
    # The budget is named unless it is proven that every plan without one is late too.
    deadline, days, bound = instance.limits.deadline_days, solution.days, solution.lower_bound
    if instance.objective.in_dollars:  # its bound in days is that of any plan, whatever it costs
        days = bound = solution.fabric_free_bound if solution.status == "infeasible" else None
    if days is None and solution.status == "infeasible":  # the search ended as its bound passed the deadline
        days = bound
    if deadline is None or days is None or days <= deadline * (1 + 1e-9):
        return None
    if bound is None or bound <= deadline:
        reason = f"the fastest plan so far trains in {days:,.6g} days > {deadline:,.6g}, and a faster one may exist"
        reason += f", in no less than {rounded(bound, 6, up=False):,.6g}" if bound else ""
        return Conflict(decision="layout", rules=(), reason=reason)
    rules, within, asked = ["limits.deadline_days"], "", replace(solving, cache=solving.cache.of(instance))
    start(solving.progress, "deadlines that can be met")
    unknown = solution.plan is None or instance.objective.in_dollars
    fewest = briefly(instance, asked, cheapest=False) if unknown else solution  # however late
    bound = max(bound, (fewest and fewest.lower_bound) or 0.0)
    late = f"trains in less than {bound:,.6g} days > {deadline:,.6g}, the deadline"
    reason = f"no plan {late}"
    if instance.limits.budget_usd is not None:
        within, found = " within the budget", briefly(instance, asked, cheapest=True)
        never = found is not None and found.status == "infeasible"
        rules += [] if never else ["limits.budget_usd"]
        paid = "; no budget meets that deadline" if never else _enough(instance, found) or UNKNOWN
        reason = f"no plan{within} of {money(instance.limits.budget_usd)} {late}{paid}"
    pins = _pins_too_slow(instance, solving)
    rules += [f"pins.{path}" for path in pins]
    reason += f"; without {' or '.join(pins)} it can be met" if pins else ""
    if fewest is not None and fewest.days is not None:
        fewer = ", and perhaps fewer" * (bound < fewest.days * (1 - 1e-3))
        reason += f"; {rounded(fewest.days, 4, up=True):,.6g} days can be met{within}{fewer}"
    elif fewest is not None and fewest.status == "infeasible":
        reason += f"; no deadline can be met{within}"
    given = [rule for rule in _rules(instance) if rule.startswith(("limits.max", "limits.facility", "hardware."))]
    reason += f" (with {' and '.join(given)} as given)"
    return Conflict(decision="layout", rules=tuple(rules), reason=reason)


def _pins_too_slow(instance: Instance, solving: Solving) -> list[str]:
    """Return a smallest set of pins in conflict with the deadline; empty where there is none, or time runs out."""
    clock, pins = solving.deadline.capped(JUDGED), list(instance.pins)
    quick = Solving(options=replace(solving.options, gap=ANY_PLAN), deadline=clock)
    met = set[frozenset[str]]()

    def late(kept: frozenset[str]) -> bool:
        """Return whether no plan with these pins meets the deadline; a time limit leaves that undecided."""
        question = instance.replaced(pins={path: value for path, value in instance.pins.items() if path in kept})
        found = plan_in_time(question, replace(quick, cache=JointCache()))
        met.update([kept] if found.plan is not None else [])
        return found.plan is None and found.status == "infeasible"

    try:
        if not pins or late(frozenset()) or not met:
            return []
        kept = smallest_conflict(remembered(late, pins), pins)
        each = all(any(some >= {*kept} - {path} for some in met) for path in kept)
    except (KeyboardInterrupt, OutOfTimeError, UnansweredError):
        return []
    return kept if each and not clock.passed else []


def over_budget(instance: Instance, usd: float | None, bound_usd: float | None) -> Conflict | None:
    """Return the conflict of a budget that the cheapest plan exceeds; without rules where a cheaper one may exist."""
    budget = instance.limits.budget_usd
    if budget is None or usd is None or usd <= budget + CENT:
        return None
    if bound_usd is None or bound_usd <= budget:
        reason = f"the cheapest plan so far costs {money(usd)} > {money(budget)}, and a cheaper one may exist"
        reason += f", for no less than {money(bound_usd)}" if bound_usd else ""
        return Conflict(decision="layout", rules=(), reason=reason)
    reason = f"no plan by the deadline costs less than {money(bound_usd)} until its run ends > {money(budget)}"
    return Conflict(decision="layout", rules=("limits.deadline_days", "limits.budget_usd"), reason=reason)


def _rules(instance: Instance) -> dict[str, tuple[Change, str]]:
    """Return each limit and pin that may be in conflict, how to relax it, and its words; what tells most comes last."""
    limits, wan, network, hardware = instance.limits, instance.wan, instance.network, instance.hardware

    def without(pin: str) -> Change:
        return lambda question: question.replaced(pins={path: x for path, x in question.pins.items() if path != pin})

    rules = {f"pins.{path}": (without(path), f"pins.{path} = {value!r}") for path, value in instance.pins.items()}
    batch, racks = limits.max_batch_tokens or 0, hardware.racks or 0
    taken = f"a step may take {int(batch // instance.workload.sequence_length):,} sequences"
    rules["limits.max_batch_tokens"] = change_to(limits__max_batch_tokens=batch * MORE_BATCH), taken
    budget, least, price_usd = limits.budget_usd or 0.0, _least_usd(instance), hardware.rack.price_usd
    capital = f"the budget is {money(budget)}"
    if limits.budget_usd is not None and least > budget + CENT:  # the racks and the least fabric cost more
        fabric = " with the least fabric" * (network is not None)
        paid = int(max(0.0, budget - min_fabric(network).usd) // price_usd) if price_usd else 0
        fewer = f"; {counted(paid, 'rack')} or fewer may do" if paid else "; it pays no rack" * (price_usd > 0)
        capital += f"; its {counted(racks, 'rack')}{fabric} cost at least {money(least)}"
        capital += f" ({money(price_usd)} a rack{fewer})"
    drawn = f"; its {counted(racks, 'rack')} draw {facility_mw(hardware, racks):,.6g} MW without a fabric" * (racks > 0)
    for name, text in (
        ("facility_power_mw", f"the facility may draw {limits.facility_power_mw or 0:,.6g} MW{drawn}"),
        ("budget_usd", capital),
        ("deadline_days", f"training must end in {limits.deadline_days or 0:,.6g} days"),
    ):
        if getattr(limits, name) is not None:
            rules[f"limits.{name}"] = change_to(**{f"limits__{name}": None}), text
    if racks:
        own = f"the cluster has {counted(racks, 'rack')} of {hardware.rack.gpus} GPUs"
        # All of them are paid and draw power, together no more than before: else more racks would keep fewer plans.
        rack = hardware.rack.replaced(price_usd=price_usd / MORE_RACKS, it_kw=hardware.rack.it_kw / MORE_RACKS)
        rules["hardware.racks"] = change_to(hardware__racks=racks * MORE_RACKS, hardware__rack=rack), own
    if wan is not None and wan.protection == "one_cut":
        rules["wan.protection"] = change_to(wan__protection="none"), "any one fibre edge may be cut"
    if wan is not None and wan.fibre_edges:
        edges = f"the fibre has {len(wan.fibre_edges):,} edges"
        rules["wan.fibre_edges"] = change_to(wan__fibre_nodes=(), wan__fibre_edges=()), edges
    if network is not None:
        most = network.max_oversubscription
        ratios = ", ".join(to_one(ratio) for ratio in (most if isinstance(most, tuple) else (most or 1,)))
        lost = "switch above the leaves" if network.survives == "one_spine" else "link of a leaf upwards"
        words = {
            "max_oversubscription": f"no fabric is oversubscribed beyond {ratios}",
            "max_tiers": f"no fabric has more than {counted(network.max_tiers, 'tier')}",
            "survives": f"the loss of one {lost} cuts no two leaves",
        }
        for key, free in (NETWORK_LIMITS | {"max_tiers": max(ENOUGH_TIERS, network.max_tiers)}).items():
            if getattr(network, key) != free:
                rules[f"network.{key}"] = change_to(**{f"network__{key}": free}), words[key]
    size, free = max(machine_of(instance).gpu.hbm_bytes * 1e6, ENOUGH_MEMORY), memory_limit_bytes(instance)
    more = change_to(limits__memory_reserve_fraction=0.0, hardware__accelerator__hbm_bytes=size)
    usable = f"{memory(free)} of a GPU can be used" if free > 0 else "the memory kept free on a GPU leaves none"
    return rules | {MEMORY: (more, usable)}


def _memory_missing(instance: Instance, deadline: Deadline) -> str:
    """Say how much memory any layout needs of a GPU, and how much is missing, as far as ten seconds prove it."""
    low = now = machine_of(instance).gpu.hbm_bytes
    high, clock = max(now, ENOUGH_MEMORY), deadline.capped(JUDGED)
    with suppress(OutOfTimeError, UnansweredError):
        while high > 1.01 * low:
            size, asked = math.sqrt(low * high), Solving(options=Options(), deadline=clock)
            world = asked.world(instance.replaced(hardware__accelerator__hbm_bytes=size))
            fits = any(pipelines_in_memory(world, s).any() for s in world.strategies())
            low, high = (low, size) if fits else (size, high)
    if high == ENOUGH_MEMORY or low == now:
        return ""
    least, missing = (memory(rounded(size, 2, up=False)) for size in (low, low - now))
    racks = f" and {instance.hardware.racks:,} racks" if instance.hardware.racks is not None else ""
    even = f"even with {MORE_BATCH} times the batch{racks}, and without pins"
    return f"; {even}, a layout needs a GPU of {least} or more, {missing} more than it has"


def _unjoined(instance: Instance, seed: int, deadline: Deadline) -> frozenset[frozenset[str]]:
    """Return the pairs of sites that no fibre joins where no other is open; none where pins may open a single site."""
    from planner.models.joint.shapes.site_choice import Sites

    sites = Sites(instance=instance, seed=seed)
    sites.deadline = sites.fibre.deadline = deadline
    pins = sites.data.pins
    if not sites.designed or pins.racks is not None or pins.racks_by_site:
        return frozenset()
    return frozenset(frozenset(x) for x in sites.data.pairs if not np.isfinite(sites.fibre.prices(x, 0.0)[1:]).any())


def _reason(instance: Instance, words: dict[str, str]) -> str:
    if MEMORY in words and instance.grid is not None and memory_limit_bytes(instance) > 0:
        from planner.models.joint.shapes.site_choice import MANY_RACKS, Sites

        racks, gpus = Sites(instance=instance).max_site_racks, instance.hardware.rack.gpus
        if racks < MANY_RACKS:  # how many GPUs can share a replica's state
            few = f"no site has room for more than {counted(racks, 'rack')} of {gpus} GPUs, and sites share no state"
            words[MEMORY] += f"; {few}"
    these = "nothing meets all of these" if len(words) > 1 else "nothing meets this limit"
    none = "no layout exists for the model" + " whose fabric the sites have power and room for" * bool(instance.grid)
    return f"{these}: {'; '.join(words.values())}" if words else none
