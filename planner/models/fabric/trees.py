"""Trees of one to three tiers: bundles of leaves, pods, spines and cores; templates whose pods hold every domain."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from planner.models.fabric.bundles import core_bundles, part_sizes
from planner.models.fabric.design_table import Floats, Ints, Options
from planner.models.fabric.modes import TOLERANCE
from planner.models.fabric.site_mode import BELOW, Site

NONE = 1 << 40  # cores where there is no way to wire them: above any count


@lru_cache(maxsize=256)
def bundles(ports: int, most: int | None = None) -> tuple[Ints, Ints]:
    """Return every number of uplinks below so many ports with each of its divisors, up to a largest bundle."""
    up, each = np.arange(1, ports), np.arange(1, ports if most is None else min(ports, most + 1))
    row, column = np.nonzero(up[:, None] % each == 0)
    return up[row], each[column]


@lru_cache(maxsize=4096)
def cores_over(ports: int, core_ports: int, pods: int, wan_ports: int, core_down: int) -> tuple[Ints, Ints]:
    """Return by uplinks of a spine its bundle to a core and the cores of one spine position; `NONE` where none do.

    `ports` are those of a spine. The largest bundle that divides the uplinks and fits a core, which leaves the WAN
    gateway its ports; or the bundle of pinned ports down.
    """
    up = np.arange(ports + 1, dtype=np.int64)
    if core_down:
        own = core_down // pods if core_down % pods == 0 and core_down <= core_ports else 0
        bundle = np.full(ports + 1, own, dtype=np.int64)
    elif pods > core_ports:
        bundle = np.zeros(ports + 1, dtype=np.int64)
    else:
        bundle = core_bundles(ports, pods, wan_ports, core_ports)
    cores = up // np.maximum(bundle, 1)
    fits = (bundle > 0) & (up > 0) & (cores * bundle == up) & (cores * core_ports >= pods * up + wan_ports)
    fits &= pods * bundle <= core_ports
    return bundle, np.where(fits, cores, NONE)


def least_between(cost: Floats, row: Ints, low: Ints, high: Ints) -> Ints:
    """Return the place of the least cost of a row from `low` to `high`, for many ranges at once; low <= high."""
    start = int(low[0])
    if (low == start).all():  # the running minimum serves all ends
        least = np.minimum.accumulate(cost[:, start:], axis=1)
        lower = np.pad(least[:, 1:] < least[:, :-1], ((0, 0), (1, 0)))
        first: Ints = np.maximum.accumulate(np.where(lower, np.arange(least.shape[1]), 0), axis=1)[row, high - start]
        return start + first
    places = np.broadcast_to(np.arange(cost.shape[1]), cost.shape)
    table = [places]
    while 2 ** len(table) <= cost.shape[1]:
        half, last = 2 ** (len(table) - 1), table[-1]
        a, b = last[:, :-half], last[:, half:]
        better = np.take_along_axis(cost, b, axis=1) < np.take_along_axis(cost, a, axis=1)
        table.append(np.where(better, b, a))
    found = np.empty(len(low), dtype=np.int64)
    level = np.log2(high - low + 1).astype(np.int64)
    for k in np.unique(level).tolist():
        at = level == k
        a, b = table[k][row[at], low[at]], table[k][row[at], high[at] - 2**k + 1]
        found[at] = np.where(cost[row[at], b] < cost[row[at], a], b, a)
    return found


def rail_sizes(s: Site, pin: str = "spine_down_ports") -> list[int]:
    """List the rails of a pod: for each count of pods the fewest; every divisor where the ports down are pinned."""
    return _sizes(s.mode.rails, s.pins.get(pin), s.pins.get("rails_per_pod"))


def width_sizes(s: Site, domains: int, *, all_sizes: bool = False) -> list[int]:
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
class Wirings:
    """Ways to join leaves to the spines of pods of one shape: uplinks, bundle, and the range of a spine's uplinks."""

    up: Ints
    bundle: Ints
    low: Ints
    high: Ints

    @property
    def spines(self) -> Ints:
        """Spines of a pod."""
        return self.up // self.bundle

    def part(self, which: Ints) -> "Wirings":
        """Return some of the ways."""
        return Wirings(self.up[which], self.bundle[which], self.low[which], self.high[which])


