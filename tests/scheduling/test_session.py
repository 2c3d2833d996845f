"""The `place` of the library on named clusters, in any order, by name and by axes of a mesh: as in the best of all."""

import itertools
import multiprocessing
import pickle
import random
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from cluster_worlds import renamed, some_busy, tree
from each_case import each
from mesh_cases import assignments, lines, order_of, pieces, random_mesh, split

import planner
from planner.checks.placement import check_placement
from planner.cluster import GroupKind, Job, Placement, Topology, TopologyBlock, TopologySwitch, natural, read_job
from planner.errors import InputError, PlannerError
from planner.models import Options
from planner.models.placement.place_job import solve
from planner.scheduling.cluster_changes import place_queue, preempt, replace
from planner.scheduling.cluster_session import Cluster, in_units, rules_of


def random_world(seed: int) -> tuple[Topology, Job, list[str]]:
    """Return a cluster of unequal leaves and a job that fits more often than not."""
    r = random.Random(seed)
    topology = tree([r.randint(4, 20) for _ in range(r.randint(2, 10))], r.randint(1, 4), block=r.choice([0, 0, 4]))
    if r.random() < 0.5:
        mesh = {"pipeline": r.randint(1, 4), "data": r.randint(2, 5), "context": r.choice([1, 1, 2])}
        k = r.choice([1, 2])
        job = Job(name="mesh", mesh=mesh, nodes_per_member=k, segment_nodes=r.choice([1, k]))
    else:
        job = Job(
            name="mixed",
            groups=tuple(
                GroupKind(name=f"k{i}", size=2 * r.randint(1, 6), count=r.randint(1, 3)) for i in range(r.randint(1, 3))
            ),
        )
    return topology, job, some_busy(topology, r.choice([0.0, 0.1, 0.3]), seed)


def levels(p: Placement) -> tuple[int, ...]:
    return tuple(f.value for f in p.figures)


@pytest.mark.parametrize("seed", range(80))
def test_every_placement_is_replayed(seed: int) -> None:
    topology, job, busy = random_world(seed)
    placed = planner.place(topology, job, busy=busy, fragmentation=seed % 2 == 0)
    assert check_placement(topology, job, placed, busy=busy) == []
    # Of several lines the fewest boundaries are bounded, not searched; the level after them may then stay open.
    assert placed.certificate.status != "feasible" or (job.mesh is not None and seed % 2 == 0)


@pytest.mark.parametrize("seed", range(30))
def test_names_change_nothing_but_names(seed: int) -> None:
    topology, job, busy = random_world(seed)
    other, name = renamed(topology, seed)
    a = planner.place(topology, job, busy=busy)
    b = planner.place(other, job, busy=[name[n] for n in busy])
    assert tuple(name[n] for n in a.nodes) == b.nodes
    assert levels(a) == levels(b)


@pytest.mark.parametrize("seed", range(30))
def test_more_free_nodes_never_hurt(seed: int) -> None:
    topology, job, busy = random_world(seed)
    before = planner.place(topology, job, busy=busy)
    after = planner.place(topology, job, busy=busy[1:])
    assert not before.nodes or levels(after)[:-1] <= levels(before)[:-1]


