"""Templates of dragonflies and dragonflies+: groups of leaves joined two by two, links as physics counts them.

A group is a pod of rails and leaf domains. Of routers, b links join two of a group and m two groups; under spines a
leaf has u uplinks in bundles of b. More links between groups cost more and slow traffic less, so all numbers that the
ports allow are tried.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from planner.models.fabric.site_mode import BELOW, Prices, SiteMode, times
from planner.models.fabric.site_traffic import SHARES, LeafLoads
from planner.models.fabric.template_table import ArrayTable, DesignTable, Ints, members, pareto_front
from planner.models.fabric.tree_templates import divisors, pod_sizes
from planner.physics.network.dragonfly import assured_links, exchanged_links
from planner.physics.network.dragonfly import part_sizes as parts_of

MOST_WAYS = 1 << 18  # of uplinks, bundles and links between groups, priced at a time
SHAPES_AT_A_TIME = 16  # those of the least price first: one, two, and so on, up to so many


class Groups(NamedTuple):
    """The groups of some dragonfly templates: racks of a domain, rails, domains, how many, and the leaves of each."""

    domain: int
    rails: int
    width: int
    number: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ways(ArrayTable):
    """The ways to wire dragonfly templates: uplinks of a leaf (0: routers), bundle, and links between two groups."""

    up: Ints
    bundle: Ints
    links: Ints


def with_groups(s: SiteMode, domains: Ints, _: LeafLoads) -> Iterator[list[DesignTable]]:
    """Yield tables of the dragonfly templates of leaf domains that may beat those so far, the least price first."""
    # The groups that ports allow: racks of the domain, rails and domains of a group. Under valiant all; on shortest
    # paths the fewest of each count.
    valiant, most = s.network.group_routing == "valiant", max(s.ports, s.spine_ports)
    rails = pod_sizes(s, s.mode.rails, "rails_per_pod", all_sizes=valiant)
    widths = [pod_sizes(s, n, "leaf_domains_per_pod", all_sizes=valiant) for n in s.domains(domains).tolist()]
    of, width = np.repeat(np.arange(len(domains)), [len(x) for x in widths]), np.concatenate(widths)
    of, width, rails = np.repeat(of, len(rails)), np.repeat(width, len(rails)), np.tile(rails, len(width))
    order = np.lexsort((width, rails, of))
    order = order[(rails * width)[order] <= most]
    shapes = np.stack([domains[of], rails, width], axis=1)[order]
    domain, rails, width = shapes.T
    groups, leaves = s.pods(domain, rails, width), rails * width
    links, inner = _floor_links(s, domain, leaves, groups), s.leaf_share(domain) if s.mode.has_spines else 1
    if s.mode.has_spines:
        # Spines of single links have the most ports for links out.
        several = (groups > 1) & ((groups - 1) * links <= s.uplinks(domain) * (s.spine_ports - leaves))
    else:
        # A router of a largest group has ports for the others there, and its links out.
        several = ((groups > 1) | (leaves > 1)) & (leaves - 1 + -(-(groups - 1) * links // leaves) <= s.uplinks(domain))
    # Priced with the fewest links and spines. More uplinks than the rules ask may be wired to fewer spines, but not to
    # fewer than have ports for all links.
    spines = groups * -(-(leaves * inner + (groups - 1) * links) // s.spine_ports) * s.mode.has_spines
    every = np.broadcast_arrays(domain, rails, width, inner, spines, links)
    domain, rails, width, *counts = (x[several] for x in every)
    # Each link of the WAN gateway at the price of the shortest, without power: a longer one may draw less.
    wan = times(s.wan_ports * s.mode.networks, s.prices.flat_link)
    shapes, (usd, mw) = shapes[several], _bill(s, domain, rails, width, wan, counts)
    order, few = np.argsort(usd, kind="stable"), 1
    while len(order := order[s.worthwhile(1.0, 1.0, BELOW * usd[order], BELOW * mw[order])]):
        s.tick()
        yield [x for shape in shapes[order[:few]].tolist() for x in _of_shape(s, *shape)]
        order, few = order[few:], min(2 * few, SHAPES_AT_A_TIME)


def _floor_links(s: SiteMode, domain: Any, leaves: Any, groups: Any) -> Any:
    """Return the links between two groups of a dragonfly that the core share asks for; none of a group alone."""
    share = s.core_share(domain * s.mode.rail_gpus * leaves)
    return np.where(groups > 1, np.maximum(1, -(-share // np.maximum(1, groups - 1))), 0)


def _bill(s: SiteMode, domain: Any, rails: Any, width: Any, wan: Any, counts: Sequence[Any]) -> Prices:
    """Price dragonflies, links to a WAN gateway included, which cost `wan`: USD and MW."""
    # `counts`: uplinks of a leaf, or links between two routers of a group; spines; links between two groups.
    m, p, domains, (inner, spines, links) = s.mode, s.prices, s.domains(domain), counts
    if m.has_spines:
        ends, local = p.endpoints(domain), p.uplink(domain, 1, domain * width)
    else:
        of_both = (m.rails, rails), (domains, width)
        squares = math.prod(n // part * part**2 + (n % part) ** 2 for n, part in of_both)
        ends, local = p.endpoints(domain * width), p.adjacent_links((squares - m.rails * domains) // 2)
    boxes = m.networks * (m.rails * domains * s.leaf_box + spines * s.spine_box)
    apart = times(links, p.between(domain * width, rails))
    return np.asarray(ends + (s.wan_boxes + wan) + boxes + inner * local + apart)


def _router_ways(s: SiteMode, x: Groups) -> tuple[Ways, Ints]:
    """Return a dragonfly's router bundles with the fewest links between groups, and the most that ports allow."""
    left, others, a = int(s.uplinks(x.domain)), x.number - 1, np.array(x.sizes)[:, None]
    wan = -(-s.wan_ports // x.number)
    most = min(left // max(1, size - 1) for size in x.sizes) if max(x.sizes) > 1 else 1
    bundle = np.arange(1, most + 1)
    bundle = bundle[bundle == s.pins.get("leaf_bundle", bundle)]
    # Ports of a router that are left for links out, and those that its uplinks lack without them.
    room = left - (a - 1) * bundle + -wan // a
    lack = np.maximum(0, np.ceil(s.leaf_share(x.domain) - (a - 1) * bundle)).astype(np.int64)
    up = s.pins.get("leaf_up_ports")  # of the router that has most
    if not others:
        none, wired = np.zeros_like(bundle), (a[-1] - 1) * bundle
        keep = (room >= 0).all(axis=0) & (lack == 0).all(axis=0) & (wired == (up or wired))
        return Ways(none, bundle, none), np.where(keep, 0, -1)
    first = np.maximum(int(_floor_links(s, x.domain, x.rails * x.width, x.number)), -(-lack * a // others)).max(axis=0)
    if up:
        out = up - (a - 1) * bundle
        room, first = np.minimum(room, out), np.maximum(first, ((out - 1) * a // others + 1).min(axis=0))
    return Ways(np.zeros_like(bundle), bundle, first), (room * a // others).min(axis=0)


def _spine_ways(s: SiteMode, x: Groups) -> tuple[Ways, Ints]:
    """Return a dragonfly+'s leaf uplinks and bundles with the fewest links between groups, and the most of these."""
    up, others = np.arange(1, s.ports), x.number - 1
    row, bundle = divisors(up, s.ports)
    up = up[row]
    down, spines = bundle * x.rails * x.width, up // bundle
    keep = (up >= s.leaf_share(x.domain)) & (up <= s.uplinks(x.domain)) & (down < s.spine_ports)
    for name, value in (("leaf_up_ports", up), ("leaf_bundle", bundle), ("spine_down_ports", down)):
        keep &= value == s.pins.get(name, value)
    up, bundle, down, spines = up[keep], bundle[keep], down[keep], spines[keep]
    first = np.full(len(up), int(_floor_links(s, x.domain, x.rails * x.width, x.number)))
    last = np.maximum(0, s.spine_ports - down - -(-s.wan_ports // (x.number * spines))) * spines // others
    if "spine_up_ports" in s.pins:
        out = s.pins["spine_up_ports"]
        first, last = np.maximum(first, (out - 1) * spines // others + 1), np.minimum(last, out * spines // others)
    return Ways(up, bundle, first), last


def _of_shape(s: SiteMode, domain: int, rails: int, width: int) -> Iterator[DesignTable]:
    """Yield tables of the dragonflies of some groups, in the ways to wire these that may beat the templates so far."""
    both = product(parts_of(s.mode.rails, rails), parts_of(s.domains(domain), width))
    x = Groups(domain, rails, width, s.pods(domain, rails, width), tuple(sorted({a * b for a, b in both})))
    fewest, last = (_spine_ways if s.mode.has_spines else _router_ways)(s, x)
    if links := s.pins.get("group_links"):
        fewest, last = replace(fewest, links=np.maximum(fewest.links, links)), np.minimum(last, links)
    m, valiant = s.mode, s.network.group_routing == "valiant"
    # More links cost more and slow traffic less: where nothing is slowed the fewest are the cheapest.
    count = np.clip(last - fewest.links + 1, 0, 1 if s.traffic.nothing else None)
    wan, chunk = s.prices.group_wan(domain * width, rails, s.wan_ports), np.cumsum(count) // MOST_WAYS
    own: dict[str, Any] = {"domain": domain, "rails_per_pod": rails, "domains_per_pod": width, "spine_model": s.spine}
    sizes = np.array([domain, domain * width])
    for some in np.unique(chunk).tolist():
        s.tick()
        row, more = members(np.where(chunk == some, count, 0))
        w = fewest.part(row)
        w = replace(w, links=w.links + more)
        spines = w.up // w.bundle if m.has_spines else None
        counts = (w.bundle, 0, w.links) if spines is None else (w.up, x.number * spines, w.links)
        prices = _bill(s, domain, rails, width, wan, counts)
        keep = np.flatnonzero(s.worthwhile(1.0, 1.0, *prices))
        if not len(keep):
            continue
        w, prices, spines = w.part(keep), prices[:, keep], None if spines is None else spines[keep]
        leaf, pod = assured_links(x.sizes, w.bundle, spines, links=w.links, groups=x.number, valiant=valiant)
        over = domain * m.rail_gpus / (leaf * m.link_nics)
        loads = np.array([s.loads.at(n, sizes) for n in s.stripes.tolist()]).reshape(len(s.stripes), 2, 4)
        for k in pareto_front(loads.reshape(len(loads), -1)).tolist():
            gone: tuple[Any, Any] = 0.0, 0.0
            if s.wan_ports:
                wan_share = (m.rails, rails), s.wan_ports, x.number, 0 if m.has_spines else min(x.sizes)
                gone = exchanged_links(s.exchange_ports, loads[k, :, SHARES].tolist(), *wan_share, valiant=valiant)
            send, allreduce, fits = s.crossing(loads[k, 0], domain, over, leaf, gone=gone[0])
            if x.number > 1:
                of_pod = over * (rails * width * leaf / pod)
                out = s.crossing(loads[k, 1], domain * width, of_pod, pod, rails, gone=gone[1])
                send, allreduce, fits = np.maximum(send, out[0]), np.maximum(allreduce, out[1]), fits & out[2]
            good = np.flatnonzero(fits & s.worthwhile(send, allreduce, *prices))
            own |= {"leaf_up": w.up[good], "leaf_bundle": w.bundle[good], "group_links": w.links[good]}
            own["stripes"] = int(s.stripes[k])
            if len(good):
                yield s.table(send[good], allreduce[good], prices[:, good], **own)
