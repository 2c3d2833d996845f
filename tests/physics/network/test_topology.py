"""Trees of switches: published counts, and a port too few or a bundle in parts refused at every tier."""

import dataclasses
import math

from closed_forms import fat_tree_endpoints, fat_tree_links, fat_tree_switches, tree_reach
from each_case import each

from planner.physics.network.clos_fabric import Design
from planner.physics.network.uplink_slowdowns import uplink_loads


def full(nodes: int, rails: int, bundle: int, domains: int = 0, core_bundle: int = 0) -> Design:
    """Return 64-port switches at full bisection: of two tiers a pod of all domains, else spines with 32 uplinks."""
    leaf = {"leaf_down": 32, "leaf_up": 32, "leaf_bundle": bundle, "rails_per_pod": rails}
    leaf |= {"domains_per_pod": domains or math.ceil(nodes / 32)}
    spine = {"spine_up": 32, "spine_bundle": core_bundle} if core_bundle else {}
    return Design(ports=64, rails=rails, racks=nodes, **leaf, **spine)


@each(("source", "choices", "leaves", "spines", "cores"), [
    ("DGX SuperPOD B200 4 SU", (128, 8, 2), 32, 16, 0), ("DGX SuperPOD B200 8 SU", (256, 8, 1), 64, 32, 0),
    ("DGX SuperPOD B200 16 SU", (512, 8, 1, 4, 16), 128, 128, 64),
    ("H100 cluster BOM 1024 GPUs", (1024, 1, 2), 32, 16, 0), ("H100 cluster BOM 2048 GPUs", (2048, 1, 1), 64, 32, 0),
    ("H100 cluster BOM 8192 GPUs, one rail of 8, each a network of its own", (1024, 1, 2), 256 // 8, 128 // 8, 0),
    ("H100 cluster BOM 32768 GPUs", (4096, 8, 1, 4, 2), 1024, 1024, 512),
    ("H100 cluster BOM 65536 GPUs", (8192, 8, 1, 4, 1), 2048, 2048, 1024),
])  # fmt: skip
def test_published_counts(source: str, choices: tuple[int, ...], leaves: int, spines: int, cores: int) -> None:
    """As many links between leaves and spines as GPUs, and again above the spines where there are cores."""
    d, gpus = full(*choices), choices[0] * choices[1]
    assert not d.faults(), source
    assert (d.leaves, d.spines, d.cores, d.endpoint_links) == (leaves, spines, cores, gpus)
    assert d.switch_links == gpus * (2 if cores else 1)


def test_h100_bom_sums() -> None:
    """The H100 cluster BOM prints 384 switches for 8,192 GPUs (3N/k) and 2,560 for 32,768 (5N/k)."""
    apart = dataclasses.replace(full(1024, 1, 2), apart=8)
    assert apart.switches == fat_tree_switches(8192, 64, 2) == 384
    assert full(4096, 8, 1, 4, 2).switches == fat_tree_switches(32768, 64, 3) == 2560


def test_agache_two_tier_reach() -> None:
    """Agache et al. 2024: two tiers of 256 ports carry 32K endpoints at full bisection and 51K at 4:1."""
    assert tree_reach((128,), 256) == fat_tree_endpoints(256, 2) == 32_768
    assert tree_reach((200,), 256) == 51_200
    d = Design(
        ports=256, rails=1, racks=51_200, leaf_down=200, leaf_up=50, leaf_bundle=1, rails_per_pod=1, domains_per_pod=256
    )
    assert not d.faults()
    assert (d.leaves, d.spines, d.switch_links) == (256, 50, 12_800)


def test_rack_leaves_take_whole_racks() -> None:
    """Leaves of 16 racks of 8 GPUs have 128 ports down; 130 ports are not whole racks."""
    one = {
        "ports": 256, "rails": 1, "racks": 64, "leaf_up": 64, "leaf_bundle": 1, "rails_per_pod": 1,
        "domains_per_pod": 4, "rail_gpus": 8,
    }  # fmt: skip
    d = Design(**one, leaf_down=128)
    assert not d.faults()
    loads = d.oversubscription["leaf"], uplink_loads(d, (), (1,))["leaf"][1]
    assert (d.domain_racks, d.domains, d.leaves, d.endpoint_links, *loads) == (16, 4, 4, 512, 2.0, 1 / 8)
    assert Design(**one, leaf_down=130).faults()[0] == "leaf domain: 130 ports are not whole racks of 8 GPUs"


GOOD = Design(
    ports=8, rails=2, racks=12, leaf_down=4, leaf_up=4, leaf_bundle=2, rails_per_pod=1, domains_per_pod=2, spine_up=4,
    spine_bundle=2,
)  # fmt: skip


# Zones of both rails of two domains, so of two pods; super-spines full of two of them.
ZONE = {"rails_per_zone": 2, "domains_per_zone": 2, "core_up": 4, "core_bundle": 2}


def test_good_designs_are_wirable_at_every_edge() -> None:
    """The designs that the next test breaks use every port of a leaf, spine and core."""
    assert not GOOD.faults()
    assert GOOD.leaf_down + GOOD.leaf_up == GOOD.spine_down + GOOD.spine_up == GOOD.pods * GOOD.spine_bundle == 8
    d = dataclasses.replace(GOOD, **ZONE, racks=32)
    assert not d.faults()
    assert (d.tiers, d.zones, d.core_pods) == (4, 4, 2)
    assert d.core_down + d.core_up == d.zones * d.core_bundle == 8


@each(("values", "rule"), [
    ({"leaf_down": 5}, "leaf ports: 5 down + 4 up > 8 ports"),
    ({"leaf_bundle": 3}, "leaf bundle: 4 uplinks are not whole bundles of 3"),
    ({"rails_per_pod": 3}, "pod: 3 rails of 2"),
    ({"domains_per_pod": 0}, "pod: 1 rails of 2, 0 domains"),
    ({"spine_up": 5}, "spine ports: 4 down + 5 up > 8 ports"),
    ({"spine_bundle": 3}, "spine bundle: 4 uplinks are not whole bundles of 3"),
    ({"spine_bundle": 4}, "core ports: 4 pods x 4 links > 8 ports"),
    ({"spine_up": 0, "spine_bundle": 0}, "reach: 4 pods and no core to join them"),
    ({"leaf_down": 0, "spine_bundle": 0}, "spine bundle: 4 uplinks are not whole bundles of 0"),
    ({"leaf_up": 0}, "leaf ports: 24 endpoints > 8 ports"),
    (ZONE | {"spine_bundle": 4}, "core ports: 2 pods x 4 links + 4 up > 8 ports"),
    (ZONE | {"core_up": 5, "core_bundle": 1}, "core ports: 2 pods x 2 links + 5 up > 8 ports"),
    (ZONE | {"core_bundle": 3}, "core bundle: 4 uplinks are not whole bundles of 3"),
    (ZONE | {"core_bundle": 0}, "core bundle: 4 uplinks are not whole bundles of 0"),
    (ZONE | {"racks": 40}, "super-spine ports: 5 zones x 2 links > 8 ports"),
    ({"spine_ports": 7, "core_ports": 9}, "spine ports: 4 down + 4 up > 7 ports"),
    ({"ports": 7, "spine_ports": 8, "core_ports": 8}, "leaf ports: 4 down + 4 up > 7 ports"),
    ({"core_ports": 7}, "core ports: 4 pods x 2 links > 7 ports"),
    (ZONE | {"core_ports": 7}, "core ports: 2 pods x 2 links + 4 up > 7 ports"),
    (ZONE | {"racks": 32, "super_spine_ports": 7}, "super-spine ports: 4 zones x 2 links > 7 ports"),
    ({"core_ports": 10, "wan_ports": 9}, "core ports: 8 taken + 3 of the WAN gateway > 10 ports"),
    (ZONE | {"domains_per_zone": 3},
     "zone: 2 rails and 3 domains are not whole pods of 1 rails and 2 domains, rails within 2"),
    (ZONE | {"rails_per_zone": 3},
     "zone: 3 rails and 2 domains are not whole pods of 1 rails and 2 domains, rails within 2"),
    (ZONE | {"rails_per_zone": 0}, "zone: 0 rails and 2 domains are not whole pods"),
    ({"core_boxes": 5, "ports": 32}, "core boxes: 5 for 4 positions"),
    ({"core_boxes": 3}, "core ports: 2 positions of 4 pods x 2 links > 8 ports"),
    (ZONE | {"core_boxes": 3, "ports": 32}, "core boxes: 3 for 4 positions; equally many expected"),
    (ZONE | {"core_boxes": 2}, "core ports: 2 positions of 2 pods x 2 links + 4 up > 8 ports"),
    (ZONE | {"super_spine_boxes": 9}, "super-spine boxes: 9 for 8 positions"),
    (ZONE | {"super_spine_boxes": 3}, "super-spine ports: 3 positions of 2 zones x 2 links > 8 ports"),
    ({"super_spine_boxes": 1}, "super-spine boxes: shared in 3 tiers; at least 4 expected"),
])  # fmt: skip
def test_a_port_counted_twice_is_refused(values: dict[str, int], rule: str) -> None:
    assert any(text.startswith(rule) for text in dataclasses.replace(GOOD, **values).faults())


@each("ports", [2, 4, 6, 8])
def test_four_tiers_of_a_k_ary_tree(ports: int) -> None:
    """The full tree of 2·(k/2)^4 endpoints has the switches and links that the closed forms say."""
    half = ports // 2
    d = Design(
        ports=ports, rails=1, racks=2 * half**4, leaf_down=half, leaf_up=half, leaf_bundle=1,
        rails_per_pod=1, domains_per_pod=half,
        spine_up=half, spine_bundle=1, rails_per_zone=1, domains_per_zone=half**2, core_up=half, core_bundle=1,
    )  # fmt: skip
    assert not d.faults()
    assert d.endpoint_links == fat_tree_endpoints(ports, 4)
    assert d.switches == fat_tree_switches(d.endpoint_links, ports, 4)
    assert d.switch_links == fat_tree_links(d.endpoint_links, 4)
    more = dataclasses.replace(d, racks=d.racks + 1)
    assert more.faults() == [f"super-spine ports: {ports + 1} zones x 1 links > {ports} ports"]
