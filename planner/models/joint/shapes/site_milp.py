"""The site MILP, behind one question to the sites: which of them hold some parts, at the least capital.

The grid's rules are those of the site split; the rules here tie them to the parts. Rows are in MW, M$ and modules. Of
thousands of pairs of sites those are left out whose fibre costs more than it can be worth: the question without fibre
bounds the capital from below, that with the cheapest pairs from above.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyomo.core as pyo

from planner.instance.pins import pinned_blocks
from planner.models.joint.shapes.site_question import Circuit, PlacedParts, SiteQuestion
from planner.models.sites.site_rules import min_split_modules
from planner.models.sites.split_data import capital_musd, energy_musd
from planner.models.sites.split_model import build
from planner.solvers.outcome import Outcome, Values

MANY_PAIRS = 500  # below it the question whole is solved as fast as the one without fibre
GROWTH = 4  # of the pairs tried, until sites are found: each try costs a little more than the one before
CENT_MUSD = 1e-8
LEFT_OUT = ("budget",)  # the budget limits the capital of the entire plan, in the search


def stated(q: SiteQuestion, *, loose: bool = False, racks: int | None = None) -> Any:
    """State the site MILP of a question: the parts' sites, racks, fabrics and fibre at the least capital in M$."""
    # `racks`: the least of all sites, for a bound on any parts of that many racks: each asked part is then the least
    # that its site holds. None: sites buy the racks of their parts and those that are pinned. `loose` is for arithmetic
    # in whole units: the load of fabrics may be rounded up, and what follows from whole decisions is whole itself.
    pins, each, overhead = q.data.pins, q.data.module_racks, q.data.hardware.facility_overhead_factor
    limits: dict[str, Any] = {}
    if racks is None:
        modules = sum(n * q.modules(p) for p, n in q.kinds) + sum(pins.racks_by_site.values()) // each
        limits["max_modules"] = modules if pins.racks is None else pins.racks // each
        if not pins.racks_by_site and pins.racks is None:  # the sites that are open are those that hold the parts
            limits["sites"] = sum(n for _, n in q.kinds)
    if q.data.counts_power:
        limits["max_extra_mw"] = overhead * sum(n * max(mw for _, mw in p.fabrics) for p, n in q.kinds)
    m = build(q.data, without=LEFT_OUT, extend=lambda m: add_parts(m, q, loose=loose), **limits)
    place_parts(m, q)
    if racks is None:
        pin_blocks(m, q)
    host_blocks(m, q, exactly=racks is None)
    for rule in (choose_fabrics, join_sites, design_fibre):
        rule(m, q)
    if racks is not None:
        # The split over areas asks as many racks elsewhere as the largest part needs: so says the relaxation too.
        least = max(-(-racks // each), min_split_modules(q.data, max(q.modules(p) for p, _ in q.kinds)))
        m.hold_all_racks = pyo.Constraint(expr=sum(m.modules.values()) >= least)
    if loose:
        for follows in (m.lit, m.fabric, m.designed):
            for var in follows.values():
                var.domain = pyo.Binary
    m.total = pyo.Expression(expr=total_musd(m, q))
    m.goal = pyo.Objective(expr=m.total)
    return m


def add_parts(m: Any, q: SiteQuestion, *, loose: bool) -> None:
    """Create the site MILP's binaries of the part and fabric at each site, and fabric load in MW where it counts."""
    candidates = list(q.data.candidates)
    m.part = pyo.Var(candidates, range(len(q.kinds)), domain=pyo.Binary)
    m.holds = pyo.Expression(candidates, rule=lambda m, x: sum(m.part[x, k] for k in range(len(q.kinds))))
    choices = [(x, k, f) for x in candidates for k, (p, _) in enumerate(q.kinds) for f in range(len(p.fabrics))]
    several = any(len(p.fabrics) > 1 for p, _ in q.kinds)
    m.fabric = pyo.Var(choices, domain=pyo.Binary if several else pyo.NonNegativeReals, bounds=(0, 1))
    if not q.data.counts_power:
        return
    overhead = q.data.hardware.facility_overhead_factor
    most = overhead * max(mw for p, _ in q.kinds for _, mw in p.fabrics)
    m.extra_mw = pyo.Var(candidates, domain=pyo.NonNegativeReals, bounds=(0, most + 1 if loose else most))

    def fabric_power(m: Any, x: str) -> Any:
        drawn = overhead * sum(q.kinds[k][0].fabrics[f][1] * m.fabric[y, k, f] for y, k, f in choices if y == x)
        return m.extra_mw[x] >= drawn if loose else m.extra_mw[x] == drawn

    m.fabric_power = pyo.Constraint(candidates, rule=fabric_power)


def set_values(m: Any, values: Values) -> None:
    """Set the variables of a site MILP to a solution, those in whole units to whole numbers."""
    for var in m.component_data_objects(pyo.Var):
        x = values.of(var)
        var.set_value(round(x) if var.is_integer() or var.is_binary() else x, skip_validation=True)


def place_parts(m: Any, q: SiteQuestion) -> None:
    """State in the site MILP that every part is at a site, and no two at one."""
    m.place_parts = pyo.Constraint(
        range(len(q.kinds)), rule=lambda m, k: sum(m.part[x, k] for x in q.data.candidates) == q.kinds[k][1]
    )
    m.one_part = pyo.Constraint(list(q.data.candidates), rule=lambda m, x: m.holds[x] <= m.open[x])


def pin_blocks(m: Any, q: SiteQuestion) -> None:
    """Fix the blocks of each site in the site MILP that has a pinned number of blocks."""
    wanted = {x: n for x, n in pinned_blocks(q.data.instance).items() if x in q.data.candidates}
    blocks = [p.blocks for p, _ in q.kinds]
    m.pin_blocks = pyo.Constraint(
        list(wanted), rule=lambda m, x: sum(n * m.part[x, k] for k, n in enumerate(blocks)) == wanted[x]
    )


def host_blocks(m: Any, q: SiteQuestion, *, exactly: bool) -> None:
    """Buy the racks of a site's blocks in the site MILP, in whole modules; if `exactly`, no others unless pinned."""
    pins = q.data.pins

    def row(m: Any, x: str) -> Any:
        used = sum(q.modules(p) * m.part[x, k] for k, (p, _) in enumerate(q.kinds))
        may_buy_more = not exactly or pins.racks is not None or x in pins.racks_by_site
        return m.modules[x] >= used if may_buy_more else m.modules[x] == used

    m.host_blocks = pyo.Constraint(list(q.data.candidates), rule=row)


def choose_fabrics(m: Any, q: SiteQuestion) -> None:
    """State in the site MILP that one fabric is built for each part, at the part's site."""
    where = [(x, k) for x in q.data.candidates for k in range(len(q.kinds))]
    m.choose_fabrics = pyo.Constraint(
        where, rule=lambda m, x, k: sum(m.fabric[x, k, f] for f in range(len(q.kinds[k][0].fabrics))) == m.part[x, k]
    )


def join_sites(m: Any, q: SiteQuestion) -> None:
    """Light fibre between every two sites that hold parts in the site MILP: from each to all others, a known number."""
    # Two sites farther apart than the exchange is timed for, or that no fibre joins, hold no parts at once. A site that
    # holds nothing has no lit pair, so that of a holder's pairs those to all other holders are lit. Over three sites
    # and more the rows of each pair say more of a relaxation; over two those of the sites imply them.
    limit = math.inf if q.circuit is None else q.circuit.max_rtt_ms * (1 + 1e-12)
    near = [p for p in q.data.pairs if q.data.rtt_ms(p) <= limit and q.pair_usd.get(p) != math.inf]
    m.lit = pyo.Var(near if q.circuit else [], domain=pyo.NonNegativeReals, bounds=(0, 1))
    others = sum(n for _, n in q.kinds) - 1
    ends = [(p, x) for p in m.lit for x in p]
    several = range(len(ends) if others > 1 else 0)
    m.lit_ends = pyo.Constraint(several, rule=lambda m, i: m.lit[ends[i][0]] <= m.holds[ends[i][1]])
    joined: dict[str, list[Any]] = {x: [] for x in q.data.candidates}
    for p, x in ends:
        joined[x].append(m.lit[p])
    m.join_sites = pyo.Constraint(
        list(joined) if q.circuit else [], rule=lambda m, x: sum(joined[x]) - others * m.holds[x] == 0
    )


def design_fibre(m: Any, q: SiteQuestion) -> None:
    """Price the fibre of each designed set of sites in the site MILP: exactly it pays `designs`, or cannot be."""
    sets = sorted(q.designs, key=lambda x: (sorted(x.open), sorted(x.holding)))
    m.designed = pyo.Var([i for i, x in enumerate(sets) if q.designs[x] is not None], bounds=(0, 1))

    def row(m: Any, i: int) -> Any:
        x = sets[i]
        other = sum(1 - m.open[s] if s in x.open else m.open[s] for s in q.data.candidates)
        other += sum(1 - m.holds[s] for s in x.holding)
        return sum([] if q.designs[x] is None else [m.designed[i]]) + other >= 1

    m.design_fibre = pyo.Constraint(range(len(sets)), rule=row)
    m.design_musd = pyo.Expression(expr=sum((q.designs[sets[i]] or 0.0) / 1e6 * m.designed[i] for i in m.designed))


def total_musd(m: Any, q: SiteQuestion) -> Any:
    """Sum a site MILP's capital of sites, racks, lines, fabrics, fibre, budgeted energy and soft penalties, in M$."""
    years = q.data.instance.limits.budgeted_years
    fabrics = sum(q.kinds[k][0].fabrics[f][0] / 1e6 * m.fabric[x, k, f] for x, k, f in m.fabric)
    usd = {p: x for p, x in q.pair_usd.items() if math.isfinite(x)}
    fibre = sum(usd.get(p, 0.0) / 1e6 * m.lit[p] for p in m.lit) + m.design_musd
    total = capital_musd(m, q.data) + fabrics + fibre + m.penalty_musd
    total += years * yearly_energy_musd(m, q) if years else 0.0
    if q.data.counts_power:
        total += q.data.load_musd * sum(fabric_mw(q, k, f) * m.fabric[x, k, f] for x, k, f in m.fabric)
    return total


def fabric_mw(q: SiteQuestion, kind: int, fabric: int) -> float:
    """Return the load in MW that the fabric of a part adds at the grid in the site MILP; 0 where it does not count."""
    mw = q.kinds[kind][0].fabrics[fabric][1] if q.data.counts_power else 0.0
    return q.data.hardware.facility_overhead_factor * mw


def yearly_energy_musd(m: Any, q: SiteQuestion) -> Any:
    """Return the price of a year's energy of racks and fabrics in a site MILP, in M$."""
    each = {x: q.data.energy_musd(x) / q.data.module_mw for x in q.data.candidates}
    return energy_musd(m, q.data) + sum(fabric_mw(q, k, f) * each[x] * m.fabric[x, k, f] for x, k, f in m.fabric)


def read_placed(m: Any, q: SiteQuestion, outcome: Outcome[Values]) -> PlacedParts:
    """Read the chosen sites from a site MILP's solution, adding up their capital again from whole decisions."""
    values = outcome.solution
    if values is None:
        raise ValueError("joint sites: no solution to read")
    set_values(m, values)
    parts: dict[str, tuple[int, int]] = {}
    for x, k in m.part:
        if m.part[x, k].value > 0.5:
            f = max(range(len(q.kinds[k][0].fabrics)), key=lambda f: m.fabric[x, k, f].value)
            parts[x] = k, f
    # What follows from the sites of the parts: fabrics, their power, lit fibre and designs.
    for x, k, f in m.fabric:
        m.fabric[x, k, f].set_value(float(parts.get(x) == (k, f)))
    for p in m.lit:
        m.lit[p].set_value(float(p[0] in parts and p[1] in parts))
    for i in m.designed:
        m.designed[i].set_value(round(m.designed[i].value))
    for x in m.component("extra_mw") or ():
        m.extra_mw[x].set_value(fabric_mw(q, *parts[x]) if x in parts else 0.0)
    pairs = tuple(p for p in q.data.pairs if p[0] in parts and p[1] in parts)
    modules = {x: round(count) for x in q.data.candidates if (count := m.modules[x].value) > 0.5}
    return PlacedParts(
        asked=tuple(p for p, n in q.kinds for _ in range(n)),
        circuit=q.circuit,
        parts={x: parts[x] for x in sorted(parts)},
        racks={x: count * q.data.module_racks for x, count in modules.items()},
        circuits={k: round(m.circuits[k].value) for k in m.circuits if m.circuits[k].value > 0.5},
        steps={k: round(m.steps[k].value) for k in m.steps if m.steps[k].value > 0.5},
        pairs=pairs if q.circuit is not None else (),
        rtt_ms=max((q.data.rtt_ms(p) for p in pairs), default=0.0),
        capital_usd=float(pyo.value(m.total)) * 1e6,
        proof=replace(outcome.with_solution(None), bound=None if outcome.bound is None else outcome.bound * 1e6),
    )


def without_dear_pairs(
    q: SiteQuestion, state: Callable[[SiteQuestion], Any], solve: Callable[[Any], Outcome[Any]]
) -> SiteQuestion | None:
    """Return the site MILP's question without pairs of sites that cost too much; None where no sites hold its parts."""
    if q.circuit is None or q.designs or len(q.data.pairs) < MANY_PAIRS:
        return q
    without_fibre = solve(state(replace(q, circuit=None)))
    if without_fibre.infeasible:
        return None
    if without_fibre.bound is None:
        return q
    for most in _growing_limits(q, q.circuit):
        few = solve(state(_up_to(q, most)))
        if few.objective is not None:
            return _up_to(q, 1e6 * (few.objective - without_fibre.bound + CENT_MUSD))
    return q


def nearer_pairs_first(q: SiteQuestion, most_usd: float) -> list[SiteQuestion]:
    """List questions to the site MILP that decide if `most_usd` pays the fibre; the last has all pairs it may pay."""
    # Where there are many pairs easier questions precede it: one without fibre, which may already be infeasible, and
    # some with ever more of the cheapest pairs, which may already suffice.
    if q.circuit is None:
        return [q]
    whole = _up_to(q, most_usd)
    limits = _growing_limits(whole, q.circuit, MANY_PAIRS)
    return [replace(q, circuit=None), *(_up_to(whole, most) for most in limits), whole] if limits else [whole]


def _growing_limits(q: SiteQuestion, circuit: Circuit, many: int = 0) -> list[float]:
    """List rising limits on a site pair's price in USD, each keeping more pairs in reach; none if not `many`."""
    usd = (q.pair_usd.get(p, 0.0) for p in q.data.pairs if q.data.rtt_ms(p) <= circuit.max_rtt_ms)
    prices, found, count = sorted(x for x in usd if math.isfinite(x)), list[float](), len(q.data.candidates)
    while count < len(prices) >= many:
        found.append(prices[count])
        count *= GROWTH
    return found


def _up_to(q: SiteQuestion, most: float) -> SiteQuestion:
    usd = {p: q.pair_usd.get(p, 0.0) for p in q.data.pairs}
    return replace(q, pair_usd={p: x if x <= most else math.inf for p, x in usd.items()})
