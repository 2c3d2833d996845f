"""Racks and GPUs that stand by: how many leave enough at work for a share of the time."""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from planner.instance.reliability import Reliability


def repair_shares(r: Reliability) -> dict[str, float]:
    """Return the mean number in repair for each one at work, by what is out of service: a GPU, or its rack.

    MTTR/MTBF of each part, a part of a rack counted for each of its GPUs.
    """
    found = {"gpu": 0.0, "rack": 0.0}
    for p in r.parts.values():
        if p.gpu_hours_per_event is not None:
            found[p.out] += p.repair_hours / p.gpu_hours_per_event
    return found


def rack_availability(r: Reliability, gpus: int, spare_gpus: int) -> float:
    """Return the share of time in which a rack has so many GPUs fit for work, spare ones in it standing in for others.

    Each GPU is fit for MTBF/(MTBF + MTTR) of the time by itself: k of n. Its other parts have no spares.
    """
    share = repair_shares(r)
    fit = 1 / (1 + share["gpu"])
    return enough_share(gpus, spare_gpus, fit) / (1 + share["rack"] * gpus)


@lru_cache(maxsize=256)
def _chances(racks: int, availability: float) -> tuple[int, npt.NDArray[np.float64]]:
    """Return the chance of each number of fit racks within 40 standard deviations of the mean, and the least of these.

    Each is its neighbour's times (n - k)/(k + 1) · p/(1 - p). SciPy has their sums, but behind Pyomo it loads all of
    itself, which takes longer than thousands of them.
    """
    mean = racks * availability
    reach = 40 * (1 + math.sqrt(mean * (1 - availability)))
    first, last = max(0, math.floor(mean - reach)), min(racks, math.ceil(mean + reach))
    k = np.arange(first, last)
    with np.errstate(divide="ignore"):
        ratios = np.log((racks - k) / (k + 1) * (availability / (1 - availability)))
    logs = np.concatenate([[0.0], np.cumsum(ratios)])
    chances = np.exp(logs - logs.max())
    return first, chances / chances.sum()


@lru_cache(maxsize=65536)
def enough_share(needed: int, spares: int, availability: float) -> float:
    """Return P(at least `needed` of `needed + spares` racks are fit for work), each by itself."""
    if availability >= 1:
        return 1.0
    first, chances = _chances(needed + spares, availability)
    return min(1.0, float(chances[max(0, needed - first) :].sum()))


@lru_cache(maxsize=65536)
def min_spares(needed: int, availability: float, target: float) -> int:
    """Return the fewest spare racks, one at least, that leave enough racks for a share of time; none for a share of 0.

    The share grows with them: doubled until it is reached, then halved to the fewest.
    """
    if target <= 0 or needed <= 0:
        return 0
    if availability <= 0:
        raise ValueError("racks that are never fit for work")
    high = 1
    while enough_share(needed, high, availability) < target:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough_share(needed, middle, availability) >= target else (middle, high)
    return high


@lru_cache(maxsize=65536)
def mean_short(needed: int, spares: int, availability: float) -> float:
    """Return the mean number of racks that are short of those needed: the mean of what those fit lack of them."""
    if availability >= 1:
        return 0.0
    first, chances = _chances(needed + spares, availability)
    short = np.maximum(0, needed - first - np.arange(len(chances)))
    return float(short @ chances)
