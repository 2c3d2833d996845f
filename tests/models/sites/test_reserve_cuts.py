"""A cut for reserve holds of its own topology alone: elsewhere its reach leaves room for any feed-in."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planner.models.sites.dc_network import GridCut
from planner.models.sites.model import _reserve_cut


def contingencies(r: random.Random) -> Any:
    """Draw plants, each with the share of its largest unit, on a network of nothing else."""
    plants = r.randint(2, 4)
    available = np.array([r.uniform(1, 9) for _ in range(plants)])

    def cut(rule: str, name: str, row: Any, upper: float, **more: Any) -> GridCut:
        return GridCut(rule=rule, name=name, columns=np.arange(plants), values=row, upper=upper, **more)

    network = SimpleNamespace(
        nodes={f"n{i}": i for i in range(plants)},
        width=plants,
        available_mw=available,
        unit_share=np.array([r.choice((0.3, 1.0)) for _ in range(plants)]),
        cut=cut,
    )
    topology = SimpleNamespace(condition=((0, True),))
    return SimpleNamespace(network=network, topology=topology, others_mw=available.sum() - available)


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_of_another_topology_forbids_nothing(seed: int) -> None:
    r = random.Random(seed)
    for _ in range(50):
        of = contingencies(r)
        plant, lost = r.sample(range(of.network.width), 2)
        row = _reserve_cut(of, plant, r.choice((None, lost)))
        fed = of.network.available_mw * np.array([r.choice((0.0, r.random(), 1.0)) for _ in of.network.nodes])
        assert row.values @ fed - row.upper <= row.reach * fed.sum() + 1e-9
