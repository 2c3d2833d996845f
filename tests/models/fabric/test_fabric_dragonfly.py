"""Dragonflies as choices of the fabric.

Agreement with a brute force over every group shape and number of links, and what pays.
"""

import dataclasses
import itertools
import math
import random
from collections.abc import Iterator

import pytest
from fabric_cases import dearer, hidden, instance, request, solve, switch

from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.models.requests import FabricRequest
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus, dragonfly
from planner.physics.network.links import spare_ports
from planner.physics.network.price import bill
from planner.physics.network.topology import unwirable
from planner.physics.network.wan_gateway import wan_ports
from planner.solvers.outcome import Stop

KINDS = {"dragonfly": Dragonfly, "dragonfly+": DragonflyPlus}


def every_dragonfly(i: Instance, r: FabricRequest) -> Iterator[tuple[Switch, Dragonfly]]:
    """Yield every dragonfly of every switch that the instance offers, by plain loops; most cannot be wired."""
    n, rails = i.network, i.hardware.rack.gpus
    kinds = ((s, family, split) for s in n.switches for family in n.families for split in range(1, s.breakout + 1))
    for (s, family, split), down in itertools.product(kinds, range(1, 2 * max(s.ports for s in n.switches))):
        if down >= s.ports * split:
            continue
        spare = spare_ports(down, n.spares.share, n.spares.failure_chance, n.spares.shortage_chance)
        same = {
            "ports": s.ports,
            "rails": rails,
            "racks": r.racks,
            "leaf_down": down,
            "leaf_spare": spare,
            "split": split,
            "valiant": n.group_routing == "valiant",
            "wan_ports": wan_ports(r.wan_gbps, 1, s.port_gbps),
        }
        widths = itertools.product(range(1, rails + 1), range(1, math.ceil(r.racks / down) + 1))
        for (x, y), bundle, links in itertools.product(widths, range(1, s.ports), range(2 * s.ports)):
            shape = same | {"rails_per_pod": x, "domains_per_pod": y, "leaf_bundle": bundle, "group_links": links}
            if family == "dragonfly":
                yield s, dragonfly(Dragonfly, **shape)
            else:
                for up in range(bundle, s.ports - math.ceil((down + spare) / split) + 1, bundle):
                    yield s, dragonfly(DragonflyPlus, **shape, leaf_up=up)


def enough_between_groups(i: Instance, d: Dragonfly) -> bool:
    """Say whether a leaf's and a full group's links carry the least share of their GPUs' ports."""
    share, total = i.network.min_core_share, (d.pods - 1) * d.group_links
    if isinstance(d, DragonflyPlus):
        leaf = d.leaf_up
    else:
        leaf = min((a - 1) * d.leaf_bundle + total // a for a in d.group_sizes)
    return leaf * d.split >= share * d.leaf_down - 1e-9 and (
        d.pods < 2
        or d.pod_uplinks * d.split
        >= i.network.min_core_share * d.leaf_down * d.rails_per_pod * d.domains_per_pod - 1e-9
    )


def accepted(i: Instance, r: FabricRequest, d: Dragonfly) -> bool:
    """Say whether wiring, time rules and the floor between groups accept a design."""
    return not unwirable(d, cross_rail=True) and hidden(i, r, d) and enough_between_groups(i, d)


def random_case(seed: int) -> tuple[Instance, FabricRequest]:
    """Draw a small site for dragonflies, its traffic, its routing and perhaps a floor."""
    r = random.Random(seed)
    rules: dict[str, object] = {"families": r.choice([["dragonfly"], ["dragonfly+"], ["dragonfly", "dragonfly+"]])}
    rules |= {"group_routing": r.choice(["shortest", "valiant"]), "min_core_share": r.choice([0, 0.25, 0.5, 1])}
    rules |= {"spares": {"share": r.choice([0, 0, 0.2])}}
    if r.random() < 0.4:
        rules["floor"] = {"racks_per_row": r.randint(1, 4), "rise_m": r.choice([0, 1]), "spread_m": r.choice([0, 4])}
        near = {
            "name": "near",
            "reach_m": r.choice([2, 3, 5]),
            "price_usd": r.choice([0, 300]),
            "power_watts": r.choice([0, 30]),
        }
        far = {
            "name": "far",
            "reach_m": r.choice([9, 100]),
            "price_usd": 1000,
            "usd_per_m": r.choice([0, 10]),
            "power_watts": 16,
        }
        rules |= {"media": [near, far], "power_usd_per_watt": r.choice([0, 5])}
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
        racks,
        group=group,
        groups=racks // group,
        send=r.choice([1, 2, 3, 4, 8]),
        allreduce=r.choice([1, 1.5, 3, 1e9]),
        **limits,
    )


def with_gateway(seed: int, i: Instance, r: FabricRequest) -> FabricRequest:
    """Add a WAN gateway to two cases of five: up to as many ports as some switches have to spare."""
    rng = random.Random(1000 + seed)
    if seed % 5 > 1:
        return r
    gbps = i.network.switches[0].port_gbps * rng.choice([1, 2, 3, 5, 8])
    return dataclasses.replace(r, wan_gbps=gbps, exchange_gbps=gbps * rng.choice([0, 0.3, 0.5, 1]))


@pytest.mark.parametrize("seed", range(75))
def test_agrees_with_brute_force(seed: int) -> None:
    """The cost is that of the best dragonfly that wiring, time rules, floor and WAN gateway accept.

    Or there is none.
    """
    i, r = random_case(seed)
    i, r = dearer(i, seed), with_gateway(seed, i, r)
    cost = min((bill(i.network, s, d).usd for s, d in every_dragonfly(i, r) if accepted(i, r, d)), default=math.inf)
    found = solve(i, r)
    assert found.stop is Stop.PROVED
    assert found.infeasible == math.isinf(cost), found.detail
    if found.solution is not None:
        d = found.solution.design
        assert found.objective == pytest.approx(cost, abs=2) and found.bound == found.objective
        assert accepted(i, r, d)
