"""The exchange between sites: each form's time by hand and by its steps, and the rate that fits the window."""

import math
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.instance.wan import Wan
from planner.physics.site import gradient_exchange, wan
from planner.physics.site.gradient_exchange import (
    Form,
    form_need_gbps,
    forms,
    hierarchical,
    link_needs,
    ring,
    seconds,
    tree,
)

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


@pytest.mark.parametrize("sites", [SITES[:2], SITES[:3], SITES])
def test_a_ring_takes_the_time_of_its_steps(sites: tuple[str, ...]) -> None:
    """After 2·(n-1) steps every site has every part of all, and the clock shows what the formula says."""
    form = ring(sites, 1e10, rtt)
    assert seconds(form, WAN, 100.0, rtt) == pytest.approx(replayed_ring(form.order, 1e10, 100.0))


def test_the_ring_takes_the_best_order() -> None:
    """No order has a shorter slowest link; a, b, d, c and back waits 40 ms at most."""
    form = ring(SITES, 1.0, rtt)
    slowest = [max(rtt(a, b) for a, b in pairwise(("a", *p, "a"))) for p in permutations("bcd")]
    assert max(rtt(*p) for p in form.phases[0].links) == min(slowest) == 40.0


def test_times_by_hand() -> None:
    """10 GB at 100 Gbps are 0.8 s. A ring of three sends 4/3 and waits 2 x 40 ms, a tree from b twice and 38 ms."""
    three = SITES[:3]
    assert seconds(ring(three, 1e10, rtt), WAN, 100.0, rtt) == pytest.approx(0.8 * 4 / 3 + 2 * 0.040)
    root = tree(three, 1e10, rtt)
    assert root.order == ("b", "a", "c")
    assert seconds(root, WAN, 100.0, rtt) == pytest.approx(2 * 0.8 + 0.038)


def test_two_levels_by_hand() -> None:
    """Two groups of two: S inside (10 ms), then half across (40 ms): the bytes of a ring over four, two waits."""
    form = hierarchical([["a", "b"], ["c", "d"]], 1e10, rtt)
    assert form is not None
    assert form.phases[0].links == (("a", "b"), ("c", "d"))
    assert form.phases[1].links == (("a", "c"), ("b", "d"))
    assert seconds(form, WAN, 100.0, rtt) == pytest.approx(0.8 + 0.010 + 0.4 + 0.040)
    assert sum(p.link_bytes for p in form.phases) == pytest.approx(wan.exchange_bytes(1e10, 4))


@pytest.mark.parametrize("groups", [[], [["a", "b", "c"]], [["a"], ["b"]], [["a", "b"], ["c"]]])
def test_unequal_groups_have_no_two_levels(groups: list[list[str]]) -> None:
    """Parts change hands between equal positions: there must be two groups, and as many in each."""
    assert hierarchical(groups, 1.0, rtt) is None


def test_two_sites_need_what_one_link_does() -> None:
    """The ring of two is the pair's own need: all of the gradient each way and one round trip."""
    form = ring(("a", "b"), 1e9, rtt)
    assert form_need_gbps(form, WAN, 0.1, rtt) == pytest.approx(wan.exchange_need_gbps(WAN, 1e9, 0.1, 10.0))


@pytest.mark.parametrize(("window", "name"), [(0.079, "tree"), (0.081, "ring")])
def test_tight_windows_go_by_tree_and_wide_ones_by_ring(window: float, name: str) -> None:
    """Three sites 20 ms apart: 2·S in T - 20 ms against 4/3·S in T - 40 ms are the same rate at 80 ms."""
    assert gradient_exchange.fastest(forms({"x": SITES[:3]}, 1e9, even), WAN, window, even).name == name


def test_two_levels_win_where_groups_are_near() -> None:
    """Four sites on two coasts: the ring's bytes and fewer waits."""
    found = gradient_exchange.fastest(forms({"east": ["a", "b"], "west": ["c", "d"]}, 1e12, rtt), WAN, 10.0, rtt)
    assert found.name == "hierarchical"


@given(st.floats(1e8, 1e13), st.floats(0.2, 100), st.sampled_from(["ring", "tree", "hierarchical"]))
def test_the_need_fills_the_window(size: float, window: float, name: str) -> None:
    """At the rate needed the exchange takes the whole window, and so does each link in its part of it."""
    form = next(f for f in forms({"east": ["a", "b"], "west": ["c", "d"]}, size, rtt) if f.name == name)
    need = form_need_gbps(form, WAN, window, rtt)
    assert seconds(form, WAN, need, rtt) == pytest.approx(window)
    shared = link_needs(form, WAN, window, rtt)
    assert {x.link for x in shared} == {p for phase in form.phases for p in phase.links}
    each = [wan.need_gbps(x.link_bytes, x.window_seconds, x.trips * rtt(*x.link) / 1e3) for x in shared]
    assert max(each) == pytest.approx(need)


def test_no_rate_does_where_the_waiting_fills_the_window() -> None:
    """A ring of four waits three round trips of 40 ms."""
    assert math.isinf(form_need_gbps(ring(SITES, 1.0, rtt), WAN, 0.12, rtt))
    assert math.isfinite(form_need_gbps(ring(SITES, 1.0, rtt), WAN, 0.121, rtt))


def test_one_site_exchanges_nothing() -> None:
    """There is no form for fewer than two."""
    assert forms({"east": ["a"]}, 1e9, rtt) == ()


def published(hidden: int, layers: int) -> Form:
    """Return the exchange of one layer's FP4 gradients between two sites, of a model of 12·h² weights a layer."""
    return ring(("east", "west"), 12 * hidden**2 * 0.5 * layers, lambda *_: 39.0)


@pytest.mark.parametrize(
    ("hidden", "nominal_bytes", "tbps"), [(192_000, 100e12 / 224 / 2, 17.9), (132_000, 52.5e12 / 252 / 2, 8.3)]
)
def test_the_published_exchange(hidden: int, nominal_bytes: float, tbps: float) -> None:
    """A layer's gradients in 100 ms are 17.9 Tbps for the 24-month model (14 in print), 8.3 for the 6-month one."""
    at_once = Wan(round_trips=0.0)
    rate = form_need_gbps(ring(("east", "west"), nominal_bytes, even), at_once, 0.1, even) / 1e3
    assert rate == pytest.approx(tbps, abs=0.05)
    exact = form_need_gbps(published(hidden, 1), at_once, 0.1, even) / 1e3
    assert exact == pytest.approx(tbps, rel=0.012)


def test_latency_folds_into_the_published_exchange() -> None:
    """Of the 100 ms, 39 are one round trip: 223 GB then need 29.3 Tbps, and twice that with the headroom."""
    form = ring(("east", "west"), 100e12 / 224 / 2, lambda *_: 39.0)
    need = form_need_gbps(form, WAN, 0.1, lambda *_: 39.0)
    assert need / 1e3 == pytest.approx(29.27, abs=0.01)
    assert need * WAN.headroom_factor / 1e3 == pytest.approx(58.5, abs=0.1)
