"""Templates of dragonflies: every one of a small site, by plain loops, is beaten by a template."""

import itertools
import math
import random

import pytest
from dragonfly_cases import enough_between_groups, every_dragonfly
from each_case import each
from fabric_cases import PHI, beaten, crossings, every_template, instance, request, switch, templates

from planner.models.fabric.site_traffic import SiteTraffic
from planner.physics.network.fabric_designs import bill
from planner.physics.network.transport import allreduce_slowdown, pipeline_send_slowdown

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
    x = t.options(traffic, blocks)
    for k in range(len(x)):
        found = t.template(traffic, blocks, x, k)
        assert found.design.faults() == []
        assert links in (0, found.design.group_links)
        assert (x.send[k], x.allreduce[k], x.usd[k]) == pytest.approx((found.send, found.allreduce, found.usd))
    seen = 0
    for s, spine, d in every_dragonfly(i, request(traffic.racks(blocks))):
        if d.faults() or not enough_between_groups(i, d) or links not in (0, d.group_links):
            continue
        usd = bill(i.network, s, d, [spine]).usd
        for n in range(1, stages + 1):
            c = crossings(stages, blocks, n, 1, d.domain_racks, d.domains_per_pod, wrap=traffic.wrap)
            send = pipeline_send_slowdown(PHI, d, *c.share_leaving)
            allreduce = allreduce_slowdown(PHI, d, *c.allreduces_leaving)
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
