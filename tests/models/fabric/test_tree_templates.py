"""Trees of four tiers: agreement with a brute force, pins, none missing at a target, clocks, and shallow tables."""

import dataclasses
import itertools
import math
import random
import time
from collections.abc import Iterator

import numpy as np
import pytest
from fabric_cases import PHI, beaten, dearer, drawn_lengths, instance, request, switch, templates
from fabric_zone_cases import FAMILIES, require_cheapest
from tiers import more

from planner.instance.instance import Instance
from planner.models.fabric import tree_templates
from planner.models.fabric.site_mode import SiteMode
from planner.models.fabric.site_traffic import FabricRequest, SiteTraffic
from planner.models.fabric.template_table import AT, NO_OPTIONS, DominanceTest
from planner.solvers.search_deadline import Deadline, OutOfTimeError

PINS = ("leaf_domain_racks", "leaf_up_ports", "spine_down_ports", "spine_up_ports", "core_down_ports", "core_up_ports")


def with_exchange(seed: int, r: FabricRequest) -> FabricRequest:
    """Let gradients take a part of the WAN gateway in three cases of four."""
    return dataclasses.replace(r, exchange_gbps=r.wan_gbps * random.Random(2000 + seed).choice([0, 0.3, 0.5, 1]))


def case(seed: int, pins: dict[str, object]) -> tuple[Instance, FabricRequest]:
    """Draw a site that small switches serve in three or four tiers, with pins on any tier."""
    r = random.Random(seed)
    switches = [
        switch(r.randint(3, 5), r.choice([500, 2000, 9000]), planes) for planes in range(1, r.randint(1, 2) + 1)
    ]
    rules: dict[str, object] = {"min_core_share": r.choice([0, 0, 0.1, 0.25])}
    i = instance(r.randint(1, 2), *switches, optics_usd=r.choice([0, 100, 1000]), max_tiers=4, pins=pins, **rules)
    racks = r.randint(6, 18)
    group = r.randint(1, 4)
    more: dict[str, object] = {"exchange_racks": group} if group > 1 and r.random() < 0.2 else {}
    asked = request(
        racks, group=group, groups=racks // group, send=r.choice([1, 1.5, 2, 4, 8, 30]),
        allreduce=r.choice([1, 2, 1e9]), **more,
    )  # fmt: skip
    return i, with_exchange(seed, dataclasses.replace(asked, wan_gbps=r.choice([0, 0, 800, 3200])))


@pytest.mark.parametrize("seed", [*range(24), *more(*range(24, 60))])
def test_agrees_with_brute_force(seed: int) -> None:
    i, r = case(seed, {})
    require_cheapest(dearer(i, seed), r)


@pytest.mark.parametrize("seed", range(200, 230))
def test_two_models_agree_with_brute_force(seed: int) -> None:
    r = random.Random(seed)
    boxes = switch(3, r.choice([500, 2000])), switch(r.choice([4, 5]), r.choice([2500, 9000]))
    pins: dict[str, object] = {"fabric.tiers": 4} if r.random() < 0.6 else {}
    i = instance(1, *boxes, optics_usd=r.choice([0, 100]), max_tiers=4, pins=pins, min_core_share=r.choice([0, 0.25]))
    require_cheapest(i, request(r.randint(5, 12), groups=r.randint(2, 4), send=r.choice([1, 2, 8])))


@pytest.mark.parametrize("seed", [*range(300, 316), *more(*range(316, 360))])
def test_ratios_by_tier_agree_with_brute_force(seed: int) -> None:
    """Those of a leaf, a spine and a core, each by itself; the last of a list holds for the tiers above it."""
    i, asked = case(seed, {"fabric.tiers": 4} if seed % 3 else {})
    r = random.Random(seed)
    ratios = [r.choice([1, 1, 1.5, 2, 3]) for _ in range(r.randint(1, 3))]
    rules = {"max_oversubscription": tuple(ratios), "min_core_share": 0.0}
    require_cheapest(i.replaced(network=i.network.replaced(**rules)), asked)


@pytest.mark.parametrize("seed", [*range(100, 124), *more(*range(124, 160))])
def test_pins_agree_with_brute_force(seed: int) -> None:
    r = random.Random(seed)
    pins: dict[str, object] = {f"fabric.{name}": r.randint(1, 4) for name in r.sample(PINS, r.randint(0, 2))}
    require_cheapest(*case(seed, pins | ({"fabric.tiers": 4} if r.random() < 0.6 else {})))


@pytest.mark.parametrize("seed", range(106, 128))
def test_pinned_links_to_a_core_agree_with_brute_force(seed: int) -> None:
    """Of three tiers, the spines' uplinks come in the bundles that the ports of a core to all pods leave."""
    require_cheapest(*case(seed, {"fabric.tiers": 3, "fabric.core_down_ports": 4}))


def wide_case(seed: int) -> tuple[Instance, FabricRequest]:
    """Draw a site of any family, with lanes, ports that split, spares, a WAN gateway, and perhaps prices by length."""
    r = random.Random(seed)
    switches = [switch(r.randint(3, 5), r.choice([500, 9000]), 1, port_gbps=800 / r.choice([1, 1, 2]))]
    if r.random() < 0.3:
        own, fast = (r.randint(3, 4), r.choice([500, 9000])), {"port_gbps": 800 * r.randint(1, 4), "breakout": 4}
        switches = [switch(*own, **fast, breakout_link_factor=r.choice([1, 0.25]))]
    rules: dict[str, object] = {"families": r.sample(sorted(FAMILIES), r.randint(1, 2)), "max_lanes": 2}
    rules |= {"min_core_share": r.choice([0, 0.1, 1]), "spares": {"share": r.choice([0, 0, 0.2])}}
    if r.random() < 0.7:
        rules |= drawn_lengths(r)
    pins: dict[str, object] = {"fabric.tiers": 4} if r.random() < 0.5 else {}
    i = instance(r.randint(1, 2), *switches, optics_usd=r.choice([0, 100]), max_tiers=4, pins=pins, **rules)
    racks = r.randint(8, 20)
    group = r.randint(1, 4)
    asked = request(
        racks, group=group, groups=racks // group, send=r.choice([2, 4, 8, 30]), allreduce=r.choice([2, 1e9])
    )
    return i, with_exchange(seed, dataclasses.replace(asked, wan_gbps=r.choice([0, 0, 800])))


