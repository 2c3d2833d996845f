"""The rows that the fabric chooses from, as numpy tables: leaf domains and pod shapes, their leaf uplinks, their spine groups and bounds."""

import math
from functools import cache

import numpy as np

from planner.models.fabric import four_tier_groups
from planner.models.fabric.data import BEYOND, Ints, Problem, unavoidable_splits
from planner.models.fabric.dragonfly import group_shapes, plus_links
from planner.models.fabric.price import LinkPrices
from planner.models.fabric.table import CHUNK, COL, COLUMNS, KEY, KEYS, SHAPE, core_bundles, pod_sizes
from planner.models.fabric.traffic import least_block_up, least_leaf_up


def shape_table(p: Problem, prices: LinkPrices) -> tuple[Ints, dict[str, int]]:
    """Return every row of up to three tiers that ports and traffic allow, by increasing bound, and how many there were before."""
    space = {
        "switch_modes": len(p.modes),
        "leaf_domain_sizes": 0,
        "leaf_domain_sizes_excluded_by_bound": 0,
        "pod_shapes": 0,
    }
    parts = [np.empty((0, len(SHAPE)), dtype=np.int64)]
    parts += [_single_switch(p, mode, prices) for mode in range(len(p.modes)) if not p.modes[mode].grouped]
    lazy = prices.places is not None
    for bound, _, mode, domain in _domains(p, prices):
        space["leaf_domain_sizes"] += 1
        if bound > prices.most:
            space["leaf_domain_sizes_excluded_by_bound"] += 1
            continue
        rows, promising = _shapes(p, mode, domain, prices)
        space["pod_shapes"] += rows
        parts.append(promising)
        if lazy or not p.modes[mode].grouped:
            hold(p, promising, prices)
    table = allowed(p, np.concatenate(parts))
    table = table[np.argsort(table[:, COL["bound"]], kind="stable")]
    space["pod_shapes_within_ports"] = len(table)
    return table, space


def _domains(p: Problem, prices: LinkPrices) -> list[tuple[float, int, int, int]]:
    """List leaf domains of every mode with their least cost, the cheapest trees first and then dragonflies, the largest first."""
    trees, grouped = [], []
    for mode, m in enumerate(p.modes):
        for domain in domain_sizes(p, mode):
            if m.grouped:
                grouped.append((0.0, -domain, mode, domain))
            else:
                least, _ = uplink_range(p, mode, domain)
                trees.append(
                    (
                        least_with_spines(p, mode, domain, prices, least=least, spine_ports=m.switch.ports),
                        -domain,
                        mode,
                        domain,
                    )
                )
    return sorted(trees) + sorted(grouped, key=lambda x: (x[2], x[1]))


