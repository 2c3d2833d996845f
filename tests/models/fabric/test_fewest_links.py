"""The fewest links of a dragonfly, each against a plain count up from none."""

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.instance.network import Network
from planner.models.fabric import data, dragonfly, table
from planner.models.requests import FabricRequest
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


@given(st.integers(0, 30), st.integers(1, 6), st.integers(1, 6), st.integers(1, 12), st.integers(1, 20), st.booleans())
def test_gradients_on_links_between_groups(
    ports: int, rails: int, rails_per_pod: int, group_racks: int, domains: int, valiant: bool
) -> None:
    """Ports of a WAN gateway dealt to groups in turn: the group with the most of them takes its part of all gradients.

    A group sends what its racks of one stage have on its rails. By way of other groups all of it and what comes to the
    group's ports share its links; on shortest paths two groups send each other's ports their part, both ways.
    """
    width, domain, pods = 2, 3, -(-rails // rails_per_pod) * -(-domains // 2)
    network = Network.model_validate(
        {
            "switches": [{"name": "s", "ports": 64, "port_gbps": 800, "price_usd": 0, "power_watts": 0}],
            "optics": {"name": "o", "price_usd": 0, "power_watts": 0},
            "group_routing": "valiant" if valiant else "shortest",
        }
    )
    times = {"pipeline_send_seconds": 0.0, "pipeline_send_window_seconds": 1.0}
    times |= {"allreduce_seconds": 0.0, "allreduce_window_seconds": 1.0}
    asked = FabricRequest(racks=60, group_racks=group_racks, groups=1, exchange_gbps=rails * 2400.0, **times)
    (switch,) = network.switches
    mode = data.Mode(switch=switch, family="dragonfly", rails=rails, rail_gpus=1, apart=1, lanes=1)
    problem = data.Problem(network, asked, (mode,), {}, data.Ratios(1.0, 1.0), 1)
    row = np.zeros((1, len(dragonfly.SHAPE)), dtype=np.int64)
    given_ = {"wan_ports": ports, "pods": pods, "domains_per_pod": width, "domain": domain, "rails": rails_per_pod}
    for name, n in given_.items():
        row[:, dragonfly.COL[name]] = n
    dealt = max(Counter(n % pods for n in range(ports)).values(), default=0) / max(1, ports)
    # 2,400 Gbps a rail on ports of 800 are three links' worth of a leaf that holds a whole stage.
    sent = 3 * min(1.0, width * domain / group_racks) * rails_per_pod
    expected = (sent * (ports > 0) + 3 * rails * dealt) if valiant else 2 * sent * dealt
    assert float(one(dragonfly._exchange_flows(problem, mode, row))) == pytest.approx(expected, rel=1e-6)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 40), st.integers(1, 24))
def test_sizes_of_pods(rails: int, domains: int, most: int, down: int) -> None:
    """For each number of pods that there may be the fewest rails, and domains; under a pin every divisor of its ports.

    More rails to as many pods take more ports of a spine and are no better.
    """

    def fewest_of(items: int) -> list[int]:
        sizes = sorted({-(-items // parts) for parts in range(1, items + 1)})
        return [n for n in sizes if -(-items // n) <= most]

    found = table.pod_sizes(SimpleNamespace(pins={}), rails, domains, most)
    assert [x.tolist() for x in found] == [fewest_of(rails), fewest_of(domains)]
    pinned = SimpleNamespace(pins={"spine_down_ports": down})
    found = table.pod_sizes(pinned, rails, domains, most)
    divisors = [n for n in range(1, down + 1) if down % n == 0]
    assert [x.tolist() for x in found] == [[n for n in divisors if n <= items] for items in (rails, domains)]
