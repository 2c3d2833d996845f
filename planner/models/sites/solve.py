"""Decide how many megawatts go where, and what joins them: a MILP over the grid, in two proven solves.

First the most racks where the total is free, then the least yearly cost for that total. Power flows by transport (each
corridor within its rating, lossless), by the DC equations, with outages where asked (rows found on the way), or not at all.
Every two open sites are joined by a link: a mesh, of which a ring uses a part.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyomo.environ as pyo

from planner.instance.instance import Instance
from planner.models.requests import Alternative, Options, SitesRequest
from planner.models.sites import scenarios as sites_scenarios
from planner.models.sites import soft_rules
from planner.models.sites.binding import Decision, Run, binding
from planner.models.sites.bounds import most_modules, most_sites
from planner.models.sites.conflict import conflict
from planner.models.sites.data import Question, ask
from planner.models.sites.grid.lazy_rows import security_space
from planner.models.sites.grid.power_flow import flows_of
from planner.models.sites.rules import build, yearly_musd
from planner.physics.site import cost, power, wan
from planner.physics.site.grid import usable_interconnect_mw
from planner.plan.certificate import Certificate
from planner.plan.sites import Excess, Flow, Link, NewCircuits, ScenarioRun, Site, SitesPlan, Upgrade
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, relative_gap

__all__ = ["alternatives", "conflict", "read", "solve", "solve_question"]

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
    return solve_question(ask(instance, request), options)


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
        held = solve_question(q, replace(options, time_limit=left()), sites=n, least_racks=best[0]).solution
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


def solve_question(
    q: Question,
    options: Options,
    *,
    sites: int | None = None,
    least_racks: int = 0,
    shut: Sequence[frozenset[str]] = (),
) -> Outcome[SitesPlan]:
    """Solve a question; `sites` fixes the number of open sites, and none of the sets in `shut` may be the one that is open."""
    started = time.perf_counter()
    left = _clock(options.time_limit, started)
    m = build(q, sites=sites)
    m.no_good = pyo.Constraint(
        range(len(shut)), rule=lambda m, i: sum(1 - x if s in shut[i] else x for s, x in m.open.items()) >= 1
    )
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
    return outcome, None if outcome.solution is None else read(m, q, outcome.solution)


def read(m: Any, q: Question, values: highs.Values) -> Decision:
    """Copy a solution, integers rounded, and set the model to it."""
    for var in m.component_data_objects(pyo.Var):
        x = values.of(var)
        var.set_value(round(x) if var.is_integer() or var.is_binary() else x, skip_validation=True)
    return Decision(
        modules={s: round(m.modules[s].value) for s in q.candidates if round(m.modules[s].value)},
        circuits={k: round(m.circuits[k].value) for k in m.circuits if round(m.circuits[k].value)},
        generated={n: m.generated[n].value for n in m.generated},
        flow={k: m.flow[k].value for k in m.flow} if q.system is None else flows_of(m, q.system),
        steps={s: round(m.steps[s].value) for s in m.steps if round(m.steps[s].value)},
        excess=soft_rules.exceeded(m),
        scenarios={
            n: _read_scenario(sites_scenarios.block_of(m, n), w) for n, w in sites_scenarios.scenarios(q).items()
        },
    )


def _read_scenario(block: Any, q: Question) -> Run:
    running = {s: block.modules[s].value * q.module_mw for s in q.candidates if block.modules[s].value > 1e-9}
    flow = {k: v.value for k, v in block.flow.items()} if q.system is None else flows_of(block, q.system)
    return Run(running=running, generated={n: v.value for n, v in block.generated.items()}, flow=flow)


def _straighten(m: Any, q: Question, values: highs.Values, options: Options) -> Decision:
    """Keep the decisions and send the power the shortest way: the cost leaves flows free, and loops would confuse a reader."""
    held = read(m, q, values)
    # Under dc, angles leave no choice.
    if not held.flow or q.system is not None:
        return held
    for var in m.component_data_objects(pyo.Var):
        # What a soft rule is exceeded by stays as it was chosen: it has a price, and the flows have none.
        if var.is_integer() or var.is_binary() or var.parent_component().local_name.endswith("_excess"):
            var.fix()
    # With the integers fixed, only the rows of the power flow are left to keep.
    kept = {id(m.component(name)) for name in ("balance", "generation", "rating")}
    rest = [c for c in m.component_objects(pyo.Constraint, active=True) if id(c) not in kept]
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
        of = outcome.solution.of
        held = replace(
            held, generated={n: of(m.generated[n]) for n in m.generated}, flow={k: of(m.flow[k]) for k in m.flow}
        )
    for part in (m.length, m.forth, m.back, m.size):
        m.del_component(part)
    for family in rest:
        family.activate()
    return held


def _with_plan(
    q: Question,
    m: Any,
    held: Decision,
    proof: _Proof | None,
    outcome: Outcome[highs.Values],
    options: Options,
    started: float,
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
        sites=tuple(_site(q, s, n, held) for s, n in sorted(held.modules.items())),
        links=links,
        new_lines=tuple(NewCircuits(line=k, circuits=n) for k, n in sorted(held.circuits.items())),
        upgrades=tuple(Upgrade(node=n, steps=k) for n, k in sorted(held.steps.items())),
        generation_mw=_some(held.generated),
        flows=_flows(held.flow),
        excess=tuple(_excess(q, name, x) for name, x in held.excess.items()),
        scenarios={n: _scenario_run(q, w, held, held.scenarios[n]) for n, w in sites_scenarios.scenarios(q).items()},
        certificate=certificate,
    )


def _some(mw: dict[str, float]) -> dict[str, float]:
    return {n: _tidy(x) for n, x in sorted(mw.items()) if _tidy(x)}


def _flows(mw: dict[str, float]) -> tuple[Flow, ...]:
    return tuple(Flow(line=k, mw=x) for k, x in _some(mw).items())


def _excess(q: Question, name: str, amount: float) -> Excess:
    family = soft_rules.family_of(name)
    amount = round(amount, 6)
    return Excess(
        rule=name,
        amount=amount,
        unit=soft_rules.PER_UNIT[family][1],
        usd_per_year=q.grid.rules.soft[family].usd_per_year * amount,
    )


def _scenario_run(q: Question, year: Question, held: Decision, run: Run) -> ScenarioRun:
    return ScenarioRun(
        running_mw=_some(run.running),
        generation_mw=_some(run.generated),
        flows=_flows(run.flow),
        energy_usd_per_year=_scenario_usd(q, year, held, run),
    )


def _scenario_usd(q: Question, year: Question, held: Decision, run: Run) -> float:
    """Price the energy of a scenario, and the work it leaves undone."""
    usd = 0.0
    for s, n in sorted(held.modules.items()):
        drawn = round(run.running.get(s, 0.0), 6)
        undone = max(power.facility_mw(q.hardware, n * q.module_racks) - drawn, 0.0)
        usd += cost.energy_usd_per_year(
            drawn, year.authorities[year.candidates[s].balancing_authority].energy_usd_per_mwh
        )
        usd += cost.energy_usd_per_year(undone, q.grid.rules.curtailment_usd_per_mwh)
    return usd


def _tidy(mw: float) -> float:
    return round(mw, 6) + 0.0


def _site(q: Question, site: str, modules: int, held: Decision) -> Site:
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
        interconnect_mw=usable_interconnect_mw(q.grid, node, held.circuits, held.steps.get(site, 0))
        if q.grid.rules.interconnect.on
        else None,
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
    built += sum(q.step_usd(s) * n for s, n in held.steps.items())
    prices = q.grid.prices
    years = {n: _scenario_usd(q, w, held, held.scenarios[n]) for n, w in sites_scenarios.scenarios(q).items()}
    if years and q.grid.rules.scenarios == "robust":
        energy = max(energy, *years.values())
    elif years:
        own, weight = sites_scenarios.weights(q)
        energy = own * energy + sum(weight[n] * usd for n, usd in years.items())
    energy += soft_rules.priced_excess(q, held.excess)
    return (
        energy
        + built * cost.annuity(prices.discount_rate, prices.site_life_years)
        + sum(link.usd_per_year for link in links)
    )


def _given(q: Question) -> str:
    given = [f"fabric {q.request.fabric_usd_per_rack:,.0f} USD per rack"]
    given += [
        f"not {' + '.join(sorted(s))}, between which the fibre carries no such exchange"
        for s in sorted(q.request.refused, key=sorted)
    ]
    if q.request.exchange is None:
        given.append("no exchange between sites")
    else:
        given.append(
            f"exchange of {q.request.exchange.stage_bytes:.6g} bytes per stage within {q.request.exchange.window_seconds:.6g} s"
        )
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
