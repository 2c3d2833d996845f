"""The life of a cluster: every answer against all answers there are, and replayed by the checker."""

import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Collection, Sequence

import pytest
from cluster_cases import placed_on
from cluster_worlds import some_busy, tree
from each_case import each
from mesh_cases import random_mesh

from planner.checks.placement import check_placement
from planner.cluster.job import GroupKind, Job
from planner.cluster.placement import Placement
from planner.cluster.topology import Topology
from planner.errors import InputError
from planner.scheduling.cluster_changes import Move, Running, defragment, place_queue, preempt, replace, resize
from planner.scheduling.warm_cluster import Cluster


def begun(topology: Topology, job: Job, busy: Sequence[str]) -> tuple[Cluster, Placement]:
    """Return a cluster with one job that runs on it, its nodes busy."""
    cluster = Cluster(topology, busy=busy)
    placed = cluster.place(job)
    cluster.set_busy(placed.nodes)
    return cluster, placed


@pytest.mark.parametrize("seed", range(40))
def test_replacing_moves_the_failed_ranks_alone(seed: int) -> None:
    """As many ranks move as nodes failed, to nodes that were free, and the checker replays all axes of what comes."""
    topology, job, busy = random_mesh(seed)
    cluster, placed = begun(topology, job, busy)
    failed = random.Random(seed).sample(placed.nodes, min(1 + seed % 2, job.nodes))
    found = replace(cluster, job, placed, failed)
    if not found.placement.nodes:
        assert "are missing >" in found.placement.reason
        return
    assert sorted(m.old or "" for m in found.moves) == sorted(failed)
    assert all(m.new not in cluster.busy and found.placement.nodes[m.rank] == m.new for m in found.moves)
    both = zip(found.placement.nodes, placed.nodes, strict=True)
    assert {old for new, old in both if new != old} == set(failed)
    assert check_placement(topology, job, found.placement, busy=[*busy, *failed]) == []


@each(("data", "segment", "failed"), [(2, 2, 0), (1, 4, 2)])
def test_a_broken_segment_moves_whole(data: int, segment: int, failed: int) -> None:
    """All ranks of a segment with a node failed move to one block, also where the job is one segment: one member."""
    cluster = Cluster(tree([8], 1, block=4))
    job = Job(name="j", mesh={"data": data}, nodes_per_member=segment, segment_nodes=segment)
    placed = cluster.place(job)
    out = placed.nodes if data == 1 else (placed.nodes[failed],)
    cluster.set_busy(placed.nodes if data == 1 else ())
    found = replace(cluster, job, placed, [placed.nodes[failed]])
    assert [m.rank for m in found.moves] == list(range(segment))
    assert check_placement(cluster.topology, job, found.placement, busy=out) == []


@pytest.mark.parametrize("seed", range(40))
def test_growing_and_shrinking_keep_the_others(seed: int) -> None:
    """A data axis longer or shorter by one moves nobody who stays."""
    r = random.Random(seed)
    topology = tree([r.randint(4, 9) for _ in range(r.randint(3, 6))], 2)
    mesh, busy = {"pipeline": r.randint(1, 3), "data": r.randint(2, 4)}, some_busy(topology, 0.1, seed)
    job = Job(name="run", mesh=mesh)
    cluster, placed = begun(topology, job, busy)
    for data in (mesh["data"] + 1, mesh["data"] - 1):
        new = Job(name="run", mesh={**mesh, "data": data})
        found = resize(cluster, job, placed, new)
        if not found.placement.nodes:
            assert data > mesh["data"]
            continue
        assert check_placement(topology, new, found.placement, busy=busy) == []
        assert len(found.moves) == mesh["pipeline"]
        kept = set(placed.nodes) & set(found.placement.nodes)
        assert len(kept) == min(len(placed.nodes), len(found.placement.nodes))


def test_a_shrinking_kind_gives_back_its_split_groups() -> None:
    cluster = Cluster(tree([3, 2, 1, 3], 4))
    job = Job(name="j", groups=(GroupKind(name="a", size=3, count=3),))
    placed = cluster.place(job)
    assert placed.groups_split == 1
    found = resize(cluster, job, placed, Job(name="j", groups=(GroupKind(name="a", size=3, count=2),)))
    assert found.placement.groups_split == 0
    assert {cluster.leaves[cluster.leaf_of[m.old or ""]].name for m in found.moves} == {"leaf1", "leaf2"}