def uplink_range(p: Problem, mode: int, domain: int) -> tuple[int, int]:
    """Fewest uplinks that a leaf of so many racks needs, and most that it has ports for."""
    least, most = least_leaf_up(p, p.modes[mode], domain, -(-p.request.racks // domain)), ports_left(p, mode, domain)
    pin = p.pins.get("leaf_up_ports")
    return (least, most) if pin is None else (max(least, pin), min(most, pin))


def least_with_spines(p: Problem, mode: int, domain: int, prices: LinkPrices, *, least: int, spine_ports: int) -> float:
    """Bound the cost of a domain size: its leaves with `least` uplinks each, and the spines whose ports these fill."""
    leaves, ends = -(-p.request.racks // domain) * p.modes[mode].rails, prices.endpoints(mode, domain)
    if ends >= BEYOND:
        return math.inf
    spines = -(-leaves * least // spine_ports)
    return (
        (leaves + spines) * p.switch_cost(mode)
        + ends
        + prices.wan_gateway(mode)
        + leaves * least * prices.least_link(mode)
    )


def allowed(p: Problem, rows: Ints) -> Ints:
    """Drop rows that pins or limits forbid."""
    keep = rows[:, COL["tiers"]] <= p.network.max_tiers
    for name, column in (("tiers", "tiers"), ("leaf_domain_racks", "domain"), ("leaf_down_ports", "down_ports")):
        if name in p.pins:
            keep &= rows[:, COL[column]] == p.pins[name]
    down, up, pods = p.pins.get("core_down_ports"), p.pins.get("core_up_ports"), np.maximum(rows[:, COL["pods"]], 1)
    if down is not None:
        keep &= (rows[:, COL["tiers"]] == 4) | (
            (rows[:, COL["tiers"]] == 3) & (down % pods == 0) & (down <= rows[:, COL["ports"]])
        )
    if up is not None:
        keep &= rows[:, COL["tiers"]] == 4
    keep &= rows[:, COL["domain"]] >= p.least_domain
    if p.most_splits is not None:
        keep &= rows[:, COL["splits"]] <= p.most_splits
    kept: Ints = rows[keep]
    return kept


def hold(p: Problem, rows: Ints, prices: LinkPrices) -> None:
    """Remember the cost of one design of some shapes, the one of least bound: what costs more need not be looked at."""
    rows = allowed(p, rows)
    if len(rows) and rows[:, COL["bound"]].min() < prices.most:
        best = expand(p, rows[[rows[:, COL["bound"]].argmin()]], prices.most)
        if len(best):
            prices.most = min(prices.most, float(completed(p, best).min()))


def _shapes(p: Problem, mode: int, domain: int, prices: LinkPrices) -> tuple[int, Ints]:
    """Return how many pod shapes a domain size has, and those that ports allow."""
    if p.modes[mode].grouped:
        return group_shapes(p, mode, domain, ports_left(p, mode, domain), prices)
    rows = _pod_shapes(p, mode, domain, prices)
    return len(rows), _promising(p, mode, rows)


def domain_sizes(p: Problem, mode: int) -> list[int]:
    """Racks of a leaf domain: no more than the site has, unless a pin says so, and a port left for an uplink."""
    m = p.modes[mode]
    most = next((n for n in range(m.switch.ports * m.split // m.rail_gpus, 0, -1) if ports_left(p, mode, n) > 0), 0)
    sizes = set(range(1, min(most, p.request.racks) + 1))
    if "leaf_domain_racks" in p.pins:
        sizes = {p.pins["leaf_domain_racks"]}
    elif "leaf_down_ports" in p.pins:
        sizes = {p.pins["leaf_down_ports"] // m.rail_gpus} if p.pins["leaf_down_ports"] % m.rail_gpus == 0 else set()
    return [d for d in sorted(sizes) if 1 <= d <= most]


def ports_left(p: Problem, mode: int, domain: int) -> int:
    """Ports of a leaf that GPUs of so many racks and spares leave for uplinks."""
    m = p.modes[mode]
    return m.switch.ports - -(-(domain * m.rail_gpus + m.spare(p.network, domain * m.rail_gpus)) // m.split)


def _single_switch(p: Problem, mode: int, prices: LinkPrices) -> Ints:
    """One row where one switch of each network holds every endpoint, none otherwise."""
    m, row = p.modes[mode], dict.fromkeys(SHAPE, 0)
    racks = p.request.racks
    ends, price = (
        racks * m.rails * m.rail_gpus,
        p.switch_cost(mode) + prices.endpoints(mode, racks) + prices.wan_gateway(mode),
    )
    taken = -(-(ends + m.spare(p.network, ends)) // m.split)
    row |= {"mode": mode, "tiers": 1, "ports": m.switch.ports, "domain": racks, "down_ports": ends, "domains": 1}
    row |= {"leaves": m.networks, "leaf_cost": price, "splits": unavoidable_splits(p.request, racks), "bound": price}
    row |= {"wan_ports": m.wan_ports(p.request)}
    rows = np.array([[row[c] for c in SHAPE]], dtype=np.int64)
    return rows[: int(taken + row["wan_ports"] <= m.switch.ports and price < BEYOND)]


def _pod_shapes(p: Problem, mode: int, domain: int, prices: LinkPrices) -> Ints:
    """Rows of a domain size: two tiers, and three with every pod shape that spine and core ports can hold."""
    m, domains = p.modes[mode], -(-p.request.racks // domain)
    ports = m.switch.ports
    by_rail, by_domain = pod_sizes(p, m.rails, domains, ports)
    rails, width = np.repeat(by_rail, len(by_domain)), np.tile(by_domain, len(by_rail))
    pods = -(-m.rails // rails) * -(-domains // width)
    three = (rails * width < ports) & (pods <= ports)
    rows = np.zeros((int(three.sum()) + 1, len(SHAPE)), dtype=np.int64)
    rows[0, [COL[c] for c in ("tiers", "pods", "rails", "domains_per_pod")]] = 2, 1, m.rails, domains
    rows[1:, COL["tiers"]] = 3
    for name, values in (("pods", pods), ("rails", rails), ("domains_per_pod", width)):
        rows[1:, COL[name]] = values[three]
    leaves, ends = domains * m.rails, prices.endpoints(mode, domain)
    same = {
        "mode": mode,
        "ports": ports,
        "domain": domain,
        "down_ports": domain * m.rail_gpus,
        "domains": domains,
        "leaves": m.networks * leaves,
    }
    same |= {
        "leaf_cost": leaves * p.switch_cost(mode) + ends + prices.wan_gateway(mode),
        "splits": unavoidable_splits(p.request, domain),
    }
    same |= {"wan_ports": m.wan_ports(p.request)}
    same["least_up"], same["most_up"] = uplink_range(p, mode, domain)
    for name, value in same.items():
        rows[:, COL[name]] = value
    rows[:, COL["leaves_per_pod"]] = rows[:, COL["rails"]] * rows[:, COL["domains_per_pod"]]
    rows[1:, COL["need_up"]] = least_block_up(
        p, m, *(rows[1:, COL[c]] for c in ("domain", "domains", "rails", "domains_per_pod", "pods"))
    )
    rows[:, COL["up_cost"]] = prices.leaf_uplink(mode, domain, rows[:, COL["domains_per_pod"]])
    rows[1:, COL["core_cost"]] = prices.spine_uplink(
        mode, domain, rows[1:, COL["domains_per_pod"]], rows[1:, COL["rails"]]
    )
    return rows[np.maximum(rows[:, COL["up_cost"]], rows[:, COL["core_cost"]]) < (BEYOND if ends < BEYOND else 0)]


def _promising(p: Problem, mode: int, rows: Ints) -> Ints:
    """Drop shapes whose ports do not suffice, and bound the others from below by ports alone."""
    ports, least, most, need, per_pod, pods = (
        rows[:, COL[c]] for c in ("ports", "least_up", "most_up", "need_up", "leaves_per_pod", "pods")
    )
    three = rows[:, COL["tiers"]] == 3
    spine_up = np.where(three, np.maximum(1, -(-need // np.maximum(most, 1))), 0)
    bundle = (ports - spine_up) // per_pod
    keep = (bundle >= 1) & (least <= most) & (need <= most * (ports - per_pod))
    groups = -(-least // np.maximum(bundle, 1))
    up = np.where(three, np.maximum(need, groups), 0)
    cores = np.where(three, np.maximum(groups, -(-up // (ports // np.maximum(pods, 1)))), 0)
    links = rows[:, COL["up_cost"]] * least + rows[:, COL["core_cost"]] * up
    rows[:, COL["bound"]] = rows[:, COL["leaf_cost"]] + p.switch_cost(mode) * (pods * groups + cores) + links
    return rows[keep]


def expand(p: Problem, shapes: Ints, within: float) -> Ints:
    """Return each shape with each number of leaf uplinks and bundle that ports and pins allow, by increasing bound up to `within`."""
    parts = [np.empty((0, len(COLUMNS)), dtype=np.int64)]
    for i in range(0, len(shapes), CHUNK):
        rows = _wirings(p, shapes[i : i + CHUNK])
        parts.append(rows[rows[:, COL["bound"]] <= within])
    rows = np.concatenate(parts)
    return rows[np.argsort(rows[:, COL["bound"]], kind="stable")]


def _wirings(p: Problem, shapes: Ints) -> Ints:
    """Return the rows of some shapes: s = u1/b1 groups, x·y·b1 spine ports down, and the range that is left for those up."""
    up, bundle = _bundles(int(shapes[:, COL["most_up"]].max()))
    ports, least, most, per_pod, tiers = (
        shapes[:, COL[c], None] for c in ("ports", "least_up", "most_up", "leaves_per_pod", "tiers")
    )
    at, pair = np.nonzero(
        (up >= least) & (up <= most) & (per_pod * bundle + (tiers > 2) <= ports) & ((up > 0) == (tiers > 1))
    )
    rows = np.concatenate([shapes[at], np.zeros((len(at), len(COLUMNS) - len(SHAPE)), dtype=np.int64)], axis=1)
    down, groups = rows[:, COL["leaves_per_pod"]] * bundle[pair], up[pair] // np.maximum(bundle[pair], 1)
    shared = np.where(rows[:, COL["grouped"]], rows[:, COL["pods"]], 1) * np.maximum(groups, 1)
    wan_gateway, zone = -(-rows[:, COL["wan_ports"]] // shared), -(-rows[:, COL["need_zone"]] // np.maximum(groups, 1))
    own = {
        "leaf_up": up[pair],
        "leaf_bundle": bundle[pair],
        "groups": groups,
        "spine_down": down,
        "wan_gateway": wan_gateway,
        "zone_up": zone,
    }
    for name, column in own.items():
        rows[:, COL[name]] = column
    cored = rows[:, COL["tiers"]] > 2
    least_spine, most_spine = (
        np.where(cored, _least_spine_up(p, rows), 0),
        np.where(cored, rows[:, COL["ports"]] - down, 0),
    )
    keep = (rows[:, COL["tiers"]] != 2) | (down + wan_gateway <= rows[:, COL["ports"]])
    if "leaf_up_ports" in p.pins:
        keep &= up[pair] == p.pins["leaf_up_ports"]
    if "spine_down_ports" in p.pins:
        keep &= down == p.pins["spine_down_ports"]
    if "spine_up_ports" in p.pins:
        tree = rows[:, COL["grouped"]] == 0
        least_spine, most_spine = (
            np.maximum(least_spine, p.pins["spine_up_ports"] * tree),
            np.minimum(most_spine, p.pins["spine_up_ports"]),
        )
    keep &= least_spine % core_unit(p, rows) == 0
    rows[:, COL["least_spine_up"]], rows[:, COL["most_spine_up"]] = least_spine, most_spine
    rows = plus_links(p, rows[keep & (least_spine <= most_spine)])
    rows[:, COL["bound"]] = _bound(p, rows)
    return rows


def _least_spine_up(p: Problem, rows: Ints) -> Ints:
    """Return the fewest uplinks of a spine that hide what leaves a pod, and a zone, and whose top tier has ports for the WAN gateway."""
    least = np.maximum(1, -(-rows[:, COL["need_up"]] // np.maximum(rows[:, COL["groups"]], 1)))
    unit, wan_gateway = core_unit(p, rows), rows[:, COL["wan_gateway"]]
    least = unit * -(-np.maximum(least, _least_for_border(rows, wan_gateway, unit)) // unit)
    zoned = rows[:, COL["tiers"]] == 4
    if zoned.any():
        least[zoned] = four_tier_groups.least_up(p, rows[zoned], unit[zoned])
    fewest: Ints = least
    return fewest


def core_unit(p: Problem, rows: Ints) -> Ints:
    """Links from a spine to a core where a pin fixes the core's ports down; else 1, which divides all uplinks."""
    under = np.where(rows[:, COL["tiers"]] == 4, rows[:, COL["zone_pods"]], rows[:, COL["pods"]])
    unit: Ints = np.maximum(
        1, np.where(rows[:, COL["tiers"]] > 2, p.pins.get("core_down_ports", 0) // np.maximum(under, 1), 1)
    )
    return unit


def _least_for_border(rows: Ints, wan_gateway: Ints, unit: Ints) -> Ints:
    """Return the fewest spine uplinks whose cores, one for `unit` of them, leave `WAN gateway` ports free in a spine group: u2·(ports/unit - pods)."""
    free = rows[:, COL["ports"]] - rows[:, COL["pods"]] * unit
    least: Ints = np.where(
        wan_gateway == 0, 0, np.where(free > 0, unit * -(-wan_gateway // np.maximum(free, 1)), BEYOND)
    )
    return least


@cache
def _bundles(most: int) -> tuple[Ints, Ints]:
    """Return every number of uplinks up to `most` with every bundle that divides it; and none, for a single switch."""
    pairs = [(0, 0), *((up, bundle) for bundle in range(1, most + 1) for up in range(bundle, most + 1, bundle))]
    up, bundle = np.array(sorted(pairs), dtype=np.int64).T
    return up, bundle


def _bound(p: Problem, rows: Ints) -> Ints:
    """Bound the cost of a row from below: its leaves and their uplinks, and s groups with the fewest uplinks and the fullest cores."""
    price = np.array([p.switch_cost(m) for m in range(len(p.modes))], dtype=np.int64)[rows[:, COL["mode"]]]
    pods, up = rows[:, COL["pods"]], rows[:, COL["least_spine_up"]]
    cores = -(-up // np.maximum(rows[:, COL["ports"]] // np.maximum(pods, 1), 1))
    group = price * (pods + cores) + rows[:, COL["core_cost"]] * up
    zoned = rows[:, COL["tiers"]] == 4
    if zoned.any():
        above = four_tier_groups.bound_of(price[zoned], rows[zoned], 1, up[zoned], rows[zoned, COL["zone_up"]])
        group[zoned] = price[zoned] * pods[zoned] + above
    total: Ints = leaf_cost(rows) + rows[:, COL["groups"]] * group
    return total


def completed(p: Problem, rows: Ints) -> Ints:
    """Cost of each row with the fewest spine uplinks: a design that can be built, so the cheapest is no cheaper than the least of these."""
    cost = leaf_cost(rows)
    keys, key = np.unique(rows[:, KEY], axis=0, return_inverse=True)
    for i, one in enumerate(keys):
        at = key.ravel() == i
        cost[at] += rows[at, COL["groups"]] * spine_group(p, one, rows[at, COL["least_spine_up"]])[0]
    return cost


def spine_group(p: Problem, key: Ints, up: Ints) -> tuple[Ints, Ints]:
    """Cost and boxes of one spine group of a key: `pods` spines of `up` uplinks, in the largest bundles that divide them and fit the core.

    Of four tiers the way of least cost to build cores and super-spines. Beyond all prices where a pin leaves no way.
    """
    row = dict(zip(KEYS, key.tolist(), strict=True))
    networks = p.modes[row["mode"]].networks
    if row["tiers"] == 4:
        found = four_tier_groups.ways(four_tier_groups.asked(p, row))
        return found.cost[up], networks * found.boxes[up]
    bundle = core_bundle(p, row, up)
    boxes: Ints = row["pods"] + up // np.maximum(bundle, 1)
    cost: Ints = np.where(bundle == 0, BEYOND, p.switch_cost(row["mode"]) * boxes + row["core_cost"] * up)
    return cost, networks * boxes


def core_bundle(p: Problem, row: dict[str, int], up: Ints) -> Ints:
    """Links from a spine to each core of three tiers: the largest bundle, or what a pin on the core leaves; 0 where it divides none."""
    pin, pods = p.pins.get("core_down_ports"), max(row["pods"], 1)
    if pin is None or row["tiers"] < 3:
        return core_bundles(p.modes[row["mode"]].switch.ports, pods, row["wan_gateway"])[up]
    bundle: Ints = np.where(up % (pin // pods) == 0, pin // pods, 0)
    return bundle


def leaf_cost(rows: Ints) -> Ints:
    """Price the leaves, the links to GPUs, the leaves' uplinks and the links between groups."""
    between = rows[:, COL["between_cost"]] * rows[:, COL["group_links"]]
    cost: Ints = rows[:, COL["leaf_cost"]] + rows[:, COL["up_cost"]] * rows[:, COL["leaf_up"]] + between
    return cost
