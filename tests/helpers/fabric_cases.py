"""Small questions of a fabric: switches, instances, requests, and the time rules in floats by the physics."""

import math
import random
from collections import Counter
from functools import cache
from typing import Any

import numpy as np

from planner.instance.instance import Instance
from planner.instance.network import Network, Switch
from planner.models import FabricRequest
from planner.models.fabric.design_table import DesignTable
from planner.models.fabric.fabric_templates import Template, Templates, worst_traffic
from planner.models.fabric.site_traffic import SiteTraffic, rank_order
from planner.physics.network.clos_fabric import Design
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.transport import FreeUplinks, Locality, locality, slowdowns, uplink_loads

PHI = 1.05


def flat_price(network: Network, box: Switch, d: Design) -> tuple[float, float]:
    """Return the price in USD and the power in MW of a design of one model, each switch, cable and transceiver once."""
    cables, optics = network.cables, network.optics
    modules = d.switch_links * cables.switch_transceivers + d.endpoint_links * cables.endpoint_transceivers
    usd = d.switch_links * cables.switch_usd + d.endpoint_links * cables.endpoint_usd + modules * optics.price_usd
    return d.switches * box.price_usd + usd, (d.switches * box.power_watts + modules * optics.power_watts) / 1e6


@cache
def crossings(
    groups: int, blocks: int, stripes: int, unit_racks: int, domain_racks: int, pod: int, zone: int = 0, *, wrap: bool
) -> Locality:
    """Count what leaves leaf domains of so many racks, pods and zones of so many domains, on the order that is built.

    The thousands of designs of a small site have few counts among them.
    """
    order = rank_order(groups, blocks, stripes, unit_racks)
    return locality(order, [domain_racks * count for count in (1, pod, zone) if count], wrap=wrap)


def switch(ports: int, price_usd: float, planes: int = 1, port_gbps: float = 800, **more: float) -> Switch:
    own = {
        "ports": ports, "port_gbps": port_gbps, "planes": planes, "price_usd": price_usd,
        "power_watts": 1000.0 * planes,
    }  # fmt: skip
    return Switch(name=f"{ports}x{planes}", **own, **more)


def drawn_lengths(r: random.Random, *reaches_m: float) -> dict[str, object]:
    """Draw a floor and two media, the far one of such reaches too, so that lengths have prices."""
    floor = {"racks_per_row": r.randint(1, 4), "rise_m": r.choice([0, 1]), "spread_m": r.choice([0, 4])}
    near = {"name": "near", "reach_m": r.choice([2, 3, 5]), "price_usd": r.choice([0, 300])}
    near["power_watts"] = r.choice([0, 30])
    far = {"name": "far", "reach_m": r.choice([*reaches_m, 9, 100]), "price_usd": 1000, "power_watts": 16}
    far["usd_per_m"] = r.choice([0, 10])
    return {"floor": floor, "media": [near, far], "power_usd_per_watt": r.choice([0, 5])}


def instance(
    rails: int,
    *switches: Switch,
    optics_usd: float = 1200,
    max_tiers: int = 3,
    pins: dict[str, object] | None = None,
    **rules: object,
) -> Instance:
    """Return an instance of which only the parts that a fabric reads are real."""
    gpu = {
        "name": "gpu", "hbm_bytes": 1, "hbm_bytes_per_second": 1, "peak_flop_per_second": {},
        "gemm_efficiency": {"max_share": {}},
    }  # fmt: skip
    gpu |= {
        "scale_up_bytes_per_second": 1,
        "scale_up_latency_seconds": 0,
        "nic_bytes_per_second": 100e9,
        "nic_latency_seconds": 0,
    }
    roles = ("parameter", "working_parameter", "gradient", "optimizer", "activation", "collective")
    model = {"name": "m", "layers": 1, "hidden": 1, "heads": 1, "ffn": 1, "vocabulary": 1}
    precision = {"compute": "bf16"} | {f"{role}_bytes": 2 for role in roles}
    network = {
        "switches": [s.model_dump() for s in switches],
        "optics": {"name": "o", "price_usd": optics_usd, "power_watts": 16},
        "transport": {"slowdown": PHI},
        "max_tiers": max_tiers,
        **rules,
    }
    return Instance.model_validate(
        {
            "name": "test",
            "workload": {"model": model, "tokens": 1, "sequence_length": 1, "precision": precision},
            "hardware": {"accelerator": gpu, "rack": {"name": "rack", "gpus": rails, "it_kw": 1, "price_usd": 0}},
            "network": network,
            "pins": pins or {},
        }
    )


def request(
    racks: int, *, group: int = 1, groups: int = 1, send: float = 1.0, allreduce: float = 1e9, **limits: float
) -> FabricRequest:
    """Return a request whose windows hide slowdowns up to phi·send and phi·allreduce."""
    times = {
        "pipeline_send_seconds": 1.0,
        "pipeline_send_window_seconds": PHI * send,
        "allreduce_seconds": 1.0,
        "allreduce_window_seconds": PHI * allreduce,
    }
    return FabricRequest(racks=racks, group_racks=group, groups=groups, **times, **limits)


