"""Small meshes on small clusters at random, and the best of all ways to give each rank a leaf, by counting alone."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence

from planner.cluster.job import Job
from planner.cluster.topology import Topology, TopologySwitch

# Which axes exchange in groups, and in which order they are kept together where no bytes are given.
EXCHANGES = ("tensor", "context", "expert", "data")


def random_mesh(seed: int, max_nodes: int = 8) -> tuple[Topology, Job, list[str]]:
    """Return leaves of one to five nodes under pods, a mesh of several axes in any rank order, and busy nodes."""
    r = random.Random(seed)
    while True:
        axes = r.sample(["pipeline", *EXCHANGES], r.randint(1, 4))
        mesh = {a: r.choice([1, 2, 2, 3, 4]) for a in axes}
        k = r.choice([1, 1, 1, 2, 3])
        nodes = k * math.prod(mesh.values())
        traffic = {a: float(r.randint(1, 9)) for a in axes} if r.random() < 0.4 else {}
        traffic.pop("pipeline", None)
        sizes = [r.randint(1, 5) for _ in range(r.randint(1, 4))]
        if 2 <= nodes <= max_nodes and sum(sizes) >= nodes:
            break
    above = {"root": None, "pod0": "root", "pod1": "root"}
    switches, first = [TopologySwitch(name=name, parent=parent) for name, parent in above.items()], 0
    for i, size in enumerate(sizes):
        names = tuple(f"n{n}" for n in range(first, first + size))
        switches.append(TopologySwitch(name=f"leaf{i}", parent=f"pod{i % 2}", nodes=names))
        first += size
    busy = [f"n{n}" for n in r.sample(range(first), r.randint(0, first - nodes))]
    used = {s.parent for s in switches if s.nodes}
    kept = tuple(s for s in switches if s.nodes or s.name == "root" or s.name in used)
    job = Job(name="j", mesh=mesh, nodes_per_member=k, traffic_bytes_per_step=traffic)
    return Topology(switches=kept), job, busy


def order_of(job: Job) -> list[str]:
    """Return what is kept together in which order: the nodes of a member, then axes by bytes, then as stated."""
    mesh = job.mesh or {}
    size = job.traffic_bytes_per_step
    axes = [a for a in EXCHANGES if mesh.get(a, 1) > 1]
    return (["member"] * (job.nodes_per_member > 1) + sorted(axes, key=lambda a: -size.get(a, 0.0))) or ["data"]


def lines(job: Job, axis: str) -> list[list[int]]:
    """Return the ranks (nodes) of each group of an axis: members that differ in it alone; of a member its nodes."""
    axes, k = list((job.mesh or {}).items()), job.nodes_per_member
    groups: dict[tuple[int, ...], list[int]] = {}
    for member, at in enumerate(itertools.product(*(range(n) for _, n in axes))):
        key = (member,) if axis == "member" else tuple(x for (a, _), x in zip(axes, at, strict=True) if a != axis)
        groups.setdefault(key, []).extend(range(member * k, member * k + k))
    return list(groups.values())


def assignments(free: Sequence[int], nodes: int) -> Iterator[tuple[int, ...]]:
    """Yield the leaf of each rank, in every way that the free nodes allow."""

    def further(left: tuple[int, ...], done: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(done) == nodes:
            yield done
            return
        for leaf, n in enumerate(left):
            if n:
                yield from further((*left[:leaf], n - 1, *left[leaf + 1 :]), (*done, leaf))

    yield from further(tuple(free), ())


def split(groups: Sequence[Sequence[int]], on: Sequence[int]) -> int:
    return sum(len({on[r] for r in g}) > 1 for g in groups)


def pieces(groups: Sequence[Sequence[int]], on: Sequence[int]) -> int:
    """Count the pieces beyond one a group."""
    return sum(len({on[r] for r in g}) - 1 for g in groups)
