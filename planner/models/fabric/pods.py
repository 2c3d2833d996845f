"""Trees of three tiers whose pods hold some of the leaf domains: what leaves a pod is counted as what leaves a leaf."""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from planner.models.fabric.design_table import AT, Flags, Floats, Ints, Options, joined
from planner.models.fabric.link_prices import Price
from planner.models.fabric.site_mode import Site, over
from planner.models.fabric.traffic import ALLREDUCES, FLOWS, SHARES
from planner.models.fabric.trees import (
    Tops,
    Wirings,
    core_boxes,
    own_boxes,
    rail_sizes,
    spine_bundles,
    top_prices,
    undominated_rows,
    width_sizes,
    wirings,
)

MOST_WAYS = 1 << 18  # of leaves and spine uplinks, priced at a time


@dataclass(frozen=True, slots=True)
class Shape:
    """Pods of some rails of some leaf domains of so many racks: of one shape, or of many."""

    domain: int
    rails: Any
    width: Any


def with_some_domains(s: Site, domain: int, tops: Tops, stripes: list[int], leaf_loads: Floats) -> list[Options]:
    """Return the templates of a leaf domain with pods of some domains, of any models, that may beat those found so far.

    What leaves pods is counted where that of the first pod does not rule them out. `leaf_loads`: of every number of
    stripes.
    """
    if s.network.max_tiers < 3 or s.pins.get("tiers", 3) != 3 or "core_up_ports" in s.pins:
        return []
    if s.domains(domain) < 2:
        return []
    up = s.worthwhile_uplinks(domain, leaf_loads[undominated_rows(leaf_loads)], switches=1, crossings=1)
    if not len(up):
        return []
    first = s.loads.first_runs(np.array(stripes), domain, s.domains(domain))
    return [y for x in s.with_models() for y in _of_models(x, domain, tops, stripes, (up, leaf_loads, first))]


def _of_models(
    s: Site, domain: int, tops: Tops, stripes: list[int], given: tuple[Ints, Floats, Floats]
) -> list[Options]:
    """Return the templates whose spines and cores are of one pair of models."""
    shapes = _shapes(s, domain)
    if not len(shapes):
        return []
    up, leaf_loads, first = given
    row, up, worth = _promising(s, domain, shapes, tops, (up, leaf_loads, first))
    wanted: list[tuple[Shape, Ints, Ints]] = []
    for k in np.unique(row).tolist():
        s.tick()
        x = Shape(domain, *shapes[k].tolist())
        kept = np.flatnonzero(worth[:, row == k].any(axis=1))
        loads = np.stack([leaf_loads[kept], first[kept, x.width]], axis=1)[:, None]
        may = joined(_of_shape(s, x, up[row == k], kept, loads))
        if len(may):
            wanted.append((x, np.unique(may.key[:, AT["leaf_up"]]), np.unique(may.key[:, AT["stripes"]])))
    return _counted(s, wanted, np.array(stripes))


