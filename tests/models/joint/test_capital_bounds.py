"""What a refusal of the sites says of other fibre, and the least that racks at so many sites cost, by hand."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from each_case import each

from planner.models.joint.places.capital_bounds import CapitalBounds, SlowdownLevel
from planner.models.joint.places.fastest import FastestSearch, NetworkCandidate
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.search.capital_floor import RACKS_ALONE, MinPrices
from planner.models.joint.world import Shape


def bounds(*, gateway: bool | None, designed: bool = False, sites: int = 2) -> CapitalBounds:
    """Return the bounds of a shape at so many sites, up to four wavelengths in one pair of fibres."""
    # 100 km at least; a pair of fibres costs $10 a km and a wavelength $100. `gateway`: None without a network.
    wan = SimpleNamespace(
        max_wavelengths_per_pair=4, max_fibre_pairs=1, fibre_usd_per_route_km=10.0, wavelength_usd=100.0
    )
    network = None if gateway is None else SimpleNamespace(wan_gateway=gateway)
    placed = SimpleNamespace(
        designed=designed,
        min_routes_km=lambda sites, _rtt_ms=0.0: 100.0 * (sites * (sites - 1) // 2),
        fibre=SimpleNamespace(least_usd=lambda: np.zeros(5)),
        data=SimpleNamespace(wan=SimpleNamespace(rtt_ms_per_100_route_km=1.0)),
    )
    world: Any = SimpleNamespace(
        problem=SimpleNamespace(wan=wan, instance=SimpleNamespace(pins={}, network=network)), sites=placed
    )
    column: Any = None
    shape_problem = ShapeProblem(world=world, column=column, shape=Shape((1,) * sites, 1))
    return CapitalBounds(shape_problem=shape_problem, cutoff=math.inf)


@each("gateway", [None, False])
def test_a_refusal_bounds_other_wavelengths_by_their_fibre(gateway: bool | None) -> None:
    """Refused $10,000 at two wavelengths and 5 ms, which is 500 km."""
    # Each wavelength more costs $100; one fewer at 500 km saves $100, both and the fibre $5,200.
    found = bounds(gateway=gateway)._refused_at(2, 5.0, 10_000.0)
    assert found.tolist() == [4_800, 9_900, 10_000, 10_100, 10_200]


def test_a_refusal_with_wan_gateways_says_nothing_of_fewer_wavelengths() -> None:
    assert bounds(gateway=True)._refused_at(2, 5.0, 10_000.0).tolist() == [0, 0, 10_000, 10_000, 10_000]


@each("gateway", [None, False, True])
def test_a_refusal_of_designed_fibre_says_nothing_of_others(gateway: bool | None) -> None:
    assert bounds(gateway=gateway, designed=True)._refused_at(2, 5.0, 10_000.0).tolist() == [0, 0, 10_000, 0, 0]


def test_one_site_has_one_bound() -> None:
    """Without fibre a refusal is of the one plan that there is."""
    assert bounds(gateway=True, sites=1)._refused_at(0, 0.0, 10_000.0).tolist() == [10_000]


@each(("known", "round_trips", "sites", "tried"), [
    ([2.0, 5.0, 9.0], 1.0, 2, [2.0, 5.0, 9.0]), ([2.0, 5.0, 9.0], 0.0, 2, [9.0]), ([5.0], 0.0, 2, [5.0]),
    ([], 0.0, 2, []), ([2.0, 5.0], 1.0, 1, [0.0]),
])  # fmt: skip
def test_round_trips_that_may_be_the_longest(known, round_trips, sites, tried) -> None:
    """Each that the sites have; where an exchange waits for none the longest alone, and at one site there is none."""
    wan = SimpleNamespace(round_trips=round_trips)
    world: Any = SimpleNamespace(sites=SimpleNamespace(rtts_ms=known), problem=SimpleNamespace(wan=wan))
    column: Any = None
    shape: Any = SimpleNamespace(blocks=(1,) * sites)
    assert ShapeProblem(world=world, column=column, shape=shape).rtts_ms == tried


# $100 whatever is built, $50 a site and $7 for each two of them, modules of two racks for $30, $1 a rail of a rack.
JOINED = (0.0, 0.0, 7.0, 21.0)
FLOOR = MinPrices(
    fixed_usd=100.0, site_usd=50.0, module_racks=2, module_usd=30.0, rail_usd=1.0, joined_usd=JOINED, min_sites=2
)


@each(("racks", "usd"), [
    ((4,), 100 + 50 + 2 * 30 + 4 * 8), ((3, 1), 100 + 2 * 50 + 7 + 3 * 30 + 4 * 8), ((1, 1, 1), 100 + 150 + 21 + 114),
])  # fmt: skip
def test_racks_by_site_in_whole_modules(racks: tuple[int, ...], usd: float) -> None:
    assert FLOOR.usd_over(racks, 8) == usd
    assert FLOOR.usd_at(len(racks), sum(racks), 8) <= usd


@each(
    ("usd", "blocks"), [(0.0, 0), (206.0, 0), (207.0, 0), (298.9, 0), (299.0, 1), (390.9, 1), (391.0, 2), (1127.0, 10)]
)
def test_blocks_that_a_capital_pays(usd: float, blocks: int) -> None:
    """Blocks of four racks for $60 and $32 of rails, over $207 for two sites: none below that, and never fewer."""
    assert FLOOR.max_blocks(usd, 4, 8) == blocks
    assert FLOOR.max_blocks(usd, np.array([4, 8]), np.array([8, 8])).tolist() == [blocks, blocks // 2]


def test_racks_alone_are_counted() -> None:
    assert RACKS_ALONE.usd_over((3, 2), 8) == 5
    assert RACKS_ALONE.max_blocks(7.0, 3, 8) == 2


@each("fewest", range(1, 9))
@each("most", range(1, 9))
def test_the_fewest_wavelengths_that_keep_a_time(most: int, fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one to `most` wavelengths fewer than `fewest` are slower: as many are kept, at their own price."""
    shape_problem: Any = SimpleNamespace()
    search = FastestSearch(shape_problem=shape_problem, cutoff=math.inf)
    search.__dict__["_wavelengths"] = np.arange(1, 9)
    monkeypatch.setattr(search, "_seconds", lambda *at: 10.0 if at[1] >= fewest else 10.1)
    monkeypatch.setattr(search, "_usd", lambda *at: 100.0 * at[2])
    level = SlowdownLevel(1.0, 1.0, 0.0)
    kept = search._fewest_wavelengths(NetworkCandidate(10.0, 1e6, level, most, 5.0))
    expected = min(fewest, most)
    usd = 1e6 if expected == most else 100.0 * expected
    assert (kept.wavelengths, kept.usd, kept.seconds, kept.level, kept.rtt_ms) == (expected, usd, 10.0, level, 5.0)
