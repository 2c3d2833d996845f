"""The least that racks at so many sites cost, and the blocks that a capital pays, by hand."""

import numpy as np
import pytest

from planner.models.joint.search.least_prices import RACKS_ALONE, MinPrices

# $100 whatever is built, $50 a site and $7 for each two of them, modules of two racks for $30, $1 a rail of a rack.
JOINED = (0.0, 0.0, 7.0, 21.0)
FLOOR = MinPrices(
    fixed_usd=100.0, site_usd=50.0, module_racks=2, module_usd=30.0, rail_usd=1.0, joined_usd=JOINED, min_sites=2
)


@pytest.mark.parametrize(
    ("racks", "usd"),
    [((4,), 100 + 50 + 2 * 30 + 4 * 8), ((3, 1), 100 + 2 * 50 + 7 + 3 * 30 + 4 * 8), ((1, 1, 1), 100 + 150 + 21 + 114)],
)
def test_racks_by_site_in_whole_modules(racks: tuple[int, ...], usd: float) -> None:
    """Racks of eight rails: of three sites each buys a module, and each two are joined."""
    assert FLOOR.usd_over(racks, 8) == usd
    assert FLOOR.usd_at(len(racks), sum(racks), 8) <= usd


@pytest.mark.parametrize(
    ("usd", "blocks"), [(0.0, 0), (206.0, 0), (207.0, 0), (298.9, 0), (299.0, 1), (390.9, 1), (391.0, 2), (1127.0, 10)]
)
def test_blocks_that_a_capital_pays(usd: float, blocks: int) -> None:
    """Blocks of four racks for $60 and $32 of rails, over $207 for two sites: none below that, and never fewer."""
    assert FLOOR.max_blocks(usd, 4, 8) == blocks
    assert FLOOR.max_blocks(usd, np.array([4, 8]), np.array([8, 8])).tolist() == [blocks, blocks // 2]


def test_racks_alone_are_counted() -> None:
    """A rack a dollar: as many racks as dollars."""
    assert RACKS_ALONE.usd_over((3, 2), 8) == 5
    assert RACKS_ALONE.max_blocks(7.0, 3, 8) == 2
