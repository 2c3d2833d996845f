"""Ranks in the order of node names: the best choice of nodes for it, replayed, and refused where it has no meaning."""

import itertools
import random

import pytest
from cluster_worlds import some_busy, tree
from mesh_cases import lines, pieces, split

import planner
from planner.checks.placement import check_placement
from planner.cluster import GroupKind, Job, Topology, TopologySwitch, natural
from planner.errors import InputError

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


def test_groups_of_several_sizes_follow_each_other() -> None:
    """Kinds stand in rank order: a leaf that would cut is left part-free."""
    topology = tree([5, 5, 5], 3)
    job = Job(name="j", groups=(GroupKind(name="a", size=4, count=2), GroupKind(name="b", size=5, count=1)))
    placed = planner.place(topology, job, **ORDER)
    assert placed.groups_split == 0 and [len(g.nodes) for g in placed.groups] == [4, 4, 5]
    assert check_placement(topology, job, placed) == []


@pytest.mark.parametrize(
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
    """Nodes of two leaves that take turns by name leave no leaf to choose."""
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
    bent = placed.model_copy(update=turned | {"groups": (placed.groups[0].model_copy(update=turned),)})
    assert {v.rule for v in check_placement(topology, job, bent)} == {"order_of_names"}


def test_only_the_nodes_of_an_allocation_are_used() -> None:
    topology, job = tree([4, 4, 4], 3), Job(name="j", mesh={"pipeline": 2, "data": 3})
    given = ["n00000", "n00004", "n00005", "n00006", "n00008", "n00009"]
    placed = planner.place(topology, job, only="n[00000,00004-00006,00008-00009]")
    assert sorted(placed.nodes) == given and placed.groups_split == 1
    with pytest.raises(InputError, match="'x1' is not in the topology"):
        planner.place(topology, job, only=["x1"])
