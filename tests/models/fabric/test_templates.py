"""Fabric templates: each a design with its own bill, wirable, as slow as the checker counts, and none left out."""

import csv
import dataclasses
import itertools
import math
import random
from functools import cache
from typing import Any

import numpy as np
import pytest
from each_case import each
from fabric_cases import PHI, beaten, cheapest, crossings, every_template, instance, request, switch, templates
from fabric_graph import meets, survives
from fabric_zone_cases import enough_between, every_design
from tiers import more

from planner.exports.fabric_parts import BuiltFabric, bill_of_materials
from planner.instance.instance import Instance
from planner.instance.network import Floor, Switch
from planner.models.fabric.fabric_templates import Templates
from planner.models.fabric.site_mode import SiteMode
from planner.models.fabric.site_traffic import SiteTraffic, rank_order
from planner.models.fabric.template_table import DesignTable, Ints
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_cost import Bill, bill, min_fabric
from planner.physics.network.locality import Locality, exchange_leaving
from planner.physics.network.uplink_slowdowns import free_uplinks, slowdowns, uplink_loads
from planner.plan.plan_sections import SiteFabric

FLOOR = {"rack_pitch_m": 1.0, "row_pitch_m": 2.0, "racks_per_row": 4, "rise_m": 1.0, "spread_m": 2.0}
MEDIA = [
    {"name": "copper", "reach_m": 6.0, "price_usd": 100, "usd_per_m": 20, "power_watts": 1},
    {"name": "optics", "reach_m": 60.0, "price_usd": 900, "usd_per_m": 5, "power_watts": 20},
]
LENGTHS = {"floor": FLOOR, "media": MEDIA, "power_usd_per_watt": 3.0}
TREES = ("rail", "rack", "rail-only")
GROUPS = ["dragonfly", "dragonfly+"]


def column(stages: int, rails: int, *, wrap: bool = True, unit_racks: int = 1, **wan: float) -> SiteTraffic:
    return SiteTraffic(stages=stages, unit_racks=unit_racks, wrap=wrap, rails=rails, **wan)


SPLIT = switch(6, 1e5, port_gbps=1600, breakout=2, link_factor=1.5, breakout_link_factor=0.75)
CASES: dict[str, tuple[Instance, SiteTraffic, int]] = {
    "rail": (instance(4, switch(8, 1e5), switch(6, 7e4)), column(4, 4), 4),
    "rack": (instance(4, switch(8, 1e5), families=["rack"]), column(3, 4, wrap=False), 3),
    "rail-only": (instance(3, switch(6, 1e5), families=["rail-only"]), column(5, 2), 4),
    "all": (instance(2, switch(6, 1e5), families=[*TREES, *GROUPS]), column(3, 2), 5),
    "valiant": (instance(2, switch(8, 1e5), families=GROUPS, group_routing="valiant"), column(3, 2), 4),
    "four tiers": (instance(2, switch(4, 1e5), max_tiers=4), column(3, 2), 4),
    "breakout and lanes": (instance(4, SPLIT, switch(12, 6e4, port_gbps=400), max_lanes=2),
     column(4, 3, unit_racks=2), 3),
    "spares and core share": (instance(2, switch(8, 1e5), spares={"share": 0.25}, min_core_share=0.4),
     column(4, 2, wrap=False), 4),
    "media by length": (instance(2, switch(6, 1e5, link_factor=1.5), families=[*TREES, *GROUPS], **LENGTHS),
     column(3, 2), 4),
    "WAN gateway": (instance(2, switch(8, 1e5), wan_gateway=True, families=["rail", *GROUPS], **LENGTHS),
     column(3, 2, wan_gbps=3000, exchange_gbps=1500), 4),
    "units of several racks": (instance(2, switch(12, 1e5), families=["rack"]),
     column(2, 2, unit_racks=4, wrap=False), 3),
}  # fmt: skip


@cache
def table(name: str) -> tuple[Templates, DesignTable]:
    i, traffic, blocks = CASES[name]
    t = templates(i, power_counts=True)
    return t, t.options(traffic, blocks)


def counted(traffic: SiteTraffic, blocks: int, n: int, d: Design) -> Locality:
    """Return what leaves leaf domains, pods and zones of a design on the order of racks, by the checker's count."""
    parts = d.domain_racks, d.domains_per_pod or 1, d.domains_per_zone
    return crossings(traffic.stages, blocks, n, traffic.unit_racks, *parts, wrap=traffic.wrap)


