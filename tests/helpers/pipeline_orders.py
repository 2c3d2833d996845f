"""The order of each device's passes in a pipeline, and when they end: event by event, as schedules are published."""

from collections.abc import Callable

Pass = tuple[str, int, int]  # F, B or W; the chunk on its device; the micro-batch


def interleaved(p: int, v: int, m: int, i: int, *, rounds: int | None = None, padded: bool = False) -> list[Pass]:
    """Order device i as Megatron-LM does: rounds of p (or more) micro-batches, each through all chunks; B and W as one.

    The last round may be short; padded, it keeps a whole round's slots and skips what is not there.
    """
    n, total = rounds or p, -(-m // p) * p if padded else m
    slots = [(c, k) for first in range(0, total, n) for c in range(v) for k in range(first, min(first + n, total))]
    forward, backward = [("F", c, k) for c, k in slots], [("B", v - 1 - c, k) for c, k in slots]
    warm = min(len(slots), p - i - 1 if v == 1 else 2 * (p - i - 1) + (v - 1) * n)
    pairs = [x for pair in zip(forward[warm:], backward, strict=False) for x in pair]
    return [x for x in forward[:warm] + pairs + backward[len(slots) - warm :] if x[2] < m]


def zero_bubble(p: int, m: int, i: int) -> list[Pass]:
    """Order device i as ZB-H1 does: 1F1B, each W behind the B of i micro-batches later, the last ones at the end."""
    warm, order = min(p - i - 1, m), []
    order += [("F", 0, k) for k in range(warm)]
    for k in range(m):
        order += [("F", 0, k + warm)] * (k + warm < m) + [("B", 0, k)] + [("W", 0, k - i)] * (k >= i)
    return order + [("W", 0, k) for k in range(max(0, m - i), m)]


def ends_of(
    orders: list[list[Pass]], v: int, seconds: Callable[[int, str, int], float], send: float = 0
) -> dict[Pass, float]:
    """Run each pass as soon as its device and inputs are there; return when it ends, by kind, place and micro-batch.

    `seconds`: of a pass by device, kind and chunk.
    """
    p, free, at = len(orders), [0.0] * len(orders), [0] * len(orders)
    ends: dict[Pass, float] = {}
    while len(ends) < sum(map(len, orders)):
        before = len(ends)
        for i, order in enumerate(orders):
            while at[i] < len(order):
                kind, chunk, k = order[at[i]]
                place = chunk * p + i
                own = {"F": [], "B": [("F", place, k)], "W": [("B", place, k)]}[kind]
                sent = {"F": [("F", place - 1, k)] * (place > 0), "B": [("B", place + 1, k)] * (place < p * v - 1)}
                if not all(x in ends for x in (*own, *sent.get(kind, ()))):
                    break
                ready = [free[i], *(ends[x] for x in own), *(ends[x] + send for x in sent.get(kind, ()))]
                ends[kind, place, k] = free[i] = max(ready) + seconds(i, kind, chunk)
                at[i] += 1
        assert len(ends) > before, "the order waits for itself"
    return ends
