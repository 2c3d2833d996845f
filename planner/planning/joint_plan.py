"""Write the plan of a joint solution: its sections, one certificate for all, and the proof; or why there is none."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from planner.checks.joint_proof import highest_bound
from planner.checks.strategy_space_check import max_racks
from planner.errors import InternalError
from planner.instance.framework_rules import FREE
from planner.instance.instance import FabricInstance, Instance
from planner.instance.network import Wan
from planner.models import Options
from planner.models.fabric import site_traffic
from planner.models.fabric.fabric_section import site_fabric
from planner.models.joint.joint_cache import JointCache
from planner.models.joint.joint_solution import JointPlan, JointSolution, strategy_of
from planner.models.joint.stage_split import ROUNDING, Stages, fastest_split
from planner.physics import no_tick, recovery, ticking
from planner.physics.network.fabric_cost import min_fabric
from planner.physics.network.locality import Locality, domain_racks, locality, lower_bound_split
from planner.physics.site import cost, wan, wan_exchange
from planner.physics.training import step_prediction
from planner.physics.training.parallel_strategy import layout_values, shape_values, write_layout
from planner.physics.training.step_prediction import Conditions
from planner.plan import certificate, plan_sections
from planner.plan.certificate import Certificate, Conflict, ExcludedColumn, JointProof, ObjectiveValue
from planner.plan.plan import Plan, as_asked
from planner.plan.plan_sections import Assumptions, LayoutMetrics, SiteFabric, SitePlacement, SitesPlan, WanPlan
from planner.planning.finish_date import latest_start_days, start_days
from planner.simulation.simulated_slowdown import factor, transport_slowdown_of
from planner.solvers.model_files import models_wanted
from planner.solvers.outcome import relative_gap
from planner.solvers.search_deadline import Deadline
from planner.solvers.signals import ENDED, Cause, finishing
from planner.units import money, rounded
from planner.version import __version__

SECOND_PROOF_SECONDS = 10.0  # that each second proof may take over what HiGHS has proven


@ticking(no_tick)  # a plan that was found is written whatever the time
def plan_of(
    instance: Instance, solution: JointSolution, options: Options, seconds: float, more: Mapping[str, Any] | None = None
) -> Plan:
    """Write the plan of a joint solution, or why there is none; `more`: what its objective says of other plans."""
    if solution.plan is None:
        return without_plan(instance, solution, options)
    proof = None if solution.plan.placed is None else solution.plan.placed.proof
    choice, metrics, section, design = _with_sites(instance, solution.plan, options, seconds)
    column, gpus = choice.column, instance.hardware.rack.gpus
    racks = (instance.hardware.racks or 0) if choice.placed is None else sum(choice.placed.racks.values())
    # The bill knows no certificate, whose value may be the bill.
    fabrics, placement = _fabrics_and_placement(instance, choice, metrics, section, design)
    bill = cost.bill(instance, racks, section, fabrics, design)
    run = cost.section(instance, metrics.days_to_train, bill, racks, section, fabrics)
    goal, excess_usd = instance.objective.minimize, 0.0 if section is None else section.excess_usd
    value, bound = metrics.days_to_train, solution.lower_bound
    if goal == "cost_usd":
        value = bill.total_usd + excess_usd
    elif goal == "total_cost_of_ownership_usd":
        value = run.total_cost_of_ownership_usd + excess_usd
    elif goal == "finish_date":
        value += start_days(instance, section)
        bound = None if bound is None else bound + latest_start_days(instance)
    bound = None if bound is None else min(bound, value)
    gap, grid = relative_gap(value, bound), instance.grid is not None
    # Optimal up to rounding, or the tolerance that was asked for.
    within = gap is not None and gap <= max(1e-9, instance.objective.days_given_up)
    joint = Certificate(  # of every section, since all are decided together
        status="optimal" if within and solution.stopped == "proved" else "feasible",
        objective=value,
        bound=bound,
        gap=gap,
        solver=certificate.GRID_BRANCHING if grid else certificate.BRANCHING,
        formulation=certificate.FORMULATION,
        variables=proof.variables if proof else 0,  # of the MILP; a cluster without sites needs none
        constraints=proof.constraints if proof else 0,
        seconds=seconds,
        seed=options.seed,
        minimizes=certificate.UNITS[goal],
        checked="" if bound is None else certificate.joint_mark(goal, grid=grid, columns=len(solution.excluded)),
    )
    if section is not None and goal == "total_cost_of_ownership_usd":
        from planner.models.joint.shapes.chosen_sites import over_the_run

        made = over_the_run(section.certificate, value, cost.alike_usd(instance, run.years))
        section = section.replaced(certificate=made)
    reliability, calendar = None, column.strategy.problem.calendar
    if choice.upkeep is not None and calendar is not None:  # failures count
        job = calendar.job(
            column.d, column.replica_gpus, metrics.step_seconds, shares_state=column.zero > 0, lanes=column.lanes
        )
        reliability = recovery.section(job, choice.upkeep, metrics.step_days_to_train)
    return Plan(
        **solved_with(instance, options),
        status=joint.status,
        objective=objective_of(instance, solution, value, bound).replaced(**more or {}, freed=_freed(instance, choice)),
        sites=section,
        wan=design,
        layout=write_layout(
            strategy_of(choice),
            data_parallel_by_site=dict(sorted(choice.replicas_by_site.items())),
            racks=racks,
            gpus_per_rack=gpus,
            assumptions=_assumptions(choice),
            metrics=metrics,
            certificate=_layout_certificate(joint.replaced(space={**solution.counts}), choice),
        ),
        fabric=None if fabrics is None else plan_sections.FabricPlan(sites=fabrics, certificate=joint),
        placement=None if fabrics is None else plan_sections.PlacementPlan(**placement, certificate=joint),
        reliability=reliability,
        transport=factor(instance.network),
        cost=bill,
        run=run,
        proof=proof_of(instance, solution) if instance.objective.in_days else None,
        stopped=solution.stopped,
    )


def _layout_certificate(joint: Certificate, choice: JointPlan) -> Certificate:
    """Return the certificate of a joint plan's layout: if proven, that no split of layers is faster too."""
    if joint.status != "optimal":
        return joint
    column = choice.column
    least, patterns = fastest_split(column, choice.conditions, choice.split.seconds * column.sequences)
    if least < 1 - ROUNDING:
        raise InternalError(f"layout: a split of layers takes {least:.9f} of the step's time")
    return joint.replaced(solver=f"{joint.solver}; {certificate.LISTED}", variables=patterns, constraints=column.p)


