"""What a split must survive under N-1: the contingencies of one topology, and the flows that each shifts.

The rule after a contingency, which the checker replays from the physics alone:

- A lost circuit shifts flows by line outage distribution factors; the rest of its corridor stays in service.
- A node's largest unit takes `unit_share` of the node's generation. All plants of the island respond in proportion to
  `generation_mw` (droop), the node's remaining units among them. In each island every plant keeps as reserve for it the
  same share of its `generation_mw`, that of the worst such loss.
- The loss of a bridge splits an island in two: in each, its own plants respond in proportion to `generation_mw`, and
  none may exceed it. An island without plants goes dark: the load of its nodes is lost, and no site may stand there.
- Turning down has no limit here: plants also run for what load the grid's figures leave out.
- No remaining circuit may carry more than its rating.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.models.sites.grid.dc_network import DcNetwork, Topology
from planner.physics.site.dc_power_flow import Floats, Integers

TOLERANCE = 1e-7  # of a rating; the checker allows ten times as much
BATCH = 256  # contingencies solved side by side: enough to fill the factorisation's right-hand sides, little memory
MAX_STORED = 60_000_000  # factors held in memory; of larger grids they are computed anew in every round


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Contingencies side by side: after contingency j, flow l is flow[l] + factor[l, j] · source[j].

    The source is the flow on the lost circuit's corridor, or the generation at the lost unit's node: number `lost[j]`.
    """

    unit: bool
    lost: Integers
    factor: Floats


@dataclass(frozen=True, kw_only=True)
class Contingencies:
    """The contingencies of one topology: one circuit of each of `lines`, the largest unit of each of `units`."""

    network: DcNetwork
    topology: Topology
    lines: tuple[int, ...]
    units: tuple[int, ...]

    @cached_property
    def island_mw(self) -> Floats:
        """Available generation of each island."""
        island = self.topology.network.island
        total = np.bincount(island, weights=self.network.available_mw, minlength=int(island.max()) + 1)
        return np.asarray(total, dtype=np.float64)

    @cached_property
    def others_mw(self) -> Floats:
        """Available generation of a node's island when the node's largest unit is lost."""
        lost = self.network.unit_share * self.network.available_mw
        others = self.island_mw[self.topology.network.island] - lost
        return np.where(others > 1e-9, others, 0.0)

    def sides(self, line: int) -> tuple[Integers, Integers]:
        """Return the nodes on either side of a bridge."""
        net = self.topology.network
        side = net.bridges[line]
        return side, np.setdiff1d(np.flatnonzero(net.island == net.island[side[0]]), side)

    def dark_load(self, line: int) -> Floats:
        """Return the load of each node that goes dark with a bridge: that of a side without plants."""
        load = np.zeros(self.topology.network.nodes)
        for nodes in self.sides(line):
            if self.network.available_mw[nodes].sum() <= 0:
                load[nodes] = self.network.load_mw[nodes]
        return load

    def batches(self) -> Iterable[Batch]:
        """Return the factors of all contingencies, computed anew each time where they are too many to store."""
        few = (len(self.lines) + len(self.units)) * len(self.topology.lines) <= MAX_STORED
        return self._stored if few else self._computed()

    @cached_property
    def _stored(self) -> list[Batch]:
        # What a circuit shifts is the same in every year; who responds to a split or a lost unit is not.
        stored = self.network.outage_factors
        if self.topology.condition not in stored:
            stored[self.topology.condition] = list(self._circuits())
        return [*stored[self.topology.condition], *self._responses()]

    def _computed(self) -> Iterator[Batch]:
        yield from self._circuits()
        yield from self._responses()

    def _circuits(self) -> Iterator[Batch]:
        net = self.topology.network
        for lines in _batched([k for k in self.lines if k not in net.bridges]):
            yield Batch(unit=False, lost=np.asarray(lines), factor=net.lodf(lines))

    def _responses(self) -> Iterator[Batch]:
        net = self.topology.network
        for lines in _batched([k for k in self.lines if k in net.bridges]):
            factor = np.stack([self._bridge_factors(k) for k in lines], axis=1)
            yield Batch(unit=False, lost=np.asarray(lines), factor=factor)
        for units in _batched([n for n in self.units if self.others_mw[n] > 0]):
            yield Batch(unit=True, lost=np.asarray(units), factor=self._unit_factors(np.asarray(units)))

    def _bridge_factors(self, line: int) -> Floats:
        """Return what each flow takes of a bridge's when the plants on both sides respond on their own."""
        net, available = self.topology.network, self.network.available_mw
        side, rest = self.sides(line)
        response = np.zeros(net.nodes)
        # A side without plants loses its load instead: it fed nothing, and all that it drew came over the bridge.
        weight = np.where(available > 0, available, self.dark_load(line))
        # Where what goes dark nearly feeds itself, next to nothing comes over the bridge.
        if all(abs(weight[x].sum()) > 1e-3 * np.abs(weight[x]).sum() for x in (side, rest)):
            response[side] = weight[side] / weight[side].sum()
            response[rest] = -weight[rest] / weight[rest].sum()
        # The side that was fed over the bridge makes up for it, the other turns down by as much.
        factor = net.flows(response) * (1.0 if net.b[line] in side else -1.0)
        factor[line] = -1.0
        return factor

    def _unit_factors(self, units: Integers) -> Floats:
        """Return what each flow takes of a node's generation when its unit is lost and the island's plants respond."""
        net, available, lost = self.topology.network, self.network.available_mw, self.network.unit_share[units]
        alone = np.zeros((net.nodes, len(units)))
        alone[units, np.arange(len(units))] = 1.0
        of_node = net.flows(alone)
        together = np.zeros((net.nodes, len(self.island_mw)))
        together[np.arange(net.nodes), net.island] = available
        of_island = net.flows(together)[:, net.island[units]]
        response = (of_island - lost * available[units] * of_node) / self.others_mw[units]
        return np.asarray(lost * (response - of_node))


def _batched(items: list[int]) -> Iterator[list[int]]:
    for i in range(0, len(items), BATCH):
        yield items[i : i + BATCH]


def contingencies(network: DcNetwork, topology: Topology) -> Contingencies:
    """Return the contingencies that the N-1 rule asks for."""
    if network.grid.rules.n1 == "full":
        lines = tuple(range(len(topology.lines)))
        units = tuple(int(n) for n in np.flatnonzero(network.unit_share * network.available_mw > 0))
        return Contingencies(network=network, topology=topology, lines=lines, units=units)
    lines = tuple(sorted({k for s in network.candidates for k in largest_at(network, topology, s)}))
    return Contingencies(network=network, topology=topology, lines=lines, units=())


def largest_at(network: DcNetwork, topology: Topology, site: str) -> list[int]:
    """Return the corridors with the largest circuit at a node, all of them where several are as large."""
    i, net = network.nodes[site], topology.network
    here = np.flatnonzero((net.a == i) | (net.b == i))
    return [int(k) for k in here if topology.rating_mw[k] == topology.rating_mw[here].max()]
