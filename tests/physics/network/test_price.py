"""The bill of a fabric, against every cable laid, measured and priced one by one; and the least of a link."""

import math
from collections import Counter

import numpy as np
import pytest
from each_case import each
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_cabling import wirable
from test_dragonfly import dragonflies

from planner.instance.network import Network, Switch
from planner.physics.network.clos_fabric import TIERS, Design
from planner.physics.network.fabric_cables import WAN_GATEWAY, MediaTable, lay, lengths, switch_counts
from planner.physics.network.fabric_cost import bill, flat_usd, min_fabric, switch_usd, wan_gateway_bill

# Primes and odd powers, so that no count times a wrong price makes the right sum.
BOX = {"name": "box", "ports": 8, "port_gbps": 800, "price_usd": 7001, "power_watts": 1013}
FACTORS = {"link_factor": 1.5, "breakout": 4, "breakout_link_factor": 0.25}
CABLES = {"endpoint_usd": 11, "endpoint_transceivers": 1, "switch_usd": 29, "switch_transceivers": 2}
COPPER = {"name": "copper", "reach_m": 4, "price_usd": 53, "usd_per_m": 3}
ACTIVE = {"name": "active", "reach_m": 12, "price_usd": 30, "usd_per_m": 2, "power_watts": 17}
LONG = {"name": "long", "reach_m": 500, "price_usd": 211, "usd_per_m": 5, "power_watts": 31}


def box(ports: int = 8, **more: float) -> Switch:
    """Return a switch whose links cost half more than the network's, and a quarter of that at a split port."""
    return Switch.model_validate(BOX | FACTORS | {"ports": ports} | more)


def network(*media: dict[str, object], watt_usd: float = 5.0, switches: tuple[Switch, ...] = ()) -> Network:
    """Return a network, priced by length where there are media."""
    floor = {"rack_pitch_m": 1, "row_pitch_m": 3, "racks_per_row": 4, "rise_m": 1, "spread_m": 2} if media else None
    own = {"switches": [s.model_dump() for s in switches or (box(),)], "power_usd_per_watt": watt_usd}
    own |= {"optics": {"name": "o", "price_usd": 101, "power_watts": 19}, "cables": CABLES}
    return Network.model_validate(own | {"floor": floor, "media": media})


