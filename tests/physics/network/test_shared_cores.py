"""Cores that spine positions share: every cable has ports of its own, pods stay joined, and losses are told truly."""

import random

import networkx as nx
import pytest
from fabric_graph import graph_of, survives

from planner.checks.network.asked import cut_by
from planner.checks.network.cables import count
from planner.physics.network.cabling import lay
from planner.physics.network.topology import Design, unwirable


def drawn(seed: int) -> Design:
    """Draw a tree of three tiers with cores shared by positions; ports are enough for what it cables."""
    r = random.Random(seed)
    spines, bundle, each = r.randint(1, 4), r.randint(1, 2), r.randint(1, 3)
    rails, rails_per_pod = r.choice([(1, 1), (2, 1), (3, 2)])
    counts = {"leaf_down": 2, "leaf_up": spines * bundle, "leaf_bundle": bundle, "rails_per_pod": rails_per_pod}
    counts |= {"domains_per_pod": r.randint(1, 2), "spine_bundle": r.randint(1, 2), "racks": r.randint(5, 9)}
    counts |= {"spine_up": each * counts["spine_bundle"], "wan_ports": r.choice([0, 0, 3])}
    d = Design(ports=512, rails=rails, core_boxes=r.randint(1, spines * each), **counts)
    assert not unwirable(d, cross_rail=True)
    return d


@pytest.mark.parametrize("seed", range(40))
def test_every_port_is_used_once_and_every_loss_is_told(seed: int) -> None:
    """No port takes two cables, all leaves are joined, and the checker knows which designs survive any one switch."""
    d = drawn(seed)
    shapes = {tier: (n, d.tier_ports[tier]) for tier, n in d.tier_switches.items()}
    shapes |= {"gpu": (d.racks * d.gpus_per_rack, 1), "wan-gateway": (d.wan_gateways, d.ports)}
    ticked = count(lay(d), shapes)
    assert not ticked.twice and not ticked.absent
    used = ticked.used["core"].sum(axis=1)
    assert (used > 0).all() and used.max() <= d.core_down + d.top_wan_links
    assert ticked.cables["spine", "core"] == d.spines * d.spine_up
    assert nx.is_connected(graph_of(d))
    assert survives(d, "one_spine") == (cut_by(d)[1] >= 2)


def test_more_positions_than_ports_are_refused() -> None:
    """One box of 512 ports takes 29 positions of 3 pods, one of 86 ports does not; nor are 30 boxes of any use."""
    own = {"rails": 1, "racks": 36, "leaf_down": 4, "leaf_up": 29, "leaf_bundle": 1, "rails_per_pod": 1}
    own |= {"domains_per_pod": 3, "spine_up": 1, "spine_bundle": 1}
    d = Design(ports=512, core_boxes=1, **own)
    assert (d.cores, d.core_down, d.pods, d.faults()) == (1, 87, 3, [])
    assert "29 positions of 3 pods" in Design(ports=86, core_boxes=1, **own).faults()[0]
    assert "30 for 29 positions" in Design(ports=512, core_boxes=30, **own).faults()[0]
