"""The tree: its cables are those of a planned design, each once, and routes run along them without a gap."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.physics.network.topology import Design, unwirable
from planner.simulation.routing import Alive, Fabric, Flows, Tree, ecmp, tree_of_fabric
from planner.simulation.traffic import permutation, tree_of_design


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


def nodes_on(tree: Tree, cable: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the lower and the upper end of a cable as (tier, subtree, position), found by trying all."""
    for t in range(tree.tiers):
        for s, p, lane in itertools.product(range(tree.subtrees[t]), range(tree.widths[t + 1]), range(tree.bundle[t])):
            if int(tree.cable(t, np.int64(s), np.int64(p), lane)) == cable:
                return (t, s, p // tree.up[t]), (t + 1, s // tree.down[t], p)
    raise AssertionError(cable)


@settings(deadline=None, max_examples=60)
@given(designs())
def test_a_designs_cables_are_all_there(d: Design) -> None:
    """Full pods wire as many cables as the design counts. Every GPU has a place of its own on a leaf of its index."""
    assert not unwirable(d, cross_rail=True)
    part = tree_of_design(d, cable_rate=1.0, host_rate=1.0)
    tree, slots = part.tree, part.slots
    assert len(np.unique(slots)) == d.endpoint_links
    leaves = slots // d.leaf_down
    assert len(np.unique(leaves)) == d.leaves
    for rack, rail in np.ndindex(slots.shape):
        same = leaves == leaves[rack, rail]
        assert (np.nonzero(same)[1] == rail).all()
        assert set(np.nonzero(same)[0]) == {r for r in range(d.racks) if r // d.leaf_down == rack // d.leaf_down}
    used = np.unique(leaves)
    assert len(used) * tree.up[1] * tree.bundle[1] == d.leaves * d.leaf_up
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


@pytest.mark.parametrize("racks", [3, 5, 8])
def test_all_gpus_of_a_rack_meet_at_its_leaf(racks: int) -> None:
    """Where a leaf takes all four GPUs of two racks, each GPU is a host with a place of its own there."""
    d = Design(
        ports=16, rails=1, rail_gpus=4, racks=racks, leaf_down=8, leaf_up=4, leaf_bundle=1, rails_per_pod=1,
        domains_per_pod=math.ceil(racks / 2),
    )  # fmt: skip
    assert unwirable(d, cross_rail=True) == []
    part = tree_of_design(d, cable_rate=1.0, host_rate=1.0)
    assert part.slots.shape == (racks, 4) and len(np.unique(part.slots)) == d.endpoint_links
    assert (part.slots // d.leaf_down == np.arange(racks)[:, None] // 2).all()


def small_trees() -> list[Tree]:
    """Return trees with bundles, planes and two to four tiers."""
    leaf = {"ports": 64, "rails": 2, "leaf_down": 2}
    wide = {"leaf_up": 4, "leaf_bundle": 2, "rails_per_pod": 2, "domains_per_pod": 2, "spine_up": 4, "spine_bundle": 2}
    pod = {"leaf_up": 2, "leaf_bundle": 1, "rails_per_pod": 1, "domains_per_pod": 1, "spine_up": 2, "spine_bundle": 1}
    zone = {"rails_per_zone": 1, "domains_per_zone": 2, "core_up": 2, "core_bundle": 1}
    four = Fabric(hosts=16, ports_per_switch=4, tiers=4, plane_shares=(0.5, 0.25))
    return [
        tree_of_design(Design(racks=5, **leaf, **wide), cable_rate=1.0, host_rate=1.0, planes=2).tree,
        tree_of_fabric(four),
        tree_of_fabric(Fabric(hosts=8, ports_per_switch=4)),
        tree_of_design(Design(racks=7, **leaf, **pod, **zone), cable_rate=1.0, host_rate=1.0).tree,
    ]


@pytest.mark.parametrize("tree", small_trees(), ids=["design", "four-tiers", "k-ary", "zones"])
@pytest.mark.parametrize("failures", [False, True])
def test_hashed_routes_are_paths(tree: Tree, failures: bool) -> None:
    """Every part climbs from its host to one switch and descends to its target, cable after cable, within one plane."""
    hosts = np.asarray(list(itertools.permutations(tree.slots.tolist(), 2)))
    flows = Flows(source=hosts[:, 0], target=hosts[:, 1], size=np.ones(len(hosts)))
    r = ecmp(tree, flows, 3, Alive(tree, np.asarray([1])) if failures else None)
    each = sum(tree.cables)
    ends = {c: nodes_on(tree, c) for c in range(each)}
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


def test_failed_cables_are_not_used() -> None:
    """No hashed route takes a failed cable in either direction, and others still use the rest of its bundle."""
    tree = small_trees()[0]
    flows = permutation(tree.slots, 1.0, 0)
    out = np.arange(0, 8, 2)
    used = np.unique(np.concatenate([ecmp(tree, flows, seed, Alive(tree, out)).link for seed in range(30)]))
    each = sum(tree.cables)
    taken = set((used[used < 2 * each] % each).tolist())
    assert not taken & set((tree.cables[0] + out).tolist())
    assert taken & set((tree.cables[0] + out + 1).tolist())
