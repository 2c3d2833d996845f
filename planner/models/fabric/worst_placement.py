"""What traffic asks of a fabric whatever the order of racks: every send leaves, and as many groups as can cross."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.instance.network import Network
from planner.models.fabric.modes import TOLERANCE
from planner.models.fabric.traffic import ALLREDUCES, EXCHANGES, FLOWS, SHARES, Floats, Ints, Loads, Traffic
from planner.models.requests import FabricRequest
from planner.physics.network.locality import exchange_bound
from planner.simulation.flow_times import transport_slowdown_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstTraffic(Traffic):
    """The traffic of a request at its worst placement; racks count as blocks.

    Attributes
    ----------
    group_racks
        Racks of a stage, which all-reduce.
    groups
        Stages.
    max_allreduce
        Largest factor of the fabric on the transport's slowdown that the time of all-reduces allows.
    """

    group_racks: int
    groups: int
    max_allreduce: float

    @property
    def order(self) -> tuple[Any, ...]:
        """What the loads depend on, but for the racks."""
        return self.exchange_racks, self.group_racks, self.groups, self.max_allreduce

    def loads(self, blocks: int, *, shares: bool = True) -> Loads:
        """Return what leaves runs of racks, of `blocks` racks in all, at the worst placement."""
        return WorstLoads(self, blocks, shares)


class WorstLoads(Loads):
    """What leaves runs of racks at the worst placement.

    All-reduces have a limit and are no axis of a frontier, so they count among the exchanges: as many links as keep
    the limit, which nothing slows further.
    """

    traffic: WorstTraffic

    def at(self, n_stripes: int, sizes: Ints) -> Floats:  # noqa: ARG002 (the order of racks is of no account)
        """Return the loads of runs of racks, one row a size; nothing leaves what holds all racks."""
        t = self.traffic
        racks = np.minimum(sizes, t.racks(self.blocks))
        inside = racks < t.racks(self.blocks)
        groups = np.minimum(-(-racks // t.group_racks) + 1, t.groups) * (t.group_racks > 1)
        found = np.zeros((len(racks), 4))
        found[:, FLOWS] = racks * inside
        found[:, ALLREDUCES] = 0
        found[:, SHARES] = np.minimum(1.0, racks / t.group_racks)
        tokens = [exchange_bound(n, k, t.exchange_racks) for n, k in zip(groups.tolist(), racks.tolist(), strict=True)]
        found[:, EXCHANGES] = np.maximum(tokens, groups / t.max_allreduce) * inside
        return found

    def first_runs(self, n_stripes: NDArray[np.int64], domain: int, domains: int) -> Floats:
        """Return the loads of pods, by domains of a pod."""
        return np.tile(self.at(1, domain * np.arange(domains)), (len(n_stripes), 1, 1))


def worst_traffic(network: Network, request: FabricRequest, gpus: int) -> tuple[WorstTraffic, float]:
    """Return a request's traffic in racks of `gpus` GPUs, and its largest send slowdown: infinite without sends."""
    own, r = transport_slowdown_of(network), request
    send = _largest(r.pipeline_send_seconds, r.pipeline_send_window_seconds, own)
    traffic = WorstTraffic(
        stages=1,
        unit_racks=1,
        wrap=False,
        rails=r.rack_gpus or gpus,
        exchange_racks=r.exchange_racks,
        wan_gbps=r.wan_gbps,
        exchange_gbps=r.exchange_gbps,
        group_racks=r.group_racks,
        groups=r.groups,
        max_allreduce=_largest(r.allreduce_seconds, r.allreduce_window_seconds, own) / own,
    )
    return traffic, send


def _largest(ideal_seconds: float, window_seconds: float, transport_slowdown: float) -> float:
    """Return the largest slowdown of an exchange whose time with it stays within the window: any where none is sent.

    The transport's own is allowed where it alone fills the window.
    """
    if ideal_seconds <= 0:
        return float("inf")
    return max(window_seconds / ideal_seconds, transport_slowdown) * (1 + TOLERANCE)
