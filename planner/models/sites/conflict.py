"""Why no split exists: a smallest set of rules that cannot hold together, each of them needed, and the numbers.

The power balance and the tie of modules to open sites are laws, not rules: they hold in every question asked here.
"""

from collections.abc import Callable, Collection

from planner.instance.instance import Instance
from planner.models.requests import Options, SitesRequest
from planner.models.sites.bounds import module_capital_musd, most_sites
from planner.models.sites.data import Question, ask
from planner.models.sites.rules import RULES, build
from planner.models.sites.wan_links import levels
from planner.physics.site import power
from planner.physics.site.grid import usable_interconnect_mw
from planner.plan.certificate import Conflict
from planner.solvers import cpsat, highs
from planner.solvers.cpsat_from_pyomo import restate


def conflict(instance: Instance, request: SitesRequest, options: Options) -> Conflict | None:
    """Return a smallest conflict; None where a split exists, or where infeasibility is not proven twice."""
    q = ask(instance, request)
    everything = frozenset(RULES)
    if not infeasible(q, everything, options):
        return None
    kept = _filter(q, everything, options)
    # The set is judged again on its own: without any one rule a split exists, and another backend finds none with all.
    if any(infeasible(q, kept - {name}, options) for name in kept) or not confirmed(q, kept, options):
        return None
    return Conflict(decision="sites", rules=tuple(sorted(kept)), reason=_reason(q, kept))


def infeasible(q: Question, rules: Collection[str], options: Options, *, presolve: bool = True) -> bool:
    """Tell whether no split keeps these rules, proven by HiGHS."""
    m = build(q, without=frozenset(RULES) - frozenset(rules))
    return highs.run(
        m, time_limit=options.time_limit, seed=options.seed, threads=options.threads, presolve=presolve
    ).infeasible


