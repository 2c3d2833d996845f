"""Rules of the site split, but those of the power system: the type of a rule, the campus as a whole, and single sites.

A rule is one object: its rows, and all that bounds, conflicts and reports must know of it. Those of the campus say how
many racks are due, what they may cost and draw, and how its sites share them; those of sites limit size, land,
interconnect and date, and between two sites distance and fibre.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pyomo.core as pyo

from planner.instance.grid import Line
from planner.models.sites.split_data import Pair, SplitData, capital_musd, energy_musd, load_mw, module_capital_musd
from planner.physics.site import site_power
from planner.physics.site.grid import largest_circuit_mw, usable_interconnect_mw
from planner.units import money


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the site split: its rows on a Pyomo block, the sentence that a conflict prints, and the bounds implied.

    Each bound is from the rule alone, None if it has none; rules of the split do not limit what one node carries.
    """

    rows: Callable[[Any, SplitData], None]  # in MW, M$, modules, sites and 1000 m², as the component named as the rule
    sentence: Callable[[SplitData], str]  # what the rule asks for, in the instance's figures
    scope: Literal["site", "grid", "split"]  # one site, the power of any, or their relation to others and the request
    yearly: bool = False  # the rows are stated again for each scenario
    index_names: int | None = None  # with a unit: leading entries of a row's index that name it (None: all)
    unit: str | None = None  # of the limit, which may be soft, or moved by an explanation; None: neither
    scale: float = 1.0  # of these that one unit of the rows is
    max_modules: Callable[[SplitData], float | None] = lambda _: None  # of the campus
    max_site_modules: Callable[[SplitData, str, int], float | None] = lambda *_: None  # given those of the campus
    max_sites: Callable[[SplitData], int | None] = lambda _: None  # that are open
    # Whether no two sites of a pair may be open together, given the most open sites.
    excludes: Callable[[SplitData, Pair, int], bool] = lambda *_: False

    @property
    def name(self) -> str:
        """Return the name of the site rule: that of the function that states its rows."""
        return self.rows.__name__

    def label(self, index: Any) -> str:
        """Return the name of a site rule's row as reports print it: `headroom[SRP]`, `rtt[a,b]`, `budget`."""
        if index is None:
            return self.name
        entries = index if isinstance(index, tuple) else (index,)
        return f"{self.name}[{','.join(str(entry) for entry in entries[: self.index_names])}]"


def soft_excess(data: SplitData, rule: str, rows: int = 1) -> float:
    """Return how far a soft site rule's rows may exceed their limits together, in the rule's unit; 0: a hard rule."""
    soft = data.grid.rules.soft.get(rule)
    return 0.0 if soft is None else rows * soft.max_excess


def modules_within(data: SplitData, rule: str, mw: float | None, rows: int = 1) -> float | None:
    """Return the modules that a site rule's limit in MW, and the excess of a soft rule, allow; None without a limit."""
    return None if mw is None else (mw + soft_excess(data, rule, rows)) / data.module_mw


def megawatts(value: float) -> str:
    """Return a power in MW as the sentence of a site rule prints it."""
    return f"{value:,.6g} MW"


def demand(model: Any, _: SplitData) -> None:
    """Require at least one module on the campus of the site split."""
    model.demand = pyo.Constraint(expr=sum(model.modules.values()) >= 1)


def _demand_sentence(data: SplitData) -> str:
    module = f"{data.module_racks} rack{'s' * (data.module_racks > 1)}"
    return f"one module ({module}) needs {megawatts(data.module_mw)} at the grid"


def pins(model: Any, data: SplitData) -> None:
    """Fix the pinned racks of a split's campus and of its sites, and limit the open sites to the pinned maximum."""
    model.pins = pyo.Constraint(pyo.Any)
    if data.pins.racks is not None:
        model.pins["sites.racks"] = data.module_racks * sum(model.modules.values()) == data.pins.racks
    if data.pins.max_sites is not None:
        model.pins["sites.max_sites"] = sum(model.open.values()) <= data.pins.max_sites
    for site, racks in data.pins.racks_by_site.items():
        model.pins[f"sites.racks.{site}"] = data.module_racks * model.modules[site] == racks
    for site in sorted(data.request.opened):
        model.pins[f"sites.open.{site}"] = model.open[site] >= 1


