"""Tables of fabric templates: joined, limited in price, and without those that others beat."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Options:
    """The templates of a number of blocks that none other beats in all of slowdowns, price and power.

    One entry each, the cheapest first.
    """

    send: Floats
    allreduce: Floats
    usd: Floats
    mw: Floats
    key: Ints  # mode, domain, uplinks, bundle, rails of a pod, stripes

    def __len__(self) -> int:
        return len(self.usd)


def priced_within(x: Options, max_usd: float) -> Options:
    """Drop the templates above a price."""
    fits = x.usd <= max_usd
    return x if fits.all() else Options(x.send[fits], x.allreduce[fits], x.usd[fits], x.mw[fits], x.key[fits])


def undominated_pairs(found: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Drop the orders of racks that another is no worse than in flows and in allreduces."""
    kept: list[tuple[int, int, int]] = []
    for flow, allreduce, n in sorted(found):
        if not kept or allreduce < kept[-1][1]:
            kept.append((flow, allreduce, n))
    return kept


def undominated(parts: list[Options], *, power_counts: bool) -> Options:
    """Join tables and drop what another entry beats or equals in slowdowns, price and, where it counts, power."""
    if not parts:
        none = np.empty(0)
        return Options(none, none, none, none, np.empty((0, 6), dtype=np.int64))
    send, allreduce, usd, mw = (
        np.concatenate([getattr(x, name) for x in parts]) for name in ("send", "allreduce", "usd", "mw")
    )
    key = np.concatenate([x.key for x in parts])
    order = np.lexsort((key[:, 5], allreduce, send, mw, usd))
    send, allreduce, usd, mw, key = send[order], allreduce[order], usd[order], mw[order], key[order]
    kept = np.zeros(len(usd), dtype=bool)
    front: list[int] = []
    calm = np.minimum.accumulate(np.where(allreduce <= allreduce.min() * (1 + 1e-12), send, np.inf))
    draws = mw if power_counts else np.zeros(len(mw))
    # A cheaper entry with the calmest all-reduces and no slower sends rules an entry out, unless its power saves it.
    beaten = np.zeros(len(usd), dtype=bool) if power_counts else np.append(False, calm[:-1] <= send[1:])
    for i in np.flatnonzero(~beaten).tolist():
        before = np.array(front, dtype=np.int64)
        if len(before) and np.any(
            (send[before] <= send[i]) & (allreduce[before] <= allreduce[i]) & (draws[before] <= draws[i])
        ):
            continue
        front.append(i)
        kept[i] = True
    return Options(send[kept], allreduce[kept], usd[kept], mw[kept], key[kept])


def least_at(x: Options, sends: Floats, allreduce: float) -> Floats:
    """Return the least price of a part's templates at each slowdown of sends, allreduces no slower than a limit."""
    fits = np.flatnonzero(x.allreduce <= allreduce)
    if not len(fits):
        return np.full(len(sends), np.inf)
    order = fits[np.argsort(x.send[fits], kind="stable")]
    least = np.minimum.accumulate(x.usd[order])
    at = np.searchsorted(x.send[order], sends, side="right")
    return np.where(at > 0, least[np.maximum(at - 1, 0)], np.inf)
