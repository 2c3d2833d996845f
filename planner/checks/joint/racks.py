"""The most racks that money and power allow, by arithmetic on single limits: no plan has more, some have fewer."""

import math
from collections import defaultdict
from collections.abc import Mapping

from planner.instance.grid import Grid, PowerNode
from planner.instance.instance import Instance
from planner.physics.network.families import max_joined_racks
from planner.physics.network.price import min_fabric_usd
from planner.physics.site import cost, power
from planner.physics.site.grid import usable_interconnect_mw

SLACK = 1e-9  # relative, so that rounding never takes a module away
CENT = 0.01


def max_racks(instance: Instance, wired_gpus: int) -> int:
    """Bound the racks of any plan with so many GPUs of each rack cabled.

    Whole modules within the budget (racks, buildings, connections, the cheapest link and leaf port of each cabled GPU,
    and the counted years of the cheapest energy), within the power of the campus, and within what the sites can take.
    """
    if instance.grid is None:
        return _owned(instance, wired_gpus)
    hardware, pins = instance.hardware, instance.pins
    limits = [_by_budget(instance, instance.grid, wired_gpus), _by_power(instance), _by_sites(instance, instance.grid)]
    modules = min(limits)
    whole = 0 if modules <= 0 else math.floor(min(modules, 1e9) * (1 + SLACK))
    racks = whole * hardware.racks_per_module
    wanted = pins.get("sites.racks", racks)
    return wanted if wanted <= racks else 0


def max_sites(instance: Instance) -> int:
    """Bound the sites that may hold racks."""
    grid = instance.grid
    if grid is None:
        return 1
    limits = [len(_candidates(grid))]
    if grid.rules.max_sites is not None and "site_count" not in grid.rules.soft:
        limits.append(grid.rules.max_sites)
    if "sites.max_sites" in instance.pins:
        limits.append(int(instance.pins["sites.max_sites"]))
    return max(1, min(limits))


def _owned(instance: Instance, wired_gpus: int) -> int:
    """Return the racks at hand that a pinned fabric joins, or none where their price or power breaks a limit."""
    hardware, limits, network = instance.hardware, instance.limits, instance.network
    racks = hardware.racks or 0
    joined = racks if network is None else int(min(racks, max_joined_racks(network, instance.pins, wired_gpus)))
    over_power = limits.facility_power_mw is not None and power.facility_mw(hardware, racks) > (
        limits.facility_power_mw * (1 + SLACK)
    )
    usd = racks * power.rack_of(hardware).price_usd
    return 0 if over_power or (limits.budget_usd is not None and usd > limits.budget_usd + CENT) else joined


def _by_budget(instance: Instance, grid: Grid, wired_gpus: int) -> float:
    """Bound the modules that the budget pays, in modules."""
    limits, hardware = instance.limits, instance.hardware
    if limits.budget_usd is None:
        return math.inf
    n = hardware.racks_per_module
    load = power.facility_mw(hardware, n)
    fixed = cost.site_capex_usd(grid, it_mw=0.0, facility_mw=0.0)
    module = cost.site_capex_usd(grid, it_mw=power.it_mw(hardware, n), facility_mw=load) - fixed
    module += n * (power.rack_of(hardware).price_usd + wired_gpus * min_fabric_usd(instance.network))
    areas = {b.id: b.energy_usd_per_mwh for b in grid.balancing_authorities}
    energy = min((areas[x.balancing_authority] for x in _candidates(grid)), default=0.0)
    module += limits.budgeted_years * cost.energy_usd_per_year(load, energy)
    split = grid.rules.fault_split
    least_sites = split.min_interconnections if split.enabled else 1
    left = limits.budget_usd + CENT - least_sites * fixed
    return math.inf if module <= 0 else left / module


def _by_power(instance: Instance) -> float:
    """Bound the modules that the campus may feed."""
    limit, grid, hardware = instance.limits.facility_power_mw, instance.grid, instance.hardware
    if limit is None or (grid is not None and "facility_power" in grid.rules.soft):
        return math.inf
    return limit / power.facility_mw(hardware, hardware.racks_per_module)


