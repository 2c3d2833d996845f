"""From counts to pieces: how a cluster of split groups is cut along the holes that it alone uses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.models.cluster_question import Piece
from planner.models.placement_numbering import next_fit

Split = tuple[int, tuple[Piece, ...]]


@dataclass(frozen=True, slots=True)
class Part:
    """The holes of one pod that a cluster uses, and the kinds of the groups that stay within them."""

    holes: tuple[Piece, ...]
    local: tuple[int, ...]


def cut_cluster(sizes: Sequence[int], parts: Sequence[Part], over: Sequence[int]) -> Iterator[Split]:
    """Cut a cluster's groups: each part fills itself with its own, the kinds `over` fill what is left in turn.

    Pieces follow each other along the holes, so that a groups over b holes make a + b - 1 pieces at most.
    """
    room = [sum(n for _, n in p.holes) - sum(sizes[k] for k in p.local) for p in parts]
    fragments = next_fit([sizes[k] for k in over], room)
    across: list[list[Piece]] = [[] for _ in over]
    for j, part in enumerate(parts):
        here = [(x, n) for x, cut in enumerate(fragments) for at, n in cut if at == j]
        going = [(x, n) for x, n in here if fragments[x][-1][0] > j]
        coming = [(x, n) for x, n in here if fragments[x][-1][0] <= j]
        lengths = [*(n for _, n in coming), *(sizes[k] for k in part.local), *(n for _, n in going)]
        cuts = [[(part.holes[h][0], n) for h, n in cut] for cut in next_fit(lengths, [n for _, n in part.holes])]
        within = len(coming) + len(part.local)
        yield from ((k, tuple(cut)) for k, cut in zip(part.local, cuts[len(coming) : within], strict=True))
        for (x, _), cut in zip([*coming, *going], cuts[: len(coming)] + cuts[within:], strict=True):
            across[x].extend(cut)
    yield from ((k, tuple(cut)) for k, cut in zip(over, across, strict=True))
