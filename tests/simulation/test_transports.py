"""The transports, queues and pauses: ideal where nothing fails, and as far from it as packet-level figures are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st
from incast_flows import incast
from tiers import slow

from planner.errors import InputError
from planner.physics import ticking
from planner.physics.network.clos_fabric import Design
from planner.simulation import flow_times, simulated_routes
from planner.simulation.flow_times import LocalView, Pauses, Queues, TransportName, flow_seconds, ideal_seconds, spread
from planner.simulation.simulate import alltoall, tree_of_design
from planner.simulation.simulated_routes import Alive, Flows, Tree, ecmp, equal_flows, failed_cables, permutation, spray

# Mean of 40 seeds of the largest number of flows on one link, random permutation on a k-ary tree of three tiers,
# counted by hand-written code.
COUNTED = {(8, 1): 4.3, (8, 2): 5.8, (8, 4): 7.9, (16, 1): 5.8, (16, 2): 7.7, (16, 4): 10.8}


def fabric(**numbers: Any) -> Tree:
    """Return the tree of a fabric by its numbers."""
    return simulated_routes.tree_of_fabric(simulated_routes.Fabric(**numbers))


def k_ary(ports: int, ratio: float = 1.0, **more: object) -> Tree:
    """Return the tree of three tiers with hosts of 1 byte/s."""
    return fabric(hosts=ports**3 // 4, ports_per_switch=ports, oversubscription=(ratio,), host_gbps=8e-9, **more)


SIZE = 6e6


def tail(tree: Tree, transport: TransportName, seed: int, failed: int = 0) -> float:
    """Return when the last flow of a random permutation of 6 MB ends, over its time at line rate."""
    return float(flow_seconds(tree, permutation(tree.slots, SIZE, seed), transport, seed, failed).max()) / SIZE


@each("transport", ["spray", "ecmp", "adaptive"])
def test_a_flow_to_its_own_host_ends_at_once(transport: TransportName) -> None:
    own, other = flow_seconds(k_ary(4), flows_of((0, 0), (1, 2), size=SIZE), transport, seed=0)
    assert own == 0.0 and other == pytest.approx(SIZE, rel=0.05)


def two_tiers(hosts: int, ratio: float = 1.0) -> Tree:
    """Return the tree of leaves and spines of eight ports, whose hosts send 100 GB/s."""
    return fabric(hosts=hosts, ports_per_switch=8, tiers=2, oversubscription=(ratio,))


def flows_of(*pairs: tuple[int, int], size: float = 24e6) -> Flows:
    """Return flows of one size between hosts."""
    source, target = np.asarray(pairs, np.int64).T
    return equal_flows(source, target, size)


@pytest.mark.parametrize(("ports", "ratio"), [c if c[0] < 16 else slow(c)[0] for c in sorted(COUNTED)])
def test_hashing_is_as_far_from_ideal_as_counted(ports: int, ratio: int) -> None:
    """The mean of the fullest link of 40 seeds is within 15 % of static counts, balls into bins within 5 %."""
    tree = k_ary(ports, ratio)
    full = [ecmp(tree, permutation(tree.slots, 1.0, seed), seed).fullest_seconds() for seed in range(40)]
    mean = float(np.mean(full))
    assert mean == pytest.approx(COUNTED[ports, ratio], rel=0.15)
    assert mean == pytest.approx(flow_times.mean_fullest(tree, tree.hosts), rel=0.05)


@each("ratio", [1, 2])
def test_spraying_is_ideal_on_four_symmetric_tiers(ratio: int) -> None:
    """A designed tree of four tiers in zones is sprayed within 1 % of the ideal, hashing is not."""
    pod = {"leaf_bundle": 1, "rails_per_pod": 1, "domains_per_pod": 4, "spine_up": 4, "spine_bundle": 1}
    zone = {"rails_per_zone": 1, "domains_per_zone": 16, "core_up": 4 // ratio, "core_bundle": 1}
    rates = {"nic_gbps": 8e-9, "link_gbps": 8e-9}  # a byte per second
    d = Design(ports=8, rails=1, racks=512, leaf_down=4, leaf_up=4, **rates, **pod, **zone)
    assert (d.zones, d.oversubscription["core"], d.faults()) == (8, ratio, [])
    tree = tree_of_design(d).tree
    # Everyone sends to the zone after its own: all flows cross the super-spines.
    crossing = equal_flows(tree.slots, np.roll(tree.slots, -64), 1.0)
    sprayed, ideal = spray(tree, crossing).fullest_seconds(), ideal_seconds(tree, crossing)
    assert sprayed == pytest.approx(ideal, rel=0.01) == pytest.approx(ratio, rel=0.01)
    assert ecmp(tree, crossing, 0).fullest_seconds() > 1.5 * ideal
    assert ideal < spray(tree, crossing, Alive(tree, failed_cables(tree, 4, 0))).fullest_seconds() < 4 * ideal


def test_packets_by_lot_fill_cables_as_balls_fill_bins() -> None:
    """What the fullest cable is behind its equals is what counting packets dealt out by lot finds, within 15 %."""
    tree = k_ary(8)
    flows = equal_flows(tree.slots, np.roll(tree.slots, 64), 1.0)
    lot, most = np.random.default_rng(0), []
    for _ in range(20):
        up = lot.multinomial(4000, [0.25] * 4, size=64).max()  # four hosts of a leaf, 1,000 packets each, four uplinks
        pod = lot.multinomial(16_000, [1 / 16] * 16, size=16).max()  # a pod's 16 links to and 16 from the cores
        most.append(max(up, pod) / 1000 - 1)
    assert flow_times.lot_seconds(tree, spray(tree, flows), 1e-3) == pytest.approx(np.mean(most), rel=0.15)


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 1000), st.integers(0, 6), st.sampled_from(["ecmp", "spray", "adaptive"]))
def test_no_transport_beats_the_ideal_and_failures_never_help(seed: int, failed: int, transport: TransportName) -> None:
    """The ideal is the fullest cut of the tree as built, which no routing and no failure relieves."""
    # Of single flows nothing of the kind holds: what one loses to a failed link another may win.
    tree = k_ary(6)
    ideal = ideal_seconds(tree, permutation(tree.slots, 1.0, seed))
    assert ideal <= tail(tree, "spray", seed) <= 1.15 * ideal
    try:
        slowest = tail(tree, transport, seed, failed)
    except InputError as refusal:
        # All links of one leaf at once cut it off: then there is no tail to compare, and the refusal says so.
        assert failed >= 3 and "no path leads" in str(refusal)
        return
    assert slowest >= ideal * (1 - 1e-9)


def test_a_failed_uplink_slows_spraying_by_what_is_left() -> None:
    """Of a leaf's four uplinks one fails: its four flows take 4/3 of the time."""
    tree, flows = two_tiers(8), equal_flows(np.arange(4), np.arange(4, 8), SIZE)
    less = 4 / 3 * SIZE / tree.host_rate
    assert spray(tree, flows, Alive(tree, np.asarray([2]))).fullest_seconds() == pytest.approx(less)
    assert flow_seconds(tree, flows, "spray", 0, [2]) == pytest.approx([less] * 4, rel=0.1)


