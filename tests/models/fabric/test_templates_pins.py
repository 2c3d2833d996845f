"""Pins restrict templates to those that have the pinned value, at all sites or at one."""

import dataclasses
import random
from itertools import chain
from typing import Any

import numpy as np
import pytest
from each_case import each
from fabric_cases import every_template, instance, switch, templates

from planner.checks.fabric import joined_racks
from planner.errors import InputError
from planner.instance.instance import Instance
from planner.instance.pins import FABRIC, PINS, check_pins
from planner.models.fabric.fabric_templates import Template
from planner.models.fabric.site_traffic import SiteTraffic
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_cost import min_fabric, min_uplinks
from planner.physics.network.fabric_designs import max_joined_racks


def alone(gpus: int) -> SiteTraffic:
    """Return the traffic of racks that each work by themselves."""
    return SiteTraffic(stages=1, unit_racks=1, wrap=False, rails=gpus)


TRAFFIC = SiteTraffic(stages=4, unit_racks=1, wrap=True, rails=3)
BLOCKS = 4
SWITCHES = switch(6, 5e4), switch(8, 1e5, planes=2), switch(7, 7e4)


def fabrics(pins: dict[str, Any] | None = None, models: int = 3, **rules: Any) -> Instance:
    """Return a small network with pins, of the first of the switches."""
    return instance(3, *SWITCHES[:models], pins=pins, **{"families": ["rail", "rack"], "max_tiers": 4, **rules})


def built(i: Instance, site: str | None = None) -> list[Template]:
    """Return all templates of an instance in full."""
    return every_template(i, TRAFFIC, BLOCKS, site=site)


def stated(t: Template) -> dict[str, Any]:
    """Return the choices of a template by the names of their pins, as the plan states them."""
    d: Design = t.design
    leaf, spine, core, _ = t.models
    found = {"planes": leaf.planes * d.lanes, "ports_per_switch": d.ports, "tiers": d.tiers, "switch": leaf.name}
    found |= {"leaf_domain_racks": d.domain_racks, "leaf_down_ports": d.leaf_down, "family": t.family}
    found |= {"leaf_up_ports": max(d.up_port_range), "leaf_bundle": d.leaf_bundle, "spine_bundle": d.spine_bundle}
    found |= {"rails_per_pod": d.rails_per_pod, "leaf_domains_per_pod": d.domains_per_pod, "group_links": d.group_links}
    spines = {"spine_down_ports": d.spine_down, "spine_up_ports": d.spine_up, "spine_switch": spine.name}
    cores = {"core_down_ports": d.core_down, "core_switch": core.name} if d.tiers > 2 else {}
    return found | (spines if d.tiers > 1 else {}) | cores | ({"core_up_ports": d.core_up} if d.tiers > 3 else {})


def as_good(t: Template, f: Template) -> bool:
    """Say whether one template slows traffic no more than another, for no more money."""
    return t.send <= f.send and t.allreduce <= f.allreduce and t.usd <= f.usd * (1 + 1e-9)


FREE = built(fabrics())
STATED = [stated(t) for t in FREE]
EVERY = {name: sorted({own.get(name, 0) for own in STATED} - {0}, key=str) for name in dict.fromkeys(chain(*STATED))}
VALUES = [(name, value) for name, values in EVERY.items() for value in dict.fromkeys((*values[:1], *values[-1:]))]


@pytest.mark.parametrize(("name", "value"), VALUES, ids=[f"{n}={v}" for n, v in VALUES])
def test_a_pin_keeps_what_has_its_value(name: str, value: Any) -> None:
    found = built(fabrics({f"fabric.cluster.{name}": value}), site="cluster")
    assert found
    for t in found:
        assert stated(t)[name] == value
        assert t.design.faults() == []
        assert any(as_good(f, t) for f in FREE)
    for f, own in zip(FREE, STATED, strict=True):
        if own.get(name) == value and f.design.tiers < 4:
            assert any(as_good(t, f) for t in found)


def test_all_kinds_of_pins_are_tried() -> None:
    """Every choice that can be pinned at a site is among the values tried, but those of four tiers and groups."""
    every = {path.removeprefix(FABRIC) for path in PINS if path.startswith(FABRIC)}
    assert {name for name, _ in VALUES} == every - {"core_up_ports", "group_links"}


