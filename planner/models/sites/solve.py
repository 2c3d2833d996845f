"""Decide the megawatts of each site and the links between sites; name the conflict of rules, and explain a split.

First the most racks where the total is free, then the minimum yearly cost for that total. Power flows by transport
(each corridor within its rating, lossless), by the DC equations, with contingencies where asked (lazy rows), or not at
all. Every two open sites are joined by a link: a mesh, of which a ring uses a part.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyomo.core as pyo

from planner.instance.instance import Instance
from planner.models import Options, SitesRequest
from planner.models.sites import model
from planner.models.sites.model import RULES, SplitSolution, build, read, rule_of, yearly_musd
from planner.models.sites.report import MaxRacksProof, binding, with_plan
from planner.models.sites.split_data import SplitData, gather, years
from planner.plan.certificate import Conflict
from planner.plan.plan_sections import SitesPlan
from planner.solvers import highs
from planner.solvers.highs import Duals
from planner.solvers.outcome import Outcome, Stop, remembered, smallest_conflict
from planner.solvers.registry import run_milp
from planner.solvers.signals import Deadline

MAX_RACKS_SHARE = 0.7  # of the time; the rest is for the cost: a split that is large but dear is a poor answer


def solve(instance: Instance, request: SitesRequest, options: Options) -> Outcome[SitesPlan]:
    """Return the split with the most racks (where the total is free), and among those of minimum yearly cost."""
    return solve_data(gather(instance, request), options)


def solve_data(
    data: SplitData, options: Options, *, sites: int | None = None, excluded: Sequence[frozenset[str]] = ()
) -> Outcome[SitesPlan]:
    """Solve a split; `sites` fixes the number of open sites, and none of the `excluded` sets may be open as a whole."""
    deadline = Deadline(options.time_limit)
    m = build(data, sites=sites)
    m.no_good = pyo.Constraint(
        range(len(excluded)), rule=lambda m, i: sum(1 - x if s in excluded[i] else x for s, x in m.open.items()) >= 1
    )
    proof = solution = None
    if data.racks is None:
        # A bound less than one module away is a proof, whatever gap was asked.
        m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
        limit = None if deadline.limit is None else MAX_RACKS_SHARE * deadline.left
        limits = {"time_limit": limit, "seed": options.seed, "threads": options.threads}
        first = run_milp(m, solver=options.solver, absolute_gap=0.99, **limits)
        m.del_component(m.goal)
        solution = None if first.solution is None else read(m, data, first.solution)
        if solution is None:
            return replace(first.with_solution(None), bound=None, seconds=deadline.elapsed)
        bound = solution.total if first.bound is None else math.floor(first.bound + 1e-6)
        proof = MaxRacksProof(modules=solution.total, bound=max(bound, solution.total), stop=first.stop)
        m.max_racks = pyo.Constraint(expr=sum(m.modules.values()) == solution.total)
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    limits = {"time_limit": deadline.limit, "gap": options.gap, "seed": options.seed, "threads": options.threads}
    outcome = run_milp(m, solver=options.solver, **limits)
    if outcome.solution is not None:
        solution = _shortest_flows(m, data, outcome.solution, replace(options, time_limit=deadline.limit))
    elif solution is None:
        return replace(outcome.with_solution(None), bound=None, seconds=deadline.elapsed)
    # Where the time limit passes without a cheaper split, return that of the first solve with the bound reached so far.
    return with_plan(data, m, solution, proof, outcome, options.seed, deadline)


def _shortest_flows(m: Any, data: SplitData, values: highs.HighsValues, options: Options) -> SplitSolution:
    """Keep the decisions and minimize the flows: the cost leaves these free, and loops would confuse a reader."""
    solution = read(m, data, values)
    # Under dc, angles leave no choice.
    if not solution.flow or data.network is not None:
        return solution
    for var in m.component_data_objects(pyo.Var):
        # What a soft rule is exceeded by stays as it was chosen: it has a price, and the flows have none.
        if var.is_integer() or var.is_binary() or var.parent_component().local_name.endswith("_excess"):
            var.fix()
    # With the integers fixed, only the rows of the power flow matter.
    power_flow = {id(m.component(name)) for name in ("balance", "generation", "rating")}
    others = [c for c in m.component_objects(pyo.Constraint, active=True) if id(c) not in power_flow]
    for component in others:
        component.deactivate()
    corridors = list(m.flow)
    m.size = pyo.Var(corridors, domain=pyo.NonNegativeReals)
    m.forward = pyo.Constraint(corridors, rule=lambda m, k: m.flow[k] <= m.size[k])
    m.backward = pyo.Constraint(corridors, rule=lambda m, k: -m.flow[k] <= m.size[k])
    m.goal.deactivate()
    m.length = pyo.Objective(expr=sum(m.size.values()))
    outcome = highs.run(m, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    if outcome.solution is not None:
        of = outcome.solution.of
        generated, flow = ({k: of(v) for k, v in variables.items()} for variables in (m.generated, m.flow))
        solution = replace(solution, generated=generated, flow=flow)
    for part in (m.length, m.forward, m.backward, m.size):
        m.del_component(part)
    for component in others:
        component.activate()
    return solution


def conflict(instance: Instance, request: SitesRequest, options: Options) -> Conflict | None:
    """Return a smallest conflict; None where a split exists, or where infeasibility is not proven twice."""
    data, deadline = gather(instance, request), Deadline(options.time_limit)
    if not infeasible(data, RULES, options):
        return None

    def proven(rules: frozenset[str]) -> bool:
        return not deadline.passed and infeasible(data, rules, replace(options, time_limit=deadline.limit))

    # All of them are needed, as far as there was time; none where laws alone conflict.
    conflicting = remembered(proven, list(RULES))
    rules = frozenset(smallest_conflict(conflicting, list(RULES)))
    if len(rules) == 1 and conflicting(frozenset()):
        rules = frozenset()
    if deadline.passed:
        return None
    # The set is judged again on its own: without any one rule a split exists, and another backend finds none with all.
    for name in rules:
        if deadline.passed or not feasible(data, rules - {name}, replace(options, time_limit=deadline.limit)):
            return None
    if deadline.passed or not verified(data, rules, replace(options, time_limit=deadline.limit)):
        return None
    # The rules that say most to the user are named first.
    reason = "; ".join(RULES[name].sentence(data) for name in reversed(RULES) if name in rules)
    return Conflict(decision="sites", rules=tuple(sorted(rules)), reason=reason)


def infeasible(data: SplitData, rules: Collection[str], options: Options, *, presolve: bool = True) -> bool:
    """Return whether HiGHS proves that no split satisfies these rules."""
    return _split(data, rules, options, presolve=presolve).infeasible


def feasible(data: SplitData, rules: Collection[str], options: Options) -> bool:
    """Return whether HiGHS has a split that satisfies these rules: without an answer, nothing is known."""
    return _split(data, rules, options).solution is not None


def _split(
    data: SplitData, rules: Collection[str], options: Options, *, presolve: bool = True
) -> Outcome[highs.HighsValues]:
    m = build(data, without=set(RULES) - set(rules))
    return highs.run(m, time_limit=options.time_limit, seed=options.seed, threads=options.threads, presolve=presolve)


def verified(data: SplitData, rules: Collection[str], options: Options) -> bool:
    """Verify infeasibility by CP-SAT; where rounding to kW hides it there, by HiGHS without presolve."""
    from planner.solvers import cpsat
    from planner.solvers.cpsat_from_pyomo import restate

    m = restate(build(data, without=set(RULES) - set(rules)))
    deadline = Deadline(options.time_limit)
    second = cpsat.run(m, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    left = replace(options, time_limit=deadline.limit)
    return second.infeasible or (not deadline.passed and infeasible(data, rules, left, presolve=False))


# Rules of the split say nothing of what one node could carry.
_SPLIT = tuple(name for name, rule in RULES.items() if rule.scope == "split")
_MAX_MOVE = 1e7  # more than any limit is moved by, in any rows' unit


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxNodeLoad:
    """The most that one node could carry alone, and the rules that stop it there."""

    node: str
    racks: int
    mw: float
    stopped_by: tuple[str, ...]
    proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRelaxation:
    """A rule that, moved alone, lets a split exist: by how much, row by row."""

    rule: str
    amount: float
    unit: str
    rows: dict[str, float]
    proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPrice:
    """The yearly value in USD of one more unit of a row's limit, with divisible modules and wavelengths."""

    rule: str
    unit: str
    usd_per_year: float


