"""Measure placements of the planner, of a greedy leaf by leaf and of nodes in order; then latency on a warm cluster.

Run `scripts/bench/bench_placement.py`; with `--controller` a slurmctld of its own (Debian's packages) with the same
topology and the same nodes drained is asked too: for one job, its ranks in node order, and for one job a group.
"""

import argparse
import gc
import random
import resource
import time
from collections.abc import Callable, Sequence

from planner.cluster.hostlists import natural
from planner.cluster.job import GroupKind, Job
from planner.cluster.topology import Topology, TopologySwitch
from planner.scheduling.warm_cluster import Cluster

LEAF, PER_POD = 32, 16


def cluster_of(nodes: int) -> Topology:
    """Return leaves of 32 nodes, sixteen to a pod."""
    leaves = range(nodes // LEAF)
    switches = [
        TopologySwitch(name="core"),
        *(TopologySwitch(name=f"pod{p}", parent="core") for p in range(-(-len(leaves) // PER_POD))),
    ]
    for i in leaves:
        names = tuple(f"n{n:05d}" for n in range(i * LEAF, (i + 1) * LEAF))
        switches.append(TopologySwitch(name=f"leaf{i:03d}", parent=f"pod{i // PER_POD}", nodes=names))
    return Topology(switches=tuple(switches))


def in_node_order(cluster: Cluster, job: Job) -> list[str]:
    """Return the first free nodes: what a list sorted by name gives."""
    busy = cluster.busy
    return [n for leaf in cluster.leaves for n in leaf.nodes if n not in busy][: job.nodes]


def leaf_by_leaf(cluster: Cluster, job: Job) -> list[str]:
    """Return the nodes of the roomiest leaves first: fewest leaves, ranks in order."""
    busy = cluster.busy
    free = [[n for n in leaf.nodes if n not in busy] for leaf in cluster.leaves]
    return [n for leaf in sorted(free, key=len, reverse=True) for n in leaf][: job.nodes]


def figures(cluster: Cluster, job: Job, nodes: Sequence[str]) -> tuple[int, int, int]:
    """Count split groups, extra pieces and groups across pods of any rank order."""
    groups = [{cluster.leaf_of[nodes[r]] for r in slot.ranks} for slot in job.slots()]
    across = sum(len({cluster.leaves[i].path[:1] for i in g}) > 1 for g in groups)
    return sum(len(g) > 1 for g in groups), sum(len(g) - 1 for g in groups), across


def busy_nodes(cluster: Cluster, share: float, seed: int) -> list[str]:
    """Return a share of the nodes at random."""
    return random.Random(seed).sample(sorted(cluster.leaf_of), round(share * len(cluster.leaf_of)))


def timed(call: Callable[[], Sequence[str]]) -> tuple[Sequence[str], float]:
    """Return what a call gives, and its seconds."""
    started = time.perf_counter()
    found = call()
    return found, time.perf_counter() - started


def compare(nodes: int, share: float, kinds: Sequence[tuple[int, float]], limit: float, *, controller: bool) -> None:
    """Print a row for each way to choose nodes and ranks."""
    cluster = Cluster(cluster_of(nodes))
    cluster.set_busy(busy_nodes(cluster, share, 1))
    free = nodes - len(cluster.busy)
    job = Job(
        name="bench",
        groups=tuple(
            GroupKind(name=f"g{size}", size=size, count=max(1, int(free * part / size))) for size, part in kinds
        ),
    )

    started = time.perf_counter()
    placed = cluster.place(job, time_limit=limit)
    seconds = time.perf_counter() - started
    sizes = ", ".join(f"{k.count} x {k.size}" for k in job.groups)
    print(f"\n{nodes:,} nodes, {share:.0%} busy, groups {sizes} on {job.nodes:,} of {free:,} free nodes")
    print(f"{'':24}{'split':>7}{'extra':>7}{'across':>7}{'seconds':>9}")
    bounds = "/".join(str(f.bound) for f in placed.figures[:3])
    row("planner", figures(cluster, job, placed.nodes), seconds, f"bounds {bounds}, {placed.certificate.status}")
    by_name, seconds = timed(lambda: cluster.place(job, order="name").nodes)
    row("planner, by name", figures(cluster, job, by_name), seconds, "ranks in the order of node names")
    rivals: dict[str, Callable[[], Sequence[str]]] = {
        "its list, by name": lambda: sorted(placed.nodes, key=natural),
        "greedy, roomiest leaf": lambda: leaf_by_leaf(cluster, job),
        "node order": lambda: in_node_order(cluster, job),
    }
    for name, call in rivals.items():
        found, took = timed(call)
        row(name, figures(cluster, job, found), took, "")
    if controller:
        from slurm_choice import choices

        for name, (chosen, took) in choices(cluster, job).items():
            row(name, figures(cluster, job, chosen), took, "")


def row(name: str, found: tuple[int, int, int], seconds: float, note: str) -> None:
    """Print one row."""
    print(f"{name:24}" + "".join(f"{n:>7,}" for n in found) + f"{seconds:>9.3f}  {note}")


def latency(nodes: int, calls: int, limit: float) -> None:
    """Print percentiles of calls on a warm cluster whose states change between them."""
    cluster = Cluster(cluster_of(nodes))
    r = random.Random(0)
    cluster.set_busy(busy_nodes(cluster, 0.25, 0))
    seconds, cpu, proven = [], [], 0
    for _ in range(calls):
        cluster.set_free(r.sample(sorted(cluster.busy), nodes // 64))
        cluster.set_busy(r.sample(sorted(cluster.leaf_of), nodes // 64))
        share, data = r.choice([0.02, 0.1, 0.5, 0.9]), r.choice([4, 8, 13, 16, 24])
        free = nodes - len(cluster.busy)
        job = Job(name="j", mesh={"pipeline": max(1, int(free * share) // data), "data": data})
        started = time.perf_counter(), time.process_time()
        placed = cluster.place(job, time_limit=limit)
        seconds.append(time.perf_counter() - started[0])
        cpu.append(time.process_time() - started[1])
        proven += placed.certificate.status == "optimal"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    times = f"CPU {percentiles(cpu)}; wall {percentiles(seconds)}"
    print(f"{nodes:>7,} nodes: {times}; {proven} of {calls} proven; {memory:.0f} MB")


def percentiles(seconds: Sequence[float]) -> str:
    """Return the middle and the slow end in milliseconds."""
    ordered = sorted(seconds)
    return ", ".join(
        f"p{100 * q:.0f} {1e3 * ordered[min(int(q * len(ordered)), len(ordered) - 1)]:.1f} ms" for q in (0.5, 0.9, 0.99)
    )


def main() -> None:
    """Compare, then measure latency."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--controller", action="store_true", help="Ask a slurmctld of one's own too.")
    parser.add_argument("--only", type=int, help="Clusters of so many nodes alone.")
    parser.add_argument("--limit", type=float, default=5.0, help="Seconds for each proof of the comparison.")
    parser.add_argument("--calls", type=int, default=200, help="Calls of the latency measurement.")
    given = parser.parse_args()
    full = [(16, 0.2475), (13, 0.2475), (8, 0.2475), (4, 0.2475)]
    mixed = [(16, 0.2), (13, 0.2), (8, 0.2), (4, 0.2)]
    for nodes, share, kinds in [
        (1024, 0.05, [(13, 1.0)]),
        (1024, 0.25, [(13, 0.77)]),
        (1024, 0.25, [(13, 0.9)]),
        (8192, 0.25, mixed),
        (23200, 0.25, mixed),
        (8192, 0.25, full),
        (23200, 0.25, full),
    ]:
        if given.only in (None, nodes):
            compare(nodes, share, kinds, given.limit, controller=given.controller)
    # As a long-running service does after loading, so that the garbage collector skips the solver's many modules.
    Cluster.warm_up()
    gc.freeze()
    print("\nlatency of a warm cluster, 25 % busy, states changing between calls")
    for nodes, limit in ((1024, 0.03), (16384, 0.3)):
        if given.only in (None, nodes):
            latency(nodes, given.calls, limit)


if __name__ == "__main__":
    main()
