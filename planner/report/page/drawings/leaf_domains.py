"""What leaf domains hold, counted by kind: never a mark for each rack or group."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from planner.cluster.hostlist import parse
from planner.plan.placement import Assignment

MOST_KINDS = 12


@dataclass(frozen=True, slots=True)
class Kind:
    """Leaf domains that hold the same: groups that lie under one leaf domain, pieces of groups that do not, and the racks of each."""

    domains: int
    whole: int
    whole_racks: float
    pieces: int
    piece_racks: float
    idle_racks: float

    @property
    def name(self) -> str:
        """Say what one of them holds."""
        word = "domain" if self.domains == 1 else "domains"
        return f"{self.domains:,} {word}: {self.whole} whole, {self.pieces} piece{'' if self.pieces == 1 else 's'}, {self.idle_racks:g} idle"


def kinds_of(assignment: Iterable[Assignment], *, racks: int, leaf_domain_racks: int) -> list[Kind]:
    """Count the leaf domains of a site by what they hold, the most frequent kind first."""
    counted = [(a.stage, a.leaf_domain, len(parse(a.racks))) for a in assignment]
    parts = Counter(stage for stage, _, _ in counted)
    held: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for stage, leaf, count in counted:
        place = 0 if parts[stage] == 1 else 2
        held[leaf][place] += 1
        held[leaf][place + 1] += count
    kinds: Counter[tuple[int, ...]] = Counter()
    for leaf in range(-(-racks // leaf_domain_racks)):
        whole, whole_racks, pieces, piece_racks = held[leaf]
        room = min(leaf_domain_racks, racks - leaf * leaf_domain_racks)
        kinds[whole, whole_racks, pieces, piece_racks, room - whole_racks - piece_racks] += 1
    return [Kind(n, *k) for k, n in sorted(kinds.items(), key=lambda item: (-item[1], item[0]))]


def by_pieces(assignment: Iterable[Assignment]) -> dict[int, int]:
    """Count the groups of a site by the pieces they lie in."""
    parts = Counter(a.stage for a in assignment)
    return dict(sorted(Counter(parts.values()).items()))
