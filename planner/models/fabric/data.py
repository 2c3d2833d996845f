"""The data of one site's fabric in integers: what may be built, at what price, and how far traffic may be slowed."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.errors import InputError
from planner.instance.hardware import Rack
from planner.instance.instance import Instance
from planner.instance.network import FabricFamily, Network, Switch
from planner.models.requests import FabricRequest, resolved_switches
from planner.physics.network.families import FAMILIES
from planner.physics.network.links import lanes_of, spare_ports
from planner.physics.network.locality import exchange_bound
from planner.physics.network.price import by_reach, flat_usd, switch_usd
from planner.physics.network.topology import Design
from planner.physics.network.wan_gateway import FreeUplinks, free_uplinks, leaf_ports, wan_ports
from planner.simulation.reference_tree import transport_slowdown_of

Ints = npt.NDArray[np.int64]
INFINITE_COST = 10**15  # units: above the price of any fabric, and its sums still fit 64 bits
TOLERANCE = 1e-9  # relative, on slowdowns: 1.05 · 4 must count as within 4.2
PINS = (
    "planes", "ports_per_switch", "tiers", "leaf_domain_racks", "leaf_down_ports", "leaf_up_ports",
    "spine_down_ports", "spine_up_ports", "core_down_ports", "core_up_ports",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ratios:
    """Largest slowdowns of pipeline sends and all-reduces over the transport's own; the tolerance is included."""

    send: float
    allreduce: float


@dataclass(frozen=True, slots=True)
class Mode:
    """A switch in one of the families: how a rack's GPUs meet at its ports, and over how many networks."""

    switch: Switch
    family: FabricFamily
    rails: int
    rail_gpus: int
    apart: int
    lanes: int
    split: int = 1

    @property
    def networks(self) -> int:
        """Networks side by side."""
        return self.apart * self.lanes

    @property
    def planes(self) -> int:
        """Planes of chips over all lanes of a NIC."""
        return self.switch.planes * self.lanes

    @property
    def grouped(self) -> bool:
        """Whether pods are groups joined directly, as of a dragonfly."""
        return FAMILIES[self.family].wiring.grouped

    def spare(self, network: Network, used: int) -> int:
        """Return the ports of a leaf kept free."""
        return spare_ports(used, network.spares.share, network.spares.failure_chance, network.spares.shortage_chance)

    def wan_ports(self, request: FabricRequest) -> int:
        """Return the ports of a network's WAN gateway towards the wide area."""
        return wan_ports(request.wan_gbps, self.networks, self.switch.port_gbps)

    def exchange_ports(self, request: FabricRequest) -> float:
        """Return the uplinks' worth that gradients to other sites take of a leaf whose domain has a whole stage."""
        return leaf_ports(request.exchange_gbps, self.networks * self.rails, self.switch.port_gbps) * (1 - TOLERANCE)


@dataclass(frozen=True, slots=True)
class Problem:
    """The data of one site's fabric in integers."""

    network: Network
    request: FabricRequest
    modes: tuple[Mode, ...]
    pins: Mapping[str, int]
    ratios: Ratios
    unit_cents: int
    max_splits: int | None = None
    min_domain: int = 1
    watt_usd: float = 0.0  # price of a watt in the objective, beside its own

    @property
    def weighed(self) -> Network:
        """The network with a watt at its price in the objective; media are chosen by their own price."""
        usd = self.network.power_usd_per_watt + self.watt_usd
        return self.network.model_copy(update={"power_usd_per_watt": usd}) if self.watt_usd else self.network

    def switch_cost(self, mode: int) -> int:
        """Return the price of a switch in each network, in units."""
        m = self.modes[mode]
        return m.networks * self.units(switch_usd(self.weighed, m.switch))

    def units(self, usd: float) -> int:
        """Return a price in units; an infinite one is more than any design costs."""
        return INFINITE_COST if math.isinf(usd) else cents(usd) // self.unit_cents

    def usd(self, units: float) -> float:
        """Return a cost of the model in dollars."""
        return units * self.unit_cents / 100


def leaf_domain_racks(d: Design) -> int:
    """Return the racks whose GPUs of one index share a leaf."""
    return d.domain_racks


