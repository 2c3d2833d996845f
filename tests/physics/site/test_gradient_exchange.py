"""The exchange between sites: each form's time by hand and by its steps, and the rate that fits the window."""

import math
from itertools import pairwise, permutations

import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st

from planner.instance.network import Wan
from planner.physics.site import wan_exchange
from planner.physics.site.wan import sync_demands
from planner.physics.site.wan_exchange import form_need_gbps, forms, hierarchical, ring, seconds, tree

WAN = Wan()
SITES = ("a", "b", "c", "d")
RTT = {("a", "b"): 10.0, ("a", "c"): 40.0, ("a", "d"): 42.0, ("b", "c"): 38.0, ("b", "d"): 40.0, ("c", "d"): 8.0}


def rtt(a: str, b: str) -> float:
    return RTT[min(a, b), max(a, b)]


def even(_a: str, _b: str) -> float:
    return 20.0


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
    # With three trips for one each of these waits is thrice as long, and every link of the ring says so.
    ring_of_three, root, thrice = ring(SITES[:3], 1e10, rtt), tree(SITES[:3], 1e10, rtt), Wan(round_trips=3.0)
    for w, trips in ((WAN, 1), (thrice, 3)):
        assert seconds(ring_of_three, w, 100.0, rtt) == pytest.approx(0.8 * 4 / 3 + trips * 2 * 0.040)
        assert seconds(root, w, 100.0, rtt) == pytest.approx(2 * 0.8 + trips * 0.038)
    assert {x.trips for x in sync_demands(thrice, ring_of_three, 5.0, rtt)} == {6.0}


def test_the_root_of_a_tree_has_the_shortest_slowest_link() -> None:
    """A site that is near to most, and far from one, is none; of five sites in a row it is the middle."""
    ms = {"ab": 6.0, "ac": 1.0, "ad": 10.0, "bc": 6.0, "bd": 6.0, "cd": 10.0}
    assert tree("abcd", 1.0, lambda x, y: ms["".join(sorted((x, y)))]).order[0] == "b"
    form = tree("edcba", 1e9, on_a_line)
    assert form.order == ("c", "a", "b", "d", "e")
    (phase,) = form.phases
    assert (phase.links, phase.link_bytes, phase.trips) == ((("a", "c"), ("b", "c"), ("c", "d"), ("c", "e")), 2e9, 1)


@each(("groups", "names"), [
    ([["a"]], []), ([["a", "b", "c"]], ["ring", "tree"]), ([["a"], ["b"]], ["ring", "tree"]),
    ([["a", "b"], ["c"]], ["ring", "tree"]), ([["a", "b"], ["d", "c"]], ["ring", "tree", "hierarchical"]),
])  # fmt: skip
def test_forms_are_named_plainest_first(groups: list[list[str]], names: list[str]) -> None:
    """Of two levels only groups of as many: parts change hands between equal positions; one site exchanges nothing."""
    assert [f.name for f in forms(dict(zip("xyz", groups, strict=False)), 1.0, rtt)] == names


COASTS = {"east": ["a", "b"], "west": ["c", "d"]}


@each(("groups", "size", "trips", "window", "name"), [
    ({"x": SITES[:3]}, 1e9, even, 0.079, "tree"), ({"x": SITES[:3]}, 1e9, even, 0.081, "ring"),
    (COASTS, 1e12, rtt, 10.0, "hierarchical"),
])  # fmt: skip
def test_the_form_of_the_least_rate(groups, size: float, trips, window: float, name: str) -> None:
    """Three sites 20 ms apart: 2·S in T - 20 ms against 4/3·S in T - 40 ms are the same rate at 80 ms."""
    # Four sites on two coasts: the ring's bytes and fewer waits.
    assert wan_exchange.choose_form(WAN, forms(groups, size, trips), window, trips).name == name


@given(st.floats(1e8, 1e13), st.floats(0.2, 100), st.sampled_from(["ring", "tree", "hierarchical"]))
def test_the_need_fills_the_window(size: float, window: float, name: str) -> None:
    form = next(f for f in forms(COASTS, size, rtt) if f.name == name)
    need = form_need_gbps(form, WAN, window, rtt)
    assert seconds(form, WAN, need, rtt) == pytest.approx(window)
    shared = sync_demands(WAN, form, window, rtt)
    assert {(x.a, x.b) for x in shared} == {p for phase in form.phases for p in phase.links}
    each = [wan_exchange.need_gbps(x.size_bytes, x.window_seconds, x.trips * rtt(x.a, x.b) / 1e3) for x in shared]
    assert max(each) == pytest.approx(need)


TEN = "abcdefghij"


def on_a_line(a: str, b: str) -> float:
    """Return a round trip between sites that stand in a row, each gap a little wider than the one before."""
    i, j = sorted((TEN.index(a), TEN.index(b)))
    return sum(10.0 + k for k in range(i, j))


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
    for groups, inside, across in ((["ab", "cd", "ef"], (1, 1), (2 / 3, 2)), (["abc", "def"], (4 / 3, 2), (1 / 3, 1))):
        form = hierarchical([tuple(g) for g in groups], 3e9, on_a_line)
        shares = [x for p in form.phases for x in (p.link_bytes / 3e9, p.trips)]
        assert shares == pytest.approx([*inside, *across])
        assert set(form.order) == set("abcdef") and len(form.order) == 6
        assert sum(p.link_bytes for p in form.phases) == pytest.approx(wan_exchange.exchange_bytes(3e9, 6))


def test_a_window_that_the_waits_fill_is_shared_by_them() -> None:
    """Phases of 10 and 40 ms in a window of 20: no rate fits, and each phase has its part by its wait."""
    form = hierarchical([["a", "b"], ["c", "d"]], 1e9, rtt)
    assert form is not None
    found = {(x.a, x.b): x for x in sync_demands(WAN, form, 0.02, rtt)}
    assert found["a", "b"].window_seconds == pytest.approx(0.02 * 10 / 50)
    assert found["a", "c"].window_seconds == pytest.approx(0.02 * 40 / 50)
    slow = {
        at: wan_exchange.need_gbps(x.size_bytes, x.window_seconds, x.trips * rtt(*at) / 1e3) for at, x in found.items()
    }
    assert math.isinf(slow["a", "b"]) and math.isinf(slow["a", "c"])
    at_once = Wan(round_trips=0.0)
    assert {x.window_seconds for x in sync_demands(at_once, ring(SITES, 1e9, rtt), 0.0, rtt)} == {0.0}


@each(("gbps", "ms", "expected"), [
    (None, 40.0, 7.0), (0.0, 40.0, 7.0), (100.0, None, 8e9 * 1.5 / 1e11), (100.0, 40.0, 8e9 * 1.5 / 1e11 + 3 * 0.04),
])  # fmt: skip
def test_the_time_that_a_step_counts_on(gbps: float | None, ms: float | None, expected: float) -> None:
    """1 GB in a ring of four sends 1.5 GB a link; with 3 round trips of 40 ms each; without a rate the window."""
    thrice = Wan(round_trips=3.0)
    assert wan_exchange.assumed_window_seconds(thrice, 1e9, 4, 7.0, gbps, ms) == pytest.approx(expected)
