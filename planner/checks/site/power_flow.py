"""The power flow again: B theta = P written anew, for the grid as built and after every outage that N-1 asks for, year by year.

After an outage (the rule as planned): what is left of a corridor keeps its circuits; the plants of a part that lacks
power answer in proportion to `generation_mw`, those of a part that has too much turn down alike; a unit takes the
share of its node's feed that it is of the node's `generation_mw`, and in every part all plants keep the same share
free for the worst of these; no part with load is left without plants.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from planner.checks.rule import TOLERANCE, Rule, at_most, broken, show
from planner.checks.site.scenarios import Year, years
from planner.physics.plan_physics import PlanPhysics
from planner.physics.site.grid import lost_share
from planner.plan.certificate import Violation

FLOW_MW = 1e-3  # feeds are written to the watt, and a flow adds up many
STILL_MW = 1e-9  # a corridor that carries less changes nothing by its loss


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The plan's corridors and injections as arrays."""

    names: list[str]
    lines: list[str]
    a: Any
    b: Any
    circuits: Any
    rating_mw: Any
    one_circuit: Any  # susceptance in MW per radian
    spare_mw: Any
    lost: Any
    fed_mw: Any
    load_mw: Any

    @cached_property
    def base(self) -> "Solved":
        """The flow with everything in service."""
        return Solved.of(self, self.circuits)

    @cached_property
    def flow(self) -> Any:
        """Flows with everything in service."""
        return self.base.flows(self.fed_mw - self.load_mw)


@dataclass(frozen=True, kw_only=True)
class Solved:
    """A Laplacian in factors: one node of each part is held at zero angle."""

    grid: Grid
    weight: Any
    part: Any
    matrix: Any
    free: Any
    factor: Any

    @staticmethod
    def of(g: Grid, circuits: Any) -> "Solved":
        """Factorise the network with these circuits."""
        import numpy as np
        from scipy.sparse.linalg import splu

        weight = circuits * g.one_circuit
        matrix, part = _laplacian(g, weight), _parts(g, circuits)
        free = np.setdiff1d(np.arange(len(g.names)), np.unique(part, return_index=True)[1])
        factor = splu(matrix[free][:, free].tocsc()) if len(free) else None
        return Solved(grid=g, weight=weight, part=part, matrix=matrix, free=free, factor=factor)

    def flows(self, injection_mw: Any) -> Any:
        """Solve B theta = P; columns are cases."""
        import numpy as np

        theta = np.zeros_like(injection_mw, dtype=float)
        if self.factor is not None:
            theta[self.free] = self.factor.solve(np.ascontiguousarray(injection_mw[self.free]))
        return (self.weight * (theta[self.grid.a] - theta[self.grid.b]).T).T

    def flows_without(self, line: int) -> Any:
        """Solve the network with one circuit less that stays connected: iterations on its own matrix, held to its residual."""
        import numpy as np
        from scipy.sparse.linalg import LinearOperator, cg

        g = self.grid
        weight = self.weight.copy()
        weight[line] -= g.one_circuit[line]
        i, j, lost = g.a[line], g.b[line], float(g.one_circuit[line])
        free, factor, reduced = self.free, self.factor, self._reduced
        place = np.full(len(g.names), -1)
        place[free] = np.arange(len(free))

        def product(theta: Any) -> Any:
            # The reduced matrix less the circuit's own four entries.
            apart = (theta[place[i]] if place[i] >= 0 else 0.0) - (theta[place[j]] if place[j] >= 0 else 0.0)
            found = reduced @ theta
            for end, way in ((place[i], 1.0), (place[j], -1.0)):
                if end >= 0:
                    found[end] -= way * lost * apart
            return found

        right = (g.fed_mw - g.load_mw)[free]
        size = (len(free), len(free))
        answer, _ = cg(
            LinearOperator(size, product), right, rtol=1e-13, maxiter=20, M=LinearOperator(size, factor.solve)
        )
        if np.abs(product(answer) - right).max() > 1e-7 * max(float(np.abs(right).max()), 1.0):
            circuits = g.circuits.copy()
            circuits[line] -= 1
            return Solved.of(g, circuits).flows(g.fed_mw - g.load_mw)
        theta = np.zeros(len(g.names))
        theta[free] = answer
        return weight * (theta[g.a] - theta[g.b])

    @cached_property
    def _reduced(self) -> Any:
        return self.matrix[self.free][:, self.free].tocsr()


