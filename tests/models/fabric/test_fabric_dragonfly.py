"""Dragonflies as choices of the fabric."""
# Agreement with a brute force over every group shape and number of links, and what pays.

import dataclasses
import random

import pytest
from fabric_cases import cheapest, dearer, drawn_lengths, instance, request, switch
from fabric_zone_cases import require_cheapest
from tiers import more

from planner.instance.instance import Instance
from planner.models import FabricRequest
from planner.physics.network.dragonfly import Dragonfly


def random_case(seed: int) -> tuple[Instance, FabricRequest]:
    """Draw a small site for dragonflies, its traffic, its routing and perhaps a floor."""
    r = random.Random(seed)
    rules: dict[str, object] = {"families": r.choice([["dragonfly"], ["dragonfly+"], ["dragonfly", "dragonfly+"]])}
    rules |= {"group_routing": r.choice(["shortest", "valiant"]), "min_core_share": r.choice([0, 0.25, 0.5, 1])}
    rules |= {"spares": {"share": r.choice([0, 0, 0.2])}}
    if r.random() < 0.4:
        rules |= drawn_lengths(r)
    fast = {"port_gbps": 1600, "breakout": 2, "breakout_link_factor": r.choice([0.5, 2])} if r.random() < 0.3 else {}
    i = instance(
        r.randint(1, 3),
        switch(r.randint(4, 7), r.choice([500, 2000, 9000]), **fast),
        optics_usd=r.choice([0, 100, 1000]),
        **rules,
    )
    racks = r.randint(2, 8)
    group = r.randint(1, racks)
    limits = {"exchange_racks": r.randint(2, group)} if group > 1 and r.random() < 0.25 else {}
    return i, request(
        racks, group=group, groups=racks // group, send=r.choice([1, 2, 3, 4, 8]), allreduce=r.choice([1, 1.5, 3, 1e9]),
        **limits,
    )  # fmt: skip


def with_gateway(seed: int, i: Instance, r: FabricRequest) -> FabricRequest:
    """Add a WAN gateway to two cases of five: up to as many ports as some switches have to spare."""
    rng = random.Random(1000 + seed)
    if seed % 5 > 1:
        return r
    gbps = i.network.switches[0].port_gbps * rng.choice([1, 2, 3, 5, 8])
    return dataclasses.replace(r, wan_gbps=gbps, exchange_gbps=gbps * rng.choice([0, 0.3, 0.5, 1]))


@pytest.mark.parametrize("seed", [*range(30), *more(*range(30, 75))])
def test_agrees_with_brute_force(seed: int) -> None:
    i, r = random_case(seed)
    require_cheapest(dearer(i, seed), with_gateway(seed, i, r))


def test_two_routers_far_apart_are_a_group_each() -> None:
    """Two routers amid two racks each reach them over free cables of up to 2 m, and each other over one of $1,000."""
    # As one group they stand in the middle of all four racks, 3 m from the outer two: two such cables. By hand.
    floor = {"racks_per_row": 4, "rack_pitch_m": 2, "rise_m": 0, "spread_m": 0}
    near = {"name": "near", "reach_m": 2, "price_usd": 0, "power_watts": 0}
    far = {"name": "far", "reach_m": 100, "price_usd": 1000, "power_watts": 0}
    i = instance(1, switch(4, 5000), families=["dragonfly"], floor=floor, media=[near, far])
    found = cheapest(i, request(4, groups=4, send=8))
    assert found is not None
    d = found.design
    assert found.usd == 2 * 5000 + 1000
    assert isinstance(d, Dragonfly) and (d.group_sizes, d.group_links) == ({1: 2}, 1)
