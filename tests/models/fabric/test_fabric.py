"""Fabric: agreement with a brute force over every design, rules at their edges, pins, and the certificate."""

import dataclasses
import itertools
import random

import pytest
from each_case import each
from fabric_cases import cheapest, dearer, drawn_lengths, flat_price, instance, request, switch
from fabric_graph import laid
from fabric_zone_cases import FAMILIES, accepted_designs, accepts, require_cheapest
from tiers import more

from planner.instance.instance import Instance
from planner.models import FabricRequest, Options
from planner.models.fabric.fabric_templates import alternatives
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_designs import bill

# --- brute force ----------------------------------------------------------------------------------------------------


DEAR = (11, 19)  # of the first 28 seeds the dearest


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
        pin = r.choice(
            [
                "tiers", "leaf_domain_racks", "leaf_down_ports", "leaf_up_ports", "spine_down_ports", "spine_up_ports",
                "planes",
            ]
        )  # fmt: skip
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
    switches = [
        switch(r.randint(4, 8), r.choice([500, 2000, 9000]), n, port_gbps=800 / n)
        for n in range(1, r.randint(1, 2) + 1)
    ]
    rules: dict[str, object] = {"families": r.sample(sorted(FAMILIES), r.randint(1, 3)), "max_lanes": r.randint(1, 2)}
    rules |= {
        "min_core_share": r.choice([0, 0.1, 1, 0.5]),
        "spares": {"share": r.choice([0, 0, 0.2]), "failure_chance": r.choice([0, 0.05])},
    }
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
    fast = [
        switch(r.randint(2, 4), r.choice([500, 9000]), port_gbps=800 * r.randint(1, 4), breakout=4,
         breakout_link_factor=factor)
    ]  # fmt: skip
    return i.replaced(network__switches=tuple(fast), network__families=i.network.families[:1]), asked


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


@pytest.mark.parametrize("seed", range(12))
def test_alternatives_hold_the_optimum_and_none_dominates(seed: int) -> None:
    i, r = random_case(1000 + seed)
    found, several = cheapest(i, r), alternatives(i, r, Options())
    assert bool(several) == (found is not None)
    if found is not None:
        assert several[0]["cost_usd"] == pytest.approx(found.usd)
    for a, b in itertools.permutations(several, 2):
        assert any(a[m] < b[m] for m in ("cost_usd", "pipeline_send_slowdown", "unavoidable_splits"))


# --- rules at their edges -------------------------------------------------------------------------------------------


def test_one_switch_holds_exactly_its_ports() -> None:
    i = instance(1, switch(16, 5000))
    assert cheapest(i, request(16)).design.tiers == 1
    assert cheapest(i, request(17)).design.tiers == 2


def test_hop_window_sets_leaf_oversubscription() -> None:
    """A window of 4 phi admits 4:1 at the leaf; a shade less does not."""
    i = instance(4, switch(20, 5000), pins={"fabric.leaf_down_ports": 16})
    assert cheapest(i, request(64, send=4.0)).design.leaf_up == 4
    assert cheapest(i, request(64, send=3.999)) is None


def test_full_window_still_takes_the_transport() -> None:
    """Where the ideal alone fills the window, phi is allowed and nothing more."""
    i = instance(1, switch(8, 5000))
    assert cheapest(i, request(16, send=0.1)).design.oversubscription["leaf"] == 1.0


def test_nothing_sent_asks_for_no_uplinks() -> None:
    """Where there is no pipeline, a fabric costs less than one whose sends keep the transport's own slowdown."""
    i = instance(4, switch(20, 5000))
    free = cheapest(i, dataclasses.replace(request(64), pipeline_send_seconds=0.0))
    assert free.usd < cheapest(i, request(64)).usd


def test_rings_need_uplinks() -> None:
    """Three groups can share the edge of a leaf of eight racks."""
    # So an all-reduce that fills its window needs three uplinks.
    i = instance(1, switch(16, 5000), pins={"fabric.leaf_down_ports": 8})
    free = cheapest(i, request(64, group=4, groups=16, send=8.0))
    rings = cheapest(i, request(64, group=4, groups=16, send=8.0, allreduce=1.0))
    assert (free.design.leaf_up, rings.design.leaf_up) == (1, 3)


def test_equal_cost_prefers_whole_groups() -> None:
    """With free uplinks and the same leaves, a leaf of 6 holds two groups of 3 where one of 5 would split them."""
    i, r = instance(1, switch(16, 5000), optics_usd=0, max_tiers=2), request(48, group=3, groups=16, send=1e3)
    (found,) = alternatives(i, r, Options(), axes=("cost", "splits"))
    assert found["unavoidable_splits"] == 0


