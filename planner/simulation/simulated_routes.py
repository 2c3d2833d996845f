"""Networks to simulate, by numbers, and which directed links each flow loads: the three transports on one tree."""

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Annotated, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from planner.errors import InputError
from planner.instance.base_types import Count, Positive, Sourced
from planner.instance.plausible_ranges import out_of_range
from planner.instance.validation import validated
from planner.physics import Floats, Ints

Words = NDArray[np.uint64]

_STEP, _A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
MAX_HOSTS = 1 << 20  # of a fabric: more flows than these do not fit the memory
Hops = Sequence[tuple[Ints, Floats | float]]  # at each hop the links of every flow, a row a flow, and its shares
MAX_ENTRIES = 40_000_000  # pairs of flow and link in memory at once: about 90 bytes each at work
CHUNK = 1 << 22  # pairs of flow and switch worked on together: 32 MB an array


def words(*keys: ArrayLike) -> Words:
    """Hash integer keys, broadcast together, into 64 bits for routing: SplitMix64 (Steele et al. 2014, figure 16)."""
    state = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for key in keys:
            z = (state ^ np.asarray(key).astype(np.uint64)) + _STEP
            z = (z ^ (z >> np.uint64(30))) * _A
            z = (z ^ (z >> np.uint64(27))) * _B
            state = z ^ (z >> np.uint64(31))
    return np.asarray(state, np.uint64)


def below(n: ArrayLike, *keys: ArrayLike) -> Ints:
    """Draw whole numbers from 0 to n - 1 by hash, as routing of flows picks next hops."""
    return (words(*keys) % np.asarray(n).astype(np.uint64)).astype(np.int64)


def order(count: int, *keys: int) -> Ints:
    """Draw a random order of `count` hosts or cables by hash."""
    return np.argsort(words(*keys, np.arange(count)), kind="stable")


