"""Scenarios of the split: the rows of the power flow once more for each year that may come, under one split.

A scenario is the split's data with other headroom, generation and prices, stated on a block of its own. Robust: the
split runs whole in each. Expected: a site may run less in a scenario, at the price of the curtailed work.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyomo.core as pyo

from planner.instance.grid import Scenario
from planner.models.sites.data import SplitData
from planner.physics.site.cost import HOURS_PER_YEAR


def of_scenario(data: SplitData, s: Scenario) -> SplitData:
    """Return the data with a scenario's figures in place of the grid's."""
    areas = []
    for b in sorted(data.grid.balancing_authorities, key=lambda b: b.id):
        usd = s.energy_usd_per_mwh.get(b.id, b.energy_usd_per_mwh)
        mw = s.headroom_mw.get(b.id, b.headroom_mw)
        areas.append(b.model_copy(update={"headroom_mw": mw, "energy_usd_per_mwh": usd}))
    nodes = []
    for n in data.grid.nodes:
        nodes.append(n.model_copy(update={"generation_mw": s.generation_mw.get(n.id, n.generation_mw)}))
    changes = {"balancing_authorities": tuple(areas), "nodes": tuple(nodes), "scenarios": ()}
    grid = data.grid.model_copy(update=changes)
    return replace(
        data,
        grid=grid,
        candidates={n.id: n for n in sorted(nodes, key=lambda n: n.id) if n.site},
        authorities={b.id: b for b in areas},
        network=None if data.network is None else data.network.in_year(s.name, grid),
    )


def scenarios(data: SplitData) -> dict[str, SplitData]:
    """Return the data of all scenarios that count, by name."""
    if data.grid.rules.scenarios == "off":
        return {}
    return {s.name: of_scenario(data, s) for s in sorted(data.grid.scenarios, key=lambda s: s.name)}


def weights(data: SplitData) -> tuple[float, dict[str, float]]:
    """Return the weight of the grid's own figures and those of the scenarios; they sum to 1."""
    weight = {s.name: s.weight for s in data.grid.scenarios}
    return max(0.0, 1.0 - sum(weight.values())), weight


def add_block(m: Any, data: SplitData, name: str, max_modules: int) -> Any:
    """Add the block of a scenario, with the modules that its sites run and the split's own circuits."""
    block = pyo.Block()
    m.add_component(f"scenario_{name}", block)
    block.circuits = pyo.Reference(dict(m.circuits.items()))
    block.open = pyo.Reference(dict(m.open.items()))
    if data.network is not None:
        block.installed = pyo.Reference(dict(m.installed.items()))
    extra = m.component("extra_mw")
    if data.grid.rules.scenarios == "robust":
        block.modules = pyo.Reference(dict(m.modules.items()))
        if extra is not None:
            block.extra_mw = pyo.Reference(dict(extra.items()))
        return block
    sites = list(data.candidates)
    block.modules = pyo.Var(sites, domain=pyo.NonNegativeReals, bounds=(0, max_modules))
    block.running = pyo.Constraint(sites, rule=lambda b, s: b.modules[s] <= m.modules[s])
    if extra is not None:
        block.extra_mw = pyo.Var(sites, domain=pyo.NonNegativeReals, bounds=lambda _, s: (0, extra[s].ub))
        block.running_extra = pyo.Constraint(sites, rule=lambda b, s: b.extra_mw[s] <= extra[s])
    return block


@dataclass(frozen=True, slots=True, kw_only=True)
class Year:
    """One year of the split with its rows: the model's own (without a name), or a scenario's block."""

    name: str
    data: SplitData
    block: Any

    @property
    def suffix(self) -> str:
        """Return what follows the names of a scenario's rows in reports."""
        return f" in {self.name}" if self.name else ""


def years(m: Any, data: SplitData) -> Iterator[Year]:
    """Yield the grid's own year, then every scenario that counts."""
    yield Year(name="", data=data, block=m)
    yield from (Year(name=n, data=year, block=block_of(m, n)) for n, year in scenarios(data).items())


def block_of(m: Any, name: str) -> Any:
    """Return the block of a scenario."""
    return m.component(f"scenario_{name}")


def energy_musd(m: Any, block: Any, data: SplitData) -> Any:
    """Return the price of a year's energy in a scenario, and of the curtailed work, in M$."""
    curtailed = data.grid.rules.curtailment_usd_per_mwh * HOURS_PER_YEAR * data.module_mw / 1e6
    total = sum(data.energy_musd(s) * block.modules[s] for s in data.candidates)
    total += curtailed * sum(m.modules[s] - block.modules[s] for s in data.candidates)
    extra = m.component("extra_mw")
    if extra is None:
        return total
    beside = sum(data.energy_musd(s) * block.extra_mw[s] for s in data.candidates)
    beside += curtailed * sum(extra[s] - block.extra_mw[s] for s in data.candidates)
    return total + beside / data.module_mw


def expected_musd(m: Any, data: SplitData, own_musd: Any) -> Any:
    """Return the price of a year's energy: the worst of the grid's own year and the scenarios, or the weighted mean."""
    by_name = scenarios(data)
    if not by_name:
        return own_musd
    costs = {n: energy_musd(m, block_of(m, n), year) for n, year in by_name.items()}
    if data.grid.rules.scenarios == "expected":
        own, weight = weights(data)
        return own * own_musd + sum(weight[n] * x for n, x in costs.items())
    if m.component("worst_energy") is None:
        dearest = max(year.energy_musd(s) for year in (data, *by_name.values()) for s in data.candidates)
        limit = dearest * sum(m.modules[s].ub for s in data.candidates)
        m.worst_energy = pyo.Var(domain=pyo.NonNegativeReals, bounds=(0, limit))
        m.worst = pyo.Constraint([*costs, ""], rule=lambda m, n: m.worst_energy >= (costs[n] if n else own_musd))
    return m.worst_energy
