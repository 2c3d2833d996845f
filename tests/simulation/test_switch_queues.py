"""Queues and pauses.

They lose nothing, outrun no link, match packet-level figures, and spread to flows that fair sharing spares.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from incast_flows import incast

from planner.errors import InputError
from planner.physics.num import ticking
from planner.simulation.flow_times import DONE, Pauses, Queues, spread
from planner.simulation.routing import Alive, Fabric, Flows, ecmp, spray, tree_of_fabric
from planner.simulation.traffic import failed_cables, permutation

RATE = 100e9  # of a host, bytes per second
UNPAUSED = Pauses(xoff_bytes=1e18, xon_bytes=1e18, step_seconds=0.25e-6)
SIZE, LINE = 24e6, 240e-6  # bytes, and seconds at 800 Gbps


def flows_of(pairs: list[tuple[int, int]]) -> Flows:
    """Return flows of 24 MB."""
    return Flows(
        source=np.asarray([a for a, _ in pairs]),
        target=np.asarray([b for _, b in pairs]),
        size=np.full(len(pairs), SIZE),
    )


def test_a_flow_alone_is_not_paused() -> None:
    tree = tree_of_fabric(Fabric(hosts=128, ports_per_switch=8))
    found = spread(ecmp(tree, flows_of([(0, 127)]), 0), RATE, np.asarray([0]))
    assert LINE <= found.end[0] <= LINE + 7 * Pauses().step_seconds
    assert (found.most_paused, found.paused.max()) == (0, 0.0)


def test_two_into_one_pause_the_senders() -> None:
    """Two hosts of one leaf that send to a third take twice the line-rate time, their host links paused half of it."""
    tree = tree_of_fabric(Fabric(hosts=128, ports_per_switch=8))
    routes = ecmp(tree, flows_of([(0, 2), (1, 2)]), 0)
    found = spread(routes, RATE, np.arange(2))
    assert found.end == pytest.approx([2 * LINE] * 2, rel=0.02)
    assert found.most_paused == 2
    assert found.paused[found.paused > 0] == pytest.approx([0.5, 0.5], abs=0.05)


def test_an_incast_slows_a_flow_that_only_crosses_it() -> None:
    """Six hosts send to host 4; host 3's flow to host 5 shares an uplink with three of them and waits.

    Shared fairly it has half of the uplink, since the receiver holds the three to half together.
    """
    tree = tree_of_fabric(Fabric(hosts=8, ports_per_switch=8, tiers=2, oversubscription=(4,)))
    routes = ecmp(tree, flows_of([(3, 5), (0, 4), (1, 4), (2, 4), (5, 4), (6, 4), (7, 4)]), 0)
    fair = 2 * LINE
    assert spread(routes, RATE, np.asarray([0])).end[0] > 1.5 * fair


@settings(deadline=None, max_examples=6)
@given(st.integers(0, 1000), st.sampled_from([1, 2]), st.integers(0, 6))
def test_without_pauses_the_fullest_link_ends_last(seed: int, ratio: int, failed: int) -> None:
    """Queues that are never paused keep the fullest link busy but for what comes late, however a flow is split.

    No sharing ends sooner than it; queues in the order of arrival do not share max-min fairly, so some end later.
    """
    tree = tree_of_fabric(Fabric(hosts=16, ports_per_switch=8, tiers=2, oversubscription=(ratio,)))
    flows = permutation(tree.slots, SIZE / 10, seed)
    alive = Alive(tree, failed_cables(tree, min(failed, 1 if ratio == 2 else 3), seed))
    for routes in (ecmp(tree, flows, seed), spray(tree, flows), spray(tree, flows, alive)):
        end = spread(routes, RATE, np.arange(routes.parts), UNPAUSED).end.max()
        assert routes.fullest_seconds() <= end * (1 + 1e-9) <= routes.fullest_seconds() * 1.2 + 2e-6


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 1000))
def test_bytes_are_conserved_and_no_link_is_outrun(seed: int) -> None:
    tree = tree_of_fabric(Fabric(hosts=16, ports_per_switch=8, tiers=2, oversubscription=(2,)))
    routes = ecmp(tree, permutation(tree.slots, 2e6, seed), seed)
    q = Queues(routes, RATE, Pauses(xoff_bytes=1e5, xon_bytes=5e4), None)
    for _ in range(100):
        before, missing = np.bincount(q.link, q.waiting, len(q.room)), q.missing.copy()
        paused = q.paused.copy()
        q.step()
        waits = np.bincount(q.owner, q.waiting, routes.parts)
        assert waits == pytest.approx(q.missing, abs=1e-3)
        last = np.bincount(q.link[q.last], (missing - q.missing)[q.owner[q.last]], len(q.room))
        assert (last <= np.where(paused, 0.0, np.minimum(q.room, before)) + 1e-3).all()


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 1000), st.sampled_from([1, 2]), st.sampled_from([1, 2]))
def test_without_a_queue_the_steps_need_not_be_taken(seed: int, ratio: int, planes: int) -> None:
    """Where no link is offered more than it serves, the ends are those of every step taken; else steps are taken."""
    fabric = Fabric(hosts=24, ports_per_switch=8, tiers=2, oversubscription=(ratio,))
    tree = replace(tree_of_fabric(fabric), planes=(1 / planes,) * planes)
    r = np.random.default_rng(seed)
    flows = permutation(tree.slots, 2e6, seed)
    flows = Flows(source=flows.source, target=flows.target, size=r.choice([3e4, 7e5, 2e6], len(flows)))
    routes = spray(tree, flows)
    q = Queues(routes, RATE / planes, Pauses(), None)
    alone, end = q.steps_without_a_queue(), np.full(routes.parts, np.inf)
    assert ratio > 1 or alone is not None
    for step in range(1, 400):
        q.step()
        end[np.isinf(end) & (q.missing <= DONE * routes.size)] = step
    assert np.isfinite(end).all()
    assert alone is None or alone.tolist() == end.tolist()
    found = spread(routes, RATE / planes, np.arange(routes.parts)).end
    assert found == pytest.approx(end * Pauses().step_seconds, rel=1e-12)


@pytest.mark.parametrize("pairs", [[(0, 2)], [(0, 2), (1, 2)]], ids=["no queue", "a queue"])
def test_the_clock_of_who_asks_ends_it(pairs: list[tuple[int, int]]) -> None:
    """Whether or not steps are taken, the clock is looked at: hundreds of runs end where their limit passes."""

    def passed() -> None:
        raise TimeoutError

    tree = tree_of_fabric(Fabric(hosts=128, ports_per_switch=8))
    with ticking(passed), pytest.raises(TimeoutError):
        spread(ecmp(tree, flows_of(pairs), 0), RATE, np.arange(len(pairs)))


def test_an_incast_needs_hosts_and_time() -> None:
    tree = tree_of_fabric(Fabric(hosts=128, ports_per_switch=8))
    with pytest.raises(InputError, match=r"100 hosts .* 28 senders .* 128 hosts"):
        incast(tree, nodes=100, senders=28, size=SIZE, sent=SIZE, seed=0)
    flows, waited = incast(tree, nodes=100, senders=27, size=SIZE, sent=SIZE, seed=0)
    assert len(set(flows.source.tolist())) == 127
    assert set(flows.target[100:].tolist()).isdisjoint(flows.source.tolist())
    with pytest.raises(InputError, match="have not ended after 5e-06 s"):
        spread(ecmp(tree, flows, 0), RATE, waited, Pauses(max_steps=10))
