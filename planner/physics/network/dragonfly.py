"""Counts of dragonfly and dragonfly+ fabrics: groups of switches, every two groups joined by as many links, no core.

Dragonfly (Kim, Dally, Scott and Abts, ISCA 2008): a group is a routers, each with p endpoints, a bundle to every other
router of its group and h links to other groups, p + (a - 1)·b + h <= k ports, so g <= a·h + 1 groups. Dragonfly+
(Shpiner et al., HiPINEB 2017): a group is leaves below spines, and the links to other groups leave from the spines: g
<= s·h + 1. A group is a pod, x rails of y leaf domains; those at the edge may be smaller. The links of a
group go to its switches in turn, so that they differ by at most one. So do the links of a WAN gateway: it has no tier
above to go to, and sends them to the groups in turn, and in each to the routers in turn, or to the spines of a
dragonfly+.

Flows take shortest paths, or (`valiant`) each goes by way of a random link out of its group, and in the group that this
leads to by way of a random leaf, as do those inside a group (Valiant 1982): twice the links, but no pair of groups is
ever overrun. The links that a flow is assured of, at the worst choice of who sends to whom:

- Shortest paths: all flows that leave a group may go to one other group and share the m links between the two. Between
  two routers there is one bundle b, for what the one sends, and for what the other gets from other groups: b/2 each. Up
  to the spines of a dragonfly+, evenly over all s where each has whole shares of the pair's links, else over m of them.
- Valiant: what leaves a group and what passes through share its L = (g - 1)·m links evenly: L/2. A switch of n in a
  group has ceil(L/n) of the links, a share of at most q = (1 + (n - 1)/L)/n. Between two routers go q of what the one
  sends, q of what the other gets, and, by way of a random router, 1/n of the q of what passes through that ends or
  begins at either: b/(2q·(1 + a/n)) for a group of a routers that sends by way of one of n. Up to a spine likewise go q
  of what a leaf sends and 1/n of the q of what passes through.

Groups are numbered within all networks as pods are. Link n of a group to others goes to its switch n mod (their
number), and takes the port n div (their number) after those inside the group; the links to one other group follow each
other. Link n of a WAN gateway goes to group n mod (their number), there to each switch in turn, at the ports after all
others.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from planner.physics import Num
from planner.physics.network.cable_lengths import Places
from planner.physics.network.clos_fabric import TIERS, CableRun, Design, Ends, Ints, Stage

MOST_COMPARED = 1 << 20  # ends of cables over all turns of the halves of groups: of more cables, fewer turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Dragonfly(Design):
    """A dragonfly: groups of routers, `leaf_bundle` links between two of a group, `group_links` between two groups."""

    grouped: ClassVar[bool] = True
    tier_names: ClassVar[tuple[str, ...]] = TIERS[:1]

    @classmethod
    def of(cls, **choices: Any) -> Self:
        """Return a dragonfly with the uplink ports that its bundles and groups make."""
        design = cls(**{**choices, "leaf_up": choices.get("leaf_up") or 1})
        return replace(design, leaf_up=choices.get("leaf_up") or design.local_ports, spine_up=design.global_ports)

    @property
    def group_sizes(self) -> Counter[int]:
        """Count the groups of one network of a dragonfly by their number of leaves: {leaves of a group: groups}."""
        rails, domains = part_sizes(self.rails, self.rails_per_pod), part_sizes(self.domains, self.domains_per_pod)
        sizes: Counter[int] = Counter()
        for x, y in product(rails, domains):
            sizes[x * y] += rails[x] * domains[y]
        return sizes

    @property
    def pod_uplinks(self) -> int:
        """Count the links that leave a group of the dragonfly."""
        return (self.pods - 1) * self.group_links

    @property
    def local_links(self) -> int:
        """Count the cables inside the groups of a dragonfly."""
        if self.tiers > 1:
            return self.leaves * self.leaf_up
        return self.networks * self.leaf_bundle * sum(n * a * (a - 1) // 2 for a, n in self.group_sizes.items())

    @property
    def global_links(self) -> int:
        """Count the cables between the groups of a dragonfly."""
        return self.networks * self.group_links * (self.pods * (self.pods - 1) // 2)

    @property
    def switch_pairs(self) -> int:
        """Count the pairs of a dragonfly's switches that a bundle joins; links between groups count one by one."""
        return self.local_links // self.leaf_bundle + self.global_links

    def router_ports(self, size: int) -> int:
        """Count the ports of a dragonfly's router towards other routers, in a group of `size` routers."""
        return (size - 1) * self.leaf_bundle + math.ceil(self.pod_uplinks / size)

    @property
    def up_port_range(self) -> tuple[int, int]:
        """Count the ports of dragonfly routers towards other switches: of the router with the fewest, and the most."""
        fewest = ((a - 1) * self.leaf_bundle + self.pod_uplinks // a for a in self.group_sizes)
        return min(fewest), max(self.router_ports(a) for a in self.group_sizes)

    @property
    def bisection_share(self) -> float:
        """Return the share of endpoints' rate that crosses the narrowest cut tried between halves of a dragonfly."""
        return narrowest_share(self)

    @property
    def exits(self) -> dict[str, float]:
        """Return the links assured to the traffic that leaves a leaf and, where a dragonfly has several, a group."""
        spines = self.spines_per_pod if self.tiers > 1 else None
        own: dict[str, Any] = {"links": self.group_links, "groups": self.pods, "valiant": self.valiant}
        leaf, pod = assured_links(self.group_sizes, self.leaf_bundle, spines, **own)
        return {"leaf": np.asarray(leaf).item()} | ({"pod": np.asarray(pod).item()} if self.spine_up else {})

    def faults(self) -> list[str]:
        """Return the faults of a dragonfly's wiring: ports or bundles that do not add up."""
        rails, domains, bundle, up = self.rails_per_pod, self.domains_per_pod, self.leaf_bundle, self.leaf_up
        routers, ports = self.tiers == 1, self.tier_ports["spine"]
        if routers and min(rails, domains, bundle) < 1:
            return [f"group: {rails} rails, {domains} domains, bundles of {bundle}; at least 1 of each"]
        if not routers and (min(bundle, up, rails, domains) < 1 or up % bundle):
            return [f"leaf bundle: {up} uplinks are not whole bundles of {bundle}"]
        bad = self._leaf_faults(max(self.up_port_range))
        if self.pods == 1 and routers and self.leaves == self.networks:
            bad.append("groups: 1 of 1 router; several groups, or routers, expected")
        if self.pods == 1 and not routers:
            bad.append("groups: 1; several expected")
        if not routers and self.spine_down + self.global_ports > ports:
            bad.append(f"spine ports: {self.spine_down} down + {self.global_ports} global > {ports} ports")
        if self.pods == 1 and self.group_links:
            bad.append(f"groups: 1 with {self.group_links} links to others")
        if self.pods > 1 and self.group_links < 1:
            bad.append(f"reach: {self.pods} groups and {self.group_links} links between two of them")
        if self.spine_up != self.global_ports or (routers and up != self.local_ports):
            bad.append(f"ports: {up} local and {self.spine_up} global stated, bundles and groups make others")
        return bad or self._wan_gateway_faults()

    @property
    def top_ports(self) -> tuple[int, int]:
        """Count ports taken, and links from the WAN gateway, of the dragonfly's switch with the fewest ports free."""
        links = math.ceil(self.wan_ports / self.pods)  # of the group with the most
        if self.tiers > 1:  # spines of all groups have as many
            return self.spine_down + self.global_ports, math.ceil(links / self.spines_per_pod)
        ends = math.ceil((self.leaf_down + self.leaf_spare) / self.split)
        return max(((ends + self.router_ports(a), math.ceil(links / a)) for a in self.group_sizes), key=sum)

    def exchange_loads(self, gbps: float, *shares: float) -> dict[str, tuple[float, float]]:
        """Return for a dragonfly's leaf and group the links that the exchange between sites takes, and all assured."""
        if not self.wan_ports:
            return {}
        rails, routers = (self.rails, self.rails_per_pod), 0 if self.tiers > 1 else min(self.group_sizes)
        leaf_links = gbps / (self.networks * self.rails) / self.link_gbps
        worth = exchanged_links(leaf_links, shares, rails, self.wan_ports, self.pods, routers, valiant=self.valiant)
        return {block: (load, links) for (block, links), load in zip(self.exits.items(), worth, strict=False)}

    @property
    def local_ports(self) -> int:
        """Count the ports of a dragonfly's router towards the others of a full group."""
        return (max(self.group_sizes) - 1) * self.leaf_bundle

    @property
    def global_ports(self) -> int:
        """Count the ports towards other groups of a spine, or router of a full group, of the dragonfly."""
        return math.ceil(self.pod_uplinks / (self.spines_per_pod if self.tiers > 1 else max(self.group_sizes)))

    def stages(self) -> list[Stage]:
        """Return the stages above the endpoints of a dragonfly: inside groups, then between them."""
        top = self.tier_names[-1]
        stages = [Stage("leaf", top, self.local_links, self.inside), Stage(top, top, self.global_links, self.between)]
        return [stage for stage in stages if stage.count]

    def leaf(self, network: Ints, group: Ints, seat: Ints) -> Ints:
        """Return the number of a dragonfly's leaf, or router, by its seat in its group."""
        rails = group_shapes(self).rails[group]
        domain = group // self.pods_across * self.domains_per_pod + seat // rails
        rail = group % self.pods_across * self.rails_per_pod + seat % rails
        leaf: Ints = (network * self.domains + domain) * self.rails + rail
        return leaf

    def inside(self, link: Ints) -> Ends:
        """Return the ends of cables inside a dragonfly's groups: a router has ports for each other in order."""
        first, side = group_shapes(self).first, self.leaf_down_used
        network, own = link // first[-1], link % first[-1]
        group = np.searchsorted(first, own, side="right") - 1
        pair, k = divmod(own - first[group], self.leaf_bundle)
        low, high = two_of(pair)
        ports = side + (high - 1) * self.leaf_bundle + k, side + low * self.leaf_bundle + k
        return self.leaf(network, group, low), ports[0], self.leaf(network, group, high), ports[1]

    def out(self, network: Ints, group: Ints, number: Ints, *, behind: int = 0) -> tuple[Ints, Ints]:
        """Return the switch and port of links out of a dragonfly group, over its switches in turn, `behind` others."""
        if spines := self.spines_per_pod:
            port = self.spine_down + math.ceil(behind / spines) + number // spines
            return (network * self.pods + group) * spines + number % spines, port
        size = group_shapes(self).routers[group]
        first = self.leaf_down_used + (size - 1) * self.leaf_bundle - (-behind // size)
        return self.leaf(network, group, number % size), first + number // size

    def between(self, link: Ints) -> Ends:
        """Return the ends of cables between dragonfly groups: any two have as many, over their switches in turn."""
        each = self.pods * (self.pods - 1) // 2 * self.group_links
        network, (pair, k) = link // each, divmod(link % each, self.group_links)
        low, high = two_of(pair)
        first, second = (high - 1) * self.group_links + k, low * self.group_links + k
        return *self.out(network, low, first), *self.out(network, high, second)

    def wan_ends(self, network: Ints, number: Ints) -> tuple[Ints, Ints]:
        """Return the dragonfly's switch and port at which numbered links of a network's WAN gateway end."""
        return self.out(network, number % self.pods, number // self.pods, behind=self.pod_uplinks)

    def runs(self, places: Places) -> Iterator[CableRun]:
        """Yield a dragonfly's cables of each stage by length, GPUs' first; routers are amid their group's racks."""
        yield from Design.runs(self, places)  # those between tiers: none of a dragonfly
        if self.tiers == 1:
            yield places.adjacent_metres(), self.local_links
        pod, across, links = self.racks_around("spine"), self.pods_across, self.networks * self.group_links
        # Between groups at one place, then between places.
        yield places.adjacent_metres(), links * len(range(0, self.racks, pod)) * (across * (across - 1) // 2)
        for metres in places.group_metres(pod):
            yield metres, links * across**2

    def wan_runs(self, places: Places) -> Iterator[CableRun]:
        """Yield the cables by length between the WAN gateway, amid the site, and a dragonfly's groups in turn."""
        links = self.networks * group_wan_links(self.wan_ports, self.pods, self.pods_across)
        yield places.to_middle(self.racks_around("spine"), self.racks), links


@dataclass(frozen=True, slots=True, kw_only=True)
class DragonflyPlus(Dragonfly):
    """A dragonfly+: groups of leaves below spines; `leaf_bundle` links join a leaf to each spine of its group."""

    tier_names: ClassVar[tuple[str, ...]] = TIERS[:2]

    up_port_range = Design.up_port_range  # those of a tree's pod
    inside = Design.leaf_uplinks


class GroupShapes(NamedTuple):
    """The shapes of a dragonfly's groups in one network: rails and leaves, or routers, of each, and its first cable."""

    rails: Ints
    routers: Ints
    first: Ints  # of routers, the cable inside each group, and the one after the last


@lru_cache(maxsize=4)
def group_shapes(d: Dragonfly) -> GroupShapes:
    """Return the shapes of a dragonfly's groups; those at the edge may be smaller."""
    group = np.arange(d.pods, dtype=np.int64)
    rails = np.minimum(d.rails_per_pod, d.rails - group % d.pods_across * d.rails_per_pod)
    routers = rails * np.minimum(d.domains_per_pod, d.domains - group // d.pods_across * d.domains_per_pod)
    return GroupShapes(rails, routers, np.append(0, np.cumsum(routers * (routers - 1) // 2 * d.leaf_bundle)))


@lru_cache(maxsize=64)
def narrowest_share(d: Dragonfly) -> float:
    """Return the share of endpoints' rate, in NICs, that crosses the narrowest cut tried into halves of a dragonfly.

    The bisection is the least over all cuts, more than can be tried, and no more than any of these. Groups are whole
    but one, by rising or falling size, which is split or not; or each is halved, by its seats in turns, as those joined
    between groups are some turn apart. Endpoints that a half has too many move at a NIC each.
    """
    routers, leaves, spines = group_shapes(d).routers, d.leaves // d.networks, d.spines_per_pod
    half = narrowest = d.endpoint_links / d.networks / 2
    group = np.repeat(np.arange(d.pods), routers)
    size, seat = routers[group], np.arange(leaves) - np.searchsorted(group, group)
    node = d.leaf(np.zeros_like(group), group, seat)
    ends = np.minimum(d.domain_racks, d.racks - node // d.rails * d.domain_racks) * d.rail_gpus
    cables = [(stage, stage.ends(np.arange(stage.count // d.networks))) for stage in d.stages()]
    low = np.concatenate([of[0] + leaves * (stage.low == "spine") for stage, of in cables])
    high = np.concatenate([of[2] + leaves * (stage.high == "spine") for stage, of in cables])
    sides = list[NDArray[np.bool_]]()
    for order in (np.lexsort((seat, group, size)), np.lexsort((seat, group, -size))):
        split = np.isin(np.arange(leaves), order[np.cumsum(ends[order]) - ends[order] / 2 <= half])
        sides += [split, (np.bincount(group, split) * 2 > routers)[group]]
    turns = range(0, max(routers), 1 + max(routers) * len(low) // MOST_COMPARED)  # fewer for many cables
    for turn, swapped in product(turns, (group < 0, group % 2 > 0, group < d.pods // 2)):
        sides.append(((seat + turn * group) % size * 2 < size) ^ swapped)
    for side in sides:
        # Spines are on the side of most of their group's leaves, or all on one.
        share, moved = np.bincount(group, side) / routers, abs(float(ends[side].sum()) - half)
        for above in (share > 0.5, share >= 0.5, share >= 0) if spines else (share > 0.5,):
            one = np.concatenate([side[np.argsort(node)], np.repeat(above, spines)])
            narrowest = min(narrowest, float(np.count_nonzero(one[low] != one[high])) * d.link_nics + moved)
    return narrowest / half


def two_of(pair: Ints) -> tuple[Ints, Ints]:
    """Return the members i < j of pairs of a dragonfly's routers or groups, by number j·(j - 1)/2 + i."""
    high = ((1 + np.sqrt(1 + 8 * pair.astype(np.float64))) / 2).astype(np.int64)
    high -= high * (high - 1) // 2 > pair
    high += high * (high + 1) // 2 <= pair
    return pair - high * (high - 1) // 2, high


def part_sizes(items: int, size: int) -> dict[int, int]:
    """Return the sizes of a dragonfly's groups along one axis, and the count of each: full, perhaps one smaller."""
    full, rest = divmod(items, size)
    return {part: times for part, times in ((size, full), (rest, 1)) if part and times}


def assured_links(
    sizes: Collection[int], bundle: Num, spines: Num | None, *, links: Num, groups: int, valiant: bool
) -> tuple[Num, Num]:
    """Return the links of a dragonfly assured to what leaves a leaf, or router, and a group; numbers or arrays.

    A group has `spines` spines, None where it has routers alone, and `links` links to each other one.
    """
    total, several = (groups - 1) * links, [size for size in sizes if size > 1]
    if spines is not None and valiant:
        even = bundle * spines / (1 + max(sizes) / min(sizes))
        return even / (1 + np.where(total, (spines - 1) / np.maximum(total, 1), 0)), total / 2
    if spines is not None:
        return bundle * np.minimum(links, spines), np.where(links < spines, links, spines * (links // spines))
    pod = total / 2 if valiant else links
    if not several:  # out of a router goes what leaves the group
        return pod, pod
    if not valiant:
        return bundle / (1 + np.minimum(total, 1)), pod
    uneven = 1 + (min(several) - 1) / np.maximum(total, 1)  # a router's links over the mean, at most, in turn
    return bundle * (min(several) / 2 / np.where(total, uneven * (1 + max(several) / min(several)), 1)), pod


def exchanged_links(
    leaf_ports: float,
    shares: Sequence[Num],
    rails: tuple[int, int],
    ports: int,
    groups: int,
    routers: int,
    *,
    valiant: bool,
) -> tuple[Num, Num]:
    """Return how many links of a dragonfly's leaf and group the exchange between sites takes, of those assured.

    `shares`: of a stage's racks in one of each; `rails`: of a network and a group. The `ports` of the WAN gateway go to
    the groups in turn, in each to its routers, of which a group has `routers` or more, or (0) to its spines.
    """
    # A router may hold racks of the stage and ports of the WAN gateway, which share its links; a leaf below spines has
    # no such ports. By way of other groups flows share all links of theirs. On shortest paths those between two groups
    # carry what goes from the racks of the one to the ports of the other, and back.
    of_group = math.ceil(ports / groups)
    of_router, sent = math.ceil(of_group / routers) if routers else 0, leaf_ports * shares[1] * rails[1]
    group = sent + leaf_ports * rails[0] * (of_group / ports) if valiant else 2 * sent * (of_group / ports)
    return leaf_ports * shares[0] + leaf_ports * rails[0] * (of_router / ports), group


def group_wan_links(ports: int, groups: int, across: int) -> Ints:
    """Count the links of a dragonfly's WAN gateway to each place of groups: `across` groups at a place, in turn."""
    return np.bincount(np.arange(ports) % groups // across, minlength=-(-groups // across))
