"""The adaptive transport: every switch sends a flowlet to the output of its own that is least loaded."""

from dataclasses import replace

import numpy as np

from planner.physics.ticks import tick
from planner.simulation import rng
from planner.simulation.live_cables import Alive, Flows, refuse_cut_off
from planner.simulation.rng import Floats, Ints
from planner.simulation.routing import Entries, Routes
from planner.simulation.tree import Tree

FLOWLETS = 8  # turns of a flow, each with a flowlet for every plane: few enough to stay quick


class Loads:
    """What every bundle on the way up of every plane carries, over its rate: what a switch sees of its own outputs."""

    def __init__(self, tree: Tree, alive: Alive) -> None:
        """Start with nothing on the links."""
        self.tree, self.counts, shares = tree, alive.counts, np.asarray(tree.planes)[:, None, None]
        self.slow = [1 / np.maximum(n * r * shares, 1e-300) for n, r in zip(alive.counts, tree.rates, strict=True)]
        self.carried = [np.zeros(n.shape) for n in alive.counts]

    def choose(self, ends: tuple[list[int], list[int]], tier: int, size: float, salt: int) -> tuple[int, int] | None:
        """Return the plane and the position for `size` bytes, and load them; None where no path leads to the target.

        The host takes the plane whose port is least loaded, and each switch on the way up the least loaded of its
        outputs from which the target can still be reached; ties fall by `salt`.
        """
        reaching = self._reaching(ends, tier)
        ports = self._after(0, ends[0][0], np.arange(len(self.tree.planes)), 0, size)
        plane = _least(ports, reaching[0][:, 0], salt)
        if plane is None:
            return None
        position = 0
        for t in range(tier):
            options = position * self.tree.up[t] + np.arange(self.tree.up[t])
            loads = self._after(t, ends[0][t], plane, options, size)
            position = int(options[_least(loads, reaching[t + 1][plane, options], salt // (t + 2)) or 0])
            self.carried[t][plane, ends[0][t], position] += size
        return plane, position

    def _after(self, t: int, subtree: int, plane: Ints | int, position: Ints | int, size: float) -> Floats:
        """Return the loads of outputs, with so many bytes more."""
        at = plane, subtree, position
        loads: Floats = (self.carried[t][at] + size) * self.slow[t][at]
        return loads

    def _reaching(self, ends: tuple[list[int], list[int]], tier: int) -> list[np.ndarray]:
        """Return by plane, for the host and each tier on the way up, the positions from which live cables lead on."""
        tree, reached = self.tree, [np.ones((len(self.tree.planes), self.tree.widths[tier]), bool)]
        for t in reversed(range(tier)):
            both = (self.counts[t][:, ends[0][t]] > 0) & (self.counts[t][:, ends[1][t]] > 0)
            here = reached[0] & both[:, : tree.widths[t + 1]]
            reached[0] = here
            reached.insert(0, here.reshape(len(tree.planes), tree.widths[t], tree.up[t]).any(axis=2))
        return reached


def _least(loads: Floats, allowed: np.ndarray, salt: int) -> int | None:
    """Return the least loaded output of those allowed, the first of equal ones from a place that `salt` draws."""
    order = (np.arange(len(loads)) + salt % len(loads)) % len(loads)
    order = order[allowed[order]]
    return int(order[loads[order].argmin()]) if len(order) else None


def adaptive(tree: Tree, flows: Flows, seed: int, alive: Alive) -> Routes:
    """Return the routes of flowlets, one after another, each up by the least loaded outputs of the switches it passes.

    Flows take turns in random order. A switch sees what its own outputs carry, and not what lies behind them: on the
    way down a flowlet meets whatever others chose. No choice is reconsidered, and a flow sends its flowlets one after
    another, as many at a time as its host has planes. Parallel cables share evenly.
    """
    loads, merged, planes = Loads(tree, alive), tree.bundled(), len(tree.planes)
    meeting = tree.meeting_tier(flows.source, flows.target)
    above = [(tree.subtree(flows.source, t), tree.subtree(flows.target, t)) for t in range(tree.tiers)]
    picks, each = np.empty((FLOWLETS * planes, len(flows), 2), np.int64), flows.size / (FLOWLETS * planes)
    salts = rng.words(seed, 7, np.arange(len(picks))[:, None], np.arange(len(flows))[None, :])
    for n in range(len(picks)):
        tick()
        for f in rng.order(len(flows), seed, 8, n).tolist():
            ends = [int(a[f]) for a, _ in above], [int(b[f]) for _, b in above]
            chosen = loads.choose(ends, int(meeting[f]), float(each[f]), int(salts[n, f]))
            if chosen is None:
                refuse_cut_off(tree, flows, f)
            picks[n, f] = chosen
    turns = [picks[n : n + planes] for n in range(0, len(picks), planes)]
    first, *later = (_routes(tree, merged, flows, turn, alive.capacity()) for turn in turns)
    return replace(first, later=tuple(later))


def _routes(tree: Tree, merged: Tree, flows: Flows, picks: Ints, capacity: Floats) -> Routes:
    """Return the planes and positions of one turn as routes: of each flow a flowlet for every plane of its host."""
    entries, flow, planes = Entries([], [], []), np.arange(len(flows)), len(picks)
    meeting = tree.meeting_tier(flows.source, flows.target)
    for n, t in ((n, t) for n in range(planes) for t in range(tree.tiers)):
        f = flow[meeting > t]
        plane, at = picks[n, f, 0], picks[n, f, 1] // (np.asarray(tree.widths)[meeting[f]] // tree.widths[t + 1])
        for down, end in enumerate((flows.source[f], flows.target[f])):
            link = merged.cable(t, tree.subtree(end, t), at) + (2 * plane + down) * sum(merged.cables)
            entries.add(n * len(flows) + f, link, 1.0)
    size = np.tile(flows.size / (FLOWLETS * planes), planes)
    return entries.routes(np.tile(flow, planes), size, capacity)
