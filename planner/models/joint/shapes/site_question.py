"""Types of a site question and of its answer: parts, circuits, points of the site bounds, and the sites chosen.

No solver is needed to state them, so that a cluster, which has one site, loads none for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from planner.plan.plan_sections import WanPlan
from planner.solvers.outcome import Outcome

if TYPE_CHECKING:
    from planner.models.sites.split_data import Pair, SplitData


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
    """A site question's extent: sites with blocks, racks in all and of the largest site, and the longest round trip."""

    sites: int
    racks: int
    largest: int
    rtt_ms: float
    wavelengths: int = 1  # of the fibre between every two of them

    @property
    def parts(self) -> tuple[SitePart, ...]:
        """Parts of a site question without fabric: one with as many racks as the largest, others of at least one."""
        return SitePart(1, self.largest, ((0.0, 0.0),)), *[SitePart(0, 1, ((0.0, 0.0),))] * (self.sites - 1)

    def covers(self, other: "SitesExtent") -> bool:
        """Return whether an answer on a site question of this extent bounds one of the other."""
        # There are no fewer racks and wavelengths, and no longer round trip there.
        fewer = self.racks <= other.racks and self.largest <= other.largest and self.wavelengths <= other.wavelengths
        return fewer and self.sites == other.sites and self.rtt_ms >= other.rtt_ms
