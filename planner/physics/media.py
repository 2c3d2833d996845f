"""Which medium a link takes: the cheapest that reaches."""

import numpy as np
from numpy.typing import NDArray

from planner.instance import Medium, Network
from planner.physics.floor import Metres

NONE = -1  # where nothing reaches


def media_of(network: Network) -> tuple[Medium, ...]:
    """Return the media of a loaded instance; a bare name was resolved on loading."""
    named = [m for m in network.media if isinstance(m, str)]
    if named:
        raise TypeError(f"network.media: {named} are names; load the instance through planner.load")
    return tuple(m for m in network.media if not isinstance(m, str))


def cheapest(media: tuple[Medium, ...], metres: Metres) -> tuple[NDArray[np.int64], Metres]:
    """Return for each length the medium of least price that reaches, by index, and that price; NONE and infinity where none does."""
    price = np.stack([np.where(metres <= m.reach_m, m.price_usd + m.usd_per_m * metres, np.inf) for m in media])
    least: Metres = price.min(axis=0)
    return np.where(np.isfinite(least), price.argmin(axis=0), NONE), least
