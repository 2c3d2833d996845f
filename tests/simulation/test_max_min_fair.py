"""Max-min fairness: against exact filling, by its certificate, and the completion times that follow from it."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import fill, networks, routes_of

from planner.simulation.fat_tree import Fabric, tree_of_fabric
from planner.simulation.max_min_fair import binding, completion_seconds, max_min_rates, static_tail_seconds
from planner.simulation.run import routed
from planner.simulation.traffic import permutation

Network = tuple[list[list[tuple[int, Fraction]]], list[Fraction]]


def floats(network: Network) -> tuple[list[list[tuple[int, float]]], list[float]]:
    """Return a network in floating point."""
    links, capacity = network
    return [[(k, float(w)) for k, w in x] for x in links], [float(c) for c in capacity]


@settings(deadline=None, max_examples=150)
@given(networks())
def test_rates_are_those_of_exact_filling(network: Network) -> None:
    """Rates equal progressive filling in fractions, weights and all."""
    assert max_min_rates(routes_of(*floats(network))) == pytest.approx([float(x) for x in fill(*network)], rel=1e-9)


@settings(deadline=None, max_examples=150)
@given(networks(most_links=20, most_flows=20))
def test_links_that_cannot_fill_change_no_rate(network: Network) -> None:
    """Without them every flow has the rate that it has with them, and still a link of its own."""
    r = routes_of(*floats(network))
    few = binding(r)
    assert len(few.link) <= len(r.link) and (np.diff(few.start) > 0).all()
    assert max_min_rates(few) == pytest.approx(max_min_rates(r), rel=1e-9)


@settings(deadline=None, max_examples=100)
@given(networks(most_links=40, most_flows=120))
def test_every_flow_has_a_bottleneck(network: Network) -> None:
    """No link is over its rate, and every flow has a full link on which no flow is faster.

    The certificate of max-min fairness.
    """
    r = routes_of(*floats(network))
    rate, owner = max_min_rates(r), r.owner()
    load = r.load(rate)
    assert (load <= r.capacity * (1 + 1e-9)).all()
    fastest = np.zeros(len(r.capacity))
    np.maximum.at(fastest, r.link, rate[owner])
    bottleneck = (load >= r.capacity * (1 - 1e-9))[r.link] & (rate[owner] >= fastest[r.link] * (1 - 1e-9))
    assert set(owner[bottleneck].tolist()) == set(range(r.parts))


@settings(deadline=None, max_examples=60)
@given(networks(), st.randoms(use_true_random=False))
def test_bytes_are_conserved_and_no_link_is_outrun(network: Network, random: object) -> None:
    """Rates integrated up to each completion give each flow's bytes.

    The last completion is no earlier than any link's load allows.
    """
    links, capacity = floats(network)
    size = [random.choice([1.0, 2.0, 3.0, 7.0]) for _ in links]  # type: ignore[attr-defined]
    r = routes_of(links, capacity, size)
    end = completion_seconds(r)
    sent, now = np.zeros(r.parts), 0.0
    for then in np.unique(end):
        active = np.flatnonzero(end > now)
        sent[active] += max_min_rates(r, active)[active] * (then - now)
        now = then
    assert sent == pytest.approx(size, rel=1e-6)
    assert end.max() >= static_tail_seconds(r) * (1 - 1e-9)


@settings(deadline=None, max_examples=60)
@given(networks())
def test_equal_flows_end_with_the_most_loaded_link(network: Network) -> None:
    """With equal flows the last completion is the largest load over capacity, on any network."""
    r = routes_of(*floats(network))
    assert completion_seconds(r).max() == pytest.approx(static_tail_seconds(r), rel=1e-7)


@settings(deadline=None, max_examples=60)
@given(networks(), st.sampled_from([0.01, 0.5]))
def test_coarse_events_leave_the_tail_of_equal_flows(network: Network, resolution: float) -> None:
    """Completions that are kept apart coarsely move no tail of equal flows.

    No flow ends before its link rates allow.
    """
    r = routes_of(*floats(network))
    coarse = completion_seconds(r, resolution=resolution)
    assert coarse.max() == pytest.approx(static_tail_seconds(r), rel=1e-7)
    alone = np.minimum.reduceat(r.capacity[r.link] / r.weight, r.start[:-1])
    assert (coarse >= r.size / alone * (1 - 1e-9)).all()


def test_freed_rate_is_shared_out() -> None:
    """Two flows on one link of 1 byte/s: the one of 1 byte ends at 2 s, that of 3 bytes, alone from there, at 4 s."""
    assert completion_seconds(routes_of([[(0, 1.0)], [(0, 1.0)]], [1.0], [1.0, 3.0])) == pytest.approx([2.0, 4.0])


@pytest.mark.parametrize("ports", [8, 16])
@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_hashed_tail_is_the_largest_number_of_flows_on_a_link(ports: int, ratio: int) -> None:
    """On the k-ary tree the tail of a permutation under ECMP is the largest number of flows that share a cable."""
    tree = tree_of_fabric(
        Fabric(hosts=ports**3 // 4, ports_per_switch=ports, oversubscription=(ratio,), host_gbps=8e-9)
    )
    for seed in range(2):
        r = routed(tree, permutation(tree.slots, 1.0, seed), "ecmp", seed)
        assert completion_seconds(r).max() == pytest.approx(np.bincount(r.link).max(), rel=1e-9)
