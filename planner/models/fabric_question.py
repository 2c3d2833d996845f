"""The question of one site's fabric in integers: what may be built, at what price, and how far the traffic may be slowed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.handoff import FabricRequest, resolved_switches
from planner.instance import Instance, Network, Rack, Switch
from planner.physics.cost import endpoint_link_usd, switch_link_usd
from planner.physics.transport import slowdown
from planner.physics.wiring import Design

Ints = npt.NDArray[np.int64]
TOLERANCE = 1e-9  # relative, on slowdowns: 1.05 · 4 must count as within 4.2
PINS = ("planes", "ports_per_switch", "tiers", "leaf_domain_racks", "leaf_down_ports", "leaf_up_ports", "spine_down_ports", "spine_up_ports")


@dataclass(frozen=True, slots=True)
class Ratios:
    """What the traffic allows: largest max(1, …) of the hop and of the all-reduce over the transport's own slowdown, tolerance included."""

    hop: float
    allreduce: float


@dataclass(frozen=True, slots=True)
class Problem:
    """The site's question in integers."""

    network: Network
    request: FabricRequest
    rails: int
    switches: tuple[Switch, ...]
    pins: Mapping[str, int]
    ratios: Ratios
    unit_cents: int
    most_splits: int | None = None

    def switch_cost(self, mode: int) -> int:
        """Price of a box, in units."""
        return cents(self.switches[mode].price_usd) // self.unit_cents

    @property
    def link_cost(self) -> int:
        """Price of a link between switches, in units."""
        return cents(switch_link_usd(self.network)) // self.unit_cents

    @property
    def endpoint_usd(self) -> float:
        """Price of all links to endpoints, the same in every design."""
        return self.request.racks * self.rails * endpoint_link_usd(self.network)

    def usd(self, units: float) -> float:
        """Return a cost of the model in dollars, endpoint links included."""
        return units * self.unit_cents / 100 + self.endpoint_usd


def leaf_domain_racks(d: Design) -> int:
    """Racks whose GPUs of one index share a leaf."""
    return d.racks if d.tiers == 1 else d.leaf_down


def unavoidable_splits(request: FabricRequest, domain: int) -> int:
    """Count groups that no placement keeps in one leaf domain: those beyond what whole domains and the last one hold."""
    full, last = divmod(request.racks, domain)
    return max(0, request.groups - full * (domain // request.group_racks) - last // request.group_racks)


def largest_ratio(ideal_seconds: float, window_seconds: float, phi: float, limit: float | None) -> float:
    """Most that the network may add to phi: ideal·slowdown stays within the window, or within ideal·phi where that alone fills it."""
    allowed = max(window_seconds / ideal_seconds, phi) if ideal_seconds > 0 else math.inf
    return min(allowed, math.inf if limit is None else limit) / phi * (1 + TOLERANCE)


def rings(request: FabricRequest, racks: int) -> int:
    """Most groups that cross the edge of so many racks, whole groups laid out one after another: those within, and one more."""
    return 0 if request.group_racks == 1 else min(-(-racks // request.group_racks) + 1, request.groups)


def cents(usd: float) -> int:
    """Round to whole cents."""
    return round(usd * 100)


def network_of(instance: Instance) -> Network:
    """Return what the fabric may be built from."""
    if instance.network is None:
        raise ValueError("network: missing; a fabric cannot be chosen without it")
    return instance.network


def problem_of(instance: Instance, request: FabricRequest) -> Problem:
    """Read the question of a site from the instance and what the layout must hide."""
    network = network_of(instance)
    rack, gpu = instance.hardware.rack, instance.hardware.accelerator
    if not isinstance(rack, Rack) or isinstance(gpu, str):
        raise TypeError("hardware: names are not resolved; load the instance through planner.load")
    pins = {name: int(instance.pins[f"fabric.{name}"]) for name in PINS if f"fabric.{name}" in instance.pins}
    phi = slowdown(network)
    hop = largest_ratio(request.hop_seconds, request.hop_window_seconds, phi, request.hop_limit)
    ring = largest_ratio(request.allreduce_seconds, request.allreduce_window_seconds, phi, request.allreduce_limit)
    switches = tuple(s for s in resolved_switches(network.switches) if _usable(s, pins, gpu.nic_bytes_per_second))
    unit = math.gcd(cents(switch_link_usd(network)), *(cents(s.price_usd) for s in switches))
    return Problem(network, request, rack.gpus, switches, pins, Ratios(hop, ring), max(unit, 1))


def _usable(switch: Switch, pins: Mapping[str, int], nic_bytes_per_second: float) -> bool:
    """Keep a mode that the pins allow and whose ports carry a NIC."""
    pinned = pins.get("planes", switch.planes) == switch.planes and pins.get("ports_per_switch", switch.ports) == switch.ports
    return pinned and switch.port_gbps * 1e9 * (1 + TOLERANCE) >= nic_bytes_per_second * 8
