"""The rows of four tiers for the fabric's tables: pods in zones. Most questions want none, so bounds shut out leaf domains, then pods, then zones."""

import math
from collections.abc import Iterator

import numpy as np

from planner.models.fabric.columns import allowed, domain_sizes, hold, least_with_spines, uplink_range
from planner.models.fabric.data import BEYOND, Ints, Problem, unavoidable_splits
from planner.models.fabric.four_tier_groups import bound_of
from planner.models.fabric.price import LinkPrices
from planner.models.fabric.table import COL, SHAPE, pod_sizes
from planner.models.fabric.traffic import least_block_up

NONE = np.empty((0, len(SHAPE)), dtype=np.int64)


def zone_table(p: Problem, prices: LinkPrices, most: float) -> tuple[Ints, dict[str, int]]:
    """Return the shapes of four tiers that may cost no more than `most`, by increasing bound, and what bounds shut out.

    Where nothing is held yet (`most` is infinite) the first that can be built is held against the others.
    """
    space = {"zone_leaf_domain_sizes": 0, "zone_leaf_domain_sizes_excluded_by_bound": 0, "zone_shapes_within_bound": 0}
    prices.most, parts, least = most, [NONE], math.inf
    wanted = p.network.max_tiers > 3 and p.pins.get("tiers", 4) == 4
    for mode in range(len(p.modes)) if wanted else ():
        for domain in reversed(domain_sizes(p, mode) if not p.modes[mode].grouped else []):
            space["zone_leaf_domain_sizes"] += 1
            found, bound = _zone_shapes(p, mode, domain, prices)
            space["zone_leaf_domain_sizes_excluded_by_bound"] += not len(found) and bound > prices.most
            least = min(least, bound)
            parts.append(found)
            if math.isinf(most):
                hold(p, found, prices)
    table = np.concatenate(parts)
    table = table[table[:, COL["bound"]] <= prices.most]
    table = table[np.argsort(table[:, COL["bound"]], kind="stable")]
    space["zone_shapes_within_bound"] = len(table)
    if math.isfinite(least):
        space["four_tiers_cost_at_least_usd"] = math.floor(p.usd(least))
    return table, space


def _least_zones(p: Problem) -> int:
    """One zone is three tiers with boxes on top that nothing needs, but where these are asked for or make room for a WAN gateway."""
    return 1 if {"tiers", "core_up_ports"} & set(p.pins) or p.request.wan_gbps else 2