def _pins_sentence(data: SplitData) -> str:
    pinned = {path: value for path, value in data.instance.pins.items() if path.startswith("sites.")}
    odd = any(value % data.module_racks for path, value in pinned.items() if path.startswith("sites.racks"))
    values = ", ".join(f"{path}={value}" for path, value in sorted(pinned.items()))
    return f"pins fix {values}" + (f"; racks come in modules of {data.module_racks}" if odd else "")


def budget(model: Any, data: SplitData) -> None:
    """Limit the split's capital, plus budgeted years of energy, to the budget, in M$."""
    limits = data.instance.limits
    if limits.budget_usd is not None:
        spent = capital_musd(model, data) + limits.budgeted_years * energy_musd(model, data)
        model.budget = pyo.Constraint(expr=spent <= limits.budget_usd / 1e6)


def _budget_sentence(data: SplitData) -> str:
    limits, site = data.instance.limits, data.grid.prices.site_usd
    energy = min(data.energy_musd(site) for site in data.candidates)  # at the cheapest candidate
    module = 1e6 * (module_capital_musd(data) + limits.budgeted_years * energy)
    years = f" with {limits.budgeted_years:g} years of energy" if limits.budgeted_years else ""
    opened = f" and an open site {money(site)}, together {money(module + site)}" if site else ""
    budget = money(limits.budget_usd or 0.0)
    return f"limits.budget_usd is {budget}, a module costs at least {money(module)}{years}{opened}"


def _paid_modules(data: SplitData) -> float | None:
    usd, module = data.instance.limits.budget_usd, module_capital_musd(data)
    return None if usd is None or module <= 0 else usd / 1e6 / module


def site_count(model: Any, data: SplitData) -> None:
    """Limit the number of open sites of the split."""
    if data.grid.rules.max_sites is not None:
        model.site_count = pyo.Constraint(expr=sum(model.open.values()) <= data.grid.rules.max_sites)


def facility_power(model: Any, data: SplitData) -> None:
    """Limit the draw in MW of all sites of the split together."""
    limit = data.instance.limits.facility_power_mw
    if limit is not None:
        model.facility_power = pyo.Constraint(expr=load_mw(model, data, data.candidates) <= limit)


def headroom(model: Any, data: SplitData) -> None:
    """Limit the draw in MW of the split's sites in each balancing authority to its headroom."""
    areas = [area for area in data.authorities if data.grid.rules.headroom and data.sites_of(area)]
    limit = {area: data.authorities[area].headroom_mw for area in areas}
    model.headroom = pyo.Constraint(areas, rule=lambda m, area: load_mw(m, data, data.sites_of(area)) <= limit[area])


def _headroom_modules(data: SplitData, site: str | None = None, _: int = 0) -> float | None:
    if not data.grid.rules.headroom:
        return None
    areas = list(data.authorities) if site is None else [data.candidates[site].balancing_authority]
    return modules_within(data, "headroom", sum(data.authorities[area].headroom_mw for area in areas), len(areas))


def _headroom_sentence(data: SplitData) -> str:
    areas = sorted({candidate.balancing_authority for candidate in data.candidates.values()})
    total = sum(data.authorities[area].headroom_mw for area in areas)
    each = ", ".join(f"{area} {megawatts(data.authorities[area].headroom_mw)}" for area in areas)
    return f"headroom is {each}" + (f" ({megawatts(total)} in all)" if len(areas) > 1 else "")