def _freed(instance: Instance, choice: JointPlan) -> certificate.FreedLayout | None:
    """Return the layout that a joint plan's framework rules out and that is faster; None where none is."""
    s, c = choice.column.strategy, choice.column
    if s.problem.rules is FREE:
        return None
    column = replace(c, strategy=replace(s, problem=s.problem.freed))
    own = choice.split.seconds * c.sequences
    found = Stages(column=column, conditions=choice.conditions, cutoff=own * (1 - 1e-9)).fastest()
    if found is None:
        return None
    layout = layout_values(strategy_of(replace(choice, column=column, split=found)))
    split = {key: layout[key] for key in ("layers_per_stage", "recompute", "recomputed_layers_per_stage")}
    return certificate.FreedLayout(framework=instance.workload.rules.framework, faster=own / found.seconds - 1, **split)


def _assumptions(choice: JointPlan) -> Assumptions:
    """Return what a joint plan's step assumes of the network: its slowest site, and the fibre between sites."""
    conditions, fibre = choice.conditions, choice.conditions.fibre
    return Assumptions(
        pipeline_send_slowdown=float(conditions.send),
        allreduce_slowdown=float(conditions.allreduce),
        wan_gbps=None if fibre is None else float(fibre.gbps),
        wan_rtt_ms=None if fibre is None else float(fibre.rtt_ms),
    )


def _metrics(instance: Instance, choice: JointPlan) -> LayoutMetrics:
    fibre = choice.conditions.fibre
    conditions = Conditions(
        **dict(_assumptions(choice)),
        wan_round_trips=1.0 if fibre is None else fibre.round_trips,
        transport_slowdown=transport_slowdown_of(instance.network),
    )
    useful = None if choice.upkeep is None else 1 / choice.upkeep.stretch
    return step_prediction.metrics(instance, conditions, strategy_of(choice), useful_share=useful)


