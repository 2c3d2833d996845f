"""The library's calls on clusters that exist: place a job, simulate an exchange."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.argument_ranges import bounded
from planner.errors import InputError

if TYPE_CHECKING:
    from planner.cluster.job import Job
    from planner.cluster.placement import Placement
    from planner.cluster.topology import Topology
    from planner.plan.plan import Plan
    from planner.scheduling.warm_cluster import Cluster
    from planner.simulation.simulate import Simulation
    from planner.simulation.simulated_routes import Fabric


@bounded
def place(
    topology: "Cluster | Topology | Mapping[str, Any] | str | Path",
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
    gpus_per_node: int | None = None,
) -> "Placement":
    """Place one job on a cluster's free nodes in a library call: fewest split groups, then pieces, then across pods.

    Parameters
    ----------
    topology
        A topology's file, a Topology or its content as a dict, `{"switches": [{"name": "leaf0", "parent": "spine",
        "nodes": ["n0", "n1"]}, {"name": "spine"}]}`, or a warm `planner.Cluster`, which several threads may share.
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
    gpus_per_node
        GPUs of a node, where the job is a plan; needed where a rack has more than a host.

    Returns
    -------
    Placement
        Without nodes, and with the reason in numbers, where the job is larger than what is free.
    """
    if objective not in ("locality", "step-time"):
        raise InputError(f"objective: must be one of locality, step-time (is {objective!r})")
    from planner.cluster.job import read_job
    from planner.scheduling.placement_step_time import place_by_time
    from planner.scheduling.warm_cluster import opened

    cluster, taken, _ = opened(topology, busy, state, only)
    options: dict[str, Any] = {"busy": taken, "time_limit": time_limit, "seed": seed, "threads": threads}
    options["fragmentation"] = fragmentation
    if objective == "step-time":
        if order != "any":
            raise InputError("objective, order: step-time ranks any order alone; take locality, or leave order out")
        return place_by_time(cluster, job, **options)
    return cluster.place(read_job(job, gpus_per_node), order=order, **options)


@bounded
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
    progress: Callable[[str], None] | None = None,
) -> "Simulation":
    """Simulate an exchange over a fabric's cables in a library call, with queues and pauses at its switches.

    Parameters
    ----------
    network
        A plan, or a fabric (`{"hosts": 1024, "ports_per_switch": 16, "tiers": 3}`): a path, a dict or the object.
    pattern
        permutation (each host sends to another), p2p (each stage to the next), allreduce (one step of each group's
        ring), alltoall (inside each group), or the path of a CSV file with the header src,dst,bytes. In a plan, p2p
        and allreduce are those of its placement unless `group` is given. Several run at once by plus signs, as
        p2p+allreduce, then with all steps of the rings.
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
        Hosts to simulate (GPUs, in a plan); a fabric's own number, or one block of indices of a plan's site where not
        given.
    bytes_per_host
        What one host sends in all (a ring's whole buffer in an all-reduce); 300 MB, or what a plan's layout sends
        where not given.
    group
        Hosts of a group (of a stage, in p2p): neighbours; 16 where not given and no placement has groups.
    progress
        Takes a line now and then.
    """
    from planner.simulation.simulate import simulate as run
    from planner.simulation.simulate import simulation_request

    request = simulation_request(
        network, pattern, transport, site=site, failed=failed_links, hosts=hosts, size=bytes_per_host, group=group
    )
    return run(request, range(seeds), progress)
