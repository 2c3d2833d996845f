"""The grid of a site split as a DC network: its columns, its topologies, and the cuts that its splits have met.

Cuts are stored here and not in a model, so that every model of one split starts from what earlier ones found.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from planner.instance.grid import Grid, Line, NewLine
from planner.physics.site.grid import Floats, Integers, PowerNetwork, lost_share, normal_share

TOLERANCE = 1e-7  # of a rating; the checker allows ten times as much
Condition = tuple[tuple[int, bool], ...]  # columns of binaries with the values at which a cut is valid


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCut:
    """A cut of the DC grid, `values · x[columns] <= upper`, valid where each binary of `condition` has its value.

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
        """Return the key that identifies this cut of the DC grid."""
        return self.rule, self.name, self.condition


CutKey = tuple[str, str, Condition]


@dataclass(frozen=True, kw_only=True)
class BuiltNetwork:
    """The DC network with some circuits built; `condition` says by binaries that exactly these are."""

    network: PowerNetwork
    lines: tuple[str, ...]
    rating_mw: Floats
    condition: Condition


@dataclass(kw_only=True)
class DcNetwork:
    """The DC network of a site split in one year, as the columns that its cuts are stated over.

    The columns are, in this order: generation by node, modules and opening by candidate, then installation and flow of
    each circuit to build, then the load in MW that each candidate has in addition to its modules.
    """

    grid: Grid
    corridors: Mapping[str, Line | NewLine]
    candidates: Sequence[str]
    module_mw: float
    pool: dict[CutKey, GridCut] = field(default_factory=dict)
    effort: Counter[str] = field(default_factory=Counter)  # rounds of the search for cuts, and outages in one
    contingencies: dict[tuple[int, ...], Any] = field(default_factory=dict)  # by circuits built
    outage_factors: dict[Condition, Any] = field(default_factory=dict)
    topologies: dict[tuple[int, ...], BuiltNetwork] = field(default_factory=dict)
    of_years: dict[str, "DcNetwork"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = sorted(self.grid.nodes, key=lambda node: node.id)
        self.nodes = {node.id: i for i, node in enumerate(nodes)}
        self.site_nodes: Integers = np.asarray([self.nodes[site] for site in self.candidates], dtype=np.int64)
        # By node: generation in MW that its plants can spare, its share lost with the largest unit, load without sites.
        self.available_mw: Floats = np.asarray([node.generation_mw for node in nodes])
        self.unit_share: Floats = np.asarray([lost_share(node) for node in nodes])
        self.load_mw: Floats = np.asarray([node.load_mw for node in nodes])
        # A corridor that ends where it begins carries nothing; circuits of a corridor are built in order.
        apart = [corridor for corridor in self.corridors.values() if corridor.a != corridor.b]
        self.existing = [corridor for corridor in apart if isinstance(corridor, Line)]
        self.buildable = [corridor for corridor in apart if isinstance(corridor, NewLine)]
        self.circuits_to_build = [(line.id, j) for line in self.buildable for j in range(line.max_circuits)]
        sites, new = len(self.candidates), len(self.circuits_to_build)
        kinds = "generated", "modules", "open", "installed", "flow", "extra"
        ends = [0, *accumulate((len(nodes), sites, sites, new, new, sites))]
        self.at = {kind: slice(*places) for kind, places in zip(kinds, pairwise(ends), strict=True)}

    def in_year(self, name: str, grid: Grid) -> "DcNetwork":
        """Return the DC network with a scenario's figures, made once: its own cuts on the same topologies."""
        if name not in self.of_years:
            self.of_years[name] = replace(self, grid=grid, pool={}, contingencies={}, of_years={})
        return self.of_years[name]

    @cached_property
    def base(self) -> BuiltNetwork:
        """Return the existing DC network, with no circuit built."""
        return self.topology((0,) * len(self.buildable))

    @cached_property
    def joins_islands(self) -> bool:
        """Return whether a circuit can be built between two islands of the existing DC network."""
        island = self.base.network.island
        return any(island[self.nodes[corridor.a]] != island[self.nodes[corridor.b]] for corridor in self.buildable)

    def built(self, point: Floats) -> tuple[int, ...]:
        """Count the circuits built in each corridor of the DC network at a point whose integers are whole."""
        total = dict.fromkeys((corridor.id for corridor in self.buildable), 0.0)
        for value, (name, _) in zip(point[self.at["installed"]], self.circuits_to_build, strict=True):
            total[name] += value
        return tuple(round(count) for count in total.values())

    def topology(self, built: tuple[int, ...]) -> BuiltNetwork:
        """Return the DC network with such counts of circuits built in each corridor, made once."""
        if built not in self.topologies:
            count = {corridor.id: n for corridor, n in zip(self.buildable, built, strict=True)}
            lines: list[tuple[Line | NewLine, int]] = [(corridor, corridor.circuits) for corridor in self.existing]
            lines += [(corridor, count[corridor.id]) for corridor in self.buildable if count[corridor.id]]
            network = PowerNetwork(
                len(self.nodes),
                [self.nodes[corridor.a] for corridor, _ in lines],
                [self.nodes[corridor.b] for corridor, _ in lines],
                [n for _, n in lines],
                [corridor.reactance_pu or 0.0 for corridor, _ in lines],
            )
            # By circuits, exactly these are built: the last one is, the next one is not.
            last = [(i, k, j) for i, (k, j) in enumerate(self.circuits_to_build) if j in (count[k] - 1, count[k])]
            self.topologies[built] = BuiltNetwork(
                network=network,
                lines=tuple(corridor.id for corridor, _ in lines),
                rating_mw=np.asarray([corridor.rating_mw for corridor, _ in lines]),
                condition=tuple((self.at["installed"].start + i, j < count[k]) for i, k, j in last),
            )
        return self.topologies[built]

    def injection(self, point: Floats) -> Floats:
        """Return the injection into the DC network by node in MW: generation less load of the node and its site."""
        mw = point[self.at["generated"]] - self.load_mw
        mw[self.site_nodes] -= self.module_mw * point[self.at["modules"]] + point[self.at["extra"]]
        return mw

    def row(self, by_node: Floats, *, new: bool) -> Floats:
        """Return a linear function of the injections, less the nodes' own load, as a row of the DC network's columns.

        `new` counts the flows on new circuits. The load goes to the other side: `by_node @ load_mw` on top of a limit.
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
        """Return a row over the DC network's columns as a cut, with the coefficients above 1e-12 in absolute value."""
        (columns,) = np.nonzero(np.abs(row) > 1e-12)
        return GridCut(
            rule=rule, name=name, columns=columns, values=row[columns], upper=upper, condition=condition, reach=reach
        )

    def rating_cuts(self, point: Floats, count: int) -> list[GridCut]:
        """Return cuts of the DC network for at most `count` corridors above their usable ratings, the worst first."""
        net, limit = self.base.network, self.base.rating_mw * self.base.network.circuits * normal_share(self.grid)
        mw = self.injection(point)
        # Of the existing network a new circuit is load at one end and generation at the other.
        for (k, _), flow in zip(self.circuits_to_build, point[self.at["flow"]], strict=True):
            mw[self.nodes[self.corridors[k].a]] -= flow
            mw[self.nodes[self.corridors[k].b]] += flow
        flow = net.flows(mw)
        overload = (np.abs(flow) - limit) / limit
        worst = [int(i) for i in np.argsort(-overload, kind="stable")[:count] if overload[i] > TOLERANCE]
        cuts = []
        for i, factors in zip(worst, net.ptdf(worst), strict=True):
            sign = 1.0 if flow[i] > 0 else -1.0
            name = f"{self.base.lines[i]},{'+' if sign > 0 else '-'}"
            upper = float(limit[i]) + sign * float(factors @ self.load_mw)
            cuts.append(self.cut("rating", name, sign * self.row(factors, new=True), upper))
        return cuts
