"""Bounds that each rule sets on its own: modules of the campus and of a site, and open sites. They keep the relaxation tight."""

import math
from collections.abc import Collection

from planner.models.sites.data import Question
from planner.models.sites.soft_rules import room
from planner.physics.site import cost, power
from planner.physics.site.grid import usable_interconnect_mw


def most_modules(q: Question, without: Collection[str] = ()) -> int:
    """Bound the modules of the whole campus by the rules in force, each on its own."""
    caps = []
    if "demand" not in without and q.request.racks is not None:
        caps.append(q.request.racks // q.module_racks)
    if "pins" not in without and q.pins.racks is not None:
        caps.append(q.pins.racks // q.module_racks)
    if "facility_power" not in without and q.instance.limits.facility_power_mw is not None:
        caps.append(_whole((q.instance.limits.facility_power_mw + room(q, "facility_power")) / q.module_mw))
    if "headroom" not in without and q.grid.rules.headroom:
        caps.append(
            _whole(
                (sum(b.headroom_mw for b in q.authorities.values()) + room(q, "headroom", len(q.authorities)))
                / q.module_mw
            )
        )
    if "generation" not in without and q.grid.rules.generation:
        caps.append(
            _whole(
                (sum(n.generation_mw for n in q.grid.nodes) + room(q, "generation", len(q.grid.nodes))) / q.module_mw
            )
        )
    capital = module_capital_musd(q)
    if "budget" not in without and q.instance.limits.budget_usd is not None and capital > 0:
        caps.append(_whole(q.instance.limits.budget_usd / 1e6 / capital))
    if caps:
        return max(min(caps), 0)
    # Only a conflict's partial questions come here; room for every least size, pin and share is room enough.
    least = q.grid.rules.min_site_modules * len(q.candidates) + sum(q.pins.racks_by_site.values()) + 1
    return 100 * least + (q.racks or 0)


def most_sites(q: Question, without: Collection[str] = ()) -> int:
    """Bound the open sites by the rules in force."""
    caps = [len(q.candidates)]
    if "site_count" not in without and q.grid.rules.max_sites is not None:
        caps.append(q.grid.rules.max_sites + _whole(room(q, "site_count")))
    if "pins" not in without and q.pins.max_sites is not None:
        caps.append(q.pins.max_sites)
    return min(caps)


def least_sites(q: Question, without: Collection[str]) -> int:
    """Bound the open sites from below by the rules in force."""
    split = q.grid.rules.fault_split
    return split.min_interconnections if split.on and "fault_split" not in without else 1


def apart(q: Question, without: Collection[str], exact: int | None) -> int | None:
    """Return the number of sites where each must stand in an interconnection of its own, None where two may share one."""
    most = most_sites(q, without) if exact is None else exact
    return (
        most
        if "fault_split" not in without
        and q.grid.rules.fault_split.on
        and most == q.grid.rules.fault_split.min_interconnections
        else None
    )


def least_at(q: Question, without: Collection[str], exact: int | None) -> int:
    """Bound an open site's modules from below: what is left of a known total when the others, each alone, hold their share."""
    total = None
    if "demand" not in without and q.request.racks is not None:
        total = q.request.racks
    elif "pins" not in without:
        total = q.pins.racks
    sites = apart(q, without, exact)
    if total is None or sites is None:
        return 1
    return max(1, math.ceil((1 - (sites - 1) * q.grid.rules.fault_split.max_share) * total / q.module_racks - 1e-9))


def _whole(x: float) -> int:
    return math.floor(x + 1e-9)


def most_at(q: Question, site: str, total: int, without: Collection[str]) -> int:
    """Bound a site's modules by each rule on its own, so that the tie to its opening is tight."""
    node = q.candidates[site]
    caps = [float(total)]
    if "headroom" not in without and q.grid.rules.headroom:
        caps.append((q.authorities[node.balancing_authority].headroom_mw + room(q, "headroom")) / q.module_mw)
    area = power.cooling_m2(q.hardware, q.module_racks)
    if "area" not in without and node.area_m2 is not None and area is not None:
        caps.append(node.area_m2 / area + room(q, "area") * 1e3 / area)
    rule, split = q.grid.rules.interconnect, q.grid.rules.fault_split
    if "interconnect" not in without and rule.on and rule.share > 0 and rule.reading != "import_share":
        built = {c.id: c.circuits for c in q.corridors.values() if c.new}
        usable = usable_interconnect_mw(q.grid, node, built, node.upgrade.max_steps if node.upgrade else 0) or 0.0
        caps.append((usable + room(q, "interconnect")) / rule.share / q.module_mw)
    if "fault_split" not in without and split.on:
        caps.append(split.max_share * total)
    return max(_whole(min(caps)), 0)


def module_capital_musd(q: Question) -> float:
    """Price of one module with its fabric and its part of the site, in M$."""
    rack = power.rack_of(q.hardware).price_usd + q.request.fabric_usd_per_rack
    return q.module_racks * rack / 1e6 + site_musd(q)[1]


def site_musd(q: Question) -> tuple[float, float]:
    """Split a site's price into its fixed part and that of one module, in M$."""
    fixed = cost.site_capex_usd(q.grid, it_mw=0, facility_mw=0)
    one = cost.site_capex_usd(q.grid, it_mw=power.it_mw(q.hardware, q.module_racks), facility_mw=q.module_mw)
    return fixed / 1e6, (one - fixed) / 1e6
