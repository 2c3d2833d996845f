"""The library's `place`: which nodes of a cluster carry which ranks of one job."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.cluster import Cluster
    from planner.job import Job
    from planner.placement import Placement
    from planner.plan import Plan
    from planner.topology import Topology


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

    Returns
    -------
    Placement
        Without nodes, and with the reason in numbers, where the job is larger than what is free.

    Raises
    ------
    PlannerError
        The input cannot be used; the message says where and what to do.
    """
    from planner.job import read_job

    cluster, taken = opened(topology, busy, state)
    return cluster.place(read_job(job), busy=taken, time_limit=time_limit, seed=seed, threads=threads, fragmentation=fragmentation)


def opened(topology: "Cluster | Topology | str | Path", busy: Iterable[str] | str, state: str | Path | None) -> "tuple[Cluster, list[str]]":
    """Return the cluster, and the nodes that are not to be used beside its own busy ones."""
    from planner.cluster import Cluster
    from planner.formats.read import read_topology

    if isinstance(topology, (str, Path)):
        topology = read_topology(Path(topology))
    cluster = topology if isinstance(topology, Cluster) else Cluster(topology)
    taken = hosts(busy, "busy") if isinstance(busy, str) else list(busy)
    if state is not None:
        from planner.formats.states import read_states, states_on

        taken.extend(sorted(states_on(cluster.topology, read_states(state), str(state)).taken))
    return cluster, taken


def hosts(text: str, what: str) -> list[str]:
    """Read a hostlist, or say what is wrong with it."""
    from planner.errors import InputError
    from planner.physics.hostlist import expand

    try:
        return expand(text)
    except ValueError as error:
        raise InputError(f"{what}: {error}") from None
