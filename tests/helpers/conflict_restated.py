"""The rules of sites once more: a small model of its own, read from the instance, to test the formulation against.

It shares no row, bound or data set with `planner/models/sites/`, and another library hands it to the solver.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from planner.instance.grid import Grid, PowerNode
from planner.instance.instance import Instance
from planner.instance.network import Wan
from planner.physics.site import cost, fibre, wan
from planner.physics.site.grid import normal_share, usable_interconnect_mw

STATED = frozenset(
    (
        *("area", "budget", "demand", "facility_power", "fault_split", "generation"),
        *("headroom", "interconnect", "min_site", "pins", "rating", "ready", "rtt", "site_count", "wan_capacity"),
    )
)
# Stated without what fibre costs, as if all circuits were built, and of the wide area only which sites no fibre joins.
EASED = frozenset(("budget", "interconnect", "wan_capacity"))
MANY = 100
MOST_MODULES = 1e5  # of a site: of more a solver's tolerance of open sites would count
Name = tuple[str, Hashable]
Row = dict[Name, float]


@dataclass
class LinearRows:
    """Variables with their bounds, and rows low <= sum <= high."""

    columns: dict[Name, int] = field(default_factory=dict)
    high: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    rows: list[tuple[Row, float, float]] = field(default_factory=list)

    def variable(self, name: Name, high: float, *, low: float = 0.0, whole: bool = False) -> None:
        """Add a variable."""
        self.columns[name] = len(self.columns)
        self.low.append(low)
        self.high.append(high)
        self.whole.append(int(whole))

    def require(self, row: Row, low: float = -np.inf, high: float | None = np.inf) -> None:
        """Add a row; none where its limit is None, one that the instance does not give."""
        if high is not None:
            self.rows.append((row, low, high))

    def feasible(self) -> bool | None:
        """Return whether values exist that keep all rows; None without an answer."""
        matrix = np.zeros((len(self.rows), len(self.columns)))
        for i, (row, _, _) in enumerate(self.rows):
            for name, factor in row.items():
                matrix[i, self.columns[name]] += factor
        low, high = (np.array([r[k] for r in self.rows]) for k in (1, 2))
        found = milp(
            np.zeros(len(self.columns)),
            constraints=LinearConstraint(matrix, low, high),
            bounds=Bounds(np.array(self.low), np.array(self.high)),
            integrality=np.array(self.whole),
        )
        return {0: True, 2: False}.get(found.status)


@dataclass(frozen=True)
class ConflictQuestion:
    """The question of a conflict: the instance, its grid, and a lower bound on the price of a rack's fabric."""

    instance: Instance
    grid: Grid
    fabric_usd_per_rack: float

    @property
    def sites(self) -> list[PowerNode]:
        """Nodes that may hold a site."""
        return [n for n in self.grid.nodes if n.site]

    @property
    def module_mw(self) -> float:
        """Draw of a module at the grid connection."""
        h = self.instance.hardware
        return cost.facility_mw(h, h.racks_per_module)

    @property
    def most_modules(self) -> float:
        """Modules of a site above which a split need not go: those pinned, or many times all that is asked for."""
        # Fewer keep every limit that more do, in the same shares.
        pins, racks = self.instance.pins, self.instance.hardware.racks_per_module
        pinned = sum(n for path, n in pins.items() if path.startswith("sites.racks") and isinstance(n, int)) / racks
        return MANY * (self.grid.rules.min_site_modules * len(self.sites) + 1) + pinned

    def draw(self, sites: Iterable[PowerNode]) -> Row:
        """Return the load of some sites in MW."""
        return {("modules", n.id): self.module_mw for n in sites}

    @cached_property
    def reach(self) -> fibre.Reach:
        """How far the sites are apart over the fibre, and which of them it does not join."""
        return fibre.reach(self.instance.wan or Wan(), {n.id: (n.latitude, n.longitude) for n in self.sites})

    def areas(self) -> dict[str, list[PowerNode]]:
        """Group the sites by balancing authority."""
        found: dict[str, list[PowerNode]] = defaultdict(list)
        for n in self.sites:
            found[n.balancing_authority].append(n)
        return found


def holds(instance: Instance, rules: Collection[str], fabric_usd_per_rack: float = 0.0) -> bool | None:
    """Return whether some split keeps the rules named; None where that is not known here."""
    # A split that only the eased rules allow is not known to be one, and neither is one on circuits that are to be
    # built, whose flows the DC equations are not asked of.
    grid = instance.grid
    if grid is None or not set(rules) <= STATED:
        return None
    if grid.rules.soft or grid.rules.scenarios != "off":
        return None
    q, m = ConflictQuestion(instance, grid, fabric_usd_per_rack), LinearRows()
    if q.most_modules > MOST_MODULES:
        return None
    _variables(q, m)
    for name in sorted(rules):
        ROWS[name](q, m)
    answer = m.feasible()
    eased = EASED & set(rules) or (grid.rules.grid_model == "dc" and grid.new_lines)
    return None if answer and eased else answer


