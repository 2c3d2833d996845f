"""The candidate rows of a fabric, in tables: leaf domains and pod shapes, leaf uplinks, spine groups, bounds."""

import math
from functools import cache

import numpy as np

from planner.models.fabric import four_tier_groups
from planner.models.fabric.data import INFINITE_COST, Ints, Problem, unavoidable_splits
from planner.models.fabric.dragonfly import group_shapes, plus_links
from planner.models.fabric.price import LinkPrices
from planner.models.fabric.table import CHUNK, COL, COLUMNS, KEY, KEYS, SHAPE, core_bundles, domain_columns, pod_sizes
from planner.models.fabric.traffic import least_block_up, least_leaf_up


def shape_table(p: Problem, prices: LinkPrices) -> tuple[Ints, dict[str, int]]:
    """Return the rows of up to three tiers that ports and traffic allow, by bound, and how many each argument left."""
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
        if bound > prices.cutoff:
            space["leaf_domain_sizes_excluded_by_bound"] += 1
            continue
        rows, promising = _shapes(p, mode, domain, prices)
        space["pod_shapes"] += rows
        parts.append(promising)
        if lazy or not p.modes[mode].grouped:
            tighten_cutoff(p, promising, prices)
    table = allowed(p, np.concatenate(parts))
    table = table[np.argsort(table[:, COL["bound"]], kind="stable")]
    space["pod_shapes_within_ports"] = len(table)
    return table, space


def _domains(p: Problem, prices: LinkPrices) -> list[tuple[float, int, int, int]]:
    """Return the leaf domains of every mode with a cost bound: cheapest trees first, then the largest dragonflies."""
    trees, grouped = [], []
    for mode, m in enumerate(p.modes):
        for domain in domain_sizes(p, mode):
            if m.grouped:
                grouped.append((0.0, -domain, mode, domain))
            else:
                min_up, _ = uplink_range(p, mode, domain)
                bound = cost_bound(p, mode, domain, prices, min_up=min_up, spine_ports=m.switch.ports)
                trees.append((bound, -domain, mode, domain))
    return sorted(trees) + sorted(grouped, key=lambda x: (x[2], x[1]))


