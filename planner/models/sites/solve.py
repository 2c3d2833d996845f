"""Name the rules in conflict where no split of sites exists, and say what each rule forbids or costs.

All of it is asked of the one model of the split (`model.build`): with rules left out, with the rows of one loosened,
with a site alone or forced open, or with its integers real, so that each row has a price. Costs are yearly: energy,
sites, lines and the links of a mesh between all open sites.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pyomo.core as pyo

from planner.instance.instance import Instance
from planner.models import Options, SitesRequest
from planner.models.sites import model
from planner.models.sites.explanation import LimitPrice, Near, NodeLoad, Relaxation
from planner.models.sites.model import RULES, SplitSolution, build, read, rule_of, yearly_musd
from planner.models.sites.split_data import SplitData, gather, years
from planner.physics.site import cost
from planner.plan.certificate import BOUNDED, CONFIRMED, ON_TRUST, Conflict
from planner.plan.plan_sections import SitesPlan
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, Values, remembered, smallest_conflict
from planner.solvers.registry import run_milp
from planner.solvers.signals import Deadline

# Rules of the split say nothing of what one node could carry.
_SPLIT = frozenset(name for name, rule in RULES.items() if rule.scope == "split")
_MAX_MOVE = 1e7  # more than any limit is moved by, in any rows' unit
_ROUNDING = 1e-6  # of a module, and of a row's price in modules
NO_BALANCE = "the loads and the must-run feed of the grid (load_mw) balance in no way, whatever the sites take"


def conflict(instance: Instance, request: SitesRequest, options: Options) -> Conflict | None:
    """Return a smallest conflict, marked by what confirms it; None where a split exists, or where that is not known."""
    data, deadline = gather(instance, request), Deadline(options.time_limit)
    if not infeasible(data, RULES, options):
        return None

    def proven(rules: frozenset[str]) -> bool:
        return not deadline.passed and infeasible(data, rules, replace(options, time_limit=deadline.limit))

    # All of them are needed, as far as there was time; none where the balance of power alone has no answer.
    conflicting = remembered(proven, list(RULES))
    rules = frozenset(smallest_conflict(conflicting, list(RULES)))
    if len(rules) == 1 and conflicting(frozenset()):
        rules = frozenset()
    if deadline.passed:
        return None
    # The set is judged again on its own: without any one rule a split exists.
    for name in rules:
        if deadline.passed or not feasible(data, rules - {name}, replace(options, time_limit=deadline.limit)):
            return None
    mark = confirmed(data, rules, replace(options, time_limit=deadline.limit))
    # The rules that say most to the user are named first.
    reason = "; ".join(RULES[name].sentence(data) for name in reversed(RULES) if name in rules) or NO_BALANCE
    return Conflict(decision="sites", rules=tuple(sorted(rules)), reason=reason, checked=mark)


def infeasible(data: SplitData, rules: Collection[str], options: Options) -> bool:
    """Return whether it is proven, in two runs, that no split satisfies these rules."""
    return _split(data, rules, options).infeasible


def feasible(data: SplitData, rules: Collection[str], options: Options) -> bool:
    """Return whether there is a split that satisfies these rules: without an answer, nothing is known."""
    return _split(data, rules, options).solution is not None


def _split(data: SplitData, rules: Collection[str], options: Options) -> Outcome[Values]:
    return _run(build(data, without=set(RULES) - set(rules)), options)


def confirmed(data: SplitData, rules: Collection[str], options: Options) -> str:
    """Return what confirms that no split satisfies these rules."""
    # CONFIRMED by CP-SAT, in whole kilowatts and dollars, which leaves out lazy rows; BOUNDED by the duals of the
    # relaxation in exact fractions; ON_TRUST where neither says so. With the solver highs CP-SAT is not asked.
    deadline, m = Deadline(options.time_limit), build(data, without=set(RULES) - set(rules))
    if options.solver != "highs" and not deadline.passed:
        from planner.solvers import cpsat
        from planner.solvers.cpsat_from_pyomo import restate

        second = cpsat.run(restate(m), time_limit=deadline.limit, seed=options.seed, threads=options.threads)
        if second.infeasible:
            return CONFIRMED
    return BOUNDED if not deadline.passed and highs.refuted(m, time_limit=deadline.limit) else ON_TRUST


def _run(m: Any, options: Options, absolute_gap: float | None = None) -> Outcome[Values]:
    limits = {"time_limit": options.time_limit, "seed": options.seed, "threads": options.threads}
    return run_milp(m, solver=options.solver, absolute_gap=absolute_gap, **limits)


def largest_loads(instance: Instance, request: SitesRequest, options: Options) -> list[NodeLoad]:
    """Return the largest load of every candidate, the largest first."""
    data = gather(instance, replace(request, racks=None, exchange=None))
    asked = request.racks or data.pins.racks
    m = build(data, without=_SPLIT)
    m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
    solutions: dict[str, SplitSolution | None] = {}
    for site in data.candidates:
        Deadline().check()  # a signal ends it
        for other in data.candidates:
            for var in (m.open[other], m.modules[other]):
                if other == site:
                    var.unfix()
                else:
                    var.fix(0)
        outcome = _run(m, options, absolute_gap=0.99)  # less than one module away is a proof
        split = None if outcome.solution is None else read(m, data, outcome.solution)
        solutions[site] = split if split is not None and split.total else None
    most = max((split.total for split in solutions.values() if split is not None), default=0)

    @cache
    def priced(without: frozenset[str]) -> _PricedSplit:
        m = build(data, without=without, loose=set(RULES), max_modules=most + 1)
        m.used_if_open.deactivate()
        m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
        return _PricedSplit(m, data)

    loads = []
    for site, split in solutions.items():
        Deadline().check()
        modules = 0 if split is None else split.total
        mw = modules * data.module_mw
        loads.append(
            NodeLoad(
                node=site,
                racks=modules * data.module_racks,
                mw=mw,
                stopped_by=_stopped_by(data, priced, site, split),
                missing_mw=None if asked is None else max(cost.facility_mw(data.hardware, asked) - mw, 0.0),
            )
        )
    return sorted(loads, key=lambda x: (-x.racks, x.node))


def _stopped_by(
    data: SplitData, priced: Callable[[frozenset[str]], "_PricedSplit"], site: str, solution: SplitSolution | None
) -> tuple[str, ...]:
    """Name the rows that keep one module more from a site that is open alone."""
    # Circuits and steps are those of the solution, or all that can be bought where not one module fits. Rows with a
    # price in the largest divisible load are named and their rules left out, until one more fits: so each limit that
    # stops it on its own is named. Where there is no load at all, a rule is named without which there is.
    wanted, names, left_out = 1 + (0 if solution is None else solution.total), set[str](), _SPLIT
    no_plants = {RULES["generation"].label(n.id) for n in data.grid.nodes if n.generation_mw <= 0}
    built = None if solution is None else (solution.circuits, solution.steps)

    def alone(without: frozenset[str]) -> tuple[float, dict[str, float]] | None:
        split = priced(without)
        # A cost of the sites that are closed would be a price of rows that hold them alone.
        split.search.reprice((modules, float(other == site)) for other, modules in split.m.modules.items())
        return split.at({site}, built, {other: wanted * int(other == site) for other in data.candidates})

    while True:
        answer = alone(left_out)
        if answer is None:
            found = {name for name in RULES if name not in left_out and alone(left_out | {name}) is not None}
            names |= {f"{name}[{site}]" if RULES[name].scope == "site" else name for name in found}
        else:
            rows = {name for name, price in answer[1].items() if price > _ROUNDING and answer[0] < wanted - _ROUNDING}
            # Plants where there are none would help almost anywhere: named where nothing else would.
            rows = {row for row in rows if row.partition(" in ")[0] not in no_plants} or rows
            found = {rule_of(row).name for row in rows}
            names |= rows
        if not found:
            return tuple(sorted(names))
        left_out |= found


def relaxations(
    instance: Instance, request: SitesRequest, rules: Collection[str], options: Options
) -> list[Relaxation]:
    """Return by how much each rule of a conflict must move at least, all others kept; a solution verifies each."""
    data = gather(instance, request)
    found = []
    for name in rules:
        Deadline().check()  # a signal ends it
        if RULES[name].unit is not None and RULES[name].movable:
            found.append(_move(data, name, options))
    Deadline().check()
    if "rtt" in rules:
        found.append(_move_rtt(data, options))
    if data.racks is not None and ("demand" in rules or ("pins" in rules and data.pins.racks is not None)):
        found.append(_fewer_racks(instance, request, data.racks, options))
    return [x for x in found if x is not None]


def _move(data: SplitData, name: str, options: Options) -> Relaxation | None:
    """Minimise the sum by which one rule's rows move, beyond the excess that a soft rule allows anyway."""
    rule = RULES[name]
    # Where a rule also bounds something else, that bound gives way with it.
    m = build(data, loose=(name,))
    excess = model.loosen(m, rule, _MAX_MOVE, name="move")
    if excess is None:
        return None
    m.goal = pyo.Objective(expr=sum(excess.values()))
    outcome = _run(m, options)
    if outcome.solution is None:
        return None
    rows = {n: x * rule.scale for n, var in excess.items() if (x := outcome.solution.of(var)) > 1e-6}
    proved = outcome.stop is Stop.PROVED
    return Relaxation(rule=name, amount=sum(rows.values()), unit=rule.unit or "", rows=rows, proved=proved)


