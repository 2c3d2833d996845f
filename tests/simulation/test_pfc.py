"""Pauses.

They are lossless, match packet-level figures where those are known, and spread to flows that fair sharing spares.
"""

import numpy as np
import pytest

from planner.errors import InputError
from planner.simulation.fat_tree import Fabric, tree_of_fabric
from planner.simulation.live_cables import Flows
from planner.simulation.max_min_fair import completion_seconds, static_tail_seconds
from planner.simulation.pfc import Pauses, incast, spread
from planner.simulation.routing import ecmp
from planner.simulation.run import routed
from planner.simulation.traffic import permutation

SIZE, LINE = 24e6, 240e-6  # bytes, and seconds at 800 Gbps
# Tail over line-rate time of a packet-level simulator: 128 hosts, 24 MB flows, RoCE with ECMP and PFC, mean of 5 seeds.
PACKETS = {1: 5.0, 2: 6.7, 4: 8.8}


def flows_of(pairs: list[tuple[int, int]]) -> Flows:
    """Return flows of 24 MB."""
    return Flows(
        source=np.asarray([a for a, _ in pairs]),
        target=np.asarray([b for _, b in pairs]),
        size=np.full(len(pairs), SIZE),
    )


def test_a_flow_alone_is_not_paused() -> None:
    """One flow ends at line rate, less a step for each hop, and nothing is paused."""
    tree = tree_of_fabric(Fabric(hosts=128, ports_per_switch=8))
    found = spread(tree, ecmp(tree, flows_of([(0, 127)]), 0), np.asarray([0]))
    assert LINE <= found.end[0] <= LINE + 7 * Pauses().step_seconds
    assert (found.paused, found.share.max()) == ((0, 0, 0), 0.0)


def test_two_into_one_pause_the_senders() -> None:
    """Two hosts of one leaf that send to a third take twice the line-rate time, their host links paused half of it."""
    tree = tree_of_fabric(Fabric(hosts=128, ports_per_switch=8))
    routes = ecmp(tree, flows_of([(0, 2), (1, 2)]), 0)
    found = spread(tree, routes, np.arange(2))
    assert found.end == pytest.approx([2 * LINE] * 2, rel=0.02)
    assert found.paused == (2, 0, 0)
    assert found.share[found.share > 0] == pytest.approx([0.5, 0.5], abs=0.05)


def test_an_incast_slows_a_flow_that_only_crosses_it() -> None:
    """Six hosts send to host 4; host 3's flow to host 5 shares an uplink with three of them and waits.

    Shared fairly it has half of the uplink, since the receiver holds the three to half together.
    """
    tree = tree_of_fabric(Fabric(hosts=8, ports_per_switch=8, tiers=2, oversubscription=(4,)))
    routes = ecmp(tree, flows_of([(3, 5), (0, 4), (1, 4), (2, 4), (5, 4), (6, 4), (7, 4)]), 0)
    fair = completion_seconds(routes)[0]
    assert fair == pytest.approx(2 * LINE)
    assert spread(tree, routes, np.asarray([0])).end[0] > 1.5 * fair


@pytest.mark.parametrize("ratio", sorted(PACKETS))
def test_hashed_tails_are_those_of_a_packet_level_simulator(ratio: int) -> None:
    """With pauses the mean tail under ECMP is within 15 % of packet-level figures.

    Never below what the links allow.
    """
    tree, found = tree_of_fabric(Fabric(hosts=128, ports_per_switch=8, oversubscription=(ratio,))), []
    for seed in range(8):
        routes = routed(tree, permutation(tree.slots, SIZE, seed), "ecmp", seed)
        found.append(spread(tree, routes, np.arange(128)).end.max())
        assert found[-1] >= static_tail_seconds(routes)
    assert np.mean(found) / LINE == pytest.approx(PACKETS[ratio], rel=0.15)


def test_an_incast_needs_hosts_and_time() -> None:
    """Too many hosts, or too few steps, end in a message with both numbers."""
    tree = tree_of_fabric(Fabric(hosts=128, ports_per_switch=8))
    with pytest.raises(InputError, match=r"100 hosts .* 28 senders .* 128 hosts"):
        incast(tree, nodes=100, senders=28, size=SIZE, sent=SIZE, seed=0)
    flows, waited = incast(tree, nodes=100, senders=27, size=SIZE, sent=SIZE, seed=0)
    assert len(set(flows.source.tolist())) == 127
    assert set(flows.target[100:].tolist()).isdisjoint(flows.source.tolist())
    with pytest.raises(InputError, match="have not ended after 5e-06 s"):
        spread(tree, ecmp(tree, flows, 0), waited, Pauses(max_steps=10))
