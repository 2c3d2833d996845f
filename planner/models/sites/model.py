"""The site split as a Pyomo MILP: its variables, the power balance, the rules in force, the yearly cost, the lazy rows.

Units of the rows are MW, M$, racks and 1000 m², so that coefficients stay within a few decades of one. Every rule can
be left out by name, which is how a conflict is found; the power balance is a law and always stays. Rows of soft rules
may be exceeded at a price, and those of any rule where an explanation asks by how much it must move.

Lazy rows of a DC model, year by year: corridors above their ratings, before and after contingencies. Each year has
injections of its own, so violations are sought year by year; the years share the columns of modules, openings and
installed circuits, which are decided once. Cuts limit flows after a contingency, keep reserves, and make islands feed
themselves.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyomo.core as pyo

from planner.models.sites import campus_rules, grid_rules, site_rules
from planner.models.sites.campus_rules import Rule, load_mw
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
from planner.models.sites.grid_rules import columns, flows_of
from planner.models.sites.split_data import (
    SplitData,
    add_block,
    scenarios,
    years,
)
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
    network: DcNetwork, point: Floats, by_topology: dict[tuple[int, ...], Contingencies], tolerance: float
) -> list[GridCut]:
    """Return cuts for the violations of a point in the topology that its circuits make, valid in that topology alone.

    `by_topology` stores the contingencies of each. The point's binaries must be whole where something can be built.
    """
    built = network.built(point)
    if built not in by_topology:
        by_topology[built] = contingencies(network, network.topology(built))
    of = by_topology[built]
    network.effort.contingencies = max(network.effort.contingencies, len(of.lines) + len(of.units))
    by_line: SitesByLine | None = None
    if network.grid.rules.n1 == "node":
        by_line = {}
        for i, site in enumerate(network.candidates):
            for line in largest_at(network, of.topology, site):
                by_line.setdefault(line, []).append(i)
    cuts = _overload_cuts(of, point, by_line, tolerance) + list(_island_cuts(of, point, by_line, tolerance))
    return cuts + (list(_reserve_cuts(of, point, tolerance)) if of.units else [])


def _conditions(of: Contingencies, line: int, point: Floats, by_line: SitesByLine | None) -> list[Condition]:
    """Return when the loss of a line counts: always, or while one of the sites at it is open; nothing while none is."""
    condition = of.topology.condition
    if by_line is None:
        return [condition]
    columns = [of.network.at["open"].start + i for i in by_line[line]]
    return [(*condition, (column, True)) for column in columns if point[column] > 0.5]


def _overload_cuts(of: Contingencies, point: Floats, by_line: SitesByLine | None, tolerance: float) -> list[GridCut]:
    topology = of.topology
    flow = topology.network.flows(of.network.injection(point))
    limit = topology.rating_mw * topology.network.circuits
    overloads: list[Overload] = []
    for batch in of.batches():
        source = (point if batch.unit else flow)[batch.lost]
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
            if batch.unit or _conditions(of, k, point, by_line):
                own, share = float(excess[i, j]), float(batch.factor[i, j])
                overloads.append(Overload(excess=own, line=i, lost=k, unit=batch.unit, factor=share))
    overloads.sort(key=lambda overload: (-overload.excess, overload.line, overload.lost, overload.unit))
    kept, count = [], dict[int, int]()  # the worst, and at most a few of one monitored line
    for overload in overloads:
        count[overload.line] = count.get(overload.line, 0) + 1
        if count[overload.line] <= MAX_CUTS_PER_LINE:
            kept.append(overload)
    return list(_cuts_of(of, point, flow, kept[:MAX_CUTS], by_line))


def _cuts_of(
    of: Contingencies, point: Floats, flow: Floats, overloads: list[Overload], by_line: SitesByLine | None
) -> Iterator[GridCut]:
    topology, network = of.topology, of.network
    lines = sorted({x.line for x in overloads} | {x.lost for x in overloads if not x.unit})
    ptdf = dict(zip(lines, topology.network.ptdf(lines), strict=True))
    names = list(network.nodes)
    for overload in overloads:
        line, lost = overload.line, overload.lost
        sign = 1.0 if flow[line] + overload.factor * (point if overload.unit else flow)[lost] > 0 else -1.0
        by_node = ptdf[line] if overload.unit else ptdf[line] + overload.factor * ptdf[lost]
        row = network.row(by_node, new=False)
        if overload.unit:
            row[lost] += overload.factor
        circuits = topology.network.circuits[line] - (0 if overload.unit or line != lost else 1)
        upper = float(topology.rating_mw[line] * circuits)
        upper += sign * network.of_load(by_node)
        cause = "unit " + names[lost] if overload.unit else topology.lines[lost]
        name = f"{topology.lines[line]},{cause},{'+' if sign > 0 else '-'}"
        # Injections are within all generation and all load; a negative reactance may make more of them on a line.
        reach = 2 * float(np.abs(by_node).max(initial=1.0)) + abs(overload.factor)
        for condition in [topology.condition] if overload.unit else _conditions(of, lost, point, by_line):
            yield network.cut("security", name, sign * row, upper, condition=condition, reach=reach)


def _island_cuts(of: Contingencies, point: Floats, by_line: SitesByLine | None, tolerance: float) -> Iterator[GridCut]:
    """Require that each island left by a lost bridge feeds itself: no site without plants, no plant above its limit."""
    # The nodes' own load in an island without plants is lost with the line.
    net = of.topology.network
    injection = of.network.injection(point)
    for line in (line for line in of.lines if line in net.bridges):
        served = injection + of.dark_load(line)
        for needy in of.sides(line):
            short = -float(served[needy].sum())
            for condition in _conditions(of, line, point, by_line) if short > tolerance else ():
                yield from _feed_itself(of, point, line, needy, short, condition, tolerance)


def _feed_itself(
    of: Contingencies, point: Floats, line: int, needy: Integers, short: float, condition: Condition, tolerance: float
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
    for node in needy[point[needy] > available[needy] * (1 - rise) * (1 + tolerance) + tolerance]:
        row = shortage * (available[node] / plants_mw)
        row[node] += 1.0
        upper = float(available[node]) + served * float(available[node] / plants_mw)
        yield network.cut("security", f"fed by {names[node]},{name}", row, upper, condition=condition, reach=3.0)


def _reserve_cuts(of: Contingencies, point: Floats, tolerance: float) -> Iterator[GridCut]:
    """Require the same share of every plant of an island as reserve, that of its worst loss of a unit."""
    network, island, others = of.network, of.topology.network.island, of.others_mw
    generated, available, unit = point[network.at["generated"]], network.available_mw, network.unit_share
    for node in np.flatnonzero((unit * available > 0) & (others <= 0) & (generated > tolerance)):
        yield _reserve_cut(of, int(node), None)
    share = np.where(others > 0, unit * generated / np.where(others > 0, others, 1.0), 0.0)
    for i in np.unique(island):
        plants = np.flatnonzero((island == i) & (available > 0))
        if len(plants):
            worst = int(plants[share[plants].argmax()])
            limit = available[plants] * (1 - share[worst]) * (1 + tolerance) + tolerance
            for plant in plants[generated[plants] > limit]:
                yield _reserve_cut(of, int(plant), worst)


def _reserve_cut(of: Contingencies, plant: int, lost: int | None) -> GridCut:
    """Require one plant's reserve for the loss of another's unit; a plant alone in its island may not feed in."""
    network, names = of.network, list(of.network.nodes)
    row = np.zeros(network.at["extra"].stop)
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
    """The lazy rows of one year."""

    network: DcNetwork
    rules: frozenset[str]
    load_mw: float
    max_cuts: int
    stated: set[CutKey] = field(default_factory=set)

    def known(self) -> list[LazyRow]:
        """Return the cuts that this split has met, of the rules in force."""
        cuts = {key: cut for key, cut in self.network.pool.items() if cut.rule in self.rules}
        self.stated.clear()
        self.stated.update(cuts)
        return [self._row(cut) for cut in cuts.values()]

    def broken(self, point: npt.NDArray[np.float64], *, whole: bool, quick: bool) -> list[LazyRow]:
        """Return cuts for violations of the point; those of N-1 once few ratings are violated, and not if `quick`."""
        cuts = self.network.rating_cuts(point, self.max_cuts, TOLERANCE) if "rating" in self.rules else []
        # The topology of a point is known where its binaries are whole, or where nothing can be built.
        known_topology = whole or (not self.network.buildable and self.network.grid.rules.n1 == "full")
        if "security" in self.rules and known_topology and not quick and len(cuts) < self.max_cuts // 5:
            cuts += violated(self.network, point, self.network.contingencies, TOLERANCE)
        # Cuts that are stated already are violated by no more than the solver's own tolerance.
        fresh = {cut.key: cut for cut in cuts if cut.key not in self.stated}
        self.network.pool.update(fresh)
        self.stated.update(fresh)
        return [self._row(cut) for cut in fresh.values()]

    def _row(self, cut: GridCut) -> LazyRow:
        if not cut.condition:
            return LazyRow(columns=cut.columns, values=cut.values, upper=cut.upper)
        big_m = cut.reach * self.load_mw
        binaries = np.asarray([i for i, _ in cut.condition])
        signs = np.asarray([big_m if wanted else -big_m for _, wanted in cut.condition])
        upper = cut.upper + big_m * sum(wanted for _, wanted in cut.condition)
        columns, values = np.concatenate([cut.columns, binaries]), np.concatenate([cut.values, signs])
        return LazyRow(columns=columns, values=values, upper=upper)


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
        return [replace(row, columns=row.columns + year * self._width) for row in rows]

    def known(self) -> list[LazyRow]:
        """Return the cuts that this split has met, of the rules in force."""
        return [row for i, year in enumerate(self.years) for row in self._placed(i, year.known())]

    def forget(self) -> None:
        """Take all rows back: none is stated any more."""
        for year in self.years:
            year.stated.clear()

    def broken(self, point: npt.NDArray[np.float64], *, whole: bool, quick: bool) -> list[LazyRow]:
        """Return cuts for the violations of the point in any year."""
        self.years[0].network.effort.rounds += 1
        parts = [point[i * self._width : (i + 1) * self._width] for i in range(len(self.years))]
        by_year = [year.broken(own, whole=whole, quick=quick) for year, own in zip(self.years, parts, strict=True)]
        return [row for i, rows in enumerate(by_year) for row in self._placed(i, rows)]


def attach(model: Any, data: SplitData, without: Collection[str], *, load_mw: float) -> None:
    """Give a dc model its lazy rows, as `model.lazy`."""
    if data.network is None:
        return
    rules = ({"rating", "security"} if data.grid.rules.n1 in N1_RULES else {"rating"}) - set(without)
    at = data.network.at
    every_year = [(year, year.data.network) for year in years(model, data) if year.data.network]
    model.lazy = LazyRows(
        columns=[column for year, network in every_year for column in columns(year.block, network)],
        gates=[(at["modules"].start + i, at["open"].start + i) for i in range(len(data.candidates))],
        years=[
            YearRows(
                network=network,
                rules=frozenset(rules),
                load_mw=load_mw,
                max_cuts=max(MAX_RATING_CUTS // len(every_year), MIN_RATING_CUTS),
            )
            for year, network in every_year
        ],
    )


def security_space(network: DcNetwork) -> dict[str, int]:
    """Return the counts of the search for lazy rows, over all years: rounds, cuts and outages."""
    rules = [cut.rule for year in (network, *network.of_years.values()) for cut in year.pool.values()]
    space = {"rounds": network.effort.rounds, "rating_cuts": rules.count("rating")}
    if network.grid.rules.n1 in N1_RULES:
        space |= {"outages": network.effort.contingencies, "outage_cuts": rules.count("security")}
    return space


EVERY = (*campus_rules.CAMPUS_RULES, *grid_rules.GRID_RULES, *site_rules.SITE_RULES, *site_rules.LINK_RULES)
RULES: dict[str, Rule] = {rule.name: rule for rule in sorted(EVERY, key=lambda rule: rule.order)}


def rules_without(names: Collection[str] = ()) -> list[Rule]:
    """Return the rules but those named."""
    return [rule for name, rule in RULES.items() if name not in names]


def rule_of(row: str) -> Rule:
    """Return the rule of a row by its name: `headroom[SRP]`."""
    return RULES[row.partition("[")[0]]


def loosen(block: Any, rule: Rule, limit: float, name: str = "excess") -> Any:
    """Let the rows of a rule be exceeded, each by `limit`: by `<rule>_<name>` of the block, which is returned.

    None where the block has no such rows.
    """
    rows = block.component(rule.name)
    if rows is None or not len(rows):
        return None
    excess = pyo.Var(sorted({rule.label(i) for i in rows}), domain=pyo.NonNegativeReals, bounds=(0, limit))
    block.add_component(f"{rule.name}_{name}", excess)
    for index, row in rows.items():
        by = excess[rule.label(index)]
        if row.upper is not None:
            row.set_value((None, row.body - by, row.upper))
        else:
            row.set_value((row.lower, row.body + by, None))
    return excess


def penalty_musd(block: Any, data: SplitData) -> Any:
    """Return the price of the excess of soft rules for a year, in M$."""
    total: Any = 0.0
    for name, soft in sorted(data.grid.rules.soft.items()):
        excess = block.component(f"{name}_excess")
        if excess is not None:
            total += soft.usd_per_year * RULES[name].scale / 1e6 * sum(excess.values())
    return total


def excess_of(block: Any) -> dict[str, float]:
    """Return the excess of every row that has any, in the rule's unit."""
    excess: dict[str, float] = {}
    for rule in RULES.values():
        for name, var in (block.component(f"{rule.name}_excess") or {}).items():
            if (var.value or 0.0) > 1e-6:
                excess[name] = var.value * rule.scale
    return dict(sorted(excess.items()))


