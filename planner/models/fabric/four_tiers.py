"""Fabric trees of four tiers: pods in zones that super-spines join.

Of a spine's u2 uplinks every zone has s·u2 core positions. Each of its cores takes p of them, the same number, and has
u3 uplinks; super-spines take the positions above the cores in turn. Cores and super-spines are of one model.

There are too many of them to list at every slowdown, so each is the cheapest that keeps a target: the slowdowns of
leaves with some number of uplinks, those of sends and of allreduces each times 1, 1.5, 2 or 4 for all tiers, or any
slowdown at all.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from planner.models.fabric.design_table import ArrayTable, DesignTable, Flags, Floats, Ints, pareto_front, undominated
from planner.models.fabric.site_mode import BELOW, TOLERANCE, SiteMode, Trees, members
from planner.models.fabric.site_traffic import ALLREDUCES, EXCHANGES, FLOWS, SHARES, LeafLoads
from planner.models.fabric.trees import NONE, divisors, fewest_boxes, part_sizes, pod_sizes, spine_bundles, wirings

FACTORS = (1.0, 1.5, 2.0, 4.0, math.inf)  # of leaves' slowdowns, which all tiers keep
ROUNDING = 1e-9  # relative, of prices and slowdowns
AT_A_TIME = 1 << 16  # rows with uplinks of a spine, priced at a time
ROWS_AT_A_TIME = 256  # looked at together, those of the least price first


@dataclass(frozen=True, slots=True)
class ZoneRows(ArrayTable):
    """Shapes of pods and zones of trees of four tiers, with leaf uplinks and bundles, and the least that each costs."""

    trees: Trees  # with the fewest uplinks of a spine, and no cores yet
    high: Ints  # most uplinks of a spine
    floor: Ints  # links out of a zone that the core share asks for
    step: Floats  # dollars of an uplink more of every spine
    usd: Floats
    mw: Floats


def sizes_of_zones(s: SiteMode) -> Ints:
    """Return the leaf domain sizes of trees of four tiers: none where the network or pins do not allow four tiers."""
    return s.domain_sizes[: None if not s.mode.grouped and s.allows(4) else 0]


def with_zones(s: SiteMode, domains: Ints, leaves: LeafLoads) -> Iterator[list[DesignTable]]:
    """Yield the templates of four tiers of leaf domains that may beat those found so far, one size after another."""
    every_domain, every_up = s.worthwhile_uplinks(domains, leaves, tiers=4)
    for domain in dict.fromkeys(every_domain.tolist()):
        ups = every_up[every_domain == domain]
        rows = _rows(s, domain, ups, leaves.best_of(np.array([domain]))[2])
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
            if s.whole:
                for i in np.unique(at[worth]).tolist():
                    s.tick()
                    some = rows.part(at[worth & (at == i)])
                    _, trees = _with_tops(s, replace(some.trees, spine_up=v[worth & (at == i)]), some.floor, every=True)
                    parts.append(undominated([_table(s, trees, n)], power_counts=s.power_counts))
            elif worth.any():
                bound = np.where(worth, least, np.inf), send, allreduce
                parts += _at_targets(s, rows, at, bound, ups, n)
        yield parts


def _at_targets(
    s: SiteMode, rows: ZoneRows, at: Ints, bound: tuple[Floats, Floats, Floats], ups: Ints, n: int
) -> list[DesignTable]:
    # `bound`: the least price of rows `at` with uplinks of spines, infinite where it beats nothing, and their
    # slowdowns.
    least, send, allreduce = bound
    domain = rows.trees.domain[:1]
    slow = np.stack(s.leaf_crossing(domain, ups, s.loads.at(n, domain))[:2], axis=1).tolist()
    targets = {(a * x, b * y) for (a, b), (x, y) in itertools.product(itertools.product(FACTORS, FACTORS), slow)}
    parts = []
    for target in sorted(targets):
        s.tick()
        inside = (send <= target[0] * (1 + ROUNDING)) & (allreduce <= target[1] * (1 + ROUNDING))
        if np.isfinite(least[inside]).any():
            parts += _keeping(s, rows.part(np.unique(at[inside])), target, n)
    return parts


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
            best, found = float(every.min()), [_table(s, trees.part(np.array([every.argmin()])), n)]
    return found


def _rows(s: SiteMode, domain: int, ups: Ints, leaf_loads: Floats) -> ZoneRows:
    """Return shapes of pods and zones that ports allow and the front does not rule out, with the least cost of each."""
    widths = pod_sizes(s, s.domains(domain), "leaf_domains_per_pod", all_sizes=not s.traffic.nothing)
    both = pod_sizes(s, s.mode.rails, "rails_per_pod"), widths
    rails, width = (x.ravel() for x in np.meshgrid(*both, indexing="ij"))
    many = len(ups)
    x = Trees.of(domain=domain, rails=np.repeat(rails, many), width=np.repeat(width, many), up=np.tile(ups, len(rails)))
    row, x, high = wirings(s, x)
    shape, zoned = row // max(1, many), [np.empty((0, 3), dtype=np.int64)]
    for k in np.unique(shape).tolist():
        s.tick()
        each = -(-s.mode.rails // int(rails[k])), -(-s.domains(domain) // int(width[k]))
        zones = _zones(*each, s.pins.get("core_down_ports", 0), s.core_ports, s.min_zones) * [rails[k], width[k]]
        zoned.append(np.column_stack([np.full(len(zones), k), zones]))
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


@lru_cache(maxsize=4096)
def _zones(across: int, along: int, core_down: int, core_ports: int, min_zones: int) -> Ints:
    """List pods of a zone of four tiers, across and along: the fewest for each count; divisors of pinned ports."""
    sizes = [
        np.array([v for v in range(1, items + 1) if core_down % v == 0]) if core_down else part_sizes(items)
        for items in (across, along)
    ]
    wide, deep = (x.ravel() for x in np.meshgrid(*sizes, indexing="ij"))
    zones = -(-across // wide) * -(-along // deep)
    fits = (wide * deep < core_ports) & (zones >= min_zones) & (zones <= core_ports)
    return np.asarray(np.column_stack([wide, deep])[fits])


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
    step, v = max(1, AT_A_TIME // s.spine_ports), np.arange(1, s.spine_ports + 1)
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


def _table(s: SiteMode, x: Trees, n: int) -> DesignTable:
    return s.tree_table(x, s.tree_crossing(x, *_loads(s, x, n)), s.priced(x), n)
