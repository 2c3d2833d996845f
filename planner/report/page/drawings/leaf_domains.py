"""What stands in leaf domains, counted by kind: never a mark for each rack or group."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from planner.cluster.hostlist import parse
from planner.errors import InputError
from planner.plan.placement import Assignment
from planner.units import counted

MAX_KINDS = 12  # bars that a reader still compares


@dataclass(frozen=True, slots=True)
class Kind:
    """Leaf domains with the same in them: complete groups, pieces of split groups, and the racks of each."""

    domains: int
    whole: int
    whole_racks: float
    pieces: int
    piece_racks: float
    idle_racks: float

    @property
    def name(self) -> str:
        """Return what stands in one of them."""
        content = f"{self.whole} whole, {counted(self.pieces, 'piece')}, {self.idle_racks:g} idle"
        return f"{counted(self.domains, 'domain')}: {content}"


def kinds_of(assignment: Iterable[Assignment], *, racks: int, leaf_domain_racks: int) -> list[Kind]:
    """Count the leaf domains of a site by what stands in them, the most frequent kind first."""
    try:
        pieces = [(a.stage, a.leaf_domain, len(parse(a.racks))) for a in assignment]
    except ValueError as error:
        raise InputError(f"placement: {error}; see what `planner check` says of the plan") from None
    pieces_of_stage = Counter(stage for stage, _, _ in pieces)
    # Of each leaf domain: complete groups and their racks, pieces of split groups and theirs.
    content: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for stage, leaf, count in pieces:
        place = 0 if pieces_of_stage[stage] == 1 else 2
        content[leaf][place] += 1
        content[leaf][place + 1] += count
    kinds: Counter[tuple[int, ...]] = Counter()
    domains = -(-racks // leaf_domain_racks)
    used = [leaf for leaf in content if 0 <= leaf < domains]
    for leaf in used:
        size = min(leaf_domain_racks, racks - leaf * leaf_domain_racks)
        kinds[*content[leaf], size - content[leaf][1] - content[leaf][3]] += 1
    # Empty ones are counted, not walked through: a plan may claim any number of racks.
    last = racks - (domains - 1) * leaf_domain_racks
    part_empty = int(domains > 0 and last < leaf_domain_racks and domains - 1 not in content)
    for size, empty in ((leaf_domain_racks, domains - len(used) - part_empty), (last, part_empty)):
        if empty:
            kinds[0, 0, 0, 0, size] += empty
    return [Kind(n, *k) for k, n in sorted(kinds.items(), key=lambda item: (-item[1], item[0]))]


def by_pieces(assignment: Iterable[Assignment]) -> dict[int, int]:
    """Count the groups of a site by the pieces they lie in."""
    pieces_of_stage = Counter(a.stage for a in assignment)
    return dict(sorted(Counter(pieces_of_stage.values()).items()))
