"""A permutation of hosts beside an incast of others to one host."""

import numpy as np

from planner.errors import InputError
from planner.physics import Ints
from planner.simulation import simulated_routes
from planner.simulation.simulated_routes import Flows, Tree


def incast(tree: Tree, *, nodes: int, senders: int, size: float, sent: float, seed: int) -> tuple[Flows, Ints]:
    """Return a random permutation of `nodes` hosts of `size` bytes each, and an incast of `senders` others.

    Each of these sends one more host `sent` bytes.

    The second result names the flows of the permutation: those to wait for.
    """
    if nodes + senders + 1 > tree.hosts:
        needed = f"{nodes} hosts of a permutation + {senders} senders + 1 receiver"
        raise InputError(f"incast: {needed} > {tree.hosts} hosts; lower one of them")
    drawn = tree.slots[simulated_routes.order(tree.hosts, seed, 11)]
    ring, crowd = drawn[:nodes], drawn[nodes + 1 : nodes + 1 + senders]
    source = np.concatenate([ring, crowd])
    target = np.concatenate([np.roll(ring, -1), np.full(senders, drawn[nodes])])
    sizes = np.concatenate([np.full(nodes, size), np.full(senders, float(sent))])
    return Flows(source=source, target=target, size=sizes), np.arange(nodes)