@dataclass(kw_only=True, eq=False)
class Tree:
    """A simulated network as a tree: its wiring tier by tier from the leaves up."""

    down: tuple[int, ...]  # children of a switch: hosts of a leaf, then subtrees of the tier below
    up: tuple[int, ...]  # switches above one switch of the tier below; 1 above a host
    bundle: tuple[int, ...]  # parallel cables to each of them
    rates: tuple[float, ...]  # bytes per second of one cable in one direction, all planes together
    planes: tuple[float, ...] = (1.0,)  # share of a cable's rate that each plane has
    slots: Ints  # place of each host: leaf · down[0] + port

    tiers: int = field(init=False)  # of switches
    hosts: int = field(init=False)
    host_rate: float = field(init=False)  # bytes per second that one host sends at most, all planes together
    spans: tuple[int, ...] = field(init=False)  # host slots of a subtree of each tier; 1 of a host
    widths: tuple[int, ...] = field(init=False)  # positions of each tier: switches that serve one subtree
    subtrees: tuple[int, ...] = field(init=False)  # of each tier, empty ones between full ones too
    cables: tuple[int, ...] = field(init=False)  # below each tier's switches, in one plane
    offsets: tuple[int, ...] = field(init=False)  # number of the first cable below each tier's switches

    def __post_init__(self) -> None:
        self.tiers, self.hosts, self.host_rate = len(self.down), len(self.slots), self.rates[0] * sum(self.planes)
        self.spans, self.widths = ((1, *accumulate(own, operator.mul)) for own in (self.down, self.up))
        last = int(self.slots.max()) if self.hosts else 0
        self.subtrees = tuple(last // span + 1 for span in self.spans)
        self.cables = tuple(map(math.prod, zip(self.subtrees, self.widths[1:], self.bundle, strict=False)))
        self.offsets = (0, *accumulate(self.cables[:-1]))

    def meeting_tier(self, one: Ints, other: Ints) -> Ints:
        """Return the lowest tier whose switches reach the slots of both simulated hosts; 0 where they are the same."""
        return np.asarray(np.sum([one // span != other // span for span in self.spans[: self.tiers]], axis=0), np.int64)

    def cable(self, tier: int, subtree: Any, position: Any, lane: Ints | int = 0) -> Any:
        """Return the numbers of cables up from a subtree below `tier` (0: leaves); `lane`: the cable of a bundle."""
        return self.offsets[tier] + (subtree * self.widths[tier + 1] + position) * self.bundle[tier] + lane

    def link(self, cable: Any, *, down: bool, plane: Any) -> Any:
        """Return the link number of one direction of a cable in a plane of the simulated network."""
        return cable + (2 * plane + down) * sum(self.cables)

    def capacity(self) -> Floats:
        """Return the bytes per second of every directed link of the simulated network."""
        return self.directed([np.repeat(np.asarray(self.rates), self.cables)] * len(self.planes))

    def directed(self, rates: Iterable[Floats]) -> Floats:
        """Return the rate of every directed link of each plane from the rates of cables by plane, of all planes."""
        return np.concatenate([share * own for share, own in zip(self.planes, rates, strict=True) for _ in (0, 1)])


class Fabric(Sourced):
    """A fabric to simulate: a fat tree of equal switches; without down_ports half of the ports face down (k-ary)."""

    name: str = "fabric"
    hosts: Annotated[int, Field(ge=2, le=MAX_HOSTS)] = Field(description="Hosts, each with one port on a leaf.")
    ports_per_switch: Annotated[int, Field(ge=2, le=4096)]
    tiers: Annotated[int, Field(ge=1, le=4)] = 3
    oversubscription: tuple[Positive, ...] = Field(
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
        (), description="Cables between switches that are out, by number: leaf by leaf, spine by spine, plane by plane."
    )

    def _faults(self) -> Iterator[str]:
        for key in ("oversubscription", "down_ports"):
            if len(getattr(self, key)) > self.tiers - 1:
                given = f"one for each tier below the top (has {len(getattr(self, key))})"
                yield f"{key} must have at most {self.tiers - 1} entries, {given}"
        if abs(sum(self.plane_shares)) > 1 + 1e-9:
            yield f"plane_shares must add up to 1 at most (add up to {sum(self.plane_shares):g})"
        for tier, (down, ratio) in enumerate(zip(self.downs, self.ratios, strict=True)):
            up = down / ratio
            if round(up) < 1 or abs(up - round(up)) > 1e-9:
                hint = f"give another or down_ports[{tier}]"
                ports = f"{up:g} ports up of {down} down"
                yield f"oversubscription[{tier}] leaves {ports}, not a whole number; {hint}"
            if down + round(up) > self.ports_per_switch:
                ports = f"{down} ports down + {round(up)} up > {self.ports_per_switch} ports"
                yield f"tier {tier} takes {ports}; lower down_ports[{tier}]"
        reach = math.prod(self.downs) * self.ports_per_switch
        if self.hosts > reach:
            tiers = f"{self.tiers} tiers of {self.ports_per_switch} ports"
            yield f"hosts must be at most {reach}, which {tiers} reach (is {self.hosts})"

    @property
    def downs(self) -> tuple[int, ...]:
        """Count the ports down of a switch of each tier below the top of the simulated fabric."""
        return self.down_ports + (self.ports_per_switch // 2,) * (self.tiers - 1 - len(self.down_ports))

    @property
    def ratios(self) -> tuple[float, ...]:
        """Return the oversubscription of each tier below the top of the simulated fabric."""
        return self.oversubscription + (1.0,) * (self.tiers - 1 - len(self.oversubscription))


def load_fabric(data: Any, where: str = "fabric") -> Fabric:
    """Check the data of a fabric to simulate and return it. InputError: it is none."""
    if not isinstance(data, Mapping):
        example = '{"hosts": 1024, "ports_per_switch": 16}'
        raise InputError(f"{where}: must be a plan or a fabric (is {type(data).__name__}); give one such as {example}")
    return validated(Fabric, dict(data), where, problems=out_of_range)


def tree_of_fabric(fabric: Fabric) -> Tree:
    """Return the simulated network of a fabric: single cables, subtrees of hosts filled one after the other."""
    ups = tuple(round(down / ratio) for down, ratio in zip(fabric.downs, fabric.ratios, strict=True))
    rate = fabric.host_gbps * 1e9 / 8
    return Tree(
        down=(*fabric.downs, -(-fabric.hosts // math.prod(fabric.downs))),
        up=(1, *ups),
        bundle=(1,) * fabric.tiers,
        rates=(rate,) * fabric.tiers,
        planes=fabric.plane_shares,
        slots=np.arange(fabric.hosts),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Flows:
    """Flows to route: who sends how many bytes to whom; ends are host slots of the tree."""

    source: Ints
    target: Ints
    size: Floats

    def __len__(self) -> int:
        return len(self.source)


def joined(parts: list[Flows]) -> Flows:
    """Join several lists of flows to route into one, in their order."""
    none = Flows(source=np.empty(0, np.int64), target=np.empty(0, np.int64), size=np.empty(0))
    source, target, size = zip(*((part.source, part.target, part.size) for part in [none, *parts]), strict=True)
    return Flows(source=np.concatenate(source), target=np.concatenate(target), size=np.concatenate(size))


def equal_flows(source: Ints, target: Ints, size: float) -> Flows:
    """Return flows of one size to route between sources and targets."""
    return Flows(source=source, target=target, size=np.full(len(source), float(size)))


def permutation(slots: Ints, size: float, seed: int) -> Flows:
    """Return permutation traffic: every host sends to one other and receives from one, on a random cycle of all."""
    cycle = slots[order(len(slots), seed, 1)]
    return equal_flows(cycle, np.roll(cycle, -1), size)


class Alive:
    """The live cables of a simulated network, and the next hops of routes that failures leave."""

    def __init__(self, tree: Tree, failed: Sequence[int] | Ints = ()) -> None:
        """Take failed cables out of the network; `failed` numbers cables between switches, plane after plane."""
        self.tree = tree
        plane, cable = np.divmod(np.asarray(failed, np.int64), max(sum(tree.cables[1:]), 1))
        self.lanes = np.ones((len(tree.planes), sum(tree.cables)), bool)
        self.lanes[plane, tree.cables[0] + cable] = False
        tiers = zip(tree.offsets, tree.cables, tree.subtrees, tree.bundle, strict=False)
        self.counts = [
            np.add.reduce(self.lanes[:, first : first + count].reshape(len(tree.planes), subtrees, -1, bundle), axis=3)
            for first, count, subtrees, bundle in tiers
        ]
        self.all_reach = all((counts > 0).all() for counts in self.counts)  # no switch has lost one above it

    def capacity(self) -> Floats:
        """Return the bytes per second of every directed bundle of the simulated network's live cables."""
        tiers = [own.reshape(len(self.tree.planes), -1) * self.tree.rates[tier] for tier, own in enumerate(self.counts)]
        return self.tree.directed(np.concatenate(tiers, axis=1))

    def reaching(self, source: Ints | int, target: Ints | int, tier: int, plane: Ints | int) -> list[np.ndarray]:
        """Return, for the host and each tier up to the turn, the positions from which routes on live cables lead on."""
        # A row a flow in a plane, or, of one flow in several planes, a row a plane.
        widths, rows = self.tree.widths, max(np.size(source), np.size(plane))
        if self.all_reach:
            return [np.broadcast_to(np.True_, (rows, width)) for width in widths[: tier + 1]]
        reached: list[np.ndarray] = [np.ones((rows, widths[tier]), bool)]
        for t in reversed(range(tier)):
            up, down = (self.counts[t][plane, end // self.tree.spans[t]] > 0 for end in (source, target))
            reached[0] = reached[0] & up & down
            reached.insert(0, np.logical_or.reduce(reached[0].reshape(rows, widths[t], self.tree.up[t]), axis=2))
        return reached

    def hashed(self, flows: Flows, seed: int, chosen: Ints, tier: int, plane: int) -> Hops:
        """Return the links of each flow's route over a live next hop at every hop, picked by a hash (ECMP)."""
        tree, links, rows = self.tree, list[tuple[Ints, float]](), np.arange(len(chosen))
        position = np.zeros(len(chosen), np.int64)
        reached = self.reaching(flows.source[chosen], flows.target[chosen], tier, plane)
        if not reached[0].all():
            refuse_cut_off(tree, flows, int(chosen[np.flatnonzero(~reached[0])[0]]), plane)
        for t in range(tier):
            shape = -1, tree.widths[t], tree.up[t]  # the next hops of a position lie next to each other
            live, leads_on = self.counts[t][plane].reshape(shape), reached[t + 1].reshape(shape)
            upto = np.cumsum(live[flows.source[chosen] // tree.spans[t], position] * leads_on[rows, position], axis=1)
            pick = below(upto[:, -1], seed, plane, 2 * t, chosen)
            choice = (upto <= pick[:, None]).sum(axis=1)
            rank = pick - np.where(choice > 0, upto[rows, choice - 1], 0)
            position = position * tree.up[t] + choice
            for down, end in enumerate((flows.source[chosen], flows.target[chosen])):
                cable = tree.cable(t, end // tree.spans[t], position)
                alive = np.cumsum(self.lanes[plane][cable[:, None] + np.arange(tree.bundle[t])], axis=1)
                wanted = below(alive[:, -1], seed, plane, 2 * t + 1, chosen) if down else rank
                lane = (alive <= wanted[:, None]).sum(axis=1)
                links.append((tree.link(cable + lane, down=bool(down), plane=plane)[:, None], 1.0))
        return links


def failed_cables(tree: Tree, failed: int | Sequence[int], seed: int) -> Ints:
    """Return the sorted numbers of failed cables of a simulation. InputError: more, or others, than there are."""
    cables = sum(tree.cables[1:]) * len(tree.planes)
    if isinstance(failed, int):
        if not 0 <= failed <= cables:
            known = f"from 0 to {cables}, the cables between switches"
            raise InputError(f"--failed-links {failed}: must be {known}; give another number")
        return np.sort(order(cables, seed, 9)[:failed])
    wrong = [cable for cable in failed if not 0 <= cable < cables]
    if wrong:
        known = f"the number of a cable between switches (there are {cables})"
        raise InputError(f"failed_cables: {wrong[0]} is not {known}; give one from 0 to {cables - 1}")
    return np.unique(np.asarray(failed, np.int64))


def refuse_cut_off(tree: Tree, flows: Flows, flow: int, plane: int | None = None) -> NoReturn:
    """Refuse failed cables that leave a flow without a route, in a plane or (None) in any."""
    source, target = flows.source[flow] // tree.down[0], flows.target[flow] // tree.down[0]
    path = f"no path leads from leaf {source} to leaf {target}" + ("" if plane is None else f" in plane {plane}")
    raise InputError(f"simulate: with the failed links {path}; fail fewer links")


@dataclass(frozen=True, eq=False)
class PositionClasses:
    """Classes of the switch positions of one tier that simulated routes load alike, those below one side by side."""

    parent: Ints  # class of the tier below
    first: Ints  # the one position of a class that a failure touches, or the first of its positions
    each: Ints  # positions for each position of the parent
    many: Ints  # positions in all
    apart: np.ndarray  # a failure touches it


class Classes:
    """Classes of equal positions in a simulated tree with failed cables, over which routes split evenly (spraying)."""

    def __init__(self, alive: Alive) -> None:
        self.tree, self.counts, tree = alive.tree, alive.counts, alive.tree
        # The positions of each tier to which, or above which, a cable has failed anywhere, from the top tier.
        touched = list[np.ndarray]()
        above: np.ndarray = np.zeros(tree.widths[-1], bool)
        for tier in reversed(range(tree.tiers)):
            touched.append((self.counts[tier] < tree.bundle[tier]).any(axis=(0, 1)) | above)
            above = np.asarray(touched[-1].reshape(tree.widths[tier], tree.up[tier]).any(axis=1))
        columns: list[tuple[int, int, int, int, bool]] = [(-1, 0, 1, 1, True)]
        self.levels = [PositionClasses(*map(np.array, zip(*columns, strict=True)))]
        # A tier up, positions that failures touch are by themselves, and other siblings are one.
        for up, apart_above in zip(tree.up, reversed(touched), strict=True):
            below, columns = columns, []
            for parent, (_, first, _, many, apart) in enumerate(below):
                own = np.flatnonzero(apart_above[first * up : (first + 1) * up]) if apart else np.empty(0, np.int64)
                columns += [(parent, first * up + int(position), 1, 1, True) for position in own]
                rest = up - len(own)
                if rest:
                    at = int(np.setdiff1d(np.arange(up), own)[0])
                    columns.append((parent, first * up + at, rest, many * rest, False))
            self.levels.append(PositionClasses(*map(np.array, zip(*columns, strict=True))))
        sizes = (subtrees * len(level.parent) for subtrees, level in zip(tree.subtrees, self.levels[1:], strict=False))
        self.offsets = [0, *accumulate(sizes)]  # of the classes of cables below each tier, and of all

    def live(self, t: int, plane: int) -> Ints:
        """Count the live cables of simulated routes from one switch below tier t + 1 to each class, by subtree."""
        level = self.levels[t + 1]
        return np.where(level.apart, self.counts[t][plane][:, level.first], level.each * self.tree.bundle[t])

    def capacity(self) -> Floats:
        """Return the bytes per second of every class of cables in every direction of every plane."""
        one: list[list[Floats]] = [[] for _ in self.tree.planes]
        for plane, tier in np.ndindex(len(one), self.tree.tiers):
            level = self.levels[tier + 1]
            cables = np.where(level.apart, self.live(tier, plane), level.many * self.tree.bundle[tier])
            one[plane].append((cables * self.tree.rates[tier]).ravel())
        return self.tree.directed([np.concatenate(own) for own in one])

    def entries(self, tier: int) -> int:
        """Count the cable classes on the simulated routes of a flow that turns round at a tier, in one plane."""
        return 2 * sum(len(level.parent) for level in self.levels[1 : tier + 1])

    def shared(self, flows: Flows, chosen: Ints, tier: int, plane: int) -> list[tuple[Ints, Floats]]:
        """Return the cable classes of every hop of flows, with their shares split evenly over live next hops."""
        both = flows.source[chosen], flows.target[chosen]
        ends = [[end // self.tree.spans[t] for t in range(tier)] for end in both]
        ups, downs = ([self.live(t, plane)[own[t]] for t in range(tier)] for own in ends)
        # The first class above each class of the tier under it; every one has some.
        starts = [np.flatnonzero(np.diff(level.parent, prepend=-1)) for level in self.levels[1:]]
        # Which classes lead on to the target of each flow, from the turn down.
        alive: list[np.ndarray] = [np.ones((len(chosen), len(self.levels[tier].parent)), bool)]
        for t in reversed(range(tier)):
            alive[0] = alive[0] & (ups[t] > 0) & (downs[t] > 0)
            alive.insert(0, np.logical_or.reduceat(alive[0], starts[t], axis=1))
        if not alive[0].all():
            refuse_cut_off(self.tree, flows, int(chosen[np.flatnonzero(~alive[0][:, 0])[0]]), plane)
        share, loads = np.ones((len(chosen), 1)), []
        for t in range(tier):
            level, here = self.levels[t + 1], ups[t] * alive[t + 1]
            total = np.add.reduceat(here, starts[t], axis=1)
            share = share[:, level.parent] * here / np.maximum(total, 1)[:, level.parent]
            count = len(level.parent)
            for down in (0, 1):  # links are numbered by plane, direction, tier, subtree and class
                first = (2 * plane + down) * self.offsets[-1] + self.offsets[t]
                loads.append((first + ends[down][t][:, None] * count + np.arange(count), share))
        return loads


@dataclass(frozen=True, kw_only=True, eq=False)
class Routes:
    """Routes of flows: the links of every part, part by part; entries of one hop share the bytes that arrive there."""

    start: Ints  # first entry of each part, and behind the last one their number
    link: Ints  # of each entry, in the order of travel, as `hop` and `weight`
    hop: Ints
    weight: Floats
    flow: Ints  # that each part belongs to; a flow is done when its last part is
    size: Floats  # bytes of each part
    capacity: Floats  # bytes per second of each directed link
    after: Ints  # part whose last byte leaves the host before the first of this one; -1 where none does
    alike: Floats | None = None  # of each entry, of how many it is one on a link of its class; None: each is itself

    @property
    def parts(self) -> int:
        """Count the parts of flows that have routes."""
        return len(self.size)

    def owner(self) -> Ints:
        """Return the part of a flow that each entry of the routes belongs to."""
        return np.repeat(np.arange(self.parts), np.diff(self.start))

    def load(self, amount: Floats) -> Floats:
        """Return the load of every link: the sum over routed parts of weight · amount."""
        return np.bincount(self.link, self.weight * amount[self.owner()], len(self.capacity)).astype(np.float64)

    def fullest_seconds(self) -> float:
        """Return the largest load over capacity of a link, by which equal flows end under max-min fairness."""
        return float((self.load(self.size) / np.maximum(self.capacity, 1e-300)).max()) if self.parts else 0.0

    def classes(self) -> "tuple[Routes, Ints] | None":
        """Return routes of one part for each class of parts that fare alike, and all parts' classes; None: few do.

        Parts of one size and links of one capacity fare alike where the links of the parts do, and the parts of the
        links: the coarsest equitable partition, by colour refinement (Cardon and Crochemore 1982).
        """
        # On a link of a class each part of a class stands for as many as the class has parts for each of its links.
        if (np.diff(self.start) == 0).any():
            return None
        owner = self.owner()
        on_link = np.argsort(self.link, kind="stable")
        used, first = np.unique(self.link[on_link], return_index=True)
        at = words(self.hop, self.weight.view(np.int64))
        part, link, known = words(self.size.view(np.int64)), words(self.capacity.view(np.int64)), (0, 0)
        while True:
            link[used] = words(link[used], np.add.reduceat(words(part[owner], at)[on_link], first))
            part = words(part, np.add.reduceat(words(link[self.link], at), self.start[:-1]))
            found = len(np.unique(part)), len(np.unique(link[used]))
            if 2 * found[0] > self.parts:
                return None
            if found == known:
                break
            known = found
        _, one, kind, many = np.unique(part, return_index=True, return_inverse=True, return_counts=True)
        _, first, sort, each = np.unique(link, return_index=True, return_inverse=True, return_counts=True)
        hops = np.diff(self.start)[one]
        entry = np.repeat(self.start[one] - np.cumsum(hops) + hops, hops) + np.arange(hops.sum())
        return Routes(
            start=np.concatenate([[0], np.cumsum(hops)]),
            link=sort[self.link[entry]],
            hop=self.hop[entry],
            weight=self.weight[entry],
            flow=np.arange(len(one)),
            size=self.size[one],
            capacity=self.capacity[first],
            after=np.full(len(one), -1),
            alike=many[kind[owner[entry]]] / each[sort[self.link[entry]]],
        ), kind


def sorted_routes(
    entries: Iterable[tuple[Ints, Ints, int, Floats | float]],
    flow: Ints,
    size: Floats,
    capacity: Floats,
    after: Ints | None = None,
) -> Routes:
    """Sort entries of parts, rows of links, hop and shares into routes of flows; shares of 0 are left out."""
    parts, links, hops = ([np.empty(0, np.int64)] for _ in range(3))
    weights = [np.empty(0)]
    for own, rows, at, share in entries:
        spread = np.broadcast_to(np.asarray(share, float), rows.shape)
        kept = spread > 0
        parts.append(np.broadcast_to(own[:, None], rows.shape)[kept])
        links.append(rows[kept])
        hops.append(np.full(np.count_nonzero(kept), at))
        weights.append(spread[kept])
    part, hop = np.concatenate(parts), np.concatenate(hops)
    rank = np.lexsort((hop, part))
    return Routes(
        start=np.concatenate([[0], np.cumsum(np.bincount(part, minlength=len(size)))]),
        link=np.concatenate(links)[rank],
        hop=hop[rank],
        weight=np.concatenate(weights)[rank],
        flow=flow,
        size=size,
        capacity=capacity,
        after=np.full(len(size), -1) if after is None else after,
    )


def hop_of(tree: Tree, tier: int, down: int) -> int:
    """Return the number of the hop on a route for links at the foot of a tier: up tier by tier, then down."""
    return 2 * tree.tiers - 1 - tier if down else tier


def ecmp(tree: Tree, flows: Flows, seed: int, alive: Alive | None = None) -> Routes:
    """Return flows' routes over one path of each plane, cable by cable, by hashes independent of each other."""
    hops = partial((alive or Alive(tree)).hashed, flows, seed)
    return _routes(tree, flows, tree.capacity(), hops, lambda tier: tree.widths[tier])


def spray(tree: Tree, flows: Flows, alive: Alive | None = None) -> Routes:
    """Return the routes of flows split evenly over all equal-cost next hops and planes: packet spraying."""
    # The split is even over live next hops and not weighted by what they lead to, so where links have failed, and where
    # planes differ, the weaker path slows the entire flow. Equivalent cables are one.
    classes = Classes(alive or Alive(tree))
    loaded = len(tree.planes) * sum(len(who) * classes.entries(tier) for tier, who in _by_meeting_tier(tree, flows))
    if loaded > MAX_ENTRIES and alive is not None:
        pairs = f"spraying around failed links loads {loaded:,} pairs of flow and link > {MAX_ENTRIES:,}"
        raise InputError(f"simulate: {pairs}; take fewer hosts, or fewer failed links")
    return _routes(tree, flows, classes.capacity(), partial(classes.shared, flows), classes.entries)


def _routes(
    tree: Tree, flows: Flows, capacity: Floats, hops: Callable[[Ints, int, int], Hops], loaded: Callable[[int], int]
) -> Routes:
    """Return the routes of flows that use all planes alike; `loaded`: entries of a flow by tier, to size chunks."""
    # `hops` of some flows, the tier at which they turn round and a plane are up and down by tier.
    flow, planes = np.arange(len(flows)), len(tree.planes)

    def entries() -> Iterator[tuple[Ints, Ints, int, Floats | float]]:
        for plane in range(planes):
            for tier, who in _by_meeting_tier(tree, flows):
                for chosen in np.array_split(who, max(1, len(who) * loaded(tier) // CHUNK)):
                    for hop, (link, share) in enumerate(hops(chosen, tier, plane)):
                        yield plane * len(flows) + chosen, link, hop_of(tree, hop // 2, hop % 2), share

    return sorted_routes(entries(), np.tile(flow, planes), np.tile(flows.size / planes, planes), capacity)


def _by_meeting_tier(tree: Tree, flows: Flows) -> list[tuple[int, Ints]]:
    meeting = tree.meeting_tier(flows.source, flows.target)
    return [(tier, np.flatnonzero(meeting == tier)) for tier in range(1, tree.tiers + 1) if (meeting == tier).any()]
