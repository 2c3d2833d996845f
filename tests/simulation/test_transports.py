"""The transports.

Spraying is ideal where nothing fails, hashing is as far from it as published, failures and planes cost what they must.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import slow

from planner.errors import InputError
from planner.physics.network.topology import Design, unwirable
from planner.simulation.fat_tree import Fabric, tree_of_fabric
from planner.simulation.from_plan import tree_of_design
from planner.simulation.live_cables import Alive, Flows
from planner.simulation.max_min_fair import completion_seconds, static_tail_seconds
from planner.simulation.rng import order, words
from planner.simulation.routing import ecmp, spray
from planner.simulation.run import TransportName, flow_seconds, ideal_seconds, routed
from planner.simulation.traffic import permutation
from planner.simulation.tree import Tree

# Mean of 40 seeds of the largest number of flows on one link, random permutation on a k-ary tree of three tiers,
# counted by hand-written code.
COUNTED = {(8, 1): 4.3, (8, 2): 5.8, (8, 4): 7.9, (16, 1): 5.8, (16, 2): 7.7, (16, 4): 10.8}
# Tail completion over line-rate time of a packet-level simulator: 128 hosts, 24 MB flows, RoCE with ECMP and PFC, mean
# of 5 seeds.
PACKETS = {1: 5.0, 2: 6.7, 4: 8.8}


def k_ary(ports: int, ratio: float = 1.0, **more: object) -> Tree:
    """Return the tree of three tiers with hosts of 1 byte/s."""
    return tree_of_fabric(
        Fabric(hosts=ports**3 // 4, ports_per_switch=ports, oversubscription=(ratio,), host_gbps=8e-9, **more)
    )


def tail(tree: Tree, transport: TransportName, seed: int, failed: int = 0) -> float:
    """Return when the last flow of a random permutation of 1 byte ends."""
    flows = permutation(tree.slots, 1.0, seed)
    return float(flow_seconds(routed(tree, flows, transport, seed, failed), len(flows)).max())


@pytest.mark.parametrize(("ports", "ratio"), [c if c[0] < 16 else slow(c)[0] for c in sorted(COUNTED)])
def test_hashing_is_as_far_from_ideal_as_counted(ports: int, ratio: int) -> None:
    """The mean tail of 40 seeds is within 15 % of static counts, and of packet-level figures 1.0 to 1.4 times below."""
    mean = float(np.mean([tail(k_ary(ports, ratio), "ecmp", seed) for seed in range(40)]))
    assert mean == pytest.approx(COUNTED[ports, ratio], rel=0.15)
    if ports == 8:
        assert 1.0 <= PACKETS[ratio] / mean <= 1.4


@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_spraying_is_ideal_on_a_symmetric_tree(ratio: int) -> None:
    """Every flow of a sprayed permutation ends within 1 % of the oversubscription.

    None before the line rate allows.
    """
    tree = k_ary(16, ratio)
    end = completion_seconds(spray(tree, permutation(tree.slots, 1.0, 0)))
    assert end.max() == pytest.approx(ratio, rel=0.01)
    assert end.min() >= 1 - 1e-9


@pytest.mark.parametrize("ratio", [1, 2])
def test_spraying_is_ideal_on_four_symmetric_tiers(ratio: int) -> None:
    """A designed tree of four tiers in zones is sprayed within 1 % of the ideal, hashing is not.

    The ideal is the design's oversubscription.
    """
    pod = {"leaf_bundle": 1, "rails_per_pod": 1, "domains_per_pod": 4, "spine_up": 4, "spine_bundle": 1}
    zone = {"rails_per_zone": 1, "domains_per_zone": 16, "core_up": 4 // ratio, "core_bundle": 1}
    d = Design(ports=8, rails=1, racks=512, leaf_down=4, leaf_up=4, **pod, **zone)
    assert (d.zones, d.core_oversubscription, unwirable(d, cross_rail=True)) == (8, ratio, [])
    tree = tree_of_design(d, cable_rate=1.0, host_rate=1.0).tree
    # Everyone sends to the zone after its own: all flows cross the super-spines.
    crossing = Flows(source=tree.slots, target=np.roll(tree.slots, -64), size=np.ones(512))
    sprayed, ideal = static_tail_seconds(routed(tree, crossing, "spray", 0)), ideal_seconds(tree, crossing)
    assert sprayed == pytest.approx(ideal, rel=0.01) == pytest.approx(ratio, rel=0.01)
    assert static_tail_seconds(routed(tree, crossing, "ecmp", 0)) > 1.5 * ideal
    failed = static_tail_seconds(routed(tree, crossing, "spray", 0, 4))
    assert ideal < failed < 4 * ideal


def test_spraying_path_by_path_is_spraying_by_symmetry() -> None:
    """Shares over every bundle give each flow the rate that the merged links of the tree give it."""
    tree = k_ary(8, 2, plane_shares=(0.25, 0.5))
    flows = permutation(tree.slots, 1.0, 5)
    apart = completion_seconds(spray(tree, flows, Alive(tree, np.empty(0, np.int64))))
    assert completion_seconds(spray(tree, flows)) == pytest.approx(apart, rel=1e-9)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000), st.integers(0, 12), st.sampled_from(["ecmp", "spray", "adaptive"]))
def test_no_transport_beats_the_ideal_and_failures_never_help(seed: int, failed: int, transport: TransportName) -> None:
    """The ideal is the fullest cut of the tree as built, which no routing and no failure relieves.

    Of single flows nothing of the kind holds: what one loses to a failed link another may win.
    """
    tree = k_ary(8)
    ideal = ideal_seconds(tree, permutation(tree.slots, 1.0, seed))
    assert tail(tree, "spray", seed) == pytest.approx(ideal)
    try:
        slowest = tail(tree, transport, seed, failed)
    except InputError as refusal:
        # Six links of one leaf at once cut it off: then there is no tail to compare, and the refusal says so.
        assert failed >= 4 and "no path leads" in str(refusal)
        return
    assert slowest >= ideal * (1 - 1e-9)


def test_a_leaf_that_is_cut_off_is_refused() -> None:
    """With the six failed links of this seed no path leads out of a leaf; each transport says so."""
    tree = k_ary(8)
    for transport in ("ecmp", "spray", "adaptive"):
        with pytest.raises(InputError, match="no path leads"):
            tail(tree, transport, 140, 6)


def test_a_failed_uplink_slows_spraying_by_what_is_left() -> None:
    """Of a leaf's four uplinks one fails: its four flows take 4/3 of the time."""
    tree = tree_of_fabric(Fabric(hosts=8, ports_per_switch=8, tiers=2, host_gbps=8e-9))
    flows = Flows(source=np.arange(4), target=np.arange(4, 8), size=np.ones(4))
    assert completion_seconds(spray(tree, flows, Alive(tree, np.asarray([2])))) == pytest.approx([4 / 3] * 4)
    for seed in range(10):
        assert len(np.unique(ecmp(tree, flows, seed, Alive(tree, np.asarray([2]))).link)) >= 2 * 4 + 2


