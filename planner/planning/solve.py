"""The order of the decisions for a number of racks that budget or deadline set, and the plan that they make."""

import math

from planner.checks.registry import check
from planner.errors import InputError, InternalError
from planner.instance.hardware import Accelerator
from planner.instance.identity import instance_sha256
from planner.instance.instance import Instance
from planner.models.layout import solve as layout
from planner.models.layout.solution_cache import SolutionCache
from planner.models.requests import LayoutRequest, Options, SitesRequest, resolved_switches
from planner.models.sites import solve as sites
from planner.physics.network.price import min_endpoint_usd
from planner.physics.site.power import facility_mw, rack_of
from planner.physics.training.parallel_strategy import ParallelStrategy
from planner.plan.certificate import Conflict, ObjectiveValue, Status, Violation
from planner.plan.plan import Plan
from planner.planning import heterogeneous, model_size
from planner.planning.budget import spend
from planner.planning.incumbent import Progress, Run, in_time, over
from planner.planning.pipeline import Decider
from planner.planning.trials import Learned, Refusal, Trial
from planner.simulation.reference_tree import factor
from planner.solvers.outcome import relative_gap
from planner.solvers.registry import solver_named
from planner.version import __version__


def solve_instance(instance: Instance, options: Options, progress: Progress, learned: Learned | None = None) -> Plan:
    """Take all decisions that a loaded instance asks for, the model's choice among them, and return the checked plan.

    `learned` is what earlier solves left, and this one adds to. A limit or an interrupt ends the search with the best
    plan so far; without one, the error is raised again.
    """
    learned = learned or Learned(shared=False)
    if instance.hardware.pools:
        plan = heterogeneous.solve(instance, options, progress)
        _hold(check(plan))
        return plan
    if instance.objective.minimize != "loss":
        return _decided(instance, options, progress, learned)
    plan = model_size.solve(
        instance, lambda asked, twice: _decided(asked, options, progress, learned, twice=twice), progress
    )
    _hold(check(plan))
    return plan


def _hold(broken: list[Violation]) -> None:
    if broken:
        raise InternalError("the plan breaks its own rules: " + "; ".join(f"{v.rule}: {v.message}" for v in broken[:5]))


def _decided(instance: Instance, options: Options, progress: Progress, learned: Learned, *, twice: bool = True) -> Plan:
    """Take all decisions for the instance's model and return the checked plan; `twice`: CP-SAT verifies the layout."""
    decider = Decider(
        instance=instance, options=options, progress=progress, layouts=learned.layouts, alone=not learned.shared
    )
    run = Run(instance=instance, decider=decider, progress=progress, learned=learned)
    conflict: Conflict | None = None
    try:
        conflict = _search(run)
        if run.best is not None and twice:
            run.best = run.decider.confirmed(run.best)
    except KeyboardInterrupt:
        if run.best is None:
            raise
        run.stopped = "interrupted"
    unproven = decider.unproven_refusals or (run.best is not None and not run.best.proved)
    if unproven and run.stopped == "proved":
        run.stopped = "limit"
    plan = _plan(run, conflict if run.best is None else None)
    broken = check(plan)
    if broken and all(v.rule.startswith("spend_budget") for v in broken):
        # The budget pays one more module with this layout, though not with its own best one: not proven the most.
        run.stopped = "limit"
        plan = _plan(run, None)
        broken = check(plan)
    _hold(broken)
    return plan


def _search(run: Run) -> Conflict | None:
    """Run the search that the instance asks for; return why there is no plan, or None."""
    instance = run.instance
    if instance.grid is None and instance.hardware.racks is None:
        raise InputError("hardware.racks: is missing; give the racks of the cluster, or a grid to choose them")
    if instance.grid is None or "sites.racks" in instance.pins:
        return _for_given_racks(run)
    most = _most_racks(run)
    if isinstance(most, Conflict):
        return most
    run.joint_days, nearest = _joint(run, most)
    if nearest is not None and len(nearest.data_parallel_by_site) > 1:
        run.decider.count_on(nearest)
    if instance.objective.minimize == "cost_usd":
        return _cheapest(run, most)
    return spend(run, most)


