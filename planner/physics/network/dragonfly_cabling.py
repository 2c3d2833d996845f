"""Every cable of a dragonfly above its leaves: inside groups, and between every two of them, by number.

Groups are numbered within all networks as pods are. Link n of a group to others goes to its switch n mod (their number),
and takes the port n div (their number) after those inside the group; the links to one other group follow each other. Link n
of a WAN gateway goes to group n mod (their number), there to each switch in turn, at the ports after all others.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus

Ints = NDArray[np.int64]
Ends = tuple[Ints, Ints, Ints, Ints]  # low box, its port, high box, its port


class Groups:
    """The routers of a dragonfly by group and seat; groups at the edge may have fewer."""

    def __init__(self, d: Dragonfly) -> None:
        self.d = d

    @cached_property
    def _sizes(self) -> tuple[Ints, Ints]:
        """Rails and routers of each group of one network."""
        d = self.d
        across = -(-d.rails // d.rails_per_pod)
        group = np.arange(d.pods, dtype=np.int64)
        rails = np.minimum(d.rails_per_pod, d.rails - group % across * d.rails_per_pod)
        return rails, rails * np.minimum(d.domains_per_pod, d.domains - group // across * d.domains_per_pod)

    @cached_property
    def _first(self) -> Ints:
        """Number of the first cable inside each group of a network, and of the one after the last."""
        a = self._sizes[1]
        return np.concatenate([[0], np.cumsum(a * (a - 1) // 2 * self.d.leaf_bundle)])

    def _leaf(self, network: Ints, group: Ints, seat: Ints) -> Ints:
        """Return the leaf at a seat of a group."""
        d, rails = self.d, self._sizes[0][group]
        across = -(-d.rails // d.rails_per_pod)
        domain = group // across * d.domains_per_pod + seat // rails
        leaf: Ints = (network * d.domains + domain) * d.rails + group % across * d.rails_per_pod + seat % rails
        return leaf

    def inside(self, e: Ints) -> Ends:
        """Each two routers of a group have a bundle; a router keeps a bundle of ports for each other of its group, in their order."""
        d = self.d
        network, own = e // self._first[-1], e % self._first[-1]
        group = np.searchsorted(self._first, own, side="right") - 1
        pair, k = divmod(own - self._first[group], d.leaf_bundle)
        low, high = two_of(pair)
        ports = d.leaf_down_used + (high - 1) * d.leaf_bundle + k, d.leaf_down_used + low * d.leaf_bundle + k
        return self._leaf(network, group, low), ports[0], self._leaf(network, group, high), ports[1]

    def between(self, e: Ints) -> Ends:
        """Each two groups have as many links, over their routers in turn."""
        network, ends = _links(self.d, e)
        found: list[Ints] = []
        for group, n in ends:
            size = self._sizes[1][group]
            found += [
                self._leaf(network, group, n % size),
                self.d.leaf_down_used + (size - 1) * self.d.leaf_bundle + n // size,
            ]
        return found[0], found[1], found[2], found[3]

    def wan_gateway(self, network: Ints, n: Ints) -> tuple[Ints, Ints]:
        """Return the switch and port of links of a network's WAN gateway, by number."""
        d = self.d
        group, own = n % d.pods, n // d.pods
        if isinstance(d, DragonflyPlus):
            s = d.spines_per_pod
            return (network * d.pods + group) * s + own % s, d.spine_down + d.global_ports + own // s
        size = self._sizes[1][group]
        first = d.leaf_down_used + (size - 1) * d.leaf_bundle - (-d.pod_uplinks // size)
        return self._leaf(network, group, own % size), first + own // size


def between_groups(d: DragonflyPlus, e: Ints) -> Ends:
    """Each two groups have as many links, over their spines in turn."""
    network, ends = _links(d, e)
    s = d.spines_per_pod
    low, high = (((network * d.pods + group) * s + n % s, d.spine_down + n // s) for group, n in ends)
    return *low, *high


def _links(d: Dragonfly, e: Ints) -> tuple[Ints, tuple[tuple[Ints, Ints], tuple[Ints, Ints]]]:
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
