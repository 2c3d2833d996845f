"""Time of collectives, level by level."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.physics import collectives as c
from planner.physics.collectives import Level
from planner.physics.num import Num

SIZES = st.floats(0, 1e12)
RANKS = st.integers(1, 4096)
ALL = (c.reduce_scatter, c.all_gather, c.all_reduce, c.all_to_all)
GROUPS = [(1,), (5,), (2, 3), (1, 4), (4, 1, 2), (2, 3, 4), (3, 1, 2, 2)]


def level(ranks: Num, rate: float = 1e9, latency: float = 1e-3, *, launch: float = 0.0, switch: bool = False, tree: bool = False) -> Level:
    """Return one level of the network."""
    return Level(
        name="x",
        ranks=ranks,
        bytes_per_second=rate,
        latency_seconds=latency,
        launch_seconds=launch,
        reduces_in_network=switch,
        tree=tree,
    )


def test_ring_all_reduce() -> None:
    """1 GB over 4 ranks at 1 GB/s and 1 ms: 6 steps of 1 ms and 1.5 s."""
    assert c.all_reduce(1e9, [level(4)]) == pytest.approx(1.506)


def test_ring_halves() -> None:
    """The reduce-scatter and the all-gather each take 3 steps of 1 ms and 0.75 s."""
    assert c.reduce_scatter(1e9, [level(4)]) == pytest.approx(0.753)
    assert c.all_gather(1e9, [level(4)]) == pytest.approx(0.753)


@pytest.mark.parametrize(("switch", "tree"), [(False, False), (True, False), (False, True)])
def test_one_rank_exchanges_nothing(switch: bool, tree: bool) -> None:
    """A single rank takes no time, neither latency nor launch, by ring, by switch, by tree, all to all or point to point."""
    alone = level(1, launch=1.0, switch=switch, tree=tree)
    for collective in ALL:
        assert collective(1e9, [alone]) == 0
        assert collective(1e9, [alone, alone, alone]) == 0
        assert collective(1e9, [alone, level(4), alone]) == collective(1e9, [level(1), level(4)])
    assert c.point_to_point(1e9, alone) == 0


@given(SIZES, RANKS)
def test_one_level_is_the_ring(size: float, ranks: int) -> None:
    """One level takes (n-1)·alpha + (n-1)/n·S/beta for each half of an all-reduce."""
    half = (ranks - 1) * 1e-3 + (ranks - 1) / ranks * size / 1e9
    assert float(c.reduce_scatter(size, [level(ranks)])) == pytest.approx(half)
    assert float(c.all_gather(size, [level(ranks)])) == pytest.approx(half)
    assert float(c.all_reduce(size, [level(ranks)])) == pytest.approx(2 * half)


def test_a_launch_is_paid_once_at_every_level_with_peers() -> None:
    """A launch of 1 s is paid at each of the two levels that have more than one rank, once even for both halves of an all-reduce."""
    levels = [level(8, latency=0.0, launch=1.0), level(1, launch=1.0), level(4, latency=0.0, launch=1.0)]
    for collective in ALL:
        assert collective(0.0, levels) == 2


def test_point_to_point() -> None:
    """1 GB at 1 GB/s takes 1 s, the latency of 1 ms and the launch of 10 ms."""
    assert c.point_to_point(1e9, level(2)) == pytest.approx(1.001)
    assert c.point_to_point(1e9, level(2, launch=0.01)) == pytest.approx(1.011)


def test_tree_takes_logarithmic_steps_in_each_half() -> None:
    """16 ranks take 4 steps by tree, not 15, and send as much; 2 ranks take one either way."""
    for half in (c.reduce_scatter, c.all_gather):
        assert half(1e9, [level(16, tree=True)]) == pytest.approx(0.004 + 0.9375)
        assert half(1e9, [level(16)]) == pytest.approx(0.015 + 0.9375)
        assert half(1e9, [level(2, tree=True)]) == half(1e9, [level(2)])


def test_all_reduce_takes_the_lesser_of_ring_and_tree() -> None:
    """Over 4 ranks the tree's 4 steps and two tensors beat the ring's 6 and 1.5 up to 4·alpha·beta = 4 MB, and no further."""
    for size in (0.0, 3.9e6):
        assert c.all_reduce(size, [level(4, tree=True)]) == pytest.approx(0.004 + 2 * size / 1e9)
    assert c.all_reduce(4e6, [level(4, tree=True)]) == pytest.approx(c.all_reduce(4e6, [level(4)]))
    assert c.all_reduce(4.1e6, [level(4, tree=True)]) == c.all_reduce(4.1e6, [level(4)])
    assert c.all_reduce(3.9e6, [level(4)]) > c.all_reduce(3.9e6, [level(4, tree=True)])


def test_all_reduce_uses_a_tree_at_the_highest_level_only() -> None:
    """Below a level of 2 ranks 16 ranks take the ring's 30 steps; below one of 1 rank they are the highest, with 8."""
    lower = level(16, tree=True)
    assert c.all_reduce(0.0, [lower, level(np.array([1, 2]))]) == pytest.approx([0.008, 0.030 + 0.002])


