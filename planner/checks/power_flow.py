"""Check the power flow in the grid's own year and in every scenario of the plan: B theta = P solved anew.

After a contingency a corridor keeps the circuits that it has not lost, and the plants of an island respond in
proportion to `generation_mw`, up or down; in an island without plants the nodes' own load is lost, and no site may be
there. A unit has the share of its node's generation that it is of the node's `generation_mw`; in every island all
plants keep the same share as reserve for the worst of these.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from planner.checks.rule import TOLERANCE, Violations, at_most, broken, figures, must_be, needs, once, show
from planner.instance.grid import SOFT_UNITS, Line, NewLine, PowerNode
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import cost
from planner.physics.site.grid import lost_share, normal_share
from planner.plan.plan_sections import ScenarioRun, SitesPlan

BALANCE_MW = 1e-4  # power flows are written to the watt; a node adds up several
FLOW_MW = 1e-3  # generation is written to the watt, and a flow adds up many nodes
STILL_MW = 1e-9  # a corridor that carries less changes nothing by its loss


def years(physics: PlanPhysics) -> Iterator[tuple[str, dict[str, float], dict[str, float], ScenarioRun]]:
    """Yield, to check power flow, the grid's own year and each scenario that counts: ending of rules, MW, its run."""
    plan = physics.plan.sites
    if plan is None:
        return
    headroom = {area.id: area.headroom_mw for area in physics.grid.balancing_authorities}
    available = {node.id: node.generation_mw for node in physics.grid.nodes}
    load = {place.site.id: physics.load_mw(place.site.id, place.site.racks) for place in physics.standing}
    own: dict[str, Any] = {"running_mw": load, "generation_mw": plan.generation_mw, "flows": plan.flows}
    # Not validated: a broken plan's loads may be infinite.
    yield "", headroom, available, ScenarioRun.model_construct(**own, energy_usd_per_year=0.0)
    for scenario in physics.grid.scenarios if physics.grid.rules.scenarios != "off" else ():
        if scenario.name in plan.scenarios:
            of_year = headroom | scenario.headroom_mw, available | scenario.generation_mw
            yield f" in {scenario.name}", *of_year, plan.scenarios[scenario.name]


def within(
    physics: PlanPhysics, rule: str, left: float | None, right: float | None, left_is: str, right_is: str, year: str
) -> Violations:
    """Check a power limit of the grid in a year; a soft rule has the excess that the plan states, a scenario none."""
    sites, soft = physics.plan.sites, rule.partition("[")[0] in physics.grid.rules.soft
    excess = sum(own.amount for own in sites.excess if own.rule == rule) if sites and soft and not year else 0.0
    limit = right + excess if excess and right is not None else right
    yield from at_most(rule + year, left, limit, left_is, right_is)


def generation(physics: PlanPhysics) -> Violations:
    """Check each balancing authority's draw in MW against its headroom, and that plants feed in what they can."""
    rules, right = physics.grid.rules, "MW that its plants can spare"
    for suffix, headroom, available, run in years(physics):
        by_area = defaultdict[str, float](float)
        for place in physics.standing:
            by_area[place.authority.id] += run.running_mw.get(place.site.id, 0.0)
        for area, mw in sorted(by_area.items()) if rules.headroom else ():
            sides = headroom[area], "MW drawn by its sites", "MW headroom"
            yield from within(physics, f"headroom[{area}]", mw, *sides, suffix)
        for node, mw in sorted(run.generation_mw.items()):
            rule, limit = f"generation[{node}]", available.get(node)
            yield from at_most(rule + suffix, 0.0, mw, "MW at least", "MW fed in")
            if limit is None:
                what = f"{show(mw)} MW fed in at a node that is none of the grid's {len(available)}"
                yield broken(rule + suffix, what)
            elif rules.generation:
                yield from within(physics, rule, mw, limit, "MW fed in", right, suffix)
        if rules.generation and rules.grid_model == "none":  # an authority's spare power feeds its sites
            for area, mw in sorted(by_area.items()):
                nodes_of = [node for node in physics.grid.nodes if node.balancing_authority == area]
                limit = max(0.0, sum(available[node.id] - node.load_mw for node in nodes_of))
                yield from within(physics, f"generation[{area}]", mw, limit, "MW drawn", right, suffix)


def _circuits(physics: PlanPhysics) -> Iterator[tuple[Line | NewLine, int]]:
    yield from ((line, line.circuits) for line in physics.grid.lines)
    yield from ((line, physics.built.get(line.id, 0)) for line in physics.grid.new_lines)


