"""Rules of single sites and of the links between them: size, land, interconnect and date; distance and fibre."""

import math
from collections.abc import Iterable
from typing import Any

import pyomo.core as pyo

from planner.instance.grid import Line
from planner.models.sites.campus_rules import Rule, load_mw, megawatts, soft_excess
from planner.models.sites.split_data import Pair, SplitData
from planner.physics.site import cost
from planner.physics.site.grid import largest_circuit_mw, usable_interconnect_mw


def min_site(model: Any, data: SplitData) -> None:
    """Require at least the minimum size of an open site: modules[s] >= minimum · open[s]."""
    minimum = data.grid.rules.min_site_modules
    sites = list(data.candidates) if minimum > 1 else []
    model.min_site = pyo.Constraint(sites, rule=lambda model, s: model.modules[s] >= minimum * model.open[s])


def area(model: Any, data: SplitData) -> None:
    """Limit the cooling of a site to its land, in 1000 m²."""
    density = data.hardware.cooling_kw_per_m2
    given = {site: node.area_m2 for site, node in data.candidates.items()} if density is not None else {}
    land = {site: m2 / 1e3 for site, m2 in given.items() if m2 is not None}
    model.area = pyo.Constraint(
        list(land), rule=lambda m, site: load_mw(m, data, [site]) / (density or 1.0) <= land[site]
    )


def max_cooled_modules(data: SplitData, site: str, _: int) -> float | None:
    """Bound the modules of a site by the land that their cooling takes; None where either is not given."""
    land, module = data.candidates[site].area_m2, cost.cooling_m2(data.hardware, data.module_racks)
    return None if land is None or module is None else (land + soft_excess(data, "area")) / module


def _area_sentence(data: SplitData) -> str:
    land = {site: node.area_m2 or 0.0 for site, node in data.candidates.items() if node.area_m2 is not None}
    best = max(land, key=lambda site: (land[site], site))
    largest = f"the largest limited site, {best}, has area_m2 {land[best]:,.6g}"
    module_m2 = cost.cooling_m2(data.hardware, data.module_racks) or 0.0
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
    drawn, carried, rows = dict[str, Any](), dict[str, Any](), list[tuple[str, str]]()
    for site, node in data.candidates.items():
        # All circuits of a site: existing, built, and bought as an upgrade.
        corridors = [data.corridors[name] for *_, name in data.graph.edges(site, keys=True)]
        existing = sum(line.rating_mw * line.circuits for line in corridors if isinstance(line, Line))
        if rule.reading == "explicit":
            # The node's figure is that of its existing circuits without the largest of them.
            existing = (node.interconnect_mw or 0.0) + largest[site]
        bought = node.upgrade.step_mw * model.steps[site] if node.upgrade else 0.0
        built = sum(line.rating_mw * model.circuits[line.id] for line in corridors if line.id in new)
        carried[site] = existing + built + bought
        # All of its load counts, or what its own plants do not feed; at most 0 if closed.
        drawn[site] = load_mw(model, data, [site])
        if rule.reading == "import_share" and data.grid.rules.grid_model == "none":
            # Without flows the node's own plants feed its site first.
            drawn[site] += (node.load_mw - node.generation_mw) * model.open[site]
        elif rule.reading == "import_share":
            drawn[site] += node.load_mw * model.open[site]
            if site in model.generated:  # under dc a node without plants has no variable
                drawn[site] -= model.generated[site]
        # Which circuit is the largest depends on the corridors that are built: there is a row for each that could be.
        rows.append((site, "standing"))
        rows += [(site, line.id) for line in corridors if n1 and line.id in new and line.rating_mw > largest[site]]

    def row(model: Any, site: str, lost: str) -> Any:
        lost_mw: Any = largest[site] if n1 else 0.0
        if lost != "standing":
            # A larger circuit, once built, is the one to lose; unbuilt, the row says no more than the existing one's.
            lost_mw = largest[site] + (data.corridors[lost].rating_mw - largest[site]) * model.built[lost]
        return rule.share * drawn[site] <= carried[site] - lost_mw

    model.interconnect = pyo.Constraint(sorted(rows), rule=row)