def wirings(s: Site, domain: int, rails: int, width: int, max_up: int, *, room: int = 1) -> Wirings:
    """Return the ways that ports and pins allow, uplinks of leaves and spines at least what the core share asks for.

    And spines of a pod at least those that survive the loss of one, where the network asks for that.
    `room`: ports that a spine keeps for uplinks at the least.
    """
    up, bundle = bundles(s.ports, (s.spine_ports - room) // (rails * width))
    down = bundle * rails * width
    keep = (up >= s.leaf_share(domain)) & (up <= max_up)
    keep &= up // bundle >= s.network.asked_spines
    for name, value in (("leaf_up_ports", up), ("leaf_bundle", bundle), ("spine_down_ports", down)):
        if name in s.pins:
            keep &= value == s.pins[name]
    up, bundle, down = up[keep], bundle[keep], down[keep]
    pods = -(-s.mode.rails // rails) * -(-s.domains(domain) // width)
    ends = domain * s.mode.rail_gpus * rails * width
    floor = ends * s.network.asked_core_share / s.mode.split * (1 - TOLERANCE) if pods > 1 else 0.0
    by_tier = np.ceil(down / s.network.tier_ratios[1] * (1 - TOLERANCE)) if pods > 1 else 0.0
    low = np.maximum(1, np.maximum(by_tier, np.ceil(np.ceil(floor) / (up // bundle)))).astype(np.int64)
    high = s.spine_ports - down
    if "spine_up_ports" in s.pins:
        low, high = np.maximum(low, s.pins["spine_up_ports"]), np.minimum(high, s.pins["spine_up_ports"])
    found = Wirings(up, bundle, low, high)
    return found.part(np.flatnonzero(low <= high)) if room else found


def core_groups(s: Site, pods: int, spines: int) -> tuple[Ints, Ints]:
    """Return bundles and cores of one of so many spine positions, by the uplinks of a spine."""
    ports, wan, down = s.core_ports, -(-s.wan_ports // spines), s.pins.get("core_down_ports", 0)
    bundle, cores = cores_over(s.spine_ports, ports, pods, wan, down)
    if "spine_bundle" in s.pins:
        own = s.pins["spine_bundle"]
        up = np.arange(s.spine_ports + 1)
        fits = (up % own == 0) & (up > 0) & (pods * own <= ports)
        fits &= (up // own) * ports >= pods * up + wan
        fits &= s.pins.get("core_down_ports", pods * own) == pods * own
        return np.full_like(up, own), np.where(fits, up // own, NONE)
    return bundle, cores


def single(s: Site) -> Options:
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
class Tops:
    """Spines and cores over leaf domains that share a pod, by the uplinks of a leaf: one or two entries each.

    Price and power are of all above the leaves, their uplinks included.
    """

    up: Ints
    bundle: Ints
    rails: Ints
    spine_up: Ints
    spine_bundle: Ints
    spine_model: Ints
    core_model: Ints
    usd: Floats
    mw: Floats

    def part(self, which: Ints) -> "Tops":
        """Return some of the entries."""
        return Tops(*(getattr(self, name)[which] for name in self.__slots__))


def tops_over(s: Site, domain: int, domains: int, max_up: int) -> Tops:
    """Return for every number of uplinks the cheapest spines and cores whose pods hold all domains, of any models.

    And the most frugal ones where power counts, with all undominated ones between where the whole table is asked for.
    """
    parts = [part for x in s.with_models() for part in _tops_of_models(x, domain, domains, max_up)]
    tops = Tops(*(np.concatenate([getattr(t, name) for t in parts]) for name in Tops.__slots__))
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
    return tops.part(np.unique(np.concatenate([_firsts(tops.up, order) for order in orders])))


def _tops_of_models(s: Site, domain: int, domains: int, max_up: int) -> list[Tops]:
    """Return the spines and cores of one pair of models; two tiers, which have no cores, with the first core alone."""
    parts, rails = [_two_tiers(s, domain, domains, max_up)] if s.core == s.pairs[0][1] else [], s.mode.rails
    if s.network.max_tiers >= 3 and s.pins.get("tiers", 3) == 3 and "core_up_ports" not in s.pins:
        above = {"tiers", "spine_up_ports", "core_down_ports", "spine_bundle", "core_switch"}
        one_pod = bool(s.wan_ports or above & set(s.pins))
        sizes = rail_sizes(s) if domains in width_sizes(s, domains) else []
        sizes = [x for x in sizes if (x < rails or one_pod) and x * domains < s.spine_ports]
        parts += _three_tiers(s, domain, sizes, domains, max_up) if sizes else []
    return parts


def _two_tiers(s: Site, domain: int, domains: int, max_up: int) -> Tops:
    m, p = s.mode, s.prices
    w = wirings(s, domain, m.rails, domains, max_up, room=0)
    shut = s.network.max_tiers < 2 or s.pins.get("tiers", 2) != 2 or s.pins.get("rails_per_pod", m.rails) != m.rails
    shut |= s.pins.get("leaf_domains_per_pod", domains) != domains
    shut |= bool({"spine_up_ports", "spine_bundle", "core_down_ports", "core_up_ports", "core_switch"} & set(s.pins))
    fits = (w.bundle * m.rails * domains + -(-s.wan_ports // w.spines) <= s.spine_ports) & (not shut)
    w = w.part(np.flatnonzero(fits))
    none = np.zeros_like(w.up)
    links, spines = p.leaf_uplink(domain, domains), m.networks * w.spines
    usd, mw = (w.up * links[i] + spines * s.box_prices[0][i] for i in (0, 1))
    return Tops(w.up, w.bundle, np.full_like(w.up, m.rails), none, none, none + s.spine, none, usd, mw)


def _three_tiers(s: Site, domain: int, sizes: list[int], domains: int, max_up: int) -> list[Tops]:
    """Return the ways of pods of all domains and some rails: each with the cheapest uplinks of its spines."""
    m, p, leaf = s.mode, s.prices, s.prices.leaf_uplink(domain, domains)
    each = [wirings(s, domain, x, domains, max_up) for x in sizes]
    rails = np.repeat(sizes, [len(w.up) for w in each])
    w = Wirings(*(np.concatenate([getattr(x, name) for x in each]) for name in Wirings.__slots__))
    gone = np.ceil(s.exchange_ports * (1 - TOLERANCE) * rails / w.spines).astype(np.int64)
    w = Wirings(w.up, w.bundle, np.maximum(w.low, gone), w.high)
    fits = np.flatnonzero(w.low <= w.high)
    w, rails = w.part(fits), rails[fits]
    if not len(w.up):
        return []
    # Spine positions differ in what the WAN gateway takes of a core, so that many numbers of spines are alike.
    taken = -(-s.wan_ports // w.spines)
    _, first, row = np.unique(rails * (s.wan_ports + 1) + taken, return_index=True, return_inverse=True)
    pods, spines = -(-m.rails // rails[first]), w.spines[first]
    kinds = [core_groups(s, *kind) for kind in zip(pods.tolist(), spines.tolist(), strict=True)]
    bundle, cores = (np.stack([kind[i] for kind in kinds]) for i in (0, 1))
    links = np.array([p.spine_uplink(domain * domains, x) for x in rails[first].tolist()])
    row, v, parts = row.ravel(), np.arange(s.spine_ports + 1), []
    group = group_prices(s, pods[:, None], cores, (links[:, :1], links[:, 1:]), v)
    chosen = [(w, rails, row, least_between(least, row, w.low, w.high)) for least in group[: 1 + s.power_counts]]
    if s.whole and s.power_counts:
        at, best = _fewest_cores(w, row, cores)
        chosen = [(w.part(at), rails[at], row[at], best)]
    for w, rails, row, best in chosen:
        usd, mw = (np.asarray(w.up * leaf[i] + w.spines * group[i][row, best], dtype=np.float64) for i in (0, 1))
        spine, core = (np.full_like(w.up, value) for value in (s.spine, s.core))
        parts.append(Tops(w.up, w.bundle, rails, best, bundle[row, best], spine, core, usd, mw))
    return parts


def group_prices(s: Site, pods: Ints | int, cores: Ints, up_link: Sequence[Floats | float], up: Ints) -> list[Floats]:
    """Return price and power of a spine position by the uplinks of a spine: its spines, cores, and links up."""
    n, (spine, core) = s.mode.networks, s.box_prices
    return [np.where(cores < NONE, n * (pods * spine[i] + cores * core[i]) + up * up_link[i], np.inf) for i in (0, 1)]


def _fewest_cores(w: Wirings, row: Ints, cores: Ints) -> tuple[Ints, Ints]:
    """Return ways with each number of a spine's uplinks at which fewer take more cores; rows of `cores` are kinds."""
    each, which = np.unique(np.stack([row, w.low]), axis=1, return_inverse=True)
    ways, ups = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for i, (kind, low) in enumerate(each.T.tolist()):
        own = cores[kind, low:]
        fewer = np.append(True, own[1:] < np.minimum.accumulate(own)[:-1]) & (own < NONE)
        up, at = low + np.flatnonzero(fewer), np.flatnonzero(which.ravel() == i)
        k, j = np.nonzero(up <= w.high[at, None])
        ways.append(at[k])
        ups.append(up[j])
    return np.concatenate(ways), np.concatenate(ups)


def _undominated(tops: Tops) -> Ints:
    """Return the entries that no other entry of equal uplinks matches in price and power."""
    order, kept = np.lexsort((tops.mw, tops.usd, tops.up)), []
    for some in np.split(order, np.flatnonzero(np.diff(tops.up[order])) + 1):
        least = np.minimum.accumulate(tops.mw[some])
        kept.append(some[np.append(True, least[1:] < least[:-1])[: len(some)]])
    return np.sort(np.concatenate(kept))


def _firsts(up: Ints, order: Ints) -> Ints:
    """Return the first entry of each number of uplinks in an order that is sorted by them."""
    if not len(order):
        return order
    values = up[order]
    return np.asarray(order[np.append(True, values[1:] != values[:-1])])


def with_all_domains(s: Site, domain: int, tops: Tops, stripes: list[int], loads: Floats) -> Options:
    """Return the templates of a leaf domain whose pods hold all of them that may beat those found so far.

    Under each number of stripes and its loads.
    """
    usd, mw = (s.fixed(domain)[i] + x for i, x in enumerate((tops.usd, tops.mw)))
    send, allreduce = s.leaf_slowdowns(domain, tops.up, loads[:, None])
    worth = s.worthwhile(send, allreduce, BELOW * usd, BELOW * mw)
    n, i = np.nonzero(worth & s.leaf_fits(tops.up, loads[:, None]))
    names = {"leaf_up": tops.up[i], "leaf_bundle": tops.bundle[i], "rails": tops.rails[i]}
    names |= {"spine_up": tops.spine_up[i], "spine_bundle": tops.spine_bundle[i]}
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
