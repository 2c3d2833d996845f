"""Trees of three tiers whose pods hold some of the leaf domains: what leaves a pod is counted as what leaves a leaf."""

from dataclasses import dataclass

import numpy as np

from planner.models.joint.template_tables import Flags, Floats, Ints, Options
from planner.models.joint.templates.link_prices import Price
from planner.models.joint.templates.site import Site, over
from planner.models.joint.templates.traffic import ALLREDUCES, FLOWS, SHARES
from planner.models.joint.templates.trees import (
    NONE,
    Tops,
    Wirings,
    core_groups,
    least_between,
    rail_sizes,
    undominated_rows,
    width_sizes,
    wirings,
)

MOST_WAYS = 1 << 18  # of leaves and spine uplinks, priced at a time


@dataclass(frozen=True, slots=True)
class Shape:
    """Pods of some rails of some leaf domains of so many racks, and the loads of a leaf that no stripes beat."""

    domain: int
    rails: int
    width: int


def with_some_domains(s: Site, domain: int, tops: Tops, leaf_loads: Floats) -> list[Options]:
    """Return the templates of a leaf domain with pods of some domains, where they may beat those found so far.

    Pods of equal count are cheapest with the fewest domains: only where these may be worth it on leaves as slow as
    theirs, with pods that slow nothing, the others are looked at, and what leaves them is counted. Where prices follow
    lengths any number of domains may be cheapest.
    """
    if s.network.max_tiers < 3 or s.pins.get("tiers", 3) != 3 or "core_up_ports" in s.pins:
        return []
    domains, max_up, parts = s.domains(domain), s.uplinks(domain), []
    for rails in rail_sizes(s):
        by_pods: dict[int, Ints] = {}
        for width in width_sizes(s, domains, all_sizes=s.prices.places is not None):
            if width < domains:
                up = _promising(s, Shape(domain, rails, width), tops, max_up, leaf_loads)
                by_pods[-(-domains // width)] = np.union1d(by_pods.get(-(-domains // width), up), up)
        for width in width_sizes(s, domains, all_sizes=True) if by_pods else []:
            up = by_pods.get(-(-domains // width), np.empty(0, np.int64))
            if width < domains and len(up):
                parts += _of_shape(s, Shape(domain, rails, width), up, max_up)
    return parts


def _links(s: Site, x: Shape) -> tuple[Price, Price]:
    """Price one uplink of every leaf, and one of one spine of every pod."""
    return s.prices.leaf_uplink(x.domain, x.width), s.prices.spine_uplink(x.domain * x.width, x.rails)


def _pods(s: Site, x: Shape) -> int:
    return -(-s.mode.rails // x.rails) * -(-s.domains(x.domain) // x.width)


def _group_prices(s: Site, x: Shape, spines: int) -> tuple[Ints, list[Floats]]:
    """Return by a spine's uplinks the bundle, and price and power of one of so many spine positions."""
    bundle, cores = core_groups(s, _pods(s, x), spines)
    link, v = _links(s, x)[1], np.arange(s.ports + 1)
    n, p = s.mode.networks, s.prices.switch
    return bundle, [
        np.where(cores < NONE, n * (_pods(s, x) + cores) * p[i] + v * link[i], np.inf) for i in (0, 1)
    ]


def _kinds(s: Site, w: Wirings) -> list[tuple[int, Wirings]]:
    """Split ways by the spines that share the WAN gateway's links; all are of a kind without one."""
    kinds = w.spines if s.wan_ports else np.ones_like(w.up)
    return [(k, w.part(np.flatnonzero(kinds == k))) for k in np.unique(kinds).tolist()]


def _promising(s: Site, x: Shape, tops: Tops, max_up: int, leaf_loads: Floats) -> Ints:
    """Return the uplinks of a leaf at which pods of a shape may beat pods of all domains and all found so far."""
    fixed, found = s.fixed(x.domain), []
    if _pods(s, x) > s.ports:
        return np.empty(0, np.int64)
    leaf = _links(s, x)[0]
    for kind, w in _kinds(s, wirings(s, x.domain, x.rails, x.width, max_up)):
        _, group = _group_prices(s, x, kind)
        least = [group[i][least_between(group[i], w.low, w.high)] for i in (0, 1)]
        usd, mw = (w.up * leaf[i] + w.spines * least[i] for i in (0, 1))
        keep = np.isfinite(usd) & _below(s, tops, w.up, usd, mw)
        up, usd, mw = w.up[keep], usd[keep] + fixed[0], mw[keep] + fixed[1]
        worth = np.zeros(len(up), dtype=bool)
        for load in leaf_loads:
            send, allreduce = s.leaf_slowdowns(x.domain, up, load)
            worth |= s.worthwhile(send, allreduce, usd, mw)
        found.append(up[worth])
    return np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)


def _below(s: Site, tops: Tops, up: Ints, usd: Floats, mw: Floats) -> Flags:
    """Return where price, or power where it counts, is below that of every pod of all domains of as many uplinks."""
    least = np.full((2, s.ports + 1), np.inf)
    np.minimum.at(least[0], tops.up, tops.usd)
    np.minimum.at(least[1], tops.up, tops.mw)
    below: Flags = usd < least[0][up]
    return below | (mw < least[1][up]) if s.power_counts else below


def _of_shape(s: Site, x: Shape, up: Ints, max_up: int) -> list[Options]:
    """Return the templates of a shape with some uplinks of a leaf, under every number of stripes worth it."""
    w = wirings(s, x.domain, x.rails, x.width, max_up)
    w = w.part(np.flatnonzero(np.isin(w.up, up)))
    stripes = list(s.stripes)
    loads = np.concatenate([s.loads.at(n, np.array([x.domain, x.domain * x.width])).reshape(1, 2, 4) for n in stripes])
    kept = undominated_rows(loads.reshape(len(stripes), -1)).tolist()
    parts = []
    for kind, ways in _kinds(s, w):
        bundle, group = _group_prices(s, x, kind)
        step = max(1, MOST_WAYS // (s.ports + 1))
        for at in range(0, len(ways.up), step):
            row, v = _useful(s, ways.part(np.arange(at, min(at + step, len(ways.up)))), group)
            some = ways.part(at + row)
            parts += [_under(s, x, some, v, bundle[v], [g[v] for g in group], stripes[k], loads[k]) for k in kept]
    return [p for p in parts if len(p)]


def _useful(s: Site, w: Wirings, group: list[Floats]) -> tuple[Ints, Ints]:
    """Return ways with each number of a spine's uplinks for which no larger one is as cheap."""
    v = np.arange(s.ports + 1)
    inside = (v >= w.low[:, None]) & (v <= w.high[:, None]) & np.isfinite(group[0])
    if not s.power_counts:
        cost = np.where(inside, group[0], np.inf)
        after = np.minimum.accumulate(cost[:, ::-1], axis=1)[:, ::-1]
        inside[:, :-1] &= cost[:, :-1] < after[:, 1:]
    row, found = np.nonzero(inside)
    return row, found


def _under(
    s: Site, x: Shape, w: Wirings, v: Ints, bundle: Ints, group: list[Floats], n_stripes: int, loads: Floats
) -> Options:
    """Return the templates of ways with uplinks of spines under some stripes that may beat those found so far."""
    leaf, fixed = _links(s, x)[0], s.fixed(x.domain)
    usd, mw = (fixed[i] + w.up * leaf[i] + w.spines * group[i] for i in (0, 1))
    send, allreduce = slowdowns(s, x, w.up, w.bundle, v, loads)
    fits = s.leaf_fits(w.up, loads[0]) & s.block_fits(w.spines * v, loads[1], np.array(x.rails))
    keep = fits & s.worthwhile(send, allreduce, usd, mw)
    return s.table(
        send[keep], allreduce[keep], usd[keep], mw[keep], domain=x.domain, leaf_up=w.up[keep],
        leaf_bundle=w.bundle[keep], rails=x.rails, width=x.width, spine_up=v[keep], spine_bundle=bundle[keep],
        stripes=n_stripes,
    )  # fmt: skip


def slowdowns(s: Site, x: Shape, up: Ints, bundle: Ints, spine_up: Ints, loads: Floats) -> tuple[Floats, Floats]:
    """Return the slowdowns over the transport's own that uplinks of leaves and pods cause; 1 at the least."""
    m, load = s.mode, loads[1]
    send, allreduce = s.leaf_slowdowns(x.domain, up, loads[0])
    links = up // bundle * spine_up
    free = 1 - s.exchange_ports * load[SHARES] * min(m.rails, x.rails) / links if s.exchange_ports else np.ones(1)
    leaf_over, spine_over = x.domain * m.rail_gpus / (up * m.split), x.rails * x.width * bundle / spine_up
    pod_send = load[FLOWS] / (x.domain * x.width) * leaf_over * spine_over
    pod_allreduce = load[ALLREDUCES] / (links * m.split / (x.rails * m.rail_gpus))
    return np.maximum(send, over(pod_send, free)), np.maximum(allreduce, over(pod_allreduce, free))
