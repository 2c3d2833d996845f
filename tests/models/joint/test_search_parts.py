"""Parts of the joint search by hand: the fewest wavelengths that keep a time, and tables that serve lower limits."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planner.models.joint.places.capital_bounds import Level
from planner.models.joint.search import Candidate, Search
from planner.models.joint.tree.cache import JointCache


@pytest.mark.parametrize("fewest", range(1, 9))
@pytest.mark.parametrize("most", range(1, 9))
def test_the_fewest_wavelengths_that_keep_a_time(most: int, fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one to `most` wavelengths fewer than `fewest` are slower: as many are kept, at their own price."""
    shape_problem: Any = SimpleNamespace()
    search = Search(shape_problem=shape_problem, cutoff=math.inf)
    search.__dict__["_wavelengths"] = np.arange(1, 9)
    monkeypatch.setattr(search, "_seconds", lambda *at: 10.0 if at[1] >= fewest else 10.1)
    monkeypatch.setattr(search, "_usd", lambda *at: 100.0 * at[2])
    level = Level(1.0, 1.0, 0.0)
    kept = search._fewest_wavelengths(Candidate(10.0, 1e6, level, most, 5.0))
    expected = min(fewest, most)
    usd = 1e6 if expected == most else 100.0 * expected
    assert (kept.wavelengths, kept.usd, kept.seconds, kept.level, kept.rtt_ms) == (expected, usd, 10.0, level, 5.0)


def test_tables_serve_lower_limits() -> None:
    """A table up to a price and slowdowns serves no higher ones; higher limits, another site or traffic ask anew."""
    asked: list[tuple[Any, ...]] = []

    def options(
        traffic: str, blocks: int, usd: float, _: str | None, *, max_slowdowns: tuple[float, float], **_more: Any
    ) -> int:
        asked.append((traffic, blocks, usd, max_slowdowns))
        return len(asked)

    cache = JointCache()
    templates: Any = SimpleNamespace(options=options)

    def table(*key: Any, shallow: bool = False) -> Any:
        return cache.table(templates, *key, shallow=shallow)

    assert table("a", 2, (50.0, (3.0, 4.0))) == 1
    for lower in ((50.0, (3.0, 4.0)), (49.0, (3.0, 4.0)), (50.0, (2.0, 4.0)), (50.0, (3.0, 1.0)), (0.0, (1.0, 1.0))):
        assert table("a", 2, lower) == 1
    assert table("a", 2, (51.0, (3.0, 4.0))) == 2
    assert table("a", 2, (50.0, (3.1, 4.0))) == 3
    assert table("a", 2, (50.0, (3.0, 4.1))) == 4
    assert table("a", 3, (50.0, (3.0, 4.0))) == 5
    assert table("b", 2, (50.0, (3.0, 4.0))) == 6
    assert table("b", 2, (50.0, (3.0, 4.0)), shallow=True) == 6  # which leaves out what the deep one has
    assert table("c", 2, (50.0, (3.0, 4.0)), shallow=True) == 7
    assert table("c", 2, (50.0, (3.0, 4.0))) == 8
    assert asked[1] == ("a", 2, 51.0, (3.0, 4.0)) and len(asked) == 8