def _for_given_racks(run: Run) -> Conflict | None:
    """Plan for the racks that the instance fixes."""
    power = run.instance.limits.facility_power_mw
    racks = run.instance.hardware.racks
    if power is not None and racks is not None and facility_mw(run.instance.hardware, racks) > power * (1 + 1e-9):
        reason = f"{racks:,} racks draw {facility_mw(run.instance.hardware, racks):,.6g} MW > {power:,.6g} MW"
        return Conflict(decision="sites", rules=("hardware.racks", "limits.facility_power_mw"), reason=reason)
    found = run.decider.trial(None)
    if isinstance(found, Refusal):
        return found.explain()
    run.joint_days, _ = _joint(run, found.racks)
    run.report(found.racks, found)
    return None if run.keep(found) and in_time(run, found) else over(run, found)


def _most_racks(run: Run) -> int | Conflict:
    """Bound the racks of any plan: the site split alone, every GPU's link and leaf port at their least price."""
    request = SitesRequest(fabric_usd_per_rack=least_fabric_usd_per_rack(run.instance))
    out = sites.solve(run.instance, request, run.decider.left())
    if out.solution is None:
        return run.decider.why_no_split(run.instance, request, out)
    most = sum(s.racks for s in out.solution.sites)
    bound = out.solution.certificate.space.get("max_racks_bound", most)
    run.progress(f"sites alone: at most {most:,} racks")
    return max(most, int(bound)) if isinstance(bound, (int, float)) else most


def least_fabric_usd_per_rack(instance: Instance) -> float:
    """Price what no fabric does without, per rack: for each GPU its link and a port of the cheapest leaf."""
    network = instance.network
    if network is None:
        return 0.0
    return rack_of(instance.hardware).gpus * min(
        min_endpoint_usd(network, s) for s in resolved_switches(network.switches)
    )


def _joint(run: Run, most: int) -> tuple[float | None, ParallelStrategy | None]:
    """Bound the days to train over all four decisions with some racks at most; return the nearest layout too."""
    limit, memory = run.decider.options.time_limit, run.decider.layouts
    return joint_bound(run.instance, most, run.decider.transport_slowdown, time_limit=limit, memory=memory) or (
        None,
        None,
    )


def _cheapest(run: Run, most: int) -> Conflict | None:
    """Find the fewest racks whose plan meets the deadline; fewer racks never train sooner and cost less."""
    deadline = run.instance.limits.deadline_days or math.inf
    low, high = _least_racks(run, most, deadline), most
    if low is None:
        return Conflict(decision="layout", rules=("limits.deadline_days",), reason=_too_slow(run, deadline, most))
    low -= run.module
    found: Trial | Refusal | None = None
    while high - low > run.module or found is None:
        guess = min(low + run.module, high) if found is None else (low + high) // 2 // run.module * run.module
        found = run.at(guess)
        if isinstance(found, Trial) and found.layout.metrics.days_to_train <= deadline and run.keep(found):
            high = guess
        else:
            low = guess
        if run.best is not None and run.decider.out_of_time():
            run.stopped = "limit"
            break
    if run.best is None:
        last = run.at(most)
        if isinstance(last, Refusal):
            return last.explain()
        if in_time(run, last) and run.keep(last):
            return None
        return over(run, last)
    return None