def slowed(traffic: SiteTraffic, blocks: int, n: int, d: Design) -> tuple[float, float]:
    """Return the slowdowns of a design by the checker's functions."""
    x = counted(traffic, blocks, n, d)
    free = free_uplinks(d, traffic.exchange_gbps, *x.stage_in)
    return slowdowns(PHI, uplink_loads(d, x.share_leaving, x.allreduces_leaving, free))


def of_materials(i: Instance, s: Switch, above: list[Switch], d: Design, price: Bill) -> float:
    """Sum the lines of the bill of materials, cable by cable, and compare them with its total."""
    fabric = SiteFabric.model_construct(cost_usd=price.usd, power_mw=price.mw)
    x = BuiltFabric("site", fabric, d, i.network, s, i.network.floor or Floor(), tuple(above))
    *rows, total = csv.DictReader("".join(bill_of_materials(x)).splitlines())
    assert round(sum(float(r["usd"]) for r in rows), 2) == float(total["usd"])
    known = {x.name for x in (s, *above, i.network.optics, *i.network.media)}
    assert {r["part"] for r in rows} <= known | {"cable", "power over the years"}
    return float(total["usd"])


@each("name", CASES)
def test_every_template_is_a_design_with_its_bill(name: str) -> None:
    """Price and power are those of the bill, ports fit, and slowdowns are counted on the order of racks."""
    (i, traffic, blocks), (t, x) = CASES[name], table(name)
    assert len(x)
    for k in range(len(x)):
        found = t.template(traffic, blocks, x, k)
        d = found.design
        assert d.faults() == []
        leaf, *above = found.models
        assert (d.ports, d.tier_ports["spine"]) == (leaf.ports, above[0].ports)
        price = bill(i.network, leaf, d, above)
        assert k % 3 or of_materials(i, leaf, above, d, price) == pytest.approx(price.usd, abs=0.006)
        assert (x.usd[k], x.mw[k]) == pytest.approx((price.usd, price.mw), rel=1e-9)
        assert (found.usd, found.mw) == (price.usd, price.mw)
        assert d.racks == traffic.racks(blocks)
        exact = slowed(traffic, blocks, found.stripes, d)
        assert (found.send, found.allreduce) == exact
        assert (x.send[k], x.allreduce[k]) == exact
        order = rank_order(traffic.stages, blocks, found.stripes, traffic.unit_racks)
        sizes = (1, max(1, d.domains_per_pod), *([d.domains_per_zone] if d.zones else []))
        # Experts are within a unit, so that their exchange leaves no leaf, pod or zone.
        assert not any(exchange_leaving(order, d.domain_racks * k, traffic.unit_racks) for k in sizes)


@each("name", [*CASES, "pods of some domains"])
def test_power_leaves_no_cheap_template_out(name: str) -> None:
    pods = instance(8, switch(16, 1e5), switch(32, 1.5e5, planes=2)), column(5, 8, unit_racks=2), 52
    cases = CASES | {"pods of some domains": pods}
    i, traffic, blocks = cases[name]
    cheap = templates(i).options(traffic, blocks)
    x = table(name)[1] if name in CASES else templates(i, power_counts=True).options(traffic, blocks)
    assert len(cheap)
    assert all(beaten(x, *row) for row in zip(cheap.send, cheap.allreduce, cheap.usd, strict=True))


LISTED: dict[str, dict[str, Any]] = {
    "trees": {"families": list(TREES)},
    "core share": {"min_core_share": 0.5, "spares": {"share": 0.2}},
    "one to one": {"min_core_share": 1.0, "families": list(TREES)},
    "lengths": {"families": list(TREES), **LENGTHS},
    "gateway": {"wan_gateway": True},
    "oversubscription": {"max_oversubscription": 1.5, "families": list(TREES)},
    "a spine lost": {"survives": "one_spine", "families": list(TREES)},
    "by tier": {"max_oversubscription": [1.5, 3], "families": list(TREES)},
    "leaves alone": {"max_oversubscription": [2]},
    "a link lost": {"survives": "one_leaf_uplink", "max_oversubscription": 3},
}


