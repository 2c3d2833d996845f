"""The library's `simulate`: flows on a network's real wiring, and how far the transport stays from the ideal."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.plan import Plan
    from planner.simulation.fabric import Fabric
    from planner.simulation.result import Simulation


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
        permutation (each host sends to another), p2p (each stage to the next), allreduce (one step of each group's ring),
        alltoall (inside each group), or the path of a CSV file with the header src,dst,bytes. In a plan, p2p and
        allreduce are those of its placement unless `group` is given.
    transport
        ecmp (one hashed path a flow), spray (even over all equal-cost next hops), adaptive (the least loaded path for each of 8 flowlets).
    seeds
        Runs, with the seeds 0, 1, …: other hashes, permutations and failed links.
    site
        Of a plan; its largest where not given.
    failed_links
        Cables between switches that are out, drawn anew for each seed.
    hosts
        Hosts to simulate; a fabric's own number, or one block of indices of a plan's site where not given.
    bytes_per_host
        What one host sends in all (a ring's whole buffer in an all-reduce); 300 MB, or what a plan's layout sends where not given.
    group
        Hosts of a group (of a stage, in p2p): neighbours.

    Raises
    ------
    PlannerError
        The input cannot be used; the message says where and what to do.
    """
    from planner.errors import InputError
    from planner.simulation.question import PATTERNS, ask, transport_named
    from planner.simulation.run import simulate as run

    least = {"--seeds": (seeds, 1), "--failed-links": (failed_links, 0), "--hosts": (hosts, 2), "--group": (group, 1)}
    for option, (value, limit) in least.items():
        if value is not None and value < limit:
            raise InputError(f"{option} {value}: must be at least {limit}; give another number")
    if bytes_per_host is not None and not 0 < bytes_per_host < float("inf"):
        raise InputError(f"--bytes {bytes_per_host:g}: must be a finite number greater than 0; give another")
    if pattern not in PATTERNS and not Path(pattern).suffix:
        raise InputError(f"--pattern {pattern}: must be one of {', '.join(PATTERNS)}, or a CSV file with the header src,dst,bytes; choose one")
    question = ask(
        network, pattern=pattern, transport=transport_named(transport), site=site, failed=failed_links, hosts=hosts, size=bytes_per_host, group=group
    )
    return run(question, range(seeds))
