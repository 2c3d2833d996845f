"""Trees of one to three tiers: bundles of leaves, pods, spines and cores, over pods of all leaf domains, and of some.

Of pods of some domains what leaves a pod is counted as what leaves a leaf.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from planner.models.fabric.design_table import ArrayTable, DesignTable, Flags, Floats, Ints, no_options, pareto_front
from planner.models.fabric.site_mode import (
    BELOW,
    TOLERANCE,
    LeafLoads,
    LoadsOfLeaves,
    SiteMode,
    members,
    under_stripes,
)
from planner.models.fabric.traffic import ALLREDUCES, FLOWS
from planner.physics.network.links import spare_ports

NONE = 1 << 40  # core boxes where there is no way to wire them: above any count


@lru_cache(maxsize=256)
def bundles(ports: int, most: int | None = None) -> tuple[Ints, Ints]:
    """Return (uplinks, bundle) arrays: every number of uplinks below `ports` with each divisor of at most `most`."""
    up, each = np.arange(1, ports), np.arange(1, ports if most is None else min(ports, most + 1))
    row, column = np.nonzero(up[:, None] % each == 0)
    return up[row], each[column]


def spine_bundles(s: SiteMode) -> list[int]:
    """List the bundles of a spine's uplinks: single links, which fill cores best, unless pins ask for others."""
    down = s.pins.get("core_down_ports", 1)
    return [s.pins["spine_bundle"]] if "spine_bundle" in s.pins else [b for b in range(1, down + 1) if down % b == 0]