@pytest.mark.parametrize("seed", range(30))
def test_a_shrinking_group_keeps_the_best_of_its_nodes(seed: int) -> None:
    """No other nodes that could stay have fewer split groups, then fewer pieces, then fewer groups across pods."""
    r = random.Random(seed)
    cluster = Cluster(tree([3, 1, 1, 2, 1, 1], 2))
    size, pod = r.randint(3, 5), {leaf.name: leaf.path[0] for leaf in cluster.leaves}
    nodes = r.sample([node for leaf in cluster.leaves for node in leaf.nodes], size)
    job, less = (Job(name="j", mesh={"data": data}) for data in (size, r.randint(1, size - 1)))
    placed = cluster.place(job).replaced(nodes=tuple(nodes))
    found = resize(cluster, job, placed, less).placement

    def figures(kept: Sequence[str]) -> tuple[int, int, int]:
        on = {cluster.leaves[cluster.leaf_of[node]].name for node in kept}
        return int(len(on) > 1), len(on) - 1, int(len({pod[leaf] for leaf in on}) > 1)

    best = min(map(figures, itertools.combinations(nodes, less.nodes)))
    assert (found.groups_split, found.extra_pieces, found.groups_cross_pod) == best


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


def two_jobs(bytes_of: dict[str, float]) -> list[Job]:
    """Return two jobs of two groups of three; of their four, three leaves of four hold three."""
    kinds = (GroupKind(name="g", size=3, count=2),)
    traffic = {name: {"g": bytes_of[name]} if name in bytes_of else {} for name in ("a", "b")}
    return [Job(name=name, groups=kinds, traffic_bytes_per_step=own) for name, own in traffic.items()]


def test_jobs_of_a_queue_are_weighed_on_one_scale() -> None:
    """The job of fewer bytes splits, whichever it is; a job that states bytes beside one that does not is refused."""
    cluster = Cluster(tree([4, 4, 4], 3))
    for heavy, light in (("a", "b"), ("b", "a")):
        found = place_queue(cluster, two_jobs({heavy: 2e12, light: 1e3}))
        assert {p.job: p.groups_split for p in found.placements} == {heavy: 0, light: 1}
        assert "millionths of the most bytes" in found.certificate.minimizes
        assert found.certificate.status == "optimal"
    with pytest.raises(InputError, match="job 'a' states traffic_bytes_per_step of its groups and job 'b' does not"):
        place_queue(cluster, two_jobs({"a": 1.0}))
    assert place_queue(cluster, two_jobs({})).certificate.minimizes == "split groups of all jobs"


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
            running.append(Running(placement=placed, priority=r.randint(0, 5)))
    return cluster, running


@pytest.mark.parametrize("seed", range(40))
def test_preemption_is_the_cheapest_of_all_subsets(seed: int) -> None:
    cluster, running = runners(seed)
    job = Job(name="big", mesh={"pipeline": 2, "data": random.Random(seed).randint(2, 5)})
    found = preempt(cluster, job, running)
    results = []
    for chosen in (some for n in range(len(running) + 1) for some in itertools.combinations(running, n)):
        placed = cluster.place(job, free=[x for r in chosen for x in r.placement.nodes])
        if placed.nodes:
            cost = sum(r.priority * len(r.placement.nodes) for r in chosen)
            results.append((cost, len(chosen), placed.groups_split))
    fewest = min((s for *_, s in results), default=None)
    best, stopped = min(((c, n) for c, n, s in results if s == fewest), default=(None, 0))
    assert (found.cost, len(found.stop)) == (best, stopped)  # one that costs nothing is not stopped for nothing
    if best is not None:
        assert found.placement.groups_split == fewest
        assert found.certificate.status == "optimal"


State = tuple[tuple[int, int], ...]  # of each piece the leaf that it stands on, and its nodes


def fewest_moved(cluster: Cluster, running: list[Running], leaves: int = 1) -> int | None:
    """Return the fewest nodes to move, piece by piece into nodes that are free then, until more leaves are free."""
    # Dijkstra's search over all states there are: how many pieces of each size stand on each leaf. Which of two
    # pieces of one size stands where changes neither what is free nor what a move costs.
    groups = [Counter(map(cluster.leaf_of.get, g.nodes)) for r in running for g in r.placement.groups]
    owned = {n for r in running for n in r.placement.nodes}
    room = [sum(n in owned or n not in cluster.busy for n in x.nodes) for x in cluster.leaves]
    fixed = [len(x.nodes) - n for x, n in zip(cluster.leaves, room, strict=True)]
    start = tuple(sorted(piece for on in groups for piece in on.items()))

    def empty(state: State) -> int:
        used = {i for i, _ in state}
        return sum(i not in used and not fixed[i] for i in range(len(room)))

    queue, least, before = [(0, start)], {start: 0}, empty(start)
    while queue:
        moved, state = heapq.heappop(queue)
        if moved > least[state]:
            continue
        if empty(state) >= before + leaves:
            return moved
        free = list(room)
        for i, n in state:
            free[i] -= n
        for p, (i, n) in enumerate(state):
            if (i, n) in state[:p]:
                continue
            for to, left in enumerate(free):
                if to != i and left >= n:
                    after = tuple(sorted((*state[:p], (to, n), *state[p + 1 :])))
                    if moved + n < least.get(after, math.inf):
                        least[after] = moved + n
                        heapq.heappush(queue, (moved + n, after))
    return None


