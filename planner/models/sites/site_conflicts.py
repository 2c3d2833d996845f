"""Name the rules in conflict where no split of sites exists, and what each forbids: of a split, and of a site alone.

All of it is asked of the one model of the split (`split_model.build`): with rules left out, or with one loosened.
"""

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import Any

import pyomo.core as pyo

from planner.instance.instance import Instance
from planner.models import NodeLoad, Options, Relaxation, SitesRequest
from planner.models.sites import split_model
from planner.models.sites.split_data import SplitData, gather
from planner.models.sites.split_model import RULES, build
from planner.plan.certificate import BOUNDED, CONFIRMED, ON_TRUST, Conflict
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, Values, remembered, smallest_conflict
from planner.solvers.registry import run_milp
from planner.solvers.signals import Deadline

# Rules of the split say nothing of what one node could carry.
_OF_A_SITE = [name for name, rule in RULES.items() if rule.scope != "split"]
_MAX_MOVE = 1e7  # more than any limit is moved by, in any rows' unit
_ROUNDING = 1e-6  # of a module
NO_BALANCE = "the loads and the must-run feed of the grid (load_mw) balance in no way, whatever the sites take"


def conflict(instance: Instance, request: SitesRequest, options: Options) -> Conflict | None:
    """Return a smallest conflict of site rules, marked by what confirms it; None where a split exists or may exist."""
    data, deadline = gather(instance, request), Deadline(options.time_limit)
    if not split(data, RULES, options).infeasible:
        return None

    def within() -> Options:
        return replace(options, time_limit=deadline.limit)

    def proven(rules: frozenset[str]) -> bool:
        return not deadline.passed and split(data, rules, within()).infeasible

    # All of them are needed, as far as there was time; none where the balance of power alone has no answer.
    conflicting = remembered(proven, list(RULES))
    rules = frozenset(smallest_conflict(conflicting, list(RULES)))
    if len(rules) == 1 and conflicting(frozenset()):
        rules = frozenset()
    if deadline.passed:
        return None
    # The set is judged again on its own: without any one rule a split exists.
    for name in rules:
        if deadline.passed or split(data, rules - {name}, within()).solution is None:
            return None
    # CONFIRMED by CP-SAT, in whole kilowatts and dollars, which leaves out lazy rows; BOUNDED by the duals of the
    # relaxation in exact fractions; ON_TRUST where neither says so. With the solver highs CP-SAT is not asked.
    m, mark = build(data, without=set(RULES) - rules), ON_TRUST
    if options.solver != "highs" and not deadline.passed:
        from planner.solvers import cpsat

        second = cpsat.run(cpsat.restate(m), time_limit=deadline.limit, seed=options.seed, threads=options.threads)
        mark = CONFIRMED if second.infeasible else mark
    if mark == ON_TRUST and not deadline.passed and highs.refuted(m, time_limit=deadline.limit):
        mark = BOUNDED
    # The rules that say most to the user are named first.
    reason = "; ".join(RULES[name].sentence(data) for name in reversed(RULES) if name in rules) or NO_BALANCE
    return Conflict(decision="sites", rules=tuple(sorted(rules)), reason=reason, checked=mark)


def split(data: SplitData, rules: Collection[str], options: Options) -> Outcome[Values]:
    """Return a site split that satisfies these rules; infeasible where two runs prove that none does."""
    return _run(build(data, without=set(RULES) - set(rules)), options)


def _run(m: Any, options: Options, absolute_gap: float | None = None) -> Outcome[Values]:
    limits = {"time_limit": options.time_limit, "seed": options.seed, "threads": options.threads}
    return run_milp(m, solver=options.solver, absolute_gap=absolute_gap, **limits)


