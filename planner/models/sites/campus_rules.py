"""The type of a rule of the site split, and the rules of the campus as a whole.

A rule is one object: its rows, and all that bounds, conflicts and reports must know of it. Those of the campus say how
many racks are due, what they may cost and draw, and how its sites share them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pyomo.core as pyo

from planner.models.sites.split_data import Pair, SplitData, capital_musd, energy_musd, module_capital_musd
from planner.units import money


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: a family of rows on a Pyomo block, the sentence that a conflict prints, and the bounds that it implies.

    Each bound is from the rule alone, None or 1 if it has none; rules of the split do not limit what one node carries.
    """

    rows: Callable[[Any, SplitData], None]  # in MW, M$, modules, sites and 1000 m², as the component named as the rule
    sentence: Callable[[SplitData], str]  # what the rule asks for, in the instance's figures
    scope: Literal["site", "grid", "split"]  # one site, the power of any, or their relation to others and the request
    yearly: bool = False  # the rows are stated again for each scenario
    index_names: int | None = None  # leading entries of a row's index that name it to the user (None: all)
    unit: str | None = None  # of the limit in reports; None: the rows cannot be exceeded
    scale: float = 1.0  # of these that one unit of the rows is
    movable: bool = True  # with a unit: an explanation may ask by how much the limit must move
    max_modules: Callable[[SplitData], float | None] = lambda _: None  # of the campus
    max_site_modules: Callable[[SplitData, str, int], float | None] = lambda *_: None  # given those of the campus
    min_site_modules: Callable[[SplitData, int, int], int] = lambda *_: 1  # given pinned racks and most open sites
    max_sites: Callable[[SplitData], int | None] = lambda _: None  # that are open
    # Whether no two sites of a pair may be open together, given the most open sites.
    excludes: Callable[[SplitData, Pair, int], bool] = lambda *_: False

    @property
    def name(self) -> str:
        """Name of the rule: that of the function that states its rows."""
        return self.rows.__name__

    def label(self, index: Any) -> str:
        """Return a row's name as reports print it: `headroom[SRP]`, `rtt[a,b]`, `budget`."""
        if index is None:
            return self.name
        entries = index if isinstance(index, tuple) else (index,)
        return f"{self.name}[{','.join(str(entry) for entry in entries[: self.index_names])}]"


def soft_excess(data: SplitData, rule: str, rows: int = 1) -> float:
    """Return how far a soft rule's rows may exceed their limits together, in the rule's unit; 0 for a hard rule."""
    soft = data.grid.rules.soft.get(rule)
    return 0.0 if soft is None else rows * soft.max_excess


def modules_within(data: SplitData, rule: str, mw: float | None, rows: int = 1) -> float | None:
    """Return the modules that a limit in MW and the excess of its soft rule allow; None without a limit."""
    return None if mw is None else (mw + soft_excess(data, rule, rows)) / data.module_mw


def load_mw(model: Any, data: SplitData, sites: Any) -> Any:
    """Return the draw of some sites at the grid: their modules, and where a block has it, the load `extra_mw`."""
    extra, own = model.component("extra_mw"), data.module_mw * sum(model.modules[site] for site in sites)
    return own + (0 if extra is None else sum(extra[site] for site in sites))


def megawatts(value: float) -> str:
    """Return a power as sentences print it."""
    return f"{value:,.6g} MW"


def demand(model: Any, _: SplitData) -> None:
    """Require one module at least."""
    model.demand = pyo.Constraint(expr=sum(model.modules.values()) >= 1)


def pins(model: Any, data: SplitData) -> None:
    """Fix the pinned racks of the campus and of single sites, and limit the open sites to the pinned maximum."""
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
    pinned = {f"sites.racks.{site}": racks for site, racks in data.pins.racks_by_site.items()}
    totals = ("sites.racks", data.pins.racks), ("sites.max_sites", data.pins.max_sites)
    pinned |= {path: value for path, value in totals if value is not None}
    odd = any(value % data.module_racks for path, value in pinned.items() if path.startswith("sites.racks"))
    values = ", ".join(f"{path}={value}" for path, value in sorted(pinned.items()))
    return f"pins fix {values}" + (f"; racks come in modules of {data.module_racks}" if odd else "")