def play(cluster: Cluster, running: list[Running], moves: Sequence[Move]) -> set[str]:
    """Move rank by rank, a piece's own together, each into a node that is free then; return the nodes taken at last."""
    taken, on = set(cluster.busy), {r.placement.job: list(r.placement.nodes) for r in running}
    for m in moves:
        assert on[m.job][m.rank] == m.old and m.new not in taken
        on[m.job][m.rank] = m.new or ""
        taken.add(m.new or "")
        taken.discard(m.old or "")
    return taken


@pytest.mark.parametrize("leaves", [1, 2])
@pytest.mark.parametrize("seed", range(50))
def test_defragmentation_moves_the_fewest(seed: int, leaves: int) -> None:
    """The moves, played in their order, free whole leaves more, and no sequence of moves does so with fewer nodes."""
    cluster, running = runners(seed, seed)
    found = defragment(cluster, running, leaves=leaves)
    best = fewest_moved(cluster, running, leaves)
    assert (len(found.moves) if found.leaves else None) == best
    assert found.certificate.status == ("infeasible" if best is None else "optimal")
    taken = play(cluster, running, found.moves)

    def empty(nodes: Collection[str]) -> set[str]:
        return {x.name for x in cluster.leaves if not nodes & set(x.nodes)}

    if best is not None:
        assert len(empty(taken)) >= len(empty(cluster.busy)) + leaves
        assert set(found.leaves) == empty(taken) - empty(cluster.busy)


def running_on(cluster: Cluster, name: str, *nodes: str) -> Running:
    """Return a job of one group on these nodes, and mark them busy."""
    cluster.set_busy(nodes)
    return Running(placement=placed_on(name, nodes, len(nodes)))


def test_a_piece_moves_into_nodes_that_a_move_before_gave_back() -> None:
    """A piece of five fits no free nodes now; once three ranks have left a leaf it does: eight nodes move, not none."""
    cluster = Cluster(tree([8, 8, 8], 3))
    on = {"a": range(5), "b": range(8, 11), "c": (11, 12), "d": range(16, 20)}
    running = [running_on(cluster, name, *(f"n{i:05d}" for i in own)) for name, own in on.items()]
    cluster.set_busy(["n00013", "n00020"])
    found = defragment(cluster, running)
    assert (found.leaves, len(found.moves), found.certificate.status) == (("leaf0",), 8, "optimal")
    assert fewest_moved(cluster, running) == 8
    assert not play(cluster, running, found.moves) & set(cluster.leaves[0].nodes)


def test_what_cannot_be_changed_is_refused() -> None:
    """Queues of no job, unlike segments or inner groups, and jobs of another shape; a job larger than all waits."""
    cluster, two, inner = Cluster(tree([4], 1)), Job(name="a", mesh={"data": 2}), {"data": 2, "tensor": 2}
    running, pairs = cluster.place(two), Job(name="b", mesh={"data": 1}, nodes_per_member=2, segment_nodes=2)
    inside = r"job 'j' has tensor groups in addition to its data groups; place it by itself"
    for call, own, message in (
        (place_queue, ([],), "has no job"), (place_queue, ([two, pairs],), "segment_nodes must be the same"),
        (place_queue, ([Job(name="j", mesh=inner)],), f"queue: {inside}"),
        (preempt, (Job(name="j", mesh=inner), []), f"preempt: {inside}"),
        (resize, (two, running, Job(name="a", mesh={"pipeline": 9, "data": 2})), "only the data axis"),
        (replace, (Job(name="x", mesh={"data": 99}), running, []), "give the placement of this job"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            call(cluster, *own)
    large = Job(name="a", mesh={"data": 9})
    assert place_queue(cluster, [large]).waiting == ("a",)
    assert preempt(cluster, large, []).cost is None


def test_a_piece_that_moves_stays_in_its_pod_where_it_can() -> None:
    """Of two leaves with room the one in the same pod is taken, though the other comes first."""
    cluster = Cluster(tree([2, 3, 3, 2], 2))
    running = [running_on(cluster, "last", "n00009"), running_on(cluster, "first", "n00001")]
    cluster.set_busy(["n00002", "n00003", "n00005", "n00006"])
    found = defragment(cluster, running, leaves=2)
    assert [(m.old, m.new) for m in found.moves] == [("n00009", "n00007"), ("n00001", "n00004")]
