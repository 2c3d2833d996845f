"""The rows that the fabric chooses from, as numpy tables: leaf domains and pod shapes, their leaf uplinks, their spine groups and bounds."""

import math
from functools import cache

import numpy as np

from planner.models.fabric_groups import group_shapes, plus_links, pod_exchange
from planner.models.fabric_prices import LinkPrices
from planner.models.fabric_question import BEYOND, TOLERANCE, Ints, Mode, Problem, exchange_flows, rings, unavoidable_splits
from planner.models.fabric_table_columns import CHUNK, COL, COLUMNS, KEY, SHAPE, pod_sizes


def shape_table(p: Problem) -> tuple[Ints, dict[str, int]]:
    """Return every row that ports and traffic allow, by increasing bound, and how many there were before."""
    space = {"switch_modes": len(p.modes), "leaf_domain_sizes": 0, "pod_shapes": 0}
    prices = LinkPrices(p)
    parts = [np.empty((0, len(SHAPE)), dtype=np.int64)]
    lazy = prices.places is not None and any(m.grouped for m in p.modes)
    for mode in sorted(range(len(p.modes)), key=lambda i: p.modes[i].grouped):
        if not p.modes[mode].grouped:
            parts.append(_single_switch(p, mode, prices))
        for domain in reversed(_domains(p, mode)):
            rows, promising = _shapes(p, mode, domain, prices)
            space["leaf_domain_sizes"] += 1
            space["pod_shapes"] += rows
            parts.append(promising)
            if lazy:
                _hold(p, promising, prices)
    table = _allowed(p, np.concatenate(parts))
    table = table[np.argsort(table[:, COL["bound"]], kind="stable")]
    space["pod_shapes_within_ports"] = len(table)
    return table, space


def _allowed(p: Problem, rows: Ints) -> Ints:
    """Drop rows that pins or limits forbid."""
    keep = rows[:, COL["tiers"]] <= p.network.max_tiers
    for name, column in (("tiers", "tiers"), ("leaf_domain_racks", "domain"), ("leaf_down_ports", "down_ports")):
        if name in p.pins:
            keep &= rows[:, COL[column]] == p.pins[name]
    keep &= rows[:, COL["domain"]] >= p.least_domain
    if p.most_splits is not None:
        keep &= rows[:, COL["splits"]] <= p.most_splits
    kept: Ints = rows[keep]
    return kept


def _hold(p: Problem, rows: Ints, prices: LinkPrices) -> None:
    """Remember the cost of one design of some shapes, the one of least bound: dragonflies that cost more need no prices by length."""
    rows = _allowed(p, rows)
    if len(rows):
        best = expand(p, rows[[rows[:, COL["bound"]].argmin()]], prices.most)
        if len(best):
            prices.most = min(prices.most, float(completed(p, best).min()))


def _shapes(p: Problem, mode: int, domain: int, prices: LinkPrices) -> tuple[int, Ints]:
    """Return how many pod shapes a domain size has, and those that ports allow."""
    if p.modes[mode].grouped:
        return group_shapes(p, mode, domain, _left(p, mode, domain), prices)
    rows = _pod_shapes(p, mode, domain, prices)
    return len(rows), _promising(p, mode, rows)


