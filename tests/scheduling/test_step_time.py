"""Placement by predicted step time: against placements by locality and at random, on the fabric of a solved plan."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_worlds import tree
from mesh_cases import assignments
from stored_plans import stored
from worked_plan import edited_at

import planner
from planner.checks.placement import check_placement
from planner.cluster.job import Job, job_of_plan
from planner.cluster.topology import Topology, TopologySwitch
from planner.errors import InputError
from planner.formats.topologies import plan_topology
from planner.physics.network.clos_fabric import Design
from planner.physics.network.locality import locality
from planner.physics.training.parallel_strategy import strategy_of
from planner.physics.training.step_prediction import Conditions, metrics
from planner.plan.plan import Plan
from planner.scheduling.placement_step_time import Clock, clock_of, fastest
from planner.scheduling.warm_cluster import Cluster

ROOT = Path(__file__).parents[2]
LAYOUT = {"tensor_parallel": 4, "pipeline_parallel": 7, "virtual_stages": 4, "data_parallel": 36}
LAYOUT |= {"recompute": "full", "sequence_parallel": True}


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Solve a cluster whose leaves have eight times as many ports down as up."""
    return stored(ROOT / "instances" / "cluster-1k.json", pins={f"layout.{k}": v for k, v in LAYOUT.items()})


def test_the_faster_of_rings_and_pipelines_within_leaves(plan: Plan) -> None:
    """On this fabric the pipeline exchange that rings within leaves send up takes longer than rings across leaves."""
    topology, job = plan_topology(plan, "plan"), job_of_plan(plan)
    near = planner.place(topology, job)
    fast = planner.place(topology, plan, objective="step-time")
    assert check_placement(topology, job, fast) == []
    clock = clock_of(Cluster(topology), plan, "plan")
    first, second = (clock.seconds(job, x.nodes) for x in (fast, near))
    assert fast.step_seconds == first < second
    assert fast.extra_pieces > near.extra_pieces
    as_dict = planner.place(topology, plan.model_dump(mode="json"), objective="step-time")
    assert (as_dict.nodes, as_dict.step_seconds) == (fast.nodes, fast.step_seconds)
    names, r = sorted(clock.places), random.Random(1)
    at_random = min(clock.seconds(job, tuple(r.sample(names, job.nodes))) for _ in range(50))
    assert fast.step_seconds_bound <= min(first, at_random)


def test_seconds_are_those_of_the_step_model(plan: Plan) -> None:
    assert plan.fabric is not None and plan.layout is not None and plan.placement is not None
    fabric, topology = plan.fabric.sites["cluster"], plan_topology(plan, "plan")
    clock, job = clock_of(Cluster(topology), plan, "plan"), job_of_plan(plan)
    near = planner.place(topology, job)
    places = [[clock.places[near.nodes[rank]] for rank in slot.ranks] for slot in job.slots()]
    x = locality(places, clock.design.block_racks, wrap=clock.wrap)
    leaf = {n: s.name for s in topology.switches for n in s.nodes}
    stages = [near.nodes[s * job.kinds[0].size : (s + 1) * job.kinds[0].size] for s in range(job.kinds[0].count)]
    sends = [(leaf[a], leaf[b]) for s, stage in enumerate(stages) for a, b in zip(stage, stages[s - 6], strict=True)]
    assert x.share_leaving[0] * fabric.leaf_domain_racks == max(Counter(a for a, b in sends if a != b).values())
    assert x.groups_split == near.groups_split
    network = plan.instance.network
    phi = network.transport.slowdown
    slow = Conditions(pipeline_send_slowdown=phi, allreduce_slowdown=phi, transport_slowdown=phi)
    assert clock.at(1.0, 1.0) == metrics(plan.instance, slow, strategy_of(plan.layout)).step_seconds


def test_a_job_without_a_fabric_is_refused(tmp_path: Path, plan: Plan) -> None:
    topology, job = plan_topology(plan, "plan"), Job(name="j", mesh={"data": 4})
    wide = Topology(switches=(TopologySwitch(name="leaf0", nodes=tuple(f"x{i}" for i in range(999))),))
    (tmp_path / "job.json").write_text(job.model_dump_json(exclude_defaults=True))
    for on, given, objective, message in (
        (topology, tmp_path / "job.json", "step-time", r"job\.json: --objective step-time needs a plan"),
        (topology, job, "step-time", "job: --objective step-time needs a plan"),
        (topology, plan.replaced(fabric=None), "step-time", "has 0"),
        (topology, plan, "fast", "objective: must be one of locality, step-time"),
        (wide, plan, "step-time", r"has 999 nodes.*give the topology of the plan's fabric"),
    ):
        with pytest.raises(InputError, match=message):
            planner.place(on, given, objective=objective)


def test_groups_of_another_size_are_placed_by_count(plan: Plan) -> None:
    """A layout that states racks at a site without a fabric is timed: no step is below one without crossings."""
    at_two = edited_at(plan, "layout.racks_per_stage_by_site", {"cluster": 17, "other": 1})
    placed = planner.place(plan_topology(plan, "plan"), at_two, objective="step-time")
    assert {len(group.nodes) for group in placed.groups} == {17, 1}
    assert placed.step_seconds >= placed.step_seconds_bound > 0


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
    for on in assignments([len(leaf.nodes) for leaf in cluster.leaves], job.nodes):
        nodes = [iter(leaf.nodes) for leaf in cluster.leaves]
        yield tuple(next(nodes[i]) for i in on)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(
    ("stages", "replicas", "leaf", "leaves"), [(2, 3, 3, 3), (3, 2, 4, 2), (2, 2, 2, 4), (3, 3, 5, 2), (4, 2, 4, 2)]
)
def test_bound_and_best_of_all(plan: Plan, stages: int, replicas: int, leaf: int, leaves: int, wrap: bool) -> None:
    cluster = Cluster(tree([leaf] * leaves, 2))
    clock = small_clock(plan, cluster, leaf=leaf, per_pod=2, wrap=wrap)
    job = Job(name="j", mesh={"pipeline": stages, "data": replicas})
    placed = fastest(cluster, clock, job, busy=[])
    best = min(clock.seconds(job, nodes) for nodes in all_placements(cluster, job))
    assert placed.step_seconds is not None and placed.step_seconds_bound is not None
    assert placed.step_seconds_bound <= best <= placed.step_seconds
    assert (placed.certificate.status == "optimal") == (placed.step_seconds == placed.step_seconds_bound)
