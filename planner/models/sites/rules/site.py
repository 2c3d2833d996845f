"""Rules of single sites: their size, land, interconnect and date."""

from typing import Any

import pyomo.core as pyo

from planner.models.sites.data import SplitData
from planner.models.sites.rules.rule import Rule, load_mw, megawatts, no_room, soft_excess
from planner.physics.site import power
from planner.physics.site.grid import largest_circuit_mw, usable_interconnect_mw


def min_site(m: Any, data: SplitData) -> None:
    """Require at least the minimum size of an open site: modules[s] >= minimum · open[s]."""
    minimum = data.grid.rules.min_site_modules
    sites = list(data.candidates) if minimum > 1 else []
    m.min_site = pyo.Constraint(sites, rule=lambda m, s: m.modules[s] >= minimum * m.open[s])


def _min_site_sentence(data: SplitData) -> str:
    minimum = data.grid.rules.min_site_modules
    return f"a site holds {minimum} modules at least ({megawatts(minimum * data.module_mw)})"


def _module_m2(data: SplitData) -> float:
    """Return the cooling area of a module; 0 where the instance gives no density."""
    return power.cooling_m2(data.hardware, data.module_racks) or 0.0


def area(m: Any, data: SplitData) -> None:
    """Limit the cooling of a site to its land, in 1000 m²."""
    density = data.hardware.cooling_kw_per_m2
    land = {s: n.area_m2 for s, n in data.candidates.items() if n.area_m2 is not None and density is not None}
    m.area = pyo.Constraint(list(land), rule=lambda m, s: load_mw(m, data, [s]) / (density or 1.0) <= land[s] / 1e3)


def _area_modules(data: SplitData, site: str, _: int) -> float | None:
    land, module = data.candidates[site].area_m2, power.cooling_m2(data.hardware, data.module_racks)
    return None if land is None or module is None else (land + soft_excess(data, "area")) / module


def _area_sentence(data: SplitData) -> str:
    land = {s: n.area_m2 or 0.0 for s, n in data.candidates.items() if n.area_m2 is not None}
    best = max(land, key=lambda s: (land[s], s))
    largest = f"the largest limited site, {best}, has area_m2 {land[best]:,.6g}"
    return f"a module's cooling takes {_module_m2(data):,.6g} m²; {largest}"


def interconnect(m: Any, data: SplitData) -> None:
    """Require that a site's circuits can carry a share of its load: all of them, or those left without the largest.

    Which circuit is the largest depends on what is built, so there is a row for each that could be.
    """
    rule = data.grid.rules.interconnect
    if not rule.enabled:
        return
    new = [k for k, c in data.corridors.items() if c.new]
    m.built = pyo.Var(new, domain=pyo.Binary)
    m.building = pyo.Constraint(new, rule=lambda m, k: m.circuits[k] <= data.corridors[k].circuits * m.built[k])
    largest = {s: largest_circuit_mw(data.grid, s) for s in data.candidates}
    n1 = rule.reading != "capacity"

    def row(m: Any, s: str, lost: str) -> Any:
        lost_mw: Any = largest[s] if n1 else 0.0
        if lost != "standing":
            # A larger circuit, once built, is the one to lose; unbuilt, the row says no more than the existing one's.
            lost_mw = largest[s] + (data.corridors[lost].rating_mw - largest[s]) * m.built[lost]
        return rule.share * _drawn_mw(m, data, s) <= _circuits_mw(m, data, s, largest[s]) - lost_mw

    corridors = {s: [data.corridors[k] for _, _, k in data.graph.edges(s, keys=True)] for s in data.candidates}
    larger = [(s, c.id) for s in corridors for c in corridors[s] if n1 and c.new and c.rating_mw > largest[s]]
    m.interconnect = pyo.Constraint(sorted([(s, "standing") for s in data.candidates] + larger), rule=row)


def _circuits_mw(m: Any, data: SplitData, site: str, largest_mw: float) -> Any:
    """Return what all circuits of a site carry: existing, built, and bought as an upgrade."""
    node, rule = data.candidates[site], data.grid.rules.interconnect
    corridors = [data.corridors[k] for _, _, k in data.graph.edges(site, keys=True)]
    existing = sum(c.rating_mw * c.circuits for c in corridors if not c.new)
    if rule.reading == "explicit":
        # The node's figure is that of its existing circuits without the largest of them.
        existing = (node.interconnect_mw or 0.0) + largest_mw
    bought = node.upgrade.step_mw * m.steps[site] if node.upgrade else 0.0
    return existing + sum(c.rating_mw * m.circuits[c.id] for c in corridors if c.new) + bought