def fault_split(model: Any, data: SplitData) -> None:
    """Require the split's sites in enough interconnections (synchronous areas), and limit the share of each."""
    # An interconnection counts once a site in it is open: reached[i] <= sum of open[s] over its sites.
    rule = data.grid.rules.fault_split
    if not rule.enabled:
        return
    by_area: dict[str, list[str]] = {}
    for site in data.candidates:
        by_area.setdefault(data.interconnection(site), []).append(site)
    areas = sorted(by_area)
    model.reached = pyo.Var(areas, domain=pyo.NonNegativeReals, bounds=(0, 1))
    model.reaching = pyo.Constraint(areas, rule=lambda m, i: m.reached[i] <= sum(m.open[s] for s in by_area[i]))
    total = sum(model.modules.values())
    model.fault_split = pyo.Constraint(pyo.Any)
    model.fault_split["min_interconnections"] = sum(model.reached.values()) >= rule.min_interconnections
    for area in areas:
        model.fault_split[area, "share"] = sum(model.modules[s] for s in by_area[area]) <= rule.max_share * total


def _one_site_each(data: SplitData, sites: int) -> bool:
    """Return whether at most `sites` open sites must each be in an interconnection of its own."""
    split = data.grid.rules.fault_split
    return split.enabled and sites == split.min_interconnections


def min_site_modules(data: SplitData, racks: int, sites: int) -> int:
    """Bound from below an open site's modules by racks less others' largest shares, if each is alone in its area."""
    if not _one_site_each(data, sites):
        return 1
    left = 1 - (sites - 1) * data.grid.rules.fault_split.max_share
    return max(1, math.ceil(left * racks / data.module_racks - 1e-9))


def min_split_modules(data: SplitData, modules: int) -> int:
    """Bound from below the modules of all sites where one has `modules`, by the largest share of an interconnection."""
    split = data.grid.rules.fault_split
    return math.ceil(modules / split.max_share - 1e-9) if split.enabled else modules


def _fault_split_sentence(data: SplitData) -> str:
    rule = data.grid.rules.fault_split
    areas = ", ".join(sorted({data.interconnection(site) for site in data.candidates}))
    wanted = f"sites in {rule.min_interconnections} interconnections, none with more than {rule.max_share:.0%}"
    return f"grid.rules.fault_split wants {wanted} of the racks; candidates are in {areas}"


def share_balance(model: Any, data: SplitData) -> None:
    """Limit every site of the split to a multiple of the smallest open one: modules[s] <= ratio · min_modules."""
    rule = data.grid.rules.share_balance
    if not rule.enabled:
        return
    sites = list(data.candidates)
    largest = max(model.modules[site].ub for site in sites)
    model.min_modules = pyo.Var(domain=pyo.NonNegativeReals, bounds=(0, largest))
    # A closed site does not count as the smallest.
    model.smallest = pyo.Constraint(sites, rule=lambda m, s: m.min_modules <= m.modules[s] + largest * (1 - m.open[s]))
    model.share_balance = pyo.Constraint(sites, rule=lambda m, s: m.modules[s] <= rule.max_ratio * m.min_modules)


def _share_balance_sentence(data: SplitData) -> str:
    ratio = data.grid.rules.share_balance.max_ratio
    return f"grid.rules.share_balance wants no site more than {ratio:g} times the smallest"


def min_site(model: Any, data: SplitData) -> None:
    """Require at least the minimum size of an open site of the split: modules[s] >= minimum · open[s]."""
    minimum = data.grid.rules.min_site_modules
    sites = list(data.candidates) if minimum > 1 else []
    model.min_site = pyo.Constraint(sites, rule=lambda model, s: model.modules[s] >= minimum * model.open[s])


def _min_site_sentence(data: SplitData) -> str:
    minimum = data.grid.rules.min_site_modules
    return f"a site holds {minimum} modules at least ({megawatts(minimum * data.module_mw)})"


def area(model: Any, data: SplitData) -> None:
    """Limit the cooling of a site of the split to its land, in 1000 m²."""
    density = data.hardware.cooling_kw_per_m2
    given = {site: node.area_m2 for site, node in data.candidates.items()} if density is not None else {}
    land = {site: m2 / 1e3 for site, m2 in given.items() if m2 is not None}
    model.area = pyo.Constraint(
        list(land), rule=lambda m, site: load_mw(m, data, [site]) / (density or 1.0) <= land[site]
    )