def build(
    data: SplitData,
    *,
    without: Collection[str] = (),
    loose: Collection[str] = (),
    sites: int | None = None,
    extend: Callable[[Any], None] | None = None,
    max_extra_mw: float = 0.0,
    max_modules: int | None = None,
) -> pyo.ConcreteModel:
    """Build the model without the named rules and without an objective; `sites` fixes the number of open sites.

    Rules in `loose` act through their own rows alone: no bound knows of them, so that their limits can be moved or
    priced. `extend` adds decisions before the rules; where it creates `extra_mw` by site, these are loads in MW in
    addition to those of the modules, at most `max_extra_mw` over all sites. `max_modules` bounds the modules of all
    sites where the caller knows a tighter bound than the rules give.
    """
    model = pyo.ConcreteModel()
    rules = rules_without(without)
    bounding = [rule for rule in rules if rule.name not in loose]
    total = site_rules.max_campus_modules(data, bounding, max_modules)
    other_mw = sum(max(0.0, node.load_mw) for node in data.grid.nodes)  # must-run feed left out
    max_load_mw = total * data.module_mw + max_extra_mw + other_mw
    _variables(model, data, bounding, sites, max_load_mw, total)
    if extend is not None:
        extend(model)
    _balance(model, data)
    for rule in rules:
        rule.rows(model, data)
    for name, soft in sorted(data.grid.rules.soft.items()):
        loosen(model, RULES[name], soft.max_excess / RULES[name].scale)
    for name, year in scenarios(data).items():
        block = add_block(model, year, name, total)
        _power(block, year, bounding, max_load_mw)
        _balance(block, year)
        for rule in reversed(rules):
            if rule.yearly:
                rule.rows(block, year)
    attach(model, data, without, load_mw=max_load_mw)
    if sites is not None:
        model.exact_sites = pyo.Constraint(expr=sum(model.open.values()) == sites)
    return model