def balance(physics: PlanPhysics) -> Violations:
    """Check that at each grid node generation plus inflow is its own load and its site's."""
    grid = physics.grid
    drawn = {node.id: node.load_mw for node in grid.nodes}
    ends = {line.id: (line.a, line.b) for line, _ in _circuits(physics)}
    for suffix, _, available, run in years(physics) if grid.rules.grid_model != "none" else ():
        net = {node: run.generation_mw.get(node, 0.0) for node in available}
        for flow in (flow for flow in run.flows if flow.line in ends):
            start, end = ends[flow.line]
            net[start] -= flow.mw
            net[end] += flow.mw
        for node, mw in sorted(net.items()):
            load = run.running_mw.get(node, 0.0) + drawn[node]
            if abs(mw - load) > max(BALANCE_MW, TOLERANCE * load):
                sides = f"{show(mw)} MW from its plants and corridors, {show(load)} MW drawn"
                yield broken(f"balance[{node}]{suffix}", sides)


def rating(physics: PlanPhysics) -> Violations:
    """Check that each corridor's power flow, in both directions, is within its circuits, built ones included."""
    share = normal_share(physics.grid)
    capacity = {line.id: share * circuits * line.rating_mw for line, circuits in _circuits(physics)}
    for suffix, _, _, run in years(physics):
        for line, count in sorted(Counter(flow.line for flow in run.flows).items()):
            if count > int(line in capacity):
                what = f"{count} flows, {int(line in capacity)} at most on one of {len(capacity)} corridors"
                yield broken(f"rating[{line}]{suffix}", what)
        for flow in run.flows:
            sides = capacity.get(flow.line), "MW flow", "MW of its circuits"
            yield from within(physics, f"rating[{flow.line}]", abs(flow.mw), *sides, suffix)


@needs("sites")
def scenarios(physics: PlanPhysics, plan: SitesPlan) -> Violations:
    """Check that sites run in every grid scenario that counts: in full if it must be robust, else within limits."""
    rules = physics.grid.rules
    known = {scenario.name: scenario for scenario in physics.grid.scenarios} if rules.scenarios != "off" else {}
    yield from once("scenarios", "runs of the scenario", plan.scenarios, known)
    for name in sorted(known.keys() & plan.scenarios.keys()):
        usd, scenario, run = 0.0, known[name], plan.scenarios[name]
        for place in physics.standing:
            rule, full = f"scenarios[{name}, {place.site.id}]", physics.load_mw(place.site.id, place.site.racks)
            drawn, sides = run.running_mw.get(place.site.id, 0.0), ("MW drawn", "MW that the site holds")
            yield from at_most(rule, drawn, full + BALANCE_MW, *sides)
            if rules.scenarios == "robust":
                yield from at_most(rule, full, drawn + BALANCE_MW, *reversed(sides))
            price = scenario.energy_usd_per_mwh.get(place.authority.id, place.authority.energy_usd_per_mwh)
            usd += cost.energy_usd_per_year(drawn, price)
            usd += cost.energy_usd_per_year(max(full - drawn, 0.0), rules.curtailment_usd_per_mwh)
        for site in sorted(run.running_mw.keys() - physics.places.keys()):
            yield broken(f"scenarios[{name}, {site}]", "draws power where there is no site")
        yield from figures(f"scenarios[{name}]", run, {"energy_usd_per_year": usd})


@needs("sites")
def excess(physics: PlanPhysics, plan: SitesPlan) -> Violations:
    """Check that a plan exceeds only soft grid rules, no further than allowed, in their unit and at their price."""
    for over in plan.excess:
        family, rule = over.rule.partition("[")[0], f"excess[{over.rule}]"
        soft = physics.grid.rules.soft.get(family)
        if soft is None:
            yield broken(rule, f"{show(over.amount)} {over.unit} beyond a rule that is hard")
            continue
        yield from at_most(rule, 0.0, over.amount, "at least", "stated")
        yield from at_most(rule, over.amount, soft.max_excess, over.unit, f"{over.unit} at most")
        yield from figures(rule, over, {"usd_per_year": over.amount * soft.usd_per_year})
        yield from must_be(rule, "unit", over.unit, SOFT_UNITS[family])


