"""The fewest links of a dragonfly, each against a plain count up from none."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.models.fabric import dragonfly
from planner.physics.network.dragonfly import unevenness

LINKS = st.integers(0, 40)


def fewest(enough, most: int = 10_000) -> int:
    """Return the smallest number that is enough."""
    return next(n for n in range(most) if enough(n))


def one(found: np.ndarray) -> int:
    """Return the only entry."""
    (n,) = found.tolist()
    return n


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), LINKS, LINKS)
def test_bundles_make_up_what_links_between_groups_leave(sizes: list[int], outwards: int, total: int) -> None:
    """The router with the fewest of its group's links has as many ports outwards as asked for, by the fewest bundles.

    A bundle is one link at the least; a router alone in its group has none, and asks for no more.
    """
    found = one(dragonfly._bundle_for(outwards, [np.array([a]) for a in sizes], np.array([total])))

    def enough(bundle: int) -> bool:
        return bundle >= 1 and all(a == 1 or (a - 1) * bundle + total // a >= outwards for a in sizes)

    assert found == fewest(enough)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), LINKS, st.integers(1, 9), st.integers(0, 8))
def test_links_between_groups_make_up_what_bundles_leave(
    sizes: list[int], outwards: int, bundle: int, others: int
) -> None:
    """Dealt to a group's routers in turn, each gets the ports outwards that its bundles do not give it."""
    found = one(dragonfly._links_for(outwards, [np.array([a]) for a in sizes], np.array([bundle]), np.array([others])))

    def enough(links: int) -> bool:
        return all((a - 1) * bundle + links * others // a >= outwards for a in sizes)

    assert found == (fewest(enough) if others else 0)


@given(st.floats(0, 30), LINKS, st.integers(0, 8))
def test_links_that_all_groups_share(need: float, floor: int, others: int) -> None:
    """Half of all links of a group carry what leaves it, by way of other groups; one joins each two at the least."""
    found = one(dragonfly._shared(np.array([need]), np.array([others]), np.array([floor])))

    def enough(links: int) -> bool:
        return links >= 1 and links * others / 2 >= need and links * others >= floor

    assert found == (fewest(enough) if others else 0)


@given(st.floats(0, 30), LINKS, st.integers(0, 8))
def test_links_that_two_groups_have_alone(need: float, floor: int, others: int) -> None:
    """The links between two groups carry what leaves one for the other; those of a group are as many as asked for."""
    found = one(dragonfly._direct(np.array([need]), np.array([others]), np.array([floor])))
    assert found == (fewest(lambda n: n >= max(1, need) and n * others >= floor) if others else 0)


@given(st.integers(0, 12), st.integers(1, 24), st.integers(1, 9), st.integers(1, 8))
def test_links_that_are_even_enough(leaf: int, free: int, switches: int, others: int) -> None:
    """The switch with the most of the links, dealt in turn, still has room; more than any switch has where none is."""
    args = [np.array([x]) for x in (float(leaf), float(free), switches, others)]
    found = one(dragonfly._even(*args))
    if leaf >= free and leaf and switches > 1:
        assert found * others > 0.9 * dragonfly.MAX_LINKS
        return

    def enough(links: int) -> bool:
        total = links * others
        return switches == 1 or not leaf or (total and leaf * unevenness(switches, total) <= free * (1 + 1e-9))

    assert found == fewest(enough)


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_groups_have_the_sizes_of_their_parts(rails: int, domains: int, data: st.DataObject) -> None:
    """Full groups, and those at either edge, of what is left of the rails or of the domains."""
    x, y = data.draw(st.integers(1, rails)), data.draw(st.integers(1, domains))
    mode = dragonfly.Mode(switch=None, family="dragonfly", rails=rails, rail_gpus=1, apart=1, lanes=1)
    row = np.zeros((1, len(dragonfly.SHAPE)), dtype=np.int64)
    for name, n in (("rails", x), ("domains_per_pod", y), ("domains", domains), ("router_bundle", 2)):
        row[:, dragonfly.COL[name]] = n
    parts = [[min(size, all_ - at) for at in range(0, all_, size)] for all_, size in ((rails, x), (domains, y))]
    sizes = [a * b for a in parts[0] for b in parts[1]]
    assert (
        {one(s) for s in dragonfly._edges(mode, row)}
        == {a * b for a in (x, parts[0][-1]) for b in (y, parts[1][-1])}
        >= set(sizes)
    )
    assert one(dragonfly._local(mode, row)) == 2 * sum(math.comb(a, 2) for a in sizes)
