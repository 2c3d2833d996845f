"""What a dragonfly states of its rates and places, by hand."""

import dataclasses

import pytest
from each_case import each

from planner.physics.network.clos_fabric import unwirable
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus, part_sizes, router_share, unevenness
from planner.physics.network.transport import ring_loads

# Four rails in two pods across, six leaf domains of two racks in two pods along: four groups of 2·3 leaves.
SIDE = {
    "ports": 32, "rails": 4, "racks": 12, "leaf_down": 6, "rail_gpus": 3, "split": 2, "nic_gbps": 400.0,
    "link_gbps": 800.0, "leaf_bundle": 4, "rails_per_pod": 2, "domains_per_pod": 3, "group_links": 5,
}  # fmt: skip


@each(
    ("choices", "leaf_exit", "pod_exit"),
    [
        # A bundle of 4 is half for what a router sends and half for what it gets; two groups share 5 links.
        ({}, 2.0, 5.0),
        # 15 links leave a group of six routers, 7.5 of them for its own; a router has at most (1 + 5/15)/6 of them. A
        # bundle takes that share of what the one sends and of what the other gets, and as much again of what passes.
        ({"valiant": True}, 4 / (2 * (1 + 5 / 15) / 6 * (1 + 6 / 6)), 7.5),
    ],
)
def test_oversubscription_and_flows_by_hand(choices: dict[str, bool], leaf_exit: float, pod_exit: float) -> None:
    """Six GPUs of a leaf, 2·3 leaves of a group, over the links that they are assured of, each for two GPUs."""
    # An all-reduce between racks has a flow for each of the 3 GPUs that a rack has at a leaf, and of 2·3 in a group.
    d = Dragonfly.of(**SIDE, **choices)
    assert unwirable(d) == []
    assert (d.pods, d.leaves, d.group_sizes, d.pod_uplinks) == (4, 24, {6: 4}, 15)
    assert (d.exits["leaf"], d.exits["pod"]) == (pytest.approx(leaf_exit), pod_exit)
    assert d.oversubscription["leaf"] == pytest.approx(6 / (leaf_exit * 2))
    assert d.oversubscription["leaf"] * d.oversubscription["spine"] == pytest.approx(6 * 6 / (pod_exit * 2))
    rings = {"leaf": 3 / (leaf_exit * 2), "pod": 2 * 3 / (pod_exit * 2)}
    assert ring_loads(d, (1, 1)) == pytest.approx(rings)
    assert d.joined and not d.single


