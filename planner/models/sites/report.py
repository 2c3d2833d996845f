"""Write a solution of the site split as the plan's section: sites, links, power, prices and what is proven."""

import math
from dataclasses import dataclass, replace
from typing import Any

from planner.models.sites.binding import binding
from planner.models.sites.bounds import max_modules, max_sites
from planner.models.sites.data import SplitData
from planner.models.sites.grid.lazy_rows import security_space
from planner.models.sites.rules.registry import rule_of, without
from planner.models.sites.scenarios import scenarios, weights
from planner.models.sites.soft_rules import excess_usd
from planner.models.sites.solution import Dispatch, SplitSolution
from planner.physics.site import cost, power, wan
from planner.physics.site.grid import usable_interconnect_mw
from planner.plan.certificate import Certificate
from planner.plan.sites import Excess, Flow, Link, NewCircuits, ScenarioRun, Site, SitesPlan, Upgrade
from planner.solvers import highs
from planner.solvers.deadline import Deadline
from planner.solvers.outcome import Outcome, Stop, relative_gap

MINIMIZES = "yearly cost of energy, sites, lines and WAN, USD"
FORMULATION = (
    "MILP: whole modules by site, open sites, generation, flows, new circuits and wavelengths; most racks first where "
    "the total is free, then least yearly cost; racks and fabric cost the same in every split of the total and are "
    "left out; a link joins every two open sites"
)
PROVEN_GAP = 1e-9  # relative; above what rounding leaves between the recomputed objective and the solver's bound


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxRacksProof:
    """What was proven of the largest total: its modules and their bound."""

    modules: int
    bound: int
    stop: Stop


def with_plan(
    data: SplitData,
    m: Any,
    solution: SplitSolution,
    proof: MaxRacksProof | None,
    outcome: Outcome[highs.Values],
    seed: int,
    deadline: Deadline,
) -> Outcome[SitesPlan]:
    """Return the outcome with the plan's section, its objective recomputed from the physics."""
    links = _links(data, sorted(solution.modules))
    objective = _yearly_usd(data, solution, links)
    # A bound above the objective differs from it by rounding only.
    finite = outcome.bound is not None and math.isfinite(outcome.bound)
    bound = min(outcome.bound * 1e6, objective) if finite and outcome.bound is not None else None
    gap = relative_gap(objective, bound)
    proven = gap is not None and gap <= PROVEN_GAP and (proof is None or proof.bound == proof.modules)
    result = replace(
        outcome.with_solution(solution),
        stop=Stop.PROVED if proven else Stop.LIMIT,
        objective=objective,
        bound=bound,
        seconds=deadline.elapsed,
    )
    certificate = result.certificate(
        formulation=FORMULATION,
        minimizes=MINIMIZES,
        seed=seed,
        given=_given(data),
        space=_space(data, proof),
        binding=binding(data, m, solution),
    )
    stop = outcome.stop if proof is None or proof.stop == Stop.PROVED else proof.stop
    return replace(result.with_solution(_plan(data, solution, links, certificate)), stop=stop)


def _plan(data: SplitData, solution: SplitSolution, links: tuple[Link, ...], certificate: Certificate) -> SitesPlan:
    return SitesPlan(
        sites=tuple(_site(data, s, n, solution) for s, n in sorted(solution.modules.items())),
        links=links,
        new_lines=tuple(NewCircuits(line=k, circuits=n) for k, n in sorted(solution.circuits.items())),
        upgrades=tuple(Upgrade(node=n, steps=k) for n, k in sorted(solution.steps.items())),
        generation_mw=_nonzero(solution.generated),
        flows=_flows(solution.flow),
        excess=tuple(_excess(data, name, x) for name, x in solution.excess.items()),
        scenarios={n: _scenario_run(data, w, solution, solution.scenarios[n]) for n, w in scenarios(data).items()},
        certificate=certificate,
    )


def _nonzero(mw: dict[str, float]) -> dict[str, float]:
    """Return powers to the watt, without those that round to nothing."""
    rounded = {n: round(x, 6) for n, x in sorted(mw.items())}
    return {n: x for n, x in rounded.items() if x}


def _flows(mw: dict[str, float]) -> tuple[Flow, ...]:
    return tuple(Flow(line=k, mw=x) for k, x in _nonzero(mw).items())


def _excess(data: SplitData, name: str, amount: float) -> Excess:
    rule, amount = rule_of(name), round(amount, 6)
    usd = data.grid.rules.soft[rule.name].usd_per_year * amount
    return Excess(rule=name, amount=amount, unit=rule.unit or "", usd_per_year=usd)


def _scenario_run(data: SplitData, year: SplitData, solution: SplitSolution, dispatch: Dispatch) -> ScenarioRun:
    return ScenarioRun(
        running_mw=_nonzero(dispatch.load),
        generation_mw=_nonzero(dispatch.generated),
        flows=_flows(dispatch.flow),
        energy_usd_per_year=_scenario_usd(data, year, solution, dispatch),
    )