def _domains(p: Problem, mode: int) -> list[int]:
    """Racks of a leaf domain: no more than the site has, unless a pin says so, and a port left for an uplink."""
    m = p.modes[mode]
    most = next((n for n in range(m.switch.ports * m.split // m.rail_gpus, 0, -1) if _left(p, mode, n) > 0), 0)
    sizes = set(range(1, min(most, p.request.racks) + 1))
    if "leaf_domain_racks" in p.pins:
        sizes = {p.pins["leaf_domain_racks"]}
    elif "leaf_down_ports" in p.pins:
        sizes = {p.pins["leaf_down_ports"] // m.rail_gpus} if p.pins["leaf_down_ports"] % m.rail_gpus == 0 else set()
    return [d for d in sorted(sizes) if 1 <= d <= most]


def _left(p: Problem, mode: int, domain: int) -> int:
    """Ports of a leaf that GPUs of so many racks and spares leave for uplinks."""
    m = p.modes[mode]
    return m.switch.ports - -(-(domain * m.rail_gpus + m.spare(p.network, domain * m.rail_gpus)) // m.split)


def _single_switch(p: Problem, mode: int, prices: LinkPrices) -> Ints:
    """One row where one switch of each network holds every endpoint, none otherwise."""
    m, row = p.modes[mode], dict.fromkeys(SHAPE, 0)
    racks = p.request.racks
    ends, price = racks * m.rails * m.rail_gpus, p.switch_cost(mode) + prices.endpoints(mode, racks) + prices.border(mode)
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
    same = {"mode": mode, "ports": ports, "domain": domain, "down_ports": domain * m.rail_gpus, "domains": domains, "leaves": m.networks * leaves}
    same |= {"leaf_cost": leaves * p.switch_cost(mode) + ends + prices.border(mode), "splits": unavoidable_splits(p.request, domain)}
    same |= {"wan_ports": m.wan_ports(p.request)}
    least, most = _least_leaf_up(p, m, domain, domains), _left(p, mode, domain)
    pin = p.pins.get("leaf_up_ports")
    same |= {"least_up": least if pin is None else max(least, pin), "most_up": most if pin is None else min(most, pin)}
    for name, value in same.items():
        rows[:, COL[name]] = value
    rows[:, COL["leaves_per_pod"]] = rows[:, COL["rails"]] * rows[:, COL["domains_per_pod"]]
    rows[:, COL["need_up"]] = _least_pod_up(p, m, rows)
    rows[:, COL["up_cost"]] = prices.leaf_uplink(mode, domain, rows[:, COL["domains_per_pod"]])
    rows[1:, COL["core_cost"]] = prices.spine_uplink(mode, domain, rows[1:, COL["domains_per_pod"]], rows[1:, COL["rails"]])
    return rows[np.maximum(rows[:, COL["up_cost"]], rows[:, COL["core_cost"]]) < (BEYOND if ends < BEYOND else 0)]


def _least_leaf_up(p: Problem, m: Mode, domain: int, domains: int) -> int:
    """Hide what leaves a leaf of w GPUs a rack: u1 >= D·w/ratio for the hop, rings·w/ratio for the all-reduce, and the all-to-all as it is.

    One where one domain holds all. The exchange between sites takes its ports' worth beside these, the more of a stage the domain holds.
    """
    gone = m.exchange_ports(p.request) * min(1.0, domain / p.request.group_racks)
    if domains == 1:
        return max(1, math.ceil(gone))
    hop, ring = domain * m.rail_gpus / p.ratios.hop, rings(p.request, domain) * m.rail_gpus / p.ratios.allreduce
    exchange = exchange_flows(p.request, domain) * m.rail_gpus
    return max(1, *(math.ceil(flows / m.split + gone) for flows in (hop, ring, exchange)))


def _least_pod_up(p: Problem, m: Mode, rows: Ints) -> Ints:
    """Hide what leaves a pod: s·u2 >= D·w·x·y/ratio for the hop and rings·w·x/ratio for the all-reduce; nothing where a pod holds every domain.

    Where there are several pods, the floor between them besides: a share of D·w·x·y. The exchange between sites takes its ports' worth anyway.
    """
    domain, width, rails = (rows[:, COL[c]] for c in ("domain", "domains_per_pod", "rails"))
    ends = domain * m.rail_gpus * rails * width
    shared = np.minimum(-(-width * domain // p.request.group_racks) + 1, p.request.groups) * (p.request.group_racks > 1)
    around = np.maximum(shared / p.ratios.allreduce, pod_exchange(p, rows)) * m.rail_gpus * rails
    crossing = np.where(width < rows[:, COL["domains"]], np.maximum(ends / p.ratios.hop, around) / m.split, 0.0)
    hidden = np.ceil(crossing + m.exchange_ports(p.request) * np.minimum(1.0, width * domain / p.request.group_racks) * rails)
    floor = np.where(rows[:, COL["pods"]] > 1, np.ceil(ends * p.network.min_core_share / m.split * (1 - TOLERANCE)), 0.0)
    need: Ints = np.maximum(hidden, floor).astype(np.int64)
    return need


def _promising(p: Problem, mode: int, rows: Ints) -> Ints:
    """Drop shapes whose ports do not suffice, and bound the others from below by ports alone."""
    ports, least, most, need, per_pod, pods = (rows[:, COL[c]] for c in ("ports", "least_up", "most_up", "need_up", "leaves_per_pod", "pods"))
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
    ports, least, most, per_pod, tiers = (shapes[:, COL[c], None] for c in ("ports", "least_up", "most_up", "leaves_per_pod", "tiers"))
    at, pair = np.nonzero((up >= least) & (up <= most) & (per_pod * bundle + (tiers == 3) <= ports) & ((up > 0) == (tiers > 1)))
    rows = np.concatenate([shapes[at], np.zeros((len(at), len(COLUMNS) - len(SHAPE)), dtype=np.int64)], axis=1)
    down, groups = rows[:, COL["leaves_per_pod"]] * bundle[pair], up[pair] // np.maximum(bundle[pair], 1)
    three = rows[:, COL["tiers"]] == 3
    least_spine = np.where(three, np.maximum(1, -(-rows[:, COL["need_up"]] // np.maximum(groups, 1))), 0)
    most_spine = np.where(three, rows[:, COL["ports"]] - down, 0)
    shared = np.where(rows[:, COL["grouped"]], rows[:, COL["pods"]], 1) * np.maximum(groups, 1)
    border = -(-rows[:, COL["wan_ports"]] // shared)
    least_spine = np.maximum(least_spine, _least_for_border(rows, border) * three)
    keep = (rows[:, COL["tiers"]] != 2) | (down + border <= rows[:, COL["ports"]])
    if "leaf_up_ports" in p.pins:
        keep &= up[pair] == p.pins["leaf_up_ports"]
    if "spine_down_ports" in p.pins:
        keep &= down == p.pins["spine_down_ports"]
    if "spine_up_ports" in p.pins:
        tree = rows[:, COL["grouped"]] == 0
        least_spine, most_spine = np.maximum(least_spine, p.pins["spine_up_ports"] * tree), np.minimum(most_spine, p.pins["spine_up_ports"])
    for name, column in zip(COLUMNS[len(SHAPE) :], (up[pair], bundle[pair], groups, down, least_spine, most_spine, border), strict=True):
        rows[:, COL[name]] = column
    rows = plus_links(p, rows[keep & (least_spine <= most_spine)])
    rows[:, COL["bound"]] = _bound(p, rows)
    return rows


def _least_for_border(rows: Ints, border: Ints) -> Ints:
    """Return the fewest spine uplinks whose cores, one for each, leave `border` ports free in a spine group: u2·(ports - pods)."""
    free = rows[:, COL["ports"]] - rows[:, COL["pods"]]
    least: Ints = np.where(border == 0, 0, np.where(free > 0, -(-border // np.maximum(free, 1)), BEYOND))
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
    """Cost and boxes of one spine group of a key: `pods` spines of `up` uplinks, in the largest bundles that divide them and fit the core."""
    mode, _, pods, core_cost, border = (int(v) for v in key)
    boxes: Ints = pods + up // core_bundles(p.modes[mode].switch.ports, max(pods, 1), border)[up]
    return p.switch_cost(mode) * boxes + core_cost * up, p.modes[mode].networks * boxes


def leaf_cost(rows: Ints) -> Ints:
    """Price the leaves, the links to GPUs, the leaves' uplinks and the links between groups."""
    between = rows[:, COL["between_cost"]] * rows[:, COL["group_links"]]
    cost: Ints = rows[:, COL["leaf_cost"]] + rows[:, COL["up_cost"]] * rows[:, COL["leaf_up"]] + between
    return cost


@cache
def core_bundles(ports: int, pods: int, border: int) -> Ints:
    """Largest bundle that divides every number of spine uplinks and fits the core, c·ports >= pods·u2 + `border` over its group of c; else 1."""
    if not border:
        return largest_divisor(ports, ports // pods)
    best = np.ones(ports + 1, dtype=np.int64)
    for b in range(2, ports // pods + 1):
        up = np.arange(b, ports + 1, b, dtype=np.int64)
        best[up[up // b * ports >= pods * up + border]] = b
    return best


@cache
def largest_divisor(upto: int, most: int) -> Ints:
    """Largest divisor, not above `most`, of every number up to `upto`."""
    best = np.ones(upto + 1, dtype=np.int64)
    for b in range(2, min(most, upto) + 1):
        best[b::b] = b
    return best
