"""What a mesh of stages and replicas must send out of leaves or pods that cannot hold all of it, however its nodes are placed."""

Crossing = tuple[int, int]  # (pipeline flows that leave or enter the worst block, rings that leave it)


def least_crossings(stages: int, replicas: int, *, room: int, blocks: int, wrap: bool, split: bool = False) -> list[Crossing]:
    """Return pairs of which every placement is at least as bad, in both, as one: none is better than another in both.

    The block that holds most has n nodes of the mesh or more, n = ceil(stages x replicas / blocks), and not all. Let f of its
    rings (rows) and c of its pipelines (columns) be whole. A row that it holds in part leaves it; so does or into it comes
    a flow of every column that it holds in part, both with `wrap`. With f and c above 0 it has a node of every row and
    column; with f = 0 all rows that it touches are partial, and a rows by b columns hold n nodes only if a b >= n.

    Parameters
    ----------
    room
        The most free nodes of a block.
    blocks
        Blocks with free nodes.
    wrap
        The last stage sends to the first.
    split
        It is known that some ring is in several blocks.
    """
    if stages * replicas <= room:
        return [(0, int(split))]
    n = -(-stages * replicas // max(blocks, 1))
    found: list[Crossing] = []
    if room >= replicas:
        found.append((replicas, 0))
    if room >= stages:
        found.append((0, stages))
    for f in range(1, min(stages, room // replicas + 1)):
        c = min(replicas - 1, (room - f * replicas) // (stages - f))
        if c > 0:
            found.append((replicas - c, stages - f))
    for a in range(1, stages + 1):
        if a * replicas >= n:
            found.append((-(-n // a), a))
    return _best({(b if wrap else -(-b // 2), max(a, int(split))) for b, a in found})


def _best(pairs: set[Crossing]) -> list[Crossing]:
    """Drop pairs that another is no worse than in both."""
    kept: list[Crossing] = []
    for b, a in sorted(pairs):
        if not kept or a < kept[-1][1]:
            kept.append((b, a))
    return kept
