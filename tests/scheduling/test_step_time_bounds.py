"""The bound of the step-time objective: below the best of all placements on small clusters."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_worlds import tree
from stored_plans import stored
from tiers import slow

from planner.checks.placement import expected_groups
from planner.cluster.job import Job
from planner.formats.topology_files import plan_topology
from planner.physics.network.topology import Design
from planner.physics.network.transport import min_crossings
from planner.plan.plan import Plan
from planner.scheduling.session import Cluster
from planner.scheduling.step_time import Clock, clock_of, fastest

ROOT = Path(__file__).parents[2]
LAYOUT = {
    "tensor_parallel": 4,
    "pipeline_parallel": 7,
    "virtual_stages": 4,
    "data_parallel": 36,
    "recompute": "full",
    "sequence_parallel": True,
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Solve a cluster; its layout is what the small clusters are timed by."""
    return stored(ROOT / "instances" / "cluster-1k.json", pins={f"layout.{k}": v for k, v in LAYOUT.items()})


def small_clock(plan: Plan, cluster: Cluster, *, leaf: int, per_pod: int, wrap: bool) -> Clock:
    """Time jobs on leaves of so many nodes, three times as many ports down as up at each tier."""
    whole = clock_of(Cluster(plan_topology(plan, "plan")), plan, "plan")
    design = Design(
        ports=64, rails=8, racks=len(cluster.leaf_of), leaf_down=leaf, leaf_up=1, leaf_bundle=1, rails_per_pod=8,
        domains_per_pod=per_pod, spine_up=1, spine_bundle=1,
    )  # fmt: skip
    places = {n: i * leaf + at for i, x in enumerate(cluster.leaves) for at, n in enumerate(x.nodes)}
    return replace(whole, design=design, places=places, wrap=wrap)


def all_placements(cluster: Cluster, job: Job) -> Iterator[tuple[str, ...]]:
    """Yield a rank order for every way to spread the ranks over the leaves."""
    for on in itertools.product(range(len(cluster.leaves)), repeat=job.nodes):
        if all(n <= len(cluster.leaves[i].nodes) for i, n in Counter(on).items()):
            nodes = [iter(leaf.nodes) for leaf in cluster.leaves]
            yield tuple(next(nodes[i]) for i in on)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(
    ("stages", "replicas", "leaf", "leaves"),
    [(2, 3, 3, 3), (3, 2, 4, 2), (2, 2, 2, 4), (3, 3, 5, 2), (4, 2, 4, 2), *slow((2, 4, 3, 3))],
)
def test_bound_and_best_of_all(plan: Plan, stages: int, replicas: int, leaf: int, leaves: int, wrap: bool) -> None:
    """No rank order is faster than the bound; the placement is the best of all, or its certificate leaves that open."""
    cluster = Cluster(tree([leaf] * leaves, 2))
    clock, job = (
        small_clock(plan, cluster, leaf=leaf, per_pod=2, wrap=wrap),
        Job(name="j", mesh={"pipeline": stages, "data": replicas}),
    )
    placed = fastest(cluster, clock, job, busy=[])
    best = min(clock.seconds(clock.crossings(job, nodes)) for nodes in all_placements(cluster, job))
    assert placed.step_seconds is not None and placed.step_seconds_bound is not None
    assert placed.step_seconds_bound <= best <= placed.step_seconds
    assert (placed.certificate.status == "optimal") == (placed.step_seconds == placed.step_seconds_bound)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(
    ("stages", "replicas", "rooms"),
    [(2, 3, (3, 3)), (3, 2, (4, 2)), (3, 3, (5, 4)), (2, 4, (5, 3)), (1, 4, (2, 2)), (4, 1, (3, 3)), (2, 2, (4,))],
)
def test_no_spread_crosses_less(stages: int, replicas: int, rooms: tuple[int, ...], wrap: bool) -> None:
    """Every way to spread a mesh over blocks is at least as bad, in both, as one of the pairs."""
    pairs = min_crossings(stages, replicas, max_free=max(rooms), blocks=len(rooms), wrap=wrap)
    groups = list(expected_groups(Job(name="j", mesh={"pipeline": stages, "data": replicas})).values())
    for on in itertools.product(range(len(rooms)), repeat=stages * replicas):
        if any(n > rooms[i] for i, n in Counter(on).items()):
            continue
        flows = [(on[a[d]], on[b[d]]) for a, b in itertools.pairwise(groups) for d in range(replicas)]
        flows += [(on[groups[-1][d]], on[groups[0][d]]) for d in range(replicas) if wrap and stages > 1]
        leaving, entering = Counter(a for a, b in flows if a != b), Counter(b for a, b in flows if a != b)
        worst = max([*leaving.values(), *entering.values()], default=0)
        leaving = Counter(i for g in groups for i in {on[r] for r in g} if len({on[r] for r in g}) > 1)
        assert any(worst >= b and max(leaving.values(), default=0) >= a for b, a in pairs), (on, pairs)
