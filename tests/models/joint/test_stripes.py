"""The order of racks in stripes, and crossings on it against the functions that the checker uses."""

import random

import pytest

from planner.models.joint import stripes
from planner.physics.network.locality import locality


def test_the_ends_of_the_range() -> None:
    """One stripe lays whole pipelines side by side, as many as stages whole all-reduce groups."""
    assert stripes.rank_order(3, 2, 1, 2) == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    assert stripes.rank_order(3, 2, 3, 1) == [[0, 1], [2, 3], [4, 5]]
    assert stripes.rank_order(3, 2, 2, 1) == [[0, 2], [1, 3], [4, 5]]


@pytest.mark.parametrize("seed", range(200))
def test_counted_as_the_checker_counts(seed: int) -> None:
    """Flows and allreduces of every domain size are those of the checker's functions on the built order."""
    r = random.Random(seed)
    stages, blocks, unit, wrap = r.randint(1, 9), r.randint(1, 8), r.randint(1, 3), r.random() < 0.5
    n = r.randint(1, stages)
    order = stripes.rank_order(stages, blocks, n, unit)
    assert sorted(rack for ranks in order for rack in ranks) == list(range(stages * blocks * unit))
    domains = tuple(range(1, stages * blocks + 1))
    flows, allreduces = stripes.crossings(stages, blocks, n, domains, wrap=wrap)
    for d, flow, allreduce in zip(domains, flows, allreduces, strict=True):
        found = locality(order, leaf_domain_racks=d * unit, domains_per_pod=10**6, wrap=wrap)
        assert round(found.share_leaving_leaf * d * unit) == flow * unit
        assert found.allreduces_leaving_leaf == allreduce
