"""The transport's slowdown that plans count on, from runs on a reference tree of the switches at hand."""

import math
from functools import lru_cache

import numpy as np

from planner.instance.network import Network, Switch, TransportRuns
from planner.plan.fabric import TransportFactor
from planner.simulation.max_min_fair import static_tail_seconds
from planner.simulation.run import ideal_seconds, routed
from planner.simulation.traffic import permutation
from planner.simulation.tree import Tree

MOST_TIERS = 4


def factor(network: Network | None) -> TransportFactor | None:
    """Return the simulated slowdown, or none where the network does not ask for one.

    Of several switches the one on which the transport is slowest counts, since the fabric is chosen later.
    """
    if network is None or network.transport.simulate is None:
        return None
    kinds = tuple(sorted((s.ports, s.planes, s.name) for s in network.switches if isinstance(s, Switch)))
    return _slowest(network.transport.simulate, kinds, network.transport.slowdown)


def transport_slowdown_of(network: Network | None) -> float:
    """Return the transport's own slowdown over the fluid ideal (phi): simulated where the instance asks for it, else its constant."""
    simulated = factor(network)
    if simulated is not None:
        return simulated.slowdown
    return network.transport.slowdown if network is not None else 1.0


@lru_cache(maxsize=64)
def _slowest(asked: TransportRuns, kinds: tuple[tuple[int, int, str], ...], given: float) -> TransportFactor:
    worst, ports, planes, name = max(
        (slowdown(asked, ports, planes), ports, planes, name) for ports, planes, name in kinds
    )
    tree = reference_tree(asked, ports, planes)
    return TransportFactor(
        transport=asked.transport,
        switch=name,
        tiers=tree.tiers,
        hosts=tree.hosts,
        oversubscription=tree.down[0] / tree.up[1],
        seeds=asked.seeds,
        percentile=asked.percentile,
        slowdown=worst,
        configured_slowdown=given,
    )


@lru_cache(maxsize=64)
def slowdown(asked: TransportRuns, ports: int, planes: int) -> float:
    """Return the percentile over the seeds of the tail of a random permutation over its ideal.

    With equal flows the tail is the largest load of a link over its rate (`planner.simulation.max_min_fair`), so none need be timed.
    """
    tree, found = reference_tree(asked, ports, planes), []
    for seed in range(asked.seeds):
        flows = permutation(tree.slots, 1.0, seed)
        found.append(static_tail_seconds(routed(tree, flows, asked.transport, seed)) / ideal_seconds(tree, flows))
    return float(np.percentile(found, asked.percentile))


def reference_tree(asked: TransportRuns, ports: int, planes: int) -> Tree:
    """Wire the fat tree of fewest tiers, two at least, that holds the hosts: half of the ports face down below the top."""
    half = max(1, ports // 2)
    tiers = next((t for t in range(2, MOST_TIERS) if half ** (t - 1) * ports >= asked.hosts), MOST_TIERS)
    hosts = max(2, min(asked.hosts, half ** (tiers - 1) * ports))
    ups = (max(1, math.floor(half / asked.oversubscription)), *(half,) * (tiers - 2))
    return Tree(
        down=(*(half,) * (tiers - 1), -(-hosts // half ** (tiers - 1))),
        up=(1, *ups),
        bundle=(1,) * tiers,
        rates=(1.0,) * tiers,
        planes=(1 / planes,) * planes,
        slots=np.arange(hosts),
    )
