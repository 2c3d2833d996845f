"""Write the plan of a joint solution: every section from its choices, and one certificate for all of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from planner.errors import InternalError
from planner.instance.instance import Instance
from planner.instance.network import Wan
from planner.models import Options, rack_order, resolved_switches
from planner.models.joint.ends import freed_of_rules
from planner.models.joint.free_network import strategy_of
from planner.models.joint.stage_layers import ROUNDING, fastest_split
from planner.models.joint.world import JointPlan, JointSolution
from planner.physics import spares
from planner.physics.network import transport
from planner.physics.network.transport import Locality
from planner.physics.site import cost, wan
from planner.physics.site.cost import alike_usd, at_run_prices, rack_of
from planner.physics.site.wan import assumed_window_seconds
from planner.physics.training import step_prediction
from planner.physics.training.parallel_strategy import ParallelStrategy, RackBlock, layout_values, write_layout
from planner.physics.training.step import Conditions
from planner.plan.certificate import (
    BRANCHING,
    FORMULATION,
    GRID_BRANCHING,
    LISTED,
    ON_TRUST,
    UNITS,
    Certificate,
    FreedLayout,
    Status,
    given_to_sites,
    joint_mark,
)
from planner.plan.plan import Cost, Plan, RunPlan
from planner.plan.plan_sections import (
    Assumptions,
    FabricPlan,
    LayoutMetrics,
    LayoutPlan,
    PlacementPlan,
    ReliabilityPlan,
    SiteFabric,
    SitePlacement,
    SitesPlan,
    WanPlan,
)
from planner.planning.finish_date import FINISH_DATE, latest_start_days, start_days
from planner.planning.instance_parts import solved_with
from planner.planning.joint_proof import columns_of, objective_of, proof_of, without_plan
from planner.planning.site_fabrics import GatewayRates, site_fabric
from planner.simulation.flow_times import factor, transport_slowdown_of
from planner.solvers import signals
from planner.solvers.outcome import relative_gap
from planner.solvers.signals import Deadline

if TYPE_CHECKING:
    from planner.models.joint.sites import Sites


PROVEN = 1e-9  # relative: a gap of rounding alone
SECOND_PROOF_SECONDS = 10.0  # that each second proof may take over what HiGHS has proven


@dataclass(frozen=True)
class Assembly:
    """The sections of the plan of one joint solution."""

    instance: Instance
    solution: JointSolution
    choice: JointPlan
    options: Options
    seconds: float

    @cached_property
    def block(self) -> RackBlock:
        """Racks that hold whole replicas."""
        found = self.choice.column.strategy.block(self.choice.column.p)
        if found is None:
            raise ValueError("joint: a column without a block")
        return found

    @property
    def rails(self) -> int:
        """GPUs of a rack that are cabled."""
        return self.block.rails if self.choice.upkeep is None else self.choice.upkeep.rails

    @cached_property
    def strategy(self) -> ParallelStrategy:
        """The layout in full."""
        return strategy_of(self.choice)

    @cached_property
    def racks(self) -> dict[str, int]:
        """Racks bought by site."""
        if self.choice.placed is not None:
            return dict(self.choice.placed.racks)
        return dict.fromkeys(self.choice.blocks_by_site, self.instance.hardware.racks or 0)

    def certificate(self, given: str = "", space: dict[str, int] | None = None) -> Certificate:
        """Return the certificate of a section: that of the whole plan, since all sections are decided together."""
        name, placed = self.instance.objective.minimize, self.choice.placed
        mark = joint_mark(name, grid=self.instance.grid is not None, columns=len(columns_of(self.solution)))
        return Certificate(
            status=self.status,
            objective=self.value,
            bound=self.bound,
            gap=relative_gap(self.value, self.bound),
            solver=GRID_BRANCHING if self.instance.grid else BRANCHING,
            formulation=FORMULATION,
            variables=placed.proof.variables if placed else 0,  # of the MILP; a cluster without sites needs none
            constraints=placed.proof.constraints if placed else 0,
            seconds=self.seconds,
            seed=self.options.seed,
            minimizes=UNITS[name],
            given=given,
            space={**(space or {})},
            checked="" if self.bound is None else mark,
        )

    @property
    def status(self) -> Status:
        """Optimal where the bound meets the value, up to rounding or the tolerance that was asked for."""
        gap = relative_gap(self.value, self.bound)
        asked = max(PROVEN, self.instance.objective.days_given_up)
        return "optimal" if gap is not None and gap <= asked and self.solution.stopped == "proved" else "feasible"

    @property
    def value(self) -> float:
        """The figure of merit."""
        figures = {
            "cost_usd": lambda: self.bill.total_usd + self.excess_usd,
            "total_cost_of_ownership_usd": lambda: self.run.total_cost_of_ownership_usd + self.excess_usd,
            FINISH_DATE: lambda: start_days(self.instance, self.sites[0]) + self.metrics.days_to_train,
        }
        return figures.get(self.instance.objective.minimize, lambda: self.metrics.days_to_train)()

    @property
    def excess_usd(self) -> float:
        """Price of the soft rules that are broken."""
        return 0.0 if self.sites[0] is None else self.sites[0].excess_usd

    @property
    def bound(self) -> float | None:
        """What no plan of the declared space is below."""
        bound = self.solution.lower_bound
        if bound is not None and self.instance.objective.minimize == FINISH_DATE:
            bound += latest_start_days(self.instance)
        return None if bound is None else min(bound, self.value)

    @cached_property
    def assumptions(self) -> Assumptions:
        """What the step takes from the network: the slowest of its sites, and the fibre between them."""
        conditions = self.choice.conditions
        return Assumptions(
            pipeline_send_slowdown=float(conditions.send),
            allreduce_slowdown=float(conditions.allreduce),
            wan_gbps=None if conditions.fibre is None else float(conditions.fibre.gbps),
            wan_rtt_ms=None if conditions.fibre is None else float(conditions.fibre.rtt_ms),
        )

    @cached_property
    def metrics(self) -> LayoutMetrics:
        """What the layout is predicted to do."""
        given, fibre = self.choice.conditions, self.choice.conditions.fibre
        conditions = Conditions(
            pipeline_send_slowdown=float(given.send),
            allreduce_slowdown=float(given.allreduce),
            wan_gbps=None if fibre is None else float(fibre.gbps),
            wan_rtt_ms=0.0 if fibre is None else float(fibre.rtt_ms),
            wan_round_trips=1.0 if fibre is None else fibre.round_trips,
            transport_slowdown=transport_slowdown_of(self.instance.network),
        )
        useful = None if self.choice.upkeep is None else 1 / self.choice.upkeep.stretch
        figures = step_prediction.metrics(self.instance, conditions, self.strategy, useful_share=useful)
        return LayoutMetrics.model_validate(figures)

    @cached_property
    def reliability(self) -> ReliabilityPlan | None:
        """The reliability section; None where failures do not count."""
        upkeep, column, metrics = self.choice.upkeep, self.choice.column, self.metrics
        calendar = column.strategy.problem.calendar
        if upkeep is None or calendar is None:
            return None
        job = calendar.job(
            column.d, column.replica_gpus, metrics.step_seconds, shares_state=column.zero > 0, lanes=column.lanes
        )
        return spares.section(job, upkeep, metrics.step_days_to_train)

    def _stages_proven(self) -> Certificate:
        made, column, choice = self.certificate(space=self.solution.counts), self.choice.column, self.choice
        if self.status != "optimal":
            return made
        found = fastest_split(column, choice.conditions, choice.split.seconds * column.sequences)
        if found.bound < 1 - ROUNDING:
            raise InternalError(f"layout: a split of layers takes {found.bound:.9f} of the step's time")
        solver = f"{made.solver}; {LISTED}"
        return made.replaced(solver=solver, variables=found.patterns, constraints=column.p)

    @cached_property
    def layout(self) -> LayoutPlan:
        """The layout section."""
        return write_layout(
            self.strategy,
            data_parallel_by_site=dict(sorted(self.choice.replicas_by_site.items())),
            racks=sum(self.racks.values()),
            gpus_per_rack=rack_of(self.instance.hardware).gpus,
            assumptions=self.assumptions,
            metrics=self.metrics,
            certificate=self._stages_proven(),
        )

    @cached_property
    def orders(self) -> dict[str, list[list[int]]]:
        """Racks of each rack stage in rank order, by site."""
        stages, racks, templates = self.block.rack_stages, self.block.stage_racks, sorted(self.choice.templates.items())
        counts = self.choice.blocks_by_site
        return {site: rack_order.rank_order(stages, counts[site], own.stripes, racks) for site, own in templates}

    def crossings(self, site: str) -> Locality:
        """Count what a site's order of racks sends across leaf domains, pods and zones."""
        design = self.choice.templates[site].design
        return transport.locality(
            self.orders[site],
            leaf_domain_racks=design.domain_racks,
            domains_per_pod=design.domains_per_pod or 1,
            domains_per_zone=design.domains_per_zone,
            wrap=self.choice.column.v > 1,
        )

    @cached_property
    def fabric(self) -> FabricPlan | None:
        """The fabric section; None where the instance has no network."""
        fabrics = self.fabrics
        return None if fabrics is None else FabricPlan(sites=fabrics, certificate=self.certificate())

    @cached_property
    def fabrics(self) -> dict[str, SiteFabric] | None:
        """The fabric of every site, which the bill reads: it knows no certificate, whose value may be the bill."""
        network, templates = self.instance.network, self.choice.templates
        if network is None:
            return None
        switches = {switch.name: switch for switch in resolved_switches(network.switches)}
        return {
            site: site_fabric(
                network,
                [switches[name] for name in (template.switch, *template.above)],
                template,
                self.crossings(site),
                nic_seconds=self.metrics.pipeline_send_nic_seconds,
                wired_gpus_per_rack=self.rails,
                rates=self._gateway_rates(site),
                # By the schedule, and where a stage has several racks at the site.
                sends_meet_rings=self.metrics.sends_beside_rings > 0 and len(self.orders[site][0]) > 1,
            )
            for site, template in sorted(templates.items())
        }

    def _gateway_rates(self, site: str) -> GatewayRates:
        """Return what the WAN gateway of a site carries: the wavelengths that end there, and the gradients."""
        split, design = self.sites
        network, assumptions, metrics = self.instance.network, self.assumptions, self.metrics
        if network is None or not network.wan_gateway or split is None:
            return GatewayRates()
        wide, training = self.instance.wan or Wan(), set(self.choice.replicas_by_site)
        size = metrics.gradient_bytes_per_stage
        window = assumed_window_seconds(
            wide, size, len(training), metrics.wan_window_seconds, assumptions.wan_gbps, assumptions.wan_rtt_ms
        )
        exchange = wan.exchange_bytes(size, len(training)), window
        return GatewayRates(
            wan_gbps=transport.wan_gbps(wide, split.links, design, site),
            exchange_gbps=transport.exchange_gbps(wide, split.links, design, site, training, exchange),
        )

    @cached_property
    def placement(self) -> PlacementPlan | None:
        """The placement section; None where the instance has no network."""
        if self.instance.network is None:
            return None
        block, choice = self.block, self.choice
        where = {site: self.crossings(site) for site in self.orders}
        groups, split = block.rack_stages * len(where), sum(crossing.groups_split for crossing in where.values())
        min_split = 0
        for site, order in self.orders.items():
            design = choice.templates[site].design
            free = transport.domain_racks(design.racks, design.domain_racks)
            min_split += transport.lower_bound_split(free, block.rack_stages, len(order[0]))
        return PlacementPlan(
            groups=groups,
            groups_leaf_local=groups - split,
            groups_split=split,
            lower_bound_split=min_split,
            extra_pieces=sum(crossing.extra_pieces for crossing in where.values()),
            groups_cross_pod=sum(crossing.groups_cross_pod for crossing in where.values()),
            stripes={site: template.stripes for site, template in sorted(choice.templates.items())},
            block_racks=block.racks,
            blocks_by_site=dict(sorted(choice.blocks_by_site.items())),
            sites={
                site: SitePlacement(assignment=rack_order.assignment(order, choice.templates[site].design))
                for site, order in self.orders.items()
            },
            certificate=self.certificate(),
        )

    @cached_property
    def at_sites(self) -> "Sites":
        """What the sites may be asked; only a grid has any, so that a cluster loads no model of them."""
        from planner.models.joint.sites import Sites

        asked = self.instance
        if asked.objective.minimize == "total_cost_of_ownership_usd":
            asked = at_run_prices(asked, self.counted_years)
        return Sites(instance=asked, seed=self.options.seed)

    @property
    def counted_years(self) -> float:
        """Years of operation that the whole run counts."""
        given = self.instance.limits.operation_years
        return cost.years_of(self.metrics.days_to_train) if given is None else given

    @cached_property
    def sites(self) -> tuple[SitesPlan | None, WanPlan | None]:
        """The sites section, and the design of what joins the sites where that is asked for."""
        placed = self.choice.placed
        if placed is None:
            return None, None
        from planner.models.joint.places.section import sites_section, wan_section

        sites = self.at_sites
        fabric_mw = {site: template.mw for site, template in self.choice.templates.items()}
        column = self.choice.column
        tensor, context, _ = column.strategy.shape.degrees
        given = given_to_sites(tensor, context, column.p, column.d, self.choice.wavelengths)
        with signals.finishing():
            section = sites_section(sites, placed, fabric_mw, given=given)
            return section, wan_section(sites, placed, window_seconds=self.metrics.wan_window_seconds)

    @cached_property
    def confirmed(self) -> tuple[SitesPlan | None, WanPlan | None]:
        """The sections of the sites and the wide area, with what confirms each in its certificate."""
        (section, design), placed = self.sites, self.choice.placed
        if section is None or placed is None:
            return None, None
        from planner.models.joint.places.section import confirmed, over_the_run

        left = _seconds_left(section.certificate, self.options, self.seconds)
        mark = confirmed(self.at_sites, placed, left) if left > 0 else ON_TRUST
        made = section.certificate.replaced(checked=mark)
        if self.instance.objective.minimize == "total_cost_of_ownership_usd":
            made = over_the_run(made, self.value, alike_usd(self.instance, self.counted_years))
        if design is not None:
            from planner.models.wan import confirmed as confirmed_fibre

            sites, left = self.at_sites, _seconds_left(design.certificate, self.options, self.seconds)
            # The exchange must fit the window, even of one site.
            request = sites.fibre.request(placed.joined, placed.circuit, self.metrics.wan_window_seconds)
            seed = self.options.seed
            mark = confirmed_fibre(sites.instance, request, design, left, seed=seed) if left > 0 else ON_TRUST
            design = design.replaced(certificate__checked=mark)
        return section.replaced(certificate=made), design

    @property
    def freed(self) -> FreedLayout | None:
        """What rules of the framework cost the plan's degrees."""
        found = freed_of_rules(self.choice)
        if found is None:
            return None
        faster, freed = found
        layout = layout_values(strategy_of(freed))
        split = {key: layout[key] for key in ("layers_per_stage", "recompute", "recomputed_layers_per_stage")}
        return FreedLayout(framework=self.instance.workload.rules.framework, faster=faster, **split)

    @cached_property
    def bill(self) -> Cost:
        """The bill."""
        split, joined = self.sites
        return cost.bill(self.instance, sum(self.racks.values()), split, self.fabrics, joined)

    @cached_property
    def run(self) -> RunPlan:
        """What the whole run draws and costs."""
        days, racks = self.metrics.days_to_train, sum(self.racks.values())
        return cost.section(self.instance, days, self.bill, racks, self.sites[0], self.fabrics)