def test_a_slow_plane_holds_up_what_does_not_see_it() -> None:
    """With planes of 0.3, 0.3, 0.3 and 0.1 an even split takes 2.5 times as long as its rate allows."""
    # Hosts that see their own ports load the slow plane least, but not what meets on its way down.
    tree = k_ary(8, plane_shares=(0.3, 0.3, 0.3, 0.1))
    assert tail(tree, "spray", 0) == pytest.approx(2.5, rel=0.1)
    assert tail(tree, "ecmp", 0) >= 2.5
    assert tail(tree, "adaptive", 0) < tail(tree, "ecmp", 0)


# Tail over line-rate time, by packets, mean of 3 seeds, 24 MB: scripts/verify/packets.py. Oversubscription first.
BY_PACKETS: dict[tuple[int, TransportName], float] = {
    (1, "ecmp"): 5.10, (1, "adaptive"): 2.59, (1, "spray"): 1.13,
    (2, "ecmp"): 5.99, (2, "adaptive"): 4.06, (2, "spray"): 2.48,
    (4, "ecmp"): 7.51, (4, "adaptive"): 6.41, (4, "spray"): 4.78,
}  # fmt: skip


@pytest.mark.parametrize(("ratio", "transport"), sorted(BY_PACKETS))
def test_tails_are_those_by_packets(ratio: int, transport: TransportName) -> None:
    """Plans and `simulate` are within 10 % of packets under every transport."""
    tree = fabric(hosts=128, ports_per_switch=8, oversubscription=(ratio,))
    flows = [permutation(tree.slots, 24e6, seed) for seed in range(3)]
    ends = [flow_seconds(tree, f, transport, seed, packet_bytes=16e3).max() for seed, f in enumerate(flows)]
    assert np.mean(ends) * tree.host_rate / 24e6 == pytest.approx(BY_PACKETS[ratio, transport], rel=0.1)


