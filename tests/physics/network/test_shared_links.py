"""Links that pipeline sends and rings share: loads that add, against flows that share cables fairly."""

from fractions import Fraction

import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.physics.network import transport
from planner.physics.network.clos_fabric import Design
from planner.simulation import simulate
from planner.simulation.flow_times import flow_seconds
from planner.simulation.simulate import part_of_design
from planner.simulation.simulated_routes import joined

loads = st.fractions(0, 8).map(float)
LEVELS = "leaf", "pod", "zone"


def test_thirty_six_sends_and_thirty_rings_on_as_many_uplinks_as_sends() -> None:
    """Alone neither is slowed; together an uplink carries 66 flows on 36, and a NIC two."""
    found = transport.shared_links(1.0, {"leaf": 36 / 36}, {"leaf": 30 / 36})
    assert found["leaf"] == pytest.approx((1.0, 1.0, Fraction(66, 36)))
    assert found["nic"] == (1.0, 1.0, 2.0)


@settings(max_examples=50)
@given(st.lists(st.tuples(loads, loads), min_size=3, max_size=3), st.sampled_from([1.0, 1.05, 6.0]))
def test_together_is_no_faster_than_alone_and_no_slower_than_one_behind_the_other(pairs, phi):
    """So a time with the factors alone bounds one with those together from below, and their sum does from above."""
    sends, rings = ({name: pair[k] for name, pair in zip(LEVELS, pairs, strict=True)} for k in (0, 1))
    found = transport.shared_links(phi, sends, rings).values()
    assert all(max(send, ring) <= both <= (send + ring) * (1 + 1e-12) for send, ring, both in found)
    worst = [max(x[k] for x in found) for k in range(3)]
    assert max(worst[:2]) <= worst[2] <= (worst[0] + worst[1]) * (1 + 1e-12)


@st.composite
def designs(draw: st.DrawFn) -> Design:
    """Draw a tree of one to three tiers, whether its ports suffice or not."""
    tiers = draw(st.integers(1, 3))
    count = st.integers(1, 8)
    own = {"ports": 64, "rails": draw(count), "racks": draw(st.integers(1, 40)), "leaf_down": draw(count)}
    if tiers > 1:
        bundle = draw(st.integers(1, 2))
        own |= {"leaf_up": bundle * draw(count), "leaf_bundle": bundle, "domains_per_pod": draw(count)}
        own |= {"rails_per_pod": draw(st.integers(1, own["rails"]))}
    if tiers > 2:
        own |= {"spine_up": draw(count), "spine_bundle": 1}
    return Design(**own)


@given(
    designs(), st.lists(st.floats(0, 1), min_size=3, max_size=3), st.lists(st.integers(0, 20), min_size=3, max_size=3)
)
def test_factors_alone_are_the_worst_of_their_links(d: Design, shares: list[float], groups: list[int]) -> None:
    """What the search times sends and rings by alone is the largest of what the plan states of their links."""
    free = transport.FreeUplinks(leaf=0.5, pod=0.75)
    found = transport.shared_links(
        1.05, transport.send_loads(d, shares, free), transport.ring_loads(d, groups, free)
    ).values()
    assert max(x[0] for x in found) == transport.pipeline_send_slowdown(1.05, d, *shares, free=free)
    assert max(x[1] for x in found) == transport.allreduce_slowdown(1.05, d, *groups, free=free)


STRIPED, IN_BLOCKS = [list(range(i, 24, 6)) for i in range(6)], [list(range(4 * i, 4 * i + 4)) for i in range(6)]
LEAVES = {"ports": 64, "rails": 2, "racks": 24, "leaf_bundle": 1, "rails_per_pod": 2}
THREE_TIERS = {"domains_per_pod": 2, "spine_up": 1, "spine_bundle": 1}


@each("stages", [STRIPED, IN_BLOCKS])
@each("wiring", [
    {"leaf_down": 6, "leaf_up": 6, "domains_per_pod": 4}, {"leaf_down": 6, "leaf_up": 3, "domains_per_pod": 4},
    {"leaf_down": 8, "leaf_up": 4, "domains_per_pod": 3}, {"leaf_down": 6, "leaf_up": 6, **THREE_TIERS},
])  # fmt: skip
def test_simulated_sends_beside_their_own_rings(stages: list[list[int]], wiring: dict[str, int]) -> None:
    """A stage that sends back beside its ring, sprayed cable by cable, takes the NIC's factor together within 5 %."""
    # So it is no slower than the step says: its own time and as much of the ring's.
    d = Design(**LEAVES, **wiring, nic_gbps=800.0, link_gbps=800.0)
    x = transport.locality(stages, d.block_racks, wrap=False)
    sends = transport.send_loads(d, x.share_leaving)
    links = transport.shared_links(1.0, sends, transport.ring_loads(d, x.allreduces_leaving))
    send, ring = (max(factors[k] for factors in links.values()) for k in (0, 1))
    part, size = part_of_design(d, planes=1), 300e6
    for i in (1, 4):
        own, before = ([part.slots[stages[k], rail] for rail in range(2)] for k in (i, i - 1))
        back = joined([simulate.p2p([a, b], size) for a, b in zip(own, before, strict=True)])
        ends = flow_seconds(part.tree, joined([back, simulate.allreduce(own, 8 * size)]), "spray", 0)[: len(back)]
        took = float(ends.max()) / (size / 100e9)
        assert took == pytest.approx(links["nic"][2], rel=0.05)
        assert took <= 1.05 * (send + float(transport.wait_for_others(1.0, ring, 8.0)))


@each(("up", "times"), [(4, 1.0), (2, 2.0), (1, 4.0)])
def test_links_between_switches_run_at_the_rate_of_ports(up: int, times: float) -> None:
    """Eight NICs of 400 Gb/s send all up over links of 800, sprayed cable by cable: four carry them at line rate."""
    # The fluid times of the simulation are the slowdown that the physics states.
    leaf = {"leaf_down": 8, "leaf_up": up, "leaf_bundle": 1, "rails_per_pod": 1, "domains_per_pod": 2}
    d = Design(ports=64, rails=1, racks=16, **leaf, nic_gbps=400.0, link_gbps=800.0)
    part, size = part_of_design(d, planes=1), 300e6
    flows = simulate.p2p([part.slots[:8, 0], part.slots[8:, 0]], size)
    took = float(flow_seconds(part.tree, flows, "spray", 0).max()) / (size / 50e9)
    assert took == pytest.approx(times, rel=0.05)
    assert transport.pipeline_send_slowdown(1.0, d, 1.0) == times
    assert transport.allreduce_slowdown(1.0, d, 8) == times
