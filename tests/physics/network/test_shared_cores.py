"""Boxes that positions share: every cable has ports of its own, pods stay joined, and losses are told truly."""

import random
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from fabric_graph import graph_of, laid, survives

from planner.checks.fabric import cut_by
from planner.physics.network.clos_fabric import Design, unwirable
from planner.physics.network.fabric_designs import lay


def drawn(seed: int) -> Design:
    """Draw a tree of three tiers, of odd seeds four, with shared boxes; ports are enough for its cables."""
    r = random.Random(seed)
    spines, bundle, each = r.randint(1, 4), r.randint(1, 2), r.randint(1, 3)
    rails, rails_per_pod = r.choice([(1, 1), (2, 1), (3, 2)])
    counts = {"leaf_down": 2, "leaf_up": spines * bundle, "leaf_bundle": bundle, "rails_per_pod": rails_per_pod}
    counts |= {"domains_per_pod": r.randint(1, 2), "spine_bundle": r.randint(1, 2), "racks": r.randint(5, 9)}
    counts |= {"spine_up": each * counts["spine_bundle"], "wan_ports": r.choice([0, 0, 3])}
    d = Design(ports=512, rails=rails, core_boxes=r.randint(1, spines * each), **counts)
    if seed % 2:
        cores = r.choice([n for n in range(1, spines * each + 1) if spines * each % n == 0])
        above, bundle = r.randint(1, 3), r.randint(1, 2)
        own = {"rails_per_zone": rails_per_pod, "domains_per_zone": r.randint(1, 2) * d.domains_per_pod}
        own |= {"core_boxes": cores, "core_up": above * bundle, "core_bundle": bundle}
        d = replace(d, **own, super_spine_boxes=r.randint(1, cores * above))
    assert not unwirable(d)
    return d


@pytest.mark.parametrize("seed", range(40))
def test_every_port_is_used_once_and_every_loss_is_told(seed: int) -> None:
    d = drawn(seed)
    ticked = laid(d)
    for tier, ports in (("core", d.core_down + d.core_up), (d.top[0], sum(d.top_ports))):
        used = ticked.used[tier].sum(axis=1)
        assert (used > 0).all() and used.max() <= ports + d.top_ports[1] * (tier == d.top[0])
    assert ticked.cables["spine", "core"] == d.spines * d.spine_up
    assert nx.is_connected(graph_of(d))
    assert survives(d, "one_spine") == (cut_by(d)[1] >= 2)


@pytest.mark.parametrize("seed", range(1, 40, 2))
def test_zones_have_alike_links_to_every_super_spine(seed: int) -> None:
    """Any two zones meet in each super-spine with equally many links, so that they can exchange all that they have."""
    d = drawn(seed)
    links = np.zeros((max(1, d.zones), d.super_spines), dtype=np.int64)
    for c in lay(d):
        if c.low_tier == "core":
            np.add.at(links, (c.low // d.zone_cores, c.high), 1)
    assert (links == links[0]).all() and links[0].sum() == d.zone_uplinks


def test_super_spines_are_shared_equally_or_refused() -> None:
    """Of six positions four cores would take one or two, and their uplinks be loaded unlike; three take two each."""
    own = {"rails": 1, "racks": 8, "leaf_down": 1, "leaf_up": 6, "leaf_bundle": 1, "rails_per_pod": 1}
    own |= {"domains_per_pod": 2, "spine_up": 1, "spine_bundle": 1, "rails_per_zone": 1, "domains_per_zone": 4}
    own |= {"core_up": 4, "core_bundle": 1, "ports": 12}
    d = Design(core_boxes=3, super_spine_boxes=2, **own)
    assert (d.zones, d.cores, d.core_down, d.super_spines, d.super_spine_down, d.faults()) == (2, 6, 4, 2, 12, [])
    assert "equally many" in Design(core_boxes=4, super_spine_boxes=2, **own).faults()[0]
    assert "12 positions of 2 zones" in Design(core_boxes=3, super_spine_boxes=1, **own).faults()[0]
    assert "13 for 12 positions" in Design(core_boxes=3, super_spine_boxes=13, **own).faults()[0]


def test_more_positions_than_ports_are_refused() -> None:
    """One box of 512 ports takes 29 positions of 3 pods, one of 86 ports does not; nor are 30 boxes of any use."""
    own = {"rails": 1, "racks": 36, "leaf_down": 4, "leaf_up": 29, "leaf_bundle": 1, "rails_per_pod": 1}
    own |= {"domains_per_pod": 3, "spine_up": 1, "spine_bundle": 1}
    d = Design(ports=512, core_boxes=1, **own)
    assert (d.cores, d.core_down, d.pods, d.faults()) == (1, 87, 3, [])
    assert "29 positions of 3 pods" in Design(ports=86, core_boxes=1, **own).faults()[0]
    assert "30 for 29 positions" in Design(ports=512, core_boxes=30, **own).faults()[0]
