"""What stops a split from holding one module more: the rules without room for it, read off the decision itself."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import networkx as nx
import pyomo.environ as pyo
from networkx.algorithms.flow import shortest_augmenting_path

from planner.models.sites.bounds import module_capital_musd
from planner.models.sites.data import Question
from planner.models.sites.grid.dc_network import System
from planner.models.sites.rules import RULES, build, label
from planner.models.sites.scenarios import blocks
from planner.physics.site import power, wan
from planner.solvers import lazy_constraints

# Rules on pairs are equalities by their form and would always be named; power flow is judged by cuts.
_BY_SLACK = (
    "area",
    "budget",
    "facility_power",
    "fault_split",
    "headroom",
    "interconnect",
    "min_site",
    "pins",
    "share_balance",
    "site_count",
)
_TIGHT = 2e-6  # Of rows that count something else than modules: above what rounding leaves.
_WATTS = 1e6  # Whole watts per MW: cuts over whole numbers end.


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One scenario: what each site draws, what plants feed in and corridors carry, in MW."""

    running: dict[str, float]
    generated: dict[str, float]
    flow: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decisions in plain numbers, out of the solver's hands."""

    modules: dict[str, int]
    circuits: dict[str, int]
    generated: dict[str, float]
    flow: dict[str, float]
    steps: dict[str, int] = field(default_factory=dict)
    excess: dict[str, float] = field(default_factory=dict)
    scenarios: dict[str, Run] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Modules of all sites."""
        return sum(self.modules.values())


def binding(q: Question, m: Any, held: Decision) -> tuple[str, ...]:
    """Name the rows in which one more module would not fit, and the counts that are used up."""
    _settle(q, m, held)
    names = {"demand"} if q.request.racks is not None else set()
    for year in blocks(m, q):
        # A year in which sites may run less stops nothing.
        if year.told and q.grid.rules.scenarios != "robust":
            continue
        run = held.scenarios[year.name] if year.told else held
        found = _by_slack(year.q, year.block, held, ("headroom",) if year.told else _BY_SLACK)
        found |= (
            _power_cuts(year.q, replace(held, generated=run.generated, flow=run.flow)) if q.system is None else set()
        )
        names |= {name + year.told for name in found}
    return tuple(sorted(names | (_angle_cuts(q, q.system, held) if q.system is not None else set())))


def _by_slack(q: Question, block: Any, held: Decision, families: tuple[str, ...]) -> set[str]:
    names = set()
    for family in (name for name in families if block.component(name) is not None):
        for index, row in block.component(family).items():
            key = index[0] if isinstance(index, tuple) else index
            # A place without a site stops nothing.
            if family in ("area", "interconnect", "min_site") and key not in held.modules:
                continue
            if family == "headroom" and not any(q.candidates[s].balancing_authority == key for s in held.modules):
                continue
            if min(row.uslack(), row.lslack()) < _one_module(q, family, key) - 1e-6:
                names.add(label(family, index))
    return names


def _settle(q: Question, m: Any, held: Decision) -> None:
    """Set the variables to what the decision means; the solver may leave slack in those that help it."""
    for s in q.candidates:
        m.open[s].set_value(int(s in held.modules))
        m.modules[s].set_value(held.modules.get(s, 0))
    for k in m.circuits:
        m.circuits[k].set_value(held.circuits.get(k, 0))
    for s in m.steps:
        m.steps[s].set_value(held.steps.get(s, 0))
    n = len(held.modules)
    for a, b in m.pair:
        waves = (q.wavelengths((a, b), n) or 0) if a in held.modules and b in held.modules else 0
        m.pair[a, b].set_value(int(a in held.modules and b in held.modules))
        if not m.known_sites:
            m.wavelengths[a, b].set_value(waves)
            m.fibres[a, b].set_value(wan.fibre_pairs(q.wan, waves))
    reached = {q.interconnection(s) for s in held.modules}
    for i in m.component("reached") or ():
        m.reached[i].set_value(int(i in reached))
    for k in m.component("built") or ():
        m.built[k].set_value(int(k in held.circuits))


def _one_module(q: Question, family: str, index: Any) -> float:
    """Say what one more module takes of a row's slack."""
    return {
        "facility_power": q.module_mw,
        "headroom": q.module_mw,
        "interconnect": q.grid.rules.interconnect.share * q.module_mw,
        "area": (power.cooling_m2(q.hardware, q.module_racks) or 0.0) / 1e3,
        "budget": module_capital_musd(q)
        + q.instance.limits.operation_years * min(q.energy_musd(s) for s in q.candidates),
        "fault_split": _TIGHT if index == "min_interconnections" else 1 - q.grid.rules.fault_split.max_share,
    }.get(family, _TIGHT)


