"""The design that a plan's fabric stands for: back from the plan what went into it, and choices without a meaning."""

import dataclasses
from typing import Any, get_args

import pytest
from each_case import each
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cabling import wirable
from test_dragonfly import dragonflies
from test_price import boxes_of, network

from planner.instance.network import FabricFamily, Spares
from planner.models.fabric.fabric_section import site_fabric
from planner.models.fabric.fabric_templates import Template
from planner.physics.network.clos_fabric import TIERS, Design
from planner.physics.network.dragonfly import Dragonfly, DragonflyPlus
from planner.physics.network.fabric_cables import switch_counts
from planner.physics.network.fabric_designs import (
    FAMILIES,
    MAX_LANES,
    MAX_WAN_PORTS,
    design_fault,
    design_of,
    spare_ports,
)
from planner.physics.network.locality import locality
from planner.plan.plan_sections import SiteFabric, Tier, WanGateway


def family_of(d: Design) -> FabricFamily | None:
    """Return the family whose racks meet a fabric as in a design; None where no family's do."""
    if isinstance(d, Dragonfly):
        kind: FabricFamily = "dragonfly+" if isinstance(d, DragonflyPlus) else "dragonfly"
        return kind if d.rail_gpus == d.apart == 1 else None
    sets = {"rail": (d.rail_gpus, d.apart), "rack": (d.rails, d.apart), "rail-only": (d.rails, d.rail_gpus)}
    return next((family for family, others in sets.items() if others == (1, 1)), None)


def stated(d: Design, family: FabricFamily) -> SiteFabric:
    """Return the plan's section for a design, of one stage that is every rack of the site."""
    models = tuple(boxes_of(d))
    n = network(switches=tuple({box.name: box for box in models}.values()))
    x = locality([range(d.racks)], d.block_racks, wrap=False)
    wan_gbps = 800.0 * d.wan_gateway_links
    t = Template(models, family, d, stripes=1, usd=0.0, mw=0.0, send=1.0, allreduce=1.0)
    return site_fabric(n, t, x, nic_seconds=1.0, wired_gpus_per_rack=d.gpus_per_rack, wan_gbps=wan_gbps)


@settings(deadline=None)
@given(st.one_of(wirable(), dragonflies()))
def test_a_stated_fabric_is_its_design(d: Design) -> None:
    """What the plan says of a fabric makes the same design again, spare ports from the instance's share of them."""
    family = family_of(d)
    if family is None:
        return
    d = dataclasses.replace(d, leaf_spare=spare_ports(d.leaf_down, Spares(share=0.2)))
    routing = "valiant" if isinstance(d, Dragonfly) and d.valiant else "shortest"
    port_gbps = boxes_of(d)[0].port_gbps
    d = dataclasses.replace(d, nic_gbps=port_gbps / d.split, link_gbps=port_gbps)
    f = stated(d, family)
    switches = tuple({s.name: s for s in boxes_of(d)}.values())
    n = network(switches=switches).replaced(spares=Spares(share=0.2), group_routing=routing)
    assert f.models == tuple(s.name for s in boxes_of(d))
    found = design_of(f, d.racks, d.gpus_per_rack, n, d.nic_gbps * d.lanes * 1e9 / 8)
    assert found == dataclasses.replace(d, nic_gbps=pytest.approx(d.nic_gbps))
    assert design_fault(f, d.racks) is None
    tiers = [(t.name, t.switches) for t in f.tiers]
    assert tiers == [(tier, n) for tier, n in switch_counts(d).items() if tier != "wan-gateway"]
    if not isinstance(d, Dragonfly):  # what comes up to a full switch over what goes on; nothing goes on from the top
        flows = [t.down_ports / t.up_ports / (d.split if t.name == "leaf" else 1) for t in f.tiers[:-1]]
        assert [t.oversubscription for t in f.tiers] == pytest.approx([*flows, 1.0])


# A tree of four tiers without a fault, by its tiers: ports down, up, and the links of a bundle.
TREE = ((4, 4, 2), (8, 4, 2), (8, 4, 1), (8, 0, 0))
POD, ZONE = {"rails_per_pod": 2, "leaf_domains_per_pod": 2}, {"rails_per_zone": 2, "leaf_domains_per_zone": 4}


def fabric(*tiers: tuple[int, int, int], names: tuple[str, ...] = TIERS, **more: Any) -> SiteFabric:
    """Return a plan's section of which only the choices of a design are there."""
    held = [
        Tier.model_construct(name=name, down_ports=down, up_ports=up, bundle=bundle)
        for name, (down, up, bundle) in zip(names, tiers, strict=False)
    ]
    same = {"family": "rail", "lanes": 1, "split": 1, "wan_gateway": None, "group_links": 0, **POD}
    return SiteFabric.model_construct(**same | {"rails_per_zone": 0, "leaf_domains_per_zone": 0} | more, tiers=held)


def cut(n: int) -> tuple[tuple[int, int, int], ...]:
    """Return the first tiers of the tree, without uplinks at the top."""
    return (*TREE[: n - 1], (TREE[n - 1][0], 0, 0))


@each("tiers", [1, 2, 3, 4])
def test_trees_without_a_fault(tiers: int) -> None:
    """One to four tiers, zones under super-spines only, the most lanes and WAN ports; one switch has no pods."""
    zone, pod = ZONE if tiers == 4 else {}, {"rails_per_pod": 0, "leaf_domains_per_pod": 0} if tiers == 1 else POD
    assert design_fault(fabric(*cut(tiers), **zone | pod), 1) is None
    most = {"lanes": MAX_LANES, "wan_gateway": WanGateway.model_construct(wan_ports=MAX_WAN_PORTS)}
    assert design_fault(fabric(*cut(tiers), **zone | pod, **most), 1) is None