def unavoidable_splits(request: FabricRequest, domain: int) -> int:
    """Count the groups that no placement keeps in one leaf domain: those beyond what full domains and the last take."""
    full, last = divmod(request.racks, domain)
    return max(0, request.groups - full * (domain // request.group_racks) - last // request.group_racks)


def largest_ratio(ideal_seconds: float, window_seconds: float, transport_slowdown: float, limit: float | None) -> float:
    """Return the largest factor of the network on the transport's slowdown: any where nothing is sent.

    The ideal time with both stays within the window, or the transport's slowdown alone fills it.
    """
    if ideal_seconds <= 0:
        return math.inf
    hidden = max(window_seconds / ideal_seconds, transport_slowdown)
    return min(hidden, math.inf if limit is None else limit) / transport_slowdown * (1 + TOLERANCE)


def ratios_of(network: Network, request: FabricRequest) -> Ratios:
    """Return the slowdowns that the traffic of a request allows."""
    own, r = transport_slowdown_of(network), request
    send = largest_ratio(r.pipeline_send_seconds, r.pipeline_send_window_seconds, own, r.pipeline_send_limit)
    return Ratios(send, largest_ratio(r.allreduce_seconds, r.allreduce_window_seconds, own, r.allreduce_limit))


def free_at_worst(request: FabricRequest, d: Design, port_gbps: float) -> FreeUplinks:
    """Return the uplinks that the exchange of sites leaves free where a stage's racks stand as close as they can."""
    blocks = (d.domain_racks * domains for domains in (1, max(1, d.domains_per_pod), d.domains_per_zone))
    shares = (min(1.0, racks / request.group_racks) for racks in blocks)
    return free_uplinks(d, request.exchange_gbps, port_gbps, *shares)


def crossing_groups(request: FabricRequest, racks: int) -> int:
    """Bound the groups that cross the edge of so many racks, laid out one after another: those within, and one."""
    return 0 if request.group_racks == 1 else min(-(-racks // request.group_racks) + 1, request.groups)


def exchange_flows(request: FabricRequest, racks: int) -> float:
    """Bound the all-to-all flows of one GPU index that leave so many racks."""
    return exchange_bound(crossing_groups(request, racks), racks, request.exchange_racks) * (1 - TOLERANCE)


def cents(usd: float) -> int:
    """Round to whole cents."""
    return round(usd * 100)


def network_of(instance: Instance) -> Network:
    """Return what the fabric may be built from."""
    if instance.network is None:
        raise ValueError("network: missing; a fabric cannot be chosen without it")
    return instance.network


def problem_of(instance: Instance, request: FabricRequest) -> Problem:
    """Return the data of a site's fabric from the instance and the traffic that must be hidden."""
    network = network_of(instance)
    rack, nic = instance.hardware.rack, instance.hardware.gpu_nic_bytes_per_second
    if not isinstance(rack, Rack):
        raise TypeError("hardware: names are not resolved; load the instance through planner.load")
    if isinstance(network.max_oversubscription, tuple):
        raise InputError(
            "network.max_oversubscription: fabrics are compared under one ratio; give a number, not a list"
        )
    pins = {name: int(instance.pins[f"fabric.{name}"]) for name in PINS if f"fabric.{name}" in instance.pins}
    modes = tuple(_modes(network, request.rack_gpus or rack.gpus, pins, nic))
    prices = [usd for m in modes for usd in (switch_usd(network, m.switch), *flat_usd(network, m.switch, m.split))]
    in_cents = not by_reach(network) and all(abs(usd * 100 - cents(usd)) < TOLERANCE * max(1.0, usd) for usd in prices)
    unit = math.gcd(*(cents(usd) for usd in prices)) if in_cents and prices else 1
    return Problem(network, request, modes, pins, ratios_of(network, request), max(unit, 1))


def _modes(network: Network, gpus: int, pins: Mapping[str, int], nic_bytes_per_second: float) -> Iterator[Mode]:
    """Yield every switch that the pins allow in every family, a NIC split over as many lanes as carry it."""
    for s in resolved_switches(network.switches):
        lanes = lanes_of(s, nic_bytes_per_second)
        planes, ports = s.planes * lanes, s.ports
        if (pins.get("planes", planes), pins.get("ports_per_switch", ports)) != (planes, ports):
            continue
        if lanes > network.max_lanes:
            continue
        for family in dict.fromkeys(network.families):
            for split in splits(s, nic_bytes_per_second):
                yield Mode(s, family, *FAMILIES[family].rack_ports(gpus), lanes, split)


def splits(switch: Switch, nic_bytes_per_second: float) -> Iterator[int]:
    """Yield 1, 2, 4 and so on: parts of a port that still carry a NIC, as many as the switch allows."""
    split = 1
    while split <= switch.breakout and (
        split == 1 or nic_bytes_per_second * 8 * split <= switch.port_gbps * 1e9 * (1 + TOLERANCE)
    ):
        yield split
        split *= 2