def core_boxes(s: SiteMode, pods: Ints, spines: Ints, up: Ints, bundle: int) -> Ints:
    """Return the fewest cores of a network over pods of some spines with some uplinks each; `NONE` where none do.

    Each bundle of a spine takes ports for all pods of a core, its position. Cores take the positions of all spines in
    turn, keep ports for the WAN gateway, and are two where any one of them may be lost.
    """
    taken, positions, ports = pods * bundle, spines * (up // bundle), s.core_ports
    fewest = np.where(pods > 1, s.network.asked_spines, 1)
    if down := s.pins.get("core_down_ports"):
        each = down // taken
        boxes = np.maximum(-(-positions // np.maximum(each, 1)), fewest)
        if s.wan_ports:
            boxes = np.maximum(boxes, -(-s.wan_ports // max(1, ports - down)))
        fits = (each * taken == down) & (-(-positions // np.maximum(boxes, 1)) == each)
        fits &= down + (s.wan_ports > 0) <= ports
    else:
        boxes, fits = fewest_boxes(s, taken, positions, fewest), np.asarray(True)
    return np.where(fits & (up > 0) & (up % bundle == 0) & (boxes <= positions), boxes, NONE)


def fewest_boxes(s: SiteMode, taken: Ints, positions: Ints, fewest: Ints) -> Ints:
    """Count the fewest boxes of the top tier, at least `fewest`, for `positions` positions of `taken` ports each.

    The boxes take the positions in turn, and keep ports for the WAN gateway. `NONE` where no number of boxes does.
    """
    ports = s.core_ports
    boxes = np.maximum(-(-positions // np.maximum(ports // taken, 1)), fewest)
    boxes = np.maximum(boxes, -(-(positions * taken + s.wan_ports) // ports))
    fits = taken + -(-s.wan_ports // np.maximum(positions, 1)) <= ports
    while s.wan_ports and (full := fits & (-(-positions // boxes) * taken + -(-s.wan_ports // boxes) > ports)).any():
        boxes = boxes + full
    return np.where(fits & (boxes <= positions), boxes, NONE)


def own_boxes(below: Ints, up: Ints, bundle: Ints | int, boxes: Ints, *, split: bool) -> tuple[Ints, Ints]:
    """Return the bundles of switches below and the boxes that positions share: none where each can have its own.

    `split`: bundles of single links may be joined to larger ones.
    """
    each = np.maximum(boxes // np.maximum(below, 1), 1)
    joined = (up == bundle * each) | (np.equal(bundle, 1) & split)
    alone = (below * each == boxes) & (up % each == 0) & joined
    return np.where(alone, up // each, bundle), np.where(alone, 0, boxes)


def rail_sizes(s: SiteMode) -> list[int]:
    """List the rails of a pod: for each count of pods the fewest; every divisor where the ports down are pinned."""
    return _sizes(s.mode.rails, s.pins.get("spine_down_ports"), s.pins.get("rails_per_pod"))


def width_sizes(s: SiteMode, domains: int, *, all_sizes: bool = False) -> list[int]:
    """List the leaf domains of a pod: for each count of pods the fewest, or every number."""
    pinned = s.pins.get("leaf_domains_per_pod")
    if all_sizes and s.pins.get("spine_down_ports") is None:
        return [y for y in range(1, domains + 1) if pinned in (None, y)]
    return _sizes(domains, s.pins.get("spine_down_ports"), pinned)


def _sizes(items: int, down: int | None, wanted: int | None) -> list[int]:
    if wanted is not None:
        return [wanted] if 1 <= wanted <= items and (down is None or down % wanted == 0) else []
    if down is not None:
        return [v for v in range(1, items + 1) if down % v == 0]
    return [int(v) for v in part_sizes(items)]


@dataclass(frozen=True, slots=True)
class Wirings(ArrayTable):
    """Ways to join leaves to the spines of pods of some rails and leaf domains, and the range of a spine's uplinks."""

    rails: Ints
    width: Ints
    up: Ints
    bundle: Ints
    low: Ints
    high: Ints

    @property
    def spines(self) -> Ints:
        """Spines of a pod."""
        return self.up // self.bundle


def wirings(s: SiteMode, domain: int, shapes: Ints, max_up: int, *, room: int = 1) -> tuple[Ints, Wirings]:
    """Return the wirings that ports and pins allow, with at least the uplinks of leaves and spines for the core share.

    A pod has at least the spines that survive the loss of one, where the network requires that. Each wiring comes with
    the row of its shape (rails and domains of a pod). `room`: minimum ports that a spine keeps for uplinks.
    """
    leaves, n = shapes[:, 0] * shapes[:, 1], s.network
    most = (s.spine_ports - room) // leaves
    up, bundle = bundles(s.ports, int(most.max(initial=0)))
    keep = (up >= s.leaf_share(domain)) & (up <= max_up) & (up // bundle >= n.asked_spines)
    for name, value in (("leaf_up_ports", up), ("leaf_bundle", bundle)):
        keep &= value == s.pins.get(name, value)
    row, at = np.nonzero(bundle[keep] <= most[:, None])
    up, bundle, down = up[keep][at], bundle[keep][at], bundle[keep][at] * leaves[row]
    several = (s.pods(domain, *shapes.T) > 1)[row]
    by_tier = np.ceil(down * several / n.tier_ratios[1] * (1 - TOLERANCE))
    share = np.ceil(s.core_share(domain * s.mode.rail_gpus * leaves[row] * several) / (up // bundle))
    low, high = np.maximum(1, np.maximum(by_tier, share)).astype(np.int64), s.spine_ports - down
    if "spine_up_ports" in s.pins:
        low, high = np.maximum(low, s.pins["spine_up_ports"]), np.minimum(high, s.pins["spine_up_ports"])
    kept = np.flatnonzero((down == s.pins.get("spine_down_ports", down)) & ((low <= high) | (room == 0)))
    rails, width = shapes[row].T
    return row[kept], Wirings(rails, width, up, bundle, low, high).part(kept)


def single(s: SiteMode) -> DesignTable:
    """Return the template of a single switch in each network, where it takes every GPU."""
    m, racks, pins = s.mode, s.racks, s.pins
    ends = racks * m.rails * m.rail_gpus
    taken = -(-(ends + spare_ports(ends, s.network.spares)) // m.split)
    own = {"tiers": 1, "leaf_domain_racks": racks, "leaf_down_ports": ends}
    above = {"leaf_up_ports", "spine_down_ports", "spine_up_ports", "core_down_ports", "core_up_ports"}
    above |= {"leaf_bundle", "spine_bundle", "rails_per_pod", "leaf_domains_per_pod", "spine_switch", "core_switch"}
    alike = all(pins.get(name, value) == value for name, value in own.items()) and not above & set(pins)
    if not alike or racks not in pins.get("leaf_sizes", (racks,)) or taken + s.wan_ports > s.ports:
        return no_options()
    usd, mw = s.prices.endpoints(racks) + m.networks * s.prices.switch + s.tree_wan
    return s.table(np.ones(1), np.ones(1), usd, mw, domain=racks, stripes=next(iter(s.stripes), 1))


@dataclass(frozen=True, slots=True)
class Tops(ArrayTable):
    """Spines and cores over pods; price and power are of all above the leaves, their uplinks included."""

    rails: Ints
    width: Ints
    up: Ints
    bundle: Ints
    spine_up: Ints
    spine_bundle: Ints
    core_boxes: Ints
    spine_model: Ints
    core_model: Ints
    usd: Floats
    mw: Floats

    @property
    def key(self) -> dict[str, Any]:
        """Columns of the key of a template."""
        names = "rails", "width", "spine_up", "spine_bundle", "core_boxes", "spine_model", "core_model"
        return {name: getattr(self, name) for name in names} | {"leaf_up": self.up, "leaf_bundle": self.bundle}


def may_share_a_pod(s: SiteMode, domain: int) -> bool:
    """Return whether spines have ports for all leaf domains of a size, and pins allow two or three tiers."""
    most = max(x.ports for x in s.upper_models)
    return s.pins.get("tiers", 2) in (2, 3) and s.domains(domain) <= most


def tops_over(s: SiteMode, domain: int, max_up: int) -> Tops:
    """Return for every number of uplinks the cheapest spines and cores whose pods hold all domains, of any models.

    Where power counts, those of least power are returned too, and with `s.whole` all undominated ones between the two.
    """
    tops = Tops.joined([part for x in s.with_models() for part in _tops_of_models(x, domain, max_up)])
    tops = tops.part(np.flatnonzero(np.isfinite(tops.usd)))
    if s.power_counts and s.whole:
        return tops.part(np.sort(pareto_front(np.stack([tops.up, -tops.up, tops.usd, tops.mw], axis=1))))
    orders = [(tops.mw, tops.usd, tops.up), (tops.usd, tops.mw, tops.up)][: 1 + s.power_counts]
    # The first entry of each number of uplinks, by which the orders are sorted first.
    firsts = [order[np.diff(tops.up[order], prepend=-1) != 0] for order in map(np.lexsort, orders)]
    return tops.part(np.unique(np.concatenate(firsts)))


def _tops_of_models(s: SiteMode, domain: int, max_up: int) -> Iterator[Tops]:
    """Yield the spines and cores of one pair of models; two tiers, which have no cores, with the first core alone."""
    domains = s.domains(domain)
    if s.core == s.pairs[0][1]:
        yield _two_tiers(s, domain, max_up)
    if _three_tiers_allowed(s):
        above = {"tiers", "spine_up_ports", "core_down_ports", "spine_bundle", "core_switch"}
        one_pod = bool(s.wan_ports or above & set(s.pins)) and s.pins.get("min_pods", 1) < 2
        sizes = rail_sizes(s) if domains in width_sizes(s, domains) else []
        shapes = [(x, domains) for x in sizes if (x < s.mode.rails or one_pod) and x * domains < s.spine_ports]
        if shapes:
            _, w = wirings(s, domain, np.array(shapes), max_up)
            gone = np.ceil(s.exchange_ports * (1 - TOLERANCE) * w.rails / w.spines).astype(np.int64)
            w = replace(w, low=np.maximum(w.low, gone))
            for tops, _ in _three_tiers(s, domain, w.part(w.low <= w.high), cheapest=True):
                yield tops


def _three_tiers_allowed(s: SiteMode) -> bool:
    return s.network.max_tiers >= 3 and s.pins.get("tiers", 3) == 3 and "core_up_ports" not in s.pins


def _two_tiers(s: SiteMode, domain: int, max_up: int) -> Tops:
    m, domains = s.mode, s.domains(domain)
    _, w = wirings(s, domain, np.array([[m.rails, domains]]), max_up, room=0)
    shut = s.network.max_tiers < 2 or s.pins.get("tiers", 2) != 2 or s.pins.get("rails_per_pod", m.rails) != m.rails
    shut |= s.pins.get("leaf_domains_per_pod", domains) != domains
    shut |= bool({"spine_up_ports", "spine_bundle", "core_down_ports", "core_up_ports", "core_switch"} & set(s.pins))
    w = w.part((w.bundle * m.rails * domains + -(-s.wan_ports // w.spines) <= s.spine_ports) & (not shut))
    none = np.zeros_like(w.up)
    prices = w.up * s.prices.leaf_uplink(domain, domains) + m.networks * w.spines * s.box_prices[0]
    return Tops(w.rails, w.width, w.up, w.bundle, none, none, none, none + s.spine, none, *prices)


def _three_tiers(s: SiteMode, domain: int, w: Wirings, *, cheapest: bool) -> Iterator[tuple[Tops, Ints]]:
    """Yield wirings with uplinks of their spines and cores, and the row of each: the cheapest ones, or all.

    Fewer uplinks of spines never take more cores, so the fewest that pins allow are the cheapest.
    """
    pods = s.pods(domain, w.rails, w.width)
    leaf = np.broadcast_to(s.prices.leaf_uplink(domain, w.width), (2, len(pods)))
    spine = np.broadcast_to(s.prices.spine_uplink(domain * w.width, w.rails), (2, len(pods)))
    (spine_box, core_box), split = s.box_prices, "spine_bundle" not in s.pins
    for b in spine_bundles(s):
        if not cheapest or "core_down_ports" in s.pins:
            row, more = members(w.high - w.low + 1)
            up = w.low[row] + more
        else:
            # They must make enough positions, each of which may be a core, for the ports that the WAN gateway needs.
            needed = -(-s.wan_ports // np.maximum(1, s.core_ports - pods * b))
            row, up = np.arange(len(pods)), np.maximum(-(-w.low // b), -(-needed // w.spines)) * b
        boxes = core_boxes(s, pods[row], w.spines[row], up, b)
        at = np.flatnonzero((up <= w.high[row]) & (boxes < NONE))
        if cheapest:
            at = at[np.diff(row[at], prepend=-1) != 0]
        row, up, boxes = row[at], up[at], boxes[at]
        x, links = w.part(row), w.spines[row] * up
        usd_mw = s.mode.networks * (pods[row] * x.spines * spine_box + boxes * core_box) + links * spine[:, row]
        bundle, shared = own_boxes(x.spines, up, b, boxes, split=split)
        models = (np.full_like(up, value) for value in (s.spine, s.core))
        yield Tops(x.rails, x.width, x.up, x.bundle, up, bundle, shared, *models, *(x.up * leaf[:, row] + usd_mw)), row


def with_all_domains(s: SiteMode, tops: dict[int, Tops], every: LoadsOfLeaves) -> list[DesignTable]:
    """Return the templates of leaf domains whose pods hold all domains, under each number of stripes.

    They are those that may beat what was found so far.
    """
    if not tops:
        return []
    domain, x = np.repeat(list(tops), [len(top.up) for top in tops.values()]), Tops.joined(list(tops.values()))
    usd, mw = s.fixed(domain) + np.stack([x.usd, x.mw])
    i, stripes, load = under_stripes(domain, every)
    send, allreduce, fits = s.leaf_crossing(domain[i], x.up[i], load)
    k = np.flatnonzero(fits & s.worthwhile(send, allreduce, BELOW * usd[i], BELOW * mw[i]))
    i, names = i[k], {"domain": domain[i[k]], "width": s.domains(domain[i[k]]), "stripes": stripes[k]}
    return [s.table(send[k], allreduce[k], usd[i], mw[i], **(x.part(i).key | names))]


@cache
def part_sizes(items: int) -> Ints:
    """Return the sizes ceil(items / parts), once each: no smaller size makes as few parts."""
    return np.unique(-(-items // np.arange(1, items + 1, dtype=np.int64)))


MOST_WAYS = 1 << 16  # of leaves and spine uplinks, priced at a time


def with_some_domains(s: SiteMode, domains: list[int], every: LoadsOfLeaves) -> Iterator[list[DesignTable]]:
    """Yield the templates of leaf domains with pods of some domains that may beat those found so far."""
    several = [domain for domain in domains if s.domains(domain) > 1]
    if s.mode.grouped or not several or not _three_tiers_allowed(s):
        return
    for domain, up in s.worthwhile_uplinks(several, every, switches=1, crossings=1).items():
        first = s.loads.first_runs(every[domain].stripes, domain, s.domains(domain))
        yield [x for each in s.with_models() for x in _pods_of_models(each, domain, up, every[domain], first)]


def _pods_of_models(s: SiteMode, domain: int, up: Ints, leaves: LeafLoads, first: Floats) -> list[DesignTable]:
    """Return the templates whose spines and cores are of one pair of models.

    The traffic that leaves pods is counted only where that of the first pod does not rule the templates out. `first`:
    loads of the first pods, by stripes and domains of a pod.
    """
    parts, fixed = list[DesignTable](), s.fixed(domain)
    shapes, of_case, up, most = _promising(s, domain, up, leaves, first)
    if not len(up):
        return []
    case = np.full((len(shapes), int(up.max()) + 1), -1, dtype=np.int64)
    case[of_case, up] = np.arange(len(up))
    row, w = wirings(s, domain, shapes, int(up.max()))
    cases = case[row, w.up]
    cases, w = cases[cases >= 0], w.part(cases >= 0)
    w = replace(w, high=np.minimum(w.high, most.max(axis=0, initial=0.0)[cases] // w.spines).astype(np.int64))
    cases, w = cases[w.low <= w.high], w.part(w.low <= w.high)
    chunk = np.cumsum(w.high - w.low + 1) // MOST_WAYS
    for k in np.unique(chunk).tolist():
        s.tick()
        some, of_chunk = w.part(chunk == k), cases[chunk == k]
        for tops, at in _three_tiers(s, domain, some, cheapest=s.loads.nothing and not s.power_counts):
            prices = fixed + np.stack([tops.usd, tops.mw])
            links = tops.spine_up * (tops.up // tops.bundle)
            n, i = np.nonzero((links <= most[:, of_chunk[at]]) & s.worthwhile(1.0, 1.0, *prices))
            found = leaves.loads[n], first[n, tops.width[i]]
            for exact in (False, True):
                x = tops.part(i)
                if exact and not s.loads.nothing:
                    found = found[0], _exact(s, leaves.stripes[n], domain * x.width)
                send, allreduce, fits = tree_crossing(s, domain, x, x.spine_up, *found)
                kept = fits & s.worthwhile(send, allreduce, *prices[:, i])
                if not exact:
                    n, i, found = n[kept], i[kept], (found[0][kept], found[1][kept])
            n, i, x = n[kept], i[kept], x.part(kept)
            names = x.key | {"domain": domain, "stripes": leaves.stripes[n]}
            parts.append(s.table(send[kept], allreduce[kept], *prices[:, i], **names))
    return [x for x in parts if len(x)]


def _exact(s: SiteMode, stripes: Ints, sizes: Ints) -> Floats:
    """Return the loads that leave runs of some racks, each under its number of stripes."""
    found = np.empty((len(sizes), 4))
    for n in np.unique(stripes).tolist():
        found[stripes == n] = s.loads.at(n, sizes[stripes == n])
    return found


def _shapes(s: SiteMode, domain: int) -> Ints:
    """List rails and domains of the pods that hold some domains and that a spine has ports for."""
    domains = s.domains(domain)
    widths = width_sizes(s, domains, all_sizes=s.prices.places is not None or not s.loads.nothing)
    rails, width = (x.ravel() for x in np.meshgrid(rail_sizes(s), widths, indexing="ij"))
    fits = (width < domains) & (s.pods(domain, rails, width) <= s.core_ports) & (rails * width < s.spine_ports)
    return np.asarray(np.stack([rails, width], axis=1)[fits], dtype=np.int64)


@lru_cache(maxsize=16)
def _largest_bundles(ports: int) -> Ints:
    """Return the largest bundle of every number of uplinks (columns) that is not above the row's number."""
    table = np.ones((ports + 1, ports + 1), dtype=np.int64)
    for b in range(2, ports + 1):
        table[b] = table[b - 1]
        table[b, b::b] = b
    return table


def _promising(s: SiteMode, domain: int, up: Ints, leaves: LeafLoads, first: Floats) -> tuple[Ints, Ints, Ints, Floats]:
    """Return shapes of pods of some domains, cases of a shape (its row) and uplinks of a leaf, and their most links.

    The cases are those that may beat the known templates. One costs at least the fewest spines that ports allow, with
    one uplink each and its ports of cores, or the uplinks and cores that the core share needs. It is as slow as its
    leaves at least, so that it must cost less than the templates no slower than these, and as the first pod with the
    most uplinks that leave it cheaper: links out of a pod by stripes (rows), zero where the case is not worthwhile.
    """
    m, n, ports, (spine_box, core_box) = s.mode, s.network, s.spine_ports, (x[..., None] for x in s.box_prices)
    shapes = _shapes(s, domain)
    rails, width = shapes.T[..., None]  # a row each; uplinks are columns
    pods, leaf_count = s.pods(domain, rails, width), rails * width
    spines = up // _largest_bundles(s.ports)[np.minimum((ports - 1) // leaf_count, s.ports), up]
    floor = np.where(pods > 1, s.core_share(domain * m.rail_gpus * leaf_count), 0)
    ratio = np.where(pods > 1, n.tier_ratios[1], math.inf)  # of ports down of a spine to one up
    links = np.maximum(np.maximum(floor, np.ceil(leaf_count / ratio * up * (1 - TOLERANCE))), spines)
    needed = np.maximum(spines, -(-(leaf_count * up + links) // ports))
    cores = np.maximum(1, -(-pods * links // s.core_ports))
    of_shape = s.prices.leaf_uplink(domain, shapes[:, 1]), s.prices.spine_uplink(domain * shapes[:, 1], shapes[:, 0])
    leaf, spine = (np.broadcast_to(x, (2, len(shapes)))[..., None] for x in of_shape)
    base, position = s.fixed(domain)[..., None] + up * leaf, m.networks * pods * spine_box
    prices = base + needed * position + links * spine + m.networks * cores * core_box
    caps = s.caps(*s.leaf_crossing(domain, up, leaves.loads[leaves.best][:, None])[:2]).max(axis=0)
    may = s.worthwhile(1.0, 1.0, *prices) if s.power_counts else (prices[0] <= caps) & np.isfinite(prices[0])
    row, at = np.nonzero(may)
    if not len(row):
        return shapes, row, at, np.empty((len(leaves.stripes), 0))
    prices, base, spines, up = prices[:, row, at], base[0, row, at], spines[row, at], up[at]
    rails, width, pods, leaf_count, each, spine = (
        x[row, 0] for x in (rails, width, pods, leaf_count, position[0], spine[0])
    )
    send, allreduce, _ = s.leaf_crossing(domain, up, leaves.loads[:, None])
    link = np.maximum(1e-6, spine + m.networks * pods * core_box[0, 0, 0] / s.core_ports)
    left = s.caps(send, allreduce) - base
    # The links take ports of `spines` spines or more.
    by_ports = (left - each * leaf_count * up / ports) / (link + each / ports)
    by_price = np.minimum((left - each * spines) / link, by_ports) * (1 + 1e-9)
    most = np.maximum(1.0, np.minimum(up * (ports - leaf_count), by_price))
    sent = m.rail_gpus * rails / (most * m.split)
    send = np.maximum(send, first[:, width, FLOWS] * sent)
    allreduce = np.maximum(allreduce, first[:, width, ALLREDUCES] * sent)
    worth = s.worthwhile(send, allreduce, *prices)
    kept = np.flatnonzero(worth.any(axis=0))
    used, row = np.unique(row[kept], return_inverse=True)
    return shapes[used], row, up[kept], np.where(worth, most, 0.0)[:, kept]


def tree_crossing(
    s: SiteMode, domain: int, x: Any, spine_up: Ints, leaf: Floats, pod: Floats
) -> tuple[Floats, Floats, Flags]:
    """Return the slowdowns of what leaves leaves and pods, and whether their links carry the exchanges.

    `x` has rails and domains of pods, and uplinks and bundles of leaves.
    """
    over = domain * s.mode.rail_gpus / (x.up * s.mode.split)
    over, links = over * (x.rails * x.width * x.bundle / spine_up), x.up // x.bundle * spine_up
    own, of_pod = s.leaf_crossing(domain, x.up, leaf), s.crossing(pod, domain * x.width, over, links, x.rails)
    return np.maximum(own[0], of_pod[0]), np.maximum(own[1], of_pod[1]), own[2] & of_pod[2]