def largest_loads(instance: Instance, options: Options) -> list[NodeLoad]:
    """Return the largest load in MW of every candidate site alone, largest first, with the rules that stop it there.

    A rule is named whose own bound is that load, or without which one module more fits; where only several together
    hold it back, a smallest set of them.
    """
    data = gather(instance, SitesRequest())

    @cache
    def stated(rules: frozenset[str], most: int | None = None) -> Any:
        m = build(data, without=set(RULES) - rules, max_modules=most)
        m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
        return m

    def most(site: str, rules: frozenset[str], enough: int | None = None) -> int | None:
        """Return the most modules of one site alone under some rules, or as many as are enough; None: no answer."""
        Deadline().check()  # a signal ends it
        m = stated(rules, enough)
        for other in data.candidates:
            for var in (m.open[other], m.modules[other]):
                if other == site:
                    var.unfix()
                else:
                    var.fix(0)
        outcome = _run(m, options, absolute_gap=0.99)  # less than one module away is a proof
        if outcome.solution is None:
            return 0 if outcome.infeasible else None
        modules: float = outcome.solution.of(m.modules[site])
        return round(modules)

    every = frozenset(_OF_A_SITE)
    largest = {site: modules for site in data.candidates if (modules := most(site, every)) is not None}
    enough = max(largest.values(), default=0) + 1

    def stopping(site: str) -> tuple[str, ...]:
        modules, left = largest[site], dict.fromkeys(_OF_A_SITE)
        for name in _OF_A_SITE:
            rule = RULES[name]
            bounds = rule.max_site_modules(data, site, enough), rule.max_modules(data)
            if any(bound is not None and bound < modules + 1 - _ROUNDING for bound in bounds):
                del left[name]

        def stops(rules: frozenset[str]) -> bool:
            found = most(site, rules, enough)
            return found is not None and found <= modules

        conflicting = remembered(stops, _OF_A_SITE)
        while left and conflicting(frozenset(left)):
            for name in smallest_conflict(conflicting, list(left)):
                del left[name]
        # With the row of the site, where one row is that of it.
        rows = {name: f"{name}[{site}]" for name in _OF_A_SITE if RULES[name].scope == "site"}
        of_area = ("headroom", "generation") if data.grid.rules.grid_model == "none" else ("headroom",)
        rows |= {name: f"{name}[{data.candidates[site].balancing_authority}]" for name in of_area}
        return tuple(sorted(rows.get(name, name) for name in _OF_A_SITE if name not in left))

    racks, mw = data.module_racks, data.module_mw
    loads = (NodeLoad(node=x, racks=n * racks, mw=n * mw, stopped_by=stopping(x)) for x, n in largest.items())
    return sorted(loads, key=lambda load: (-load.racks, load.node))


def relaxations(instance: Instance, rules: Collection[str], options: Options) -> list[Relaxation]:
    """Return by how much each site rule in a conflict must move at least, the others kept; a solution verifies each."""
    data, pinned = gather(instance, SitesRequest()), "sites.racks"
    found = [_move(data, name, options) for name in rules if RULES[name].unit is not None and RULES[name].movable]
    if "rtt" in rules:
        limit = instance.grid.rules.max_rtt_ms or 0.0 if instance.grid else 0.0
        trips = sorted({ms for p in data.pairs if (ms := data.rtt_ms(p)) > limit})

        def farther(ms: float) -> SplitData:
            return gather(instance.replaced(grid__rules__max_rtt_ms=ms), SitesRequest())

        first = bisect_left(trips, True, key=lambda ms: split(farther(ms), RULES, options).solution is not None)
        proved = first in (0, len(trips)) or split(farther(trips[first - 1]), RULES, options).infeasible
        found += [
            Relaxation(rule="rtt", amount=ms - limit, unit="ms", proved=proved) for ms in trips[first : first + 1]
        ]
    if "pins" in rules and pinned in instance.pins:
        free = gather(instance.replaced(pins={k: v for k, v in instance.pins.items() if k != pinned}), SitesRequest())
        m = build(free)
        m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
        most = _run(m, options, absolute_gap=0.99)
        if most.solution is not None:
            racks = data.module_racks * sum(round(most.solution.of(x)) for x in m.modules.values())
            fewer, proved = float(instance.pins[pinned] - racks), most.stop is Stop.PROVED
            if fewer > 0:  # else the pin fails for another reason than too many racks
                found.append(Relaxation(rule="pins", amount=fewer, unit="racks fewer", proved=proved))
    return [x for x in found if x is not None]


def _move(data: SplitData, name: str, options: Options) -> Relaxation | None:
    """Minimise by how much the rows of one site rule must move, beyond the excess that a soft rule allows anyway."""
    Deadline().check()  # a signal ends it
    rule = RULES[name]
    # Where a rule also bounds something else, that bound gives way with it.
    m = build(data, loose=(name,))
    excess = split_model.loosen(m, rule, _MAX_MOVE, name="move")
    if excess is None:
        return None
    m.goal = pyo.Objective(expr=sum(excess.values()))
    outcome = _run(m, options)
    if outcome.solution is None:
        return None
    rows = {n: x * rule.scale for n, var in excess.items() if (x := outcome.solution.of(var)) > 1e-6}
    proved = outcome.stop is Stop.PROVED
    return Relaxation(rule=name, amount=sum(rows.values()), unit=rule.unit or "", rows=rows, proved=proved)
