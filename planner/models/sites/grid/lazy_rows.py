"""The lazy rows of a dc model: corridors above their ratings, before and after contingencies, year by year.

Each year has injections of its own, so each is searched alone for violations; years share the columns of what is
decided once.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.models.sites.data import SplitData
from planner.models.sites.grid import contingency_cuts
from planner.models.sites.grid.contingencies import TOLERANCE
from planner.models.sites.grid.dc_network import CutKey, DcNetwork, GridCut
from planner.models.sites.grid.power_flow import columns
from planner.models.sites.scenarios import years
from planner.solvers.lazy_constraints import Row

MAX_RATING_CUTS = 150  # in one round, over all years: more slow the LP down before the first have acted
MIN_RATING_CUTS = 30  # of these for each year, so that many years do not starve each other
N1_RULES = ("node", "full")  # those that follow flows after a contingency


@dataclass(frozen=True, kw_only=True)
class YearRows:
    """The lazy rows of one year; `suffix` follows their names."""

    network: DcNetwork
    rules: frozenset[str]
    load_mw: float
    max_cuts: int
    suffix: str
    stated: set[CutKey] = field(default_factory=set)

    def known(self) -> list[Row]:
        """Return the cuts that this split has met, of the rules in force."""
        cuts = {key: c for key, c in self.network.pool.items() if c.rule in self.rules}
        self.stated.clear()
        self.stated.update(cuts)
        return [self._row(c) for c in cuts.values()]

    def broken(self, x: npt.NDArray[np.float64], *, whole: bool, quick: bool) -> list[Row]:
        """Return cuts for what the point violates: of N-1 once few ratings are, and not when it must be quick."""
        cuts = self.network.rating_cuts(x, self.max_cuts, TOLERANCE) if "rating" in self.rules else []
        # The topology of a point is known where its binaries are whole, or where nothing can be built.
        known_topology = whole or (not self.network.buildable and self.network.grid.rules.n1 == "full")
        if "security" in self.rules and known_topology and not quick and len(cuts) < self.max_cuts // 5:
            cuts += contingency_cuts.violated(self.network, x, self.network.contingencies, TOLERANCE)
        # What is stated already is violated by no more than the solver's own tolerance.
        fresh = {c.key: c for c in cuts if c.key not in self.stated}
        self.network.pool.update(fresh)
        self.stated.update(fresh)
        return [self._row(c) for c in fresh.values()]

    def _row(self, c: GridCut) -> Row:
        entries = c.name.split(",")[: 1 if c.rule == "rating" else 2]
        name = f"{c.rule}[{','.join(entries)}]{self.suffix}"
        if not c.condition:
            return Row(name=name, columns=c.columns, values=c.values, upper=c.upper)
        big_m = c.reach * self.load_mw
        binaries = np.asarray([i for i, _ in c.condition])
        signs = np.asarray([big_m if wanted else -big_m for _, wanted in c.condition])
        upper = c.upper + big_m * sum(wanted for _, wanted in c.condition)
        return Row(
            name=name,
            columns=np.concatenate([c.columns, binaries]),
            values=np.concatenate([c.values, signs]),
            upper=upper,
        )


@dataclass(frozen=True, kw_only=True)
class LazyRows:
    """The lazy rows of all years: each year has the columns of its network, one year after the other."""

    columns: list[Any]
    gates: list[tuple[int, int]]
    years: list[YearRows]

    @property
    def _width(self) -> int:
        return len(self.columns) // len(self.years)

    def _placed(self, year: int, rows: list[Row]) -> list[Row]:
        return [replace(r, columns=r.columns + year * self._width) for r in rows]

    def known(self) -> list[Row]:
        """Return the cuts that this split has met, of the rules in force."""
        return [r for i, year in enumerate(self.years) for r in self._placed(i, year.known())]

    def forget(self) -> None:
        """Take all rows back: none is stated any more."""
        for year in self.years:
            year.stated.clear()

    def broken(self, x: npt.NDArray[np.float64], *, whole: bool, quick: bool) -> list[Row]:
        """Return cuts for what the point violates in any year."""
        self.years[0].network.effort.rounds += 1
        n = self._width
        by_year = [y.broken(x[i * n : (i + 1) * n], whole=whole, quick=quick) for i, y in enumerate(self.years)]
        return [r for i, rows in enumerate(by_year) for r in self._placed(i, rows)]


def attach(m: Any, data: SplitData, without: Collection[str], *, load_mw: float) -> None:
    """Give a dc model its lazy rows, as `m.lazy`."""
    if data.network is None:
        return
    rules = ({"rating", "security"} if data.grid.rules.n1 in N1_RULES else {"rating"}) - set(without)
    every_year = [(year, year.data.network) for year in years(m, data) if year.data.network]
    m.lazy = LazyRows(
        columns=[v for year, network in every_year for v in columns(year.block, network)],
        gates=[(data.network.first_modules + i, data.network.first_open + i) for i in range(len(data.candidates))],
        years=[
            YearRows(
                network=network,
                rules=frozenset(rules),
                load_mw=load_mw,
                max_cuts=max(MAX_RATING_CUTS // len(every_year), MIN_RATING_CUTS),
                suffix=year.suffix,
            )
            for year, network in every_year
        ],
    )


def security_space(network: DcNetwork) -> dict[str, int]:
    """Return what the search for lazy rows took, in all years."""
    rules = [c.rule for year in network.every_year for c in year.pool.values()]
    space = {"rounds": network.effort.rounds, "rating_cuts": rules.count("rating")}
    if network.grid.rules.n1 in N1_RULES:
        space |= {"outages": network.effort.contingencies, "outage_cuts": rules.count("security")}
    return space