def _variables(q: ConflictQuestion, m: LinearRows) -> None:
    """Add the variables, the ties of modules to open sites, and, where lines carry flows, the balance of each node."""
    for n in q.sites:
        m.variable(("open", n.id), 1, whole=True)
        m.variable(("modules", n.id), q.most_modules, whole=True)
        m.require({("modules", n.id): 1, ("open", n.id): -q.most_modules}, high=0)
        m.require({("modules", n.id): 1, ("open", n.id): -1}, low=0)
    for k in q.grid.new_lines:
        m.variable(("built", k.id), k.max_circuits, whole=True)
    for n in q.sites:
        if n.upgrade:
            m.variable(("steps", n.id), n.upgrade.max_steps, whole=True)
    if q.grid.rules.grid_model == "none":
        return
    lines = [(k.id, k.a, k.b) for k in q.grid.lines] + [(k.id, k.a, k.b) for k in q.grid.new_lines]
    for name, _, _ in lines:
        m.variable(("flow", name), np.inf, low=-np.inf)
    for n in q.grid.nodes:
        m.variable(("fed", n.id), np.inf)
        row: Row = {("fed", n.id): 1}
        for name, a, b in lines:
            row |= {("flow", name): 1.0 if b == n.id else -1.0} if n.id in (a, b) and a != b else {}
        row |= {key: -mw for key, mw in q.draw([n] if n.site else []).items()}
        m.require(row, n.load_mw, n.load_mw)
    if q.grid.rules.grid_model == "dc":
        _angles(q, m)


def _angles(q: ConflictQuestion, m: LinearRows) -> None:
    """Require the DC flow of each existing line: flow · reactance / circuits is the difference of its ends' angles."""
    # Angles are in MW at a reactance of 1 per unit.
    for n in q.grid.nodes:
        m.variable(("angle", n.id), np.inf, low=-np.inf)
    for k in q.grid.lines:
        row: Row = {("angle", k.a): 1.0, ("angle", k.b): -1.0} if k.a != k.b else {}
        m.require(row | {("flow", k.id): -(k.reactance_pu or 0.0) / k.circuits}, 0, 0)


def _demand(q: ConflictQuestion, m: LinearRows) -> None:
    m.require({("modules", n.id): 1 for n in q.sites}, low=1)


def _pins(q: ConflictQuestion, m: LinearRows) -> None:
    racks, pins = q.instance.hardware.racks_per_module, q.instance.pins
    for path, value in pins.items():
        if path == "sites.racks":
            m.require({("modules", n.id): racks for n in q.sites}, value, value)
        elif path == "sites.max_sites":
            m.require({("open", n.id): 1 for n in q.sites}, high=value)
        elif path.startswith("sites.racks."):
            m.require({("modules", path.removeprefix("sites.racks.")): racks}, value, value)


def _budget(q: ConflictQuestion, m: LinearRows) -> None:
    h, grid, limits = q.instance.hardware, q.grid, q.instance.limits
    if limits.budget_usd is None:
        return
    fixed = cost.site_capex_usd(grid, it_mw=0, facility_mw=0)
    built = cost.site_capex_usd(grid, it_mw=cost.it_mw(h, h.racks_per_module), facility_mw=q.module_mw) - fixed
    module = built + h.racks_per_module * (cost.rack_of(h).price_usd + q.fabric_usd_per_rack)
    price = {b.id: b.energy_usd_per_mwh for b in grid.balancing_authorities}
    row: Row = {("built", k.id): k.capex_usd for k in grid.new_lines}
    for n in q.sites:
        energy = limits.budgeted_years * cost.energy_usd_per_year(q.module_mw, price[n.balancing_authority])
        row |= {("open", n.id): fixed, ("modules", n.id): module + energy}
        row |= {("steps", n.id): n.upgrade.capex_usd} if n.upgrade else {}
    m.require({name: usd / 1e6 for name, usd in row.items()}, high=limits.budget_usd / 1e6)


def _fault_split(q: ConflictQuestion, m: LinearRows) -> None:
    rule, side = q.grid.rules.fault_split, {b.id: b.interconnection for b in q.grid.balancing_authorities}
    if not rule.enabled:
        return
    sides = sorted({side[n.balancing_authority] for n in q.sites})
    for x in sides:
        there = [n for n in q.sites if side[n.balancing_authority] == x]
        m.variable(("reached", x), 1)
        m.require({("reached", x): 1, **{("open", n.id): -1 for n in there}}, high=0)
        share: Row = {("modules", n.id): -rule.max_share for n in q.sites}
        for n in there:
            share[("modules", n.id)] += 1
        m.require(share, high=0)
    m.require({("reached", x): 1 for x in sides}, low=rule.min_interconnections)


