"""Decide how many megawatts go where, and what joins them: a MILP over the grid, in two proven solves.

First the most racks where the total is free, then the least yearly cost for that total. Power flows by transport (each
corridor within its rating, lossless), by the DC equations, with outages where asked (rows found on the way), or not at all.
Every two open sites are joined by a link: a mesh, of which a ring uses a part.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyomo.environ as pyo

from planner.handoff import Alternative, Options, SitesRequest
from planner.instance import Instance
from planner.models.sites_binding import Decision, binding
from planner.models.sites_conflict import conflict
from planner.models.sites_flow import flows_of, security_space
from planner.models.sites_question import Question, ask
from planner.models.sites_rules import build, most_modules, most_sites, yearly_musd
from planner.physics import cost, power, wan
from planner.physics.grid import usable_interconnect_mw
from planner.plan import Certificate, Flow, Link, NewCircuits, Site, SitesPlan
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, relative_gap

__all__ = ["alternatives", "conflict", "solve"]

MINIMIZES = "yearly cost of energy, sites, lines and WAN, USD"
PROVEN_GAP = 1e-9
FORMULATION = (
    "MILP: whole modules by site, open sites, generation, flows, new circuits and wavelengths; most racks first where the total is free, "
    "then least yearly cost; racks and fabric cost the same in every split of the total and are left out; a link joins every two open sites"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """What was proven of the largest total: modules held and their bound."""

    modules: int
    bound: int
    stop: Stop


def solve(instance: Instance, request: SitesRequest, options: Options) -> Outcome[SitesPlan]:
    """Return the split with the most racks (where the total is free), and among those of least yearly cost."""
    return _solve(ask(instance, request), options, None)


def alternatives(instance: Instance, request: SitesRequest, options: Options) -> list[Alternative]:
    """Return the split with the most racks and then least cost for each number of sites, as long as one more site gains.

    Merits: `minus_racks`, `usd_per_year`, `sites`; none of the list is as good as another in all three. The time limit is
    that of the whole list.
    """
    q = ask(instance, request)
    left = _clock(options.time_limit, time.perf_counter())
    found: list[Alternative] = []
    best = (0, math.inf)
    for n in range(1, most_sites(q) + 1):
        held = _solve(q, replace(options, time_limit=left()), n, best[0]).solution
        racks = sum(s.racks for s in held.sites) if held else 0
        cost_usd = (held.certificate.objective if held else None) or 0.0
        if held is None or (racks == best[0] and cost_usd >= best[1]):
            if found:
                break
            continue
        best = racks, cost_usd
        merits = {"minus_racks": -float(racks), "usd_per_year": cost_usd, "sites": float(n)}
        found.append(Alternative(merits=merits, choices={"racks_by_site": {s.id: s.racks for s in held.sites}}))
    return found


def _solve(q: Question, options: Options, sites: int | None, least_racks: int = 0) -> Outcome[SitesPlan]:
    started = time.perf_counter()
    left = _clock(options.time_limit, started)
    m = build(q, sites=sites)
    m.no_fewer = pyo.Constraint(expr=sum(m.modules.values()) >= least_racks // q.module_racks)
    proof = held = None
    if q.racks is None:
        limit = left()
        # Some time is kept for the cost: a split that is large but dear is a poor answer.
        first, held = _most_racks(m, q, replace(options, time_limit=None if limit is None else 0.7 * limit))
        if held is None:
            return _without_plan(first, started)
        bound = held.total if first.bound is None else math.floor(first.bound + 1e-6)
        proof = _Proof(modules=held.total, bound=max(bound, held.total), stop=first.stop)
        m.most_racks = pyo.Constraint(expr=sum(m.modules.values()) == held.total)
    m.goal = pyo.Objective(expr=yearly_musd(m, q))
    outcome = highs.run(m, time_limit=left(), gap=options.gap, seed=options.seed, threads=options.threads)
    if outcome.solution is not None:
        held = _straighten(m, q, outcome.solution, replace(options, time_limit=left()))
    elif held is None:
        return _without_plan(outcome, started)
    # Without a cheaper split in time, the one of the first solve stands, with the bound that was reached.
    return _with_plan(q, m, held, proof, outcome, options, started)


def _clock(limit: float | None, started: float) -> Callable[[], float | None]:
    return lambda: None if limit is None else max(limit - (time.perf_counter() - started), 0.0)


def _without_plan(outcome: Outcome[highs.Values], started: float) -> Outcome[SitesPlan]:
    return Outcome(
        stop=outcome.stop,
        infeasible=outcome.infeasible,
        detail=outcome.detail,
        solver=outcome.solver,
        variables=outcome.variables,
        constraints=outcome.constraints,
        seconds=time.perf_counter() - started,
    )


def _most_racks(m: Any, q: Question, options: Options) -> tuple[Outcome[highs.Values], Decision | None]:
    """Hold as many modules as the rules allow; a bound less than one module away is a proof, whatever gap was asked."""
    m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
    outcome = highs.run(m, time_limit=options.time_limit, absolute_gap=0.99, seed=options.seed, threads=options.threads)
    m.del_component(m.goal)
    return outcome, None if outcome.solution is None else _read(m, q, outcome.solution)


def _read(m: Any, q: Question, values: highs.Values) -> Decision:
    """Copy a solution, integers rounded, and set the model to it."""
    for var in m.component_data_objects(pyo.Var):
        x = values.of(var)
        var.set_value(round(x) if var.is_integer() or var.is_binary() else x, skip_validation=True)
    return Decision(
        modules={s: round(m.modules[s].value) for s in q.candidates if round(m.modules[s].value)},
        circuits={k: round(m.circuits[k].value) for k in m.circuits if round(m.circuits[k].value)},
        generated={n: m.generated[n].value for n in m.generated},
        flow={k: m.flow[k].value for k in m.flow} if q.system is None else flows_of(m, q.system),
    )


def _straighten(m: Any, q: Question, values: highs.Values, options: Options) -> Decision:
    """Keep the decisions and send the power the shortest way: the cost leaves flows free, and loops would confuse a reader."""
    held = _read(m, q, values)
    # Under dc, angles leave no choice.
    if not held.flow or q.system is not None:
        return held
    for var in m.component_data_objects(pyo.Var):
        if var.is_integer() or var.is_binary():
            var.fix()
    # With the integers fixed, only the rows of the power flow are left to keep.
    rest = [c for c in m.component_objects(pyo.Constraint, active=True) if c.local_name not in ("balance", "generation", "rating")]
    for family in rest:
        family.deactivate()
    keys = list(m.flow)
    m.size = pyo.Var(keys, domain=pyo.NonNegativeReals)
    m.forth = pyo.Constraint(keys, rule=lambda m, k: m.flow[k] <= m.size[k])
    m.back = pyo.Constraint(keys, rule=lambda m, k: -m.flow[k] <= m.size[k])
    m.goal.deactivate()
    m.length = pyo.Objective(expr=sum(m.size.values()))
    outcome = highs.run(m, time_limit=options.time_limit, seed=options.seed, threads=options.threads)
    if outcome.solution is not None:
        held = _read(m, q, outcome.solution)
    for part in (m.length, m.forth, m.back, m.size):
        m.del_component(part)
    for family in rest:
        family.activate()
    return held


def _with_plan(
    q: Question, m: Any, held: Decision, proof: _Proof | None, outcome: Outcome[highs.Values], options: Options, started: float
) -> Outcome[SitesPlan]:
    links = _links(q, sorted(held.modules))
    objective = _yearly_usd(q, held, links)
    # A bound above the value held differs from it by rounding only.
    bound = None if outcome.bound is None or not math.isfinite(outcome.bound) else min(outcome.bound * 1e6, objective)
    gap = relative_gap(objective, bound)
    proven = gap is not None and gap <= PROVEN_GAP and (proof is None or proof.bound == proof.modules)
    seconds = time.perf_counter() - started
    certificate = Certificate(
        status="optimal" if proven else "feasible",
        objective=objective,
        bound=bound,
        gap=gap,
        solver=outcome.solver,
        formulation=FORMULATION,
        variables=outcome.variables,
        constraints=outcome.constraints,
        seconds=seconds,
        seed=options.seed,
        minimizes=MINIMIZES,
        given=_given(q),
        space=_space(q, proof),
        binding=binding(q, m, held),
    )
    stop = outcome.stop if proof is None or proof.stop == Stop.PROVED else proof.stop
    return Outcome(
        stop=stop,
        solution=_plan(q, held, links, certificate),
        objective=objective,
        bound=bound,
        detail=outcome.detail,
        solver=outcome.solver,
        variables=outcome.variables,
        constraints=outcome.constraints,
        seconds=seconds,
    )


def _plan(q: Question, held: Decision, links: tuple[Link, ...], certificate: Certificate) -> SitesPlan:
    return SitesPlan(
        sites=tuple(_site(q, s, n, held.circuits) for s, n in sorted(held.modules.items())),
        links=links,
        new_lines=tuple(NewCircuits(line=k, circuits=n) for k, n in sorted(held.circuits.items())),
        generation_mw={n: _tidy(x) for n, x in sorted(held.generated.items()) if _tidy(x)},
        flows=tuple(Flow(line=k, mw=_tidy(x)) for k, x in sorted(held.flow.items()) if _tidy(x)),
        certificate=certificate,
    )


def _tidy(mw: float) -> float:
    return round(mw, 6) + 0.0


def _site(q: Question, site: str, modules: int, circuits: dict[str, int]) -> Site:
    node, racks = q.candidates[site], modules * q.module_racks
    return Site(
        id=site,
        balancing_authority=node.balancing_authority,
        interconnection=q.interconnection(site),
        modules=modules,
        racks=racks,
        gpus=racks * power.rack_of(q.hardware).gpus,
        it_mw=power.it_mw(q.hardware, racks),
        facility_mw=power.facility_mw(q.hardware, racks),
        interconnect_mw=usable_interconnect_mw(q.grid, node, circuits) if q.grid.rules.interconnect.on else None,
        cooling_m2=power.cooling_m2(q.hardware, racks),
        latitude=node.latitude,
        longitude=node.longitude,
    )


def _links(q: Question, sites: list[str]) -> tuple[Link, ...]:
    """Join every two open sites by what the exchange needs."""
    found = []
    for pair in ((a, b) for a, b in q.pairs if a in sites and b in sites):
        waves = q.wavelengths(pair, len(sites)) or 0
        found.append(
            Link(
                a=pair[0],
                b=pair[1],
                route_km=q.pairs[pair],
                rtt_ms=q.rtt_ms(pair),
                required_gbps=q.need_gbps(pair, len(sites)),
                wavelengths=waves,
                capacity_gbps=waves * q.wan.wavelength_gbps,
                fibre_pairs=wan.fibre_pairs(q.wan, waves),
                usd_per_year=cost.link_usd_per_year(q.grid, q.wan, q.pairs[pair], waves),
            )
        )
    return tuple(found)


def _yearly_usd(q: Question, held: Decision, links: tuple[Link, ...]) -> float:
    """Price the decision from the physics, not from the solver's sums."""
    energy = built = 0.0
    for s, n in sorted(held.modules.items()):
        racks = n * q.module_racks
        mw = power.facility_mw(q.hardware, racks)
        energy += cost.energy_usd_per_year(mw, q.authorities[q.candidates[s].balancing_authority].energy_usd_per_mwh)
        built += cost.site_capex_usd(q.grid, it_mw=power.it_mw(q.hardware, racks), facility_mw=mw)
    built += sum((q.corridors[k].capex_usd or 0.0) * n for k, n in held.circuits.items())
    prices = q.grid.prices
    return energy + built * cost.annuity(prices.discount_rate, prices.site_life_years) + sum(link.usd_per_year for link in links)


def _given(q: Question) -> str:
    given = [f"fabric {q.request.fabric_usd_per_rack:,.0f} USD per rack"]
    if q.request.exchange is None:
        given.append("no exchange between sites")
    else:
        given.append(f"exchange of {q.request.exchange.stage_bytes:.6g} bytes per stage within {q.request.exchange.window_seconds:.6g} s")
    return "; ".join(given)


def _space(q: Question, proof: _Proof | None) -> dict[str, int | float | str | list[int] | list[str]]:
    limit = q.grid.rules.max_rtt_ms
    space: dict[str, int | float | str | list[int] | list[str]] = {
        "candidate_sites": len(q.candidates),
        "most_sites": most_sites(q),
        "most_modules": most_modules(q),
        "pairs": len(q.pairs),
        "pairs_over_rtt": sum(limit is not None and q.rtt_ms(p) > limit for p in q.pairs),
        "pairs_that_cannot_be_lit": sum(q.wavelengths(p, 2) is None for p in q.pairs),
    }
    if q.system is not None:
        space |= security_space(q.system)
    if proof is not None:
        space |= {"most_racks": proof.modules * q.module_racks, "most_racks_bound": proof.bound * q.module_racks}
    return space
