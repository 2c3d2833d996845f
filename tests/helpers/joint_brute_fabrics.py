"""Every fabric of a site of a toy: a single switch, and trees of two and three tiers, over every order of its racks.

Imports nothing of planner.models and planner.solvers: what crosses leaf domains is counted rack by rack on the order
that is built, and switches, links and money are added up here.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass

from planner.instance.instance import Instance
from planner.instance.network import Network, Switch
from planner.physics.training.parallel_strategy import RackBlock

Boxes = list[tuple[int, Switch]]


@dataclass(frozen=True, slots=True)
class Fabric:
    """A fabric of a site: its price, its power, and how it slows sends and allreduces."""

    usd: float
    mw: float
    send: float
    allreduce: float


def built_order(stages: int, blocks: int, unit: int, stripes: int) -> list[list[int]]:
    """Lay the racks of a site down one after another: stripe by stripe, block by block, stage by stage."""
    sizes = [stages // stripes + (k < stages % stripes) for k in range(stripes)]
    ranks: list[list[int]] = [[] for _ in range(stages)]
    rack, first = 0, 0
    for size in sizes:
        for _ in range(blocks):
            for stage in range(first, first + size):
                ranks[stage] += range(rack, rack + unit)
                rack += unit
        first += size
    return ranks


def crossings(ranks: list[list[int]], d: int, *, wrap: bool) -> tuple[int, int]:
    """Count the most flows that leave or enter a leaf domain of d racks, and the most allreduces that leave one."""
    pairs = list(itertools.pairwise(ranks)) + ([(ranks[-1], ranks[0])] if wrap and len(ranks) > 1 else [])
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    for a, b in pairs:
        for x, y in zip(a, b, strict=True):
            if x // d != y // d:
                out[x // d] += 1
                into[y // d] += 1
    allreduces: Counter[int] = Counter()
    for racks in ranks:
        domains = {x // d for x in racks}
        if len(domains) > 1:
            allreduces.update(domains)
    return max([0, *out.values(), *into.values()]), max([0, *allreduces.values()])


def whole(ranks: list[list[int]], d: int) -> float:
    """Return the share of stages whose racks all stand in one leaf domain of d racks."""
    return sum(len({x // d for x in racks}) == 1 for racks in ranks) / len(ranks)


def trees(
    s: Switch, spine: Switch, core: Switch, domains: int, d: int, rails: int, tiers: int
) -> list[tuple[int, Boxes, int]]:
    """List the trees over leaf domains of d racks that all share a pod: a leaf's uplinks, the switches, all links."""
    # A domain has a leaf for each rail. A pod joins x rails of all domains; a leaf reaches u/b spines by b links
    # each. A spine of several pods has one uplink; a core takes as many of a pod's positions as it has ports for all
    # pods.
    found = []
    for u, x in itertools.product(range(1, s.ports - d + 1), range(1, rails + 1)):
        pods = -(-rails // x)
        if (pods > 1 and tiers < 3) or tiers < 2 or pods > core.ports:
            continue
        for b in (b for b in range(1, u + 1) if u % b == 0):
            if b * x * domains + (pods > 1) <= spine.ports:
                leaves, spines = rails * domains, pods * (u // b)
                cores = math.ceil((u // b) / (core.ports // pods)) if pods > 1 else 0
                boxes = [(leaves, s), (spines, spine), (cores, core)]
                found.append((u, boxes, leaves * u + (spines if pods > 1 else 0)))
    return found


def priced(n: Network, ends: int, boxes: Boxes, links: int, slowdowns: tuple[float, float], lanes: int) -> Fabric:
    """Price a fabric of some switches, cables and transceivers: a network for each lane of the NICs."""
    c, o = n.cables, n.optics
    optics = ends * c.endpoint_transceivers + links * c.switch_transceivers
    usd = ends * c.endpoint_usd + links * c.switch_usd + optics * o.price_usd + sum(k * s.price_usd for k, s in boxes)
    watts = optics * o.power_watts + sum(k * s.power_watts for k, s in boxes)
    return Fabric(lanes * usd, lanes * watts / 1e6, *slowdowns)


def fabrics(
    i: Instance,
    block: RackBlock,
    blocks: int,
    *,
    wrap: bool,
    spare: int = 0,
    rails: int | None = None,
    lanes: int = 0,
    local: float = 0.0,
) -> list[Fabric]:
    """List every fabric of a site with so many blocks; those beaten in price, power and both slowdowns are dropped."""
    # `spare` racks stand behind those of the blocks; so many GPUs of each are cabled, those at work unless given;
    # NICs have so many lanes, any unless given; `local`: the least share of stages whose racks are all under one
    # leaf.
    n = i.network
    gpu = i.hardware.accelerator
    assert n is not None and n.families == ("rail",) and not isinstance(gpu, str)
    racks, phi = block.racks * blocks + spare, n.transport.slowdown
    rails = block.rails if rails is None else rails
    orders = [built_order(block.rack_stages, blocks, block.stage_racks, k + 1) for k in range(block.rack_stages)]
    found = set()
    for s in n.switches:
        assert not isinstance(s, str)
        split = math.ceil(gpu.nic_bytes_per_second * 8e-9 / s.port_gbps - 1e-9)
        if split > n.max_lanes or lanes not in (0, split):
            continue
        carried = s.port_gbps * split / (gpu.nic_bytes_per_second * 8e-9)  # NICs' worth of a link between switches
        if racks * rails <= s.ports:
            found.add(priced(n, racks * rails, [(1, s)], 0, (phi, phi), split))
        alike = [
            x for x in n.switches if (x.port_gbps, x.planes, x.link_factor) == (s.port_gbps, s.planes, s.link_factor)
        ]
        for d in range(block.stage_racks, min(racks, s.ports) + 1, block.stage_racks):
            counted = {crossings(order, d, wrap=wrap) for order in orders if whole(order, d) >= local}
            for spine, core in itertools.product(alike, repeat=2):
                for u, boxes, links in trees(s, spine, core, -(-racks // d), d, rails, n.max_tiers):
                    for flows, allreduces in counted:
                        slow = phi * max(1.0, flows / (u * carried)), phi * max(1.0, allreduces / (u * carried))
                        found.add(priced(n, racks * rails, boxes, links, slow, split))
    return unbeaten(found)


def unbeaten(found: set[Fabric]) -> list[Fabric]:
    """Drop what another fabric beats or equals in everything."""
    kept: list[Fabric] = []
    for f in sorted(found, key=lambda f: (f.usd, f.mw, f.send, f.allreduce)):
        if not any(k.mw <= f.mw and k.send <= f.send and k.allreduce <= f.allreduce for k in kept):
            kept.append(f)
    return kept
