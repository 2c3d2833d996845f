"""The cheapest plan of a shape comes first, or the fastest; where none is paid all columns like it have none."""

import math
import random
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from joint_toys import toy
from tiers import more

from planner.models import Options
from planner.models.joint.columns import column_at, pipelines_of
from planner.models.joint.places.capital_bounds import SlowdownLevel
from planner.models.joint.places.cheapest import CheapestSearch, SlowdownChoice
from planner.models.joint.places.fastest import FastestSearch, NetworkCandidate
from planner.models.joint.places.shape_problem import ShapeProblem
from planner.models.joint.search.capital_floor import floor_of
from planner.models.joint.solve import world_of
from planner.models.joint.world import EPS, JointPlan, Target, open_sites, shapes
from planner.solvers.signals import Deadline


class Tabled(CheapestSearch):
    """A search whose prices and needs of wavelengths are tables: the dearer, the nearer the sites must be."""

    _rtts = (1.0, 2.0, 3.0, 4.0)  # type: ignore[assignment]
    _wavelengths = np.arange(1, 9)  # type: ignore[assignment]

    def __init__(self, r: random.Random, asked: int) -> None:
        usd = [math.inf if r.random() < 0.3 else 100.0 * r.randint(1, 9) for _ in self._rtts]
        self.usd = dict(zip(self._rtts, np.minimum.accumulate(usd).tolist(), strict=True))
        self.need = dict(zip(self._rtts, sorted(r.randint(1, 8) for _ in self._rtts), strict=True))
        self.slope, self.level = r.choice([0.0, 10.0, 150.0]), SlowdownLevel(1.0, 1.0, r.choice([0.0, 50.0]))
        self.shape_problem = SimpleNamespace(racks=1)  # type: ignore[assignment]
        self.asked = {(r.choice(self._wavelengths.tolist()), r.choice(self._rtts)) for _ in range(asked)}  # type: ignore[assignment]

    def price(self, waves: int, rtt: float) -> float:
        """Price the sites: it rises with wavelengths and falls with the round trip."""
        return self.usd[rtt] + self.slope * waves

    @property
    def least(self) -> float:
        """Try all wavelengths and round trips."""
        every = [(n, t) for n in self._wavelengths.tolist() for t in self._rtts if n >= self.need[t]]
        return min((self.price(n, t) + self.level.usd for n, t in every), default=math.inf)

    def fewest_waves(self) -> list[tuple[SlowdownLevel, int]]:
        """Return the only slowdowns, with the wavelengths that the shortest round trip takes."""
        return [(self.level, self.need[self._rtts[0]])]

    def _in_time(self, level: SlowdownLevel, waves: int, rtt: float) -> bool:  # noqa: ARG002
        return waves >= self.need[rtt]

    def _ask(self, waves: int, rtt: float) -> None:
        self.asked.add((waves, rtt))  # type: ignore[attr-defined]

    def _base(self, waves: int, rtt: float) -> float:
        known = [self.price(n, t) for n, t in self.asked if n <= waves and t >= rtt]  # type: ignore[misc, str-unpack]
        return max(known, default=0.0)

    @property
    def _prices(self) -> Any:
        return SimpleNamespace(exact=True, lower=self._base)

    def _beaten(self, c: SlowdownChoice, rtt: float) -> bool:  # noqa: ARG002
        return False

    def _placed(self, c: SlowdownChoice, rtt: float) -> JointPlan | None:
        usd = self.price(c.waves, rtt) + c.level.usd
        nothing: dict[str, Any] = dict.fromkeys(x.name for x in fields(JointPlan))
        return None if math.isinf(usd) else JointPlan(**nothing | {"capital_usd": usd})


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