def _scenario_usd(data: SplitData, year: SplitData, solution: SplitSolution, dispatch: Dispatch) -> float:
    """Price the energy of a scenario, and the curtailed work."""
    usd = 0.0
    for s, n in sorted(solution.modules.items()):
        drawn = round(dispatch.load.get(s, 0.0), 6)
        curtailed = max(power.facility_mw(data.hardware, n * data.module_racks) - drawn, 0.0)
        usd += cost.energy_usd_per_year(drawn, year.usd_per_mwh(s))
        usd += cost.energy_usd_per_year(curtailed, data.grid.rules.curtailment_usd_per_mwh)
    return usd


def _site(data: SplitData, site: str, modules: int, solution: SplitSolution) -> Site:
    node, racks = data.candidates[site], modules * data.module_racks
    usable = None
    if data.grid.rules.interconnect.enabled:
        usable = usable_interconnect_mw(data.grid, node, solution.circuits, solution.steps.get(site, 0))
    return Site(
        id=site,
        balancing_authority=node.balancing_authority,
        interconnection=data.interconnection(site),
        modules=modules,
        racks=racks,
        gpus=racks * power.rack_of(data.hardware).gpus,
        it_mw=power.it_mw(data.hardware, racks),
        facility_mw=power.facility_mw(data.hardware, racks),
        interconnect_mw=usable,
        cooling_m2=power.cooling_m2(data.hardware, racks),
        latitude=node.latitude,
        longitude=node.longitude,
    )


def _links(data: SplitData, sites: list[str]) -> tuple[Link, ...]:
    """Return a link between every two open sites, with the wavelengths that the exchange needs."""
    pairs = [(a, b) for a, b in data.pairs if a in sites and b in sites]
    return tuple(_link(data, pair, len(sites)) for pair in pairs)


def _link(data: SplitData, pair: tuple[str, str], sites: int) -> Link:
    waves = data.wavelengths(pair, sites) or 0
    return Link(
        a=pair[0],
        b=pair[1],
        route_km=data.pairs[pair],
        rtt_ms=data.rtt_ms(pair),
        required_gbps=data.need_gbps(pair, sites),
        wavelengths=waves,
        capacity_gbps=waves * data.wan.wavelength_gbps,
        fibre_pairs=wan.fibre_pairs(data.wan, waves),
        usd_per_year=cost.link_usd_per_year(data.grid, data.wan, data.link_prices(pair), waves),
    )


def _yearly_usd(data: SplitData, solution: SplitSolution, links: tuple[Link, ...]) -> float:
    """Price the solution from the physics, not from the solver's sums."""
    energy = built = 0.0
    for s, n in sorted(solution.modules.items()):
        racks = n * data.module_racks
        mw = power.facility_mw(data.hardware, racks)
        energy += cost.energy_usd_per_year(mw, data.usd_per_mwh(s))
        built += cost.site_capex_usd(data.grid, it_mw=power.it_mw(data.hardware, racks), facility_mw=mw)
    built += sum((data.corridors[k].capex_usd or 0.0) * n for k, n in solution.circuits.items())
    built += sum(data.step_usd(s) * n for s, n in solution.steps.items())
    prices = data.grid.prices
    years = {n: _scenario_usd(data, w, solution, solution.scenarios[n]) for n, w in scenarios(data).items()}
    if years and data.grid.rules.scenarios == "robust":
        energy = max(energy, *years.values())
    elif years:
        own, weight = weights(data)
        energy = own * energy + sum(weight[n] * usd for n, usd in years.items())
    energy += excess_usd(data, solution.excess)
    annual = built * cost.annuity(prices.discount_rate, prices.site_life_years)
    return energy + annual + sum(link.usd_per_year for link in links)


def _given(data: SplitData) -> str:
    given = [f"fabric {data.request.fabric_usd_per_rack:,.0f} USD per rack"]
    for sites in sorted(data.request.refused, key=sorted):
        given.append(f"not {' + '.join(sorted(sites))}, between which the fibre carries no such exchange")
    exchange = data.request.exchange
    if exchange is None:
        given.append("no exchange between sites")
    else:
        window = f"{exchange.window_seconds:.6g} s"
        given.append(f"exchange of {exchange.stage_bytes:.6g} bytes per stage within {window}")
    return "; ".join(given)


def _space(data: SplitData, proof: MaxRacksProof | None) -> dict[str, Any]:
    limit = data.grid.rules.max_rtt_ms
    space: dict[str, Any] = {
        "candidate_sites": len(data.candidates),
        "max_sites": max_sites(data, without()),
        "max_modules": max_modules(data, without()),
        "pairs": len(data.pairs),
        "pairs_over_rtt": sum(limit is not None and data.rtt_ms(p) > limit for p in data.pairs),
        "pairs_over_wan_capacity": sum(data.wavelengths(p, 2) is None for p in data.pairs),
    }
    if data.network is not None:
        space |= security_space(data.network)
    if proof is not None:
        racks = data.module_racks
        space |= {"max_racks": proof.modules * racks, "max_racks_bound": proof.bound * racks}
    return space
