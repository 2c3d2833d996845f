"""The grid of a site split as a DC network: its columns, its cuts, and the network with every choice of circuits.

Cuts are stored here and not in a model, so that every model of one split starts from what earlier ones found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.instance.grid import Grid
from planner.physics.site.dc_power_flow import Floats, Integers, Network
from planner.physics.site.grid import lost_share, normal_share

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
        """What tells the cut from others."""
        return self.rule, self.name, self.condition


CutKey = tuple[str, str, Condition]


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The network with some circuits built; `condition` says by binaries that exactly these are."""

    network: Network
    lines: tuple[str, ...]
    rating_mw: Floats
    condition: Condition


@dataclass
class Effort:
    """What the search for cuts took."""

    rounds: int = 0
    contingencies: int = 0


@dataclass(frozen=True, kw_only=True)
class DcNetwork:
    """The grid of a split in one year, as the columns that its cuts are stated over.

    The columns are, in this order: generation by node, modules and opening by candidate, then installation and flow of
    each circuit to build, then the load in MW that each candidate has beside its modules.

    Attributes
    ----------
    circuits_to_build
        Corridor and number of each circuit that can be built; circuits of a corridor are built in order.
    """

    grid: Grid
    corridors: Mapping[str, Corridor]
    candidates: Sequence[str]
    module_mw: float
    pool: dict[CutKey, GridCut] = field(default_factory=dict)
    effort: Effort = field(default_factory=Effort)
    contingencies: dict[tuple[int, ...], Any] = field(default_factory=dict)
    outage_factors: dict[Condition, Any] = field(default_factory=dict)
    _topologies: dict[tuple[int, ...], Topology] = field(default_factory=dict)
    _years: dict[str, "DcNetwork"] = field(default_factory=dict)

    def in_year(self, name: str, grid: Grid) -> "DcNetwork":
        """Return the network with a scenario's figures, made once: cuts of its own on the same topologies."""
        if name not in self._years:
            self._years[name] = replace(self, grid=grid, pool={}, contingencies={}, _years={})
        return self._years[name]

    @property
    def every_year(self) -> list["DcNetwork"]:
        """The network itself, then those of its scenarios."""
        return [self, *self._years.values()]

    @cached_property
    def nodes(self) -> dict[str, int]:
        """Number of each node."""
        return {n: i for i, n in enumerate(sorted(n.id for n in self.grid.nodes))}

    @cached_property
    def site_nodes(self) -> Integers:
        """Node of each candidate."""
        return np.asarray([self.nodes[s] for s in self.candidates], dtype=np.int64)

    @cached_property
    def available_mw(self) -> Floats:
        """Available generation of each node: what its plants can spare."""
        return np.asarray([n.generation_mw for n in sorted(self.grid.nodes, key=lambda n: n.id)])

    @cached_property
    def load_mw(self) -> Floats:
        """Load of each node beside the sites."""
        return np.asarray([n.load_mw for n in sorted(self.grid.nodes, key=lambda n: n.id)])

    @cached_property
    def unit_share(self) -> Floats:
        """Share of each node's generation that is lost with its largest unit."""
        return np.asarray([lost_share(n) for n in sorted(self.grid.nodes, key=lambda n: n.id)])

    @cached_property
    def existing(self) -> list[Corridor]:
        """Corridors of existing circuits; one that ends where it begins carries nothing."""
        return [c for c in self.corridors.values() if not c.new and c.a != c.b]

    @cached_property
    def buildable(self) -> list[Corridor]:
        """Corridors in which circuits can be built."""
        return [c for c in self.corridors.values() if c.new and c.a != c.b]

    @cached_property
    def circuits_to_build(self) -> list[tuple[str, int]]:
        """Corridor and number of each circuit that can be built."""
        return [(c.id, j) for c in self.buildable for j in range(c.circuits)]

    @property
    def first_modules(self) -> int:
        """First column of the modules."""
        return len(self.nodes)

    @property
    def first_open(self) -> int:
        """First column of the openings."""
        return self.first_modules + len(self.candidates)

    @property
    def first_installed(self) -> int:
        """First column of the installed circuits."""
        return self.first_open + len(self.candidates)

    @property
    def first_circuit_flow(self) -> int:
        """First column of the flows on new circuits."""
        return self.first_installed + len(self.circuits_to_build)

    @property
    def first_extra(self) -> int:
        """First column of the load beside the modules."""
        return self.first_circuit_flow + len(self.circuits_to_build)

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.first_extra + len(self.candidates)

    @cached_property
    def base(self) -> Topology:
        """The existing network."""
        return self.topology((0,) * len(self.buildable))

    @cached_property
    def joins_islands(self) -> bool:
        """Whether a circuit can be built between two islands of the existing network."""
        island = self.base.network.island
        return any(island[self.nodes[c.a]] != island[self.nodes[c.b]] for c in self.buildable)

    def built(self, x: Floats) -> tuple[int, ...]:
        """Return the circuits built in each corridor, of a point whose integers are whole."""
        total = dict.fromkeys((c.id for c in self.buildable), 0.0)
        for y, (k, _) in zip(x[self.first_installed : self.first_circuit_flow], self.circuits_to_build, strict=True):
            total[k] += y
        return tuple(round(n) for n in total.values())

    def topology(self, built: tuple[int, ...]) -> Topology:
        """Return the network with this many circuits built in each corridor, made once."""
        if built not in self._topologies:
            new = [(c, n) for c, n in zip(self.buildable, built, strict=True) if n]
            lines = [(c, c.circuits) for c in self.existing] + new
            network = Network(
                len(self.nodes),
                [self.nodes[c.a] for c, _ in lines],
                [self.nodes[c.b] for c, _ in lines],
                [n for _, n in lines],
                [c.reactance_pu or 0.0 for c, _ in lines],
            )
            self._topologies[built] = Topology(
                network=network,
                lines=tuple(c.id for c, _ in lines),
                rating_mw=np.asarray([c.rating_mw for c, _ in lines]),
                condition=self._condition(built),
            )
        return self._topologies[built]

    def _condition(self, built: tuple[int, ...]) -> Condition:
        """Say by circuits that exactly these are built: the last one is, the next one is not."""
        count = {c.id: n for c, n in zip(self.buildable, built, strict=True)}
        edges = [(i, j < count[k]) for i, (k, j) in enumerate(self.circuits_to_build) if j in (count[k] - 1, count[k])]
        return tuple((self.first_installed + i, installed) for i, installed in edges)

    def injection(self, x: Floats) -> Floats:
        """Return the power into the network at each node in MW: generation less the load of the node and its site."""
        mw = x[: self.first_modules] - self.load_mw
        mw[self.site_nodes] -= self.module_mw * x[self.first_modules : self.first_open] + x[self.first_extra :]
        return mw

    def injection_into_base(self, x: Floats) -> Floats:
        """Return the power into the existing network: a new circuit is load at one end and generation at the other."""
        mw = self.injection(x)
        for (k, _), flow in zip(self.circuits_to_build, x[self.first_circuit_flow : self.first_extra], strict=True):
            mw[self.nodes[self.corridors[k].a]] -= flow
            mw[self.nodes[self.corridors[k].b]] += flow
        return mw

    def of_load(self, by_node: Floats) -> float:
        """Return what the nodes' own load adds to the limit on a linear function of the injections."""
        return float(by_node @ self.load_mw)

    def row(self, by_node: Floats, *, new: bool) -> Floats:
        """Return a linear function of the injections as one of the columns; `new` counts the flows on new circuits.

        The nodes' own load is no column: `of_load` moves it to the other side.
        """
        row = np.zeros(self.width)
        row[: self.first_modules] = by_node
        row[self.first_modules : self.first_open] = -self.module_mw * by_node[self.site_nodes]
        row[self.first_extra :] = -by_node[self.site_nodes]
        for i, (k, _) in enumerate(self.circuits_to_build if new else ()):
            c = self.corridors[k]
            row[self.first_circuit_flow + i] = by_node[self.nodes[c.b]] - by_node[self.nodes[c.a]]
        return row

    def cut(
        self, rule: str, name: str, row: Floats, upper: float, *, condition: Condition = (), reach: float = 0.0
    ) -> GridCut:
        """Return a row over all columns as a cut, without what is zero."""
        (columns,) = np.nonzero(np.abs(row) > 1e-12)
        return GridCut(
            rule=rule, name=name, columns=columns, values=row[columns], upper=upper, condition=condition, reach=reach
        )

    def rating_cuts(self, x: Floats, count: int, tolerance: float) -> list[GridCut]:
        """Return cuts for at most `count` existing corridors above their usable ratings, the worst first."""
        net, limit = self.base.network, self.base.rating_mw * self.base.network.circuits * normal_share(self.grid)
        flow = net.flows(self.injection_into_base(x))
        overload = (np.abs(flow) - limit) / limit
        worst = [int(i) for i in np.argsort(-overload, kind="stable")[:count] if overload[i] > tolerance]
        cuts = []
        for i, factors in zip(worst, net.ptdf(worst), strict=True):
            sign = 1.0 if flow[i] > 0 else -1.0
            name = f"{self.base.lines[i]},{'+' if sign > 0 else '-'}"
            upper = float(limit[i]) + sign * self.of_load(factors)
            cuts.append(self.cut("rating", name, sign * self.row(factors, new=True), upper))
        return cuts
