"""Counts of a multi-plane, rail-optimised leaf-spine-core fabric that can be wired with equal bundles.

Endpoints: every rack has `rails` GPUs, and GPU g of the D racks of a leaf domain meet at one leaf, so a domain has
`rails` leaves. A pod joins x rails of y domains under s = u1/b1 spines, b1 links from each leaf to each of them. Each of
the s groups of spines (one of every pod) has c = u2/b2 cores, b2 links from each spine to each core of its group.
Counts are of boxes and cables: a box holds one chip of every plane and a cable carries every plane.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """The choices that fix every count of one site's fabric; a zero means that the tier is not there."""

    ports: int
    rails: int
    racks: int
    leaf_down: int
    leaf_up: int = 0
    leaf_bundle: int = 0
    rails_per_pod: int = 0
    domains_per_pod: int = 0
    spine_up: int = 0
    spine_bundle: int = 0

    @property
    def tiers(self) -> int:
        """Tiers of switches."""
        return 1 if self.leaf_up == 0 else 2 if self.spine_up == 0 else 3

    @property
    def domains(self) -> int:
        """Leaf domains: sets of leaf_down racks, the last one perhaps part full. A single tier is one switch for all."""
        return 1 if self.tiers == 1 else math.ceil(self.racks / self.leaf_down)

    @property
    def endpoint_links(self) -> int:
        """Cables between GPUs and leaves."""
        return self.racks * self.rails

    @property
    def leaves(self) -> int:
        """Leaf boxes."""
        return 1 if self.tiers == 1 else self.domains * self.rails

    @property
    def pods(self) -> int:
        """Pods; 0 without a second tier."""
        return 0 if self.tiers == 1 else math.ceil(self.rails / self.rails_per_pod) * math.ceil(self.domains / self.domains_per_pod)

    @property
    def spines_per_pod(self) -> int:
        """Spines that each leaf of a pod reaches."""
        return 0 if self.tiers == 1 else self.leaf_up // self.leaf_bundle

    @property
    def spine_down(self) -> int:
        """Ports of a spine towards the leaves of a full pod."""
        return self.rails_per_pod * self.domains_per_pod * self.leaf_bundle

    @property
    def spines(self) -> int:
        """Spine boxes."""
        return self.pods * self.spines_per_pod

    @property
    def cores(self) -> int:
        """Core boxes: one group for each spine position of a pod."""
        return 0 if self.tiers < 3 else self.spines_per_pod * (self.spine_up // self.spine_bundle)

    @property
    def switches(self) -> int:
        """All boxes."""
        return self.leaves + self.spines + self.cores

    @property
    def switch_links(self) -> int:
        """Cables between switches."""
        return self.leaves * self.leaf_up + self.spines * self.spine_up

    @property
    def leaf_oversubscription(self) -> float:
        """Down over up at the leaf; 1 in a single switch."""
        return 1.0 if self.tiers == 1 else self.leaf_down / self.leaf_up

    @property
    def spine_oversubscription(self) -> float:
        """Down over up at the spine of a full pod; 1 without cores."""
        return 1.0 if self.tiers < 3 else self.spine_down / self.spine_up


def unwirable(d: Design, *, cross_rail: bool) -> list[str]:
    """Say in what a design cannot be wired, each with both sides in numbers; empty where it can.

    `cross_rail`: every GPU must reach every other through the fabric, and not only those of its own index.
    """
    if d.tiers == 1:
        return [f"leaf ports: {d.endpoint_links} endpoints > {d.ports} ports"] * (d.endpoint_links > d.ports)
    bad = []
    if d.leaf_down + d.leaf_up > d.ports:
        bad.append(f"leaf ports: {d.leaf_down} down + {d.leaf_up} up > {d.ports} ports")
    if d.leaf_bundle < 1 or d.leaf_up % d.leaf_bundle:
        bad.append(f"leaf bundle: {d.leaf_up} uplinks are not whole bundles of {d.leaf_bundle}")
    if not 1 <= d.rails_per_pod <= d.rails or d.domains_per_pod < 1:
        bad.append(f"pod: {d.rails_per_pod} rails of {d.rails}, {d.domains_per_pod} domains")
    if bad:
        return bad
    if d.spine_down + d.spine_up > d.ports:
        bad.append(f"spine ports: {d.spine_down} down + {d.spine_up} up > {d.ports} ports")
    if d.tiers == 3:
        if d.spine_bundle < 1 or d.spine_up % d.spine_bundle:
            bad.append(f"spine bundle: {d.spine_up} uplinks are not whole bundles of {d.spine_bundle}")
        elif d.pods * d.spine_bundle > d.ports:
            bad.append(f"core ports: {d.pods} pods x {d.spine_bundle} links > {d.ports} ports")
    elif d.domains_per_pod < d.domains or (cross_rail and d.rails_per_pod < d.rails):
        bad.append(f"reach: {d.pods} pods and no core to join them")
    return bad


def fat_tree_endpoints(ports: int, tiers: int) -> int:
    """Most endpoints of a non-blocking tree: 2·(k/2)^T (Al-Fares 2008 for three tiers)."""
    return 2 * int((ports // 2) ** tiers)


def fat_tree_switches(endpoints: int, ports: int, tiers: int) -> float:
    """Switches of a non-blocking tree, not rounded: (2T - 1)·N/k, the top tier included."""
    return (2 * tiers - 1) * endpoints / ports


def fat_tree_links(endpoints: int, tiers: int) -> int:
    """Switch-to-switch links of a non-blocking tree: (T - 1)·N."""
    return (tiers - 1) * endpoints


def relaxed_tiers(endpoints: int, down_up: tuple[tuple[int, int], ...], top_ports: int) -> list[int]:
    """Least boxes per tier by ports alone, bundles ignored: n1 = ceil(N/d1), n2 = ceil(n1·u1/d2), the top ceil(links/k).

    A lower bound: the count that can be wired with equal bundles is larger.
    """
    counts, links = [], endpoints
    for down, up in down_up:
        counts.append(math.ceil(links / down))
        links = counts[-1] * up
    return [*counts, math.ceil(links / top_ports)]


def tree_reach(down_ports: tuple[int, ...], top_ports: int) -> int:
    """Most endpoints of a tree: the product of the down-ports of its tiers, the top tier using every port."""
    return math.prod(down_ports) * top_ports
