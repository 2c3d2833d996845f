"""The lazy rows of a DC model, year by year: corridors above their ratings, before and after contingencies.

Each year has injections of its own, so violations are sought year by year; the years share the columns of modules,
openings and installed circuits, which are decided once. Cuts limit flows after a contingency, keep reserves, and make
islands feed themselves.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.models.sites.dc_network import (
    TOLERANCE,
    Condition,
    Contingencies,
    CutKey,
    DcNetwork,
    GridCut,
    contingencies,
    largest_at,
)
from planner.models.sites.grid_rules import columns
from planner.models.sites.split_data import SplitData, years
from planner.physics.site.grid import Floats, Integers
from planner.solvers.highs import LazyRow

MAX_CUTS = 150  # overloads made cuts in one round: more slow the LP down before the first have acted
MAX_CUTS_PER_LINE = 3  # of one monitored line: more say nearly the same
SitesByLine = dict[int, list[int]]  # numbers of the candidates at which the loss of a line counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """A monitored line above its rating after the loss of a circuit, or of the largest unit of a node."""

    excess: float  # share of the rating
    line: int
    lost: int
    unit: bool
    factor: float


def violated(
    network: DcNetwork, x: Floats, by_topology: dict[tuple[int, ...], Contingencies], tolerance: float
) -> list[GridCut]:
    """Return cuts for the violations of a point in the topology that its circuits make, valid in that topology alone.

    `by_topology` stores the contingencies of each. The point's binaries must be whole where there is something to
    build.
    """
    built = network.built(x)
    if built not in by_topology:
        by_topology[built] = contingencies(network, network.topology(built))
    of = by_topology[built]
    network.effort.contingencies = max(network.effort.contingencies, len(of.lines) + len(of.units))
    by_line: SitesByLine | None = None
    if network.grid.rules.n1 == "node":
        by_line = {}
        for i, s in enumerate(network.candidates):
            for k in largest_at(network, of.topology, s):
                by_line.setdefault(k, []).append(i)
    cuts = _overload_cuts(of, x, by_line, tolerance) + list(_island_cuts(of, x, by_line, tolerance))
    return cuts + (list(_reserve_cuts(of, x, tolerance)) if of.units else [])


def _conditions(of: Contingencies, line: int, x: Floats, by_line: SitesByLine | None) -> list[Condition]:
    """Return when the loss of a line counts: always, or while one of the sites at it is open; nothing while none is."""
    condition = of.topology.condition
    if by_line is None:
        return [condition]
    columns = [of.network.first_open + i for i in by_line[line]]
    return [(*condition, (column, True)) for column in columns if x[column] > 0.5]


def _overload_cuts(of: Contingencies, x: Floats, by_line: SitesByLine | None, tolerance: float) -> list[GridCut]:
    """Return cuts for the worst overloads of all contingencies."""
    topology = of.topology
    flow = topology.network.flows(of.network.injection(x))
    limit = topology.rating_mw * topology.network.circuits
    overloads: list[Overload] = []
    for batch in of.batches():
        source = (x if batch.unit else flow)[batch.lost]
        after = np.abs(flow[:, None] + batch.factor * source)
        rating = np.broadcast_to(limit[:, None], after.shape)
        if not batch.unit:
            rating = rating.copy()
            rating[batch.lost, np.arange(len(batch.lost))] -= topology.rating_mw[batch.lost]
        # A corridor whose only circuit is lost carries nothing, within a rating of nothing.
        excess = (after - rating) / limit[:, None]
        worst = excess.argmax(axis=0)
        for j in np.flatnonzero(excess[worst, np.arange(excess.shape[1])] > tolerance):
            i, k = int(worst[j]), int(batch.lost[j])
            if batch.unit or _conditions(of, k, x, by_line):
                overloads.append(
                    Overload(
                        excess=float(excess[i, j]), line=i, lost=k, unit=batch.unit, factor=float(batch.factor[i, j])
                    )
                )
    overloads.sort(key=lambda v: (-v.excess, v.line, v.lost, v.unit))
    kept, count = [], dict[int, int]()  # the worst, and at most a few of one monitored line
    for v in overloads:
        count[v.line] = count.get(v.line, 0) + 1
        if count[v.line] <= MAX_CUTS_PER_LINE:
            kept.append(v)
    return list(_cuts_of(of, x, flow, kept[:MAX_CUTS], by_line))


def _cuts_of(
    of: Contingencies, x: Floats, flow: Floats, overloads: list[Overload], by_line: SitesByLine | None
) -> Iterator[GridCut]:
    topology, network = of.topology, of.network
    lines = sorted({v.line for v in overloads} | {v.lost for v in overloads if not v.unit})
    ptdf = dict(zip(lines, topology.network.ptdf(lines), strict=True))
    names = list(network.nodes)
    for v in overloads:
        i, k = v.line, v.lost
        sign = 1.0 if flow[i] + v.factor * (x if v.unit else flow)[k] > 0 else -1.0
        by_node = ptdf[i] if v.unit else ptdf[i] + v.factor * ptdf[k]
        row = network.row(by_node, new=False)
        if v.unit:
            row[k] += v.factor
        circuits = topology.network.circuits[i] - (0 if v.unit or i != k else 1)
        upper = float(topology.rating_mw[i] * circuits)
        upper += sign * network.of_load(by_node)
        name = f"{topology.lines[i]},{'unit ' + names[k] if v.unit else topology.lines[k]},{'+' if sign > 0 else '-'}"
        # Injections are within all generation and all load; a negative reactance may make more of them on a line.
        reach = 2 * float(np.abs(by_node).max(initial=1.0)) + abs(v.factor)
        for condition in [topology.condition] if v.unit else _conditions(of, k, x, by_line):
            yield network.cut("security", name, sign * row, upper, condition=condition, reach=reach)


def _island_cuts(of: Contingencies, x: Floats, by_line: SitesByLine | None, tolerance: float) -> Iterator[GridCut]:
    """Require that each island left by a lost bridge feeds itself: no site without plants, no plant above its limit.

    The nodes' own load in an island without plants is lost with the line.
    """
    net = of.topology.network
    injection = of.network.injection(x)
    for line in (k for k in of.lines if k in net.bridges):
        served = injection + of.dark_load(line)
        for needy in of.sides(line):
            short = -float(served[needy].sum())
            for condition in _conditions(of, line, x, by_line) if short > tolerance else ():
                yield from _feed_itself(of, x, line, needy, short, condition, tolerance)


def _feed_itself(
    of: Contingencies, x: Floats, line: int, needy: Integers, short: float, condition: Condition, tolerance: float
) -> Iterator[GridCut]:
    """Require that the plants on one side of a lost bridge feed its shortage, or without plants that no site draws."""
    network, available, name = of.network, of.network.available_mw, of.topology.lines[line]
    plants_mw, by_node = float(available[needy].sum()), np.zeros(of.topology.network.nodes)
    if plants_mw <= 0:
        by_node[needy] = -1.0
        # The shortage is that of the sites alone: the nodes' own load is no column.
        row = network.row(by_node, new=False)
        yield network.cut("security", f"dark,{name}", row, 0.0, condition=condition, reach=2.0)
        return
    # Stated in the terms of one side, whichever lacks it: what the one lacks, the other has too much.
    side, rest = of.sides(line)
    by_node[side] = 1.0 if needy[0] == rest[0] else -1.0
    shortage, served = network.row(by_node, new=False), network.of_load(by_node)
    rise, names = short / plants_mw, list(network.nodes)
    for n in needy[x[needy] > available[needy] * (1 - rise) * (1 + tolerance) + tolerance]:
        row = shortage * (available[n] / plants_mw)
        row[n] += 1.0
        upper = float(available[n]) + served * float(available[n] / plants_mw)
        yield network.cut("security", f"fed by {names[n]},{name}", row, upper, condition=condition, reach=3.0)


def _reserve_cuts(of: Contingencies, x: Floats, tolerance: float) -> Iterator[GridCut]:
    """Require the same share of every plant of an island as reserve, that of its worst loss of a unit."""
    network, island, others = of.network, of.topology.network.island, of.others_mw
    generated, available, unit = x[: network.first_modules], network.available_mw, network.unit_share
    for n in np.flatnonzero((unit * available > 0) & (others <= 0) & (generated > tolerance)):
        yield _reserve_cut(of, int(n), None)
    share = np.where(others > 0, unit * generated / np.where(others > 0, others, 1.0), 0.0)
    for i in np.unique(island):
        plants = np.flatnonzero((island == i) & (available > 0))
        if len(plants):
            worst = int(plants[share[plants].argmax()])
            limit = available[plants] * (1 - share[worst]) * (1 + tolerance) + tolerance
            for n in plants[generated[plants] > limit]:
                yield _reserve_cut(of, int(n), worst)


def _reserve_cut(of: Contingencies, plant: int, lost: int | None) -> GridCut:
    """Require one plant's reserve for the loss of another's unit; a plant alone in its island may not feed in."""
    network, names = of.network, list(of.network.nodes)
    row = np.zeros(network.width)
    row[plant] = 1.0
    upper, reach = 0.0, 1.0
    if lost is not None:
        row[lost] += float(network.available_mw[plant] * network.unit_share[lost] / of.others_mw[lost])
        upper, reach = float(network.available_mw[plant]), 1.0 + float(row[lost])
    name = f"reserve of {names[plant]},unit {names[plant if lost is None else lost]}"
    return network.cut("security", name, row, upper, condition=of.topology.condition, reach=reach)


MAX_RATING_CUTS = 150  # in one round, over all years: more slow the LP down before the first have acted
MIN_RATING_CUTS = 30  # of these for each year, so that many years do not starve each other
N1_RULES = ("node", "full")  # those that follow flows after a contingency


@dataclass(frozen=True, kw_only=True)
class YearRows:
    """The lazy rows of one year; `suffix` follows their names."""

    network: DcNetwork
    rules: frozenset[str]
    load_mw: float
    max_cuts: int
    suffix: str
    stated: set[CutKey] = field(default_factory=set)

    def known(self) -> list[LazyRow]:
        """Return the cuts that this split has met, of the rules in force."""
        cuts = {key: c for key, c in self.network.pool.items() if c.rule in self.rules}
        self.stated.clear()
        self.stated.update(cuts)
        return [self._row(c) for c in cuts.values()]

    def broken(self, x: npt.NDArray[np.float64], *, whole: bool, quick: bool) -> list[LazyRow]:
        """Return cuts for violations of the point; those of N-1 once few ratings are violated, and not if `quick`."""
        cuts = self.network.rating_cuts(x, self.max_cuts, TOLERANCE) if "rating" in self.rules else []
        # The topology of a point is known where its binaries are whole, or where nothing can be built.
        known_topology = whole or (not self.network.buildable and self.network.grid.rules.n1 == "full")
        if "security" in self.rules and known_topology and not quick and len(cuts) < self.max_cuts // 5:
            cuts += violated(self.network, x, self.network.contingencies, TOLERANCE)
        # Cuts that are stated already are violated by no more than the solver's own tolerance.
        fresh = {c.key: c for c in cuts if c.key not in self.stated}
        self.network.pool.update(fresh)
        self.stated.update(fresh)
        return [self._row(c) for c in fresh.values()]

    def _row(self, c: GridCut) -> LazyRow:
        entries = c.name.split(",")[: 1 if c.rule == "rating" else 2]
        name = f"{c.rule}[{','.join(entries)}]{self.suffix}"
        if not c.condition:
            return LazyRow(name=name, columns=c.columns, values=c.values, upper=c.upper)
        big_m = c.reach * self.load_mw
        binaries = np.asarray([i for i, _ in c.condition])
        signs = np.asarray([big_m if wanted else -big_m for _, wanted in c.condition])
        upper = c.upper + big_m * sum(wanted for _, wanted in c.condition)
        return LazyRow(
            name=name,
            columns=np.concatenate([c.columns, binaries]),
            values=np.concatenate([c.values, signs]),
            upper=upper,
        )


@dataclass(frozen=True, kw_only=True)
class LazyRows:
    """The lazy rows of all years: each year has the columns of its network, one year after the other."""

    columns: list[Any]
    gates: list[tuple[int, int]]
    years: list[YearRows]

    @property
    def _width(self) -> int:
        return len(self.columns) // len(self.years)

    def _placed(self, year: int, rows: list[LazyRow]) -> list[LazyRow]:
        return [replace(r, columns=r.columns + year * self._width) for r in rows]

    def known(self) -> list[LazyRow]:
        """Return the cuts that this split has met, of the rules in force."""
        return [r for i, year in enumerate(self.years) for r in self._placed(i, year.known())]

    def forget(self) -> None:
        """Take all rows back: none is stated any more."""
        for year in self.years:
            year.stated.clear()

    def broken(self, x: npt.NDArray[np.float64], *, whole: bool, quick: bool) -> list[LazyRow]:
        """Return cuts for the violations of the point in any year."""
        self.years[0].network.effort.rounds += 1
        n = self._width
        by_year = [y.broken(x[i * n : (i + 1) * n], whole=whole, quick=quick) for i, y in enumerate(self.years)]
        return [r for i, rows in enumerate(by_year) for r in self._placed(i, rows)]


def attach(m: Any, data: SplitData, without: Collection[str], *, load_mw: float) -> None:
    """Give a dc model its lazy rows, as `m.lazy`."""
    if data.network is None:
        return
    rules = ({"rating", "security"} if data.grid.rules.n1 in N1_RULES else {"rating"}) - set(without)
    every_year = [(year, year.data.network) for year in years(m, data) if year.data.network]
    m.lazy = LazyRows(
        columns=[v for year, network in every_year for v in columns(year.block, network)],
        gates=[(data.network.first_modules + i, data.network.first_open + i) for i in range(len(data.candidates))],
        years=[
            YearRows(
                network=network,
                rules=frozenset(rules),
                load_mw=load_mw,
                max_cuts=max(MAX_RATING_CUTS // len(every_year), MIN_RATING_CUTS),
                suffix=year.suffix,
            )
            for year, network in every_year
        ],
    )


def security_space(network: DcNetwork) -> dict[str, int]:
    """Return the counts of the search for lazy rows, over all years: rounds, cuts and outages."""
    rules = [c.rule for year in network.every_year for c in year.pool.values()]
    space = {"rounds": network.effort.rounds, "rating_cuts": rules.count("rating")}
    if network.grid.rules.n1 in N1_RULES:
        space |= {"outages": network.effort.contingencies, "outage_cuts": rules.count("security")}
    return space
