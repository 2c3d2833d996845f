"""Random numbers by hashing: the same on every machine and under every version of numpy."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

_STEP, _A, _B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def words(*keys: ArrayLike) -> Words:
    """Hash integer keys, broadcast together, into 64 bits each.

    SplitMix64 (Steele, Lea and Flood 2014, figure 16), once a key.
    """
    state = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for key in keys:
            z = (state ^ np.asarray(key).astype(np.uint64)) + _STEP
            z = (z ^ (z >> np.uint64(30))) * _A
            z = (z ^ (z >> np.uint64(27))) * _B
            state = z ^ (z >> np.uint64(31))
    return np.asarray(state, np.uint64)


def below(n: ArrayLike, *keys: ArrayLike) -> Ints:
    """Draw whole numbers from 0 to n - 1."""
    return (words(*keys) % np.asarray(n).astype(np.uint64)).astype(np.int64)


def order(count: int, *keys: int) -> Ints:
    """Draw an order of `count` things."""
    return np.argsort(words(*keys, np.arange(count)), kind="stable")
