"""Clusters of split groups over the holes of leaf domains, against every way to divide groups into clusters."""

import itertools
import math
import random
from functools import cache

import pytest
from each_case import each

from planner.models.placement.shared_holes import (
    ChosenClusters,
    HoleCluster,
    LeafDomains,
    PodPart,
    _leaves_of_parts,
    analytic_extra_pieces,
    cluster_sizes,
    min_pieces,
    next_fit,
)
from planner.solvers.cpsat import run


def fewest(shape: LeafDomains, split: int) -> float:
    """Return the fewest extra pieces: groups divided into clusters of any sizes, each over as few holes as hold it."""
    # A cluster over b holes of full domains has b - 1 extra pieces; one may have the part-full domain's hole besides.

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


def clusters() -> list[HoleCluster]:
    """Return clusters over pods 0 to 2: one ends in pod 1, one passes through it, one begins there, one stays in it."""
    ends = HoleCluster(groups=1, parts=(PodPart(pod=0, leaves=1), PodPart(pod=1, leaves=1)))
    passes = HoleCluster(groups=1, parts=(PodPart(pod=0, leaves=1), PodPart(pod=1, leaves=1), PodPart(pod=2, leaves=1)))
    begins = HoleCluster(groups=1, parts=(PodPart(pod=1, leaves=1), PodPart(pod=2, leaves=2)))
    return [ends, passes, begins]


@each("order", list(itertools.permutations(range(3))))
def test_clusters_stand_beside_the_pods_that_they_share(order: tuple[int, ...]) -> None:
    """Four domains to a pod: in pod 1 first what ends there, then what passes, then what begins; whatever the order."""
    shape = LeafDomains(racks=12 * 7, domain=7, per_pod=4, groups=3, group=5)
    given = clusters()
    found = dict(zip(order, _leaves_of_parts(shape, [given[i] for i in order]), strict=True))
    assert (found[0][1], found[1][1], found[2][0]) == ([4], [5], [6])
    assert {found[0][0][0], found[1][0][0]} == {0, 1}
    assert sorted(found[1][2] + found[2][1]) == [8, 9, 10]


def test_the_part_full_domain_is_the_last() -> None:
    shape = LeafDomains(racks=5 * 7 + 4, domain=7, per_pod=4, groups=3, group=5)
    last = HoleCluster(groups=1, parts=(PodPart(pod=1, leaves=0, last=True),))
    with_one = HoleCluster(groups=1, parts=(PodPart(pod=0, leaves=1), PodPart(pod=1, leaves=1, last=True)))
    assert _leaves_of_parts(shape, [last]) == [[[5]]]
    assert _leaves_of_parts(shape, [with_one]) == [[[0], [4, 5]]]


def test_counts_of_a_shape() -> None:
    """39 racks in domains of 7 are five full ones and one of 4; groups of 5 leave holes of 2 and of 4."""
    shape = LeafDomains(racks=39, domain=7, per_pod=4, groups=3, group=5)
    assert (shape.full, shape.rest, shape.hole, shape.rest_hole) == (5, 4, 2, 4)
    assert (shape.free, shape.full_pods, shape.tail, shape.pods) == ([7] * 5 + [4], 1, 1, 2)
    assert (shape.capacity(3), shape.capacity(3, last=True)) == (6, 10)
    cluster = HoleCluster(groups=3, parts=(PodPart(pod=0, leaves=4), PodPart(pod=1, leaves=1, last=True)))
    # Holes of 8 racks hold one group of 5, those of 2 and 4 one more; the third must cross.
    assert cluster.crossing(shape) == 1


def test_items_go_on_where_the_last_one_stopped() -> None:
    assert next_fit([3, 2, 4], [2, 4, 3]) == [[(0, 2), (1, 1)], [(1, 2)], [(1, 1), (2, 3)]]
    assert next_fit([], []) == []
