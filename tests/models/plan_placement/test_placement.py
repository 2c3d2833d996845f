"""Placement: agreement with a brute force over counts, the published bounds, and what a placement must never do."""

import itertools
import random
from collections.abc import Iterator
from functools import cache

import pytest
from each_case import each

from planner.cluster import parse
from planner.models import Options, PlacementRequest
from planner.models.placement.plan_placement import BoundedPlacement, place_stages
from planner.physics.network.transport import domain_racks, locality
from planner.plan.plan_sections import Assignment
from planner.solvers.outcome import Stop

Figures = tuple[int, int, int]


def request(racks: int, groups: int, group: int, domain: int, per_pod: int) -> PlacementRequest:
    return PlacementRequest(
        racks=racks, groups=groups, group_racks=group, leaf_domain_racks=domain, domains_per_pod=per_pod
    )


def placed(r: PlacementRequest) -> BoundedPlacement:
    outcome = place_stages(r, Options(), site="a")
    assert outcome.solution is not None
    assert outcome.stop is Stop.PROVED
    return outcome.solution


def figures(p: BoundedPlacement) -> Figures:
    return p.split, p.extra_pieces, p.cross_pod


def stages_of(assignment: tuple[Assignment, ...], groups: int) -> list[list[int]]:
    return [[rack for a in assignment if a.stage == s for rack in parse(a.racks)] for s in range(groups)]


def ways(free: tuple[int, ...], group: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to take a group's racks from the domains."""
    for head in itertools.product(*(range(min(f, group) + 1) for f in free[:-1])):
        if 0 <= group - sum(head) <= free[-1]:
            yield (*head, group - sum(head))


def brute_force(r: PlacementRequest) -> Figures | None:
    """Return the smallest (split, extra pieces, across pods), in this order, of all ways to hand out racks."""

    @cache
    def best(free: tuple[int, ...], groups: int) -> Figures | None:
        if groups == 0:
            return 0, 0, 0
        figures_of_all = []
        for way in ways(free, r.group_racks):
            rest = best(tuple(sorted_by_pod(f - n for f, n in zip(free, way, strict=True))), groups - 1)
            if rest is not None:
                pieces = sum(n > 0 for n in way)
                pods = len({leaf // r.domains_per_pod for leaf, n in enumerate(way) if n})
                figures_of_all.append((rest[0] + (pieces > 1), rest[1] + pieces - 1, rest[2] + (pods > 1)))
        return min(figures_of_all, default=None)

    def sorted_by_pod(free: Iterator[int]) -> list[int]:
        left = list(free)
        return [f for i in range(0, len(left), r.domains_per_pod) for f in sorted(left[i : i + r.domains_per_pod])]

    return best(tuple(sorted_by_pod(iter(domain_racks(r.racks, r.leaf_domain_racks)))), r.groups)


def random_case(seed: int) -> PlacementRequest:
    """Draw a small site that is nearly full, so that groups split."""
    r = random.Random(seed)
    domain, leaves = r.randint(2, 7), r.randint(1, 6)
    racks = max(1, domain * leaves - r.choice([0, 0, r.randrange(domain)]))
    group = r.randint(1, min(racks, 9))
    groups = max(1, racks // group - r.choice([0, 0, 0, 1]))
    return request(racks, groups, group, domain, r.randint(1, leaves))


@pytest.mark.parametrize("seed", range(120))
def test_agrees_with_brute_force(seed: int) -> None:
    r = random_case(seed)
    assert figures(placed(r)) == brute_force(r)


@pytest.mark.parametrize("seed", range(200, 240))
def test_assignment_is_as_reported(seed: int) -> None:
    r = random_case(seed)
    p = placed(r)
    stages = stages_of(p.assignment, r.groups)
    racks = [rack for s in stages for rack in s]
    assert len(racks) == len(set(racks))
    assert all(0 <= rack < r.racks for rack in racks)
    assert [len(s) for s in stages] == [r.group_racks] * r.groups
    assert all({rack // r.leaf_domain_racks for rack in parse(a.racks)} == {a.leaf_domain} for a in p.assignment)
    crossing = locality(stages, leaf_domain_racks=r.leaf_domain_racks, domains_per_pod=r.domains_per_pod, wrap=False)
    assert figures(p) == (crossing.groups_split, crossing.extra_pieces, crossing.groups_cross_pod)


@pytest.mark.parametrize("seed", range(20))
def test_large_sites_reach_their_bounds(seed: int) -> None:
    r = random.Random(seed)
    group, domain = r.randint(10, 150), r.randint(48, 256)
    racks = r.randint(3000, 8000)
    p = placed(request(racks, racks // group - r.randint(0, 2), group, domain, r.randint(2, 20)))
    assert figures(p) == (p.lower_bound, p.extra_pieces_bound, p.cross_pod_bound)


@each(("domain", "split"), [(128, 43), (200, 108), (208, 1), (210, 4)])
def test_published_bounds(domain: int, split: int) -> None:
    p = placed(request(23_200, 224, 103, domain, 16))
    assert (p.split, p.lower_bound) == (split, split)


@each(("racks", "infeasible"), [(12, False), (11, True)])
def test_room_at_the_edge(racks: int, infeasible: bool) -> None:
    """Three groups of four fit twelve racks; eleven are a proof that they do not, with both numbers."""
    outcome = place_stages(request(racks, 3, 4, 5, 2), Options(), site="east")
    assert (outcome.stop, outcome.infeasible, outcome.solution is None) == (Stop.PROVED, infeasible, infeasible)
    if infeasible:
        assert outcome.detail == "placement[east]: 3 groups of 4 racks need 12 racks > 11"


def test_whole_groups_follow_each_other() -> None:
    p = placed(request(20, 4, 5, 10, 2))
    assert [(a.stage, a.leaf_domain, a.racks) for a in p.assignment] == [
        (0, 0, "r[00-04]"),
        (1, 0, "r[05-09]"),
        (2, 1, "r[10-14]"),
        (3, 1, "r[15-19]"),
    ]


def test_no_time_still_places() -> None:
    r = request(23_200, 224, 103, 128, 16)
    outcome = place_stages(r, Options(time_limit=0.0), site="a")
    assert outcome.solution is not None
    assert outcome.stop is Stop.LIMIT
    p, best = outcome.solution, placed(r)
    assert p.extra_pieces_bound <= best.extra_pieces <= p.extra_pieces
    assert len({x for s in stages_of(p.assignment, 224) for x in s}) == 224 * 103