def test_a_switch_sees_its_own_outputs_alone() -> None:
    """A flowlet goes by the spine before whose uplink the least waits, and does not see what waits behind it."""
    tree = fabric(hosts=8, ports_per_switch=4, tiers=2, host_gbps=8e-9)
    flows, chosen = flows_of((0, 7), size=SIZE), {}
    for waits in ("up", "down"):
        for seed in range(8):
            view = LocalView(tree, flows, Alive(tree, np.empty(0, np.int64)), seed, 4096.0)
            queue, links = np.zeros(len(view.capacity)), view.routes.link.copy()
            leaf = 0 if waits == "up" else 3
            queue[tree.link(tree.cable(1, leaf, 0), down=waits == "down", plane=0)] = 1e6
            for hop in (0, 1):  # at the host, then at the leaf
                view.choose_links(np.asarray([hop]), view.routes.owner(), links, queue)
            chosen.setdefault(waits, set()).add(int(links[1] - tree.cable(1, 0, 0)))
    assert chosen == {"up": {1}, "down": {0, 1}}


@each(("transport", "failed", "message"), [
    *((x, [0, 1, 2, 3], r"no path leads .*leaf 0.*fail fewer links") for x in ("ecmp", "spray", "adaptive")),
    ("ecmp", 9, "from 0 to 8"), ("ecmp", -1, "from 0 to 8"), ("ecmp", [8], "8 is not the number of a cable"),
])  # fmt: skip
def test_failures_that_leave_no_path_or_no_cable_are_errors(transport, failed, message):
    """All of a leaf's uplinks, and more cables than the 8 between leaves and spines or one that is not there."""
    tree = two_tiers(8)
    with pytest.raises(InputError, match=message):
        flow_seconds(tree, permutation(tree.slots, 1.0, 0), transport, 0, failed)


def test_dice_do_not_change() -> None:
    """Hashes are those of SplitMix64, so that a plan's factor replays anywhere."""
    words = [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1, 0x975835DE1C9756CE]
    assert [int(x) for x in simulated_routes.words(np.arange(3))] == words
    assert sorted(simulated_routes.order(50, 1).tolist()) == list(range(50))
    assert simulated_routes.order(50, 1).tolist() != simulated_routes.order(50, 2).tolist()


RATE = 100e9  # of a host, bytes per second
UNPAUSED = Pauses(xoff_bytes=1e18, xon_bytes=1e18, step_seconds=0.25e-6)
LINE = 240e-6  # seconds of 24 MB at 800 Gbps


@each(("pairs", "times", "paused"), [([(0, 127)], 1, 0), ([(0, 2), (1, 2)], 2, 2)])
def test_senders_are_paused_where_two_meet(pairs: list[tuple[int, int]], times: int, paused: int) -> None:
    """A flow alone takes its time at line rate, two hosts of a leaf that send to a third twice that, paused in turn."""
    # The clock is looked at whether or not steps are taken: hundreds of runs end where their limit passes.

    def passed() -> None:
        raise TimeoutError

    routes = ecmp(fabric(hosts=128, ports_per_switch=8), flows_of(*pairs), 0)
    end, most_paused = spread(routes, RATE, np.arange(len(pairs)))
    assert end == pytest.approx([times * LINE] * len(pairs), rel=0.02) and (end >= LINE).all()
    assert most_paused == paused
    with ticking(passed), pytest.raises(TimeoutError):
        spread(routes, RATE, np.arange(len(pairs)))


def test_bytes_leave_a_switch_in_the_order_in_which_they_came() -> None:
    """A short flow ends once its bytes and as many of a long one are through, behind what its link was paused with."""
    tree = two_tiers(8)
    both = Flows(source=np.asarray([0, 1]), target=np.asarray([2, 2]), size=np.asarray([1e6, 24e6]))
    short = flow_seconds(tree, both, "ecmp", 0)[0] * tree.host_rate
    assert 2e6 <= short <= 2e6 + 3 * Pauses().xoff_bytes


@each("failed", [0, 2])
def test_flows_that_fare_alike_are_followed_as_one(failed: int) -> None:
    """An all-to-all of 9,900 flows under 2:1 has the ends of each flow followed by itself, around failures too."""
    tree = fabric(hosts=100, ports_per_switch=8, oversubscription=(2,))
    flows = alltoall([tree.slots], 3e6)
    routes = spray(tree, flows, Alive(tree, failed_cables(tree, failed, 0)) if failed else None)
    followed, kind = routes.classes() or (routes, None)
    ends, each_one = (spread(x, RATE, np.arange(x.parts))[0] for x in (followed, routes))
    assert kind is not None and followed.parts < 400 and np.unique(each_one).size > 2
    assert ends[kind] == pytest.approx(each_one, rel=1e-12)


