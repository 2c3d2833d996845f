"""Clusters of split groups over the holes of leaf domains, against every way to divide groups into clusters."""

import math
import random
from functools import cache

import pytest

from planner.models.placement.shared_holes import (
    ChosenClusters,
    LeafDomains,
    analytic_extra_pieces,
    cluster_sizes,
    min_pieces,
)
from planner.solvers.cpsat import run


def fewest(shape: LeafDomains, split: int) -> float:
    """Return the fewest extra pieces: groups divided into clusters of any sizes, each over as few holes as hold it.

    A cluster over b holes of full domains has b - 1 extra pieces; one may have the part-full domain's hole besides.
    """

    @cache
    def best(groups: int, holes: int, *, rest: int) -> float:
        if groups == 0:
            return 0
        found = math.inf
        for a in range(1, groups + 1):
            b = -(-a * shape.group // shape.hole)
            if b <= holes:
                found = min(found, b - 1 + best(groups - a, holes - b, rest=rest))
            mixed = max(0, -(-(a * shape.group - rest) // shape.hole))
            if rest and mixed <= holes:
                found = min(found, mixed + best(groups - a, holes - mixed, rest=0))
        return found

    return best(split, shape.full, rest=shape.rest_hole)


def drawn(seed: int) -> LeafDomains:
    """Draw leaf domains whose full ones leave a hole."""
    r = random.Random(seed)
    while True:
        group = r.randint(2, 9)
        domain = group * r.randint(0, 2) + r.randint(1, group - 1)
        shape = LeafDomains(
            racks=domain * r.randint(2, 12) + r.randint(0, domain - 1), domain=domain, per_pod=2, groups=9, group=group
        )
        if shape.hole * shape.full + shape.rest_hole >= group:
            return shape


@pytest.mark.parametrize("seed", range(28))
def test_the_clusters_have_the_fewest_pieces(seed: int) -> None:
    """For as many split groups as the holes take, the pieces are the fewest of all, and no bound is above them."""
    shape = drawn(seed)
    for split in range(1, (shape.hole * shape.full + shape.rest_hole) // shape.group + 1):
        least = fewest(shape, split)
        if math.isinf(least):
            continue
        choice, bound = min_pieces(shape, cluster_sizes(shape, split), split, run)
        assert choice.groups == split
        assert choice.extra_pieces == least == bound
        assert analytic_extra_pieces(shape, split) <= least
        holes = [b for _, b in choice.plain] + ([choice.mixed[1]] if choice.mixed else [])
        assert sum(holes) <= shape.full
        for a, b in choice.plain:
            assert b * shape.hole >= a * shape.group
        if choice.mixed:
            a, b = choice.mixed
            assert b * shape.hole + shape.rest_hole >= a * shape.group


def test_nothing_split_needs_no_piece() -> None:
    """No group, no cluster, no piece."""
    assert min_pieces(drawn(0), cluster_sizes(drawn(0), 0), 0, run) == (ChosenClusters(), 0)
    assert analytic_extra_pieces(drawn(0), 0) == 0


@pytest.mark.parametrize("seed", range(28))
def test_no_cluster_is_offered_that_two_smaller_ones_replace(seed: int) -> None:
    """The sizes are those whose holes are fewer than any two clusters of as many groups need together."""
    shape = drawn(seed)
    split = (shape.hole * shape.full + shape.rest_hole) // shape.group
    need = {a: -(-a * shape.group // shape.hole) for a in range(1, split + 1)}
    whole = {a: b for a, b in need.items() if all(need[c] + need[a - c] > b for c in range(1, a)) and b <= shape.full}
    assert cluster_sizes(shape, split).plain == whole
