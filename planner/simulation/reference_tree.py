"""The transport's slowdown that plans assume, from runs on a reference tree of the instance's switches."""

import math
from functools import lru_cache

import numpy as np

from planner.instance.network import Network, Switch, TransportRuns
from planner.plan.fabric import TransportFactor
from planner.simulation.flow_times import FLOW_BYTES, flow_seconds, ideal_seconds
from planner.simulation.traffic import permutation
from planner.simulation.tree import Tree

MAX_TIERS = 4


def factor(network: Network | None) -> TransportFactor | None:
    """Return the simulated slowdown, or none where the network does not ask for one.

    Of several switches the one on which the transport is slowest counts, since the fabric is chosen later.
    """
    if network is None or network.transport.simulate is None:
        return None
    kinds = tuple(sorted((s.ports, s.planes, s.name) for s in network.switches if isinstance(s, Switch)))
    return _slowest(network.transport.simulate, kinds, network.transport.slowdown)


def transport_slowdown_of(network: Network | None) -> float:
    """Return the transport's slowdown over the fluid ideal: simulated where the instance asks, else its constant."""
    simulated = factor(network)
    if simulated is not None:
        return simulated.slowdown
    return network.transport.slowdown if network is not None else 1.0


@lru_cache(maxsize=64)
def _slowest(runs: TransportRuns, kinds: tuple[tuple[int, int, str], ...], given: float) -> TransportFactor:
    worst, ports, planes, name = max((slowdown(runs, *kind[:2]), *kind) for kind in kinds)
    tree = reference_tree(runs, ports, planes)
    return TransportFactor(
        transport=runs.transport,
        switch=name,
        tiers=tree.tiers,
        hosts=tree.hosts,
        oversubscription=tree.down[0] / tree.up[1],
        seeds=runs.seeds,
        percentile=runs.percentile,
        slowdown=worst,
        configured_slowdown=given,
    )


@lru_cache(maxsize=64)
def slowdown(runs: TransportRuns, ports: int, planes: int) -> float:
    """Return the percentile over the seeds of the tail of a random permutation over its ideal.

    The same model as of `planner simulate`: `planner.simulation.flow_times`.
    """
    tree, tails = reference_tree(runs, ports, planes), []
    for seed in range(runs.seeds):
        flows = permutation(tree.slots, FLOW_BYTES, seed)
        tails.append(flow_seconds(tree, flows, runs.transport, seed).max() / ideal_seconds(tree, flows))
    return float(np.percentile(tails, runs.percentile))


def reference_tree(runs: TransportRuns, ports: int, planes: int) -> Tree:
    """Return the fat tree of the fewest tiers, at least two, for the hosts: half of the ports face down."""
    half = max(1, ports // 2)
    tiers = next((t for t in range(2, MAX_TIERS) if half ** (t - 1) * ports >= runs.hosts), MAX_TIERS)
    hosts = max(2, min(runs.hosts, half ** (tiers - 1) * ports))
    ups = (max(1, math.floor(half / runs.oversubscription)), *(half,) * (tiers - 2))
    return Tree(
        down=(*(half,) * (tiers - 1), -(-hosts // half ** (tiers - 1))),
        up=(1, *ups),
        bundle=(1,) * tiers,
        rates=(1.0,) * tiers,
        planes=(1 / planes,) * planes,
        slots=np.arange(hosts),
    )
