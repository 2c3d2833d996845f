"""Types of a site question and of its answer: parts, circuits, points of the site bounds, and the sites chosen.

No solver is needed to state them, so that a cluster, which has one site, loads none for it.

Over a hundred zones have thousands of pairs, each a variable and two rows. The same question without fibre is small and
bounds the capital from below; with the cheapest pairs alone it is small too, and bounds it from above. A pair whose
fibre alone costs more than the difference of the two is lit in no cheapest answer.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from planner.plan.plan_sections import WanPlan
from planner.solvers.outcome import Outcome

if TYPE_CHECKING:
    from planner.models.sites.split_data import Pair, SplitData

MANY_PAIRS = 500  # below it the question whole is solved as fast as the one without fibre
GROWTH = 4  # of the pairs tried, until sites are found: each try costs a little more than the one before
CENT_MUSD = 1e-8
COARSE_BITS = 5  # behind the first, that a coarse number of racks keeps: 1.6 to 3.1 % of it


@dataclass(frozen=True, slots=True)
class SitePart:
    """A part in a site question: blocks at one site, racks in use, possible fabrics by price in USD and power in MW."""

    blocks: int
    racks: int
    fabrics: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Circuit:
    """A site question's circuit between every two sites with blocks: wavelengths, and the longest round trip allowed.

    The exchange runs at the rate of the wavelengths over `wan.headroom_factor`. Where the fibre is designed, it is the
    rate at which a ring would move `stage_bytes` in the time that the step counts on, and every form must keep it.
    """

    wavelengths: int
    max_rtt_ms: float
    stage_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Joined:
    """The open sites in the answer to a site question, and those of them that hold parts."""

    open: frozenset[str]
    holding: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class SiteQuestion:
    """The question to the site MILP: parts to place, and the prices of the fibre between the sites."""

    data: "SplitData"
    kinds: tuple[tuple[SitePart, int], ...]
    circuit: Circuit | None
    # Of the fibre between two sites that hold parts, or a lower bound on it; infinite where none joins them.
    pair_usd: "Mapping[Pair, float]"
    designs: Mapping[Joined, float | None]  # price of the fibre of sites above that of their pairs; None: none does
    counts_power: bool  # a fabric's power is load in addition to that of the racks

    def modules(self, part: SitePart) -> int:
        """Return the modules that hold a part of a site question."""
        return -(-part.racks // self.data.module_racks)


@dataclass(frozen=True, slots=True)
class PlacedParts:
    """The answer to a site question: the cheapest sites for its parts, with their fabrics, lines and fibre."""

    asked: tuple[SitePart, ...]  # the question
    circuit: Circuit | None  # the same
    parts: dict[str, tuple[int, int]]  # the part and the fabric of each
    racks: dict[str, int]
    circuits: dict[str, int]  # new ones
    steps: dict[str, int]
    pairs: tuple[tuple[str, str], ...]
    rtt_ms: float
    capital_usd: float
    proof: Outcome[None]  # no other sites cost less than its bound, in USD
    wan: WanPlan | None = None
    # What the fibre of sets of sites costs above that of their pairs, as far as the proof needed.
    designs: dict[Joined, float | None] = field(default_factory=dict)

    @property
    def joined(self) -> Joined:
        """The open sites in the answer to a site question, and those that hold parts."""
        return Joined(frozenset(self.racks), frozenset(self.parts))


@dataclass(frozen=True, slots=True)
class SitesExtent:
    """A point of site bounds: sites with blocks, racks in all and of the largest site, and the longest round trip."""

    sites: int
    racks: int
    largest: int
    rtt_ms: float
    wavelengths: int = 1  # of the fibre between every two of them

    @property
    def coarse(self) -> "SitesExtent":
        """A point of site bounds that covers this one and many others: a few hundredths fewer racks."""
        return replace(self, racks=_down(self.racks), largest=_down(self.largest))

    @property
    def parts(self) -> tuple[SitePart, ...]:
        """Parts of a site question without fabric: one with as many racks as the largest, others of at least one."""
        return SitePart(1, self.largest, ((0.0, 0.0),)), *[SitePart(0, 1, ((0.0, 0.0),))] * (self.sites - 1)

    def covers(self, other: "SitesExtent") -> bool:
        """Return whether a site bound at this point holds at the other."""
        # There are no fewer racks and wavelengths, and no longer round trip there.
        return (
            self.sites == other.sites
            and self.racks <= other.racks
            and self.largest <= other.largest
            and self.rtt_ms >= other.rtt_ms
            and self.wavelengths <= other.wavelengths
        )


def _down(racks: int) -> int:
    step = 1 << max(0, racks.bit_length() - 1 - COARSE_BITS)
    return racks // step * step


def without_dear_pairs(
    q: SiteQuestion, state: Callable[[SiteQuestion], Any], solve: Callable[[Any], Outcome[Any]]
) -> SiteQuestion | None:
    """Return a site question without pairs of sites that cost too much; None where no sites hold its parts."""
    if q.circuit is None or q.designs or len(q.data.pairs) < MANY_PAIRS:
        return q
    without_fibre = solve(state(replace(q, circuit=None)))
    if without_fibre.infeasible:
        return None
    if without_fibre.bound is None:
        return q
    for most in _growing_limits(q, q.circuit):
        few = solve(state(_up_to(q, most)))
        if few.objective is not None:
            return _up_to(q, 1e6 * (few.objective - without_fibre.bound + CENT_MUSD))
    return q


def nearer_pairs_first(q: SiteQuestion, most_usd: float) -> list[SiteQuestion]:
    """List site questions that together decide if `most_usd` pays the fibre; the last has all pairs it may pay."""
    # Where there are many pairs easier questions precede it: one without fibre, which may already be infeasible, and
    # some with ever more of the cheapest pairs, which may already suffice.
    if q.circuit is None:
        return [q]
    whole = _up_to(q, most_usd)
    limits = _growing_limits(whole, q.circuit, MANY_PAIRS)
    return [replace(q, circuit=None), *(_up_to(whole, most) for most in limits), whole] if limits else [whole]


def _growing_limits(q: SiteQuestion, circuit: Circuit, many: int = 0) -> list[float]:
    """List rising limits on a site pair's price in USD, each keeping more pairs in reach; none if not `many`."""
    usd = (q.pair_usd.get(p, 0.0) for p in q.data.pairs if q.data.rtt_ms(p) <= circuit.max_rtt_ms)
    prices, found, count = sorted(x for x in usd if math.isfinite(x)), list[float](), len(q.data.candidates)
    while count < len(prices) >= many:
        found.append(prices[count])
        count *= GROWTH
    return found


def _up_to(q: SiteQuestion, most: float) -> SiteQuestion:
    """Return the site question restricted to pairs of sites whose fibre costs at most `most` USD."""
    usd = {p: q.pair_usd.get(p, 0.0) for p in q.data.pairs}
    return replace(q, pair_usd={p: x if x <= most else math.inf for p, x in usd.items()})
