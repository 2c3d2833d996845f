"""Which directed links each flow loads, and how much: the three transports on one tree.

A route is a set of (link, weight): a flow of rate x loads the link with weight · x. Next hops are those from which the
target can still be reached, as a routing protocol that withdraws dead routes leaves them.
"""

from dataclasses import dataclass

import numpy as np

from planner.errors import InputError
from planner.simulation import rng
from planner.simulation.flow_classes import Classes
from planner.simulation.live_cables import Alive, Flows
from planner.simulation.rng import Floats, Ints
from planner.simulation.tree import Tree

MAX_ENTRIES = 40_000_000  # pairs of flow and link in memory at once: about 90 bytes each at work
CHUNK = 1 << 22  # pairs of flow and switch worked on together: 32 MB an array


@dataclass(frozen=True, kw_only=True, eq=False)
class Routes:
    """The links of every part of every flow, part by part.

    Attributes
    ----------
    start
        First entry of each part, and behind the last one their number.
    link, hop, weight
        Of each entry, in the order of travel; entries of one hop share what arrives there.
    flow
        Flow that each part belongs to; a flow is done when its last part is.
    size
        Bytes of each part.
    capacity
        Bytes per second of each directed link.
    after
        Part whose last byte leaves the host before the first of this one; -1 where none does.
    """

    start: Ints
    link: Ints
    hop: Ints
    weight: Floats
    flow: Ints
    size: Floats
    capacity: Floats
    after: Ints

    @property
    def parts(self) -> int:
        """Parts of flows."""
        return len(self.size)

    def owner(self) -> Ints:
        """Return the part that each entry belongs to."""
        return np.repeat(np.arange(self.parts), np.diff(self.start))

    def load(self, amount: Floats) -> Floats:
        """Return the sum over parts of weight · amount on every link."""
        return np.bincount(self.link, self.weight * amount[self.owner()], len(self.capacity)).astype(np.float64)

    def fullest_seconds(self) -> float:
        """Return the largest load over capacity of any link: no sharing of links ends sooner.

        Equal flows that share links max-min fairly end then.
        """
        return float((self.load(self.size) / np.maximum(self.capacity, 1e-300)).max()) if self.parts else 0.0


@dataclass(slots=True)
class Entries:
    """Collects entries in any order and sorts them into routes."""

    part: list[Ints]
    link: list[Ints]
    hop: list[Ints]
    weight: list[Floats]

    def add(self, part: Ints, link: Ints, hop: int, weight: Floats | float = 1.0) -> None:
        """Add one entry a part; a weight of 0 is left out."""
        weights = np.broadcast_to(np.asarray(weight, float), link.shape)
        kept = weights > 0
        self.part.append(part[kept])
        self.link.append(link[kept])
        self.hop.append(np.full(np.count_nonzero(kept), hop))
        self.weight.append(weights[kept])

    def routes(self, flow: Ints, size: Floats, capacity: Floats, after: Ints | None = None) -> Routes:
        """Sort what was added by part and hop."""
        part, link, hop = (np.concatenate([*x, np.empty(0, np.int64)]) for x in (self.part, self.link, self.hop))
        rank = np.lexsort((hop, part))
        return Routes(
            start=np.concatenate([[0], np.cumsum(np.bincount(part, minlength=len(size)))]),
            link=link[rank],
            hop=hop[rank],
            weight=np.concatenate([*self.weight, np.empty(0)])[rank],
            flow=flow,
            size=size,
            capacity=capacity,
            after=np.full(len(size), -1) if after is None else after,
        )


def hop_of(tree: Tree, tier: int, down: int) -> int:
    """Return where on a path the links at the foot of a tier come: up tier by tier, then down."""
    return 2 * tree.tiers - 1 - tier if down else tier