def _drawn_mw(m: Any, data: SplitData, site: str) -> Any:
    """Return the load of a site that counts: all of it, or what its node draws that its own plants do not feed.

    No more than 0 where the site is closed: what its node draws without one is none of the rule's business.
    """
    load, node = load_mw(m, data, [site]), data.candidates[site]
    if data.grid.rules.interconnect.reading != "import_share":
        return load
    if data.grid.rules.grid_model == "none":
        # Without flows the node's own plants feed its site first.
        return load + (node.load_mw - node.generation_mw) * m.open[site]
    # Under dc a node without plants has no variable.
    load += node.load_mw * m.open[site]
    return load - m.generated[site] if site in m.generated else load


def _largest_interconnect_mw(data: SplitData, site: str) -> float:
    """Return the usable interconnect of a site with everything built and bought."""
    node = data.candidates[site]
    built = {c.id: c.circuits for c in data.corridors.values() if c.new}
    return usable_interconnect_mw(data.grid, node, built, node.upgrade.max_steps if node.upgrade else 0) or 0.0


def _interconnect_modules(data: SplitData, site: str, _: int) -> float | None:
    rule = data.grid.rules.interconnect
    if not rule.enabled or rule.share <= 0 or rule.reading == "import_share":
        return None
    usable = _largest_interconnect_mw(data, site) + soft_excess(data, "interconnect")
    return usable / rule.share / data.module_mw


def _interconnect_sentence(data: SplitData) -> str:
    rule = data.grid.rules.interconnect
    usable = {s: _largest_interconnect_mw(data, s) for s in data.candidates}
    best = max(usable, key=lambda s: (usable[s], s))
    what = "draw beyond its own plants" if rule.reading == "import_share" else "load"
    enough = f", enough for {megawatts(usable[best] / rule.share)} of that" if rule.share else ""
    return (
        f"grid.rules.interconnect ({rule.reading}) wants {rule.share:.0%} of a site's {what} on its circuits: "
        f"the best site, {best}, has {megawatts(usable[best])}{enough}"
    )


def ready(m: Any, data: SplitData) -> None:
    """Require that sites, new lines and upgrades in use are ready in time."""
    limit = data.grid.rules.ready_within_months
    if limit is None:
        return
    m.ready = pyo.Constraint(pyo.Any)
    for s, n in data.candidates.items():
        if n.ready_months > limit:
            m.ready[s] = m.open[s] <= 0
        if n.upgrade and n.upgrade.lead_months > limit:
            m.ready[s, "upgrade"] = m.steps[s] <= 0
    for line in sorted(data.grid.new_lines, key=lambda x: x.id):
        if line.lead_months > limit:
            m.ready[line.id] = m.circuits[line.id] <= 0


def _ready_sentence(data: SplitData) -> str:
    limit = data.grid.rules.ready_within_months or 0.0
    late = sorted((n.ready_months, s) for s, n in data.candidates.items() if n.ready_months > limit)
    lines = sum(x.lead_months > limit for x in data.grid.new_lines)
    first = f", {late[0][1]} the first in {late[0][0]:g}" if late else ""
    count = f"{len(late)} of {len(data.candidates)} sites{first} and {lines} new lines"
    return f"grid.rules.ready_within_months is {limit:g}: {count} come later"


RULES = (
    Rule(
        rows=min_site,
        sentence=_min_site_sentence,
        order=80,
        scope="split",
        index="site",
        unit="modules",
        movable=True,
        slack=no_room,
    ),
    Rule(
        rows=area,
        sentence=_area_sentence,
        order=90,
        scope="site",
        index="site",
        unit="m2",
        scale=1e3,
        movable=True,
        slack=lambda data, _: _module_m2(data) / 1e3,
        max_site_modules=_area_modules,
    ),
    Rule(
        rows=interconnect,
        sentence=_interconnect_sentence,
        order=100,
        scope="site",
        index_names=1,
        index="site",
        unit="MW",
        movable=True,
        slack=lambda data, _: data.grid.rules.interconnect.share * data.module_mw,
        max_site_modules=_interconnect_modules,
    ),
    Rule(rows=ready, sentence=_ready_sentence, order=70, scope="site"),
)
