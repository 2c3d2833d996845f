"""The grid of a site split as a DC network: columns, cuts, and the contingencies of each choice of circuits.

Cuts are stored here and not in a model, so that every model of one split starts from what earlier ones found.

The rule after a contingency, which the checker replays from the physics alone:

- A lost circuit shifts flows by line outage distribution factors; the rest of its corridor stays in service.
- A node's largest unit takes `unit_share` of the node's generation. All plants of the island respond in proportion to
  `generation_mw` (droop), the node's remaining units among them. In each island every plant keeps as reserve for it the
  same share of its `generation_mw`, that of the worst such loss.
- The loss of a bridge splits an island in two: in each, its own plants respond in proportion to `generation_mw`, and
  none may exceed it. An island without plants goes dark: the load of its nodes is lost, and no site may be there.
- Turning down has no limit here: plants also run for what load the grid's figures leave out.
- No remaining circuit may carry more than its rating.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import Any

import numpy as np

from planner.instance.grid import Grid
from planner.physics.site.grid import Floats, Integers, PowerNetwork, lost_share, normal_share

Condition = tuple[tuple[int, bool], ...]  # columns of binaries with the values at which a cut is valid


@dataclass(frozen=True, slots=True, kw_only=True)
class Corridor:
    """A corridor of the grid: existing circuits, or circuits that can be built."""

    id: str
    a: str
    b: str
    rating_mw: float
    circuits: int
    capex_usd: float | None
    reactance_pu: float | None = None

    @property
    def new(self) -> bool:
        """Whether circuits must be built first."""
        return self.capex_usd is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCut:
    """One cutting plane `values · x[columns] <= upper`, valid where each binary of `condition` has its value.

    Elsewhere the left side is above `upper` by at most `reach` times the total load.
    """

    rule: str
    name: str
    columns: Integers
    values: Floats
    upper: float
    condition: Condition = ()
    reach: float = 0.0

    @property
    def key(self) -> "CutKey":
        """Key that identifies the cut."""
        return self.rule, self.name, self.condition


CutKey = tuple[str, str, Condition]


@dataclass(frozen=True, kw_only=True)
class BuiltNetwork:
    """The network with some circuits built; `condition` says by binaries that exactly these are."""

    network: PowerNetwork
    lines: tuple[str, ...]
    rating_mw: Floats
    condition: Condition


@dataclass
class Effort:
    """The effort of the search for cuts: rounds, and contingencies checked."""

    rounds: int = 0
    contingencies: int = 0


@dataclass(frozen=True, kw_only=True)
class DcNetwork:
    """The grid of a split in one year, as the columns that its cuts are stated over.

    The columns are, in this order: generation by node, modules and opening by candidate, then installation and flow of
    each circuit to build, then the load in MW that each candidate has in addition to its modules.
    """

    grid: Grid
    corridors: Mapping[str, Corridor]
    candidates: Sequence[str]
    module_mw: float
    pool: dict[CutKey, GridCut] = field(default_factory=dict)
    effort: Effort = field(default_factory=Effort)
    contingencies: dict[tuple[int, ...], Any] = field(default_factory=dict)
    outage_factors: dict[Condition, Any] = field(default_factory=dict)
    _topologies: dict[tuple[int, ...], BuiltNetwork] = field(default_factory=dict)
    of_years: dict[str, "DcNetwork"] = field(default_factory=dict)

    def in_year(self, name: str, grid: Grid) -> "DcNetwork":
        """Return the network with a scenario's figures, made once: cuts of its own on the same topologies."""
        if name not in self.of_years:
            self.of_years[name] = replace(self, grid=grid, pool={}, contingencies={}, of_years={})
        return self.of_years[name]

    @cached_property
    def nodes(self) -> dict[str, int]:
        """Number of each node."""
        return {name: i for i, name in enumerate(sorted(node.id for node in self.grid.nodes))}

    @cached_property
    def site_nodes(self) -> Integers:
        """Node of each candidate."""
        return np.asarray([self.nodes[site] for site in self.candidates], dtype=np.int64)

    @cached_property
    def available_mw(self) -> Floats:
        """Available generation of each node in MW, which its plants can spare."""
        return np.asarray([node.generation_mw for node in sorted(self.grid.nodes, key=lambda node: node.id)])

    @cached_property
    def load_mw(self) -> Floats:
        """Load of each node in MW without the load of the sites, in order of node id."""
        return np.asarray([node.load_mw for node in sorted(self.grid.nodes, key=lambda node: node.id)])

    @cached_property
    def unit_share(self) -> Floats:
        """Share of each node's generation that is lost with its largest unit."""
        return np.asarray([lost_share(node) for node in sorted(self.grid.nodes, key=lambda node: node.id)])

    @cached_property
    def existing(self) -> list[Corridor]:
        """Corridors of existing circuits; one that ends where it begins carries nothing."""
        return [corridor for corridor in self.corridors.values() if not corridor.new and corridor.a != corridor.b]

    @cached_property
    def buildable(self) -> list[Corridor]:
        """Corridors in which circuits can be built."""
        return [corridor for corridor in self.corridors.values() if corridor.new and corridor.a != corridor.b]

    @cached_property
    def circuits_to_build(self) -> list[tuple[str, int]]:
        """Corridor and number of each circuit that can be built; circuits of a corridor are built in order."""
        return [(corridor.id, j) for corridor in self.buildable for j in range(corridor.circuits)]

    @cached_property
    def at(self) -> dict[str, slice]:
        """Places of the columns of each kind, in their order."""
        sites, new = len(self.candidates), len(self.circuits_to_build)
        sizes = {
            "generated": len(self.nodes),
            "modules": sites,
            "open": sites,
            "installed": new,
            "flow": new,
            "extra": sites,
        }
        ends = zip(sizes.items(), accumulate(sizes.values()), strict=True)
        return {name: slice(end - size, end) for (name, size), end in ends}

    @cached_property
    def base(self) -> BuiltNetwork:
        """The existing network."""
        return self.topology((0,) * len(self.buildable))

    @cached_property
    def joins_islands(self) -> bool:
        """Whether a circuit can be built between two islands of the existing network."""
        island = self.base.network.island
        return any(island[self.nodes[corridor.a]] != island[self.nodes[corridor.b]] for corridor in self.buildable)

    def built(self, point: Floats) -> tuple[int, ...]:
        """Return the circuits built in each corridor, of a point whose integers are whole."""
        total = dict.fromkeys((corridor.id for corridor in self.buildable), 0.0)
        installed = point[self.at["installed"]]
        for value, (name, _) in zip(installed, self.circuits_to_build, strict=True):
            total[name] += value
        return tuple(round(count) for count in total.values())

    def topology(self, built: tuple[int, ...]) -> BuiltNetwork:
        """Return the network with this many circuits built in each corridor, made once."""
        if built not in self._topologies:
            new = [(corridor, count) for corridor, count in zip(self.buildable, built, strict=True) if count]
            lines = [(corridor, corridor.circuits) for corridor in self.existing] + new
            network = PowerNetwork(
                len(self.nodes),
                [self.nodes[corridor.a] for corridor, _ in lines],
                [self.nodes[corridor.b] for corridor, _ in lines],
                [count for _, count in lines],
                [corridor.reactance_pu or 0.0 for corridor, _ in lines],
            )
            # By circuits, exactly these are built: the last one is, the next one is not.
            count = {corridor.id: count for corridor, count in zip(self.buildable, built, strict=True)}
            last = [(i, k, j) for i, (k, j) in enumerate(self.circuits_to_build) if j in (count[k] - 1, count[k])]
            self._topologies[built] = BuiltNetwork(
                network=network,
                lines=tuple(corridor.id for corridor, _ in lines),
                rating_mw=np.asarray([corridor.rating_mw for corridor, _ in lines]),
                condition=tuple((self.at["installed"].start + i, j < count[k]) for i, k, j in last),
            )
        return self._topologies[built]

    def injection(self, point: Floats) -> Floats:
        """Return the power into the network at each node in MW: generation less the load of the node and its site."""
        mw = point[self.at["generated"]] - self.load_mw
        mw[self.site_nodes] -= self.module_mw * point[self.at["modules"]] + point[self.at["extra"]]
        return mw

    def of_load(self, by_node: Floats) -> float:
        """Compute the MW that the nodes' own load adds to the limit on a linear function of the injections."""
        return float(by_node @ self.load_mw)

    def row(self, by_node: Floats, *, new: bool) -> Floats:
        """Return a linear function of the injections, less the nodes' own load, as a row of the columns.

        `new` counts the flows on new circuits; `of_load` moves the load to the other side.
        """
        row = np.zeros(self.at["extra"].stop)
        row[self.at["generated"]] = by_node
        row[self.at["modules"]] = -self.module_mw * by_node[self.site_nodes]
        row[self.at["extra"]] = -by_node[self.site_nodes]
        for i, (k, _) in enumerate(self.circuits_to_build if new else ()):
            corridor = self.corridors[k]
            row[self.at["flow"].start + i] = by_node[self.nodes[corridor.b]] - by_node[self.nodes[corridor.a]]
        return row

    def cut(
        self, rule: str, name: str, row: Floats, upper: float, *, condition: Condition = (), reach: float = 0.0
    ) -> GridCut:
        """Return a row over all columns as a cut that keeps the coefficients above 1e-12 in absolute value."""
        (columns,) = np.nonzero(np.abs(row) > 1e-12)
        return GridCut(
            rule=rule, name=name, columns=columns, values=row[columns], upper=upper, condition=condition, reach=reach
        )

    def rating_cuts(self, point: Floats, count: int, tolerance: float) -> list[GridCut]:
        """Return cuts for at most `count` existing corridors above their usable ratings, the worst first."""
        net, limit = self.base.network, self.base.rating_mw * self.base.network.circuits * normal_share(self.grid)
        mw = self.injection(point)
        # Of the existing network a new circuit is load at one end and generation at the other.
        for (k, _), flow in zip(self.circuits_to_build, point[self.at["flow"]], strict=True):
            mw[self.nodes[self.corridors[k].a]] -= flow
            mw[self.nodes[self.corridors[k].b]] += flow
        flow = net.flows(mw)
        overload = (np.abs(flow) - limit) / limit
        worst = [int(i) for i in np.argsort(-overload, kind="stable")[:count] if overload[i] > tolerance]
        cuts = []
        for i, factors in zip(worst, net.ptdf(worst), strict=True):
            sign = 1.0 if flow[i] > 0 else -1.0
            name = f"{self.base.lines[i]},{'+' if sign > 0 else '-'}"
            upper = float(limit[i]) + sign * self.of_load(factors)
            cuts.append(self.cut("rating", name, sign * self.row(factors, new=True), upper))
        return cuts