@each(("name", "routing"), [("leaf_up_ports", "shortest"), ("leaf_up_ports", "valiant"), ("group_links", "shortest")])
def test_pins_of_dragonflies(name: str, routing: str) -> None:
    """A pin keeps a dragonfly of each value that the free ones state."""
    rules = {"families": ["dragonfly"], "group_routing": routing}
    free = built(fabrics(**rules))
    for value in {stated(t)[name] for t in free}:
        found = built(fabrics({f"fabric.{name}": value}, **rules))
        assert {stated(t)[name] for t in found} == {value}
        for f in (f for f in free if stated(f)[name] == value):
            assert any(as_good(t, f) for t in found)


MORE = {"leaf_down_ports": 3, "leaf_up_ports": 3, "spine_down_ports": 4, "spine_up_ports": 4}


@pytest.mark.parametrize(
    ("pins", "rules"),
    [
        *(
            (own, {"models": 2})
            for own in ({"tiers": 4}, {"core_up_ports": 2}, {"core_up_ports": 1, "core_down_ports": 2})
        ),
        (MORE, {"families": ["rail"]}),
    ],
)
def test_pins_are_built_as_they_are(pins: dict[str, int], rules: dict[str, Any]) -> None:
    """Also where they make a fourth tier, ports down that the last pod leaves unused, and more uplinks than needed."""
    found = built(fabrics({f"fabric.{k}": v for k, v in pins.items()}, **rules))
    assert found
    for t in found:
        assert t.design.tiers == 4 or pins == MORE
        assert pins.items() <= stated(t).items()
        assert t.design.faults() == []


def test_a_site_has_its_own_pins() -> None:
    i = fabrics({"fabric.tiers": 2, "fabric.cluster.tiers": 3})
    assert {t.design.tiers for t in built(i, site="cluster")} == {3}
    assert {t.design.tiers for t in built(i)} == {2}


@each(("racks", "several"), [(16, False), (20, False), (5, True), (3, True)])
def test_a_pinned_leaf_domain_of_any_size(racks: int, several: bool) -> None:
    big = instance(1, switch(32, 1e5), pins={"fabric.leaf_domain_racks": racks, "fabric.leaf_up_ports": 2})
    designs = [t.design for t in every_template(big, dataclasses.replace(TRAFFIC, rails=1), BLOCKS)]
    assert designs
    assert all(d.domain_racks == racks and (d.domains > 1) == several for d in designs)


def test_a_leaf_domain_parts_no_unit() -> None:
    """Of eight racks it holds two units of four, of six it would part one."""
    for racks, some in ((8, True), (6, False)):
        i = instance(1, switch(16, 1e5), pins={"fabric.leaf_domain_racks": racks})
        assert bool(len(templates(i).options(SiteTraffic(stages=2, unit_racks=4, wrap=False, rails=1), 3))) == some


def test_stripes_can_be_pinned_and_no_unknown_switch() -> None:
    assert {t.stripes for t in built(fabrics({"placement.stripes": 3}))} == {3}
    with pytest.raises(InputError, match="is none of"):
        built(fabrics({"fabric.cluster.switch": "none"}), site="cluster")


@each(("path", "value", "reported"), [
    ("fabric.cluster.rails_per_pod", 0, "must be a whole number from 1"),
    ("fabric.cluster.family", "torus", "must be one of rail"), ("fabric.elsewhere.tiers", 2, "no such decision"),
    ("wan.wavelengths", -1, "must be a whole number from 0"), ("placement.stripes", 0, "must be a whole number from 1"),
    ("wan.wavelengths", 0, "decides nothing, as the instance has no grid"), ("fabric.cluster.switch", "6x1", ""),
])  # fmt: skip
def test_pins_are_checked(path: str, value: Any, reported: str) -> None:
    found = list(check_pins(fabrics({path: value})))
    assert bool(found) == bool(reported)
    assert all(reported in x for x in found)


WIRED = [("rail", 1), ("rail", 3), ("rack", 3), ("rail-only", 1), ("dragonfly", 3), ("dragonfly+", 1)]


