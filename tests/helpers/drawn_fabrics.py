"""Fabrics of all families at 1,024, 16,384 and 800,000 GPUs, as they are built, without a plan around them."""

from dataclasses import replace

from worked_plan import small

from planner.exports.fabric_parts import BuiltFabric, built_fabric
from planner.instance.network import Switch
from planner.models.fabric.fabric_templates import Template
from planner.physics.network.clos_fabric import Design
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.transport import locality
from planner.planning.site_fabrics import site_fabric

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


def _at(size: str, **choices: int) -> dict[str, int]:
    ports, gpus, racks = SIZES[size]
    return {"ports": ports, "rails": gpus, "racks": racks, "rails_per_pod": gpus} | choices


def _only(size: str, **choices: int) -> Design:
    ports, gpus, racks = SIZES[size]
    return Design(ports=ports, rails=1, apart=gpus, racks=racks, rails_per_pod=1, **choices)


PLUS, ROUTERS = DragonflyPlus, Dragonfly
DESIGNS: dict[str, Design] = {
    "rail 1k": Design(**_at("1k", leaf_down=32, leaf_up=8, leaf_bundle=2, domains_per_pod=4)),
    "rail 16k": Design(
        **_at("16k", leaf_down=32, leaf_up=32, leaf_bundle=2, domains_per_pod=2, spine_up=32, spine_bundle=1)
    ),
    "rail 800k": Design(
        **_at("800k", leaf_down=208, leaf_up=50, leaf_bundle=1, domains_per_pod=2, spine_up=88, spine_bundle=2)
    ),
    "rail 800k in tall pods": Design(
        **_at("800k", rails_per_pod=4, leaf_down=208, leaf_up=10, leaf_bundle=2, domains_per_pod=54), spine_up=1,
        spine_bundle=1,
    ),
    "rail 800k of four tiers": Design(
        **_at("800k", ports=128, leaf_down=64, leaf_up=32, leaf_bundle=2, rails_per_pod=8, domains_per_pod=4),
        spine_up=32, spine_bundle=2, rails_per_zone=72, domains_per_zone=8, core_up=16, core_bundle=2,
    ),
    "rail 1k of four tiers that share boxes": Design(
        **_at("1k", rails_per_pod=2, leaf_down=16, leaf_up=8, leaf_bundle=2, domains_per_pod=2), spine_up=3,
        spine_bundle=1, rails_per_zone=4, domains_per_zone=4, core_boxes=6, core_up=4, core_bundle=1,
        super_spine_boxes=5,
    ),
    "rail-only 1k": _only("1k", leaf_down=32, leaf_up=8, leaf_bundle=2, domains_per_pod=4),
    "rail-only 16k": _only("16k", leaf_down=32, leaf_up=32, leaf_bundle=1, domains_per_pod=64),
    "rail-only 800k": _only("800k", leaf_down=208, leaf_up=208, leaf_bundle=2, domains_per_pod=54),
    "dragonfly+ 1k": PLUS.of(**_at("1k", leaf_down=32, leaf_up=16, leaf_bundle=2, domains_per_pod=1, group_links=16)),
    "dragonfly+ 16k": PLUS.of(**_at("16k", leaf_down=32, leaf_up=32, leaf_bundle=2, domains_per_pod=2, group_links=8)),
    "dragonfly+ 800k": PLUS.of(
        **_at("800k", leaf_down=200, leaf_up=200, leaf_bundle=2, domains_per_pod=1, group_links=300)
    ),
    "dragonfly 1k": ROUTERS.of(**_at("1k", leaf_down=32, leaf_bundle=2, domains_per_pod=1, group_links=16)),
    "dragonfly 16k": ROUTERS.of(**_at("16k", leaf_down=20, leaf_bundle=1, domains_per_pod=3, group_links=4)),
    "dragonfly 800k": ROUTERS.of(**_at("800k", leaf_down=200, leaf_bundle=2, domains_per_pod=1, group_links=100)),
    "one switch": Design(ports=64, rails=8, racks=8, leaf_down=64),
    "rail under a gateway": Design(
        **_at("1k", racks=96, leaf_down=32, leaf_up=8, leaf_bundle=2, domains_per_pod=3, lanes=2, wan_ports=8)
    ),
}  # fmt: skip