def test_an_incast_slows_a_flow_that_only_crosses_it() -> None:
    """Six hosts send to host 4; host 3's flow to host 5 shares an uplink with three of them and waits."""
    # Shared fairly it has half of the uplink, since the receiver holds the three to half together.
    routes = ecmp(two_tiers(8, 4), flows_of((3, 5), *((x, 4) for x in (0, 1, 2, 5, 6, 7))), 0)
    assert spread(routes, RATE, np.asarray([0]))[0][0] > 1.5 * 2 * LINE


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 1000), st.sampled_from([1, 2]), st.integers(0, 6))
def test_without_pauses_the_fullest_link_ends_last(seed: int, ratio: int, failed: int) -> None:
    """Queues that are never paused keep the fullest link busy but for what comes late, however a flow is split."""
    # No sharing ends sooner than it; queues in the order of arrival do not share max-min fairly, so some end later.
    tree = two_tiers(16, ratio)
    flows = permutation(tree.slots, 2.4e6, seed)
    alive = Alive(tree, failed_cables(tree, min(failed, 1 if ratio == 2 else 3), seed))
    for routes in (ecmp(tree, flows, seed), spray(tree, flows), spray(tree, flows, alive)):
        end = spread(routes, RATE, np.arange(routes.parts), UNPAUSED)[0].max()
        assert routes.fullest_seconds() <= end * (1 + 1e-9) <= routes.fullest_seconds() * 1.2 + 2e-6


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 1000))
def test_bytes_are_conserved_and_no_link_is_outrun(seed: int) -> None:
    tree = two_tiers(16, 2)
    routes = ecmp(tree, permutation(tree.slots, 2e6, seed), seed)
    q = Queues(routes, RATE, Pauses(xoff_bytes=1e5, xon_bytes=5e4), None)
    for _ in range(100):
        before, missing = np.bincount(q.link, q.waiting, len(q.room)), q.missing.copy()
        paused = q.paused.copy()
        q.step()
        assert np.bincount(q.owner, q.waiting, routes.parts) == pytest.approx(q.missing, abs=1e-3)
        last = np.bincount(q.link[q.last], (missing - q.missing)[q.owner[q.last]], len(q.room))
        assert (last <= np.where(paused, 0.0, np.minimum(q.room, before)) + 1e-3).all()


class EveryLink(Queues):
    """Queues that keep the links on which nothing can wait."""

    def _drop_idle_ends(self) -> None:
        pass


@settings(deadline=None, max_examples=24)
@given(st.integers(0, 1000), st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.booleans())
def test_steps_and_links_without_a_queue_are_left_out(seed: int, ratio: int, planes: int, hashed: bool) -> None:
    """The ends are those of every step taken on every link, also where queues pause links."""
    tree = replace(two_tiers(24, ratio), planes=(1 / planes,) * planes)
    sizes = np.random.default_rng(seed).choice([3e4, 7e5, 2e6], 24)
    flows = replace(permutation(tree.slots, 2e6, seed), size=sizes)
    routes = ecmp(tree, flows, seed) if hashed else spray(tree, flows)
    q = EveryLink(routes, RATE / planes, Pauses(), None)
    alone, end = q.steps_without_a_queue(), np.full(routes.parts, np.inf)
    assert ratio > 1 or hashed or alone is not None
    for step in range(1, 900):
        q.step()
        end[np.isinf(end) & (q.missing <= flow_times.DONE * routes.size)] = step
    assert np.isfinite(end).all()
    assert alone is None or alone.tolist() == end.tolist()
    found = spread(routes, RATE / planes, np.arange(routes.parts))[0]
    assert found == pytest.approx(end * Pauses().step_seconds, rel=1e-12)


def test_an_incast_needs_hosts_and_time() -> None:
    tree = fabric(hosts=128, ports_per_switch=8)
    given = {"nodes": 100, "size": 24e6, "sent": 24e6, "seed": 0}
    with pytest.raises(InputError, match=r"100 hosts .* 28 senders .* 128 hosts"):
        incast(tree, senders=28, **given)
    flows, waited = incast(tree, senders=27, **given)
    assert len(set(flows.source.tolist())) == 127
    assert set(flows.target[100:].tolist()).isdisjoint(flows.source.tolist())
    with pytest.raises(InputError, match="have not ended after 5e-06 s"):
        spread(ecmp(tree, flows, 0), RATE, waited, Pauses(max_steps=10))
