"""The question of one site's fabric in integers: what may be built, at what price, and how far the traffic may be slowed."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.instance.hardware import Rack
from planner.instance.instance import Instance
from planner.instance.network import FabricFamily, Network, Switch
from planner.models.requests import FabricRequest, resolved_switches
from planner.physics.network.families import FAMILIES
from planner.physics.network.links import spare_ports
from planner.physics.network.locality import exchange_bound
from planner.physics.network.price import switch_usd, by_reach, flat_usd
from planner.physics.network.topology import Design
from planner.physics.network.wan_gateway import FreeUplinks, free_uplinks, leaf_ports, wan_ports
from planner.simulation.reference_tree import transport_slowdown_of

Ints = npt.NDArray[np.int64]
BEYOND = 10**15  # units: above the price of any fabric, and its sums still fit 64 bits
TOLERANCE = 1e-9  # relative, on slowdowns: 1.05 · 4 must count as within 4.2
PINS = (
    "planes", "ports_per_switch", "tiers", "leaf_domain_racks", "leaf_down_ports", "leaf_up_ports", "spine_down_ports", "spine_up_ports",
    "core_down_ports", "core_up_ports",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ratios:
    """What the traffic allows: largest max(1, …) of the hop and of the all-reduce over the transport's own slowdown, tolerance included."""

    hop: float
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
        """A dragonfly of either kind."""
        return FAMILIES[self.family].wiring.grouped

    def spare(self, network: Network, used: int) -> int:
        """Ports of a leaf kept free."""
        return spare_ports(used, network.spares.share, network.spares.failure_chance, network.spares.shortage_chance)

    def wan_ports(self, request: FabricRequest) -> int:
        """Ports of a network's WAN gateway towards the wide area."""
        return wan_ports(request.wan_gbps, self.networks, self.switch.port_gbps)

    def exchange_ports(self, request: FabricRequest) -> float:
        """Ports' worth of uplinks that gradients on their way to other sites take of a leaf whose domain holds a whole stage."""
        return leaf_ports(request.exchange_gbps, self.networks * self.rails, self.switch.port_gbps) * (1 - TOLERANCE)


@dataclass(frozen=True, slots=True)
class Problem:
    """The site's question in integers."""

    network: Network
    request: FabricRequest
    modes: tuple[Mode, ...]
    pins: Mapping[str, int]
    ratios: Ratios
    unit_cents: int
    most_splits: int | None = None
    least_domain: int = 1
    watt_usd: float = 0.0  # what a watt weighs in the choice beside its own price

    @property
    def weighed(self) -> Network:
        """The network with a watt at what it weighs in the choice; media are chosen by their own price."""
        usd = self.network.power_usd_per_watt + self.watt_usd
        return self.network.model_copy(update={"power_usd_per_watt": usd}) if self.watt_usd else self.network

    def switch_cost(self, mode: int) -> int:
        """Price of a box in each network, in units."""
        m = self.modes[mode]
        return m.networks * self.units(switch_usd(self.weighed, m.switch))

    def units(self, usd: float) -> int:
        """Return a price in units; infinite prices are more than any design costs."""
        return BEYOND if math.isinf(usd) else cents(usd) // self.unit_cents

    def usd(self, units: float) -> float:
        """Return a cost of the model in dollars."""
        return units * self.unit_cents / 100


def leaf_domain_racks(d: Design) -> int:
    """Racks whose GPUs of one index share a leaf."""
    return d.domain_racks


def unavoidable_splits(request: FabricRequest, domain: int) -> int:
    """Count groups that no placement keeps in one leaf domain: those beyond what whole domains and the last one hold."""
    full, last = divmod(request.racks, domain)
    return max(0, request.groups - full * (domain // request.group_racks) - last // request.group_racks)


def largest_ratio(ideal_seconds: float, window_seconds: float, transport_slowdown: float, limit: float | None) -> float:
    """Most that the network may add to phi: ideal·slowdown stays within the window, or ideal·phi where that fills it; any where nothing is sent."""
    if ideal_seconds <= 0:
        return math.inf
    return (
        min(max(window_seconds / ideal_seconds, transport_slowdown), math.inf if limit is None else limit)
        / transport_slowdown
        * (1 + TOLERANCE)
    )


def ratios_of(network: Network, request: FabricRequest) -> Ratios:
    """Return what the traffic of a request allows."""
    transport_slowdown = transport_slowdown_of(network)
    hop = largest_ratio(
        request.pipeline_send_seconds,
        request.pipeline_send_window_seconds,
        transport_slowdown,
        request.pipeline_send_limit,
    )
    return Ratios(
        hop,
        largest_ratio(
            request.allreduce_seconds, request.allreduce_window_seconds, transport_slowdown, request.allreduce_limit
        ),
    )


def free_at_worst(request: FabricRequest, d: Design, port_gbps: float) -> FreeUplinks:
    """Return what the exchange between sites leaves of uplinks where the racks of a stage stand together as far as they can."""
    held = (d.domain_racks * domains for domains in (1, max(1, d.domains_per_pod), d.domains_per_zone))
    return free_uplinks(d, request.exchange_gbps, port_gbps, *(min(1.0, racks / request.group_racks) for racks in held))


def rings(request: FabricRequest, racks: int) -> int:
    """Most groups that cross the edge of so many racks, whole groups laid out one after another: those within, and one more."""
    return 0 if request.group_racks == 1 else min(-(-racks // request.group_racks) + 1, request.groups)


def exchange_flows(request: FabricRequest, racks: int) -> float:
    """Most all-to-all flows of one GPU index that leave so many racks."""
    return exchange_bound(rings(request, racks), racks, request.exchange_racks) * (1 - TOLERANCE)


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
    modes = tuple(_modes(network, rack.gpus, pins, gpu.nic_bytes_per_second))
    prices = [usd for m in modes for usd in (switch_usd(network, m.switch), *flat_usd(network, m.switch, m.split))]
    whole = not by_reach(network) and all(abs(usd * 100 - cents(usd)) < TOLERANCE * max(1.0, usd) for usd in prices)
    unit = math.gcd(*(cents(usd) for usd in prices)) if whole and prices else 1
    return Problem(network, request, modes, pins, ratios_of(network, request), max(unit, 1))


def _modes(network: Network, gpus: int, pins: Mapping[str, int], nic_bytes_per_second: float) -> Iterator[Mode]:
    """Yield every switch that the pins allow in every family, a NIC split over as many lanes as carry it."""
    for s in resolved_switches(network.switches):
        lanes = max(1, math.ceil(nic_bytes_per_second * 8 / (s.port_gbps * 1e9) / (1 + TOLERANCE)))
        pinned = (
            pins.get("planes", s.planes * lanes) == s.planes * lanes
            and pins.get("ports_per_switch", s.ports) == s.ports
        )
        if not pinned or lanes > network.max_lanes:
            continue
        for family in dict.fromkeys(network.families):
            for split in splits(s, nic_bytes_per_second):
                yield Mode(s, family, *FAMILIES[family].rack_ports(gpus), lanes, split)


def splits(switch: Switch, nic_bytes_per_second: float) -> Iterator[int]:
    """Yield 1, 2, 4 and so on: parts of a port that still carry a NIC, as many as the box splits it into."""
    split = 1
    while split <= switch.breakout and (
        split == 1 or nic_bytes_per_second * 8 * split <= switch.port_gbps * 1e9 * (1 + TOLERANCE)
    ):
        yield split
        split *= 2