def dearer(i: Instance, seed: int) -> Instance:
    """Return an instance whose links cost half, once or twice and a half what the network's do, by the seed."""
    factor = (1.0, 0.5, 2.5)[seed // 4 % 3]  # of every fourth seed, which alone the quick tests take, too
    switches = tuple(s.replaced(link_factor=factor) for s in i.network.switches)
    return i.replaced(network__switches=switches)


def templates(i: Instance, **how: Any) -> Templates:
    """Return the templates of an instance, of which power is no choice unless it is said to be one."""
    return Templates(**({"instance": i, "transport_slowdown": PHI, "power_counts": False} | how))


def every_template(i: Instance, traffic: SiteTraffic, blocks: int, **at: str | None) -> list[Template]:
    """Return all templates for some traffic in full."""
    t = templates(i)
    x = t.options(traffic, blocks, **at)
    return [t.template(traffic, blocks, x, k) for k in range(len(x))]


def beaten(x: DesignTable, send: float, allreduce: float, usd: float) -> bool:
    """Say whether some template is as calm and as cheap."""
    near = 1 + 1e-9
    return bool(np.any((x.send <= send * near) & (x.allreduce <= allreduce * near) & (x.usd <= usd * near)))


def cheapest(i: Instance, r: FabricRequest) -> Template | None:
    """Return the cheapest fabric of a site whatever the order of its racks, and a WAN gateway where asked for."""
    i = i.replaced(network__wan_gateway=True)
    traffic, send = worst_traffic(i.network, r, i.hardware.rack.gpus)
    phi = i.network.transport.slowdown
    t = templates(i, transport_slowdown=phi, whole=True)
    x = t.options(traffic, r.racks, max_slowdowns=(send, phi * traffic.max_allreduce))
    return t.template(traffic, r.racks, x, int(x.usd.argmin())) if len(x) else None


def free_by_exchange(r: FabricRequest, d: Design, port_gbps: float) -> FreeUplinks:
    """Return what gradients on their way to other sites leave of uplinks."""
    # Where as many racks of a stage as can stand together, GPU by GPU.
    one_gpu = r.exchange_gbps / (r.group_racks * d.gpus_per_rack * d.lanes)
    leaf_gpus = min(r.group_racks, d.domain_racks) * d.rail_gpus
    pod_gpus = min(r.group_racks, d.domain_racks * max(1, d.domains_per_pod)) * d.rail_gpus * d.rails_per_pod
    if isinstance(d, Dragonfly):
        return free_in_groups(
            d, leaf_gpus * one_gpu / port_gbps, pod_gpus * one_gpu / port_gbps, r.exchange_gbps / d.networks / port_gbps
        )
    leaf = leaf_gpus * one_gpu / (d.leaf_up * port_gbps) if d.tiers > 1 else 0.0
    pod = pod_gpus * one_gpu / (d.pod_uplinks * port_gbps) if d.tiers > 2 else 0.0
    zone_gpus = min(r.group_racks, d.domain_racks * d.domains_per_zone) * d.rail_gpus * min(d.rails, d.rails_per_zone)
    zone = zone_gpus * one_gpu / (d.zone_uplinks * port_gbps) if d.tiers > 3 else 0.0
    return FreeUplinks(1 - leaf, 1 - pod, 1 - zone)


def free_in_groups(d: Dragonfly, leaf_sends: float, pod_sends: float, exchange: float) -> FreeUplinks:
    """Return the same of a dragonfly, in ports."""
    # Its WAN gateway's links dealt out one by one to groups, and in each to routers.
    dealt = Counter(n % d.pods for n in range(d.wan_ports))
    group = max(dealt.values(), default=0)
    router = max(Counter(n % min(d.group_sizes) for n in range(group)).values(), default=0) * (
        not isinstance(d, DragonflyPlus)
    )
    each = exchange / max(1, d.wan_ports)
    if d.pods == 1:
        return FreeUplinks(1 - (leaf_sends + router * each) / d.exits["leaf"])
    between = pod_sends + group * each if d.valiant else 2 * pod_sends * group / max(1, d.wan_ports)
    return FreeUplinks(1 - (leaf_sends + router * each) / d.exits["leaf"], 1 - between / d.exits["pod"])


def hidden(i: Instance, r: FabricRequest, d: Design) -> bool:
    """Say whether the worst placement's traffic stays within the windows, in floats by the physics."""
    edges = [
        (d.domain_racks, d.domains > 1),
        (d.domain_racks * max(1, d.domains_per_pod), d.pods > 1 and d.domains_per_pod < d.domains),
    ]
    edges.append((d.domain_racks * max(1, d.domains_per_zone), d.zones > 1 and d.domains_per_zone < d.domains))
    around = [
        min(math.ceil(racks / r.group_racks) + 1, r.groups) * crosses * (r.group_racks > 1) for racks, crosses in edges
    ]
    cut = r.exchange_racks**2 // 4 / max(1, r.exchange_racks - 1)
    shares = [
        min(1.0, 2 * n * cut / racks) if r.exchange_racks > 1 else 0.0
        for n, (racks, _) in zip(around, edges, strict=True)
    ]
    free = free_by_exchange(r, d, next(s.port_gbps for s in i.network.switches if s.ports == d.ports))
    phi = i.network.transport.slowdown
    took, _ = slowdowns(phi, uplink_loads(d, shares, free=free))
    if min(free.leaf, free.pod, free.zone) < -1e-9 or took > PHI * (1 + 1e-9):
        return False
    send, allreduce = slowdowns(phi, uplink_loads(d, [float(crosses) for _, crosses in edges], around, free))
    kept = r.pipeline_send_seconds * send <= max(r.pipeline_send_window_seconds, r.pipeline_send_seconds * PHI) * (
        1 + 1e-9
    )
    kept &= r.allreduce_seconds * allreduce <= max(r.allreduce_window_seconds, r.allreduce_seconds * PHI) * (1 + 1e-9)
    return kept
