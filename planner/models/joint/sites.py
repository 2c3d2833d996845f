"""Which sites hold the blocks of a column, on which fabrics, and what joins them.

a MILP over the grid, cheapest first. The grid's rules are those of the site split; the rules here tie them to the
blocks. A part is a number of blocks that stand at one site.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyomo.environ as pyo

from planner.errors import InputError
from planner.instance.instance import Instance
from planner.models.joint.space import DEFAULT_WAN
from planner.models.requests import SitesRequest, resolved_switches
from planner.models.sites.bounds import max_modules, max_sites
from planner.models.sites.costs import capital_musd, energy_musd, site_musd
from planner.models.sites.data import SplitData, gather
from planner.models.sites.model import build
from planner.models.sites.rules import registry
from planner.models.sites.soft_rules import penalty_musd
from planner.physics.network.price import min_endpoint_usd
from planner.physics.site import cost, power
from planner.solvers import highs
from planner.solvers.deadline import Deadline

LEFT_OUT = ("budget",)  # the budget limits the capital of the entire plan, in the search
CENT_MUSD = 1e-8


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks at one site: their number, racks in use, and the fabrics that it may have.

    As prices in USD and power in MW.
    """

    blocks: int
    racks: int
    fabrics: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Circuit:
    """What joins every two sites with blocks: wavelengths, and the longest round trip that they may have."""

    wavelengths: int
    max_rtt_ms: float


@dataclass(frozen=True, slots=True)
class Placed:
    """The cheapest sites for some parts.

    The part and the fabric of each, racks and modules, new circuits, and the capital in USD.
    """

    parts: dict[str, tuple[int, int]]
    racks: dict[str, int]
    circuits: dict[str, int]
    steps: dict[str, int]
    pairs: tuple[tuple[str, str], ...]
    rtt_ms: float
    capital_usd: float


