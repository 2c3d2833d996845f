"""The order of racks in stripes, and crossings on it against the functions that the checker uses."""

import random
from itertools import pairwise

import numpy as np
import pytest
from each_case import each

from planner.models.fabric.site_traffic import Loads, SiteTraffic, rank_order
from planner.physics.network.locality import locality


def test_the_ends_of_the_range() -> None:
    """One stripe lays whole pipelines side by side, as many as stages whole all-reduce groups."""
    assert rank_order(3, 2, 1, 2) == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    assert rank_order(3, 2, 3, 1) == [[0, 1], [2, 3], [4, 5]]
    assert rank_order(3, 2, 2, 1) == [[0, 2], [1, 3], [4, 5]]


@pytest.mark.parametrize("seed", range(120))
def test_runs_of_any_size_are_counted(seed: int) -> None:
    """Flows, allreduces and shares of runs of units are those of the checker's functions, which count racks."""
    r, large = random.Random(seed), 1 + 3 * (seed % 2)
    stages, blocks, unit, wrap = r.randint(1, 6 * large), r.randint(1, 4 * large), r.randint(1, 4), r.random() < 0.5
    n, every = r.randint(1, stages), stages * blocks
    order = rank_order(stages, blocks, n, unit)
    assert sorted(rack for ranks in order for rack in ranks) == list(range(every * unit))
    sizes = sorted({r.randint(1, every + 1) for _ in range(12)})
    some = np.unique([n, r.randint(1, stages)])
    traffic = SiteTraffic(stages=stages, unit_racks=1, wrap=wrap, rails=1, exchange_gbps=1)
    found = traffic.leaving(blocks, some, np.array(sizes))
    for size, (flows, allreduces, share) in zip(sizes, found[some.tolist().index(n), :, :3].tolist(), strict=True):
        x = locality(order, (size * unit, size * unit * 10**6), wrap=wrap)
        assert (flows / size, allreduces, share) == (x.share_leaving[0], x.allreduces_leaving[0], x.stage_in[0])


@pytest.mark.parametrize("seed", range(120))
def test_the_first_run_alone(seed: int) -> None:
    r = random.Random(seed)
    stages, blocks, wrap = r.randint(1, 9), r.randint(2, 8), r.random() < 0.5
    sizes = np.arange(1, stages * blocks)
    every = np.arange(1, stages + 1)
    traffic = SiteTraffic(stages=stages, unit_racks=1, wrap=wrap, rails=1, exchange_gbps=1)
    firsts = traffic.leaving(blocks, every, sizes, first_only=True)
    for n in range(1, stages + 1):
        order = rank_order(stages, blocks, n, 1)
        pairs = list(pairwise(order)) + ([(order[-1], order[0])] if wrap and stages > 1 else [])
        worst = traffic.leaving(blocks, np.array([n]), sizes)[0]
        for i, size in enumerate(sizes.tolist()):
            out = sum(a < size <= b for x, y in pairs for a, b in zip(x, y, strict=True))
            into = sum(b < size <= a for x, y in pairs for a, b in zip(x, y, strict=True))
            assert firsts[n - 1, i, 0] == max(out, into) <= worst[i, 0]
            assert firsts[n - 1, i, 1] == sum(min(x) < size <= max(x) for x in order) <= worst[i, 1]


@each("share", [0.0, 0.5])
def test_loads_of_leaves_are_those_of_runs_and_take_no_memory_for_other_sizes(share: float) -> None:
    traffic = SiteTraffic(stages=4, unit_racks=1, wrap=True, rails=1, exchange_gbps=1)
    sizes, stripes = np.arange(1, 25), np.arange(1, 5)
    of_leaves, of_runs = Loads(traffic, 5), Loads(traffic, 5)
    leaves = of_leaves.leaves(sizes, stripes, share, lambda: None)
    assert not of_leaves.rows
    for k, n in enumerate(stripes.tolist()):
        found, every = leaves.loads[:, k], of_runs.at(n, sizes)
        fits = np.isfinite(found[:, 0])
        assert fits.any() and (share > 0 or fits.all())
        assert (found[fits] == every[fits]).all()