@each(("f", "racks", "said"), [
    (fabric(*cut(3)), 0, "0 racks and 1 lanes"),
    (fabric(*cut(3), lanes=0), 1, "1 racks and 0 lanes"),
    (fabric(*cut(3), lanes=MAX_LANES + 1), 1, "1 racks and 17 lanes"),
    (fabric(*cut(3), split=0), 1, "ports split in 0"),
    (fabric(*cut(3), wan_gateway=WanGateway.model_construct(wan_ports=0)), 1, "a WAN gateway of 0 ports"),
    (fabric(*cut(3), wan_gateway=WanGateway.model_construct(wan_ports=10**9 + 1)), 1, "a WAN gateway of 1,000,000"),
    (fabric(), 1, "tiers are none; leaf, then spine, then core"),
    (fabric(*cut(2), names=("leaf", "core")), 1, "tiers are leaf, core"),
    (fabric(*cut(1), names=("spine",)), 1, "tiers are spine"),
    (fabric((4, 0, 0), (8, 0, 0)), 1, "leaf: 4 down, 0 up in bundles of 0; only the top tier, spine"),
    (fabric((4, 4, 0), (8, 0, 0)), 1, "leaf: 4 down, 4 up in bundles of 0"),
    (fabric((4, 0, 2), (8, 0, 0)), 1, "leaf: 4 down, 0 up in bundles of 2"),
    (fabric((4, 4, 2), (8, 4, 0)), 1, "spine: 8 down, 4 up in bundles of 0"),
    (fabric((4, 4, 2), (8, 0, 2)), 1, "spine: 8 down, 0 up in bundles of 2"),
    (fabric((4, 4, 2), (8, -1, 0)), 1, "spine: 8 down, -1 up"),
    (fabric((4, 4, 2), (8, 0, -1)), 1, "spine: 8 down, 0 up in bundles of -1"),
    (fabric((0, 4, 2), (8, 0, 0)), 1, "leaf: 0 down"),
    (fabric((4, 4, 2), (0, 0, 0)), 1, "spine: 0 down"),
    (fabric(*cut(2), rails_per_pod=0), 1, "a pod of 0 rails and 2 leaf domains"),
    (fabric(*cut(2), leaf_domains_per_pod=0), 1, "a pod of 2 rails and 0 leaf domains"),
    (fabric(*cut(4)), 1, "a zone of 0 rails and 0 leaf domains; at least 1 of each"),
    (fabric(*cut(4), **ZONE | {"rails_per_zone": 0}), 1, "a zone of 0 rails and 4 leaf domains; at least 1"),
    (fabric(*cut(4), **ZONE | {"leaf_domains_per_zone": 0}), 1, "a zone of 2 rails and 0 leaf domains; at least"),
    (fabric(*cut(3), rails_per_zone=1), 1, "a zone of 1 rails and 0 leaf domains; none under cores expected"),
    (fabric(*cut(3), leaf_domains_per_zone=1), 1, "a zone of 0 rails and 1 leaf domains; none under cores"),
    (fabric(*cut(3), rails_per_zone=-1), 1, "a zone of -1 rails and 0 leaf domains; none under cores"),
])  # fmt: skip
def test_choices_of_a_tree_without_a_meaning(f: SiteFabric, racks: int, said: str) -> None:
    assert (design_fault(f, racks) or "").startswith(said)


@pytest.mark.parametrize(("family", "tiers", "more", "said"), [
    ("dragonfly", ((4, 1, 1),), {"rails_per_pod": 1, "leaf_domains_per_pod": 1}, ""),
    ("dragonfly", ((1, 4, 3),), {"group_links": 1}, ""), ("dragonfly+", ((4, 4, 2), (1, 1, 0)), {}, ""),
    ("dragonfly+", ((4, 3, 2), (1, 1, 0)), {}, "leaf bundle: 3 uplinks are not whole bundles of 2"),
    ("dragonfly+", ((4, 4, 2),), {}, "tiers of a dragonfly+ are leaf; leaf, then spine expected"),
    ("dragonfly", (), {}, "tiers of a dragonfly are none; leaf expected"),
    ("dragonfly", ((4, 4, 2), (1, 1, 0)), {}, "tiers of a dragonfly are leaf, spine; leaf expected"),
    ("dragonfly", ((0, 1, 1),), {}, "leaf: 0 down, 1 up in bundles of 1"),
    ("dragonfly", ((1, 0, 1),), {}, "leaf: 1 down, 0 up in bundles of 1"),
    ("dragonfly", ((1, 1, 0),), {}, "leaf: 1 down, 1 up in bundles of 0"),
    ("dragonfly", ((1, 1, 1),), {"rails_per_pod": 0}, "leaf: 1 down, 1 up in bundles of 1; groups of 0 rails"),
    ("dragonfly", ((1, 1, 1),), {"leaf_domains_per_pod": 0}, "leaf: 1 down, 1 up in bundles of 1; groups of 2"),
    ("dragonfly", ((1, 1, 1),), {"group_links": -1}, "leaf: 1 down, 1 up in bundles of 1; groups of 2"),
])  # fmt: skip
def test_choices_of_a_dragonfly(family: str, tiers: tuple, more: dict[str, int], said: str) -> None:
    """Ports, bundles and groups are of one at least, links between groups none or more; good ones pass."""
    found = design_fault(fabric(*tiers, family=family, **more), 1)
    assert found is None if not said else (found or "").startswith(said)


def test_every_family_is_registered() -> None:
    """An instance may name just the families of the registry, and every type of design serves one of them."""
    assert set(FAMILIES) == set(get_args(FabricFamily))
    assert {f.design for f in FAMILIES.values()} == {Design, Dragonfly, DragonflyPlus}