class GridArrays:
    """The corridors (each with its circuits) and power injections of a plan's grid as arrays, to recompute its flow.

    `generated_mw`: of each node's plants; `site_mw`: drawn by the site at each node, without the node's own load.
    """

    def __init__(
        self, nodes: Sequence[PowerNode], rows: Sequence[tuple[Line | NewLine, int]], generated_mw: Any, site_mw: Any
    ) -> None:
        at, lines = {node.id: i for i, node in enumerate(nodes)}, [line for line, _ in rows]
        self.names, self.lines = list(at), [line.id for line in lines]
        self.a, self.b = np.array([(at[line.a], at[line.b]) for line in lines], dtype=int).reshape(-1, 2).T
        self.circuits = np.array([circuits for _, circuits in rows], dtype=float)
        self.rating_mw = np.array([line.rating_mw for line in lines], dtype=float)
        self.one_circuit = np.array([100.0 / (line.reactance_pu or 1.0) for line in lines])  # MW per radian
        self.available_mw = np.array([node.generation_mw for node in nodes])
        self.unit_share = np.array([lost_share(node) for node in nodes])  # of generation, lost with the largest unit
        self.generated_mw, self.site_mw = generated_mw, site_mw
        self.load_mw = site_mw + np.array([node.load_mw for node in nodes])
        self.base = Solved(self, self.circuits)  # with everything in service

    def islands(self, circuits: Any) -> Any:
        """Return the number of the grid island that each node is in, for the recomputed power flow."""
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import connected_components

        on, size = circuits > 0, len(self.names)
        joined = csr_matrix((circuits[on], (self.a[on], self.b[on])), shape=(size, size))
        return connected_components(joined, directed=False)[1]

    def without(self, line: int) -> Any:
        """Return each corridor's circuits after the loss of one, for the recomputed power flow."""
        return self.circuits - (np.arange(len(self.lines)) == line)


class Solved:
    """The grid's Laplacian factorised, a node of each island at 0; ArithmeticError where reactances cancel others."""

    def __init__(self, grid: GridArrays, circuits: Any) -> None:
        from scipy.sparse import csr_matrix
        from scipy.sparse.linalg import splu

        self.grid, self.weight, self.island = grid, circuits * grid.one_circuit, grid.islands(circuits)
        a, b, size = grid.a, grid.b, len(grid.names)
        entries = np.concatenate([-self.weight, -self.weight, self.weight, self.weight])
        rows, columns = np.concatenate([a, b, a, b]), np.concatenate([b, a, a, b])
        self.free = np.setdiff1d(np.arange(size), np.unique(self.island, return_index=True)[1])
        self.matrix = csr_matrix((entries, (rows, columns)), shape=(size, size))[self.free][:, self.free].tocsc()
        try:
            self.factor: Any = splu(self.matrix) if len(self.free) else None
        except RuntimeError as error:
            raise ArithmeticError(f"grid.lines: no flow follows from their reactances ({error})") from None

    def flows(self, injection_mw: Any) -> Any:
        """Solve the recomputed power flow B theta = P for injections in MW; return the flow on each corridor."""
        theta = np.zeros(len(injection_mw))
        if self.factor is not None:
            theta[self.free] = self.factor.solve(injection_mw[self.free])
        return self.weight * (theta[self.grid.a] - theta[self.grid.b])

    @cached_property
    def _angles(self) -> Any:
        return self.factor.solve((self.grid.generated_mw - self.grid.load_mw)[self.free])

    def flows_without(self, line: int) -> Any:
        """Recompute the power flow less one circuit by a change of rank one; factorise anew if rounding spoils it."""
        grid, injection = self.grid, self.grid.generated_mw - self.grid.load_mw
        ends, lost = np.zeros(len(grid.names)), float(grid.one_circuit[line])
        ends[grid.a[line]], ends[grid.b[line]] = 1.0, -1.0
        own, right = ends[self.free], injection[self.free]
        shift = self.factor.solve(own)
        with np.errstate(divide="ignore", invalid="ignore"):
            answer = self._angles + shift * (lost * (own @ self._angles) / (1 - lost * (own @ shift)))
        error = self.matrix @ answer - own * (lost * (own @ answer)) - right
        if not np.abs(error).max() <= 1e-9 * max(float(np.abs(right).max()), 1.0):
            return Solved(grid, grid.without(line)).flows(injection)
        theta = np.zeros(len(grid.names))
        theta[self.free] = answer
        return (self.weight - lost * (np.arange(len(grid.lines)) == line)) * (theta[grid.a] - theta[grid.b])


def power_flow(physics: PlanPhysics) -> Violations:
    """Check that the flow on every corridor is that of the reactances, and in each year what a contingency leaves."""
    nodes = sorted(physics.grid.nodes, key=lambda node: node.id)
    rows = [row for row in _circuits(physics) if row[1] > 0 and row[0].a != row[0].b and row[0].reactance_pu]
    for suffix, _, available, run in years(physics) if physics.grid.rules.grid_model == "dc" else ():
        own = [node.replaced(generation_mw=available[node.id]) for node in nodes]
        by_node = run.generation_mw, run.running_mw
        grid = GridArrays(own, rows, *(np.array([mw.get(node.id, 0.0) for node in nodes]) for mw in by_node))
        found, stated = grid.base.flows(grid.generated_mw - grid.load_mw), {flow.line: flow.mw for flow in run.flows}
        for line, flow in zip(grid.lines, found.tolist(), strict=True):
            if abs(stated.get(line, 0.0) - flow) > max(FLOW_MW, TOLERANCE * abs(flow)):
                message = f"{show(stated.get(line, 0.0))} MW stated, {show(flow)} MW by the reactances"
                yield broken(f"power_flow[{line}]{suffix}", message)
        # After each N-1 contingency circuits are within their ratings, and plants within their spare power.
        full, lost = physics.grid.rules.n1 == "full", set[int]()
        if full:
            lost = set(range(len(grid.lines)))
        elif physics.grid.rules.n1 == "node":
            for node in (grid.names.index(place.node.id) for place in physics.standing):
                here = np.flatnonzero((grid.a == node) | (grid.b == node))
                lost |= set(here[grid.rating_mw[here] == grid.rating_mw[here].max(initial=0.0)].tolist())
        outages = [_without_circuit(grid, line) for line in sorted(lost) if abs(found[line]) > STILL_MW]
        for violation in chain(*outages, _without_units(grid) if full else ()):
            yield violation.replaced(rule=violation.rule + suffix)


