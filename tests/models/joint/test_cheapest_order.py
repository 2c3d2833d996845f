"""The cheapest plan of a shape comes first, or the fastest; what a refusal of the sites says of others."""

import math
import random
from dataclasses import fields, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from each_case import each
from joint_solved import solved
from joint_toys import toy
from tiers import more

from planner.instance.grid import InterconnectUpgrade
from planner.models.joint.joint_question import Solving, open_sites
from planner.models.joint.joint_solution import JointPlan, Target
from planner.models.joint.search.capital_floor import RACKS_ALONE, MinPrices, floor_of
from planner.models.joint.shapes.blocks_by_site import Shape, shapes
from planner.models.joint.shapes.cheapest_plan import CheapestSearch, SlowdownChoice
from planner.models.joint.shapes.fastest_plan import FastestSearch, NetworkCandidate, SlowdownLevel
from planner.models.joint.shapes.shape_class import _WithEndpoints
from planner.models.joint.shapes.shape_problem import ShapeProblem
from planner.models.joint.shapes.site_choice import Sites
from planner.models.joint.shapes.site_prices import Prices
from planner.models.joint.shapes.site_question import Circuit
from planner.models.joint.strategy_tables import column_at, pipelines_of


class Tabled(CheapestSearch):
    """A search whose prices and needs of wavelengths are tables: the dearer, the nearer the sites must be.

    Prices that many shapes share are `slack` dollars lower than its own; `asked` of its own are known at first.
    """

    _rtts = (1.0, 2.0, 3.0, 4.0)
    _wavelengths = np.arange(1, 9)

    def __init__(self, r: random.Random, asked: int) -> None:
        usd = [math.inf if r.random() < 0.3 else 100.0 * r.randint(1, 9) for _ in self._rtts]
        self.usd = dict(zip(self._rtts, np.minimum.accumulate(usd).tolist(), strict=True))
        self.need = dict(zip(self._rtts, sorted(r.randint(1, 8) for _ in self._rtts), strict=True))
        self.slope, self.level = r.choice([0.0, 10.0, 150.0]), SlowdownLevel(1.0, 1.0, r.choice([0.0, 50.0]))
        self.shape_problem = SimpleNamespace(racks=1, world=SimpleNamespace(sites=self))
        self.cutoff = math.inf
        self.slack, self.shared = r.choice([0.0, 30.0, 200.0]), set[tuple[int, float]]()
        self.fewest = r.randint(1, self.need[self._rtts[0]])
        self.asked = {(r.choice(self._wavelengths.tolist()), r.choice(self._rtts)) for _ in range(asked)}

    def price(self, waves: int, rtt: float) -> float:
        """Price the sites: it rises with wavelengths and falls with the round trip."""
        return self.usd[rtt] + self.slope * waves

    @property
    def least(self) -> float:
        """Try all wavelengths and round trips."""
        every = [(n, t) for n in self._wavelengths.tolist() for t in self._rtts if n >= self.need[t]]
        return min((self.price(n, t) + self.level.usd for n, t in every), default=math.inf)

    def fewest_waves(self) -> list[tuple[SlowdownLevel, int]]:
        """Return the only slowdowns, with no more wavelengths than the shortest round trip takes."""
        return [(self.level, self.fewest)]

    def waves_by_best_split(self, level: SlowdownLevel, waves: int) -> int | None:  # noqa: ARG002
        """Return wavelengths between those that even stages need and those that the best split needs."""
        return (waves + self.need[self._rtts[0]]) // 2

    def _in_time(self, level: SlowdownLevel, waves: int, rtt: float) -> bool:  # noqa: ARG002
        return waves >= self.need[rtt]

    def _ask(self, waves: int, rtt: float) -> None:
        self.asked.add((waves, rtt))

    def _base(self, waves: int, rtt: float) -> float:
        known = [self.price(n, t) for n, t in self.asked if n <= waves and t >= rtt]
        known += [self.price(n, t) - self.slack for n, t in self.shared if n <= waves and t >= rtt]
        return max(known, default=0.0)

    @property
    def _extent_prices(self) -> Any:
        def ask(waves: int, rtt: float) -> None:
            self.shared.add((waves, rtt))

        return SimpleNamespace(parts=range(3), is_known=lambda *at: at in self.shared, ask=ask) if self.slack else None

    @property
    def _prices(self) -> Any:
        return SimpleNamespace(exact=True, lower=self._base)

    def _beaten(self, c: SlowdownChoice, rtt: float) -> bool:  # noqa: ARG002
        return False

    def _as_built(self, c: NetworkCandidate, most: float) -> JointPlan | None:  # noqa: ARG002
        usd = self.price(c.wavelengths, c.rtt_ms) + c.level.usd
        nothing: dict[str, Any] = dict.fromkeys(x.name for x in fields(JointPlan))
        return None if math.isinf(usd) else JointPlan(**nothing | {"seconds": c.seconds, "capital_usd": usd})


