"""The transport's slowdown that plans assume, from runs on a reference tree of the instance's switches."""

import math
from functools import lru_cache

import numpy as np

from planner.instance.network import Network, Switch, TransportRuns
from planner.physics.ticks import tick
from planner.plan.fabric import TransportFactor
from planner.simulation.max_min_fair import static_tail_seconds
from planner.simulation.pfc import Pauses, spread
from planner.simulation.routing import Routes
from planner.simulation.run import flow_seconds, ideal_seconds, routed
from planner.simulation.traffic import permutation
from planner.simulation.tree import Tree

MAX_TIERS = 4
# Flows and steps of time as those that a packet-level simulator is compared with: scripts/verify/packets.py. Flows four
# times as long give the same slowdown within 1 %.
FLOW_BYTES = 24e6
STEP_BYTES = 50e3


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

    With equal flows that share links fairly the tail is the largest load of a link over its rate
    (`planner.simulation.max_min_fair`), so none need be timed. Flows of one path each collide, and priority flow
    control makes others wait for them: under ECMP the tail is that of the fluid with pauses.
    """
    tree, tails = reference_tree(runs, ports, planes), []
    for seed in range(runs.seeds):
        tick()
        flows = permutation(tree.slots, FLOW_BYTES, seed)
        routes = routed(tree, flows, runs.transport, seed)
        tails.append(_tail_seconds(tree, routes, runs.transport) / ideal_seconds(tree, flows))
    return float(np.percentile(tails, runs.percentile))


def _tail_seconds(tree: Tree, routes: Routes, transport: str) -> float:
    if transport == "ecmp":
        return paused_tail_seconds(tree, routes)
    if routes.later:
        return float(flow_seconds(routes, tree.hosts).max())
    return static_tail_seconds(routes)


def paused_tail_seconds(tree: Tree, routes: Routes) -> float:
    """Return when the last flow ends where links are paused; a step is one of bytes, so that rates do not matter."""
    pauses = Pauses(step_seconds=STEP_BYTES / tree.host_rate)
    return float(spread(tree, routes, np.arange(routes.parts), pauses).end.max())


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
