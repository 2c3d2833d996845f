"""Trees of four tiers: pods in zones that super-spines join.

There are too many of them to list at every slowdown, so each is the cheapest that keeps a target: the slowdowns of
leaves with some number of uplinks, those of sends and of allreduces each times 1, 1.5, 2 or 4 for all tiers, or any
slowdown at all.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.models.fabric.bundles import core_bundles
from planner.models.fabric.design_table import Flags, Floats, Ints, Options, undominated
from planner.models.fabric.four_tier_groups import INFINITE_COST, GroupRequest, core_pairs, group_costs, group_design
from planner.models.fabric.link_prices import Price
from planner.models.fabric.modes import TOLERANCE
from planner.models.fabric.pods import Shape
from planner.models.fabric.pods import slowdowns as pod_slowdowns
from planner.models.fabric.site_mode import BELOW, Site, over
from planner.models.fabric.traffic import ALLREDUCES, EXCHANGES, FLOWS, SHARES
from planner.models.fabric.trees import rail_sizes, undominated_rows, width_sizes, wirings

FACTORS = (1.0, 1.5, 2.0, 4.0, math.inf)  # of leaves' slowdowns, which all tiers keep
ROUNDING = 1e-8  # relative, of prices and slowdowns
CENT = 100.0  # prices of groups of spines are compared in whole cents


class Zone(NamedTuple):
    """Zones of whole pods: their rails and domains."""

    rails: int
    width: int


@dataclass(frozen=True, slots=True)
class Row:
    """One shape with a number of leaf uplinks and a bundle, and the least that it costs."""

    shape: Shape
    zone: Zone
    up: int
    bundle: int
    low: int
    high: int
    usd: float
    mw: float
    spine_link_usd: float  # of one uplink more of every spine


@dataclass(frozen=True, slots=True)
class ZoneWirings:
    """Rows under some stripes, with what each costs and slows at the least: a line a row, a column a spine's uplinks.

    What leaves a zone is not counted. `worth`: where that may beat the templates found so far.
    """

    rows: list[Row]
    usd: Floats
    send: Floats
    allreduce: Floats
    worth: Flags


def with_zones(s: Site, domain: int, leaf_loads: Floats) -> list[Options]:
    """Return the templates of four tiers of a leaf domain that may beat those found so far."""
    if s.network.max_tiers < 4 or s.pins.get("tiers", 4) != 4:
        return []
    leaf_loads = leaf_loads[undominated_rows(leaf_loads)]
    zones = _min_zones(s)
    ups = s.worthwhile_uplinks(domain, leaf_loads, switches=zones + 1, crossings=2 * (zones > 1))
    if not len(ups):
        return []
    rows = sorted(_rows(s, domain, int(ups.min()), leaf_loads), key=lambda r: r.usd)
    if s.loads.nothing and not s.power_counts:
        return _cheapest_of_all(s, rows)
    if s.whole:
        return [x for n in _stripes(s, domain) for x in _all_worthwhile(s, rows, n)] if rows else []
    least = np.array([_least_usd(s, row) for row in rows]).reshape(len(rows), s.ports)
    parts = []
    for n in _stripes(s, domain) if rows else ():
        ways = _ways(s, rows, least, n)
        if not ways.worth.any():
            continue
        leaf = s.loads.at(n, np.array([domain]))[0]
        targets: set[tuple[float, float]] = set()
        for up in ups.tolist():
            send, allreduce = (float(x) for x in s.leaf_slowdowns(domain, np.array(up, dtype=np.float64), leaf))
            for more in itertools.product(FACTORS, FACTORS):
                targets.add((send * more[0], allreduce * more[1]))
        for target in sorted(targets):
            s.tick()
            parts += _cheapest(s, ways, n, target)
    return parts


def _cheapest_of_all(s: Site, rows: list[Row]) -> list[Options]:
    """Return the cheapest template of rows, by their bounds, where nothing is to be carried: all are as calm."""
    best: tuple[float, Row | None, dict[str, int]] = s.max_usd, None, {}
    n = next(iter(s.stripes), 1)
    for row in rows:
        s.tick()
        if row.usd * BELOW > best[0]:
            break
        found = _completed(s, row, n, (1.0, 1.0))
        if found is not None and (found[0] < best[0] or best[1] is None):
            best = found[0], row, found[1]
    return [_table(s, best[1], best[2], n)] if best[1] is not None else []


def _least_usd(s: Site, r: Row) -> Floats:
    """Bound the price of a row by a spine's uplinks, from 1 on; infinite for those that it cannot have."""
    s.tick()
    request, spines = _request(s, r, 0.0), r.up // r.bundle
    leaf, spine, core = _links(s, r.shape, r.zone)
    v = np.arange(1, s.ports + 1)
    # Groups are priced in whole cents: by so much may one link, or switch, be less.
    switch = s.mode.networks * s.prices.switch[0]
    off = [abs(x * CENT - round(x * CENT)) for x in (switch, spine[0], core[0])]
    slack = off[0] * (request.pods + (request.zones + s.ports) * v) + off[1] * v + off[2] * v * s.ports
    cost = group_costs(request).cost[1:]
    usd = s.fixed(r.shape.domain)[0] + r.up * leaf[0] + spines * (cost - slack) / CENT
    return np.where((v >= r.low) & (v <= r.high) & (cost < INFINITE_COST), usd * (1 - ROUNDING), np.inf)