@pytest.mark.parametrize("asked", [0, 1, 4])
@pytest.mark.parametrize("seed", [*range(40), *more(*range(40, 400))])
def test_the_first_plan_is_the_cheapest(seed: int, asked: int) -> None:
    search, bounds, found = Tabled(random.Random(seed), asked), list[float](), math.inf
    for step in search.steps():
        if isinstance(step, JointPlan):
            found = step.capital_usd
            break
        bounds.append(step)
    assert found == search.least
    assert all(x <= found for x in bounds)


def paid(search: FastestSearch, target: Target) -> NetworkCandidate | None:
    """Return the fastest candidate of a shape that the sites pay; None where they pay none that beats the target."""
    candidate = search.next(target)
    while candidate is not None and search.try_sites(candidate, target) is None:
        candidate = search.next(target)
    return candidate


TOYS: list[tuple[int, dict[str, Any]]] = [(6, {}), *((k, {"sites": k // 3 + 1, "forced": True}) for k in (3, 7))]


@pytest.mark.parametrize(("seed", "how"), TOYS)
def test_the_fastest_candidate_beats_the_target_or_none_does(seed: int, how: dict[str, Any]) -> None:
    world, plan = Solving().world(toy(seed, **how)), solved(toy(seed, **how)).plan
    q = ShapeProblem(world=world, column=plan.column, shape=plan.shape)
    later, sooner = (Target(plan.seconds * share, -math.inf, world.budget) for share in (1 + 1e-6, 1 - 1e-6))
    found = paid(FastestSearch(shape_problem=q, cutoff=math.inf), later)
    assert found is not None and found.seconds == pytest.approx(plan.seconds, rel=1e-9)
    search = FastestSearch(shape_problem=q, cutoff=math.inf)
    assert paid(search, sooner) is None and search.cutoff <= sooner.cutoff


@pytest.mark.parametrize("seed", [11, 14, 16, 21, 0, 1, *more(*range(2, 10))])
def test_what_no_money_pays_between_sites_it_pays_in_no_column(seed: int) -> None:
    """A shape that leaves no money for any fabric has no plan in the budget, nor has a column that sends alike."""
    i = toy(seed, sites=3)
    world = Solving().world(i.replaced(pins={}, limits__budget_usd=0.8 * (i.limits.budget_usd or math.inf)))
    unpaid = set()
    for s in world.strategies()[::8]:
        _, rows = pipelines_of(world, s)
        first = column_at(s, s.problem.zero_stages[-1], rows, 0) if len(rows) else None
        for column in [] if first is None else [replace(first, d=d + 1) for d in range(min(4, first.d))]:
            for sites in {2, 3} & set(open_sites(world, column)):
                q = ShapeProblem(world=world, column=column, shape=next(shapes(column, sites)))
                search, target = FastestSearch(shape_problem=q, cutoff=math.inf), Target(math.inf, 0.0, world.budget)
                if paid(search, target) is None and search.is_unpaid:
                    unpaid.add((q.traffic, q.shape.blocks))
                if (q.traffic, q.shape.blocks) in unpaid:
                    cheapest = CheapestSearch(shape_problem=q, cutoff=math.inf, floor_usd=floor_of(world))
                    found = (x.capital_usd for x in cheapest.steps() if isinstance(x, JointPlan))
                    assert next(found, math.inf) > world.budget


def bounds(*, gateway: bool | None, designed: bool = False, sites: int = 2) -> FastestSearch:
    """Return the bounds of a shape at so many sites, up to four wavelengths in one pair of fibres."""
    # 100 km at least; a pair of fibres costs $10 a km and a wavelength $100. `gateway`: None without a network.
    prices = {"fibre_usd_per_route_km": 10.0, "wavelength_usd": 100.0, "rtt_ms_per_100_route_km": 1.0}
    wan = SimpleNamespace(max_wavelengths_per_pair=4, max_fibre_pairs=1, **prices)
    network = None if gateway is None else SimpleNamespace(wan_gateway=gateway)
    placed: Any = SimpleNamespace(
        designed=designed,
        min_routes_km=lambda sites, _rtt_ms=0.0: 100.0 * (sites * (sites - 1) // 2),
        fibre=SimpleNamespace(least_usd=lambda: np.zeros(5)),
        data=SimpleNamespace(wan=wan),
        fibre_by_km={},
    )
    placed.all_fibre_usd = partial(Sites.all_fibre_usd, placed)
    world: Any = SimpleNamespace(
        problem=SimpleNamespace(wan=wan, instance=SimpleNamespace(pins={}, network=network)), sites=placed
    )
    column: Any = None
    shape_problem = ShapeProblem(world=world, column=column, shape=Shape((1,) * sites, 1))
    return FastestSearch(shape_problem=shape_problem, cutoff=math.inf)


def refused(search: FastestSearch, waves: int, rtt: float) -> list[float]:
    """Return what $10,000 refused at some wavelengths and a round trip says of every number of wavelengths."""
    level = SlowdownLevel(1.0, 1.0, 0.0)
    search.asked[level] = [(waves, rtt, 10_000.0)]
    # What is known without the refusal is nothing.
    search._lower_bounds = lambda _: np.zeros(5 if search.shape_problem.several else 1)
    assert not search._totals(level, rtt + 1.0).any()  # a longer round trip may cost less
    return [float(x) for x in search._totals(level, rtt)]


# Each wavelength more costs $100; one fewer at 500 km saves $100, both and the fibre $5,200.
BY_FIBRE = [4_800, 9_900, 10_000, 10_100, 10_200]


@each(
    ("gateway", "designed", "found"),
    [
        *((gateway, False, BY_FIBRE) for gateway in (None, False)),
        (True, False, [0, 0, 10_000, 10_000, 10_000]),
        *((gateway, True, [0, 0, 10_000, 0, 0]) for gateway in (None, False, True)),
    ],
)
def test_what_a_refusal_says_of_other_wavelengths(gateway: bool | None, designed: bool, found: list[int]) -> None:
    """Refused $10,000 at two wavelengths and 5 ms, which is 500 km: nothing of fewer with gateways."""
    assert refused(bounds(gateway=gateway, designed=designed), 2, 5.0) == found
    assert refused(bounds(gateway=gateway, sites=1), 0, 0.0) == [10_000]  # at one site it is of the one plan there is


@pytest.mark.parametrize("seed", range(4))
def test_known_prices_bound_the_others(seed: int) -> None:
    """Asked for in any order, prices of sites by wavelengths and round trip are never bounded above what sites cost."""
    r, i = random.Random(seed), toy(7, sites=3, forced=True)
    dear = {"interconnect_mw": 0.1, "upgrade": InterconnectUpgrade(step_mw=9, capex_usd=700)}  # of the nearest two
    nodes = [n.replaced(**dear if k == 0 else {"interconnect_mw": 9.0}) for k, n in enumerate(i.grid.nodes)]
    i = i.replaced(grid__nodes=tuple(nodes), grid__rules__interconnect__enabled=True)
    sites = Solving().world(i).sites
    parts = (sites.part(1, 2), sites.part(1, 1))
    asked = [(n, t) for n in (1, 3, 4) for t in sites.rtts_ms]
    usd = {x: placed.capital_usd if (placed := sites.cheapest(parts, Circuit(*x))) else math.inf for x in asked}
    assert usd[1, min(sites.rtts_ms)] > usd[1, max(sites.rtts_ms)] + 1
    prices = Prices(sites=sites, parts=parts)
    for one in r.sample(asked, len(asked)):
        prices.ask(*one)
        assert prices.upper(*one) == pytest.approx(usd[one])
        for x in asked:
            assert prices.lower(*x) <= usd[x] + 0.01 and prices.upper(*x) >= usd[x] - 0.01


def test_what_a_class_learns_of_its_sites_never_falls() -> None:
    """Refused with less left for the sites, at the same wavelengths, a class keeps the larger bound."""
    q: Any = bounds(gateway=None).shape_problem
    q.world.site_bounds = SimpleNamespace(exceeds=lambda *_: True)
    q.world.budget, q.traffic = 50_000.0, SimpleNamespace(racks=lambda _: 1)
    search = _WithEndpoints(shape_problem=q, cutoff=1.0)
    search._power_usd = 0.0
    for usd, left in ((9_000.0, 41_000.0), (5_000.0, 45_000.0), (8_000.0, 45_000.0)):
        search.floor_tables[5.0] = (0, 0.0, 0.0), np.zeros(5)
        assert search.refuses(NetworkCandidate(1.0, 0.0, SlowdownLevel(1.0, 1.0, usd), 3, 5.0))
        assert search.lower_bounds == {(1, 5.0): pytest.approx(left, abs=1)} and not search.floor_tables


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
    assert FLOOR.usd(sum(racks), 8, len(racks)) <= usd


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


def test_fibre_that_joins_three_sites_and_no_two() -> None:
    """Protected routes, or their fibre pairs, may be there for three sites and for no two: no floor is infinite."""
    floor = replace(FLOOR, joined_usd=(0.0, 0.0, math.inf, 21.0))
    assert floor.usd(3, 1) == 100 + 150 + 21 + 2 * 30 + 3
    assert floor.max_blocks(271.0 + 3 * 16, 1, 1) == 3


@each("fewest", range(1, 9))
@each("most", range(1, 9))
def test_the_fewest_wavelengths_that_keep_a_time(most: int, fewest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one to `most` wavelengths fewer than `fewest` are slower: as many are kept, at their own price."""
    shape_problem: Any = SimpleNamespace()
    search = FastestSearch(shape_problem=shape_problem, cutoff=math.inf)
    search.__dict__["_wavelengths"] = np.arange(1, 9)
    monkeypatch.setattr(search, "_seconds", lambda *at: 10.0 if at[1] >= fewest else 10.1)
    monkeypatch.setattr(search, "_totals", lambda *_: 100.0 * np.arange(9))
    level = SlowdownLevel(1.0, 1.0, 0.0)
    kept = search._fewest_wavelengths(NetworkCandidate(10.0, 1e6, level, most, 5.0))
    expected = min(fewest, most)
    usd = 1e6 if expected == most else 100.0 * expected
    assert (kept.wavelengths, kept.usd, kept.seconds, kept.level, kept.rtt_ms) == (expected, usd, 10.0, level, 5.0)
