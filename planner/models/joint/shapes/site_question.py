"""Types of the questions to sites and of their answers: parts, circuits, points of the bounds, and chosen sites.

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
    """Blocks at one site: their number, racks in use, and possible fabrics as prices in USD and power in MW."""

    blocks: int
    racks: int
    fabrics: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Circuit:
    """The circuit between every two sites with blocks: wavelengths, and the longest round trip allowed.

    The exchange runs at the rate of the wavelengths over `wan.headroom_factor`. Where the fibre is designed, it is the
    rate at which a ring would move `stage_bytes` in the time that the step counts on, and every form must keep it.
    """

    wavelengths: int
    max_rtt_ms: float
    stage_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Joined:
    """Sites that are open and those of them that hold parts."""

    open: frozenset[str]
    holding: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class SiteQuestion:
    """The question to the MILP over sites: parts to place, and the prices of the fibre between the sites."""

    data: "SplitData"
    kinds: tuple[tuple[SitePart, int], ...]
    circuit: Circuit | None
    # Of the fibre between two sites that hold parts, or a lower bound on it; infinite where none joins them.
    pair_usd: "Mapping[Pair, float]"
    designs: Mapping[Joined, float | None]  # price of the fibre of sites above that of their pairs; None: none does
    counts_power: bool  # a fabric's power is load in addition to that of the racks

    def modules(self, part: SitePart) -> int:
        """Return the modules that hold a part."""
        return -(-part.racks // self.data.module_racks)


@dataclass(frozen=True, slots=True)
class PlacedParts:
    """The cheapest sites for some parts."""

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
        """The sites that are open, and those that hold parts."""
        return Joined(frozenset(self.racks), frozenset(self.parts))


@dataclass(frozen=True, slots=True)
class SitesExtent:
    """Sites that hold blocks, racks in all and of the largest site, and the longest round trip between two."""

    sites: int
    racks: int
    largest: int
    rtt_ms: float
    wavelengths: int = 1  # of the fibre between every two of them

    @property
    def coarse(self) -> "SitesExtent":
        """A point that covers this one and many others: a few hundredths fewer racks."""
        return replace(self, racks=_down(self.racks), largest=_down(self.largest))

    @property
    def parts(self) -> tuple[SitePart, ...]:
        """Parts without fabric: one has as many racks as the largest, each of the others one at least."""
        return SitePart(1, self.largest, ((0.0, 0.0),)), *[SitePart(0, 1, ((0.0, 0.0),))] * (self.sites - 1)

    def covers(self, other: "SitesExtent") -> bool:
        """Return whether a lower bound at this point holds at the other."""
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
    """Return the question without the pairs that cost too much; None where no sites hold the parts, fibre or none."""
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
    """List questions that decide together if `most_usd` pays the fibre; the last has every pair that it may pay."""
    # Where there are many pairs easier questions precede it: one without fibre, which may already be infeasible, and
    # some with ever more of the cheapest pairs, which may already suffice.
    if q.circuit is None:
        return [q]
    whole = _up_to(q, most_usd)
    limits = _growing_limits(whole, q.circuit, MANY_PAIRS)
    return [replace(q, circuit=None), *(_up_to(whole, most) for most in limits), whole] if limits else [whole]


def _growing_limits(q: SiteQuestion, circuit: Circuit, many: int = 0) -> list[float]:
    """List limits on the price of a pair that ever more pairs in reach keep; none where there are not `many`."""
    usd = (q.pair_usd.get(p, 0.0) for p in q.data.pairs if q.data.rtt_ms(p) <= circuit.max_rtt_ms)
    prices, found, count = sorted(x for x in usd if math.isfinite(x)), list[float](), len(q.data.candidates)
    while count < len(prices) >= many:
        found.append(prices[count])
        count *= GROWTH
    return found


def _up_to(q: SiteQuestion, most: float) -> SiteQuestion:
    """Return the question restricted to pairs of sites whose fibre costs at most `most` USD."""
    usd = {p: q.pair_usd.get(p, 0.0) for p in q.data.pairs}
    return replace(q, pair_usd={p: x if x <= most else math.inf for p, x in usd.items()})