def max_cooled_modules(data: SplitData, site: str, _: int) -> float | None:
    """Bound a site's modules by the split's land rule: those that its land can cool; None: either is not given."""
    land, module = data.candidates[site].area_m2, site_power.cooling_m2(data.hardware, data.module_racks)
    return None if land is None or module is None else (land + soft_excess(data, "area")) / module


def _area_sentence(data: SplitData) -> str:
    land = {site: node.area_m2 or 0.0 for site, node in data.candidates.items() if node.area_m2 is not None}
    best = max(land, key=lambda site: (land[site], site))
    largest = f"the largest limited site, {best}, has area_m2 {land[best]:,.6g}"
    module_m2 = site_power.cooling_m2(data.hardware, data.module_racks) or 0.0
    return f"a module's cooling takes {module_m2:,.6g} m²; {largest}"


def interconnect(model: Any, data: SplitData) -> None:
    """Require that a site's circuits carry a share of its load, with all circuits in service or without the largest."""
    rule = data.grid.rules.interconnect
    if not rule.enabled:
        return
    new = data.new_circuits
    model.built = pyo.Var(list(new), domain=pyo.Binary)
    model.building = pyo.Constraint(list(new), rule=lambda m, k: m.circuits[k] <= new[k] * m.built[k])
    largest, n1 = {site: largest_circuit_mw(data.grid, site) for site in data.candidates}, rule.reading != "capacity"
    corridors = {s: [data.corridors[name] for *_, name in data.graph.edges(s, keys=True)] for s in data.candidates}
    # Which circuit is the largest depends on the corridors that are built: there is a row for each that could be.
    rows = [(site, "") for site in corridors]  # the existing one
    for site, lines in corridors.items():
        rows += [(site, line.id) for line in lines if n1 and line.id in new and line.rating_mw > largest[site]]

    def row(model: Any, site: str, lost: str) -> Any:
        # All circuits of a site: existing, built, and bought as an upgrade.
        node, lines, lost_mw = data.candidates[site], corridors[site], largest[site] if n1 else 0.0
        existing = sum(line.rating_mw * line.circuits for line in lines if isinstance(line, Line))
        if rule.reading == "explicit":
            # The node's figure is that of its existing circuits without the largest of them.
            existing = (node.interconnect_mw or 0.0) + largest[site]
        bought = node.upgrade.step_mw * model.steps[site] if node.upgrade else 0.0
        built = sum(line.rating_mw * model.circuits[line.id] for line in lines if line.id in new)
        # All of its load counts, or what its own plants do not feed; at most 0 if closed.
        drawn = load_mw(model, data, [site])
        if rule.reading == "import_share" and data.grid.rules.grid_model == "none":
            # Without flows the node's own plants feed its site first.
            drawn += (node.load_mw - node.generation_mw) * model.open[site]
        elif rule.reading == "import_share":
            drawn += node.load_mw * model.open[site]
            if site in model.generated:  # under dc a node without plants has no variable
                drawn -= model.generated[site]
        if lost:
            # A larger circuit, once built, is the one to lose; unbuilt, the row says no more than the existing one's.
            lost_mw += (data.corridors[lost].rating_mw - largest[site]) * model.built[lost]
        return rule.share * drawn <= existing + built + bought - lost_mw

    model.interconnect = pyo.Constraint(sorted(rows), rule=row)


def _largest_interconnect_mw(data: SplitData, site: str) -> float:
    node = data.candidates[site]
    steps = node.upgrade.max_steps if node.upgrade else 0
    return usable_interconnect_mw(data.grid, node, data.new_circuits, steps) or 0.0


