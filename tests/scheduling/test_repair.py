"""The life of a cluster: every answer against all answers there are, and replayed by the checker."""

import itertools
import random

import pytest
from cluster_worlds import some_busy, tree

from planner.checks.cluster import check_placement
from planner.cluster.job import GroupKind, Job
from planner.cluster.placement import Placement
from planner.cluster.results import Running
from planner.errors import InputError
from planner.scheduling.admission import defragment, place_queue, preempt
from planner.scheduling.repair import replace, resize
from planner.scheduling.session import Cluster


def world(seed: int) -> tuple[Cluster, Job, Placement]:
    """Return a cluster with one job that runs on it, its nodes busy."""
    r = random.Random(seed)
    topology = tree([r.randint(4, 9) for _ in range(r.randint(3, 6))], 2)
    job = Job(name="run", mesh={"pipeline": r.randint(1, 3), "data": r.randint(2, 4)})
    cluster = Cluster(topology, busy=some_busy(topology, 0.1, seed))
    placed = cluster.place(job)
    cluster.set_busy(placed.nodes)
    return cluster, job, placed


def names_of_others(cluster: Cluster, placed: Placement) -> list[str]:
    return sorted(cluster.busy.difference(placed.nodes))


@pytest.mark.parametrize("seed", range(40))
def test_replacing_moves_the_failed_ranks_alone(seed: int) -> None:
    """As many ranks move as nodes failed, to nodes that were free, and the checker replays what comes out."""
    cluster, job, placed = world(seed)
    failed = random.Random(seed).sample(placed.nodes, min(2, len(placed.nodes)))
    found = replace(cluster, job, placed, failed)
    if not found.placement.nodes:
        assert "are missing >" in found.placement.reason
        return
    assert sorted(m.old or "" for m in found.moves) == sorted(failed)
    assert all(m.new not in cluster.busy for m in found.moves)
    assert [n for n, old in zip(found.placement.nodes, placed.nodes, strict=True) if old not in failed] == [
        n for n in placed.nodes if n not in failed
    ]
    busy = [*names_of_others(cluster, placed), *failed]
    assert check_placement(cluster.topology, job, found.placement, busy=busy) == []


def test_a_broken_segment_moves_whole() -> None:
    """Of a segment of two with one node failed both ranks move: it must stay in one block."""
    cluster = Cluster(tree([8], 1, block=4))
    job = Job(name="j", mesh={"data": 2}, nodes_per_member=2, segment_nodes=2)
    placed = cluster.place(job)
    found = replace(cluster, job, placed, [placed.nodes[0]])
    assert [m.rank for m in found.moves] == [0, 1]
    assert check_placement(cluster.topology, job, found.placement, busy=[placed.nodes[0]]) == []


@pytest.mark.parametrize("seed", range(40))
def test_growing_and_shrinking_keep_the_others(seed: int) -> None:
    """A data axis longer or shorter by one moves nobody who stays."""
    cluster, job, placed = world(seed)
    mesh = job.mesh or {}
    for data in (mesh["data"] + 1, mesh["data"] - 1):
        new = Job(name="run", mesh={**mesh, "data": data})
        found = resize(cluster, job, placed, new)
        if not found.placement.nodes:
            assert data > mesh["data"]
            continue
        assert check_placement(cluster.topology, new, found.placement, busy=names_of_others(cluster, placed)) == []
        assert len(found.moves) == mesh["pipeline"]
        kept = set(placed.nodes) & set(found.placement.nodes)
        assert len(kept) == min(len(placed.nodes), len(found.placement.nodes))


def test_a_shrinking_kind_gives_back_its_split_groups() -> None:
    """Of three groups the one on two leaves goes first."""
    cluster = Cluster(tree([3, 2, 1, 3], 4))
    job = Job(name="j", groups=(GroupKind(name="a", size=3, count=3),))
    placed = cluster.place(job)
    assert placed.groups_split == 1
    found = resize(cluster, job, placed, Job(name="j", groups=(GroupKind(name="a", size=3, count=2),)))
    assert found.placement.groups_split == 0
    assert {cluster.leaves[cluster.leaf_of[m.old or ""]].name for m in found.moves} == {"leaf1", "leaf2"}


def test_only_sizes_may_change() -> None:
    """Another pipeline is another job."""
    cluster, job, placed = world(1)
    with pytest.raises(InputError, match="only the data axis"):
        resize(cluster, job, placed, Job(name="run", mesh={"pipeline": 9, "data": 2}))
    with pytest.raises(InputError, match="give the placement of this job"):
        replace(cluster, Job(name="x", mesh={"data": 99}), placed, [])