def _variables(model: Any, data: SplitData, rules: list[Rule], sites: int | None, load: float, total: int) -> None:
    """Create the decisions, and tie modules to open sites: minimum · open[s] <= modules[s] <= maximum · open[s]."""
    minimum = site_rules.min_site_modules(data, rules, site_rules.max_sites(data, rules) if sites is None else sites)
    maximum = {s: site_rules.max_site_modules(data, s, total, rules) for s in data.candidates}
    candidates = list(data.candidates)
    model.open = pyo.Var(candidates, domain=pyo.Binary)
    model.modules = pyo.Var(candidates, domain=pyo.NonNegativeIntegers, bounds=(0, total))
    model.open_if_used = pyo.Constraint(candidates, rule=lambda m, s: m.modules[s] <= maximum[s] * m.open[s])
    model.used_if_open = pyo.Constraint(candidates, rule=lambda model, s: model.modules[s] >= minimum * model.open[s])
    new = {corridor.id: corridor.circuits for corridor in data.corridors.values() if corridor.new}
    model.circuits = pyo.Var(list(new), domain=pyo.NonNegativeIntegers, bounds=lambda _, k: (0, new[k]))
    upgrades = {site: node.upgrade.max_steps for site, node in data.candidates.items() if node.upgrade}
    model.steps = pyo.Var(list(upgrades), domain=pyo.NonNegativeIntegers, bounds=lambda _, site: (0, upgrades[site]))
    if data.network is not None:
        grid_rules.count_circuits(model, data.network)
    _power(model, data, rules, load)


