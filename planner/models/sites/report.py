"""Write a solution of the site split as the plan's section: sites, links, power and prices."""

from collections.abc import Mapping

from planner.models.sites.model import Dispatch, SplitSolution, rule_of
from planner.models.sites.split_data import SplitData, scenarios
from planner.physics.site import cost, wan
from planner.physics.site.grid import usable_interconnect_mw
from planner.plan.certificate import Certificate
from planner.plan.plan_sections import Excess, Flow, Link, NewCircuits, ScenarioRun, Site, SitesPlan, Upgrade


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
        excess=tuple(
            Excess(
                rule=name,
                amount=(amount := round(x, 6)),
                unit=(rule := rule_of(name)).unit or "",
                usd_per_year=data.grid.rules.soft[rule.name].usd_per_year * amount,
            )
            for name, x in solution.excess.items()
        ),
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
