"""Tables of four tiers: none of the cheapest at a target is missing, and every loop reads the clock."""

import itertools
import math
import random
import time
from collections.abc import Iterator

import numpy as np
import pytest
from fabric_cases import PHI, beaten, instance, switch, templates

from planner.models.fabric import fabric_templates, trees
from planner.models.fabric.design_table import AT, NO_OPTIONS, DominanceTest, Ints
from planner.models.fabric.fabric_templates import Templates
from planner.models.fabric.site_mode import SiteMode
from planner.models.fabric.site_traffic import SiteTraffic
from planner.solvers.signals import Deadline, OutOfTimeError

Asked = list[SiteMode]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Note the sites at which four tiers are sought."""
    found: Asked = []

    def noted(s: SiteMode, tiers: int) -> Ints:
        found.extend([s] * (not s.mode.grouped))
        return trees.sizes_of_trees(s, tiers)

    monkeypatch.setattr(fabric_templates, "ZONES", fabric_templates.ZONES._replace(sizes=noted))
    return found


def by_loops(draw: random.Random, s: SiteMode, domain: int) -> Iterator[tuple[tuple[float, float], float]]:
    """Yield the cheapest of all rows at a few targets of each leaf, one by one, whatever else was found."""
    s.front = DominanceTest(NO_OPTIONS, power_counts=False)
    leaves = s.loads.leaves(np.array([domain]), s.stripes, 0.0, s.tick)
    rows = trees._zone_rows(s, domain, np.arange(1, s.uplinks(domain) + 1), leaves.loads[0])
    for n in s.stripes.tolist():
        leaf = s.loads.at(n, np.array([domain]))[0]
        for up in range(1, s.uplinks(domain) + 1):
            slow = [float(x) for x in s.leaf_crossing(domain, up, leaf)[:2]]
            for more in draw.sample(list(itertools.product(trees.FACTORS, trees.FACTORS)), 5):
                target = slow[0] * more[0], slow[1] * more[1]
                each = (rows.part(np.array([k])) for k in range(len(rows.usd)))
                found = [float(x.usd[0]) for r in each for x in trees._keeping(s, r, target, n)]
                if found:
                    yield target, min(found)


@pytest.mark.parametrize("seed", range(4))
def test_no_four_tiers_at_a_target_are_missing(seed: int, asked: Asked) -> None:
    """The cheapest four tiers at a target, by plain loops, are beaten or equalled by a template."""
    r = random.Random(seed)
    i = instance(r.choice([1, 2]), switch(r.choice([3, 4]), r.choice([1e5, 333.33])), max_tiers=4)
    traffic = SiteTraffic(stages=r.choice([2, 3]), unit_racks=1, wrap=True, rails=i.hardware.rack.gpus)
    t = templates(i)
    x = t.options(traffic, r.choice([3, 4]))
    seen = 0
    for site, domain in [(s, domain) for s in asked for domain in s.domain_sizes.tolist()]:
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


def large(deadline: Deadline) -> tuple[Templates, SiteTraffic]:
    """Return the templates of a site whose tables of four tiers take long."""
    i = instance(8, switch(64, 1e5), max_tiers=4)
    traffic = SiteTraffic(stages=21, unit_racks=2, wrap=True, rails=8)
    return templates(i, deadline=deadline), traffic


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
    t, traffic = large(Deadline())
    with pytest.raises(OutOfTimeError):
        t.options(traffic, 46)
    assert seen == 200 and longest < 0.3 and not t.options_of


def test_shallow_tables_have_three_tiers_where_these_join_all(asked: Asked) -> None:
    """For a first plan four tiers are left out, but where nothing else joins the racks."""
    traffic = SiteTraffic(stages=3, unit_racks=1, wrap=True, rails=2)
    for ports, needed in ((8, False), (4, True)):
        t = templates(instance(2, switch(ports, 1e5), max_tiers=4))
        asked.clear()
        x = t.options(traffic, 12, shallow=True)
        assert len(x) and bool(asked) == bool(np.any(x.key[:, AT["core_up"]])) == needed
        assert math.isclose(x.usd.min(), t.options(traffic, 12).usd.min())
