"""The exchange between sites: each form's time by hand and by its steps, and the rate that fits the window."""

import math
from itertools import pairwise, permutations

import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st

from planner.instance.network import Wan
from planner.physics.site import wan
from planner.physics.site.wan import form_need_gbps, forms, hierarchical, ring, seconds, sync_demands, tree

WAN = Wan()
SITES = ("a", "b", "c", "d")
RTT = {("a", "b"): 10.0, ("a", "c"): 40.0, ("a", "d"): 42.0, ("b", "c"): 38.0, ("b", "d"): 40.0, ("c", "d"): 8.0}


def rtt(a: str, b: str) -> float:
    return RTT[min(a, b), max(a, b)]


def even(_a: str, _b: str) -> float:
    return 20.0


TEN = "abcdefghij"


def on_a_line(a: str, b: str) -> float:
    """Return a round trip between sites that stand in a row, each gap a little wider than the one before."""
    i, j = sorted((TEN.index(a), TEN.index(b)))
    return sum(10.0 + k for k in range(i, j))


def replayed_ring(order: tuple[str, ...], size: float, gbps: float) -> float:
    """Pass parts around: a site sends a part on when it has it from the one before, and all wait for the slowest."""
    n, clock = len(order), 0.0
    part = [{site: {i: {site} for i in range(n)} for site in order}]
    for step in range(2 * (n - 1)):
        parts_of = part[0]
        sent = [(order[i], order[(i + 1) % n], (i - step) % n) for i in range(n)]
        arrive = {(b, k): parts_of[a][k] for a, b, k in sent}
        for (b, k), got in arrive.items():
            parts_of[b][k] = parts_of[b][k] | got
        clock += max(8 * size / n / (gbps * 1e9) + rtt(a, b) / 2e3 for a, b, _ in sent)
    assert all(parts_of[s][k] == set(order) for s in order for k in range(n))
    return clock


@each("sites", [SITES[:2], SITES[:3], SITES])
def test_a_ring_takes_the_time_of_its_steps(sites: tuple[str, ...]) -> None:
    """After 2·(n-1) steps every site has every part of all, and the clock shows what the formula says."""
    form = ring(sites, 1e10, rtt)
    assert seconds(form, WAN, 100.0, rtt) == pytest.approx(replayed_ring(form.order, 1e10, 100.0))


def test_the_ring_takes_the_best_order() -> None:
    form = ring(SITES, 1.0, rtt)
    slowest = [max(rtt(a, b) for a, b in pairwise(("a", *p, "a"))) for p in permutations("bcd")]
    assert max(rtt(*p) for p in form.phases[0].links) == min(slowest) == 40.0


def test_times_by_hand() -> None:
    """10 GB at 100 Gbps are 0.8 s. A ring of three sends 4/3 and waits 2 x 40 ms, a tree from b twice and 38 ms."""
    three = SITES[:3]
    assert seconds(ring(three, 1e10, rtt), WAN, 100.0, rtt) == pytest.approx(0.8 * 4 / 3 + 2 * 0.040)
    # Three trips for one: the ring waits six times, and every link says so.
    thrice = Wan(round_trips=3.0)
    assert seconds(ring(three, 1e10, rtt), thrice, 100.0, rtt) == pytest.approx(0.8 * 4 / 3 + 6 * 0.040)
    assert {x.trips for x in sync_demands(thrice, ring(three, 1e10, rtt), 5.0, rtt)} == {6.0}
    root = tree(three, 1e10, rtt)
    assert root.order == ("b", "a", "c")
    assert seconds(root, WAN, 100.0, rtt) == pytest.approx(2 * 0.8 + 0.038)


def test_the_root_of_a_tree_has_the_shortest_slowest_link() -> None:
    """A site that is near to most, and far from one, is none; each link has twice the gradient and one round trip."""
    (phase,) = tree("edcba", 1e9, on_a_line).phases  # of five in a row the middle
    assert (phase.links, phase.link_bytes, phase.trips) == ((("a", "c"), ("b", "c"), ("c", "d"), ("c", "e")), 2e9, 1)
    ms = {"ab": 6.0, "ac": 1.0, "ad": 10.0, "bc": 6.0, "bd": 6.0, "cd": 10.0}
    assert tree("abcd", 1.0, lambda x, y: ms["".join(sorted((x, y)))]).order[0] == "b"


@each(("window", "name"), [(0.079, "tree"), (0.081, "ring")])
def test_tight_windows_go_by_tree_and_wide_ones_by_ring(window: float, name: str) -> None:
    """Three sites 20 ms apart: 2·S in T - 20 ms against 4/3·S in T - 40 ms are the same rate at 80 ms."""
    assert wan.choose_form(WAN, forms({"x": SITES[:3]}, 1e9, even), window, even).name == name
    # Four sites on two coasts: two levels have the ring's bytes and fewer waits.
    found = wan.choose_form(WAN, forms({"east": ["a", "b"], "west": ["c", "d"]}, 1e12, rtt), 10.0, rtt)
    assert found.name == "hierarchical"