def ecmp(tree: Tree, flows: Flows, seed: int, alive: Alive | None = None) -> Routes:
    """Return every flow's route over one path of each plane, picked hop by hop by a hash.

    Parallel cables are next hops of their own. Hashes at different switches are independent (no polarisation).
    """
    entries, planes = Entries([], [], [], []), len(tree.planes)
    flow = np.arange(len(flows))
    for plane in range(planes):
        part = plane * len(flows) + flow
        for tier, who in _by_meeting_tier(tree, flows):
            chunks = [who] if alive is None else np.array_split(who, max(1, len(who) * tree.widths[tier] // CHUNK))
            for f in chunks:
                key = seed, plane
                links = alive.hashed(flows, f, tier, key) if alive else _hashed(tree, flows, f, tier, key)
                for n, link in enumerate(links):
                    entries.add(part[f], link, hop_of(tree, n // 2, n % 2))
    return entries.routes(np.tile(flow, planes), np.tile(flows.size / planes, planes), tree.capacity())


def _by_meeting_tier(tree: Tree, flows: Flows) -> list[tuple[int, Ints]]:
    """Return the flows that turn round at each tier."""
    meeting = tree.meeting_tier(flows.source, flows.target)
    return [(t, np.flatnonzero(meeting == t)) for t in range(1, tree.tiers + 1) if (meeting == t).any()]


def _hashed(tree: Tree, flows: Flows, f: Ints, tier: int, seed: tuple[int, int]) -> list[Ints]:
    """Return the links of each flow over a position and a lane picked at every hop, all of them alive."""
    links, position = [], np.zeros(len(f), np.int64)
    for t in range(tier):
        pick = rng.below(tree.up[t] * tree.bundle[t], *seed, 2 * t, f)
        position = position * tree.up[t] + pick // tree.bundle[t]
        lane = rng.below(tree.bundle[t], *seed, 2 * t + 1, f)
        up = tree.cable(t, tree.subtree(flows.source[f], t), position, pick % tree.bundle[t])
        down = tree.cable(t, tree.subtree(flows.target[f], t), position, lane)
        links += [tree.link(up, down=False, plane=seed[1]), tree.link(down, down=True, plane=seed[1])]
    return links


def spray(tree: Tree, flows: Flows, alive: Alive | None = None) -> Routes:
    """Return the routes of flows split evenly over all equal-cost next hops and planes: packet spraying.

    The split is even over live next hops and not weighted by what they lead to, so where links have failed, and where
    planes differ, the weaker path slows the entire flow.
    """
    if alive is not None:
        return _sprayed_around(tree, flows, Classes(alive))
    flow, planes = np.arange(len(flows)), len(tree.planes)
    entries, merged = Entries([], [], [], []), tree.condensed()
    for plane in range(planes):
        for tier, who in _by_meeting_tier(tree, flows):
            for n, link in enumerate(_hashed(merged, flows, who, tier, (0, plane))):
                entries.add(plane * len(flows) + who, link, hop_of(tree, n // 2, n % 2))
    return entries.routes(np.tile(flow, planes), np.tile(flows.size / planes, planes), merged.capacity())


def _sprayed_around(tree: Tree, flows: Flows, classes: Classes) -> Routes:
    """Return the routes of flows sprayed over what failures leave, cables that are alike as one."""
    flow, planes, entries = np.arange(len(flows)), len(tree.planes), Entries([], [], [], [])
    turns = _by_meeting_tier(tree, flows)
    _refuse_large(planes * sum(len(who) * classes.entries(tier) for tier, who in turns))
    for plane in range(planes):
        for tier, who in turns:
            for f in np.array_split(who, max(1, len(who) * classes.entries(tier) // CHUNK)):
                for n, (link, share) in enumerate(classes.shared(flows, f, tier, plane)):
                    part = np.repeat(plane * len(flows) + f, share.shape[1])
                    entries.add(part, link.ravel(), hop_of(tree, n // 2, n % 2), share.ravel())
    return entries.routes(np.tile(flow, planes), np.tile(flows.size / planes, planes), classes.capacity())


def _refuse_large(entries: int) -> None:
    if entries > MAX_ENTRIES:
        raise InputError(
            f"simulate: spraying around failed links loads {entries:,} pairs of flow and link > {MAX_ENTRIES:,}; take "
            "fewer hosts, or fewer failed links"
        )