def _with_sites(
    instance: Instance, choice: JointPlan, options: Options, spent: float
) -> tuple[JointPlan, LayoutMetrics, SitesPlan | None, WanPlan | None]:
    """Return the joint choice at the cheapest energy among sites of equal capital, its metrics, sites and fibre."""
    if choice.placed is None:  # only a grid has sites, so that a cluster loads no model of them
        return choice, _metrics(instance, choice), None, None
    from planner.models.joint.shapes.chosen_sites import confirmed, of_cheapest_energy, sites_section
    from planner.models.joint.shapes.site_choice import Sites

    def sites_of(choice: JointPlan) -> Sites:
        asked = instance
        if asked.objective.minimize == "total_cost_of_ownership_usd":
            years, days = asked.limits.operation_years, _metrics(asked, choice).days_to_train
            asked = cost.at_run_prices(asked, cost.years_of(days) if years is None else years)
        return Sites(instance=asked, seed=options.seed)

    def mark(first: Certificate, second_proof: Callable[[float], str]) -> str:
        """Return the mark of a second proof; on trust without a first one or time that is left, or after a signal."""
        if first.status != "optimal" or options.solver == "highs":
            return certificate.ON_TRUST
        limit = SECOND_PROOF_SECONDS if options.time_limit is None else options.time_limit - spent
        left = Deadline(max(0.0, min(SECOND_PROOF_SECONDS, limit))).left
        return second_proof(left) if left > 0 else certificate.ON_TRUST

    sites, limit, placed = sites_of(choice), options.time_limit, choice.placed
    if limit is None or limit > spent:
        sites.deadline = Deadline(None if limit is None else limit - spent)
        moved = of_cheapest_energy(sites, choice)
        sites.deadline = Deadline()
        choice, sites, placed = moved, sites if moved is choice else sites_of(moved), moved.placed or placed
    metrics, column = _metrics(instance, choice), choice.column
    fabric_mw = {site: template.mw for site, template in choice.templates.items()}
    tensor, context, _ = column.strategy.shape.degrees
    given = certificate.given_to_sites(tensor, context, column.p, column.d, choice.wavelengths)
    fibre = sites.fibre if sites.designed and len(placed.racks) > 1 else None
    joined = placed.joined, placed.circuit, metrics.wan_window_seconds
    with finishing():
        section = sites_section(sites, placed, fabric_mw, given=given)
        design = None if fibre is None else fibre.design(*joined)
    section = section.replaced(certificate__checked=mark(section.certificate, partial(confirmed, sites, placed)))
    if design is not None:
        from planner.models.wan_design import confirmed as confirmed_fibre

        request = sites.fibre.request(*joined)  # the exchange must fit the window, even of one site
        confirm = partial(confirmed_fibre, sites.instance, request, design, seed=options.seed)
        design = design.replaced(certificate__checked=mark(design.certificate, confirm))
    return choice, metrics, section, design


