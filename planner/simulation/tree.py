"""A folded Clos of any number of tiers, by numbers: which cable joins which switches is computed, never stored.

A switch of tier l is named by the subtree S below it and by its position P among the switches that serve that subtree.
Its parents are the w positions P·w + y of tier l + 1, each over b parallel cables; hosts are tier 0. So leaves, the
spines of a pod and groups of cores (`planner.physics.network.topology`) are one tree, and so are the k-ary fat trees of
the literature.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planner.simulation.rng import Floats, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """The wiring of one network.

    Attributes
    ----------
    down
        Children of a switch of each tier, leaves first: hosts, then subtrees of the tier below.
    up
        Switches above one switch of the tier below; 1 above a host.
    bundle
        Parallel cables to each of them.
    rates
        Bytes per second of one cable in one direction, all planes together.
    planes
        Share of a cable's rate that each plane has.
    slots
        Place of each host: leaf · down[0] + port.
    """

    down: tuple[int, ...]
    up: tuple[int, ...]
    bundle: tuple[int, ...]
    rates: tuple[float, ...]
    planes: tuple[float, ...] = (1.0,)
    slots: Ints

    @property
    def tiers(self) -> int:
        """Tiers of switches."""
        return len(self.down)

    @property
    def hosts(self) -> int:
        """Hosts."""
        return len(self.slots)

    @property
    def host_rate(self) -> float:
        """Bytes per second that one host sends at most, all planes together."""
        return self.rates[0] * sum(self.planes)

    @cached_property
    def spans(self) -> tuple[int, ...]:
        """Slots of a subtree of each tier; 1 of a host."""
        return tuple(math.prod(self.down[:t]) for t in range(self.tiers + 1))

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Positions of each tier: switches that serve one subtree."""
        return tuple(math.prod(self.up[:t]) for t in range(self.tiers + 1))

    @cached_property
    def subtrees(self) -> tuple[int, ...]:
        """Subtrees of each tier, empty ones between full ones too."""
        last = int(self.slots.max()) if len(self.slots) else 0
        return tuple(last // span + 1 for span in self.spans)

    @cached_property
    def cables(self) -> tuple[int, ...]:
        """Cables below each tier's switches, of one plane."""
        return tuple(self.subtrees[t] * self.widths[t + 1] * self.bundle[t] for t in range(self.tiers))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Number of the first cable below each tier's switches."""
        return tuple(sum(self.cables[:t]) for t in range(self.tiers))

    @property
    def links(self) -> int:
        """Directed links: every cable up and down in every plane."""
        return 2 * sum(self.cables) * len(self.planes)

    def subtree(self, slots: Ints, tier: int) -> Ints:
        """Return the subtree of a tier that each slot is in."""
        return slots // self.spans[tier]

    def meeting_tier(self, a: Ints, b: Ints) -> Ints:
        """Return the lowest tier whose switches reach both slots; 0 where they are the same."""
        meeting = np.zeros(len(a), np.int64)
        for tier in range(self.tiers):
            meeting += self.subtree(a, tier) != self.subtree(b, tier)
        return meeting

    def cable(self, tier: int, subtree: Ints, position: Ints, lane: Ints | int = 0) -> Ints:
        """Return the numbers of cables from a subtree below `tier` (0: leaves) to the switch at `position`.

        `lane`: the cable of their bundle.
        """
        return self.offsets[tier] + (subtree * self.widths[tier + 1] + position) * self.bundle[tier] + lane

    def link(self, cable: Ints, *, down: bool, plane: int) -> Ints:
        """Return the number of one direction of a cable in a plane."""
        return cable + (2 * plane + down) * sum(self.cables)

    def tier_of(self, links: Ints) -> Ints:
        """Return the tier (0: leaves) at whose foot each directed link is."""
        return np.searchsorted(np.asarray(self.offsets), links % sum(self.cables), side="right") - 1

    def capacity(self) -> Floats:
        """Return bytes per second of every directed link."""
        one = np.repeat(np.asarray(self.rates), self.cables)
        return np.concatenate([share * one for share in self.planes for _ in (0, 1)])

    def condensed(self) -> "Tree":
        """Return the tree with the switches of a subtree, and the cables to them, merged into one of their joint rate.

        An even split over equal-cost paths loads them evenly, so that one link stands for all: spraying without
        failures.
        """
        ones = (1,) * self.tiers
        rates = tuple(r * self.widths[t + 1] * self.bundle[t] for t, r in enumerate(self.rates))
        return replace(self, up=ones, bundle=ones, rates=rates)

    def bundled(self) -> "Tree":
        """Return the tree with parallel cables between two switches merged into one of their joint rate."""
        rates = tuple(r * self.bundle[t] for t, r in enumerate(self.rates))
        return replace(self, bundle=(1,) * self.tiers, rates=rates)