@pytest.mark.parametrize(
    ("how", "seed"), [*itertools.product(LISTED, (0, 2, 3)), *more(*itertools.product(LISTED, (1, 4, 5)))]
)
def test_no_tree_of_three_tiers_is_missing(how: str, seed: int) -> None:
    """Every design of up to three tiers, by plain loops, under every number of stripes, is beaten by a template."""
    r = random.Random(f"{how}{seed}")
    ports = r.choice([6, 7, 8] if how == "core share" else [4, 5, 6, 7])
    i = instance(r.choice([2, 3]), switch(ports, 5e4), optics_usd=r.choice([50, 9000]), **LISTED[how])
    none_is_missing(i, r, gateway=how == "gateway")


MIXED: tuple[dict[str, Any], ...] = (
    {}, {"min_core_share": 1.0}, {"wan_gateway": True}, {"families": ["rack"]}, LENGTHS,
    {"max_oversubscription": [1, 3]},
)  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_no_tree_of_several_models_is_missing(seed: int) -> None:
    r = random.Random(seed)
    ports, rules = r.choice([3, 4, 5]), MIXED[seed % len(MIXED)]
    boxes = switch(ports, 5e4), switch(ports + r.choice([-1, 1, 2]), r.choice([3e4, 7e4, 9e4]))
    i = instance(2, *boxes, optics_usd=r.choice([50, 9000]), **rules)
    none_is_missing(i, r, gateway="wan_gateway" in rules)


def none_is_missing(i: Instance, r: random.Random, *, gateway: bool) -> None:
    """Compare the templates for some traffic with every design by plain loops, of every model at every tier."""
    gbps = r.choice([800.0, 2400.0]) if gateway else 0.0
    stages, wrap, blocks = r.randint(2, 4), r.random() < 0.5, r.randint(2, 4)
    traffic = column(stages, i.hardware.rack.gpus, wrap=wrap, wan_gbps=gbps, exchange_gbps=gbps / 2)
    t = templates(i)
    x = t.options(traffic, blocks)
    assert all(enough_between(i, t.template(traffic, blocks, x, k).design) for k in range(len(x)))
    asked = request(traffic.racks(blocks), wan_gbps=gbps)
    models = {s.name: set[str]() for s in i.network.switches}
    for s, *above in itertools.product(i.network.switches, repeat=3):
        for d in every_design(i, asked, s, *above):
            if d.tiers > 3 or d.faults() or not enough_between(i, d):
                continue
            models[s.name].add(above[0].name)
            usd = bill(i.network, s, d, above).usd
            for n in range(1, traffic.stages + 1):
                own = slowed(traffic, blocks, n, d)
                if not math.isfinite(sum(own)):
                    continue
                free = free_uplinks(d, traffic.exchange_gbps, *counted(traffic, blocks, n, d).stage_in)
                if min(free.leaf, free.pod, free.zone) >= -1e-9:  # uplinks carry the exchange between sites
                    assert beaten(x, *own, usd) or not meets(i.network, d), (d, n, own, usd)
    assert any(models.values()) or not len(x)


@pytest.mark.parametrize("families", [["rail"], ["rack"], ["rail-only"]])
@pytest.mark.parametrize("loss", ["one_spine", "one_leaf_uplink"])
@pytest.mark.parametrize("ports", [4, 6])
def test_templates_survive_what_is_asked(families: list[str], loss: str, ports: int) -> None:
    """Every template of up to four tiers stays joined whatever one switch or link is lost; without the rule not all."""
    # Where one switch holds all GPUs there is nothing to lose.
    more = {"families": families, "max_tiers": 4}
    kept = []
    for rules in ({}, {"survives": loss}):
        found = every_template(instance(2, switch(ports, 5e4), **more, **rules), column(3, 2), 4, power_counts=True)
        kept.append([survives(t.design, loss) for t in found])
    assert kept[1] and all(kept[1])
    assert not all(kept[0])


@pytest.mark.parametrize("seed", [0, 2, 20, 21, 33, 35, 61])
def test_never_dearer_with_four_tiers(seed: int) -> None:
    """The cheapest template that keeps the slowdowns of a request is no dearer than the fabric that hides any order."""
    # On switches of so few ports that four tiers are needed or allowed.
    r = random.Random(seed)
    rails, ports = r.randint(1, 3), r.choice([3, 4, 5])
    i = instance(rails, switch(ports, 5e4), max_tiers=4, families=[r.choice(TREES)])
    blocks, stages = r.randint(2, 5), r.randint(2, 4)
    send, allreduce = r.choice([1.0, 1.5, 2.0, 3.0, 4.0]), r.choice([1.0, 1.5, 3.0])
    worst = cheapest(i, request(blocks * stages, group=blocks, groups=stages, send=send, allreduce=allreduce))
    assert worst is not None and worst.design.tiers == 4
    x = templates(i).options(column(stages, rails), blocks)
    kept = x.part((x.send <= PHI * send * (1 + 1e-9)) & (x.allreduce <= PHI * allreduce * (1 + 1e-9)))
    assert kept.usd.min() <= worst.usd * (1 + 1e-9)


