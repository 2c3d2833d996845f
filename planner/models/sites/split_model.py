"""The site split as a Pyomo MILP, and what its rules forbid: those in conflict, and what one site alone could carry.

Units of the rows are MW, M$, racks and 1000 m², so that coefficients stay within a few decades of one. Every rule can
be left out by name, which is how a conflict is found; the power balance is a law and always stays. Rows of soft rules
may be exceeded at a price, and those of any rule where an explanation asks by how much it must move.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from typing import Any

import pyomo.core as pyo

from planner.instance.instance import Instance
from planner.models import NodeLoad, Options, Relaxation, SitesRequest
from planner.models.sites import grid_rules, site_rules
from planner.models.sites.dc_network import LazyRows
from planner.models.sites.site_rules import Rule
from planner.models.sites.split_data import SplitData, add_block, gather
from planner.plan.certificate import BOUNDED, CONFIRMED, ON_TRUST, Conflict
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, Values, remembered, smallest_conflict
from planner.solvers.registry import run_milp
from planner.solvers.search_deadline import Deadline

# In the order of the tries to leave a rule out of a conflict: those that say least to the user go first.
RULES: dict[str, Rule] = {rule.name: rule for rule in reversed((*site_rules.SITE_RULES, *grid_rules.GRID_RULES))}
# Rules of the split say nothing of what one node could carry.
_OF_A_SITE = [name for name, rule in RULES.items() if rule.scope != "split"]
_MAX_MOVE = 1e7  # more than any limit is moved by, in any rows' unit
_ROUNDING = 1e-6  # of a module
NO_BALANCE = "the loads and the must-run feed of the grid (load_mw) balance in no way, whatever the sites take"


def loosen(block: Any, rule: Rule, limit: float, name: str = "excess") -> Any:
    """Let a site rule's rows in a split model be exceeded by `limit` each, as `<rule>_<name>`; {}: it has no rows."""
    rows = block.component(rule.name)
    if rows is None or not len(rows):
        return {}
    excess = pyo.Var(sorted({rule.label(i) for i in rows}), domain=pyo.NonNegativeReals, bounds=(0, limit))
    block.add_component(f"{rule.name}_{name}", excess)
    for index, row in rows.items():  # each `body <= upper`, as those of all rules with a unit
        row.set_value((None, row.body - excess[rule.label(index)], row.upper))
    return excess


def build(
    data: SplitData,
    *,
    without: Collection[str] = (),
    loose: Collection[str] = (),
    sites: int | None = None,
    extend: Callable[[Any], None] | None = None,
    max_extra_mw: float = 0.0,
    max_modules: int | None = None,
) -> pyo.ConcreteModel:
    """Build the MILP of the site split without the named rules and an objective; `sites`: the number of open ones.

    Rules in `loose` act through their own rows alone: no bound knows of them, so that their limits can be moved or
    priced. `extend` adds decisions before the rules; where it creates `extra_mw` by site, these are loads in MW in
    addition to those of the modules, at most `max_extra_mw` over all sites. `max_modules` bounds the modules of all
    sites where the caller knows a tighter bound than the rules give.
    """
    model = pyo.ConcreteModel()
    rules = [rule for name, rule in RULES.items() if name not in without]
    bounding = [rule for rule in rules if rule.name not in loose]
    total = site_rules.max_campus_modules(data, bounding, max_modules)
    other_mw = sum(max(0.0, node.load_mw) for node in data.grid.nodes)  # must-run feed left out
    max_load_mw = total * data.module_mw + max_extra_mw + other_mw
    bounded = "generation" in {rule.name for rule in bounding}
    _decisions(model, data, bounding, sites, total)
    if extend is not None:
        extend(model)
    grid_rules.power_balance(model, data, max_load_mw, bounded=bounded)
    for rule in rules:
        rule.rows(model, data)
    # What its readers ask for: the excess of each soft rule, its price a year, and the block of each year.
    soft, model.years = sorted(data.grid.rules.soft.items()), {"": model}  # the grid's own year
    model.excess = {name: loosen(model, RULES[name], own.max_excess / RULES[name].scale) for name, own in soft}
    musd = {name: own.usd_per_year * RULES[name].scale / 1e6 for name, own in soft}
    model.penalty_musd = sum(musd[name] * sum(excess.values()) for name, excess in model.excess.items())
    for name, year in data.scenarios.items():
        block = model.years[name] = add_block(model, year, name, total)
        grid_rules.power_balance(block, year, max_load_mw, bounded=bounded)
        for rule in reversed(rules):
            if rule.yearly:
                rule.rows(block, year)
    networks = [year.network for year in (data, *data.scenarios.values()) if year.network is not None]
    if networks:
        columns = [x for each in zip(model.years.values(), networks, strict=True) for x in grid_rules.columns(*each)]
        model.lazy = LazyRows(networks, columns, without, max_load_mw)
    if sites is not None:
        model.exact_sites = pyo.Constraint(expr=sum(model.open.values()) == sites)
    return model


