"""The fabric families: how each meets a rack's GPUs, which tiers it has, and how its designs are wired and measured.

A new family has a design type with its counts, its cabling, an entry here, and its tables in `models/fabric`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from planner.instance.network import FabricFamily, Network
from planner.physics.network import dragonfly_cabling, tree_cabling
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.lengths import CableRun
from planner.physics.network.links import Ints
from planner.physics.network.topology import TIERS, Design
from planner.physics.network.tree_cabling import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """How the designs of one type are cabled; the functions take a design of that type.

    Attributes
    ----------
    design
        The type of the designs.
    grouped
        Pods are groups of which every two are joined, and no core joins them.
    tiers
        Tiers of switches from the leaf up; a tree may have the first of them only.
    stages
        Cables above the endpoints, stage by stage.
    wan_ends
        Switch and port of links of a network's WAN gateway, from their networks and numbers.
    runs
        Lengths of the cables, the endpoints' first.
    wan_runs
        Lengths of the cables between the WAN gateway and the fabric.
    """

    design: type[Design]
    grouped: bool
    tiers: tuple[str, ...]
    stages: Callable[[Any], list[Stage]]
    wan_ends: Callable[[Any, Ints, Ints], tuple[Ints, Ints]]
    runs: Callable[..., Iterator[CableRun]]
    wan_runs: Callable[..., Iterator[CableRun]]


TREE = Wiring(
    design=Design,
    grouped=False,
    tiers=TIERS,
    stages=tree_cabling.tree_stages,
    wan_ends=tree_cabling.tree_wan_ends,
    runs=tree_cabling.tree_runs,
    wan_runs=tree_cabling.tree_wan_runs,
)
ROUTER_GROUPS = Wiring(
    design=Dragonfly,
    grouped=True,
    tiers=("leaf",),
    stages=dragonfly_cabling.router_stages,
    wan_ends=dragonfly_cabling.router_wan_ends,
    runs=dragonfly_cabling.router_runs,
    wan_runs=dragonfly_cabling.group_wan_runs,
)
SPINE_GROUPS = Wiring(
    design=DragonflyPlus,
    grouped=True,
    tiers=("leaf", "spine"),
    stages=dragonfly_cabling.spine_group_stages,
    wan_ends=dragonfly_cabling.spine_group_wan_ends,
    runs=dragonfly_cabling.spine_group_runs,
    wan_runs=dragonfly_cabling.group_wan_runs,
)
WIRINGS = {w.design: w for w in (TREE, ROUTER_GROUPS, SPINE_GROUPS)}


def wiring_of(d: Design) -> Wiring:
    """Return how a design is cabled, by its type."""
    return WIRINGS[type(d)]


class RackPorts(NamedTuple):
    """How the GPUs of a rack meet the fabric: sets with a leaf each, GPUs of a set, and networks side by side."""

    rails: int
    rail_gpus: int
    apart: int


@dataclass(frozen=True, slots=True)
class Family:
    """A fabric family: the ports of a rack of so many GPUs, and its wiring."""

    rack_ports: Callable[[int], RackPorts]
    wiring: Wiring


def _rails(gpus: int) -> RackPorts:
    return RackPorts(gpus, 1, 1)


FAMILIES: dict[FabricFamily, Family] = {
    "rail": Family(_rails, TREE),
    "rack": Family(lambda gpus: RackPorts(1, gpus, 1), TREE),
    "rail-only": Family(lambda gpus: RackPorts(1, 1, gpus), TREE),
    "dragonfly": Family(_rails, ROUTER_GROUPS),
    "dragonfly+": Family(_rails, SPINE_GROUPS),
}


def max_joined_racks(network: Network, pins: Mapping[str, Any], wired_gpus: int) -> float:
    """Bound racks of a site, so many GPUs of each cabled, that a fabric joins whose leaf is pinned or the only tier.

    A leaf that keeps no port for the uplinks, or has no tier above it, is the only switch of its network, and takes the
    GPUs of all racks. Infinity where the pins and tiers leave room for uplinks.
    """
    own = {path.rpartition(".")[2]: pins[path] for path in sorted(pins, key=len) if path.startswith("fabric.")}
    racks, down, up = (own.get(name) for name in ("leaf_domain_racks", "leaf_down_ports", "leaf_up_ports"))
    tiers = min(network.max_tiers, own.get("tiers", network.max_tiers))
    if tiers > 1 and racks is None and down is None and up is None:
        return math.inf
    most = 0
    for s, family in product(network.switches, network.families):
        if isinstance(s, str):
            return math.inf
        if own.get("switch", s.name) != s.name or own.get("family", family) != family:
            continue
        rack, wiring = FAMILIES[family].rack_ports(wired_gpus), FAMILIES[family].wiring
        if wiring.grouped and tiers < len(wiring.tiers):
            continue
        if not rack.rails * rack.rail_gpus:  # no GPU is cabled, so no port is asked
            return math.inf
        leaf = down or (racks or 1) * rack.rail_gpus
        if (tiers > 1 or wiring.grouped) and -(-leaf // s.breakout) + max(1, up or 0) <= s.ports:
            return math.inf
        joined = racks or (down or s.ports * s.breakout) // (rack.rails * rack.rail_gpus)
        ends = down or joined * rack.rails * rack.rail_gpus
        if not up and -(-ends // s.breakout) <= s.ports:
            most = max(most, joined)
    return most
