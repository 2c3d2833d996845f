"""Hostlists: what they look like, and that nothing is lost on the way there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.physics.hostlist import fold, parse, width


@given(st.lists(st.integers(0, 30_000)), st.integers(1, 6))
def test_round_trip(numbers: list[int], digits: int) -> None:
    """Any numbers in any order come back as they were."""
    assert parse(fold(numbers, digits)) == numbers


@given(st.integers(0, 30_000), st.integers(0, 500), st.integers(1, 6))
def test_a_run_folds_into_one_range(first: int, more: int, digits: int) -> None:
    """Consecutive numbers take one range, however many they are."""
    assert fold(range(first, first + more + 1), digits).count(",") == 0


@pytest.mark.parametrize(
    ("numbers", "digits", "text"),
    [
        ([], 4, ""),
        ([7], 4, "r0007"),
        ([*range(1, 104), 205], 4, "r[0001-0103,0205]"),
        ([3, 4, 1, 2], 2, "r[03-04,01-02]"),
        ([2, 1, 0], 1, "r[2,1,0]"),
        ([5, 5], 1, "r[5,5]"),
        ([9, 10], 1, "r[9-10]"),
    ],
)
def test_looks(numbers: list[int], digits: int, text: str) -> None:
    """Runs fold, order stays, one rack needs no brackets."""
    assert fold(numbers, digits) == text
    assert parse(text) == numbers


@pytest.mark.parametrize(("racks", "digits"), [(0, 1), (1, 1), (10, 1), (11, 2), (23_200, 5)])
def test_width_is_that_of_the_largest_number(racks: int, digits: int) -> None:
    """Ten racks are numbered 0 to 9, the eleventh takes a second digit."""
    assert width(racks) == digits


@pytest.mark.parametrize("text", ["0001", "r", "r[]", "r[1,]", "r[1-]", "r[2-1]", "x[1]", "r[1] ", "r[1-2-3]", "r[-1]", "r1,r2", "r[\u0661]"])
def test_refuses_what_is_not_a_list(text: str) -> None:
    """Anything else is an error that shows the text."""
    with pytest.raises(ValueError, match=r"write"):
        parse(text)