def _run(m: Any, options: Options, absolute_gap: float | None = None) -> Any:
    return highs.run(
        m, absolute_gap=absolute_gap, time_limit=options.time_limit, seed=options.seed, threads=options.threads
    )


def largest_loads(instance: Instance, request: SitesRequest, options: Options) -> list[MaxNodeLoad]:
    """Return the largest load of every candidate, the largest first."""
    data = gather(instance, replace(request, racks=None, exchange=None))
    m = build(data, without=_SPLIT)
    m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
    loads = []
    for s in data.candidates:
        Deadline().check()  # a signal ends it
        for other in data.candidates:
            for var in (m.open[other], m.modules[other]):
                if other == s:
                    var.unfix()
                else:
                    var.fix(0)
        # Less than one module away is a proof.
        loads.append(_node_load(data, m, s, _run(m, options, absolute_gap=0.99)))
    return sorted(loads, key=lambda x: (-x.racks, x.node))


def _node_load(data: SplitData, m: Any, site: str, outcome: Any) -> MaxNodeLoad:
    proved = outcome.stop is Stop.PROVED
    if outcome.solution is None:
        return MaxNodeLoad(node=site, racks=0, mw=0.0, stopped_by=(), proved=proved)
    solution = read(m, data, outcome.solution)
    n = solution.total
    stopped_by = list(binding(data, m, solution) if n else ())
    for name in (name for name in RULES if n == 0 and name not in _SPLIT):
        # Without one of these rules, each alone, one module would fit at the site.
        m = build(data, without=(*_SPLIT, name))
        m.one = pyo.Constraint(expr=m.modules[site] >= 1)
        if highs.run(m).solution is not None:
            stopped_by.append(f"{name}[{site}]" if RULES[name].scope == "site" else name)
    return MaxNodeLoad(
        node=site, racks=n * data.module_racks, mw=n * data.module_mw, stopped_by=tuple(stopped_by), proved=proved
    )