def _laplacian(g: Grid, weight: Any) -> Any:
    import numpy as np
    from scipy.sparse import csr_matrix

    rows = np.concatenate([g.a, g.b, g.a, g.b])
    columns = np.concatenate([g.b, g.a, g.a, g.b])
    return csr_matrix(
        (np.concatenate([-weight, -weight, weight, weight]), (rows, columns)), shape=(len(g.names), len(g.names))
    )


def _parts(g: Grid, circuits: Any) -> Any:
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    on = circuits > 0
    joined = csr_matrix((circuits[on], (g.a[on], g.b[on])), shape=(len(g.names), len(g.names)))
    return connected_components(joined, directed=False)[1]


def read(c: PlanPhysics) -> Iterator[tuple[Year, Grid]]:
    """Yield the grid as the plan builds it in each year; nothing where no power flow is asked for."""
    for year in years(c) if c.grid.rules.grid_model == "dc" else ():
        yield year, _grid(c, year)


def _grid(c: PlanPhysics, year: Year) -> Grid:
    import numpy as np

    nodes = [n.model_copy(update={"generation_mw": year.spare[n.id]}) for n in sorted(c.grid.nodes, key=lambda n: n.id)]
    at = {n.id: i for i, n in enumerate(nodes)}
    held = [(x.id, x.a, x.b, x.circuits, x.rating_mw, x.reactance_pu) for x in c.grid.lines]
    held += [(x.id, x.a, x.b, c.built.get(x.id, 0), x.rating_mw, x.reactance_pu) for x in c.grid.new_lines]
    rows = [r for r in held if r[3] > 0 and r[1] != r[2] and r[5]]
    return Grid(
        names=[n.id for n in nodes],
        lines=[r[0] for r in rows],
        a=np.array([at[r[1]] for r in rows], dtype=int),
        b=np.array([at[r[2]] for r in rows], dtype=int),
        circuits=np.array([r[3] for r in rows], dtype=float),
        rating_mw=np.array([r[4] for r in rows], dtype=float),
        one_circuit=np.array([100.0 / (r[5] or 1.0) for r in rows]),
        spare_mw=np.array([n.generation_mw for n in nodes]),
        lost=np.array([lost_share(n) for n in nodes]),
        fed_mw=np.array([year.fed.get(n.id, 0.0) for n in nodes]),
        load_mw=np.array([year.load.get(n.id, 0.0) for n in nodes]),
    )


def power_flow(c: PlanPhysics) -> Iterator[Violation]:
    """State on every corridor the flow that reactances give it."""
    for year, g in read(c):
        stated = {f.line: f.mw for f in year.flows}
        for line, mw in zip(g.lines, g.flow, strict=True):
            if abs(stated.get(line, 0.0) - mw) > max(FLOW_MW, TOLERANCE * abs(mw)):
                told = f"{show(stated.get(line, 0.0))} MW stated, {show(float(mw))} MW by the reactances"
                yield broken(f"power_flow[{line}]{year.told}", told)


def security(c: PlanPhysics) -> Iterator[Violation]:
    """Survive each outage that N-1 asks for: every remaining circuit within its rating, every plant within what it can spare."""
    for year, g in read(c) if c.grid.rules.n1 in ("node", "full") else ():
        for v in _outages(c, g):
            yield v.model_copy(update={"rule": v.rule + year.told})


def _outages(c: PlanPhysics, g: Grid) -> Iterator[Violation]:
    lines = (
        range(len(g.lines))
        if c.grid.rules.n1 == "full"
        else sorted({k for x in c.standing for k in _largest(g, x.node.id)})
    )
    for line in lines:
        if abs(g.flow[line]) > STILL_MW:
            yield from _without_circuit(g, line)
    if c.grid.rules.n1 == "full":
        yield from _without_units(g)


