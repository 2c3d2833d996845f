"""The `place` of the library on named clusters, in any order, by name and by axes of a mesh: as in the best of all."""

import itertools
import pickle
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from string import ascii_lowercase
from typing import Any

import pytest
from cluster_worlds import some_busy, tree
from each_case import each
from mesh_cases import assignments, lines, order_of, pieces, random_mesh, split

import planner
from planner.checks.placement import check_placement
from planner.cluster.hostlists import natural
from planner.cluster.job import GroupKind, Job, read_job
from planner.cluster.placement import Placement
from planner.cluster.topology import Topology, TopologySwitch
from planner.errors import InputError, PlannerError
from planner.scheduling.warm_cluster import Cluster, rules_of


def of_groups(*sizes: tuple[int, int], **own: Any) -> Job:
    """Return a job of groups by nodes and count, their kinds a, b, ..."""
    kinds = (GroupKind(name=name, size=n, count=k) for name, (n, k) in zip(ascii_lowercase, sizes, strict=False))
    return Job(name="j", groups=tuple(kinds), **own)


def random_world(seed: int) -> tuple[Topology, Job, list[str]]:
    """Return a cluster of unequal leaves and a job that fits more often than not."""
    r = random.Random(seed)
    topology = tree([r.randint(4, 20) for _ in range(r.randint(2, 10))], r.randint(1, 4), block=r.choice([0, 0, 4]))
    if r.random() < 0.5:
        mesh = {"pipeline": r.randint(1, 4), "data": r.randint(2, 5), "context": r.choice([1, 1, 2])}
        k = r.choice([1, 2])
        job = Job(name="mesh", mesh=mesh, nodes_per_member=k, segment_nodes=r.choice([1, k]))
    else:
        drawn = ((2 * r.randint(1, 6), r.randint(1, 3)) for _ in range(r.randint(1, 3)))
        job = of_groups(*drawn)
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


def test_mesh_is_in_rank_order() -> None:
    """Ranks run through the mesh slowest axis first; a data line is every other node here."""
    placed = planner.place(tree([8], 1), {"name": "j", "mesh": {"pipeline": 2, "data": 2, "context": 2}})
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
    job = of_groups((6, 2), segment_nodes=3)
    placed = planner.place(topology, job, busy=["n00001"])
    assert (placed.groups_split, check_placement(topology, job, placed, busy=["n00001"])) == (0, [])
    refused = planner.place(topology, job, busy=["n00001", "n00002"])
    assert (refused.nodes, refused.reason) == ((), "job 'j' needs 12 nodes in whole segments of 3 > 9 free")


def test_traffic_chooses_what_splits() -> None:
    topology = tree([4, 4, 4], 3)
    for heavy, light in (("a", "b"), ("b", "a")):
        job = of_groups((3, 2), (3, 2), traffic_bytes_per_step={heavy: 2e9, light: 1e9})
        placed = planner.place(topology, job)
        assert [g.name[0] for g in placed.groups if len(g.leaves) > 1] == [light]
        assert placed.lower_bound_split == placed.groups_split == 1


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
    cluster.set_busy("n[00000-00002]")
    assert cluster.busy == Cluster(topology.model_dump(), busy="n[00000-00002]").busy == {"n00000", "n00001", "n00002"}
    assert cluster.place({"name": "j", "mesh": {"data": 8}}).groups[0].leaves == ("leaf1",)
    assert planner.place({"switches": [{"name": "a", "nodes": ["x", "y"]}]}, job.replaced(mesh={"data": 2})).nodes


MESH = Job(name="j", mesh={"pipeline": 2, "data": 2})


@each(("ask", "says"), [
    (lambda c: c.set_busy(None), r"nodes: must be names of nodes, or a hostlist \(is None\)"),
    (lambda c: c.place(MESH, busy=[3]), r"nodes: .* \(one is 3\)"), (lambda c: c.set_free("n[1"), "nodes: .* closed"),
    (lambda _: Cluster("none.conf"), "none.conf: no such"), (lambda _: Cluster({"leaves": []}), "topology: leaves: "),
    (lambda _: Cluster(None), "topology: must be a file's path"),  # type: ignore[arg-type]
    (lambda c: c.problem(None), "job: must be "), (lambda c: c.place({"name": "j"}), "job: give either mesh or"),
    (lambda _: list(MESH.slots("data")), r"level: must be from 0, .* 'data'"),  # type: ignore[arg-type]
    (lambda _: MESH.numbering(7), "level: must be"), (lambda _: MESH.lines("date"), "axis: 'date' .* mean 'data'"),
    (lambda _: planner.changed("one-rack", {3: 4}), "changes: must be"),  # type: ignore[dict-item]
    (lambda _: planner.simulate({}, pattern=3), r"pattern: must be a text"),  # type: ignore[arg-type]
])  # fmt: skip
def test_what_the_library_cannot_use_is_a_planner_error(ask: Callable[[Cluster], Any], says: str) -> None:
    with pytest.raises(PlannerError, match=rf"^{says}[^\n]*$"):
        ask(Cluster(tree([8, 8], 1)))