def test_a_switch_goes_before_a_tree() -> None:
    """Where the switches reduce, a tree changes nothing."""
    for collective in ALL:
        assert collective(1e9, [level(16, switch=True, tree=True)]) == collective(1e9, [level(16, switch=True)])


def test_two_levels_by_hand() -> None:
    """8 GPUs of a rack share 8 GB at 8 GB/s (7/8 of it, 7 steps), then 4 racks each eighth, 1 GB, at 1 GB/s (3/4 of it, 3 steps)."""
    levels = [level(8, 8e9), level(4)]
    assert c.reduce_scatter(8e9, levels) == pytest.approx(0.875 + 0.007 + 0.75 + 0.003)
    assert c.all_reduce(8e9, levels) == pytest.approx(2 * (0.875 + 0.007 + 0.75 + 0.003))


def test_switches_that_reduce_send_the_tensor_once() -> None:
    """With reduction in the switches an all-reduce of 1 GB over 8 ranks takes 1 s and two latencies, its halves one latency each."""
    assert c.all_reduce(1e9, [level(8, switch=True)]) == pytest.approx(1.002)
    assert c.reduce_scatter(1e9, [level(8, switch=True)]) == pytest.approx(0.876)


def test_two_ranks_gain_nothing_from_a_switch() -> None:
    """Between two ranks ring and switch send the tensor once, with two latencies."""
    assert c.all_reduce(1e9, [level(2, switch=True)]) == pytest.approx(c.all_reduce(1e9, [level(2)]))


Rank = tuple[int, ...]


def _rank_groups(sizes: tuple[int, ...], k: int) -> list[list[Rank]]:
    """List the groups of ranks whose positions differ at level k alone."""
    others = itertools.product(*(range(n) for j, n in enumerate(sizes) if j != k))
    return [[(*o[:k], i, *o[k:]) for i in range(sizes[k])] for o in others]


def _reduce_scatter_by_message(sizes: tuple[int, ...]) -> tuple[list[set[int]], list[int]]:
    """Run rings level by level on one part per rank; return the parts that any rank sent, and the steps, at each level."""
    ranks = list(itertools.product(*(range(n) for n in sizes)))
    held = {r: {part: {r} for part in ranks} for r in ranks}  # whose contributions the sum of a part holds
    sent, steps = [], []
    for k, n in enumerate(sizes):
        counts = dict.fromkeys(ranks, 0)
        for t in range(n - 1):
            for ring in _rank_groups(sizes, k):
                out = {r: {p: v for p, v in held[r].items() if p[k] == (r[k] - t - 1) % n} for r in ring}
                for i, r in enumerate(ring):
                    counts[r] += len(out[r])
                    for part, owners in out[r].items():
                        del held[r][part]
                        assert not held[ring[(i + 1) % n]][part] & owners
                        held[ring[(i + 1) % n]][part] |= owners
        sent.append(set(counts.values()))
        steps.append(n - 1)
    assert all(held[r] == {r: set(ranks)} for r in ranks)
    return sent, steps