def _ways(s: Site, rows: list[Row], least: Floats, n: int) -> ZoneWirings:
    """Bound what rows cost and slow under some stripes, by a spine's uplinks, and mark what may beat the front."""
    send, allreduce = np.empty_like(least), np.empty_like(least)
    v = np.arange(1, s.ports + 1)
    shapes: dict[Shape, list[int]] = {}
    for i, row in enumerate(rows):
        shapes.setdefault(row.shape, []).append(i)
    for x, at in shapes.items():
        s.tick()
        loads = s.loads.at(n, np.array([x.domain, x.domain * x.width]))
        up, bundle = (np.array([getattr(rows[i], name) for i in at])[:, None] for name in ("up", "bundle"))
        send[at], allreduce[at] = pod_slowdowns(s, x, up, bundle, v, loads)
    mw = np.array([row.mw for row in rows])[:, None]
    worth = np.isfinite(least) & s.worthwhile(send, allreduce, least, mw)
    return ZoneWirings(rows, least, send, allreduce, worth)


def _stripes(s: Site, domain: int) -> list[int]:
    """List the numbers of stripes of which no other leaves less of a leaf, and any one size of pods, in all."""
    every = list(s.stripes)
    sizes = np.arange(domain, s.racks + domain, domain)
    loads = np.array([s.loads.at(n, sizes).ravel() for n in every])
    return [every[i] for i in undominated_rows(loads).tolist()]


def _min_zones(s: Site) -> int:
    """Return the fewest zones: one is of use only where a pin, or a WAN gateway, asks for its super-spines."""
    return s.pins.get("min_zones") or (1 if {"tiers", "core_up_ports"} & set(s.pins) or s.wan_ports else 2)


