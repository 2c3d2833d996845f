"""The grid of a site split as a DC network, and its cuts, year by year: ratings, before and after contingencies.

Each year has injections of its own, so violations are sought year by year; the years share the columns of modules,
openings and installed circuits, which are decided once. Cuts limit flows after a contingency, keep reserves, and make
islands feed themselves. They are stored here and not in a model, so that every model of one split starts from what
earlier ones found; a model has them as lazy rows.

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

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from planner.instance.grid import Grid, Line, NewLine
from planner.physics import Floats, Ints
from planner.physics.site.grid import PowerNetwork, lost_share, normal_share
from planner.solvers.highs import LazyRow

TOLERANCE = 1e-7  # of a rating; the checker allows ten times as much
BATCH = 256  # contingencies solved side by side: enough to fill the factorisation's right-hand sides, little memory
MAX_STORED = 60_000_000  # factors held in memory; of larger grids they are computed anew in every round
MAX_CUTS = 150  # overloads made cuts in one round: more slow the LP down before the first have acted
MAX_CUTS_PER_LINE = 3  # of one monitored line: more say nearly the same
MAX_RATING_CUTS = 150  # in one round, over all years: more slow the LP down before the first have acted
MIN_RATING_CUTS = 30  # of these for each year, so that many years do not starve each other
N1_RULES = ("node", "full")  # those that follow flows after a contingency
Condition = tuple[tuple[int, bool], ...]  # columns of binaries with the values at which a cut is valid
CutKey = tuple[str, str, Condition]  # rule, name and condition, which tell a cut from all others
# Minus the share of the rating that is exceeded, the line, the lost circuit or unit, whether it is a unit, the factor.
Overload = tuple[float, int, int, bool, float]


@dataclass
class GridCut:
    """A cut of the DC grid, `values · x[columns] <= upper`, valid where each binary of `condition` has its value.

    Elsewhere the left side is above `upper` by at most `reach` times the total load. It is given as a row over all
    columns, of which the coefficients above 1e-12 in absolute value are kept.
    """

    rule: str
    name: str
    row: InitVar[Floats]
    upper: float
    condition: Condition = ()
    reach: float = 0.0

    def __post_init__(self, row: Floats) -> None:
        (self.columns,) = np.nonzero(np.abs(row) > 1e-12)
        self.values: Floats = row[self.columns]
        self.key: CutKey = self.rule, self.name, self.condition


@dataclass(kw_only=True)
class BuiltNetwork:
    """The DC network with some circuits built; `condition` says by binaries that exactly these are."""

    network: PowerNetwork
    lines: tuple[str, ...]
    rating_mw: Floats
    condition: Condition
    outages: "list[Batch] | None" = None  # factors of lost circuits, the same in every year, once worked out


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
    topologies: dict[tuple[int, ...], BuiltNetwork] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = sorted(self.grid.nodes, key=lambda node: node.id)
        self.nodes = {node.id: i for i, node in enumerate(nodes)}
        self.site_nodes: Ints = np.asarray([self.nodes[site] for site in self.candidates], dtype=np.int64)
        # By node: generation in MW that its plants can spare, its share lost with the largest unit, load without sites.
        self.available_mw: Floats = np.asarray([node.generation_mw for node in nodes])
        self.unit_share: Floats = np.asarray([lost_share(node) for node in nodes])
        self.load_mw: Floats = np.asarray([node.load_mw for node in nodes])
        # A corridor that ends where it begins carries nothing; circuits of a corridor are built in order.
        apart = [corridor for corridor in self.corridors.values() if corridor.a != corridor.b]
        self.existing = [corridor for corridor in apart if isinstance(corridor, Line)]
        self.buildable = [corridor for corridor in apart if isinstance(corridor, NewLine)]
        to_build = [(line, j) for line in self.buildable for j in range(line.max_circuits)]
        self.circuits_to_build = [(line.id, j) for line, j in to_build]
        ends_of = [(self.nodes[line.a], self.nodes[line.b]) for line, _ in to_build]
        self.ends: Ints = np.array(ends_of, dtype=np.int64).reshape(-1, 2)
        sites, new = len(self.candidates), len(to_build)
        kinds = "generated", "modules", "open", "installed", "flow", "extra"
        ends = [0, *accumulate((len(nodes), sites, sites, new, new, sites))]
        self.at = {kind: slice(*places) for kind, places in zip(kinds, pairwise(ends), strict=True)}

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
        installed = zip(self.circuits_to_build, point[self.at["installed"]].tolist(), strict=True)
        count = Counter(corridor for (corridor, _), share in installed if share > 0.5)
        return tuple(count[corridor.id] for corridor in self.buildable)

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

    def injection(self, point: Floats, *, new: bool = False) -> Floats:
        """Return the injections of a point of the split into its DC network by node in MW: generation less all load.

        With `new` of the existing network alone, where a new circuit is load at one end and generation at the other.
        """
        mw = point[self.at["generated"]] - self.load_mw
        mw[self.site_nodes] -= self.module_mw * point[self.at["modules"]] + point[self.at["extra"]]
        if new:
            np.subtract.at(mw, self.ends[:, 0], point[self.at["flow"]])
            np.add.at(mw, self.ends[:, 1], point[self.at["flow"]])
        return mw

    def row(self, by_node: Floats, *, new: bool) -> Floats:
        """Return a linear function of the injections, less the nodes' own load, as a row of the DC network's columns.

        `new` counts the flows on new circuits. The load goes to the other side: `by_node @ load_mw` on top of a limit.
        """
        row = np.zeros(self.at["extra"].stop)
        row[self.at["generated"]] = by_node
        row[self.at["modules"]] = -self.module_mw * by_node[self.site_nodes]
        row[self.at["extra"]] = -by_node[self.site_nodes]
        if new:
            row[self.at["flow"]] = by_node[self.ends[:, 1]] - by_node[self.ends[:, 0]]
        return row

    def rating_cuts(self, point: Floats, count: int) -> list[GridCut]:
        """Return cuts of the DC network for at most `count` corridors above their usable ratings, the worst first."""
        net, limit = self.base.network, self.base.rating_mw * self.base.network.circuits * normal_share(self.grid)
        flow = net.flows(self.injection(point, new=True))
        overload = (np.abs(flow) - limit) / limit
        worst = [int(i) for i in np.argsort(-overload, kind="stable")[:count] if overload[i] > TOLERANCE]
        cuts = []
        for i, factors in zip(worst, net.ptdf(worst), strict=True):
            sign = 1.0 if flow[i] > 0 else -1.0
            name = f"{self.base.lines[i]},{'+' if sign > 0 else '-'}"
            upper = float(limit[i]) + sign * float(factors @ self.load_mw)
            cuts.append(GridCut("rating", name, sign * self.row(factors, new=True), upper))
        return cuts


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of contingencies of the DC network: after j, flow l is flow[l] + factor[l, j] · source[j]."""

    unit: bool
    lost: Ints  # the corridor whose flow, or the node whose generation, is the source
    factor: Floats