def _all_gather_by_message(sizes: tuple[int, ...]) -> tuple[list[set[int]], list[int]]:
    """Run rings from the highest level down; return the parts that any rank sent, and the steps, at each level from the lowest."""
    ranks = list(itertools.product(*(range(n) for n in sizes)))
    held = {r: {r} for r in ranks}
    sent, steps = [], []
    for k, n in reversed(list(enumerate(sizes))):
        counts = dict.fromkeys(ranks, 0)
        for ring in _rank_groups(sizes, k):
            moving = [set(held[r]) for r in ring]
            for _ in range(n - 1):
                for r, parts in zip(ring, moving, strict=True):
                    counts[r] += len(parts)
                moving = [moving[i - 1] for i in range(n)]
                for r, parts in zip(ring, moving, strict=True):
                    held[r] |= parts
        sent.append(set(counts.values()))
        steps.append(n - 1)
    assert all(held[r] == set(ranks) for r in ranks)
    return sent[::-1], steps[::-1]


@pytest.mark.parametrize("sizes", GROUPS)
@pytest.mark.parametrize(
    ("half", "by_message"), [(c.reduce_scatter, _reduce_scatter_by_message), (c.all_gather, _all_gather_by_message)], ids=["scatter", "gather"]
)
def test_halves_count_every_message(
    sizes: tuple[int, ...], half: Callable[..., Num], by_message: Callable[..., tuple[list[set[int]], list[int]]]
) -> None:
    """What each rank sends at each level, message by message, over the level's rate, and a latency for each step."""
    sent, steps = by_message(sizes)
    rates, latencies = [10.0 / 3**k for k in range(len(sizes))], [0.01 * 7**k for k in range(len(sizes))]
    each = 1 / int(np.prod(sizes))
    expected = 0.0
    for parts, step, rate, latency in zip(sent, steps, rates, latencies, strict=True):
        assert len(parts) == 1  # every rank sends as much as any other
        expected += max(parts) * each / rate + step * latency
    levels = [level(n, rate, latency) for n, rate, latency in zip(sizes, rates, latencies, strict=True)]
    assert float(half(1.0, levels)) == pytest.approx(expected)


def _all_to_all_by_message(sizes: tuple[int, ...]) -> list[float]:
    """Count what a rank sends of 1 byte over each level: inside its domain over the lowest, else over all others up to where paths part."""
    ranks = list(itertools.product(*(range(n) for n in sizes)))
    crossed = [0.0] * len(sizes)
    for rank in ranks[1:]:
        top = max(k for k, i in enumerate(rank) if i)
        for k in range(min(1, top), top + 1):
            crossed[k] += 1 / len(ranks)
    return crossed


@pytest.mark.parametrize("sizes", [*GROUPS, (1, 1), (2, 1), (1, 3), (4, 2), (8, 4), (1, 2, 2), (1, 1, 5)])
def test_all_to_all_counts_every_message(sizes: tuple[int, ...]) -> None:
    """The busiest level sets the time, whichever it is."""
    crossed = _all_to_all_by_message(sizes)
    for slow in range(len(sizes)):
        for ratio in (1.0, 2.0, 1000.0):
            rates = [1.0 if k == slow else ratio for k in range(len(sizes))]
            expected = max(x / rate for x, rate in zip(crossed, rates, strict=True))
            levels = [level(n, rate, 0.0) for n, rate in zip(sizes, rates, strict=True)]
            assert c.all_to_all(1.0, levels) == pytest.approx(expected)


def test_all_to_all_loads_a_leaf_with_what_goes_on_to_the_pod() -> None:
    """Of 4 GB to 4 ranks on 4 racks, 3 GB leave the NIC at 1 GB/s: 1 within the leaf and 2 to the other leaf, over which the pod is faster."""
    assert c.all_to_all(4e9, [level(1), level(2, latency=0.0), level(2, 1e10, 0.0)]) == pytest.approx(3.0)