def test_ports_slower_than_the_nic_are_refused() -> None:
    dear, cheap = switch(16, 5000), switch(32, 10, planes=2, port_gbps=400)
    assert cheapest(instance(1, dear, cheap), request(20)).models[0] == dear
    assert cheapest(instance(1, cheap), request(20)) is None


@each("pin", ["leaf_up_ports", "spine_down_ports", "tiers"])
def test_pin_on_tiers_rules_out_a_single_switch(pin: str) -> None:
    """One switch would do and is cheapest, but it has no uplinks, no spines and no second tier."""
    found = cheapest(instance(1, switch(16, 5000), pins={f"fabric.{pin}": 2}), request(8))
    assert found.design.tiers == 2


def test_published_two_tier_cluster() -> None:
    """128 nodes of 8 rails behind 64-port switches at full bisection."""
    # 32 leaves and 16 spines, as published (DGX SuperPOD B200, 4 SU).
    found = cheapest(instance(8, switch(64, 40e3)), request(128, group=16, groups=8, send=1.0))
    d = found.design
    assert (d.leaves, d.spines, d.cores, d.switch_links) == (32, 16, 0, 1024)


def test_pins_of_the_paper_are_met() -> None:
    """200/50 leaves and 168/88 spines on a 4-plane switch of 256 ports: 58 domains of 200 racks on each of 72 rails."""
    names = ("leaf_down_ports", "leaf_up_ports", "spine_down_ports", "spine_up_ports", "planes")
    pins: dict[str, object] = {
        f"fabric.{name}": value for name, value in zip(names, (200, 50, 168, 88, 4), strict=True)
    }
    found = cheapest(
        instance(72, switch(128, 75e3, 2), switch(256, 130e3, 4), pins=pins),
        request(11600, group=103, groups=112, send=8.0),
    )
    d = found.design
    assert (d.leaf_down, d.leaf_up, d.spine_down, d.spine_up, d.leaves) == (200, 50, 168, 88, 4176)
    assert not d.faults()
    # 7.6 times the ideal across both tiers does not fit 7.6 rounded down.
    assert (
        cheapest(instance(72, switch(256, 130e3, 4), pins=pins), request(11600, group=103, groups=112, send=7.63))
        is None
    )


def test_frontier_trades_cost_for_whole_groups() -> None:
    """Without a pin the cheapest splits groups."""
    # The frontier goes on to leaf domains of a multiple of the group that split fewer.
    several = alternatives(instance(4, switch(64, 600e3, 4)), request(960, group=11, groups=87, send=8.0), Options())
    splits = [a["unavoidable_splits"] for a in several]
    assert splits[0] > min(splits)
    whole = min(several, key=lambda a: (a["unavoidable_splits"], a["cost_usd"]))
    assert whole["leaf_domain_racks"] // 11 * 11 + 3 >= whole["leaf_domain_racks"]


def test_a_floor_between_rails_makes_the_core_a_choice() -> None:
    """Where groups stay within pods the cheapest core is a token."""
    # A floor of half a pod's rate makes it half, and costs more.
    asked = request(64, group=8, groups=8, send=1.0)
    token, half = (cheapest(instance(8, switch(16, 5000), min_core_share=x), asked) for x in (0, 0.5))
    share = [
        d.spines_per_pod * d.spine_up / (d.leaf_down * d.rails_per_pod * d.domains_per_pod)
        for d in (token.design, half.design)
    ]
    assert share[0] < 0.5 <= share[1]
    assert token.usd < half.usd


def test_slow_ports_serve_a_nic_in_lanes() -> None:
    slow = switch(32, 500, port_gbps=400)
    assert cheapest(instance(2, slow), request(40)) is None
    d = cheapest(instance(2, slow, max_lanes=2), request(40)).design
    assert (d.lanes, d.endpoint_links) == (2, 160)


@each(
    ("gbps", "tiers", "wan_gateways"), [(0, 1, 0), (800, 1, 1), (1600, 1, 1), (1601, 2, 1), (3200, 2, 1), (3201, 2, 2)]
)
def test_a_wan_gateway_that_finds_no_port_makes_another_tier(gbps: float, tiers: int, wan_gateways: int) -> None:
    """Six GPUs on a switch of eight ports leave two."""
    # The third port of the wide area needs a spine, the fifth a second WAN gateway switch.
    d = cheapest(instance(1, switch(8, 100_000)), dataclasses.replace(request(6), wan_gbps=gbps)).design
    assert (d.tiers, d.wan_gateways) == (tiers, wan_gateways)