@each("busy", [0.05, 0.25])
def test_groups_of_13_reach_the_bound(busy: int) -> None:
    """1,024 nodes in leaves of 32: no more groups split than the closed form has, in a tenth of a second's search."""
    topology = tree([32] * 32, 8)
    taken = some_busy(topology, busy, 1)
    job = Job(name="j", mesh={"pipeline": (1024 - len(taken)) // 13, "data": 13})
    placed = planner.place(topology, job, busy=taken, time_limit=0.1)
    assert placed.groups_split == placed.lower_bound_split > 0
    assert check_placement(topology, job, placed, busy=taken) == []


def test_mesh_is_in_rank_order() -> None:
    """Ranks run through the mesh slowest axis first; a data line is every other node here."""
    topology = tree([8], 1)
    placed = planner.place(topology, {"name": "j", "mesh": {"pipeline": 2, "data": 2, "context": 2}})
    assert [g.name for g in placed.groups][:2] == ["data[pipeline=0,context=0]", "data[pipeline=0,context=1]"]
    assert placed.groups[0].nodes == (placed.nodes[0], placed.nodes[2])
    assert placed.groups[1].nodes == (placed.nodes[1], placed.nodes[3])


def test_a_mesh_has_as_many_axes_as_it_likes() -> None:
    mesh = {f"x{i}": 1 for i in range(70)} | {"data": 2}
    placed = planner.place(tree([8], 1), {"name": "j", "mesh": mesh})
    assert [len(group.nodes) for group in placed.groups] == [2]


def test_segments_stay_in_blocks() -> None:
    """Blocks of 4 with a node missing fit one segment of 3; leaves of 8 then fit two, and a group of two is whole."""
    topology = tree([8, 8], 2, block=4)
    job = Job(name="j", groups=(GroupKind(name="g", size=6, count=2),), segment_nodes=3)
    placed = planner.place(topology, job, busy=["n00001"])
    assert (placed.groups_split, check_placement(topology, job, placed, busy=["n00001"])) == (0, [])
    refused = planner.place(topology, job, busy=["n00001", "n00002"])
    assert (refused.nodes, refused.reason) == ((), "job 'j' needs 12 nodes in whole segments of 3 > 9 free")


def test_traffic_chooses_what_splits() -> None:
    topology = tree([4, 4, 4], 3)
    kinds = (GroupKind(name="a", size=3, count=2), GroupKind(name="b", size=3, count=2))
    for heavy, light in (("a", "b"), ("b", "a")):
        placed = planner.place(topology, Job(name="j", groups=kinds, traffic_bytes_per_step={heavy: 2e9, light: 1e9}))
        assert [g.name[0] for g in placed.groups if len(g.leaves) > 1] == [light]
        assert placed.lower_bound_split == placed.groups_split == 1


def test_blocks_alone_are_leaves() -> None:
    """Blocks aggregate in rows: four blocks under sizes (4, 8) make two pods."""
    blocks = tuple(TopologyBlock(name=f"b{i}", nodes=tuple(f"x{4 * i + n}" for n in range(4))) for i in range(4))
    topology = Topology(kind="block", blocks=blocks, block_sizes=(4, 8))
    job = Job(name="j", mesh={"pipeline": 2, "data": 4})
    placed = planner.place(topology, job, busy=["x0"])
    assert [g.leaves for g in placed.groups] == [("b2",), ("b3",)]
    assert check_placement(topology, job, placed, busy=["x0"]) == []


def test_a_warm_cluster_follows_states() -> None:
    """Turning nodes busy and free again is what naming them at the call is; unknown ones change nothing."""
    topology = tree([8, 8], 1)
    cluster, job = Cluster(topology), Job(name="j", mesh={"data": 8})
    cluster.set_busy(["n00000"])
    assert cluster.place(job).groups[0].leaves == ("leaf1",)
    cluster.set_free(["n00000"])
    assert cluster.place(job, busy=["n00009"]).groups[0].leaves == ("leaf0",)
    with pytest.raises(InputError, match="n00016"):
        cluster.set_busy(["n00001", "n00016"])
    assert cluster.busy == frozenset()


def test_threads_share_a_cluster() -> None:
    topology = tree([16] * 8, 4)
    cluster = Cluster(topology, busy=some_busy(topology, 0.2, 3))
    jobs = [Job(name=f"j{n}", mesh={"pipeline": 3, "data": n}) for n in range(3, 15)]
    with ThreadPoolExecutor(4) as pool:
        together = [p.nodes for p in pool.map(cluster.place, jobs)]
    assert together == [cluster.place(j).nodes for j in jobs]


def in_a_tenth(call: tuple[Cluster, Job]) -> tuple[Placement, list[str]]:
    cluster, job = call
    placed = cluster.place(job, time_limit=0.1, fragmentation=True)
    return placed, [x.message for x in check_placement(cluster.topology, job, placed, busy=cluster.busy)]


@pytest.mark.slow
def test_many_callers_with_little_time() -> None:
    """Eight threads, then four processes, on one cluster: each placement is valid, with a gap unless proven."""
    topology = tree([16] * 96, 8)
    cluster = Cluster(topology, busy=some_busy(topology, 0.25, 3))
    cluster.warm_up()
    free = 16 * 96 - len(cluster.busy)
    sizes = [(8, 6), (13,), (16, 12, 8), (5, 3)]
    jobs = [
        Job(
            name=f"j{i}", groups=tuple(GroupKind(name=f"g{n}", size=n, count=int(free * share / len(s) / n)) for n in s)
        )
        for i, (s, share) in enumerate((s, share) for s in sizes for share in (0.3, 0.7, 0.99))
    ]
    with ThreadPoolExecutor(8) as threads, ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as processes:
        calls = [(cluster, job) for job in jobs]
        for pool in (threads, processes):
            for placed, broken in pool.map(in_a_tenth, calls):
                assert placed.nodes and broken == []
                assert placed.certificate.status == "optimal" or placed.certificate.gap is not None


def test_a_cluster_goes_to_other_processes() -> None:
    """A copy by way of pickle has the same nodes busy and places alike."""
    topology = tree([16] * 4, 2)
    cluster, job = Cluster(topology, busy=some_busy(topology, 0.2, 3)), Job(name="j", mesh={"pipeline": 3, "data": 5})
    copy = pickle.loads(pickle.dumps(cluster))
    assert copy.busy == cluster.busy
    assert copy.place(job).nodes == cluster.place(job).nodes


TRAFFIC = "traffic_bytes_per_step"


@each(
    ("data", "says"),
    [
        ({}, "either mesh or groups"),
        ({"mesh": {"data": 0}}, "mesh.data: input should be greater than or equal to 1"),
        ({"mesh": {"data": 3}, TRAFFIC: {"date": 1}}, f"{TRAFFIC}.date: must be one of data"),
        (
            {"mesh": {"pp": 2, "dp": 2, "ep": 2}, TRAFFIC: {"pp": 1e9}},
            "pipeline: is not used; only the bytes of tensor, context, expert, data are; remove it",
        ),
        ({"mesh": {"pp": 2, "zone": 2, "dp": 2}, TRAFFIC: {"dp": 1, "zone": 1}}, f"{TRAFFIC}.zone: is not used"),
        ({"groups": [{"name": "a", "size": 3, "count": 1}], "segment_nodes": 2}, "multiple of segment_nodes"),
        ({"mesh": {"data": 3}, "node_per_member": 2}, "did you mean 'nodes_per_member'"),
        ({"groups": [{"name": "a", "size": 3, "count": 1}] * 2}, "names must differ"),
        ({"mesh": {"data": 3, "a=b,c": 2}}, "mesh.a=b,c: groups are named such as data[pipeline=0]"),
    ],
)
def test_bad_jobs_are_named(data: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match="job: ") as error:
        read_job({"name": "j", **data})
    assert says in str(error.value)


def test_kinds_of_groups_may_have_the_name_of_an_axis() -> None:
    groups = [{"name": "pipeline", "size": 3, "count": 1}]
    assert read_job({"name": "j", "groups": groups, "traffic_bytes_per_step": {"pipeline": 1e9}}).weights == (10**6,)


@each(
    ("switches", "says"),
    [
        (
            [TopologySwitch(name="a", nodes=("x", "y")), TopologySwitch(name="b", nodes=("y",))],
            "'y' is under 'a' and 'b'",
        ),
        ([TopologySwitch(name="a", nodes=("x", "x"))], "a leaf names a node twice"),
        ([TopologySwitch(name="a", parent="c", nodes=("x",))], "'c', which is missing"),
        (
            [
                TopologySwitch(name="a", parent="b", nodes=("x",)),
                TopologySwitch(name="b", parent="c"),
                TopologySwitch(name="c", parent="b"),
            ],
            "'b', which is above itself",
        ),
        ([TopologySwitch(name="a")], "has no leaf"),
    ],
)
def test_bad_topologies_are_named(switches: list[TopologySwitch], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Cluster(Topology(switches=tuple(switches)))


def test_a_wrong_placement_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.scheduling import cluster_session

    def one_node_twice(*args: object) -> Placement:
        found = placement(*args)  # type: ignore[arg-type]
        return found.replaced(nodes=(found.nodes[1], *found.nodes[1:]))

    placement = cluster_session.placement
    monkeypatch.setattr(cluster_session, "placement", one_node_twice)
    with pytest.raises(PlannerError, match="breaks one_rank_per_node: node n00001 occurs 2 times > 1"):
        planner.place(tree([8, 8], 2), Job(name="j", mesh={"data": 4}))


def test_a_small_job_leaves_whole_leaves_whole() -> None:
    """Of leaves that hold the job, the fullest takes it, though the groups would leave nothing over on a free one."""
    placed = planner.place(tree([8, 8, 8, 8], 2), Job(name="j", mesh={"data": 2}), busy=["n00000", "n00001", "n00002"])
    assert {leaf for g in placed.groups for leaf in g.leaves} == {"leaf0"}


def straddling(topology: Topology, placed: Placement) -> int:
    """Count the groups that need more blocks than one, of those that stand in one leaf."""
    block = {n: b.name for b in topology.blocks for n in b.nodes}
    return sum(len({block[n] for n in g.nodes}) > 1 for g in placed.groups if len(g.leaves) == 1)


def test_groups_stay_in_scale_up_blocks_unasked() -> None:
    """Without segments, groups of 6 and 3 nodes fill a leaf of four blocks of 9 so that none spans two blocks."""
    topology = tree([36, 36], 2, block=9)
    job = Job(name="j", groups=(GroupKind(name="a", size=6, count=4), GroupKind(name="b", size=3, count=4)))
    placed = planner.place(topology, job)
    assert (placed.groups_split, straddling(topology, placed)) == (0, 0)


@pytest.mark.parametrize("seed", range(10))
def test_blocks_never_cost_a_leaf(seed: int) -> None:
    """With blocks the figures are those without, and as many equal groups stay in blocks as these hold."""
    topology, r = tree([24] * 4, 2, block=8), random.Random(seed)
    busy = some_busy(topology, 0.2, seed)
    size = r.randint(2, 5)
    job = Job(name="j", mesh={"pipeline": 60 // size // 2 * 2, "data": size})
    placed = planner.place(topology, job, busy=busy)
    assert check_placement(topology, job, placed, busy=busy) == []
    assert levels(placed) == levels(planner.place(topology.replaced(blocks=()), job, busy=busy))
    taken = {x.name: sum(g.leaves == (x.name,) for g in placed.groups) for x in topology.switches if x.nodes}
    room = {
        x.name: sum(sum(n in x.nodes and n not in busy for n in b.nodes) // size for b in topology.blocks)
        for x in topology.switches
        if x.nodes
    }
    assert straddling(topology, placed) <= sum(max(0, taken[x] - room[x]) for x in taken)


ORDER = {"order": "name"}


@pytest.mark.parametrize("seed", range(60))
def test_agrees_with_every_choice_of_nodes(seed: int) -> None:
    """Of all sets of free nodes, ranks by name, none cuts fewer members, then groups, then makes fewer pieces."""
    r = random.Random(seed)
    topology = tree([r.randint(1, 4) for _ in range(4)], 2)
    busy = some_busy(topology, r.choice([0.0, 0.2]), seed)
    mesh = {"pipeline": r.randint(1, 3), r.choice(["data", "tensor"]): r.randint(2, 3)}
    job = Job(name="j", mesh=mesh, nodes_per_member=r.choice([1, 1, 2]))
    leaf = {n: s.name for s in topology.switches for n in s.nodes}
    free = sorted((n for n in leaf if n not in busy), key=natural)
    placed = planner.place(topology, job, busy=busy, **ORDER)
    if len(free) < job.nodes:
        assert placed.reason == f"job 'j' needs {job.nodes} nodes > {len(free)} free"
        return
    axis = next(a for a in job.mesh or {} if a != "pipeline")
    own, members = lines(job, axis), lines(job, "member")
    best = min(
        (split(members, on), split(own, on), pieces(own, on))
        for on in ([leaf[n] for n in nodes] for nodes in itertools.combinations(free, job.nodes))
    )
    on = [leaf[n] for n in placed.nodes]
    assert list(placed.nodes) == sorted(placed.nodes, key=natural)
    assert (split(members, on), split(own, on), pieces(own, on)) == best
    assert placed.certificate.status == "optimal"
    assert check_placement(topology, job, placed, busy=busy) == []


def test_the_order_of_names_is_worth_a_choice() -> None:
    """Of 1,024 nodes, a quarter busy, groups of 13: fewer split than on the first free nodes by name."""
    topology = tree([32] * 32, 16)
    busy = some_busy(topology, 0.25, 0)
    job = Job(name="j", mesh={"pipeline": 45, "data": 13})
    any_order = planner.place(topology, job, busy=busy)
    by_name = planner.place(topology, job, busy=busy, **ORDER)
    leaf = {n: s.name for s in topology.switches for n in s.nodes}
    first = [leaf[n] for n in sorted(set(leaf) - set(busy), key=natural)[: job.nodes]]
    sorted_list = [leaf[n] for n in sorted(any_order.nodes, key=natural)]
    blind = min(split(lines(job, "data"), first), split(lines(job, "data"), sorted_list))
    assert any_order.groups_split <= by_name.groups_split < blind


@pytest.mark.parametrize("seed", range(8))
def test_no_time_still_places(seed: int) -> None:
    """At the limit the first free nodes come back, counted, with bounds below the best and no claim to it."""
    topology = tree([6] * 6, 3)
    busy = some_busy(topology, 0.2, seed)
    axis, nodes = ("data", 1) if seed % 2 else ("tensor", 2)
    job = Job(name="j", mesh={"pipeline": 4, axis: 6 // nodes - 1}, nodes_per_member=nodes)
    hasty, best = (planner.place(topology, job, busy=busy, time_limit=t, **ORDER) for t in (0.0, 10.0))
    assert check_placement(topology, job, hasty, busy=busy) == []
    assert [f.bound <= b.value <= f.value for f, b in zip(hasty.figures[:1], best.figures, strict=False)] == [True]
    assert best.certificate.status == "optimal"
    assert (hasty.certificate.status == "optimal") == all(f.value == f.bound for f in hasty.figures[:2])


def test_groups_of_several_sizes_that_no_leaf_holds_are_split_by_name_too() -> None:
    """Of a group of three and two of four on leaves of five, four and two, the bound has the one that fits nowhere."""
    sizes = ({"name": "a", "size": 4, "count": 2}, {"name": "b", "size": 3, "count": 1})
    placed = planner.place(tree([5, 4, 2], 1), Job.model_validate({"name": "j", "groups": sizes}), order="name")
    assert placed.groups_split >= placed.lower_bound_split == 1
    assert placed.figures[0].analytic_bound == 1


def test_groups_of_several_sizes_follow_each_other() -> None:
    """Kinds stand in rank order: a leaf that would cut is left part-free."""
    topology = tree([5, 5, 5], 3)
    job = Job(name="j", groups=(GroupKind(name="a", size=4, count=2), GroupKind(name="b", size=5, count=1)))
    placed = planner.place(topology, job, **ORDER)
    assert placed.groups_split == 0 and [len(g.nodes) for g in placed.groups] == [4, 4, 5]
    assert check_placement(topology, job, placed) == []


@each(
    ("job", "message"),
    [
        ({"mesh": {"data": 2, "pipeline": 2}}, "ranks along data do not follow each other; take any order"),
        ({"mesh": {"data": 2, "tensor": 2}}, "tensor and data exchange, by name one axis can"),
        ({"mesh": {"data": 2}, "nodes_per_member": 2, "segment_nodes": 2}, "segment_nodes and the order of names"),
    ],
)
def test_what_no_choice_of_nodes_serves_is_refused(job: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        planner.place(tree([4, 4], 2), {"name": "j", **job}, **ORDER)


def test_leaves_mixed_by_name_are_refused() -> None:
    leaves = (TopologySwitch(name=x, nodes=n, parent="r") for x, n in (("a", ("n1", "n3")), ("b", ("n2",))))
    topology = Topology(switches=(*leaves, TopologySwitch(name="r")))
    with pytest.raises(InputError, match="leaf 'a': other leaves' nodes stand between its own by name"):
        planner.place(topology, {"name": "j", "mesh": {"data": 2}}, **ORDER)


def test_an_order_that_is_none_is_found() -> None:
    """Two ranks exchanged break the rule of the checker."""
    topology, job = tree([4, 4], 2), Job(name="j", mesh={"data": 3})
    placed = planner.place(topology, job, **ORDER)
    first, second, third = placed.nodes
    turned = {"nodes": (second, first, third)}
    bent = placed.replaced(**turned | {"groups": (placed.groups[0].replaced(**turned),)})
    assert {v.rule for v in check_placement(topology, job, bent)} == {"order_of_names"}


def test_only_the_nodes_of_an_allocation_are_used() -> None:
    topology, job = tree([4, 4, 4], 3), Job(name="j", mesh={"pipeline": 2, "data": 3})
    given = ["n00000", "n00004", "n00005", "n00006", "n00008", "n00009"]
    placed = planner.place(topology, job, only="n[00000,00004-00006,00008-00009]")
    assert sorted(placed.nodes) == given and placed.groups_split == 1
    with pytest.raises(InputError, match="'x1' is not in the topology"):
        planner.place(topology, job, only=["x1"])


ALWAYS = "nodes are taken whole, and busy ones stay busy"


@each(
    ("segment_nodes", "trees", "more"),
    [
        (1, 1, ""),
        (1, 2, "; a job stays in one tree"),
        (2, 1, "; each 2 consecutive nodes stay in one block of a leaf"),
        (4, 3, "; a job stays in one tree; each 4 consecutive nodes stay in one block of a leaf"),
    ],
)
def test_rules_are_named_where_they_bind(segment_nodes: int, trees: int, more: str) -> None:
    """A job of single nodes has no rule of segments, and a cluster of one tree none of trees."""
    job = Job(name="run", mesh={"data": 2}, nodes_per_member=4, segment_nodes=segment_nodes)
    assert rules_of(job, trees) == ALWAYS + more


@each("begun", range(3))
def test_a_leaf_that_is_begun_is_filled_before_another_is(begun: int) -> None:
    """Whichever of the leaves it is: no leaf that is whole is broken for a job that fits beside what runs."""
    topology = tree([4, 4, 4], 3)
    busy = topology.switches[2 + begun].nodes[:2]
    placed = Cluster(topology, busy=busy).place(Job(name="small", mesh={"data": 2}))
    assert set(placed.nodes) == set(topology.switches[2 + begun].nodes[2:])


def test_the_problem_of_a_job_comes_with_the_free_units_of_each_leaf() -> None:
    problem, units = Cluster(tree([4, 4], 1)).problem(Job(name="a", mesh={"data": 2}), busy=["n00000"])
    assert problem.need == 2 and [leaf.free for leaf in problem.leaves] == [len(of) for of in units] == [3, 4]


WHAT = {"member": "members", "data": "groups"}


def leaves_of(topology: Topology, nodes: tuple[str, ...]) -> list[str]:
    leaf = {n: s.name for s in topology.switches for n in s.nodes}
    return [leaf[n] for n in nodes]


def figure(placed: Placement, name: str) -> tuple[int, int]:
    return next((f.value, f.bound) for f in placed.figures if f.name == name)


@pytest.mark.parametrize("seed", range(150))
def test_axes_agree_with_brute_force(seed: int) -> None:
    """In their order the axes split as few groups as in the best of all ways to give ranks leaves; so do the pieces."""
    # Up to the first axis that must split, both figures and bounds are those of brute force; beyond, bounds hold.
    topology, job, busy = random_mesh(seed)
    placed = planner.place(topology, job, busy=busy)
    assert check_placement(topology, job, placed, busy=busy) == []
    order = order_of(job)
    groups = {axis: lines(job, axis) for axis in order}
    free = [sum(n not in busy for n in s.nodes) for s in topology.switches if s.nodes]
    ways = list(assignments(free, job.nodes))
    costs = [tuple(split(groups[axis], on) for axis in order) for on in ways]
    on = leaves_of(topology, placed.nodes)
    searched = next((i for i, axis in enumerate(order) if split(groups[axis], on)), len(order) - 1) + 1
    best = min(c[:searched] for c in costs)
    for i, axis in enumerate(order):
        name = f"split {WHAT.get(axis, axis + ' groups')}"
        value, bound = figure(placed, name)
        assert value == split(groups[axis], on)
        assert bound <= min(c[i] for c in costs if c[:i] == best[:i] or i >= searched)
        if i < searched:
            assert value == bound == best[i]
    axis = order[searched - 1]
    least = min(pieces(groups[axis], w) for w, c in zip(ways, costs, strict=True) if c[:searched] == best)
    name = "extra pieces" if axis == "data" else f"extra pieces of {WHAT.get(axis, axis + ' groups')}"
    assert figure(placed, name) == (least, least)
    data = lines(job, "data")
    assert (placed.groups_split, placed.extra_pieces) == (split(data, on), pieces(data, on))
    assert placed.lower_bound_split <= min(split(data, w) for w in ways)


def test_no_tensor_group_is_split_where_none_must_be() -> None:
    """Sixteen tensor groups of four on leaves of four: all were split as data groups came first, none is now."""
    topology = tree([4] * 16, 4)
    job = Job(name="j", mesh={"data": 16, "tensor": 4})
    placed = planner.place(topology, job)
    assert (figure(placed, "split tensor groups"), placed.groups_split) == ((0, 0), 4)
    assert split(lines(job, "tensor"), leaves_of(topology, placed.nodes)) == 0
    assert placed.certificate.status == "optimal" and "split tensor groups" in placed.certificate.minimizes


@pytest.mark.parametrize("seed", range(40))
def test_a_false_figure_of_an_axis_is_found(seed: int) -> None:
    topology, job, busy = random_mesh(seed)
    placed = planner.place(topology, job, busy=busy)
    for i, f in enumerate(placed.figures):
        if f.name.startswith("leaves"):
            continue
        false = f.replaced(value=f.value + 1)
        figures = (*placed.figures[:i], false, *placed.figures[i + 1 :])
        assert check_placement(topology, job, placed.replaced(figures=figures), busy=busy), f.name
        if f.name.startswith("split"):
            figures = (*placed.figures[:i], *placed.figures[i + 1 :])
            assert check_placement(topology, job, placed.replaced(figures=figures), busy=busy), f.name


@pytest.mark.parametrize("seed", range(40))
def test_both_solvers_agree_on_blocks(seed: int) -> None:
    topology, job, busy = random_mesh(seed, max_nodes=24)
    cluster, taken = Cluster(topology), set(busy)
    free = [sum(node not in taken for node in leaf.nodes) for leaf in cluster.leaves]
    rooms = [sum(n // (level.size // job.segment_nodes) for n in free) for level in job.levels]
    short = (i for i, level in enumerate(job.levels) if rooms[i] < level.count)
    at = next(short, len(job.levels) - 1)  # the level to place
    q = in_units(job, cluster.leaves, taken, at).q
    first, second = (solve(q, Options(solver=s), fragmentation=False).solution for s in ("highs", "cpsat"))
    searched = 2 + q.tiers
    assert first.values[:searched] == second.values[:searched] == first.bounds[:searched] == second.bounds[:searched]


def test_a_bound_below_the_closed_form_of_an_axis_is_found() -> None:
    """Seven members of two nodes on three leaves of five: one is cut, whoever says that none need be."""
    topology = tree([5, 5, 5], 3)
    job = Job(name="j", mesh={"data": 7}, nodes_per_member=2)
    placed = planner.place(topology, job)
    figures = tuple(f.replaced(bound=0, analytic_bound=0) if f.name == "split members" else f for f in placed.figures)
    broken = check_placement(topology, job, placed.replaced(figures=figures))
    assert "split members: bound 0 < 1 by the closed form" in {v.message for v in broken}


@pytest.mark.parametrize("seed", range(40))
def test_a_replaced_node_serves_what_is_kept_first(seed: int) -> None:
    """The failed ranks alone move, and what comes out is replayed, the groups of every axis too."""
    topology, job, busy = random_mesh(seed)
    cluster = Cluster(topology, busy=busy)
    placed = cluster.place(job)
    cluster.set_busy(placed.nodes)
    failed = placed.nodes[seed % job.nodes]
    mended = replace(cluster, job, placed, [failed]).placement
    if not mended.nodes:
        assert "are missing >" in mended.reason
        return
    assert sum(a != b for a, b in zip(placed.nodes, mended.nodes, strict=True)) == 1
    assert check_placement(topology, job, mended, busy=[*busy, failed]) == []


def test_what_does_not_search_inner_groups_refuses_them() -> None:
    cluster, job = Cluster(tree([8], 1)), Job(name="j", mesh={"data": 2, "tensor": 2})
    with pytest.raises(
        InputError, match=r"queue: job 'j' has tensor groups in addition to its data groups; place it by itself"
    ):
        place_queue(cluster, [job])
    with pytest.raises(InputError, match=r"preempt: job 'j' has tensor groups in addition to its data groups"):
        preempt(cluster, job, [])


def test_a_large_mesh_is_proven_at_once() -> None:
    """1,024 nodes, five axes, a tenth busy: counts of blocks are as easy as counts of groups."""
    topology = tree([32] * 32, 8)
    busy = some_busy(topology, 0.1, 0)
    mesh = {"pipeline": 6, "data": 4, "expert": 4, "context": 2, "tensor": 4}
    placed = planner.place(topology, Job(name="j", mesh=mesh), busy=busy)
    assert placed.certificate.status == "optimal"
    assert figure(placed, "split tensor groups") == figure(placed, "split context groups") == (0, 0)
    assert figure(placed, "split expert groups")[0] == figure(placed, "split expert groups")[1] > 0
