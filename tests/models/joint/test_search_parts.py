"""Parts of the joint search by hand: the fewest wavelengths that keep a time."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planner.models.joint.places.capital_bounds import SlowdownLevel
from planner.models.joint.places.fastest import FastestSearch, NetworkCandidate


@pytest.mark.parametrize("fewest", range(1, 9))
@pytest.mark.parametrize("most", range(1, 9))
def test_the_fewest_wavelengths_that_keep_a_time(most: int, fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one to `most` wavelengths fewer than `fewest` are slower: as many are kept, at their own price."""
    shape_problem: Any = SimpleNamespace()
    search = FastestSearch(shape_problem=shape_problem, cutoff=math.inf)
    search.__dict__["_wavelengths"] = np.arange(1, 9)
    monkeypatch.setattr(search, "_seconds", lambda *at: 10.0 if at[1] >= fewest else 10.1)
    monkeypatch.setattr(search, "_usd", lambda *at: 100.0 * at[2])
    level = SlowdownLevel(1.0, 1.0, 0.0)
    kept = search._fewest_wavelengths(NetworkCandidate(10.0, 1e6, level, most, 5.0))
    expected = min(fewest, most)
    usd = 1e6 if expected == most else 100.0 * expected
    assert (kept.wavelengths, kept.usd, kept.seconds, kept.level, kept.rtt_ms) == (expected, usd, 10.0, level, 5.0)
