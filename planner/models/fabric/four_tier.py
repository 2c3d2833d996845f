"""The candidate rows of four tiers: pods in zones. Bounds exclude leaf domains, then pods, then zones."""

import math
from collections.abc import Iterator

import numpy as np

from planner.models.fabric.columns import allowed, cost_bound, domain_sizes, tighten_cutoff, uplink_range
from planner.models.fabric.data import INFINITE_COST, Ints, Problem
from planner.models.fabric.four_tier_groups import bound_of
from planner.models.fabric.price import LinkPrices
from planner.models.fabric.table import COL, SHAPE, domain_columns, pod_sizes
from planner.models.fabric.traffic import least_block_up

NO_ROWS = np.empty((0, len(SHAPE)), dtype=np.int64)


def zone_table(p: Problem, prices: LinkPrices, cutoff: float) -> tuple[Ints, dict[str, int]]:
    """Return the shapes of four tiers that may cost at most `cutoff`, by increasing bound, and what bounds exclude.

    Where there is no incumbent yet (`cutoff` is infinite), the first that can be built cuts off the others.
    """
    space = {"zone_leaf_domain_sizes": 0, "zone_leaf_domain_sizes_excluded_by_bound": 0, "zone_shapes_within_bound": 0}
    prices.cutoff, parts, lowest = cutoff, [NO_ROWS], math.inf
    wanted = p.network.max_tiers > 3 and p.pins.get("tiers", 4) == 4
    for mode in range(len(p.modes)) if wanted else ():
        for domain in reversed(domain_sizes(p, mode) if not p.modes[mode].grouped else []):
            space["zone_leaf_domain_sizes"] += 1
            shapes, bound = _zone_shapes(p, mode, domain, prices)
            space["zone_leaf_domain_sizes_excluded_by_bound"] += not len(shapes) and bound > prices.cutoff
            lowest = min(lowest, bound)
            parts.append(shapes)
            if math.isinf(cutoff):
                tighten_cutoff(p, shapes, prices)
    table = np.concatenate(parts)
    table = table[table[:, COL["bound"]] <= prices.cutoff]
    table = table[np.argsort(table[:, COL["bound"]], kind="stable")]
    space["zone_shapes_within_bound"] = len(table)
    if math.isfinite(lowest):
        space["four_tiers_cost_at_least_usd"] = math.floor(p.usd(lowest))
    return table, space


def _min_zones(p: Problem) -> int:
    """Return the fewest zones: one is of use only where a pin, or a WAN gateway, asks for its super-spines."""
    return 1 if {"tiers", "core_up_ports"} & set(p.pins) or p.request.wan_gbps else 2


