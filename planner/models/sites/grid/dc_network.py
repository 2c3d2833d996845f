"""The grid of a site split as a DC network: its columns, its cuts, and the network in each state of what is built.

Cuts are kept here and not in a model, so that every model of one question starts from what earlier ones found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.instance.grid import Grid
from planner.physics.site.dc_power_flow import Floats, Network, Whole
from planner.physics.site.grid import lost_share, normal_share


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
        """Circuits must be built first."""
        return self.capex_usd is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStrategy:
    """One row `values · x[columns] <= upper`; it holds where every binary of `given` has the value beside it.

    Elsewhere the left side is beyond `upper` by `reach` times the total load at most.
    """

    family: str
    name: str
    columns: Whole
    values: Floats
    upper: float
    given: tuple[tuple[int, bool], ...] = ()
    reach: float = 0.0


Key = tuple[str, str, tuple[tuple[int, bool], ...]]  # of a cut: family, name, given


@dataclass(frozen=True, kw_only=True)
class State:
    """The network with some circuits built."""

    network: Network
    lines: tuple[str, ...]
    rating_mw: Floats
    given: tuple[tuple[int, bool], ...]


@dataclass
class Effort:
    """What the search for cuts took."""

    rounds: int = 0
    contingencies: int = 0


@dataclass(frozen=True, kw_only=True)
class System:
    """Columns in this order: power fed in by node, modules and opening by candidate, then each circuit to build: stands, carries.

    Attributes
    ----------
    circuits_to_build
        Corridor and number of each circuit that can be built; circuits of a corridor are built in order.
    """

    grid: Grid
    corridors: Mapping[str, Corridor]
    candidates: Sequence[str]
    module_mw: float
    pool: dict[Key, ParallelStrategy] = field(default_factory=dict)
    effort: Effort = field(default_factory=Effort)
    outages: dict[tuple[int, ...], Any] = field(default_factory=dict)
    shifts: dict[tuple[tuple[int, bool], ...], Any] = field(default_factory=dict)
    _states: dict[tuple[int, ...], State] = field(default_factory=dict)
    _years: dict[str, "System"] = field(default_factory=dict)

    def in_year(self, name: str, grid: Grid) -> "System":
        """Return the system with a scenario's figures: cuts of its own on the same networks; it is kept."""
        if name not in self._years:
            self._years[name] = replace(self, grid=grid, pool={}, outages={}, _years={})
        return self._years[name]

    @property
    def every_year(self) -> list["System"]:
        """The system itself, then those of its scenarios."""
        return [self, *self._years.values()]

    @cached_property
    def nodes(self) -> dict[str, int]:
        """Number of each node."""
        return {n: i for i, n in enumerate(sorted(n.id for n in self.grid.nodes))}

    @cached_property
    def site(self) -> Whole:
        """Node of each candidate."""
        return np.asarray([self.nodes[s] for s in self.candidates], dtype=np.int64)

    @cached_property
    def spare_mw(self) -> Floats:
        """What the plants of each node can spare."""
        return np.asarray([n.generation_mw for n in sorted(self.grid.nodes, key=lambda n: n.id)])

    @cached_property
    def lost(self) -> Floats:
        """Share of each node's feed that is lost with its largest unit."""
        return np.asarray([lost_share(n) for n in sorted(self.grid.nodes, key=lambda n: n.id)])

    @cached_property
    def standing(self) -> list[Corridor]:
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
    def modules_at(self) -> int:
        """First column of the modules."""
        return len(self.nodes)

    @property
    def open_at(self) -> int:
        """First column of the openings."""
        return self.modules_at + len(self.candidates)

    @property
    def stands_at(self) -> int:
        """First column of the circuits that stand."""
        return self.open_at + len(self.candidates)

    @property
    def carries_at(self) -> int:
        """First column of what new circuits carry."""
        return self.stands_at + len(self.circuits_to_build)

    @property
    def width(self) -> int:
        """Columns in all."""
        return self.carries_at + len(self.circuits_to_build)

    @cached_property
    def base(self) -> State:
        """The existing network."""
        return self.state((0,) * len(self.buildable))

    @cached_property
    def joins_islands(self) -> bool:
        """A circuit can be built between two parts of the existing network."""
        island = self.base.network.island
        return any(island[self.nodes[c.a]] != island[self.nodes[c.b]] for c in self.buildable)

    def built(self, x: Floats) -> tuple[int, ...]:
        """Circuits built in each corridor, of a point with whole numbers."""
        stands = x[self.stands_at : self.carries_at]
        return tuple(
            round(sum(y for y, (k, _) in zip(stands, self.circuits_to_build, strict=True) if k == c.id))
            for c in self.buildable
        )

    def state(self, built: tuple[int, ...]) -> State:
        """Return the network with this many circuits built in each corridor; it is kept."""
        if built not in self._states:
            new = [(c, n) for c, n in zip(self.buildable, built, strict=True) if n]
            lines = [(c, c.circuits) for c in self.standing] + new
            network = Network(
                len(self.nodes),
                [self.nodes[c.a] for c, _ in lines],
                [self.nodes[c.b] for c, _ in lines],
                [n for _, n in lines],
                [c.reactance_pu or 0.0 for c, _ in lines],
            )
            self._states[built] = State(
                network=network,
                lines=tuple(c.id for c, _ in lines),
                rating_mw=np.asarray([c.rating_mw for c, _ in lines]),
                given=self._given(built),
            )
        return self._states[built]

    def _given(self, built: tuple[int, ...]) -> tuple[tuple[int, bool], ...]:
        """Say by circuits that exactly these stand: the last one built does, the next one does not."""
        count = {c.id: n for c, n in zip(self.buildable, built, strict=True)}
        edges = [(i, j < count[k]) for i, (k, j) in enumerate(self.circuits_to_build) if j in (count[k] - 1, count[k])]
        return tuple((self.stands_at + i, stands) for i, stands in edges)

    def injection(self, x: Floats) -> Floats:
        """Power into the network at each node in MW: what is fed in less what sites draw."""
        found = x[: self.modules_at].copy()
        found[self.site] -= self.module_mw * x[self.modules_at : self.open_at]
        return found

    def into_base(self, x: Floats) -> Floats:
        """Power into the existing network: new circuits draw what they carry at one end and feed it in at the other."""
        found = self.injection(x)
        for (k, _), mw in zip(self.circuits_to_build, x[self.carries_at :], strict=True):
            found[self.nodes[self.corridors[k].a]] -= mw
            found[self.nodes[self.corridors[k].b]] += mw
        return found

    def row(self, by_node: Floats, *, new: bool) -> Floats:
        """Return a function of the injections as a function of the columns; `new` counts what new circuits carry."""
        found = np.zeros(self.width)
        found[: self.modules_at] = by_node
        found[self.modules_at : self.open_at] = -self.module_mw * by_node[self.site]
        for i, (k, _) in enumerate(self.circuits_to_build if new else ()):
            c = self.corridors[k]
            found[self.carries_at + i] = by_node[self.nodes[c.b]] - by_node[self.nodes[c.a]]
        return found

    def cut(
        self,
        family: str,
        name: str,
        row: Floats,
        upper: float,
        *,
        given: tuple[tuple[int, bool], ...] = (),
        reach: float = 0.0,
    ) -> ParallelStrategy:
        """Return a row as a cut, without what is zero."""
        (columns,) = np.nonzero(np.abs(row) > 1e-12)
        return ParallelStrategy(
            family=family, name=name, columns=columns, values=row[columns], upper=upper, given=given, reach=reach
        )

    def ratings(self, x: Floats, most: int, tolerance: float) -> list[ParallelStrategy]:
        """Return the existing corridors that carry more than may be used of their ratings, the worst first, as cuts."""
        net, limit = self.base.network, self.base.rating_mw * self.base.network.circuits * normal_share(self.grid)
        flow = net.flows(self.into_base(x))
        over = (np.abs(flow) - limit) / limit
        worst = [int(i) for i in np.argsort(-over, kind="stable")[:most] if over[i] > tolerance]
        rows = net.transfer(worst)
        found = []
        for i, by_node in zip(worst, rows, strict=True):
            way = 1.0 if flow[i] > 0 else -1.0
            name = f"{self.base.lines[i]},{'+' if way > 0 else '-'}"
            found.append(self.cut("rating", name, way * self.row(by_node, new=True), float(limit[i])))
        return found
