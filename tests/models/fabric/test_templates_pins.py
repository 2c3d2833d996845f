"""Pins restrict templates to those that have the pinned value, at all sites or at one."""

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
from each_case import each
from fabric_cases import every_template, instance, switch, templates

from planner.checks.fabric import joined_racks
from planner.errors import InputError
from planner.instance.instance import FABRIC, PINS, Instance, check_pins
from planner.models.fabric.design_table import DesignTable
from planner.models.fabric.fabric_templates import Template
from planner.models.fabric.site_traffic import SiteTraffic
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_designs import max_joined_racks, min_fabric_usd, min_uplinks

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
    return {
        "planes": leaf.planes * d.lanes, "ports_per_switch": d.ports, "tiers": d.tiers,
        "leaf_domain_racks": d.domain_racks, "leaf_down_ports": d.leaf_down, "leaf_up_ports": max(d.up_port_range),
        "spine_down_ports": d.spine_down if d.tiers > 1 else 0, "spine_up_ports": d.spine_up if d.tiers > 1 else 0,
        "core_down_ports": d.core_down if d.tiers > 2 else 0, "core_up_ports": d.core_up if d.tiers > 3 else 0,
        "leaf_bundle": d.leaf_bundle, "spine_bundle": d.spine_bundle, "rails_per_pod": d.rails_per_pod,
        "leaf_domains_per_pod": d.domains_per_pod, "switch": leaf.name, "family": t.family,
        "group_links": d.group_links,
        "spine_switch": spine.name if d.tiers > 1 else "", "core_switch": core.name if d.tiers > 2 else "",
    }  # fmt: skip


FREE = built(fabrics())
EVERY = {name: sorted({stated(t)[name] for t in FREE} - {0, ""}, key=str) for name in stated(FREE[0])}
VALUES = [(name, value) for name, values in EVERY.items() for value in dict.fromkeys((*values[:1], *values[-1:]))]


@pytest.mark.parametrize(("name", "value"), VALUES, ids=[f"{n}={v}" for n, v in VALUES])
def test_a_pin_keeps_what_has_its_value(name: str, value: Any) -> None:
    found = built(fabrics({f"fabric.cluster.{name}": value}), site="cluster")
    assert found
    for t in found:
        assert stated(t)[name] == value
        assert t.design.faults() == []
        assert any(f.send <= t.send and f.allreduce <= t.allreduce and f.usd <= t.usd * (1 + 1e-9) for f in FREE)
    for f in FREE:
        if stated(f)[name] == value and f.design.tiers < 4:
            assert any(t.send <= f.send and t.allreduce <= f.allreduce and t.usd <= f.usd * (1 + 1e-9) for t in found)


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
            assert any(t.send <= f.send and t.allreduce <= f.allreduce and t.usd <= f.usd * (1 + 1e-9) for t in found)


@pytest.mark.parametrize("pins", [{"tiers": 4}, {"core_up_ports": 2}, {"core_up_ports": 1, "core_down_ports": 2}])
def test_pins_of_four_tiers(pins: dict[str, int]) -> None:
    """Pinned ports of cores with uplinks make four tiers, also where fewer would do."""
    found = built(fabrics({f"fabric.{k}": v for k, v in pins.items()}, models=2))
    assert found
    for t in found:
        assert t.design.tiers == 4
        assert {name: stated(t)[name] for name in pins} == pins
        assert t.design.faults() == []


def test_a_site_has_its_own_pins() -> None:
    i = fabrics({"fabric.tiers": 2, "fabric.cluster.tiers": 3})
    assert {t.design.tiers for t in built(i, site="cluster")} == {3}
    assert {t.design.tiers for t in built(i)} == {2}


def test_a_pinned_number_of_ports_may_be_more_than_needed() -> None:
    """Ports down that the last pod leaves unused, and more uplinks than traffic asks for, are built as pinned."""
    pins = {"leaf_down_ports": 3, "leaf_up_ports": 3, "spine_down_ports": 4, "spine_up_ports": 4}
    found = built(fabrics({f"fabric.{k}": v for k, v in pins.items()}, families=["rail"]))
    assert found
    for t in found:
        assert {name: stated(t)[name] for name in pins} == pins


