"""Explain a split: what each node could carry, what would do where nothing fits, what a limit is worth, and near-best splits."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyomo.environ as pyo

from planner.instance.instance import Instance
from planner.models.requests import Options, SitesRequest
from planner.models.sites import soft_rules
from planner.models.sites import solve as sites
from planner.models.sites.binding import binding
from planner.models.sites.data import Question, ask
from planner.models.sites.rules import RULES, build, yearly_musd
from planner.models.sites.scenarios import blocks
from planner.plan.sites import SitesPlan
from planner.solvers import highs
from planner.solvers.lazy_constraints import Duals
from planner.solvers.outcome import Stop

# Rules of the campus as a whole: they say nothing of what one node could carry.
_CAMPUS = ("budget", "demand", "fault_split", "min_site", "pins", "rtt", "share_balance", "site_count", "wan_capacity")
# Rules whose rows can be moved by an amount; the others are changed whole.
_MOVABLE = (
    "headroom",
    "generation",
    "rating",
    "interconnect",
    "facility_power",
    "area",
    "site_count",
    "budget",
    "min_site",
)
_WHOLE_MOST = 1e7  # More than any limit is moved by, in any rows' unit.


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


def largest_loads(instance: Instance, request: SitesRequest, options: Options) -> list[NodeLoad]:
    """Return the largest load of every candidate, the largest first."""
    q = ask(instance, replace(request, racks=None, exchange=None))
    m = build(q, without=_CAMPUS)
    m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
    found = []
    for s in q.candidates:
        for other in q.candidates:
            if other == s:
                m.open[other].unfix()
                m.modules[other].unfix()
            else:
                m.open[other].fix(0)
                m.modules[other].fix(0)
        outcome = highs.run(
            m, absolute_gap=0.99, time_limit=options.time_limit, seed=options.seed, threads=options.threads
        )
        found.append(_node_load(q, m, s, outcome))
    return sorted(found, key=lambda x: (-x.racks, x.node))


def _node_load(q: Question, m: Any, site: str, outcome: Any) -> NodeLoad:
    proved = outcome.stop is Stop.PROVED
    if outcome.solution is None:
        return NodeLoad(node=site, racks=0, mw=0.0, stopped_by=(), proved=proved)
    held = sites.read(m, q, outcome.solution)
    racks = held.total * q.module_racks
    return NodeLoad(
        node=site, racks=racks, mw=held.total * q.module_mw, stopped_by=_stops(q, m, held, site), proved=proved
    )


def _stops(q: Question, m: Any, held: Any, site: str) -> tuple[str, ...]:
    """Name the rules that leave no room for one module more at the one site."""
    if held.modules:
        return binding(q, m, held)
    # Not one module fits: the rules without which one would, each alone.
    found = [name for name in RULES if name not in _CAMPUS and _one_fits(q, site, name)]
    return tuple(f"{name}[{site}]" if name in ("area", "interconnect", "ready") else name for name in found)


def _one_fits(q: Question, site: str, rule: str) -> bool:
    m = build(q, without=(*_CAMPUS, rule))
    m.one = pyo.Constraint(expr=m.modules[site] >= 1)
    return highs.run(m).solution is not None


def relaxations(
    instance: Instance, request: SitesRequest, rules: Collection[str], options: Options
) -> list[Relaxation]:
    """Return for each rule of a conflict the least that it must give, all other rules kept; the result is verified by being a solution."""
    q = ask(instance, request)
    found = [_moved(q, name, options) for name in rules if name in _MOVABLE]
    if "rtt" in rules:
        found.append(_farther(q, options))
    if "demand" in rules or ("pins" in rules and "sites.racks" in instance.pins):
        found.append(_fewer(instance, request, options))
    return [x for x in found if x is not None]


def _moved(q: Question, name: str, options: Options) -> Relaxation | None:
    """Move one rule's rows by least in all."""
    # Where a rule also bounds something else, that bound gives way with it.
    m = build(q, loose=(name,))
    soft_rules.loosen(m, name, _WHOLE_MOST)
    excess = m.component(f"{name}_excess")
    if excess is None:
        return None
    m.goal = pyo.Objective(expr=sum(excess.values()))
    outcome = highs.run(m, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    if outcome.solution is None or outcome.objective is None:
        return None
    per, unit = soft_rules.PER_UNIT[name]
    rows = {n: outcome.solution.of(v) * per for n, v in excess.items() if outcome.solution.of(v) > 1e-6}
    return Relaxation(rule=name, amount=sum(rows.values()), unit=unit, rows=rows, proved=outcome.stop is Stop.PROVED)


def _farther(q: Question, options: Options) -> Relaxation | None:
    """Find the least round trip that lets a split exist, and the route that it stands for."""
    limit = q.grid.rules.max_rtt_ms or 0.0
    m = build(q, without=("rtt",))
    far = [p for p in q.pairs if q.rtt_ms(p) > limit]
    m.longest = pyo.Var(bounds=(limit, max(q.rtt_ms(p) for p in far) if far else limit))
    m.reach = pyo.Constraint(
        far,
        rule=lambda m, a, b: m.longest >= q.rtt_ms((a, b)) - (q.rtt_ms((a, b)) - limit) * (2 - m.open[a] - m.open[b]),
    )
    m.goal = pyo.Objective(expr=m.longest)
    outcome = highs.run(m, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    if outcome.solution is None or outcome.objective is None:
        return None
    ms = outcome.objective - limit
    km = ms / q.wan.rtt_ms_per_100_route_km * 100
    return Relaxation(rule="rtt", amount=km, unit="km of route", rows={"ms": ms}, proved=outcome.stop is Stop.PROVED)


def _fewer(instance: Instance, request: SitesRequest, options: Options) -> Relaxation | None:
    """Find the racks that would fit; those asked for less these must go."""
    asked = request.racks or instance.pins.get("sites.racks")
    if asked is None:
        return None
    free = instance.model_copy(update={"pins": {k: v for k, v in instance.pins.items() if k != "sites.racks"}})
    out = sites.solve(free, replace(request, racks=None), options)
    held = sum(s.racks for s in out.solution.sites) if out.solution else 0
    if not held:
        return None
    return Relaxation(
        rule="demand", amount=float(asked - held), unit="racks fewer", rows={}, proved=out.stop is Stop.PROVED
    )


def shadow_prices(instance: Instance, request: SitesRequest, held: SitesPlan) -> list[Price]:
    """Return what one more unit of each limit saves per year with sites, lines and upgrades as held, the dearest first.

    Modules and wavelengths are divisible there, so a price holds for small changes only. Under dc the rows found on the
    way have their prices like any other: the search ends once none is broken, so those not stated have none.
    """
    q = ask(instance, request)
    # A limit must act through its own row, or its price would be that of a bound.
    m = build(q, loose=set(RULES) - {"demand", "pins"})
    _as_held(m, held)
    m.goal = pyo.Objective(expr=yearly_musd(m, q))
    duals = highs.duals(m)
    return sorted(_prices(m, q, duals), key=lambda p: (-p.usd_per_year, p.rule)) if duals else []


def _as_held(m: Any, held: SitesPlan) -> None:
    """Fix sites, circuits and upgrades as a plan holds them; what is left is real."""
    steps = {u.node: u.steps for u in held.upgrades}
    circuits = {n.line: n.circuits for n in held.new_lines}
    standing = {x.id for x in held.sites}
    fixed: dict[str, Callable[[Any], int]] = {
        "open": lambda s: int(s in standing),
        "steps": lambda s: steps.get(s, 0),
        "at_least": lambda n: int(len(standing) >= n),
        "circuits": lambda k: circuits.get(k, 0),
        "built": lambda k: int(k in circuits),
        "stands": lambda key: int(key[1] < circuits.get(key[0], 0)),
    }
    for var in m.component_data_objects(pyo.Var):
        if var.is_integer() or var.is_binary():
            var.domain = pyo.NonNegativeReals
            name = var.parent_component().local_name
            if name in fixed:
                var.fix(fixed[name](var.index()))


def _prices(m: Any, q: Question, duals: Duals) -> Iterator[Price]:
    """Add up the prices of the rows that a report calls by one name."""
    found: dict[str, float] = {}
    for year in blocks(m, q):
        for family in (*_MOVABLE, "fault_split", "new_rating", "security", "security_asked"):
            reported = family.removesuffix("_asked").removeprefix("new_")
            for index, row in (year.block.component(family) or {}).items():
                name = soft_rules.label(reported, index) + year.told
                found[name] = found.get(name, 0.0) + duals.stated.get(row, 0.0)
    for name, dual in duals.lazy.items():
        found[name] = found.get(name, 0.0) + dual
    for name, dual in found.items():
        per, unit = soft_rules.PER_UNIT[soft_rules.family_of(name)]
        saved = abs(dual) * 1e6 / per
        if saved > 1e-3:
            yield Price(rule=name, unit=unit, usd_per_year=saved)


def near_best(
    instance: Instance, request: SitesRequest, options: Options, *, count: int, within: float
) -> list[SitesPlan]:
    """Return the `count` best splits over different sets of sites whose racks and yearly cost a rack are within a share of the best.

    Each is the best split (most racks, then least cost) that opens none of the sets before it: proven by no-good cuts.
    """
    q = ask(instance, request)
    shut: list[frozenset[str]] = []
    found: list[SitesPlan] = []
    racks, usd = 0, 0.0
    while len(found) < count:
        held = sites.solve_question(q, options, shut=shut).solution
        if held is None or held.certificate.objective is None:
            break
        total = sum(s.racks for s in held.sites)
        each = held.certificate.objective / total
        if not found:
            racks, usd = total, each
        if total < (1 - within) * racks:
            break
        shut.append(frozenset(s.id for s in held.sites))
        if each <= (1 + within) * usd:
            found.append(held)
        elif total == racks:
            break  # those that follow hold no more racks, and for the same racks cost no less
    return found