def uplink_range(p: Problem, mode: int, domain: int) -> tuple[int, int]:
    """Return the fewest uplinks that a leaf of so many racks needs, and the most that it has ports for."""
    needed, free = least_leaf_up(p, p.modes[mode], domain, -(-p.request.racks // domain)), ports_left(p, mode, domain)
    pin = p.pins.get("leaf_up_ports")
    return (needed, free) if pin is None else (max(needed, pin), min(free, pin))


def cost_bound(p: Problem, mode: int, domain: int, prices: LinkPrices, *, min_up: int, spine_ports: int) -> float:
    """Bound the cost of a domain size: its leaves with `min_up` uplinks each, and the spines whose ports these fill."""
    leaves, ends = -(-p.request.racks // domain) * p.modes[mode].rails, prices.endpoints(mode, domain)
    if ends >= INFINITE_COST:
        return math.inf
    spines = -(-leaves * min_up // spine_ports)
    links = ends + prices.wan_gateway(mode) + leaves * min_up * prices.min_link(mode)
    return (leaves + spines) * p.switch_cost(mode) + links


def allowed(p: Problem, rows: Ints) -> Ints:
    """Return the rows that pins and limits allow."""
    keep = rows[:, COL["tiers"]] <= p.network.max_tiers
    for name, column in (("tiers", "tiers"), ("leaf_domain_racks", "domain"), ("leaf_down_ports", "down_ports")):
        if name in p.pins:
            keep &= rows[:, COL[column]] == p.pins[name]
    down, up, pods = p.pins.get("core_down_ports"), p.pins.get("core_up_ports"), np.maximum(rows[:, COL["pods"]], 1)
    if down is not None:
        three = (rows[:, COL["tiers"]] == 3) & (down % pods == 0) & (down <= rows[:, COL["ports"]])
        keep &= (rows[:, COL["tiers"]] == 4) | three
    if up is not None:
        keep &= rows[:, COL["tiers"]] == 4
    keep &= rows[:, COL["domain"]] >= p.min_domain
    if p.max_splits is not None:
        keep &= rows[:, COL["splits"]] <= p.max_splits
    kept: Ints = rows[keep]
    return kept


def tighten_cutoff(p: Problem, rows: Ints, prices: LinkPrices) -> None:
    """Lower the cutoff to the cost of one design of these shapes, that of the lowest bound; dearer ones are no use."""
    rows = allowed(p, rows)
    if len(rows) and rows[:, COL["bound"]].min() < prices.cutoff:
        best = expand(p, rows[[rows[:, COL["bound"]].argmin()]], prices.cutoff)
        if len(best):
            prices.cutoff = min(prices.cutoff, float(completion_costs(p, best).min()))


def _shapes(p: Problem, mode: int, domain: int, prices: LinkPrices) -> tuple[int, Ints]:
    """Return how many pod shapes a domain size has, and those that ports allow."""
    if p.modes[mode].grouped:
        return group_shapes(p, mode, domain, ports_left(p, mode, domain), prices)
    rows = _pod_shapes(p, mode, domain, prices)
    return len(rows), _promising(p, mode, rows)


def domain_sizes(p: Problem, mode: int) -> list[int]:
    """Return the sizes of a leaf domain in racks: at most the site's, unless pinned, with a port left for an uplink."""
    m = p.modes[mode]
    sizes_by_ports = range(m.switch.ports * m.split // m.rail_gpus, 0, -1)
    largest = next((n for n in sizes_by_ports if ports_left(p, mode, n) > 0), 0)
    sizes = set(range(1, min(largest, p.request.racks) + 1))
    if "leaf_domain_racks" in p.pins:
        sizes = {p.pins["leaf_domain_racks"]}
    elif "leaf_down_ports" in p.pins:
        sizes = {p.pins["leaf_down_ports"] // m.rail_gpus} if p.pins["leaf_down_ports"] % m.rail_gpus == 0 else set()
    return [d for d in sorted(sizes) if 1 <= d <= largest]


def ports_left(p: Problem, mode: int, domain: int) -> int:
    """Return the ports of a leaf that GPUs of so many racks and spares leave for uplinks."""
    m = p.modes[mode]
    return m.switch.ports - -(-(domain * m.rail_gpus + m.spare(p.network, domain * m.rail_gpus)) // m.split)


def _single_switch(p: Problem, mode: int, prices: LinkPrices) -> Ints:
    """Return one row where a single switch of each network reaches every endpoint, none otherwise."""
    m, row = p.modes[mode], dict.fromkeys(SHAPE, 0)
    racks = p.request.racks
    ends = racks * m.rails * m.rail_gpus
    price = p.switch_cost(mode) + prices.endpoints(mode, racks) + prices.wan_gateway(mode)
    taken = -(-(ends + m.spare(p.network, ends)) // m.split)
    row |= {"mode": mode, "tiers": 1, "ports": m.switch.ports, "domain": racks, "down_ports": ends, "domains": 1}
    row |= {"leaves": m.networks, "leaf_cost": price, "splits": unavoidable_splits(p.request, racks), "bound": price}
    row |= {"wan_ports": m.wan_ports(p.request)}
    rows = np.array([[row[c] for c in SHAPE]], dtype=np.int64)
    return rows[: int(taken + row["wan_ports"] <= m.switch.ports and price < INFINITE_COST)]


def _pod_shapes(p: Problem, mode: int, domain: int, prices: LinkPrices) -> Ints:
    """Rows of a domain size: two tiers, and three with every pod shape that spine and core ports can tighten_cutoff."""
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
    same = domain_columns(p, mode, domain)
    same["leaf_cost"] = leaves * p.switch_cost(mode) + ends + prices.wan_gateway(mode)
    same["min_up"], same["max_up"] = uplink_range(p, mode, domain)
    for name, value in same.items():
        rows[:, COL[name]] = value
    rows[:, COL["leaves_per_pod"]] = rows[:, COL["rails"]] * rows[:, COL["domains_per_pod"]]
    sizes = (rows[1:, COL[c]] for c in ("domain", "domains", "rails", "domains_per_pod", "pods"))
    rows[1:, COL["need_up"]] = least_block_up(p, m, *sizes)
    width, rails = rows[:, COL["domains_per_pod"]], rows[:, COL["rails"]]
    rows[:, COL["up_cost"]] = prices.leaf_uplink(mode, domain, width)
    rows[1:, COL["core_cost"]] = prices.spine_uplink(mode, domain, width[1:], rails[1:])
    dearest = np.maximum(rows[:, COL["up_cost"]], rows[:, COL["core_cost"]])
    return rows[dearest < (INFINITE_COST if ends < INFINITE_COST else 0)]


def _promising(p: Problem, mode: int, rows: Ints) -> Ints:
    """Return the shapes whose ports suffice, bounded from below by ports alone."""
    ports, min_up, max_up, need, per_pod, pods = (
        rows[:, COL[c]] for c in ("ports", "min_up", "max_up", "need_up", "leaves_per_pod", "pods")
    )
    three = rows[:, COL["tiers"]] == 3
    spine_up = np.where(three, np.maximum(1, -(-need // np.maximum(max_up, 1))), 0)
    bundle = (ports - spine_up) // per_pod
    keep = (bundle >= 1) & (min_up <= max_up) & (need <= max_up * (ports - per_pod))
    groups = -(-min_up // np.maximum(bundle, 1))
    up = np.where(three, np.maximum(need, groups), 0)
    cores = np.where(three, np.maximum(groups, -(-up // (ports // np.maximum(pods, 1)))), 0)
    links = rows[:, COL["up_cost"]] * min_up + rows[:, COL["core_cost"]] * up
    rows[:, COL["bound"]] = rows[:, COL["leaf_cost"]] + p.switch_cost(mode) * (pods * groups + cores) + links
    return rows[keep]


def expand(p: Problem, shapes: Ints, within: float) -> Ints:
    """Return each shape with all leaf uplinks and bundles that ports and pins allow, by bound up to `within`."""
    parts = [np.empty((0, len(COLUMNS)), dtype=np.int64)]
    for i in range(0, len(shapes), CHUNK):
        rows = _wirings(p, shapes[i : i + CHUNK])
        parts.append(rows[rows[:, COL["bound"]] <= within])
    rows = np.concatenate(parts)
    return rows[np.argsort(rows[:, COL["bound"]], kind="stable")]


def _wirings(p: Problem, shapes: Ints) -> Ints:
    """Return the rows of some shapes: s = u1/b1 groups, x·y·b1 spine ports down, and the range left for those up."""
    up, bundle = _bundles(int(shapes[:, COL["max_up"]].max()))
    names = ("ports", "min_up", "max_up", "leaves_per_pod", "tiers")
    ports, min_up, max_up, per_pod, tiers = (shapes[:, COL[c], None] for c in names)
    fits = (per_pod * bundle + (tiers > 2) <= ports) & ((up > 0) == (tiers > 1))
    fits &= (up == 0) | (up // np.maximum(bundle, 1) >= p.network.asked_spines)
    at, pair = np.nonzero((up >= min_up) & (up <= max_up) & fits)
    rows = np.concatenate([shapes[at], np.zeros((len(at), len(COLUMNS) - len(SHAPE)), dtype=np.int64)], axis=1)
    down, groups = rows[:, COL["leaves_per_pod"]] * bundle[pair], up[pair] // np.maximum(bundle[pair], 1)
    shared = np.where(rows[:, COL["grouped"]], rows[:, COL["pods"]], 1) * np.maximum(groups, 1)
    wan_gateway, zone = -(-rows[:, COL["wan_ports"]] // shared), -(-rows[:, COL["need_zone"]] // np.maximum(groups, 1))
    own = {"leaf_up": up[pair], "leaf_bundle": bundle[pair], "groups": groups, "spine_down": down}
    own |= {"wan_gateway": wan_gateway, "zone_up": zone}
    for name, column in own.items():
        rows[:, COL[name]] = column
    cored = rows[:, COL["tiers"]] > 2
    min_spine = np.where(cored, _min_spine_ups(p, rows), 0)
    max_spine = np.where(cored, rows[:, COL["ports"]] - down, 0)
    keep = (rows[:, COL["tiers"]] != 2) | (down + wan_gateway <= rows[:, COL["ports"]])
    if "leaf_up_ports" in p.pins:
        keep &= up[pair] == p.pins["leaf_up_ports"]
    if "spine_down_ports" in p.pins:
        keep &= down == p.pins["spine_down_ports"]
    if "spine_up_ports" in p.pins:
        pin, tree = p.pins["spine_up_ports"], rows[:, COL["grouped"]] == 0
        min_spine, max_spine = np.maximum(min_spine, pin * tree), np.minimum(max_spine, pin)
    keep &= min_spine % core_unit(p, rows) == 0
    rows[:, COL["min_spine_up"]], rows[:, COL["max_spine_up"]] = min_spine, max_spine
    rows = plus_links(p, rows[keep & (min_spine <= max_spine)])
    rows[:, COL["bound"]] = _bound(p, rows)
    return rows


def _min_spine_ups(p: Problem, rows: Ints) -> Ints:
    """Return the fewest uplinks of a spine that hide what leaves pod and zone, and leave the WAN gateway its ports."""
    needed = np.maximum(1, -(-rows[:, COL["need_up"]] // np.maximum(rows[:, COL["groups"]], 1)))
    unit, wan_gateway = core_unit(p, rows), rows[:, COL["wan_gateway"]]
    needed = unit * -(-np.maximum(needed, _min_spine_up_for_wan(rows, wan_gateway, unit)) // unit)
    zoned = rows[:, COL["tiers"]] == 4
    if zoned.any():
        needed[zoned] = four_tier_groups.min_up(p, rows[zoned], unit[zoned])
    min_spine_up: Ints = needed
    return min_spine_up


def core_unit(p: Problem, rows: Ints) -> Ints:
    """Return the links from a spine to a core where a pin fixes the core's ports down; else 1."""
    under = np.where(rows[:, COL["tiers"]] == 4, rows[:, COL["zone_pods"]], rows[:, COL["pods"]])
    pinned = p.pins.get("core_down_ports", 0) // np.maximum(under, 1)
    unit: Ints = np.maximum(1, np.where(rows[:, COL["tiers"]] > 2, pinned, 1))
    return unit


def _min_spine_up_for_wan(rows: Ints, wan_gateway: Ints, unit: Ints) -> Ints:
    """Return the fewest spine uplinks whose cores, one for `unit` of them, leave the WAN gateway its ports."""
    free = rows[:, COL["ports"]] - rows[:, COL["pods"]] * unit
    needed = np.where(free > 0, unit * -(-wan_gateway // np.maximum(free, 1)), INFINITE_COST)
    spine_up: Ints = np.where(wan_gateway == 0, 0, needed)
    return spine_up


@cache
def _bundles(max_up: int) -> tuple[Ints, Ints]:
    """Return every number of uplinks up to `max_up` with every bundle that divides it; and none, for one switch."""
    pairs = [(0, 0), *((up, bundle) for bundle in range(1, max_up + 1) for up in range(bundle, max_up + 1, bundle))]
    up, bundle = np.array(sorted(pairs), dtype=np.int64).T
    return up, bundle


def _bound(p: Problem, rows: Ints) -> Ints:
    """Bound the cost of a row: its leaves and their uplinks, and s groups with the fewest uplinks and fullest cores."""
    price = np.array([p.switch_cost(m) for m in range(len(p.modes))], dtype=np.int64)[rows[:, COL["mode"]]]
    pods, up = rows[:, COL["pods"]], rows[:, COL["min_spine_up"]]
    cores = -(-up // np.maximum(rows[:, COL["ports"]] // np.maximum(pods, 1), 1))
    group = price * (pods + cores) + rows[:, COL["core_cost"]] * up
    zoned = rows[:, COL["tiers"]] == 4
    if zoned.any():
        above = four_tier_groups.bound_of(price[zoned], rows[zoned], 1, up[zoned], rows[zoned, COL["zone_up"]])
        group[zoned] = price[zoned] * pods[zoned] + above
    total: Ints = leaf_cost(rows) + rows[:, COL["groups"]] * group
    return total


def completion_costs(p: Problem, rows: Ints) -> Ints:
    """Return the cost of each row with the fewest spine uplinks: a design that can be built, so an upper bound."""
    cost = leaf_cost(rows)
    keys, key = np.unique(rows[:, KEY], axis=0, return_inverse=True)
    for i, one in enumerate(keys):
        at = key.ravel() == i
        cost[at] += rows[at, COL["groups"]] * spine_group(p, one, rows[at, COL["min_spine_up"]])[0]
    return cost


def spine_group(p: Problem, key: Ints, up: Ints) -> tuple[Ints, Ints]:
    """Return cost and switches of one spine group of a key: `pods` spines of `up` uplinks, in the largest bundles.

    Bundles divide the uplinks and fit the core. Of four tiers the cheapest way to build cores and super-spines;
    `INFINITE_COST` where a pin leaves no way.
    """
    row = dict(zip(KEYS, key.tolist(), strict=True))
    networks = p.modes[row["mode"]].networks
    if row["tiers"] == 4:
        costs = four_tier_groups.group_costs(four_tier_groups.group_request(p, row))
        return costs.cost[up], networks * costs.switches[up]
    bundle = core_bundle(p, row, up)
    switches: Ints = row["pods"] + up // np.maximum(bundle, 1)
    cost: Ints = np.where(bundle == 0, INFINITE_COST, p.switch_cost(row["mode"]) * switches + row["core_cost"] * up)
    return cost, networks * switches


def core_bundle(p: Problem, row: dict[str, int], up: Ints) -> Ints:
    """Return the links from a spine to each core of three tiers: the largest bundle, or the pinned one; 0 if none."""
    pin, pods = p.pins.get("core_down_ports"), max(row["pods"], 1)
    if pin is None or row["tiers"] < 3:
        return core_bundles(p.modes[row["mode"]].switch.ports, pods, row["wan_gateway"])[up]
    bundle: Ints = np.where(up % (pin // pods) == 0, pin // pods, 0)
    return bundle


def leaf_cost(rows: Ints) -> Ints:
    """Return the cost of the leaves, the links to GPUs, the leaves' uplinks and the links between groups."""
    between = rows[:, COL["between_cost"]] * rows[:, COL["group_links"]]
    cost: Ints = rows[:, COL["leaf_cost"]] + rows[:, COL["up_cost"]] * rows[:, COL["leaf_up"]] + between
    return cost