def _largest_interconnect_mw(data: SplitData, site: str) -> float:
    """Return the usable interconnect of a site with everything built and bought."""
    node = data.candidates[site]
    return (
        usable_interconnect_mw(data.grid, node, data.new_circuits, node.upgrade.max_steps if node.upgrade else 0) or 0.0
    )


def _interconnect_modules(data: SplitData, site: str, _: int) -> float | None:
    rule = data.grid.rules.interconnect
    if not rule.enabled or rule.share <= 0 or rule.reading == "import_share":
        return None
    usable = _largest_interconnect_mw(data, site) + soft_excess(data, "interconnect")
    return usable / rule.share / data.module_mw


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


def _floor(value: float) -> int:
    return max(math.floor(value + 1e-9), 0)


def max_campus_modules(data: SplitData, rules: Iterable[Rule], known: int | None = None) -> int:
    """Bound the modules of the whole campus: the smallest of each rule's own bound and of `known`, if it is given."""
    limits = [bound for rule in rules if (bound := rule.max_modules(data)) is not None]
    limits += [] if known is None else [float(known)]
    if limits:
        return _floor(min(limits))
    # Only the partial splits of a conflict come here; a hundred times every minimum size and pin is no limit to them.
    minimum = data.grid.rules.min_site_modules * len(data.candidates) + sum(data.pins.racks_by_site.values()) + 1
    return 100 * minimum + (data.pins.racks or 0)


def max_site_modules(data: SplitData, site: str, modules: int, rules: Iterable[Rule]) -> int:
    """Bound a site's modules by each rule alone, to tie them to its opening; `modules` bounds the campus."""
    limits = [bound for rule in rules if (bound := rule.max_site_modules(data, site, modules)) is not None]
    return _floor(min([float(modules), *limits]))


def max_sites(data: SplitData, rules: Iterable[Rule]) -> int:
    """Bound the open sites by each rule alone."""
    return min([len(data.candidates), *(bound for rule in rules if (bound := rule.max_sites(data)) is not None)])


def rtt(model: Any, data: SplitData) -> None:
    """Limit the round trip between two open sites: of a pair that is farther apart, at most one is open."""
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
    """Allow at most one site of a pair that the fibre cannot join, and no set of sites that the request refuses."""
    apart = sorted(data.disconnected)
    model.wan_disconnected = pyo.Constraint(apart, rule=lambda m, a, b: m.open[a] + m.open[b] <= 1)
    refused = sorted(sorted(sites) for sites in data.request.refused)

    def another_set(model: Any, i: int) -> Any:
        return sum(1 - model.open[site] if site in refused[i] else model.open[site] for site in data.candidates) >= 1

    model.wan_refused = pyo.Constraint(range(len(refused)), rule=another_set)


def _wan_capacity_sentence(data: SplitData) -> str:
    disconnected, refused = data.disconnected, data.request.refused
    tried = "; ".join("-".join(sorted(sites)) for sites in sorted(refused, key=sorted))
    protected = " whatever is cut" if data.wan.protection == "one_cut" else ""
    apart = sum(pair in disconnected or frozenset(pair) in refused for pair in data.pairs)
    joined = f"the fibre joins {len(data.pairs) - apart} of {len(data.pairs)} pairs{protected}"
    return joined + (f", and carries no exchange between {tried}" if tried else "")


SITE_RULES = (
    Rule(
        min_site,
        lambda data: (
            f"a site holds {(n := data.grid.rules.min_site_modules)} modules at least ({megawatts(n * data.module_mw)})"
        ),
        "split",
        unit="modules",
    ),
    Rule(area, _area_sentence, "site", unit="m2", scale=1e3, max_site_modules=max_cooled_modules),
    Rule(
        interconnect, _interconnect_sentence, "site", index_names=1, unit="MW", max_site_modules=_interconnect_modules
    ),
    Rule(ready, _ready_sentence, "site"),
    Rule(rtt, _rtt_sentence, "split", excludes=_too_far),
    Rule(wan_capacity, _wan_capacity_sentence, "split"),
)