def _move_rtt(data: SplitData, options: Options) -> Relaxation | None:
    """Minimise the longest round trip between open sites; return its excess over the limit, in ms and km of route."""
    limit = data.grid.rules.max_rtt_ms or 0.0
    m = build(data, without=("rtt",))
    far = {p: data.rtt_ms(p) for p in data.pairs if data.rtt_ms(p) > limit}
    m.longest = pyo.Var(bounds=(limit, max(far.values(), default=limit)))

    def reach(m: Any, a: str, b: str) -> Any:
        return m.longest >= far[a, b] - (far[a, b] - limit) * (2 - m.open[a] - m.open[b])

    m.reach = pyo.Constraint(list(far), rule=reach)
    m.goal = pyo.Objective(expr=m.longest)
    outcome = _run(m, options)
    if outcome.objective is None:
        return None
    ms = outcome.objective - limit
    km = ms / data.wan.rtt_ms_per_100_route_km * 100
    return Relaxation(rule="rtt", amount=km, unit="km of route", rows={"ms": ms}, proved=outcome.stop is Stop.PROVED)


def _fewer_racks(instance: Instance, request: SitesRequest, asked: int, options: Options) -> Relaxation | None:
    """Find the most racks that fit, and return how many fewer these are than asked for."""
    free = instance.replaced(pins={k: v for k, v in instance.pins.items() if k != "sites.racks"})
    data = gather(free, replace(request, racks=None))
    m = build(data)
    m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
    outcome = _run(m, options, absolute_gap=0.99)
    if outcome.solution is None:
        return None
    racks = data.module_racks * read(m, data, outcome.solution).total
    proved = outcome.stop is Stop.PROVED
    return Relaxation(rule="demand", amount=float(asked - racks), unit="racks fewer", rows={}, proved=proved)


