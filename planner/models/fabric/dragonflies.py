"""Dragonflies and dragonflies+: groups of leaves joined two by two, their links assured as `physics.dragonfly` counts.

A group is a pod of rails and leaf domains. Of routers, b links join two of a group and m two groups; under spines a
leaf has u uplinks in bundles of b. More links between groups cost more and slow traffic less, so all numbers that the
ports allow are tried.
"""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from planner.models.fabric.design_table import DesignTable, Flags, Floats, Ints, pareto_front
from planner.models.fabric.site_mode import BELOW, LoadsOfLeaves, Prices, SiteMode, times
from planner.models.fabric.traffic import SHARES
from planner.models.fabric.trees import bundles, part_sizes
from planner.physics.network.dragonfly import DragonflyPlus, router_share, unevenness
from planner.physics.network.dragonfly import part_sizes as parts_of
from planner.physics.network.fabric_designs import FAMILIES


class Groups(NamedTuple):
    """The groups of a shape: how many, and the numbers of leaves (or routers) that they have."""

    number: int
    sizes: tuple[int, ...]


class Ways(NamedTuple):
    """Ways to join leaves and groups: uplinks of a leaf (0: routers), bundle, and links between two groups."""

    up: Ints
    bundle: Ints
    links: Ints


class PodShape(NamedTuple):
    """Shape of groups: `rails` rails of `width` leaf domains of `domain` racks."""

    domain: int
    rails: int
    width: int


def with_groups(s: SiteMode, domains: list[int], _: LoadsOfLeaves) -> Iterator[list[DesignTable]]:
    """Yield the dragonflies of leaf domains, spines of any model, that may beat the templates found so far."""
    if not s.mode.grouped:
        return
    plus_family = FAMILIES[s.mode.family].design is DragonflyPlus
    tiers = 1 + plus_family
    shut = {"core_down_ports", "core_up_ports", "spine_bundle", "core_switch"} & set(s.pins)
    if not plus_family:
        shut |= {"leaf_up_ports", "spine_down_ports", "spine_up_ports", "spine_switch"} & set(s.pins)
    if shut or s.pins.get("tiers", tiers) != tiers or s.network.max_tiers < tiers:
        return
    # Groups have no core tier, and of routers all are leaves.
    spines = tuple(dict.fromkeys((spine, s.pairs[0][1]) for spine, _ in s.pairs)) if plus_family else ((0, 0),)
    for domain in domains:
        flat = s.prices.places is None and not s.wan_ports  # leaves and links to GPUs alone, of any groups
        if flat and not s.worthwhile(1.0, 1.0, *(BELOW * s.fixed(domain))).any():
            continue
        yield [x for each in s.with_models(spines) for x in _of_models(each, domain, plus_family=plus_family)]


def _of_models(s: SiteMode, domain: int, *, plus_family: bool) -> list[DesignTable]:
    """Return the dragonflies whose spines, if they have some, are of one model."""
    shapes, parts, best = _shapes(s, domain), list[DesignTable](), math.inf
    least, may = _least_usd(s, domain, shapes)
    for at in np.argsort(least, kind="stable").tolist():
        if s.loads.nothing and not s.power_counts and least[at] * BELOW > best:
            break  # none slows traffic, so that the cheapest beats the others
        if may[at]:
            s.tick()
            x = PodShape(domain, *shapes[at].tolist())
            parts_of_both = product(parts_of(s.mode.rails, x.rails), parts_of(s.domains(domain), x.width))
            sizes = tuple(sorted({across * along for across, along in parts_of_both}))
            groups = Groups(s.pods(domain, x.rails, x.width), sizes)
            found = _of_shape(s, x, groups, (_spine_ways if plus_family else _router_ways)(s, x, groups))
            parts, best = [*parts, *found], min([best, *(float(x.usd.min()) for x in found)])
    return parts


def _shapes(s: SiteMode, domain: int) -> Ints:
    """List rails and domains of groups: all under valiant, on shortest paths the fewest of each by count of groups."""

    def sizes(items: int, pin: str) -> Ints:
        every: Ints = np.arange(1, items + 1)
        if pin in s.pins:
            every = every[every == s.pins[pin]]
        elif s.network.group_routing != "valiant" and "spine_down_ports" not in s.pins:
            every = part_sizes(items)
        return every

    of_both = sizes(s.mode.rails, "rails_per_pod"), sizes(s.domains(domain), "leaf_domains_per_pod")
    shapes = np.stack(np.meshgrid(*of_both, indexing="ij"), axis=-1).reshape(-1, 2)
    return np.asarray(shapes[shapes.prod(axis=1) <= max(s.ports, s.spine_ports)])


