"""Members, tensor, context and expert groups: kept whole in the order of their bytes, as in the best of all ways."""

import pytest
from cluster_worlds import some_busy, tree
from mesh_cases import assignments, lines, order_of, pieces, random_mesh, split

import planner
from planner.checks.placement import check_placement
from planner.cluster import Job, Placement, Topology
from planner.errors import InputError
from planner.models import Options
from planner.models.placement.place_job import solve
from planner.scheduling.cluster_changes import place_queue, preempt, replace
from planner.scheduling.cluster_session import Cluster, in_units, level_to_place

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
    at = level_to_place(job, [sum(n not in taken for n in x.nodes) for x in cluster.leaves])
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