@dataclass
class Contingencies:
    """The contingencies of a DC network under the N-1 rule: a circuit lost of `lines`, the largest unit of `units`."""

    network: DcNetwork
    topology: BuiltNetwork

    def __post_init__(self) -> None:
        net, available = self.topology.network, self.network.available_mw
        lost_mw = self.network.unit_share * available
        self.responses: list[Batch] | None = None  # once worked out, where they are few
        self.sites_at: dict[int, list[int]] | None = None  # candidates of which one must be open for a line to count
        if self.network.grid.rules.n1 == "full":
            self.lines, self.units = list(range(len(self.topology.lines))), np.flatnonzero(lost_mw > 0).tolist()
        else:
            # The corridors with the largest circuit at a candidate, all of them where several are as large.
            self.sites_at, rating = {}, self.topology.rating_mw
            for i, node in enumerate(self.network.site_nodes.tolist()):
                here = np.flatnonzero((net.a == node) | (net.b == node))
                for line in here[rating[here] == rating[here].max(initial=0.0)].tolist():
                    self.sites_at.setdefault(line, []).append(i)
            self.lines, self.units = sorted(self.sites_at), []
        # Available generation of each island, and of a node's island when the node's largest unit is lost.
        self.island_mw = np.bincount(net.island, weights=available)
        others = self.island_mw[net.island] - lost_mw
        self.others_mw: Floats = np.where(others > 1e-9, others, 0.0)

    def split_by(self, line: int) -> tuple[Ints, Ints, Floats]:
        """Return for the site split's DC model the nodes on each side of a lost bridge, and the dark load in MW."""
        net, dark_mw = self.topology.network, np.zeros(self.topology.network.nodes)
        side = net.bridges[line]
        rest = np.setdiff1d(np.flatnonzero(net.island == net.island[side[0]]), side)
        for nodes in (side, rest):
            if self.network.available_mw[nodes].sum() <= 0:  # a side without plants
                dark_mw[nodes] = self.network.load_mw[nodes]
        return side, rest, dark_mw

    def batches(self) -> Iterable[Batch]:
        """Return the outage factors of all contingencies of the split's DC network in batches, anew where too many."""
        # What a circuit shifts is the same in every year; who responds to a split or a lost unit is not.
        topology, net = self.topology, self.topology.network
        whole = _batched([line for line in self.lines if line not in net.bridges])
        circuits = (Batch(False, np.asarray(lines), net.lodf(lines)) for lines in whole)
        if (len(self.lines) + len(self.units)) * len(topology.lines) > MAX_STORED:
            return chain(circuits, self._responses())
        if topology.outages is None:
            topology.outages = list(circuits)
        if self.responses is None:
            self.responses = list(self._responses())
        return [*topology.outages, *self.responses]

    def _responses(self) -> Iterator[Batch]:
        net, available = self.topology.network, self.network.available_mw
        for lines in _batched([line for line in self.lines if line in net.bridges]):
            # Each line's share of a lost bridge's flow, plants responding on both sides.
            factors = list[Floats]()
            for line in lines:
                side, rest, dark_mw = self.split_by(line)
                response = np.zeros(net.nodes)
                # A side without plants loses its load instead: it fed nothing, and all that it drew came over the
                # bridge.
                weight = np.where(available > 0, available, dark_mw)
                # Where the part that goes dark nearly feeds itself, almost nothing comes over the bridge.
                if all(abs(weight[part].sum()) > 1e-3 * np.abs(weight[part]).sum() for part in (side, rest)):
                    response[side] = weight[side] / weight[side].sum()
                    response[rest] = -weight[rest] / weight[rest].sum()
                # The side that was fed over the bridge makes up for it, the other turns down by as much.
                factor = net.flows(response) * (1.0 if net.b[line] in side else -1.0)
                factor[line] = -1.0
                factors.append(factor)
            yield Batch(False, np.asarray(lines), np.stack(factors, axis=1))
        # Each line's share of a node's generation when its unit is lost and the island's plants respond.
        for lost in _batched([unit for unit in self.units if self.others_mw[unit] > 0]):
            units, share = np.asarray(lost), self.network.unit_share[lost]
            alone = np.zeros((net.nodes, len(units)))
            alone[units, np.arange(len(units))] = 1.0
            of_node = net.flows(alone)
            together = np.zeros((net.nodes, len(self.island_mw)))
            together[np.arange(net.nodes), net.island] = available
            of_island = net.flows(together)[:, net.island[units]]
            response = (of_island - share * available[units] * of_node) / self.others_mw[units]
            yield Batch(True, units, share * (response - of_node))

    def _conditions(self, line: int, point: Floats) -> list[Condition]:
        """Return when a contingency counts: always, or while a site at the lost line is open; else nothing."""
        condition = self.topology.condition
        if self.sites_at is None:
            return [condition]
        opened = [self.network.at["open"].start + i for i in self.sites_at[line]]
        return [(*condition, (column, True)) for column in opened if point[column] > 0.5]

    def overload_cuts(self, point: Floats) -> Iterator[GridCut]:
        """Yield cuts of the DC grid for lines above their ratings after a contingency, valid in this topology alone."""
        topology, network, names = self.topology, self.network, list(self.network.nodes)
        flow, rating_mw = topology.network.flows(network.injection(point)), topology.rating_mw
        limit, overloads = rating_mw * topology.network.circuits, list[Overload]()
        for batch in self.batches() if len(limit) else ():
            after = np.abs(flow[:, None] + batch.factor * (point if batch.unit else flow)[batch.lost])
            rating = np.broadcast_to(limit[:, None], after.shape)
            if not batch.unit:
                rating = rating.copy()
                rating[batch.lost, np.arange(len(batch.lost))] -= rating_mw[batch.lost]
            # A corridor whose only circuit is lost carries nothing, within a rating of nothing.
            excess = (after - rating) / limit[:, None]
            worst = excess.argmax(axis=0)
            for j in np.flatnonzero(excess[worst, np.arange(excess.shape[1])] > TOLERANCE):
                i, lost = int(worst[j]), int(batch.lost[j])
                if self._conditions(lost, point):
                    overloads.append((-float(excess[i, j]), i, lost, batch.unit, float(batch.factor[i, j])))
        # The worst, and at most a few of one monitored line.
        kept, count = list[Overload](), Counter[int]()
        for overload in sorted(overloads):
            count[overload[1]] += 1
            if count[overload[1]] <= MAX_CUTS_PER_LINE:
                kept.append(overload)
        overloads = kept[:MAX_CUTS]
        lines = sorted({line for _, line, *_ in overloads} | {lost for _, _, lost, unit, _ in overloads if not unit})
        ptdf = dict(zip(lines, topology.network.ptdf(lines), strict=True))
        for _, line, lost, unit, factor in overloads:
            sign = 1.0 if flow[line] + factor * (point if unit else flow)[lost] > 0 else -1.0
            by_node = ptdf[line] if unit else ptdf[line] + factor * ptdf[lost]
            row = network.row(by_node, new=False)
            if unit:
                row[lost] += factor
            circuits = topology.network.circuits[line] - (0 if unit or line != lost else 1)
            upper = float(rating_mw[line] * circuits) + sign * float(by_node @ network.load_mw)
            cause = "unit " + names[lost] if unit else topology.lines[lost]
            name = f"{topology.lines[line]},{cause},{'+' if sign > 0 else '-'}"
            # Injections are within all generation and all load; a negative reactance may make more of them on a line.
            reach = 2 * float(np.abs(by_node).max(initial=1.0)) + abs(factor)
            for condition in self._conditions(lost, point):
                yield GridCut("security", name, sign * row, upper, condition, reach)

    def island_cuts(self, point: Floats) -> Iterator[GridCut]:
        """Yield cuts for islands of the DC grid left by a lost bridge: fed by themselves, no site without plants."""
        network, net, available = self.network, self.topology.network, self.network.available_mw
        injection, names = network.injection(point), list(network.nodes)
        for line in (line for line in self.lines if line in net.bridges):
            side, rest, dark_mw = self.split_by(line)
            served = injection + dark_mw
            for needy in (side, rest):
                short, plants_mw = -float(served[needy].sum()), float(available[needy].sum())
                if short <= TOLERANCE:
                    continue
                by_node, cuts = np.zeros(net.nodes), list[tuple[str, Floats, float, float]]()
                if plants_mw <= 0:
                    # The shortage is that of the sites alone: the nodes' own load is no column, and lost with the line.
                    by_node[needy] = -1.0
                    cuts.append(("dark", network.row(by_node, new=False), 0.0, 2.0))
                else:
                    # Stated in the terms of one side, whichever lacks it: what the one lacks, the other has too much.
                    by_node[side] = 1.0 if needy is rest else -1.0
                    shortage, load_mw = network.row(by_node, new=False), float(by_node @ network.load_mw)
                    limit = available * (1 - short / plants_mw) * (1 + TOLERANCE) + TOLERANCE
                    for node in needy[point[needy] > limit[needy]]:
                        share = float(available[node] / plants_mw)
                        row = shortage * share
                        row[node] += 1.0
                        cuts.append((f"fed by {names[node]}", row, float(available[node]) + load_mw * share, 3.0))
                for condition in self._conditions(line, point):
                    for name, row, upper, reach in cuts:
                        yield GridCut("security", f"{name},{self.topology.lines[line]}", row, upper, condition, reach)

    def reserve_cuts(self, point: Floats) -> Iterator[GridCut]:
        """Yield cuts of the DC grid that keep one share of each plant of an island as reserve, by its worst unit."""
        if not self.units:
            return
        network, others, available = self.network, self.others_mw, self.network.available_mw
        generated, unit, names = point[network.at["generated"]], network.unit_share, list(network.nodes)
        # A plant alone in its island may not feed in, as none makes up for its unit.
        alone = np.flatnonzero((unit * available > 0) & (others <= 0) & (generated > TOLERANCE)).tolist()
        short: list[tuple[int, int]] = [(node, node) for node in alone]
        share = np.where(others > 0, unit * generated / np.where(others > 0, others, 1.0), 0.0)
        for i in np.unique(self.topology.network.island):
            plants = np.flatnonzero((self.topology.network.island == i) & (available > 0))
            if len(plants):
                worst = int(plants[share[plants].argmax()])
                limit = available[plants] * (1 - share[worst]) * (1 + TOLERANCE) + TOLERANCE
                short += [(plant, worst) for plant in plants[generated[plants] > limit].tolist()]
        for plant, lost in short:
            row, upper, reach = np.zeros(network.at["extra"].stop), 0.0, 1.0
            row[plant] = 1.0
            if others[lost] > 0:
                row[lost] += float(available[plant] * unit[lost] / others[lost])
                upper, reach = float(available[plant]), 1.0 + float(row[lost])
            name = f"reserve of {names[plant]},unit {names[lost]}"
            yield GridCut("security", name, row, upper, self.topology.condition, reach)


