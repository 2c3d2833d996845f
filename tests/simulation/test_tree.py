"""The tree: cables of a planned design, each once, routes along them, and spraying around failures by classes."""

import itertools
import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.physics.network.clos_fabric import Design
from planner.simulation import simulated_routes as routing
from planner.simulation.simulate import tree_of_design
from planner.simulation.simulated_routes import Alive, Flows, Routes, Tree, ecmp, permutation, spray


def tree_of(**numbers: Any) -> Tree:
    """Return the tree of a fabric by its numbers."""
    return routing.tree_of_fabric(routing.Fabric(**numbers))


@st.composite
def designs(draw: st.DrawFn) -> Design:
    """Draw a design of three or four tiers whose last pods and domains may be part full."""

    def some(most: int) -> int:
        return draw(st.integers(1, most))

    rails, down, bundle, spines = some(4), some(4), some(2), some(3)
    x, y, up, zone = some(rails), some(3), some(2), {}
    if draw(st.booleans()):
        zone = {"rails_per_zone": x * some(-(-rails // x)), "domains_per_zone": y * some(3)}
        zone |= {"core_up": 2 * some(2), "core_bundle": some(2)}
    leaves = {"leaf_down": down, "leaf_up": spines * bundle, "leaf_bundle": bundle}
    pods = {"rails_per_pod": x, "domains_per_pod": y, "spine_up": up * some(2), "spine_bundle": up}
    return Design(ports=256, rails=rails, racks=some(12), **leaves, **pods, **zone)


Node = tuple[int, int, int]  # tier, subtree, position


def ends_of(tree: Tree) -> dict[int, tuple[Node, Node]]:
    """Return the lower and the upper end of every cable."""
    found = dict[int, tuple[Node, Node]]()
    for t in range(tree.tiers):
        for s, p, lane in itertools.product(range(tree.subtrees[t]), range(tree.widths[t + 1]), range(tree.bundle[t])):
            found[tree.cable(t, s, p, lane)] = (t, s, p // tree.up[t]), (t + 1, s // tree.down[t], p)
    assert set(found) == set(range(sum(tree.cables)))
    return found


@settings(deadline=None, max_examples=60)
@given(designs())
def test_a_designs_cables_are_all_there(d: Design) -> None:
    """Full pods wire as many cables as the design counts. Every GPU has a place of its own on a leaf of its index."""
    assert not d.faults()
    part = tree_of_design(d)
    tree, slots = part.tree, part.slots
    assert len(np.unique(slots)) == d.endpoint_links
    leaves = slots // d.leaf_down
    assert len(np.unique(leaves)) == d.leaves
    for rack, rail in np.ndindex(slots.shape):
        same = leaves == leaves[rack, rail]
        assert (np.nonzero(same)[1] == rail).all()
        assert set(np.nonzero(same)[0]) == {r for r in range(d.racks) if r // d.leaf_down == rack // d.leaf_down}
    assert len(np.unique(leaves)) * tree.up[1] * tree.bundle[1] == d.leaves * d.leaf_up
    pods = np.unique(slots // tree.spans[2])
    assert len(pods) == d.pods
    assert len(pods) * tree.widths[2] * tree.up[2] * tree.bundle[2] == d.spines * d.spine_up
    zones = np.unique(slots // tree.spans[3])
    assert len(zones) == max(1, d.zones)
    assert len(zones) * tree.widths[3] == d.cores
    if d.zones:
        assert len(zones) * tree.widths[3] * tree.up[3] * tree.bundle[3] == d.cores * d.core_up
        assert tree.widths[4] == d.super_spines
        for rack, rail in np.ndindex(slots.shape):
            inside = np.nonzero(slots // tree.spans[3] == slots[rack, rail] // tree.spans[3])
            assert {r // d.rails_per_zone for r in inside[1].tolist()} == {rail // d.rails_per_zone}
            assert {k // d.leaf_down // d.domains_per_zone for k in inside[0].tolist()} == {
                rack // d.leaf_down // d.domains_per_zone
            }


@each("racks", [3, 5, 8])
def test_all_gpus_of_a_rack_meet_at_its_leaf(racks: int) -> None:
    """Where a leaf takes all four GPUs of two racks, each GPU is a host with a place of its own there."""
    d = Design(
        ports=16, rails=1, rail_gpus=4, racks=racks, leaf_down=8, leaf_up=4, leaf_bundle=1, rails_per_pod=1,
        domains_per_pod=math.ceil(racks / 2),
    )  # fmt: skip
    assert d.faults() == []
    part = tree_of_design(d)
    assert part.slots.shape == (racks, 4) and len(np.unique(part.slots)) == d.endpoint_links
    assert (part.slots // d.leaf_down == np.arange(racks)[:, None] // 2).all()
    part = tree_of_design(replace(d, rails=2), rails=1)
    assert "(one pod; traffic that keeps its index loads no link of the others)" in part.described
    one = replace(d, leaf_down=4 * racks, ports=4 * racks, leaf_up=0, domains_per_pod=1)
    assert len(tree_of_design(one).tree.capacity()) == 2 * one.endpoint_links


def small_trees() -> list[Tree]:
    """Return trees with bundles, planes and two to four tiers."""
    leaf = {"ports": 64, "rails": 2, "leaf_down": 2}
    wide = {"leaf_up": 4, "leaf_bundle": 2, "rails_per_pod": 2, "domains_per_pod": 2, "spine_up": 4, "spine_bundle": 2}
    pod = {"leaf_up": 2, "leaf_bundle": 1, "rails_per_pod": 1, "domains_per_pod": 1, "spine_up": 2, "spine_bundle": 1}
    zone = {"rails_per_zone": 1, "domains_per_zone": 2, "core_up": 2, "core_bundle": 1}
    fabrics = [{"hosts": 16, "ports_per_switch": 4, "tiers": 4, "plane_shares": (0.5, 0.25)}]
    fabrics += [{"hosts": 8, "ports_per_switch": 4}]
    designed = [tree_of_design(Design(racks=5, **leaf, **wide), planes=2)]
    designed += [tree_of_design(Design(racks=7, **leaf, **pod, **zone))]
    return [*(part.tree for part in designed), *(tree_of(**numbers) for numbers in fabrics)]


@each("tree", small_trees())
@each("failures", [False, True])
def test_hashed_routes_are_paths(tree: Tree, failures: bool) -> None:
    """Every part climbs from its host to one switch and descends to its target, cable after cable, within one plane."""
    hosts = np.asarray(list(itertools.permutations(tree.slots.tolist(), 2)))
    flows = Flows(source=hosts[:, 0], target=hosts[:, 1], size=np.ones(len(hosts)))
    r = ecmp(tree, flows, 3, Alive(tree, np.asarray([1])) if failures else None)
    each, ends = sum(tree.cables), ends_of(tree)
    used = set((r.link[r.link < 2 * each] % each).tolist())  # in the first plane; one may have failed
    assert (tree.cables[0] + 1 in used) != failures and tree.cables[0] in used
    for part in range(r.parts):
        links = r.link[r.start[part] : r.start[part + 1]]
        assert len({int(x) // (2 * each) for x in links}) == 1
        ups, downs = ([int(x) % each for x in links if x // each % 2 == way] for way in (0, 1))
        flow = int(r.flow[part])
        for cables, end in ((ups, flows.source[flow]), (downs, flows.target[flow])):
            chain = sorted(ends[c] for c in cables)
            assert chain[0][0] == (0, end, 0)
            assert all(low[1] == high[0] for low, high in itertools.pairwise(chain))
        assert max(ends[c][1] for c in ups) == max(ends[c][1] for c in downs)


Cable = tuple[int, int, int, int, bool]  # tier, subtree below, position above, plane, down


def live(tree: Tree, alive: Alive, t: int, subtree: int, position: int, plane: int) -> int:
    """Count the cables of a bundle that live, one by one."""
    first = int(tree.cable(t, np.array([subtree]), np.array([position]))[0])
    return int(alive.lanes[plane, first : first + tree.bundle[t]].sum())


def walked(tree: Tree, alive: Alive, source: int, target: int, plane: int) -> dict[Cable, float]:
    """Return the share of a flow on every bundle."""
    # At every switch evenly over the live cables that still lead to the target.
    turn = int(tree.meeting_tier(np.array([source]), np.array([target]))[0])
    ends = [[slot // tree.spans[t] for t in range(turn)] for slot in (source, target)]
    load: dict[Cable, float] = defaultdict(float)

    def ways(t: int, position: int) -> list[tuple[int, int]]:
        found = []
        for q in range(position * tree.up[t], (position + 1) * tree.up[t]):
            up, down = (live(tree, alive, t, end[t], q, plane) for end in ends)
            if up and down and (t + 1 == turn or ways(t + 1, q)):
                found.append((q, up))
        return found

    def send(t: int, position: int, share: float) -> None:
        held = ways(t, position)
        total = sum(n for _, n in held)
        for q, n in held:
            for down in (False, True):
                load[t, ends[down][t], q, plane, down] += share * n / total
            if t + 1 < turn:
                send(t + 1, q, share * n / total)

    if not ways(0, 0):
        raise LookupError
    send(0, 0, 1.0)
    return load


def by_paths(tree: Tree, flows: Flows, alive: Alive) -> Routes:
    """Return the routes of sprayed flows with a link for every bundle."""
    number: dict[Cable, int] = {}
    link, hop, weight, start = [], [], [], [0]
    for source, target in zip(flows.source.tolist(), flows.target.tolist(), strict=True):
        for plane in range(len(tree.planes)):
            for cable, share in walked(tree, alive, source, target, plane).items():
                hop.append(2 * tree.tiers - 1 - cable[0] if cable[4] else cable[0])
                link.append(number.setdefault(cable, len(number)))
                weight.append(share / len(tree.planes))
        start.append(len(link))
    rates = [live(tree, alive, t, s, q, p) * tree.rates[t] * tree.planes[p] for t, s, q, p, _ in number]
    own = {"flow": np.arange(len(flows)), "size": flows.size.astype(float), "capacity": np.array(rates)}
    entries = {"link": np.array(link), "hop": np.array(hop), "weight": np.array(weight)}
    return Routes(start=np.array(start), after=np.full(len(flows), -1), **entries, **own)


def bottlenecks(routes: Routes, flows: int) -> np.ndarray:
    """Return the largest load over capacity among the links of each flow."""
    found, load = np.zeros(flows), routes.load(routes.size)
    full = np.divide(load, routes.capacity, out=np.zeros_like(load), where=load > 0)  # a dead link has neither
    np.maximum.at(found, routes.flow[routes.owner()], full[routes.link])
    return found


SHAPES = [
    tree_of(hosts=16, ports_per_switch=4, host_gbps=8e-9),
    tree_of(hosts=54, ports_per_switch=6, host_gbps=8e-9, plane_shares=(0.25, 0.5)),
    tree_of(hosts=24, ports_per_switch=12, tiers=2, host_gbps=8e-9, oversubscription=(2.0,)),
]


def without(tree: Tree, failed: int, seed: int) -> Alive:
    """Return the cables that live where so many have failed, or all of them."""
    cables = min(failed, sum(tree.cables[1:]) * len(tree.planes))
    return Alive(tree, routing.failed_cables(tree, cables, seed))


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(SHAPES), st.integers(0, 1000), st.integers(0, 12))
def test_agrees_with_every_path_walked(tree: Tree, seed: int, failed: int) -> None:
    """The fullest link of each flow of a permutation is as full as with every bundle a link of its own."""
    flows, alive = permutation(tree.slots, 1.0, seed), without(tree, failed, seed)
    try:
        expected = bottlenecks(by_paths(tree, flows, alive), len(flows))
    except LookupError:
        with pytest.raises(InputError, match="no path leads from leaf"):
            spray(tree, flows, alive)
        return
    assert bottlenecks(spray(tree, flows, alive), len(flows)) == pytest.approx(expected, rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(SHAPES), st.integers(0, 1000), st.integers(0, 20))
def test_classes_hold_all_live_cables(tree: Tree, seed: int, failed: int) -> None:
    # No tier has many more classes than failures leave apart.
    alive = without(tree, failed, seed)
    held = routing.Classes(alive)
    assert held.capacity().sum() == pytest.approx(alive.capacity().sum())
    for t, level in enumerate(held.levels[1:]):
        assert int(level.many.sum()) == tree.widths[t + 1]
        assert len(level.parent) <= min(tree.widths[t + 1], 1 + (t + 1) * 2 * failed + t)


def test_few_failures_leave_few_links_at_full_size() -> None:
    """Sixteen failures on 65,536 hosts leave no more than a hundred entries a flow; of 2,000 they are too many."""
    # Of the two thousand that all bundles are. Where positions are apart everywhere the entries are counted first.
    tree = tree_of(hosts=65_536, ports_per_switch=64)
    few, flows = without(tree, 16, 0), permutation(tree.slots, 1.0, 0)
    most = routing.Classes(few).entries(3)
    assert most <= 2 * (1 + 17 + 33) and len(spray(tree, flows, few).link) <= 65_536 * most
    with pytest.raises(InputError, match="take fewer hosts, or fewer failed links"):
        spray(tree, flows, without(tree, 2000, 0))