def confirmed(q: Question, rules: Collection[str], options: Options) -> bool:
    """Prove infeasibility by CP-SAT; where rounding to kW hides it there, by HiGHS without presolve."""
    m = build(q, without=frozenset(RULES) - frozenset(rules))
    second = cpsat.run(restate(m), time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    return second.infeasible or infeasible(q, rules, options, presolve=False)


def _filter(q: Question, rules: frozenset[str], options: Options) -> frozenset[str]:
    """Leave out each rule in turn for good when the rest still conflict: what remains is all needed."""
    for name in RULES:
        if infeasible(q, rules - {name}, options):
            rules = rules - {name}
    return rules


def _reason(q: Question, rules: Collection[str]) -> str:
    clauses = [_asked(q)] if "demand" in rules else []
    clauses += [_CLAUSES[name](q) for name in reversed(RULES) if name in rules and name != "demand"]
    return "; ".join(clauses)


def _mw(x: float) -> str:
    return f"{x:,.6g} MW"


def _asked(q: Question) -> str:
    """Say what must be held, and the power it takes."""
    module = f"one module ({q.module_racks} {'rack' if q.module_racks == 1 else 'racks'}) needs {_mw(q.module_mw)} at the grid"
    if q.request.racks is None:
        return module
    whole = "" if q.request.racks % q.module_racks == 0 else f", not a whole number of modules of {q.module_racks}"
    return f"{q.request.racks:,} racks{whole} need {_mw(power.facility_mw(q.hardware, q.request.racks))} at the grid ({module})"


def _pins(q: Question) -> str:
    pins = {f"sites.racks.{s}": n for s, n in q.pins.racks_by_site.items()}
    pins |= {k: v for k, v in (("sites.racks", q.pins.racks), ("sites.max_sites", q.pins.max_sites)) if v is not None}
    parts = [f"{k}={v}" for k, v in sorted(pins.items())]
    odd = any(v % q.module_racks for k, v in pins.items() if k.startswith("sites.racks"))
    return f"pins fix {', '.join(parts)}" + (f"; racks come in modules of {q.module_racks}" if odd else "")


def _budget(q: Question) -> str:
    years = q.instance.limits.operation_years
    energy = years * min(q.energy_musd(s) for s in q.candidates)
    site = q.grid.prices.site_usd / 1e6
    limit = (q.instance.limits.budget_usd or 0.0) / 1e6
    return (
        f"limits.budget_usd is {limit:,.6g} M$, a module costs at least {module_capital_musd(q) + energy:,.6g} M$"
        + (f" with {years:g} years of energy" if years else "")
        + (f" and an open site {site:,.6g} M$" if site else "")
    )


def _headroom(q: Question) -> str:
    held = sorted({n.balancing_authority for n in q.candidates.values()})
    total = sum(q.authorities[b].headroom_mw for b in held)
    return (
        "headroom is "
        + ", ".join(f"{b} {_mw(q.authorities[b].headroom_mw)}" for b in held)
        + (f" ({_mw(total)} in all)" if len(held) > 1 else "")
    )


def _generation(q: Question) -> str:
    parts = []
    for b, authority in q.authorities.items():
        spare = sum(n.generation_mw for n in q.grid.nodes if n.balancing_authority == b)
        capped = q.grid.rules.headroom and q.grid.rules.grid_model == "transport" and authority.headroom_mw < spare
        parts.append(f"{b} {_mw(authority.headroom_mw if capped else spare)}" + (" (its headroom)" if capped else ""))
    if q.grid.rules.grid_model == "none":
        return "plants can spare " + ", ".join(parts)
    best = max(q.candidates.values(), key=lambda n: (n.generation_mw, n.id))
    return "plants can spare " + ", ".join(parts) + f", at a site itself at most {_mw(best.generation_mw)} ({best.id})"


def _interconnect(q: Question) -> str:
    rule = q.grid.rules.interconnect
    most = {c.id: c.circuits for c in q.corridors.values() if c.new}
    steps = {s: n.upgrade.max_steps if n.upgrade else 0 for s, n in q.candidates.items()}
    usable = {s: usable_interconnect_mw(q.grid, n, most, steps[s]) or 0.0 for s, n in q.candidates.items()}
    best = max(usable, key=lambda s: (usable[s], s))
    what = "draw beyond its own plants" if rule.reading == "import_share" else "load"
    return (
        f"grid.rules.interconnect ({rule.reading}) wants {rule.share:.0%} of a site's {what} on its circuits: the best site, {best}, "
        f"has {_mw(usable[best])}" + (f", enough for {_mw(usable[best] / rule.share)} of that" if rule.share else "")
    )


def _area(q: Question) -> str:
    module = power.cooling_m2(q.hardware, q.module_racks) or 0.0
    limited = {s: n.area_m2 for s, n in q.candidates.items() if n.area_m2 is not None}
    best = max(limited, key=lambda s: (limited[s] or 0.0, s))
    return (
        f"a module's cooling takes {module:,.6g} m²; the largest limited site, {best}, has area_m2 {limited[best]:,.6g}"
    )


def _fault_split(q: Question) -> str:
    rule = q.grid.rules.fault_split
    areas = sorted({q.interconnection(s) for s in q.candidates})
    return (
        f"grid.rules.fault_split wants sites in {rule.min_interconnections} interconnections, none with more than {rule.max_share:.0%} of the racks; "
        f"candidates are in {', '.join(areas)}"
    )


def _site_count(q: Question) -> str:
    return f"grid.rules.max_sites is {q.grid.rules.max_sites}"


def _min_site(q: Question) -> str:
    least = q.grid.rules.min_site_modules
    return f"a site holds {least} modules at least ({_mw(least * q.module_mw)})"


def _rtt(q: Question) -> str:
    limit = q.grid.rules.max_rtt_ms or 0.0
    far = [p for p in q.pairs if q.rtt_ms(p) > limit]
    nearest = min(far, key=lambda p: (q.rtt_ms(p), p))
    closest = f"{'-'.join(nearest)} at {q.rtt_ms(nearest):.4g} ms"
    return f"grid.rules.max_rtt_ms is {limit:g}: {len(far)} of {len(q.pairs)} pairs are farther, the nearest of them {closest}"


def _wan_capacity(q: Question) -> str:
    unlit = sorted(pair for pair, steps in levels(q, most_sites(q)).items() if steps[-1][1] is None)
    most = q.wan.max_wavelengths_per_pair * q.wan.max_fibre_pairs * q.wan.wavelength_gbps
    if q.parted or q.request.refused:
        tried = "; ".join("-".join(sorted(s)) for s in sorted(q.request.refused, key=sorted))
        parted = f"the fibre joins {len(q.pairs) - len(q.parted)} of {len(q.pairs)} pairs" + (
            " whatever is cut" if q.wan.protection == "one_cut" else ""
        )
        return parted + (f", and carries no exchange between {tried}" if tried else "")
    if not unlit:
        return (
            f"two sites can be joined by {most:,.6g} Gbps at most, and the sites that the other rules leave need more"
        )
    easiest = min(unlit, key=lambda p: (q.need_gbps(p, 2), p))
    return (
        f"two sites can be joined by {most:,.6g} Gbps at most; {len(unlit)} of {len(q.pairs)} pairs need more, "
        f"{'-'.join(easiest)} {q.need_gbps(easiest, 2):,.6g} Gbps or more ({q.rtt_ms(easiest):.4g} ms apart)"
    )


def _rating(q: Question) -> str:
    if not q.corridors:
        return "no line joins the nodes"
    carry = {
        n: sum(q.corridors[k].rating_mw * q.corridors[k].circuits for _, _, k in q.graph.edges(n, keys=True))
        for n in q.candidates
    }
    best = max(carry, key=lambda s: (carry[s], s))
    return f"lines into a site carry {_mw(carry[best])} at most (at {best}, new circuits included)"


def _share_balance(q: Question) -> str:
    return (
        f"grid.rules.share_balance wants no site more than {q.grid.rules.share_balance.max_ratio:g} times the smallest"
    )


def _ready(q: Question) -> str:
    limit = q.grid.rules.ready_within_months or 0.0
    late = sorted((n.ready_months, s) for s, n in q.candidates.items() if n.ready_months > limit)
    lines = sum(x.lead_months > limit for x in q.grid.new_lines)
    first = f", {late[0][1]} the first in {late[0][0]:g}" if late else ""
    return f"grid.rules.ready_within_months is {limit:g}: {len(late)} of {len(q.candidates)} sites{first} and {lines} new lines come later"


def _security(q: Question) -> str:
    return f'grid.rules.n1 "{q.grid.rules.n1}": flows after an outage must stay within ratings, and plants within what they can spare'


def _facility_power(q: Question) -> str:
    return f"limits.facility_power_mw is {q.instance.limits.facility_power_mw:,.6g}"


_CLAUSES: dict[str, Callable[[Question], str]] = {
    "security": _security,
    "rating": _rating,
    "generation": _generation,
    "wan_capacity": _wan_capacity,
    "rtt": _rtt,
    "share_balance": _share_balance,
    "ready": _ready,
    "min_site": _min_site,
    "area": _area,
    "interconnect": _interconnect,
    "fault_split": _fault_split,
    "headroom": _headroom,
    "facility_power": _facility_power,
    "site_count": _site_count,
    "budget": _budget,
    "pins": _pins,
}
