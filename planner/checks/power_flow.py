"""The power flow recomputed in the grid's own year and in every scenario of the plan: B theta = P written anew.

After a contingency (the rule as planned) a corridor keeps the circuits that it has not lost. The plants of an island
that lacks power respond in proportion to `generation_mw`, those of an island with a surplus turn down alike; in an
island without plants the nodes' own load is lost, and no site may be there. A unit takes the share of its node's
generation that it is of the node's `generation_mw`; in every island all plants keep the same share as reserve for the
worst of these.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from planner.checks.rule import TOLERANCE, Rule, at_most, broken, must_be, must_equal, show
from planner.instance.grid import SOFT_UNITS, Scenario
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site import cost
from planner.physics.site.grid import lost_share, normal_share
from planner.plan.certificate import Violation
from planner.plan.plan_sections import Flow, ScenarioRun

BALANCE_MW = 1e-4  # power flows are written to the watt; a node adds up several


@dataclass(frozen=True, slots=True, kw_only=True)
class YearFigures:
    """Figures of one year: headroom and available generation, and the load, generation and flows of the plan."""

    suffix: str  # of the names of a scenario's rules
    headroom: dict[str, float]
    available: dict[str, float]
    load: dict[str, float]
    generated: dict[str, float]
    flows: tuple[Flow, ...]


def years(c: PlanPhysics) -> Iterator[YearFigures]:
    """Yield the grid's own year, then the scenarios that count."""
    plan = c.plan.sites
    if plan is None:
        return
    headroom = {b.id: b.headroom_mw for b in c.grid.balancing_authorities}
    available = {n.id: n.generation_mw for n in c.grid.nodes}
    load = {x.site.id: c.load_mw(x.site.id, x.site.racks) for x in c.standing}
    yield YearFigures(
        suffix="", headroom=headroom, available=available, load=load, generated=plan.generation_mw, flows=plan.flows
    )
    for s in c.grid.scenarios if c.grid.rules.scenarios != "off" else ():
        run = plan.scenarios.get(s.name)
        if run is not None:
            yield YearFigures(
                suffix=f" in {s.name}",
                headroom=headroom | s.headroom_mw,
                available=available | s.generation_mw,
                load=run.running_mw,
                generated=run.generation_mw,
                flows=run.flows,
            )


def _excess(c: PlanPhysics, year: YearFigures, rule: str) -> float:
    """Return the excess of a soft rule that the plan states; scenarios have none."""
    return 0.0 if year.suffix else c.excess(rule)