def _floor_links(s: SiteMode, domain: int, leaves: Any, groups: Any) -> Any:
    """Return the links between two groups of some leaves that the core share asks for; none of a group alone."""
    share = s.core_share(domain * s.mode.rail_gpus * leaves)
    return np.where(groups > 1, np.maximum(1, -(-share // np.maximum(1, groups - 1))), 0)


def _least_usd(s: SiteMode, domain: int, shapes: Ints) -> tuple[Floats, Flags]:
    """Price shapes with the fewest links and spines that the rules ask; return which may beat the templates so far."""
    p, (rails, width) = s.prices, shapes.T
    groups, leaves = s.pods(domain, rails, width), rails * width
    links = _floor_links(s, domain, leaves, groups)
    if FAMILIES[s.mode.family].design is DragonflyPlus:
        up = max(1, s.leaf_share(domain))
        needed = -(-(leaves * up + (groups - 1) * links) // s.spine_ports)
        inner, spines = up, groups * (up // np.maximum(1, up // np.maximum(1, needed)))
        # Spines of single links have the most ports for links out.
        several = (groups > 1) & ((groups - 1) * links <= s.uplinks(domain) * (s.spine_ports - leaves))
    else:
        inner, spines = 1, 0
        # A router of a largest group has ports for the others there, and its links out.
        out = -(-(groups - 1) * links // leaves)
        several = ((groups > 1) | (leaves > 1)) & (leaves - 1 + out <= s.uplinks(domain))
    wan = p.adjacent_links(s.wan_ports) if p.places is None else 0.0
    usd, mw = _bill(s, domain, rails, width, wan, (inner, spines, links))
    return usd, several & s.worthwhile(1.0, 1.0, BELOW * usd, BELOW * mw)


def _bill(s: SiteMode, domain: int, rails: Any, width: Any, wan: Any, counts: tuple[Any, Any, Any]) -> Prices:
    """Price dragonflies, whose links to a WAN gateway cost `wan`.

    `counts`: uplinks of a leaf, or links between two routers of a group; spines; links between two groups.
    """
    m, p, domains, (inner, spines, links) = s.mode, s.prices, s.domains(domain), counts
    if FAMILIES[m.family].design is DragonflyPlus:
        ends, local = p.endpoints(domain), p.leaf_uplink(domain, width)
    else:
        of_both = (m.rails, rails), (domains, width)
        squares = math.prod(n // part * part**2 + (n % part) ** 2 for n, part in of_both)
        ends, local = p.endpoints(domain * width), p.adjacent_links((squares - m.rails * domains) // 2)
    boxes = m.networks * (m.rails * domains * p.switch + spines * s.box_prices[0])
    apart = times(links, p.between(domain * width, rails))
    return np.asarray(ends + (p.wan_gateway(s.wan_ports) + wan) + boxes + inner * local + apart)


def _router_ways(s: SiteMode, x: PodShape, groups: Groups) -> Ways:
    """Return every bundle and number of links between groups that the routers of all groups have ports for."""
    left, others = s.uplinks(x.domain), groups.number - 1
    most = [(left // max(1, a - 1) if a > 1 else left, left * a // max(1, others)) for a in groups.sizes]
    bundle = np.arange(1, (min(b for b, _ in most) if max(groups.sizes) > 1 else 1) + 1)
    links = np.arange(
        int(_floor_links(s, x.domain, x.rails * x.width, groups.number)), (min(m for _, m in most) if others else 0) + 1
    )
    if "leaf_bundle" in s.pins:
        bundle = bundle[bundle == s.pins["leaf_bundle"]]
    b, m = (v.ravel() for v in np.meshgrid(bundle, links, indexing="ij"))
    own = -(-s.wan_ports // groups.number)
    used = [(a - 1) * b - (-others * m // a) - (-own // a) for a in groups.sizes]
    fewest = [(a - 1) * b + others * m // a for a in groups.sizes]
    fits = (np.max(used, axis=0) <= left) & (np.min(fewest, axis=0) >= s.leaf_share(x.domain))
    return Ways(np.zeros_like(b[fits]), b[fits], m[fits])


def _spine_ways(s: SiteMode, x: PodShape, groups: Groups) -> Ways:
    """Return every number of uplinks, bundle and links between groups that leaves and spines have ports for."""
    up, bundle = bundles(s.ports)
    down = bundle * x.rails * x.width
    keep = (up >= s.leaf_share(x.domain)) & (up <= s.uplinks(x.domain)) & (down < s.spine_ports)
    for name, value in (("leaf_up_ports", up), ("leaf_bundle", bundle), ("spine_down_ports", down)):
        if name in s.pins:
            keep &= value == s.pins[name]
    up, bundle, down = up[keep], bundle[keep], down[keep]
    spines, others = up // bundle, groups.number - 1
    free = s.spine_ports - down - -(-s.wan_ports // (groups.number * spines))
    most = np.maximum(free, 0) * spines // others
    links = np.arange(int(_floor_links(s, x.domain, x.rails * x.width, groups.number)), int(most.max(initial=0)) + 1)
    row, at = np.nonzero(links <= most[:, None])
    m = links[at]
    if "spine_up_ports" in s.pins:
        alike = -(-others * m // spines[row]) == s.pins["spine_up_ports"]
        row, m = row[alike], m[alike]
    return Ways(up[row], bundle[row], m)


def _exits(s: SiteMode, groups: Groups, w: Ways) -> tuple[Floats, Floats]:
    """Return the links assured to the traffic that leaves a leaf, and to that which leaves a group."""
    valiant, total = s.network.group_routing == "valiant", (groups.number - 1) * w.links
    if FAMILIES[s.mode.family].design is DragonflyPlus:
        spines = w.up // w.bundle
        if valiant:
            even = w.up / (1 + max(groups.sizes) / min(groups.sizes))
            return even / unevenness(spines, total), total / 2
        even = np.where(w.links < spines, w.links, spines * (w.links // spines))
        return w.bundle * np.minimum(w.links, spines).astype(np.float64), even.astype(np.float64)
    pod = total / 2 if valiant else w.links.astype(np.float64)
    several = [a for a in groups.sizes if a > 1]
    if not several:
        return pod, pod
    share = router_share(min(several), max(several), links=total, valiant=valiant)
    return w.bundle * share, pod


def _of_shape(s: SiteMode, x: PodShape, groups: Groups, w: Ways) -> list[DesignTable]:
    """Return the templates of a shape, under every number of stripes, that may beat those found so far."""
    if not len(w.links):
        return []
    plus_family = FAMILIES[s.mode.family].design is DragonflyPlus
    inner, spines = (w.up, groups.number * (w.up // w.bundle)) if plus_family else (w.bundle, np.zeros_like(w.links))
    wan = s.prices.group_wan(x.domain * x.width, x.rails, s.wan_ports)
    usd, mw = _bill(s, *x, wan, (inner, spines, w.links))
    no_slowdown = np.ones(1)
    keep = np.isfinite(usd) & s.worthwhile(no_slowdown, no_slowdown, usd, mw)
    w, usd, mw = Ways(*(column[keep] for column in w)), usd[keep], mw[keep]
    if not len(usd):
        return []
    stripes = list(s.stripes)
    loads = np.concatenate([s.loads.at(n, np.array([x.domain, x.domain * x.width])).reshape(1, 2, 4) for n in stripes])
    parts = []
    for k in pareto_front(loads.reshape(len(stripes), -1)).tolist():
        send, allreduce, fits = _crossing(s, x, groups, w, loads[k])
        good = fits & s.worthwhile(send, allreduce, usd, mw)
        up, bundle, links = (column[good] for column in w)
        own = {"leaf_up": up, "leaf_bundle": bundle, "group_links": links, "stripes": stripes[k]}
        own |= {"domain": x.domain, "rails": x.rails, "width": x.width, "spine_model": s.spine}
        parts.append(s.table(send[good], allreduce[good], usd[good], mw[good], **own))
    return [p for p in parts if len(p)]


def _exchange(s: SiteMode, x: PodShape, groups: Groups, loads: Floats) -> tuple[float, float]:
    """Return the links' worth that the exchange between sites loads at a leaf and at a group, as the physics does."""
    if not s.wan_ports:
        return 0.0, 0.0
    one, rails, valiant = s.exchange_ports, s.mode.rails, s.network.group_routing == "valiant"
    per_group = -(-s.wan_ports // groups.number)
    at_router = 0 if FAMILIES[s.mode.family].design is DragonflyPlus else max(-(-per_group // a) for a in groups.sizes)
    leaf = one * loads[0][SHARES] + one * rails * (at_router / s.wan_ports)
    sent, share = one * loads[1][SHARES] * x.rails, per_group / s.wan_ports
    return leaf, (sent + one * rails * share if valiant else 2 * sent * share)


def _crossing(s: SiteMode, x: PodShape, groups: Groups, w: Ways, loads: Floats) -> tuple[Floats, Floats, Flags]:
    """Return the slowdowns over the transport's own, and whether links carry the exchanges of sites and experts."""
    m, (leaf, pod) = s.mode, _exits(s, groups, w)
    at_leaf, at_pod = _exchange(s, x, groups, loads)
    over = x.domain * m.rail_gpus / (leaf * m.split)
    send, allreduce, fits = s.crossing(loads[0], x.domain, over, leaf, gone=at_leaf)
    if groups.number > 1:
        over = over * (x.rails * x.width * leaf / pod)
        of_pod = s.crossing(loads[1], x.domain * x.width, over, pod, x.rails, gone=at_pod)
        send, allreduce, fits = np.maximum(send, of_pod[0]), np.maximum(allreduce, of_pod[1]), fits & of_pod[2]
    return send, allreduce, fits
