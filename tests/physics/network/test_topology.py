"""Wiring: published counts, the relaxed counts of the first paper, ports conserved, and cables laid one by one."""

import dataclasses
import math

import networkx as nx
from closed_forms import fat_tree_endpoints, fat_tree_links, fat_tree_switches, relaxed_tiers, tree_reach
from each_case import each
from hypothesis import given
from hypothesis import strategies as st

from planner.physics.network.clos_fabric import TIERS, Design
from planner.physics.network.transport import uplink_loads


def two_tiers(nodes: int, rails: int, bundle: int) -> Design:
    """Return 64-port switches at full bisection: 32 nodes a leaf, one pod of all rails and domains."""
    ports = {"leaf_down": 32, "leaf_up": 32, "leaf_bundle": bundle}
    return Design(
        ports=64, rails=rails, racks=nodes, **ports, rails_per_pod=rails, domains_per_pod=math.ceil(nodes / 32)
    )


# Source, nodes, rails, bundle, leaves, spines, links between switches.
TWO_TIERS = [
    ("DGX SuperPOD B200 4 SU", 128, 8, 2, 32, 16, 1024),
    ("DGX SuperPOD B200 8 SU", 256, 8, 1, 64, 32, 2048),
    ("H100 cluster BOM 1024 GPUs", 1024, 1, 2, 32, 16, 1024),
    ("H100 cluster BOM 2048 GPUs", 2048, 1, 1, 64, 32, 2048),
    # Eight rails, each a network of its own that holds 1,024 GPUs.
    ("H100 cluster BOM 8192 GPUs, one rail of 8", 1024, 1, 2, 256 // 8, 128 // 8, 8192 // 8),
]


@each(("source", "nodes", "rails", "bundle", "leaves", "spines", "links"), TWO_TIERS)
def test_published_two_tier_counts(source, nodes, rails, bundle, leaves, spines, links):
    d = two_tiers(nodes, rails, bundle)
    assert not d.faults(), source
    assert (d.leaves, d.spines, d.cores, d.switch_links, d.endpoint_links) == (leaves, spines, 0, links, nodes * rails)


def three_tiers(nodes: int, rails: int, domains: int, core_bundle: int) -> Design:
    """Return 64-port switches at full bisection."""
    # Pods of 32 leaves, 32 spines each, one link between a leaf and a spine.
    leaf = {"leaf_down": 32, "leaf_up": 32, "leaf_bundle": 1}
    return Design(
        ports=64, rails=rails, racks=nodes, **leaf, rails_per_pod=rails, domains_per_pod=domains, spine_up=32,
        spine_bundle=core_bundle,
    )  # fmt: skip


# Source, nodes, rails, domains per pod, core bundle, leaves, spines, cores.
THREE_TIERS = [
    ("DGX SuperPOD B200 16 SU", 512, 8, 4, 16, 128, 128, 64),
    ("H100 cluster BOM 32768 GPUs", 4096, 8, 4, 2, 1024, 1024, 512),
    ("H100 cluster BOM 65536 GPUs", 8192, 8, 4, 1, 2048, 2048, 1024),
]


@each(("source", "nodes", "rails", "domains", "bundle", "leaves", "spines", "cores"), THREE_TIERS)
def test_published_three_tier_counts(source, nodes, rails, domains, bundle, leaves, spines, cores):
    d = three_tiers(nodes, rails, domains, bundle)
    assert not d.faults(), source
    assert (d.leaves, d.spines, d.cores) == (leaves, spines, cores)
    assert d.switch_links == 2 * d.endpoint_links == 2 * nodes * rails


def test_h100_bom_sums() -> None:
    """The H100 cluster BOM prints 384 switches for 8,192 GPUs (3N/k) and 2,560 for 32,768 (5N/k)."""
    assert 8 * two_tiers(1024, 1, 2).switches == fat_tree_switches(8192, 64, 2) == 384
    assert three_tiers(4096, 8, 4, 2).switches == fat_tree_switches(32768, 64, 3) == 2560


@each("gpus", [131072, 262144])
def test_h100_bom_rows_beyond_three_tiers_are_refused(gpus: int) -> None:
    """The BOM's 5N/k for 131,072 and 262,144 GPUs would need more core ports than a tree of 64-port switches has."""
    assert gpus > fat_tree_endpoints(64, 3) == 65536
    bad = three_tiers(gpus // 8, 8, 4, 1).faults()
    assert bad == [f"core ports: {gpus // 1024} pods x 1 links > 64 ports"]


def test_agache_oversubscribed_with_equal_bundles() -> None:
    """The same ports with equal bundles take 5,660 switches, 440 of them cores, and 307,360 links at the least."""
    several = [agache(b1, b2) for b1 in (1, 2, 5, 10, 25, 50) for b2 in (1, 2, 4, 8, 11)]
    best = min((d for d in several if not d.faults()), key=lambda d: d.switches)
    assert (best.switches, best.cores, best.switch_links) == (5660, 440, 307_360)


def agache(leaf_bundle: int, spine_bundle: int) -> Design:
    """Return 200/50 leaves and spines of at most 168 ports down and 88 up, for 800,000 endpoints of one rail."""
    leaf = {"leaf_down": 200, "leaf_up": 50, "leaf_bundle": leaf_bundle, "domains_per_pod": 168 // leaf_bundle}
    return Design(ports=256, rails=1, racks=800_000, **leaf, rails_per_pod=1, spine_up=88, spine_bundle=spine_bundle)


def test_agache_two_tier_reach() -> None:
    """Agache et al. 2024: two tiers of 256 ports carry 32K endpoints at full bisection and 51K at 4:1."""
    assert tree_reach((128,), 256) == fat_tree_endpoints(256, 2) == 32_768
    assert tree_reach((200,), 256) == 51_200
    d = Design(
        ports=256, rails=1, racks=51_200, leaf_down=200, leaf_up=50, leaf_bundle=1, rails_per_pod=1, domains_per_pod=256
    )
    assert not d.faults()
    assert (d.leaves, d.spines, d.switch_links) == (256, 50, 12_800)


def test_agache_wirable_needs_more_than_relaxed() -> None:
    """800,000 endpoints at 1:1 behind 256 ports."""
    # 15,625 switches by ports alone, 15,850 once bundles are equal (128/128 leaves).
    found = []
    for bundle in (1, 2, 4, 8, 16, 32, 64, 128):
        for width in range(1, 128 // bundle + 1):
            leaf = {"leaf_down": 128, "leaf_up": 128, "leaf_bundle": bundle, "domains_per_pod": width}
            for up in range(width * bundle, 257 - width * bundle):
                d = Design(ports=256, rails=1, racks=800_000, **leaf, rails_per_pod=1, spine_up=up)
                several = [dataclasses.replace(d, spine_bundle=b) for b in range(1, 256 // d.pods + 1) if up % b == 0]
                found += [d.switches for d in several if not d.faults()]
    assert min(found) == 15_850 > sum(relaxed_tiers(800_000, ((128, 128), (128, 128)), 256))


def test_rails_apart_are_networks_of_their_own() -> None:
    """H100 cluster BOM."""
    # 8,192 GPUs are eight networks of 1,024, 256 leaves and 128 spines in all, 8,192 links between them.
    one = {
        "ports": 64, "rails": 1, "racks": 1024, "leaf_down": 32, "leaf_up": 32, "leaf_bundle": 2, "rails_per_pod": 1,
        "domains_per_pod": 32,
    }  # fmt: skip
    d = Design(**one, apart=8)
    assert not d.faults()
    assert (d.leaves, d.spines, d.cores, d.switches, d.switch_links, d.endpoint_links) == (256, 128, 0, 384, 8192, 8192)


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


def test_lanes_multiply_boxes_and_cables() -> None:
    d = Design(ports=8, rails=2, racks=8, leaf_down=4, leaf_up=4, leaf_bundle=1, rails_per_pod=2, domains_per_pod=2)
    two = dataclasses.replace(d, lanes=2)
    assert (
        (two.switches, two.switch_links, two.endpoint_links)
        == (2 * d.switches, 2 * d.switch_links, 2 * d.endpoint_links)
        == (16, 32, 32)
    )


# --- ports counted twice --------------------------------------------------------------------------------------------

GOOD = Design(
    ports=8, rails=2, racks=12, leaf_down=4, leaf_up=4, leaf_bundle=2, rails_per_pod=1, domains_per_pod=2, spine_up=4,
    spine_bundle=2,
)  # fmt: skip


# Zones of both rails of two domains, so of two pods; super-spines full of two of them.
ZONE = {"rails_per_zone": 2, "domains_per_zone": 2, "core_up": 4, "core_bundle": 2}


def changed(**values: int) -> Design:
    return Design(**{f: getattr(GOOD, f) for f in GOOD.__slots__} | values)


def test_good_design_is_wirable_at_every_edge() -> None:
    """The design that the next test breaks uses every leaf, spine and core port."""
    assert not GOOD.faults()
    assert GOOD.leaf_down + GOOD.leaf_up == GOOD.spine_down + GOOD.spine_up == GOOD.pods * GOOD.spine_bundle == 8


@each(
    ("values", "rule"),
    [
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
    ],
)  # fmt: skip
def test_a_port_counted_twice_is_refused(values: dict[str, int], rule: str) -> None:
    assert any(text.startswith(rule) for text in changed(**values).faults())


def test_leaves_of_64_ports_under_spines_of_128() -> None:
    """At 1:1 spines of twice the ports make two tiers of 4,096 GPUs, which switches of 64 ports alone do not reach."""
    leaf = {"leaf_down": 32, "leaf_up": 32, "leaf_bundle": 1, "rails_per_pod": 8, "domains_per_pod": 16}
    d = Design(ports=64, spine_ports=128, rails=8, racks=512, **leaf)
    assert not d.faults()
    assert (d.leaves, d.spines, d.switch_links, d.spine_down) == (128, 32, 4096, 128)
    one_model = dataclasses.replace(d, spine_ports=0)
    assert one_model.faults() == ["spine ports: 128 down + 0 up > 64 ports"]


def test_four_tiers_are_wirable_at_every_edge() -> None:
    """The design that the cases of zones break uses every port of a core."""
    d = changed(**ZONE, racks=32)
    assert not d.faults()
    assert (d.tiers, d.zones, d.core_pods) == (4, 4, 2)
    assert d.core_down + d.core_up == d.zones * d.core_bundle == 8


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


def test_rails_may_not_stay_apart() -> None:
    """Two tiers with a pod per rail reach only GPUs of one index, where every GPU must reach every other."""
    d = Design(ports=8, rails=2, racks=8, leaf_down=4, leaf_up=4, leaf_bundle=1, rails_per_pod=1, domains_per_pod=2)
    assert d.faults() == ["reach: 2 pods and no core to join them"]


# --- cables laid one by one -----------------------------------------------------------------------------------------


def cables(d: Design) -> nx.MultiGraph:
    """Lay every cable of a small design."""
    # GPU to leaf, leaf to each spine of its pod, spine to the cores of its zone, core to super-spines.
    g = nx.MultiGraph()
    down = d.leaf_down if d.tiers > 1 else d.racks
    for rack in range(d.racks):
        for rail in range(d.rails):
            g.add_edge(("gpu", rack, rail), ("leaf", rack // down, rail if d.tiers > 1 else 0))
    for leaf in [n for n in g if n[0] == "leaf"] if d.tiers > 1 else []:
        pod = leaf[1] // d.domains_per_pod, leaf[2] // d.rails_per_pod
        for group in range(d.spines_per_pod):
            g.add_edges_from([(leaf, ("spine", *pod, group))] * d.leaf_bundle)
    for spine in [n for n in g if n[0] == "spine"] if d.tiers > 2 else []:
        zone = (
            (spine[1] * d.domains_per_pod // d.domains_per_zone, spine[2] * d.rails_per_pod // d.rails_per_zone)
            if d.tiers > 3
            else (0, 0)
        )
        for core in range(d.spine_up // d.spine_bundle):
            g.add_edges_from([(spine, ("core", *zone, spine[3], core))] * d.spine_bundle)
    for core in [n for n in g if n[0] == "core"] if d.tiers > 3 else []:
        for top in range(d.core_up // d.core_bundle):
            g.add_edges_from([(core, ("super-spine", *core[3:], top))] * d.core_bundle)
    return g


@st.composite
def designs(draw: st.DrawFn) -> Design:
    """Draw small designs, wirable or not."""
    ports, rails, racks = draw(st.integers(2, 12)), draw(st.integers(1, 4)), draw(st.integers(1, 14))
    tiers = draw(st.integers(1, 4))
    if tiers == 1:
        return Design(ports=ports, rails=rails, racks=racks, leaf_down=rails * racks)
    down, bundle, groups = draw(st.integers(1, ports)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    leaf = {"leaf_down": down, "leaf_up": bundle * groups, "leaf_bundle": bundle}
    pod = {
        "rails_per_pod": draw(st.integers(1, rails)),
        "domains_per_pod": draw(st.integers(1, math.ceil(racks / down))),
    }
    if tiers == 2:
        return Design(ports=ports, rails=rails, racks=racks, **leaf, **pod)
    spine_bundle, cores = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    pod |= {"spine_up": spine_bundle * cores, "spine_bundle": spine_bundle}
    if tiers == 4:
        across, along = (draw(st.integers(1, 3)) for _ in range(2))
        core_bundle, super_spines = draw(st.integers(1, 2)), draw(st.integers(1, 2))
        pod |= {"rails_per_zone": across * pod["rails_per_pod"], "domains_per_zone": along * pod["domains_per_pod"]}
        pod |= {"core_up": core_bundle * super_spines, "core_bundle": core_bundle}
    return Design(ports=ports, rails=rails, racks=racks, **leaf, **pod)


@given(designs())
def test_cables_agree_with_the_counts(d: Design) -> None:
    g = cables(d)
    of = {kind: sum(n[0] == kind for n in g) for kind in ("gpu", *TIERS)}
    assert tuple(of.values()) == (d.endpoint_links, d.leaves, d.spines, d.cores, d.super_spines)
    assert g.number_of_edges() == d.endpoint_links + d.switch_links
    assert sum(of[tier] for tier in TIERS) == d.switches


@given(designs())
def test_wirable_means_that_cables_fit_and_all_gpus_meet(d: Design) -> None:
    if not d.faults():
        g = cables(d)
        assert max(g.degree(n) for n in g if n[0] != "gpu") <= d.ports
        assert nx.is_connected(g)


@given(designs())
def test_refused_means_that_full_boxes_overflow_or_gpus_are_apart(d: Design) -> None:
    """Where every domain and pod is full, a refused design has a switch without enough ports."""
    full = d.tiers == 1 or (
        d.racks % d.leaf_down == 0 and d.domains % d.domains_per_pod == 0 and d.rails % d.rails_per_pod == 0
    )
    full &= d.tiers < 4 or (d.domains % d.domains_per_zone == 0 and d.rails % d.rails_per_zone == 0)
    if full and d.faults():
        g = cables(d)
        assert max(g.degree(n) for n in g if n[0] != "gpu") > d.ports or not nx.is_connected(g)
