"""The links of a fabric: a leaf's spare ports, the ends and the lengths of cables, and media that reach."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.instance.network import Floor, Medium, Network, Spares, Switch

Ints = NDArray[np.int64]
Metres = NDArray[np.float64]
LANE_TOLERANCE = 1e-9  # relative: a port of the NIC's own rate carries it
ROUNDING = 1e-9  # relative, of sums of lengths
NO_MEDIUM = -1  # index of the medium where none reaches
PAIRS = 1 << 18  # cables between groups measured at a time: 2 MB an array, however many groups there are
CableRun = tuple[Metres, Ints | int]  # lengths, and how many cables there are of each
Ends = tuple[Ints, Ints, Ints, Ints]  # low switch, its port, high switch, its port


@dataclass(frozen=True, slots=True)
class Stage:
    """The cables of a fabric between two tiers: how many there are, and the ends of any of them by number."""

    low: str
    high: str
    count: int
    ends: Callable[[Ints], Ends]


def lanes_of(switch: Switch, nic_bytes_per_second: float) -> int:
    """Count the lanes over which a GPU's NIC is split: the fewest with which a switch's ports carry it."""
    return max(1, math.ceil(nic_bytes_per_second * 8 / (switch.port_gbps * 1e9) / (1 + LANE_TOLERANCE)))


def lane_gbps(nic_bytes_per_second: float, lanes: int) -> float:
    """Compute the rate in Gb/s of one of a NIC's lanes, at which its link to a leaf runs."""
    return nic_bytes_per_second * 8 / 1e9 / lanes


def port_splits(switch: Switch, nic_gbps: float) -> list[int]:
    """List the parts that a leaf's port towards GPUs can be split into, each of which carries a NIC or a lane of it."""
    splits = (1 << n for n in range(switch.breakout.bit_length()))
    return [n for n in splits if n == 1 or nic_gbps * n <= switch.port_gbps * (1 + LANE_TOLERANCE)]


def same_ports(one: Switch, other: Switch) -> bool:
    """Return whether links join two switch models: ports of one rate, as many planes, and one price of links."""
    return (one.port_gbps, one.planes, one.link_factor) == (other.port_gbps, other.planes, other.link_factor)


def spare_ports(used: int, spares: Spares) -> int:
    """Count the ports of a leaf to keep free of links for `used` ones: a share of them, and enough for failures."""
    # The smallest n with P(Binomial(used, failure_chance) > n) <= shortage_chance: ports fail each by itself.
    failure_chance = spares.failure_chance
    by_share = math.ceil(used * spares.share - 1e-9)
    if failure_chance <= 0:
        return by_share
    if failure_chance >= 1:
        return used
    log_odds = math.log(failure_chance) - math.log1p(-failure_chance)
    term = used * math.log1p(-failure_chance)
    below, n = math.exp(term), 0
    while 1 - below > spares.shortage_chance and n < used:
        term += math.log((used - n) / (n + 1)) + log_odds
        below += math.exp(term)
        n += 1
    return max(by_share, n)