def _zone_shapes(p: Problem, mode: int, domain: int, prices: LinkPrices) -> tuple[Ints, float]:
    """Return the shapes of a domain size, and the least that any can cost; infinite where none has the ports."""
    m, domains, link = p.modes[mode], -(-p.request.racks // domain), prices.least_link(mode)
    leaves, ends = domains * m.rails, prices.endpoints(mode, domain)
    least, most = uplink_range(p, mode, domain)
    if least > most or ends >= BEYOND:
        return NONE, math.inf
    cost = leaves * p.switch_cost(mode) + ends + prices.wan_gateway(mode)
    below = least_with_spines(p, mode, domain, prices, least=least, spine_ports=m.switch.ports - 1)
    spines = -(-leaves * least // (m.switch.ports - 1))
    bound = below + spines * link + _least_zones(p) * (p.switch_cost(mode) + link) + p.switch_cost(mode)
    if bound > prices.most:
        return NONE, bound
    same = {
        "mode": mode,
        "tiers": 4,
        "ports": m.switch.ports,
        "domain": domain,
        "down_ports": domain * m.rail_gpus,
        "domains": domains,
    }
    same |= {
        "leaves": m.networks * leaves,
        "leaf_cost": cost,
        "splits": unavoidable_splits(p.request, domain),
        "least_up": least,
        "most_up": most,
    }
    pods, excluded = _pods(p, same | {"wan_ports": m.wan_ports(p.request)}, link, prices)
    rows, also = _zones(p, mode, domain, pods, prices)
    return rows, min([excluded, also, *rows[:, COL["bound"]].tolist()])


def _pods(p: Problem, same: dict[str, int], link: int, prices: LinkPrices) -> tuple[Ints, float]:
    """Return the pods that may be worth zones, with every link at its least price, and the least bound of the others."""
    m, domains, ports = p.modes[same["mode"]], same["domains"], same["ports"]
    by_rail, by_domain = pod_sizes(p, m.rails, domains, max(m.rails, domains))
    rails, width = np.repeat(by_rail, len(by_domain)), np.tile(by_domain, len(by_rail))
    pods = -(-m.rails // rails) * -(-domains // width)
    keep = (rails * width < ports) & (pods >= _least_zones(p)) & (pods <= ports * (ports - 1))
    rows = np.zeros((int(keep.sum()), len(SHAPE)), dtype=np.int64)
    for name, value in same.items():
        rows[:, COL[name]] = value
    for name, values in (
        ("pods", pods),
        ("rails", rails),
        ("domains_per_pod", width),
        ("leaves_per_pod", rails * width),
    ):
        rows[:, COL[name]] = values[keep]
    rows[:, COL["need_up"]] = least_block_up(
        p, m, *(rows[:, COL[c]] for c in ("domain", "domains", "rails", "domains_per_pod", "pods"))
    )
    rows, groups, up = _groups(rows)
    box, pods = p.switch_cost(same["mode"]), rows[:, COL["pods"]]
    cores = np.maximum(_least_zones(p) * groups, -(-pods * up // ports))
    links = link * (same["leaves"] // m.networks * same["least_up"] + pods * up + _least_zones(p) * groups)
    rows[:, COL["bound"]] = same["leaf_cost"] + box * (pods * groups + cores + groups) + links
    return _within(rows, prices)


def _groups(rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Drop shapes whose spines have no ports; return the others with the fewest spine groups and uplinks of a pod that ports allow."""
    ports, least, most, need, per_pod = (
        rows[:, COL[c]] for c in ("ports", "least_up", "most_up", "need_up", "leaves_per_pod")
    )
    bundle = (ports - np.maximum(1, -(-need // most))) // per_pod
    keep = (bundle >= 1) & (need <= most * (ports - per_pod))
    groups = -(-least[keep] // bundle[keep])
    return rows[keep], groups, np.maximum(need[keep], groups)


def _within(rows: Ints, prices: LinkPrices) -> tuple[Ints, float]:
    """Return the rows that may cost no more than the design held, and the least bound of the others."""
    keep = rows[:, COL["bound"]] <= prices.most
    return rows[keep], float(rows[~keep, COL["bound"]].min(initial=BEYOND)) if not keep.all() else math.inf


def _zones(p: Problem, mode: int, domain: int, pods: Ints, prices: LinkPrices) -> tuple[Ints, float]:
    """Lay zones over pods and return those that may be worth it, with the least bound of the others: links at least price, then by length."""
    m, domains, parts = p.modes[mode], -(-p.request.racks // domain), [NONE]
    for row in pods:
        parts += _laid(p, m.rails, domains, row)
    rows = allowed(p, np.concatenate(parts))
    sizes = (rows[:, COL[c]] for c in ("domain", "domains", "rails_per_zone", "domains_per_zone", "zones"))
    rows[:, COL["need_zone"]] = least_block_up(p, m, *sizes)
    link = prices.least_link(mode)
    for cost, boxes in (
        ("up_cost", rows[:, COL["leaves"]] // m.networks),
        ("core_cost", rows[:, COL["pods"]]),
        ("zone_cost", rows[:, COL["zones"]]),
    ):
        rows[:, COL[cost]] = boxes * link
    rows, excluded = _bounded(p, mode, rows, prices)
    if prices.places is None or not len(rows):
        return rows, excluded
    rails, width = rows[:, COL["rails_per_zone"]], rows[:, COL["domains_per_zone"]]
    rows[:, COL["up_cost"]] = prices.leaf_uplink(mode, domain, rows[:, COL["domains_per_pod"]])
    rows[:, COL["core_cost"]] = prices.spine_uplink_in_zone(
        mode, domain, rows[:, COL["domains_per_pod"]], rows[:, COL["rails"]], width
    )
    rows[:, COL["zone_cost"]] = prices.spine_uplink(mode, domain, width, rails)
    rows = rows[np.max(rows[:, [COL[c] for c in ("up_cost", "core_cost", "zone_cost")]], axis=1, initial=0) < BEYOND]
    rows, also = _bounded(p, mode, rows, prices)
    return rows, min(excluded, also)


def _bounded(p: Problem, mode: int, rows: Ints, prices: LinkPrices) -> tuple[Ints, float]:
    """Bound shapes with zones by ports alone; return those within the cost held, and the least bound of the others."""
    rows, groups, up = _groups(rows)
    box = np.full(len(rows), p.switch_cost(mode), dtype=np.int64)
    above = bound_of(box, rows, groups, up, rows[:, COL["need_zone"]])
    links = rows[:, COL["up_cost"]] * rows[:, COL["least_up"]]
    rows[:, COL["bound"]] = rows[:, COL["leaf_cost"]] + links + box * rows[:, COL["pods"]] * groups + above
    return _within(rows, prices)


def _laid(p: Problem, rails: int, domains: int, row: Ints) -> Iterator[Ints]:
    """Yield a pod's shape with each zone that core and super-spine ports can hold."""
    x, y, ports = (int(row[COL[c]]) for c in ("rails", "domains_per_pod", "ports"))
    columns, lines = -(-rails // x), -(-domains // y)
    across, along = pod_sizes(p, columns, lines, ports, pin="core_down_ports")
    wide, deep = np.repeat(across, len(along)), np.tile(along, len(across))
    zones = -(-columns // wide) * -(-lines // deep)
    keep = (wide * deep < ports) & (zones <= ports) & (zones >= _least_zones(p))
    rows = np.repeat(row[None, :], int(keep.sum()), axis=0)
    for name, values in (
        ("zones", zones),
        ("zone_pods", wide * deep),
        ("rails_per_zone", wide * x),
        ("domains_per_zone", deep * y),
    ):
        rows[:, COL[name]] = values[keep]
    yield rows
