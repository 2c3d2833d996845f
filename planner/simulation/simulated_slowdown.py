"""The transport slowdown that plans assume, simulated: random permutations on a fat tree of a network's switches."""

import math
from functools import lru_cache

import numpy as np

from planner.instance.network import MAX_TIERS, Network, TransportRuns
from planner.plan.plan_sections import TransportFactor
from planner.simulation.flow_times import FLOW_BYTES, flow_seconds, ideal_seconds
from planner.simulation.simulated_routes import Tree, permutation


def factor(network: Network | None) -> TransportFactor | None:
    """Return the simulated slowdown of a network's slowest switch with its runs; None if the instance asks for none."""
    if network is None or network.transport.simulate is None:
        return None
    runs = network.transport.simulate
    worst, ports, planes, name = max(
        (slowdown(runs, box.ports, box.planes), box.ports, box.planes, box.name) for box in network.switches
    )
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
        configured_slowdown=network.transport.slowdown,
    )


def transport_slowdown_of(network: Network | None) -> float:
    """Return the transport's slowdown over the fluid ideal: simulated where the instance asks, else its constant."""
    simulated = factor(network)
    if simulated is not None:
        return simulated.slowdown
    return network.transport.slowdown if network is not None else 1.0


@lru_cache(maxsize=64)
def slowdown(runs: TransportRuns, ports: int, planes: int) -> float:
    """Return the simulated slowdown: the percentile over seeds of a permutation's slowest flow over its ideal."""
    tree, tails = reference_tree(runs, ports, planes), []
    for seed in range(runs.seeds):
        flows = permutation(tree.slots, FLOW_BYTES, seed)
        tails.append(flow_seconds(tree, flows, runs.transport, seed).max() / ideal_seconds(tree, flows))
    return float(np.percentile(tails, runs.percentile))


def reference_tree(runs: TransportRuns, ports: int, planes: int) -> Tree:
    """Return the fat tree on which slowdowns are simulated: the fewest tiers, two at least, half the ports down."""
    half = max(1, ports // 2)
    tiers = next((tiers for tiers in range(2, MAX_TIERS) if half ** (tiers - 1) * ports >= runs.hosts), MAX_TIERS)
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
