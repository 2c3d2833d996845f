"""Fabrics of all families at 1,024, 16,384 and 800,000 GPUs, as they are built, without a plan around them."""

from dataclasses import replace

from worked_plan import small

from planner.exports.fabric_parts import BuiltFabric, built_fabric
from planner.instance.network import Switch
from planner.models.fabric.fabric_section import site_fabric
from planner.models.fabric.fabric_templates import Template
from planner.physics.network.clos_fabric import Design
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.locality import locality

WORKED = built_fabric(small(), "e1")
SIZES = {"1k": (64, 8, 128), "16k": (64, 8, 2048), "800k": (512, 72, 11_111)}  # ports, GPUs of a rack, racks


def built(d: Design) -> BuiltFabric:
    """Return a design as it is built, on switches of one model; it must be one that can be wired."""
    assert not d.faults()
    box = Switch(name=f"{d.ports}x400G", ports=d.ports, port_gbps=400, price_usd=1, power_watts=1)
    t = Template((box,) * 4, "rail", d, stripes=1, usd=0.0, mw=0.0, send=1.0, allreduce=1.0)
    x, network = locality([range(d.racks)], d.block_racks, wrap=False), WORKED.network.replaced(switches=(box,))
    rates = {"nic_seconds": 1.0, "wan_gbps": 400.0 * d.wan_gateway_links}
    fabric = site_fabric(network, t, x, wired_gpus_per_rack=d.gpus_per_rack, **rates)
    return replace(WORKED, site="here", design=d, switch=box, fabric=fabric)


def _tree(size: str, down: int, up: int, bundle: int, domains: int, **more: int) -> Design:
    """Return a tree of all rails in a pod of `domains` leaf domains, leaves of so many ports."""
    return Design(**_choices(size, leaf_down=down, leaf_up=up, leaf_bundle=bundle, domains_per_pod=domains) | more)


def _choices(size: str, **choices: int) -> dict[str, int]:
    ports, gpus, racks = SIZES[size]
    return {"ports": ports, "rails": gpus, "racks": racks, "rails_per_pod": gpus, **choices}


def _apart(size: str, *leaf: int) -> Design:
    """Return a tree of rails apart, each a network of its own."""
    return _tree(size, *leaf, rails=1, apart=SIZES[size][1], rails_per_pod=1)


def _groups(size: str, down: int, bundle: int, domains: int, links: int, up: int = 0) -> Design:
    """Return a dragonfly of groups of `domains` leaf domains, a dragonfly+ where leaves have uplinks."""
    own = {"leaf_down": down, "leaf_bundle": bundle, "domains_per_pod": domains, "group_links": links}
    return (DragonflyPlus if up else Dragonfly).of(**_choices(size, **own, leaf_up=up))


DESIGNS: dict[str, Design] = {
    "rail 1k": _tree("1k", 32, 8, 2, 4),
    "rail 16k": _tree("16k", 32, 32, 2, 2, spine_up=32, spine_bundle=1),
    "rail 800k": _tree("800k", 208, 50, 1, 2, spine_up=88, spine_bundle=2),
    "rail 800k in tall pods": _tree("800k", 208, 10, 2, 54, rails_per_pod=4, spine_up=1, spine_bundle=1),
    "rail 800k of four tiers": _tree("800k", 64, 32, 2, 4, ports=128, rails_per_pod=8, spine_up=32, spine_bundle=2,
     rails_per_zone=72, domains_per_zone=8, core_up=16, core_bundle=2),
    "rail 1k of four tiers that share boxes": _tree("1k", 16, 8, 2, 2, rails_per_pod=2, spine_up=3, spine_bundle=1,
     rails_per_zone=4, domains_per_zone=4, core_boxes=6, core_up=4, core_bundle=1, super_spine_boxes=5),
    "rail-only 1k": _apart("1k", 32, 8, 2, 4),
    "rail-only 16k": _apart("16k", 32, 32, 1, 64),
    "rail-only 800k": _apart("800k", 208, 208, 2, 54),
    "dragonfly+ 1k": _groups("1k", 32, 2, 1, 16, up=16),
    "dragonfly+ 16k": _groups("16k", 32, 2, 2, 8, up=32),
    "dragonfly+ 800k": _groups("800k", 200, 2, 1, 300, up=200),
    "dragonfly 1k": _groups("1k", 32, 2, 1, 16),
    "dragonfly 16k": _groups("16k", 20, 1, 3, 4),
    "dragonfly 800k": _groups("800k", 200, 2, 1, 100),
    "one switch": Design(ports=64, rails=8, racks=8, leaf_down=64),
    "rail under a gateway": _tree("1k", 32, 8, 2, 3, racks=96, lanes=2, wan_ports=8),
}  # fmt: skip