def shadow_prices(instance: Instance, request: SitesRequest, plan: SitesPlan) -> list[LimitPrice]:
    """Compute the USD that one more unit of each limit saves per year, with the plan's sites and lines, dearest first.

    Modules and wavelengths are divisible there, so a price holds for small changes only. Under dc the lazy rows have
    their prices like any other: the search ends once none is violated, so those not stated have none.
    """
    data = gather(instance, request)
    # A limit must act through its own row, or its price would be that of a bound.
    m = build(data, loose=set(RULES) - {"demand", "pins"})
    built = {n.line: n.circuits for n in plan.new_lines}, {u.node: u.steps for u in plan.upgrades}
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    prices = []
    answer = _PricedSplit(m, data).at({x.id for x in plan.sites}, built)
    for name, musd in (answer or (0.0, dict[str, float]()))[1].items():
        rule = rule_of(name)
        saved = musd * 1e6 / rule.scale
        if saved > 1e-3 and rule.unit is not None:
            prices.append(LimitPrice(rule=name, unit=rule.unit, usd_per_year=saved))
    return sorted(prices, key=lambda p: (-p.usd_per_year, p.rule))


class _PricedSplit:
    """A split with open sites, circuits and upgrades fixed and every other integer real: each row has a price."""

    def __init__(self, m: Any, data: SplitData) -> None:
        self.m, self.search = m, highs.relaxed(m)
        self.names = {
            row: rule.label(index) + year.suffix
            for year in years(m, data)
            for rule in RULES.values()
            for component in (rule.name, *rule.components)
            for index, row in (year.block.component(component) or {}).items()
        }

    def at(
        self,
        opened: Collection[str],
        built: tuple[dict[str, int], dict[str, int]] | None,
        most: dict[str, int] | None = None,
    ) -> tuple[float, dict[str, float]] | None:
        """Return the optimum, and by how much one more unit of each limit changes it, rows of one name added up.

        `built`: circuits by corridor and steps by node; None: all that can be bought. `most` bounds modules by site.
        """
        m = self.m
        circuits, steps = built or ({k: x.ub for k, x in m.circuits.items()}, {s: x.ub for s, x in m.steps.items()})
        values: dict[str, Callable[[Any], int]] = {
            "open": lambda s: int(s in opened),
            "steps": lambda s: steps.get(s, 0),
            "at_least": lambda n: int(len(opened) >= n),
            "circuits": lambda k: circuits.get(k, 0),
            "built": lambda k: int(circuits.get(k, 0) > 0),
            "installed": lambda key: int(key[1] < circuits.get(key[0], 0)),
        }
        self.search.bound((m.modules[site], 0, modules) for site, modules in (most or {}).items())
        for name, value in values.items():
            variables = (m.component(name) or {}).items()
            self.search.bound((variable, value(index), value(index)) for index, variable in variables)
        duals = self.search.duals()
        if duals is None:
            return None
        total: dict[str, float] = {}
        for row, dual in duals[1]:
            name = row if isinstance(row, str) else self.names.get(row, "")
            if name and dual:
                total[name] = total.get(name, 0.0) + dual
        return duals[0], {name: abs(dual) for name, dual in total.items()}