def relaxations(
    instance: Instance, request: SitesRequest, rules: Collection[str], options: Options
) -> list[SplitRelaxation]:
    """Return by how much each rule of a conflict must move at least, all others kept; a solution verifies each."""
    data = gather(instance, request)
    found = []
    for name in rules:
        Deadline().check()  # a signal ends it
        if RULES[name].movable:
            found.append(_move(data, name, options))
    Deadline().check()
    if "rtt" in rules:
        found.append(_move_rtt(data, options))
    if "demand" in rules or ("pins" in rules and "sites.racks" in instance.pins):
        found.append(_fewer_racks(instance, request, options))
    return [x for x in found if x is not None]


def _move(data: SplitData, name: str, options: Options) -> SplitRelaxation | None:
    """Minimise the sum by which one rule's rows move, beyond the excess that a soft rule allows anyway."""
    rule = RULES[name]
    # Where a rule also bounds something else, that bound gives way with it.
    m = build(data, loose=(name,))
    excess = model.loosen(m, rule, _MAX_MOVE, name="move")
    if excess is None:
        return None
    m.goal = pyo.Objective(expr=sum(excess.values()))
    outcome = _run(m, options)
    if outcome.solution is None or outcome.objective is None:
        return None
    moves = {n: outcome.solution.of(v) for n, v in excess.items()}
    rows = {n: x * rule.scale for n, x in moves.items() if x > 1e-6}
    proved = outcome.stop is Stop.PROVED
    return SplitRelaxation(rule=name, amount=sum(rows.values()), unit=rule.unit or "", rows=rows, proved=proved)


def _move_rtt(data: SplitData, options: Options) -> SplitRelaxation | None:
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
    if outcome.solution is None or outcome.objective is None:
        return None
    ms = outcome.objective - limit
    km = ms / data.wan.rtt_ms_per_100_route_km * 100
    return SplitRelaxation(
        rule="rtt", amount=km, unit="km of route", rows={"ms": ms}, proved=outcome.stop is Stop.PROVED
    )


def _fewer_racks(instance: Instance, request: SitesRequest, options: Options) -> SplitRelaxation | None:
    """Find the most racks that fit, and return how many fewer these are than asked for."""
    asked = request.racks or instance.pins.get("sites.racks")
    if asked is None:
        return None
    free = instance.model_copy(update={"pins": {k: v for k, v in instance.pins.items() if k != "sites.racks"}})
    out = solve(free, replace(request, racks=None), options)
    racks = sum(s.racks for s in out.solution.sites) if out.solution else 0
    if not racks:
        return None
    proved = out.stop is Stop.PROVED
    return SplitRelaxation(rule="demand", amount=float(asked - racks), unit="racks fewer", rows={}, proved=proved)


