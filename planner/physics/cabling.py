"""Every cable of a fabric, port to port, in blocks: what the counts of `wiring` say, laid one by one in constant memory.

Boxes are numbered within their tier: leaf domain·rails + rail, spine pod·s + position, core group·c + position in the
group. A box's ports are numbered from 0, those towards the GPUs first. A GPU is rack·(GPUs of a rack) + its index, its
NIC has the one port 0.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.instance import Floor
from planner.physics.floor import Metres, Places
from planner.physics.wiring import Design

Ints = NDArray[np.int64]
BLOCK = 1 << 16  # cables laid at a time
Ends = tuple[Ints, Ints, Ints, Ints]  # low box, its port, high box, its port


@dataclass(frozen=True, slots=True)
class Stage:
    """The cables between two tiers: how many there are, and the ends of any of them by number."""

    low: str
    high: str
    count: int
    ends: Callable[[Ints], Ends]


@dataclass(frozen=True, slots=True)
class Cables:
    """Some cables of one stage: the box and port at each end."""

    low_tier: str
    high_tier: str
    low: Ints
    low_port: Ints
    high: Ints
    high_port: Ints


def lay(d: Design, *, block: int = BLOCK) -> Iterator[Cables]:
    """Yield every cable of a design once, block by block; the design can be wired."""
    for stage in stages(d):
        for at in range(0, stage.count, block):
            yield Cables(stage.low, stage.high, *stage.ends(np.arange(at, min(at + block, stage.count), dtype=np.int64)))


def stages(d: Design) -> list[Stage]:
    """Return the stages of a design from the GPUs up."""
    found = [Stage("gpu", "leaf", d.endpoint_links, lambda e: _endpoints(d, e))]
    if d.tiers > 1:
        found.append(Stage("leaf", "spine", d.leaves * d.leaf_up, lambda e: _leaf_uplinks(d, e)))
    if d.tiers > 2:
        found.append(Stage("spine", "core", d.spines * d.spine_up, lambda e: _spine_uplinks(d, e)))
    return found


def boxes(d: Design) -> dict[str, int]:
    """Return the boxes of each tier that a design has."""
    return {tier: n for tier, n in (("leaf", d.leaves), ("spine", d.spines), ("core", d.cores)) if n}


def _endpoints(d: Design, e: Ints) -> Ends:
    """GPU g of the racks of a domain meets at leaf g of the domain; a single switch takes every GPU in order."""
    rack, rail = e // d.rails, e % d.rails
    if d.tiers == 1:
        return e, np.zeros_like(e), np.zeros_like(e), e
    return e, np.zeros_like(e), rack // d.leaf_down * d.rails + rail, rack % d.leaf_down


def _leaf_uplinks(d: Design, e: Ints) -> Ends:
    """Each leaf sends a bundle to every spine of its pod; a spine keeps a bundle of ports for each leaf of a full pod."""
    leaf, up = e // d.leaf_up, e % d.leaf_up
    domain, rail = leaf // d.rails, leaf % d.rails
    pod = domain // d.domains_per_pod * pods_across(d) + rail // d.rails_per_pod
    seat = domain % d.domains_per_pod * d.rails_per_pod + rail % d.rails_per_pod
    return leaf, d.leaf_down + up, pod * d.spines_per_pod + up // d.leaf_bundle, seat * d.leaf_bundle + up % d.leaf_bundle


def _spine_uplinks(d: Design, e: Ints) -> Ends:
    """Spine i of every pod sends a bundle to each core of group i; a core keeps a bundle of ports for each pod."""
    spine, up = e // d.spine_up, e % d.spine_up
    pod, group = spine // d.spines_per_pod, spine % d.spines_per_pod
    core = group * (d.spine_up // d.spine_bundle) + up // d.spine_bundle
    return spine, d.spine_down + up, core, pod * d.spine_bundle + up % d.spine_bundle


def pods_across(d: Design) -> int:
    """Pods side by side that take the rails of one set of domains."""
    return -(-d.rails // d.rails_per_pod)


def lengths(d: Design, floor: Floor) -> Callable[[Cables], Metres]:
    """Return what measures a block's cables; places of racks and boxes are worked out once."""
    places = Places(floor, d.racks)
    middles = {tier: places.middle(*_served(d, tier)) for tier in ("gpu", *boxes(d))}
    return lambda c: places.metres(_at(d, middles, c.low_tier, c.low), _at(d, middles, c.high_tier, c.high), spread=c.low_tier != "gpu")


def _at(d: Design, middles: dict[str, Metres], tier: str, box: Ints) -> Metres:
    """Return where boxes stand; all GPUs of a rack, leaves of a domain and spines of a set of domains stand together."""
    share = {"gpu": d.rails, "leaf": d.rails, "spine": max(1, d.spines_per_pod) * (pods_across(d) if d.tiers > 1 else 1)}
    at: Metres = middles[tier][np.zeros_like(box) if tier == "core" else box // share[tier]]
    return at


def _served(d: Design, tier: str) -> tuple[Ints, Ints]:
    """Return the first rack that each place of a tier serves, and the one after its last."""
    racks = {"gpu": 1, "leaf": d.racks if d.tiers == 1 else d.leaf_down, "spine": d.leaf_down * d.domains_per_pod, "core": d.racks}[tier]
    first = np.arange(0, d.racks, racks, dtype=np.int64)
    return first, first + racks
