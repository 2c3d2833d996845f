"""Templates of fabric trees: a single switch, pods of all leaf domains, pods of some, and zones that super-spines join.

Of pods of some domains what leaves a pod is counted as what leaves a leaf.

In four tiers of a spine's u2 uplinks every zone has s·u2 core positions. Each of its cores takes p of them, the same
number, and has u3 uplinks; super-spines take the positions above the cores in turn. Cores and super-spines are of one
model. There are too many of them to list at every slowdown, so each is the cheapest that keeps a target: the slowdowns
of leaves with some number of uplinks, those of sends and of allreduces each times 1, 1.5, 2 or 4 for all tiers, or any
slowdown at all.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from planner.models.fabric import template_table as tables
from planner.models.fabric.site_mode import BELOW, SiteMode, Trees
from planner.models.fabric.site_traffic import ALLREDUCES, EXCHANGES, FLOWS, SHARES, LeafLoads
from planner.models.fabric.template_table import TOLERANCE, ArrayTable, DesignTable, Flags, members, pareto_front
from planner.physics import Floats, Ints
from planner.physics.network.fabric_cost import by_reach
from planner.physics.network.fabric_designs import spare_ports

NONE = 1 << 40  # core boxes where there is no way to wire them: above any count
MOST_TOPS = 4096  # sets of spines and cores over pods of all leaf domains that are kept
MOST_WAYS = 1 << 16  # of leaves and spine uplinks, priced at a time
SAMPLE = 64  # of so many pods of some leaf domains one is built first
MOST_CASES = 1 << 17  # of shapes and uplinks of leaves under each number of stripes, bounded at a time
FACTORS = (1.0, 1.5, 2.0, 4.0, math.inf)  # of leaves' slowdowns, which all tiers keep
ROUNDING = 1e-9  # relative, of prices and slowdowns
ROWS_AND_UPLINKS = 1 << 16  # rows with uplinks of a spine, priced at a time
ROWS_AT_A_TIME = 256  # looked at together, those of the least price first


@lru_cache(maxsize=1 << 14)
def _divisors(count: int, most: int) -> Ints:
    every = np.arange(1, min(count, most) + 1)
    return np.asarray(every[count % every == 0])


def divisors(counts: Ints, most: int) -> tuple[Ints, Ints]:
    """Return the divisors up to `most` of each count, ascending, as tree templates' bundles: place of each, and all."""
    kinds, own = np.unique(counts, return_inverse=True)
    found = [_divisors(count, most) for count in kinds.tolist()]
    number = np.array([len(each) for each in found], dtype=np.int64)
    first, every = np.cumsum(number) - number, np.concatenate([*found, np.empty(0, dtype=np.int64)])
    row, more = members(number[own])
    return row, every[first[own][row] + more]


def spine_bundles(s: SiteMode) -> list[int]:
    """List the bundles of tree templates' spine uplinks: single links, which fill cores best, unless pinned."""
    down = s.pins.get("core_down_ports", 1)
    return [s.pins["spine_bundle"]] if "spine_bundle" in s.pins else [b for b in range(1, down + 1) if down % b == 0]