def _interconnect_modules(data: SplitData, site: str, _: int) -> float | None:
    rule = data.grid.rules.interconnect
    if not rule.enabled or rule.share <= 0 or rule.reading == "import_share":
        return None
    return (_largest_interconnect_mw(data, site) + soft_excess(data, "interconnect")) / rule.share / data.module_mw


def _interconnect_sentence(data: SplitData) -> str:
    rule = data.grid.rules.interconnect
    usable = {site: _largest_interconnect_mw(data, site) for site in data.candidates}
    best = max(usable, key=lambda site: (usable[site], site))
    what = "draw beyond its own plants" if rule.reading == "import_share" else "load"
    enough = f", enough for {megawatts(usable[best] / rule.share)} of that" if rule.share else ""
    has = f"the best site, {best}, has {megawatts(usable[best])}{enough}"
    return f"grid.rules.interconnect ({rule.reading}) wants {rule.share:.0%} of a site's {what} on its circuits: {has}"


def ready(model: Any, data: SplitData) -> None:
    """Require that sites, new lines and upgrades in use are ready within `grid.rules.ready_within_months`."""
    limit = data.grid.rules.ready_within_months
    if limit is None:
        return
    model.ready = pyo.Constraint(pyo.Any)
    for site, node in data.candidates.items():
        if node.ready_months > limit:
            model.ready[site] = model.open[site] <= 0
        if node.upgrade and node.upgrade.lead_months > limit:
            model.ready[site, "upgrade"] = model.steps[site] <= 0
    for line in sorted(data.grid.new_lines, key=lambda line: line.id):
        if line.lead_months > limit:
            model.ready[line.id] = model.circuits[line.id] <= 0


def _ready_sentence(data: SplitData) -> str:
    limit = data.grid.rules.ready_within_months or 0.0
    late = sorted((node.ready_months, site) for site, node in data.candidates.items() if node.ready_months > limit)
    lines = sum(line.lead_months > limit for line in data.grid.new_lines)
    first = f", {late[0][1]} the first in {late[0][0]:g}" if late else ""
    count = f"{len(late)} of {len(data.candidates)} sites{first} and {lines} new lines"
    return f"grid.rules.ready_within_months is {limit:g}: {count} come later"


def max_campus_modules(data: SplitData, rules: Iterable[Rule], known: int | None = None) -> int:
    """Bound the modules of the split's campus by each site rule alone, and by `known` where it is given."""
    limits = [bound for rule in rules if (bound := rule.max_modules(data)) is not None]
    limits += [] if known is None else [float(known)]
    if limits:
        return max(math.floor(min(limits) + 1e-9), 0)
    # Only the partial splits of a conflict come here; a hundred times every minimum size and pin is no limit to them.
    minimum = data.grid.rules.min_site_modules * len(data.candidates) + sum(data.pins.racks_by_site.values()) + 1
    return 100 * minimum + (data.pins.racks or 0)


def max_site_modules(data: SplitData, site: str, modules: int, rules: Iterable[Rule]) -> int:
    """Bound one site's modules by each site rule alone, to tie them to its opening; `modules` bounds the campus."""
    limits = [bound for rule in rules if (bound := rule.max_site_modules(data, site, modules)) is not None]
    return max(math.floor(min([float(modules), *limits]) + 1e-9), 0)


def max_sites(data: SplitData, rules: Iterable[Rule]) -> int:
    """Bound the number of the split's open sites by each site rule alone."""
    return min([len(data.candidates), *(bound for rule in rules if (bound := rule.max_sites(data)) is not None)])


def rtt(model: Any, data: SplitData) -> None:
    """Limit the round trip between two open sites of the split: of a pair that is too far apart, one is closed."""
    far = [pair for pair in data.pairs if _too_far(data, pair, 0)]
    model.rtt = pyo.Constraint(far, rule=lambda model, a, b: model.open[a] + model.open[b] <= 1)


def _too_far(data: SplitData, pair: Pair, _: int) -> bool:
    limit = data.grid.rules.max_rtt_ms
    return limit is not None and data.rtt_ms(pair) > limit