@each(("gbps", "room"), [(800, True), (801, False)])
def test_a_wan_gateway_needs_room(gbps: float, room: bool) -> None:
    """Three GPUs on the one switch of four ports allowed leave one port; two are not there."""
    found = cheapest(instance(1, switch(4, 100_000), max_tiers=1), dataclasses.replace(request(3), wan_gbps=gbps))
    assert (found is not None) == room


def test_the_wan_gateway_is_paid() -> None:
    """One switch, two links of two modules each, and nothing for what faces the wide area."""
    i = instance(1, switch(8, 100_000), optics_usd=1_000)
    with_gateway, without = (cheapest(i, dataclasses.replace(request(6), wan_gbps=g)) for g in (1600.0, 0.0))
    assert with_gateway.usd - without.usd == pytest.approx(100_000 + 2 * 2 * 1_000)
    assert with_gateway.mw - without.mw == pytest.approx((1000 + 2 * 2 * 16) / 1e6)


@each(("gbps", "spine_up"), [(4800, 1), (4801, 2), (9600, 2), (9601, None)])
def test_a_wan_gateway_takes_uplinks_that_make_it_cores(gbps: float, spine_up: int | None) -> None:
    """Two spines with one uplink each join two cores, with three ports left on each; with two uplinks, four cores."""
    pins = {"tiers": 3, "leaf_down_ports": 2, "leaf_up_ports": 2, "leaf_bundle": 1, "leaf_domains_per_pod": 2}
    i = instance(1, switch(4, 75_000), pins={f"fabric.{name}": value for name, value in pins.items()})
    found = cheapest(i, dataclasses.replace(request(4), wan_gbps=gbps))
    assert (found and found.design.spine_up) == spine_up
    if found is not None:
        laid(found.design)


def test_lengths_price_the_wan_gateway_as_the_bill_does() -> None:
    """By reach the search and the bill agree to the cent a link."""
    media = [
        {"name": "dac", "reach_m": 3, "price_usd": 100, "usd_per_m": 10},
        {"name": "fibre", "reach_m": 500, "price_usd": 900, "usd_per_m": 1.5},
    ]
    i = instance(2, switch(8, 100_000), floor={"spread_m": 7.3}, media=media)
    out = cheapest(i, dataclasses.replace(request(9), wan_gbps=2400.0))
    assert out.usd == pytest.approx(bill(i.network, i.network.switches[0], out.design).usd)


@each("family", ["dragonfly", "dragonfly+"])
@each(("racks", "found"), [(6, True), (12, False)])
def test_no_medium_for_links_that_are_not_there(family: str, racks: int, found: bool) -> None:
    """One port of the wide area goes to one group; what would join it to groups out of reach is not asked for."""
    # Racks stand 1 m apart in one row, and the only cable reaches 6 m, 2 m of them up and down: groups of a third of
    # six racks are 4 m apart at most, but on the eight ports of a switch twelve racks make groups that no cable
    # joins.
    media, floor = [{"name": "near", "reach_m": 6, "price_usd": 100}], {"rack_pitch_m": 1, "racks_per_row": 12}
    i = instance(1, switch(8, 1000), families=[family], floor=floor | {"rise_m": 1, "spread_m": 0}, media=media)
    out = cheapest(i, dataclasses.replace(request(racks), wan_gbps=800.0))
    assert (out is not None) == found
    if found:
        assert out.usd == pytest.approx(bill(i.network, i.network.switches[0], out.design).usd)


@each(
    ("gbps", "group", "up"), [(0, 1, 1), (1, 1, 2), (800, 1, 2), (801, 1, 3), (800, 8, 2), (1600, 8, 2), (1601, 8, 3)]
)
def test_the_exchange_takes_uplinks(gbps: float, group: int, up: int) -> None:
    """A hop of four flows on one uplink is hidden."""
    # Gradients at a port's rate need one more, or twice the rate where half of a stage is there.
    i = instance(1, switch(16, 5000), pins={"fabric.leaf_down_ports": 4})
    r = dataclasses.replace(
        request(16, group=group, groups=16 // group, send=4.0), wan_gbps=max(gbps, 1), exchange_gbps=gbps
    )
    assert cheapest(i, r).design.leaf_up == up


def test_the_exchange_needs_a_way_out_of_the_only_domain() -> None:
    """Rails of one leaf domain meet at spines for nothing but the exchange."""
    i = instance(4, switch(16, 5000), pins={"fabric.leaf_down_ports": 8})
    r = dataclasses.replace(request(8), wan_gbps=12_800, exchange_gbps=12_800)
    d = cheapest(i, r).design
    assert (d.domains, d.tiers, d.leaf_up) == (1, 2, 4)
    assert cheapest(i, dataclasses.replace(r, exchange_gbps=0.0)).design.leaf_up < 4