def fewest_boxes(s: SiteMode, taken: Ints, positions: Ints, fewest: Ints) -> Ints:
    """Count the fewest boxes of tree templates' top tier, at least `fewest`, for positions of `taken` ports."""
    # The boxes take the positions in turn, and keep ports for the WAN gateway. `NONE` where no number of boxes does.
    ports = s.core_ports
    boxes = np.maximum(-(-positions // np.maximum(ports // taken, 1)), fewest)
    boxes = np.maximum(boxes, -(-(positions * taken + s.wan_ports) // ports))
    fits = taken + -(-s.wan_ports // np.maximum(positions, 1)) <= ports
    while s.wan_ports and (full := fits & (-(-positions // boxes) * taken + -(-s.wan_ports // boxes) > ports)).any():
        boxes = boxes + full
    return np.where(fits & (boxes <= positions), boxes, NONE)


def part_sizes(items: int) -> Ints:
    """Return the sizes ceil(items / parts) of tree templates' pods, once each: no smaller size makes as few parts."""
    return np.unique(-(-items // np.arange(1, items + 1, dtype=np.int64)))


def pod_sizes(s: SiteMode, items: int, pin: str, *, all_sizes: bool = False) -> Ints:
    """List the sizes of tree templates' pods in rails, or leaf domains: the fewest for each count of pods, or all."""
    # Where the ports down of a spine are pinned, every divisor of these.
    wanted, down = s.pins.get(pin), s.pins.get("spine_down_ports")
    sizes = np.arange(1, items + 1) if all_sizes or down or wanted else part_sizes(items)
    return np.asarray(sizes[((down or 0) % sizes == 0) & (sizes == (wanted or sizes))])


def wirings(s: SiteMode, x: Trees, *, room: int = 1) -> tuple[Ints, Trees, Ints]:
    """Join the leaves of tree templates to the spines of their pods in every way that ports and pins allow.

    Return the row of each way, the trees with the fewest uplinks of a spine, which the core share and the ratio ask
    for, and the most. A pod has at least the spines that survive the loss of one, where the network requires that.
    `room`: fewest ports that a spine keeps for uplinks.
    """
    row, bundle = divisors(x.up, s.ports)
    leaves, n = (x.rails * x.width)[row], s.network
    keep = (bundle * leaves + room <= s.spine_ports) & (x.up[row] >= n.asked_spines * bundle)
    keep &= (x.up >= s.leaf_share(x.domain))[row]
    for name, value in ("leaf_up_ports", x.up[row]), ("leaf_bundle", bundle), ("spine_down_ports", bundle * leaves):
        keep &= value == s.pins.get(name, value)
    row, bundle, leaves = row[keep], bundle[keep], leaves[keep]
    x, several = x.part(row), (s.pods(x.domain, x.rails, x.width) > 1)[row]
    by_tier = np.ceil(bundle * leaves * several / n.tier_ratios[1] * (1 - TOLERANCE))
    share = np.ceil(s.core_share(x.domain * s.mode.rail_gpus * leaves * several) / (x.up // bundle))
    low, high = np.maximum(1, np.maximum(by_tier, share)).astype(np.int64), s.spine_ports - bundle * leaves
    if "spine_up_ports" in s.pins:
        low, high = np.maximum(low, s.pins["spine_up_ports"]), np.minimum(high, s.pins["spine_up_ports"])
    kept = np.flatnonzero((low <= high) | (room == 0))
    return row[kept], replace(x, bundle=bundle, spine_up=low).part(kept), high[kept]


def single(s: SiteMode) -> list[DesignTable]:
    """Return the tree template of one tier: a single switch in each network, where it takes every GPU."""
    m, racks, pins = s.mode, s.racks, s.pins
    ends = racks * m.rails * m.rail_gpus
    taken = -(-(ends + spare_ports(ends, s.network.spares)) // m.split)
    alike = pins.get("leaf_domain_racks", racks) == racks and pins.get("leaf_down_ports", ends) == ends
    if not alike or not s.allows(1) or racks not in pins.get("leaf_sizes", (racks,)) or taken + s.wan_ports > s.ports:
        return []
    prices = s.prices.endpoints(racks) + m.networks * s.leaf_box + s.tree_wan
    return [s.table(np.ones(1), np.ones(1), prices, domain=racks, stripes=int(s.stripes[0]) if len(s.stripes) else 1)]


def with_all_domains(s: SiteMode, domains: Ints, leaves: LeafLoads) -> Iterator[list[DesignTable]]:
    """Yield the tree templates of two and three tiers whose pods hold all leaf domains that may beat those so far."""
    domain, up = s.worthwhile_uplinks(domains, leaves)
    each = np.unique(domain)
    if not len(each):
        return
    wanted = np.zeros((len(each), s.ports), dtype=bool)
    wanted[np.searchsorted(each, domain), up] = True
    tops = [_tops(s, d) for d in each.tolist()]
    at = np.repeat(np.arange(len(each)), [len(x.up) for x, _ in tops])
    x, prices = Trees.joined([x for x, _ in tops]), np.concatenate([usd_mw for _, usd_mw in tops], axis=1)
    k = np.flatnonzero(wanted[at, x.up])
    x, prices = replace(x, domain=each[at]).part(k), prices[:, k]
    prices = s.fixed(x.domain) + prices
    i, stripes, load = leaves.best_of(x.domain)
    yield [s.tree_table(x.part(i), s.leaf_crossing(x.domain[i], x.up[i], load), prices[:, i], stripes)]


def _tops(s: SiteMode, domain: int) -> tuple[Trees, Floats]:
    """Return for every number of leaf uplinks a tree's cheapest spines and cores over all domains, with prices."""
    # Where power counts, those of least power are returned too, and with `s.whole` all undominated ones between the
    # two. They depend on the number of domains alone where no lengths and shares of leaf domains count.
    m, n, domains = s.mode, s.network, s.domains(domain)
    apart = (s.racks, domain) if by_reach(n) or n.asked_core_share or n.max_oversubscription else ()
    key: tuple[Any, ...] = m.switch.name, m.family, m.rails, m.split, s.spine, s.core, domains, apart, s.wan_ports
    key += s.exchange_ports, tuple(sorted(s.pins.items()))
    if key in s.tops:
        return s.tops[key]
    if len(s.tops) >= MOST_TOPS:
        s.tops.clear()
    found, rails = [Trees.of(domain=np.empty(0, dtype=np.int64))], pod_sizes(s, m.rails, "rails_per_pod")
    if s.allows_two and s.pins.get("leaf_domains_per_pod", domains) == domains:
        _, x, _ = wirings(s, Trees.of(domain=domain, rails=m.rails, width=domains, up=np.arange(1, s.ports)), room=0)
        x = replace(x, spine_up=np.zeros_like(x.up))
        found.append(x.part(x.bundle * m.rails * domains + -(-s.wan_ports // x.spines) <= s.spine_ports))
    if s.allows(3) and domains in pod_sizes(s, domains, "leaf_domains_per_pod"):
        above = {"tiers", "spine_up_ports", "core_down_ports", "spine_bundle", "core_switch"}
        one_pod = bool(s.wan_ports or above & set(s.pins)) and s.pins.get("min_pods", 1) < 2
        rails = rails[((rails < m.rails) | one_pod) & (rails * domains < s.spine_ports)]
        rails, up = (x.ravel() for x in np.meshgrid(rails, np.arange(1, s.ports), indexing="ij"))
        _, x, high = wirings(s, Trees.of(domain=domain, rails=rails, width=domains, up=up))
        gone = np.ceil(s.exchange_ports * (1 - TOLERANCE) * x.rails / x.spines).astype(np.int64)
        x = replace(x, spine_up=np.maximum(x.spine_up, gone))
        found += [some for some, _ in _three_tiers(s, x, high, cheapest=True)]
    x = Trees.joined(found)
    usd, mw = prices = s.tree_bill(x)
    k = np.flatnonzero(np.isfinite(usd))
    if s.power_counts and s.whole:
        k = k[np.sort(pareto_front(np.stack([x.up, -x.up, usd, mw], axis=1)[k]))]
    else:
        # The first entry of each number of uplinks, by which the orders are sorted first.
        orders = [k[np.lexsort(np.stack(by)[:, k])] for by in ((mw, usd, x.up), (usd, mw, x.up))[: 1 + s.power_counts]]
        k = np.unique(np.concatenate([order[np.diff(x.up[order], prepend=-1) != 0] for order in orders]))
    s.tops[key] = x.part(k), prices[:, k]
    return s.tops[key]


def _three_tiers(s: SiteMode, x: Trees, high: Ints, *, cheapest: bool) -> Iterator[tuple[Trees, Ints]]:
    """Yield trees of three tiers, the cheapest or all, with spine uplinks up to `high`, cores, and the row of each."""
    # Fewer uplinks of spines never take more cores, so the fewest that pins allow are the cheapest.
    pods, down = s.pods(x.domain, x.rails, x.width), s.pins.get("core_down_ports")
    least = np.where(pods > 1, s.network.asked_spines, 1)
    for b in spine_bundles(s):
        if not cheapest or down:
            row, more = members(np.maximum(0, high - x.spine_up + 1))
            up = x.spine_up[row] + more
        else:
            # They must make enough positions, each of which may be a core, for the ports that the WAN gateway needs.
            needed = -(-s.wan_ports // np.maximum(1, s.core_ports - pods * b))
            row, up = np.arange(len(pods)), np.maximum(-(-x.spine_up // b), -(-needed // x.spines)) * b
        # Each bundle of a spine takes ports for all pods of a core, its position. Cores take the positions of all
        # spines in turn, keep ports for the WAN gateway, and are two where any one of them may be lost.
        taken, positions, fewest = pods[row] * b, x.spines[row] * (up // b), least[row]
        if down:
            each = down // taken
            boxes = np.maximum(-(-positions // np.maximum(each, 1)), fewest)
            if s.wan_ports:
                boxes = np.maximum(boxes, -(-s.wan_ports // max(1, s.core_ports - down)))
            fits = (each * taken == down) & (-(-positions // np.maximum(boxes, 1)) == each)
            fits &= (boxes <= positions) & (down + (s.wan_ports > 0) <= s.core_ports)
        else:
            boxes = fewest_boxes(s, taken, positions, fewest)
            fits = boxes < NONE
        at = np.flatnonzero((up <= high[row]) & fits & (up > 0) & (up % b == 0))
        if cheapest:
            at = at[np.diff(row[at], prepend=-1) != 0]
        yield replace(x.part(row[at]), spine_up=up[at], spine_bundle=np.full(len(at), b), cores=boxes[at]), row[at]


def with_some_domains(s: SiteMode, domains: Ints, leaves: LeafLoads) -> Iterator[list[DesignTable]]:
    """Yield the tree templates of three tiers with pods of some domains that may beat the templates so far."""
    # Leaves with some uplinks are a case; it must cost less than the templates that are no slower than its leaves.
    domain, up = s.worthwhile_uplinks(domains, leaves, tiers=3)
    if not len(domain):
        return
    send, allreduce, _ = s.leaf_crossing(domain[:, None], up[:, None], leaves.of(domain))
    cases = Cases(send, allreduce, np.where(s.within(send, allreduce), s.caps(send, allreduce), -math.inf))
    every, rails = s.prices.places is not None or not s.traffic.nothing, pod_sizes(s, s.mode.rails, "rails_per_pod")
    sizes, first, ups = np.unique(domain, return_index=True, return_counts=True)
    widths = [pod_sizes(s, n, "leaf_domains_per_pod", all_sizes=every) for n in s.domains(sizes).tolist()]
    of = np.repeat(np.arange(len(sizes)), [len(rails) * len(own) for own in widths])
    width = np.repeat(np.concatenate([*widths, sizes[:0]]), len(rails))
    rails = np.tile(rails, len(width) // max(1, len(rails)))
    fits = (width < s.domains(sizes[of])) & (s.pods(sizes[of], rails, width) <= s.core_ports)
    fits &= rails * width < s.spine_ports
    of, rails, width = of[fits], rails[fits], width[fits]
    shape, more = members(ups[of])
    case, rails, width = first[of[shape]] + more, rails[shape], width[shape]
    x = Trees.of(domain=domain[case], rails=rails, width=width, up=up[case])
    # The price of a pod at least: the fewest spines that ports allow, links out as the rules ask, one each at least.
    m, n, ports, p = s.mode, s.network, s.spine_ports, s.prices
    pods, leaf_count = s.pods(x.domain, x.rails, x.width), x.rails * x.width
    spines = -(-x.up // ((ports - 1) // leaf_count))
    floor = np.where(pods > 1, s.core_share(x.domain * m.rail_gpus * leaf_count), 0)
    ratio = np.where(pods > 1, n.tier_ratios[1], math.inf)  # of ports down of a spine to one up
    links = np.maximum(np.maximum(floor, np.ceil(leaf_count / ratio * x.up * (1 - TOLERANCE))), spines)
    needed = np.maximum(spines, -(-(leaf_count * x.up + links) // ports))
    cores = np.maximum(1, -(-pods * links // s.core_ports))
    link, position = p.uplink(x.domain * x.width, x.rails), m.networks * pods * s.spine_box
    base = s.fixed(x.domain) + x.up * p.uplink(x.domain, 1, x.domain * x.width)
    usd, mw = base + needed * position + links * link + m.networks * cores * s.core_box
    kept = np.flatnonzero(s.worthwhile(1.0, 1.0, usd, mw) & (usd <= cases.cap.max(axis=1, initial=-math.inf)[case]))
    link = np.maximum(1e-6, link[0] + m.networks * pods * s.core_box[0] / s.core_ports)
    bound = PodBounds(case, x, spines, base[0], position[0], link, usd, mw).part(kept)
    # A few of all prices first, which rule out most of the others.
    order, step = np.argsort(bound.usd, kind="stable"), max(1, MOST_CASES // max(1, len(leaves.stripes)))
    for some in order[::SAMPLE], np.delete(order, slice(None, None, SAMPLE)):
        left = some
        while len(left := left[s.worthwhile(1.0, 1.0, bound.usd[left], bound.mw[left])]):
            s.tick()
            cap = np.minimum(cases.cap, s.caps(cases.send, cases.allreduce))
            yield _with_pods(s, bound.part(left[:step]), cases._replace(cap=cap), leaves)
            left = left[step:]


class Cases(NamedTuple):
    """Leaves of tree templates with some uplinks (rows) under stripes (columns): slowdowns, and USD worth paying."""

    send: Floats
    allreduce: Floats
    cap: Floats


@dataclass(frozen=True, slots=True)
class PodBounds(ArrayTable):
    """Pods of tree templates with some leaf domains, over leaves with some uplinks, and the least that they cost."""

    case: Ints
    trees: Trees
    spines: Ints  # the fewest that ports allow
    base: Floats  # dollars below the spines
    position: Floats  # of a spine in every pod
    link: Floats  # of a link out of every pod, with its port of a core
    usd: Floats
    mw: Floats


def _with_pods(s: SiteMode, x: PodBounds, cases: Cases, leaves: LeafLoads) -> list[DesignTable]:
    """Return the trees of three tiers with such pods that may beat the templates so far, as design tables."""
    # The most links out of a pod with which it is worthwhile, by stripes (columns); 0 where it never is. They must cost
    # less than what the templates no slower leave over, and take ports of spines; and the pod is as slow as the first
    # one with all of them.
    usd, spines, position, link = (column[:, None] for column in (x.usd, x.spines, x.position, x.link))
    tree, ports = x.trees, s.spine_ports
    leaf_count, left, up = (tree.rails * tree.width)[:, None], cases.cap[x.case] - x.base[:, None], tree.up[:, None]
    by_ports = (left - position * leaf_count * up / ports) / (link + position / ports)
    by_price = np.minimum((left - position * spines) / link, by_ports) * (1 + 1e-9)
    most = np.maximum(1.0, np.minimum(up * (ports - leaf_count), by_price))
    sizes, at = np.unique(np.minimum(tree.domain * tree.width, s.traffic.work_racks(s.blocks)), return_inverse=True)
    first = s.traffic.leaving(s.blocks, leaves.stripes, sizes, first_only=True).swapaxes(0, 1)[at]
    sent = (s.mode.rail_gpus * tree.rails)[:, None] / (most * s.mode.link_nics)
    send = np.maximum(cases.send[x.case], first[..., FLOWS] * sent)
    allreduce = np.maximum(cases.allreduce[x.case], first[..., ALLREDUCES] * sent)
    most = np.where(s.worthwhile(send, allreduce, usd, x.mw[:, None]), most, 0.0)
    row, w, high = wirings(s, x.trees)
    high = np.minimum(high, most.max(axis=1, initial=0.0)[row] // w.spines).astype(np.int64)
    k = np.flatnonzero(w.spine_up <= high)
    row, w, high = row[k], w.part(k), high[k]
    chunk, parts = np.cumsum(high - w.spine_up + 1) // MOST_WAYS, list[DesignTable]()
    for part in np.unique(chunk).tolist():
        s.tick()
        some = np.flatnonzero(chunk == part)
        for trees, at in _three_tiers(s, w.part(some), high[some], cheapest=s.traffic.nothing and not s.power_counts):
            prices, of = s.priced(trees), row[some][at]
            links = trees.spine_up * trees.spines
            i, n = np.nonzero((links[:, None] <= most[of]) & s.worthwhile(1.0, 1.0, *prices)[:, None])
            leaf, pod = leaves.of(trees.domain[i])[np.arange(len(i)), n], first[of[i], n]
            for exact in (False, True):
                if exact and not s.traffic.nothing:
                    sizes = (trees.domain * trees.width)[i]
                    pod = np.empty((len(i), 4))
                    for k in np.unique(n).tolist():
                        pod[n == k] = s.loads.at(int(leaves.stripes[k]), sizes[n == k])
                send, allreduce, fits = s.tree_crossing(trees.part(i), leaf, pod)
                kept = np.flatnonzero(fits & s.worthwhile(send, allreduce, *prices[:, i]))
                i, n, leaf, pod = i[kept], n[kept], leaf[kept], pod[kept]
            crossing = send[kept], allreduce[kept], fits[kept]
            parts.append(s.tree_table(trees.part(i), crossing, prices[:, i], leaves.stripes[n]))
    return [found for found in parts if len(found)]


@dataclass(frozen=True, slots=True)
class ZoneRows(ArrayTable):
    """Shapes of pods and zones of four-tier tree templates, leaf uplinks and bundles, and the least that each costs."""

    trees: Trees  # with the fewest uplinks of a spine, and no cores yet
    high: Ints  # most uplinks of a spine
    floor: Ints  # links out of a zone that the core share asks for
    step: Floats  # dollars of an uplink more of every spine
    usd: Floats
    mw: Floats


def with_zones(s: SiteMode, domains: Ints, leaves: LeafLoads) -> Iterator[list[DesignTable]]:
    """Yield the tree templates of four tiers of leaf domains that may beat those so far, one size after another."""
    every_domain, every_up = s.worthwhile_uplinks(domains, leaves, tiers=4)
    for domain in dict.fromkeys(every_domain.tolist()):
        ups = every_up[every_domain == domain]
        rows = _zone_rows(s, domain, ups, leaves.best_of(np.array([domain]))[2])
        if not len(rows.usd):
            continue
        if s.traffic.nothing and not s.power_counts:
            no_need = np.zeros(len(rows.usd))
            yield _cheapest(s, rows, rows.trees.spine_up, no_need, no_need == 0, int(leaves.stripes[0]))
            continue
        at, v, least = _least_usd(s, rows)
        parts = list[DesignTable]()
        # Only numbers of stripes of which no other leaves less of a leaf, and of any one size of pods, in all.
        sizes = np.arange(domain, s.racks + domain, domain)
        kept = pareto_front(np.array([s.loads.at(n, sizes).ravel() for n in leaves.stripes.tolist()]))
        for n in leaves.stripes[kept].tolist():
            s.tick()
            some = rows.part(at)
            trees = replace(some.trees, spine_up=v)
            send, allreduce, _ = s.tree_crossing(trees, *_loads(s, trees, n)[:2])
            worth = s.worthwhile(send, allreduce, least, BELOW * some.mw)
            if not worth.any():
                continue
            if s.whole:
                for i in np.unique(at[worth]).tolist():
                    s.tick()
                    some = rows.part(at[worth & (at == i)])
                    _, trees = _with_tops(s, replace(some.trees, spine_up=v[worth & (at == i)]), some.floor, every=True)
                    parts.append(tables.undominated([_zone_table(s, trees, n)], power_counts=s.power_counts))
                continue
            slow = np.stack(s.leaf_crossing(domain, ups, s.loads.at(n, rows.trees.domain[:1]))[:2], axis=1).tolist()
            targets = {(a * x, b * y) for (a, b), (x, y) in product(product(FACTORS, FACTORS), slow)}
            for target in sorted(targets):
                s.tick()
                inside = (send <= target[0] * (1 + ROUNDING)) & (allreduce <= target[1] * (1 + ROUNDING))
                if (worth & inside).any():
                    parts += _keeping(s, rows.part(np.unique(at[inside])), target, n)
        yield parts


def _keeping(s: SiteMode, rows: ZoneRows, target: tuple[float, float], n: int) -> list[DesignTable]:
    """Return the cheapest tree of four tiers that keeps target slowdowns under some stripes; none where none does."""
    x, (leaf, pod, zone) = rows.trees, _loads(s, rows.trees, n)
    send, allreduce, kept = s.leaf_crossing(x.domain, x.up, leaf)
    kept &= (send <= target[0] * (1 + TOLERANCE)) & (allreduce <= target[1] * (1 + TOLERANCE))
    low = np.maximum(x.spine_up, np.ceil(_need(s, pod, x.rails, target) / x.spines).astype(np.int64))
    return _cheapest(s, rows, low, _need(s, zone, x.zone_rails, target), kept, n)


def _cheapest(s: SiteMode, rows: ZoneRows, low: Ints, need: Floats, kept: Flags, n: int) -> list[DesignTable]:
    """Return the cheapest tree of four tiers of the rows `kept`, or none where all cost more than the site's limit."""
    # A spine has at least `low` uplinks, and a zone at least `need` links out.
    order = np.flatnonzero(kept & (low <= rows.high))
    order = order[np.argsort(rows.usd[order], kind="stable")]
    best, found = s.max_usd, list[DesignTable]()
    for first in range(0, len(order), ROWS_AT_A_TIME):
        s.tick()
        i = order[first : first + ROWS_AT_A_TIME]
        if rows.usd[i[0]] * BELOW > best:
            break
        r, more = rows.part(i), np.arange(int((rows.high - low)[i].max()) + 1)
        least = r.usd[:, None] + (low[i, None] - r.trees.spine_up[:, None] + more) * r.step[:, None]
        k, more = np.nonzero((more <= (r.high - low[i])[:, None]) & (least * BELOW <= best))
        _, trees, every = _completed(s, r.part(k), low[i][k] + more, need[i][k])
        if len(every) and float(every.min()) <= best:
            best, found = float(every.min()), [_zone_table(s, trees.part(np.array([every.argmin()])), n)]
    return found


def _zone_rows(s: SiteMode, domain: int, ups: Ints, leaf_loads: Floats) -> ZoneRows:
    """Return shapes of pods and zones that ports allow and the front does not rule out, with the least cost of each."""
    widths = pod_sizes(s, s.domains(domain), "leaf_domains_per_pod", all_sizes=not s.traffic.nothing)
    both = pod_sizes(s, s.mode.rails, "rails_per_pod"), widths
    rails, width = (x.ravel() for x in np.meshgrid(*both, indexing="ij"))
    many = len(ups)
    x = Trees.of(domain=domain, rails=np.repeat(rails, many), width=np.repeat(width, many), up=np.tile(ups, len(rails)))
    row, x, high = wirings(s, x)
    shape, zoned, down = row // max(1, many), [np.empty((0, 3), dtype=np.int64)], s.pins.get("core_down_ports", 0)
    for k in np.unique(shape).tolist():
        s.tick()
        # Pods of a zone, across and along: the fewest for each count of zones; divisors of pinned ports.
        across, along = -(-s.mode.rails // int(rails[k])), -(-s.domains(domain) // int(width[k]))
        each = (np.arange(1, items + 1) if down else part_sizes(items) for items in (across, along))
        wide, deep = (x.ravel() for x in np.meshgrid(*(own[down % own == 0] for own in each), indexing="ij"))
        zones = -(-across // wide) * -(-along // deep)
        fits = (wide * deep < s.core_ports) & (zones >= s.min_zones) & (zones <= s.core_ports)
        zoned.append(np.column_stack([np.full(len(zones), k), wide * rails[k], deep * width[k]])[fits])
    # Every zone of a shape with every wiring of it.
    z = np.concatenate(zoned)
    i, more = members(np.bincount(shape, minlength=len(rails))[z[:, 0]])
    k = np.searchsorted(shape, z[i, 0]) + more
    x, high = replace(x.part(k), zone_rails=z[i, 1], zone_width=z[i, 2]), high[k]
    pods, zones = s.pods(x.domain, x.rails, x.width), s.pods(x.domain, x.zone_rails, x.zone_width)
    floor = np.where(zones > 1, s.core_share(domain * s.mode.rail_gpus * x.zone_rails * x.zone_width), 0)
    # As many ports of cores and super-spines as the links have ends.
    p, m, out = s.prices, s.mode, np.maximum(1, floor)
    cores = np.maximum(zones, np.ceil((pods * x.spines * x.spine_up + zones * out) / s.core_ports))
    tops = np.maximum(1, np.ceil(zones * out / s.core_ports))
    core_link = p.uplink(domain * x.zone_width, x.zone_rails)
    usd, mw = s.fixed(domain) + s.tree_bill(x) + out * core_link + m.networks * (cores + tops) * s.core_box
    step = x.spines * p.uplink(domain * x.width, x.rails, domain * x.zone_width)[0]
    send, allreduce, _ = s.leaf_crossing(domain, x.up, leaf_loads[:, None])
    worth = s.worthwhile(send, allreduce, BELOW * usd, BELOW * mw).any(axis=0)
    return ZoneRows(x, high, floor, step, usd, mw).part(np.flatnonzero(worth))


def _need(s: SiteMode, load: Floats, rails: Ints, target: tuple[float, float]) -> Floats:
    """Compute the links out of pods or zones (of `rails` rails) of four-tier trees that keep target slowdowns."""
    m = s.mode
    sent = np.maximum(load[..., FLOWS] / target[0], load[..., ALLREDUCES] / target[1])
    sent = np.maximum(sent, load[..., EXCHANGES])
    gone = s.exchange_ports * load[..., SHARES] * np.minimum(rails, m.rails)
    return np.asarray((sent * m.rail_gpus * rails / m.link_nics + gone) * (1 - TOLERANCE))


def _least_usd(s: SiteMode, rows: ZoneRows) -> tuple[Ints, Ints, Floats]:
    """Return rows of four tiers with spine uplinks, and the least price of each if no traffic leaves a zone."""
    found = []
    step, v = max(1, ROWS_AND_UPLINKS // s.spine_ports), np.arange(1, s.spine_ports + 1)
    for first in range(0, len(rows.usd), step):
        s.tick()
        some = rows.part(slice(first, first + step))
        low = some.trees.spine_up[:, None]
        least = BELOW * (some.usd[:, None] + (v - low) * some.step[:, None])
        inside = (v >= low) & (v <= some.high[:, None])
        i, k = np.nonzero(inside & s.worthwhile(1.0, 1.0, least, BELOW * some.mw[:, None]))
        kept, _, usd = _completed(s, some.part(i), v[k], np.zeros(len(i)))
        found.append((first + i[kept], v[k][kept], BELOW * usd))
    at, v, usd = (np.concatenate(x) for x in zip(*found, strict=True))
    return at, v, usd


def _completed(s: SiteMode, r: ZoneRows, v: Ints, need: Floats) -> tuple[Ints, Trees, Floats]:
    """Complete trees of four tiers by the cheapest cores and super-spines: return the rows, their trees, and prices."""
    # `v` are the uplinks of a spine, `need` the links out of a zone. More uplinks of a core than needed cost more, and
    # take no fewer super-spines.
    links = np.maximum(np.ceil(need).astype(np.int64), r.floor)
    i, x = _with_tops(s, replace(r.trees, spine_up=v), links, every=False)
    usd = s.priced(x)[0]
    order = np.lexsort((usd, i))  # of equal prices the first
    first = order[np.unique(i[order], return_index=True)[1]]
    first = first[np.isfinite(usd[first])]
    return i[first], x.part(first), usd[first]


def _with_tops(s: SiteMode, x: Trees, links: Ints, *, every: bool) -> tuple[Ints, Trees]:
    """Add cores and super-spines to each tree in every way that ports allow, for `links` links out of a zone."""
    # Returned are the row of each way and its tree. A core takes the same number of positions of each spine, one that
    # divides those that there are.
    each = x.zone_rails // x.rails * (x.zone_width // x.width)
    fewest = np.where(s.pods(x.domain, x.rails, x.width) > 1, s.network.asked_spines, 1)
    found = [np.empty((4, 0), dtype=np.int64)]
    for one in spine_bundles(s):
        whole = np.flatnonzero(x.spine_up % one == 0)
        positions = x.spines[whole] * (x.spine_up[whole] // one)
        k, p = divisors(positions, s.core_ports - 1)
        i, cores = whole[k], positions[k] // p
        taken = p * one * each[i]
        fits = (taken < s.core_ports) & (cores >= fewest[i]) & (taken == s.pins.get("core_down_ports", taken))
        found.append(np.stack([i, np.full_like(i, one), cores, taken])[:, fits])
    i, bundle, cores, taken = np.concatenate(found, axis=1)
    # The fewest uplinks of a core by links out of the zone, ports down, losses and the WAN gateway.
    zones = s.pods(x.domain, x.zone_rails, x.zone_width)[i]
    links = np.maximum(links[i], np.where(zones > 1, s.network.asked_spines, 1))
    if s.wan_ports:
        links = np.maximum(links, -(-s.wan_ports // np.maximum(1, s.core_ports - zones)))
    ratio = np.ceil(np.where(zones > 1, taken / s.network.tier_ratios[2], 1) * (1 - TOLERANCE)).astype(np.int64)
    fewest = np.maximum(np.maximum(1, ratio), -(-links // cores))
    if (wanted := s.pins.get("core_up_ports")) is not None:
        fewest = np.where(fewest <= wanted, wanted, s.core_ports)
    # Cores have these, or `every` number from these on.
    most = s.core_ports - taken if every and "core_up_ports" not in s.pins else np.minimum(fewest, s.core_ports - taken)
    k, more = members(np.maximum(0, most - fewest + 1))
    i, cores, up, zones = i[k], cores[k], fewest[k] + more, zones[k]
    # Super-spines of a network each have a port for every zone.
    boxes = fewest_boxes(s, zones, cores * up, np.where(zones > 1, s.network.asked_spines, 1))
    x = replace(x.part(i), spine_bundle=bundle[k], cores=cores, core_up=up, super_spines=boxes)
    kept = np.flatnonzero(boxes < NONE)
    return i[kept], x.part(kept)


def _loads(s: SiteMode, x: Trees, n: int) -> list[Floats]:
    return [s.loads.at(n, x.domain * width) for width in (1, x.width, x.zone_width)]


def _zone_table(s: SiteMode, x: Trees, n: int) -> DesignTable:
    return s.tree_table(x, s.tree_crossing(x, *_loads(s, x, n)), s.priced(x), n)
