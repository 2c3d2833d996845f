"""Trees of one to three tiers: bundles of leaves, pods, spines and cores, over pods of all leaf domains, and of some.

Of pods of some domains what leaves a pod is counted as what leaves a leaf.
"""

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np

from planner.models.fabric.design_table import AT, ArrayTable, DesignTable, Flags, Floats, Ints, joined
from planner.models.fabric.site_mode import BELOW, TOLERANCE, Price, SiteMode, over
from planner.models.fabric.traffic import ALLREDUCES, FLOWS, SHARES

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


def rail_sizes(s: SiteMode, pin: str = "spine_down_ports") -> list[int]:
    """List the rails of a pod: for each count of pods the fewest; every divisor where the ports down are pinned."""
    return _sizes(s.mode.rails, s.pins.get(pin), s.pins.get("rails_per_pod"))


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
    return [int(v) for v in part_sizes(items, items)]


@dataclass(frozen=True, slots=True)
class Wirings(ArrayTable):
    """Ways to join leaves to the spines of pods of one shape: uplinks, bundle, and the range of a spine's uplinks."""

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
        if name in s.pins:
            keep &= value == s.pins[name]
    row, at = np.nonzero(bundle[keep] <= most[:, None])
    up, bundle, down = up[keep][at], bundle[keep][at], bundle[keep][at] * leaves[row]
    if "spine_down_ports" in s.pins:
        kept = down == s.pins["spine_down_ports"]
        row, up, bundle, down = row[kept], up[kept], bundle[kept], down[kept]
    several = (-(-s.mode.rails // shapes[:, 0]) * -(-s.domains(domain) // shapes[:, 1]) > 1)[row]
    ends = domain * s.mode.rail_gpus * leaves[row] * several
    floor = ends * n.asked_core_share / s.mode.split * (1 - TOLERANCE)
    by_tier = np.ceil(down * several / n.tier_ratios[1] * (1 - TOLERANCE))
    low = np.maximum(1, np.maximum(by_tier, np.ceil(np.ceil(floor) / (up // bundle)))).astype(np.int64)
    high = s.spine_ports - down
    if "spine_up_ports" in s.pins:
        low, high = np.maximum(low, s.pins["spine_up_ports"]), np.minimum(high, s.pins["spine_up_ports"])
    kept = np.flatnonzero(low <= high) if room else np.arange(len(row))
    return row[kept], Wirings(up, bundle, low, high).part(kept)


def single(s: SiteMode) -> DesignTable:
    """Return the template of a single switch in each network, where it takes every GPU."""
    m, racks = s.mode, s.racks
    ends = racks * m.rails * m.rail_gpus
    taken = -(-(ends + m.spare(s.network, ends)) // m.split)
    pins = s.pins
    alike = all(
        pins.get(name, value) == value
        for name, value in (("tiers", 1), ("leaf_domain_racks", racks), ("leaf_down_ports", ends))
    )
    above = {"leaf_up_ports", "spine_down_ports", "spine_up_ports", "core_down_ports", "core_up_ports"}
    above |= {"leaf_bundle", "spine_bundle", "rails_per_pod", "leaf_domains_per_pod", "spine_switch", "core_switch"}
    p = s.prices
    usd, mw = (p.endpoints(racks)[i] + m.networks * p.switch[i] + s.tree_wan[i] for i in (0, 1))
    alike &= racks in pins.get("leaf_sizes", (racks,))
    if taken + s.wan_ports > s.ports or not alike or above & set(pins):
        return s.table(np.ones(0), np.ones(0), np.ones(0), np.ones(0))
    one, n = np.ones(1), next(iter(s.stripes), 1)
    return s.table(one, one, usd * one, mw * one, domain=racks, stripes=n)


@dataclass(frozen=True, slots=True)
class Tops(ArrayTable):
    """Spines and cores over leaf domains that share a pod, by the uplinks of a leaf: one or two entries each.

    Price and power are of all above the leaves, their uplinks included.
    """

    up: Ints
    bundle: Ints
    rails: Ints
    spine_up: Ints
    spine_bundle: Ints
    core_boxes: Ints
    spine_model: Ints
    core_model: Ints
    usd: Floats
    mw: Floats


_NONE: Any = np.empty(0, dtype=np.int64)
NO_TOPS = Tops(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, np.empty(0), np.empty(0))


def may_share_a_pod(s: SiteMode, domain: int) -> bool:
    """Return whether spines have ports for all leaf domains of a size, and pins allow two or three tiers."""
    most = max(x.ports for x in s.upper_models)
    return s.pins.get("tiers", 2) in (2, 3) and s.domains(domain) <= most


def tops_over(s: SiteMode, domain: int, domains: int, max_up: int) -> Tops:
    """Return for every number of uplinks the cheapest spines and cores whose pods hold all domains, of any models.

    Where power counts, those of least power are returned too, and with `s.whole` all undominated ones between the two.
    """
    parts = [part for x in s.with_models() for part in _tops_of_models(x, domain, domains, max_up)]
    tops = Tops.joined(parts)
    tops = tops.part(np.flatnonzero(np.isfinite(tops.usd)))
    if s.whole and s.power_counts:
        return tops.part(_undominated(tops))
    least = np.full((2, s.ports + 1), np.inf)
    np.minimum.at(least[0], tops.up, tops.usd)
    np.minimum.at(least[1], tops.up, tops.mw)
    cheapest, frugal = tops.usd <= least[0][tops.up], tops.mw <= least[1][tops.up]
    tops = tops.part(np.flatnonzero(cheapest | frugal if s.power_counts else cheapest))
    orders = [np.lexsort((tops.mw, tops.usd, tops.up))]
    orders += [np.lexsort((tops.usd, tops.mw, tops.up))] if s.power_counts else []
    # The first entry of each number of uplinks, by which the orders are sorted first.
    firsts = [order[np.diff(tops.up[order], prepend=-1) != 0] for order in orders]
    return tops.part(np.unique(np.concatenate(firsts)))


def _tops_of_models(s: SiteMode, domain: int, domains: int, max_up: int) -> list[Tops]:
    """Return the spines and cores of one pair of models; two tiers, which have no cores, with the first core alone."""
    parts, rails = [_two_tiers(s, domain, domains, max_up)] if s.core == s.pairs[0][1] else [], s.mode.rails
    if s.network.max_tiers >= 3 and s.pins.get("tiers", 3) == 3 and "core_up_ports" not in s.pins:
        above = {"tiers", "spine_up_ports", "core_down_ports", "spine_bundle", "core_switch"}
        one_pod = bool(s.wan_ports or above & set(s.pins)) and s.pins.get("min_pods", 1) < 2
        sizes = rail_sizes(s) if domains in width_sizes(s, domains) else []
        sizes = [x for x in sizes if (x < rails or one_pod) and x * domains < s.spine_ports]
        parts += _three_tiers(s, domain, sizes, domains, max_up) if sizes else []
    return parts


def _two_tiers(s: SiteMode, domain: int, domains: int, max_up: int) -> Tops:
    m, p = s.mode, s.prices
    _, w = wirings(s, domain, np.array([[m.rails, domains]]), max_up, room=0)
    shut = s.network.max_tiers < 2 or s.pins.get("tiers", 2) != 2 or s.pins.get("rails_per_pod", m.rails) != m.rails
    shut |= s.pins.get("leaf_domains_per_pod", domains) != domains
    shut |= bool({"spine_up_ports", "spine_bundle", "core_down_ports", "core_up_ports", "core_switch"} & set(s.pins))
    fits = (w.bundle * m.rails * domains + -(-s.wan_ports // w.spines) <= s.spine_ports) & (not shut)
    w = w.part(np.flatnonzero(fits))
    none = np.zeros_like(w.up)
    links, spines = p.leaf_uplink(domain, domains), m.networks * w.spines
    usd, mw = (w.up * links[i] + spines * s.box_prices[0][i] for i in (0, 1))
    return Tops(w.up, w.bundle, np.full_like(w.up, m.rails), none, none, none, none + s.spine, none, usd, mw)


def _three_tiers(s: SiteMode, domain: int, sizes: list[int], domains: int, max_up: int) -> list[Tops]:
    """Return the ways of pods of all domains and some rails: each with the cheapest uplinks of its spines."""
    m, p, leaf = s.mode, s.prices, s.prices.leaf_uplink(domain, domains)
    row, w = wirings(s, domain, np.array([(x, domains) for x in sizes]), max_up)
    rails = np.array(sizes)[row]
    gone = np.ceil(s.exchange_ports * (1 - TOLERANCE) * rails / w.spines).astype(np.int64)
    w = Wirings(w.up, w.bundle, np.maximum(w.low, gone), w.high)
    fits = np.flatnonzero(w.low <= w.high)
    w, rails = w.part(fits), rails[fits]
    if not len(w.up):
        return []
    pods, parts = -(-m.rails // rails), []
    links = {x: p.spine_uplink(domain * domains, x) for x in sizes}
    for b in spine_bundles(s):
        # Fewer uplinks of spines never take more cores, so the fewest that pins allow are the cheapest. They must make
        # enough positions, each of which may be a core, for the cores to have the ports that the WAN gateway needs.
        needed = -(-s.wan_ports // np.maximum(1, s.core_ports - pods * b))
        up = np.maximum(-(-w.low // b), -(-needed // w.spines)) * b
        if "core_down_ports" in s.pins:
            every = np.arange(s.spine_ports + 1)
            found = core_boxes(s, pods[:, None], w.spines[:, None], every, b) < NONE
            found &= (every >= w.low[:, None]) & (every <= w.high[:, None])
            up = np.where(found.any(axis=1), found.argmax(axis=1), s.spine_ports + 1)
        boxes = core_boxes(s, pods, w.spines, up, b)
        at = np.flatnonzero((up <= w.high) & (boxes < NONE))
        some, x, v, n = w.part(at), rails[at], up[at], boxes[at]
        link = np.array([links[k] for k in x.tolist()]).reshape(-1, 2).T
        usd, mw = (some.up * leaf[i] + top_prices(s, pods[at], some.spines, v, n, link[i], i) for i in (0, 1))
        bundle, shared = own_boxes(some.spines, v, b, n, split="spine_bundle" not in s.pins)
        spine, core = (np.full_like(v, value) for value in (s.spine, s.core))
        parts.append(Tops(some.up, some.bundle, x, v, bundle, shared, spine, core, usd, mw))
    return parts


def top_prices(
    s: SiteMode, pods: Ints | int, spines: Ints, up: Ints, boxes: Ints, link: Floats | float, which: int
) -> Floats:
    """Price the spines, their uplinks and the cores of all networks; `which`: 1 for their power."""
    spine, core = s.box_prices
    switches = pods * spines * spine[which] + np.where(boxes < NONE, boxes * core[which], np.inf)
    return np.asarray(s.mode.networks * switches + spines * up * link, dtype=np.float64)


def _undominated(tops: Tops) -> Ints:
    """Return the entries that no other entry of equal uplinks matches in price and power."""
    order, kept = np.lexsort((tops.mw, tops.usd, tops.up)), []
    for some in np.split(order, np.flatnonzero(np.diff(tops.up[order])) + 1):
        least = np.minimum.accumulate(tops.mw[some])
        kept.append(some[np.append(True, least[1:] < least[:-1])[: len(some)]])
    return np.sort(np.concatenate(kept))


def with_all_domains(s: SiteMode, domain: int, tops: Tops, stripes: list[int], loads: Floats) -> DesignTable:
    """Return the templates of a leaf domain whose pods hold all domains.

    They are those under each number of stripes and its loads that may beat what was found so far.
    """
    usd, mw = (s.fixed(domain)[i] + x for i, x in enumerate((tops.usd, tops.mw)))
    send, allreduce = s.leaf_slowdowns(domain, tops.up, loads[:, None])
    worth = s.worthwhile(send, allreduce, BELOW * usd, BELOW * mw)
    n, i = np.nonzero(worth & s.leaf_fits(tops.up, loads[:, None]))
    names = {"leaf_up": tops.up[i], "leaf_bundle": tops.bundle[i], "rails": tops.rails[i]}
    names |= {"spine_up": tops.spine_up[i], "spine_bundle": tops.spine_bundle[i]}
    names |= {"core_boxes": tops.core_boxes[i]}
    names |= {"spine_model": tops.spine_model[i], "core_model": tops.core_model[i]}
    return s.table(
        send[n, i], allreduce[n, i], usd[i], mw[i], **names,
        domain=domain, width=s.domains(domain), stripes=np.array(stripes)[n],
    )  # fmt: skip


def undominated_rows(loads: Floats) -> Ints:
    """Return the rows that no other is as good as in every column, of equal ones the first."""
    as_good = np.ones((len(loads), len(loads)), dtype=bool)  # row i as good as row j
    for column in loads.T:
        as_good &= column[:, None] <= column[None, :]
    earlier = np.arange(len(loads))[:, None] < np.arange(len(loads))[None, :]
    kept: Ints = np.flatnonzero(~(as_good & (earlier | ~as_good.T)).any(axis=0))
    return kept


@cache
def part_sizes(items: int, max_parts: int) -> Ints:
    """Return the sizes ceil(items / parts), once each: no smaller size makes as few parts."""
    parts = np.arange(1, min(items, max_parts) + 1, dtype=np.int64)
    return np.unique(-(-items // parts))


MOST_WAYS = 1 << 18  # of leaves and spine uplinks, priced at a time


@dataclass(frozen=True, slots=True)
class PodShape:
    """Shape of pods: `rails` rails of `width` leaf domains of `domain` racks; numbers, or arrays for many shapes."""

    domain: int
    rails: Any
    width: Any


def with_some_domains(
    s: SiteMode, domain: int, tops: Tops, stripes: list[int], leaf_loads: Floats
) -> list[DesignTable]:
    """Return the templates of a leaf domain with pods of some domains, of any models, that may beat those found so far.

    The traffic that leaves pods is counted only where that of the first pod does not rule the templates out.
    `leaf_loads`: loads of leaves by number of stripes.
    """
    shut = s.mode.grouped or s.network.max_tiers < 3 or s.pins.get("tiers", 3) != 3 or "core_up_ports" in s.pins
    if shut or s.domains(domain) < 2:
        return []
    up = s.worthwhile_uplinks(domain, leaf_loads[undominated_rows(leaf_loads)], switches=1, crossings=1)
    if not len(up):
        return []
    first = s.loads.first_runs(np.array(stripes), domain, s.domains(domain))
    return [y for x in s.with_models() for y in _pods_of_models(x, domain, tops, stripes, (up, leaf_loads, first))]


def _pods_of_models(
    s: SiteMode, domain: int, tops: Tops, stripes: list[int], given: tuple[Ints, Floats, Floats]
) -> list[DesignTable]:
    """Return the templates whose spines and cores are of one pair of models."""
    shapes = _shapes(s, domain)
    if not len(shapes):
        return []
    up, leaf_loads, first = given
    row, up, worth = _promising(s, domain, shapes, tops, (up, leaf_loads, first))
    wanted: list[tuple[PodShape, Ints, Ints]] = []
    for k in np.unique(row).tolist():
        s.tick()
        x = PodShape(domain, *shapes[k].tolist())
        kept = np.flatnonzero(worth[:, row == k].any(axis=1))
        loads = np.stack([leaf_loads[kept], first[kept, x.width]], axis=1)[:, None]
        may = joined(_of_shape(s, x, up[row == k], kept, loads))
        if len(may):
            wanted.append((x, np.unique(may.key[:, AT["leaf_up"]]), np.unique(may.key[:, AT["stripes"]])))
    return _counted(s, wanted, np.array(stripes))


def _shapes(s: SiteMode, domain: int) -> Ints:
    """List rails and domains of the pods that hold some domains and that a spine has ports for."""
    domains = s.domains(domain)
    widths = width_sizes(s, domains, all_sizes=s.prices.places is not None or not s.loads.nothing)
    rails, width = (x.ravel() for x in np.meshgrid(rail_sizes(s), widths, indexing="ij"))
    pods = -(-s.mode.rails // rails) * -(-domains // width)
    fits = (width < domains) & (pods <= s.core_ports) & (rails * width < s.spine_ports)
    return np.asarray(np.stack([rails, width], axis=1)[fits], dtype=np.int64)


def _counted(s: SiteMode, wanted: list[tuple[PodShape, Ints, Ints]], stripes: Ints) -> list[DesignTable]:
    """Return the templates of shapes with some uplinks of a leaf under some stripes, with the exact loads of pods."""
    sizes: dict[int, set[int]] = {}
    for x, _, kept in wanted:
        for k in kept.tolist():
            sizes.setdefault(k, {x.domain}).add(x.domain * x.width)
    for k, each in sizes.items():
        s.loads.at(int(stripes[k]), np.array(sorted(each)))
    parts: list[DesignTable] = []
    for x, ups, kept in wanted:
        both = np.array([x.domain, x.domain * x.width])
        loads = np.array([s.loads.at(int(n), both) for n in stripes[kept]])[:, None]
        parts += _of_shape(s, x, ups, stripes[kept], loads)
    return parts


def _pod_links(s: SiteMode, x: PodShape) -> tuple[Price, Price]:
    """Price one uplink of every leaf, and one of one spine of every pod."""
    return s.prices.leaf_uplink(x.domain, x.width), s.prices.spine_uplink(x.domain * x.width, x.rails)


def _pod_links_of(s: SiteMode, domain: int, shapes: Ints, pods: Ints) -> tuple[Floats, Floats]:
    """Price one uplink of every leaf, and one of one spine of every pod, for many shapes of pods; rows are shapes."""
    if s.prices.places is None:
        link = s.mode.networks * np.array(s.prices.flat_link)
        return np.tile(s.prices.leaf_uplink(domain, 1), (len(shapes), 1)), pods[:, None] * link
    leaf, spine = zip(*(_pod_links(s, PodShape(domain, *x)) for x in shapes.tolist()), strict=True)
    return np.array(leaf), np.array(spine)


@lru_cache(maxsize=16)
def _largest_bundles(ports: int) -> Ints:
    """Return the largest bundle of every number of uplinks (columns) that is not above the row's number."""
    table = np.ones((ports + 1, ports + 1), dtype=np.int64)
    for b in range(2, ports + 1):
        table[b] = table[b - 1]
        table[b, b::b] = b
    return table


def _promising(
    s: SiteMode, domain: int, shapes: Ints, tops: Tops, given: tuple[Ints, Floats, Floats]
) -> tuple[Ints, Ints, Flags]:
    """Return shapes, uplinks of a leaf and stripes with which they may beat all-domain pods and the known templates.

    A shape costs at least the fewest spines that ports allow, with one uplink each and its ports of cores, or the
    uplinks and cores that the core share needs, and it is at least as slow as the first pod with the most uplinks that
    may be worth their price.
    `given`: uplinks of a leaf, the loads of leaves, and those of first pods, by stripes.
    """
    m, (spine_box, core_box), fixed, (up, leaf_loads, first) = s.mode, s.box_prices, s.fixed(domain), given
    rails, width = shapes.T
    most_bundle = np.minimum((s.spine_ports - 1) // (rails * width), s.ports)
    spines = up // _largest_bundles(s.ports)[most_bundle][:, up]
    pods = -(-m.rails // rails) * -(-s.domains(domain) // width)
    leaf, spine = _pod_links_of(s, domain, shapes, pods)
    boxes = [m.networks * pods * spine_box[i] for i in (0, 1)]
    one_up = [spine[:, i] + m.networks * pods * core_box[i] / s.core_ports for i in (0, 1)]  # and its ports of cores
    usd, mw = (up * leaf[:, i, None] + spines * (boxes[i] + one_up[i])[:, None] for i in (0, 1))
    floor = np.ceil(domain * m.rail_gpus * rails * width * s.network.asked_core_share / m.split * (1 - 1e-9))
    ratio = np.where(pods > 1, s.network.tier_ratios[1], math.inf)  # of ports down of a spine to one up
    by_ratio = np.ceil((rails * width / ratio)[:, None] * up * (1 - 1e-9))
    links = np.maximum(np.maximum(np.where(pods > 1, floor, 0)[:, None], by_ratio), spines)
    needed = np.maximum(spines, -(-((rails * width)[:, None] * up + links) // s.spine_ports))
    cores = np.maximum(1, -(-pods[:, None] * links // s.core_ports))
    least = [
        up * leaf[:, i, None]
        + m.networks * (pods[:, None] * needed * spine_box[i] + cores * core_box[i])
        + links * spine[:, i, None]
        for i in (0, 1)
    ]
    row, at = np.nonzero(np.isfinite(usd) & _below(s, tops, np.broadcast_to(up, usd.shape), *least))
    best = leaf_loads[undominated_rows(leaf_loads)][:, None]
    bounds = [fixed[i] + least[i][row, at] for i in (0, 1)]
    worthwhile = s.worthwhile(*s.leaf_slowdowns(domain, up[at], best), *bounds)
    row, at = row[worthwhile.any(axis=0)], at[worthwhile.any(axis=0)]
    flows, allreduces = (first[:, width[row], column] for column in (FLOWS, ALLREDUCES))
    price = usd[row, at], one_up[0][row], boxes[0][row]
    most = _most_links(s, (rails * width)[row], up[at], spines[row, at], tops, price)
    usd, mw = fixed[0] + usd[row, at], fixed[1] + mw[row, at]
    send, allreduce = s.leaf_slowdowns(domain, up[at], leaf_loads[:, None])
    each = m.rail_gpus * rails[row] / (most * m.split)
    worth = s.worthwhile(np.maximum(send, flows * each), np.maximum(allreduce, allreduces * each), usd, mw)
    kept = worth.any(axis=0)
    return row[kept], up[at[kept]], worth[:, kept]


def _most_links(
    s: SiteMode, leaves: Ints, up: Ints, spines: Ints, tops: Tops, price: tuple[Floats, Floats, Floats]
) -> Floats:
    """Bound the uplinks of a pod of `leaves` leaves by the ports of the spines and by the price of the known tops.

    `price`: minimum price of the shape with `spines` spines, of one more uplink, and of one more spine position.
    """
    usd, link, position = price
    most = (up * (s.spine_ports - leaves)).astype(np.float64)
    if s.power_counts:
        return most
    least = np.full(s.ports + 1, np.inf)
    np.minimum.at(least, tops.up, tops.usd)
    left, link = np.minimum(least[up], s.max_usd) - usd, np.maximum(link, 1e-6)
    # n uplinks take (n + ports down) / ports spine positions.
    by_ports = (left + spines * (position + link) - leaves * up * position / s.spine_ports) / (
        position / s.spine_ports + link
    )
    found: Floats = np.maximum(1.0, np.minimum(most, np.minimum(spines + left / link, by_ports) * (1 + 1e-9)))
    return found


def _below(s: SiteMode, tops: Tops, up: Ints, usd: Floats, mw: Floats) -> Flags:
    """Return where no pod of all domains of as many uplinks is as cheap, and as frugal where power counts."""
    least = np.full((2, s.ports + 1), np.inf)
    np.minimum.at(least[0], tops.up, tops.usd)
    np.minimum.at(least[1], tops.up, tops.mw)
    below: Flags = usd < least[0][up]
    if not s.power_counts:
        return below
    below = below | (mw < least[1][up])  # by uplinks of a leaf from 1 on: columns
    for u in np.unique(tops.up[tops.up <= below.shape[1]]).tolist():
        top = tops.part(np.flatnonzero(tops.up == u))
        order = np.argsort(top.usd, kind="stable")
        cheaper = np.searchsorted(top.usd[order], usd[:, u - 1], side="right")
        below[:, u - 1] = np.append(np.inf, np.minimum.accumulate(top.mw[order]))[cheaper] > mw[:, u - 1]
    return below


def _of_shape(s: SiteMode, x: PodShape, up: Ints, stripes: Ints, loads: Floats) -> list[DesignTable]:
    """Return the templates of a shape with some uplinks of a leaf, under numbers of stripes with such loads."""
    _, w = wirings(s, x.domain, np.array([[x.rails, x.width]]), s.uplinks(x.domain))
    w = w.part(np.flatnonzero(np.isin(w.up, up)))
    (leaf, spine), fixed, parts = _pod_links(s, x), s.fixed(x.domain), []
    if not math.isfinite(leaf[0] + spine[0]):
        return []
    pods = int(-(-s.mode.rails // x.rails) * -(-s.domains(x.domain) // x.width))
    every = np.arange(s.spine_ports + 1)
    step = max(1, MOST_WAYS // (s.spine_ports + 1) // max(1, len(stripes)))
    for bundle, at in product(spine_bundles(s), range(0, len(w.up), step)):
        ways = w.part(np.arange(at, min(at + step, len(w.up))))
        boxes = core_boxes(s, np.array(pods), ways.spines[:, None], every, bundle)
        row, v = _useful(s, ways, top_prices(s, pods, ways.spines[:, None], every, boxes, spine[0], 0))
        some, n = ways.part(row), boxes[row, v]
        price = [fixed[i] + some.up * leaf[i] + top_prices(s, pods, some.spines, v, n, spine[i], i) for i in (0, 1)]
        cores = own_boxes(some.spines, v, bundle, n, split="spine_bundle" not in s.pins)
        parts.append(_under(s, x, some, v, cores, price, stripes, loads))
    return [p for p in parts if len(p)]


def _useful(s: SiteMode, w: Wirings, usd: Floats) -> tuple[Ints, Ints]:
    """Return ways (rows) with each number of a spine's uplinks (columns) for which no larger one is as cheap."""
    v = np.arange(s.spine_ports + 1)
    inside = (v >= w.low[:, None]) & (v <= w.high[:, None]) & np.isfinite(usd)
    if not s.power_counts:
        cost = np.where(inside, usd, np.inf)
        after = np.minimum.accumulate(cost[:, ::-1], axis=1)[:, ::-1]
        inside[:, :-1] &= cost[:, :-1] < after[:, 1:]
    row, found = np.nonzero(inside)
    return row, found


def _under(
    s: SiteMode,
    x: PodShape,
    w: Wirings,
    v: Ints,
    cores: tuple[Ints, Ints],
    price: list[Floats],
    stripes: Ints,
    loads: Floats,
) -> DesignTable:
    """Return the templates of ways with uplinks of spines, under each of some stripes, that may beat those found."""
    (usd, mw), (bundle, boxes) = price, cores
    send, allreduce = slowdowns(s, x, w.up, w.bundle, v, loads)
    fits = s.leaf_fits(w.up, loads[..., 0, :]) & s.block_fits(w.spines * v, loads[..., 1, :], np.array(x.rails))
    n, i = np.nonzero(fits & s.worthwhile(send, allreduce, usd, mw))
    return s.table(
        send[n, i], allreduce[n, i], usd[i], mw[i], domain=x.domain, leaf_up=w.up[i], leaf_bundle=w.bundle[i],
        rails=x.rails, width=x.width, spine_up=v[i], spine_bundle=bundle[i], core_boxes=boxes[i],
        stripes=stripes[n], spine_model=s.spine, core_model=s.core,
    )  # fmt: skip


def slowdowns(s: SiteMode, x: PodShape, up: Ints, bundle: Ints, spine_up: Ints, loads: Floats) -> tuple[Floats, Floats]:
    """Return the slowdowns over the transport's own that uplinks of leaves and pods cause; 1 at the least."""
    m, load = s.mode, loads[..., 1, :]
    send, allreduce = s.leaf_slowdowns(x.domain, up, loads[..., 0, :])
    links = up // bundle * spine_up
    free = (
        1 - s.exchange_ports * load[..., SHARES] * np.minimum(m.rails, x.rails) / links
        if s.exchange_ports
        else np.asarray(1.0)
    )
    leaf_over, spine_over = x.domain * m.rail_gpus / (up * m.split), x.rails * x.width * bundle / spine_up
    pod_send = load[..., FLOWS] / (x.domain * x.width) * (leaf_over * spine_over)
    pod_allreduce = load[..., ALLREDUCES] / (links * m.split / (x.rails * m.rail_gpus))
    return np.maximum(send, over(pod_send, free)), np.maximum(allreduce, over(pod_allreduce, free))
