"""Every fabric of a small site of as many tiers as it may have, up to four, by plain loops."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import pytest
from dragonfly_cases import alike, enough_between_groups, every_dragonfly
from fabric_cases import cheapest, hidden
from fabric_graph import meets

from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.models.fabric.site_traffic import FabricRequest
from planner.physics.network.clos_fabric import Design
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.fabric_cost import bill
from planner.physics.network.fabric_designs import spare_ports

FAMILIES = {"rail": lambda g: (g, 1, 1), "rack": lambda g: (1, g, 1), "rail-only": lambda g: (1, 1, g)}


def divisors(n: int) -> list[int]:
    return [b for b in range(1, n + 1) if n % b == 0]


def sizes(items: int, *, fewest: bool) -> list[int]:
    """Return the sizes of parts of so many items."""
    # Of those that make as many parts only the smallest, where `fewest` says so.
    return sorted({-(-items // n) for n in range(1, items + 1)}) if fewest else list(range(1, items + 1))


def with_tiers(base: Design, ports: int, domains: int, *, fewest: bool, most: int) -> Iterator[Design]:
    """Yield the designs of one leaf, of two to the most tiers; those whose ports overflow at any tier are left out."""
    shapes = divisors(base.leaf_up), sizes(base.rails, fewest=fewest), sizes(domains, fewest=fewest)
    two = [
        dataclasses.replace(base, leaf_bundle=bundle, rails_per_pod=rail, domains_per_pod=width)
        for bundle, rail, width in itertools.product(*shapes)
        if rail * width * bundle <= ports
    ]
    yield from two
    for d in two if most > 2 else ():
        for up in range(1, ports - d.spine_down + 1):
            for bundle in divisors(up):
                three = dataclasses.replace(d, spine_up=up, spine_bundle=bundle)
                yield three
                positions, taken = d.spines_per_pod * up // bundle, three.pods * bundle
                above = three.core_ports or three.ports  # of cores, and of super-spines, which are of their model
                fitting = (n for n in range(1, positions) if math.ceil(positions / n) * taken <= above)
                yield from (dataclasses.replace(three, core_boxes=n) for n in fitting)
                for cores in divisors(positions) if most > 3 else ():
                    shared = dataclasses.replace(three, core_boxes=cores * (cores < positions))
                    yield from with_zones(shared, above, domains, fewest=fewest)


def with_zones(three: Design, ports: int, domains: int, *, fewest: bool) -> Iterator[Design]:
    """Yield every zone and every super-spine over three tiers, super-spines that positions share among them."""
    across, along = math.ceil(three.rails / three.rails_per_pod), math.ceil(domains / three.domains_per_pod)
    for wide, deep in itertools.product(sizes(across, fewest=fewest), sizes(along, fewest=fewest)):
        zone = {"rails_per_zone": wide * three.rails_per_pod, "domains_per_zone": deep * three.domains_per_pod}
        zones, each = math.ceil(across / wide) * math.ceil(along / deep), three.positions_per_core * three.spine_bundle
        for up in range(1, ports - wide * deep * each + 1):
            for bundle in (b for b in divisors(up) if zones * b <= ports):
                four = dataclasses.replace(three, **zone, core_up=up, core_bundle=bundle)
                positions = four.super_spine_positions
                fitting = (n for n in range(1, positions + 1) if math.ceil(positions / n) * zones * bundle <= ports)
                yield from (dataclasses.replace(four, super_spine_boxes=n % positions) for n in fitting)


def every_design(
    i: Instance, r: FabricRequest, s: Switch, spine: Switch | None = None, core: Switch | None = None
) -> Iterator[Design]:
    """Yield every design of a switch over the instance's families and tiers, with its lanes, splits and spares.

    Spines and cores may be of other models; what needs no core is yielded with every model of one.

    Where lengths count, pods and zones of one count are of the fewest rails and domains, as the formulation declares.
    """
    n, gpus, lanes = i.network, i.hardware.rack.gpus, math.ceil(800 / s.port_gbps)
    splits = [x for x in (1, 2, 4) if x <= max(1, min(s.breakout, s.port_gbps / 800))] if lanes <= n.max_lanes else []
    for family, split in itertools.product(n.families, splits):
        rails, width, apart = FAMILIES[family](gpus)
        wan_gateway = math.ceil(r.wan_gbps / (apart * lanes) / s.port_gbps)
        side = {
            "ports": s.ports, "spine_ports": (spine or s).ports, "core_ports": (core or s).ports,
            "super_spine_ports": (core or s).ports, "rails": rails, "racks": r.racks, "rail_gpus": width,
            "apart": apart, "lanes": lanes, "split": split, "nic_gbps": 800 / lanes, "link_gbps": s.port_gbps,
        }  # fmt: skip
        for racks in range(1, max(r.racks, s.ports * split // width) + 1):
            down = racks * width
            spare = spare_ports(down, n.spares)
            if racks == r.racks:
                ends = racks * width * rails
                all_spare = spare_ports(ends, n.spares)
                yield Design(**side, leaf_down=ends, leaf_spare=all_spare, wan_ports=wan_gateway)
            for up in range(1, s.ports - math.ceil((down + spare) / split) + 1):
                leaf = Design(**side, leaf_down=down, leaf_up=up, leaf_spare=spare, wan_ports=wan_gateway)
                counts = {"fewest": n.floor is not None, "most": n.max_tiers}
                yield from with_tiers(leaf, (spine or s).ports, leaf.domains, **counts)


def enough_between(i: Instance, d: Design) -> bool:
    """Say whether a leaf's, a full pod's and a full zone's uplinks carry the least share of their GPUs' ports."""
    most = i.network.max_oversubscription or math.inf
    if isinstance(most, tuple):
        kept = d.single or d.leaf_down * d.nic_gbps <= most[0] * d.leaf_up * d.link_gbps * (1 + 1e-9)
        kept = kept and (d.pods < 2 or d.spine_down <= most[:2][-1] * d.spine_up * (1 + 1e-9))
        return kept and (d.zones < 2 or d.core_down <= most[-1] * d.core_up * (1 + 1e-9))
    least = max(i.network.min_core_share, 1 / most) * d.leaf_down * d.nic_gbps - 1e-6
    leaf = d.single or d.leaf_up * d.link_gbps >= least
    pod = d.pods < 2 or d.pod_uplinks * d.link_gbps >= least * d.rails_per_pod * d.domains_per_pod
    zone = d.zones < 2 or d.zone_uplinks * d.link_gbps >= least * d.rails_per_zone * d.domains_per_zone
    return leaf and pod and zone


def pinned(i: Instance, s: Switch, d: Design) -> bool:
    """Say whether a design of leaves of a model is as the pins on models, tiers and ports want it."""
    held = {"planes": s.planes, "ports_per_switch": s.ports, "tiers": d.tiers, "leaf_domain_racks": d.domain_racks}
    held |= {"leaf_down_ports": d.leaf_down, "leaf_up_ports": d.leaf_up}
    held |= {"spine_down_ports": d.spine_down if d.tiers > 1 else 0, "spine_up_ports": d.spine_up}
    held |= {"core_down_ports": d.core_down if d.tiers > 2 else 0, "core_up_ports": d.core_up}
    return all(held[path.removeprefix("fabric.")] == value for path, value in i.pins.items())


def accepts(i: Instance, r: FabricRequest, s: Switch, d: Design) -> bool:
    """Say whether wiring, pins, shares and time rules accept a design of leaves of a model."""
    fits = d.tiers <= i.network.max_tiers and pinned(i, s, d) and not d.faults()
    between = enough_between_groups(i, d) if isinstance(d, Dragonfly) else fits and enough_between(i, d)
    return fits and between and hidden(i, r, d)


def accepted_designs(i: Instance, r: FabricRequest) -> Iterator[tuple[Switch, Sequence[Switch], Design]]:
    """Yield every design that is accepted, with the model of its leaves and those of the tiers above."""
    trees, groups = (tuple(f for f in i.network.families if (f in FAMILIES) == of_trees) for of_trees in (True, False))
    of = {k: i.replaced(network__families=k) for k in (trees, groups) if k}
    for s, spine, core in itertools.product(i.network.switches, repeat=3) if trees else ():
        if alike(s) == alike(spine) == alike(core):
            found = (d for d in every_design(of[trees], r, s, spine, core) if accepts(i, r, s, d))
            yield from ((s, (spine, core, core), d) for d in found)
    for s, spine, d in every_dragonfly(of[groups], r) if groups else ():
        if accepts(i, r, s, d):
            yield s, (spine,), d


def require_cheapest(i: Instance, r: FabricRequest) -> None:
    """Hold the fabric that is chosen against every accepted one that survives what it must."""
    every = ((bill(i.network, s, d, above).usd, d) for s, above, d in accepted_designs(i, r))
    priced = sorted(every, key=lambda x: x[0])
    least = next((usd for usd, d in priced if math.isfinite(usd) and meets(i.network, d)), None)
    found = cheapest(i, r)
    assert (found is None) == (least is None)
    if found is not None:
        assert found.usd == pytest.approx(least, abs=0.02)
        assert accepts(i, r, found.models[0], found.design) and meets(i.network, found.design)
