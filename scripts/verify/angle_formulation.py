"""The site split under dc and N-1 by angles: every flow and every outage stated in full, as a textbook has it.

It shares with the planner the rules that know no flows, and nothing of its power flow: what `bench_sites.py` measures
the planner against, and what the tests hold it to. Each scenario has its own angles. Circuits can be built before
outages only (without N-1 rows).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import networkx as nx
import pyomo.environ as pyo

from planner.instance.grid import Grid, Line, NewLine, PowerNode
from planner.instance.instance import Instance
from planner.models import SitesRequest
from planner.models.sites.split_data import SplitData, gather
from planner.models.sites.split_model import build


def by_angles(instance: Instance, request: SitesRequest) -> tuple[Any, SplitData]:
    """Return the model of the dc question without an objective, and its question as one of transport."""
    assert instance.grid is not None
    rules = instance.grid.rules
    plain = rules.replaced(grid_model="transport", n1="margin" if rules.n1 == "margin" else "off")
    data = gather(instance.replaced(grid__rules=plain), request)
    m = build(data)
    for block, year in zip(m.years.values(), (data, *data.scenarios.values()), strict=True):
        grid = year.grid.replaced(rules=rules)
        _before(block, grid)
        if rules.n1 in ("node", "full"):
            assert not grid.new_lines
            _after(block, data, grid)
    return m, data


def _widest(g: Grid) -> float:
    """Angle that no two nodes are farther apart than: that of all lines in a row."""
    every: list[Line | NewLine] = [*g.lines, *g.new_lines]
    return sum(x.rating_mw * abs(x.reactance_pu or 0.0) / 100 for x in every) + 1.0


def _before(m: Any, g: Grid) -> None:
    """Let flows follow angles; a circuit that is not built is free of them."""
    wide = _widest(g)
    m.theta = pyo.Var([n.id for n in g.nodes], bounds=(-wide, wide))
    m.law = pyo.ConstraintList()
    for x in g.lines:
        m.law.add(m.flow[x.id] == 100 / (x.reactance_pu or 1.0) * x.circuits * (m.theta[x.a] - m.theta[x.b]))
    keys = [(x.id, j) for x in g.new_lines for j in range(x.max_circuits)]
    m.installed, m.carries = pyo.Var(keys, domain=pyo.Binary), pyo.Var(keys)
    for k in g.new_lines:
        m.law.add(sum(m.installed[k.id, j] for j in range(k.max_circuits)) == m.circuits[k.id])
        m.law.add(sum(m.carries[k.id, j] for j in range(k.max_circuits)) == m.flow[k.id])
        for j in range(k.max_circuits):
            per_rad = 100 / (k.reactance_pu or 1.0)
            m.carries[k.id, j].setlb(-k.rating_mw)
            m.carries[k.id, j].setub(k.rating_mw)
            for way in (1, -1):
                slack = m.carries[k.id, j] - per_rad * (m.theta[k.a] - m.theta[k.b])
                m.law.add(way * slack <= (2 * wide * per_rad + k.rating_mw) * (1 - m.installed[k.id, j]))
                m.law.add(way * m.carries[k.id, j] <= k.rating_mw * m.installed[k.id, j])


@dataclass(frozen=True)
class Outage:
    """Circuits out by line, the unit out at a node, and the site that it matters to; None: it always does."""

    line: str | None = None
    unit: str | None = None
    site: str | None = None


def outages(g: Grid) -> Iterator[Outage]:
    """Yield what N-1 takes out."""
    if g.rules.n1 == "full":
        yield from (Outage(line=x.id) for x in g.lines)
        yield from (Outage(unit=n.id) for n in g.nodes if n.generation_mw > 0 and n.largest_unit_mw != 0)
        return
    for n in (n for n in g.nodes if n.site):
        here = [x for x in g.lines if n.id in (x.a, x.b)]
        yield from (Outage(line=x.id, site=n.id) for x in here if x.rating_mw == max(y.rating_mw for y in here))


def _after(m: Any, data: SplitData, g: Grid) -> None:
    """State each outage with its own angles, flows and answers of the plants."""
    cases = list(outages(g))
    wide, nodes = _widest(g), {n.id: n for n in g.nodes}
    m.theta_after = pyo.Var(range(len(cases)), list(nodes), bounds=(-wide, wide))
    m.after = pyo.ConstraintList()
    load_all = sum(n.generation_mw + abs(n.load_mw) for n in g.nodes) + 1.0
    for i, case in enumerate(cases):
        # An outage at a closed site is none.
        spared = 0.0 if case.site is None else 100 * load_all * (1 - m.open[case.site])
        left = {x.id: x.circuits - (x.id == case.line) for x in g.lines}
        net: dict[str, Any] = dict.fromkeys(nodes, 0.0)
        for x in (x for x in g.lines if left[x.id]):
            flow = 100 / (x.reactance_pu or 1.0) * left[x.id] * (m.theta_after[i, x.a] - m.theta_after[i, x.b])
            net[x.a] -= flow
            net[x.b] += flow
            for way in (1, -1):
                m.after.add(way * flow <= left[x.id] * x.rating_mw + spared)
        graph = nx.MultiGraph([(x.a, x.b) for x in g.lines if left[x.id]])
        graph.add_nodes_from(nodes)
        for part in nx.connected_components(graph):
            _answer(m, data, [nodes[n] for n in sorted(part)], case, net, spared)


def _lost(n: PowerNode) -> float:
    return 1.0 if n.largest_unit_mw is None else min(1.0, n.largest_unit_mw / n.generation_mw)


def _answer(m: Any, data: SplitData, part: list[PowerNode], case: Outage, net: dict[str, Any], spared: Any) -> None:
    """Let the plants of a part make up for what it lacks, in proportion to what they can spare."""
    sites = {n.id: data.module_mw * m.modules[n.id] if n.site else 0.0 for n in part}
    keeps = {n.id: (1 - _lost(n) if n.id == case.unit else 1.0) for n in part}
    spare = {n.id: n.generation_mw * keeps[n.id] for n in part}
    total = sum(spare.values())
    # A part without plants goes dark: the load of its nodes is lost.
    dark = case.line is not None and total <= 0
    draw = {n.id: sites[n.id] + (0.0 if dark else n.load_mw) for n in part}
    lacks = sum(draw.values()) - sum(keeps[n.id] * m.generated[n.id] for n in part)
    hit = case.line is not None or case.unit in spare
    if total <= 0:
        for n in part if hit else ():
            if not isinstance(sites[n.id], float):
                m.after.add(sites[n.id] <= spared)
        if case.unit in spare:
            m.after.add(m.generated[case.unit] <= 0)
    for n in part:
        share = spare[n.id] / total if total > 0 else 0.0
        fed = keeps[n.id] * m.generated[n.id] + share * lacks
        for way in (1, -1):
            m.after.add(way * (fed + net[n.id] - draw[n.id]) <= spared)
        if case.unit in spare and n.generation_mw > 0:
            # Every plant of the part keeps the reserve, the one whose unit is lost among them.
            m.after.add(
                m.generated[n.id] * total + n.generation_mw * _lost_feed(m, part, case) <= n.generation_mw * total
            )
        elif case.line is not None and n.generation_mw > 0:
            m.after.add(fed <= n.generation_mw + spared)


def _lost_feed(m: Any, part: list[PowerNode], case: Outage) -> Any:
    return next(_lost(n) * m.generated[n.id] for n in part if n.id == case.unit)