def _zones(s: Site, x: Shape) -> Iterator[Zone]:
    """Yield the zones over pods of a shape: for each count of zones the fewest pods."""
    across, along = -(-s.mode.rails // x.rails), -(-s.domains(x.domain) // x.width)
    for wide in _parts(s, across):
        for deep in _parts(s, along):
            zones = -(-across // wide) * -(-along // deep)
            if wide * deep < s.ports and _min_zones(s) <= zones <= s.ports:
                yield Zone(wide * x.rails, deep * x.width)


def _parts(s: Site, items: int) -> list[int]:
    """List the sizes of parts, the fewest for each count of them; every divisor of a core's pinned ports down."""
    down = s.pins.get("core_down_ports")
    if down is not None:
        return [v for v in range(1, items + 1) if down % v == 0]
    return sorted({-(-items // n) for n in range(1, items + 1)})


def _counts(s: Site, x: Shape, z: Zone) -> tuple[int, int, int]:
    """Count the pods and zones of a network, and the pods of a full zone."""
    pods = -(-s.mode.rails // x.rails) * -(-s.domains(x.domain) // x.width)
    zones = -(-s.mode.rails // z.rails) * -(-s.domains(x.domain) // z.width)
    return pods, zones, z.rails // x.rails * (z.width // x.width)


def _links(s: Site, x: Shape, z: Zone) -> tuple[Price, Price, Price]:
    """Price one uplink of every leaf, of one spine of every pod, and of one core of every zone."""
    p, pod, zone = s.prices, x.domain * x.width, x.domain * z.width
    return p.leaf_uplink(x.domain, x.width), p.spine_uplink(pod, x.rails, zone), p.spine_uplink(zone, z.rails)


def _rows(s: Site, domain: int, min_up: int, leaf_loads: Floats) -> Iterator[Row]:
    """Yield the shapes that ports allow and the front does not rule out, with the least that each costs."""
    m, p, fixed = s.mode, s.prices, s.fixed(domain)
    for rails in rail_sizes(s):
        for width in width_sizes(s, s.domains(domain)):
            s.tick()
            x = Shape(domain, rails, width)
            w = wirings(s, domain, rails, width, s.uplinks(domain))
            w = w.part(np.flatnonzero(w.up >= min_up))
            of = [z for z in _zones(s, x) if _counts(s, x, z)[2] < s.ports]
            if not of or not len(w.up):
                continue
            pods, zones, _ = np.array([_counts(s, x, z) for z in of]).T[..., None]
            leaf, spine, core = np.array([_links(s, x, z) for z in of]).transpose(1, 2, 0)[..., None]
            # A core of each zone and a super-spine to a spine position, with ports for the links of all spines and for
            # those out of zones that the core share asks for.
            floor = np.array([_floor(s, z.rails, domain * z.width, _counts(s, x, z)[1]) for z in of])[:, None]
            out = np.maximum(w.spines, floor)
            cores = np.maximum(zones * w.spines, np.ceil((pods * w.spines * w.low + zones * out) / s.ports))
            switches = m.networks * (pods * w.spines + cores + np.maximum(w.spines, np.ceil(zones * out / s.ports)))
            usd, mw = (
                fixed[i] + w.up * leaf[i] + switches * p.switch[i] + w.spines * w.low * spine[i] + out * core[i]
                for i in (0, 1)
            )
            send, allreduce = s.leaf_slowdowns(domain, w.up, leaf_loads[:, None, None])
            worth = s.worthwhile(send, allreduce, usd, mw).any(axis=0)
            for k, i in zip(*(at.tolist() for at in np.nonzero(worth)), strict=True):
                each = int(w.up[i]), int(w.bundle[i]), int(w.low[i]), int(w.high[i])
                yield Row(x, of[k], *each, float(usd[k, i]), float(mw[k, i]), float(w.spines[i] * spine[0][k, 0]))


def _cheapest(s: Site, w: ZoneWirings, n: int, target: tuple[float, float]) -> list[Options]:
    """Return the cheapest template of all shapes that keeps a target under some stripes.

    Nothing where none does, or where it cannot beat the templates found so far.
    """
    inside = (w.send <= target[0] * (1 + ROUNDING)) & (w.allreduce <= target[1] * (1 + ROUNDING))
    worth = np.where(inside & w.worth, w.usd, np.inf).min()
    least = np.where(inside, w.usd, np.inf).min(axis=1)
    best: tuple[float, int, dict[str, int]] = math.inf, -1, {}
    for i in np.argsort(least, kind="stable").tolist():
        if math.isinf(least[i]) or least[i] > best[0] or worth > best[0]:
            break
        found = _completed(s, w.rows[i], n, target)
        if found is not None and (found[0], i) < best[:2]:
            best = found[0], i, found[1]
    return [_table(s, w.rows[best[1]], best[2], n)] if math.isfinite(worth) and worth <= best[0] < math.inf else []


def _need(s: Site, load: Floats, rails: int, target: tuple[float, float]) -> float:
    """Return the links that what leaves a pod or zone of so many rails asks for, to keep a target."""
    m = s.mode
    sent = max(load[FLOWS] / target[0], load[ALLREDUCES] / target[1], load[EXCHANGES])
    gone = s.exchange_ports * load[SHARES] * min(rails, m.rails)
    return float(sent * m.rail_gpus * rails / m.split + gone) * (1 - TOLERANCE)


def _floor(s: Site, rails: int, racks: int, parts: int) -> float:
    ends = racks * s.mode.rail_gpus * rails
    return math.ceil(ends * s.network.asked_core_share / s.mode.split * (1 - TOLERANCE)) if parts > 1 else 0.0


def _request(s: Site, r: Row, need: float) -> GroupRequest:
    """Return the request of a row to the cores and super-spines of a spine position, by links that leave a zone."""
    x, z, spines = r.shape, r.zone, r.up // r.bundle
    pods, zones, zone_pods = _counts(s, x, z)
    _, spine, core = _links(s, x, z)
    zone = max(need, _floor(s, z.rails, x.domain * z.width, zones))
    return GroupRequest(
        ports=s.ports,
        switch=round(s.mode.networks * s.prices.switch[0] * CENT),
        pods=pods,
        spine_link=round(spine[0] * CENT),
        wan_gateway=-(-s.wan_ports // spines),
        zones=zones,
        zone_pods=zone_pods,
        zone_link=round(core[0] * CENT),
        zone_up=max(0, math.ceil(zone / spines)),
        core_down=s.pins.get("core_down_ports", 0),
        core_up=s.pins.get("core_up_ports", 0),
    )


def _completed(s: Site, r: Row, n: int, target: tuple[float, float]) -> tuple[float, dict[str, int]] | None:
    """Return price and choices of the cheapest cores and super-spines of a row that keep a target; None if none do."""
    x, z = r.shape, r.zone
    loads = s.loads.at(n, np.array([x.domain, x.domain * x.width, x.domain * z.width]))
    send, allreduce = s.leaf_slowdowns(x.domain, np.array(r.up, dtype=np.float64), loads[0])
    late = float(send) > target[0] * (1 + TOLERANCE) or float(allreduce) > target[1] * (1 + TOLERANCE)
    if late or not s.leaf_fits(np.array(r.up), loads[0]):
        return None
    low = max(r.low, math.ceil(_need(s, loads[1], x.rails, target) / (r.up // r.bundle)))
    request = _request(s, r, _need(s, loads[2], z.rails, target))
    if low > r.high:
        return None
    costs = group_costs(request).cost[low : r.high + 1]
    v = low + int(costs.argmin())
    if costs[v - low] >= INFINITE_COST:
        return None
    choice = {"spine_up": v, **group_design(request, v)}
    if s.pins.get("spine_bundle", choice["spine_bundle"]) != choice["spine_bundle"]:
        return None
    return float(_bill(s, r, choice)[0]), choice


def _all_worthwhile(s: Site, rows: list[Row], n: int) -> Iterator[Options]:
    """Yield the templates of rows that may beat those found so far: bounded by fewest cores, then by best ones."""
    v, each = np.arange(1, s.ports + 1), np.array([(r.usd, r.spine_link_usd, r.low, r.high) for r in rows])
    usd, link, low, high = each.T[..., None]
    worth = _ways(s, rows, np.where((v >= low) & (v <= high), usd + (v - low) * link, np.inf), n).worth.any(axis=1)
    rows = [rows[i] for i in np.flatnonzero(worth)]
    if rows:
        ways = _ways(s, rows, np.array([_least_usd(s, r) for r in rows]), n)
        for i in np.flatnonzero(ways.worth.any(axis=1)):
            yield from _all_of(s, rows[i], ways.worth[i], n)


def _all_of(s: Site, r: Row, worth: Flags, n: int) -> list[Options]:
    """Return the templates of a row with every choice of cores and super-spines that may beat those found so far.

    `worth`: at which uplinks of a spine, from 1 on, one may.
    """
    s.tick()
    x, z, spines, u = r.shape, r.zone, r.up // r.bundle, np.arange(1, s.ports + 1)
    request = _request(s, r, 0.0)
    loads = s.loads.at(n, np.array([x.domain, x.domain * x.width, x.domain * z.width]))
    cores, bundle = core_pairs(s.ports, request.zone_pods, request.core_down)
    keep = worth[cores * bundle - 1] & s.block_fits(spines * cores * bundle, loads[1], np.array(x.rails))
    keep &= s.leaf_fits(np.array(r.up), loads[0]) & (bundle == s.pins.get("spine_bundle", bundle))
    cores, bundle = cores[keep], bundle[keep]
    gateway = -(-request.wan_gateway // cores)
    each, which = np.unique(gateway, return_inverse=True)
    above = np.array([core_bundles(s.ports, request.zones, k)[1:] for k in each.tolist()]).reshape(-1, s.ports)
    above = above[which.ravel()]
    links = spines * cores[:, None] * u
    fits = (u + request.zone_pods * bundle[:, None] <= s.ports) & (request.zones * above <= s.ports)
    fits &= (u // above * s.ports >= request.zones * u + gateway[:, None]) & (u == s.pins.get("core_up_ports", u))
    fits &= links >= _floor(s, z.rails, x.domain * z.width, request.zones)
    fits &= s.block_fits(links, loads[2], np.array(z.rails))
    i, j = np.nonzero(fits)
    c = {"spine_up": (cores * bundle)[i], "spine_bundle": bundle[i], "core_up": u[j], "core_bundle": above[i, j]}
    kept = s.worthwhile(*_slowdowns(s, r, c, n), *_bill(s, r, c))
    c = {name: values[kept] for name, values in c.items()}
    return [undominated([_table(s, r, c, n)], power_counts=s.power_counts)] if kept.any() else []


def _bill(s: Site, r: Row, c: Mapping[str, int | Ints]) -> tuple[Floats, Floats]:
    """Price a row with its cores and super-spines."""
    (pods, zones, _), spines, p = _counts(s, r.shape, r.zone), r.up // r.bundle, s.prices
    cores = spines * (c["spine_up"] // c["spine_bundle"])
    switches = s.mode.networks * (pods * spines + zones * cores + cores * (c["core_up"] // c["core_bundle"]))
    leaf, spine, core = _links(s, r.shape, r.zone)
    fixed = s.fixed(r.shape.domain)

    def total(i: int) -> Floats:
        links = r.up * leaf[i] + spines * c["spine_up"] * spine[i] + cores * c["core_up"] * core[i]
        return np.asarray(fixed[i] + switches * p.switch[i] + links)

    return total(0), total(1)


def _slowdowns(s: Site, r: Row, c: Mapping[str, int | Ints], n: int) -> tuple[Floats, Floats]:
    """Return the slowdowns over the transport's own of a row with its cores and super-spines under some stripes."""
    x, z, m = r.shape, r.zone, s.mode
    loads = s.loads.at(n, np.array([x.domain, x.domain * x.width, x.domain * z.width]))
    one = np.ones(np.size(c["spine_up"]), dtype=np.int64)
    send, allreduce = pod_slowdowns(s, x, r.up * one, r.bundle * one, c["spine_up"] * one, loads[:2])
    zone_pods, load = _counts(s, x, z)[2], loads[2]
    links = r.up // r.bundle * (c["spine_up"] // c["spine_bundle"]) * c["core_up"]
    free = 1 - s.exchange_ports * load[SHARES] * min(m.rails, z.rails) / (links * one)
    leaf_over = x.domain * m.rail_gpus / (r.up * m.split)
    spine_over, core_over = (
        x.rails * x.width * r.bundle / c["spine_up"],
        zone_pods * c["spine_bundle"] / c["core_up"],
    )
    sent = load[FLOWS] / (x.domain * z.width) * leaf_over * spine_over * core_over
    reduced = load[ALLREDUCES] / (links * m.split / (z.rails * m.rail_gpus))
    send = np.maximum(send, over(sent * one, free))
    return send, np.maximum(allreduce, over(reduced * one, free))


def _table(s: Site, r: Row, c: Mapping[str, int | Ints], n: int) -> Options:
    """Return the templates of a row with its cores and super-spines under some stripes."""
    x, z, one = r.shape, r.zone, np.ones(np.size(c["spine_up"]))
    send, allreduce = _slowdowns(s, r, c, n)
    usd, mw = _bill(s, r, c)
    return s.table(
        send, allreduce, usd * one, mw * one, domain=x.domain, leaf_up=r.up, leaf_bundle=r.bundle,
        rails=x.rails, width=x.width, zone_rails=z.rails, zone_width=z.width, stripes=n, **c,
    )  # fmt: skip
