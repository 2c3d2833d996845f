"""The chosen sites of a joint plan: their section, a second proof of their bound, and those of cheapest energy.

The section is of the joint MILP, with its integers fixed and its flows shortest. CP-SAT, whose arithmetic is exact,
answers the same question again; under dc that of the transport model, which leaves out reactances and contingencies:
its sites cost no more, so that a bound on them holds for the dc question too.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyomo.core as pyo

from planner.models import SitesRequest
from planner.models.joint.joint_solution import CENTS, JointPlan
from planner.models.joint.shapes.site_choice import Sites
from planner.models.joint.shapes.site_milp import fabric_mw, read_placed, set_values, stated, yearly_energy_musd
from planner.models.joint.shapes.site_question import PlacedParts, SiteQuestion
from planner.models.sites import split_model
from planner.models.sites.grid_rules import columns
from planner.models.sites.site_rules import max_sites
from planner.models.sites.split_data import Pair, SplitData, gather, load_mw, scenario_musd
from planner.physics.site import cost, site_power, wan
from planner.physics.site.grid import usable_interconnect_mw
from planner.plan.certificate import SITES_FORMULATION, SITES_MINIMIZES, SITES_RUN_MINIMIZES, Certificate
from planner.plan.plan_sections import Excess, Flow, Link, NewCircuits, ScenarioRun, Site, SitesPlan, Upgrade
from planner.solvers import highs
from planner.solvers.outcome import UnansweredError, relative_gap
from planner.solvers.registry import second_proof
from planner.solvers.search_deadline import OutOfTimeError


def sites_section(sites: Sites, placed: PlacedParts, fabric_mw: dict[str, float], *, given: str = "") -> SitesPlan:
    """Return the section of a plan's chosen sites; `fabric_mw`: MW by site, `given`: the fixed choices in words."""
    # The certificate is that of the question to the MILP, whose capital is that of the whole plan.
    q = sites.question(placed.asked, placed.circuit, dict(placed.designs))
    m = stated(q)
    fixed: list[tuple[Any, float]] = []
    fixed += [(m.part[x, k], float(placed.parts.get(x, (-1, 0))[0] == k)) for x, k in m.part]
    fixed += [(m.fabric[x, k, f], float(placed.parts.get(x) == (k, f))) for x, k, f in m.fabric]
    fixed += [(m.modules[x], placed.racks.get(x, 0) // q.data.module_racks) for x in m.modules]
    fixed += [(m.open[x], float(x in placed.racks)) for x in m.open]
    fixed += [(m.circuits[k], placed.circuits.get(k, 0)) for k in m.circuits]
    fixed += [(m.steps[k], placed.steps.get(k, 0)) for k in m.steps]
    for var, x in fixed:
        var.setlb(x)
        var.setub(x)
    _settle(m, q, sites.seed)
    waves = placed.circuit.wavelengths if placed.circuit is not None else 0
    # A link has the wavelengths of the plan; none where one of its sites holds no blocks.
    lit = {p: waves * (set(p) <= set(placed.parts)) for p in q.data.pairs if set(p) <= set(placed.racks)}
    proof, value, limit = placed.proof, placed.capital_usd, q.data.grid.rules.max_rtt_ms
    # A bound above the objective differs from it by rounding only.
    bound = value if proof.proved else None if proof.bound is None else min(proof.bound, value)
    space: dict[str, Any] = {
        "candidate_sites": len(q.data.candidates),
        "max_sites": max_sites(q.data, split_model.RULES.values()),
        "parts": sum(n for _, n in q.kinds),
        "fabrics": sum(len(p.fabrics) for p, _ in q.kinds),
        "pairs": len(q.data.pairs),
        "pairs_over_rtt": sum(limit is not None and q.data.rtt_ms(p) > limit for p in q.data.pairs),
        "designs": sites.fibre.solved,
        "questions": sites.solved,
    }
    space |= m.lazy.space if q.data.network is not None else {}
    words = {"formulation": SITES_FORMULATION, "minimizes": SITES_MINIMIZES, "given": given}
    outcome = replace(proof.with_solution(placed), objective=value, bound=bound)
    certificate = outcome.certificate(**words, seed=sites.seed, space=space)
    return sites_plan(m, q.data, fabric_mw, lit=lit, certificate=certificate)


def sites_plan(
    m: Any, data: SplitData, fabric_mw: Mapping[str, float], *, lit: Mapping[Pair, int], certificate: Certificate
) -> SitesPlan:
    """Return the sites section of a plan from a site MILP that is set to its solution.

    `fabric_mw` is the power of the fabric in MW by site, 0 where missing; `lit` are the wavelengths of each link.
    """
    modules, circuits, steps = (
        {name: n for name, var in sorted(counts.items()) if (n := round(var.value))}
        for counts in (m.modules, m.circuits, m.steps)
    )
    excess = []
    for name, rows in m.excess.items():
        rule, soft = split_model.RULES[name], data.grid.rules.soft[name]
        for row, var in rows.items():
            if (var.value or 0.0) > 1e-6:
                amount = round(var.value * rule.scale, 6)
                usd = soft.usd_per_year * amount
                excess.append(Excess(rule=row, amount=amount, unit=rule.unit or "", usd_per_year=usd))
    racks = {site: n * data.module_racks for site, n in modules.items()}
    h, sites, links, gbps = data.hardware, list[Site](), list[Link](), data.wan.wavelength_gbps
    for site, count in racks.items():
        node, mw = data.candidates[site], fabric_mw.get(site, 0.0)
        usable = usable_interconnect_mw(data.grid, node, circuits, steps.get(site, 0))
        sites.append(
            Site(
                id=site,
                balancing_authority=node.balancing_authority,
                interconnection=data.interconnection(site),
                modules=modules[site],
                racks=count,
                gpus=count * h.rack.gpus,
                it_mw=site_power.it_mw(h, count, mw),
                facility_mw=site_power.facility_mw(h, count, mw),
                interconnect_mw=usable if data.grid.rules.interconnect.enabled else None,
                cooling_m2=site_power.cooling_m2(h, count, mw),
                latitude=node.latitude,
                longitude=node.longitude,
            )
        )
    for pair, waves in lit.items():
        ends = {site: (data.candidates[site].latitude, data.candidates[site].longitude) for site in pair}
        links.append(
            Link(
                a=pair[0],
                b=pair[1],
                route_km=data.pairs[pair],
                rtt_ms=data.rtt_ms(pair),
                required_gbps=waves * gbps,
                wavelengths=waves,
                capacity_gbps=waves * gbps,
                fibre_pairs=wan.fibre_pairs(data.wan, waves),
                usd_per_year=cost.link_usd_per_year(data.grid, data.wan, wan.link_prices(data.wan, ends), waves),
            )
        )
    return SitesPlan(
        sites=tuple(sites),
        links=tuple(links),
        new_lines=tuple(NewCircuits(line=k, circuits=n) for k, n in circuits.items()),
        upgrades=tuple(Upgrade(node=node, steps=n) for node, n in steps.items()),
        excess=tuple(sorted(excess, key=lambda x: x.rule)),
        scenarios={
            name: _scenario(m.years[name], data, year, racks, fabric_mw) for name, year in data.scenarios.items()
        },
        certificate=certificate,
        **_dispatch(m, data),
    )


def _nonzero(mw: Mapping[str, float]) -> dict[str, float]:
    """Return a sites section's powers in MW to the watt, without those that round to zero."""
    return {name: rounded for name, x in sorted(mw.items()) if (rounded := round(x, 6))}


def _dispatch(block: Any, data: SplitData) -> dict[str, Any]:
    flow, network = {line: var.value for line, var in block.flow.items()}, data.network
    if network is not None:
        point = np.asarray([0.0 if column is None else column.value for column in columns(block, network)])
        topology = network.topology(network.built(point))
        flow = dict(zip(topology.lines, topology.network.flows(network.injection(point)).tolist(), strict=True))
    generated = _nonzero({node: var.value for node, var in block.generated.items()})
    return {"generation_mw": generated, "flows": tuple(Flow(line=k, mw=x) for k, x in _nonzero(flow).items())}


def _scenario(
    block: Any, data: SplitData, year: SplitData, racks: Mapping[str, int], fabric_mw: Mapping[str, float]
) -> ScenarioRun:
    """Return the load in MW that runs at the chosen sites in a scenario, with energy and curtailment in USD a year."""
    running = [site for site, size in block.modules.items() if size.value > 1e-9]
    load, usd = _nonzero({site: pyo.value(load_mw(block, year, [site])) for site in running}), 0.0
    for site, count in racks.items():
        drawn = load.get(site, 0.0)
        curtailed = max(site_power.facility_mw(data.hardware, count, fabric_mw.get(site, 0.0)) - drawn, 0.0)
        usd += cost.energy_usd_per_year(drawn, year.usd_per_mwh(site))
        usd += cost.energy_usd_per_year(curtailed, data.grid.rules.curtailment_usd_per_mwh)
    return ScenarioRun(running_mw=load, energy_usd_per_year=usd, **_dispatch(block, year))


def over_the_run(made: Certificate, usd: float, alike_usd: float) -> Certificate:
    """Return the certificate of sites chosen at run prices as one on the total cost `usd` of its run."""
    # `alike_usd`, which all plans cost alike, is added to its bound. The search asked for the sites at the prices of a
    # run that is no longer, so that its bound holds.
    bound = None if made.bound is None else min(made.bound + alike_usd, usd)
    gap = relative_gap(usd, bound)
    proved = made.status == "optimal" and gap is not None and gap <= 1e-9  # as sums in another order may leave
    return made.replaced(
        status="optimal" if proved else "feasible", objective=usd, bound=bound, gap=gap, minimizes=SITES_RUN_MINIMIZES
    )


def _settle(m: Any, q: SiteQuestion, seed: int) -> None:
    """Set the site MILP to its solution: excess at its price, then scenarios at theirs, then the shortest flows."""
    _solve(m, seed)
    for rows in m.excess.values():
        for var in rows.values():
            var.setub(max(var.value, 0.0) + 1e-9)
    if q.data.grid.rules.scenarios == "expected":
        weight = {scenario.name: scenario.weight for scenario in q.data.grid.scenarios}
        m.goal.set_value(sum(weight[name] * usd for name, usd in scenario_musd(m, q.data).items()))
        _solve(m, seed)
        for block in (m.years[name] for name in q.data.scenarios):
            for x in (*block.modules.values(), *(block.component("extra_mw") or {}).values()):
                x.setlb(max(x.value - 1e-7, 0.0))
    if q.data.network is None:
        # All flows of all years, whatever their way: the cost leaves flows free, and loops confuse.
        total: Any = 0.0
        for block in m.years.values():
            keys = list(block.flow)
            block.size = pyo.Var(keys, domain=pyo.NonNegativeReals, bounds=lambda b, k: (0, b.flow[k].ub))
            block.forward = pyo.Constraint(keys, rule=lambda b, k: b.flow[k] <= b.size[k])
            block.backward = pyo.Constraint(keys, rule=lambda b, k: -b.flow[k] <= b.size[k])
            total += sum(block.size.values())
        m.goal.set_value(total)
        _solve(m, seed)


def _solve(m: Any, seed: int) -> None:
    outcome = highs.run(m, seed=seed)
    if outcome.solution is None:
        raise UnansweredError(f"joint sites: the decisions of the plan have no dispatch ({outcome.detail})")
    set_values(m, outcome.solution)


def confirmed(sites: Sites, placed: PlacedParts, seconds: float | None) -> str:
    """Solve the chosen sites' MILP anew and mark its bound: CONFIRMED, BOUNDED, or ON_TRUST after `seconds`."""
    # The claim of HiGHS is on the capital without WAN gateways, which are chosen after the sites.
    q = sites.question(placed.asked, placed.circuit, dict(placed.designs))

    def in_whole_units() -> Any:
        data, rules = q.data, q.data.grid.rules
        if data.network is not None:  # without reactances and contingencies
            looser = {"grid_model": "transport", "n1": rules.n1 if rules.n1 == "margin" else "off"}
            grid = data.grid.replaced(rules=rules.replaced(**looser))
            data = gather(sites.instance.replaced(grid=grid), SitesRequest())
        return stated(replace(q, data=data), loose=True)

    models = (lambda: stated(q)), in_whole_units
    return second_proof(placed.proof.bound, *models, unit=1e6, seconds=seconds, seed=sites.seed)


def of_cheapest_energy(sites: Sites, plan: JointPlan) -> JointPlan:
    """Move a plan to chosen sites of least yearly energy that hold the parts of its shape as near for its capital."""
    # The proof of its capital stays as it is. A plan whose fibre is designed stays where it is: each other set of sites
    # would need a design of its own.
    old = plan.placed
    if old is None or old.proof.bound is None or (sites.designed and len(old.racks) > 1):
        return plan
    if len({sites.data.usd_per_mwh(s) for s in sites.data.candidates}) == 1:
        return plan
    near = None if old.circuit is None else replace(old.circuit, max_rtt_ms=min(old.circuit.max_rtt_ms, old.rtt_ms))
    q, most_usd = sites.question(old.asked, near, dict(old.designs)), old.proof.bound + CENTS
    m, fabrics = stated(q), list(old.parts.values())  # all parts keep their fabrics
    m.same_fabrics = pyo.Constraint(
        sorted({(k, f) for _, k, f in m.fabric}),
        rule=lambda m, k, f: sum(m.fabric[x, k, f] for x in q.data.candidates) == fabrics.count((k, f)),
    )
    m.as_cheap = pyo.Constraint(expr=m.total <= most_usd / 1e6)
    m.goal.set_value(yearly_energy_musd(m, q))
    try:
        outcome = sites.run(m)
    except (OutOfTimeError, UnansweredError):
        return plan
    new = None if outcome.solution is None else read_placed(m, q, outcome)

    def energy_usd(placed: PlacedParts) -> float:
        mw = {s: n / q.data.module_racks * q.data.module_mw for s, n in placed.racks.items()}
        for s, (k, f) in placed.parts.items():
            mw[s] += fabric_mw(q, k, f)
        return sum(cost.energy_usd_per_year(x, q.data.usd_per_mwh(s)) for s, x in mw.items())

    if new is None or new.capital_usd > most_usd + CENTS or energy_usd(new) >= energy_usd(old) - CENTS:
        return plan
    by_part = [[s for _, s in sorted((part, s) for s, part in x.parts.items())] for x in (old, new)]
    moved = dict(zip(*by_part, strict=True))

    def at(by_site: dict[str, Any]) -> dict[str, Any]:
        return {moved[s]: x for s, x in by_site.items()}

    upkeep = plan.upkeep
    return replace(
        plan,
        templates=at(plan.templates),
        blocks_by_site=at(plan.blocks_by_site),
        replicas_by_site=dict(sorted(at(plan.replicas_by_site).items())),
        upkeep=None if upkeep is None else replace(upkeep, spare_racks=at(upkeep.spare_racks)),
        placed=replace(new, circuit=old.circuit, capital_usd=old.capital_usd, proof=old.proof, designs=old.designs),
    )
