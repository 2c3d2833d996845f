"""Fabrics whose tiers have different models: the cheapest at 1:1 by closed figures, and models that are no choice."""

from typing import Any

import pytest
from each_case import each
from fabric_cases import every_template, instance, switch, templates
from tiers import slow

from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.models.fabric.fabric_templates import Template
from planner.models.fabric.site_traffic import SiteTraffic

GPU_LINK_USD, SWITCH_LINK_USD = 680.0, 1830.0
LEAF, SPINE = switch(64, 36e3), switch(128, 150e3)


def one_to_one(gpus: int, *boxes: Switch, **rules: Any) -> Instance:
    """Return an instance of racks of so many GPUs and links at two prices, every tier 1:1."""
    cables = {"endpoint_usd": GPU_LINK_USD, "switch_usd": SWITCH_LINK_USD}
    return instance(gpus, *boxes, cables=cables, optics_usd=0, **{"min_core_share": 1.0, **rules})


def cheapest(i: Instance, racks: int) -> Template:
    t, traffic = templates(i), SiteTraffic(stages=4, unit_racks=1, wrap=False, rails=i.hardware.rack.gpus)
    return t.template(traffic, racks // 4, t.options(traffic, racks // 4), 0)


@pytest.mark.parametrize(("gpus", "mixed_musd", "one_model_musd"), slow((4096, 19.689, 24.681), (3072, 15.919, 19.711)))
def test_small_leaves_under_large_spines(gpus: int, mixed_musd: float, one_model_musd: float) -> None:
    """By hand: 4,096 GPUs take 128 leaves at $36K, 32 spines at $150K, and a link of either kind for each GPU."""
    found = cheapest(one_to_one(8, LEAF, SPINE), gpus // 8)
    assert (*found.models[:2], found.design.tiers) == (LEAF, SPINE, 2)
    assert found.usd / 1e6 == pytest.approx(mixed_musd, abs=5e-4)
    alone = min(cheapest(one_to_one(8, box), gpus // 8).usd for box in (LEAF, SPINE))
    assert alone / 1e6 == pytest.approx(one_model_musd, abs=5e-4)
    if gpus == 4096:
        assert found.usd == 128 * 36e3 + 32 * 150e3 + 4096 * (GPU_LINK_USD + SWITCH_LINK_USD)


@each("unlike", [{"port_gbps": 1600}, {"planes": 2}, {"link_factor": 0.5}])
def test_other_ports_are_not_mixed(unlike: dict[str, float]) -> None:
    i = one_to_one(4, switch(8, 1e5), switch(12, 1.0, **unlike), max_tiers=3)
    found = every_template(i, SiteTraffic(stages=4, unit_racks=1, wrap=True, rails=4), 2)
    assert found
    assert all(len({*f.models}) == 1 for f in found)


def test_a_model_that_another_outdoes_is_no_choice() -> None:
    """Spines of no more ports for as much money are left out, but where a pin asks for them."""
    boxes = switch(8, 1e5), switch(6, 2e5), switch(12, 2e5)
    for pins, names in (({}, {"8x1", "12x1"}), ({"fabric.spine_switch": "6x1"}, {"6x1"})):
        i = one_to_one(2, *boxes, pins=pins, min_core_share=0.0)
        found = every_template(i, SiteTraffic(stages=6, unit_racks=1, wrap=True, rails=2), 4)
        assert {f.models[1].name for f in found if f.design.tiers > 1} <= names
        assert any(f.models[1].name == "6x1" for f in found) == bool(pins)