def _rtt_sentence(data: SplitData) -> str:
    far = [pair for pair in data.pairs if _too_far(data, pair, 0)]
    nearest = min(far, key=lambda pair: (data.rtt_ms(pair), pair))
    farther = f"{len(far)} of {len(data.pairs)} pairs are farther"
    first = f"the nearest of them {'-'.join(nearest)} at {data.rtt_ms(nearest):.4g} ms"
    return f"grid.rules.max_rtt_ms is {data.grid.rules.max_rtt_ms or 0.0:g}: {farther}, {first}"


def wan_capacity(model: Any, data: SplitData) -> None:
    """Allow at most one site of a pair that fibre cannot join, and no set of sites that the request refuses (WAN)."""
    model.wan_disconnected = pyo.Constraint(sorted(data.disconnected), rule=lambda m, a, b: m.open[a] + m.open[b] <= 1)
    refused = sorted(sorted(sites) for sites in data.request.refused)
    model.wan_refused = pyo.Constraint(
        range(len(refused)),
        rule=lambda m, i: sum(1 - m.open[s] if s in refused[i] else m.open[s] for s in data.candidates) >= 1,
    )


def _wan_capacity_sentence(data: SplitData) -> str:
    disconnected, refused = data.disconnected, data.request.refused
    tried = "; ".join("-".join(sorted(sites)) for sites in sorted(refused, key=sorted))
    protected = " whatever is cut" if data.wan.protection == "one_cut" else ""
    apart = sum(pair in disconnected or frozenset(pair) in refused for pair in data.pairs)
    joined = f"the fibre joins {len(data.pairs) - apart} of {len(data.pairs)} pairs{protected}"
    return joined + (f", and carries no exchange between {tried}" if tried else "")


# Those that say most to the user first.
SITE_RULES = (
    Rule(demand, _demand_sentence, "split"),
    Rule(
        pins,
        _pins_sentence,
        "split",
        max_modules=lambda data: None if data.pins.racks is None else data.pins.racks // data.module_racks,
        max_sites=lambda data: data.pins.max_sites,
    ),
    Rule(budget, _budget_sentence, "split", unit="USD", scale=1e6, max_modules=_paid_modules),
    Rule(
        site_count,
        lambda data: f"grid.rules.max_sites is {data.grid.rules.max_sites}",
        "split",
        unit="sites",
        max_sites=lambda data: (
            None if (own := data.grid.rules.max_sites) is None else own + int(soft_excess(data, "site_count") + 1e-9)
        ),
    ),
    Rule(
        facility_power,
        lambda data: f"limits.facility_power_mw is {data.instance.limits.facility_power_mw:,.6g}",
        "grid",
        unit="MW",
        max_modules=lambda data: modules_within(data, "facility_power", data.instance.limits.facility_power_mw),
    ),
    Rule(
        headroom,
        _headroom_sentence,
        "grid",
        yearly=True,
        unit="MW",
        max_modules=_headroom_modules,
        max_site_modules=_headroom_modules,
    ),
    Rule(
        fault_split,
        _fault_split_sentence,
        "split",
        max_site_modules=lambda data, _, modules: (
            data.grid.rules.fault_split.max_share * modules if data.grid.rules.fault_split.enabled else None
        ),
        excludes=lambda data, pair, sites: (
            _one_site_each(data, sites) and data.interconnection(pair[0]) == data.interconnection(pair[1])
        ),
    ),
    Rule(
        interconnect, _interconnect_sentence, "site", index_names=1, unit="MW", max_site_modules=_interconnect_modules
    ),
    Rule(area, _area_sentence, "site", unit="m2", scale=1e3, max_site_modules=max_cooled_modules),
    Rule(min_site, _min_site_sentence, "split", unit="modules"),
    Rule(ready, _ready_sentence, "site"),
    Rule(share_balance, _share_balance_sentence, "split"),
    Rule(rtt, _rtt_sentence, "split", excludes=_too_far),
    Rule(wan_capacity, _wan_capacity_sentence, "split"),
)