class Timed(FastestSearch):
    """A search whose money and times are tables: a longer round trip takes longer and pays no fewer wavelengths."""

    _rtts = (1.0, 2.0, 3.0, 4.0)  # type: ignore[assignment]
    _wavelengths = np.arange(1, 9)  # type: ignore[assignment]
    likely, in_time = False, True

    def __init__(self, r: random.Random) -> None:
        self.levels = [SlowdownLevel(send, 1.0, 100.0 / send) for send in (1.0, 1.5, 2.0, 3.0)]  # type: ignore[misc]
        self.paid = {level: sorted(r.randint(0, 8) for _ in self._rtts) for level in self.levels}
        self.trip, self.wave, self.loose = r.choice([0.0, 0.1, 2.0]), r.choice([0.1, 3.0]), r.choice([0.5, 1.0])
        self.shape_problem = SimpleNamespace(world=SimpleNamespace(deadline=Deadline(None)))  # type: ignore[assignment]
        self.asked, self.cutoff, self.tried = {}, math.inf, list[tuple[float, SlowdownLevel, int]]()

    def time(self, level: SlowdownLevel, waves: int, rtt: float) -> float:
        """Time a candidate: a longer trip, a slower fabric and fewer wavelengths take longer."""
        return 5.0 * level.send + self.wave / waves + self.trip * rtt

    def _affordable(self, rtt: float) -> list[tuple[SlowdownLevel, int]]:
        place = self._rtts.index(rtt)
        return [(level, waves[place]) for level, waves in self.paid.items() if waves[place]]

    def _bounds(self, found: list[tuple[SlowdownLevel, int]], rtt: float) -> Any:
        return np.array([self.loose * self.time(level, waves, rtt) for level, waves in found])

    def _seconds(self, level: SlowdownLevel, waves: int, rtt: float, limit: float) -> float:
        self.tried.append((rtt, level, waves))
        seconds = self.time(level, waves, rtt)
        return seconds if seconds <= limit else math.inf

    def _usd(self, level: SlowdownLevel, rtt: float, waves: int) -> float:
        return level.usd + waves - rtt

    def _rtts_to_try(self) -> list[float]:
        return list(self._rtts)

    def _fewest_wavelengths(self, c: NetworkCandidate) -> NetworkCandidate:
        return c


def test_the_first_candidate_is_the_fastest_and_none_is_late_twice() -> None:
    for seed in range(300):
        r = random.Random(seed)
        search, cutoff = Timed(r), r.choice([math.inf, 8.0, 12.0])
        found = search.next(Target(cutoff, -math.inf, 1e9))
        every = [search.time(*pair, rtt) for rtt in search._rtts for pair in search._affordable(rtt)]
        least = min((x for x in every if x < cutoff * (1 - EPS)), default=math.inf)
        assert (math.inf if found is None else found.seconds) == least, seed
        late = [(level, waves) for rtt, level, waves in search.tried if search.time(level, waves, rtt) > cutoff]
        assert len(late) == len(set(late)), seed


@pytest.mark.parametrize("seed", [11, 14, 16, 21, 0, 1, *more(*range(2, 10))])
def test_what_no_money_pays_between_sites_it_pays_in_no_column(seed: int) -> None:
    """A shape that leaves no money for any fabric has no plan in the budget, nor has a column that sends alike."""
    i = toy(seed, sites=3)
    limits = i.limits.model_copy(update={"budget_usd": 0.8 * (i.limits.budget_usd or math.inf)})
    world = world_of(i.model_copy(update={"pins": {}, "limits": limits}), Options(), Deadline(None))
    unpaid = set()
    for s in world.strategies()[::8]:
        _, rows = pipelines_of(world, s)
        first = column_at(s, s.problem.zero_stages[-1], rows, 0) if len(rows) else None
        for column in [] if first is None else [replace(first, d=d + 1) for d in range(min(4, first.d))]:
            for sites in {2, 3} & set(open_sites(world, column)):
                q = ShapeProblem(world=world, column=column, shape=next(shapes(column, sites)))
                search, target = FastestSearch(shape_problem=q, cutoff=math.inf), Target(math.inf, 0.0, world.budget)
                candidate = search.next(target)
                while candidate is not None and search.try_sites(candidate, target) is None:
                    candidate = search.next(target)
                if candidate is None and search.is_unpaid:
                    unpaid.add((q.traffic, q.shape.blocks))
                if (q.traffic, q.shape.blocks) in unpaid:
                    cheapest = CheapestSearch(shape_problem=q, cutoff=math.inf, floor_usd=floor_of(world))
                    found = (x.capital_usd for x in cheapest.steps() if isinstance(x, JointPlan))
                    assert next(found, math.inf) > world.budget