@pytest.mark.parametrize(("family", "wired"), WIRED)
def test_racks_that_a_pinned_leaf_joins(family: str, wired: int) -> None:
    """No site of more racks than the bound has a template, whatever leaf is pinned; some leaves bound the racks."""
    bounded = set()
    for name in ("leaf_domain_racks", "leaf_down_ports", "leaf_up_ports"):
        for value in (1, 2, 3, 4, 6, 9):
            i = fabrics({f"fabric.cluster.{name}": value}, models=2, families=[family])
            most, t, one = max_joined_racks(i, wired), templates(i), alone(wired)
            bounded |= {most} - {np.inf}
            assert joined_racks(i, wired) <= most
            for racks in range(1, 13) if np.isfinite(most) else ():
                fits = racks <= joined_racks(i, wired)
                assert fits or not len(t.options(one, racks, site="cluster")), (name, value, racks)
    assert 0 in bounded


@each("family", ["rail", "rack", "rail-only", "dragonfly", "dragonfly+"])
@each("pins", [{}, {"fabric.leaf_domain_racks": 2}, {"fabric.leaf_down_ports": 6}])
@each("tiers", [{"max_tiers": 1}, {"pins": {"fabric.tiers": 1}}])
def test_racks_that_one_tier_joins(family: str, pins: dict[str, Any], tiers: dict[str, Any]) -> None:
    i = fabrics(pins | tiers.get("pins", {}), families=[family], max_tiers=tiers.get("max_tiers", 3))
    most, t = max_joined_racks(i, 2), templates(i)
    one = alone(2)
    joined = [racks for racks in range(max(1, min(most, 12)), 13) if len(t.options(one, racks))]
    assert max(joined, default=0) <= joined_racks(i, 2) <= most
    assert family == "dragonfly" or max(joined, default=0) == most


@pytest.mark.parametrize("seed", range(30))
def test_racks_that_two_tiers_join(seed: int) -> None:
    r = random.Random(seed)
    pins = {name: r.randint(1, 6) for name in ("leaf_domain_racks", "leaf_down_ports", "leaf_up_ports")}
    pins = {f"fabric.{name}": value for name, value in pins.items() if r.random() < 0.2}
    rules = {"survives": r.choice([None, "one_leaf_uplink", "one_spine"]), "spares": {"share": r.choice([0.0, 0.2])}}
    rules["max_oversubscription"] = r.choice([None, 1.0, 2.5, [1.5, 4.0]])
    boxes = [switch(ports, 100.0, port_gbps=r.choice([800, 1600]), breakout=r.choice([1, 2])) for ports in (4, 6, 8)]
    rules["max_rails_per_leaf"] = r.choice([1, 2, 3])
    family, rails = r.choice(["rail", "rack", "rail-only"]), r.choice([2, 12])
    i = instance(rails, *r.sample(boxes, 2), max_tiers=2, pins=pins, families=[family], **rules)
    most, t = max_joined_racks(i, rails), templates(i)
    one = alone(rails)
    joined = [racks for racks in range(max(1, most), most + 10) if len(t.options(one, racks))]
    assert joined == [most] * (most > 0)
    assert joined_racks(i, rails) == most


def test_no_fabric_is_cheaper_than_the_uplinks_that_ratios_ask_for() -> None:
    joined, one = 0, alone(2)
    for seed in range(10):
        r = random.Random(seed)
        drawn = ((r.uniform(1e2, 1e5), r.choice([400, 800]), r.choice([1, 2])) for _ in range(3))
        own = zip((4, 6, 8), drawn, strict=True)
        boxes = [switch(ports, usd, port_gbps=gbps, breakout=parts) for ports, (usd, gbps, parts) in own]
        rules = {"max_oversubscription": r.choice([1.0, 2.0, [1.0, 3.0]])}
        i = instance(2, *r.sample(boxes, 2), max_tiers=3, families=[r.choice(["rail", "rack", "rail-only"])], **rules)
        t, uplinks, each_gpu = templates(i), min_uplinks(i, 2), min_fabric(i.network).usd
        assert len(uplinks) == 2
        for racks in range(1, 40):
            floor = 2 * racks * each_gpu + sum(max(0.0, racks - most) * usd for most, usd in uplinks)
            least = t.options(one, racks).usd.min(initial=np.inf)
            assert floor <= least * (1 + 1e-9)
            joined += least < np.inf
    assert joined > 100