def _batched(items: list[int]) -> Iterator[list[int]]:
    for i in range(0, len(items), BATCH):
        yield items[i : i + BATCH]


class LazyRows:
    """The lazy rows of all years of a site split: each year has its network's columns, one year after the other.

    Elsewhere than under its condition a cut is exceeded by its reach of `load_mw` at most.
    """

    def __init__(
        self, networks: Sequence[DcNetwork], columns: Sequence[Any], without: Collection[str], load_mw: float
    ) -> None:
        self.networks, self.columns, self.load_mw = networks, columns, load_mw
        self.rules = {"rating", *(["security"] if networks[0].grid.rules.n1 in N1_RULES else [])} - set(without)
        modules, opened = (networks[0].at[kind].start for kind in ("modules", "open"))
        self.gates = [(modules + i, opened + i) for i in range(len(networks[0].candidates))]
        self.stated: list[set[CutKey]] = [set() for _ in networks]

    def forget(self) -> None:
        """Forget which lazy rows of the DC grid the split's model has, so that all may be stated again."""
        for keys in self.stated:
            keys.clear()

    def known(self) -> list[LazyRow]:
        """Return the lazy rows of all cuts that this site split has met before, of the rules in force."""
        self.forget()
        return self._rows([[x for x in year.pool.values() if x.rule in self.rules] for year in self.networks])

    @property
    def space(self) -> dict[str, int]:
        """Count the rounds, cuts and outages of the search for lazy rows of the split's DC networks, over all years."""
        rules = Counter(cut.rule for network in self.networks for cut in network.pool.values())
        effort = self.networks[0].effort
        space = {"rounds": effort["rounds"], "rating_cuts": rules["rating"]}
        if "security" in self.rules:
            space |= {"outages": effort["outages"], "outage_cuts": rules["security"]}
        return space

    def broken(self, point: Floats, *, whole: bool, quick: bool) -> list[LazyRow]:
        """Return the DC grid's lazy rows that a point breaks; those of N-1 once few ratings are, and not if `quick`."""
        self.networks[0].effort["rounds"] += 1
        by_year, max_cuts = list[list[GridCut]](), max(MAX_RATING_CUTS // len(self.networks), MIN_RATING_CUTS)
        for network, own in zip(self.networks, np.split(point, len(self.networks)), strict=True):
            cuts = network.rating_cuts(own, max_cuts) if "rating" in self.rules else []
            # The topology of a point is known where its binaries are whole, or where nothing can be built.
            known_topology = whole or (not network.buildable and network.grid.rules.n1 == "full")
            if "security" in self.rules and known_topology and not quick and len(cuts) < max_cuts // 5:
                built = network.built(own)
                if built not in network.contingencies:
                    network.contingencies[built] = Contingencies(network, network.topology(built))
                outages: Contingencies = network.contingencies[built]
                network.effort["outages"] = max(network.effort["outages"], len(outages.lines) + len(outages.units))
                cuts += chain(outages.overload_cuts(own), outages.island_cuts(own), outages.reserve_cuts(own))
            by_year.append(cuts)
        return self._rows(by_year)

    def _rows(self, by_year: list[list[GridCut]]) -> list[LazyRow]:
        """Return the lazy rows of each year's cuts but those stated already, loose where their condition fails."""
        rows, width = list[LazyRow](), len(self.columns) // len(self.networks)
        for i, (network, stated, cuts) in enumerate(zip(self.networks, self.stated, by_year, strict=True)):
            fresh = {cut.key: cut for cut in cuts if cut.key not in stated}
            network.pool.update(fresh)
            stated.update(fresh)
            for cut in fresh.values():
                big_m = cut.reach * self.load_mw
                binaries = np.asarray([column for column, _ in cut.condition], dtype=np.int64)
                signs = np.asarray([big_m if wanted else -big_m for _, wanted in cut.condition])
                at = np.concatenate([cut.columns, binaries]) + i * width
                upper = cut.upper + big_m * sum(wanted for _, wanted in cut.condition)
                rows.append(LazyRow(columns=at, values=np.concatenate([cut.values, signs]), upper=upper))
        return rows