def _of_cheapest_energy(assembly: Assembly) -> Assembly:
    """Return the assembly at the sites of cheapest energy among those of equal capital, in the time left."""
    limit = assembly.options.time_limit
    if assembly.choice.placed is None or (limit is not None and limit <= assembly.seconds):
        return assembly
    from planner.models.joint.places.section import of_cheapest_energy

    assembly.at_sites.deadline = Deadline(None if limit is None else limit - assembly.seconds)
    choice = of_cheapest_energy(assembly.at_sites, assembly.choice)
    assembly.at_sites.deadline = Deadline()
    return replace(assembly, choice=choice) if choice is not assembly.choice else assembly


def plan_of(
    instance: Instance,
    solution: JointSolution,
    options: Options,
    seconds: float,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Plan:
    """Return the plan of a joint solution, or why there is none; `more`: what the objective says of other plans."""
    choice = solution.plan
    if choice is None:
        return without_plan(instance, solution, options)
    assembly = _of_cheapest_energy(Assembly(instance, solution, choice, options, seconds))
    value, bound = assembly.value, assembly.bound
    same = ("status", "layout", "fabric", "placement", "reliability", "run")
    return Plan(
        **solved_with(instance, options),
        **{name: getattr(assembly, name) for name in same},
        objective=objective_of(instance, solution, value, bound).replaced(**more, freed=assembly.freed),
        sites=assembly.confirmed[0],
        wan=assembly.confirmed[1],
        transport=factor(instance.network),
        cost=assembly.bill,
        proof=proof_of(instance, solution) if instance.objective.in_days else None,
        stopped=solution.stopped,
    )


def _seconds_left(first: Certificate, options: Options, spent: float) -> float:
    """Return the seconds that a second proof may take; none where there is no first, or behind a signal."""
    if first.status != "optimal" or options.solver == "highs":
        return 0.0
    limit = SECOND_PROOF_SECONDS if options.time_limit is None else options.time_limit - spent
    return Deadline(max(0.0, min(SECOND_PROOF_SECONDS, limit))).left