def _power_cuts(q: Question, held: Decision) -> set[str]:
    """Name the plants, authorities and corridors that keep power for one more module from an open site.

    They are a smallest cut in what is left of the grid when the flows held may be rerouted.
    """
    if q.grid.rules.grid_model == "none":
        return _area_cuts(q, held)
    left = _residual(q, held)
    names: set[str] = set()
    for s in sorted(held.modules):
        far = _short_of(left, ("node", s), q.module_mw * _WATTS - 1)
        names |= {name for a, b, name in left.edges(data="name") if name and a not in far and b in far}
    return names


def _short_of(left: nx.DiGraph, node: tuple[str, str], enough: float) -> set[Any]:
    """Return the node's side of a smallest cut between it and the plants; nothing where enough comes through."""
    rest = shortest_augmenting_path(left, "plants", node, cutoff=enough)
    if rest.graph["flow_value"] >= enough:
        return set()
    rest.remove_edges_from([(a, b) for a, b, d in rest.edges(data=True) if d["flow"] == d["capacity"]])
    return set(nx.ancestors(rest, node)) | {node}


def _angle_cuts(q: Question, system: System, held: Decision) -> set[str]:
    """Name the plants, authorities, corridors and outages that keep one more module from an open site, whatever the plants feed in.

    They are the rows with a price when the most that one site can draw beside the others is sought.
    """
    m = build(q, without=set(RULES) - {"generation", "rating", "security"})
    m.goal = pyo.Objective(expr=0.0)
    stated: dict[str, str] = {}
    for year in blocks(m, q):
        # What a plant can spare must stop it as a row with a name, and not as a bound.
        for fed in year.block.generated.values():
            fed.setub(None)
        # Balances and what only ties variables together are no rules.
        stated |= {row.name: name + year.told for name, row in _power_rows(year.block)}
    names = set()
    modules = {system.modules_at + i: float(held.modules.get(s, 0)) for i, s in enumerate(system.candidates)}
    binaries = {system.open_at + i: float(s in held.modules) for i, s in enumerate(system.candidates)}
    binaries |= {
        system.stands_at + i: float(j < held.circuits.get(k, 0)) for i, (k, j) in enumerate(system.circuits_to_build)
    }
    search = lazy_constraints.Search(m, m.lazy, {"threads": 1}, None)
    for at in (at for at, n in modules.items() if n):
        names |= search.stops(at, modules[at] + 1.0, {**{i: n for i, n in modules.items() if i != at}, **binaries})
    return {stated.get(name, name) for name in names if name in stated or name.startswith(("rating[", "security["))}


def _power_rows(block: Any) -> Iterator[tuple[str, Any]]:
    """Yield the rows of the power flow of one year, each with its name."""
    for family in ("generation", "new_rating", "security", "security_asked"):
        for index, row in block.component(family).items() if block.component(family) is not None else ():
            yield label(family.removesuffix("_asked").replace("new_rating", "rating"), index), row


def _area_cuts(q: Question, held: Decision) -> set[str]:
    names = set()
    for b in q.authorities:
        used = sum(n for s, n in held.modules.items() if q.candidates[s].balancing_authority == b) * q.module_mw
        spare = sum(n.generation_mw for n in q.grid.nodes if n.balancing_authority == b)
        if used and spare - used < q.module_mw - 1e-6:
            names.add(label("generation", (b, "authority")))
    return names


def _residual(q: Question, held: Decision) -> nx.DiGraph:
    """Return what the grid can carry beside the decision: plants feed authorities' nodes, corridors join nodes."""
    left = nx.DiGraph()

    def edge(a: Any, b: Any, mw: float | None, name: str | None = None) -> None:
        # Without a capacity, an edge is unlimited.
        left.add_edge(a, b, name=name, **({} if mw is None else {"capacity": max(round(mw * _WATTS), 0)}))

    for b, authority in q.authorities.items():
        fed = sum(held.generated.get(n.id, 0.0) for n in q.grid.nodes if n.balancing_authority == b)
        edge(
            "plants",
            ("authority", b),
            authority.headroom_mw - fed if q.grid.rules.headroom else None,
            label("generation", b),
        )
    for n in sorted(q.grid.nodes, key=lambda n: n.id):
        fed = held.generated.get(n.id, 0.0)
        edge(("authority", n.balancing_authority), ("node", n.id), n.generation_mw - fed, label("generation", n.id))
        edge(("node", n.id), ("authority", n.balancing_authority), fed)
    for k, c in q.corridors.items():
        carries = c.rating_mw * (held.circuits.get(k, 0) if c.new else c.circuits)
        flow = held.flow.get(k, 0.0)
        for a, b, spare in ((c.a, c.b, carries - flow), (c.b, c.a, carries + flow)):
            # A stop of its own keeps parallel corridors apart.
            edge(("node", a), ("line", k, a), spare, label("rating", k) if carries else None)
            edge(("line", k, a), ("node", b), None)
    return left