def _cheapest(instance: Instance, request: SitesRequest) -> tuple[SplitData, Any]:
    data = gather(instance, request)
    m = build(data)
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    return data, m


def forced_open(
    instance: Instance, request: SitesRequest, options: Options, nodes: Sequence[str], deadline: Deadline
) -> Iterator[tuple[str, float | None]]:
    """Yield each node with the USD a year by which the cheapest split that opens it is dearer, until the deadline.

    None: it is proven that no split opens it. A node is left out whose answer did not come.
    """
    _, m = _cheapest(instance, request)
    best = _run(m, replace(options, time_limit=deadline.limit))
    for node in nodes if best.objective is not None else ():
        if deadline.passed:
            return
        m.open[node].fix(1)
        found = _run(m, replace(options, time_limit=deadline.limit))
        m.open[node].unfix()
        if found.objective is not None:
            yield node, max(0.0, (found.objective - (best.objective or 0.0)) * 1e6)
        elif found.infeasible:
            yield node, None


def near_best(instance: Instance, request: SitesRequest, options: Options, *, count: int, within: float) -> list[Near]:
    """Return the `count` cheapest splits over different sets of sites, their yearly cost within a share of the least.

    Each is the cheapest that opens none of the sets before it: proven by no-good cuts. `request` says how many racks.
    """
    data, m = _cheapest(instance, request)
    m.no_good = pyo.ConstraintList()
    splits: list[Near] = []
    while len(splits) < count:
        outcome = _run(m, options)
        if outcome.solution is None or outcome.objective is None:
            break
        usd, split = outcome.objective * 1e6, read(m, data, outcome.solution)
        if splits and usd > (1 + within) * splits[0].usd_per_year:
            break
        racks = {s: n * data.module_racks for s, n in sorted(split.modules.items())}
        splits.append(Near(racks_by_site=racks, usd_per_year=usd))
        m.no_good.add(sum(1 - x if s in split.modules else x for s, x in m.open.items()) >= 1)
    return splits
