"""Which directed links each flow loads, and how much: the three transports on one tree.

A route is a set of (link, weight): a flow of rate x loads the link with weight · x. Next hops are those from which the
target can still be reached, as a routing protocol that withdraws dead routes leaves them.
"""

from dataclasses import dataclass

import numpy as np

from planner.errors import InputError
from planner.simulation import dice
from planner.simulation.classes import Classes
from planner.simulation.dice import Floats, Ints
from planner.simulation.tree import Tree

MOST_ENTRIES = 40_000_000  # pairs of flow and link that are held at once: about 90 bytes each at work
CHUNK = 1 << 22  # pairs of flow and switch that are looked at together


@dataclass(frozen=True, kw_only=True, eq=False)
class Flows:
    """Who sends how much to whom; ends are slots of the tree."""

    source: Ints
    target: Ints
    size: Floats

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, kw_only=True, eq=False)
class Routes:
    """The links of every part of every flow, part by part.

    Attributes
    ----------
    start
        First entry of each part, and behind the last one their number.
    link, weight
        Of each entry.
    flow
        Flow that each part belongs to; a flow is done when its last part is.
    size
        Bytes of each part.
    capacity
        Bytes per second of each directed link.
    """

    start: Ints
    link: Ints
    weight: Floats
    flow: Ints
    size: Floats
    capacity: Floats

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


@dataclass(slots=True)
class Entries:
    """Collects entries in any order and sorts them into routes."""

    part: list[Ints]
    link: list[Ints]
    weight: list[Floats]

    def add(self, part: Ints, link: Ints, weight: Floats | float) -> None:
        """Add one entry a part; a weight of 0 is left out."""
        weights = np.broadcast_to(np.asarray(weight, float), link.shape)
        held = weights > 0
        self.part.append(part[held])
        self.link.append(link[held])
        self.weight.append(weights[held])

    def routes(self, flow: Ints, size: Floats, capacity: Floats) -> Routes:
        """Sort what was added by part."""
        part = np.concatenate([*self.part, np.empty(0, np.int64)])
        rank = np.argsort(part, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=len(size)))])
        link = np.concatenate([*self.link, np.empty(0, np.int64)])[rank]
        return Routes(start=start, link=link, weight=np.concatenate([*self.weight, np.empty(0)])[rank], flow=flow, size=size, capacity=capacity)


