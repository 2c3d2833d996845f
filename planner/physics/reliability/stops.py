"""How often a job stops: the rates of the parts that work for it, and their growth with its size."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.instance.instance import Instance
from planner.instance.network import Network, Switch
from planner.instance.reliability import FailingPart, Reliability
from planner.physics.network.links import lanes_of
from planner.physics.num import Num

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """What joins a GPU at work to its leaves: a link for each lane of its NIC, and the transceivers of all of them."""

    links: int = 0
    transceivers: int = 0


NO_LINKS = GpuLinks()


def gpu_links(network: Network | None, lanes: int) -> GpuLinks:
    """Return the links of a GPU whose NIC is split over so many lanes; none where the instance has no network."""
    return NO_LINKS if network is None else GpuLinks(lanes, lanes * network.cables.endpoint_transceivers)


def lanes_to_choose(instance: Instance) -> list[int]:
    """List the numbers of lanes that a fabric may split a NIC over, by its switches; none without a network."""
    n, nic = instance.network, instance.hardware.gpu_nic_bytes_per_second
    switches = () if n is None else (s for s in n.switches if isinstance(s, Switch))
    found = {lanes_of(s, nic) for s in switches}
    return sorted(x for x in found if n is not None and x <= n.max_lanes)


def fewest_stops(instance: Instance, r: Reliability) -> GpuLinks:
    """Return the links of a GPU in a fabric whose links stop the job least often."""
    each = (gpu_links(instance.network, lanes) for lanes in lanes_to_choose(instance))
    return min(each, key=lambda x: stops_per_gpu_second(r, x), default=NO_LINKS)


def _per_gpu_second(p: FailingPart, links: GpuLinks) -> float:
    """Return the events of a part in a second, for as many of it as a GPU at work has."""
    counts = (1, p.gpu_hours_per_event), (links.links, p.link_hours_per_event)
    each = (*counts, (links.transceivers, p.transceiver_hours_per_event))
    return sum(n / (hours * SECONDS_PER_HOUR) for n, hours in each if hours is not None)


def part_stops_per_gpu_second(r: Reliability, links: GpuLinks = NO_LINKS) -> dict[str, float]:
    """Return the stops that each kind of part causes in a second of one GPU at work, at the measured size."""
    stopping = NO_LINKS if r.lane_failover and links.links > 1 else links
    return {name: _per_gpu_second(p, stopping) for name, p in r.parts.items()}


def stops_per_gpu_second(r: Reliability, links: GpuLinks = NO_LINKS) -> float:
    """Return the stops of all parts in a second of one GPU at work, at the measured size."""
    return sum(part_stops_per_gpu_second(r, links).values())


def scale_factor(r: Reliability, gpus: Num) -> Any:
    """Return by how much a job of so many GPUs stops more often than in proportion to them: 1 up to those measured."""
    if not r.scale_exponent:
        return 1.0
    return np.maximum(1.0, np.asarray(gpus, dtype=np.float64) / r.measured_gpus) ** r.scale_exponent


def stops_per_second(r: Reliability, gpus: Num, links: GpuLinks = NO_LINKS) -> Any:
    """Return the stops in a second of a job of so many GPUs at work: the sum over their parts."""
    return gpus * stops_per_gpu_second(r, links) * scale_factor(r, gpus)