@pytest.mark.parametrize("seed", [*range(24), *more(*range(24, 60))])
def test_families_and_lengths_agree_with_brute_force(seed: int) -> None:
    i, r = wide_case(seed)
    require_cheapest(dearer(i, seed), r)


# --- rules at their edges -------------------------------------------------------------------------------------------


def by_loops(draw: random.Random, s: SiteMode, domain: int) -> Iterator[tuple[tuple[float, float], float]]:
    """Yield the cheapest of all rows at a few targets of each leaf, one by one, whatever else was found."""
    s.front = DominanceTest(NO_OPTIONS, power_counts=False)
    leaves = s.loads.leaves(np.array([domain]), s.stripes, 0.0, s.tick)
    rows = tree_templates._zone_rows(s, domain, np.arange(1, s.uplinks(domain) + 1), leaves.loads[0])
    for n in s.stripes.tolist():
        leaf = s.loads.at(n, np.array([domain]))[0]
        for up in range(1, s.uplinks(domain) + 1):
            slow = [float(x) for x in s.leaf_crossing(domain, up, leaf)[:2]]
            for factors in draw.sample(list(itertools.product(tree_templates.FACTORS, tree_templates.FACTORS)), 5):
                target = slow[0] * factors[0], slow[1] * factors[1]
                each = (rows.part(np.array([k])) for k in range(len(rows.usd)))
                found = [float(x.usd[0]) for r in each for x in tree_templates._keeping(s, r, target, n)]
                if found:
                    yield target, min(found)


@pytest.mark.parametrize("seed", range(4))
def test_no_four_tiers_at_a_target_are_missing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheapest four tiers at a target, by plain loops, are beaten or equalled by a template."""
    r, tall, build = random.Random(seed), list[SiteMode](), tree_templates.with_zones
    monkeypatch.setattr(tree_templates, "with_zones", lambda s, *sizes: tall.append(s) or build(s, *sizes))
    i = instance(r.choice([1, 2]), switch(r.choice([3, 4]), r.choice([1e5, 333.33])), max_tiers=4)
    traffic = SiteTraffic(stages=r.choice([2, 3]), unit_racks=1, wrap=True, rails=i.hardware.rack.gpus)
    x = templates(i).options(traffic, r.choice([3, 4]))
    seen = 0
    for site, domain in [(s, domain) for s in tall for domain in s.domain_sizes.tolist()]:
        for (send, allreduce), usd in by_loops(r, site, domain):
            seen += 1
            as_slow = (x.send <= PHI * send * (1 + 1e-8)) & (x.allreduce <= PHI * allreduce * (1 + 1e-8))
            assert np.any(as_slow & (x.usd <= usd * (1 + 1e-9))), (domain, send, allreduce, usd)
    assert seen


def test_pods_may_have_more_domains_than_their_count_needs() -> None:
    """Three domains and one in two pods keep sends inside that leave pods of two: the free table has no worse one."""
    traffic, each = SiteTraffic(stages=2, unit_racks=1, wrap=False, rails=3), switch(4, 224)
    pins: list[dict[str, int]] = [{}, {"fabric.leaf_domains_per_pod": 3}]
    free, x = (templates(instance(3, each, max_tiers=4, pins=p)).options(traffic, 4) for p in pins)
    assert np.any(x.key[:, AT["core_up"]])
    for send, allreduce, usd in zip(x.send, x.allreduce, x.usd, strict=True):
        assert beaten(free, send, allreduce, usd)


def test_tables_read_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks at the clock a table takes a part of a CPU-second, and it ends at the first that is late."""
    last, longest, seen = time.process_time(), 0.0, 0

    def check(_: Deadline) -> None:
        nonlocal last, longest, seen
        now = time.process_time()
        longest, last, seen = max(longest, now - last), now, seen + 1
        if seen == 200:
            raise OutOfTimeError

    monkeypatch.setattr(Deadline, "check", check)
    t = templates(instance(8, switch(64, 1e5), max_tiers=4), deadline=Deadline())
    with pytest.raises(OutOfTimeError):
        t.options(SiteTraffic(stages=21, unit_racks=2, wrap=True, rails=8), 46)
    assert seen == 200 and longest < 0.3 and not t.options_of


def test_shallow_tables_have_three_tiers_where_these_join_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a first plan four tiers are left out, but where nothing else joins the racks."""
    asked, sizes = list[int](), SiteMode.sizes
    monkeypatch.setattr(SiteMode, "sizes", lambda s, tiers: asked.append(tiers) or sizes(s, tiers))
    traffic = SiteTraffic(stages=3, unit_racks=1, wrap=True, rails=2)
    for ports, needed in ((8, False), (4, True)):
        t = templates(instance(2, switch(ports, 1e5), max_tiers=4))
        asked.clear()
        x = t.options(traffic, 12, shallow=True)
        assert len(x) and (4 in asked) == bool(np.any(x.key[:, AT["core_up"]])) == needed
        assert math.isclose(x.usd.min(), t.options(traffic, 12).usd.min())