def _largest(g: Grid, node: str) -> list[int]:
    i = g.names.index(node)
    here = [k for k in range(len(g.lines)) if i in (g.a[k], g.b[k])]
    return [k for k in here if g.rating_mw[k] == max(g.rating_mw[j] for j in here)]


def _overload(g: Grid, flow: Any, circuits: Any, lost: str) -> Iterator[Violation]:
    """Name the corridor that an outage overloads most."""
    if not g.lines:
        return
    over = abs(flow) - circuits * g.rating_mw
    worst = int((over / g.rating_mw).argmax())
    carries, may = float(abs(flow[worst])), float(circuits[worst] * g.rating_mw[worst])
    # A flow of no consequence on a corridor of no circuits is what is left of rounding.
    if carries - may > STILL_MW * 1e3:
        yield from at_most(
            f"security[{g.lines[worst]}, {lost}]", carries, may, f"MW after the loss of {lost}", "MW of its circuits"
        )


def _without_circuit(g: Grid, line: int) -> Iterator[Violation]:
    circuits = g.circuits.copy()
    circuits[line] -= 1
    name = g.lines[line]
    parts = _parts(g, circuits) if circuits[line] == 0 else g.base.part
    if parts[g.a[line]] == parts[g.b[line]]:
        yield from _overload(g, g.base.flows_without(line), circuits, name)
        return
    fed = g.fed_mw.copy()
    for part in (parts[g.a[line]], parts[g.b[line]]):
        here = parts == part
        lacks, spare = float(g.load_mw[here].sum() - g.fed_mw[here].sum()), float(g.spare_mw[here].sum())
        if spare <= 0:
            yield from at_most(
                f"security[{g.names[int(here.argmax())]}, {name}]",
                float(g.load_mw[here].sum()),
                0.0,
                "MW drawn",
                "MW without plants",
            )
            continue
        fed[here] += lacks * g.spare_mw[here] / spare
    for n in (g.spare_mw > 0).nonzero()[0]:
        # Rounding of what is fed in must not look like a violation.
        if fed[n] - g.spare_mw[n] > FLOW_MW + TOLERANCE * g.spare_mw[n]:
            told = f"{show(float(fed[n]))} MW fed in after the loss of {name} > {show(float(g.spare_mw[n]))} MW that its plants can spare"
            yield broken(f"security[{g.names[n]}, {name}]", told)
    yield from _overload(g, Solved.of(g, circuits).flows(fed - g.load_mw), circuits, name)


def _without_units(g: Grid) -> Iterator[Violation]:
    """Lose each largest unit: the island's plants make up for it, and each has kept its share free."""
    import numpy as np

    total = np.bincount(g.base.part, weights=g.spare_mw)[g.base.part]
    units = [int(n) for n in (g.lost * g.fed_mw > STILL_MW).nonzero()[0]]
    share = np.zeros(len(total))
    for n in units:
        others = total[n] - g.lost[n] * g.spare_mw[n]
        lost = f"the largest unit of {g.names[n]}"
        if others <= STILL_MW:
            yield broken(
                f"security[{g.names[n]}]",
                f"{show(float(g.lost[n] * g.fed_mw[n]))} MW of {lost} > 0 MW of other plants in its island",
            )
            continue
        here = g.base.part == g.base.part[n]
        share[here] = np.maximum(share[here], g.lost[n] * g.fed_mw[n] / others)
        answer = np.where(here, g.spare_mw, 0.0)
        answer[n] *= 1 - g.lost[n]
        after = g.fed_mw + answer * (g.lost[n] * g.fed_mw[n] / others)
        after[n] -= g.lost[n] * g.fed_mw[n]
        yield from _overload(g, g.base.flows(after - g.load_mw), g.circuits, lost)
    for n in range(len(total)):
        free = g.spare_mw[n] * (1 - share[n])
        if g.fed_mw[n] - free > FLOW_MW + TOLERANCE * g.spare_mw[n]:
            told = f"{show(float(g.fed_mw[n]))} MW fed in > {show(float(free))} MW that the reserve for the worst unit leaves"
            yield broken(f"security[{g.names[n]}, reserve]", told)


RULES: tuple[Rule, ...] = (power_flow, security)