def test_all_to_all_adds_the_latencies_of_its_levels() -> None:
    """8 of a rack at 8 GB/s and 4 racks at 1 GB/s: of 32 GB 7 stay, 24 leave; 24 s by NIC and one latency of each level."""
    assert c.all_to_all(32e9, [level(8, 8e9), level(4)]) == pytest.approx(24.002)


LEVELS = st.lists(
    st.builds(level, RANKS, st.floats(1e6, 1e12), st.floats(0, 1e-3), launch=st.floats(0, 1e-3), switch=st.booleans(), tree=st.booleans()),
    min_size=1,
    max_size=4,
)


@given(LEVELS, SIZES, SIZES, st.floats(1, 100))
def test_more_to_send_or_slower_links_never_save_time(levels: list[Level], size: float, more: float, faster: float) -> None:
    """Time does not fall with size and does not rise with bandwidth."""
    quick = [replace(x, bytes_per_second=x.bytes_per_second * faster) for x in levels]
    for collective in ALL:
        time = float(collective(size, levels))
        assert 0 <= time <= float(collective(size + more, levels))
        assert float(collective(size, quick)) <= time
    assert c.point_to_point(size, quick[0]) <= c.point_to_point(size, levels[0]) <= c.point_to_point(size + more, levels[0])


@given(LEVELS, SIZES)
def test_trees_never_take_longer(levels: list[Level], size: float) -> None:
    """A level that may take logarithmic steps is never slower for it."""
    rings, trees = ([replace(x, tree=tree) for x in levels] for tree in (False, True))
    for collective in ALL:
        assert collective(size, trees) <= collective(size, rings)


@pytest.mark.parametrize(("switch", "tree"), [(False, False), (True, False), (False, True)])
def test_arrays_are_groups_side_by_side(switch: bool, tree: bool) -> None:
    """Arrays of ranks and sizes give what each pair gives alone."""
    inside, racks, sizes = np.array([1, 2, 8, 72]), np.array([[1], [3], [64]]), np.array([0.0, 1e5, 1e7, 1e9])

    def levels(near: Num, far: Num) -> list[Level]:
        return [level(near, 1e10, 1e-6, launch=1e-5, switch=switch), level(far, 1e9, 1e-5, launch=1e-4, switch=switch, tree=tree)]

    for collective in ALL:
        whole = np.asarray(collective(sizes, levels(inside, racks)))
        assert whole.shape == (3, 4)
        for i, j in np.ndindex(whole.shape):
            assert whole[i, j] == pytest.approx(float(collective(sizes[j], levels(int(inside[j]), int(racks[i, 0])))))


@given(SIZES, RANKS)
def test_all_reduce_is_its_halves_and_below_two_tensors(size: float, ranks: int) -> None:
    """An all-reduce is a reduce-scatter and an all-gather, and without latency never moves more than two tensors."""
    levels = [level(ranks, latency=0.0)]
    whole = float(c.all_reduce(size, levels))
    assert whole == pytest.approx(float(c.reduce_scatter(size, levels) + c.all_gather(size, levels)))
    assert 0 <= whole <= 2 * size / 1e9


@given(SIZES, st.integers(1, 64), st.integers(1, 64))
def test_levels_move_what_one_ring_moves(size: float, inside: int, racks: int) -> None:
    """At one rate and without latency, level by level moves just what a flat ring over all ranks does."""
    flat, two = [level(inside * racks, latency=0.0)], [level(inside, latency=0.0), level(racks, latency=0.0)]
    assert float(c.reduce_scatter(size, two)) == pytest.approx(float(c.reduce_scatter(size, flat)), abs=1e-12)


def test_tail_is_the_last_layer_or_the_excess() -> None:
    """Ten layers of 1 s beside a backward pass of 2 s a layer leave the last layer's 1 s; beside 0.5 s, 10 - 9 x 0.5 s."""
    assert c.exposed_tail_seconds(10.0, 2.0, 10) == pytest.approx(1.0)
    assert c.exposed_tail_seconds(10.0, 0.5, 10) == pytest.approx(5.5)
