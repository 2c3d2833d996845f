"""Dragonflies: agreement with a brute force over every group shape and number of links, and with plain loops."""

import dataclasses
import itertools
import math
import random

import pytest
from dragonfly_cases import enough_between_groups, every_dragonfly
from each_case import each
from fabric_cases import (
    PHI,
    beaten,
    cheapest,
    crossings,
    dearer,
    drawn_lengths,
    every_template,
    instance,
    request,
    switch,
    templates,
)
from fabric_zone_cases import require_cheapest
from tiers import more

from planner.instance.instance import Instance
from planner.models.fabric.site_traffic import FabricRequest, SiteTraffic
from planner.physics.network.dragonfly import Dragonfly
from planner.physics.network.fabric_cost import bill
from planner.physics.network.uplink_slowdowns import slowdowns, uplink_loads


def random_case(seed: int) -> tuple[Instance, FabricRequest]:
    """Draw a small site for dragonflies, its traffic, its routing and perhaps a floor."""
    r = random.Random(seed)
    rules: dict[str, object] = {"families": r.choice([["dragonfly"], ["dragonfly+"], ["dragonfly", "dragonfly+"]])}
    rules |= {"group_routing": r.choice(["shortest", "valiant"]), "min_core_share": r.choice([0, 0.25, 0.5, 1])}
    rules["spares"] = {"share": r.choice([0, 0, 0.2])}
    rules |= drawn_lengths(r) if r.random() < 0.4 else {}
    fast = {"port_gbps": 1600, "breakout": 2, "breakout_link_factor": r.choice([0.5, 2])} if r.random() < 0.3 else {}
    rails, box = r.randint(1, 3), switch(r.randint(4, 7), r.choice([500, 2000, 9000]), **fast)
    i = instance(rails, box, optics_usd=r.choice([0, 100, 1000]), **rules)
    racks = r.randint(2, 8)
    group = r.randint(1, racks)
    limits = {"exchange_racks": r.randint(2, group)} if group > 1 and r.random() < 0.25 else {}
    send, allreduce = r.choice([1, 2, 3, 4, 8]), r.choice([1, 1.5, 3, 1e9])
    return i, request(racks, group=group, groups=racks // group, send=send, allreduce=allreduce, **limits)


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


@each("family", ["dragonfly", "dragonfly+"])
def test_longer_cables_that_draw_less_are_not_ruled_out(family: str) -> None:
    """Where cables of a gateway to far groups draw nothing and short ones do, no shape that draws less is missing."""
    floor = {"racks_per_row": 4, "rack_pitch_m": 1, "row_pitch_m": 2, "rise_m": 0, "spread_m": 2}
    near = {"name": "near", "reach_m": 3, "price_usd": 100, "power_watts": 50}
    far = {"name": "far", "reach_m": 60, "price_usd": 900, "power_watts": 0}
    lengths = {"floor": floor, "media": [near, far], "power_usd_per_watt": 3.0, "wan_gateway": True}
    traffic = SiteTraffic(stages=3, unit_racks=1, wrap=True, rails=1, wan_gbps=3200.0)
    boxes = switch(8, 100).replaced(power_watts=10.0), switch(8, 60_000)
    x = templates(instance(1, *boxes, families=[family], **lengths), power_counts=True).options(traffic, 2)
    seen = 0
    for domain, width in itertools.product(range(1, 7), range(1, 7)):
        pins = {"fabric.leaf_domain_racks": domain, "fabric.leaf_domains_per_pod": width}
        i = instance(1, *boxes, families=[family], pins=pins, **lengths)
        y = templates(i, power_counts=True).options(traffic, 2)
        for send, allreduce, usd, mw in zip(y.send, y.allreduce, y.usd, y.mw, strict=True):
            seen += 1
            assert ((x.send <= send) & (x.allreduce <= allreduce) & (x.usd <= usd) & (x.mw <= mw)).any(), pins
    assert seen


KINDS = list(itertools.product(["dragonfly", "dragonfly+"], ["shortest", "valiant"]))


@pytest.mark.parametrize(("family", "routing"), KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_no_dragonfly_is_missing(seed: int, family: str, routing: str) -> None:
    """No dragonfly that can be wired is calmer or cheaper than all templates, under any number of stripes."""
    r = random.Random(f"{seed}{family}{routing}")
    rails, stages, blocks = r.randint(1, 2), r.randint(2, 3), r.randint(1, 3)
    boxes = [switch(r.randint(4, 6), 5e4), *([switch(8, r.choice([6e4, 2e5]))] if r.random() < 0.4 else [])]
    i = instance(
        rails, *boxes, families=[family], group_routing=routing,
        optics_usd=r.choice([50, 9000]), min_core_share=r.choice([0.0, 0.0, 0.5]),
        pins={"fabric.group_links": links} if (links := r.choice([0, 0, 0, 1, 2])) else {},
    )  # fmt: skip
    traffic = SiteTraffic(stages=stages, unit_racks=1, wrap=r.random() < 0.5, rails=rails)
    t = templates(i)
    x, seen = t.options(traffic, blocks), 0
    for k in range(len(x)):
        found = t.template(traffic, blocks, x, k)
        assert found.design.faults() == []
        assert links in (0, found.design.group_links)
        assert (x.send[k], x.allreduce[k], x.usd[k]) == pytest.approx((found.send, found.allreduce, found.usd))
    for s, spine, d in every_dragonfly(i, request(traffic.racks(blocks))):
        if d.faults() or not enough_between_groups(i, d) or links not in (0, d.group_links):
            continue
        usd = bill(i.network, s, d, [spine]).usd
        for n in range(1, stages + 1):
            c = crossings(stages, blocks, n, 1, d.domain_racks, d.domains_per_pod, wrap=traffic.wrap)
            send, allreduce = slowdowns(PHI, uplink_loads(d, c.share_leaving, c.allreduces_leaving))
            if math.isfinite(send + allreduce):
                seen += 1
                assert beaten(x, send, allreduce, usd), (d, n, send, allreduce, usd)
    assert bool(seen) == bool(len(x))


@each(("family", "usd"), [("dragonfly", (112e3, 114.4e3)), ("dragonfly+", (216.8e3, 224e3))])
def test_two_leaves_may_be_a_group_each(family: str, usd: tuple[float, float]) -> None:
    """Four racks of one GPU on two leaves, pinned to a group each, by hand."""
    # One link between the groups is shared by two all-reduces, or in two stripes by two sends; two links slow
    # nothing. A switch costs $50,000 and a cable two modules of $1,200: four cables to GPUs, those between the
    # groups, and in a dragonfly+ a spine and as many uplinks for each leaf.
    pins = {"leaf_domain_racks": 2, "rails_per_pod": 1, "leaf_domains_per_pod": 1}
    i = instance(1, switch(4, 5e4), families=[family], pins={f"fabric.{k}": n for k, n in pins.items()})
    found = every_template(i, SiteTraffic(stages=2, unit_racks=1, wrap=True, rails=1), 2)
    assert {(f.design.pods, f.design.domains) for f in found} == {(2, 2)}
    assert sorted((f.design.group_links, f.stripes, f.send / PHI, f.allreduce / PHI, f.usd) for f in found) == [
        (1, 1, 1.0, 2.0, usd[0]),
        (1, 2, 2.0, 1.0, usd[0]),
        (2, 1, 1.0, 1.0, usd[1]),
    ]