@each(("racks", "several"), [(16, False), (20, False), (5, True), (3, True)])
def test_a_pinned_leaf_domain_of_any_size(racks: int, several: bool) -> None:
    big = instance(1, switch(32, 1e5), pins={"fabric.leaf_domain_racks": racks, "fabric.leaf_up_ports": 2})
    designs = [t.design for t in every_template(big, dataclasses.replace(TRAFFIC, rails=1), BLOCKS)]
    assert designs
    assert all(d.domain_racks == racks and (d.domains > 1) == several for d in designs)


def parted(racks: int) -> DesignTable:
    """Return the templates with pinned leaf domains of traffic whose units have four racks."""
    i = instance(1, switch(16, 1e5), pins={"fabric.leaf_domain_racks": racks})
    return templates(i).options(SiteTraffic(stages=2, unit_racks=4, wrap=False, rails=1), 3)


def test_a_leaf_domain_parts_no_unit() -> None:
    assert len(parted(8))
    assert not len(parted(6))


def test_stripes_can_be_pinned() -> None:
    x = templates(fabrics({"placement.stripes": 3})).options(TRAFFIC, BLOCKS)
    assert len(x)
    assert np.all(x.key[:, -1] == 3)


def test_an_unknown_switch_is_refused() -> None:
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
            most = max_joined_racks(i, wired)
            bounded |= {most} - {np.inf}
            assert joined_racks(i, wired) <= most
            t = templates(i)
            for racks in range(1, 13) if np.isfinite(most) else ():
                one = SiteTraffic(stages=1, unit_racks=1, wrap=False, rails=wired)
                assert racks <= joined_racks(i, wired) or not len(t.options(one, racks, site="cluster")), (
                    name,
                    value,
                    racks,
                )
    assert 0 in bounded


@each("family", ["rail", "rack", "rail-only", "dragonfly", "dragonfly+"])
@each("pins", [{}, {"fabric.leaf_domain_racks": 2}, {"fabric.leaf_down_ports": 6}])
@each("tiers", [{"max_tiers": 1}, {"pins": {"fabric.tiers": 1}}])
def test_racks_that_one_tier_joins(family: str, pins: dict[str, Any], tiers: dict[str, Any]) -> None:
    i = fabrics(pins | tiers.get("pins", {}), families=[family], max_tiers=tiers.get("max_tiers", 3))
    most, t = max_joined_racks(i, 2), templates(i)
    one = SiteTraffic(stages=1, unit_racks=1, wrap=False, rails=2)
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
    one = SiteTraffic(stages=1, unit_racks=1, wrap=False, rails=rails)
    joined = [racks for racks in range(max(1, most), most + 10) if len(t.options(one, racks))]
    assert joined == [most] * (most > 0)
    assert joined_racks(i, rails) == most


def test_no_fabric_is_cheaper_than_the_uplinks_that_ratios_ask_for() -> None:
    joined, one = 0, SiteTraffic(stages=1, unit_racks=1, wrap=False, rails=2)
    for seed in range(10):
        r = random.Random(seed)
        boxes = [
            switch(ports, r.uniform(1e2, 1e5), port_gbps=r.choice([400, 800]), breakout=r.choice([1, 2]))
            for ports in (4, 6, 8)
        ]
        rules = {"max_oversubscription": r.choice([1.0, 2.0, [1.0, 3.0]])}
        i = instance(2, *r.sample(boxes, 2), max_tiers=3, families=[r.choice(["rail", "rack", "rail-only"])], **rules)
        t, uplinks, each_gpu = templates(i), min_uplinks(i, 2), min_fabric_usd(i.network)
        assert len(uplinks) == 2
        for racks in range(1, 40):
            floor = 2 * racks * each_gpu + sum(max(0.0, racks - most) * usd for most, usd in uplinks)
            least = t.options(one, racks).usd.min(initial=np.inf)
            assert floor <= least * (1 + 1e-9)
            joined += least < np.inf
    assert joined > 100


@each(("pins", "most"), [({}, np.inf), ({"fabric.leaf_domain_racks": 8}, 8)])
def test_a_leaf_without_uplinks_holds_all_racks(pins: dict[str, Any], most: float) -> None:
    """Eight racks with a GPU each fill a switch of eight ports: nine have no fabric, eight have one."""
    i = fabrics(pins, families=["rail"])
    assert max_joined_racks(i, 1) == most
    one, t = SiteTraffic(stages=1, unit_racks=1, wrap=False, rails=1), templates(i)
    assert len(t.options(one, 8)) > 0 and (len(t.options(one, 9)) > 0) == (not pins)
