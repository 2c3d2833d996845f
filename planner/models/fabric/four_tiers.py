"""Trees of four tiers: pods in zones that super-spines join.

Of a spine's u2 uplinks every zone has s·u2 core positions. Each of its cores takes p of them, the same number, and has
u3 uplinks; super-spines take the positions above the cores in turn. Cores and super-spines are of one model.

There are too many of them to list at every slowdown, so each is the cheapest that keeps a target: the slowdowns of
leaves with some number of uplinks, those of sends and of allreduces each times 1, 1.5, 2 or 4 for all tiers, or any
slowdown at all.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from planner.models.fabric.design_table import ArrayTable, DesignTable, Flags, Floats, Ints, pareto_front, undominated
from planner.models.fabric.site_mode import BELOW, TOLERANCE, LoadsOfLeaves, Prices, SiteMode, members
from planner.models.fabric.traffic import ALLREDUCES, EXCHANGES, FLOWS, SHARES
from planner.models.fabric.trees import (
    NONE,
    fewest_boxes,
    own_boxes,
    part_sizes,
    rail_sizes,
    spine_bundles,
    tree_crossing,
    width_sizes,
    wirings,
)

FACTORS = (1.0, 1.5, 2.0, 4.0, math.inf)  # of leaves' slowdowns, which all tiers keep
ROUNDING = 1e-9  # relative, of prices and slowdowns
AT_A_TIME = 1 << 16  # rows with uplinks of a spine, priced at a time
ROWS_AT_A_TIME = 256  # looked at together, those of the least price first


@dataclass(frozen=True, slots=True)
class PodShapeRows(ArrayTable):
    """Shapes of pods and zones with uplinks and bundles of leaves, one entry each, and the least that each costs.

    Links are priced by one uplink of every leaf, of one spine of every pod, and of one core of every zone.
    """

    rails: Ints
    width: Ints
    zone_rails: Ints
    zone_width: Ints
    up: Ints
    bundle: Ints
    low: Ints  # uplinks of a spine, and the most below
    high: Ints
    pods: Ints
    zones: Ints
    zone_pods: Ints
    floor: Ints  # links out of a zone that the core share asks for
    links: Floats  # price and power (columns) of leaf, spine and core
    usd: Floats
    mw: Floats

    @property
    def spines(self) -> Ints:
        """Spines of a pod."""
        return self.up // self.bundle


@dataclass(frozen=True, slots=True)
class CoreTops(ArrayTable):
    """Cores and super-spines over rows with some uplinks of spines, one entry each: the cheapest."""

    usd: Floats  # of the whole fabric; infinite where there are none
    bundle: Ints  # of a spine's uplinks, before cores that positions share are told from those of their own
    cores: Ints  # of a zone
    up: Ints
    boxes: Ints  # super-spines of a network


def with_zones(s: SiteMode, domains: list[int], every: LoadsOfLeaves) -> Iterator[list[DesignTable]]:
    """Yield the templates of four tiers of leaf domains, of any models, that may beat those found so far."""
    if s.mode.grouped or s.network.max_tiers < 4 or s.pins.get("tiers", 4) != 4:
        return
    zones = _min_zones(s)
    ups = s.worthwhile_uplinks(domains, every, switches=zones + 1, crossings=2 * (zones > 1))
    for domain, up in ups.items():
        loads = every[domain].loads[every[domain].best]
        yield [x for each in s.with_models() for x in _of_models(each, domain, loads, up)]


def _of_models(s: SiteMode, domain: int, leaf_loads: Floats, ups: Ints) -> list[DesignTable]:
    """Return the templates of one pair of models."""
    rows = _rows(s, domain, ups, leaf_loads)
    if not len(rows.up):
        return []
    if s.loads.nothing and not s.power_counts:
        n, no_need = next(iter(s.stripes), 1), np.zeros(len(rows.up))
        return _cheapest(s, domain, rows, rows.low, no_need, np.ones(len(no_need), dtype=bool), n)
    at, v, least = _least_usd(s, domain, rows)
    parts, every = list[DesignTable](), list(s.stripes)
    # Only numbers of stripes of which no other leaves less of a leaf, and of any one size of pods, in all.
    sizes = np.arange(domain, s.racks + domain, domain)
    kept = pareto_front(np.array([s.loads.at(n, sizes).ravel() for n in every]))
    for n in (every[k] for k in kept.tolist()):
        s.tick()
        some = rows.part(at)
        send, allreduce, _ = tree_crossing(s, domain, some, v, *_loads(s, domain, some, n)[:2])
        worth = s.worthwhile(send, allreduce, least, BELOW * some.mw)
        if s.whole:
            for i in np.unique(at[worth]):
                parts += _all_of(s, domain, rows.part(np.array([i])), v[worth & (at == i)], n)
        elif worth.any():
            bound = np.where(worth, least, np.inf), send, allreduce
            parts += _at_targets(s, domain, rows, at, bound, ups, n)
    return parts


def _at_targets(
    s: SiteMode, domain: int, rows: PodShapeRows, at: Ints, bound: tuple[Floats, Floats, Floats], ups: Ints, n: int
) -> list[DesignTable]:
    """Return the cheapest templates at each target under some stripes, where some row may beat the front there.

    `bound`: the least price of rows `at` with uplinks of spines, infinite where it beats nothing, and their slowdowns.
    """
    least, send, allreduce = bound
    leaf = s.loads.at(n, np.array([domain]))[0]
    slow = [[float(x) for x in s.leaf_crossing(domain, up, leaf)[:2]] for up in ups.tolist()]
    more = itertools.product(FACTORS, FACTORS)
    targets = {(a * x, b * y) for (a, b), (x, y) in itertools.product(slow, list(more))}
    parts = []
    for target in sorted(targets):
        s.tick()
        inside = (send <= target[0] * (1 + ROUNDING)) & (allreduce <= target[1] * (1 + ROUNDING))
        worth = np.where(inside, least, np.inf)
        if math.isfinite(worth.min(initial=np.inf)):
            parts += _keeping(s, domain, rows.part(np.unique(at[inside])), target, n)
    return parts


def _keeping(s: SiteMode, domain: int, rows: PodShapeRows, target: tuple[float, float], n: int) -> list[DesignTable]:
    """Return the cheapest template of rows that keeps a target under some stripes; none where none does."""
    leaf, pod, zone = _loads(s, domain, rows, n)
    send, allreduce, kept = s.leaf_crossing(domain, rows.up, leaf)
    kept &= (send <= target[0] * (1 + TOLERANCE)) & (allreduce <= target[1] * (1 + TOLERANCE))
    out = np.ceil(_need(s, pod, rows.rails, target) / rows.spines).astype(np.int64)
    low = np.maximum(rows.low, out)
    return _cheapest(s, domain, rows, low, _need(s, zone, rows.zone_rails, target), kept, n)


def _cheapest(
    s: SiteMode, domain: int, rows: PodShapeRows, low: Ints, need: Floats, kept: Flags, n: int
) -> list[DesignTable]:
    """Return the cheapest template of the rows `kept`, or none where all cost more than the site's limit.

    A spine has at least `low` uplinks, and a zone at least `need` links out.
    """
    order = np.flatnonzero(kept & (low <= rows.high))
    order = order[np.argsort(rows.usd[order], kind="stable")]
    best, found = s.max_usd, list[DesignTable]()
    for first in range(0, len(order), ROWS_AT_A_TIME):
        s.tick()
        i = order[first : first + ROWS_AT_A_TIME]
        if rows.usd[i[0]] * BELOW > best:
            break
        r, more = rows.part(i), np.arange(int((rows.high - low)[i].max()) + 1)
        least = r.usd[:, None] + (low[i, None] - r.low[:, None] + more) * (r.spines * r.links[:, 0, 1])[:, None]
        k, more = np.nonzero((more <= (r.high - low[i])[:, None]) & (least * BELOW <= best))
        tops = _completed(s, domain, r.part(k), low[i][k] + more, need[i][k])
        if len(k) and (least_usd := float(tops.usd.min())) <= best and math.isfinite(least_usd):
            j = np.array([tops.usd.argmin()])
            chosen = tops.part(j)
            best, found = least_usd, [_table(s, domain, r.part(k[j]), low[i][k[j]] + more[j], chosen, n)]
    return found


def _rows(s: SiteMode, domain: int, ups: Ints, leaf_loads: Floats) -> PodShapeRows:
    """Return the shapes that ports allow and the front does not rule out, with the least that each costs."""
    shapes = np.array(list(itertools.product(rail_sizes(s), width_sizes(s, s.domains(domain)))), dtype=np.int64)
    shapes = shapes.reshape(-1, 2)
    shape, w = wirings(s, domain, shapes, s.uplinks(domain))
    kept = np.flatnonzero(np.isin(w.up, ups))
    shape, w = shape[kept], w.part(kept)
    zoned = [np.empty((0, 7), dtype=np.int64)]
    for k in np.unique(shape).tolist():
        s.tick()
        zones = _zones(s, domain, *shapes[k].tolist())
        zoned.append(np.column_stack([np.full(len(zones), k), zones]))
    z = np.concatenate(zoned)
    of_shape, rails, width, zone_rails, zone_width, pods, zones = z.T
    p, pod, zone = s.prices, domain * width, domain * zone_width
    each = p.leaf_uplink(domain, width), p.spine_uplink(pod, rails, zone), p.spine_uplink(zone, zone_rails)
    links = np.stack([np.broadcast_to(x, (2, len(z))) for x in each]).T
    # Every zone of a shape with every wiring of it.
    i, more = members(np.bincount(shape, minlength=len(shapes))[of_shape])
    w, links = w.part(np.searchsorted(shape, of_shape)[i] + more), links[i]
    _, rails, width, zone_rails, zone_width, pods, zones = z[i].T
    zone_pods = zone_rails // rails * (zone_width // width)
    floor = np.where(zones > 1, s.core_share(domain * s.mode.rail_gpus * zone_rails * zone_width), 0)
    # As many ports of cores and super-spines as the links have ends.
    out, pod_links = np.maximum(1, floor), w.spines * w.low
    cores = np.maximum(zones, np.ceil((pods * pod_links + zones * out) / s.core_ports))
    tops = np.maximum(1, np.ceil(zones * out / s.core_ports))
    (spine_box, core_box), (leaf, spine, core) = s.box_prices, links.T
    usd, mw = (
        s.fixed(domain) + w.up * leaf + pod_links * spine + out * core
        + s.mode.networks * (pods * w.spines * spine_box + (cores + tops) * core_box)
    )  # fmt: skip
    rows = PodShapeRows(
        rails,
        width,
        zone_rails,
        zone_width,
        w.up,
        w.bundle,
        w.low,
        w.high,
        pods,
        zones,
        zone_pods,
        floor,
        links,
        usd,
        mw,
    )
    send, allreduce, _ = s.leaf_crossing(domain, w.up, leaf_loads[:, None])
    return rows.part(np.flatnonzero(s.worthwhile(send, allreduce, BELOW * usd, BELOW * mw).any(axis=0)))


def _zones(s: SiteMode, domain: int, rails: int, width: int) -> Ints:
    """List the zones over pods of a shape, for each count of zones the fewest pods.

    Columns: rails and domains of a pod and of a zone, pods and zones of a network.
    """
    across, along = -(-s.mode.rails // rails), -(-s.domains(domain) // width)
    wide, deep = _zone_parts(across, along, s.pins.get("core_down_ports", 0))
    zones = -(-across // wide) * -(-along // deep)
    fits = (wide * deep < s.core_ports) & (zones >= _min_zones(s)) & (zones <= s.core_ports)
    columns = np.broadcast_arrays(rails, width, wide * rails, deep * width, across * along, zones)
    return np.asarray(np.column_stack(columns)[fits])


@lru_cache(maxsize=4096)
def _zone_parts(across: int, along: int, core_down: int) -> tuple[Ints, Ints]:
    """Return pods of a zone across and along: the fewest for each count; every divisor of a core's pinned ports."""
    sizes = [
        np.array([v for v in range(1, items + 1) if core_down % v == 0]) if core_down else part_sizes(items)
        for items in (across, along)
    ]
    wide, deep = np.meshgrid(*sizes, indexing="ij")
    return wide.ravel(), deep.ravel()