def test_threads_and_processes_share_a_cluster() -> None:
    """Several threads place as one does, and so does a copy by way of pickle, with the same nodes busy."""
    topology = tree([16] * 8, 4)
    cluster = Cluster(topology, busy=some_busy(topology, 0.2, 3))
    copy = pickle.loads(pickle.dumps(cluster))
    jobs = [Job(name=f"j{n}", mesh={"pipeline": 3, "data": n}) for n in range(3, 15)]
    with ThreadPoolExecutor(4) as pool:
        together = [p.nodes for p in pool.map(cluster.place, jobs)]
    assert together == [cluster.place(j).nodes for j in jobs] == [copy.place(j).nodes for j in jobs]
    assert copy.busy == cluster.busy


TRAFFIC = "traffic_bytes_per_step"


KIND = {"name": "pipeline", "size": 3, "count": 1}


@each(("data", "says"), [
    ({}, "either mesh or groups"), ({"mesh": {"data": 0}}, "mesh.data: input should be greater than or equal to 1"),
    ({"mesh": {"data": True}}, "job: mesh.data: input should be a valid number (is true); fix it there"),
    ({"mesh": {"data": 3}, TRAFFIC: {"date": 1}}, f"{TRAFFIC}.date: must be one of data"),
    ({"mesh": {"pp": 2, "dp": 2, "ep": 2}, TRAFFIC: {"pp": 1e9}},
     "pipeline: is not used; only the bytes of tensor, context, expert, data are; remove it"),
    ({"mesh": {"pp": 2, "zone": 2, "dp": 2}, TRAFFIC: {"dp": 1, "zone": 1}}, f"{TRAFFIC}.zone: is not used"),
    ({"groups": [KIND], "segment_nodes": 2}, "multiple of segment_nodes"),
    ({"mesh": {"data": 3}, "node_per_member": 2}, "did you mean 'nodes_per_member'"),
    ({"groups": [KIND] * 2}, "names must differ"),
    ({"mesh": {"data": 3, "a=b,c": 2}}, "mesh.a=b,c: groups are named such as data[pipeline=0]"),
])  # fmt: skip
def test_bad_jobs_are_named(data: dict[str, object], says: str) -> None:
    """Kinds of groups, though, may have the name of an axis."""
    with pytest.raises(InputError, match="job: ") as error:
        read_job({"name": "j", **data})
    assert says in str(error.value) and "\n" not in str(error.value)
    assert read_job({"name": "j", "groups": [KIND], TRAFFIC: {"pipeline": 1e9}}).weights == (10**6,)


