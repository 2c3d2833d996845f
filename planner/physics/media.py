"""Which medium a link takes: the cheapest that reaches."""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class MediaTable:
    """The media as columns, for many lengths at once; a watt over the years is worth `usd_per_watt`."""

    reach_m: Metres
    price_usd: Metres
    usd_per_m: Metres
    watts: Metres
    usd_per_watt: float

    @classmethod
    def of(cls, media: tuple[Medium, ...], usd_per_watt: float = 0.0) -> "MediaTable":
        """Return the table of some media."""
        columns = [[m.reach_m, m.price_usd, m.usd_per_m, m.power_watts] for m in media]
        reach, price, per_m, watts = np.array(columns, dtype=np.float64).reshape(-1, 4).T
        return cls(reach, price, per_m, watts, usd_per_watt)

    def choose(self, metres: Metres) -> NDArray[np.int64]:
        """Return for each length the medium of least price, with its power, that reaches, by index; NONE where none does."""
        found, least = np.full(len(metres), NONE, dtype=np.int64), np.full(len(metres), np.inf)
        powered = self.price_usd + self.watts * self.usd_per_watt
        for i, (reach, price, per_m) in enumerate(zip(self.reach_m, powered, self.usd_per_m, strict=True)):
            each = price + per_m * metres
            better = (metres <= reach) & (each < least)
            found[better], least[better] = i, each[better]
        return found

    def usd_watts(self, metres: Metres) -> tuple[Metres, Metres]:
        """Return price and power of a link of each length; an infinite price where none reaches."""
        at = self.choose(metres)
        return np.where(at == NONE, np.inf, self.price_usd[at] + self.usd_per_m[at] * metres), np.where(at == NONE, 0.0, self.watts[at])
