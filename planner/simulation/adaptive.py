"""The adaptive transport: every switch sends a flowlet to the output of its own before which the least waits."""

import numpy as np

from planner.simulation import rng
from planner.simulation.live_cables import Alive, Flows, refuse_cut_off
from planner.simulation.rng import Floats, Ints
from planner.simulation.routing import Entries, Routes, hop_of
from planner.simulation.tree import Tree

FLOWLETS = 8  # of a flow in each plane, one after the other: few enough to stay quick
# Flowlets are this much shorter or longer at most: a fluid would keep flows in step that packets put out of step, and
# all flows of a leaf would choose at once. By 0.1 and 0.3 tails are the same within 3 % (72, 128 hosts; 1:1 to 4:1).
UNEVEN = 0.1


class LocalView:
    """Flowlets, and the paths that they get when they start: up by the least loaded outputs of the switches they pass.

    A switch sees what waits before its own outputs, and not what lies behind them: on the way down a flowlet meets
    whatever others chose. No choice is reconsidered. A host has as many flowlets under way as planes, and gives each
    the plane before whose port the least waits. Parallel cables share evenly.
    """

    def __init__(self, tree: Tree, flows: Flows, alive: Alive, seed: int, packet_bytes: float) -> None:
        """Divide flows into flowlets whose links are open still; loads are told apart by whole packets."""
        self.tree, self.flows, self.counts, self.merged = tree, flows, alive.counts, tree.bundled()
        self.seed, self.packet = seed, packet_bytes
        self.capacity, planes, n = alive.capacity(), len(tree.planes), len(flows)
        self.meeting = tree.meeting_tier(flows.source, flows.target)
        self.ends = [(tree.subtree(flows.source, t), tree.subtree(flows.target, t)) for t in range(tree.tiers)]
        entries, flow = Entries([], [], [], []), np.tile(np.arange(n), planes * FLOWLETS)
        for tier in range(tree.tiers):
            part = np.flatnonzero(self.meeting[flow] > tier)
            for down in (0, 1):
                entries.add(part, np.zeros(len(part), np.int64), hop_of(tree, tier, down))
        shares = 1 + UNEVEN * (rng.words(seed, 8, np.arange(len(flow))) / 2.0**63 - 1).reshape(-1, n)
        size, before = (flows.size * shares / shares.sum(axis=0)).ravel(), np.arange(len(flow)) - planes * n
        self.routes: Routes = entries.routes(flow, size, self.capacity, np.maximum(before, -1))

    def start_parts(self, parts: Ints, owner: Ints, link: Ints, queue: Floats) -> None:
        """Write the links of the flowlets that start, one after another in a random order."""
        waiting = np.rint(queue / self.packet)
        salts = rng.words(self.seed, 7, parts)
        order = np.argsort(salts, kind="stable")
        first = np.searchsorted(owner, parts)
        for part, at, salt in zip(parts[order].tolist(), first[order].tolist(), salts[order].tolist(), strict=True):
            flow = int(self.routes.flow[part])
            tier = int(self.meeting[flow])
            plane, position = self._choose(flow, tier, waiting, salt)
            for t in range(tier):
                here = position // (self.tree.widths[tier] // self.tree.widths[t + 1])
                up, down = (int(self._links(t, int(end[flow]), plane, here, d)) for d, end in enumerate(self.ends[t]))
                link[at + t], link[at + 2 * tier - 1 - t] = up, down
                waiting[up] += 1

    def _choose(self, flow: int, tier: int, waiting: Floats, salt: int) -> tuple[int, int]:
        """Return the plane and the position by the packets that wait at each output from which the target is reached.

        Ties fall by `salt`.
        """
        reaching, planes = self._reaching(flow, tier), np.arange(len(self.tree.planes))
        ports = self._links(0, int(self.ends[0][0][flow]), planes, 0, 0)
        plane, position = self._least(ports, waiting, reaching[0][:, 0], salt), 0
        if plane is None:
            refuse_cut_off(self.tree, self.flows, flow)
        for t in range(tier):
            options = position * self.tree.up[t] + np.arange(self.tree.up[t])
            outputs = self._links(t, int(self.ends[t][0][flow]), plane, options, 0)
            position = int(
                options[self._least(outputs, waiting, reaching[t + 1][plane, options], salt // (t + 2)) or 0]
            )
        return plane, position

    def _links(self, t: int, subtree: int, plane: Ints | int, position: Ints | int, down: int) -> Ints:
        """Return the links above a subtree: their numbers among those of whole bundles."""
        cable = self.merged.offsets[t] + subtree * self.tree.widths[t + 1] + position
        return np.asarray(cable + (2 * plane + down) * sum(self.merged.cables))

    def _least(self, outputs: Ints, waiting: Floats, allowed: np.ndarray, salt: int) -> int | None:
        """Return the least loaded output of those allowed, the first of equal ones from a place that `salt` draws."""
        order = (np.arange(len(outputs)) + salt % len(outputs)) % len(outputs)
        order = order[allowed[order]]
        loads = (waiting[outputs[order]] + 1) / np.maximum(self.capacity[outputs[order]], 1e-300)
        return int(order[loads.argmin()]) if len(order) else None

    def _reaching(self, flow: int, tier: int) -> list[np.ndarray]:
        """Return by plane, for the host and each tier on the way up, the positions from which live cables lead on."""
        tree, reached = self.tree, [np.ones((len(self.tree.planes), self.tree.widths[tier]), bool)]
        for t in reversed(range(tier)):
            source, target = (int(end[flow]) for end in self.ends[t])
            both = (self.counts[t][:, source] > 0) & (self.counts[t][:, target] > 0)
            here = reached[0] & both[:, : tree.widths[t + 1]]
            reached[0] = here
            reached.insert(0, here.reshape(len(tree.planes), tree.widths[t], tree.up[t]).any(axis=2))
        return reached
