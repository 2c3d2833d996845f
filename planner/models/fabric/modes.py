"""Switches in their families: how a rack's GPUs meet at the ports, and over how many networks side by side."""

from collections.abc import Iterator
from dataclasses import dataclass

from planner.instance.network import FabricFamily, Network, Switch
from planner.models.requests import resolved_switches
from planner.physics.network.families import FAMILIES
from planner.physics.network.links import lanes_of, spare_ports

TOLERANCE = 1e-9  # relative, on slowdowns: 1.05 · 4 must count as within 4.2


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


def switch_modes(network: Network, gpus: int, nic_bytes_per_second: float) -> Iterator[Mode]:
    """Yield every switch in every family, for racks of `gpus` GPUs, a NIC split over as many lanes as carry it."""
    for s in resolved_switches(network.switches):
        lanes = lanes_of(s, nic_bytes_per_second)
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
