"""Years that may come: the rows of the power flow once more for each scenario, under one split.

A scenario is the question with other headroom, generation and prices, stated on a block of its own. Robust: the split runs
whole in each. Expected: a site may run less where a year demands it, at the price of the work left undone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyomo.environ as pyo

from planner.instance.grid import Scenario
from planner.models.sites.data import Question
from planner.physics.site.cost import HOURS_PER_YEAR


def of_scenario(q: Question, s: Scenario) -> Question:
    """Return the question with a scenario's figures in the place of the grid's."""
    areas = tuple(
        b.model_copy(
            update={
                "headroom_mw": s.headroom_mw.get(b.id, b.headroom_mw),
                "energy_usd_per_mwh": s.energy_usd_per_mwh.get(b.id, b.energy_usd_per_mwh),
            }
        )
        for b in q.grid.balancing_authorities
    )
    nodes = tuple(
        n.model_copy(update={"generation_mw": s.generation_mw.get(n.id, n.generation_mw)}) for n in q.grid.nodes
    )
    grid = q.grid.model_copy(update={"balancing_authorities": areas, "nodes": nodes, "scenarios": ()})
    return replace(
        q,
        grid=grid,
        candidates={n.id: n for n in sorted(nodes, key=lambda n: n.id) if n.site},
        authorities={b.id: b for b in sorted(areas, key=lambda b: b.id)},
        system=None if q.system is None else q.system.in_year(s.name, grid),
    )


def scenarios(q: Question) -> dict[str, Question]:
    """Return the questions of all scenarios that count, by name."""
    return (
        {}
        if q.grid.rules.scenarios == "off"
        else {s.name: of_scenario(q, s) for s in sorted(q.grid.scenarios, key=lambda s: s.name)}
    )


def weights(q: Question) -> tuple[float, dict[str, float]]:
    """Return the weight of the grid's own figures and those of the scenarios; they sum to 1."""
    held = {s.name: s.weight for s in q.grid.scenarios}
    return max(0.0, 1.0 - sum(held.values())), held


def state(m: Any, q: Question, name: str, total: int) -> Any:
    """Add an empty block for a scenario, with what its sites run and the split's own circuits."""
    block = pyo.Block()
    m.add_component(f"scenario_{name}", block)
    block.circuits = pyo.Reference(dict(m.circuits.items()))
    block.open = pyo.Reference(dict(m.open.items()))
    if q.system is not None:
        block.stands = pyo.Reference(dict(m.stands.items()))
    if q.grid.rules.scenarios == "robust":
        block.modules = pyo.Reference(dict(m.modules.items()))
        return block
    block.modules = pyo.Var(list(q.candidates), domain=pyo.NonNegativeReals, bounds=(0, total))
    block.running = pyo.Constraint(list(q.candidates), rule=lambda b, s: b.modules[s] <= m.modules[s])
    return block


@dataclass(frozen=True, slots=True, kw_only=True)
class Year:
    """The rows of one year: the model's own (without a name) or a scenario's block."""

    name: str
    q: Question
    block: Any

    @property
    def told(self) -> str:
        """What tells a scenario in the names of its rows."""
        return f" in {self.name}" if self.name else ""


def blocks(m: Any, q: Question) -> Iterator[Year]:
    """Yield the grid's own year, then every scenario that counts."""
    yield Year(name="", q=q, block=m)
    yield from (Year(name=n, q=w, block=block_of(m, n)) for n, w in scenarios(q).items())


def block_of(m: Any, name: str) -> Any:
    """Return the block of a scenario."""
    return m.component(f"scenario_{name}")


def energy_musd(m: Any, block: Any, q: Question) -> Any:
    """Energy of a year in a scenario, and what is left undone at its price, in M$."""
    undone = q.grid.rules.curtailment_usd_per_mwh * HOURS_PER_YEAR * q.module_mw / 1e6
    drawn = sum(q.energy_musd(s) * block.modules[s] for s in q.candidates)
    return drawn + undone * sum(m.modules[s] - block.modules[s] for s in q.candidates)


def expected_musd(m: Any, q: Question, base: Any) -> Any:
    """Energy of a year over all scenarios and the grid's own figures (`base`): the worst, or the weighted mean, in M$."""
    years = scenarios(q)
    if not years:
        return base
    costs = {n: energy_musd(m, block_of(m, n), w) for n, w in years.items()}
    if q.grid.rules.scenarios == "expected":
        own, held = weights(q)
        return own * base + sum(held[n] * x for n, x in costs.items())
    if m.component("worst_energy") is None:
        most = max(
            [q.energy_musd(s) for s in q.candidates] + [w.energy_musd(s) for w in years.values() for s in q.candidates]
        )
        m.worst_energy = pyo.Var(
            domain=pyo.NonNegativeReals, bounds=(0, most * sum(m.modules[s].ub for s in q.candidates))
        )
        m.worst = pyo.Constraint([*costs, ""], rule=lambda m, n: m.worst_energy >= (costs[n] if n else base))
    return m.worst_energy