def test_limits_leave_out_what_they_exclude_only() -> None:
    i, traffic, blocks = CASES["rail"]
    t = templates(i, power_counts=True)
    x = t.options(traffic, blocks)
    send, allreduce = float(np.median(x.send)), float(np.median(x.allreduce))
    kept = x.part((x.send <= send) & (x.allreduce <= allreduce))
    assert len(kept) < len(x)
    for known in (t, templates(i, power_counts=True)):  # from the table of all, and built within the limits
        assert np.array_equal(known.options(traffic, blocks, max_slowdowns=(send, allreduce)).key, kept.key)


@pytest.mark.parametrize("name", CASES)
def test_bounds_rule_out_no_template(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaf domains and uplinks that bounds rule out would add nothing; none costs or draws less than any GPU must."""
    i, traffic, blocks = CASES[name]
    (_, x), gpus = table(name), traffic.racks(blocks) * traffic.rails * (1 - 1e-12)
    assert x.usd.min() >= min_fabric(i.network).usd * gpus and x.mw.min() >= min_fabric(i.network).mw * gpus

    def all_uplinks(s: SiteMode, domains: Ints, *_: Any, **__: Any) -> tuple[Ints, Ints]:
        both = [(domain, up) for domain in domains.tolist() for up in range(1, int(s.uplinks(domain)) + 1)]
        domain, up = np.array(both, dtype=np.int64).reshape(-1, 2).T
        return domain, up

    monkeypatch.setattr(SiteMode, "least_prices", lambda _, domains, *__: np.zeros((2, len(domains))))
    monkeypatch.setattr(SiteMode, "worthwhile_uplinks", all_uplinks)
    assert np.array_equal(templates(i, power_counts=True).options(traffic, blocks).key, x.key)


def test_tables_serve_narrower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table up to a price and slowdowns serves no wider ones; wider limits, or other blocks, are built anew."""
    i, traffic, blocks = CASES["rail"]
    t, built = templates(i, power_counts=True), list[tuple[Any, ...]]()
    own = t._built
    monkeypatch.setattr(t, "_built", lambda *a, **more: built.append(a[1:3]) or own(*a, **more))

    def count(usd: float, slowdowns: tuple[float, float], *, more: int = 0, shallow: bool = False) -> int:
        t.options(traffic, blocks + more, usd, max_slowdowns=slowdowns, shallow=shallow)
        return len(built)

    assert count(1e9, (3.0, 4.0)) == 1
    for narrower in ((1e9, (3.0, 4.0)), (1e9 - 1, (3.0, 4.0)), (1e9, (2.0, 4.0)), (1e9, (3.0, 1.0)), (0.0, (1.0, 1.0))):
        assert count(*narrower) == 1
    wider = ((2e9, (3.0, 4.0)), (1e9, (3.1, 4.0)), (1e9, (3.0, 4.1)))
    assert [count(*limits) for limits in wider] == [2, 3, 4]
    assert count(1e9, (3.0, 4.0), more=1) == 5
    assert count(1e9, (3.0, 4.0), shallow=True) == 5  # which leaves out what the deep one has
    assert count(1e9, (9.0, 9.0), shallow=True) == 6
    assert count(1e9, (9.0, 9.0)) == 7


def test_without_a_gateway_its_traffic_is_of_no_account() -> None:
    i, traffic, blocks = CASES["rail"]
    more = dataclasses.replace(traffic, wan_gbps=5000.0, exchange_gbps=500.0)
    t = templates(i, power_counts=True)
    assert np.array_equal(t.options(more, blocks).key, t.options(traffic, blocks).key)


def test_a_slower_nic_may_have_a_slower_port() -> None:
    """The NIC of `hardware` counts where one is given, and not the accelerator's."""
    i = instance(4, switch(8, 1e5, port_gbps=200))
    assert templates(i, power_counts=True).modes(4) == []
    slow = i.replaced(hardware__nic_bytes_per_second=25e9)
    assert [m.lanes for m in templates(slow, power_counts=True).modes(4)] == [1]
