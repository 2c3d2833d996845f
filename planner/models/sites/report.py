"""Write a solution of the site split as the plan's section: sites, links, power, prices, proof and binding limits."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import pyomo.core as pyo
from networkx.algorithms.flow import shortest_augmenting_path

from planner.models.sites.campus_rules import Rule
from planner.models.sites.dc_network import DcNetwork
from planner.models.sites.model import (
    RULES,
    Dispatch,
    SplitSolution,
    build,
    rule_of,
    rules_without,
    security_space,
)
from planner.models.sites.site_rules import max_campus_modules, max_sites
from planner.models.sites.split_data import SplitData, scenarios, weights, years
from planner.physics.site import cost, wan
from planner.physics.site.grid import usable_interconnect_mw
from planner.plan.certificate import Certificate
from planner.plan.plan_sections import Excess, Flow, Link, NewCircuits, ScenarioRun, Site, SitesPlan, Upgrade
from planner.solvers import highs
from planner.solvers.outcome import Outcome, Stop, relative_gap
from planner.solvers.signals import Deadline

_POWER_FLOW = ("generation", "rating", "security")  # judged by cuts through the grid, not by the slack of rows
_WATTS = 1e6  # per MW: a minimum cut over whole numbers ends


def binding(data: SplitData, m: Any, solution: SplitSolution) -> tuple[str, ...]:
    """Name the rows in which one more module would not fit, and the counts that are used up."""
    _set_values(data, m, solution)
    names = {"demand"} if data.request.racks is not None else set()
    for year in years(m, data):
        # A year in which sites may run less stops nothing.
        if year.name and data.grid.rules.scenarios != "robust":
            continue
        rules = [rule for rule in RULES.values() if rule.slack is not None and (rule.yearly or not year.name)]
        found = {name for rule in rules for name in _without_room(year.data, year.block, solution, rule)}
        if data.network is None:
            dispatch = solution.scenarios[year.name] if year.name else solution
            found |= _minimum_cuts(year.data, replace(solution, generated=dispatch.generated, flow=dispatch.flow))
        names |= {name + year.suffix for name in found}
    if data.network is not None:
        names |= _dual_rows(data, data.network, solution)
    return tuple(sorted(names))


def _without_room(data: SplitData, block: Any, solution: SplitSolution, rule: Rule) -> Iterator[str]:
    """Yield the rows of a rule whose slack is less than one more module takes."""
    in_use = {
        "site": set(solution.modules),
        "authority": {data.candidates[s].balancing_authority for s in solution.modules},
    }
    for index, row in (block.component(rule.name) or {}).items():
        key = index[0] if isinstance(index, tuple) else index
        # A row of a place without an open site stops nothing.
        if rule.index is not None and key not in in_use[rule.index]:
            continue
        if rule.slack is not None and min(row.uslack(), row.lslack()) < rule.slack(data, key) - 1e-6:
            yield rule.label(index)


def _set_values(data: SplitData, m: Any, solution: SplitSolution) -> None:
    """Set the variables to the values of the solution; the solver may have left slack in auxiliary ones."""
    for s in data.candidates:
        m.open[s].set_value(int(s in solution.modules))
        m.modules[s].set_value(solution.modules.get(s, 0))
    for k in m.circuits:
        m.circuits[k].set_value(solution.circuits.get(k, 0))
    for s in m.steps:
        m.steps[s].set_value(solution.steps.get(s, 0))
    for a, b in m.pair:
        both = a in solution.modules and b in solution.modules
        m.pair[a, b].set_value(int(both))
        if not m.known_sites:
            waves = (data.wavelengths((a, b), len(solution.modules)) or 0) if both else 0
            m.wavelengths[a, b].set_value(waves)
            m.fibres[a, b].set_value(wan.fibre_pairs(data.wan, waves))
    reached = {data.interconnection(s) for s in solution.modules}
    for i in m.component("reached") or ():
        m.reached[i].set_value(int(i in reached))
    for k in m.component("built") or ():
        m.built[k].set_value(int(k in solution.circuits))


def _minimum_cuts(data: SplitData, solution: SplitSolution) -> set[str]:
    """Name the plants, authorities and corridors that keep power for one more module from an open site.

    They are a minimum cut in the residual network of the grid, in which the flows may be rerouted.
    """
    names: set[str] = set()
    if data.grid.rules.grid_model == "none":
        for b in data.authorities:
            load = sum(solution.modules.get(s, 0) for s in data.sites_of(b)) * data.module_mw
            if load and data.spare_mw([b]) - load < data.module_mw - 1e-6:
                names.add(RULES["generation"].label(b))
        return names
    residual, need = _residual(data, solution), data.module_mw * _WATTS - 1
    for node in (("node", s) for s in sorted(solution.modules)):
        flow = shortest_augmenting_path(residual, "plants", node, cutoff=need)
        if flow.graph["flow_value"] >= need:
            continue
        flow.remove_edges_from([(a, b) for a, b, d in flow.edges(data=True) if d["flow"] == d["capacity"]])
        side = set(nx.ancestors(flow, node)) | {node}  # of the cut between the node and the plants
        names |= {name for a, b, name in residual.edges(data="name") if name and a not in side and b in side}
    return names


def _dual_rows(data: SplitData, network: DcNetwork, solution: SplitSolution) -> set[str]:
    """Return the names of plants, authorities, corridors and contingencies that stop one more module at an open site.

    For each open site, maximise its modules with the other sites' modules and the circuits fixed and the dispatch free;
    the names are those of the rows with a nonzero dual.
    """
    m = build(data, without=set(RULES) - set(_POWER_FLOW))
    m.goal = pyo.Objective(expr=0.0)
    labels: dict[str, str] = {}
    for year in years(m, data):
        # What a plant can spare must stop it as a row with a name, and not as a bound.
        for generated in year.block.generated.values():
            generated.setub(None)
        # Balances and what only ties variables together are no rules.
        for rule in (RULES[name] for name in _POWER_FLOW):
            for component in (rule.name, *rule.components):
                for index, row in (year.block.component(component) or {}).items():
                    labels[row.name] = rule.label(index) + year.suffix
    modules = {network.first_modules + i: float(solution.modules.get(s, 0)) for i, s in enumerate(network.candidates)}
    binaries = {network.first_open + i: float(s in solution.modules) for i, s in enumerate(network.candidates)}
    for i, (k, j) in enumerate(network.circuits_to_build):
        binaries[network.first_installed + i] = float(j < solution.circuits.get(k, 0))
    search = highs.HighsSearch(m, m.lazy, {"threads": 1}, None)
    names = set()
    for column in (column for column, n in modules.items() if n):
        others = {i: n for i, n in modules.items() if i != column}
        names |= search.stops(column, modules[column] + 1.0, {**others, **binaries})
    return {labels.get(name, name) for name in names if name in labels or name.startswith(("rating[", "security["))}


def _residual(data: SplitData, solution: SplitSolution) -> nx.DiGraph:
    """Return the residual network of the solution: plants feed nodes, corridors join nodes."""
    residual = nx.DiGraph()
    generation, rating = RULES["generation"], RULES["rating"]

    def edge(a: Any, b: Any, mw: float | None, name: str | None = None) -> None:
        # Without a capacity, an edge is unlimited.
        residual.add_edge(a, b, name=name, **({} if mw is None else {"capacity": max(round(mw * _WATTS), 0)}))

    for n in sorted(data.grid.nodes, key=lambda n: n.id):
        mw = solution.generated.get(n.id, 0.0)
        edge("plants", ("node", n.id), n.generation_mw - mw, generation.label(n.id))
        edge(("node", n.id), "plants", mw)
    for k, c in data.corridors.items():
        capacity = c.rating_mw * (solution.circuits.get(k, 0) if c.new else c.circuits)
        flow = solution.flow.get(k, 0.0)
        for a, b, left in ((c.a, c.b, capacity - flow), (c.b, c.a, capacity + flow)):
            # A vertex of its own keeps parallel corridors apart.
            edge(("node", a), ("line", k, a), left, rating.label(k) if capacity else None)
            edge(("line", k, a), ("node", b), None)
    return residual


MINIMIZES = "yearly cost of energy, sites, lines and WAN, USD"
FORMULATION = (
    "MILP: whole modules by site, open sites, generation, flows, new circuits and wavelengths; most racks first where "
    "the total is free, then least yearly cost; racks and fabric cost the same in every split of the total and are "
    "left out; a link joins every two open sites"
)
PROVEN_GAP = 1e-9  # relative; above what rounding leaves between the recomputed objective and the solver's bound


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxRacksProof:
    """The proof of the largest total: its modules, their bound, and the stop reason."""

    modules: int
    bound: int
    stop: Stop


def with_plan(
    data: SplitData,
    m: Any,
    solution: SplitSolution,
    proof: MaxRacksProof | None,
    outcome: Outcome[highs.HighsValues],
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
    section = sites_plan(data, solution, {}, links=links, certificate=certificate)
    return replace(result.with_solution(section), stop=stop)


def sites_plan(
    data: SplitData,
    solution: SplitSolution,
    fabric_mw: Mapping[str, float],
    *,
    links: tuple[Link, ...],
    certificate: Certificate,
) -> SitesPlan:
    """Return the sites section of a plan; `fabric_mw` is the power of the fabric in MW by site, 0 where it is not."""
    return SitesPlan(
        sites=tuple(_site(data, s, solution, fabric_mw.get(s, 0.0)) for s in sorted(solution.modules)),
        links=links,
        new_lines=tuple(NewCircuits(line=k, circuits=n) for k, n in sorted(solution.circuits.items())),
        upgrades=tuple(Upgrade(node=n, steps=k) for n, k in sorted(solution.steps.items())),
        generation_mw=_nonzero(solution.generated),
        flows=_flows(solution.flow),
        excess=tuple(_excess(data, name, x) for name, x in solution.excess.items()),
        scenarios={
            name: ScenarioRun(
                running_mw=_nonzero(of.load),
                generation_mw=_nonzero(of.generated),
                flows=_flows(of.flow),
                energy_usd_per_year=_scenario_usd(data, year, solution, of, fabric_mw),
            )
            for name, year, of in ((name, year, solution.scenarios[name]) for name, year in scenarios(data).items())
        },
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


def _scenario_usd(
    data: SplitData, year: SplitData, solution: SplitSolution, dispatch: Dispatch, fabric_mw: Mapping[str, float]
) -> float:
    """Price the energy of a scenario, and the curtailed work."""
    usd = 0.0
    for s, n in sorted(solution.modules.items()):
        drawn = round(dispatch.load.get(s, 0.0), 6)
        curtailed = max(cost.facility_mw(data.hardware, n * data.module_racks, fabric_mw.get(s, 0.0)) - drawn, 0.0)
        usd += cost.energy_usd_per_year(drawn, year.usd_per_mwh(s))
        usd += cost.energy_usd_per_year(curtailed, data.grid.rules.curtailment_usd_per_mwh)
    return usd


def _site(data: SplitData, site: str, solution: SplitSolution, fabric_mw: float) -> Site:
    node, racks = data.candidates[site], solution.modules[site] * data.module_racks
    usable = None
    if data.grid.rules.interconnect.enabled:
        usable = usable_interconnect_mw(data.grid, node, solution.circuits, solution.steps.get(site, 0))
    return Site(
        id=site,
        balancing_authority=node.balancing_authority,
        interconnection=data.interconnection(site),
        modules=solution.modules[site],
        racks=racks,
        gpus=racks * cost.rack_of(data.hardware).gpus,
        it_mw=cost.it_mw(data.hardware, racks, fabric_mw),
        facility_mw=cost.facility_mw(data.hardware, racks, fabric_mw),
        interconnect_mw=usable,
        cooling_m2=cost.cooling_m2(data.hardware, racks, fabric_mw),
        latitude=node.latitude,
        longitude=node.longitude,
    )


def _links(data: SplitData, sites: list[str]) -> tuple[Link, ...]:
    pairs = [(a, b) for a, b in data.pairs if a in sites and b in sites]
    return tuple(
        link_of(data, pair, data.wavelengths(pair, len(sites)) or 0, required_gbps=data.need_gbps(pair, len(sites)))
        for pair in pairs
    )


def link_of(data: SplitData, pair: tuple[str, str], waves: int, *, required_gbps: float) -> Link:
    """Return the link between two open sites of some wavelengths."""
    return Link(
        a=pair[0],
        b=pair[1],
        route_km=data.pairs[pair],
        rtt_ms=data.rtt_ms(pair),
        required_gbps=required_gbps,
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
        mw = cost.facility_mw(data.hardware, racks)
        energy += cost.energy_usd_per_year(mw, data.usd_per_mwh(s))
        built += cost.site_capex_usd(data.grid, it_mw=cost.it_mw(data.hardware, racks), facility_mw=mw)
    built += sum((data.corridors[k].capex_usd or 0.0) * n for k, n in solution.circuits.items())
    built += sum(data.step_usd(s) * n for s, n in solution.steps.items())
    prices = data.grid.prices
    years = {n: _scenario_usd(data, w, solution, solution.scenarios[n], {}) for n, w in scenarios(data).items()}
    if years and data.grid.rules.scenarios == "robust":
        energy = max(energy, *years.values())
    elif years:
        own, weight = weights(data)
        energy = own * energy + sum(weight[n] * usd for n, usd in years.items())
    soft = data.grid.rules.soft
    energy += sum(soft[rule_of(name).name].usd_per_year * amount for name, amount in solution.excess.items())
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
        "max_sites": max_sites(data, rules_without()),
        "max_modules": max_campus_modules(data, rules_without()),
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