def test_a_slow_plane_holds_up_what_does_not_see_it() -> None:
    """With planes of 0.3, 0.3, 0.3 and 0.1 an even split takes 2.5 times as long as its rate allows.

    Hosts that see their own ports load the slow plane least, but not what meets on its way down.
    """
    tree = k_ary(8, plane_shares=(0.3, 0.3, 0.3, 0.1))
    assert tail(tree, "spray", 0) == pytest.approx(2.5)
    assert tail(tree, "ecmp", 0) >= 2.5
    assert tail(tree, "adaptive", 0) < tail(tree, "ecmp", 0)


# Tail over line-rate time, by packets, mean of 3 seeds: scripts/verify/packets.py.
BY_PACKETS = {1: 2.59, 2: 4.06, 4: 6.41}


@pytest.mark.parametrize("ratio", sorted(BY_PACKETS))
def test_adaptive_tails_are_those_by_packets(ratio: int) -> None:
    """Switches that see their own outputs alone are within 15 % of packets, and between spraying and hashing."""
    tree = k_ary(8, ratio)
    found = [tail(tree, "adaptive", seed) for seed in range(3)]
    assert np.mean(found) == pytest.approx(BY_PACKETS[ratio], rel=0.15)
    for seed, own in enumerate(found):
        assert tail(tree, "spray", seed) < own <= tail(tree, "ecmp", seed)


def test_a_switch_sees_its_own_outputs_alone() -> None:
    """Two flows to one host's leaf from leaves of their own may meet on the way down; from one leaf they part.

    A view of the whole path would part both.
    """
    tree, met = tree_of_fabric(Fabric(hosts=8, ports_per_switch=4, tiers=2, host_gbps=8e-9)), []
    for source in ([0, 1], [0, 2]):
        flows = Flows(source=np.asarray(source), target=np.asarray([6, 7]), size=np.ones(2))
        met.append(max(flow_seconds(routed(tree, flows, "adaptive", seed), 2).max() for seed in range(8)))
    assert met[0] == pytest.approx(1.0)
    assert met[1] > 1.2


@pytest.mark.parametrize("transport", ["ecmp", "spray", "adaptive"])
def test_no_path_left_is_an_error(transport: TransportName) -> None:
    """When all of a leaf's uplinks fail, the message names the leaf."""
    tree = tree_of_fabric(Fabric(hosts=8, ports_per_switch=8, tiers=2))
    flows = permutation(tree.slots, 1.0, 0)
    with pytest.raises(InputError, match=r"no path leads .*leaf 0.*fail fewer links"):
        routed(tree, flows, transport, 0, [0, 1, 2, 3])


def test_too_many_failures_or_unknown_cables_are_errors() -> None:
    """There are 8 cables between the leaves and spines: a ninth cannot fail, and there is no cable 8."""
    tree = tree_of_fabric(Fabric(hosts=8, ports_per_switch=8, tiers=2))
    flows = permutation(tree.slots, 1.0, 0)
    with pytest.raises(InputError, match="from 0 to 8"):
        routed(tree, flows, "ecmp", 0, 9)
    with pytest.raises(InputError, match="8 is not the number of a cable"):
        routed(tree, flows, "ecmp", 0, [8])


def test_dice_do_not_change() -> None:
    """Hashes are those of SplitMix64, so that a plan's factor replays anywhere."""
    assert [int(x) for x in words(np.arange(3))] == [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1, 0x975835DE1C9756CE]
    assert sorted(order(50, 1).tolist()) == list(range(50))
    assert order(50, 1).tolist() != order(50, 2).tolist()
