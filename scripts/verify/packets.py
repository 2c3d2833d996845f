"""Send packets over a small fat tree, one by one: what the simulation's transports are held against.

Run it as `.venv/bin/python scripts/verify/packets.py`. 128 hosts on a k-ary tree of 8-port switches, 800 Gbps, a random
permutation of equal flows. Switches queue at their outputs, first in first out; priority flow control pauses the link
into a switch once more than `xoff_bytes` that it brought wait there, until they are back to `xon_bytes`, each a delay
later; so nothing is lost. Under `ecmp` a flow keeps the path of the same hashes as the planner's. Under `adaptive` each
eighth of a flow takes, at every switch on its way up, the output of the switch with the fewest bytes waiting, a tie by
lot: all that a switch can see by itself. Under `spray` every packet goes to any output by lot.
"""

import argparse
import heapq
import random
from collections import deque
from dataclasses import dataclass
from itertools import count

import numpy as np

from planner.simulation.adaptive import FLOWLETS
from planner.simulation.fat_tree import Fabric, tree_of_fabric
from planner.simulation.live_cables import Flows
from planner.simulation.max_min_fair import static_tail_seconds
from planner.simulation.pfc import Pauses, spread
from planner.simulation.routing import Routes
from planner.simulation.run import TransportName, flow_seconds, ideal_seconds, routed
from planner.simulation.traffic import permutation
from planner.simulation.tree import Tree

DELAY = 0.5e-6  # seconds until a pause acts, and of a cable with its switch: the step of the planner's fluid


@dataclass(slots=True)
class Packet:
    """A packet of a flow on its way; `at` counts the links that it has crossed."""

    flow: int
    flowlet: int
    at: int = 0
    position: int = 0
    brought_by: int = -1


