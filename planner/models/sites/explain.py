"""Explain a split: what each node could carry, how far a rule must move, what a limit is worth, near-best splits."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyomo.core as pyo

from planner.instance.instance import Instance
from planner.models.requests import Options, SitesRequest
from planner.models.sites import soft_rules
from planner.models.sites import solve as sites
from planner.models.sites.binding import binding
from planner.models.sites.data import SplitData, gather
from planner.models.sites.model import build, yearly_musd
from planner.models.sites.rules.registry import RULES, rule_of
from planner.models.sites.scenarios import years
from planner.models.sites.solution import read
from planner.plan.sites import SitesPlan
from planner.solvers import highs
from planner.solvers.deadline import Deadline
from planner.solvers.lazy_constraints import Duals
from planner.solvers.outcome import Stop

# Rules of the split say nothing of what one node could carry.
_SPLIT = tuple(name for name, rule in RULES.items() if rule.scope == "split")
_MAX_MOVE = 1e7  # more than any limit is moved by, in any rows' unit


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLoad:
    """The most that one node could carry alone, and the rules that stop it there."""

    node: str
    racks: int
    mw: float
    stopped_by: tuple[str, ...]
    proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """A rule that, moved alone, lets a split exist: by how much, row by row."""

    rule: str
    amount: float
    unit: str
    rows: dict[str, float]
    proved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one more unit of a row's limit is worth in the relaxation where modules and wavelengths are divisible."""

    rule: str
    unit: str
    usd_per_year: float


def _run(m: Any, options: Options, absolute_gap: float | None = None) -> Any:
    return highs.run(
        m, absolute_gap=absolute_gap, time_limit=options.time_limit, seed=options.seed, threads=options.threads
    )


def largest_loads(instance: Instance, request: SitesRequest, options: Options) -> list[NodeLoad]:
    """Return the largest load of every candidate, the largest first."""
    data = gather(instance, replace(request, racks=None, exchange=None))
    m = build(data, without=_SPLIT)
    m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
    loads = []
    for s in data.candidates:
        for other in data.candidates:
            for var in (m.open[other], m.modules[other]):
                if other == s:
                    var.unfix()
                else:
                    var.fix(0)
        # Less than one module away is a proof.
        loads.append(_node_load(data, m, s, _run(m, options, absolute_gap=0.99)))
    return sorted(loads, key=lambda x: (-x.racks, x.node))


def _node_load(data: SplitData, m: Any, site: str, outcome: Any) -> NodeLoad:
    proved = outcome.stop is Stop.PROVED
    if outcome.solution is None:
        return NodeLoad(node=site, racks=0, mw=0.0, stopped_by=(), proved=proved)
    solution = read(m, data, outcome.solution)
    n = solution.total
    stopped_by = binding(data, m, solution) if n else tuple(_without_which_one_fits(data, site))
    return NodeLoad(node=site, racks=n * data.module_racks, mw=n * data.module_mw, stopped_by=stopped_by, proved=proved)


def _without_which_one_fits(data: SplitData, site: str) -> Iterator[str]:
    """Yield the rules without which, each alone, one module would fit at the site."""
    for name in (name for name in RULES if name not in _SPLIT):
        m = build(data, without=(*_SPLIT, name))
        m.one = pyo.Constraint(expr=m.modules[site] >= 1)
        if highs.run(m).solution is not None:
            yield f"{name}[{site}]" if RULES[name].scope == "site" else name


def relaxations(
    instance: Instance, request: SitesRequest, rules: Collection[str], options: Options
) -> list[Relaxation]:
    """Return by how much each rule of a conflict must move at least, all others kept; a solution verifies each."""
    data = gather(instance, request)
    found = [_move(data, name, options) for name in rules if RULES[name].movable]
    if "rtt" in rules:
        found.append(_move_rtt(data, options))
    if "demand" in rules or ("pins" in rules and "sites.racks" in instance.pins):
        found.append(_fewer_racks(instance, request, options))
    return [x for x in found if x is not None]


def _move(data: SplitData, name: str, options: Options) -> Relaxation | None:
    """Minimize the sum by which one rule's rows move, beyond what a soft rule may be exceeded by anyway."""
    rule = RULES[name]
    # Where a rule also bounds something else, that bound gives way with it.
    m = build(data, loose=(name,))
    excess = soft_rules.loosen(m, rule, _MAX_MOVE, name="move")
    if excess is None:
        return None
    m.goal = pyo.Objective(expr=sum(excess.values()))
    outcome = _run(m, options)
    if outcome.solution is None or outcome.objective is None:
        return None
    moves = {n: outcome.solution.of(v) for n, v in excess.items()}
    rows = {n: x * rule.scale for n, x in moves.items() if x > 1e-6}
    proved = outcome.stop is Stop.PROVED
    return Relaxation(rule=name, amount=sum(rows.values()), unit=rule.unit or "", rows=rows, proved=proved)


def _move_rtt(data: SplitData, options: Options) -> Relaxation | None:
    """Minimize the longest round trip between open sites, and return the route that it stands for."""
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
    return Relaxation(rule="rtt", amount=km, unit="km of route", rows={"ms": ms}, proved=outcome.stop is Stop.PROVED)


def _fewer_racks(instance: Instance, request: SitesRequest, options: Options) -> Relaxation | None:
    """Find the most racks that fit, and return how many fewer these are than asked for."""
    asked = request.racks or instance.pins.get("sites.racks")
    if asked is None:
        return None
    free = instance.model_copy(update={"pins": {k: v for k, v in instance.pins.items() if k != "sites.racks"}})
    out = sites.solve(free, replace(request, racks=None), options)
    racks = sum(s.racks for s in out.solution.sites) if out.solution else 0
    if not racks:
        return None
    proved = out.stop is Stop.PROVED
    return Relaxation(rule="demand", amount=float(asked - racks), unit="racks fewer", rows={}, proved=proved)


def shadow_prices(instance: Instance, request: SitesRequest, plan: SitesPlan) -> list[Price]:
    """Return what one more unit of each limit saves per year, sites, lines and upgrades as planned, dearest first.

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


def _prices(m: Any, data: SplitData, duals: Duals) -> Iterator[Price]:
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
            yield Price(rule=name, unit=rule.unit or "", usd_per_year=saved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forced:
    """The cheapest split that opens one more node: dearer by so much a year; None: no split opens it."""

    node: str
    dearer_usd_per_year: float | None
    proved: bool


def forced_open(
    instance: Instance, request: SitesRequest, options: Options, nodes: Sequence[str], deadline: Deadline
) -> Iterator[Forced]:
    """Yield for each node in turn what a split that opens it costs over the cheapest one, while there is time."""
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
        plan = sites.solve_data(data, options, excluded=excluded).solution
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
