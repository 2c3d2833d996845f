"""Networks to simulate, by numbers: a folded Clos of computed cables, a fat tree by its ports, hashed numbers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, model_validator

from planner.errors import InputError
from planner.instance.base import Count, Positive, Sourced, out_of_range
from planner.instance.read import validated

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

_STEP, _A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def words(*keys: ArrayLike) -> Words:
    """Hash integer keys, broadcast together, into 64 bits each.

    SplitMix64 (Steele, Lea and Flood 2014, figure 16), once a key.
    """
    state = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for key in keys:
            z = (state ^ np.asarray(key).astype(np.uint64)) + _STEP
            z = (z ^ (z >> np.uint64(30))) * _A
            z = (z ^ (z >> np.uint64(27))) * _B
            state = z ^ (z >> np.uint64(31))
    return np.asarray(state, np.uint64)


def below(n: ArrayLike, *keys: ArrayLike) -> Ints:
    """Draw whole numbers from 0 to n - 1."""
    return (words(*keys) % np.asarray(n).astype(np.uint64)).astype(np.int64)


def order(count: int, *keys: int) -> Ints:
    """Draw an order of `count` things."""
    return np.argsort(words(*keys, np.arange(count)), kind="stable")


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """The wiring of one network, tier by tier from the leaves up."""

    down: tuple[int, ...]  # children of a switch: hosts of a leaf, then subtrees of the tier below
    up: tuple[int, ...]  # switches above one switch of the tier below; 1 above a host
    bundle: tuple[int, ...]  # parallel cables to each of them
    rates: tuple[float, ...]  # bytes per second of one cable in one direction, all planes together
    planes: tuple[float, ...] = (1.0,)  # share of a cable's rate that each plane has
    slots: Ints  # place of each host: leaf · down[0] + port

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


MAX_HOSTS = 1 << 20  # of a fabric: more flows than these do not fit the memory


class Fabric(Sourced):
    """A fat tree of equal switches; without down_ports it is k-ary: half of the ports face down below the top."""

    name: str = "fabric"
    hosts: Annotated[int, Field(ge=2, le=MAX_HOSTS)] = Field(description="Hosts, each with one port on a leaf.")
    ports_per_switch: Annotated[int, Field(ge=2, le=4096)]
    tiers: Annotated[int, Field(ge=1, le=4)] = 3
    oversubscription: tuple[Annotated[float, Field(ge=1)], ...] = Field(
        (), description="Ports down over ports up of each tier below the top, leaves first; 1 where absent."
    )
    down_ports: tuple[Count, ...] = Field(
        (), description="Ports down of each tier below the top, leaves first; half of the ports where absent."
    )
    host_gbps: Positive = Field(800.0, description="Rate of one host, and of every cable, all planes together.")
    plane_shares: tuple[Positive, ...] = Field(
        (1.0,), min_length=1, description="Share of a cable's rate that each plane has; unequal ones differ."
    )
    failed_cables: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (),
        description="Cables between switches that are out, by number: leaf by leaf, spine by spine, plane by plane.",
    )

    @model_validator(mode="after")
    def _wirable(self) -> Self:
        for key in ("oversubscription", "down_ports"):
            if len(getattr(self, key)) > self.tiers - 1:
                given = f"one for each tier below the top (has {len(getattr(self, key))})"
                raise ValueError(f"{key} must have at most {self.tiers - 1} entries, {given}")
        if abs(sum(self.plane_shares)) > 1 + 1e-9:
            raise ValueError(f"plane_shares must add up to 1 at most (add up to {sum(self.plane_shares):g})")
        for t, (down, ratio) in enumerate(zip(self.downs, self.ratios, strict=True)):
            up = down / ratio
            if round(up) < 1 or abs(up - round(up)) > 1e-9:
                hint = f"give another or down_ports[{t}]"
                raise ValueError(
                    f"oversubscription[{t}] leaves {up:g} ports up of {down} down, not a whole number; {hint}"
                )
            if down + round(up) > self.ports_per_switch:
                ports = f"{down} ports down + {round(up)} up > {self.ports_per_switch} ports"
                raise ValueError(f"tier {t} takes {ports}; lower down_ports[{t}]")
        reach = math.prod(self.downs) * self.ports_per_switch
        if self.hosts > reach:
            tiers = f"{self.tiers} tiers of {self.ports_per_switch} ports"
            raise ValueError(f"hosts must be at most {reach}, which {tiers} reach (is {self.hosts})")
        return self

    @property
    def downs(self) -> tuple[int, ...]:
        """Ports down of each tier below the top."""
        half = (self.ports_per_switch // 2,)
        return self.down_ports + half * (self.tiers - 1 - len(self.down_ports))

    @property
    def ratios(self) -> tuple[float, ...]:
        """Oversubscription of each tier below the top."""
        return self.oversubscription + (1.0,) * (self.tiers - 1 - len(self.oversubscription))


def load_fabric(data: Any, where: str = "fabric") -> Fabric:
    """Check a fabric."""
    if not isinstance(data, Mapping):
        example = '{"hosts": 1024, "ports_per_switch": 16}'
        raise InputError(f"{where}: must be a plan or a fabric (is {type(data).__name__}); give one such as {example}")
    return validated(Fabric, dict(data), where, problems=out_of_range)


def tree_of_fabric(f: Fabric) -> Tree:
    """Return the wiring of a fabric: single cables, subtrees filled one after the other."""
    ups = tuple(round(d / o) for d, o in zip(f.downs, f.ratios, strict=True))
    rate = f.host_gbps * 1e9 / 8
    return Tree(
        down=(*f.downs, -(-f.hosts // math.prod(f.downs))),
        up=(1, *ups),
        bundle=(1,) * f.tiers,
        rates=(rate,) * f.tiers,
        planes=f.plane_shares,
        slots=np.arange(f.hosts),
    )
