"""Which cases are left to the slow tier: the dear ones of each test, never the cheapest while it is cheap enough."""

from tiers import FIRST, ONE, chosen


def test_a_test_keeps_its_cheapest_case() -> None:
    seconds = {"a[1]": FIRST, "a[2]": FIRST + 1, "a[3]": ONE, "b": FIRST + 0.1, "c": FIRST, "d[1]": 0.1, "d[2]": 0.2}
    assert chosen(seconds) == ["a[1]", "a[2]", "b"]