@pytest.mark.parametrize("seed", range(25))
def test_a_queue_is_placed_as_one(seed: int) -> None:
    """Jobs of a queue share no node, the first that fit run, and together they split no more than one after another."""
    r = random.Random(seed)
    topology = tree([r.randint(4, 9) for _ in range(4)], 2)
    busy = some_busy(topology, 0.1, seed)
    cluster = Cluster(topology, busy=busy)
    jobs = [Job(name=f"j{i}", mesh={"pipeline": r.randint(1, 2), "data": r.randint(2, 5)}) for i in range(4)]
    found = place_queue(cluster, jobs)
    nodes = [n for p in found.placements for n in p.nodes]
    assert len(nodes) == len(set(nodes))
    assert sorted([*(p.job for p in found.placements), *found.waiting]) == [j.name for j in jobs]
    in_turn, warm = 0, Cluster(topology, busy=busy)
    by_name = {j.name: j for j in jobs}
    for p in found.placements:
        assert check_placement(topology, by_name[p.job], p, busy=busy) == []
        alone = warm.place(by_name[p.job])
        warm.set_busy(alone.nodes)
        in_turn += alone.groups_split
    assert found.groups_split == sum(p.groups_split for p in found.placements) <= in_turn


def runners(seed: int, topology_seed: int = 0) -> tuple[Cluster, list[Running]]:
    """Return a cluster full of small jobs that run."""
    r = random.Random(seed)
    topology = tree([r.randint(4, 7) for _ in range(4)], 2)
    cluster, running = Cluster(topology, busy=some_busy(topology, 0.05, topology_seed)), []
    for i in range(5):
        job = Job(name=f"r{i}", mesh={"pipeline": r.randint(1, 2), "data": r.randint(1, 3)})
        placed = cluster.place(job)
        if placed.nodes:
            cluster.set_busy(placed.nodes)
            running.append(Running(placement=placed, priority=r.randint(1, 5)))
    return cluster, running


@pytest.mark.parametrize("seed", range(40))
def test_preemption_is_the_cheapest_of_all_subsets(seed: int) -> None:
    """No other set of jobs makes as much room for less."""
    cluster, running = runners(seed)
    job = Job(name="big", mesh={"pipeline": 2, "data": random.Random(seed).randint(2, 5)})
    found = preempt(cluster, job, running)
    best, fewest = None, None
    results = []
    for n in range(len(running) + 1):
        for chosen in itertools.combinations(running, n):
            placed = cluster.place(job, free=[x for r in chosen for x in r.placement.nodes])
            if placed.nodes:
                results.append((sum(r.priority * len(r.placement.nodes) for r in chosen), placed.groups_split))
    fewest = min((s for _, s in results), default=None)
    best = min((c for c, s in results if s == fewest), default=None)
    assert found.cost == best
    if best is not None:
        assert found.placement.groups_split == fewest
        assert found.certificate.status == "optimal"


def fewest_moved(cluster: Cluster, running: list[Running]) -> int | None:
    """Return the fewest nodes to move so that one leaf more is free, trying every way to put its pieces elsewhere."""
    owned = {n for r in running for n in r.placement.nodes}
    free = [sum(n not in cluster.busy for n in leaf.nodes) for leaf in cluster.leaves]
    best = None
    for i, leaf in enumerate(cluster.leaves):
        groups = [g for r in running for g in r.placement.groups]
        pieces = [n for n in (sum(cluster.leaf_of[x] == i for x in g.nodes) for g in groups) if n]
        if not pieces or any(n in cluster.busy and n not in owned for n in leaf.nodes):
            continue
        others = [m for m, n in enumerate(free) if m != i and 0 < n < len(cluster.leaves[m].nodes)]
        for to in itertools.product(others, repeat=len(pieces)):
            if all(sum(p for p, t in zip(pieces, to, strict=True) if t == m) <= free[m] for m in others):
                best = sum(pieces) if best is None else min(best, sum(pieces))
    return best


@pytest.mark.parametrize("seed", range(40))
def test_defragmentation_moves_the_fewest(seed: int) -> None:
    """The moves free a whole leaf into nodes that are free now, and no way moves fewer."""
    cluster, running = runners(seed, seed)
    found = defragment(cluster, running)
    best = fewest_moved(cluster, running)
    assert (len(found.moves) if found.leaves else None) == best
    assert found.certificate.status == ("infeasible" if best is None else "optimal")
    new = [m.new for m in found.moves]
    assert len(new) == len(set(new))
    assert all(n not in cluster.busy for n in new)
    for name in found.leaves:
        leaf = next(x for x in cluster.leaves if x.name == name)
        assert {m.old for m in found.moves} == set(leaf.nodes) & cluster.busy


def test_nothing_to_choose() -> None:
    """An empty queue and a queue of unlike segments are refused; a job larger than all jobs together waits."""
    cluster = Cluster(tree([4], 1))
    with pytest.raises(InputError, match="has no job"):
        place_queue(cluster, [])
    with pytest.raises(InputError, match="segment_nodes must be the same"):
        place_queue(
            cluster,
            [Job(name="a", mesh={"data": 2}), Job(name="b", mesh={"data": 1}, nodes_per_member=2, segment_nodes=2)],
        )
    large = Job(name="a", mesh={"data": 9})
    assert place_queue(cluster, [large]).waiting == ("a",)
    assert preempt(cluster, large, []).cost is None
