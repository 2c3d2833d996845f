"""Grouping of plants: a partition, nobody farther than the radius from the largest of its node, and no power lost."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.imports.grid_tables import Plant, group_plants, nearest, unit_vectors
from planner.physics.site.wan import great_circle_km


def plant(number: int, latitude: float, longitude: float, mw: float, authority: str) -> Plant:
    return Plant(
        id=str(number), name=f"plant {number}", state="", latitude=latitude, longitude=longitude, mw=mw,
        largest_unit_mw=None, authority=authority, region="",
    )  # fmt: skip


# Few capacities, so that equals are common; places near each other, round a pole and across the date line.
PLACES = st.tuples(
    st.one_of(st.floats(39, 41), st.floats(89, 90)),
    st.one_of(st.floats(-77, -75), st.floats(179, 180), st.floats(-180, -179)),
)
LISTS = st.lists(
    st.tuples(PLACES, st.sampled_from([0.0, 20.0, 500.0, 1000.0]), st.sampled_from("AB")), min_size=1, max_size=25
)


def plants(drawn: list[tuple[tuple[float, float], float, str]]) -> list[Plant]:
    return [plant(i, *place, mw, authority) for i, (place, mw, authority) in enumerate(drawn)]


def km(a: Plant, b: Plant) -> float:
    return great_circle_km(a.latitude, a.longitude, b.latitude, b.longitude)


@settings(max_examples=150, deadline=None)
@given(LISTS, st.floats(0, 300))
def test_partition_within_radius(drawn: list[tuple[tuple[float, float], float, str]], radius: float) -> None:
    """Every plant is in one node, of its own authority, within the radius of the node's largest; megawatts add up."""
    given_plants = plants(drawn)
    nodes = list(group_plants(given_plants, radius))
    assert sorted(p.id for group in nodes for p in group) == sorted(p.id for p in given_plants)
    for group in nodes:
        assert {p.authority for p in group} == {group[0].authority}
        assert group[0].mw == max(p.mw for p in group)
        assert all(km(group[0], p) <= radius + 1e-4 for p in group)
    assert sum(p.mw for group in nodes for p in group) == pytest.approx(sum(p.mw for p in given_plants))


@settings(max_examples=100, deadline=None)
@given(LISTS, st.floats(0, 300), st.randoms(use_true_random=False))
def test_order_does_not_matter(
    drawn: list[tuple[tuple[float, float], float, str]], radius: float, chance: random.Random
) -> None:
    given_plants = plants(drawn)
    other = list(given_plants)
    chance.shuffle(other)
    assert list(group_plants(given_plants, radius)) == list(group_plants(other, radius))


def by_hand(given_plants: list[Plant], radius: float) -> list[set[str]]:
    """Group plants as on paper: the largest that remains (of equals the first id) takes all within the radius."""
    nodes = []
    for authority in sorted({p.authority for p in given_plants}):
        left = sorted((p for p in given_plants if p.authority == authority), key=lambda p: (-p.mw, p.id))
        while left:
            mine = [p for p in left if km(left[0], p) <= radius]
            nodes.append({p.id for p in mine})
            left = [p for p in left if p not in mine]
    return nodes


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_paper_and_pencil(seed: int) -> None:
    """The vectors group as the great-circle formula does, on seeded lists without a plant at the very edge."""
    chance = random.Random(seed)
    given_plants = []
    for i in range(120):
        place, mw = (
            (chance.uniform(38, 42), chance.uniform(-80, -74)),
            chance.choice([20, 500, chance.uniform(20, 2000)]),
        )
        given_plants.append(plant(i, *place, mw, chance.choice("AB")))
    assert [{p.id for p in group} for group in group_plants(given_plants, 25)] == by_hand(given_plants, 25)


def test_no_chains() -> None:
    """Plants in a row of steps within the radius do not become one node: each is near the largest, or in another."""
    row = [plant(i, 40 + 0.2 * i, -76, 1000 - i, "A") for i in range(10)]
    assert [len(g) for g in group_plants(row, 25)] == [2, 2, 2, 2, 2]


def test_edge_of_the_radius() -> None:
    """A plant just within the radius belongs to the node; one just outside does not; the same place always does."""
    two = [plant(1, 40, -76, 1000, "A"), plant(2, 40.2, -76, 20, "A")]
    apart = km(*two)
    assert len(list(group_plants(two, apart + 1e-3))) == 1
    assert len(list(group_plants(two, apart - 1e-3))) == 2
    assert len(list(group_plants([plant(1, 40, -76, 5, "A"), plant(2, 40, -76, 9, "A")], 0))) == 1


@pytest.mark.parametrize("seed", range(5))
def test_nearest(seed: int) -> None:
    chance = random.Random(seed)
    points = [(chance.uniform(-90, 90), chance.uniform(-180, 180)) for _ in range(40)]
    centre = (chance.uniform(-90, 90), chance.uniform(-180, 180))
    at = nearest(unit_vectors(*map(list, zip(*points, strict=True))), unit_vectors([centre[0]], [centre[1]]))
    assert points[at] == min(points, key=lambda p: great_circle_km(*p, *centre))