def ecmp(tree: Tree, flows: Flows, seed: int, alive: "Alive | None" = None) -> Routes:
    """Route every flow over one path of each plane, picked hop by hop by a hash; a message is cut evenly over the planes.

    Parallel cables are next hops of their own. Hashes at different switches are independent (no polarisation).
    """
    held, planes = Entries([], [], []), len(tree.planes)
    flow = np.arange(len(flows))
    for plane in range(planes):
        part = plane * len(flows) + flow
        for tier, who in _by_meeting_tier(tree, flows):
            chunks = [who] if alive is None else np.array_split(who, max(1, len(who) * tree.widths[tier] // CHUNK))
            for f in chunks:
                hops = _hashed(tree, flows, f, tier, (seed, plane)) if alive is None else alive.hashed(flows, f, tier, (seed, plane))
                for link in hops:
                    held.add(part[f], link, 1.0)
    return held.routes(np.tile(flow, planes), np.tile(flows.size / planes, planes), tree.capacity())


def _by_meeting_tier(tree: Tree, flows: Flows) -> list[tuple[int, Ints]]:
    """Return the flows that turn round at each tier."""
    meeting = tree.meeting_tier(flows.source, flows.target)
    return [(t, np.flatnonzero(meeting == t)) for t in range(1, tree.tiers + 1) if (meeting == t).any()]


def _hashed(tree: Tree, flows: Flows, f: Ints, tier: int, seed: tuple[int, int]) -> list[Ints]:
    """Pick a position and a lane at every hop, all of them alive."""
    found, position = [], np.zeros(len(f), np.int64)
    for t in range(tier):
        pick = dice.below(tree.up[t] * tree.bundle[t], *seed, 2 * t, f)
        position = position * tree.up[t] + pick // tree.bundle[t]
        lane = dice.below(tree.bundle[t], *seed, 2 * t + 1, f)
        up = tree.cable(t, tree.subtree(flows.source[f], t), position, pick % tree.bundle[t])
        down = tree.cable(t, tree.subtree(flows.target[f], t), position, lane)
        found += [tree.link(up, down=False, plane=seed[1]), tree.link(down, down=True, plane=seed[1])]
    return found


def spray(tree: Tree, flows: Flows, alive: "Alive | None" = None) -> Routes:
    """Split every flow evenly over all equal-cost next hops at every hop, planes included: packet spraying that knows no load.

    The split is even over living next hops and not weighted by what they lead to, so where links have failed, and where
    planes differ, the weaker path sets the pace of the whole flow.
    """
    if alive is not None:
        return _sprayed_around(tree, flows, Classes(alive))
    flow, planes = np.arange(len(flows)), len(tree.planes)
    held, merged = Entries([], [], []), tree.condensed()
    for plane in range(planes):
        for tier, who in _by_meeting_tier(tree, flows):
            for link in _hashed(merged, flows, who, tier, (0, plane)):
                held.add(who, link, 1 / planes)
    return held.routes(flow, flows.size.astype(float), merged.capacity())


def _sprayed_around(tree: Tree, flows: Flows, classes: Classes) -> Routes:
    """Spray over what failures leave, cables that are alike as one."""
    flow, planes, held = np.arange(len(flows)), len(tree.planes), Entries([], [], [])
    turns = _by_meeting_tier(tree, flows)
    _refuse_large(planes * sum(len(who) * classes.entries(tier) for tier, who in turns))
    for plane in range(planes):
        for tier, who in turns:
            for f in np.array_split(who, max(1, len(who) * classes.entries(tier) // CHUNK)):
                for link, share in classes.shared(flows, f, tier, plane):
                    held.add(np.repeat(f, share.shape[1]), link.ravel(), share.ravel() / planes)
    return held.routes(flow, flows.size.astype(float), classes.capacity())


def _refuse_large(entries: int) -> None:
    if entries > MOST_ENTRIES:
        raise InputError(
            f"simulate: spraying around failed links loads {entries:,} pairs of flow and link > {MOST_ENTRIES:,} that fit; "
            "take fewer hosts, or fewer failed links"
        )


class Alive:
    """Which cables live, and what that leaves of the next hops."""

    def __init__(self, tree: Tree, failed: Ints) -> None:
        """Take the failed cables out; `failed` numbers cables between switches, plane after plane."""
        self.tree = tree
        each = sum(tree.cables[1:])
        self.lanes = np.ones((len(tree.planes), sum(tree.cables)), bool)
        self.lanes[failed // max(each, 1), tree.cables[0] + failed % max(each, 1)] = False
        self.counts = [
            np.add.reduce(self.lanes[:, first : first + n].reshape(len(tree.planes), subtrees, -1, bundle), axis=3)
            for first, n, subtrees, bundle in zip(tree.offsets, tree.cables, tree.subtrees, tree.bundle, strict=False)
        ]

    def capacity(self) -> Floats:
        """Return bytes per second of every directed bundle."""
        one = [np.concatenate([n[p].ravel() * r for n, r in zip(self.counts, self.tree.rates, strict=True)]) for p in range(len(self.tree.planes))]
        return np.concatenate([share * x for share, x in zip(self.tree.planes, one, strict=True) for _ in (0, 1)])

    def hops(self, flows: Flows, f: Ints, tier: int, plane: int) -> list[Ints]:
        """Return, for every tier below the turn, how many living next hops lead to each position (flow by position)."""
        tree, last = self.tree, self.tree.widths[tier]
        valid, ups = np.ones((len(f), last), bool), []
        for t in range(tier):
            up = self.counts[t][plane, tree.subtree(flows.source[f], t)]
            down = self.counts[t][plane, tree.subtree(flows.target[f], t)]
            valid &= np.repeat((up > 0) & (down > 0), last // tree.widths[t + 1], axis=1)
            ups.append(up)
        if not valid.any(axis=1).all():
            lost = f[np.flatnonzero(~valid.any(axis=1))[0]]
            raise InputError(
                f"simulate: with the failed links no path leads from leaf {flows.source[lost] // tree.down[0]} to leaf "
                f"{flows.target[lost] // tree.down[0]} in plane {plane}; fail fewer links"
            )
        return [u * valid.reshape(len(f), tree.widths[t + 1], -1).any(axis=2) for t, u in enumerate(ups)]

    def hashed(self, flows: Flows, f: Ints, tier: int, seed: tuple[int, int]) -> list[Ints]:
        """Pick a living next hop at every hop by a hash."""
        tree, found, rows = self.tree, [], np.arange(len(f))
        position = np.zeros(len(f), np.int64)
        for t, hops in enumerate(self.hops(flows, f, tier, seed[1])):
            here = hops.reshape(len(f), tree.widths[t], tree.up[t])[rows, position]
            reached = np.cumsum(here, axis=1)
            pick = dice.below(reached[:, -1], *seed, 2 * t, f)
            choice = (reached <= pick[:, None]).sum(axis=1)
            rank = pick - np.where(choice > 0, reached[rows, choice - 1], 0)
            position = position * tree.up[t] + choice
            back = dice.words(*seed, 2 * t + 1, f)
            for down, end in enumerate((flows.source[f], flows.target[f])):
                cable = tree.cable(t, tree.subtree(end, t), position)
                living = np.cumsum(self.lanes[seed[1]][cable[:, None] + np.arange(tree.bundle[t])], axis=1)
                wanted = (back % living[:, -1].astype(np.uint64)).astype(np.int64) if down else rank
                found.append(tree.link(cable + (living <= wanted[:, None]).sum(axis=1), down=bool(down), plane=seed[1]))
        return found