@dataclass(kw_only=True)
class Sites:
    """The sites of an instance with a grid, and what was learned of them."""

    instance: Instance
    overhead_includes_fabric: bool = False
    seed: int = 0
    solved: int = 0
    placed: dict[Any, Placed | None] = field(default_factory=dict)
    most: dict[int, int] = field(default_factory=dict)
    deadline: Deadline = field(default_factory=Deadline)  # of the search; an answer cut short by it is not returned

    def __post_init__(self) -> None:
        """Gather the question once."""
        instance = (
            self.instance if self.instance.wan is not None else self.instance.model_copy(update={"wan": DEFAULT_WAN})
        )
        self.data: SplitData = gather(instance, SitesRequest())
        if self.data.wan.designed:
            raise InputError("wan: a design of routes and protection has no place in the joint optimum yet")
        if self.counts_power and self.data.network is not None:
            raise InputError("grid.rules.grid_model: under dc the overhead factor must include the fabric's power")

    @property
    def counts_power(self) -> bool:
        """Whether a fabric's power is load beside that of the racks."""
        return self.instance.network is not None and not self.overhead_includes_fabric

    @property
    def max_open(self) -> int:
        """Most sites that may be open."""
        return max_sites(self.data, registry.without())

    @property
    def min_open(self) -> int:
        """Fewest sites that may be open."""
        split = self.data.grid.rules.fault_split
        return split.min_interconnections if split.on else 1

    def rtts_ms(self) -> list[float]:
        """List the round trips of all pairs, the shortest first."""
        limit = self.data.grid.rules.max_rtt_ms
        found = sorted({self.data.rtt_ms(p) for p in self.data.pairs if p not in self.data.disconnected})
        return [x for x in found if limit is None or x <= limit]

    def min_route_km(self) -> float:
        """Length of the shortest route between two sites."""
        return min((km for p, km in self.data.pairs.items() if p not in self.data.disconnected), default=0.0)

    def floor_usd(self, racks: int, sites: int) -> float:
        """Bound the capital of so many racks at so many sites from below, without fabric, fibre, lines and upgrades."""
        fixed, module = site_musd(self.data)
        modules = -(-racks // self.data.module_racks)
        racks_usd = modules * self.data.module_racks * power.rack_of(self.data.hardware).price_usd
        return float(1e6 * (fixed * sites + module * modules) + racks_usd)

    def fibre_usd(self, km: float, wavelengths: int) -> float:
        """Price of the fibre of a pair of sites."""
        return cost.wan_fibre_usd(self.data.wan, km, wavelengths) + cost.wan_wavelength_usd(self.data.wan, wavelengths)

    def max_racks(self, rails: int) -> int:
        """Bound the racks that any plan can have with so many GPUs of each cabled.

        The cheapest link and leaf port for each, free fibre.
        """
        if rails not in self.most:
            self.most[rails] = self._most_racks(rails)
        return self.most[rails]

    def min_fabric_usd(self, rails: int) -> float:
        """Price the least fabric of a rack with so many GPUs cabled.

        For each its link and a port of the cheapest leaf.
        """
        network = self.instance.network
        return (
            0.0
            if network is None
            else rails * min(min_endpoint_usd(network, s) for s in resolved_switches(network.switches))
        )

    def _most_racks(self, rails: int) -> int:
        h = self.data.hardware
        data = gather(self.data.instance, SitesRequest(fabric_usd_per_rack=self.min_fabric_usd(rails)))
        m = build(data)
        m.goal = pyo.Objective(expr=sum(m.modules.values()), sense=pyo.maximize)
        outcome = highs.run(m, absolute_gap=0.99, seed=self.seed, time_limit=self.deadline.limit)
        self.solved += 1
        self.deadline.check()
        if outcome.infeasible:
            return 0
        limit = max_modules(data, registry.without())
        most = limit if outcome.bound is None else min(limit, math.floor(outcome.bound + 1e-6))
        return most * h.racks_per_module

    def cheapest(self, parts: tuple[Part, ...], circuit: Circuit | None) -> Placed | None:
        """Return the cheapest sites for some parts, each at a site of its own; None where there are none."""
        key = parts, circuit
        if key not in self.placed:
            self.placed[key] = self._cheapest(parts, circuit)
        return self.placed[key]

    def _cheapest(self, parts: tuple[Part, ...], circuit: Circuit | None) -> Placed | None:
        kinds = sorted(Counter(parts).items(), key=lambda x: (-x[0].blocks, x[0].racks))
        overhead = self.data.hardware.facility_overhead_factor
        extra = sum(max(mw for _, mw in p.fabrics) for p in parts) * overhead if self.counts_power else 0.0
        m = build(self.data, without=LEFT_OUT, extend=lambda m: _add_parts(m, self, kinds), max_extra_mw=extra)
        for rule in (place_parts, host_blocks, choose_fabrics, join_sites, limit_round_trips):
            rule(m, self, kinds, circuit)
        m.goal = pyo.Objective(expr=total_musd(m, self, kinds, circuit))
        outcome = highs.run(m, absolute_gap=CENT_MUSD, seed=self.seed, time_limit=self.deadline.limit)
        self.solved += 1
        self.deadline.check()
        if outcome.solution is None:
            if not outcome.infeasible:
                raise RuntimeError(f"joint sites: the MILP ended without an answer ({outcome.detail})")
            return None
        return _read(m, self, kinds, outcome.solution, circuit)


Kinds = list[tuple[Part, int]]


def _add_parts(m: Any, s: Sites, kinds: Kinds) -> None:
    """Create what holds which part, on which fabric, and the fabrics' load where it counts."""
    candidates = list(s.data.candidates)
    m.part = pyo.Var(candidates, range(len(kinds)), domain=pyo.Binary)
    choices = [(x, k, f) for x in candidates for k, (p, _) in enumerate(kinds) for f in range(len(p.fabrics))]
    m.fabric = pyo.Var(
        choices,
        domain=pyo.NonNegativeReals if all(len(p.fabrics) == 1 for p, _ in kinds) else pyo.Binary,
        bounds=(0, 1),
    )
    if s.counts_power:
        overhead = s.data.hardware.facility_overhead_factor
        m.extra_mw = pyo.Expression(
            candidates,
            rule=lambda m, x: (
                overhead * sum(kinds[k][0].fabrics[f][1] * m.fabric[y, k, f] for y, k, f in choices if y == x)
            ),
        )


def place_parts(m: Any, s: Sites, kinds: Kinds, _: Circuit | None) -> None:
    """Place every part at a site, and no two at one."""
    m.place_parts = pyo.Constraint(
        range(len(kinds)), rule=lambda m, k: sum(m.part[x, k] for x in s.data.candidates) == kinds[k][1]
    )
    m.one_part = pyo.Constraint(
        list(s.data.candidates), rule=lambda m, x: sum(m.part[x, k] for k in range(len(kinds))) <= m.open[x]
    )


def host_blocks(m: Any, s: Sites, kinds: Kinds, _: Circuit | None) -> None:
    """Hold the racks of a site's blocks, in whole modules."""
    modules = [-(-p.racks // s.data.module_racks) for p, _ in kinds]
    m.host_blocks = pyo.Constraint(
        list(s.data.candidates), rule=lambda m, x: m.modules[x] >= sum(n * m.part[x, k] for k, n in enumerate(modules))
    )


def choose_fabrics(m: Any, s: Sites, kinds: Kinds, _: Circuit | None) -> None:
    """Build one fabric for each part."""
    where = [(x, k) for x in s.data.candidates for k in range(len(kinds))]
    m.choose_fabrics = pyo.Constraint(
        where, rule=lambda m, x, k: sum(m.fabric[x, k, f] for f in range(len(kinds[k][0].fabrics))) == m.part[x, k]
    )


def join_sites(m: Any, s: Sites, kinds: Kinds, circuit: Circuit | None) -> None:
    """Light the fibre between every two sites that hold blocks."""
    m.lit = pyo.Var(list(s.data.pairs) if circuit else [], domain=pyo.NonNegativeReals, bounds=(0, 1))
    holds = {x: sum(m.part[x, k] for k in range(len(kinds))) for x in s.data.candidates}
    m.join_sites = pyo.Constraint(list(m.lit), rule=lambda m, a, b: m.lit[a, b] >= holds[a] + holds[b] - 1)


def limit_round_trips(m: Any, s: Sites, kinds: Kinds, circuit: Circuit | None) -> None:
    """Hold no blocks at two sites farther apart than the exchange is timed for."""
    far = [p for p in s.data.pairs if circuit is not None and s.data.rtt_ms(p) > circuit.max_rtt_ms * (1 + 1e-12)]
    holds = {x: sum(m.part[x, k] for k in range(len(kinds))) for x in s.data.candidates}
    m.limit_round_trips = pyo.Constraint(far, rule=lambda _, a, b: holds[a] + holds[b] <= 1)


def total_musd(m: Any, s: Sites, kinds: Kinds, circuit: Circuit | None) -> Any:
    """Capital of sites, racks, lines, fabrics and fibre, the counted years of energy.

    And a year's penalties of soft rules, in M$.
    """
    prices, h = s.data.grid.prices, s.data.hardware
    fabrics = sum(kinds[k][0].fabrics[f][0] / 1e6 * m.fabric[x, k, f] for x, k, f in m.fabric)
    fibre = (
        sum(s.fibre_usd(s.data.pairs[p], circuit.wavelengths) / 1e6 * m.lit[p] for p in m.lit)
        if circuit is not None
        else 0.0
    )
    total = capital_musd(m, s.data) + fabrics + fibre + penalty_musd(m, s.data)
    years = s.instance.limits.operation_years
    total += years * energy_musd(m, s.data) if years else 0.0
    if s.counts_power:
        each = prices.building_usd_per_it_mw / h.facility_overhead_factor + prices.interconnection_usd_per_mw
        total += sum(m.extra_mw[x] * (each / 1e6 + years * _energy_musd_per_mw(s, x)) for x in s.data.candidates)
    return total


def _energy_musd_per_mw(s: Sites, site: str) -> float:
    return s.data.energy_musd(site) / s.data.module_mw


def _read(m: Any, s: Sites, kinds: Kinds, values: highs.Values, circuit: Circuit | None) -> Placed:
    """Read a solution; the capital is added up recompute from whole decisions."""
    for var in m.component_data_objects(pyo.Var):
        x = values.of(var)
        var.set_value(round(x) if var.is_integer() or var.is_binary() else x, skip_validation=True)
    parts: dict[str, tuple[int, int]] = {}
    for x, k in m.part:
        if m.part[x, k].value > 0.5:
            f = max(range(len(kinds[k][0].fabrics)), key=lambda f: m.fabric[x, k, f].value)
            parts[x] = k, f
            for other in range(len(kinds[k][0].fabrics)):
                m.fabric[x, k, other].set_value(float(other == f))
    sites = sorted(parts)
    pairs = tuple(p for p in s.data.pairs if p[0] in parts and p[1] in parts)
    for p in m.lit:
        m.lit[p].set_value(float(p in pairs))
    return Placed(
        parts={x: parts[x] for x in sites},
        racks={
            x: round(m.modules[x].value) * s.data.module_racks for x in s.data.candidates if m.modules[x].value > 0.5
        },
        circuits={k: round(m.circuits[k].value) for k in m.circuits if m.circuits[k].value > 0.5},
        steps={k: round(m.steps[k].value) for k in m.steps if m.steps[k].value > 0.5},
        pairs=pairs if circuit is not None else (),
        rtt_ms=max((s.data.rtt_ms(p) for p in pairs), default=0.0),
        capital_usd=float(pyo.value(total_musd(m, s, kinds, circuit))) * 1e6,
    )