def _min_zones(s: SiteMode) -> int:
    """Return the fewest zones: one is of use only where a pin, or a WAN gateway, asks for its super-spines."""
    return s.pins.get("min_zones") or (1 if {"tiers", "core_up_ports"} & set(s.pins) or s.wan_ports else 2)


def _need(s: SiteMode, load: Floats, rails: Ints, target: tuple[float, float]) -> Floats:
    """Compute the links out of pods or zones of `rails` rails that their traffic needs to keep target slowdowns."""
    m = s.mode
    sent = np.maximum(load[..., FLOWS] / target[0], load[..., ALLREDUCES] / target[1])
    sent = np.maximum(sent, load[..., EXCHANGES])
    gone = s.exchange_ports * load[..., SHARES] * np.minimum(rails, m.rails)
    return np.asarray((sent * m.rail_gpus * rails / m.split + gone) * (1 - TOLERANCE))


def _least_usd(s: SiteMode, domain: int, rows: PodShapeRows) -> tuple[Ints, Ints, Floats]:
    """Return rows with uplinks of their spines, and the least price of each that may pay: no traffic leaves a zone."""
    found = []
    step = max(1, AT_A_TIME // s.spine_ports)
    for first in range(0, len(rows.up), step):
        s.tick()
        some = rows.part(np.arange(first, min(first + step, len(rows.up))))
        v = np.arange(1, s.spine_ports + 1)
        least = some.usd[:, None] + (v - some.low[:, None]) * (some.spines * some.links[:, 0, 1])[:, None]
        inside = (v >= some.low[:, None]) & (v <= some.high[:, None])
        i, k = np.nonzero(inside & s.worthwhile(1.0, 1.0, BELOW * least, BELOW * some.mw[:, None]))
        usd = BELOW * _completed(s, domain, some.part(i), v[k], np.zeros(len(i))).usd
        kept = np.isfinite(usd)
        found.append((first + i[kept], v[k][kept], usd[kept]))
    at, v, usd = (np.concatenate(x) for x in zip(*found, strict=True))
    return at, v, usd


def _completed(s: SiteMode, domain: int, r: PodShapeRows, v: Ints, need: Floats) -> CoreTops:
    """Return the cheapest cores and super-spines above each row; `v` uplinks a spine, `need` links out of a zone."""
    best, chosen = np.full(len(v), np.inf), np.zeros((4, len(v)), dtype=np.int64)
    for bundle, p in _positions(s, r):
        i, cores, taken = _cores(s, r, v, bundle, p)
        # More uplinks than needed cost more, and take no fewer super-spines.
        up = _fewest_up(s, r.part(i), cores, need[i])
        boxes = _super_spines(s, r.part(i), cores * up)
        fits = np.flatnonzero((up + taken <= s.core_ports) & (boxes < NONE))
        i, columns = i[fits], np.stack([np.full_like(i, bundle), cores, up, boxes])[:, fits]
        usd = _bill(s, domain, r.part(i), v[i], *columns[1:])[0]
        better = usd < best[i]
        best[i[better]], chosen[:, i[better]] = usd[better], columns[:, better]
    return CoreTops(best, *chosen)


def _positions(s: SiteMode, r: PodShapeRows) -> Iterator[tuple[int, int]]:
    """Yield bundles of spines with the positions that a core may take of them."""
    least = int(r.zone_pods.min(initial=s.core_ports))
    return itertools.product(spine_bundles(s), range(1, (s.core_ports - 1) // least + 1))


def _cores(s: SiteMode, r: PodShapeRows, v: Ints, bundle: int, p: int) -> tuple[Ints, Ints, Ints]:
    """Return the rows whose cores take p positions each, the cores of a zone, and the ports that a core needs down."""
    positions, taken = r.spines * (v // bundle), p * r.zone_pods * bundle
    cores = positions // p
    fits = (v % bundle == 0) & (positions % p == 0) & (cores >= np.where(r.pods > 1, s.network.asked_spines, 1))
    fits &= (taken < s.core_ports) & (taken == s.pins.get("core_down_ports", taken))
    i = np.flatnonzero(fits)
    return i, cores[i], np.broadcast_to(taken, cores.shape)[i]


def _fewest_up(s: SiteMode, r: PodShapeRows, cores: Ints, need: Floats) -> Ints:
    """Return the fewest uplinks of a core: for links out of a zone, losses to survive, and a WAN gateway's ports."""
    links = np.maximum(np.maximum(np.ceil(need).astype(np.int64), r.floor), _asked_tops(s, r))
    if s.wan_ports:
        links = np.maximum(links, -(-s.wan_ports // np.maximum(1, s.core_ports - r.zones)))
    up = np.maximum(1, -(-links // cores))
    wanted = s.pins.get("core_up_ports")
    return up if wanted is None else np.where(up <= wanted, wanted, s.core_ports)


def _asked_tops(s: SiteMode, r: PodShapeRows) -> Ints:
    return np.where(r.zones > 1, s.network.asked_spines, 1)


def _super_spines(s: SiteMode, r: PodShapeRows, positions: Ints) -> Ints:
    """Count the fewest super-spines of a network that hold `positions` positions, each with a port for every zone."""
    return fewest_boxes(s, r.zones, positions, _asked_tops(s, r))


def _all_of(s: SiteMode, domain: int, r: PodShapeRows, v: Ints, n: int) -> list[DesignTable]:
    """Return the templates of one row with all cores and super-spines that may beat those found so far.

    `v`: uplinks of a spine with which one may.
    """
    s.tick()
    parts, u = [], np.arange(1, s.core_ports)
    each = r.part(np.zeros(len(v), dtype=np.int64))
    for bundle, p in _positions(s, r):
        i, cores, taken = _cores(s, each, v, bundle, p)
        fits = (u >= _fewest_up(s, each.part(i), cores, np.zeros(len(i)))[:, None]) & (
            u + taken[:, None] <= s.core_ports
        )
        fits &= u == s.pins.get("core_up_ports", u)
        k, j = np.nonzero(fits)
        i, cores, up = i[k], cores[k], u[j]
        tops = CoreTops(
            np.zeros(len(i)), np.full_like(i, bundle), cores, up, _super_spines(s, each.part(i), cores * up)
        )
        parts.append(_table(s, domain, each.part(i), v[i], tops, n))
    return [undominated(parts, power_counts=s.power_counts)] if parts else []


def _loads(s: SiteMode, domain: int, r: PodShapeRows, n: int) -> list[Floats]:
    """Return the loads that leave leaves, pods and zones of rows, under `n` stripes."""
    return [s.loads.at(n, domain * x) for x in (np.ones_like(r.width), r.width, r.zone_width)]


def _bill(s: SiteMode, domain: int, r: PodShapeRows, v: Ints, cores: Ints, up: Ints, boxes: Ints) -> Prices:
    """Price rows with their uplinks of spines, cores of a zone with their uplinks, and super-spines of a network."""
    (spine_box, core_box), (leaf, spine, core) = s.box_prices, r.links.T
    tops = np.where(boxes < NONE, boxes * core_box, np.inf)
    switches = r.pods * r.spines * spine_box + r.zones * cores * core_box + tops
    links = r.up * leaf + r.spines * v * spine + cores * up * core
    return np.asarray(s.fixed(domain) + links + s.mode.networks * switches)


def _table(s: SiteMode, domain: int, r: PodShapeRows, v: Ints, tops: CoreTops, n: int) -> DesignTable:
    """Return the templates of rows with their cores and super-spines under some stripes that beat those found."""
    m, (leaf, pod, zone) = s.mode, _loads(s, domain, r, n)
    own, links = tree_crossing(s, domain, r, v, leaf, pod), tops.cores * tops.up
    core_down = r.spines * (v // tops.bundle) // tops.cores * r.zone_pods * tops.bundle
    over = domain * m.rail_gpus / (r.up * m.split) * (r.rails * r.width * r.bundle / v) * (core_down / tops.up)
    of_zone = s.crossing(zone, domain * r.zone_width, over, links, r.zone_rails)
    send, allreduce, fits = np.maximum(own[0], of_zone[0]), np.maximum(own[1], of_zone[1]), own[2] & of_zone[2]
    usd, mw = _bill(s, domain, r, v, tops.cores, tops.up, tops.boxes)
    core_bundle, boxes = own_boxes(tops.cores, tops.up, 1, tops.boxes, split=True)
    pinned = "spine_bundle" in s.pins
    bundle, cores = own_boxes(r.spines, v, tops.bundle, tops.cores, split=not pinned)
    kept = np.flatnonzero(fits & s.worthwhile(send, allreduce, BELOW * usd, BELOW * mw))
    columns = {
        "leaf_up": r.up, "leaf_bundle": r.bundle, "rails": r.rails, "width": r.width, "zone_rails": r.zone_rails,
        "zone_width": r.zone_width, "spine_up": v, "spine_bundle": bundle, "core_boxes": cores, "core_up": tops.up,
        "core_bundle": core_bundle, "super_spine_boxes": boxes,
    }  # fmt: skip
    return s.table(
        send[kept], allreduce[kept], usd[kept], mw[kept], **{name: x[kept] for name, x in columns.items()},
        domain=domain, stripes=n, spine_model=s.spine, core_model=s.core,
    )  # fmt: skip