def _fabrics_and_placement(
    instance: Instance, choice: JointPlan, metrics: LayoutMetrics, section: SitesPlan | None, design: WanPlan | None
) -> tuple[dict[str, SiteFabric] | None, dict[str, Any]]:
    """Return a joint plan's fabric at each site, and its placement but for a certificate; without a network none."""
    network, fibre, block = instance.network, choice.conditions.fibre, choice.column.block
    if network is None:
        return None, {}
    wide, training = instance.wan or Wan(), set(choice.replicas_by_site)
    size, rates, fabrics = metrics.gradient_bytes_per_stage, dict[str, float](), dict[str, SiteFabric]()
    gbps, rtt_ms = (None, None) if fibre is None else (float(fibre.gbps), float(fibre.rtt_ms))
    window = wan_exchange.assumed_window_seconds(wide, size, len(training), metrics.wan_window_seconds, gbps, rtt_ms)
    exchange = wan_exchange.exchange_bytes(size, len(training)), window
    min_split, crossings, sites = 0, list[Locality](), dict[str, SitePlacement]()
    for site, template in sorted(choice.templates.items()):
        own, blocks = template.design, choice.blocks_by_site[site]
        # The racks of each rack stage in rank order, and what they send across leaf domains, pods and zones.
        order = site_traffic.rank_order(block.rack_stages, blocks, template.stripes, block.stage_racks)
        crossing = locality(order, own.block_racks, wrap=choice.column.v > 1)
        if network.wan_gateway and section is not None:
            rates["wan_gbps"] = wan.wan_gbps(wide, section.links, design, site)
            rates["exchange_gbps"] = wan_exchange.exchange_gbps(wide, section.links, design, site, training, exchange)
        fabrics[site] = site_fabric(
            network,
            template,
            crossing,
            nic_seconds=metrics.pipeline_send_nic_seconds,
            wired_gpus_per_rack=block.rails if choice.upkeep is None else choice.upkeep.rails,
            **rates,
            # By the schedule, and where a stage has several racks at the site.
            sends_meet_rings=metrics.sends_beside_rings > 0 and len(order[0]) > 1,
        )
        min_split += lower_bound_split(domain_racks(own.racks, own.domain_racks), block.rack_stages, len(order[0]))
        sites[site] = SitePlacement(assignment=site_traffic.assignment(order, own))
        crossings.append(crossing)
    groups, split = block.rack_stages * len(sites), sum(crossing.groups_split for crossing in crossings)
    return fabrics, {
        "groups": groups,
        "groups_leaf_local": groups - split,
        "groups_split": split,
        "lower_bound_split": min_split,
        "extra_pieces": sum(crossing.extra_pieces for crossing in crossings),
        "groups_cross_pod": sum(crossing.groups_cross_pod for crossing in crossings),
        "stripes": {site: template.stripes for site, template in sorted(choice.templates.items())},
        "block_racks": block.racks,
        "blocks_by_site": dict(sorted(choice.blocks_by_site.items())),
        "sites": sites,
    }


def proof_of(instance: Instance, solution: JointSolution) -> JointProof:
    """Write the proof section of a joint plan: the facts beyond physics that the checker needs for its bound."""
    return refused_of(solution).replaced(
        fabric_free_bound_days=solution.fabric_free_bound if instance.objective.minimize == "days_to_train" else None,
        counts=solution.counts,
        min_fabric_usd_per_wired_gpu=min_fabric(instance.network).usd if instance.network else None,
    )


def refused_of(solution: JointSolution) -> JointProof:
    """Write what sites and budget refused, in the proof of a joint plan: racks above the most, and columns."""
    # Columns are merged over replicas and micro-batches.
    columns, groups = list[ExcludedColumn](), defaultdict[Any, dict[int, float]](dict)
    for days, column in solution.excluded:
        shape, order, per_rack = column.strategy.shape, column.strategy.order, column.block.stages_per_rack
        key = (shape, column.p, column.v, column.zero, order, per_rack)
        groups[key][column.d] = min(days, groups[key].get(column.d, days))
    for (shape, stages, virtual, zero, order, per_rack), by_replicas in groups.items():
        # Of each run of replicas without a gap; numbers less their places are the same along one.
        for _, run in groupby(enumerate(sorted(by_replicas)), key=lambda pair: pair[1] - pair[0]):
            replicas = [number for _, number in run]
            refused = ExcludedColumn(
                **shape_values(shape),
                pipeline_parallel=stages,
                virtual_stages=virtual,
                zero_stage=zero,
                schedule=order,
                stages_per_rack=per_rack,
                min_data_parallel=replicas[0],
                max_data_parallel=replicas[-1],
                lower_bound_days=min(by_replicas[number] for number in replicas),
            )
            columns.append(refused)
    return JointProof(
        max_racks_by_wired_gpus=dict(sorted(solution.max_racks.items())),
        joined_racks_by_wired_gpus=dict(sorted(solution.joined_racks.items())),
        columns=tuple(columns),
    )


def objective_of(
    instance: Instance, solution: JointSolution, value: float | None, bound: float | None
) -> ObjectiveValue:
    """Write the objective section of a joint plan with its bounds, and the space that they cover."""
    gap, free = relative_gap(value, bound), None
    if instance.objective.minimize == "days_to_train" and value is not None and solution.fabric_free_bound is not None:
        free = min(solution.fabric_free_bound, value) if math.isfinite(solution.fabric_free_bound) else None
    return ObjectiveValue(
        name=instance.objective.minimize,
        value=value,
        bound=bound,
        gap=gap,
        joint_bound=bound,
        joint_gap=gap,
        fabric_free_bound=free,
        space=certificate.declared_space(instance.workload.rules),
        outside=certificate.OUTSIDE,
    )


