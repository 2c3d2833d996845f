"""A solution of the site split in plain numbers, read out of the solver's hands."""

from dataclasses import dataclass, field
from typing import Any

import pyomo.core as pyo

from planner.models.sites.data import SplitData
from planner.models.sites.grid.power_flow import flows_of
from planner.models.sites.rules.rule import load_mw
from planner.models.sites.scenarios import block_of, scenarios
from planner.models.sites.soft_rules import excess_of
from planner.solvers import highs


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

    @property
    def total(self) -> int:
        """Modules of all sites."""
        return sum(self.modules.values())


def read(m: Any, data: SplitData, values: highs.Values) -> SplitSolution:
    """Read a solution, integers rounded, and set the model to it."""
    for var in m.component_data_objects(pyo.Var):
        x = values.of(var)
        var.set_value(round(x) if var.is_integer() or var.is_binary() else x, skip_validation=True)
    years = {name: dispatch(block_of(m, name), year) for name, year in scenarios(data).items()}
    own = dispatch(m, data)
    return SplitSolution(
        modules=_counts(m.modules),
        circuits=_counts(m.circuits),
        generated=own.generated,
        flow=own.flow,
        steps=_counts(m.steps),
        excess=excess_of(m),
        scenarios=years,
    )


def _counts(variables: Any) -> dict[str, int]:
    return {k: n for k, v in variables.items() if (n := round(v.value))}


def dispatch(block: Any, data: SplitData) -> Dispatch:
    """Read the power of one year."""
    load = {s: pyo.value(load_mw(block, data, [s])) for s, x in block.modules.items() if x.value > 1e-9}
    network = data.network
    flow = {k: v.value for k, v in block.flow.items()} if network is None else flows_of(block, network)
    return Dispatch(load=load, generated={n: v.value for n, v in block.generated.items()}, flow=flow)