def test_a_wrong_placement_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    from planner.scheduling import warm_cluster

    def one_node_twice(*args: object) -> Placement:
        found = placement(*args)  # type: ignore[arg-type]
        return found.replaced(nodes=(found.nodes[1], *found.nodes[1:]))

    placement = warm_cluster.placement
    monkeypatch.setattr(warm_cluster, "placement", one_node_twice)
    with pytest.raises(PlannerError, match="breaks one_rank_per_node: node n00001 occurs 2 times > 1"):
        planner.place(tree([8, 8], 2), Job(name="j", mesh={"data": 4}))


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
    beyond, block = 0, {n: b.name for b in topology.blocks for n in b.nodes}
    for leaf in (x for x in topology.switches if x.nodes):
        free = Counter(block[n] for n in leaf.nodes if n not in busy)
        own = sum(g.leaves == (leaf.name,) for g in placed.groups)
        beyond += max(0, own - sum(n // size for n in free.values()))
    # Groups of one leaf that need more blocks than one.
    straddling = sum(len({block[n] for n in g.nodes}) > 1 for g in placed.groups if len(g.leaves) == 1)
    assert straddling <= beyond


def cuts(topology: Topology, job: Job, nodes: tuple[str, ...]) -> tuple[int, int, int]:
    """Count members on several leaves, groups on several, and pieces beyond one a group."""
    axis, on = next((a for a in job.mesh or {} if a != "pipeline"), None), leaves_of(topology, nodes)
    own = lines(job, axis) if axis else [slot.ranks for slot in job.slots()]
    return split(lines(job, "member") if axis else [], on), split(own, on), pieces(own, on)


@pytest.mark.parametrize("seed", range(4, 64))
def test_agrees_with_every_choice_of_nodes(seed: int) -> None:
    """Of all sets of free nodes, ranks by name, none cuts fewer members, then groups, then makes fewer pieces."""
    # At the limit the first free nodes come back, with bounds below the best and no claim to it.
    r = random.Random(seed)
    topology = tree([r.randint(2, 4) for _ in range(4)], 2)
    busy = some_busy(topology, r.choice([0.0, 0.2]), seed)
    free = sorted((n for s in topology.switches for n in s.nodes if n not in busy), key=natural)
    mesh = {"pipeline": r.randint(1, 3), r.choice(["data", "tensor"]): r.randint(2, 3)}
    by_size = of_groups((r.randint(2, 4), r.randint(1, 2)), (r.randint(1, 4), 1))
    for job in (Job(name="j", mesh=mesh), Job(name="j", mesh=mesh, nodes_per_member=2), by_size):
        placed, hasty = (planner.place(topology, job, busy=busy, order="name", time_limit=t) for t in (10.0, 0.0))
        if len(free) < job.nodes:
            assert placed.reason == f"job 'j' needs {job.nodes} nodes > {len(free)} free"
            continue
        least = min(cuts(topology, job, nodes) for nodes in itertools.combinations(free, job.nodes))
        assert cuts(topology, job, placed.nodes) == least <= cuts(topology, job, hasty.nodes)
        for found in (placed, hasty):
            assert list(found.nodes) == sorted(found.nodes, key=natural)
            assert check_placement(topology, job, found, busy=busy) == []
        assert hasty.figures[0].bound <= placed.figures[0].value <= hasty.figures[0].value
        assert placed.certificate.status == "optimal"
        searched = [f for f in hasty.figures if "across" not in f.name]
        assert (hasty.certificate.status == "optimal") == all(f.value == f.bound for f in searched)


def test_groups_of_several_sizes_are_split_by_name_too() -> None:
    """Of a group of three and two of four on leaves of five, four and two, the bound has the one that fits nowhere."""
    # On leaves of five, a leaf that would cut is left part-free.
    placed = planner.place(tree([5, 4, 2], 1), of_groups((4, 2), (3, 1)), order="name")
    assert placed.groups_split >= placed.lower_bound_split == placed.figures[0].analytic_bound == 1
    placed = planner.place(tree([5, 5, 5], 3), of_groups((4, 2), (5, 1)), order="name")
    assert placed.groups_split == 0 and [len(g.nodes) for g in placed.groups] == [4, 4, 5]


MIXED = (("a", ("n1", "n3")), ("b", ("n2",)), ("r", ()))


@each(("leaves", "job", "message"), [
    (None, {"mesh": {"data": 2, "pipeline": 2}}, "ranks along data do not follow each other; take any order"),
    (None, {"mesh": {"data": 2, "tensor": 2}}, "tensor and data exchange, by name one axis can"),
    (None, {"mesh": {"data": 2}, "nodes_per_member": 2, "segment_nodes": 2}, "segment_nodes and the order of names"),
    (MIXED, {"mesh": {"data": 2}}, "leaf 'a': other leaves' nodes stand between its own by name"),
])  # fmt: skip
def test_what_no_choice_of_nodes_serves_is_refused(leaves: Any, job: dict[str, object], message: str) -> None:
    switches = (TopologySwitch(name=x, nodes=nodes, parent="r" if nodes else None) for x, nodes in leaves or ())
    topology = Topology(switches=tuple(switches)) if leaves else tree([4, 4], 2)
    with pytest.raises(InputError, match=message):
        planner.place(topology, {"name": "j", **job}, order="name")


def test_only_the_nodes_of_an_allocation_are_used() -> None:
    topology, job = tree([4, 4, 4], 3), Job(name="j", mesh={"pipeline": 2, "data": 3})
    given = ["n00000", "n00004", "n00005", "n00006", "n00008", "n00009"]
    placed = planner.place(topology, job, only="n[00000,00004-00006,00008-00009]")
    assert sorted(placed.nodes) == given and placed.groups_split == 1
    with pytest.raises(InputError, match="'x1' is not in the topology"):
        planner.place(topology, job, only=["x1"])


ALWAYS = "nodes are taken whole, and busy ones stay busy"


@each(("segment_nodes", "trees", "more"), [
    (1, 1, ""), (1, 2, "; a job stays in one tree"), (2, 1, "; each 2 consecutive nodes stay in one block of a leaf"),
    (4, 3, "; a job stays in one tree; each 4 consecutive nodes stay in one block of a leaf"),
])  # fmt: skip
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


def test_a_bound_below_the_closed_form_of_an_axis_is_found() -> None:
    """Seven members of two nodes on three leaves of five: one is cut, whoever says that none need be."""
    topology = tree([5, 5, 5], 3)
    job = Job(name="j", mesh={"data": 7}, nodes_per_member=2)
    placed = planner.place(topology, job)
    figures = tuple(f.replaced(bound=0, analytic_bound=0) if f.name == "split members" else f for f in placed.figures)
    broken = check_placement(topology, job, placed.replaced(figures=figures))
    assert "split members: bound 0 < 1 by the closed form" in {v.message for v in broken}


def test_a_large_mesh_is_proven_at_once() -> None:
    """1,024 nodes, five axes, a tenth busy: counts of blocks are as easy as counts of groups."""
    topology = tree([32] * 32, 8)
    busy = some_busy(topology, 0.1, 0)
    mesh = {"pipeline": 6, "data": 4, "expert": 4, "context": 2, "tensor": 4}
    placed = planner.place(topology, Job(name="j", mesh=mesh), busy=busy)
    assert placed.certificate.status == "optimal"
    assert figure(placed, "split tensor groups") == figure(placed, "split context groups") == (0, 0)
    assert figure(placed, "split expert groups")[0] == figure(placed, "split expert groups")[1] > 0
