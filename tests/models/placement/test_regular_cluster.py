"""Clusters as regular as a plan's: what is asked of the plan's placement, and which are not so regular."""

from dataclasses import replace

from each_case import each
from planner.models.placement.plan_placement import place_equal, request_of

from planner.models import Options
from planner.models.placement.placement_problem import Kind, Leaf, PlacementProblem


def problem(*pods: list[int], kinds: tuple[Kind, ...] = (Kind(2, 3),)) -> PlacementProblem:
    """Return leaves of so many free nodes, pod by pod."""
    leaves = tuple(Leaf((pod,), n, 9) for pod, frees in enumerate(pods) for n in frees)
    return PlacementProblem(leaves=leaves, kinds=kinds, line=3)


@each(("pods", "racks", "by_pod", "order"), [
    (([4, 4],), 8, 2, [0, 1]), (([4, 3],), 7, 2, [0, 1]), (([3, 4],), 7, 2, [1, 0]),
    (([4, 4], [4, 4]), 16, 2, [0, 1, 2, 3]), (([4, 4, 4], [4, 4, 4]), 24, 3, [0, 1, 2, 3, 4, 5]),
    (([4, 3], [4, 4]), 15, 2, [2, 3, 0, 1]), (([4], [4, 4]), 12, 2, [1, 2, 0]),
    (([4, 0, 4], [4, 2]), 14, 2, [0, 2, 3, 4]), (([4, 4], [0, 0]), 8, 2, [0, 1]),
])  # fmt: skip
def test_what_is_asked(pods: tuple[list[int], ...], racks: int, by_pod: int, order: list[int]) -> None:
    """The largest pods and leaves come first, leaves without a free node nowhere; one leaf or pod may be smaller."""
    found = request_of(problem(*pods))
    assert found is not None and found[1] == order
    request = found[0]
    assert (request.racks, request.groups, request.group_racks) == (racks, 3, 2)
    assert (request.leaf_domain_racks, request.domains_per_pod) == (4, by_pod)


@each("pods", [([4, 3, 3],), ([4, 3], [4, 3]), ([4, 4], [4], [4]), ([4, 4, 4], [4, 4], [4])])
def test_what_is_not_as_regular(pods: tuple[list[int], ...]) -> None:
    assert request_of(problem(*pods)) is None and place_equal(problem(*pods), Options()) is None


def test_unlike_groups_and_more_tiers_are_no_plans() -> None:
    assert request_of(problem([4, 4], kinds=(Kind(2, 1), Kind(3, 1)))) is None
    zones = problem([4, 4])
    assert (
        request_of(replace(zones, leaves=tuple(replace(leaf, path=(0, *leaf.path)) for leaf in zones.leaves))) is None
    )


def test_groups_are_placed_with_their_proofs() -> None:
    """Three groups of two on leaves of three: each leaf takes one whole, and the third splits over both holes."""
    found = place_equal(problem([3, 3]), Options())
    assert found is not None
    packing, (split, extra, pods) = found
    assert sum(packing.whole.values()) == 2 and [sorted(p) for _, p in packing.split] == [[(0, 1), (1, 1)]]
    assert (split, extra, pods) == (1, 1, 0)
