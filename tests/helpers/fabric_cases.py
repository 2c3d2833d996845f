"""Small questions of a fabric: switches, instances, requests, and the time rules in floats by the physics."""

import math
import random
from collections import Counter
from functools import cache
from typing import Any

import numpy as np

from planner.instance.instance import Instance
from planner.instance.network import Network, Switch
from planner.models.fabric.fabric_templates import Template, Templates
from planner.models.fabric.site_traffic import FabricRequest, SiteTraffic, rank_order, worst_traffic
from planner.models.fabric.template_table import DesignTable
from planner.physics.network.clos_fabric import Design
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.locality import Locality, locality
from planner.physics.network.uplink_slowdowns import FreeUplinks, slowdowns, uplink_loads

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
    own = {"name": f"{ports}x{planes}", "ports": ports, "port_gbps": port_gbps, "planes": planes}
    return Switch(**own, price_usd=price_usd, power_watts=1000.0 * planes, **more)


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
    gpu = {"name": "gpu", "hbm_bytes": 1, "hbm_bytes_per_second": 1, "peak_flop_per_second": {}}
    gpu |= {"gemm_efficiency": {"max_share": {}}, "nic_bytes_per_second": 100e9, "nic_latency_seconds": 0}
    gpu |= {"scale_up_bytes_per_second": 1, "scale_up_latency_seconds": 0}
    roles = ("parameter", "working_parameter", "gradient", "optimizer", "activation", "collective")
    workload = {"model": {"name": "m", "layers": 1, "hidden": 1, "heads": 1, "ffn": 1, "vocabulary": 1}, "tokens": 1}
    workload |= {"sequence_length": 1, "precision": {"compute": "bf16"} | {f"{role}_bytes": 2 for role in roles}}
    network = {"switches": [s.model_dump() for s in switches], "transport": {"slowdown": PHI}, "max_tiers": max_tiers}
    network |= {"optics": {"name": "o", "price_usd": optics_usd, "power_watts": 16}, **rules}
    hardware = {"accelerator": gpu, "rack": {"name": "rack", "gpus": rails, "it_kw": 1, "price_usd": 0}}
    own = {"name": "test", "workload": workload, "hardware": hardware, "network": network, "pins": pins or {}}
    return Instance.model_validate(own)


def request(
    racks: int, *, group: int = 1, groups: int = 1, send: float = 1.0, allreduce: float = 1e9, **limits: float
) -> FabricRequest:
    """Return a request whose windows hide slowdowns up to phi·send and phi·allreduce."""
    times = {"pipeline_send_seconds": 1.0, "pipeline_send_window_seconds": PHI * send}
    times |= {"allreduce_seconds": 1.0, "allreduce_window_seconds": PHI * allreduce}
    return FabricRequest(racks=racks, group_racks=group, groups=groups, **times, **limits)


def dearer(i: Instance, seed: int) -> Instance:
    """Return an instance whose links cost half, once or twice and a half what the network's do, by the seed."""
    factor = (1.0, 0.5, 2.5)[seed // 4 % 3]  # of every fourth seed, which alone the quick tests take, too
    switches = tuple(s.replaced(link_factor=factor) for s in i.network.switches)
    return i.replaced(network__switches=switches)


def templates(i: Instance, **how: Any) -> Templates:
    """Return the templates of an instance, of which power is no choice unless it is said to be one."""
    return Templates(**({"instance": i, "transport_slowdown": PHI, "power_counts": False} | how))


def every_template(
    i: Instance, traffic: SiteTraffic, blocks: int, site: str | None = None, **how: Any
) -> list[Template]:
    """Return all templates for some traffic in full."""
    t = templates(i, **how)
    x = t.options(traffic, blocks, site=site)
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
    # Where as many racks of a stage as can stand together, GPU by GPU; in ports.
    each = r.exchange_gbps / (r.group_racks * d.gpus_per_rack * d.lanes) / port_gbps
    domains, rails = (1, max(1, d.domains_per_pod), d.domains_per_zone), (1, d.rails_per_pod, d.rails_per_zone)
    sent = [
        min(r.group_racks, d.domain_racks * n) * d.rail_gpus * min(d.rails, own) * each
        for n, own in zip(domains, rails, strict=True)
    ]
    if isinstance(d, Dragonfly):
        return free_in_groups(d, *sent[:2], r.exchange_gbps / d.networks / port_gbps)
    links = d.leaf_up, d.pod_uplinks, d.zone_uplinks
    return FreeUplinks(*(1 - own / links[k] if k < d.tiers - 1 else 1.0 for k, own in enumerate(sent)))


def free_in_groups(d: Dragonfly, leaf_sends: float, pod_sends: float, exchange: float) -> FreeUplinks:
    """Return the same of a dragonfly, in ports."""
    # Its WAN gateway's links dealt out one by one to groups, and in each to routers.
    group = max(Counter(n % d.pods for n in range(d.wan_ports)).values(), default=0)
    router = max(Counter(n % min(d.group_sizes) for n in range(group)).values(), default=0)
    each, direct = exchange / max(1, d.wan_ports), not isinstance(d, DragonflyPlus)
    leaf = 1 - (leaf_sends + router * direct * each) / d.exits["leaf"]
    if d.pods == 1:
        return FreeUplinks(leaf)
    between = pod_sends + group * each if d.valiant else 2 * pod_sends * group / max(1, d.wan_ports)
    return FreeUplinks(leaf, 1 - between / d.exits["pod"])


def hidden(i: Instance, r: FabricRequest, d: Design) -> bool:
    """Say whether the worst placement's traffic stays within the windows, in floats by the physics."""
    blocks = (1, d.domains), (max(1, d.domains_per_pod), d.pods), (max(1, d.domains_per_zone), d.zones)
    edges = [(d.domain_racks * own, others > 1 and own < d.domains) for own, others in blocks]
    around = [
        min(math.ceil(racks / r.group_racks) + 1, r.groups) * crosses * (r.group_racks > 1) for racks, crosses in edges
    ]
    cut = r.exchange_racks**2 // 4 / max(1, r.exchange_racks - 1) * (r.exchange_racks > 1)
    shares = [min(1.0, 2 * n * cut / racks) for n, (racks, _) in zip(around, edges, strict=True)]
    free = free_by_exchange(r, d, next(s.port_gbps for s in i.network.switches if s.ports == d.ports))
    phi, near = i.network.transport.slowdown, 1 + 1e-9
    took, _ = slowdowns(phi, uplink_loads(d, shares, free=free))
    if min(free.leaf, free.pod, free.zone) < -1e-9 or took > PHI * near:
        return False
    send, allreduce = slowdowns(phi, uplink_loads(d, [float(crosses) for _, crosses in edges], around, free))
    return all(
        ideal * slow <= max(window, ideal * PHI) * near
        for ideal, slow, window in (
            (r.pipeline_send_seconds, send, r.pipeline_send_window_seconds),
            (r.allreduce_seconds, allreduce, r.allreduce_window_seconds),
        )
    )