def _decisions(model: Any, data: SplitData, rules: list[Rule], sites: int | None, total: int) -> None:
    """Create a split's decisions, and tie modules to open sites: min · open[s] <= modules[s] <= max · open[s]."""
    minimum, racks, names = 1, data.pins.racks, {rule.name for rule in rules}
    if racks is not None and {"pins", "fault_split"} <= names:  # the racks in all are known
        most = site_rules.max_sites(data, rules) if sites is None else sites
        minimum = site_rules.min_site_modules(data, racks, most)
    maximum = {s: site_rules.max_site_modules(data, s, total, rules) for s in data.candidates}
    candidates = list(data.candidates)
    model.open = pyo.Var(candidates, domain=pyo.Binary)
    model.modules = pyo.Var(candidates, domain=pyo.NonNegativeIntegers, bounds=(0, total))
    model.open_if_used = pyo.Constraint(candidates, rule=lambda m, s: m.modules[s] <= maximum[s] * m.open[s])
    model.used_if_open = pyo.Constraint(candidates, rule=lambda model, s: model.modules[s] >= minimum * model.open[s])
    new = data.new_circuits
    model.circuits = pyo.Var(list(new), domain=pyo.NonNegativeIntegers, bounds=lambda _, k: (0, new[k]))
    upgrades = {site: node.upgrade.max_steps for site, node in data.candidates.items() if node.upgrade}
    model.steps = pyo.Var(list(upgrades), domain=pyo.NonNegativeIntegers, bounds=lambda _, site: (0, upgrades[site]))
    if data.network is not None:
        # The circuits installed in each corridor, built in order; one split has the same in every year.
        joining = [corridor.id for corridor in data.network.buildable]
        later = [(k, j) for k, j in data.network.circuits_to_build if j]
        model.installed = pyo.Var(data.network.circuits_to_build, domain=pyo.Binary)
        model.counting = pyo.Constraint(
            joining, rule=lambda m, k: sum(m.installed[k, j] for j in range(new[k])) == m.circuits[k]
        )
        model.in_order = pyo.Constraint(later, rule=lambda m, k, j: m.installed[k, j] <= m.installed[k, j - 1])


def conflict(instance: Instance, request: SitesRequest, options: Options) -> Conflict | None:
    """Return a smallest set of rules that leaves the split's MILP without a solution, with its proof; else None."""
    data, deadline = gather(instance, request), Deadline(options.time_limit)
    if not split(data, RULES, options).infeasible:
        return None

    def proven(rules: frozenset[str]) -> bool:
        return not deadline.passed and split(data, rules, replace(options, time_limit=deadline.limit)).infeasible

    # All of them are needed, as far as there was time; none where the balance of power alone has no answer.
    conflicting = remembered(proven, list(RULES))
    rules = frozenset(smallest_conflict(conflicting, list(RULES)))
    if len(rules) == 1 and conflicting(frozenset()):
        rules = frozenset()
    # The set is judged again on its own: without any one rule a split exists.
    if deadline.passed:
        return None
    for name in rules:
        without = replace(options, time_limit=deadline.limit)
        if deadline.passed or split(data, rules - {name}, without).solution is None:
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
    """Solve the MILP of the site split with these rules; infeasible where two runs prove that there is no split."""
    return _run(build(data, without=set(RULES) - set(rules)), options)


def _run(m: Any, options: Options, absolute_gap: float | None = None) -> Outcome[Values]:
    limits = {"time_limit": options.time_limit, "seed": options.seed, "threads": options.threads}
    return run_milp(m, solver=options.solver, absolute_gap=absolute_gap, **limits)


def largest_loads(instance: Instance, options: Options) -> list[NodeLoad]:
    """Return the largest load in MW that the split's MILP gives each candidate alone, with the rules that stop it.

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
        for of_sites in (m.open, m.modules):
            of_sites.fix(0)
            of_sites[site].unfix()
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
    """Solve the site split's MILP for how far each rule in a conflict must move, others kept; each is verified.

    The rows of a soft rule move beyond the excess that it allows anyway.
    """
    data, pinned, found = gather(instance, SitesRequest()), "sites.racks", list[Relaxation]()
    for rule in (RULES[name] for name in rules if RULES[name].unit is not None):
        Deadline().check()  # a signal ends it
        # Where a rule also bounds something else, that bound gives way with it.
        m = build(data, loose=(rule.name,))
        excess = loosen(m, rule, _MAX_MOVE, name="move")
        if not excess:
            continue
        m.goal = pyo.Objective(expr=sum(excess.values()))
        outcome = _run(m, options)
        if outcome.solution is not None:
            rows = {n: x * rule.scale for n, var in excess.items() if (x := outcome.solution.of(var)) > 1e-6}
            unit, proved = rule.unit or "", outcome.stop is Stop.PROVED
            found.append(Relaxation(rule=rule.name, amount=sum(rows.values()), unit=unit, rows=rows, proved=proved))
    if "rtt" in rules:
        limit = data.grid.rules.max_rtt_ms or 0.0
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
    return found