@given(st.floats(1e8, 1e13), st.floats(0.2, 100), st.sampled_from(["ring", "tree", "hierarchical"]))
def test_the_need_fills_the_window(size: float, window: float, name: str) -> None:
    form = next(f for f in forms({"east": ["a", "b"], "west": ["c", "d"]}, size, rtt) if f.name == name)
    need = form_need_gbps(form, WAN, window, rtt)
    assert seconds(form, WAN, need, rtt) == pytest.approx(window)
    shared = sync_demands(WAN, form, window, rtt)
    assert {(x.a, x.b) for x in shared} == {p for phase in form.phases for p in phase.links}
    each = [wan.need_gbps(x.size_bytes, x.window_seconds, x.trips * rtt(x.a, x.b) / 1e3) for x in shared]
    assert max(each) == pytest.approx(need)


def test_many_sites_go_on_to_the_nearest() -> None:
    """Of ten sites in a row the ring starts at the first and takes them in turn; its slowest link is the way back."""
    # Up to eight every order is tried: out over every other site and back over the rest, no link spans three gaps.
    form = ring("jihgfedcba", 1e10, on_a_line)
    assert form.order == tuple(TEN)
    assert form.phases[0].trips == 9
    wait = 9 * on_a_line("a", "j") / 1e3
    assert seconds(form, WAN, 100.0, on_a_line) == pytest.approx(8 * 1e10 * 2 * 9 / 10 / 1e11 + wait)
    eight = ring(TEN[:8], 1e10, on_a_line)
    assert max(on_a_line(a, b) for a, b in eight.phases[0].links) == on_a_line("f", "h")


def test_two_levels_of_unlike_counts() -> None:
    """Three groups of two: a ring of two inside, then rings of three with half of it: 1·S and 4/3·S/2, 1 + 2 trips."""
    # Two groups of three: 4/3·S and 1·S/3, 2 + 1 trips. Both carry the bytes of a ring over six.
    kinds = ((["ab", "cd", "ef"], (1.0, 1), (2 / 3, 2)), (["abc", "def"], (4 / 3, 2), (1 / 3, 1)))
    for groups, inside, across in kinds:
        form = hierarchical([tuple(g) for g in groups], 3e9, on_a_line)
        assert [x for p in form.phases for x in (p.link_bytes / 3e9, p.trips)] == pytest.approx([*inside, *across])
        assert set(form.order) == set("abcdef") and len(form.order) == 6
        assert sum(p.link_bytes for p in form.phases) == pytest.approx(wan.exchange_bytes(3e9, 6))
    # Parts change hands between equal positions: there must be two groups, and as many in each.
    for unequal in ([], ["abc"], ["a", "b"], ["ab", "c"]):
        assert hierarchical([tuple(g) for g in unequal], 1.0, rtt) is None
    # Forms are named plainest first; one site exchanges nothing.
    groups = {"x": ["a", "b"], "y": ["d", "c"]}
    assert [f.name for f in forms(groups, 1.0, rtt)] == ["ring", "tree", "hierarchical"]
    assert [f.name for f in forms({"x": ["a", "b"]}, 1.0, rtt)] == ["ring", "tree"] and not forms({"x": "a"}, 1.0, rtt)


def test_a_window_that_the_waits_fill_is_shared_by_them() -> None:
    """Phases of 10 and 40 ms in a window of 20: no rate fits, and each phase has its part by its wait."""
    form = hierarchical([["a", "b"], ["c", "d"]], 1e9, rtt)
    assert form is not None
    found = {(x.a, x.b): x for x in sync_demands(WAN, form, 0.02, rtt)}
    assert found["a", "b"].window_seconds == pytest.approx(0.02 * 10 / 50)
    assert found["a", "c"].window_seconds == pytest.approx(0.02 * 40 / 50)
    slow = {at: wan.need_gbps(x.size_bytes, x.window_seconds, x.trips * rtt(*at) / 1e3) for at, x in found.items()}
    assert math.isinf(slow["a", "b"]) and math.isinf(slow["a", "c"])
    at_once = Wan(round_trips=0.0)
    assert {x.window_seconds for x in sync_demands(at_once, ring(SITES, 1e9, rtt), 0.0, rtt)} == {0.0}


@each(("gbps", "ms", "expected"), [
    (None, 40.0, 7.0), (0.0, 40.0, 7.0), (100.0, None, 8e9 * 1.5 / 1e11), (100.0, 40.0, 8e9 * 1.5 / 1e11 + 3 * 0.04),
])  # fmt: skip
def test_the_time_that_a_step_counts_on(gbps: float | None, ms: float | None, expected: float) -> None:
    """1 GB in a ring of four sends 1.5 GB a link; with 3 round trips of 40 ms each; without a rate the window."""
    thrice = Wan(round_trips=3.0)
    assert wan.assumed_window_seconds(thrice, 1e9, 4, 7.0, gbps, ms) == pytest.approx(expected)