def budget(model: Any, data: SplitData) -> None:
    """Limit capital plus the counted years of energy to the budget, in M$."""
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
    """Limit the number of open sites."""
    if data.grid.rules.max_sites is not None:
        model.site_count = pyo.Constraint(expr=sum(model.open.values()) <= data.grid.rules.max_sites)


def facility_power(model: Any, data: SplitData) -> None:
    """Limit the draw of all sites together."""
    limit = data.instance.limits.facility_power_mw
    if limit is not None:
        model.facility_power = pyo.Constraint(expr=load_mw(model, data, data.candidates) <= limit)


def fault_split(model: Any, data: SplitData) -> None:
    """Require sites in enough interconnections, and limit the share of all racks in any one of them."""
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


def _min_fault_split_modules(data: SplitData, racks: int, sites: int) -> int:
    """Bound an open site's modules by the racks less the others' largest shares, where each is alone in its area."""
    if not _one_site_each(data, sites):
        return 1
    left = 1 - (sites - 1) * data.grid.rules.fault_split.max_share
    return max(1, math.ceil(left * racks / data.module_racks - 1e-9))


def min_split_modules(data: SplitData, modules: int) -> int:
    """Bound the modules of all sites where one has `modules`, which the split over areas holds to a share of all."""
    split = data.grid.rules.fault_split
    binds = split.enabled and "fault_split" not in data.grid.rules.soft
    return math.ceil(modules / split.max_share - 1e-9) if binds else modules


def _fault_split_sentence(data: SplitData) -> str:
    rule = data.grid.rules.fault_split
    areas = ", ".join(sorted({data.interconnection(site) for site in data.candidates}))
    wanted = (
        f"sites in {rule.min_interconnections} interconnections, none with more than {rule.max_share:.0%} of the racks"
    )
    return f"grid.rules.fault_split wants {wanted}; candidates are in {areas}"


def share_balance(model: Any, data: SplitData) -> None:
    """Limit every site to a multiple of the smallest open one: modules[s] <= ratio · min_modules."""
    rule = data.grid.rules.share_balance
    if not rule.enabled:
        return
    sites = list(data.candidates)
    largest = max(model.modules[site].ub for site in sites)
    model.min_modules = pyo.Var(domain=pyo.NonNegativeReals, bounds=(0, largest))
    # A closed site does not count as the smallest.
    model.smallest = pyo.Constraint(sites, rule=lambda m, s: m.min_modules <= m.modules[s] + largest * (1 - m.open[s]))
    model.share_balance = pyo.Constraint(sites, rule=lambda m, s: m.modules[s] <= rule.max_ratio * m.min_modules)


CAMPUS_RULES = (
    Rule(
        demand,
        lambda data: (
            f"one module ({data.module_racks} rack{'s' * (data.module_racks > 1)}) needs "
            f"{megawatts(data.module_mw)} at the grid"
        ),
        "split",
    ),
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
        fault_split,
        _fault_split_sentence,
        "split",
        index_names=1,
        unit="modules",
        movable=False,
        max_site_modules=lambda data, _, modules: (
            data.grid.rules.fault_split.max_share * modules if data.grid.rules.fault_split.enabled else None
        ),
        min_site_modules=_min_fault_split_modules,
        excludes=lambda data, pair, sites: (
            _one_site_each(data, sites) and data.interconnection(pair[0]) == data.interconnection(pair[1])
        ),
    ),
    Rule(
        share_balance,
        lambda data: (
            f"grid.rules.share_balance wants no site more than {data.grid.rules.share_balance.max_ratio:g} "
            "times the smallest"
        ),
        "split",
    ),
)