def _shapes(s: Site, domain: int) -> Ints:
    """List rails and domains of the pods that hold some domains and that a spine has ports for."""
    domains = s.domains(domain)
    widths = width_sizes(s, domains, all_sizes=s.prices.places is not None or not s.loads.nothing)
    rails, width = (x.ravel() for x in np.meshgrid(rail_sizes(s), widths, indexing="ij"))
    pods = -(-s.mode.rails // rails) * -(-domains // width)
    fits = (width < domains) & (pods <= s.core_ports) & (rails * width < s.spine_ports)
    return np.asarray(np.stack([rails, width], axis=1)[fits], dtype=np.int64)


def _counted(s: Site, wanted: list[tuple[Shape, Ints, Ints]], stripes: Ints) -> list[Options]:
    """Return the templates of shapes with some uplinks of a leaf under some stripes, what leaves pods counted."""
    sizes: dict[int, set[int]] = {}
    for x, _, kept in wanted:
        for k in kept.tolist():
            sizes.setdefault(k, {x.domain}).add(x.domain * x.width)
    for k, each in sizes.items():
        s.loads.at(int(stripes[k]), np.array(sorted(each)))
    parts: list[Options] = []
    for x, ups, kept in wanted:
        both = np.array([x.domain, x.domain * x.width])
        loads = np.array([s.loads.at(int(n), both) for n in stripes[kept]])[:, None]
        parts += _of_shape(s, x, ups, stripes[kept], loads)
    return parts


def _links(s: Site, x: Shape) -> tuple[Price, Price]:
    """Price one uplink of every leaf, and one of one spine of every pod."""
    return s.prices.leaf_uplink(x.domain, x.width), s.prices.spine_uplink(x.domain * x.width, x.rails)


def _links_of(s: Site, domain: int, shapes: Ints, pods: Ints) -> tuple[Floats, Floats]:
    """Price the same of many shapes with so many pods; rows are shapes."""
    if s.prices.places is None:
        link = s.mode.networks * np.array(s.prices.flat_link)
        return np.tile(s.prices.leaf_uplink(domain, 1), (len(shapes), 1)), pods[:, None] * link
    leaf, spine = zip(*(_links(s, Shape(domain, *x)) for x in shapes.tolist()), strict=True)
    return np.array(leaf), np.array(spine)


def _pods(s: Site, x: Shape) -> int:
    return int(-(-s.mode.rails // x.rails) * -(-s.domains(x.domain) // x.width))


@lru_cache(maxsize=16)
def _largest_bundles(ports: int) -> Ints:
    """Return the largest bundle of every number of uplinks (columns) that is not above the row's number."""
    table = np.ones((ports + 1, ports + 1), dtype=np.int64)
    for b in range(2, ports + 1):
        table[b] = table[b - 1]
        table[b, b::b] = b
    return table


def _promising(
    s: Site, domain: int, shapes: Ints, tops: Tops, given: tuple[Ints, Floats, Floats]
) -> tuple[Ints, Ints, Flags]:
    """Return shapes with uplinks of a leaf at which they may beat pods of all domains and all templates found so far.

    And under which stripes. They cost at least the fewest spines that ports allow, with one uplink each and its ports
    of cores, or the uplinks and cores that the core share asks for, and are at least as slow as the first pod with the
    most uplinks that may be worth their price.
    `given`: uplinks of a leaf, the loads of leaves, and those of first pods, by stripes.
    """
    m, (spine_box, core_box), fixed, (up, leaf_loads, first) = s.mode, s.box_prices, s.fixed(domain), given
    rails, width = shapes.T
    most_bundle = np.minimum((s.spine_ports - 1) // (rails * width), s.ports)
    spines = up // _largest_bundles(s.ports)[most_bundle][:, up]
    pods = -(-m.rails // rails) * -(-s.domains(domain) // width)
    leaf, spine = _links_of(s, domain, shapes, pods)
    boxes = [m.networks * pods * spine_box[i] for i in (0, 1)]
    one_up = [spine[:, i] + m.networks * pods * core_box[i] / s.core_ports for i in (0, 1)]  # and its ports of cores
    usd, mw = (up * leaf[:, i, None] + spines * (boxes[i] + one_up[i])[:, None] for i in (0, 1))
    floor = np.ceil(domain * m.rail_gpus * rails * width * s.network.asked_core_share / m.split * (1 - 1e-9))
    links = np.maximum(np.where(pods > 1, floor, 0)[:, None], spines)
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
    calm = s.worthwhile(*s.leaf_slowdowns(domain, up[at], best), *bounds)
    row, at = row[calm.any(axis=0)], at[calm.any(axis=0)]
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
    s: Site, leaves: Ints, up: Ints, spines: Ints, tops: Tops, price: tuple[Floats, Floats, Floats]
) -> Floats:
    """Bound the uplinks of a pod of so many leaves: spines have ports for them, and they cost less than other pods do.

    `price`: the least that the shape costs with so many spines, of one uplink more, and of one spine position more.
    """
    usd, link, position = price
    most = (up * (s.spine_ports - leaves)).astype(np.float64)
    if s.power_counts:
        return most
    least = np.full(s.ports + 1, np.inf)
    np.minimum.at(least, tops.up, tops.usd)
    left, link = np.minimum(least[up], s.max_usd) - usd, np.maximum(link, 1e-6)
    # So many uplinks take (uplinks + ports down) / ports spine positions.
    by_ports = (left + spines * (position + link) - leaves * up * position / s.spine_ports) / (
        position / s.spine_ports + link
    )
    found: Floats = np.maximum(1.0, np.minimum(most, np.minimum(spines + left / link, by_ports) * (1 + 1e-9)))
    return found


def _below(s: Site, tops: Tops, up: Ints, usd: Floats, mw: Floats) -> Flags:
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


def _of_shape(s: Site, x: Shape, up: Ints, stripes: Ints, loads: Floats) -> list[Options]:
    """Return the templates of a shape with some uplinks of a leaf, under numbers of stripes with such loads."""
    _, w = wirings(s, x.domain, np.array([[x.rails, x.width]]), s.uplinks(x.domain))
    w = w.part(np.flatnonzero(np.isin(w.up, up)))
    (leaf, spine), fixed, parts = _links(s, x), s.fixed(x.domain), []
    if not math.isfinite(leaf[0] + spine[0]):
        return []
    pods, every = _pods(s, x), np.arange(s.spine_ports + 1)
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


def _useful(s: Site, w: Wirings, usd: Floats) -> tuple[Ints, Ints]:
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
    s: Site, x: Shape, w: Wirings, v: Ints, cores: tuple[Ints, Ints], price: list[Floats], stripes: Ints, loads: Floats
) -> Options:
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


def slowdowns(s: Site, x: Shape, up: Ints, bundle: Ints, spine_up: Ints, loads: Floats) -> tuple[Floats, Floats]:
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
