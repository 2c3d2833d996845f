"""Spraying around failures by classes of positions.

Tested against every path of every flow walked cable by cable, and small where there are few.
"""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.simulation.routing import Alive, Classes, Fabric, Flows, Routes, Tree, spray, tree_of_fabric
from planner.simulation.traffic import failed_cables, permutation, switch_cables

Cable = tuple[int, int, int, int, bool]  # tier, subtree below, position above, plane, down


def live(tree: Tree, alive: Alive, t: int, subtree: int, position: int, plane: int) -> int:
    """Count the cables of a bundle that live, one by one."""
    first = int(tree.cable(t, np.array([subtree]), np.array([position]))[0])
    return int(alive.lanes[plane, first : first + tree.bundle[t]].sum())


def walked(tree: Tree, alive: Alive, source: int, target: int, plane: int) -> dict[Cable, float]:
    """Return the share of a flow on every bundle.

    At every switch evenly over the live cables that still lead to the target.
    """
    turn = int(tree.meeting_tier(np.array([source]), np.array([target]))[0])
    ends = [[slot // tree.spans[t] for t in range(turn)] for slot in (source, target)]
    load: dict[Cable, float] = defaultdict(float)

    def ways(t: int, position: int) -> list[tuple[int, int]]:
        found = []
        for q in range(position * tree.up[t], (position + 1) * tree.up[t]):
            up, down = (live(tree, alive, t, end[t], q, plane) for end in ends)
            if up and down and (t + 1 == turn or ways(t + 1, q)):
                found.append((q, up))
        return found

    def send(t: int, position: int, share: float) -> None:
        held = ways(t, position)
        total = sum(n for _, n in held)
        for q, n in held:
            for down in (False, True):
                load[t, ends[down][t], q, plane, down] += share * n / total
            if t + 1 < turn:
                send(t + 1, q, share * n / total)

    if not ways(0, 0):
        raise LookupError
    send(0, 0, 1.0)
    return load


def by_paths(tree: Tree, flows: Flows, alive: Alive) -> Routes:
    """Return the routes of sprayed flows with a link for every bundle."""
    number: dict[Cable, int] = {}
    link, hop, weight, start = [], [], [], [0]
    for source, target in zip(flows.source.tolist(), flows.target.tolist(), strict=True):
        for plane in range(len(tree.planes)):
            for cable, share in walked(tree, alive, source, target, plane).items():
                hop.append(2 * tree.tiers - 1 - cable[0] if cable[4] else cable[0])
                link.append(number.setdefault(cable, len(number)))
                weight.append(share / len(tree.planes))
        start.append(len(link))
    rates = [live(tree, alive, t, s, q, p) * tree.rates[t] * tree.planes[p] for t, s, q, p, _ in number]
    own = {"flow": np.arange(len(flows)), "size": flows.size.astype(float), "capacity": np.array(rates)}
    entries = {"link": np.array(link), "hop": np.array(hop), "weight": np.array(weight)}
    return Routes(start=np.array(start), after=np.full(len(flows), -1), **entries, **own)


def bottlenecks(routes: Routes, flows: int) -> np.ndarray:
    """Return the largest load over capacity among the links of each flow."""
    found, full = np.zeros(flows), routes.load(routes.size) / routes.capacity
    np.maximum.at(found, routes.flow[routes.owner()], full[routes.link])
    return found


SHAPES = [
    Fabric(hosts=16, ports_per_switch=4, host_gbps=8e-9),
    Fabric(hosts=54, ports_per_switch=6, host_gbps=8e-9, plane_shares=(0.25, 0.5)),
    Fabric(hosts=24, ports_per_switch=12, tiers=2, host_gbps=8e-9, oversubscription=(2.0,)),
]


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(SHAPES), st.integers(0, 1000), st.integers(0, 12))
def test_agrees_with_every_path_walked(fabric: Fabric, seed: int, failed: int) -> None:
    """The fullest link of each flow of a permutation is as full as with every bundle a link of its own.

    Where one finds no path, both say so.
    """
    tree = tree_of_fabric(fabric)
    flows = permutation(tree.slots, 1.0, seed)
    alive = Alive(tree, failed_cables(tree, min(failed, switch_cables(tree)), seed))
    try:
        expected = bottlenecks(by_paths(tree, flows, alive), len(flows))
    except LookupError:
        with pytest.raises(InputError, match="no path leads from leaf"):
            spray(tree, flows, alive)
        return
    assert bottlenecks(spray(tree, flows, alive), len(flows)) == pytest.approx(expected, rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(SHAPES), st.integers(0, 1000), st.integers(0, 20))
def test_classes_hold_all_live_cables(fabric: Fabric, seed: int, failed: int) -> None:
    """The joint rates of all classes are the rates of all live cables.

    No tier has many more classes than failures leave apart.
    """
    tree = tree_of_fabric(fabric)
    alive = Alive(tree, failed_cables(tree, min(failed, switch_cables(tree)), seed))
    held = Classes(alive)
    assert held.capacity().sum() == pytest.approx(alive.capacity().sum())
    for t, level in enumerate(held.levels[1:]):
        assert int(level.many.sum()) == tree.widths[t + 1]
        assert len(level.parent) <= min(tree.widths[t + 1], 1 + (t + 1) * 2 * failed + t)


def test_few_failures_leave_few_links_at_full_size() -> None:
    """Sixteen failures on 65,536 hosts leave no more than a hundred entries a flow.

    Of the two thousand that all bundles are.
    """
    tree = tree_of_fabric(Fabric(hosts=65_536, ports_per_switch=64))
    held = Classes(Alive(tree, failed_cables(tree, 16, 0)))
    assert held.entries(3) <= 2 * (1 + 17 + 33)
    routes = spray(tree, permutation(tree.slots, 1.0, 0), Alive(tree, failed_cables(tree, 16, 0)))
    assert len(routes.link) <= 65_536 * held.entries(3)


def test_too_many_failures_at_full_size_are_refused() -> None:
    """With positions apart everywhere the entries are counted and refused before they are made, with both remedies."""
    tree = tree_of_fabric(Fabric(hosts=65_536, ports_per_switch=64))
    with pytest.raises(InputError, match="take fewer hosts, or fewer failed links"):
        spray(tree, permutation(tree.slots, 1.0, 0), Alive(tree, failed_cables(tree, 2000, 0)))