def shadow_prices(instance: Instance, request: SitesRequest, plan: SitesPlan) -> list[RowPrice]:
    """Compute the USD that one more unit of each limit saves per year, with the plan's sites and lines, dearest first.

    Modules and wavelengths are divisible there, so a price holds for small changes only. Under dc the lazy rows have
    their prices like any other: the search ends once none is violated, so those not stated have none.
    """
    data = gather(instance, request)
    # A limit must act through its own row, or its price would be that of a bound.
    m = build(data, loose=set(RULES) - {"demand", "pins"})
    _fix_as_planned(m, plan)
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    duals = highs.duals(m)
    return sorted(_prices(m, data, duals), key=lambda p: (-p.usd_per_year, p.rule)) if duals else []


def _fix_as_planned(m: Any, plan: SitesPlan) -> None:
    """Fix sites, circuits and upgrades as planned, and make every other integer real."""
    steps = {u.node: u.steps for u in plan.upgrades}
    circuits = {n.line: n.circuits for n in plan.new_lines}
    opened = {x.id for x in plan.sites}
    values: dict[str, Callable[[Any], int]] = {
        "open": lambda s: int(s in opened),
        "steps": lambda s: steps.get(s, 0),
        "at_least": lambda n: int(len(opened) >= n),
        "circuits": lambda k: circuits.get(k, 0),
        "built": lambda k: int(k in circuits),
        "installed": lambda key: int(key[1] < circuits.get(key[0], 0)),
    }
    for var in m.component_data_objects(pyo.Var):
        if var.is_integer() or var.is_binary():
            var.domain = pyo.NonNegativeReals
            name = var.parent_component().local_name
            if name in values:
                var.fix(values[name](var.index()))


def _prices(m: Any, data: SplitData, duals: Duals) -> Iterator[RowPrice]:
    """Yield the price of each limit, its rows that a report calls by one name added up."""
    total: dict[str, float] = {}
    for year in years(m, data):
        for rule in (rule for rule in RULES.values() if rule.unit is not None):
            for component in (rule.name, *rule.components):
                for index, row in (year.block.component(component) or {}).items():
                    name = rule.label(index) + year.suffix
                    total[name] = total.get(name, 0.0) + duals.stated.get(row, 0.0)
    for name, dual in duals.lazy.items():
        total[name] = total.get(name, 0.0) + dual
    for name, dual in total.items():
        rule = rule_of(name)
        saved = abs(dual) * 1e6 / rule.scale
        if saved > 1e-3:
            yield RowPrice(rule=name, unit=rule.unit or "", usd_per_year=saved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """The extra yearly cost in USD of the cheapest split that opens one more node; None: no split opens it."""

    node: str
    dearer_usd_per_year: float | None
    proved: bool


def forced_open(
    instance: Instance, request: SitesRequest, options: Options, nodes: Sequence[str], deadline: Deadline
) -> Iterator[Forced]:
    """Yield for each node in turn the extra yearly cost of the cheapest split that opens it, until the deadline."""
    data = gather(instance, request)
    m = build(data)
    m.goal = pyo.Objective(expr=yearly_musd(m, data))
    best = _run(m, replace(options, time_limit=deadline.limit))
    if best.objective is None:
        return
    for node in nodes:
        if deadline.passed:
            return
        pinned = m.open[node].fixed
        m.open[node].fix(1)
        found = _run(m, replace(options, time_limit=deadline.limit))
        if not pinned:
            m.open[node].unfix()
        if found.objective is not None:
            more = max(0.0, (found.objective - best.objective) * 1e6)
            yield Forced(node=node, dearer_usd_per_year=more, proved=found.stop is Stop.PROVED)
        elif found.infeasible:
            yield Forced(node=node, dearer_usd_per_year=None, proved=True)
        if pinned:
            m.open[node].fix(0)


def near_best(
    instance: Instance, request: SitesRequest, options: Options, *, count: int, within: float
) -> list[SitesPlan]:
    """Return the `count` best splits over different sets of sites, racks and cost a rack within a share of the best.

    Each is the best split (most racks, then minimum cost) that opens none of the sets before it: proven by no-good
    cuts.
    """
    data = gather(instance, request)
    excluded: list[frozenset[str]] = []
    splits: list[SitesPlan] = []
    racks, usd = 0, 0.0
    while len(splits) < count:
        plan = solve_data(data, options, excluded=excluded).solution
        if plan is None or plan.certificate.objective is None:
            break
        total = sum(s.racks for s in plan.sites)
        each = plan.certificate.objective / total
        if not splits:
            racks, usd = total, each
        if total < (1 - within) * racks:
            break
        excluded.append(frozenset(s.id for s in plan.sites))
        if each <= (1 + within) * usd:
            splits.append(plan)
        elif total == racks:
            break  # those that follow hold no more racks, and for the same racks cost no less
    return splits
