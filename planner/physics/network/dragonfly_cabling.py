"""Every cable of a dragonfly above its leaves, by number, inside groups and between them; and their lengths.

Groups are numbered within all networks as pods are. Link n of a group to others goes to its switch n mod (their
number), and takes the port n div (their number) after those inside the group; the links to one other group follow each
other. Link n of a WAN gateway goes to group n mod (their number), there to each switch in turn, at the ports after all
others.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.lengths import (
    CableRun,
    beside_metres,
    endpoint_metres,
    group_metres,
    group_wan_links,
    group_wan_metres,
    leaf_metres,
)
from planner.physics.network.links import Ints, Places
from planner.physics.network.tree_cabling import Ends, Stage, leaf_uplinks


class RouterGroups:
    """The routers of a dragonfly by group and seat; groups at the edge may have fewer."""

    def __init__(self, d: Dragonfly) -> None:
        self.d = d

    @cached_property
    def _sizes(self) -> tuple[Ints, Ints]:
        """Rails and routers of each group of one network."""
        d = self.d
        group = np.arange(d.pods, dtype=np.int64)
        rails = np.minimum(d.rails_per_pod, d.rails - group % d.pods_across * d.rails_per_pod)
        return rails, rails * np.minimum(d.domains_per_pod, d.domains - group // d.pods_across * d.domains_per_pod)

    @cached_property
    def _first(self) -> Ints:
        """Number of the first cable inside each group of a network, and of the one after the last."""
        a = self._sizes[1]
        return np.concatenate([[0], np.cumsum(a * (a - 1) // 2 * self.d.leaf_bundle)])

    def _leaf(self, network: Ints, group: Ints, seat: Ints) -> Ints:
        """Return the leaf at a seat of a group."""
        d, rails = self.d, self._sizes[0][group]
        domain = group // d.pods_across * d.domains_per_pod + seat // rails
        rail = group % d.pods_across * d.rails_per_pod + seat % rails
        leaf: Ints = (network * d.domains + domain) * d.rails + rail
        return leaf

    def inside(self, e: Ints) -> Ends:
        """Return the ends of cables inside groups: a router has ports for each other of its group, in order."""
        d = self.d
        network, own = e // self._first[-1], e % self._first[-1]
        group = np.searchsorted(self._first, own, side="right") - 1
        pair, k = divmod(own - self._first[group], d.leaf_bundle)
        low, high = two_of(pair)
        ports = d.leaf_down_used + (high - 1) * d.leaf_bundle + k, d.leaf_down_used + low * d.leaf_bundle + k
        return self._leaf(network, group, low), ports[0], self._leaf(network, group, high), ports[1]

    def _global_end(self, network: Ints, group: Ints, n: Ints) -> tuple[Ints, Ints]:
        """Return the router and port at the end of links of a group to others, over its routers in turn."""
        size = self._sizes[1][group]
        return self._leaf(network, group, n % size), self.d.leaf_down_used + (size - 1) * self.d.leaf_bundle + n // size

    def between(self, e: Ints) -> Ends:
        """Return the ends of cables between groups: each two groups have as many, over their routers in turn."""
        network, (low, high) = _group_pairs(self.d, e)
        return *self._global_end(network, *low), *self._global_end(network, *high)

    def wan_ends(self, network: Ints, n: Ints) -> tuple[Ints, Ints]:
        """Return the router and port at which links of a network's WAN gateway end, by number."""
        d = self.d
        group, own = n % d.pods, n // d.pods
        size = self._sizes[1][group]
        first = d.leaf_down_used + (size - 1) * d.leaf_bundle - (-d.pod_uplinks // size)
        return self._leaf(network, group, own % size), first + own // size


def router_stages(d: Dragonfly) -> list[Stage]:
    """Return the stages above the endpoints of a dragonfly: inside groups, then between them."""
    groups = RouterGroups(d)
    stages = Stage("leaf", "leaf", d.local_links, groups.inside), Stage("leaf", "leaf", d.global_links, groups.between)
    return [s for s in stages if s.count]


def router_wan_ends(d: Dragonfly, network: Ints, n: Ints) -> tuple[Ints, Ints]:
    """Return the router and port at which links of a network's WAN gateway end, by number."""
    return RouterGroups(d).wan_ends(network, n)


def spine_group_stages(d: DragonflyPlus) -> list[Stage]:
    """Return the stages above the leaves of a dragonfly+: inside groups, then between them."""
    inside = Stage("leaf", "spine", d.local_links, lambda e: leaf_uplinks(d, e))
    return [inside, Stage("spine", "spine", d.global_links, lambda e: _between_spines(d, e))]


def spine_group_wan_ends(d: DragonflyPlus, network: Ints, n: Ints) -> tuple[Ints, Ints]:
    """Return the spine and port at which links of a network's WAN gateway end, by number."""
    group, own, s = n % d.pods, n // d.pods, d.spines_per_pod
    return (network * d.pods + group) * s + own % s, d.spine_down + d.global_ports + own // s


def _between_spines(d: DragonflyPlus, e: Ints) -> Ends:
    """Return the ends of cables between groups: each two groups have as many, over their spines in turn."""
    network, ends = _group_pairs(d, e)
    s = d.spines_per_pod
    low, high = (((network * d.pods + group) * s + n % s, d.spine_down + n // s) for group, n in ends)
    return *low, *high


def _group_pairs(d: Dragonfly, e: Ints) -> tuple[Ints, tuple[tuple[Ints, Ints], tuple[Ints, Ints]]]:
    """Return the network of links between groups, and the group and the link's number there at both ends."""
    each = d.pods * (d.pods - 1) // 2 * d.group_links
    pair, k = divmod(e % each, d.group_links)
    low, high = two_of(pair)
    return e // each, ((low, (high - 1) * d.group_links + k), (high, low * d.group_links + k))


def two_of(pair: Ints) -> tuple[Ints, Ints]:
    """Return the members i < j of pairs by number j·(j - 1)/2 + i."""
    high = ((1 + np.sqrt(1 + 8 * pair.astype(np.float64))) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > pair
    high += high * (high + 1) // 2 <= pair
    return pair - high * (high - 1) // 2, high


def router_runs(places: Places, d: Dragonfly) -> Iterator[CableRun]:
    """Yield the cables of each stage of a dragonfly, those of GPUs first; routers stand amid their group's racks."""
    yield endpoint_metres(places, d.racks_around("leaf")), d.endpoint_links // d.racks
    yield beside_metres(places), d.local_links
    yield from _global_runs(places, d)


def spine_group_runs(places: Places, d: DragonflyPlus) -> Iterator[CableRun]:
    """Yield the cables of each stage of a dragonfly+, those of GPUs first; leaves stand amid their domain's racks."""
    domain, pod = d.domain_racks, d.racks_around("spine")
    yield endpoint_metres(places, domain), d.endpoint_links // d.racks
    yield leaf_metres(places, np.arange(0, d.racks, domain), domain, pod), d.networks * d.rails * d.leaf_up
    yield from _global_runs(places, d)


def _global_runs(places: Places, d: Dragonfly) -> Iterator[CableRun]:
    """Yield the cables between groups: those whose groups stand at one place, then those between places."""
    pod, across, links = d.racks_around("spine"), d.pods_across, d.networks * d.group_links
    yield beside_metres(places), links * len(range(0, d.racks, pod)) * (across * (across - 1) // 2)
    for metres in group_metres(places, pod):
        yield metres, links * across**2


def group_wan_runs(places: Places, d: Dragonfly) -> Iterator[CableRun]:
    """Yield the cables between the WAN gateway, amid the site, and the groups in turn, each amid its racks."""
    links = d.networks * group_wan_links(d.wan_ports, d.pods, d.pods_across)
    yield group_wan_metres(places, d.racks_around("spine")), links