def _least_racks(run: Run, most: int, deadline: float) -> int | None:
    """Bisect the racks under which even the joint bound misses the deadline."""
    if (run.joint_days or math.inf) > deadline:
        return None
    low, high = 0, most
    while high - low > run.module:
        middle = max(low + run.module, (low + high) // 2 // run.module * run.module)
        days, _ = _joint(run, middle)
        low, high = (low, middle) if days is not None and days <= deadline else (middle, high)
    return high


def _too_slow(run: Run, deadline: float, most: int) -> str:
    days = f"{run.joint_days:,.1f} days" if run.joint_days is not None else "no layout"
    return f"even {most:,} racks behind a network as fast as its NICs give {days}, the deadline is {deadline:,.1f}"


def _plan(run: Run, conflict: Conflict | None) -> Plan:
    """Return the plan of the incumbent, or why there is none."""
    o, best = run.decider.options, run.best
    name = run.instance.objective.minimize
    value = (
        None if best is None else best.layout.metrics.days_to_train if name == "days_to_train" else best.cost.total_usd
    )
    joint = run.joint_days if best is not None and name == "days_to_train" else None
    joint = None if joint is None or value is None else min(joint, value)
    # A search cut short has proven nothing of its racks: then only the bound over all decisions holds.
    bound = _bound_in_order(best, name) if run.stopped == "proved" else joint
    status: Status = (
        "optimal"
        if best is not None and best.proved and run.stopped == "proved"
        else "feasible"
        if best is not None
        else "infeasible"
    )
    if conflict is not None and not conflict.rules:
        status = "unknown"
    return Plan(
        planner_version=__version__,
        instance=run.instance,
        instance_sha256=instance_sha256(run.instance),
        status=status,
        objective=ObjectiveValue(
            name=name,
            value=value,
            bound=bound,
            gap=relative_gap(value, bound),
            joint_bound=joint,
            joint_gap=relative_gap(value, joint),
        ),
        sites=best.sites if best else None,
        wan=best.wan if best else None,
        layout=best.layout if best else None,
        fabric=best.fabric if best else None,
        transport=factor(run.instance.network),
        placement=best.placement if best else None,
        cost=best.cost if best else None,
        conflict=conflict,
        stopped=run.stopped,
        threads=o.threads or 1,
        seed=o.seed,
        time_limit_seconds=o.time_limit,
    )


def _bound_in_order(best: Trial | None, name: str) -> float | None:
    """Return what is proven of the figure of merit, each decision given those before it."""
    if best is None:
        return None
    if name == "days_to_train":
        return best.layout.certificate.bound
    slack = 0.0
    if (
        best.fabric is not None
        and best.fabric.certificate.objective is not None
        and best.fabric.certificate.bound is not None
    ):
        slack = best.fabric.certificate.objective - best.fabric.certificate.bound
    return best.cost.total_usd - slack


def options_of(
    *, time_limit: float | None, gap: float | None, seed: int, threads: int | None, solver: str | None = None
) -> Options:
    """Check the options of a solve."""
    if time_limit is not None and time_limit <= 0:
        raise InputError(f"time_limit: must be greater than 0 seconds (is {time_limit:g}); leave it out for no limit")
    if gap is not None and not 0 <= gap < 1:
        raise InputError(f"gap: must be from 0 to below 1 (is {gap:g}); 0.01 is one percent")
    if threads is not None and threads < 1:
        raise InputError(f"threads: must be at least 1 (is {threads})")
    return Options(time_limit=time_limit, gap=gap, seed=seed, threads=threads, solver=solver_named(solver))


JOINT_BOUND_SITES = 4  # up to which racks are split over sites


def joint_bound(
    instance: Instance, racks: int, slowdown: float, *, time_limit: float | None, memory: SolutionCache
) -> tuple[float, ParallelStrategy | None] | None:
    """Bound the days to train on some racks at most, and return the layout that comes nearest; None where none fits.

    Racks are split as evenly as can be over as many sites as a plan may have. Nothing takes time between sites, in them
    the network is as fast as its NICs with the transport's own slowdown, ZeRO shards over all replicas, and sites may
    be idle: a split of any other kind, or over fewer sites, has larger all-reduces, no more shards and no less time.
    Where more sites are allowed the racks stand at one, and the NICs take no time either.
    """
    pins = {k: v for k, v in instance.pins.items() if k != "layout.data_parallel_by_site"}
    instance, sites = instance.model_copy(update={"pins": pins}), _most_sites(instance)
    if sites > JOINT_BOUND_SITES:
        return layout.bound_days(_swift(instance), evenly(racks, 1, 1.0), time_limit=time_limit, cache=memory)
    return layout.bound_days(instance, evenly(racks, sites, slowdown), time_limit=time_limit, cache=memory)


def evenly(racks: int, sites: int, slowdown: float) -> LayoutRequest:
    """Ask for a layout on some racks, split over sites as suits it."""
    by_site = {f"{k + 1} of {sites}": racks for k in range(sites)}
    return LayoutRequest(
        racks_by_site=by_site, racks_in_all=racks, pipeline_send_slowdown=slowdown, allreduce_slowdown=slowdown
    )


def _most_sites(instance: Instance) -> int:
    """Return how many sites a plan may have."""
    if instance.grid is None:
        return 1
    asked = [n for n in (instance.grid.rules.max_sites, instance.pins.get("sites.max_sites")) if n is not None]
    return min([len(instance.grid.nodes), *asked])


def _swift(instance: Instance) -> Instance:
    """Return the instance with NICs that take no time."""
    gpu = instance.hardware.accelerator
    if not isinstance(gpu, Accelerator):
        raise TypeError("the instance still holds catalogue names")
    swift = gpu.model_copy(update={"nic_bytes_per_second": gpu.nic_bytes_per_second * 1e9, "nic_latency_seconds": 0.0})
    return instance.model_copy(
        update={"hardware": instance.hardware.model_copy(update={"accelerator": swift, "nic_bytes_per_second": None})}
    )