class Packets:
    """A run: the queue before every directed link, and what each link brought that still waits behind it."""

    def __init__(
        self, tree: Tree, flows: Flows, transport: str, seed: int, cell: float, paths: list[list[int]] | None = None
    ) -> None:
        self.tree, self.flows, self.transport, self.seed, self.cell = tree, flows, transport, seed, cell
        self.paths, self.pauses, self.now = paths, Pauses(), 0.0
        links = self.tree.links
        self.lot = random.Random(self.seed)
        self.rate = self.tree.capacity().tolist()
        self.queue: list[deque[Packet]] = [deque() for _ in range(links)]
        self.busy, self.paused, self.brought = [False] * links, [False] * links, [0.0] * links
        self.events: list[tuple[float, int, int, int, Packet | None]] = []
        self.order = count()
        self.chosen: dict[tuple[int, int, int], int] = {}
        self.meeting = self.tree.meeting_tier(self.flows.source, self.flows.target).tolist()
        self.source, self.target = self.flows.source.tolist(), self.flows.target.tolist()

    def run(self) -> np.ndarray:
        """Return when the last packet of each flow arrived."""
        cells = [round(s / self.cell) for s in self.flows.size.tolist()]
        left, end = cells.copy(), np.zeros(len(cells))
        for f, n in enumerate(cells):
            for k in range(n):
                first = Packet(f, k * FLOWLETS // n)
                self.queue[self.next_link(first)].append(first)
        for link in {self.next_link(Packet(f, 0)) for f in range(len(cells))}:
            self.start(link)
        while self.events:
            self.now, _, kind, link, packet = heapq.heappop(self.events)
            if packet is None:
                self.paused[link] = bool(kind)
                self.start(link)
            elif kind == 0:
                self.sent(link, packet)
            elif packet.at == 2 * self.meeting[packet.flow]:
                left[packet.flow] -= 1
                end[packet.flow] = self.now
            else:
                self.arrived(link, packet)
        assert not any(left)
        return end

    def push(self, delay: float, kind: int, link: int, packet: Packet | None) -> None:
        """Let something happen later: 0 a packet has left, 1 it arrives; without a packet a pause begins or ends."""
        heapq.heappush(self.events, (self.now + delay, next(self.order), kind, link, packet))

    def start(self, link: int) -> None:
        """Send the next packet of a link that is free."""
        if self.queue[link] and not self.busy[link] and not self.paused[link]:
            self.busy[link] = True
            self.push(self.cell / self.rate[link], 0, link, self.queue[link].popleft())

    def sent(self, link: int, packet: Packet) -> None:
        """Let a packet leave its switch, and the link that brought it go on."""
        before, packet.brought_by = packet.brought_by, link
        if before >= 0:
            self.brought[before] -= self.cell
            if self.brought[before] <= self.pauses.xon_bytes < self.brought[before] + self.cell:
                self.push(DELAY, 0, before, None)
        packet.at += 1
        self.push(DELAY, 1, link, packet)
        self.busy[link] = False
        self.start(link)

    def arrived(self, link: int, packet: Packet) -> None:
        """Queue a packet at the output that its switch chooses, and pause the link if it brought too much."""
        self.brought[link] += self.cell
        if self.brought[link] > self.pauses.xoff_bytes >= self.brought[link] - self.cell:
            self.push(DELAY, 1, link, None)
        output = self.next_link(packet)
        self.queue[output].append(packet)
        self.start(output)

    def next_link(self, p: Packet) -> int:
        """Return the link that a packet takes next."""
        turn, t = self.meeting[p.flow], p.at
        if self.paths is not None:
            return self.paths[p.flow][t]
        if t >= turn:
            return self.link(2 * turn - 1 - t, self.target[p.flow], self.above(p, 2 * turn - 1 - t), down=True)
        options = [p.position * self.tree.up[t] + y for y in range(self.tree.up[t])]
        if len(options) > 1 and self.transport == "adaptive":
            key = p.flow * FLOWLETS + p.flowlet, t, p.position
            if key not in self.chosen:
                waiting = [len(self.queue[self.link(t, self.source[p.flow], y, down=False)]) for y in options]
                fewest = [y for y, n in zip(options, waiting, strict=True) if n == min(waiting)]
                self.chosen[key] = self.lot.choice(fewest)
            p.position = self.chosen[key]
        else:
            p.position = self.lot.choice(options)
        return self.link(t, self.source[p.flow], p.position, down=False)

    def above(self, p: Packet, tier: int) -> int:
        """Return the position of the switch above a tier on the way down from where the packet turned round."""
        below: int = p.position // (self.tree.widths[self.meeting[p.flow]] // self.tree.widths[tier + 1])
        return below

    def link(self, tier: int, slot: int, position: int, *, down: bool) -> int:
        """Return the number of a link above a subtree."""
        cable = self.tree.offsets[tier] + slot // self.tree.spans[tier] * self.tree.widths[tier + 1] + position
        return cable + down * sum(self.tree.cables)


def hashed_paths(tree: Tree, routes: Routes) -> list[list[int]]:
    """Return the links of every flow in the order of travel."""
    paths, each = [], sum(tree.cables)
    for f in range(routes.parts):
        own = routes.link[routes.start[f] : routes.start[f + 1]]
        tier, down = tree.tier_of(own), own // each % 2
        paths.append(own[np.argsort(np.where(down == 1, 2 * tree.tiers - tier, tier))].tolist())
    return paths


def tails(ratio: int, seed: int, size: float, cell: float) -> dict[str, float]:
    """Return the tails by packets and by the planner's fluids, over the time of a flow at line rate."""
    tree = tree_of_fabric(Fabric(hosts=128, ports_per_switch=8, oversubscription=(ratio,)))
    flows, line = permutation(tree.slots, size, seed), size / tree.host_rate
    hashed = routed(tree, flows, "ecmp", seed)
    found = {
        "ideal": ideal_seconds(tree, flows),
        "ecmp by packets": Packets(tree, flows, "ecmp", seed, cell, hashed_paths(tree, hashed)).run().max(),
        "ecmp with pauses": spread(tree, hashed, np.arange(len(flows))).end.max(),
        "ecmp shared fairly": static_tail_seconds(hashed),
    }
    others: tuple[TransportName, ...] = ("adaptive", "spray")
    for transport in others:
        found[f"{transport} by packets"] = Packets(tree, flows, transport, seed, cell).run().max()
        routes = routed(tree, flows, transport, seed)
        found[f"{transport} of the planner"] = flow_seconds(routes, len(flows)).max()
    return {name: float(t) / line for name, t in found.items()}


def main() -> None:
    """Print the mean tails of each oversubscription."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ratios", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--megabytes", type=float, default=24.0)
    parser.add_argument("--packet-kilobytes", type=float, default=16.0)
    given = parser.parse_args()
    for ratio in given.ratios:
        runs = [tails(ratio, s, given.megabytes * 1e6, given.packet_kilobytes * 1e3) for s in range(given.seeds)]
        print(f"{ratio}:1, {given.seeds} seeds, tail over the line-rate time of a flow")
        for name in runs[0]:
            print(f"  {name:24} {np.mean([r[name] for r in runs]):6.2f}")


if __name__ == "__main__":
    main()