def test_a_group_has_nothing_to_leave_where_it_is_alone() -> None:
    d = Dragonfly.of(**SIDE | {"rails_per_pod": 4, "domains_per_pod": 6, "group_links": 0, "leaf_bundle": 1})
    assert unwirable(d) == []
    assert (d.pods, d.group_sizes, d.exits["leaf"], d.oversubscription["spine"]) == (1, {24: 1}, 1.0, 1.0)
    assert (d.switch_links, d.switch_pairs) == (24 * 23 // 2, 24 * 23 // 2)


def test_ports_of_unlike_groups() -> None:
    """Five domains in groups of three, two rails: full groups of three routers, smaller ones of two."""
    # A router has a bundle of 4 to each other of its group and its part of the 15 links that leave: 2·4 + 5 in a full
    # group; in a small one 4 + 7 or 4 + 8. A bundle joins two routers, a link two groups.
    side = SIDE | {"rails": 2, "racks": 10, "rails_per_pod": 1}
    d = Dragonfly.of(**side)
    assert (d.pods, d.group_sizes) == (4, {3: 2, 2: 2})
    assert (d.router_ports(3), d.router_ports(2)) == (13, 12)
    assert (d.up_port_range, d.local_ports, d.global_ports) == ((11, 13), 8, 5)
    assert (d.local_links, d.global_links, d.switch_pairs) == (2 * 4 * (3 + 1), 6 * 5, 2 * (3 + 1) + 30)
    assert (part_sizes(5, 3), part_sizes(6, 3), part_sizes(2, 3)) == ({3: 1, 2: 1}, {3: 2}, {2: 1})


def test_places_of_switches() -> None:
    """Routers stand amid their group's 2·3 racks, leaves of a dragonfly+ amid their domain's 2, spines amid 6."""
    d, plus = Dragonfly.of(**SIDE), DragonflyPlus.of(**SIDE, leaf_up=8)
    assert [d.racks_around(t) for t in ("gpu", "leaf", "spine", "wan-gateway")] == [1, 6, 6, 12]
    assert [plus.racks_around(t) for t in ("gpu", "leaf", "spine", "wan-gateway")] == [1, 2, 6, 12]


@each(
    ("up", "links", "valiant", "leaf_exit", "pod_exit"),
    [
        # Two bundles of 4 to two spines: five links between two groups, of which four are whole shares of two spines.
        (8, 5, False, 8, 4),
        (8, 1, False, 4, 1),
        # Three spines and five links: three of them, one to each.
        (12, 5, False, 12, 3),
        # By way of other groups: what a leaf sends and gets, and at most (1 + 1/15) of an even share at a spine.
        (8, 5, True, 8 / 2 / (1 + 1 / 15), 7.5),
    ],
)
def test_exits_of_a_dragonfly_plus(up: int, links: int, valiant: bool, leaf_exit: float, pod_exit: float) -> None:
    """A leaf has its bundles to the spines that links between groups use, a group whole shares of all its spines."""
    d = DragonflyPlus.of(**SIDE | {"group_links": links, "leaf_up": up, "valiant": valiant})
    assert (d.spines_per_pod, d.spines) == (up // 4, up // 4 * 4)
    assert (d.exits["leaf"], d.exits["pod"]) == (pytest.approx(leaf_exit), pod_exit)
    assert d.up_port_range == (up, up)
    assert (d.local_links, d.global_ports) == (24 * up, -(-3 * links // (up // 4)))
    assert d.switch_pairs == 24 * up // 4 + 6 * links


def test_shares_of_a_bundle() -> None:
    """Half where others send too, all of it where none do; by way of a random router as the module's formula says."""
    # Of three routers and six links each has two, a third: b/(2·(1/3)·(1 + 3/3)) = 3/4 times 1/(1 + 2/6).
    assert router_share(3, 3, links=0, valiant=False) == 1.0
    assert router_share(3, 3, links=2, valiant=False) == 0.5
    assert router_share(3, 3, links=0, valiant=True) == 1.5
    assert router_share(3, 3, links=6, valiant=True) == pytest.approx(3 / 2 / (2 * (1 + 2 / 6)))
    assert router_share(2, 3, links=6, valiant=True) == pytest.approx(2 / 2 / (2.5 * (1 + 1 / 6)))
    assert unevenness(4, 8) == 1 + 3 / 8


@each(("kind", "choices", "said"), [
    (Dragonfly, {"rails_per_pod": 0}, "group: 0 rails, 3 domains, bundles of 4; at least 1 of each"),
    (Dragonfly, {"domains_per_pod": 0}, "group: 2 rails, 0 domains, bundles of 4; at least 1 of each"),
    (Dragonfly, {"leaf_bundle": 0}, "group: 2 rails, 3 domains, bundles of 0; at least 1 of each"),
    (Dragonfly, {"group_links": 0}, "reach: 4 groups and 0 links between two of them"),
    (Dragonfly, {"leaf_up": 21}, "ports: 21 local and 3 global stated, bundles and groups make others"),
    (Dragonfly, {"spine_up": 4}, "ports: 20 local and 4 global stated, bundles and groups make others"),
    (Dragonfly, {"rails_per_pod": 4, "domains_per_pod": 6, "leaf_bundle": 1}, "groups: 1 with 5 links to others"),
    (Dragonfly, {"ports": 25}, "leaf ports: 6 down + 23 up > 25 ports, each for 2 GPUs or a link up"),
    (DragonflyPlus, {"leaf_up": 6}, "leaf bundle: 6 uplinks are not whole bundles of 4"),
    (DragonflyPlus, {"leaf_up": 0}, "leaf bundle: 0 uplinks are not whole bundles of 4"),
    (DragonflyPlus, {"rails_per_pod": 0}, "leaf bundle: 8 uplinks are not whole bundles of 4"),
    (DragonflyPlus, {"domains_per_pod": 0}, "leaf bundle: 8 uplinks are not whole bundles of 4"),
    (DragonflyPlus, {"rails_per_pod": 4, "domains_per_pod": 6, "group_links": 0}, "groups: 1; several expected"),
    (DragonflyPlus, {"ports": 31}, "spine ports: 24 down + 8 global > 31 ports"),
    (DragonflyPlus, {"spine_up": 4}, "ports: 8 local and 4 global stated, bundles and groups make others"),
])  # fmt: skip
def test_what_cannot_be_wired_is_said(kind: type[Dragonfly], choices: dict[str, int], said: str) -> None:
    """One choice of a good dragonfly changed is named in numbers, first of all that it breaks."""
    good = kind.of(**SIDE, **({"leaf_up": 8} if kind is DragonflyPlus else {}))
    assert unwirable(good) == []
    assert unwirable(dataclasses.replace(good, **choices))[0] == said


def test_one_router_is_no_dragonfly() -> None:
    """All racks at one router of each network leave nothing to join; two routers are a group."""
    one = Dragonfly.of(**SIDE | {"rails": 1, "racks": 2, "rails_per_pod": 1, "group_links": 0})
    assert unwirable(one) == ["groups: 1 of 1 router; several groups, or routers, expected"]
    assert unwirable(Dragonfly.of(**SIDE | {"rails": 1, "racks": 4, "rails_per_pod": 1, "group_links": 0})) == []
