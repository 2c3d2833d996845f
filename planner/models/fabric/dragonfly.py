"""The candidate rows of dragonflies: group shapes, the fewest links between groups, and the ports that they take.

More links than the traffic asks for between two groups, or two routers of a group, cost more and gain nothing, so the
fewest that meet every rule are taken: the links assured to flows never fall where links are added
(`physics.dragonfly`).
"""

import numpy as np
from numpy.typing import NDArray

from planner.models.fabric.data import (
    INFINITE_COST,
    TOLERANCE,
    Ints,
    Mode,
    Problem,
    crossing_groups,
    exchange_flows,
)
from planner.models.fabric.price import LinkPrices
from planner.models.fabric.table import COL, SHAPE, domain_columns, pod_sizes
from planner.models.fabric.traffic import block_exchange, leaf_share
from planner.physics.network.dragonfly import router_share
from planner.physics.network.families import FAMILIES, SPINE_GROUPS
from planner.physics.network.links import Metres

MAX_LINKS = 10**9  # of a group to others: more than any port count allows, and its products fit 64 bits
NO_ROWS = np.empty((0, len(SHAPE)), dtype=np.int64)


def group_shapes(p: Problem, mode: int, domain: int, left: int, prices: LinkPrices) -> tuple[int, Ints]:
    """Return how many group shapes a domain size has, and those that ports allow, with bounds.

    `left` ports of a leaf are not the GPUs'.
    """
    m, domains = p.modes[mode], -(-p.request.racks // domain)
    plus = FAMILIES[m.family].wiring is SPINE_GROUPS
    if not plus and {"leaf_up_ports", "spine_down_ports", "spine_up_ports"} & set(p.pins):
        return 0, NO_ROWS
    by_rail, by_domain = _group_sizes(p, m.rails, domains)
    rails, width = np.repeat(by_rail, len(by_domain)), np.tile(by_domain, len(by_rail))
    keep = rails * width < m.switch.ports if plus else rails * width <= left + 1
    rows = np.zeros((int(keep.sum()), len(SHAPE)), dtype=np.int64)
    rails, width = rails[keep], width[keep]
    for name, value in (domain_columns(p, mode, domain) | {"tiers": 1 + plus, "grouped": 1}).items():
        rows[:, COL[name]] = value
    for name, values in (("rails", rails), ("domains_per_pod", width), ("leaves_per_pod", rails * width)):
        rows[:, COL[name]] = values
    rows[:, COL["pods"]] = -(-m.rails // rails) * -(-domains // width)
    if plus:
        return len(rows), _plus(p, mode, domain, rows[rows[:, COL["pods"]] > 1], left, prices)
    several = (rows[:, COL["pods"]] > 1) | (rows[:, COL["leaves_per_pod"]] > 1)
    return len(rows), _routers(p, mode, domain, rows[several], left, prices)


def _group_sizes(p: Problem, rails: int, domains: int) -> tuple[Ints, Ints]:
    """Return rails and domains of a group: the fewest for each count of groups.

    All of them under valiant, where flows also pass through the smaller groups at the edge.
    """
    if p.network.group_routing == "valiant" and "spine_down_ports" not in p.pins:
        return np.arange(1, rails + 1), np.arange(1, domains + 1)
    return pod_sizes(p, rails, domains, max(rails, domains))


def _leaf_flows(p: Problem, m: Mode, domain: int, domains: int) -> float:
    """Return the links that must be assured to what leaves a leaf, gradients to other sites among it."""
    gone = m.exchange_ports(p.request) * min(1.0, domain / p.request.group_racks)
    if domains == 1:
        return gone
    rates = (
        domain / p.ratios.send,
        crossing_groups(p.request, domain) / p.ratios.allreduce,
        exchange_flows(p.request, domain),
    )
    return max(rates) * m.rail_gpus / m.split + gone


def _exchange_flows(p: Problem, m: Mode, rows: Ints) -> Metres:
    """Return the links between groups that must be assured to gradients to and from the WAN gateway's ports.

    What a group sends and what comes to its ports by way of other groups; on shortest paths what two groups send each
    other's ports.
    """
    one, ports, width = m.exchange_ports(p.request), rows[:, COL["wan_ports"]], rows[:, COL["domains_per_pod"]]
    sent = one * np.minimum(1.0, width * rows[:, COL["domain"]] / p.request.group_racks) * rows[:, COL["rails"]]
    share = -(-ports // rows[:, COL["pods"]]) / np.maximum(ports, 1)
    valiant = p.network.group_routing == "valiant"
    flows: Metres = sent * (ports > 0) + one * m.rails * share if valiant else 2 * sent * share
    return flows


def _group_flows(p: Problem, m: Mode, rows: Ints) -> tuple[Metres, Ints]:
    """Return the links that must be assured to what leaves a group, and those that the core share asks for."""
    domain, width, rails = (rows[:, COL[c]] for c in ("domain", "domains_per_pod", "rails"))
    ends = domain * m.rail_gpus * rails * width
    shared = np.minimum(-(-width * domain // p.request.group_racks) + 1, p.request.groups) * (p.request.group_racks > 1)
    around = np.maximum(shared / p.ratios.allreduce, block_exchange(p, domain * width)) * m.rail_gpus * rails
    flows = np.maximum(ends / p.ratios.send, around) / m.split
    floor = np.ceil(ends * p.network.asked_core_share / m.split * (1 - TOLERANCE)).astype(np.int64)
    return np.where(width < rows[:, COL["domains"]], flows, 0.0) + _exchange_flows(p, m, rows), floor


def _edges(m: Mode, rows: Ints) -> list[Ints]:
    """Return the leaves of the groups: full ones, and those at either edge, which may be smaller."""
    rails, width, domains = rows[:, COL["rails"]], rows[:, COL["domains_per_pod"]], rows[:, COL["domains"]]
    last_rails, last_width = m.rails - (m.rails - 1) // rails * rails, domains - (domains - 1) // width * width
    return [x * y for x in (rails, last_rails) for y in (width, last_width)]


def _shared(need: Metres, others: Ints, floor: Ints) -> Ints:
    """Return the fewest links between two groups where what leaves a group and what passes share all its links."""
    total = np.maximum(np.maximum(floor, 1), np.ceil(2 * need)).astype(np.int64)
    links: Ints = np.where(others > 0, -(-total // np.maximum(others, 1)), 0)
    return links


def _even(leaf: Metres, free: Metres, switches: Ints, others: Ints) -> Ints:
    """Return the fewest links between two groups that are even enough: leaf·(1 + (n - 1)/L) <= free.

    `MAX_LINKS` where no number does.
    """
    slack = np.where(leaf > 0, free * (1 + TOLERANCE) / np.maximum(leaf, TOLERANCE) - 1, np.inf)
    total = np.where(switches == 1, 0.0, np.where(slack > 0, (switches - 1) / np.maximum(slack, TOLERANCE), np.inf))
    links: Ints = np.minimum(np.ceil(total * (1 - TOLERANCE) / np.maximum(others, 1)), MAX_LINKS).astype(np.int64)
    return links


def _direct(need: Metres, others: Ints, floor: Ints) -> Ints:
    """Return the fewest links between two groups where the two share them alone."""
    needed = np.maximum(np.ceil(need).astype(np.int64), -(-floor // np.maximum(others, 1)))
    links: Ints = np.where(others > 0, np.maximum(1, needed), 0)
    return links


def _bundle_for(outwards: int, sizes: list[Ints], total: Ints) -> Ints:
    """Return the fewest links between two routers of a group that give each so many ports outwards.

    `total` links of a group to others are dealt to its routers in turn; 1 where a router is alone in its group.
    """
    short = [np.where(a > 1, -(-(outwards - total // a) // np.maximum(a - 1, 1)), 1) for a in sizes]
    bundle: Ints = np.maximum(1, np.max(short, axis=0))
    return bundle


def _links_for(outwards: int, sizes: list[Ints], bundle: Ints, others: Ints) -> Ints:
    """Return the fewest links between two groups that give each router so many ports outwards beside its bundles."""
    short = [np.maximum(0, outwards - (a - 1) * bundle) * a for a in sizes]
    links: Ints = np.where(others > 0, -(-np.max(short, axis=0) // np.maximum(others, 1)), 0)
    return links


def _routers(p: Problem, mode: int, domain: int, rows: Ints, left: int, prices: LinkPrices) -> Ints:
    """Return the rows of a dragonfly completed: the fewest links of routers and of groups, and all prices."""
    m, others, valiant = p.modes[mode], rows[:, COL["pods"]] - 1, p.network.group_routing == "valiant"
    sizes = _edges(m, rows)
    need, floor = _group_flows(p, m, rows)
    wan_gateway, ports = -(-rows[:, COL["wan_ports"]] // rows[:, COL["pods"]]), np.maximum(rows[:, COL["wan_ports"]], 1)
    at_router = m.exchange_ports(p.request) * m.rails * -(-wan_gateway // np.min(sizes, axis=0)) / ports
    leaf = _leaf_flows(p, m, domain, -(-p.request.racks // domain)) + at_router
    largest = np.max(sizes, axis=0)
    need = np.maximum(need, np.where(largest == 1, leaf, 0.0))
    links = _shared(need, others, floor) if valiant else _direct(need, others, floor)
    smallest = np.min([np.where(s > 1, s, largest) for s in sizes], axis=0)
    alone = np.where(others > 0, MAX_LINKS, 0)
    share, even = (router_share(smallest, largest, links=n, valiant=valiant) for n in (others * links, alone))
    fewest, enough = (
        np.maximum(1, np.ceil(np.where(largest > 1, leaf / x, 0.0) * (1 - TOLERANCE))).astype(np.int64)
        for x in (even, share)
    )
    outwards = leaf_share(p.network, domain * m.rail_gpus, m.split)
    enough = np.maximum(enough, _bundle_for(outwards, sizes, others * links))
    completed = []
    # A larger bundle may do with fewer links between groups.
    for more in range(int((enough - fewest).max(initial=0)) + 1):
        at = np.nonzero(fewest + more <= enough)[0]
        own, bundle = rows[at].copy(), fewest[at] + more
        straight = (bundle == enough[at]) | (others[at] == 0)
        wanted = np.where(straight, 0, _even(leaf[at], bundle * even[at], smallest[at], others[at]))
        wanted = np.maximum(wanted, _links_for(outwards, [s[at] for s in sizes], bundle, others[at]))
        own[:, COL["router_bundle"]], own[:, COL["group_links"]] = bundle, np.maximum(links[at], wanted)
        total = others[at] * own[:, COL["group_links"]]
        used = np.max([(s[at] - 1) * bundle + -(-total // s[at]) + -(-wan_gateway[at] // s[at]) for s in sizes], axis=0)
        out = np.min([(s[at] - 1) * bundle + total // s[at] for s in sizes], axis=0)
        completed.append(own[(used <= left) & (out >= outwards)])
    rows = np.concatenate(completed)
    return _priced(p, mode, domain, rows, _local(m, rows), prices)


def _local(m: Mode, rows: Ints) -> Ints:
    """Return the cables inside the groups of one network, a bundle for each two routers of a group."""
    squares, rails, domains = np.ones(len(rows), dtype=np.int64), m.rails, rows[:, COL["domains"]]
    for items, size in ((rails, rows[:, COL["rails"]]), (domains, rows[:, COL["domains_per_pod"]])):
        squares = squares * (items // size * size**2 + (items % size) ** 2)
    pairs: Ints = (squares - rails * domains) // 2 * rows[:, COL["router_bundle"]]
    return pairs


def _priced(p: Problem, mode: int, domain: int, rows: Ints, local: Ints, prices: LinkPrices) -> Ints:
    """Return the rows with routers amid their groups priced; by length only those within the cutoff."""
    m, leaves = p.modes[mode], p.modes[mode].rails * rows[:, COL["domains"]] * p.switch_cost(mode)
    if prices.places is not None:
        pairs = rows[:, COL["pods"]] * (rows[:, COL["pods"]] - 1) // 2
        gpus = p.request.racks * m.networks * m.rails * m.rail_gpus
        keep = leaves + prices.min_links(mode, local + pairs * rows[:, COL["group_links"]], gpus) <= prices.cutoff
        rows, local, leaves = rows[keep], local[keep], leaves[keep]
    width = rows[:, COL["domains_per_pod"]]
    each = {w: prices.endpoints(mode, domain * w) for w in np.unique(width).tolist()}
    ends = np.array([each[w] for w in width.tolist()], dtype=np.int64)
    between, beside = prices.between(mode, domain, width, rows[:, COL["rails"]]), prices.beside(mode, local)
    edge = prices.group_wan_gateway(mode, domain, width, rows[:, COL["rails"]])
    rows[:, COL["leaf_cost"]], rows[:, COL["between_cost"]] = (
        leaves + np.minimum(ends, INFINITE_COST) + beside + np.minimum(edge, INFINITE_COST),
        between,
    )
    rows[:, COL["bound"]] = rows[:, COL["leaf_cost"]] + between * rows[:, COL["group_links"]]
    kept: Ints = rows[np.maximum.reduce([ends, beside, between, edge]) < INFINITE_COST]
    return kept


def _plus(p: Problem, mode: int, domain: int, rows: Ints, left: int, prices: LinkPrices) -> Ints:
    """Return the rows of a dragonfly+ completed but for leaf uplinks and what depends on them."""
    m, leaf = p.modes[mode], _leaf_flows(p, p.modes[mode], domain, -(-p.request.racks // domain))
    sizes, pin = _edges(m, rows), p.pins.get("leaf_up_ports")
    valiant = p.network.group_routing == "valiant"
    passing = 1 + np.max(sizes, axis=0) / np.min(sizes, axis=0) if valiant else np.ones(len(rows))
    share = max(1, leaf_share(p.network, domain * m.rail_gpus, m.split))
    min_up = np.maximum(share, np.ceil(leaf * passing)).astype(np.int64)
    rows[:, COL["min_up"]] = min_up if pin is None else np.maximum(min_up, pin)
    rows[:, COL["max_up"]] = left if pin is None else min(left, pin)
    rows = rows[rows[:, COL["min_up"]] <= rows[:, COL["max_up"]]]
    ends = prices.endpoints(mode, domain)
    rows[:, COL["leaf_cost"]] = rows[:, COL["leaves"]] // m.networks * p.switch_cost(mode) + ends
    if ends >= INFINITE_COST or not len(rows):
        return rows[:0]
    if prices.places is not None:
        pairs = rows[:, COL["pods"]] * (rows[:, COL["pods"]] - 1) // 2
        rows[:, COL["up_cost"]] = prices.min_links(mode, rows[:, COL["leaves"]] // m.networks, 0)
        rows[:, COL["between_cost"]] = prices.min_links(mode, pairs, 0)
        rows = _plus_bound(p, mode, rows)
        rows = rows[rows[:, COL["bound"]] <= prices.cutoff]
    width = rows[:, COL["domains_per_pod"]]
    edge = prices.group_wan_gateway(mode, domain, width, rows[:, COL["rails"]])
    rows[:, COL["leaf_cost"]] += np.minimum(edge, INFINITE_COST)
    rows[:, COL["up_cost"]] = prices.leaf_uplink(mode, domain, width)
    rows[:, COL["between_cost"]] = prices.between(mode, domain, width, rows[:, COL["rails"]])
    dearest = np.maximum.reduce([rows[:, COL["up_cost"]], rows[:, COL["between_cost"]], edge])
    return _plus_bound(p, mode, rows[dearest < INFINITE_COST])


def _plus_bound(p: Problem, mode: int, rows: Ints) -> Ints:
    """Return the shapes of a dragonfly+ whose ports suffice, bounded by the fewest spines and group links."""
    ports, min_up, per_pod, pods = (rows[:, COL[c]] for c in ("ports", "min_up", "leaves_per_pod", "pods"))
    groups = -(-min_up // np.maximum((ports - 1) // per_pod, 1))
    need, floor = _group_flows(p, p.modes[mode], rows)
    flows = need * 2 / (pods - 1) if p.network.group_routing == "valiant" else need
    links = np.maximum(1, np.ceil(np.maximum(flows, floor / (pods - 1))).astype(np.int64))
    spines = np.maximum(groups, -(-(pods - 1) * links // np.maximum(ports - per_pod, 1)))
    total = rows[:, COL["up_cost"]] * np.maximum(min_up, spines) + rows[:, COL["between_cost"]] * links
    rows[:, COL["bound"]] = rows[:, COL["leaf_cost"]] + p.switch_cost(mode) * pods * spines + total
    kept: Ints = rows[spines <= rows[:, COL["max_up"]]]
    return kept


def plus_links(p: Problem, rows: Ints) -> Ints:
    """Return the rows, each dragonfly+ with the fewest links between groups, if its spines have the ports."""
    at = np.nonzero(rows[:, COL["grouped"]] * rows[:, COL["tiers"]] == 2)[0]
    if not len(at):
        return rows
    own = rows[at]
    kinds = own[:, COL["mode"]]
    links, keep = np.zeros(len(own), dtype=np.int64), np.ones(len(own), dtype=bool)
    for mode in np.unique(kinds).tolist():
        these = kinds == mode
        links[these], keep[these] = _fewest_links(p, mode, own[these])
    rows[at, COL["group_links"]] = links
    kept = np.ones(len(rows), dtype=bool)
    kept[at] = keep
    return rows[kept]


def _fewest_links(p: Problem, mode: int, rows: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the fewest links between two groups under s spines, and whether the spines have ports for them."""
    m, others, s = p.modes[mode], rows[:, COL["pods"]] - 1, rows[:, COL["groups"]]
    need, floor = _group_flows(p, m, rows)
    each, which = np.unique(rows[:, COL["domain"]], return_inverse=True)
    leaf = np.array([_leaf_flows(p, m, d, -(-p.request.racks // d)) for d in each.tolist()])[which.ravel()]
    if p.network.group_routing == "valiant":
        sizes = _edges(m, rows)
        free = rows[:, COL["leaf_up"]] / (1 + np.max(sizes, axis=0) / np.min(sizes, axis=0))
        links = np.maximum(_shared(need, others, floor), _even(leaf, free, s, others))
    else:
        direct = _direct(need, others, np.zeros_like(floor))
        even = np.where(direct < s, direct, s * -(-direct // s))
        links = np.maximum(even, np.minimum(np.ceil(leaf / rows[:, COL["leaf_bundle"]]).astype(np.int64), s))
        links = np.maximum(links, -(-floor // others))
    pin = p.pins.get("spine_up_ports")
    if pin is not None:
        links = np.maximum(links, (pin - 1) * s // others + 1)
    up = -(-others * links // s)
    fits = rows[:, COL["spine_down"]] + up + rows[:, COL["wan_gateway"]] <= rows[:, COL["ports"]]
    return links, fits if pin is None else fits & (up == pin)