@dataclass(frozen=True)
class Places:
    """The floor of one site, which gives cable lengths: rack k's hosts in row k // n at place k % n, n racks a row."""

    floor: Floor
    racks: int
    _runs: dict[int, Metres] = field(default_factory=dict, init=False, compare=False)

    @cached_property
    def _sums(self) -> Metres:
        """Sum the floor coordinates of the first n racks, from which middles of cable ends are computed."""
        floor, hosts = self.floor, np.arange(self.racks) // self.floor.hosts_per_rack
        # Unless the floor states the racks of a row, it is about as wide as it is deep.
        square = math.sqrt(-(-self.racks // floor.hosts_per_rack) * floor.row_pitch_m / floor.rack_pitch_m)
        row, place = np.divmod(hosts, floor.racks_per_row or max(1, round(square)))
        at = np.stack([place * floor.rack_pitch_m, row * floor.row_pitch_m], axis=1)
        return np.concatenate([np.zeros((1, 2)), np.cumsum(at, axis=0)])

    def middle(self, first: Ints, after: Ints) -> Metres:
        """Return the middle of racks `first` to `after` - 1, where cables end, in metres along and across the rows."""
        last = np.minimum(after, self.racks)
        middle: Metres = (self._sums.take(last, axis=0) - self._sums.take(first, axis=0)) / (last - first)[:, None]
        return middle

    def runs(self, size: int) -> Metres:
        """Return the middles of consecutive runs of `size` racks on the floor, where their cables end, in metres."""
        if size not in self._runs:
            begin = np.arange(0, self.racks, size)
            self._runs[size] = self.middle(begin, begin + size)
        return self._runs[size]

    def metres(self, one: Metres, other: Metres, *, spread: bool) -> Metres:
        """Return the length in metres of cables between places: on trays along and across rows, and at the ends."""
        # `spread`: both ends are switches, which are in network racks around the middle and not all in one.
        along, across = np.abs(one - other).T
        length: Metres = along + across + 2 * self.floor.rise_m + spread * self.floor.spread_m
        return length

    def to_middle(self, size: int, around: int, *, spread: bool = True) -> Metres:
        """Return the cable length in metres from the middle of each run of `size` racks to that of `around` racks."""
        # Runs of either follow each other from the site's first rack; the last may be smaller.
        own = self.runs(size)
        middles = self.runs(around).take(np.arange(len(own)) * size // around, axis=0)
        return self.metres(own, middles, spread=spread)


def media_of(network: Network) -> tuple[Medium, ...]:
    """Return the cable media of a network that loading has resolved; TypeError where some are still names."""
    named = [medium for medium in network.media if isinstance(medium, str)]
    if named:
        raise TypeError(f"network.media: {named} are names; load the instance through planner.load")
    return tuple(medium for medium in network.media if not isinstance(medium, str))


@dataclass(frozen=True, slots=True)
class MediaTable:
    """The cable media of a network as columns, to price links of many lengths at once."""

    price_usd: Metres
    usd_per_m: Metres
    watts: Metres
    ends: Metres  # of the stretches of length in each of which one medium is the cheapest
    cheapest: Ints  # of each stretch, and behind them none

    @classmethod
    def of(cls, media: tuple[Medium, ...], usd_per_watt: float = 0.0) -> "MediaTable":
        """Return the table of some cable media, where a watt over the years is worth `usd_per_watt`."""
        columns = [[medium.reach_m, medium.price_usd, medium.usd_per_m, medium.power_watts] for medium in media]
        reach, price, per_m, watts = np.array(columns, dtype=np.float64).reshape(-1, 4).T
        # A medium gives way to another at its reach, or where their prices are the same.
        powered, other = price + watts * usd_per_watt, per_m[:, None] - per_m
        same = (powered - powered[:, None])[other != 0] / other[other != 0]
        ends = np.unique(np.concatenate([reach, same[(same > 0) & (same < reach.max(initial=0.0))]]))
        inside = (ends + np.concatenate([[0.0], ends[:-1]])) / 2
        each = np.where(inside <= reach[:, None], powered[:, None] + per_m[:, None] * inside, np.inf)
        cheapest = each.argmin(axis=0) if len(media) else np.empty(0, np.int64)
        return cls(price, per_m, watts, ends, np.append(cheapest, NO_MEDIUM))

    def choose(self, metres: Metres) -> Ints:
        """Return for each cable length the cheapest medium that reaches, power counted, by index; else NO_MEDIUM."""
        # A length of sums of pitches may be above its reach by their rounding.
        chosen: Ints = self.cheapest[np.searchsorted(self.ends, np.asarray(metres) * (1 - ROUNDING))]
        return chosen

    def usd_watts(self, metres: Metres) -> tuple[Metres, Metres]:
        """Return USD and watts of a link of each length in metres; an infinite price where no medium reaches."""
        at = self.choose(metres)
        usd = np.where(at == NO_MEDIUM, np.inf, self.price_usd[at] + self.usd_per_m[at] * metres)
        return usd, np.where(at == NO_MEDIUM, 0.0, self.watts[at])


def adjacent_metres(places: Places) -> Metres:
    """Return the length in metres of a cable between two switches placed at one middle."""
    middle = np.zeros((1, 2))
    return places.metres(middle, middle, spread=True)


def group_metres(places: Places, pod: int) -> Iterator[Metres]:
    """Yield the metres of links between each pair of groups of `pod` racks, in pieces of `PAIRS` or one group's."""
    middle = places.runs(pod)
    groups, step = np.arange(len(middle)), max(1, PAIRS // len(middle))
    for at in range(0, len(groups), step):
        low, high = np.nonzero(groups[at : at + step, None] < groups)
        if len(low):
            yield places.metres(middle[at + low], middle[high], spread=True)


def group_wan_links(ports: int, groups: int, across: int) -> Ints:
    """Count the links of a WAN gateway to each place of groups: `across` groups at a place, the links in turn."""
    return np.bincount(np.arange(ports) % groups // across, minlength=-(-groups // across))