def _headroom(q: ConflictQuestion, m: LinearRows) -> None:
    limit = {b.id: b.headroom_mw for b in q.grid.balancing_authorities}
    for area, sites in q.areas().items() if q.grid.rules.headroom else ():
        m.require(q.draw(sites), high=limit[area])


def _generation(q: ConflictQuestion, m: LinearRows) -> None:
    rules = q.grid.rules
    for n in q.grid.nodes if rules.generation and rules.grid_model != "none" else ():
        m.require({("fed", n.id): 1}, high=n.generation_mw)
    for area, sites in q.areas().items() if rules.generation and rules.grid_model == "none" else ():
        spare = sum(n.generation_mw - n.load_mw for n in q.grid.nodes if n.balancing_authority == area)
        m.require(q.draw(sites), high=max(0.0, spare))


def _rating(q: ConflictQuestion, m: LinearRows) -> None:
    share = normal_share(q.grid)
    for sign in (1, -1) if q.grid.rules.grid_model != "none" else ():
        for k in q.grid.lines:
            m.require({("flow", k.id): sign}, high=share * k.rating_mw * k.circuits)
        for x in q.grid.new_lines:
            m.require({("flow", x.id): sign, ("built", x.id): -share * x.rating_mw}, high=0)


def _min_site(q: ConflictQuestion, m: LinearRows) -> None:
    for n in q.sites:
        m.require({("modules", n.id): 1, ("open", n.id): -q.grid.rules.min_site_modules}, low=0)


def _area(q: ConflictQuestion, m: LinearRows) -> None:
    density = q.instance.hardware.cooling_kw_per_m2
    for n in q.sites:
        if n.area_m2 is not None and density is not None:
            m.require(q.draw([n]), high=n.area_m2 * density / 1e3)


def _interconnect(q: ConflictQuestion, m: LinearRows) -> None:
    every = {k.id: k.max_circuits for k in q.grid.new_lines}
    for n in q.sites if q.grid.rules.interconnect.enabled else ():
        usable = usable_interconnect_mw(q.grid, n, every, n.upgrade.max_steps if n.upgrade else 0) or 0.0
        fewest = usable_interconnect_mw(q.grid, n, {}, 0) or 0.0
        counted = q.draw([n])
        if q.grid.rules.interconnect.reading == "import_share":
            apart = q.grid.rules.grid_model == "none"
            counted[("open", n.id)] = n.load_mw - (n.generation_mw if apart else 0.0)
            counted |= {} if apart else {("fed", n.id): -1.0}
        m.require({key: mw * q.grid.rules.interconnect.share for key, mw in counted.items()}, high=max(usable, fewest))


def _ready(q: ConflictQuestion, m: LinearRows) -> None:
    limit = q.grid.rules.ready_within_months
    late: list[Name] = []
    if limit is not None:
        late += [("open", n.id) for n in q.sites if n.ready_months > limit]
        late += [("steps", n.id) for n in q.sites if n.upgrade and n.upgrade.lead_months > limit]
        late += [("built", k.id) for k in q.grid.new_lines if k.lead_months > limit]
    for name in late:
        m.require({name: 1}, high=0)


def _one_of(m: LinearRows, pairs: Iterable[tuple[str, str]]) -> None:
    """State that at most one site of each pair is open."""
    for a, b in pairs:
        m.require({("open", a): 1, ("open", b): 1}, high=1)


def _rtt(q: ConflictQuestion, m: LinearRows) -> None:
    limit, links = q.grid.rules.max_rtt_ms, q.instance.wan or Wan()
    far = (pair for pair, km in q.reach.km.items() if limit is not None and wan.rtt_ms(links, km) > limit)
    _one_of(m, far)


ROWS: dict[str, Callable[[ConflictQuestion, LinearRows], None]] = {
    "area": _area, "budget": _budget, "demand": _demand,
    "facility_power": lambda q, m: m.require(q.draw(q.sites), high=q.instance.limits.facility_power_mw),
    "fault_split": _fault_split, "generation": _generation, "headroom": _headroom, "interconnect": _interconnect,
    "min_site": _min_site, "pins": _pins, "rating": _rating, "ready": _ready, "rtt": _rtt,
    "site_count": lambda q, m: m.require({("open", n.id): 1 for n in q.sites}, high=q.grid.rules.max_sites),
    "wan_capacity": lambda q, m: _one_of(m, q.reach.disconnected),
}  # fmt: skip
