"""Every dragonfly of a small site, by plain loops."""

import itertools
import math
from collections.abc import Iterator

from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.models.fabric.site_traffic import FabricRequest
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.fabric_designs import spare_ports
from planner.physics.site.wan import wan_ports


def alike(s: Switch) -> tuple[float, int, float]:
    """Return what the ports of two switches must have in common for a cable to join them."""
    return s.port_gbps, s.planes, s.link_factor


def every_dragonfly(i: Instance, r: FabricRequest) -> Iterator[tuple[Switch, Switch, Dragonfly]]:
    """Yield every dragonfly with the models of leaves and spines, by plain loops; most cannot be wired."""
    n, rails = i.network, i.hardware.rack.gpus
    kinds = ((s, family, split) for s in n.switches for family in n.families for split in range(1, s.breakout + 1))
    for (s, family, split), down in itertools.product(kinds, range(1, 2 * max(s.ports for s in n.switches))):
        if down >= s.ports * split:
            continue
        spare = spare_ports(down, n.spares)
        same = {
            "ports": s.ports, "rails": rails, "racks": r.racks, "leaf_down": down, "leaf_spare": spare, "split": split,
            "nic_gbps": 800.0, "link_gbps": s.port_gbps, "valiant": n.group_routing == "valiant",
            "wan_ports": wan_ports(r.wan_gbps, 1, s.port_gbps),
        }  # fmt: skip
        most = max(x.ports for x in n.switches)
        widths = itertools.product(range(1, rails + 1), range(1, math.ceil(r.racks / down) + 1))
        for (x, y), bundle, links in itertools.product(widths, range(1, s.ports), range(2 * most)):
            shape = same | {"rails_per_pod": x, "domains_per_pod": y, "leaf_bundle": bundle, "group_links": links}
            if family == "dragonfly":
                yield s, s, Dragonfly.of(**shape)
            else:
                for up in range(bundle, s.ports - math.ceil((down + spare) / split) + 1, bundle):
                    for spine in (x for x in n.switches if alike(x) == alike(s)):
                        yield s, spine, DragonflyPlus.of(**shape, leaf_up=up, spine_ports=spine.ports)


def enough_between_groups(i: Instance, d: Dragonfly) -> bool:
    """Say whether a leaf's and a full group's links carry the least share of their GPUs' ports."""
    least, total = i.network.min_core_share * d.leaf_down * d.nic_gbps - 1e-6, (d.pods - 1) * d.group_links
    of_routers = min((a - 1) * d.leaf_bundle + total // a for a in d.group_sizes)
    leaf = d.leaf_up if isinstance(d, DragonflyPlus) else of_routers
    group = d.pods < 2 or d.pod_uplinks * d.link_gbps >= least * d.rails_per_pod * d.domains_per_pod
    return leaf * d.link_gbps >= least and group