def _power(model: Any, data: SplitData, rules: list[Rule], load: float) -> None:
    transport = data.grid.rules.grid_model == "transport"
    bounded = any(rule.name == "generation" for rule in rules)
    plants = list(data.graph) if transport else grid_rules.plants(data, bounded=bounded)
    model.generated = pyo.Var(plants, domain=pyo.NonNegativeReals, bounds=(0, load))
    model.flow = pyo.Var(list(data.corridors) if transport else [], domain=pyo.Reals, bounds=(-load, load))


def _balance(model: Any, data: SplitData) -> None:
    """Require at each node that dispatch plus inflow equal its own load and its site's; transport is lossless."""
    drawn = {node.id: node.load_mw for node in data.grid.nodes}

    def row(model: Any, node: str) -> Any:
        inflow = 0
        for _, _, key in data.graph.edges(node, keys=True):
            corridor = data.corridors[key]
            # A corridor's flow is positive from a to b; a loop brings nothing.
            inflow += 0 if corridor.a == corridor.b else model.flow[key] if corridor.b == node else -model.flow[key]
        site = load_mw(model, data, [node]) if node in data.candidates else 0
        return model.generated[node] + inflow == drawn[node] + site

    model.balance = pyo.Constraint(list(data.graph) if data.grid.rules.grid_model == "transport" else [], rule=row)
    if data.network is not None:
        grid_rules.balance(model, data, data.network)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The power of one year in MW: load by site, generation by node, flow by corridor."""

    load: dict[str, float]
    generated: dict[str, float]
    flow: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSolution:
    """The decisions of a split, with the dispatch of the grid's own year and of every scenario."""

    modules: dict[str, int]
    circuits: dict[str, int]
    generated: dict[str, float]
    flow: dict[str, float]
    steps: dict[str, int] = field(default_factory=dict)
    excess: dict[str, float] = field(default_factory=dict)
    scenarios: dict[str, Dispatch] = field(default_factory=dict)


def dispatch(block: Any, data: SplitData) -> Dispatch:
    """Read the power of one year."""
    load = {site: pyo.value(load_mw(block, data, [site])) for site, size in block.modules.items() if size.value > 1e-9}
    network = data.network
    flow = {name: term.value for name, term in block.flow.items()} if network is None else flows_of(block, network)
    return Dispatch(load=load, generated={node: term.value for node, term in block.generated.items()}, flow=flow)
