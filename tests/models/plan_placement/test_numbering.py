"""Numbers of leaf domains for clusters of split groups: beside the pod that a cluster comes from or goes on to."""

import itertools

import pytest

from planner.models.placement import shared_holes
from planner.models.placement.shared_holes import HoleCluster, LeafDomains, PodPart


def clusters() -> list[HoleCluster]:
    """Return clusters over pods 0 to 2: one ends in pod 1, one passes through it, one begins there, one stays in it."""
    ends = HoleCluster(groups=1, parts=(PodPart(pod=0, leaves=1), PodPart(pod=1, leaves=1)))
    passes = HoleCluster(groups=1, parts=(PodPart(pod=0, leaves=1), PodPart(pod=1, leaves=1), PodPart(pod=2, leaves=1)))
    begins = HoleCluster(groups=1, parts=(PodPart(pod=1, leaves=1), PodPart(pod=2, leaves=2)))
    return [ends, passes, begins]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_clusters_stand_beside_the_pods_that_they_share(order: tuple[int, ...]) -> None:
    """Four domains to a pod: in pod 1 first what ends there, then what passes, then what begins; whatever the order."""
    shape = LeafDomains(racks=12 * 7, domain=7, per_pod=4, groups=3, group=5)
    given = clusters()
    found = dict(zip(order, shared_holes._leaves_of_parts(shape, [given[i] for i in order]), strict=True))
    assert (found[0][1], found[1][1], found[2][0]) == ([4], [5], [6])
    assert {found[0][0][0], found[1][0][0]} == {0, 1}
    assert sorted(found[1][2] + found[2][1]) == [8, 9, 10]


def test_the_part_full_domain_is_the_last() -> None:
    """A part with the part-full domain stands after the others of its pod, and has that domain's number besides."""
    shape = LeafDomains(racks=5 * 7 + 4, domain=7, per_pod=4, groups=3, group=5)
    last = HoleCluster(groups=1, parts=(PodPart(pod=1, leaves=0, last=True),))
    with_one = HoleCluster(groups=1, parts=(PodPart(pod=0, leaves=1), PodPart(pod=1, leaves=1, last=True)))
    assert shared_holes._leaves_of_parts(shape, [last]) == [[[5]]]
    assert shared_holes._leaves_of_parts(shape, [with_one]) == [[[0], [4, 5]]]


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
    """Items of 3, 2 and 4 along rooms of 2, 4 and 3."""
    assert shared_holes.next_fit([3, 2, 4], [2, 4, 3]) == [[(0, 2), (1, 1)], [(1, 2)], [(1, 1), (2, 3)]]
    assert shared_holes.next_fit([], []) == []