TOLERANCE = 1e-7  # of a rating; the checker allows ten times as much
BATCH = 256  # contingencies solved side by side: enough to fill the factorisation's right-hand sides, little memory
MAX_STORED = 60_000_000  # factors held in memory; of larger grids they are computed anew in every round


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Contingencies side by side: after contingency j, flow l is flow[l] + factor[l, j] · source[j]."""

    unit: bool
    lost: Integers  # the corridor whose flow, or the node whose generation, is the source
    factor: Floats


@dataclass(frozen=True, kw_only=True)
class Contingencies:
    """The contingencies of one topology: one circuit of each of `lines`, the largest unit of each of `units`."""

    network: DcNetwork
    topology: BuiltNetwork
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
        return self._stored if few else chain(self._circuits(), self._responses())

    @cached_property
    def _stored(self) -> list[Batch]:
        # What a circuit shifts is the same in every year; who responds to a split or a lost unit is not.
        stored = self.network.outage_factors
        if self.topology.condition not in stored:
            stored[self.topology.condition] = list(self._circuits())
        return [*stored[self.topology.condition], *self._responses()]

    def _circuits(self) -> Iterator[Batch]:
        net = self.topology.network
        for lines in _batched([line for line in self.lines if line not in net.bridges]):
            yield Batch(unit=False, lost=np.asarray(lines), factor=net.lodf(lines))

    def _responses(self) -> Iterator[Batch]:
        net = self.topology.network
        for lines in _batched([line for line in self.lines if line in net.bridges]):
            factor = np.stack([self._bridge_factors(line) for line in lines], axis=1)
            yield Batch(unit=False, lost=np.asarray(lines), factor=factor)
        for units in _batched([unit for unit in self.units if self.others_mw[unit] > 0]):
            yield Batch(unit=True, lost=np.asarray(units), factor=self._unit_factors(np.asarray(units)))

    def _bridge_factors(self, line: int) -> Floats:
        """Compute each line's share of a lost bridge's flow when the plants on both sides respond on their own."""
        net, available = self.topology.network, self.network.available_mw
        side, rest = self.sides(line)
        response = np.zeros(net.nodes)
        # A side without plants loses its load instead: it fed nothing, and all that it drew came over the bridge.
        weight = np.where(available > 0, available, self.dark_load(line))
        # Where the part that goes dark nearly feeds itself, almost nothing comes over the bridge.
        if all(abs(weight[part].sum()) > 1e-3 * np.abs(weight[part]).sum() for part in (side, rest)):
            response[side] = weight[side] / weight[side].sum()
            response[rest] = -weight[rest] / weight[rest].sum()
        # The side that was fed over the bridge makes up for it, the other turns down by as much.
        factor = net.flows(response) * (1.0 if net.b[line] in side else -1.0)
        factor[line] = -1.0
        return factor

    def _unit_factors(self, units: Integers) -> Floats:
        """Compute each line's share of a node's generation when its unit is lost and the island's plants respond."""
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


def contingencies(network: DcNetwork, topology: BuiltNetwork) -> Contingencies:
    """Return the contingencies that the N-1 rule asks for."""
    if network.grid.rules.n1 == "full":
        lines = tuple(range(len(topology.lines)))
        units = tuple(int(node) for node in np.flatnonzero(network.unit_share * network.available_mw > 0))
        return Contingencies(network=network, topology=topology, lines=lines, units=units)
    lines = tuple(sorted({line for site in network.candidates for line in largest_at(network, topology, site)}))
    return Contingencies(network=network, topology=topology, lines=lines, units=())


def largest_at(network: DcNetwork, topology: BuiltNetwork, site: str) -> list[int]:
    """Return the corridors with the largest circuit at a node, all of them where several are as large."""
    node, net = network.nodes[site], topology.network
    here = np.flatnonzero((net.a == node) | (net.b == node))
    return [int(line) for line in here if topology.rating_mw[line] == topology.rating_mw[here].max()]
