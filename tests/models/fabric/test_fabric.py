"""Fabric: agreement with a brute force over every design, rules at their edges, pins, and the certificate."""

import dataclasses
import random

import pytest
from each_case import each
from fabric_cases import cheapest, dearer, drawn_lengths, flat_price, instance, request, switch
from fabric_graph import laid
from fabric_zone_cases import FAMILIES, accepted_designs, accepts, require_cheapest
from tiers import more

from planner.instance.instance import Instance
from planner.models import Options
from planner.models.fabric.fabric_templates import alternatives
from planner.models.fabric.site_traffic import FabricRequest
from planner.physics.network.clos_fabric import Design

# --- brute force ----------------------------------------------------------------------------------------------------


DEAR = (11, 19)  # of the first 28 seeds the dearest
PINS = (
    "tiers",
    "leaf_domain_racks",
    "leaf_down_ports",
    "leaf_up_ports",
    "spine_down_ports",
    "spine_up_ports",
    "planes",
)


def splits(r: FabricRequest, d: Design) -> int:
    """Count groups beyond what leaf domains hold whole, domain by domain."""
    size = r.racks if d.tiers == 1 else d.leaf_down
    domains = [min(size, r.racks - at) for at in range(0, r.racks, size)]
    return max(0, r.groups - sum(n // r.group_racks for n in domains))


def random_case(seed: int) -> tuple[Instance, FabricRequest]:
    """Draw a small site, its traffic and perhaps pins."""
    r = random.Random(seed)
    switches = [
        switch(r.randint(4, 10), r.choice([500, 2000, 9000]), planes) for planes in range(1, r.randint(1, 2) + 1)
    ]
    pins: dict[str, object] = {}
    if seed % 2 == 0:
        pin = r.choice(PINS)
        pins = {f"fabric.{pin}": r.randint(1, 5) if pin not in ("tiers", "planes") else r.randint(1, 3)}
    i = instance(
        r.randint(1, 4), *switches, optics_usd=r.choice([0, 100, 1000]), max_tiers=r.choice([2, 3, 3, 3]), pins=pins
    )
    racks = r.randint(1, 12)
    group = r.randint(1, racks)
    # Ratios that some design meets exactly test the edges of the rules.
    experts = {"exchange_racks": r.randint(2, group)} if group > 1 and r.random() < 0.2 else {}
    asked = request(
        racks, group=group, groups=racks // group, send=r.choice([0.5, 1, 1.5, 2, 3, 8]),
        allreduce=r.choice([1, 1.5, 3, 1e9]), **experts,
    )  # fmt: skip
    return i, asked


@pytest.mark.parametrize("seed", [*(n for n in range(28) if n not in DEAR), *more(*DEAR, *range(28, 140))])
def test_agrees_with_brute_force(seed: int) -> None:
    """Cost and splits are those of the best design that wiring and time rules accept, or there is none."""
    i, r = random_case(seed)
    every = ((flat_price(i.network, s, d)[0], splits(r, d)) for s, _, d in accepted_designs(i, r))
    best, found = min(every, default=None), cheapest(i, r)
    trades = alternatives(i, r, Options(), axes=("cost", "splits"))
    assert (found is None) == (best is None) == (not trades)
    if best is None or found is None:
        return
    d = found.design
    assert (found.usd, trades[0]["unavoidable_splits"]) == (pytest.approx(best[0]), best[1])
    assert accepts(i, r, found.models[0], d)


def family_case(seed: int) -> tuple[Instance, FabricRequest]:
    """Draw a small site with families, lanes, spares, a floor between rails, and perhaps prices by reach."""
    r = random.Random(seed)
    planes = range(1, r.randint(1, 2) + 1)
    switches = [switch(r.randint(4, 8), r.choice([500, 2000, 9000]), n, port_gbps=800 / n) for n in planes]
    rules: dict[str, object] = {"families": r.sample(sorted(FAMILIES), r.randint(1, 3)), "max_lanes": r.randint(1, 2)}
    rules["min_core_share"] = r.choice([0, 0.1, 1, 0.5])
    rules["spares"] = {"share": r.choice([0, 0, 0.2]), "failure_chance": r.choice([0, 0.05])}
    if r.random() < 0.6:
        rules |= drawn_lengths(r, 6)
    i = instance(r.randint(1, 3), *switches, optics_usd=r.choice([0, 100]), **rules)
    racks = r.randint(1, 9)
    group = r.randint(1, racks)
    return i, request(
        racks, group=group, groups=racks // group, send=r.choice([1, 2, 3, 8]), allreduce=r.choice([1, 1.5, 1e9])
    )


def breakout_case(seed: int) -> tuple[Instance, FabricRequest]:
    """Draw a small site of switches whose ports are some times faster than a NIC, and can be split."""
    i, asked = family_case(seed)
    r = random.Random(seed)
    factor = r.choice([1, 0.25, 2])
    own = r.randint(2, 4), r.choice([500, 9000])
    fast = switch(*own, port_gbps=800 * r.randint(1, 4), breakout=4, breakout_link_factor=factor)
    return i.replaced(network__switches=(fast,), network__families=i.network.families[:1]), asked


@pytest.mark.parametrize("seed", [*range(12), *more(*range(12, 40))])
def test_split_ports_agree_with_brute_force(seed: int) -> None:
    """Where ports can be split, the cost is that of the best design over every split that still carries a NIC."""
    i, r = breakout_case(seed)
    require_cheapest(dearer(i, seed), r)


@pytest.mark.parametrize("seed", [*range(8), *more(*range(8, 16))])
@pytest.mark.parametrize("loss", ["one_spine", "one_leaf_uplink"])
def test_survived_losses_agree_with_brute_force(seed: int, loss: str) -> None:
    i, r = family_case(seed)
    trees = [f for f in i.network.families if not f.startswith("dragonfly")] or ["rail"]
    rules = {"survives": loss, "families": tuple(trees), "max_oversubscription": (None, 2.0, 3.0)[seed % 3]}
    i = dearer(i.replaced(network=i.network.replaced(**rules)), seed)
    require_cheapest(i, r)


# --- rules at their edges -------------------------------------------------------------------------------------------


def test_nothing_sent_asks_for_no_uplinks() -> None:
    """Where there is no pipeline, a fabric costs less than one whose sends keep the transport's own slowdown."""
    i = instance(4, switch(20, 5000))
    free = cheapest(i, dataclasses.replace(request(64), pipeline_send_seconds=0.0))
    assert free.usd < cheapest(i, request(64)).usd


def test_published_two_tier_cluster() -> None:
    """128 nodes of 8 rails behind 64-port switches at full bisection."""
    # 32 leaves and 16 spines, as published (DGX SuperPOD B200, 4 SU).
    d = cheapest(instance(8, switch(64, 40e3)), request(128, group=16, groups=8, send=1.0)).design
    assert (d.leaves, d.spines, d.cores, d.switch_links) == (32, 16, 0, 1024)


def test_pins_of_the_paper_are_met() -> None:
    """200/50 leaves and 168/88 spines on a 4-plane switch of 256 ports: 58 domains of 200 racks on each of 72 rails."""
    names = ("leaf_down_ports", "leaf_up_ports", "spine_down_ports", "spine_up_ports", "planes")
    pins = {f"fabric.{name}": value for name, value in zip(names, (200, 50, 168, 88, 4), strict=True)}
    i = instance(72, switch(128, 75e3, 2), switch(256, 130e3, 4), pins=pins)
    d = cheapest(i, request(11600, group=103, groups=112, send=8.0)).design
    assert (d.leaf_down, d.leaf_up, d.spine_down, d.spine_up, d.leaves) == (200, 50, 168, 88, 4176)
    assert not d.faults()
    # 7.6 times the ideal across both tiers does not fit 7.6 rounded down.
    assert cheapest(i, request(11600, group=103, groups=112, send=7.63)) is None


@each(("gbps", "tiers", "gateways"), [(0, 1, 0), (800, 1, 1), (1600, 1, 1), (1601, 2, 1), (3200, 2, 1), (3201, 2, 2)])
def test_a_wan_gateway_that_finds_no_port_makes_another_tier(gbps: float, tiers: int, gateways: int) -> None:
    """Six GPUs on a switch of eight ports leave two."""
    # The third port of the wide area needs a spine, the fifth a second WAN gateway switch.
    d = cheapest(instance(1, switch(8, 100_000)), dataclasses.replace(request(6), wan_gbps=gbps)).design
    assert (d.tiers, d.wan_gateways) == (tiers, gateways)


@each(("gbps", "spine_up"), [(4800, 1), (4801, 2), (9600, 2), (9601, None)])
def test_a_wan_gateway_takes_uplinks_that_make_it_cores(gbps: float, spine_up: int | None) -> None:
    """Two spines with one uplink each join two cores, with three ports left on each; with two uplinks, four cores."""
    pins = {"tiers": 3, "leaf_down_ports": 2, "leaf_up_ports": 2, "leaf_bundle": 1, "leaf_domains_per_pod": 2}
    i = instance(1, switch(4, 75_000), pins={f"fabric.{name}": value for name, value in pins.items()})
    found = cheapest(i, dataclasses.replace(request(4), wan_gbps=gbps))
    assert (found and found.design.spine_up) == spine_up
    if found is not None:
        laid(found.design)


def test_the_exchange_needs_a_way_out_of_the_only_domain() -> None:
    """Rails of one leaf domain meet at spines for nothing but the exchange."""
    i = instance(4, switch(16, 5000), pins={"fabric.leaf_down_ports": 8})
    r = dataclasses.replace(request(8), wan_gbps=12_800, exchange_gbps=12_800)
    d = cheapest(i, r).design
    assert (d.domains, d.tiers, d.leaf_up) == (1, 2, 4)
    assert cheapest(i, dataclasses.replace(r, exchange_gbps=0.0)).design.leaf_up < 4