def boxes_of(d: Design) -> list[Switch]:
    """Return the model of each tier of a design, leaves first: one of its own, by a prime price, where it has ports."""
    own = zip(TIERS[1:], (d.spine_ports, d.core_ports, d.super_spine_ports), (5003, 3001, 2003), strict=True)
    above = [
        box(ports, name=tier, price_usd=usd, power_watts=usd // 7) if ports else box(d.ports)
        for tier, ports, usd in own
    ]
    return [box(d.ports), *above][: d.tiers]


def one_by_one(n: Network, d: Design, tiers: set[str] | None = None) -> tuple[float, float]:
    """Return dollars and watts of every switch, and of every cable laid and measured; `tiers`: of such low ends only.

    A cable takes the cheapest medium that reaches, its watts over the years counted; or what its kind takes by no
    length. The factor of a rate is on both dollars and watts, a GPU's link on a split port has that of the split too.
    """
    s, *_ = models = boxes_of(d)
    usd, watts = 0.0, 0.0
    for tier, k in switch_counts(d).items():
        model = s if tier == WAN_GATEWAY else models[TIERS.index(tier)]
        if tiers is None or tier in tiers:
            usd, watts = usd + k * model.price_usd, watts + k * model.power_watts
    measure = lengths(d, n.floor) if n.floor is not None else None
    for c in (c for c in lay(d, block=10**6) if tiers is None or c.low_tier in tiers):
        split = c.low_tier == "gpu" and d.split > 1
        share = s.breakout_link_factor * s.breakout / d.split if split else 1  # of a whole port's link
        factor = s.link_factor * float(np.clip(share, *sorted((1, s.breakout_link_factor)))) if split else s.link_factor
        for metres, count in Counter(measure(c).tolist() if measure else [0.0] * len(c.low)).items():
            each = medium(n, metres) if measure else kind(n, gpu=c.low_tier == "gpu")
            usd, watts = usd + count * factor * each[0], watts + count * factor * each[1]
    return usd + watts * n.power_usd_per_watt, watts


def medium(n: Network, metres: float) -> tuple[float, float]:
    """Return dollars and watts of a cable of a length; endlessly dear where no medium reaches."""
    # A length is a sum of pitches: its last digits never decide whether a medium reaches.
    whole = round(metres, 6)
    reaching = [(m.price_usd + m.usd_per_m * metres, m.power_watts) for m in n.media if whole <= m.reach_m]
    return min(reaching, key=lambda each: each[0] + each[1] * n.power_usd_per_watt, default=(math.inf, 0.0))


def kind(n: Network, *, gpu: bool) -> tuple[float, float]:
    """Return dollars and watts of a cable by no length: that of a GPU has one transceiver here, the others two."""
    own, modules = (n.cables.endpoint_usd, 1) if gpu else (n.cables.switch_usd, 2)
    return own + modules * n.optics.price_usd, modules * n.optics.power_watts


MEDIA = st.sampled_from([(), (COPPER, ACTIVE, LONG), (COPPER, LONG), (COPPER, ACTIVE)])


# One cable is as long as copper reaches, but for the last digit of its sum of pitches.
AT_THE_REACH = Design(
    ports=8, rails=1, racks=28, leaf_down=7, leaf_up=1, leaf_bundle=1, rails_per_pod=1, domains_per_pod=4
)


@settings(deadline=None)
@given(st.one_of(wirable(), dragonflies()), MEDIA, st.sampled_from([0.0, 5.0]))
@example(AT_THE_REACH, (COPPER, ACTIVE, LONG), 5.0)
def test_the_bill_is_that_of_every_switch_and_cable(d: Design, media: tuple, watt_usd: float) -> None:
    n, (s, *above) = network(*media, watt_usd=watt_usd), boxes_of(d)
    for found, tiers in ((bill(n, s, d, above), None), (wan_gateway_bill(n, s, d), {WAN_GATEWAY})):
        usd, watts = one_by_one(n, d, tiers)
        assert found.usd == pytest.approx(usd, rel=1e-9)
        assert math.isinf(usd) or found.mw * 1e6 == pytest.approx(watts, rel=1e-9)
    if not media:
        links = zip(flat_usd(n, s, d.split), (d.endpoint_links, d.switch_links + d.wan_gateway_links), strict=True)
        boxes = [(switch_usd(n, box), d.tier_switches[tier]) for tier, box in zip(TIERS, (s, *above), strict=False)]
        boxes.append((switch_usd(n, s), d.wan_gateways))
        assert bill(n, s, d, above).usd == pytest.approx(sum(usd * count for usd, count in (*links, *boxes)))


@settings(deadline=None)
@given(st.one_of(wirable(), dragonflies()), MEDIA)
def test_no_fabric_costs_less_than_its_least_links(d: Design, media: tuple) -> None:
    s = box(d.ports)
    n = network(*media, switches=(s,))
    found = bill(n, s, d)
    assert found.usd >= d.endpoint_links * min_fabric(n).usd * (1 - 1e-9)
    assert found.mw >= d.endpoint_links * min_fabric(n).mw * (1 - 1e-9)


@each("factor", [0.25, 4.0])
@each("media", [(), (COPPER,), (COPPER, ACTIVE), (LONG,)])
def test_the_least_of_a_link_is_met_by_a_full_switch(media: tuple, factor: float) -> None:
    """One rack on one switch that has no port to spare costs the least for each GPU, split or not."""
    # By hand, flat, with split ports at a quarter: 1.5·0.25·(11 + 101 + 19·5) + (7001 + 1013·5)/(8·4) dollars and
    # 1.5·0.25·19 + 1013/32 watts. With a dear split the bound takes the whole port's link and the split port's share
    # of the box, which no design has at once. By length it leaves out the watts of a link, which copper does not
    # take.
    s = box(breakout_link_factor=factor)
    n = network(*media, switches=(s,))
    each = medium(n, 2.0) if media else kind(n, gpu=True)
    link = 1.5 * min(factor, 1) * (each[0] + 5 * each[1])
    assert min_fabric(n).usd == pytest.approx(link + (7001 + 1013 * 5) / 32)
    watts = 1013 / 32 + (0 if media else 1.5 * min(factor, 1) * 19)
    assert min_fabric(n).mw * 1e6 == pytest.approx(watts)
    full = Design(ports=8, rails=32, racks=1, leaf_down=32, split=4)
    if factor < 1:
        assert not full.faults()
        assert bill(n, s, full).usd == pytest.approx(32 * min_fabric(n).usd)
        assert bill(n, s, full).mw * 1e6 == pytest.approx(32 * watts + (12 * each[1] if media else 0))


def test_the_cheapest_switch_bounds_a_fabric() -> None:
    """The least for a GPU over all switches, in dollars and in watts each for itself; nothing without a network."""
    cheap, cool = box(price_usd=1, power_watts=9000), box(price_usd=90_000, power_watts=1)
    n = network(switches=(cheap, cool), watt_usd=0.5)
    link, watts = 1.5 * 0.25 * (11 + 101 + 19 * 0.5), 1.5 * 0.25 * 19
    assert min_fabric(n).usd == pytest.approx(link + (1 + 9000 * 0.5) / 32)
    assert min_fabric(n).mw * 1e6 == pytest.approx(watts + 1 / 32)
    assert (min_fabric(None).usd, min_fabric(None).mw) == (0.0, 0.0)


def test_lengths_are_of_account_only_with_media() -> None:
    n = network(COPPER, ACTIVE, LONG)
    bare = n.replaced(media=())
    d = Design(ports=8, rails=2, racks=4, leaf_down=8)
    assert bill(bare, box(), d) == bill(network(), box(), d) != bill(n, box(), d)


def test_a_cable_as_long_as_its_reach_is_reached_whatever_the_rounding_of_its_length() -> None:
    """On a floor of 1.2 by 2.4 m a cable of 5 m is 5.000000000000001 m long by the sum of its parts."""
    table = MediaTable.of(network({**COPPER, "reach_m": 5.0}, LONG).media)
    metres = np.array([5.0, abs(2.4 - 5.4) + 2, (3 * 1.2 + 2.4) / 1.2, np.nextafter(5.0, 6.0), 5.001])
    assert table.choose(metres).tolist() == [0, 0, 0, 0, 1]