def _zone_shapes(p: Problem, mode: int, domain: int, prices: LinkPrices) -> tuple[Ints, float]:
    """Return the shapes of a domain size, and a bound on the cost of any; infinite where none has the ports."""
    m, domains, link = p.modes[mode], -(-p.request.racks // domain), prices.min_link(mode)
    leaves, ends = domains * m.rails, prices.endpoints(mode, domain)
    min_up, max_up = uplink_range(p, mode, domain)
    if min_up > max_up or ends >= INFINITE_COST:
        return NO_ROWS, math.inf
    cost = leaves * p.switch_cost(mode) + ends + prices.wan_gateway(mode)
    below = cost_bound(p, mode, domain, prices, min_up=min_up, spine_ports=m.switch.ports - 1)
    spines = -(-leaves * min_up // (m.switch.ports - 1))
    bound = below + spines * link + _min_zones(p) * (p.switch_cost(mode) + link) + p.switch_cost(mode)
    if bound > prices.cutoff:
        return NO_ROWS, bound
    same = {"tiers": 4, "leaf_cost": cost, "min_up": min_up, "max_up": max_up}
    pods, excluded = _pods(p, domain_columns(p, mode, domain) | same, link, prices)
    rows, also = _zones(p, mode, domain, pods, prices)
    return rows, min([excluded, also, *rows[:, COL["bound"]].tolist()])


def _pods(p: Problem, same: dict[str, int], link: int, prices: LinkPrices) -> tuple[Ints, float]:
    """Return the pods that may be worth zones, every link at its lowest price, and the lowest bound of the others."""
    m, domains, ports = p.modes[same["mode"]], same["domains"], same["ports"]
    by_rail, by_domain = pod_sizes(p, m.rails, domains, max(m.rails, domains))
    rails, width = np.repeat(by_rail, len(by_domain)), np.tile(by_domain, len(by_rail))
    pods = -(-m.rails // rails) * -(-domains // width)
    keep = (rails * width < ports) & (pods >= _min_zones(p)) & (pods <= ports * (ports - 1))
    rows = np.zeros((int(keep.sum()), len(SHAPE)), dtype=np.int64)
    for name, value in same.items():
        rows[:, COL[name]] = value
    shape = {"pods": pods, "rails": rails, "domains_per_pod": width, "leaves_per_pod": rails * width}
    for name, values in shape.items():
        rows[:, COL[name]] = values[keep]
    sizes = (rows[:, COL[c]] for c in ("domain", "domains", "rails", "domains_per_pod", "pods"))
    rows[:, COL["need_up"]] = least_block_up(p, m, *sizes)
    rows, groups, up = _groups(rows)
    switch, pods = p.switch_cost(same["mode"]), rows[:, COL["pods"]]
    cores = np.maximum(_min_zones(p) * groups, -(-pods * up // ports))
    links = link * (same["leaves"] // m.networks * same["min_up"] + pods * up + _min_zones(p) * groups)
    rows[:, COL["bound"]] = same["leaf_cost"] + switch * (pods * groups + cores + groups) + links
    return _within(rows, prices)


def _groups(rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the shapes whose spines have ports, with the fewest spine groups and uplinks of a pod."""
    names = ("ports", "min_up", "max_up", "need_up", "leaves_per_pod")
    ports, min_up, max_up, need, per_pod = (rows[:, COL[c]] for c in names)
    bundle = (ports - np.maximum(1, -(-need // max_up))) // per_pod
    keep = (bundle >= 1) & (need <= max_up * (ports - per_pod))
    groups = -(-min_up[keep] // bundle[keep])
    return rows[keep], groups, np.maximum(need[keep], groups)


def _within(rows: Ints, prices: LinkPrices) -> tuple[Ints, float]:
    """Return the rows within the cutoff, and the lowest bound of the others."""
    keep = rows[:, COL["bound"]] <= prices.cutoff
    return rows[keep], float(rows[~keep, COL["bound"]].min(initial=INFINITE_COST)) if not keep.all() else math.inf


def _zones(p: Problem, mode: int, domain: int, pods: Ints, prices: LinkPrices) -> tuple[Ints, float]:
    """Return the zones over pods within the cutoff, and the lowest bound of the others.

    With links at their lowest price first, then by length.
    """
    m, domains, parts = p.modes[mode], -(-p.request.racks // domain), [NO_ROWS]
    for row in pods:
        parts += _laid(p, m.rails, domains, row)
    rows = allowed(p, np.concatenate(parts))
    sizes = (rows[:, COL[c]] for c in ("domain", "domains", "rails_per_zone", "domains_per_zone", "zones"))
    rows[:, COL["need_zone"]] = least_block_up(p, m, *sizes)
    link = prices.min_link(mode)
    rows[:, COL["up_cost"]] = rows[:, COL["leaves"]] // m.networks * link
    rows[:, COL["core_cost"]], rows[:, COL["zone_cost"]] = rows[:, COL["pods"]] * link, rows[:, COL["zones"]] * link
    rows, excluded = _bounded(p, mode, rows, prices)
    if prices.places is None or not len(rows):
        return rows, excluded
    rails, width = rows[:, COL["rails_per_zone"]], rows[:, COL["domains_per_zone"]]
    pod_rails, pod_width = rows[:, COL["rails"]], rows[:, COL["domains_per_pod"]]
    rows[:, COL["up_cost"]] = prices.leaf_uplink(mode, domain, pod_width)
    rows[:, COL["core_cost"]] = prices.spine_uplink_in_zone(mode, domain, pod_width, pod_rails, width)
    rows[:, COL["zone_cost"]] = prices.spine_uplink(mode, domain, width, rails)
    rows = rows[
        np.max(rows[:, [COL[c] for c in ("up_cost", "core_cost", "zone_cost")]], axis=1, initial=0) < INFINITE_COST
    ]
    rows, also = _bounded(p, mode, rows, prices)
    return rows, min(excluded, also)


def _bounded(p: Problem, mode: int, rows: Ints, prices: LinkPrices) -> tuple[Ints, float]:
    """Return shapes with zones within the cutoff, bounded by ports alone, and the lowest bound of the others."""
    rows, groups, up = _groups(rows)
    switch = np.full(len(rows), p.switch_cost(mode), dtype=np.int64)
    above = bound_of(switch, rows, groups, up, rows[:, COL["need_zone"]])
    links = rows[:, COL["up_cost"]] * rows[:, COL["min_up"]]
    rows[:, COL["bound"]] = rows[:, COL["leaf_cost"]] + links + switch * rows[:, COL["pods"]] * groups + above
    return _within(rows, prices)


def _laid(p: Problem, rails: int, domains: int, row: Ints) -> Iterator[Ints]:
    """Yield a pod's shape with each zone that core and super-spine ports allow."""
    x, y, ports = (int(row[COL[c]]) for c in ("rails", "domains_per_pod", "ports"))
    columns, lines = -(-rails // x), -(-domains // y)
    across, along = pod_sizes(p, columns, lines, ports, pin="core_down_ports")
    wide, deep = np.repeat(across, len(along)), np.tile(along, len(across))
    zones = -(-columns // wide) * -(-lines // deep)
    keep = (wide * deep < ports) & (zones <= ports) & (zones >= _min_zones(p))
    rows = np.repeat(row[None, :], int(keep.sum()), axis=0)
    shape = {"zones": zones, "zone_pods": wide * deep, "rails_per_zone": wide * x, "domains_per_zone": deep * y}
    for name, values in shape.items():
        rows[:, COL[name]] = values[keep]
    yield rows