def unanswered(instance: Instance, options: Options, reason: str, stopped: Cause = "limit") -> Plan:
    """Write a joint plan without decisions whose search had no answer: what ended it, or a back end's error."""
    return without_plan(instance, JointSolution(status="unknown", stopped=stopped, failure=reason), options)


def without_plan(instance: Instance, solution: JointSolution, options: Options) -> Plan:
    """Write a joint plan without decisions: proven to be infeasible, or the search ended before it had a plan."""
    low = rounded(solution.lower_bound or 0.0, 4, up=False)
    least = f"; none is below {money(low) if instance.objective.in_dollars else f'{low:,.6g} days'}" * (low > 0)
    reason = solution.failure or f"{ENDED[solution.stopped]} before a plan was found{least}"
    proven = solution.status == "infeasible" and instance.objective.minimize == "days_to_train"
    return Plan(
        **solved_with(instance, options),
        status="infeasible" if solution.status == "infeasible" else "unknown",
        objective=objective_of(instance, solution, None, None),
        transport=factor(instance.network) if proven else None,  # the times of the proof have it
        proof=refused_of(solution) if proven else None,
        conflict=Conflict(decision="layout", rules=(), reason=reason),
        stopped=solution.stopped,
    )


def inspection(plan: Plan, cache: JointCache) -> Any:
    """Return the key under which a solve notes a plan's proof as checked: all that it reads, but the budget.

    The budget enters through the maximum racks. None without such a proof, or where the cache is of another instance.
    """
    in_days = plan.instance.objective.minimize == "days_to_train"
    if plan.proof is None or plan.layout is None or not in_days or not cache.serves(plan.instance):
        return None
    racks = tuple(max_racks(plan.instance, gpus) for gpus in range(plan.instance.hardware.rack.gpus + 1))
    stated = plan.proof.max_racks_by_wired_gpus, plan.proof.joined_racks_by_wired_gpus
    return highest_bound(plan), racks, plan.proof.columns, *(tuple(sorted(by_gpus.items())) for by_gpus in stated)


def known_answer(
    cache: JointCache, instance: Instance, options: Options, *, seek_others: bool
) -> tuple[Any, tuple[JointSolution, dict[str, Any]] | None]:
    """Return the key of a joint plan's answer in a session, for the fewest days, and an earlier answer; None if none.

    The key says all that an answer in seconds a sequence depends on, and is the same for any number of tokens, for
    which the answer's days are rescaled; None where days themselves matter. `seek_others`: the objective's statements
    on other plans (cheaper, simpler, the end of the campus) are asked too.
    """
    hardware, in_days = instance.hardware, instance.objective.minimize == "days_to_train"
    in_days = in_days and instance.limits.deadline_days is None
    if models_wanted() or not in_days or options.gap is not None or hardware.alternatives or hardware.pools:
        return None, None
    key = instance.replaced(workload__tokens=1.0, name=""), options.seed, options.threads, seek_others
    found = next((answer for answer in cache.answers if answer[0] == key), None)
    if found is None:
        return key, None
    _, of_tokens, solution, more = found
    share = instance.workload.tokens / of_tokens

    def rescaled(value: Any) -> Any:
        """Return an objective's cheaper, simpler and other plans, with the days of these tokens."""
        if isinstance(value, tuple):
            return tuple(map(rescaled, value))
        if value is None:
            return None
        names = ("days_to_train", "value") if getattr(value, "name", "") == "goal" else ("days_to_train",)
        return value.replaced(**{name: getattr(value, name) * share for name in names})

    figures = {name: getattr(solution, name) for name in ("days", "lower_bound", "fabric_free_bound")}
    changed: dict[str, Any] = {name: days and days * share for name, days in figures.items()}
    changed["excluded"] = tuple((days * share, column) for days, column in solution.excluded)
    return key, (replace(solution, **changed), {name: rescaled(value) for name, value in more.items()})


def solved_with(instance: Instance | FabricInstance, options: Options) -> dict[str, Any]:
    """Return the fields that a plan states of its solve: instance and hash, version, seed, threads, time limit."""
    how = {"seed": options.seed, "threads": options.threads or 1, "time_limit_seconds": options.time_limit}
    return as_asked(instance) | how | {"planner_version": __version__}
