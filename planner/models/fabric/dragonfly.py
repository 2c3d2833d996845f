"""The rows of dragonflies for the fabric's tables: group shapes, the fewest links between groups, and what they take of the ports.

More links than the traffic asks for between two groups, or two routers of a group, cost more and gain nothing, so the
fewest that meet every rule are taken: what flows can count on never falls where links are added (`physics.dragonfly`).
"""

import numpy as np
from numpy.typing import NDArray

from planner.models.fabric.data import BEYOND, TOLERANCE, Ints, Mode, Problem, exchange_flows, rings, unavoidable_splits
from planner.models.fabric.price import LinkPrices
from planner.models.fabric.table import COL, SHAPE, pod_sizes
from planner.models.fabric.traffic import block_exchange
from planner.physics.network.dragonfly import router_share
from planner.physics.network.links import Metres

MOST_LINKS = 10**9  # of a group to others: more than any port count allows
NONE = np.empty((0, len(SHAPE)), dtype=np.int64)


def group_shapes(p: Problem, mode: int, domain: int, left: int, prices: LinkPrices) -> tuple[int, Ints]:
    """Count the shapes of groups of a domain size, and return those that ports hold, with bounds; `left` ports of a leaf are not the GPUs'."""
    m, domains = p.modes[mode], -(-p.request.racks // domain)
    plus = m.family == "dragonfly+"
    if not plus and {"leaf_up_ports", "spine_down_ports", "spine_up_ports"} & set(p.pins):
        return 0, NONE
    by_rail, by_domain = _group_sizes(p, m.rails, domains)
    rails, width = np.repeat(by_rail, len(by_domain)), np.tile(by_domain, len(by_rail))
    keep = rails * width < m.switch.ports if plus else rails * width <= left + 1
    rows = np.zeros((int(keep.sum()), len(SHAPE)), dtype=np.int64)
    rails, width = rails[keep], width[keep]
    same = {
        "mode": mode,
        "tiers": 1 + plus,
        "ports": m.switch.ports,
        "domain": domain,
        "down_ports": domain * m.rail_gpus,
        "domains": domains,
    }
    same |= {"leaves": m.networks * m.rails * domains, "splits": unavoidable_splits(p.request, domain), "grouped": 1}
    same |= {"wan_ports": m.wan_ports(p.request)}
    for name, value in same.items():
        rows[:, COL[name]] = value
    for name, values in (("rails", rails), ("domains_per_pod", width), ("leaves_per_pod", rails * width)):
        rows[:, COL[name]] = values
    rows[:, COL["pods"]] = -(-m.rails // rails) * -(-domains // width)
    if plus:
        return len(rows), _plus(p, mode, domain, rows[rows[:, COL["pods"]] > 1], left, prices)
    return len(rows), _routers(
        p, mode, domain, rows[(rows[:, COL["pods"]] > 1) | (rows[:, COL["leaves_per_pod"]] > 1)], left, prices
    )


def _group_sizes(p: Problem, rails: int, domains: int) -> tuple[Ints, Ints]:
    """Rails and domains of a group: the fewest for each count of groups, but all where flows pass through a smaller group at the edge as well."""
    if p.network.group_routing == "valiant" and "spine_down_ports" not in p.pins:
        return np.arange(1, rails + 1), np.arange(1, domains + 1)
    return pod_sizes(p, rails, domains, max(rails, domains))


def _leaf_flows(p: Problem, m: Mode, domain: int, domains: int) -> float:
    """Links that what leaves a leaf must be able to count on, gradients on their way to other sites among it."""
    gone = m.exchange_ports(p.request) * min(1.0, domain / p.request.group_racks)
    if domains == 1:
        return gone
    rates = domain / p.ratios.hop, rings(p.request, domain) / p.ratios.allreduce, exchange_flows(p.request, domain)
    return max(rates) * m.rail_gpus / m.split + gone


def _exchange_flows(p: Problem, m: Mode, rows: Ints) -> Metres:
    """Links between groups that gradients on their way to and from the WAN gateway's ports must be able to count on.

    What a group sends and what comes to its ports by way of other groups; on shortest paths what two groups send each other's ports.
    """
    one, ports, width = m.exchange_ports(p.request), rows[:, COL["wan_ports"]], rows[:, COL["domains_per_pod"]]
    sent = one * np.minimum(1.0, width * rows[:, COL["domain"]] / p.request.group_racks) * rows[:, COL["rails"]]
    share = -(-ports // rows[:, COL["pods"]]) / np.maximum(ports, 1)
    flows: Metres = (
        sent * (ports > 0) + one * m.rails * share if p.network.group_routing == "valiant" else 2 * sent * share
    )
    return flows


def _group_flows(p: Problem, m: Mode, rows: Ints) -> tuple[Metres, Ints]:
    """Links that what leaves a group must be able to count on, and links that the floor between groups asks for."""
    domain, width, rails = (rows[:, COL[c]] for c in ("domain", "domains_per_pod", "rails"))
    ends = domain * m.rail_gpus * rails * width
    shared = np.minimum(-(-width * domain // p.request.group_racks) + 1, p.request.groups) * (p.request.group_racks > 1)
    around = np.maximum(shared / p.ratios.allreduce, block_exchange(p, domain * width)) * m.rail_gpus * rails
    flows = np.maximum(ends / p.ratios.hop, around) / m.split
    floor = np.ceil(ends * p.network.min_core_share / m.split * (1 - TOLERANCE)).astype(np.int64)
    return np.where(width < rows[:, COL["domains"]], flows, 0.0) + _exchange_flows(p, m, rows), floor


def _edges(m: Mode, rows: Ints) -> list[Ints]:
    """Leaves of the groups: full ones, and those at either edge, which may be smaller."""
    rails, width = rows[:, COL["rails"]], rows[:, COL["domains_per_pod"]]
    last = (
        m.rails - (-(-m.rails // rails) - 1) * rails,
        rows[:, COL["domains"]] - (-(-rows[:, COL["domains"]] // width) - 1) * width,
    )
    return [x * y for x in (rails, last[0]) for y in (width, last[1])]


def _shared(need: Metres, others: Ints, floor: Ints) -> Ints:
    """Fewest links between two groups where what leaves a group and what passes through share all of its links."""
    total = np.maximum(np.maximum(floor, 1), np.ceil(2 * need)).astype(np.int64)
    links: Ints = np.where(others > 0, -(-total // np.maximum(others, 1)), 0)
    return links


def _even(leaf: Metres, room: Metres, switches: Ints, others: Ints) -> Ints:
    """Fewest links between two groups that deal a group's links out evenly enough: leaf·(1 + (n - 1)/L) <= room; none where no number does."""
    slack = np.where(leaf > 0, room * (1 + TOLERANCE) / np.maximum(leaf, TOLERANCE) - 1, np.inf)
    total = np.where(switches == 1, 0.0, np.where(slack > 0, (switches - 1) / np.maximum(slack, TOLERANCE), np.inf))
    links: Ints = np.minimum(np.ceil(total * (1 - TOLERANCE) / np.maximum(others, 1)), MOST_LINKS).astype(np.int64)
    return links


def _direct(need: Metres, others: Ints, floor: Ints) -> Ints:
    """Fewest links between two groups where the two share them alone."""
    least = np.maximum(np.ceil(need).astype(np.int64), -(-floor // np.maximum(others, 1)))
    links: Ints = np.where(others > 0, np.maximum(1, least), 0)
    return links


def _routers(p: Problem, mode: int, domain: int, rows: Ints, left: int, prices: LinkPrices) -> Ints:
    """Complete the rows of a dragonfly: fewest links between routers and between groups, and the price of all."""
    m, others, valiant = p.modes[mode], rows[:, COL["pods"]] - 1, p.network.group_routing == "valiant"
    sizes = _edges(m, rows)
    need, floor = _group_flows(p, m, rows)
    wan_gateway, ports = -(-rows[:, COL["wan_ports"]] // rows[:, COL["pods"]]), np.maximum(rows[:, COL["wan_ports"]], 1)
    at_router = m.exchange_ports(p.request) * m.rails * -(-wan_gateway // np.min(sizes, axis=0)) / ports
    leaf = _leaf_flows(p, m, domain, -(-p.request.racks // domain)) + at_router
    most = np.max(sizes, axis=0)
    need = np.maximum(need, np.where(most == 1, leaf, 0.0))
    links = _shared(need, others, floor) if valiant else _direct(need, others, floor)
    least = np.min([np.where(s > 1, s, most) for s in sizes], axis=0)
    alone = np.where(others > 0, MOST_LINKS, 0)
    share, even = (router_share(least, most, links=n, valiant=valiant) for n in (others * links, alone))
    fewest, enough = (
        np.maximum(1, np.ceil(np.where(most > 1, leaf / x, 0.0) * (1 - TOLERANCE))).astype(np.int64)
        for x in (even, share)
    )
    found = []
    for more in range(
        int((enough - fewest).max(initial=0)) + 1
    ):  # a bundle more may do with fewer links between groups
        at = np.nonzero(fewest + more <= enough)[0]
        own, bundle = rows[at].copy(), fewest[at] + more
        straight = (bundle == enough[at]) | (others[at] == 0)
        wanted = np.where(straight, 0, _even(leaf[at], bundle * even[at], least[at], others[at]))
        own[:, COL["router_bundle"]], own[:, COL["group_links"]] = bundle, np.maximum(links[at], wanted)
        total = others[at] * own[:, COL["group_links"]]
        used = np.max([(s[at] - 1) * bundle + -(-total // s[at]) + -(-wan_gateway[at] // s[at]) for s in sizes], axis=0)
        found.append(own[used <= left])
    rows = np.concatenate(found)
    return _priced(p, mode, domain, rows, _local(m, rows), prices)


def _local(m: Mode, rows: Ints) -> Ints:
    """Cables inside the groups of one network: a bundle for each two of a group's routers; sums over groups are products of sums."""
    squares, rails, domains = np.ones(len(rows), dtype=np.int64), m.rails, rows[:, COL["domains"]]
    for items, size in ((rails, rows[:, COL["rails"]]), (domains, rows[:, COL["domains_per_pod"]])):
        squares = squares * (items // size * size**2 + (items % size) ** 2)
    pairs: Ints = (squares - rails * domains) // 2 * rows[:, COL["router_bundle"]]
    return pairs


def _priced(p: Problem, mode: int, domain: int, rows: Ints, local: Ints, prices: LinkPrices) -> Ints:
    """Price routers amid their groups; by length only those that may still be worth it."""
    m, leaves = p.modes[mode], p.modes[mode].rails * rows[:, COL["domains"]] * p.switch_cost(mode)
    if prices.places is not None:
        pairs = rows[:, COL["pods"]] * (rows[:, COL["pods"]] - 1) // 2
        gpus = p.request.racks * m.networks * m.rails * m.rail_gpus
        keep = leaves + prices.least(mode, local + pairs * rows[:, COL["group_links"]], gpus) <= prices.most
        rows, local, leaves = rows[keep], local[keep], leaves[keep]
    width = rows[:, COL["domains_per_pod"]]
    each = {w: prices.endpoints(mode, domain * w) for w in np.unique(width).tolist()}
    ends = np.array([each[w] for w in width.tolist()], dtype=np.int64)
    between, beside = prices.between(mode, domain, width, rows[:, COL["rails"]]), prices.beside(mode, local)
    edge = prices.group_border(mode, domain, width, rows[:, COL["rails"]])
    rows[:, COL["leaf_cost"]], rows[:, COL["between_cost"]] = (
        leaves + np.minimum(ends, BEYOND) + beside + np.minimum(edge, BEYOND),
        between,
    )
    rows[:, COL["bound"]] = rows[:, COL["leaf_cost"]] + between * rows[:, COL["group_links"]]
    kept: Ints = rows[np.maximum.reduce([ends, beside, between, edge]) < BEYOND]
    return kept


def _plus(p: Problem, mode: int, domain: int, rows: Ints, left: int, prices: LinkPrices) -> Ints:
    """Complete the rows of a dragonfly+ but for leaf uplinks, and what depends on them."""
    m, leaf = p.modes[mode], _leaf_flows(p, p.modes[mode], domain, -(-p.request.racks // domain))
    sizes, pin = _edges(m, rows), p.pins.get("leaf_up_ports")
    more = (
        1 + np.max(sizes, axis=0) / np.min(sizes, axis=0)
        if p.network.group_routing == "valiant"
        else np.ones(len(rows))
    )
    least = np.maximum(1, np.ceil(leaf * more)).astype(np.int64)
    rows[:, COL["least_up"]] = least if pin is None else np.maximum(least, pin)
    rows[:, COL["most_up"]] = left if pin is None else min(left, pin)
    rows = rows[rows[:, COL["least_up"]] <= rows[:, COL["most_up"]]]
    ends = prices.endpoints(mode, domain)
    rows[:, COL["leaf_cost"]] = rows[:, COL["leaves"]] // m.networks * p.switch_cost(mode) + ends
    if ends >= BEYOND or not len(rows):
        return rows[:0]
    if prices.places is not None:
        pairs = rows[:, COL["pods"]] * (rows[:, COL["pods"]] - 1) // 2
        rows[:, COL["up_cost"]] = prices.least(mode, rows[:, COL["leaves"]] // m.networks, 0)
        rows[:, COL["between_cost"]] = prices.least(mode, pairs, 0)
        rows = _plus_bound(p, mode, rows)
        rows = rows[rows[:, COL["bound"]] <= prices.most]
    width = rows[:, COL["domains_per_pod"]]
    edge = prices.group_border(mode, domain, width, rows[:, COL["rails"]])
    rows[:, COL["leaf_cost"]] += np.minimum(edge, BEYOND)
    rows[:, COL["up_cost"]] = prices.leaf_uplink(mode, domain, width)
    rows[:, COL["between_cost"]] = prices.between(mode, domain, width, rows[:, COL["rails"]])
    return _plus_bound(
        p, mode, rows[np.maximum.reduce([rows[:, COL["up_cost"]], rows[:, COL["between_cost"]], edge]) < BEYOND]
    )


def _plus_bound(p: Problem, mode: int, rows: Ints) -> Ints:
    """Drop shapes of a dragonfly+ whose ports do not suffice, and bound the others by ports alone: fewest spines, fewest links between groups."""
    ports, least, per_pod, pods = (rows[:, COL[c]] for c in ("ports", "least_up", "leaves_per_pod", "pods"))
    groups = -(-least // np.maximum((ports - 1) // per_pod, 1))
    need, floor = _group_flows(p, p.modes[mode], rows)
    twice = 2 if p.network.group_routing == "valiant" else 1
    links = np.maximum(
        1, np.ceil(np.maximum(need * twice / np.where(twice == 2, pods - 1, 1), floor / (pods - 1))).astype(np.int64)
    )
    spines = np.maximum(groups, -(-(pods - 1) * links // np.maximum(ports - per_pod, 1)))
    total = rows[:, COL["up_cost"]] * np.maximum(least, spines) + rows[:, COL["between_cost"]] * links
    rows[:, COL["bound"]] = rows[:, COL["leaf_cost"]] + p.switch_cost(mode) * pods * spines + total
    kept: Ints = rows[spines <= rows[:, COL["most_up"]]]
    return kept


def plus_links(p: Problem, rows: Ints) -> Ints:
    """Give each wiring of a dragonfly+ the fewest links between groups, and drop those whose spines have no port for them."""
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
    whole = np.ones(len(rows), dtype=bool)
    whole[at] = keep
    return rows[whole]


def _fewest_links(p: Problem, mode: int, rows: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the fewest links between two groups under s spines, and whether the spines have ports for them."""
    m, others, s = p.modes[mode], rows[:, COL["pods"]] - 1, rows[:, COL["groups"]]
    need, floor = _group_flows(p, m, rows)
    each, which = np.unique(rows[:, COL["domain"]], return_inverse=True)
    leaf = np.array([_leaf_flows(p, m, d, -(-p.request.racks // d)) for d in each.tolist()])[which.ravel()]
    if p.network.group_routing == "valiant":
        sizes = _edges(m, rows)
        room = rows[:, COL["leaf_up"]] / (1 + np.max(sizes, axis=0) / np.min(sizes, axis=0))
        links = np.maximum(_shared(need, others, floor), _even(leaf, room, s, others))
    else:
        least = _direct(need, others, np.zeros_like(floor))
        whole = np.where(least < s, least, s * -(-least // s))
        links = np.maximum(whole, np.minimum(np.ceil(leaf / rows[:, COL["leaf_bundle"]]).astype(np.int64), s))
        links = np.maximum(links, -(-floor // others))
    pin = p.pins.get("spine_up_ports")
    if pin is not None:
        links = np.maximum(links, (pin - 1) * s // others + 1)
    up = -(-others * links // s)
    fits = rows[:, COL["spine_down"]] + up + rows[:, COL["wan_gateway"]] <= rows[:, COL["ports"]]
    return links, fits if pin is None else fits & (up == pin)