def headroom(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the draw of each authority's sites is within its headroom."""
    for year in years(c) if c.grid.rules.headroom else ():
        for area, mw in _by_authority(c, year).items():
            rule = f"headroom[{area}]"
            yield from at_most(
                rule + year.suffix,
                mw,
                year.headroom[area] + _excess(c, year, rule),
                "MW drawn by its sites",
                "MW headroom",
            )


def _by_authority(c: PlanPhysics, year: YearFigures) -> dict[str, float]:
    mw: dict[str, float] = {}
    for x in c.standing:
        mw[x.authority.id] = mw.get(x.authority.id, 0.0) + year.load.get(x.site.id, 0.0)
    return dict(sorted(mw.items()))


def generation(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each node feeds in no more than its plants can.

    An authority's sites are fed, where no flows are stated, by its own plants' power above its load.
    """
    for year in years(c):
        for n, mw in sorted(year.generated.items()):
            if n not in year.available:
                yield broken(
                    f"generation[{n}]{year.suffix}",
                    f"{show(mw)} MW fed in at a node that is none of the grid's {len(year.available)}",
                )
            else:
                yield from at_most(f"generation[{n}]{year.suffix}", 0.0, mw, "MW at least", "MW fed in")
        if c.grid.rules.generation:
            yield from _plants(c, year)
            for area, drawn in _by_authority(c, year).items() if c.grid.rules.grid_model == "none" else ():
                rule = f"generation[{area}]"
                spare = sum(year.available[n.id] - n.load_mw for n in c.grid.nodes if n.balancing_authority == area)
                limit = max(0.0, spare) + _excess(c, year, rule)
                yield from at_most(rule + year.suffix, drawn, limit, "MW drawn", "MW that its plants can spare")


def _plants(c: PlanPhysics, year: YearFigures) -> Iterator[Violation]:
    for n, mw in sorted(year.generated.items()):
        if n in year.available:
            rule = f"generation[{n}]"
            yield from at_most(
                rule + year.suffix,
                mw,
                year.available[n] + _excess(c, year, rule),
                "MW fed in",
                "MW that its plants can spare",
            )


def balance(c: PlanPhysics) -> Iterator[Violation]:
    """Check that at each node generation plus inflow is its own load and its site's."""
    if c.grid.rules.grid_model == "none":
        return
    drawn = {n.id: n.load_mw for n in c.grid.nodes}
    ends = {x.id: (x.a, x.b) for x in c.grid.lines} | {x.id: (x.a, x.b) for x in c.grid.new_lines}
    for year in years(c):
        net = {n: year.generated.get(n, 0.0) for n in year.available}
        for f in year.flows:
            if f.line in ends:
                a, b = ends[f.line]
                net[a] -= f.mw
                net[b] += f.mw
        for n, mw in sorted(net.items()):
            load = year.load.get(n, 0.0) + drawn[n]
            if abs(mw - load) > max(BALANCE_MW, TOLERANCE * load):
                yield broken(
                    f"balance[{n}]{year.suffix}", f"{show(mw)} MW from its plants and corridors, {show(load)} MW drawn"
                )


def rating(c: PlanPhysics) -> Iterator[Violation]:
    """Check that each corridor's flow, in both directions, is within its circuits, built ones included."""
    share = normal_share(c.grid)
    capacity = {x.id: share * x.circuits * x.rating_mw for x in c.grid.lines}
    capacity |= {x.id: share * c.built.get(x.id, 0) * x.rating_mw for x in c.grid.new_lines}
    for year in years(c):
        for line, count in sorted(Counter(f.line for f in year.flows).items()):
            if line not in capacity:
                yield broken(
                    f"rating[{line}]{year.suffix}", f"a flow on a corridor that is none of the grid's {len(capacity)}"
                )
            if count > 1:
                yield broken(f"rating[{line}]{year.suffix}", f"{count} flows > 1")
        for f in year.flows:
            if f.line in capacity:
                rule = f"rating[{f.line}]"
                yield from at_most(
                    rule + year.suffix,
                    abs(f.mw),
                    capacity[f.line] + _excess(c, year, rule),
                    "MW flow",
                    "MW of its circuits",
                )


def scenarios(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the split runs in every scenario that counts: in full if it must be robust, else within its limits."""
    plan, rules = c.plan.sites, c.grid.rules
    if plan is None:
        return
    known = {s.name: s for s in c.grid.scenarios} if rules.scenarios != "off" else {}
    for name in sorted(set(known) ^ set(plan.scenarios)):
        yield broken(f"scenarios[{name}]", "is missing" if name in known else "is none that counts")
    for name, run in sorted(plan.scenarios.items()):
        if name in known:
            yield from _scenario(c, known[name], run)


def _scenario(c: PlanPhysics, scenario: Scenario, run: ScenarioRun) -> Iterator[Violation]:
    usd, name, rules = 0.0, scenario.name, c.grid.rules
    for x in c.standing:
        rule, full = f"scenarios[{name}, {x.site.id}]", c.load_mw(x.site.id, x.site.racks)
        drawn = run.running_mw.get(x.site.id, 0.0)
        yield from at_most(rule, drawn, full + BALANCE_MW, "MW drawn", "MW that the site holds")
        if rules.scenarios == "robust":
            yield from at_most(rule, full, drawn + BALANCE_MW, "MW that the site holds", "MW drawn")
        price = scenario.energy_usd_per_mwh.get(x.authority.id, x.authority.energy_usd_per_mwh)
        usd += cost.energy_usd_per_year(drawn, price)
        usd += cost.energy_usd_per_year(max(full - drawn, 0.0), rules.curtailment_usd_per_mwh)
    for s in sorted(set(run.running_mw) - {x.site.id for x in c.standing}):
        yield broken(f"scenarios[{name}, {s}]", "draws power where there is no site")
    yield from must_equal(f"scenarios[{name}]", "energy_usd_per_year", run.energy_usd_per_year, usd, " USD")


def excess(c: PlanPhysics) -> Iterator[Violation]:
    """Check that only soft rules are exceeded, no further than they may be, in their unit and at their price."""
    for x in c.plan.sites.excess if c.plan.sites else ():
        family = x.rule.partition("[")[0]
        soft = c.grid.rules.soft.get(family)
        if soft is None:
            yield broken(f"excess[{x.rule}]", f"{show(x.amount)} {x.unit} beyond a rule that is hard")
            continue
        yield from at_most(f"excess[{x.rule}]", 0.0, x.amount, "at least", "stated")
        yield from at_most(f"excess[{x.rule}]", x.amount, soft.max_excess, x.unit, f"{x.unit} at most")
        yield from must_equal(f"excess[{x.rule}]", "usd_per_year", x.usd_per_year, x.amount * soft.usd_per_year, " USD")
        yield from must_be(f"excess[{x.rule}]", "unit", x.unit, SOFT_UNITS[family])


YEAR_RULES: tuple[Rule, ...] = (headroom, generation, balance, rating, scenarios, excess)


FLOW_MW = 1e-3  # generation is written to the watt, and a flow adds up many nodes
STILL_MW = 1e-9  # a corridor that carries less changes nothing by its loss


@dataclass(frozen=True, kw_only=True)
class GridArrays:
    """The plan's corridors and injections as arrays."""

    names: list[str]
    lines: list[str]
    a: Any
    b: Any
    circuits: Any
    rating_mw: Any
    one_circuit: Any  # susceptance in MW per radian
    available_mw: Any
    unit_share: Any  # of a node's generation, lost with its largest unit
    generated_mw: Any
    load_mw: Any  # of the sites and of the nodes themselves
    site_mw: Any  # of the sites alone

    @cached_property
    def base(self) -> "Solved":
        """The flow with everything in service."""
        return Solved.of(self, self.circuits)

    @cached_property
    def flow(self) -> Any:
        """Flows with everything in service."""
        return self.base.flows(self.generated_mw - self.load_mw)


@dataclass(frozen=True, kw_only=True)
class Solved:
    """A Laplacian in factors: one node of each island has zero angle."""

    grid: GridArrays
    weight: Any
    island: Any
    matrix: Any
    free: Any
    factor: Any

    @staticmethod
    def of(g: GridArrays, circuits: Any) -> "Solved":
        """Factorise the network with these circuits.

        Raises
        ------
        ArithmeticError
            If negative reactances cancel others, so that no flow follows.
        """
        import numpy as np
        from scipy.sparse.linalg import splu

        weight = circuits * g.one_circuit
        matrix, island = _laplacian(g, weight), _islands(g, circuits)
        free = np.setdiff1d(np.arange(len(g.names)), np.unique(island, return_index=True)[1])
        try:
            factor = splu(matrix[free][:, free].tocsc()) if len(free) else None
        except RuntimeError as error:
            raise ArithmeticError(f"grid.lines: no flow follows from their reactances ({error})") from None
        return Solved(grid=g, weight=weight, island=island, matrix=matrix, free=free, factor=factor)

    def flows(self, injection_mw: Any) -> Any:
        """Solve B theta = P; columns are cases."""
        import numpy as np

        theta = np.zeros_like(injection_mw, dtype=float)
        if self.factor is not None:
            theta[self.free] = self.factor.solve(np.ascontiguousarray(injection_mw[self.free]))
        return (self.weight * (theta[self.grid.a] - theta[self.grid.b]).T).T

    def flows_without(self, line: int) -> Any:
        """Solve the network without one circuit, still connected, by conjugate gradients on its own matrix."""
        import numpy as np
        from scipy.sparse.linalg import LinearOperator, cg

        g = self.grid
        weight = self.weight.copy()
        weight[line] -= g.one_circuit[line]
        i, j, lost = g.a[line], g.b[line], float(g.one_circuit[line])
        free, factor, reduced = self.free, self.factor, self._reduced
        place = np.full(len(g.names), -1)
        place[free] = np.arange(len(free))

        def multiply(theta: Any) -> Any:
            # The reduced matrix less the circuit's own four entries.
            apart = (theta[place[i]] if place[i] >= 0 else 0.0) - (theta[place[j]] if place[j] >= 0 else 0.0)
            product = reduced @ theta
            for end, way in ((place[i], 1.0), (place[j], -1.0)):
                if end >= 0:
                    product[end] -= way * lost * apart
            return product

        right = (g.generated_mw - g.load_mw)[free]
        size = (len(free), len(free))
        answer, _ = cg(
            LinearOperator(size, multiply), right, rtol=1e-13, maxiter=20, M=LinearOperator(size, factor.solve)
        )
        if np.abs(multiply(answer) - right).max() > 1e-7 * max(float(np.abs(right).max()), 1.0):
            circuits = g.circuits.copy()
            circuits[line] -= 1
            return Solved.of(g, circuits).flows(g.generated_mw - g.load_mw)
        theta = np.zeros(len(g.names))
        theta[free] = answer
        return weight * (theta[g.a] - theta[g.b])

    @cached_property
    def _reduced(self) -> Any:
        return self.matrix[self.free][:, self.free].tocsr()


def _laplacian(g: GridArrays, weight: Any) -> Any:
    import numpy as np
    from scipy.sparse import csr_matrix

    rows = np.concatenate([g.a, g.b, g.a, g.b])
    columns = np.concatenate([g.b, g.a, g.a, g.b])
    return csr_matrix(
        (np.concatenate([-weight, -weight, weight, weight]), (rows, columns)), shape=(len(g.names), len(g.names))
    )


def _islands(g: GridArrays, circuits: Any) -> Any:
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    on = circuits > 0
    joined = csr_matrix((circuits[on], (g.a[on], g.b[on])), shape=(len(g.names), len(g.names)))
    return connected_components(joined, directed=False)[1]


def read(c: PlanPhysics) -> Iterator[tuple[YearFigures, GridArrays]]:
    """Yield the grid as the plan builds it in each year; nothing without a power flow."""
    for year in years(c) if c.grid.rules.grid_model == "dc" else ():
        yield year, _grid(c, year)


def _grid(c: PlanPhysics, year: YearFigures) -> GridArrays:
    import numpy as np

    nodes = [
        n.model_copy(update={"generation_mw": year.available[n.id]}) for n in sorted(c.grid.nodes, key=lambda n: n.id)
    ]
    at = {n.id: i for i, n in enumerate(nodes)}
    corridors = [(x.id, x.a, x.b, x.circuits, x.rating_mw, x.reactance_pu) for x in c.grid.lines]
    corridors += [(x.id, x.a, x.b, c.built.get(x.id, 0), x.rating_mw, x.reactance_pu) for x in c.grid.new_lines]
    rows = [r for r in corridors if r[3] > 0 and r[1] != r[2] and r[5]]
    return GridArrays(
        names=[n.id for n in nodes],
        lines=[r[0] for r in rows],
        a=np.array([at[r[1]] for r in rows], dtype=int),
        b=np.array([at[r[2]] for r in rows], dtype=int),
        circuits=np.array([r[3] for r in rows], dtype=float),
        rating_mw=np.array([r[4] for r in rows], dtype=float),
        one_circuit=np.array([100.0 / (r[5] or 1.0) for r in rows]),
        available_mw=np.array([n.generation_mw for n in nodes]),
        unit_share=np.array([lost_share(n) for n in nodes]),
        generated_mw=np.array([year.generated.get(n.id, 0.0) for n in nodes]),
        load_mw=np.array([year.load.get(n.id, 0.0) + n.load_mw for n in nodes]),
        site_mw=np.array([year.load.get(n.id, 0.0) for n in nodes]),
    )


def power_flow(c: PlanPhysics) -> Iterator[Violation]:
    """Check that the flow stated on every corridor is that of the reactances."""
    for year, g in read(c):
        stated = {f.line: f.mw for f in year.flows}
        for line, mw in zip(g.lines, g.flow, strict=True):
            if abs(stated.get(line, 0.0) - mw) > max(FLOW_MW, TOLERANCE * abs(mw)):
                message = f"{show(stated.get(line, 0.0))} MW stated, {show(float(mw))} MW by the reactances"
                yield broken(f"power_flow[{line}]{year.suffix}", message)


def security(c: PlanPhysics) -> Iterator[Violation]:
    """Check that after each N-1 contingency circuits are within their ratings, and plants within their spare power."""
    full = c.grid.rules.n1 == "full"
    for year, g in read(c) if c.grid.rules.n1 in ("node", "full") else ():
        lines = range(len(g.lines)) if full else sorted({k for x in c.standing for k in _largest(g, x.node.id)})
        lost = chain.from_iterable(_without_circuit(g, line) for line in lines if abs(g.flow[line]) > STILL_MW)
        for v in chain(lost, _without_units(g) if full else ()):
            yield v.model_copy(update={"rule": v.rule + year.suffix})


def _largest(g: GridArrays, node: str) -> list[int]:
    i = g.names.index(node)
    here = [k for k in range(len(g.lines)) if i in (g.a[k], g.b[k])]
    return [k for k in here if g.rating_mw[k] == max(g.rating_mw[j] for j in here)]


def _overload(g: GridArrays, flow: Any, circuits: Any, lost: str) -> Iterator[Violation]:
    """Name the corridor that a contingency overloads most."""
    if not g.lines:
        return
    worst = int(((abs(flow) - circuits * g.rating_mw) / g.rating_mw).argmax())
    carries, limit = float(abs(flow[worst])), float(circuits[worst] * g.rating_mw[worst])
    # A negligible flow on a corridor without circuits comes from rounding.
    if carries - limit > STILL_MW * 1e3:
        rule, left = f"security[{g.lines[worst]}, {lost}]", f"MW after the loss of {lost}"
        yield from at_most(rule, carries, limit, left, "MW of its circuits")


def _without_circuit(g: GridArrays, line: int) -> Iterator[Violation]:
    """Lose a circuit: flows shift, or the plants of the two islands that it leaves respond on their own."""
    circuits = g.circuits.copy()
    circuits[line] -= 1
    name = g.lines[line]
    island = _islands(g, circuits) if circuits[line] == 0 else g.base.island
    if island[g.a[line]] == island[g.b[line]]:
        yield from _overload(g, g.base.flows_without(line), circuits, name)
        return
    generated, drawn = g.generated_mw.copy(), g.load_mw.copy()
    for number in (island[g.a[line]], island[g.b[line]]):
        here = island == number
        load, available = float(g.load_mw[here].sum()), float(g.available_mw[here].sum())
        if available <= 0:
            rule = f"security[{g.names[int(here.argmax())]}, {name}]"
            yield from at_most(rule, float(g.site_mw[here].sum()), 0.0, "MW drawn by sites", "MW without plants")
            drawn[here] = 0.0
            continue
        generated[here] += (load - float(g.generated_mw[here].sum())) * g.available_mw[here] / available
    for n in (g.available_mw > 0).nonzero()[0]:
        what = f"MW fed in after the loss of {name}"
        yield from _above(f"security[{g.names[n]}, {name}]", generated[n], g.available_mw[n], g.available_mw[n], what)
    yield from _overload(g, Solved.of(g, circuits).flows(generated - drawn), circuits, name)


def _above(rule: str, mw: float, limit: float, available: float, what: str, right: str = "") -> Iterator[Violation]:
    """Yield a violation for a plant above its limit in MW by more than the rounding of its generation."""
    if mw - limit > FLOW_MW + TOLERANCE * available:
        yield broken(rule, f"{show(float(mw))} {what} > {show(float(limit))} {right or 'MW that its plants can spare'}")


def _without_units(g: GridArrays) -> Iterator[Violation]:
    """Lose each largest unit: the island's plants make up for it, and each has kept its share as reserve."""
    import numpy as np

    total = np.bincount(g.base.island, weights=g.available_mw)[g.base.island]
    unit_mw = g.unit_share * g.generated_mw
    share = np.zeros(len(total))
    for n in (int(n) for n in (unit_mw > STILL_MW).nonzero()[0]):
        others = total[n] - g.unit_share[n] * g.available_mw[n]
        lost = f"the largest unit of {g.names[n]}"
        if others <= STILL_MW:
            left = f"{show(float(unit_mw[n]))} MW of {lost}"
            yield broken(f"security[{g.names[n]}]", f"{left} > 0 MW of other plants in its island")
            continue
        here = g.base.island == g.base.island[n]
        share[here] = np.maximum(share[here], unit_mw[n] / others)
        response = np.where(here, g.available_mw, 0.0)
        response[n] *= 1 - g.unit_share[n]
        after = g.generated_mw + response * (unit_mw[n] / others)
        after[n] -= unit_mw[n]
        yield from _overload(g, g.base.flows(after - g.load_mw), g.circuits, lost)
    for n in range(len(total)):
        limit, right = g.available_mw[n] * (1 - share[n]), "MW that the reserve for the worst unit leaves"
        rule = f"security[{g.names[n]}, reserve]"
        yield from _above(rule, g.generated_mw[n], limit, g.available_mw[n], "MW fed in", right)


RULES: tuple[Rule, ...] = (power_flow, security)
