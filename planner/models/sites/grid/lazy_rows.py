"""The rows of a dc model that are found on the way: corridors above their ratings, before and after outages, year by year.

Each year has injections of its own, and so is asked alone what it breaks; years share the columns of what is decided once.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.models.sites.data import Question
from planner.models.sites.grid import contingency_cuts
from planner.models.sites.grid.contingencies import TOLERANCE
from planner.models.sites.grid.dc_network import Key, ParallelStrategy, System
from planner.models.sites.grid.power_flow import columns
from planner.models.sites.scenarios import blocks
from planner.solvers.lazy_constraints import Row

OVERLOADS = 150  # made cuts in one round, over all years
LEAST = 30  # of these for each year


@dataclass(frozen=True, kw_only=True)
class YearRows:
    """The rows of one year; `told` is what tells it from the grid's own in their names."""

    system: System
    families: frozenset[str]
    load_mw: float
    most: int
    told: str
    stated: set[Key] = field(default_factory=set)

    def known(self) -> list[Row]:
        """Return the cuts that this question has met, of the rules in force."""
        found = {key: c for key, c in self.system.pool.items() if c.family in self.families}
        self.stated.clear()
        self.stated.update(found)
        return [self._row(c) for c in found.values()]

    def broken(self, x: npt.NDArray[np.float64], *, whole: bool, quick: bool) -> list[Row]:
        """Return cuts for what the point breaks: of N-1 once the network before outages holds, and not when it must be quick."""
        cuts = self.system.ratings(x, self.most, TOLERANCE) if "rating" in self.families else []
        secure = (
            "security" in self.families
            and not quick
            and (whole or (not self.system.buildable and self.system.grid.rules.n1 == "full"))
        )
        if secure and len(cuts) < self.most // 5:
            cuts += contingency_cuts.broken(self.system, x, self.system.outages, TOLERANCE)
        # What is stated already is broken by no more than the solver's own tolerance.
        fresh = {key: c for c in cuts if (key := (c.family, c.name, c.given)) not in self.stated}
        self.system.pool.update(fresh)
        self.stated.update(fresh)
        return [self._row(c) for c in fresh.values()]

    def _row(self, c: ParallelStrategy) -> Row:
        name = f"{c.family}[{','.join(c.name.split(',')[: 1 if c.family == 'rating' else 2])}]{self.told}"
        if not c.given:
            return Row(name=name, columns=c.columns, values=c.values, upper=c.upper)
        most = c.reach * self.load_mw
        at = np.concatenate([c.columns, np.asarray([i for i, _ in c.given])])
        values = np.concatenate([c.values, np.asarray([most if wanted else -most for _, wanted in c.given])])
        return Row(name=name, columns=at, values=values, upper=c.upper + most * sum(wanted for _, wanted in c.given))


@dataclass(frozen=True, kw_only=True)
class FoundRows:
    """The rows of all years: each year has the columns of its system, one year after the other."""

    columns: list[Any]
    gates: list[tuple[int, int]]
    years: list[YearRows]

    @property
    def _width(self) -> int:
        return len(self.columns) // len(self.years)

    def _placed(self, year: int, rows: list[Row]) -> list[Row]:
        return [replace(r, columns=r.columns + year * self._width) for r in rows]

    def known(self) -> list[Row]:
        """Return the cuts that this question has met, of the rules in force."""
        return [r for i, year in enumerate(self.years) for r in self._placed(i, year.known())]

    def forget(self) -> None:
        """Take all rows back: none is stated any more."""
        for year in self.years:
            year.stated.clear()

    def broken(self, x: npt.NDArray[np.float64], *, whole: bool, quick: bool) -> list[Row]:
        """Return cuts for what the point breaks in any year."""
        self.years[0].system.effort.rounds += 1
        n = self._width
        return [
            r
            for i, year in enumerate(self.years)
            for r in self._placed(i, year.broken(x[i * n : (i + 1) * n], whole=whole, quick=quick))
        ]


def state_lazily(m: Any, q: Question, without: Collection[str], *, load_mw: float) -> None:
    """Give a dc model the rows that its solver finds on the way."""
    if q.system is None:
        return
    families = ({"rating"} if q.grid.rules.n1 not in ("node", "full") else {"rating", "security"}) - set(without)
    years = list(blocks(m, q))
    m.lazy = FoundRows(
        columns=[v for year in years if year.q.system for v in columns(year.block, year.q.system)],
        gates=[(q.system.modules_at + i, q.system.open_at + i) for i in range(len(q.candidates))],
        years=[
            YearRows(
                system=year.q.system,
                families=frozenset(families),
                load_mw=load_mw,
                most=max(OVERLOADS // len(years), LEAST),
                told=year.told,
            )
            for year in years
            if year.q.system
        ],
    )


def security_space(system: System) -> dict[str, int | float | str | list[int] | list[str]]:
    """Say what the search for rows took, in all years."""
    found = [c.family for year in system.every_year for c in year.pool.values()]
    outages: dict[str, int | float | str | list[int] | list[str]] = {
        "outages": system.effort.contingencies,
        "outage_cuts": found.count("security"),
    }
    return {
        "rounds": system.effort.rounds,
        "rating_cuts": found.count("rating"),
        **(outages if system.grid.rules.n1 in ("node", "full") else {}),
    }
