"""Send packets over small fat trees, one by one: what the model of every transport is held against.

Run it as `.venv/bin/python scripts/verify/packets.py [--held-out]`. Trees of equal switches at 800 Gbps queue at
their outputs, first in first out; priority flow control pauses the link into a switch once more than `xoff_bytes` that
it brought wait there, until they are back to `xon_bytes`, each a delay later; so nothing is lost. Under `ecmp` a flow
keeps the path of the same hashes as the planner's. Under `adaptive` each eighth of a flow takes, at every switch on its
way up, the output of the switch with the fewest bytes waiting, a tie by lot: all that a switch can see by itself. Under
`spray` every packet goes to any output by lot. A host sends a packet of each of its flows in turn.

The first rows were looked at while the terms of the model were chosen; those of `--held-out`, other sizes, switches,
seeds and patterns, chose none of them.
"""

import argparse
import heapq
import random
from collections import deque
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np

from planner.simulation import simulated_routes
from planner.simulation.flow_times import FLOWLETS, Pauses, TransportName, flow_seconds, ideal_seconds
from planner.simulation.simulate import allreduce, alltoall
from planner.simulation.simulated_routes import Fabric, Flows, Tree, ecmp, permutation, tree_of_fabric

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
        links = len(self.tree.capacity())
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
        for k in range(max(cells)):
            for f, n in enumerate(cells):
                if k < n:
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


@dataclass(frozen=True)
class Row:
    """A fabric, and what its hosts send: `megabytes` each in all."""

    hosts: int
    ports: int
    tiers: int
    ratio: float | tuple[float, ...]
    megabytes: float
    pattern: str = "permutation"
    down: tuple[int, ...] = ()

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ports down over ports up, leaves first."""
        return self.ratio if isinstance(self.ratio, tuple) else (self.ratio,)

    def flows(self, tree: Tree, seed: int) -> Flows:
        """Return the flows of a seed."""
        size, shuffled = self.megabytes * 1e6, tree.slots[simulated_routes.order(tree.hosts, seed, 21)]
        by_16 = np.split(shuffled, range(16, len(shuffled), 16))
        if self.pattern == "alltoall":
            return alltoall(np.split(shuffled, range(8, len(shuffled), 8)), size)
        if self.pattern == "rings":
            return allreduce(by_16, 8 * size)
        if self.pattern == "incast":  # to each of eight hosts from twelve of the others: flows of a twelfth to all
            each = size * 12.0 ** -np.random.default_rng(seed).random(96)
            return Flows(source=np.roll(shuffled, -8)[:96], target=np.repeat(shuffled[:8], 12), size=each)
        sends = permutation(tree.slots, size, seed)
        if self.pattern == "permutation":
            return sends
        if self.pattern == "unequal":
            each = size * 12.0 ** -np.random.default_rng(seed).random(len(sends))
            return Flows(source=sends.source, target=sends.target, size=each)
        halves, rings = permutation(tree.slots, size / 2, seed), allreduce(by_16, 8 * size)
        both = zip((halves.source, halves.target, halves.size), (rings.source, rings.target, rings.size), strict=True)
        source, target, each = (np.concatenate(x) for x in both)
        return Flows(source=source, target=target, size=each)


LOOKED_AT = (
    *(Row(128, 8, 3, ratio, 24) for ratio in (1, 2, 4)),
    *(Row(128, 8, 3, ratio, 6) for ratio in (1, 2, 4)),
    *(Row(128, 16, 2, ratio, 24) for ratio in (1, 2, 4)),
)
HELD_OUT = (
    Row(128, 8, 3, 1, 12),
    Row(128, 8, 3, 4, 48),
    Row(32, 8, 2, 2, 36),
    Row(72, 12, 2, 1, 3),
    Row(288, 24, 2, 3, 5),
    Row(432, 12, 3, 1, 5),
    Row(432, 12, 3, 3, 5),
    Row(128, 8, 3, 2, 16, "alltoall"),
    Row(128, 16, 2, 1, 16, "alltoall"),
    Row(128, 8, 3, 1, 16, "sends and rings"),
    Row(128, 8, 3, 1, 4, "incast"),
    Row(128, 16, 2, 1, 4, "incast"),
    Row(128, 16, 2, 1, 12, "unequal"),
    Row(112, 16, 3, (0.5, 7), 4, down=(4, 7)),
    Row(112, 16, 3, (7, 1), 3, down=(14, 4)),
    Row(112, 16, 3, (0.5, 7), 6, "rings", down=(4, 7)),
)


def tails(row: Row, seed: int, cell: float) -> dict[str, float]:
    """Return the tails and medians by packets and by the model, over the time of a host at line rate."""
    tree = tree_of_fabric(
        Fabric(
            hosts=row.hosts,
            ports_per_switch=row.ports,
            tiers=row.tiers,
            oversubscription=row.ratios,
            down_ports=row.down,
        )
    )
    flows, line = row.flows(tree, seed), row.megabytes * 1e6 / tree.host_rate
    found = {"ideal": ideal_seconds(tree, flows)}
    transports: tuple[TransportName, ...] = ("ecmp", "adaptive", "spray")
    for transport in transports:
        routes = ecmp(tree, flows, seed)
        paths = [routes.link[a:b].tolist() for a, b in pairwise(routes.start.tolist())]
        packets = Packets(tree, flows, transport, seed, cell, paths if transport == "ecmp" else None)
        for name, ends in (
            (transport, packets.run()),
            (f"{transport} of the model", flow_seconds(tree, flows, transport, seed, packet_bytes=cell)),
        ):
            found[name], found[f"median, {name}"] = float(ends.max()), float(np.median(ends))
    return {name: t / line for name, t in found.items()}


def main() -> None:
    """Print the mean tails of each row by packets and of the model, and how far they are apart."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_true", help="rows that no term of the model was chosen by")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--packet-kilobytes", type=float, default=16.0)
    given = parser.parse_args()
    first, off = 100 * given.held_out, []
    print("hosts ports tiers ratio     MB pattern         transport  packets  model    off  ideal  median, model")
    for row in HELD_OUT if given.held_out else LOOKED_AT:
        runs = [tails(row, first + s, given.packet_kilobytes * 1e3) for s in range(given.seeds)]
        mean = {name: float(np.mean([r[name] for r in runs])) for name in runs[0]}
        for transport in ("ecmp", "adaptive", "spray"):
            packets, model = mean[transport], mean[f"{transport} of the model"]
            off.append(model / packets - 1)
            ratio = ",".join(f"{each:g}:1" for each in row.ratios)
            shape = f"{row.hosts:5} {row.ports:5} {row.tiers:5} {ratio:>5} {row.megabytes:6g} {row.pattern:15}"
            middle = mean[f"median, {transport}"], mean[f"median, {transport} of the model"]
            print(
                f"{shape} {transport:9} {packets:8.2f} {model:6.2f} {100 * off[-1]:+4.0f} % {mean['ideal']:6.2f}"
                f"  {middle[0]:6.2f} {middle[1]:6.2f}",
                flush=True,
            )
    apart = np.abs(off)
    over = ", ".join(f"{np.count_nonzero(apart > x)} over {100 * x:.0f} %" for x in (0.1, 0.2))
    print(f"{len(off)} rows: mean {100 * apart.mean():.1f} %, largest {100 * apart.max():.0f} %, {over}")


if __name__ == "__main__":
    main()
