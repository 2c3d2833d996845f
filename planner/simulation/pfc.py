"""Priority flow control on the same wiring: how pauses spread from an incast to flows that have nothing to do with it.

A fluid in steps of time. Every link serves the bytes that wait before it in proportion to what each flow has there.
Bytes wait at the switch behind the link that brought them; once more than `xoff_bytes` of one link's bytes wait there,
that link is paused as a whole, whatever its bytes are bound for, until they are back to `xon_bytes`. So the queue of a
receiver that many send to fills, its leaf pauses the links that feed it, the spines behind those fill, and the tree of
paused links grows hop by hop towards the senders for as long as more comes in than drains; flows that merely cross it
wait.

Limits: senders keep the line rate (what DCQCN or HPCC do after a round trip is left out, so pauses are the most that
can be); one priority; fixed thresholds per ingress link and no shared buffer; queues mix perfectly (a fluid has no
packets); a pause acts one step after its threshold, which stands for cable and pipeline; nothing is lost; every flow
has one path.
"""

from dataclasses import dataclass

import numpy as np

from planner.errors import InputError
from planner.physics.ticks import tick
from planner.simulation import rng
from planner.simulation.live_cables import Flows
from planner.simulation.rng import Floats, Ints
from planner.simulation.routing import Routes
from planner.simulation.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Thresholds of an ingress link, and the step of time."""

    xoff_bytes: float = 256e3  # a share of a 64 MB buffer over 64 ports, less headroom (unsourced estimate)
    xon_bytes: float = 200e3
    step_seconds: float = 0.5e-6
    max_steps: int = 200_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """What pauses did.

    Attributes
    ----------
    end
        When each flow ended; infinite for those that were not waited for.
    paused
        Most links that were paused at one time, by the tier at whose foot they are.
    share
        Part of the time that each link was paused.
    """

    end: Floats
    paused: tuple[int, ...]
    share: Floats


def spread(tree: Tree, routes: Routes, waited: Ints, p: Pauses | None = None) -> Spread:
    """Return what pauses do until the `waited` flows have ended; the others send for as long as that takes.

    Raises
    ------
    InputError
        The flows have not ended after the last step.
    """
    p = p or Pauses()
    owner = routes.owner()
    order = np.lexsort((_height(tree, routes.link), owner))
    used, link = np.unique(routes.link[order], return_inverse=True)
    owner, links, tiers = owner[order], len(used), tree.tier_of(used)
    first = np.diff(owner, prepend=-1) > 0
    last, behind = np.roll(first, -1), np.where(first, links, np.roll(link, 1))
    waiting, room = np.where(first, routes.size[owner], 0.0), routes.capacity[used] * p.step_seconds
    end, on = np.full(routes.parts, np.inf), np.zeros(links, bool)
    paused_steps, most_paused = np.zeros(links), np.zeros(tree.tiers, np.int64)
    missing, due = routes.size.astype(float), np.zeros(routes.parts, bool)
    due[waited] = True
    for step in range(1, p.max_steps + 1):
        tick()
        queue = np.bincount(link, waiting, links)
        served = waiting * np.divide(np.where(on, 0.0, room), queue, out=np.ones(links), where=queue > room * ~on)[link]
        waiting -= served
        waiting[1:] += np.where(last[:-1], 0.0, served[:-1])
        missing[owner[last]] -= served[last]
        ended = np.isinf(end) & (missing <= 1e-6 * routes.size)
        end[ended] = step * p.step_seconds
        if not np.isinf(end[due]).any():
            share = np.zeros(len(routes.capacity))
            share[used] = paused_steps / step
            return Spread(end=end, paused=tuple(most_paused.tolist()), share=share)
        brought = np.bincount(behind, waiting, links + 1)[:links]
        on = (brought > p.xoff_bytes) | (on & (brought > p.xon_bytes))
        paused_steps += on
        np.maximum(most_paused, np.bincount(tiers[on], minlength=tree.tiers), out=most_paused)
    late = f"{int(np.isinf(end[due]).sum())} flows have not ended"
    raise InputError(f"pauses: {late} after {p.max_steps * p.step_seconds:g} s; give more steps")


def _height(tree: Tree, link: Ints) -> Ints:
    """Return where on a path a link comes: up tier by tier, then down."""
    tier, down = tree.tier_of(link), link // sum(tree.cables) % 2
    return np.where(down == 1, 2 * tree.tiers - tier, tier)


def incast(tree: Tree, *, nodes: int, senders: int, size: float, sent: float, seed: int) -> tuple[Flows, Ints]:
    """Return a random permutation of `nodes` hosts of `size` bytes each, and an incast of `senders` others.

    Each of these sends one more host `sent` bytes.

    The second result names the flows of the permutation: those to wait for.
    """
    if nodes + senders + 1 > tree.hosts:
        needed = f"{nodes} hosts of a permutation + {senders} senders + 1 receiver"
        raise InputError(f"incast: {needed} > {tree.hosts} hosts; lower one of them")
    drawn = tree.slots[rng.order(tree.hosts, seed, 11)]
    ring, crowd = drawn[:nodes], drawn[nodes + 1 : nodes + 1 + senders]
    source = np.concatenate([ring, crowd])
    target = np.concatenate([np.roll(ring, -1), np.full(senders, drawn[nodes])])
    sizes = np.concatenate([np.full(nodes, size), np.full(senders, float(sent))])
    return Flows(source=source, target=target, size=sizes), np.arange(nodes)
