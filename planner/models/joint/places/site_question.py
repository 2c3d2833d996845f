"""Types of the questions to sites and of their answers: parts, circuits, points of the bounds, and chosen sites.

No solver is needed to state them, so that a cluster, which has one site, loads none for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from planner.plan.plan_sections import WanPlan

if TYPE_CHECKING:
    from planner.models.sites.split_data import Pair, SplitData

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

    @property
    def most_modules(self) -> int:
        """Bound the modules of all sites: the pinned racks in all, else those of the parts and of pinned sites."""
        pins, each = self.data.pins, self.data.module_racks
        if pins.racks is not None:
            return pins.racks // each
        return sum(n * self.modules(p) for p, n in self.kinds) + sum(pins.racks_by_site.values()) // each

    def modules(self, part: SitePart) -> int:
        """Return the modules that hold a part."""
        return -(-part.racks // self.data.module_racks)

    def pinned(self, site: str) -> bool:
        """Return whether a pin may buy racks at a site beyond those of its part."""
        return self.data.pins.racks is not None or site in self.data.pins.racks_by_site

    @property
    def most_extra_mw(self) -> float:
        """Most load that fabrics add."""
        if not self.counts_power:
            return 0.0
        return self.data.hardware.facility_overhead_factor * sum(
            n * max(mw for _, mw in p.fabrics) for p, n in self.kinds
        )


@dataclass(frozen=True, slots=True)
class Proof:
    """The proof of the cheapest sites: no others cost less than the bound in USD."""

    proved: bool
    bound_usd: float | None
    solver: str
    variables: int
    constraints: int
    seconds: float


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
    proof: Proof
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
    """Return a number of racks rounded down in its first bits."""
    step = 1 << max(0, racks.bit_length() - 1 - COARSE_BITS)
    return racks // step * step
