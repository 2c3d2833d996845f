"""The adaptive transport: every flowlet takes the path whose most loaded link is least loaded."""

import numpy as np

from planner.errors import InputError
from planner.simulation import rng
from planner.simulation.live_cables import Alive, Flows
from planner.simulation.rng import Floats, Ints
from planner.simulation.routing import Entries, Routes
from planner.simulation.tree import Tree

FLOWLETS = 8  # parts of a flow that choose a path each: few enough to stay quick, enough to leave a full link


class Loads:
    """What every bundle of every plane carries, over its rate; failed bundles carry more than anything."""

    def __init__(self, tree: Tree, alive: Alive) -> None:
        """Start with nothing on the links."""
        self.tree, shares = tree, np.asarray(tree.planes)[:, None, None]
        self.slow = [1 / np.maximum(n * r * shares, 1e-300) for n, r in zip(alive.counts, tree.rates, strict=True)]
        self.carried = [[np.where(n > 0, 0.0, np.inf) for n in alive.counts] for _ in (0, 1)]

    def choose(self, ends: tuple[list[int], list[int]], tier: int, size: float, salt: int) -> tuple[int, int]:
        """Return the plane and the position for `size` bytes, and load them; ties fall by `salt`.

        The two host links, which no path within a plane avoids, count beside the rest, so that they choose the plane.
        """
        tree, last = self.tree, self.tree.widths[tier]
        worst = np.zeros((len(tree.planes), last))
        for t in range(1, tier):
            a, b = ends[0][t], ends[1][t]
            load = np.maximum(
                (self.carried[0][t][:, a] + size) * self.slow[t][:, a],
                (self.carried[1][t][:, b] + size) * self.slow[t][:, b],
            )
            above = worst.reshape(len(tree.planes), tree.widths[t + 1], -1)
            np.maximum(above, load[:, :, None], out=above)
        if len(tree.planes) > 1:
            for side in (0, 1):
                worst += (self.carried[side][0][:, ends[side][0]] + size) * self.slow[0][:, ends[side][0]]
        flat = worst.ravel()
        shift = salt % len(flat)
        first = int(flat[shift:].argmin()) + shift
        second = int(flat[:shift].argmin()) if shift else first
        pick = first if flat[first] <= flat[second] else second
        if np.isinf(flat[pick]):
            leaves = f"leaf {ends[0][1]} to leaf {ends[1][1]}"
            raise InputError(f"simulate: with the failed links no path leads from {leaves}; fail fewer links")
        plane, position = divmod(pick, last)
        for t in range(tier):
            at = position // (last // tree.widths[t + 1])
            self.carried[0][t][plane, ends[0][t], at] += size
            self.carried[1][t][plane, ends[1][t], at] += size
        return plane, position


def adaptive(tree: Tree, flows: Flows, seed: int, alive: Alive) -> Routes:
    """Return the routes of flowlets, one after another, each over the path whose most loaded link is least loaded.

    Flows take turns in random order. The choice sees all of the path (as a transport that probes, or switches that
    exchange their loads, would) and is never
    reconsidered: between a fully adaptive network and one that sees its own ports alone. Parallel cables share evenly.
    """
    loads, merged = Loads(tree, alive), tree.bundled()
    meeting = tree.meeting_tier(flows.source, flows.target)
    above = [(tree.subtree(flows.source, t), tree.subtree(flows.target, t)) for t in range(tree.tiers)]
    picks = np.empty((FLOWLETS, len(flows), 2), np.int64)
    salts = rng.words(seed, 7, np.arange(FLOWLETS)[:, None], np.arange(len(flows))[None, :])
    for n in range(FLOWLETS):
        for f in rng.order(len(flows), seed, 8, n).tolist():
            ends = [int(a[f]) for a, _ in above], [int(b[f]) for _, b in above]
            picks[n, f] = loads.choose(ends, int(meeting[f]), float(flows.size[f]) / FLOWLETS, int(salts[n, f]))
    return _routes(tree, merged, flows, picks, alive.capacity())


def _routes(tree: Tree, merged: Tree, flows: Flows, picks: Ints, capacity: Floats) -> Routes:
    """Return the chosen planes and positions as routes; what a flow sends twice over one link is added up."""
    entries, flow = Entries([], [], []), np.arange(len(flows))
    meeting = tree.meeting_tier(flows.source, flows.target)
    for n in range(len(picks)):
        plane = picks[n, :, 0]
        for t in range(tree.tiers):
            f = flow[meeting > t]
            at = picks[n, f, 1] // (np.asarray(tree.widths)[meeting[f]] // tree.widths[t + 1])
            for down, end in enumerate((flows.source[f], flows.target[f])):
                link = merged.cable(t, tree.subtree(end, t), at) + (2 * plane[f] + down) * sum(merged.cables)
                entries.add(f, link, 1 / len(picks))
    return entries.routes(flow, flows.size.astype(float), capacity)
