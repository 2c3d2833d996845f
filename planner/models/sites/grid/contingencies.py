"""What a split must survive under N-1: the outages of a state of the network and what each shifts.

The rule after an outage, which the checker replays from the physics alone:

- A lost circuit shifts flows as reactances say; the rest of its corridor stays.
- A node's largest unit takes the share `lost_share` of what the node feeds in. All plants of the island answer in
  proportion to `generation_mw` (droop), the node's remaining units among them. In each island every plant keeps free for it
  the same share of its `generation_mw`, that of the worst such loss.
- The loss of a bridge parts an island: in each part the part's own plants answer in proportion to `generation_mw`, and none
  may exceed it. A part with load and without plants is dark, so it may not have load.
- Plants also run for the load that is there without the sites, so that turning down has no limit here.
- No remaining circuit may carry more than its rating.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.models.sites.grid.dc_network import State, System
from planner.physics.site.dc_power_flow import Floats, Whole

TOLERANCE = 1e-7  # of a rating; the checker allows ten times as much
BLOCK = 256
KEPT = 60_000_000  # shifts held in memory; of larger systems they are computed again in every round


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Outages side by side: after outage j, flow l is flow[l] + shift[l, j] · (flow, or feed of a unit's node)[driver[j]]."""

    unit: bool
    driver: Whole
    shift: Floats


@dataclass(frozen=True, kw_only=True)
class Outages:
    """The outages of one state of the network: one circuit of each of `lines`, the largest unit of each of `units`."""

    system: System
    state: State
    lines: tuple[int, ...]
    units: tuple[int, ...]

    @cached_property
    def plants_mw(self) -> Floats:
        """What the plants of each island can spare."""
        island = self.state.network.island
        return np.asarray(
            np.bincount(island, weights=self.system.spare_mw, minlength=int(island.max()) + 1), dtype=np.float64
        )

    @cached_property
    def others_mw(self) -> Floats:
        """What the plants of a node's island can spare when the node's largest unit is lost."""
        others = self.plants_mw[self.state.network.island] - self.system.lost * self.system.spare_mw
        return np.where(others > 1e-9, others, 0.0)

    def parts(self, line: int) -> tuple[Whole, Whole]:
        """Return the nodes on either side of a bridge."""
        net = self.state.network
        side = net.bridges[line]
        return side, np.setdiff1d(np.flatnonzero(net.island == net.island[side[0]]), side)

    def blocks(self) -> Iterable[Block]:
        """Return the shifts of all outages; they are computed anew each time where they are too many to keep."""
        few = (len(self.lines) + len(self.units)) * len(self.state.lines) <= KEPT
        return self._kept if few else self._computed()

    @cached_property
    def _kept(self) -> list[Block]:
        # What a circuit shifts is the same in every year; who answers for a part or a unit is not.
        held = self.system.shifts
        if self.state.given not in held:
            held[self.state.given] = list(self._circuits())
        return [*held[self.state.given], *self._answered()]

    def _computed(self) -> Iterator[Block]:
        yield from self._circuits()
        yield from self._answered()

    def _circuits(self) -> Iterator[Block]:
        net = self.state.network
        for part in _some([k for k in self.lines if k not in net.bridges]):
            yield Block(unit=False, driver=np.asarray(part), shift=net.outage(part))

    def _answered(self) -> Iterator[Block]:
        net = self.state.network
        for part in _some([k for k in self.lines if k in net.bridges]):
            yield Block(unit=False, driver=np.asarray(part), shift=np.stack([self._parted(k) for k in part], axis=1))
        for part in _some([n for n in self.units if self.others_mw[n] > 0]):
            yield Block(unit=True, driver=np.asarray(part), shift=self._unit_shifts(np.asarray(part)))

    def _parted(self, line: int) -> Floats:
        """Return what each flow takes of a bridge's when the plants on both sides answer for themselves."""
        net, spare = self.state.network, self.system.spare_mw
        side, rest = self.parts(line)
        answer = np.zeros(net.nodes)
        if spare[side].sum() > 0 and spare[rest].sum() > 0:
            answer[side] = spare[side] / spare[side].sum()
            answer[rest] = -spare[rest] / spare[rest].sum()
        # The side that was fed over the bridge makes up for it, the other turns down by as much.
        shift = net.flows(answer) * (1.0 if net.b[line] in side else -1.0)
        shift[line] = -1.0
        return shift

    def _unit_shifts(self, units: Whole) -> Floats:
        net, spare, lost = self.state.network, self.system.spare_mw, self.system.lost[units]
        alone = np.zeros((net.nodes, len(units)))
        alone[units, np.arange(len(units))] = 1.0
        one = net.flows(alone)
        together = np.zeros((net.nodes, len(self.plants_mw)))
        together[np.arange(net.nodes), net.island] = spare
        all_plants = net.flows(together)[:, net.island[units]]
        return np.asarray(lost * ((all_plants - lost * spare[units] * one) / self.others_mw[units] - one))


def _some(items: list[int]) -> Iterator[list[int]]:
    for i in range(0, len(items), BLOCK):
        yield items[i : i + BLOCK]


def outages(system: System, state: State) -> Outages:
    """Return the outages that the N-1 rule asks for."""
    if system.grid.rules.n1 == "full":
        lines, units = (
            tuple(range(len(state.lines))),
            tuple(int(n) for n in np.flatnonzero(system.lost * system.spare_mw > 0)),
        )
        return Outages(system=system, state=state, lines=lines, units=units)
    lines = tuple(sorted({k for s in system.candidates for k in largest_at(system, state, s)}))
    return Outages(system=system, state=state, lines=lines, units=())


def largest_at(system: System, state: State, site: str) -> list[int]:
    """Return the corridors with the largest circuit at a node, all of them where several are as large."""
    i, net = system.nodes[site], state.network
    here = np.flatnonzero((net.a == i) | (net.b == i))
    return [int(k) for k in here if state.rating_mw[k] == state.rating_mw[here].max()]
