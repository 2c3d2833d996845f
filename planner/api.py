"""The library: solve, check, evaluate, explain, place, sweep, simulate and limits; a call loads what it needs."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.cluster.job import Job
    from planner.cluster.placement import Placement
    from planner.cluster.topology import Topology
    from planner.instance.instance import Instance
    from planner.plan.certificate import Violation
    from planner.plan.plan import Plan
    from planner.planning.evaluate import Evaluation
    from planner.planning.explain import Explanation
    from planner.planning.utilisation import LimitPoint
    from planner.scheduling.session import Cluster
    from planner.simulation.fat_tree import Fabric
    from planner.simulation.run import Simulation
    from planner.sweeps.rows import Row


def check(plan: "Plan") -> "list[Violation]":
    """Return each violated rule by name with both of its sides in numbers; nothing where all hold."""
    from planner.checks.registry import check as verify

    return verify(plan)


def evaluate(
    instance: "Instance | Mapping[str, Any] | str | Path", layout: Mapping[str, Any] | None = None
) -> "Evaluation":
    """Predict step time, memory and their breakdown for a layout given in full.

    Parameters
    ----------
    instance
        A path to a JSON file, its content as a dict, or an Instance; its own pins count too.
    layout
        The layout's choices by name, as in the plan's `layout` section and in pins (`tensor_parallel`, ...).
        `tensor_parallel`, `pipeline_parallel` and `data_parallel` must be there; micro-batches come from
        `limits.max_batch_tokens` where they are not given, and the rest has the plainest value.

    Returns
    -------
    Evaluation
        The metrics, with the layout, the memory of every stage, the constants behind each part, and what stops it
        from running.

    Raises
    ------
    PlannerError
        The input cannot be used, or the layout is not complete; the message says where and what to do.
    """
    from planner.instance.references import refuse_pools
    from planner.planning.evaluate import evaluated
    from planner.planning.load import load_instance

    pins = {f"layout.{k}": v for k, v in (layout or {}).items()}
    return evaluated(refuse_pools(load_instance(instance, pins=pins, searched=False)))


def explain(
    instance: "Instance | Mapping[str, Any] | str | Path",
    *,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    pins: Mapping[str, Any] | None = None,
    near: int = 0,
    within: float = 0.05,
) -> "Explanation":
    """Solve an instance and explain the answer.

    Parameters
    ----------
    instance
        A path to a JSON file, its content as a dict, or an Instance.
    time_limit
        Seconds for the plan, and again for each alternative that it is compared with.
    seed, threads, pins
        As in `solve`.
    near, within
        How many of the best splits over different sets of sites to list, of those within this share of the best.

    Raises
    ------
    PlannerError
        The input cannot be used; the message says where and what to do.
    """
    from planner.instance.references import refuse_pools
    from planner.planning.explain import explained
    from planner.planning.load import load_instance
    from planner.planning.solve import options_of

    request = refuse_pools(load_instance(instance, pins=pins))
    return explained(
        request, options_of(time_limit=time_limit, gap=None, seed=seed, threads=threads), near=near, within=within
    )


def limits(
    instance: "Instance | Mapping[str, Any] | str | Path",
    flop: Sequence[float],
    *,
    days: float = 90.0,
    tolerance: float = 0.01,
    time_limit: float | None = None,
    executor: Executor | None = None,
) -> "Iterator[LimitPoint]":
    """Yield, for each compute in turn, the best utilisation with which the law's model is trained in the days given.

    Parameters
    ----------
    instance
        The accelerator, the rack, the precision and `workload.choose`: the laws and the family of models. The number
        of racks is free.
    flop
        Training compute of each point, 6·N·D.
    days
        Duration of every run.
    tolerance
        Relative width of the bracket around the smallest number of GPUs.
    time_limit
        Seconds of one layout search; a point whose search is cut short is no longer proven.
    executor
        Where points are computed at once; None: here, one after another.

    Raises
    ------
    PlannerError
        The input cannot be used; the message says where and what to do.
    """
    from planner.errors import InputError
    from planner.instance.references import refuse_pools
    from planner.planning.load import load_instance
    from planner.planning.utilisation import point

    request = refuse_pools(load_instance(instance, searched=False))
    if days <= 0:
        raise InputError(f"days: must be greater than 0 (is {days:g})")
    if executor is None:
        for c in flop:
            yield point(request, c, days=days, tolerance=tolerance, time_limit=time_limit)
        return
    waiting = [executor.submit(point, request, c, days=days, tolerance=tolerance, time_limit=time_limit) for c in flop]
    for answer in waiting:
        yield answer.result()


OBJECTIVES = ("locality", "step-time")


def place(
    topology: "Cluster | Topology | str | Path",
    job: "Job | Plan | Mapping[str, Any] | str | Path",
    *,
    busy: Iterable[str] | str = (),
    state: str | Path | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    fragmentation: bool = False,
    objective: str = "locality",
    order: str = "any",
    only: Iterable[str] | str | None = None,
) -> "Placement":
    """Place one job on a cluster's free nodes: fewest split groups, then fewest pieces, then fewest across pods.

    Parameters
    ----------
    topology
        A topology's file, a Topology, or a warm `planner.cluster.Cluster`, which several threads may share.
    job
        A job's or a plan's file, the content of a job's file as a dict, a Job or a Plan.
    busy
        Names of nodes that are taken or broken, or a hostlist of them.
    state
        A file of node states; nodes that are not free are left out.
    time_limit
        Seconds for the proofs, 10 unless given. A placement comes back in any case, with the gap that is left.
    seed, threads
        Of the solver, where one is needed; the same call gives the same placement where the proof is done.
    fragmentation
        Search the last level of the objective too, the leaves left part-free; otherwise best fit decides it.
    objective
        "locality", or "step-time": the predicted step of a plan's job on the plan's fabric.
    order
        "any", or "name" where the launcher numbers ranks by node name: nodes are then chosen for that order.
    only
        Names of the nodes that the job may use, or a hostlist of them: those of an allocation.

    Returns
    -------
    Placement
        Without nodes, and with the reason in numbers, where the job is larger than what is free.

    Raises
    ------
    PlannerError
        The input cannot be used; the message says where and what to do.
    """
    from planner.cluster.job import read_job
    from planner.errors import InputError

    if objective not in OBJECTIVES:
        raise InputError(f"objective: must be one of {', '.join(OBJECTIVES)} (is {objective!r})")
    from planner.scheduling.session import opened

    cluster, taken = opened(topology, busy, state, only)
    if objective == "step-time":
        if order != "any":
            raise InputError("objective, order: step-time ranks any order alone; take locality, or leave order out")
        from planner.plan.plan import Plan
        from planner.scheduling.step_time import place_by_time

        given = job if isinstance(job, (str, Path, Plan)) else None
        return place_by_time(
            cluster, given, busy=taken, time_limit=time_limit, seed=seed, threads=threads, fragmentation=fragmentation
        )
    return cluster.place(
        read_job(job),
        busy=taken,
        time_limit=time_limit,
        seed=seed,
        threads=threads,
        fragmentation=fragmentation,
        order=order,
    )


def simulate(
    network: "Plan | Fabric | Mapping[str, Any] | str | Path",
    *,
    pattern: str = "permutation",
    transport: str = "ecmp",
    seeds: int = 1,
    site: str | None = None,
    failed_links: int = 0,
    hosts: int | None = None,
    bytes_per_host: float | None = None,
    group: int | None = None,
) -> "Simulation":
    """Run an exchange as max-min fair flows over every cable and return the completion times.

    Parameters
    ----------
    network
        A plan, or a fabric (`{"hosts": 1024, "ports_per_switch": 16, "tiers": 3}`): a path, a dict or the object.
    pattern
        permutation (each host sends to another), p2p (each stage to the next), allreduce (one step of each group's
        ring), alltoall (inside each group), or the path of a CSV file with the header src,dst,bytes. In a plan, p2p
        and allreduce are those of its placement unless `group` is given.
    transport
        ecmp (one hashed path a flow), spray (even over all equal-cost next hops), adaptive (the least loaded path for
        each of 8 flowlets).
    seeds
        Runs, with the seeds 0, 1, …: other hashes, permutations and failed links.
    site
        Of a plan; its largest where not given.
    failed_links
        Cables between switches that are out, drawn anew for each seed.
    hosts
        Hosts to simulate; a fabric's own number, or one block of indices of a plan's site where not given.
    bytes_per_host
        What one host sends in all (a ring's whole buffer in an all-reduce); 300 MB, or what a plan's layout sends
        where not given.
    group
        Hosts of a group (of a stage, in p2p): neighbours.

    Raises
    ------
    PlannerError
        The input cannot be used; the message says where and what to do.
    """
    from planner.errors import InputError
    from planner.simulation.request import PATTERNS, Options, simulation_request, transport_named
    from planner.simulation.run import simulate as run

    minima = {"--seeds": (seeds, 1), "--failed-links": (failed_links, 0), "--hosts": (hosts, 2), "--group": (group, 1)}
    for option, (value, limit) in minima.items():
        if value is not None and value < limit:
            raise InputError(f"{option} {value}: must be at least {limit}; give another number")
    if bytes_per_host is not None and not 0 < bytes_per_host < float("inf"):
        raise InputError(f"--bytes {bytes_per_host:g}: must be a finite number greater than 0; give another")
    if pattern not in PATTERNS and not Path(pattern).suffix:
        known = f"{', '.join(PATTERNS)}, or a CSV file with the header src,dst,bytes"
        raise InputError(f"--pattern {pattern}: must be one of {known}; choose one")
    options = Options(
        pattern=pattern,
        transport=transport_named(transport),
        site=site,
        failed=failed_links,
        hosts=hosts,
        size=bytes_per_host,
        group=group,
    )
    return run(simulation_request(network, options), range(seeds))


def solve(
    instance: "Instance | Mapping[str, Any] | str | Path",
    *,
    time_limit: float | None = None,
    gap: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    solver: str | None = None,
    pins: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
) -> "Plan":
    """Take every decision that the instance asks for and return the plan, proofs and bill included.

    Parameters
    ----------
    instance
        A path to a JSON file, its content as a dict, or an Instance.
    time_limit
        Seconds after which the best plan so far is returned, with its gap.
    gap
        Relative gap within which a decision counts as done.
    seed, threads
        Of the solvers; the same instance, seed and threads give the same plan.
    solver
        "highs" or "cpsat" for the reasons why no sites exist; "highs" leaves out the second proof of the sites.
    pins
        Decisions fixed by hand, by dotted path, over those of the instance.
    progress
        Called with a line of text as the search moves on.

    Raises
    ------
    PlannerError
        The input cannot be used; the message says where and what to do. An infeasible instance is a plan, not an error.
    """
    from planner.planning.load import load_instance
    from planner.planning.solve import options_of, solve_instance

    options = options_of(time_limit=time_limit, gap=gap, seed=seed, threads=threads, solver=solver)
    return solve_instance(load_instance(instance, pins=pins), options, progress or _silent)


def _silent(_: str) -> None:
    """Ignore a line of progress."""


def sweep(
    instance: "Instance | Mapping[str, Any] | str | Path",
    vary: Mapping[str, str | Sequence[Any]],
    *,
    pairs: Sequence[Mapping[str, Any]] = (),
    executor: Executor | None = None,
    workers: int | None = None,
    shard: tuple[int, int] | None = None,
    finished: Collection[str] = (),
    time_limit: float | None = None,
    gap: float | None = None,
    seed: int = 0,
    plans: str | Path | None = None,
) -> "Iterator[Row]":
    """Solve an instance at every point of a grid; yield a row a point, as it finishes.

    Bad paths and values are named before anything runs; an infeasible or failed point is a row with its reason.

    Parameters
    ----------
    instance
        A path to a JSON file, its content as a dict, or an Instance.
    vary
        Values by dotted path of the instance or of a pin: a sequence, or a text such as "20e9:200e9:10e9".
    pairs
        Points taken together, as one more axis: values by path.
    executor
        Where points are solved; it is left open. None: processes of this machine, ended when the iterator is.
    workers
        Processes where there is no executor; None: the cores.
    shard
        (i, n): only the i-th of n parts, counted from 1.
    finished
        Keys of rows at hand: their points are left out.
    time_limit, gap, seed
        Of every solve, as in `solve`.
    plans
        A folder for the complete plans, named by place and key.

    Raises
    ------
    PlannerError
        The instance or a point of the grid cannot be used.
    """
    from planner.sweeps.axes import points_of
    from planner.sweeps.run import SweepOptions, rows_of, tasks_for

    points = points_of(vary, [dict(p) for p in pairs])
    folder = None if plans is None else Path(plans)
    options = SweepOptions(shard=shard, time_limit=time_limit, gap=gap, seed=seed, plans=folder)
    return rows_of(tasks_for(instance, points, options), options, finished=finished, executor=executor, workers=workers)