def _overload(grid: GridArrays, flow: Any, circuits: Any, lost: str) -> Violations:
    if not grid.lines:
        return
    worst = int(((abs(flow) - circuits * grid.rating_mw) / grid.rating_mw).argmax())
    carries, limit = float(abs(flow[worst])), float(circuits[worst] * grid.rating_mw[worst])
    if carries - limit > STILL_MW * 1e3:  # less on a corridor without circuits comes from rounding
        rule, left = f"security[{grid.lines[worst]}, {lost}]", f"MW after the loss of {lost}"
        yield from at_most(rule, carries, limit, left, "MW of its circuits")


def _without_circuit(grid: GridArrays, line: int) -> Violations:
    """Check the grid after the loss of a circuit: flows shift, or plants of the two islands that it leaves respond."""
    circuits, name = grid.without(line), grid.lines[line]
    island = grid.islands(circuits) if circuits[line] == 0 else grid.base.island
    if island[grid.a[line]] == island[grid.b[line]]:
        yield from _overload(grid, grid.base.flows_without(line), circuits, name)
        return
    generated, drawn = grid.generated_mw.copy(), grid.load_mw.copy()
    for here in (island == island[end] for end in (grid.a[line], grid.b[line])):
        available = float(grid.available_mw[here].sum())
        if available > 0:
            lacking = float(grid.load_mw[here].sum()) - float(grid.generated_mw[here].sum())
            generated[here] += lacking * grid.available_mw[here] / available
        else:
            rule = f"security[{grid.names[int(here.argmax())]}, {name}]"
            yield from at_most(rule, float(grid.site_mw[here].sum()), 0.0, "MW drawn by sites", "MW without plants")
            drawn[here] = 0.0
    for node in (grid.available_mw > 0).nonzero()[0]:
        rule, limit = f"security[{grid.names[node]}, {name}]", grid.available_mw[node]
        yield from _above(rule, generated[node], limit, limit, f"MW fed in after the loss of {name}")
    yield from _overload(grid, Solved(grid, circuits).flows(generated - drawn), circuits, name)


def _above(rule: str, mw: float, limit: float, available: float, what: str, right: str = "") -> Violations:
    """Check that a plant's generation is within its limit in MW, up to rounding."""
    if mw - limit > FLOW_MW + TOLERANCE * available:
        yield broken(rule, f"{show(float(mw))} {what} > {show(float(limit))} {right or 'MW that its plants can spare'}")


def _without_units(grid: GridArrays) -> Violations:
    """Check the grid after the loss of each largest unit: the island's plants make up for it from their reserve."""
    total = np.bincount(grid.base.island, weights=grid.available_mw)[grid.base.island]
    unit_mw, share = grid.unit_share * grid.generated_mw, np.zeros(len(total))
    for node in (unit_mw > STILL_MW).nonzero()[0].tolist():
        others = total[node] - grid.unit_share[node] * grid.available_mw[node]
        lost = f"the largest unit of {grid.names[node]}"
        if others <= STILL_MW:
            what = f"{show(float(unit_mw[node]))} MW of {lost} > 0 MW of other plants in its island"
            yield broken(f"security[{grid.names[node]}]", what)
            continue
        here = grid.base.island == grid.base.island[node]
        share[here] = np.maximum(share[here], unit_mw[node] / others)
        response = np.where(here, grid.available_mw, 0.0)
        response[node] *= 1 - grid.unit_share[node]
        after = grid.generated_mw + response * (unit_mw[node] / others)
        after[node] -= unit_mw[node]
        yield from _overload(grid, grid.base.flows(after - grid.load_mw), grid.circuits, lost)
    right = "MW that the reserve for the worst unit leaves"
    for name, mw, most, reserve in zip(grid.names, grid.generated_mw, grid.available_mw, share, strict=True):
        yield from _above(f"security[{name}, reserve]", mw, most * (1 - reserve), most, "MW fed in", right)


YEAR_RULES = (generation, balance, rating, scenarios, excess)
RULES = (power_flow,)