def _by_sites(instance: Instance, grid: Grid) -> float:
    """Bound the modules that the largest sites take together: as many as may be open, each within its own limits."""
    largest, areas = max_sites(instance), {b.id: b for b in grid.balancing_authorities}
    headroom = grid.rules.headroom and "headroom" not in grid.rules.soft
    load = power.facility_mw(instance.hardware, instance.hardware.racks_per_module)
    by_area: dict[str, float] = defaultdict(float)
    by_interconnection: dict[str, list[float]] = defaultdict(list)
    for node in _candidates(grid):
        area = areas[node.balancing_authority]
        room = _site_modules(instance, grid, node)
        room = min(room, area.headroom_mw / load) if headroom else room
        by_area[area.id] += room
        by_interconnection[area.interconnection].append(room)
    every = sorted((x for rooms in by_interconnection.values() for x in rooms), reverse=True)
    limit = sum(every[:largest])
    if headroom:
        limit = min(limit, sum(min(x, areas[a].headroom_mw / load) for a, x in by_area.items()))
    return _within_split(
        grid, limit, {k: sum(sorted(x, reverse=True)[:largest]) for k, x in by_interconnection.items()}
    )


def _within_split(grid: Grid, limit: float, rooms: Mapping[str, float]) -> float:
    """Bound a campus no interconnection of which may hold more than a share: T <= sum of min(room, share·T).

    The right side grows with T, so putting a bound in gives a bound; it settles within a few rounds.
    """
    split = grid.rules.fault_split
    if not split.enabled or not math.isfinite(limit):
        return limit
    for _ in range(100):
        lower = min(limit, sum(min(room, split.max_share * limit) for room in rooms.values()))
        if lower >= limit * (1 - SLACK):
            break
        limit = lower
    return limit


def _candidates(grid: Grid) -> list[PowerNode]:
    """List the nodes where a site may stand in time."""
    months = grid.rules.ready_within_months
    return [n for n in grid.nodes if n.site and (months is None or n.ready_months <= months)]


def _site_modules(instance: Instance, grid: Grid, node: PowerNode) -> float:
    """Bound the modules of one site by its land, its circuits with all built and bought, and a pin."""
    hardware, soft, limits = instance.hardware, grid.rules.soft, [math.inf]
    load = power.facility_mw(hardware, hardware.racks_per_module)
    land = power.cooling_m2(hardware, hardware.racks_per_module)
    if land is not None and node.area_m2 is not None and "area" not in soft:
        limits.append(node.area_m2 / land)
    rule = grid.rules.interconnect
    if rule.enabled and rule.share > 0 and rule.reading != "import_share" and "interconnect" not in soft:
        built = {x.id: x.max_circuits for x in grid.new_lines}
        usable = usable_interconnect_mw(grid, node, built, node.upgrade.max_steps if node.upgrade else 0)
        if usable is not None:
            limits.append(usable / rule.share / load)
    pin = instance.pins.get(f"sites.racks.{node.id}")
    if pin is not None:
        limits.append(pin / hardware.racks_per_module)
    return max(0.0, min(limits))


class MaxRacks:
    """The most racks by GPUs cabled: this arithmetic, and where a plan states fewer, the plan's figure on trust.

    Stated figures come from the sites' MILP, which knows lines, flows and several limits at once. They are not proven
    here; `rules.max_racks_stated` checks that they are between the plan's own racks and this arithmetic.
    """

    def __init__(self, instance: Instance, stated: Mapping[int, int] | None = None) -> None:
        self.instance, self.stated = instance, dict(stated or {})
        self.known: dict[int, int] = {}

    def __call__(self, wired_gpus: int) -> int:
        """Return the most racks with so many GPUs of each cabled."""
        if wired_gpus not in self.known:
            fewer = [w for w in self.stated if w <= wired_gpus]
            own = max_racks(self.instance, wired_gpus)
            self.known[wired_gpus] = min(own, self.stated[max(fewer)]) if fewer else own
        return self.known[wired_gpus]
