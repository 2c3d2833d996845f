"""Frontiers of fabrics in any axes."""
# Agreement with a brute force over every design of small sites, and what steps and time leave out.

import dataclasses
import itertools
import random

import pytest
from fabric_cases import free_by_exchange, instance, request, switch
from fabric_zone_cases import accepted_designs
from tiers import more

from planner.instance.instance import Instance
from planner.instance.network import Switch
from planner.models import Options
from planner.models.fabric.fabric_templates import FABRIC_AXES, FrontierRow, alternatives
from planner.models.fabric.site_traffic import FabricRequest
from planner.physics.network.clos_fabric import Design
from planner.physics.network.fabric_cost import bill
from planner.physics.network.uplink_slowdowns import slowdowns, uplink_loads

Point = dict[str, float]
AXES = [a for n in (1, 2, 3, 4) for a in itertools.combinations(("time", "power", "leaf", "splits"), n)]


def weighed(i: Instance, r: FabricRequest, s: Switch, d: Design) -> Point:
    """Return what every axis says of a design."""
    price = bill(i.network, s, d)
    crossed = (d.domains > 1, 0 < d.domains_per_pod < d.domains, 0 < d.domains_per_zone < d.domains)
    loads = uplink_loads(d, [*map(float, crossed)], free=free_by_exchange(r, d, s.port_gbps))
    slow, _ = slowdowns(i.network.transport.slowdown, loads)
    whole = sum(min(d.domain_racks, r.racks - at) // r.group_racks for at in range(0, r.racks, d.domain_racks))
    found = {"cost": price.usd, "time": slow, "power": price.mw, "leaf": max(0, r.racks - d.domain_racks)}
    return found | {"splits": max(0, r.groups - whole)}


def no_worse(a: Point, b: Point, axes: tuple[str, ...]) -> bool:
    """Say whether a is no worse than b in any axis."""
    return all(a[x] <= b[x] + 1e-9 * abs(b[x]) for x in axes)


def points_of(found: list[FrontierRow], axes: tuple[str, ...]) -> list[Point]:
    return [{x: a[FABRIC_AXES[x]] for x in axes} for a in found]


APART = 1.0, 1.25  # price of links: no cable joins the two models, whose mixtures the brute force leaves out


def random_case(seed: int) -> tuple[Instance, FabricRequest]:
    """Draw a small site of switches that are cheap, or that draw little."""
    rng = random.Random(seed)
    switches = []
    for k, ports in enumerate(rng.choices(range(4, 9 - (seed % 4 == 3)), k=2)):
        own = {"name": f"{ports}-{k}", "power_watts": rng.choice([200.0, 1000.0, 5000.0]), "link_factor": APART[k]}
        switches.append(switch(ports, rng.choice([500, 2000, 9000])).replaced(**own))
    rules = {"families": ["dragonfly"]} if seed % 4 == 3 else {}
    i = instance(rng.randint(1, 3), *switches, optics_usd=rng.choice([0, 100, 1000]), **rules)
    racks, group, send, allreduce = rng.randint(6, 11), rng.randint(1, 4), rng.choice([4, 8]), rng.choice([2, 1e9])
    return i, request(racks, group=group, groups=racks // group, send=send, allreduce=allreduce)


def tall_case(seed: int) -> tuple[Instance, FabricRequest]:
    """Draw a site of small switches, one of which may draw little."""
    rng = random.Random(3000 + seed)
    one, other = switch(4, rng.choice([500, 2000])), switch(3, 900)
    other = other.replaced(power_watts=rng.choice([200.0, 1000.0]), link_factor=APART[1])
    rails, boxes, usd = rng.randint(1, 2), (one, other)[: rng.randint(1, 2)], rng.choice([0, 100, 1000])
    i = instance(rails, *boxes, optics_usd=usd, max_tiers=4, wan_gateway=True)
    racks, group, gbps = rng.randint(8, 13), rng.randint(1, 4), rng.choice([0, 0, 800, 1600]) * 1.0
    r = request(racks, group=group, groups=racks // group, send=rng.choice([4, 8, 30]), allreduce=rng.choice([4, 1e9]))
    return i, dataclasses.replace(r, wan_gbps=gbps, exchange_gbps=gbps * rng.choice([0.3, 1]))


def agree(i: Instance, r: FabricRequest, axes: tuple[str, ...]) -> None:
    """Hold the designs found against every design of a site."""
    everything = [weighed(i, r, s, d) for s, _, d in accepted_designs(i, r)]
    rows = alternatives(i, r, Options(), axes=axes, every=True)
    assert all(("core_up" in x) == (x["tiers"] == 4) for x in rows)
    found = points_of(rows, axes)
    assert bool(found) == bool(everything)
    for a in found:
        assert any(no_worse(p, a, axes) for p in everything), "no such design"
        assert not any(no_worse(p, a, axes) and not no_worse(a, p, axes) for p in everything)
    assert all(any(no_worse(a, p, axes) for a in found) for p in everything), "a design is missing"


@pytest.mark.parametrize("seed", [*range(14), *more(*range(14, 36))])
def test_agrees_with_brute_force(seed: int) -> None:
    agree(*random_case(seed), ("cost", *AXES[seed % len(AXES)]))


@pytest.mark.parametrize("seed", range(16))
def test_four_tiers_agree_with_brute_force(seed: int) -> None:
    """The same of sites that small switches serve in up to four tiers, gradients on the uplinks of some."""
    agree(*tall_case(seed), ("cost", *AXES[seed % len(AXES)]))


@pytest.mark.parametrize("seed", range(8))
def test_steps_are_of_the_frontier(seed: int) -> None:
    """What the ladder of slowdowns shows is not beaten by any design either."""
    i, r = random_case(100 + seed)
    axes = ("cost", "time", "splits")
    found = points_of(alternatives(i, r, Options()), axes)
    whole = points_of(alternatives(i, r, Options(), every=True), axes)
    assert len(found) <= len(whole)
    assert all(any(no_worse(a, b, axes) and no_worse(b, a, axes) for b in whole) for a in found)


def test_a_cheap_box_against_one_that_draws_little() -> None:
    """With power as an axis both switches stand on the frontier; without it the cheap one alone."""
    thrifty = switch(8, 9000).replaced(name="thrifty", power_watts=200.0)
    i, r = instance(1, switch(8, 500), thrifty), request(6)
    both = alternatives(i, r, Options(), axes=("cost", "power"))
    assert [a["switch"] for a in both] == ["8x1", "thrifty"]
    assert [a["switch"] for a in alternatives(i, r, Options(), axes=("cost", "splits"))] == ["8x1"]
    assert alternatives(i, r, Options(), axes=iter(("power", "cost"))) == both  # read once


def test_time_that_ends_is_reported() -> None:
    said: list[str] = []
    i, r = random_case(0)
    assert alternatives(i, r, Options(time_limit=0.0), report=said.append) == []
    assert len(said) == 1 and "may have more" in said[0]
